/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that may have gone by the time it is touched: the kernel moves the bytes, or looks at
 * them, and says so where the CPU would crash. Another process's (vm_read.c, cma.c), and what the
 * program of this one has registered (guard.c). All of it knows processes and peers, but no
 * operations.
 */
#ifndef SOFT_VM_H
#define SOFT_VM_H

#include "soft.h"

#define SOFT_CMA_CHUNK ((uint64_t)1 << 30) /* bytes of one process_vm call, below MAX_RW_COUNT */

/* ---- vm_read.c ------------------------------------------------------------------------------- */

/*
 * As process_vm_readv() of one range, but a naturally aligned word of 2, 4 or 8 bytes is read at
 * once if `to` is aligned alike. `task`: a thread of the process.
 */
ssize_t soft_vm_read(pid_t task, uint64_t to, uint64_t from, size_t length);
/* Would process_vm_readv() tear it? Then it needs soft_vm_read(). */
int soft_vm_tears(uint64_t from, size_t length);

/* ---- cma.c ----------------------------------------------------------------------------------- */

/*
 * Copy bytes *done to `end` between private memory of the peer's process and memory here.
 * ANGARA_ERR_UNSUPPORTED: the kernel has come to forbid it, peer->cma says so from now on.
 */
angara_status_t soft_cma_copy(soft_peer_t *peer, uint64_t there, uint64_t here, uint64_t end,
                              int read, uint64_t *done);

/* Say once that process_vm_* is refused, and what to do. */
void soft_warn_no_cma(int error);

/* ---- guard.c: own memory --------------------------------------------------------------------- */

/* Copy. ANGARA_ERR_BOUNDS: the program has unmapped an end. */
angara_status_t soft_guard_copy(uint64_t dst, uint64_t src, size_t length);
/* Can the CPU write so many bytes, 8 at most? ANGARA_ERR_RIGHTS: only read them. */
angara_status_t soft_guard_writable(uint64_t addr, size_t width);
/* Can the CPU read the 8 bytes, which are in one page? */
int soft_guard_readable(uint64_t addr);
/*
 * May a GPU's driver read or write all of that range? It crashes where the CPU does. Asked before
 * each copy: since the last one the program may have taken away any page, or its rights. Of small
 * pages that takes a sixth of the time that the copy does. What is taken away under the copy still
 * crashes.
 */
angara_status_t soft_guard_range(uint64_t addr, uint64_t length, int is_write);

#endif
