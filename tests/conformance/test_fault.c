/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults: bad keys, bounds, rights, regions that are gone, foreign domains. No byte moves, the
 * event tells status, peer and key, no marker behind the fault arrives, and the pair works after a
 * reset.
 */
#include "conf.h"

#include <cmocka.h>

typedef struct {
    int shared;
} kind_t;

static const kind_t kind_private = {0}, kind_shared = {1};

#define SIZE 8192u

typedef struct {
    conf_mem_t all;      /* every right */
    conf_mem_t readable; /* remote reads only */
    conf_mem_t writable; /* remote writes only */
    conf_mem_t buf;
    uint64_t   all_keys[RANK_MAX];
    uint64_t   readable_keys[RANK_MAX];
    uint64_t   writable_keys[RANK_MAX];
} regions_t;

static void regions_init(conf_t *t, regions_t *r)
{
    int shared = ((const kind_t *)t->arg)->shared;

    conf_mem_init(t, &r->all, shared, SIZE, ANGARA_ACCESS_ALL);
    conf_mem_init(t, &r->readable, shared, SIZE, ANGARA_ACCESS_REMOTE_READ);
    conf_mem_init(t, &r->writable, shared, SIZE, ANGARA_ACCESS_REMOTE_WRITE);
    conf_mem_init(t, &r->buf, 0, SIZE, ANGARA_ACCESS_LOCAL_WRITE);
    memset(r->all.addr, 0x11, SIZE);
    memset(r->readable.addr, 0x11, SIZE);
    memset(r->writable.addr, 0x11, SIZE);
    memset(r->buf.addr, 0x22, SIZE);
    conf_mem_exchange(t, &r->all, r->all_keys);
    conf_mem_exchange(t, &r->readable, r->readable_keys);
    conf_mem_exchange(t, &r->writable, r->writable_keys);
}

static void check_all(const conf_mem_t *mem, char value)
{
    size_t i;

    for (i = 0; i < mem->length; ++i) {
        CHECK(mem->addr[i] == value);
    }
}

static void regions_cleanup(conf_t *t, regions_t *r)
{
    conf_barrier(t);
    conf_mem_cleanup(&r->buf);
    conf_mem_cleanup(&r->writable);
    conf_mem_cleanup(&r->readable);
    conf_mem_cleanup(&r->all);
}

/* Each kind of operation on one (key, offset, length): all must fault alike. */
static void expect_all_fault(conf_t *t, regions_t *r, uint64_t key, uint64_t offset, size_t length,
                             angara_status_t expected)
{
    angara_peer_h peer = t->peer[1];

    conf_expect_fault(
        t, 1, CONF_POST(t, angara_offload_put(peer, r->buf.mr, r->buf.addr, key, offset, length)),
        expected, key);
    conf_expect_fault(
        t, 1, CONF_POST(t, angara_offload_get(peer, r->buf.mr, r->buf.addr, key, offset, length)),
        expected, key);
    if (length <= t->attr.inline_max) {
        conf_expect_fault(
            t, 1, CONF_POST(t, angara_offload_put_inline(peer, r->buf.addr, key, offset, length)),
            expected, key);
    }
    if (length == 8) {
        conf_expect_fault(
            t, 1,
            CONF_POST(t, angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, key, offset, NULL, NULL)),
            expected, key);
        conf_expect_fault(t, 1,
                          CONF_POST(t, angara_atomic(peer, ANGARA_ATOMIC_SWAP, 8, 1, 0, key, offset,
                                                     r->buf.mr, r->buf.addr)),
                          expected, key);
    }
}

static void bad_keys(conf_t *t)
{
    unsigned  rounds = conf_rounds(rank_chaos() ? 20 : 50), n;
    regions_t r;
    uint64_t  key;

    conf_open(t);
    regions_init(t, &r);
    if (t->rank == 0) {
        key = r.all_keys[1];
        expect_all_fault(t, &r, 0, 0, 8, ANGARA_ERR_KEY);
        expect_all_fault(t, &r, UINT64_MAX, 0, 8, ANGARA_ERR_KEY);
        expect_all_fault(t, &r, key ^ 1, 0, 8, ANGARA_ERR_KEY);
        expect_all_fault(t, &r, key ^ (1ull << 63), 0, 8, ANGARA_ERR_KEY);
        expect_all_fault(t, &r, key + (1ull << 32), 0, 8, ANGARA_ERR_KEY);
        for (n = 0; n < rounds; ++n) { /* guesses: one bit off, and anything */
            key = ((n % 2) != 0) ? r.all_keys[1] ^ (1ull << (n % 64)) : conf_random(t);
            expect_all_fault(t, &r, key, 0, 8, ANGARA_ERR_KEY);
        }
    }
    conf_barrier(t);
    check_all(&r.all, 0x11);
    check_all(&r.buf, 0x22);
    regions_cleanup(t, &r);
    conf_close(t);
}

static void out_of_bounds(conf_t *t)
{
    regions_t r;
    uint64_t  key;
    size_t    length;
    void     *addr;

    conf_open(t);
    regions_init(t, &r);
    angara_mr_range(r.all.mr, &addr, &length);
    CHECK((addr == r.all.addr) && (length >= SIZE));
    conf_barrier(t);
    if (t->rank == 0) {
        key = r.all_keys[1];
        expect_all_fault(t, &r, key, length, 1, ANGARA_ERR_BOUNDS);
        expect_all_fault(t, &r, key, length - 7, 8, ANGARA_ERR_BOUNDS);
        expect_all_fault(t, &r, key, length, 8, ANGARA_ERR_BOUNDS);
        expect_all_fault(t, &r, key, 1, SIZE, ANGARA_ERR_BOUNDS);
        expect_all_fault(t, &r, key, UINT64_MAX, 1, ANGARA_ERR_BOUNDS);
        expect_all_fault(t, &r, key, UINT64_MAX - 7, 8, ANGARA_ERR_BOUNDS);
        expect_all_fault(t, &r, key, UINT64_MAX - 3, 8, ANGARA_ERR_BOUNDS);
        expect_all_fault(t, &r, key, 1ull << 63, 8, ANGARA_ERR_BOUNDS);
        expect_all_fault(t, &r, key, 0 - (uint64_t)SIZE, SIZE, ANGARA_ERR_BOUNDS);
        /* The very last byte is inside. */
        POST_OK(t, angara_offload_get(t->peer[1], r.buf.mr, r.buf.addr, key, length - 1, 1));
        conf_marker(t, 1);
        CHECK_EQ(r.buf.addr[0], 0x11);
        r.buf.addr[0] = 0x22;
    }
    conf_barrier(t);
    check_all(&r.all, 0x11);
    check_all(&r.buf, 0x22);
    regions_cleanup(t, &r);
    conf_close(t);
}

static void wrong_rights(conf_t *t)
{
    angara_peer_h peer = NULL;
    regions_t     r;
    uint64_t      key;

    conf_open(t);
    regions_init(t, &r);
    if (t->rank == 0) {
        peer = t->peer[1];
        key  = r.readable_keys[1];
        conf_expect_fault(t, 1,
                          CONF_POST(t, angara_offload_put(peer, r.buf.mr, r.buf.addr, key, 0, 64)),
                          ANGARA_ERR_RIGHTS, key);
        conf_expect_fault(t, 1, CONF_POST(t, angara_offload_put_inline(peer, &key, key, 0, 8)),
                          ANGARA_ERR_RIGHTS, key);
        conf_expect_fault(
            t, 1, CONF_POST(t, angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, key, 0, NULL, NULL)),
            ANGARA_ERR_RIGHTS, key);
        if (!r.all.shared && conf_on_gpu(1)) { /* where nobody has that right */
            key = r.all_keys[1];
            conf_expect_fault(
                t, 1,
                CONF_POST(t, angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, key, 0, NULL, NULL)),
                ANGARA_ERR_RIGHTS, key);
        }
        key = r.writable_keys[1];
        conf_expect_fault(t, 1,
                          CONF_POST(t, angara_offload_get(peer, r.buf.mr, r.buf.addr, key, 0, 64)),
                          ANGARA_ERR_RIGHTS, key);
    }
    conf_barrier(t);
    check_all(&r.readable, 0x11);
    check_all(&r.writable, 0x11);
    check_all(&r.buf, 0x22);
    regions_cleanup(t, &r);
    conf_close(t);
}

/* A key is dead once its region is; its table entry's next user has another key. */
static void deregistered(conf_t *t)
{
    int        shared = ((const kind_t *)t->arg)->shared;
    unsigned   n;
    regions_t  r;
    conf_mem_t first, second;
    uint64_t   old_keys[RANK_MAX], new_keys[RANK_MAX];

    conf_open(t);
    regions_init(t, &r);
    for (n = 0; n < 5; ++n) {
        conf_mem_init(t, &first, shared, SIZE, ANGARA_ACCESS_ALL);
        conf_mem_exchange(t, &first, old_keys);
        if (t->rank == 0) { /* used once, so that whatever the initiator caches is there */
            POST_OK(t, angara_offload_put_inline(t->peer[1], "x", old_keys[1], 0, 1));
            conf_marker(t, 1);
        }
        conf_barrier(t);
        conf_mem_cleanup(&first);
        conf_mem_init(t, &second, shared, SIZE, ANGARA_ACCESS_ALL);
        conf_mem_exchange(t, &second, new_keys);
        CHECK(old_keys[t->rank] != new_keys[t->rank]);
        if (t->rank == 0) {
            expect_all_fault(t, &r, old_keys[1], 0, 8, ANGARA_ERR_KEY);
        }
        conf_barrier(t);
        check_all(&second, 0);
        conf_barrier(t);
        conf_mem_cleanup(&second);
    }
    check_all(&r.buf, 0x22);
    regions_cleanup(t, &r);
    conf_close(t);
}

/* The second domain of the target process: its regions are out of reach through a PE of the first.
 */
static void domain_isolation(conf_t *t)
{
    int             shared = ((const kind_t *)t->arg)->shared;
    angara_domain_h other, mine;
    conf_mem_t      foreign;
    regions_t       r;
    uint64_t        keys[RANK_MAX];

    conf_open(t);
    regions_init(t, &r);
    CHECK_OK(angara_open(conf_device(), &other));
    mine   = t->dom;
    t->dom = other;
    conf_mem_init(t, &foreign, shared, SIZE, ANGARA_ACCESS_ALL);
    t->dom = mine;
    conf_mem_exchange(t, &foreign, keys);
    if (t->rank == 0) {
        expect_all_fault(t, &r, keys[1], 0, 8, ANGARA_ERR_KEY);
        /* Nor may a local buffer come from another domain. */
        CHECK(angara_offload_put(t->peer[1], foreign.mr, foreign.addr, r.all_keys[1], 0, 8) < 0);
        CHECK(angara_offload_get(t->peer[1], foreign.mr, foreign.addr, r.all_keys[1], 0, 8) < 0);
        conf_settle(t, 1);
    }
    conf_barrier(t);
    check_all(&foreign, 0);
    check_all(&r.all, 0x11);
    CHECK_STATUS(angara_close(other), ANGARA_ERR_INVALID); /* it still has a region */
    conf_mem_cleanup(&foreign);
    CHECK_OK(angara_close(other));
    regions_cleanup(t, &r);
    conf_close(t);
}

/*
 * A fault in the middle of a stream: what was posted before it is performed, what was posted behind
 * it isn't, and the pair with the third rank goes on.
 */
static void fault_in_stream(conf_t *t)
{
    angara_status_t status;
    unsigned        n;
    angara_event_t  event;
    regions_t       r;
    uint64_t        value;

    conf_open(t);
    regions_init(t, &r);
    if (t->rank == 0) {
        data_fill(r.buf.addr, 1000, 9);
        POST_OK(t, angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr, r.all_keys[1], 0, 1000));
        conf_marker(t, 1);
        status = CONF_POST(
            t, angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr, r.all_keys[1], SIZE, 8));
        CHECK((status == ANGARA_OK) || (status == ANGARA_ERR_BOUNDS));
        for (n = 0; n < 10; ++n) {
            status = angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr, r.all_keys[1], 2000,
                                        1000);
            CHECK((status == ANGARA_OK) || (status == ANGARA_ERR_PAIR));
        }
        value  = ++t->value;
        status = angara_marker(t->peer[1], t->slot, value);
        CHECK((status == ANGARA_OK) || (status == ANGARA_ERR_PAIR));
        CHECK(conf_event(t, &event, RANK_TIMEOUT));
        CHECK_EQ(event.type, ANGARA_EVENT_FAULT);
        CHECK(event.peer == t->peer[1]);
        for (n = 0; n < 1000; ++n) {
            angara_pe_progress(t->pe);
            CHECK(!angara_marker_arrived(t->slot, value));
        }
        /* The other pair is not concerned. */
        CHECK_OK(angara_peer_status(t->peer[2]));
        POST_OK(t, angara_offload_put(t->peer[2], r.buf.mr, r.buf.addr, r.all_keys[2], 0, 1000));
        conf_marker(t, 2);
        /* Window puts to the faulted peer aren't ring operations, they go on too. */
        POST_OK(t, angara_put_flag(t->peer[1], 8, r.buf.addr, 100, 0, 5));
        CHECK_OK(angara_peer_reset(t->peer[1]));
        conf_marker(t, 1);
    }
    conf_barrier(t);
    if (t->rank != 0) {
        CHECK_DATA(r.all.addr, 1000, 9);
        for (n = 1000; n < SIZE; ++n) {
            CHECK(r.all.addr[n] == 0x11);
        }
    }
    if (t->rank == 1) {
        CHECK_EQ(*(uint64_t *)(void *)t->window, 5);
        CHECK_DATA(t->window + 8, 100, 9);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

/* Every fault is counted, and every event is delivered or counted as lost, with a sticky overflow.
 */
static void overflow(conf_t *t)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = CONF_WINDOW, .events = 16};
    unsigned           raised = 100, faults = 0, overflows = 0, n;
    angara_counters_t  counters;
    angara_event_t     event;
    regions_t          r;

    conf_open_params(t, &params);
    regions_init(t, &r);
    if (strcmp(t->attr.provider, "soft") != 0) {
        raised = 1000; /* a NIC's rings may have one size, and a larger one */
    }
    if (t->rank == 0) {
        for (n = 0; n < raised; ++n) {
            CONF_POST(t, angara_offload_put_inline(t->peer[1], "x", 0, 0, 1));
            CONF_WAIT(t, angara_peer_status(t->peer[1]) == ANGARA_ERR_PAIR);
            CHECK_OK(angara_peer_reset(t->peer[1]));
        }
        angara_pe_counters(t->pe, &counters);
        CHECK_EQ(counters.faults, raised);
        CHECK(counters.events_lost > 0);
        CHECK(counters.events_lost < raised);
        while (conf_event(t, &event, 0)) {
            faults += (event.type == ANGARA_EVENT_FAULT);
            overflows += (event.type == ANGARA_EVENT_OVERFLOW);
        }
        CHECK_EQ(faults + counters.events_lost, raised);
        CHECK_EQ(overflows, 1);
        /* The ring works again. */
        conf_expect_fault(t, 1, CONF_POST(t, angara_offload_put_inline(t->peer[1], "x", 0, 0, 1)),
                          ANGARA_ERR_KEY, 0);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

#define FOR_KINDS(_ranks, _name)                     \
    static void test_##_name##_private(void **state) \
    {                                                \
        (void)state;                                 \
        conf_run(_ranks, _name, &kind_private);      \
    }                                                \
    static void test_##_name##_shared(void **state)  \
    {                                                \
        (void)state;                                 \
        conf_run(_ranks, _name, &kind_shared);       \
    }

FOR_KINDS(2, bad_keys)
FOR_KINDS(2, out_of_bounds)
FOR_KINDS(2, wrong_rights)
FOR_KINDS(2, deregistered)
FOR_KINDS(2, domain_isolation)
FOR_KINDS(3, fault_in_stream)

static void test_overflow(void **state)
{
    (void)state;
    conf_run(2, overflow, &kind_private);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_keys_private),
        cmocka_unit_test(test_bad_keys_shared),
        cmocka_unit_test(test_out_of_bounds_private),
        cmocka_unit_test(test_out_of_bounds_shared),
        cmocka_unit_test(test_wrong_rights_private),
        cmocka_unit_test(test_wrong_rights_shared),
        cmocka_unit_test(test_deregistered_private),
        cmocka_unit_test(test_deregistered_shared),
        cmocka_unit_test(test_domain_isolation_private),
        cmocka_unit_test(test_domain_isolation_shared),
        cmocka_unit_test(test_fault_in_stream_private),
        cmocka_unit_test(test_fault_in_stream_shared),
        cmocka_unit_test(test_overflow),
    };

    return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
