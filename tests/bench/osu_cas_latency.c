/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_cas_latency: time of one MPI_Compare_and_swap of a 64-bit word at rank 1 and its
 * synchronization. MPI only. */
#include "bench_rma.h"

static const bench_spec_t spec = {
    BENCH_LATENCY_OF(sizeof(uint64_t), sizeof(uint64_t)),
    .name      = "osu_cas_latency",
    .title     = "OSU MPI_Compare_and_swap latency Test",
    .options   = BENCH_OPT_CHECK | BENCH_OPT_RMA,
    .max_ranks = 2,
};

static void access_cas(bench_t *b, bench_rma_t *r)
{
    MPI_Compare_and_swap(bench_slot(&r->local, BENCH_RMA_SENT),
                         bench_slot(&r->local, BENCH_RMA_EXPECTED),
                         bench_slot(&r->local, BENCH_RMA_FETCHED), MPI_UINT64_T, BENCH_RMA_TARGET,
                         bench_rma_displacement(r, 0), r->win);
    (void)b;
}

int main(int argc, char **argv)
{
    bench_rma_ops_t ops = {access_cas, bench_rma_prepare_swap, bench_rma_check_swap};

    return bench_rma_main(argc, argv, &spec, &ops, BENCH_RMA_SLOTS);
}
