/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * osu_mbw_mr: bandwidth and message rate of many pairs at once; rank r < pairs sends windows of
 * messages to rank r + pairs. Ranks beyond the pairs only wait. MPI only.
 */
#include "bench_window.h"

static const bench_spec_t spec = {
    BENCH_BANDWIDTH,
    .name    = "osu_mbw_mr",
    .title   = "OSU MPI Multiple Bandwidth / Message Rate Test",
    .column  = "MB/s",
    .more    = {"Messages/s"},
    .options = BENCH_OPT_SIZE | BENCH_OPT_CHECK | BENCH_OPT_DEVICE | BENCH_OPT_WINDOW |
               BENCH_OPT_PAIRS,
};

int main(int argc, char **argv)
{
    bench_t        b;
    bench_window_t window;
    double         seconds, sum, rate;
    bool           sender, receiver;
    int            pairs;

    bench_init(&b, argc, argv, &spec);
    pairs    = b.opts.pairs;
    sender   = b.rank < pairs;
    receiver = !sender && b.rank < 2 * pairs;
    bench_window_init(&b, &window, sender ? b.rank + pairs : b.rank - pairs, sender, receiver);
    bench_print_header(&b);
    while (bench_next_size(&b)) {
        seconds = sender || receiver ? bench_window_run(&b, &window) : 0;
        seconds = sender ? seconds : 0;
        sum     = 0;
        MPI_Reduce(&seconds, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, b.comm);
        rate = 0;
        if (b.rank == 0) {
            rate = (double)pairs * b.iterations * b.opts.window / (sum / pairs);
        }
        bench_print_values(&b, NULL, (double[]){rate * (double)b.msg_size / 1e6, rate},
                           b.opts.print_rate ? 2 : 1);
    }
    bench_window_cleanup(&b, &window);
    return bench_finish(&b);
}
