/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collective pattern: each call is timed by itself, between barriers, and every rank's mean
 * enters the average, minimum and maximum that are printed. A benchmark gives the call and, for
 * validation, how its data are prepared and checked.
 */
#ifndef ANGARA_BENCH_COLL_H
#define ANGARA_BENCH_COLL_H

#include "bench_common.h"

typedef struct bench_coll {
    size_t send_factor; /* send buffer, in messages */
    size_t recv_factor;
    char  *send;
    char  *recv;
} bench_coll_t;

typedef struct bench_coll_ops {
    void (*call)(bench_t *b, bench_coll_t *c);
    void (*prepare)(bench_t *b, bench_coll_t *c, int iteration);
    void (*check)(bench_t *b, bench_coll_t *c, int iteration);
} bench_coll_ops_t;

/* Runs all sizes and ends MPI; the program's exit status. Factors in @a c set, buffers not. */
int bench_coll_main(bench_t *b, bench_coll_t *c, const bench_coll_ops_t *ops);

/* Data of the reductions: floats that are small integers, so that any order sums them exactly. */
void bench_coll_fill_floats(bench_t *b, bench_coll_t *c, int iteration);
void bench_coll_check_floats(bench_t *b, bench_coll_t *c, int iteration);

#endif
