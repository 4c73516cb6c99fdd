/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accumulates in windows whose info says something of them: that all are of single elements, that
 * there are no locks.
 */
#include "mpi_test.h"

#include <string.h>

#define WORDS  24 /* of a window */
#define ROUNDS 800

static MPI_Win told_window(const char *key, long *words, int unit)
{
    MPI_Info info;
    MPI_Win  win;

    MPI_Info_create(&info);
    MPI_Info_set(info, key, "true");
    MPI_Win_create(words, (MPI_Aint)(WORDS * sizeof(*words)), unit, info, MPI_COMM_WORLD, &win);
    MPI_Info_free(&info);
    return win;
}

/* All ranks have added to the second word of rank 0 in each round. */
static void close_with_sum(MPI_Win win, const long *words)
{
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(win);
    MT_CHECK(words[1] == (mt.rank == 0 ? ROUNDS * mt.size : 0), "the sum is %ld", words[1]);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
}

/* All ways of adding to a word take the same way, where it lies in units and in bytes. */
static void single_sums(void)
{
    long        words[WORDS] = {0}, one = 1, old;
    MPI_Win     win = told_window("acc_single_intrinsic", words, sizeof(long));
    MPI_Request request;

    MPI_Win_lock_all(0, win);
    for (int i = 0; i < ROUNDS; ++i) {
        switch ((i + mt.rank) % 4) {
        case 0:
            MPI_Accumulate(&one, 1, MPI_LONG, 0, 1, 1, MPI_LONG, MPI_SUM, win);
            break;
        case 1:
            MPI_Get_accumulate(&one, 1, MPI_LONG, &old, 1, MPI_LONG, 0, 1, 1, MPI_LONG, MPI_SUM,
                               win);
            break;
        case 2:
            MPI_Raccumulate(&one, 1, MPI_LONG, 0, 1, 1, MPI_LONG, MPI_SUM, win, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            break;
        default:
            MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 1, MPI_SUM, win);
        }
        MPI_Win_flush(0, win);
    }
    close_with_sum(win, words);
}

/* A complex number is no word, whatever its length. */
static void single_complex(void)
{
    long           words[WORDS] = {0};
    float          value[2]     = {1, 2}, old[2];
    const MPI_Op   ops[]        = {MPI_REPLACE, MPI_SUM, MPI_NO_OP, MPI_SUM};
    const int      becomes[]    = {1, 2, 2, 3};
    const MPI_Aint place        = 8;
    MPI_Win        win          = told_window("acc_single_intrinsic", words, sizeof(long));

    MPI_Win_lock_all(0, win);
    for (size_t i = 0; i < MT_COUNT(ops); ++i) {
        MPI_Get_accumulate(value, 1, MPI_C_FLOAT_COMPLEX, old, 1, MPI_C_FLOAT_COMPLEX, mt.rank,
                           place, 1, MPI_C_FLOAT_COMPLEX, ops[i], win);
        MPI_Win_flush(mt.rank, win);
        MT_CHECK(i == 0 || (old[0] == (float)becomes[i - 1] && old[1] == 2 * old[0]),
                 "operation %zu told %g, %g", i, (double)old[0], (double)old[1]);
        memcpy(old, &words[place], sizeof(old));
        MT_CHECK(old[0] == (float)becomes[i] && old[1] == 2 * old[0], "operation %zu left %g, %g",
                 i, (double)old[0], (double)old[1]);
    }
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
}

/* The result may lie anywhere. */
static void single_result(void)
{
    long         words[WORDS] = {0}, one = 1, results[3] = {-1, -1, -1};
    MPI_Win      win = told_window("acc_single_intrinsic", words, sizeof(long));
    MPI_Datatype second;

    MPI_Type_create_hindexed(1, (const int[]){1}, (const MPI_Aint[]){8}, MPI_LONG, &second);
    MPI_Type_commit(&second);
    MPI_Win_lock_all(0, win);
    MPI_Get_accumulate(&one, 1, MPI_LONG, results, 1, second, mt.rank, 1, 1, MPI_LONG, MPI_SUM,
                       win);
    MPI_Win_unlock_all(win);
    MT_CHECK(results[0] == -1 && results[1] == 0 && results[2] == -1, "results %ld, %ld, %ld",
             results[0], results[1], results[2]);
    MPI_Type_free(&second);
    MPI_Win_free(&win);
}

/* What MPI_Win_set_info() says later changes nothing: some ranks may be adding by then. */
static void single_told_later(void)
{
    long     words[WORDS] = {0}, one = 1, old;
    MPI_Win  win = told_window("acc_single_intrinsic", words, sizeof(long));
    MPI_Info info;

    MPI_Info_create(&info);
    MPI_Info_set(info, "acc_single_intrinsic", "false");
    MPI_Win_set_info(win, info);
    MPI_Info_free(&info);
    MPI_Win_lock_all(0, win);
    for (int i = 0; i < ROUNDS; ++i) {
        if ((i + mt.rank) % 2) {
            MPI_Accumulate(&one, 1, MPI_LONG, 0, 1, 1, MPI_LONG, MPI_SUM, win);
        } else {
            MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 1, MPI_SUM, win);
        }
        MPI_Win_flush(0, win);
    }
    close_with_sum(win, words);
}

static void no_locks(void)
{
    long    words[WORDS] = {0}, ones[WORDS], old = -1;
    MPI_Win win = told_window("no_locks", words, 1);

    for (int i = 0; i < WORDS; ++i) {
        ones[i] = 1;
    }
    MPI_Win_fence(0, win);
    MPI_Accumulate(ones, WORDS, MPI_LONG, 0, 0, WORDS, MPI_LONG, MPI_SUM, win);
    MPI_Win_fence(0, win);
    MPI_Fetch_and_op(ones, &old, MPI_LONG, 0, 8, MPI_NO_OP, win);
    MPI_Win_fence(0, win);
    MT_CHECK(old == mt.size, "the sum is %ld", old);
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    mt_start(&argc, &argv, MPI_THREAD_SINGLE, "Accumulates and the info of windows.",
             (mt_state_t){.timeout = 60});
    mt_run("single elements: sums by all ranks", 2, single_sums);
    mt_run("single elements: complex numbers", 1, single_complex);
    mt_run("single elements: a result with an offset", 1, single_result);
    mt_run("single elements: what is said later", 2, single_told_later);
    mt_run("no locks", 1, no_locks);
    return mt_finish();
}
