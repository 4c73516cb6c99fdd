/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the stand-in for libcuda share. */
#ifndef ANGARA_TESTS_STANDIN_CUDA_H
#define ANGARA_TESTS_STANDIN_CUDA_H

#include "cuda_program.h"
#include "standin_test.h"

#define MB     ((size_t)1 << 20)
#define SIZE   ((size_t)100000)
#define OK(_c) CHECK_IS(_c, CUDA_SUCCESS)

static cuda_program_t cuda;
static standin_t      standin;

static inline void load(void)
{
    CHECK(cuda_program_load(&cuda, standin_path("libcuda.so.1")));
    CHECK(standin_load(cuda.library, &standin));
}

/* With a context of GPU 0 current. */
static inline CUcontext start(void)
{
    CUcontext context;

    load();
    OK(cuda.init(0));
    OK(cuda.ctx_create(&context, 0, 0));
    return context;
}

static inline CUdeviceptr alloc(size_t size)
{
    CUdeviceptr ptr;

    OK(cuda.mem_alloc(&ptr, size));
    return ptr;
}

static inline CUstream make_stream(void)
{
    CUstream stream;

    OK(cuda.stream_create(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static inline void *pinned(size_t size)
{
    void *ptr;

    OK(cuda.mem_host_alloc(&ptr, size, 0));
    return ptr;
}

static inline void poke(CUdeviceptr ptr, int byte, size_t size)
{
    char *bytes = malloc(size);

    memset(bytes, byte, size);
    CHECK_IS(standin.write((void *)ptr, bytes, size), 0);
    free(bytes);
}

static inline int holds(CUdeviceptr ptr, int byte, size_t size)
{
    char *bytes = malloc(size);
    int   same  = 1;

    CHECK_IS(standin.read((void *)ptr, bytes, size), 0);
    for (size_t i = 0; i < size; ++i) {
        same &= bytes[i] == byte;
    }
    free(bytes);
    return same;
}

#endif
