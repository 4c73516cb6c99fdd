/* SPDX-License-Identifier: BSD-3-Clause */
/* CUDA's driver: see gpu.h and cuda.h. Calls libcuda.so.1, if the program has loaded it. */
#define _GNU_SOURCE
#include "cuda.h"

#include "provider/provider.h"
#include "src/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEVICES_MAX 64

cuda_calls_t cuda;

/* ---- the driver ------------------------------------------------------------------------------ */

#define SYMBOL_NEEDED(_name, _symbol, _arguments) {#_symbol, NULL, offsetof(cuda_calls_t, _name)},
#define SYMBOL_WANTED(_name, _symbol, _arguments, _cost) \
    {#_symbol, _cost, offsetof(cuda_calls_t, _name)},

static const ang_gpu_symbol_t symbols[] = {CUDA_CALLS_NEEDED(SYMBOL_NEEDED)
                                               CUDA_CALLS_WANTED(SYMBOL_WANTED)};

static ang_gpu_library_t library = {.stem        = "libcuda.so",
                                    .needs       = "a driver of CUDA 11.2 or later",
                                    .symbols     = symbols,
                                    .num_symbols = sizeof(symbols) / sizeof(symbols[0]),
                                    .calls       = &cuda,
                                    .size        = sizeof(cuda)};

_Static_assert(sizeof(cuda) <= ANG_GPU_CALLS_MAX * sizeof(void *), "library.c has room");

const char *cuda_name(CUresult result)
{
    static __thread char number[32];
    const char          *name = NULL;

    if (cuda.get_error_name == NULL || cuda.get_error_name(result, &name) != CUDA_SUCCESS ||
        name == NULL) {
        snprintf(number, sizeof(number), "CUDA error %d", result);
        name = number;
    }
    return name;
}

int cuda_has_ended(CUresult result)
{
    return result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT ||
           result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_INVALID_HANDLE ||
           result == CUDA_ERROR_NOT_INITIALIZED;
}

/* ---- contexts -------------------------------------------------------------------------------- */

/* Calls that a capture of the program's forbids, of us they may be. */
static void mode_relax(cuda_scope_t *scope)
{
    scope->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (cuda.exchange_capture_mode != NULL) {
        cuda.exchange_capture_mode(&scope->mode);
    }
}

static void mode_restore(const cuda_scope_t *scope)
{
    int mode = scope->mode;

    if (cuda.exchange_capture_mode != NULL) {
        cuda.exchange_capture_mode(&mode);
    }
}

/* The GPU's primary context, retained, if the program has made it; NULL: no. */
static CUcontext primary_get(int device)
{
    CUcontext ctx    = NULL;
    unsigned  flags  = 0;
    int       active = 0;
    CUdevice  gpu;

    if (cuda.device_get(&gpu, device) != CUDA_SUCCESS ||
        cuda.primary_ctx_get_state(gpu, &flags, &active) != CUDA_SUCCESS || !active ||
        cuda.primary_ctx_retain(&ctx, gpu) != CUDA_SUCCESS) {
        return NULL;
    }
    return ctx;
}

static void primary_put(int device)
{
    CUdevice gpu;

    if (cuda.device_get(&gpu, device) == CUDA_SUCCESS) {
        cuda.primary_ctx_release(gpu);
    }
}

/* The current context, if it is of that GPU. */
static CUcontext current_of(int device)
{
    CUcontext ctx = NULL;
    CUdevice  gpu, own;

    if (cuda.ctx_get_current(&ctx) != CUDA_SUCCESS || ctx == NULL ||
        cuda.ctx_get_device(&own) != CUDA_SUCCESS ||
        cuda.device_get(&gpu, device) != CUDA_SUCCESS || own != gpu) {
        return NULL;
    }
    return ctx;
}

/* The last context that memory of a GPU was seen in. */
static struct {
    CUcontext          ctx; /* atomic */
    unsigned long long id;
} seen[DEVICES_MAX];
static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER; /* of writing, and of both together */

static void seen_note(int device, CUcontext ctx)
{
    unsigned long long id = 0;

    if (ctx == NULL || device < 0 || device >= DEVICES_MAX || cuda.ctx_get_id == NULL ||
        __atomic_load_n(&seen[device].ctx, __ATOMIC_RELAXED) == ctx ||
        cuda.ctx_get_id(ctx, &id) != CUDA_SUCCESS) {
        return;
    }
    pthread_mutex_lock(&seen_lock);
    __atomic_store_n(&seen[device].ctx, ctx, __ATOMIC_RELAXED);
    seen[device].id = id;
    pthread_mutex_unlock(&seen_lock);
}

static CUcontext seen_get(int device)
{
    unsigned long long id = 0, now = 0;
    CUcontext          ctx = NULL;

    if (device < 0 || device >= DEVICES_MAX || cuda.ctx_get_id == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&seen_lock);
    ctx = seen[device].ctx;
    id  = seen[device].id;
    pthread_mutex_unlock(&seen_lock);
    return ctx != NULL && cuda.ctx_get_id(ctx, &now) == CUDA_SUCCESS && now == id ? ctx : NULL;
}

CUresult cuda_enter(CUcontext ctx, int device, cuda_scope_t *scope)
{
    CUresult result = CUDA_ERROR_INVALID_DEVICE;

    *scope = (cuda_scope_t){.ctx = ctx, .device = device};
    mode_relax(scope);
    if (scope->ctx == NULL) {
        scope->ctx     = primary_get(device);
        scope->primary = scope->ctx != NULL;
    }
    if (scope->ctx == NULL) {
        scope->ctx = current_of(device);
    }
    if (scope->ctx == NULL) {
        scope->ctx = seen_get(device);
    }
    if (scope->ctx == NULL) {
        goto err;
    }
    result = cuda.ctx_push(scope->ctx);
    if (result != CUDA_SUCCESS) {
        goto err;
    }
    /* Pushing one that was destroyed may succeed; asking for its number doesn't. */
    if (cuda.ctx_get_id != NULL) {
        result = cuda.ctx_get_id(scope->ctx, &scope->id);
        if (result != CUDA_SUCCESS) {
            cuda.ctx_pop(&scope->ctx);
            goto err;
        }
    }
    return CUDA_SUCCESS;

err:
    if (scope->primary) {
        primary_put(device);
    }
    mode_restore(scope);
    return result;
}

void cuda_leave(const cuda_scope_t *scope)
{
    CUcontext ctx;

    cuda.ctx_pop(&ctx);
    if (scope->primary) {
        primary_put(scope->device);
    }
    mode_restore(scope);
}

/* ---- pointers -------------------------------------------------------------------------------- */

/* As angara_mem_t has it; 0 if it can't be told. */
static uint32_t device_pci(int device)
{
    static uint32_t known[DEVICES_MAX]; /* + 1; written with the same value by whoever comes */
    int             domain, bus, slot;
    uint32_t        pci;
    CUdevice        gpu;

    if (device < 0 || device >= DEVICES_MAX) {
        return 0;
    }
    pci = __atomic_load_n(&known[device], __ATOMIC_RELAXED);
    if (pci == 0 && cuda.device_get(&gpu, device) == CUDA_SUCCESS &&
        cuda.device_get_attribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, gpu) ==
            CUDA_SUCCESS &&
        cuda.device_get_attribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, gpu) == CUDA_SUCCESS &&
        cuda.device_get_attribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, gpu) == CUDA_SUCCESS) {
        pci = ((uint32_t)domain << 16 | (uint32_t)bus << 8 | (uint32_t)slot << 3) + 1;
        __atomic_store_n(&known[device], pci, __ATOMIC_RELAXED);
    }
    return pci == 0 ? 0 : pci - 1;
}

/* What the driver says of a pointer. */
typedef struct {
    CUcontext          ctx;
    unsigned           type;
    unsigned long long id;
    unsigned           is_managed;
    int                device;
    unsigned char      has_handle;
    CUdeviceptr        base;
    size_t             length;
} pointer_t;

/* All of them at once: what isn't CUDA's has type 0. */
static CUresult pointer_ask(const void *addr, pointer_t *pointer)
{
    int attributes[] = {
        CU_POINTER_ATTRIBUTE_CONTEXT,          CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_BUFFER_ID,        CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&pointer->ctx,    &pointer->type,       &pointer->id,   &pointer->is_managed,
                      &pointer->device, &pointer->has_handle, &pointer->base, &pointer->length};

    *pointer = (pointer_t){.device = -1};
    return cuda.pointer_get_attributes(sizeof(attributes) / sizeof(attributes[0]), attributes,
                                       values, (CUdeviceptr)(uintptr_t)addr);
}

/* Can the CPU read 8 bytes there? No filter of system calls forbids this one. */
static int is_readable(const void *addr)
{
    /* The kernel reads it before it sees that there is nothing to do. */
    return syscall(SYS_rt_sigprocmask, -1, addr, NULL, 8) == 0 || errno != EFAULT;
}

/*
 * After a GPU's error, and when it has gone, the driver tells nothing any more. What the CPU can't
 * read is a GPU's then: copies of it fail, but nobody crashes.
 */
static int query_blindly(const void *addr, CUresult result, ang_gpu_mem_t *mem)
{
    static int has_said; /* atomic */

    if (is_readable(addr)) {
        return 0;
    }
    if (result == CUDA_ERROR_DEINITIALIZED) {
        ang_debug("%p: the driver has ended", addr); /* MPI_Finalize comes after its destructor */
    } else if (!__atomic_exchange_n(&has_said, 1, __ATOMIC_RELAXED)) {
        ang_error("the driver doesn't say what %p is: %s", addr, cuda_name(result));
    }
    mem->mem.kind   = ANGARA_MEM_CUDA;
    mem->mem.length = SIZE_MAX;
    return 1;
}

/*
 * CUDA's calls that block may return before what they copy or set has arrived, if nobody asks for
 * more; then our streams would read old bytes. Once for each allocation; it also waits for what is
 * under way. Pools and mapped ranges refuse it.
 */
static void sync_memops(const void *addr, unsigned long long id)
{
    static unsigned long long asked[65536]; /* ids, + 1; atomic */
    unsigned long long       *place = &asked[id % (sizeof(asked) / sizeof(asked[0]))];
    const unsigned            on    = 1;

    if (cuda.pointer_set_attribute != NULL && __atomic_load_n(place, __ATOMIC_ACQUIRE) != id + 1) {
        cuda.pointer_set_attribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                   (CUdeviceptr)(uintptr_t)addr);
        __atomic_store_n(place, id + 1, __ATOMIC_RELEASE);
    }
}

static int cuda_query(const void *addr, ang_gpu_mem_t *mem)
{
    pointer_t pointer;
    CUresult  result = pointer_ask(addr, &pointer);

    if (result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_INVALID_VALUE) {
        return 0; /* there is no GPU memory yet; older drivers of host memory */
    }
    if (result != CUDA_SUCCESS) {
        return query_blindly(addr, result, mem);
    }
    if (pointer.type != CU_MEMORYTYPE_DEVICE && !pointer.is_managed) {
        return 0;
    }
    mem->mem.kind   = pointer.is_managed ? ANGARA_MEM_CUDA_MANAGED : ANGARA_MEM_CUDA;
    mem->mem.device = pointer.device;
    mem->mem.base   = (void *)(uintptr_t)pointer.base;
    mem->mem.length = pointer.length;
    mem->mem.id     = pointer.id;
    mem->mem.pci    = device_pci(pointer.device);
    mem->mem.shares = pointer.has_handle && !pointer.is_managed && cuda.ipc_get != NULL &&
                      cuda.ipc_open != NULL && cuda.ipc_close != NULL;
    mem->context = pointer.ctx;
    seen_note(pointer.device, pointer.ctx);
    if (!pointer.is_managed) {
        sync_memops(addr, pointer.id);
    }
    return 1;
}

/* By one registration: the driver refuses copies that run past its end, and they go another way. */
static int cuda_is_pinned(const void *addr, size_t length)
{
    pointer_t first, last;

    if (pointer_ask(addr, &first) != CUDA_SUCCESS || first.type != CU_MEMORYTYPE_HOST) {
        return 0;
    }
    if (first.base != 0) {
        return ang_in_bounds((uintptr_t)addr - first.base, length, first.length);
    }
    return pointer_ask((const char *)addr + length - 1, &last) == CUDA_SUCCESS &&
           last.type == CU_MEMORYTYPE_HOST;
}

static int cuda_is_registered(const void *addr, size_t length)
{
    pointer_t pointer;

    return pointer_ask(addr, &pointer) == CUDA_SUCCESS && pointer.type == CU_MEMORYTYPE_HOST &&
           pointer.base != 0 &&
           ang_in_bounds((uintptr_t)addr - pointer.base, length, pointer.length);
}

/* ---- sharing --------------------------------------------------------------------------------- */

_Static_assert(sizeof(CUipcMemHandle) == sizeof(ang_gpu_handle_t), "it fits");

static angara_status_t cuda_share(const ang_gpu_mem_t *mem, ang_gpu_handle_t *handle)
{
    cuda_scope_t   scope;
    CUipcMemHandle ipc;
    CUresult       result;

    if (!mem->mem.shares || cuda_enter(mem->context, mem->mem.device, &scope) != CUDA_SUCCESS) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    result = cuda.ipc_get(&ipc, (CUdeviceptr)(uintptr_t)mem->mem.base);
    cuda_leave(&scope);
    if (result != CUDA_SUCCESS) {
        ang_debug("no handle of GPU memory at %p: %s", mem->mem.base, cuda_name(result));
        return ANGARA_ERR_UNSUPPORTED;
    }
    memcpy(handle->bytes, &ipc, sizeof(ipc));
    return ANGARA_OK;
}

static angara_status_t cuda_map(int device, const ang_gpu_handle_t *handle, size_t length,
                                ang_gpu_map_t *map)
{
    cuda_scope_t   scope;
    CUipcMemHandle ipc;
    CUdeviceptr    base;
    CUresult       result;

    (void)length;
    if (cuda.ipc_open == NULL || cuda_enter(NULL, device, &scope) != CUDA_SUCCESS) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    memcpy(&ipc, handle->bytes, sizeof(ipc));
    result = cuda.ipc_open(&base, ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    cuda_leave(&scope);
    if (result != CUDA_SUCCESS) {
        ang_debug("GPU %d can't map memory of another process: %s", device, cuda_name(result));
        return ANGARA_ERR_UNSUPPORTED;
    }
    *map = (ang_gpu_map_t){(void *)(uintptr_t)base, device, scope.ctx};
    return ANGARA_OK;
}

static void cuda_unmap(const ang_gpu_map_t *map)
{
    cuda_scope_t scope;

    /* A context that has ended has unmapped it. */
    if (cuda_enter(map->context, map->device, &scope) == CUDA_SUCCESS) {
        cuda.ipc_close((CUdeviceptr)(uintptr_t)map->base);
        cuda_leave(&scope);
    }
}

/*
 * Is nothing under way in the context, in whatever stream? A legacy stream that can't be asked
 * means that the program captures. (That it does so with streams that don't wait for the legacy one
 * can't be told: recording the context would end the capture with an error. But this is called
 * within calls of the program's to us, where a thread that captures hardly is.)
 */
static int context_is_idle(const cuda_scope_t *scope)
{
    int      capturing = 0;
    CUevent  event;
    CUresult result;

    if (cuda.stream_is_capturing != NULL &&
        (cuda.stream_is_capturing(NULL, &capturing) != CUDA_SUCCESS || capturing)) {
        return 0;
    }
    if (cuda.ctx_record_event == NULL) {
        return cuda.stream_query(NULL) == CUDA_SUCCESS;
    }
    if (cuda.event_create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        return 0;
    }
    result = cuda.ctx_record_event(scope->ctx, event);
    if (result == CUDA_SUCCESS) {
        result = cuda.event_query(event);
    }
    cuda.event_destroy(event);
    return result == CUDA_SUCCESS;
}

static int cuda_is_idle(const ang_gpu_map_t *map)
{
    cuda_scope_t scope;
    CUresult     result = cuda_enter(map->context, map->device, &scope);
    int          is_idle;

    if (result != CUDA_SUCCESS) {
        return result != CUDA_ERROR_OUT_OF_MEMORY; /* which may pass: else the context has ended */
    }
    is_idle = context_is_idle(&scope);
    cuda_leave(&scope);
    return is_idle;
}

/* It waits for no kernel, but takes up to 26 ms while one runs (driver 580, H200). */
static angara_status_t cuda_pin(void *addr, size_t length, const ang_gpu_mem_t *mem,
                                ang_gpu_map_t *map)
{
    cuda_scope_t scope;
    CUresult     result = cuda_enter(mem->context, mem->mem.device, &scope);

    if (result == CUDA_SUCCESS) {
        result = cuda.host_register(addr, length, CU_MEMHOSTREGISTER_PORTABLE);
        cuda_leave(&scope);
    }
    if (result != CUDA_SUCCESS) {
        ang_debug("GPU %d: %zu bytes at %p can't be pinned: %s", mem->mem.device, length, addr,
                  cuda_name(result));
        return ANGARA_ERR_UNSUPPORTED;
    }
    *map = (ang_gpu_map_t){addr, mem->mem.device, scope.ctx};
    return ANGARA_OK;
}

/* It waits for kernels of the context's GPU, not of others. If the context has ended, the driver is
 * asked whether the registration has, too. */
static int cuda_unpin(const ang_gpu_map_t *map)
{
    CUresult     result;
    cuda_scope_t scope;
    pointer_t    pointer;

    result = cuda_enter(map->context, map->device, &scope);
    if (result == CUDA_SUCCESS) {
        result = cuda.host_unregister(map->base);
        cuda_leave(&scope);
    }
    if (result == CUDA_SUCCESS) {
        return 1;
    }
    result = pointer_ask(map->base, &pointer);
    return (result == CUDA_SUCCESS && pointer.type != CU_MEMORYTYPE_HOST) ||
           result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_DEINITIALIZED;
}

static angara_status_t cuda_dmabuf(const ang_gpu_mem_t *mem, const void *addr, size_t length,
                                   int *fd_p, uint64_t *offset_p)
{
    uintptr_t    page  = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t    begin = (uintptr_t)addr / page * page;
    uintptr_t    end   = ((uintptr_t)addr + length + page - 1) / page * page;
    cuda_scope_t scope;
    CUresult     result;
    int          fd = -1;

    if (cuda.get_range_handle == NULL ||
        cuda_enter(mem->context, mem->mem.device, &scope) != CUDA_SUCCESS) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    result = cuda.get_range_handle(&fd, begin, end - begin, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    cuda_leave(&scope);
    if (result != CUDA_SUCCESS) {
        ang_debug("no dma-buf of GPU memory at %p: %s", addr, cuda_name(result));
        return ANGARA_ERR_UNSUPPORTED;
    }
    *fd_p     = fd;
    *offset_p = (uintptr_t)addr - begin;
    return ANGARA_OK;
}

const ang_gpu_ops_t ang_gpu_cuda = {
    .name          = "cuda",
    .nodes         = {"/dev/nvidiactl", "/dev/nvmap", "/dev/dxg"}, /* cards, Tegra, WSL */
    .kind          = ANGARA_MEM_CUDA,
    .managed       = ANGARA_MEM_CUDA_MANAGED,
    .library       = &library,
    .query         = cuda_query,
    .copy_start    = cuda_copy_start,
    .copy_test     = cuda_copy_test,
    .copy_submit   = cuda_copy_submit,
    .is_pinned     = cuda_is_pinned,
    .is_registered = cuda_is_registered,
    .share         = cuda_share,
    .map           = cuda_map,
    .unmap         = cuda_unmap,
    .pin           = cuda_pin,
    .unpin         = cuda_unpin,
    .is_idle       = cuda_is_idle,
    .dmabuf        = cuda_dmabuf,
};
