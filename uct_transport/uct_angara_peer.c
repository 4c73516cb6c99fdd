/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers: creation, what blocks them, their slow work, failure and death. Rings are opened and
 * closed by uct_angara_control.c.
 */
#include "uct_angara_peer.h"

#include "uct_angara_ep.h"

#include <stdarg.h>

_Static_assert(offsetof(uct_angara_tx_t, pads) == UCS_SYS_CACHE_LINE_SIZE,
               "an eager send touches the first line of tx only");
_Static_assert(offsetof(uct_angara_rx_t, shape) == UCS_SYS_CACHE_LINE_SIZE,
               "a poll touches the first line of rx only");
_Static_assert(offsetof(uct_angara_peer_t, rx) % UCS_SYS_CACHE_LINE_SIZE == 0, "rx is on a line");

/* ---- life ---------------------------------------------------------------------------------- */

static void uct_angara_peer_init(uct_angara_peer_t *peer, uct_angara_iface_t *iface,
                                 angara_peer_h ap, const angara_address_t *address)
{
    memset(peer, 0, sizeof(*peer));
    peer->ap       = ap;
    peer->iface    = iface;
    peer->address  = *address;
    peer->tx_state = UCT_ANGARA_TX_IDLE;
    peer->blocked  = UCT_ANGARA_BLOCK_RING;
    peer->rx.peer  = peer;

    /* enough for the senders to see that there is no room: the limit is 0 */
    peer->tx.shape    = iface->shape;
    peer->tx.last_run = 1;

    uct_angara_channel_init(&peer->channel);
    ucs_list_head_init(&peer->eps);
    ucs_queue_head_init(&peer->control);
    ucs_list_add_tail(&iface->peers, &peer->list);
    angara_peer_set_user(ap, peer);
    ++iface->stats.peers;
}

ucs_status_t uct_angara_peer_get(uct_angara_iface_t *iface, const angara_address_t *address,
                                 uct_angara_peer_t **peer_p)
{
    angara_status_t    status;
    uct_angara_peer_t *peer;
    angara_peer_h      ap;

    status = angara_peer_connect(iface->pe, address, &ap);
    if (status != ANGARA_OK) {
        ucs_debug("angara: cannot connect to PE %u of node %u: %s", address->index, address->node,
                  angara_strerror(status));
        return uct_angara_status(status);
    }

    peer = angara_peer_user(ap);
    if (peer != NULL) {
        angara_peer_disconnect(ap); /* the peer holds a reference already */
        if (peer->status != UCS_OK) {
            return peer->status;
        }
    } else {
        if (angara_peer_status(ap) == ANGARA_ERR_PAIR) {
            angara_peer_reset(ap); /* left over from a peer that has been freed */
        }

        if (ucs_posix_memalign((void **)&peer, UCS_SYS_CACHE_LINE_SIZE, sizeof(*peer),
                               "angara_peer") != 0) {
            angara_peer_disconnect(ap);
            return UCS_ERR_NO_MEMORY;
        }
        uct_angara_peer_init(peer, iface, ap, address);
    }

    *peer_p = peer;
    return UCS_OK;
}

void uct_angara_peer_add_stats(uct_angara_peer_t *peer)
{
    uct_angara_stats_t *stats = &peer->iface->stats;
    uct_angara_tx_t    *tx    = &peer->tx;
    uint64_t            sent  = tx->msgs - tx->pads;

    stats->sar_tx += tx->sar;
    stats->eager_tx += sent - tx->sar;
    stats->am_bcopy += tx->bcopy;
    stats->am_zcopy += tx->zcopy;
    stats->am_short += sent - tx->bcopy - tx->zcopy;
    stats->sar_rx += peer->rx.sar;
    stats->eager_rx += peer->rx.am - peer->rx.sar;
    tx->msgs = tx->pads = tx->sar = tx->bcopy = tx->zcopy = 0;
    peer->rx.am = peer->rx.sar = 0;
}

void uct_angara_peer_destroy(uct_angara_peer_t *peer)
{
    uct_angara_iface_t        *iface = peer->iface;
    uct_angara_control_elem_t *elem;

    ucs_assert(ucs_list_is_empty(&peer->eps));
    uct_angara_peer_fail_ops(peer, UCS_ERR_CANCELED);
    ucs_queue_for_each_extract(elem, &peer->control, queue, 1) {
        ucs_free(elem);
    }

    uct_angara_control_drop_rx(peer);
    uct_angara_tx_close(&peer->tx);
    uct_angara_peer_add_stats(peer);
    if (peer->channel.slot != NULL) {
        angara_marker_slot_put(iface->pe, peer->channel.slot);
    }

    if (peer->is_active) {
        ucs_list_del(&peer->active);
        uct_angara_iface_slow_dec(iface);
    }
    ucs_list_del(&peer->list);
    angara_peer_set_user(peer->ap, NULL);
    angara_peer_disconnect(peer->ap);
    ucs_free(peer);
}

int uct_angara_peer_try_free(uct_angara_peer_t *peer)
{
    if (!ucs_list_is_empty(&peer->eps) || peer->rx.open || peer->acking || peer->fail_due ||
        peer->down_due || !ucs_queue_is_empty(&peer->control) ||
        !ucs_queue_is_empty(&peer->channel.ops) || (peer->self_ops > 0)) {
        return 0;
    }

    if ((peer->status == UCS_OK) &&
        ((peer->tx_state != UCT_ANGARA_TX_IDLE) || uct_angara_peer_is_dirty(peer) ||
         !uct_angara_channel_idle(&peer->channel))) {
        return 0;
    }

    uct_angara_peer_destroy(peer);
    return 1;
}

void uct_angara_peer_activate(uct_angara_peer_t *peer)
{
    if (!peer->is_active) {
        peer->is_active = 1;
        ucs_list_add_tail(&peer->iface->active, &peer->active);
        uct_angara_iface_slow_inc(peer->iface);
    }
}

void uct_angara_peer_update(uct_angara_peer_t *peer)
{
    uct_angara_tx_t *tx = &peer->tx;

    if ((peer->npending > 0) && !peer->dispatching) {
        peer->blocked |= UCT_ANGARA_BLOCK_PENDING;
    } else {
        peer->blocked &= ~UCT_ANGARA_BLOCK_PENDING;
    }

    /* the limit alone stops the fast path of messages */
    tx->limit = peer->blocked ? 0 : tx->credits + tx->shape.nslots - 1;
}

void uct_angara_peer_drop_ep(uct_angara_peer_t *peer)
{
    const uct_angara_batch_t *batch = &peer->iface->batch;

    /* Nobody flushes any more, and its owner may take the memory back now. What waits for a peer
     * that is gone can be forgotten: its operations end with the report of the failure. */
    while ((batch->count > 0) && (batch->peer == peer) && !peer->is_down &&
           (uct_angara_batch_push(peer->iface) == UCS_ERR_NO_RESOURCE)) {
        uct_angara_iface_push(peer->iface);
    }
    if (peer->is_down || (peer->status != UCS_OK)) {
        uct_angara_batch_drop(peer);
    }

    if (!ucs_list_is_empty(&peer->eps)) {
        return;
    }

    peer->we_closed = 1;
    if (peer->status == UCS_OK) {
        uct_angara_control_close(peer);
    }
    uct_angara_peer_activate(peer); /* it may be free now */
}

/* ---- blocked operations -------------------------------------------------------------------- */

ucs_status_t uct_angara_peer_unblock_rma(uct_angara_peer_t *peer)
{
    if (peer->blocked & UCT_ANGARA_BLOCK_FAILED) {
        if (!peer->reported && !peer->said_bye) {
            peer->missed   = 1; /* it left quietly, but it is missed now */
            peer->fail_due = 1;
            uct_angara_peer_activate(peer);
        }
        return peer->status;
    }

    if ((peer->blocked & UCT_ANGARA_BLOCK_FENCE) && (uct_angara_peer_check_fence(peer) != UCS_OK)) {
        return UCS_ERR_NO_RESOURCE;
    }

    return (peer->blocked & UCT_ANGARA_BLOCK_PENDING) ? UCS_ERR_NO_RESOURCE : UCS_OK;
}

ucs_status_t uct_angara_peer_unblock_msg(uct_angara_peer_t *peer)
{
    ucs_status_t status;

    if (ucs_likely(peer->blocked == 0)) {
        return UCS_OK;
    }

    status = uct_angara_peer_unblock_rma(peer);
    if (status != UCS_OK) {
        return status;
    }

    if (peer->tx_state == UCT_ANGARA_TX_IDLE) {
        status = uct_angara_control_hello(peer);
        if (status != UCS_OK) {
            return status;
        }
    }

    return (peer->blocked == 0) ? UCS_OK : UCS_ERR_NO_RESOURCE;
}

/* ---- failure ------------------------------------------------------------------------------- */

void uct_angara_peer_fail(uct_angara_peer_t *peer, ucs_status_t status, const char *fmt, ...)
{
    va_list ap;

    if (peer->status != UCS_OK) {
        return; /* the first reason counts */
    }

    va_start(ap, fmt);
    vsnprintf(peer->reason, sizeof(peer->reason), fmt, ap);
    va_end(ap);

    peer->status   = status;
    peer->fail_due = 1;
    peer->blocked |= UCT_ANGARA_BLOCK_FAILED;
    uct_angara_peer_update(peer);
    uct_angara_peer_activate(peer);
}

ucs_status_t uct_angara_peer_error(uct_angara_peer_t *peer, angara_status_t status,
                                   const char *what)
{
    if (ucs_likely(status == ANGARA_ERR_NO_RESOURCE)) {
        return UCS_ERR_NO_RESOURCE;
    }

    if (status == ANGARA_ERR_PEER_DEAD) {
        /* The caller waits for the next turn of progress, which reports it: the first to speak of
         * a death must be the one who knows which peer and why. */
        uct_angara_peer_down(peer);
        return (peer->status == UCS_OK) ? UCS_ERR_NO_RESOURCE : peer->status;
    } else {
        uct_angara_peer_fail(peer, UCS_ERR_IO_ERROR, "%s to %s failed: %s", what,
                             angara_peer_name(peer->ap), angara_strerror(status));
    }
    return uct_angara_status(status);
}

void uct_angara_peer_down(uct_angara_peer_t *peer)
{
    if (!peer->is_down && (peer->status == UCS_OK)) {
        peer->down_due = 1;
        uct_angara_peer_activate(peer);
    }
    peer->is_down = 1;
}

/* Its good-bye may wait among the events behind the one that told of its end. */
static void uct_angara_peer_take_down(uct_angara_peer_t *peer)
{
    while (uct_angara_event_poll(peer->iface) > 0) {
        /* until all have been seen */
    }

    peer->down_due = 0;
    if (peer->said_bye) {
        uct_angara_peer_fail(peer, UCS_ERR_CONNECTION_RESET, "%s has left",
                             angara_peer_name(peer->ap));
    } else {
        uct_angara_peer_fail(peer, UCS_ERR_ENDPOINT_TIMEOUT, "%s died", angara_peer_name(peer->ap));
    }
}

/*
 * @return non-zero if nobody can miss the peer: it said good-bye, or one side has closed to the
 * other, and nothing waits for it.
 */
static int uct_angara_peer_left_in_order(const uct_angara_peer_t *peer)
{
    return peer->is_down && (peer->said_bye || peer->we_closed || peer->it_closed) &&
           !peer->missed && (peer->npending == 0) && !uct_angara_peer_has_user_ops(peer);
}

/* Call the error handlers of the endpoints. @return number that took care of it. */
static unsigned uct_angara_peer_notify_eps(uct_angara_peer_t *peer, unsigned *unhandled_p)
{
    unsigned         handled = 0;
    uct_angara_ep_t *ep;
    ucs_status_t     status;
    int              found;

    /* a handler may destroy any endpoint: start over after each */
    do {
        found = 0;
        ucs_list_for_each(ep, &peer->eps, list) {
            if (!ep->is_notified) {
                ep->is_notified = 1;
                found           = 1;
                status = uct_iface_handle_ep_err(&peer->iface->super.super, &ep->super.super,
                                                 peer->status);
                if (status == UCS_OK) {
                    ++handled;
                } else {
                    ++*unhandled_p;
                }
                break;
            }
        }
    } while (found);

    return handled;
}

static void uct_angara_peer_report(uct_angara_peer_t *peer)
{
    uct_angara_iface_t *iface     = peer->iface;
    int                 quiet     = uct_angara_peer_left_in_order(peer);
    int                 had_eps   = !ucs_list_is_empty(&peer->eps);
    unsigned            unhandled = 0;
    unsigned            handled;

    peer->fail_due = 0;
    if (peer->rx.open) {
        while (uct_angara_rx_drain(iface, &peer->rx, UINT_MAX) > 0) {
            /* what it sent before is still delivered */
        }
    }
    uct_angara_control_drop(peer);
    if (!peer->is_down) {
        angara_peer_reset(peer->ap); /* drops what is queued: nothing may land after the report */
    }
    uct_angara_peer_fail_ops(peer, peer->status);

    /* endpoints may stay for long: keep no more than they need */
    uct_angara_peer_add_stats(peer);
    uct_angara_tx_close(&peer->tx);
    peer->tx_state = UCT_ANGARA_TX_IDLE;
    uct_angara_peer_release_slot(peer);

    if (quiet || peer->reported) {
        return;
    }

    peer->reported = 1;
    handled        = uct_angara_peer_notify_eps(peer, &unhandled);
    if (handled > 0) {
        iface->is_error_aware = 1;
    }

    if (peer->said_bye) {
        /* it knew what it did: whoever waits for it gets an error, but nobody has died */
        ucs_diag("angara: %s", peer->reason);
    } else if ((unhandled > 0) || (!had_eps && !peer->we_closed && !iface->is_error_aware)) {
        uct_angara_iface_unhandled(iface, peer);
    } else {
        ucs_diag("angara: %s", peer->reason);
    }
}

/* ---- slow work ----------------------------------------------------------------------------- */

unsigned uct_angara_peer_progress(uct_angara_peer_t *peer)
{
    unsigned count = 0;

    if (ucs_unlikely(peer->tx.ready_owed)) {
        uct_angara_tx_retry_ready(peer);
    }

    if (ucs_unlikely(peer->rx.credit_owed)) {
        uct_angara_rx_return_credits(&peer->rx);
    }

    if (ucs_unlikely(!ucs_queue_is_empty(&peer->control))) {
        count += uct_angara_control_retry(peer);
    }

    if (peer->rx.closing) {
        count += uct_angara_rx_drain(peer->iface, &peer->rx, UCT_ANGARA_DRAIN_MAX);
        if (peer->rx.tail == peer->rx.total) {
            uct_angara_control_closed(peer);
        }
    }

    count += uct_angara_peer_progress_markers(peer);

    if (ucs_unlikely(peer->down_due)) {
        uct_angara_peer_take_down(peer);
    }

    if (ucs_unlikely(peer->fail_due)) {
        uct_angara_peer_report(peer);
        ++count;
    }

    if (peer->fail_due || peer->down_due || peer->tx.ready_owed || peer->rx.credit_owed ||
        peer->rx.closing || !ucs_queue_is_empty(&peer->control) ||
        !ucs_queue_is_empty(&peer->channel.ops) ||
        ((peer->status == UCS_OK) && ((peer->channel.want > peer->channel.posted) ||
                                      !uct_angara_channel_idle(&peer->channel)))) {
        return count;
    }

    if (!uct_angara_peer_try_free(peer)) {
        peer->is_active = 0;
        ucs_list_del(&peer->active);
        uct_angara_iface_slow_dec(peer->iface);
    }
    return count;
}
