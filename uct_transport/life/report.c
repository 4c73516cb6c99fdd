/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports: a connection has failed, or its peer is gone, and those who use it are told. */
#include "life/report.h"

#include "life/act.h"
#include "life/hear.h"

ucs_status_t uct_angara_peer_verdict(uct_angara_peer_t *peer)
{
    if (!uct_angara_life_is_due(&peer->life)) {
        return peer->ch.status;
    }

    /* its good-bye, or the true reason, may wait among the events */
    uct_angara_event_drain(peer->net);
    if (peer->life.state == UCT_ANGARA_LIFE_PARTING) {
        uct_angara_peer_set_reason(peer, UCS_ERR_CONNECTION_RESET, "%s has left",
                                   angara_peer_name(peer->ch.ap));
    } else if (peer->life.state == UCT_ANGARA_LIFE_DYING) {
        uct_angara_peer_set_reason(peer, UCS_ERR_ENDPOINT_TIMEOUT, "%s died",
                                   angara_peer_name(peer->ch.ap));
    }
    return peer->ch.status;
}

/* Tell the users that wait for it. @return number of them that took no care of it. */
static unsigned uct_angara_peer_tell(uct_angara_peer_t *peer)
{
    uct_angara_peer_t *tomb      = peer->doomed;
    unsigned           unhandled = 0;
    uct_angara_user_t *user;
    int                found;

    peer->doomed = NULL;
    if (tomb == NULL) {
        return 0;
    }

    tomb->life.state = UCT_ANGARA_LIFE_DEAD;

    /* a handler may destroy any user: start over after each */
    do {
        found = 0;
        ucs_list_for_each(user, &tomb->users, list) {
            if (!user->is_told) {
                user->is_told = 1;
                found         = 1;
                unhandled += (tomb->net->up->tell(user, tomb->ch.status) != UCS_OK);
                break;
            }
        }
    } while (found);

    uct_angara_tomb_release(tomb);
    return unhandled;
}

/* @return non-zero if somebody must hear of it. */
static int uct_angara_peer_is_needed(const uct_angara_peer_t *peer)
{
    switch (peer->life.state) {
    case UCT_ANGARA_LIFE_TOLD:
        return !uct_angara_peer_spares_users(peer);
    case UCT_ANGARA_LIFE_DYING:
        if (peer->life.rx != UCT_ANGARA_RX_ENDED) {
            return 1; /* else it has ended its part in order, as far as that goes */
        }
        /* fall through */
    default:
        return peer->is_missed || (peer->npending > 0) ||
               (peer->is_lossy && uct_angara_channel_has_user_ops(&peer->ch)) ||
               !uct_angara_early_is_empty(&peer->ch.early);
    }
}

void uct_angara_peer_report(uct_angara_peer_t *peer)
{
    uct_angara_net_t *net       = peer->net;
    unsigned          unhandled = 0;
    char              reason[sizeof(peer->reason)];
    angara_status_t   status;
    int               is_orderly, is_needed, is_said;

    /* Nothing of ours may land after the report, or after what it tells the peer. */
    if (!uct_angara_life_is_gone(&peer->life)) {
        status = angara_peer_reset(peer->ch.ap);
        if ((status != ANGARA_OK) && (status != ANGARA_ERR_PEER_DEAD) &&
            (status != ANGARA_ERR_NO_DEVICE)) {
            ucs_debug("angara: %s isn't stopped yet: %s", angara_peer_name(peer->ch.ap),
                      angara_strerror(status));
            return; /* the next turn tries again */
        }
    }

    uct_angara_peer_verdict(peer);
    memcpy(reason, peer->reason, sizeof(reason));
    is_orderly = (peer->life.state == UCT_ANGARA_LIFE_PARTING);
    is_said    = peer->is_said;
    /* what was lost when it settled stays lost, though nothing of it is left to be seen */
    peer->is_lossy |= !uct_angara_life_is_gone(&peer->life) ||
                      uct_angara_channel_is_unconfirmed(&peer->ch);
    is_needed       = uct_angara_peer_is_needed(peer);
    peer->is_spared = uct_angara_peer_spares_users(peer);
    if ((uct_angara_peer_do(peer, is_needed ? UCT_ANGARA_EV_REPORT : UCT_ANGARA_EV_SETTLE, NULL) &
         UCT_ANGARA_DO_TELL) &&
        !peer->is_spared) {
        uct_angara_peer_bury(peer);
    }

    peer->is_spared = 0;
    peer->is_said   = 0;
    if (!uct_angara_life_is_gone(&peer->life)) {
        peer->ch.status = UCS_OK; /* for endpoints that come */
        peer->is_lossy  = 0;
        peer->is_missed = 0;
    }
    uct_angara_peer_update(peer);
    uct_angara_hear_late_hello(peer);

    unhandled = uct_angara_peer_tell(peer);
    if (peer->life.state == UCT_ANGARA_LIFE_DEAD) {
        uct_angara_peer_bury(peer); /* those that had come after a failure */
        unhandled += uct_angara_peer_tell(peer);
    }

    if ((unhandled > 0) && !is_orderly) {
        net->up->unhandled(net, reason, is_said);
    } else {
        /* somebody takes care of it, or nobody has an endpoint, or it knew what it did */
        ucs_diag("angara: %s", reason);
    }
}
