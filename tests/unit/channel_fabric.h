/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fabric whose markers arrive when the test says, or are refused; so are batches. Messages travel
 * as ever. The linker puts these calls in place of the library's (UNIT_WRAP_... in build.mk).
 */
#ifndef ANGARA_TESTS_CHANNEL_FABRIC_H
#define ANGARA_TESTS_CHANNEL_FABRIC_H

#include "channel_pair.h"

#define POSTED_MAX 32
#define LIFETIME   50 /* turns in which what must not happen would have happened */

/* ---- the fabric ------------------------------------------------------------------------------ */

static struct {
    int                   is_refusing;
    int                   is_inline;  /* a marker has arrived when it is posted */
    int                   is_settled; /* the library says so */
    int                   settles;    /* it will, if it may hurry */
    angara_marker_slot_t *slot[POSTED_MAX];
    uint64_t              value[POSTED_MAX];
    unsigned              posted;
    unsigned              batch_max;           /* so many transfers of a batch are taken */
    unsigned              transfers;           /* of batches, posted */
    size_t                lengths[POSTED_MAX]; /* of these */
    unsigned              before_batch;        /* markers posted before the last batch */
    angara_batch_op_t     batch_op;            /* of the last batch */
    angara_peer_h         batch_peer;
} fabric;

static inline angara_status_t post(angara_marker_slot_t *slot, uint64_t value)
{
    if (fabric.is_refusing) {
        return ANGARA_ERR_NO_RESOURCE;
    }
    assert_true(fabric.posted < POSTED_MAX);
    assert_true((int64_t)(value - *slot) > 0);
    fabric.slot[fabric.posted]    = slot;
    fabric.value[fabric.posted++] = value;
    if (fabric.is_inline) {
        *slot = value;
    }
    return ANGARA_OK;
}

static inline void arrive(unsigned number)
{
    assert_true(number < fabric.posted);
    *fabric.slot[number] = fabric.value[number];
}

angara_status_t __wrap_angara_marker(angara_peer_h peer, angara_marker_slot_t *slot,
                                     uint64_t value);
angara_status_t __wrap_angara_marker(angara_peer_h peer, angara_marker_slot_t *slot, uint64_t value)
{
    assert_non_null(peer);
    return post(slot, value);
}

int __wrap_angara_peer_settled(angara_peer_h peer);
int __wrap_angara_peer_settled(angara_peer_h peer)
{
    assert_non_null(peer);
    return fabric.is_settled;
}

int __wrap_angara_peer_hurry(angara_peer_h peer);
int __wrap_angara_peer_hurry(angara_peer_h peer)
{
    assert_non_null(peer);
    fabric.is_settled |= fabric.settles;
    return fabric.is_settled;
}

angara_status_t __wrap_angara_marker_self(angara_pe_h pe, angara_marker_slot_t *slot,
                                          uint64_t value);
angara_status_t __wrap_angara_marker_self(angara_pe_h pe, angara_marker_slot_t *slot,
                                          uint64_t value)
{
    assert_non_null(pe);
    return post(slot, value);
}

angara_status_t __wrap_angara_offload_batch(angara_peer_h peer, angara_batch_op_t op,
                                            const angara_xfer_t *xfers, unsigned count,
                                            unsigned *posted_p);
angara_status_t __wrap_angara_offload_batch(angara_peer_h peer, angara_batch_op_t op,
                                            const angara_xfer_t *xfers, unsigned count,
                                            unsigned *posted_p)
{
    unsigned i;

    assert_in_range(count, 1, ANGARA_BATCH_MAX);
    for (i = 0; (i < count) && (i < fabric.batch_max); ++i) {
        fabric.lengths[fabric.transfers++ % POSTED_MAX] = xfers[i].length;
    }
    *posted_p           = i;
    fabric.before_batch = fabric.posted;
    fabric.batch_op     = op;
    fabric.batch_peer   = peer;
    return (i == count) ? ANGARA_OK : ANGARA_ERR_NO_RESOURCE;
}

/* ---- what ends ------------------------------------------------------------------------------- */

static struct {
    unsigned     calls;
    ucs_status_t status[POSTED_MAX];
    unsigned     tag[POSTED_MAX];
} ended;

static inline void on_end(uct_angara_port_t *port, uct_angara_op_t *op, ucs_status_t status)
{
    ended.status[ended.calls] = status;
    ended.tag[ended.calls++]  = op->tag;
    uct_angara_op_finish(port, op, UCS_OK);
}

static inline uct_angara_op_t *op_new(link_t *link, unsigned tag)
{
    uct_angara_op_t *op = uct_angara_op_get(&link->ch, on_end, NULL);

    assert_non_null(op);
    op->tag = tag;
    return op;
}

static inline void assert_ended(unsigned calls, unsigned tag, ucs_status_t status)
{
    assert_int_equal(ended.calls, calls);
    assert_int_equal(ended.tag[calls - 1], tag);
    assert_int_equal(ended.status[calls - 1], status);
}

/* A put that an operation of that tag stands for. */
static inline void put(link_t *link, unsigned tag)
{
    uint64_t value;

    link->ch.rma_dirty = 1;
    assert_int_equal(uct_angara_channel_try_complete(&link->ch, &value), UCS_INPROGRESS);
    uct_angara_channel_enqueue(&link->ch, op_new(link, tag), value);
}

#define FLUSH_TAG 77

static inline ucs_status_t flush(link_t *link)
{
    return uct_angara_channel_flush(&link->ch, on_end, NULL, (void *)(uintptr_t)FLUSH_TAG);
}

static inline pair_t start(void)
{
    uct_angara_port_config_t cfg = config();
    pair_t                   p;

    memset(&fabric, 0, sizeof(fabric));
    memset(&ended, 0, sizeof(ended));
    fabric.batch_max    = ANGARA_BATCH_MAX;
    p                   = pair_open(&cfg, deliver_plain);
    p.a->port.is_inline = 0;
    return p;
}

static inline void turns(pair_t *p)
{
    unsigned i;

    for (i = 0; i < LIFETIME; ++i) {
        turn(p->a);
        turn(p->b);
    }
}

#endif
