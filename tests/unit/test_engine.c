/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The descriptor engine over a backend of plain memory that writes a log: order, queues, faults,
 * and that chaos mode really does reorder what it may and nothing else.
 */
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define LKEY   0x11u
#define RKEY   0x22u
#define SIZE   4096u
#define LIMIT  8u
#define PAIRS  2u
#define LOG    4096u
#define WINDOW 0x1000u /* log entries of window words: WINDOW + offset */

typedef struct {
    ang_pair_t      pair;
    char            remote[SIZE];
    char            window[SIZE];
    unsigned        stall; /* so many INPROGRESS answers before each copy or read back */
    unsigned        held;  /* remote refs not yet released */
    unsigned        faults;
    angara_status_t last_fault;
    uint64_t        last_key;
} far_t;

typedef struct {
    ang_engine_t engine;
    far_t        far[PAIRS];
    char         local[SIZE];
    uint64_t     slots[16];
    uint64_t     log[LOG];
    unsigned     logged;
    unsigned     calls; /* of copy and read_back */
} mock_t;

static mock_t *mock_of(ang_pair_t *pair)
{
    return pair->engine->ctx;
}

static far_t *far_of(ang_pair_t *pair)
{
    return (far_t *)pair; /* the pair is its first member */
}

static angara_status_t resolve(char *base, uint64_t want, uint64_t key, uint64_t offset,
                               uint64_t length, ang_ref_t *ref)
{
    if (key != want) {
        return ANGARA_ERR_KEY;
    }
    if ((offset > SIZE) || (length > SIZE - offset)) {
        return ANGARA_ERR_BOUNDS;
    }
    ref->kind   = ANG_REF_HOST;
    ref->addr   = (uintptr_t)base + offset;
    ref->key    = key;
    ref->offset = offset;
    return ANGARA_OK;
}

static angara_status_t mock_local(ang_pair_t *pair, uint64_t key, uint64_t offset, uint64_t length,
                                  unsigned access, ang_ref_t *ref)
{
    (void)access;
    return resolve(mock_of(pair)->local, LKEY, key, offset, length, ref);
}

static angara_status_t mock_remote(ang_pair_t *pair, uint64_t key, uint64_t offset, uint64_t length,
                                   unsigned access, ang_ref_t *ref)
{
    angara_status_t status;

    (void)access;
    status = resolve(far_of(pair)->remote, RKEY, key, offset, length, ref);
    far_of(pair)->held += (status == ANGARA_OK);
    return status;
}

static void mock_release(ang_pair_t *pair, ang_ref_t *ref)
{
    (void)ref;
    assert_true(far_of(pair)->held > 0);
    --far_of(pair)->held;
}

static int stalled(ang_pair_t *pair)
{
    mock_t *mock = mock_of(pair);

    return (far_of(pair)->stall != 0) && ((++mock->calls % (far_of(pair)->stall + 1)) != 0);
}

static void note(mock_t *mock, uint64_t what)
{
    if (mock->logged < LOG) {
        mock->log[mock->logged++] = what;
    }
}

static angara_status_t mock_copy(ang_pair_t *pair, const ang_ref_t *dst, const ang_ref_t *src,
                                 uint64_t length, uint64_t *done)
{
    if (stalled(pair)) {
        return ANGARA_INPROGRESS;
    }
    memmove((void *)(uintptr_t)dst->addr, (const void *)(uintptr_t)src->addr, length);
    *done = length;
    return ANGARA_OK;
}

static angara_status_t mock_atomic(ang_pair_t *pair, const ang_ref_t *ref, const ang_desc_t *desc,
                                   uint64_t *old)
{
    note(mock_of(pair), desc->operand);
    memcpy(old, (const void *)(uintptr_t)ref->addr, desc->width);
    return ANGARA_OK;
}

static angara_status_t mock_read_back(ang_pair_t *pair)
{
    return stalled(pair) ? ANGARA_INPROGRESS : ANGARA_OK;
}

static void mock_marker_land(ang_engine_t *engine, uint64_t slot, uint64_t value)
{
    mock_t *mock = engine->ctx;

    mock->slots[slot] = value;
    note(mock, value);
}

static void mock_window_write(ang_pair_t *pair, uint64_t offset, const void *src, size_t length)
{
    memcpy(far_of(pair)->window + offset, src, length);
}

static void mock_window_word(ang_pair_t *pair, uint64_t offset, uint64_t value, unsigned width)
{
    memcpy(far_of(pair)->window + offset, &value, width);
    note(mock_of(pair), (WINDOW + offset) << 32 | value);
}

static void mock_window_wake(ang_pair_t *pair)
{
    (void)pair;
}

static void mock_fault(ang_pair_t *pair, uint64_t key, angara_status_t status)
{
    ++far_of(pair)->faults;
    far_of(pair)->last_fault = status;
    far_of(pair)->last_key   = key;
}

static const ang_backend_t backend = {
    .local        = mock_local,
    .remote       = mock_remote,
    .release      = mock_release,
    .copy         = mock_copy,
    .atomic       = mock_atomic,
    .read_back    = mock_read_back,
    .marker_land  = mock_marker_land,
    .window_write = mock_window_write,
    .window_word  = mock_window_word,
    .window_wake  = mock_window_wake,
    .fault        = mock_fault,
};

static mock_t *mock_new(uint64_t seed)
{
    mock_t  *mock = calloc(1, sizeof(*mock));
    unsigned i;

    assert_non_null(mock);
    assert_int_equal(
        ang_engine_init(&mock->engine, &backend, mock, (seed != 0) ? LOG : LIMIT, seed, 30),
        ANGARA_OK);
    for (i = 0; i < PAIRS; ++i) {
        ang_engine_pair_add(&mock->engine, &mock->far[i].pair);
    }
    return mock;
}

static void mock_free(mock_t *mock)
{
    unsigned i;

    for (i = 0; i < PAIRS; ++i) {
        ang_engine_pair_remove(&mock->far[i].pair);
        assert_int_equal(mock->far[i].held, 0);
    }
    assert_int_equal(mock->engine.pending, 0);
    ang_engine_cleanup(&mock->engine);
    free(mock);
}

static angara_status_t post_put(mock_t *mock, unsigned to, uint64_t loffset, uint64_t roffset,
                                uint64_t length)
{
    ang_desc_t desc = {.op      = ANG_OP_PUT,
                       .lkey    = LKEY,
                       .loffset = loffset,
                       .rkey    = RKEY,
                       .roffset = roffset,
                       .length  = length};

    return ang_engine_post(&mock->far[to].pair, &desc, NULL);
}

static angara_status_t post_marker(mock_t *mock, unsigned to, ang_op_t op, uint64_t slot,
                                   uint64_t value)
{
    ang_desc_t desc = {.op = (uint8_t)op, .loffset = slot, .operand = value};

    return ang_engine_post(&mock->far[to].pair, &desc, NULL);
}

static angara_status_t post_atomic(mock_t *mock, unsigned to, uint64_t operand)
{
    ang_desc_t desc = {.op      = ANG_OP_ATOMIC,
                       .atomic  = ANGARA_ATOMIC_ADD,
                       .width   = 8,
                       .rkey    = RKEY,
                       .operand = operand};

    return ang_engine_post(&mock->far[to].pair, &desc, NULL);
}

static void progress_until(mock_t *mock, const uint64_t *slot, uint64_t value)
{
    struct timespec pause = {0, 20000};
    unsigned        turns;

    for (turns = 0; *(const volatile uint64_t *)slot != value; ++turns) {
        assert_true(turns < 100000);
        if (ang_engine_progress(&mock->engine) == 0) {
            nanosleep(&pause, NULL);
        }
    }
}

/* Nothing stalls: everything is done within the post. */
static void test_inline(void **state)
{
    mock_t *mock = mock_new(0);

    (void)state;
    memset(mock->local, 7, SIZE);
    assert_int_equal(post_put(mock, 0, 0, 100, 50), ANGARA_OK);
    assert_int_equal(mock->far[0].remote[99], 0);
    assert_int_equal(mock->far[0].remote[100], 7);
    assert_int_equal(mock->far[0].remote[149], 7);
    assert_int_equal(mock->far[0].remote[150], 0);
    assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 3, 42), ANGARA_OK);
    assert_int_equal(mock->slots[3], 42);
    assert_int_equal(mock->engine.stats.puts, 1);
    assert_int_equal(mock->engine.stats.bytes, 50);
    assert_int_equal(mock->engine.stats.markers, 1);
    mock_free(mock);
}

/* A stalled operation holds back its pair, in order, up to the ring's length; not the other pair.
 */
static void test_queue(void **state)
{
    mock_t  *mock = mock_new(0);
    unsigned i;

    (void)state;
    mock->far[0].stall = 5;
    for (i = 0; i < LIMIT; ++i) {
        assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 0, i + 1), ANGARA_OK);
    }
    assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 0, 99), ANGARA_ERR_NO_RESOURCE);
    assert_int_equal(post_put(mock, 0, 0, 0, 1), ANGARA_ERR_NO_RESOURCE);
    assert_int_equal(post_marker(mock, 1, ANG_OP_MARKER, 1, 5), ANGARA_OK);
    assert_int_equal(mock->slots[1], 5);
    progress_until(mock, &mock->slots[0], LIMIT);
    for (i = 0; i < LIMIT; ++i) {
        assert_int_equal(mock->log[i + 1], i + 1); /* after the other pair's */
    }
    mock_free(mock);
}

/* A self marker waits for the sources of all pairs. */
static void test_self_marker(void **state)
{
    mock_t *mock = mock_new(0);

    (void)state;
    mock->far[0].stall = 3;
    memset(mock->local, 1, SIZE);
    assert_int_equal(post_put(mock, 0, 0, 0, 64), ANGARA_OK);
    assert_int_equal(post_marker(mock, 1, ANG_OP_MARKER_SELF, 2, 9), ANGARA_OK);
    assert_int_equal(mock->slots[2], 0);
    progress_until(mock, &mock->slots[2], 9);
    memset(mock->local, 2, SIZE);
    progress_until(mock, &mock->slots[2], 9);
    assert_int_equal(mock->far[0].remote[63], 1);
    mock_free(mock);
}

/* Behind a fault nothing of the pair is done, until the reset; what was before is. */
static void test_fault(void **state)
{
    mock_t *mock = mock_new(0);
    far_t  *far  = &mock->far[0];

    (void)state;
    memset(mock->local, 7, SIZE);
    far->stall = 4;
    assert_int_equal(post_put(mock, 0, 0, 0, 8), ANGARA_OK);
    assert_int_equal(post_put(mock, 0, 0, SIZE - 7, 8), ANGARA_OK); /* queued: faults later */
    assert_int_equal(post_put(mock, 0, 0, 200, 8), ANGARA_OK);
    assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 0, 1), ANGARA_OK);
    while (far->faults == 0) {
        ang_engine_progress(&mock->engine);
    }
    assert_int_equal(far->last_fault, ANGARA_ERR_BOUNDS);
    assert_int_equal(far->last_key, RKEY);
    assert_int_equal(far->pair.error, ANGARA_ERR_PAIR);
    assert_int_equal(far->remote[7], 7);
    assert_int_equal(post_put(mock, 0, 0, 0, 8), ANGARA_ERR_PAIR);
    assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 0, 2), ANGARA_ERR_PAIR);
    for (unsigned i = 0; i < 100; ++i) {
        ang_engine_progress(&mock->engine);
    }
    assert_int_equal(far->remote[200], 0);
    assert_int_equal(mock->slots[0], 0);
    assert_int_equal(mock->engine.pending, 0);
    ang_engine_pair_reset(&far->pair, ANGARA_OK);
    assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 0, 3), ANGARA_OK);
    progress_until(mock, &mock->slots[0], 3);
    assert_int_equal(far->faults, 1);
    mock_free(mock);
}

/* Descriptors that make no sense fault without touching anything. */
static void test_bad_descriptors(void **state)
{
    static const ang_desc_t bad[] = {
        {.op = 0, .rkey = RKEY},
        {.op = ANG_OP_LAST, .rkey = RKEY},
        {.op = 255, .rkey = RKEY},
        {.op = ANG_OP_PUT, .flags = 1, .lkey = LKEY, .rkey = RKEY, .length = 8},
        {.op = ANG_OP_PUT, .lkey = LKEY, .rkey = RKEY, .roffset = UINT64_MAX, .length = 8},
        {.op = ANG_OP_PUT, .lkey = LKEY, .loffset = UINT64_MAX - 3, .rkey = RKEY, .length = 8},
        {.op = ANG_OP_GET, .lkey = LKEY, .rkey = RKEY, .length = UINT64_MAX},
        {.op = ANG_OP_PUT, .lkey = 1, .rkey = RKEY, .length = 8},
        {.op = ANG_OP_GET, .lkey = LKEY, .rkey = 1, .length = 8},
        {.op = ANG_OP_ATOMIC, .atomic = ANGARA_ATOMIC_LAST, .width = 8, .rkey = RKEY},
        {.op = ANG_OP_ATOMIC, .atomic = 0, .width = 2, .rkey = RKEY},
        {.op = ANG_OP_ATOMIC, .atomic = 0, .width = 8, .rkey = RKEY, .roffset = 4},
        {.op = ANG_OP_ATOMIC, .atomic = 0, .width = 8, .rkey = RKEY, .roffset = SIZE},
    };
    mock_t *mock = mock_new(0);
    size_t  i;

    (void)state;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        assert_true(ang_engine_post(&mock->far[0].pair, &bad[i], NULL) < 0);
        assert_int_equal(mock->far[0].faults, i + 1);
        assert_int_equal(mock->far[0].held, 0);
        ang_engine_pair_reset(&mock->far[0].pair, ANGARA_OK);
    }
    for (i = 0; i < SIZE; ++i) {
        assert_int_equal(mock->far[0].remote[i], 0);
    }
    mock_free(mock);
}

/* Dropping a pair with everything queued frees it all (the leak checkers look). */
static void test_remove(void **state)
{
    mock_t *mock = mock_new(0);
    char    data[64];

    (void)state;
    memset(data, 1, sizeof(data));
    mock->far[0].stall = 1000;
    for (unsigned i = 0; i < 3; ++i) {
        ang_desc_t desc = {.op = ANG_OP_PUT_INLINE, .rkey = RKEY, .length = sizeof(data)};

        assert_int_equal(ang_engine_post(&mock->far[0].pair, &desc, data), ANGARA_OK);
        assert_int_equal(post_put(mock, 0, 0, 0, 8), ANGARA_OK);
    }
    assert_false(ang_engine_pair_idle(&mock->far[0].pair));
    mock_free(mock);
}

/* ---- chaos --------------------------------------------------------------------------------- */

static angara_status_t post_word(mock_t *mock, unsigned to, uint64_t offset, uint64_t value)
{
    return ang_engine_post_window(&mock->far[to].pair, 0, NULL, 0, offset, value, 8);
}

/*
 * Window words to many offsets of one pair, numbered in order of posting, then ring operations. In
 * the log: one word's values count up; ring operations are in order and behind all words before.
 * @return number of words seen earlier than an older one: what chaos is for.
 */
static unsigned chaos_round(uint64_t seed)
{
    mock_t  *mock    = mock_new(seed);
    uint64_t last[8] = {0}, newest = 0, value, what;
    unsigned i, reordered = 0, words = 0, ring = 0;

    for (i = 1; i <= 200; ++i) {
        assert_int_equal(post_word(mock, 0, 8 * (i % 8), i), ANGARA_OK);
        if (i % 20 == 0) {
            assert_int_equal(post_atomic(mock, 0, 1000 + i), ANGARA_OK);
        }
    }
    assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 0, 5000), ANGARA_OK);
    progress_until(mock, &mock->slots[0], 5000);
    ang_engine_lock(&mock->engine);
    for (i = 0; i < mock->logged; ++i) {
        what = mock->log[i];
        if (what < WINDOW << 16) { /* a ring operation */
            value = (what == 5000) ? 200 : what - 1000;
            assert_true(value >= ring);
            ring = (unsigned)value;
            /* Every word posted before it is there. */
            for (unsigned w = 0; w < 8; ++w) {
                assert_true(last[w] + 8 > value);
            }
            continue;
        }
        value = what & 0xffffffff;
        assert_int_equal((what >> 32) - WINDOW, 8 * (value % 8));
        assert_true(value > last[value % 8]);
        last[value % 8] = value;
        reordered += value < newest;
        newest = (value > newest) ? value : newest;
        ++words;
    }
    assert_int_equal(words, 200);
    assert_int_equal(ring, 200);
    ang_engine_unlock(&mock->engine);
    mock_free(mock);
    return reordered;
}

static void test_chaos_order(void **state)
{
    unsigned seed, reordered = 0;

    (void)state;
    for (seed = 1; seed <= 20; ++seed) {
        reordered += chaos_round(seed);
    }
    /* Chaos that reorders nothing proves nothing. */
    assert_true(reordered > 20);
}

/* A long put whose source is overwritten once a self marker has landed arrives unharmed. */
static void test_chaos_sources(void **state)
{
    unsigned seed, i;

    (void)state;
    for (seed = 1; seed <= 20; ++seed) {
        mock_t *mock = mock_new(seed);

        memset(mock->local, (int)seed, SIZE);
        assert_int_equal(post_put(mock, 0, 0, 0, SIZE), ANGARA_OK);
        assert_int_equal(post_put(mock, 1, 0, 0, SIZE), ANGARA_OK);
        assert_int_equal(post_marker(mock, 1, ANG_OP_MARKER_SELF, 1, 1), ANGARA_OK);
        progress_until(mock, &mock->slots[1], 1);
        ang_engine_lock(&mock->engine);
        memset(mock->local, 0xee, SIZE);
        ang_engine_unlock(&mock->engine);
        assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 2, 1), ANGARA_OK);
        assert_int_equal(post_marker(mock, 1, ANG_OP_MARKER, 3, 1), ANGARA_OK);
        progress_until(mock, &mock->slots[2], 1);
        progress_until(mock, &mock->slots[3], 1);
        for (i = 0; i < SIZE; ++i) {
            assert_int_equal(mock->far[0].remote[i], seed);
            assert_int_equal(mock->far[1].remote[i], seed);
        }
        mock_free(mock);
    }
}

/* Operations under way when a pair goes: freed, and nothing of them happens later. */
static void test_chaos_remove(void **state)
{
    unsigned seed;

    (void)state;
    for (seed = 1; seed <= 30; ++seed) {
        mock_t *mock = mock_new(seed);

        for (unsigned i = 0; i < 30; ++i) {
            assert_int_equal(post_word(mock, i % 2, 8 * i, 1), ANGARA_OK);
            assert_int_equal(post_put(mock, i % 2, 0, 0, 1000), ANGARA_OK);
        }
        mock_free(mock);
    }
}

static void test_chaos_fault(void **state)
{
    unsigned seed, i;

    (void)state;
    for (seed = 1; seed <= 20; ++seed) {
        mock_t *mock = mock_new(seed);
        far_t  *far  = &mock->far[0];

        assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 0, 1), ANGARA_OK);
        post_put(mock, 0, 0, SIZE, 1);
        post_marker(mock, 0, ANG_OP_MARKER, 1, 1);
        for (i = 0; (far->faults == 0) && (i < 1000000); ++i) {
            ang_engine_progress(&mock->engine);
        }
        assert_int_equal(far->faults, 1);
        assert_int_equal(mock->slots[0], 1);
        for (i = 0; i < 1000; ++i) {
            ang_engine_progress(&mock->engine);
        }
        assert_int_equal(mock->slots[1], 0);
        ang_engine_pair_reset(&far->pair, ANGARA_OK);
        assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 1, 2), ANGARA_OK);
        progress_until(mock, &mock->slots[1], 2);
        mock_free(mock);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inline),          cmocka_unit_test(test_queue),
        cmocka_unit_test(test_self_marker),     cmocka_unit_test(test_fault),
        cmocka_unit_test(test_bad_descriptors), cmocka_unit_test(test_remove),
        cmocka_unit_test(test_chaos_order),     cmocka_unit_test(test_chaos_sources),
        cmocka_unit_test(test_chaos_remove),    cmocka_unit_test(test_chaos_fault),
    };

    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
