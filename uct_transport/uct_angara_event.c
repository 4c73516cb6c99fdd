/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events of the PE: notify puts (control records), faults, deaths. Tells records of peers from
 * those of strangers; touches no ring itself.
 */
#include "uct_angara_control.h"

#include "uct_angara_ep.h"

#define UCT_ANGARA_EVENTS_MAX 16 /* events taken per turn */

/* Strangers must not be able to fill the log. */
void uct_angara_event_complain(uct_angara_iface_t *iface, const char *what)
{
    if (!iface->has_strangers) {
        iface->has_strangers = 1;
        ucs_warn("angara: ignored %s (reported once)", what);
    }
}

static void uct_angara_event_notify(uct_angara_iface_t *iface, const angara_event_t *event)
{
    const uct_angara_record_t *record = (const void *)event->data;
    uct_angara_peer_t         *peer   = NULL;
    const char                *error;

    if (event->peer != NULL) {
        peer = angara_peer_user(event->peer);
    }

    if ((event->len < sizeof(*record)) || (record->version != UCT_ANGARA_PROTOCOL)) {
        error = "a control record of another version of the protocol";
    } else if (record->type == UCT_ANGARA_HELLO) {
        if (event->len == sizeof(uct_angara_hello_t)) {
            uct_angara_control_hello_in(iface, event->peer, (const void *)event->data);
            return;
        }
        error = "a bad greeting";
    } else if ((peer == NULL) && (record->type == UCT_ANGARA_BYE)) {
        return; /* from a peer that has been freed since */
    } else if (peer == NULL) {
        error = "a control record from a stranger";
    } else if (peer->status != UCS_OK) {
        /* nothing more is expected of it, except that it leaves in order */
        peer->said_bye |= (record->type == UCT_ANGARA_BYE);
        peer->it_closed |= (record->type == UCT_ANGARA_CLOSE);
        return;
    } else {
        error = uct_angara_control_record(peer, event->data, event->len);
    }

    if (error == NULL) {
        return;
    }

    if (peer != NULL) {
        uct_angara_peer_fail(peer, UCS_ERR_CONNECTION_RESET, "%s sent %s",
                             angara_peer_name(peer->ap), error);
    } else {
        uct_angara_event_complain(iface, error);
    }
}

static void uct_angara_event_overflow(uct_angara_iface_t *iface)
{
    uct_angara_peer_t *peer;
    angara_status_t    status;

    ucs_error("angara: events were lost; connections that were being made may hang");
    ucs_list_for_each(peer, &iface->peers, list) {
        status = angara_peer_status(peer->ap);
        if (status != ANGARA_OK) {
            uct_angara_peer_error(peer, status, "lost events: access");
        }
    }
    uct_angara_aside_reclaim(iface, 0);
}

static void uct_angara_event_take(uct_angara_iface_t *iface, const angara_event_t *event)
{
    uct_angara_peer_t *peer = NULL;

    if ((event->type != ANGARA_EVENT_NOTIFY) && (event->peer != NULL)) {
        peer = angara_peer_user(event->peer);
    }

    switch (event->type) {
    case ANGARA_EVENT_NOTIFY:
        uct_angara_event_notify(iface, event);
        break;
    case ANGARA_EVENT_FAULT:
        if ((peer != NULL) && (event->status == ANGARA_ERR_PEER_DEAD)) {
            uct_angara_peer_down(peer);
        } else if (peer != NULL) {
            uct_angara_peer_fail(
                peer, UCS_ERR_IO_ERROR, "access to the memory of %s failed: %s (key 0x%" PRIx64 ")",
                angara_peer_name(peer->ap), angara_strerror(event->status), event->key);
        }
        break;
    case ANGARA_EVENT_PEER_DOWN:
        if (peer != NULL) {
            if (event->status == ANGARA_OK) {
                peer->said_bye = 1; /* it closed its PE in order */
            }
            uct_angara_peer_down(peer);
        }
        uct_angara_aside_reclaim(iface, 0);
        break;
    case ANGARA_EVENT_LINK:
        ucs_diag("angara: link is %s", event->status ? "up" : "down");
        break;
    case ANGARA_EVENT_OVERFLOW:
        uct_angara_event_overflow(iface);
        break;
    default:
        ucs_debug("angara: event of unknown type %d", event->type);
        break;
    }
}

unsigned uct_angara_event_poll(uct_angara_iface_t *iface)
{
    unsigned       count = 0;
    angara_event_t event;

    while ((count < UCT_ANGARA_EVENTS_MAX) &&
           (angara_pe_event_poll(iface->pe, &event) == ANGARA_OK)) {
        uct_angara_event_take(iface, &event);
        ++count;
    }

    return count;
}
