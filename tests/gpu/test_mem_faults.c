/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory in the library when calls fail: needs the stand-in of CUDA's driver. Contexts are as
 * before after each call, whatever happens; what fails says so, and harms nothing else.
 */
#include "cuda_program.h"
#include "device.h"
#include "gpu/gpu.h"
#include "../common/clock.h"
#include "standin/standin.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE 100000ul

static cuda_program_t cuda;
static standin_t      standin;

static int setup(void **state)
{
    (void)state;
    standin.fail_call("copy", 1, 0);
    standin.hold(0);
    return 0;
}

/* The calling thread's stack of contexts. */
typedef struct {
    int   depth;
    void *current;
} contexts_t;

static contexts_t contexts_now(void)
{
    contexts_t contexts;

    contexts.depth = standin.contexts(&contexts.current);
    return contexts;
}

static void assert_contexts(contexts_t before)
{
    contexts_t now = contexts_now();

    assert_int_equal(now.depth, before.depth);
    assert_ptr_equal(now.current, before.current);
}

static angara_status_t wait_for(angara_copy_t *copy)
{
    angara_status_t status;

    while ((status = angara_copy_test(copy)) == ANGARA_INPROGRESS) {
    }
    return status;
}

/* Everything that the library does with memory of a GPU; all of it may fail. */
static angara_status_t use(char *addr, char *host)
{
    const ang_gpu_ops_t *ops = &ang_gpu_cuda;
    ang_gpu_handle_t     handle;
    angara_status_t      status;
    ang_gpu_mem_t        mem;
    uint64_t             offset;
    int                  fd;

    ang_gpu_query(addr, &mem);
    if (mem.ops == NULL) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    ops->share(&mem, &handle);
    if (ops->dmabuf(&mem, addr, SIZE, &fd, &offset) == ANGARA_OK) {
        close(fd);
    }
    status = angara_copy(addr, host, SIZE);
    if (status == ANGARA_OK) {
        status = angara_copy(addr + SIZE, addr, SIZE);
    }
    return status == ANGARA_OK ? angara_copy(host, addr + SIZE, SIZE) : status;
}

static void *use_thread(void *addr)
{
    char *host = malloc(SIZE);
    void *current;

    assert_int_equal(standin.contexts(&current), 0);
    assert_int_equal(use(addr, host), ANGARA_OK);
    assert_int_equal(standin.contexts(&current), 0);
    free(host);
    return NULL;
}

/* ---- contexts -------------------------------------------------------------------------------- */

static void test_contexts(void **state)
{
    char      *host = calloc(1, SIZE);
    char      *addrs[3];
    CUcontext  created, primary;
    contexts_t before;
    pthread_t  thread;

    (void)state;
    addrs[0] = device_cuda.alloc(0, 2 * SIZE, DEVICE_PLAIN);
    addrs[1] = device_cuda.alloc(1, 2 * SIZE, DEVICE_PLAIN);
    assert_int_equal(cuda.ctx_create(&created, 0, 1), CUDA_SUCCESS); /* becomes current */
    assert_int_equal(cuda.mem_alloc((CUdeviceptr *)&addrs[2], 2 * SIZE), CUDA_SUCCESS);
    assert_int_equal(cuda.primary_ctx_retain(&primary, 0), CUDA_SUCCESS);
    for (int way = 0; way < 3; ++way) { /* the created one, another GPU's, none */
        assert_int_equal(cuda.ctx_set_current(way == 0 ? created : way == 1 ? primary : NULL), 0);
        before = contexts_now();
        for (int i = 0; i < 3; ++i) {
            assert_int_equal(use(addrs[i], host), ANGARA_OK);
            assert_contexts(before);
            assert_int_equal(pthread_create(&thread, NULL, use_thread, addrs[i]), 0);
            pthread_join(thread, NULL);
        }
    }
    assert_int_equal(cuda.primary_ctx_release(0), CUDA_SUCCESS);
    assert_int_equal(cuda.ctx_destroy(created), CUDA_SUCCESS);
    device_cuda.free(addrs[0], DEVICE_PLAIN);
    device_cuda.free(addrs[1], DEVICE_PLAIN);
    free(host);
}

/* No context is made, and none kept: what the program lets go of goes. */
static void test_no_context(void **state)
{
    char        host[64];
    CUcontext   ctx;
    unsigned    flags;
    int         active;
    CUdeviceptr ptr;

    (void)state;
    assert_int_equal(cuda.primary_ctx_release(2), CUDA_SUCCESS); /* device_cuda's */
    assert_int_equal(cuda.primary_ctx_get_state(2, &flags, &active), CUDA_SUCCESS);
    assert_false(active);
    assert_int_equal(cuda.ctx_create(&ctx, 0, 2), CUDA_SUCCESS);
    assert_int_equal(cuda.mem_alloc(&ptr, 64), CUDA_SUCCESS);
    assert_int_equal(angara_copy((void *)(uintptr_t)ptr, host, 64), ANGARA_OK);
    assert_int_equal(cuda.primary_ctx_get_state(2, &flags, &active), CUDA_SUCCESS);
    assert_false(active);
    assert_int_equal(cuda.ctx_destroy(ctx), CUDA_SUCCESS);
}

/* A context ends with copies under way; another gets its address. */
static void test_context_ends(void **state)
{
    char          host[64];
    angara_copy_t copies[8];
    CUcontext     ctx, last = NULL;
    unsigned      same = 0;
    CUdeviceptr   ptr;

    (void)state;
    for (unsigned round = 0; round < 20; ++round) {
        assert_int_equal(cuda.ctx_create(&ctx, 0, 0), CUDA_SUCCESS);
        same += ctx == last;
        last = ctx;
        assert_int_equal(cuda.mem_alloc(&ptr, SIZE), CUDA_SUCCESS);
        assert_int_equal(angara_copy((void *)(uintptr_t)ptr, host, 64), ANGARA_OK);
        assert_int_equal(cuda.ctx_destroy(ctx), CUDA_SUCCESS);
    }
    assert_true(same > 0);
    assert_int_equal(cuda.ctx_create(&ctx, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuda.mem_alloc(&ptr, SIZE), CUDA_SUCCESS);
    standin.hold(1);
    for (unsigned i = 0; i < 8; ++i) {
        assert_int_equal(angara_copy_start((void *)(uintptr_t)(ptr + SIZE / 2),
                                           (void *)(uintptr_t)ptr, 64, &copies[i]),
                         ANGARA_INPROGRESS);
    }
    standin.hold(0);
    assert_int_equal(cuda.ctx_destroy(ctx), CUDA_SUCCESS);
    for (unsigned i = 0; i < 8; ++i) {
        angara_status_t status = wait_for(&copies[i]);

        assert_true(status == ANGARA_OK || status == ANGARA_ERR_SYSTEM);
    }
}

/* ---- calls that fail ------------------------------------------------------------------------- */

#define NAME(_name, _symbol, ...) #_symbol,

static void test_each_call(void **state)
{
    static const char *const calls[] = {CUDA_CALLS(NAME)};
    char                    *host    = malloc(SIZE);
    contexts_t               before  = contexts_now();
    CUcontext                ctx;
    CUdeviceptr              ptr;
    unsigned                 failed = 0;

    (void)state;
    for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); ++i) {
        for (unsigned nth = 1; nth < 6; ++nth) {
            /* A new context each time, so that what is made once is made again. */
            assert_int_equal(cuda.ctx_create(&ctx, 0, 0), CUDA_SUCCESS);
            assert_int_equal(cuda.mem_alloc(&ptr, 2 * SIZE), CUDA_SUCCESS);
            assert_int_equal(cuda.ctx_pop(&ctx), CUDA_SUCCESS);
            if (strncmp(calls[i], "cuCtxPop", 8) != 0) { /* that one can't be made good for */
                standin.fail_call(calls[i], nth, CUDA_ERROR_UNKNOWN);
            }
            failed += use((char *)(uintptr_t)ptr, host) != ANGARA_OK;
            standin.fail_call(calls[i], nth, 0);
            assert_contexts(before);
            memset(host, (int)(i + nth), SIZE);
            assert_int_equal(use((char *)(uintptr_t)ptr, host), ANGARA_OK);
            for (unsigned k = 0; k < SIZE; ++k) {
                assert_int_equal((unsigned char)host[k], (unsigned char)(i + nth));
            }
            assert_contexts(before);
            assert_int_equal(cuda.ctx_destroy(ctx), CUDA_SUCCESS);
        }
    }
    print_message("%u uses failed\n", failed);
    assert_true(failed >= 5);
    free(host);
}

#define LARGE (16ul << 20)
#define MANY  10 /* copies: there are events between them */

static void copies_start(CUdeviceptr ptr, angara_copy_t *copies)
{
    for (unsigned i = 0; i < MANY; ++i) {
        assert_int_equal(angara_copy_start((void *)(uintptr_t)ptr, (void *)(uintptr_t)(ptr + 64),
                                           64, &copies[i]),
                         ANGARA_INPROGRESS);
    }
}

/* @param call  that gives the error, too, from then on; NULL: none */
static void copy_fails(const char *call)
{
    char          host[64];
    angara_copy_t copies[MANY];
    CUcontext     ctx;
    CUdeviceptr   ptr;

    assert_int_equal(cuda.ctx_create(&ctx, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuda.mem_alloc(&ptr, SIZE), CUDA_SUCCESS);
    assert_int_equal(angara_copy((void *)(uintptr_t)ptr, host, 64), ANGARA_OK);
    standin.hold(1);
    standin.fail_call("copy", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    copies_start(ptr, copies);
    if (call != NULL) {
        standin.fail_call(call, 0, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    standin.hold(0);
    while (standin.pending() != 0) { /* what the call says may come sooner */
    }
    for (unsigned i = 0; i < MANY; ++i) {
        assert_int_equal(wait_for(&copies[i]), ANGARA_ERR_SYSTEM);
    }
    assert_int_equal(angara_copy_test(&copies[0]), ANGARA_ERR_SYSTEM);
    assert_int_not_equal(angara_copy((void *)(uintptr_t)ptr, host, 64), ANGARA_OK);
    if (call != NULL) {
        standin.fail_call(call, 0, 0);
    }
    cuda.ctx_destroy(ctx);
}

/* A copy that was accepted fails: it says so, and the others of its context. */
static void test_copy_fails(void **state)
{
    (void)state;
    copy_fails(NULL);
    copy_fails("cuCtxPushCurrent_v2");
    copy_fails("cuCtxGetId");
    copy_fails("cuEventCreate");
    copy_fails("cuEventRecord");
    copy_fails("cuEventQuery");
    copy_fails("cuStreamQuery");
}

/* In a thread of its own, whose stack of contexts fills up: soon none can be made current. */
static void *copies_stuck(void *addr)
{
    angara_copy_t within, to_host;
    char          host[64];

    assert_int_equal(angara_copy_start(addr, (char *)addr + 64, 64, &within), ANGARA_INPROGRESS);
    assert_int_equal(angara_copy_start(host, addr, 64, &to_host), ANGARA_INPROGRESS);
    standin.fail_call("cuCtxPopCurrent_v2", 0, CUDA_ERROR_UNKNOWN);
    assert_int_equal(wait_for(&within), ANGARA_ERR_SYSTEM);
    assert_int_equal(wait_for(&to_host), ANGARA_ERR_SYSTEM);
    assert_int_not_equal(angara_copy(host, addr, 64), ANGARA_OK);
    standin.fail_call("cuCtxPopCurrent_v2", 0, 0);
    return NULL;
}

/* Copies that the driver can't be asked about any more are given up. Others can be made, and wait
 * as long if it can't be asked for a moment. */
static void test_stuck(void **state)
{
    char         *addr = device_cuda.alloc(0, SIZE, DEVICE_PLAIN);
    angara_copy_t copy;
    pthread_t     thread;
    char          host[64];

    (void)state;
    standin.hold(1);
    assert_int_equal(pthread_create(&thread, NULL, copies_stuck, addr), 0);
    pthread_join(thread, NULL);
    assert_int_equal(angara_copy_start(addr, addr + 64, 64, &copy), ANGARA_INPROGRESS);
    standin.fail_call("cuCtxPushCurrent_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(angara_copy_test(&copy), ANGARA_INPROGRESS);
    standin.fail_call("cuCtxPushCurrent_v2", 1, 0);
    standin.hold(0);
    assert_int_equal(wait_for(&copy), ANGARA_OK);
    assert_int_equal(angara_copy(host, addr, 64), ANGARA_OK);
    device_cuda.free(addr, DEVICE_PLAIN);
}

/* Without events between them, copies are known to have ended when all have. */
static void test_no_events(void **state)
{
    static const char *const calls[] = {"cuEventCreate", "cuEventRecord"};
    CUdeviceptr              ptr = (CUdeviceptr)(uintptr_t)device_cuda.alloc(0, SIZE, DEVICE_PLAIN);
    angara_copy_t            copies[MANY];

    (void)state;
    for (unsigned n = 0; n < sizeof(calls) / sizeof(calls[0]); ++n) {
        standin.fail_call(calls[n], 0, CUDA_ERROR_OUT_OF_MEMORY);
        copies_start(ptr, copies);
        for (unsigned i = 0; i < MANY; ++i) {
            assert_int_equal(wait_for(&copies[MANY - 1 - i]), ANGARA_OK);
        }
        standin.fail_call(calls[n], 0, 0);
    }
    device_cuda.free((void *)(uintptr_t)ptr, DEVICE_PLAIN);
}

/* An event tells of a copy only if another one follows before it has ended. */
static void test_events(void **state)
{
    CUdeviceptr   ptr    = (CUdeviceptr)(uintptr_t)device_cuda.alloc(0, LARGE, DEVICE_PLAIN);
    unsigned long before = standin.calls("cuEventRecord");
    angara_copy_t copies[2];

    (void)state;
    for (unsigned i = 0; i < MANY; ++i) {
        assert_int_equal(angara_copy_start((void *)(uintptr_t)ptr, (void *)(uintptr_t)(ptr + 64),
                                           64, &copies[0]),
                         ANGARA_INPROGRESS);
        assert_int_equal(wait_for(&copies[0]), ANGARA_OK);
    }
    assert_int_equal(standin.calls("cuEventRecord"), before);
    for (unsigned i = 0; i < 2; ++i) {
        assert_int_equal(angara_copy_start((void *)(uintptr_t)ptr,
                                           (void *)(uintptr_t)(ptr + LARGE / 2), LARGE / 2,
                                           &copies[i]),
                         ANGARA_INPROGRESS);
    }
    assert_int_equal(standin.calls("cuEventRecord"), before + 1);
    assert_int_equal(wait_for(&copies[1]), ANGARA_OK);
    assert_int_equal(wait_for(&copies[0]), ANGARA_OK);
    device_cuda.free((void *)(uintptr_t)ptr, DEVICE_PLAIN);
}

/* Start a copy of `length` bytes; nobody tests it before it has ended. */
static void start_and_leave(CUdeviceptr dst, CUdeviceptr src, size_t length, angara_copy_t *copy)
{
    assert_int_equal(
        angara_copy_start((void *)(uintptr_t)dst, (void *)(uintptr_t)src, length, copy),
        ANGARA_INPROGRESS);
    while (standin.pending() != 0) {
    }
}

/* Start another one, which is held up: the end of the first one is seen. */
static void start_held(CUdeviceptr dst, CUdeviceptr src, size_t length, angara_copy_t *first)
{
    double        end = deadline_in(10);
    angara_copy_t second;

    standin.hold(1);
    assert_int_equal(
        angara_copy_start((void *)(uintptr_t)dst, (void *)(uintptr_t)src, length, &second),
        ANGARA_INPROGRESS);
    while (angara_copy_test(first) == ANGARA_INPROGRESS) {
        assert_true(now_seconds() < end);
    }
    standin.hold(0);
    assert_int_equal(wait_for(&second), ANGARA_OK);
}

/* A copy doesn't seem to wait for a long one that comes behind it, nor for one within one GPU. */
static void test_held_behind(void **state)
{
    CUdeviceptr   here  = (CUdeviceptr)(uintptr_t)device_cuda.alloc(0, LARGE, DEVICE_PLAIN);
    CUdeviceptr   there = (CUdeviceptr)(uintptr_t)device_cuda.alloc(1, LARGE, DEVICE_PLAIN);
    angara_copy_t first;

    (void)state;
    start_and_leave(there, here, LARGE / 2, &first);
    start_held(there, here, 64, &first);
    start_and_leave(there, here, 64, &first);
    start_held(there, here, LARGE / 2, &first);
    start_and_leave(there, here, 64, &first);
    start_held(here, here + 64, 64, &first);
    device_cuda.free((void *)(uintptr_t)here, DEVICE_PLAIN);
    device_cuda.free((void *)(uintptr_t)there, DEVICE_PLAIN);
}

/* ---- what isn't to be called ----------------------------------------------------------------- */

#define OFTEN 64   /* tests of a copy, each of which asks the driver; */
#define NS    4000 /* then one after so long does */

/* The driver is asked seldom whether a long copy has ended, but by whoever comes seldom. */
static void test_quiet(void **state)
{
    char           *addr  = device_cuda.alloc(0, SIZE, DEVICE_PLAIN);
    struct timespec pause = {0, NS};
    unsigned long   asked;
    angara_copy_t   copy;
    double          begin;

    (void)state;
    standin.hold(1);
    assert_int_equal(angara_copy_start(addr, addr + 64, 64, &copy), ANGARA_INPROGRESS);
    for (unsigned i = 0; i < OFTEN; ++i) {
        assert_int_equal(angara_copy_test(&copy), ANGARA_INPROGRESS);
    }
    asked = standin.calls("cuStreamQuery");
    begin = now_seconds();
    for (unsigned i = 0; i < 10000; ++i) {
        assert_int_equal(angara_copy_test(&copy), ANGARA_INPROGRESS);
    }
    assert_true((double)(standin.calls("cuStreamQuery") - asked) <=
                1 + (now_seconds() - begin) * 1e9 / NS);
    standin.hold(0);
    while (standin.pending() != 0) {
    }
    nanosleep(&pause, NULL);
    assert_int_equal(angara_copy_test(&copy), ANGARA_OK);
    device_cuda.free(addr, DEVICE_PLAIN);
}

/* While the program captures a graph. */
static void test_capture(void **state)
{
    char       *host = calloc(1, SIZE);
    CUcontext   ctx;
    CUdeviceptr ptr;

    (void)state;
    assert_int_equal(cuda.ctx_create(&ctx, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuda.mem_alloc(&ptr, 2 * SIZE), CUDA_SUCCESS);
    standin.capture(1);
    if (cuda.exchange_capture_mode == NULL) {
        use((char *)(uintptr_t)ptr, host); /* fails, but doesn't crash */
    } else {
        assert_int_equal(use((char *)(uintptr_t)ptr, host), ANGARA_OK);
        assert_int_equal(standin.capture_violations(), 0);
    }
    standin.capture(0);
    assert_int_equal(cuda.ctx_destroy(ctx), CUDA_SUCCESS);
    free(host);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* The last: at exit the driver goes before us. */
static void test_driver_ends(void **state)
{
    char         *addr = device_cuda.alloc(0, SIZE, DEVICE_PLAIN);
    char          host[64];
    angara_copy_t copy;
    angara_mem_t  mem;

    (void)state;
    standin.hold(1);
    assert_int_equal(angara_copy_start(addr, addr + 64, 64, &copy), ANGARA_INPROGRESS);
    standin.deinit();
    assert_int_equal(wait_for(&copy), ANGARA_ERR_SYSTEM);
    /* What it was can't be asked any more, but it isn't taken for the host's. */
    assert_int_equal(angara_mem_query(addr, &mem), ANGARA_OK);
    assert_int_equal(mem.kind, ANGARA_MEM_CUDA);
    assert_int_equal(angara_mem_query(host, &mem), ANGARA_OK);
    assert_int_equal(mem.kind, ANGARA_MEM_HOST);
    assert_int_equal(angara_copy_start(host, addr, 64, &copy), ANGARA_ERR_UNSUPPORTED);
    assert_int_equal(angara_copy(host, addr, 64), ANGARA_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_contexts, setup),
        cmocka_unit_test_setup(test_no_context, setup),
        cmocka_unit_test_setup(test_context_ends, setup),
        cmocka_unit_test_setup(test_each_call, setup),
        cmocka_unit_test_setup(test_copy_fails, setup),
        cmocka_unit_test_setup(test_stuck, setup),
        cmocka_unit_test_setup(test_no_events, setup),
        cmocka_unit_test_setup(test_events, setup),
        cmocka_unit_test_setup(test_held_behind, setup),
        cmocka_unit_test_setup(test_quiet, setup),
        cmocka_unit_test_setup(test_capture, setup),
        cmocka_unit_test_setup(test_driver_ends, setup),
    };

    setenv("STANDIN_GPUS", "3", 1);
    if (!cuda_program_load(&cuda, NULL) || !standin_load(cuda.library, &standin)) {
        fprintf(stderr, "needs the stand-in of CUDA's driver\n");
        return 1;
    }
    setenv("CUDA_VISIBLE_DEVICES", "0,1,2", 1);
    device_cuda.open();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
