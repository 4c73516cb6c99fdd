/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_allreduce: time of MPI_Allreduce, a sum of floats. MPI only. */
#include "bench_coll.h"

static const bench_spec_t spec = {
    BENCH_COLLECTIVE(sizeof(float), 0),
    .name  = "osu_allreduce",
    .title = "OSU MPI Allreduce Latency Test",
};

static void call(bench_t *b, bench_coll_t *c)
{
    MPI_Allreduce(c->send, c->recv, (int)(b->msg_size / sizeof(float)), MPI_FLOAT, MPI_SUM,
                  b->comm);
}

int main(int argc, char **argv)
{
    bench_coll_ops_t ops  = {call, bench_coll_fill_floats, bench_coll_check_floats};
    bench_coll_t     coll = {.send_factor = 1, .recv_factor = 1};
    bench_t          b;

    bench_init(&b, argc, argv, &spec);
    return bench_coll_main(&b, &coll, &ops);
}
