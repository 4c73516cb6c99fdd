/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What endpoints ask of their peer: to take part in it, to send, to flush. Fast paths look at
 * ch.blocked alone; all else is here.
 */
#ifndef UCT_ANGARA_USE_H
#define UCT_ANGARA_USE_H

#include "life/peer.h"

/**
 * Take part in the peer of @a address. A failure that is still to be told isn't this user's.
 * @return as uct_angara_peer_get().
 */
ucs_status_t uct_angara_peer_add_user(uct_angara_net_t *net, const angara_address_t *address,
                                      uct_angara_user_t *user);

/**
 * End what waits for messages of @a user that aren't in the ring yet: these are dropped.
 * @return number of completions.
 */
unsigned uct_angara_peer_cancel_user(uct_angara_user_t *user);

/** A user goes away: cancel its messages, and close what it alone needed. */
void uct_angara_peer_drop_user(uct_angara_user_t *user);

/** Slow path of a ring operation that found the peer blocked. */
ucs_status_t uct_angara_peer_unblock_rma(uct_angara_peer_t *peer);

/** @return non-zero if ring operations may be posted to the peer. */
static UCS_F_ALWAYS_INLINE int uct_angara_peer_may_rma(const uct_angara_peer_t *peer)
{
    return ucs_likely(!(peer->ch.blocked & ~UCT_ANGARA_BLOCK_RING));
}

/** @return UCS_OK if ring operations may be posted to the peer; the slow path if not. */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_peer_check_rma(uct_angara_peer_t *peer)
{
    if (uct_angara_peer_may_rma(peer)) {
        return UCS_OK;
    }

    return uct_angara_peer_unblock_rma(peer);
}

/**
 * Slow path of a send that found the peer blocked: start or wait for whatever is missing.
 * @return UCS_ERR_NOT_CONNECTED if that is but a ring: the message may be kept.
 */
ucs_status_t uct_angara_peer_unblock_msg(uct_angara_peer_t *peer);

/** Flush of a peer whose life isn't UP. */
ucs_status_t uct_angara_peer_flush_slow(uct_angara_peer_t *peer, uct_angara_op_func_t func,
                                        uct_completion_t *comp, void *group);

/** As uct_angara_channel_is_quiet(), and the peer is well. */
static UCS_F_ALWAYS_INLINE int uct_angara_peer_is_quiet(const uct_angara_peer_t *peer)
{
    return (peer->life.state == UCT_ANGARA_LIFE_UP) && uct_angara_channel_is_quiet(&peer->ch);
}

/** As uct_angara_channel_flush(); also of a peer that fails or is gone. */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_peer_flush(uct_angara_peer_t   *peer,
                                                              uct_angara_op_func_t func,
                                                              uct_completion_t *comp, void *group)
{
    if (ucs_likely(peer->life.state == UCT_ANGARA_LIFE_UP)) {
        return uct_angara_channel_flush(&peer->ch, func, comp, group);
    }

    return uct_angara_peer_flush_slow(peer, func, comp, group);
}

/** Is the peer still there? What is found out is told by the next turn of progress. */
void uct_angara_peer_ask(uct_angara_peer_t *peer);

#endif
