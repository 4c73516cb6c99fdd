/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flush and fence, of an endpoint and of the interface: operations that wait for a marker behind
 * all that a peer was sent.
 */
#include "verbs/ep.h"

/** Flush of an interface: one op per peer that isn't flushed yet. */
typedef struct uct_angara_flush_group {
    unsigned          count;
    ucs_status_t      status;
    uct_completion_t *comp;
} uct_angara_flush_group_t;

/* ---- flush --------------------------------------------------------------------------------- */

static void uct_angara_flush_done(uct_angara_port_t *port, uct_angara_op_t *op, ucs_status_t status)
{
    uct_angara_op_finish(port, op, status);
}

static UCS_F_NOINLINE ucs_status_t uct_angara_ep_flush_slow(uct_angara_ep_t *ep, unsigned flags,
                                                            uct_completion_t *comp)
{
    uct_angara_peer_t *peer;
    uct_angara_port_t *port;
    uct_angara_op_t   *op;
    ucs_status_t       status;
    uint64_t           value;

    if (ucs_unlikely(flags & UCT_FLUSH_FLAG_CANCEL)) {
        uct_angara_peer_cancel_user(&ep->user); /* else they wait for the receiver's credits */
    }

    peer = ep->user.peer;
    port = peer->ch.port;
    if (ucs_unlikely(peer->ch.ap == NULL)) {
        if (uct_angara_life_is_due(&peer->life)) {
            return UCS_ERR_NO_RESOURCE; /* its operations end with the report */
        }
        return (flags & UCT_FLUSH_FLAG_CANCEL) ? UCS_OK : peer->ch.status;
    }

    if (!ucs_arbiter_group_is_empty(&ep->arb_group) && !peer->dispatching) {
        return UCS_ERR_NO_RESOURCE;
    }

    /* A failure of others is to be reported first, and ends what waits. A flush of the interface
     * waits with it: it is of them, too. */
    if (ucs_unlikely(peer->ch.status != UCS_OK) && uct_angara_peer_spares_users(peer)) {
        return UCS_ERR_NO_RESOURCE;
    }

    if (UCT_ANGARA_MUTANT(self_marker_flush)) {
        status = uct_angara_self_try_complete(port, &value);
        if ((status == UCS_INPROGRESS) && (comp != NULL)) {
            op = uct_angara_op_get(&peer->ch, uct_angara_flush_done, comp);
            uct_angara_self_enqueue(port, op, value);
        }
        return status;
    }

    return uct_angara_peer_flush(peer, uct_angara_flush_done, comp, NULL);
}

ucs_status_t uct_angara_ep_flush(uct_ep_h tl_ep, unsigned flags, uct_completion_t *comp)
{
    uct_angara_ep_t      *ep   = ucs_derived_of(tl_ep, uct_angara_ep_t);
    uct_angara_peer_t    *peer = ep->user.peer;
    uct_angara_channel_t *ch   = &peer->ch;

    ++ch->stats.flushes;
    UCT_TL_EP_STAT_FLUSH(&ep->super);
    if (ucs_likely(uct_angara_peer_is_quiet(peer) && ucs_arbiter_group_is_empty(&ep->arb_group) &&
                   !(flags & UCT_FLUSH_FLAG_CANCEL))) {
        uct_angara_channel_quiet(ch);
        return UCS_OK;
    }
    return uct_angara_ep_flush_slow(ep, flags, comp);
}

static void uct_angara_flush_group_done(uct_angara_flush_group_t *group)
{
    if (--group->count > 0) {
        return;
    }

    uct_invoke_completion(group->comp, group->status);
    ucs_free(group);
}

static void uct_angara_flush_peer_done(uct_angara_port_t *port, uct_angara_op_t *op,
                                       ucs_status_t status)
{
    uct_angara_flush_group_t *group = op->flush.group;

    if (status != UCS_OK) {
        group->status = status;
    }
    uct_angara_op_finish(port, op, UCS_OK);
    uct_angara_flush_group_done(group);
}

/* In builds with checks: no channel that a flush has work on is off the list of stirred ones. */
static inline void uct_angara_flush_check(uct_angara_iface_t *iface)
{
#ifdef ANGARA_CHECKS
    unsigned           count = 0;
    uct_angara_peer_t *peer;

    uct_angara_peers_for_each(peer, &iface->net)
    {
        count += peer->ch.is_stirred;
        ucs_assert_always(peer->ch.is_stirred || (uct_angara_peer_is_quiet(peer) &&
                                                  !peer->ch.is_unfenced && (peer->ch.asked == 0)));
    }
    ucs_assert_always(count == ucs_list_length(&iface->net.port.stirred));
#else
    (void)iface;
#endif
}

/*
 * Flush the peers that were stirred since one of these flushes had nothing to do there; with
 * @a group NULL only look. @return UCS_OK, UCS_INPROGRESS or an error.
 */
static ucs_status_t uct_angara_iface_flush_peers(uct_angara_iface_t       *iface,
                                                 uct_angara_flush_group_t *group)
{
    uct_angara_port_t *port     = &iface->net.port;
    int                is_inner = port->is_flushing;
    ucs_status_t       result   = UCS_OK;
    ucs_list_link_t   *link, *next;
    uct_angara_peer_t *peer;
    ucs_status_t       status;

    uct_angara_flush_check(iface);
    port->is_flushing = 1;
    for (link = port->stirred.next; link != &port->stirred; link = next) {
        next = link->next; /* this one may leave the list */
        peer = uct_angara_peer_of(ucs_container_of(link, uct_angara_channel_t, stirred));
        if (ucs_likely(uct_angara_peer_is_quiet(peer))) {
            /* one that was used will soon be stirred anew */
            if (!uct_angara_channel_quiet(&peer->ch) && !is_inner) {
                uct_angara_channel_calm(&peer->ch);
            }
            continue;
        }

        status = uct_angara_peer_flush(peer, uct_angara_flush_peer_done, NULL, group);
        if (UCS_STATUS_IS_ERR(status)) {
            result = status;
            break;
        }

        if (status == UCS_INPROGRESS) {
            result = UCS_INPROGRESS;
            if (group != NULL) {
                ++group->count;
            }
        }
    }

    port->is_flushing = is_inner;
    return result;
}

/* @return non-zero if requests are queued that a flush must not overtake; those of endpoints that
 * have failed will never be sent, and are in a tomb. */
static int uct_angara_iface_has_pending(const uct_angara_iface_t *iface)
{
    uct_angara_peer_t *peer;

    if (ucs_likely(ucs_arbiter_is_empty((ucs_arbiter_t *)&iface->arbiter))) {
        return 0;
    }

    uct_angara_peers_for_each(peer, &iface->net)
    {
        if (peer->npending > 0) {
            return 1;
        }
    }
    return 0;
}

ucs_status_t uct_angara_iface_flush(uct_iface_h tl_iface, unsigned flags, uct_completion_t *comp)
{
    uct_angara_iface_t       *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);
    uct_angara_flush_group_t *group;
    ucs_status_t              status;

    (void)flags;
    if (uct_angara_iface_has_pending(iface)) {
        return (comp == NULL) ? UCS_INPROGRESS : UCS_ERR_NO_RESOURCE;
    }

    if (comp == NULL) {
        status = uct_angara_iface_flush_peers(iface, NULL);
    } else {
        group = ucs_malloc(sizeof(*group), "angara_flush_group");
        if (group == NULL) {
            return UCS_ERR_NO_MEMORY;
        }

        group->count  = 1; /* ours, so that it can't end before the loop does */
        group->status = UCS_OK;
        group->comp   = comp;
        status        = uct_angara_iface_flush_peers(iface, group);
        if (status == UCS_INPROGRESS) {
            --group->count;
        } else if (status == UCS_OK) {
            ucs_free(group);
        } else {
            group->status = status;
            uct_angara_flush_group_done(group);
            status = UCS_INPROGRESS;
        }
    }

    if (status == UCS_OK) {
        ++iface->net.port.stats.flushes;
        UCT_TL_IFACE_STAT_FLUSH(&iface->super);
    }
    return status;
}

/* ---- fence --------------------------------------------------------------------------------- */

ucs_status_t uct_angara_ep_fence(uct_ep_h tl_ep, unsigned flags)
{
    uct_angara_ep_t *ep = ucs_derived_of(tl_ep, uct_angara_ep_t);

    (void)flags;
    ++ep->user.peer->ch.stats.fences;
    UCT_TL_EP_STAT_FENCE(&ep->super);
    uct_angara_channel_fence(&ep->user.peer->ch);
    return UCS_OK;
}

ucs_status_t uct_angara_iface_fence(uct_iface_h tl_iface, unsigned flags)
{
    uct_angara_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);
    uct_angara_peer_t  *peer;

    (void)flags;
    ++iface->net.port.stats.fences;
    UCT_TL_IFACE_STAT_FENCE(&iface->super);
    uct_angara_peers_for_each(peer, &iface->net)
    {
        uct_angara_channel_fence(&peer->ch);
    }
    return UCS_OK;
}
