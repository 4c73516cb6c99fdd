/* SPDX-License-Identifier: BSD-3-Clause */
/* The descriptor engine over a backend of plain memory: order, queues, batches, faults. */
#include "engine_mock.h"

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

/* Even a descriptor that makes no sense faults at its turn: what was posted before is performed. */
static void test_fault_order(void **state)
{
    static const ang_desc_t bad = {
        .op = ANG_OP_PUT, .lkey = LKEY, .rkey = RKEY, .roffset = UINT64_MAX, .length = 8};
    unsigned seed, i;

    (void)state;
    for (seed = 0; seed <= 20; ++seed) { /* 0: no chaos */
        mock_t *mock = mock_new(seed);
        far_t  *far  = &mock->far[0];

        memset(mock->local, 7, SIZE);
        far->stall = (seed == 0) ? 4 : 0;
        assert_int_equal(post_put(mock, 0, 0, 0, 8), ANGARA_OK);
        assert_int_equal(post_put(mock, 0, 0, 100, 8), ANGARA_OK);
        assert_int_equal(ang_engine_post(&far->pair, &bad, NULL), ANGARA_OK);
        assert_int_equal(post_put(mock, 0, 0, 200, 8), ANGARA_OK);
        for (i = 0; (far->faults == 0) && (i < 1000000); ++i) {
            ang_engine_progress(&mock->engine);
        }
        assert_int_equal(far->faults, 1);
        assert_int_equal(far->last_fault, ANGARA_ERR_BOUNDS);
        assert_int_equal(far->remote[7], 7);
        assert_int_equal(far->remote[107], 7);
        assert_int_equal(far->remote[200], 0);
        mock_free(mock);
    }
}

/* A backend whose way is closed under way gets its ends resolved again, and the first let go. */
static void test_other_way(void **state)
{
    unsigned seed;

    (void)state;
    for (seed = 0; seed <= 10; ++seed) {
        mock_t  *mock = mock_new(seed);
        unsigned resolved;

        memset(mock->local, 9, SIZE);
        mock->refuse = 1;
        /* Inline: no copy but the one to the far end. */
        ang_desc_t desc = {.op = ANG_OP_PUT_INLINE, .rkey = RKEY, .length = SIZE};

        resolved = mock->resolved;
        assert_int_equal(ang_engine_post(&mock->far[0].pair, &desc, mock->local), ANGARA_OK);
        assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 0, 1), ANGARA_OK);
        progress_until(mock, &mock->slots[0], 1);
        /* Chaos resolves them for each piece. */
        assert_true((seed == 0) ? (mock->resolved - resolved == 2) :
                                  (mock->resolved - resolved >= 2));
        assert_int_equal(mock->far[0].held, 0);
        assert_int_equal(mock->far[0].faults, 0);
        assert_int_equal(mock->far[0].remote[0], 9);
        assert_int_equal(mock->far[0].remote[SIZE - 1], 9);
        mock_free(mock);
    }
}

#define BATCH 6u

static void make_batch(ang_item_t *items)
{
    for (unsigned i = 0; i < BATCH; ++i) {
        items[i] = (ang_item_t){
            .lkey = LKEY, .loffset = i * 100, .rkey = RKEY, .roffset = i * 200, .length = 50 + i};
    }
}

/* What the backend doesn't take of a batch is posted one by one; all of it is performed once. */
static void test_batch(void **state)
{
    unsigned done, posted, i;

    (void)state;
    for (done = 0; done <= BATCH; ++done) {
        mock_t    *mock = mock_new(0);
        ang_item_t items[BATCH];

        for (i = 0; i < SIZE; ++i) {
            mock->local[i] = (char)(i / 100 + 1);
        }
        make_batch(items);
        mock->batch_max = done;
        assert_int_equal(
            ang_engine_post_batch(&mock->far[0].pair, ANG_OP_PUT, items, BATCH, &posted),
            ANGARA_OK);
        assert_int_equal(posted, BATCH);
        assert_int_equal(mock->batches, 1);
        assert_int_equal(mock->batched, BATCH);
        assert_int_equal(mock->engine.stats.puts, BATCH);
        assert_int_equal(mock->engine.stats.bytes, 50 * BATCH + 15);
        for (i = 0; i < BATCH; ++i) {
            assert_int_equal(mock->far[0].remote[i * 200], i + 1);
            assert_int_equal(mock->far[0].remote[i * 200 + 49 + i], i + 1);
            assert_int_equal(mock->far[0].remote[i * 200 + 50 + i], 0);
        }
        mock_free(mock);
    }
}

/* The backend sees sound descriptors only, and none where order or an error forbid it. */
static void test_batch_not(void **state)
{
    mock_t    *mock = mock_new(0);
    far_t     *far  = &mock->far[0];
    ang_item_t items[BATCH];
    unsigned   posted = 99;

    (void)state;
    mock->batch_max = BATCH;
    make_batch(items);
    assert_int_equal(ang_engine_post_batch(&far->pair, ANG_OP_PUT, items, 0, &posted), ANGARA_OK);
    assert_int_equal(posted, 0);
    assert_int_equal(ang_engine_post_batch(&far->pair, ANG_OP_PUT, items, 1, &posted), ANGARA_OK);
    assert_int_equal(posted, 1);
    assert_int_equal(mock->batches, 0); /* nothing to gain */
    items[4].length = UINT64_MAX;
    assert_int_equal(ang_engine_post_batch(&far->pair, ANG_OP_PUT, items, BATCH, &posted),
                     ANGARA_ERR_BOUNDS);
    assert_int_equal(posted, 4);
    assert_int_equal(mock->batched, 4);
    assert_int_equal(far->faults, 1);
    assert_int_equal(ang_engine_post_batch(&far->pair, ANG_OP_PUT, items, BATCH, &posted),
                     ANGARA_ERR_PAIR);
    assert_int_equal(posted, 0);
    assert_int_equal(mock->batches, 1);
    ang_engine_pair_reset(&far->pair, ANGARA_OK);
    make_batch(items);
    far->stall = 3; /* behind one that waits: queued, in order, until the ring is full */
    assert_int_equal(post_put(mock, 0, 0, 4000, 8), ANGARA_OK);
    assert_int_equal(ang_engine_post_batch(&far->pair, ANG_OP_PUT, items, BATCH, &posted),
                     ANGARA_OK);
    assert_int_equal(posted, BATCH);
    assert_int_equal(ang_engine_post_batch(&far->pair, ANG_OP_PUT, items, BATCH, &posted),
                     ANGARA_ERR_NO_RESOURCE);
    assert_int_equal(posted, LIMIT - 1 - BATCH);
    assert_int_equal(mock->batches, 1);
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

/* Who still uses a local region, until its pair is cancelled: a fault, as any other. */
static void test_local_user(void **state)
{
    mock_t *mock = mock_new(0);
    far_t  *far  = &mock->far[1];

    (void)state;
    assert_null(ang_engine_local_user(&mock->engine, NULL, LKEY));
    far->stall = 1000;
    assert_int_equal(post_marker(mock, 1, ANG_OP_MARKER, LKEY, 1), ANGARA_OK);
    assert_null(ang_engine_local_user(&mock->engine, NULL, LKEY)); /* a slot's number isn't a key */
    assert_int_equal(post_put(mock, 1, 0, 0, 8), ANGARA_OK);
    assert_ptr_equal(ang_engine_local_user(&mock->engine, NULL, LKEY), &far->pair);
    assert_null(ang_engine_local_user(&mock->engine, NULL, RKEY));
    assert_null(ang_engine_local_user(&mock->engine, NULL, 0));
    ang_pair_fault(&far->pair, RKEY, ANGARA_ERR_KEY);
    assert_null(ang_engine_local_user(&mock->engine, NULL, LKEY));
    assert_int_equal(far->pair.error, ANGARA_ERR_PAIR);
    assert_int_equal(far->faults, 1);
    assert_int_equal(far->last_fault, ANGARA_ERR_KEY);
    assert_int_equal(mock->slots[0], 0);
    mock_free(mock);
}

/* A guest finds something queued or nothing at all; he is in until he leaves. */
static void test_guest(void **state)
{
    mock_t *mock = mock_new(0);
    far_t  *far  = &mock->far[1];

    (void)state;
    assert_false(ang_engine_guest_enter(&mock->engine));
    far->stall = 1000;
    assert_int_equal(post_put(mock, 1, 0, 0, 8), ANGARA_OK);
    assert_true(ang_engine_guest_enter(&mock->engine));
    assert_int_equal(mock->far[0].shared, 0);
    ang_pair_fault(&far->pair, RKEY, ANGARA_ERR_BUSY);
    assert_true(far->shared); /* the caller keeps out while the fault is told of */
    assert_true(ang_engine_is_shared(&mock->engine));
    ang_engine_guest_leave(&mock->engine);
    assert_false(ang_engine_is_shared(&mock->engine));
    assert_false(ang_engine_guest_enter(&mock->engine));
    mock_free(mock);
}

/* The mark of a queue changes with each step of its first operation. */
static void test_mark(void **state)
{
    mock_t  *mock = mock_new(0);
    far_t   *far  = &mock->far[1];
    uint64_t mark;

    (void)state;
    mock->engine.turn_bytes = 16;
    assert_int_equal(post_put(mock, 1, 0, 0, 32), ANGARA_OK);
    assert_int_equal(post_put(mock, 1, 0, 0, 8), ANGARA_OK);
    assert_int_equal(post_put(mock, 1, 0, 0, 8), ANGARA_OK);
    while (!ang_engine_pair_idle(&far->pair)) {
        mark       = ang_pair_mark(&far->pair);
        far->stall = 1000;
        ang_engine_progress(&mock->engine);
        assert_int_equal(ang_pair_mark(&far->pair), mark);
        far->stall = 0;
        ang_engine_progress(&mock->engine);
        assert_int_not_equal(ang_pair_mark(&far->pair), mark);
    }
    mock_free(mock);
}

/* ---- no memory ------------------------------------------------------------------------------- */

static int no_memory; /* what the engine asks for isn't there */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return __atomic_load_n(&no_memory, __ATOMIC_RELAXED) ? NULL : __real_malloc(size);
}

static void set_memory(int there)
{
    __atomic_store_n(&no_memory, !there, __ATOMIC_RELAXED);
}

static angara_status_t post_inline(mock_t *mock, unsigned to, uint64_t roffset, const void *data,
                                   uint64_t length)
{
    ang_desc_t desc = {.op = ANG_OP_PUT_INLINE, .rkey = RKEY, .roffset = roffset, .length = length};

    return ang_engine_post(&mock->far[to].pair, &desc, data);
}

static void assert_untouched(const mock_t *mock, unsigned to, unsigned calls)
{
    assert_int_equal(mock->far[to].pair.error, ANGARA_OK);
    assert_int_equal(mock->far[to].faults, 0);
    assert_int_equal(mock->far[to].held, 0);
    assert_null(mock->far[to].pair.head);
    assert_int_equal(mock->calls, calls);
}

/*
 * What begins goes on and ends, though there is no memory at that moment; what can't be queued
 * doesn't begin, and is taken again once something has ended. No pair is harmed.
 */
static void test_no_memory(void **state)
{
    mock_t  *mock;
    unsigned calls;
    char     data[64];

    (void)state;
    for (uint64_t round = 1; round <= 3; ++round) {
        mock = mock_new(0); /* which has kept nothing of operations before */
        for (unsigned i = 0; i < PAIRS; ++i) {
            mock->far[i].stall = 3;
        }
        memset(mock->local, (int)round, SIZE);
        memset(data, (int)(100 + round), sizeof(data));
        set_memory(0);
        if (round == 2) {
            assert_int_equal(post_inline(mock, 0, 0, data, sizeof(data)), ANGARA_OK);
        } else {
            assert_int_equal(post_put(mock, 0, 0, 0, sizeof(data)), ANGARA_OK);
        }
        memset(data, 0, sizeof(data));
        calls = mock->calls;
        assert_int_equal(post_put(mock, 0, 0, 64, 8), ANGARA_ERR_NO_RESOURCE); /* behind it */
        assert_int_equal(post_put(mock, 1, 0, 0, 8), ANGARA_ERR_NO_RESOURCE);
        assert_int_equal(post_inline(mock, 1, 0, "data", 4), ANGARA_ERR_NO_RESOURCE);
        assert_int_equal(post_marker(mock, 1, ANG_OP_MARKER, 1, round), ANGARA_ERR_NO_RESOURCE);
        assert_int_equal(post_marker(mock, 2, ANG_OP_MARKER_SELF, 2, round),
                         ANGARA_ERR_NO_RESOURCE);
        assert_untouched(mock, 1, calls);
        assert_untouched(mock, 2, calls);
        while (mock->engine.pending != 0) {
            ang_engine_progress(&mock->engine);
        }
        assert_int_equal(mock->far[0].remote[63], round == 2 ? 100 + round : round);
        assert_int_equal(mock->far[0].remote[64], 0);
        assert_int_equal(post_marker(mock, 1, ANG_OP_MARKER, 1, round), ANGARA_OK);
        assert_int_equal(mock->slots[1], 0);
        progress_until(mock, &mock->slots[1], round);
        set_memory(1);
        /* With memory, as many as ever. */
        for (unsigned i = 0; i < LIMIT; ++i) {
            assert_int_equal(post_marker(mock, i % PAIRS, ANG_OP_MARKER, 3 + i, round), ANGARA_OK);
        }
        for (unsigned i = 0; i < LIMIT; ++i) {
            progress_until(mock, &mock->slots[3 + i], round);
        }
        mock_free(mock);
    }
}

/* A stream allocates no more than its first operations did, whatever bytes they carry. */
static void test_kept(void **state)
{
    static const uint64_t lengths[] = {1, 64, 65, 512, 513, SIZE};
    static char           data[SIZE];
    mock_t               *mock = mock_new(0);

    (void)state;
    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
        for (unsigned round = 1; round <= 5; ++round) {
            mock->far[0].stall = 3;
            memset(data, (int)(16 * i + round), sizeof(data));
            set_memory(round == 1);
            for (unsigned j = 0; j < LIMIT; ++j) {
                assert_int_equal(post_inline(mock, 0, 0, data, lengths[i]), ANGARA_OK);
            }
            while (mock->engine.pending != 0) {
                ang_engine_progress(&mock->engine);
            }
            assert_memory_equal(mock->far[0].remote, data, lengths[i]);
        }
    }
    set_memory(1);
    mock_free(mock);
}

/* The pair's error is told before that there is no memory; a dropped queue gives it back. */
static void test_no_memory_dropped(void **state)
{
    mock_t *mock = mock_new(0);

    (void)state;
    mock->far[0].stall = 1000;
    mock->far[1].stall = 1000;
    set_memory(0);
    assert_int_equal(post_put(mock, 0, 0, 0, 8), ANGARA_OK);
    assert_int_equal(post_put(mock, 1, 0, 0, 8), ANGARA_ERR_NO_RESOURCE);
    ang_pair_fault(&mock->far[0].pair, RKEY, ANGARA_ERR_KEY);
    assert_int_equal(post_put(mock, 0, 0, 0, 8), ANGARA_ERR_PAIR);
    assert_int_equal(post_put(mock, 1, 0, 0, 8), ANGARA_OK);
    assert_int_equal(post_put(mock, 0, 0, 0, 8), ANGARA_ERR_PAIR);
    set_memory(1);
    mock_free(mock);
}

/* In chaos mode all is queued: the call says so. A source that can't be copied is read later. */
static void test_no_memory_chaos(void **state)
{
    struct timespec pause = {0, 5000000};
    mock_t         *mock  = mock_new(7);
    unsigned        posted;

    (void)state;
    set_memory(0);
    assert_int_equal(post_put(mock, 0, 0, 0, 8), ANGARA_ERR_NO_MEMORY);
    set_memory(1);
    assert_int_equal(mock->engine.pending, 0);
    memset(mock->local, 5, SIZE);
    for (posted = 1; posted <= 100; ++posted) {
        assert_int_equal(post_put(mock, 0, 0, posted, 1), ANGARA_OK);
    }
    set_memory(0);
    nanosleep(&pause, NULL);
    set_memory(1);
    assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 0, 1), ANGARA_OK);
    progress_until(mock, &mock->slots[0], 1);
    assert_int_equal(mock->far[0].faults, 0);
    assert_int_equal(mock->far[0].remote[1], 5);
    assert_int_equal(mock->far[0].remote[100], 5);
    mock_free(mock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inline),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_self_marker),
        cmocka_unit_test(test_fault),
        cmocka_unit_test(test_bad_descriptors),
        cmocka_unit_test(test_remove),
        cmocka_unit_test(test_fault_order),
        cmocka_unit_test(test_other_way),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_batch_not),
        cmocka_unit_test(test_local_user),
        cmocka_unit_test(test_guest),
        cmocka_unit_test(test_mark),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_no_memory_dropped),
        cmocka_unit_test(test_no_memory_chaos),
    };

    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
