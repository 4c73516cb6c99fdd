/* SPDX-License-Identifier: BSD-3-Clause */
/* Touching memory of the own program that it may have unmapped: see vm.h. */
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

angara_status_t soft_guard_range(uint64_t addr, uint64_t length, int is_write)
{
    uint64_t        last  = addr + length - 1;
    uint64_t        begin = addr / SOFT_PAGE * SOFT_PAGE;
    unsigned char   pages[SOFT_GPU_PIECE / SOFT_PAGE + 2], byte;
    angara_status_t status;

    if (mincore((void *)(uintptr_t)begin, last + 1 - begin, pages) != 0) {
        return ANGARA_ERR_BOUNDS;
    }
    status = soft_guard_copy((uintptr_t)&byte, addr, 1);
    if (status == ANGARA_OK) {
        status = soft_guard_copy((uintptr_t)&byte, last, 1);
    }
    if (status == ANGARA_OK && is_write) {
        status = soft_guard_writable(addr / 4 * 4, 4);
    }
    if (status == ANGARA_OK && is_write) {
        status = soft_guard_writable(last / 4 * 4, 4);
    }
    return status;
}
