/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a peer's process is asked to do (see agent.h): what an initiator may not do itself (a get
 * without loopback, an atomic on private memory, any access that ptrace rules forbid), and what a
 * process that polls does faster. Data travels in the slot, or through its staging memory.
 *
 * Batches: while a request is under way the pair's next operations queue up. The next request then
 * takes along all at the head of the queue that go this way. They are performed in order; their
 * results are taken, one by one, as the engine comes to each of them (soft_agent_owes()).
 */
#define _GNU_SOURCE
#include "agent.h"
#include "gpu_mem.h"
#include "way.h"

#include "engine/atomic.h"
#include "src/clock.h"

#include <string.h>

/* Between staging memory and the own end, which is of that kind. */
static angara_status_t move(void *dst, const void *src, size_t length, unsigned kind)
{
    if (kind == SOFT_REF_GPU) {
        return soft_gpu_copy((uintptr_t)dst, (uintptr_t)src, length);
    }
    ang_cpu_copy(dst, src, length);
    return ANGARA_OK;
}

/* ---- short ones ------------------------------------------------------------------------------ */

/*
 * The queued operation as part of a batch, if it goes this way; *src: bytes of a put. What is wrong
 * with it is told at its turn.
 */
static int make_item(soft_peer_t *peer, const ang_desc_t *desc, const void *data,
                     soft_request_t *item, const void **src)
{
    uint64_t  length = ang_desc_bytes(desc);
    ang_ref_t near;

    if (ang_desc_check(desc) != ANGARA_OK || ang_op_right(desc->op) == 0 ||
        !soft_is_short(length) || !soft_way_near(&peer->pair, desc, data, &near)) {
        return 0;
    }
    /* The peer's process checks it, so no hazard is needed to look. */
    if (soft_way_may_map(&peer->remote, desc->rkey) ||
        !(soft_needs_agent(peer, ang_op_right(desc->op)) || peer->agent_distrust == 0)) {
        return 0;
    }
    *item = soft_agent_item(desc);
    *src  = (const void *)(uintptr_t)near.addr;
    return 1;
}

/* Put one more operation into the batch. @return 0: it doesn't fit. */
static int batch_add(soft_peer_t *peer, soft_request_t *batch, const soft_request_t *item,
                     const void *src)
{
    uint32_t        at    = batch->length;
    uint32_t        end   = soft_item_end(at, item);
    soft_request_t *there = (void *)(soft_agent_staging(peer) + at);

    if (end > SOFT_STAGING) {
        return 0;
    }
    memcpy(there, item, SOFT_REQUEST_HEAD);
    if (item->op == ANG_OP_PUT) {
        memcpy(soft_item_data(there, at, item->length), src, item->length);
    }
    batch->length = end;
    peer->agent_batch++;
    peer->agent_bytes += item->length;
    return 1;
}

/*
 * A batch: the operation, and what is queued behind it. With a request for nothing the peer's
 * process allocates the slot's staging memory.
 */
static void batch_fill(soft_peer_t *peer, soft_request_t *batch, const soft_request_t *item,
                       const void *src, const ang_entry_t *entry)
{
    const ang_desc_t *desc;
    const void       *data;
    soft_request_t    next;

    *batch = (soft_request_t){.op = SOFT_OP_BATCH};
    if (!soft_agent_slot(peer)->staged || !batch_add(peer, batch, item, src)) {
        return;
    }
    while (entry != NULL && (entry = ang_pair_queued(&peer->pair, entry, &desc, &data)) != NULL &&
           make_item(peer, desc, data, &next, &src) && batch_add(peer, batch, &next, src)) {
        if (next.op != item->op || soft_pace_class(next.length) != soft_pace_class(item->length)) {
            peer->paces.timed = NULL; /* it says nothing about either */
        }
    }
}

static angara_status_t short_send(soft_peer_t *peer, const soft_request_t *item, const void *src,
                                  int others)
{
    const ang_entry_t *first   = ang_pair_queued(&peer->pair, NULL, NULL, NULL);
    soft_request_t     request = *item;
    uint64_t           since   = soft_paces_spend(&peer->paces);
    angara_status_t    status  = soft_agent_open(peer, 0);

    if (status != ANGARA_OK) {
        return status;
    }
    peer->agent_is_short = 1;
    peer->agent_batch    = 0;
    peer->agent_bytes    = 0;
    peer->agent_taken    = 0;
    peer->agent_at       = 0;
    peer->agent_received = 0;
    peer->agent_copied   = 0;
    if (item->length > SOFT_SLOT_BYTES ||
        (first != NULL && ang_pair_queued(&peer->pair, first, NULL, NULL) != NULL)) {
        batch_fill(peer, &request, item, src, first);
    } else {
        peer->agent_batch = 1;
        if (item->op == ANG_OP_PUT) {
            memcpy(soft_request_bytes(&request), src, item->length);
        }
    }
    peer->agent_in_slot = request.op != SOFT_OP_BATCH;
    soft_paces_spent(&peer->paces, since);
    soft_agent_post(peer, &request, others);
    return ANGARA_INPROGRESS;
}

/* No slot was free, and nobody waits for one. */
static void short_unsent(soft_peer_t *peer)
{
    peer->agent_since_ns  = 0;
    peer->agent_look_ns   = 0;
    peer->agent_waited_ns = 0;
}

/* How far the peer's process has come, from its answer. */
static angara_status_t short_receive(soft_peer_t *peer)
{
    angara_status_t status = soft_agent_receive(peer, 0);
    uint64_t        count;

    if (status == ANGARA_INPROGRESS) {
        return status;
    }
    if (!soft_agent_answered(peer)) { /* there will be none */
        soft_agent_end(peer);
        return status;
    }
    count = peer->agent_in_slot ? status == ANGARA_OK : soft_agent_slot(peer)->request.operand;
    if (count > peer->agent_batch || count < peer->agent_taken ||
        (peer->agent_batch != 0 && (status == ANGARA_OK) != (count == peer->agent_batch))) {
        status = ANGARA_ERR_SYSTEM; /* garbage from the peer */
        count  = peer->agent_taken;
    }
    peer->agent_received  = 1;
    peer->agent_performed = (unsigned)count;
    peer->agent_status    = status;
    return ANGARA_OK;
}

static uint64_t filled(const soft_peer_t *peer)
{
    return __atomic_load_n(&soft_agent_slot(peer)->filled, __ATOMIC_ACQUIRE);
}

/*
 * Before the answer: copy what the peer's process says is there of a get, whose bytes lie in
 * staging memory from `place` on. So both processes copy at the same time.
 */
static void copy_early(soft_peer_t *peer, char *dst, uint32_t place, uint32_t length)
{
    uint64_t there  = filled(peer);
    uint32_t copied = peer->agent_copied;

    if (there > place + copied) {
        there -= place;
        there = there < length ? there : length;
        memcpy(dst + copied, soft_agent_staging(peer) + place + copied, there - copied);
        peer->agent_copied = (uint32_t)there;
    }
}

/* The next one's result is there: take it. */
static void short_bring(soft_peer_t *peer, const soft_request_t *item, char *dst, uint64_t *old)
{
    uint32_t        at     = peer->agent_at;
    uint32_t        copied = peer->agent_copied;
    soft_request_t *there  = peer->agent_in_slot ? &soft_agent_slot(peer)->request :
                                                   (void *)(soft_agent_staging(peer) + at);

    if (item->op == ANG_OP_ATOMIC) {
        *old = there->operand;
    } else if (item->op == ANG_OP_GET) {
        ang_cpu_copy(dst + copied, (char *)soft_item_data(there, at, item->length) + copied,
                     item->length - copied);
    }
    peer->agent_at     = soft_item_end(at, item);
    peer->agent_copied = 0;
    peer->agent_taken++;
}

/* Before the answer: take the next one's result, or what is there of it. The last one's end is the
 * answer. @return 1: taken */
static int short_take_early(soft_peer_t *peer, const soft_request_t *item, void *dst, uint64_t *old)
{
    uint32_t at = peer->agent_at;

    if (peer->agent_in_slot || peer->agent_batch == 0) {
        return 0;
    }
    if (item->op == ANG_OP_GET && item->length > SOFT_SLOT_BYTES) {
        copy_early(peer, dst, soft_item_bytes(at, item->length), item->length);
    }
    if (filled(peer) < soft_item_end(at, item) || peer->agent_taken + 1 == peer->agent_batch) {
        return 0;
    }
    short_bring(peer, item, dst, old);
    return 1;
}

/* Take the result of the next one. */
static angara_status_t short_take(soft_peer_t *peer, const soft_request_t *item, void *dst,
                                  uint64_t *old)
{
    angara_status_t status = peer->agent_status;

    if (peer->agent_taken == peer->agent_performed) {
        soft_agent_end(peer);
        return status != ANGARA_OK ? status : ANGARA_ERR_SYSTEM; /* all were taken: garbage */
    }
    short_bring(peer, item, dst, old);
    if (peer->agent_taken == peer->agent_batch) {
        soft_agent_end(peer);
        soft_paces_end(&peer->paces, SOFT_PACE_ASKED, peer->agent_bytes);
    }
    return ANGARA_OK;
}

angara_status_t soft_agent_short(soft_peer_t *peer, const soft_request_t *item, void *near,
                                 int others, uint64_t *old)
{
    angara_status_t status;

    if (peer->agent >= 0 && !peer->agent_received) {
        soft_paces_begin(&peer->paces, 0);
        if (!soft_agent_answered(peer) && short_take_early(peer, item, near, old)) {
            return ANGARA_OK;
        }
        if (others && !soft_agent_answered(peer) && soft_agent_is_late(peer) &&
            soft_agent_take_back(peer)) {
            return ANGARA_ERR_UNSUPPORTED;
        }
        status = short_receive(peer);
        if (status != ANGARA_OK) {
            return status;
        }
        if (peer->agent_batch == 0) { /* there is staging memory now, or there will be none */
            soft_agent_end(peer);
            if (peer->agent_status != ANGARA_OK && others) {
                soft_agent_doubt(peer);
            } else if (peer->agent_status != ANGARA_OK) {
                return peer->agent_status;
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
            short_unsent(peer);
            return ANGARA_ERR_UNSUPPORTED;
        }
        return status;
    }
    return short_take(peer, item, near, old);
}

int soft_agent_along(soft_peer_t *peer, const ang_desc_t *desc)
{
    soft_request_t item;
    ang_ref_t      near;
    uint64_t       old = 0;

    if (peer->agent < 0 || !peer->agent_is_short || peer->agent_taken == 0 ||
        (peer->agent_received && peer->agent_taken == peer->agent_performed) ||
        !soft_way_near(&peer->pair, desc, NULL, &near)) {
        return 0;
    }
    item = soft_agent_item(desc);
    if (!peer->agent_received) {
        if (!short_take_early(peer, &item, (void *)(uintptr_t)near.addr, &old)) {
            return 0;
        }
    } else {
        short_take(peer, &item, (void *)(uintptr_t)near.addr, &old);
    }
    soft_way_store_old(desc, &near, old);
    return 1;
}

#define VAIN_MAX 255u /* tries that are left out at most */

/* It was waited for in vain: leave out some tries, twice as many each time. */
static void now_in_vain(soft_peer_t *peer)
{
    peer->now_vain = peer->now_vain < VAIN_MAX ? 2 * peer->now_vain + 1 : VAIN_MAX;
    peer->now_skip = peer->now_vain;
}

int soft_agent_now(soft_peer_t *peer, const soft_request_t *item, void *near, uint64_t *old)
{
    int others = !soft_needs_agent(peer, ang_op_right(item->op));

    if (peer->now_skip != 0) {
        peer->now_skip--;
        return 0;
    }
    if (peer->agent >= 0 || peer->agent_distrust != 0 || (!others && !peer->agent_has_called) ||
        peer->remote.same_process || soft_agent_sleeps(peer) || angara_pe_is_asked(peer->base.pe) ||
        soft_way_may_map(&peer->remote, item->key) ||
        (item->length > SOFT_SLOT_BYTES && !soft_agent_is_staged(peer))) {
        return 0;
    }
    short_send(peer, item, near, others);
    if (peer->agent < 0) {
        short_unsent(peer);
        return 0;
    }
    if (!soft_agent_is_soon(peer)) {
        now_in_vain(peer);
        if (others) {
            soft_agent_take_back(peer);
        }
        return 0;
    }
    peer->now_vain = 0;
    if (short_receive(peer) != ANGARA_OK) {
        return 0;
    }
    if (peer->agent_batch == 0) { /* another slot than the last one: it has staging memory now */
        soft_agent_end(peer);
        return 0;
    }
    return peer->agent_performed != 0 && short_take(peer, item, near, old) == ANGARA_OK;
}

/* ---- long ones, in pieces -------------------------------------------------------------------- */

/*
 * Bytes of a piece of host memory. While the peer's process copies one, the next one of a put is
 * copied into the other half of the staging memory; of a get nearly all of the last one has been
 * copied by the time that the next one begins.
 */
#define PUT_PIECE 32768u
#define GET_PIECE 65536u
_Static_assert(2 * PUT_PIECE <= SOFT_STAGING && 2 * GET_PIECE <= SOFT_STAGING, "two fit");

/* Two large pieces of GPU memory go by turns, if the slot has room for them. */
static int wants_large(const soft_peer_t *peer, const ang_ref_t *far)
{
    return far->kind == SOFT_REF_STAGED && !peer->has_no_large;
}

static int has_large(const soft_peer_t *peer, const ang_ref_t *far)
{
    return wants_large(peer, far) && peer->agent < SOFT_LARGE_SLOTS;
}

/* Where the second one of two places for pieces is; 0: there is one. */
static uint32_t second_place(const soft_peer_t *peer, const ang_ref_t *far)
{
    return has_large(peer, far)         ? SOFT_LARGE_PIECE :
           far->kind != SOFT_REF_STAGED ? SOFT_STAGING / 2 :
                                          0;
}

/*
 * The peer's process has no memory for large pieces, or for something else that it needs for them.
 * @return 1: ask for the same again, in small ones
 */
static int goes_small(soft_peer_t *peer, const ang_ref_t *far, angara_status_t status)
{
    if (status != ANGARA_ERR_NO_MEMORY || !has_large(peer, far)) {
        return 0;
    }
    peer->has_no_large = 1;
    return 1;
}

static uint32_t piece_length(const soft_peer_t *peer, ang_op_t op, const ang_ref_t *far,
                             uint64_t left)
{
    uint32_t most = has_large(peer, far)         ? SOFT_LARGE_PIECE :
                    far->kind == SOFT_REF_STAGED ? SOFT_SMALL_PIECE :
                    op == ANG_OP_PUT             ? PUT_PIECE :
                                                   GET_PIECE;

    return left < most ? (uint32_t)left : most;
}

/* Staging memory for a piece of that length, which is copied between it and the own end. */
static char *staging_for(soft_peer_t *peer, uint32_t length, const ang_ref_t *near)
{
    char *staging = soft_agent_staging(peer);

    if (near->kind != SOFT_REF_GPU || length <= SOFT_SMALL_PIECE) {
        return staging;
    }
    if (peer->pinned_slot != peer->agent) {
        soft_unpin(&peer->pinned);
        peer->pinned_slot = peer->agent;
    }
    return soft_pinned(&peer->pinned, staging, soft_staging_size((unsigned)peer->agent),
                       near->addr);
}

/* Where the bytes of the one that is lie: in the slot, which the next request changes, or behind
 * it. */
static char *piece_bytes(soft_peer_t *peer, const ang_ref_t *near)
{
    return peer->agent_length <= SOFT_SLOT_BYTES ?
               soft_request_bytes(&soft_agent_slot(peer)->request) :
               staging_for(peer, peer->agent_length, near) + peer->agent_place;
}

/* Ask for a piece; short bytes of a put are in `bytes`. The slot is ours. */
static void piece_post(soft_peer_t *peer, ang_op_t op, const ang_ref_t *far, uint64_t at,
                       uint32_t length, uint32_t place, const void *bytes)
{
    soft_request_t request = {
        .op = (uint8_t)op, .length = length, .key = far->key, .offset = far->offset + at};

    if (length - 1 >= SOFT_SLOT_BYTES) {
        request.compare = place;
    } else if (bytes != NULL) {
        memcpy(soft_request_bytes(&request), bytes, length);
    }
    peer->agent_place  = place;
    peer->agent_copied = 0;
    soft_agent_post(peer, &request, far->kind == SOFT_REF_POLLED);
}

/*
 * Put the bytes of a put where its request takes them from: `word`, if they are few. @return 0 with
 * ANGARA_OK: there is no staging memory yet
 */
static uint32_t piece_stage(soft_peer_t *peer, const ang_ref_t *src, uint64_t at, uint32_t length,
                            uint32_t place, void *word, angara_status_t *status)
{
    *status = ANGARA_OK;
    if (length > SOFT_SLOT_BYTES &&
        __atomic_load_n(&soft_agent_slot(peer)->staged, __ATOMIC_RELAXED) < place + length) {
        return 0;
    }
    *status = move(length <= SOFT_SLOT_BYTES ? word : staging_for(peer, length, src) + place,
                   (const void *)(uintptr_t)(src->addr + at), length, src->kind);
    return *status == ANGARA_OK ? length : 0;
}

/* Have a slot. ANGARA_ERR_UNSUPPORTED: there is none now, and there is another way. */
static angara_status_t piece_open(soft_peer_t *peer, const ang_ref_t *far)
{
    if (far->kind != SOFT_REF_POLLED) {
        return soft_agent_open(peer, wants_large(peer, far));
    }
    if (!soft_agent_try_open(peer)) {
        soft_agent_doubt(peer);
        return ANGARA_ERR_UNSUPPORTED;
    }
    return ANGARA_OK;
}

/* The peer doesn't poll, and there is another way: has the request been taken back? */
static int piece_taken_back(soft_peer_t *peer, const ang_ref_t *far)
{
    return far->kind == SOFT_REF_POLLED && !soft_agent_answered(peer) && soft_agent_is_late(peer) &&
           soft_agent_take_back(peer);
}

/* The answer to a piece is an error: is there another way? The slot has been given back then. */
static int piece_refused(soft_peer_t *peer, const ang_ref_t *far, angara_status_t status)
{
    if (far->kind != SOFT_REF_POLLED || status != ANGARA_ERR_NO_MEMORY) {
        return 0;
    }
    soft_agent_end(peer);
    soft_agent_doubt(peer);
    return 1;
}

static angara_status_t out_first(soft_peer_t *peer, const ang_ref_t *dst, const ang_ref_t *src,
                                 uint64_t end, uint64_t *done)
{
    angara_status_t status = piece_open(peer, dst);
    char            word[SOFT_SLOT_BYTES];
    uint32_t        length, staged;
    uint64_t        since;

    if (status != ANGARA_OK) {
        return status;
    }
    length = piece_length(peer, ANG_OP_PUT, dst, end - *done);
    since  = soft_paces_spend(&peer->paces);
    staged = piece_stage(peer, src, *done, length, 0, word, &status);
    soft_paces_spent(&peer->paces, since);
    if (status != ANGARA_OK) {
        soft_agent_end(peer);
        return status;
    }
    /* An empty one brings staging memory; its place tells how much. */
    piece_post(peer, ANG_OP_PUT, dst, *done, staged,
               staged == 0 && length > SOFT_SMALL_PIECE ? 2 * SOFT_LARGE_PIECE : 0, word);
    *done += staged; /* counted when it is staged: that is what takes time here */
    return ANGARA_INPROGRESS;
}

/* While the peer's process copies a piece. Short ones have no place of their own. */
static angara_status_t out_ahead(soft_peer_t *peer, const ang_ref_t *dst, const ang_ref_t *src,
                                 uint64_t end, uint64_t done)
{
    uint32_t        second = second_place(peer, dst);
    uint32_t        length = piece_length(peer, ANG_OP_PUT, dst, end - done);
    angara_status_t status = ANGARA_OK;

    if (peer->agent_ahead == 0 && second != 0 && length > SOFT_SLOT_BYTES &&
        peer->agent_place <= second) {
        peer->agent_ahead = piece_stage(peer, src, done, length, second - peer->agent_place, NULL,
                                        &status);
    }
    return status;
}

angara_status_t soft_agent_copy_out(soft_peer_t *peer, const ang_ref_t *dst, const ang_ref_t *src,
                                    uint64_t end, uint64_t *done)
{
    angara_status_t status = ANGARA_OK;
    uint32_t        ahead;
    int             is_small = 0;

    if (peer->agent >= 0) {
        soft_paces_begin(&peer->paces, *done - peer->agent_length);
        status = *done < end ? out_ahead(peer, dst, src, end, *done) : ANGARA_OK;
        if (status == ANGARA_OK) {
            if (piece_taken_back(peer, dst)) {
                *done -= peer->agent_length;
                return ANGARA_ERR_UNSUPPORTED;
            }
            status   = soft_agent_receive(peer, 0);
            is_small = goes_small(peer, dst, status);
        }
        if (status == ANGARA_INPROGRESS) {
            return status;
        }
        if (piece_refused(peer, dst, status)) {
            *done -= peer->agent_length;
            return ANGARA_ERR_UNSUPPORTED;
        }
        ahead = peer->agent_ahead;
        if (status == ANGARA_OK && ahead != 0) {
            if (ahead > end - *done) {
                return ANGARA_INPROGRESS; /* staged by a turn that had more bytes left */
            }
            piece_post(peer, ANG_OP_PUT, dst, *done, ahead,
                       second_place(peer, dst) - peer->agent_place, NULL);
            peer->agent_ahead = 0;
            *done += ahead;
            return ANGARA_INPROGRESS;
        }
        *done -= status != ANGARA_OK ? peer->agent_length : 0;
        soft_agent_end(peer);
        if (status != ANGARA_OK && !is_small) {
            return status;
        }
    }
    if (*done >= end) {
        return ANGARA_OK;
    }
    return out_first(peer, dst, src, end, done);
}

/* Before the answer: copy what is there of the piece into host memory. */
static void in_early(soft_peer_t *peer, const ang_ref_t *dst, uint64_t *done)
{
    uint32_t copied = peer->agent_copied;

    if (dst->kind == ANG_REF_HOST && peer->agent_length > SOFT_SLOT_BYTES) {
        copy_early(peer, (char *)(uintptr_t)(dst->addr + *done - copied), peer->agent_place,
                   peer->agent_length);
        *done += peer->agent_copied - copied;
    }
}

angara_status_t soft_agent_copy_in(soft_peer_t *peer, const ang_ref_t *src, const ang_ref_t *dst,
                                   uint64_t end, uint64_t *done)
{
    uint32_t        left; /* of the piece */
    uint64_t        next; /* where the one behind begins */
    const char     *bytes;
    angara_status_t status;
    int             has_next, is_small;

    if (peer->agent >= 0) {
        soft_paces_begin(&peer->paces, *done);
        if (peer->agent_length - peer->agent_copied > end - *done) {
            return ANGARA_INPROGRESS; /* asked for by a turn that had more bytes left */
        }
        if (piece_taken_back(peer, src)) {
            return ANGARA_ERR_UNSUPPORTED;
        }
        if (!soft_agent_answered(peer)) {
            in_early(peer, dst, done);
        }
        status = soft_agent_receive(peer, 0);
        if (status == ANGARA_INPROGRESS) {
            return status;
        }
        if (piece_refused(peer, src, status)) {
            return ANGARA_ERR_UNSUPPORTED;
        }
        left     = peer->agent_length - peer->agent_copied;
        next     = *done + left;
        is_small = goes_small(peer, src, status);
        bytes    = status == ANGARA_OK ? piece_bytes(peer, dst) + peer->agent_copied : NULL;
        has_next = status == ANGARA_OK && second_place(peer, src) != 0 &&
                   peer->agent_length > SOFT_SLOT_BYTES && next < src->length;
        if (has_next) { /* the peer's process copies it meanwhile */
            uint64_t behind = src->length - next;

            piece_post(
                peer, ANG_OP_GET, src, next,
                piece_length(peer, ANG_OP_GET, src, behind < end - *done ? behind : end - *done),
                second_place(peer, src) - peer->agent_place, NULL);
        }
        if (status == ANGARA_OK) {
            status = move((void *)(uintptr_t)(dst->addr + *done), bytes, left, dst->kind);
            *done += status == ANGARA_OK ? left : 0;
        }
        if (status != ANGARA_OK || !has_next) {
            soft_agent_end(peer);
        }
        if (status != ANGARA_OK && !is_small) {
            return status;
        }
        if (has_next) {
            return ANGARA_INPROGRESS;
        }
    }
    if (*done >= end) {
        return ANGARA_OK;
    }
    status = piece_open(peer, src);
    if (status == ANGARA_OK) {
        piece_post(peer, ANG_OP_GET, src, *done, piece_length(peer, ANG_OP_GET, src, end - *done),
                   0, NULL);
        status = ANGARA_INPROGRESS;
    }
    return status;
}

/* ---- markers --------------------------------------------------------------------------------- */

angara_status_t soft_agent_read_back(soft_peer_t *peer)
{
    soft_request_t  request = {.op = ANG_OP_MARKER};
    angara_status_t status;

    if (peer->agent < 0) {
        status = soft_agent_open(peer, 0);
        if (status == ANGARA_OK) {
            soft_agent_post(peer, &request, 0);
            status = ANGARA_INPROGRESS;
        }
        return status;
    }
    status = soft_agent_receive(peer, 0);
    if (status != ANGARA_INPROGRESS) {
        soft_agent_end(peer);
    }
    return status;
}
