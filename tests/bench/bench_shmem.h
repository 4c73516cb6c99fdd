/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * OpenSHMEM benchmarks: PE 0 accesses symmetric memory of PE 1, which waits in a barrier. Options,
 * data and table are those of the one-sided MPI benchmarks, so that the programs are MPI programs,
 * too.
 */
#ifndef ANGARA_BENCH_SHMEM_H
#define ANGARA_BENCH_SHMEM_H

#include "bench_rma.h"

#include <shmem.h>

typedef struct bench_shmem_op {
    const char     *name; /* of its row; NULL: its rows are sizes */
    bench_rma_ops_t ops;
} bench_shmem_op_t;

/*
 * The benchmark of @a ops, behind whose last one is an empty one. Prints the latency of an access
 * and its shmem_quiet(); of an operation with a name the rate, too; with a window (-W) the rate of
 * messages, with one shmem_quiet() behind all. The program's exit status.
 */
int bench_shmem_main(int argc, char **argv, const bench_spec_t *spec, const bench_shmem_op_t *ops,
                     int slots);

#endif
