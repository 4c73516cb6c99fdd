/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs of the descriptor engine: several puts queued as one entry. Each has its turn, its pieces
 * and its fault as if it had been queued by itself.
 */
#include "engine_mock.h"

#define RUN 6u

static mock_t *runs_new(void)
{
    mock_t *mock = mock_new(0);

    mock->queues = 1;
    for (unsigned i = 0; i < SIZE; ++i) {
        mock->local[i] = (char)(i % 251 + 1);
    }
    return mock;
}

/* 20 bytes or a little more each, 100 apart. */
static void make_run(ang_item_t *items)
{
    for (unsigned i = 0; i < RUN; ++i) {
        items[i] = (ang_item_t){
            .lkey = LKEY, .loffset = i * 10, .rkey = RKEY, .roffset = i * 100, .length = 20 + i};
    }
}

static unsigned post_run(mock_t *mock, const ang_item_t *items, angara_status_t expected)
{
    unsigned posted = 99;

    assert_int_equal(ang_engine_post_batch(&mock->far[0].pair, ANG_OP_PUT, items, RUN, &posted),
                     expected);
    return posted;
}

/* So many of the run have landed, and no byte of the others. */
static void check_landed(const mock_t *mock, const ang_item_t *items, unsigned count)
{
    static const char nothing[SIZE];

    for (unsigned i = 0; i < RUN; ++i) {
        const char *there = mock->far[0].remote + i * 100;

        assert_memory_equal(there, i < count ? mock->local + items[i].loffset : nothing,
                            items[i].length);
        assert_int_equal(there[items[i].length], 0);
    }
}

/* Nothing of it begins within the post; then all are performed, counted and gone. */
static void test_run(void **state)
{
    mock_t    *mock = runs_new();
    ang_item_t items[RUN];

    (void)state;
    make_run(items);
    assert_int_equal(post_run(mock, items, ANGARA_OK), RUN);
    assert_int_equal(mock->batches, 1);
    assert_int_equal(mock->engine.pending, RUN);
    check_landed(mock, items, 0);
    memset(items, 0, sizeof(items)); /* it is the engine's copy that counts */
    while (ang_engine_progress(&mock->engine) != 0) {
    }
    make_run(items);
    check_landed(mock, items, RUN);
    assert_int_equal(mock->engine.stats.puts, RUN);
    assert_int_equal(mock->engine.stats.bytes, 20 * RUN + 15);
    assert_int_equal(mock->engine.pending, 0);
    assert_int_equal(mock->asked_along, RUN - 1);
    mock_free(mock);
}

/* Behind an operation that waits a run is queued, too, and a marker behind that lands last. */
static void test_between(void **state)
{
    mock_t     *mock  = runs_new();
    ang_place_t place = {NULL, 0};
    ang_item_t  items[RUN];
    ang_desc_t  desc;
    const void *data;
    uint64_t    mark;

    (void)state;
    make_run(items);
    mock->far[0].stall = 3;
    assert_int_equal(post_put(mock, 0, 0, 3000, 8), ANGARA_OK);
    assert_int_equal(post_run(mock, items, ANGARA_OK), RUN);
    assert_int_equal(mock->batches, 0);
    assert_int_equal(post_marker(mock, 0, ANG_OP_MARKER, 1, 7), ANGARA_OK);

    assert_int_equal(ang_pair_next(&mock->far[0].pair, &place, &desc, &data), 1);
    assert_int_equal(desc.roffset, 3000);
    for (unsigned i = 0; i < RUN; ++i) {
        assert_int_equal(ang_pair_next(&mock->far[0].pair, &place, &desc, &data), 1);
        assert_int_equal(desc.op, ANG_OP_PUT);
        assert_int_equal(desc.roffset, items[i].roffset);
        assert_int_equal(desc.length, items[i].length);
        assert_int_equal(ang_desc_check(&desc), ANGARA_OK);
    }
    assert_int_equal(ang_pair_next(&mock->far[0].pair, &place, &desc, &data), 1);
    assert_int_equal(desc.op, ANG_OP_MARKER);
    assert_int_equal(ang_pair_next(&mock->far[0].pair, &place, &desc, &data), 0);

    mark = ang_pair_mark(&mock->far[0].pair);
    for (unsigned turns = 0; mock->slots[1] != 7; ++turns) {
        assert_true(turns < 100);
        check_landed(mock, items, mock->engine.stats.puts > 1 ? mock->engine.stats.puts - 1 : 0);
        mock->far[0].stall = 1; /* one operation a turn */
        if (ang_engine_progress(&mock->engine) != 0) {
            assert_true(ang_pair_mark(&mock->far[0].pair) != mark);
            mark = ang_pair_mark(&mock->far[0].pair);
        }
    }
    check_landed(mock, items, RUN);
    mock_free(mock);
}

/* The cursor over runs: from any operation to those behind it in its run. */
static void test_next_run(void **state)
{
    mock_t           *mock  = runs_new();
    ang_pair_t       *pair  = &mock->far[0].pair;
    ang_place_t       place = {NULL, 0}, next;
    ang_item_t        items[RUN];
    const ang_item_t *found;
    ang_op_t          op;

    (void)state;
    make_run(items);
    assert_int_equal(ang_pair_next_run(pair, place, &next, &op, &found), 0);
    assert_int_equal(post_run(mock, items, ANGARA_OK), RUN);
    assert_int_equal(ang_pair_next_run(pair, place, &next, &op, &found), RUN);
    assert_int_equal(op, ANG_OP_PUT);
    assert_memory_equal(found, items, sizeof(items));
    next.at += 2;
    place = next;
    assert_int_equal(ang_pair_next_run(pair, place, &next, &op, &found), RUN - 3);
    assert_int_equal(found->roffset, items[3].roffset);
    next.at += RUN - 4;
    place = next;
    assert_int_equal(ang_pair_next_run(pair, place, &next, &op, &found), 0);
    assert_int_equal(ang_pair_next(pair, &place, NULL, NULL), 0);

    mock->far[0].whole = 23; /* the shorter ones are stuck: none goes on */
    assert_int_equal(ang_engine_progress(&mock->engine), 0);
    mock->far[0].whole      = 0;
    mock->far[0].stall      = 1;
    mock->engine.turn_bytes = 41; /* two of them */
    while (mock->engine.stats.puts < 2) {
        ang_engine_progress(&mock->engine);
    }
    place = (ang_place_t){NULL, 0};
    assert_int_equal(ang_pair_next_run(pair, place, &next, &op, &found), RUN - 2);
    assert_int_equal(found->roffset, items[2].roffset);
    mock_free(mock); /* what is left is dropped */
}

/* Each counts in the ring: of a run so many are taken as there is room for. */
static void test_room(void **state)
{
    mock_t    *mock = runs_new();
    ang_item_t items[RUN];

    (void)state;
    make_run(items);
    assert_int_equal(post_run(mock, items, ANGARA_OK), RUN);
    assert_int_equal(post_run(mock, items, ANGARA_ERR_NO_RESOURCE), LIMIT - RUN);
    assert_int_equal(post_run(mock, items, ANGARA_ERR_NO_RESOURCE), 0);
    assert_int_equal(mock->engine.pending, LIMIT);
    while (ang_engine_progress(&mock->engine) != 0) {
    }
    assert_int_equal(mock->engine.stats.puts, LIMIT);
    assert_int_equal(post_run(mock, items, ANGARA_OK), RUN);
    mock_free(mock);
}

/* The one that is wrong faults at its turn; those before it were performed, none behind it is. */
static void test_fault(void **state)
{
    static const struct {
        uint64_t        length, rkey;
        angara_status_t status;
    } wrong[] = {{UINT64_MAX, RKEY, ANGARA_ERR_BOUNDS},
                 {SIZE + 1, RKEY, ANGARA_ERR_BOUNDS},
                 {20, 0x77, ANGARA_ERR_KEY}};
    ang_item_t items[RUN];

    (void)state;
    for (unsigned w = 0; w < sizeof(wrong) / sizeof(wrong[0]); ++w) {
        for (unsigned at = 0; at < RUN; ++at) {
            mock_t *mock = runs_new();

            make_run(items);
            items[at].length = wrong[w].length;
            items[at].rkey   = wrong[w].rkey;
            assert_int_equal(post_run(mock, items, ANGARA_OK), RUN);
            while (ang_engine_progress(&mock->engine) != 0) {
            }
            make_run(items);
            check_landed(mock, items, at);
            assert_int_equal(mock->far[0].faults, 1);
            assert_int_equal(mock->far[0].last_fault, wrong[w].status);
            assert_int_equal(mock->far[0].last_key, wrong[w].rkey);
            assert_int_equal(mock->engine.pending, 0);
            assert_int_equal(post_run(mock, items, ANGARA_ERR_PAIR), 0);
            ang_engine_pair_reset(&mock->far[0].pair, ANGARA_OK);
            assert_int_equal(post_run(mock, items, ANGARA_OK), RUN);
            while (ang_engine_progress(&mock->engine) != 0) {
            }
            check_landed(mock, items, RUN);
            mock_free(mock);
        }
    }
}

/* A long one goes in pieces, and the turn's bytes are those of all. */
static void test_pieces(void **state)
{
    mock_t    *mock = runs_new();
    ang_item_t items[RUN];
    unsigned   turns;

    (void)state;
    make_run(items);
    items[2].length         = 80;
    mock->engine.turn_bytes = 50;
    assert_int_equal(post_run(mock, items, ANGARA_OK), RUN);
    for (turns = 0; mock->engine.pending != 0; ++turns) {
        uint64_t before = mock->moved;

        assert_true(turns < 20);
        ang_engine_progress(&mock->engine);
        assert_true(mock->moved - before <= 50);
    }
    assert_true(turns > 3);
    check_landed(mock, items, RUN);
    mock_free(mock);
}

/* What the backend performs along with another one isn't begun; it may leave off anywhere. */
static void test_along(void **state)
{
    ang_item_t items[RUN];

    (void)state;
    for (unsigned along = 0; along < RUN; ++along) {
        mock_t *mock = runs_new();

        make_run(items);
        mock->along = along;
        assert_int_equal(post_run(mock, items, ANGARA_OK), RUN);
        while (ang_engine_progress(&mock->engine) != 0) {
        }
        check_landed(mock, items, RUN);
        assert_int_equal(mock->along, 0);
        assert_int_equal(mock->resolved, RUN - along);
        assert_int_equal(mock->engine.stats.puts, RUN);
        assert_int_equal(mock->engine.stats.bytes, 20 * RUN + 15);
        assert_int_equal(mock->engine.pending, 0);
        mock_free(mock);
    }
}

/* A region is in use as long as one of the run's operations that are left needs it. */
static void test_local_user(void **state)
{
    mock_t       *mock   = runs_new();
    ang_engine_t *engine = &mock->engine;
    ang_item_t    items[RUN];

    (void)state;
    make_run(items);
    items[1].lkey = 0x55;
    items[4].lkey = 0x66; /* no such region: a fault */
    assert_int_equal(post_run(mock, items, ANGARA_OK), RUN);
    assert_ptr_equal(ang_engine_local_user(engine, NULL, LKEY), &mock->far[0].pair);
    assert_ptr_equal(ang_engine_local_user(engine, NULL, 0x55), &mock->far[0].pair);
    assert_ptr_equal(ang_engine_local_user(engine, NULL, 0x66), &mock->far[0].pair);
    assert_null(ang_engine_local_user(engine, NULL, 0x77));
    mock->along        = 2; /* the first two, and the one behind */
    engine->turn_bytes = 20 + 21 + 22;
    ang_engine_progress(engine);
    assert_int_equal(engine->stats.puts, 3);
    assert_null(ang_engine_local_user(engine, NULL, 0x55));
    assert_ptr_equal(ang_engine_local_user(engine, NULL, 0x66), &mock->far[0].pair);
    assert_ptr_equal(ang_engine_local_user(engine, NULL, LKEY), &mock->far[0].pair);
    mock_free(mock);
}

/* Where the backend wants each by itself they are queued so, and can be launched. */
static void test_not(void **state)
{
    mock_t    *mock = runs_new();
    ang_item_t items[RUN];

    (void)state;
    make_run(items);
    mock->queues       = 0;
    mock->far[0].stall = 2;
    assert_int_equal(post_put(mock, 0, 0, 3000, 8), ANGARA_OK);
    assert_int_equal(post_run(mock, items, ANGARA_OK), RUN);
    assert_int_equal(mock->asked_along, 0);
    while (mock->engine.pending != 0) {
        ang_engine_progress(&mock->engine);
    }
    assert_int_equal(mock->asked_along, 0);
    check_landed(mock, items, RUN);
    mock_free(mock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run),      cmocka_unit_test(test_between),
        cmocka_unit_test(test_next_run), cmocka_unit_test(test_room),
        cmocka_unit_test(test_fault),    cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_along),    cmocka_unit_test(test_local_user),
        cmocka_unit_test(test_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
