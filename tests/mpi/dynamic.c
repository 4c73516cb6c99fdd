/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dynamic windows with many regions, attached and detached in several orders: each is found, by
 * each operation, and one that was detached is gone.
 */
#include "mpi_test.h"

#include <stdlib.h>
#include <string.h>

#define REGIONS 12
#define STRIDE  ((size_t)65536) /* from one region to the next */
#define BYTES   ((size_t)8192)  /* of a region; twice as many when it is attached again */

typedef struct {
    MPI_Win        win;
    unsigned char *base;
    MPI_Aint      *addresses; /* of each rank's base */
} arena_t;

static unsigned char *region(const arena_t *arena, int i)
{
    return arena->base + (size_t)i * STRIDE;
}

static MPI_Aint at(const arena_t *arena, int target, int i, size_t offset)
{
    return MPI_Aint_add(arena->addresses[target], (MPI_Aint)((size_t)i * STRIDE + offset));
}

static arena_t arena_open(void)
{
    arena_t  arena;
    MPI_Aint address;

    arena.base      = mt_alloc(REGIONS * STRIDE);
    arena.addresses = mt_alloc((size_t)mt.size * sizeof(*arena.addresses));
    MPI_Get_address(arena.base, &address);
    MPI_Allgather(&address, 1, MPI_AINT, arena.addresses, 1, MPI_AINT, MPI_COMM_WORLD);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &arena.win);
    MPI_Win_lock_all(0, arena.win);
    return arena;
}

static void arena_close(arena_t *arena)
{
    MPI_Win_unlock_all(arena->win);
    MPI_Win_free(&arena->win);
    free(arena->addresses);
    free(arena->base);
}

/* Each rank writes a part of the next rank's region, and reads it again. */
static void check_region(const arena_t *arena, int i, size_t offset, uint64_t seq)
{
    int         target = (mt.rank + 1) % mt.size, origin = (mt.rank + mt.size - 1) % mt.size;
    size_t      length = BYTES / 4;
    mt_buf_t    out = mt_buf_alloc(length, 0), in = mt_buf_alloc(length, 0);
    long        one = 1, old = -1, word;
    MPI_Request request;

    memset(region(arena, i) + offset, 0, BYTES);
    MPI_Win_sync(arena->win);
    MPI_Barrier(MPI_COMM_WORLD);

    data_fill(out.data, length, mt_key(mt.rank, target, i, seq));
    MPI_Put(out.data, (int)length, MPI_BYTE, target, at(arena, target, i, offset), (int)length,
            MPI_BYTE, arena->win);
    MPI_Win_flush(target, arena->win);
    MPI_Get(in.data, (int)length, MPI_BYTE, target, at(arena, target, i, offset), (int)length,
            MPI_BYTE, arena->win);
    MPI_Win_flush(target, arena->win);
    mt_buf_verify(&in, mt_key(mt.rank, target, i, seq), "put and get");

    MPI_Rput(out.data, (int)length, MPI_BYTE, target, at(arena, target, i, offset + length),
             (int)length, MPI_BYTE, arena->win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_flush(target, arena->win);
    data_fill(in.data, length, 0);
    MPI_Rget(in.data, (int)length, MPI_BYTE, target, at(arena, target, i, offset + length),
             (int)length, MPI_BYTE, arena->win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    mt_buf_verify(&in, mt_key(mt.rank, target, i, seq), "Rput and Rget");

    for (long n = 0; n < 3; ++n) {
        MPI_Fetch_and_op(&one, &old, MPI_LONG, target, at(arena, target, i, offset + 2 * length),
                         MPI_SUM, arena->win);
        MPI_Win_flush(target, arena->win);
        MT_CHECK(old == n, "region %d: fetched %ld, expected %ld", i, old, n);
        MPI_Accumulate(&one, 1, MPI_LONG, target,
                       at(arena, target, i, offset + 2 * length + sizeof(long)), 1, MPI_LONG,
                       MPI_SUM, arena->win);
        MPI_Win_flush(target, arena->win);
        MPI_Get_accumulate(&n, 1, MPI_LONG, &old, 1, MPI_LONG, target,
                           at(arena, target, i, offset + 2 * length + 2 * sizeof(long)), 1,
                           MPI_LONG, MPI_REPLACE, arena->win);
        MPI_Win_flush(target, arena->win);
        MT_CHECK(old == (n == 0 ? 0 : n - 1), "region %d: replaced %ld", i, old);
    }

    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(arena->win);
    mt_verify(region(arena, i) + offset, length, mt_key(origin, mt.rank, i, seq), "a put");
    mt_verify(region(arena, i) + offset + length, length, mt_key(origin, mt.rank, i, seq),
              "an Rput");
    memcpy(&word, region(arena, i) + offset + 2 * length + sizeof(long), sizeof(word));
    MT_CHECK(word == 3, "region %d: the sum is %ld", i, word);
    mt_buf_free(&out);
    mt_buf_free(&in);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* In the order of the table; then every second is detached, and comes again, longer. */
static void check_order(const int order[REGIONS])
{
    arena_t  arena = arena_open();
    uint64_t seq   = 0;
    int      i;

    for (i = 0; i < REGIONS; ++i) {
        MPI_Win_attach(arena.win, region(&arena, order[i]), (MPI_Aint)BYTES);
        check_region(&arena, order[i], 0, ++seq);
        check_region(&arena, order[0], 0, ++seq);
    }
    for (i = 0; i < REGIONS; ++i) {
        check_region(&arena, i, 0, ++seq);
    }
    for (i = 0; i < REGIONS; i += 2) {
        MPI_Win_detach(arena.win, region(&arena, order[i]));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (i = 1; i < REGIONS; i += 2) {
        check_region(&arena, order[i], 0, ++seq);
    }
    for (i = 0; i < REGIONS; i += 2) {
        MPI_Win_attach(arena.win, region(&arena, order[i]), (MPI_Aint)(2 * BYTES));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (i = 0; i < REGIONS; ++i) {
        check_region(&arena, order[i], (i % 2 == 0) ? BYTES : 0, ++seq);
    }
    for (i = 0; i < REGIONS; ++i) {
        MPI_Win_detach(arena.win, region(&arena, order[i]));
    }
    arena_close(&arena);
}

static void test_rising(void)
{
    int order[REGIONS];

    for (int i = 0; i < REGIONS; ++i) {
        order[i] = i;
    }
    check_order(order);
}

static void test_falling(void)
{
    int order[REGIONS];

    for (int i = 0; i < REGIONS; ++i) {
        order[i] = REGIONS - 1 - i;
    }
    check_order(order);
}

static void test_mixed(void)
{
    int order[REGIONS];

    for (int i = 0; i < REGIONS; ++i) {
        order[i] = (5 * i + 3) % REGIONS; /* 5 and 12 have no common divisor */
    }
    check_order(order);
}

/* More often than a window has room for regions, between two others. */
static void test_often(void)
{
    arena_t arena = arena_open();

    MPI_Win_attach(arena.win, region(&arena, 0), (MPI_Aint)BYTES);
    MPI_Win_attach(arena.win, region(&arena, 9), (MPI_Aint)BYTES);
    for (int round = 1; round < 100; ++round) {
        int i = 1 + round % 8;

        MPI_Win_attach(arena.win, region(&arena, i), (MPI_Aint)BYTES);
        check_region(&arena, i, 0, (uint64_t)round);
        MPI_Win_detach(arena.win, region(&arena, i));
        check_region(&arena, (round % 2) ? 0 : 9, 0, (uint64_t)round);
    }
    MPI_Win_detach(arena.win, region(&arena, 0));
    MPI_Win_detach(arena.win, region(&arena, 9));
    arena_close(&arena);
}

/* Each begins where the one before it ended, below it, and takes its place. */
static void test_sliding(void)
{
    arena_t arena = arena_open();
    int     steps = (int)(REGIONS * STRIDE / BYTES);

    for (int step = steps - 1; step >= 0; --step) {
        size_t offset = (size_t)step * BYTES;

        MPI_Win_attach(arena.win, arena.base + offset, (MPI_Aint)BYTES);
        check_region(&arena, 0, offset, (uint64_t)step);
        if (step != steps - 1) {
            MPI_Win_detach(arena.win, arena.base + offset + BYTES);
        }
    }
    MPI_Win_detach(arena.win, arena.base);
    arena_close(&arena);
}

/* Regions of one byte, and of none. */
static void test_tiny(void)
{
    arena_t       arena  = arena_open();
    int           target = (mt.rank + 1) % mt.size, origin = (mt.rank + mt.size - 1) % mt.size;
    unsigned char byte = (unsigned char)(100 + mt.rank), got;
    MPI_Request   request;

    for (int round = 0; round < 50; ++round) {
        arena.base[7] = 0;
        MPI_Win_sync(arena.win);
        MPI_Win_attach(arena.win, arena.base + 100, 0);
        MPI_Win_attach(arena.win, arena.base + 7, 1);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Put(&byte, 1, MPI_BYTE, target, at(&arena, target, 0, 7), 1, MPI_BYTE, arena.win);
        MPI_Put(&byte, 0, MPI_BYTE, target, at(&arena, target, 0, 5000), 0, MPI_BYTE, arena.win);
        MPI_Accumulate(&byte, 0, MPI_BYTE, target, at(&arena, target, 0, 5000), 0, MPI_BYTE,
                       MPI_REPLACE, arena.win);
        MPI_Rget(&byte, 0, MPI_BYTE, target, at(&arena, target, 0, 5000), 0, MPI_BYTE, arena.win,
                 &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Win_flush(target, arena.win);
        MPI_Get(&got, 1, MPI_BYTE, target, at(&arena, target, 0, 7), 1, MPI_BYTE, arena.win);
        MPI_Win_flush(target, arena.win);
        MT_CHECK(got == byte, "got %d", got);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_sync(arena.win);
        MT_CHECK(arena.base[7] == 100 + origin, "the byte is %d", arena.base[7]);
        MPI_Win_detach(arena.win, arena.base + 7);
        MPI_Win_detach(arena.win, arena.base + 100);
    }
    arena_close(&arena);
}

/* Windows one behind the other, and two at once. */
static void test_windows(void)
{
    int         next = (mt.rank + 1) % mt.size;
    mt_window_t first, second;
    long        value = mt.rank, got;

    for (int round = 0; round < mt.iters; ++round) {
        first  = mt_window_open(MT_DYNAMIC, BYTES, MPI_INFO_NULL);
        second = mt_window_open(MT_DYNAMIC, BYTES, MPI_INFO_NULL);
        MPI_Win_lock_all(0, first.win);
        MPI_Win_lock_all(0, second.win);
        MPI_Put(&value, 1, MPI_LONG, next, mt_window_at(&first, next, 0), 1, MPI_LONG, first.win);
        MPI_Put(&value, 1, MPI_LONG, next, mt_window_at(&second, next, 8), 1, MPI_LONG, second.win);
        MPI_Win_unlock_all(second.win);
        MPI_Win_unlock_all(first.win);
        MPI_Barrier(MPI_COMM_WORLD);
        memcpy(&got, first.base, sizeof(got));
        MT_CHECK(got == (mt.rank + mt.size - 1) % mt.size, "the first window has %ld", got);
        memcpy(&got, second.base + 8, sizeof(got));
        MT_CHECK(got == (mt.rank + mt.size - 1) % mt.size, "the second window has %ld", got);
        mt_window_close(&first);
        mt_window_close(&second);
    }
}

int main(int argc, char **argv)
{
    mt_start(&argc, &argv, MPI_THREAD_SINGLE, "dynamic windows", (mt_state_t){.iters = 10});
    mt_run("regions attached in rising order", 1, test_rising);
    mt_run("regions attached in falling order", 1, test_falling);
    mt_run("regions attached in mixed order", 1, test_mixed);
    mt_run("regions attached and detached often", 1, test_often);
    mt_run("regions that take each other's place", 1, test_sliding);
    mt_run("tiny regions", 1, test_tiny);
    mt_run("windows", 1, test_windows);
    return mt_finish();
}
