/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bounded turns of the descriptor engine: what a post and a turn move at most, pieces of a long
 * operation, whose turn it is, and what happens to it between two pieces.
 */
#include "engine_mock.h"

#define TURN 100u

static mock_t *pieces_new(void)
{
    mock_t  *mock = mock_new(0);
    unsigned i;

    mock->engine.turn_bytes = TURN;
    for (i = 0; i < SIZE; ++i) {
        mock->local[i] = (char)(i % 251 + 1);
    }
    return mock;
}

/* One turn. @return bytes that it moved. Nothing is held behind it. */
static unsigned turn(mock_t *mock)
{
    uint64_t before = mock->moved;
    unsigned i;

    ang_engine_progress(&mock->engine);
    assert_true(mock->moved - before <= TURN);
    for (i = 0; i < PAIRS; ++i) {
        assert_int_equal(mock->far[i].held, 0);
    }
    return (unsigned)(mock->moved - before);
}

static angara_status_t post_get(mock_t *mock, unsigned to, uint64_t length)
{
    ang_desc_t desc = {.op = ANG_OP_GET, .lkey = LKEY, .rkey = RKEY, .length = length};

    return ang_engine_post(&mock->far[to].pair, &desc, NULL);
}

static void check_put(const mock_t *mock, unsigned to, uint64_t offset, uint64_t length)
{
    assert_memory_equal(mock->far[to].remote + offset, mock->local + offset, length);
    assert_int_equal(mock->far[to].remote[offset + length], 0);
}

/* Up to a turn's bytes within the post, longer ones in as many turns as they need; then a marker.
 */
static void test_budget(void **state)
{
    mock_t  *mock = pieces_new();
    unsigned i;

    (void)state;
    assert_int_equal(post_put(mock, 0, 0, 0, TURN), ANGARA_OK);
    assert_int_equal(mock->moved, TURN);
    assert_true(ang_engine_pair_idle(&mock->far[0].pair));
    assert_int_equal(post_put(mock, 0, 0, 0, 3 * TURN + 1), ANGARA_OK);
    assert_int_equal(mock->moved, TURN);
    assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 0, 1), ANGARA_OK);
    for (i = 1; i <= 3; ++i) {
        assert_int_equal(turn(mock), TURN);
        check_put(mock, 0, 0, i * TURN);
        assert_int_equal(mock->slots[0], 0);
    }
    assert_int_equal(turn(mock), 1);
    check_put(mock, 0, 0, 3 * TURN + 1);
    assert_int_equal(mock->slots[0], 1);
    assert_int_equal(ang_engine_progress(&mock->engine), 0);
    assert_int_equal(mock->engine.stats.puts, 2);
    assert_int_equal(mock->engine.stats.bytes, mock->moved);
    mock_free(mock);
}

/* A turn that moves bytes says so: nobody goes to sleep on the rest. */
static void test_counts_as_step(void **state)
{
    mock_t *mock = pieces_new();

    (void)state;
    assert_int_equal(post_get(mock, 0, 2 * TURN), ANGARA_OK);
    assert_int_not_equal(ang_engine_progress(&mock->engine), 0);
    assert_false(ang_engine_pair_idle(&mock->far[0].pair));
    assert_int_not_equal(ang_engine_progress(&mock->engine), 0);
    assert_true(ang_engine_pair_idle(&mock->far[0].pair));
    mock_free(mock);
}

/* Within a pair all waits behind; other pairs' posts are performed at once. */
static void test_others_pass(void **state)
{
    mock_t *mock = pieces_new();

    (void)state;
    assert_int_equal(post_put(mock, 0, 0, 0, 5 * TURN), ANGARA_OK);
    assert_int_equal(post_put(mock, 0, 0, 2000, 8), ANGARA_OK);
    assert_int_equal(post_put(mock, 1, 0, 0, 8), ANGARA_OK);
    assert_int_equal(post_marker(mock, 1, ANG_OP_MARKER, 1, 7), ANGARA_OK);
    assert_int_equal(mock->slots[1], 7);
    check_put(mock, 1, 0, 8);
    while (turn(mock) == TURN) {
        assert_int_equal(mock->far[0].remote[2000], 0);
    }
    assert_int_equal(mock->far[0].remote[2000], mock->local[0]);
    mock_free(mock);
}

/* The pairs take turns, whatever their place in the list; a short operation waits one round. */
static void test_rotation(void **state)
{
    unsigned moved[PAIRS], turns, i;
    mock_t  *mock = pieces_new();

    (void)state;
    for (i = 0; i < PAIRS; ++i) {
        assert_int_equal(post_put(mock, i, 0, 0, 10 * TURN), ANGARA_OK);
    }
    for (turns = 1; turns <= 10 * PAIRS; ++turns) {
        assert_int_equal(turn(mock), TURN);
        for (i = 0; i < PAIRS; ++i) {
            for (moved[i] = 0; mock->far[i].remote[moved[i]] != 0; ++moved[i]) {
            }
            assert_true(moved[i] + TURN > turns / PAIRS * TURN);
            assert_true(moved[i] <= (turns + PAIRS - 1) / PAIRS * TURN);
        }
    }
    assert_int_equal(mock->engine.pending, 0);
    mock_free(mock);
}

/* A turn's bytes are those of all pairs together. */
static void test_turn_of_all_pairs(void **state)
{
    mock_t  *mock = pieces_new();
    unsigned i, n;

    (void)state;
    for (i = 0; i < PAIRS; ++i) {
        assert_int_equal(post_put(mock, i, 0, 0, TURN + 1),
                         ANGARA_OK); /* what the rest is behind */
        assert_int_equal(post_put(mock, i, 0, 1000, TURN / 2), ANGARA_OK);
    }
    for (n = 0; mock->engine.pending != 0; ++n) {
        turn(mock);
    }
    assert_int_equal(n, (PAIRS * (TURN + 1 + TURN / 2) + TURN - 1) / TURN);
    for (i = 0; i < PAIRS; ++i) {
        assert_memory_equal(mock->far[i].remote + 1000, mock->local, TURN / 2);
    }
    mock_free(mock);
}

/* A batch counts as the sum of its transfers; what is beyond a turn's bytes is queued. */
static void test_batch(void **state)
{
    ang_item_t items[6];
    unsigned   with, posted, i;

    (void)state;
    for (with = 0; with <= 6; ++with) { /* so many the backend performs of what it is given */
        mock_t *mock = pieces_new();

        for (i = 0; i < 6; ++i) {
            items[i] = (ang_item_t){.lkey    = LKEY,
                                    .loffset = 0,
                                    .rkey    = RKEY,
                                    .roffset = i * 200,
                                    .length  = (i == 4) ? TURN + 20 : 40};
        }
        mock->batch_max = with;
        assert_int_equal(ang_engine_post_batch(&mock->far[0].pair, ANG_OP_PUT, items, 6, &posted),
                         ANGARA_OK);
        assert_int_equal(posted, 6);
        assert_int_equal(mock->batched, 2);
        assert_int_equal(mock->moved, 80);
        assert_int_equal(turn(mock), TURN);
        assert_int_equal(turn(mock), TURN);
        assert_int_equal(turn(mock), 40);
        for (i = 0; i < 6; ++i) {
            assert_memory_equal(mock->far[0].remote + i * 200, mock->local, items[i].length);
            assert_int_equal(mock->far[0].remote[i * 200 + items[i].length], 0);
        }
        assert_int_equal(mock->engine.stats.puts, 6);
        assert_int_equal(mock->engine.stats.bytes, 320);
        mock_free(mock);
    }
}

/* A word is not torn, even where fewer bytes are left of a turn; it is the only thing beyond. */
static void test_word(void **state)
{
    mock_t *mock = pieces_new();

    (void)state;
    assert_int_equal(post_put(mock, 0, 0, 0, 2 * TURN - 4), ANGARA_OK);
    assert_int_equal(post_put(mock, 0, 0, 1000, 8), ANGARA_OK);
    assert_int_equal(turn(mock), TURN);
    ang_engine_progress(&mock->engine);
    assert_int_equal(mock->moved, 2 * TURN + 4);
    assert_memory_equal(mock->far[0].remote + 1000, mock->local, 8);
    assert_int_equal(mock->far[0].faults, 0);
    mock_free(mock);
}

/* A self marker waits for what was posted before it, to any pair, and for nothing later. */
static void test_self_marker(void **state)
{
    mock_t  *mock = pieces_new();
    unsigned turns;

    (void)state;
    assert_int_equal(post_put(mock, 0, 0, 0, 3 * TURN), ANGARA_OK);
    assert_int_equal(post_marker(mock, 2, ANG_OP_MARKER_SELF, 0, 1), ANGARA_OK);
    assert_int_equal(post_put(mock, 1, 0, 0, 20 * TURN), ANGARA_OK);
    assert_int_equal(post_put(mock, 0, 0, 1000, 20 * TURN), ANGARA_OK);
    for (turns = 0; mock->slots[0] == 0; ++turns) {
        assert_true(mock->engine.pending >= 3);
        turn(mock);
    }
    check_put(mock, 0, 0, 3 * TURN);
    assert_true(turns < 10);
    assert_int_equal(mock->engine.pending, 2);
    mock_free(mock);
}

/* A self marker that is the first of its pair hides nothing that is queued behind it. */
static void test_two_self_markers(void **state)
{
    mock_t *mock = pieces_new();

    (void)state;
    assert_int_equal(post_put(mock, 0, 0, 0, 2 * TURN), ANGARA_OK);
    assert_int_equal(post_marker(mock, 1, ANG_OP_MARKER_SELF, 1, 1), ANGARA_OK);
    assert_int_equal(post_put(mock, 1, 0, 0, 4 * TURN), ANGARA_OK);
    assert_int_equal(post_marker(mock, 2, ANG_OP_MARKER_SELF, 2, 1), ANGARA_OK);
    while (mock->slots[2] == 0) {
        assert_int_not_equal(mock->engine.pending, 0);
        turn(mock);
    }
    assert_int_equal(mock->slots[1], 1);
    check_put(mock, 1, 0, 4 * TURN);
    mock_free(mock);
}

/* What is wrong at the start is told by the post; what goes wrong between two pieces, as a fault.
 */
static void test_fault(void **state)
{
    mock_t *mock = pieces_new();
    far_t  *far  = &mock->far[0];

    (void)state;
    assert_int_equal(post_put(mock, 0, 0, SIZE - 2 * TURN, 2 * TURN + 1), ANGARA_ERR_BOUNDS);
    assert_int_equal(far->faults, 1);
    assert_int_equal(mock->moved, 0);
    ang_engine_pair_reset(&far->pair, ANGARA_OK);

    assert_int_equal(post_put(mock, 0, 0, 0, 3 * TURN), ANGARA_OK);
    assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 0, 1), ANGARA_OK);
    assert_int_equal(turn(mock), TURN);
    far->gone = 1;
    assert_int_equal(turn(mock), 0);
    assert_int_equal(far->faults, 2);
    assert_int_equal(far->last_fault, ANGARA_ERR_KEY);
    assert_int_equal(far->last_key, RKEY);
    far->gone = 0;
    assert_int_equal(turn(mock), 0);
    check_put(mock, 0, 0, TURN);
    assert_int_equal(mock->slots[0], 0);
    ang_engine_pair_reset(&far->pair, ANGARA_OK);

    assert_int_equal(post_get(mock, 0, 3 * TURN), ANGARA_OK);
    assert_int_equal(turn(mock), TURN);
    mock->local_gone = 1;
    assert_int_equal(turn(mock), 0);
    assert_int_equal(far->faults, 3);
    assert_int_equal(mock->engine.pending, 0);
    mock_free(mock);
}

/* Reset, cancel and removal between two pieces: nothing more of it is moved, the others go on. */
static void test_end_between(void **state)
{
    unsigned how;

    (void)state;
    for (how = 0; how < 3; ++how) {
        mock_t  *mock = pieces_new();
        unsigned turns;

        assert_int_equal(post_put(mock, 0, 0, 0, 5 * TURN), ANGARA_OK);
        assert_int_equal(post_put(mock, 1, 0, 0, 5 * TURN), ANGARA_OK);
        for (turns = 0; mock->far[1].remote[0] == 0; ++turns) {
            turn(mock); /* the turn is the other pair's, or the one's that goes */
        }
        switch (how) {
        case 0:
            ang_engine_pair_reset(&mock->far[1].pair, ANGARA_OK);
            break;
        case 1:
            ang_pair_fault(&mock->far[1].pair, RKEY, ANGARA_ERR_KEY);
            break;
        default:
            ang_engine_pair_remove(&mock->far[1].pair);
            break;
        }
        while (mock->engine.pending != 0) {
            assert_int_equal(turn(mock), TURN);
        }
        check_put(mock, 0, 0, 5 * TURN);
        check_put(mock, 1, 0, TURN);
        if (how == 2) {
            ang_engine_pair_add(&mock->engine, &mock->far[1].pair);
        }
        mock_free(mock);
    }
}

/* The pair whose turn it is goes: the next one has it. */
static void test_remove_turn(void **state)
{
    unsigned i, turns;

    (void)state;
    for (turns = 0; turns < 2 * PAIRS; ++turns) {
        for (i = 0; i < PAIRS; ++i) {
            mock_t  *mock = pieces_new();
            unsigned n;

            for (n = 0; n < PAIRS; ++n) {
                assert_int_equal(post_put(mock, n, 0, 0, 5 * TURN), ANGARA_OK);
            }
            for (n = 0; n < turns; ++n) {
                turn(mock);
            }
            ang_engine_pair_remove(&mock->far[i].pair);
            while (mock->engine.pending != 0) {
                assert_int_not_equal(turn(mock), 0);
            }
            for (n = 0; n < PAIRS; ++n) {
                if (n != i) {
                    check_put(mock, n, 0, 5 * TURN);
                }
            }
            ang_engine_pair_add(&mock->engine, &mock->far[i].pair);
            mock_free(mock);
        }
    }
}

/* Chaos delivers long operations in stretches of a turn's bytes, and holds nothing between them. */
static void test_chaos(void **state)
{
    unsigned seed, i;

    (void)state;
    for (seed = 1; seed <= 20; ++seed) {
        mock_t    *mock = mock_new(seed);
        far_t     *far  = &mock->far[0];
        ang_desc_t get  = {.op = ANG_OP_GET, .lkey = LKEY, .rkey = RKEY, .length = SIZE};

        ang_engine_lock(&mock->engine);
        mock->engine.turn_bytes = TURN;
        ang_engine_unlock(&mock->engine);
        memset(mock->local, (int)seed, SIZE);
        assert_int_equal(post_put(mock, 0, 0, 0, SIZE), ANGARA_OK);
        assert_int_equal(post_marker(mock, 1, ANG_OP_MARKER_SELF, 1, 1), ANGARA_OK);
        progress_until(mock, &mock->slots[1], 1);
        ang_engine_lock(&mock->engine);
        memset(mock->local, 0xee, SIZE);
        ang_engine_unlock(&mock->engine);
        assert_int_equal(ang_engine_post(&far->pair, &get, NULL), ANGARA_OK);
        assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 0, 1), ANGARA_OK);
        while (!ang_engine_pair_idle(&far->pair)) {
            ang_engine_progress(&mock->engine);
            ang_engine_lock(&mock->engine);
            assert_int_equal(far->held, 0);
            ang_engine_unlock(&mock->engine);
        }
        assert_int_equal(mock->slots[0], 1);
        for (i = 0; i < SIZE; ++i) {
            assert_int_equal(far->remote[i], seed);
            assert_int_equal(mock->local[i], seed);
        }
        assert_int_equal(mock->engine.stats.bytes, 2 * SIZE);
        mock_free(mock);
    }
}

/*
 * A pair that always leaves a few bytes of a turn doesn't keep another for ever from what needs
 * more of them at once.
 */
static void test_leftover(void **state)
{
    unsigned busy, turns, i;

    (void)state;
    for (busy = 0; busy < 2; ++busy) {
        mock_t  *mock  = pieces_new();
        unsigned other = 1 - busy;

        mock->engine.limit     = 64;
        mock->far[other].whole = TURN;
        mock->far[busy].stall  = 1000;
        assert_int_equal(post_put(mock, other, 0, 0, 4 * TURN), ANGARA_OK);
        for (i = 0; i < 20; ++i) {
            assert_int_equal(post_put(mock, busy, 0, 0, TURN / 16 - 1), ANGARA_OK);
        }
        mock->far[busy].stall = 0;
        for (turns = 0; mock->far[other].remote[4 * TURN - 1] == 0; ++turns) {
            assert_true(turns < 1000);
            ang_engine_progress(&mock->engine);
            while (mock->engine.pending < 21) {
                assert_int_equal(post_put(mock, busy, 0, 0, TURN / 16 - 1), ANGARA_OK);
            }
        }
        mock->far[other].whole = 0;
        mock_free(mock);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget),      cmocka_unit_test(test_counts_as_step),
        cmocka_unit_test(test_others_pass), cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_batch),       cmocka_unit_test(test_turn_of_all_pairs),
        cmocka_unit_test(test_word),        cmocka_unit_test(test_self_marker),
        cmocka_unit_test(test_fault),       cmocka_unit_test(test_two_self_markers),
        cmocka_unit_test(test_end_between), cmocka_unit_test(test_remove_turn),
        cmocka_unit_test(test_leftover),    cmocka_unit_test(test_chaos),
    };

    return cmocka_run_group_tests_name("pieces", tests, NULL, NULL);
}
