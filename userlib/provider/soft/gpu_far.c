/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies between GPU memory and private host memory of a peer's process: see gpu_mem.h. No CPU
 * reaches both. A GPU of the peer's process may; else they go through host memory of this one.
 */
#include "agent.h"
#include "gpu_mem.h"
#include "vm.h"
#include "way.h"

#include "src/clock.h"

#include <sys/mman.h>

#define STAGE_BYTES ((uint64_t)256 << 10) /* that go through the host at a time */
#define DIRECT_MIN  ((uint64_t)64 << 10)  /* bytes that are worth a direct request */
#define DIRECT_NS   20000000ull           /* after which one isn't waited for */

/* Pause after one that couldn't be carried out: the first, and the longest. */
#define DIRECT_PAUSE_NS     100000000ull
#define DIRECT_PAUSE_MAX_NS 10000000000ull

/* May a GPU of the peer's process, if it uses one, be asked to do it? */
static int may_ask(const soft_peer_t *peer, const ang_ref_t *near, const ang_ref_t *far)
{
    const soft_domain_t   *dom = soft_pe(peer->base.pe)->dom;
    const soft_mr_entry_t *entry;
    uint64_t               addr;

    return far->length >= DIRECT_MIN && near->length == far->length &&
           peer->pair.engine->chaos == NULL &&
           ang_clock_ns(CLOCK_MONOTONIC_COARSE) >= peer->direct_retry_ns &&
           soft_mr_check(dom->shared, dom->mr_max, near->key, near->offset, near->length, 0, &addr,
                         &entry) == ANGARA_OK &&
           entry->share != SOFT_NO_SHARE;
}

/*
 * Has nobody begun with the direct request for so long, or has no slot been free? The owner is
 * stopped, say, or has no helper.
 */
static int direct_is_late(const soft_peer_t *peer)
{
    uint64_t since = peer->agent >= 0 ? peer->direct_posted_ns : peer->agent_since_ns;

    if (since == 0 ||
        (peer->agent >= 0 && soft_state_phase(__atomic_load_n(&soft_agent_slot(peer)->state,
                                                              __ATOMIC_ACQUIRE)) != SOFT_POSTED)) {
        return 0;
    }
    return ang_clock_ns(CLOCK_MONOTONIC_COARSE) - since > DIRECT_NS;
}

/* The queued operation as part of a run, if it goes this way, too. What is wrong with it is told at
 * its turn. */
static int direct_item(soft_peer_t *peer, const ang_desc_t *desc, soft_request_t *item)
{
    unsigned  access = desc->op == ANG_OP_GET ? ANGARA_ACCESS_LOCAL_WRITE : 0;
    ang_ref_t far    = {.key = desc->rkey, .offset = desc->roffset, .length = desc->length};
    ang_ref_t near;

    if (ang_desc_check(desc) != ANGARA_OK ||
        soft_way_local(&peer->pair, desc->lkey, desc->loffset, desc->length, access, &near) !=
            ANGARA_OK ||
        near.kind != SOFT_REF_GPU || soft_way_may_map(&peer->remote, desc->rkey) ||
        !may_ask(peer, &near, &far)) {
        return 0;
    }
    *item        = soft_agent_near_request(peer, desc->op, &far, &near);
    item->length = (uint32_t)desc->length;
    return 1;
}

/* What is queued behind the operation goes along, if its request takes all that is left of it. */
static void direct_add(soft_peer_t *peer, soft_request_t *request)
{
    soft_request_t *items = (void *)soft_agent_staging(peer);
    uint64_t        total = request->length;
    ang_place_t     place = {NULL, 0};
    ang_desc_t      desc;
    const void     *data;

    if (!ang_pair_next(&peer->pair, &place, NULL, NULL) || request->length > SOFT_GPU_PIECE ||
        __atomic_load_n(&soft_agent_slot(peer)->staged, __ATOMIC_RELAXED) == 0) {
        return;
    }
    while (request->compare < SOFT_RUN - 1 && ang_pair_next(&peer->pair, &place, &desc, &data) &&
           desc.op == request->op && desc.length <= SOFT_RUN_BYTES - total &&
           direct_item(peer, &desc, &items[request->compare])) {
        total += desc.length;
        request->compare++;
    }
}

static angara_status_t direct_post(soft_peer_t *peer, ang_op_t op, const ang_ref_t *near,
                                   const ang_ref_t *far, uint64_t done)
{
    uint64_t        left    = far->length - done;
    soft_request_t  request = soft_agent_near_request(peer, op, far, near);
    angara_status_t status  = soft_agent_open(peer, 0);

    peer->direct_posted_ns = ang_clock_ns(CLOCK_MONOTONIC_COARSE);
    if (status != ANGARA_OK) {
        return status;
    }
    request.by     = SOFT_BY_DIRECT;
    request.length = left < UINT32_MAX ? (uint32_t)left : UINT32_MAX;
    request.offset += done;
    request.near_offset += done;
    direct_add(peer, &request);
    peer->direct_batch = 1 + (unsigned)request.compare;
    peer->direct_along = 0;
    soft_agent_post(peer, &request, 0);
    return ANGARA_INPROGRESS;
}

/* Take the answer, of a request for `left` bytes and what went along. *moved: of these bytes. */
static angara_status_t direct_receive(soft_peer_t *peer, uint64_t left, uint64_t *moved)
{
    const soft_request_t *answer = &soft_agent_slot(peer)->request;
    angara_status_t       status = soft_agent_receive(peer, 1);
    uint64_t              along  = 0;

    if (status == ANGARA_INPROGRESS) {
        return status;
    }
    *moved = 0;
    if (status == ANGARA_OK) {
        *moved = __atomic_load_n(&answer->operand, __ATOMIC_RELAXED);
        along  = __atomic_load_n(&answer->compare, __ATOMIC_RELAXED);
        if (*moved == 0 || *moved > left || along >= peer->direct_batch ||
            (along != 0 && *moved != left)) {
            status = ANGARA_ERR_SYSTEM; /* garbage from the peer */
        }
    }
    if (status == ANGARA_OK) {
        peer->direct_along = (unsigned)along;
    }
    soft_agent_end(peer);
    return status;
}

/* As the backend's copy(), but may go beyond `end`. ANGARA_ERR_UNSUPPORTED: the peer's GPU can't,
 * or isn't there to do it. */
static angara_status_t direct_go_on(soft_peer_t *peer, ang_op_t op, const ang_ref_t *near,
                                    const ang_ref_t *far, uint64_t end, uint64_t *done)
{
    uint64_t        moved;
    angara_status_t status;

    if (direct_is_late(peer) && soft_agent_withdraw(peer)) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    if (peer->agent >= 0) {
        status = direct_receive(peer, far->length - *done, &moved);
        if (status != ANGARA_OK) {
            return status;
        }
        *done += moved;
    }
    return *done >= end ? ANGARA_OK : direct_post(peer, op, near, far, *done);
}

static angara_status_t direct_copy(soft_peer_t *peer, ang_op_t op, const ang_ref_t *near,
                                   const ang_ref_t *far, uint64_t end, uint64_t *done)
{
    angara_status_t status = direct_go_on(peer, op, near, far, end, done);

    if (status == ANGARA_ERR_UNSUPPORTED) {
        peer->direct_pause_ns = 2 * peer->direct_pause_ns + DIRECT_PAUSE_NS;
        if (peer->direct_pause_ns > DIRECT_PAUSE_MAX_NS) {
            peer->direct_pause_ns = DIRECT_PAUSE_MAX_NS;
        }
        peer->direct_retry_ns = ang_clock_ns(CLOCK_MONOTONIC_COARSE) + peer->direct_pause_ns;
    } else if (status == ANGARA_INPROGRESS) {
        /* Others may need it meanwhile; the peer looks at its region with its helper's lock held.
         */
        __atomic_store_n(&peer->remote.hazard->key, 0, __ATOMIC_RELEASE);
    } else {
        peer->direct_pause_ns = 0;
    }
    return status;
}

/* Memory of the PE's for that, mapped so that it can be registered; NULL: there is none. */
static char *stage_get(soft_pe_t *pe)
{
    if (pe->stage == NULL) {
        void *stage = mmap(NULL, STAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0);

        if (stage == MAP_FAILED) {
            return NULL;
        }
        madvise(stage, STAGE_BYTES, MADV_DONTFORK);
        pe->stage = stage;
    }
    return pe->stage;
}

void soft_gpu_far_end(soft_pe_t *pe)
{
    soft_unpin(&pe->stage_pinned);
    if (pe->stage != NULL) {
        munmap(pe->stage, STAGE_BYTES);
    }
    pe->stage = NULL;
}

/* Through the host. */
static angara_status_t staged_copy(soft_peer_t *peer, const ang_ref_t *dst, const ang_ref_t *src,
                                   uint64_t end, uint64_t *done)
{
    soft_pe_t      *pe     = soft_pe(peer->base.pe);
    int             is_get = src->kind == SOFT_REF_CMA;
    char           *memory = stage_get(pe);
    angara_status_t status = ANGARA_OK;

    if (memory == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    pe->counters.gpu_staged++;
    while (*done < end && status == ANGARA_OK) {
        uint64_t  size  = end - *done < STAGE_BYTES ? end - *done : STAGE_BYTES;
        uint64_t  moved = 0;
        uintptr_t stage = (uintptr_t)memory;

        if (size > SOFT_SMALL_PIECE) {
            stage = (uintptr_t)soft_pinned(&pe->stage_pinned, memory, STAGE_BYTES,
                                           (is_get ? dst : src)->addr + *done);
        }
        if (is_get) {
            status = soft_cma_copy(peer, src->addr + *done, stage, size, 1, &moved);
            if (status == ANGARA_OK) {
                status = soft_gpu_copy(dst->addr + *done, stage, size);
            }
        } else {
            status = soft_gpu_copy(stage, src->addr + *done, size);
            if (status == ANGARA_OK) {
                status = soft_cma_copy(peer, dst->addr + *done, stage, size, 0, &moved);
            }
        }
        *done += status == ANGARA_OK ? size : 0;
    }
    return status;
}

angara_status_t soft_gpu_copy_far(soft_peer_t *peer, const ang_ref_t *dst, const ang_ref_t *src,
                                  uint64_t end, uint64_t *done)
{
    int              is_put = dst->kind == SOFT_REF_CMA;
    const ang_ref_t *near   = is_put ? src : dst;
    const ang_ref_t *far    = is_put ? dst : src;

    /* One that is under way goes on: the region there isn't held any more. */
    if (peer->agent >= 0 || peer->agent_since_ns != 0 || may_ask(peer, near, far)) {
        return direct_copy(peer, is_put ? ANG_OP_PUT : ANG_OP_GET, near, far, end, done);
    }
    return staged_copy(peer, dst, src, end, done);
}
