/* SPDX-License-Identifier: BSD-3-Clause */
/* Kinds of memory of the library as UCX's. */
#include "base/memtype.h"

static const ucs_memory_type_t uct_angara_memtype_of[ANGARA_MEM_LAST] = {
    [ANGARA_MEM_HOST]         = UCS_MEMORY_TYPE_HOST,
    [ANGARA_MEM_CUDA]         = UCS_MEMORY_TYPE_CUDA,
    [ANGARA_MEM_CUDA_MANAGED] = UCS_MEMORY_TYPE_CUDA_MANAGED,
    [ANGARA_MEM_ROCM]         = UCS_MEMORY_TYPE_ROCM,
    [ANGARA_MEM_ROCM_MANAGED] = UCS_MEMORY_TYPE_ROCM_MANAGED};

ucs_memory_type_t uct_angara_memtype(angara_mem_kind_t kind)
{
    return ((unsigned)kind < ANGARA_MEM_LAST) ? uct_angara_memtype_of[kind] : UCS_MEMORY_TYPE_LAST;
}

static uint64_t uct_angara_memtypes_get(angara_status_t (*get)(uint32_t *kinds))
{
    uint64_t types = 0;
    uint32_t kinds, kind;

    if (get(&kinds) != ANGARA_OK) {
        return 0; /* the library has said why */
    }

    for (kind = ANGARA_MEM_HOST + 1; kind < ANGARA_MEM_LAST; ++kind) {
        if (kinds & UCS_BIT(kind)) {
            types |= UCS_BIT(uct_angara_memtype_of[kind]);
        }
    }
    return types;
}

uint64_t uct_angara_memtypes(void)
{
    return uct_angara_memtypes_get(angara_mem_kinds);
}

uint64_t uct_angara_memtypes_left_out(void)
{
    return uct_angara_memtypes_get(angara_mem_kinds_left_out);
}

uint64_t uct_angara_memtypes_device(void)
{
    return uct_angara_memtypes() & (UCS_BIT(UCS_MEMORY_TYPE_CUDA) | UCS_BIT(UCS_MEMORY_TYPE_ROCM));
}
