/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The only place that knows UCX versions, with compat.c: which one this is built for, the headers
 * that moved, and the shims that hide changed signatures from the rest of the transport. Supporting
 * another minor version of UCX means extending these two files and nothing else.
 */
#ifndef UCT_ANGARA_COMPAT_H
#define UCT_ANGARA_COMPAT_H

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <uct/api/uct.h>
#include <uct/api/v2/uct_v2.h>
#include <uct/api/version.h>
#include <uct/base/uct_iface.h>
#include <uct/base/uct_md.h>
#include <uct/base/uct_worker.h>
#include <ucs/arch/bitops.h>
#include <ucs/datastruct/arbiter.h>
#include <ucs/datastruct/list.h>
#include <ucs/datastruct/mpool.inl>
#include <ucs/datastruct/queue.h>
#include <ucs/debug/assert.h>
#include <ucs/debug/log.h>
#include <ucs/debug/memtrack_int.h>
#include <ucs/memory/rcache.h>
#include <ucs/sys/math.h>
#include <ucs/sys/string.h>
#include <ucs/sys/sys.h>
#include <ucs/type/class.h>
#include <ucs/time/time.h>
#include <ucm/api/ucm.h>

/** Version of UCX that the transport is built for. */
#define UCT_ANGARA_UCX_MAJOR  UCT_VERNO_MAJOR
#define UCT_ANGARA_UCX_MINOR  UCT_VERNO_MINOR
#define UCT_ANGARA_UCX_STRING UCT_VERNO_STRING

/*
 * The settings of UCX's configure that change the layout of structs which transport and UCX share:
 * statistics nodes in every object, and the assertions' fields in ucs_arbiter_group_t.
 */
#ifdef ENABLE_STATS
#define UCT_ANGARA_UCX_STATS 1
#else
#define UCT_ANGARA_UCX_STATS 0
#endif
#define UCT_ANGARA_UCX_ASSERT UCS_ENABLE_ASSERT

#if (UCT_ANGARA_UCX_MAJOR != 1) || (UCT_ANGARA_UCX_MINOR < 13) || (UCT_ANGARA_UCX_MINOR > 22)
#error "base/compat.h knows UCX 1.13 to 1.22: add the shims of this version there"
#endif

/** Is it 1.@a _minor or later? */
#define UCT_ANGARA_UCX(_minor) (UCT_ANGARA_UCX_MINOR >= (_minor))

#if UCT_ANGARA_UCX(17)
#include <ucs/sys/ptr_arith.h>
#endif

/**
 * UCP decides for rendezvous by one threshold for all types of memory; later ones have estimates.
 * In a UCX tree the transport isn't linked with libucp; other C libraries than glibc tell otherwise
 * where a library's tables are.
 */
#if UCT_ANGARA_UCX(14) || defined(UCT_ANGARA_IN_TREE) || !defined(__GLIBC__)
#define UCT_ANGARA_HAS_GPU_RNDV 0
#else
#define UCT_ANGARA_HAS_GPU_RNDV 1
#endif

/** Registrations are cached by us; later UCP does it, for what uct_angara_md_caps_t names. */
#define UCT_ANGARA_HAS_RCACHE !UCT_ANGARA_UCX(14)

/* What not every version has: weak, so that the library is loaded there and says what is wrong. */
#if UCT_ANGARA_UCX(14)
#pragma weak ucs_mpool_params_reset
#else
#pragma weak uct_md_config_rcache_table
#pragma weak uct_md_rcache_overhead
#pragma weak uct_md_set_rcache_params
#endif
#if UCT_ANGARA_UCX(17)
#pragma weak ucs_config_doc_nop
#endif
#if UCT_ANGARA_UCX(20)
#pragma weak uct_iface_base_query_v2
#endif

/** A function of UCX's that does nothing, in the place of one of type @a _type. */
#define UCT_ANGARA_EMPTY(_type, _function) ((_type)(void (*)(void))(_function))

/** One that answers UCS_ERR_UNSUPPORTED. */
#define UCT_ANGARA_UNSUPPORTED(_type) UCT_ANGARA_EMPTY(_type, ucs_empty_function_return_unsupported)

/* ---- component and memory domain ----------------------------------------------------------- */

#if UCT_ANGARA_UCX(16)
#define UCT_ANGARA_COMPONENT_MORE(_rkey_compare) .rkey_compare = _rkey_compare,
/** Define @a _name, static: the operation that answers @a _order of rkey1 and rkey2, as memcmp().
 */
#define UCT_ANGARA_RKEY_COMPARE(_name, _order)                                           \
    static ucs_status_t _name(uct_component_t *component UCS_V_UNUSED, uct_rkey_t rkey1, \
                              uct_rkey_t rkey2, const uct_rkey_compare_params_t *params, \
                              int *result)                                               \
    {                                                                                    \
        if ((params->field_mask != 0) || (result == NULL)) {                             \
            return UCS_ERR_INVALID_PARAM;                                                \
        }                                                                                \
        *result = _order;                                                                \
        return UCS_OK;                                                                   \
    }
#else
#define UCT_ANGARA_COMPONENT_MORE(_rkey_compare)
#define UCT_ANGARA_RKEY_COMPARE(_name, _order)
#endif

/* Operations of memory domains that ours don't have: no slot is left empty. */
#if UCT_ANGARA_UCX(21)
#define UCT_ANGARA_MD_OPS_21 .mem_elem_pack = UCT_ANGARA_UNSUPPORTED(uct_md_mem_elem_pack_func_t),
#else
#define UCT_ANGARA_MD_OPS_21
#endif
#if UCT_ANGARA_UCX(16)
#define UCT_ANGARA_MD_OPS_16
#else
#define UCT_ANGARA_MD_OPS_16                                                         \
    .is_sockaddr_accessible = UCT_ANGARA_EMPTY(uct_md_is_sockaddr_accessible_func_t, \
                                               ucs_empty_function_return_zero_int),
#endif
#if UCT_ANGARA_UCX(14)
#define UCT_ANGARA_MD_OPS_14 .mem_attach = UCT_ANGARA_UNSUPPORTED(uct_md_mem_attach_func_t),
#else
#define UCT_ANGARA_MD_OPS_14
#endif
#define UCT_ANGARA_MD_OPS_MORE                                      \
    .mem_advise = UCT_ANGARA_UNSUPPORTED(uct_md_mem_advise_func_t), \
    UCT_ANGARA_MD_OPS_14 UCT_ANGARA_MD_OPS_16 UCT_ANGARA_MD_OPS_21
#if UCT_ANGARA_UCX(14)
typedef uct_md_attr_v2_t               uct_angara_md_attr_t;
typedef const uct_md_mem_reg_params_t *uct_angara_mem_reg_arg_t;
#else
typedef uct_md_attr_t uct_angara_md_attr_t;
typedef unsigned      uct_angara_mem_reg_arg_t;
#endif

/** What a memory domain tells of itself. */
typedef struct uct_angara_md_caps {
    uint64_t          flags;
    uint64_t          reg_mem_types;
    uint64_t          cache_mem_types; /**< UCP keeps registrations; it insists for rendezvous */
    uint64_t          alloc_mem_types;
    uint64_t          access_mem_types;
    uint64_t          detect_mem_types;
    size_t            rkey_packed_size;
    ucs_linear_func_t reg_cost;
} uct_angara_md_caps_t;

/** Handles can be taken back while peers use them. */
#if UCT_ANGARA_UCX(15)
#define UCT_ANGARA_MD_FLAG_INVALIDATE \
    (UCT_MD_FLAG_INVALIDATE | UCT_MD_FLAG_INVALIDATE_RMA | UCT_MD_FLAG_INVALIDATE_AMO)
#else
#define UCT_ANGARA_MD_FLAG_INVALIDATE UCT_MD_FLAG_INVALIDATE
#endif

/** A domain that only copies within the process; and all variables, as the last argument of
 * ucs_config_parser_print_all_opts(). */
#if UCT_ANGARA_UCX(19)
#define UCT_ANGARA_MD_FLAG_MEMTYPE_COPY UCT_MD_FLAG_MEMTYPE_COPY
#define UCT_ANGARA_PRINT_FILTER         , NULL
#else
#define UCT_ANGARA_MD_FLAG_MEMTYPE_COPY 0
#define UCT_ANGARA_PRINT_FILTER
#endif

void uct_angara_md_attr_fill(uct_angara_md_attr_t *attr, const uct_angara_md_caps_t *caps);

/** UCT_MD_MEM_* of a registration. */
static inline unsigned uct_angara_mem_reg_flags(uct_angara_mem_reg_arg_t arg)
{
#if UCT_ANGARA_UCX(14)
    return UCT_MD_MEM_REG_FIELD_VALUE(arg, flags, FIELD_FLAGS, 0);
#else
    return arg;
#endif
}

/* Arguments of the operations of memory domains whose number has changed. */
#if UCT_ANGARA_UCX(16)
#define UCT_ANGARA_MKEY_PACK_ARGS                                                              \
    uct_md_h tl_md, uct_mem_h tl_memh, void *address UCS_V_UNUSED, size_t length UCS_V_UNUSED, \
        const uct_md_mkey_pack_params_t *params UCS_V_UNUSED, void *rkey_buffer
#else
#define UCT_ANGARA_MKEY_PACK_ARGS                                                            \
    uct_md_h tl_md, uct_mem_h tl_memh, const uct_md_mkey_pack_params_t *params UCS_V_UNUSED, \
        void *rkey_buffer
#endif
#if UCT_ANGARA_UCX(19)
#define UCT_ANGARA_MEM_ALLOC_ARGS                                                      \
    uct_md_h tl_md, size_t *length_p, void **address_p, ucs_memory_type_t mem_type,    \
        ucs_sys_device_t sys_dev UCS_V_UNUSED, unsigned flags, const char *alloc_name, \
        uct_mem_h *memh_p
#define UCT_ANGARA_RKEY_UNPACK_ARGS                                   \
    uct_component_t *component UCS_V_UNUSED, const void *rkey_buffer, \
        const uct_rkey_unpack_params_t *params UCS_V_UNUSED, uct_rkey_t *rkey_p, void **handle_p
#else
#define UCT_ANGARA_MEM_ALLOC_ARGS                                                   \
    uct_md_h tl_md, size_t *length_p, void **address_p, ucs_memory_type_t mem_type, \
        unsigned flags, const char *alloc_name, uct_mem_h *memh_p
#define UCT_ANGARA_RKEY_UNPACK_ARGS                                                       \
    uct_component_t *component UCS_V_UNUSED, const void *rkey_buffer, uct_rkey_t *rkey_p, \
        void **handle_p
#endif

#if UCT_ANGARA_UCX(22)
typedef uct_md_mem_attr_v2_t uct_angara_mem_attr_t;
#else
typedef uct_md_mem_attr_t uct_angara_mem_attr_t;
#endif

/* ---- interface and endpoint ---------------------------------------------------------------- */

/** Reaches other nodes. */
#ifdef UCT_IFACE_FLAG_INTER_NODE
#define UCT_ANGARA_IFACE_FLAG_INTER_NODE UCT_IFACE_FLAG_INTER_NODE
#else
#define UCT_ANGARA_IFACE_FLAG_INTER_NODE 0
#endif

#if UCT_ANGARA_UCX(14)
#define UCT_ANGARA_OPS_14 \
    .ep_connect_to_ep_v2 = UCT_ANGARA_UNSUPPORTED(uct_ep_connect_to_ep_v2_func_t),
#else
#define UCT_ANGARA_OPS_14
#endif
#if UCT_ANGARA_UCX(15)
#define UCT_ANGARA_OPS_15 .iface_is_reachable_v2 = uct_angara_is_reachable_v2,
int uct_angara_is_reachable_v2(const uct_iface_h                      iface,
                               const uct_iface_is_reachable_params_t *params);
#else
#define UCT_ANGARA_OPS_15
#endif
#if UCT_ANGARA_UCX(16)
#define UCT_ANGARA_OPS_16(_is_connected) .ep_is_connected = _is_connected,
/** Define @a _name, static: the operation that asks @a _function(ep, device and iface address). */
#define UCT_ANGARA_IS_CONNECTED(_name, _function)                                   \
    static int _name(const uct_ep_h ep, const uct_ep_is_connected_params_t *params) \
    {                                                                               \
        const uint64_t needed = UCT_EP_IS_CONNECTED_FIELD_DEVICE_ADDR |             \
                                UCT_EP_IS_CONNECTED_FIELD_IFACE_ADDR;               \
                                                                                    \
        return ucs_test_all_flags(params->field_mask, needed) &&                    \
               _function(ep, params->device_addr, params->iface_addr);              \
    }
#else
#define UCT_ANGARA_OPS_16(_is_connected)
#define UCT_ANGARA_IS_CONNECTED(_name, _function)
#endif
#if UCT_ANGARA_UCX(20)
#define UCT_ANGARA_OPS_20                                                             \
    UCT_ANGARA_OPS_20_ONLY                                                            \
    UCT_ANGARA_OPS_QUERY UCT_ANGARA_OPS_22.ep_get_device_ep = UCT_ANGARA_UNSUPPORTED( \
        uct_ep_get_device_ep_func_t),
#else
#define UCT_ANGARA_OPS_20
#endif
#if UCT_ANGARA_UCX_MINOR == 20
#define UCT_ANGARA_OPS_20_ONLY \
    .iface_mem_element_pack = UCT_ANGARA_UNSUPPORTED(uct_iface_mem_element_pack_func_t),
#else
#define UCT_ANGARA_OPS_20_ONLY
#endif
#if UCT_ANGARA_UCX_MINOR == 21
#define UCT_ANGARA_OPS_QUERY
#else
#define UCT_ANGARA_OPS_QUERY .iface_query_v2 = uct_iface_base_query_v2,
#endif
#if UCT_ANGARA_UCX(22)
#define UCT_ANGARA_OPS_22 .ep_put_sgl_zcopy = UCT_ANGARA_UNSUPPORTED(uct_ep_put_sgl_zcopy_func_t),
#else
#define UCT_ANGARA_OPS_22
#endif

/** Initialiser of a table of internal operations. */
#define UCT_ANGARA_INTERNAL_OPS(_estimate_perf, _is_connected)                                     \
    {                                                                                              \
        .iface_estimate_perf = _estimate_perf,                                                     \
        .iface_vfs_refresh   = UCT_ANGARA_EMPTY(uct_iface_vfs_refresh_func_t, ucs_empty_function), \
        .ep_query            = UCT_ANGARA_UNSUPPORTED(uct_ep_query_func_t),                        \
        .ep_invalidate       = UCT_ANGARA_UNSUPPORTED(uct_ep_invalidate_func_t),                   \
        UCT_ANGARA_OPS_14 UCT_ANGARA_OPS_15 UCT_ANGARA_OPS_16(_is_connected) UCT_ANGARA_OPS_20     \
    }

/** Answer an estimate of bandwidth, for all paths together and for the first. */
static inline void uct_angara_perf_bandwidth(uct_perf_attr_t *attr, double dedicated, double shared)
{
    uct_ppn_bandwidth_t bandwidth = {.dedicated = dedicated, .shared = shared};

    if (attr->field_mask & UCT_PERF_ATTR_FIELD_BANDWIDTH) {
        attr->bandwidth = bandwidth;
    }
#if UCT_ANGARA_UCX(19)
    if (attr->field_mask & UCT_PERF_ATTR_FIELD_PATH_BANDWIDTH) {
        attr->path_bandwidth = bandwidth;
    }
#endif
}

/** What a keepalive check may ask for. */
#if UCT_ANGARA_UCX(22)
#define UCT_ANGARA_EP_CHECK_PARAM(_flags, _comp) \
    do {                                         \
        (void)(_comp);                           \
        UCT_EP_KEEPALIVE_CHECK_PARAM(_flags);    \
    } while (0)
#else
#define UCT_ANGARA_EP_CHECK_PARAM UCT_EP_KEEPALIVE_CHECK_PARAM
#endif

/* ---- libucs -------------------------------------------------------------------------------- */

/** What else is in a parser of settings. */
#if UCT_ANGARA_UCX(17)
#define UCT_ANGARA_PARSER_MORE .doc = ucs_config_doc_nop,
#else
#define UCT_ANGARA_PARSER_MORE
#endif

/** A pool of objects, which grows by @a chunk, aligned to cache lines. */
ucs_status_t uct_angara_mpool_init(ucs_mpool_t *mp, size_t size, unsigned chunk,
                                   ucs_mpool_ops_t *ops, const char *name);

/** Let the cache of memory types ask what memory it is, from address 0 on. */
void uct_angara_memtype_cache_ask(size_t length);

/** Bytes per second of a copy by the CPU. */
double uct_angara_memcpy_bandwidth(void);

#endif
