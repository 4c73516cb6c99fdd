/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_bw: bandwidth from rank 0 to rank 1, windows of non-blocking sends. MPI only. */
#include "bench_window.h"

static const bench_spec_t spec = {
    .name             = "osu_bw",
    .title            = "OSU MPI Bandwidth Test",
    .column           = "Bandwidth (MB/s)",
    .options          = BENCH_OPT_SIZE | BENCH_OPT_CHECK | BENCH_OPT_WINDOW | BENCH_OPT_BUFFER,
    .min_size         = 1,
    .max_size         = 4ul << 20,
    .granularity      = 1,
    .iterations       = 100,
    .skip             = 10,
    .iterations_large = 20,
    .skip_large       = 2,
    .min_ranks        = 2,
    .max_ranks        = 2,
};

int main(int argc, char **argv)
{
    bench_t        b;
    bench_window_t window;
    double         seconds, bytes;

    bench_init(&b, argc, argv, &spec);
    bench_window_init(&b, &window, 1 - b.rank, b.rank == 0, b.rank == 1);
    bench_print_header(&b);
    while (bench_next_size(&b)) {
        seconds = bench_window_run(&b, &window);
        bytes   = (double)b.msg_size * b.iterations * b.opts.window;
        bench_print_row(&b, bytes / 1e6 / seconds);
    }
    bench_window_cleanup(&window);
    return bench_finish(&b);
}
