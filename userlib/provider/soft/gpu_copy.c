/* SPDX-License-Identifier: BSD-3-Clause */
/* Moving bytes of regions of GPU memory: see gpu_mem.h. Pointers are asked for anew by each
 * operation, since the program may have freed its memory, and allocated other there. */
#include "gpu_mem.h"

angara_status_t soft_gpu_check(const soft_mr_entry_t *entry, ang_gpu_mem_t *mem)
{
    /* Where it begins: its end may be another allocation. */
    ang_gpu_query_found((const void *)(uintptr_t)entry->addr, mem);
    return ang_gpu_is_device(mem) && mem->mem.kind == entry->kind &&
                   (entry->id == 0 || mem->mem.id == entry->id) ?
               ANGARA_OK :
               ANGARA_ERR_BOUNDS;
}

/* What an end is: known, or asked for. */
static const ang_gpu_mem_t *end_of(const soft_gpu_end_t *end, ang_gpu_mem_t *mem)
{
    if (end->mem != NULL) {
        return end->mem;
    }
    ang_gpu_query_found((const void *)(uintptr_t)end->addr, mem);
    return mem;
}

angara_status_t soft_gpu_start(const soft_gpu_end_t *dst, const soft_gpu_end_t *src,
                               uint64_t length, uint64_t call_max, const ang_gpu_copy_t *after,
                               int may_gather, ang_gpu_copy_t *copy)
{
    ang_gpu_mem_t        mems[2];
    const ang_gpu_mem_t *dst_mem = end_of(dst, &mems[0]);
    const ang_gpu_mem_t *src_mem = end_of(src, &mems[1]);
    angara_status_t      status;

    if (!ang_gpu_is_device(dst_mem) && !ang_gpu_is_device(src_mem)) {
        return ANGARA_ERR_BOUNDS; /* it was freed since its region was looked at */
    }
    if (length > call_max &&
        !ang_gpu_copy_is_async((const void *)(uintptr_t)dst->addr, dst_mem,
                               (const void *)(uintptr_t)src->addr, src_mem, length)) {
        return ANGARA_ERR_UNSUPPORTED; /* in pieces, which is soft_gpu_copy()'s */
    }
    status = (may_gather ? ang_gpu_copy_gather : ang_gpu_copy_start_after)(
        (void *)(uintptr_t)dst->addr, dst_mem, (const void *)(uintptr_t)src->addr, src_mem, length,
        after, copy);
    return status == ANGARA_OK ? ANGARA_INPROGRESS : status;
}

angara_status_t soft_gpu_copy(uint64_t dst, uint64_t src, uint64_t length)
{
    ang_gpu_mem_t   dst_mem, src_mem;
    angara_status_t status;

    ang_gpu_query_found((const void *)(uintptr_t)dst, &dst_mem);
    ang_gpu_query_found((const void *)(uintptr_t)src, &src_mem);
    if (!ang_gpu_is_device(&dst_mem) && !ang_gpu_is_device(&src_mem)) {
        return ANGARA_ERR_BOUNDS; /* it was freed since its region was looked at */
    }
    status = ang_gpu_copy((void *)(uintptr_t)dst, &dst_mem, (const void *)(uintptr_t)src, &src_mem,
                          length);
    /* There is no other way: the driver has ended, or doesn't answer any more. */
    return status == ANGARA_ERR_UNSUPPORTED ? ANGARA_ERR_SYSTEM : status;
}
