/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Active messages: the four ways to fill a run of slots, and what is sent before there is a ring.
 * Touches the sender's side of the ring only.
 */
#include "uct_angara_ep.h"

#include <uct/base/uct_iov.inl>

/* ---- early messages ------------------------------------------------------------------------ */

static ucs_status_t uct_angara_early_keep(uct_angara_peer_t *peer, uint8_t id,
                                          uct_angara_early_kind_t kind, const void *data,
                                          size_t length)
{
    if (!uct_angara_early_add(&peer->early, &peer->iface->early, id, kind, data, length)) {
        return UCS_ERR_NO_RESOURCE;
    }

    ++peer->iface->stats.early;
    return UCS_OK;
}

/*
 * A message that found no room, for the reason @a status. If nothing but a ring is missing, it is
 * copied and taken.
 */
static UCS_F_NOINLINE ucs_status_t uct_angara_early_iov(uct_angara_peer_t *peer,
                                                        ucs_status_t status, uint8_t id,
                                                        uct_angara_early_kind_t kind,
                                                        const void *header, size_t header_length,
                                                        const uct_iov_t *iov, size_t iovcnt)
{
    char          *p = peer->iface->scratch;
    ucs_iov_iter_t iter;

    if (status != UCS_ERR_NOT_CONNECTED) {
        return status;
    }

    if (header_length > 0) {
        memcpy(p, header, header_length);
    }
    ucs_iov_iter_init(&iter);
    uct_iov_to_buffer(iov, iovcnt, &iter, p + header_length, SIZE_MAX);
    return uct_angara_early_keep(peer, id, kind, p,
                                 header_length + uct_iov_total_length(iov, iovcnt));
}

static UCS_F_NOINLINE ssize_t uct_angara_early_bcopy(uct_angara_peer_t *peer, uint8_t id,
                                                     uct_pack_callback_t pack_cb, void *arg)
{
    uct_angara_iface_t *iface = peer->iface;
    ucs_status_t        status;
    size_t              length;

    /* the length is known only after packing: what found no room isn't packed again and again */
    if (!uct_angara_early_has_room(&peer->early, &iface->early, peer->early.refused)) {
        return UCS_ERR_NO_RESOURCE;
    }

    length = pack_cb(iface->scratch, arg);
    ucs_assertv_always(length <= iface->run_bytes, "packed %zu bytes", length);
    status = uct_angara_early_keep(peer, id, UCT_ANGARA_EARLY_BCOPY, iface->scratch, length);
    return (status == UCS_OK) ? (ssize_t)length : (ssize_t)status;
}

/* All have been sent: now flushes and fences get their marker. */
static void uct_angara_early_gone(uct_angara_peer_t *peer)
{
    uct_angara_op_t *op;

    while (!ucs_queue_is_empty(&peer->early_ops)) {
        op = ucs_queue_pull_elem_non_empty(&peer->early_ops, uct_angara_op_t, queue);
        uct_angara_peer_enqueue(peer, op, peer->channel.posted + 1);
    }
    if (peer->is_fenced) {
        peer->is_fenced = 0;
        uct_angara_peer_fence(peer);
    }
    uct_angara_peer_update(peer);
    uct_angara_peer_unused(peer);
}

unsigned uct_angara_early_send(uct_angara_peer_t *peer)
{
    uct_angara_tx_t        *tx    = &peer->tx;
    unsigned                count = 0;
    uct_angara_early_msg_t *msg;
    void                   *p;

    if (uct_angara_life_is_due(&peer->life)) {
        return 0; /* dropped by the report, or sent after it */
    } else if (peer->life.tx != UCT_ANGARA_TX_OPEN) {
        uct_angara_control_hello(peer);
        return 0;
    }

    peer->is_sending_early = 1;
    uct_angara_peer_update(peer);
    while ((msg = peer->early.head) != NULL) {
        if (uct_angara_tx_reserve(peer, uct_angara_slots(&tx->shape, msg->length)) != UCS_OK) {
            break;
        }

        p = uct_angara_tx_buffer(peer);
        memcpy(p, msg->data, msg->length);
        if (uct_angara_tx_commit(peer, msg->id, p, msg->length) != UCS_OK) {
            break;
        }

        tx->bcopy += (msg->kind == UCT_ANGARA_EARLY_BCOPY);
        tx->zcopy += (msg->kind == UCT_ANGARA_EARLY_ZCOPY);
        uct_angara_early_pop(&peer->early, &peer->iface->early);
        ++count;
    }
    peer->is_sending_early = 0;
    uct_angara_peer_update(peer);

    if (uct_angara_early_is_empty(&peer->early) && (peer->status == UCS_OK)) {
        uct_angara_early_gone(peer);
    }
    return count;
}

void uct_angara_early_fail(uct_angara_peer_t *peer, ucs_status_t status)
{
    uct_angara_op_t *op;

    if (peer->early.count > 0) {
        ucs_debug("angara: %u messages to %s were not sent", peer->early.count,
                  angara_peer_name(peer->ap));
    }
    uct_angara_early_clear(&peer->early, &peer->iface->early);
    while (!ucs_queue_is_empty(&peer->early_ops)) {
        op = ucs_queue_pull_elem_non_empty(&peer->early_ops, uct_angara_op_t, queue);
        op->func(peer->iface, op, status);
    }
}

/* ---- the four ways ------------------------------------------------------------------------- */

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
    uct_iov_t    iov   = {.buffer = (void *)payload, .length = length, .count = 1};
    ucs_status_t status;
    uint64_t    *p;

    status = uct_angara_tx_reserve(peer, uct_angara_slots(&peer->tx.shape, total));
    if (ucs_unlikely(status != UCS_OK)) {
        return uct_angara_early_iov(peer, status, id, UCT_ANGARA_EARLY_SHORT, &header,
                                    sizeof(header), &iov, length > 0);
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
        return uct_angara_early_iov(peer, status, id, UCT_ANGARA_EARLY_SHORT, NULL, 0, iov, iovcnt);
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
    } else if (length == (ssize_t)UCS_ERR_NOT_CONNECTED) {
        length = uct_angara_early_bcopy(peer, id, pack_cb, arg);
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
        return uct_angara_early_iov(peer, status, id, UCT_ANGARA_EARLY_ZCOPY, header, header_length,
                                    iov, iovcnt);
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
