/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided operations take different ways: by plain loads and stores, by a system call, or by the
 * target's process, one by one or several in a request. Whichever: those of one pair are performed
 * in order, and atomics are atomic against each other. The target polls, computes and comes back
 * meanwhile, so that a stream of operations changes its way.
 */
#include "conf.h"

#include <angara/angara_fast.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#include <cmocka.h>

#define LENGTH      65536u
#define WORDS       16u    /* at the region's beginning: of atomics */
#define MANY        48u    /* operations that are under way at once */
#define OP_MAX      50000u /* bytes: some that a process is asked for, some that it isn't */
#define RESULTS     (MANY * OP_MAX)
#define OWN_TURN    64u
#define OWN_ADDS    1000000u /* of the target's program meanwhile: it makes no calls for as long */
#define ASKED_TRIES 10000000u

typedef struct {
    int shared;
    int polls; /* 0: the target never, 1: always, 2: now and then */
} kind_t;

typedef struct {
    conf_mem_t mem;
    conf_mem_t buf;
    uint64_t   keys[RANK_MAX];
} regions_t;

static void regions_init(conf_t *t, regions_t *r)
{
    const kind_t *kind = t->arg;

    conf_open(t);
    conf_mem_init(t, &r->mem, kind->shared, LENGTH, ANGARA_ACCESS_ALL);
    conf_mem_init(t, &r->buf, 0, 2 * RESULTS, ANGARA_ACCESS_LOCAL_WRITE);
    memset(r->mem.addr, 0, LENGTH);
    conf_mem_exchange(t, &r->mem, r->keys);
    conf_barrier(t);
}

static void regions_cleanup(conf_t *t, regions_t *r)
{
    conf_barrier(t);
    conf_mem_cleanup(&r->buf);
    conf_mem_cleanup(&r->mem);
    conf_close(t);
}

/* ---- order ----------------------------------------------------------------------------------- */

static void compute(unsigned us)
{
    struct timespec time = {0, us * 1000l};

    nanosleep(&time, NULL);
}

static void serve(conf_t *t)
{
    const kind_t *kind  = t->arg;
    unsigned      turns = 0;

    while (!conf_is_over(t)) {
        if (kind->polls == 0 || (kind->polls == 2 && ++turns % 5000 == 0)) {
            compute(kind->polls == 0 ? 1000 : 300);
        }
        if (kind->polls != 0) {
            angara_pe_progress(t->pe);
        }
    }
}

/* What a get, or an atomic, must bring. */
typedef struct {
    size_t at; /* in the buffer and in what is expected */
    size_t length;
} result_t;

static size_t random_length(conf_t *t)
{
    static const size_t lengths[] = {1,    4,    8,    16,   17,    100,   1024,
                                     4096, 4097, 8192, 8193, 40960, 40961, OP_MAX};
    uint64_t            choice    = conf_random(t);

    return (choice % 3 != 0) ? lengths[choice / 3 % (sizeof(lengths) / sizeof(lengths[0]))] :
                               1 + choice / 3 % OP_MAX;
}

/* The same three kinds at once, on mapped memory. @return 0: not now. */
static int step_mapped(conf_t *t, regions_t *r, char *model, unsigned n)
{
    size_t   length = random_length(t);
    size_t   offset = WORDS * 8 + conf_random(t) % (LENGTH - WORDS * 8 - length + 1);
    size_t   word   = conf_random(t) % WORDS * 8;
    char     bytes[OP_MAX];
    uint64_t old, value;

    switch (conf_random(t) % 3) {
    case 0:
        data_fill(bytes, length, conf_random(t));
        if (!angara_fast_put(t->peer[1], bytes, r->keys[1], offset, length) &&
            !angara_mapped_put(t->peer[1], bytes, r->keys[1], offset, length)) {
            return 0;
        }
        memcpy(model + offset, bytes, length);
        return 1;
    case 1:
        if (!angara_fast_get(t->peer[1], bytes, r->keys[1], offset, length) &&
            !angara_mapped_get(t->peer[1], bytes, r->keys[1], offset, length)) {
            return 0;
        }
        CHECK(memcmp(bytes, model + offset, length) == 0);
        return 1;
    default:
        if (!angara_fast_atomic(t->peer[1], ANGARA_ATOMIC_ADD, 8, n, 0, r->keys[1], word, &old) &&
            !angara_mapped_atomic(t->peer[1], ANGARA_ATOMIC_ADD, 8, n, 0, r->keys[1], word, &old)) {
            return 0;
        }
        memcpy(&value, model + word, sizeof(value));
        CHECK_EQ(old, value);
        value += n;
        memcpy(model + word, &value, sizeof(value));
        return 1;
    }
}

/* A get that is waited for within the call. @return 0: not now. */
static int step_asked(conf_t *t, regions_t *r, const char *model)
{
    size_t length = random_length(t);
    size_t offset = WORDS * 8 + conf_random(t) % (LENGTH - WORDS * 8 - length + 1);
    char   bytes[OP_MAX];

    if (!angara_asked_get(t->peer[1], bytes, r->keys[1], offset, length)) {
        return 0;
    }
    CHECK(memcmp(bytes, model + offset, length) == 0);
    return 1;
}

/* One random operation, on the target and on the model. */
static void step(conf_t *t, regions_t *r, char *model, char *expected, unsigned n, result_t *result)
{
    char    *local  = r->buf.addr + n * OP_MAX;
    char    *source = r->buf.addr + RESULTS + n * OP_MAX;
    size_t   length = random_length(t);
    size_t   offset = WORDS * 8 + conf_random(t) % (LENGTH - WORDS * 8 - length + 1);
    size_t   word   = conf_random(t) % WORDS * 8;
    uint64_t value;

    *result = (result_t){n * OP_MAX, 0};
    switch (conf_random(t) % 4) {
    case 0:
        data_fill(source, length, conf_random(t));
        POST_OK(t, angara_offload_put(t->peer[1], r->buf.mr, source, r->keys[1], offset, length));
        memcpy(model + offset, source, length);
        break;
    case 1:
        length = (length < t->attr.inline_max) ? length : t->attr.inline_max;
        data_fill(source, length, conf_random(t));
        POST_OK(t, angara_offload_put_inline(t->peer[1], source, r->keys[1], offset, length));
        memcpy(model + offset, source, length);
        break;
    case 2:
        POST_OK(t, angara_offload_get(t->peer[1], r->buf.mr, local, r->keys[1], offset, length));
        memcpy(expected + result->at, model + offset, length);
        result->length = length;
        break;
    default:
        if (!conf_has_atomics(r->mem.shared)) {
            break;
        }
        POST_OK(t, angara_atomic(t->peer[1], ANGARA_ATOMIC_ADD, 8, n + 1, 0, r->keys[1], word,
                                 r->buf.mr, local));
        memcpy(&value, model + word, sizeof(value));
        memcpy(expected + result->at, &value, sizeof(value));
        result->length = sizeof(value);
        value += n + 1;
        memcpy(model + word, &value, sizeof(value));
    }
}

/* A target that polls answers so, sooner or later. */
static void wait_asked(conf_t *t, regions_t *r)
{
    unsigned i;
    char     byte;

    for (i = 0; !angara_asked_get(t->peer[1], &byte, r->keys[1], 0, 1); ++i) {
        CHECK(i < ASKED_TRIES);
        POST_OK(t, angara_offload_get(t->peer[1], r->buf.mr, r->buf.addr, r->keys[1], 0, 1));
        conf_marker(t, 1);
    }
}

/* Are there operations on mapped memory? (Without loopback: puts only.) */
static int maps(const conf_t *t, const regions_t *r)
{
    return strcmp(t->attr.provider, "soft") == 0 && r->mem.shared && !rank_chaos();
}

static void check_order(conf_t *t, regions_t *r)
{
    static char model[LENGTH], expected[RESULTS];
    result_t    results[MANY];
    unsigned    i, n, many, mapped = 0, asked = 0;

    for (i = 0; i < conf_rounds(rank_chaos() ? 40 : 1000); ++i) {
        many = 1 + (unsigned)(conf_random(t) % MANY);
        many = (i % 3 == 0) ? 1 : many;
        for (n = 0; n < many; ++n) {
            mapped += (unsigned)step_mapped(t, r, model, n);
            asked += (unsigned)step_asked(t, r, model);
            step(t, r, model, expected, n, &results[n]);
            if (conf_random(t) % 4 == 0) {
                angara_pe_progress(t->pe);
            }
        }
        conf_marker(t, 1);
        for (n = 0; n < many; ++n) {
            CHECK(memcmp(r->buf.addr + results[n].at, expected + results[n].at,
                         results[n].length) == 0);
        }
    }
    POST_OK(t, angara_offload_get(t->peer[1], r->buf.mr, r->buf.addr, r->keys[1], 0, LENGTH));
    conf_marker(t, 1);
    CHECK(memcmp(r->buf.addr, model, LENGTH) == 0);
    if (maps(t, r)) {
        CHECK(mapped > 0);
    } else {
        CHECK_EQ(mapped, 0);
    }
    if (strcmp(t->attr.provider, "soft") != 0 || r->mem.shared || rank_chaos()) {
        CHECK_EQ(asked, 0);
    } else if (((const kind_t *)t->arg)->polls == 1 && !conf_on_one_cpu()) {
        wait_asked(t, r); /* where it doesn't run meanwhile it may never answer in time */
    }
}

/*
 * Caught: an operation that overtakes one that was asked for, is performed twice, or not at all; a
 * result that is another's.
 */
static void order(conf_t *t)
{
    regions_t r;

    regions_init(t, &r);
    if (t->rank == 0) {
        check_order(t, &r);
        conf_tell_over(t, 1);
    } else {
        serve(t);
    }
    regions_cleanup(t, &r);
}

/* ---- mapped memory --------------------------------------------------------------------------- */

/* What can't be performed isn't; nobody is hurt: the pair goes on, and a post says what is wrong.
 */
static void refused(conf_t *t)
{
    uint64_t      value = 1, old = 0;
    conf_mem_t    readable;
    angara_peer_h peer;
    uint64_t      keys[RANK_MAX], all[RANK_MAX];
    regions_t     r;
    unsigned      i;

    regions_init(t, &r);
    peer = t->peer[1];
    conf_mem_init(t, &readable, 1, LENGTH, ANGARA_ACCESS_REMOTE_READ);
    conf_mem_exchange(t, &readable, keys);
    if (t->rank == 0) {
        for (i = 0; i < 2; ++i) { /* not mapped yet, and mapped */
            uint64_t key = r.keys[1];

            CHECK_EQ(angara_mapped_put(peer, &value, key + 1, 0, 8), 0);
            CHECK_EQ(angara_mapped_get(peer, &old, 0, 0, 8), 0);
            CHECK_EQ(angara_mapped_put(peer, &value, key, LENGTH - 7, 8), 0);
            CHECK_EQ(angara_mapped_put(peer, &value, key, UINT64_MAX - 3, 8), 0);
            CHECK_EQ(angara_mapped_get(peer, &old, key, LENGTH, 1), 0);
            CHECK_EQ(angara_asked_get(peer, &old, key + 1, 0, 8), 0);
            CHECK_EQ(angara_asked_get(peer, &old, key, LENGTH, 1), 0);
            CHECK_EQ(angara_asked_get(peer, &old, key, 0, 0), 0);
            CHECK_EQ(angara_asked_get(NULL, &old, key, 0, 8), 0);
            CHECK_EQ(angara_mapped_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, key, 4, &old), 0);
            CHECK_EQ(angara_mapped_atomic(peer, ANGARA_ATOMIC_ADD, 2, 1, 0, key, 0, &old), 0);
            CHECK_EQ(angara_mapped_atomic(peer, ANGARA_ATOMIC_LAST, 8, 1, 0, key, 0, &old), 0);
            CHECK_EQ(angara_mapped_put(peer, &value, keys[1], 0, 8), 0);
            CHECK_EQ(angara_mapped_put(NULL, &value, key, 0, 8), 0);
            CHECK_EQ(angara_peer_status(peer), ANGARA_OK);
            POST_OK(t, angara_offload_put_inline(peer, &value, key, 0, 8));
            POST_OK(t, angara_offload_get(peer, r.buf.mr, r.buf.addr, keys[1], 0, 8));
            conf_marker(t, 1);
        }
        if (maps(t, &r) && (t->attr.caps & ANGARA_CAP_LOOPBACK)) {
            CHECK_EQ(angara_mapped_atomic(peer, ANGARA_ATOMIC_SWAP, 4, 7, 0, r.keys[1], 0, &old),
                     1);
            CHECK_EQ(old, 1);
            CHECK_EQ(angara_mapped_get(peer, &old, r.keys[1], 0, 8), 1);
            CHECK_EQ(old, 7);
        }
    }
    conf_barrier(t);
    conf_mem_cleanup(&readable);
    conf_exchange(t, &value, all, sizeof(value));
    CHECK_EQ(angara_mapped_get(t->peer[1 - t->rank], &old, keys[1 - t->rank], 0, 8), 0);
    regions_cleanup(t, &r);
}

/* ---- atomicity ------------------------------------------------------------------------------- */

/* The words of rank 0, by all ranks: added to, counted up by compare-and-swap, and swapped. */
static void hammer_once(conf_t *t, regions_t *r, unsigned n, uint64_t *sum)
{
    uint64_t *old = (void *)r->buf.addr;
    uint64_t  seen;

    if (n % 2 == 0 ||
        (!angara_fast_atomic(t->peer[0], ANGARA_ATOMIC_ADD, 8, n, 0, r->keys[0], 0, NULL) &&
         !angara_mapped_atomic(t->peer[0], ANGARA_ATOMIC_ADD, 8, n, 0, r->keys[0], 0, NULL))) {
        POST_OK(t,
                angara_atomic(t->peer[0], ANGARA_ATOMIC_ADD, 8, n, 0, r->keys[0], 0, NULL, NULL));
    }
    do {
        POST_OK(t, angara_offload_get(t->peer[0], r->buf.mr, old, r->keys[0], 8, 8));
        conf_marker(t, 0);
        seen = old[0];
        POST_OK(t, angara_atomic(t->peer[0], ANGARA_ATOMIC_CSWAP, 8, seen + n, seen, r->keys[0], 8,
                                 r->buf.mr, old + 1));
        conf_marker(t, 0);
    } while (old[1] != seen);
    /* What one swaps in another swaps out: all that is left over is the sum of what was put in. */
    POST_OK(t, angara_atomic(t->peer[0], ANGARA_ATOMIC_SWAP, 8, n, 0, r->keys[0], 16, r->buf.mr,
                             old + 2));
    conf_marker(t, 0);
    *sum += n - old[2];
}

static void hammer(conf_t *t)
{
    uint64_t  sums[2] = {0, 0}, all[RANK_MAX][2], expected[2] = {0, 0};
    unsigned  rounds = conf_rounds(rank_chaos() ? 60 : 400), n;
    uint64_t  own    = 0;
    regions_t r;

    conf_need_atomics(((const kind_t *)t->arg)->shared);
    regions_init(t, &r);
    for (n = 1; n <= rounds; ++n) {
        hammer_once(t, &r, n * (t->rank + 1), &sums[1]);
        sums[0] += n * (t->rank + 1);
        if ((t->rank == 0) && (n % OWN_TURN == 0)) {
            for (unsigned i = 0; i < OWN_ADDS; ++i) { /* the target's program, too */
                __atomic_fetch_add((uint64_t *)(void *)r.mem.addr, 1, __ATOMIC_SEQ_CST);
            }
            own += OWN_ADDS;
        }
    }
    conf_exchange(t, sums, all, sizeof(sums));
    for (n = 0; n < t->nranks; ++n) {
        expected[0] += all[n][0];
        expected[1] += all[n][1];
    }
    if (t->rank == 0) {
        uint64_t *words = (void *)r.mem.addr;

        CHECK_EQ(words[0], expected[0] + own);
        CHECK_EQ(words[1], expected[0]);
        CHECK_EQ(words[2], expected[1]);
    }
    regions_cleanup(t, &r);
}

/* Zeroed memory that peers map, beside the regions. */
static void shared_init(conf_t *t, conf_mem_t *shared, uint64_t *keys)
{
    conf_mem_init(t, shared, 1, LENGTH, ANGARA_ACCESS_ALL);
    memset(shared->addr, 0, LENGTH);
    conf_mem_exchange(t, shared, keys);
    conf_barrier(t);
}

/* Put a word to rank 0, the fastest way. */
static void put_word(conf_t *t, uint64_t word, uint64_t key, uint64_t offset)
{
    if (!angara_fast_put(t->peer[0], &word, key, offset, 8) &&
        !angara_mapped_put(t->peer[0], &word, key, offset, 8)) {
        POST_OK(t, angara_offload_put_inline(t->peer[0], &word, key, offset, 8));
    }
}

/* ---- locks ----------------------------------------------------------------------------------- */

/* A word that the target's process changes by an atomic nobody waits for: it says that what was
 * done before it is over. Meanwhile a counter in mapped memory, or one beside the lock, is changed
 * by a get and a put, of which other ranks' must not come between. */
static void locks(conf_t *t)
{
    unsigned   rounds = conf_rounds(rank_chaos() ? 40 : 1500);
    uint64_t  *old, counts[2];
    regions_t  r;
    conf_mem_t shared;
    uint64_t   keys[RANK_MAX];

    conf_need_atomics(0);
    regions_init(t, &r);
    shared_init(t, &shared, keys);
    old = (void *)r.buf.addr;
    for (unsigned n = 0; n < rounds; ++n) {
        do { /* take the lock */
            POST_OK(t, angara_atomic(t->peer[0], ANGARA_ATOMIC_CSWAP, 8, t->rank + 1, 0, r.keys[0],
                                     0, r.buf.mr, old));
            conf_settle(t, 0);
        } while (old[0] != 0);
        for (unsigned i = 0; i < 2; ++i) {
            uint64_t key = i == 0 ? keys[0] : r.keys[0];

            if (!angara_fast_get(t->peer[0], &counts[i], key, 8, 8) &&
                !angara_mapped_get(t->peer[0], &counts[i], key, 8, 8)) {
                POST_OK(t, angara_offload_get(t->peer[0], r.buf.mr, old + 1 + i, key, 8, 8));
                conf_settle(t, 0);
                counts[i] = old[1 + i];
            }
            put_word(t, counts[i] + 1, key, 8);
        }
        if (!angara_peer_settled(t->peer[0])) {
            conf_settle(t, 0);
        }
        POST_OK(t, angara_atomic(t->peer[0], ANGARA_ATOMIC_ADD, 8, -(uint64_t)(t->rank + 1), 0,
                                 r.keys[0], 0, NULL, NULL));
        if (n % 64 == 0 && t->rank == 1) {
            compute(100); /* with the atomic out */
        }
    }
    conf_settle(t, 0);
    conf_barrier(t);
    if (t->rank == 0) {
        CHECK_EQ(((uint64_t *)(void *)r.mem.addr)[0], 0);
        CHECK_EQ(((uint64_t *)(void *)r.mem.addr)[1], (uint64_t)rounds * t->nranks);
        CHECK_EQ(((uint64_t *)(void *)shared.addr)[1], (uint64_t)rounds * t->nranks);
    }
    conf_barrier(t);
    conf_mem_cleanup(&shared);
    regions_cleanup(t, &r);
}

/* An atomic that nobody waits for, then a word in mapped memory, by whatever way. */
static void follow(conf_t *t, regions_t *r, const uint64_t *keys, uint64_t n)
{
    while (!angara_peer_settled(t->peer[0])) {
        angara_pe_progress(t->pe);
    }
    POST_OK(t, angara_atomic(t->peer[0], ANGARA_ATOMIC_ADD, 8, 1, 0, r->keys[0], 0, NULL, NULL));
    put_word(t, n, keys[0], 0);
}

/* The target's program sees the word only when the atomic before it has been performed. */
static void followed(conf_t *t)
{
    unsigned           rounds = conf_rounds(20000);
    uint64_t           keys[RANK_MAX], seen = 0;
    volatile uint64_t *word, *sum;
    conf_mem_t         shared;
    regions_t          r;

    conf_need_atomics(0);
    if (rank_chaos()) {
        rank_skip("there, nothing is performed within its call");
    }
    regions_init(t, &r);
    shared_init(t, &shared, keys);
    if (t->rank == 1) {
        for (uint64_t n = 1; n <= rounds; ++n) {
            follow(t, &r, keys, n);
        }
        conf_settle(t, 0);
    } else {
        word = (void *)shared.addr;
        sum  = (void *)r.mem.addr;
        while (seen < rounds) {
            seen = *word;
            __atomic_thread_fence(__ATOMIC_ACQUIRE);
            CHECK(*sum >= seen);
            angara_pe_progress(t->pe);
        }
    }
    conf_barrier(t);
    conf_mem_cleanup(&shared);
    regions_cleanup(t, &r);
}

/* ---- a target that is stopped ---------------------------------------------------------------- */

/* What a process may be asked for, and what it is to copy a part of, don't mix, however small the
 * latter: nobody waits for one that is stopped. */
static void stopped(conf_t *t)
{
    regions_t r;

    CHECK(setenv("ANGARA_JOINT_MIN", "4K", 1) == 0);
    regions_init(t, &r);
    if (strcmp(t->attr.provider, "soft") != 0 || !conf_reaches() ||
        !conf_env_on("ANGARA_SOFT_LOOPBACK")) {
        rank_skip("the peer's process is waited for");
    }
    if (t->rank == 0) {
        POST_OK(t, angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr, r.keys[1], 0, 8));
        conf_marker(t, 1);
        conf_stop_process(t->pid[1]);
        for (size_t length = 4096; length <= 40960; length += 4096) {
            POST_OK(t, angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr, r.keys[1], 0, length));
            conf_marker(t, 1);
        }
        CHECK(kill(t->pid[1], SIGCONT) == 0);
    }
    regions_cleanup(t, &r);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Puts of a stream, of which one is out of bounds. */
static void stream_with_fault(conf_t *t, regions_t *r, uint64_t *model, uint64_t round)
{
    unsigned        many   = 1 + (unsigned)(conf_random(t) % MANY);
    unsigned        bad    = (unsigned)(conf_random(t) % many);
    uint64_t       *now    = (void *)r->buf.addr;
    angara_status_t posted = ANGARA_OK, status;

    for (unsigned n = 0; n < many; ++n) {
        status = CONF_POST(t, angara_offload_put_inline(t->peer[1], &round, r->keys[1],
                                                        n == bad ? LENGTH : n * 8, sizeof(round)));
        if (n < bad) {
            CHECK_OK(status);
            model[n] = round;
        } else if (n == bad) {
            posted = status;
        } else if (status != ANGARA_OK) {
            CHECK_STATUS(status, ANGARA_ERR_PAIR);
        }
    }
    conf_expect_fault(t, 1, posted, ANGARA_ERR_BOUNDS, r->keys[1]);
    POST_OK(t, angara_offload_get(t->peer[1], r->buf.mr, now, r->keys[1], 0, MANY * 8));
    conf_marker(t, 1);
    CHECK(memcmp(now, model, MANY * 8) == 0);
}

/* Caught: a fault that is lost among those that are performed together; one that comes to others.
 */
static void faults(conf_t *t)
{
    uint64_t  model[MANY] = {0};
    regions_t r;

    regions_init(t, &r);
    if (t->rank == 0) {
        for (unsigned round = 1; round <= conf_rounds(rank_chaos() ? 10 : 40); ++round) {
            stream_with_fault(t, &r, model, round);
        }
        conf_tell_over(t, 1);
    } else {
        serve(t);
    }
    regions_cleanup(t, &r);
}

/* ---------------------------------------------------------------------------------------------- */

static const kind_t computing = {0, 0}, polling = {0, 1}, changing = {0, 2}, shared = {1, 2};

static void test_order_computing(void **state)
{
    (void)state;
    conf_run(2, order, &computing);
}

static void test_order_polling(void **state)
{
    (void)state;
    conf_run(2, order, &polling);
}

static void test_order_changing(void **state)
{
    (void)state;
    conf_run(2, order, &changing);
}

static void test_order_shared(void **state)
{
    (void)state;
    conf_run(2, order, &shared);
}

static void test_mapped_refused(void **state)
{
    (void)state;
    conf_run(2, refused, &shared);
}

static void test_faults_polling(void **state)
{
    (void)state;
    conf_run(2, faults, &polling);
}

static void test_faults_changing(void **state)
{
    (void)state;
    conf_run(2, faults, &changing);
}

static void test_stopped_private(void **state)
{
    (void)state;
    conf_run(2, stopped, &polling);
}

static void test_stopped_shared(void **state)
{
    (void)state;
    conf_run(2, stopped, &shared);
}

static void test_hammer_private(void **state)
{
    (void)state;
    conf_run(4, hammer, &changing);
}

static void test_hammer_shared(void **state)
{
    (void)state;
    conf_run(4, hammer, &shared);
}

static void test_locks(void **state)
{
    (void)state;
    conf_run(4, locks, &changing);
}

static void test_followed(void **state)
{
    (void)state;
    conf_run(2, followed, &changing);
}

static void test_lock_of_two(void **state)
{
    (void)state;
    conf_run(2, locks, &changing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_computing), cmocka_unit_test(test_order_polling),
        cmocka_unit_test(test_order_changing),  cmocka_unit_test(test_order_shared),
        cmocka_unit_test(test_stopped_private), cmocka_unit_test(test_stopped_shared),
        cmocka_unit_test(test_faults_polling),  cmocka_unit_test(test_faults_changing),
        cmocka_unit_test(test_mapped_refused),  cmocka_unit_test(test_hammer_private),
        cmocka_unit_test(test_hammer_shared),   cmocka_unit_test(test_locks),
        cmocka_unit_test(test_lock_of_two),     cmocka_unit_test(test_followed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
