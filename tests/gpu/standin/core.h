/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the stand-in runtimes share: GPUs, their memory and the threads that copy. One lock guards
 * all of it; functions are called with it held unless they say otherwise.
 *
 *   memory.c  address space, allocations, memory shared between processes
 *   queue.c   ordered work, a thread per queue
 *   core.c    configuration, failure injection, the control interface
 *
 * GPU memory is a memfd. Its address is in a reservation that nobody can touch (PROT_NONE); copies
 * reach it through a second mapping, `bytes`. Addresses are given out again as soon as can be.
 */
#ifndef STANDIN_CORE_H
#define STANDIN_CORE_H

#include "standin.h"

#include <stddef.h>
#include <stdint.h>

#define CORE_MAX_GPUS 8
#define CORE_PAGE     4096u
/* Of large allocations and of address ranges. */
#define CORE_BLOCK ((size_t)2 << 20)

/* For the program to see. */
#define CORE_EXPORT __attribute__((visibility("default")))

/* As standin.h has them. */
#define CORE_DECLARE(_result, _name, _arguments) CORE_EXPORT _result standin_##_name _arguments;
STANDIN_CALLS(CORE_DECLARE)

/* --- core.c -------------------------------------------------------------------------------- */

typedef struct {
    int      num_visible;
    int      visible[CORE_MAX_GPUS]; /* by number in the process: number in the node */
    uint64_t memory_size;            /* of a GPU */
    uint64_t used[CORE_MAX_GPUS];    /* by number in the node, as all `gpu` below */
    unsigned delay_us;
    int      jitter;
    uint64_t seed;
    int      peer, dmabuf, lock_shift; /* are there? */
    int      late;                     /* copies reach what another process has freed */
    int      hold, capture;
    int      exclusive; /* one call holds up all others, but not the copies */
    int      started;   /* the runtime's init call came */
    int      ended;     /* deinit: everything fails from now on */
    int      forked;    /* a child of a process that had started it */
} core_t;

extern core_t core;

/* The runtime's own variable like STANDIN_VISIBLE. */
extern const char core_visible_variable[];

void core_lock(void); /* not held */
void core_unlock(void);
/* Wait until something has changed, or for `us` if that isn't 0. */
void core_wait(unsigned us);
void core_changed(void);
void core_start(void); /* the runtime has been started once more */

/* Take the lock, count a call. @return the code to fail with, or 0 */
int core_enter(const char *call);
/* Count one more. @return the code to fail with, or 0 */
int  core_count(const char *call);
void core_capture_violation(void);

/* The program did what it mustn't: say so and abort. The lock doesn't matter. */
void core_bug(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* PCI address of a GPU: domain << 16 | bus << 8 | device << 3 | function. */
uint32_t core_pci(int gpu);
/* May GPU `from` reach memory of GPU `to`? */
int core_reaches(int from, int to);

/* --- memory.c ------------------------------------------------------------------------------ */

/* Seen by all processes that map the memory: behind its last page. */
typedef struct {
    uint64_t magic;
    uint64_t id;     /* of the owner's allocation */
    uint64_t size;   /* in bytes, of the allocation */
    uint64_t offset; /* of its first byte in the file */
    int      gpu;
    int      freed; /* by the owner */
} shared_t;

/* Memory of a GPU, at no address yet. */
typedef struct {
    unsigned  refs;
    int       gpu;
    int       own;    /* of this process, counted in core.used */
    int       fd;     /* -1: another process's */
    size_t    length; /* whole pages, without that of `shared` */
    char     *bytes;
    shared_t *shared;
    uint64_t  inode;
} backing_t;

typedef enum {
    MEMORY_DEVICE,
    MEMORY_POOL,     /* stream-ordered */
    MEMORY_VIRTUAL,  /* mapped at an address that was reserved before */
    MEMORY_IMPORTED, /* of another process */
    MEMORY_MANAGED,
    MEMORY_PINNED,    /* host memory of the runtime */
    MEMORY_REGISTERED /* host memory of the program */
} memory_kind_t;

/* An allocation or a mapping at an address. */
typedef struct {
    unsigned      refs; /* the table's and those of copies */
    int           dead; /* freed; atomic */
    memory_kind_t kind;
    int           gpu;
    uintptr_t     addr; /* for GPUs */
    size_t        size;
    char         *bytes;   /* for the CPU: the same for host memory, another for a GPU's */
    backing_t    *backing; /* NULL: host memory */
    uint64_t      id;      /* never given again in a process */
    uint32_t      access;  /* a bit for each GPU that may use it */
    int           freeing; /* that has been asked for, in stream order */
    unsigned      opens;   /* of one that is imported, beside the first */
    void         *owner;   /* the runtime's: context */
    void         *user;    /* the runtime's */
    uintptr_t     range;   /* its own part of the reservation, or 0 */
    size_t        range_size;
} memory_t;

/* Lets another process find a GPU's allocation. */
typedef struct {
    uint32_t magic;
    int32_t  pid;
    int32_t  fd;
    int32_t  gpu;
    uint64_t inode;
    uint64_t id;
} ipc_t;

_Static_assert(sizeof(ipc_t) == 32, "as hsa_amd_ipc_memory_t");

/* A part of the reservation. @return 0: none is free */
uintptr_t range_take(size_t size, size_t align);
void      range_give(uintptr_t addr, size_t size);
int       range_contains(uintptr_t addr);

/* All return NULL or -1 with errno; ENOMEM: beyond the GPU's memory. */
backing_t *backing_create(int gpu, size_t size, size_t offset);
void       backing_put(backing_t *backing);

memory_t *memory_create(memory_kind_t kind, int gpu, size_t size); /* DEVICE, POOL */
memory_t *memory_create_host(memory_kind_t kind, int gpu, size_t size);
/* @param shift  its address for GPUs is another */
memory_t *memory_register(void *addr, size_t size, int shift);
/* Is all of it there, and writable? */
int memory_can_pin(void *addr, size_t size);
/* Map at `addr`, or at any address if that is 0. Takes a reference on `backing`. */
memory_t *memory_map(memory_kind_t kind, backing_t *backing, uintptr_t addr, size_t size);
/* Take it out of the table. Copies that still use it are bugs. */
void memory_free(memory_t *memory);
void memory_put(memory_t *memory);

memory_t *memory_find(uintptr_t addr);
/* The first of those that share bytes with [addr, addr + size), or NULL. */
memory_t *memory_find_in(uintptr_t addr, size_t size);
/* The next in the table, from *index on; NULL: no more. */
memory_t *memory_next(unsigned *index);
int       memory_is_device(const memory_t *memory); /* the CPU can't touch it */
/* Was it freed, here or by its owner? Needs no lock. */
int memory_is_freed(const memory_t *memory);

void ipc_export(const memory_t *memory, ipc_t *ipc);
/* @return one reference. ENOENT: it has gone */
backing_t *ipc_import(const ipc_t *ipc);
/* A descriptor for [addr, addr + size), whole pages that hold a part of the allocation. Its file
 * position tells where in the file they begin. */
int dmabuf_export(const memory_t *memory, uintptr_t addr, size_t size);

/* --- queue.c ------------------------------------------------------------------------------- */

/* As CUDA's default stream: it and blocking streams of one owner take turns. */
typedef enum { QUEUE_FREE, QUEUE_BLOCKING, QUEUE_DEFAULT } queue_order_t;

typedef struct queue queue_t;

/* A piece of work: when ready() says so, copy or fill, then end(). Zeroed where not used. */
typedef struct op {
    struct op  *next;
    uint64_t    seq;
    size_t      length;
    char       *dst;
    const char *src;     /* NULL: fill with the last byte of `value`; 8 bytes: write `value` */
    memory_t   *dst_mem; /* reference taken; NULL: pageable host memory */
    memory_t   *src_mem;
    void       *staged; /* where `src` is, if the call has read it; freed with the work */
    uint64_t    value;
    int         is_write; /* a single word, not a copy */
    int         is_kernel;
    int         fail; /* with this code */
    int (*ready)(void *arg);
    void (*end)(void *arg, int error); /* without the lock */
    void *arg;
} op_t;

/* @param error  of all that shares it, or NULL; once it isn't 0, no work is done any more
 * @return NULL: no thread can be had */
queue_t *queue_create(int gpu, void *owner, queue_order_t order, int *error);
/* It goes when its work is done. */
void queue_destroy(queue_t *queue);
/* Waits for the work that runs, drops what is behind with `error`, and destroys those that haven't
 * been: all queues of an owner. */
void queue_kill(void *owner, int error);
/* @return the work's number. Copies *op. */
uint64_t queue_submit(queue_t *queue, const op_t *op);
/* Until the work with that number has ended; releases the lock meanwhile. */
void queue_wait(queue_t *queue, uint64_t seq);
int  queue_is_idle(const queue_t *queue);
/* All of a GPU, of an owner if that isn't NULL. */
void queue_wait_all(int gpu, const void *owner);
/* The owner's kernels that have been given by now. */
void queue_wait_kernels(int gpu, const void *owner);
/* Number of the work that was given last. */
uint64_t queue_last(void);
/* Hasn't some of the owner's work up to that number ended? */
int      queue_is_busy(int gpu, const void *owner, uint64_t until);
unsigned queue_pending(void);

#endif
