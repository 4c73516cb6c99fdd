/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions of GPU memory in a node. A process shares the allocations behind its regions
 * (gpu_share.c), and maps those of other processes to reach their regions (gpu_import.c). How bytes
 * get there and back is in gpu_copy.c, by way of staging memory with gpu_pin.c. All of it uses
 * userlib/gpu and soft.h's processes and segments; it knows neither pairs nor engine.
 *
 * Invariants
 *   - A process has one table of the allocations that it shares, in a segment of its own, made with
 *     the first of them. Only the owner writes.
 *   - An entry of the table means one allocation as long as its id stays: ids never come again. The
 *     owner withdraws it when it finds the memory freed, or when no region is left and the entry is
 *     needed for another, or no PE is left.
 *   - An allocation of another process is mapped once for each GPU that copies it, whatever PEs and
 *     domains use it. An operation that uses the mapping is counted; while one does, the mapping
 *     stays.
 *   - Else it isn't used again when the owner has withdrawn the allocation, when the owner is dead,
 *     and when nobody here is connected to the owner any more.
 *   - Then it is unmapped, by a thread of the program's that makes progress, holds no lock and
 *     finds the GPU idle: unmapping may wait for kernels, and those for messages.
 *   - Staging memory that has seen some large pieces is mapped a second time, and registered with
 *     the runtime there. That mapping ends as those of GPU memory do, so it may outlive the
 *     segment. What the runtime still knows as registered is never unmapped.
 *   - Both ends are looked after by the helper thread (by progress, where there is none), every
 *     ANGARA_PEER_CHECK milliseconds while anything is shared or mapped, and never else.
 *   - What comes from another process's table is copied, then checked.
 */
#ifndef SOFT_GPU_MEM_H
#define SOFT_GPU_MEM_H

#include "soft.h"

#define SOFT_SHARES   1024 /* allocations that a process shares at once */
#define SOFT_NO_SHARE UINT32_MAX

/* Bytes that a GPU copies at once on behalf of a call or a request, while others wait; those of a
 * run that fly together may be more (SOFT_RUN_BYTES). */
#define SOFT_GPU_PIECE ((uint64_t)8 << 20)

/* ---- shared: the table ----------------------------------------------------------------------- */

typedef struct {
    uint64_t         id;     /* of the allocation in its process; 0: nothing is shared here */
    uint64_t         length; /* bytes of the allocation */
    uint32_t         kind;   /* angara_mem_kind_t */
    uint32_t         pci;    /* of the GPU that it is of, as in angara_mem_t */
    ang_gpu_handle_t handle;
    uint64_t         pad1[5];
} soft_share_t;

typedef struct {
    uint64_t     magic;
    uint32_t     layout; /* SOFT_LAYOUT */
    uint32_t     pad0;
    uint64_t     pad1[6];
    soft_share_t shares[SOFT_SHARES];
} soft_share_table_t;

_Static_assert(sizeof(soft_share_t) == 128, "fixed");
_Static_assert(sizeof(soft_share_table_t) == SOFT_LINE + SOFT_SHARES * sizeof(soft_share_t),
               "fixed");

/* ---- gpu_share.c: what this process shares --------------------------------------------------- */

/*
 * Share the allocation for one region more. @return its place in the table, or SOFT_NO_SHARE if
 * other processes can't map it. *fd_p: descriptor of the table, -1 without.
 */
uint32_t soft_share_get(const ang_gpu_mem_t *mem, int *fd_p);
/* A region less. `id`: of the allocation that was shared there. */
void soft_share_put(uint32_t place, uint64_t id);
/* Withdraw what was freed. @return how many allocations are shared. */
unsigned soft_shares_look(void);
/* No PE is left, so nobody looks any more: withdraw what has no region. */
void soft_shares_rest(void);

/* ---- gpu_import.c: what it has mapped of others' --------------------------------------------- */

typedef struct soft_import soft_import_t;

/*
 * Map the allocation behind a region of GPU memory, whose entry is held, if it isn't mapped yet.
 * The entry is the other process's, and may change at any time: what counts is what is mapped.
 * @param near    the other end of the copy, which has just been asked for: its GPU is to reach the
 *                mapping, as between GPUs of a process that don't know each other the driver copies
 *                through the host. Another one's mapping will do if it can't; NULL: any
 * @param at      [at, at + length) of the region is accessed
 * @param addr_p  where that begins here
 * @return ANGARA_OK: to be given back by soft_import_put(); ANGARA_ERR_UNSUPPORTED: it can't be
 *         mapped, its own process has to do the copying.
 */
angara_status_t soft_import_get(soft_remote_process_t *process, const soft_mr_entry_t *entry,
                                const ang_gpu_mem_t *near, uint64_t at, uint64_t length,
                                soft_import_t **import_p, uint64_t *addr_p);
/* Once more, of one that is held. */
void soft_import_hold(soft_import_t *import);
/* What is mapped, of one that is held. */
const ang_gpu_mem_t *soft_import_mem(const soft_import_t *import);
void                 soft_import_put(soft_import_t *import);
/* What is withdrawn is to be unmapped. @return how many allocations are mapped besides. */
unsigned soft_imports_look(void);
/* No pair with that process is left. */
void soft_imports_close(soft_remote_process_t *process);

/* ---- gpu_leave.c: what is to be given back to the runtime ------------------------------------ */

/* The first member of what it is. */
typedef struct soft_leaving {
    struct soft_leaving *next;
    int (*end)(struct soft_leaving *leaving);
} soft_leaving_t;

/*
 * Nobody uses it any more. end(): give it back and free it; @return 0: not now, as the GPU isn't
 * idle. Called without a lock.
 */
void     soft_leave(soft_leaving_t *leaving, int (*end)(soft_leaving_t *leaving));
unsigned soft_leaving_count(void);
/* Try with each. Called by threads of the program's, without a lock. */
void soft_gpu_tidy(void);
/* The same when a pair has ended: nobody may come again. Waits for the own copies, if need be. */
void soft_gpu_tidy_all(void);
/* Is there any? Atomic. */
extern unsigned soft_gpu_untidy;

/* ---- gpu_copy.c: moving ---------------------------------------------------------------------- */

/* Is an own region's memory still the allocation that it was registered for? ANGARA_ERR_BOUNDS: it
 * was freed. *mem: what is there now. */
angara_status_t soft_gpu_check(const soft_mr_entry_t *entry, ang_gpu_mem_t *mem);

/* One end of a copy. */
typedef struct {
    uint64_t             addr;
    const ang_gpu_mem_t *mem; /* what it is; NULL: to be asked for */
} soft_gpu_end_t;

/*
 * Start to copy, later than `after` (or NULL) ends: as ang_gpu_copy_start_after(), or if
 * `may_gather` as ang_gpu_copy_gather(). ANGARA_INPROGRESS also if it is done already.
 * ANGARA_ERR_UNSUPPORTED also if the call itself would copy more than `call_max` bytes, as it may
 * of host memory that isn't pinned.
 */
angara_status_t soft_gpu_start(const soft_gpu_end_t *dst, const soft_gpu_end_t *src,
                               uint64_t length, uint64_t call_max, const ang_gpu_copy_t *after,
                               int may_gather, ang_gpu_copy_t *copy);
/* Copy and wait. An end is GPU memory, own or mapped, the other may be host memory. */
angara_status_t soft_gpu_copy(uint64_t dst, uint64_t src, uint64_t length);

/* ---- gpu_far.c ------------------------------------------------------------------------------- */

/* The PE's memory for that isn't needed any more. */
void soft_gpu_far_end(soft_pe_t *pe);

/* As the backend's copy(), between GPU memory and private host memory of the peer's. */
angara_status_t soft_gpu_copy_far(soft_peer_t *peer, const ang_ref_t *dst, const ang_ref_t *src,
                                  uint64_t end, uint64_t *done);

/* ---- gpu_serve.c: the other side of it, with soft_helper_lock held --------------------------- */

/* An operation of a direct request: its end here, which has been checked, and the requester's. */
typedef struct {
    uint64_t addr;
    uint64_t length;
    uint64_t near_key;
    uint64_t near_offset;
} soft_direct_t;

/*
 * Carry out a direct request of that owner (of its slot): `count` operations, SOFT_RUN at most, in
 * order.
 * @return how many were performed: the first ones. Whatever stands in the way of the others, the
 *         requester does them.
 */
unsigned soft_gpu_serve(const soft_request_t *request, uint64_t owner, const soft_direct_t *ops,
                        unsigned count);

#endif
