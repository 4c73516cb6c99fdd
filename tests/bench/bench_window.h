/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bandwidth pattern: windows of non-blocking messages between two ranks of a pair, in one
 * direction (the receiver answers each window with a short message) or in both. A rank may be in
 * several pairs.
 */
#ifndef ANGARA_BENCH_WINDOW_H
#define ANGARA_BENCH_WINDOW_H

#include "bench_common.h"

typedef struct bench_window {
    int           peer;
    bool          sends;
    bool          receives;
    bench_slots_t send;
    bench_slots_t recv;
    MPI_Request  *requests; /* two windows long */
    int           posted;   /* of them */
} bench_window_t;

/* @a peer is the other rank of the pair; also lowers the sizes to what fits the memory limit. */
void bench_window_init(bench_t *b, bench_window_t *w, int peer, bool sends, bool receives);
void bench_window_cleanup(bench_t *b, bench_window_t *w);

/* Seconds for the timed iterations of this rank's @a count pairs, a window of each at a time. */
double bench_window_run(bench_t *b, bench_window_t *w, int count);

/*
 * A benchmark of two ranks: prints what this rank and the other carry together, ends MPI; the
 * program's exit status.
 */
int bench_window_main(bench_t *b, bool sends, bool receives);

#endif
