/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_latency: one-way time of a message between two ranks, from a blocking ping-pong. MPI only. */
#include "bench_common.h"

#include <stdlib.h>

#define TAG 1

static const bench_spec_t spec = {
    .name             = "osu_latency",
    .title            = "OSU MPI Latency Test",
    .column           = "Latency (us)",
    .options          = BENCH_OPT_SIZE | BENCH_OPT_CHECK,
    .min_size         = 1,
    .max_size         = 4ul << 20,
    .granularity      = 1,
    .iterations       = 10000,
    .skip             = 100,
    .iterations_large = 1000,
    .skip_large       = 10,
    .min_ranks        = 2,
    .max_ranks        = 2,
};

static void round_trip(const bench_t *b, void *send, void *recv)
{
    int peer = 1 - b->rank;
    int size = (int)b->msg_size;

    if (b->rank == 0) {
        MPI_Send(send, size, MPI_CHAR, peer, TAG, b->comm);
        MPI_Recv(recv, size, MPI_CHAR, peer, TAG, b->comm, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(recv, size, MPI_CHAR, peer, TAG, b->comm, MPI_STATUS_IGNORE);
        MPI_Send(send, size, MPI_CHAR, peer, TAG, b->comm);
    }
}

/* Seconds for all timed round trips. */
static double run(const bench_t *b, void *send, void *recv)
{
    double start = 0;
    int    i;

    for (i = -b->skip; i < b->iterations; i++) {
        if (i == 0) {
            start = MPI_Wtime();
        }
        round_trip(b, send, recv);
    }
    return MPI_Wtime() - start;
}

/* The same with fresh data in each round trip, checked after it. */
static double run_validated(bench_t *b, void *send, void *recv)
{
    int    peer    = 1 - b->rank;
    double seconds = 0, start, end;
    int    i;

    for (i = -b->skip; i < b->iterations; i++) {
        bench_fill(send, b->msg_size, bench_seed(i, b->rank, peer, 0));
        bench_poison(recv, b->msg_size, bench_seed(i, peer, b->rank, 0));
        bench_settle(b, peer);
        start = MPI_Wtime();
        round_trip(b, send, recv);
        end = MPI_Wtime();
        bench_check(b, recv, b->msg_size, bench_seed(i, peer, b->rank, 0), i);
        seconds += i >= 0 ? end - start : 0;
    }
    return seconds;
}

int main(int argc, char **argv)
{
    bench_t b;
    void   *send, *recv;
    double  seconds;

    bench_init(&b, argc, argv, &spec);
    bench_limit_size(&b, 2);
    send = bench_alloc(&b, b.opts.max_size);
    recv = bench_alloc(&b, b.opts.max_size);
    bench_print_header(&b);
    while (bench_next_size(&b)) {
        seconds = b.opts.validate ? run_validated(&b, send, recv) : run(&b, send, recv);
        bench_print_row(&b, seconds * 1e6 / (2.0 * b.iterations));
    }
    free(send);
    free(recv);
    return bench_finish(&b);
}
