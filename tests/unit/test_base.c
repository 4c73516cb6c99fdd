/* SPDX-License-Identifier: BSD-3-Clause */
/* What providers do alike with pairs and addresses (provider/base.c), without a provider. */
#include "provider/provider.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PROVIDER 2
#define PEERS    3

typedef struct {
    struct angara_domain dom;
    struct angara_pe     pe;
    struct angara_peer   peers[PEERS];
} life_t;

static int begin(void **state)
{
    life_t          *life = calloc(1, sizeof(*life));
    angara_address_t address;

    *state = life;
    if (life == NULL) {
        return 1;
    }
    life->dom.attr.node = 5;
    life->pe.dom        = &life->dom;
    ang_address_init(&life->pe, PROVIDER, 3, 9);
    for (unsigned i = 0; i < PEERS; ++i) {
        address       = life->pe.address;
        address.index = 100 + i;
        ang_peer_init(&life->peers[i], &life->pe, &address, 4711);
        ang_peer_link(&life->peers[i]);
    }
    return 0;
}

static int end(void **state)
{
    life_t *life = *state;

    while (life->pe.peers != NULL) {
        ang_peer_unlink(life->pe.peers);
    }
    free(life);
    return 0;
}

static void test_addresses(void **state)
{
    life_t          *life    = *state;
    angara_address_t address = life->pe.address;

    assert_int_equal(address.node, 5);
    assert_true(ang_address_is_own(&life->pe, &address));
    assert_int_equal(ang_address_check(&address, PROVIDER, ANG_LOG_DEBUG), ANGARA_OK);
    assert_int_equal(ang_address_check(&address, PROVIDER + 1, ANG_LOG_DEBUG),
                     ANGARA_ERR_UNREACHABLE);
    address.version++;
    assert_false(ang_address_is_own(&life->pe, &address));
    assert_int_equal(ang_address_check(&address, PROVIDER, ANG_LOG_DEBUG), ANGARA_ERR_VERSION);
    address.generation = 0;
    assert_int_equal(ang_address_check(&address, PROVIDER, ANG_LOG_DEBUG), ANGARA_ERR_UNREACHABLE);
    address = life->pe.address;
    address.magic ^= 1;
    assert_int_equal(ang_address_check(&address, PROVIDER, ANG_LOG_DEBUG), ANGARA_ERR_UNREACHABLE);
}

static angara_peer_h find(life_t *life, uint32_t node, uint32_t index, uint32_t generation)
{
    const angara_pe_id_t id = {node, index, generation};

    return ang_peer_find(&life->pe, &id);
}

static void test_peers(void **state)
{
    life_t *life = *state;

    for (unsigned i = 0; i < PEERS; ++i) {
        assert_ptr_equal(find(life, 5, 100 + i, 9), &life->peers[i]);
        assert_int_equal(life->peers[i].refs, 1);
    }
    assert_string_equal(life->peers[1].name, "pid 4711 (PE 101 of node 5)");
    assert_null(find(life, 6, 100, 9));
    assert_null(find(life, 5, 103, 9));
    assert_null(find(life, 5, 100, 8));
    life->peers[2].refs = 0; /* given up: nobody knows it */
    assert_null(find(life, 5, 102, 9));
    ang_peer_unlink(&life->peers[1]);
    assert_null(find(life, 5, 101, 9));
    assert_ptr_equal(find(life, 5, 100, 9), &life->peers[0]);
    ang_peer_unlink(&life->peers[2]);
    ang_peer_unlink(&life->peers[0]);
    assert_null(life->pe.peers);
}

static void test_in_bounds(void **state)
{
    (void)state;
    assert_true(ang_in_bounds(0, 0, 0));
    assert_true(ang_in_bounds(8, 0, 8));
    assert_true(ang_in_bounds(0, UINT64_MAX, UINT64_MAX));
    assert_false(ang_in_bounds(9, 0, 8));
    assert_false(ang_in_bounds(1, UINT64_MAX, UINT64_MAX)); /* wraps */
    assert_false(ang_in_bounds(UINT64_MAX, 2, 8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_addresses, begin, end),
        cmocka_unit_test_setup_teardown(test_peers, begin, end),
        cmocka_unit_test(test_in_bounds),
    };

    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
