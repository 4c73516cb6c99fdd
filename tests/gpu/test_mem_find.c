/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory is known from the first question on: whatever other threads load meanwhile, in
 * children of fork(), and where ANGARA_GPU leaves it out. Each test is a process of its own, since
 * a runtime is found only once.
 */
#include "device.h"

#include <angara/angara_mem.h>

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE    (1 << 20)
#define WAIT_US 200000 /* in which another thread comes to a lock */
#define LIMIT   60     /* seconds: a thread hangs */

static const device_runtime_t *gpu;
static int                     kind; /* of its memory */

/* ---- a library that is being loaded ---------------------------------------------------------- */

static const char *slow_library;
static int         loading[2], go_on[2]; /* pipes: it has begun, it may end */
static int         asks;                 /* the constructor, when it may end */

static int query(const void *addr)
{
    angara_mem_t mem;

    if (angara_mem_query(addr, &mem) != ANGARA_OK) {
        return -1;
    }
    return (int)mem.kind;
}

/* In its constructor. */
__attribute__((visibility("default"))) void slow_library_loading(void);
void                                        slow_library_loading(void)
{
    char byte = 0;

    if (write(loading[1], &byte, 1) != 1 || read(go_on[0], &byte, 1) != 1) {
        abort();
    }
    if (asks) {
        query(&byte);
    }
}

static void *load(void *unused)
{
    (void)unused;
    return dlopen(slow_library, RTLD_NOW);
}

/* What a pointer is, by a thread of its own. */
typedef struct {
    pthread_t   thread;
    const void *addr;
    int         kind;
} question_t;

static void *question_run(void *question_p)
{
    question_t *question = question_p;

    question->kind = query(question->addr);
    return NULL;
}

static void question_ask(question_t *question, const void *addr)
{
    *question = (question_t){.addr = addr};
    if (pthread_create(&question->thread, NULL, question_run, question) != 0) {
        abort();
    }
    usleep(WAIT_US);
}

static int question_answer(const question_t *question)
{
    pthread_join(question->thread, NULL);
    return question->kind;
}

static void loading_start(pthread_t *thread)
{
    char byte = 0;

    if (pipe(loading) != 0 || pipe(go_on) != 0 || pthread_create(thread, NULL, load, NULL) != 0 ||
        read(loading[0], &byte, 1) != 1) {
        abort();
    }
}

/* @return 1: it was loaded */
static int loading_end(pthread_t thread)
{
    void *library;

    if (write(go_on[1], "", 1) != 1 || pthread_join(thread, &library) != 0) {
        abort();
    }
    return library != NULL;
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void *gpu_alloc(void)
{
    void *addr = gpu->open() > 0 ? gpu->alloc(0, SIZE, DEVICE_PLAIN) : NULL;

    if (addr == NULL) {
        abort();
    }
    return addr;
}

/* The library looks for runtimes once before there is one. */
static void look(void)
{
    char byte = 0;

    query(&byte);
}

/* Two threads ask while a third one is in a constructor. */
static int run_loading(void)
{
    question_t host, device;
    pthread_t  thread;
    void      *addr;
    char       byte = 0;
    int        is_loaded;

    look();
    addr = gpu_alloc();
    loading_start(&thread);
    question_ask(&host, &byte);
    question_ask(&device, addr);
    is_loaded = loading_end(thread);
    return is_loaded && question_answer(&host) == ANGARA_MEM_HOST &&
           question_answer(&device) == kind;
}

/* The constructor itself asks, while another thread waits for its end. */
static int run_constructor(void)
{
    asks = 1;
    return run_loading();
}

/* Nobody waits for a constructor if there is nothing to find. */
static int run_no_runtime(void)
{
    pthread_t thread;
    char      byte = 0;

    look();
    loading_start(&thread);
    return query(&byte) == ANGARA_MEM_HOST && loading_end(thread);
}

/* Some programs load ROCm's runtime and have no GPU, as those with Debian 13's UCX. */
static int run_loaded(void)
{
    int         is_common = strcmp(gpu->name, "rocm") == 0 && access("/dev/kfd", F_OK) != 0;
    uint32_t    before, after, bit = 1u << kind;
    const char *name, *lacks;
    int         is_here;

    if (dlopen(gpu->library, RTLD_NOW) == NULL || angara_mem_kinds(&before) != ANGARA_OK) {
        abort();
    }
    is_here = angara_mem_runtime(0, &name, &lacks) == ANGARA_OK;
    return query(gpu_alloc()) == kind && angara_mem_kinds(&after) == ANGARA_OK &&
           is_here != is_common && ((before & bit) != 0) != is_common && (after & bit) &&
           angara_mem_runtime(0, &name, &lacks) == ANGARA_OK;
}

/* The child is the first to use a GPU. */
static int child_uses_gpu(void)
{
    pid_t pid = fork();
    int   result;

    if (pid == 0) {
        alarm(LIMIT / 2);
        _exit(query(gpu_alloc()) != kind);
    }
    return waitpid(pid, &result, 0) == pid && result == 0;
}

/* The program is linked with the runtime, as HIP's are. */
static int run_child(void)
{
    if (dlopen(gpu->library, RTLD_NOW) == NULL) {
        abort();
    }
    look();
    return child_uses_gpu();
}

/* A thread was looking for runtimes when the child was made. */
static int run_child_meanwhile(void)
{
    question_t host;
    pthread_t  thread;
    char       byte = 0;
    int        was_right;

    look();
    if (dlopen(gpu->library, RTLD_NOW) == NULL) {
        abort();
    }
    loading_start(&thread);
    question_ask(&host, &byte);
    was_right = child_uses_gpu();
    return loading_end(thread) && question_answer(&host) == ANGARA_MEM_HOST && was_right;
}

static int asking; /* threads may ask on; atomic */

static void *ask_on(void *unused)
{
    char byte = 0;

    (void)unused;
    while (__atomic_load_n(&asking, __ATOMIC_RELAXED)) {
        query(&byte);
    }
    return NULL;
}

#define CHILDREN 300
#define ASKERS   2

/* Children of a fork() can load a library, though threads were asking what a pointer is. */
static int run_children_load(void)
{
    pthread_t threads[ASKERS];
    int       result = 0;
    pid_t     pid;

    asking = 1;
    for (unsigned i = 0; i < ASKERS; ++i) {
        if (pthread_create(&threads[i], NULL, ask_on, NULL) != 0) {
            abort();
        }
    }
    for (unsigned i = 0; i < CHILDREN && result == 0; ++i) {
        pid = fork();
        if (pid == 0) {
            alarm(LIMIT / 2);
            _exit(dlopen(gpu->library, RTLD_LAZY) == NULL);
        }
        if (waitpid(pid, &result, 0) != pid) {
            abort();
        }
    }
    __atomic_store_n(&asking, 0, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < ASKERS; ++i) {
        pthread_join(threads[i], NULL);
    }
    return result == 0;
}

static const char *leaves_out; /* a value of ANGARA_GPU */

/* Host memory is as before; no call takes the GPU's. */
static int run_left_out(void)
{
    const uint32_t  bit = 1u << kind;
    char            host[64];
    void           *addr, *managed;
    angara_domain_h dom;
    angara_mr_h     mr;
    angara_copy_t   copy;
    angara_mem_t    mem;
    uint32_t        kinds, others;
    const char     *name, *lacks;

    setenv("ANGARA_GPU", leaves_out, 1);
    addr    = gpu_alloc();
    managed = gpu->alloc(0, SIZE, DEVICE_MANAGED);
    /* asked first: without a node ROCm's runtime counts only once there is memory of it */
    if (angara_mem_query((char *)addr + 5, &mem) != ANGARA_ERR_UNSUPPORTED ||
        angara_open(NULL, &dom) != ANGARA_OK || angara_mem_kinds(&kinds) != ANGARA_OK ||
        angara_mem_kinds_left_out(&others) != ANGARA_OK) {
        return 0;
    }
    return (int)mem.kind == kind && mem.base == addr && query(host) == ANGARA_MEM_HOST &&
           query(managed) == ANGARA_MEM_HOST && !(kinds & bit) && (others & bit) &&
           angara_mem_runtime(0, &name, &lacks) == ANGARA_OK && strcmp(name, gpu->name) == 0 &&
           angara_mr_register(dom, addr, SIZE, ANGARA_ACCESS_ALL, &mr) == ANGARA_ERR_UNSUPPORTED &&
           angara_copy(host, addr, 8) == ANGARA_ERR_UNSUPPORTED &&
           angara_copy(addr, host, 8) == ANGARA_ERR_UNSUPPORTED &&
           angara_copy_start(addr, host, 8, &copy) == ANGARA_ERR_UNSUPPORTED &&
           angara_mr_register(dom, host, sizeof(host), ANGARA_ACCESS_ALL, &mr) == ANGARA_OK &&
           angara_mr_deregister(mr) == ANGARA_OK && angara_close(dom) == ANGARA_OK;
}

static int run_none(void)
{
    leaves_out = "none";
    return run_left_out();
}

static int run_other(void)
{
    leaves_out = kind == ANGARA_MEM_CUDA ? "rocm" : "cuda";
    return run_left_out();
}

static void run(int (*test)(void))
{
    pid_t pid = fork();
    int   result;

    if (pid == 0) {
        alarm(LIMIT);
        _exit(!test());
    }
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
}

#define TEST(_name)                        \
    static void test_##_name(void **state) \
    {                                      \
        (void)state;                       \
        run(run_##_name);                  \
    }

TEST(loading)
TEST(constructor)
TEST(no_runtime)
TEST(child)
TEST(child_meanwhile)
TEST(children_load)
TEST(loaded)
TEST(none)
TEST(other)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loading),         cmocka_unit_test(test_constructor),
        cmocka_unit_test(test_no_runtime),      cmocka_unit_test(test_child),
        cmocka_unit_test(test_child_meanwhile), cmocka_unit_test(test_children_load),
        cmocka_unit_test(test_loaded),          cmocka_unit_test(test_none),
        cmocka_unit_test(test_other),
    };

    gpu = argc == 3 ? device_runtime(argv[1]) : NULL;
    if (gpu == NULL) {
        fprintf(stderr, "usage: %s cuda|rocm LIBRARY\n", argv[0]);
        return 2;
    }
    kind         = strcmp(gpu->name, "cuda") == 0 ? ANGARA_MEM_CUDA : ANGARA_MEM_ROCM;
    slow_library = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
