/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What we use of CUDA's driver interface (libcuda.so.1), declared by ourselves: no toolkit is
 * needed to build. CUDA_CALLS lists calls by the exact symbol, since cuda.h lets a name without a
 * version mean another symbol in each release. Source: the CUDA Driver API reference manual.
 */
#ifndef ANG_CUDA_ABI_H
#define ANG_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int                     CUresult;
typedef int                     CUdevice;
typedef unsigned long long      CUdeviceptr;
typedef struct CUctx_st        *CUcontext;
typedef struct CUstream_st     *CUstream;
typedef struct CUevent_st      *CUevent;
typedef struct CUmemPoolHdl_st *CUmemoryPool;
typedef void (*CUhostFn)(void *data);

typedef struct {
    char reserved[64];
} CUipcMemHandle;

typedef struct {
    char bytes[16];
} CUuuid;

typedef struct {
    int type;
    int id;
} CUmemLocation;

typedef struct {
    int           srcAccessOrder; /* CU_MEMCPY_SRC_ACCESS_ORDER_STREAM */
    CUmemLocation srcLocHint;
    CUmemLocation dstLocHint;
    unsigned      flags; /* CU_MEMCPY_FLAG_OVERLAP_WITH_COMPUTE */
} CUmemcpyAttributes;

_Static_assert(sizeof(CUmemLocation) == 8 && sizeof(CUmemcpyAttributes) == 24, "as in cuda.h");

/* CUresult */
enum {
    CUDA_SUCCESS                              = 0,
    CUDA_ERROR_INVALID_VALUE                  = 1,
    CUDA_ERROR_OUT_OF_MEMORY                  = 2,
    CUDA_ERROR_NOT_INITIALIZED                = 3,
    CUDA_ERROR_DEINITIALIZED                  = 4,
    CUDA_ERROR_NO_DEVICE                      = 100,
    CUDA_ERROR_INVALID_DEVICE                 = 101,
    CUDA_ERROR_INVALID_CONTEXT                = 201,
    CUDA_ERROR_MAP_FAILED                     = 205,
    CUDA_ERROR_ALREADY_MAPPED                 = 208,
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED        = 217,
    CUDA_ERROR_INVALID_HANDLE                 = 400,
    CUDA_ERROR_NOT_READY                      = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS                = 700,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED    = 704,
    CUDA_ERROR_CONTEXT_IS_DESTROYED           = 709,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_NOT_PERMITTED                  = 800,
    CUDA_ERROR_NOT_SUPPORTED                  = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED     = 900,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT        = 906,
    CUDA_ERROR_UNKNOWN                        = 999
};

/* CUpointer_attribute, and what it gives */
enum {
    CU_POINTER_ATTRIBUTE_CONTEXT                    = 1,  /* CUcontext */
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE                = 2,  /* unsigned, CU_MEMORYTYPE_* */
    CU_POINTER_ATTRIBUTE_SYNC_MEMOPS                = 6,  /* unsigned: can be set */
    CU_POINTER_ATTRIBUTE_BUFFER_ID                  = 7,  /* unsigned long long */
    CU_POINTER_ATTRIBUTE_IS_MANAGED                 = 8,  /* unsigned */
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL             = 9,  /* int */
    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10, /* bool, one byte */
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR           = 11, /* CUdeviceptr */
    CU_POINTER_ATTRIBUTE_RANGE_SIZE                 = 12, /* size_t */
    CU_POINTER_ATTRIBUTE_MAPPED                     = 13, /* bool, one byte */
    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE             = 17  /* CUmemoryPool */
};

enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };

/* CUdevice_attribute */
enum {
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID    = 33,
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
    CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50
};

enum {
    CU_STREAM_NON_BLOCKING              = 1,
    CU_EVENT_DISABLE_TIMING             = 2,
    CU_MEMHOSTREGISTER_PORTABLE         = 1,
    CU_MEMHOSTREGISTER_DEVICEMAP        = 2,
    CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS  = 1,
    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED      = 2,
    CU_MEMCPY_SRC_ACCESS_ORDER_STREAM   = 1,
    CU_MEMCPY_FLAG_OVERLAP_WITH_COMPUTE = 1 /* PREFER_ in cuda.h */
};

/* X(name, symbol, arguments): nothing works without. */
#define CUDA_CALLS_NEEDED(X)                                                                      \
    X(ctx_get_current, cuCtxGetCurrent, (CUcontext * ctx))                                        \
    X(ctx_get_device, cuCtxGetDevice, (CUdevice * device))                                        \
    X(ctx_pop, cuCtxPopCurrent_v2, (CUcontext * ctx))                                             \
    X(ctx_push, cuCtxPushCurrent_v2, (CUcontext ctx))                                             \
    X(device_get, cuDeviceGet, (CUdevice * device, int ordinal))                                  \
    X(device_get_count, cuDeviceGetCount, (int *count))                                           \
    X(device_get_attribute, cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))   \
    X(host_register, cuMemHostRegister_v2, (void *addr, size_t length, unsigned flags))           \
    X(host_unregister, cuMemHostUnregister, (void *addr))                                         \
    X(memcpy_async, cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream)) \
    X(pointer_get_attributes, cuPointerGetAttributes,                                             \
      (unsigned count, int *attributes, void **values, CUdeviceptr ptr))                          \
    X(primary_ctx_get_state, cuDevicePrimaryCtxGetState,                                          \
      (CUdevice device, unsigned *flags, int *active))                                            \
    X(primary_ctx_retain, cuDevicePrimaryCtxRetain, (CUcontext * ctx, CUdevice device))           \
    X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                       \
    X(event_create, cuEventCreate, (CUevent * event, unsigned flags))                             \
    X(event_destroy, cuEventDestroy_v2, (CUevent event))                                          \
    X(event_query, cuEventQuery, (CUevent event))                                                 \
    X(event_record, cuEventRecord, (CUevent event, CUstream stream))                              \
    X(stream_create, cuStreamCreate, (CUstream * stream, unsigned flags))                         \
    X(stream_destroy, cuStreamDestroy_v2, (CUstream stream))                                      \
    X(stream_query, cuStreamQuery, (CUstream stream))

/* X(name, symbol, arguments, what it costs that it lacks) */
#define CUDA_CALLS_WANTED(X)                                                                       \
    X(ctx_get_id, cuCtxGetId, (CUcontext ctx, unsigned long long *id),                             \
      "a context is taken for an earlier one at its address, and that one's copies fail")          \
    X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (int *mode),                       \
      "copies end a graph's capture that the program makes meanwhile")                             \
    X(get_error_name, cuGetErrorName, (CUresult error, const char **name),                         \
      "messages give numbers of errors, not names")                                                \
    X(ipc_get, cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr ptr),                      \
      "other processes can't map our GPU memory")                                                  \
    X(ipc_open, cuIpcOpenMemHandle_v2, (CUdeviceptr * ptr, CUipcMemHandle handle, unsigned flags), \
      "other processes' GPU memory can't be mapped")                                               \
    X(ipc_close, cuIpcCloseMemHandle, (CUdeviceptr ptr),                                           \
      "other processes' GPU memory can't be mapped")                                               \
    X(ctx_record_event, cuCtxRecordEvent, (CUcontext ctx, CUevent event),                          \
      "kernels of non-blocking streams aren't seen: unmapping may wait for them")                  \
    X(stream_is_capturing, cuStreamIsCapturing, (CUstream stream, int *status),                    \
      "kernels of non-blocking streams aren't seen: unmapping may wait for them")                  \
    X(memcpy_batch, cuMemcpyBatchAsync,                                                            \
      (CUdeviceptr * dsts, CUdeviceptr * srcs, size_t * lengths, size_t count,                     \
       CUmemcpyAttributes * attributes, size_t * firsts, size_t num_attributes, size_t * failed,   \
       CUstream stream),                                                                           \
      "copies of many messages are started one by one, and take half as long again")               \
    X(pointer_set_attribute, cuPointerSetAttribute,                                                \
      (const void *value, int attribute, CUdeviceptr ptr),                                         \
      "calls of the program that block may return before what they write has arrived")             \
    X(get_range_handle, cuMemGetHandleForAddressRange,                                             \
      (void *handle, CUdeviceptr ptr, size_t length, int type, unsigned long long flags),          \
      "no dma-buf of GPU memory: a NIC can't reach it")

#define CUDA_CALLS(X)    \
    CUDA_CALLS_NEEDED(X) \
    CUDA_CALLS_WANTED(X)

/* A table of pointers to them; NULL: the driver hasn't that one. */
#define CUDA_MEMBER(_name, _symbol, _arguments, ...) CUresult(*_name) _arguments;

typedef struct {
    CUDA_CALLS(CUDA_MEMBER)
} cuda_calls_t;

#endif
