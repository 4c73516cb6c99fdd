/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control records: asking for, granting and closing rings; events of the PE. Everything that
 * arrives here was written by another process and is checked before use.
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

    if (peer->status != UCS_OK) {
        return;
    }

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
        status = (peer->status == UCS_OK) ? angara_notify(peer->ap, elem->data, elem->length) :
                                            ANGARA_OK; /* dropped */
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

static uct_angara_record_t uct_angara_record(uint8_t type, uint8_t epoch, uint16_t credit_index,
                                             uint16_t value)
{
    uct_angara_record_t record = {.type         = type,
                                  .version      = UCT_ANGARA_PROTOCOL,
                                  .epoch        = epoch,
                                  .credit_index = credit_index,
                                  .value        = value};

    return record;
}

/* ---- the ring that we send to -------------------------------------------------------------- */

static void uct_angara_control_release_credit(uct_angara_peer_t *peer)
{
    if (peer->has_credit) {
        uct_angara_idmap_put(&peer->iface->credit_ids, peer->credit_index);
        peer->has_credit = 0;
    }
}

ucs_status_t uct_angara_control_hello(uct_angara_peer_t *peer)
{
    uct_angara_iface_t *iface = peer->iface;
    uct_angara_hello_t  hello;
    angara_status_t     status;
    unsigned            index;
    size_t              offset;

    if (uct_angara_idmap_get(&iface->credit_ids, &index) != UCS_OK) {
        uct_angara_peer_fail(peer, UCS_ERR_EXCEEDS_LIMIT,
                             "cannot send to %s: %u peers are connected already "
                             "(UCX_ANGARA_MAX_PEERS)",
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

    peer->has_credit   = 1;
    peer->credit_index = index;
    peer->epoch        = ++iface->epoch;
    peer->tx_state     = UCT_ANGARA_TX_HELLO;
    peer->tx.shape     = iface->shape;
    peer->tx.credit    = (volatile uint64_t *)(iface->window + offset);
    *peer->tx.credit   = 0;
    if (angara_peer_fast(peer->ap)->window != NULL) {
        peer->tx.shape.seg_shift = UCT_ANGARA_NO_SEGS; /* stores have no largest size */
    }

    hello.super = uct_angara_record(UCT_ANGARA_HELLO, peer->epoch, index, peer->tx.shape.run_slots);
    hello.super.shape = (peer->tx.shape.slot_shift - UCT_ANGARA_SLOT_SHIFT_MIN) |
                        (peer->tx.shape.seg_shift << 4);
    hello.address = iface->address;
    uct_angara_control_send(peer, &hello, sizeof(hello));
    return peer->status;
}

static void uct_angara_control_send_close(uct_angara_peer_t *peer)
{
    uct_angara_close_t record;

    record.super   = uct_angara_record(UCT_ANGARA_CLOSE, peer->epoch, peer->credit_index, 0);
    record.total   = peer->tx.head;
    peer->tx_state = UCT_ANGARA_TX_CLOSE;
    uct_angara_control_send(peer, &record, sizeof(record));
}

static void uct_angara_control_close_flushed(uct_angara_iface_t *iface, uct_angara_op_t *op,
                                             ucs_status_t status)
{
    uct_angara_peer_t *peer = op->peer;

    uct_angara_op_finish(iface, op, UCS_OK);
    if (status == UCS_OK) {
        uct_angara_control_send_close(peer);
    }
}

void uct_angara_control_close(uct_angara_peer_t *peer)
{
    ucs_status_t status;

    if (peer->tx_state != UCT_ANGARA_TX_OPEN) {
        return; /* nothing to close, or GRANT or CLOSE_ACK comes first */
    }

    /* All our writes must have landed when CLOSE arrives: the peer reuses the ring. */
    peer->tx_state = UCT_ANGARA_TX_FLUSH;
    peer->blocked |= UCT_ANGARA_BLOCK_RING;
    uct_angara_peer_update(peer);
    status = uct_angara_peer_flush(peer, uct_angara_control_close_flushed, NULL, peer);
    if (status == UCS_OK) {
        uct_angara_control_send_close(peer);
    } else if (UCS_STATUS_IS_ERR(status)) {
        uct_angara_peer_fail(peer, status, "cannot close to %s: %s", angara_peer_name(peer->ap),
                             ucs_status_string(status));
    }
}

static const char *uct_angara_control_granted(uct_angara_peer_t        *peer,
                                              const uct_angara_grant_t *grant)
{
    uint64_t           window = angara_peer_fast(peer->ap)->window_size;
    uct_angara_shape_t shape  = peer->tx.shape;
    uint64_t           bytes;

    if (peer->tx_state != UCT_ANGARA_TX_HELLO) {
        return "a grant that was not asked for";
    }

    shape.nslots = grant->nslots;
    bytes        = uct_angara_shape_bytes(&shape);
    if ((shape.nslots < UCT_ANGARA_SLOTS_MIN) || (shape.nslots > UCT_ANGARA_SLOTS_MAX) ||
        (shape.run_slots > uct_angara_run_slots_max(shape.nslots, shape.slot_shift))) {
        return "a ring of an impossible size";
    }

    if ((grant->ring_off % 64) || (grant->ready_off % sizeof(uint16_t)) ||
        (grant->ring_off > UINT64_MAX - bytes) ||
        (grant->ready_off > UINT64_MAX - sizeof(uint16_t)) ||
        ((window > 0) &&
         ((grant->ring_off + bytes > window) || (grant->ready_off + sizeof(uint16_t) > window)))) {
        return "a ring outside its window";
    }

    peer->tx.shape = shape;
    if (uct_angara_tx_open(&peer->tx, grant->ring_off, grant->ready_off) != UCS_OK) {
        return "a ring, but there is no memory to use it";
    }

    peer->tx_state = UCT_ANGARA_TX_OPEN;
    peer->blocked &= ~UCT_ANGARA_BLOCK_RING;
    uct_angara_peer_update(peer);
    if (ucs_list_is_empty(&peer->eps)) {
        uct_angara_control_close(peer); /* nobody wants it any more */
    }
    return NULL;
}

static const char *uct_angara_control_refused(uct_angara_peer_t *peer, uint8_t reason)
{
    const char *text;

    if (peer->tx_state != UCT_ANGARA_TX_HELLO) {
        return "a refusal of nothing";
    }

    switch (reason) {
    case UCT_ANGARA_REFUSE_PEERS:
        text = "it has UCX_ANGARA_MAX_PEERS peers already";
        break;
    case UCT_ANGARA_REFUSE_SHAPE:
        text = "UCX_ANGARA_RING_SLOTS, UCX_ANGARA_SLOT_SIZE or UCX_ANGARA_SEG_SIZE is larger here: "
               "set them alike";
        break;
    case UCT_ANGARA_REFUSE_FAILED:
        text = "it has given up on this process after an error";
        break;
    default:
        text = "it has no memory for it";
        break;
    }

    peer->tx_state = UCT_ANGARA_TX_IDLE;
    uct_angara_control_release_credit(peer);
    uct_angara_peer_fail(peer, UCS_ERR_REJECTED, "%s refused a receive ring: %s",
                         angara_peer_name(peer->ap), text);
    return NULL;
}

static const char *uct_angara_control_close_acked(uct_angara_peer_t *peer)
{
    if (peer->tx_state != UCT_ANGARA_TX_CLOSE) {
        return "an acknowledgement of nothing";
    }

    uct_angara_peer_add_stats(peer);
    uct_angara_tx_close(&peer->tx);
    uct_angara_control_release_credit(peer);
    peer->tx_state = UCT_ANGARA_TX_IDLE;
    uct_angara_peer_activate(peer); /* it may be free now */
    return NULL;
}

/* ---- the ring that we receive from ---------------------------------------------------------- */

static void uct_angara_control_refuse(uct_angara_peer_t *peer, const uct_angara_hello_t *hello,
                                      uint8_t reason)
{
    uct_angara_record_t record = uct_angara_record(UCT_ANGARA_REFUSE, hello->super.epoch,
                                                   hello->super.credit_index, 0);

    record.shape = reason;
    uct_angara_control_send(peer, &record, sizeof(record));
}

void uct_angara_control_drop_rx(uct_angara_peer_t *peer)
{
    uct_angara_iface_t *iface = peer->iface;
    uct_angara_rx_t    *rx    = &peer->rx;

    if (rx->open) {
        uct_angara_iface_remove_ring(iface, rx);
        rx->open        = 0;
        rx->closing     = 0;
        rx->credit_owed = 0;
    } else if (!peer->acking) {
        return;
    }

    peer->acking = 0;
    uct_angara_aside_give_up(peer, &iface->ring_ids, rx->index);
}

void uct_angara_control_drop(uct_angara_peer_t *peer)
{
    uct_angara_control_drop_rx(peer);
    if (peer->has_credit) {
        peer->has_credit = 0;
        uct_angara_aside_give_up(peer, &peer->iface->credit_ids, peer->credit_index);
    }
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
static uint8_t uct_angara_control_grant(uct_angara_peer_t *peer, const uct_angara_hello_t *hello,
                                        uct_angara_shape_t *shape)
{
    uct_angara_iface_t *iface = peer->iface;
    uct_angara_rx_t    *rx    = &peer->rx;
    uct_angara_grant_t  grant;
    angara_status_t     status;
    unsigned            index;
    size_t              offset, bytes;

    if (!uct_angara_control_fits(iface, shape)) {
        return UCT_ANGARA_REFUSE_SHAPE;
    }

    if (uct_angara_idmap_get(&iface->ring_ids, &index) != UCS_OK) {
        return UCT_ANGARA_REFUSE_PEERS;
    }

    shape->nslots = uct_angara_control_nslots(uct_angara_iface_ring_bytes(iface, index), shape);
    bytes         = uct_angara_shape_bytes(shape);
    offset        = uct_angara_iface_ring_off(iface, index);
    status        = angara_pe_window_commit(iface->pe, offset, bytes);
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

    rx->index      = index;
    rx->epoch      = hello->super.epoch;
    rx->credit_off = hello->super.credit_index * (uint64_t)UCT_ANGARA_CREDIT_LINE;
    uct_angara_rx_open(rx, iface->window + offset, shape);
    uct_angara_iface_add_ring(iface, rx);
    peer->it_closed = 0;

    grant.super = uct_angara_record(UCT_ANGARA_GRANT, rx->epoch, hello->super.credit_index, index);
    grant.ring_off  = offset;
    grant.ready_off = uct_angara_iface_ready_off(iface, index);
    grant.nslots    = shape->nslots;
    uct_angara_control_send(peer, &grant, sizeof(grant));
    return 0;
}

/* Refuse without a peer object, so that the sender doesn't wait for an answer. */
static void uct_angara_control_refuse_raw(uct_angara_iface_t       *iface,
                                          const uct_angara_hello_t *hello, uint8_t reason)
{
    angara_address_t    address = hello->address;
    uct_angara_record_t record  = uct_angara_record(UCT_ANGARA_REFUSE, hello->super.epoch,
                                                    hello->super.credit_index, 0);
    angara_peer_h       ap;

    record.shape = reason;
    if (angara_peer_connect(iface->pe, &address, &ap) != ANGARA_OK) {
        return; /* it has gone, or it isn't what it says */
    }

    if (angara_notify(ap, &record, sizeof(record)) == ANGARA_ERR_NO_RESOURCE) {
        ucs_error("angara: %s can't be told that its greeting is refused", angara_peer_name(ap));
    }
    angara_peer_disconnect(ap);
}

void uct_angara_control_hello_in(uct_angara_iface_t *iface, angara_peer_h from,
                                 const uct_angara_hello_t *hello)
{
    angara_address_t   address = hello->address;
    uct_angara_shape_t shape;
    uct_angara_peer_t *peer;
    ucs_status_t       status;
    uint64_t           window;
    uint8_t            reason;

    if (address.magic != ANGARA_ADDRESS_MAGIC) {
        uct_angara_event_complain(iface, "a greeting without an address");
        return;
    }

    if (address.version != ANGARA_WIRE_VERSION) {
        ucs_error("angara: a process of libangara wire version %u greeted this one of version %u: "
                  "use the same libangara in all processes",
                  address.version, ANGARA_WIRE_VERSION);
        return;
    }

    shape.nslots     = 0; /* ours to choose */
    shape.run_slots  = hello->super.value;
    shape.slot_shift = (hello->super.shape & 0xf) + UCT_ANGARA_SLOT_SHIFT_MIN;
    shape.seg_shift  = hello->super.shape >> 4;
    if ((shape.run_slots < 1) || (shape.slot_shift > UCT_ANGARA_SLOT_SHIFT_MAX)) {
        ucs_error("angara: PE %u of node %u asks for an impossible ring (runs of %u slots of 2^%u "
                  "bytes): refused",
                  address.index, address.node, shape.run_slots, shape.slot_shift);
        uct_angara_control_refuse_raw(iface, hello, UCT_ANGARA_REFUSE_SHAPE);
        return;
    }

    status = uct_angara_peer_get(iface, &address, &peer);
    if (status != UCS_OK) {
        ucs_diag("angara: cannot answer PE %u of node %u: %s", address.index, address.node,
                 ucs_status_string(status));
        uct_angara_control_refuse_raw(iface, hello, UCT_ANGARA_REFUSE_FAILED);
        return;
    }

    window = angara_peer_fast(peer->ap)->window_size;
    if (((from != NULL) && (from != peer->ap)) ||
        ((window > 0) && ((hello->super.credit_index + 1ul) * UCT_ANGARA_CREDIT_LINE > window))) {
        uct_angara_peer_fail(peer, UCS_ERR_CONNECTION_RESET, "%s sent a bad greeting",
                             angara_peer_name(peer->ap));
        return;
    }

    if (peer->rx.open || peer->acking) {
        ucs_diag("angara: %s starts over", angara_peer_name(peer->ap));
        uct_angara_control_drop_rx(peer);
    }

    reason = uct_angara_control_grant(peer, hello, &shape);
    if (reason != 0) {
        uct_angara_control_refuse(peer, hello, reason);
        uct_angara_peer_activate(peer); /* it may be free at once */
    }
}

static void uct_angara_control_send_ack(uct_angara_peer_t *peer)
{
    uct_angara_rx_t    *rx     = &peer->rx;
    uct_angara_record_t record = uct_angara_record(
        UCT_ANGARA_CLOSE_ACK, rx->epoch, rx->credit_off / UCT_ANGARA_CREDIT_LINE, rx->index);

    uct_angara_idmap_put(&peer->iface->ring_ids, rx->index);
    peer->acking = 0;
    uct_angara_control_send(peer, &record, sizeof(record));
    uct_angara_peer_activate(peer);
}

static void uct_angara_control_ack_flushed(uct_angara_iface_t *iface, uct_angara_op_t *op,
                                           ucs_status_t status)
{
    uct_angara_peer_t *peer = op->peer;

    uct_angara_op_finish(iface, op, UCS_OK);
    if (!peer->acking) {
        return; /* it has started over in the meantime */
    }

    if (status == UCS_OK) {
        uct_angara_control_send_ack(peer);
    } else {
        uct_angara_control_drop_rx(peer);
    }
}

void uct_angara_control_closed(uct_angara_peer_t *peer)
{
    uct_angara_rx_t *rx = &peer->rx;
    ucs_status_t     status;

    uct_angara_iface_remove_ring(peer->iface, rx);
    rx->open        = 0;
    rx->closing     = 0;
    rx->credit_owed = 0;
    peer->acking    = 1;
    peer->it_closed = 1;

    /* Our last credit must have landed before the peer reuses its credit line. */
    if (rx->credited > 0) {
        peer->rma_dirty = 1;
    }
    status = uct_angara_peer_flush(peer, uct_angara_control_ack_flushed, NULL, peer);
    if (status == UCS_OK) {
        uct_angara_control_send_ack(peer);
    } else if (UCS_STATUS_IS_ERR(status)) {
        uct_angara_control_drop_rx(peer);
    }
}

static const char *uct_angara_control_close_in(uct_angara_peer_t        *peer,
                                               const uct_angara_close_t *record)
{
    uct_angara_rx_t *rx = &peer->rx;

    if (!rx->open || rx->closing || (record->super.epoch != rx->epoch)) {
        return "a close of a ring that is not open";
    }

    if ((record->total < rx->tail) || (record->total - rx->tail > rx->shape.nslots)) {
        return "an impossible number of slots at close";
    }

    rx->closing = 1;
    rx->total   = record->total;
    uct_angara_peer_activate(peer);
    return NULL;
}

/* ---- good-bye ------------------------------------------------------------------------------ */

void uct_angara_control_bye(uct_angara_peer_t *peer)
{
    uct_angara_record_t record = uct_angara_record(UCT_ANGARA_BYE, 0, 0, 0);
    unsigned            tries;

    for (tries = 0; tries < UCT_ANGARA_BYE_TRIES; ++tries) {
        uct_angara_control_retry(peer);
        if (ucs_queue_is_empty(&peer->control) &&
            (angara_notify(peer->ap, &record, sizeof(record)) != ANGARA_ERR_NO_RESOURCE)) {
            return;
        }
        uct_angara_iface_push(peer->iface);
        sched_yield();
    }

    ucs_diag("angara: %s did not take the good-bye", angara_peer_name(peer->ap));
}

/* ---- records of known peers ---------------------------------------------------------------- */

const char *uct_angara_control_record(uct_angara_peer_t *peer, const void *data, size_t length)
{
    const uct_angara_record_t *record = data;
    int is_ours = (record->credit_index == peer->credit_index) && (record->epoch == peer->epoch);

    switch (record->type) {
    case UCT_ANGARA_GRANT:
        if ((length != sizeof(uct_angara_grant_t)) || !is_ours) {
            return "a bad grant";
        }
        return uct_angara_control_granted(peer, data);
    case UCT_ANGARA_REFUSE:
        if ((length != sizeof(*record)) || !is_ours) {
            return "a bad refusal";
        }
        return uct_angara_control_refused(peer, record->shape);
    case UCT_ANGARA_CLOSE:
        if (length != sizeof(uct_angara_close_t)) {
            return "a bad close";
        }
        return uct_angara_control_close_in(peer, data);
    case UCT_ANGARA_CLOSE_ACK:
        if ((length != sizeof(*record)) || !is_ours) {
            return "a bad acknowledgement";
        }
        return uct_angara_control_close_acked(peer);
    case UCT_ANGARA_BYE:
        peer->said_bye = 1;
        return NULL;
    default:
        return "a control record of an unknown type";
    }
}
