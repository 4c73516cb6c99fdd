/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accumulates of one-sided communication by many ranks at once on many elements, and with buffers
 * and types of unusual shapes.
 */
#include "mpi_test.h"

#include <stdlib.h>
#include <string.h>

/* ---- swaps of many elements ------------------------------------------------------------------ */

#define SWAPPED 4096

/* All ranks put values of their own in the place of others. None is lost, none is told twice: the
 * sums agree for each element. */
static void swaps_of(bool is_strided)
{
    size_t       bytes = SWAPPED * sizeof(long), rounds = 40;
    long        *mine = mt_alloc(2 * bytes), *told = mt_alloc(bytes), *sums = mt_alloc(bytes);
    long        *all = mt_alloc(bytes), *base;
    MPI_Datatype every_second;
    MPI_Win      win;

    MPI_Type_vector(SWAPPED, 1, 2, MPI_LONG, &every_second);
    MPI_Type_commit(&every_second);
    base = mt_alloc(bytes);
    memset(base, 0, bytes);
    memset(sums, 0, bytes);
    MPI_Win_create(base, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_lock_all(0, win);
    for (size_t round = 0; round < rounds; ++round) {
        for (size_t i = 0; i < SWAPPED; ++i) {
            long value = 1 + (long)(round * (size_t)mt.size + (size_t)mt.rank);

            mine[is_strided ? 2 * i : i] = value;
            sums[i] += value;
        }
        memset(told, 0xff, bytes);
        MPI_Get_accumulate(mine, is_strided ? 1 : SWAPPED, is_strided ? every_second : MPI_LONG,
                           told, SWAPPED, MPI_LONG, 0, 0, SWAPPED, MPI_LONG, MPI_REPLACE, win);
        MPI_Win_flush(0, win);
        for (size_t i = 0; i < SWAPPED; ++i) {
            sums[i] -= told[i];
        }
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Reduce(sums, all, SWAPPED, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, mt.rank, 0, win);
    for (size_t i = 0; mt.rank == 0 && i < SWAPPED; ++i) {
        MT_CHECK(base[i] == all[i], "element %zu is %ld, not %ld", i, base[i], all[i]);
    }
    MPI_Win_unlock(mt.rank, win);
    MPI_Win_free(&win);
    MPI_Type_free(&every_second);
    free(mine);
    free(told);
    free(sums);
    free(all);
    free(base);
}

/* Who reads elements of 16 bytes while others add to both halves sees halves that belong together.
 */
static void reads(void)
{
    size_t       count = 2048, bytes = count * 2 * sizeof(double);
    double      *base = mt_alloc(bytes), *mine = mt_alloc(bytes), *told = mt_alloc(bytes);
    MPI_Datatype apart;
    MPI_Win      win;

    memset(base, 0, bytes);
    for (size_t i = 0; i < 2 * count; ++i) {
        mine[i] = 1;
    }
    MPI_Type_vector((int)count / 2, 1, 2, MPI_C_DOUBLE_COMPLEX, &apart); /* 1024 runs */
    MPI_Type_commit(&apart);
    MPI_Win_create(base, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_lock_all(0, win);
    for (int round = 0; round < 30; ++round) {
        MPI_Accumulate(mine, (int)count / 2, MPI_C_DOUBLE_COMPLEX, 0, 0, 1, apart, MPI_SUM, win);
        MPI_Win_flush(0, win);
        MPI_Get_accumulate(NULL, 0, MPI_C_DOUBLE_COMPLEX, told, (int)count, MPI_C_DOUBLE_COMPLEX, 0,
                           0, (int)count, MPI_C_DOUBLE_COMPLEX, MPI_NO_OP, win);
        MPI_Win_flush(0, win);
        for (size_t i = 0; i < count; ++i) {
            MT_CHECK(told[2 * i] == told[2 * i + 1], "element %zu: %g, %g", i, told[2 * i],
                     told[2 * i + 1]);
        }
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, mt.rank, 0, win);
    for (size_t i = 0; mt.rank == 0 && i < 2 * count; ++i) {
        double wanted = (i / 2 % 2 == 0) ? 30 * mt.size : 0;

        MT_CHECK(base[i] == wanted, "number %zu is %g, not %g", i, base[i], wanted);
    }
    MPI_Win_unlock(mt.rank, win);
    MPI_Win_free(&win);
    MPI_Type_free(&apart);
    free(base);
    free(mine);
    free(told);
}

static void swaps(void)
{
    swaps_of(false);
    swaps_of(true);
}

/* ---- buffers and types of other shapes ------------------------------------------------------- */

/* A result whose type has addresses; a type with another extent; an epoch of fences. */
static void shapes(void)
{
    int          values[8] = {1, 2, 3, 4, 5, 6, 7, 8}, olds[8] = {0}, base[16], where;
    int          peer = (mt.rank + 1) % mt.size;
    MPI_Datatype absolute, sparse;
    MPI_Aint     address;
    MPI_Win      win;

    for (int i = 0; i < 16; ++i) {
        base[i] = 100 + i;
    }
    MPI_Get_address(olds, &address);
    where = 8;
    MPI_Type_create_hindexed(1, &where, &address, MPI_INT, &absolute);
    MPI_Type_create_resized(MPI_INT, 0, 2 * (MPI_Aint)sizeof(int), &sparse);
    MPI_Type_commit(&absolute);
    MPI_Type_commit(&sparse);
    MPI_Win_create(base, sizeof(base), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    MPI_Get_accumulate(values, 8, MPI_INT, MPI_BOTTOM, 1, absolute, peer, 0, 8, sparse, MPI_SUM,
                       win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < 16; ++i) {
        int wanted = 100 + i + ((i % 2 == 0) ? 1 + i / 2 : 0);

        MT_CHECK(base[i] == wanted, "element %d is %d, not %d", i, base[i], wanted);
    }
    for (int i = 0; i < 8; ++i) {
        MT_CHECK(olds[i] == 100 + 2 * i, "told %d at %d", olds[i], i);
    }
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
    MPI_Type_free(&absolute);
    MPI_Type_free(&sparse);
}

/* Elements of 8 bytes where a word of 8 bytes can't lie, and of Fortran's types. */
static void complex_numbers(void)
{
    float    number[2] = {1, 2}, old[2] = {-1, -1}, base[8] = {0};
    int      peer = (mt.rank + 1) % mt.size;
    MPI_Win  win;
    MPI_Aint at = sizeof(float);

    MPI_Win_create(base, sizeof(base), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_lock_all(0, win);
    for (int i = 0; i < 3; ++i) {
        MPI_Fetch_and_op(number, old, MPI_C_FLOAT_COMPLEX, peer, at, MPI_SUM, win);
        MPI_Win_flush(peer, win);
        MT_CHECK(old[0] == (float)i && old[1] == (float)(2 * i), "sum %d told %g, %g", i,
                 (double)old[0], (double)old[1]);
    }
    MPI_Fetch_and_op(NULL, old, MPI_C_FLOAT_COMPLEX, peer, at, MPI_NO_OP, win);
    MPI_Win_flush(peer, win);
    MT_CHECK(old[0] == 3 && old[1] == 6, "%g, %g", (double)old[0], (double)old[1]);
    MPI_Fetch_and_op(number, old, MPI_C_FLOAT_COMPLEX, peer, at, MPI_REPLACE, win);
    MPI_Win_flush(peer, win);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MT_CHECK(base[0] == 0 && base[1] == 1 && base[2] == 2 && base[3] == 0, "%g, %g",
             (double)base[1], (double)base[2]);
    MPI_Win_free(&win);
}

#define MANY 4096 /* elements with a gap behind each */

/* What many runs of bytes became, of which each second one belongs to the target's type. */
static void check_runs(const long *found, long even, const char *what)
{
    for (int i = 0; i < 2 * MANY; ++i) {
        long expected = (i % 2) ? 0 : even + i / 2;

        if (found[i] != expected) {
            MT_CHECK(false, "%s: element %d is %ld, expected %ld", what, i, found[i], expected);
            return;
        }
    }
}

/* More pieces than a transport has under way at once, in every kind of window, with and without
 * a result. */
static void many_runs_of(mt_window_kind_t kind)
{
    size_t       bytes  = 2 * MANY * sizeof(long);
    long        *values = mt_alloc(bytes), *old = mt_alloc(bytes), *now = mt_alloc(bytes);
    int          peer   = (mt.rank + 1) % mt.size;
    mt_window_t  window = mt_window_open(kind, bytes * (size_t)mt.size, MPI_INFO_NULL);
    MPI_Aint     place  = mt_window_at(&window, peer, bytes * (size_t)mt.rank);
    MPI_Datatype runs;
    MPI_Request  request;

    MPI_Type_vector(MANY, 1, 2, MPI_LONG, &runs);
    MPI_Type_commit(&runs);
    MPI_Win_lock_all(0, window.win);
    for (int i = 0; i < MANY; ++i) {
        values[i] = 1000 + i;
    }
    MPI_Accumulate(values, MANY, MPI_LONG, peer, place, 1, runs, MPI_REPLACE, window.win);
    MPI_Win_flush(peer, window.win);
    memset(old, 0, bytes);
    MPI_Get_accumulate(NULL, 0, MPI_LONG, old, 1, runs, peer, place, 1, runs, MPI_NO_OP,
                       window.win);
    MPI_Win_flush(peer, window.win);
    check_runs(old, 1000, "MPI_NO_OP");
    memset(old, 0, bytes);
    MPI_Rget_accumulate(values, MANY, MPI_LONG, old, 1, runs, peer, place, 1, runs, MPI_SUM,
                        window.win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_runs(old, 1000, "MPI_SUM's result");
    for (int i = 0; i < MANY; ++i) {
        values[i] = 3000 + i;
    }
    memset(old, 0, bytes);
    MPI_Get_accumulate(values, MANY, MPI_LONG, old, 1, runs, peer, place, 1, runs, MPI_REPLACE,
                       window.win);
    MPI_Win_flush(peer, window.win);
    for (int i = 0; i < MANY; ++i) {
        old[2 * i] -= 1000 + i; /* twice what the first one left */
    }
    check_runs(old, 1000, "MPI_REPLACE's result");
    MPI_Get(now, (int)bytes, MPI_BYTE, peer, place, (int)bytes, MPI_BYTE, window.win);
    MPI_Win_flush(peer, window.win);
    check_runs(now, 3000, "MPI_REPLACE");
    MPI_Win_unlock_all(window.win);
    mt_window_close(&window);
    MPI_Type_free(&runs);
    free(values);
    free(old);
    free(now);
}

static void many_runs(void)
{
    for (int kind = 0; kind < MT_WINDOW_KINDS; ++kind) {
        many_runs_of((mt_window_kind_t)kind);
    }
}

int main(int argc, char **argv)
{
    mt_start(&argc, &argv, MPI_THREAD_SINGLE, "Accumulates of many elements.",
             (mt_state_t){.timeout = 60});
    mt_run("swaps of many elements lose none", 1, swaps);
    mt_run("reads among sums aren't torn", 1, reads);
    mt_run("results at addresses, other extents, between fences", 1, shapes);
    mt_run("complex numbers that aren't aligned as words", 1, complex_numbers);
    mt_run("thousands of runs of bytes", 1, many_runs);
    return mt_finish();
}
