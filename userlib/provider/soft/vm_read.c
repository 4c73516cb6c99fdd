/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading a process's memory through the kernel, which says EFAULT where a plain copy would crash,
 * without tearing words. 8 aligned bytes the kernel copies by one load, shorter words byte by byte
 * (6.1; 6.18 too, unless the CPU has fast short `rep movsb`, which was never seen to tear either).
 * So the 8 bytes around a shorter word are read into a word of ours. Touches no state.
 */
#define _GNU_SOURCE
#include "vm.h"

#include <errno.h>
#include <unistd.h>

int soft_vm_tears(uint64_t from, size_t length)
{
    return (length == 2 || length == 4) && from % length == 0;
}

static ssize_t read_range(pid_t task, void *to, uint64_t from, size_t length)
{
    struct iovec local  = {to, length};
    struct iovec remote = {(void *)(uintptr_t)from, length};

    return process_vm_readv(task, &local, 1, &remote, 1, 0);
}

/* Of the word nobody learns more than what was asked for; it lies within a page, as that does. */
static ssize_t read_word(pid_t task, void *to, uint64_t from, size_t length)
{
    uint64_t word;
    size_t   shift = from % sizeof(word);
    ssize_t  moved = read_range(task, &word, from - shift, sizeof(word));

    if (moved == (ssize_t)sizeof(word)) {
        moved = read_range(gettid(), to, (uintptr_t)&word + shift, length);
        if (moved == (ssize_t)length) {
            return moved;
        }
    }
    if (moved >= 0) {
        errno = EFAULT;
    }
    return -1;
}

ssize_t soft_vm_read(pid_t task, uint64_t to, uint64_t from, size_t length)
{
    void *dst = (void *)(uintptr_t)to;

    return soft_vm_tears(from, length) ? read_word(task, dst, from, length) :
                                         read_range(task, dst, from, length);
}
