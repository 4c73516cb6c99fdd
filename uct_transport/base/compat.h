/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The only place that knows UCX versions: which one this is built for, the headers that moved, and
 * the shims that hide changed signatures from the rest of the transport. Supporting another minor
 * version of UCX means extending this file and nothing else.
 */
#ifndef UCT_ANGARA_COMPAT_H
#define UCT_ANGARA_COMPAT_H

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <uct/api/uct.h>
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

#if (UCT_ANGARA_UCX_MAJOR != 1) || (UCT_ANGARA_UCX_MINOR != 13)
#error "base/compat.h knows UCX 1.13 only: add the shims of this version there"
#endif

/**
 * UCP decides for rendezvous by one threshold for all types of memory. In a UCX tree the transport
 * isn't linked with libucp; other C libraries than glibc tell otherwise where a library's tables
 * are.
 */
#if defined(UCT_ANGARA_IN_TREE) || !defined(__GLIBC__)
#define UCT_ANGARA_HAS_GPU_RNDV 0
#else
#define UCT_ANGARA_HAS_GPU_RNDV 1
#endif

/*
 * This table moved to libucs under another name in later versions. A weak reference keeps the
 * library loadable there, so that the version check can say what is wrong.
 */
#pragma weak uct_md_config_rcache_table

/* Arguments of the md and memory-key operations that later versions change. */
#define UCT_ANGARA_MD_QUERY_ARGS uct_md_h tl_md, uct_md_attr_t *attr
#define UCT_ANGARA_MKEY_PACK_ARGS \
    uct_md_h tl_md, uct_mem_h tl_memh, const uct_md_mkey_pack_params_t *params, void *rkey_buffer
#define UCT_ANGARA_MEM_REG_ARGS \
    uct_md_h tl_md, void *address, size_t length, unsigned flags, uct_mem_h *memh_p
#define UCT_ANGARA_RKEY_UNPACK_ARGS \
    uct_component_t *component, const void *rkey_buffer, uct_rkey_t *rkey_p, void **handle_p

#endif
