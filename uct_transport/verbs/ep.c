/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoint: creation, destruction, pending requests, keepalive.
 */
#include "verbs/ep.h"

static UCS_CLASS_INIT_FUNC(uct_angara_ep_t, const uct_ep_params_t *params)
{
    uct_angara_iface_t *iface = ucs_derived_of(params->iface, uct_angara_iface_t);
    ucs_status_t        status;

    UCT_EP_PARAMS_CHECK_DEV_IFACE_ADDRS(params);
    UCS_CLASS_CALL_SUPER_INIT(uct_base_ep_t, &iface->super);

    memcpy(&self->address, params->iface_addr, sizeof(self->address));
    status = uct_angara_peer_add_user(&iface->net, &self->address, &self->user);
    if (status != UCS_OK) {
        return status;
    }

    ucs_arbiter_group_init(&self->arb_group);
    ucs_arbiter_group_init(&self->given_up);
    return UCS_OK;
}

static UCS_CLASS_CLEANUP_FUNC(uct_angara_ep_t)
{
    uct_angara_ep_pending_purge(&self->super.super, NULL, NULL);
    ucs_arbiter_group_cleanup(&self->arb_group);
    ucs_arbiter_group_cleanup(&self->given_up);
    uct_angara_peer_drop_user(&self->user);
}

UCS_CLASS_DEFINE(uct_angara_ep_t, uct_base_ep_t)
UCS_CLASS_DEFINE_NEW_FUNC(uct_angara_ep_t, uct_ep_t, const uct_ep_params_t *);
UCS_CLASS_DEFINE_DELETE_FUNC(uct_angara_ep_t, uct_ep_t);

int uct_angara_ep_leads_to(uct_ep_h tl_ep, const uct_device_addr_t *dev_addr,
                           const uct_iface_addr_t *iface_addr)
{
    (void)dev_addr;
    return memcmp(&ucs_derived_of(tl_ep, uct_angara_ep_t)->address, iface_addr,
                  sizeof(angara_address_t)) == 0;
}

/* ---- pending requests ---------------------------------------------------------------------- */

static void uct_angara_ep_count_pending(uct_angara_peer_t *peer, int diff)
{
    peer->npending += diff;
    peer->ch.port->slow += diff;
    uct_angara_peer_update(peer);
}

ucs_status_t uct_angara_ep_pending_add(uct_ep_h tl_ep, uct_pending_req_t *req, unsigned flags)
{
    uct_angara_ep_t   *ep   = ucs_derived_of(tl_ep, uct_angara_ep_t);
    uct_angara_peer_t *peer = ep->user.peer;

    (void)flags;
    UCS_STATIC_ASSERT(sizeof(uct_pending_req_priv_arb_t) <= UCT_PENDING_REQ_PRIV_LEN);

    /* Always taken: the next turn of progress tries it. Telling the caller to try again could make
     * it loop, since what was missing is known only to the operation. */
    uct_pending_req_arb_group_push(&ep->arb_group, req);
    ucs_arbiter_group_schedule(&uct_angara_peer_iface(peer)->arbiter, &ep->arb_group);
    ++peer->ch.stats.pending;
    UCT_TL_EP_STAT_PEND(&ep->super);
    uct_angara_ep_count_pending(peer, 1);
    return UCS_OK;
}

typedef struct uct_angara_ep_purge {
    uct_angara_ep_t             *ep;
    uct_pending_purge_callback_t cb;
    void                        *arg;
} uct_angara_ep_purge_t;

static ucs_arbiter_cb_result_t uct_angara_ep_purge_cb(ucs_arbiter_t       *arbiter,
                                                      ucs_arbiter_group_t *group,
                                                      ucs_arbiter_elem_t *elem, void *arg)
{
    uct_angara_ep_purge_t *purge = arg;
    uct_pending_req_t     *req   = ucs_container_of(elem, uct_pending_req_t, priv);

    (void)arbiter;
    if (group == &purge->ep->arb_group) {
        uct_angara_ep_count_pending(purge->ep->user.peer, -1);
    }
    if (purge->cb != NULL) {
        purge->cb(req, purge->arg);
    } else {
        ucs_debug("ep %p: pending request %p is dropped", purge->ep, req);
    }
    return UCS_ARBITER_CB_RESULT_REMOVE_ELEM;
}

void uct_angara_ep_pending_purge(uct_ep_h tl_ep, uct_pending_purge_callback_t cb, void *arg)
{
    uct_angara_ep_t      *ep      = ucs_derived_of(tl_ep, uct_angara_ep_t);
    ucs_arbiter_t        *arbiter = &uct_angara_peer_iface(ep->user.peer)->arbiter;
    uct_angara_ep_purge_t purge   = {ep, cb, arg};

    ucs_arbiter_group_purge(arbiter, &ep->given_up, uct_angara_ep_purge_cb, &purge);
    ucs_arbiter_group_purge(arbiter, &ep->arb_group, uct_angara_ep_purge_cb, &purge);
}

static ucs_arbiter_cb_result_t uct_angara_ep_dispatch_cb(ucs_arbiter_t       *arbiter,
                                                         ucs_arbiter_group_t *group,
                                                         ucs_arbiter_elem_t *elem, void *arg)
{
    uct_angara_ep_t   *ep    = ucs_container_of(group, uct_angara_ep_t, arb_group);
    uct_pending_req_t *req   = ucs_container_of(elem, uct_pending_req_t, priv);
    uct_angara_peer_t *peer  = ep->user.peer;
    unsigned          *count = arg;
    ucs_status_t       status;

    (void)arbiter;
    if (ucs_unlikely(uct_angara_life_is_due(&peer->life))) {
        return UCS_ARBITER_CB_RESULT_RESCHED_GROUP; /* the failure is reported first */
    }

    /* If the peer has failed, the operation gets the error, and the request ends with it. */
    ++peer->dispatching;
    uct_angara_peer_update(peer);
    status = req->func(req);
    --peer->dispatching;
    if (ucs_unlikely(ep->user.peer != peer)) {
        uct_angara_peer_update(peer);
        peer = ep->user.peer; /* it has failed, and moved with all that is queued to it */
    }
    if (ucs_unlikely((peer->ch.status != UCS_OK) && UCS_STATUS_IS_ERR(status) &&
                     (status != UCS_ERR_NO_RESOURCE))) {
        uct_pending_req_arb_group_push(&ep->given_up, req); /* its owner keeps it: don't try on */
        status = UCS_OK;
    }

    if (status == UCS_OK) {
        uct_angara_ep_count_pending(peer, -1);
    } else {
        uct_angara_peer_update(peer);
    }

    if (status == UCS_OK) {
        ++*count;
        return UCS_ARBITER_CB_RESULT_REMOVE_ELEM;
    } else if (status == UCS_INPROGRESS) {
        ++*count;
        return UCS_ARBITER_CB_RESULT_NEXT_GROUP;
    }

    return UCS_ARBITER_CB_RESULT_RESCHED_GROUP;
}

unsigned uct_angara_iface_dispatch_pending(uct_angara_iface_t *iface)
{
    unsigned count = 0;

    ucs_arbiter_dispatch(&iface->arbiter, 1, uct_angara_ep_dispatch_cb, &count);
    return count;
}

/* ---- keepalive ----------------------------------------------------------------------------- */

ucs_status_t uct_angara_ep_check(uct_ep_h tl_ep, unsigned flags, uct_completion_t *comp)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);

    UCT_ANGARA_EP_CHECK_PARAM(flags, comp);

    if (ucs_unlikely(peer->ch.ap == NULL)) {
        return UCS_OK; /* the failure has been told, or will be */
    }

    uct_angara_peer_ask(peer);
    return UCS_OK;
}
