/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in for libcuda: does it do what the tests of the library count on? */
#define _GNU_SOURCE
#include "standin_cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include <cmocka.h>

/* --- start and end --------------------------------------------------------------------------*/

static void run_start(void)
{
    CUdeviceptr ptr = 0;
    int         a, b, count;
    CUcontext   context;
    CUdevice    device;
    pid_t       pid;

    load();
    CHECK_IS(cuda.pointer_get_attribute(&a, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 1), 3);
    CHECK_IS(cuda.pointer_get_attributes(0, NULL, NULL, 1), 3);
    CHECK_IS(cuda.device_get_count(&count), 3);
    CHECK_IS(cuda.primary_ctx_retain(&context, 0), 3);
    CHECK_IS(cuda.mem_alloc(&ptr, 1), 3);

    /* A child of a process that hasn't started the driver may do so. */
    pid = fork();
    if (pid == 0) {
        OK(cuda.init(0));
        _exit(0);
    }
    CHECK(waitpid(pid, &a, 0) == pid);
    CHECK_IS(a, 0);

    OK(cuda.init(0));
    OK(cuda.device_get_count(&count));
    CHECK_IS(count, 2);
    CHECK_IS(cuda.device_get(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    OK(cuda.device_get_attribute(&a, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0));
    OK(cuda.device_get_attribute(&b, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 1));
    CHECK(a != b);

    pid = fork();
    if (pid == 0) {
        CHECK_IS(cuda.init(0), 3);
        CHECK_IS(cuda.ctx_get_current(&context), 3);
        _exit(0);
    }
    CHECK(waitpid(pid, &a, 0) == pid);
    CHECK_IS(a, 0);

    standin.deinit();
    CHECK_IS(cuda.init(0), CUDA_ERROR_DEINITIALIZED);
    CHECK_IS(cuda.ctx_get_current(&context), CUDA_ERROR_DEINITIALIZED);
    CHECK_IS(cuda.stream_query(NULL), CUDA_ERROR_DEINITIALIZED);
}

static void run_visible(void)
{
    int bus, other, count;

    setenv("STANDIN_VISIBLE", "0,1", 1);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    load();
    OK(cuda.init(0));
    OK(cuda.device_get_count(&count));
    CHECK_IS(count, 1);
    OK(cuda.device_get_attribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0));
    CHECK_IS(cuda.device_get_attribute(&other, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 1), 101);
    CHECK_IS(bus, 0x37);
}

static void run_no_device(void)
{
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    load();
    CHECK_IS(cuda.init(0), CUDA_ERROR_NO_DEVICE);
    CHECK_IS(cuda.stream_query(NULL), CUDA_ERROR_NOT_INITIALIZED);
}

static void test_start(void **state)
{
    (void)state;
    RUNS(run_start);
    RUNS(run_visible);
    RUNS(run_no_device);
}

/* --- contexts -------------------------------------------------------------------------------*/

static void run_contexts(void)
{
    unsigned long long id, new_id;
    unsigned           flags;
    int                active;
    CUdeviceptr        ptr;
    CUcontext          a, b, current;
    CUdevice           device;
    CUstream           stream;
    void              *top;
    static char        host[4096];

    load();
    OK(cuda.init(0));
    CHECK_IS(cuda.mem_alloc(&ptr, 1), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_IS(cuda.stream_create(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_IS(cuda.ctx_pop(&current), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuda.ctx_get_current(&current));
    CHECK(current == NULL);

    OK(cuda.ctx_create(&a, 0, 0));
    OK(cuda.ctx_create(&b, 0, 1));
    CHECK_IS(standin.contexts(&top), 2);
    CHECK(top == b);
    OK(cuda.ctx_get_device(&device));
    CHECK_IS(device, 1);
    OK(cuda.ctx_get_id(a, &id));

    /* All that belongs to a context goes with it. */
    OK(cuda.ctx_set_current(a));
    ptr = alloc(SIZE);
    OK(cuda.host_register(host, sizeof(host), 0));
    stream = make_stream();
    OK(cuda.ctx_destroy(a));
    CHECK_IS(standin.contexts(&top), 1);
    CHECK_IS(standin.allocations() + standin.registrations(), 0);
    CHECK_IS(cuda.stream_query(stream), CUDA_ERROR_INVALID_HANDLE);
    CHECK_IS(cuda.stream_destroy(stream), CUDA_ERROR_INVALID_HANDLE);
    CHECK_IS(cuda.ctx_push(a), CUDA_ERROR_INVALID_CONTEXT);

    /* Its handle comes again, its number doesn't; who has the old one on his stack is told. */
    OK(cuda.ctx_set_current(NULL));
    OK(cuda.ctx_create(&current, 0, 0));
    CHECK(current == a);
    OK(cuda.ctx_get_id(current, &new_id));
    CHECK(id != new_id);
    OK(cuda.ctx_push(current));
    OK(cuda.ctx_destroy(current));
    CHECK_IS(cuda.mem_alloc(&ptr, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuda.ctx_pop(&current));

    OK(cuda.primary_ctx_get_state(1, &flags, &active));
    CHECK_IS(active, 0);
    OK(cuda.primary_ctx_retain(&a, 1));
    OK(cuda.primary_ctx_retain(&a, 1));
    OK(cuda.ctx_push(a));
    ptr = alloc(1);
    OK(cuda.primary_ctx_release(1));
    OK(cuda.primary_ctx_get_state(1, &flags, &active));
    CHECK_IS(active, 1);
    OK(cuda.primary_ctx_release(1));
    OK(cuda.primary_ctx_get_state(1, &flags, &active));
    CHECK_IS(active, 0);
    CHECK_IS(standin.allocations(), 0);
    CHECK_IS(cuda.mem_free(ptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

/* Work that waits is dropped: what was to follow it doesn't come. */
static void run_context_end(void)
{
    CUcontext       context = start();
    CUdeviceptr     ptr     = alloc(SIZE);
    CUstream        stream  = make_stream();
    static uint64_t word;

    OK(cuda.host_register(&word, sizeof(word), 0));
    standin.hold(1);
    OK(cuda.memcpy_async(ptr, ptr + SIZE / 2, SIZE / 4, stream));
    OK(cuda.stream_write_value(stream, (CUdeviceptr)&word, 1, 0));
    CHECK_IS(standin.pending(), 2);
    OK(cuda.ctx_destroy(context));
    CHECK_IS(standin.pending(), 0);
    CHECK_IS(word, 0);
}

static void test_contexts(void **state)
{
    (void)state;
    RUNS(run_contexts);
    RUNS(run_context_end);
}

/* --- memory ---------------------------------------------------------------------------------*/

static unsigned get_unsigned(CUdeviceptr ptr, int attribute)
{
    unsigned long long value = 0; /* some are longer */

    OK(cuda.pointer_get_attribute(&value, attribute, ptr));
    return (unsigned)value;
}

static void run_memory(void)
{
    CUcontext    context = start(), owner;
    CUdeviceptr  ptr = alloc(SIZE), next = alloc(SIZE), base;
    char         bytes[16];
    struct iovec local = {bytes, sizeof(bytes)}, remote = {(void *)ptr, sizeof(bytes)};
    unsigned     id = get_unsigned(ptr, CU_POINTER_ATTRIBUTE_BUFFER_ID);
    int          type, attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void        *values[] = {&type};
    size_t       size;

    CHECK_IS(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), -1);
    OK(cuda.mem_get_address_range(&base, &size, ptr + 77));
    CHECK(base == ptr && size == SIZE);
    OK(cuda.pointer_get_attribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
    CHECK(owner == context);
    CHECK_IS(get_unsigned(ptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
    CHECK_IS(get_unsigned(ptr, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
    CHECK_IS(get_unsigned(ptr, CU_POINTER_ATTRIBUTE_IS_MANAGED), 0);
    CHECK_IS(get_unsigned(ptr + 5, CU_POINTER_ATTRIBUTE_RANGE_SIZE), SIZE);
    CHECK_IS(get_unsigned(ptr, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE), 1);

    /* Of other memory nothing is known. */
    CHECK_IS(cuda.pointer_get_attribute(&type, attributes[0], (CUdeviceptr)bytes), 1);
    OK(cuda.pointer_get_attributes(1, attributes, values, (CUdeviceptr)bytes));
    CHECK_IS(type, 0);

    /* The address comes again at once, with another number. */
    OK(cuda.mem_free(ptr));
    CHECK_IS(cuda.mem_free(ptr), CUDA_ERROR_INVALID_VALUE);
    CHECK(alloc(SIZE) == ptr);
    CHECK(get_unsigned(ptr, CU_POINTER_ATTRIBUTE_BUFFER_ID) != id);
    CHECK(holds(ptr, 0, SIZE));
    OK(cuda.mem_free(next));
    CHECK_IS(standin.allocations(), 1);
}

static void run_touch(void)
{
    signal(SIGSEGV, SIG_DFL);
    start();
    *(volatile char *)alloc(SIZE) = 1;
}

static void run_limit(void)
{
    CUdeviceptr ptr, other;
    size_t      left, all;

    setenv("STANDIN_MEMORY", "8M", 1);
    start();
    ptr = alloc(5 * MB);
    CHECK_IS(cuda.mem_alloc(&other, 5 * MB), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuda.mem_get_info(&left, &all));
    CHECK(all == 8 * MB && left == 3 * MB);
    OK(cuda.mem_free(ptr));
    other = alloc(5 * MB);
}

static void run_host_memory(void)
{
    char       *host = pinned(SIZE);
    CUdeviceptr managed;
    static char own[10000];
    void       *fixed;

    OK(cuda.mem_alloc_managed(&managed, SIZE, CU_MEM_ATTACH_GLOBAL));
    host[SIZE - 1] = *(char *)managed = 1;
    CHECK_IS(get_unsigned(managed, CU_POINTER_ATTRIBUTE_IS_MANAGED), 1);
    CHECK_IS(get_unsigned((CUdeviceptr)host, CU_POINTER_ATTRIBUTE_IS_MANAGED), 0);
    CHECK_IS(get_unsigned((CUdeviceptr)host, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), 1);
    CHECK_IS(cuda.mem_free((CUdeviceptr)host), CUDA_ERROR_INVALID_VALUE);
    OK(cuda.mem_free_host(host));
    OK(cuda.mem_free(managed));

    CHECK_IS(cuda.host_get_device_pointer(&managed, own, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuda.host_register(own, 5000, 0));
    OK(cuda.host_get_device_pointer(&managed, own + 10, 0));
    CHECK(managed == (CUdeviceptr)own + 10);
    CHECK_IS(get_unsigned(managed, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_HOST);
    CHECK_IS(cuda.host_register(own + 4000, 5000, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK_IS(cuda.host_unregister(own + 10), CUDA_PROGRAM_HOST_MEMORY_NOT_REGISTERED);
    OK(cuda.host_unregister(own));

    fixed = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(fixed != MAP_FAILED);
    CHECK_IS(cuda.host_register(fixed, SIZE, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_IS(standin.allocations() + standin.registrations(), 0);
}

static void run_host(void)
{
    start();
    run_host_memory();
}

static void test_memory(void **state)
{
    int status;

    (void)state;
    RUNS(run_memory);
    RUNS(run_limit);
    RUNS(run_host);
    status = run_child(run_touch, NULL, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

/* Memory that has no IPC handle and no context. */
static void check_no_ipc(CUdeviceptr ptr)
{
    CUipcMemHandle handle;
    CUcontext      owner;

    CHECK_IS(cuda.ipc_get(&handle, ptr), CUDA_ERROR_INVALID_VALUE);
    CHECK_IS(get_unsigned(ptr, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE), 0);
    CHECK_IS(get_unsigned(ptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
    OK(cuda.pointer_get_attribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
    CHECK(owner == NULL);
}

static void run_pool(void)
{
    CUdeviceptr ptr, again;
    CUstream    stream;

    start();
    stream = make_stream();
    OK(cuda.mem_alloc_async(&ptr, SIZE, stream));
    check_no_ipc(ptr);
    standin.hold(1);
    OK(cuda.memcpy_async(ptr, ptr + SIZE / 2, 100, stream));
    OK(cuda.mem_free_async(ptr, stream));
    CHECK_IS(standin.allocations(), 1);
    standin.hold(0);
    OK(cuda.stream_synchronize(stream));
    CHECK_IS(standin.allocations(), 0);
    OK(cuda.mem_alloc_async(&again, SIZE, stream));
    CHECK(again == ptr);
}

static void run_virtual(void)
{
    CUmemAllocationProp prop = {.type     = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr                  range;
    size_t                       unit;
    char                         byte = 7;

    start();
    OK(cuda.vmm_granularity(&unit, &prop, 0));
    OK(cuda.vmm_create(&handle, 2 * unit, &prop, 0));
    OK(cuda.vmm_reserve(&range, 4 * unit, 0, 0, 0));
    CHECK_IS(cuda.memcpy_htod(range, &byte, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuda.vmm_map(range + unit, 2 * unit, 0, handle, 0));
    CHECK_IS(cuda.vmm_map(range + unit, unit, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuda.vmm_release(handle));
    CHECK_IS(cuda.memcpy_htod(range + unit, &byte, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuda.vmm_set_access(range + unit, 2 * unit, &access, 1));
    OK(cuda.memcpy_htod(range + unit, &byte, 1));
    CHECK(holds(range + unit, 7, 1));
    check_no_ipc(range + unit);
    CHECK_IS(cuda.mem_free(range + unit), CUDA_ERROR_INVALID_VALUE);
    CHECK_IS(cuda.vmm_free(range, 4 * unit), CUDA_ERROR_INVALID_VALUE);
    CHECK_IS(standin.allocations(), 1);
    OK(cuda.vmm_unmap(range + unit, 2 * unit));
    OK(cuda.vmm_free(range, 4 * unit));
    CHECK_IS(standin.allocations(), 0);
}

static void test_other_memory(void **state)
{
    (void)state;
    RUNS(run_pool);
    RUNS(run_virtual);
}

static void run_dmabuf(void)
{
    CUdeviceptr ptr;
    char       *bytes;
    int         fd;

    start();
    ptr = alloc(4 * MB);
    poke(ptr + MB, 3, 4096);
    OK(cuda.get_range_handle(&fd, ptr + MB, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, lseek(fd, 0, SEEK_CUR));
    CHECK(bytes != MAP_FAILED && bytes[0] == 3);
    bytes[5] = 4;
    CHECK(holds(ptr + MB + 5, 4, 1));
    CHECK_IS(cuda.get_range_handle(&fd, ptr + 1, 4096, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_IS(cuda.get_range_handle(&fd, ptr + MB, 4 * MB, 1, 0), CUDA_ERROR_INVALID_VALUE);
    standin.allow_dmabuf(0);
    CHECK_IS(cuda.get_range_handle(&fd, ptr, 4096, 1, 0), CUDA_ERROR_NOT_SUPPORTED);
}

static void test_dmabuf(void **state)
{
    (void)state;
    RUNS(run_dmabuf);
}

/* --- control --------------------------------------------------------------------------------*/

static void run_failures(void)
{
    CUdeviceptr ptr;

    setenv("STANDIN_FAIL", "cuMemAlloc_v2:2:2,cuMemFree_v2:*:999", 1);
    start();
    ptr = alloc(1);
    CHECK_IS(cuda.mem_alloc(&ptr, 1), CUDA_ERROR_OUT_OF_MEMORY);
    ptr = alloc(1);
    CHECK_IS(cuda.mem_free(ptr), CUDA_ERROR_UNKNOWN);
    CHECK_IS(cuda.mem_free(ptr), CUDA_ERROR_UNKNOWN);
    standin.fail_call("cuMemFree_v2", 0, 0);
    OK(cuda.mem_free(ptr));
    standin.fail_call("cuMemAlloc_v2", 1, 800);
    CHECK_IS(cuda.mem_alloc(&ptr, 1), CUDA_ERROR_NOT_PERMITTED);
    CHECK_IS(standin.calls("cuMemAlloc_v2"), 4);
    CHECK_IS(standin.calls("cuMemFree_v2"), 3);
    CHECK_IS(standin.calls("cuStreamQuery"), 0);
}

static void run_capture(void)
{
    int         mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr ptr;

    start();
    standin.capture(1);
    CHECK_IS(cuda.stream_query(NULL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_IS(cuda.stream_synchronize(NULL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_IS(cuda.mem_alloc(&ptr, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_IS(standin.capture_violations(), 3);
    OK(cuda.exchange_capture_mode(&mode));
    CHECK_IS(mode, 0);
    OK(cuda.stream_query(NULL));
    ptr = alloc(1);
    OK(cuda.exchange_capture_mode(&mode));
    CHECK_IS(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK_IS(cuda.mem_free(ptr), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_IS(standin.capture_violations(), 4);
}

static void run_old(void)
{
    CHECK(cuda_program_load(&cuda, standin_path("old/libcuda.so.1")));
    CHECK(cuda.stream_write_value == NULL && cuda.ctx_get_id == NULL);
    CHECK(cuda.get_range_handle == NULL && cuda.exchange_capture_mode == NULL);
    CHECK(cuda.memcpy_async != NULL && standin_load(cuda.library, &standin));
    OK(cuda.init(0));
}

static void test_control(void **state)
{
    (void)state;
    RUNS(run_failures);
    RUNS(run_capture);
    RUNS(run_old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start),  cmocka_unit_test(test_contexts),
        cmocka_unit_test(test_memory), cmocka_unit_test(test_other_memory),
        cmocka_unit_test(test_dmabuf), cmocka_unit_test(test_control),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
