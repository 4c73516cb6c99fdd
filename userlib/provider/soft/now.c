/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations that aren't long, performed within their call, without the engine, where nothing
 * of the pair is queued before them: on mapped memory by plain loads, stores and CPU atomics; on a
 * peer's private memory by its process, if that answers within a moment.
 */
#define _GNU_SOURCE
#include "agent.h"
#include "way.h"

#include "engine/atomic.h"
#include "src/config.h"

#define MAPPED_MAX 524288 /* bytes, and no more than a turn's */

/* ---- mapped memory -------------------------------------------------------------------------- */

/* In the own process, with the region held by the hazard. */
static char *own_begin(soft_peer_t *peer, unsigned access, uint64_t rkey, uint64_t roffset,
                       uint64_t length)
{
    soft_remote_t         *remote = &peer->remote;
    const soft_mr_entry_t *entry;
    uint64_t               addr;

    /* The hazard, a full fence, then the look at the entry: see domain.c. */
    __atomic_exchange_n(&remote->hazard->key, rkey, __ATOMIC_SEQ_CST);
    if (soft_is_own(peer, access) &&
        soft_mr_check(remote->dom, remote->mr_max, rkey, roffset, length, access, &addr, &entry) ==
            ANGARA_OK &&
        entry->kind == ANGARA_MEM_HOST) {
        return (char *)(uintptr_t)addr;
    }
    __atomic_store_n(&remote->hazard->key, 0, __ATOMIC_RELEASE);
    return NULL;
}

/* Is nothing queued, so that an operation may be performed here and now? */
static inline int pair_is_free(const soft_peer_t *peer)
{
    const ang_pair_t *pair = &peer->pair;

    return !ang_engine_is_shared(pair->engine) && pair->engine->chaos == NULL &&
           pair->head == NULL && pair->error == ANGARA_OK &&
           peer->remote.seg->generation == peer->remote.address.generation;
}

/* Bytes of the region that such an operation may touch; 0: it has no right to any. */
static inline uint64_t map_room(const soft_map_t *map, unsigned access)
{
    int may = (access & ~map->access) == 0 &&
              (ang_config.loopback || access == ANGARA_ACCESS_REMOTE_WRITE);

    return may ? map->length : 0;
}

/* The next operation on that region may be done by inline code (angara_fast.h). */
static inline void remember(soft_peer_t *peer, const soft_map_t *map)
{
    struct angara_fast_map *fast = &peer->base.fast.maps[map->key % ANGARA_FAST_MAPS];

    fast->rkey                       = map->key;
    fast->there                      = &peer->remote.dom->entries[SOFT_KEY_INDEX(map->key)].key;
    fast->base                       = map->base;
    fast->length[ANGARA_FAST_READ]   = map_room(map, ANGARA_ACCESS_REMOTE_READ);
    fast->length[ANGARA_FAST_WRITE]  = map_room(map, ANGARA_ACCESS_REMOTE_WRITE);
    fast->length[ANGARA_FAST_ATOMIC] = map_room(map, ANGARA_ACCESS_REMOTE_ATOMIC);
    for (unsigned i = 0; i < ANGARA_FAST_ATOMIC; ++i) {
        fast->words[i] = fast->length[i] < 8 ? 0 : fast->length[i] - 7;
    }
}

/* Does this process reach the region by plain loads and stores, as far as a look without a hazard
 * tells? */
static inline int is_mapped(const soft_peer_t *peer, uint64_t rkey)
{
    return peer->remote.same_process ||
           (peer->remote.dom != NULL && soft_way_may_map(&peer->remote, rkey)); /* it may be dead */
}

static inline int mapped_may(soft_peer_t *peer, uint64_t length)
{
    return length <= MAPPED_MAX && length <= ang_config.turn_bytes && pair_is_free(peer) &&
           soft_front_is_over(peer);
}

/*
 * Where the far end lies in this process: for one operation, by plain loads, stores or
 * CPU atomics, with nothing queued before it. NULL: it is to be posted.
 *
 * A region that is mapped needs no hazard. Such memory ends with its region (angara_mem_free()),
 * and this process's mapping keeps the pages: whoever comes too late touches what nobody sees any
 * more.
 */
static inline char *mapped_begin(soft_peer_t *peer, unsigned access, uint64_t rkey,
                                 uint64_t roffset, uint64_t length)
{
    soft_remote_t    *remote = &peer->remote;
    const soft_map_t *map;
    uint64_t          room;

    if (!is_mapped(peer, rkey) || !mapped_may(peer, length)) {
        return NULL;
    }
    if (remote->same_process) {
        return own_begin(peer, access, rkey, roffset, length);
    }
    map  = soft_maps_find(&soft_pe(peer->base.pe)->maps, remote->domain, rkey);
    room = map == NULL ? 0 : map_room(map, access);
    if (room == 0 || !ang_in_bounds(roffset, length, room) ||
        __atomic_load_n(&remote->dom->entries[SOFT_KEY_INDEX(rkey)].key, __ATOMIC_ACQUIRE) !=
            rkey) {
        return NULL;
    }
    remember(peer, map);
    return map->base + roffset;
}

static inline void mapped_end(soft_peer_t *peer)
{
    if (peer->remote.same_process) {
        __atomic_store_n(&peer->remote.hazard->key, 0, __ATOMIC_RELEASE);
    }
}

int soft_mapped_put(angara_peer_h base, const void *src, uint64_t rkey, uint64_t roffset,
                    size_t length)
{
    soft_peer_t *peer = soft_peer(base);
    char        *there;

    there = mapped_begin(peer, ANGARA_ACCESS_REMOTE_WRITE, rkey, roffset, length);
    if (there == NULL) {
        return 0;
    }
    ang_cpu_copy(there, src, length);
    mapped_end(peer);
    return 1;
}

int soft_mapped_get(angara_peer_h base, void *dst, uint64_t rkey, uint64_t roffset, size_t length)
{
    soft_peer_t *peer = soft_peer(base);
    const char  *there;

    there = mapped_begin(peer, ANGARA_ACCESS_REMOTE_READ, rkey, roffset, length);
    if (there == NULL) {
        return 0;
    }
    ang_cpu_copy(dst, there, length);
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* nothing is queued: what follows reads later */
    mapped_end(peer);
    return 1;
}

int soft_mapped_atomic(angara_peer_h base, const ang_desc_t *desc, uint64_t *old)
{
    soft_peer_t *peer = soft_peer(base);
    char        *there;
    int          is_done;

    there = mapped_begin(peer, ANGARA_ACCESS_REMOTE_ATOMIC, desc->rkey, desc->roffset, desc->width);
    if (there == NULL) {
        return 0;
    }
    is_done = (uintptr_t)there % desc->width == 0 && ang_cpu_atomic(there, desc, old) == ANGARA_OK;
    mapped_end(peer);
    return is_done;
}

/* Perform an operation whose near end is host memory. @return 0: nothing was done, post it; what is
 * wrong with it is found out then. */
static int mapped_post(angara_peer_h base, const ang_desc_t *desc, const void *data)
{
    ang_ref_t local;
    void     *near;
    uint64_t  old;

    if (!mapped_may(soft_peer(base), ang_desc_bytes(desc)) ||
        !soft_way_near(&soft_peer(base)->pair, desc, data, &local)) {
        return 0;
    }
    near = (void *)(uintptr_t)local.addr;
    switch (desc->op) {
    case ANG_OP_GET:
        __atomic_thread_fence(__ATOMIC_SEQ_CST); /* behind the puts before it */
        return soft_mapped_get(base, near, desc->rkey, desc->roffset, desc->length);
    case ANG_OP_ATOMIC:
        if (!soft_mapped_atomic(base, desc, &old)) {
            return 0;
        }
        soft_way_store_old(desc, &local, old);
        return 1;
    default:
        __atomic_thread_fence(__ATOMIC_RELEASE);
        return soft_mapped_put(base, near, desc->rkey, desc->roffset, desc->length);
    }
}

/* ---- memory that the peer's process accesses ------------------------------------------------ */

int soft_asked_get(angara_peer_h base, void *dst, uint64_t rkey, uint64_t roffset, size_t length)
{
    soft_peer_t        *peer  = soft_peer(base);
    ang_engine_stats_t *stats = &peer->pair.engine->stats;
    soft_request_t      item  = {
              .op = ANG_OP_GET, .length = (uint32_t)length, .key = rkey, .offset = roffset};

    if (!soft_is_short(length) || !pair_is_free(peer) || !soft_front_is_over(peer)) {
        return 0;
    }
    if (!soft_agent_now(peer, &item, dst)) {
        if (peer->agent >= 0) {
            soft_agent_abandon(peer); /* a get may be repeated */
        }
        soft_paces_drop(&peer->paces);
        return 0;
    }
    stats->gets++;
    stats->bytes += length;
    return 1;
}

/* How far an operation has come within its call. */
typedef enum {
    NOW_TO_POST, /* post it, whether it has been asked for or not */
    NOW_IS_OUT,  /* it isn't waited for, and counted when it ends */
    NOW_DONE
} now_t;

/*
 * A fetching atomic; or the first put, or other atomic, since somebody looked whether all is done:
 * others of a stream go together.
 */
static now_t asked_post(angara_peer_h base, const ang_desc_t *desc, const void *data)
{
    soft_peer_t   *peer    = soft_peer(base);
    int            is_put  = desc->op == ANG_OP_PUT || desc->op == ANG_OP_PUT_INLINE;
    int            fetches = !is_put && desc->lkey != 0;
    soft_request_t item;
    ang_ref_t      local;

    if ((is_put ? !soft_is_short(desc->length) : desc->op != ANG_OP_ATOMIC) ||
        (!fetches && peer->has_begun)) {
        return NOW_TO_POST;
    }
    peer->has_begun |= !fetches;
    /* What is asked for, and not answered, must find a place in the queue. */
    if (!pair_is_free(peer) ||
        (soft_front_is_out(peer) ? !ang_engine_is_reserved(peer->pair.engine) :
                                   peer->pair.engine->spare == NULL)) {
        return NOW_TO_POST;
    }
    if (!is_put) {
        return !fetches && soft_front_post(peer, desc)                    ? NOW_IS_OUT :
               fetches && data == NULL                                    ? NOW_TO_POST :
               soft_agent_now_atomic(peer, desc, (void *)(uintptr_t)data) ? NOW_DONE :
                                                                            NOW_TO_POST;
    }
    item = soft_agent_item(desc);
    return soft_way_near(&peer->pair, desc, data, &local) &&
                   soft_agent_now(peer, &item, (void *)(uintptr_t)local.addr) ?
               NOW_DONE :
               NOW_TO_POST;
}

int soft_now(angara_peer_h base, const ang_desc_t *desc, const void *data)
{
    ang_engine_t *engine = soft_peer(base)->pair.engine;
    now_t         is;

    if (ang_engine_is_shared(engine)) { /* something is queued */
        soft_peer(base)->has_begun |= desc->op != ANG_OP_GET;
        return 0;
    }
    is = !is_mapped(soft_peer(base), desc->rkey) ? asked_post(base, desc, data) :
         mapped_post(base, desc, data)           ? NOW_DONE :
                                                   NOW_TO_POST;
    if (is == NOW_DONE) {
        ang_desc_count(engine, desc);
        engine->stats.bytes += desc->length;
    }
    return is != NOW_TO_POST;
}
