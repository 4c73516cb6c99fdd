/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Touching memory of the own program that it may have unmapped: see vm.h. (tests/unit/valgrind.supp
 * names the functions here whose system calls answer EFAULT.)
 */
#define _GNU_SOURCE
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

/* The kernel does with each page what a first access would. Before 5.14 it can't at once. */
angara_status_t soft_guard_range(uint64_t addr, uint64_t length, int is_write)
{
    uint64_t page  = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t begin = addr / page * page;
    uint64_t end   = addr + length;
    char     byte;

    if (madvise((void *)(uintptr_t)begin, end - begin,
                is_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) {
        return ANGARA_OK;
    }
    if (errno != EINVAL) {
        return ANGARA_ERR_BOUNDS;
    }
    for (uint64_t at = begin; at < end; at += page) {
        if ((is_write ? soft_guard_writable(at, 4) : soft_guard_copy((uintptr_t)&byte, at, 1)) !=
            ANGARA_OK) {
            return ANGARA_ERR_BOUNDS;
        }
    }
    return ANGARA_OK;
}
