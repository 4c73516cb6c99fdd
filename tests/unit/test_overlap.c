/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests whose bytes are copied by both processes at the same time. The test is the target here:
 * it serves as far as it likes, and looks at what the requester has by then.
 */
#define _GNU_SOURCE
#include "played_target.h"

#include <pthread.h>
#include <sched.h>

/* ---- several in one request ------------------------------------------------------------------ */

static const uint64_t lengths[] = {8192, 8, 20000, 100};
#define ITEMS (sizeof(lengths) / sizeof(lengths[0]))

static uint32_t item_bytes[ITEMS], item_end[ITEMS]; /* in staging memory */
static uint64_t item_at[ITEMS];                     /* in ours */

/* A run of gets, in one request. */
static void post_run(void)
{
    angara_xfer_t         xfers[ITEMS];
    const soft_request_t *item;
    uint32_t              place;
    uint64_t              at = 0;
    unsigned              posted;

    prepare();
    for (unsigned i = 0; i < ITEMS; ++i) {
        item_at[i] = at;
        xfers[i]   = (angara_xfer_t){
              .lmr = mr, .laddr = memory + at, .rkey = f.hello.key, .length = lengths[i]};
        at += lengths[i];
    }
    assert_int_equal(angara_offload_batch(f.peer, ANGARA_BATCH_GET, xfers, ITEMS, &posted),
                     ANGARA_OK);
    assert_int_equal(posted, ITEMS);
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
    assert_int_equal(slot()->request.op, SOFT_OP_BATCH);
    place = (uint32_t)slot()->request.compare;
    for (unsigned i = 0; i < ITEMS; ++i) {
        item          = (const void *)(staging() + place);
        item_bytes[i] = soft_item_bytes(place, item->length);
        assert_int_equal(item->length, lengths[i]);
        memset(soft_item_data((void *)(staging() + place), place, item->length), (int)i + 1,
               item->length);
        place = item_end[i] = soft_item_end(place, item);
    }
    assert_int_equal(place, slot()->request.compare + slot()->request.length);
    serve();
}

static void test_run(void **state)
{
    (void)state;
    post_run();
    angara_pe_progress(f.pe);
    assert_bytes(0, sizeof(memory), 0);
    fill(item_bytes[0] + 5000); /* part of the first one */
    assert_bytes(0, 5000, 1);
    assert_bytes(5000, sizeof(memory), 0);
    assert_int_equal(pending(), ITEMS + 1);
    memset(staging() + item_bytes[0], 9, 5000); /* it isn't copied twice */
    fill(item_bytes[2] + 7000);
    assert_bytes(0, 8192, 1);
    assert_bytes(8192, 8200, 2);
    assert_bytes(8200, 15200, 3);
    assert_bytes(15200, sizeof(memory), 0);
    assert_int_equal(pending(), ITEMS - 1);
    fill(item_end[3]); /* the last one's end is the answer */
    assert_bytes(8200, 28200, 3);
    assert_int_equal(pending(), 2);
    assert_int_not_equal(*f.slot, f.value);
    answer(ANGARA_OK, ITEMS);
    assert_bytes(28200, 28300, 4);
    assert_int_equal(*f.slot, f.value);
    assert_int_equal(pending(), 0);
}

/* The answer says that the third one failed, of which bytes have been told of. */
static void test_run_fails(void **state)
{
    (void)state;
    post_run();
    fill(item_bytes[2] + 7000);
    answer(ANGARA_ERR_BOUNDS, 2);
    assert_int_equal(fault(), ANGARA_ERR_BOUNDS);
    assert_bytes(0, 8192, 1);
    assert_bytes(8192, 8200, 2);
    assert_int_not_equal(*f.slot, f.value);
}

/* The answer takes back what was told before. */
static void test_run_garbage(void **state)
{
    (void)state;
    post_run();
    fill(UINT64_MAX);
    assert_int_equal(pending(), 2);
    answer(ANGARA_ERR_BOUNDS, 2);
    assert_int_equal(fault(), ANGARA_ERR_SYSTEM);
}

/* Who serves it dies. */
static void test_run_killed(void **state)
{
    (void)state;
    post_run();
    fill(item_bytes[2] + 7000);
    kill(f.pid, SIGKILL);
    assert_int_equal(fault(), ANGARA_ERR_PEER_DEAD);
    assert_int_not_equal(*f.slot, f.value);
}

/* Whoever serves takes its time: it isn't late, nor is it doubted that it polls. */
static void test_run_slow(void **state)
{
    (void)state;
    post_run();
    for (unsigned i = 0; i < 50; ++i) {
        angara_pe_progress(f.pe);
        sleep_ms(1);
    }
    assert_int_equal(soft_peer(f.peer)->agent_doubt, 0);
    fill(item_end[3]);
    answer(ANGARA_OK, ITEMS);
    assert_int_equal(*f.slot, f.value);
}

/* What needs staging memory isn't waited for in the call before there is some: the slot would be
 * left to its server, and so would the next one's. */
static void test_no_staging(void **state)
{
    soft_peer_t *peer = soft_peer(f.peer);
    uint64_t     turn;

    (void)state;
    post(); /* once, for 8 bytes: it has asked before */
    wait_for_answer();
    trust();
    peer->now_skip = 0;
    turn           = peer->agent_turn;
    assert_int_equal(angara_asked_get(f.peer, memory, f.hello.key, 0, STAGED), 0);
    assert_int_equal(peer->agent_turn, turn);
    assert_int_equal(angara_asked_get(f.peer, memory, f.hello.key, 0, 8), 0);
    assert_int_not_equal(peer->agent_turn, turn);
}

static volatile int ends;

/* As the peer's process, at once: what comes into that slot, and brings no more than staging
 * memory. */
static void *serve_at_once(void *arg)
{
    soft_slot_t *there = arg;
    uint64_t     state;

    while (!ends) {
        state = __atomic_load_n(&there->state, __ATOMIC_ACQUIRE);
        if (soft_state_phase(state) != SOFT_POSTED ||
            !__atomic_compare_exchange_n(&there->state, &state, soft_state_to(state, SOFT_SERVING),
                                         0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            continue;
        }
        there->staged          = SOFT_STAGING;
        there->status          = ANGARA_OK;
        there->request.operand = there->request.length != 0;
        __atomic_store_n(&there->state, soft_state_to(state, SOFT_DONE), __ATOMIC_RELEASE);
    }
    return NULL;
}

/* Somebody else has the slot of the last request, so another one is claimed, whose staging memory
 * comes within the call. */
static void test_other_slot(void **state)
{
    soft_peer_t *peer = soft_peer(f.peer);
    soft_slot_t *last, *next;
    pthread_t    thread;

    (void)state;
    prepare();
    soft_agent_withdraw(peer);
    last        = &service()->slots[peer->agent_last];
    next        = last + 1;
    last->owner = soft_pe(f.pe)->owner;
    ends        = 0;
    assert_int_equal(pthread_create(&thread, NULL, serve_at_once, next), 0);
    for (unsigned i = 0; i < 1000; ++i) {
        soft_agent_withdraw(peer);
        peer->agent_last = (unsigned)(last - service()->slots);
        next->staged     = 0;
        trust();
        peer->now_skip = 0;
        peer->now_vain = 0;
        angara_peer_settled(f.peer); /* the next put is waited for */
        assert_int_equal(angara_offload_put(f.peer, mr, memory, f.hello.key, 0, STAGED), ANGARA_OK);
        for (unsigned j = 0; j < LONG_MS && !angara_peer_settled(f.peer); ++j) {
            angara_pe_progress(f.pe);
        }
        assert_int_equal(angara_peer_status(f.peer), ANGARA_OK);
        assert_true(angara_peer_settled(f.peer));
    }
    ends = 1;
    pthread_join(thread, NULL);
    last->owner = 0;
}

#define ODD 10001u /* bytes, that no word ends with */

/* As the peer's process, which answers when all bytes have been copied that it has told of. */
static void *serve_when_copied(void *arg)
{
    soft_slot_t *there = arg;
    soft_peer_t *peer  = soft_peer(f.peer);

    while (!ends) {
        uint64_t posted  = __atomic_load_n(&there->state, __ATOMIC_ACQUIRE);
        uint64_t serving = soft_state_to(posted, SOFT_SERVING);
        uint32_t place   = (uint32_t)there->request.compare;

        if (soft_state_phase(posted) != SOFT_POSTED ||
            !__atomic_compare_exchange_n(&there->state, &posted, serving, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED)) {
            continue;
        }
        __atomic_store_n(&there->filled, place + there->request.length, __ATOMIC_RELEASE);
        while (!ends && __atomic_load_n(&peer->agent_copied, __ATOMIC_RELAXED) < ODD &&
               __atomic_load_n(&there->state, __ATOMIC_RELAXED) == serving) {
        }
        there->request.operand = 1;
        there->status          = ANGARA_OK;
        if (!__atomic_compare_exchange_n(&there->state, &serving, soft_state_to(serving, SOFT_DONE),
                                         0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            __atomic_store_n(&there->state, soft_state_to(serving, SOFT_IDLE), __ATOMIC_RELEASE);
        }
    }
    return NULL;
}

/* A get within the call whose bytes have all been told of is waited for until the answer. */
static void test_now_odd(void **state)
{
    soft_peer_t *peer = soft_peer(f.peer);
    int          done = 0;
    pthread_t    thread;
    cpu_set_t    mine;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
    if (CPU_COUNT(&mine) < 2) {
        skip(); /* nobody answers while somebody looks */
    }
    prepare();
    ends = 0;
    assert_int_equal(pthread_create(&thread, NULL, serve_when_copied,
                                    &soft_agent_service(peer)->slots[peer->agent_last]),
                     0);
    for (unsigned i = 0; !done && i < LONG_MS; ++i) { /* the thread may not run just then */
        trust();
        peer->now_skip                              = 0;
        peer->paces.single[1][soft_pace_class(ODD)] = (soft_pace_t){.count = 0}; /* it is asked */

        done = angara_asked_get(f.peer, memory, f.hello.key, 0, ODD);
        if (!done) {
            sleep_ms(1);
        }
    }
    ends = 1;
    pthread_join(thread, NULL);
    assert_true(done);
}

/* ---- long ones ------------------------------------------------------------------------------- */

static void post_long(int is_put)
{
    prepare();
    assert_int_equal(is_put ? angara_offload_put(f.peer, mr, memory, f.hello.key, 0, LONG) :
                              angara_offload_get(f.peer, mr, memory, f.hello.key, 0, LONG),
                     ANGARA_OK);
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
}

/* One piece: it is copied as it comes; the next one is asked for before the rest of it is. */
static uint64_t get_piece(uint64_t at, char value)
{
    uint64_t length = slot()->request.length;
    uint64_t place  = slot()->request.compare;
    uint64_t turn   = soft_peer(f.peer)->agent_turn;

    assert_int_equal(slot()->request.op, ANG_OP_GET);
    assert_int_equal(slot()->request.offset, at);
    memset(staging() + place, value, length);
    serve();
    if (length > 8192) {
        fill(place + 8192);
        assert_bytes(at, at + 8192, value);
        assert_bytes(at + 8192, LONG, 0);
    }
    answer(ANGARA_OK, 0);
    assert_bytes(at, at + length, value);
    if (at + length < LONG) {
        assert_int_equal(soft_peer(f.peer)->agent_turn, turn + 1);
        assert_true(slot()->request.compare >= place + length ||
                    slot()->request.compare + slot()->request.length <= place);
    }
    return at + length;
}

static void test_get(void **state)
{
    uint64_t at = 0;
    char     value;

    (void)state;
    memset(memory, 0, sizeof(memory));
    post_long(0);
    for (value = 1; at < LONG; ++value) {
        trust();
        at = get_piece(at, value);
    }
    assert_int_equal(value, 5);
    assert_int_equal(*f.slot, f.value);
}

/* The first piece is short, since the turn has few bytes left: the next ones leave each other's
 * places alone, too, where there is room for two. */
static void test_get_odd(void **state)
{
    soft_pe_t *pe   = soft_pe(f.pe);
    uint64_t   turn = pe->engine.turn_bytes, at = 0;

    (void)state;
    memset(memory, 0, sizeof(memory));
    prepare();
    pe->engine.turn_bytes         = 8192;
    soft_peer(f.peer)->agent_next = 4000;
    assert_int_equal(angara_offload_get(f.peer, mr, memory, f.hello.key, 0, LONG), ANGARA_OK);
    angara_pe_progress(f.pe);
    pe->engine.turn_bytes = turn;
    assert_int_equal(slot()->request.length, 8192);
    for (char value = 1; at < LONG; ++value) {
        trust();
        at = get_piece(at, value);
    }
}

/* A put to a GPU's memory, whose first request brings staging memory: nothing is put behind that.
 */
static void test_put_large(void **state)
{
    soft_peer_t *peer = soft_peer(f.peer);
    ang_ref_t    src  = ang_ref_host(memory);
    ang_ref_t dst  = {.kind = SOFT_REF_STAGED, .key = f.hello.key, .length = 2 * SOFT_LARGE_PIECE};
    uint64_t  done = 0;

    (void)state;
    trust();
    dst.length = 2 * SOFT_LARGE_PIECE;
    assert_int_equal(soft_agent_copy_out(peer, &dst, &src, dst.length, &done), ANGARA_INPROGRESS);
    assert_int_equal(slot()->request.length, 0);
    assert_int_equal(slot()->request.compare, 2 * SOFT_LARGE_PIECE);
    serve();
    assert_int_equal(soft_agent_copy_out(peer, &dst, &src, SOFT_LARGE_PIECE, &done),
                     ANGARA_INPROGRESS);
    assert_int_equal(done, 0);
    assert_int_equal(peer->agent_ahead, 0);
    slot()->status = ANGARA_ERR_BOUNDS;
    __atomic_store_n(&slot()->state, soft_state_to(slot()->state, SOFT_DONE), __ATOMIC_RELEASE);
    assert_int_equal(soft_agent_copy_out(peer, &dst, &src, dst.length, &done), ANGARA_ERR_BOUNDS);
}

/* Nobody begins with the second piece: the rest goes by process_vm. */
static void test_get_late(void **state)
{
    uint64_t at;

    (void)state;
    post_long(0);
    at = get_piece(0, 1);
    for (unsigned i = 0; *f.slot != f.value && i < LONG_MS; ++i) {
        angara_pe_progress(f.pe);
    }
    assert_int_equal(*f.slot, f.value);
    assert_bytes(0, at, 1);
    assert_bytes(at, LONG, 0);
    assert_int_equal(soft_peer(f.peer)->agent, -1);
}

/* The target has no staging memory: all goes by process_vm. */
static void refused(int is_put)
{
    memset(memory, is_put ? 7 : 1, sizeof(memory));
    post_long(is_put);
    serve();
    answer(ANGARA_ERR_NO_MEMORY, 0);
    for (unsigned i = 0; *f.slot != f.value && i < LONG_MS; ++i) {
        angara_pe_progress(f.pe);
    }
    assert_int_equal(*f.slot, f.value);
    if (is_put) {
        memset(memory, 1, sizeof(memory));
        assert_int_equal(angara_offload_get(f.peer, mr, memory, f.hello.key, 0, LONG), ANGARA_OK);
        assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
        wait_for_answer();
    }
    assert_bytes(STAGED, LONG, is_put ? 7 : 0); /* the first ones prepare() has got */
}

static void test_get_refused(void **state)
{
    (void)state;
    refused(0);
}

static void test_put_refused(void **state)
{
    (void)state;
    refused(1);
}

static void test_get_fails(void **state)
{
    (void)state;
    post_long(0);
    get_piece(0, 1);
    serve();
    answer(ANGARA_ERR_BOUNDS, 0);
    assert_int_equal(fault(), ANGARA_ERR_BOUNDS);
    assert_int_not_equal(*f.slot, f.value);
}

/* As many pieces as the target serves; the rest, which begins with one that is taken back, goes
 * by process_vm. */
static void put_pieces(unsigned pieces)
{
    char     copy[LONG];
    uint64_t at = 0;

    for (uint64_t i = 0; i < LONG; ++i) {
        memory[i] = (char)(i % 251);
    }
    post_long(1);
    while (pieces-- > 0 && at < LONG) {
        soft_request_t request = slot()->request;

        trust();
        assert_int_equal(request.op, ANG_OP_PUT);
        assert_int_equal(request.offset, at);
        serve();
        angara_pe_progress(f.pe); /* it fills the other place meanwhile */
        assert_memory_equal(staging() + request.compare, memory + at, request.length);
        at += request.length;
        answer(ANGARA_OK, 0);
    }
    for (unsigned i = 0; *f.slot != f.value && i < LONG_MS; ++i) {
        angara_pe_progress(f.pe);
    }
    assert_int_equal(*f.slot, f.value);
    /* What the target was to copy it hasn't, what was written without it is there. */
    memcpy(copy, memory, LONG);
    memset(copy, 0, at);
    memset(memory, 1, LONG);
    soft_peer(f.peer)->agent_distrust = 64;
    assert_int_equal(angara_offload_get(f.peer, mr, memory, f.hello.key, 0, LONG), ANGARA_OK);
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
    wait_for_answer();
    assert_memory_equal(memory, copy, LONG);
}

static void test_put(void **state)
{
    (void)state;
    put_pieces(UINT32_MAX);
}

static void test_put_late(void **state)
{
    (void)state;
    put_pieces(2);
}

#define CASE(_name) cmocka_unit_test_setup_teardown(_name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_run),         CASE(test_run_fails),  CASE(test_run_garbage),
        CASE(test_run_killed),  CASE(test_other_slot), CASE(test_run_slow),
        CASE(test_no_staging),  CASE(test_get),        CASE(test_get_late),
        CASE(test_get_fails),   CASE(test_put),        CASE(test_get_refused),
        CASE(test_put_refused), CASE(test_put_late),   CASE(test_get_odd),
        CASE(test_put_large),   CASE(test_now_odd),
    };

    return cmocka_run_group_tests_name("overlap", tests, NULL, NULL);
}
