/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that may have gone by the time it is touched. Another process's the kernel moves
 * (vm_read.c, cma.c); what the program of this one has registered the CPU does, and its faults are
 * caught (guard.c, catch.c). All of it knows processes and peers, but no operations.
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

/*
 * Put `data` there, or get it from there. ANGARA_ERR_BOUNDS: it isn't mapped, or without the right,
 * which the ways of doing it can't all tell apart.
 */
angara_status_t soft_guard_copy(uint64_t addr, void *data, uint64_t length, int is_put);
/* The atomic on an aligned word. ANGARA_ERR_RIGHTS: it can only be read. */
angara_status_t soft_guard_atomic(uint64_t addr, const ang_desc_t *desc, uint64_t *old);
/*
 * May a GPU's driver read or write all of that range? It crashes where the CPU does. Asked before
 * each copy: since the last one the program may have taken away any page, or its rights. What is
 * taken away under the copy still crashes. With the helper's lock held.
 */
angara_status_t soft_guard_range(uint64_t addr, uint64_t length, int is_write);
/* No PE is left, so nobody asks any more. */
void soft_guard_close(void);

/* ---- catch.c: faults of the own CPU ---------------------------------------------------------- */

/* With the process's first PE; if ANGARA_SOFT_CATCH permits. */
void soft_catch_open(void);
/* With its last one. */
void soft_catch_close(void);
/* Do faults of this thread come here? Before soft_catch(), in each turn of serving. */
void soft_catch_look(void);
/*
 * Call touch(arg), which may fault within that range: what it does there has no locks, no memory,
 * no state but its arguments. With the helper's lock held. ANGARA_ERR_BOUNDS: it did, and went no
 * further.
 * ANGARA_ERR_UNSUPPORTED: not called, since faults aren't caught.
 */
angara_status_t soft_catch(uint64_t addr, uint64_t length, void (*touch)(void *arg), void *arg);

#endif
