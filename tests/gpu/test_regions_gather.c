/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies that are given to the GPU several at once, which a PE does whose order of operations
 * doesn't matter: that it does, that others don't, and what becomes of all of them when the driver
 * refuses. On the stand-in for CUDA, which makes the last copy of a batch first.
 */
#include "regions.h"

#include <cmocka.h>

#define PIECE  20000ul
#define PIECES 12u
#define SIZE   (PIECES * PIECE)
#define BATCH  "cuMemcpyBatchAsync"
#define SINGLE "cuMemcpyAsync"

typedef struct {
    unsigned flags;   /* of rank 0's PE */
    int      is_put;  /* of rank 0, else it gets */
    unsigned batches; /* that are expected */
} gather_t;

static region_t mine;
static uint64_t keys[2];

/* Each rank has a region on a GPU of its own. */
static void begin(conf_t *t, unsigned flags)
{
    angara_pe_params_t params = {
        .size = sizeof(params), .window_size = CONF_WINDOW, .flags = t->rank == 0 ? flags : 0};

    gpu_start();
    if (!is_standin || num_gpus < 2) {
        rank_skip("nobody counts the calls of a driver, or there is one GPU only");
    }
    conf_open_params(t, &params);
    CHECK(region_open(t, &mine, DEVICE_PLAIN, t->rank, SIZE, ANGARA_ACCESS_ALL));
    region_fill(&mine, 0, SIZE, 1 + t->rank);
    conf_exchange(t, &mine.key, keys, sizeof(mine.key));
}

static void end(conf_t *t)
{
    conf_barrier(t);
    region_close(&mine);
    conf_close(t);
}

static void post(conf_t *t, int is_put, size_t at, size_t offset)
{
    CHECK_OK(is_put ?
                 angara_offload_put(t->peer[1], mine.mr, mine.addr + at, keys[1], offset, PIECE) :
                 angara_offload_get(t->peer[1], mine.mr, mine.addr + at, keys[1], offset, PIECE));
}

/* All pieces, while no copy ends. */
static void post_all(conf_t *t, int is_put)
{
    standin.hold(1);
    for (size_t at = 0; at < SIZE; at += PIECE) {
        post(t, is_put, at, at);
    }
    for (unsigned i = 0; i < 10; ++i) {
        angara_pe_progress(t->pe);
    }
    standin.hold(0);
}

static void run_gather(conf_t *t)
{
    const gather_t *g = t->arg;

    begin(t, g->flags);
    if (t->rank == 0) {
        unsigned long before = standin.calls(BATCH);

        post_all(t, g->is_put);
        CHECK_EQ(standin.calls(BATCH) - before, g->batches);
        CHECK_OK(end_of(t, 1));
        CHECK_EQ(standin.pending(), 0);
    }
    conf_barrier(t);
    if ((unsigned)g->is_put == t->rank) {
        region_check(&mine, 0, SIZE, 2 - t->rank);
    }
    end(t);
}

static void test_gather(void **state)
{
    /* The first one flies at once, the others as eight and three. */
    static const gather_t gathers[] = {
        {ANGARA_PE_RELAXED, 0, 2}, {ANGARA_PE_RELAXED, 1, 2}, {0, 0, 0}, {0, 1, 0}};

    (void)state;
    for (unsigned i = 0; i < sizeof(gathers) / sizeof(gathers[0]); ++i) {
        conf_run(2, run_gather, &gathers[i]);
    }
}

/* Into one place: the last one counts. */
static void run_order(conf_t *t)
{
    char last[PIECE], there[PIECE];

    begin(t, 0);
    if (t->rank == 0) {
        post_all(t, 0);
        CHECK_OK(end_of(t, 1));
        region_read(&mine, SIZE - PIECE, last, PIECE);
        standin.hold(1);
        for (size_t at = 0; at < SIZE; at += PIECE) {
            post(t, 0, 0, at);
        }
        angara_pe_progress(t->pe);
        standin.hold(0);
        CHECK_OK(end_of(t, 1));
        region_read(&mine, 0, there, PIECE);
        CHECK(memcmp(there, last, PIECE) == 0);
    }
    end(t);
}

static void test_order(void **state)
{
    (void)state;
    conf_run(2, run_order, NULL);
}

/* One by one, if the driver can't do it at once. */
static void run_refused(conf_t *t)
{
    begin(t, ANGARA_PE_RELAXED);
    if (t->rank == 0) {
        unsigned long before = standin.calls(SINGLE);

        standin.fail_call(BATCH, 0, 801);
        post_all(t, 0);
        CHECK_OK(end_of(t, 1));
        CHECK_EQ(standin.calls(SINGLE) - before, PIECES);
        region_check(&mine, 0, SIZE, 2);
    }
    end(t);
}

/* Nor one by one, from the third on: the pair faults, nothing is written later, and goes on. */
static void run_lost(conf_t *t)
{
    begin(t, ANGARA_PE_RELAXED);
    if (t->rank == 0) {
        post(t, 0, 0, 0); /* mapped from now on */
        CHECK_OK(end_of(t, 1));
        region_fill(&mine, 4 * PIECE, PIECE, 7);
        standin.fail_call(BATCH, 0, 801);
        standin.fail_call(SINGLE, 3, 2);
        post_all(t, 0);
        standin.fail_call(BATCH, 0, 0);
        CHECK_EQ(end_of(t, 1), ANGARA_ERR_SYSTEM);
        CHECK_EQ(standin.pending(), 0);
        region_check(&mine, 4 * PIECE, PIECE, 7);
        post_all(t, 0);
        CHECK_OK(end_of(t, 1));
        region_check(&mine, 0, SIZE, 2);
    }
    end(t);
}

static void test_refused(void **state)
{
    (void)state;
    conf_run(2, run_refused, NULL);
    conf_run(2, run_lost, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_gather),
        TEST(test_order),
        TEST(test_refused),
    };
    int result = regions_begin();

    return result >= 0 ? result : cmocka_run_group_tests(tests, NULL, NULL);
}
