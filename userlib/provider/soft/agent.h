/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests to a peer's process, the requester's side: agent.c sends them and takes the answers,
 * agent_short.c and agent_long.c say what for. A pair has one under way at most, in slot
 * peer->agent; all of it belongs to whoever may touch the pair's queue.
 */
#ifndef SOFT_AGENT_H
#define SOFT_AGENT_H

#include "soft.h"

#include "src/config.h"

#include <string.h>

static inline soft_service_t *soft_agent_service(const soft_peer_t *peer)
{
    return (void *)((char *)peer->remote.seg + peer->remote.layout.service);
}

static inline soft_slot_t *soft_agent_slot(const soft_peer_t *peer)
{
    return &soft_agent_service(peer)->slots[peer->agent];
}

static inline char *soft_agent_staging(const soft_peer_t *peer)
{
    return (char *)peer->remote.seg + peer->remote.layout.staging +
           soft_staging_offset((unsigned)peer->agent);
}

/* Has the slot of the last request, which the next one gets if it is free, staging memory? To
 * allocate it takes longer than an answer. */
static inline int soft_agent_is_staged(const soft_peer_t *peer)
{
    return __atomic_load_n(&soft_agent_service(peer)->slots[peer->agent_last].staged,
                           __ATOMIC_RELAXED) != 0;
}

/*
 * Requests take their places in staging memory one behind the other, and begin anew at its end. So
 * what one processor writes has left the other one's second-level cache by then, if there is enough
 * of it: then twice as many bytes go through it in the same time.
 */

/* Bytes of it that there are, of which `least` may be used in any case. */
static inline uint32_t soft_agent_staged(const soft_peer_t *peer, uint32_t least)
{
    uint32_t staged = __atomic_load_n(&soft_agent_slot(peer)->staged, __ATOMIC_RELAXED);
    uint32_t room   = soft_staging_size((unsigned)peer->agent);

    staged = staged < room ? staged : room; /* the peer's process has written it */
    return staged > least ? staged : least;
}

/* Where the next request begins, with so many bytes at most: at a multiple of `align`. */
static inline uint32_t soft_agent_place(const soft_peer_t *peer, uint32_t staged, uint32_t most,
                                        uint32_t align)
{
    uint32_t place = (peer->agent_next + align - 1) / align * align;

    return place + most <= staged ? place : 0;
}

/* Has the request of that turn been answered? `word`: the state of a slot, or of its front. */
static inline int soft_state_is_answered(const uint64_t *word, uint64_t turn)
{
    uint64_t state = __atomic_load_n(word, __ATOMIC_ACQUIRE);

    return soft_state_phase(state) == SOFT_DONE && state / SOFT_TURN == turn;
}

static inline int soft_agent_answered(const soft_peer_t *peer)
{
    return soft_state_is_answered(&soft_agent_slot(peer)->state, peer->agent_turn);
}

/* A short operation as what the peer's process is asked for: the part of a request that all need.
 */
static inline void soft_agent_head(const ang_desc_t *desc, soft_request_t *item)
{
    item->op      = desc->op == ANG_OP_PUT_INLINE ? ANG_OP_PUT : desc->op;
    item->atomic  = desc->atomic;
    item->width   = desc->width;
    item->by      = SOFT_BY_SLOT;
    item->length  = desc->op == ANG_OP_ATOMIC ? 0 : (uint32_t)desc->length;
    item->key     = desc->rkey;
    item->offset  = desc->roffset;
    item->operand = desc->operand;
    item->compare = desc->compare;
}

static inline soft_request_t soft_agent_item(const ang_desc_t *desc)
{
    soft_request_t item = {0};

    soft_agent_head(desc, &item);
    return item;
}

/* ---- agent.c --------------------------------------------------------------------------------- */

/*
 * Have a slot for a request, with room for large pieces if `large` and there is one.
 * ANGARA_INPROGRESS: there is none by now; else why nobody waits.
 */
angara_status_t soft_agent_open(soft_peer_t *peer, int large);
/* A slot that is free is ours from here on. @return 0: there is none */
int soft_agent_claim(soft_peer_t *peer);
/* The slot that was kept behind the last answer is the next request's. */
static inline void soft_agent_take_kept(soft_peer_t *peer)
{
    peer->agent_is_kept = 0;
    peer->agent         = (int)peer->agent_last;
}
/* Have a slot, but don't wait for one. @return 0: there is none */
static inline int soft_agent_try_open(soft_peer_t *peer)
{
    if (peer->agent_is_kept) {
        soft_agent_take_kept(peer);
        return 1;
    }
    return soft_agent_claim(peer);
}
/* A put or get in which the server reaches into a region of this process, but for `by` and length.
 */
soft_request_t soft_agent_near_request(const soft_peer_t *peer, ang_op_t op, const ang_ref_t *far,
                                       const ang_ref_t *near);
/*
 * Send the request in that slot. What is in staging memory has been written. `has_other`: its owner
 * takes it back when it is late, and goes another way; the helper is never woken for it.
 */
void soft_agent_post(soft_peer_t *peer, const soft_request_t *request, int has_other);
/* The same, but soft_agent_since() comes only if the answer isn't there within the call. */
void soft_agent_post_now(soft_peer_t *peer, const soft_request_t *request, int has_other);
/* The same, of a request of that kind and length that is in the slot. */
void soft_agent_post_written(soft_peer_t *peer, soft_by_t by, uint32_t length, int has_other);
/* From here on the request waits. */
void soft_agent_since(soft_peer_t *peer);
/* The answer, if it came; the slot is ours until soft_agent_end(). `has_other`: it may ask for
 * another way. */
angara_status_t soft_agent_receive(soft_peer_t *peer, int has_other);
/* Nothing is wanted of the request any more: what isn't answered is withdrawn. */
void soft_agent_end(soft_peer_t *peer);
/* The peer was expected to poll, and hasn't answered in time; nobody else has been woken yet. */
int soft_agent_is_late(soft_peer_t *peer);
/* Look for a moment for the answer to the request, or for more than so much in staging memory. */
void soft_agent_look(const soft_peer_t *peer, uint64_t filled);
/*
 * Look for the answer for a moment, if a short request is under way and the peer is expected to
 * answer by its own progress. @return 1: there is one, or somebody asks this process for something.
 */
int soft_agent_hurry(soft_peer_t *peer);
/* Does it sleep on its event descriptor? Not if it polls though it is armed. */
int soft_agent_sleeps(const soft_peer_t *peer);
/* The peer isn't expected to be fast for a while. */
void soft_agent_doubt(soft_peer_t *peer);
/* @return 1: nobody has begun with the request, and nobody will. The slot is given back. */
int soft_agent_take_back(soft_peer_t *peer);

/* For agent_front.c: */
/* A request was written to the front of that slot: say so, unless the peer watches it and polls. */
void soft_agent_announce(soft_peer_t *peer, unsigned slot);
/* As soft_agent_look(), at the front of the slot that is kept. */
void soft_agent_look_at(const soft_peer_t *peer, const uint64_t *word, uint64_t turn);
/* What an answer says, if it may say that. `has_other`: it may ask for another way. */
angara_status_t soft_agent_status(int64_t status, int has_other);
/* There is no answer, or no slot: ANGARA_INPROGRESS, or why nobody is waited for any longer. */
angara_status_t soft_agent_wait(soft_peer_t *peer);
/* Is the peer's process, which is alive, at the request with that state? */
int soft_agent_is_served(const soft_peer_t *peer, const uint64_t *word);
/* @return 1: nobody has begun with the request of that state, and nobody will. */
int soft_state_take_back(uint64_t *word);
/* End what a slot of ours, or its front, was used for. @return 0 if the server is still at it. */
int soft_state_settle(uint64_t *word);

/* Up to where staging memory holds what the request brings, by what the peer's process says. */
static inline uint64_t soft_agent_filled(const soft_peer_t *peer)
{
    return __atomic_load_n(&soft_agent_slot(peer)->filled, __ATOMIC_ACQUIRE);
}

/*
 * Before the answer: copy what the peer's process says is there of a get, whose bytes lie in
 * staging memory from `place` on. So both processes copy at the same time.
 */
static inline void soft_agent_copy_early(soft_peer_t *peer, char *dst, uint32_t place,
                                         uint32_t length)
{
    uint64_t there  = soft_agent_filled(peer);
    uint32_t copied = peer->agent_copied;

    if (there > place + copied) {
        there -= place;
        there = there < length ? there : length;
        memcpy(dst + copied, soft_agent_staging(peer) + place + copied, there - copied);
        peer->agent_copied = (uint32_t)there;
    }
}

/* ---- agent_long.c ---------------------------------------------------------------------------- */

/* Through staging memory in pieces: as the backend's copy(). */
angara_status_t soft_agent_copy_out(soft_peer_t *peer, const ang_ref_t *dst, const ang_ref_t *src,
                                    uint64_t end, uint64_t *done);
angara_status_t soft_agent_copy_in(soft_peer_t *peer, const ang_ref_t *src, const ang_ref_t *dst,
                                   uint64_t end, uint64_t *done);
angara_status_t soft_agent_read_back(soft_peer_t *peer);

/* ---- agent_short.c --------------------------------------------------------------------------- */

/* Bytes of an operation that a peer's process may do faster than a call. It isn't done in parts:
 * so it has no more than a turn. */
#define SOFT_SHORT 40960
static inline int soft_is_short(uint64_t length)
{
    return length - 1 < SOFT_SHORT && length <= ang_config.turn_bytes;
}

/*
 * A short put or get (soft_is_short()) of host memory, `near`, or an atomic; what else is queued
 * behind goes along. `others`: there is another way, too. ANGARA_INPROGRESS: call again;
 * ANGARA_ERR_UNSUPPORTED: take the other way now. *old: an atomic's result.
 */
angara_status_t soft_agent_short(soft_peer_t *peer, const soft_request_t *item, void *near,
                                 int others, uint64_t *old);
/* As the backend's along(), whatever the budget. */
int soft_agent_along(soft_peer_t *peer, const ang_desc_t *desc);
/* As the backend's along_run(). */
unsigned soft_agent_along_run(soft_peer_t *peer, ang_op_t op, const ang_item_t *items,
                              unsigned count, uint64_t *budget);
/*
 * A short get or put, or a fetching atomic, by a peer that is expected to poll; nothing of the pair
 * is under way. Look for its answer for a moment. @return 1: performed. 0: it's still to be posted,
 * next of all; what has been asked for (soft_agent_owes()) goes on with that.
 */
int soft_agent_now(soft_peer_t *peer, const soft_request_t *item, void *near);
/* The same for an atomic. `result`: where the old value goes, or NULL */
int soft_agent_now_atomic(soft_peer_t *peer, const ang_desc_t *desc, void *result);
/* May the peer be asked for something of that region now, by who looks for the answer at once? */
int soft_agent_may_now(soft_peer_t *peer, uint64_t key, int others);
/* A batch is under way, or its results are being taken: put what has been queued since into the
 * next one. */
void soft_agent_ahead(soft_peer_t *peer);

/* ---- agent_front.c --------------------------------------------------------------------------- */

/* Is an atomic that nobody waits for under way, and not queued? */
static inline int soft_front_is_out(const soft_peer_t *peer)
{
    return __builtin_expect(peer->front.link != NULL, 0);
}
/* Ask for an atomic without a result; nothing of the pair is under way. @return 0: not this way. */
int soft_front_post(soft_peer_t *peer, const ang_desc_t *desc);
/* @return 1: nothing is out, any more; else 0 */
int soft_front_end(soft_peer_t *peer);
/* The same, but look for a moment. */
int soft_front_await(soft_peer_t *peer);
/* The same, at no cost where nothing is out. */
static inline int soft_front_is_over(soft_peer_t *peer)
{
    return !soft_front_is_out(peer) || soft_front_await(peer);
}
/* Before something else is queued: let it end, or queue it. @return ANGARA_ERR_NO_RESOURCE: there
 * is no memory for that now */
angara_status_t               soft_front_queue(soft_peer_t *peer);
static inline angara_status_t soft_front_in_order(soft_peer_t *peer)
{
    return soft_front_is_over(peer) ? ANGARA_OK : soft_front_queue(peer);
}
/* Those that are out: let them end, or (`queues`, or when it takes long) queue them. */
void soft_fronts_look(soft_pe_t *pe, int queues);
/* Its turn has come in the queue. ANGARA_ERR_UNSUPPORTED: it was taken back, ask anew. */
angara_status_t soft_front_receive(soft_peer_t *peer);
/* Its state. */
uint64_t *soft_front_state(const soft_peer_t *peer);
/* Nothing is wanted of it any more. @return 0: with `waits`, the peer's process is at it just now
 */
int soft_front_withdraw(soft_peer_t *peer, int waits);

#endif
