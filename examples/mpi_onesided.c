/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided MPI: all ranks put their number into rank 0's window, and count in a word of it.
 *
 *     mpicc -o mpi_onesided mpi_onesided.c
 *     mpirun -np 2 -x UCX_TLS=angara,self ./mpi_onesided
 *
 * Within one node Open MPI keeps windows that MPI_Win_allocate makes to itself (osc/sm); those of
 * MPI_Win_create, as here, go by UCX.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const long one = 1;
    int        rank, size, bad = 0;
    long      *memory, before;
    MPI_Win    window;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    memory = calloc((size_t)size + 1, sizeof(*memory)); /* the numbers, then the count */
    MPI_Win_create(memory, (MPI_Aint)((size_t)size + 1) * sizeof(*memory), sizeof(*memory),
                   MPI_INFO_NULL, MPI_COMM_WORLD, &window);

    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Put(&(long){rank + 1}, 1, MPI_LONG, 0, rank, 1, MPI_LONG, window);
    MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, size, MPI_SUM, window);
    MPI_Win_unlock(0, window);

    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        for (int i = 0; i < size; ++i) {
            bad |= memory[i] != i + 1;
        }
        bad |= memory[size] != size;
        printf("%d ranks have put and counted: %s\n", size, bad ? "wrong" : "right");
        MPI_Win_unlock(0, window);
    }
    MPI_Win_free(&window);
    free(memory);
    MPI_Finalize();
    return bad;
}
