/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the MPI tests with GPU memory share: the runtime that ANGARA_TEST_GPU names (cuda or rocm,
 * real or a stand-in), and checked buffers in its memory or in the host's.
 */
#ifndef ANGARA_TESTS_MPI_BUFFER_H
#define ANGARA_TESTS_MPI_BUFFER_H

#include "../mpi/mpi_test.h"
#include "device.h"

/* Where a buffer lies: memory of a GPU, by origin, or the heap. */
#define HEAP   DEVICE_ORIGINS
#define PLACES (DEVICE_ORIGINS + 1)

extern const device_runtime_t *gpu;
extern unsigned                num_gpus;
extern unsigned                device; /* that buffers are of */

/* A buffer with guards around it. */
typedef struct {
    unsigned       place;
    unsigned char *data; /* what MPI gets */
    size_t         size;
    unsigned char *base;
    unsigned char *host; /* of the whole: to fill and to look at it */
} buffer_t;

/* Find `gpu`; ends the program where ANGARA_TEST_GPU is wrong. It isn't started yet. */
void buffer_runtime(void);

/*
 * After MPI_Init, and gpu->open(), which has said `count`. @return 0: there are no GPUs; a test is
 * reported as skipped, but ANGARA_TEST_MUST makes it an error
 */
int buffer_devices(unsigned count);

/* @return 0: there is no memory of that place */
int  buffer_open(buffer_t *buffer, unsigned place, size_t size);
void buffer_close(buffer_t *buffer);

void buffer_fill(buffer_t *buffer, uint64_t key);
/* As if nothing had been received yet. */
void buffer_clear(buffer_t *buffer);
/* The first `length` bytes have come, and nothing behind or before them. */
void buffer_check(buffer_t *buffer, size_t length, uint64_t key, const char *what);

const char *place_name(unsigned place);
/* Has every rank memory of that place? */
int place_is_there(unsigned place);

#endif
