/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guest memory by bus address. See emu.h. Touches the RAM file (never its size once a VM uses it)
 * and what is mapped from it.
 */
#define _GNU_SOURCE
#include "emu.h"

#include "engine/atomic.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* QEMU's q35: RAM of this size or more is split at 2 GiB, the rest starts at 4 GiB. */
#define HOLE_FROM 0xb0000000ull
#define HOLE_LOW  (2ull << 30)
#define HOLE_HIGH (4ull << 30)

static void range_add(emu_node_t *node, uint64_t bus, uint64_t size, char *base)
{
    node->ranges[node->num_ranges++] = (emu_range_t){bus, size, base};
}

static char *map_nothing(uint64_t size)
{
    char *base = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return base == MAP_FAILED ? NULL : base;
}

static char *map_file(const char *path, uint64_t size, int create)
{
    int         fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
    struct stat stat;
    char       *base = MAP_FAILED;

    if (fd < 0 || fstat(fd, &stat) != 0) {
        emu_say("%s can't be opened: %s", path, strerror(errno));
        goto out;
    }
    if ((uint64_t)stat.st_size < size && (!create || ftruncate(fd, (off_t)size) != 0)) {
        emu_say("%s has %lld bytes, not %llu", path, (long long)stat.st_size,
                (unsigned long long)size);
        goto out;
    }
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        emu_say("%s can't be mapped: %s", path, strerror(errno));
    }
out:
    if (fd >= 0) {
        close(fd);
    }
    return base == MAP_FAILED ? NULL : base;
}

int emu_memory_map(emu_node_t *node)
{
    uint64_t low = node->ram_size >= HOLE_FROM ? HOLE_LOW : node->ram_size;

    node->ram = node->emu->replaying ? map_nothing(node->ram_size) :
                                       map_file(node->ram_path, node->ram_size, 1);
    if (node->ram == NULL) {
        return -1;
    }
    node->num_ranges = 0;
    range_add(node, 0, low, node->ram);
    if (low != node->ram_size) {
        range_add(node, HOLE_HIGH, node->ram_size - low, node->ram + low);
    }
    return 0;
}

static int in_ram(const emu_node_t *node, const char *base)
{
    return base >= node->ram && base < node->ram + node->ram_size;
}

void emu_memory_unmap(emu_node_t *node)
{
    while (node->num_ranges != 0) {
        const emu_range_t *range = &node->ranges[--node->num_ranges];

        if (!in_ram(node, range->base)) {
            munmap(range->base, range->size);
        }
    }
    if (node->ram != NULL) {
        munmap(node->ram, node->ram_size);
        node->ram = NULL;
    }
}

/* BARs come before RAM: a large one pushes the upper RAM away. */
int emu_memory_add(emu_node_t *node, uint64_t bus, uint64_t size, const char *path)
{
    char *base;

    if (node->ram == NULL || node->num_ranges == EMU_RANGES_MAX || size == 0 || bus + size < bus) {
        return -1;
    }
    base = path == NULL ? map_nothing(size) : map_file(path, size, 0);
    if (base == NULL) {
        return -1;
    }
    memmove(&node->ranges[1], &node->ranges[0], node->num_ranges * sizeof(node->ranges[0]));
    node->ranges[0] = (emu_range_t){bus, size, base};
    node->num_ranges++;
    return 0;
}

void *emu_bus(emu_node_t *node, uint64_t bus, uint64_t length)
{
    if (!node->dma) {
        return NULL;
    }
    for (unsigned i = 0; i < node->num_ranges; ++i) {
        const emu_range_t *range = &node->ranges[i];

        if (bus >= range->bus && bus - range->bus < range->size &&
            length <= range->size - (bus - range->bus)) {
            return range->base + (bus - range->bus);
        }
    }
    return NULL;
}

int emu_read(emu_node_t *node, void *dst, uint64_t bus, uint64_t length)
{
    const void *src = emu_bus(node, bus, length);

    if (src != NULL) {
        memcpy(dst, src, length);
        __atomic_signal_fence(__ATOMIC_SEQ_CST); /* from here on only the copy is looked at */
    }
    return src != NULL;
}

#define SMALL_COPY 256

/* @return width of the naturally aligned word at `at`, the longest within `length` bytes. */
static size_t next_word(uintptr_t at, size_t length)
{
    size_t width = 8;

    while (width > length || at % width != 0) {
        width /= 2;
    }
    return width;
}

void emu_copy(void *dst_, const void *src_, size_t length)
{
    char       *dst = dst_;
    const char *src = src_;
    size_t      width;

    if (length == 0 || length > SMALL_COPY ||
        next_word((uintptr_t)src | (uintptr_t)dst, length) == length) {
        ang_cpu_copy(dst, src, length);
        return;
    }
    while (length != 0) {
        width = next_word((uintptr_t)dst, length);
        ang_cpu_copy(dst, src, width);
        dst += width, src += width, length -= width;
    }
}

static void on_sigbus(int signal_number, siginfo_t *info, void *context)
{
    static int told;
    void      *page = (void *)((uintptr_t)info->si_addr & ~(uintptr_t)(EMU_PAGE - 1));

    (void)context;
    if (info->si_code != BUS_ADRERR ||
        mmap(page, EMU_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == MAP_FAILED) {
        signal(signal_number, SIG_DFL); /* then it is our own error: die of it */
    } else if (!told && emu_verbose) {
        static const char text[] =
            "angara_emu: a page of guest RAM can't be had: is /dev/shm full?\n";

        told = 1;
        if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) {
            return;
        }
    }
}

void emu_memory_guard(void)
{
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};

    sigaction(SIGBUS, &action, NULL);
}
