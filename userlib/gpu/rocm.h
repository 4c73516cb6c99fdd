/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What rocm*.c share. Each uses only those before it:
 *   rocm.c         the runtime, and its GPUs
 *   rocm_memory.c  what pointers are; memory for other processes and NICs
 *   rocm_pin.c     how a GPU reaches host memory     (rocm_copy.h)
 *   rocm_lane.c    copies under way, and their ends  (rocm_copy.h)
 *   rocm_copy.c    the start of copies
 *   rocm_ops.c     the table for gpu.c
 *
 * The types are of Debian's libhsa-runtime-dev 5.2.3; what newer runtimes add is declared here. No
 * call is linked: all go through the table below, filled from the library that the program loaded.
 * Source of what the headers don't say: ROCr's sources (github.com/ROCm/ROCR-Runtime).
 *
 * Our reference. From the first allocation of the runtime's that we are asked about, we hold a
 * reference on the runtime (hsa_init), to the end of the process: agents, the ids of allocations
 * and the signals that tell the end of copies belong to the runtime, and would end with the
 * program's last hsa_shut_down(), silently, while copies are under way or between two queries. For
 * the program this means that its last hsa_shut_down() frees nothing: its memory and queues go with
 * the process, and a tool's OnUnload() isn't called. It also means that MPI_Finalize() after that
 * call finds everything as it was.
 */
#ifndef ANG_ROCM_H
#define ANG_ROCM_H

#include "gpu.h"

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <pthread.h>

/* ---- rocm.c ---------------------------------------------------------------------------------- */

/* Of newer headers. */
typedef hsa_status_t (*rocm_dmabuf_func_t)(const void *ptr, size_t size, int *fd, uint64_t *offset);
typedef hsa_status_t (*rocm_copy_on_engine_func_t)(void *dst, hsa_agent_t dst_agent,
                                                   const void *src, hsa_agent_t src_agent,
                                                   size_t size, uint32_t num_deps,
                                                   const hsa_signal_t *deps, hsa_signal_t signal,
                                                   unsigned engine, bool force_engine);
enum {
    ROCM_POINTER_TYPE_VMEM = 6, /* physical memory that the program mapped by itself */
    ROCM_SDMA_ENGINE_0     = 1
};

/* X(name, symbol): nothing works without. */
#define ROCM_CALLS_NEEDED(X)                              \
    X(agent_get_info, hsa_agent_get_info)                 \
    X(agents_allow_access, hsa_amd_agents_allow_access)   \
    X(init, hsa_init)                                     \
    X(iterate_agents, hsa_iterate_agents)                 \
    X(iterate_pools, hsa_amd_agent_iterate_memory_pools)  \
    X(memory_async_copy, hsa_amd_memory_async_copy)       \
    X(memory_lock, hsa_amd_memory_lock)                   \
    X(memory_unlock, hsa_amd_memory_unlock)               \
    X(pointer_info, hsa_amd_pointer_info)                 \
    X(pool_allocate, hsa_amd_memory_pool_allocate)        \
    X(pool_free, hsa_amd_memory_pool_free)                \
    X(pool_get_info, hsa_amd_memory_pool_get_info)        \
    X(shut_down, hsa_shut_down)                           \
    X(signal_create, hsa_amd_signal_create)               \
    X(signal_destroy, hsa_signal_destroy)                 \
    X(signal_store, hsa_signal_store_screlease)           \
    X(signal_value_pointer, hsa_amd_signal_value_pointer) \
    X(system_get_info, hsa_system_get_info)

/* X(name, symbol, type, what it costs that it lacks) */
#define ROCM_CALLS_WANTED(X)                                                                      \
    X(status_string, hsa_status_string, __typeof__(&hsa_status_string),                           \
      "messages give numbers of errors, not names")                                               \
    X(on_deallocation, hsa_amd_register_deallocation_callback,                                    \
      __typeof__(&hsa_amd_register_deallocation_callback),                                        \
      "allocations have no ids: nothing is remembered of GPU memory between two operations")      \
    X(ipc_create, hsa_amd_ipc_memory_create, __typeof__(&hsa_amd_ipc_memory_create),              \
      "other processes can't map our GPU memory")                                                 \
    X(ipc_attach, hsa_amd_ipc_memory_attach, __typeof__(&hsa_amd_ipc_memory_attach),              \
      "other processes' GPU memory can't be mapped")                                              \
    X(ipc_detach, hsa_amd_ipc_memory_detach, __typeof__(&hsa_amd_ipc_memory_detach),              \
      "other processes' GPU memory can't be mapped")                                              \
    X(copy_on_engine, hsa_amd_memory_async_copy_on_engine, rocm_copy_on_engine_func_t,            \
      "copies within a GPU are made by its multiprocessors, and wait for a kernel that fills it") \
    X(export_dmabuf, hsa_amd_portable_export_dmabuf, rocm_dmabuf_func_t,                          \
      "no dma-buf of GPU memory: a NIC can't reach it")

#define ROCM_MEMBER_NEEDED(_name, _symbol)               __typeof__(&_symbol) _name;
#define ROCM_MEMBER_WANTED(_name, _symbol, _type, _cost) _type _name;

/* A table of pointers to them; NULL: the runtime hasn't that one. */
typedef struct {
    ROCM_CALLS_NEEDED(ROCM_MEMBER_NEEDED)
    ROCM_CALLS_WANTED(ROCM_MEMBER_WANTED)
} rocm_calls_t;

/* As of ang_gpu_ops_t. */
extern ang_gpu_library_t rocm_library;

/* Valid once that was found. */
extern rocm_calls_t rocm;

/* In a child of fork() the threads and locks of a runtime that was started before aren't there. */
int rocm_is_forked(void);
/* A call has just said that the runtime is started. */
void rocm_note_started(void);

/* Name of an error, for messages. */
const char *rocm_name(hsa_status_t status);

typedef struct rocm_gpu rocm_gpu_t;

/*
 * ang_gpu_mem_t.context of memory of other processes: it is mapped for one GPU, which isn't always
 * the one that it is on. NULL: it is of this process, and its GPU reaches it.
 */
typedef struct {
    rocm_gpu_t *gpu;      /* that reaches it */
    int         is_local; /* it is on that GPU */
} rocm_via_t;

struct rocm_gpu {
    hsa_agent_t        agent;
    int                number; /* in the order of hsa_iterate_agents() */
    uint32_t           pci;
    rocm_via_t         via[2];
    struct rocm_lanes *lanes; /* rocm_lane.c's; atomic, NULL before the first copy */
};

/* Valid once rocm_hold() has said 1. What a copy's agent is for host memory, and where we allocate.
 */
typedef struct {
    hsa_agent_t           host; /* the first CPU with a pool */
    hsa_amd_memory_pool_t pool; /* of memory that GPUs reach; handle 0: there is none */
} rocm_host_t;

extern rocm_host_t rocm_host;

/* The program has started the runtime; from here on it doesn't end any more. @return 0: it hasn't
 */
int rocm_hold(void);
/* Has the runtime been started, and not ended? */
int rocm_is_started(void);

/* After rocm_hold(). NULL: there is none of that number, or agent. */
rocm_gpu_t *rocm_gpu(int number);
rocm_gpu_t *rocm_gpu_of(hsa_agent_t agent);

/* ---- rocm_memory.c --------------------------------------------------------------------------- */

/* Who reaches an allocation: valid until the thread's next rocm_info(). */
typedef struct {
    const hsa_agent_t *agents;
    uint32_t           num;
} rocm_reach_t;

/* What the runtime knows of an address. @param reach  may be NULL @return 0: nothing */
int rocm_info(const void *addr, hsa_amd_pointer_info_t *info, rocm_reach_t *reach);
int rocm_is_reached(const rocm_reach_t *reach, const rocm_gpu_t *gpu);

/* As of ang_gpu_ops_t. */
int             rocm_is_pinned(const void *addr, size_t length);
int             rocm_query(const void *addr, ang_gpu_mem_t *mem);
angara_status_t rocm_share(const ang_gpu_mem_t *mem, ang_gpu_handle_t *handle);
angara_status_t rocm_map(int device, const ang_gpu_handle_t *handle, size_t length,
                         ang_gpu_map_t *map);
void            rocm_unmap(const ang_gpu_map_t *map);
int             rocm_is_idle(const ang_gpu_map_t *map);
angara_status_t rocm_dmabuf(const ang_gpu_mem_t *mem, const void *addr, size_t length, int *fd_p,
                            uint64_t *offset_p);

/* ---- rocm_copy.c and rocm_lane.c ------------------------------------------------------------- */

/* As of ang_gpu_ops_t. */
angara_status_t rocm_copy_start(void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                                const ang_gpu_mem_t *src_mem, size_t length, ang_gpu_copy_t *copy);
angara_status_t rocm_copy_test(ang_gpu_copy_t *copy);

#endif
