/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoint: a thin handle on a peer with a queue of pending requests of its own.
 */
#ifndef UCT_ANGARA_EP_H
#define UCT_ANGARA_EP_H

#include "verbs/iface.h"

typedef struct uct_angara_ep {
    uct_base_ep_t       super;
    uct_angara_user_t   user; /**< of the peer */
    ucs_arbiter_group_t arb_group;
    ucs_arbiter_group_t given_up; /**< requests that a failed peer ended: for purge only */
    angara_address_t    address;  /**< that it leads to */
} uct_angara_ep_t;

UCS_CLASS_DECLARE_NEW_FUNC(uct_angara_ep_t, uct_ep_t, const uct_ep_params_t *);
UCS_CLASS_DECLARE_DELETE_FUNC(uct_angara_ep_t, uct_ep_t);

static UCS_F_ALWAYS_INLINE uct_angara_peer_t *uct_angara_ep_peer(uct_ep_h tl_ep)
{
    return ucs_derived_of(tl_ep, uct_angara_ep_t)->user.peer;
}

/**
 * Begin a ring operation through a bounce buffer, op->bounce, behind uct_angara_peer_check_rma().
 * @return UCS_OK, UCS_ERR_NO_RESOURCE or UCS_ERR_NO_MEMORY.
 */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_bounce_op_get(uct_angara_peer_t   *peer,
                                                                 uct_angara_op_func_t func,
                                                                 uct_completion_t    *comp,
                                                                 uct_angara_op_t    **op_p)
{
    uct_angara_bounce_t *bounce = &peer->ch.port->bounce;
    ucs_status_t         status;
    void                *buffer;

    status = uct_angara_bounce_get(bounce, &buffer);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    *op_p = uct_angara_op_get(&peer->ch, func, comp);
    if (ucs_unlikely(*op_p == NULL)) {
        uct_angara_bounce_put(bounce, buffer);
        return UCS_ERR_NO_MEMORY;
    }

    (*op_p)->bounce = buffer;
    return UCS_OK;
}

/* messages: am.c */
ucs_status_t uct_angara_ep_am_short(uct_ep_h tl_ep, uint8_t id, uint64_t header,
                                    const void *payload, unsigned length);
ucs_status_t uct_angara_ep_am_short_iov(uct_ep_h tl_ep, uint8_t id, const uct_iov_t *iov,
                                        size_t iovcnt);
ssize_t uct_angara_ep_am_bcopy(uct_ep_h tl_ep, uint8_t id, uct_pack_callback_t pack_cb, void *arg,
                               unsigned flags);
ucs_status_t uct_angara_ep_am_zcopy(uct_ep_h tl_ep, uint8_t id, const void *header,
                                    unsigned header_length, const uct_iov_t *iov, size_t iovcnt,
                                    unsigned flags, uct_completion_t *comp);

/* remote memory: rma.c, amo.c */
ucs_status_t uct_angara_ep_put_short(uct_ep_h tl_ep, const void *buffer, unsigned length,
                                     uint64_t remote_addr, uct_rkey_t rkey);
ssize_t      uct_angara_ep_put_bcopy(uct_ep_h tl_ep, uct_pack_callback_t pack_cb, void *arg,
                                     uint64_t remote_addr, uct_rkey_t rkey);
ucs_status_t uct_angara_ep_put_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov, size_t iovcnt,
                                     uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t *comp);
ucs_status_t uct_angara_ep_get_short(uct_ep_h tl_ep, void *buffer, unsigned length,
                                     uint64_t remote_addr, uct_rkey_t rkey);
ucs_status_t uct_angara_ep_get_bcopy(uct_ep_h tl_ep, uct_unpack_callback_t unpack_cb, void *arg,
                                     size_t length, uint64_t remote_addr, uct_rkey_t rkey,
                                     uct_completion_t *comp);
ucs_status_t uct_angara_ep_get_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov, size_t iovcnt,
                                     uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t *comp);
ucs_status_t uct_angara_ep_atomic_cswap64(uct_ep_h tl_ep, uint64_t compare, uint64_t swap,
                                          uint64_t remote_addr, uct_rkey_t rkey, uint64_t *result,
                                          uct_completion_t *comp);
ucs_status_t uct_angara_ep_atomic_cswap32(uct_ep_h tl_ep, uint32_t compare, uint32_t swap,
                                          uint64_t remote_addr, uct_rkey_t rkey, uint32_t *result,
                                          uct_completion_t *comp);
ucs_status_t uct_angara_ep_atomic32_post(uct_ep_h tl_ep, unsigned opcode, uint32_t value,
                                         uint64_t remote_addr, uct_rkey_t rkey);
ucs_status_t uct_angara_ep_atomic64_post(uct_ep_h tl_ep, unsigned opcode, uint64_t value,
                                         uint64_t remote_addr, uct_rkey_t rkey);
ucs_status_t uct_angara_ep_atomic32_fetch(uct_ep_h tl_ep, unsigned opcode, uint32_t value,
                                          uint32_t *result, uint64_t remote_addr, uct_rkey_t rkey,
                                          uct_completion_t *comp);
ucs_status_t uct_angara_ep_atomic64_fetch(uct_ep_h tl_ep, unsigned opcode, uint64_t value,
                                          uint64_t *result, uint64_t remote_addr, uct_rkey_t rkey,
                                          uct_completion_t *comp);

/* flush, fence, pending requests, keepalive */
ucs_status_t uct_angara_ep_flush(uct_ep_h tl_ep, unsigned flags, uct_completion_t *comp);
ucs_status_t uct_angara_ep_fence(uct_ep_h tl_ep, unsigned flags);
ucs_status_t uct_angara_iface_flush(uct_iface_h tl_iface, unsigned flags, uct_completion_t *comp);
ucs_status_t uct_angara_iface_fence(uct_iface_h tl_iface, unsigned flags);
ucs_status_t uct_angara_ep_pending_add(uct_ep_h tl_ep, uct_pending_req_t *req, unsigned flags);
void uct_angara_ep_pending_purge(uct_ep_h tl_ep, uct_pending_purge_callback_t cb, void *arg);
ucs_status_t uct_angara_ep_check(uct_ep_h tl_ep, unsigned flags, uct_completion_t *comp);

/** Does the endpoint lead to that address? */
int uct_angara_ep_leads_to(uct_ep_h tl_ep, const uct_device_addr_t *dev_addr,
                           const uct_iface_addr_t *iface_addr);

/** Try the pending requests once. @return progress made. */
unsigned uct_angara_iface_dispatch_pending(uct_angara_iface_t *iface);

/** Messages between two GPUs go by rendezvous, where UCP can be told: gpu_rndv.c. */
void uct_angara_gpu_rndv_start(void);

#endif
