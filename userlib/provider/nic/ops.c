/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Window puts, offload operations and atomics: a call is a put or a descriptor, or, on the own PE,
 * a copy (self.c). Keys, bounds and rights are the NIC's to check.
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

/* `desc` lacks the pair. `data`: of an inline put. */
static inline angara_status_t perform(nic_peer_t *peer, struct angara_desc *desc, const void *data)
{
    if (NIC_UNLIKELY(peer->error != ANGARA_OK)) {
        return peer->error;
    }
    desc->pair = peer->pair;
    if (NIC_UNLIKELY(peer->is_self) && nic_self_perform(peer, desc, data)) {
        return ANGARA_OK;
    }
    return nic_post(nic_peer_pe(peer), desc);
}

static inline struct angara_desc rma_desc(uint8_t op, angara_mr_h lmr, const void *laddr,
                                          uint64_t rkey, uint64_t roffset, size_t length)
{
    return (struct angara_desc){
        .op      = op,
        .lkey    = lmr->key,
        .loffset = (uintptr_t)laddr - (uintptr_t)lmr->addr,
        .rkey    = rkey,
        .roffset = roffset,
        .length  = length,
    };
}

static angara_status_t rma(angara_peer_h base, uint8_t op, angara_mr_h lmr, const void *laddr,
                           uint64_t rkey, uint64_t roffset, size_t length)
{
    nic_peer_t        *peer = nic_peer(base);
    struct angara_desc desc = rma_desc(op, lmr, laddr, rkey, roffset, length);

    return perform(peer, &desc, NULL);
}

angara_status_t nic_offload_put(angara_peer_h peer, angara_mr_h lmr, const void *laddr,
                                uint64_t rkey, uint64_t roffset, size_t length)
{
    return rma(peer, ANGARA_OP_PUT, lmr, laddr, rkey, roffset, length);
}

angara_status_t nic_offload_get(angara_peer_h peer, angara_mr_h lmr, void *laddr, uint64_t rkey,
                                uint64_t roffset, size_t length)
{
    return rma(peer, ANGARA_OP_GET, lmr, laddr, rkey, roffset, length);
}

angara_status_t nic_offload_put_inline(angara_peer_h peer, const void *src, uint64_t rkey,
                                       uint64_t roffset, size_t length)
{
    struct angara_desc desc = {
        .op = ANGARA_OP_PUT_INLINE, .rkey = rkey, .roffset = roffset, .length = length};

    if (length != 0) {
        memcpy(desc.data, src, length);
    }
    return perform(nic_peer(peer), &desc, src);
}

angara_status_t nic_atomic(angara_peer_h peer, angara_atomic_op_t op, unsigned width,
                           uint64_t operand, uint64_t compare, uint64_t rkey, uint64_t roffset,
                           angara_mr_h lmr, void *result)
{
    struct angara_desc desc = {
        .op      = ANGARA_OP_ATOMIC,
        .atomic  = (uint8_t)op,
        .width   = (uint8_t)width,
        .rkey    = rkey,
        .roffset = roffset,
        .operand = operand,
        .compare = compare,
    };

    if (lmr != NULL) {
        desc.lkey    = lmr->key;
        desc.loffset = (uintptr_t)result - (uintptr_t)lmr->addr;
    }
    return perform(nic_peer(peer), &desc, NULL);
}

/* One by one: the CPU performs them, and what it can't goes to the NIC. */
static angara_status_t batch_self(nic_peer_t *peer, uint8_t op, const angara_xfer_t *xfers,
                                  unsigned count, unsigned *posted_p)
{
    angara_status_t status = ANGARA_OK;
    unsigned        n;

    for (n = 0; n < count; ++n) {
        status = rma(&peer->base, op, xfers[n].lmr, xfers[n].laddr, xfers[n].rkey, xfers[n].roffset,
                     xfers[n].length);
        if (status != ANGARA_OK) {
            break;
        }
    }
    *posted_p = n;
    return status;
}

/* Descriptors in a row, one doorbell. */
angara_status_t nic_offload_batch(angara_peer_h base, angara_batch_op_t op,
                                  const angara_xfer_t *xfers, unsigned count, unsigned *posted_p)
{
    uint8_t         code   = op == ANGARA_BATCH_GET ? ANGARA_OP_GET : ANGARA_OP_PUT;
    nic_peer_t     *peer   = nic_peer(base);
    nic_pe_t       *pe     = nic_peer_pe(peer);
    angara_status_t status = peer->error;
    unsigned        n      = 0;

    if (NIC_UNLIKELY(peer->is_self)) {
        return batch_self(peer, code, xfers, count, posted_p);
    }
    while (status == ANGARA_OK && n < count) {
        struct angara_desc desc = rma_desc(code, xfers[n].lmr, xfers[n].laddr, xfers[n].rkey,
                                           xfers[n].roffset, xfers[n].length);

        desc.pair = peer->pair;
        status    = nic_cmd_room(pe, n + 1);
        if (status == ANGARA_OK) {
            nic_cmd_write(pe, n++, &desc);
        }
    }
    if (n != 0) {
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
    struct angara_desc desc = {.op      = here ? ANGARA_OP_MARKER_SELF : ANGARA_OP_MARKER,
                               .pair    = peer->pair,
                               .loffset = slot,
                               .operand = value};

    return NIC_LIKELY(peer->error == ANGARA_OK) ? nic_post(pe, &desc) : peer->error;
}

angara_status_t nic_marker_self(angara_pe_h base, uint32_t slot, uint64_t value)
{
    struct angara_desc desc = {
        .op = ANGARA_OP_MARKER_SELF, .pair = NIC_SELF_PAIR, .loffset = slot, .operand = value};

    return NIC_LIKELY(!nic_pe(base)->dead) ? nic_post(nic_pe(base), &desc) : ANGARA_ERR_PEER_DEAD;
}
