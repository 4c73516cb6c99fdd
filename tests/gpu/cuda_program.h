/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUDA's driver interface for test programs and benchmarks: the calls that the library makes
 * (gpu/cuda_abi.h) and those that only programs make, declared by ourselves as there. Source: the
 * CUDA Driver API reference manual.
 */
#ifndef ANGARA_TESTS_CUDA_PROGRAM_H
#define ANGARA_TESTS_CUDA_PROGRAM_H

#include "gpu/cuda_abi.h"

#include <dlfcn.h>
#include <stdio.h>

typedef struct CUmod_st   *CUmodule;
typedef struct CUfunc_st  *CUfunction;
typedef unsigned long long CUmemGenericAllocationHandle;

typedef struct {
    int           type; /* CU_MEM_ALLOCATION_TYPE_PINNED */
    int           requestedHandleTypes;
    CUmemLocation location;
    void         *win32HandleMetaData;
    struct {
        unsigned char  compressionType;
        unsigned char  gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char  reserved[4];
    } allocFlags;
} CUmemAllocationProp;

typedef struct {
    CUmemLocation location;
    int           flags; /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
} CUmemAccessDesc;

_Static_assert(sizeof(CUmemAllocationProp) == 32 && sizeof(CUmemAccessDesc) == 12, "as in cuda.h");

/* CUresult, those that cuda_abi.h doesn't need */
enum { CUDA_PROGRAM_PEER_ACCESS_NOT_ENABLED = 705, CUDA_PROGRAM_HOST_MEMORY_NOT_REGISTERED = 713 };

enum { CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16 };

enum {
    CU_MEM_ATTACH_GLOBAL               = 1,
    CU_MEMHOSTALLOC_PORTABLE           = 1,
    CU_MEMHOSTALLOC_DEVICEMAP          = 2,
    CU_MEM_LOCATION_TYPE_DEVICE        = 1,
    CU_MEM_ALLOCATION_TYPE_PINNED      = 1,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3
};

#define CUDA_PROGRAM_DEVICE_CALLS(X)                                                             \
    X(init, cuInit, (unsigned flags))                                                            \
    X(driver_get_version, cuDriverGetVersion, (int *version))                                    \
    X(device_get_name, cuDeviceGetName, (char *name, int length, CUdevice device))               \
    X(device_get_uuid, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                     \
    X(device_get_pci_bus_id, cuDeviceGetPCIBusId, (char *id, int length, CUdevice device))       \
    X(device_total_mem, cuDeviceTotalMem_v2, (size_t * size, CUdevice device))                   \
    X(device_can_access_peer, cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer)) \
    X(device_get_default_mem_pool, cuDeviceGetDefaultMemPool,                                    \
      (CUmemoryPool * pool, CUdevice device))                                                    \
    X(primary_ctx_reset, cuDevicePrimaryCtxReset_v2, (CUdevice device))                          \
    X(ctx_create, cuCtxCreate_v2, (CUcontext * ctx, unsigned flags, CUdevice device))            \
    X(ctx_destroy, cuCtxDestroy_v2, (CUcontext ctx))                                             \
    X(ctx_set_current, cuCtxSetCurrent, (CUcontext ctx))                                         \
    X(ctx_synchronize, cuCtxSynchronize, (void))                                                 \
    X(ctx_enable_peer_access, cuCtxEnablePeerAccess, (CUcontext ctx, unsigned flags))            \
    X(ctx_disable_peer_access, cuCtxDisablePeerAccess, (CUcontext ctx))

#define CUDA_PROGRAM_MEMORY_CALLS(X)                                                               \
    X(mem_alloc, cuMemAlloc_v2, (CUdeviceptr * ptr, size_t size))                                  \
    X(mem_free, cuMemFree_v2, (CUdeviceptr ptr))                                                   \
    X(mem_alloc_managed, cuMemAllocManaged, (CUdeviceptr * ptr, size_t size, unsigned flags))      \
    X(host_get_device_pointer, cuMemHostGetDevicePointer_v2,                                       \
      (CUdeviceptr * ptr, void *addr, unsigned flags))                                             \
    X(mem_host_alloc, cuMemHostAlloc, (void **ptr, size_t size, unsigned flags))                   \
    X(mem_alloc_host, cuMemAllocHost_v2, (void **ptr, size_t size))                                \
    X(mem_free_host, cuMemFreeHost, (void *ptr))                                                   \
    X(mem_alloc_async, cuMemAllocAsync, (CUdeviceptr * ptr, size_t size, CUstream stream))         \
    X(mem_free_async, cuMemFreeAsync, (CUdeviceptr ptr, CUstream stream))                          \
    X(mem_get_info, cuMemGetInfo_v2, (size_t * free, size_t * total))                              \
    X(mem_get_address_range, cuMemGetAddressRange_v2,                                              \
      (CUdeviceptr * base, size_t * size, CUdeviceptr ptr))                                        \
    X(pointer_get_attribute, cuPointerGetAttribute, (void *value, int attribute, CUdeviceptr ptr)) \
    X(vmm_granularity, cuMemGetAllocationGranularity,                                              \
      (size_t * granularity, const CUmemAllocationProp *prop, int option))                         \
    X(vmm_create, cuMemCreate,                                                                     \
      (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *prop,        \
       unsigned long long flags))                                                                  \
    X(vmm_release, cuMemRelease, (CUmemGenericAllocationHandle handle))                            \
    X(vmm_reserve, cuMemAddressReserve,                                                            \
      (CUdeviceptr * ptr, size_t size, size_t alignment, CUdeviceptr addr,                         \
       unsigned long long flags))                                                                  \
    X(vmm_free, cuMemAddressFree, (CUdeviceptr ptr, size_t size))                                  \
    X(vmm_map, cuMemMap,                                                                           \
      (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,           \
       unsigned long long flags))                                                                  \
    X(vmm_unmap, cuMemUnmap, (CUdeviceptr ptr, size_t size))                                       \
    X(vmm_set_access, cuMemSetAccess,                                                              \
      (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *access, size_t count))

#define CUDA_PROGRAM_STREAM_CALLS(X)                                                          \
    X(memcpy, cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t n))                         \
    X(memcpy_htod, cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t n))             \
    X(memcpy_dtoh, cuMemcpyDtoH_v2, (void *dst, CUdeviceptr src, size_t n))                   \
    X(memcpy_dtod, cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t n))             \
    X(memcpy_htod_async, cuMemcpyHtoDAsync_v2,                                                \
      (CUdeviceptr dst, const void *src, size_t n, CUstream stream))                          \
    X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2,                                                \
      (void *dst, CUdeviceptr src, size_t n, CUstream stream))                                \
    X(memcpy_dtod_async, cuMemcpyDtoDAsync_v2,                                                \
      (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream))                          \
    X(memset_d8, cuMemsetD8_v2, (CUdeviceptr dst, unsigned char value, size_t n))             \
    X(memset_d8_async, cuMemsetD8Async,                                                       \
      (CUdeviceptr dst, unsigned char value, size_t n, CUstream stream))                      \
    X(stream_synchronize, cuStreamSynchronize, (CUstream stream))                             \
    X(stream_wait_event, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags)) \
    X(stream_write_value, cuStreamWriteValue64_v2,                                            \
      (CUstream stream, CUdeviceptr ptr, uint64_t value, unsigned flags))                     \
    X(launch_host_func, cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data))   \
    X(event_synchronize, cuEventSynchronize, (CUevent event))

#define CUDA_PROGRAM_KERNEL_CALLS(X)                                                             \
    X(module_load_data, cuModuleLoadData, (CUmodule * module, const void *image))                \
    X(module_get_function, cuModuleGetFunction,                                                  \
      (CUfunction * function, CUmodule module, const char *name))                                \
    X(launch_kernel, cuLaunchKernel,                                                             \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
       unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **arguments,   \
       void **extra))

#define CUDA_PROGRAM_CALLS(X)    \
    CUDA_PROGRAM_DEVICE_CALLS(X) \
    CUDA_PROGRAM_MEMORY_CALLS(X) \
    CUDA_PROGRAM_STREAM_CALLS(X) \
    CUDA_PROGRAM_KERNEL_CALLS(X)

/* All of them; NULL: the driver hasn't that one. */
typedef struct {
    void *library;
    CUDA_CALLS(CUDA_MEMBER)
    CUDA_PROGRAM_CALLS(CUDA_MEMBER)
} cuda_program_t;

/* @param path  of the library; NULL: libcuda.so.1, where the dynamic linker finds it
 * @return 1; 0 without a driver, which isn't an error */
static inline int cuda_program_load(cuda_program_t *cuda, const char *path)
{
#define CUDA_PROGRAM_FIND(_name, _symbol, _arguments, ...) \
    *(void **)(void *)&cuda->_name = dlsym(cuda->library, #_symbol);
    cuda->library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (cuda->library == NULL) {
        return 0;
    }
    CUDA_CALLS(CUDA_PROGRAM_FIND)
    CUDA_PROGRAM_CALLS(CUDA_PROGRAM_FIND)
#undef CUDA_PROGRAM_FIND
    return 1;
}

#endif
