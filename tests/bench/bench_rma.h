/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided benchmarks: a window of rank 1 that rank 0 accesses, created and synchronized as the
 * options -w and -s say. The access itself is a callback.
 *
 * Rank 0 measures `access, synchronize` rounds. With flush the epoch stays open over all of them;
 * lock, lock_all and pscw open one per round; one fence ends a round and starts the next.
 */
#ifndef ANGARA_BENCH_RMA_H
#define ANGARA_BENCH_RMA_H

#include "bench_common.h"

#define BENCH_RMA_TARGET 1

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

/* Creates a window for @a count messages; collective. */
void bench_rma_init(bench_t *b, bench_rma_t *r, int count);
void bench_rma_cleanup(bench_t *b, bench_rma_t *r);

/* Seconds that rank 0 took for the timed iterations. */
double bench_rma_run(bench_t *b, bench_rma_t *r, const bench_rma_ops_t *ops);

static inline MPI_Aint bench_rma_displacement(const bench_rma_t *r, int i)
{
    return r->target + (MPI_Aint)((size_t)(i % r->exposed.count) * r->exposed.stride);
}

#endif
