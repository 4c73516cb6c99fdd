/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions of GPU memory: inline puts, batches, atomics, transfers within one process, and what is
 * refused. Runs over the runtime that ANGARA_TEST_GPU names, real or stand-in.
 */
#define _GNU_SOURCE
#include "regions.h"

#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- inline puts, batches, atomics ----------------------------------------------------------- */

static void run_inline(conf_t *t)
{
    static const size_t lengths[] = {0, 1, 8, 57};
    unsigned char       bytes[4096];
    region_t            region;
    uint64_t            keys[2];
    size_t              at = 5;

    gpu_start();
    conf_open(t);
    for (unsigned place = 0; place < DEVICE_ORIGINS; ++place) {
        if (!region_open(t, &region, place, 0, 2 * sizeof(bytes), ANGARA_ACCESS_ALL)) {
            continue;
        }
        conf_exchange(t, &region.key, keys, sizeof(region.key));
        for (unsigned i = 0; i <= 4; ++i) {
            size_t length = i < 4 ? lengths[i] : t->attr.inline_max;

            CHECK(length <= sizeof(bytes));
            data_fill(bytes, length, i + t->rank);
            POST_OK(t, angara_offload_put_inline(t->peer[1 - t->rank], bytes, keys[1 - t->rank], at,
                                                 length));
            memset(bytes, 0, sizeof(bytes)); /* it has been copied */
            conf_marker(t, 1 - t->rank);
            conf_barrier(t);
            region_check(&region, at, length, i + 1 - t->rank);
            conf_barrier(t);
            at += 3;
        }
        region_close(&region);
    }
    conf_close(t);
}

static void test_inline(void **state)
{
    (void)state;
    conf_run(2, run_inline, NULL);
}

/* Transfers of a batch whose ends are host and GPU memory in turn. */
static void run_batches(conf_t *t)
{
    enum { LENGTH = 3000 };
    const unsigned places[] = {PLACE_HEAP, DEVICE_PLAIN, PLACE_SHARED, DEVICE_POOL};
    region_t       here[4], there[4];
    uint64_t       keys[2][4] = {{0}}, mine[4] = {0};
    angara_xfer_t  xfers[ANGARA_BATCH_MAX];
    unsigned       posted, other = 1 - t->rank;

    gpu_start();
    conf_open(t);
    for (unsigned i = 0; i < 4; ++i) {
        unsigned place = places[i] == DEVICE_POOL && gpu == &device_rocm ? DEVICE_PLAIN : places[i];

        CHECK(region_open(t, &here[i], place, 0, 4 * LENGTH, ANGARA_ACCESS_ALL));
        CHECK(region_open(t, &there[i], place, num_gpus - 1, 4 * LENGTH, ANGARA_ACCESS_ALL));
        mine[i] = there[i].key;
    }
    conf_exchange(t, mine, keys, sizeof(mine));
    for (int is_put = 1; is_put >= 0; --is_put) {
        for (unsigned i = 0; i < ANGARA_BATCH_MAX; ++i) {
            const region_t *local = &here[i % 4];

            /* Each pair of places once; what is got is what was put. */
            xfers[i] = (angara_xfer_t){local->mr, local->addr + i / 4 * LENGTH,
                                       keys[other][(i + i / 4) % 4], i / 4 * LENGTH, LENGTH};
            region_fill(local, i / 4 * LENGTH, LENGTH, is_put ? 100 * t->rank + i : 7);
        }
        for (unsigned first = 0; first < ANGARA_BATCH_MAX; first += posted) {
            angara_status_t status = angara_offload_batch(
                t->peer[other], is_put ? ANGARA_BATCH_PUT : ANGARA_BATCH_GET, xfers + first,
                ANGARA_BATCH_MAX - first, &posted);

            CHECK(status == ANGARA_OK || status == ANGARA_ERR_NO_RESOURCE);
            angara_pe_progress(t->pe);
        }
        conf_marker(t, other);
        conf_barrier(t);
        for (unsigned i = 0; i < ANGARA_BATCH_MAX; ++i) {
            if (is_put) {
                region_check(&there[(i + i / 4) % 4], i / 4 * LENGTH, LENGTH, 100 * other + i);
            } else {
                region_check(&here[i % 4], i / 4 * LENGTH, LENGTH, 100 * t->rank + i);
            }
        }
        conf_barrier(t);
    }
    for (unsigned i = 0; i < 4; ++i) {
        region_close(&here[i]);
        region_close(&there[i]);
    }
    conf_close(t);
}

static void test_batches(void **state)
{
    (void)state;
    conf_run(2, run_batches, NULL);
}

/* The value that an atomic fetches lands in GPU memory; there are none on GPU memory. */
static void run_atomics(conf_t *t)
{
    const unsigned places[2] = {PLACE_HEAP, PLACE_SHARED};
    unsigned       other     = 1 - t->rank;
    region_t       words, result, target;
    uint64_t       keys[2], old;

    gpu_start();
    conf_open(t);
    CHECK(region_open(t, &result, DEVICE_PLAIN, 0, 64, ANGARA_ACCESS_ALL));
    for (unsigned i = 0; i < 2; ++i) {
        size_t aligned;

        CHECK(region_open(t, &words, places[i], 0, 64, ANGARA_ACCESS_ALL));
        aligned = -(uintptr_t)words.addr % 8;
        conf_exchange(t, &words.key, keys, sizeof(words.key));
        old = 1000 + t->rank;
        memcpy(words.addr + aligned, &old, sizeof(old));
        conf_barrier(t);
        POST_OK(t, angara_atomic(t->peer[other], ANGARA_ATOMIC_ADD, 8, 5, 0, keys[other], aligned,
                                 result.mr, result.addr + 5));
        conf_marker(t, other);
        region_read(&result, 5, &old, sizeof(old));
        CHECK_EQ(old, 1000 + other);
        conf_barrier(t);
        memcpy(&old, words.addr + aligned, sizeof(old));
        CHECK_EQ(old, 1005 + t->rank);
        region_close(&words);
    }
    CHECK(region_open(t, &target, DEVICE_PLAIN, 0, 64, ANGARA_ACCESS_ALL));
    CHECK_EQ(angara_mr_access(target.mr) & ANGARA_ACCESS_REMOTE_ATOMIC, 0);
    conf_exchange(t, &target.key, keys, sizeof(target.key));
    conf_expect_fault(t, other,
                      CONF_POST(t, angara_atomic(t->peer[other], ANGARA_ATOMIC_ADD, 8, 5, 0,
                                                 keys[other], 5, NULL, NULL)),
                      ANGARA_ERR_RIGHTS, keys[other]);
    conf_barrier(t);
    region_close(&target);
    region_close(&result);
    conf_close(t);
}

static void test_atomics(void **state)
{
    (void)state;
    conf_run(2, run_atomics, NULL);
}

/* ---- one process ----------------------------------------------------------------------------- */

/* To the own PE, to another of the process, and to one of another domain. */
static void run_own(conf_t *t)
{
    const unsigned places[] = {PLACE_HEAP, PLACE_SHARED, DEVICE_PLAIN, DEVICE_POOL, DEVICE_MANAGED};
    const size_t   lengths[] = {1, 5000, 3 * MB};
    conf_t         second = *t, third = *t;
    conf_t        *owners[] = {t, &second, &third};
    region_t       here, there;
    angara_address_t address;
    angara_peer_h    peers[3];
    uint64_t         seed = 1;

    gpu_start();
    conf_open(t);
    second.dom = t->dom;
    CHECK_OK(angara_pe_create(second.dom, NULL, &second.pe));
    CHECK_OK(angara_open(conf_device(), &third.dom));
    CHECK_OK(angara_pe_create(third.dom, NULL, &third.pe));
    for (unsigned i = 0; i < 3; ++i) {
        angara_pe_address(owners[i]->pe, &address);
        CHECK_OK(angara_peer_connect(t->pe, &address, &peers[i]));
        t->peer[i] = peers[i];
    }
    for (unsigned i = 0; i < 3 * 5 * 5; ++i) {
        unsigned to = i / 25, h = i / 5 % 5, r = i % 5;

        if ((!place_is_gpu(places[h]) && !place_is_gpu(places[r])) ||
            !region_open(t, &here, places[h], 0, 4 * MB, ANGARA_ACCESS_ALL)) {
            continue;
        }
        if (region_open(owners[to], &there, places[r], num_gpus - 1, 4 * MB, ANGARA_ACCESS_ALL)) {
            for (unsigned n = 0; n < sizeof(lengths) / sizeof(lengths[0]); ++n, seed += 2) {
                region_fill(&here, 11, lengths[n], seed);
                CHECK_OK(put_get(t, to, 1, &here, 11, there.key, 17, lengths[n]));
                region_check(&there, 17, lengths[n], seed);
                region_fill(&there, 17, lengths[n], seed + 1);
                CHECK_OK(put_get(t, to, 0, &here, 13, there.key, 17, lengths[n]));
                region_check(&here, 13, lengths[n], seed + 1);
            }
            region_close(&there);
        }
        region_close(&here);
    }
    for (unsigned i = 1; i < 3; ++i) {
        angara_peer_disconnect(peers[i]);
        t->peer[i] = NULL;
    }
    angara_peer_disconnect(peers[0]); /* counted: conf_close() has the first */
    angara_pe_destroy(second.pe);
    angara_pe_destroy(third.pe);
    CHECK_OK(angara_close(third.dom));
    conf_close(t);
}

static void test_own(void **state)
{
    (void)state;
    conf_run(1, run_own, NULL);
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* What runs past its allocation, with a message that says so. */
static void run_refused(conf_t *t)
{
    char         words[1024] = "";
    int          log = memfd_create("log", 0), old = dup(STDERR_FILENO);
    angara_mem_t mem;
    angara_mr_h  mr;
    region_t     region;

    gpu_start();
    conf_open(t);
    CHECK(t->attr.caps & ANGARA_CAP_GPU_MEMORY);
    CHECK(region_open(t, &region, DEVICE_PLAIN, 0, 3 * MB, ANGARA_ACCESS_ALL));
    CHECK_OK(angara_mem_query(region.addr, &mem));
    CHECK(log >= 0 && old >= 0 && dup2(log, STDERR_FILENO) == STDERR_FILENO);
    CHECK_STATUS(angara_mr_register(t->dom, (char *)mem.base + mem.length - 100, 101,
                                    ANGARA_ACCESS_ALL, &mr),
                 ANGARA_ERR_INVALID);
    CHECK_STATUS(
        angara_mr_register(t->dom, mem.base, mem.length + 1, ANGARA_ACCESS_REMOTE_READ, &mr),
        ANGARA_ERR_INVALID);
    dup2(old, STDERR_FILENO);
    CHECK(pread(log, words, sizeof(words) - 1, 0) > 0);
    CHECK(strstr(words, "GPU memory") != NULL);
    CHECK_OK(angara_mr_register(t->dom, mem.base, mem.length, ANGARA_ACCESS_ALL, &mr));
    CHECK_OK(angara_mr_deregister(mr));
    CHECK_OK(angara_mr_register(t->dom, (char *)mem.base + mem.length - 1, 1, 0, &mr));
    CHECK_OK(angara_mr_deregister(mr));
    region_close(&region);
    close(log);
    close(old);
    conf_close(t);
}

static void test_refused(void **state)
{
    (void)state;
    conf_run(1, run_refused, NULL);
}

/* ---- the other process's GPU ----------------------------------------------------------------- */

#define LONG_SIZE (9 * MB) /* more than is done at once */

typedef enum { SERVED, STOPPED, NO_GPU, GONE, HOLE } direct_t;

/*
 * Was the other process's GPU asked so often since? On a busy machine it may answer too late, then
 * the copy takes another way, and some time must pass until it is asked again. @return 0: try
 * again.
 */
static int was_direct(conf_t *t, uint64_t before, unsigned count, double end)
{
    if (getenv("ANGARA_CHAOS") != NULL || services(t) - before == count) {
        return 1;
    }
    CHECK(now_seconds() < end);
    sleep_ms(50);
    return 0;
}

/*
 * Rank 0's GPU memory and rank 1's host memory: rank 1's GPU copies. Not if its process is stopped
 * or uses no GPU; memory that is there no more is a fault, and no crash.
 */
static void run_direct(conf_t *t)
{
    const direct_t    way    = *(const direct_t *)t->arg;
    const int         direct = getenv("ANGARA_CHAOS") == NULL;
    const double      end    = now_seconds() + RANK_TIMEOUT / 2.;
    char             *bytes  = malloc(LONG_SIZE);
    angara_counters_t before, after;
    region_t          region = {0};
    angara_mr_h       mr     = NULL;
    uint64_t          keys[2], key = 0;
    void             *host = MAP_FAILED;

    if (t->rank == 0 || way != NO_GPU) {
        gpu_start();
    }
    conf_open(t);
    if (t->rank == 0) {
        CHECK(region_open(t, &region, DEVICE_PLAIN, 0, LONG_SIZE, ANGARA_ACCESS_ALL));
    } else {
        host = mmap(NULL, LONG_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(host != MAP_FAILED);
        CHECK_OK(angara_mr_register(t->dom, host, LONG_SIZE, ANGARA_ACCESS_ALL, &mr));
        key = angara_mr_key(mr);
        data_fill(host, LONG_SIZE, 7);
    }
    conf_exchange(t, &key, keys, sizeof(key));
    if (t->rank == 0 && way == STOPPED) {
        conf_stop_process(t->pid[1]);
    }
    if (t->rank == 1 && way == GONE) {
        CHECK(munmap(host, LONG_SIZE) == 0);
    }
    if (t->rank == 1 && way == HOLE) {
        CHECK(mprotect((char *)host + LONG_SIZE / 2, 1, PROT_NONE) == 0);
    }
    if (way != STOPPED) {
        conf_barrier(t);
    }
    if (t->rank == 0) {
        const int             is_bad = way == GONE || way == HOLE;
        const angara_status_t wanted = is_bad ? ANGARA_ERR_BOUNDS : ANGARA_OK;

        angara_pe_counters(t->pe, &before);
        CHECK_STATUS(put_get(t, 1, 0, &region, 0, keys[1], 0, LONG_SIZE), wanted);
        if (!is_bad) {
            region_check(&region, 0, LONG_SIZE, 7);
        }
        region_fill(&region, 0, LONG_SIZE, 8);
        CHECK_STATUS(put_get(t, 1, 1, &region, 0, keys[1], 0, LONG_SIZE), wanted);
        angara_pe_counters(t->pe, &after);
        while (way == SERVED && !was_direct(t, before.services, 4, end)) {
            angara_pe_counters(t->pe, &before);
            CHECK_OK(put_get(t, 1, 0, &region, 0, keys[1], 0, LONG_SIZE));
            region_check(&region, 0, LONG_SIZE, 8);
            CHECK_OK(put_get(t, 1, 1, &region, 0, keys[1], 0, LONG_SIZE));
            angara_pe_counters(t->pe, &after);
        }
        if (direct && way == SERVED) {
            CHECK_EQ(after.gpu_staged, before.gpu_staged);
        }
        if (direct && (way == STOPPED || way == NO_GPU)) {
            CHECK(after.gpu_staged > before.gpu_staged);
        }
        kill(t->pid[1], SIGCONT);
    }
    conf_barrier(t);
    if (t->rank == 1) {
        data_fill(bytes, LONG_SIZE, 8);
        CHECK(way == GONE || way == HOLE || memcmp(host, bytes, LONG_SIZE) == 0);
        CHECK_OK(angara_mr_deregister(mr));
        munmap(host, LONG_SIZE);
    } else {
        region_close(&region);
    }
    free(bytes);
    conf_close(t);
}

#define GUARD_INSTALL 102 /* madvise(), since Linux 6.13 */

typedef enum { REPLACED, READ_ONLY, GUARDED, TRUNCATED } change_t;

typedef struct {
    change_t change; /* of the last page */
    int      is_put;
    int      is_file; /* the memory is a file's */
} changed_t;

static void page_change(const changed_t *c, char *page, size_t size, int file)
{
    switch (c->change) {
    case REPLACED:
        CHECK(mmap(page, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
              MAP_FAILED);
        break;
    case READ_ONLY:
        CHECK(mprotect(page, size, PROT_READ) == 0);
        break;
    case GUARDED: /* or, before, of no rights */
        CHECK(madvise(page, size, GUARD_INSTALL) == 0 || mprotect(page, size, PROT_NONE) == 0);
        break;
    default:
        CHECK(ftruncate(file, (off_t)(MB - size)) == 0);
        break;
    }
}

/* Rank 1's GPU has copied from and to its host memory, when the program takes a page of it away. */
static void run_direct_changed(conf_t *t)
{
    const changed_t *c      = t->arg;
    const size_t     page   = (size_t)sysconf(_SC_PAGESIZE);
    region_t         region = {0};
    angara_mr_h      mr     = NULL;
    const double     end    = now_seconds() + RANK_TIMEOUT / 2.;
    uint64_t         keys[2], key = 0, before;
    char            *host = NULL;
    int              file = -1;

    gpu_start();
    conf_open(t);
    if (t->rank == 0) {
        CHECK(region_open(t, &region, DEVICE_PLAIN, 0, MB, ANGARA_ACCESS_ALL));
    } else {
        file = memfd_create("host", 0);
        CHECK(file >= 0 && ftruncate(file, MB) == 0);
        host = mmap(NULL, MB, PROT_READ | PROT_WRITE,
                    c->is_file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, c->is_file ? file : -1,
                    0);
        CHECK(host != MAP_FAILED);
        data_fill(host, MB, 7);
        CHECK_OK(angara_mr_register(t->dom, host, MB, ANGARA_ACCESS_ALL, &mr));
        key = angara_mr_key(mr);
    }
    conf_exchange(t, &key, keys, sizeof(key));
    if (t->rank == 0) {
        do {
            before = services(t);
            CHECK_OK(put_get(t, 1, 0, &region, 0, keys[1], 0, MB));
            region_check(&region, 0, MB, 7);
            CHECK_OK(put_get(t, 1, 1, &region, 0, keys[1], 0, MB));
        } while (!was_direct(t, before, 2, end));
    }
    conf_barrier(t);
    if (t->rank == 1) {
        page_change(c, host + MB - page, page, file);
    }
    conf_barrier(t);
    if (t->rank == 0) {
        CHECK_STATUS(put_get(t, 1, c->is_put, &region, 0, keys[1], 0, MB), ANGARA_ERR_BOUNDS);
        CHECK_OK(put_get(t, 1, c->is_put, &region, 0, keys[1], 0, MB - page));
    }
    conf_barrier(t);
    if (t->rank == 0) {
        region_close(&region);
    } else {
        CHECK_OK(angara_mr_deregister(mr));
        munmap(host, MB);
        close(file);
    }
    conf_close(t);
}

/*
 * Rank 1's host memory is known to its GPU, and a page of it has become read-only: the GPU writes
 * it all the same, and nobody else touches it.
 */
static void run_direct_known(conf_t *t)
{
    const uintptr_t page   = (uintptr_t)sysconf(_SC_PAGESIZE);
    const size_t    length = 8 * MB + page; /* its end is a piece by itself */
    region_t        region;
    uint64_t        keys[2];
    char           *last;

    gpu_start();
    if (gpu != &device_cuda || getenv("ANGARA_CHAOS") != NULL) {
        rank_skip("it may go another way, whose copies ask for the page's rights");
    }
    conf_open(t);
    CHECK(region_open(t, &region, t->rank == 0 ? DEVICE_PLAIN : DEVICE_PINNED, 0, length,
                      ANGARA_ACCESS_ALL));
    last = (char *)((uintptr_t)(region.addr + length - page) & ~(page - 1));
    if (t->rank == 0) {
        region_fill(&region, 0, length, 8);
    } else {
        CHECK(mprotect(last, page, PROT_READ) == 0);
    }
    conf_exchange(t, &region.key, keys, sizeof(region.key));
    if (t->rank == 0) {
        CHECK_OK(put_get(t, 1, 1, &region, 0, keys[1], 0, length));
    }
    conf_barrier(t);
    if (t->rank == 1) {
        region_check(&region, 0, length, 8);
        CHECK(mprotect(last, page, PROT_READ | PROT_WRITE) == 0);
    }
    region_close(&region);
    conf_close(t);
}

/*
 * Rank 1's GPU is at a get of rank 0's, and takes its time: rank 0 isn't told that its memory has
 * been given back before that has ended.
 */
static void run_direct_held(conf_t *t)
{
    char       *bytes  = malloc(LONG_SIZE);
    region_t    region = {0};
    angara_mr_h mr     = NULL;
    uint64_t    keys[2], key = 0;

    setenv("ANGARA_PEER_WAIT", "300", 1);
    gpu_start();
    if (!is_standin || getenv("ANGARA_CHAOS") != NULL) {
        rank_skip("copies can't be held up");
    }
    conf_open(t);
    if (t->rank == 0) {
        CHECK(region_open(t, &region, DEVICE_PLAIN, 0, LONG_SIZE, ANGARA_ACCESS_ALL));
    } else {
        CHECK_OK(angara_mr_register(t->dom, bytes, LONG_SIZE, ANGARA_ACCESS_ALL, &mr));
        key = angara_mr_key(mr);
        data_fill(bytes, LONG_SIZE, 7);
        standin.hold(1);
    }
    conf_exchange(t, &key, keys, sizeof(key));
    if (t->rank == 0) {
        CHECK_OK(angara_offload_get(t->peer[1], region.mr, region.addr, keys[1], 0, LONG_SIZE));
        for (uint64_t before = services(t); services(t) == before;) {
            angara_pe_progress(t->pe);
        }
    }
    while (t->rank == 1 && standin.pending() == 0) {
        sleep_ms(1);
    }
    conf_barrier(t);
    if (t->rank == 0) {
        CHECK_STATUS(angara_mr_deregister(region.mr), ANGARA_ERR_BUSY);
    }
    conf_barrier(t);
    standin.hold(0);
    _exit(0); /* what is left of the pair isn't what is tested */
}

#define BUSY_FORKS 20u
#define BUSY_LATE  3u /* pieces of requests during a fork(), on average */

/*
 * Rank 0's GPU, which takes its time, has always a request to serve, and its helper's lock is held
 * meanwhile: calls of fork(), which wait for that lock, get their turn.
 */
static void run_busy_forks(conf_t *t)
{
    region_t    region = {0};
    uint64_t    keys[RANK_MAX], key = 0, stop = 1;
    angara_mr_h mr   = NULL;
    char       *host = malloc(LONG_SIZE);
    const char *copy;

    volatile uint64_t *stopped;

    if (t->rank == 0) {
        setenv("STANDIN_DELAY_US", "2000", 1);
    }
    gpu_start();
    if (!is_standin || getenv("ANGARA_CHAOS") != NULL) {
        rank_skip("copies don't take their time");
    }
    copy = gpu == &device_cuda ? "cuMemcpyAsync" : "hsa_amd_memory_async_copy";
    conf_open(t);
    stopped = (volatile uint64_t *)(void *)t->window;
    if (t->rank == 0) {
        CHECK_OK(angara_mr_register(t->dom, host, LONG_SIZE, ANGARA_ACCESS_ALL, &mr));
        key = angara_mr_key(mr);
    } else {
        CHECK(region_open(t, &region, DEVICE_PLAIN, 0, LONG_SIZE, ANGARA_ACCESS_ALL));
    }
    conf_exchange(t, &key, keys, sizeof(key));
    if (t->rank == 0) {
        unsigned long before, count = 0;

        for (unsigned i = 0; i < BUSY_FORKS; ++i) {
            pid_t child;

            for (before = standin.calls(copy); standin.calls(copy) < before + 3; sleep_ms(1)) {
            }
            before = standin.calls(copy);
            child  = fork();
            if (child == 0) {
                _exit(0);
            }
            count += standin.calls(copy) - before;
            CHECK(child > 0 && waitpid(child, NULL, 0) == child);
        }
        for (unsigned rank = 1; rank < t->nranks; ++rank) {
            POST_OK(t, angara_put(t->peer[rank], 0, &stop, sizeof(stop)));
        }
        if (count > BUSY_FORKS * BUSY_LATE) {
            rank_fail(__FILE__, __LINE__, "%lu copies began within %u calls of fork()", count,
                      BUSY_FORKS);
        }
    }
    while (t->rank != 0 && *stopped == 0) {
        CHECK_OK(put_get(t, 0, 0, &region, 0, keys[0], 0, LONG_SIZE));
    }
    conf_barrier(t);
    if (t->rank == 0) {
        CHECK_OK(angara_mr_deregister(mr));
    } else {
        region_close(&region);
    }
    free(host);
    conf_close(t);
}

static void test_direct(void **state)
{
    static const direct_t ways[] = {SERVED, STOPPED, NO_GPU, GONE, HOLE};

    (void)state;
    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); ++i) {
        conf_run(2, run_direct, &ways[i]);
    }
}

static void test_direct_changed(void **state)
{
    static const changed_t cases[] = {{REPLACED, 0, 0},  {REPLACED, 1, 1}, {READ_ONLY, 1, 0},
                                      {READ_ONLY, 1, 1}, {GUARDED, 0, 0},  {GUARDED, 1, 0},
                                      {TRUNCATED, 0, 1}, {TRUNCATED, 1, 1}};

    (void)state;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        conf_run(2, run_direct_changed, &cases[i]);
    }
}

static void test_direct_known(void **state)
{
    (void)state;
    conf_run(2, run_direct_known, NULL);
}

static void test_direct_held(void **state)
{
    (void)state;
    conf_run(2, run_direct_held, NULL);
}

static void test_busy_forks(void **state)
{
    (void)state;
    conf_run(4, run_busy_forks, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_inline),         TEST(test_batches),
        TEST(test_atomics),        TEST(test_own),
        TEST(test_refused),        TEST(test_direct),
        TEST(test_direct_changed), TEST(test_direct_held),
        TEST(test_direct_known),   TEST(test_busy_forks),
    };
    int result = regions_begin();

    return result >= 0 ? result : cmocka_run_group_tests(tests, NULL, NULL);
}
