/* SPDX-License-Identifier: BSD-3-Clause */
/* The soft provider's region table: keys, checks, reuse of entries, a table full and garbled. */
#include "soft.h"

#include "src/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX 64u

static char memory[4096];

static int setup(void **state)
{
    angara_domain_h dom;

    if (ang_config_load() != ANGARA_OK) {
        return -1;
    }
    ang_config.mr_max = MAX;
    if (soft_domain_open("soft", &dom) != ANGARA_OK) {
        return -1;
    }
    *state = dom;
    return 0;
}

static int teardown(void **state)
{
    return (soft_domain_close(*state) == ANGARA_OK) ? 0 : -1;
}

static angara_status_t check(angara_domain_h base, uint64_t key, uint64_t offset, uint64_t length,
                             unsigned access)
{
    soft_domain_t  *dom  = (soft_domain_t *)base;
    uint64_t        addr = 0;
    angara_status_t status;

    status = soft_mr_check(dom->shared, dom->mr_max, key, offset, length, access, &addr, NULL);
    if (status == ANGARA_OK) {
        assert_true(addr == (uintptr_t)memory + offset);
    }
    return status;
}

static void test_bounds(void **state)
{
    angara_domain_h dom = *state;
    angara_mr_h     mr;
    uint64_t        key, size = sizeof(memory);

    assert_int_equal(soft_mr_register(dom, memory, size, ANGARA_ACCESS_REMOTE_READ, &mr),
                     ANGARA_OK);
    key = angara_mr_key(mr);
    assert_int_equal(check(dom, key, 0, size, 0), ANGARA_OK);
    assert_int_equal(check(dom, key, 0, 0, 0), ANGARA_OK);
    assert_int_equal(check(dom, key, size, 0, 0), ANGARA_OK);
    assert_int_equal(check(dom, key, size - 1, 1, 0), ANGARA_OK);
    assert_int_equal(check(dom, key, size, 1, 0), ANGARA_ERR_BOUNDS);
    assert_int_equal(check(dom, key, 0, size + 1, 0), ANGARA_ERR_BOUNDS);
    assert_int_equal(check(dom, key, size + 1, 0, 0), ANGARA_ERR_BOUNDS);
    assert_int_equal(check(dom, key, UINT64_MAX, 1, 0), ANGARA_ERR_BOUNDS);
    assert_int_equal(check(dom, key, 1, UINT64_MAX, 0), ANGARA_ERR_BOUNDS);
    assert_int_equal(check(dom, key, UINT64_MAX, UINT64_MAX, 0), ANGARA_ERR_BOUNDS);
    assert_int_equal(check(dom, key, UINT64_MAX - 7, 16, 0), ANGARA_ERR_BOUNDS);
    assert_int_equal(check(dom, key, 0, 1, ANGARA_ACCESS_REMOTE_READ), ANGARA_OK);
    assert_int_equal(check(dom, key, 0, 1, ANGARA_ACCESS_REMOTE_WRITE), ANGARA_ERR_RIGHTS);
    assert_int_equal(check(dom, key, 0, 1, ANGARA_ACCESS_REMOTE_ATOMIC), ANGARA_ERR_RIGHTS);
    assert_int_equal(check(dom, key, 0, 1, ANGARA_ACCESS_LOCAL_WRITE), ANGARA_ERR_RIGHTS);
    assert_int_equal(check(dom, key, 0, 1, ANGARA_ACCESS_ALL), ANGARA_ERR_RIGHTS);
    assert_int_equal(soft_mr_deregister(mr), ANGARA_OK);
    assert_int_equal(check(dom, key, 0, 1, 0), ANGARA_ERR_KEY);
}

static void test_keys(void **state)
{
    angara_domain_h dom = *state;
    angara_mr_h     mr;
    uint64_t        key, seen[200], ones = 0, zeros = 0;
    unsigned        i, j, bit;

    assert_int_equal(check(dom, 0, 0, 1, 0), ANGARA_ERR_KEY);
    for (i = 0; i < 200; ++i) {
        assert_int_equal(soft_mr_register(dom, memory, 64, 0, &mr), ANGARA_OK);
        key = seen[i] = angara_mr_key(mr);
        assert_true(key != 0);
        for (j = 0; j < i; ++j) {
            assert_true(seen[j] != key);
        }
        for (bit = 0; bit < 64; ++bit) {
            assert_int_equal(check(dom, key ^ (1ull << bit), 0, 1, 0), ANGARA_ERR_KEY);
        }
        ones |= key;
        zeros |= ~key;
        assert_int_equal(soft_mr_deregister(mr), ANGARA_OK);
    }
    /* At least 40 bits take both values. */
    assert_true(__builtin_popcountll(ones & zeros) >= 40);
}

static void test_full(void **state)
{
    angara_domain_h dom = *state;
    angara_mr_h     mrs[MAX], mr = NULL;
    unsigned        round, i;

    for (round = 0; round < 3; ++round) {
        for (i = 0; i < MAX; ++i) {
            assert_int_equal(soft_mr_register(dom, memory, 64, 0, &mrs[i]), ANGARA_OK);
        }
        assert_int_equal(soft_mr_register(dom, memory, 64, 0, &mr), ANGARA_ERR_NO_MEMORY);
        assert_null(mr);
        /* One free entry is enough again, whichever it is. */
        assert_int_equal(soft_mr_deregister(mrs[round * 7]), ANGARA_OK);
        assert_int_equal(soft_mr_register(dom, memory, 64, 0, &mrs[round * 7]), ANGARA_OK);
        for (i = MAX; i-- > 0;) {
            assert_int_equal(soft_mr_deregister(mrs[i]), ANGARA_OK);
        }
    }
}

/* What a peer's table claims is never believed beyond the mapping: bad indices, entries, sizes. */
static void test_garbled(void **state)
{
    soft_domain_t *dom = (soft_domain_t *)*state;
    angara_mr_h    mr;
    uint64_t       key;

    assert_int_equal(soft_mr_register(&dom->base, memory, 64, ANGARA_ACCESS_ALL, &mr), ANGARA_OK);
    key = angara_mr_key(mr);
    assert_int_equal(check(&dom->base, key | 0xffffff, 0, 1, 0), ANGARA_ERR_KEY);
    assert_int_equal(check(&dom->base, (key & ~0xffffffull) | MAX, 0, 1, 0), ANGARA_ERR_KEY);
    /* A checked copy of mr_max bounds the index whatever the shared words say. */
    dom->shared->mr_max       = UINT32_MAX;
    dom->shared->mr_committed = UINT32_MAX;
    assert_int_equal(check(&dom->base, (key & ~0xffffffull) | MAX, 0, 1, 0), ANGARA_ERR_KEY);
    assert_int_equal(check(&dom->base, UINT64_MAX, 0, 1, 0), ANGARA_ERR_KEY);
    assert_int_equal(check(&dom->base, key, 0, 64, 0), ANGARA_OK);
    assert_int_equal(soft_mr_deregister(mr), ANGARA_OK);
}

static void test_layout(void **state)
{
    soft_layout_t a, b;
    unsigned      events;

    (void)state;
    for (events = 2; events <= 65536; events *= 2) {
        soft_layout(events, 4096, &a);
        assert_true(a.events >= sizeof(soft_pe_seg_t));
        assert_true(a.service >= a.events + soft_record_ring_size(events));
        assert_true(a.staging >= a.service + soft_record_ring_size(SOFT_SERVICE_RING));
        assert_true(a.window >= a.staging + (size_t)SOFT_AGENTS * SOFT_STAGING);
        assert_true(a.total >= a.window + 4096);
        assert_int_equal((a.events | a.service | a.staging | a.window | a.total) % SOFT_PAGE, 0);
        soft_layout(events, 4097, &b);
        assert_int_equal(b.total - a.total, SOFT_PAGE);
    }
}

#define TEST(_name) cmocka_unit_test_setup_teardown(_name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_bounds), TEST(test_keys), TEST(test_full), TEST(test_garbled), TEST(test_layout),
    };

    return cmocka_run_group_tests_name("mr_table", tests, NULL, NULL);
}
