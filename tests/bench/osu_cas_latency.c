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

enum { SWAP, OLD, EXPECTED, SLOTS };

static void access_cas(bench_t *b, bench_rma_t *r)
{
    MPI_Compare_and_swap(bench_slot(&r->local, SWAP), bench_slot(&r->local, EXPECTED),
                         bench_slot(&r->local, OLD), MPI_UINT64_T, BENCH_RMA_TARGET,
                         bench_rma_displacement(r, 0), r->win);
    (void)b;
}

/* Every other round expects another word than there is, and changes nothing. */
static bool swaps(int iteration)
{
    return iteration % 2 == 0;
}

static void prepare(bench_t *b, bench_rma_t *r, int iteration)
{
    uint64_t before = bench_rma_seed(BENCH_RMA_TARGET, iteration);

    if (b->rank == BENCH_RMA_TARGET) {
        bench_fill(b, bench_slot(&r->exposed, 0), b->msg_size, before);
        return;
    }
    bench_fill(b, bench_slot(&r->local, SWAP), b->msg_size, bench_rma_seed(b->rank, iteration));
    bench_poison(b, bench_slot(&r->local, OLD), b->msg_size, before);
    (swaps(iteration) ? bench_fill : bench_poison)(b, bench_slot(&r->local, EXPECTED), b->msg_size,
                                                   before);
}

static void check(bench_t *b, bench_rma_t *r, int iteration)
{
    uint64_t before = bench_rma_seed(BENCH_RMA_TARGET, iteration);

    if (b->rank != BENCH_RMA_TARGET) {
        bench_check(b, bench_slot(&r->local, OLD), b->msg_size, before, iteration);
    } else {
        bench_check(b, bench_slot(&r->exposed, 0), b->msg_size,
                    swaps(iteration) ? bench_rma_seed(1 - BENCH_RMA_TARGET, iteration) : before,
                    iteration);
    }
}

int main(int argc, char **argv)
{
    bench_rma_ops_t ops = {access_cas, prepare, check};

    return bench_rma_main(argc, argv, &spec, &ops, SLOTS);
}
