/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI job of two ranks for the fault tests: rank 0 makes one call on rank 1's window that can't be
 * performed. See usage(). Says so if it went on, or if the target's memory changed.
 */
#define _GNU_SOURCE
#include "fault_common.h"

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define LENGTH ((MPI_Aint)65536)
#define LONG   8192 /* of `put-long` and `get-long` */

enum { PUT, PUT_LONG, GET, GET_LONG, ACC, FOP, CAS };
enum { BEYOND, BEFORE, MISALIGNED, READONLY, GONE };

static const char *const window_names[] = {"allocated", "created", NULL};
static const char *const call_names[]   = {"put", "put-long", "get", "get-long",
                                           "acc", "fop",      "cas", NULL};
static const char *const harm_names[]   = {"beyond",   "before", "misaligned",
                                           "readonly", "gone",   NULL};

static void usage(void)
{
    puts("Usage: fault_window created|allocated HARM CALL\n"
         "  HARM  beyond: behind the window; before: in front of it; misaligned: an atomic;\n"
         "        readonly: the target may only read its memory; gone: it has unmapped it\n"
         "  CALL  put, put-long, get, get-long, acc, fop, cas");
    exit(FAULT_HARNESS);
}

static void call(int which, MPI_Aint at, MPI_Win win)
{
    static char           bytes[LONG];
    static const uint64_t one = 1, other = 0;
    static uint64_t       result;

    switch (which) {
    case PUT:
        MPI_Put(&one, sizeof(one), MPI_BYTE, 1, at, sizeof(one), MPI_BYTE, win);
        break;
    case PUT_LONG:
        MPI_Put(bytes, LONG, MPI_BYTE, 1, at, LONG, MPI_BYTE, win);
        break;
    case GET:
        MPI_Get(&result, sizeof(result), MPI_BYTE, 1, at, sizeof(result), MPI_BYTE, win);
        break;
    case GET_LONG:
        MPI_Get(bytes, LONG, MPI_BYTE, 1, at, LONG, MPI_BYTE, win);
        break;
    case ACC:
        MPI_Accumulate(&one, 1, MPI_UINT64_T, 1, at, 1, MPI_UINT64_T, MPI_SUM, win);
        break;
    case FOP:
        MPI_Fetch_and_op(&one, &result, MPI_UINT64_T, 1, at, MPI_SUM, win);
        break;
    default:
        MPI_Compare_and_swap(&one, &other, &result, MPI_UINT64_T, 1, at, win);
    }
}

int main(int argc, char **argv)
{
    static const MPI_Aint places[] = {[BEYOND] = LENGTH, [BEFORE] = -8, [MISALIGNED] = 3};
    const struct rlimit   no_core  = {0, 0};
    int                   created, harm, which, rank;
    char                 *memory;
    MPI_Win               win;

    if (argc != 4) {
        usage();
    }
    created = fault_find_name(window_names, argv[1]);
    harm    = fault_find_name(harm_names, argv[2]);
    which   = fault_find_name(call_names, argv[3]);
    setrlimit(RLIMIT_CORE, &no_core);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (created) {
        memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            fault_end(FAULT_HARNESS, "out of memory");
        }
        MPI_Win_create(memory, LENGTH, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    } else {
        MPI_Win_allocate(LENGTH, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    }
    memset(memory, 0, LENGTH);
    if (rank == 1 &&
        ((harm == READONLY && mprotect(memory, LENGTH, PROT_READ) != 0) ||
         (harm == GONE && mmap(memory, LENGTH, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS,
                               -1, 0) == MAP_FAILED))) {
        fault_end(FAULT_HARNESS, "the memory stays as it was");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    if (rank == 0) {
        call(which, harm < READONLY ? places[harm] : 0, win);
        MPI_Win_flush(1, win);
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (harm == MISALIGNED && memory[places[harm]] == 1) {
        memory[places[harm]] = 0; /* it was performed, and whole */
    }
    for (MPI_Aint i = 0; harm != GONE && i < LENGTH; ++i) {
        if (memory[i] != 0) {
            fault_end(FAULT_WRONG, "byte %ld has changed", (long)i);
        }
    }
    MPI_Win_free(&win);
    MPI_Finalize();
    puts("went on");
    return FAULT_OK;
}
