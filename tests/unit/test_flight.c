/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of the descriptor engine that its backend launches (a GPU's copies): several fly at
 * once, they land in order, and nothing overtakes them.
 */
#include "engine_mock.h"

#define AIRBORNE 1000000u /* looks: it doesn't land before it is told to */

static mock_t *mock_flying(void)
{
    mock_t *mock = mock_new(0);

    mock->far[0].flies   = 1;
    mock->far[0].airtime = AIRBORNE;
    return mock;
}

static unsigned flying(const mock_t *mock)
{
    return mock->far[0].launched - mock->far[0].landed;
}

static void progress(mock_t *mock)
{
    for (unsigned i = 0; i < 32; ++i) {
        ang_engine_progress(&mock->engine);
    }
}

static void land_all(mock_t *mock)
{
    mock->far[0].airtime = 0;
    progress(mock);
    assert_int_equal(flying(mock), 0);
    assert_true(ang_engine_pair_idle(&mock->far[0].pair));
}

static void test_a_marker_waits_for_what_flies(void **state)
{
    mock_t *mock = mock_flying();

    (void)state;
    memset(mock->local, 7, SIZE);
    assert_int_equal(post_put(mock, 0, 0, 0, 100), ANGARA_OK);
    assert_int_equal(flying(mock), 1);
    assert_int_equal(mock->far[0].held, 0); /* the flight has its own hold */
    assert_int_equal(ang_engine_try_marker(&mock->far[0].pair, 1, 5), 0);
    assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 1, 5), ANGARA_OK);
    assert_int_equal(post_marker(mock, 1, ANG_OP_MARKER_SELF, 2, 6), ANGARA_OK);
    progress(mock);
    assert_int_equal(mock->slots[1], 0);
    assert_int_equal(mock->slots[2], 0);
    assert_int_equal(mock->far[0].remote[99], 0);
    land_all(mock);
    assert_int_equal(mock->slots[1], 5);
    assert_int_equal(mock->slots[2], 6);
    assert_int_equal(mock->far[0].remote[99], 7);
    assert_int_equal(mock->engine.stats.puts, 1);
    assert_int_equal(mock->engine.stats.bytes, 100);
    mock_free(mock);
}

static void test_several_fly_and_land_in_order(void **state)
{
    mock_t  *mock = mock_flying();
    unsigned i;

    (void)state;
    for (i = 0; i < 4; ++i) {
        memset(mock->local + i * 64, (int)i + 1, 64);
        assert_int_equal(post_put(mock, 0, i * 64, 0, 64), ANGARA_OK); /* to one place */
    }
    progress(mock);
    assert_int_equal(flying(mock), 4);
    land_all(mock);
    assert_int_equal(mock->far[0].remote[63], 4);
    assert_int_equal(mock->engine.stats.puts, 4);
    mock_free(mock);
}

static void post_bytes(mock_t *mock, unsigned count)
{
    while (count-- > 0) {
        assert_int_equal(post_put(mock, 0, count, count, 1), ANGARA_OK);
        progress(mock);
    }
}

static void test_while_several_fly_others_wait_for_a_run(void **state)
{
    mock_t *mock = mock_flying();

    (void)state;
    mock->far[0].gathers = 1;
    mock->engine.limit   = 32;
    post_bytes(mock, 3);
    assert_int_equal(flying(mock), 3);
    post_bytes(mock, 3);
    assert_int_equal(flying(mock), 3);
    post_bytes(mock, 1);
    assert_int_equal(flying(mock), 7);
    post_bytes(mock, 4);
    assert_int_equal(flying(mock), 11);
    post_bytes(mock, 8);
    assert_int_equal(flying(mock), 11); /* a run for later */
    land_all(mock);
    assert_int_equal(mock->far[0].launched, 19);
    mock_free(mock);
}

static void test_what_gains_nothing_waits_for_no_run(void **state)
{
    mock_t *mock = mock_flying();

    (void)state;
    mock->engine.limit = 32;
    post_bytes(mock, 12);
    assert_int_equal(flying(mock), 12);
    land_all(mock);
    mock_free(mock);
}

static void test_one_that_did_not_move_is_launched_again(void **state)
{
    mock_t *mock = mock_flying();

    (void)state;
    mock->local[0]       = 6;
    mock->far[0].airtime = 0;
    mock->far[0].landing = ANGARA_ERR_NO_RESOURCE;
    assert_int_equal(post_put(mock, 0, 0, 0, 64), ANGARA_OK);
    progress(mock);
    assert_int_equal(mock->far[0].launched, 2);
    assert_int_equal(mock->far[0].faults, 0);
    assert_int_equal(mock->far[0].remote[0], 6);
    assert_int_equal(mock->engine.stats.puts, 1);
    assert_int_equal(mock->engine.stats.bytes, 64);
    mock_free(mock);
}

static void test_who_cannot_fly_with_others_flies_alone(void **state)
{
    mock_t  *mock = mock_flying();
    unsigned i;

    (void)state;
    mock->far[0].alone = 1;
    for (i = 0; i < 4; ++i) {
        assert_int_equal(post_put(mock, 0, i * 64, i * 64, 64), ANGARA_OK);
    }
    for (i = 1; i <= 4; ++i) {
        progress(mock);
        assert_int_equal(mock->far[0].launched, i);
        mock->far[0].airtime = 0;
        ang_engine_progress(&mock->engine);
        mock->far[0].airtime = AIRBORNE;
    }
    progress(mock);
    assert_int_equal(mock->far[0].landed, 4);
    mock_free(mock);
}

static void test_what_does_not_fly_waits_its_turn(void **state)
{
    mock_t *mock = mock_flying();

    (void)state;
    assert_int_equal(post_put(mock, 0, 0, 0, 64), ANGARA_OK);
    assert_int_equal(post_atomic(mock, 0, 77), ANGARA_OK);
    assert_int_equal(post_put(mock, 0, 0, 64, 64), ANGARA_OK);
    progress(mock);
    assert_int_equal(flying(mock), 1); /* the one behind the atomic doesn't overtake it */
    assert_int_equal(mock->logged, 0);
    land_all(mock);
    assert_int_equal(mock->log[0], 77);
    assert_int_equal(mock->far[0].landed, 2);
    mock_free(mock);
}

/* Pieces are for what the CPU moves. */
static void test_a_long_one_flies_whole(void **state)
{
    mock_t *mock = mock_flying();

    (void)state;
    mock->engine.turn_bytes = 64;
    memset(mock->local, 3, SIZE);
    assert_int_equal(post_put(mock, 0, 0, 0, SIZE), ANGARA_OK);
    assert_int_equal(flying(mock), 1);
    land_all(mock);
    assert_int_equal(mock->far[0].launched, 1);
    assert_int_equal(mock->far[0].remote[SIZE - 1], 3);
    mock_free(mock);
}

static void test_what_cannot_be_launched_is_copied(void **state)
{
    mock_t *mock = mock_flying();

    (void)state;
    mock->local[5]      = 9;
    mock->far[0].launch = ANGARA_ERR_UNSUPPORTED;
    assert_int_equal(post_put(mock, 0, 5, 5, 1), ANGARA_OK);
    assert_int_equal(mock->far[0].launched, 0);
    assert_int_equal(mock->far[0].remote[5], 9);
    assert_true(ang_engine_pair_idle(&mock->far[0].pair));
    mock_free(mock);
}

static void test_without_resources_it_is_launched_later(void **state)
{
    mock_t *mock = mock_flying();

    (void)state;
    mock->far[0].launch = ANGARA_ERR_NO_RESOURCE;
    assert_int_equal(post_put(mock, 0, 0, 0, 64), ANGARA_OK);
    assert_int_equal(flying(mock), 0);
    ang_engine_progress(&mock->engine);
    assert_int_equal(flying(mock), 1);
    land_all(mock);
    mock_free(mock);
}

static void test_a_wrong_one_faults_behind_those_before_it(void **state)
{
    mock_t *mock = mock_flying();

    (void)state;
    mock->local[0] = 4;
    assert_int_equal(post_put(mock, 0, 0, 0, 64), ANGARA_OK);
    assert_int_equal(post_put(mock, 0, 0, SIZE, 64), ANGARA_OK); /* out of bounds */
    assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 1, 5), ANGARA_OK);
    progress(mock);
    assert_int_equal(mock->far[0].faults, 0);
    land_all(mock);
    assert_int_equal(mock->far[0].remote[0], 4);
    assert_int_equal(mock->far[0].faults, 1);
    assert_int_equal(mock->far[0].last_fault, ANGARA_ERR_BOUNDS);
    assert_int_equal(mock->slots[1], 0);
    mock_free(mock);
}

static void test_one_that_fails_takes_all_behind_it_along(void **state)
{
    mock_t  *mock = mock_flying();
    unsigned i;

    (void)state;
    for (i = 0; i < 3; ++i) {
        assert_int_equal(post_put(mock, 0, 0, i * 64, 64), ANGARA_OK);
    }
    assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 1, 5), ANGARA_OK);
    progress(mock);
    assert_int_equal(flying(mock), 3);
    mock->far[0].landing = ANGARA_ERR_SYSTEM;
    land_all(mock); /* all three have been seen to end */
    assert_int_equal(mock->far[0].faults, 1);
    assert_int_equal(mock->far[0].last_fault, ANGARA_ERR_SYSTEM);
    assert_int_equal(mock->far[0].pair.error, ANGARA_ERR_PAIR);
    assert_int_equal(mock->slots[1], 0);
    assert_int_equal(mock->engine.stats.puts, 0);
    mock_free(mock);
}

static void test_a_reset_waits_for_the_end(void **state)
{
    mock_t *mock = mock_flying();

    (void)state;
    assert_int_equal(post_put(mock, 0, 0, 0, 64), ANGARA_OK);
    assert_int_equal(post_put(mock, 0, 0, 64, 64), ANGARA_OK);
    progress(mock);
    assert_int_equal(flying(mock), 2);
    mock->far[0].airtime = 500;
    ang_engine_pair_reset(&mock->far[0].pair, ANGARA_OK);
    assert_int_equal(flying(mock), 0);
    assert_true(ang_engine_pair_idle(&mock->far[0].pair));
    assert_int_equal(mock->engine.pending, 0);
    assert_int_equal(post_put(mock, 0, 0, 0, 64), ANGARA_OK);
    land_all(mock);
    mock_free(mock);
}

static void test_deregistration_sees_what_flies(void **state)
{
    mock_t *mock = mock_flying();

    (void)state;
    assert_int_equal(post_put(mock, 0, 0, 0, 64), ANGARA_OK);
    assert_true(ang_engine_guest_enter(&mock->engine));
    assert_ptr_equal(ang_engine_local_user(&mock->engine, NULL, LKEY), &mock->far[0].pair);
    mock->far[0].airtime = 0;
    assert_int_not_equal(ang_engine_guest_progress(&mock->engine), 0);
    assert_null(ang_engine_local_user(&mock->engine, NULL, LKEY));
    ang_engine_guest_leave(&mock->engine);
    mock_free(mock);
}

/* What is inline moves with its entry: it is copied at once. */
static void test_inline_data_does_not_fly(void **state)
{
    mock_t    *mock = mock_flying();
    char       data = 8;
    ang_desc_t desc = {.op = ANG_OP_PUT_INLINE, .rkey = RKEY, .roffset = 1, .length = 1};

    (void)state;
    assert_int_equal(ang_engine_post(&mock->far[0].pair, &desc, &data), ANGARA_OK);
    assert_int_equal(mock->far[0].launched, 0);
    assert_int_equal(mock->far[0].remote[1], 8);
    mock_free(mock);
}

/* The first of three: the others go on, and whoever looks after them lands all. */
static void lose_first(mock_t *mock)
{
    mock->far[0].gathers = 1;
    memset(mock->local, 6, 3);
    post_bytes(mock, 3);
    assert_int_equal(flying(mock), 3);
    mock->far[0].airtime = 0;
    mock->far[0].landing = ANGARA_ERR_NO_RESOURCE;
}

static void all_have_moved(const mock_t *mock)
{
    assert_int_equal(mock->far[0].launched, 4);
    assert_int_equal(flying(mock), 0);
    assert_int_equal(mock->far[0].faults, 0);
    assert_int_equal(memcmp(mock->far[0].remote, mock->local, 3), 0);
    assert_int_equal(mock->engine.stats.puts, 3);
}

static void test_others_fly_while_one_is_launched_again(void **state)
{
    mock_t *mock = mock_flying();

    (void)state;
    lose_first(mock);
    progress(mock);
    all_have_moved(mock);
    mock_free(mock);
}

static void test_a_guest_launches_it_again(void **state)
{
    mock_t  *mock = mock_flying();
    unsigned still;

    (void)state;
    lose_first(mock);
    assert_true(ang_engine_guest_enter(&mock->engine));
    for (unsigned i = 0; i < 4; ++i) {
        still = 0;
        ang_engine_guest_land(&mock->engine, &still);
        assert_int_equal(still != 0, i == 0);
    }
    ang_engine_guest_leave(&mock->engine);
    all_have_moved(mock);
    mock_free(mock);
}

static void test_a_reset_does_not_launch_it_again(void **state)
{
    mock_t *mock = mock_flying();

    (void)state;
    lose_first(mock);
    ang_engine_pair_reset(&mock->far[0].pair, ANGARA_OK);
    assert_int_equal(mock->far[0].launched, 3);
    assert_int_equal(flying(mock), 0);
    assert_int_equal(mock->engine.pending, 0);
    mock_free(mock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_marker_waits_for_what_flies),
        cmocka_unit_test(test_several_fly_and_land_in_order),
        cmocka_unit_test(test_while_several_fly_others_wait_for_a_run),
        cmocka_unit_test(test_what_gains_nothing_waits_for_no_run),
        cmocka_unit_test(test_one_that_did_not_move_is_launched_again),
        cmocka_unit_test(test_others_fly_while_one_is_launched_again),
        cmocka_unit_test(test_a_guest_launches_it_again),
        cmocka_unit_test(test_a_reset_does_not_launch_it_again),
        cmocka_unit_test(test_who_cannot_fly_with_others_flies_alone),
        cmocka_unit_test(test_what_does_not_fly_waits_its_turn),
        cmocka_unit_test(test_a_long_one_flies_whole),
        cmocka_unit_test(test_what_cannot_be_launched_is_copied),
        cmocka_unit_test(test_without_resources_it_is_launched_later),
        cmocka_unit_test(test_a_wrong_one_faults_behind_those_before_it),
        cmocka_unit_test(test_one_that_fails_takes_all_behind_it_along),
        cmocka_unit_test(test_a_reset_waits_for_the_end),
        cmocka_unit_test(test_deregistration_sees_what_flies),
        cmocka_unit_test(test_inline_data_does_not_fly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
