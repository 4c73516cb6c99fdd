/* SPDX-License-Identifier: BSD-3-Clause */
/* The latency pattern of osu_latency and osu_multi_lat; see the header. MPI only. */
#include "bench_pingpong.h"

#include <stdlib.h>

#define TAG            1
#define TAG_UNEXPECTED 2

/* The lower rank begins. */
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

/* Seconds for all timed round trips. */
static double run(const bench_t *b, int peer, void *send, void *recv)
{
    double start = 0;
    int    i;

    for (i = -b->skip; i < b->iterations; i++) {
        if (i == 0) {
            start = MPI_Wtime();
        }
        round_trip(b, peer, send, recv);
    }
    return MPI_Wtime() - start;
}

/* The same with fresh data in each round trip, checked after it. */
static double run_validated(bench_t *b, int peer, void *send, void *recv)
{
    double seconds = 0, start, end;
    int    i;

    for (i = -b->skip; i < b->iterations; i++) {
        bench_fill(b, send, b->msg_size, bench_seed(i, b->rank, peer, 0));
        bench_poison(b, recv, b->msg_size, bench_seed(i, peer, b->rank, 0));
        bench_settle(b, peer);
        start = MPI_Wtime();
        round_trip(b, peer, send, recv);
        end = MPI_Wtime();
        bench_check(b, recv, b->msg_size, bench_seed(i, peer, b->rank, 0), i);
        seconds += i >= 0 ? end - start : 0;
    }
    return seconds;
}

/* A message of the lower rank's that the other one receives when all is measured; see -U. */
static void *unexpected_begin(bench_t *b, int peer, MPI_Request *request)
{
    void *unexpected = bench_alloc(b, b->opts.unexpected);

    *request = MPI_REQUEST_NULL;
    if (b->opts.unexpected != 0 && b->rank < peer) {
        MPI_Isend(unexpected, (int)b->opts.unexpected, MPI_CHAR, peer, TAG_UNEXPECTED, b->comm,
                  request);
    }
    return unexpected;
}

static void unexpected_end(const bench_t *b, int peer, void *unexpected, MPI_Request *request)
{
    if (b->opts.unexpected != 0 && b->rank > peer) {
        MPI_Recv(unexpected, (int)b->opts.unexpected, MPI_CHAR, peer, TAG_UNEXPECTED, b->comm,
                 MPI_STATUS_IGNORE);
    }
    MPI_Wait(request, MPI_STATUS_IGNORE);
    free(unexpected);
}

int bench_pingpong_main(bench_t *b, int peer)
{
    double      seconds, sum = 0;
    void       *send, *recv, *unexpected;
    MPI_Request request;

    bench_limit_size(b, 2);
    send = bench_buffer_alloc(b, b->opts.max_size);
    recv = bench_buffer_alloc(b, b->opts.max_size);
    bench_print_header(b);
    unexpected = unexpected_begin(b, peer, &request);
    while (bench_next_size(b)) {
        seconds = b->opts.validate ? run_validated(b, peer, send, recv) : run(b, peer, send, recv);
        seconds = b->rank < peer ? seconds : 0; /* the initiators' clocks count */
        MPI_Reduce(&seconds, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, b->comm);
        bench_print_row(b, sum / (b->nranks / 2) * 1e6 / (2.0 * b->iterations));
    }
    unexpected_end(b, peer, unexpected, &request);
    bench_buffer_free(b, send);
    bench_buffer_free(b, recv);
    return bench_finish(b);
}
