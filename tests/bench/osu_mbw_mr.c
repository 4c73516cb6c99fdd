/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * osu_mbw_mr: bandwidth and message rate of many pairs at once; rank r < pairs sends windows of
 * messages to rank r + pairs. Ranks beyond the pairs only wait. With -o rank 0 sends to all others
 * instead. MPI only.
 */
#include "bench_window.h"

#include <stdlib.h>

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
    bench_t         b;
    bench_window_t *windows;
    double          seconds, sum, rate;
    bool            sender, receiver;
    int             senders, peers, i;

    bench_init(&b, argc, argv, &spec);
    senders  = bench_senders(&b);
    sender   = b.rank < senders;
    receiver = !sender && b.rank < senders + b.opts.pairs;
    peers    = b.rank == 0 ? b.opts.pairs / senders : 1;
    bench_limit_size(&b, 2 * (size_t)(b.opts.pairs / senders));
    windows = bench_alloc(&b, (size_t)peers * sizeof(*windows));
    for (i = 0; i < peers; i++) {
        bench_window_init(&b, &windows[i],
                          sender ? b.rank + senders + i : (b.rank - senders) % senders, sender,
                          receiver);
    }
    bench_print_header(&b);
    while (bench_next_size(&b)) {
        seconds = sender || receiver ? bench_window_run(&b, windows, peers) : 0;
        seconds = sender ? seconds : 0;
        sum     = 0;
        MPI_Reduce(&seconds, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, b.comm);
        rate = 0;
        if (b.rank == 0) {
            rate = (double)b.opts.pairs * b.iterations * b.opts.window / (sum / senders);
        }
        bench_print_values(&b, NULL, (double[]){rate * (double)b.msg_size / 1e6, rate},
                           b.opts.print_rate ? 2 : 1);
    }
    for (i = 0; i < peers; i++) {
        bench_window_cleanup(&b, &windows[i]);
    }
    free(windows);
    return bench_finish(&b);
}
