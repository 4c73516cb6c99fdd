/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What arrives: control records, and the other events of the PE.
 */
#ifndef UCT_ANGARA_HEAR_H
#define UCT_ANGARA_HEAR_H

#include "life/peer.h"

/** A notify put has come, from a peer or from a stranger. */
void uct_angara_hear(uct_angara_net_t *net, const angara_event_t *said);

/** A greeting that came while a failure was to be reported is heard now. */
void uct_angara_hear_late_hello(uct_angara_peer_t *peer);

/** Take the events of the PE (life/event.c). @return number of events. */
unsigned uct_angara_event_poll(uct_angara_net_t *net);

/** Take all events that are there now. */
void uct_angara_event_drain(uct_angara_net_t *net);

#endif
