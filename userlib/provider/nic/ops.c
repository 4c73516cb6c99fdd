/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Window puts, ring operations and markers: a call is a put or a descriptor, or, on the own PE, a
 * copy (self.c). Keys, bounds and rights are the NIC's to check.
 */
#include "nic.h"

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
        nic_self_put(peer, head->offset, src, length, head->flag_offset, flag)) {
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

angara_status_t nic_post(angara_peer_h base, ang_desc_t *desc, const void *data)
{
    nic_peer_t *peer = nic_peer(base);

    if (NIC_UNLIKELY(peer->error != ANGARA_OK)) {
        return peer->error;
    }
    desc->pair = peer->pair;
    if (NIC_UNLIKELY(peer->is_self) && nic_self_perform(peer, desc, data)) {
        return ANGARA_OK;
    }
    return nic_cmd_post(nic_peer_pe(peer), desc, data);
}

/* Descriptors in a row, one doorbell. Towards the own PE one by one: the CPU performs them. */
angara_status_t nic_post_batch(angara_peer_h base, ang_desc_t *descs, unsigned count,
                               unsigned *posted_p)
{
    nic_peer_t     *peer   = nic_peer(base);
    nic_pe_t       *pe     = nic_peer_pe(peer);
    angara_status_t status = peer->error;
    unsigned        n      = 0;

    while (status == ANGARA_OK && n < count) {
        descs[n].pair = peer->pair;
        if (NIC_UNLIKELY(peer->is_self)) {
            status = nic_post(base, &descs[n], NULL);
        } else if ((status = nic_cmd_room(pe, n + 1)) == ANGARA_OK) {
            nic_cmd_write(pe, n, &descs[n], NULL);
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

/*
 * Towards the own PE everything has been performed by the CPU, and the NIC only has to store the
 * value: reading back from the own node isn't possible on each NIC.
 */
angara_status_t nic_marker(angara_peer_h base, uint32_t slot, uint64_t value)
{
    nic_peer_t *peer = nic_peer(base);
    nic_pe_t   *pe   = nic_peer_pe(peer);
    int here = peer->is_self && (!peer->by_device || !(pe->dom->info.caps & ANGARA_INFO_LOOPBACK));
    ang_desc_t desc = {.op      = here ? ANG_OP_MARKER_SELF : ANG_OP_MARKER,
                       .pair    = peer->pair,
                       .loffset = slot,
                       .operand = value};

    return NIC_LIKELY(peer->error == ANGARA_OK) ? nic_cmd_post(pe, &desc, NULL) : peer->error;
}

angara_status_t nic_marker_self(angara_pe_h base, uint32_t slot, uint64_t value)
{
    ang_desc_t desc = {
        .op = ANG_OP_MARKER_SELF, .pair = NIC_SELF_PAIR, .loffset = slot, .operand = value};

    return NIC_LIKELY(!nic_pe(base)->dead) ? nic_cmd_post(nic_pe(base), &desc, NULL) :
                                             ANGARA_ERR_PEER_DEAD;
}
