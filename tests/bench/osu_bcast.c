/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_bcast and osu_ibcast: time of MPI_Bcast, MPI_Ibcast from rank 0. MPI only. */
#include "bench_coll.h"

static const bench_spec_t spec = {
    BENCH_COLLECTIVE(1, BENCH_FORM(BENCH_OPT_DEVICE, 0)),
    .name  = BENCH_FORM("osu_bcast", "osu_ibcast"),
    .title = BENCH_FORM("OSU MPI Broadcast Latency Test",
                        "OSU MPI Non-blocking Broadcast Latency Test"),
};

static void call(bench_t *b, bench_coll_t *c)
{
    BENCH_CALL(MPI_Bcast, MPI_Ibcast, c->recv, (int)b->msg_size, MPI_CHAR, 0, b->comm);
}

static void prepare(bench_t *b, bench_coll_t *c, int iteration)
{
    uint64_t seed = bench_seed(iteration, 0, 0, 0);

    if (b->rank == 0) {
        bench_fill(b, c->recv, b->msg_size, seed);
    } else {
        bench_poison(b, c->recv, b->msg_size, seed);
    }
}

/* The root is checked too: nothing may have changed there. */
static void check(bench_t *b, bench_coll_t *c, int iteration)
{
    bench_check(b, c->recv, b->msg_size, bench_seed(iteration, 0, 0, 0), iteration);
}

int main(int argc, char **argv)
{
    bench_coll_ops_t ops  = {call, prepare, check};
    bench_coll_t     coll = {.send_factor = 0, .recv_factor = 1};
    bench_t          b;

    bench_init(&b, argc, argv, &spec);
    return bench_coll_main(&b, &coll, &ops);
}
