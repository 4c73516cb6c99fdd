/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a connection needs of the window: a credit line for what we send, a ring for what we
 * receive. Touches the window's sets and the peer's channel; sends nothing.
 */
#include "life/peer.h"

#include "base/alike.h"

/* ---- the ring that we send to -------------------------------------------------------------- */

ucs_status_t uct_angara_rings_take_credit(uct_angara_peer_t *peer, char *why, size_t max)
{
    uct_angara_port_t   *port   = &peer->net->port;
    uct_angara_window_t *window = &port->window;
    angara_status_t      status;
    unsigned             index;
    size_t               offset;

    if (uct_angara_idmap_get(&window->credit_ids, &index) != UCS_OK) {
        /* The caller's operation ends with the status at once, and a program with that. */
        uct_angara_log_alike(UCS_LOG_LEVEL_ERROR,
                             "angara: %u peers are connected already: raise UCX_ANGARA_MAX_PEERS, "
                             "or set UCX_NUM_EPS to the number of peers, so that UCP takes a "
                             "transport that has room for them",
                             window->max_peers);
        snprintf(why, max, "%u peers are connected already (UCX_ANGARA_MAX_PEERS)",
                 window->max_peers);
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    offset = uct_angara_window_credit_off(window, index);
    status = angara_pe_window_commit(port->pe, offset, UCT_ANGARA_CREDIT_LINE);
    if (status != ANGARA_OK) {
        uct_angara_idmap_put(&window->credit_ids, index);
        snprintf(why, max, "credit line: %s", angara_strerror(status));
        return UCS_ERR_NO_MEMORY;
    }

    peer->credit_index  = index;
    peer->ch.tx.credit  = (volatile uint64_t *)(window->base + offset);
    *peer->ch.tx.credit = 0;
    return UCS_OK;
}

void uct_angara_rings_free_tx(uct_angara_peer_t *peer)
{
    uct_angara_idmap_put(&peer->net->port.window.credit_ids, peer->credit_index);
    uct_angara_channel_fold_counts(&peer->ch);
    uct_angara_tx_close(&peer->ch.tx);
}

/* ---- the ring that we receive from ---------------------------------------------------------- */

/* Slots of a ring of @a bytes, cut as the sender wants them. */
static uint32_t uct_angara_rings_nslots(size_t bytes, const uct_angara_shape_t *shape)
{
    return ucs_min(bytes >> shape->slot_shift, UCT_ANGARA_SLOTS_MAX);
}

/* Whether a peer gets a ring must not depend on who came first: what fits is asked of a small one.
 */
static int uct_angara_rings_fits(const uct_angara_port_t *port, const uct_angara_shape_t *shape)
{
    uint32_t nslots = uct_angara_rings_nslots(port->window.ring_bytes, shape);

    return (nslots >= UCT_ANGARA_SLOTS_MIN) &&
           (shape->run_slots <= uct_angara_run_slots_max(nslots, shape->slot_shift)) &&
           (uct_angara_shape_run_bytes(shape) <= port->run_bytes);
}

uint8_t uct_angara_rings_make(uct_angara_peer_t *peer, uct_angara_grant_t *grant)
{
    uct_angara_port_t   *port   = &peer->net->port;
    uct_angara_window_t *window = &port->window;
    uct_angara_rx_t     *rx     = &peer->ch.rx;
    uct_angara_shape_t   shape  = rx->shape;
    angara_status_t      status;
    unsigned             index;
    size_t               offset, bytes;

    if (!uct_angara_rings_fits(port, &shape)) {
        return UCT_ANGARA_REFUSE_SHAPE;
    }

    if (uct_angara_idmap_get(&window->ring_ids, &index) != UCS_OK) {
        return UCT_ANGARA_REFUSE_PEERS;
    }

    shape.nslots = uct_angara_rings_nslots(uct_angara_window_ring_bytes(window, index), &shape);
    bytes        = uct_angara_shape_bytes(&shape);
    offset       = uct_angara_window_ring_off(window, index);
    status       = angara_pe_window_commit(port->pe, offset, bytes);
    if (status != ANGARA_OK) {
        ucs_error("angara: no memory for a receive ring of %zu bytes: %s (UCX_ANGARA_RING_SLOTS)",
                  bytes, angara_strerror(status));
        uct_angara_idmap_put(&window->ring_ids, index);
        return UCT_ANGARA_REFUSE_MEMORY;
    }

    /* nobody writes to either before the grant */
    memset(window->base + offset, 0, bytes);
    port->poll.ready[index]    = 0;
    port->poll.consumed[index] = 0;

    rx->index = index;
    uct_angara_rx_open(rx, window->base + offset, &shape, &port->poll.consumed[index]);
    uct_angara_poll_add(&port->poll, rx);
    peer->is_bound |= !ucs_list_is_empty(&peer->users);

    grant->super     = uct_angara_record(UCT_ANGARA_GRANT, peer->life.rx_epoch,
                                         rx->credit_off / UCT_ANGARA_CREDIT_LINE, index);
    grant->ring_off  = offset;
    grant->ready_off = uct_angara_window_ready_off(window, index);
    grant->nslots    = shape.nslots;
    return 0;
}

void uct_angara_rings_free_rx(uct_angara_peer_t *peer)
{
    uct_angara_idmap_put(&peer->net->port.window.ring_ids, peer->ch.rx.index);
}

void uct_angara_rings_drop(uct_angara_peer_t *peer)
{
    uct_angara_channel_close_rx(&peer->ch);
    if (uct_angara_life_has_ring(&peer->life)) {
        uct_angara_rings_free_rx(peer);
    }
    if (peer->life.tx != UCT_ANGARA_TX_IDLE) {
        uct_angara_rings_free_tx(peer);
    }
}
