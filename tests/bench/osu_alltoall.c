/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_alltoall and osu_ialltoall: time of MPI_Alltoall, MPI_Ialltoall; the size is what one rank
 * sends to one other. MPI only. */
#include "bench_coll.h"

static const bench_spec_t spec = {
    BENCH_COLLECTIVE(1, 0),
    .name  = BENCH_FORM("osu_alltoall", "osu_ialltoall"),
    .title = BENCH_FORM("OSU MPI All-to-All Personalized Exchange Latency Test",
                        "OSU MPI Non-blocking All-to-All Latency Test"),
};

static void call(bench_t *b, bench_coll_t *c)
{
    BENCH_CALL(MPI_Alltoall, MPI_Ialltoall, c->send, (int)b->msg_size, MPI_CHAR, c->recv,
               (int)b->msg_size, MPI_CHAR, b->comm);
}

static void prepare(bench_t *b, bench_coll_t *c, int iteration)
{
    size_t offset;
    int    rank;

    for (rank = 0; rank < b->nranks; rank++) {
        offset = (size_t)rank * b->msg_size;
        bench_fill(b, c->send + offset, b->msg_size, bench_seed(iteration, b->rank, rank, 0));
        bench_poison(b, c->recv + offset, b->msg_size, bench_seed(iteration, rank, b->rank, 0));
    }
}

static void check(bench_t *b, bench_coll_t *c, int iteration)
{
    int rank;

    for (rank = 0; rank < b->nranks; rank++) {
        bench_check(b, c->recv + (size_t)rank * b->msg_size, b->msg_size,
                    bench_seed(iteration, rank, b->rank, 0), iteration);
    }
}

int main(int argc, char **argv)
{
    bench_coll_ops_t ops  = {call, prepare, check};
    bench_coll_t     coll = {0};
    bench_t          b;

    bench_init(&b, argc, argv, &spec);
    coll.send_factor = (size_t)b.nranks;
    coll.recv_factor = (size_t)b.nranks;
    return bench_coll_main(&b, &coll, &ops);
}
