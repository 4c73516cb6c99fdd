/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Atomics that nobody waits for: the end of a lock is one. A peer that is expected to poll is asked
 * for such an atomic by the front of its slot (service.h), and the call returns. What is asked for
 * next goes into the slot behind it, so that both take the time of one answer.
 *
 * Invariants
 *   - A pair has one such atomic at most. It is posted only where nothing of the pair is queued or
 *     under way, to a slot that was kept; that is kept as long.
 *   - Either it is out (link): then it belongs to the PE's caller, and nothing of the pair is
 *     queued. Or it was queued, because something else is to be, or because it isn't answered in
 *     time: then it is the queue's first, and belongs to whoever may touch the queue.
 *   - As long as it is out, the only other operation of the pair is one that waits for the answer
 *     to a request behind it. Mapped memory isn't touched (hold()).
 *   - One that failed is queued, too, for its fault. Nothing behind it was performed.
 *   - Before it is posted there is room for it in the queue, and for one more, which is asked for
 *     behind it: else its answer would be another's.
 */
#include "agent.h"

#include "src/clock.h"

#define FRONT_NS 5000u /* since the first turn of progress until it is queued */

static soft_front_t *front_of(const soft_peer_t *peer)
{
    return &soft_agent_service(peer)->slots[peer->agent_last].front;
}

uint64_t *soft_front_state(const soft_peer_t *peer)
{
    return &front_of(peer)->state;
}

/* Inline code touches no mapped memory of the peer's meanwhile: no PE that is open has the
 * generation that it finds. */
static void hold(soft_peer_t *peer, int is_held)
{
    peer->base.fast.generation_p = is_held ? &ang_awake : &peer->remote.seg->generation;
}

static void link_front(soft_peer_t *peer)
{
    soft_pe_t *pe = soft_pe(peer->base.pe);

    peer->front.next = pe->fronts;
    peer->front.link = &pe->fronts;
    if (pe->fronts != NULL) {
        pe->fronts->front.link = &peer->front.next;
    }
    pe->fronts = peer;
    hold(peer, 1);
}

static void unlink_front(soft_peer_t *peer)
{
    if (peer->front.link != NULL) {
        *peer->front.link = peer->front.next;
        if (peer->front.next != NULL) {
            peer->front.next->front.link = peer->front.link;
        }
        peer->front.link = NULL;
        hold(peer, 0);
    }
}

/* It has been performed. A guest may count, too. */
static void count(soft_peer_t *peer)
{
    ang_engine_t *engine = peer->pair.engine;
    int           shared = ang_engine_is_shared(engine);

    if (shared) {
        ang_engine_lock(engine);
    }
    ang_desc_count(engine, &peer->front.desc);
    if (shared) {
        ang_engine_unlock(engine);
    }
}

int soft_front_post(soft_peer_t *peer, const ang_desc_t *desc)
{
    soft_slot_t   *slot = &soft_agent_service(peer)->slots[peer->agent_last];
    soft_request_t request;

    if (peer->front.turn != 0 || !peer->agent_is_kept || peer->now_skip != 0 ||
        !soft_agent_may_now(peer, desc->rkey, 0) || !ang_engine_reserve(peer->pair.engine)) {
        return 0;
    }
    request = soft_agent_item(desc);
    memcpy(slot->front.request, &request, SOFT_REQUEST_HEAD);
    peer->front.desc     = *desc;
    peer->front.turn     = __atomic_load_n(&slot->front.state, __ATOMIC_RELAXED) / SOFT_TURN + 1;
    peer->front.since_ns = 0;
    link_front(peer);
    __atomic_store_n(&slot->front.state, peer->front.turn * SOFT_TURN + SOFT_POSTED,
                     __ATOMIC_RELEASE);
    soft_agent_announce(peer, peer->agent_last);
    return 1;
}

int soft_front_end(soft_peer_t *peer)
{
    const soft_front_t *front = front_of(peer);

    if (peer->front.link == NULL) {
        return 1;
    }
    if (!soft_state_is_answered(&front->state, peer->front.turn) || front->status != ANGARA_OK) {
        return 0;
    }
    count(peer);
    unlink_front(peer);
    peer->front.turn = 0;
    return 1;
}

int soft_front_await(soft_peer_t *peer)
{
    if (!soft_front_end(peer) && peer->agent < 0) {
        soft_agent_look_at(peer, &front_of(peer)->state, peer->front.turn);
    }
    return soft_front_end(peer);
}

angara_status_t soft_front_queue(soft_peer_t *peer)
{
    if (soft_front_end(peer)) {
        return ANGARA_OK;
    }
    unlink_front(peer);
    if (soft_pair_post(&peer->pair, &peer->front.desc, NULL) == ANGARA_ERR_NO_RESOURCE) {
        link_front(peer);
        return ANGARA_ERR_NO_RESOURCE;
    }
    return ANGARA_OK;
}

static int is_late(soft_peer_t *peer)
{
    uint64_t now = ang_clock_ns(CLOCK_MONOTONIC);

    if (peer->front.since_ns == 0) {
        peer->front.since_ns = now;
    }
    return now - peer->front.since_ns > FRONT_NS;
}

void soft_fronts_look(soft_pe_t *pe, int queues)
{
    soft_peer_t *next;

    for (soft_peer_t *peer = pe->fronts; peer != NULL; peer = next) {
        next = peer->front.next;
        if (!soft_front_end(peer) && (queues || is_late(peer))) {
            soft_front_queue(peer);
        }
    }
}

/* What comes next waits anew. */
static void forget(soft_peer_t *peer)
{
    peer->front.turn      = 0;
    peer->agent_look_ns   = 0;
    peer->agent_waited_ns = 0;
}

angara_status_t soft_front_receive(soft_peer_t *peer)
{
    soft_front_t *front = front_of(peer);

    if (soft_state_is_answered(&front->state, peer->front.turn)) {
        forget(peer);
        return soft_agent_status(front->status, 0);
    }
    if (peer->agent < 0 && soft_state_take_back(&front->state)) {
        forget(peer);
        return ANGARA_ERR_UNSUPPORTED;
    }
    return soft_agent_wait(peer);
}

int soft_front_withdraw(soft_peer_t *peer, int waits)
{
    soft_front_t *front = front_of(peer);

    if (peer->front.turn == 0) {
        return 1;
    }
    if (!soft_state_take_back(&front->state)) {
        if (waits && soft_agent_is_served(peer, &front->state)) {
            return 0;
        }
        soft_state_settle(&front->state);
    }
    unlink_front(peer);
    peer->front.turn = 0;
    return 1;
}
