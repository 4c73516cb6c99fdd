/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_put_bw: bandwidth of windows of MPI_Put to rank 1, each window synchronized. MPI only. */
#include "bench_rma.h"

static const bench_spec_t spec = {
    BENCH_BANDWIDTH,
    .name      = "osu_put_bw",
    .title     = "OSU MPI_Put Bandwidth Test",
    .column    = "Bandwidth (MB/s)",
    .options   = BENCH_OPT_SIZE | BENCH_OPT_CHECK | BENCH_OPT_WINDOW | BENCH_OPT_RMA,
    .max_ranks = 2,
};

static void access_put(bench_t *b, bench_rma_t *r)
{
    int size = (int)b->msg_size;
    int i;

    for (i = 0; i < b->opts.window; i++) {
        MPI_Put(bench_slot(&r->local, i), size, MPI_CHAR, BENCH_RMA_TARGET,
                bench_rma_displacement(r, i), size, MPI_CHAR, r->win);
    }
}

int main(int argc, char **argv)
{
    bench_rma_ops_t ops = {access_put, bench_rma_prepare_put, bench_rma_check_put};

    return bench_rma_main(argc, argv, &spec, &ops, 1);
}
