/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports: a connection has failed, or its peer is gone, and those who use it are told. */
#ifndef UCT_ANGARA_REPORT_H
#define UCT_ANGARA_REPORT_H

#include "life/peer.h"

/** What a call that can't wait for a turn of progress ends with. @return UCS_OK if all is well. */
ucs_status_t uct_angara_peer_verdict(uct_angara_peer_t *peer);

/** The connection has failed, or the peer is gone: end its operations, tell its users. */
void uct_angara_peer_report(uct_angara_peer_t *peer);

#endif
