/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * osu_multi_lat: ping-pong latency of many pairs at once; rank r of the first half talks to rank
 * r + pairs. Prints the mean over the pairs. MPI only.
 */
#include "bench_pingpong.h"

static const bench_spec_t spec = {
    BENCH_LATENCY,
    .name    = "osu_multi_lat",
    .title   = "OSU MPI Multi Latency Test",
    .options = BENCH_OPT_SIZE | BENCH_OPT_CHECK | BENCH_OPT_DEVICE,
};

int main(int argc, char **argv)
{
    bench_t b;

    bench_init(&b, argc, argv, &spec);
    if (b.nranks % 2 != 0) {
        bench_fail(&b, "this test requires an even number of processes, there are %d", b.nranks);
    }
    return bench_pingpong_main(&b, (b.rank + b.nranks / 2) % b.nranks);
}
