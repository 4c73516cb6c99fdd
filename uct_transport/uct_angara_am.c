/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Active messages: the four ways to fill a run of slots. Touches the sender's side of the ring
 * only.
 */
#include "uct_angara_ep.h"

#include <uct/base/uct_iov.inl>

/*
 * The latency path: one line of the ring (header word last), one ready word, and a look at whether
 * the peer sleeps.
 */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_am_short_one_slot(uct_angara_peer_t *peer,
                                                                     uint8_t id, uint64_t header,
                                                                     const void *payload,
                                                                     unsigned    length)
{
    uct_angara_tx_t *tx     = &peer->tx;
    size_t           total  = sizeof(header) + length;
    uint64_t         offset = tx->ring_off + ((uint64_t)tx->pos << tx->shape.slot_shift);
    angara_status_t  status;
    uint64_t        *p;

    p  = angara_put_begin(peer->ap, offset + sizeof(uint64_t), total, peer->iface->scratch);
    *p = header;
    uct_angara_copy_small(p + 1, payload, length);

    status = angara_put_commit(peer->ap, p, offset + sizeof(uint64_t), total, offset,
                               uct_angara_hdr_am(tx->head, id, total));
    if (ucs_unlikely(status != ANGARA_OK)) {
        return uct_angara_peer_error(peer, status, "message");
    }

    ++tx->head;
    ++tx->msgs;
    if (ucs_unlikely(++tx->pos == tx->shape.nslots)) {
        tx->pos = 0;
    }

    status = angara_put_u16(peer->ap, tx->ready_off, (uint16_t)tx->msgs);
    if (ucs_unlikely(status != ANGARA_OK)) {
        uct_angara_tx_retry_ready(peer);
        return UCS_OK;
    }

    angara_wake_if_armed(peer->ap);
    return UCS_OK;
}

static UCS_F_NOINLINE ucs_status_t uct_angara_am_short_run(uct_angara_peer_t *peer, uint8_t id,
                                                           uint64_t header, const void *payload,
                                                           unsigned length)
{
    size_t       total = sizeof(header) + length;
    ucs_status_t status;
    uint64_t    *p;

    status = uct_angara_tx_reserve(peer, uct_angara_slots(&peer->tx.shape, total));
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    p  = uct_angara_tx_buffer(peer);
    *p = header;
    if (length > 0) {
        memcpy(p + 1, payload, length);
    }
    return uct_angara_tx_commit(peer, id, p, total);
}

ucs_status_t uct_angara_ep_am_short(uct_ep_h tl_ep, uint8_t id, uint64_t header,
                                    const void *payload, unsigned length)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);
    uct_angara_tx_t   *tx   = &peer->tx;

    UCT_CHECK_AM_ID(id);
    UCT_CHECK_LENGTH(sizeof(header) + length, 0, peer->iface->run_bytes, "am_short");

    if (ucs_likely((sizeof(header) + length <= tx->eager_max) && (tx->head < tx->limit) &&
                   (tx->ndirty == 0))) {
        UCT_TL_EP_STAT_OP(&ucs_derived_of(tl_ep, uct_angara_ep_t)->super, AM, SHORT,
                          sizeof(header) + length);
        return uct_angara_am_short_one_slot(peer, id, header, payload, length);
    }

    return uct_angara_am_short_run(peer, id, header, payload, length);
}

ucs_status_t uct_angara_ep_am_short_iov(uct_ep_h tl_ep, uint8_t id, const uct_iov_t *iov,
                                        size_t iovcnt)
{
    uct_angara_peer_t *peer   = uct_angara_ep_peer(tl_ep);
    size_t             length = uct_iov_total_length(iov, iovcnt);
    ucs_iov_iter_t     iter;
    ucs_status_t       status;
    void              *p;

    UCT_CHECK_AM_ID(id);
    UCT_CHECK_LENGTH(length, 0, peer->iface->run_bytes, "am_short_iov");

    status = uct_angara_tx_reserve(peer, uct_angara_slots(&peer->tx.shape, length));
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    p = uct_angara_tx_buffer(peer);
    ucs_iov_iter_init(&iter);
    uct_iov_to_buffer(iov, iovcnt, &iter, p, SIZE_MAX);
    return uct_angara_tx_commit(peer, id, p, length);
}

ssize_t uct_angara_ep_am_bcopy(uct_ep_h tl_ep, uint8_t id, uct_pack_callback_t pack_cb, void *arg,
                               unsigned flags)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);
    ssize_t            length;

    UCT_CHECK_AM_ID(id);

    if (ucs_unlikely(flags & UCT_SEND_FLAG_PEER_CHECK)) {
        uct_angara_ep_check(tl_ep, 0, NULL);
    }

    length = uct_angara_tx_bcopy(peer, id, pack_cb, arg);
    if (ucs_likely(length >= 0)) {
        ++peer->tx.bcopy;
    }
    return length;
}

ucs_status_t uct_angara_ep_am_zcopy(uct_ep_h tl_ep, uint8_t id, const void *header,
                                    unsigned header_length, const uct_iov_t *iov, size_t iovcnt,
                                    unsigned flags, uct_completion_t *comp)
{
    uct_angara_peer_t *peer   = uct_angara_ep_peer(tl_ep);
    size_t             length = header_length + uct_iov_total_length(iov, iovcnt);
    ucs_iov_iter_t     iter;
    ucs_status_t       status;
    char              *p;

    (void)comp;
    UCT_CHECK_AM_ID(id);
    UCT_CHECK_IOV_SIZE(iovcnt, peer->iface->config.max_iov, "am_zcopy");
    UCT_CHECK_LENGTH(header_length, 0, peer->iface->run_bytes / 2, "am_zcopy header");
    UCT_CHECK_LENGTH(length, 0, peer->iface->run_bytes, "am_zcopy");

    if (ucs_unlikely(flags & UCT_SEND_FLAG_PEER_CHECK)) {
        uct_angara_ep_check(tl_ep, 0, NULL);
    }

    status = uct_angara_tx_reserve(peer, uct_angara_slots(&peer->tx.shape, length));
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    p = uct_angara_tx_buffer(peer);
    if (header_length > 0) {
        memcpy(p, header, header_length);
    }
    ucs_iov_iter_init(&iter);
    uct_iov_to_buffer(iov, iovcnt, &iter, p + header_length, SIZE_MAX);

    /* the sources have been read: complete at once */
    status = uct_angara_tx_commit(peer, id, p, length);
    if (ucs_likely(status == UCS_OK)) {
        ++peer->tx.zcopy;
    }
    return status;
}
