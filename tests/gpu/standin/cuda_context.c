/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in for libcuda: start, GPUs and contexts. */
#include "cuda_standin.h"

#include <string.h>

#define MAX_CONTEXTS 64
#define MAX_DEPTH    32
#define VERSION      13000 /* of CUDA */

const char core_visible_variable[] = "CUDA_VISIBLE_DEVICES";

/* The first of them are the devices' primary contexts. Handles point here. */
static context_t contexts[MAX_CONTEXTS];
static uint64_t  last_id;

/* A thread's stack; a context that was destroyed stays there. */
static __thread struct {
    context_t *context;
    uint64_t   id;
} stack[MAX_DEPTH];
static __thread int depth;
static __thread int capture_mode;

/* --- in and out -----------------------------------------------------------------------------*/

context_t *cuda_context_of(const context_t *context, uint64_t id)
{
    size_t index = (size_t)(context - contexts);

    return index < MAX_CONTEXTS && context == &contexts[index] && contexts[index].used &&
                   contexts[index].id == id ?
               &contexts[index] :
               NULL;
}

/* By handle. */
static context_t *find_context(CUcontext handle)
{
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)contexts;

    return offset < sizeof(contexts) && offset % sizeof(context_t) == 0 &&
                   contexts[offset / sizeof(context_t)].used ?
               &contexts[offset / sizeof(context_t)] :
               NULL;
}

context_t *cuda_current(void)
{
    return depth > 0 ? cuda_context_of(stack[depth - 1].context, stack[depth - 1].id) : NULL;
}

CUresult cuda_enter(const char *call, int needs)
{
    int        result = core_enter(call);
    context_t *context;

    if (result != 0 || needs == NEEDS_NOTHING) {
        return result;
    }
    if (core.forked || !core.started) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (core.ended) {
        return CUDA_ERROR_DEINITIALIZED;
    }
    if ((needs & NOT_IN_CAPTURES) && core.capture &&
        capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
        core_capture_violation();
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (needs & NEEDS_CONTEXT) {
        context = cuda_current();
        if (context == NULL) {
            return depth == 0 || stack[depth - 1].context == NULL ? CUDA_ERROR_INVALID_CONTEXT :
                                                                    CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
        return context->error;
    }
    return CUDA_SUCCESS;
}

CUresult cuda_leave(CUresult result)
{
    core_unlock();
    return result;
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT);

    if (result == CUDA_SUCCESS) {
        if (mode == NULL || *mode < 0 || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            int before = capture_mode;

            capture_mode = *mode;
            *mode        = before;
        }
    }
    return cuda_leave(result);
}

CUresult cuInit(unsigned flags)
{
    CUresult result = cuda_enter(__func__, NEEDS_NOTHING);

    if (result != CUDA_SUCCESS) {
        return cuda_leave(result);
    }
    if (core.forked) {
        result = CUDA_ERROR_NOT_INITIALIZED;
    } else if (core.ended) {
        result = CUDA_ERROR_DEINITIALIZED;
    } else if (flags != 0) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (core.num_visible == 0) {
        result = CUDA_ERROR_NO_DEVICE;
    } else if (!core.started) {
        core_start();
    }
    return cuda_leave(result);
}

CUresult cuDriverGetVersion(int *version)
{
    CUresult result = cuda_enter(__func__, NEEDS_NOTHING);

    if (result == CUDA_SUCCESS) {
        *version = VERSION;
    }
    return cuda_leave(result);
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    static const struct {
        int         code;
        const char *name;
    } names[] = {
        {CUDA_SUCCESS, "CUDA_SUCCESS"},
        {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
        {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED"},
        {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED"},
        {CUDA_ERROR_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED"},
        {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY"},
        {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
        {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
        {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
        {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
    };
    CUresult result = cuda_enter(__func__, NEEDS_NOTHING);

    if (result == CUDA_SUCCESS) {
        *name  = NULL;
        result = CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
            if (names[i].code == error) {
                *name  = names[i].name;
                result = CUDA_SUCCESS;
            }
        }
    }
    return cuda_leave(result);
}

/* --- GPUs -----------------------------------------------------------------------------------*/

static int is_device(CUdevice device)
{
    return device >= 0 && device < core.num_visible;
}

/* Take the lock, for a call about a device. */
static CUresult enter_device(const char *call, const void *out, CUdevice device)
{
    CUresult result = cuda_enter(call, NEEDS_INIT);

    if (result == CUDA_SUCCESS && out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return result == CUDA_SUCCESS && !is_device(device) ? CUDA_ERROR_INVALID_DEVICE : result;
}

CUresult cuDeviceGetCount(int *count)
{
    CUresult result = enter_device(__func__, count, 0);

    if (result == CUDA_SUCCESS) {
        *count = core.num_visible;
    }
    return cuda_leave(result);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = enter_device(__func__, device, ordinal);

    if (result == CUDA_SUCCESS) {
        *device = ordinal;
    }
    return cuda_leave(result);
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    CUresult result = enter_device(__func__, value, device);

    if (result == CUDA_SUCCESS) {
        uint32_t pci = core_pci(core.visible[device]);

        *value = attribute == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID ? (int)(pci >> 16) :
                 attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID    ? (int)(pci >> 8 & 0xff) :
                 attribute == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID ? (int)(pci >> 3 & 0x1f) :
                                                                  1; /* it is able to do it */
    }
    return cuda_leave(result);
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    CUresult result = enter_device(__func__, name, device);

    if (result == CUDA_SUCCESS) {
        snprintf(name, (size_t)length, "Stand-in GPU");
    }
    return cuda_leave(result);
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
    CUresult result = enter_device(__func__, id, device);

    if (result == CUDA_SUCCESS) {
        uint32_t pci = core_pci(core.visible[device]);

        snprintf(id, (size_t)length, "%04X:%02X:%02X.0", pci >> 16, pci >> 8 & 0xff,
                 pci >> 3 & 0x1f);
    }
    return cuda_leave(result);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    CUresult result = enter_device(__func__, uuid, device);

    if (result == CUDA_SUCCESS) {
        memset(uuid, core.visible[device] + 1, sizeof(*uuid));
    }
    return cuda_leave(result);
}

CUresult cuDeviceTotalMem_v2(size_t *size, CUdevice device)
{
    CUresult result = enter_device(__func__, size, device);

    if (result == CUDA_SUCCESS) {
        *size = core.memory_size;
    }
    return cuda_leave(result);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    CUresult result = enter_device(__func__, can, device);

    if (result == CUDA_SUCCESS && !is_device(peer)) {
        result = CUDA_ERROR_INVALID_DEVICE;
    }
    if (result == CUDA_SUCCESS) {
        *can = device != peer && core_reaches(core.visible[device], core.visible[peer]);
    }
    return cuda_leave(result);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    CUresult result = enter_device(__func__, pool, device);

    if (result == CUDA_SUCCESS) {
        *pool = (CUmemoryPool)&core.visible[device];
    }
    return cuda_leave(result);
}

/* --- contexts: their life -------------------------------------------------------------------*/

static void start_context(context_t *context, CUdevice device, int primary)
{
    *context = (context_t){.used    = 1,
                           .id      = ++last_id,
                           .device  = device,
                           .gpu     = core.visible[device],
                           .primary = primary};
}

/* Work that runs ends, what is behind is dropped; then memory and streams go. */
static void end_context(context_t *context)
{
    context->ending = 1;
    context->error  = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    queue_kill(context, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    cuda_streams_end(context);
    cuda_memory_end(context);
    context->used = 0;
    core_changed();
}

/* A device's primary context, once nobody is ending it. */
static context_t *primary(CUdevice device)
{
    while (contexts[device].used && contexts[device].ending) {
        core_wait(0);
    }
    return &contexts[device];
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
    CUresult result = enter_device(__func__, ctx, device);

    if (result == CUDA_SUCCESS) {
        context_t *context = primary(device);

        if (!context->used) {
            start_context(context, device, 1);
        }
        ++context->retained;
        *ctx = (CUcontext)context;
    }
    return cuda_leave(result);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult result = enter_device(__func__, contexts, device);

    if (result == CUDA_SUCCESS) {
        context_t *context = primary(device);

        if (!context->used) {
            result = CUDA_ERROR_INVALID_CONTEXT;
        } else if (--context->retained == 0) {
            end_context(context);
        }
    }
    return cuda_leave(result);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CUresult result = enter_device(__func__, contexts, device);

    if (result == CUDA_SUCCESS && primary(device)->used) {
        end_context(&contexts[device]);
    }
    return cuda_leave(result);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    CUresult result = enter_device(__func__, flags != NULL ? active : NULL, device);

    if (result == CUDA_SUCCESS) {
        *flags  = 0;
        *active = contexts[device].used;
    }
    return cuda_leave(result);
}

static CUresult push(context_t *context)
{
    if (depth == MAX_DEPTH) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stack[depth].context = context;
    stack[depth].id      = context->id;
    ++depth;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device)
{
    CUresult result = enter_device(__func__, ctx, device);
    unsigned i;

    (void)flags;
    if (result == CUDA_SUCCESS) {
        /* The lowest: that of the context that went last. */
        for (i = CORE_MAX_GPUS; i < MAX_CONTEXTS && contexts[i].used; ++i) {
        }
        if (i == MAX_CONTEXTS) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            start_context(&contexts[i], device, 0);
            result = push(&contexts[i]);
            *ctx   = (CUcontext)&contexts[i];
        }
    }
    return cuda_leave(result);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT);

    if (result == CUDA_SUCCESS) {
        context_t *context = find_context(ctx);

        if (context == NULL || context->primary || context->ending) {
            result = CUDA_ERROR_INVALID_CONTEXT;
        } else {
            if (cuda_current() == context) {
                --depth;
            }
            end_context(context);
        }
    }
    return cuda_leave(result);
}

/* --- contexts: the thread's stack -----------------------------------------------------------*/

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    CUresult   result  = cuda_enter(__func__, NEEDS_INIT);
    context_t *context = find_context(ctx);

    if (result == CUDA_SUCCESS) {
        result = context != NULL ? push(context) : CUDA_ERROR_INVALID_CONTEXT;
    }
    return cuda_leave(result);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT);

    if (result == CUDA_SUCCESS) {
        if (depth == 0) {
            result = CUDA_ERROR_INVALID_CONTEXT;
        } else {
            --depth;
            if (ctx != NULL) {
                *ctx = (CUcontext)stack[depth].context;
            }
        }
    }
    return cuda_leave(result);
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT);

    if (result == CUDA_SUCCESS) {
        *ctx = depth > 0 ? (CUcontext)stack[depth - 1].context : NULL;
    }
    return cuda_leave(result);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    CUresult   result  = cuda_enter(__func__, NEEDS_INIT);
    context_t *context = find_context(ctx);

    if (result == CUDA_SUCCESS) {
        if (ctx != NULL && context == NULL) {
            result = CUDA_ERROR_INVALID_CONTEXT;
        } else {
            depth -= depth > 0;
            result = context != NULL ? push(context) : CUDA_SUCCESS;
        }
    }
    return cuda_leave(result);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    if (result == CUDA_SUCCESS) {
        *device = cuda_current()->device;
    }
    return cuda_leave(result);
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
    CUresult   result  = cuda_enter(__func__, NEEDS_INIT);
    context_t *context = ctx != NULL ? find_context(ctx) : cuda_current();

    if (result == CUDA_SUCCESS) {
        if (context != NULL && id != NULL) {
            *id = context->id;
        } else {
            result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
    }
    return cuda_leave(result);
}

CUresult cuCtxSynchronize(void)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT | NOT_IN_CAPTURES);

    if (result == CUDA_SUCCESS) {
        context_t *context = cuda_current();

        queue_wait_all(context->gpu, context);
        context = cuda_current();
        result  = context != NULL ? context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    return cuda_leave(result);
}

/* Copies don't need it, kernels would. */
static CUresult set_peer(CUcontext ctx, int on)
{
    context_t *context = cuda_current();
    context_t *peer    = find_context(ctx);
    uint32_t   bit     = peer != NULL ? 1u << peer->device : 0;

    if (peer == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (context->gpu == peer->gpu || !core_reaches(context->gpu, peer->gpu)) {
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    if (((context->peers & bit) != 0) == on) {
        return on ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_PROGRAM_PEER_ACCESS_NOT_ENABLED;
    }
    context->peers ^= bit;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext ctx, unsigned flags)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    if (result == CUDA_SUCCESS) {
        result = flags == 0 ? set_peer(ctx, 1) : CUDA_ERROR_INVALID_VALUE;
    }
    return cuda_leave(result);
}

CUresult cuCtxDisablePeerAccess(CUcontext ctx)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    return cuda_leave(result == CUDA_SUCCESS ? set_peer(ctx, 0) : result);
}

int standin_contexts(void **current)
{
    if (current != NULL) {
        *current = depth > 0 ? stack[depth - 1].context : NULL;
    }
    return depth;
}
