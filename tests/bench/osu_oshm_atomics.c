/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_oshm_atomics: time of one fetching atomic operation on a word of PE 1. */
#include "bench_shmem.h"

static const bench_spec_t spec = {
    .name        = "osu_oshm_atomics",
    .title       = "OSU OpenSHMEM Atomic Operation Rate Test",
    .rows        = "Operation",
    .column      = "Million ops/s",
    .more        = {"Latency (us)"},
    .options     = BENCH_OPT_CHECK,
    .max_size    = sizeof(long long),
    .granularity = sizeof(long long),
    .iterations  = 10000,
    .skip        = 100,
    .min_ranks   = 2,
    .max_ranks   = 2,
};

static long long *word(const bench_slots_t *slots, int i)
{
    return (void *)bench_slot(slots, i);
}

static void access_fadd(bench_t *b, bench_rma_t *r)
{
    *word(&r->local, BENCH_RMA_FETCHED) = shmem_longlong_atomic_fetch_add(
        word(&r->exposed, 0), *word(&r->local, BENCH_RMA_SENT), BENCH_RMA_TARGET);
    (void)b;
}

static void access_cswap(bench_t *b, bench_rma_t *r)
{
    *word(&r->local, BENCH_RMA_FETCHED) = shmem_longlong_atomic_compare_swap(
        word(&r->exposed, 0), *word(&r->local, BENCH_RMA_EXPECTED),
        *word(&r->local, BENCH_RMA_SENT), BENCH_RMA_TARGET);
    (void)b;
}

int main(int argc, char **argv)
{
    bench_shmem_op_t ops[] = {
        {"shmem_longlong_fadd", {access_fadd, bench_rma_prepare_sum, bench_rma_check_fetched}},
        {"shmem_longlong_cswap", {access_cswap, bench_rma_prepare_swap, bench_rma_check_swap}},
        {0}};

    return bench_shmem_main(argc, argv, &spec, ops, BENCH_RMA_SLOTS);
}
