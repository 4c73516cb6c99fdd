/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided benchmarks: a window of rank 1 that rank 0 accesses, created and synchronized as the
 * options -w and -s say. The access itself is a callback.
 *
 * Rank 0 measures `access, synchronize` rounds. With flush the epoch stays open over all of them;
 * lock, lock_all and pscw open one per round; one fence ends a round and starts the next. Meanwhile
 * the target waits in MPI, or computes (-t; passive synchronization only). With a window (-W) the
 * access makes so many messages, and bandwidth is printed instead of latency.
 */
#ifndef ANGARA_BENCH_RMA_H
#define ANGARA_BENCH_RMA_H

#include "bench_common.h"

#define BENCH_RMA_TARGET 1

/* What rank 0's first messages are for atomics. */
enum { BENCH_RMA_SENT, BENCH_RMA_FETCHED, BENCH_RMA_EXPECTED, BENCH_RMA_SLOTS };

typedef struct bench_rma {
    MPI_Win       win;
    MPI_Group     peer;    /* the other rank, for pscw */
    MPI_Aint      target;  /* displacement of rank 1's memory */
    bench_slots_t exposed; /* memory in the window */
    bench_slots_t local;   /* rank 0's buffers */
    void         *created; /* memory to free after the window */
} bench_rma_t;

typedef struct bench_rma_ops {
    void (*access)(bench_t *b, bench_rma_t *r);                 /* rank 0 */
    void (*prepare)(bench_t *b, bench_rma_t *r, int iteration); /* both ranks */
    void (*check)(bench_t *b, bench_rma_t *r, int iteration);   /* both ranks */
} bench_rma_ops_t;

/* The benchmark: @a slots messages have a place of their own. The program's exit status. */
int bench_rma_main(int argc, char **argv, const bench_spec_t *spec, const bench_rma_ops_t *ops,
                   int slots);

/* Data of puts: all messages of a window go from rank 0 to the target. */
void bench_rma_prepare_put(bench_t *b, bench_rma_t *r, int iteration);
void bench_rma_check_put(bench_t *b, bench_rma_t *r, int iteration);

/* Data of gets: the other way. */
void bench_rma_prepare_get(bench_t *b, bench_rma_t *r, int iteration);
void bench_rma_check_get(bench_t *b, bench_rma_t *r, int iteration);

/*
 * Data of sums of 64-bit words: rank 0's first message is added to the target's first one. Where
 * what was there before is fetched, it comes to rank 0's second one, which fetched() checks, too.
 */
void bench_rma_prepare_sum(bench_t *b, bench_rma_t *r, int iteration);
void bench_rma_check_sum(bench_t *b, bench_rma_t *r, int iteration);
void bench_rma_check_fetched(bench_t *b, bench_rma_t *r, int iteration);

/* Data of compare-and-swap; every other round expects another word than there is. */
void bench_rma_prepare_swap(bench_t *b, bench_rma_t *r, int iteration);
void bench_rma_check_swap(bench_t *b, bench_rma_t *r, int iteration);

/* Of a rank's first message in a round of sums and swaps. */
static inline uint64_t bench_rma_seed(int rank, int iteration)
{
    return bench_seed(iteration, rank, 1 - rank, 0);
}

static inline MPI_Aint bench_rma_displacement(const bench_rma_t *r, int i)
{
    return r->target + (MPI_Aint)((size_t)(i % r->exposed.count) * r->exposed.stride);
}

#endif
