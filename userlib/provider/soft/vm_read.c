/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading a process's memory through the kernel, which says EFAULT where a plain copy would crash,
 * without tearing words: the kernel copies what is shorter than 8 bytes byte by byte, so the 8
 * bytes around such a word are read into a word of ours. Touches no state.
 */
#define _GNU_SOURCE
#include "soft.h"

#include <errno.h>
#include <unistd.h>

int soft_bounce(soft_bounce_t *bounce, struct iovec *to, struct iovec *from)
{
    uint64_t addr   = (uintptr_t)from->iov_base;
    size_t   length = from->iov_len;
    size_t   shift  = addr % sizeof(bounce->word);

    if ((length != 2 && length != 4) || addr % length != 0) {
        return 0;
    }
    bounce->to   = *to;
    bounce->from = (struct iovec){(char *)&bounce->word + shift, length};
    *from        = (struct iovec){(void *)(uintptr_t)(addr - shift), sizeof(bounce->word)};
    *to          = (struct iovec){&bounce->word, sizeof(bounce->word)};
    return 1;
}

unsigned soft_bounce_land(const soft_bounce_t *bounce, unsigned count)
{
    struct iovec to[ANGARA_BATCH_MAX], from[ANGARA_BATCH_MAX];
    unsigned     landed = 0;
    ssize_t      moved;

    for (unsigned i = 0; i < count; ++i) {
        to[i]   = bounce[i].to;
        from[i] = bounce[i].from;
    }
    moved = process_vm_readv(gettid(), to, count, from, count, 0);
    while (landed < count && moved >= (ssize_t)to[landed].iov_len) {
        moved -= (ssize_t)to[landed++].iov_len;
    }
    if (landed < count && moved >= 0) {
        errno = EFAULT;
    }
    return landed;
}

ssize_t soft_vm_read(pid_t task, uint64_t to, uint64_t from, size_t length)
{
    struct iovec  local  = {(void *)(uintptr_t)to, length};
    struct iovec  remote = {(void *)(uintptr_t)from, length};
    soft_bounce_t bounce;
    int           bounced = soft_bounce(&bounce, &local, &remote);
    ssize_t       moved   = process_vm_readv(task, &local, 1, &remote, 1, 0);

    if (!bounced || moved < 0) {
        return moved;
    }
    if (moved != (ssize_t)sizeof(bounce.word)) {
        errno = EFAULT;
        return -1;
    }
    return soft_bounce_land(&bounce, 1) == 1 ? (ssize_t)length : -1;
}
