/* SPDX-License-Identifier: BSD-3-Clause */
/* The bandwidth pattern of osu_bw, osu_bibw and osu_mbw_mr; see the header. MPI only. */
#include "bench_window.h"

#include <stdlib.h>

#define TAG_DATA 1
#define TAG_ACK  2
#define ACK_SIZE 4

void bench_window_init(bench_t *b, bench_window_t *w, int peer, bool sends, bool receives)
{
    *w = (bench_window_t){.peer = peer, .sends = sends, .receives = receives};
    bench_limit_size(b, 2);
    bench_slots_init(b, &w->send, sends ? b->opts.window : 1, false);
    bench_slots_init(b, &w->recv, receives ? b->opts.window : 1, false);
    w->requests = bench_alloc(b, 2 * sizeof(*w->requests) * (size_t)b->opts.window);
}

void bench_window_cleanup(bench_t *b, bench_window_t *w)
{
    bench_slots_cleanup(b, &w->send);
    bench_slots_cleanup(b, &w->recv);
    free(w->requests);
}

static void window_post(const bench_t *b, bench_window_t *w)
{
    int size = (int)b->msg_size;
    int n    = 0, i;

    if (w->receives) {
        for (i = 0; i < b->opts.window; i++) {
            MPI_Irecv(bench_slot(&w->recv, i), size, MPI_CHAR, w->peer, TAG_DATA, b->comm,
                      &w->requests[n++]);
        }
    }
    if (w->sends) {
        for (i = 0; i < b->opts.window; i++) {
            MPI_Isend(bench_slot(&w->send, i), size, MPI_CHAR, w->peer, TAG_DATA, b->comm,
                      &w->requests[n++]);
        }
    }
    w->posted = n;
}

static void window_wait(const bench_t *b, bench_window_t *w)
{
    char ack[ACK_SIZE] = {0};

    MPI_Waitall(w->posted, w->requests, MPI_STATUSES_IGNORE);
    if (w->sends && !w->receives) {
        MPI_Recv(ack, ACK_SIZE, MPI_CHAR, w->peer, TAG_ACK, b->comm, MPI_STATUS_IGNORE);
    } else if (w->receives && !w->sends) {
        MPI_Send(ack, ACK_SIZE, MPI_CHAR, w->peer, TAG_ACK, b->comm);
    }
}

/* Messages that share a slot carry the same data, so the slot decides what is expected. */
static void window_prepare(bench_t *b, bench_window_t *w, int iteration)
{
    int i;

    for (i = 0; w->sends && i < w->send.count; i++) {
        bench_fill(b, bench_slot(&w->send, i), b->msg_size,
                   bench_seed(iteration, b->rank, w->peer, i));
    }
    for (i = 0; w->receives && i < w->recv.count; i++) {
        bench_poison(b, bench_slot(&w->recv, i), b->msg_size,
                     bench_seed(iteration, w->peer, b->rank, i));
    }
    bench_settle(b, w->peer);
}

static void window_check(bench_t *b, bench_window_t *w, int iteration)
{
    int i;

    for (i = 0; w->receives && i < w->recv.count; i++) {
        bench_check(b, bench_slot(&w->recv, i), b->msg_size,
                    bench_seed(iteration, w->peer, b->rank, i), iteration);
    }
}

double bench_window_run(bench_t *b, bench_window_t *w, int count)
{
    bool   validate = b->opts.validate;
    double seconds = 0, start = 0;
    int    i, k;

    for (i = -b->skip; i < b->iterations; i++) {
        for (k = 0; k < count && validate; k++) {
            window_prepare(b, &w[k], i);
        }
        if (validate || i == 0) {
            start = MPI_Wtime();
        }
        for (k = 0; k < count; k++) {
            window_post(b, &w[k]);
        }
        for (k = 0; k < count; k++) {
            window_wait(b, &w[k]);
        }
        seconds += validate && i >= 0 ? MPI_Wtime() - start : 0;
        for (k = 0; k < count && validate; k++) {
            window_check(b, &w[k], i);
        }
    }
    return validate ? seconds : MPI_Wtime() - start;
}

int bench_window_main(bench_t *b, bool sends, bool receives)
{
    int            directions = sends + receives;
    bench_window_t window;
    double         seconds, bytes;

    bench_window_init(b, &window, 1 - b->rank, sends, receives);
    bench_print_header(b);
    while (bench_next_size(b)) {
        seconds = bench_window_run(b, &window, 1);
        bytes   = (double)directions * (double)b->msg_size * b->iterations * b->opts.window;
        bench_print_row(b, bytes / 1e6 / seconds);
    }
    bench_window_cleanup(b, &window);
    return bench_finish(b);
}
