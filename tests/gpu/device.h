/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory for tests and benchmarks, by a runtime that is loaded at run time: no toolkit is
 * needed. The runtime is a real one or a stand-in (standin/). Nothing of libangara is used here.
 * What fails where it mustn't ends the program with a message.
 */
#ifndef TESTS_GPU_DEVICE_H
#define TESTS_GPU_DEVICE_H

#include <stddef.h>

/* Where memory comes from. */
typedef enum {
    DEVICE_PLAIN,   /* cuMemAlloc, a pool of hsa's */
    DEVICE_MANAGED, /* moves by itself */
    DEVICE_POOL,    /* in the order of a stream */
    DEVICE_MAPPED,  /* physical memory, mapped (cuMemCreate) */
    DEVICE_PINNED,  /* the host's, known to the runtime */
    DEVICE_ORIGINS
} device_origin_t;

extern const char *const device_origin_names[DEVICE_ORIGINS];

/* A runtime. */
typedef struct {
    const char *name;    /* "cuda", "rocm" */
    const char *library; /* for dlopen() */
    /* Load it and start it. @return number of GPUs; 0: not here */
    unsigned (*open)(void);
    /* Zeroed memory. @return NULL: this runtime has none of that origin, or there is no more */
    void *(*alloc)(unsigned gpu, size_t size, device_origin_t origin);
    void (*free)(void *addr, device_origin_t origin);
    /* Copy, and wait. */
    void (*write)(void *gpu_addr, const void *src, size_t size);
    void (*read)(void *dst, const void *gpu_addr, size_t size);
    /* As programs write, by a call that blocks, without waiting for the GPU besides. */
    void (*write_only)(void *gpu_addr, const void *src, size_t size);
    /* Bytes of the GPU's memory that are free, for all processes; 0: nobody says. */
    size_t (*available)(unsigned gpu);
    /*
     * Fill the GPU with a kernel that runs, in a stream that waits for no other, until
     * kernel_end(). One at a time. NULL: there are none here
     */
    void (*kernel_start)(unsigned gpu);
    void (*kernel_end)(void);
} device_runtime_t;

extern const device_runtime_t device_cuda, device_rocm;

/* That of the name, or NULL. */
const device_runtime_t *device_runtime(const char *name);
/*
 * That of ANGARA_TEST_GPU, or CUDA's. Its GPUs are looked for in a child: what this process forks
 * later begins without a runtime. @return -1, or the status that the program is to end with; why is
 * said by then
 */
int device_find(const device_runtime_t **runtime_p);

/* Of the library, loaded by open(): for dlsym(). */
void *device_library(const device_runtime_t *runtime);

#endif
