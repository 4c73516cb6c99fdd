/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions of GPU memory: copies that the other process's GPU makes for this one, between its
 * private host memory and GPU memory here. Runs over the runtime that ANGARA_TEST_GPU names, real
 * or stand-in.
 */
#define _GNU_SOURCE
#include "regions.h"

#include <cmocka.h>

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG_SIZE (9 * MB) /* more than is done at once */

typedef enum { SERVED, STOPPED, NO_GPU, GONE, HOLE } direct_t;

/*
 * Was the other process's GPU asked so often since, and has it answered? On a busy machine it may
 * answer too late, then the copy takes another way, and some time must pass until it is asked
 * again.
 * @return 0: try again.
 */
static int was_direct(conf_t *t, const angara_counters_t *before, unsigned count, double end)
{
    angara_counters_t after;

    angara_pe_counters(t->pe, &after);
    if (getenv("ANGARA_CHAOS") != NULL ||
        (after.services - before->services == count && after.gpu_staged == before->gpu_staged)) {
        return 1;
    }
    CHECK(now_seconds() < end);
    sleep_ms(50);
    return 0;
}

/*
 * Rank 0's GPU memory and rank 1's host memory: rank 1's GPU copies. Not if its process is stopped
 * or uses no GPU; memory that may not be used any more is a fault, and no crash.
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
        /* What is unmapped may be mapped anew by anybody, such as the runtime. */
        CHECK(mmap(host, LONG_SIZE, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
              host);
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
        while (way == SERVED && !was_direct(t, &before, 4, end)) {
            angara_pe_counters(t->pe, &before);
            CHECK_OK(put_get(t, 1, 0, &region, 0, keys[1], 0, LONG_SIZE));
            region_check(&region, 0, LONG_SIZE, 8);
            CHECK_OK(put_get(t, 1, 1, &region, 0, keys[1], 0, LONG_SIZE));
        }
        angara_pe_counters(t->pe, &after);
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

#define PARTS 20u

typedef struct {
    unsigned place; /* of the bytes there */
    size_t   part;
} several_t;

static void several_post(conf_t *t, int is_put, const region_t *region, uint64_t key, size_t part)
{
    for (size_t i = 0; i < PARTS; ++i) {
        put_get_post(t, 1, is_put, region, i * part, key, i * part, part);
    }
}

static void several_fill(const region_t *region, size_t part, uint64_t first)
{
    for (size_t i = 0; i < PARTS; ++i) {
        region_fill(region, i * part, part, first + i);
    }
}

static void several_check(const region_t *region, size_t part, uint64_t first, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        region_check(region, i * part, part, first + i);
    }
}

/*
 * Many at once between rank 0's GPU memory and rank 1's host memory, whose GPU is asked for several
 * of them together. They are performed in order, up to one that reaches beyond the memory there.
 */
static void run_direct_several(conf_t *t)
{
    const several_t *c      = t->arg;
    const double     end    = now_seconds() + RANK_TIMEOUT / 2.;
    const size_t     bad    = 6;
    const uint64_t   length = PARTS * c->part;
    region_t         region;
    uint64_t         keys[2], before, asked;
    int              is_asked;

    gpu_start();
    conf_open(t);
    if (!region_open(t, &region, t->rank == 0 ? DEVICE_PLAIN : c->place, 0, length,
                     ANGARA_ACCESS_ALL)) {
        rank_skip("there is no such memory");
    }
    conf_exchange(t, &region.key, keys, sizeof(region.key));
    if (t->rank == 0) {
        do { /* on a busy machine some go another way */
            several_fill(&region, c->part, 1);
            before = services(t);
            several_post(t, 1, &region, keys[1], c->part);
            CHECK_OK(end_of(t, 1));
            region_fill(&region, 0, length, 0);
            several_post(t, 0, &region, keys[1], c->part);
            CHECK_OK(end_of(t, 1));
            asked    = services(t) - before;
            is_asked = getenv("ANGARA_CHAOS") != NULL || (asked != 0 && asked < PARTS * 3 / 2);
            several_check(&region, c->part, 1, PARTS);
            CHECK(is_asked || now_seconds() < end);
            sleep_ms(is_asked ? 0 : 50);
        } while (!is_asked);

        /* all to the same place */
        for (size_t i = 0; i < PARTS; ++i) {
            put_get_post(t, 1, 1, &region, i * c->part, keys[1], 0, c->part);
        }
        put_get_post(t, 1, 0, &region, 0, keys[1], 0, c->part);
        CHECK_OK(end_of(t, 1));
        region_check(&region, 0, c->part, PARTS);

        several_fill(&region, c->part, 101);
        for (size_t i = 0; i < PARTS; ++i) {
            put_get_post(t, 1, 1, &region, i * c->part, keys[1],
                         i == bad ? length - c->part + 1 : i * c->part, c->part);
        }
        CHECK_STATUS(end_of(t, 1), ANGARA_ERR_BOUNDS);
        several_post(t, 0, &region, keys[1], c->part);
        CHECK_OK(end_of(t, 1));
        several_check(&region, c->part, 101, bad);
        for (size_t i = bad; i < PARTS; ++i) { /* as they were */
            region_check(&region, i * c->part, c->part, 1 + i);
        }
    }
    conf_barrier(t);
    region_close(&region);
    conf_close(t);
}

/*
 * Rank 0 gets pageable memory of rank 1's, whose GPU takes its time: of what it is asked for
 * together one copy begins before the other one has ended.
 */
static void run_direct_together(conf_t *t)
{
    const uint64_t part = 4 * MB, length = 8 * part;
    region_t       region;
    const double   end = now_seconds() + RANK_TIMEOUT / 2.;
    uint64_t       keys[2], word = 0, seen = 0; /* which attempt, 0: the last one is over */
    unsigned       most = 0, now;
    int            is_asked;

    angara_counters_t  before, after;
    volatile uint64_t *attempt;

    if (t->rank == 1) {
        setenv("STANDIN_DELAY_US", "20000", 1);
    }
    gpu_start();
    if (!is_standin || getenv("ANGARA_CHAOS") != NULL) {
        rank_skip("copies don't take their time");
    }
    conf_open(t);
    attempt = (volatile uint64_t *)(void *)t->window;
    CHECK(region_open(t, &region, t->rank == 0 ? DEVICE_PLAIN : PLACE_HEAP, 0, length,
                      ANGARA_ACCESS_ALL));
    region_fill(&region, 0, length, 1 + t->rank);
    conf_exchange(t, &region.key, keys, sizeof(region.key));
    if (t->rank == 0) {
        do { /* on a busy machine some go another way */
            region_fill(&region, 0, length, 1);
            word++;
            POST_OK(t, angara_put(t->peer[1], 0, &word, sizeof(word)));
            angara_pe_counters(t->pe, &before);
            for (uint64_t at = 0; at < length; at += part) {
                put_get_post(t, 1, 0, &region, at, keys[1], at, part);
            }
            CHECK_OK(end_of(t, 1));
            region_check(&region, 0, length, 2);
            angara_pe_counters(t->pe, &after);
            is_asked = after.gpu_staged == before.gpu_staged && after.services != before.services;
            CHECK(is_asked || now_seconds() < end);
            sleep_ms(is_asked ? 0 : 50);
        } while (!is_asked);
        word = 0;
        POST_OK(t, angara_put(t->peer[1], 0, &word, sizeof(word)));
    }
    while (t->rank == 1 && ((word = *attempt) != 0 || seen == 0)) { /* the helper serves */
        now  = standin.pending();
        most = word != seen || now > most ? now : most;
        seen = word;
        sleep_ms(1);
    }
    CHECK(t->rank == 0 || most >= 2);
    conf_barrier(t);
    region_close(&region);
    conf_close(t);
}

#define GUARD_INSTALL 102 /* madvise(), since Linux 6.13 */

typedef enum { REPLACED, READ_ONLY, GUARDED, TRUNCATED } change_t;

typedef struct {
    change_t change; /* of the last page */
    int      is_put;
    int      is_file; /* the memory is a file's */
    int      closes;  /* the program closes the files by which its memory is looked at */
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

/* How many descriptors are of a file whose name ends so. Unless `file` is -1, they become that. */
static unsigned num_of(const char *end, int file)
{
    DIR           *dir   = opendir("/proc/self/fd");
    unsigned       count = 0;
    struct dirent *entry;
    char           target[PATH_MAX];
    ssize_t        length;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        length = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
        if (length < (ssize_t)strlen(end) ||
            strncmp(target + length - strlen(end), end, strlen(end)) != 0) {
            continue;
        }
        count++;
        CHECK(file == -1 || dup2(file, atoi(entry->d_name)) >= 0);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

/* Rank 1's GPU has copied from and to its host memory, when the program takes a page of it away. */
static void run_direct_changed(conf_t *t)
{
    const changed_t  *c      = t->arg;
    const size_t      page   = (size_t)sysconf(_SC_PAGESIZE);
    region_t          region = {0};
    angara_mr_h       mr     = NULL;
    const double      end    = now_seconds() + RANK_TIMEOUT / 2.;
    angara_counters_t before;
    uint64_t          keys[2], key = 0;
    char             *host = NULL;
    int               file = -1;
    /* What memory is looked at by; there are no direct copies with chaos. */
    const unsigned wanted    = access("/proc/self/pagemap", R_OK) == 0;
    const int      is_direct = getenv("ANGARA_CHAOS") == NULL;

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
            angara_pe_counters(t->pe, &before);
            CHECK_OK(put_get(t, 1, 0, &region, 0, keys[1], 0, MB));
            region_check(&region, 0, MB, 7);
            CHECK_OK(put_get(t, 1, 1, &region, 0, keys[1], 0, MB));
        } while (!was_direct(t, &before, 2, end));
    }
    conf_barrier(t);
    if (t->rank == 1 && is_direct) {
        CHECK_EQ(num_of("/maps", c->closes ? file : -1), wanted);
        CHECK_EQ(num_of("/pagemap", c->closes ? file : -1), wanted);
    }
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
    CHECK_EQ(num_of("/maps", -1), 0);
    CHECK_EQ(num_of("/pagemap", -1), 0);
    if (t->rank == 1 && is_direct && c->closes) { /* what has their numbers now is the program's */
        CHECK_EQ(num_of("/memfd:host (deleted)", -1), 2 * wanted);
    }
}

/*
 * Rank 1's host memory is known to its GPU, and a page of it has become read-only: the GPU writes
 * it all the same, and nobody else touches it.
 */
static void run_direct_known(conf_t *t)
{
    const uintptr_t   page   = (uintptr_t)sysconf(_SC_PAGESIZE);
    const size_t      length = 8 * MB + page; /* its end is a piece by itself */
    const double      end    = now_seconds() + RANK_TIMEOUT / 2.;
    angara_counters_t before;
    region_t          region;
    uint64_t          keys[2];
    angara_status_t   status;
    char             *last;

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
        do {
            angara_pe_counters(t->pe, &before);
            status = put_get(t, 1, 1, &region, 0, keys[1], 0, length);
        } while (!was_direct(t, &before, 2, end));
        CHECK_OK(status);
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

static void test_direct_several(void **state)
{
    static const several_t cases[] = {
        {DEVICE_PINNED, MB}, {DEVICE_PINNED, 3 * MB}, {PLACE_HEAP, MB}, {PLACE_HEAP, 3 * MB}};

    (void)state;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        conf_run(2, run_direct_several, &cases[i]);
    }
}

static void test_direct_together(void **state)
{
    (void)state;
    conf_run(2, run_direct_together, NULL);
}

static void test_direct_changed(void **state)
{
    static const changed_t cases[] = {
        {REPLACED, 0, 0, 0},  {REPLACED, 1, 1, 0},  {READ_ONLY, 1, 0, 0},
        {READ_ONLY, 1, 1, 0}, {GUARDED, 0, 0, 0},   {GUARDED, 1, 0, 0},
        {TRUNCATED, 0, 1, 0}, {TRUNCATED, 1, 1, 0}, {REPLACED, 1, 0, 1},
    };

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
        TEST(test_direct),          TEST(test_direct_changed), TEST(test_direct_held),
        TEST(test_direct_known),    TEST(test_busy_forks),     TEST(test_direct_several),
        TEST(test_direct_together),
    };
    int result = regions_begin();

    return result >= 0 ? result : cmocka_run_group_tests(tests, NULL, NULL);
}
