/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * osu_barrier: time of MPI_Barrier, back to back. With -c, each barrier is checked: no rank may
 * leave it before the last one has entered, by the clock of the node that all ranks must share.
 * MPI and clock_gettime() only.
 */
#include "bench_common.h"

#include <time.h>

static const bench_spec_t spec = {
    .name             = "osu_barrier",
    .title            = "OSU MPI Barrier Latency Test",
    .options          = BENCH_OPT_CHECK | BENCH_OPT_FULL,
    .granularity      = 1,
    .iterations       = 1000,
    .skip             = 100,
    .iterations_large = 1000,
    .skip_large       = 100,
    .min_ranks        = 2,
};

/* MPI_Wtime may count from another origin in each rank; this clock is the node's. */
static double node_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void require_one_node(bench_t *b)
{
    MPI_Comm node;
    int      size;

    MPI_Comm_split_type(b->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &size);
    MPI_Comm_free(&node);
    MPI_Allreduce(MPI_IN_PLACE, &size, 1, MPI_INT, MPI_MIN, b->comm);
    if (size != b->nranks) {
        bench_fail(b, "validation (-c) compares clocks, all processes must be on one node");
    }
}

static double run(const bench_t *b)
{
    double start = 0;
    int    i;

    for (i = -b->skip; i < b->iterations; i++) {
        if (i == 0) {
            start = MPI_Wtime();
        }
        MPI_Barrier(b->comm);
    }
    return MPI_Wtime() - start;
}

static double run_validated(bench_t *b)
{
    double seconds = 0, entered, left, latest;
    int    i;

    for (i = -b->skip; i < b->iterations; i++) {
        entered = node_clock();
        MPI_Barrier(b->comm);
        left = node_clock();
        seconds += i >= 0 ? left - entered : 0;
        entered += b->corrupt ? 1.0 : 0;
        MPI_Allreduce(&entered, &latest, 1, MPI_DOUBLE, MPI_MAX, b->comm);
        if (left < latest) {
            bench_error(b, i, "left the barrier %g us before the last one entered",
                        (latest - left) * 1e6);
        }
    }
    return seconds;
}

int main(int argc, char **argv)
{
    double  seconds;
    bench_t b;

    bench_init(&b, argc, argv, &spec);
    if (b.opts.validate) {
        require_one_node(&b);
    }
    bench_print_header(&b);
    while (bench_next_size(&b)) {
        seconds = b.opts.validate ? run_validated(&b) : run(&b);
        bench_print_stats(&b, seconds * 1e6 / b.iterations);
    }
    return bench_finish(&b);
}
