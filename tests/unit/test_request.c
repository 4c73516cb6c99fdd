/* SPDX-License-Identifier: BSD-3-Clause */
/* No request waits for ever, though nobody at the target answers. */
#include "silent_target.h"

#include <poll.h>
#include <pthread.h>

/* ---- tests --------------------------------------------------------------------------------- */

static void test_no_answer(void **state)
{
    (void)state;
    post();
    wait_for_fault();
    /* What was taken back isn't done, and the pair can be used again. */
    assert_int_equal(angara_peer_reset(f.peer), ANGARA_OK);
    post();
    wait_for_answer();
}

/* One who sleeps on its descriptor is woken for it. */
static void test_asleep(void **state)
{
    angara_event_t event;
    struct pollfd  poller = {.events = POLLIN};

    (void)state;
    assert_int_equal(angara_pe_event_fd(f.pe, &poller.fd), ANGARA_OK);
    post();
    while (angara_pe_event_poll(f.pe, &event) != ANGARA_OK) {
        if (angara_pe_event_arm(f.pe) == ANGARA_OK) {
            assert_int_equal(poll(&poller, 1, (int)LONG_MS), 1);
        }
        angara_pe_event_disarm(f.pe);
        angara_pe_progress(f.pe);
    }
    assert_fault(&event);
}

/* A sleeper is woken by the answer, too. */
static void test_answer_wakes(void **state)
{
    struct pollfd poller = {.events = POLLIN};

    (void)state;
    assert_int_equal(angara_pe_event_fd(f.pe, &poller.fd), ANGARA_OK);
    post();
    assert_int_equal(angara_pe_event_arm(f.pe), ANGARA_OK);
    let_progress();
    assert_int_equal(poll(&poller, 1, (int)LONG_MS), 1);
    angara_pe_event_disarm(f.pe);
    wait_for_answer();
}

/* The time in which the target is stopped doesn't count. */
static void test_stopped(void **state)
{
    angara_event_t event;

    (void)state;
    assert_int_equal(kill(f.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(f.pid, NULL, WUNTRACED), f.pid);
    post();
    for (unsigned i = 0; i < 4 * ANSWER_MS; ++i) {
        angara_pe_progress(f.pe);
        assert_int_equal(angara_pe_event_poll(f.pe, &event), ANGARA_ERR_NO_RESOURCE);
        sleep_ms(1);
    }
    assert_int_equal(kill(f.pid, SIGCONT), 0);
    wait_for_answer();
}

/*
 * The target has begun and never ends: a reset says so, a disconnect abandons the slot, and only
 * that one is lost.
 */
static void test_begun(void **state)
{
    soft_slot_t *slot;
    int          index;

    (void)state;
    post();
    index       = soft_peer(f.peer)->agent;
    slot        = &service()->slots[index];
    slot->state = soft_state_to(slot->state, SOFT_SERVING);
    wait_for_fault();
    assert_int_equal(angara_peer_reset(f.peer), ANGARA_ERR_BUSY);
    assert_int_equal(soft_state_phase(slot->state), SOFT_SERVING);
    angara_peer_disconnect(f.peer);
    assert_int_equal(angara_peer_connect(f.pe, &f.hello.address, &f.peer), ANGARA_OK);
    slot = &service()->slots[index]; /* mapped anew */
    assert_int_equal(soft_state_phase(slot->state), SOFT_ABANDONED);
    assert_int_equal(slot->owner, 0);
    post();
    wait_for_answer();
}

static void take_all_slots(uint64_t owner)
{
    for (unsigned i = 0; i < SOFT_SERVICE_SLOTS; ++i) {
        service()->slots[i].owner = owner;
        service()->slots[i].state = i % (SOFT_ABANDONED + 1);
    }
}

/* ---- what is waited for in the call ---------------------------------------------------------- */

/* The pair has asked its peer before, and trusts it to poll. */
static void trust(void)
{
    post();
    wait_for_answer();
    soft_peer(f.peer)->agent_distrust = 0;
    soft_peer(f.peer)->now_skip       = 0;
}

/* Nobody begins with it: it's taken back. */
static void test_now_unanswered(void **state)
{
    soft_peer_t *peer  = soft_peer(f.peer);
    uint64_t     value = 5;

    (void)state;
    trust();
    assert_int_equal(angara_asked_get(f.peer, &value, f.hello.key, 0, 8), 0);
    assert_int_equal(peer->agent, -1);
    assert_int_equal(service()->slots[peer->agent_last].owner, 0);
    assert_int_equal(soft_state_phase(service()->slots[peer->agent_last].state), SOFT_IDLE);
    assert_int_equal(value, 5);
    assert_int_equal(peer->now_skip, 1); /* the next isn't waited for, one is, then three aren't */
    for (unsigned i = 0; i < 4; ++i) {
        assert_int_equal(angara_asked_get(f.peer, &value, f.hello.key, 0, 8), 0);
        assert_int_equal(peer->now_skip, i == 0 ? 0 : 4 - i);
    }
    assert_int_equal(angara_peer_status(f.peer), ANGARA_OK);
    post();
    wait_for_answer();
}

static volatile int begun; /* slot, or -1 */

/* Begin with the next request, and never end. */
static void *begin(void *arg)
{
    soft_slot_t *slots = arg;
    uint64_t     state;

    for (unsigned i = 0; begun < 0; i = (i + 1) % SOFT_SERVICE_SLOTS) {
        state = __atomic_load_n(&slots[i].state, __ATOMIC_ACQUIRE);
        if (soft_state_phase(state) == SOFT_POSTED &&
            __atomic_compare_exchange_n(&slots[i].state, &state, soft_state_to(state, SOFT_SERVING),
                                        0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            begun = (int)i;
        }
    }
    return NULL;
}

/* Somebody begins with it, and doesn't end: a get is abandoned, a fetch goes on as if posted. */
static void test_now_begun(void **state)
{
    uint64_t     value = 5;
    soft_slot_t *slot;
    pthread_t    thread;

    (void)state;
    trust();
    begun = -1;
    assert_int_equal(pthread_create(&thread, NULL, begin, service()->slots), 0);
    while (begun < 0) {
        assert_int_equal(angara_asked_get(f.peer, &value, f.hello.key, 0, 8), 0);
    }
    pthread_join(thread, NULL);
    assert_int_equal(value, 5);
    slot = &service()->slots[begun];
    if (soft_state_phase(slot->state) == SOFT_ABANDONED) {
        assert_int_equal(slot->owner, 0);
    }
    post();
    assert_int_not_equal(soft_peer(f.peer)->agent, begun);
    wait_for_answer();
}

/*
 * As the peer's helper thread, which begins with a put while its owner goes to sleep. It's still
 * the put that is posted: it isn't performed another way, too, and what comes behind doesn't take
 * its answer.
 */
static void *begin_asleep(void *arg)
{
    begin(arg);
    __atomic_store_n(&soft_peer(f.peer)->remote.seg->armed, SOFT_ARMED, __ATOMIC_SEQ_CST);
    return NULL;
}

static void test_now_put_begun(void **state)
{
    soft_peer_t *peer  = soft_peer(f.peer);
    uint64_t     value = 0x4711;
    soft_slot_t *slot;
    pthread_t    thread;

    (void)state;
    trust();
    for (unsigned i = 0; i < 1000; ++i) {
        begun = -1;
        assert_int_equal(pthread_create(&thread, NULL, begin_asleep, service()->slots), 0);
        while (begun < 0) { /* one that is performed by process_vm isn't asked for */
            assert_int_equal(angara_peer_settled(f.peer), 1);
            peer->agent_distrust = 0;
            assert_int_equal(angara_offload_put_inline(f.peer, &value, f.hello.key, 8, 8),
                             ANGARA_OK);
            while (begun < 0 && !angara_peer_settled(f.peer)) {
                angara_pe_progress(f.pe);
            }
        }
        pthread_join(thread, NULL);
        assert_false(angara_peer_settled(f.peer));
        assert_int_equal(peer->agent, begun);
        slot         = &service()->slots[begun];
        slot->status = ANGARA_OK;
        __atomic_store_n(&slot->state, soft_state_to(slot->state, SOFT_DONE), __ATOMIC_RELEASE);
        peer->remote.seg->armed = 0;
        for (unsigned ms = 0; ms < LONG_MS && !angara_peer_settled(f.peer); ++ms) {
            angara_pe_progress(f.pe);
        }
    }
    post();
    wait_for_answer();
}

static void atomic_begun(angara_mr_h mr, uint64_t *old)
{
    pthread_t thread;

    trust();
    begun = -1;
    assert_int_equal(pthread_create(&thread, NULL, begin, service()->slots), 0);
    assert_int_equal(angara_atomic(f.peer, ANGARA_ATOMIC_ADD, 8, 1, 0, f.hello.key, 0, mr, old),
                     ANGARA_OK);
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
    while (begun < 0) {
        angara_pe_progress(f.pe);
    }
    pthread_join(thread, NULL);
    assert_int_equal(soft_peer(f.peer)->agent, begun); /* it isn't asked for twice */
    assert_int_not_equal(*f.slot, f.value);
    wait_for_fault();
}

static void test_now_fetch_begun(void **state)
{
    static uint64_t old;
    angara_mr_h     mr;

    (void)state;
    assert_int_equal(angara_mr_register(f.dom, &old, sizeof(old), ANGARA_ACCESS_ALL, &mr),
                     ANGARA_OK);
    atomic_begun(mr, &old);
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
}

static void test_now_atomic_begun(void **state)
{
    (void)state;
    atomic_begun(NULL, NULL);
}

/* ---- kept slots ------------------------------------------------------------------------------ */

/* A slot that the target watches stays its owner's, until the pair ends. */
static void test_kept(void **state)
{
    soft_peer_t *peer = soft_peer(f.peer);
    unsigned     index;

    (void)state;
    post();
    wait_for_answer();
    for (unsigned i = 0; i < LONG_MS && !peer->agent_is_kept; ++i) {
        post();
        wait_for_answer();
    }
    assert_true(peer->agent_is_kept);
    index = peer->agent_last;
    assert_int_equal(service()->slots[index].owner, soft_owner());
    post();
    assert_int_equal(peer->agent, (int)index);
    assert_false(peer->agent_is_kept);
    wait_for_answer();
    angara_peer_disconnect(f.peer);
    assert_int_equal(angara_peer_connect(f.pe, &f.hello.address, &f.peer), ANGARA_OK);
    assert_int_equal(service()->slots[index].owner, 0);
}

/* Some are left for others. */
static void test_kept_few(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SOFT_SERVICE_SLOTS / 2; ++i) {
        service()->slots[i].owner = soft_owner();
    }
    for (unsigned i = 0; i < 20; ++i) {
        post();
        wait_for_answer();
        assert_false(soft_peer(f.peer)->agent_is_kept);
    }
}

/* ---- all slots ------------------------------------------------------------------------------- */

/* No slot is free, and none becomes so. */
static void test_no_slot(void **state)
{
    (void)state;
    take_all_slots(soft_owner());
    post();
    wait_for_fault();
}

/* What dead requesters have left is used again, in whatever state they left it. */
static void test_dead_owners(void **state)
{
    uint64_t owner;
    int      fds[2];
    pid_t    pid;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        owner = soft_owner();
        _exit(write(fds[1], &owner, sizeof(owner)) != sizeof(owner));
    }
    assert_int_equal(read(fds[0], &owner, sizeof(owner)), sizeof(owner));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(fds[0]);
    close(fds[1]);
    take_all_slots(owner);
    post();
    wait_for_answer();
}

/*
 * Armed, a PE may sleep: requests to it call its helper. One that makes progress all the same
 * performs them itself, until it arms again.
 */
static void test_armed(void **state)
{
    const uint32_t *own = &soft_pe(f.pe)->seg->armed;
    uint32_t       *its;

    (void)state;
    assert_int_equal(angara_pe_event_arm(f.pe), ANGARA_OK);
    assert_int_equal(*own, SOFT_ARMED);
    angara_pe_progress(f.pe);
    assert_int_equal(*own, SOFT_ARMED_LOOKS);
    assert_int_equal(angara_pe_event_arm(f.pe), ANGARA_OK);
    assert_int_equal(*own, SOFT_ARMED);
    angara_pe_event_disarm(f.pe);
    angara_pe_progress(f.pe);
    assert_int_equal(*own, 0);

    trust();
    its  = &soft_peer(f.peer)->remote.seg->armed;
    *its = SOFT_ARMED_LOOKS;
    post();
    assert_int_not_equal(service()->work, SOFT_WORK_CALLED);
    assert_int_equal(*its, SOFT_ARMED_LOOKS);
    wait_for_answer();
    *its = SOFT_ARMED;
    post();
    assert_int_equal(service()->work, SOFT_WORK_CALLED);
    assert_int_equal(*its, 0); /* and it is woken itself */
    wait_for_answer();

    /* It isn't if its helper comes, or it looks. */
    for (uint32_t helper = SOFT_HELPER_AWAKE; helper <= SOFT_HELPER_NONE; ++helper) {
        for (unsigned looks = 0; looks < 2; ++looks) {
            service()->helper                 = helper;
            soft_peer(f.peer)->agent_distrust = 1;
            *its                              = looks ? SOFT_ARMED_LOOKS : SOFT_ARMED;
            post();
            assert_int_equal(service()->work, SOFT_WORK_CALLED);
            assert_int_equal(*its == 0, helper == SOFT_HELPER_NONE && !looks);
            wait_for_answer();
        }
    }

    /* One that isn't in time twice counts as asleep. */
    *its = SOFT_ARMED_LOOKS;
    soft_agent_doubt(soft_peer(f.peer));
    assert_int_equal(*its, SOFT_ARMED_LOOKS);
    soft_agent_doubt(soft_peer(f.peer));
    assert_int_equal(*its, SOFT_ARMED);
}

/* The owner is woken after all, if its helper can't be called, or doesn't come. */
static void test_helper_gone(void **state)
{
    soft_pe_seg_t *seg   = soft_peer(f.peer)->remote.seg;
    uint64_t       inode = seg->helper_inode;

    (void)state;
    trust();
    service()->helper = SOFT_HELPER_SLEEPS;
    seg->helper_inode = inode + 1;
    seg->armed        = SOFT_ARMED;
    post();
    assert_int_equal(seg->armed, 0);
    wait_for_answer();

    seg->helper_inode = inode;
    seg->armed        = SOFT_ARMED;
    post();
    assert_int_equal(seg->armed, SOFT_ARMED);
    for (unsigned i = 0; (seg->armed != 0) && (i < LONG_MS); ++i) {
        angara_pe_progress(f.pe);
        assert_int_equal(angara_peer_status(f.peer), ANGARA_OK);
        sleep_ms(1);
    }
    assert_int_equal(seg->armed, 0);
    wait_for_answer();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_no_answer),
        TEST(test_asleep),
        TEST(test_answer_wakes),
        TEST(test_stopped),
        TEST(test_begun),
        TEST(test_no_slot),
        TEST(test_dead_owners),
        TEST(test_now_unanswered),
        TEST(test_now_begun),
        TEST(test_now_fetch_begun),
        TEST(test_now_atomic_begun),
        TEST(test_now_put_begun),
        TEST(test_kept),
        TEST(test_kept_few),
        TEST(test_armed),
        TEST(test_helper_gone),
    };

    return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
