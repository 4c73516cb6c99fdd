/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_get_bw: bandwidth of windows of MPI_Get from rank 1, each window synchronized. MPI only. */
#include "bench_rma.h"

static const bench_spec_t spec = {
    BENCH_BANDWIDTH,
    .name      = "osu_get_bw",
    .title     = "OSU MPI_Get Bandwidth Test",
    .column    = "Bandwidth (MB/s)",
    .options   = BENCH_OPT_SIZE | BENCH_OPT_CHECK | BENCH_OPT_WINDOW | BENCH_OPT_RMA,
    .max_ranks = 2,
};

static void access_get(bench_t *b, bench_rma_t *r)
{
    int size = (int)b->msg_size;
    int i;

    for (i = 0; i < b->opts.window; i++) {
        MPI_Get(bench_slot(&r->local, i), size, MPI_CHAR, BENCH_RMA_TARGET,
                bench_rma_displacement(r, i), size, MPI_CHAR, r->win);
    }
}

static void prepare(bench_t *b, bench_rma_t *r, int iteration)
{
    uint64_t seed;
    int      i;

    for (i = 0; i < r->local.count; i++) {
        seed = bench_seed(iteration, BENCH_RMA_TARGET, 0, i);
        if (b->rank == BENCH_RMA_TARGET) {
            bench_fill(b, bench_slot(&r->exposed, i), b->msg_size, seed);
        } else {
            bench_poison(b, bench_slot(&r->local, i), b->msg_size, seed);
        }
    }
}

static void check(bench_t *b, bench_rma_t *r, int iteration)
{
    int i;

    if (b->rank != BENCH_RMA_TARGET) {
        for (i = 0; i < r->local.count; i++) {
            bench_check(b, bench_slot(&r->local, i), b->msg_size,
                        bench_seed(iteration, BENCH_RMA_TARGET, 0, i), iteration);
        }
    }
}

int main(int argc, char **argv)
{
    bench_rma_ops_t ops = {access_get, prepare, check};
    bench_rma_t     rma;
    double          seconds, bytes;
    bench_t         b;

    bench_init(&b, argc, argv, &spec);
    bench_rma_init(&b, &rma, b.opts.window);
    bench_print_header(&b);
    while (bench_next_size(&b)) {
        seconds = bench_rma_run(&b, &rma, &ops);
        bytes   = (double)b.msg_size * b.iterations * b.opts.window;
        bench_print_row(&b, bytes / 1e6 / seconds);
    }
    bench_rma_cleanup(&b, &rma);
    return bench_finish(&b);
}
