/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_fop_latency: time of one MPI_Fetch_and_op of a 64-bit word at rank 1 and its synchronization.
 * MPI only. */
#include "bench_rma.h"

static const bench_spec_t spec = {
    BENCH_LATENCY_OF(sizeof(uint64_t), sizeof(uint64_t)),
    .name      = "osu_fop_latency",
    .title     = "OSU MPI_Fetch_and_op latency Test",
    .options   = BENCH_OPT_CHECK | BENCH_OPT_RMA,
    .max_ranks = 2,
};

static void access_sum(bench_t *b, bench_rma_t *r)
{
    MPI_Fetch_and_op(bench_slot(&r->local, 0), bench_slot(&r->local, 1), MPI_UINT64_T,
                     BENCH_RMA_TARGET, bench_rma_displacement(r, 0), MPI_SUM, r->win);
    (void)b;
}

int main(int argc, char **argv)
{
    bench_rma_ops_t ops = {access_sum, bench_rma_prepare_sum, bench_rma_check_fetched};

    return bench_rma_main(argc, argv, &spec, &ops, 2);
}
