/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control records: asking for, granting, closing and giving up rings. What happens when is decided
 * by uct_angara_life.c; this file sends the records and keeps rings and credit lines. What arrives
 * is read by uct_angara_hear.c.
 */
#include "uct_angara_control.h"

#include "uct_angara_ep.h"

#include <sched.h>

#define UCT_ANGARA_BYE_TRIES 1000 /* attempts to say good-bye to a full event ring */

_Static_assert(sizeof(uct_angara_hello_t) == ANGARA_NOTIFY_MAX, "HELLO fills a record");

/* ---- sending ------------------------------------------------------------------------------- */

static void uct_angara_control_send(uct_angara_peer_t *peer, const void *record, size_t length)
{
    angara_status_t            status = ANGARA_ERR_NO_RESOURCE;
    uct_angara_control_elem_t *elem;

    if (ucs_queue_is_empty(&peer->control)) {
        status = angara_notify(peer->ap, record, length);
    }

    if (status == ANGARA_ERR_NO_RESOURCE) {
        elem = ucs_malloc(sizeof(*elem), "angara_control");
        if (elem == NULL) {
            uct_angara_peer_fail(peer, UCS_ERR_NO_MEMORY, "no memory for a control record to %s",
                                 angara_peer_name(peer->ap));
            return;
        }
        elem->length = length;
        memcpy(elem->data, record, length);
        ucs_queue_push(&peer->control, &elem->queue);
        uct_angara_peer_activate(peer);
    } else if (status != ANGARA_OK) {
        uct_angara_peer_error(peer, status, "control record");
    }
}

unsigned uct_angara_control_retry(uct_angara_peer_t *peer)
{
    unsigned                   count = 0;
    uct_angara_control_elem_t *elem;
    angara_status_t            status;

    while (!ucs_queue_is_empty(&peer->control)) {
        elem   = ucs_queue_head_elem_non_empty(&peer->control, uct_angara_control_elem_t, queue);
        status = angara_notify(peer->ap, elem->data, elem->length);
        if (status == ANGARA_ERR_NO_RESOURCE) {
            break;
        }

        ucs_queue_pull_non_empty(&peer->control);
        ucs_free(elem);
        ++count;
        if (status != ANGARA_OK) {
            uct_angara_peer_error(peer, status, "control record");
        }
    }

    return count;
}

/* ---- the ring that we send to -------------------------------------------------------------- */

/* Take a credit line. */
static ucs_status_t uct_angara_control_take_credit(uct_angara_peer_t *peer)
{
    uct_angara_iface_t *iface = peer->iface;
    angara_status_t     status;
    unsigned            index;
    size_t              offset;

    if (uct_angara_idmap_get(&iface->credit_ids, &index) != UCS_OK) {
        uct_angara_peer_fail(peer, UCS_ERR_EXCEEDS_LIMIT,
                             "cannot send to %s: %u peers are connected already: raise "
                             "UCX_ANGARA_MAX_PEERS, or set UCX_NUM_EPS to the number of peers, so "
                             "that UCP takes a transport that has room for them",
                             angara_peer_name(peer->ap), iface->config.max_peers);
        return peer->status;
    }

    offset = uct_angara_iface_credit_off(iface, index);
    status = angara_pe_window_commit(iface->pe, offset, UCT_ANGARA_CREDIT_LINE);
    if (status != ANGARA_OK) {
        uct_angara_idmap_put(&iface->credit_ids, index);
        uct_angara_peer_fail(peer, UCS_ERR_NO_MEMORY, "cannot send to %s: credit line: %s",
                             angara_peer_name(peer->ap), angara_strerror(status));
        return peer->status;
    }

    peer->credit_index = index;
    peer->tx.credit    = (volatile uint64_t *)(iface->window + offset);
    *peer->tx.credit   = 0;
    return UCS_OK;
}

ucs_status_t uct_angara_control_hello(uct_angara_peer_t *peer)
{
    ucs_status_t status;

    if ((peer->life.state != UCT_ANGARA_LIFE_UP) || (peer->life.tx != UCT_ANGARA_TX_IDLE)) {
        return UCS_ERR_NO_RESOURCE; /* an answer comes first */
    }

    status = uct_angara_control_take_credit(peer);
    if (status != UCS_OK) {
        return status;
    }

    uct_angara_control_step(peer, UCT_ANGARA_EV_SEND);
    return (peer->status == UCS_OK) ? UCS_ERR_NO_RESOURCE : peer->status;
}

static void uct_angara_control_send_hello(uct_angara_peer_t *peer)
{
    uct_angara_iface_t *iface = peer->iface;
    uct_angara_hello_t  hello;

    /* Never 0, and never that of the last connection, however many of other peers lie between. One
     * counter for all: a peer that was freed, and is made anew, doesn't begin with the same number.
     */
    do {
        iface->epoch = (iface->epoch % UINT8_MAX) + 1;
    } while (iface->epoch == peer->life.tx_epoch);
    peer->life.tx_epoch = iface->epoch;
    peer->tx.shape      = iface->shape;
    if (angara_peer_fast(peer->ap)->window != NULL) {
        peer->tx.shape.seg_shift = UCT_ANGARA_NO_SEGS; /* stores have no largest size */
    }

    hello.super       = uct_angara_record(UCT_ANGARA_HELLO, peer->life.tx_epoch, peer->credit_index,
                                          peer->tx.shape.run_slots);
    hello.super.shape = (peer->tx.shape.slot_shift - UCT_ANGARA_SLOT_SHIFT_MIN) |
                        (peer->tx.shape.seg_shift << 4);
    hello.address = iface->address;
    uct_angara_control_send(peer, &hello, sizeof(hello));
}

static void uct_angara_control_send_close(uct_angara_peer_t *peer)
{
    uct_angara_close_t record;

    record.super = uct_angara_record(UCT_ANGARA_CLOSE, peer->life.tx_epoch, peer->credit_index, 0);
    record.total = peer->tx.head;
    uct_angara_control_send(peer, &record, sizeof(record));
}

/* A marker of the handshake has come back. If it never does, the connection has failed: then
 * nothing of the handshake is left to be done. */
static void uct_angara_control_flushed(uct_angara_iface_t *iface, uct_angara_op_t *op,
                                       ucs_status_t status)
{
    uct_angara_peer_t *peer  = op->peer;
    uct_angara_event_t event = op->event;

    uct_angara_op_finish(iface, op, UCS_OK);
    if (status == UCS_OK) {
        uct_angara_control_step(peer, event);
    }
}

/* All our writes must have landed before the peer hears of it: @a event says that they have. */
static void uct_angara_control_flush(uct_angara_peer_t *peer, uct_angara_event_t event)
{
    ucs_status_t status;

    status = uct_angara_peer_flush_ours(peer, uct_angara_control_flushed, event);
    if (status == UCS_OK) {
        uct_angara_control_step(peer, event);
    } else if (UCS_STATUS_IS_ERR(status)) {
        uct_angara_peer_fail(peer, status, "cannot close to %s: %s", angara_peer_name(peer->ap),
                             ucs_status_string(status));
    }
}

static void uct_angara_control_free_tx(uct_angara_peer_t *peer)
{
    uct_angara_idmap_put(&peer->iface->credit_ids, peer->credit_index);
    uct_angara_peer_add_stats(peer);
    uct_angara_tx_close(&peer->tx);
}

/* ---- the ring that we receive from ---------------------------------------------------------- */

static void uct_angara_control_refuse(uct_angara_peer_t *peer, uint8_t reason)
{
    uct_angara_record_t record = uct_angara_record(UCT_ANGARA_REFUSE, peer->life.rx_epoch,
                                                   peer->rx.credit_off / UCT_ANGARA_CREDIT_LINE, 0);

    record.shape = reason;
    uct_angara_control_send(peer, &record, sizeof(record));
}

static void uct_angara_control_free_rx(uct_angara_peer_t *peer)
{
    uct_angara_idmap_put(&peer->iface->ring_ids, peer->rx.index);
}

/* Slots of a ring of @a bytes, cut as the sender wants them. */
static uint32_t uct_angara_control_nslots(size_t bytes, const uct_angara_shape_t *shape)
{
    return ucs_min(bytes >> shape->slot_shift, UCT_ANGARA_SLOTS_MAX);
}

/* Whether a peer gets a ring must not depend on who came first: what fits is asked of a small one.
 */
static int uct_angara_control_fits(const uct_angara_iface_t *iface, const uct_angara_shape_t *shape)
{
    uint32_t nslots = uct_angara_control_nslots(iface->ring_bytes, shape);

    return (nslots >= UCT_ANGARA_SLOTS_MIN) &&
           (shape->run_slots <= uct_angara_run_slots_max(nslots, shape->slot_shift)) &&
           (uct_angara_shape_run_bytes(shape) <= iface->run_bytes);
}

/* Make the ring that HELLO asks for. @return 0 or the reason to refuse. */
static uint8_t uct_angara_control_make_ring(uct_angara_peer_t *peer)
{
    uct_angara_iface_t *iface = peer->iface;
    uct_angara_rx_t    *rx    = &peer->rx;
    uct_angara_shape_t  shape = rx->shape;
    uct_angara_grant_t  grant;
    angara_status_t     status;
    unsigned            index;
    size_t              offset, bytes;

    if (!uct_angara_control_fits(iface, &shape)) {
        return UCT_ANGARA_REFUSE_SHAPE;
    }

    if (uct_angara_idmap_get(&iface->ring_ids, &index) != UCS_OK) {
        return UCT_ANGARA_REFUSE_PEERS;
    }

    shape.nslots = uct_angara_control_nslots(uct_angara_iface_ring_bytes(iface, index), &shape);
    bytes        = uct_angara_shape_bytes(&shape);
    offset       = uct_angara_iface_ring_off(iface, index);
    status       = angara_pe_window_commit(iface->pe, offset, bytes);
    if (status != ANGARA_OK) {
        ucs_error("angara: no memory for a receive ring of %zu bytes: %s", bytes,
                  angara_strerror(status));
        uct_angara_idmap_put(&iface->ring_ids, index);
        return UCT_ANGARA_REFUSE_MEMORY;
    }

    /* nobody writes to either before the grant */
    memset(iface->window + offset, 0, bytes);
    iface->ready[index]    = 0;
    iface->consumed[index] = 0;

    rx->index = index;
    uct_angara_rx_open(rx, iface->window + offset, &shape);
    uct_angara_iface_add_ring(iface, rx);
    peer->is_bound |= !ucs_list_is_empty(&peer->eps);

    grant.super     = uct_angara_record(UCT_ANGARA_GRANT, peer->life.rx_epoch,
                                        rx->credit_off / UCT_ANGARA_CREDIT_LINE, index);
    grant.ring_off  = offset;
    grant.ready_off = uct_angara_iface_ready_off(iface, index);
    grant.nslots    = shape.nslots;
    uct_angara_control_send(peer, &grant, sizeof(grant));
    return 0;
}

void uct_angara_control_stop_rx(uct_angara_peer_t *peer)
{
    if (peer->rx.open) {
        uct_angara_iface_remove_ring(peer->iface, &peer->rx);
        peer->rx.open        = 0;
        peer->rx.credit_owed = 0;
    }
}

static void uct_angara_control_send_close_ack(uct_angara_peer_t         *peer,
                                              const uct_angara_record_t *close)
{
    uct_angara_record_t record = uct_angara_record(UCT_ANGARA_CLOSE_ACK, peer->life.rx_epoch,
                                                   peer->rx.credit_off / UCT_ANGARA_CREDIT_LINE,
                                                   peer->rx.index);

    if (close != NULL) { /* of what isn't open any more */
        record = uct_angara_record(UCT_ANGARA_CLOSE_ACK, close->epoch, close->credit_index, 0);
    }
    uct_angara_control_send(peer, &record, sizeof(record));
}

/* ---- giving up ------------------------------------------------------------------------------ */

static void uct_angara_control_send_reset(uct_angara_peer_t *peer)
{
    const uct_angara_life_t *life = &peer->life;
    uct_angara_hello_t       reset;

    reset.super       = uct_angara_record(UCT_ANGARA_RESET,
                                    (life->tx == UCT_ANGARA_TX_LOST) ? life->tx_epoch : 0, 0, 0);
    reset.super.shape = (life->rx == UCT_ANGARA_RX_LOST) ? life->rx_epoch : 0;
    reset.address     = peer->iface->address;
    uct_angara_control_send(peer, &reset, sizeof(reset));
}

static void uct_angara_control_send_reset_ack(uct_angara_peer_t *peer)
{
    uct_angara_record_t record = uct_angara_record(UCT_ANGARA_RESET_ACK, peer->reset_tx, 0, 0);

    record.shape = peer->reset_rx;
    uct_angara_control_send(peer, &record, sizeof(record));
}

void uct_angara_control_drop(uct_angara_peer_t *peer)
{
    uct_angara_control_stop_rx(peer);
    if (uct_angara_life_has_ring(&peer->life)) {
        uct_angara_control_free_rx(peer);
    }
    if (peer->life.tx != UCT_ANGARA_TX_IDLE) {
        uct_angara_control_free_tx(peer);
    }
}

/* ---- what an event leads to ------------------------------------------------------------------ */

unsigned uct_angara_control_do(uct_angara_peer_t *peer, uct_angara_event_t event,
                               const uct_angara_record_t *record)
{
    unsigned todo   = uct_angara_life_step(&peer->life, event);
    uint8_t  reason = 0;

    uct_angara_peer_update(peer);
    if (todo & UCT_ANGARA_DO_HELLO) {
        uct_angara_control_send_hello(peer);
    }
    if (todo & UCT_ANGARA_DO_USE_RING) {
        peer->is_bound = 1;
        if (!uct_angara_early_is_empty(&peer->early)) {
            uct_angara_peer_activate(peer);
        }
    }
    if (todo & UCT_ANGARA_DO_MAKE_RING) {
        reason = uct_angara_control_make_ring(peer);
        if (reason != 0) {
            uct_angara_life_step(&peer->life, UCT_ANGARA_EV_NO_RING);
            uct_angara_control_refuse(peer, reason);
            uct_angara_peer_activate(peer); /* it may be free at once */
        }
    }
    if (todo & UCT_ANGARA_DO_CLOSE) {
        uct_angara_control_send_close(peer);
    }
    if (todo & UCT_ANGARA_DO_RESET) {
        uct_angara_control_send_reset(peer);
    }
    if (todo & UCT_ANGARA_DO_STOP) {
        uct_angara_peer_stop(peer);
    }
    if (todo & UCT_ANGARA_DO_FREE_TX) {
        uct_angara_control_free_tx(peer);
    }
    if (todo & UCT_ANGARA_DO_FREE_RX) {
        uct_angara_control_free_rx(peer);
    }
    if (todo & UCT_ANGARA_DO_CLOSE_ACK) {
        uct_angara_control_send_close_ack(peer, record);
    }
    if (todo & UCT_ANGARA_DO_RESET_ACK) {
        uct_angara_control_send_reset_ack(peer);
    }
    if (todo & UCT_ANGARA_DO_TURN) {
        uct_angara_peer_activate(peer);
    }
    if (todo & UCT_ANGARA_DO_FLUSH_TX) {
        uct_angara_control_flush(peer, UCT_ANGARA_EV_FLUSHED);
    }
    if (todo & UCT_ANGARA_DO_FLUSH_RX) {
        uct_angara_control_stop_rx(peer);
        /* our last credit must have landed before the peer reuses its credit line */
        peer->is_credit_dirty = (peer->rx.credited > 0);
        uct_angara_control_flush(peer, UCT_ANGARA_EV_CREDITED);
    }
    return todo;
}

void uct_angara_control_step(uct_angara_peer_t *peer, uct_angara_event_t event)
{
    uct_angara_control_do(peer, event, NULL);
}

/* ---- good-bye ------------------------------------------------------------------------------ */

void uct_angara_control_bye(uct_angara_peer_t *peer)
{
    uct_angara_record_t record = uct_angara_record(UCT_ANGARA_BYE, 0, 0, 0);
    unsigned            tries;

    for (tries = 0; tries < UCT_ANGARA_BYE_TRIES; ++tries) {
        uct_angara_control_retry(peer);
        if (peer->rx.open && (peer->rx.credited != peer->rx.tail)) {
            uct_angara_rx_return_credits(&peer->rx); /* so that the peer knows what was consumed */
        }
        if (ucs_queue_is_empty(&peer->control) && !peer->rx.credit_owed &&
            (angara_notify(peer->ap, &record, sizeof(record)) != ANGARA_ERR_NO_RESOURCE)) {
            return;
        }
        uct_angara_iface_push(peer->iface);
        sched_yield();
    }

    ucs_diag("angara: %s did not take the good-bye", angara_peer_name(peer->ap));
}
