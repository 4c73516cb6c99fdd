/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stand-in for ROCm's HSA runtime. Its functions look like those of cuda_standin.h.
 *
 *   hsa_agent.c   start and end, agents, memory pools
 *   hsa_memory.c  allocations, locked memory, pointers, IPC, dma-bufs
 *   hsa_copy.c    signals and copies
 */
#ifndef STANDIN_HSA_STANDIN_H
#define STANDIN_HSA_STANDIN_H

#include "core.h"

#pragma GCC visibility push(default)
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#if HSA_AMD_INTERFACE_VERSION_MINOR < 2
typedef unsigned hsa_amd_sdma_engine_id_t;
#endif

/* Of newer headers. */
hsa_status_t hsa_amd_portable_export_dmabuf(const void *ptr, size_t size, int *fd,
                                            uint64_t *offset);
hsa_status_t hsa_amd_portable_close_dmabuf(int fd);
hsa_status_t hsa_amd_memory_async_copy_on_engine(void *dst, hsa_agent_t dst_agent, const void *src,
                                                 hsa_agent_t src_agent, size_t size,
                                                 uint32_t num_deps, const hsa_signal_t *deps,
                                                 hsa_signal_t             signal,
                                                 hsa_amd_sdma_engine_id_t engine,
                                                 bool                     force_engine);
#pragma GCC visibility pop

#define HSA_NO_POOL ((hsa_status_t)HSA_STATUS_ERROR_INVALID_MEMORY_POOL)
#define HSA_CPU     (-1) /* in place of a GPU's number */

/* The lock is held afterwards, whatever the result. */
hsa_status_t hsa_enter(const char *call);
hsa_status_t hsa_leave(hsa_status_t status);

/* @return 0: there is no such agent; else *gpu is a GPU's number in the node, or HSA_CPU */
int hsa_gpu_of(hsa_agent_t agent, int *gpu);
/* Handle 0: the process doesn't see that GPU. */
hsa_agent_t hsa_agent_of(int gpu);
/* @return 0: there is no such pool in which memory can be allocated */
int hsa_pool_gpu(hsa_amd_memory_pool_t pool, int *gpu);
/* Bits of core.h's `access` for a list of agents; none: all that reach `gpu`'s memory. */
hsa_status_t hsa_access_of(int gpu, const hsa_agent_t *agents, unsigned num, uint32_t *access);

/* Known to GPUs there, or (host memory that is locked) to the program. */
memory_t *hsa_memory_find(const void *addr);

/* The last hsa_shut_down(): everything goes. */
void hsa_copies_end(void);
void hsa_memory_end(void);

#endif
