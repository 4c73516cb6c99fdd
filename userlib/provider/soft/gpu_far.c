/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies between GPU memory and private host memory of a peer's process: see gpu_mem.h. No CPU
 * reaches both. A GPU of the peer's process may; else they go through host memory of this one.
 */
#include "gpu_mem.h"
#include "vm.h"

#include "src/clock.h"

#include <stdlib.h>

#define STAGE_BYTES     ((uint64_t)256 << 10) /* that go through the host at a time */
#define DIRECT_MIN      ((uint64_t)64 << 10)  /* bytes that are worth a direct request */
#define DIRECT_RETRY_NS 200000000             /* pause after one that couldn't be carried out */

/*
 * Between GPU memory and private memory of the peer, a GPU of the peer's process reaches both, if
 * it uses one. @return the region of the GPU memory, where that may be asked for; else NULL
 */
static const soft_mr_entry_t *direct_entry(const soft_peer_t *peer, const ang_ref_t *near,
                                           const ang_ref_t *far)
{
    const soft_domain_t   *dom = soft_pe(peer->base.pe)->dom;
    const soft_mr_entry_t *entry;
    uint64_t               addr;

    if (far->length < DIRECT_MIN || near->length != far->length ||
        peer->pair.engine->chaos != NULL ||
        (peer->agent < 0 && ang_clock_ns(CLOCK_MONOTONIC_COARSE) < peer->direct_retry_ns) ||
        soft_mr_check(dom->shared, dom->mr_max, near->key, near->offset, near->length, 0, &addr,
                      &entry) != ANGARA_OK ||
        entry->share == SOFT_NO_SHARE) {
        return NULL;
    }
    return entry;
}

static angara_status_t direct_copy(soft_peer_t *peer, ang_op_t op, const ang_ref_t *near,
                                   const soft_mr_entry_t *entry, const ang_ref_t *far, uint64_t end,
                                   uint64_t *done)
{
    angara_status_t status = soft_agent_copy_direct(peer, op, far, entry, near->offset, end, done);

    if (status == ANGARA_ERR_UNSUPPORTED) {
        peer->direct_retry_ns = ang_clock_ns(CLOCK_MONOTONIC_COARSE) + DIRECT_RETRY_NS;
    } else if (status == ANGARA_INPROGRESS) {
        /* Others may need it meanwhile; the peer's helper looks at the region with its lock held.
         */
        __atomic_store_n(&peer->remote.hazard->key, 0, __ATOMIC_RELEASE);
    }
    return status;
}

/* Through the host. */
static angara_status_t staged_copy(soft_peer_t *peer, const ang_ref_t *dst, const ang_ref_t *src,
                                   uint64_t end, uint64_t *done)
{
    soft_pe_t      *pe     = soft_pe(peer->base.pe);
    angara_status_t status = ANGARA_OK;

    if (pe->stage == NULL) {
        pe->stage = malloc(STAGE_BYTES);
        if (pe->stage == NULL) {
            return ANGARA_ERR_NO_MEMORY;
        }
    }
    pe->counters.gpu_staged++;
    while (*done < end && status == ANGARA_OK) {
        uint64_t size  = end - *done < STAGE_BYTES ? end - *done : STAGE_BYTES;
        uint64_t moved = 0;

        if (src->kind == SOFT_REF_CMA) {
            status = soft_cma_copy(peer, src->addr + *done, (uintptr_t)pe->stage, size, 1, &moved);
            if (status == ANGARA_OK) {
                status = soft_gpu_copy(dst->addr + *done, (uintptr_t)pe->stage, size);
            }
        } else {
            status = soft_gpu_copy((uintptr_t)pe->stage, src->addr + *done, size);
            if (status == ANGARA_OK) {
                status = soft_cma_copy(peer, dst->addr + *done, (uintptr_t)pe->stage, size, 0,
                                       &moved);
            }
        }
        *done += status == ANGARA_OK ? size : 0;
    }
    return status;
}

angara_status_t soft_gpu_copy_far(soft_peer_t *peer, const ang_ref_t *dst, const ang_ref_t *src,
                                  uint64_t end, uint64_t *done)
{
    int                    is_put = dst->kind == SOFT_REF_CMA;
    const ang_ref_t       *near   = is_put ? src : dst;
    const ang_ref_t       *far    = is_put ? dst : src;
    const soft_mr_entry_t *entry  = direct_entry(peer, near, far);

    return entry != NULL ?
               direct_copy(peer, is_put ? ANG_OP_PUT : ANG_OP_GET, near, entry, far, end, done) :
               staged_copy(peer, dst, src, end, done);
}
