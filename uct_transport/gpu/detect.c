/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When UCX asks what memory a pointer is.
 *
 * UCX takes for host memory what its cache of memory types doesn't have, and while the cache is
 * empty it doesn't even look, which makes short messages a quarter faster. Nothing of UCX's feeds
 * that cache here. So it stays empty until the program may have GPU memory; from then on every
 * pointer is asked for. The sign is the first mapping of a character device: a GPU's driver maps
 * its registers before it allocates anything. Other devices cost those programs the short cut.
 *
 * What UCX keeps about the memory that has been at an address goes when other memory is seen there.
 */
#include "gpu/copier.h"

#include "base/memtype.h"

#include <ucm/api/ucm.h>
#include <ucm/event/event.h>
#include <ucs/memory/memtype_cache.h>
#include <ucs/sys/sys.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/** Beyond all addresses of a process. */
#define UCT_ANGARA_GPU_ADDRESSES UCS_BIT(56)

/* From now on. The order matters: a cache that is empty and switched off would still be believed.
 */
static void uct_angara_gpu_ask(void)
{
    uct_angara_memtype_cache_ask(UCT_ANGARA_GPU_ADDRESSES);
    ucs_global_opts.enable_memtype_cache = UCS_NO; /* spares its lock */
}

/*
 * After an mmap() of the process's, by the thread that called it, perhaps within malloc(): which
 * shares no mappings. A child of fork() inherits this; but another thread may have held UCX's locks
 * then, and there is no use of UCX in a child that the parent began.
 */
static void uct_angara_gpu_mapped(ucm_event_type_t type, ucm_event_t *event, void *arg)
{
    const uct_angara_gpu_md_t *md = arg;
    struct stat                status;

    (void)type;
    if ((ucs_global_opts.enable_memtype_cache == UCS_NO) || (event->mmap.fd < 0) ||
        (event->mmap.flags & MAP_ANONYMOUS) || !(event->mmap.flags & MAP_SHARED) ||
        (event->mmap.result == MAP_FAILED)) {
        return;
    }
    if ((fstat(event->mmap.fd, &status) == 0) && S_ISCHR(status.st_mode) && (getpid() == md->pid)) {
        uct_angara_gpu_ask();
    }
}

/*
 * The other kind of hooks misses libraries that call mmap64(), as those of GPU drivers do. (Without
 * a test: UCX 1.13 itself hangs with that kind.)
 */
static int uct_angara_gpu_is_watched(uct_angara_gpu_md_t *md)
{
    return (ucm_global_opts.mmap_hook_mode == UCM_MMAP_HOOK_BISTRO) &&
           (ucm_set_event_handler(UCM_EVENT_MMAP, 1, uct_angara_gpu_mapped, md) == UCS_OK);
}

/** Allocations that UCX has heard of; some are forgotten. */
#define UCT_ANGARA_GPU_HEARD 1024

/* UCX's hooks of the runtimes tell it of memory that is freed, but it has none of them here. */
void uct_angara_gpu_hear(const angara_mem_t *mem)
{
    static uint64_t heard[UCT_ANGARA_GPU_HEARD]; /* ids; atomic */
    uint64_t       *id    = &heard[mem->id % UCT_ANGARA_GPU_HEARD];
    ucm_event_t     event = {.mem_type = {.address  = mem->base,
                                          .size     = mem->length,
                                          .mem_type = uct_angara_memtype(mem->kind)}};

    if ((mem->id == 0) || (__atomic_load_n(id, __ATOMIC_RELAXED) == mem->id)) {
        return;
    }

    __atomic_store_n(id, mem->id, __ATOMIC_RELAXED);
    ucm_event_enter();
    ucm_event_dispatch(UCM_EVENT_MEM_TYPE_FREE, &event);
    ucm_event_leave();
}

void uct_angara_gpu_detect_start(uct_angara_gpu_md_t *md)
{
    ucs_memory_info_t info;
    const char       *name, *lacks;

    (void)ucs_memtype_cache_lookup(md, sizeof(*md), &info); /* makes the cache */
    if (!uct_angara_gpu_is_watched(md) || (angara_mem_runtime(0, &name, &lacks) == ANGARA_OK)) {
        uct_angara_gpu_ask(); /* mappings can't be watched, or may have been made before */
    }
}

void uct_angara_gpu_detect_stop(uct_angara_gpu_md_t *md)
{
    ucm_unset_event_handler(UCM_EVENT_MMAP, uct_angara_gpu_mapped, md);
}
