/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What memory a pointer points to, and copies that involve memory of a GPU. The library finds the
 * GPU's runtime (CUDA's driver library, ROCm's HSA runtime) if the program has loaded and started
 * it; it loads and starts none itself, makes no context, and leaves the current one as it was.
 * ANGARA_GPU restricts it to one kind of GPU, or to none: other GPUs' memory is still told from the
 * host's, and refused by the calls below and by the soft fabric's angara_mr_register().
 *
 * Threads: all calls may be made by any thread, with any context current, or none. An
 * angara_copy_t belongs to one thread at a time.
 */
#ifndef ANGARA_MEM_H
#define ANGARA_MEM_H

#include <angara/angara.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Kinds of memory. */
typedef enum {
    ANGARA_MEM_HOST = 0,     /**< all that isn't one of the others; pinned by a runtime or not */
    ANGARA_MEM_CUDA,         /**< of an NVIDIA GPU: the CPU can't touch it */
    ANGARA_MEM_CUDA_MANAGED, /**< moves between NVIDIA GPUs and the host: the CPU may touch it */
    ANGARA_MEM_ROCM,         /**< of an AMD GPU: the CPU mustn't touch it */
    ANGARA_MEM_ROCM_MANAGED, /**< moves between AMD GPUs and the host: the CPU may touch it */
    ANGARA_MEM_LAST
} angara_mem_kind_t;

/** What memory a pointer points to. */
typedef struct {
    angara_mem_kind_t kind;
    int               device; /**< number of the GPU in its runtime; -1: none in particular */
    void             *base;   /**< the allocation; of host memory: NULL */
    size_t            length; /**< bytes of the allocation; of host memory: 0 */
    uint64_t          id;     /**< of the allocation: no other of the process has it; 0 for none */
    uint32_t          pci;    /**< of the GPU: domain << 16 | bus << 8 | device << 3 | function */
    int               shares; /**< 1: other processes can map it */
} angara_mem_t;

/**
 * Ask what memory a pointer points to. Cheap (no system call) where there is no GPU runtime.
 *
 * @param addr  any address; it isn't touched
 * @param mem   what it is
 * @return ANGARA_OK, also if nothing is mapped there (kind ANGARA_MEM_HOST);
 *         ANGARA_ERR_UNSUPPORTED for memory of a GPU that ANGARA_GPU leaves out: *mem says what it
 *         is; ANGARA_ERR_INVALID for NULL pointers or a wrong ANGARA_GPU
 */
ANGARA_API angara_status_t angara_mem_query_sized(const void *addr, angara_mem_t *mem, size_t size);

static inline angara_status_t angara_mem_query(const void *addr, angara_mem_t *mem)
{
    return angara_mem_query_sized(addr, mem, sizeof(*mem));
}

/**
 * Which kinds of memory may occur in this process: of GPUs that the machine has, as far as their
 * devices tell, of runtimes that the program has loaded, and of the one that ANGARA_GPU names.
 *
 * @param kinds  a bit (1 << kind) each; that of ANGARA_MEM_HOST always
 * @return ANGARA_OK; ANGARA_ERR_INVALID for a NULL pointer or a wrong ANGARA_GPU
 */
ANGARA_API angara_status_t angara_mem_kinds(uint32_t *kinds);

/**
 * Which kinds of memory may occur in this process, but are left out by ANGARA_GPU: those for which
 * angara_mem_query() says ANGARA_ERR_UNSUPPORTED. Managed memory, which the CPU may touch, counts
 * as the host's then.
 *
 * @param kinds  a bit (1 << kind) each
 * @return as angara_mem_kinds()
 */
ANGARA_API angara_status_t angara_mem_kinds_left_out(uint32_t *kinds);

/**
 * The GPU runtimes that the program has loaded and that the library has found, also those that
 * ANGARA_GPU leaves out. ROCm's, which programs without a GPU load as well, counts on a machine
 * with such a GPU, or if it was named by ANGARA_GPU, or once a pointer was its memory.
 *
 * @param i      which, from 0
 * @param name   "cuda" or "rocm"; valid for the life of the process
 * @param lacks  what its version lacks that the library would use; "" if nothing; valid likewise
 * @return ANGARA_OK; ANGARA_ERR_NO_DEVICE if there is no i-th; ANGARA_ERR_INVALID for NULL
 *         pointers or a wrong ANGARA_GPU
 */
ANGARA_API angara_status_t angara_mem_runtime(unsigned i, const char **name, const char **lacks);

/**
 * Of which GPU's kind of memory a region is; ANGARA_MEM_HOST if it is none of a GPU's, or memory
 * that the CPU may touch as well.
 */
ANGARA_API angara_mem_kind_t angara_mr_mem_kind(angara_mr_h mr);

/** Whether another process uses GPUs. */
typedef enum {
    ANGARA_GPU_UNUSED = 0, /**< none of that kind, as far as is known */
    ANGARA_GPU_OTHERS,     /**< of that kind, but not that one */
    ANGARA_GPU_SAME        /**< that one too, perhaps */
} angara_gpu_use_t;

/**
 * Does the peer's process use GPU memory: has it sent, received or asked about some, as far as it
 * has told? To choose between ways, not for more.
 *
 * @param kind  of the GPU's memory
 * @param pci   of the GPU, as in angara_mem_t
 * @return ANGARA_GPU_UNUSED also for PEs of the own process, and where the provider doesn't know
 */
ANGARA_API angara_gpu_use_t angara_peer_gpu(angara_peer_h peer, angara_mem_kind_t kind,
                                            uint32_t pci);

/** A copy under way. What is in it is the library's. */
typedef struct {
    uint64_t opaque[8];
} angara_copy_t;

/**
 * Start a copy where one end at least is memory of a GPU; the other may be of the same kind, or of
 * the host. What the program has done in its streams isn't waited for. No multiprocessor is needed
 * but for a copy within one GPU: a kernel that fills it and waits for this copy gets it. Where the
 * host's end isn't pinned, a GPU's driver may copy before this returns.
 *
 * @param dst, src  bytes that don't overlap
 * @param length    bytes
 * @param copy      to be asked by angara_copy_test() until that says other than ANGARA_INPROGRESS
 * @return ANGARA_INPROGRESS; ANGARA_OK if it is done already; ANGARA_ERR_UNSUPPORTED if both are
 *         host memory, of GPUs that don't reach each other or that ANGARA_GPU leaves out, or no
 *         context can be had; ANGARA_ERR_BOUNDS beyond an allocation; ANGARA_ERR_NO_RESOURCE if too
 *         many are under way: test those, or use angara_copy(); ANGARA_ERR_SYSTEM if the runtime
 *         refuses it (the log says why)
 */
ANGARA_API angara_status_t angara_copy_start(void *dst, const void *src, size_t length,
                                             angara_copy_t *copy);

/**
 * Has it ended? The runtime is asked by each call at first, then by one of some.
 *
 * @return ANGARA_OK; ANGARA_INPROGRESS; ANGARA_ERR_SYSTEM if it failed: then nothing is known of
 *         the destination
 */
ANGARA_API angara_status_t angara_copy_test(angara_copy_t *copy);

/**
 * Copy and wait, between memory of any kinds: through the host where there is no other way.
 * Arguments and errors as of angara_copy_start().
 */
ANGARA_API angara_status_t angara_copy(void *dst, const void *src, size_t length);

#ifdef __cplusplus
}
#endif

#endif
