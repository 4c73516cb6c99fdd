/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public calls that post operations: check arguments, go through the provider's operations, and
 * count. Touches the pair's counts, and the marker slots of its PE.
 */
#include "check.h"
#include "watch.h"

#include <angara/angara_mem.h>

/* ---- operations ---------------------------------------------------------------------------- */

_Static_assert(ANGARA_FAST_TURN == 1 << (63 - ANGARA_FAST_SHIFT), "the sign says that it is time");

#define POSTS_PER_LOOK ANGARA_FAST_TURN /* to one peer: whoever posts only is looked at, too */

/* Is it time for a call because inline code has done so much? This is one. */
static inline void count_inline(angara_peer_h peer)
{
    struct angara_peer_fast *fast = &peer->fast;

    if (__builtin_expect(angara_fast_is_turn(peer, ANGARA_FAST_READ) ||
                             angara_fast_is_turn(peer, ANGARA_FAST_WRITE) ||
                             angara_fast_is_turn(peer, ANGARA_FAST_ATOMIC),
                         0)) {
        fast->before = angara_fast_done(peer);
        memset(fast->since, 0, sizeof(fast->since));
        ang_watch_look(peer->pe, 0);
    }
}

/* Count what the user has asked of the pair; `status`: whether it was taken. */
static inline angara_status_t posted(angara_peer_h peer, uint64_t *counter, size_t bytes,
                                     angara_status_t status)
{
    if (__builtin_expect(status == ANGARA_OK, 1)) {
        count_inline(peer);
        peer->posted.bytes += bytes;
        if (__builtin_expect(++*counter % POSTS_PER_LOOK == 0, 0)) {
            ang_watch_look(peer->pe, 0);
        }
    } else if (status == ANGARA_ERR_NO_RESOURCE) {
        peer->posted.refused++;
    }
    return status;
}

/* Part of the peer's window that one put may write. */
static inline angara_status_t check_window(angara_peer_h peer, uint64_t offset, size_t length)
{
    if (!ang_in_bounds(offset, length, peer->fast.window_size)) {
        return ANGARA_ERR_BOUNDS;
    }
    return length <= peer->pe->dom->attr.put_max ? ANGARA_OK : ANGARA_ERR_INVALID;
}

angara_status_t angara_put(angara_peer_h peer, uint64_t offset, const void *src, size_t length)
{
    CHECK(check_peer(peer));
    CHECK(check_window(peer, offset, length));
    if (length == 0) { /* there is nothing to do, but to tell of the dead */
        return peer->ops->peer_status(peer) == ANGARA_ERR_PEER_DEAD ? ANGARA_ERR_PEER_DEAD :
                                                                      ANGARA_OK;
    }
    return peer->ops->put(peer, offset, src, length);
}

angara_status_t angara_put_flag(angara_peer_h peer, uint64_t offset, const void *src, size_t length,
                                uint64_t flag_offset, uint64_t flag)
{
    CHECK(check_peer(peer));
    CHECK(check_window(peer, offset, length));
    CHECK(ang_in_bounds(flag_offset, sizeof(flag), peer->fast.window_size) ? ANGARA_OK :
                                                                             ANGARA_ERR_BOUNDS);
    CHECK_ARG(flag_offset % sizeof(flag) == 0);
    return peer->ops->put_flag(peer, offset, src, length, flag_offset, flag);
}

/* A local buffer lies within its region, and one operation may move all of it. */
static inline angara_status_t check_local(angara_peer_h peer, angara_mr_h lmr, const void *laddr,
                                          size_t length)
{
    CHECK(check_peer(peer));
    CHECK_ARG(lmr != NULL && lmr->dom == peer->pe->dom);
    if (!ang_in_bounds((uintptr_t)laddr - (uintptr_t)lmr->addr, length, lmr->length)) {
        return ANGARA_ERR_BOUNDS;
    }
    return length <= peer->pe->dom->attr.offload_max ? ANGARA_OK : ANGARA_ERR_INVALID;
}

static inline ang_item_t copy_item(angara_mr_h lmr, const void *laddr, uint64_t rkey,
                                   uint64_t roffset, size_t length)
{
    return (ang_item_t){
        .lkey    = lmr->key,
        .loffset = (uintptr_t)laddr - (uintptr_t)lmr->addr,
        .rkey    = rkey,
        .roffset = roffset,
        .length  = length,
    };
}

static inline angara_status_t post_copy(angara_peer_h peer, ang_op_t op, angara_mr_h lmr,
                                        const void *laddr, uint64_t rkey, uint64_t roffset,
                                        size_t length)
{
    angara_status_t status = check_local(peer, lmr, laddr, length);

    if (__builtin_expect(status == ANGARA_OK, 1)) {
        ang_item_t item = copy_item(lmr, laddr, rkey, roffset, length);
        ang_desc_t desc = ang_item_desc(op, &item);

        status = posted(peer, op == ANG_OP_GET ? &peer->posted.gets : &peer->posted.puts, length,
                        peer->ops->post(peer, &desc, NULL));
    }
    return status;
}

angara_status_t angara_offload_put(angara_peer_h peer, angara_mr_h lmr, const void *laddr,
                                   uint64_t rkey, uint64_t roffset, size_t length)
{
    return post_copy(peer, ANG_OP_PUT, lmr, laddr, rkey, roffset, length);
}

angara_status_t angara_offload_put_inline(angara_peer_h peer, const void *src, uint64_t rkey,
                                          uint64_t roffset, size_t length)
{
    ang_desc_t desc = {.op = ANG_OP_PUT_INLINE, .rkey = rkey, .roffset = roffset, .length = length};

    CHECK(check_peer(peer));
    CHECK_ARG(length <= peer->pe->dom->attr.inline_max);
    return posted(peer, &peer->posted.puts, length, peer->ops->post(peer, &desc, src));
}

angara_status_t angara_offload_get(angara_peer_h peer, angara_mr_h lmr, void *laddr, uint64_t rkey,
                                   uint64_t roffset, size_t length)
{
    return post_copy(peer, ANG_OP_GET, lmr, laddr, rkey, roffset, length);
}

angara_status_t angara_offload_batch(angara_peer_h peer, angara_batch_op_t op,
                                     const angara_xfer_t *xfers, unsigned count, unsigned *posted_p)
{
    ang_op_t        code = op == ANGARA_BATCH_GET ? ANG_OP_GET : ANG_OP_PUT;
    angara_status_t bad  = ANGARA_OK;
    angara_status_t status;
    ang_item_t      items[ANGARA_BATCH_MAX];
    unsigned        good;

    CHECK_ARG(posted_p != NULL);
    *posted_p = 0;
    CHECK(check_peer(peer));
    CHECK_ARG((xfers != NULL || count == 0) && count <= ANGARA_BATCH_MAX &&
              (op == ANGARA_BATCH_PUT || op == ANGARA_BATCH_GET));
    for (good = 0; good < count; ++good) {
        const angara_xfer_t *x = &xfers[good];

        bad = check_local(peer, x->lmr, x->laddr, x->length);
        if (bad != ANGARA_OK) {
            break;
        }
        items[good] = copy_item(x->lmr, x->laddr, x->rkey, x->roffset, x->length);
    }
    if (good == 0) {
        return bad;
    }
    status = peer->ops->post_batch(peer, code, items, good, posted_p);
    for (unsigned i = 0; i < *posted_p; ++i) {
        posted(peer, code == ANG_OP_GET ? &peer->posted.gets : &peer->posted.puts, items[i].length,
               ANGARA_OK);
    }
    peer->posted.refused += status == ANGARA_ERR_NO_RESOURCE;
    return status == ANGARA_OK ? bad : status;
}

/* May the CPU store there what an operation of this call brings? */
static inline int may_store(angara_mr_h lmr)
{
    return lmr != NULL && lmr->kind == ANGARA_MEM_HOST && !lmr->owed &&
           (lmr->stale == NULL || *lmr->stale == 0) && (lmr->access & ANGARA_ACCESS_LOCAL_WRITE);
}

angara_status_t angara_atomic(angara_peer_h peer, angara_atomic_op_t op, unsigned width,
                              uint64_t operand, uint64_t compare, uint64_t rkey, uint64_t roffset,
                              angara_mr_h lmr, void *result)
{
    ang_desc_t desc = {
        .op      = ANG_OP_ATOMIC,
        .atomic  = (uint8_t)op,
        .width   = (uint8_t)width,
        .rkey    = rkey,
        .roffset = roffset,
        .operand = operand,
        .compare = compare,
    };

    CHECK(check_peer(peer));
    CHECK_ARG((width == 4 || width == 8) && (unsigned)op < ANGARA_ATOMIC_LAST &&
              (lmr == NULL) == (result == NULL));
    if (result != NULL) {
        CHECK_ARG(((uintptr_t)result & (width - 1)) == 0);
        CHECK(check_local(peer, lmr, result, width));
        desc.lkey    = lmr->key;
        desc.loffset = (uintptr_t)result - (uintptr_t)lmr->addr;
    }
    return posted(peer, &peer->posted.atomics, 0,
                  peer->ops->post(peer, &desc, may_store(lmr) ? result : NULL));
}

/* ---- mapped memory --------------------------------------------------------------------------- */

/* Count what was done on mapped memory, where inline code does. */
static inline int done(angara_peer_h peer, uint64_t *counter)
{
    posted(peer, counter, 0, ANGARA_OK);
    return 1;
}

int angara_mapped_put(angara_peer_h peer, const void *src, uint64_t rkey, uint64_t roffset,
                      size_t length)
{
    if (check_peer(peer) != ANGARA_OK || peer->ops->mapped_put == NULL ||
        !peer->ops->mapped_put(peer, src, rkey, roffset, length)) {
        return 0;
    }
    peer->fast.before.put_bytes += length;
    return done(peer, &peer->fast.before.puts);
}

int angara_mapped_get(angara_peer_h peer, void *dst, uint64_t rkey, uint64_t roffset, size_t length)
{
    if (check_peer(peer) != ANGARA_OK || peer->ops->mapped_get == NULL ||
        !peer->ops->mapped_get(peer, dst, rkey, roffset, length)) {
        return 0;
    }
    peer->fast.before.get_bytes += length;
    return done(peer, &peer->fast.before.gets);
}

int angara_asked_get(angara_peer_h peer, void *dst, uint64_t rkey, uint64_t roffset, size_t length)
{
    if (check_peer(peer) != ANGARA_OK || peer->ops->asked_get == NULL ||
        !peer->ops->asked_get(peer, dst, rkey, roffset, length)) {
        return 0;
    }
    posted(peer, &peer->posted.gets, length, ANGARA_OK);
    return 1;
}

int angara_mapped_atomic(angara_peer_h peer, angara_atomic_op_t op, unsigned width,
                         uint64_t operand, uint64_t compare, uint64_t rkey, uint64_t roffset,
                         void *result)
{
    uint64_t   old;
    ang_desc_t desc; /* not cleared: that would take longer than the rest */

    desc.atomic  = (uint8_t)op;
    desc.width   = (uint8_t)width;
    desc.rkey    = rkey;
    desc.roffset = roffset;
    desc.operand = operand;
    desc.compare = compare;
    if (check_peer(peer) != ANGARA_OK || peer->ops->mapped_atomic == NULL ||
        (width != 4 && width != 8) || (unsigned)op >= ANGARA_ATOMIC_LAST ||
        !peer->ops->mapped_atomic(peer, &desc, &old)) {
        return 0;
    }
    if (result != NULL) {
        memcpy(result, &old, width);
    }
    return done(peer, &peer->fast.before.atomics);
}

angara_status_t angara_notify(angara_peer_h peer, const void *record, size_t length)
{
    CHECK(check_peer(peer));
    CHECK_ARG((record != NULL || length == 0) && length <= ANGARA_NOTIFY_MAX);
    return posted(peer, &peer->posted.notifies, 0, peer->ops->notify(peer, record, length));
}

void angara_wake(angara_peer_h peer)
{
    if (check_peer(peer) == ANGARA_OK) {
        peer->ops->wake(peer);
    }
}

/* ---- completion markers -------------------------------------------------------------------- */

angara_status_t angara_marker_slot_get(angara_pe_h pe, angara_marker_slot_t **slot_p)
{
    CHECK(check_pe(pe));
    CHECK_ARG(slot_p != NULL);
    if (ang_slots_get(&pe->slots, slot_p) == ANGARA_OK) {
        return ANGARA_OK;
    }
    pe->ops->pe_settle(pe);
    return ang_slots_get(&pe->slots, slot_p);
}

void angara_marker_slot_put(angara_pe_h pe, angara_marker_slot_t *slot)
{
    if (check_pe(pe) == ANGARA_OK && slot != NULL) {
        ang_slots_put(&pe->slots, slot);
    }
}

/* May a marker of the pair's (NULL: a self marker) be posted to the slot? *index_p: its number. */
static inline angara_status_t check_slot(angara_pe_h pe, const angara_marker_slot_t *slot,
                                         angara_peer_h owner, uint64_t value, uint32_t *index_p)
{
    angara_status_t status = ang_slots_check(&pe->slots, slot, owner, value, index_p);

    if (__builtin_expect(status != ANGARA_ERR_NO_RESOURCE, 1)) {
        return status;
    }
    pe->ops->pe_settle(pe);
    return ang_slots_check(&pe->slots, slot, owner, value, index_p);
}

angara_status_t angara_marker(angara_peer_h peer, angara_marker_slot_t *slot, uint64_t value)
{
    angara_status_t status;
    uint32_t        index;

    CHECK(check_peer(peer));
    CHECK(check_slot(peer->pe, slot, peer, value, &index));
    status = posted(peer, &peer->posted.markers, 0, peer->ops->marker(peer, index, value));
    if (__builtin_expect(status == ANGARA_OK, 1)) {
        ang_slots_posted(&peer->pe->slots, index, peer, value);
    }
    return status;
}

angara_status_t angara_marker_self(angara_pe_h pe, angara_marker_slot_t *slot, uint64_t value)
{
    angara_status_t status;
    uint32_t        index;

    CHECK(check_pe(pe));
    CHECK(check_slot(pe, slot, NULL, value, &index));
    status = pe->ops->marker_self(pe, index, value);
    if (__builtin_expect(status == ANGARA_OK, 1)) {
        ang_slots_posted(&pe->slots, index, NULL, value);
    }
    return status;
}
