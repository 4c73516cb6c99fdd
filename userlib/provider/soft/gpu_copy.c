/* SPDX-License-Identifier: BSD-3-Clause */
/* Moving bytes of regions of GPU memory: see gpu_mem.h. Each pointer is asked for anew, since the
 * program may have freed its memory, and allocated other there. */
#include "gpu_mem.h"

angara_status_t soft_gpu_check(const soft_mr_entry_t *entry, uint64_t addr)
{
    ang_gpu_mem_t mem;

    ang_gpu_query((const void *)(uintptr_t)addr, &mem);
    return ang_gpu_is_device(&mem) && mem.mem.kind == entry->kind && mem.mem.id == entry->id ?
               ANGARA_OK :
               ANGARA_ERR_BOUNDS;
}

angara_status_t soft_gpu_copy(uint64_t dst, uint64_t src, uint64_t length)
{
    ang_gpu_mem_t dst_mem, src_mem;

    ang_gpu_query((const void *)(uintptr_t)dst, &dst_mem);
    ang_gpu_query((const void *)(uintptr_t)src, &src_mem);
    if (!ang_gpu_is_device(&dst_mem) && !ang_gpu_is_device(&src_mem)) {
        return ANGARA_ERR_BOUNDS; /* freed since the region was looked at */
    }
    return ang_gpu_copy((void *)(uintptr_t)dst, &dst_mem, (const void *)(uintptr_t)src, &src_mem,
                        length);
}
