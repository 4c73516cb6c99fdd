/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion: markers, and operations that wait for them. The rules are those of
 * docs/protocols.md, "Completion"; nothing else decides that an operation is complete.
 *
 * Invariant: an op with value v is completed only when the slot holds at least v, and a marker with
 * value v is posted only after everything that an op with value v stands for. Ops are queued in
 * order of their values.
 */
#include "uct_angara_marker.h"

#include "uct_angara_ep.h"

/* ---- ops ----------------------------------------------------------------------------------- */

uct_angara_op_t *uct_angara_op_get(uct_angara_peer_t *peer, uct_angara_op_func_t func,
                                   uct_completion_t *comp)
{
    uct_angara_op_t *op = ucs_mpool_get_inline(&peer->iface->ops);

    if (ucs_unlikely(op == NULL)) {
        return NULL;
    }

    op->func     = func;
    op->peer     = peer;
    op->comp     = comp;
    op->bounce   = NULL;
    op->is_ours  = 0;
    op->is_flush = 0;
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

void uct_angara_channel_enqueue(uct_angara_channel_t *channel, uct_angara_op_t *op, uint64_t value)
{
    op->value     = value;
    channel->want = ucs_max(channel->want, value);
    ucs_queue_push(&channel->ops, &op->queue);
}

static void uct_angara_self_dequeued(uct_angara_iface_t *iface, uct_angara_op_t *op)
{
    --op->peer->self_ops;
    --iface->self_waits;
    uct_angara_iface_slow_dec(iface);
}

static unsigned uct_angara_channel_complete(uct_angara_iface_t   *iface,
                                            uct_angara_channel_t *channel)
{
    unsigned         count = 0;
    uct_angara_op_t *op;

    while (!ucs_queue_is_empty(&channel->ops)) {
        op = ucs_queue_head_elem_non_empty(&channel->ops, uct_angara_op_t, queue);
        if (!angara_marker_arrived(channel->slot, op->value) ||
            (op->is_flush && (uct_angara_peer_confirm(op->peer) != UCS_OK))) {
            break;
        }

        ucs_queue_pull_non_empty(&channel->ops);
        ++count;
        if (channel == &iface->self_channel) {
            uct_angara_self_dequeued(iface, op);
        }
        if (ucs_unlikely(op->is_flush && (op->peer->self_ops > 0))) {
            op->is_flush = 0; /* puts that it covers wait for a self-marker: end behind them */
            uct_angara_self_enqueue(iface, op, iface->self_channel.want);
            continue;
        }
        op->func(iface, op, UCS_OK);
    }

    return count;
}

/* ---- slots --------------------------------------------------------------------------------- */

int uct_angara_peer_release_slot(uct_angara_peer_t *peer)
{
    uct_angara_channel_t *channel = &peer->channel;

    if ((channel->slot == NULL) || !ucs_queue_is_empty(&channel->ops) ||
        (channel->want > channel->posted) || peer->is_fenced || !uct_angara_channel_idle(channel)) {
        return 0;
    }

    uct_angara_peer_close_channel(peer);
    return 1;
}

void uct_angara_peer_close_channel(uct_angara_peer_t *peer)
{
    uct_angara_channel_t *channel = &peer->channel;

    ucs_assert(ucs_queue_is_empty(&channel->ops));
    if (channel->slot != NULL) {
        angara_marker_slot_put(peer->iface->pe, channel->slot);
        channel->slot = NULL;
    }
    channel->want = channel->posted;
}

/* Take a slot, from an idle peer if all are in use. */
static ucs_status_t uct_angara_channel_open(uct_angara_iface_t   *iface,
                                            uct_angara_channel_t *channel)
{
    uct_angara_peer_t *peer;
    angara_status_t    status;

    status = angara_marker_slot_get(iface->pe, &channel->slot);
    if (status == ANGARA_ERR_NO_RESOURCE) {
        uct_angara_peers_for_each(peer, &iface->peers)
        {
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

/*
 * Give the peer a slot. What was queued without one, or waits for a fence, gets the value of the
 * next marker: it will cover all that was posted until now.
 */
static ucs_status_t uct_angara_peer_open_channel(uct_angara_peer_t *peer)
{
    uct_angara_channel_t *channel   = &peer->channel;
    int                   is_wanted = (channel->want > channel->posted);
    uct_angara_op_t      *op;
    ucs_status_t          status;

    status = uct_angara_channel_open(peer->iface, channel);
    if (status != UCS_OK) {
        return status;
    }

    ucs_queue_for_each(op, &channel->ops, queue) {
        op->value = channel->posted + 1;
    }
    peer->fence_value = channel->posted + 1;
    if (is_wanted) {
        channel->want = channel->posted + 1;
    }
    return UCS_OK;
}

/* ---- markers of a peer --------------------------------------------------------------------- */

int uct_angara_peer_is_dirty(const uct_angara_peer_t *peer)
{
    return peer->rma_dirty || peer->is_credit_dirty || (peer->tx.head != peer->tx.marked) ||
           peer->tx.ready_owed;
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

    if (!UCT_ANGARA_MUTANT(batch_after_marker)) {
        status = uct_angara_batch_push(iface);
        if (ucs_unlikely((status != UCS_OK) && (iface->batch.peer == peer))) {
            return status;
        }
    }

    if (ucs_unlikely(channel->slot == NULL)) {
        status = uct_angara_peer_open_channel(peer);
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
    peer->rma_dirty       = 0;
    peer->is_credit_dirty = 0;
    peer->tx.marked       = peer->tx.head;
    if (UCT_ANGARA_MUTANT(batch_after_marker)) {
        uct_angara_batch_push(iface);
    }
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

    if (ucs_unlikely(channel->slot == NULL)) {
        uct_angara_peer_open_channel(peer); /* without one, any value that is wanted will do */
        value = channel->posted + 1;
    }
    uct_angara_channel_enqueue(channel, op, value);
    uct_angara_peer_activate(peer);
}

unsigned uct_angara_peer_progress_markers(uct_angara_peer_t *peer)
{
    uct_angara_channel_t *channel = &peer->channel;
    unsigned              count   = 0;

    if ((channel->slot == NULL) &&
        ((channel->want <= channel->posted) || (uct_angara_peer_open_channel(peer) != UCS_OK))) {
        return 0;
    }

    count = uct_angara_channel_complete(peer->iface, channel);
    if ((channel->want > channel->posted) && (uct_angara_peer_post_marker(peer) == UCS_OK)) {
        count += 1 + uct_angara_channel_complete(peer->iface, channel);
    }

    if (peer->is_fenced) {
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
    return peer->self_ops > 0;
}

void uct_angara_peer_fail_ops(uct_angara_peer_t *peer, ucs_status_t status)
{
    uct_angara_op_t *op;
    ucs_queue_iter_t iter;

    /* what ends here must not be posted afterwards: its memory is its owner's again */
    uct_angara_batch_drop(peer);

    /* those that wait for a self-marker first: flushes wait for them */
    ucs_queue_for_each_safe(op, iter, &peer->iface->self_channel.ops, queue) {
        if (op->peer == peer) {
            ucs_queue_del_iter(&peer->iface->self_channel.ops, iter);
            uct_angara_self_dequeued(peer->iface, op);
            op->func(peer->iface, op, (op->is_flush && !peer->is_lossy) ? UCS_OK : status);
        }
    }

    while (!ucs_queue_is_empty(&peer->channel.ops)) {
        op = ucs_queue_pull_elem_non_empty(&peer->channel.ops, uct_angara_op_t, queue);
        op->func(peer->iface, op, (op->is_flush && !peer->is_lossy) ? UCS_OK : status);
    }
    peer->channel.want = peer->channel.posted;
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
    ++op->peer->self_ops;
    ++iface->self_waits;
    uct_angara_iface_slow_inc(iface);
}

unsigned uct_angara_self_progress(uct_angara_iface_t *iface)
{
    uct_angara_channel_t *channel = &iface->self_channel;

    if (channel->slot == NULL) {
        return 0;
    }

    if ((channel->want > channel->posted) &&
        (angara_marker_self(iface->pe, channel->slot, channel->posted + 1) == ANGARA_OK)) {
        ++channel->posted;
        ++iface->stats.markers;
    }

    return uct_angara_channel_complete(iface, channel);
}
