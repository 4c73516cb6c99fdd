/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Put and get. Data moves by offload operations; what is complete is decided by markers
 * (channel/marker.c). Touches the peer's channel and the bounce buffers.
 */
#include "life/report.h"
#include "verbs/ep.h"

#include <uct/base/uct_iov.inl>

static UCS_F_ALWAYS_INLINE uint64_t uct_angara_rma_offset(uint64_t remote_addr, uct_rkey_t rkey)
{
    /* below the base it wraps to a huge number, which the library refuses */
    return remote_addr - ((const uct_angara_rkey_t *)rkey)->base;
}

static UCS_F_ALWAYS_INLINE uint64_t uct_angara_rma_key(uct_rkey_t rkey)
{
    return ((const uct_angara_rkey_t *)rkey)->key;
}

/* A post copies at most ANGARA_TURN_BYTES: this is the least value of that. */
#define UCT_ANGARA_HERE 8192

/* Without any bytes there may be none. */
static UCS_F_ALWAYS_INLINE int uct_angara_rkey_is_given(uct_rkey_t rkey)
{
    return (rkey != 0) && (rkey != UCT_INVALID_RKEY);
}

/* What a posted operation's status means for the caller. */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_rma_posted(uct_angara_peer_t *peer,
                                                              angara_status_t    status,
                                                              const char        *what)
{
    if (ucs_unlikely(status < 0)) {
        return uct_angara_channel_error(&peer->ch, status, what);
    }

    peer->ch.rma_dirty = 1;
    return UCS_OK;
}

/* ---- put ----------------------------------------------------------------------------------- */

/* May a short operation of inline code be tried? */
static UCS_F_ALWAYS_INLINE int uct_angara_may_be_fast(const uct_angara_peer_t *peer, size_t length)
{
    return ucs_likely(length - 1 < ANGARA_FAST_MAX) && uct_angara_peer_may_rma(peer);
}

static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_put_short_done(uct_ep_h tl_ep, unsigned length)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);

    ++peer->ch.stats.put_short;
    peer->ch.stats.put_bytes += length;
    UCT_TL_EP_STAT_OP(&ucs_derived_of(tl_ep, uct_angara_ep_t)->super, PUT, SHORT, length);
    return UCS_OK;
}

/* Store to mapped memory now. @return 0: it is to be posted */
static UCS_F_ALWAYS_INLINE int uct_angara_put_here(uct_angara_peer_t *peer, const void *buffer,
                                                   uint64_t key, uint64_t offset, size_t length)
{
    if (!angara_mapped_put(peer->ch.ap, buffer, key, offset, length)) {
        return 0;
    }
    peer->ch.is_unfenced = 1;
    return 1;
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

    angara_status = angara_offload_put_inline(peer->ch.ap, buffer, key, offset, length);
    status        = uct_angara_rma_posted(peer, angara_status, "put");
    return ucs_likely(status == UCS_OK) ? uct_angara_put_short_done(tl_ep, length) : status;
}

ucs_status_t uct_angara_ep_put_short(uct_ep_h tl_ep, const void *buffer, unsigned length,
                                     uint64_t remote_addr, uct_rkey_t rkey)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);

    if (uct_angara_may_be_fast(peer, length) &&
        ucs_likely(angara_fast_put(peer->ch.ap, buffer, uct_angara_rma_key(rkey),
                                   uct_angara_rma_offset(remote_addr, rkey), length))) {
        peer->ch.is_unfenced = 1;
        return uct_angara_put_short_done(tl_ep, length);
    }
    return uct_angara_put_short_slow(tl_ep, buffer, length, remote_addr, rkey);
}

static ucs_status_t uct_angara_rma_post(uct_angara_peer_t *peer, angara_batch_op_t op,
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
    return uct_angara_rma_posted(peer, status, (op == ANGARA_BATCH_GET) ? "get" : "put");
}

/* Post a transfer, or leave it to the batch, if the caller and its length let it wait. */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_rma_start(uct_angara_peer_t   *peer,
                                                             angara_batch_op_t    op,
                                                             const angara_xfer_t *xfer,
                                                             int                 *is_batched_p)
{
    *is_batched_p = *is_batched_p && uct_angara_peer_iface(peer)->is_batching &&
                    (xfer->length <= UCT_ANGARA_BATCH_LENGTH);
    return *is_batched_p ? uct_angara_batch_add(&peer->ch, op, xfer) :
                           uct_angara_rma_post(peer, op, xfer);
}

static void uct_angara_op_done(uct_angara_port_t *port, uct_angara_op_t *op, ucs_status_t status)
{
    uct_angara_op_finish(port, op, status);
}

static UCS_F_ALWAYS_INLINE ssize_t uct_angara_put_bcopy_done(uct_ep_h tl_ep, size_t length)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);

    ++peer->ch.stats.put_bcopy;
    peer->ch.stats.put_bytes += length;
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
        peer->ch.is_unfenced = 1;
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

/** So many gets since a flush are asked for one by one: others of a stream go together. */
#define UCT_ANGARA_GETS_ASKED 2

/** Get it now: from mapped memory, or by a peer that answers at once. @return 0: post it. */
static int uct_angara_get_here(uct_angara_peer_t *peer, void *data, size_t length, uint64_t key,
                               uint64_t offset)
{
    if (angara_mapped_get(peer->ch.ap, data, key, offset, length)) {
        return 1;
    }
    if ((length > UCT_ANGARA_HERE) || (peer->ch.gets_asked >= UCT_ANGARA_GETS_ASKED)) {
        return 0;
    }
    ++peer->ch.gets_asked;
    return angara_asked_get(peer->ch.ap, data, key, offset, length);
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
    angara_fast_get_end(peer->ch.ap, length);
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
        uct_angara_ep_peer(tl_ep)->ch.stats.put_bytes += length;
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
        uct_angara_ep_peer(tl_ep)->ch.stats.get_bytes += length;
        UCT_TL_EP_STAT_OP(&ucs_derived_of(tl_ep, uct_angara_ep_t)->super, GET, ZCOPY, length);
    }
    return status;
}

/* ---- get ----------------------------------------------------------------------------------- */

/** Bytes that are got within the call, without a bounce buffer. */
#define UCT_ANGARA_GET_HERE UCT_ANGARA_HERE

/** Shorter ones don't join the batch: their start costs less than the wait for the others. */
#define UCT_ANGARA_GET_BATCHED 1024

static void uct_angara_get_bcopy_done(uct_angara_port_t *port, uct_angara_op_t *op,
                                      ucs_status_t status)
{
    if (ucs_likely(status == UCS_OK)) {
        op->unpack.cb(op->unpack.arg, op->bounce, op->unpack.length);
    }
    uct_angara_op_finish(port, op, status);
}

static UCS_F_ALWAYS_INLINE void uct_angara_get_bcopy_count(uct_ep_h tl_ep, size_t length)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);

    ++peer->ch.stats.get_bcopy;
    peer->ch.stats.get_bytes += length;
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
    if (!is_now) {
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
    const char        *there;
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

    there = ((length > ANGARA_FAST_MAX) && (length <= UCT_ANGARA_HERE)) ? /* shorter: was tried */
                angara_fast_get_begin(peer->ch.ap, uct_angara_rma_key(rkey),
                                      uct_angara_rma_offset(remote_addr, rkey), length) :
                NULL;
    if (there != NULL) {
        unpack_cb(arg, there, length);
        angara_fast_get_end(peer->ch.ap, length);
        uct_angara_get_bcopy_count(tl_ep, length);
        return UCS_OK;
    }

    if ((length <= sizeof(data)) &&
        uct_angara_get_here(peer, data, length, uct_angara_rma_key(rkey),
                            uct_angara_rma_offset(remote_addr, rkey))) {
        unpack_cb(arg, data, length);
        uct_angara_get_bcopy_count(tl_ep, length);
        return UCS_OK;
    }

    return uct_angara_get_bounced(tl_ep, unpack_cb, arg, length, remote_addr, rkey, comp,
                                  port->is_inline && (length > UCT_ANGARA_GET_BATCHED));
}

ucs_status_t uct_angara_ep_get_bcopy(uct_ep_h tl_ep, uct_unpack_callback_t unpack_cb, void *arg,
                                     size_t length, uint64_t remote_addr, uct_rkey_t rkey,
                                     uct_completion_t *comp)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);
    char               data[ANGARA_FAST_MAX];

    if (uct_angara_may_be_fast(peer, length) &&
        ucs_likely(angara_fast_get(peer->ch.ap, data, uct_angara_rma_key(rkey),
                                   uct_angara_rma_offset(remote_addr, rkey), length))) {
        unpack_cb(arg, data, length);
        uct_angara_get_bcopy_count(tl_ep, length);
        return UCS_OK;
    }
    return uct_angara_get_bcopy_slow(tl_ep, unpack_cb, arg, length, remote_addr, rkey, comp);
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
        peer->ch.stats.get_bytes += length;
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
