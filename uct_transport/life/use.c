/* SPDX-License-Identifier: BSD-3-Clause */
/* What endpoints ask of their peer, see life/use.h. */
#include "life/use.h"

#include "life/act.h"

/* ---- users --------------------------------------------------------------------------------- */

ucs_status_t uct_angara_peer_add_user(uct_angara_net_t *net, const angara_address_t *address,
                                      uct_angara_user_t *user)
{
    uct_angara_peer_t *peer;
    ucs_status_t       status;

    status = uct_angara_peer_get(net, address, &peer);
    if (status != UCS_OK) {
        return status;
    }

    if (peer->ch.status != UCS_OK) {
        if (!uct_angara_peer_spares_users(peer)) { /* else those that there are go on, too */
            uct_angara_peer_bury(peer);
            peer->is_early_lost = 1;
        }
        peer->is_spared = 1;
    }

    user->peer    = peer;
    user->is_told = 0;
    ucs_list_add_tail(&peer->users, &user->list);
    return UCS_OK;
}

/* The peer that carries its messages: until a failure is reported they aren't in the tomb. */
static uct_angara_peer_t *uct_angara_user_carrier(const uct_angara_user_t *user)
{
    uct_angara_peer_t *peer = user->peer;

    if (ucs_likely(peer->ch.ap != NULL)) {
        return peer;
    }
    uct_angara_peers_for_each(peer, user->peer->net)
    {
        if (peer->doomed == user->peer) {
            break;
        }
    }
    return peer;
}

unsigned uct_angara_peer_cancel_user(uct_angara_user_t *user)
{
    uct_angara_peer_t *peer = uct_angara_user_carrier(user);

    return (peer == NULL) ? 0 : uct_angara_channel_cancel_copied(&peer->ch, user);
}

void uct_angara_peer_drop_user(uct_angara_user_t *user)
{
    const uct_angara_batch_t *batch;
    uct_angara_peer_t        *peer;

    while (uct_angara_peer_cancel_user(user) > 0) {
        /* nobody waits any more, unless those who were told have sent again */
    }

    peer  = user->peer;
    batch = &peer->net->port.batch;
    ucs_list_del(&user->list);
    if (peer->ch.ap == NULL) {
        uct_angara_tomb_try_free(peer);
        return;
    }

    /* Nobody flushes any more, and its owner may take the memory back now. What waits for a peer
     * that is gone can be forgotten: its operations end with the report of the failure. */
    while ((batch->count > 0) && (batch->ch == &peer->ch) &&
           !uct_angara_life_is_gone(&peer->life) &&
           (uct_angara_batch_push(&peer->net->port) == UCS_ERR_NO_RESOURCE)) {
        uct_angara_port_push(&peer->net->port);
    }
    if (uct_angara_life_is_gone(&peer->life) || (peer->ch.status != UCS_OK)) {
        uct_angara_batch_drop(&peer->ch);
    }

    if (ucs_list_is_empty(&peer->users)) {
        uct_angara_peer_unused(peer);
        uct_angara_channel_activate(&peer->ch); /* it may be free now */
    }
}

/* ---- blocked operations -------------------------------------------------------------------- */

ucs_status_t uct_angara_peer_unblock_rma(uct_angara_peer_t *peer)
{
    if (peer->ch.blocked & UCT_ANGARA_BLOCK_FAILED) {
        if (peer->ch.ap != NULL) {
            uct_angara_peer_use(peer);
        }
        return uct_angara_peer_spares_users(peer) ? UCS_ERR_NO_RESOURCE : peer->ch.status;
    }

    if ((peer->ch.blocked & UCT_ANGARA_BLOCK_FENCE) &&
        (uct_angara_channel_check_fence(&peer->ch) != UCS_OK)) {
        return UCS_ERR_NO_RESOURCE;
    }

    return (peer->ch.blocked & UCT_ANGARA_BLOCK_PENDING) ? UCS_ERR_NO_RESOURCE : UCS_OK;
}

ucs_status_t uct_angara_peer_unblock_msg(uct_angara_peer_t *peer)
{
    ucs_status_t status;

    status = uct_angara_peer_unblock_rma(peer);
    if (status != UCS_OK) {
        return status;
    }

    if (!(peer->ch.blocked & UCT_ANGARA_BLOCK_RING)) {
        return UCS_OK;
    } else if (peer->life.tx == UCT_ANGARA_TX_OPEN) {
        return UCS_ERR_NO_RESOURCE; /* early messages go first */
    }

    status = uct_angara_peer_hello(peer);
    return (status == UCS_ERR_NO_RESOURCE) ? UCS_ERR_NOT_CONNECTED : status;
}

/* ---- flush and keepalive ------------------------------------------------------------------- */

ucs_status_t uct_angara_peer_flush_slow(uct_angara_peer_t *peer, uct_angara_op_func_t func,
                                        uct_completion_t *comp, void *group)
{
    if (uct_angara_life_is_gone(&peer->life) && !uct_angara_life_is_due(&peer->life)) {
        if (!peer->is_lossy) {
            return UCS_OK; /* all was confirmed before its end */
        }
        uct_angara_peer_use(peer);
        return peer->ch.status;
    }

    return uct_angara_channel_flush(&peer->ch, func, comp, group);
}

void uct_angara_peer_ask(uct_angara_peer_t *peer)
{
    angara_status_t status = angara_peer_status(peer->ch.ap);

    if (ucs_unlikely((status != ANGARA_OK) && (peer->ch.status == UCS_OK))) {
        uct_angara_peer_error(peer, status, "keepalive");
    }
    uct_angara_peer_use(peer);
}
