/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way an operation takes: see way.h. Touches the pair's hazard and the PE's mappings. */
#define _GNU_SOURCE
#include "way.h"

#include "agent.h"
#include "gpu_mem.h"
#include "joint.h"

angara_status_t soft_way_local(ang_pair_t *pair, uint64_t key, uint64_t offset, uint64_t length,
                               unsigned access, ang_ref_t *ref)
{
    soft_near_t           *near = &soft_pair_pe(pair)->near;
    soft_domain_t         *dom  = soft_pair_pe(pair)->dom;
    const soft_mr_entry_t *entry;
    angara_status_t        status;

    status = soft_mr_check(dom->shared, dom->mr_max, key, offset, length, access, &ref->addr,
                           &entry);
    if (status != ANGARA_OK) {
        return status;
    }
    ref->kind   = ANG_REF_HOST;
    ref->key    = key;
    ref->offset = offset;
    ref->length = length;
    ref->hold   = NULL;
    if (__builtin_expect(entry->kind != ANGARA_MEM_HOST, 0)) {
        ref->kind  = SOFT_REF_GPU;
        status     = soft_gpu_check(entry, &near->mem);
        near->addr = entry->id != 0 ? ref->addr : 0; /* several allocations: one of them */
    }
    return status;
}

/*
 * Find a way to a peer's GPU memory: ref->kind and what goes with it. Those that don't reach it
 * have the peer's helper do it.
 */
static angara_status_t gpu_remote(soft_peer_t *peer, const soft_mr_entry_t *entry, uint64_t offset,
                                  uint64_t length, unsigned access, const ang_ref_t *near,
                                  ang_ref_t *ref)
{
    const ang_gpu_mem_t *here = near->kind == SOFT_REF_GPU ? &soft_pe(peer->base.pe)->near.mem :
                                                             NULL;
    ang_gpu_mem_t        mem;
    soft_import_t       *import = NULL;
    uint64_t             addr   = 0;

    ref->kind = SOFT_REF_GPU;
    if (soft_is_own(peer, access)) {
        return soft_gpu_check(entry, &mem);
    }
    if (soft_can_map(entry, access) && !peer->remote.same_process) {
        soft_import_get(peer->remote.process, entry, here, offset, length, &import, &addr);
        soft_helper_watch(); /* what can't be mapped now is tried again after the next look */
    }
    if (import != NULL) {
        ref->addr = addr;
        ref->hold = import;
    } else {
        ref->kind = SOFT_REF_STAGED;
    }
    return ANGARA_OK;
}

/*
 * Map a region of memory that peers can map: where it lies here. NULL with ANGARA_OK: it can't be
 * mapped now, and is accessed as private memory is.
 */
static char *map_shared(soft_peer_t *peer, uint64_t key, const soft_mr_entry_t *entry,
                        angara_status_t *status)
{
    char *base = NULL;

    *status = soft_maps_add(&soft_pe(peer->base.pe)->maps, peer->remote.domain, key, entry, &base);
    if (*status == ANGARA_ERR_NO_RESOURCE) {
        *status = ANGARA_OK;
    }
    return base;
}

/* ---- the peer's process, or process_vm ------------------------------------------------------- */

/* Long ones keep both processes busy, so there must be processors for them. */
static int may_be_asked(const soft_peer_t *peer, uint64_t length)
{
    return soft_is_short(length) ||
           (length <= ang_config.asked_max && !soft_is_crowded(soft_pe(peer->base.pe)));
}

/* Is the peer expected to poll? If not, so many operations are done without it. */
static int is_trusted(soft_peer_t *peer, unsigned count)
{
    if (peer->remote.same_process || peer->pair.engine->chaos != NULL) {
        return 0;
    }
    if (peer->agent_distrust != 0) {
        peer->agent_distrust -= count < peer->agent_distrust ? count : peer->agent_distrust;
        return 0;
    }
    return !soft_agent_sleeps(peer);
}

static int pace_asks(soft_peer_t *peer, soft_pace_t *pace, int explores)
{
    soft_paces_t *paces = &peer->paces;
    int           is_timed;
    int           way = soft_pace_next(pace, explores, &is_timed);

    if (is_timed) {
        paces->timed    = pace;
        paces->begun_ns = 0;
        paces->spent_ns = 0;
        if (way == SOFT_PACE_CALLED) { /* the look at the peer, now and then, isn't the copy's */
            soft_remote_reach(&peer->remote);
            soft_paces_begin(paces, 0);
        }
    }
    return way == SOFT_PACE_ASKED;
}

/* Are more of the kind queued behind the first one? */
static int is_run(const ang_pair_t *pair, unsigned access)
{
    ang_place_t place = {NULL, 0};
    ang_desc_t  desc;
    const void *data;

    return pair->head != NULL && ang_pair_next(pair, &place, NULL, NULL) &&
           ang_pair_next(pair, &place, &desc, &data) && ang_op_right(desc.op) == access;
}

static soft_pace_t *run_pace(soft_peer_t *peer, unsigned access, uint64_t length)
{
    return &peer->paces.run[access == ANGARA_ACCESS_REMOTE_READ][soft_pace_class(length)];
}

static soft_pace_t *single_pace(soft_peer_t *peer, unsigned access, uint64_t length)
{
    return &peer->paces.single[access == ANGARA_ACCESS_REMOTE_READ][soft_pace_class(length)];
}

/* Short ones, of SOFT_PACED bytes, the peer's process performs faster anyway, unless batched. */
static int prefers_asking(soft_peer_t *peer, unsigned access, uint64_t length)
{
    soft_pace_t *run    = run_pace(peer, access, length);
    int          in_run = is_run(&peer->pair, access);

    if (length <= SOFT_PACED) {
        if (in_run && soft_pace_way(run) == SOFT_PACE_ASKED) {
            pace_asks(peer, run, 0); /* for its time */
        }
        return 1;
    }
    /* What comes by batches tries the other way there: one operation alone isn't a run's. */
    return in_run ? pace_asks(peer, run, length >= SOFT_PACE_UNIT) :
                    pace_asks(peer, single_pace(peer, access, length), 1);
}

/* May the peer's process be faster? That is decided once for each operation, but for a peer that
 * is found out not to poll. */
static int is_faster_asked(soft_peer_t *peer, unsigned access, uint64_t length)
{
    soft_paces_t *paces = &peer->paces;

    if (paces->decided == SOFT_IS_OPEN) {
        paces->timed   = NULL;
        paces->decided = may_be_asked(peer, length) && is_trusted(peer, 1) &&
                                 prefers_asking(peer, access, length) ?
                             SOFT_IS_ASKED :
                             SOFT_IS_CALLED;
    } else if (paces->decided == SOFT_IS_ASKED &&
               (peer->agent_distrust != 0 || soft_agent_sleeps(peer))) {
        paces->timed   = NULL;
        paces->decided = SOFT_IS_CALLED;
    }
    return paces->decided == SOFT_IS_ASKED;
}

int soft_way_single_is_asked(soft_peer_t *peer, unsigned access, uint64_t key, uint64_t length)
{
    soft_pace_t *pace;
    int          is_timed;

    peer->paces.timed = NULL;
    if (length <= SOFT_PACED || soft_needs_agent(peer, access)) {
        return 1;
    }
    pace = single_pace(peer, access, length);
    if (!may_be_asked(peer, length) || !soft_way_may_ask(&peer->remote, key) ||
        soft_pace_peek(pace, 1, &is_timed) != SOFT_PACE_ASKED) {
        return 0; /* the post will hear the same */
    }
    return pace_asks(peer, pace, 1);
}

/* Of a run of so few bytes the time says nothing. */
static int few_are_asked(soft_peer_t *peer, unsigned access, uint64_t length)
{
    return soft_pace_way(single_pace(peer, access, length)) == SOFT_PACE_ASKED;
}

int soft_way_runs(ang_pair_t *pair, ang_op_t op, const ang_item_t *items, unsigned count)
{
    const soft_remote_t *remote = &soft_pair_peer(pair)->remote;
    uint64_t             far    = 0; /* the regions seen last: as a rule all are the same */
    uint64_t             near   = 0;

    (void)op;
    for (unsigned i = 0; i < count; ++i) {
        if ((items[i].rkey != far && !soft_way_may_ask(remote, items[i].rkey)) ||
            (items[i].lkey != near && !soft_way_is_host(pair, items[i].lkey))) {
            return 0;
        }
        far  = items[i].rkey;
        near = items[i].lkey;
    }
    return count != 0;
}

int soft_way_run_is_asked(ang_pair_t *pair, ang_op_t op, const ang_item_t *items, unsigned count)
{
    soft_peer_t *peer   = soft_pair_peer(pair);
    unsigned     access = ang_op_right(op);
    uint64_t     length = items[0].length;
    uint64_t     bytes  = 0;

    peer->paces.timed = NULL;
    if (!soft_way_runs(pair, op, items, count)) {
        return 0;
    }
    if (soft_needs_agent(peer, access)) {
        peer->paces.decided = SOFT_IS_ASKED;
        return 1;
    }
    if (!may_be_asked(peer, length) || !is_trusted(peer, count)) {
        return 0;
    }
    for (unsigned i = 0; i < count; ++i) {
        bytes += items[i].length;
    }
    if (length > SOFT_PACED && bytes < SOFT_PACE_UNIT ?
            !few_are_asked(peer, access, length) :
            !pace_asks(peer, run_pace(peer, access, length), 1)) {
        return 0;
    }
    peer->paces.decided = SOFT_IS_ASKED;
    return 1;
}

/* ---- the far end ----------------------------------------------------------------------------- */

angara_status_t soft_way_remote(ang_pair_t *pair, uint64_t key, uint64_t offset, uint64_t length,
                                unsigned access, const ang_ref_t *near, ang_ref_t *ref)
{
    soft_peer_t           *peer   = soft_pair_peer(pair);
    soft_remote_t         *remote = &peer->remote;
    const soft_mr_entry_t *entry;
    angara_status_t        status;
    char                  *base;

    if (__builtin_expect(remote->seg->generation != remote->address.generation, 0)) {
        return ANGARA_ERR_PEER_DEAD;
    }
    ref->key    = key;
    ref->offset = offset;
    ref->length = length;
    ref->hold   = NULL;
    if (soft_agent_owes(peer) || peer->front.turn != 0 ||
        peer->joint.is_under_way) { /* it has been asked for */
        ref->kind = peer->joint.is_under_way ? SOFT_REF_JOINT :
                    peer->agent_has_other && access != ANGARA_ACCESS_REMOTE_ATOMIC ?
                                               SOFT_REF_POLLED :
                                               SOFT_REF_AGENT;
        ref->addr = 0;
        return ANGARA_OK;
    }
    /* The hazard, a full fence, then the look at the entry: see domain.c. */
    __atomic_exchange_n(&remote->hazard->key, key, __ATOMIC_SEQ_CST);
    status = soft_mr_check(remote->dom, remote->mr_max, key, offset, length, access, &ref->addr,
                           &entry);
    if (status != ANGARA_OK) {
        goto err;
    }
    if (__builtin_expect(entry->kind != ANGARA_MEM_HOST, 0)) {
        status = gpu_remote(peer, entry, offset, length, access, near, ref);
        if (status != ANGARA_OK) {
            goto err;
        }
    } else if ((base = soft_reach(peer, key, entry, ref->addr, offset, access)) != NULL) {
        ref->kind = ANG_REF_HOST;
        ref->addr = (uintptr_t)base;
    } else if (soft_can_map(entry, access) &&
               (base = map_shared(peer, key, entry, &status)) != NULL) {
        ref->kind = ANG_REF_HOST;
        ref->addr = (uintptr_t)base + offset;
    } else if (__builtin_expect(status != ANGARA_OK, 0)) {
        goto err;
    } else {
        ref->kind = soft_needs_agent(peer, access) ? SOFT_REF_AGENT :
                    near->kind == ANG_REF_HOST && is_faster_asked(peer, access, length) ?
                                                     SOFT_REF_POLLED :
                                                     SOFT_REF_CMA;
    }
    if ((ref->kind == ANG_REF_HOST || ref->kind == SOFT_REF_CMA) &&
        soft_joint_is_worth(peer, length, near, ref->kind == ANG_REF_HOST)) {
        ref->kind = SOFT_REF_JOINT;
    }
    if (soft_ref_is_asked(ref)) {
        ref->addr = 0;
        __atomic_store_n(&remote->hazard->key, 0, __ATOMIC_RELEASE); /* the helper holds its lock */
    }
    return ANGARA_OK;

err:
    __atomic_store_n(&remote->hazard->key, 0, __ATOMIC_RELEASE);
    return status;
}

void soft_way_release(ang_pair_t *pair, ang_ref_t *ref)
{
    if (ref->hold != NULL) {
        soft_import_put(ref->hold);
        ref->hold = NULL;
    }
    if (!soft_ref_is_asked(ref)) {
        __atomic_store_n(&soft_pair_peer(pair)->remote.hazard->key, 0, __ATOMIC_RELEASE);
    }
}
