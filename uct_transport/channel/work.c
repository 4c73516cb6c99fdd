/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Turns of progress of a channel, early messages, and its end. Which turns there are, and when it
 * ends, is decided by the owner.
 */
#include "channel/port.h"

/* ---- early messages ------------------------------------------------------------------------ */

/* None is left: now flushes and fences get their marker. On a channel that has failed, flushes end
 * with its operations. */
static void uct_angara_channel_early_gone(uct_angara_channel_t *ch)
{
    uct_angara_op_t *op;

    while (!ucs_queue_is_empty(&ch->early_ops)) {
        op             = ucs_queue_pull_elem_non_empty(&ch->early_ops, uct_angara_op_t, queue);
        op->flush.head = ch->tx.head;
        if (ucs_unlikely(ch->status != UCS_OK)) {
            uct_angara_markers_enqueue(&ch->markers, op, ch->markers.want);
        } else {
            uct_angara_channel_enqueue(ch, op, ch->markers.posted + 1);
        }
    }
    if (ch->is_fenced) {
        ch->is_fenced = 0;
        uct_angara_channel_fence(ch);
    }
    uct_angara_channel_update(ch);
}

/* Who waits for messages of a queue that aren't in it any more. */
typedef struct {
    uct_completion_t *comps[UCT_ANGARA_EARLY_MSGS];
    ucs_status_t      statuses[UCT_ANGARA_EARLY_MSGS];
    unsigned          count;
} uct_angara_early_waiters_t;

static void uct_angara_early_note(uct_angara_early_waiters_t   *waiters,
                                  const uct_angara_early_msg_t *msg, ucs_status_t status)
{
    if (msg->copied != NULL) {
        waiters->comps[waiters->count]      = msg->copied->comp;
        waiters->statuses[waiters->count++] = status;
    }
}

/* Drop the oldest message; it has been copied. */
static void uct_angara_channel_early_end(uct_angara_channel_t *ch, ucs_status_t status,
                                         uct_angara_early_waiters_t *waiters)
{
    uct_angara_early_note(waiters, ch->early.head, status);
    uct_angara_early_pop(&ch->early);
}

/* The GPU writes to the message: it can't be freed before. */
static void uct_angara_early_wait(uct_angara_early_msg_t *msg)
{
    while ((msg->copied != NULL) && (angara_copy_test(&msg->copied->copy) == ANGARA_INPROGRESS)) {
        /* nothing else ends it */
    }
}

/* They may send more. */
static void uct_angara_early_tell(const uct_angara_early_waiters_t *waiters)
{
    for (unsigned i = 0; i < waiters->count; ++i) {
        uct_invoke_completion(waiters->comps[i], waiters->statuses[i]);
    }
}

unsigned uct_angara_channel_send_early(uct_angara_channel_t *ch)
{
    uct_angara_tx_t           *tx      = &ch->tx;
    uct_angara_early_waiters_t waiters = {.count = 0};
    angara_status_t            copied  = ANGARA_OK;
    unsigned                   count   = 0;
    uct_angara_early_msg_t    *msg;
    void                      *p;

    ch->is_sending_early = 1;
    uct_angara_channel_update(ch);
    while ((msg = ch->early.head) != NULL) {
        if (msg->copied != NULL) {
            copied = angara_copy_test(&msg->copied->copy);
        }
        if (copied == ANGARA_INPROGRESS) {
            break;
        } else if (copied != ANGARA_OK) {
            uct_angara_channel_early_end(ch, uct_angara_status(copied), &waiters);
            copied = ANGARA_OK;
            continue;
        }

        if (uct_angara_tx_reserve(ch, uct_angara_slots(&tx->shape, msg->length)) != UCS_OK) {
            break;
        }

        p = uct_angara_tx_buffer(ch);
        memcpy(p, msg->data, msg->length);
        if (uct_angara_tx_commit(ch, msg->id, p, msg->length) != UCS_OK) {
            break;
        }

        tx->bcopy += (msg->kind == UCT_ANGARA_EARLY_BCOPY);
        tx->zcopy += (msg->kind == UCT_ANGARA_EARLY_ZCOPY);
        uct_angara_channel_early_end(ch, UCS_OK, &waiters);
        ++count;
    }
    ch->is_sending_early = 0;
    uct_angara_channel_update(ch);

    if (uct_angara_early_is_empty(&ch->early) && (ch->status == UCS_OK)) {
        uct_angara_channel_early_gone(ch);
    }
    uct_angara_early_tell(&waiters);
    return count;
}

unsigned uct_angara_channel_cancel_copied(uct_angara_channel_t *ch, const void *user)
{
    uct_angara_early_waiters_t waiters = {.count = 0};
    uct_angara_early_msg_t    *prev    = NULL;
    uct_angara_early_msg_t    *msg, *next;

    for (msg = ch->early.head; msg != NULL; msg = next) {
        next = msg->next;
        if ((msg->copied == NULL) || (msg->copied->user != user)) {
            prev = msg;
            continue;
        }

        uct_angara_early_wait(msg);
        uct_angara_early_note(&waiters, msg, UCS_ERR_CANCELED);
        if (prev == NULL) {
            uct_angara_early_pop(&ch->early);
        } else {
            uct_angara_early_drop_next(&ch->early, prev);
        }
    }

    if (waiters.count > 0) {
        if (uct_angara_early_is_empty(&ch->early)) {
            uct_angara_channel_early_gone(ch);
        }
        uct_angara_early_tell(&waiters);
    }
    return waiters.count;
}

void uct_angara_channel_fail_early(uct_angara_channel_t *ch, ucs_status_t status)
{
    uct_angara_early_waiters_t waiters = {.count = 0};
    uct_angara_early_msg_t    *msg;
    uct_angara_op_t           *op;

    if (ch->early.count > 0) {
        ucs_debug("angara: %u messages to %s were not sent", ch->early.count,
                  angara_peer_name(ch->ap));
    }
    while ((msg = ch->early.head) != NULL) {
        uct_angara_early_wait(msg);
        uct_angara_channel_early_end(ch, status, &waiters);
    }
    uct_angara_early_tell(&waiters);
    while (!ucs_queue_is_empty(&ch->early_ops)) {
        op = ucs_queue_pull_elem_non_empty(&ch->early_ops, uct_angara_op_t, queue);
        op->func(ch->port, op, status);
    }
}

/* ---- turns --------------------------------------------------------------------------------- */

unsigned uct_angara_channel_progress(uct_angara_channel_t *ch)
{
    unsigned count;

    if (ucs_unlikely(ch->tx.ready_owed)) {
        uct_angara_tx_retry_ready(ch);
    }

    if (ucs_unlikely(ch->rx.credit_owed)) {
        uct_angara_rx_return_credits(ch);
    }

    count = uct_angara_channel_progress_markers(ch);
    uct_angara_channel_check_fence(ch);
    return count;
}

int uct_angara_channel_has_work(const uct_angara_channel_t *ch)
{
    const uct_angara_markers_t *markers = &ch->markers;

    return ch->tx.ready_owed || ch->rx.credit_owed || !ucs_queue_is_empty(&markers->ops) ||
           (markers->want > markers->posted) || !uct_angara_markers_idle(markers);
}

/* ---- ends ---------------------------------------------------------------------------------- */

void uct_angara_channel_close_rx(uct_angara_channel_t *ch)
{
    if (ch->rx.open) {
        uct_angara_poll_remove(&ch->port->poll, &ch->rx);
        ch->rx.open        = 0;
        ch->rx.credit_owed = 0;
    }
}

void uct_angara_channel_stop_rx(uct_angara_channel_t *ch)
{
    if (ch->rx.open) {
        while (uct_angara_rx_drain(ch->port, &ch->rx, UINT_MAX) > 0) {
            /* what it sent before is still delivered */
        }
    }
    uct_angara_channel_close_rx(ch);
}

void uct_angara_channel_stop(uct_angara_channel_t *ch, ucs_status_t status,
                             ucs_status_t flush_status, int drop_early)
{
    /* first: what their callbacks flush is queued with the others, and ends with them */
    if (drop_early) {
        uct_angara_channel_fail_early(ch, status);
    }
    uct_angara_channel_fail_ops(ch, status, flush_status);

    ch->rma_dirty       = 0;
    ch->is_credit_dirty = 0;
    ch->tx.marked       = ch->tx.head;
    ch->tx.confirmed    = ch->tx.head; /* what was lost has been told: no flush covers it */
    ch->tx.ready_owed   = 0;
    ch->is_fenced &= !uct_angara_early_is_empty(&ch->early);
    uct_angara_channel_close_markers(ch);
}
