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
#define PUSH   "cuCtxPushCurrent_v2"

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

static void all_come(conf_t *t)
{
    CHECK_OK(end_of(t, 1));
    region_check(&mine, 0, SIZE, 2);
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
        all_come(t);
        CHECK(standin.calls(SINGLE) - before >= PIECES);
    }
    end(t);
}

/* Nor one by one, from the third on: those are made alone, later. */
static void run_lost(conf_t *t)
{
    begin(t, ANGARA_PE_RELAXED);
    if (t->rank == 0) {
        unsigned long before = standin.calls(BATCH);

        standin.fail_call(BATCH, 0, 801);
        standin.fail_call(SINGLE, 3, 2);
        post_all(t, 0);
        all_come(t);
        CHECK_EQ(standin.calls(BATCH) - before, 1); /* who refuses isn't asked again */
        region_fill(&mine, 0, SIZE, 1);
        post_all(t, 0);
        all_come(t);
    }
    end(t);
}

/* Nobody makes any for a while. */
static void run_all_lost(conf_t *t)
{
    begin(t, ANGARA_PE_RELAXED);
    if (t->rank == 0) {
        standin.hold(1);
        post(t, 0, 0, 0);
        angara_pe_progress(t->pe);
        standin.fail_call(BATCH, 0, 801);
        standin.fail_call(SINGLE, 0, 2);
        for (size_t at = PIECE; at < SIZE; at += PIECE) {
            post(t, 0, at, at);
        }
        angara_pe_progress(t->pe);
        standin.fail_call(SINGLE, 0, 0);
        standin.hold(0);
        all_come(t);
    }
    end(t);
}

/* Where the context can't be had for a moment what is gathered waits. */
static void run_waiting(conf_t *t)
{
    begin(t, ANGARA_PE_RELAXED);
    if (t->rank == 0) {
        post(t, 0, 0, 0); /* mapped from now on */
        CHECK_OK(end_of(t, 1));
        standin.hold(1);
        for (unsigned i = 0; i < 3; ++i) {
            post(t, 0, i * PIECE, i * PIECE);
        }
        standin.fail_call(PUSH, 4, 2); /* a look at the first one, two more, and both together */
        angara_pe_progress(t->pe);
        standin.hold(0);
        CHECK_OK(end_of(t, 1));
    }
    conf_barrier(t);
    if (t->rank == 0) {
        char there[3 * PIECE], right[3 * PIECE];

        region_read(&mine, 0, there, sizeof(there));
        post_all(t, 0);
        CHECK_OK(end_of(t, 1));
        region_read(&mine, 0, right, sizeof(right));
        CHECK(memcmp(there, right, sizeof(right)) == 0);
    }
    end(t);
}

/* For ever: all are given up, and nothing is written later. */
static void run_given_up(conf_t *t)
{
    begin(t, ANGARA_PE_RELAXED);
    if (t->rank == 0) {
        post(t, 0, 0, 0);
        CHECK_OK(end_of(t, 1));
        standin.hold(1);
        post(t, 0, 0, 0);
        post(t, 0, PIECE, PIECE);
        standin.fail_call(PUSH, 3, 2); /* a look, the second one, and then its submission */
        angara_pe_progress(t->pe);
        standin.fail_call(PUSH, 0, 2);
        CHECK_EQ(end_of(t, 1), ANGARA_ERR_SYSTEM);
        standin.fail_call(PUSH, 0, 0);
        standin.hold(0);
        region_fill(&mine, PIECE, PIECE, 7);
        post(t, 0, 2 * PIECE, 2 * PIECE); /* in the same stream */
        CHECK_OK(end_of(t, 1));
        region_check(&mine, PIECE, PIECE, 7);
    }
    end(t);
}

static void test_refused(void **state)
{
    (void)state;
    conf_run(2, run_refused, NULL);
    conf_run(2, run_lost, NULL);
    conf_run(2, run_all_lost, NULL);
}

static void test_no_context(void **state)
{
    (void)state;
    conf_run(2, run_waiting, NULL);
    conf_run(2, run_given_up, NULL);
}

/* Memory that one GPU can't reach is copied by the other one: also if it comes behind others. */
static void run_out_of_reach(conf_t *t)
{
    angara_pe_params_t params = {
        .size = sizeof(params), .window_size = CONF_WINDOW, .flags = *(const unsigned *)t->arg};
    region_t src, plain, mapped;

    gpu_start();
    if (!is_standin || num_gpus < 2) {
        rank_skip("there is one GPU only");
    }
    conf_open_params(t, &params);
    CHECK(region_open(t, &src, DEVICE_PLAIN, 0, 3 * PIECE, ANGARA_ACCESS_ALL));
    CHECK(region_open(t, &plain, DEVICE_PLAIN, 1, 3 * PIECE, ANGARA_ACCESS_ALL));
    CHECK(region_open(t, &mapped, DEVICE_MAPPED, 1, PIECE, ANGARA_ACCESS_ALL));
    region_fill(&src, 2 * PIECE, PIECE, 5);
    standin.hold(1);
    for (unsigned i = 0; i < 3; ++i) {
        CHECK_OK(angara_offload_put(t->peer[0], src.mr, src.addr + i * PIECE,
                                    i < 2 ? plain.key : mapped.key, i < 2 ? i * PIECE : 0, PIECE));
    }
    for (unsigned i = 0; i < 10; ++i) {
        angara_pe_progress(t->pe);
    }
    standin.hold(0);
    CHECK_OK(end_of(t, 0));
    region_check(&mapped, 0, PIECE, 5);
    region_close(&mapped);
    region_close(&plain);
    region_close(&src);
    conf_close(t);
}

static void test_out_of_reach(void **state)
{
    static const unsigned flags[] = {0, ANGARA_PE_RELAXED};

    (void)state;
    for (unsigned i = 0; i < sizeof(flags) / sizeof(flags[0]); ++i) {
        conf_run(1, run_out_of_reach, &flags[i]);
    }
}

/* What wouldn't be gathered isn't kept waiting for others: a program may compute now. */
static void run_computing(conf_t *t)
{
    unsigned    pieces = 6;
    angara_mr_h host;
    char       *bytes = NULL;
    size_t      size  = pieces * PIECE;

    begin(t, ANGARA_PE_RELAXED);
    if (t->rank == 0) {
        bytes = gpu->alloc(0, size, DEVICE_PINNED);
        CHECK(bytes != NULL);
        CHECK_OK(angara_mr_register(t->dom, bytes, size, ANGARA_ACCESS_ALL, &host));
        standin.hold(1);
        for (unsigned i = 0; i < pieces; ++i) {
            CHECK_OK(
                angara_offload_put(t->peer[1], host, bytes + i * PIECE, keys[1], i * PIECE, PIECE));
            angara_pe_progress(t->pe);
        }
        standin.hold(0);
        for (unsigned i = 0; standin.pending() != 0; ++i) {
            CHECK(i < RANK_TIMEOUT * 1000u);
            sleep_ms(1);
        }
    }
    conf_barrier(t);
    if (t->rank == 1) {
        char last = 1;

        region_read(&mine, size - 1, &last, 1);
        CHECK_EQ(last, 0);
    }
    conf_barrier(t);
    if (t->rank == 0) {
        CHECK_OK(end_of(t, 1));
        CHECK_OK(angara_mr_deregister(host));
        gpu->free(bytes, DEVICE_PINNED);
    }
    end(t);
}

static void test_computing(void **state)
{
    (void)state;
    conf_run(2, run_computing, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_gather),     TEST(test_order),        TEST(test_refused),
        TEST(test_no_context), TEST(test_out_of_reach), TEST(test_computing),
    };
    int result = regions_begin();

    return result >= 0 ? result : cmocka_run_group_tests(tests, NULL, NULL);
}
