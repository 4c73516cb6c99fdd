/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The requester's side of service operations: what an initiator may not do itself (a get without
 * loopback, an atomic on private memory, any access that ptrace rules forbid) becomes a request in
 * the peer's service ring; the peer's helper thread (helper.c) carries it out and answers in this
 * PE's segment. Data travels through a chunk of staging memory there.
 *
 * Invariants
 *   - A pair has at most one request under way; it owns one agent (reply line, staging chunk).
 *   - The state word of a reply line decides who has the request: see soft_reply_t. What is
 *     withdrawn is not carried out, so its agent is free at once.
 *   - An answer counts only with the sequence number of the request.
 */
#define _GNU_SOURCE
#include "soft.h"

#include <sched.h>
#include <string.h>

static soft_pe_t *peer_pe(soft_peer_t *peer)
{
    return soft_pe(peer->base.pe);
}

static soft_reply_t *agent_reply(soft_pe_t *pe, int agent)
{
    return &pe->seg->replies[agent];
}

static void *agent_staging(soft_pe_t *pe, int agent)
{
    return (char *)pe->seg + pe->layout.staging + (size_t)agent * SOFT_STAGING;
}

static int answered(soft_pe_t *pe, int agent)
{
    const soft_reply_t *reply    = agent_reply(pe, agent);
    uint64_t            sequence = pe->agent_awaits[agent];

    return __atomic_load_n(&reply->state, __ATOMIC_ACQUIRE) ==
               soft_reply_state(sequence, SOFT_DONE) ||
           __atomic_load_n(&reply->refused, __ATOMIC_ACQUIRE) == sequence;
}

int soft_agent_waits(const soft_peer_t *peer)
{
    return peer->agent >= 0 && !peer->agent_poke && !answered(soft_pe(peer->base.pe), peer->agent);
}

/* Find a free agent. @return -1 if all are busy. */
static int agent_take(soft_pe_t *pe)
{
    for (int i = 0; i < SOFT_AGENTS; ++i) {
        uint32_t bit = 1u << i;

        if (!(pe->agents_busy & bit)) {
            pe->agents_busy |= bit;
            return i;
        }
    }
    return -1;
}

static void agent_release(soft_peer_t *peer)
{
    peer_pe(peer)->agents_busy &= ~(1u << peer->agent);
    peer->agent = -1;
}

void soft_agent_withdraw(soft_peer_t *peer)
{
    soft_pe_t    *pe = peer_pe(peer);
    soft_reply_t *reply;
    uint64_t      posted, serving;
    unsigned      turns = 0;

    if (peer->agent < 0) {
        return;
    }
    reply   = agent_reply(pe, peer->agent);
    posted  = soft_reply_state(pe->agent_awaits[peer->agent], SOFT_POSTED);
    serving = soft_reply_state(pe->agent_awaits[peer->agent], SOFT_SERVING);
    if (!__atomic_compare_exchange_n(&reply->state, &posted, 0, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        while (__atomic_load_n(&reply->state, __ATOMIC_ACQUIRE) == serving &&
               (++turns % 1024 != 0 ||
                !(soft_remote_dead(&peer->remote) || soft_remote_replaced(&peer->remote)))) {
            sched_yield();
        }
    }
    agent_release(peer);
}

/* Wake whoever serves: the helper thread, or its owner, who may be there before the thread is up.
 */
static void wake_server(soft_peer_t *peer)
{
    soft_remote_t *remote = &peer->remote;

    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* the request, then the look at the sleepers */
    peer->agent_poke = __atomic_load_n(&remote->seg->helper_asleep, __ATOMIC_RELAXED) &&
                       !soft_remote_poke(remote, remote->seg->helper_fd);
    soft_wake(&peer->base);
}

/* Send a request. `src` bytes are staged first. ANGARA_INPROGRESS if there is no room: try again.
 */
static angara_status_t agent_send(soft_peer_t *peer, soft_request_t *request, const void *src)
{
    soft_pe_t      *pe     = peer_pe(peer);
    soft_remote_t  *remote = &peer->remote;
    angara_status_t status;
    int             agent;

    if (!pe->staging_ready) {
        status = soft_segment_commit(&pe->segment, pe->layout.staging,
                                     (size_t)SOFT_AGENTS * SOFT_STAGING);
        if (status != ANGARA_OK) {
            return status;
        }
        pe->staging_ready = 1;
    }
    agent = agent_take(pe);
    if (agent < 0) {
        return ANGARA_INPROGRESS;
    }
    if (src != NULL && request->length != 0) {
        memcpy(agent_staging(pe, agent), src, request->length);
    }
    peer->agent             = agent;
    peer->agent_length      = request->length;
    request->from           = pe->base.address;
    request->agent          = (uint8_t)agent;
    request->sequence       = ++pe->agent_sequence;
    pe->agent_awaits[agent] = request->sequence;
    __atomic_store_n(&agent_reply(pe, agent)->state,
                     soft_reply_state(request->sequence, SOFT_POSTED), __ATOMIC_RELEASE);
    status = soft_record_push((void *)((char *)remote->seg + remote->layout.service),
                              SOFT_SERVICE_RING, request, sizeof(*request), NULL, 0);
    if (status != ANGARA_OK) {
        agent_release(peer);
        return ANGARA_INPROGRESS;
    }
    pe->counters.services++;
    wake_server(peer);
    return ANGARA_INPROGRESS;
}

/* The answer to the request under way, if it came. The agent stays ours until agent_release(). */
static angara_status_t agent_receive(soft_peer_t *peer, uint64_t *old)
{
    soft_pe_t *pe = peer_pe(peer);
    int64_t    status;

    if (!answered(pe, peer->agent)) {
        if (peer->agent_poke) {
            wake_server(peer);
        }
        return peer->down ? ANGARA_ERR_PEER_DEAD : ANGARA_INPROGRESS;
    }
    if (__atomic_load_n(&agent_reply(pe, peer->agent)->refused, __ATOMIC_RELAXED) ==
        pe->agent_awaits[peer->agent]) {
        return ANGARA_ERR_LIMIT;
    }
    status = agent_reply(pe, peer->agent)->status;
    if (old != NULL) {
        *old = agent_reply(pe, peer->agent)->old;
    }
    if (status > ANGARA_OK || status <= ANGARA_ERR_LAST) {
        return ANGARA_ERR_SYSTEM; /* garbage from the peer */
    }
    return (angara_status_t)status;
}

static soft_request_t chunk_request(ang_op_t op, uint64_t key, uint64_t offset, uint64_t left)
{
    soft_request_t request = {.op = (uint8_t)op, .key = key, .offset = offset};

    request.length = (uint32_t)(left < SOFT_STAGING ? left : SOFT_STAGING);
    return request;
}

angara_status_t soft_agent_copy_out(soft_peer_t *peer, uint64_t key, uint64_t offset,
                                    const void *src, uint64_t end, uint64_t *done)
{
    soft_request_t  request;
    angara_status_t status;

    if (peer->agent >= 0) {
        status = agent_receive(peer, NULL);
        if (status == ANGARA_INPROGRESS) {
            return status;
        }
        agent_release(peer);
        if (status != ANGARA_OK) {
            *done -= peer->agent_length;
            return status;
        }
    }
    if (*done >= end) {
        return ANGARA_OK;
    }
    request = chunk_request(ANG_OP_PUT, key, offset + *done, end - *done);
    status  = agent_send(peer, &request, (const char *)src + *done);
    if (peer->agent >= 0) {
        *done += request.length; /* counted when it is staged: that is what takes time here */
    }
    return status;
}

angara_status_t soft_agent_copy_in(soft_peer_t *peer, uint64_t key, uint64_t offset, void *dst,
                                   uint64_t end, uint64_t *done)
{
    soft_request_t  request;
    angara_status_t status;

    if (peer->agent >= 0) {
        if (peer->agent_length > end - *done) {
            return ANGARA_INPROGRESS; /* asked for by a turn that had more bytes left */
        }
        status = agent_receive(peer, NULL);
        if (status == ANGARA_INPROGRESS) {
            return status;
        }
        if (status == ANGARA_OK) {
            memcpy((char *)dst + *done, agent_staging(peer_pe(peer), peer->agent),
                   peer->agent_length);
            *done += peer->agent_length;
        }
        agent_release(peer);
        if (status != ANGARA_OK) {
            return status;
        }
    }
    if (*done >= end) {
        return ANGARA_OK;
    }
    request = chunk_request(ANG_OP_GET, key, offset + *done, end - *done);
    return agent_send(peer, &request, NULL);
}

/* A request without data: send it once, then wait for the answer. */
static angara_status_t agent_call(soft_peer_t *peer, soft_request_t *request, uint64_t *old)
{
    angara_status_t status;

    if (peer->agent < 0) {
        return agent_send(peer, request, NULL);
    }
    status = agent_receive(peer, old);
    if (status != ANGARA_INPROGRESS) {
        agent_release(peer);
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
