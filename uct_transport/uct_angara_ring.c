/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings: opening, sending runs of slots, delivering records, credits. Touches the two sides of a
 * ring and the windows; connection management is elsewhere.
 *
 * Invariant (what the receiver may look at): the first word of a slot that comes next holds either
 * zero, or a header of an earlier lap (whose sequence differs), or the header of the record that
 * belongs there. The payload of a run overwrites the first words of its inner slots with anything,
 * so the sender remembers them (tx->dirty) and, before the flag of a record becomes visible, has
 * zeroed the first word of the slot behind that record if it is dirty. The sender leaves one slot
 * unused so that this word never belongs to a record that is not yet consumed. Slot 0 is never an
 * inner slot, because runs don't wrap.
 */
#include "uct_angara_ring.h"

#include "uct_angara_iface.h"

#define UCT_ANGARA_DIRTY_BITS 64u

static unsigned uct_angara_rx_garbage(uct_angara_rx_t *rx, uint64_t hdr, const char *what)
{
    uct_angara_peer_fail(rx->peer, UCS_ERR_CONNECTION_RESET,
                         "%s wrote a bad record into receive ring %u: %s (header 0x%" PRIx64
                         ", slot %" PRIu64 ")",
                         angara_peer_name(rx->peer->ap), rx->index, what, hdr, rx->tail);
    return 0;
}

/* ---- opening ------------------------------------------------------------------------------- */

ucs_status_t uct_angara_tx_open(uct_angara_tx_t *tx, uint64_t ring_off, uint64_t ready_off)
{
    size_t words = (tx->shape.nslots + UCT_ANGARA_DIRTY_BITS - 1) / UCT_ANGARA_DIRTY_BITS;

    tx->dirty = ucs_calloc(words, sizeof(*tx->dirty), "angara_dirty");
    if (tx->dirty == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    tx->head       = 0;
    tx->limit      = 0;
    tx->ring_off   = ring_off;
    tx->ready_off  = ready_off;
    tx->msgs       = 0;
    tx->pos        = 0;
    tx->ndirty     = 0;
    tx->eager_max  = (1u << tx->shape.slot_shift) - sizeof(uint64_t);
    tx->last_run   = 1;
    tx->marked     = 0;
    tx->confirmed  = 0;
    tx->credits    = 0;
    tx->ready_owed = 0;
    return UCS_OK;
}

void uct_angara_tx_close(uct_angara_tx_t *tx)
{
    ucs_free(tx->dirty);
    tx->dirty      = NULL;
    tx->limit      = 0;
    tx->head       = 0;
    tx->marked     = 0;
    tx->confirmed  = 0;
    tx->ready_owed = 0;
}

void uct_angara_rx_open(uct_angara_rx_t *rx, char *ring, const uct_angara_shape_t *shape)
{
    rx->ring         = ring;
    rx->shape        = *shape;
    rx->next         = (volatile uint64_t *)ring;
    rx->expect       = uct_angara_hdr_seq(0);
    rx->tail         = 0;
    rx->credited     = 0;
    rx->credit_batch = shape->nslots / 8;
    rx->pos          = 0;
    /* what has to be copied isn't delivered by the fast path */
    rx->eager_max   = (rx->peer->iface->aligned != NULL) ?
                          0 :
                          (1u << shape->slot_shift) - sizeof(uint64_t);
    rx->run_bytes   = uct_angara_shape_run_bytes(shape);
    rx->msgs        = 0;
    rx->total       = 0;
    rx->credit_owed = 0;
    rx->open        = 1;
}

/* ---- dirty words --------------------------------------------------------------------------- */

static inline int uct_angara_tx_is_dirty(const uct_angara_tx_t *tx, uint32_t slot)
{
    return (tx->dirty[slot / UCT_ANGARA_DIRTY_BITS] >> (slot % UCT_ANGARA_DIRTY_BITS)) & 1;
}

static void uct_angara_tx_clean(uct_angara_tx_t *tx, uint32_t slot)
{
    uint64_t bit = 1ul << (slot % UCT_ANGARA_DIRTY_BITS);

    tx->ndirty -= uct_angara_tx_is_dirty(tx, slot);
    tx->dirty[slot / UCT_ANGARA_DIRTY_BITS] &= ~bit;
}

/* Mark [first, end) dirty, a word of bits at a time. */
static void uct_angara_tx_soil(uct_angara_tx_t *tx, uint32_t first, uint32_t end)
{
    uint64_t mask, *word;
    uint32_t n;

    while (first < end) {
        n    = ucs_min(UCT_ANGARA_DIRTY_BITS - first % UCT_ANGARA_DIRTY_BITS, end - first);
        mask = (~0ul >> (UCT_ANGARA_DIRTY_BITS - n)) << (first % UCT_ANGARA_DIRTY_BITS);
        word = &tx->dirty[first / UCT_ANGARA_DIRTY_BITS];
        tx->ndirty += ucs_popcount(mask & ~*word);
        *word |= mask;
        first += n;
    }
}

/* ---- sending ------------------------------------------------------------------------------- */

ucs_status_t uct_angara_tx_refresh(uct_angara_peer_t *peer, uint32_t slots)
{
    uct_angara_tx_t *tx      = &peer->tx;
    uint64_t         credits = __atomic_load_n(tx->credit, __ATOMIC_ACQUIRE);

    if (ucs_unlikely((credits > tx->head) || (credits < tx->credits))) {
        uct_angara_peer_fail(peer, UCS_ERR_CONNECTION_RESET,
                             "%s returned impossible credits: %" PRIu64 " after %" PRIu64
                             ", with %" PRIu64 " slots sent",
                             angara_peer_name(peer->ap), credits, tx->credits, tx->head);
        return peer->status;
    }

    tx->credits = credits;
    tx->limit   = credits + tx->shape.nslots - 1;
    if (ucs_unlikely(tx->head + slots > tx->limit)) {
        ++peer->iface->stats.no_credit;
        return UCS_ERR_NO_RESOURCE;
    }

    return UCS_OK;
}

void uct_angara_tx_retry_ready(uct_angara_peer_t *peer)
{
    uct_angara_tx_t *tx     = &peer->tx;
    angara_status_t  status = angara_put_u16(peer->ap, tx->ready_off, (uint16_t)tx->msgs);

    if (status == ANGARA_ERR_NO_RESOURCE) {
        if (!tx->ready_owed) {
            tx->ready_owed = 1;
            uct_angara_peer_activate(peer);
        }
        return;
    }

    tx->ready_owed = 0;
    if (status != ANGARA_OK) {
        uct_angara_peer_error(peer, status, "ready word");
        return;
    }
    angara_wake_if_armed(peer->ap);
}

/* Advance past a record of @a slots at the head. */
static inline void uct_angara_tx_advance(uct_angara_tx_t *tx, uint32_t slots)
{
    tx->head += slots;
    tx->pos += slots;
    if (tx->pos == tx->shape.nslots) {
        tx->pos = 0;
    }
    ++tx->msgs;
}

static ucs_status_t uct_angara_tx_pad(uct_angara_peer_t *peer)
{
    uct_angara_tx_t *tx     = &peer->tx;
    uint32_t         slots  = tx->shape.nslots - tx->pos;
    uint64_t         offset = tx->ring_off + ((uint64_t)tx->pos << tx->shape.slot_shift);
    uint64_t         hdr    = uct_angara_hdr_seq(tx->head) | UCT_ANGARA_KIND_PAD |
                   ((uint64_t)slots << UCT_ANGARA_HDR_LEN_SHIFT);
    angara_status_t status;

    status = angara_put_commit(peer->ap, NULL, offset + sizeof(hdr), 0, offset, hdr);
    if (ucs_unlikely(status != ANGARA_OK)) {
        return uct_angara_peer_error(peer, status, "pad");
    }

    uct_angara_tx_clean(tx, tx->pos);
    uct_angara_tx_advance(tx, slots);
    ++tx->pads;
    return UCS_OK;
}

ucs_status_t uct_angara_tx_reserve(uct_angara_peer_t *peer, uint32_t slots)
{
    uct_angara_tx_t *tx   = &peer->tx;
    uint32_t         room = tx->shape.nslots - tx->pos;
    uint32_t         need = (slots <= room) ? slots : room + slots;
    ucs_status_t     status;

    if (ucs_unlikely(tx->head + need > tx->limit)) {
        status = uct_angara_peer_unblock_msg(peer);
        if (status != UCS_OK) {
            return status;
        }

        status = uct_angara_tx_refresh(peer, need);
        if (status != UCS_OK) {
            return status;
        }
    }

    return ucs_likely(slots <= room) ? UCS_OK : uct_angara_tx_pad(peer);
}

void *uct_angara_tx_buffer(uct_angara_peer_t *peer)
{
    uct_angara_tx_t *tx     = &peer->tx;
    uint64_t         offset = tx->ring_off + ((uint64_t)tx->pos << tx->shape.slot_shift);

    return angara_put_begin(peer->ap, offset + sizeof(uint64_t), 0, peer->iface->scratch);
}

/*
 * Send the puts of a run but the first. They must all go out once the first has: a part left behind
 * could land in slots that another message has taken since.
 */
static ucs_status_t uct_angara_tx_segments(uct_angara_peer_t *peer, const char *p, uint32_t slots,
                                           size_t length)
{
    uct_angara_tx_t *tx        = &peer->tx;
    uint32_t         seg_slots = 1u << tx->shape.seg_shift;
    size_t           seg_bytes = (size_t)seg_slots << tx->shape.slot_shift;
    uint64_t         offset    = tx->ring_off + ((uint64_t)tx->pos << tx->shape.slot_shift);
    uint64_t         flags     = tx->ring_off + uct_angara_shape_slots_bytes(&tx->shape);
    angara_status_t  status;
    size_t           done, part;
    uint32_t         slot;

    for (slot = seg_slots; slot < slots; slot += seg_slots) {
        done = (size_t)slot << tx->shape.slot_shift; /* from the header word on */
        part = length + sizeof(uint64_t) - done;
        part = (slot + seg_slots < slots) ? ucs_min(part, seg_bytes) : part;
        do {
            status = angara_put_flag(peer->ap, offset + done, p + done - sizeof(uint64_t), part,
                                     flags + (tx->pos + slot) * sizeof(uint64_t),
                                     tx->head + slot + 1);
            if (status == ANGARA_ERR_NO_RESOURCE) {
                uct_angara_iface_push(peer->iface);
            }
        } while (status == ANGARA_ERR_NO_RESOURCE);
        if (status != ANGARA_OK) {
            return uct_angara_peer_error(peer, status, "message segment");
        }
    }

    return UCS_OK;
}

/*
 * Zero the first word of the slot behind a run if stale payload lies there. It is part of the same
 * flagged put. @return number of bytes to put.
 */
static size_t uct_angara_tx_clean_next(uct_angara_tx_t *tx, char *p, uint32_t slots, size_t length)
{
    size_t run_end;

    if ((tx->pos + slots == tx->shape.nslots) || !uct_angara_tx_is_dirty(tx, tx->pos + slots)) {
        return length;
    }

    run_end = ((size_t)slots << tx->shape.slot_shift) - sizeof(uint64_t);
    memset(p + run_end, 0, sizeof(uint64_t));
    uct_angara_tx_clean(tx, tx->pos + slots);
    return run_end + sizeof(uint64_t);
}

ucs_status_t uct_angara_tx_commit(uct_angara_peer_t *peer, uint8_t id, const void *p, size_t length)
{
    uct_angara_tx_t *tx           = &peer->tx;
    uint32_t         slots        = uct_angara_slots(&tx->shape, length);
    uint64_t         offset       = tx->ring_off + ((uint64_t)tx->pos << tx->shape.slot_shift);
    size_t           put_length   = length;
    size_t           first_length = length;
    size_t           seg_bytes    = SIZE_MAX;
    angara_status_t  status;
    ucs_status_t     ucs_status;
    int              next_was_dirty;

    next_was_dirty = tx->ndirty;
    if (ucs_unlikely(tx->ndirty != 0)) {
        put_length     = uct_angara_tx_clean_next(tx, (char *)p, slots, length);
        next_was_dirty = (put_length != length);
        first_length   = put_length;
    }

    if (tx->shape.seg_shift != UCT_ANGARA_NO_SEGS) {
        seg_bytes = (1ul << (tx->shape.seg_shift + tx->shape.slot_shift));
        if (slots > (1u << tx->shape.seg_shift)) {
            first_length = seg_bytes - sizeof(uint64_t);
        }
    }

    status = angara_put_commit(peer->ap, p, offset + sizeof(uint64_t), first_length, offset,
                               uct_angara_hdr_am(tx->head, id, length));
    if (ucs_unlikely(status != ANGARA_OK)) {
        if (next_was_dirty) {
            uct_angara_tx_soil(tx, tx->pos + slots, tx->pos + slots + 1);
        }
        return uct_angara_peer_error(peer, status, "message");
    }

    if (ucs_unlikely(put_length > first_length)) {
        ucs_status = uct_angara_tx_segments(peer, p, slots, put_length);
        if (ucs_status != UCS_OK) {
            return ucs_status;
        }
    }

    if (slots > 1) {
        uct_angara_tx_clean(tx, tx->pos);
        uct_angara_tx_soil(tx, tx->pos + 1, tx->pos + slots);
        ++tx->sar;
    } else if (ucs_unlikely(tx->ndirty != 0)) {
        uct_angara_tx_clean(tx, tx->pos);
    }

    uct_angara_tx_advance(tx, slots);
    status = angara_put_u16(peer->ap, tx->ready_off, (uint16_t)tx->msgs);
    if (ucs_unlikely(status != ANGARA_OK)) {
        uct_angara_tx_retry_ready(peer);
    }
    angara_wake_if_armed(peer->ap);
    return UCS_OK;
}

ssize_t uct_angara_tx_bcopy(uct_angara_peer_t *peer, uint8_t id, uct_pack_callback_t pack_cb,
                            void *arg)
{
    uct_angara_tx_t *tx   = &peer->tx;
    uint32_t         room = tx->shape.nslots - tx->pos;
    ucs_status_t     status;
    size_t           length;
    void            *p;

    /* The length is known only after packing: room for the longest run is taken. Near the end of
     * the ring the message is packed aside, unless it will hardly fit there anyway. */
    if ((room >= tx->shape.run_slots) || (tx->last_run > room)) {
        status = uct_angara_tx_reserve(peer, tx->shape.run_slots);
        if (ucs_unlikely(status != UCS_OK)) {
            return status;
        }

        p            = uct_angara_tx_buffer(peer);
        length       = pack_cb(p, arg);
        tx->last_run = uct_angara_slots(&tx->shape, length);
    } else {
        if (ucs_unlikely(tx->head + room + tx->shape.run_slots > tx->limit)) {
            status = uct_angara_peer_unblock_msg(peer);
            if (status == UCS_OK) {
                status = uct_angara_tx_refresh(peer, room + tx->shape.run_slots);
            }
            if (status != UCS_OK) {
                return status;
            }
        }

        length       = pack_cb(peer->iface->scratch, arg);
        tx->last_run = uct_angara_slots(&tx->shape, length);
        status       = uct_angara_tx_reserve(peer, tx->last_run);
        if (status != UCS_OK) {
            return status;
        }

        p = uct_angara_tx_buffer(peer);
        if (p != peer->iface->scratch) {
            memcpy(p, peer->iface->scratch, length);
        }
    }

    ucs_assertv_always(length <= uct_angara_shape_run_bytes(&tx->shape), "packed %zu bytes",
                       length);
    status = uct_angara_tx_commit(peer, id, p, length);
    return ucs_likely(status == UCS_OK) ? (ssize_t)length : (ssize_t)status;
}

/* ---- receiving ----------------------------------------------------------------------------- */

void uct_angara_rx_return_credits(uct_angara_rx_t *rx)
{
    angara_status_t status;

    if (rx->peer->life.state != UCT_ANGARA_LIFE_UP) {
        return; /* nobody there wants them any more */
    }

    status = angara_put_u64(rx->peer->ap, rx->credit_off, rx->tail);
    if (ucs_unlikely(status != ANGARA_OK)) {
        if (status == ANGARA_ERR_NO_RESOURCE) {
            rx->credit_owed = 1;
            uct_angara_peer_activate(rx->peer);
        } else {
            uct_angara_peer_error(rx->peer, status, "credit");
        }
        return;
    }

    rx->credit_owed = 0;
    rx->credited    = rx->tail;
    angara_wake_if_armed(rx->peer->ap);
}

/* @return non-zero if every segment of the run at the tail has arrived. */
static int uct_angara_rx_segments_here(const uct_angara_rx_t *rx, uint32_t slots)
{
    uint32_t        seg_slots = 1u << rx->shape.seg_shift;
    const uint64_t *flags;
    uint32_t        slot;

    flags = (const uint64_t *)(rx->ring + uct_angara_shape_slots_bytes(&rx->shape));
    for (slot = seg_slots; slot < slots; slot += seg_slots) {
        if (__atomic_load_n(&flags[rx->pos + slot], __ATOMIC_ACQUIRE) != rx->tail + slot + 1) {
            return 0;
        }
    }

    angara_fence_landed();
    return 1;
}

static UCS_F_ALWAYS_INLINE void uct_angara_rx_advance(uct_angara_iface_t *iface,
                                                      uct_angara_rx_t *rx, uint32_t slots)
{
    rx->tail += slots;
    rx->pos += slots;
    if (ucs_unlikely(rx->pos == rx->shape.nslots)) {
        rx->pos = 0;
    }
    rx->next   = (volatile uint64_t *)(rx->ring + ((size_t)rx->pos << rx->shape.slot_shift));
    rx->expect = uct_angara_hdr_seq(rx->tail);
    iface->consumed[rx->index] = ++rx->msgs;
}

/* A copy that lies as the user wants it. */
static void *uct_angara_rx_align(uct_angara_iface_t *iface, const void *data, size_t length)
{
    char *copy = iface->aligned - iface->align_offset + iface->align_mask + 1;

    memcpy(copy, data, length);
    return copy;
}

/* A record that isn't a message of one slot, or has to be copied. @return 1 if it was taken. */
static UCS_F_NOINLINE unsigned uct_angara_rx_uncommon(uct_angara_iface_t *iface,
                                                      uct_angara_rx_t *rx, uint64_t hdr,
                                                      size_t length)
{
    uint32_t room = rx->shape.nslots - rx->pos;
    uint32_t slots;
    void    *data;

    if ((hdr & UCT_ANGARA_HDR_KIND) == UCT_ANGARA_KIND_PAD) {
        if (length != room) {
            return uct_angara_rx_garbage(rx, hdr, "a pad that doesn't end with the ring");
        }
        uct_angara_rx_advance(iface, rx, room);
        return 1;
    }

    if ((hdr & UCT_ANGARA_HDR_KIND) != UCT_ANGARA_KIND_AM) {
        return uct_angara_rx_garbage(rx, hdr, "unknown kind");
    }

    slots = uct_angara_slots(&rx->shape, length);
    if ((length > rx->run_bytes) || (slots > room)) {
        return uct_angara_rx_garbage(rx, hdr, "too long");
    }

    if ((rx->shape.seg_shift != UCT_ANGARA_NO_SEGS) && !uct_angara_rx_segments_here(rx, slots)) {
        return 0;
    }

    data = (char *)rx->next + sizeof(uint64_t);
    uct_angara_rx_advance(iface, rx, slots);
    ++rx->am;
    rx->sar += (slots > 1);
    if (ucs_unlikely(iface->aligned != NULL) &&
        !uct_angara_iface_is_aligned(iface, (uintptr_t)data)) {
        data = uct_angara_rx_align(iface, data, length);
    }
    uct_iface_invoke_am(&iface->super, (hdr >> UCT_ANGARA_HDR_ID_SHIFT) & UCT_ANGARA_HDR_ID_MASK,
                        data, length, 0);
    return 1;
}

unsigned uct_angara_rx_drain(uct_angara_iface_t *iface, uct_angara_rx_t *rx, unsigned max)
{
    unsigned count = 0;
    uint64_t hdr;
    size_t   length;
    void    *data;

    do {
        hdr = __atomic_load_n(rx->next, __ATOMIC_ACQUIRE);
        if ((hdr & UCT_ANGARA_HDR_MATCH) != rx->expect) {
            break;
        }

        angara_fence_landed();
        length = (hdr >> UCT_ANGARA_HDR_LEN_SHIFT) & UCT_ANGARA_HDR_LEN_MASK;
        if (ucs_likely((length <= rx->eager_max) && !(hdr & UCT_ANGARA_HDR_KIND))) {
            data = (char *)rx->next + sizeof(uint64_t);
            uct_angara_rx_advance(iface, rx, 1);
            ++rx->am;
            uct_iface_invoke_am(&iface->super,
                                (hdr >> UCT_ANGARA_HDR_ID_SHIFT) & UCT_ANGARA_HDR_ID_MASK, data,
                                length, 0);
        } else if (!uct_angara_rx_uncommon(iface, rx, hdr, length)) {
            break;
        }

        if (ucs_unlikely(rx->tail - rx->credited >= rx->credit_batch)) {
            uct_angara_rx_return_credits(rx);
        }
    } while (++count < max);

    return count;
}
