/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which way operations go by the time that they take (pace.h). Here the test is the clock: both
 * ways take what it says.
 */
#include "pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define ROUNDS 10u

typedef uint64_t (*cost_t)(int way, unsigned n);

/* So many operations. @return how many of them were called. */
static unsigned perform(soft_pace_t *pace, unsigned count, cost_t cost)
{
    unsigned called = 0;
    int      is_timed;

    for (unsigned n = 0; n < count; ++n) {
        int way = soft_pace_next(pace, 1, &is_timed);

        called += way == SOFT_PACE_CALLED;
        if (is_timed) {
            soft_pace_tell(pace, way, cost(way, n), SOFT_PACE_UNIT);
        }
    }
    return called;
}

static uint64_t asked_is_faster(int way, unsigned n)
{
    (void)n;
    return way == SOFT_PACE_ASKED ? 2200 : 4800;
}

static uint64_t called_is_faster(int way, unsigned n)
{
    (void)n;
    return way == SOFT_PACE_ASKED ? 9300 : 6200;
}

/* The faster one loses its processor at each fifth that is timed. */
static uint64_t is_disturbed(int way, unsigned n)
{
    return way == SOFT_PACE_CALLED ? 4000 : n / SOFT_PACE_TIMED % 5 == 2 ? 4000000 : 2000;
}

/* Who is asked serves first every other time, else is served: it is slower in the mean. */
static uint64_t asked_by_turns(int way, unsigned n)
{
    return way == SOFT_PACE_CALLED ? 3400 : n / SOFT_PACE_TIMED % 2 == 0 ? 2000 : 9000;
}

/* Each of these takes no time that the clock could tell, or one that no word could hold. */
static uint64_t is_extreme(int way, unsigned n)
{
    (void)n;
    return way == SOFT_PACE_ASKED ? UINT64_MAX : 0;
}

/* The first ones are asked for; the other way is tried once in a round, but three times in the
 * first one, soon. */
static void test_asked(void **state)
{
    soft_pace_t pace = {0};

    (void)state;
    assert_int_equal(perform(&pace, SOFT_PACE_TIMED / 2, asked_is_faster), 0);
    assert_int_equal(perform(&pace, SOFT_PACE_EARLY, asked_is_faster), SOFT_PACE_FIRST);
    assert_int_equal(perform(&pace, ROUNDS * SOFT_PACE_OTHER, asked_is_faster), ROUNDS);
}

static void test_called(void **state)
{
    soft_pace_t pace = {0};

    (void)state;
    perform(&pace, SOFT_PACE_OTHER, called_is_faster);
    assert_int_equal(perform(&pace, ROUNDS * SOFT_PACE_OTHER, called_is_faster),
                     ROUNDS * (SOFT_PACE_OTHER - 1));
}

/* Those that are alone begin by process_vm, untimed, but the shortest; then it is as without that.
 */
static void test_rest(void **state)
{
    soft_paces_t paces = {0};
    soft_pace_t *pace  = &paces.single[1][soft_pace_class(SOFT_PACED + 1)];
    int          is_timed;

    (void)state;
    soft_paces_init(&paces);
    assert_int_equal(paces.single[1][soft_pace_class(SOFT_PACED)].rest, 0);
    assert_int_equal(paces.run[1][soft_pace_class(SOFT_PACED + 1)].rest, 0);
    for (unsigned i = 0; i < SOFT_PACE_REST; ++i) {
        assert_int_equal(soft_pace_peek(pace, 1, &is_timed), SOFT_PACE_CALLED);
        assert_int_equal(soft_pace_next(pace, 1, &is_timed), SOFT_PACE_CALLED);
        assert_false(is_timed);
    }
    assert_int_equal(perform(pace, SOFT_PACE_TIMED / 2, asked_is_faster), 0);
    assert_int_equal(perform(pace, SOFT_PACE_EARLY, asked_is_faster), SOFT_PACE_FIRST);
}

/* What has become slower is left soon. */
static void test_change(void **state)
{
    soft_pace_t pace = {0};

    (void)state;
    for (unsigned i = 0; i < 3; ++i) {
        perform(&pace, 4 * SOFT_PACE_OTHER, asked_is_faster);
        assert_int_equal(perform(&pace, SOFT_PACE_OTHER, asked_is_faster), 1);
        perform(&pace, 4 * SOFT_PACE_OTHER, called_is_faster);
        assert_int_equal(perform(&pace, SOFT_PACE_OTHER, called_is_faster), SOFT_PACE_OTHER - 1);
    }
}

static void test_disturbed(void **state)
{
    soft_pace_t pace = {0};

    (void)state;
    assert_in_range(perform(&pace, ROUNDS * SOFT_PACE_OTHER, is_disturbed), ROUNDS,
                    ROUNDS * SOFT_PACE_OTHER / 4);
}

static void test_by_turns(void **state)
{
    soft_pace_t pace = {0};

    (void)state;
    perform(&pace, SOFT_PACE_OTHER, asked_by_turns);
    assert_in_range(perform(&pace, ROUNDS * SOFT_PACE_OTHER, asked_by_turns),
                    ROUNDS * SOFT_PACE_OTHER * 9 / 10, ROUNDS * SOFT_PACE_OTHER);
}

static void test_extreme(void **state)
{
    soft_pace_t pace = {0};

    (void)state;
    perform(&pace, ROUNDS * SOFT_PACE_OTHER, is_extreme);
    assert_int_not_equal(pace.ns[SOFT_PACE_CALLED], 0); /* which means unknown */
    assert_int_equal(perform(&pace, SOFT_PACE_OTHER, is_extreme), SOFT_PACE_OTHER - 1);
    perform(&pace, 100 * SOFT_PACE_OTHER, asked_is_faster); /* and it is forgotten */
    assert_int_equal(perform(&pace, SOFT_PACE_OTHER, asked_is_faster), 1);
}

/* Who may not explore takes the way that is known, and still times it. */
static void test_not_exploring(void **state)
{
    soft_pace_t pace  = {.ns = {2000, 1000}};
    unsigned    timed = 0;
    int         is_timed;

    (void)state;
    for (unsigned n = 0; n < 2 * SOFT_PACE_OTHER; ++n) {
        assert_int_equal(soft_pace_next(&pace, 0, &is_timed), SOFT_PACE_CALLED);
        timed += (unsigned)is_timed;
    }
    assert_int_equal(timed, SOFT_PACE_EARLY / 2 +
                                (2 * SOFT_PACE_OTHER - SOFT_PACE_EARLY) / SOFT_PACE_TIMED);
}

/* Lengths: each is twice the one before at most; costs are of so many bytes. */
static void test_lengths(void **state)
{
    soft_pace_t pace = {0};

    (void)state;
    assert_int_equal(soft_pace_class(1), 0);
    assert_int_equal(soft_pace_class(SOFT_PACED), 0);
    for (unsigned i = 1; i < SOFT_PACES; ++i) {
        assert_int_equal(soft_pace_class(((uint64_t)SOFT_PACED << (i - 1)) + 1), i);
        assert_int_equal(soft_pace_class((uint64_t)SOFT_PACED << i), i);
    }
    assert_int_equal(soft_pace_class(UINT64_MAX), SOFT_PACES - 1);
    soft_pace_tell(&pace, SOFT_PACE_ASKED, 3000, 2 * SOFT_PACE_UNIT);
    assert_int_equal(pace.ns[SOFT_PACE_ASKED], 1500);
    soft_pace_tell(&pace, SOFT_PACE_CALLED, 1, UINT64_MAX);
    assert_int_equal(pace.ns[SOFT_PACE_CALLED], SOFT_PACE_LEAST);
}

/* A run of few bytes doesn't count, but a single operation does. */
static void test_small_runs(void **state)
{
    soft_paces_t paces = {0};
    soft_pace_t *run   = &paces.run[1][soft_pace_class(16384)];

    (void)state;
    for (unsigned i = 1; i <= 4; ++i) {
        paces.timed    = run;
        paces.begun_ns = 0;
        soft_paces_begin(&paces, 0);
        soft_paces_end(&paces, SOFT_PACE_CALLED, i * 16384);
        assert_null(paces.timed);
        assert_int_equal(run->told[SOFT_PACE_CALLED], i == 4);
    }
    paces.timed    = &paces.single[1][soft_pace_class(16384)];
    paces.begun_ns = 0;
    soft_paces_begin(&paces, 0);
    soft_paces_end(&paces, SOFT_PACE_CALLED, 16384);
    assert_int_equal(paces.single[1][soft_pace_class(16384)].told[SOFT_PACE_CALLED], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asked),     cmocka_unit_test(test_called),
        cmocka_unit_test(test_rest),      cmocka_unit_test(test_change),
        cmocka_unit_test(test_disturbed), cmocka_unit_test(test_extreme),
        cmocka_unit_test(test_lengths),   cmocka_unit_test(test_not_exploring),
        cmocka_unit_test(test_by_turns),  cmocka_unit_test(test_small_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
