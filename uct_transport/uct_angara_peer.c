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

/* ---- creation ------------------------------------------------------------------------------ */

/* What a peer and a tomb have in common. */
static uct_angara_peer_t *uct_angara_peer_alloc(uct_angara_iface_t *iface)
{
    uct_angara_peer_t *peer;

    if (ucs_posix_memalign((void **)&peer, UCS_SYS_CACHE_LINE_SIZE, sizeof(*peer), "angara_peer") !=
        0) {
        return NULL;
    }

    memset(peer, 0, sizeof(*peer));
    peer->iface   = iface;
    peer->rx.peer = peer;

    /* enough for the senders to see that there is no room: the limit is 0 */
    peer->tx.shape    = iface->shape;
    peer->tx.last_run = 1;

    uct_angara_channel_init(&peer->channel);
    ucs_list_head_init(&peer->eps);
    ucs_queue_head_init(&peer->control);
    ucs_queue_head_init(&peer->early_ops);
    return peer;
}

static void uct_angara_peer_init(uct_angara_peer_t *peer, angara_peer_h ap,
                                 const angara_address_t *address)
{
    peer->ap      = ap;
    peer->address = *address;
    ucs_list_add_tail(&peer->iface->peers, &peer->list);
    angara_peer_set_user(ap, peer);
    ++peer->iface->stats.peers;
    uct_angara_peer_update(peer);
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
        if (uct_angara_life_is_gone(&peer->life)) {
            return (peer->status != UCS_OK) ? peer->status : UCS_ERR_UNREACHABLE;
        }
    } else {
        peer = uct_angara_peer_alloc(iface);
        if (peer == NULL) {
            angara_peer_disconnect(ap);
            return UCS_ERR_NO_MEMORY;
        }
        uct_angara_peer_init(peer, ap, address);
    }

    *peer_p = peer;
    return UCS_OK;
}

/* ---- tombs --------------------------------------------------------------------------------- */

uct_angara_peer_t *uct_angara_tomb_alloc(uct_angara_iface_t *iface)
{
    return uct_angara_peer_alloc(iface);
}

/* Endpoints, and their queued requests, leave the peer for ever. They aren't told yet. */
static void uct_angara_peer_bury(uct_angara_peer_t *peer)
{
    uct_angara_peer_t *tomb;
    uct_angara_ep_t   *ep, *tmp;

    if ((peer->doomed != NULL) || ucs_list_is_empty(&peer->eps)) {
        return;
    }

    tomb = uct_angara_tomb_alloc(peer->iface);
    if (tomb == NULL) {
        tomb              = peer->iface->tomb;
        peer->iface->tomb = NULL;
        if (tomb == NULL) {
            ucs_fatal("angara: no memory for the endpoints of a failed connection");
        }
    }

    ucs_list_for_each_safe(ep, tmp, &peer->eps, list) {
        ep->peer = tomb;
        ucs_list_del(&ep->list);
        ucs_list_add_tail(&tomb->eps, &ep->list);
    }
    memcpy(tomb->reason, peer->reason, sizeof(tomb->reason));
    tomb->status     = peer->status;
    tomb->life.state = UCT_ANGARA_LIFE_FAILING; /* until they are told */
    tomb->npending   = peer->npending;
    uct_angara_peer_update(tomb);

    tomb->holds    = 1; /* its endpoints may go before they are told */
    peer->doomed   = tomb;
    peer->npending = 0;
    peer->is_bound = 0;
    uct_angara_peer_update(peer);
}

static void uct_angara_tomb_try_free(uct_angara_peer_t *tomb)
{
    if (ucs_list_is_empty(&tomb->eps) && (tomb->holds == 0)) {
        ucs_free(tomb);
    }
}

/* Its endpoints have been told, or never will be. */
static void uct_angara_tomb_release(uct_angara_peer_t *tomb)
{
    tomb->holds = 0;
    uct_angara_tomb_try_free(tomb);
}

void uct_angara_peer_prepare_ep(uct_angara_peer_t *peer)
{
    if (peer->status != UCS_OK) {
        uct_angara_peer_bury(peer);
        peer->is_spared     = 1;
        peer->is_early_lost = 1;
    }
}

/* ---- the end of a peer --------------------------------------------------------------------- */

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
    peer->is_lossy = 1;
    if (peer->doomed != NULL) {
        uct_angara_tomb_release(peer->doomed);
    }
    uct_angara_peer_fail_ops(peer, UCS_ERR_CANCELED);
    uct_angara_early_fail(peer, UCS_ERR_CANCELED);
    ucs_queue_for_each_extract(elem, &peer->control, queue, 1) {
        ucs_free(elem);
    }

    uct_angara_control_drop(peer);
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
    const uct_angara_life_t *life = &peer->life;

    if (!ucs_list_is_empty(&peer->eps) || (peer->doomed != NULL) || uct_angara_life_is_due(life) ||
        (life->tx != UCT_ANGARA_TX_IDLE) || uct_angara_life_has_ring(life) ||
        !ucs_queue_is_empty(&peer->channel.ops) || (peer->self_ops > 0) ||
        !uct_angara_early_is_empty(&peer->early)) {
        return 0;
    }

    if (!uct_angara_life_is_gone(life) &&
        (!ucs_queue_is_empty(&peer->control) || uct_angara_peer_is_dirty(peer) ||
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

    int has_ring = (peer->life.tx == UCT_ANGARA_TX_OPEN) && uct_angara_early_is_empty(&peer->early);

    peer->blocked = (peer->status != UCS_OK) ? UCT_ANGARA_BLOCK_FAILED : 0;
    if (!peer->is_sending_early) { /* these go before all else */
        peer->blocked |= (has_ring ? 0 : UCT_ANGARA_BLOCK_RING) |
                         (peer->is_fenced ? UCT_ANGARA_BLOCK_FENCE : 0) |
                         (((peer->npending > 0) && !peer->dispatching) ? UCT_ANGARA_BLOCK_PENDING :
                                                                         0);
    }

    /* the limit alone stops the fast path of messages */
    tx->limit = peer->blocked ? 0 : tx->credits + tx->shape.nslots - 1;
}

void uct_angara_peer_drop_ep(uct_angara_peer_t *peer)
{
    const uct_angara_batch_t *batch = &peer->iface->batch;

    if (peer->ap == NULL) {
        uct_angara_tomb_try_free(peer);
        return;
    }

    /* Nobody flushes any more, and its owner may take the memory back now. What waits for a peer
     * that is gone can be forgotten: its operations end with the report of the failure. */
    while ((batch->count > 0) && (batch->peer == peer) && !uct_angara_life_is_gone(&peer->life) &&
           (uct_angara_batch_push(peer->iface) == UCS_ERR_NO_RESOURCE)) {
        uct_angara_iface_push(peer->iface);
    }
    if (uct_angara_life_is_gone(&peer->life) || (peer->status != UCS_OK)) {
        uct_angara_batch_drop(peer);
    }

    if (ucs_list_is_empty(&peer->eps)) {
        uct_angara_peer_unused(peer);
        uct_angara_peer_activate(peer); /* it may be free now */
    }
}

void uct_angara_peer_unused(uct_angara_peer_t *peer)
{
    if (!ucs_list_is_empty(&peer->eps) ||
        ((peer->life.tx == UCT_ANGARA_TX_OPEN) && !uct_angara_early_is_empty(&peer->early))) {
        return;
    }

    peer->is_bound = 0; /* later ones begin anew */
    uct_angara_control_step(peer, UCT_ANGARA_EV_UNUSED);
}

/* ---- blocked operations -------------------------------------------------------------------- */

/* @return non-zero if something was asked of the peer that no marker has confirmed, or a message
 * was sent that no flush has confirmed and the peer hasn't consumed. */
static int uct_angara_peer_is_unconfirmed(const uct_angara_peer_t *peer)
{
    const uct_angara_tx_t *tx = &peer->tx;
    uct_angara_op_t       *op;

    ucs_queue_for_each(op, (ucs_queue_head_t *)&peer->channel.ops, queue) {
        if (!op->is_ours && !op->is_flush) {
            return 1;
        }
    }
    return (peer->self_ops > 0) || peer->rma_dirty || !uct_angara_channel_idle(&peer->channel) ||
           ((tx->head != tx->confirmed) && (*tx->credit != tx->head)) ||
           !uct_angara_early_is_empty(&peer->early);
}

/* @return non-zero if the failure that is due is not one of the endpoints that there are now. */
static int uct_angara_peer_spares_eps(const uct_angara_peer_t *peer)
{
    return peer->is_spared ||
           ((peer->life.state == UCT_ANGARA_LIFE_TOLD) && !peer->is_bound && !peer->rma_dirty &&
            !uct_angara_peer_has_user_ops(peer) && uct_angara_channel_idle(&peer->channel));
}

void uct_angara_peer_use(uct_angara_peer_t *peer)
{
    if (uct_angara_life_is_gone(&peer->life)) {
        peer->is_missed = 1; /* it left quietly, perhaps, but it is missed now */
        uct_angara_control_step(peer, UCT_ANGARA_EV_USE);
    }
}

ucs_status_t uct_angara_peer_unblock_rma(uct_angara_peer_t *peer)
{
    if (peer->blocked & UCT_ANGARA_BLOCK_FAILED) {
        if (peer->ap != NULL) {
            uct_angara_peer_use(peer);
        }
        return uct_angara_peer_spares_eps(peer) ? UCS_ERR_NO_RESOURCE : peer->status;
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

    if (!(peer->blocked & UCT_ANGARA_BLOCK_RING)) {
        return UCS_OK;
    } else if (peer->life.tx == UCT_ANGARA_TX_OPEN) {
        return UCS_ERR_NO_RESOURCE; /* early messages go first */
    }

    status = uct_angara_control_hello(peer);
    return (status == UCS_ERR_NO_RESOURCE) ? UCS_ERR_NOT_CONNECTED : status;
}

/* ---- failure ------------------------------------------------------------------------------- */

static void uct_angara_peer_set_reason_v(uct_angara_peer_t *peer, ucs_status_t status,
                                         const char *fmt, va_list ap)
{
    if (peer->status != UCS_OK) {
        return; /* the first reason counts */
    }

    vsnprintf(peer->reason, sizeof(peer->reason), fmt, ap);
    peer->status = status;
    uct_angara_peer_update(peer);
}

void uct_angara_peer_set_reason(uct_angara_peer_t *peer, ucs_status_t status, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    uct_angara_peer_set_reason_v(peer, status, fmt, ap);
    va_end(ap);
}

void uct_angara_peer_fail(uct_angara_peer_t *peer, ucs_status_t status, const char *fmt, ...)
{
    va_list ap;

    if (peer->status != UCS_OK) {
        return; /* it is to be reported, or just now is: what is found meanwhile is the same failure
                 */
    }

    va_start(ap, fmt);
    uct_angara_peer_set_reason_v(peer, status, fmt, ap);
    va_end(ap);
    uct_angara_control_step(peer, UCT_ANGARA_EV_FAIL);
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
        uct_angara_control_step(peer, UCT_ANGARA_EV_DOWN);
        return (peer->status == UCS_OK) ? UCS_ERR_NO_RESOURCE : peer->status;
    }

    uct_angara_peer_fail(peer, UCS_ERR_IO_ERROR, "%s to %s failed: %s", what,
                         angara_peer_name(peer->ap), angara_strerror(status));
    return peer->status;
}

ucs_status_t uct_angara_peer_verdict(uct_angara_peer_t *peer)
{
    if (!uct_angara_life_is_due(&peer->life)) {
        return peer->status;
    }

    /* its good-bye, or the true reason, may wait among the events */
    uct_angara_event_drain(peer->iface);
    if (peer->life.state == UCT_ANGARA_LIFE_PARTING) {
        uct_angara_peer_set_reason(peer, UCS_ERR_CONNECTION_RESET, "%s has left",
                                   angara_peer_name(peer->ap));
    } else if (peer->life.state == UCT_ANGARA_LIFE_DYING) {
        uct_angara_peer_set_reason(peer, UCS_ERR_ENDPOINT_TIMEOUT, "%s died",
                                   angara_peer_name(peer->ap));
    }
    return peer->status;
}

/* ---- reports ------------------------------------------------------------------------------- */

/* Call the error handlers of the endpoints that wait for it. @return number that took no care of
 * it. */
static unsigned uct_angara_peer_tell(uct_angara_peer_t *peer)
{
    uct_angara_peer_t *tomb      = peer->doomed;
    unsigned           unhandled = 0;
    uct_angara_ep_t   *ep;
    ucs_status_t       status;
    int                found;

    peer->doomed = NULL;
    if (tomb == NULL) {
        return 0;
    }

    tomb->life.state = UCT_ANGARA_LIFE_DEAD;

    /* a handler may destroy any endpoint: start over after each */
    do {
        found = 0;
        ucs_list_for_each(ep, &tomb->eps, list) {
            if (!ep->is_notified) {
                ep->is_notified = 1;
                found           = 1;
                status = uct_iface_handle_ep_err(&tomb->iface->super.super, &ep->super.super,
                                                 tomb->status);
                unhandled += (status != UCS_OK);
                break;
            }
        }
    } while (found);

    uct_angara_tomb_release(tomb);
    return unhandled;
}

void uct_angara_peer_stop(uct_angara_peer_t *peer)
{
    uct_angara_iface_t *iface = peer->iface;

    if (peer->rx.open) {
        while (uct_angara_rx_drain(iface, &peer->rx, UINT_MAX) > 0) {
            /* what it sent before is still delivered */
        }
    }
    uct_angara_control_stop_rx(peer);
    uct_angara_peer_fail_ops(peer, peer->status);
    if (!peer->is_spared || peer->is_early_lost || uct_angara_life_is_gone(&peer->life)) {
        uct_angara_early_fail(peer, peer->status);
    } /* else they are of endpoints that go on */

    peer->rma_dirty       = 0;
    peer->is_credit_dirty = 0;
    peer->is_early_lost   = 0;
    peer->tx.marked       = peer->tx.head;
    peer->tx.ready_owed   = 0;
    peer->is_fenced &= !uct_angara_early_is_empty(&peer->early);
    uct_angara_peer_close_channel(peer);
}

/* @return non-zero if somebody must hear of it. */
static int uct_angara_peer_is_needed(const uct_angara_peer_t *peer)
{
    switch (peer->life.state) {
    case UCT_ANGARA_LIFE_TOLD:
        return !uct_angara_peer_spares_eps(peer);
    case UCT_ANGARA_LIFE_DYING:
        if (peer->life.rx != UCT_ANGARA_RX_ENDED) {
            return 1; /* else it has ended its part in order, as far as that goes */
        }
        /* fall through */
    default:
        return peer->is_missed || (peer->npending > 0) ||
               (peer->is_lossy && uct_angara_peer_has_user_ops(peer)) ||
               !uct_angara_early_is_empty(&peer->early);
    }
}

/* The connection has failed, or the peer is gone. May free the peer. */
static void uct_angara_peer_report(uct_angara_peer_t *peer)
{
    uct_angara_iface_t *iface     = peer->iface;
    unsigned            unhandled = 0;
    char                reason[sizeof(peer->reason)];
    angara_status_t     status;
    int                 is_orderly, is_needed;

    /* Nothing of ours may land after the report, or after what it tells the peer. */
    if (!uct_angara_life_is_gone(&peer->life)) {
        status = angara_peer_reset(peer->ap);
        if ((status != ANGARA_OK) && (status != ANGARA_ERR_PEER_DEAD) &&
            (status != ANGARA_ERR_NO_DEVICE)) {
            ucs_debug("angara: %s isn't stopped yet: %s", angara_peer_name(peer->ap),
                      angara_strerror(status));
            return; /* the next turn tries again */
        }
    }

    uct_angara_peer_verdict(peer);
    memcpy(reason, peer->reason, sizeof(reason));
    is_orderly      = (peer->life.state == UCT_ANGARA_LIFE_PARTING);
    peer->is_lossy  = !uct_angara_life_is_gone(&peer->life) || uct_angara_peer_is_unconfirmed(peer);
    is_needed       = uct_angara_peer_is_needed(peer);
    peer->is_spared = uct_angara_peer_spares_eps(peer);
    if ((uct_angara_control_do(peer, is_needed ? UCT_ANGARA_EV_REPORT : UCT_ANGARA_EV_SETTLE,
                               NULL) &
         UCT_ANGARA_DO_TELL) &&
        !peer->is_spared) {
        uct_angara_peer_bury(peer);
    }

    peer->is_spared = 0;
    if (!uct_angara_life_is_gone(&peer->life)) {
        peer->status   = UCS_OK; /* for endpoints that come */
        peer->is_lossy = 0;
    }
    uct_angara_peer_update(peer);
    uct_angara_control_late_hello(peer);

    unhandled = uct_angara_peer_tell(peer);
    if (peer->life.state == UCT_ANGARA_LIFE_DEAD) {
        uct_angara_peer_bury(peer); /* those that had come after a failure */
        unhandled += uct_angara_peer_tell(peer);
    }

    if ((unhandled > 0) && !is_orderly) {
        uct_angara_iface_unhandled(iface, reason);
    } else {
        /* somebody takes care of it, or nobody has an endpoint, or it knew what it did */
        ucs_diag("angara: %s", reason);
    }
}

/* ---- slow work ----------------------------------------------------------------------------- */

/* @return non-zero if early messages wait for no event, but for a turn of progress. */
static int uct_angara_peer_can_send_early(const uct_angara_peer_t *peer)
{
    return !uct_angara_early_is_empty(&peer->early) &&
           ((peer->life.tx == UCT_ANGARA_TX_OPEN) ||
            ((peer->life.tx == UCT_ANGARA_TX_IDLE) && (peer->life.state == UCT_ANGARA_LIFE_UP)));
}

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

    if (peer->life.rx == UCT_ANGARA_RX_CLOSING) {
        count += uct_angara_rx_drain(peer->iface, &peer->rx, UCT_ANGARA_DRAIN_MAX);
        if (peer->rx.tail > peer->rx.total) {
            uct_angara_peer_fail(peer, UCS_ERR_CONNECTION_RESET, "%s wrote on behind its CLOSE",
                                 angara_peer_name(peer->ap));
        } else if (peer->rx.tail == peer->rx.total) {
            uct_angara_control_step(peer, UCT_ANGARA_EV_CONSUMED);
        }
    }

    if (ucs_unlikely(!uct_angara_early_is_empty(&peer->early))) {
        count += uct_angara_early_send(peer);
    }

    count += uct_angara_peer_progress_markers(peer);

    if (ucs_unlikely(uct_angara_life_is_due(&peer->life))) {
        uct_angara_peer_report(peer);
        ++count;
    }

    if (uct_angara_life_is_due(&peer->life) || peer->tx.ready_owed || peer->rx.credit_owed ||
        uct_angara_peer_can_send_early(peer) || (peer->life.rx == UCT_ANGARA_RX_CLOSING) ||
        (!uct_angara_life_is_gone(&peer->life) &&
         (!ucs_queue_is_empty(&peer->control) || !ucs_queue_is_empty(&peer->channel.ops) ||
          (peer->channel.want > peer->channel.posted) ||
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
