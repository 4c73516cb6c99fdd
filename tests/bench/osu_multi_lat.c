/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * osu_multi_lat: ping-pong latency of many pairs at once; rank r of the first half talks to rank
 * r + pairs. Prints the mean over the pairs. MPI only.
 */
#include "bench_common.h"

#include <stdlib.h>

#define TAG 1

static const bench_spec_t spec = {
    .name             = "osu_multi_lat",
    .title            = "OSU MPI Multi Latency Test",
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
    .max_ranks        = 0,
};

static void round_trip(const bench_t *b, int peer, void *send, void *recv)
{
    int size = (int)b->msg_size;

    if (b->rank < peer) {
        MPI_Send(send, size, MPI_CHAR, peer, TAG, b->comm);
        MPI_Recv(recv, size, MPI_CHAR, peer, TAG, b->comm, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(recv, size, MPI_CHAR, peer, TAG, b->comm, MPI_STATUS_IGNORE);
        MPI_Send(send, size, MPI_CHAR, peer, TAG, b->comm);
    }
}

/* Seconds for all timed round trips of this rank. */
static double run(bench_t *b, int peer, void *send, void *recv)
{
    bool   validate = b->opts.validate;
    double seconds = 0, start = 0;
    int    i;

    for (i = -b->skip; i < b->iterations; i++) {
        if (validate) {
            bench_fill(send, b->msg_size, bench_seed(i, b->rank, peer, 0));
            bench_poison(recv, b->msg_size, bench_seed(i, peer, b->rank, 0));
            bench_settle(b, peer);
        }
        if (validate || i == 0) {
            start = MPI_Wtime();
        }
        round_trip(b, peer, send, recv);
        if (validate) {
            seconds += i >= 0 ? MPI_Wtime() - start : 0;
            bench_check(b, recv, b->msg_size, bench_seed(i, peer, b->rank, 0), i);
        }
    }
    return validate ? seconds : MPI_Wtime() - start;
}

int main(int argc, char **argv)
{
    bench_t b;
    void   *send, *recv;
    double  us, sum;
    int     peer;

    bench_init(&b, argc, argv, &spec);
    if (b.nranks % 2 != 0) {
        bench_fail(&b, "this test requires an even number of processes, there are %d", b.nranks);
    }
    peer = (b.rank + b.nranks / 2) % b.nranks;
    bench_limit_size(&b, 2);
    send = bench_alloc(&b, b.opts.max_size);
    recv = bench_alloc(&b, b.opts.max_size);
    bench_print_header(&b);
    while (bench_next_size(&b)) {
        us = run(&b, peer, send, recv) * 1e6 / (2.0 * b.iterations);
        MPI_Reduce(&us, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, b.comm);
        bench_print_row(&b, b.rank == 0 ? sum / b.nranks : 0);
    }
    free(send);
    free(recv);
    return bench_finish(&b);
}
