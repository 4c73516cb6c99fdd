/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Touching memory of the own program that it may have unmapped: see vm.h. (tests/unit/valgrind.supp
 * names the functions here whose system calls answer EFAULT.)
 */
#define _GNU_SOURCE
#include "gpu_mem.h"
#include "vm.h"

#include "engine/atomic.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

angara_status_t soft_guard_copy(uint64_t dst, uint64_t src, size_t length)
{
    ssize_t moved;

    if (length == 0) {
        return ANGARA_OK;
    }
    moved = soft_vm_read(gettid(), dst, src, length); /* the main thread may have ended */
    if (moved == (ssize_t)length) {
        return ANGARA_OK;
    }
    if (moved >= 0 || errno == EFAULT) {
        return ANGARA_ERR_BOUNDS;
    }
    /* forbidden by seccomp */
    ang_cpu_copy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, length);
    return ANGARA_OK;
}

/*
 * For an atomic, which only the CPU can perform: the kernel adds 0 to the word first, and says
 * EFAULT where it is unmapped or read-only. (FUTEX_WAKE_OP; it may also wake one sleeper on that
 * word, as any futex must expect.)
 */
angara_status_t soft_guard_writable(uint64_t addr, size_t width)
{
    void    *word = (void *)(uintptr_t)addr;
    uint64_t probe;

    if (syscall(SYS_futex, word, FUTEX_WAKE_OP_PRIVATE, 0, 0, word,
                FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0)) >= 0 ||
        errno != EFAULT) {
        return ANGARA_OK;
    }
    return soft_guard_copy((uintptr_t)&probe, addr, width) == ANGARA_OK ? ANGARA_ERR_RIGHTS :
                                                                          ANGARA_ERR_BOUNDS;
}

/*
 * Ranges that were looked at page by page, of regions by key. Called with soft_helper_lock held,
 * which guards this too.
 */
static struct {
    uint64_t key, addr, length;
    int      is_write;
} looked[64];

/* Each page. Kernels before 5.14 can't do it at once. */
static int is_open(uint64_t begin, uint64_t size, uint64_t page, int is_write)
{
    char byte;

    if (madvise((void *)(uintptr_t)begin, size,
                is_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) {
        return 1;
    }
    if (errno != EINVAL) {
        return 0;
    }
    for (uint64_t at = begin; at < begin + size; at += page) {
        if (soft_guard_copy((uintptr_t)&byte, at, 1) != ANGARA_OK ||
            (is_write && soft_guard_writable(at, 4) != ANGARA_OK)) {
            return 0;
        }
    }
    return 1;
}

angara_status_t soft_guard_range(uint64_t key, uint64_t addr, uint64_t length, int is_write)
{
    uint64_t page  = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t begin = addr / page * page;
    uint64_t size  = addr + length - begin;
    unsigned i = (unsigned)((key ^ addr / SOFT_GPU_PIECE) % (sizeof(looked) / sizeof(looked[0])));
    unsigned char pages[SOFT_GPU_PIECE / SOFT_PAGE + 2];

    if (mincore((void *)(uintptr_t)begin, size, pages) != 0) {
        return ANGARA_ERR_BOUNDS;
    }
    if (looked[i].key != key || looked[i].addr != addr || looked[i].length != length ||
        looked[i].is_write != is_write) {
        if (!is_open(begin, size, page, is_write)) {
            return ANGARA_ERR_BOUNDS;
        }
        looked[i].key      = key;
        looked[i].addr     = addr;
        looked[i].length   = length;
        looked[i].is_write = is_write;
    }
    return ANGARA_OK;
}
