/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of GPU memory at UCT level share, over the harness of the UCT tests: buffers of
 * the host or of a GPU, and the transport that copies within a process. The processes run over the
 * runtime that ANGARA_TEST_GPU names, real or stand-in; the one that runs cmocka loads none.
 */
#ifndef ANGARA_TESTS_GPU_UCT_BUFFER_H
#define ANGARA_TESTS_GPU_UCT_BUFFER_H

#include "../uct/ut.h"
#include "device.h"
#include "standin/standin.h"

#define MB    ((size_t)1 << 20)
#define GUARD 64 /* bytes around the destination of a transfer */

extern const device_runtime_t *gpu;

/* Of this process, known after gpu_start(). */
extern unsigned          gpus_num;
extern standin_t         standin; /* if it is one */
extern ucs_memory_type_t gpu_type;

/* For main(): is there a GPU? @return -1: yes; else what the program ends with */
int gpu_find(void);
/* Load and start the runtime, before anything of UCX's is opened. */
void gpu_start(void);
/* The same, or skip the test: a real runtime holds no copies, and fails none. */
void standin_start(void);
/* The next asynchronous copy fails. */
void standin_fail(void);

/* memh: if a domain has registered them. */
typedef struct {
    char     *addr;
    size_t    length;
    int       is_gpu;
    uct_mem_h memh;
} buffer_t;

buffer_t buffer_new(int is_gpu, size_t length);
/* flags: UCT_MD_MEM_*. */
buffer_t buffer_registered(ut_t *t, int is_gpu, size_t length, unsigned flags);
void     buffer_end(ut_t *t, buffer_t *buffer);
void     buffer_write(const buffer_t *buffer, size_t at, const void *bytes, size_t length);
void     buffer_read(const buffer_t *buffer, size_t at, void *bytes, size_t length);
/* Bytes of data_fill(). */
void buffer_fill(const buffer_t *buffer, size_t at, size_t length, uint64_t key);
/* Bytes that no test sends. */
void buffer_poison(const buffer_t *buffer, size_t at, size_t length);
/* Those bytes are there, with poison around them; ends the rank if not. */
void buffer_check(const buffer_t *buffer, size_t at, size_t length, uint64_t key);

/* As t, but with the component of the copy transport: domain, interface, and an endpoint to that,
 * ep[0]. */
void copier_open(ut_t *t, ut_t *copier);
void copier_close(ut_t *copier);

#endif
