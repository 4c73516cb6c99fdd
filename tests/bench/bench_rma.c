/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows, synchronization and data of the one-sided benchmarks; see the header. MPI only. */
#include "bench_rma.h"

#include <stdlib.h>
#include <string.h>

static void rma_create_window(bench_t *b, bench_rma_t *r, size_t length)
{
    MPI_Aint size = (MPI_Aint)length, address;

    switch (b->opts.win_type) {
    case BENCH_WIN_ALLOCATE:
        MPI_Win_allocate(size, 1, MPI_INFO_NULL, b->comm, &r->exposed.base, &r->win);
        memset(r->exposed.base, 0, length);
        break;
    case BENCH_WIN_CREATE:
        r->created = r->exposed.base = bench_alloc(b, length);
        MPI_Win_create(r->exposed.base, size, 1, MPI_INFO_NULL, b->comm, &r->win);
        break;
    case BENCH_WIN_DYNAMIC:
        r->created = r->exposed.base = bench_alloc(b, length);
        MPI_Win_create_dynamic(MPI_INFO_NULL, b->comm, &r->win);
        MPI_Win_attach(r->win, r->exposed.base, size);
        MPI_Get_address(r->exposed.base, &address);
        MPI_Bcast(&address, 1, MPI_AINT, BENCH_RMA_TARGET, b->comm);
        r->target = address;
        break;
    }
}

static void rma_init(bench_t *b, bench_rma_t *r, int count)
{
    MPI_Group world;
    size_t    length;
    int       peer = 1 - b->rank;

    *r = (bench_rma_t){.win = MPI_WIN_NULL};
    bench_limit_size(b, 2);
    bench_slots_init(b, &r->local, count, true);
    length            = bench_slots_length(b, count, true, &r->exposed.count);
    r->exposed.stride = r->local.stride;
    rma_create_window(b, r, length);
    MPI_Comm_group(b->comm, &world);
    MPI_Group_incl(world, 1, &peer, &r->peer);
    MPI_Group_free(&world);
}

static void rma_cleanup(bench_t *b, bench_rma_t *r)
{
    if (b->opts.win_type == BENCH_WIN_DYNAMIC) {
        MPI_Win_detach(r->win, r->exposed.base);
    }
    MPI_Win_free(&r->win);
    MPI_Group_free(&r->peer);
    free(r->created);
    bench_slots_cleanup(b, &r->local);
}

static bool rma_is_passive(const bench_t *b)
{
    return b->opts.sync_type != BENCH_SYNC_PSCW && b->opts.sync_type != BENCH_SYNC_FENCE;
}

/* What surrounds all rounds. */
static void rma_open(bench_t *b, bench_rma_t *r)
{
    switch (b->opts.sync_type) {
    case BENCH_SYNC_FLUSH:
    case BENCH_SYNC_FLUSH_LOCAL:
        if (b->rank != BENCH_RMA_TARGET) {
            MPI_Win_lock(MPI_LOCK_SHARED, BENCH_RMA_TARGET, 0, r->win);
        }
        break;
    case BENCH_SYNC_FENCE:
        MPI_Win_fence(0, r->win);
        break;
    default:
        break;
    }
}

static void rma_close(bench_t *b, bench_rma_t *r)
{
    if (b->rank != BENCH_RMA_TARGET &&
        (b->opts.sync_type == BENCH_SYNC_FLUSH || b->opts.sync_type == BENCH_SYNC_FLUSH_LOCAL)) {
        MPI_Win_unlock(BENCH_RMA_TARGET, r->win);
    }
}

static void rma_round_origin(bench_t *b, bench_rma_t *r, const bench_rma_ops_t *ops)
{
    bench_sync_type_t sync = b->opts.sync_type;

    if (sync == BENCH_SYNC_LOCK) {
        MPI_Win_lock(MPI_LOCK_SHARED, BENCH_RMA_TARGET, 0, r->win);
    } else if (sync == BENCH_SYNC_LOCK_ALL) {
        MPI_Win_lock_all(0, r->win);
    } else if (sync == BENCH_SYNC_PSCW) {
        MPI_Win_start(r->peer, 0, r->win);
    }

    ops->access(b, r);

    switch (sync) {
    case BENCH_SYNC_FLUSH:
        MPI_Win_flush(BENCH_RMA_TARGET, r->win);
        break;
    case BENCH_SYNC_FLUSH_LOCAL:
        MPI_Win_flush_local(BENCH_RMA_TARGET, r->win);
        break;
    case BENCH_SYNC_LOCK:
        MPI_Win_unlock(BENCH_RMA_TARGET, r->win);
        break;
    case BENCH_SYNC_LOCK_ALL:
        MPI_Win_unlock_all(r->win);
        break;
    case BENCH_SYNC_PSCW:
        MPI_Win_complete(r->win);
        break;
    case BENCH_SYNC_FENCE:
        MPI_Win_fence(0, r->win);
        break;
    }
}

/* The target takes part in active synchronization only. */
static void rma_round_target(bench_t *b, bench_rma_t *r)
{
    if (b->opts.sync_type == BENCH_SYNC_PSCW) {
        MPI_Win_post(r->peer, 0, r->win);
        MPI_Win_wait(r->win);
    } else if (b->opts.sync_type == BENCH_SYNC_FENCE) {
        MPI_Win_fence(0, r->win);
    }
}

static void rma_round(bench_t *b, bench_rma_t *r, const bench_rma_ops_t *ops)
{
    if (b->rank == BENCH_RMA_TARGET) {
        rma_round_target(b, r);
    } else {
        rma_round_origin(b, r, ops);
    }
}

/* All that rank 0 has to do is done. Until then the target waits in MPI, or calls it now and then.
 */
static void rma_meet(bench_t *b)
{
    MPI_Request request;
    int         done = 0;

    MPI_Ibarrier(b->comm, &request);
    while (b->rank == BENCH_RMA_TARGET && b->opts.computes > 0 && !done) {
        bench_compute(b->opts.computes * 1e-6);
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/*
 * Runs prepare or check in the target's own exclusive epoch, where loads and stores of window
 * memory are defined; with active synchronization they are defined between the rounds anyway.
 * The barriers order that with rank 0's accesses.
 */
static void rma_local(bench_t *b, bench_rma_t *r, int iteration,
                      void (*work)(bench_t *b, bench_rma_t *r, int iteration))
{
    bool lock = rma_is_passive(b) && b->rank == BENCH_RMA_TARGET;

    MPI_Barrier(b->comm);
    if (lock) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, BENCH_RMA_TARGET, 0, r->win);
    }
    work(b, r, iteration);
    if (lock) {
        MPI_Win_unlock(BENCH_RMA_TARGET, r->win);
    }
    MPI_Barrier(b->comm);
}

/* Every round in its own epoch, so that the target may look at its memory in between. */
static double rma_run_validated(bench_t *b, bench_rma_t *r, const bench_rma_ops_t *ops)
{
    double seconds = 0, start;
    int    i;

    for (i = -b->skip; i < b->iterations; i++) {
        rma_local(b, r, i, ops->prepare);
        rma_open(b, r);
        bench_settle(b, 1 - b->rank);
        start = MPI_Wtime();
        rma_round(b, r, ops);
        seconds += i >= 0 ? MPI_Wtime() - start : 0;
        rma_close(b, r);
        rma_meet(b);
        rma_local(b, r, i, ops->check);
    }
    return seconds;
}

static double rma_run(bench_t *b, bench_rma_t *r, const bench_rma_ops_t *ops)
{
    double start = 0, seconds;
    int    i;

    if (b->opts.validate) {
        return rma_run_validated(b, r, ops);
    }
    rma_open(b, r);
    for (i = -b->skip; i < b->iterations; i++) {
        if (i == 0) {
            start = MPI_Wtime();
        }
        rma_round(b, r, ops);
    }
    seconds = MPI_Wtime() - start;
    rma_close(b, r);
    rma_meet(b);
    return seconds;
}

int bench_rma_main(int argc, char **argv, const bench_spec_t *spec, const bench_rma_ops_t *ops,
                   int slots)
{
    bench_rma_t rma;
    bench_t     b;
    double      seconds, rounds;

    bench_init(&b, argc, argv, spec);
    if (b.opts.computes > 0 && !rma_is_passive(&b)) {
        bench_fail(&b, "a target that computes (-t) takes no part in pscw and fence (-s)");
    }
    rma_init(&b, &rma, (spec->options & BENCH_OPT_WINDOW) != 0 ? b.opts.window : slots);
    bench_print_header(&b);
    while (bench_next_size(&b)) {
        seconds = rma_run(&b, &rma, ops);
        rounds  = b.iterations;
        bench_print_row(&b, (spec->options & BENCH_OPT_WINDOW) != 0 ?
                                (double)b.msg_size * rounds * b.opts.window / 1e6 / seconds :
                                seconds * 1e6 / rounds);
    }
    rma_cleanup(&b, &rma);
    return bench_finish(&b);
}

/* ---- data ---------------------------------------------------------------------------------- */

/* All messages of a window have bytes at rank `from`, others at the other rank. */
static void rma_prepare(bench_t *b, bench_rma_t *r, int from, int iteration)
{
    const bench_slots_t *slots = b->rank == BENCH_RMA_TARGET ? &r->exposed : &r->local;

    for (int i = 0; i < slots->count; i++) {
        (b->rank == from ? bench_fill : bench_poison)(b, bench_slot(slots, i), b->msg_size,
                                                      bench_seed(iteration, from, 1 - from, i));
    }
}

static void rma_check(bench_t *b, bench_rma_t *r, int from, int iteration)
{
    const bench_slots_t *slots = b->rank == BENCH_RMA_TARGET ? &r->exposed : &r->local;

    for (int i = 0; i < slots->count && b->rank != from; i++) {
        bench_check(b, bench_slot(slots, i), b->msg_size, bench_seed(iteration, from, b->rank, i),
                    iteration);
    }
}

void bench_rma_prepare_put(bench_t *b, bench_rma_t *r, int iteration)
{
    rma_prepare(b, r, 1 - BENCH_RMA_TARGET, iteration);
}

void bench_rma_check_put(bench_t *b, bench_rma_t *r, int iteration)
{
    rma_check(b, r, 1 - BENCH_RMA_TARGET, iteration);
}

void bench_rma_prepare_get(bench_t *b, bench_rma_t *r, int iteration)
{
    rma_prepare(b, r, BENCH_RMA_TARGET, iteration);
}

void bench_rma_check_get(bench_t *b, bench_rma_t *r, int iteration)
{
    rma_check(b, r, BENCH_RMA_TARGET, iteration);
}

void bench_rma_prepare_sum(bench_t *b, bench_rma_t *r, int iteration)
{
    char *message = b->rank == BENCH_RMA_TARGET ? bench_slot(&r->exposed, 0) :
                                                  bench_slot(&r->local, 0);

    bench_fill(b, message, b->msg_size, bench_rma_seed(b->rank, iteration));
    if (b->rank != BENCH_RMA_TARGET) {
        bench_poison(b, bench_slot(&r->local, 1), b->msg_size,
                     bench_rma_seed(BENCH_RMA_TARGET, iteration));
    }
}

void bench_rma_check_sum(bench_t *b, bench_rma_t *r, int iteration)
{
    uint64_t *words = (void *)bench_slot(&r->exposed, 0);
    uint64_t  added = bench_rma_seed(1 - BENCH_RMA_TARGET, iteration);

    if (b->rank == BENCH_RMA_TARGET) {
        for (size_t i = 0; i < b->msg_size / sizeof(*words); i++) {
            words[i] -= data_word(added, i);
        }
        bench_check(b, words, b->msg_size, bench_rma_seed(BENCH_RMA_TARGET, iteration), iteration);
    }
}

void bench_rma_check_fetched(bench_t *b, bench_rma_t *r, int iteration)
{
    bench_rma_check_sum(b, r, iteration);
    if (b->rank != BENCH_RMA_TARGET) {
        bench_check(b, bench_slot(&r->local, 1), b->msg_size,
                    bench_rma_seed(BENCH_RMA_TARGET, iteration), iteration);
    }
}

static bool rma_swaps(int iteration)
{
    return iteration % 2 == 0;
}

void bench_rma_prepare_swap(bench_t *b, bench_rma_t *r, int iteration)
{
    uint64_t before = bench_rma_seed(BENCH_RMA_TARGET, iteration);

    if (b->rank == BENCH_RMA_TARGET) {
        bench_fill(b, bench_slot(&r->exposed, 0), b->msg_size, before);
        return;
    }
    bench_fill(b, bench_slot(&r->local, BENCH_RMA_SENT), b->msg_size,
               bench_rma_seed(b->rank, iteration));
    bench_poison(b, bench_slot(&r->local, BENCH_RMA_FETCHED), b->msg_size, before);
    (rma_swaps(iteration) ? bench_fill : bench_poison)(b, bench_slot(&r->local, BENCH_RMA_EXPECTED),
                                                       b->msg_size, before);
}

void bench_rma_check_swap(bench_t *b, bench_rma_t *r, int iteration)
{
    uint64_t before = bench_rma_seed(BENCH_RMA_TARGET, iteration);
    uint64_t after  = bench_rma_seed(1 - BENCH_RMA_TARGET, iteration);

    if (b->rank != BENCH_RMA_TARGET) {
        bench_check(b, bench_slot(&r->local, BENCH_RMA_FETCHED), b->msg_size, before, iteration);
    } else {
        bench_check(b, bench_slot(&r->exposed, 0), b->msg_size,
                    rma_swaps(iteration) ? after : before, iteration);
    }
}
