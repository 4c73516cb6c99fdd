/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions of GPU memory that is freed: they reach nothing new, and the memory is free soon, though
 * another process had mapped it. Runs over the runtime that ANGARA_TEST_GPU names, real or
 * stand-in.
 */
#include "regions.h"

#include <cmocka.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define SIZE 100000ul

enum { OLD = 1, NEW, PUT }; /* keys of data */

/* Where allocations have no ids nobody can tell one from the next. */
static int has_ids(const region_t *region)
{
    angara_mem_t mem;

    CHECK_OK(angara_mem_query(region->addr, &mem));
    return mem.id != 0;
}

/* ---- freed between two operations ------------------------------------------------------------ */

/* The region is the own end. */
static void run_freed_here(conf_t *t)
{
    unsigned place = *(const unsigned *)t->arg, other = 1 - t->rank;
    region_t mine, target;
    uint64_t keys[2];

    gpu_start();
    conf_open(t);
    CHECK(region_open(t, &target, PLACE_HEAP, 0, SIZE, ANGARA_ACCESS_ALL));
    conf_exchange(t, &target.key, keys, sizeof(target.key));
    CHECK(region_open(t, &mine, place, 0, SIZE, ANGARA_ACCESS_ALL));
    if (!has_ids(&mine)) {
        rank_skip("allocations have no ids");
    }
    for (int is_put = 0; is_put < 2; ++is_put) {
        region_fill(&mine, 0, SIZE, OLD);
        CHECK_OK(put_get(t, other, 1, &mine, 0, keys[other], 0, SIZE));
        CHECK(!angara_mr_is_stale(mine.mr));
        if (region_replace(&mine)) {
            region_fill(&mine, 0, SIZE, NEW);
        } else {
            mine.base = NULL;
        }
        CHECK(angara_mr_is_stale(mine.mr));
        CHECK(angara_mr_part_is_stale(mine.mr, mine.addr + SIZE / 2, 10));
        CHECK_STATUS(put_get(t, other, is_put, &mine, 5, keys[other], 5, SIZE / 2),
                     ANGARA_ERR_BOUNDS);
        region_deregister(&mine);
        if (mine.base != NULL) {
            region_check(&mine, 0, SIZE, NEW);
            region_free(&mine);
        }
        conf_barrier(t);
        region_check(&target, 0, SIZE, OLD);
        conf_barrier(t); /* the other one's next put may bring its bytes in any order */
        CHECK(region_open(t, &mine, place, 0, SIZE, ANGARA_ACCESS_ALL));
    }
    region_close(&mine);
    conf_barrier(t);
    region_close(&target);
    conf_close(t);
}

typedef struct {
    unsigned place;
    int      is_warm; /* the peer has mapped it before */
    unsigned here;    /* the place of the peer's end */
} far_case_t;

/* Rank 0 goes on using the key until that faults. What rank 1 has there now it never sees. */
static void use_old_key(conf_t *t, const region_t *mine, uint64_t key)
{
    double          end    = now_seconds() + RANK_TIMEOUT;
    angara_status_t status = ANGARA_OK;
    char           *bytes  = malloc(SIZE);

    for (unsigned i = 0; status == ANGARA_OK; ++i) {
        region_fill(mine, 0, SIZE, PUT);
        status = put_get(t, 1, (int)(i % 2), mine, 0, key, 0, SIZE);
        if (status == ANGARA_OK && i % 2 == 0) {
            region_read(mine, 0, bytes, SIZE);
            CHECK(data_difference(bytes, SIZE, NEW) < 8);
        }
        CHECK(now_seconds() < end);
    }
    CHECK_STATUS(status, ANGARA_ERR_BOUNDS);
    free(bytes);
}

/* The region is the other end; its owner has other memory at its address by then. */
static void run_freed_there(conf_t *t)
{
    const far_case_t *c = t->arg;
    region_t          mine, again;
    angara_mr_h       stale;
    uint64_t          keys[2][2] = {{0}}, own[2] = {0};

    setenv("STANDIN_LATE", "1", 1);
    gpu_start();
    if (!is_standin && gpu == &device_cuda && c->place == DEVICE_PLAIN && !c->is_warm) {
        rank_skip("CUDA's handles name addresses: see docs/gpu.md");
    }
    conf_open(t);
    CHECK(region_open(t, &mine, t->rank == 0 ? c->here : c->place, 0, SIZE, ANGARA_ACCESS_ALL));
    if (t->rank == 1 ? !has_ids(&mine) : gpu == &device_rocm && c->place != DEVICE_PLAIN) {
        rank_skip("allocations have no ids");
    }
    stale  = mine.mr;
    own[0] = mine.key;
    if (t->rank == 1) {
        region_fill(&mine, 0, SIZE, OLD);
    }
    conf_exchange(t, own, keys, sizeof(own));
    if (t->rank == 0 && c->is_warm) {
        CHECK_OK(put_get(t, 1, 0, &mine, 0, keys[1][0], 0, SIZE));
        region_check(&mine, 0, SIZE, OLD);
    }
    conf_barrier(t);
    if (t->rank == 1) { /* the new memory has a region, too */
        if (!region_replace(&mine)) {
            CHECK(region_open(t, &again, c->place, 0, SIZE, ANGARA_ACCESS_ALL));
        } else {
            again = mine;
            CHECK_OK(angara_mr_register(t->dom, again.addr, SIZE, ANGARA_ACCESS_ALL, &again.mr));
            again.key = angara_mr_key(again.mr);
        }
        region_fill(&again, 0, SIZE, NEW);
        own[1] = again.key;
        CHECK(angara_mr_is_stale(stale) && !angara_mr_is_stale(again.mr));
    }
    conf_exchange(t, own, keys, sizeof(own));
    if (t->rank == 0) {
        use_old_key(t, &mine, keys[1][0]);
        CHECK_OK(put_get(t, 1, 0, &mine, 0, keys[1][1], 0, SIZE));
        region_check(&mine, 0, SIZE, NEW);
    }
    conf_barrier(t);
    if (t->rank == 1) {
        region_check(&again, 0, SIZE, NEW);
        CHECK_OK(angara_mr_deregister(stale));
        region_close(&again);
    } else {
        region_close(&mine);
    }
    conf_close(t);
}

static void test_freed(void **state)
{
    static const unsigned   here[]  = {DEVICE_PLAIN, DEVICE_POOL, DEVICE_MAPPED};
    static const far_case_t there[] = {{DEVICE_PLAIN, 1, PLACE_HEAP},
                                       {DEVICE_PLAIN, 0, DEVICE_PLAIN},
                                       {DEVICE_PLAIN, 1, DEVICE_PLAIN},
                                       {DEVICE_POOL, 1, PLACE_HEAP},
                                       {DEVICE_MAPPED, 1, PLACE_HEAP}};
    int                     is_rocm = gpu == &device_rocm;

    (void)state;
    for (unsigned i = 0; i < (is_rocm ? 1 : 3); ++i) {
        conf_run(2, run_freed_here, &here[i]);
    }
    for (unsigned i = 0; i < (is_rocm ? 3 : 5); ++i) {
        conf_run(2, run_freed_there, &there[i]);
    }
}

/* An address that was the host's, or nobody's, and is a GPU's now. */
static void run_becomes_gpu(conf_t *t)
{
    region_t    region;
    angara_mr_h mr;

    gpu_start();
    conf_open(t);
    CHECK(region_open(t, &region, DEVICE_PLAIN, 0, SIZE, ANGARA_ACCESS_ALL));
    region_deregister(&region);
    gpu->free(region.base, region.place);
    CHECK_OK(angara_mr_register(t->dom, region.addr, SIZE, ANGARA_ACCESS_ALL, &mr));
    CHECK(!angara_mr_is_stale(mr));
    region.base = gpu->alloc(0, SIZE + 16, DEVICE_PLAIN);
    if (region.base <= region.addr && region.addr - region.base < 16) {
        CHECK(angara_mr_is_stale(mr));
    } else {
        CHECK(!is_standin);
    }
    CHECK_OK(angara_mr_deregister(mr));
    gpu->free(region.base, DEVICE_PLAIN);
    conf_close(t);
}

static void test_becomes_gpu(void **state)
{
    (void)state;
    conf_run(1, run_becomes_gpu, NULL);
}

/* ---- freed memory is free -------------------------------------------------------------------- */

#define LARGE (64 * MB) /* so that its bytes are seen to come back */

typedef enum { FREED, WITHDRAWN, CLOSED, DISCONNECTED } way_t;

static const way_t ways[] = {FREED, WITHDRAWN, CLOSED, DISCONNECTED};

/* Rank 0 has mapped memory of rank 1's, and only makes progress while that one ends it in some way.
 */
static void run_unmapped(conf_t *t)
{
    const way_t way = *(const way_t *)t->arg;
    region_t    region;
    uint64_t    keys[2];
    size_t      available = 0;
    region_t    target    = {0};

    gpu_start();
    conf_open(t);
    CHECK(region_open(t, &region, PLACE_HEAP, 0, SIZE, ANGARA_ACCESS_ALL));
    conf_barrier(t);
    available = gpu->available(0);
    conf_barrier(t);
    if (t->rank == 1) {
        CHECK(region_open(t, &target, DEVICE_PLAIN, 0, LARGE, ANGARA_ACCESS_ALL));
    }
    conf_exchange(t, &target.key, keys, sizeof(target.key));
    if (t->rank == 0) { /* a put: without loopback only that maps */
        CHECK_OK(put_get(t, 1, 1, &region, 0, keys[1], 0, SIZE));
        CHECK(!is_standin || standin.mappings() == 1);
    }
    conf_barrier(t);
    if (way == DISCONNECTED && t->rank == 0) {
        angara_peer_disconnect(t->peer[1]);
        t->peer[1] = NULL;
        CHECK(!is_standin || standin.mappings() == 0);
    }
    conf_barrier(t);
    if (t->rank == 1) {
        if (way != FREED) {
            region_deregister(&target);
        }
        if (way == CLOSED) { /* the peer's pair stays */
            region_close(&region);
            conf_close_alone(t);
        }
        region_free(&target);
    }
    await_unmapped(way == CLOSED && t->rank == 1 ? NULL : t->pe, available);
    conf_barrier(t);
    if (t->rank == 1 && way == FREED) {
        region_deregister(&target);
    }
    if (t->rank == 0 || way != CLOSED) {
        region_close(&region);
        conf_close_alone(t);
    }
}

static void test_unmapped(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); ++i) {
        conf_run(2, run_unmapped, &ways[i]);
    }
}

/* ---- while a kernel runs --------------------------------------------------------------------- */

#define LOOKS 10 /* of the helpers, while the kernel runs */

/*
 * Rank 0's GPU is full with a kernel that waits, as if for a message, when rank 1 frees what rank 0
 * has mapped, or rank 0 disconnects: unmapping now would wait for the kernel.
 */
static void run_kernel(conf_t *t)
{
    const way_t way    = *(const way_t *)t->arg;
    region_t    region = {0}, target = {0}, other = {0};
    uint64_t    mine[2] = {0}, keys[2][2];
    double      end;

    setenv("ANGARA_PEER_CHECK", "20", 1);
    gpu_start();
    if (gpu->kernel_start == NULL) {
        rank_skip("no kernels of this runtime");
    }
    conf_open(t);
    CHECK(region_open(t, &region, PLACE_HEAP, 0, SIZE, ANGARA_ACCESS_ALL));
    if (t->rank == 1) {
        CHECK(region_open(t, &target, DEVICE_PLAIN, 0, SIZE, ANGARA_ACCESS_ALL));
        CHECK(region_open(t, &other, DEVICE_PLAIN, 0, LARGE, ANGARA_ACCESS_ALL));
        mine[0] = target.key;
        mine[1] = other.key;
    }
    conf_exchange(t, mine, keys, sizeof(mine));
    if (t->rank == 0) {
        CHECK_OK(put_get(t, 1, 1, &region, 0, keys[1][0], 0, SIZE));
        gpu->kernel_start(0);
    }
    conf_barrier(t);
    if (t->rank == 1 && way == FREED) {
        gpu->free(target.base, target.place);
    }
    conf_barrier(t);
    end = now_seconds() + LOOKS * 0.02;
    for (uint64_t i = 0; t->rank == 0 && now_seconds() < end; ++i) {
        region_fill(&region, 0, SIZE, i); /* also through a new mapping */
        CHECK_OK(put_get(t, 1, 1, &region, 0, keys[1][1], 0, SIZE));
        region_fill(&region, 0, SIZE, i + 1);
        CHECK_OK(put_get(t, 1, 0, &region, 0, keys[1][1], 0, SIZE));
        region_check(&region, 0, SIZE, i);
    }
    if (t->rank == 0 && way == DISCONNECTED) {
        angara_peer_disconnect(t->peer[1]);
        t->peer[1] = NULL;
    }
    if (t->rank == 0) {
        CHECK(!is_standin || standin.mappings() == 2);
        gpu->kernel_end();
        while (is_standin && standin.mappings() != (way == FREED)) {
            angara_pe_progress(t->pe);
        }
    }
    conf_barrier(t);
    if (t->rank == 1) {
        region_deregister(&target);
        if (way != FREED) {
            region_free(&target);
        }
        region_close(&other);
    }
    region_close(&region);
    conf_close(t);
}

static void test_kernel(void **state)
{
    static const way_t kernel_ways[] = {FREED, DISCONNECTED};

    (void)state;
    for (unsigned i = 0; i < sizeof(kernel_ways) / sizeof(kernel_ways[0]); ++i) {
        conf_run(2, run_kernel, &kernel_ways[i]);
    }
}

/* ---- many ------------------------------------------------------------------------------------ */

#define MANY       1100 /* more than the table of shared allocations has places */
#define SMALL      4096ul
#define MAPPED_MIN 1000 /* of them, by a stand-in */

static region_t many[MANY];
static uint64_t many_keys[2][MANY];

/* The stand-in has a descriptor for each allocation. */
static void raise_limit(void)
{
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_cur < MANY + 100) {
        rank_skip("too few files may be open");
    }
}

static void run_many_at_once(conf_t *t)
{
    region_t region, last = {0};
    uint64_t mine[MANY] = {0}, keys[2], before;

    raise_limit();
    gpu_start();
    conf_open(t);
    CHECK(region_open(t, &region, PLACE_HEAP, 0, SMALL, ANGARA_ACCESS_ALL));
    for (unsigned i = 0; t->rank == 1 && i < MANY; ++i) {
        CHECK(region_open(t, &many[i], DEVICE_PLAIN, 0, SMALL, ANGARA_ACCESS_ALL));
        mine[i] = many[i].key;
    }
    conf_exchange(t, mine, many_keys, sizeof(mine));
    for (unsigned i = 0; t->rank == 0 && i < MANY; ++i) {
        region_fill(&region, 0, SMALL, i);
        CHECK_OK(put_get(t, 1, 1, &region, 0, many_keys[1][i], 0, SMALL));
    }
    if (t->rank == 0 && is_standin) {
        CHECK(standin.mappings() >= MAPPED_MIN);
    }
    conf_barrier(t);
    for (unsigned i = 0; t->rank == 1 && i < MANY; ++i) {
        region_check(&many[i], 0, SMALL, i);
        region_deregister(&many[i]);
    }
    /* The table is full of memory without a region: one of it makes room. */
    if (t->rank == 1) {
        CHECK(region_open(t, &last, DEVICE_PLAIN, 0, SMALL, ANGARA_ACCESS_ALL));
    }
    conf_exchange(t, &last.key, keys, sizeof(last.key));
    if (t->rank == 0) {
        before = services(t);
        CHECK_OK(put_get(t, 1, 1, &region, 0, keys[1], 0, SMALL));
        CHECK(!is_standin || !conf_env_on("ANGARA_SOFT_LOOPBACK") || services(t) == before);
    }
    conf_barrier(t);
    if (t->rank == 1) {
        region_check(&last, 0, SMALL, MANY - 1);
        region_close(&last);
    }
    for (unsigned i = 0; t->rank == 1 && i < MANY; ++i) {
        region_free(&many[i]);
    }
    await_unmapped(t->pe, 0);
    region_close(&region);
    conf_close(t);
}

static void run_many_in_turn(conf_t *t)
{
    const unsigned rounds = conf_rounds(MANY);
    region_t       region, target = {0};
    uint64_t       keys[2];

    gpu_start();
    conf_open(t);
    CHECK(region_open(t, &region, PLACE_HEAP, 0, SMALL, ANGARA_ACCESS_ALL));
    for (unsigned i = 0; i < rounds; ++i) {
        if (t->rank == 1) {
            CHECK(region_open(t, &target, DEVICE_PLAIN, 0, SMALL, ANGARA_ACCESS_ALL));
        }
        conf_exchange(t, &target.key, keys, sizeof(target.key));
        if (t->rank == 0) {
            region_fill(&region, 0, SMALL, i);
            CHECK_OK(put_get(t, 1, 1, &region, 0, keys[1], 0, SMALL));
        }
        conf_barrier(t);
        if (t->rank == 1) {
            region_check(&target, 0, SMALL, i);
            region_close(&target);
        }
    }
    await_unmapped(t->pe, 0);
    region_close(&region);
    conf_close(t);
}

static void test_many(void **state)
{
    (void)state;
    conf_run(2, run_many_at_once, NULL);
    conf_run(2, run_many_in_turn, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_freed),  TEST(test_becomes_gpu), TEST(test_unmapped),
        TEST(test_kernel), TEST(test_many),
    };
    int result = regions_begin();

    return result >= 0 ? result : cmocka_run_group_tests(tests, NULL, NULL);
}
