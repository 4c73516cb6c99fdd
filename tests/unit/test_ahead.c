/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Batches of operations, of which one is put together while another one is under way. The test
 * is the target here.
 */
#include "played_target.h"

#define BEHIND 16u

/* So many puts of 64 bytes, which begin there, in one call. */
static void post_puts(unsigned first, unsigned count)
{
    angara_xfer_t xfers[BEHIND];
    unsigned      posted;

    for (unsigned i = 0; i < count; ++i) {
        uint64_t at = 64ull * (first + i);

        memset(memory + at, (int)(first + i + 1), 64);
        xfers[i] = (angara_xfer_t){
            .lmr = mr, .laddr = memory + at, .rkey = f.hello.key, .roffset = at, .length = 64};
    }
    assert_int_equal(angara_offload_batch(f.peer, ANGARA_BATCH_PUT, xfers, count, &posted),
                     ANGARA_OK);
    assert_int_equal(posted, count);
}

/* The request is for those puts. */
static void assert_puts(unsigned first, unsigned count)
{
    uint32_t at  = (uint32_t)slot()->request.compare;
    uint32_t end = at + slot()->request.length;

    assert_int_equal(slot()->request.op, SOFT_OP_BATCH);
    for (unsigned i = first; i < first + count; ++i) {
        soft_request_t *item = (void *)(staging() + at);
        const char     *data = soft_item_data(item, at, item->length);

        assert_int_equal(item->op, ANG_OP_PUT);
        assert_int_equal(item->length, 64);
        assert_int_equal(item->offset, 64 * i);
        assert_int_equal(data[0], (char)(i + 1));
        assert_int_equal(data[63], (char)(i + 1));
        at = soft_item_end(at, item);
    }
    assert_int_equal(at, end);
}

/* All that the answer brings is taken; what is asked for then is begun with, lest it be late. */
static void answer_all(angara_status_t status, uint64_t count)
{
    answer(status, count);
    if (soft_peer(f.peer)->agent >= 0 && soft_state_phase(slot()->state) == SOFT_POSTED) {
        serve();
    }
    for (unsigned i = 0; i < 8; ++i) {
        angara_pe_progress(f.pe);
    }
}

/* What is posted while a batch is under way is posted as one with its answer, elsewhere. */
static void test_ahead(void **state)
{
    uint32_t begin, length;

    (void)state;
    prepare();
    post_puts(0, 8);
    serve();
    begin  = (uint32_t)slot()->request.compare;
    length = slot()->request.length;
    post_puts(8, BEHIND);
    post_puts(8 + BEHIND, 2);
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
    assert_int_equal(soft_state_phase(slot()->state), SOFT_SERVING);
    assert_int_equal(slot()->request.compare, begin);
    answer_all(ANGARA_OK, 8);
    assert_puts(8, BEHIND + 2);
    assert_true(slot()->request.compare >= begin + length ||
                slot()->request.compare + slot()->request.length <= begin);
    assert_int_equal(pending(), BEHIND + 2 + 1);
    assert_int_not_equal(*f.slot, f.value);
    answer_all(ANGARA_OK, BEHIND + 2);
    assert_int_equal(*f.slot, f.value);
    assert_int_equal(pending(), 0);
}

/* A stream that doesn't end: each batch is another one's end, all through staging memory. */
static void test_ahead_stream(void **state)
{
    unsigned first = 0;

    (void)state;
    prepare();
    post_puts(0, BEHIND);
    serve();
    for (unsigned i = 0; i < 200; ++i) {
        assert_puts(first, BEHIND);
        first = (first + BEHIND) % (64 * BEHIND);
        post_puts(first, BEHIND);
        assert_int_equal(pending(), 2 * BEHIND);
        answer_all(ANGARA_OK, BEHIND);
    }
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
    answer_all(ANGARA_OK, BEHIND);
    assert_int_equal(*f.slot, f.value);
}

/* A batch of eight that has been begun with, and one behind it. */
static void post_both(void)
{
    prepare();
    post_puts(0, 8);
    serve();
    post_puts(8, BEHIND);
}

/* One of the first batch fails: none of the second one is ever asked for. */
static void test_ahead_fails(void **state)
{
    unsigned long long before;

    (void)state;
    post_both();
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
    before = soft_pe(f.pe)->counters.services;
    answer_all(ANGARA_ERR_BOUNDS, 5);
    assert_int_equal(fault(), ANGARA_ERR_BOUNDS);
    assert_int_equal(soft_pe(f.pe)->counters.services, before);
    assert_int_equal(soft_peer(f.peer)->agent, -1);
    assert_int_not_equal(*f.slot, f.value);
}

/* Garbage in an answer to the second one: more than there are. */
static void test_ahead_garbage(void **state)
{
    (void)state;
    post_both();
    answer_all(ANGARA_OK, 8);
    answer_all(ANGARA_OK, BEHIND + 1);
    assert_int_equal(fault(), ANGARA_ERR_SYSTEM);
}

/* The target dies with one batch begun and another one waiting; the program posts on. */
static void test_ahead_killed(void **state)
{
    angara_status_t status;

    (void)state;
    post_both();
    kill(f.pid, SIGKILL);
    assert_int_equal(fault(), ANGARA_ERR_PEER_DEAD);
    for (unsigned i = 0; i < 40; ++i) {
        status = angara_offload_put(f.peer, mr, memory, f.hello.key, 0, 64);
        assert_int_not_equal(status, ANGARA_OK);
        angara_pe_progress(f.pe);
    }
}

/* Nobody begins with the second batch: it is taken back, and goes by process_vm. */
static void test_ahead_late(void **state)
{
    (void)state;
    post_both();
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
    answer(ANGARA_OK, 8);
    assert_puts(8, BEHIND);
    for (unsigned i = 0; *f.slot != f.value && i < LONG_MS; ++i) {
        angara_pe_progress(f.pe);
    }
    assert_int_equal(*f.slot, f.value);
    assert_int_equal(soft_peer(f.peer)->agent, -1);
    memset(memory, 77, 64 * (8 + BEHIND));
    assert_int_equal(angara_offload_get(f.peer, mr, memory, f.hello.key, 0, 64 * (8 + BEHIND)),
                     ANGARA_OK);
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
    wait_for_answer();
    assert_bytes(0, 64 * 8, 0); /* which the test only said that it had done */
    for (unsigned i = 8; i < 8 + BEHIND; ++i) {
        assert_bytes(64 * i, 64 * i + 64, (char)(i + 1));
    }
}

/* A stream that doesn't pause has its way chosen anew now and then. */
static void test_ahead_ends(void **state)
{
    soft_peer_t *peer = soft_peer(f.peer);
    unsigned     count;

    (void)state;
    prepare();
    post_puts(0, 8);
    serve();
    count           = peer->paces.run[0][0].count;
    peer->run_bytes = SOFT_ROOM;
    post_puts(8, BEHIND);
    assert_int_equal(peer->ahead.count, 0);
    answer_all(ANGARA_OK, 8);
    assert_puts(8, BEHIND);
    assert_int_equal(peer->paces.run[0][0].count, count + 1);
    answer_all(ANGARA_OK, BEHIND);
    assert_int_equal(pending(), 0);
}

/* How many operations the request is for. */
static unsigned operations(void)
{
    uint32_t at    = (uint32_t)slot()->request.compare;
    uint32_t end   = at + slot()->request.length;
    unsigned count = 0;

    for (; at < end; ++count) {
        at = soft_item_end(at, (soft_request_t *)(staging() + at));
    }
    return count;
}

/* With little staging memory, too, the second batch leaves the first one's place alone. */
static void test_ahead_little(void **state)
{
    static const uint32_t staged[] = {SOFT_STAGING / 2, SOFT_STAGING, 2 * SOFT_STAGING};

    (void)state;
    prepare();
    for (unsigned i = 0; i < 60; ++i) {
        uint64_t begin, end;
        unsigned count = 0;

        trust();
        post_puts(0, 1 + i % BEHIND);
        slot()->staged = staged[i % 3];
        begin          = slot()->request.compare;
        end            = begin + slot()->request.length;
        serve();
        post_puts(0, 1 + i % 7);
        assert_int_equal(angara_offload_get(f.peer, mr, memory, f.hello.key, 0, 40000), ANGARA_OK);
        assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
        for (answer_all(ANGARA_OK, operations()); *f.slot != f.value; ++count) {
            const soft_request_t *request = &slot()->request;

            assert_int_equal(request->op, SOFT_OP_BATCH);
            assert_true(request->compare + request->length <= staged[i % 3]);
            assert_true(count != 0 || staged[i % 3] < SOFT_STAGING || request->compare >= end ||
                        request->compare + request->length <= begin);
            answer_all(ANGARA_OK, operations());
        }
        assert_in_range(count, 1, 2);
    }
}

#define CASE(_name) cmocka_unit_test_setup_teardown(_name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_ahead),         CASE(test_ahead_stream), CASE(test_ahead_fails),
        CASE(test_ahead_garbage), CASE(test_ahead_killed), CASE(test_ahead_late),
        CASE(test_ahead_ends),    CASE(test_ahead_little),
    };

    return cmocka_run_group_tests_name("ahead", tests, NULL, NULL);
}
