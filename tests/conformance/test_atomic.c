/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Atomics: every operation and width against a model, and under contention by several processes;
 * gets of the words that they change.
 */
#include "conf.h"

#include <cmocka.h>

#define OWN_ADDS 200u            /* additions by the target's CPU in each round of contention */
#define WORDS    4u              /* that change while they are read */
#define OWN_XORS (WORDS * 2001u) /* an odd number each: they stay changed */
#define READS    16u             /* after each change of a rank */

typedef struct {
    int shared; /* kind of the target's memory */
} kind_t;

static const kind_t kind_private = {0}, kind_shared = {1};

static uint64_t mask(unsigned width)
{
    return (width == 4) ? 0xffffffffull : UINT64_MAX;
}

static uint64_t model(angara_atomic_op_t op, uint64_t old, uint64_t operand, uint64_t compare,
                      unsigned width)
{
    switch (op) {
    case ANGARA_ATOMIC_ADD:
        return (old + operand) & mask(width);
    case ANGARA_ATOMIC_AND:
        return old & operand & mask(width);
    case ANGARA_ATOMIC_OR:
        return (old | operand) & mask(width);
    case ANGARA_ATOMIC_XOR:
        return (old ^ operand) & mask(width);
    case ANGARA_ATOMIC_SWAP:
        return operand & mask(width);
    case ANGARA_ATOMIC_CSWAP:
        return (old == (compare & mask(width))) ? operand & mask(width) : old;
    default:
        CHECK(!"unknown operation");
        return 0;
    }
}

typedef struct {
    conf_mem_t mem;
    conf_mem_t buf;
    uint64_t   keys[RANK_MAX];
} regions_t;

static void regions_init(conf_t *t, regions_t *r)
{
    const kind_t *kind = t->arg;

    conf_mem_init(t, &r->mem, kind->shared, 8192, ANGARA_ACCESS_ALL);
    conf_mem_init(t, &r->buf, 0, 4096, ANGARA_ACCESS_LOCAL_WRITE);
    conf_mem_exchange(t, &r->mem, r->keys);
}

static void regions_cleanup(conf_t *t, regions_t *r)
{
    conf_barrier(t);
    conf_mem_cleanup(&r->buf);
    conf_mem_cleanup(&r->mem);
}

static uint64_t word_at(const conf_mem_t *mem, size_t offset, unsigned width)
{
    uint64_t value = 0;

    memcpy(&value, mem->addr + offset, width);
    return value;
}

/* A random walk of operations on random words; rank @a to holds them, rank 0 issues. */
static void walk(conf_t *t, unsigned to, regions_t *r)
{
    unsigned rounds = conf_rounds(rank_chaos() ? 300 : 1000);
    uint64_t words[512]; /* what the target's first 4 KiB must hold */
    uint64_t old, operand, compare;
    unsigned n, width, op, fetch;
    size_t   offset;

    memset(words, 0, sizeof(words));
    for (n = 0; n < rounds; ++n) {
        width   = (conf_random(t) & 1) ? 4 : 8;
        op      = (unsigned)(n % ANGARA_ATOMIC_LAST);
        fetch   = (n / ANGARA_ATOMIC_LAST) & 1;
        offset  = (conf_random(t) % 16) * 8 + ((width == 4) ? (conf_random(t) & 4) : 0);
        operand = conf_random(t);
        old     = 0;
        memcpy(&old, (char *)words + offset, width);
        compare = (conf_random(t) & 1) ? old : conf_random(t);
        memset(r->buf.addr, 0xab, 24);
        POST_OK(t, angara_atomic(t->peer[to], (angara_atomic_op_t)op, width, operand, compare,
                                 r->keys[to], offset, fetch ? r->buf.mr : NULL,
                                 fetch ? r->buf.addr + 8 : NULL));
        conf_marker(t, to);
        if (fetch) {
            CHECK_EQ(word_at(&r->buf, 8, width), old);
        }
        CHECK_EQ(word_at(&r->buf, 0, 8), 0xababababababababull);
        CHECK_EQ((uint8_t)r->buf.addr[8 + (fetch ? width : 0)], 0xab);
        old = model((angara_atomic_op_t)op, old, operand, compare, width);
        memcpy((char *)words + offset, &old, width);
    }
    /* All of the target's words, neighbours included. */
    POST_OK(t, angara_offload_get(t->peer[to], r->buf.mr, r->buf.addr, r->keys[to], 0, 4096));
    conf_marker(t, to);
    CHECK(memcmp(r->buf.addr, words, sizeof(words)) == 0);
}

static void model_remote(conf_t *t)
{
    regions_t r;

    conf_need_atomics(((const kind_t *)t->arg)->shared);
    conf_open(t);
    regions_init(t, &r);
    if (t->rank == 0) {
        walk(t, 1, &r);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

static void model_own(conf_t *t)
{
    regions_t r;

    conf_need_atomics(((const kind_t *)t->arg)->shared);
    conf_open(t);
    regions_init(t, &r);
    walk(t, 0, &r);
    regions_cleanup(t, &r);
    conf_close(t);
}

/*
 * All ranks, the target among them with remote and with CPU atomics, add to one counter, fetch
 * tickets from another and take turns on a compare-and-swap loop. Tickets must be unique.
 */
static void contend(conf_t *t)
{
    unsigned  rounds = conf_rounds(rank_chaos() ? 100 : 1000);
    unsigned  total  = rounds * t->nranks, n, i;
    uint64_t *tickets;
    uint64_t  seen;
    regions_t r;

    conf_need_atomics(((const kind_t *)t->arg)->shared);
    conf_open(t);
    regions_init(t, &r);
    tickets = (uint64_t *)(void *)r.buf.addr;
    for (n = 0; n < rounds; ++n) {
        POST_OK(t, angara_atomic(t->peer[0], ANGARA_ATOMIC_ADD, 8, 3, 0, r.keys[0], 0, NULL, NULL));
        POST_OK(t, angara_atomic(t->peer[0], ANGARA_ATOMIC_ADD, 4, 5, 0, r.keys[0], 8, NULL, NULL));
        POST_OK(t, angara_atomic(t->peer[0], ANGARA_ATOMIC_ADD, 8, 1, 0, r.keys[0], 16, r.buf.mr,
                                 tickets));
        for (i = 0; (t->rank == 0) && (i < OWN_ADDS); ++i) {
            __atomic_fetch_add((uint64_t *)(void *)r.mem.addr, 1, __ATOMIC_SEQ_CST);
        }
        conf_marker(t, 0);
        /* A ticket is claimed by a bit: the old word must not have it. */
        seen = *tickets;
        CHECK(seen < total);
        POST_OK(t, angara_atomic(t->peer[0], ANGARA_ATOMIC_OR, 8, 1ull << (seen % 64), 0, r.keys[0],
                                 64 + 8 * (seen / 64), r.buf.mr, tickets + 1));
        conf_marker(t, 0);
        CHECK((tickets[1] & (1ull << (seen % 64))) == 0);
        do { /* lock-free increment of word 24 */
            POST_OK(t, angara_offload_get(t->peer[0], r.buf.mr, tickets + 2, r.keys[0], 24, 8));
            conf_marker(t, 0);
            POST_OK(t, angara_atomic(t->peer[0], ANGARA_ATOMIC_CSWAP, 8, tickets[2] + 1, tickets[2],
                                     r.keys[0], 24, r.buf.mr, tickets + 3));
            conf_marker(t, 0);
        } while (tickets[2] != tickets[3]);
    }
    conf_barrier(t);
    if (t->rank == 0) {
        CHECK_EQ(word_at(&r.mem, 0, 8), 3ull * total + OWN_ADDS * (uint64_t)rounds);
        CHECK_EQ(word_at(&r.mem, 8, 4), 5ull * total);
        CHECK_EQ(word_at(&r.mem, 12, 4), 0);
        CHECK_EQ(word_at(&r.mem, 16, 8), total);
        CHECK_EQ(word_at(&r.mem, 24, 8), total);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

/* A get of a naturally aligned word, by itself and twice in a batch. */
static void get_whole(conf_t *t, const regions_t *r, uint64_t offset, unsigned width,
                      unsigned place)
{
    angara_xfer_t xfers[3];
    unsigned      posted, i, n;
    uint8_t      *got;

    for (n = 0; n < 3; ++n) {
        xfers[n] = (angara_xfer_t){r->buf.mr, r->buf.addr + 64 + 64 * n + place, r->keys[0], offset,
                                   width};
    }
    POST_OK(t,
            angara_offload_get(t->peer[0], r->buf.mr, xfers[0].laddr, r->keys[0], offset, width));
    POST_OK(t, angara_offload_batch(t->peer[0], ANGARA_BATCH_GET, xfers + 1, 2, &posted));
    conf_marker(t, 0);
    for (n = 0; n < 3; ++n) {
        got = xfers[n].laddr;
        for (i = 1; i < width; ++i) {
            CHECK_EQ(got[i], got[0]);
        }
    }
}

/*
 * Words that all ranks change by atomics, the target by its CPU too, while all read them: the eight
 * bytes of each are always the same.
 */
static void read_whole(conf_t *t)
{
    unsigned  rounds = conf_rounds(rank_chaos() ? 50 : 500);
    unsigned  n, i, width;
    uint64_t *target, random;
    regions_t r;

    conf_need_atomics(((const kind_t *)t->arg)->shared);
    conf_open(t);
    regions_init(t, &r);
    target = (uint64_t *)(void *)r.mem.addr;
    for (n = 0; n < rounds; ++n) {
        random = conf_random(t);
        POST_OK(t, angara_atomic(t->peer[0], ANGARA_ATOMIC_SWAP, 8,
                                 (random >> 56) * 0x0101010101010101ull, 0, r.keys[0],
                                 8 * (random % WORDS), r.buf.mr, r.buf.addr));
        for (i = 0; t->rank == 0 && i < OWN_XORS; ++i) {
            __atomic_fetch_xor(target + i % WORDS, UINT64_MAX, __ATOMIC_SEQ_CST);
        }
        for (i = 0; i < READS; ++i) {
            random = conf_random(t);
            width  = 1u << (random % 4);
            get_whole(t, &r, (random >> 16) % (8 * WORDS / width) * width, width,
                      (random >> 8) % (8 / width) * width);
        }
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

/* Wrong widths, operations, alignments, bounds and rights. */
static void wrong(conf_t *t)
{
    unsigned   noatomic = ANGARA_ACCESS_REMOTE_READ | ANGARA_ACCESS_REMOTE_WRITE;
    conf_mem_t plain;
    uint64_t   plain_keys[RANK_MAX];
    regions_t  r;

    conf_open(t);
    regions_init(t, &r);
    conf_mem_init(t, &plain, ((const kind_t *)t->arg)->shared, 4096, noatomic);
    conf_mem_exchange(t, &plain, plain_keys);
    if (t->rank == 0) {
        angara_peer_h peer = t->peer[1];

        CHECK_STATUS(angara_atomic(peer, ANGARA_ATOMIC_ADD, 2, 1, 0, r.keys[1], 0, NULL, NULL),
                     ANGARA_ERR_INVALID);
        CHECK_STATUS(angara_atomic(peer, ANGARA_ATOMIC_LAST, 8, 1, 0, r.keys[1], 0, NULL, NULL),
                     ANGARA_ERR_INVALID);
        CHECK_STATUS(angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, r.keys[1], 0, r.buf.mr, NULL),
                     ANGARA_ERR_INVALID);
        CHECK(angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, r.keys[1], 0, r.buf.mr,
                            r.buf.addr + 4092) < 0);
        /* A misaligned word: the call's argument on one provider, a fault on another. */
        CHECK(CONF_POST(t, angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, r.keys[1], 4, NULL,
                                         NULL)) <= 0);
        conf_settle(t, 1);
        conf_expect_fault(t, 1,
                          CONF_POST(t, angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, r.keys[1],
                                                     8192, NULL, NULL)),
                          ANGARA_ERR_BOUNDS, r.keys[1]);
        conf_expect_fault(t, 1,
                          CONF_POST(t, angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0,
                                                     plain_keys[1], 0, NULL, NULL)),
                          ANGARA_ERR_RIGHTS, plain_keys[1]);
    }
    conf_barrier(t);
    CHECK_EQ(word_at(&r.mem, 0, 8), 0);
    CHECK_EQ(word_at(&r.mem, 8, 8), 0);
    CHECK_EQ(word_at(&plain, 0, 8), 0);
    conf_mem_cleanup(&plain);
    regions_cleanup(t, &r);
    conf_close(t);
}

static void test_model_private(void **state)
{
    (void)state;
    conf_run(2, model_remote, &kind_private);
}

static void test_model_shared(void **state)
{
    (void)state;
    conf_run(2, model_remote, &kind_shared);
}

static void test_model_own_private(void **state)
{
    (void)state;
    conf_run(1, model_own, &kind_private);
}

static void test_model_own_shared(void **state)
{
    (void)state;
    conf_run(1, model_own, &kind_shared);
}

static void test_contend_private(void **state)
{
    (void)state;
    conf_run(3, contend, &kind_private);
}

static void test_contend_shared(void **state)
{
    (void)state;
    conf_run(3, contend, &kind_shared);
}

static void test_whole_private(void **state)
{
    (void)state;
    conf_run(3, read_whole, &kind_private);
}

static void test_whole_shared(void **state)
{
    (void)state;
    conf_run(3, read_whole, &kind_shared);
}

static void test_wrong_private(void **state)
{
    (void)state;
    conf_run(2, wrong, &kind_private);
}

static void test_wrong_shared(void **state)
{
    (void)state;
    conf_run(2, wrong, &kind_shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_private),     cmocka_unit_test(test_model_shared),
        cmocka_unit_test(test_model_own_private), cmocka_unit_test(test_model_own_shared),
        cmocka_unit_test(test_contend_private),   cmocka_unit_test(test_contend_shared),
        cmocka_unit_test(test_whole_private),     cmocka_unit_test(test_whole_shared),
        cmocka_unit_test(test_wrong_private),     cmocka_unit_test(test_wrong_shared),
    };

    return cmocka_run_group_tests_name("atomic", tests, NULL, NULL);
}
