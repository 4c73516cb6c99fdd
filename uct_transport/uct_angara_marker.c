/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion: markers, operations that wait for them, flush and fence. The rules are those of
 * docs/protocols.md, "Completion"; nothing else decides that an operation is complete.
 *
 * Invariant: an op with value v is completed only when the slot holds at least v, and a marker with
 * value v is posted only after everything that an op with value v stands for. Ops are queued in
 * order of their values.
 */
#include "uct_angara_marker.h"

#include "uct_angara_ep.h"

/** Flush of an interface: one op per peer that isn't flushed yet. */
typedef struct uct_angara_flush_group {
    unsigned          count;
    ucs_status_t      status;
    uct_completion_t *comp;
} uct_angara_flush_group_t;

/* ---- ops ----------------------------------------------------------------------------------- */

uct_angara_op_t *uct_angara_op_get(uct_angara_peer_t *peer, uct_angara_op_func_t func,
                                   uct_completion_t *comp)
{
    uct_angara_op_t *op = ucs_mpool_get_inline(&peer->iface->ops);

    if (ucs_unlikely(op == NULL)) {
        return NULL;
    }

    op->func    = func;
    op->peer    = peer;
    op->comp    = comp;
    op->bounce  = NULL;
    op->is_ours = 0;
    return op;
}

void uct_angara_op_finish(uct_angara_iface_t *iface, uct_angara_op_t *op, ucs_status_t status)
{
    uct_completion_t *comp = op->comp;

    if (op->bounce != NULL) {
        uct_angara_bounce_put(&iface->bounce, op->bounce);
    }
    ucs_mpool_put_inline(op);

    if (comp != NULL) {
        uct_invoke_completion(comp, status);
    }
}

static void uct_angara_channel_enqueue(uct_angara_channel_t *channel, uct_angara_op_t *op,
                                       uint64_t value)
{
    op->value     = value;
    channel->want = ucs_max(channel->want, value);
    ucs_queue_push(&channel->ops, &op->queue);
}

static unsigned uct_angara_channel_complete(uct_angara_iface_t   *iface,
                                            uct_angara_channel_t *channel)
{
    unsigned         count = 0;
    uct_angara_op_t *op;

    while (!ucs_queue_is_empty(&channel->ops)) {
        op = ucs_queue_head_elem_non_empty(&channel->ops, uct_angara_op_t, queue);
        if (!angara_marker_arrived(channel->slot, op->value)) {
            break;
        }

        ucs_queue_pull_non_empty(&channel->ops);
        op->func(iface, op, UCS_OK);
        ++count;
    }

    return count;
}

/* ---- slots --------------------------------------------------------------------------------- */

int uct_angara_peer_release_slot(uct_angara_peer_t *peer)
{
    uct_angara_channel_t *channel = &peer->channel;

    if ((channel->slot == NULL) || !ucs_queue_is_empty(&channel->ops) ||
        (channel->want > channel->posted) || (peer->blocked & UCT_ANGARA_BLOCK_FENCE) ||
        ((peer->status == UCS_OK) && !uct_angara_channel_idle(channel))) {
        return 0;
    }

    angara_marker_slot_put(peer->iface->pe, channel->slot);
    channel->slot = NULL;
    return 1;
}

/* Take a slot, from an idle peer if all are in use. */
static ucs_status_t uct_angara_channel_open(uct_angara_iface_t   *iface,
                                            uct_angara_channel_t *channel)
{
    uct_angara_peer_t *peer;
    angara_status_t    status;

    status = angara_marker_slot_get(iface->pe, &channel->slot);
    if (status == ANGARA_ERR_NO_RESOURCE) {
        ucs_list_for_each(peer, &iface->peers, list) {
            if (uct_angara_peer_release_slot(peer)) {
                status = angara_marker_slot_get(iface->pe, &channel->slot);
                if (status != ANGARA_ERR_NO_RESOURCE) {
                    break;
                }
            }
        }
    }

    if (status != ANGARA_OK) {
        channel->slot = NULL;
        return uct_angara_status(status);
    }

    channel->posted = *channel->slot;
    channel->want   = channel->posted;
    return UCS_OK;
}

/* ---- markers of a peer --------------------------------------------------------------------- */

int uct_angara_peer_is_dirty(const uct_angara_peer_t *peer)
{
    return peer->rma_dirty || (peer->tx.head != peer->tx.marked) || peer->tx.ready_owed;
}

ucs_status_t uct_angara_peer_post_marker(uct_angara_peer_t *peer)
{
    uct_angara_channel_t *channel = &peer->channel;
    uct_angara_iface_t   *iface   = peer->iface;
    angara_status_t       angara_status;
    ucs_status_t          status;

    if (ucs_unlikely(peer->status != UCS_OK)) {
        return peer->status;
    }

    if (ucs_unlikely(peer->tx.ready_owed)) {
        return UCS_ERR_NO_RESOURCE; /* the marker must cover it */
    }

    status = uct_angara_batch_push(iface);
    if (ucs_unlikely((status != UCS_OK) && (iface->batch.peer == peer))) {
        return status;
    }

    if (ucs_unlikely(channel->slot == NULL)) {
        status = uct_angara_channel_open(iface, channel);
        if (status != UCS_OK) {
            return status;
        }
    }

    if (UCT_ANGARA_MUTANT(slot_reuse)) {
        channel->posted = *channel->slot; /* an older marker may still be on its way */
    }

    angara_status = angara_marker(peer->ap, channel->slot, channel->posted + 1);
    if (ucs_unlikely(angara_status != ANGARA_OK)) {
        return uct_angara_peer_error(peer, angara_status, "completion marker");
    }

    ++channel->posted;
    ++iface->stats.markers;
    peer->rma_dirty = 0;
    peer->tx.marked = peer->tx.head;
    return UCS_OK;
}

ucs_status_t uct_angara_peer_try_complete(uct_angara_peer_t *peer, uint64_t *value_p)
{
    uct_angara_channel_t *channel = &peer->channel;

    /* Where operations complete within the call a marker tells at once; elsewhere one marker per
     * turn of progress serves all operations of that turn. */
    if (ucs_likely(peer->iface->is_inline) && uct_angara_channel_idle(channel) &&
        ucs_queue_is_empty(&channel->ops) && (uct_angara_peer_post_marker(peer) == UCS_OK)) {
        if (ucs_likely(angara_marker_arrived(channel->slot, channel->posted))) {
            return UCS_OK;
        }
        *value_p = channel->posted;
        return UCS_INPROGRESS;
    }

    *value_p = channel->posted + 1;
    return UCS_INPROGRESS;
}

void uct_angara_peer_enqueue(uct_angara_peer_t *peer, uct_angara_op_t *op, uint64_t value)
{
    uct_angara_channel_t *channel = &peer->channel;

    if ((channel->slot == NULL) && ucs_queue_is_empty(&channel->ops) &&
        (uct_angara_channel_open(peer->iface, channel) == UCS_OK)) {
        value = channel->posted + 1;
    }
    uct_angara_channel_enqueue(channel, op, value);
    uct_angara_peer_activate(peer);
}

unsigned uct_angara_peer_progress_markers(uct_angara_peer_t *peer)
{
    uct_angara_channel_t *channel = &peer->channel;
    unsigned              count   = 0;
    uct_angara_op_t      *op;
    uint64_t              base;

    if ((channel->slot == NULL) && (channel->want > channel->posted)) {
        /* Ops were queued while no slot was free: give them values of the new slot. */
        if (uct_angara_channel_open(peer->iface, channel) != UCS_OK) {
            return 0;
        }
        base = channel->posted + 1;
        ucs_queue_for_each(op, &channel->ops, queue) {
            op->value = base;
        }
        peer->fence_value = base;
        channel->want     = base;
    }

    if (channel->slot == NULL) {
        return 0;
    }

    count = uct_angara_channel_complete(peer->iface, channel);
    if ((channel->want > channel->posted) && (uct_angara_peer_post_marker(peer) == UCS_OK)) {
        count += 1 + uct_angara_channel_complete(peer->iface, channel);
    }

    if (peer->blocked & UCT_ANGARA_BLOCK_FENCE) {
        uct_angara_peer_check_fence(peer);
    }

    return count;
}

int uct_angara_peer_has_user_ops(const uct_angara_peer_t *peer)
{
    uct_angara_op_t *op;

    ucs_queue_for_each(op, (ucs_queue_head_t *)&peer->channel.ops, queue) {
        if (!op->is_ours) {
            return 1;
        }
    }
    return 0;
}

void uct_angara_peer_fail_ops(uct_angara_peer_t *peer, ucs_status_t status)
{
    uct_angara_op_t *op, *last;
    ucs_queue_iter_t iter;

    while (!ucs_queue_is_empty(&peer->channel.ops)) {
        op = ucs_queue_pull_elem_non_empty(&peer->channel.ops, uct_angara_op_t, queue);
        op->func(peer->iface, op, status);
    }
    peer->channel.want = peer->channel.posted;

    /* those that wait for a self-marker */
    ucs_queue_for_each_safe(last, iter, &peer->iface->self_channel.ops, queue) {
        if (last->peer == peer) {
            ucs_queue_del_iter(&peer->iface->self_channel.ops, iter);
            --peer->iface->self_waits;
            uct_angara_iface_slow_dec(peer->iface);
            last->func(peer->iface, last, status);
        }
    }
}

/* ---- self-markers -------------------------------------------------------------------------- */

ucs_status_t uct_angara_self_try_complete(uct_angara_iface_t *iface, uint64_t *value_p)
{
    uct_angara_channel_t *channel = &iface->self_channel;
    ucs_status_t          status;

    if (channel->slot == NULL) {
        status = uct_angara_channel_open(iface, channel);
        if (status != UCS_OK) {
            return status;
        }
    }

    *value_p = channel->posted + 1;
    if (angara_marker_self(iface->pe, channel->slot, channel->posted + 1) == ANGARA_OK) {
        ++channel->posted;
        ++iface->stats.markers;
        if (ucs_queue_is_empty(&channel->ops) &&
            angara_marker_arrived(channel->slot, channel->posted)) {
            return UCS_OK;
        }
    }

    return UCS_INPROGRESS;
}

void uct_angara_self_enqueue(uct_angara_iface_t *iface, uct_angara_op_t *op, uint64_t value)
{
    uct_angara_channel_enqueue(&iface->self_channel, op, value);
    ++iface->self_waits;
    uct_angara_iface_slow_inc(iface);
}

unsigned uct_angara_self_progress(uct_angara_iface_t *iface)
{
    uct_angara_channel_t *channel = &iface->self_channel;
    unsigned              count;

    if (channel->slot == NULL) {
        return 0;
    }

    if ((channel->want > channel->posted) &&
        (angara_marker_self(iface->pe, channel->slot, channel->posted + 1) == ANGARA_OK)) {
        ++channel->posted;
        ++iface->stats.markers;
    }

    count = uct_angara_channel_complete(iface, channel);
    iface->self_waits -= count;
    iface->slow -= count;
    return count;
}

/* ---- flush --------------------------------------------------------------------------------- */

/* What was sent to a peer that left in order has been performed or is moot. */
static inline ucs_status_t uct_angara_flush_status(const uct_angara_peer_t *peer,
                                                   ucs_status_t             status)
{
    return peer->said_bye ? UCS_OK : status;
}

static void uct_angara_flush_done(uct_angara_iface_t *iface, uct_angara_op_t *op,
                                  ucs_status_t status)
{
    uct_angara_op_finish(iface, op, uct_angara_flush_status(op->peer, status));
}

ucs_status_t uct_angara_peer_flush(uct_angara_peer_t *peer, uct_angara_op_func_t func,
                                   uct_completion_t *comp, void *group)
{
    uct_angara_channel_t *channel = &peer->channel;
    uint64_t              value   = channel->posted;
    uct_angara_op_t      *op;

    if (ucs_unlikely(peer->status != UCS_OK)) {
        if (!peer->fail_due) {
            return UCS_OK; /* its operations have all ended */
        }
        /* complete after the operations that the next turn of progress ends */
        value = channel->want;
        goto wait;
    }

    if (uct_angara_peer_is_dirty(peer)) {
        /* if the marker can't be posted now, progress posts it */
        value = (uct_angara_peer_post_marker(peer) == UCS_OK) ? channel->posted :
                                                                channel->posted + 1;
    }

    if (ucs_queue_is_empty(&channel->ops) &&
        ((channel->slot == NULL) ? !uct_angara_peer_is_dirty(peer) :
                                   angara_marker_arrived(channel->slot, value))) {
        return UCS_OK;
    }

wait:
    if ((comp == NULL) && (group == NULL)) {
        channel->want = ucs_max(channel->want, value);
        uct_angara_peer_activate(peer);
        return UCS_INPROGRESS;
    }

    op = uct_angara_op_get(peer, func, comp);
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    op->group   = group;
    op->is_ours = (group == peer);
    if (peer->status != UCS_OK) {
        uct_angara_channel_enqueue(channel, op, value);
    } else {
        uct_angara_peer_enqueue(peer, op, ucs_max(value, channel->want));
    }
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

    if (!ucs_arbiter_group_is_empty(&ep->arb_group) && !peer->dispatching) {
        return UCS_ERR_NO_RESOURCE;
    }

    ++iface->stats.flushes;
    UCT_TL_EP_STAT_FLUSH(&ep->super);
    if (ucs_unlikely((peer->status != UCS_OK) && !peer->fail_due)) {
        return (flags & UCT_FLUSH_FLAG_CANCEL) ? UCS_OK :
                                                 uct_angara_flush_status(peer, peer->status);
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

    status = uct_angara_flush_status(op->peer, status);
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

    ucs_list_for_each(peer, &iface->peers, list) {
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

ucs_status_t uct_angara_iface_flush(uct_iface_h tl_iface, unsigned flags, uct_completion_t *comp)
{
    uct_angara_iface_t       *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);
    uct_angara_flush_group_t *group;
    ucs_status_t              status;

    (void)flags;
    if (!ucs_arbiter_is_empty(&iface->arbiter)) {
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
    peer->blocked |= UCT_ANGARA_BLOCK_FENCE;
    channel->want = ucs_max(channel->want, value);
    uct_angara_peer_activate(peer);
    uct_angara_peer_update(peer);
}

ucs_status_t uct_angara_peer_check_fence(uct_angara_peer_t *peer)
{
    if (!(peer->blocked & UCT_ANGARA_BLOCK_FENCE)) {
        return UCS_OK;
    }

    if ((peer->channel.slot == NULL) ||
        !angara_marker_arrived(peer->channel.slot, peer->fence_value)) {
        return UCS_ERR_NO_RESOURCE;
    }

    peer->blocked &= ~UCT_ANGARA_BLOCK_FENCE;
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
    ucs_list_for_each(peer, &iface->peers, list) {
        uct_angara_peer_fence(peer);
    }
    return UCS_OK;
}
