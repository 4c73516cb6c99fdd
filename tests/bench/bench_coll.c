/* SPDX-License-Identifier: BSD-3-Clause */
/* The collective pattern; see the header. MPI only. */
#include "bench_coll.h"

#include <stdlib.h>

#define ELEMENT_PERIOD 61 /* the two parts of an element's value, see element_value() */
#define RANK_PERIOD    13

static double coll_run(bench_t *b, bench_coll_t *c, const bench_coll_ops_t *ops, double compute)
{
    bool   validate = b->opts.validate;
    double seconds  = 0, start;
    int    i, k;

    for (i = -b->skip; i < b->iterations; i++) {
        if (validate) {
            ops->prepare(b, c, i);
            for (k = 0; k < b->opts.settle; k++) {
                MPI_Barrier(b->comm);
            }
        }
        MPI_Barrier(b->comm);
        start = MPI_Wtime();
        ops->call(b, c);
        if (b->spec->options & BENCH_OPT_OVERLAP) {
            bench_compute(compute);
            MPI_Wait(&c->request, MPI_STATUS_IGNORE);
        }
        seconds += i >= 0 ? MPI_Wtime() - start : 0;
        if (validate) {
            ops->check(b, c, i);
        }
    }
    return seconds;
}

/* The mean microseconds of a call over the ranks. */
static double coll_mean(const bench_t *b, double seconds)
{
    double sum;

    MPI_Allreduce(&seconds, &sum, 1, MPI_DOUBLE, MPI_SUM, b->comm);
    return sum * 1e6 / b->nranks / b->iterations;
}

/* How long a call takes alone, and with as long a computation. */
static void coll_overlap(bench_t *b, bench_coll_t *c, const bench_coll_ops_t *ops)
{
    double pure    = coll_mean(b, coll_run(b, c, ops, 0));
    double compute = pure;
    double overall = coll_mean(b, coll_run(b, c, ops, compute * 1e-6));
    double overlap = 100 - (overall - compute) / pure * 100;

    bench_print_values(b, NULL, (double[]){overall, compute, pure, overlap > 0 ? overlap : 0}, 4);
}

int bench_coll_main(bench_t *b, bench_coll_t *c, const bench_coll_ops_t *ops)
{
    if (c->send_factor + c->recv_factor > 0) {
        bench_limit_size(b, c->send_factor + c->recv_factor);
    }
    c->send = bench_buffer_alloc(b, c->send_factor * b->opts.max_size);
    c->recv = bench_buffer_alloc(b, c->recv_factor * b->opts.max_size);
    bench_print_header(b);
    while (bench_next_size(b)) {
        if (ops->resize != NULL) {
            ops->resize(b);
        }
        if (b->spec->options & BENCH_OPT_OVERLAP) {
            coll_overlap(b, c, ops);
        } else {
            bench_print_stats(b, coll_run(b, c, ops, 0) * 1e6 / b->iterations);
        }
    }
    bench_buffer_free(b, c->send);
    bench_buffer_free(b, c->recv);
    return bench_finish(b);
}

/* Different in neighbouring elements, iterations and ranks; sums stay far below 2^24. */
static float element_part(size_t element, int iteration)
{
    return (float)((element + (size_t)(iteration & 0xffff)) % ELEMENT_PERIOD);
}

static float rank_part(int rank)
{
    return (float)(rank * 7 % RANK_PERIOD);
}

void bench_coll_fill_floats(bench_t *b, bench_coll_t *c, int iteration)
{
    size_t count = b->msg_size / sizeof(float);
    float *send = (float *)c->send, *recv = (float *)c->recv;
    size_t i;

    for (i = 0; i < count; i++) {
        send[i] = element_part(i, iteration) + rank_part(b->rank);
        recv[i] = -1;
    }
}

void bench_coll_check_part(bench_t *b, bench_coll_t *c, int iteration, size_t first, size_t count)
{
    const float *recv  = (const float *)c->recv;
    float        ranks = 0, expected;
    size_t       i;
    int          rank;

    for (rank = 0; rank < b->nranks; rank++) {
        ranks += rank_part(rank);
    }
    if (b->corrupt && count > 0) {
        c->recv[count * sizeof(float) / 2] ^= 0x10;
    }
    for (i = 0; i < count; i++) {
        expected = (float)b->nranks * element_part(first + i, iteration) + ranks;
        if (recv[i] != expected) {
            bench_error(b, iteration, "element %zu is %g, expected %g", first + i, recv[i],
                        expected);
            return;
        }
    }
}

void bench_coll_check_floats(bench_t *b, bench_coll_t *c, int iteration)
{
    bench_coll_check_part(b, c, iteration, 0, b->msg_size / sizeof(float));
}
