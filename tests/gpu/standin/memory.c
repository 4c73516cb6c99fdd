/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-ins' memory: addresses, allocations, and memory shared between processes. */
#define _GNU_SOURCE

#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC        0x5374616e64496e31ull
#define SMALL        512u              /* allocations are multiples of it, */
#define LARGE        ((size_t)1 << 20) /* and these of CORE_BLOCK */
#define MAX_REUSED   64
#define RESERVE_TIME 4 /* so many times as much address space as memory */

typedef struct {
    uintptr_t addr;
    size_t    size;
} range_t;

/* A sorted array of the ranges in use, those that were given back last, and the reservation. */
static struct {
    range_t *used;
    unsigned num, capacity;
    range_t  reused[MAX_REUSED];
    unsigned num_reused; /* ever */
    range_t  all;
} space;

/* The allocations and mappings, sorted by address. */
static struct {
    memory_t **memories;
    unsigned   num, capacity;
    uint64_t   last_id;
} table;

static size_t round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

/* One more element in an array of pointers or larger things. */
static void *grow(void *array, unsigned num, unsigned *capacity, size_t size)
{
    if (num == *capacity) {
        *capacity = *capacity != 0 ? 2 * *capacity : 64;
        array     = realloc(array, *capacity * size);
        if (array == NULL) {
            core_bug("no memory of the host is left");
        }
    }
    return array;
}

/* --- address space --------------------------------------------------------------------------*/

static int reserve(void)
{
    size_t size = round_up(core.memory_size * RESERVE_TIME * CORE_MAX_GPUS, CORE_BLOCK);
    void  *addr;

    if (space.all.addr != 0) {
        return 0;
    }
    addr = mmap(NULL, size + CORE_BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0);
    if (addr == MAP_FAILED) {
        return -1;
    }
    space.all = (range_t){round_up((uintptr_t)addr, CORE_BLOCK), size};
    return 0;
}

/* Where in `used` a range at `addr` belongs. */
static unsigned place_of(uintptr_t addr)
{
    unsigned low = 0, high = space.num;

    while (low < high) {
        unsigned middle = (low + high) / 2;

        if (space.used[middle].addr < addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Is [addr, addr + size) free, if it belongs at `place`? */
static int is_free(unsigned place, uintptr_t addr, size_t size)
{
    const range_t *used = space.used;

    return (place == 0 || used[place - 1].addr + used[place - 1].size <= addr) &&
           (place == space.num || addr + size <= used[place].addr);
}

static uintptr_t take(unsigned place, uintptr_t addr, size_t size)
{
    space.used = grow(space.used, space.num, &space.capacity, sizeof(range_t));
    memmove(&space.used[place + 1], &space.used[place], (space.num - place) * sizeof(range_t));
    space.used[place] = (range_t){addr, size};
    ++space.num;
    return addr;
}

uintptr_t range_take(size_t size, size_t align)
{
    uintptr_t addr;
    unsigned  place;

    if (reserve() != 0) {
        return 0;
    }
    /* What was given back last, if it fits. */
    for (unsigned i = space.num_reused; i > 0 && space.num_reused - i < MAX_REUSED; --i) {
        const range_t *reused = &space.reused[(i - 1) % MAX_REUSED];

        place = place_of(reused->addr);
        if (reused->size == size && reused->addr % align == 0 &&
            is_free(place, reused->addr, size)) {
            return take(place, reused->addr, size);
        }
    }
    /* Else the first that fits. */
    addr = space.all.addr;
    for (place = 0; place < space.num; ++place) {
        if (round_up(addr, align) + size <= space.used[place].addr) {
            break;
        }
        addr = space.used[place].addr + space.used[place].size;
    }
    addr = round_up(addr, align);
    return addr + size <= space.all.addr + space.all.size ? take(place, addr, size) : 0;
}

void range_give(uintptr_t addr, size_t size)
{
    unsigned place = place_of(addr);

    if (place == space.num || space.used[place].addr != addr || space.used[place].size != size) {
        core_bug("the range %#lx wasn't taken", (unsigned long)addr);
    }
    --space.num;
    memmove(&space.used[place], &space.used[place + 1], (space.num - place) * sizeof(range_t));
    space.reused[space.num_reused++ % MAX_REUSED] = (range_t){addr, size};
}

int range_contains(uintptr_t addr)
{
    return addr - space.all.addr < space.all.size;
}

/* --- memory without an address --------------------------------------------------------------*/

/* `fd` becomes the backing's. */
static backing_t *backing_map(int fd, size_t length)
{
    backing_t  *backing = calloc(1, sizeof(*backing));
    struct stat info;
    void       *bytes;

    if (backing == NULL || fstat(fd, &info) != 0) {
        goto fail;
    }
    bytes = mmap(NULL, length + CORE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) {
        goto fail;
    }
    madvise(bytes, length + CORE_PAGE, MADV_DONTFORK);
    *backing = (backing_t){.refs   = 1,
                           .fd     = fd,
                           .length = length,
                           .bytes  = bytes,
                           .shared = (shared_t *)((char *)bytes + length),
                           .inode  = info.st_ino};
    return backing;

fail:
    free(backing);
    close(fd);
    return NULL;
}

backing_t *backing_create(int gpu, size_t size, size_t offset)
{
    size_t     length = round_up(offset + size, CORE_PAGE);
    backing_t *backing;
    int        fd;

    if (size > core.memory_size || length > core.memory_size - core.used[gpu]) {
        errno = ENOMEM;
        return NULL;
    }
    fd = memfd_create("standin-gpu", MFD_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    if (ftruncate(fd, (off_t)(length + CORE_PAGE)) != 0) {
        close(fd);
        return NULL;
    }
    backing = backing_map(fd, length);
    if (backing == NULL) {
        return NULL;
    }
    *backing->shared = (shared_t){
        .magic = MAGIC, .id = ++table.last_id, .size = size, .offset = offset, .gpu = gpu};
    backing->gpu = gpu;
    backing->own = 1;
    core.used[gpu] += length;
    return backing;
}

void backing_put(backing_t *backing)
{
    if (--backing->refs > 0) {
        return;
    }
    if (backing->own) {
        __atomic_store_n(&backing->shared->freed, 1, __ATOMIC_RELEASE);
        core.used[backing->gpu] -= backing->length;
    }
    munmap(backing->bytes, backing->length + CORE_PAGE);
    if (backing->fd >= 0) {
        close(backing->fd);
    }
    free(backing);
}

/* --- the table ------------------------------------------------------------------------------*/

/* Number of entries that begin at `addr` or below. */
static unsigned num_below(uintptr_t addr)
{
    unsigned low = 0, high = table.num;

    while (low < high) {
        unsigned middle = (low + high) / 2;

        if (table.memories[middle]->addr <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

memory_t *memory_find(uintptr_t addr)
{
    unsigned  place  = num_below(addr);
    memory_t *memory = place > 0 ? table.memories[place - 1] : NULL;

    return memory != NULL && addr - memory->addr < memory->size ? memory : NULL;
}

memory_t *memory_find_in(uintptr_t addr, size_t size)
{
    unsigned  place  = num_below(addr);
    memory_t *memory = memory_find(addr);

    if (memory == NULL && place < table.num && table.memories[place]->addr - addr < size) {
        memory = table.memories[place];
    }
    return memory;
}

memory_t *memory_next(unsigned *index)
{
    return *index < table.num ? table.memories[(*index)++] : NULL;
}

int memory_is_device(const memory_t *memory)
{
    return memory->kind <= MEMORY_IMPORTED;
}

int memory_is_freed(const memory_t *memory)
{
    return __atomic_load_n(&memory->dead, __ATOMIC_ACQUIRE) ||
           (memory->backing != NULL &&
            __atomic_load_n(&memory->backing->shared->freed, __ATOMIC_ACQUIRE));
}

static memory_t *memory_new(memory_kind_t kind, int gpu, uintptr_t addr, size_t size)
{
    memory_t *memory = calloc(1, sizeof(*memory));
    unsigned  place  = num_below(addr);

    if (memory == NULL) {
        core_bug("no memory of the host is left");
    }
    *memory = (memory_t){.refs   = 1,
                         .kind   = kind,
                         .gpu    = gpu,
                         .addr   = addr,
                         .size   = size,
                         .bytes  = (char *)addr,
                         .access = 1u << gpu,
                         .id     = ++table.last_id};

    table.memories = grow(table.memories, table.num, &table.capacity, sizeof(memory_t *));
    memmove(&table.memories[place + 1], &table.memories[place],
            (table.num - place) * sizeof(memory_t *));
    table.memories[place] = memory;
    ++table.num;
    return memory;
}

memory_t *memory_create(memory_kind_t kind, int gpu, size_t size)
{
    size_t     unit  = size < LARGE ? SMALL : CORE_BLOCK;
    size_t     taken = round_up(size, unit);
    uintptr_t  addr;
    backing_t *backing;
    memory_t  *memory;

    if (size > core.memory_size || (addr = range_take(taken, unit)) == 0) {
        errno = ENOMEM;
        return NULL;
    }
    backing = backing_create(gpu, size, addr % CORE_PAGE);
    if (backing == NULL) {
        range_give(addr, taken);
        return NULL;
    }
    memory             = memory_new(kind, gpu, addr, size);
    memory->backing    = backing;
    memory->bytes      = backing->bytes + addr % CORE_PAGE;
    memory->range      = addr;
    memory->range_size = taken;
    return memory;
}

memory_t *memory_create_host(memory_kind_t kind, int gpu, size_t size)
{
    size_t    taken = round_up(size, CORE_PAGE);
    uintptr_t addr  = size <= core.memory_size ? range_take(taken, CORE_PAGE) : 0;
    memory_t *memory;

    if (addr == 0) {
        errno = ENOMEM;
        return NULL;
    }
    if (mmap((void *)addr, taken, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
        range_give(addr, taken);
        return NULL;
    }
    memory             = memory_new(kind, gpu, addr, size);
    memory->range      = addr;
    memory->range_size = taken;
    return memory;
}

memory_t *memory_register(void *host, size_t size, int shift)
{
    uintptr_t start = (uintptr_t)host, addr = start;
    size_t    taken = shift ? round_up(start % CORE_PAGE + size, CORE_PAGE) : 0;
    memory_t *memory;

    if (shift) {
        addr = range_take(taken, CORE_PAGE);
        if (addr == 0) {
            errno = ENOMEM;
            return NULL;
        }
    }
    memory        = memory_new(MEMORY_REGISTERED, 0, addr + (shift ? start % CORE_PAGE : 0), size);
    memory->bytes = host;
    memory->range = shift ? addr : 0;
    memory->range_size = taken;
    return memory;
}

int memory_can_pin(void *addr, size_t size)
{
#ifdef MADV_POPULATE_WRITE
    uintptr_t start = (uintptr_t)addr - (uintptr_t)addr % CORE_PAGE;
    uintptr_t end   = round_up((uintptr_t)addr + size, CORE_PAGE);
    void     *page  = (void *)((uintptr_t)&core - (uintptr_t)&core % CORE_PAGE);

    /* A kernel that doesn't know this says so for memory of ours too. */
    return madvise((void *)start, end - start, MADV_POPULATE_WRITE) == 0 ||
           madvise(page, CORE_PAGE, MADV_POPULATE_WRITE) != 0;
#else
    return addr != NULL && size > 0;
#endif
}

memory_t *memory_map(memory_kind_t kind, backing_t *backing, uintptr_t addr, size_t size)
{
    size_t    taken = addr == 0 ? round_up(size, CORE_BLOCK) : 0;
    memory_t *memory;

    if (addr == 0 && (addr = range_take(taken, CORE_BLOCK)) == 0) {
        errno = ENOMEM;
        return NULL;
    }
    ++backing->refs;
    memory             = memory_new(kind, backing->gpu, addr, size);
    memory->backing    = backing;
    memory->bytes      = backing->bytes + backing->shared->offset;
    memory->range      = taken != 0 ? addr : 0;
    memory->range_size = taken;
    return memory;
}

void memory_free(memory_t *memory)
{
    unsigned place = num_below(memory->addr) - 1;

    --table.num;
    memmove(&table.memories[place], &table.memories[place + 1],
            (table.num - place) * sizeof(memory_t *));
    __atomic_store_n(&memory->dead, 1, __ATOMIC_RELEASE);
    if (memory->kind <= MEMORY_POOL) {
        __atomic_store_n(&memory->backing->shared->freed, 1, __ATOMIC_RELEASE);
    }
    memory_put(memory);
}

void memory_put(memory_t *memory)
{
    if (--memory->refs > 0) {
        return;
    }
    if (memory->backing != NULL) {
        backing_put(memory->backing);
    } else if (memory->kind != MEMORY_REGISTERED &&
               mmap((void *)memory->addr, memory->range_size, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
        core_bug("the mapping at %#lx can't be removed", (unsigned long)memory->addr);
    }
    if (memory->range != 0) {
        range_give(memory->range, memory->range_size);
    }
    free(memory);
}

/* --- shared between processes ---------------------------------------------------------------*/

void ipc_export(const memory_t *memory, ipc_t *ipc)
{
    *ipc = (ipc_t){.magic = (uint32_t)MAGIC,
                   .pid   = getpid(),
                   .fd    = memory->backing->fd,
                   .gpu   = memory->gpu,
                   .inode = memory->backing->inode,
                   .id    = memory->backing->shared->id};
}

backing_t *ipc_import(const ipc_t *ipc)
{
    char        path[64];
    struct stat info;
    backing_t  *backing;
    int         fd;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", ipc->pid, ipc->fd);
    if (ipc->magic != (uint32_t)MAGIC || (fd = open(path, O_RDWR | O_CLOEXEC)) < 0) {
        errno = ENOENT;
        return NULL;
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_ino != ipc->inode ||
        info.st_size <= CORE_PAGE) {
        close(fd);
        errno = ENOENT;
        return NULL;
    }
    backing = backing_map(fd, (size_t)info.st_size - CORE_PAGE);
    if (backing == NULL) {
        return NULL;
    }
    close(fd);
    backing->fd  = -1;
    backing->gpu = backing->shared->gpu;
    if (backing->shared->magic != MAGIC || backing->shared->id != ipc->id ||
        __atomic_load_n(&backing->shared->freed, __ATOMIC_ACQUIRE)) {
        backing_put(backing);
        errno = ENOENT;
        return NULL;
    }
    return backing;
}

int dmabuf_export(const memory_t *memory, uintptr_t addr, size_t size)
{
    uintptr_t start = memory->addr - memory->addr % CORE_PAGE;
    char      path[64];
    int       fd;

    if (addr % CORE_PAGE != 0 || size % CORE_PAGE != 0 || size == 0 || addr < start ||
        addr - start > memory->backing->length || size > memory->backing->length - (addr - start)) {
        errno = EINVAL;
        return -1;
    }
    /* Not dup(): that would share the position with the original. */
    snprintf(path, sizeof(path), "/proc/self/fd/%d", memory->backing->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && lseek(fd, (off_t)(addr - start), SEEK_SET) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}
