/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_acc_latency: time of one MPI_Accumulate of 64-bit words to rank 1 and its synchronization.
 * MPI only. */
#include "bench_rma.h"

static const bench_spec_t spec = {
    BENCH_LATENCY_OF(sizeof(uint64_t), 4ul << 20),
    .name      = "osu_acc_latency",
    .title     = "OSU MPI_Accumulate latency Test",
    .options   = BENCH_OPT_SIZE | BENCH_OPT_CHECK | BENCH_OPT_RMA,
    .max_ranks = 2,
};

static void access_sum(bench_t *b, bench_rma_t *r)
{
    int words = (int)(b->msg_size / sizeof(uint64_t));

    MPI_Accumulate(bench_slot(&r->local, 0), words, MPI_UINT64_T, BENCH_RMA_TARGET,
                   bench_rma_displacement(r, 0), words, MPI_UINT64_T, MPI_SUM, r->win);
}

int main(int argc, char **argv)
{
    bench_rma_ops_t ops = {access_sum, bench_rma_prepare_sum, bench_rma_check_sum};

    return bench_rma_main(argc, argv, &spec, &ops, 2);
}
