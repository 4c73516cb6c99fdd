/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving: delivers the records of a ring and gives credits back. Touches the receiver's side of
 * a ring only. All that lies in a ring was written by another process: it is checked.
 */
#include "channel/port.h"

/* The channel that the ring belongs to: only slow paths ask. */
static inline uct_angara_channel_t *uct_angara_rx_channel(uct_angara_rx_t *rx)
{
    return ucs_container_of(rx, uct_angara_channel_t, rx);
}

static unsigned uct_angara_rx_garbage(uct_angara_rx_t *rx, uint64_t hdr, const char *what)
{
    uct_angara_channel_t *ch = uct_angara_rx_channel(rx);

    uct_angara_channel_nonsense(ch,
                                "%s wrote a bad record into receive ring %u: %s (header 0x%" PRIx64
                                ", slot %" PRIu64 ")",
                                angara_peer_name(ch->ap), rx->index, what, hdr, rx->tail);
    return 0;
}

void uct_angara_rx_open(uct_angara_rx_t *rx, char *ring, const uct_angara_shape_t *shape,
                        uint16_t *consumed)
{
    rx->ring         = ring;
    rx->shape        = *shape;
    rx->next         = (volatile uint64_t *)ring;
    rx->expect       = uct_angara_hdr_seq(0);
    rx->tail         = 0;
    rx->credited     = 0;
    rx->credit_batch = shape->nslots / 8;
    rx->pos          = 0;
    rx->eager_max    = (1u << shape->slot_shift) - sizeof(uint64_t);
    rx->run_bytes    = uct_angara_shape_run_bytes(shape);
    rx->msgs         = 0;
    rx->total        = 0;
    rx->credit_owed  = 0;
    rx->open         = 1;
    rx->consumed     = consumed;
}

void uct_angara_rx_return_credits(uct_angara_channel_t *ch)
{
    uct_angara_rx_t *rx = &ch->rx;
    angara_status_t  status;

    if (ch->is_mute || (rx->credited == rx->tail)) {
        rx->credit_owed = 0; /* nobody there wants them any more, or has them all */
        return;
    }

    status = angara_put_u64(ch->ap, rx->credit_off, rx->tail);
    if (ucs_unlikely(status != ANGARA_OK)) {
        if (status == ANGARA_ERR_NO_RESOURCE) {
            rx->credit_owed = 1;
            uct_angara_channel_activate(ch);
        } else {
            uct_angara_channel_error(ch, status, "credit");
        }
        return;
    }

    rx->credit_owed = 0;
    rx->credited    = rx->tail;
    angara_wake_if_armed(ch->ap);
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

static UCS_F_ALWAYS_INLINE void uct_angara_rx_advance(uct_angara_rx_t *rx, uint32_t slots)
{
    rx->tail += slots;
    rx->pos += slots;
    if (ucs_unlikely(rx->pos == rx->shape.nslots)) {
        rx->pos = 0;
    }
    rx->next      = (volatile uint64_t *)(rx->ring + ((size_t)rx->pos << rx->shape.slot_shift));
    rx->expect    = uct_angara_hdr_seq(rx->tail);
    *rx->consumed = ++rx->msgs;
}

/* A record that isn't a message of one slot. @return 1 if it was taken. */
static UCS_F_NOINLINE unsigned uct_angara_rx_uncommon(uct_angara_port_t *port, uct_angara_rx_t *rx,
                                                      uint64_t hdr, size_t length)
{
    uint32_t room = rx->shape.nslots - rx->pos;
    uint32_t slots;
    void    *data;

    if ((hdr & UCT_ANGARA_HDR_KIND) == UCT_ANGARA_KIND_PAD) {
        if (length != room) {
            return uct_angara_rx_garbage(rx, hdr, "a pad that doesn't end with the ring");
        }
        uct_angara_rx_advance(rx, room);
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
    uct_angara_rx_advance(rx, slots);
    ++rx->am;
    rx->sar += (slots > 1);
    rx->bytes += length;
    port->deliver(port, uct_angara_hdr_id(hdr), data, length);
    return 1;
}

unsigned uct_angara_rx_drain(uct_angara_port_t *port, uct_angara_rx_t *rx, unsigned max)
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
            uct_angara_rx_advance(rx, 1);
            ++rx->am;
            rx->bytes += length;
            port->deliver(port, uct_angara_hdr_id(hdr), data, length);
        } else if (!uct_angara_rx_uncommon(port, rx, hdr, length)) {
            break;
        }

        if (ucs_unlikely(rx->tail - rx->credited >= rx->credit_batch)) {
            uct_angara_rx_return_credits(uct_angara_rx_channel(rx));
        }
    } while (++count < max);

    return count;
}
