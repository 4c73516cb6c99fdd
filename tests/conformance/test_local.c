/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two PEs in one process, of one domain and of two, in one thread: whoever waits for one side must
 * not need the other side's progress.
 */
#include "conf.h"

#include <cmocka.h>

typedef struct {
    int two_domains;
    int shared;
} kind_t;

static const kind_t kinds[] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};

typedef struct {
    conf_t     side[2]; /* each with peer[0] and peer[1], of one process */
    conf_mem_t mem[2];
} pair_t;

static void pair_init(conf_t *t, pair_t *pair)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = CONF_WINDOW};
    const kind_t      *kind   = t->arg;
    unsigned           i, j;

    memset(pair, 0, sizeof(*pair));
    for (i = 0; i < 2; ++i) {
        conf_t *side = &pair->side[i];

        side->rank = i;
        side->rng  = i + 1;
        if ((i == 0) || kind->two_domains) {
            CHECK_OK(angara_open(conf_device(), &side->dom));
        } else {
            side->dom = pair->side[0].dom;
        }
        CHECK_OK(angara_query(side->dom, &side->attr));
        CHECK_OK(angara_pe_create(side->dom, &params, &side->pe));
        CHECK_OK(angara_pe_window_commit(side->pe, 0, CONF_WINDOW));
        side->window = angara_pe_window(side->pe, &pair->mem[i].length);
        CHECK_OK(angara_marker_slot_get(side->pe, &side->slot));
        side->value = *side->slot;
        conf_mem_init(side, &pair->mem[i], kind->shared, 1u << 20, ANGARA_ACCESS_ALL);
        angara_pe_address(side->pe, &t->addr[i]);
    }
    for (i = 0; i < 2; ++i) {
        for (j = 0; j < 2; ++j) {
            CHECK_OK(angara_peer_connect(pair->side[i].pe, &t->addr[j], &pair->side[i].peer[j]));
        }
    }
}

static void pair_cleanup(conf_t *t, pair_t *pair)
{
    const kind_t *kind = t->arg;
    unsigned      i, j;

    for (i = 0; i < 2; ++i) {
        for (j = 0; j < 2; ++j) {
            angara_peer_disconnect(pair->side[i].peer[j]);
        }
        angara_marker_slot_put(pair->side[i].pe, pair->side[i].slot);
    }
    for (i = 0; i < 2; ++i) {
        conf_mem_cleanup(&pair->mem[i]);
        angara_pe_destroy(pair->side[i].pe);
    }
    CHECK_OK(angara_close(pair->side[0].dom));
    if (kind->two_domains) {
        CHECK_OK(angara_close(pair->side[1].dom));
    }
}

static void transfers(conf_t *t)
{
    unsigned rounds = conf_rounds(rank_chaos() ? 60 : 300), n;
    pair_t   pair;

    pair_init(t, &pair);
    for (n = 1; n <= rounds; ++n) {
        unsigned from = n % 2, to = 1 - from;
        conf_t  *side = &pair.side[from];
        char    *src = pair.mem[from].addr, *dst = pair.mem[to].addr;
        uint64_t key  = angara_mr_key(pair.mem[to].mr);
        size_t   size = 1 + (n * 1009) % 100000;
        size_t   put  = (size < side->attr.put_max) ? size : side->attr.put_max;

        memset(dst, 0, 8 + size);
        data_fill(src, size, n);
        POST_OK(side, angara_put_flag(side->peer[to], 8, src, put, 0, n));
        POST_OK(side, angara_offload_put(side->peer[to], pair.mem[from].mr, src, key, 8, size));
        if (conf_has_atomics(pair.mem[to].shared)) {
            POST_OK(side, angara_atomic(side->peer[to], ANGARA_ATOMIC_ADD, 8, n, 0, key, 0,
                                        pair.mem[from].mr, src + 300000));
        } else {
            POST_OK(side, conf_add(side, to, 0, n, n, key, 0));
        }
        POST_OK(side, angara_offload_get(side->peer[to], pair.mem[from].mr, src + 400000, key, 0,
                                         size + 8));
        POST_OK(side, angara_notify(side->peer[to], &n, sizeof(n)));
        conf_marker(side, to);
        CHECK_EQ(*(volatile uint64_t *)(void *)pair.side[to].window, n);
        CHECK_DATA(pair.side[to].window + 8, put, n);
        CHECK_DATA(dst + 8, size, n);
        CHECK_EQ(*(uint64_t *)(void *)dst, n);
        CHECK_EQ(*(uint64_t *)(void *)(src + 300000), 0);
        CHECK_EQ(*(uint64_t *)(void *)(src + 400000), n);
        CHECK_DATA(src + 400008, size, n);
        {
            angara_event_t event;

            CHECK(conf_event(&pair.side[to], &event, RANK_TIMEOUT));
            CHECK_EQ(event.type, ANGARA_EVENT_NOTIFY);
            CHECK(event.peer == pair.side[to].peer[from]);
            CHECK(memcmp(event.data, &n, sizeof(n)) == 0);
        }
    }
    pair_cleanup(t, &pair);
}

/* A PE reaches what its target PE's domain has, and only that. */
static void domains(conf_t *t)
{
    const kind_t *kind = t->arg;
    pair_t        pair;

    pair_init(t, &pair);
    /* The key of PE 0's own memory, used towards PE 1: known there only if they share the domain.
     */
    if (kind->two_domains) {
        uint64_t key = angara_mr_key(pair.mem[0].mr);

        conf_expect_fault(&pair.side[0], 1,
                          CONF_POST(&pair.side[0], angara_offload_put_inline(pair.side[0].peer[1],
                                                                             "x", key, 0, 1)),
                          ANGARA_ERR_KEY, key);
        CHECK_EQ(pair.mem[0].addr[0], 0);
    } else {
        POST_OK(&pair.side[0], angara_offload_put_inline(pair.side[0].peer[1], "x",
                                                         angara_mr_key(pair.mem[0].mr), 0, 1));
        conf_marker(&pair.side[0], 1);
        CHECK_EQ(pair.mem[0].addr[0], 'x');
    }
    pair_cleanup(t, &pair);
}

/* Slots belong to their PE. */
static void slots(conf_t *t)
{
    pair_t pair;

    pair_init(t, &pair);
    CHECK(pair.side[0].slot != pair.side[1].slot);
    CHECK_STATUS(angara_marker(pair.side[0].peer[1], pair.side[1].slot, 1000), ANGARA_ERR_INVALID);
    conf_marker(&pair.side[0], 1);
    conf_marker(&pair.side[1], 0);
    pair_cleanup(t, &pair);
}

#define FOR_KINDS(_name)                                         \
    static void test_##_name##_one_domain_private(void **state)  \
    {                                                            \
        (void)state;                                             \
        conf_run(1, _name, &kinds[0]);                           \
    }                                                            \
    static void test_##_name##_one_domain_shared(void **state)   \
    {                                                            \
        (void)state;                                             \
        conf_run(1, _name, &kinds[1]);                           \
    }                                                            \
    static void test_##_name##_two_domains_private(void **state) \
    {                                                            \
        (void)state;                                             \
        conf_run(1, _name, &kinds[2]);                           \
    }                                                            \
    static void test_##_name##_two_domains_shared(void **state)  \
    {                                                            \
        (void)state;                                             \
        conf_run(1, _name, &kinds[3]);                           \
    }

FOR_KINDS(transfers)
FOR_KINDS(domains)

static void test_slots(void **state)
{
    (void)state;
    conf_run(1, slots, &kinds[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfers_one_domain_private),
        cmocka_unit_test(test_transfers_one_domain_shared),
        cmocka_unit_test(test_transfers_two_domains_private),
        cmocka_unit_test(test_transfers_two_domains_shared),
        cmocka_unit_test(test_domains_one_domain_private),
        cmocka_unit_test(test_domains_one_domain_shared),
        cmocka_unit_test(test_domains_two_domains_private),
        cmocka_unit_test(test_domains_two_domains_shared),
        cmocka_unit_test(test_slots),
    };

    return cmocka_run_group_tests_name("local", tests, NULL, NULL);
}
