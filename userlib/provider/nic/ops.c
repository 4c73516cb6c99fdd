/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Window puts, ring operations and markers: a call is a put or a descriptor, or, on the own PE, a
 * copy (self.c). Keys, bounds and rights are the NIC's to check.
 */
#include "nic.h"

#include "src/config.h"

#include <string.h>

/* ---- window puts ----------------------------------------------------------------------------- */

static angara_status_t window_put(nic_peer_t *peer, const struct angara_put *head, const void *src,
                                  size_t length, const uint64_t *flag)
{
    nic_pe_t       *pe = nic_peer_pe(peer);
    angara_status_t status;

    if (NIC_UNLIKELY(peer->error == ANGARA_ERR_PEER_DEAD)) {
        return ANGARA_ERR_PEER_DEAD;
    }
    if (NIC_UNLIKELY(peer->is_self) &&
        nic_self_put(pe, head->offset, src, length, head->flag_offset, flag)) {
        pe->counters.window_puts++;
        return ANGARA_OK;
    }
    status = nic_put_write(pe, head, src, length);
    pe->counters.window_puts += status == ANGARA_OK;
    return status;
}

angara_status_t nic_put_flag(angara_peer_h base, uint64_t offset, const void *src, size_t length,
                             uint64_t flag_offset, uint64_t flag)
{
    nic_peer_t       *peer = nic_peer(base);
    struct angara_put head = {.op          = ANGARA_PIO_PUT_FLAG,
                              .pair        = peer->pair,
                              .offset      = offset,
                              .flag_offset = flag_offset,
                              .flag        = flag};

    return window_put(peer, &head, src, length, &flag);
}

angara_status_t nic_put(angara_peer_h base, uint64_t offset, const void *src, size_t length)
{
    nic_peer_t       *peer = nic_peer(base);
    struct angara_put head = {.op = ANGARA_PIO_PUT, .pair = peer->pair, .offset = offset};
    uint64_t          flag;

    /* One word is a flag without data: it wakes a sleeper, as angara_put_u64() shall. */
    if (length == sizeof(flag) && offset % sizeof(flag) == 0) {
        memcpy(&flag, src, sizeof(flag));
        return nic_put_flag(base, 0, NULL, 0, offset, flag);
    }
    return window_put(peer, &head, src, length, NULL);
}

/* ---- ring operations ------------------------------------------------------------------------- */

/* Copy at most *budget bytes of it here. */
static angara_status_t post_own(nic_pe_t *pe, const ang_desc_t *desc, const void *data,
                                uint64_t *budget)
{
    angara_status_t status = nic_own_post(pe, desc, data, budget);

    return status == ANGARA_ERR_UNSUPPORTED ? nic_cmd_post(pe, desc, data) : status;
}

angara_status_t nic_post(angara_peer_h base, ang_desc_t *desc, const void *data)
{
    nic_peer_t *peer = nic_peer(base);

    if (NIC_UNLIKELY(peer->error != ANGARA_OK)) {
        return peer->error;
    }
    data       = desc->op == ANG_OP_PUT_INLINE ? data : NULL;
    desc->pair = peer->pair;
    if (NIC_UNLIKELY(peer->is_self)) {
        uint64_t budget = ang_config.turn_bytes;

        return post_own(nic_peer_pe(peer), desc, data, &budget);
    }
    return nic_cmd_post(nic_peer_pe(peer), desc, data);
}

/* Descriptors in a row, one doorbell. Towards the own PE one by one: the CPU performs them. */
angara_status_t nic_post_batch(angara_peer_h base, ang_op_t op, const ang_item_t *items,
                               unsigned count, unsigned *posted_p)
{
    nic_peer_t     *peer   = nic_peer(base);
    nic_pe_t       *pe     = nic_peer_pe(peer);
    uint64_t        budget = ang_config.turn_bytes;
    angara_status_t status = peer->error;
    unsigned        n      = 0;

    while (status == ANGARA_OK && n < count) {
        ang_desc_t desc = ang_item_desc(op, &items[n]);

        desc.pair = peer->pair;
        if (NIC_UNLIKELY(peer->is_self)) {
            status = post_own(pe, &desc, NULL, &budget);
        } else if ((status = nic_cmd_room(pe, n + 1)) == ANGARA_OK) {
            nic_cmd_write(pe, n, &desc, NULL);
        }
        n += status == ANGARA_OK;
    }
    if (n != 0 && !peer->is_self) {
        nic_cmd_ring(pe, n);
    }
    *posted_p = n;
    return status;
}

/* ---- completion markers ---------------------------------------------------------------------- */

angara_status_t nic_marker(angara_peer_h base, uint32_t slot, uint64_t value)
{
    nic_peer_t *peer = nic_peer(base);
    nic_pe_t   *pe   = nic_peer_pe(peer);
    ang_desc_t  desc = {.op = ANG_OP_MARKER, .pair = peer->pair, .loffset = slot, .operand = value};

    if (NIC_UNLIKELY(peer->error != ANGARA_OK)) {
        return peer->error;
    }
    if (NIC_UNLIKELY(peer->is_self)) {
        if (nic_own_waits(pe)) {
            return nic_own_append(pe, &desc, NULL);
        }
        desc.op = nic_self_marker_op(pe, peer->pair);
    }
    return nic_cmd_post(pe, &desc, NULL);
}

angara_status_t nic_marker_self(angara_pe_h base, uint32_t slot, uint64_t value)
{
    nic_pe_t  *pe   = nic_pe(base);
    ang_desc_t desc = {
        .op = ANG_OP_MARKER_SELF, .pair = NIC_SELF_PAIR, .loffset = slot, .operand = value};

    if (NIC_UNLIKELY(pe->dead)) {
        return ANGARA_ERR_PEER_DEAD;
    }
    return nic_own_waits(pe) ? nic_own_append(pe, &desc, NULL) : nic_cmd_post(pe, &desc, NULL);
}
