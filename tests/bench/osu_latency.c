/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_latency: one-way time of a message between two ranks, from a blocking ping-pong. MPI only. */
#include "bench_pingpong.h"

static const bench_spec_t spec = {
    BENCH_LATENCY,
    .name      = "osu_latency",
    .title     = "OSU MPI Latency Test",
    .options   = BENCH_OPT_SIZE | BENCH_OPT_CHECK | BENCH_OPT_DEVICE | BENCH_OPT_UNEXPECTED,
    .max_ranks = 2,
};

int main(int argc, char **argv)
{
    bench_t b;

    bench_init(&b, argc, argv, &spec);
    return bench_pingpong_main(&b, 1 - b.rank);
}
