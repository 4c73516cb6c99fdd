/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory domain: one angara protection domain; registration, allocation, keys.
 */
#ifndef UCT_ANGARA_MD_H
#define UCT_ANGARA_MD_H

#include "base/compat.h"

#include <angara/angara_mem.h>
#include <pthread.h>

#define UCT_ANGARA_NAME "angara"

typedef struct uct_angara_md_config {
    uct_md_config_t          super;
    ucs_ternary_auto_value_t rcache_enable;
    int                      reuse;
    int                      gpu_zcopy;
#if UCT_ANGARA_HAS_RCACHE
    uct_md_rcache_config_t rcache;
#endif
} uct_angara_md_config_t;

/** Sets of the table of reusable registrations, and the ranges that each has room for. */
#define UCT_ANGARA_REUSE_SETS 64
#define UCT_ANGARA_REUSE_WAYS 4

/** Somebody who waits for a registration to be taken back. */
typedef struct uct_angara_waiter {
    struct uct_angara_waiter *next;
    struct uct_angara_md     *md;
    uct_completion_t         *comp;
} uct_angara_waiter_t;

/**
 * Memory handle of UCT. Another thread may replace the region: what is found out about it holds for
 * the mr that was loaded.
 */
typedef struct uct_angara_mem {
    angara_mr_h            mr; /**< see uct_angara_mem_mr() */
    void                  *address;
    size_t                 length;
    unsigned               flags;     /**< UCT_MD_MEM_*, as it was registered */
    unsigned               users;     /**< of a shared registration */
    int                    is_shared; /**< it is or was in md->reuse */
    uct_angara_waiter_t   *waiters;   /**< told when it has been taken back */
    struct uct_angara_mem *older;     /**< only mr counts: went stale, but its key is out */
} uct_angara_mem_t;

/** A range whose registration is kept; address NULL: none. */
typedef struct uct_angara_reuse_way {
    void             *address;
    size_t            length;
    uct_angara_mem_t *mem;
} uct_angara_reuse_way_t;

typedef struct uct_angara_reuse_set {
    uct_angara_reuse_way_t ways[UCT_ANGARA_REUSE_WAYS];
    unsigned               next; /**< the way that makes room first */
} uct_angara_reuse_set_t;

typedef struct uct_angara_md {
    uct_md_t          super;
    angara_domain_h   dom;
    angara_attr_t     attr;
    ucs_rcache_t     *rcache;    /**< NULL: registrations are made as they are asked for */
    int               gpu_zcopy; /**< GPU memory may be registered */
    int               has_reuse; /**< or found in this table, see reuse.c */
    ucs_linear_func_t reg_cost;
    pthread_mutex_t   lock; /**< regions are renewed, or collected */

    /* Taken twice for a message and held for some loads: a mutex took 12 % of an 8 KiB get. */
    pthread_spinlock_t     reuse_lock;
    uct_angara_reuse_set_t reuse[UCT_ANGARA_REUSE_SETS];

    /*
     * Memory that was deregistered while a peer that has been stopped was within an access to it:
     * the library keeps the regions until that has ended. Under lock.
     */
    int                  has_owed;
    ucs_time_t           next_collect;
    uct_angara_waiter_t *owed_waiters; /**< told when none is owed any more */
} uct_angara_md_t;

/** Packed remote key: what the owner of the memory gives away. */
typedef struct uct_angara_packed_rkey {
    uint64_t key;  /**< names the region; never 0 */
    uint64_t base; /**< its start address at the owner */
} UCS_S_PACKED uct_angara_packed_rkey_t;

/** Unpacked remote key: uct_rkey_t points here. */
typedef struct uct_angara_rkey {
    uint64_t key;
    uint64_t base;
} uct_angara_rkey_t;

extern uct_component_t    uct_angara_component;
extern ucs_config_field_t uct_angara_md_config_table[];

ucs_status_t uct_angara_md_open(uct_component_t *component, const char *md_name,
                                const uct_md_config_t *md_config, uct_md_h *md_p);
ucs_status_t uct_angara_rkey_unpack(UCT_ANGARA_RKEY_UNPACK_ARGS);
ucs_status_t uct_angara_rkey_release(uct_component_t *component, uct_rkey_t rkey, void *handle);

/** Register without any cache; @a flags are UCT_MD_MEM_*. */
ucs_status_t uct_angara_mem_register(uct_angara_md_t *md, void *address, size_t length,
                                     unsigned flags, uct_angara_mem_t *mem);

/**
 * Take it back. @return UCS_OK: nobody reaches the memory any more; UCS_ERR_BUSY: a peer may still
 * be within an access, see uct_angara_md_collect(). The handle is done in either case.
 */
ucs_status_t uct_angara_mem_deregister(uct_angara_md_t *md, uct_angara_mem_t *mem);

/** Note what the library answered to the end of a region. @return it as UCX's. */
ucs_status_t uct_angara_mem_ended(uct_angara_md_t *md, const uct_angara_mem_t *mem,
                                  angara_status_t status);

/** Somebody who is to be told when @a md has taken a registration back. NULL: no memory. */
uct_angara_waiter_t *uct_angara_waiter_new(uct_angara_md_t *md, uct_completion_t *comp);

/** Tell those who wait. */
void uct_angara_waiters_complete(uct_angara_waiter_t *waiters, ucs_status_t status);

/** Tell those who wait, or let them wait on for memory that is owed. */
void uct_angara_waiters_tell(uct_angara_md_t *md, uct_angara_waiter_t *waiters);

/** Try again what is owed, now and then, and tell those who wait for it. */
void uct_angara_md_collect(uct_angara_md_t *md);

static UCS_F_ALWAYS_INLINE angara_mr_h uct_angara_mem_mr(const uct_angara_mem_t *mem)
{
    return __atomic_load_n(&mem->mr, __ATOMIC_ACQUIRE);
}

/** Memory that wasn't writable when it was registered can only be read. */
static UCS_F_ALWAYS_INLINE int uct_angara_mr_is_read_only(angara_mr_h mr)
{
    return !(angara_mr_access(mr) & ANGARA_ACCESS_LOCAL_WRITE);
}

/** Is that part of the region the memory of now, with the rights that are needed? */
static UCS_F_ALWAYS_INLINE int uct_angara_mem_is_current(const uct_angara_mem_t *mem,
                                                         const void *address, size_t length,
                                                         int is_written)
{
    angara_mr_h mr = uct_angara_mem_mr(mem);

    return !angara_mr_part_is_stale(mr, address, length) &&
           !(is_written && uct_angara_mr_is_read_only(mr));
}

/**
 * The same for an operation of the library's, which looks at a GPU's memory itself: what is shared
 * was looked at for the request that it is used for.
 */
static UCS_F_ALWAYS_INLINE int uct_angara_mem_is_good(const uct_angara_mem_t *mem,
                                                      const void *address, size_t length,
                                                      int is_written)
{
    angara_mr_h mr = uct_angara_mem_mr(mem);

    if (mem->is_shared && (angara_mr_mem_kind(mr) != ANGARA_MEM_HOST)) {
        return !(is_written && uct_angara_mr_is_read_only(mr));
    }
    return uct_angara_mem_is_current(mem, address, length, is_written);
}

/**
 * Register all of it again if the part isn't current: the region is of memory that was there after
 * the call had begun. @return an error if it can't be, or not with the rights that are needed.
 */
ucs_status_t uct_angara_mem_renew(uct_angara_md_t *md, uct_angara_mem_t *mem, const void *address,
                                  size_t length, int is_written);

/** @return non-zero if a registration with these flags may be shared. */
int uct_angara_reuse_allows(const uct_angara_md_t *md, unsigned flags);

/** Take part in a registration of just this range. @return NULL if there is none. */
uct_angara_mem_t *uct_angara_reuse_get(uct_angara_md_t *md, void *address, size_t length,
                                       uct_angara_mem_t **old_p);

/** Let others take part in @a mem. @return a registration that had to make room, or NULL. */
uct_angara_mem_t *uct_angara_reuse_add(uct_angara_md_t *md, uct_angara_mem_t *mem);

/**
 * Leave a shared registration.
 *
 * @param waiter  To be told when it has been taken back, or NULL.
 * @return non-zero if the caller has to take it back now.
 */
int  uct_angara_reuse_put(uct_angara_md_t *md, uct_angara_mem_t *mem, uct_angara_waiter_t *waiter);
void uct_angara_reuse_cleanup(uct_angara_md_t *md);

/** Make the registration cache, md->rcache. */
ucs_status_t uct_angara_rcache_create(uct_angara_md_t *md, const uct_angara_md_config_t *config);

/** Registrations of the cache: for the operations of an md that has one. */
ucs_status_t uct_angara_rcache_mem_reg(uct_md_h tl_md, void *address, size_t length,
                                       uct_angara_mem_reg_arg_t arg, uct_mem_h *memh_p);
ucs_status_t uct_angara_rcache_mem_dereg(uct_md_h tl_md, const uct_md_mem_dereg_params_t *params);

#endif
