/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What cuda.c (the driver, contexts, pointers, sharing) and cuda_copy.c (copies) share.
 *
 * A context of the program's in which we have copied has a record here. It isn't kept alive by us:
 * when it is seen to have ended, the record goes once no copy refers to it any more. Which copies
 * have ended is kept in the record, hence readable after the context.
 */
#ifndef ANG_CUDA_H
#define ANG_CUDA_H

#include "cuda_abi.h"
#include "gpu.h"

#include <pthread.h>

/* The driver's calls; valid once ang_gpu_cuda.find() has said 1. */
extern cuda_calls_t cuda;

/* A context made current, and how it was before. */
typedef struct {
    CUcontext          ctx;
    unsigned long long id; /* 0: the driver has none */
    int                device;
    int                mode;    /* of stream capture */
    int                primary; /* retained: to be released */
} cuda_scope_t;

/*
 * Make a context current that can reach memory of GPU `device`: `ctx`, or if that is NULL the
 * GPU's primary one if the program has made it, else the current one if it is of that GPU, else one
 * that memory of that GPU was seen in. @return CUDA_ERROR_INVALID_DEVICE: there is none; or why it
 * can't be made current. What the program captures in the meantime isn't disturbed.
 */
CUresult cuda_enter(CUcontext ctx, int device, cuda_scope_t *scope);
/* As it was before. */
void cuda_leave(const cuda_scope_t *scope);

/* Name of an error, for messages. */
const char *cuda_name(CUresult result);
/* Does this error say that the context, or the whole driver, has ended? */
int cuda_has_ended(CUresult result);

angara_status_t cuda_copy_start(void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                                const ang_gpu_mem_t *src_mem, size_t length, ang_gpu_copy_t *copy);
angara_status_t cuda_copy_test(ang_gpu_copy_t *copy);
void            cuda_copy_submit(ang_gpu_copy_t *copy);

#endif
