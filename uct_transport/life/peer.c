/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers and tombs: creation, and the end of both. */
#include "life/peer.h"

/* What a peer and a tomb have in common. */
static uct_angara_peer_t *uct_angara_peer_alloc(uct_angara_net_t *net, angara_peer_h ap)
{
    uct_angara_peer_t *peer;

    if (ucs_posix_memalign((void **)&peer, UCS_SYS_CACHE_LINE_SIZE, sizeof(*peer), "angara_peer") !=
        0) {
        return NULL;
    }

    memset(peer, 0, sizeof(*peer));
    peer->net = net;
    ucs_list_head_init(&peer->users);
    uct_angara_channel_init(&peer->ch, &net->port, ap);
    uct_angara_peer_update(peer);
    return peer;
}

void uct_angara_peer_update(uct_angara_peer_t *peer)
{
    peer->ch.is_open = (peer->life.tx == UCT_ANGARA_TX_OPEN);
    peer->ch.is_mute = (peer->life.state != UCT_ANGARA_LIFE_UP);
    peer->ch.is_held = (peer->npending > 0) && !peer->dispatching;
    uct_angara_channel_update(&peer->ch);
}

ucs_status_t uct_angara_peer_get(uct_angara_net_t *net, const angara_address_t *address,
                                 uct_angara_peer_t **peer_p)
{
    angara_status_t    status;
    uct_angara_peer_t *peer;
    angara_peer_h      ap;

    status = angara_peer_connect(net->port.pe, address, &ap);
    if (status != ANGARA_OK) {
        ucs_debug("angara: cannot connect to PE %u of node %u: %s", address->index, address->node,
                  angara_strerror(status));
        return uct_angara_status(status);
    }

    peer = angara_peer_user(ap);
    if (peer != NULL) {
        angara_peer_disconnect(ap); /* the peer holds a reference already */
        if (uct_angara_life_is_gone(&peer->life)) {
            return (peer->ch.status != UCS_OK) ? peer->ch.status : UCS_ERR_UNREACHABLE;
        }
    } else {
        peer = uct_angara_peer_alloc(net, ap);
        if (peer == NULL) {
            angara_peer_disconnect(ap);
            return UCS_ERR_NO_MEMORY;
        }
        angara_peer_set_user(ap, peer);
        net->port.stats.peers += (memcmp(address, &net->address, sizeof(*address)) != 0);
    }

    *peer_p = peer;
    return UCS_OK;
}

/* ---- tombs --------------------------------------------------------------------------------- */

uct_angara_peer_t *uct_angara_tomb_alloc(uct_angara_net_t *net)
{
    return uct_angara_peer_alloc(net, NULL);
}

void uct_angara_peer_bury(uct_angara_peer_t *peer)
{
    uct_angara_peer_t *tomb;
    uct_angara_user_t *user, *tmp;

    if ((peer->doomed != NULL) || ucs_list_is_empty(&peer->users)) {
        return;
    }

    tomb = uct_angara_tomb_alloc(peer->net);
    if (tomb == NULL) {
        tomb            = peer->net->tomb;
        peer->net->tomb = NULL;
        if (tomb == NULL) {
            ucs_fatal("angara: no memory for the endpoints of a failed connection");
        }
    }

    ucs_list_for_each_safe(user, tmp, &peer->users, list) {
        user->peer = tomb;
        ucs_list_del(&user->list);
        ucs_list_add_tail(&tomb->users, &user->list);
    }
    memcpy(tomb->reason, peer->reason, sizeof(tomb->reason)); /* for debuggers, and tests */
    tomb->ch.status  = peer->ch.status;
    tomb->life.state = UCT_ANGARA_LIFE_FAILING; /* until they are told */
    tomb->npending   = peer->npending;
    uct_angara_peer_update(tomb);

    tomb->holds    = 1; /* its users may go before they are told */
    peer->doomed   = tomb;
    peer->npending = 0;
    peer->is_bound = 0;
    uct_angara_peer_update(peer);
}

void uct_angara_tomb_try_free(uct_angara_peer_t *tomb)
{
    if (ucs_list_is_empty(&tomb->users) && (tomb->holds == 0)) {
        uct_angara_stats_add(&tomb->net->port.stats, &tomb->ch.stats);
        ucs_free(tomb);
    }
}

void uct_angara_tomb_release(uct_angara_peer_t *tomb)
{
    tomb->holds = 0;
    uct_angara_tomb_try_free(tomb);
}

/* ---- the end of a peer --------------------------------------------------------------------- */

int uct_angara_peer_spares_users(const uct_angara_peer_t *peer)
{
    return peer->is_spared ||
           ((peer->life.state == UCT_ANGARA_LIFE_TOLD) && !peer->is_bound &&
            !uct_angara_channel_has_rma(&peer->ch) && !uct_angara_channel_has_user_ops(&peer->ch));
}

void uct_angara_peer_stop(uct_angara_peer_t *peer)
{
    uct_angara_channel_t *ch = &peer->ch;

    /* else early messages are of users that go on */
    int drop_early = !peer->is_spared || peer->is_early_lost ||
                     uct_angara_life_is_gone(&peer->life);

    uct_angara_channel_stop_rx(ch);
    uct_angara_channel_stop(ch, ch->status, peer->is_lossy ? ch->status : UCS_OK, drop_early);
    peer->is_early_lost = 0;
}

void uct_angara_peer_destroy(uct_angara_peer_t *peer)
{
    ucs_assert(ucs_list_is_empty(&peer->users));
    if (peer->doomed != NULL) {
        uct_angara_tomb_release(peer->doomed);
    }
    uct_angara_channel_fail_ops(&peer->ch, UCS_ERR_CANCELED, UCS_ERR_CANCELED);
    uct_angara_channel_fail_early(&peer->ch, UCS_ERR_CANCELED);
    uct_angara_rings_drop(peer);
    uct_angara_channel_cleanup(&peer->ch);
    angara_peer_set_user(peer->ch.ap, NULL);
    angara_peer_disconnect(peer->ch.ap);
    ucs_free(peer);
}

int uct_angara_peer_try_free(uct_angara_peer_t *peer)
{
    const uct_angara_life_t    *life = &peer->life;
    const uct_angara_channel_t *ch   = &peer->ch;

    if (!ucs_list_is_empty(&peer->users) || (peer->doomed != NULL) ||
        uct_angara_life_is_due(life) || (life->tx != UCT_ANGARA_TX_IDLE) ||
        uct_angara_life_has_ring(life) || !ucs_queue_is_empty(&ch->markers.ops) ||
        (ch->self_ops > 0) || !uct_angara_early_is_empty(&ch->early)) {
        return 0;
    }

    if (!uct_angara_life_is_gone(life) &&
        ((peer->nwaiting > 0) || uct_angara_channel_is_dirty(ch) ||
         !uct_angara_markers_idle(&ch->markers))) {
        return 0;
    }

    uct_angara_peer_destroy(peer);
    return 1;
}
