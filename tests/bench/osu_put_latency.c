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

static void prepare(bench_t *b, bench_rma_t *r, int iteration)
{
    uint64_t seed = bench_seed(iteration, 0, BENCH_RMA_TARGET, 0);

    if (b->rank == BENCH_RMA_TARGET) {
        bench_poison(b, bench_slot(&r->exposed, 0), b->msg_size, seed);
    } else {
        bench_fill(b, bench_slot(&r->local, 0), b->msg_size, seed);
    }
}

static void check(bench_t *b, bench_rma_t *r, int iteration)
{
    if (b->rank == BENCH_RMA_TARGET) {
        bench_check(b, bench_slot(&r->exposed, 0), b->msg_size,
                    bench_seed(iteration, 0, BENCH_RMA_TARGET, 0), iteration);
    }
}

int main(int argc, char **argv)
{
    bench_rma_ops_t ops = {access_put, prepare, check};
    bench_rma_t     rma;
    bench_t         b;

    bench_init(&b, argc, argv, &spec);
    bench_rma_init(&b, &rma, 1);
    bench_print_header(&b);
    while (bench_next_size(&b)) {
        bench_print_row(&b, bench_rma_run(&b, &rma, &ops) * 1e6 / b.iterations);
    }
    bench_rma_cleanup(&b, &rma);
    return bench_finish(&b);
}
