/* SPDX-License-Identifier: BSD-3-Clause */
/* What has changed between UCX versions, where a macro won't do: see compat.h. No state. */
#include "base/compat.h"

#include <ucs/arch/cpu.h>
#include <ucs/memory/memtype_cache.h>

void uct_angara_md_attr_fill(uct_angara_md_attr_t *attr, const uct_angara_md_caps_t *caps)
{
#if UCT_ANGARA_UCX(14)
    uct_angara_md_attr_t *cap = attr;

    *attr = (uct_angara_md_attr_t){.field_mask = attr->field_mask};
#if UCT_ANGARA_UCX(16)
    attr->reg_alignment = 1;
#endif
    attr->cache_mem_types = caps->cache_mem_types;
#else
    __typeof__(&attr->cap) cap = &attr->cap;
#endif

    cap->flags             = caps->flags;
    cap->reg_mem_types     = caps->reg_mem_types;
    cap->alloc_mem_types   = caps->alloc_mem_types;
    cap->access_mem_types  = caps->access_mem_types;
    cap->detect_mem_types  = caps->detect_mem_types;
    cap->max_alloc         = caps->alloc_mem_types != 0 ? SIZE_MAX : 0;
    cap->max_reg           = ULONG_MAX;
    attr->rkey_packed_size = caps->rkey_packed_size;
    attr->reg_cost         = caps->reg_cost;
    memset(&attr->local_cpus, 0xff, sizeof(attr->local_cpus));
}

#if UCT_ANGARA_UCX(15)
int uct_angara_is_reachable_v2(const uct_iface_h                      iface,
                               const uct_iface_is_reachable_params_t *params)
{
    int has_device = params->field_mask & UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR;
    int has_iface  = params->field_mask & UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR;
    int result     = has_device && iface->ops.iface_is_reachable(iface, params->device_addr,
                                                             has_iface ? params->iface_addr : NULL);

    if ((params->field_mask & UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING) &&
        (params->field_mask & UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING_LENGTH) &&
        (params->info_string != NULL)) {
        ucs_snprintf_zero(params->info_string, params->info_string_length, "%s",
                          result ? "" : "no angara path leads there");
    }
    return result;
}
#endif

ucs_status_t uct_angara_mpool_init(ucs_mpool_t *mp, size_t size, unsigned chunk,
                                   ucs_mpool_ops_t *ops, const char *name)
{
#if UCT_ANGARA_UCX(14)
    ucs_mpool_params_t params;

    ucs_mpool_params_reset(&params);
    params.elem_size       = size;
    params.alignment       = UCS_SYS_CACHE_LINE_SIZE;
    params.elems_per_chunk = chunk;
    params.ops             = ops;
    params.name            = name;
    return ucs_mpool_init(&params, mp);
#else
    return ucs_mpool_init(mp, 0, size, 0, UCS_SYS_CACHE_LINE_SIZE, chunk, UINT_MAX, ops, name);
#endif
}

void uct_angara_memtype_cache_ask(size_t length)
{
#if UCT_ANGARA_UCX(22)
    ucs_memtype_cache_update(NULL, length, UCS_MEMORY_TYPE_UNKNOWN, UCS_SYS_DEVICE_ID_UNKNOWN, 0);
#else
    ucs_memtype_cache_update(NULL, length, UCS_MEMORY_TYPE_UNKNOWN, UCS_SYS_DEVICE_ID_UNKNOWN);
#endif
}

double uct_angara_memcpy_bandwidth(void)
{
#if UCT_ANGARA_UCX(18)
    return 12e9; /* what it has said for most processors */
#else
#pragma weak ucs_cpu_get_memcpy_bw /* later versions lack it */
    return ucs_cpu_get_memcpy_bw();
#endif
}
