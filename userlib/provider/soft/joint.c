/* SPDX-License-Identifier: BSD-3-Clause */
/* See joint.h. */
#define _GNU_SOURCE
#include "joint.h"

#include "agent.h"
#include "requester.h"
#include "vm.h"
#include "way.h"

#include "engine/atomic.h"
#include "src/clock.h"
#include "src/config.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

/*
 * A piece is half of what is left, so that neither side waits long for the other's last one (guided
 * self-scheduling, Polychronopoulos and Kuck, 1987); but the side that has claimed less takes as
 * much more as makes both equal. So two that begin together end together, without small pieces,
 * which cost a call and a turn of progress each. What the bounds are worth: docs/measurements.md.
 */
#define PIECE_MIN ((uint64_t)32 << 10)
#define PIECE_MAX ((uint64_t)128 << 10)

/*
 * Transfers in a row without the peer's help before it isn't asked for a while; how long that is,
 * at first and at most; and where it can't help at all.
 */
#define VAIN_MAX        2u
#define PAUSE_NS        4000000ull
#define PAUSE_DOUBLINGS 3u
#define PAUSE_NEVER_NS  1000000000ull

/* Mapped memory is copied by plain loads and stores, at twice the speed where it is in the caches:
 * both processes copy what is so many times as long. */
#define MAPPED_TIMES 4u

/* In a stream one process goes from one transfer to the next, which costs less than asking for help
 * with each. One that is alone is waited for: then help pays from so many times less on. Alone is
 * one that the PE has nothing queued beside: it is being posted (0 are), or is queued itself (1).
 */
#define ALONE_TIMES 4u

/*
 * With more processes than processors nobody is idle: help would take the time of others' copies,
 * and a piece waits as long as its process doesn't run. A thread that loses its processor so often
 * a second, yielding included, shares it.
 */
#define CROWD_SWITCHES 150
#define CROWD_LOOK_NS  50000000ull

/* Who claims: the initiator from the front, the target from the back. */
typedef enum { FROM_FRONT, FROM_BACK } end_t;

/* The word of claims: bytes from the front, and above them bytes from the back. */
#define BACK_SHIFT 32

/* Bytes of the `length` that nobody has claimed. */
static uint64_t claims_left(uint64_t claims, uint64_t length)
{
    uint64_t claimed = (uint32_t)claims + (claims >> BACK_SHIFT);

    return claimed < length ? length - claimed : 0;
}

/*
 * Claim a piece of at most so many bytes, from that end. @return its length, 0: there is none.
 * Who sees a claim of the target's sees the slot SERVING, or what it was after that.
 */
static uint64_t claim(uint64_t *claims, uint64_t length, uint64_t most, end_t end, uint64_t *at)
{
    uint64_t now = __atomic_load_n(claims, __ATOMIC_ACQUIRE);
    uint64_t left, mine, others, piece;

    do {
        left = claims_left(now, length);
        if (left == 0) {
            return 0;
        }
        mine   = end == FROM_FRONT ? (uint32_t)now : now >> BACK_SHIFT;
        others = end == FROM_FRONT ? now >> BACK_SHIFT : (uint32_t)now;
        piece  = (left + (others > mine ? others - mine : 0)) / 2 / SOFT_PAGE * SOFT_PAGE;
        piece  = piece < PIECE_MIN ? PIECE_MIN : piece > PIECE_MAX ? PIECE_MAX : piece;
        piece  = piece > most ? most : piece;
        piece  = piece > left ? left : piece;
    } while (!__atomic_compare_exchange_n(
        claims, &now, end == FROM_FRONT ? now + piece : now + (piece << BACK_SHIFT), 0,
        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    *at = end == FROM_FRONT ? (uint32_t)now : length - (now >> BACK_SHIFT) - piece;
    return piece;
}

int soft_is_crowded(soft_pe_t *pe)
{
    soft_crowd_t *crowd = &pe->crowd;
    uint64_t      now   = ang_clock_ns(CLOCK_MONOTONIC_COARSE);
    struct rusage usage;
    long          switches;
    pid_t         thread;

    if (now - crowd->looked_ns >= CROWD_LOOK_NS && getrusage(RUSAGE_THREAD, &usage) == 0) {
        thread        = gettid();
        switches      = thread == crowd->thread ? usage.ru_nivcsw - crowd->switches : 0;
        crowd->is_so  = (uint64_t)switches * 1000000000 > (now - crowd->looked_ns) * CROWD_SWITCHES;
        crowd->thread = thread;
        crowd->switches  = usage.ru_nivcsw;
        crowd->looked_ns = now;
    }
    return crowd->is_so;
}

/* ---- the initiator --------------------------------------------------------------------------- */

/* Bytes from which on help pays, apart from what else there is against it. */
static uint64_t joint_min(const soft_peer_t *peer, int is_mapped)
{
    if (is_mapped) {
        return ang_config.joint_min * MAPPED_TIMES;
    }
    return ang_config.joint_min / (peer->pair.engine->pending <= 1 ? ALONE_TIMES : 1);
}

int soft_joint_is_worth(soft_peer_t *peer, uint64_t length, const ang_ref_t *near, int is_mapped)
{
    if (length < joint_min(peer, is_mapped) || length <= SOFT_SHORT || length > UINT32_MAX ||
        near->kind != ANG_REF_HOST || near->key == 0 || peer->remote.same_process || !peer->cma ||
        !ang_config.loopback || peer->pair.engine->chaos != NULL) {
        return 0;
    }
    if (peer->joint.retry_ns != 0 && ang_clock_ns(CLOCK_MONOTONIC_COARSE) < peer->joint.retry_ns) {
        return 0;
    }
    return !soft_agent_sleeps(peer) && !soft_is_crowded(soft_pe(peer->base.pe));
}

static void not_for(soft_joint_t *joint, uint64_t ns)
{
    joint->retry_ns = ang_clock_ns(CLOCK_MONOTONIC_COARSE) + ns;
}

/* It has ended well: what this side hasn't claimed, the peer has copied. */
static void finish(soft_peer_t *peer, uint64_t length, uint64_t *done)
{
    soft_joint_t *joint = &peer->joint;
    unsigned      times;

    if (joint->claimed < length - joint->begin) {
        joint->vain = 0;
    } else if (++joint->vain >= VAIN_MAX) {
        times = joint->vain - VAIN_MAX;
        not_for(joint, PAUSE_NS << (times < PAUSE_DOUBLINGS ? times : PAUSE_DOUBLINGS));
    }
    *done = length;
}

static int start(soft_peer_t *peer, ang_op_t op, const ang_ref_t *far, const ang_ref_t *near,
                 uint64_t done)
{
    soft_request_t request = soft_agent_near_request(peer, op, far, near);

    if (!soft_agent_try_open(peer)) {
        not_for(&peer->joint, PAUSE_NS);
        return 0;
    }
    request.by               = SOFT_BY_JOINT;
    request.length           = (uint32_t)far->length;
    request.operand          = done;
    peer->joint.is_under_way = 1;
    peer->joint.begin        = done;
    peer->joint.claimed      = 0;
    soft_agent_post(peer, &request, 1);
    return 1;
}

/* One piece; the far region is looked up, and held by the hazard, anew. */
static angara_status_t copy_piece(soft_peer_t *peer, ang_op_t op, const ang_ref_t *far,
                                  const ang_ref_t *near, uint64_t at, uint64_t length)
{
    soft_remote_t         *remote = &peer->remote;
    uint64_t               here   = near->addr + at;
    unsigned               access = ang_op_right(op);
    uint64_t               moved  = 0;
    const soft_mr_entry_t *entry;
    angara_status_t        status;
    uint64_t               addr;
    char                  *there;

    if (remote->seg->generation != remote->address.generation) {
        return ANGARA_ERR_PEER_DEAD;
    }
    /* The hazard, a full fence, then the look at the entry: see domain.c. */
    __atomic_exchange_n(&remote->hazard->key, far->key, __ATOMIC_SEQ_CST);
    status = soft_mr_check(remote->dom, remote->mr_max, far->key, far->offset + at, length, access,
                           &addr, &entry);
    if (status == ANGARA_OK) {
        there = soft_reach(peer, far->key, entry, addr, far->offset + at, access);
        if (there == NULL) {
            status = soft_cma_copy(peer, addr, here, length, op == ANG_OP_GET, &moved);
        } else if (op == ANG_OP_GET) {
            ang_cpu_copy((void *)(uintptr_t)here, there, length);
        } else {
            ang_cpu_copy(there, (const void *)(uintptr_t)here, length);
        }
    }
    __atomic_store_n(&remote->hazard->key, 0, __ATOMIC_RELEASE);
    return status;
}

/* All is claimed: has the peer copied what it has claimed? */
static angara_status_t await_peer(soft_peer_t *peer, ang_op_t op, const ang_ref_t *far,
                                  const ang_ref_t *near, uint64_t *done)
{
    angara_status_t       status = ANGARA_OK;
    const soft_request_t *answer = &soft_agent_slot(peer)->request;
    uint64_t              at, length;

    if (!soft_agent_take_back(peer)) {
        status = soft_agent_receive(peer, 1);
        if (status == ANGARA_ERR_UNSUPPORTED) { /* a piece is given back */
            at     = __atomic_load_n(&answer->compare, __ATOMIC_RELAXED);
            length = __atomic_load_n(&answer->length, __ATOMIC_RELAXED);
            status = at >= peer->joint.begin && length <= PIECE_MAX &&
                             ang_in_bounds(at, length, far->length) ?
                         copy_piece(peer, op, far, near, at, length) :
                         ANGARA_ERR_SYSTEM; /* garbage from the peer */
            not_for(&peer->joint, PAUSE_NEVER_NS);
        } else if (status != ANGARA_OK) {
            return status;
        }
        soft_agent_end(peer);
    }
    if (status == ANGARA_OK) {
        finish(peer, far->length, done);
    } else if (status == ANGARA_ERR_UNSUPPORTED) {
        *done = peer->joint.begin; /* the other way doesn't know which pieces are there */
    }
    return status;
}

/* Go another way, when the peer's process is at no piece any more. */
static angara_status_t restart(soft_peer_t *peer, uint64_t *done)
{
    angara_status_t status;

    peer->joint.claimed = UINT64_MAX;
    if (!soft_agent_withdraw(peer)) {
        status = soft_agent_receive(peer, 1); /* for its bound */
        return status == ANGARA_OK || status == ANGARA_ERR_UNSUPPORTED ? ANGARA_INPROGRESS : status;
    }
    *done = peer->joint.begin;
    return ANGARA_ERR_UNSUPPORTED;
}

angara_status_t soft_joint_copy(soft_peer_t *peer, ang_op_t op, const ang_ref_t *far,
                                const ang_ref_t *near, uint64_t end, uint64_t *done)
{
    uint64_t       *claims;
    angara_status_t status;
    uint64_t        at, length;

    if (peer->agent < 0 && !start(peer, op, far, near, *done)) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    if (peer->joint.claimed == UINT64_MAX) {
        return restart(peer, done);
    }
    claims = &soft_agent_slot(peer)->request.operand;
    while ((length = claim(claims, far->length, end - *done, FROM_FRONT, &at)) != 0) {
        peer->joint.claimed += length;
        status = copy_piece(peer, op, far, near, at, length);
        if (status == ANGARA_ERR_UNSUPPORTED) { /* process_vm is forbidden by now */
            return restart(peer, done);
        }
        if (status != ANGARA_OK) {
            return status;
        }
        *done += length;
        if (__atomic_load_n(claims, __ATOMIC_ACQUIRE) >> BACK_SHIFT != 0 || *done >= end) {
            break; /* one piece a turn, but alone more */
        }
    }
    if (claims_left(__atomic_load_n(claims, __ATOMIC_ACQUIRE), far->length) != 0) {
        return ANGARA_INPROGRESS;
    }
    return await_peer(peer, op, far, near, done);
}

/* ---- the target ------------------------------------------------------------------------------ */

/* Between memory of this process and the requester's, which is held. */
static angara_status_t serve_piece(const soft_remote_domain_t *domain,
                                   const soft_request_t *request, uint64_t addr, uint64_t at,
                                   uint64_t length)
{
    int                    is_get = request->op == ANG_OP_GET;
    const soft_mr_entry_t *entry;
    angara_status_t        status;
    uint64_t               near;

    status = soft_mr_check(domain->seg, domain->mr_max, request->near_key,
                           request->near_offset + at, length,
                           is_get ? ANGARA_ACCESS_LOCAL_WRITE : 0, &near, &entry);
    if (status != ANGARA_OK || entry->kind != ANGARA_MEM_HOST) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    for (uint64_t done = 0; done < length;) {
        struct iovec here  = {(void *)(uintptr_t)(addr + done), length - done};
        struct iovec there = {(void *)(uintptr_t)(near + done), length - done};
        pid_t        task  = soft_remote_process_task(domain->process);
        ssize_t      moved = is_get ? process_vm_writev(task, &here, 1, &there, 1, 0) :
                                      process_vm_readv(task, &here, 1, &there, 1, 0);

        if (moved > 0) {
            done += (uint64_t)moved;
        } else if (moved == 0 || errno != ESRCH ||
                   !soft_remote_process_other_task(domain->process)) {
            return ANGARA_ERR_UNSUPPORTED;
        }
    }
    return ANGARA_OK;
}

/* [at, at + length) of the request's bytes. */
static angara_status_t serve(soft_pe_t *pe, uint64_t owner, const soft_request_t *request,
                             uint64_t at, uint64_t length)
{
    soft_remote_domain_t  *domain;
    const soft_mr_entry_t *entry;
    angara_status_t        status;
    uint64_t               addr;

    if (request->offset + at < at ||
        soft_mr_check(pe->dom->shared, pe->dom->mr_max, request->key, request->offset + at, length,
                      ang_op_right(request->op), &addr, &entry) != ANGARA_OK ||
        entry->kind != ANGARA_MEM_HOST || request->near_offset + at < at) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    domain = soft_requester_get(request, owner);
    if (domain == NULL) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    /* The hazard, a full fence, then the look at the entry: see domain.c. */
    __atomic_exchange_n(&domain->hazard->key, request->near_key, __ATOMIC_SEQ_CST);
    status = serve_piece(domain, request, addr, at, length);
    __atomic_store_n(&domain->hazard->key, 0, __ATOMIC_RELEASE);
    return status;
}

angara_status_t soft_joint_serve(soft_pe_t *pe, soft_slot_t *slot, const soft_request_t *request)
{
    uint64_t owner = __atomic_load_n(&slot->owner, __ATOMIC_ACQUIRE);
    uint64_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
    uint64_t at, length;

    if (soft_state_phase(state) != SOFT_SERVING) {
        return ANGARA_ERR_UNSUPPORTED; /* given up: the owner may be the next one's by now */
    }
    length = claim(&slot->request.operand, request->length, PIECE_MAX, FROM_BACK, &at);
    if (length == 0) {
        return ANGARA_OK;
    }
    if (serve(pe, owner, request, at, length) != ANGARA_OK) {
        slot->request.compare = at;
        slot->request.length  = (uint32_t)length;
        return ANGARA_ERR_UNSUPPORTED;
    }
    pe->counters.joint_pieces++;
    return claims_left(__atomic_load_n(&slot->request.operand, __ATOMIC_ACQUIRE),
                       request->length) != 0 ?
               ANGARA_INPROGRESS :
               ANGARA_OK;
}
