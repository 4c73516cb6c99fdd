/* SPDX-License-Identifier: BSD-3-Clause */
/* CUDA memory for tests: see device.h. Uses each GPU's primary context, as CUDA's runtime does. */
#include "cuda_program.h"
#include "device.h"

#include <stdlib.h>
#include <string.h>

#define GPUS_MAX   16
#define RANGES_MAX 256
#define PIECES_MAX 3 /* of memory, mapped side by side, as allocators that grow do */

static cuda_program_t cuda;
static CUcontext      contexts[GPUS_MAX];
static unsigned       num_gpus;

/* What cuMemUnmap and so on want to know again. */
static struct {
    CUdeviceptr                  ptr;
    size_t                       size;
    size_t                       piece; /* bytes; the last one may be shorter */
    CUmemGenericAllocationHandle handles[PIECES_MAX];
} ranges[RANGES_MAX];

static void check(CUresult result, const char *call)
{
    const char *name = NULL;

    if (result != CUDA_SUCCESS) {
        if (cuda.get_error_name != NULL) {
            cuda.get_error_name(result, &name);
        }
        fprintf(stderr, "%s: %s (%d)\n", call, name != NULL ? name : "?", result);
        abort();
    }
}

#define MUST(_call) check(_call, #_call)

static unsigned cuda_open(void)
{
    CUdevice device;
    int      count = 0;

    if (num_gpus != 0) {
        return num_gpus;
    }
    if (!cuda_program_load(&cuda, NULL) || cuda.init(0) != CUDA_SUCCESS ||
        cuda.device_get_count(&count) != CUDA_SUCCESS) {
        return 0;
    }
    num_gpus = count < GPUS_MAX ? (unsigned)count : GPUS_MAX;
    for (unsigned i = 0; i < num_gpus; ++i) {
        MUST(cuda.device_get(&device, (int)i));
        MUST(cuda.primary_ctx_retain(&contexts[i], device));
    }
    return num_gpus;
}

static void *range_alloc(unsigned gpu, size_t size)
{
    CUmemAllocationProp prop   = {.type     = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)gpu}};
    CUmemAccessDesc     access = {{CU_MEM_LOCATION_TYPE_DEVICE, (int)gpu},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t              unit   = 0, units, bytes, at;
    unsigned            i = 0, n = 0;

    while (i < RANGES_MAX && ranges[i].ptr != 0) {
        ++i;
    }
    if (cuda.vmm_create == NULL || i == RANGES_MAX ||
        cuda.vmm_granularity(&unit, &prop, 0) != CUDA_SUCCESS) {
        return NULL;
    }
    units           = (size + unit - 1) / unit;
    ranges[i].size  = units * unit;
    ranges[i].piece = (units + PIECES_MAX - 1) / PIECES_MAX * unit;
    MUST(cuda.vmm_reserve(&ranges[i].ptr, ranges[i].size, 0, 0, 0));
    for (at = 0; at < ranges[i].size; at += bytes, ++n) {
        bytes = ranges[i].size - at < ranges[i].piece ? ranges[i].size - at : ranges[i].piece;
        MUST(cuda.vmm_create(&ranges[i].handles[n], bytes, &prop, 0));
        MUST(cuda.vmm_map(ranges[i].ptr + at, bytes, 0, ranges[i].handles[n], 0));
    }
    MUST(cuda.vmm_set_access(ranges[i].ptr, ranges[i].size, &access, 1));
    return (void *)(uintptr_t)ranges[i].ptr;
}

static void range_free(CUdeviceptr ptr)
{
    unsigned i = 0;

    while (ranges[i].ptr != ptr) {
        ++i;
    }
    MUST(cuda.vmm_unmap(ptr, ranges[i].size));
    for (unsigned n = 0; n * ranges[i].piece < ranges[i].size; ++n) {
        MUST(cuda.vmm_release(ranges[i].handles[n]));
    }
    MUST(cuda.vmm_free(ptr, ranges[i].size));
    ranges[i].ptr = 0;
}

static CUdeviceptr origin_alloc(unsigned gpu, size_t size, device_origin_t origin)
{
    CUdeviceptr ptr  = 0;
    void       *host = NULL;
    CUresult    result;

    switch (origin) {
    case DEVICE_PLAIN:
        result = cuda.mem_alloc(&ptr, size);
        break;
    case DEVICE_MANAGED:
        result = cuda.mem_alloc_managed(&ptr, size, CU_MEM_ATTACH_GLOBAL);
        break;
    case DEVICE_POOL:
        result = cuda.mem_alloc_async == NULL ? CUDA_ERROR_NOT_SUPPORTED :
                                                cuda.mem_alloc_async(&ptr, size, NULL);
        if (result == CUDA_SUCCESS) {
            MUST(cuda.stream_synchronize(NULL));
        }
        break;
    case DEVICE_MAPPED:
        ptr    = (CUdeviceptr)(uintptr_t)range_alloc(gpu, size);
        result = ptr != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
        break;
    default:
        result = cuda.mem_host_alloc(&host, size, CU_MEMHOSTALLOC_PORTABLE);
        ptr    = (CUdeviceptr)(uintptr_t)host;
        break;
    }
    return result == CUDA_SUCCESS ? ptr : 0;
}

static void *cuda_alloc(unsigned gpu, size_t size, device_origin_t origin)
{
    CUdeviceptr ptr;
    CUcontext   ctx;

    MUST(cuda.ctx_push(contexts[gpu]));
    ptr = origin_alloc(gpu, size, origin);
    if (ptr != 0 && origin == DEVICE_PINNED) {
        memset((void *)(uintptr_t)ptr, 0, size);
    } else if (ptr != 0) {
        MUST(cuda.memset_d8(ptr, 0, size));
        MUST(cuda.ctx_synchronize());
    }
    MUST(cuda.ctx_pop(&ctx));
    return (void *)(uintptr_t)ptr;
}

/* Of the GPU that has it: of memory that was mapped, others may not have any. */
static CUcontext context_of(const void *addr)
{
    int device = 0;

    MUST(cuda.pointer_get_attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    (CUdeviceptr)(uintptr_t)addr));
    return contexts[device >= 0 ? device : 0];
}

static void cuda_free(void *addr, device_origin_t origin)
{
    CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)addr;
    CUcontext   ctx;

    MUST(cuda.ctx_push(context_of(addr)));
    switch (origin) {
    case DEVICE_POOL:
        MUST(cuda.mem_free_async(ptr, NULL));
        MUST(cuda.stream_synchronize(NULL));
        break;
    case DEVICE_MAPPED:
        range_free(ptr);
        break;
    case DEVICE_PINNED:
        MUST(cuda.mem_free_host(addr));
        break;
    default:
        MUST(cuda.mem_free(ptr));
        break;
    }
    MUST(cuda.ctx_pop(&ctx));
}

static void copy(void *dst, const void *src, size_t size, CUcontext ctx)
{
    MUST(cuda.ctx_push(ctx));
    MUST(cuda.memcpy((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src, size));
    MUST(cuda.ctx_synchronize());
    MUST(cuda.ctx_pop(&ctx));
}

static void cuda_write(void *gpu_addr, const void *src, size_t size)
{
    copy(gpu_addr, src, size, context_of(gpu_addr));
}

static void cuda_read(void *dst, const void *gpu_addr, size_t size)
{
    copy(dst, gpu_addr, size, context_of(gpu_addr));
}

static void cuda_write_only(void *gpu_addr, const void *src, size_t size)
{
    CUcontext ctx = context_of(gpu_addr);

    MUST(cuda.ctx_push(ctx));
    MUST(cuda.memcpy_htod((CUdeviceptr)(uintptr_t)gpu_addr, src, size));
    MUST(cuda.ctx_pop(&ctx));
}

static size_t cuda_available(unsigned gpu)
{
    size_t    size = 0, total = 0;
    CUcontext ctx;

    MUST(cuda.ctx_push(contexts[gpu]));
    MUST(cuda.mem_get_info(&size, &total));
    MUST(cuda.ctx_pop(&ctx));
    return size;
}

/* Waits until the word isn't 0. Source: the PTX ISA manual. */
static const char kernel_text[] = ".version 6.0\n"
                                  ".target sm_50\n"
                                  ".address_size 64\n"
                                  ".visible .entry wait(.param .u64 word)\n"
                                  "{\n"
                                  "    .reg .u64 %rd<2>;\n"
                                  "    .reg .u32 %r<2>;\n"
                                  "    .reg .pred %p;\n"
                                  "    ld.param.u64 %rd1, [word];\n"
                                  "again:\n"
                                  "    ld.volatile.global.u32 %r1, [%rd1];\n"
                                  "    setp.eq.u32 %p, %r1, 0;\n"
                                  "    @%p bra again;\n"
                                  "    ret;\n"
                                  "}\n";

static struct {
    CUcontext ctx;
    CUstream  stream;
    uint32_t *word; /* pinned host memory */
} kernel;

static void cuda_kernel_start(unsigned gpu)
{
    int         processors = 0;
    CUdeviceptr word;
    void       *arguments[] = {&word};
    CUmodule    module;
    CUfunction  function;
    CUdevice    device;
    CUcontext   ctx;

    kernel.ctx = contexts[gpu];
    MUST(cuda.ctx_push(kernel.ctx));
    MUST(cuda.device_get(&device, (int)gpu));
    MUST(cuda.device_get_attribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    MUST(cuda.module_load_data(&module, kernel_text));
    MUST(cuda.module_get_function(&function, module, "wait"));
    MUST(cuda.stream_create(&kernel.stream, CU_STREAM_NON_BLOCKING));
    MUST(cuda.mem_host_alloc((void **)&kernel.word, sizeof(*kernel.word),
                             CU_MEMHOSTALLOC_DEVICEMAP));
    *kernel.word = 0;
    MUST(cuda.host_get_device_pointer(&word, kernel.word, 0));
    /* At most 2048 threads fit a multiprocessor. */
    MUST(cuda.launch_kernel(function, 2 * (unsigned)processors, 1, 1, 1024, 1, 1, 0, kernel.stream,
                            arguments, NULL));
    MUST(cuda.ctx_pop(&ctx));
}

static void cuda_kernel_end(void)
{
    CUcontext ctx;

    MUST(cuda.ctx_push(kernel.ctx));
    __atomic_store_n(kernel.word, 1, __ATOMIC_RELEASE);
    MUST(cuda.stream_synchronize(kernel.stream));
    MUST(cuda.stream_destroy(kernel.stream));
    MUST(cuda.mem_free_host(kernel.word));
    MUST(cuda.ctx_pop(&ctx));
}

const device_runtime_t device_cuda = {
    .name    = "cuda",
    .library = "libcuda.so.1",
    .open    = cuda_open,
    .alloc   = cuda_alloc,
    .free    = cuda_free,
    .write   = cuda_write,
    .read    = cuda_read,

    .write_only = cuda_write_only,
    .available  = cuda_available,

    .kernel_start = cuda_kernel_start,
    .kernel_end   = cuda_kernel_end,
};
