/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Get without zero copy: from mapped memory, by a peer that answers at once, or through a bounce
 * buffer. Touches the peer's channel and the bounce buffers.
 */
#include "verbs/rma.h"

/** Bytes that are got within the call, without a bounce buffer. */
#define UCT_ANGARA_GET_HERE UCT_ANGARA_HERE

static void uct_angara_get_bcopy_done(uct_angara_port_t *port, uct_angara_op_t *op,
                                      ucs_status_t status)
{
    if (ucs_likely(status == UCS_OK)) {
        op->unpack.cb(op->unpack.arg, op->bounce, op->unpack.length);
    }
    uct_angara_op_finish(port, op, status);
}

static UCS_F_ALWAYS_INLINE void uct_angara_get_bcopy_count(uct_ep_h      tl_ep,
                                                           size_t length UCS_V_UNUSED)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);

    ++peer->ch.stats.get_bcopy;
    UCT_TL_EP_STAT_OP(&ucs_derived_of(tl_ep, uct_angara_ep_t)->super, GET, BCOPY, length);
}

/**
 * Get it through a bounce buffer; what is mapped and longer than uct_angara_get_here() is for, now.
 * @param may_wait  it may join the batch.
 */
static ucs_status_t uct_angara_get_bounced(uct_ep_h tl_ep, uct_unpack_callback_t unpack_cb,
                                           void *arg, size_t length, uint64_t remote_addr,
                                           uct_rkey_t rkey, uct_completion_t *comp, int may_wait)
{
    uct_angara_peer_t *peer  = uct_angara_ep_peer(tl_ep);
    uct_angara_port_t *port  = peer->ch.port;
    uint64_t           value = 0;
    angara_xfer_t      xfer;
    uct_angara_op_t   *op;
    ucs_status_t       status;
    int                is_now;

    status = uct_angara_bounce_op_get(peer, uct_angara_get_bcopy_done, comp, &op);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    op->unpack.cb     = unpack_cb;
    op->unpack.arg    = arg;
    op->unpack.length = length;
    xfer              = (angara_xfer_t){.lmr     = port->bounce.mr,
                                        .laddr   = op->bounce,
                                        .rkey    = uct_angara_rma_key(rkey),
                                        .roffset = uct_angara_rma_offset(remote_addr, rkey),
                                        .length  = length};
    is_now            = (length > UCT_ANGARA_GET_HERE) &&
             angara_mapped_get(peer->ch.ap, op->bounce, xfer.rkey, xfer.roffset, length);
    if (is_now) {
        uct_angara_rma_count_else(peer, ANGARA_BATCH_GET);
    } else {
        status = uct_angara_rma_start(peer, ANGARA_BATCH_GET, &xfer, &may_wait);
        if (ucs_unlikely(status != UCS_OK)) {
            op->comp = NULL;
            uct_angara_op_finish(port, op, UCS_OK);
            return status;
        }
        value  = peer->ch.markers.posted + 1; /* that of a batch */
        is_now = !may_wait && (uct_angara_channel_try_complete(&peer->ch, &value) == UCS_OK);
    }

    uct_angara_get_bcopy_count(tl_ep, length);
    if (ucs_likely(is_now)) {
        unpack_cb(arg, op->bounce, length);
        op->comp = NULL; /* told by the return value */
        uct_angara_op_finish(port, op, UCS_OK);
        return UCS_OK;
    }

    uct_angara_channel_enqueue(&peer->ch, op, value);
    return UCS_INPROGRESS;
}

static UCS_F_NOINLINE ucs_status_t uct_angara_get_bcopy_slow(uct_ep_h              tl_ep,
                                                             uct_unpack_callback_t unpack_cb,
                                                             void *arg, size_t length,
                                                             uint64_t remote_addr, uct_rkey_t rkey,
                                                             uct_completion_t *comp)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);
    uct_angara_port_t *port = peer->ch.port;
    ucs_status_t       status;
    char               data[UCT_ANGARA_GET_HERE];

    UCT_CHECK_LENGTH(length, 0, port->bounce.size, "get_bcopy");
    if (ucs_unlikely(length == 0)) {
        unpack_cb(arg, port->scratch, 0);
        return UCS_OK;
    }

    status = uct_angara_peer_check_rma(peer);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    if (uct_angara_batch_has(&port->batch, &peer->ch, ANGARA_BATCH_GET, uct_angara_rma_key(rkey))) {
        uct_angara_channel_count_op(&peer->ch); /* as the one before */
    } else if ((length <= sizeof(data)) &&
               uct_angara_get_here(peer, data, length, uct_angara_rma_key(rkey),
                                   uct_angara_rma_offset(remote_addr, rkey))) {
        unpack_cb(arg, data, length);
        uct_angara_get_bcopy_count(tl_ep, length);
        return UCS_OK;
    }

    return uct_angara_get_bounced(tl_ep, unpack_cb, arg, length, remote_addr, rkey, comp,
                                  port->is_inline);
}

ucs_status_t uct_angara_ep_get_bcopy(uct_ep_h tl_ep, uct_unpack_callback_t unpack_cb, void *arg,
                                     size_t length, uint64_t remote_addr, uct_rkey_t rkey,
                                     uct_completion_t *comp)
{
    uct_angara_peer_t *peer  = uct_angara_ep_peer(tl_ep);
    const char        *there = NULL;
    uint64_t           word;

    if (ucs_likely(uct_angara_may_be_fast(peer, length, UCT_ANGARA_GET_HERE))) {
        there = angara_fast_get_begin(peer->ch.ap, uct_angara_rma_key(rkey),
                                      uct_angara_rma_offset(remote_addr, rkey), length);
    }
    if (ucs_unlikely(there == NULL)) {
        return uct_angara_get_bcopy_slow(tl_ep, unpack_cb, arg, length, remote_addr, rkey, comp);
    }
    if (length <= sizeof(word)) { /* at once, whatever the callback does */
        angara_fast_copy(&word, there, length);
        there = (const char *)&word;
    }
    UCT_TL_EP_STAT_OP(&ucs_derived_of(tl_ep, uct_angara_ep_t)->super, GET, BCOPY, length);
    unpack_cb(arg, there, length); /* the last, as in uct_angara_ep_put_short() */
    angara_fast_get_end();
    return UCS_OK;
}

/** Blocking get: waits here for the data. */
typedef struct uct_angara_get_wait {
    uct_completion_t comp;
    void            *buffer;
} uct_angara_get_wait_t;

static void uct_angara_get_short_unpack(void *arg, const void *data, size_t length)
{
    memcpy(((uct_angara_get_wait_t *)arg)->buffer, data, length);
}

static void uct_angara_get_short_done(uct_completion_t *comp)
{
    (void)comp; /* the count says it */
}

/*
 * The call ends with the failure. Its op, the oldest, stays until the report: only then has the
 * peer been stopped, and until then the data may still land in the buffer.
 */
static ucs_status_t uct_angara_get_short_leave(uct_angara_peer_t           *peer,
                                               const uct_angara_get_wait_t *wait)
{
    uct_angara_op_t *op = ucs_queue_head_elem_non_empty(&peer->ch.markers.ops, uct_angara_op_t,
                                                        queue);

    ucs_assert(op->comp == &wait->comp);
    (void)wait; /* in a UCX without assertions */
    op->func = uct_angara_op_done;
    op->comp = NULL;
    return peer->ch.status;
}

ucs_status_t uct_angara_ep_get_short(uct_ep_h tl_ep, void *buffer, unsigned length,
                                     uint64_t remote_addr, uct_rkey_t rkey)
{
    uct_angara_peer_t    *peer = uct_angara_ep_peer(tl_ep);
    uct_angara_get_wait_t wait = {
        .comp   = {.func = uct_angara_get_short_done, .count = 1, .status = UCS_OK},
        .buffer = buffer};
    angara_status_t angara_status;
    ucs_status_t    status;

    UCT_CHECK_LENGTH(length, 0, uct_angara_iface_md(uct_angara_peer_iface(peer))->attr.inline_max,
                     "get_short");
    UCT_SKIP_ZERO_LENGTH(length);

    status = uct_angara_peer_check_rma(peer);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    if (ucs_likely(uct_angara_get_here(peer, buffer, length, uct_angara_rma_key(rkey),
                                       uct_angara_rma_offset(remote_addr, rkey)))) {
        ++peer->ch.stats.get_short;
        UCT_TL_EP_STAT_OP(&ucs_derived_of(tl_ep, uct_angara_ep_t)->super, GET, SHORT, length);
        return UCS_OK;
    }

    /* Waiting below must not complete other requests of the user, and not be for a long put that a
     * self-marker will complete: be the first. */
    if (ucs_unlikely(!ucs_queue_is_empty(&peer->ch.markers.ops) || (peer->ch.self_ops > 0))) {
        return UCS_ERR_NO_RESOURCE;
    }

    status = uct_angara_channel_take_slot(&peer->ch);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    status = uct_angara_get_bounced(tl_ep, uct_angara_get_short_unpack, &wait, length, remote_addr,
                                    rkey, &wait.comp, 0);
    if (status == UCS_INPROGRESS) {
        do {
            uct_angara_port_push(peer->ch.port);
            uct_angara_channel_progress_markers(&peer->ch);
            angara_status = angara_peer_status(peer->ch.ap);
            if (ucs_unlikely(angara_status != ANGARA_OK)) {
                uct_angara_channel_error(&peer->ch, angara_status, "get");
            }
            status = uct_angara_peer_verdict(peer);
        } while ((wait.comp.count > 0) && (status == UCS_OK));
        status = (wait.comp.count > 0) ? uct_angara_get_short_leave(peer, &wait) : wait.comp.status;
    }

    if (ucs_likely(status == UCS_OK)) {
        --peer->ch.stats.get_bcopy;
        ++peer->ch.stats.get_short;
    }
    return status;
}
