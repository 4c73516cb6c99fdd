/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_allreduce and osu_iallreduce: time of MPI_Allreduce, MPI_Iallreduce, a sum of floats. MPI
 * only. */
#include "bench_coll.h"

static const bench_spec_t spec = {
    BENCH_COLLECTIVE(sizeof(float), 0),
    .name  = BENCH_FORM("osu_allreduce", "osu_iallreduce"),
    .title = BENCH_FORM("OSU MPI Allreduce Latency Test",
                        "OSU MPI Non-blocking Allreduce Latency Test"),
};

static void call(bench_t *b, bench_coll_t *c)
{
    BENCH_CALL(MPI_Allreduce, MPI_Iallreduce, c->send, c->recv, (int)(b->msg_size / sizeof(float)),
               MPI_FLOAT, MPI_SUM, b->comm);
}

int main(int argc, char **argv)
{
    bench_coll_ops_t ops  = {call, bench_coll_fill_floats, bench_coll_check_floats};
    bench_coll_t     coll = {.send_factor = 1, .recv_factor = 1};
    bench_t          b;

    bench_init(&b, argc, argv, &spec);
    return bench_coll_main(&b, &coll, &ops);
}
