/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The net: all peers of a PE, made and ended with it, and their turns of progress.
 */
#ifndef UCT_ANGARA_NET_H
#define UCT_ANGARA_NET_H

#include "life/peer.h"

/**
 * Make a PE for peers.
 * @param net  Zeroed memory.
 * Others: see uct_angara_port_open().
 */
ucs_status_t uct_angara_net_open(uct_angara_net_t *net, angara_domain_h dom,
                                 const angara_attr_t *attr, const uct_angara_port_config_t *config,
                                 const uct_angara_net_ops_t *up, uct_angara_deliver_t deliver);

/** Say good-bye to all peers and destroy the PE. There are no users any more. */
void uct_angara_net_close(uct_angara_net_t *net);

/** Slow work: events, rings that aren't hot, peers. @return progress made. */
unsigned uct_angara_net_progress(uct_angara_net_t *net);

#endif
