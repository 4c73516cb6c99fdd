/* SPDX-License-Identifier: BSD-3-Clause */
/* See mpi_buffer.h. */
#include "mpi_buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64

const device_runtime_t *gpu;
unsigned                num_gpus;
unsigned                device;

void buffer_runtime(void)
{
    const char *name = getenv("ANGARA_TEST_GPU");

    gpu = device_runtime(name != NULL ? name : "cuda");
    if (gpu == NULL) {
        fprintf(stderr, "ANGARA_TEST_GPU: cuda or rocm\n");
        exit(2);
    }
}

int buffer_devices(unsigned count)
{
    num_gpus = count;
    if (num_gpus == 0 && getenv("ANGARA_TEST_MUST") != NULL) {
        fprintf(stderr, "ANGARA_TEST_MUST is set, but there is no GPU of %s\n", gpu->name);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (num_gpus == 0) {
        mt_skip("all", "there is no GPU of this runtime");
        return 0;
    }
    device = (unsigned)mt.rank % num_gpus;
    return 1;
}

int buffer_open(buffer_t *buffer, unsigned place, size_t size)
{
    *buffer      = (buffer_t){.place = place, .size = size};
    buffer->base = place == HEAP ? mt_alloc(size + 2 * GUARD) :
                                   gpu->alloc(device, size + 2 * GUARD, place);
    if (buffer->base == NULL) {
        return 0;
    }
    buffer->data = buffer->base + GUARD;
    buffer->host = mt_alloc(size + 2 * GUARD);
    return 1;
}

void buffer_close(buffer_t *buffer)
{
    if (buffer->place == HEAP) {
        free(buffer->base);
    } else {
        gpu->free(buffer->base, buffer->place);
    }
    free(buffer->host);
}

static void buffer_put(buffer_t *buffer)
{
    if (buffer->place == HEAP) {
        memcpy(buffer->base, buffer->host, buffer->size + 2 * GUARD);
    } else {
        gpu->write(buffer->base, buffer->host, buffer->size + 2 * GUARD);
    }
}

void buffer_fill(buffer_t *buffer, uint64_t key)
{
    memset(buffer->host, 0xa5, buffer->size + 2 * GUARD);
    data_fill(buffer->host + GUARD, buffer->size, key);
    buffer_put(buffer);
}

void buffer_clear(buffer_t *buffer)
{
    memset(buffer->host, 0xa5, buffer->size + 2 * GUARD);
    buffer_put(buffer);
}

void buffer_check(buffer_t *buffer, size_t length, uint64_t key, const char *what)
{
    size_t i;

    if (buffer->place == HEAP) {
        memcpy(buffer->host, buffer->base, buffer->size + 2 * GUARD);
    } else {
        gpu->read(buffer->host, buffer->base, buffer->size + 2 * GUARD);
    }
    mt_verify(buffer->host + GUARD, length, key, what);
    for (i = 0; i < GUARD; ++i) {
        if ((buffer->host[i] != 0xa5) || (buffer->host[GUARD + buffer->size + i] != 0xa5)) {
            mt_fail(__FILE__, __LINE__, "%s: written outside of %zu bytes", what, buffer->size);
            return;
        }
    }
}

const char *place_name(unsigned place)
{
    return place == HEAP ? "heap" : device_origin_names[place];
}

int place_is_there(unsigned place)
{
    buffer_t buffer;
    int      is_there = buffer_open(&buffer, place, 1), all;

    if (is_there) {
        buffer_close(&buffer);
    }
    MPI_Allreduce(&is_there, &all, 1, MPI_INT, MPI_MIN, mt.control);
    return all;
}
