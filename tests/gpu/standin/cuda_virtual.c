/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in for libcuda: memory that is made apart from its address (cuMemCreate). */
#include "cuda_standin.h"

#include <stdlib.h>

/* Memory with a handle. */
typedef struct physical {
    struct physical             *next;
    CUmemGenericAllocationHandle handle;
    backing_t                   *backing;
} physical_t;

/* Addresses that are reserved. */
typedef struct reserved {
    struct reserved *next;
    uintptr_t        addr;
    size_t           size;
} reserved_t;

static physical_t *physicals;
static reserved_t *ranges;

static physical_t **find_physical(CUmemGenericAllocationHandle handle)
{
    physical_t **link;

    for (link = &physicals; *link != NULL && (*link)->handle != handle; link = &(*link)->next) {
    }
    return link;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       int option)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT);

    (void)prop;
    (void)option;
    if (result == CUDA_SUCCESS) {
        *granularity = CORE_BLOCK;
    }
    return cuda_leave(result);
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size,
                       const CUmemAllocationProp *prop)
{
    static CUmemGenericAllocationHandle last_handle;
    physical_t                         *physical;
    backing_t                          *backing;

    if (size == 0 || size % CORE_BLOCK != 0 || prop == NULL ||
        prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->location.id < 0 || prop->location.id >= core.num_visible) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    backing = backing_create(core.visible[prop->location.id], size, 0);
    if (backing == NULL) {
        return cuda_from_errno();
    }
    physical = calloc(1, sizeof(*physical));
    if (physical == NULL) {
        core_bug("no memory of the host is left");
    }
    *physical = (physical_t){physicals, ++last_handle, backing};
    physicals = physical;
    *handle   = last_handle;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT);

    (void)flags;
    return cuda_leave(result == CUDA_SUCCESS ? create(handle, size, prop) : result);
}

/* The memory goes with its last mapping. */
CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT);

    if (result == CUDA_SUCCESS) {
        physical_t **link     = find_physical(handle);
        physical_t  *physical = *link;

        if (physical == NULL) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            *link = physical->next;
            backing_put(physical->backing);
            free(physical);
        }
    }
    return cuda_leave(result);
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags)
{
    CUresult    result = cuda_enter(__func__, NEEDS_INIT);
    reserved_t *range;

    (void)addr; /* a wish */
    (void)flags;
    if (result != CUDA_SUCCESS) {
        return cuda_leave(result);
    }
    alignment = alignment > CORE_BLOCK ? alignment : CORE_BLOCK;
    if (ptr == NULL || size == 0 || size % CORE_BLOCK != 0 || (alignment & (alignment - 1)) != 0) {
        return cuda_leave(CUDA_ERROR_INVALID_VALUE);
    }
    range = calloc(1, sizeof(*range));
    if (range == NULL) {
        core_bug("no memory of the host is left");
    }
    *range = (reserved_t){ranges, range_take(size, alignment), size};
    if (range->addr == 0) {
        free(range);
        return cuda_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    ranges = range;
    *ptr   = range->addr;
    return cuda_leave(CUDA_SUCCESS);
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    CUresult     result = cuda_enter(__func__, NEEDS_INIT);
    reserved_t **link;
    reserved_t  *range;

    if (result == CUDA_SUCCESS) {
        for (link = &ranges; *link != NULL && (*link)->addr != ptr; link = &(*link)->next) {
        }
        range = *link;
        if (range == NULL || range->size != size || memory_find_in(ptr, size) != NULL) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            *link = range->next;
            range_give(range->addr, range->size);
            free(range);
        }
    }
    return cuda_leave(result);
}

/* Of memory with addresses of its own all that were reserved at once, used or not. */
void cuda_range(const memory_t *memory, CUdeviceptr *base, size_t *size)
{
    const reserved_t *range = ranges;

    *base = memory != NULL ? memory->addr : 0;
    *size = memory != NULL ? memory->size : 0;
    if (memory != NULL && memory->kind == MEMORY_VIRTUAL) {
        while (memory->addr - range->addr >= range->size) {
            range = range->next;
        }
        *base = range->addr;
        *size = range->size;
    }
}

static int is_reserved(uintptr_t addr, size_t size)
{
    for (const reserved_t *range = ranges; range != NULL; range = range->next) {
        if (addr - range->addr < range->size && size <= range->size - (addr - range->addr)) {
            return 1;
        }
    }
    return 0;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT);

    (void)flags;
    if (result == CUDA_SUCCESS) {
        physical_t *physical = *find_physical(handle);

        if (physical == NULL || offset != 0 || size == 0 || size % CORE_BLOCK != 0 ||
            size > physical->backing->length || !is_reserved(ptr, size) ||
            memory_find_in(ptr, size) != NULL) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            /* Nobody may use it until cuMemSetAccess() says so. */
            memory_map(MEMORY_VIRTUAL, physical->backing, ptr, size)->access = 0;
        }
    }
    return cuda_leave(result);
}

/* Call `use` for each mapping of a range that consists of whole ones. */
static CUresult for_each_mapping(CUdeviceptr ptr, size_t size, void (*use)(memory_t *, uint32_t),
                                 uint32_t arg)
{
    memory_t *memory;
    uintptr_t addr;

    for (addr = ptr; addr - ptr < size; addr += memory->size) {
        memory = memory_find(addr);
        if (memory == NULL || memory->addr != addr || memory->kind != MEMORY_VIRTUAL ||
            memory->size > size - (addr - ptr)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (addr = ptr; addr - ptr < size;) {
        memory = memory_find(addr);
        addr += memory->size;
        use(memory, arg);
    }
    return CUDA_SUCCESS;
}

static void unmap(memory_t *memory, uint32_t arg)
{
    (void)arg;
    memory_free(memory);
}

static void allow(memory_t *memory, uint32_t gpus)
{
    memory->access |= gpus;
}

static void forbid(memory_t *memory, uint32_t gpus)
{
    memory->access &= ~gpus;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT);

    return cuda_leave(result == CUDA_SUCCESS ? for_each_mapping(ptr, size, unmap, 0) : result);
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *access, size_t count)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT);

    for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
        if (access[i].location.id < 0 || access[i].location.id >= core.num_visible) {
            result = CUDA_ERROR_INVALID_DEVICE;
        } else {
            result = for_each_mapping(
                ptr, size, access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? allow : forbid,
                1u << core.visible[access[i].location.id]);
        }
    }
    return cuda_leave(result);
}
