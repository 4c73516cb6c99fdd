/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which way an operation takes to the far end's memory, and where its near end lies: the resolving
 * part of the engine's backend. The table of ways is in docs/protocols.md.
 *
 * Whatever way an operation takes, those of one pair are performed in order, each wholly before the
 * next; and words are changed by CPU atomics alone, here or by the target's process. So operations
 * of a pair may go different ways.
 */
#ifndef SOFT_WAY_H
#define SOFT_WAY_H

#include "soft.h"

#include "engine/atomic.h"
#include "src/config.h"

/* As the backend's functions of these names, see engine.h. */
angara_status_t soft_way_local(ang_pair_t *pair, uint64_t key, uint64_t offset, uint64_t length,
                               unsigned access, ang_ref_t *ref);
angara_status_t soft_way_remote(ang_pair_t *pair, uint64_t key, uint64_t offset, uint64_t length,
                                unsigned access, const ang_ref_t *near, ang_ref_t *ref);
void            soft_way_release(ang_pair_t *pair, ang_ref_t *ref);
/* As the backend's runs(): host memory here, private host memory there. What a GPU moves, or this
 * process by itself, doesn't wait for others of a run. */
int soft_way_runs(ang_pair_t *pair, ang_op_t op, const ang_item_t *items, unsigned count);
/* A run of puts, or a run of gets, with nothing queued before them: shall they be queued, and the
 * peer's process be asked for them together, since it must do it, or is faster? If not, and it is
 * timed, that began. */
int soft_way_run_is_asked(ang_pair_t *pair, ang_op_t op, const ang_item_t *items, unsigned count);
/* A put, get or atomic that is alone, and isn't posted yet: shall the peer's process be asked for
 * it, as far as pace tells? If so, and it is timed, soft_paces_begin() is next. If not, its post
 * hears the same. */
int soft_way_single_is_asked(soft_peer_t *peer, unsigned access, uint64_t key, uint64_t length);

/* Host memory of an own region. @return 0: it isn't, or something is wrong with it. */
static inline int soft_way_host(ang_pair_t *pair, uint64_t key, uint64_t offset, uint64_t length,
                                unsigned access, uint64_t *addr)
{
    const soft_domain_t   *dom = soft_pair_pe(pair)->dom;
    const soft_mr_entry_t *entry;

    return soft_mr_check(dom->shared, dom->mr_max, key, offset, length, access, addr, &entry) ==
               ANGARA_OK &&
           entry->kind == ANGARA_MEM_HOST;
}

/* Will it be that, if nothing is wrong with it? A key is that of one region ever. */
static inline int soft_way_is_host(ang_pair_t *pair, uint64_t key)
{
    const soft_domain_t   *dom   = soft_pair_pe(pair)->dom;
    const soft_mr_entry_t *entry = &dom->shared->entries[SOFT_KEY_INDEX(key)];

    return SOFT_KEY_INDEX(key) < dom->mr_max && SOFT_KEY_INDEX(key) < dom->shared->mr_committed &&
           __atomic_load_n(&entry->key, __ATOMIC_ACQUIRE) == key && entry->kind == ANGARA_MEM_HOST;
}

/* What an operation needs at the near end. */
static inline unsigned soft_way_near_right(unsigned op)
{
    return op == ANG_OP_PUT ? 0 : ANGARA_ACCESS_LOCAL_WRITE;
}

/* The near end of an operation: host memory of a region, or the bytes of an inline put. @return 0:
 * it is neither, or something is wrong with it. */
static inline int soft_way_near(ang_pair_t *pair, const ang_desc_t *desc, const void *data,
                                ang_ref_t *ref)
{
    *ref = ang_ref_host(data);
    if (desc->lkey == 0) {
        return desc->op == ANG_OP_PUT_INLINE || desc->op == ANG_OP_ATOMIC;
    }
    return soft_way_host(pair, desc->lkey, desc->loffset, ang_desc_bytes(desc),
                         soft_way_near_right(desc->op), &ref->addr);
}

/* What an atomic has fetched, to its near end, if it has one. */
static inline void soft_way_store_old(const ang_desc_t *desc, const ang_ref_t *near, uint64_t old)
{
    if (desc->op == ANG_OP_ATOMIC && desc->lkey != 0) {
        ang_cpu_copy((void *)(uintptr_t)near->addr, &old, desc->width);
    }
}

/* Can its memory be mapped here? Gets, atomics and so on need loopback. */
static inline int soft_can_map(const soft_mr_entry_t *entry, unsigned access)
{
    return entry->fd >= 0 && (ang_config.loopback || access == ANGARA_ACCESS_REMOTE_WRITE);
}

/* Must the peer's process do it, if the memory isn't mapped? What isn't a put needs loopback. */
static inline int soft_needs_agent(const soft_peer_t *peer, unsigned access)
{
    return (!ang_config.loopback && access != ANGARA_ACCESS_REMOTE_WRITE) ||
           access == ANGARA_ACCESS_REMOTE_ATOMIC || !peer->cma;
}

/* Is it memory of this process, and may it be touched as such? */
static inline int soft_is_own(const soft_peer_t *peer, unsigned access)
{
    return peer->remote.same_process &&
           (peer->is_self || ang_config.loopback || access == ANGARA_ACCESS_REMOTE_WRITE);
}

/*
 * Without a hazard the entry may be another region's by now. So this only tells which way to try
 * first, where whoever performs the operation looks at the entry again.
 */
static inline int soft_way_may_map(const soft_remote_t *remote, uint64_t key)
{
    return SOFT_KEY_INDEX(key) < remote->mr_max &&
           SOFT_KEY_INDEX(key) < remote->dom->mr_committed &&
           __atomic_load_n(&remote->dom->entries[SOFT_KEY_INDEX(key)].fd, __ATOMIC_RELAXED) >= 0;
}

/* The same: is it private memory of the peer's? */
static inline int soft_way_may_ask(const soft_remote_t *remote, uint64_t key)
{
    const soft_mr_entry_t *entry = &remote->dom->entries[SOFT_KEY_INDEX(key)];

    return SOFT_KEY_INDEX(key) < remote->mr_max &&
           SOFT_KEY_INDEX(key) < remote->dom->mr_committed &&
           __atomic_load_n(&entry->fd, __ATOMIC_RELAXED) < 0 &&
           __atomic_load_n(&entry->kind, __ATOMIC_RELAXED) == ANGARA_MEM_HOST;
}

/* Where host memory lies that plain loads and stores reach by now; NULL if they don't. */
static inline char *soft_reach(const soft_peer_t *peer, uint64_t key, const soft_mr_entry_t *entry,
                               uint64_t addr, uint64_t offset, unsigned access)
{
    const soft_map_t *map;

    if (soft_is_own(peer, access)) {
        return (char *)(uintptr_t)addr;
    }
    if (!soft_can_map(entry, access)) {
        return NULL;
    }
    map = soft_maps_find(&soft_pe(peer->base.pe)->maps, peer->remote.domain, key);
    return map != NULL ? map->base + offset : NULL;
}

#endif
