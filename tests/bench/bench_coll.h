/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collective pattern: each call is timed by itself, between barriers, and every rank's mean
 * enters the average, minimum and maximum that are printed. A benchmark gives the call and, for
 * validation, how its data are prepared and checked.
 *
 * The non-blocking form is the same source, compiled with BENCH_NONBLOCKING. It measures call and
 * wait, then the same with a computation of that length between them, and prints means over the
 * ranks.
 */
#ifndef ANGARA_BENCH_COLL_H
#define ANGARA_BENCH_COLL_H

#include "bench_common.h"

#ifdef BENCH_NONBLOCKING
#define BENCH_FORM(_blocking, _nonblocking)      _nonblocking
#define BENCH_CALL(_blocking, _nonblocking, ...) _nonblocking(__VA_ARGS__, &c->request)
#else
#define BENCH_FORM(_blocking, _nonblocking)      _blocking
#define BENCH_CALL(_blocking, _nonblocking, ...) _blocking(__VA_ARGS__)
#endif

/* What they have in common: part of a bench_spec_t. */
#define BENCH_COLLECTIVE(_granularity, _more_options)                                             \
    .options = BENCH_FORM(BENCH_OPT_FULL, BENCH_OPT_OVERLAP) | BENCH_OPT_SIZE | BENCH_OPT_CHECK | \
               (_more_options),                                                                   \
    .column   = BENCH_FORM(NULL, "Overall(us)"),                                                  \
    .more     = {BENCH_FORM(NULL, "Compute(us)"), "Pure Comm.(us)", "Overlap(%)"},                \
    .max_size = 1ul << 20, .granularity = (_granularity), .iterations = 1000, .skip = 100,        \
    .iterations_large = 100, .skip_large = 10, .min_ranks = 2

typedef struct bench_coll {
    size_t      send_factor; /* send buffer, in messages */
    size_t      recv_factor;
    char       *send;
    char       *recv;
    MPI_Request request; /* of the non-blocking form */
} bench_coll_t;

typedef struct bench_coll_ops {
    void (*call)(bench_t *b, bench_coll_t *c);
    void (*prepare)(bench_t *b, bench_coll_t *c, int iteration);
    void (*check)(bench_t *b, bench_coll_t *c, int iteration);
    void (*resize)(bench_t *b); /* before the first call of a size; may be NULL */
} bench_coll_ops_t;

/* Runs all sizes and ends MPI; the program's exit status. Factors in @a c set, buffers not. */
int bench_coll_main(bench_t *b, bench_coll_t *c, const bench_coll_ops_t *ops);

/* Data of the reductions: floats that are small integers, so that any order sums them exactly. */
void bench_coll_fill_floats(bench_t *b, bench_coll_t *c, int iteration);
void bench_coll_check_floats(bench_t *b, bench_coll_t *c, int iteration);

/* The same of @a count elements from @a first on, which are all that this rank has received. */
void bench_coll_check_part(bench_t *b, bench_coll_t *c, int iteration, size_t first, size_t count);

#endif
