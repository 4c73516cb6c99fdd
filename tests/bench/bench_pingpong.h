/* SPDX-License-Identifier: BSD-3-Clause */
/* The latency pattern: a blocking ping-pong of the two ranks of a pair. */
#ifndef ANGARA_BENCH_PINGPONG_H
#define ANGARA_BENCH_PINGPONG_H

#include "bench_common.h"

/* Runs all sizes, prints the mean over the ranks, ends MPI; the program's exit status. */
int bench_pingpong_main(bench_t *b, int peer);

#endif
