/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls of <angara/angara_mem.h>: arguments and configuration; the rest is in gpu/. */
#include "config.h"
#include "gpu/gpu.h"
#include "log.h"
#include "provider/provider.h"

#include <angara/angara_mem.h>
#include <string.h>

angara_status_t angara_mem_query_sized(const void *addr, angara_mem_t *mem, size_t size)
{
    angara_status_t status = ang_config_load();
    ang_gpu_mem_t   gpu;

    if (status != ANGARA_OK) {
        return status;
    }
    if (mem == NULL) {
        return ANGARA_ERR_INVALID;
    }
    ang_gpu_query(addr, &gpu);
    memset(mem, 0, size);
    memcpy(mem, &gpu.mem, size < sizeof(gpu.mem) ? size : sizeof(gpu.mem));
    return gpu.is_left_out ? ANGARA_ERR_UNSUPPORTED : ANGARA_OK;
}

static angara_status_t kinds_get(uint32_t (*get)(void), uint32_t *kinds)
{
    angara_status_t status = ang_config_load();

    if (status != ANGARA_OK) {
        return status;
    }
    if (kinds == NULL) {
        return ANGARA_ERR_INVALID;
    }
    *kinds = get();
    return ANGARA_OK;
}

angara_status_t angara_mem_kinds(uint32_t *kinds)
{
    return kinds_get(ang_gpu_kinds, kinds);
}

angara_status_t angara_mem_kinds_left_out(uint32_t *kinds)
{
    return kinds_get(ang_gpu_kinds_left_out, kinds);
}

angara_status_t angara_mem_runtime(unsigned i, const char **name, const char **lacks)
{
    angara_status_t status = ang_config_load();
    const char     *runtime, *text;

    if (status != ANGARA_OK) {
        return status;
    }
    if (name == NULL || lacks == NULL) {
        return ANGARA_ERR_INVALID;
    }
    text = ang_gpu_lacks(i, &runtime);
    if (text == NULL) {
        return ANGARA_ERR_NO_DEVICE;
    }
    *name  = runtime;
    *lacks = text;
    return ANGARA_OK;
}

angara_mem_kind_t angara_mr_mem_kind(angara_mr_h mr)
{
    return (angara_mem_kind_t)mr->kind;
}

angara_gpu_use_t angara_peer_gpu(angara_peer_h peer, angara_mem_kind_t kind, uint32_t pci)
{
    uint64_t set = 0;

    if (kind > ANGARA_MEM_HOST && kind < ANGARA_MEM_LAST && peer->ops->peer_gpus != NULL &&
        peer->pe->dom->epoch == ang_fork_epoch) {
        set = peer->ops->peer_gpus(peer) & ang_gpu_bits_of(kind);
    }
    if (set == 0) {
        return ANGARA_GPU_UNUSED;
    }
    return set & ang_gpu_bit(kind, pci) ? ANGARA_GPU_SAME : ANGARA_GPU_OTHERS;
}

/* The ends of a copy. */
static angara_status_t query_ends(const void *dst, ang_gpu_mem_t *dst_mem, const void *src,
                                  ang_gpu_mem_t *src_mem)
{
    ang_gpu_query(dst, dst_mem);
    ang_gpu_query(src, src_mem);
    return dst_mem->is_left_out || src_mem->is_left_out ? ANGARA_ERR_UNSUPPORTED : ANGARA_OK;
}

angara_status_t angara_copy_start(void *dst, const void *src, size_t length, angara_copy_t *copy)
{
    angara_status_t status = ang_config_load();
    ang_gpu_mem_t   dst_mem, src_mem;

    if (status != ANGARA_OK) {
        return status;
    }
    if (copy == NULL || (length != 0 && (dst == NULL || src == NULL))) {
        return ANGARA_ERR_INVALID;
    }
    status = query_ends(dst, &dst_mem, src, &src_mem);
    if (status != ANGARA_OK) {
        return status;
    }
    return ang_gpu_copy_start(dst, &dst_mem, src, &src_mem, length, (ang_gpu_copy_t *)(void *)copy);
}

angara_status_t angara_copy_test(angara_copy_t *copy)
{
    return copy == NULL ? ANGARA_ERR_INVALID : ang_gpu_copy_test((ang_gpu_copy_t *)(void *)copy);
}

angara_status_t angara_copy(void *dst, const void *src, size_t length)
{
    angara_status_t status = ang_config_load();
    ang_gpu_mem_t   dst_mem, src_mem;

    if (status != ANGARA_OK || length == 0) {
        return status;
    }
    if (dst == NULL || src == NULL) {
        return ANGARA_ERR_INVALID;
    }
    status = query_ends(dst, &dst_mem, src, &src_mem);
    if (status != ANGARA_OK) {
        return status;
    }
    if (!ang_gpu_is_device(&dst_mem) && !ang_gpu_is_device(&src_mem)) {
        if (!ang_gpu_is_within(dst, length, &dst_mem) ||
            !ang_gpu_is_within(src, length, &src_mem)) {
            return ANGARA_ERR_BOUNDS;
        }
        memcpy(dst, src, length);
        return ANGARA_OK;
    }
    return ang_gpu_copy(dst, &dst_mem, src, &src_mem, length);
}
