/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The requester's side of service operations: a request goes into a slot of the peer's segment
 * (service.h), the peer's process (serve.c) carries it out and answers there. Here is how requests
 * are sent, waited for and taken back; what they are for is in agent_short.c and agent_long.c.
 *
 * Who carries it out: a peer that polls does so itself, within a microsecond; waking its helper
 * thread takes ten times as long. So the helper is woken at once only if the peer sleeps, or didn't
 * poll lately; else when the answer hasn't come after PATIENCE_NS. The answer says who gave it. The
 * first time it is always woken: that opens its pipe, while there is a descriptor for it.
 *
 * Invariants
 *   - A pair has at most one request under way; it owns the slot until it has taken the answer, and
 *     may keep it beyond (agent_is_kept) until its next request, or until it withdraws.
 *   - A request that was taken back was never begun, and never will be.
 *   - Nobody waits for ever: what isn't answered, or finds no slot, while the peer isn't stopped,
 *     ends with ANGARA_ERR_UNREACHABLE after ANGARA_SOFT_ANSWER. Meanwhile the peer is looked at,
 *     and its helper and its owner are woken, every LOOK_NS.
 *   - Withdrawing doesn't wait: while the peer's process is at the request, the pair keeps its
 * slot.
 */
#define _GNU_SOURCE
#include "agent.h"

#include "src/clock.h"
#include "src/config.h"

#include <string.h>

#define LOOK_NS         100000000ull
#define PATIENCE_NS     10000ull /* with a peer that polls, as far as is known */
#define LOOKS_PER_CLOCK 4u
#define HURRY_LOOKS     64u  /* of a word that is here until it is written: a microsecond, with */
#define HURRY_GAP       64u  /* turns of an empty loop between two: a look delays who writes it, */
#define HURRY_FIRST     256u /* and before the first: an answer takes no less */
/* A watched slot stays its owner's behind the answer: claiming it again would move its line between
 * the processors once more. Of those from here on none does, so that others find some. */
#define KEPT_SLOTS (SOFT_SERVICE_SLOTS / 2)
/* Requests, or operations that went another way, until a peer that didn't poll is trusted again: at
 * first, and at most. */
#define DOUBT_MIN 64u
#define DOUBT_MAX 4096u

static soft_slot_t *slot_of(const soft_peer_t *peer)
{
    return soft_agent_slot(peer);
}

static uint64_t slot_state(const soft_slot_t *slot)
{
    return __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
}

static int state_change(uint64_t *word, uint64_t *state, uint64_t to)
{
    return __atomic_compare_exchange_n(word, state, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* ---- slots ----------------------------------------------------------------------------------- */

int soft_state_take_back(uint64_t *word)
{
    uint64_t state = __atomic_load_n(word, __ATOMIC_ACQUIRE);

    return soft_state_phase(state) == SOFT_POSTED &&
           state_change(word, &state, soft_state_to(state, SOFT_IDLE));
}

int soft_state_settle(uint64_t *word)
{
    uint64_t state = __atomic_load_n(word, __ATOMIC_ACQUIRE);

    for (;;) {
        switch (soft_state_phase(state)) {
        case SOFT_IDLE:
        case SOFT_DONE:
            return 1;
        case SOFT_POSTED:
            if (state_change(word, &state, soft_state_to(state, SOFT_IDLE))) {
                return 1;
            }
            break;
        case SOFT_SERVING:
            if (state_change(word, &state, soft_state_to(state, SOFT_ABANDONED))) {
                return 0;
            }
            break;
        default:
            return 0;
        }
    }
}

static void slot_free(soft_slot_t *slot)
{
    __atomic_store_n(&slot->owner, 0, __ATOMIC_RELEASE);
}

/* Claim a slot that is free; with `reclaim`, also one that a dead process has left. */
static int slot_claim(soft_slot_t *slot, uint64_t us, int reclaim)
{
    uint64_t owner = __atomic_load_n(&slot->owner, __ATOMIC_RELAXED);

    if ((owner != 0 && !(reclaim && !soft_owner_alive(owner))) ||
        !__atomic_compare_exchange_n(&slot->owner, &owner, us, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED)) {
        return 0;
    }
    if (!soft_state_settle(&slot->state) || !soft_state_settle(&slot->front.state)) {
        slot_free(slot);
        return 0;
    }
    return 1;
}

void soft_agent_reclaim(soft_pe_t *pe, pid_t dead)
{
    for (unsigned i = 0; i < SOFT_SERVICE_SLOTS; ++i) {
        soft_slot_t *slot  = &pe->service->slots[i];
        uint64_t     owner = __atomic_load_n(&slot->owner, __ATOMIC_RELAXED);

        if (owner != 0 && soft_owner_pid(owner) == dead && slot_claim(slot, pe->owner, 1)) {
            slot_free(slot);
        }
    }
}

/* One of `count` slots from `first` on, the last one again if it is free. */
static int claim_of(soft_peer_t *peer, unsigned first, unsigned count, int reclaim)
{
    soft_service_t  *service = soft_agent_service(peer);
    const soft_pe_t *pe      = soft_pe(peer->base.pe);
    unsigned         start   = peer->agent_last - first < count ? peer->agent_last - first : 0;

    for (unsigned i = 0; i < count; ++i) {
        unsigned index = first + (start + i) % count;

        if (slot_claim(&service->slots[index], pe->owner, reclaim)) {
            peer->agent      = (int)index;
            peer->agent_last = index;
            return 1;
        }
    }
    return 0;
}

/* Slots with room for large pieces are for those who want that (`large`), if one is free. */
static int agent_claim(soft_peer_t *peer, int reclaim, int large)
{
    if (peer->agent_is_kept) {
        if (!large || peer->agent_last < SOFT_LARGE_SLOTS) {
            soft_agent_take_kept(peer);
            return 1;
        }
        peer->agent_is_kept = 0;
        slot_free(&soft_agent_service(peer)->slots[peer->agent_last]);
    }
    if (large && peer->agent_last >= SOFT_LARGE_SLOTS) {
        peer->agent_last = (unsigned)peer->pinned_slot; /* its memory may be registered here */
    }
    return (large && claim_of(peer, 0, SOFT_LARGE_SLOTS, reclaim)) ||
           claim_of(peer, SOFT_LARGE_SLOTS, SOFT_SERVICE_SLOTS - SOFT_LARGE_SLOTS, reclaim);
}

/* No request is under way any more. */
static void agent_close(soft_peer_t *peer)
{
    peer->agent              = -1;
    peer->agent_ahead        = 0;
    peer->agent_is_short     = 0;
    peer->ahead.count        = 0;
    peer->ahead_is_posted    = 0;
    peer->joint.is_under_way = 0;
    peer->agent_look_ns      = 0;
    peer->agent_waited_ns    = 0;
}

static void agent_release(soft_peer_t *peer)
{
    if (peer->front.turn != 0) {
        peer->agent_is_kept = 1;
    } else {
        slot_free(slot_of(peer));
    }
    agent_close(peer);
}

/* A dead process serves nothing. */
int soft_agent_is_served(const soft_peer_t *peer, const uint64_t *word)
{
    uint64_t state = __atomic_load_n(word, __ATOMIC_ACQUIRE);

    return soft_state_phase(state) == SOFT_SERVING && peer->remote.process != NULL &&
           !soft_remote_dead(&peer->remote);
}

int soft_agent_withdraw(soft_peer_t *peer)
{
    soft_slot_t *slot;

    peer->batch.count  = 0; /* their operations may be gone from the queue */
    peer->direct_along = 0;
    peer->ahead.count  = 0;
    if (peer->agent >= 0) { /* before its front: it must not be performed without that */
        soft_state_take_back(&slot_of(peer)->state);
    }
    if (!soft_front_withdraw(peer, 1)) {
        return 0;
    }
    if (peer->agent_is_kept) {
        agent_claim(peer, 0, 0);
    }
    if (peer->agent >= 0) {
        slot = slot_of(peer);
        if (peer->joint.is_under_way) { /* the server, if it is at a piece, takes no other one */
            __atomic_fetch_or(&slot->request.operand, SOFT_ALL_CLAIMED, __ATOMIC_ACQ_REL);
        }
        soft_state_take_back(&slot->state);
        if (soft_agent_is_served(peer, &slot->state)) {
            return 0;
        }
        soft_state_settle(&slot->state);
        agent_release(peer);
    }
    peer->agent_look_ns   = 0;
    peer->agent_waited_ns = 0;
    peer->agent_since_ns  = 0;
    return 1;
}

void soft_agent_abandon(soft_peer_t *peer)
{
    if (!soft_agent_withdraw(peer)) {
        soft_front_withdraw(peer, 0);
        if (!soft_agent_withdraw(peer)) {
            soft_state_settle(&slot_of(peer)->state);
            agent_release(peer);
            peer->agent_since_ns = 0;
        }
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

static inline void turns(unsigned count)
{
    while (count-- > 0) {
        __asm__ volatile("" ::: "memory");
    }
}

/* Look for the answer for a moment. @return 1: there is one, or more than `filled` in staging
 * memory, or somebody asks this process. */
static int look_closely(const soft_peer_t *peer, const uint64_t *word, uint64_t turn,
                        const uint64_t *there, uint64_t filled)
{
    turns(HURRY_FIRST);
    for (unsigned i = 0; i < HURRY_LOOKS; ++i) {
        /* Of two that wait for each other, one serves first. */
        if (soft_state_is_answered(word, turn) || angara_pe_is_asked(peer->base.pe) ||
            __atomic_load_n(there, __ATOMIC_RELAXED) > filled) {
            return 1;
        }
        turns(HURRY_GAP);
    }
    return 0;
}

void soft_agent_look(const soft_peer_t *peer, uint64_t filled)
{
    const soft_slot_t *slot = slot_of(peer);

    look_closely(peer, &slot->state, peer->agent_turn, &slot->filled, filled);
}

void soft_agent_look_at(const soft_peer_t *peer, const uint64_t *word, uint64_t turn)
{
    look_closely(peer, word, turn, word, UINT64_MAX);
}

int soft_agent_hurry(soft_peer_t *peer)
{
    const soft_slot_t *slot  = NULL;
    uint64_t           turn  = 0;
    int                is_in = 0;

    ang_engine_lock(peer->pair.engine); /* a guest may end the request meanwhile */
    if (peer->agent >= 0 && peer->agent_is_short) {
        is_in = peer->batch.received;
        slot  = peer->agent_woken ? NULL : slot_of(peer);
        turn  = peer->agent_turn;
    }
    ang_engine_unlock(peer->pair.engine);
    return is_in ||
           (slot != NULL && (soft_state_is_answered(&slot->state, turn) ||
                             look_closely(peer, &slot->state, turn, &slot->filled, UINT64_MAX)));
}

int soft_agent_take_back(soft_peer_t *peer)
{
    if (!soft_state_take_back(&slot_of(peer)->state)) {
        return 0;
    }
    agent_release(peer);
    peer->agent_since_ns = 0;
    return 1;
}

void soft_agent_doubt(soft_peer_t *peer)
{
    uint32_t looks = SOFT_ARMED_LOOKS;

    if (peer->agent_doubt != 0) { /* again: it may sleep by now. One that looks says so again */
        __atomic_compare_exchange_n(&peer->remote.seg->armed, &looks, SOFT_ARMED, 0,
                                    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
    }
    peer->agent_doubt    = peer->agent_doubt < DOUBT_MIN     ? DOUBT_MIN :
                           peer->agent_doubt < DOUBT_MAX / 2 ? 2 * peer->agent_doubt :
                                                               DOUBT_MAX;
    peer->agent_distrust = peer->agent_doubt;
}

int soft_agent_sleeps(const soft_peer_t *peer)
{
    return __atomic_load_n(&peer->remote.seg->armed, __ATOMIC_RELAXED) == SOFT_ARMED;
}

int soft_agent_is_late(soft_peer_t *peer)
{
    uint64_t now;

    if (peer->agent_woken || ++peer->agent_looks % LOOKS_PER_CLOCK != 0 ||
        soft_state_phase(slot_state(slot_of(peer))) == SOFT_SERVING) {
        return 0;
    }
    now = ang_clock_ns(CLOCK_MONOTONIC);
    if (peer->agent_sent_ns == 0) {
        peer->agent_sent_ns = now;
    }
    if (now - peer->agent_sent_ns < PATIENCE_NS) {
        return 0;
    }
    soft_agent_doubt(peer);
    peer->agent_woken = 1; /* said once */
    return 1;
}

/* Say that there is a request. Somebody's call for the helper stays. */
static void list(soft_service_t *service, unsigned slot)
{
    uint32_t work = __atomic_load_n(&service->work, __ATOMIC_RELAXED);

    __atomic_fetch_or(&service->posted[slot / 64], 1ull << slot % 64, __ATOMIC_ACQ_REL);
    while (!__atomic_compare_exchange_n(
        &service->work, &work, work == SOFT_WORK_CALLED ? SOFT_WORK_CALLED : SOFT_WORK_POSTED, 0,
        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* then the look at who sleeps */
}

static int slot_is_watched(const soft_slot_t *slot)
{
    return __atomic_load_n(&slot->by_owner, __ATOMIC_RELAXED) == SOFT_BY_WATCHER;
}

/* The helper is to come, whoever polls. */
static void call_helper(soft_peer_t *peer)
{
    if (peer->agent_is_watched) {
        list(soft_agent_service(peer), (unsigned)peer->agent);
        peer->agent_is_watched = 0;
    }
    peer->agent_woken      = 1;
    peer->agent_has_called = 1;
    soft_agent_wake(peer);
}

int soft_agent_sleep(soft_peer_t *peer)
{
    uint64_t *word;
    uint64_t  state;

    if (peer->agent < 0 && peer->front.turn == 0) {
        return 0;
    }
    if (peer->agent_is_short && peer->batch.received) {
        return 0; /* there are results to take */
    }
    if (peer->agent >= 0 && peer->agent_has_other) {
        return 0; /* it is taken back in a moment, if nobody answers */
    }
    if (peer->agent >= 0 && !peer->agent_woken) { /* nobody looks after it from here on */
        call_helper(peer);
    }
    word  = peer->front.turn != 0 ? soft_front_state(peer) : &slot_of(peer)->state;
    state = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    while (soft_state_phase(state) == SOFT_POSTED || soft_state_phase(state) == SOFT_SERVING) {
        if ((state & SOFT_SLEEPS) || state_change(word, &state, state | SOFT_SLEEPS)) {
            return 1;
        }
    }
    return 0;
}

/*
 * The owner isn't woken where its helper comes. If it polls, it may be there first in any case; and
 * waking it would have it arm again, which keeps it from polling for longer than a request takes.
 * The same holds for one that looks though it is armed. If nobody comes, soft_agent_wait()
 * wakes it.
 */
void soft_agent_wake(soft_peer_t *peer)
{
    soft_service_t *service = soft_agent_service(peer);
    uint32_t        helper;
    int             comes = 1;

    __atomic_store_n(&service->work, SOFT_WORK_CALLED, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* the request, then the look at the sleepers */
    helper = __atomic_load_n(&service->helper, __ATOMIC_RELAXED);
    if (helper != SOFT_HELPER_AWAKE) {
        comes = soft_remote_poke(&peer->remote, peer->remote.seg->helper_fd,
                                 peer->remote.seg->helper_inode) &&
                helper == SOFT_HELPER_SLEEPS;
    }
    if (!comes && __atomic_load_n(&peer->remote.seg->armed, __ATOMIC_RELAXED) != SOFT_ARMED_LOOKS) {
        soft_wake(&peer->base);
    }
}

static int is_gone(const soft_peer_t *peer)
{
    return peer->down || peer->remote.seg->generation != peer->remote.address.generation ||
           soft_remote_dead(&peer->remote) || soft_remote_replaced(&peer->remote);
}

/* What counts is the time that this process looks on: it may have been stopped itself. */
angara_status_t soft_agent_wait(soft_peer_t *peer)
{
    uint64_t now = ang_clock_ns(CLOCK_MONOTONIC_COARSE);
    uint64_t passed;

    if (peer->down) {
        return ANGARA_ERR_PEER_DEAD;
    }
    if (peer->agent >= 0 && !peer->agent_has_other && soft_agent_is_late(peer)) {
        call_helper(peer);
    }
    if (peer->agent_look_ns == 0) {
        peer->agent_look_ns = now;
    }
    passed = now - peer->agent_look_ns;
    if (passed < LOOK_NS) {
        return ANGARA_INPROGRESS;
    }
    peer->agent_look_ns = now;
    if (is_gone(peer)) {
        return ANGARA_ERR_PEER_DEAD;
    }
    if (peer->agent >= 0 && !peer->agent_has_other) {
        call_helper(peer);
        soft_wake(&peer->base); /* something keeps its helper from coming, perhaps */
    }
    if (soft_process_stopped(peer->remote.process->pid)) {
        return ANGARA_INPROGRESS;
    }
    peer->agent_waited_ns += passed < 2 * LOOK_NS ? passed : 2 * LOOK_NS;
    if (peer->agent_waited_ns < ang_config.soft_answer_ms * 1000000) {
        return ANGARA_INPROGRESS;
    }
    ang_warn("%s hasn't answered a request for %llu ms (ANGARA_SOFT_ANSWER): the pair ends with an "
             "error. If its helper thread couldn't be started, it has said so; if it is only slow, "
             "raise ANGARA_SOFT_ANSWER",
             peer->base.name, (unsigned long long)ang_config.soft_answer_ms);
    return ANGARA_ERR_UNREACHABLE;
}

/* ---- requests -------------------------------------------------------------------------------- */

soft_request_t soft_agent_near_request(const soft_peer_t *peer, ang_op_t op, const ang_ref_t *far,
                                       const ang_ref_t *near)
{
    const soft_pe_t *pe = soft_pe(peer->base.pe);

    return (soft_request_t){
        .op          = (uint8_t)op,
        .key         = far->key,
        .offset      = far->offset,
        .start_time  = pe->base.address.loc[1],
        .domain_fd   = pe->seg->domain_fd,
        .domain_id   = pe->seg->domain_id,
        .near_key    = near->key,
        .near_offset = near->offset,
    };
}

int soft_agent_claim(soft_peer_t *peer)
{
    return agent_claim(peer, 0, 0);
}

void soft_agent_since(soft_peer_t *peer)
{
    if (peer->agent_since_ns == 0) {
        peer->agent_since_ns = ang_clock_ns(CLOCK_MONOTONIC_COARSE);
    }
}

angara_status_t soft_agent_open(soft_peer_t *peer, int large)
{
    soft_agent_since(peer);
    /* Those of dead processes are looked for when the wait is a long one. */
    if (!agent_claim(peer, 0, large) &&
        !(peer->agent_waited_ns != 0 && agent_claim(peer, 1, large))) {
        return soft_agent_wait(peer);
    }
    return ANGARA_OK;
}

void soft_agent_post(soft_peer_t *peer, const soft_request_t *request, int has_other)
{
    soft_agent_since(peer);
    soft_agent_post_now(peer, request, has_other);
}

/* A request was written. @return 1: the peer watches the slot (`may_be`), and finds it there */
static inline int announce(soft_peer_t *peer, unsigned index, int may_be)
{
    soft_service_t *service = soft_agent_service(peer);
    int             is_watched;

    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* then the look at who watches, and who sleeps */
    soft_pe(peer->base.pe)->counters.services++;
    is_watched = may_be && slot_is_watched(&service->slots[index]);
    if (!is_watched) {
        list(service, index);
    }
    return is_watched;
}

void soft_agent_announce(soft_peer_t *peer, unsigned slot)
{
    int is_watched = announce(peer, slot, 1);

    if (soft_agent_sleeps(peer)) {
        if (is_watched) {
            list(soft_agent_service(peer), slot);
        }
        soft_agent_wake(peer);
    }
}

void soft_agent_post_now(soft_peer_t *peer, const soft_request_t *request, int has_other)
{
    soft_slot_t *slot = slot_of(peer);

    if (request->by == SOFT_BY_SLOT) {
        memcpy(&slot->request, request, SOFT_REQUEST_HEAD);
    } else {
        slot->request = *request;
    }
    soft_agent_post_written(peer, request->by, request->length, has_other);
}

void soft_agent_post_written(soft_peer_t *peer, soft_by_t by, uint32_t length, int has_other)
{
    soft_pe_t   *pe   = soft_pe(peer->base.pe);
    soft_slot_t *slot = slot_of(peer);

    if (peer->front.turn != 0) {
        slot->request.by = SOFT_BY_SLOT_BEHIND; /* these are never long ones */
    }
    if (slot->wake_fd != pe->wake_pipe[1] || slot->wake_inode != pe->wake_inode) {
        slot->wake_fd    = pe->wake_pipe[1];
        slot->wake_inode = pe->wake_inode;
    }
    peer->agent_length    = length;
    peer->agent_turn      = slot_state(slot) / SOFT_TURN + 1;
    peer->agent_look_ns   = 0;
    peer->agent_waited_ns = 0;
    peer->agent_sent_ns   = 0;
    peer->agent_looks     = 0;
    peer->agent_woken     = 0;
    peer->agent_has_other = has_other;
    if (slot->filled != 0) {
        __atomic_store_n(&slot->filled, 0, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&slot->state, peer->agent_turn * SOFT_TURN + SOFT_POSTED, __ATOMIC_RELEASE);
    peer->agent_is_watched = announce(peer, (unsigned)peer->agent, by == SOFT_BY_SLOT);
    if (!has_other && (peer->agent_distrust != 0 || by == SOFT_BY_DIRECT ||
                       soft_agent_sleeps(peer) || !peer->agent_has_called)) {
        peer->agent_distrust -= peer->agent_distrust != 0;
        call_helper(peer);
    }
}

angara_status_t soft_agent_status(int64_t status, int has_other)
{
    /* ANGARA_ERR_UNSUPPORTED would ask for another way, which not all requests have. */
    if (status > ANGARA_OK || status <= ANGARA_ERR_LAST ||
        (status == ANGARA_ERR_UNSUPPORTED && !has_other)) {
        return ANGARA_ERR_SYSTEM; /* garbage from the peer */
    }
    return (angara_status_t)status;
}

angara_status_t soft_agent_receive(soft_peer_t *peer, int has_other)
{
    const soft_slot_t *slot = slot_of(peer);

    if (!soft_agent_answered(peer)) {
        return soft_agent_wait(peer);
    }
    peer->agent_since_ns = 0;
    if (slot->by_owner != SOFT_BY_HELPER && !peer->joint.is_under_way) { /* that isn't awaited */
        peer->agent_doubt    = 0;
        peer->agent_distrust = 0;
    }
    return soft_agent_status(slot->status, has_other);
}

void soft_agent_end(soft_peer_t *peer)
{
    if (!soft_agent_answered(peer)) {
        soft_agent_withdraw(peer);
    } else if (slot_is_watched(slot_of(peer)) && peer->agent < KEPT_SLOTS) {
        peer->agent_is_kept = 1;
        agent_close(peer);
    } else {
        agent_release(peer);
    }
}
