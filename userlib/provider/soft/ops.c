/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of the soft fabric, and the backend through which the descriptor engine moves data:
 * by plain copies (own process, shared regions), by process_vm_readv/writev (private memory of a
 * peer), by a GPU (its memory, own or mapped), or by the peer's helper thread (agent.c) where none
 * of them can.
 */
#define _GNU_SOURCE
#include "gpu_mem.h"
#include "vm.h"

#include "engine/atomic.h"
#include "src/config.h"
#include "src/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

static soft_pe_t *pair_pe(ang_pair_t *pair)
{
    return pair->engine->ctx;
}

/* ---- resolving ------------------------------------------------------------------------------- */

static angara_status_t backend_local(ang_pair_t *pair, uint64_t key, uint64_t offset,
                                     uint64_t length, unsigned access, ang_ref_t *ref)
{
    soft_near_t           *near = &pair_pe(pair)->near;
    soft_domain_t         *dom  = pair_pe(pair)->dom;
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

/* Can its memory be mapped here? Gets, atomics and so on need loopback. */
static int can_map(const soft_mr_entry_t *entry, unsigned access)
{
    return entry->fd >= 0 && (ang_config.loopback || access == ANGARA_ACCESS_REMOTE_WRITE);
}

/* Must the peer's process do it, if the memory isn't mapped? What isn't a put needs loopback. */
static int needs_agent(const soft_peer_t *peer, unsigned access)
{
    return (!ang_config.loopback && access != ANGARA_ACCESS_REMOTE_WRITE) ||
           access == ANGARA_ACCESS_REMOTE_ATOMIC || !peer->cma;
}

/* Is it memory of this process, and may it be touched as such? */
static int is_own(const soft_peer_t *peer, unsigned access)
{
    return peer->remote.same_process &&
           (peer->is_self || ang_config.loopback || access == ANGARA_ACCESS_REMOTE_WRITE);
}

/*
 * Find a way to a peer's GPU memory: ref->kind and what goes with it. Those that don't reach it
 * have the peer's helper do it.
 */
static angara_status_t gpu_remote(soft_peer_t *peer, const soft_mr_entry_t *entry, uint64_t offset,
                                  uint64_t length, unsigned access, const ang_ref_t *near,
                                  ang_ref_t *ref)
{
    const ang_gpu_mem_t *here   = &soft_pe(peer->base.pe)->near.mem;
    int                  device = near->kind == SOFT_REF_GPU ? here->mem.device : -1;
    ang_gpu_mem_t        mem;
    soft_import_t       *import = NULL;
    uint64_t             addr   = 0;

    ref->kind = SOFT_REF_GPU;
    if (is_own(peer, access)) {
        return soft_gpu_check(entry, &mem);
    }
    if (can_map(entry, access) && !peer->remote.same_process) {
        soft_import_get(peer->remote.process, entry, device, offset, length, &import, &addr);
        soft_helper_watch(); /* what can't be mapped now is tried again after the next look */
    }
    if (import != NULL) {
        ref->addr = addr;
        ref->hold = import;
    } else {
        ref->kind = SOFT_REF_AGENT;
    }
    return ANGARA_OK;
}

/*
 * Where a region of memory that peers can map lies here. NULL with ANGARA_OK: it can't be mapped
 * now, and is accessed as private memory is.
 */
static char *map_shared(soft_peer_t *peer, uint64_t key, const soft_mr_entry_t *entry,
                        angara_status_t *status)
{
    soft_maps_t *maps = &soft_pe(peer->base.pe)->maps;
    char        *base = soft_maps_find(maps, peer->remote.domain, key);

    if (__builtin_expect(base == NULL, 0)) {
        *status = soft_maps_add(maps, peer->remote.domain, key, entry, &base);
        if (*status == ANGARA_ERR_NO_RESOURCE) {
            *status = ANGARA_OK;
        }
    }
    return base;
}

static angara_status_t backend_remote(ang_pair_t *pair, uint64_t key, uint64_t offset,
                                      uint64_t length, unsigned access, const ang_ref_t *near,
                                      ang_ref_t *ref)
{
    soft_peer_t           *peer   = soft_pair_peer(pair);
    soft_remote_t         *remote = &peer->remote;
    const soft_mr_entry_t *entry;
    angara_status_t        status;
    char                  *base;

    if (__builtin_expect(remote->seg->generation != remote->address.generation, 0)) {
        return ANGARA_ERR_PEER_DEAD;
    }
    /* The hazard, a full fence, then the look at the entry: see domain.c. */
    __atomic_exchange_n(&remote->hazard->key, key, __ATOMIC_SEQ_CST);
    status = soft_mr_check(remote->dom, remote->mr_max, key, offset, length, access, &ref->addr,
                           &entry);
    if (status != ANGARA_OK) {
        goto err;
    }
    ref->key    = key;
    ref->offset = offset;
    ref->length = length;
    ref->hold   = NULL;
    if (__builtin_expect(entry->kind != ANGARA_MEM_HOST, 0)) {
        status = gpu_remote(peer, entry, offset, length, access, near, ref);
        if (status != ANGARA_OK) {
            goto err;
        }
    } else if (is_own(peer, access)) {
        ref->kind = ANG_REF_HOST;
    } else if (can_map(entry, access) && (base = map_shared(peer, key, entry, &status)) != NULL) {
        ref->kind = ANG_REF_HOST;
        ref->addr = (uintptr_t)base + offset;
    } else if (__builtin_expect(status != ANGARA_OK, 0)) {
        goto err;
    } else {
        ref->kind = needs_agent(peer, access) ? SOFT_REF_AGENT : SOFT_REF_CMA;
    }
    if (ref->kind == SOFT_REF_AGENT) {
        ref->addr = 0;
        __atomic_store_n(&remote->hazard->key, 0, __ATOMIC_RELEASE); /* the helper holds its lock */
    }
    return ANGARA_OK;

err:
    __atomic_store_n(&remote->hazard->key, 0, __ATOMIC_RELEASE);
    return status;
}

static void backend_release(ang_pair_t *pair, ang_ref_t *ref)
{
    if (ref->hold != NULL) {
        soft_import_put(ref->hold);
        ref->hold = NULL;
    }
    if (ref->kind != SOFT_REF_AGENT) {
        __atomic_store_n(&soft_pair_peer(pair)->remote.hazard->key, 0, __ATOMIC_RELEASE);
    }
}

/* Both ends of a batched transfer; 0 unless the far one is private memory that process_vm reaches.
 */
static int batch_ends(ang_pair_t *pair, const ang_desc_t *desc, struct iovec *here,
                      struct iovec *there)
{
    soft_peer_t           *peer   = soft_pair_peer(pair);
    soft_remote_t         *remote = &peer->remote;
    int                    is_get = desc->op == ANG_OP_GET;
    unsigned               access = is_get ? ANGARA_ACCESS_REMOTE_READ : ANGARA_ACCESS_REMOTE_WRITE;
    const soft_mr_entry_t *entry;
    uint64_t               addr;
    ang_ref_t              ref;

    if (backend_local(pair, desc->lkey, desc->loffset, desc->length,
                      is_get ? ANGARA_ACCESS_LOCAL_WRITE : 0, &ref) != ANGARA_OK ||
        ref.kind != ANG_REF_HOST ||
        soft_mr_check(remote->dom, remote->mr_max, desc->rkey, desc->roffset, desc->length, access,
                      &addr, &entry) != ANGARA_OK ||
        entry->kind != ANGARA_MEM_HOST || entry->fd >= 0 || needs_agent(peer, access)) {
        return 0;
    }
    *here  = (struct iovec){(void *)(uintptr_t)ref.addr, desc->length};
    *there = (struct iovec){(void *)(uintptr_t)addr, desc->length};
    return 1;
}

/* The regions that the run may reach, the hazard with a full fence, then the entries: domain.c. */
static void batch_hold(soft_remote_t *remote, const ang_desc_t *descs, unsigned count)
{
    soft_hazard_t *hazard = remote->hazard;

    for (unsigned i = 0; i < count; ++i) {
        __atomic_store_n(&hazard->regions[i], SOFT_KEY_INDEX(descs[i].rkey), __ATOMIC_RELEASE);
    }
    __atomic_exchange_n(&hazard->key, soft_batch_value(++remote->domain->batches, count),
                        __ATOMIC_SEQ_CST);
}

/*
 * Perform the first of the transfers, of the same kind all. @return how many: 0 if the first isn't
 * for process_vm, or fails.
 */
static unsigned batch_run(ang_pair_t *pair, const ang_desc_t *descs, unsigned count)
{
    soft_remote_t *remote = &soft_pair_peer(pair)->remote;
    int            is_get = descs[0].op == ANG_OP_GET;
    unsigned       num    = 0;
    unsigned       done   = 0;
    uint64_t       total  = 0;
    int            alone  = 0; /* the first is a word that process_vm would tear */
    struct iovec   here[ANGARA_BATCH_MAX], there[ANGARA_BATCH_MAX];
    ssize_t        moved = 0;
    int            word;

    batch_hold(remote, descs, count);
    while (num < count && !alone && descs[num].length <= SOFT_CMA_CHUNK - total &&
           batch_ends(pair, &descs[num], &here[num], &there[num])) {
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
static unsigned backend_batch(ang_pair_t *pair, const ang_desc_t *descs, unsigned count)
{
    soft_peer_t   *peer   = soft_pair_peer(pair);
    soft_remote_t *remote = &peer->remote;
    unsigned       done   = 0;
    unsigned       run;

    if (!peer->cma || remote->same_process || count < 2 || count > ANGARA_BATCH_MAX ||
        remote->seg->generation != remote->address.generation) {
        return 0;
    }
    do { /* what was moved in part, or not at all, is done again by itself: then it may fault */
        run = batch_run(pair, descs + done, count - done);
        done += run;
    } while (run > 0 && done < count);
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
    soft_pe_t      *pe     = pair_pe(pair);
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

static angara_status_t backend_copy(ang_pair_t *pair, const ang_ref_t *dst, const ang_ref_t *src,
                                    uint64_t end, uint64_t *done)
{
    soft_peer_t *peer   = soft_pair_peer(pair);
    int          is_gpu = dst->kind == SOFT_REF_GPU || src->kind == SOFT_REF_GPU;

    if (dst->kind == ANG_REF_HOST && src->kind == ANG_REF_HOST) {
        ang_cpu_copy((void *)(uintptr_t)(dst->addr + *done),
                     (const void *)(uintptr_t)(src->addr + *done), end - *done);
        *done = end;
        return ANGARA_OK;
    }
    if (dst->kind == SOFT_REF_AGENT) {
        return soft_agent_copy_out(peer, dst, src, end, done);
    }
    if (src->kind == SOFT_REF_AGENT) {
        return soft_agent_copy_in(peer, src, dst, end, done);
    }
    if (dst->kind == SOFT_REF_CMA || src->kind == SOFT_REF_CMA) {
        if (is_gpu) {
            return soft_gpu_copy_far(peer, dst, src, end, done);
        }
        return dst->kind == SOFT_REF_CMA ? soft_cma_copy(peer, dst->addr, src->addr, end, 0, done) :
                                           soft_cma_copy(peer, src->addr, dst->addr, end, 1, done);
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
    soft_near_t    *near   = &pair_pe(pair)->near;
    soft_gpu_end_t  here   = {local->addr, NULL};
    soft_gpu_end_t  there  = {far->addr, NULL};
    angara_status_t status;

    if (far->kind == SOFT_REF_CMA || far->kind == SOFT_REF_AGENT) {
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
                            length, before != NULL ? &before->copy : NULL, &flight->copy);
    if (status != ANGARA_INPROGRESS) {
        __atomic_store_n(&flight->hazard->key, 0, __ATOMIC_RELEASE);
        return status;
    }
    pair_pe(pair)->counters.gpu_copies++;
    soft_helper_watch();
    flight->import = far->hold;
    if (flight->import != NULL) {
        soft_import_hold(flight->import);
    }
    return ANGARA_INPROGRESS;
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

static angara_status_t backend_atomic(ang_pair_t *pair, const ang_ref_t *ref,
                                      const ang_desc_t *desc, uint64_t *old)
{
    if (ref->kind == SOFT_REF_AGENT) {
        return soft_agent_atomic(soft_pair_peer(pair), ref->key, ref->offset, desc, old);
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
    soft_agent_withdraw(peer);
    soft_event_raise(pair_pe(pair), ANGARA_EVENT_FAULT, status, peer, key);
}

const ang_backend_t soft_backend = {
    .local        = backend_local,
    .remote       = backend_remote,
    .release      = backend_release,
    .copy         = backend_copy,
    .launch       = backend_launch,
    .landed       = backend_landed,
    .batch        = backend_batch,
    .atomic       = backend_atomic,
    .read_back    = backend_read_back,
    .marker_land  = backend_marker_land,
    .window_write = backend_window_write,
    .window_word  = backend_window_word,
    .window_wake  = backend_window_wake,
    .fault        = backend_fault,
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

angara_status_t soft_post(angara_peer_h peer, ang_desc_t *desc, const void *data)
{
    angara_status_t status = soft_pair_post(&soft_peer(peer)->pair, desc, data);

    soft_helper_wake_if_kicked();
    return status;
}

angara_status_t soft_post_batch(angara_peer_h peer, ang_desc_t *descs, unsigned count,
                                unsigned *posted_p)
{
    ang_engine_t   *engine = soft_peer(peer)->pair.engine;
    angara_status_t status;

    if (engine->chaos != NULL) {
        return ang_engine_post_batch(&soft_peer(peer)->pair, descs, count, posted_p);
    }
    ang_engine_lock(engine); /* the first one that is queued makes the queue a shared one */
    status = ang_engine_post_batch(&soft_peer(peer)->pair, descs, count, posted_p);
    ang_engine_unlock(engine);
    soft_helper_wake_if_kicked();
    return status;
}
