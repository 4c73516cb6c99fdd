/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory in the library (userlib/gpu/): what pointers are, copies, memory of another process.
 * Runs over the runtime that ANGARA_TEST_GPU names, real or stand-in; what needs a stand-in's
 * control is in test_mem_faults.c.
 */
#define _GNU_SOURCE
#include "cuda_program.h"
#include "device.h"
#include "gpu/gpu.h"
#include "src/config.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MB (1ul << 20)

static const device_runtime_t *gpu;
static unsigned                num_gpus;

/* ---- helpers --------------------------------------------------------------------------------- */

static angara_mem_t ask(const void *addr)
{
    angara_mem_t mem;

    assert_int_equal(angara_mem_query(addr, &mem), ANGARA_OK);
    return mem;
}

static int is_host(const void *addr)
{
    return ask(addr).kind == ANGARA_MEM_HOST;
}

static void *alloc(unsigned device, size_t size, device_origin_t origin)
{
    void *addr = gpu->alloc(device, size, origin);

    if (addr == NULL) {
        assert_true(origin != DEVICE_PLAIN && origin != DEVICE_PINNED);
        print_message("%s has no %s memory\n", gpu->name, device_origin_names[origin]);
    }
    return addr;
}

/* Bytes that depend on their place and on `seed`. */
static void pattern(unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; ++i) {
        bytes[i] = (unsigned char)(i * 7 + i / 251 + seed);
    }
}

/* ---- pointers -------------------------------------------------------------------------------- */

static void test_host(void **state)
{
    char  local;
    void *heap   = malloc(100);
    void *page   = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *pinned = alloc(0, 8192, DEVICE_PINNED);

    (void)state;
    assert_true(is_host(&local) && is_host(heap) && is_host(page) && is_host(NULL));
    assert_true(is_host((void *)8) && is_host((void *)test_host));
    assert_true(is_host((void *)~(uintptr_t)0));
    assert_true(is_host(pinned) && is_host((char *)pinned + 8191));
    assert_int_equal(angara_mem_query(&local, NULL), ANGARA_ERR_INVALID);
    gpu->free(pinned, DEVICE_PINNED);
    munmap(page, 4096);
    free(heap);
}

static angara_mem_kind_t kind_of(device_origin_t origin)
{
    int is_cuda = gpu == &device_cuda;

    switch (origin) {
    case DEVICE_MANAGED:
        return is_cuda ? ANGARA_MEM_CUDA_MANAGED : ANGARA_MEM_ROCM_MANAGED;
    case DEVICE_PINNED:
        return ANGARA_MEM_HOST;
    default:
        return is_cuda ? ANGARA_MEM_CUDA : ANGARA_MEM_ROCM;
    }
}

static void check_pointer(unsigned device, device_origin_t origin)
{
    const size_t  size = 5 * MB;
    char         *addr = alloc(device, size, origin);
    angara_mem_t  mem, end;
    ang_gpu_mem_t known;

    if (addr == NULL) {
        return;
    }
    mem = ask(addr);
    end = ask(addr + size - 1);
    assert_int_equal(mem.kind, kind_of(origin));
    assert_int_equal(end.kind, mem.kind);
    assert_ptr_equal(mem.base, addr);
    assert_true(mem.length >= size);
    assert_ptr_equal(end.base, addr);
    assert_int_equal(end.length, mem.length);
    assert_true(mem.id != 0 && end.id != 0);
    assert_int_equal(mem.id != end.id, origin == DEVICE_MAPPED); /* several, side by side */
    assert_int_equal(mem.device, device);
    assert_true(mem.pci != 0);
    assert_int_equal(mem.shares, origin == DEVICE_PLAIN);
    ang_gpu_query(addr, &known);
    assert_string_equal(known.ops->name, gpu->name);
    assert_int_equal(ang_gpu_is_device(&known), origin != DEVICE_MANAGED);
    gpu->free(addr, origin);
    assert_true(is_host(addr) || ask(addr).id != mem.id);
}

static void test_pointers(void **state)
{
    (void)state;
    for (unsigned device = 0; device < num_gpus; ++device) {
        for (device_origin_t origin = 0; origin < DEVICE_PINNED; ++origin) {
            check_pointer(device, origin);
        }
    }
}

/* Memory that was freed and memory that has its address now are told apart. */
static void test_ids(void **state)
{
    uint64_t ids[64];
    void    *last = NULL;
    unsigned same = 0;

    (void)state;
    for (device_origin_t origin = 0; origin < DEVICE_PINNED; ++origin) {
        for (unsigned i = 0; i < 64; ++i) {
            void *addr = alloc(0, 3 * MB, origin);

            if (addr == NULL) {
                break;
            }
            same += addr == last;
            last   = addr;
            ids[i] = ask(addr).id;
            assert_int_equal(ask((char *)addr + 100).id, ids[i]);
            for (unsigned k = 0; k < i; ++k) {
                assert_true(ids[k] != ids[i]);
            }
            gpu->free(addr, origin);
        }
    }
    print_message("an address came again %u times\n", same);
    assert_true(same > 0);
}

/* ---- copies ---------------------------------------------------------------------------------- */

#define ROOM  (9 * MB)
#define GUARD 64

/* An end of a copy: memory of a GPU, or of the host. */
typedef struct {
    const char     *name;
    unsigned        device;
    device_origin_t origin; /* DEVICE_ORIGINS: from malloc */
    unsigned char  *addr;
} end_t;

static int end_open(end_t *end)
{
    end->addr = end->origin == DEVICE_ORIGINS ? calloc(1, ROOM) :
                                                gpu->alloc(end->device, ROOM, end->origin);
    return end->addr != NULL;
}

static void end_close(end_t *end)
{
    if (end->addr != NULL && end->origin == DEVICE_ORIGINS) {
        free(end->addr);
    } else if (end->addr != NULL) {
        gpu->free(end->addr, end->origin);
    }
}

static int is_device(const end_t *end)
{
    return end->origin < DEVICE_PINNED;
}

static void end_write(const end_t *end, size_t at, const void *bytes, size_t size)
{
    if (is_device(end)) {
        gpu->write(end->addr + at, bytes, size);
    } else {
        memcpy(end->addr + at, bytes, size);
    }
}

static void end_read(const end_t *end, size_t at, void *bytes, size_t size)
{
    if (is_device(end)) {
        gpu->read(bytes, end->addr + at, size);
    } else {
        memcpy(bytes, end->addr + at, size);
    }
}

static unsigned char expected[ROOM], found[ROOM];

/* All bytes arrive, and none beside. */
static void copy_case(const end_t *dst, size_t dst_at, const end_t *src, size_t src_at, size_t size)
{
    static unsigned seed;

    memset(found, 0xee, size + 2 * GUARD);
    end_write(dst, dst_at - GUARD, found, size + 2 * GUARD);
    pattern(expected, size, ++seed);
    end_write(src, src_at, expected, size);
    assert_int_equal(angara_copy(dst->addr + dst_at, src->addr + src_at, size), ANGARA_OK);
    end_read(dst, dst_at - GUARD, found, size + 2 * GUARD);
    if (memcmp(found + GUARD, expected, size) != 0) {
        fail_msg("%zu bytes from %s to %s are wrong", size, src->name, dst->name);
    }
    for (unsigned i = 0; i < GUARD; ++i) {
        assert_int_equal(found[i], 0xee);
        assert_int_equal(found[GUARD + size + i], 0xee);
    }
}

static void test_copies(void **state)
{
    static const size_t sizes[] = {0, 1, 7, 8, 100, 4096, 65535, 1 << 20, (8 << 20) + 13};
    end_t               ends[]  = {{"GPU 0", 0, DEVICE_PLAIN, NULL},
                                   {"the last GPU", num_gpus - 1, DEVICE_PLAIN, NULL},
                                   {"a pool", 0, DEVICE_POOL, NULL},
                                   {"a range", num_gpus - 1, DEVICE_MAPPED, NULL},
                                   {"managed memory", 0, DEVICE_MANAGED, NULL},
                                   {"pinned memory", 0, DEVICE_PINNED, NULL},
                                   {"the heap", 0, DEVICE_ORIGINS, NULL}};
    const unsigned      count   = sizeof(ends) / sizeof(ends[0]);
    end_t               other;

    (void)state;
    for (unsigned i = 0; i < count; ++i) {
        end_open(&ends[i]);
    }
    for (unsigned d = 0; d < count; ++d) {
        other      = ends[d];
        other.addr = NULL;
        for (unsigned s = 0; s < count && ends[d].addr != NULL && end_open(&other); ++s) {
            for (unsigned n = 0; n < sizeof(sizes) / sizeof(sizes[0]) && ends[s].addr != NULL;
                 ++n) {
                copy_case(&other, GUARD + 4 * n, &ends[s], 3 * n, sizes[n]);
            }
            end_close(&other);
        }
    }
    for (unsigned i = 0; i < count; ++i) {
        end_close(&ends[i]);
    }
}

#define MANY 200

/* Many at once, in all directions, tested in any order. */
static void test_many(void **state)
{
    const size_t    size = 10000;
    angara_copy_t   copies[MANY];
    angara_status_t status[MANY];
    unsigned char  *host = malloc(MANY * size), *back = calloc(MANY, size);
    char           *near = alloc(0, MANY * size, DEVICE_PLAIN);
    char           *far  = alloc(num_gpus - 1, MANY * size, DEVICE_PLAIN);
    unsigned        left = MANY;

    (void)state;
    pattern(host, MANY * size, 5);
    for (unsigned round = 0; round < 3; ++round) {
        left = MANY;
        for (unsigned i = 0; i < MANY; ++i) {
            void *to   = round == 0 ? near + i * size :
                         round == 1 ? far + i * size :
                                      (char *)back + i * size;
            void *from = round == 0 ? (char *)host + i * size :
                         round == 1 ? near + i * size :
                                      far + i * size;

            while ((status[i] = angara_copy_start(to, from, size, &copies[i])) ==
                   ANGARA_ERR_NO_RESOURCE) {
                angara_copy_test(&copies[i - 1]);
            }
            if (status[i] == ANGARA_ERR_UNSUPPORTED) { /* the GPUs don't reach each other */
                status[i] = angara_copy(to, from, size);
            }
            assert_true(status[i] == ANGARA_INPROGRESS || status[i] == ANGARA_OK);
            left -= status[i] == ANGARA_OK;
        }
        while (left != 0) {
            for (unsigned i = MANY; i-- != 0;) {
                if (status[i] == ANGARA_INPROGRESS) {
                    status[i] = angara_copy_test(&copies[i]);
                    assert_true(status[i] == ANGARA_INPROGRESS || status[i] == ANGARA_OK);
                    left -= status[i] == ANGARA_OK;
                }
            }
        }
    }
    assert_memory_equal(host, back, MANY * size);
    gpu->free(near, DEVICE_PLAIN);
    gpu->free(far, DEVICE_PLAIN);
    free(host);
    free(back);
}

/* A copy that is waited for gets through, though its thread has started as many others as it can
 * and tests none of them meanwhile. */
static void test_full(void **state)
{
    const size_t    size = 10000, all = (MANY + 1) * size;
    angara_copy_t   copies[MANY];
    angara_status_t status[MANY];
    unsigned char  *host = malloc(all), *back = malloc(all);
    unsigned char  *near = alloc(0, all, DEVICE_PLAIN), *far = alloc(0, all, DEVICE_PLAIN);
    unsigned char  *ends[] = {host, near, far, back};
    unsigned        count;

    (void)state;
    pattern(host, all, 9);
    for (unsigned i = 0; i + 1 < sizeof(ends) / sizeof(ends[0]); ++i) {
        for (count = 0; count < MANY; ++count) {
            status[count] = angara_copy_start(ends[i + 1] + count * size, ends[i] + count * size,
                                              size, &copies[count]);
            if (status[count] == ANGARA_ERR_NO_RESOURCE) {
                break;
            }
        }
        print_message("%u copies can be under way\n", count);
        assert_int_equal(
            angara_copy(ends[i + 1] + count * size, ends[i] + count * size, all - count * size),
            ANGARA_OK);
        while (count-- != 0) {
            while (status[count] == ANGARA_INPROGRESS) {
                status[count] = angara_copy_test(&copies[count]);
            }
            assert_int_equal(status[count], ANGARA_OK);
        }
    }
    assert_memory_equal(host, back, all);
    gpu->free(near, DEVICE_PLAIN);
    gpu->free(far, DEVICE_PLAIN);
    free(host);
    free(back);
}

/* What isn't within an allocation, or isn't a GPU's. */
static void test_refused(void **state)
{
    const size_t  size = 3 * MB;
    char         *addr = alloc(0, size, DEVICE_PLAIN);
    char          host[64], other[64] = "x";
    size_t        whole = ask(addr).length;
    angara_copy_t copy;

    (void)state;
    assert_int_equal(angara_copy_start(host, other, 64, &copy), ANGARA_ERR_UNSUPPORTED);
    assert_int_equal(angara_copy_start(addr + whole - 63, host, 64, &copy), ANGARA_ERR_BOUNDS);
    assert_int_equal(angara_copy_start(host, addr + whole - 63, 64, &copy), ANGARA_ERR_BOUNDS);
    assert_int_equal(angara_copy_start(host, addr, SIZE_MAX, &copy), ANGARA_ERR_BOUNDS);
    assert_int_equal(angara_copy(host, addr, SIZE_MAX - 5), ANGARA_ERR_BOUNDS);
    assert_int_equal(angara_copy_start(NULL, addr, 1, &copy), ANGARA_ERR_INVALID);
    assert_int_equal(angara_copy_start(host, addr, 1, NULL), ANGARA_ERR_INVALID);
    assert_int_equal(angara_copy_test(NULL), ANGARA_ERR_INVALID);
    assert_int_equal(angara_copy_start(host, addr, 0, &copy), ANGARA_OK);
    assert_int_equal(angara_copy(host, other, sizeof(host)), ANGARA_OK);
    assert_memory_equal(host, other, sizeof(host));
    gpu->free(addr, DEVICE_PLAIN);
}

/* The CPU copies it, but no further than it goes. */
static void test_refused_managed(void **state)
{
    char  *addr     = gpu->alloc(0, 64, DEVICE_MANAGED);
    char   host[64] = "x";
    size_t beyond;

    (void)state;
    if (addr == NULL) {
        skip(); /* the runtime has none */
    }
    beyond = ask(addr).length + 1;
    assert_int_equal(angara_copy(addr, host, beyond), ANGARA_ERR_BOUNDS);
    assert_int_equal(angara_copy(host, addr, beyond), ANGARA_ERR_BOUNDS);
    assert_int_equal(angara_copy(addr, host, sizeof(host)), ANGARA_OK);
    gpu->free(addr, DEVICE_MANAGED);
}

/* What the program has written by a call that blocks is what a copy behind it reads. */
static void test_blocking_writes(void **state)
{
    static const size_t sizes[] = {8, 4096, 65536, 1 << 20, 8 << 20};
    unsigned char      *host = malloc(8 << 20), *back = malloc(8 << 20);
    char               *addr = alloc(0, 8 << 20, DEVICE_PLAIN);

    (void)state;
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        for (unsigned round = 0; round < 30; ++round) {
            memset(host, (int)(1 + round), sizes[i]);
            ask(addr); /* as UCX does, at the latest when the message begins */
            gpu->write_only(addr, host, sizes[i]);
            assert_int_equal(angara_copy(back, addr, sizes[i]), ANGARA_OK);
            assert_memory_equal(host, back, sizes[i]);
        }
    }
    gpu->free(addr, DEVICE_PLAIN);
    free(host);
    free(back);
}

/* A copy by two calls, tested to its end; as angara_copy(). */
static angara_status_t copy_aside(void *dst, const void *src, size_t size)
{
    angara_copy_t   copy;
    angara_status_t status = angara_copy_start(dst, src, size, &copy);

    while (status == ANGARA_INPROGRESS) {
        status = angara_copy_test(&copy);
    }
    return status;
}

/* Host memory, some pages of which the program has registered: the driver refuses such copies. */
static void test_partly(void **state)
{
    enum { PAGE = 4096, PAGES = 2300 };
    static const struct {
        unsigned first, num; /* pages */
    } parts[][2] = {{{0, 3}, {0, 0}}, {{3, 3}, {0, 0}}, {{0, 3}, {3, 3}}, {{1, 1}, {4, 1}}};
    static angara_status_t (*const calls[])(void *, const void *, size_t) = {angara_copy,
                                                                             copy_aside};
    static const size_t sizes[] = {6 * PAGE, 6 * PAGE - 10, (PAGES - 2) * PAGE};
    unsigned char      *host    = aligned_alloc(PAGE, PAGES * PAGE), *addr;
    cuda_program_t      cuda    = {0};
    CUcontext           ctx;

    (void)state;
    if (gpu != &device_cuda) {
        free(host);
        skip(); /* other runtimes take host memory as it is */
    }
    addr = alloc(0, PAGES * PAGE, DEVICE_PLAIN);
    assert_true(cuda_program_load(&cuda, gpu->library));
    assert_int_equal(cuda.primary_ctx_retain(&ctx, 0), CUDA_SUCCESS);
    assert_int_equal(cuda.ctx_push(ctx), CUDA_SUCCESS);
    for (unsigned i = 0; i < 4 * 2 * 3; ++i) {
        size_t   size = sizes[i % 3];
        unsigned n    = i / 6;

        for (unsigned k = 0; k < 2 && parts[n][k].num > 0; ++k) {
            assert_int_equal(
                cuda.host_register(host + parts[n][k].first * PAGE, parts[n][k].num * PAGE, 0),
                CUDA_SUCCESS);
        }
        pattern(host, size, i);
        memcpy(expected, host, size);
        assert_int_equal(calls[i / 3 % 2](addr, host, size), ANGARA_OK);
        memset(host, 0xee, size + 1);
        assert_int_equal(calls[i / 3 % 2](host, addr, size), ANGARA_OK);
        assert_memory_equal(host, expected, size);
        assert_int_equal(host[size], 0xee);
        for (unsigned k = 0; k < 2 && parts[n][k].num > 0; ++k) {
            assert_int_equal(cuda.host_unregister(host + parts[n][k].first * PAGE), CUDA_SUCCESS);
        }
    }
    assert_int_equal(cuda.ctx_pop(&ctx), CUDA_SUCCESS);
    assert_int_equal(cuda.primary_ctx_release(0), CUDA_SUCCESS);
    gpu->free(addr, DEVICE_PLAIN);
    free(host);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *thread_run(void *arg)
{
    unsigned       device = (unsigned)(uintptr_t)arg % num_gpus;
    const size_t   size   = 100000;
    unsigned char *host = malloc(size), *back = malloc(size);
    char          *addr;

    for (unsigned i = 0; i < 20; ++i) {
        addr = alloc(device, size, DEVICE_PLAIN);
        pattern(host, size, i + device);
        assert_int_equal(ask(addr + size / 2).device, device);
        assert_int_equal(angara_copy(addr, host, size), ANGARA_OK);
        assert_int_equal(angara_copy(back, addr, size), ANGARA_OK);
        assert_memory_equal(host, back, size);
        gpu->free(addr, DEVICE_PLAIN);
    }
    free(host);
    free(back);
    return NULL;
}

/* Threads without a context of their own. */
static void test_threads(void **state)
{
    pthread_t threads[6];

    (void)state;
    for (unsigned i = 0; i < 6; ++i) {
        assert_int_equal(pthread_create(&threads[i], NULL, thread_run, (void *)(uintptr_t)i), 0);
    }
    for (unsigned i = 0; i < 6; ++i) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

/* ---- another process ------------------------------------------------------------------------- */

#define SHARED_SIZE (4 * MB)

typedef struct {
    ang_gpu_handle_t handle;
    size_t           length;
} offer_t;

/* The other side: has GPU memory, lets it be mapped, and looks at what came. */
static int owner_run(int in, int out)
{
    unsigned char *bytes = malloc(SHARED_SIZE), *seen = malloc(SHARED_SIZE);
    ang_gpu_mem_t  known;
    offer_t        offer;
    char          *addr, go;
    int            bad = 0;

    if (gpu->open() == 0) {
        return 1;
    }
    addr = gpu->alloc(num_gpus - 1, SHARED_SIZE, DEVICE_PLAIN);
    pattern(bytes, SHARED_SIZE, 77);
    gpu->write(addr, bytes, SHARED_SIZE);
    ang_gpu_query(addr + 5, &known);
    bad |= known.ops == NULL || known.ops->share(&known, &offer.handle) != ANGARA_OK ? 2 : 0;
    offer.length = known.mem.length;
    bad |= write(out, &offer, sizeof(offer)) != sizeof(offer) || read(in, &go, 1) != 1 ? 4 : 0;
    gpu->read(seen, addr, SHARED_SIZE);
    pattern(bytes, SHARED_SIZE, 78);
    bad |= memcmp(bytes, seen, SHARED_SIZE) != 0 ? 8 : 0;
    gpu->free(addr, DEVICE_PLAIN);
    free(bytes);
    free(seen);
    return bad;
}

static void test_shared(void **state)
{
    unsigned char       *bytes = malloc(SHARED_SIZE), *seen = malloc(SHARED_SIZE);
    char                *addr = alloc(0, SHARED_SIZE, DEVICE_PLAIN);
    const ang_gpu_ops_t *ops;
    ang_gpu_mem_t        mine, theirs;
    ang_gpu_copy_t       copy;
    angara_status_t      status;
    ang_gpu_map_t        map;
    offer_t              offer;
    int                  in[2], out[2], result;
    pid_t                pid;

    (void)state;
    ang_gpu_query(addr, &mine);
    ops = mine.ops;
    assert_int_equal(pipe(in) | pipe(out), 0);
    pid = fork();
    if (pid == 0) {
        char fds[2][16];

        snprintf(fds[0], sizeof(fds[0]), "%d", in[0]);
        snprintf(fds[1], sizeof(fds[1]), "%d", out[1]);
        execl("/proc/self/exe", "test_mem", "owner", fds[0], fds[1], NULL);
        _exit(99);
    }
    close(in[0]);
    close(out[1]);
    assert_int_equal(read(out[0], &offer, sizeof(offer)), sizeof(offer));
    status = ops->map(0, &offer.handle, offer.length, &map);
    if (status == ANGARA_ERR_UNSUPPORTED) {
        print_message("the GPUs don't reach each other\n");
        kill(pid, SIGKILL);
        goto out;
    }
    assert_int_equal(status, ANGARA_OK);
    theirs = (ang_gpu_mem_t){
        .mem = {.kind = ops->kind, .device = map.device, .base = map.base, .length = offer.length},
        .ops = ops,
        .context = map.context};
    for (int is_put = 0; is_put < 2; ++is_put) {
        pattern(bytes, SHARED_SIZE, 78);
        gpu->write(addr, bytes, SHARED_SIZE);
        status = is_put ? ang_gpu_copy_start(map.base, &theirs, addr, &mine, SHARED_SIZE, &copy) :
                          ang_gpu_copy_start(addr, &mine, map.base, &theirs, SHARED_SIZE, &copy);
        while (status == ANGARA_INPROGRESS) {
            status = ang_gpu_copy_test(&copy);
        }
        assert_int_equal(status, ANGARA_OK);
        if (!is_put) {
            pattern(bytes, SHARED_SIZE, 77);
            gpu->read(seen, addr, SHARED_SIZE);
            assert_memory_equal(bytes, seen, SHARED_SIZE);
        }
    }
    ops->unmap(&map);
    assert_int_equal(write(in[1], "", 1), 1);
out:
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, status == ANGARA_OK ? 0 : SIGKILL);
    close(in[1]);
    close(out[0]);
    gpu->free(addr, DEVICE_PLAIN);
    free(bytes);
    free(seen);
}

/* In a child no runtime is asked. */
static void test_fork(void **state)
{
    char *addr = alloc(0, MB, DEVICE_PLAIN);
    int   result;
    pid_t pid;

    (void)state;
    assert_false(is_host(addr));
    pid = fork();
    if (pid == 0) {
        angara_mem_t mem;

        _exit(angara_mem_query(addr, &mem) != ANGARA_OK || mem.kind != ANGARA_MEM_HOST);
    }
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
    assert_false(is_host(addr));
    gpu->free(addr, DEVICE_PLAIN);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host),    cmocka_unit_test(test_pointers),
        cmocka_unit_test(test_ids),     cmocka_unit_test(test_copies),
        cmocka_unit_test(test_many),    cmocka_unit_test(test_full),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_refused_managed),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_blocking_writes),
        cmocka_unit_test(test_shared),  cmocka_unit_test(test_fork),
        cmocka_unit_test(test_partly),
    };
    const char *name = getenv("ANGARA_TEST_GPU");
    char        byte;

    gpu = device_runtime(name != NULL ? name : "cuda");
    if (gpu == NULL || angara_mem_query(&byte, &(angara_mem_t){0}) != ANGARA_OK) {
        fprintf(stderr, "ANGARA_TEST_GPU: cuda or rocm\n");
        return 2;
    }
    num_gpus = gpu->open();
    if (num_gpus == 0 && getenv("ANGARA_TEST_MUST") != NULL) {
        fprintf(stderr, "ANGARA_TEST_MUST is set, but there is no GPU of %s\n", gpu->name);
        return 1;
    }
    if (num_gpus == 0) {
        printf("1..0 # SKIP no GPU of %s\n", gpu->name);
        return 0;
    }
    if (argc == 4 && strcmp(argv[1], "owner") == 0) {
        return owner_run(atoi(argv[2]), atoi(argv[3]));
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
