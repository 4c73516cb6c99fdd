/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending: runs of slots, pads, credits. Touches the sender's side of a ring, and by puts the ring
 * itself.
 *
 * Invariant (what the receiver may look at): the first word of a slot that comes next holds either
 * zero, or a header of an earlier lap (whose sequence differs), or the header of the record that
 * belongs there. The payload of a run overwrites the first words of its inner slots with anything,
 * so the sender remembers them (tx->dirty) and, before the flag of a record becomes visible, has
 * zeroed the first word of the slot behind that record if it is dirty. The sender leaves one slot
 * unused so that this word never belongs to a record that is not yet consumed. Slot 0 is never an
 * inner slot, because runs don't wrap.
 */
#include "channel/port.h"

#define UCT_ANGARA_DIRTY_BITS 64u

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

/* Read the credit line. @return UCS_OK if @a slots may be written from the head on. */
static ucs_status_t uct_angara_tx_refresh(uct_angara_channel_t *ch, uint32_t slots)
{
    uct_angara_tx_t *tx      = &ch->tx;
    uint64_t         credits = __atomic_load_n(tx->credit, __ATOMIC_ACQUIRE);

    if (ucs_unlikely((credits > tx->head) || (credits < tx->credits))) {
        uct_angara_channel_nonsense(ch,
                                    "%s returned impossible credits: %" PRIu64 " after %" PRIu64
                                    ", with %" PRIu64 " slots sent",
                                    angara_peer_name(ch->ap), credits, tx->credits, tx->head);
        return ch->status;
    }

    tx->credits = credits;
    tx->limit   = credits + tx->shape.nslots - 1;
    if (ucs_unlikely(tx->head + slots > tx->limit)) {
        ++ch->stats.no_credit;
        return UCS_ERR_NO_RESOURCE;
    }

    return UCS_OK;
}

void uct_angara_tx_retry_ready(uct_angara_channel_t *ch)
{
    uct_angara_tx_t *tx     = &ch->tx;
    angara_status_t  status = angara_put_u16(ch->ap, tx->ready_off, (uint16_t)tx->msgs);

    if (status == ANGARA_ERR_NO_RESOURCE) {
        if (!tx->ready_owed) {
            tx->ready_owed = 1;
            uct_angara_channel_activate(ch);
        }
        return;
    }

    tx->ready_owed = 0;
    if (status != ANGARA_OK) {
        uct_angara_channel_error(ch, status, "ready word");
        return;
    }
    angara_wake_if_armed(ch->ap);
}

/* Advance past a record of @a slots at the head. */
static inline void uct_angara_tx_advance(uct_angara_channel_t *ch, uint32_t slots)
{
    uct_angara_tx_t *tx = &ch->tx;

    uct_angara_channel_stir(ch);
    tx->head += slots;
    tx->pos += slots;
    if (tx->pos == tx->shape.nslots) {
        tx->pos = 0;
    }
    ++tx->msgs;
}

static ucs_status_t uct_angara_tx_pad(uct_angara_channel_t *ch)
{
    uct_angara_tx_t *tx     = &ch->tx;
    uint32_t         slots  = tx->shape.nslots - tx->pos;
    uint64_t         offset = tx->ring_off + ((uint64_t)tx->pos << tx->shape.slot_shift);
    uint64_t         hdr    = uct_angara_hdr_seq(tx->head) | UCT_ANGARA_KIND_PAD |
                   ((uint64_t)slots << UCT_ANGARA_HDR_LEN_SHIFT);
    angara_status_t status;

    status = angara_put_commit(ch->ap, NULL, offset + sizeof(hdr), 0, offset, hdr);
    if (ucs_unlikely(status != ANGARA_OK)) {
        return uct_angara_channel_error(ch, status, "pad");
    }

    uct_angara_tx_clean(tx, tx->pos);
    uct_angara_tx_advance(ch, slots);
    ++tx->pads;
    return UCS_OK;
}

ucs_status_t uct_angara_tx_reserve(uct_angara_channel_t *ch, uint32_t slots)
{
    uct_angara_tx_t *tx   = &ch->tx;
    uint32_t         room = tx->shape.nslots - tx->pos;
    uint32_t         need = (slots <= room) ? slots : room + slots;
    ucs_status_t     status;

    if (ucs_unlikely(tx->head + need > tx->limit)) {
        status = uct_angara_channel_admit(ch);
        if (status != UCS_OK) {
            return status;
        }

        status = uct_angara_tx_refresh(ch, need);
        if (status != UCS_OK) {
            return status;
        }
    }

    return ucs_likely(slots <= room) ? UCS_OK : uct_angara_tx_pad(ch);
}

void *uct_angara_tx_buffer(uct_angara_channel_t *ch)
{
    uct_angara_tx_t *tx     = &ch->tx;
    uint64_t         offset = tx->ring_off + ((uint64_t)tx->pos << tx->shape.slot_shift);

    return angara_put_begin(ch->ap, offset + sizeof(uint64_t), 0, ch->port->scratch);
}

/*
 * Send the puts of a run but the first. They must all go out once the first has: a part left behind
 * could land in slots that another message has taken since.
 */
static ucs_status_t uct_angara_tx_segments(uct_angara_channel_t *ch, const char *p, uint32_t slots,
                                           size_t length)
{
    uct_angara_tx_t *tx        = &ch->tx;
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
            status = angara_put_flag(ch->ap, offset + done, p + done - sizeof(uint64_t), part,
                                     flags + (tx->pos + slot) * sizeof(uint64_t),
                                     tx->head + slot + 1);
            if (status == ANGARA_ERR_NO_RESOURCE) {
                uct_angara_port_push(ch->port);
            }
        } while (status == ANGARA_ERR_NO_RESOURCE);
        if (status != ANGARA_OK) {
            return uct_angara_channel_error(ch, status, "message segment");
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

ucs_status_t uct_angara_tx_commit(uct_angara_channel_t *ch, uint8_t id, const void *p,
                                  size_t length)
{
    uct_angara_tx_t *tx           = &ch->tx;
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

    status = angara_put_commit(ch->ap, p, offset + sizeof(uint64_t), first_length, offset,
                               uct_angara_hdr_am(tx->head, id, length));
    if (ucs_unlikely(status != ANGARA_OK)) {
        if (next_was_dirty) {
            uct_angara_tx_soil(tx, tx->pos + slots, tx->pos + slots + 1);
        }
        return uct_angara_channel_error(ch, status, "message");
    }

    if (ucs_unlikely(put_length > first_length)) {
        ucs_status = uct_angara_tx_segments(ch, p, slots, put_length);
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

    uct_angara_tx_advance(ch, slots);
    tx->bytes += length;
    status = angara_put_u16(ch->ap, tx->ready_off, (uint16_t)tx->msgs);
    if (ucs_unlikely(status != ANGARA_OK)) {
        uct_angara_tx_retry_ready(ch);
    }
    angara_wake_if_armed(ch->ap);
    return UCS_OK;
}

ssize_t uct_angara_tx_bcopy(uct_angara_channel_t *ch, uint8_t id, uct_pack_callback_t pack_cb,
                            void *arg)
{
    uct_angara_tx_t *tx   = &ch->tx;
    uint32_t         room = tx->shape.nslots - tx->pos;
    ucs_status_t     status;
    size_t           length;
    void            *p;

    /* The length is known only after packing: room for the longest run is taken. Near the end of
     * the ring the message is packed aside, unless it will hardly fit there anyway. */
    if ((room >= tx->shape.run_slots) || (tx->last_run > room)) {
        status = uct_angara_tx_reserve(ch, tx->shape.run_slots);
        if (ucs_unlikely(status != UCS_OK)) {
            return status;
        }

        p            = uct_angara_tx_buffer(ch);
        length       = pack_cb(p, arg);
        tx->last_run = uct_angara_slots(&tx->shape, length);
    } else {
        if (ucs_unlikely(tx->head + room + tx->shape.run_slots > tx->limit)) {
            status = uct_angara_channel_admit(ch);
            if (status == UCS_OK) {
                status = uct_angara_tx_refresh(ch, room + tx->shape.run_slots);
            }
            if (status != UCS_OK) {
                return status;
            }
        }

        length       = pack_cb(ch->port->scratch, arg);
        tx->last_run = uct_angara_slots(&tx->shape, length);
        status       = uct_angara_tx_reserve(ch, tx->last_run);
        if (status != UCS_OK) {
            return status;
        }

        p = uct_angara_tx_buffer(ch);
        if (p != ch->port->scratch) {
            memcpy(p, ch->port->scratch, length);
        }
    }

    ucs_assertv_always(length <= uct_angara_shape_run_bytes(&tx->shape), "packed %zu bytes",
                       length);
    status = uct_angara_tx_commit(ch, id, p, length);
    return ucs_likely(status == UCS_OK) ? (ssize_t)length : (ssize_t)status;
}
