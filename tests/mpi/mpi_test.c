/* SPDX-License-Identifier: BSD-3-Clause */
/* The common part of the MPI test programs: see mpi_test.h. */
#include "mpi_test.h"

#include "../common/clock.h"

#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GUARD_SIZE      64
#define GUARD_BYTE      0xa5
#define MAX_PRINTED     5
#define DEFAULT_MAX     (4ul << 20)
#define DEFAULT_ITERS   10
#define DEFAULT_TIMEOUT 60

mt_state_t mt;

static const char *mt_current = "start-up"; /* for the watchdog */
static int         mt_num_tests;
static int         mt_num_failed;
static int         mt_errors; /* of the running test, on this rank */

/* Sizes around powers of two, where layouts change, and large ones. */
static const size_t mt_plain_sizes[] = {
    0,      1,      2,      3,       7,       8,       9,       15,       16,      17,
    31,     33,     63,     64,      65,      127,     128,     129,      255,     256,
    257,    511,    512,    513,     1023,    1024,    1025,    2047,     2048,    2049,
    4095,   4096,   4097,   8191,    8192,    8193,    16383,   16384,    16385,   32767,
    32768,  32769,  65535,  65536,   65537,   98304,   131071,  131072,   131073,  262143,
    262144, 262145, 524287, 1048575, 1048576, 1048577, 4194304, 16777217, 67108864};

/*
 * What transports of the kind that is tested here send in one piece: a slot of 64 and of 128
 * bytes, four of these (as much as rings of 16 slots give to a message), and runs of 8448 bytes,
 * each without 8 bytes of the transport's own. Above the last one rendezvous begins.
 */
static const size_t mt_pieces[] = {56, 120, 504, 8440};

/* The bytes that precede the data in a piece: none (one-sided), and those of UCX's protocols. */
static const size_t mt_headers[] = {0, 8, 16, 24};

static void mt_add_size(size_t size)
{
    if (size <= mt.max_size) {
        mt.sizes[mt.num_sizes++] = size;
    }
}

/* One below, at and one above each size at which some protocol or layout changes. */
static void mt_default_sizes(void)
{
    const size_t pieces = MT_COUNT(mt_pieces), headers = MT_COUNT(mt_headers);
    size_t       i, k;

    mt.sizes = mt_alloc((MT_COUNT(mt_plain_sizes) + 3 * pieces * headers) * sizeof(*mt.sizes));
    for (i = 0; i < pieces * headers; ++i) {
        for (k = 0; k < 3; ++k) {
            mt_add_size(mt_pieces[i / headers] - mt_headers[i % headers] + k - 1);
        }
    }
    for (i = 0; i < MT_COUNT(mt_plain_sizes); ++i) {
        mt_add_size(mt_plain_sizes[i]);
    }
}

static void mt_watchdog(int signum)
{
    static const char text[] = "# watchdog: this test takes too long: ";
    ssize_t           ret;

    (void)signum;
    ret = write(STDERR_FILENO, text, sizeof(text) - 1);
    ret = write(STDERR_FILENO, mt_current, strlen(mt_current));
    ret = write(STDERR_FILENO, "\n", 1);
    (void)ret;
    _exit(3);
}

static void mt_usage(const char *program, const char *description)
{
    printf("%s: %s\n"
           "  -m SIZE   largest message in bytes\n"
           "  -s LIST   message sizes, separated by commas\n"
           "  -i COUNT  repetitions\n"
           "  -t SEC    time limit of each test\n"
           "  -S SEED   of pseudo-random choices\n",
           program, description);
}

static size_t mt_parse_size(const char *text)
{
    char  *end;
    size_t value = strtoull(text, &end, 0);

    switch (*end) {
    case 'k':
        return value << 10;
    case 'm':
        return value << 20;
    default:
        return value;
    }
}

static void mt_set_sizes(const char *list)
{
    const char *p;
    size_t      max_count = 1;

    mt.num_sizes = 0;
    if (list == NULL) {
        mt_default_sizes();
        return;
    }
    for (p = list; *p != '\0'; ++p) {
        max_count += *p == ',';
    }
    mt.sizes = mt_alloc(max_count * sizeof(*mt.sizes));
    for (p = list; p != NULL; p = strchr(p, ',')) {
        p += *p == ',';
        mt_add_size(mt_parse_size(p));
    }
}

void mt_start(int *argc, char ***argv, int thread_level, const char *description,
              mt_state_t defaults)
{
    const char *sizes = NULL;
    int         option, provided;

    mt.max_size = defaults.max_size ? defaults.max_size : DEFAULT_MAX;
    mt.iters    = defaults.iters ? defaults.iters : DEFAULT_ITERS;
    mt.timeout  = defaults.timeout ? defaults.timeout : DEFAULT_TIMEOUT;
    mt.seed     = 1;

    signal(SIGALRM, mt_watchdog);
    test_alarm(mt.timeout);
    MPI_Init_thread(argc, argv, thread_level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &mt.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mt.size);
    MPI_Comm_dup(MPI_COMM_WORLD, &mt.control);

    while ((option = getopt(*argc, *argv, "m:s:i:t:S:h")) != -1) {
        switch (option) {
        case 'm':
            mt.max_size = mt_parse_size(optarg);
            break;
        case 's':
            sizes = optarg;
            break;
        case 'i':
            mt.iters = atoi(optarg);
            break;
        case 't':
            mt.timeout = (unsigned)atoi(optarg);
            break;
        case 'S':
            mt.seed = strtoull(optarg, NULL, 0);
            break;
        default:
            if (mt.rank == 0) {
                mt_usage((*argv)[0], description);
            }
            MPI_Finalize();
            exit((option == 'h') ? 0 : 2);
        }
    }
    mt_set_sizes(sizes);

    if (mt.rank == 0) {
        setvbuf(stdout, NULL, _IOLBF, 0);
        printf("TAP version 13\n# %s, %d ranks\n", description, mt.size);
        if (provided < thread_level) {
            printf("# thread level %d is not provided\n", thread_level);
        }
    }
}

int mt_finish(void)
{
    mt_current = "MPI_Finalize";
    test_alarm(mt.timeout);
    if (mt.rank == 0) {
        printf("1..%d\n", mt_num_tests);
    }
    free(mt.sizes);
    MPI_Comm_free(&mt.control);
    MPI_Finalize();
    return mt_num_failed ? 1 : 0;
}

void mt_run(const char *name, int min_ranks, mt_func_t func)
{
    double start = MPI_Wtime();
    int    total = 0;

    if (mt.size < min_ranks) {
        mt_skip(name, "needs more ranks");
        return;
    }

    mt_current = name;
    mt_errors  = 0;
    test_alarm(mt.timeout);
    func();
    MPI_Allreduce(&mt_errors, &total, 1, MPI_INT, MPI_SUM, mt.control);

    ++mt_num_tests;
    mt_num_failed += total != 0;
    if (mt.rank == 0) {
        printf("%sok %d - %s\n", total ? "not " : "", mt_num_tests, name);
        if (total) {
            printf("# %d checks failed\n", total);
        }
        printf("# %.2f s\n", MPI_Wtime() - start);
    }
}

void mt_skip(const char *name, const char *reason)
{
    ++mt_num_tests;
    if (mt.rank == 0) {
        printf("ok %d - %s # SKIP %s\n", mt_num_tests, name, reason);
    }
}

void mt_fail(const char *file, int line, const char *fmt, ...)
{
    char    message[512];
    va_list ap;

    if (__atomic_add_fetch(&mt_errors, 1, __ATOMIC_RELAXED) > MAX_PRINTED) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    fprintf(stderr, "# rank %d, %s, %s:%d: %s\n", mt.rank, mt_current, file, line, message);
}

bool mt_failed(void)
{
    return __atomic_load_n(&mt_errors, __ATOMIC_RELAXED) != 0;
}

void *mt_alloc(size_t length)
{
    void *ptr = malloc(length ? length : 1);

    if (ptr == NULL) {
        fprintf(stderr, "# out of memory: %zu bytes\n", length);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return ptr;
}

mt_buf_t mt_buf_alloc(size_t length, unsigned shift)
{
    mt_buf_t buf;

    buf.base   = mt_alloc(length + shift + 2 * GUARD_SIZE);
    buf.data   = buf.base + GUARD_SIZE + shift;
    buf.length = length;
    memset(buf.data - GUARD_SIZE, GUARD_BYTE, GUARD_SIZE);
    memset(buf.data + length, GUARD_BYTE, GUARD_SIZE);
    return buf;
}

void mt_buf_free(mt_buf_t *buf)
{
    free(buf->base);
    buf->base = NULL;
}

bool mt_verify(const void *data, size_t length, uint64_t key, const char *what)
{
    size_t offset = data_difference(data, length, key);

    if (offset != length) {
        mt_fail(__FILE__, __LINE__, "%s: wrong data at byte %zu of %zu", what, offset, length);
    }
    return offset == length;
}

bool mt_buf_verify(const mt_buf_t *buf, uint64_t key, const char *what)
{
    int i;

    for (i = 0; i < GUARD_SIZE; ++i) {
        if ((buf->data[buf->length + i] != GUARD_BYTE) ||
            (buf->data[i - GUARD_SIZE] != GUARD_BYTE)) {
            mt_fail(__FILE__, __LINE__, "%s: written outside a buffer of %zu bytes", what,
                    buf->length);
            return false;
        }
    }
    return mt_verify(buf->data, buf->length, key, what);
}

mt_window_t mt_window_open(mt_window_kind_t kind, size_t size, MPI_Info info)
{
    mt_window_t window = {.own = NULL, .addresses = NULL};
    MPI_Aint    address;

    if (kind == MT_ALLOCATED) {
        MPI_Win_allocate((MPI_Aint)size, 1, info, MPI_COMM_WORLD, &window.base, &window.win);
    } else {
        window.own = window.base = mt_alloc(size);
    }
    if (kind == MT_CREATED) {
        MPI_Win_create(window.base, (MPI_Aint)size, 1, info, MPI_COMM_WORLD, &window.win);
    } else if (kind == MT_DYNAMIC) {
        MPI_Win_create_dynamic(info, MPI_COMM_WORLD, &window.win);
        MPI_Win_attach(window.win, window.base, (MPI_Aint)size);
        MPI_Get_address(window.base, &address);
        window.addresses = mt_alloc((size_t)mt.size * sizeof(*window.addresses));
        MPI_Allgather(&address, 1, MPI_AINT, window.addresses, 1, MPI_AINT, MPI_COMM_WORLD);
    }
    memset(window.base, 0, size);
    MPI_Barrier(MPI_COMM_WORLD);
    return window;
}

void mt_window_close(mt_window_t *window)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (window->addresses != NULL) {
        MPI_Win_detach(window->win, window->base);
    }
    MPI_Win_free(&window->win);
    free(window->addresses);
    free(window->own);
}

MPI_Aint mt_window_at(const mt_window_t *window, int target, size_t offset)
{
    return (window->addresses == NULL) ? (MPI_Aint)offset :
                                         MPI_Aint_add(window->addresses[target], (MPI_Aint)offset);
}

uint64_t mt_key(int src, int dst, int tag, uint64_t seq)
{
    uint64_t state = ((uint64_t)src << 48) ^ ((uint64_t)dst << 32) ^ ((uint64_t)tag << 20) ^ seq;

    return random_next(&state);
}

void mt_check_status(MPI_Status *status, int source, int tag, size_t length)
{
    int count;

    MPI_Get_count(status, MPI_BYTE, &count);
    MT_CHECK(status->MPI_SOURCE == source, "source %d, expected %d", status->MPI_SOURCE, source);
    MT_CHECK(status->MPI_TAG == tag, "tag %d, expected %d", status->MPI_TAG, tag);
    MT_CHECK((size_t)count == length, "length %d, expected %zu", count, length);
}

int mt_pair_peer(void)
{
    int peer = mt.rank ^ 1;

    return (peer < mt.size) ? peer : MPI_PROC_NULL;
}

void mt_relax(void)
{
    sched_yield();
}
