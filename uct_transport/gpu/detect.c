/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When UCX asks what memory a pointer is.
 *
 * UCX has a cache of memory types. While that is empty UCP doesn't ask about the buffers of short
 * sends, which makes them a quarter faster. While it is switched off, too, UCP asks the memory
 * domain about all other buffers, instead of taking the cache's lock to look into it. So it is made
 * here, empty, and switched off; and the domain knows of no memory until the program may have that
 * of a GPU. From then on something is in the cache, and every pointer is asked for. The sign is the
 * first mapping of a character device: a GPU's driver maps its registers before it allocates
 * anything. Other devices cost those programs the short cut.
 *
 * What UCX keeps about the memory that has been at an address goes when other memory is seen there.
 */
#define _GNU_SOURCE
#include "gpu/copier.h"

#include "base/memtype.h"

#include <ucm/api/ucm.h>
#include <ucm/event/event.h>
#include <ucs/memory/memtype_cache.h>
#include <ucs/sys/sys.h>

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/** Beyond all addresses of a process. */
#define UCT_ANGARA_GPU_ADDRESSES UCS_BIT(56)

int uct_angara_gpu_asks;

/* Of mappings of the process, while a domain watches them; atomic. */
static uint64_t uct_angara_gpu_num_changes;

/** First bytes of a function, which tell whether a hook is still in it. */
#define UCT_ANGARA_GPU_HOOK_BYTES 16

/* What has to call the hooks. */
static struct {
    const void *function;
    char        code[UCT_ANGARA_GPU_HOOK_BYTES];
} uct_angara_gpu_hooked[] = {{(const void *)mmap, ""}, {(const void *)munmap, ""}};

/* From now on. */
static void uct_angara_gpu_ask(void)
{
    __atomic_store_n(&uct_angara_gpu_asks, 1, __ATOMIC_RELEASE);
    uct_angara_memtype_cache_ask(UCT_ANGARA_GPU_ADDRESSES);
}

/*
 * After an mmap() of the process's and before memory of it is unmapped, by the thread that does so,
 * perhaps within malloc(): which shares no mappings. A child of fork() inherits this: nobody held
 * the cache's lock then, which isn't taken before UCX is to ask.
 */
static void uct_angara_gpu_mapped(ucm_event_type_t type, ucm_event_t *event, void *arg)
{
    struct stat status;

    (void)arg;
    __atomic_add_fetch(&uct_angara_gpu_num_changes, 1, __ATOMIC_RELEASE);
    if ((type != UCM_EVENT_MMAP) || uct_angara_gpu_is_asking() || (event->mmap.fd < 0) ||
        (event->mmap.flags & MAP_ANONYMOUS) || !(event->mmap.flags & MAP_SHARED) ||
        (event->mmap.result == MAP_FAILED)) {
        return;
    }
    if ((fstat(event->mmap.fd, &status) == 0) && S_ISCHR(status.st_mode)) {
        uct_angara_gpu_ask();
    }
}

#define UCT_ANGARA_GPU_EVENTS (UCM_EVENT_MMAP | UCM_EVENT_VM_UNMAPPED)

/*
 * The other kind of hooks misses libraries that call mmap64(), as those of GPU drivers do. (Without
 * a test: UCX 1.13 itself hangs with that kind.)
 */
static int uct_angara_gpu_is_watched(uct_angara_gpu_md_t *md)
{
    return (ucm_global_opts.mmap_hook_mode == UCM_MMAP_HOOK_BISTRO) &&
           (ucm_set_event_handler(UCT_ANGARA_GPU_EVENTS, 1, uct_angara_gpu_mapped, md) == UCS_OK);
}

/** What a GPU's driver gives addresses for at once, at least: nothing of the host's is between. */
#define UCT_ANGARA_GPU_PAGE_SHIFT 21

/** Such pages that are remembered. Of two so far apart the other one is forgotten. */
#define UCT_ANGARA_GPU_PAGES 1024

/* What has been at a page: its number twice, + 1 if it was a GPU's memory. Atomic; 0: unknown. */
static uintptr_t uct_angara_gpu_pages[UCT_ANGARA_GPU_PAGES];

static void uct_angara_gpu_page_set(uintptr_t number, int is_gpu)
{
    uintptr_t *page = &uct_angara_gpu_pages[number % UCT_ANGARA_GPU_PAGES];
    uintptr_t  word = 2 * number + !!is_gpu;

    if (__atomic_load_n(page, __ATOMIC_RELAXED) != word) {
        __atomic_store_n(page, word, __ATOMIC_RELAXED);
    }
}

/*
 * A driver may keep the addresses of freed memory, so that they are mapped and can't be read. The
 * kernel reads the bytes before it sees that there is nothing to do. (To read them by
 * process_vm_readv() fails for device registers, too, which the CPU may touch.)
 */
static int uct_angara_gpu_is_unreadable(uintptr_t address)
{
    uintptr_t word = ucs_align_down_pow2(address, sizeof(uint64_t));

    return (syscall(SYS_rt_sigprocmask, -1, word, NULL, sizeof(uint64_t)) != 0) &&
           (errno == EFAULT);
}

/* As mincore(), at one page. */
static int uct_angara_gpu_look(uintptr_t address, unsigned char *resident)
{
    return mincore((void *)ucs_align_down_pow2(address, ucs_get_page_size()), 1, resident);
}

/* Nothing is read: a program may open memory when it is touched, by a handler of its own. */
static int uct_angara_gpu_is_unmapped(uintptr_t address)
{
    unsigned char resident;

    return (uct_angara_gpu_look(address, &resident) != 0) && (errno == ENOMEM);
}

/* To ask the kernel takes longer than a short message: once for each page, until a GPU's memory is
 * seen there. */
int uct_angara_gpu_is_gone(const void *pointer)
{
    uintptr_t address = (uintptr_t)pointer & (UCT_ANGARA_GPU_ADDRESSES - 1); /* without a tag */
    uintptr_t number  = address >> UCT_ANGARA_GPU_PAGE_SHIFT;
    uintptr_t page    = __atomic_load_n(&uct_angara_gpu_pages[number % UCT_ANGARA_GPU_PAGES],
                                        __ATOMIC_RELAXED);

    if ((page == 2 * number) && (number != 0)) {
        return 0;
    }
    if ((page == 2 * number + 1) ? uct_angara_gpu_is_unreadable(address) :
                                   uct_angara_gpu_is_unmapped(address)) {
        return 1;
    }
    uct_angara_gpu_page_set(number, 0);
    return 0;
}

/* A GPU's memory is at all pages of the allocation: at the first ones, if it is very large. */
static void uct_angara_gpu_remember(const angara_mem_t *mem)
{
    uintptr_t first = (uintptr_t)mem->base >> UCT_ANGARA_GPU_PAGE_SHIFT;
    uintptr_t last  = ((uintptr_t)mem->base + mem->length - 1) >> UCT_ANGARA_GPU_PAGE_SHIFT;
    uintptr_t number;

    for (number = first; number <= ucs_min(last, first + UCT_ANGARA_GPU_PAGES - 1); ++number) {
        uct_angara_gpu_page_set(number, 1);
    }
}

/** Of a page of 4 KiB: none has memory of the host and of a GPU at once. */
#define UCT_ANGARA_GPU_HOST_PAGE_SHIFT 12

/** Such pages that a thread remembers. Of two so far apart the other one is forgotten. */
#define UCT_ANGARA_GPU_HOST_PAGES 128

/*
 * Pages of the host's, and what had changed before a driver was asked about them. Memory of a GPU
 * can't come to such a page before that is unmapped.
 */
typedef struct uct_angara_gpu_host_page {
    uintptr_t number;
    uint64_t  changes;
} uct_angara_gpu_host_page_t;

/* Where a page of that number is remembered. */
static uct_angara_gpu_host_page_t *uct_angara_gpu_host_page(uintptr_t number)
{
    static __thread uct_angara_gpu_host_page_t pages[UCT_ANGARA_GPU_HOST_PAGES];

    return &pages[number % UCT_ANGARA_GPU_HOST_PAGES];
}

/* Once: for a domain that is opened later they may have been overwritten. */
static void uct_angara_gpu_hooked_keep(void)
{
    static int was_kept;
    unsigned   i;

    for (i = 0; !was_kept && (i < ucs_static_array_size(uct_angara_gpu_hooked)); ++i) {
        memcpy(uct_angara_gpu_hooked[i].code, uct_angara_gpu_hooked[i].function,
               UCT_ANGARA_GPU_HOOK_BYTES);
    }
    was_kept = 1;
}

/* Libraries that are loaded later may put hooks of their own over those. */
static int uct_angara_gpu_is_hooked(void)
{
    unsigned i;

    for (i = 0; i < ucs_static_array_size(uct_angara_gpu_hooked); ++i) {
        if (memcmp(uct_angara_gpu_hooked[i].function, uct_angara_gpu_hooked[i].code,
                   UCT_ANGARA_GPU_HOOK_BYTES) != 0) {
            return 0;
        }
    }
    return 1;
}

uint64_t uct_angara_gpu_changes(const uct_angara_gpu_md_t *md)
{
    return (md->is_watching && uct_angara_gpu_is_hooked()) ?
               __atomic_load_n(&uct_angara_gpu_num_changes, __ATOMIC_ACQUIRE) :
               0;
}

int uct_angara_gpu_is_hosts(const void *pointer, uint64_t changes)
{
    uintptr_t                         number = (uintptr_t)pointer >> UCT_ANGARA_GPU_HOST_PAGE_SHIFT;
    const uct_angara_gpu_host_page_t *page   = uct_angara_gpu_host_page(number);

    return (changes != 0) && (page->number == number) && (page->changes == changes);
}

/* A driver keeps addresses for memory to come: only what is there is remembered. */
void uct_angara_gpu_see_hosts(const void *pointer, uint64_t changes)
{
    uintptr_t     number = (uintptr_t)pointer >> UCT_ANGARA_GPU_HOST_PAGE_SHIFT;
    unsigned char resident;

    if ((changes != 0) && (uct_angara_gpu_look((uintptr_t)pointer, &resident) == 0) &&
        (resident & 1)) {
        *uct_angara_gpu_host_page(number) = (uct_angara_gpu_host_page_t){number, changes};
    }
}

/** Allocations that UCX has heard of. Of two so far apart the other one is forgotten. */
#define UCT_ANGARA_GPU_HEARD 65536

/*
 * UCX's hooks of the runtimes tell it of memory that is freed, but it has none of them here. Memory
 * without an id may be other memory each time. That the id is known tells threads that the rest has
 * been done.
 */
void uct_angara_gpu_hear(const void *address, const angara_mem_t *mem)
{
    static uint64_t heard[UCT_ANGARA_GPU_HEARD]; /* ids; atomic */
    uint64_t       *id    = &heard[mem->id % UCT_ANGARA_GPU_HEARD];
    ucm_event_t     event = {.mem_type = {.address  = mem->base,
                                          .size     = mem->length,
                                          .mem_type = uct_angara_memtype(mem->kind)}};

    uct_angara_gpu_page_set((uintptr_t)address >> UCT_ANGARA_GPU_PAGE_SHIFT, 1);
    if ((mem->base == NULL) ||
        ((mem->id != 0) && (__atomic_load_n(id, __ATOMIC_ACQUIRE) == mem->id))) {
        return;
    }

    uct_angara_gpu_remember(mem);
    ucm_event_enter();
    ucm_event_dispatch(UCM_EVENT_MEM_TYPE_FREE, &event);
    ucm_event_leave();
    __atomic_store_n(id, mem->id, __ATOMIC_RELEASE);
}

void uct_angara_gpu_detect_start(uct_angara_gpu_md_t *md)
{
    ucs_memory_info_t info;
    const char       *name, *lacks;

    (void)ucs_memtype_cache_lookup(md, sizeof(*md), &info); /* makes the cache */
    ucs_global_opts.enable_memtype_cache = UCS_NO;
    /* what changed while no domain watched counts as one change */
    __atomic_add_fetch(&uct_angara_gpu_num_changes, 1, __ATOMIC_RELEASE);
    md->is_watching = uct_angara_gpu_is_watched(md);
    if (md->is_watching) {
        uct_angara_gpu_hooked_keep();
    }
    if (!md->is_watching || (angara_mem_runtime(0, &name, &lacks) == ANGARA_OK)) {
        uct_angara_gpu_ask(); /* mappings can't be watched, or may have been made before */
    } else if (!uct_angara_gpu_is_asking()) {
        /* UCX 1.18's part for ROCm takes a page of any process for one of a GPU. */
        ucs_memtype_cache_remove(NULL, UCT_ANGARA_GPU_ADDRESSES);
    }
}

void uct_angara_gpu_detect_stop(uct_angara_gpu_md_t *md)
{
    ucm_unset_event_handler(UCT_ANGARA_GPU_EVENTS, uct_angara_gpu_mapped, md);
}
