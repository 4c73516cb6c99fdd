/* SPDX-License-Identifier: BSD-3-Clause */
/* The net: made and ended with its PE, and the turns of progress of its peers. */
#include "life/net.h"

#include "life/act.h"
#include "life/control.h"
#include "life/hear.h"
#include "life/report.h"
#include "life/use.h"

/* ---- what the channels ask ----------------------------------------------------------------- */

static ucs_status_t uct_angara_net_error(uct_angara_channel_t *ch, angara_status_t status,
                                         const char *what)
{
    uct_angara_peer_t *peer   = uct_angara_peer_of(ch);
    int                is_new = (ch->status == UCS_OK);
    ucs_status_t       result;

    if (status == ANGARA_ERR_PAIR) {
        uct_angara_event_drain(peer->net); /* the fault itself is among them */
    }
    result = uct_angara_peer_error(peer, status, what);

    /* What the program asked for can't be done. All that it gets is a status, for which it may end
     * before the failure is reported, as MPI does. */
    if (is_new && (ch->status == UCS_ERR_IO_ERROR) &&
        ((status == ANGARA_ERR_BOUNDS) || (status == ANGARA_ERR_RIGHTS) ||
         (status == ANGARA_ERR_PAIR))) {
        peer->is_said = 1;
        peer->net->up->refused(peer->net, peer->reason);
    }
    return result;
}

static void uct_angara_net_nonsense(uct_angara_channel_t *ch, const char *text)
{
    uct_angara_peer_fail(uct_angara_peer_of(ch), UCS_ERR_CONNECTION_RESET, "%s", text);
}

static ucs_status_t uct_angara_net_admit(uct_angara_channel_t *ch)
{
    return uct_angara_peer_unblock_msg(uct_angara_peer_of(ch));
}

/*
 * A peer that has given up the connection has told us so before it stopped to look. One that has
 * said BYE has returned credits for all that it took: what is left, it will never take.
 */
static ucs_status_t uct_angara_net_confirm(uct_angara_channel_t *ch)
{
    uct_angara_peer_t *peer = uct_angara_peer_of(ch);

    uct_angara_event_drain(peer->net);
    if (uct_angara_life_is_due(&peer->life) ||
        (uct_angara_life_is_leaving(&peer->life) && (*ch->tx.credit != ch->tx.head))) {
        return UCS_INPROGRESS;
    }
    return UCS_OK;
}

static const uct_angara_port_ops_t uct_angara_net_port_ops = {.error    = uct_angara_net_error,
                                                              .nonsense = uct_angara_net_nonsense,
                                                              .admit    = uct_angara_net_admit,
                                                              .confirm  = uct_angara_net_confirm};

/* ---- creation and end ---------------------------------------------------------------------- */

ucs_status_t uct_angara_net_open(uct_angara_net_t *net, angara_domain_h dom,
                                 const angara_attr_t *attr, const uct_angara_port_config_t *config,
                                 const uct_angara_net_ops_t *up, uct_angara_deliver_t deliver)
{
    ucs_status_t status;

    net->up = up;
    status = uct_angara_port_open(&net->port, dom, attr, config, &uct_angara_net_port_ops, deliver);
    if (status != UCS_OK) {
        return status;
    }

    angara_pe_address(net->port.pe, &net->address);
    net->tomb = uct_angara_tomb_alloc(net);
    if (net->tomb == NULL) {
        uct_angara_port_close(&net->port);
        return UCS_ERR_NO_MEMORY;
    }

    return UCS_OK;
}

void uct_angara_net_close(uct_angara_net_t *net)
{
    uct_angara_peer_t *peer;

    /* Whoever knows us must not take our end for a death. */
    uct_angara_peers_for_each(peer, net)
    {
        if (!uct_angara_life_is_gone(&peer->life)) {
            uct_angara_control_bye(peer);
        }
    }

    uct_angara_control_retry_refusals(net);
    uct_angara_control_drop_refusals(net);
    while (!ucs_list_is_empty(&net->port.channels)) {
        uct_angara_peer_destroy(uct_angara_peer_of(
            ucs_container_of(net->port.channels.next, uct_angara_channel_t, list)));
    }
    ucs_free(net->tomb);
    uct_angara_port_close(&net->port);
}

/* ---- turns of progress --------------------------------------------------------------------- */

/* @return non-zero if early messages wait for no event, but for a turn of progress. */
static int uct_angara_peer_can_send_early(const uct_angara_peer_t *peer)
{
    return !uct_angara_early_is_empty(&peer->ch.early) &&
           ((peer->life.tx == UCT_ANGARA_TX_OPEN) ||
            ((peer->life.tx == UCT_ANGARA_TX_IDLE) && (peer->life.state == UCT_ANGARA_LIFE_UP)));
}

/* Ask for a ring, or send what waits for it. @return number of messages sent. */
static unsigned uct_angara_peer_send_early(uct_angara_peer_t *peer)
{
    unsigned count;

    if (uct_angara_life_is_due(&peer->life)) {
        return 0; /* dropped by the report, or sent after it */
    } else if (peer->life.tx != UCT_ANGARA_TX_OPEN) {
        uct_angara_peer_hello(peer);
        return 0;
    }

    count = uct_angara_channel_send_early(&peer->ch);
    if (uct_angara_early_is_empty(&peer->ch.early) && (peer->ch.status == UCS_OK)) {
        uct_angara_peer_unused(peer); /* perhaps nobody wants it any more */
    }
    return count;
}

/* Deliver what is left behind the peer's CLOSE. @return number of records. */
static unsigned uct_angara_peer_consume(uct_angara_peer_t *peer)
{
    uct_angara_rx_t *rx    = &peer->ch.rx;
    unsigned         count = uct_angara_rx_drain(&peer->net->port, rx, UCT_ANGARA_DRAIN_MAX);

    if (rx->tail > rx->total) {
        uct_angara_peer_fail(peer, UCS_ERR_CONNECTION_RESET, "%s wrote on behind its CLOSE",
                             angara_peer_name(peer->ch.ap));
    } else if (rx->tail == rx->total) {
        uct_angara_rx_return_credits(&peer->ch); /* so that the peer knows what was consumed */
        if (!rx->credit_owed) {
            uct_angara_peer_step(peer, UCT_ANGARA_EV_CONSUMED);
        }
    }
    return count;
}

/* Slow work of one peer. May free it. @return progress made. */
static unsigned uct_angara_peer_progress(uct_angara_peer_t *peer)
{
    unsigned count = 0;

    if (ucs_unlikely(peer->nwaiting > 0)) {
        uct_angara_peer_unsaid(peer, uct_angara_control_retry(peer, &count));
    }

    if (peer->life.rx == UCT_ANGARA_RX_CLOSING) {
        count += uct_angara_peer_consume(peer);
    }

    if (ucs_unlikely(!uct_angara_early_is_empty(&peer->ch.early))) {
        count += uct_angara_peer_send_early(peer);
    }

    count += uct_angara_channel_progress(&peer->ch);

    if (ucs_unlikely(uct_angara_life_is_due(&peer->life))) {
        uct_angara_peer_report(peer);
        ++count;
    }

    if (uct_angara_life_is_due(&peer->life) || uct_angara_peer_can_send_early(peer) ||
        (peer->life.rx == UCT_ANGARA_RX_CLOSING) ||
        (!uct_angara_life_is_gone(&peer->life) &&
         ((peer->nwaiting > 0) || uct_angara_channel_has_work(&peer->ch)))) {
        return count;
    }

    if (!uct_angara_peer_try_free(peer)) {
        uct_angara_channel_rest(&peer->ch);
    }
    return count;
}

unsigned uct_angara_net_progress(uct_angara_net_t *net)
{
    uct_angara_port_t *port  = &net->port;
    unsigned           count = 0;
    ucs_list_link_t   *link, *next;

    angara_pe_progress(port->pe);
    count += uct_angara_event_poll(net);

    if (ucs_unlikely(net->nrefusals > 0)) {
        count += uct_angara_control_retry_refusals(net);
    }

    if (port->poll.nopen > port->poll.nhot) {
        count += uct_angara_poll_scan(port);
    }

    for (link = port->active.next; link != &port->active; link = next) {
        next = link->next; /* the peer may be freed */
        count += uct_angara_peer_progress(
            uct_angara_peer_of(ucs_container_of(link, uct_angara_channel_t, active)));
    }

    if (ucs_unlikely(port->self_waits > 0)) {
        count += uct_angara_self_progress(port);
    }

    return count;
}
