/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an event leads to: the states change, and what follows from it is done. The only way to
 * change the states of a peer.
 */
#ifndef UCT_ANGARA_ACT_H
#define UCT_ANGARA_ACT_H

#include "life/peer.h"

/**
 * Something has happened: change the states and do what follows from it.
 * @param record  what the peer has said, if that is the event, or NULL.
 * @return UCT_ANGARA_DO_*.
 */
unsigned uct_angara_peer_do(uct_angara_peer_t *peer, uct_angara_event_t event,
                            const uct_angara_record_t *record);

/** The same of what isn't said by the peer. */
void uct_angara_peer_step(uct_angara_peer_t *peer, uct_angara_event_t event);

/**
 * Note that the peer has failed; outstanding work, endpoints and user hear of it from the next turn
 * of progress, never from within the caller.
 */
void uct_angara_peer_fail(uct_angara_peer_t *peer, ucs_status_t status, const char *fmt, ...)
    UCS_F_PRINTF(3, 4);

/** Note why, if there is no reason yet, for a change of the states that follows. */
void uct_angara_peer_set_reason(uct_angara_peer_t *peer, ucs_status_t status, const char *fmt, ...)
    UCS_F_PRINTF(3, 4);

/** Note a negative status of the library, other than ANGARA_ERR_NO_RESOURCE. @return it as UCX's.
 */
ucs_status_t uct_angara_peer_error(uct_angara_peer_t *peer, angara_status_t status,
                                   const char *what);

/** A control record wasn't sent: nothing works without. ANGARA_OK: it was. */
void uct_angara_peer_unsaid(uct_angara_peer_t *peer, angara_status_t status);

/** Ask the peer for a ring, if there is none and nothing has to end first. */
ucs_status_t uct_angara_peer_hello(uct_angara_peer_t *peer);

/** The peer is used or asked for: if it has left, that is told now. */
void uct_angara_peer_use(uct_angara_peer_t *peer);

/** Nobody has an endpoint: close the connection, unless early messages are still to be sent. */
void uct_angara_peer_unused(uct_angara_peer_t *peer);

#endif
