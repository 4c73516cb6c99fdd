/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Atomics that nobody waits for (provider/soft/agent_front.c), by what the target does meanwhile:
 * they are performed once, before all that comes behind them, or end with a fault.
 */
#include "silent_target.h"

#include <poll.h>
#include <pthread.h>

#define ROUNDS 2000

static uint64_t    word; /* here: what was fetched */
static angara_mr_h mr;

static soft_peer_t *peer(void)
{
    return soft_peer(f.peer);
}

static soft_front_t *front(void)
{
    return &service()->slots[peer()->agent_last].front;
}

/* The target watches the pair's slot, which is kept, and is expected to poll. */
static int begin(void **state)
{
    if (setup(state) != 0 ||
        angara_mr_register(f.dom, &word, sizeof(word), ANGARA_ACCESS_ALL, &mr) != ANGARA_OK) {
        return -1;
    }
    for (unsigned i = 0; i < LONG_MS && !peer()->agent_is_kept; ++i) {
        post();
        wait_for_answer();
    }
    peer()->agent_distrust = 0;
    peer()->now_skip       = 0;
    return angara_peer_settled(f.peer) ? 0 : -1;
}

static int end(void **state)
{
    angara_mr_deregister(mr);
    return teardown(state);
}

static void add(uint64_t value, uint64_t key)
{
    assert_int_equal(angara_atomic(f.peer, ANGARA_ATOMIC_ADD, 8, value, 0, key, 8, NULL, NULL),
                     ANGARA_OK);
}

/* An atomic on the target's second word is out. */
static void add_out(uint64_t value)
{
    add(value, f.hello.key);
    assert_true(soft_front_is_out(peer()));
    assert_int_equal(soft_state_phase(front()->state), SOFT_POSTED);
    assert_int_equal(peer()->agent, -1);
    assert_int_equal(soft_pe(f.pe)->engine.pending, 0);
}

static void fetch(void)
{
    assert_int_equal(angara_atomic(f.peer, ANGARA_ATOMIC_ADD, 8, 0, 0, f.hello.key, 8, mr, &word),
                     ANGARA_OK);
}

/* What the second word holds, when all before has been performed. */
static uint64_t there(void)
{
    word = ~0ull;
    fetch();
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
    wait_for_answer();
    return word;
}

static uint64_t atomics(void)
{
    angara_counters_t counters;

    angara_pe_counters(f.pe, &counters);
    return counters.atomics;
}

/* ---- a target that answers ------------------------------------------------------------------- */

static void test_out(void **state)
{
    uint64_t before = atomics();

    (void)state;
    add_out(5);
    assert_int_equal(angara_peer_settled(f.peer), 0);
    let_progress();
    assert_int_equal(angara_peer_settled(f.peer), 1);
    assert_false(soft_front_is_out(peer()));
    assert_int_equal(atomics(), before + 1);
    assert_true(peer()->agent_is_kept);
    assert_int_equal(there(), 5);
}

static int is_held(void)
{
    const struct angara_peer_fast *fast = &peer()->base.fast;

    return *fast->generation_p != fast->generation;
}

/* Inline code touches no mapped memory of the peer's meanwhile. */
static void test_held(void **state)
{
    (void)state;
    assert_int_equal(is_held(), 0);
    add_out(1);
    assert_int_equal(is_held(), 1);
    let_progress();
    angara_pe_progress(f.pe);
    assert_int_equal(is_held(), 0);
}

/* It is out once: a second one is queued behind it. */
static void test_two(void **state)
{
    uint64_t before = atomics();

    (void)state;
    add_out(5);
    add(6, f.hello.key);
    assert_false(soft_front_is_out(peer()));
    assert_int_equal(soft_pe(f.pe)->engine.pending, 2);
    assert_int_equal(there(), 11);
    assert_int_equal(atomics(), before + 3);
}

static volatile int ends;

/* The target polls. */
static void *keep_progress(void *arg)
{
    char byte = 0;

    (void)arg;
    while (!ends && write(f.sock, &byte, 1) == 1 && read(f.sock, &byte, 1) == 1) {
    }
    return NULL;
}

/* A request behind it, answered within its call or not, finds it performed; once. */
static void test_behind(void **state)
{
    uint64_t  sum = 0;
    unsigned  out = 0;
    pthread_t thread;

    (void)state;
    ends = 0;
    assert_int_equal(pthread_create(&thread, NULL, keep_progress, NULL), 0);
    for (unsigned i = 0; i < ROUNDS; ++i) {
        peer()->agent_distrust = 0;
        peer()->now_skip       = 0;
        add(i, f.hello.key);
        out += soft_front_is_out(peer());
        sum += i;
        fetch();
        while (!angara_peer_settled(f.peer)) {
            angara_pe_progress(f.pe);
        }
        assert_int_equal(word, sum);
    }
    ends = 1;
    pthread_join(thread, NULL);
    assert_true(out > 0);
}

/* A put has another way, by which it must not overtake. */
static void test_put_behind(void **state)
{
    uint64_t value = 100;

    (void)state;
    add_out(5);
    assert_int_equal(angara_offload_put_inline(f.peer, &value, f.hello.key, 8, 8), ANGARA_OK);
    assert_int_equal(angara_peer_settled(f.peer), 0);
    assert_int_equal(there(), 100);
}

/* As does a get. */
static void test_get_behind(void **state)
{
    (void)state;
    add_out(5);
    word = ~0ull;
    assert_int_equal(angara_asked_get(f.peer, &word, f.hello.key, 8, 8), 0);
    assert_int_equal(angara_offload_get(f.peer, mr, &word, f.hello.key, 8, 8), ANGARA_OK);
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
    assert_int_equal(word, ~0ull);
    wait_for_answer();
    assert_int_equal(word, 5);
}

/* The target has gone over to another slot: then a bit says that there is something. */
static void test_unwatched(void **state)
{
    (void)state;
    service()->slots[peer()->agent_last].by_owner = SOFT_BY_OWNER;
    add_out(5);
    assert_int_equal(service()->work, SOFT_WORK_POSTED);
    let_progress();
    assert_int_equal(angara_peer_settled(f.peer), 1);
    assert_int_equal(there(), 5);
}

/* It sleeps: the atomic isn't left to its progress. */
static void test_target_sleeps(void **state)
{
    (void)state;
    peer()->remote.seg->armed = SOFT_ARMED;
    add(5, f.hello.key);
    assert_false(soft_front_is_out(peer()));
    assert_int_equal(there(), 5);
}

/* ---- one that doesn't, or not well ----------------------------------------------------------- */

/* Who makes progress in vain has it queued; it is taken back, and asked for as others are. */
static void test_unanswered(void **state)
{
    (void)state;
    add_out(5);
    for (unsigned i = 0; i < 1000 && soft_front_is_out(peer()); ++i) {
        angara_pe_progress(f.pe);
    }
    assert_false(soft_front_is_out(peer()));
    assert_int_equal(soft_state_phase(front()->state), SOFT_IDLE);
    assert_int_equal(soft_pe(f.pe)->engine.pending, 1);
    assert_true(peer()->agent >= 0);
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
    wait_for_fault();
    assert_int_equal(angara_peer_reset(f.peer), ANGARA_OK);
    assert_int_equal(there(), 0);
}

/* One who sleeps is woken by its answer. */
static void test_initiator_sleeps(void **state)
{
    struct pollfd poller = {.events = POLLIN};

    (void)state;
    assert_int_equal(angara_pe_event_fd(f.pe, &poller.fd), ANGARA_OK);
    add_out(5);
    assert_int_equal(angara_pe_event_arm(f.pe), ANGARA_OK);
    assert_false(soft_front_is_out(peer()));
    let_progress();
    assert_int_equal(poll(&poller, 1, (int)LONG_MS), 1);
    angara_pe_event_disarm(f.pe);
    assert_int_equal(there(), 5);
}

/* What is behind one that isn't allowed isn't performed. */
static void test_refused(void **state)
{
    angara_event_t  event;
    angara_status_t status = ANGARA_ERR_NO_RESOURCE;

    (void)state;
    add(5, f.hello.key ^ (1ull << 40));
    assert_true(soft_front_is_out(peer()));
    assert_int_equal(angara_atomic(f.peer, ANGARA_ATOMIC_ADD, 8, 7, 0, f.hello.key, 8, mr, &word),
                     ANGARA_OK);
    for (unsigned i = 0; i < LONG_MS && status != ANGARA_OK; ++i) {
        let_progress();
        angara_pe_progress(f.pe);
        status = angara_pe_event_poll(f.pe, &event);
    }
    assert_int_equal(event.type, ANGARA_EVENT_FAULT);
    assert_int_equal(event.status, ANGARA_ERR_KEY);
    assert_int_equal(angara_peer_status(f.peer), ANGARA_ERR_PAIR);
    assert_int_equal(angara_peer_reset(f.peer), ANGARA_OK);
    assert_int_equal(there(), 0);
}

/* So it is if the request behind it was with the target already. */
static void test_refused_before(void **state)
{
    angara_event_t event;
    pthread_t      thread;
    unsigned       out = 0;

    (void)state;
    ends = 0;
    assert_int_equal(pthread_create(&thread, NULL, keep_progress, NULL), 0);
    for (unsigned i = 0; i < 200; ++i) {
        do { /* until the slot is kept again */
            peer()->agent_distrust = 0;
            peer()->now_skip       = 0;
            fetch();
            while (!angara_peer_settled(f.peer)) {
                angara_pe_progress(f.pe);
            }
        } while (!peer()->agent_is_kept);
        peer()->agent_distrust = 0;
        peer()->now_skip       = 0;
        add(5, f.hello.key ^ (1ull << 40));
        out += soft_front_is_out(peer());
        angara_atomic(f.peer, ANGARA_ATOMIC_ADD, 8, 7, 0, f.hello.key, 8, mr, &word);
        while (angara_pe_event_poll(f.pe, &event) != ANGARA_OK) {
            angara_pe_progress(f.pe);
        }
        assert_int_equal(event.status, ANGARA_ERR_KEY);
        assert_int_equal(angara_peer_reset(f.peer), ANGARA_OK);
    }
    ends = 1;
    pthread_join(thread, NULL);
    assert_int_equal(out, 200);
    assert_int_equal(there(), 0);
}

/* An answer that the target can't mean. */
static void test_garbage(void **state)
{
    const int32_t  nonsense[] = {1, 1000, ANGARA_ERR_LAST, ANGARA_ERR_UNSUPPORTED, INT32_MIN};
    angara_event_t event;

    (void)state;
    for (unsigned i = 0; i < sizeof(nonsense) / sizeof(*nonsense); ++i) {
        if (i > 0) {
            end(state);
            begin(state);
        }
        add_out(5);
        front()->status = nonsense[i];
        __atomic_store_n(&front()->state, soft_state_to(front()->state, SOFT_DONE),
                         __ATOMIC_RELEASE);
        assert_int_equal(angara_peer_settled(f.peer), 0);
        while (angara_pe_event_poll(f.pe, &event) != ANGARA_OK) {
            angara_pe_progress(f.pe);
        }
        assert_int_equal(event.status, ANGARA_ERR_SYSTEM);
    }
}

/* The target has begun and never ends: a reset says so, who disconnects abandons it, and the slot
 * isn't used again before it ends. */
static void test_begun(void **state)
{
    unsigned      index = peer()->agent_last;
    soft_front_t *begun;

    (void)state;
    add_out(5);
    front()->state = soft_state_to(front()->state, SOFT_SERVING);
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
    wait_for_fault();
    assert_int_equal(angara_peer_reset(f.peer), ANGARA_ERR_BUSY);
    assert_int_equal(soft_state_phase(front()->state), SOFT_SERVING);
    angara_peer_disconnect(f.peer);
    assert_int_equal(angara_peer_connect(f.pe, &f.hello.address, &f.peer), ANGARA_OK);
    begun = &service()->slots[index].front; /* mapped anew */
    assert_int_equal(soft_state_phase(begun->state), SOFT_ABANDONED);
    assert_int_equal(service()->slots[index].owner, 0);
    peer()->agent_last = index;
    post();
    assert_int_not_equal(peer()->agent, (int)index);
    wait_for_answer();
    begun->state = soft_state_to(begun->state, SOFT_IDLE);
}

/* Who disconnects with one that nobody has begun takes it back. */
static void test_disconnect(void **state)
{
    unsigned index = peer()->agent_last;

    (void)state;
    add_out(5);
    angara_peer_disconnect(f.peer);
    assert_null(soft_pe(f.pe)->fronts);
    assert_int_equal(angara_peer_connect(f.pe, &f.hello.address, &f.peer), ANGARA_OK);
    assert_int_equal(soft_state_phase(service()->slots[index].front.state), SOFT_IDLE);
    assert_int_equal(service()->slots[index].owner, 0);
    assert_int_equal(there(), 0);
}

static void test_dead(void **state)
{
    angara_event_t event;

    (void)state;
    add_out(5);
    assert_int_equal(kill(f.pid, SIGKILL), 0);
    do { /* a fault may come first: it isn't answered */
        angara_pe_progress(f.pe);
    } while (angara_pe_event_poll(f.pe, &event) != ANGARA_OK ||
             event.type != ANGARA_EVENT_PEER_DOWN);
    assert_null(soft_pe(f.pe)->fronts);
    assert_int_equal(angara_peer_status(f.peer), ANGARA_ERR_PEER_DEAD);
}

#define FRONT(_name) cmocka_unit_test_setup_teardown(_name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRONT(test_out),        FRONT(test_held),
        FRONT(test_two),        FRONT(test_behind),
        FRONT(test_put_behind), FRONT(test_get_behind),
        FRONT(test_unwatched),  FRONT(test_target_sleeps),
        FRONT(test_unanswered), FRONT(test_initiator_sleeps),
        FRONT(test_refused),    FRONT(test_refused_before),
        FRONT(test_garbage),    FRONT(test_begun),
        FRONT(test_disconnect), FRONT(test_dead),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
