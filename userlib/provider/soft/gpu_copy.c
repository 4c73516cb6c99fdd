/* SPDX-License-Identifier: BSD-3-Clause */
/* Moving bytes of regions of GPU memory: see gpu_mem.h. Each pointer is asked for anew, since the
 * program may have freed its memory, and allocated other there. */
#include "gpu_mem.h"

#include "src/config.h"

angara_status_t soft_gpu_check(const soft_mr_entry_t *entry, int *device_p)
{
    ang_gpu_mem_t mem;

    /* Where it begins: its end may be another allocation. */
    ang_gpu_query_found((const void *)(uintptr_t)entry->addr, &mem);
    *device_p = mem.mem.device;
    return ang_gpu_is_device(&mem) && mem.mem.kind == entry->kind &&
                   (entry->id == 0 || mem.mem.id == entry->id) ?
               ANGARA_OK :
               ANGARA_ERR_BOUNDS;
}

/* What both ends are. @return 0: neither is a GPU's, one was freed since its region was looked at
 */
static int query(uint64_t dst, ang_gpu_mem_t *dst_mem, uint64_t src, ang_gpu_mem_t *src_mem)
{
    ang_gpu_query_found((const void *)(uintptr_t)dst, dst_mem);
    ang_gpu_query_found((const void *)(uintptr_t)src, src_mem);
    return ang_gpu_is_device(dst_mem) || ang_gpu_is_device(src_mem);
}

angara_status_t soft_gpu_start(uint64_t dst, uint64_t src, uint64_t length,
                               const ang_gpu_copy_t *after, ang_gpu_copy_t *copy)
{
    ang_gpu_mem_t   dst_mem, src_mem;
    angara_status_t status;

    if (!query(dst, &dst_mem, src, &src_mem)) {
        return ANGARA_ERR_BOUNDS;
    }
    if (length > ang_config.turn_bytes &&
        !ang_gpu_copy_is_async((const void *)(uintptr_t)dst, &dst_mem, (const void *)(uintptr_t)src,
                               &src_mem, length)) {
        return ANGARA_ERR_UNSUPPORTED; /* in pieces, which is soft_gpu_copy()'s */
    }
    status = ang_gpu_copy_start_after((void *)(uintptr_t)dst, &dst_mem,
                                      (const void *)(uintptr_t)src, &src_mem, length, after, copy);
    return status == ANGARA_OK ? ANGARA_INPROGRESS : status;
}

angara_status_t soft_gpu_copy(uint64_t dst, uint64_t src, uint64_t length)
{
    ang_gpu_mem_t dst_mem, src_mem;

    if (!query(dst, &dst_mem, src, &src_mem)) {
        return ANGARA_ERR_BOUNDS;
    }
    return ang_gpu_copy((void *)(uintptr_t)dst, &dst_mem, (const void *)(uintptr_t)src, &src_mem,
                        length);
}
