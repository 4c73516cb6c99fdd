/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in for libcuda: allocations, host memory, what pointers are, IPC and dma-bufs. */
#include "cuda_standin.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define NO_DEVICE (-2) /* as the driver says for host memory */

CUresult cuda_from_errno(void)
{
    return errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY :
           errno == ENOENT ? CUDA_ERROR_MAP_FAILED :
           errno == EINVAL ? CUDA_ERROR_INVALID_VALUE :
                             CUDA_ERROR_UNKNOWN;
}

/* The allocation that begins there and is of a kind from `first` to `last`, or NULL. */
static memory_t *find_base(uintptr_t addr, memory_kind_t first, memory_kind_t last)
{
    memory_t *memory = memory_find(addr);

    return memory != NULL && memory->addr == addr && memory->kind >= first && memory->kind <= last ?
               memory :
               NULL;
}

void cuda_memory_end(context_t *context)
{
    unsigned  index = 0;
    memory_t *memory;

    while ((memory = memory_next(&index)) != NULL) {
        if (memory->owner == context) {
            memory_free(memory);
            --index;
        }
    }
}

/* --- allocate and free ----------------------------------------------------------------------*/

static CUresult allocate(memory_kind_t kind, size_t size, void **ptr)
{
    context_t *context = cuda_current();
    memory_t  *memory;

    if (ptr == NULL || size == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memory = kind <= MEMORY_POOL ? memory_create(kind, context->gpu, size) :
                                   memory_create_host(kind, context->gpu, size);
    if (memory == NULL) {
        return cuda_from_errno();
    }
    memory->owner = kind != MEMORY_POOL ? context : NULL;
    *ptr          = (void *)memory->addr;
    return CUDA_SUCCESS;
}

/* As a call of its own. */
static CUresult allocate_call(const char *call, int needs, memory_kind_t kind, size_t size,
                              void *ptr)
{
    CUresult result = cuda_enter(call, needs);

    return cuda_leave(result == CUDA_SUCCESS ? allocate(kind, size, ptr) : result);
}

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t size)
{
    return allocate_call(__func__, NEEDS_CONTEXT | NOT_IN_CAPTURES, MEMORY_DEVICE, size, ptr);
}

CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t size, unsigned flags)
{
    (void)flags;
    return allocate_call(__func__, NEEDS_CONTEXT | NOT_IN_CAPTURES, MEMORY_MANAGED, size, ptr);
}

CUresult cuMemHostAlloc(void **ptr, size_t size, unsigned flags)
{
    (void)flags;
    return allocate_call(__func__, NEEDS_CONTEXT | NOT_IN_CAPTURES, MEMORY_PINNED, size, ptr);
}

CUresult cuMemAllocHost_v2(void **ptr, size_t size)
{
    return allocate_call(__func__, NEEDS_CONTEXT | NOT_IN_CAPTURES, MEMORY_PINNED, size, ptr);
}

CUresult cuMemFree_v2(CUdeviceptr ptr)
{
    CUresult  result = cuda_enter(__func__, NEEDS_CONTEXT | NOT_IN_CAPTURES);
    memory_t *memory;

    if (result == CUDA_SUCCESS && ptr != 0) {
        memory = find_base(ptr, MEMORY_DEVICE, MEMORY_MANAGED);
        if (memory != NULL) {
            queue_wait_all(memory->gpu, NULL);
            memory = find_base(ptr, MEMORY_DEVICE, MEMORY_MANAGED);
        }
        if (memory == NULL || memory->kind == MEMORY_VIRTUAL || memory->kind == MEMORY_IMPORTED) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            memory_free(memory);
        }
    }
    return cuda_leave(result);
}

/* Doesn't wait for copies: those that use it are found out. */
CUresult cuMemFreeHost(void *ptr)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT | NOT_IN_CAPTURES);

    if (result == CUDA_SUCCESS && ptr != NULL) {
        memory_t *memory = find_base((uintptr_t)ptr, MEMORY_PINNED, MEMORY_PINNED);

        if (memory == NULL) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            memory_free(memory);
        }
    }
    return cuda_leave(result);
}

/* --- allocate and free in stream order ------------------------------------------------------*/

CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t size, CUstream stream)
{
    CUresult   result = cuda_enter(__func__, NEEDS_CONTEXT);
    void      *addr   = NULL;
    context_t *context;
    queue_t   *queue;

    if (result == CUDA_SUCCESS) {
        result = cuda_stream_find(stream, &context, &queue);
    }
    if (result == CUDA_SUCCESS) {
        result = allocate(MEMORY_POOL, size, &addr);
        if (result == CUDA_SUCCESS) {
            *ptr = (CUdeviceptr)addr;
        }
    }
    return cuda_leave(result);
}

static void free_in_turn(void *arg, int error)
{
    memory_t *memory = arg;

    (void)error;
    core_lock();
    if (!memory_is_freed(memory)) {
        memory_free(memory);
    }
    memory_put(memory);
    core_unlock();
}

CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
    CUresult   result = cuda_enter(__func__, NEEDS_CONTEXT);
    context_t *context;
    queue_t   *queue;
    memory_t  *memory;

    if (result == CUDA_SUCCESS) {
        result = cuda_stream_find(stream, &context, &queue);
    }
    if (result == CUDA_SUCCESS) {
        memory = find_base(ptr, MEMORY_DEVICE, MEMORY_POOL);
        if (memory == NULL || memory->freeing) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            op_t op = {.end = free_in_turn, .arg = memory};

            memory->freeing = 1;
            ++memory->refs;
            queue_submit(queue, &op);
        }
    }
    return cuda_leave(result);
}

/* --- host memory of the program -------------------------------------------------------------*/

CUresult cuMemHostRegister_v2(void *addr, size_t length, unsigned flags)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT | NOT_IN_CAPTURES);

    (void)flags;
    if (result != CUDA_SUCCESS) {
        return cuda_leave(result);
    }
    if (addr == NULL || length == 0 || range_contains((uintptr_t)addr)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (memory_find_in((uintptr_t)addr, length) != NULL) {
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    } else if (!memory_can_pin(addr, length)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        memory_register(addr, length, 0)->owner = cuda_current();
    }
    return cuda_leave(result);
}

CUresult cuMemHostUnregister(void *addr)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT | NOT_IN_CAPTURES);

    if (result == CUDA_SUCCESS) {
        memory_t *memory = find_base((uintptr_t)addr, MEMORY_REGISTERED, MEMORY_REGISTERED);

        if (memory == NULL) {
            result = CUDA_PROGRAM_HOST_MEMORY_NOT_REGISTERED;
        } else {
            memory_free(memory);
        }
    }
    return cuda_leave(result);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *ptr, void *addr, unsigned flags)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    (void)flags;
    if (result == CUDA_SUCCESS) {
        memory_t *memory = memory_find((uintptr_t)addr);

        if (memory == NULL || memory->kind < MEMORY_PINNED) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            *ptr = (CUdeviceptr)addr;
        }
    }
    return cuda_leave(result);
}

/* --- what a pointer is ----------------------------------------------------------------------*/

static int device_of(int gpu)
{
    for (int i = 0; i < core.num_visible; ++i) {
        if (core.visible[i] == gpu) {
            return i;
        }
    }
    return NO_DEVICE;
}

/* An imported allocation is of the GPU that its context is on. */
static int device_of_memory(const memory_t *memory)
{
    return memory->kind == MEMORY_IMPORTED ? ((context_t *)memory->owner)->device :
                                             device_of(memory->gpu);
}

/* @param memory  NULL: nothing is known of the address */
static CUresult get_attribute(const memory_t *memory, int attribute, void *value)
{
    int         device = memory != NULL ? device_of_memory(memory) : NO_DEVICE;
    CUdeviceptr base;
    size_t      size;

    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = memory != NULL ? memory->owner : NULL;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = memory == NULL                 ? 0 :
                             memory->kind <= MEMORY_MANAGED ? CU_MEMORYTYPE_DEVICE :
                                                              CU_MEMORYTYPE_HOST;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)value = memory != NULL && memory->user != NULL;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)value = memory != NULL ? memory->id : 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)value = memory != NULL && memory->kind == MEMORY_MANAGED;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = device;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(char *)value = memory != NULL && memory->kind == MEMORY_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        cuda_range(memory, value, &size);
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        cuda_range(memory, &base, value);
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(char *)value = memory != NULL;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)value = memory != NULL && memory->kind == MEMORY_POOL ?
                                     (CUmemoryPool)&core.visible[device] :
                                     NULL;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr ptr)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT);

    if (result == CUDA_SUCCESS) {
        memory_t *memory = memory_find(ptr);

        result = memory == NULL || value == NULL ? CUDA_ERROR_INVALID_VALUE :
                                                   get_attribute(memory, attribute, value);
    }
    return cuda_leave(result);
}

/* Unlike the one above says "nothing" of an address that isn't known, without an error. */
CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr ptr)
{
    CUresult  result = cuda_enter(__func__, NEEDS_INIT);
    memory_t *memory;

    if (result == CUDA_SUCCESS) {
        memory = memory_find(ptr);
        for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i) {
            result = get_attribute(memory, attributes[i], values[i]);
        }
    }
    return cuda_leave(result);
}

CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr ptr)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT);

    if (result == CUDA_SUCCESS) {
        memory_t *memory = memory_find(ptr);

        if (memory == NULL || !memory_is_device(memory) ||
            attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            memory->user = *(const unsigned *)value != 0 ? memory : NULL;
        }
    }
    return cuda_leave(result);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr)
{
    CUresult    result = cuda_enter(__func__, NEEDS_CONTEXT);
    CUdeviceptr whole_base;
    size_t      whole_size;

    if (result == CUDA_SUCCESS) {
        memory_t *memory = memory_find(ptr);

        if (memory == NULL) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            cuda_range(memory, base != NULL ? base : &whole_base,
                       size != NULL ? size : &whole_size);
        }
    }
    return cuda_leave(result);
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    if (result == CUDA_SUCCESS) {
        *total = core.memory_size;
        *free  = core.memory_size - core.used[cuda_current()->gpu];
    }
    return cuda_leave(result);
}

/* --- for other processes and devices --------------------------------------------------------*/

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    if (result == CUDA_SUCCESS) {
        memory_t *memory = memory_find(ptr);
        ipc_t     ipc;

        if (handle == NULL || memory == NULL || memory->kind != MEMORY_DEVICE) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            ipc_export(memory, &ipc);
            memset(handle, 0, sizeof(*handle));
            memcpy(handle, &ipc, sizeof(ipc));
        }
    }
    return cuda_leave(result);
}

/* What the context has mapped already; NULL: nothing. */
static memory_t *find_import(const ipc_t *ipc, const context_t *context)
{
    unsigned  index = 0;
    memory_t *memory;

    while ((memory = memory_next(&index)) != NULL) {
        if (memory->kind == MEMORY_IMPORTED && memory->owner == context &&
            memory->backing->inode == ipc->inode) {
            return memory;
        }
    }
    return NULL;
}

/* The same address again, and counted, if it is mapped. */
static CUresult import(const ipc_t *ipc, CUdeviceptr *ptr)
{
    context_t *context = cuda_current();
    backing_t *backing;
    memory_t  *memory = find_import(ipc, context);

    if (ipc->pid == getpid()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (memory != NULL) {
        ++memory->opens;
        *ptr = memory->addr;
        return CUDA_SUCCESS;
    }
    backing = ipc_import(ipc);
    if (backing == NULL) {
        return cuda_from_errno();
    }
    if (!core_reaches(context->gpu, backing->gpu)) {
        backing_put(backing);
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    memory = memory_map(MEMORY_IMPORTED, backing, 0, backing->shared->size);
    backing_put(backing);
    if (memory == NULL) {
        return cuda_from_errno();
    }
    memory->owner = context;
    *ptr          = memory->addr;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT | NOT_IN_CAPTURES);

    if (result == CUDA_SUCCESS) {
        ipc_t ipc;

        memcpy(&ipc, &handle, sizeof(ipc));
        result = ptr != NULL && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ?
                     import(&ipc, ptr) :
                     CUDA_ERROR_INVALID_VALUE;
    }
    return cuda_leave(result);
}

/*
 * Waits for the context's kernels, and holds up all other calls meanwhile, as the driver does. Not
 * for copies: those that use the memory are found out.
 */
CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT | NOT_IN_CAPTURES);

    if (result == CUDA_SUCCESS) {
        memory_t *memory = find_base(ptr, MEMORY_IMPORTED, MEMORY_IMPORTED);

        if (memory == NULL) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else if (memory->opens > 0) {
            --memory->opens;
        } else {
            core.exclusive = 1;
            queue_wait_kernels(cuda_current()->gpu, cuda_current());
            core.exclusive = 0;
            core_changed();
            memory_free(memory);
        }
    }
    return cuda_leave(result);
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr ptr, size_t length, int type,
                                       unsigned long long flags)
{
    CUresult  result = cuda_enter(__func__, NEEDS_CONTEXT);
    memory_t *memory;
    int       fd;

    if (result != CUDA_SUCCESS) {
        return cuda_leave(result);
    }
    memory = memory_find_in(ptr, length);
    if (!core.dmabuf || (flags == 1 && type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)) {
        result = CUDA_ERROR_NOT_SUPPORTED; /* flag 1: over PCIe */
    } else if (memory == NULL || !memory_is_device(memory) || memory->kind == MEMORY_IMPORTED ||
               flags != 0 || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        fd = dmabuf_export(memory, ptr, length);
        if (fd < 0) {
            result = cuda_from_errno();
        } else {
            *(int *)handle = fd;
        }
    }
    return cuda_leave(result);
}
