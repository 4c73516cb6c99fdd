/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_bibw: bandwidth of two ranks that send to each other at the same time. MPI only. */
#include "bench_window.h"

static const bench_spec_t spec = {
    BENCH_BANDWIDTH,
    .name    = "osu_bibw",
    .title   = "OSU MPI Bi-Directional Bandwidth Test",
    .column  = "Bandwidth (MB/s)",
    .options = BENCH_OPT_SIZE | BENCH_OPT_CHECK | BENCH_OPT_DEVICE | BENCH_OPT_WINDOW |
               BENCH_OPT_BUFFER,
    .max_ranks = 2,
};

int main(int argc, char **argv)
{
    bench_t b;

    bench_init(&b, argc, argv, &spec);
    return bench_window_main(&b, true, true);
}
