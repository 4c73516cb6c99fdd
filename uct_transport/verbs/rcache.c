/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory domain with a registration cache (UCX's): handles are parts of cached regions, which are
 * dropped when the memory is unmapped. Of that UCX learns by hooks in the C library, which raw
 * system calls (and what runs before the hooks are there) get past. The kernel doesn't miss any: a
 * region that it has marked as stale isn't used again, see uct_angara_rcache_mem_reg().
 */
#include "verbs/md.h"

#if UCT_ANGARA_HAS_RCACHE

/** How often a range is registered that is stale by the time it has been. */
#define UCT_ANGARA_RCACHE_TRIES 4

/** What a registration by the cache is told, and tells. */
typedef struct uct_angara_rcache_arg {
    unsigned flags;  /**< UCT_MD_MEM_* */
    int      is_new; /**< the region wasn't in the cache */
} uct_angara_rcache_arg_t;

typedef struct uct_angara_rcache_region {
    ucs_rcache_region_t super;
    uct_angara_mem_t    mem;
} uct_angara_rcache_region_t;

static uct_angara_rcache_region_t *uct_angara_rcache_region(uct_mem_h memh)
{
    return ucs_container_of(memh, uct_angara_rcache_region_t, mem);
}

ucs_status_t uct_angara_rcache_mem_reg_cb(void *context, ucs_rcache_t *rcache, void *arg,
                                          ucs_rcache_region_t *tl_region, uint16_t flags)
{
    uct_angara_rcache_region_t *region  = ucs_derived_of(tl_region, uct_angara_rcache_region_t);
    void                       *address = (void *)region->super.super.start;
    size_t                      length  = region->super.super.end - region->super.super.start;
    uct_angara_rcache_arg_t    *reg     = arg;
    unsigned                    hide    = reg->flags & UCT_MD_MEM_FLAG_HIDE_ERRORS;
    ucs_status_t                status;

    (void)rcache;
    if (flags & UCS_RCACHE_MEM_REG_HIDE_ERRORS) {
        hide = UCT_MD_MEM_FLAG_HIDE_ERRORS;
    }

    status = uct_angara_mem_register(context, address, length, hide, &region->mem);
    if ((status == UCS_OK) && uct_angara_mr_is_read_only(region->mem.mr) &&
        (flags & UCS_RCACHE_MEM_REG_HIDE_ERRORS)) {
        /* Merged with memory that can be written: the cache tries the range by itself. */
        uct_angara_mem_deregister(context, &region->mem);
        return UCS_ERR_INVALID_PARAM;
    }

    reg->is_new = 1;
    return status;
}

static void uct_angara_rcache_mem_dereg_cb(void *context, ucs_rcache_t *rcache,
                                           ucs_rcache_region_t *tl_region)
{
    (void)rcache;
    uct_angara_mem_deregister(context, &ucs_derived_of(tl_region, uct_angara_rcache_region_t)->mem);
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

static void uct_angara_rcache_dropped(void *arg)
{
    (void)arg;
}

/*
 * A stale region leaves the cache, and so does one that couldn't be written when it was made: now
 * perhaps it can. Operations that were posted go on with the old pages, as they were meant to; the
 * last of them takes it back.
 */
ucs_status_t uct_angara_rcache_mem_reg(uct_md_h tl_md, void *address, size_t length,
                                       uct_angara_mem_reg_arg_t flags, uct_mem_h *memh_p)
{
    uct_angara_md_t     *md = ucs_derived_of(tl_md, uct_angara_md_t);
    ucs_rcache_region_t *region;
    uct_angara_mem_t    *mem;
    ucs_status_t         status;
    unsigned             i;

    for (i = 0; i < UCT_ANGARA_RCACHE_TRIES; ++i) {
        uct_angara_rcache_arg_t arg = {.flags = flags, .is_new = 0};

        status = ucs_rcache_get(md->rcache, address, length, PROT_READ | PROT_WRITE, &arg, &region);
        if (status != UCS_OK) {
            return status;
        }

        mem = &ucs_derived_of(region, uct_angara_rcache_region_t)->mem;
        if (ucs_likely(!angara_mr_is_stale(mem->mr) &&
                       (arg.is_new || !uct_angara_mr_is_read_only(mem->mr)))) {
            *memh_p = mem;
            return UCS_OK;
        }

        ucs_debug("angara: %p..%p may not be as it was registered: registering it again",
                  mem->address, UCS_PTR_BYTE_OFFSET(mem->address, mem->length));
        ucs_rcache_region_invalidate(md->rcache, region, uct_angara_rcache_dropped, NULL);
        ucs_rcache_region_put(md->rcache, region);
    }

    uct_md_log_mem_reg_error(flags,
                             "angara: %p..%p can't be registered: it is being unmapped or remapped",
                             address, UCS_PTR_BYTE_OFFSET(address, length));
    return UCS_ERR_INVALID_ADDR;
}

static void uct_angara_rcache_invalidated(void *arg)
{
    uct_angara_waiter_t *waiter = arg;

    uct_angara_waiters_tell(waiter->md, waiter);
}

ucs_status_t uct_angara_rcache_mem_dereg(uct_md_h tl_md, const uct_md_mem_dereg_params_t *params)
{
    uct_angara_md_t            *md = ucs_derived_of(tl_md, uct_angara_md_t);
    uct_angara_rcache_region_t *region;
    uct_angara_waiter_t        *waiter;

    UCT_MD_MEM_DEREG_CHECK_PARAMS(params, 1);

    region = uct_angara_rcache_region(params->memh);
    if (UCT_MD_MEM_DEREG_FIELD_VALUE(params, flags, FIELD_FLAGS, 0) &
        UCT_MD_MEM_DEREG_FLAG_INVALIDATE) {
        waiter = uct_angara_waiter_new(md, params->comp);
        if (waiter == NULL) {
            return UCS_ERR_NO_MEMORY;
        }
        ucs_rcache_region_invalidate(md->rcache, &region->super, uct_angara_rcache_invalidated,
                                     waiter);
    }
    ucs_rcache_region_put(md->rcache, &region->super);
    return UCS_OK;
}

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
    }
    return status;
}

#endif
