/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library's kinds of memory are for UCX. No state. */
#ifndef UCT_ANGARA_MEMTYPE_H
#define UCT_ANGARA_MEMTYPE_H

#include "base/compat.h"

#include <angara/angara_mem.h>

/** UCX's type; UCS_MEMORY_TYPE_LAST: it has none. */
ucs_memory_type_t uct_angara_memtype(angara_mem_kind_t kind);

/** Bits of the types that may occur in this process, besides the host's. */
uint64_t uct_angara_memtypes(void);

/** Those of them that the CPU can't touch. */
uint64_t uct_angara_memtypes_device(void);

/** Bits of the types that may occur, but that ANGARA_GPU leaves out: none of the above. */
uint64_t uct_angara_memtypes_left_out(void);

/** Memory that only a GPU reaches fast? */
static inline int uct_angara_memtype_is_gpu(ucs_memory_type_t type)
{
    return (type != UCS_MEMORY_TYPE_HOST) && (type < UCS_MEMORY_TYPE_LAST);
}

/** An operation whose cost is estimated, and the memory at its ends. */
typedef struct uct_angara_perf_ends {
    uct_ep_operation_t op;
    ucs_memory_type_t  local;
    ucs_memory_type_t  remote; /**< UCS_MEMORY_TYPE_LAST: UCP doesn't say */
} uct_angara_perf_ends_t;

static inline uct_angara_perf_ends_t uct_angara_perf_ends(const uct_perf_attr_t *attr)
{
    uct_angara_perf_ends_t ends = {
        UCT_ATTR_VALUE(PERF, attr, operation, OPERATION, UCT_EP_OP_LAST),
        UCT_ATTR_VALUE(PERF, attr, local_memory_type, LOCAL_MEMORY_TYPE, UCS_MEMORY_TYPE_HOST),
        UCT_ATTR_VALUE(PERF, attr, remote_memory_type, REMOTE_MEMORY_TYPE, UCS_MEMORY_TYPE_LAST)};

    return ends;
}

#endif
