/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct requests, the server's side: see service.h and gpu_mem.h. A GPU of this process copies
 * between its own host memory and a region of the requester's GPU memory (requester.h).
 */
#include "gpu_mem.h"
#include "requester.h"
#include "vm.h"

#include <stddef.h>

/* Its region is held. */
static angara_status_t copy(const soft_remote_domain_t *domain, const soft_request_t *request,
                            uint64_t addr, uint64_t length)
{
    const soft_mr_entry_t *entry;
    soft_import_t         *import;
    ang_gpu_mem_t          mem;
    angara_status_t        status;
    uint64_t               near;

    status = soft_mr_check(domain->seg, domain->mr_max, request->near_key, request->near_offset,
                           length, 0, &near, &entry);
    if (status == ANGARA_OK && entry->kind != ANGARA_MEM_HOST) {
        ang_gpu_query_found((const void *)(uintptr_t)addr, &mem); /* managed memory has a GPU */
        status = soft_import_get(domain->process, entry, &mem, request->near_offset, length,
                                 &import, &near);
    } else {
        status = ANGARA_ERR_UNSUPPORTED;
    }
    if (status == ANGARA_OK) {
        status = request->op == ANG_OP_PUT ? soft_gpu_copy(addr, near, length) :
                                             soft_gpu_copy(near, addr, length);
        soft_import_put(import);
    }
    return status;
}

angara_status_t soft_gpu_serve(const soft_request_t *request, uint64_t owner, uint64_t addr,
                               uint64_t length)
{
    soft_remote_domain_t *domain;
    angara_status_t       status;

    /* others the driver copies with the CPU */
    if (!ang_gpu_is_registered((const void *)(uintptr_t)addr, length) &&
        soft_guard_range(addr, length, request->op == ANG_OP_PUT) != ANGARA_OK) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    domain = soft_requester_get(request, owner);
    if (domain == NULL) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    soft_helper_watch();
    /* The hazard, a full fence, then the look at the entry: see domain.c. */
    __atomic_exchange_n(&domain->hazard->key, request->near_key, __ATOMIC_SEQ_CST);
    status = copy(domain, request, addr, length);
    __atomic_store_n(&domain->hazard->key, 0, __ATOMIC_RELEASE);
    return status == ANGARA_OK ? ANGARA_OK : ANGARA_ERR_UNSUPPORTED;
}
