/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in for libcuda: copies, their order and their errors, memory of other processes. */
#include "standin_cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cmocka.h>

/* --- copies ---------------------------------------------------------------------------------*/

/* Between memory of each kind and each. */
static void copy_all(void)
{
    enum { KINDS = 8 };
    static char own[SIZE], known[SIZE];
    CUdeviceptr ptrs[KINDS] = {alloc(SIZE),        0, 0, (CUdeviceptr)own,
                               (CUdeviceptr)known, 0, 0, alloc(3 * SIZE) + SIZE};
    CUcontext   other;
    CUstream    stream = make_stream();

    OK(cuda.mem_alloc_managed(&ptrs[1], SIZE, CU_MEM_ATTACH_GLOBAL));
    ptrs[2] = (CUdeviceptr)pinned(SIZE);
    OK(cuda.host_register(known, SIZE, 0));
    OK(cuda.mem_alloc_async(&ptrs[5], SIZE, stream));
    OK(cuda.primary_ctx_retain(&other, 1));
    OK(cuda.ctx_push(other));
    ptrs[6] = alloc(SIZE);
    OK(cuda.ctx_pop(NULL));
    for (int dst = 0; dst < KINDS; ++dst) {
        for (int src = 0; src < KINDS; ++src) {
            int byte = dst * KINDS + src;

            if (dst == src) {
                continue;
            }
            if (ptrs[src] == (CUdeviceptr)own) {
                memset(own, byte, SIZE);
            } else {
                poke(ptrs[src], byte, SIZE);
            }
            OK(cuda.memcpy_async(ptrs[dst], ptrs[src], SIZE, stream));
            if (ptrs[dst] == (CUdeviceptr)own) { /* has been waited for */
                CHECK(own[0] == byte && own[SIZE - 1] == byte);
            } else {
                OK(cuda.stream_synchronize(stream));
                CHECK(holds(ptrs[dst], byte, SIZE));
            }
        }
    }
    CHECK_IS(standin.pending(), 0);
}

static void run_mix(void)
{
    start();
    copy_all();
}

static void run_mix_jitter(void)
{
    setenv("STANDIN_JITTER", "42", 1);
    setenv("STANDIN_DELAY_US", "50", 1);
    start();
    copy_all();
}

static void run_bounds(void)
{
    static char own[SIZE];
    CUdeviceptr ptr, host = (CUdeviceptr)own;
    CUcontext   other;

    start();
    ptr = alloc(SIZE);
    CHECK_IS(cuda.memcpy_async(ptr + 1, host, SIZE, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_IS(cuda.memcpy_async(host, ptr, SIZE + 1, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuda.memcpy_async(ptr + SIZE - 1, host, 1, NULL));
    OK(cuda.memcpy_async(ptr, host, 0, NULL));
    OK(cuda.host_register(own + 100, 100, 0));
    CHECK_IS(cuda.memcpy_async(ptr, host, 200, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_IS(cuda.memcpy_async(ptr, host + 150, 100, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_IS(cuda.memcpy_async(ptr, host, 1, (CUstream)77), CUDA_ERROR_INVALID_HANDLE);

    OK(cuda.ctx_create(&other, 0, 1));
    OK(cuda.memcpy_async(ptr, alloc(10), 10, NULL));
    standin.allow_peer(0);
    CHECK_IS(cuda.memcpy_async(ptr, alloc(10), 10, NULL), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    CHECK_IS(cuda.memcpy_async(ptr, host, 10, NULL), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}

/* Pageable bytes for a GPU are read within the call, though the copy comes later. */
static void run_staged(void)
{
    static char own[SIZE];
    CUdeviceptr ptr;

    start();
    ptr = alloc(SIZE);
    memset(own, 1, SIZE);
    standin.hold(1);
    OK(cuda.memcpy_async(ptr, (CUdeviceptr)own, SIZE, make_stream()));
    CHECK_IS(standin.pending(), 1);
    memset(own, 2, SIZE);
    standin.hold(0);
    OK(cuda.ctx_synchronize());
    CHECK(holds(ptr, 1, SIZE));
}

static void run_batch(void)
{
    static char        bytes[2 * 8] = {1, 1, 1, 1, 1, 1, 1, 1, 2};
    CUdeviceptr        ptr, host        = (CUdeviceptr)bytes;
    CUdeviceptr        dsts[2], srcs[2] = {host, host + 8};
    size_t             lengths[2] = {8, 8}, first = 0, failed = 7;
    CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUstream           stream;
    char               back = 0;

    start();
    ptr     = alloc(8);
    stream  = make_stream();
    dsts[0] = dsts[1] = ptr;
    CHECK_IS(cuda.memcpy_batch(dsts, srcs, lengths, 2, &how, &first, 1, &failed, NULL),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_IS(cuda.memcpy_batch(dsts, srcs, lengths, 0, &how, &first, 1, &failed, stream),
             CUDA_ERROR_INVALID_VALUE);
    OK(cuda.memcpy_batch(dsts, srcs, lengths, 2, &how, &first, 1, &failed, stream));
    OK(cuda.stream_synchronize(stream));
    CHECK(standin.read((void *)(uintptr_t)ptr, &back, 1) == 0 && back == 1); /* in no order */
    lengths[0] = 9;
    CHECK_IS(cuda.memcpy_batch(dsts, srcs, lengths, 2, &how, &first, 1, &failed, stream),
             CUDA_ERROR_INVALID_VALUE);
    CHECK(failed == 0);
}

static void test_copies(void **state)
{
    (void)state;
    RUNS(run_mix);
    RUNS(run_mix_jitter);
    RUNS(run_bounds);
    RUNS(run_staged);
    RUNS(run_batch);
}

/* --- order ----------------------------------------------------------------------------------*/

static void note(void *data)
{
    __atomic_store_n((int *)data, 1, __ATOMIC_RELEASE);
}

static int noted(const int *data)
{
    return __atomic_load_n(data, __ATOMIC_ACQUIRE);
}

static void run_order(void)
{
    static uint64_t word;
    static int      called;
    CUdeviceptr     ptr, flag = (CUdeviceptr)&word;
    CUstream        stream, other;
    CUevent         event;

    start();
    ptr    = alloc(SIZE);
    stream = make_stream();
    other  = make_stream();
    OK(cuda.event_create(&event, CU_EVENT_DISABLE_TIMING));
    CHECK_IS(cuda.stream_write_value(stream, flag, 1, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuda.host_register(&word, sizeof(word), 0));
    poke(ptr, 5, 100);

    standin.hold(1);
    OK(cuda.memcpy_async(ptr + 100, ptr, 100, stream));
    OK(cuda.stream_write_value(stream, flag, 1, 0));
    OK(cuda.event_record(event, stream));
    OK(cuda.launch_host_func(stream, note, &called));
    OK(cuda.stream_wait_event(other, event, 0));
    OK(cuda.stream_write_value(other, flag, 2, 0));
    usleep(20000);
    CHECK_IS(cuda.stream_query(stream), CUDA_ERROR_NOT_READY);
    CHECK_IS(cuda.stream_query(other), CUDA_ERROR_NOT_READY);
    CHECK_IS(cuda.event_query(event), CUDA_ERROR_NOT_READY);
    CHECK(word == 0 && !noted(&called) && holds(ptr + 100, 0, 100));
    CHECK_IS(standin.pending(), 6);

    standin.hold(0);
    OK(cuda.event_synchronize(event));
    CHECK(holds(ptr + 100, 5, 100));
    OK(cuda.stream_synchronize(other));
    CHECK_IS(word, 2);
    OK(cuda.stream_synchronize(stream));
    CHECK(noted(&called));
    OK(cuda.stream_query(stream));
    OK(cuda.event_destroy(event));
}

static void wait_for_note(void *data)
{
    while (!noted(data)) {
        usleep(100);
    }
}

/* The default stream and blocking ones wait for each other, others don't. */
static void run_default_stream(void)
{
    static int  gate;
    CUstream    blocking, own;
    CUdeviceptr ptr;

    start();
    ptr = alloc(SIZE);
    own = make_stream();
    OK(cuda.stream_create(&blocking, 0));
    OK(cuda.launch_host_func(NULL, wait_for_note, &gate));
    OK(cuda.memset_d8_async(ptr, 1, 10, blocking));
    OK(cuda.memset_d8_async(ptr + 10, 2, 10, own));
    OK(cuda.stream_synchronize(own));
    usleep(20000);
    CHECK(holds(ptr + 10, 2, 10) && holds(ptr, 0, 10));
    CHECK_IS(cuda.stream_query(blocking), CUDA_ERROR_NOT_READY);
    note(&gate);
    OK(cuda.ctx_synchronize());
    CHECK(holds(ptr, 1, 10));
}

static int released;

static void *release_later(void *arg)
{
    usleep(30000);
    note(&released);
    standin.hold(0);
    return arg;
}

/* Freeing waits for what is under way on the GPU. */
static void run_free(void)
{
    CUdeviceptr ptr;
    pthread_t   thread;

    start();
    ptr = alloc(SIZE);
    standin.hold(1);
    OK(cuda.memcpy_async(ptr, ptr + 100, 100, make_stream()));
    CHECK_IS(pthread_create(&thread, NULL, release_later, NULL), 0);
    OK(cuda.mem_free(ptr));
    CHECK(noted(&released));
    pthread_join(thread, NULL);
}

/* Who sees the word that follows a copy may take all of their memory away. */
static void run_word(void)
{
    CUstream          stream;
    volatile uint64_t word;
    CUdeviceptr       ptr;

    start();
    stream = make_stream();
    for (unsigned i = 0; i < 300; ++i) {
        OK(cuda.mem_alloc_async(&ptr, SIZE, stream));
        OK(cuda.host_register((void *)&word, sizeof(word), 0));
        word = 0;
        OK(cuda.memcpy_async(ptr, ptr + 100, 100, stream));
        OK(cuda.stream_write_value(stream, (CUdeviceptr)&word, 1, 0));
        while (word == 0) {
        }
        OK(cuda.host_unregister((void *)&word));
        OK(cuda.mem_free_async(ptr, NULL));
    }
    OK(cuda.ctx_synchronize());
}

static void test_order(void **state)
{
    (void)state;
    RUNS(run_order);
    RUNS(run_default_stream);
    RUNS(run_free);
    RUNS(run_word);
}

/* --- errors ---------------------------------------------------------------------------------*/

static void run_copy_fails(void)
{
    static uint64_t word;
    static int      called;
    CUdeviceptr     ptr, other;
    CUstream        stream;
    CUcontext       next;

    start();
    ptr    = alloc(SIZE);
    stream = make_stream();
    OK(cuda.host_register(&word, sizeof(word), 0));
    standin.fail_call("copy", 2, CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuda.memcpy_async(ptr, ptr + 100, 100, stream));
    OK(cuda.stream_synchronize(stream));
    standin.hold(1);
    OK(cuda.memcpy_async(ptr, ptr + 100, 100, stream));
    OK(cuda.stream_write_value(stream, (CUdeviceptr)&word, 1, 0));
    OK(cuda.launch_host_func(stream, note, &called));
    standin.hold(0);
    CHECK_IS(cuda.stream_synchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(word == 0 && !called);
    CHECK_IS(cuda.stream_query(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_IS(cuda.mem_alloc(&other, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_IS(cuda.memcpy_async(ptr, ptr + 100, 100, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    /* Another context isn't concerned. */
    OK(cuda.ctx_create(&next, 0, 0));
    OK(cuda.memcpy_async(ptr, ptr + 100, 100, NULL));
    OK(cuda.ctx_synchronize());
}

/* Freed in the order of another stream than the copy's. */
static void run_early_free(void)
{
    CUdeviceptr ptr, other;
    CUstream    stream, next;

    start();
    stream = make_stream();
    next   = make_stream();
    other  = alloc(SIZE);
    OK(cuda.mem_alloc_async(&ptr, SIZE, stream));
    standin.hold(1);
    OK(cuda.memcpy_async(other, ptr, 100, stream));
    OK(cuda.mem_free_async(ptr, next));
    OK(cuda.stream_synchronize(next));
    standin.hold(0);
    cuda.stream_synchronize(stream);
}

static void run_early_unregister(void)
{
    static char host[SIZE];
    CUdeviceptr ptr;
    CUstream    stream;

    start();
    ptr    = alloc(SIZE);
    stream = make_stream();
    OK(cuda.host_register(host, SIZE, 0));
    standin.hold(1);
    OK(cuda.memcpy_async((CUdeviceptr)host, ptr, SIZE, stream));
    OK(cuda.host_unregister(host));
    standin.hold(0);
    cuda.stream_synchronize(stream);
}

static void test_errors(void **state)
{
    (void)state;
    RUNS(run_copy_fails);
    ABORTS(run_early_free, "from pool memory");
    ABORTS(run_early_unregister, "to registered memory");
}

/* --- memory of other processes --------------------------------------------------------------*/

/* Offer memory; free it at the first word, end at the second. */
static void offer(int socket)
{
    CUipcMemHandle handle;
    CUdeviceptr    ptr;

    start();
    ptr = alloc(SIZE);
    poke(ptr, 6, SIZE);
    OK(cuda.ipc_get(&handle, ptr));
    CHECK_IS(cuda.ipc_open(&ptr, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
    tell(socket, &handle, sizeof(handle));
    await(socket);
    CHECK(holds(ptr + 10, 8, 10));
    OK(cuda.mem_free(ptr));
    tell(socket, "", 1);
    await(socket);
}

static void run_ipc(void)
{
    CUipcMemHandle handle, broken;
    CUdeviceptr    ptr, again, own;
    pid_t          pid;
    int            socket = start_peer(offer, &pid);

    setenv("CUDA_VISIBLE_DEVICES", "1", 1); /* not the owner's */
    start();
    hear(socket, &handle, sizeof(handle));
    CHECK_IS(cuda.ipc_open(&ptr, handle, 0), CUDA_ERROR_INVALID_VALUE);
    standin.allow_peer(0);
    CHECK_IS(cuda.ipc_open(&ptr, handle, 1), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    standin.allow_peer(1);
    broken = handle;
    ++broken.reserved[8]; /* of the descriptor's number */
    CHECK_IS(cuda.ipc_open(&ptr, broken, 1), CUDA_ERROR_MAP_FAILED);
    OK(cuda.ipc_open(&ptr, handle, 1));
    OK(cuda.ipc_open(&again, handle, 1)); /* counted */
    CHECK(again == ptr);
    OK(cuda.ipc_close(again));
    CHECK_IS(standin.mappings(), 1);
    CHECK_IS(standin.allocations(), 0);
    CHECK_IS(cuda.mem_free(ptr), CUDA_ERROR_INVALID_VALUE);
    CHECK_IS(cuda.ipc_get(&broken, ptr), CUDA_ERROR_INVALID_VALUE);
    own = alloc(SIZE);
    OK(cuda.memcpy_dtod(own, ptr, SIZE));
    CHECK(holds(own, 6, SIZE));
    OK(cuda.memset_d8(ptr + 10, 8, 10));
    OK(cuda.ipc_close(ptr));
    CHECK_IS(cuda.ipc_close(ptr), CUDA_ERROR_INVALID_VALUE);
    OK(cuda.ipc_open(&again, handle, 1));
    CHECK_IS(standin.mappings_freed(), 0);

    tell(socket, "", 1);
    await(socket); /* it has freed it */
    CHECK_IS(standin.mappings_freed(), 1);
    CHECK(holds(again, 6, 10));
    OK(cuda.ipc_close(again));
    CHECK_IS(cuda.ipc_open(&ptr, handle, 1), CUDA_ERROR_MAP_FAILED);
    CHECK_IS(standin.mappings(), 0);
    tell(socket, "", 1);
    end_peer(socket, pid);
}

/* As the driver: closing waits for the program's kernels, and other calls for that. */
static void run_ipc_kernel(void)
{
    CUipcMemHandle     handle;
    CUdeviceptr        ptr, word;
    CUmodule           module;
    CUfunction         function;
    CUcontext          context;
    CUevent            event;
    CUstream           stream;
    pid_t              pid, watcher;
    int                socket = start_peer(offer, &pid);
    volatile uint32_t *flag   = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                                     -1, 0);
    void              *arguments[] = {&word};

    CHECK(flag != MAP_FAILED);
    watcher = fork(); /* ends the kernel in a while */
    if (watcher == 0) {
        usleep(300000);
        *flag = 1;
        _exit(0);
    }
    context = start();
    stream  = make_stream();
    hear(socket, &handle, sizeof(handle));
    OK(cuda.ipc_open(&ptr, handle, 1));
    OK(cuda.host_register((void *)flag, 4096, 0));
    OK(cuda.host_get_device_pointer(&word, (void *)flag, 0));
    OK(cuda.event_create(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuda.ctx_record_event(context, event));
    OK(cuda.event_query(event));
    OK(cuda.module_load_data(&module, "text"));
    OK(cuda.module_get_function(&function, module, "wait"));
    OK(cuda.launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    OK(cuda.event_query(event));
    OK(cuda.ctx_record_event(context, event));
    CHECK_IS(cuda.event_query(event), CUDA_ERROR_NOT_READY);
    OK(cuda.memset_d8(ptr + 10, 8, 10)); /* as the owner expects */
    CHECK_IS(*flag, 0);
    OK(cuda.ipc_close(ptr));
    CHECK_IS(*flag, 1);
    OK(cuda.event_query(event));
    standin.capture(1);
    CHECK_IS(cuda.ctx_record_event(context, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_IS(standin.capture_violations(), 1);
    standin.capture(0);
    waitpid(watcher, NULL, 0);
    tell(socket, "", 1);
    await(socket);
    tell(socket, "", 1);
    end_peer(socket, pid);
}

static void run_ipc_killed(void)
{
    CUipcMemHandle handle;
    CUdeviceptr    ptr;
    pid_t          pid;
    int            socket = start_peer(offer, &pid), status;

    start();
    hear(socket, &handle, sizeof(handle));
    OK(cuda.ipc_open(&ptr, handle, 1));
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, &status, 0) == pid);
    OK(cuda.memset_d8(ptr, 9, SIZE));
    CHECK(holds(ptr, 9, SIZE));
    OK(cuda.ipc_close(ptr));
    CHECK_IS(cuda.ipc_open(&ptr, handle, 1), CUDA_ERROR_MAP_FAILED);
}

/* The owner doesn't wait for others' copies when it frees. */
static void run_ipc_early_free(void)
{
    CUipcMemHandle handle;
    CUdeviceptr    ptr;
    CUstream       stream;
    pid_t          pid;
    int            socket = start_peer(offer, &pid);

    start();
    stream = make_stream();
    hear(socket, &handle, sizeof(handle));
    OK(cuda.ipc_open(&ptr, handle, 1));
    OK(cuda.memset_d8(ptr + 10, 8, 10));
    standin.hold(1);
    OK(cuda.memcpy_async(alloc(SIZE), ptr, SIZE, stream));
    tell(socket, "", 1);
    await(socket);
    standin.hold(0);
    cuda.stream_synchronize(stream);
}

static void run_ipc_early_close(void)
{
    CUipcMemHandle handle;
    CUdeviceptr    ptr;
    CUstream       stream;
    pid_t          pid;
    int            socket = start_peer(offer, &pid);

    start();
    stream = make_stream();
    hear(socket, &handle, sizeof(handle));
    OK(cuda.ipc_open(&ptr, handle, 1));
    standin.hold(1);
    OK(cuda.memcpy_async(alloc(SIZE), ptr, SIZE, stream));
    OK(cuda.ipc_close(ptr));
    kill(pid, SIGKILL);
    standin.hold(0);
    cuda.stream_synchronize(stream);
}

static void test_ipc(void **state)
{
    (void)state;
    RUNS(run_ipc);
    RUNS(run_ipc_kernel);
    RUNS(run_ipc_killed);
    ABORTS(run_ipc_early_free, "from imported memory");
    ABORTS(run_ipc_early_close, "from imported memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_ipc),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
