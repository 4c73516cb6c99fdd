/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_allgather and osu_iallgather: time of MPI_Allgather, MPI_Iallgather; the size is one rank's
 * contribution. MPI only. */
#include "bench_coll.h"

static const bench_spec_t spec = {
    BENCH_COLLECTIVE(1, 0),
    .name  = BENCH_FORM("osu_allgather", "osu_iallgather"),
    .title = BENCH_FORM("OSU MPI Allgather Latency Test",
                        "OSU MPI Non-blocking Allgather Latency Test"),
};

static void call(bench_t *b, bench_coll_t *c)
{
    BENCH_CALL(MPI_Allgather, MPI_Iallgather, c->send, (int)b->msg_size, MPI_CHAR, c->recv,
               (int)b->msg_size, MPI_CHAR, b->comm);
}

static void prepare(bench_t *b, bench_coll_t *c, int iteration)
{
    int rank;

    bench_fill(b, c->send, b->msg_size, bench_seed(iteration, b->rank, 0, 0));
    for (rank = 0; rank < b->nranks; rank++) {
        bench_poison(b, c->recv + (size_t)rank * b->msg_size, b->msg_size,
                     bench_seed(iteration, rank, 0, 0));
    }
}

static void check(bench_t *b, bench_coll_t *c, int iteration)
{
    int rank;

    for (rank = 0; rank < b->nranks; rank++) {
        bench_check(b, c->recv + (size_t)rank * b->msg_size, b->msg_size,
                    bench_seed(iteration, rank, 0, 0), iteration);
    }
}

int main(int argc, char **argv)
{
    bench_coll_ops_t ops  = {call, prepare, check};
    bench_coll_t     coll = {.send_factor = 1};
    bench_t          b;

    bench_init(&b, argc, argv, &spec);
    coll.recv_factor = (size_t)b.nranks;
    return bench_coll_main(&b, &coll, &ops);
}
