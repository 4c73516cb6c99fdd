/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * OpenSHMEM over the transport: put, get, strided and typed forms, non-blocking with quiet,
 * fence and signalling by flag, atomics, locks, collectives and the symmetric heap. TAP output
 * from PE 0. Static data is not used as a target: only the symmetric heap.
 */
#include "../common/clock.h"
#include "../common/maps.h"

#include <shmem.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_BYTES (1u << 20)
#define TIMEOUT   60

static int         me, npes, next, previous;
static int         num_tests, num_failed, errors;
static const char *current = "start-up";

static int  *error_sum, *error_in; /* symmetric, for the verdicts */
static long *reduce_work, *reduce_sync;

static void watchdog(int signum)
{
    static const char text[] = "# watchdog: this test takes too long: ";
    ssize_t           ret;

    (void)signum;
    ret = write(STDERR_FILENO, text, sizeof(text) - 1);
    ret = write(STDERR_FILENO, current, strlen(current));
    ret = write(STDERR_FILENO, "\n", 1);
    (void)ret;
    _exit(3);
}

#define CHECK(_condition, ...)                                                \
    do {                                                                      \
        if (!(_condition) && (++errors <= 5)) {                               \
            fprintf(stderr, "# PE %d, %s, line %d: ", me, current, __LINE__); \
            fprintf(stderr, __VA_ARGS__);                                     \
            fprintf(stderr, "\n");                                            \
        }                                                                     \
    } while (0)

static void run(const char *name, void (*func)(void))
{
    current = name;
    errors  = 0;
    test_alarm(TIMEOUT);
    shmem_barrier_all();
    func();
    shmem_barrier_all();

    *error_in = errors;
    shmem_barrier_all();
    shmem_int_sum_to_all(error_sum, error_in, 1, 0, 0, npes, (int *)reduce_work, reduce_sync);
    shmem_barrier_all();
    ++num_tests;
    num_failed += *error_sum != 0;
    if (me == 0) {
        printf("%sok %d - %s\n", *error_sum ? "not " : "", num_tests, name);
    }
}

static unsigned char pattern(int pe, size_t size, size_t i)
{
    return (unsigned char)((unsigned)pe * 37 + size * 11 + i * 7 + (i >> 8));
}

static const size_t sizes[] = {1,     7,     8,     9,     55,     57,     64,     129,
                               1000,  4095,  4096,  4097,  8192,   8193,   16384,  40000,
                               40960, 40961, 65536, 65537, 131072, 131073, 300000, MAX_BYTES};
#define NUM_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static unsigned char *heap_buf, *heap_buf2;

static void test_put_get(void)
{
    unsigned char *local = malloc(MAX_BYTES);
    size_t         s, i;

    for (s = 0; s < NUM_SIZES; ++s) {
        for (i = 0; i < sizes[s]; ++i) {
            local[i] = pattern(me, sizes[s], i);
        }
        shmem_putmem(heap_buf, local, sizes[s], next);
        shmem_barrier_all();
        for (i = 0; (i < sizes[s]) && (heap_buf[i] == pattern(previous, sizes[s], i)); ++i) {
        }
        CHECK(i == sizes[s], "put of %zu bytes: wrong at %zu", sizes[s], i);
        memset(local, 0, sizes[s]);
        shmem_getmem(local, heap_buf, sizes[s], next);
        for (i = 0; (i < sizes[s]) && (local[i] == pattern(me, sizes[s], i)); ++i) {
        }
        CHECK(i == sizes[s], "get of %zu bytes: wrong at %zu", sizes[s], i);
        shmem_barrier_all();
    }
    free(local);
}

static void test_nonblocking(void)
{
    size_t chunk = 1000, count = MAX_BYTES / chunk, i;

    for (i = 0; i < MAX_BYTES; ++i) {
        heap_buf2[i] = pattern(me, 1, i);
    }
    for (i = 0; i < count; ++i) {
        shmem_putmem_nbi(heap_buf + i * chunk, heap_buf2 + i * chunk, chunk, next);
    }
    shmem_quiet();
    shmem_barrier_all();
    for (i = 0; (i < count * chunk) && (heap_buf[i] == pattern(previous, 1, i)); ++i) {
    }
    CHECK(i == count * chunk, "non-blocking put: wrong at %zu", i);
    shmem_barrier_all();

    memset(heap_buf, 0, MAX_BYTES);
    shmem_barrier_all();
    for (i = 0; i < count; ++i) {
        shmem_getmem_nbi(heap_buf + i * chunk, heap_buf2 + i * chunk, chunk, next);
    }
    shmem_quiet();
    for (i = 0; (i < count * chunk) && (heap_buf[i] == pattern(next, 1, i)); ++i) {
    }
    CHECK(i == count * chunk, "non-blocking get: wrong at %zu", i);
}

/* Data, fence, flag: who sees the flag must see the data. */
static long *flag, *counters;

static void test_fence_flag(void)
{
    size_t size = 5000, i;
    long   round;

    *flag = 0;
    shmem_barrier_all();
    for (round = 1; round <= 50; ++round) {
        memset(heap_buf2, (int)(round + me), size);
        shmem_putmem(heap_buf, heap_buf2, size, next);
        shmem_fence();
        shmem_long_p(flag, round, next);
        shmem_long_wait_until(flag, SHMEM_CMP_GE, round);
        for (i = 0; (i < size) && (heap_buf[i] == (unsigned char)(round + previous)); ++i) {
        }
        CHECK(i == size, "round %ld: the flag came before byte %zu", round, i);
        shmem_barrier_all();
    }
}

static void test_scalar_strided(void)
{
    long *data = (long *)heap_buf, source[100], value;
    int   i;

    memset(heap_buf, 0, 4096);
    shmem_barrier_all();
    for (i = 0; i < 100; ++i) {
        source[i] = 1000 * me + i;
    }
    shmem_long_iput(data, source, 3, 2, 33, next);
    shmem_long_p(data + 200, 4711 + me, next);
    shmem_barrier_all();
    for (i = 0; i < 99; ++i) {
        value = (i % 3) ? 0 : 1000 * previous + i / 3 * 2;
        CHECK(data[i] == value, "element %d is %ld, expected %ld", i, data[i], value);
    }
    CHECK(data[200] == 4711 + previous, "scalar put: %ld", data[200]);
    value = shmem_long_g(data + 200, next);
    CHECK(value == 4711 + me, "scalar get: %ld", value);
}

static void test_atomics(void)
{
    int  i, count = 200;
    long value, sum;

    memset(counters, 0, 8 * sizeof(long));
    shmem_barrier_all();
    for (i = 0, sum = 0; i < count; ++i) {
        shmem_long_atomic_inc(&counters[0], 0);
        shmem_long_atomic_add(&counters[1], me + 1, 0);
        value = shmem_long_atomic_fetch_add(&counters[2], 1, 0);
        CHECK((value >= 0) && (value < (long)count * npes), "fetch_add: %ld", value);
        CHECK((i == 0) || (value > sum), "fetch_add went back from %ld to %ld", sum, value);
        sum = value;
    }
    shmem_long_atomic_or(&counters[3], 1l << (me % 60), 0);
    shmem_long_atomic_xor(&counters[4], 1l << (me % 60), 0);
    shmem_barrier_all();
    value = shmem_long_atomic_fetch(&counters[0], 0);
    CHECK(value == (long)count * npes, "inc: %ld", value);
    value = shmem_long_atomic_fetch(&counters[1], 0);
    CHECK(value == (long)count * npes * (npes + 1) / 2, "add: %ld", value);
    value = shmem_long_atomic_fetch(&counters[3], 0);
    CHECK(value == (1l << npes) - 1, "or: %lx", value);
    value = shmem_long_atomic_fetch(&counters[4], 0);
    CHECK(value == (1l << npes) - 1, "xor: %lx", value);
    shmem_barrier_all();

    shmem_long_atomic_set(&counters[5], 100 + me, next);
    shmem_barrier_all();
    value = shmem_long_atomic_swap(&counters[5], 7, next);
    CHECK(value == 100 + me, "swap: %ld", value);
    value = shmem_long_atomic_compare_swap(&counters[5], 7, 9, next);
    CHECK(value == 7, "compare_swap: %ld", value);
    value = shmem_long_atomic_compare_swap(&counters[5], 7, 11, next);
    CHECK(value == 9, "failing compare_swap: %ld", value);
}

/*
 * All PEs change one word of every PE, their own too, by every atomic, while targets now make calls
 * and now compute. What one swaps out it adds again, so that nothing is lost.
 */
static void test_one_word(void)
{
    long         added = 0, sum = 0, value;
    volatile int busy;
    int          i, pe;

    counters[0] = 0;
    counters[1] = 0;
    shmem_barrier_all();
    for (i = 0; i < 2000; ++i) {
        pe = (me + i / 4) % npes;
        switch (i % 4) {
        case 0:
            shmem_long_atomic_inc(&counters[0], pe);
            ++added;
            break;
        case 1:
            do {
                value = shmem_long_atomic_fetch(&counters[0], pe);
            } while (shmem_long_atomic_compare_swap(&counters[0], value, value + 1, pe) != value);
            ++added;
            break;
        case 2:
            value = shmem_long_atomic_swap(&counters[0], 0, pe);
            shmem_long_atomic_add(&counters[0], value, pe);
            break;
        default:
            shmem_long_atomic_fetch_add(&counters[0], 1, pe);
            ++added;
        }
        for (busy = 0; ((i + 7 * me) % 32 < 8) && (busy < 5000);) {
            busy = busy + 1;
        }
    }
    shmem_long_atomic_add(&counters[1], added, 0);
    shmem_barrier_all();
    for (pe = 0; pe < npes; ++pe) {
        sum += shmem_long_atomic_fetch(&counters[0], pe);
    }
    value = shmem_long_atomic_fetch(&counters[1], 0);
    CHECK(sum == value, "the words hold %ld of %ld that were added", sum, value);
}

static void test_lock(void)
{
    int  i, count = 20;
    long value;

    counters[6] = 0;
    counters[7] = 0;
    shmem_barrier_all();
    for (i = 0; i < count; ++i) {
        shmem_set_lock(&counters[7]);
        value = shmem_long_g(&counters[6], 0);
        shmem_long_p(&counters[6], value + 1, 0);
        shmem_quiet();
        shmem_clear_lock(&counters[7]);
    }
    shmem_barrier_all();
    value = shmem_long_g(&counters[6], 0);
    CHECK(value == (long)count * npes, "%ld of %d increments under the lock", value, count * npes);
}

static void sync_reset(void)
{
    int i;

    for (i = 0; i < SHMEM_COLLECT_SYNC_SIZE + SHMEM_BCAST_SYNC_SIZE; ++i) {
        reduce_sync[i] = SHMEM_SYNC_VALUE;
    }
    shmem_barrier_all();
}

static void test_collectives(void)
{
    int *source = (int *)heap_buf2, *target = (int *)heap_buf, i, root, length, offset, pe;

    for (root = 0; root < npes; ++root) {
        for (i = 0; i < 5000; ++i) {
            source[i] = 10000 * me + i;
            target[i] = -1;
        }
        sync_reset();
        shmem_broadcast32(target, source, 5000, root, 0, 0, npes, reduce_sync);
        shmem_barrier_all();
        for (i = 0; (i < 5000) && (me != root); ++i) {
            CHECK(target[i] == 10000 * root + i, "broadcast from %d: element %d is %d", root, i,
                  target[i]);
        }
        shmem_barrier_all();
    }

    sync_reset();
    shmem_fcollect32(target, source, 3000, 0, 0, npes, reduce_sync);
    shmem_barrier_all();
    for (i = 0; i < 3000 * npes; ++i) {
        CHECK(target[i] == 10000 * (i / 3000) + i % 3000, "fcollect: element %d is %d", i,
              target[i]);
    }
    shmem_barrier_all();

    sync_reset();
    length = 100 + me; /* every PE another length */
    shmem_collect32(target, source, (size_t)length, 0, 0, npes, reduce_sync);
    shmem_barrier_all();
    for (pe = 0, offset = 0; pe < npes; ++pe) {
        for (i = 0; i < 100 + pe; ++i) {
            CHECK(target[offset + i] == 10000 * pe + i, "collect: element %d of PE %d is %d", i, pe,
                  target[offset + i]);
        }
        offset += 100 + pe;
    }
}

static void test_heap(void)
{
    const char *transports = getenv("UCX_TLS");
    char       *blocks[20];
    int         i;

    /* peers map memory that the transport has allocated */
    CHECK(transports == NULL || strstr(transports, "angara") == NULL ||
              is_mapped_as(heap_buf, "angara-memory"),
          "the heap isn't the transport's");

    for (i = 0; i < 20; ++i) {
        blocks[i] = shmem_malloc((size_t)1 << i);
        CHECK(blocks[i] != NULL, "shmem_malloc of %d bytes", 1 << i);
        shmem_int8_p((int8_t *)blocks[i], (int8_t)(i + me), next);
    }
    shmem_barrier_all();
    for (i = 0; i < 20; ++i) {
        CHECK(*blocks[i] == (char)(i + previous), "block %d", i);
    }
    shmem_barrier_all();
    for (i = 0; i < 20; ++i) {
        shmem_free(blocks[i]);
    }
}

int main(void)
{
    size_t work_size = SHMEM_REDUCE_MIN_WRKDATA_SIZE * sizeof(long);
    size_t sync_size = (SHMEM_COLLECT_SYNC_SIZE + SHMEM_BCAST_SYNC_SIZE + SHMEM_REDUCE_SYNC_SIZE) *
                       sizeof(long);
    size_t i;

    signal(SIGALRM, watchdog);
    test_alarm(TIMEOUT);
    shmem_init();
    me       = shmem_my_pe();
    npes     = shmem_n_pes();
    next     = (me + 1) % npes;
    previous = (me + npes - 1) % npes;

    heap_buf    = shmem_malloc(MAX_BYTES);
    heap_buf2   = shmem_malloc(MAX_BYTES);
    flag        = shmem_malloc(sizeof(long));
    counters    = shmem_malloc(8 * sizeof(long));
    error_sum   = shmem_malloc(sizeof(int));
    error_in    = shmem_malloc(sizeof(int));
    reduce_work = shmem_malloc(work_size);
    reduce_sync = shmem_malloc(sync_size);
    for (i = 0; i < sync_size / sizeof(long); ++i) {
        reduce_sync[i] = SHMEM_SYNC_VALUE;
    }
    shmem_barrier_all();

    if (me == 0) {
        setvbuf(stdout, NULL, _IOLBF, 0);
        printf("TAP version 13\n# OpenSHMEM, %d PEs\n", npes);
    }
    run("put and get", test_put_get);
    run("non-blocking put and get, quiet", test_nonblocking);
    run("data before flag", test_fence_flag);
    run("scalar and strided", test_scalar_strided);
    run("atomics", test_atomics);
    run("all atomics on one word", test_one_word);
    run("lock", test_lock);
    run("broadcast, fcollect, collect", test_collectives);
    run("symmetric heap", test_heap);
    if (me == 0) {
        printf("1..%d\n", num_tests);
    }

    current = "shmem_finalize";
    test_alarm(TIMEOUT);
    shmem_finalize();
    return num_failed ? 1 : 0;
}
