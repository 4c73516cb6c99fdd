/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory domain: what UCX asks of it. Registrations are made by mem.c, and kept for a second use by
 * reuse.c or rcache.c. Memory is the host's, or a GPU's where the library can register that; which
 * of them a pointer is, UCX learns from the component of gpu/.
 */
#include "verbs/md.h"

#include "base/memtype.h"
#include "base/status.h"

#include "verbs/settings.h"

ucs_config_field_t uct_angara_md_config_table[] = {
    {"", "", NULL, ucs_offsetof(uct_angara_md_config_t, super),
     UCS_CONFIG_TYPE_TABLE(uct_md_config_table)},

    UCT_ANGARA_CONFIG_FIELD(
        "RCACHE", "try",
        "Cache memory registrations, by UCX_ANGARA_RCACHE_*. \"try\" does where registering is "
        "expensive\n"
        "(the NIC) and does not on the soft fabric, where it is cheaper than the cache. From UCX\n"
        "1.14 on UCP has a cache of its own (UCX_RCACHE_*), and this has no effect.",
        uct_angara_md_config_t, rcache_enable, UCS_CONFIG_TYPE_TERNARY),

    UCT_ANGARA_CONFIG_FIELD(
        "REUSE", "y",
        "Keep the last 256 registrations for put and get and use them again for the same "
        "buffers,\n"
        "where that needs no cache with memory hooks (the soft fabric, with ANGARA_MR_MAX of at "
        "least 1024).",
        uct_angara_md_config_t, reuse, UCS_CONFIG_TYPE_BOOL),

    UCT_ANGARA_CONFIG_FIELD(
        "GPU_ZCOPY", "y",
        "Register GPU memory: messages above the rendezvous threshold go from GPU to GPU without\n"
        "the host.",
        uct_angara_md_config_t, gpu_zcopy, UCS_CONFIG_TYPE_BOOL),

#if UCT_ANGARA_HAS_RCACHE
    {"", "", NULL, ucs_offsetof(uct_angara_md_config_t, rcache),
     UCS_CONFIG_TYPE_TABLE(uct_md_config_rcache_table)},
#endif

    {.name = NULL}};

/** Types of memory that can be registered. */
static uint64_t uct_angara_md_mem_types(const uct_angara_md_t *md)
{
    /* A cache joins ranges, and hears nothing of GPU memory that is freed. */
    return UCS_BIT(UCS_MEMORY_TYPE_HOST) |
           (((md->attr.caps & ANGARA_CAP_GPU_MEMORY) && (md->rcache == NULL) && md->gpu_zcopy) ?
                uct_angara_memtypes_device() :
                0);
}

static ucs_status_t uct_angara_md_query(uct_md_h tl_md, uct_angara_md_attr_t *attr)
{
    uct_angara_md_t     *md   = ucs_derived_of(tl_md, uct_angara_md_t);
    uct_angara_md_caps_t caps = {.flags = UCT_MD_FLAG_REG | UCT_MD_FLAG_ALLOC | UCT_MD_FLAG_FIXED |
                                          UCT_MD_FLAG_NEED_MEMH | UCT_MD_FLAG_NEED_RKEY |
                                          UCT_ANGARA_MD_FLAG_INVALIDATE,
                                 .reg_mem_types    = uct_angara_md_mem_types(md),
                                 .cache_mem_types  = uct_angara_md_mem_types(md),
                                 .alloc_mem_types  = UCS_BIT(UCS_MEMORY_TYPE_HOST),
                                 .access_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST),
                                 .rkey_packed_size = sizeof(uct_angara_packed_rkey_t),
                                 .reg_cost         = md->reg_cost};

    uct_angara_md_attr_fill(attr, &caps);
    return UCS_OK;
}

/* ---- registration -------------------------------------------------------------------------- */

/*
 * Take a registration back. After UCS_OK nobody can reach the memory any more; those who wait are
 * told when that is so.
 */
static ucs_status_t uct_angara_md_release(uct_angara_md_t *md, uct_angara_mem_t *mem)
{
    ucs_status_t status;

    if (mem == NULL) {
        return UCS_OK;
    }

    status = uct_angara_mem_deregister(md, mem);
    uct_angara_waiters_tell(md, mem->waiters);
    ucs_free(mem);
    return status;
}

static ucs_status_t uct_angara_md_mem_reg(uct_md_h tl_md, void *address, size_t length,
                                          uct_angara_mem_reg_arg_t arg, uct_mem_h *memh_p)
{
    uct_angara_md_t  *md        = ucs_derived_of(tl_md, uct_angara_md_t);
    unsigned          flags     = uct_angara_mem_reg_flags(arg);
    int               is_shared = uct_angara_reuse_allows(md, flags);
    uct_angara_mem_t *mem, *old;
    ucs_status_t      status;

    if (address == NULL) { /* early versions of UCX refuse it themselves */
        return UCS_ERR_INVALID_PARAM;
    }

    if (ucs_unlikely(md->has_owed)) {
        uct_angara_md_collect(md);
    }

    if (is_shared) {
        mem = uct_angara_reuse_get(md, address, length, &old);
        uct_angara_md_release(md, old);
        if (mem != NULL) {
            *memh_p = mem;
            return UCS_OK;
        }
    }

    mem = ucs_malloc(sizeof(*mem), "angara_mem");
    if (mem == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = uct_angara_mem_register(md, address, length, flags, mem);
    if (status != UCS_OK) {
        ucs_free(mem);
        return status;
    }

    *memh_p = mem;
    if (is_shared && !uct_angara_mr_is_read_only(mem->mr)) {
        uct_angara_md_release(md, uct_angara_reuse_add(md, mem));
    }
    return UCS_OK;
}

/*
 * UCX has no word for memory that is owed. Without a completion the answer is UCS_ERR_BUSY, which
 * UCP warns of; with one, the completion comes when the memory isn't accessed any more. In either
 * case the handle is done, and the md looks after the region.
 */
static ucs_status_t uct_angara_md_mem_dereg(uct_md_h tl_md, const uct_md_mem_dereg_params_t *params)
{
    uct_angara_md_t     *md     = ucs_derived_of(tl_md, uct_angara_md_t);
    uct_angara_waiter_t *waiter = NULL;
    uct_angara_mem_t    *mem;
    ucs_status_t         status;

    UCT_MD_MEM_DEREG_CHECK_PARAMS(params, 1);

    mem = params->memh;
    if (UCT_MD_MEM_DEREG_FIELD_VALUE(params, flags, FIELD_FLAGS, 0) &
        UCT_MD_MEM_DEREG_FLAG_INVALIDATE) {
        waiter = uct_angara_waiter_new(md, params->comp);
        if (waiter == NULL) {
            return UCS_ERR_NO_MEMORY;
        }
    }

    if (!mem->is_shared) {
        mem->waiters = waiter;
    } else if (!uct_angara_reuse_put(md, mem, waiter)) {
        return UCS_OK;
    }

    status = uct_angara_md_release(md, mem);
    return ((status == UCS_ERR_BUSY) && (waiter != NULL)) ? UCS_OK : status;
}

/* ---- allocation ---------------------------------------------------------------------------- */

static ucs_status_t uct_angara_md_mem_alloc(UCT_ANGARA_MEM_ALLOC_ARGS)
{
    uct_angara_md_t  *md = ucs_derived_of(tl_md, uct_angara_md_t);
    uct_angara_mem_t *mem;
    angara_status_t   status;
    size_t            length;
    void             *address;

    if (mem_type != UCS_MEMORY_TYPE_HOST) {
        return UCS_ERR_UNSUPPORTED;
    }

    mem = ucs_malloc(sizeof(*mem), "angara_mem");
    if (mem == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    length  = *length_p;
    address = *address_p;
    status  = (flags & UCT_MD_MEM_FLAG_FIXED) ?
                  angara_mem_alloc_at(md->dom, address, &length, ANGARA_ACCESS_ALL, &mem->mr) :
                  angara_mem_alloc(md->dom, &length, ANGARA_ACCESS_ALL, &address, &mem->mr);
    if (status != ANGARA_OK) {
        uct_md_log_mem_reg_error(flags, "angara: allocating %zu bytes for %s failed: %s", *length_p,
                                 alloc_name, angara_strerror(status));
        ucs_free(mem);
        return uct_angara_status(status);
    }

    *mem = (uct_angara_mem_t){.mr = mem->mr, .address = address, .length = length, .flags = flags};
    *length_p  = length;
    *address_p = address;
    *memh_p    = mem;
    return UCS_OK;
}

static ucs_status_t uct_angara_md_mem_free(uct_md_h tl_md, uct_mem_h tl_memh)
{
    uct_angara_md_t  *md  = ucs_derived_of(tl_md, uct_angara_md_t);
    uct_angara_mem_t *mem = tl_memh;
    ucs_status_t      status;

    status = uct_angara_mem_ended(md, mem, angara_mem_free(mem->mr));
    ucs_free(mem);
    return status;
}

/* ---- keys ---------------------------------------------------------------------------------- */

static ucs_status_t uct_angara_md_mkey_pack(UCT_ANGARA_MKEY_PACK_ARGS)
{
    uct_angara_mem_t        *mem = tl_memh;
    uct_angara_packed_rkey_t packed;
    ucs_status_t             status;

    if (ucs_unlikely(!uct_angara_mem_is_good(mem, mem->address, mem->length, 0))) {
        status = uct_angara_mem_renew(ucs_derived_of(tl_md, uct_angara_md_t), mem, mem->address,
                                      mem->length, 0);
        if (status != UCS_OK) {
            return status;
        }
    }

    packed.key  = angara_mr_key(uct_angara_mem_mr(mem));
    packed.base = (uintptr_t)mem->address;
    memcpy(rkey_buffer, &packed, sizeof(packed));
    return UCS_OK;
}

ucs_status_t uct_angara_rkey_unpack(UCT_ANGARA_RKEY_UNPACK_ARGS)
{
    uct_angara_packed_rkey_t packed;
    uct_angara_rkey_t       *rkey;

    memcpy(&packed, rkey_buffer, sizeof(packed));
    if (packed.key == 0) {
        ucs_error("angara: a remote key without a region");
        return UCS_ERR_INVALID_PARAM;
    }

    rkey = ucs_malloc(sizeof(*rkey), "angara_rkey");
    if (rkey == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    rkey->key  = packed.key;
    rkey->base = packed.base;
    *rkey_p    = (uintptr_t)rkey;
    *handle_p  = NULL;
    return UCS_OK;
}

ucs_status_t uct_angara_rkey_release(uct_component_t *component, uct_rkey_t rkey, void *handle)
{
    (void)component;
    (void)handle;
    ucs_free((void *)rkey);
    return UCS_OK;
}

/* ---- kinds of memory ----------------------------------------------------------------------- */

static ucs_status_t uct_angara_md_mem_query(uct_md_h tl_md, const void *address, size_t length,
                                            uct_angara_mem_attr_t *attr)
{
    (void)tl_md;
    (void)address;
    (void)length;
    (void)attr;
    return UCS_ERR_UNSUPPORTED; /* host memory is what nobody claims */
}

static ucs_status_t uct_angara_md_detect_memory_type(uct_md_h tl_md, const void *address,
                                                     size_t length, ucs_memory_type_t *mem_type_p)
{
    (void)tl_md;
    (void)address;
    (void)length;
    (void)mem_type_p;
    return UCS_ERR_UNSUPPORTED;
}

/* ---- the domain ---------------------------------------------------------------------------- */

static void uct_angara_md_close(uct_md_h tl_md)
{
    uct_angara_md_t *md = ucs_derived_of(tl_md, uct_angara_md_t);
    angara_status_t  status;

    if (md->rcache != NULL) {
        ucs_rcache_destroy(md->rcache);
    }
    uct_angara_reuse_cleanup(md);

    status = angara_close(md->dom); /* it stays, with what is owed, where it is busy */
    if (status != ANGARA_OK) {
        ucs_debug("angara: closing the domain: %s", angara_strerror(status));
    }
    uct_angara_waiters_complete(md->owed_waiters, uct_angara_status(status));
    pthread_spin_destroy(&md->reuse_lock);
    pthread_mutex_destroy(&md->lock);
    ucs_free(md);
}

#define UCT_ANGARA_MD_OPS(_mem_reg, _mem_dereg)                                             \
    {                                                                                       \
        .close = uct_angara_md_close, .query = uct_angara_md_query,                         \
        .mem_alloc = uct_angara_md_mem_alloc, .mem_free = uct_angara_md_mem_free,           \
        .mem_reg = _mem_reg, .mem_dereg = _mem_dereg, .mem_query = uct_angara_md_mem_query, \
        .mkey_pack          = uct_angara_md_mkey_pack,                                      \
        .detect_memory_type = uct_angara_md_detect_memory_type, UCT_ANGARA_MD_OPS_MORE      \
    }

static uct_md_ops_t uct_angara_md_ops = UCT_ANGARA_MD_OPS(uct_angara_md_mem_reg,
                                                          uct_angara_md_mem_dereg);

#if UCT_ANGARA_HAS_RCACHE

static uct_md_ops_t uct_angara_md_rcache_ops = UCT_ANGARA_MD_OPS(uct_angara_rcache_mem_reg,
                                                                 uct_angara_rcache_mem_dereg);

/* Where registering is expensive, or the user says so. */
static ucs_status_t uct_angara_md_cache(uct_angara_md_t *md, const uct_angara_md_config_t *config)
{
    ucs_status_t status;

    if ((config->rcache_enable == UCS_NO) ||
        ((config->rcache_enable != UCS_YES) && (md->attr.caps & ANGARA_CAP_REG_CHEAP))) {
        return UCS_OK;
    }

    status = uct_angara_rcache_create(md, config);
    if (status == UCS_OK) {
        md->super.ops = &uct_angara_md_rcache_ops;
        md->reg_cost  = ucs_linear_func_make(uct_md_rcache_overhead(&config->rcache), 0);
    } else if (config->rcache_enable == UCS_YES) {
        ucs_error("angara: UCX_ANGARA_RCACHE=y, but no registration cache could be made: %s",
                  ucs_status_string(status));
        return status;
    }
    return UCS_OK;
}

#else

static ucs_status_t uct_angara_md_cache(uct_angara_md_t *md, const uct_angara_md_config_t *config)
{
    (void)md;
    (void)config;
    return UCS_OK;
}

#endif

/*
 * What zero copy costs beside the registration, in seconds. UCX 1.13 to 1.15 multiplies both by its
 * estimate of a copy's bandwidth, 5 to 6 GB/s on most processors, which is five times too low; and
 * get_bcopy copies mapped memory once, as get_zcopy does. With this it takes get_zcopy from 6 or 7
 * KiB on, where measured to be right. Later ones don't ask, where they cache registrations.
 */
#define UCT_ANGARA_REG_AROUND 1e-6

/*
 * Time to register and deregister a region, measured once: it decides about zero copy. The shortest
 * of some runs: who loses the processor meanwhile must choose as the other ranks do.
 */
static double uct_angara_md_measure_reg(uct_angara_md_t *md)
{
    const unsigned runs = 8, rounds = 16;
    ucs_time_t     best = UCS_TIME_INFINITY, start;
    char           buffer[64];
    angara_mr_h    mr;
    unsigned       run, i;

    for (run = 0; run < runs; ++run) {
        start = ucs_get_time();
        for (i = 0; i < rounds; ++i) {
            if (angara_mr_register(md->dom, buffer, sizeof(buffer), 0, &mr) != ANGARA_OK) {
                return 1e-6 + UCT_ANGARA_REG_AROUND;
            }
            angara_mr_deregister(mr);
        }
        best = ucs_min(best, ucs_get_time() - start);
    }
    return ucs_time_to_sec(best) / rounds + UCT_ANGARA_REG_AROUND;
}

ucs_status_t uct_angara_md_open(uct_component_t *component, const char *md_name,
                                const uct_md_config_t *md_config, uct_md_h *md_p)
{
    const uct_angara_md_config_t *config = ucs_derived_of(md_config, uct_angara_md_config_t);
    uct_angara_md_t              *md;
    angara_status_t               angara_status;
    ucs_status_t                  status;

    md = ucs_calloc(1, sizeof(*md), "angara_md");
    if (md == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    md->super.ops       = &uct_angara_md_ops;
    md->super.component = component;
    pthread_mutex_init(&md->lock, NULL);
    pthread_spin_init(&md->reuse_lock, PTHREAD_PROCESS_PRIVATE);

    angara_status = angara_open(md_name, &md->dom);
    if (angara_status != ANGARA_OK) {
        ucs_diag("angara: cannot open %s: %s", md_name, angara_strerror(angara_status));
        status = uct_angara_status(angara_status);
        goto err_free;
    }

    angara_status = angara_query(md->dom, &md->attr);
    if (angara_status != ANGARA_OK) {
        status = uct_angara_status(angara_status);
        goto err_close;
    }

    md->gpu_zcopy = config->gpu_zcopy;
    md->has_reuse = config->reuse && (md->attr.caps & ANGARA_CAP_REG_CHEAP) &&
                    (md->attr.mr_max >= 4 * UCT_ANGARA_REUSE_SETS * UCT_ANGARA_REUSE_WAYS);
    md->reg_cost = ucs_linear_func_make(uct_angara_md_measure_reg(md), 0);
    status       = uct_angara_md_cache(md, config);
    if (status != UCS_OK) {
        goto err_close;
    }

    ucs_info("angara: registrations are %s",
             (md->rcache != NULL) ? "cached (UCX_ANGARA_RCACHE)" :
             md->has_reuse ? "not cached, the last ones of put and get kept (UCX_ANGARA_REUSE)" :
                             "not cached");
    *md_p = &md->super;
    return UCS_OK;

err_close:
    angara_close(md->dom);
err_free:
    pthread_spin_destroy(&md->reuse_lock);
    pthread_mutex_destroy(&md->lock);
    ucs_free(md);
    return status;
}
