/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of the soft fabric, and the backend through which the descriptor engine moves data:
 * by plain copies (own process, shared regions), by process_vm_readv/writev (private memory of a
 * peer), by a GPU (its memory, own or mapped), or by the peer's process (agent_short.c,
 * agent_long.c) where none of them can, or it is faster. Which of them is way.c's choice.
 */
#define _GNU_SOURCE
#include "agent.h"
#include "gpu_mem.h"
#include "joint.h"
#include "vm.h"
#include "way.h"

#include "engine/atomic.h"
#include "src/config.h"
#include "src/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

/* ---- batches of process_vm ------------------------------------------------------------------- */

/* Both ends of a batched transfer; 0 unless the far one is private memory that process_vm reaches.
 */
static int batch_ends(ang_pair_t *pair, ang_op_t op, const ang_item_t *item, struct iovec *here,
                      struct iovec *there)
{
    soft_peer_t           *peer   = soft_pair_peer(pair);
    soft_remote_t         *remote = &peer->remote;
    unsigned               access = ang_op_right(op);
    const soft_mr_entry_t *entry;
    uint64_t               near, far;

    if (!soft_way_host(pair, item->lkey, item->loffset, item->length, soft_way_near_right(op),
                       &near) ||
        soft_mr_check(remote->dom, remote->mr_max, item->rkey, item->roffset, item->length, access,
                      &far, &entry) != ANGARA_OK ||
        entry->kind != ANGARA_MEM_HOST || entry->fd >= 0 || soft_needs_agent(peer, access)) {
        return 0;
    }
    *here  = (struct iovec){(void *)(uintptr_t)near, item->length};
    *there = (struct iovec){(void *)(uintptr_t)far, item->length};
    return 1;
}

/* The regions that the run may reach, the hazard with a full fence, then the entries: domain.c. */
static void batch_hold(soft_remote_t *remote, const ang_item_t *items, unsigned count)
{
    soft_hazard_t *hazard = remote->hazard;

    for (unsigned i = 0; i < count; ++i) {
        __atomic_store_n(&hazard->regions[i], SOFT_KEY_INDEX(items[i].rkey), __ATOMIC_RELEASE);
    }
    __atomic_exchange_n(&hazard->key, soft_batch_value(++remote->domain->batches, count),
                        __ATOMIC_SEQ_CST);
}

/*
 * Perform the first of the transfers, of the same kind all. @return how many: 0 if the first isn't
 * for process_vm, or fails.
 */
static unsigned batch_run(ang_pair_t *pair, ang_op_t op, const ang_item_t *items, unsigned count)
{
    soft_remote_t *remote = &soft_pair_peer(pair)->remote;
    int            is_get = op == ANG_OP_GET;
    unsigned       num    = 0;
    unsigned       done   = 0;
    uint64_t       total  = 0;
    int            alone  = 0; /* the first is a word that process_vm would tear */
    struct iovec   here[ANGARA_BATCH_MAX], there[ANGARA_BATCH_MAX];
    ssize_t        moved = 0;
    int            word;

    batch_hold(remote, items, count);
    while (num < count && !alone && items[num].length <= SOFT_CMA_CHUNK - total &&
           batch_ends(pair, op, &items[num], &here[num], &there[num])) {
        word = is_get && soft_vm_tears((uintptr_t)there[num].iov_base, there[num].iov_len);
        if (word && num > 0) {
            break;
        }
        alone = word;
        total += there[num++].iov_len;
    }
    if (num > 0 && !soft_remote_reach(remote)) {
        num = 0; /* told by the single operation */
    } else if (alone) {
        moved = soft_vm_read(soft_remote_process_task(remote->process), (uintptr_t)here[0].iov_base,
                             (uintptr_t)there[0].iov_base, there[0].iov_len);
    } else if (num > 0) {
        moved = is_get ? process_vm_readv(soft_remote_process_task(remote->process), here, num,
                                          there, num, 0) :
                         process_vm_writev(soft_remote_process_task(remote->process), here, num,
                                           there, num, 0);
    }
    __atomic_store_n(&remote->hazard->key, 0, __ATOMIC_RELEASE);
    while (done < num && moved >= (ssize_t)there[done].iov_len) {
        moved -= (ssize_t)there[done++].iov_len;
    }
    return done;
}

/*
 * One system call for many: entering it, finding the process and asking whether it may be touched
 * cost as much as copying 8 KiB. A word that process_vm would tear takes calls of its own.
 */
static unsigned backend_batch(ang_pair_t *pair, ang_op_t op, const ang_item_t *items,
                              unsigned count)
{
    soft_peer_t   *peer   = soft_pair_peer(pair);
    soft_remote_t *remote = &peer->remote;
    unsigned       done   = 0;
    uint64_t       bytes  = 0;
    unsigned       run;

    if (remote->same_process || count < 2 || count > ANGARA_BATCH_MAX ||
        remote->seg->generation != remote->address.generation) {
        return 0;
    }
    if (soft_way_run_is_asked(pair, op, items, count)) {
        return ANG_BATCH_QUEUE;
    }
    if (!peer->cma) {
        return 0;
    }
    do { /* what was moved in part, or not at all, is done again by itself: then it may fault */
        run = batch_run(pair, op, items + done, count - done);
        for (unsigned i = 0; i < run; ++i) {
            bytes += items[done++].length;
        }
    } while (run > 0 && done < count);
    soft_paces_end(&peer->paces, SOFT_PACE_CALLED, bytes);
    return done;
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* How far a GPU goes that was to come to `end`: it moves as much in less time. */
static uint64_t gpu_end(const ang_pair_t *pair, const ang_ref_t *dst, const ang_ref_t *src,
                        uint64_t end)
{
    uint64_t length = dst->length < src->length ? dst->length : src->length;

    if (pair->engine->chaos != NULL || length <= end) {
        return end;
    }
    return length - end < SOFT_GPU_PIECE ? length : end + SOFT_GPU_PIECE;
}

static angara_status_t gpu_copy(ang_pair_t *pair, const ang_ref_t *dst, const ang_ref_t *src,
                                uint64_t end, uint64_t *done)
{
    soft_pe_t      *pe     = soft_pair_pe(pair);
    angara_status_t status = ANGARA_OK;

    end = gpu_end(pair, dst, src, end);

    if (*done < end) {
        pe->counters.gpu_copies++;
        status = soft_gpu_copy(dst->addr + *done, src->addr + *done, end - *done);
    }
    if (status == ANGARA_OK) {
        *done = end;
    }
    return status;
}

/* A short one of host memory; what is one by the answer must have been one by the question. */
static int is_short(const ang_pair_t *pair, const ang_ref_t *far, const ang_ref_t *near)
{
    return soft_is_short(far->length) && near->kind == ANG_REF_HOST && pair->engine->chaos == NULL;
}

static angara_status_t short_copy(ang_pair_t *pair, ang_op_t op, const ang_ref_t *far,
                                  const ang_ref_t *near, uint64_t end, uint64_t *done)
{
    soft_request_t item = {
        .op = (uint8_t)op, .length = (uint32_t)far->length, .key = far->key, .offset = far->offset};
    angara_status_t status;

    if (*done == far->length) {
        return ANGARA_OK;
    }
    if (end < far->length) {
        return ANGARA_INPROGRESS; /* for a turn that has more bytes left */
    }
    status = soft_agent_short(soft_pair_peer(pair), &item, (void *)(uintptr_t)near->addr,
                              far->kind == SOFT_REF_POLLED, NULL);
    if (status == ANGARA_OK) {
        *done                               = far->length;
        soft_pair_peer(pair)->paces.decided = SOFT_IS_OPEN;
    }
    return status;
}

/* A long one, or one by process_vm: has it ended? */
static angara_status_t ended(soft_peer_t *peer, int way, angara_status_t status, uint64_t done,
                             uint64_t length)
{
    if (status == ANGARA_OK && done == length) {
        soft_paces_end(&peer->paces, way, length);
        peer->paces.decided = SOFT_IS_OPEN;
    }
    return status;
}

static angara_status_t backend_copy(ang_pair_t *pair, const ang_ref_t *dst, const ang_ref_t *src,
                                    uint64_t end, uint64_t *done)
{
    soft_peer_t    *peer   = soft_pair_peer(pair);
    int             is_gpu = dst->kind == SOFT_REF_GPU || src->kind == SOFT_REF_GPU;
    angara_status_t status;

    if (dst->kind == ANG_REF_HOST && src->kind == ANG_REF_HOST) {
        ang_cpu_copy((void *)(uintptr_t)(dst->addr + *done),
                     (const void *)(uintptr_t)(src->addr + *done), end - *done);
        *done = end;
        return ANGARA_OK;
    }
    if (soft_ref_is_asked(dst) && is_short(pair, dst, src)) {
        return short_copy(pair, ANG_OP_PUT, dst, src, end, done);
    }
    if (soft_ref_is_asked(src) && is_short(pair, src, dst)) {
        return short_copy(pair, ANG_OP_GET, src, dst, end, done);
    }
    if (dst->kind == SOFT_REF_JOINT) {
        status = soft_joint_copy(peer, ANG_OP_PUT, dst, src, end, done);
        return ended(peer, SOFT_PACE_CALLED, status, *done, dst->length);
    }
    if (src->kind == SOFT_REF_JOINT) {
        status = soft_joint_copy(peer, ANG_OP_GET, src, dst, end, done);
        return ended(peer, SOFT_PACE_CALLED, status, *done, dst->length);
    }
    if (dst->kind == SOFT_REF_AGENT || dst->kind == SOFT_REF_STAGED ||
        dst->kind == SOFT_REF_POLLED) {
        status = soft_agent_copy_out(peer, dst, src, end, done);
        return ended(peer, SOFT_PACE_ASKED, status, *done, dst->length);
    }
    if (src->kind == SOFT_REF_AGENT || src->kind == SOFT_REF_STAGED ||
        src->kind == SOFT_REF_POLLED) {
        status = soft_agent_copy_in(peer, src, dst, end, done);
        return ended(peer, SOFT_PACE_ASKED, status, *done, dst->length);
    }
    if (dst->kind == SOFT_REF_CMA || src->kind == SOFT_REF_CMA) {
        if (is_gpu) {
            return soft_gpu_copy_far(peer, dst, src, end, done);
        }
        status = dst->kind == SOFT_REF_CMA ?
                     soft_cma_copy(peer, dst->addr, src->addr, end, 0, done) :
                     soft_cma_copy(peer, src->addr, dst->addr, end, 1, done);
        return ended(peer, SOFT_PACE_CALLED, status, *done, dst->length);
    }
    return gpu_copy(pair, dst, src, end, done);
}

/* ---- flights --------------------------------------------------------------------------------- */

typedef struct {
    ang_gpu_copy_t copy;
    soft_hazard_t *hazard; /* holds the far region */
    soft_import_t *import; /* its mapping, or NULL */
} flight_t;

_Static_assert(sizeof(flight_t) <= sizeof(ang_flight_t), "it fits");

/*
 * The flight's hazard holds the region only if it is there once more: deregistration may have
 * looked at this hazard before it was set, and at the pair's after that has been cleared.
 */
static soft_hazard_t *flight_hold(soft_remote_t *remote, uint64_t key, angara_status_t *status)
{
    soft_hazard_t *hazard = soft_remote_domain_hold(remote->domain, key);

    *status = ANGARA_ERR_NO_RESOURCE;
    if (hazard != NULL) {
        *status = soft_mr_check(remote->dom, remote->mr_max, key, 0, 0, 0, NULL, NULL);
        if (*status != ANGARA_OK) {
            __atomic_store_n(&hazard->key, 0, __ATOMIC_RELEASE);
        }
    }
    return hazard;
}

static angara_status_t backend_launch(ang_pair_t *pair, unsigned op, const ang_ref_t *local,
                                      const ang_ref_t *far, uint64_t length,
                                      const ang_flight_t *after, ang_flight_t *room)
{
    soft_remote_t  *remote = &soft_pair_peer(pair)->remote;
    const flight_t *before = (const flight_t *)(const void *)after;
    flight_t       *flight = (flight_t *)(void *)room;
    soft_near_t    *near   = &soft_pair_pe(pair)->near;
    soft_gpu_end_t  here   = {local->addr, NULL};
    soft_gpu_end_t  there  = {far->addr, NULL};
    angara_status_t status;

    if (far->kind == SOFT_REF_CMA || soft_ref_is_asked(far)) {
        return ANGARA_ERR_UNSUPPORTED; /* through the host */
    }
    flight->hazard = flight_hold(remote, far->key, &status);
    if (status != ANGARA_OK) {
        /* Where none could be claimed ever, the copy is made within the call. */
        return remote->domain->flights[0] == NULL ? ANGARA_ERR_UNSUPPORTED : status;
    }
    if (local->kind == SOFT_REF_GPU && near->addr == local->addr) {
        here.mem = &near->mem;
    }
    if (far->hold != NULL) {
        there.mem = soft_import_mem(far->hold);
    }
    status = soft_gpu_start(op == ANG_OP_PUT ? &there : &here, op == ANG_OP_PUT ? &here : &there,
                            length, ang_config.turn_bytes, before != NULL ? &before->copy : NULL,
                            before != NULL && soft_pair_pe(pair)->is_relaxed, &flight->copy);
    if (status != ANGARA_INPROGRESS) {
        __atomic_store_n(&flight->hazard->key, 0, __ATOMIC_RELEASE);
        return status;
    }
    soft_pair_pe(pair)->counters.gpu_copies++;
    soft_helper_watch();
    flight->import = far->hold;
    if (flight->import != NULL) {
        soft_import_hold(flight->import);
    }
    return ANGARA_INPROGRESS;
}

static int backend_gathers(ang_pair_t *pair, const ang_flight_t *room)
{
    return soft_pair_pe(pair)->is_relaxed && ((const flight_t *)(const void *)room)->copy.gathers;
}

static void backend_launched(ang_pair_t *pair, ang_flight_t *room)
{
    (void)pair;
    ang_gpu_copy_submit(&((flight_t *)(void *)room)->copy);
}

static angara_status_t backend_landed(ang_pair_t *pair, ang_flight_t *room)
{
    flight_t       *flight = (flight_t *)(void *)room;
    angara_status_t status = ang_gpu_copy_test(&flight->copy);

    (void)pair;
    if (status != ANGARA_INPROGRESS) {
        if (flight->import != NULL) {
            soft_import_put(flight->import);
        }
        __atomic_store_n(&flight->hazard->key, 0, __ATOMIC_RELEASE);
    }
    return status;
}

static int backend_along(ang_pair_t *pair, const ang_desc_t *desc, uint64_t *budget)
{
    soft_peer_t *peer = soft_pair_peer(pair);

    if (peer->direct_along != 0) { /* a GPU has moved it */
        peer->direct_along--;
        return 1;
    }
    if (desc->length > *budget || !soft_agent_along(peer, desc)) {
        return 0;
    }
    *budget -= desc->length;
    return 1;
}

static angara_status_t backend_atomic(ang_pair_t *pair, const ang_ref_t *ref,
                                      const ang_desc_t *desc, uint64_t *old)
{
    if (ref->kind == SOFT_REF_AGENT) {
        soft_request_t item = soft_agent_item(desc);

        return soft_agent_short(soft_pair_peer(pair), &item, NULL, 0, old);
    }
    return ang_cpu_atomic((void *)(uintptr_t)ref->addr, desc, old);
}

/*
 * All before the marker was performed by this CPU's stores or by completed system calls and
 * requests, so a fence makes it visible. Without loopback the peer itself must answer.
 */
static angara_status_t backend_read_back(ang_pair_t *pair)
{
    soft_peer_t *peer = soft_pair_peer(pair);

    if (peer->remote.seg->generation != peer->remote.address.generation) {
        return ANGARA_ERR_PEER_DEAD;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (ang_config.loopback || peer->is_self) {
        return ANGARA_OK;
    }
    return soft_agent_read_back(peer);
}

static int backend_read_back_now(ang_pair_t *pair)
{
    return (ang_config.loopback || soft_pair_peer(pair)->is_self) &&
           backend_read_back(pair) == ANGARA_OK;
}

static void backend_marker_land(ang_engine_t *engine, uint64_t slot, uint64_t value)
{
    soft_pe_t *pe = engine->ctx;

    /* From here on the slot may be somebody else's. */
    __atomic_store_n(&pe->base.slots.words[slot], value, __ATOMIC_RELEASE);
    if (engine->chaos != NULL) {
        soft_wake_self(pe);
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

static char *window_at(ang_pair_t *pair, uint64_t offset)
{
    soft_remote_t *remote = &soft_pair_peer(pair)->remote;

    return (char *)remote->seg + remote->layout.window + offset;
}

static void backend_window_write(ang_pair_t *pair, uint64_t offset, const void *src, size_t length)
{
    memcpy(window_at(pair, offset), src, length);
}

static void backend_window_word(ang_pair_t *pair, uint64_t offset, uint64_t value, unsigned width)
{
    void *word = window_at(pair, offset);

    switch (width) {
    case 1:
        __atomic_store_n((uint8_t *)word, (uint8_t)value, __ATOMIC_RELEASE);
        break;
    case 2:
        __atomic_store_n((uint16_t *)word, (uint16_t)value, __ATOMIC_RELEASE);
        break;
    case 4:
        __atomic_store_n((uint32_t *)word, (uint32_t)value, __ATOMIC_RELEASE);
        break;
    default:
        __atomic_store_n((uint64_t *)word, value, __ATOMIC_RELEASE);
        break;
    }
}

static void backend_window_wake(ang_pair_t *pair)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    soft_wake(&soft_pair_peer(pair)->base);
}

static void backend_fault(ang_pair_t *pair, uint64_t key, angara_status_t status)
{
    soft_peer_t *peer = soft_pair_peer(pair);

    ang_info("an operation to %s faulted: %s (key %#llx)", peer->base.name, angara_strerror(status),
             (unsigned long long)key);
    ang_peer_unmap(&peer->base); /* calls say that it failed */
    soft_paces_drop(&peer->paces);
    soft_agent_withdraw(peer);
    soft_event_raise(soft_pair_pe(pair), ANGARA_EVENT_FAULT, status, peer, key);
}

static unsigned backend_along_run(ang_pair_t *pair, ang_op_t op, const ang_item_t *items,
                                  unsigned count, uint64_t *budget)
{
    return soft_agent_along_run(soft_pair_peer(pair), op, items, count, budget);
}

const ang_backend_t soft_backend = {
    .local         = soft_way_local,
    .remote        = soft_way_remote,
    .release       = soft_way_release,
    .copy          = backend_copy,
    .launch        = backend_launch,
    .gathers       = backend_gathers,
    .launched      = backend_launched,
    .landed        = backend_landed,
    .batch         = backend_batch,
    .runs          = soft_way_runs,
    .along         = backend_along,
    .along_run     = backend_along_run,
    .atomic        = backend_atomic,
    .read_back     = backend_read_back,
    .read_back_now = backend_read_back_now,
    .marker_land   = backend_marker_land,
    .window_write  = backend_window_write,
    .window_word   = backend_window_word,
    .window_wake   = backend_window_wake,
    .fault         = backend_fault,
};

/* ---- the calls ------------------------------------------------------------------------------- */

static int is_word(uint64_t offset, size_t length)
{
    return (length == 1 || length == 2 || length == 4 || length == 8) && offset % length == 0;
}

static uint64_t load_word(const void *src, size_t length)
{
    uint64_t word = 0;

    memcpy(&word, src, length); /* little endian, like every platform of this provider */
    return word;
}

angara_status_t soft_put(angara_peer_h base, uint64_t offset, const void *src, size_t length)
{
    soft_peer_t *peer = soft_peer(base);
    soft_pe_t   *pe   = soft_pe(base->pe);

    if (peer->down) {
        return ANGARA_ERR_PEER_DEAD;
    }
    pe->counters.window_puts++;
    if (pe->engine.chaos != NULL) {
        if (is_word(offset, length)) {
            return ang_engine_post_window(&peer->pair, 0, NULL, 0, offset, load_word(src, length),
                                          (unsigned)length);
        }
        return ang_engine_post_window(&peer->pair, offset, src, length, 0, 0, 0);
    }
    if (is_word(offset, length)) {
        backend_window_word(&peer->pair, offset, load_word(src, length), (unsigned)length);
    } else {
        memcpy(window_at(&peer->pair, offset), src, length);
    }
    return ANGARA_OK;
}

angara_status_t soft_put_flag(angara_peer_h base, uint64_t offset, const void *src, size_t length,
                              uint64_t flag_offset, uint64_t flag)
{
    soft_peer_t *peer = soft_peer(base);
    soft_pe_t   *pe   = soft_pe(base->pe);

    if (peer->down) {
        return ANGARA_ERR_PEER_DEAD;
    }
    pe->counters.window_puts++;
    if (pe->engine.chaos != NULL) {
        return ang_engine_post_window(&peer->pair, offset, src, length, flag_offset, flag,
                                      sizeof(flag));
    }
    if (length != 0) {
        memcpy(window_at(&peer->pair, offset), src, length);
    }
    backend_window_word(&peer->pair, flag_offset, flag, sizeof(flag));
    return ANGARA_OK;
}

/* ---- ring operations ------------------------------------------------------------------------ */

#define STREAM_LOOK 16u /* of so many posts of a stream one looks */

/*
 * Operations queue up behind a request to the peer's process. Once that has answered it may have
 * what has come together since, so that both work at the same time; and the first ones of a run at
 * once.
 */
static void stream_on(soft_peer_t *peer)
{
    ang_engine_t *engine = peer->pair.engine;

    ang_engine_lock(engine);
    if (peer->agent < 0 ?
            peer->paces.decided == SOFT_IS_ASKED :
            peer->agent_is_short && (peer->batch.received || soft_agent_answered(peer))) {
        ang_engine_pair_progress(
            &peer->pair, engine->turn_bytes < SOFT_STAGING ? engine->turn_bytes : SOFT_STAGING);
    } else {
        soft_agent_ahead(peer);
    }
    ang_engine_unlock(engine);
}

angara_status_t soft_post(angara_peer_h peer, ang_desc_t *desc, const void *data)
{
    angara_status_t status;
    unsigned        pending;

    if (soft_now(peer, desc, data)) {
        return ANGARA_OK;
    }
    status = soft_front_in_order(soft_peer(peer));
    if (status != ANGARA_OK) {
        return status;
    }
    status  = soft_pair_post(&soft_peer(peer)->pair, desc,
                            desc->op == ANG_OP_PUT_INLINE ? data : NULL);
    pending = __atomic_load_n(&soft_peer(peer)->pair.engine->pending, __ATOMIC_RELAXED);
    if (pending != 0 && pending % STREAM_LOOK == 0) {
        stream_on(soft_peer(peer));
    }
    soft_helper_wake_if_kicked();
    return status;
}

angara_status_t soft_post_batch(angara_peer_h peer, ang_op_t op, const ang_item_t *items,
                                unsigned count, unsigned *posted_p)
{
    ang_engine_t   *engine = soft_peer(peer)->pair.engine;
    angara_status_t status;

    if (count == 1) {
        ang_desc_t desc = ang_item_desc(op, items);

        status    = soft_post(peer, &desc, NULL);
        *posted_p = status == ANGARA_OK;
        if (ang_engine_is_shared(engine)) {
            stream_on(soft_peer(peer));
        }
        return status;
    }
    if (engine->chaos != NULL) {
        return ang_engine_post_batch(&soft_peer(peer)->pair, op, items, count, posted_p);
    }
    *posted_p = 0;
    status    = soft_front_in_order(soft_peer(peer));
    if (status != ANGARA_OK) {
        return status;
    }
    ang_engine_lock(engine); /* the first one that is queued makes the queue a shared one */
    status = ang_engine_post_batch(&soft_peer(peer)->pair, op, items, count, posted_p);
    if (soft_peer(peer)->pair.head == NULL) {
        soft_peer(peer)->paces.decided = SOFT_IS_OPEN; /* none found room */
    }
    ang_engine_unlock(engine);
    if (ang_engine_is_shared(engine)) {
        stream_on(soft_peer(peer));
    }
    soft_helper_wake_if_kicked();
    return status;
}
