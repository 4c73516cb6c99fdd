/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short puts, gets and atomics of mapped regions by inline code (angara_fast.h). They do what the
 * calls do, are counted as the calls are, and end when the region, its mapping, the peer or the
 * pair does.
 */
#include "conf.h"

#include <angara/angara_fast.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#define LENGTH 8192u

typedef struct {
    conf_mem_t mem;
    uint64_t   keys[RANK_MAX];
} region_t;

static void region_init(conf_t *t, region_t *r)
{
    conf_open(t);
    conf_mem_init(t, &r->mem, 1, LENGTH, ANGARA_ACCESS_ALL);
    memset(r->mem.addr, 0, LENGTH);
    conf_mem_exchange(t, &r->mem, r->keys);
}

/* Inline code has no other way than to call. */
static int never_inline(const conf_t *t)
{
    return strcmp(t->attr.provider, "soft") != 0 || rank_chaos();
}

static int may_get(const conf_t *t)
{
    return !never_inline(t) && (t->attr.caps & ANGARA_CAP_LOOPBACK) != 0;
}

/* Have the region mapped: that is known from the second call on at the latest. */
static void map(conf_t *t, angara_peer_h peer, uint64_t key)
{
    uint64_t zero = 0;

    for (unsigned i = 0; i < 2; ++i) {
        if (!angara_mapped_put(peer, &zero, key, 0, 8)) {
            POST_OK(t, angara_offload_put_inline(peer, &zero, key, 0, 8));
            conf_marker(t, 1);
        }
    }
}

static int put(angara_peer_h peer, uint64_t key)
{
    uint64_t word = 1;

    return angara_fast_put(peer, &word, key, 0, 8);
}

/* ---- what they do ---------------------------------------------------------------------------- */

static void check_lengths(conf_t *t, angara_peer_h peer, uint64_t key)
{
    char bytes[ANGARA_FAST_MAX + 1], back[ANGARA_FAST_MAX + 1];

    for (size_t length = 1; length <= sizeof(bytes); ++length) {
        size_t offset = LENGTH - length;
        int    fits   = length <= ANGARA_FAST_MAX;

        data_fill(bytes, length, (unsigned)length);
        CHECK_EQ(angara_fast_put(peer, bytes, key, offset, length), fits && !never_inline(t));
        CHECK_EQ(angara_fast_put(peer, bytes, key, offset + 1, length), 0);
        CHECK_EQ(angara_fast_put(peer, bytes, key + 1, offset, length), 0);
        CHECK_EQ(angara_fast_put(peer, bytes, key + ANGARA_FAST_MAPS, offset, length), 0);
        CHECK_EQ(angara_fast_put(peer, bytes, key, UINT64_MAX - length + 1, length), 0);
        CHECK_EQ(angara_fast_put(peer, bytes, key, LENGTH, 0), 0);
        CHECK_EQ(angara_fast_put(peer, bytes, 0, 0, 0), 0);
        CHECK_EQ(angara_fast_get(peer, back, key, offset, length), fits && may_get(t));
        if (fits && may_get(t)) {
            CHECK(memcmp(back, bytes, length) == 0);
        }
        CHECK_EQ(angara_fast_get(peer, back, key, offset + 1, length), 0);
        CHECK_EQ(angara_fast_get(peer, back, key, 0, 0), 0);
    }
}

/* All operations and both widths, as angara_mapped_atomic() performs them; and what isn't one. */
static void check_atomics(conf_t *t, angara_peer_h peer, uint64_t key)
{
    uint64_t operand = 0x8899aabbccddeeffull, old, expected;

    for (unsigned i = 0; i < 4u * ANGARA_ATOMIC_LAST; ++i) {
        angara_atomic_op_t op      = (angara_atomic_op_t)(i / 4);
        unsigned           width   = i % 2 ? 4 : 8;
        uint64_t           compare = i / 2 % 2 ? 1 : 5;

        map(t, peer, key); /* the word is 0, */
        CHECK_EQ(angara_mapped_atomic(peer, ANGARA_ATOMIC_ADD, 8, 5, 0, key, 0, NULL), 1);
        CHECK_EQ(angara_mapped_atomic(peer, op, width, operand, compare, key, 0, NULL), 1);
        CHECK_EQ(angara_mapped_get(peer, &expected, key, 0, 8), 1);
        map(t, peer, key); /* once more */
        CHECK_EQ(angara_fast_atomic(peer, ANGARA_ATOMIC_ADD, 8, 5, 0, key, 0, NULL), 1);
        old = 0;
        CHECK_EQ(angara_fast_atomic(peer, op, width, operand, compare, key, 0, &old), 1);
        CHECK_EQ(old, 5);
        CHECK_EQ(angara_fast_get(peer, &old, key, 0, 8), 1);
        CHECK_EQ(old, expected);
    }
    CHECK_EQ(angara_fast_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, key, 4, &old), 0);
    CHECK_EQ(angara_fast_atomic(peer, ANGARA_ATOMIC_ADD, 4, 1, 0, key, 2, &old), 0);
    CHECK_EQ(angara_fast_atomic(peer, ANGARA_ATOMIC_ADD, 2, 1, 0, key, 0, &old), 0);
    CHECK_EQ(angara_fast_atomic(peer, ANGARA_ATOMIC_LAST, 8, 1, 0, key, 0, &old), 0);
    CHECK_EQ(angara_fast_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, key, LENGTH, &old), 0);
    CHECK_EQ(angara_fast_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, key + 1, 0, &old), 0);
}

static void atomics(conf_t *t)
{
    angara_counters_t before, now;
    region_t          r;

    region_init(t, &r);
    if (t->rank == 0) {
        map(t, t->peer[1], r.keys[1]);
        angara_pe_counters(t->pe, &before);
        if (may_get(t)) {
            check_atomics(t, t->peer[1], r.keys[1]);
        } else {
            CHECK_EQ(angara_fast_atomic(t->peer[1], ANGARA_ATOMIC_ADD, 8, 1, 0, r.keys[1], 0, NULL),
                     0);
        }
        angara_pe_counters(t->pe, &now);
        CHECK_EQ(now.atomics - before.atomics, may_get(t) ? 16u * ANGARA_ATOMIC_LAST : 0);
    }
    conf_barrier(t);
    conf_mem_cleanup(&r.mem);
    conf_close(t);
}

/* By calls: what is too long for inline code is counted, too. */
static void check_calls(conf_t *t, angara_peer_h peer, uint64_t key)
{
    angara_counters_t before, now;
    static char       bytes[4096];

    angara_pe_counters(t->pe, &before);
    CHECK_EQ(angara_mapped_put(peer, bytes, key, 0, 4096), !never_inline(t));
    CHECK_EQ(angara_mapped_get(peer, bytes, key, 0, 1000), may_get(t));
    angara_pe_counters(t->pe, &now);
    CHECK_EQ(now.offload_puts - before.offload_puts, !never_inline(t));
    CHECK_EQ(now.offload_bytes - before.offload_bytes,
             (never_inline(t) ? 0 : 4096) + (may_get(t) ? 1000 : 0));
}

/* By a pointer into the region, of any length, whose bytes are counted when it ends. */
static void check_pointers(conf_t *t, angara_peer_h peer, uint64_t key)
{
    static const size_t lengths[] = {1, ANGARA_FAST_MAX + 1, 4096, LENGTH};
    size_t              count = sizeof(lengths) / sizeof(lengths[0]), bytes = 0;
    angara_counters_t   before, now;

    angara_pe_counters(t->pe, &before);
    for (size_t i = 0; i < count; ++i) {
        size_t      length = lengths[i], offset = LENGTH - length;
        char       *to   = angara_fast_put_begin(peer, key, offset, length);
        const char *from = angara_fast_get_begin(peer, key, offset, length);

        CHECK_EQ(to != NULL, !never_inline(t));
        CHECK_EQ(from != NULL, may_get(t));
        CHECK(angara_fast_put_begin(peer, key, offset + 1, length) == NULL);
        CHECK(angara_fast_get_begin(peer, key, offset + 1, length) == NULL);
        CHECK(angara_fast_put_begin(peer, key + 1, offset, length) == NULL);
        if (to != NULL) {
            data_fill(to, length, (unsigned)i);
            angara_fast_put_end(peer, length);
            bytes += length;
        }
        if (from != NULL) {
            CHECK_DATA(from, length, i);
            angara_fast_get_end();
            bytes += length;
        }
    }
    angara_pe_counters(t->pe, &now);
    CHECK_EQ(now.offload_puts - before.offload_puts, never_inline(t) ? 0 : count);
    CHECK_EQ(now.offload_gets - before.offload_gets, may_get(t) ? count : 0);
    CHECK_EQ(now.offload_bytes - before.offload_bytes, bytes);
}

/* Caught: what is out of the region is touched, a length that is cut, one that isn't counted. */
static void bounds(conf_t *t)
{
    angara_counters_t before, now;
    uint64_t          bytes = (uint64_t)ANGARA_FAST_MAX * (ANGARA_FAST_MAX + 1) / 2;
    region_t          r;

    region_init(t, &r);
    if (t->rank == 0) {
        map(t, t->peer[1], r.keys[1]);
        angara_pe_counters(t->pe, &before);
        check_lengths(t, t->peer[1], r.keys[1]);
        angara_pe_counters(t->pe, &now);
        CHECK_EQ(now.offload_puts - before.offload_puts, never_inline(t) ? 0 : ANGARA_FAST_MAX);
        CHECK_EQ(now.offload_gets - before.offload_gets, may_get(t) ? ANGARA_FAST_MAX : 0);
        CHECK_EQ(now.offload_bytes - before.offload_bytes,
                 bytes * (unsigned)(!never_inline(t) + may_get(t)));
        check_calls(t, t->peer[1], r.keys[1]);
        check_pointers(t, t->peer[1], r.keys[1]);
    }
    conf_barrier(t);
    conf_mem_cleanup(&r.mem);
    conf_close(t);
}

/* Now and then one is a call, so that a program that does nothing else is looked after. */
static void turns(conf_t *t)
{
    unsigned calls = 0;
    region_t r;

    region_init(t, &r);
    if (t->rank == 0) {
        map(t, t->peer[1], r.keys[1]);
        for (unsigned i = 0; i < 2 * (ANGARA_FAST_TURN + 1); ++i) {
            if (!put(t->peer[1], r.keys[1])) {
                map(t, t->peer[1], r.keys[1]);
                ++calls;
            }
        }
        CHECK_EQ(calls, never_inline(t) ? 2 * (ANGARA_FAST_TURN + 1) : 2);
    }
    conf_barrier(t);
    conf_mem_cleanup(&r.mem);
    conf_close(t);
}

/* A region that peers may only read. */
static void rights(conf_t *t)
{
    uint64_t   keys[RANK_MAX], word = 1;
    conf_mem_t readable, buf;

    conf_open(t);
    conf_mem_init(t, &readable, 1, LENGTH, ANGARA_ACCESS_REMOTE_READ);
    conf_mem_init(t, &buf, 0, LENGTH, ANGARA_ACCESS_LOCAL_WRITE);
    memset(readable.addr, 0, LENGTH);
    conf_mem_exchange(t, &readable, keys);
    if (t->rank == 0) {
        for (unsigned i = 0; i < 2; ++i) {
            POST_OK(t, angara_offload_get(t->peer[1], buf.mr, buf.addr, keys[1], 0, 8));
            conf_marker(t, 1);
            CHECK_EQ(angara_mapped_get(t->peer[1], &word, keys[1], 0, 8), may_get(t));
        }
        CHECK_EQ(angara_fast_get(t->peer[1], &word, keys[1], 0, 8), may_get(t));
        CHECK_EQ(put(t->peer[1], keys[1]), 0);
        CHECK_EQ(angara_mapped_put(t->peer[1], &word, keys[1], 0, 0), 0);
        conf_expect_fault(t, 1,
                          CONF_POST(t, angara_offload_put_inline(t->peer[1], NULL, keys[1], 0, 0)),
                          ANGARA_ERR_RIGHTS, keys[1]);
    }
    conf_barrier(t);
    CHECK_EQ(readable.addr[0], 0);
    conf_mem_cleanup(&buf);
    conf_mem_cleanup(&readable);
    conf_close(t);
}

/* ---- when they end --------------------------------------------------------------------------- */

/* The region; the peer's PE; neither is told to who writes. */
static void gone(conf_t *t)
{
    region_t r;
    uint64_t key, all[RANK_MAX], word = 0;

    region_init(t, &r);
    if (t->rank == 0) {
        map(t, t->peer[1], r.keys[1]);
        CHECK_EQ(put(t->peer[1], r.keys[1]), !never_inline(t));
    }
    conf_barrier(t);
    conf_mem_cleanup(&r.mem);
    conf_exchange(t, &word, all, sizeof(word));
    if (t->rank == 0) {
        CHECK_EQ(put(t->peer[1], r.keys[1]), 0);
    }

    conf_mem_init(t, &r.mem, 1, LENGTH, ANGARA_ACCESS_ALL);
    conf_mem_exchange(t, &r.mem, r.keys);
    key = r.keys[1];
    if (t->rank == 0) {
        map(t, t->peer[1], key);
        CHECK_EQ(put(t->peer[1], key), !never_inline(t));
        conf_barrier(t);
        conf_barrier(t); /* now it has no PE */
        CHECK_EQ(put(t->peer[1], key), 0);
        angara_pe_progress(t->pe);
        CHECK_EQ(put(t->peer[1], key), 0);
        conf_barrier(t);
        conf_mem_cleanup(&r.mem);
        conf_close_alone(t);
    } else {
        conf_barrier(t);
        angara_pe_destroy(t->pe);
        conf_barrier(t);
        conf_barrier(t);
        conf_mem_cleanup(&r.mem);
        CHECK_OK(angara_close(t->dom));
    }
}

/* A pair that has failed does nothing until it is reset; then it goes on. */
static void failed(conf_t *t)
{
    region_t r;

    region_init(t, &r);
    if (t->rank == 0) {
        map(t, t->peer[1], r.keys[1]);
        CHECK_EQ(put(t->peer[1], r.keys[1]), !never_inline(t));
        CONF_POST(t, angara_offload_put_inline(t->peer[1], &r, r.keys[1] + 1, 0, 8));
        CONF_WAIT(t, angara_peer_status(t->peer[1]) == ANGARA_ERR_PAIR);
        CHECK_EQ(put(t->peer[1], r.keys[1]), 0);
        CHECK_EQ(conf_settle(t, 1), ANGARA_ERR_PAIR);
        map(t, t->peer[1], r.keys[1]);
        CHECK_EQ(put(t->peer[1], r.keys[1]), !never_inline(t));
    }
    conf_barrier(t);
    conf_mem_cleanup(&r.mem);
    conf_close(t);
}

/* What a stopped peer is asked for waits: nothing may pass it. */
static void queued(conf_t *t)
{
    region_t r;
    conf_mem_t private;
    uint64_t keys[RANK_MAX];

    region_init(t, &r);
    conf_mem_init(t, &private, 0, LENGTH, ANGARA_ACCESS_ALL);
    conf_mem_exchange(t, &private, keys);
    conf_barrier(t);
    if (t->rank == 0 && conf_has_atomics(0)) {
        map(t, t->peer[1], r.keys[1]);
        conf_stop_process(t->pid[1]);
        POST_OK(t, angara_atomic(t->peer[1], ANGARA_ATOMIC_ADD, 8, 1, 0, keys[1], 0, NULL, NULL));
        CHECK_EQ(put(t->peer[1], r.keys[1]), 0);
        CHECK(kill(t->pid[1], SIGCONT) == 0);
        conf_marker(t, 1);
        CHECK_EQ(put(t->peer[1], r.keys[1]), !never_inline(t));
    }
    conf_barrier(t);
    conf_mem_cleanup(&private);
    conf_mem_cleanup(&r.mem);
    conf_close(t);
}

/* ---- more regions than are kept mapped ------------------------------------------------------- */

#define MANY   1100u /* a PE keeps 1024 */
#define UNUSED 5u    /* one of them */

static int raise_descriptors(void)
{
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= MANY + 100;
}

/*
 * The first is used between all others, and was the oldest when the places ran out. Caught: inline
 * code that writes to what has been unmapped.
 */
static void evicted(conf_t *t)
{
    static uint64_t keys[MANY], all[RANK_MAX][MANY];
    static void    *addrs[MANY];
    angara_mr_h     mrs[MANY];
    size_t          length = 4096;

    if (!raise_descriptors()) {
        rank_skip("the hard limit of open files is below 1200");
    }
    conf_open(t);
    for (unsigned i = 0; t->rank == 1 && i < MANY; ++i) {
        CHECK_OK(angara_mem_alloc(t->dom, &length, ANGARA_ACCESS_ALL, &addrs[i], &mrs[i]));
        keys[i] = angara_mr_key(mrs[i]);
    }
    conf_exchange(t, keys, all, sizeof(keys));
    for (unsigned i = 0; t->rank == 0 && i < MANY; ++i) {
        uint64_t value = i;

        if (i ==
            UNUSED) { /* so that who takes the first one's place isn't in its line of the cache */
            continue;
        }
        map(t, t->peer[1], all[1][i]);
        angara_fast_put(t->peer[1], &value, all[1][i], 8, 8);
        if (!angara_fast_put(t->peer[1], &value, all[1][0], 16, 8)) {
            POST_OK(t, angara_offload_put_inline(t->peer[1], &value, all[1][0], 16, 8));
        }
    }
    if (t->rank == 0) {
        conf_marker(t, 1);
    }
    conf_barrier(t);
    for (unsigned i = 0; t->rank == 1 && i < MANY; ++i) {
        const uint64_t *words = addrs[i];

        CHECK_EQ(words[1], never_inline(t) || i == UNUSED ? 0 : i);
        CHECK_EQ(words[2], i == 0 ? MANY - 1 : 0);
    }
    for (unsigned i = 0; t->rank == 1 && i < MANY; ++i) {
        CHECK_OK(angara_mem_free(mrs[i]));
    }
    conf_close(t);
}

/* ---------------------------------------------------------------------------------------------- */

#define TEST(_name)                        \
    static void test_##_name(void **state) \
    {                                      \
        (void)state;                       \
        conf_run(2, _name, NULL);          \
    }

TEST(bounds)
TEST(atomics)
TEST(turns)
TEST(rights)
TEST(gone)
TEST(failed)
TEST(queued)
TEST(evicted)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds), cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_turns),  cmocka_unit_test(test_rights),
        cmocka_unit_test(test_gone),   cmocka_unit_test(test_failed),
        cmocka_unit_test(test_queued), cmocka_unit_test(test_evicted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
