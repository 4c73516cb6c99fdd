/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_put_latency: time of one MPI_Put to rank 1 and its synchronization. MPI only. */
#include "bench_rma.h"

static const bench_spec_t spec = {
    BENCH_LATENCY,
    .name      = "osu_put_latency",
    .title     = "OSU MPI_Put Latency Test",
    .options   = BENCH_OPT_SIZE | BENCH_OPT_CHECK | BENCH_OPT_RMA,
    .max_ranks = 2,
};

static void access_put(bench_t *b, bench_rma_t *r)
{
    int size = (int)b->msg_size;

    MPI_Put(bench_slot(&r->local, 0), size, MPI_CHAR, BENCH_RMA_TARGET,
            bench_rma_displacement(r, 0), size, MPI_CHAR, r->win);
}

int main(int argc, char **argv)
{
    bench_rma_ops_t ops = {access_put, bench_rma_prepare_put, bench_rma_check_put};

    return bench_rma_main(argc, argv, &spec, &ops, 1);
}
