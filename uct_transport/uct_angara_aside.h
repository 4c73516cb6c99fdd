/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings and credit lines that a peer which failed, or started over, may still write to. They are
 * not used for others before the library says that the peer is gone. Touches iface->aside and the
 * sets of numbers.
 */
#ifndef UCT_ANGARA_ASIDE_H
#define UCT_ANGARA_ASIDE_H

struct uct_angara_iface;
struct uct_angara_idmap;
struct uct_angara_peer;

/** The peer has no more use for @a id: free it as soon as nothing of the peer can land there. */
void uct_angara_aside_give_up(struct uct_angara_peer *peer, struct uct_angara_idmap *ids,
                              unsigned id);

/** Free what those peers had that are gone by now, or @a all. */
void uct_angara_aside_reclaim(struct uct_angara_iface *iface, int all);

#endif
