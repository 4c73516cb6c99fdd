/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory domain with a registration cache (UCX's): handles are parts of cached regions, which are
 * dropped when the memory is unmapped.
 */
#include "uct_angara_md.h"

typedef struct uct_angara_rcache_region {
    ucs_rcache_region_t super;
    uct_angara_mem_t    mem;
} uct_angara_rcache_region_t;

static uct_angara_rcache_region_t *uct_angara_rcache_region(uct_mem_h memh)
{
    return ucs_container_of(memh, uct_angara_rcache_region_t, mem);
}

static ucs_status_t uct_angara_rcache_mem_reg_cb(void *context, ucs_rcache_t *rcache, void *arg,
                                                 ucs_rcache_region_t *tl_region, uint16_t flags)
{
    uct_angara_rcache_region_t *region  = ucs_derived_of(tl_region, uct_angara_rcache_region_t);
    void                       *address = (void *)region->super.super.start;
    size_t                      length  = region->super.super.end - region->super.super.start;

    (void)rcache;
    (void)arg;
    return uct_angara_mem_register(
        context, address, length,
        (flags & UCS_RCACHE_MEM_REG_HIDE_ERRORS) ? UCT_MD_MEM_FLAG_HIDE_ERRORS : 0, &region->mem);
}

static void uct_angara_rcache_mem_dereg_cb(void *context, ucs_rcache_t *rcache,
                                           ucs_rcache_region_t *tl_region)
{
    (void)context;
    (void)rcache;
    uct_angara_mem_deregister(&ucs_derived_of(tl_region, uct_angara_rcache_region_t)->mem);
}

static void uct_angara_rcache_dump_region_cb(void *context, ucs_rcache_t *rcache,
                                             ucs_rcache_region_t *tl_region, char *buf, size_t max)
{
    uct_angara_mem_t *mem = &ucs_derived_of(tl_region, uct_angara_rcache_region_t)->mem;

    (void)context;
    (void)rcache;
    snprintf(buf, max, "key 0x%" PRIx64, angara_mr_key(mem->mr));
}

static ucs_rcache_ops_t uct_angara_rcache_ops = {.mem_reg     = uct_angara_rcache_mem_reg_cb,
                                                 .mem_dereg   = uct_angara_rcache_mem_dereg_cb,
                                                 .dump_region = uct_angara_rcache_dump_region_cb};

static ucs_status_t uct_angara_rcache_mem_reg(UCT_ANGARA_MEM_REG_ARGS)
{
    uct_angara_md_t     *md = ucs_derived_of(tl_md, uct_angara_md_t);
    ucs_rcache_region_t *region;
    ucs_status_t         status;

    status = ucs_rcache_get(md->rcache, address, length, PROT_READ | PROT_WRITE, &flags, &region);
    if (status != UCS_OK) {
        return status;
    }

    *memh_p = &ucs_derived_of(region, uct_angara_rcache_region_t)->mem;
    return UCS_OK;
}

static void uct_angara_rcache_invalidated(void *arg)
{
    uct_invoke_completion(arg, UCS_OK);
}

static ucs_status_t uct_angara_rcache_mem_dereg(uct_md_h                         tl_md,
                                                const uct_md_mem_dereg_params_t *params)
{
    uct_angara_md_t            *md = ucs_derived_of(tl_md, uct_angara_md_t);
    uct_angara_rcache_region_t *region;

    UCT_MD_MEM_DEREG_CHECK_PARAMS(params, 1);

    region = uct_angara_rcache_region(params->memh);
    if (UCT_MD_MEM_DEREG_FIELD_VALUE(params, flags, FIELD_FLAGS, 0) &
        UCT_MD_MEM_DEREG_FLAG_INVALIDATE) {
        ucs_rcache_region_invalidate(md->rcache, &region->super, uct_angara_rcache_invalidated,
                                     params->comp);
    }
    ucs_rcache_region_put(md->rcache, &region->super);
    return UCS_OK;
}

uct_md_ops_t uct_angara_md_rcache_ops = {.close              = uct_angara_md_close,
                                         .query              = uct_angara_md_query,
                                         .mem_alloc          = uct_angara_md_mem_alloc,
                                         .mem_free           = uct_angara_md_mem_free,
                                         .mem_reg            = uct_angara_rcache_mem_reg,
                                         .mem_dereg          = uct_angara_rcache_mem_dereg,
                                         .mem_query          = uct_angara_md_mem_query,
                                         .mkey_pack          = uct_angara_md_mkey_pack,
                                         .detect_memory_type = uct_angara_md_detect_memory_type};

ucs_status_t uct_angara_rcache_create(uct_angara_md_t *md, const uct_angara_md_config_t *config)
{
    ucs_rcache_params_t params;
    ucs_status_t        status;

    uct_md_set_rcache_params(&params, &config->rcache);
    params.region_struct_size = sizeof(uct_angara_rcache_region_t);
    params.max_alignment      = ucs_get_page_size();
    params.ucm_events         = UCM_EVENT_VM_UNMAPPED;
    params.context            = md;
    params.ops                = &uct_angara_rcache_ops;
    status = ucs_rcache_create(&params, "angara", ucs_stats_get_root(), &md->rcache);
    if (status != UCS_OK) {
        md->rcache = NULL;
        return status;
    }

    md->super.ops = &uct_angara_md_rcache_ops;
    md->reg_cost  = ucs_linear_func_make(uct_md_rcache_overhead(&config->rcache), 0);
    return UCS_OK;
}
