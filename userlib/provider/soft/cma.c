/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies between this process and private memory of a peer's, by process_vm_*: see vm.h. */
#define _GNU_SOURCE
#include "vm.h"

#include "src/log.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

void soft_warn_no_cma(int error)
{
    static int warned;

    if (!__atomic_exchange_n(&warned, 1, __ATOMIC_RELAXED)) {
        ang_log_alike(
            ANG_LOG_WARN,
            "process_vm_readv or process_vm_writev is refused (%s): the peers' helper "
            "threads copy instead, which is slower. Check kernel.yama.ptrace_scope (0 permits "
            "it), the container's seccomp profile and that all ranks run as one user",
            strerror(error));
    }
}

static angara_status_t cma_error(soft_peer_t *peer)
{
    switch (errno) {
    case ESRCH:
        return ANGARA_ERR_PEER_DEAD;
    case EFAULT: /* the region's memory was unmapped, there or here */
        return ANGARA_ERR_BOUNDS;
    case EPERM:
    case ENOSYS: /* the rules changed under way: the helper does it from now on */
        peer->cma = 0;
        soft_warn_no_cma(errno);
        return ANGARA_ERR_UNSUPPORTED;
    case ENOMEM:
        return ANGARA_ERR_NO_MEMORY;
    default:
        ang_error("process_vm on %s failed: %s. ANGARA_SOFT_CMA=n does without", peer->base.name,
                  strerror(errno));
        return ANGARA_ERR_SYSTEM;
    }
}

angara_status_t soft_cma_copy(soft_peer_t *peer, uint64_t there, uint64_t here, uint64_t end,
                              int read, uint64_t *done)
{
    while (*done < end) {
        uint64_t     left   = end - *done;
        size_t       size   = left < SOFT_CMA_CHUNK ? left : SOFT_CMA_CHUNK;
        struct iovec local  = {(void *)(uintptr_t)(here + *done), size};
        struct iovec remote = {(void *)(uintptr_t)(there + *done), size};
        ssize_t      moved;

        if (!soft_remote_reach(&peer->remote)) {
            return ANGARA_ERR_PEER_DEAD;
        }
        moved = read ? soft_vm_read(soft_remote_process_task(peer->remote.process), here + *done,
                                    there + *done, size) :
                       process_vm_writev(soft_remote_process_task(peer->remote.process), &local, 1,
                                         &remote, 1, 0);
        if (moved >= 0) {
            *done += (uint64_t)moved;
        } else if (errno != ESRCH || !soft_remote_process_other_task(peer->remote.process)) {
            return cma_error(peer);
        }
    }
    return ANGARA_OK;
}
