/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_bw: bandwidth from rank 0 to rank 1, windows of non-blocking sends. MPI only. */
#include "bench_window.h"

static const bench_spec_t spec = {
    BENCH_BANDWIDTH,
    .name    = "osu_bw",
    .title   = "OSU MPI Bandwidth Test",
    .column  = "Bandwidth (MB/s)",
    .options = BENCH_OPT_SIZE | BENCH_OPT_CHECK | BENCH_OPT_DEVICE | BENCH_OPT_WINDOW |
               BENCH_OPT_BUFFER,
    .max_ranks = 2,
};

int main(int argc, char **argv)
{
    bench_t b;

    bench_init(&b, argc, argv, &spec);
    return bench_window_main(&b, b.rank == 0, b.rank == 1);
}
