/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of GPUs, for the whole library: what a pointer is, copies, and memory of other processes'
 * GPUs. gpu.c chooses the runtime; each runtime is an ang_gpu_ops_t (cuda*.c, rocm*.c), found in
 * the process if the program has loaded and started it, never loaded, linked or started here.
 * Nothing here knows regions, PEs or providers.
 *
 * Invariants
 *   - What was the thread's current context is it again when a call returns.
 *   - An allocation's id is never given to another of the process, though its address may be.
 *   - A copy that was started is tested until it has ended; it holds no lock meanwhile. It ends
 *     later than another only if it was started so (ang_gpu_copy_start_after()).
 *   - What a test reads is ours: it stays readable whatever the program does to its contexts. A
 * copy whose context ended ends with an error.
 *   - In a child of a process that has had GPU memory no runtime is called any more: all is host
 *     memory there.
 */
#ifndef ANG_GPU_H
#define ANG_GPU_H

#include "library.h"

#include <angara/angara_mem.h>

typedef struct ang_gpu_ops ang_gpu_ops_t;

/* What a pointer points to, and who knows more of it. */
typedef struct {
    angara_mem_t         mem;
    const ang_gpu_ops_t *ops;     /* NULL: host memory */
    void                *context; /* of the runtime: what the allocation belongs to, or NULL */
    int is_left_out; /* of a GPU, but ANGARA_GPU leaves that out: nobody here can touch it */
} ang_gpu_mem_t;

/* What angara_copy_t holds. */
typedef struct ang_gpu_copy {
    const ang_gpu_ops_t       *ops;    /* NULL: it has ended, with `status` */
    const volatile uint64_t   *word;   /* of the runtime's, as what follows */
    uint64_t                   value;  /* tells when it has ended */
    void                      *lane;   /* of the runtime's */
    void                      *bounce; /* of the runtime's; NULL: the bytes go where they belong */
    const struct ang_gpu_copy *after;  /* until it was started: see ang_gpu_copy_start_after() */
    angara_status_t            status;
    unsigned                   tests;      /* so far, that found it under way */
    unsigned                   epoch;      /* ang_fork_epoch when it was started */
    uint8_t                    is_awaited; /* its thread tests no other copy until it has ended */
    uint8_t                    may_gather; /* see ang_gpu_copy_gather(); afterwards: has it been? */
    uint8_t                    gathers;    /* others behind it would be */
} ang_gpu_copy_t;

_Static_assert(sizeof(ang_gpu_copy_t) <= sizeof(angara_copy_t), "it fits");

/* Lets another process of the node map an allocation. Plain bytes. */
typedef struct {
    unsigned char bytes[64];
} ang_gpu_handle_t;

/* An allocation of another process as this one has mapped it, or host memory that is registered. */
typedef struct {
    void *base;
    int   device;
    void *context; /* of the runtime's */
} ang_gpu_map_t;

/*
 * A runtime. Functions are called only after the library was found; any thread, several
 * at once. What the driver lacks is ANGARA_ERR_UNSUPPORTED.
 */
struct ang_gpu_ops {
    const char *name;          /* as in ANGARA_GPU */
    const char *nodes[3];      /* device files: a machine with such a GPU has one of them */
    int         is_common;     /* programs without GPUs load it: without a node it doesn't count */
    angara_mem_kind_t kind;    /* of its memory */
    angara_mem_kind_t managed; /* of its managed memory */

    /* Looked for after each library that is loaded, until it was found. */
    ang_gpu_library_t *library;
    /* Fill in *mem, all but `ops`. @return 0: not its memory, or it hasn't been started */
    int (*query)(const void *addr, ang_gpu_mem_t *mem);

    /*
     * As angara_copy_start(): both ends within their allocations, one at least of this runtime. On
     * ANGARA_INPROGRESS fills in what is the runtime's of *copy; the rest is given. If copy->after
     * isn't NULL, it is a copy of this runtime's: ANGARA_ERR_NO_RESOURCE unless both are copies of
     * one direction on one GPU, and neither of host memory that the driver takes only by a detour.
     * ANGARA_OK: the call has waited for it.
     *
     * ANGARA_ERR_NO_RESOURCE: as many are under way as can be, some must be tested to their end. A
     * runtime with such a limit keeps room for copies that are awaited: all others may be of the
     * thread that waits.
     */
    angara_status_t (*copy_start)(void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                                  const ang_gpu_mem_t *src_mem, size_t length,
                                  ang_gpu_copy_t *copy);
    angara_status_t (*copy_test)(ang_gpu_copy_t *copy);
    /* As ang_gpu_copy_submit(). NULL: copy_start() gathers nothing. */
    void (*copy_submit)(ang_gpu_copy_t *copy);

    /*
     * Host memory: does copy_start() leave it to the GPU, so that it returns at once, however long
     * the copy is?
     */
    int (*is_pinned)(const void *addr, size_t length);
    /*
     * Host memory: do copies leave all of it to the GPU, which has it by a registration, so that
     * the CPU touches none of it? NULL: never for sure.
     */
    int (*is_registered)(const void *addr, size_t length);

    /* For other processes: the allocation behind *mem. ANGARA_ERR_UNSUPPORTED: has no handle. */
    angara_status_t (*share)(const ang_gpu_mem_t *mem, ang_gpu_handle_t *handle);
    /*
     * Map the allocation of another process, of `length` bytes, so that copies of GPU `device`
     * reach it. As often mapped as unmapped. ANGARA_ERR_UNSUPPORTED: no way from that GPU.
     */
    angara_status_t (*map)(int device, const ang_gpu_handle_t *handle, size_t length,
                           ang_gpu_map_t *map);
    /* No copy that uses it is under way. */
    void (*unmap)(const ang_gpu_map_t *map);
    /*
     * Register host memory, whole pages, so that copies leave it to GPUs. `mem`: GPU memory that
     * takes part in them. NULL: copies do that by themselves.
     */
    angara_status_t (*pin)(void *addr, size_t length, const ang_gpu_mem_t *mem, ang_gpu_map_t *map);
    /* No copy uses it. @return 0: it is still registered, and must stay mapped for good */
    int (*unpin)(const ang_gpu_map_t *map);
    /*
     * Would unmap() or unpin() return at once? Else it waits for what the program has its GPU do,
     * and may hold up the program's calls of the runtime meanwhile.
     */
    int (*is_idle)(const ang_gpu_map_t *map);

    /* A dma-buf of [addr, addr + length) within an allocation, for a NIC; the bytes begin at
     * *offset_p of it. */
    angara_status_t (*dmabuf)(const ang_gpu_mem_t *mem, const void *addr, size_t length, int *fd_p,
                              uint64_t *offset_p);
};

extern const ang_gpu_ops_t ang_gpu_cuda;
extern const ang_gpu_ops_t ang_gpu_rocm;

/* As angara_mem_query(). The configuration has been read. */
void ang_gpu_query(const void *addr, ang_gpu_mem_t *mem);
/* The same by the runtimes that have been found, for callers that hold a lock: it doesn't wait for
 * the loader, which runs the program's constructors. */
void ang_gpu_query_found(const void *addr, ang_gpu_mem_t *mem);
/* Find runtimes that were loaded since. Called without a lock. */
void ang_gpu_look(void);

/* As angara_mem_kinds() and angara_mem_kinds_left_out(). */
uint32_t ang_gpu_kinds(void);
uint32_t ang_gpu_kinds_left_out(void);

/* Not 0 once a runtime is in the process: any address may be a GPU's from then on. Atomic. */
extern uint32_t ang_gpu_here;

/*
 * The GPUs whose memory the program has asked about: a bit for some of NVIDIA's in the low half, of
 * AMD's in the high one. Only grows, but in children of fork(). Atomic.
 */
extern uint64_t ang_gpu_set;

static inline uint64_t ang_gpu_bits_of(angara_mem_kind_t kind)
{
    return (uint64_t)UINT32_MAX << (kind >= ANGARA_MEM_ROCM ? 32 : 0);
}

/* That of a GPU, and by chance of others (Fibonacci hashing: Knuth, TAOCP 3, 6.4). */
static inline uint64_t ang_gpu_bit(angara_mem_kind_t kind, uint32_t pci)
{
    return ang_gpu_bits_of(kind) & UINT64_C(0x100000001) << (pci * 2654435769u >> 27);
}

/* Is [addr, addr + length) within the allocation at `addr`? Yes of host memory: nobody knows. */
int ang_gpu_is_within(const void *addr, size_t length, const ang_gpu_mem_t *mem);

/* As angara_copy_start(), of memory that is known. Ends are checked against their allocations.
 * ANGARA_ERR_NO_RESOURCE: test copies that were started before, then try again. */
angara_status_t ang_gpu_copy_start(void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                                   const ang_gpu_mem_t *src_mem, size_t length,
                                   ang_gpu_copy_t *copy);
/* The same, but so that it ends later than `after`, which is still to be tested (or NULL).
 * ANGARA_ERR_NO_RESOURCE also if only the end of that one makes sure of it. */
angara_status_t ang_gpu_copy_start_after(void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                                         const ang_gpu_mem_t *src_mem, size_t length,
                                         const ang_gpu_copy_t *after, ang_gpu_copy_t *copy);
/*
 * As ang_gpu_copy_start_after(), but the copy may wait for others that are gathered: the GPU is
 * given them at once, at the latest when ang_gpu_copy_submit() is called for the last one, and
 * makes them in any order. They end together. The test of one that the runtime wouldn't take along
 * says ANGARA_ERR_NO_RESOURCE: nothing was copied, start it again.
 */
angara_status_t ang_gpu_copy_gather(void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                                    const ang_gpu_mem_t *src_mem, size_t length,
                                    const ang_gpu_copy_t *after, ang_gpu_copy_t *copy);
void            ang_gpu_copy_submit(ang_gpu_copy_t *copy);
angara_status_t ang_gpu_copy_test(ang_gpu_copy_t *copy);
/* Test it until it has ended. */
angara_status_t ang_gpu_copy_wait(ang_gpu_copy_t *copy);

/* Copy and wait, however many copies of the thread are under way; where there is no direct way
 * between two GPUs, through the host. */
angara_status_t ang_gpu_copy(void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                             const ang_gpu_mem_t *src_mem, size_t length);

/*
 * As ang_gpu_query_found(): by a runtime that has been found. Map another process's allocation of
 * that kind for GPU `device`; -1: for the first that can. @return the runtime that has mapped it;
 * NULL: none reaches it, or the process doesn't use it.
 */
const ang_gpu_ops_t *ang_gpu_map(uint32_t kind, int device, const ang_gpu_handle_t *handle,
                                 size_t length, ang_gpu_map_t *map);

/* What the i-th runtime in the process lacks, see ang_gpu_library_t; NULL: there is no i-th. */
const char *ang_gpu_lacks(unsigned i, const char **name_p);

/*
 * Does starting a copy between these ends return at once? Else, as of host memory that isn't
 * pinned, the call may make the copy.
 */
int ang_gpu_copy_is_async(const void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                          const ang_gpu_mem_t *src_mem, size_t length);

/* Host memory: is that so of a runtime that has been found? See is_registered(). */
int ang_gpu_is_registered(const void *addr, size_t length);

/* Is it of a kind that the CPU can't read and write? */
static inline int ang_gpu_is_device(const ang_gpu_mem_t *mem)
{
    return mem->ops != NULL && mem->mem.kind == mem->ops->kind;
}

#endif
