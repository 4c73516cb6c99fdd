/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flush and fence of a channel: what waits for a marker behind all that was sent, early messages
 * included.
 */
#include "channel/port.h"

/* ---- flush --------------------------------------------------------------------------------- */

/* Is somebody told of the op's end? That isn't done within a flush. */
static int uct_angara_op_is_told(const uct_angara_op_t *op)
{
    return (op->comp != NULL) || op->is_flush || op->is_ours;
}

/*
 * All that was posted has been performed, and no marker is under way: end what waits for the next
 * one, up to the first whose end somebody is told of. What an op starts as it ends waits.
 */
static void uct_angara_channel_end_untold(uct_angara_channel_t *ch)
{
    uct_angara_markers_t *markers = &ch->markers;
    size_t                count   = ucs_queue_length(&markers->ops);
    uct_angara_op_t      *op;

    for (; (count > 0) && !ucs_queue_is_empty(&markers->ops); --count) {
        op = ucs_queue_head_elem_non_empty(&markers->ops, uct_angara_op_t, queue);
        if (uct_angara_op_is_told(op)) {
            return;
        }
        ucs_queue_pull_non_empty(&markers->ops);
        op->func(ch->port, op, UCS_OK);
    }
    if (ucs_queue_is_empty(&markers->ops) && !ch->is_fenced) {
        markers->want = markers->posted;
    }
}

/*
 * Has all been performed, or is it within a moment? Then what nobody is told of has ended. A peer
 * that polls gets that moment, which costs less than to come back later.
 */
static int uct_angara_channel_settle_soon(uct_angara_channel_t *ch)
{
    if (uct_angara_batch_push_of(ch) != UCS_OK) {
        return 0;
    }
    if (!uct_angara_channel_settle(ch) &&
        !(ch->port->is_inline && angara_peer_hurry(ch->ap) && uct_angara_channel_settle(ch))) {
        return 0;
    }
    uct_angara_channel_end_untold(ch);
    return !uct_angara_channel_is_dirty(ch);
}

/*
 * Post what is missing.
 * @return UCS_OK if all is confirmed; UCS_INPROGRESS if a marker of *value_p will confirm it, or
 *         the report of a failure will end it.
 */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_channel_flush_start(uct_angara_channel_t *ch,
                                                                       int       is_ours,
                                                                       uint64_t *value_p)
{
    uct_angara_markers_t *markers = &ch->markers;

    if (ucs_unlikely(ch->status != UCS_OK)) {
        /* its operations are to be ended, or are being ended: complete behind them */
        *value_p = markers->want;
        return UCS_INPROGRESS;
    }

    *value_p = markers->posted;
    uct_angara_channel_count_anew(ch);
    uct_angara_channel_fence_stores(ch);
    if ((uct_angara_channel_is_dirty(ch) || (markers->want > markers->posted)) &&
        (!uct_angara_channel_settle_soon(ch) || !ucs_queue_is_empty(&markers->ops))) {
        /* if the marker can't be posted now, progress posts it */
        *value_p = (uct_angara_channel_post_marker(ch) == UCS_OK) ? markers->posted :
                                                                    markers->posted + 1;
    }

    if (ucs_queue_is_empty(&markers->ops) && (is_ours || (ch->self_ops == 0)) &&
        ((markers->slot == NULL) ? !uct_angara_channel_is_dirty(ch) :
                                   angara_marker_arrived(markers->slot, *value_p))) {
        return is_ours ? UCS_OK : uct_angara_channel_confirm(ch, ch->tx.head);
    }
    return UCS_INPROGRESS;
}

static void uct_angara_channel_flush_enqueue(uct_angara_channel_t *ch, uct_angara_op_t *op,
                                             uint64_t value)
{
    if (ch->status != UCS_OK) {
        uct_angara_markers_enqueue(&ch->markers, op, value);
    } else {
        uct_angara_channel_enqueue(ch, op, ucs_max(value, ch->markers.want));
    }
}

ucs_status_t uct_angara_channel_flush_slow(uct_angara_channel_t *ch, uct_angara_op_func_t func,
                                           uct_completion_t *comp, void *group)
{
    uint64_t         value = 0;
    uct_angara_op_t *op;
    ucs_status_t     status;
    int              is_early;

    is_early = !uct_angara_early_is_empty(&ch->early);
    if (!is_early) {
        status = uct_angara_channel_flush_start(ch, 0, &value);
        if (status == UCS_OK) {
            return UCS_OK;
        }
    }

    if ((comp == NULL) && (group == NULL)) {
        if (is_early) {
            return UCS_INPROGRESS;
        }
        ch->markers.want = ucs_max(ch->markers.want, value);
        uct_angara_channel_activate(ch);
        return UCS_INPROGRESS;
    }

    op = uct_angara_op_get(ch, func, comp);
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    op->flush.group = group;
    op->is_flush    = 1;
    if (is_early) {
        ucs_queue_push(&ch->early_ops, &op->queue);
    } else {
        op->flush.head = ch->tx.head;
        uct_angara_channel_flush_enqueue(ch, op, value);
    }
    return UCS_INPROGRESS;
}

ucs_status_t uct_angara_channel_flush_ours(uct_angara_channel_t *ch, uct_angara_op_func_t func,
                                           unsigned tag)
{
    uint64_t         value;
    uct_angara_op_t *op;

    if (uct_angara_channel_flush_start(ch, 1, &value) == UCS_OK) {
        return UCS_OK;
    }

    op = uct_angara_op_get(ch, func, NULL);
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    op->tag     = tag;
    op->is_ours = 1;
    uct_angara_channel_flush_enqueue(ch, op, value);
    return UCS_INPROGRESS;
}

/* ---- fence --------------------------------------------------------------------------------- */

void uct_angara_channel_fence(uct_angara_channel_t *ch)
{
    uct_angara_markers_t *markers = &ch->markers;
    uint64_t              value   = markers->posted;

    if (ch->status != UCS_OK) {
        return;
    }

    if (!uct_angara_early_is_empty(&ch->early)) {
        ch->is_fenced = 1; /* again when they have gone: its marker comes behind them */
        uct_angara_channel_update(ch);
        return;
    }

    uct_angara_channel_fence_stores(ch);
    if (uct_angara_channel_is_dirty(ch) && !uct_angara_channel_settle(ch)) {
        value = (uct_angara_channel_post_marker(ch) == UCS_OK) ? markers->posted :
                                                                 markers->posted + 1;
    }

    if (((markers->slot == NULL) ? !uct_angara_channel_is_dirty(ch) :
                                   angara_marker_arrived(markers->slot, value)) ||
        UCT_ANGARA_MUTANT(fence_nowait)) {
        return;
    }

    ch->fence_value = value;
    ch->is_fenced   = 1;
    markers->want   = ucs_max(markers->want, value);
    uct_angara_channel_activate(ch);
    uct_angara_channel_update(ch);
}

ucs_status_t uct_angara_channel_check_fence(uct_angara_channel_t *ch)
{
    if (!ch->is_fenced) {
        return UCS_OK;
    }

    if (!uct_angara_early_is_empty(&ch->early) || (ch->markers.slot == NULL) ||
        !angara_marker_arrived(ch->markers.slot, ch->fence_value)) {
        return UCS_ERR_NO_RESOURCE;
    }

    ch->is_fenced = 0;
    uct_angara_channel_update(ch);
    return UCS_OK;
}
