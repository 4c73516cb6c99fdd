/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Carrying out the requests that a PE's slots hold: see service.h. Called by the helper's thread,
 * or the owner's progress, with the helper's lock held (helper.c). Requests come from other
 * processes: everything is checked against the own table.
 */
#define _GNU_SOURCE
#include "gpu_mem.h"
#include "joint.h"
#include "stage.h"
#include "vm.h"

#include "engine/atomic.h"
#include "src/log.h"
#include "src/mutant.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Between a region of GPU memory, which the program may have freed, and staging memory. */
static angara_status_t gpu_copy(const soft_mr_entry_t *entry, uint64_t dst, uint64_t src,
                                size_t length)
{
    ang_gpu_mem_t   mem;
    angara_status_t status = soft_gpu_check(entry, &mem);

    return status == ANGARA_OK && length != 0 ? soft_gpu_copy(dst, src, length) : status;
}

static angara_status_t serve_atomic(const soft_request_t *request, uint64_t addr, uint64_t *old)
{
    ang_desc_t desc = {
        .atomic  = request->atomic,
        .width   = request->width,
        .operand = request->operand,
        .compare = request->compare,
    };

    return (addr & (request->width - 1u)) == 0 ? soft_guard_atomic(addr, &desc, old) :
                                                 ANGARA_ERR_BOUNDS;
}

/* The requester may copy what is in staging memory up to there. */
static void tell_filled(soft_pe_t *pe, soft_slot_t *slot, const char *end)
{
    __atomic_store_n(&slot->filled, (uint64_t)(end - soft_stage_of(pe, slot)), __ATOMIC_RELEASE);
}

/* The requester is told of each chunk of a long one: it copies those of a get at the same time, and
 * sees by those of a put that somebody is at it. */
static angara_status_t serve_copy(soft_pe_t *pe, soft_slot_t *slot, uint64_t addr, char *data,
                                  uint64_t length, int is_put)
{
    angara_status_t status;

    for (; length > SOFT_CHUNK; length -= SOFT_CHUNK) {
        status = soft_guard_copy(addr, data, SOFT_CHUNK, is_put);
        if (status != ANGARA_OK) {
            return status;
        }
        addr += SOFT_CHUNK;
        data += SOFT_CHUNK;
        tell_filled(pe, slot, data);
    }
    return soft_guard_copy(addr, data, length, is_put);
}

/* A put, get or atomic whose bytes are at `data`, in the slot or its staging memory. */
static angara_status_t serve_data(soft_pe_t *pe, soft_slot_t *slot, const soft_request_t *request,
                                  void *data, uint64_t *old)
{
    uint64_t        length = request->op == ANG_OP_ATOMIC ? request->width : request->length;
    int             is_put = request->op == ANG_OP_PUT;
    uint64_t        addr;
    angara_status_t status;

    const soft_mr_entry_t *entry;

    status = soft_mr_check(pe->dom->shared, pe->dom->mr_max, request->key, request->offset, length,
                           ang_op_right(request->op), &addr, &entry);
    if (status != ANGARA_OK) {
        return status;
    }
    if (request->op == ANG_OP_ATOMIC) {
        return serve_atomic(request, addr, old);
    }
    if (entry->kind != ANGARA_MEM_HOST) {
        return is_put ? gpu_copy(entry, addr, (uintptr_t)data, length) :
                        gpu_copy(entry, (uintptr_t)data, addr, length);
    }
    return serve_copy(pe, slot, addr, data, length, is_put);
}

/* A put or get that isn't in a batch may be of a large piece; soft_stage() says where. */
static int request_is_sane(const soft_request_t *request, uint32_t piece)
{
    switch (request->op) {
    case ANG_OP_PUT:
    case ANG_OP_GET:
        return request->by != SOFT_BY_SLOT ? request->by <= SOFT_BY_JOINT && request->length != 0 :
                                             request->length <= piece;
    case ANG_OP_ATOMIC:
        return request->by == SOFT_BY_SLOT && request->atomic < ANGARA_ATOMIC_LAST &&
               (request->width == 4 || request->width == 8);
    case ANG_OP_MARKER:
        return request->by == SOFT_BY_SLOT;
    case SOFT_OP_BATCH:
        return request->by == SOFT_BY_SLOT && request->length <= SOFT_STAGING &&
               request->compare % 64 == 0;
    default:
        return 0;
    }
}

/* Where the own end of a direct request is. */
static angara_status_t direct_end(soft_pe_t *pe, const soft_request_t *request, uint64_t length,
                                  soft_direct_t *op)
{
    const soft_mr_entry_t *entry;
    angara_status_t        status;

    status = soft_mr_check(pe->dom->shared, pe->dom->mr_max, request->key, request->offset, length,
                           ang_op_right(request->op), &op->addr, &entry);
    if (status == ANGARA_OK && entry->kind != ANGARA_MEM_HOST) {
        status = ANGARA_ERR_UNSUPPORTED;
    }
    op->length      = length;
    op->near_key    = request->near_key;
    op->near_offset = request->near_offset;
    return status;
}

/* What goes along with a direct request for `length` bytes: up to the first that is wrong.
 * @return how many */
static unsigned direct_run(soft_pe_t *pe, unsigned index, const soft_request_t *request,
                           uint64_t length, soft_direct_t *ops)
{
    const soft_request_t *items = (const void *)soft_stage_of(pe, &pe->service->slots[index]);
    unsigned              count = 0;
    soft_request_t        item; /* what is checked is this copy */

    if (soft_stage_commit(pe, index, SOFT_STAGING) != ANGARA_OK || request->compare >= SOFT_RUN ||
        length < request->length) {
        return 0;
    }
    for (; count < request->compare; ++count) {
        memcpy(&item, &items[count], sizeof(item));
        length += item.length;
        if (item.op != request->op || item.length == 0 || length > SOFT_RUN_BYTES ||
            direct_end(pe, &item, item.length, &ops[count]) != ANGARA_OK) {
            break;
        }
    }
    return count;
}

/* By a GPU of this process, between its own host memory and GPU memory of the requester. */
static angara_status_t serve_direct(soft_pe_t *pe, unsigned index, soft_request_t *request)
{
    const soft_slot_t *slot   = &pe->service->slots[index];
    uint64_t           owner  = __atomic_load_n(&slot->owner, __ATOMIC_ACQUIRE);
    uint64_t           state  = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
    uint64_t           length = request->length < SOFT_GPU_PIECE ? request->length : SOFT_GPU_PIECE;
    unsigned           count  = 1;
    soft_direct_t      ops[SOFT_RUN];
    angara_status_t    status;

    if (soft_state_phase(state) != SOFT_SERVING) {
        return ANGARA_ERR_UNSUPPORTED; /* abandoned: that may be the next one's number */
    }
    status = direct_end(pe, request, length, &ops[0]);
    if (status != ANGARA_OK) {
        return status;
    }
    count += direct_run(pe, index, request, length, &ops[1]);
    count            = soft_gpu_serve(request, owner, ops, count);
    request->operand = length;
    request->compare = count - 1;
    return count != 0 ? ANGARA_OK : ANGARA_ERR_UNSUPPORTED;
}

/* The operations of a batch, one after the other, up to the first that can't be performed. */
static angara_status_t serve_batch(soft_pe_t *pe, soft_slot_t *slot, const soft_request_t *request,
                                   uint64_t *count)
{
    char           *staging = soft_stage_of(pe, slot);
    uint32_t        at      = (uint32_t)request->compare; /* soft_stage() has looked at it */
    uint32_t        end     = at + request->length;
    uint32_t        told    = at;
    angara_status_t status  = ANGARA_OK;
    soft_request_t  item; /* what is checked is this copy */
    soft_request_t *there;

    memset(&item, 0, sizeof(item));
    while (at < end && status == ANGARA_OK) {
        there = (void *)(staging + at);
        if (end - at < SOFT_REQUEST_HEAD) {
            return ANGARA_ERR_INVALID;
        }
        memcpy(&item, there, SOFT_REQUEST_HEAD);
        if (item.op >= ANG_OP_MARKER || item.by != SOFT_BY_SLOT ||
            !request_is_sane(&item, SOFT_STAGING) || soft_item_end(at, &item) > end) {
            return ANGARA_ERR_INVALID;
        }
        status = serve_data(pe, slot, &item, soft_item_data(there, at, item.length),
                            &there->operand);
        at     = soft_item_end(at, &item);
        *count += status == ANGARA_OK;
        if (status == ANGARA_OK && at - told >= SOFT_CHUNK) {
            tell_filled(pe, slot, staging + at);
            told = at;
        }
    }
    return status;
}

/* How its bytes travel, only to look. */
static unsigned by_of(const soft_slot_t *slot)
{
    return slot->request.by == SOFT_BY_SLOT_BEHIND ? SOFT_BY_SLOT : slot->request.by;
}

/* The request as it is now: what is checked is this copy. @return is it behind the front? */
static int take(const soft_slot_t *slot, soft_request_t *request)
{
    int is_behind;

    memcpy(request, &slot->request, SOFT_REQUEST_HEAD);
    is_behind   = request->by == SOFT_BY_SLOT_BEHIND;
    request->by = is_behind ? SOFT_BY_SLOT : request->by;
    if (request->by != SOFT_BY_SLOT) { /* else it has no more */
        memcpy((char *)request + SOFT_REQUEST_HEAD,
               (const char *)&slot->request + SOFT_REQUEST_HEAD,
               sizeof(*request) - SOFT_REQUEST_HEAD);
    }
    return is_behind;
}

/* What an answer brings is in the request then. */
static angara_status_t perform(soft_pe_t *pe, unsigned index, soft_request_t *request)
{
    soft_slot_t    *slot  = &pe->service->slots[index];
    uint64_t        count = 0;
    char           *data;
    angara_status_t status;

    if (!request_is_sane(request, SOFT_LARGE_PIECE)) {
        return ANGARA_ERR_INVALID;
    }
    if (request->op == ANG_OP_MARKER) {
        return ANGARA_OK;
    }
    if (request->by == SOFT_BY_JOINT) {
        return soft_joint_serve(pe, slot, request);
    }
    if (request->by == SOFT_BY_DIRECT) {
        return serve_direct(pe, index, request);
    }
    if (request->op == ANG_OP_ATOMIC ||
        (request->op != SOFT_OP_BATCH && request->length - 1 < SOFT_SLOT_BYTES)) {
        return serve_data(pe, slot, request, soft_data_bytes(slot, request, request->length),
                          &request->operand);
    }
    status = soft_stage(pe, index, request, &data);
    if (status == ANGARA_OK && request->op != SOFT_OP_BATCH) {
        status = serve_data(pe, slot, request, data, &request->operand);
    } else if (status == ANGARA_OK) {
        status           = serve_batch(pe, slot, request, &count);
        request->operand = count;
    }
    return status;
}

/* The pipe of a requester that sleeps, told by its inode from what may have that number since. */
static int open_sleeper(const soft_slot_t *slot)
{
    uint64_t    owner = __atomic_load_n(&slot->owner, __ATOMIC_RELAXED);
    struct stat info;
    int         fd;

    fd = soft_open_of(soft_owner_pid(owner), slot->wake_fd, S_IFIFO, O_RDWR | O_NONBLOCK, &info);
    if (fd >= 0 && info.st_ino != slot->wake_inode) {
        close(fd);
        return -1;
    }
    if (fd < 0) { /* it looks again by itself, in a while */
        ang_debug("waking pid %d: %s", (int)soft_owner_pid(owner), strerror(errno));
    }
    return fd;
}

/* Give the answer, and wake its owner if that sleeps. From DONE on, the slot, or its front, whose
 * state `word` is, isn't ours. */
static void answer(const soft_slot_t *slot, uint64_t *word, uint64_t state)
{
    int looked = 0;
    int fd     = -1;

    do {
        if (soft_state_phase(state) == SOFT_ABANDONED) {
            __atomic_store_n(word, soft_state_to(state, SOFT_IDLE), __ATOMIC_RELEASE);
            break;
        }
        if ((state & SOFT_SLEEPS) && !looked) {
            fd     = open_sleeper(slot);
            looked = 1;
        }
    } while (!__atomic_compare_exchange_n(word, &state, soft_state_to(state, SOFT_DONE), 0,
                                          __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    if (fd >= 0) {
        if (write(fd, "", 1) < 0) {
            ang_debug("a sleeper's pipe is full"); /* then it wakes anyway */
        }
        close(fd);
    }
}

/* A piece of a joint request has been copied: let the owner, and the next turn, have it again. */
static void put_back(soft_service_t *service, unsigned index, uint64_t state)
{
    soft_slot_t *slot = &service->slots[index];

    while (!__atomic_compare_exchange_n(&slot->state, &state, soft_state_to(state, SOFT_POSTED), 0,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        if (soft_state_phase(state) == SOFT_ABANDONED) {
            __atomic_store_n(&slot->state, soft_state_to(state, SOFT_IDLE), __ATOMIC_RELEASE);
            return;
        }
    }
    __atomic_fetch_or(&service->posted[index / 64], 1ull << index % 64, __ATOMIC_SEQ_CST);
}

static int front_is_posted(const soft_slot_t *slot)
{
    return soft_state_phase(__atomic_load_n(&slot->front.state, __ATOMIC_SEQ_CST)) == SOFT_POSTED;
}

static int is_posted(const soft_slot_t *slot)
{
    return soft_state_phase(__atomic_load_n(&slot->state, __ATOMIC_SEQ_CST)) == SOFT_POSTED ||
           front_is_posted(slot);
}

/* POSTED becomes SERVING: one of those who look at the slot takes the request. `word`: the state of
 * the slot, or its front. */
static int claim(uint64_t *word, uint64_t *state)
{
    uint64_t to = soft_state_to(*state, SOFT_SERVING);

    if (ang_mutant("both_serve")) {
        usleep(20);
        __atomic_store_n(word, to, __ATOMIC_RELEASE);
        return 1;
    }
    return __atomic_compare_exchange_n(word, state, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Whose turn it is. */
typedef struct {
    int      by_owner;
    int      joins;   /* a piece of a joint copy may be copied yet */
    int      is_left; /* there is more to do, for another turn */
    unsigned served;
    uint64_t bytes; /* of these */
} turn_t;

/* When the program's progress has copied so much in a turn it leaves long ones to the next: so a
 * message is later by one piece, however many are asked for. */
#define OWNER_BYTES SOFT_SMALL_PIECE

static int has_copied(const turn_t *turn)
{
    return turn->by_owner && turn->bytes >= OWNER_BYTES;
}

/* Only a look. */
static int is_long(const soft_slot_t *slot)
{
    return by_of(slot) == SOFT_BY_SLOT && slot->request.length > OWNER_BYTES / 4;
}

/*
 * May this turn copy a piece? If it only came too early, another one may; where this process helps
 * nobody it needn't look again, nor stay awake: the requester needs no help.
 */
static int may_join(soft_pe_t *pe, turn_t *turn)
{
    int helps = !turn->by_owner || !soft_is_crowded(pe);

    turn->is_left |= !turn->joins && helps;
    return turn->joins && helps;
}

/* Requests in other slots until one of them is watched. */
#define WATCH_OTHERS 8

/* The owner's progress watches no slot from here on. */
static void unwatch(soft_pe_t *pe, turn_t *turn)
{
    soft_slot_t *slot = &pe->service->slots[pe->watched];

    __atomic_store_n(&slot->by_owner, SOFT_BY_OWNER, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (is_posted(slot)) {
        __atomic_fetch_or(&pe->service->posted[pe->watched / 64], 1ull << pe->watched % 64,
                          __ATOMIC_SEQ_CST);
        turn->is_left = 1;
    }
    pe->watched           = SOFT_SERVICE_SLOTS;
    pe->base.fast.watched = &ang_unasked;
    pe->base.fast.front   = &ang_unasked;
}

/*
 * The owner's progress serves a short request in that slot: shall it watch it? One whose requester
 * comes again before others do. @return the answer's SOFT_BY_...
 */
static uint32_t watch(soft_pe_t *pe, unsigned index, turn_t *turn)
{
    if (pe->watched != index && pe->watched < SOFT_SERVICE_SLOTS) {
        if (++pe->others < WATCH_OTHERS) {
            return SOFT_BY_OWNER;
        }
        unwatch(pe, turn);
    }
    pe->stay              = pe->watched == index ? pe->stay : 0;
    pe->watched           = index;
    pe->others            = 0;
    pe->base.fast.watched = &pe->service->slots[index].state;
    pe->base.fast.front   = &pe->service->slots[index].front.state;
    return SOFT_BY_WATCHER;
}

/* What is in the slot's front, before its request: always an atomic. */
static void serve_front(soft_pe_t *pe, unsigned index, turn_t *turn)
{
    soft_slot_t   *slot    = &pe->service->slots[index];
    soft_front_t  *front   = &slot->front;
    uint64_t       state   = __atomic_load_n(&front->state, __ATOMIC_ACQUIRE);
    soft_request_t request = {0}; /* what is checked is this copy */

    if (soft_state_phase(state) != SOFT_POSTED || !claim(&front->state, &state)) {
        return;
    }
    memcpy(&request, front->request, SOFT_REQUEST_HEAD);
    turn->served++;
    pe->asked++;
    front->status = request.op == ANG_OP_ATOMIC && request_is_sane(&request, 0) ?
                        serve_data(pe, slot, &request, NULL, &request.operand) :
                        ANGARA_ERR_INVALID;
    answer(slot, &front->state, soft_state_to(state, SOFT_SERVING));
}

/* May what is behind the front be performed? */
static angara_status_t front_status(const soft_front_t *front)
{
    uint64_t state  = __atomic_load_n(&front->state, __ATOMIC_ACQUIRE);
    int32_t  status = front->status;

    return soft_state_phase(state) == SOFT_DONE && status <= ANGARA_OK ? (angara_status_t)status :
                                                                         ANGARA_ERR_INVALID;
}

static void serve_one(soft_pe_t *pe, unsigned index, turn_t *turn)
{
    soft_slot_t    *slot   = &pe->service->slots[index];
    angara_status_t status = ANGARA_OK;
    soft_request_t  request;
    uint64_t        state;
    uint32_t        by;
    int             later;

    if (front_is_posted(slot)) {
        serve_front(pe, index, turn);
    }
    state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
    do {
        if (soft_state_phase(state) != SOFT_POSTED) {
            return; /* taken back */
        }
        if (by_of(slot) != SOFT_BY_SLOT && turn->by_owner && index == pe->watched) {
            unwatch(pe, turn); /* it isn't always to be served */
        }
        later = has_copied(turn) && is_long(slot);
        turn->is_left |= later;
        if (later || (by_of(slot) == SOFT_BY_JOINT && !may_join(pe, turn))) { /* a look */
            __atomic_fetch_or(&pe->service->posted[index / 64], 1ull << index % 64,
                              __ATOMIC_SEQ_CST);
            return;
        }
    } while (!claim(&slot->state, &state));
    state = soft_state_to(state, SOFT_SERVING);
    if (take(slot, &request)) { /* what its front holds may have come since */
        serve_front(pe, index, turn);
        status = front_status(&slot->front);
    }
    turn->joins = turn->joins && request.by != SOFT_BY_JOINT;
    turn->served++;
    turn->bytes += request.by == SOFT_BY_SLOT ? request.length : 0;
    pe->serve_next = has_copied(turn) ? (index + 1) % SOFT_SERVICE_SLOTS : pe->serve_next;
    pe->asked += request.by != SOFT_BY_JOINT;
    by = turn->by_owner ? SOFT_BY_OWNER : SOFT_BY_HELPER;
    if (turn->by_owner && request.by == SOFT_BY_SLOT) {
        by = watch(pe, index, turn);
    }
    __atomic_store_n(&slot->by_owner, by, __ATOMIC_RELAXED);
    if (status == ANGARA_OK) {
        status = perform(pe, index, &request);
    } else {
        request.operand = 0; /* of a batch: so many were performed */
    }
    slot->status = status;
    if (status == ANGARA_INPROGRESS) {
        turn->is_left = 1;
        put_back(pe->service, index, state);
        return;
    }
    if (request.by != SOFT_BY_JOINT) {
        slot->request.operand = request.operand;
        slot->request.compare = request.compare;
    }
    answer(slot, &slot->state, state);
}

/* How many requests of the watched slot a turn serves, and how long it looks for the next: some
 * half microsecond, in which a requester that waits for each answer comes back. */
#define STAY_REQUESTS 8
#define STAY_LOOKS    512

/*
 * Whether it stays is learnt: what the program waits for may have just been done, and it isn't
 * told meanwhile. Eight of nine stays must end with a request.
 */
#define STAY_GAIN 1  /* of one that does; */
#define STAY_LOSS 8  /* of one that doesn't. At most so much is gained in all, too */
#define STAY_REST 16 /* with a loss, so many requests count as a gain */

static int stays(soft_pe_t *pe)
{
    if (pe->stay < 0 && ++pe->stay_rest % STAY_REST == 0) {
        pe->stay += STAY_GAIN;
    }
    return pe->stay >= 0 && !ang_engine_is_shared(&pe->engine); /* own ones wait, too */
}

/*
 * Serve the watched slot, and stay for a moment: the next request doesn't cost another turn of
 * the program's progress. Whoever else waits is served first.
 */
static void serve_watched(soft_pe_t *pe, turn_t *turn)
{
    int stay = 0;

    for (unsigned i = 0; i < STAY_REQUESTS && !has_copied(turn) && pe->watched < SOFT_SERVICE_SLOTS;
         ++i) {
        const soft_slot_t *slot = &pe->service->slots[pe->watched];

        for (unsigned looks = stay ? STAY_LOOKS : 1; !is_posted(slot); --looks) {
            if (__atomic_load_n(&pe->service->work, __ATOMIC_RELAXED)) {
                return;
            }
            if (looks == 1) {
                pe->stay -= stay ? STAY_LOSS : 0;
                return;
            }
        }
        pe->stay += stay && pe->stay < STAY_LOSS ? STAY_GAIN : 0;
        serve_one(pe, pe->watched, turn);
        stay = stays(pe);
    }
}

/* All that were posted by now, from one slot on: of those that are left each is the first some
 * time. */
static void serve_posted(soft_pe_t *pe, turn_t *turn)
{
    const unsigned words = SOFT_SERVICE_SLOTS / 64, first = pe->serve_next;
    uint64_t       behind = ~0ull << first % 64;
    uint64_t       posted[SOFT_SERVICE_SLOTS / 64], bits;

    for (unsigned i = 0; i < words; ++i) {
        posted[i] = __atomic_load_n(&pe->service->posted[i], __ATOMIC_SEQ_CST);
        if (posted[i] != 0) {
            posted[i] = __atomic_exchange_n(&pe->service->posted[i], 0, __ATOMIC_SEQ_CST);
        }
    }
    for (unsigned i = 0; i <= words; ++i) {
        unsigned word = (first / 64 + i) % words;

        bits = posted[word] & (i == 0 ? behind : i == words ? ~behind : ~0ull);
        for (; bits != 0; bits &= bits - 1) {
            serve_one(pe, word * 64 + (unsigned)__builtin_ctzll(bits), turn);
        }
    }
}

unsigned soft_serve(soft_pe_t *pe, int by_owner, int joins)
{
    soft_service_t *service  = pe->service;
    uint32_t        serving  = SOFT_WORK_SERVED;
    uint32_t        none     = SOFT_WORK_NONE;
    turn_t          turn     = {.by_owner = by_owner, .joins = joins};
    int             is_first = by_owner && !pe->watched_waits;

    soft_catch_look();
    if (is_first) {
        serve_watched(pe, &turn);
    }
    pe->watched_waits = is_first && turn.bytes > OWNER_BYTES / 4; /* the others come first then */
    if (__atomic_load_n(&service->work, __ATOMIC_SEQ_CST)) {
        pe->asked += __atomic_exchange_n(&service->work, serving, __ATOMIC_SEQ_CST) ==
                     SOFT_WORK_CALLED;
        serve_posted(pe, &turn);
        __atomic_compare_exchange_n(&service->work, &serving, SOFT_WORK_NONE, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST);
    }
    if (by_owner && !is_first) {
        serve_watched(pe, &turn);
    } else if (!by_owner && pe->watched < SOFT_SERVICE_SLOTS) { /* the owner computes, perhaps */
        serve_front(pe, pe->watched, &turn);
    }
    if (turn.is_left) {
        __atomic_compare_exchange_n(&service->work, &none, SOFT_WORK_POSTED, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST);
    }
    return turn.served;
}
