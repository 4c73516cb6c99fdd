/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending control records. A record for which the peer's event ring has no room waits, and goes out
 * in order at a later turn of progress. Nothing here changes a state.
 */
#ifndef UCT_ANGARA_CONTROL_H
#define UCT_ANGARA_CONTROL_H

#include "life/peer.h"

/*
 * Each: @return ANGARA_OK if the record has been sent or waits; ANGARA_ERR_LIMIT if too many
 * wait already, since the peer takes none; else what the library says.
 */

/** Ask for a ring; takes the next epoch. */
angara_status_t uct_angara_control_hello(uct_angara_peer_t *peer);
angara_status_t uct_angara_control_grant(uct_angara_peer_t *peer, const uct_angara_grant_t *grant);
angara_status_t uct_angara_control_refuse(uct_angara_peer_t *peer, uint8_t reason);
angara_status_t uct_angara_control_close(uct_angara_peer_t *peer);

/** Answer @a close, which is NULL for that of the connection which there is now. */
angara_status_t uct_angara_control_close_ack(uct_angara_peer_t         *peer,
                                             const uct_angara_record_t *close);

/** Give both directions up. What waits is given up with them, if there is no room for this. */
angara_status_t uct_angara_control_reset(uct_angara_peer_t *peer);
angara_status_t uct_angara_control_reset_ack(uct_angara_peer_t *peer);

/** Send what waits. @return as above; @a count_p: number of records sent. */
angara_status_t uct_angara_control_retry(uct_angara_peer_t *peer, unsigned *count_p);

/** Tell the peer that this PE goes away; gives up when its event ring stays full. */
void uct_angara_control_bye(uct_angara_peer_t *peer);

/**
 * Refuse a greeting without a peer object, so that the sender doesn't wait for an answer. Without
 * room in its event ring the refusal waits; those above UCT_ANGARA_CONTROL_MAX are lost.
 */
void uct_angara_control_refuse_raw(uct_angara_net_t *net, const uct_angara_hello_t *hello,
                                   uint8_t reason);

/** Send the refusals that wait. @return number of them that wait no more. */
unsigned uct_angara_control_retry_refusals(uct_angara_net_t *net);

/** Forget the refusals that wait. */
void uct_angara_control_drop_refusals(uct_angara_net_t *net);

#endif
