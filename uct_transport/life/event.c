/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events of the PE: notify puts (control records), faults, deaths. Passes them on, touches nothing
 * itself.
 */
#include "life/act.h"
#include "life/hear.h"

#define UCT_ANGARA_EVENTS_MAX 16 /* events taken per turn */

static void uct_angara_event_overflow(uct_angara_net_t *net)
{
    uct_angara_peer_t *peer;
    angara_status_t    status;

    ucs_error("angara: events were lost; connections that were being made may hang. Raise "
              "ANGARA_EVENTS (of a NIC: event_entries of the module angara_nic)");
    uct_angara_peers_for_each(peer, net)
    {
        status = angara_peer_status(peer->ch.ap);
        if (status != ANGARA_OK) {
            uct_angara_peer_error(peer, status, "lost events: access");
        }
    }
}

static void uct_angara_event_take(uct_angara_net_t *net, const angara_event_t *event)
{
    uct_angara_peer_t *peer = NULL;

    if ((event->type != ANGARA_EVENT_NOTIFY) && (event->peer != NULL)) {
        peer = angara_peer_user(event->peer);
    }

    switch (event->type) {
    case ANGARA_EVENT_NOTIFY:
        uct_angara_hear(net, event);
        break;
    case ANGARA_EVENT_FAULT:
        if ((peer != NULL) && (event->status == ANGARA_ERR_PEER_DEAD)) {
            uct_angara_peer_step(peer, UCT_ANGARA_EV_DOWN);
        } else if (peer != NULL) {
            uct_angara_peer_fail(
                peer, UCS_ERR_IO_ERROR, "access to the memory of %s failed: %s (key 0x%" PRIx64 ")",
                angara_peer_name(peer->ch.ap), angara_strerror(event->status), event->key);
        }
        break;
    case ANGARA_EVENT_PEER_DOWN:
        if (peer != NULL) {
            uct_angara_peer_step(peer, (event->status == ANGARA_OK) ? UCT_ANGARA_EV_GONE :
                                                                      UCT_ANGARA_EV_DOWN);
        }
        break;
    case ANGARA_EVENT_LINK:
        ucs_diag("angara: link is %s", event->status ? "up" : "down");
        break;
    case ANGARA_EVENT_OVERFLOW:
        uct_angara_event_overflow(net);
        break;
    default:
        ucs_debug("angara: event of unknown type %d", event->type);
        break;
    }
}

unsigned uct_angara_event_poll(uct_angara_net_t *net)
{
    unsigned       count = 0;
    angara_event_t event;

    while ((count < UCT_ANGARA_EVENTS_MAX) &&
           (angara_pe_event_poll(net->port.pe, &event) == ANGARA_OK)) {
        uct_angara_event_take(net, &event);
        ++count;
    }

    return count;
}

void uct_angara_event_drain(uct_angara_net_t *net)
{
    while (uct_angara_event_poll(net) > 0) {
        /* until all have been seen */
    }
}
