/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages in GPU memory that can't go well, one job for each, by two ranks:
 *
 *   mpi_gpu_faults plain WHERE SIZE          by an environment that leaves GPUs out
 *   mpi_gpu_faults freed WHERE SIZE          the last message from or to memory that was freed
 *   mpi_gpu_faults wild WHERE SIZE           the last message from or to where there is no memory
 *   mpi_gpu_faults replace WHAT SIZE         MPI_Sendrecv_replace: plain, freed, or with gaps
 *   mpi_gpu_faults pack WHAT SIZE            good ones: MPI_Pack of plain, or managed memory
 *   mpi_gpu_faults lazy - SIZE               good ones, of memory that is opened when it is touched
 *   mpi_gpu_faults beyond WHERE SIZE         buffers that are shorter than the message
 *   mpi_gpu_faults room - SIZE               a good one, received with room for more than there is
 *   mpi_gpu_faults broken WHERE SIZE CALLS   a stand-in's driver whose calls fail
 *   mpi_gpu_faults ended - SIZE              a runtime that has ended before MPI_Finalize
 *
 * Prints what mustn't be: "nobody minds", "wrong data".
 */
#include "mpi_buffer.h"
#include "standin/standin.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TAG  11
#define GOOD 3 /* messages before the one that fails */

static void *place(int is_gpu, size_t size)
{
    return is_gpu ? gpu->alloc(device, size, DEVICE_PLAIN) : mt_alloc(size);
}

static void exchange(void *addr, size_t size)
{
    if (mt.rank == 0) {
        MPI_Send(addr, (int)size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    } else {
        MPI_Recv(addr, (int)size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void exchange_good(void *addr, size_t size)
{
    for (int i = 0; i < GOOD; ++i) {
        exchange(addr, size);
    }
}

/*
 * `size` bytes of buffers that have `room` of a GPU ("D"), or of enough on the host ("H"): "HD"
 * from the host to a GPU.
 */
static void run_plain(const char *where, size_t room, size_t size)
{
    exchange(where[mt.rank] == 'D' ? place(1, room) : place(0, size), size);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("nobody minds\n");
}

/* The message number i, in all bytes. */
static void fill(void *addr, size_t size, int is_gpu, int i)
{
    char *bytes = mt_alloc(size);

    memset(bytes, mt.rank == 0 ? i + 1 : 0, size);
    if (is_gpu) {
        gpu->write(addr, bytes, size);
    } else {
        memcpy(addr, bytes, size);
    }
    free(bytes);
}

/* The driver has failed: by the stand-in's own look. */
static void check(const standin_t *standin, const void *addr, size_t size, int i)
{
    char *bytes = mt_alloc(size);

    if (standin->read(addr, bytes, size) != 0) {
        memcpy(bytes, addr, size);
    }
    for (size_t at = 0; at < size && mt.rank == 1; ++at) {
        if (bytes[at] != i + 1) {
            printf("wrong data\n");
            break;
        }
    }
    free(bytes);
}

/* The receives have room for many bytes more than their buffers, which are as long as messages. */
static void run_room(const standin_t *standin, size_t size)
{
    void *addr = place(1, size);

    for (int i = 0; i <= GOOD; ++i) {
        fill(addr, size, 1, i);
        if (mt.rank == 0) {
            MPI_Send(addr, (int)size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        } else {
            MPI_Recv(addr, (int)size + 900000, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        check(standin, addr, size, i);
    }
    gpu->free(addr, DEVICE_PLAIN);
}

/*
 * After some good ones a message when the driver of one rank fails in some calls: at S the
 * sender's, at R the receiver's; the other end is H or D. MPI may give up, but what it delivers is
 * right.
 */
static void run_broken(const standin_t *standin, const char *where, size_t size, char *calls)
{
    int   is_broken = where[0] == (mt.rank == 0 ? 'S' : 'R');
    int   is_gpu    = is_broken || where[1] == 'D';
    void *addr      = place(is_gpu, size);

    for (int i = 0; i <= GOOD; ++i) {
        fill(addr, size, is_gpu, i);
        MPI_Barrier(MPI_COMM_WORLD);
        for (char *name = strtok(i == GOOD && is_broken ? calls : NULL, ","); name != NULL;
             name       = strtok(NULL, ",")) {
            standin->fail_call(name, 0, 700);
        }
        exchange(addr, size);
    }
    check(standin, addr, size, GOOD);
}

static void run_freed(const char *where, size_t size)
{
    int   is_gpu = where[mt.rank] == 'D';
    void *addr   = place(is_gpu, size);

    exchange_good(addr, size);
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_gpu) {
        gpu->free(addr, DEVICE_PLAIN);
    }
    exchange(addr, size);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("nobody minds\n");
}

/* W: an address that nobody maps. */
static void run_wild(const char *where, size_t size)
{
    char  end  = where[mt.rank];
    void *addr = place(end == 'D', size);

    exchange_good(addr, size);
    exchange(end == 'W' ? (void *)0x123456789000 : addr, size);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("nobody minds\n");
}

static void run_replace(const char *what, size_t size)
{
    size_t       block = strcmp(what, "gaps") == 0 ? size / 2 : size;
    void        *addr  = place(1, size);
    MPI_Datatype type;

    MPI_Type_create_resized(MPI_BYTE, 0, (MPI_Aint)(size / block), &type);
    MPI_Type_commit(&type);
    if (strcmp(what, "freed") == 0) {
        exchange_good(addr, size);
        MPI_Barrier(MPI_COMM_WORLD);
        gpu->free(addr, DEVICE_PLAIN);
    }
    MPI_Sendrecv_replace(addr, (int)block, type, !mt.rank, TAG, !mt.rank, TAG, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
    MPI_Type_free(&type);
    printf("nobody minds\n");
}

static void run_pack(const char *what, size_t size)
{
    int   is_managed = strcmp(what, "managed") == 0, position = 0;
    void *addr  = is_managed ? gpu->alloc(device, size, DEVICE_MANAGED) : place(1, size);
    char *bytes = mt_alloc(size), *packed = mt_alloc(size);

    memset(bytes, GOOD, size);
    gpu->write(addr, bytes, size);
    MPI_Pack(addr, (int)size, MPI_BYTE, packed, (int)size, &position, MPI_COMM_WORLD);
    if ((size_t)position != size || memcmp(packed, bytes, size) != 0) {
        printf("wrong data\n");
    }
    free(packed);
    free(bytes);
}

static void  *lazy;
static size_t lazy_size;

static void lazy_open(int signo)
{
    (void)signo;
    mprotect(lazy, lazy_size, PROT_READ | PROT_WRITE);
}

/* The program's own handler opens it, beside a GPU's memory that is in use. */
static void run_lazy(size_t size)
{
    exchange(place(1, size), size);
    lazy_size = size;
    lazy      = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGSEGV, lazy_open);
    exchange(lazy, size);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* As in a program whose runtime's destructor comes first: MPI keeps registrations and mappings. */
static void run_ended(const standin_t *standin, size_t size)
{
    void *addr = place(1, size);

    for (int i = 0; i < GOOD; ++i) {
        fill(addr, size, 1, i);
        MPI_Barrier(MPI_COMM_WORLD);
        exchange(addr, size);
    }
    check(standin, addr, size, GOOD - 1);
    MPI_Barrier(MPI_COMM_WORLD);
    standin->deinit();
}

int main(int argc, char **argv)
{
    standin_t standin;
    size_t    size;
    int       has_standin;

    if (argc < 4 || (strcmp(argv[1], "broken") == 0) != (argc == 5)) {
        fprintf(stderr, "see the head of mpi_gpu_faults.c\n");
        return 2;
    }
    size = strtoul(argv[3], NULL, 0);
    buffer_runtime();
    num_gpus = gpu->open();
    mt_start(&(int){1}, &argv, MPI_THREAD_SINGLE, "GPU memory that fails", (mt_state_t){0});
    if (!buffer_devices(num_gpus)) {
        return mt_finish();
    }
    has_standin = standin_load(device_library(gpu), &standin);
    if (strcmp(argv[1], "plain") == 0) {
        run_plain(argv[2], size, size);
    } else if (strcmp(argv[1], "freed") == 0) {
        run_freed(argv[2], size);
    } else if (strcmp(argv[1], "replace") == 0) {
        run_replace(argv[2], size);
    } else if (strcmp(argv[1], "pack") == 0) {
        run_pack(argv[2], size);
    } else if (strcmp(argv[1], "lazy") == 0) {
        run_lazy(size);
    } else if (strcmp(argv[1], "wild") == 0) {
        run_wild(argv[2], size);
    } else if (strcmp(argv[1], "beyond") == 0) {
        run_plain(argv[2], 1000, size);
    } else if (!has_standin) {
        fprintf(stderr, "the runtime is no stand-in\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    } else if (strcmp(argv[1], "room") == 0) {
        run_room(&standin, size);
    } else if (strcmp(argv[1], "broken") == 0) {
        run_broken(&standin, argv[2], size, argv[4]);
    } else {
        run_ended(&standin, size);
    }
    return mt_finish();
}
