/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short puts and gets, and atomics, that a peer's process is asked for (see agent.h): what an
 * initiator may not do itself (a get without loopback, an atomic on private memory, any access that
 * ptrace rules forbid), and what a process that polls does faster. Data travels in the slot, or
 * through its staging memory. Longer ones: agent_long.c.
 *
 * Batches: what is queued behind an operation goes along with it, in staging memory. While the
 * peer's process performs that batch, what is queued from then on is put into another one. When it
 * has answered, the next batch is posted at once, so that both processes work at the same time; the
 * results of the first are taken meanwhile, in order, as the engine comes to the operations
 * (soft_agent_owes()).
 *
 * Invariants
 *   - The queue begins with the operations of `batch` whose results haven't been taken; behind them
 *     are those of `ahead`. So the last one of either is in the queue as long as it is pointed to.
 *   - The request under way is that of `batch`, until that was answered, and all of it performed;
 *     then it may be that of `ahead`. So operations are performed in order, and one behind a failed
 *     one never is.
 *   - Whatever else ends the request forgets `ahead`: its operations are in the queue still.
 */
#define _GNU_SOURCE
#include "agent.h"
#include "way.h"

#include "engine/atomic.h"

#include <string.h>

/* Bytes of staging memory that a batch has at most. */
#define BATCH_BYTES (SOFT_STAGING / 2)
/* Shorter ones, and operations that are alone, stay where the last one was, near both processors.
 */
#define BATCH_STAYS 16384
/* So many bytes go one batch behind the other; then the way is chosen anew. */
#define RUN_MAX (1u << 20)
_Static_assert(SOFT_SHORT + SOFT_REQUEST_HEAD + 64 <= BATCH_BYTES, "any short one fits");

/* ---- batches --------------------------------------------------------------------------------- */

/*
 * The queued operation as part of a batch, if it goes this way; *src: bytes of a put. What is wrong
 * with it is told at its turn.
 */
static inline int make_item(soft_peer_t *peer, const ang_desc_t *desc, const void *data,
                            soft_request_t *item, const void **src)
{
    ang_ref_t near = ang_ref_host(NULL);

    if (ang_desc_check(desc) != ANGARA_OK || ang_op_right(desc->op) == 0 ||
        !soft_is_short(ang_desc_bytes(desc)) ||
        !(desc->op == ANG_OP_GET ? soft_way_is_host(&peer->pair, desc->lkey) :
                                   soft_way_near(&peer->pair, desc, data, &near))) {
        return 0;
    }
    /* The peer's process checks it, so no hazard is needed to look. */
    if (soft_way_may_map(&peer->remote, desc->rkey) ||
        !(peer->agent_distrust == 0 || soft_needs_agent(peer, ang_op_right(desc->op)))) {
        return 0;
    }
    soft_agent_head(desc, item);
    *src = (const void *)(uintptr_t)near.addr;
    return 1;
}

/* A new batch, in staging memory that the one whose results aren't taken yet leaves. */
static void batch_open(const soft_peer_t *peer, soft_batch_t *batch, const soft_batch_t *other)
{
    uint32_t staged = soft_agent_staged(peer, BATCH_BYTES);
    uint32_t place  = soft_agent_place(peer, staged, BATCH_BYTES, 64);
    uint32_t limit  = place + BATCH_BYTES;

    if (other != NULL && place < other->end && other->place < limit) { /* there is little of it */
        place = staged - other->end >= other->place ? (other->end + 63) / 64 * 64 : 0;
        limit = place != 0 ? staged : other->place;
        limit = limit < place + BATCH_BYTES ? limit : place + BATCH_BYTES;
    }
    *batch = (soft_batch_t){.place = place, .limit = limit, .end = place, .at = place};
}

/* The part of a request that all need. Field by field: words that have just been written in parts
 * are read with a delay. */
static inline void copy_head(soft_request_t *to, const soft_request_t *from)
{
    to->op      = from->op;
    to->atomic  = from->atomic;
    to->width   = from->width;
    to->by      = from->by;
    to->length  = from->length;
    to->key     = from->key;
    to->offset  = from->offset;
    to->operand = from->operand;
    to->compare = from->compare;
}

/* Put one more operation into the batch. @return 0: it doesn't fit. */
static inline int batch_add(soft_peer_t *peer, soft_batch_t *batch, const soft_request_t *item,
                            const void *src)
{
    uint32_t        at    = batch->end;
    uint32_t        end   = soft_item_end(at, item);
    soft_request_t *there = (void *)(soft_agent_staging(peer) + at);

    if (end > batch->limit) {
        return 0;
    }
    copy_head(there, item);
    if (item->op == ANG_OP_PUT) {
        memcpy(soft_item_data(there, at, item->length), src, item->length);
    }
    batch->has_other = batch->count == 0 ? !soft_needs_agent(peer, ang_op_right(item->op)) :
                                           batch->has_other;
    batch->end       = end;
    batch->count++;
    batch->bytes += item->length;
    return 1;
}

/* The batch has one more put or get: is it like what is timed? Else the time says nothing. */
static inline void batch_times(soft_paces_t *paces, int is_get, uint64_t length)
{
    if (paces->timed != NULL && !soft_paces_is_timed(paces, is_get, length)) {
        paces->timed = NULL;
    }
}

/* The same of a run, as far as its operations go this way and fit. @return how many */
static unsigned batch_add_run(soft_peer_t *peer, soft_batch_t *batch, ang_op_t op,
                              const ang_item_t *items, unsigned count)
{
    unsigned access  = ang_op_right(op);
    int      needs   = soft_needs_agent(peer, access);
    char    *staging = soft_agent_staging(peer);
    uint64_t far     = 0; /* the region seen last: as a rule they are the same */
    uint64_t near    = 0;
    uint32_t end;
    unsigned n = 0;

    if (!needs && peer->agent_distrust != 0) {
        return 0;
    }
    for (; n < count; ++n, batch->end = end) {
        const ang_item_t *item  = &items[n];
        uint32_t          at    = batch->end;
        soft_request_t   *there = (void *)(staging + at);
        uint64_t          src   = 0;

        if (ang_item_check(item) != ANGARA_OK || !soft_is_short(item->length) ||
            (end = soft_item_behind(at, (uint32_t)item->length)) > batch->limit ||
            (item->rkey != far && soft_way_may_map(&peer->remote, item->rkey)) ||
            (op == ANG_OP_PUT ?
                 !soft_way_host(&peer->pair, item->lkey, item->loffset, item->length, 0, &src) :
                 item->lkey != near && !soft_way_is_host(&peer->pair, item->lkey))) {
            break;
        }
        far  = item->rkey;
        near = item->lkey;
        copy_head(there, &(soft_request_t){.op     = (uint8_t)op,
                                           .length = (uint32_t)item->length,
                                           .key    = item->rkey,
                                           .offset = item->roffset});
        if (op == ANG_OP_PUT) {
            memcpy(soft_item_data(there, at, (uint32_t)item->length), (const void *)(uintptr_t)src,
                   item->length);
        }
        batch->bytes += item->length;
        batch_times(&peer->paces, op == ANG_OP_GET, item->length);
    }
    if (batch->count == 0) {
        batch->has_other = !needs;
    }
    batch->count += n;
    return n;
}

/* Put the operation behind *place into the batch. @return 0: it doesn't go this way, or fit. */
static int batch_add_next(soft_peer_t *peer, soft_batch_t *batch, ang_place_t *place)
{
    ang_desc_t     desc;
    const void    *data, *src;
    soft_request_t item;

    if (!ang_pair_next(&peer->pair, place, &desc, &data) ||
        !make_item(peer, &desc, data, &item, &src) || !batch_add(peer, batch, &item, src)) {
        return 0;
    }
    batch_times(&peer->paces, item.op == ANG_OP_GET, item.length);
    return 1;
}

/* Put what is queued behind `place` into the batch, too, as far as it fits. */
static void batch_fill(soft_peer_t *peer, soft_batch_t *batch, ang_place_t place)
{
    const ang_item_t *items;
    ang_place_t       next;
    ang_op_t          op;
    unsigned          count, added;

    do {
        count = ang_pair_next_run(&peer->pair, place, &next, &op, &items);
        if (count == 0) {
            added = count = 1;
            if (!batch_add_next(peer, batch, &place)) {
                return;
            }
        } else {
            added = batch_add_run(peer, batch, op, items, count);
            if (added == 0) {
                return;
            }
            place = (ang_place_t){next.entry, next.at + added - 1};
        }
        batch->last = place;
    } while (added == count);
}

static soft_request_t batch_request(soft_peer_t *peer, const soft_batch_t *batch)
{
    if (batch->end - batch->place >= BATCH_STAYS && (batch->count > 1 || batch == &peer->ahead)) {
        peer->agent_next = batch->end;
    }
    return (soft_request_t){
        .op = SOFT_OP_BATCH, .length = batch->end - batch->place, .compare = batch->place};
}

/* The peer's process may have the next batch, if there is one. */
static void ahead_post(soft_peer_t *peer)
{
    soft_request_t request;

    if (peer->ahead.count != 0) {
        request = batch_request(peer, &peer->ahead);
        soft_agent_post(peer, &request, peer->ahead.has_other);
        peer->ahead_is_posted = 1;
    }
}

void soft_agent_ahead(soft_peer_t *peer)
{
    const soft_batch_t *batch = &peer->batch;
    soft_batch_t       *ahead = &peer->ahead;
    ang_place_t         last  = ahead->count != 0 ? ahead->last : batch->last;

    if (!soft_agent_owes(peer) || peer->ahead_is_posted || batch->count == 0 ||
        (batch->received && batch->status != ANGARA_OK) || peer->run_bytes >= RUN_MAX ||
        soft_agent_staged(peer, 0) < SOFT_STAGING) {
        return;
    }
    /* That of one operation is the queue's first, if it is there yet. */
    if (last.entry == NULL && !ang_pair_next(&peer->pair, &last, NULL, NULL)) {
        return;
    }
    if (ahead->count == 0) {
        batch_open(peer, ahead, batch);
    }
    batch_fill(peer, ahead, last);
    if (batch->received && !batch->in_slot) { /* what is in the slot is to be taken first */
        ahead_post(peer);
    }
}

/* ---- requests and answers -------------------------------------------------------------------- */

/* The slot's request begins. */
static void short_begin(soft_peer_t *peer)
{
    peer->agent_is_short = 1;
    peer->agent_copied   = 0;
    peer->run_bytes      = 0;
}

/* An operation that is alone, in the slot if it has room there. With a request for nothing the
 * peer's process allocates the slot's staging memory. */
static soft_request_t alone_request(soft_peer_t *peer, const soft_request_t *item, const void *src)
{
    soft_batch_t  *batch = &peer->batch;
    soft_request_t request;

    if (item->length > SOFT_SLOT_BYTES) {
        batch_open(peer, batch, NULL);
        if (soft_agent_slot(peer)->staged) {
            batch_add(peer, batch, item, src);
        }
        return batch_request(peer, batch);
    }
    *batch  = (soft_batch_t){.in_slot = 1, .count = 1, .bytes = item->length};
    request = *item;
    if (item->op == ANG_OP_PUT) {
        memcpy(soft_data_bytes(soft_agent_slot(peer), &request, item->length), src, item->length);
    }
    return request;
}

/* Ask for the operation, and for what is queued behind it. */
static angara_status_t short_send(soft_peer_t *peer, const soft_request_t *item, const void *src,
                                  int others)
{
    soft_batch_t   *batch = &peer->batch;
    ang_place_t     first = {NULL, 0}, second;
    soft_request_t  request;
    uint64_t        since  = soft_paces_spend(&peer->paces);
    angara_status_t status = soft_agent_open(peer, 0);

    if (status != ANGARA_OK) {
        return status;
    }
    short_begin(peer);
    ang_pair_next(&peer->pair, &first, NULL, NULL);
    second = first;
    if (first.entry == NULL || !ang_pair_next(&peer->pair, &second, NULL, NULL)) {
        request = alone_request(peer, item, src); /* the queue's first is the one */
    } else {
        batch_open(peer, batch, NULL);
        if (soft_agent_slot(peer)->staged && batch_add(peer, batch, item, src)) {
            batch->last = first;
            batch_fill(peer, batch, first);
        }
        request = batch_request(peer, batch);
    }
    soft_paces_spent(&peer->paces, since);
    soft_agent_post(peer, &request, others);
    return ANGARA_INPROGRESS;
}

/* How far the peer's process has come, from its answer. */
static angara_status_t short_receive(soft_peer_t *peer)
{
    soft_batch_t   *batch  = &peer->batch;
    angara_status_t status = soft_agent_receive(peer, 0);
    uint64_t        count;

    if (status == ANGARA_INPROGRESS) {
        return status;
    }
    if (!soft_agent_answered(peer)) { /* there will be none */
        soft_agent_end(peer);
        return status;
    }
    count = batch->in_slot ? status == ANGARA_OK : soft_agent_slot(peer)->request.operand;
    if (count > batch->count || count < batch->taken ||
        (batch->count != 0 && (status == ANGARA_OK) != (count == batch->count))) {
        status = ANGARA_ERR_SYSTEM; /* garbage from the peer */
        count  = batch->taken;
    }
    batch->received  = 1;
    batch->performed = (unsigned)count;
    batch->status    = status;
    if (status != ANGARA_OK) {
        peer->ahead.count = 0;
    } else if (peer->pair.head != NULL) {
        soft_agent_ahead(peer);
    }
    return ANGARA_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

/* All results of the batch have been taken. A run is timed until there are enough bytes. */
static void batch_end(soft_peer_t *peer)
{
    if (!peer->ahead_is_posted) {
        ahead_post(peer);
    }
    peer->run_bytes += peer->batch.bytes;
    if (!peer->ahead_is_posted || peer->run_bytes >= SOFT_PACE_RUN) {
        soft_paces_end(&peer->paces, SOFT_PACE_ASKED, peer->run_bytes);
    }
    if (!peer->ahead_is_posted) {
        soft_agent_end(peer);
        return;
    }
    peer->batch           = peer->ahead;
    peer->ahead.count     = 0;
    peer->ahead_is_posted = 0;
}

/* The next one's result is there: take it. */
static inline void short_bring(soft_peer_t *peer, const soft_request_t *item, char *dst,
                               uint64_t *old)
{
    soft_batch_t   *batch  = &peer->batch;
    uint32_t        copied = peer->agent_copied;
    soft_slot_t    *slot   = soft_agent_slot(peer);
    soft_request_t *there  = batch->in_slot ? &slot->request :
                                              (void *)(soft_agent_staging(peer) + batch->at);
    char           *bytes;

    if (item->op == ANG_OP_ATOMIC) {
        *old = there->operand;
    } else if (item->op == ANG_OP_GET) {
        bytes = batch->in_slot ? soft_data_bytes(slot, there, item->length) :
                                 soft_item_data(there, batch->at, item->length);
        ang_cpu_copy(dst + copied, bytes + copied, item->length - copied);
    }
    batch->at          = soft_item_end(batch->at, item);
    peer->agent_copied = 0;
    batch->taken++;
}

/* Before the answer: take the next one's result, or what is there of it. The last one's end is the
 * answer. @return 1: taken */
static int short_take_early(soft_peer_t *peer, const soft_request_t *item, void *dst, uint64_t *old)
{
    const soft_batch_t *batch = &peer->batch;

    if (batch->in_slot || batch->count == 0) {
        return 0;
    }
    if (item->op == ANG_OP_GET && item->length > SOFT_HEAD_BYTES) {
        soft_agent_copy_early(peer, dst, soft_item_bytes(batch->at, item->length), item->length);
    }
    if (soft_agent_filled(peer) < soft_item_end(batch->at, item) ||
        batch->taken + 1 == batch->count) {
        return 0;
    }
    short_bring(peer, item, dst, old);
    return 1;
}

/* Take the result of the next one. */
static angara_status_t short_take(soft_peer_t *peer, const soft_request_t *item, void *dst,
                                  uint64_t *old)
{
    angara_status_t status = peer->batch.status;

    if (peer->batch.taken == peer->batch.performed) {
        soft_agent_end(peer);
        return status != ANGARA_OK ? status : ANGARA_ERR_SYSTEM; /* all were taken: garbage */
    }
    short_bring(peer, item, dst, old);
    if (peer->batch.taken == peer->batch.count) {
        batch_end(peer);
    }
    return ANGARA_OK;
}

angara_status_t soft_agent_short(soft_peer_t *peer, const soft_request_t *item, void *near,
                                 int others, uint64_t *old)
{
    angara_status_t status;

    if (peer->front.turn != 0) { /* it is the queue's first */
        status = soft_front_receive(peer);
        if (status != ANGARA_ERR_UNSUPPORTED) {
            return status;
        }
    }
    if (peer->agent >= 0 && !peer->batch.received) {
        soft_paces_begin(&peer->paces, 0);
        if (!soft_agent_answered(peer) && short_take_early(peer, item, near, old)) {
            return ANGARA_OK;
        }
        if (others && !soft_agent_answered(peer) && soft_agent_is_late(peer) &&
            soft_agent_take_back(peer)) {
            return ANGARA_ERR_UNSUPPORTED;
        }
        status = short_receive(peer);
        if (status == ANGARA_INPROGRESS) {
            soft_agent_ahead(peer);
        }
        if (status != ANGARA_OK) {
            return status;
        }
        if (peer->batch.count == 0) { /* there is staging memory now, or there will be none */
            soft_agent_end(peer);
            if (peer->batch.status != ANGARA_OK && others) {
                soft_agent_doubt(peer);
            } else if (peer->batch.status != ANGARA_OK) {
                return peer->batch.status;
            }
        }
    }
    if (peer->agent < 0) {
        if (others && peer->agent_distrust != 0) {
            return ANGARA_ERR_UNSUPPORTED;
        }
        status = short_send(peer, item, near, others);
        if (others && status == ANGARA_INPROGRESS && peer->agent < 0) { /* no slot is free */
            soft_agent_doubt(peer);
            peer->agent_since_ns  = 0; /* nobody waits for one */
            peer->agent_look_ns   = 0;
            peer->agent_waited_ns = 0;
            return ANGARA_ERR_UNSUPPORTED;
        }
        return status;
    }
    return short_take(peer, item, near, old);
}

int soft_agent_along(soft_peer_t *peer, const ang_desc_t *desc)
{
    const soft_batch_t *batch = &peer->batch;
    soft_request_t      item;
    ang_ref_t           near = ang_ref_host(NULL);
    uint64_t            old  = 0;

    if (!soft_agent_owes(peer) || batch->taken == 0 ||
        (batch->received && batch->taken == batch->performed) ||
        (desc->lkey != 0 && !soft_way_near(&peer->pair, desc, NULL, &near))) {
        return 0;
    }
    soft_agent_head(desc, &item);
    if (!batch->received) {
        if (!short_take_early(peer, &item, (void *)(uintptr_t)near.addr, &old)) {
            return 0;
        }
    } else {
        short_take(peer, &item, (void *)(uintptr_t)near.addr, &old);
    }
    soft_way_store_old(desc, &near, old);
    return 1;
}

unsigned soft_agent_along_run(soft_peer_t *peer, ang_op_t op, const ang_item_t *items,
                              unsigned count, uint64_t *budget)
{
    soft_batch_t *batch  = &peer->batch;
    uint32_t      copied = peer->agent_copied;
    uint64_t      filled = UINT64_MAX;
    uint64_t      near   = 0; /* the region seen last */
    unsigned      n      = 0;
    const char   *staging;
    unsigned      ready;
    uint64_t      dst;

    if (!soft_agent_owes(peer) || batch->in_slot || batch->taken == 0) {
        return 0;
    }
    staging = soft_agent_staging(peer);
    ready   = batch->performed;
    if (!batch->received) { /* the last one's end is the answer */
        ready  = batch->count - 1;
        filled = soft_agent_filled(peer);
    }
    for (; n < count && batch->taken < ready; ++n, ++batch->taken) {
        const ang_item_t *item   = &items[n];
        uint32_t          length = (uint32_t)item->length;
        uint32_t          end    = soft_item_behind(batch->at, length);

        if (item->length > *budget || end > filled ||
            (op == ANG_OP_GET ? !soft_way_host(&peer->pair, item->lkey, item->loffset, item->length,
                                               ANGARA_ACCESS_LOCAL_WRITE, &dst) :
                                item->lkey != near && !soft_way_is_host(&peer->pair, item->lkey))) {
            break;
        }
        near = item->lkey;
        if (op == ANG_OP_GET) {
            const char *bytes = soft_item_data((void *)(uintptr_t)(staging + batch->at), batch->at,
                                               length);

            ang_cpu_copy((void *)(uintptr_t)(dst + copied), bytes + copied, length - copied);
        }
        copied    = 0;
        batch->at = end;
        *budget -= length;
    }
    peer->agent_copied = copied;
    if (batch->received && batch->taken == batch->count) {
        batch_end(peer);
    }
    return n;
}

/* ---- within the call ------------------------------------------------------------------------- */

#define VAIN_MAX 255u /* tries that are left out at most */

/* It was waited for in vain: leave out some tries, twice as many each time. */
static void now_in_vain(soft_peer_t *peer)
{
    peer->now_vain = peer->now_vain < VAIN_MAX ? 2 * peer->now_vain + 1 : VAIN_MAX;
    peer->now_skip = peer->now_vain;
}

/* Look for the answer as long as the peer's process is seen to work; what is there of a get is
 * copied meanwhile. @return 1: it is there */
static int now_await(soft_peer_t *peer, const soft_request_t *item, void *near)
{
    int      is_staged = !peer->batch.in_slot;
    int      is_get    = item->op == ANG_OP_GET && is_staged;
    uint32_t place     = soft_item_bytes(peer->batch.place, item->length);
    uint32_t end       = soft_item_end(peer->batch.place, item);
    uint64_t seen, filled = 0;

    do {
        seen = filled;
        soft_agent_look(peer, is_staged ? seen : UINT64_MAX);
        if (soft_agent_answered(peer)) {
            return 1;
        }
        if (is_get) {
            soft_agent_copy_early(peer, near, place, item->length);
        }
        filled = soft_agent_filled(peer);
    } while (is_staged && filled > seen && filled <= end);
    return soft_agent_answered(peer);
}

int soft_agent_may_now(soft_peer_t *peer, uint64_t key, int others)
{
    return peer->agent < 0 && peer->agent_distrust == 0 && (others || peer->agent_has_called) &&
           !peer->remote.same_process && !soft_agent_sleeps(peer) &&
           !angara_pe_is_asked(peer->base.pe) && !soft_way_may_map(&peer->remote, key);
}

/* The look for the answer is over. Without one nobody knows when the program looks for it again.
 * @return 1: it is there, and so is that to what the front held. */
static int now_ends(soft_peer_t *peer, int is_answered, int others)
{
    if (!is_answered) {
        now_in_vain(peer);
        peer->paces.timed = NULL;
        if (!others || !soft_agent_take_back(peer)) {
            soft_agent_since(peer);
        }
        return 0;
    }
    peer->now_vain = 0;
    return !soft_front_is_out(peer) || soft_front_end(peer);
}

int soft_agent_now(soft_peer_t *peer, const soft_request_t *item, void *near)
{
    unsigned       access = ang_op_right(item->op);
    int            others = !soft_needs_agent(peer, access);
    soft_request_t request;
    uint64_t       since;

    if (peer->now_skip != 0) {
        peer->now_skip--;
        return 0;
    }
    if (!soft_agent_may_now(peer, item->key, others) ||
        (item->length > SOFT_SLOT_BYTES && !soft_agent_is_staged(peer)) ||
        !soft_way_single_is_asked(peer, access, item->key, item->length)) {
        return 0;
    }
    since = soft_paces_spend(&peer->paces);
    if (!soft_agent_try_open(peer)) {
        soft_paces_drop(&peer->paces);
        return 0;
    }
    short_begin(peer);
    request = alone_request(peer, item, near);
    soft_paces_spent(&peer->paces, since);
    soft_agent_post_now(peer, &request, others);
    soft_paces_begin(&peer->paces, 0);
    if (!now_ends(peer, now_await(peer, item, near), others) || short_receive(peer) != ANGARA_OK) {
        return 0; /* it isn't there, or what is before it has failed, or it has */
    }
    if (peer->batch.count == 0) { /* another slot than the last one: it has staging memory now */
        soft_agent_end(peer);
        return 0;
    }
    return peer->batch.performed != 0 && short_take(peer, item, near, NULL) == ANGARA_OK;
}

/* As soft_agent_now(), without what only bytes need: its request is written where it belongs, and
 * all that it brings is a word. */
int soft_agent_now_atomic(soft_peer_t *peer, const ang_desc_t *desc, void *result)
{
    soft_slot_t *slot;
    uint64_t     old;

    if (peer->now_skip != 0) {
        peer->now_skip--;
        return 0;
    }
    if (!soft_agent_may_now(peer, desc->rkey, 0) || !soft_agent_try_open(peer)) {
        return 0;
    }
    short_begin(peer);
    peer->batch       = (soft_batch_t){.in_slot = 1, .count = 1};
    peer->paces.timed = NULL;
    slot              = soft_agent_slot(peer);
    soft_agent_head(desc, &slot->request);
    soft_agent_post_written(peer, SOFT_BY_SLOT, 0, 0);
    soft_agent_look(peer, UINT64_MAX);
    if (!now_ends(peer, soft_agent_answered(peer), 0) || short_receive(peer) != ANGARA_OK ||
        peer->batch.performed == 0) {
        return 0;
    }
    old = slot->request.operand;
    soft_agent_end(peer);
    if (result != NULL) {
        ang_cpu_copy(result, &old, desc->width);
    }
    return 1;
}
