/* SPDX-License-Identifier: BSD-3-Clause */
/* Which runtimes are here, and what is the same for all of them: see gpu.h. */
#define _GNU_SOURCE
#include "gpu.h"

#include "provider/provider.h"
#include "src/config.h"
#include "src/log.h"

#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

/* ROCm's needs headers to build. */
static const ang_gpu_ops_t *const runtimes[] = {
#ifndef ANG_NO_ROCM
    &ang_gpu_rocm,
#endif
    &ang_gpu_cuda};

#define RUNTIMES_NUM (sizeof(runtimes) / sizeof(runtimes[0]))

/* ---- which are here -------------------------------------------------------------------------- */

uint32_t        ang_gpu_here; /* bit per runtime, only grows; atomic */
static unsigned left_out;     /* the same of those that ANGARA_GPU leaves out; atomic */
uint64_t        ang_gpu_set;
static unsigned used;  /* bit per runtime that has had memory here; atomic */
static unsigned epoch; /* ang_fork_epoch then */
static unsigned long long
    looked; /* libraries that had been loaded when all were looked for; atomic */

typedef struct {
    unsigned long long loaded; /* libraries, ever: a runtime comes with one */
    unsigned           listed; /* bit per runtime of which there is a library */
} libraries_t;

/*
 * The loader's list has a lock that fork() doesn't take care of: a child of a fork meanwhile could
 * never load a library. So forks wait for `listing`. Threads that come to it hold other locks: it
 * is taken after all of them, also by fork(), whose handlers run in reverse order.
 */
static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;

static void listing_lock(void)
{
    pthread_mutex_lock(&listing);
}

static void listing_unlock(void)
{
    pthread_mutex_unlock(&listing);
}

static void listing_unlock_in_child(void)
{
    listing_unlock();
    ang_gpu_set = 0;
}

__attribute__((constructor(101))) static void listing_init(void)
{
    pthread_atfork(listing_lock, listing_unlock, listing_unlock_in_child);
}

static int library_see(struct dl_phdr_info *info, size_t size, void *libraries_p)
{
    libraries_t *libraries = libraries_p;

    if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof(info->dlpi_adds)) {
        libraries->loaded = info->dlpi_adds;
        if (libraries->loaded == __atomic_load_n(&looked, __ATOMIC_ACQUIRE)) {
            return 1; /* none has come since */
        }
    }
    for (unsigned i = 0; i < RUNTIMES_NUM; ++i) {
        if (ang_gpu_library_is_listed(runtimes[i]->library, info->dlpi_name)) {
            libraries->listed |= 1u << i;
        }
    }
    return 0;
}

/* ANGARA_GPU: auto, none, or one of them. */
static int is_wanted(unsigned i)
{
    return ang_config.gpu == ANG_CONFIG_GPU_AUTO ||
           (ang_config.gpu == ANG_CONFIG_GPU_ROCM && runtimes[i]->kind == ANGARA_MEM_ROCM) ||
           (ang_config.gpu == ANG_CONFIG_GPU_CUDA && runtimes[i]->kind == ANGARA_MEM_CUDA);
}

/*
 * Look at what was loaded since the last time. A thread waits here for the loader only while there
 * is a runtime that nobody has resolved yet: its memory may be what the thread asks about.
 */
static void look(void)
{
    libraries_t libraries = {0};

    listing_lock();
    dl_iterate_phdr(library_see, &libraries);
    listing_unlock();
    if (libraries.loaded != 0 && libraries.loaded == __atomic_load_n(&looked, __ATOMIC_RELAXED)) {
        return;
    }
    for (unsigned i = 0; libraries.listed >> i != 0; ++i) {
        unsigned *found = is_wanted(i) ? &ang_gpu_here : &left_out;

        if ((libraries.listed >> i & 1) && !(__atomic_load_n(found, __ATOMIC_RELAXED) >> i & 1) &&
            ang_gpu_library_find(runtimes[i]->library)) {
            __atomic_or_fetch(found, 1u << i, __ATOMIC_RELEASE);
        }
    }
    __atomic_store_n(&looked, libraries.loaded, __ATOMIC_RELEASE);
}

/* A child whose parent has had GPU memory has none: no runtime outlives fork(). */
static int may_be_here(void)
{
    return __atomic_load_n(&used, __ATOMIC_ACQUIRE) == 0 || epoch == ang_fork_epoch;
}

void ang_gpu_look(void)
{
    if (may_be_here()) {
        look();
    }
}

/* Bits of those that have been found and may be asked, of `ang_gpu_here` or `left_out`. */
static unsigned found_of(const unsigned *found)
{
    return may_be_here() ? __atomic_load_n(found, __ATOMIC_ACQUIRE) : 0;
}

static unsigned runtimes_found(void)
{
    return found_of(&ang_gpu_here);
}

static unsigned runtimes_here(void)
{
    ang_gpu_look();
    return runtimes_found();
}

static int has_node(const ang_gpu_ops_t *ops)
{
    for (unsigned i = 0; i < sizeof(ops->nodes) / sizeof(ops->nodes[0]); ++i) {
        if (ops->nodes[i] != NULL && access(ops->nodes[i], F_OK) == 0) {
            return 1;
        }
    }
    return 0;
}

static int is_named(unsigned i)
{
    return ang_config.gpu != ANG_CONFIG_GPU_AUTO && is_wanted(i);
}

/* Bits of the runtimes among `found` whose memory there is, or may be: of GPUs that were named, at
 * least. */
static unsigned usable_of(const unsigned *found)
{
    unsigned usable;

    ang_gpu_look();
    usable = found_of(found);
    for (unsigned i = 0; i < RUNTIMES_NUM; ++i) {
        if (!is_named(i) && runtimes[i]->is_common &&
            !(__atomic_load_n(&used, __ATOMIC_RELAXED) >> i & 1) && !has_node(runtimes[i])) {
            usable &= ~(1u << i);
        }
    }
    return usable;
}

uint32_t ang_gpu_kinds(void)
{
    unsigned usable = usable_of(&ang_gpu_here);
    uint32_t kinds  = 1u << ANGARA_MEM_HOST;

    for (unsigned i = 0; i < RUNTIMES_NUM; ++i) {
        if (is_wanted(i) && (is_named(i) || (usable >> i & 1) || has_node(runtimes[i]))) {
            kinds |= 1u << runtimes[i]->kind | 1u << runtimes[i]->managed;
        }
    }
    return kinds;
}

uint32_t ang_gpu_kinds_left_out(void)
{
    unsigned usable = usable_of(&left_out);
    uint32_t kinds  = 0;

    for (unsigned i = 0; i < RUNTIMES_NUM; ++i) {
        if (!is_wanted(i) && ((usable >> i & 1) || has_node(runtimes[i]))) {
            kinds |= 1u << runtimes[i]->kind;
        }
    }
    return kinds;
}

/* ---- pointers and copies --------------------------------------------------------------------- */

/* There is memory of that runtime's in the process. */
static void note_use(unsigned i)
{
    if (!(__atomic_load_n(&used, __ATOMIC_RELAXED) & 1u << i)) {
        epoch = ang_fork_epoch;
        __atomic_or_fetch(&used, 1u << i, __ATOMIC_RELEASE);
    }
}

/* Whose memory is it, of these runtimes? *mem is filled in, all but its `ops`; NULL: nobody's. */
static const ang_gpu_ops_t *ask(unsigned these, const void *addr, ang_gpu_mem_t *mem)
{
    for (unsigned i = 0; these >> i != 0; ++i) {
        if ((these >> i & 1) && runtimes[i]->query(addr, mem)) {
            note_use(i);
            return runtimes[i];
        }
    }
    return NULL;
}

static const ang_gpu_mem_t host_memory = {.mem = {.kind = ANGARA_MEM_HOST, .device = -1}};

void ang_gpu_query_found(const void *addr, ang_gpu_mem_t *mem)
{
    *mem     = host_memory;
    mem->ops = ask(runtimes_found(), addr, mem);
}

/* The program uses that GPU. */
static void note_gpu(const ang_gpu_mem_t *mem)
{
    uint64_t bit = ang_gpu_bit((angara_mem_kind_t)mem->mem.kind, mem->mem.pci);

    if (ang_gpu_is_device(mem) && !(__atomic_load_n(&ang_gpu_set, __ATOMIC_RELAXED) & bit)) {
        __atomic_or_fetch(&ang_gpu_set, bit, __ATOMIC_RELAXED);
    }
}

/* Memory that isn't a wanted runtime's: is it one's that ANGARA_GPU leaves out? */
static void query_left_out(const void *addr, ang_gpu_mem_t *mem)
{
    const ang_gpu_ops_t *ops = ask(found_of(&left_out), addr, mem);

    if (ops == NULL) {
        return;
    }
    mem->is_left_out = mem->mem.kind == ops->kind;
    if (!mem->is_left_out) {
        *mem = host_memory; /* the CPU may touch managed memory */
    }
}

void ang_gpu_query(const void *addr, ang_gpu_mem_t *mem)
{
    unsigned here = runtimes_found();

    ang_gpu_query_found(addr, mem);
    if (mem->ops == NULL && runtimes_here() != here) {
        ang_gpu_query_found(addr, mem); /* it may be of a runtime that came since */
    }
    if (mem->ops == NULL) {
        query_left_out(addr, mem);
    }
    note_gpu(mem);
}

int ang_gpu_is_within(const void *addr, size_t length, const ang_gpu_mem_t *mem)
{
    uintptr_t offset = (uintptr_t)addr - (uintptr_t)mem->mem.base;

    return mem->ops == NULL || ang_in_bounds(offset, length, mem->mem.length);
}

typedef enum { ALONE, AWAITED, GATHERED } manner_t;

static angara_status_t copy_start(void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                                  const ang_gpu_mem_t *src_mem, size_t length, manner_t manner,
                                  const ang_gpu_copy_t *after, ang_gpu_copy_t *copy)
{
    const ang_gpu_ops_t *ops = dst_mem->ops != NULL ? dst_mem->ops : src_mem->ops;
    angara_status_t      status;

    if (after != NULL && after->ops == NULL) {
        after = NULL; /* it has ended */
    }
    *copy = (ang_gpu_copy_t){.ops        = ops,
                             .after      = after,
                             .epoch      = ang_fork_epoch,
                             .is_awaited = manner == AWAITED,
                             .may_gather = manner == GATHERED};
    if (ops == NULL || (src_mem->ops != NULL && src_mem->ops != ops)) {
        status = ANGARA_ERR_UNSUPPORTED;
    } else if (!ang_gpu_is_within(dst, length, dst_mem) ||
               !ang_gpu_is_within(src, length, src_mem)) {
        status = ANGARA_ERR_BOUNDS;
    } else if (after != NULL && after->ops != ops) {
        status = ANGARA_ERR_NO_RESOURCE;
    } else if (length == 0) {
        status = ANGARA_OK;
    } else {
        status = ops->copy_start(dst, dst_mem, src, src_mem, length, copy);
    }
    if (status != ANGARA_INPROGRESS) {
        copy->ops    = NULL;
        copy->status = status;
    }
    return status;
}

angara_status_t ang_gpu_copy_start(void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                                   const ang_gpu_mem_t *src_mem, size_t length,
                                   ang_gpu_copy_t *copy)
{
    return copy_start(dst, dst_mem, src, src_mem, length, ALONE, NULL, copy);
}

angara_status_t ang_gpu_copy_start_after(void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                                         const ang_gpu_mem_t *src_mem, size_t length,
                                         const ang_gpu_copy_t *after, ang_gpu_copy_t *copy)
{
    return copy_start(dst, dst_mem, src, src_mem, length, ALONE, after, copy);
}

angara_status_t ang_gpu_copy_gather(void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                                    const ang_gpu_mem_t *src_mem, size_t length,
                                    const ang_gpu_copy_t *after, ang_gpu_copy_t *copy)
{
    return copy_start(dst, dst_mem, src, src_mem, length, GATHERED, after, copy);
}

int ang_gpu_copy_is_async(const void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                          const ang_gpu_mem_t *src_mem, size_t length)
{
    if (dst_mem->ops != NULL && src_mem->ops != NULL) {
        return 1;
    }
    return dst_mem->ops != NULL ? dst_mem->ops->is_pinned(src, length) :
                                  src_mem->ops->is_pinned(dst, length);
}

int ang_gpu_is_registered(const void *addr, size_t length)
{
    unsigned here = runtimes_found();

    for (unsigned i = 0; here >> i != 0; ++i) {
        if ((here >> i & 1) && runtimes[i]->is_registered != NULL &&
            runtimes[i]->is_registered(addr, length)) {
            return 1;
        }
    }
    return 0;
}

angara_status_t ang_gpu_copy_test(ang_gpu_copy_t *copy)
{
    if (copy->ops != NULL) {
        if (copy->epoch != ang_fork_epoch) {
            return ANGARA_ERR_FORKED;
        }
        copy->status = copy->ops->copy_test(copy);
        if (copy->status != ANGARA_INPROGRESS) {
            copy->ops = NULL;
        }
    }
    return copy->status;
}

void ang_gpu_copy_submit(ang_gpu_copy_t *copy)
{
    if (copy->ops != NULL && copy->ops->copy_submit != NULL && copy->epoch == ang_fork_epoch) {
        copy->ops->copy_submit(copy);
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

#define SPINS 10000     /* tests of a copy before the processor is given away between them */
#define STAGE (1 << 20) /* bytes that go through the host at a time */

angara_status_t ang_gpu_copy_wait(ang_gpu_copy_t *copy)
{
    angara_status_t status;

    for (unsigned i = 0; (status = ang_gpu_copy_test(copy)) == ANGARA_INPROGRESS; ++i) {
        if (i > SPINS) {
            sched_yield();
        }
    }
    return status;
}

static angara_status_t copy_direct(void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                                   const ang_gpu_mem_t *src_mem, size_t length)
{
    angara_status_t status;
    ang_gpu_copy_t  copy;

    while ((status = copy_start(dst, dst_mem, src, src_mem, length, AWAITED, NULL, &copy)) ==
           ANGARA_ERR_NO_RESOURCE) {
        sched_yield();
    }
    return status == ANGARA_INPROGRESS ? ang_gpu_copy_wait(&copy) : status;
}

/* Between GPUs that don't reach each other. */
static angara_status_t copy_staged(char *dst, const ang_gpu_mem_t *dst_mem, const char *src,
                                   const ang_gpu_mem_t *src_mem, size_t length)
{
    angara_status_t status = ANGARA_OK;
    size_t          size;
    char           *stage = malloc(length < STAGE ? length : STAGE);

    if (stage == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    for (size_t done = 0; done < length && status == ANGARA_OK; done += size) {
        size   = length - done < STAGE ? length - done : STAGE;
        status = copy_direct(stage, &host_memory, src + done, src_mem, size);
        if (status == ANGARA_OK) {
            status = copy_direct(dst + done, dst_mem, stage, &host_memory, size);
        }
    }
    free(stage);
    return status;
}

angara_status_t ang_gpu_copy(void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                             const ang_gpu_mem_t *src_mem, size_t length)
{
    angara_status_t status = copy_direct(dst, dst_mem, src, src_mem, length);

    if (status == ANGARA_ERR_UNSUPPORTED && dst_mem->ops != NULL && src_mem->ops != NULL) {
        status = copy_staged(dst, dst_mem, src, src_mem, length);
    }
    return status;
}

#define DEVICES_MAX 64 /* of a runtime */

const ang_gpu_ops_t *ang_gpu_map(uint32_t kind, int device, const ang_gpu_handle_t *handle,
                                 size_t length, ang_gpu_map_t *map)
{
    unsigned        here   = runtimes_found();
    angara_status_t status = ANGARA_ERR_UNSUPPORTED;

    for (unsigned i = 0; here >> i != 0; ++i) {
        if (!(here >> i & 1) || runtimes[i]->kind != kind) {
            continue;
        }
        if (device >= 0) {
            status = runtimes[i]->map(device, handle, length, map);
        }
        for (int d = 0; device < 0 && d < DEVICES_MAX && status == ANGARA_ERR_UNSUPPORTED; ++d) {
            status = runtimes[i]->map(d, handle, length, map);
        }
        if (status == ANGARA_OK) {
            note_use(i);
            return runtimes[i];
        }
    }
    return NULL;
}

const char *ang_gpu_lacks(unsigned i, const char **name_p)
{
    unsigned usable = usable_of(&ang_gpu_here) | usable_of(&left_out);

    for (unsigned n = 0; usable >> n != 0; ++n) {
        if ((usable >> n & 1) && i-- == 0) {
            *name_p = runtimes[n]->name;
            return runtimes[n]->library->lacks;
        }
    }
    return NULL;
}
