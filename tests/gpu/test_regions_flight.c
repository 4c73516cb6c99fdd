/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies of a GPU that fly: what they use stays until they have landed, and nobody waits for an
 * initiator that computes. On stand-in runtimes, which tell when a copy ends.
 */
#include "regions.h"

#include <cmocka.h>
#include <unistd.h>

#define SIZE  100000ul
#define TURNS 300u /* of 2 ms: the peer looks after its mappings many times meanwhile */

typedef struct {
    unsigned place;  /* of the initiator's end */
    unsigned access; /* that others have to it */
    unsigned to;     /* rank that has the other end */
} flight_t;

static void begin(conf_t *t)
{
    setenv("ANGARA_PEER_CHECK", "20", 1);
    gpu_start();
    if (!is_standin) {
        rank_skip("nobody tells when a copy has ended");
    }
    conf_open(t);
}

/* Rank 0 posts, and makes no call any more; the owner of the other end can free it. */
static void run_computing(conf_t *t)
{
    const flight_t *f      = t->arg;
    region_t        mine   = {0};
    region_t        target = {0};
    uint64_t        keys[RANK_MAX];

    begin(t);
    if (t->rank == f->to) {
        CHECK(region_open(t, &target, PLACE_SHARED, 0, SIZE, ANGARA_ACCESS_ALL));
    }
    conf_exchange(t, &target.key, keys, sizeof(target.key));
    if (t->rank == 0) {
        if (!region_open(t, &mine, f->place, 0, SIZE, f->access)) {
            rank_skip("this runtime has no such memory");
        }
        CHECK_OK(angara_offload_put(t->peer[f->to], mine.mr, mine.addr, keys[f->to], 0, SIZE));
        for (unsigned i = 0; standin.pending() != 0; ++i) {
            CHECK(i < RANK_TIMEOUT * 1000u);
            sleep_ms(1);
        }
    }
    conf_barrier(t);
    if (t->rank == f->to) {
        CHECK_OK(angara_mem_free(target.mr));
    }
    conf_barrier(t);
    _exit(0); /* what is left of the pair isn't what is tested */
}

static void test_computing(void **state)
{
    static const flight_t flights[] = {
        {DEVICE_PLAIN, ANGARA_ACCESS_ALL, 1},
        {DEVICE_PLAIN, 0, 1}, /* nothing is shared */
        {DEVICE_PLAIN, 0, 0}, /* to the own PE */
    };

    (void)state;
    for (unsigned i = 0; i < sizeof(flights) / sizeof(flights[0]); ++i) {
        conf_run(2, run_computing, &flights[i]);
    }
}

/* Rank 1 frees shared memory that rank 0 has mapped and a copy flies to: it stays mapped. */
static void run_mapping(conf_t *t)
{
    region_t mine   = {0};
    region_t target = {0};
    uint64_t keys[RANK_MAX];

    begin(t);
    if (gpu != &device_rocm) {
        rank_skip("the stand-in for CUDA copies to host memory within the call");
    }
    if (t->rank == 1) {
        CHECK(region_open(t, &target, PLACE_SHARED, 0, SIZE, ANGARA_ACCESS_ALL));
    }
    conf_exchange(t, &target.key, keys, sizeof(target.key));
    if (t->rank == 0) {
        CHECK(region_open(t, &mine, DEVICE_PLAIN, 0, SIZE, ANGARA_ACCESS_ALL));
        standin.hold(1);
        CHECK_OK(angara_offload_put(t->peer[1], mine.mr, mine.addr, keys[1], 0, SIZE));
        CHECK(standin.pending() != 0);
    }
    conf_barrier(t);
    if (t->rank == 1) {
        CHECK_OK(angara_mem_free(target.mr));
    } else {
        for (unsigned i = 0; i < TURNS; ++i) {
            angara_pe_progress(t->pe);
            sleep_ms(2);
        }
        CHECK(map_lines("memfd:angara-memory") != 0);
        standin.hold(0);
        conf_marker(t, 1);
    }
    conf_barrier(t);
    _exit(0);
}

static void test_mapping(void **state)
{
    (void)state;
    conf_run(2, run_mapping, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_computing),
        TEST(test_mapping),
    };
    int result = regions_begin();

    return result >= 0 ? result : cmocka_run_group_tests(tests, NULL, NULL);
}
