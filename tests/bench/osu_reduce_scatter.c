/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_reduce_scatter and osu_ireduce_scatter: time of MPI_Reduce_scatter, MPI_Ireduce_scatter, a
 * sum of floats; the size is all ranks' parts together. MPI only. */
#include "bench_coll.h"

#include <stdlib.h>

static const bench_spec_t spec = {
    BENCH_COLLECTIVE(sizeof(float), 0),
    .name  = BENCH_FORM("osu_reduce_scatter", "osu_ireduce_scatter"),
    .title = BENCH_FORM("OSU MPI Reduce_scatter Latency Test",
                        "OSU MPI Non-blocking Reduce_scatter Latency Test"),
};

static int *counts; /* each rank's elements */

static void resize(bench_t *b)
{
    int total = (int)(b->msg_size / sizeof(float));

    for (int rank = 0; rank < b->nranks; rank++) {
        counts[rank] = total / b->nranks + (rank < total % b->nranks);
    }
}

static void call(bench_t *b, bench_coll_t *c)
{
    BENCH_CALL(MPI_Reduce_scatter, MPI_Ireduce_scatter, c->send, c->recv, counts, MPI_FLOAT,
               MPI_SUM, b->comm);
}

static void check(bench_t *b, bench_coll_t *c, int iteration)
{
    size_t first = 0;

    for (int rank = 0; rank < b->rank; rank++) {
        first += (size_t)counts[rank];
    }
    bench_coll_check_part(b, c, iteration, first, (size_t)counts[b->rank]);
}

int main(int argc, char **argv)
{
    bench_coll_ops_t ops  = {call, bench_coll_fill_floats, check, resize};
    bench_coll_t     coll = {.send_factor = 1, .recv_factor = 1};
    bench_t          b;
    int              status;

    bench_init(&b, argc, argv, &spec);
    counts = bench_alloc(&b, (size_t)b.nranks * sizeof(*counts));
    status = bench_coll_main(&b, &coll, &ops);
    free(counts);
    return status;
}
