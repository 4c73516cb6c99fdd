/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion: markers, and operations that wait for them. The rules are those of
 * docs/protocols.md, "Completion"; nothing else decides that an operation is complete.
 *
 * Invariant: an op with value v is completed only when the slot holds at least v, and a marker with
 * value v is posted only after everything that an op with value v stands for. Ops are queued in
 * order of their values.
 */
#include "channel/port.h"

/* ---- ops ----------------------------------------------------------------------------------- */

uct_angara_op_t *uct_angara_op_get(uct_angara_channel_t *ch, uct_angara_op_func_t func,
                                   uct_completion_t *comp)
{
    uct_angara_op_t *op = ucs_mpool_get_inline(&ch->port->ops);

    if (ucs_unlikely(op == NULL)) {
        return NULL;
    }

    op->func     = func;
    op->ch       = ch;
    op->comp     = comp;
    op->bounce   = NULL;
    op->is_ours  = 0;
    op->is_flush = 0;
    return op;
}

void uct_angara_op_finish(uct_angara_port_t *port, uct_angara_op_t *op, ucs_status_t status)
{
    uct_completion_t *comp = op->comp;

    if (op->bounce != NULL) {
        uct_angara_bounce_put(&port->bounce, op->bounce);
    }
    ucs_mpool_put_inline(op);

    if (comp != NULL) {
        uct_invoke_completion(comp, status);
    }
}

void uct_angara_markers_enqueue(uct_angara_markers_t *markers, uct_angara_op_t *op, uint64_t value)
{
    op->value     = value;
    markers->want = ucs_max(markers->want, value);
    ucs_queue_push(&markers->ops, &op->queue);
}

static void uct_angara_self_dequeued(uct_angara_port_t *port, uct_angara_op_t *op)
{
    --op->ch->self_ops;
    --port->self_waits;
    uct_angara_port_slow_dec(port);
}

ucs_status_t uct_angara_channel_confirm(uct_angara_channel_t *ch, uint64_t head)
{
    if (head != ch->tx.confirmed) {
        if (ch->port->up->confirm(ch) != UCS_OK) {
            return UCS_INPROGRESS; /* ended by the owner */
        }
        ch->tx.confirmed = head; /* what follows may meet a peer that is deaf by then */
    }
    return UCS_OK;
}

static unsigned uct_angara_markers_complete(uct_angara_port_t *port, uct_angara_markers_t *markers)
{
    unsigned         count = 0;
    uct_angara_op_t *op;

    /* What a callback starts may give the slot to another channel, and queue behind it. */
    while ((markers->slot != NULL) && !ucs_queue_is_empty(&markers->ops)) {
        op = ucs_queue_head_elem_non_empty(&markers->ops, uct_angara_op_t, queue);
        if (!angara_marker_arrived(markers->slot, op->value) ||
            (op->is_flush && (uct_angara_channel_confirm(op->ch, op->flush.head) != UCS_OK))) {
            break;
        }

        ucs_queue_pull_non_empty(&markers->ops);
        ++count;
        if (markers == &port->self_markers) {
            uct_angara_self_dequeued(port, op);
        }
        if (ucs_unlikely(op->is_flush && (op->ch->self_ops > 0))) {
            op->is_flush = 0; /* puts that it covers wait for a self-marker: end behind them */
            uct_angara_self_enqueue(port, op, port->self_markers.want);
            continue;
        }
        op->func(port, op, UCS_OK);
    }

    return count;
}

/* ---- slots --------------------------------------------------------------------------------- */

void uct_angara_channel_close_markers(uct_angara_channel_t *ch)
{
    uct_angara_markers_t *markers = &ch->markers;

    ucs_assert(ucs_queue_is_empty(&markers->ops));
    if (markers->slot != NULL) {
        angara_marker_slot_put(ch->port->pe, markers->slot);
        markers->slot = NULL;
    }
    markers->want = markers->posted;
}

/* Give the slot back if nobody waits for it. @return non-zero if there was one. */
static int uct_angara_channel_release_slot(uct_angara_channel_t *ch)
{
    uct_angara_markers_t *markers = &ch->markers;

    if ((markers->slot == NULL) || !ucs_queue_is_empty(&markers->ops) ||
        (markers->want > markers->posted) || ch->is_fenced || !uct_angara_markers_idle(markers)) {
        return 0;
    }

    uct_angara_channel_close_markers(ch);
    return 1;
}

/* Take a slot, from an idle channel if all are in use. */
static ucs_status_t uct_angara_markers_open(uct_angara_port_t *port, uct_angara_markers_t *markers)
{
    uct_angara_channel_t *ch;
    angara_status_t       status;

    status = angara_marker_slot_get(port->pe, &markers->slot);
    if (status == ANGARA_ERR_NO_RESOURCE) {
        uct_angara_channels_for_each(ch, port)
        {
            if (uct_angara_channel_release_slot(ch)) {
                status = angara_marker_slot_get(port->pe, &markers->slot);
                if (status != ANGARA_ERR_NO_RESOURCE) {
                    break;
                }
            }
        }
    }

    if (status != ANGARA_OK) {
        markers->slot = NULL;
        return uct_angara_status(status);
    }

    markers->posted = *markers->slot;
    markers->want   = markers->posted;
    return UCS_OK;
}

/*
 * Give the channel a slot. What was queued without one, or waits for a fence, gets the value of the
 * next marker: it will cover all that was posted until now.
 */
static ucs_status_t uct_angara_channel_open_markers(uct_angara_channel_t *ch)
{
    uct_angara_markers_t *markers   = &ch->markers;
    int                   is_wanted = (markers->want > markers->posted);
    uct_angara_op_t      *op;
    ucs_status_t          status;

    status = uct_angara_markers_open(ch->port, markers);
    if (status != UCS_OK) {
        return status;
    }

    ucs_queue_for_each(op, &markers->ops, queue) {
        op->value = markers->posted + 1;
    }
    ch->rma_value   = markers->posted;
    ch->fence_value = markers->posted + 1;
    if (is_wanted) {
        markers->want = markers->posted + 1;
    }
    return UCS_OK;
}

ucs_status_t uct_angara_channel_take_slot(uct_angara_channel_t *ch)
{
    return (ch->markers.slot != NULL) ? UCS_OK : uct_angara_channel_open_markers(ch);
}

/* ---- markers of a channel ------------------------------------------------------------------- */

ucs_status_t uct_angara_channel_post_marker(uct_angara_channel_t *ch)
{
    uct_angara_markers_t *markers = &ch->markers;
    uct_angara_port_t    *port    = ch->port;
    angara_status_t       angara_status;
    ucs_status_t          status;

    if (ucs_unlikely(ch->status != UCS_OK)) {
        return ch->status;
    }

    if (ucs_unlikely(ch->tx.ready_owed)) {
        return UCS_ERR_NO_RESOURCE; /* the marker must cover it */
    }

    if (!UCT_ANGARA_MUTANT(batch_after_marker)) {
        status = uct_angara_batch_push(port);
        if (ucs_unlikely((status != UCS_OK) && (port->batch.ch == ch))) {
            return status;
        }
    }

    if (ucs_unlikely(markers->slot == NULL)) {
        status = uct_angara_channel_open_markers(ch);
        if (status != UCS_OK) {
            return status;
        }
    }

    if (UCT_ANGARA_MUTANT(slot_reuse)) {
        markers->posted = *markers->slot; /* an older marker may still be on its way */
    }

    angara_status = angara_marker(ch->ap, markers->slot, markers->posted + 1);
    if (ucs_unlikely(angara_status != ANGARA_OK)) {
        return uct_angara_channel_error(ch, angara_status, "completion marker");
    }

    ++markers->posted;
    uct_angara_channel_stir(ch);
    ++ch->stats.markers;
    if (ch->rma_dirty) {
        ch->rma_dirty = 0;
        ch->rma_value = markers->posted;
    }
    ch->is_credit_dirty = 0;
    ch->tx.marked       = ch->tx.head;
    if (UCT_ANGARA_MUTANT(batch_after_marker)) {
        uct_angara_batch_push(port);
    }
    return UCS_OK;
}

int uct_angara_channel_settle(uct_angara_channel_t *ch)
{
    const uct_angara_port_t *port = ch->port;

    if (!port->is_inline || uct_angara_batch_is_of(&port->batch, ch) || ch->tx.ready_owed ||
        (ch->status != UCS_OK) || !angara_peer_settled(ch->ap)) {
        return 0;
    }

    ch->rma_dirty       = 0;
    ch->is_credit_dirty = 0;
    ch->tx.marked       = ch->tx.head;
    return 1;
}

ucs_status_t uct_angara_channel_try_complete(uct_angara_channel_t *ch, uint64_t *value_p)
{
    uct_angara_markers_t *markers = &ch->markers;

    if (ucs_queue_is_empty(&markers->ops) && uct_angara_channel_settle(ch)) {
        return UCS_OK;
    }

    /* Where operations complete within the call a marker tells soon; elsewhere one marker per
     * turn of progress serves all operations of that turn. */
    if (ucs_likely(ch->port->is_inline) && uct_angara_markers_idle(markers) &&
        ucs_queue_is_empty(&markers->ops) && (uct_angara_channel_post_marker(ch) == UCS_OK)) {
        if (ucs_likely(angara_marker_arrived(markers->slot, markers->posted))) {
            return UCS_OK;
        }
        *value_p = markers->posted;
        return UCS_INPROGRESS;
    }

    *value_p = markers->posted + 1;
    return UCS_INPROGRESS;
}

void uct_angara_channel_enqueue(uct_angara_channel_t *ch, uct_angara_op_t *op, uint64_t value)
{
    uct_angara_markers_t *markers = &ch->markers;

    if (ucs_unlikely(markers->slot == NULL)) {
        uct_angara_channel_open_markers(ch); /* without one, any value that is wanted will do */
        value = markers->posted + 1;
    }
    uct_angara_markers_enqueue(markers, op, value);
    uct_angara_channel_activate(ch);
}

unsigned uct_angara_channel_progress_markers(uct_angara_channel_t *ch)
{
    uct_angara_markers_t *markers = &ch->markers;
    unsigned              count   = 0;

    if ((markers->slot == NULL) &&
        ((markers->want <= markers->posted) || (uct_angara_channel_open_markers(ch) != UCS_OK))) {
        return 0;
    }

    count = uct_angara_markers_complete(ch->port, markers);
    if ((markers->want > markers->posted) && (uct_angara_channel_post_marker(ch) == UCS_OK)) {
        count += 1 + uct_angara_markers_complete(ch->port, markers);
    }

    return count;
}

int uct_angara_channel_has_rma(const uct_angara_channel_t *ch)
{
    return ch->rma_dirty ||
           ((ch->markers.slot != NULL) && !angara_marker_arrived(ch->markers.slot, ch->rma_value));
}

int uct_angara_channel_is_unconfirmed(const uct_angara_channel_t *ch)
{
    const uct_angara_tx_t *tx = &ch->tx;
    uct_angara_op_t       *op;

    ucs_queue_for_each(op, (ucs_queue_head_t *)&ch->markers.ops, queue) {
        if (!op->is_ours && !op->is_flush) {
            return 1;
        }
    }
    return (ch->self_ops > 0) || ch->is_unfenced || uct_angara_channel_has_rma(ch) ||
           ((tx->head != tx->confirmed) && (*tx->credit != tx->head)) ||
           !uct_angara_early_is_empty(&ch->early);
}

int uct_angara_channel_has_user_ops(const uct_angara_channel_t *ch)
{
    uct_angara_op_t *op;

    ucs_queue_for_each(op, (ucs_queue_head_t *)&ch->markers.ops, queue) {
        if (!op->is_ours) {
            return 1;
        }
    }
    return ch->self_ops > 0;
}

void uct_angara_channel_fail_ops(uct_angara_channel_t *ch, ucs_status_t status,
                                 ucs_status_t flush_status)
{
    uct_angara_op_t *op;
    ucs_queue_iter_t iter;

    /* what ends here must not be posted afterwards: its memory is its owner's again */
    uct_angara_batch_drop(ch);

    /* those that wait for a self-marker first: flushes wait for them */
    ucs_queue_for_each_safe(op, iter, &ch->port->self_markers.ops, queue) {
        if (op->ch == ch) {
            ucs_queue_del_iter(&ch->port->self_markers.ops, iter);
            uct_angara_self_dequeued(ch->port, op);
            op->func(ch->port, op, op->is_flush ? flush_status : status);
        }
    }

    while (!ucs_queue_is_empty(&ch->markers.ops)) {
        op = ucs_queue_pull_elem_non_empty(&ch->markers.ops, uct_angara_op_t, queue);
        op->func(ch->port, op, op->is_flush ? flush_status : status);
    }
    ch->markers.want = ch->markers.posted;
}

/* ---- self-markers -------------------------------------------------------------------------- */

ucs_status_t uct_angara_self_try_complete(uct_angara_port_t *port, uint64_t *value_p)
{
    uct_angara_markers_t *markers = &port->self_markers;
    ucs_status_t          status;

    if (markers->slot == NULL) {
        status = uct_angara_markers_open(port, markers);
        if (status != UCS_OK) {
            return status;
        }
    }

    *value_p = markers->posted + 1;
    if (angara_marker_self(port->pe, markers->slot, markers->posted + 1) == ANGARA_OK) {
        ++markers->posted;
        ++port->stats.markers;
        if (ucs_queue_is_empty(&markers->ops) &&
            angara_marker_arrived(markers->slot, markers->posted)) {
            return UCS_OK;
        }
    }

    return UCS_INPROGRESS;
}

void uct_angara_self_enqueue(uct_angara_port_t *port, uct_angara_op_t *op, uint64_t value)
{
    uct_angara_markers_enqueue(&port->self_markers, op, value);
    ++op->ch->self_ops;
    uct_angara_channel_stir(op->ch);
    ++port->self_waits;
    uct_angara_port_slow_inc(port);
}

unsigned uct_angara_self_progress(uct_angara_port_t *port)
{
    uct_angara_markers_t *markers = &port->self_markers;

    if (markers->slot == NULL) {
        return 0;
    }

    if ((markers->want > markers->posted) &&
        (angara_marker_self(port->pe, markers->slot, markers->posted + 1) == ANGARA_OK)) {
        ++markers->posted;
        ++port->stats.markers;
    }

    return uct_angara_markers_complete(port, markers);
}
