/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flush and fence, of an endpoint and of the interface: operations that wait for a marker behind
 * all that a peer was sent.
 */
#include "uct_angara_marker.h"

#include "uct_angara_ep.h"

/** Flush of an interface: one op per peer that isn't flushed yet. */
typedef struct uct_angara_flush_group {
    unsigned          count;
    ucs_status_t      status;
    uct_completion_t *comp;
} uct_angara_flush_group_t;

/* ---- flush --------------------------------------------------------------------------------- */

static void uct_angara_flush_done(uct_angara_iface_t *iface, uct_angara_op_t *op,
                                  ucs_status_t status)
{
    uct_angara_op_finish(iface, op, status);
}

/*
 * A marker says that messages have landed, not that they are taken: a peer that has given up the
 * connection has told us so before it stopped to look.
 * @return UCS_OK if it hasn't.
 */
ucs_status_t uct_angara_peer_confirm(uct_angara_peer_t *peer)
{
    if (peer->tx.head != peer->tx.confirmed) {
        uct_angara_event_drain(peer->iface);
        if (uct_angara_life_is_due(&peer->life)) {
            return UCS_INPROGRESS; /* ended by the report */
        }
        peer->tx.confirmed = peer->tx.marked;
    }
    return UCS_OK;
}

/*
 * Post what is missing.
 * @return UCS_OK if all is confirmed; UCS_INPROGRESS if a marker of *value_p will confirm it, or
 *         the report of a failure will end it.
 */
static ucs_status_t uct_angara_peer_flush_start(uct_angara_peer_t *peer, int is_ours,
                                                uint64_t *value_p)
{
    uct_angara_channel_t *channel = &peer->channel;

    if (ucs_unlikely(peer->status != UCS_OK)) {
        /* its operations are to be ended, or are being ended: complete behind them */
        *value_p = channel->want;
        return UCS_INPROGRESS;
    }

    *value_p = channel->posted;
    if (uct_angara_peer_is_dirty(peer)) {
        /* if the marker can't be posted now, progress posts it */
        *value_p = (uct_angara_peer_post_marker(peer) == UCS_OK) ? channel->posted :
                                                                   channel->posted + 1;
    }

    if (ucs_queue_is_empty(&channel->ops) && (is_ours || (peer->self_ops == 0)) &&
        ((channel->slot == NULL) ? !uct_angara_peer_is_dirty(peer) :
                                   angara_marker_arrived(channel->slot, *value_p))) {
        return is_ours ? UCS_OK : uct_angara_peer_confirm(peer);
    }
    return UCS_INPROGRESS;
}

static void uct_angara_peer_flush_enqueue(uct_angara_peer_t *peer, uct_angara_op_t *op,
                                          uint64_t value)
{
    if (peer->status != UCS_OK) {
        uct_angara_channel_enqueue(&peer->channel, op, value);
    } else {
        uct_angara_peer_enqueue(peer, op, ucs_max(value, peer->channel.want));
    }
}

ucs_status_t uct_angara_peer_flush(uct_angara_peer_t *peer, uct_angara_op_func_t func,
                                   uct_completion_t *comp, void *group)
{
    uint64_t         value = 0;
    uct_angara_op_t *op;
    ucs_status_t     status;
    int              is_early;

    if (ucs_unlikely(uct_angara_life_is_gone(&peer->life) &&
                     !uct_angara_life_is_due(&peer->life))) {
        if (!peer->is_lossy) {
            return UCS_OK; /* all was confirmed before its end */
        }
        uct_angara_peer_use(peer);
        return peer->status;
    }

    is_early = !uct_angara_early_is_empty(&peer->early);
    if (!is_early) {
        status = uct_angara_peer_flush_start(peer, 0, &value);
        if (status == UCS_OK) {
            return UCS_OK;
        }
    }

    if ((comp == NULL) && (group == NULL)) {
        if (is_early) {
            return UCS_INPROGRESS;
        }
        peer->channel.want = ucs_max(peer->channel.want, value);
        uct_angara_peer_activate(peer);
        return UCS_INPROGRESS;
    }

    op = uct_angara_op_get(peer, func, comp);
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    op->group    = group;
    op->is_flush = 1;
    if (is_early) {
        ucs_queue_push(&peer->early_ops, &op->queue);
    } else {
        uct_angara_peer_flush_enqueue(peer, op, value);
    }
    return UCS_INPROGRESS;
}

ucs_status_t uct_angara_peer_flush_ours(uct_angara_peer_t *peer, uct_angara_op_func_t func,
                                        uct_angara_event_t event)
{
    uint64_t         value;
    uct_angara_op_t *op;

    if (uct_angara_peer_flush_start(peer, 1, &value) == UCS_OK) {
        return UCS_OK;
    }

    op = uct_angara_op_get(peer, func, NULL);
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    op->event   = event;
    op->is_ours = 1;
    uct_angara_peer_flush_enqueue(peer, op, value);
    return UCS_INPROGRESS;
}

ucs_status_t uct_angara_ep_flush(uct_ep_h tl_ep, unsigned flags, uct_completion_t *comp)
{
    uct_angara_ep_t    *ep    = ucs_derived_of(tl_ep, uct_angara_ep_t);
    uct_angara_peer_t  *peer  = ep->peer;
    uct_angara_iface_t *iface = peer->iface;
    uct_angara_op_t    *op;
    ucs_status_t        status;
    uint64_t            value;

    ++iface->stats.flushes;
    UCT_TL_EP_STAT_FLUSH(&ep->super);
    if (ucs_unlikely(peer->ap == NULL)) {
        if (uct_angara_life_is_due(&peer->life)) {
            return UCS_ERR_NO_RESOURCE; /* its operations end with the report */
        }
        return (flags & UCT_FLUSH_FLAG_CANCEL) ? UCS_OK : peer->status;
    }

    if (!ucs_arbiter_group_is_empty(&ep->arb_group) && !peer->dispatching) {
        return UCS_ERR_NO_RESOURCE;
    }

    if (UCT_ANGARA_MUTANT(self_marker_flush)) {
        status = uct_angara_self_try_complete(iface, &value);
        if ((status == UCS_INPROGRESS) && (comp != NULL)) {
            op = uct_angara_op_get(peer, uct_angara_flush_done, comp);
            uct_angara_self_enqueue(iface, op, value);
        }
        return status;
    }

    return uct_angara_peer_flush(peer, uct_angara_flush_done, comp, NULL);
}

static void uct_angara_flush_group_done(uct_angara_flush_group_t *group)
{
    if (--group->count > 0) {
        return;
    }

    uct_invoke_completion(group->comp, group->status);
    ucs_free(group);
}

static void uct_angara_flush_peer_done(uct_angara_iface_t *iface, uct_angara_op_t *op,
                                       ucs_status_t status)
{
    uct_angara_flush_group_t *group = op->group;

    if (status != UCS_OK) {
        group->status = status;
    }
    uct_angara_op_finish(iface, op, UCS_OK);
    uct_angara_flush_group_done(group);
}

/* Flush all peers; with @a group NULL only look. @return UCS_OK, UCS_INPROGRESS or an error. */
static ucs_status_t uct_angara_iface_flush_peers(uct_angara_iface_t       *iface,
                                                 uct_angara_flush_group_t *group)
{
    ucs_status_t       result = UCS_OK;
    uct_angara_peer_t *peer;
    ucs_status_t       status;

    uct_angara_peers_for_each(peer, &iface->peers)
    {
        status = uct_angara_peer_flush(peer, uct_angara_flush_peer_done, NULL, group);
        if (UCS_STATUS_IS_ERR(status)) {
            return status;
        }

        if (status == UCS_INPROGRESS) {
            result = UCS_INPROGRESS;
            if (group != NULL) {
                ++group->count;
            }
        }
    }

    return result;
}

/* @return non-zero if requests are queued that a flush must not overtake; those of endpoints that
 * have failed will never be sent, and are in a tomb. */
static int uct_angara_iface_has_pending(const uct_angara_iface_t *iface)
{
    uct_angara_peer_t *peer;

    if (ucs_likely(ucs_arbiter_is_empty((ucs_arbiter_t *)&iface->arbiter))) {
        return 0;
    }

    uct_angara_peers_for_each(peer, &iface->peers)
    {
        if (peer->npending > 0) {
            return 1;
        }
    }
    return 0;
}

ucs_status_t uct_angara_iface_flush(uct_iface_h tl_iface, unsigned flags, uct_completion_t *comp)
{
    uct_angara_iface_t       *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);
    uct_angara_flush_group_t *group;
    ucs_status_t              status;

    (void)flags;
    if (uct_angara_iface_has_pending(iface)) {
        return (comp == NULL) ? UCS_INPROGRESS : UCS_ERR_NO_RESOURCE;
    }

    if (comp == NULL) {
        status = uct_angara_iface_flush_peers(iface, NULL);
    } else {
        group = ucs_malloc(sizeof(*group), "angara_flush_group");
        if (group == NULL) {
            return UCS_ERR_NO_MEMORY;
        }

        group->count  = 1; /* ours, so that it can't end before the loop does */
        group->status = UCS_OK;
        group->comp   = comp;
        status        = uct_angara_iface_flush_peers(iface, group);
        if (status == UCS_INPROGRESS) {
            --group->count;
        } else if (status == UCS_OK) {
            ucs_free(group);
        } else {
            group->status = status;
            uct_angara_flush_group_done(group);
            status = UCS_INPROGRESS;
        }
    }

    if (status == UCS_OK) {
        ++iface->stats.flushes;
        UCT_TL_IFACE_STAT_FLUSH(&iface->super);
    }
    return status;
}

/* ---- fence --------------------------------------------------------------------------------- */

void uct_angara_peer_fence(uct_angara_peer_t *peer)
{
    uct_angara_channel_t *channel = &peer->channel;
    uint64_t              value   = channel->posted;

    if (peer->status != UCS_OK) {
        return;
    }

    if (!uct_angara_early_is_empty(&peer->early)) {
        peer->is_fenced = 1; /* again when they have gone: its marker comes behind them */
        uct_angara_peer_update(peer);
        return;
    }

    if (uct_angara_peer_is_dirty(peer)) {
        value = (uct_angara_peer_post_marker(peer) == UCS_OK) ? channel->posted :
                                                                channel->posted + 1;
    }

    if (((channel->slot == NULL) ? !uct_angara_peer_is_dirty(peer) :
                                   angara_marker_arrived(channel->slot, value)) ||
        UCT_ANGARA_MUTANT(fence_nowait)) {
        return;
    }

    peer->fence_value = value;
    peer->is_fenced   = 1;
    channel->want     = ucs_max(channel->want, value);
    uct_angara_peer_activate(peer);
    uct_angara_peer_update(peer);
}

ucs_status_t uct_angara_peer_check_fence(uct_angara_peer_t *peer)
{
    if (!peer->is_fenced) {
        return UCS_OK;
    }

    if (!uct_angara_early_is_empty(&peer->early) || (peer->channel.slot == NULL) ||
        !angara_marker_arrived(peer->channel.slot, peer->fence_value)) {
        return UCS_ERR_NO_RESOURCE;
    }

    peer->is_fenced = 0;
    uct_angara_peer_update(peer);
    return UCS_OK;
}

ucs_status_t uct_angara_ep_fence(uct_ep_h tl_ep, unsigned flags)
{
    uct_angara_ep_t *ep = ucs_derived_of(tl_ep, uct_angara_ep_t);

    (void)flags;
    ++ep->peer->iface->stats.fences;
    UCT_TL_EP_STAT_FENCE(&ep->super);
    uct_angara_peer_fence(ep->peer);
    return UCS_OK;
}

ucs_status_t uct_angara_iface_fence(uct_iface_h tl_iface, unsigned flags)
{
    uct_angara_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);
    uct_angara_peer_t  *peer;

    (void)flags;
    ++iface->stats.fences;
    UCT_TL_IFACE_STAT_FENCE(&iface->super);
    uct_angara_peers_for_each(peer, &iface->peers)
    {
        uct_angara_peer_fence(peer);
    }
    return UCS_OK;
}
