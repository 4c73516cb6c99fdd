/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an event leads to. What happens when is decided by life/states.c; this file does it, and
 * turns failures into events.
 */
#include "life/act.h"

#include "life/control.h"

#include <stdarg.h>

/* ---- failures ------------------------------------------------------------------------------ */

static void uct_angara_peer_set_reason_v(uct_angara_peer_t *peer, ucs_status_t status,
                                         const char *fmt, va_list ap)
{
    if (peer->ch.status != UCS_OK) {
        return; /* the first reason counts */
    }

    vsnprintf(peer->reason, sizeof(peer->reason), fmt, ap);
    peer->ch.status = status;
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

    if (peer->ch.status != UCS_OK) {
        return; /* it is to be reported, or just now is: what is found meanwhile is the same failure
                 */
    }

    va_start(ap, fmt);
    uct_angara_peer_set_reason_v(peer, status, fmt, ap);
    va_end(ap);
    uct_angara_peer_step(peer, UCT_ANGARA_EV_FAIL);
}

ucs_status_t uct_angara_peer_error(uct_angara_peer_t *peer, angara_status_t status,
                                   const char *what)
{
    if (status == ANGARA_ERR_PEER_DEAD) {
        /* The caller waits for the next turn of progress, which reports it: the first to speak of
         * a death must be the one who knows which peer and why. */
        uct_angara_peer_step(peer, UCT_ANGARA_EV_DOWN);
        return (peer->ch.status == UCS_OK) ? UCS_ERR_NO_RESOURCE : peer->ch.status;
    }

    uct_angara_peer_fail(peer, UCS_ERR_IO_ERROR, "%s to %s failed: %s", what,
                         angara_peer_name(peer->ch.ap), angara_strerror(status));
    return peer->ch.status;
}

void uct_angara_peer_unsaid(uct_angara_peer_t *peer, angara_status_t status)
{
    if (status == ANGARA_ERR_LIMIT) {
        uct_angara_peer_fail(
            peer, UCS_ERR_CONNECTION_RESET,
            "%s doesn't take its control records: %u wait already. It makes no progress, "
            "or its ANGARA_EVENTS is too small",
            angara_peer_name(peer->ch.ap), UCT_ANGARA_CONTROL_MAX);
    } else if (status != ANGARA_OK) {
        uct_angara_peer_error(peer, status, "control record");
    }
}

/* ---- what follows from an event ------------------------------------------------------------ */

/* A marker of the handshake has come back. If it never does, the connection has failed: then
 * nothing of the handshake is left to be done. */
static void uct_angara_peer_flushed(uct_angara_port_t *port, uct_angara_op_t *op,
                                    ucs_status_t status)
{
    uct_angara_peer_t *peer  = uct_angara_peer_of(op->ch);
    uct_angara_event_t event = (uct_angara_event_t)op->tag;

    uct_angara_op_finish(port, op, UCS_OK);
    if (status == UCS_OK) {
        uct_angara_peer_step(peer, event);
    }
}

/* All our writes must have landed before the peer hears of it: @a event says that they have. */
static void uct_angara_peer_flush_ours(uct_angara_peer_t *peer, uct_angara_event_t event)
{
    ucs_status_t status;

    status = uct_angara_channel_flush_ours(&peer->ch, uct_angara_peer_flushed, event);
    if (status == UCS_OK) {
        uct_angara_peer_step(peer, event);
    } else if (UCS_STATUS_IS_ERR(status)) {
        uct_angara_peer_fail(peer, status, "cannot close to %s: %s", angara_peer_name(peer->ch.ap),
                             ucs_status_string(status));
    }
}

static void uct_angara_peer_make_ring(uct_angara_peer_t *peer)
{
    uct_angara_grant_t grant;
    uint8_t            reason = uct_angara_rings_make(peer, &grant);

    if (reason == 0) {
        uct_angara_peer_unsaid(peer, uct_angara_control_grant(peer, &grant));
    } else {
        uct_angara_life_step(&peer->life, UCT_ANGARA_EV_NO_RING);
        uct_angara_peer_unsaid(peer, uct_angara_control_refuse(peer, reason));
        uct_angara_channel_activate(&peer->ch); /* it may be free at once */
    }
}

unsigned uct_angara_peer_do(uct_angara_peer_t *peer, uct_angara_event_t event,
                            const uct_angara_record_t *record)
{
    uct_angara_channel_t *ch   = &peer->ch;
    unsigned              todo = uct_angara_life_step(&peer->life, event);

    ucs_debug("angara: %s: %s; ring to it %s, from it %s, connection %s",
              (ch->ap != NULL) ? angara_peer_name(ch->ap) : "a failed connection",
              uct_angara_life_event_name(event), uct_angara_life_tx_name(&peer->life),
              uct_angara_life_rx_name(&peer->life), uct_angara_life_state_name(&peer->life));
    uct_angara_peer_update(peer);
    if (todo & UCT_ANGARA_DO_HELLO) {
        uct_angara_peer_unsaid(peer, uct_angara_control_hello(peer));
    }
    if (todo & UCT_ANGARA_DO_USE_RING) {
        peer->is_bound = 1;
        if (!uct_angara_early_is_empty(&ch->early)) {
            uct_angara_channel_activate(ch);
        }
    }
    if (todo & UCT_ANGARA_DO_MAKE_RING) {
        uct_angara_peer_make_ring(peer);
    }
    if (todo & UCT_ANGARA_DO_CLOSE) {
        uct_angara_peer_unsaid(peer, uct_angara_control_close(peer));
    }
    if (todo & UCT_ANGARA_DO_RESET) {
        uct_angara_peer_unsaid(peer, uct_angara_control_reset(peer));
    }
    if (todo & UCT_ANGARA_DO_STOP) {
        uct_angara_peer_stop(peer);
    }
    if (todo & UCT_ANGARA_DO_FREE_TX) {
        uct_angara_rings_free_tx(peer);
    }
    if (todo & UCT_ANGARA_DO_FREE_RX) {
        uct_angara_rings_free_rx(peer);
    }
    if (todo & UCT_ANGARA_DO_CLOSE_ACK) {
        uct_angara_peer_unsaid(peer, uct_angara_control_close_ack(peer, record));
    }
    if (todo & UCT_ANGARA_DO_RESET_ACK) {
        uct_angara_peer_unsaid(peer, uct_angara_control_reset_ack(peer));
    }
    if (todo & UCT_ANGARA_DO_TURN) {
        uct_angara_channel_activate(ch);
    }
    if (todo & UCT_ANGARA_DO_FLUSH_TX) {
        uct_angara_peer_flush_ours(peer, UCT_ANGARA_EV_FLUSHED);
    }
    if (todo & UCT_ANGARA_DO_FLUSH_RX) {
        uct_angara_channel_close_rx(ch);
        /* our last credit must have landed before the peer reuses its credit line */
        ch->is_credit_dirty = (ch->rx.credited > 0);
        uct_angara_channel_stir(ch);
        uct_angara_peer_flush_ours(peer, UCT_ANGARA_EV_CREDITED);
    }
    return todo;
}

void uct_angara_peer_step(uct_angara_peer_t *peer, uct_angara_event_t event)
{
    uct_angara_peer_do(peer, event, NULL);
}

/* ---- what users want ----------------------------------------------------------------------- */

ucs_status_t uct_angara_peer_hello(uct_angara_peer_t *peer)
{
    char         why[192];
    ucs_status_t status;

    if ((peer->life.state != UCT_ANGARA_LIFE_UP) || (peer->life.tx != UCT_ANGARA_TX_IDLE)) {
        return UCS_ERR_NO_RESOURCE; /* an answer comes first */
    }

    status = uct_angara_rings_take_credit(peer, why, sizeof(why));
    if (status != UCS_OK) {
        uct_angara_peer_fail(peer, status, "cannot send to %s: %s", angara_peer_name(peer->ch.ap),
                             why);
        return peer->ch.status;
    }

    uct_angara_peer_step(peer, UCT_ANGARA_EV_SEND);
    return (peer->ch.status == UCS_OK) ? UCS_ERR_NO_RESOURCE : peer->ch.status;
}

void uct_angara_peer_use(uct_angara_peer_t *peer)
{
    if (uct_angara_life_is_gone(&peer->life)) {
        peer->is_missed = 1; /* it left quietly, perhaps, but it is missed now */
        uct_angara_peer_step(peer, UCT_ANGARA_EV_USE);
    }
}

void uct_angara_peer_unused(uct_angara_peer_t *peer)
{
    if (!ucs_list_is_empty(&peer->users) ||
        ((peer->life.tx == UCT_ANGARA_TX_OPEN) && !uct_angara_early_is_empty(&peer->ch.early))) {
        return;
    }

    peer->is_bound = 0; /* later ones begin anew */
    uct_angara_peer_step(peer, UCT_ANGARA_EV_UNUSED);
}
