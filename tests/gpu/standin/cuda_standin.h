/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stand-in for CUDA's driver library. Each of its functions looks like this, so that the lock
 * is taken and released once:
 *
 *     CUresult result = cuda_enter(__func__, what it needs);
 *
 *     if (result == CUDA_SUCCESS) { ... result = ...; }
 *     return cuda_leave(result);
 *
 *   cuda_context.c  start, GPUs, contexts
 *   cuda_memory.c   allocations, pointers, IPC
 *   cuda_virtual.c  cuMemCreate and what belongs to it
 *   cuda_stream.c   streams, copies, events
 */
#ifndef STANDIN_CUDA_STANDIN_H
#define STANDIN_CUDA_STANDIN_H

#include "core.h"
#include "../cuda_program.h"

#define CUDA_DECLARE(_name, _symbol, _arguments, ...) CORE_EXPORT CUresult _symbol _arguments;
CUDA_CALLS(CUDA_DECLARE)
CUDA_PROGRAM_CALLS(CUDA_DECLARE)

typedef struct {
    int      used;
    uint64_t id; /* handles come again, this doesn't */
    int      device;
    int      gpu;
    int      primary;
    int      ending;
    unsigned retained; /* of primary contexts */
    uint32_t peers;    /* access was enabled: a bit for each device */
    int      error;    /* what every call says from now on */
    queue_t *queue;    /* of the default stream, once it was used */
} context_t;

enum {
    NEEDS_NOTHING   = 0, /* also before cuInit */
    NEEDS_INIT      = 1,
    NEEDS_CONTEXT   = 2, /* a current one, alive and without an error */
    NOT_IN_CAPTURES = 4  /* unless the thread has said that it knows what it does */
};

/* The lock is held afterwards, whatever the result. */
CUresult cuda_enter(const char *call, int needs);
CUresult cuda_leave(CUresult result);

/* After NEEDS_CONTEXT. */
context_t *cuda_current(void);
/* NULL: destroyed meanwhile. */
context_t *cuda_context_of(const context_t *context, uint64_t id);
CUresult   cuda_from_errno(void);

/* Remove all that belongs to it. Releases the lock meanwhile. */
void cuda_streams_end(context_t *context);
void cuda_memory_end(context_t *context);

/* What the driver calls the allocation of *memory. NULL: 0 bytes. */
void cuda_range(const memory_t *memory, CUdeviceptr *base, size_t *size);

/* What a stream's handle stands for. */
CUresult cuda_stream_find(CUstream handle, context_t **context, queue_t **queue);

#endif
