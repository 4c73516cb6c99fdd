/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Put, and zero copy of both put and get; other gets: verbs/get.c. Data moves by offload
 * operations; what is complete is decided by markers (channel/marker.c). Touches the peer's channel
 * and the bounce buffers.
 */
#include "verbs/rma.h"

#include <uct/base/uct_iov.inl>

ucs_status_t uct_angara_rma_post(uct_angara_peer_t *peer, angara_batch_op_t op,
                                 const angara_xfer_t *xfer)
{
    angara_status_t status;

    if (op == ANGARA_BATCH_GET) {
        status = angara_offload_get(peer->ch.ap, xfer->lmr, xfer->laddr, xfer->rkey, xfer->roffset,
                                    xfer->length);
    } else {
        status = angara_offload_put(peer->ch.ap, xfer->lmr, xfer->laddr, xfer->rkey, xfer->roffset,
                                    xfer->length);
    }
    return uct_angara_rma_posted(peer, status, op, xfer->length);
}

void uct_angara_op_done(uct_angara_port_t *port, uct_angara_op_t *op, ucs_status_t status)
{
    uct_angara_op_finish(port, op, status);
}

/* ---- put ----------------------------------------------------------------------------------- */

static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_put_short_done(uct_ep_h        tl_ep,
                                                                  unsigned length UCS_V_UNUSED)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);

    ++peer->ch.stats.put_short;
    UCT_TL_EP_STAT_OP(&ucs_derived_of(tl_ep, uct_angara_ep_t)->super, PUT, SHORT, length);
    return UCS_OK;
}

/* Store to mapped memory now. @return 0: it is to be posted */
static UCS_F_ALWAYS_INLINE int uct_angara_put_here(uct_angara_peer_t *peer, const void *buffer,
                                                   uint64_t key, uint64_t offset, size_t length)
{
    if (angara_fast_is_queued(peer->ch.ap) ||
        !angara_mapped_put(peer->ch.ap, buffer, key, offset, length)) {
        return 0;
    }
    uct_angara_channel_stored(&peer->ch);
    uct_angara_rma_count_else(peer, ANGARA_BATCH_PUT);
    return 1;
}

/** Leave a short put to the batch: its bytes lie in a buffer with those of others there. */
static ucs_status_t uct_angara_put_packed(uct_angara_peer_t *peer, const void *buffer,
                                          unsigned length, uint64_t key, uint64_t offset)
{
    uct_angara_port_t  *port  = peer->ch.port;
    uct_angara_batch_t *batch = &port->batch;
    uct_angara_op_t    *op;
    angara_xfer_t       xfer;
    ucs_status_t        status;

    status = uct_angara_batch_room(&peer->ch, ANGARA_BATCH_PUT, length);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    if ((batch->pack == NULL) || (length > port->bounce.size - batch->packed)) {
        status = uct_angara_bounce_op_get(peer, uct_angara_op_done, NULL, &op);
        if (ucs_unlikely(status != UCS_OK)) {
            batch->packs_no_more = (status != UCS_ERR_NO_RESOURCE); /* the error was told */
            return status;
        }
        uct_angara_channel_enqueue(&peer->ch, op, peer->ch.markers.posted + 1);
        batch->pack   = op;
        batch->packed = 0;
    }

    xfer = (angara_xfer_t){.lmr     = port->bounce.mr,
                           .laddr   = (char *)batch->pack->bounce + batch->packed,
                           .rkey    = key,
                           .roffset = offset,
                           .length  = length};
    memcpy(xfer.laddr, buffer, length);
    batch->packed += ucs_align_up_pow2(length, sizeof(uint64_t));
    return uct_angara_rma_add(peer, ANGARA_BATCH_PUT, &xfer);
}

static UCS_F_NOINLINE ucs_status_t uct_angara_put_short_slow(uct_ep_h tl_ep, const void *buffer,
                                                             unsigned length, uint64_t remote_addr,
                                                             uct_rkey_t rkey)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);
    angara_status_t    angara_status;
    ucs_status_t       status;
    uint64_t           key, offset;

    UCT_CHECK_LENGTH(length, 0, uct_angara_iface_md(uct_angara_peer_iface(peer))->attr.inline_max,
                     "put_short");
    UCT_SKIP_ZERO_LENGTH(length);

    status = uct_angara_peer_check_rma(peer);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    key    = uct_angara_rma_key(rkey);
    offset = uct_angara_rma_offset(remote_addr, rkey);
    if (uct_angara_put_here(peer, buffer, key, offset, length)) {
        return uct_angara_put_short_done(tl_ep, length);
    }

    if (uct_angara_peer_iface(peer)->is_batching && peer->ch.port->is_inline &&
        !peer->ch.port->batch.packs_no_more && (length <= peer->ch.port->bounce.size) &&
        !uct_angara_put_takes_turn(peer, length)) {
        status = uct_angara_put_packed(peer, buffer, length, key, offset);
        if (ucs_likely(status == UCS_OK)) {
            return uct_angara_put_short_done(tl_ep, length);
        }
        if (ucs_unlikely(peer->ch.status != UCS_OK)) {
            return peer->ch.status;
        }
    } /* it needs no buffer: without one it is posted by itself */

    angara_status = angara_offload_put_inline(peer->ch.ap, buffer, key, offset, length);
    status        = uct_angara_rma_posted(peer, angara_status, ANGARA_BATCH_PUT, length);
    return ucs_likely(status == UCS_OK) ? uct_angara_put_short_done(tl_ep, length) : status;
}

/* Store it to mapped memory; the slow path if that isn't to be. The copy comes last, so that no
 * register is saved for what is behind it. */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_put_short_fast(
    uct_ep_h tl_ep, const void *buffer, unsigned length, uint64_t remote_addr, uct_rkey_t rkey)
{
    uct_angara_peer_t *peer  = uct_angara_ep_peer(tl_ep);
    char              *there = NULL;

    /* the slow path stirs it: no call is in this one */
    if (peer->ch.is_stirred && uct_angara_may_be_fast(peer, length, UCT_ANGARA_HERE)) {
        there = angara_fast_put_begin(peer->ch.ap, uct_angara_rma_key(rkey),
                                      uct_angara_rma_offset(remote_addr, rkey), length);
    }
    if (ucs_unlikely(there == NULL)) {
        return uct_angara_put_short_slow(tl_ep, buffer, length, remote_addr, rkey);
    }
    angara_fast_put_end(peer->ch.ap, length);
    peer->ch.is_unfenced = 1;
    UCT_TL_EP_STAT_OP(&ucs_derived_of(tl_ep, uct_angara_ep_t)->super, PUT, SHORT, length);
    angara_fast_copy(there, buffer, length);
    return UCS_OK;
}

static UCS_F_NOINLINE ucs_status_t uct_angara_put_short_any(uct_ep_h tl_ep, const void *buffer,
                                                            unsigned length, uint64_t remote_addr,
                                                            uct_rkey_t rkey)
{
    return uct_angara_put_short_fast(tl_ep, buffer, length, remote_addr, rkey);
}

ucs_status_t uct_angara_ep_put_short(uct_ep_h tl_ep, const void *buffer, unsigned length,
                                     uint64_t remote_addr, uct_rkey_t rkey)
{
    return (length == sizeof(uint64_t)) ?
               uct_angara_put_short_fast(tl_ep, buffer, sizeof(uint64_t), remote_addr, rkey) :
               uct_angara_put_short_any(tl_ep, buffer, length, remote_addr, rkey);
}

static UCS_F_ALWAYS_INLINE ssize_t uct_angara_put_bcopy_done(uct_ep_h tl_ep, size_t length)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);

    ++peer->ch.stats.put_bcopy;
    UCT_TL_EP_STAT_OP(&ucs_derived_of(tl_ep, uct_angara_ep_t)->super, PUT, BCOPY, length);
    return length;
}

/** Pack into a bounce buffer, and put it. */
static ssize_t uct_angara_put_bounced(uct_ep_h tl_ep, uct_pack_callback_t pack_cb, void *arg,
                                      uint64_t remote_addr, uct_rkey_t rkey)
{
    uct_angara_peer_t *peer     = uct_angara_ep_peer(tl_ep);
    uct_angara_port_t *port     = peer->ch.port;
    int                is_now   = 1;
    int                may_wait = port->is_inline; /* elsewhere it flies meanwhile */
    uct_angara_op_t   *op;
    angara_xfer_t      xfer;
    ucs_status_t       status;
    uint64_t           value = 0;

    status = uct_angara_bounce_op_get(peer, uct_angara_op_done, NULL, &op);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    xfer.lmr    = port->bounce.mr;
    xfer.laddr  = op->bounce;
    xfer.length = pack_cb(op->bounce, arg);
    if (ucs_likely(xfer.length > 0)) {
        xfer.rkey    = uct_angara_rma_key(rkey); /* without any bytes there may be none */
        xfer.roffset = uct_angara_rma_offset(remote_addr, rkey);
        if (!uct_angara_put_here(peer, xfer.laddr, xfer.rkey, xfer.roffset, xfer.length)) {
            status = uct_angara_rma_start(peer, ANGARA_BATCH_PUT, &xfer, &may_wait);
            value  = peer->ch.markers.posted + 1; /* that of a batch */
            is_now = (status != UCS_OK) ||
                     (!may_wait &&
                      (uct_angara_channel_try_complete(&peer->ch, &value) != UCS_INPROGRESS));
        }
    }

    if (is_now) {
        uct_angara_op_finish(port, op, UCS_OK);
    } else {
        uct_angara_channel_enqueue(&peer->ch, op, value); /* the buffer is in use until then */
    }
    return ucs_likely(status == UCS_OK) ? uct_angara_put_bcopy_done(tl_ep, xfer.length) : status;
}

/*
 * The length is known only when all is packed: into mapped memory, if the longest one has room
 * there, as it hasn't at the end of a region.
 */
ssize_t uct_angara_ep_put_bcopy(uct_ep_h tl_ep, uct_pack_callback_t pack_cb, void *arg,
                                uint64_t remote_addr, uct_rkey_t rkey)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);
    ucs_status_t       status;
    size_t             length;
    char              *there;

    status = uct_angara_peer_check_rma(peer);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    there = uct_angara_rkey_is_given(rkey) && (peer->ch.port->bounce.size <= UCT_ANGARA_HERE) ?
                angara_fast_put_begin(peer->ch.ap, uct_angara_rma_key(rkey),
                                      uct_angara_rma_offset(remote_addr, rkey),
                                      peer->ch.port->bounce.size) :
                NULL;
    if (there == NULL) {
        return uct_angara_put_bounced(tl_ep, pack_cb, arg, remote_addr, rkey);
    }

    length = pack_cb(there, arg);
    if (ucs_likely(length > 0)) {
        angara_fast_put_end(peer->ch.ap, length);
        uct_angara_channel_stored(&peer->ch);
        uct_angara_rma_count_else(peer, ANGARA_BATCH_PUT);
    }
    return uct_angara_put_bcopy_done(tl_ep, length);
}

/* ---- zero copy ----------------------------------------------------------------------------- */

/* The local ends must be what they were registered as; else they are registered again. */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_zcopy_check(uct_angara_peer_t *peer,
                                                               angara_batch_op_t  op,
                                                               const uct_iov_t *iov, size_t iovcnt)
{
    int               is_written = (op == ANGARA_BATCH_GET);
    ucs_status_t      status     = UCS_OK;
    uct_angara_mem_t *mem;
    size_t            length, i;

    for (i = 0; (i < iovcnt) && (status == UCS_OK); ++i) {
        mem    = iov[i].memh;
        length = uct_iov_get_length(&iov[i]);
        if (ucs_unlikely((length > 0) &&
                         !uct_angara_mem_is_good(mem, iov[i].buffer, length, is_written))) {
            status = uct_angara_mem_renew(uct_angara_iface_md(uct_angara_peer_iface(peer)), mem,
                                          iov[i].buffer, length, is_written);
        }
    }
    return status;
}

/*
 * Post the pieces, or leave a short transfer to the batch. Before the first one "no resource" means
 * that nothing was started; after it the others must follow, so they wait for room here.
 * @a total_p: bytes started, whatever is returned.
 */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_zcopy_start(
    uct_angara_peer_t *peer, angara_batch_op_t op, const uct_iov_t *iov, size_t iovcnt,
    uint64_t remote_addr, uct_rkey_t rkey, size_t *total_p, int *is_batched_p)
{
    angara_xfer_t xfer;
    ucs_status_t  status;
    size_t        i;

    *total_p      = 0;
    *is_batched_p = 0;
    for (i = 0; i < iovcnt; ++i) {
        xfer.length = uct_iov_get_length(&iov[i]);
        if (xfer.length == 0) {
            continue;
        }

        xfer.lmr      = uct_angara_mem_mr(iov[i].memh);
        xfer.laddr    = iov[i].buffer;
        xfer.rkey     = uct_angara_rma_key(rkey); /* without any bytes there may be none */
        xfer.roffset  = uct_angara_rma_offset(remote_addr + *total_p, rkey);
        *is_batched_p = (iovcnt == 1);
        status        = uct_angara_rma_start(peer, op, &xfer, is_batched_p);
        while (ucs_unlikely((status == UCS_ERR_NO_RESOURCE) && (*total_p > 0) &&
                            !uct_angara_life_is_gone(&peer->life))) {
            uct_angara_port_push(peer->ch.port);
            status = uct_angara_rma_post(peer, op, &xfer);
        }
        if (ucs_unlikely(status != UCS_OK)) {
            return status;
        }

        *total_p += xfer.length;
    }

    return UCS_OK;
}

int uct_angara_get_here(uct_angara_peer_t *peer, void *data, size_t length, uint64_t key,
                        uint64_t offset)
{
    if (angara_fast_is_queued(peer->ch.ap)) {
        uct_angara_channel_count_op(&peer->ch);
        return 0;
    }
    if (angara_mapped_get(peer->ch.ap, data, key, offset, length)) {
        uct_angara_rma_count_else(peer, ANGARA_BATCH_GET);
        return 1;
    }
    if (!uct_angara_takes_turn(peer, length) ||
        !angara_asked_get(peer->ch.ap, data, key, offset, length)) {
        return 0;
    }
    peer->ch.stats.get_bytes += length;
    return 1;
}

/* One piece between host memory and memory that this process has mapped is copied at once, if it
 * isn't long. @return 0: it is to be posted; what is wrong with it is found out then */
static UCS_F_ALWAYS_INLINE int uct_angara_zcopy_here(uct_angara_peer_t *peer, angara_batch_op_t dir,
                                                     const uct_iov_t *iov, size_t length,
                                                     uint64_t remote_addr, uct_rkey_t rkey)
{
    const uct_angara_mem_t *mem = iov->memh;
    uint64_t                key, offset, at;
    const char             *there;

    if ((length == 0) || (angara_mr_mem_kind(uct_angara_mem_mr(mem)) != ANGARA_MEM_HOST)) {
        return 0;
    }
    at = (uintptr_t)iov->buffer - (uintptr_t)mem->address;
    if ((at > mem->length) || (length > mem->length - at)) {
        return 0;
    }

    key    = uct_angara_rma_key(rkey);
    offset = uct_angara_rma_offset(remote_addr, rkey);
    if (dir == ANGARA_BATCH_PUT) {
        return uct_angara_put_here(peer, iov->buffer, key, offset, length);
    }
    there = (length <= UCT_ANGARA_HERE) ? angara_fast_get_begin(peer->ch.ap, key, offset, length) :
                                          NULL;
    if (there == NULL) {
        return uct_angara_get_here(peer, iov->buffer, length, key, offset);
    }
    angara_fast_copy(iov->buffer, there, length);
    angara_fast_get_end();
    uct_angara_rma_count_else(peer, ANGARA_BATCH_GET);
    return 1;
}

static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_zcopy(uct_ep_h tl_ep, angara_batch_op_t dir,
                                                         const uct_iov_t *iov, size_t iovcnt,
                                                         uint64_t remote_addr, uct_rkey_t rkey,
                                                         uct_completion_t *comp, size_t *length_p)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);
    uct_angara_op_t   *op;
    ucs_status_t       status;
    uint64_t           value;
    int                is_batched;

    status = uct_angara_peer_check_rma(peer);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    status = uct_angara_zcopy_check(peer, dir, iov, iovcnt);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    *length_p = (iovcnt == 1) ? uct_iov_get_length(iov) : 0;
    if (uct_angara_zcopy_here(peer, dir, iov, *length_p, remote_addr, rkey)) {
        return UCS_OK;
    }

    op = uct_angara_op_get(&peer->ch, uct_angara_op_done, comp);
    if (ucs_unlikely(op == NULL)) {
        return UCS_ERR_NO_MEMORY;
    }

    if (UCT_ANGARA_MUTANT(marker_before_data)) {
        uct_angara_channel_post_marker(&peer->ch);
    }

    status = uct_angara_zcopy_start(peer, dir, iov, iovcnt, remote_addr, rkey, length_p,
                                    &is_batched);
    if (ucs_unlikely(*length_p == 0)) {
        ucs_mpool_put_inline(op);
        return status;
    }

    if (ucs_unlikely(status != UCS_OK)) {
        /* some pieces are under way: the peer has failed, and that will end the op */
        uct_angara_channel_enqueue(&peer->ch, op, peer->ch.markers.posted + 1);
        return UCS_INPROGRESS;
    }

    if (UCT_ANGARA_MUTANT(marker_before_data) && (peer->ch.markers.slot != NULL)) {
        uct_angara_channel_enqueue(&peer->ch, op, peer->ch.markers.posted);
        return UCS_INPROGRESS;
    }

    if ((dir == ANGARA_BATCH_PUT) &&
        (uct_angara_peer_iface(peer)->config.self_marker || UCT_ANGARA_MUTANT(self_marker_put))) {
        /* the cheaper marker: the sources have been read, nothing more */
        status = uct_angara_self_try_complete(peer->ch.port, &value);
        if (status == UCS_INPROGRESS) {
            uct_angara_self_enqueue(peer->ch.port, op, value);
            return UCS_INPROGRESS;
        } else if (status != UCS_OK) { /* no slot for it */
            status = uct_angara_channel_try_complete(&peer->ch, &value);
        }
    } else if (is_batched) {
        value  = peer->ch.markers.posted + 1;
        status = UCS_INPROGRESS;
    } else {
        status = uct_angara_channel_try_complete(&peer->ch, &value);
    }

    if (ucs_likely(status == UCS_OK)) {
        ucs_mpool_put_inline(op);
        return UCS_OK;
    }

    uct_angara_channel_enqueue(&peer->ch, op, value);
    return UCS_INPROGRESS;
}

ucs_status_t uct_angara_ep_put_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov, size_t iovcnt,
                                     uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t *comp)
{
    uct_angara_iface_t *iface = ucs_derived_of(tl_ep->iface, uct_angara_iface_t);
    ucs_status_t        status;
    size_t              length;

    UCT_CHECK_IOV_SIZE(iovcnt, iface->config.max_iov, "put_zcopy");

    status = uct_angara_zcopy(tl_ep, ANGARA_BATCH_PUT, iov, iovcnt, remote_addr, rkey, comp,
                              &length);
    if (ucs_likely(!UCS_STATUS_IS_ERR(status))) {
        ++uct_angara_ep_peer(tl_ep)->ch.stats.put_zcopy;
        UCT_TL_EP_STAT_OP(&ucs_derived_of(tl_ep, uct_angara_ep_t)->super, PUT, ZCOPY, length);
    }
    return status;
}

ucs_status_t uct_angara_ep_get_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov, size_t iovcnt,
                                     uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t *comp)
{
    uct_angara_iface_t *iface = ucs_derived_of(tl_ep->iface, uct_angara_iface_t);
    ucs_status_t        status;
    size_t              length;

    UCT_CHECK_IOV_SIZE(iovcnt, iface->config.max_iov, "get_zcopy");

    status = uct_angara_zcopy(tl_ep, ANGARA_BATCH_GET, iov, iovcnt, remote_addr, rkey, comp,
                              &length);
    if (ucs_likely(!UCS_STATUS_IS_ERR(status))) {
        ++uct_angara_ep_peer(tl_ep)->ch.stats.get_zcopy;
        UCT_TL_EP_STAT_OP(&ucs_derived_of(tl_ep, uct_angara_ep_t)->super, GET, ZCOPY, length);
    }
    return status;
}
