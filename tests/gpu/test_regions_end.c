/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions of GPU memory when a process dies, forks or closes: the others go on, and nothing is
 * left. Runs over the runtime that ANGARA_TEST_GPU names, real or stand-in.
 */
#include "regions.h"

#include <cmocka.h>

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (4 * MB)

/* ---- a peer is killed ------------------------------------------------------------------------ */

typedef struct {
    unsigned here, there; /* places of both ranks' own ends, and of the other's */
    unsigned delay_ms;
} kill_case_t;

typedef struct {
    conf_t  *t;
    region_t here, there; /* the own end; what the other one reaches */
    uint64_t keys[2];
    unsigned posted;
} traffic_t;

static void traffic_open(traffic_t *f, conf_t *t, unsigned here, unsigned there)
{
    f->t      = t;
    f->posted = 0;
    regions_open(t, here, there, SIZE, &f->here, &f->there, f->keys);
}

/* Post the next of an endless row of puts and gets, of pieces and beyond, and make progress. */
static angara_status_t traffic_turn(traffic_t *f)
{
    conf_t         *t      = f->t;
    unsigned        other  = 1 - t->rank;
    size_t          length = f->posted % 5 == 4 ? SIZE : 50000;
    angara_status_t status;

    if (f->posted % 2 == 0) {
        status = angara_offload_put(t->peer[other], f->here.mr, f->here.addr, f->keys[other], 0,
                                    length);
    } else {
        status = angara_offload_get(t->peer[other], f->here.mr, f->here.addr, f->keys[other], 0,
                                    length);
    }
    f->posted += status == ANGARA_OK;
    angara_pe_progress(t->pe);
    return status == ANGARA_ERR_NO_RESOURCE ? ANGARA_OK : status;
}

static void traffic_close(traffic_t *f)
{
    region_close(&f->here);
    region_close(&f->there);
}

/* Rank 0 kills rank 1, both in the middle of transfers to and from the other. */
static void run_killed(conf_t *t)
{
    const kill_case_t *c     = t->arg;
    conf_timer_t       timer = conf_timer();
    traffic_t          traffic;
    unsigned           before, turns = 0;
    double             end;

    gpu_start();
    before = descriptors();
    conf_open(t);
    traffic_open(&traffic, t, c->here, c->there);
    conf_barrier(t);
    if (t->rank == 1) {
        for (;;) {
            CHECK_OK(traffic_turn(&traffic));
            conf_relax(t, &timer, __FILE__, __LINE__, "the end by SIGKILL");
        }
    }
    end = now_seconds() + c->delay_ms / 1000.0;
    while (now_seconds() < end || turns < 10) {
        CHECK_OK(traffic_turn(&traffic));
        ++turns;
    }
    kill(t->pid[1], SIGKILL);
    timer = conf_timer();
    while (angara_peer_status(t->peer[1]) != ANGARA_ERR_PEER_DEAD) {
        angara_status_t status = traffic_turn(&traffic);

        CHECK(status == ANGARA_OK || status == ANGARA_ERR_PEER_DEAD || status == ANGARA_ERR_PAIR);
        if (angara_peer_status(t->peer[1]) == ANGARA_ERR_PAIR) {
            status = angara_peer_reset(t->peer[1]);
            CHECK(status == ANGARA_OK || status == ANGARA_ERR_PEER_DEAD);
        }
        conf_relax(t, &timer, __FILE__, __LINE__, "the peer's death is noticed");
    }
    await_unmapped(t->pe, 0);
    traffic_close(&traffic);
    conf_close_alone(t);
    if (is_standin) { /* drivers open some as they like */
        CHECK(descriptors() <= before + 1);
        CHECK_EQ(standin.mappings(), 0);
        CHECK(gpu == &device_rocm || standin.allocations() == 0); /* ours for ROCm stay */
    }
    CHECK(map_lines("memfd:angara") <= 1);
}

static void test_killed(void **state)
{
    static const kill_case_t cases[] = {
        {PLACE_HEAP, DEVICE_PLAIN, 20},  {DEVICE_PLAIN, PLACE_HEAP, 35},
        {DEVICE_PLAIN, DEVICE_PLAIN, 1}, {PLACE_HEAP, DEVICE_POOL, 50},
        {DEVICE_PLAIN, DEVICE_POOL, 7},  {DEVICE_POOL, PLACE_SHARED, 20}};
    kill_case_t c;

    (void)state;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        c = cases[i];
        if (gpu == &device_rocm) { /* it has no pools */
            c.here  = c.here == DEVICE_POOL ? DEVICE_PLAIN : c.here;
            c.there = c.there == DEVICE_POOL ? DEVICE_PLAIN : c.there;
        }
        conf_run_victims(2, run_killed, &c, 1u << 1);
    }
}

/* The owner of what is mapped is killed while nothing happens. */
static void run_killed_idle(conf_t *t)
{
    traffic_t traffic;
    size_t    available;

    gpu_start();
    conf_open(t);
    available = gpu->available(0);
    conf_barrier(t);
    traffic_open(&traffic, t, PLACE_HEAP, DEVICE_PLAIN);
    CHECK_OK(put_get(t, 1 - t->rank, 1, &traffic.here, 0, traffic.keys[1 - t->rank], 0, SIZE));
    CHECK(!is_standin || standin.mappings() == 1);
    conf_barrier(t);
    if (t->rank == 1) {
        kill(getpid(), SIGKILL);
    }
    await_unmapped(t->pe, available);
    traffic_close(&traffic);
    conf_close_alone(t);
}

static void test_killed_idle(void **state)
{
    (void)state;
    conf_run_victims(2, run_killed_idle, NULL, 1u << 1);
}

/* ---- a fork ---------------------------------------------------------------------------------- */

/* Both ranks fork while transfers are under way; the children end as programs do. */
static void run_fork(conf_t *t)
{
    unsigned  other = 1 - t->rank;
    traffic_t traffic;
    pid_t     pids[4];
    int       status;

    gpu_start();
    conf_open(t);
    traffic_open(&traffic, t, PLACE_HEAP, DEVICE_PLAIN);
    for (unsigned i = 0; i < 4; ++i) {
        for (unsigned turn = 0; turn < 20; ++turn) {
            CHECK_OK(traffic_turn(&traffic));
        }
        if (CONF_SANITIZED) { /* its allocator's locks stay taken in the child */
            CHECK_OK(end_of(t, other));
            conf_barrier(t);
        }
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            CHECK(angara_mr_is_stale(traffic.there.mr));
            CHECK_STATUS(angara_offload_put(t->peer[other], traffic.here.mr, traffic.here.addr,
                                            traffic.keys[other], 0, 8),
                         ANGARA_ERR_FORKED);
            CHECK_EQ(map_lines("memfd:angara"), 0);
            exit(0);
        }
    }
    for (unsigned i = 0; i < 4; ++i) {
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK_EQ(status, 0);
    }
    CHECK_OK(end_of(t, other));
    conf_barrier(t);
    for (uint64_t key = 1; key < 4; ++key) {
        region_fill(&traffic.here, 0, SIZE, key + t->rank);
        CHECK_OK(put_get(t, other, 1, &traffic.here, 0, traffic.keys[other], 0, SIZE));
        conf_barrier(t);
        region_check(&traffic.there, 0, SIZE, key + other);
        conf_barrier(t);
    }
    traffic_close(&traffic);
    conf_close(t);
}

static void *register_thread(void *arg)
{
    conf_t  *t = arg;
    region_t region;

    CHECK(region_open(t, &region, DEVICE_PLAIN, 0, SIZE, ANGARA_ACCESS_ALL));
    region_close(&region);
    return NULL;
}

/*
 * The process's first allocation is being shared, which may take long, when it forks. The child
 * opens and closes the library for host memory.
 */
static void run_fork_sharing(conf_t *t)
{
    const char *call = gpu == &device_cuda ? "cuIpcGetMemHandle" : "hsa_amd_ipc_memory_create";
    angara_pe_params_t params = {.size = sizeof(params), .window_size = CONF_WINDOW};
    pthread_t          thread;
    conf_t             own = {0};
    pid_t              pid;
    int                status;

    gpu_start();
    if (!is_standin) {
        rank_skip("its calls can't be held up");
    }
    conf_open(t);
    standin.stall(call);
    CHECK(pthread_create(&thread, NULL, register_thread, t) == 0);
    while (standin.calls(call) == 0) {
        sleep_ms(1);
    }
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm((unsigned)RANK_TIMEOUT);
        CHECK_OK(angara_open(conf_device(), &own.dom));
        CHECK_OK(angara_pe_create(own.dom, &params, &own.pe));
        angara_pe_destroy(own.pe);
        CHECK_OK(angara_close(own.dom));
        _exit(0); /* what the other thread had begun is a leak here */
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
    standin.stall(NULL);
    pthread_join(thread, NULL);
    conf_close(t);
}

static void test_fork(void **state)
{
    (void)state;
    conf_run(2, run_fork, NULL);
    conf_run(1, run_fork_sharing, NULL);
}

/* ---- a context ends -------------------------------------------------------------------------- */

/* The GPU's primary context ends, and there is another one at its address. */
static void context_replace(void)
{
    int (*reset)(int device);
    int (*retain)(void **context, int device);
    void *library = device_library(gpu), *context;

    *(void **)&reset  = dlsym(library, "cuDevicePrimaryCtxReset_v2");
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    CHECK_EQ(reset(0), 0);
    CHECK_EQ(retain(&context, 0), 0);
}

/* What it had mapped of the peer's memory is mapped again. */
static void run_context(conf_t *t)
{
    unsigned      other = 1 - t->rank;
    traffic_t     traffic;
    unsigned long mapped = 0, asked[4] = {0};

    setenv("ANGARA_PEER_CHECK", "60000", 1); /* nobody else asks */
    gpu_start();
    if (!is_standin || gpu != &device_cuda) {
        rank_skip("only the stand-in has a new context at the address of the old one");
    }
    conf_open(t);
    traffic_open(&traffic, t, DEVICE_PLAIN, DEVICE_PLAIN);
    region_fill(&traffic.there, 0, SIZE, t->rank);
    conf_barrier(t);
    for (unsigned i = 0; i < 4; ++i) {
        asked[i] = standin.calls("cuPointerGetAttributes");
        if (t->rank == 0) {
            CHECK_OK(put_get(t, other, 0, &traffic.here, 0, traffic.keys[other], 0, SIZE));
            asked[i] = standin.calls("cuPointerGetAttributes") - asked[i];
            region_check(&traffic.here, 0, SIZE, other);
        }
        if (t->rank == 0 && i == 2) {
            mapped = standin.calls("cuIpcOpenMemHandle_v2"); /* 0: it may not be */
            region_deregister(&traffic.here);
            context_replace();
            CHECK(region_open(t, &traffic.here, DEVICE_PLAIN, 0, SIZE, ANGARA_ACCESS_ALL));
        }
    }
    /* Once the near end vouches for the mapping the driver isn't asked about that. */
    CHECK(mapped == 0 || getenv("ANGARA_CHAOS") != NULL || asked[2] == asked[1] - 1);
    CHECK(mapped == 0 || standin.calls("cuIpcOpenMemHandle_v2") > mapped);
    conf_barrier(t);
    traffic_close(&traffic);
    conf_close(t);
}

static void test_context(void **state)
{
    (void)state;
    conf_run(2, run_context, NULL);
}

/* ---- all of it again and again --------------------------------------------------------------- */

/* What was opened is closed, but for the table of what is shared. */
static void run_again(conf_t *t)
{
    const unsigned places[] = {DEVICE_PLAIN, PLACE_HEAP, DEVICE_PLAIN};
    unsigned       other    = 1 - t->rank, first, count;
    traffic_t      traffic;

    gpu_start();
    first = descriptors();
    for (unsigned i = 0; i < 6; ++i) {
        conf_open(t);
        traffic_open(&traffic, t, places[i % 3], DEVICE_PLAIN);
        region_fill(&traffic.here, 0, SIZE, i + t->rank);
        CHECK_OK(put_get(t, other, 1, &traffic.here, 0, traffic.keys[other], 0, SIZE));
        conf_barrier(t);
        region_check(&traffic.there, 0, SIZE, i + other);
        traffic_close(&traffic);
        conf_close(t);
        count = descriptors();
        if (is_standin) {
            CHECK_EQ(count, first + 1);
            CHECK_EQ(standin.mappings(), 0);
        }
        first = is_standin ? first : i == 0 ? count : first;
        CHECK(count <= first + 1);
        CHECK_EQ(map_lines("memfd:angara"), 1);
    }
}

static void test_again(void **state)
{
    (void)state;
    conf_run(2, run_again, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_killed),  TEST(test_killed_idle), TEST(test_fork),
        TEST(test_context), TEST(test_again),
    };
    int result = regions_begin();

    return result >= 0 ? result : cmocka_run_group_tests(tests, NULL, NULL);
}
