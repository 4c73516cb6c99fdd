/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The requester's side of service operations: what an initiator may not do itself (a get without
 * loopback, an atomic on private memory, any access that ptrace rules forbid) becomes a request in
 * a slot of the peer's segment (service.h); the peer's helper thread (serve.c) carries it out and
 * answers there. Data travels through the slot's staging memory.
 *
 * Invariants
 *   - A pair has at most one request under way; it owns the slot until it has taken the answer.
 *   - Nobody waits for ever: what isn't answered, or finds no slot, while the peer isn't stopped,
 *     ends with ANGARA_ERR_UNREACHABLE after ANGARA_SOFT_ANSWER. Meanwhile the peer is looked at,
 *     and woken again, every LOOK_NS.
 *   - Withdrawing doesn't wait: while the peer's process is at the request, the pair keeps its
 * slot.
 */
#define _GNU_SOURCE
#include "gpu_mem.h"

#include "src/clock.h"
#include "src/config.h"

#include <string.h>

#define LOOK_NS   100000000ull
#define DIRECT_NS 20000000ull /* after which a direct request isn't waited for */

static soft_service_t *service_of(const soft_peer_t *peer)
{
    return (void *)((char *)peer->remote.seg + peer->remote.layout.service);
}

static soft_slot_t *slot_of(const soft_peer_t *peer)
{
    return &service_of(peer)->slots[peer->agent];
}

static void *staging_of(const soft_peer_t *peer)
{
    return (char *)peer->remote.seg + peer->remote.layout.staging +
           (size_t)peer->agent * SOFT_STAGING;
}

static uint64_t slot_state(const soft_slot_t *slot)
{
    return __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
}

static int slot_change(soft_slot_t *slot, uint64_t *state, uint64_t to)
{
    return __atomic_compare_exchange_n(&slot->state, state, to, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* End what a slot of ours was used for. @return 0 if the server is still at it. */
static int slot_settle(soft_slot_t *slot)
{
    uint64_t state = slot_state(slot);

    for (;;) {
        switch (soft_state_phase(state)) {
        case SOFT_IDLE:
        case SOFT_DONE:
            return 1;
        case SOFT_POSTED:
            if (slot_change(slot, &state, soft_state_to(state, SOFT_IDLE))) {
                return 1;
            }
            break;
        case SOFT_SERVING:
            if (slot_change(slot, &state, soft_state_to(state, SOFT_ABANDONED))) {
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
static int slot_claim(soft_slot_t *slot, int reclaim)
{
    uint64_t owner = __atomic_load_n(&slot->owner, __ATOMIC_RELAXED);

    if ((owner != 0 && !(reclaim && !soft_owner_alive(owner))) ||
        !__atomic_compare_exchange_n(&slot->owner, &owner, soft_owner(), 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED)) {
        return 0;
    }
    if (!slot_settle(slot)) {
        slot_free(slot);
        return 0;
    }
    return 1;
}

static int agent_claim(soft_peer_t *peer, int reclaim)
{
    soft_service_t *service = service_of(peer);

    for (unsigned i = 0; i < SOFT_SERVICE_SLOTS; ++i) {
        unsigned index = (peer->agent_last + i) % SOFT_SERVICE_SLOTS;

        if (slot_claim(&service->slots[index], reclaim)) {
            peer->agent      = (int)index;
            peer->agent_last = index;
            return 1;
        }
    }
    return 0;
}

static void agent_release(soft_peer_t *peer)
{
    slot_free(slot_of(peer));
    peer->agent           = -1;
    peer->agent_look_ns   = 0;
    peer->agent_waited_ns = 0;
}

/* A dead process serves nothing. */
static int is_served(const soft_peer_t *peer)
{
    return soft_state_phase(slot_state(slot_of(peer))) == SOFT_SERVING &&
           peer->remote.process != NULL && !soft_remote_dead(&peer->remote);
}

int soft_agent_withdraw(soft_peer_t *peer)
{
    soft_slot_t *slot;
    uint64_t     state;

    if (peer->agent >= 0) {
        slot  = slot_of(peer);
        state = slot_state(slot);
        if (soft_state_phase(state) == SOFT_POSTED) {
            slot_change(slot, &state, soft_state_to(state, SOFT_IDLE));
        }
        if (is_served(peer)) {
            return 0;
        }
        slot_settle(slot);
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
        slot_settle(slot_of(peer));
        agent_release(peer);
        peer->agent_since_ns = 0;
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

static int answered(const soft_peer_t *peer)
{
    uint64_t state = slot_state(slot_of(peer));

    return soft_state_phase(state) == SOFT_DONE && state / SOFT_TURN == peer->agent_turn;
}

int soft_agent_sleep(const soft_peer_t *peer)
{
    soft_slot_t *slot;
    uint64_t     state;

    if (peer->agent < 0) {
        return 0;
    }
    slot  = slot_of(peer);
    state = slot_state(slot);
    while (soft_state_phase(state) == SOFT_POSTED || soft_state_phase(state) == SOFT_SERVING) {
        if ((state & SOFT_SLEEPS) || slot_change(slot, &state, state | SOFT_SLEEPS)) {
            return 1;
        }
    }
    return 0;
}

void soft_agent_wake(soft_peer_t *peer)
{
    soft_service_t *service = service_of(peer);

    __atomic_store_n(&service->work, SOFT_WORK_POSTED, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* the request, then the look at the sleepers */
    if (__atomic_load_n(&service->asleep, __ATOMIC_RELAXED)) {
        soft_remote_poke(&peer->remote, peer->remote.seg->helper_fd,
                         peer->remote.seg->helper_inode);
    }
    soft_wake(&peer->base); /* the owner may be there before the thread is up */
}

static int is_gone(const soft_peer_t *peer)
{
    return peer->down || peer->remote.seg->generation != peer->remote.address.generation ||
           soft_remote_dead(&peer->remote) || soft_remote_replaced(&peer->remote);
}

/*
 * There is no answer, or no slot. What counts is the time that this process looks on: it may have
 * been stopped itself. @return ANGARA_INPROGRESS, or why nobody is waited for any longer.
 */
static angara_status_t agent_wait(soft_peer_t *peer)
{
    uint64_t now = ang_clock_ns(CLOCK_MONOTONIC_COARSE);
    uint64_t passed;

    if (peer->down) {
        return ANGARA_ERR_PEER_DEAD;
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
    if (peer->agent >= 0) {
        soft_agent_wake(peer);
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

/* Between staging memory and the own end, which is of that kind. */
static angara_status_t move(void *dst, const void *src, size_t length, unsigned kind)
{
    if (kind == SOFT_REF_GPU) {
        return soft_gpu_copy((uintptr_t)dst, (uintptr_t)src, length);
    }
    memcpy(dst, src, length);
    return ANGARA_OK;
}

/*
 * Send a request. Bytes of `src`, from its address on, are staged first, if there is memory for
 * that; else the request is an empty one, by which there will be. @return ANGARA_INPROGRESS, or why
 * it can't be sent.
 */
static angara_status_t agent_send(soft_peer_t *peer, const soft_request_t *request,
                                  const ang_ref_t *src)
{
    soft_pe_t      *pe = soft_pe(peer->base.pe);
    soft_slot_t    *slot;
    angara_status_t status;

    if (peer->agent_since_ns == 0) {
        peer->agent_since_ns = ang_clock_ns(CLOCK_MONOTONIC_COARSE);
    }
    /* Those of dead processes are looked for when the wait is a long one. */
    if (!agent_claim(peer, 0) && !(peer->agent_waited_ns != 0 && agent_claim(peer, 1))) {
        return agent_wait(peer);
    }
    slot          = slot_of(peer);
    slot->request = *request;
    if (src != NULL && !slot->staged) {
        slot->request.length = 0;
    }
    peer->agent_length = slot->request.length;
    if (src != NULL && peer->agent_length != 0) {
        status = move(staging_of(peer), (const void *)(uintptr_t)src->addr, peer->agent_length,
                      src->kind);
        if (status != ANGARA_OK) {
            agent_release(peer);
            return status;
        }
    }
    slot->wake_fd         = pe->wake_pipe[1];
    slot->wake_inode      = pe->wake_inode;
    peer->agent_turn      = slot_state(slot) / SOFT_TURN + 1;
    peer->agent_look_ns   = 0;
    peer->agent_waited_ns = 0;
    __atomic_store_n(&slot->state, peer->agent_turn * SOFT_TURN + SOFT_POSTED, __ATOMIC_RELEASE);
    __atomic_fetch_or(&service_of(peer)->posted[peer->agent / 64], 1ull << peer->agent % 64,
                      __ATOMIC_ACQ_REL);
    pe->counters.services++;
    soft_agent_wake(peer);
    return ANGARA_INPROGRESS;
}

/* The answer to the request under way, if it came. The slot stays ours until agent_release(). */
static angara_status_t agent_receive(soft_peer_t *peer, int is_direct, uint64_t *old)
{
    int64_t status;

    if (!answered(peer)) {
        return agent_wait(peer);
    }
    peer->agent_since_ns = 0;
    status               = slot_of(peer)->status;
    if (old != NULL) {
        *old = slot_of(peer)->old;
    }
    /* ANGARA_ERR_UNSUPPORTED would ask for another way, which only direct requests have. */
    if (status > ANGARA_OK || status <= ANGARA_ERR_LAST ||
        (status == ANGARA_ERR_UNSUPPORTED && !is_direct)) {
        return ANGARA_ERR_SYSTEM; /* garbage from the peer */
    }
    return (angara_status_t)status;
}

/* A wait that ended without an answer: what was asked for is taken back. */
static void agent_end(soft_peer_t *peer)
{
    if (answered(peer)) {
        agent_release(peer);
    } else {
        soft_agent_withdraw(peer);
    }
}

static soft_request_t chunk_request(ang_op_t op, uint64_t key, uint64_t offset, uint64_t left)
{
    soft_request_t request = {.op = (uint8_t)op, .key = key, .offset = offset};

    request.length = (uint32_t)(left < SOFT_STAGING ? left : SOFT_STAGING);
    return request;
}

angara_status_t soft_agent_copy_out(soft_peer_t *peer, const ang_ref_t *dst, const ang_ref_t *src,
                                    uint64_t end, uint64_t *done)
{
    ang_ref_t       chunk = *src;
    soft_request_t  request;
    angara_status_t status;

    if (peer->agent >= 0) {
        status = agent_receive(peer, 0, NULL);
        if (status == ANGARA_INPROGRESS) {
            return status;
        }
        agent_end(peer);
        if (status != ANGARA_OK) {
            *done -= peer->agent_length;
            return status;
        }
    }
    if (*done >= end) {
        return ANGARA_OK;
    }
    request = chunk_request(ANG_OP_PUT, dst->key, dst->offset + *done, end - *done);
    chunk.addr += *done;
    status = agent_send(peer, &request, &chunk);
    if (peer->agent >= 0) {
        *done += peer->agent_length; /* counted when it is staged: that is what takes time here */
    }
    return status;
}

angara_status_t soft_agent_copy_in(soft_peer_t *peer, const ang_ref_t *src, const ang_ref_t *dst,
                                   uint64_t end, uint64_t *done)
{
    soft_request_t  request;
    angara_status_t status;

    if (peer->agent >= 0) {
        if (peer->agent_length > end - *done) {
            return ANGARA_INPROGRESS; /* asked for by a turn that had more bytes left */
        }
        status = agent_receive(peer, 0, NULL);
        if (status == ANGARA_INPROGRESS) {
            return status;
        }
        if (status == ANGARA_OK) {
            status = move((void *)(uintptr_t)(dst->addr + *done), staging_of(peer),
                          peer->agent_length, dst->kind);
            *done += status == ANGARA_OK ? peer->agent_length : 0;
        }
        agent_end(peer);
        if (status != ANGARA_OK) {
            return status;
        }
    }
    if (*done >= end) {
        return ANGARA_OK;
    }
    request = chunk_request(ANG_OP_GET, src->key, src->offset + *done, end - *done);
    return agent_send(peer, &request, NULL);
}

/*
 * Has nobody begun with the direct request for so long, or has no slot been free? The owner is
 * stopped, say, or has no helper.
 */
static int is_late(const soft_peer_t *peer)
{
    uint64_t since = peer->agent >= 0 ? peer->direct_posted_ns : peer->agent_since_ns;

    if (since == 0 ||
        (peer->agent >= 0 && soft_state_phase(slot_state(slot_of(peer))) != SOFT_POSTED)) {
        return 0;
    }
    return ang_clock_ns(CLOCK_MONOTONIC_COARSE) - since > DIRECT_NS;
}

angara_status_t soft_agent_copy_direct(soft_peer_t *peer, ang_op_t op, const ang_ref_t *far,
                                       const ang_ref_t *near, uint64_t end, uint64_t *done)
{
    const soft_pe_t *pe    = soft_pe(peer->base.pe);
    uint64_t         moved = 0;
    soft_request_t   request;
    angara_status_t  status;
    uint64_t         left;

    if (is_late(peer) && soft_agent_withdraw(peer)) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    if (peer->agent >= 0) {
        status = agent_receive(peer, 1, &moved);
        if (status == ANGARA_INPROGRESS) {
            return status;
        }
        agent_end(peer);
        if (status == ANGARA_OK && (moved == 0 || moved > far->length - *done)) {
            status = ANGARA_ERR_SYSTEM; /* garbage from the peer */
        }
        if (status != ANGARA_OK) {
            return status;
        }
        *done += moved;
    }
    if (*done >= end) {
        return ANGARA_OK;
    }
    left    = far->length - *done;
    request = (soft_request_t){
        .op          = (uint8_t)op,
        .is_direct   = 1,
        .length      = left < UINT32_MAX ? (uint32_t)left : UINT32_MAX,
        .key         = far->key,
        .offset      = far->offset + *done,
        .start_time  = pe->base.address.loc[1],
        .domain_fd   = pe->seg->domain_fd,
        .domain_id   = pe->seg->domain_id,
        .near_key    = near->key,
        .near_offset = near->offset + *done,
    };
    status                 = agent_send(peer, &request, NULL);
    peer->direct_posted_ns = ang_clock_ns(CLOCK_MONOTONIC_COARSE);
    return status;
}

/* A request without data: send it once, then wait for the answer. */
static angara_status_t agent_call(soft_peer_t *peer, soft_request_t *request, uint64_t *old)
{
    angara_status_t status;

    if (peer->agent < 0) {
        return agent_send(peer, request, NULL);
    }
    status = agent_receive(peer, 0, old);
    if (status != ANGARA_INPROGRESS) {
        agent_end(peer);
    }
    return status;
}

angara_status_t soft_agent_atomic(soft_peer_t *peer, uint64_t key, uint64_t offset,
                                  const ang_desc_t *desc, uint64_t *old)
{
    soft_request_t request = {
        .op      = ANG_OP_ATOMIC,
        .atomic  = desc->atomic,
        .width   = desc->width,
        .key     = key,
        .offset  = offset,
        .operand = desc->operand,
        .compare = desc->compare,
    };

    return agent_call(peer, &request, old);
}

angara_status_t soft_agent_read_back(soft_peer_t *peer)
{
    soft_request_t request = {.op = ANG_OP_MARKER};

    return agent_call(peer, &request, NULL);
}
