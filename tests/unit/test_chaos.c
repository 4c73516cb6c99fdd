/* SPDX-License-Identifier: BSD-3-Clause */
/* Chaos mode of the descriptor engine: it really does reorder what it may, and nothing else. */
#include "engine_mock.h"

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

/*
 * A get of several pieces whose local region goes between two of them: no byte is written there any
 * more, and the get faults.
 */
static void test_chaos_local_gone(void **state)
{
    struct timespec pause = {0, 20000};
    unsigned        seed, i, caught = 0;
    char           *before = malloc(SIZE);

    (void)state;
    assert_non_null(before);
    for (seed = 1; seed <= 200; ++seed) {
        mock_t    *mock      = mock_new(seed);
        far_t     *far       = &mock->far[0];
        ang_desc_t desc      = {.op = ANG_OP_GET, .lkey = LKEY, .rkey = RKEY, .length = SIZE};
        unsigned   under_way = 0;

        memset(far->remote, 7, SIZE);
        assert_int_equal(ang_engine_post(&far->pair, &desc, NULL), ANGARA_OK);
        for (i = 0; !mock->local_gone; ++i) {
            ang_engine_lock(&mock->engine);
            if (far->pair.head == NULL) { /* all of it at once */
                mock->local_gone = 1;
            } else if (far->pair.head->pieces != 0) {
                mock->local_gone = 1;
                memcpy(before, mock->local, SIZE);
                under_way = 1;
            }
            ang_engine_unlock(&mock->engine);
            ang_engine_progress(&mock->engine);
            assert_true(i < 1000000);
        }
        while (!ang_engine_pair_idle(&far->pair)) {
            nanosleep(&pause, NULL);
        }
        ang_engine_lock(&mock->engine);
        assert_int_equal(far->faults, under_way);
        if (under_way) {
            assert_int_equal(far->last_fault, ANGARA_ERR_KEY);
            assert_memory_equal(mock->local, before, SIZE);
        }
        caught += under_way;
        ang_engine_unlock(&mock->engine);
        mock_free(mock);
    }
    assert_true(caught > 10);
    free(before);
}

/* After a reset nothing lands any more: what was put has, and what others write then stays. */
static void test_chaos_reset(void **state)
{
    struct timespec pause = {0, 200000};
    uint64_t        bytes[4], word;
    unsigned        seed, i;

    (void)state;
    memset(bytes, 7, sizeof(bytes));
    for (seed = 1; seed <= 30; ++seed) {
        mock_t *mock = mock_new(seed);
        far_t  *far  = &mock->far[0];

        for (i = 0; i < 30; ++i) {
            assert_int_equal(
                ang_engine_post_window(&far->pair, 64 * i, bytes, sizeof(bytes), 64 * i + 32, 1, 8),
                ANGARA_OK);
            assert_int_equal(post_word(mock, 0, 64 * i + 32, 2 + i), ANGARA_OK);
        }
        ang_engine_pair_reset(&far->pair, ANGARA_OK);
        for (i = 0; i < 30; ++i) {
            memcpy(&word, far->window + 64 * i + 32, sizeof(word));
            assert_int_equal(word, 2 + i);
            assert_memory_equal(far->window + 64 * i, bytes, sizeof(bytes));
        }
        memset(far->window, 9, sizeof(far->window));
        nanosleep(&pause, NULL);
        ang_engine_progress(&mock->engine);
        for (i = 0; i < sizeof(far->window); ++i) {
            assert_int_equal(far->window[i], 9);
        }
        mock_free(mock);
    }
}

/* A sleeper is woken by a flag and by a word of 8 bytes, when they have landed; by nothing else. */
static void test_chaos_wakes(void **state)
{
    mock_t     *mock     = mock_new(7);
    ang_pair_t *pair     = &mock->far[0].pair;
    uint64_t    bytes[4] = {1, 2, 3, 4};
    unsigned    width;

    (void)state;
    for (width = 1; width <= 4; width *= 2) {
        assert_int_equal(ang_engine_post_window(pair, 0, NULL, 0, 64, 1, width), ANGARA_OK);
    }
    assert_int_equal(ang_engine_post_window(pair, 128, bytes, sizeof(bytes), 0, 0, 0), ANGARA_OK);
    while (!ang_engine_pair_idle(pair)) {
        ang_engine_progress(&mock->engine);
    }
    assert_int_equal(mock->far[0].wakes, 0);
    assert_int_equal(post_word(mock, 0, 64, 5), ANGARA_OK);
    assert_int_equal(ang_engine_post_window(pair, 128, bytes, sizeof(bytes), 96, 9, 8), ANGARA_OK);
    while (!ang_engine_pair_idle(pair)) {
        ang_engine_progress(&mock->engine);
    }
    assert_int_equal(mock->far[0].wakes, 2);
    mock_free(mock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chaos_order),      cmocka_unit_test(test_chaos_sources),
        cmocka_unit_test(test_chaos_remove),     cmocka_unit_test(test_chaos_fault),
        cmocka_unit_test(test_chaos_local_gone), cmocka_unit_test(test_chaos_wakes),
        cmocka_unit_test(test_chaos_reset),
    };

    return cmocka_run_group_tests_name("chaos", tests, NULL, NULL);
}
