/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Active messages: the four ways to fill a run of slots, and what is sent before there is a ring.
 * Touches the sender's side of the ring only.
 */
#include "verbs/ep.h"

#include "base/status.h"

#include <angara/angara_mem.h>
#include <uct/base/uct_iov.inl>

/* ---- sources ------------------------------------------------------------------------------- */

/* A buffer that was registered, if it is the memory of now: where a GPU's was freed there may be
 * nothing. GPU memory is copied here and now, as a message that has left may be read. */
static UCS_F_NOINLINE ucs_status_t uct_angara_am_copy_reg(uct_angara_peer_t *peer, void *dst,
                                                          const uct_iov_t *iov, size_t length)
{
    uct_angara_mem_t *mem    = iov->memh;
    ucs_status_t      status = UCS_OK;
    angara_status_t   copied;

    if (ucs_unlikely(!uct_angara_mem_is_current(mem, iov->buffer, length, 0))) {
        status = uct_angara_mem_renew(uct_angara_iface_md(uct_angara_peer_iface(peer)), mem,
                                      iov->buffer, length, 0);
    }
    if (status != UCS_OK) {
        return status;
    }

    if (ucs_unlikely(angara_mr_mem_kind(uct_angara_mem_mr(mem)) != ANGARA_MEM_HOST)) {
        copied = angara_copy(dst, iov->buffer, length);
        if (ucs_unlikely(copied != ANGARA_OK)) {
            ucs_error(
                "angara: a copy of %zu bytes at %p of a GPU's memory, for a message, failed: %s",
                length, iov->buffer, angara_strerror(copied));
        }
        return uct_angara_status(copied);
    }

    memcpy(dst, iov->buffer, length);
    return UCS_OK;
}

/* The buffers, one behind the other. */
static ucs_status_t uct_angara_am_gather(uct_angara_peer_t *peer, void *dst, const uct_iov_t *iov,
                                         size_t iovcnt)
{
    ucs_status_t status = UCS_OK;
    size_t       length, i;

    for (i = 0; (i < iovcnt) && (status == UCS_OK); ++i) {
        length = uct_iov_get_length(&iov[i]);
        if (length == 0) {
            continue;
        }
        if (iov[i].memh != UCT_MEM_HANDLE_NULL) {
            status = uct_angara_am_copy_reg(peer, dst, &iov[i], length);
        } else {
            memcpy(dst, iov[i].buffer, length);
        }
        dst = UCS_PTR_BYTE_OFFSET(dst, length);
    }
    return status;
}

/* ---- early messages ------------------------------------------------------------------------ */

static ucs_status_t uct_angara_early_keep(uct_angara_peer_t *peer, uint8_t id,
                                          uct_angara_early_kind_t kind, const void *data,
                                          size_t length)
{
    if (!uct_angara_early_add(&peer->ch.early, &peer->ch.port->early, id, kind, data, length)) {
        return UCS_ERR_NO_RESOURCE;
    }

    uct_angara_channel_stir(&peer->ch);
    ++peer->ch.stats.early;
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
    char *p = peer->ch.port->scratch;

    if (status != UCS_ERR_NOT_CONNECTED) {
        return status;
    }

    if (header_length > 0) {
        memcpy(p, header, header_length);
    }
    status = uct_angara_am_gather(peer, p + header_length, iov, iovcnt);
    if (status != UCS_OK) {
        return status;
    }
    return uct_angara_early_keep(peer, id, kind, p,
                                 header_length + uct_iov_total_length(iov, iovcnt));
}

static UCS_F_NOINLINE ssize_t uct_angara_early_bcopy(uct_angara_peer_t *peer, uint8_t id,
                                                     uct_pack_callback_t pack_cb, void *arg)
{
    uct_angara_port_t *port = peer->ch.port;
    ucs_status_t       status;
    size_t             length;

    /* the length is known only after packing: what found no room isn't packed again and again */
    if (!uct_angara_early_has_room(&peer->ch.early, &port->early, peer->ch.early.refused)) {
        return UCS_ERR_NO_RESOURCE;
    }

    length = pack_cb(port->scratch, arg);
    ucs_assertv_always(length <= port->run_bytes, "packed %zu bytes", length);
    status = uct_angara_early_keep(peer, id, UCT_ANGARA_EARLY_BCOPY, port->scratch, length);
    return (status == UCS_OK) ? (ssize_t)length : (ssize_t)status;
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
    uct_angara_tx_t *tx     = &peer->ch.tx;
    size_t           total  = sizeof(header) + length;
    uint64_t         offset = tx->ring_off + ((uint64_t)tx->pos << tx->shape.slot_shift);
    angara_status_t  status;
    uint64_t        *p;

    p  = angara_put_begin(peer->ch.ap, offset + sizeof(uint64_t), total, peer->ch.port->scratch);
    *p = header;
    uct_angara_copy_small(p + 1, payload, length);

    status = angara_put_commit(peer->ch.ap, p, offset + sizeof(uint64_t), total, offset,
                               uct_angara_hdr_am(tx->head, id, total));
    if (ucs_unlikely(status != ANGARA_OK)) {
        return uct_angara_channel_error(&peer->ch, status, "message");
    }

    ++tx->head;
    ++tx->msgs;
    tx->bytes += total;
    if (ucs_unlikely(++tx->pos == tx->shape.nslots)) {
        tx->pos = 0;
    }

    status = angara_put_u16(peer->ch.ap, tx->ready_off, (uint16_t)tx->msgs);
    if (ucs_unlikely(status != ANGARA_OK)) {
        uct_angara_tx_retry_ready(&peer->ch);
        return UCS_OK;
    }

    angara_wake_if_armed(peer->ch.ap);
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

    status = uct_angara_tx_reserve(&peer->ch, uct_angara_slots(&peer->ch.tx.shape, total));
    if (ucs_unlikely(status != UCS_OK)) {
        return uct_angara_early_iov(peer, status, id, UCT_ANGARA_EARLY_SHORT, &header,
                                    sizeof(header), &iov, length > 0);
    }

    p  = uct_angara_tx_buffer(&peer->ch);
    *p = header;
    if (length > 0) {
        memcpy(p + 1, payload, length);
    }
    return uct_angara_tx_commit(&peer->ch, id, p, total);
}

ucs_status_t uct_angara_ep_am_short(uct_ep_h tl_ep, uint8_t id, uint64_t header,
                                    const void *payload, unsigned length)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(tl_ep);
    uct_angara_tx_t   *tx   = &peer->ch.tx;
    ucs_status_t       status;

    UCT_CHECK_AM_ID(id);
    UCT_CHECK_LENGTH(sizeof(header) + length, 0, peer->ch.port->run_bytes, "am_short");

    if (ucs_likely((sizeof(header) + length <= tx->eager_max) && (tx->head < tx->limit) &&
                   (tx->ndirty == 0) && peer->ch.is_stirred)) { /* else the other way stirs it */
        UCT_TL_EP_STAT_OP(&ucs_derived_of(tl_ep, uct_angara_ep_t)->super, AM, SHORT,
                          sizeof(header) + length);
        return uct_angara_am_short_one_slot(peer, id, header, payload, length);
    }

    status = uct_angara_am_short_run(peer, id, header, payload, length);
    UCT_TL_EP_STAT_OP_IF_SUCCESS(status, &ucs_derived_of(tl_ep, uct_angara_ep_t)->super, AM, SHORT,
                                 sizeof(header) + length);
    return status;
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
    UCT_CHECK_LENGTH(length, 0, peer->ch.port->run_bytes, "am_short_iov");

    status = uct_angara_tx_reserve(&peer->ch, uct_angara_slots(&peer->ch.tx.shape, length));
    if (ucs_unlikely(status != UCS_OK)) {
        return uct_angara_early_iov(peer, status, id, UCT_ANGARA_EARLY_SHORT, NULL, 0, iov, iovcnt);
    }

    p = uct_angara_tx_buffer(&peer->ch);
    ucs_iov_iter_init(&iter);
    uct_iov_to_buffer(iov, iovcnt, &iter, p, SIZE_MAX);
    return uct_angara_tx_commit(&peer->ch, id, p, length);
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

    length = uct_angara_tx_bcopy(&peer->ch, id, pack_cb, arg);
    if (ucs_likely(length >= 0)) {
        ++peer->ch.tx.bcopy;
    } else if (length == (ssize_t)UCS_ERR_NOT_CONNECTED) {
        length = uct_angara_early_bcopy(peer, id, pack_cb, arg);
    }
    return length;
}

/* Is it GPU memory, for which somebody waits? */
static UCS_F_ALWAYS_INLINE int uct_angara_am_is_copied(const uct_iov_t *iov, size_t iovcnt,
                                                       const uct_completion_t *comp)
{
    return (comp != NULL) && (iovcnt == 1) && (iov->memh != UCT_MEM_HANDLE_NULL) &&
           (uct_iov_get_length(iov) > 0) &&
           (angara_mr_mem_kind(uct_angara_mem_mr(iov->memh)) != ANGARA_MEM_HOST);
}

/*
 * Have the GPU copy the message, while others are copied, too. Until all have gone, in order, what
 * is sent by other calls finds no room. What isn't a GPU's memory any more isn't copied.
 * @return UCS_INPROGRESS, or UCS_ERR_UNSUPPORTED: not now.
 */
static UCS_F_NOINLINE ucs_status_t uct_angara_am_copy_out(uct_ep_h tl_ep, uint8_t id,
                                                          const void       *header,
                                                          unsigned          header_length,
                                                          const uct_iov_t  *iov,
                                                          uct_completion_t *comp)
{
    uct_angara_user_t      *user   = &ucs_derived_of(tl_ep, uct_angara_ep_t)->user;
    uct_angara_peer_t      *peer   = user->peer;
    uct_angara_channel_t   *ch     = &peer->ch;
    size_t                  length = uct_iov_get_length(iov);
    uct_angara_early_msg_t *msg;
    angara_status_t         status;

    if (!ch->is_open || (ch->blocked & ~UCT_ANGARA_BLOCK_RING) ||
        (header_length + length > UCT_ANGARA_COPIED_MAX)) {
        return UCS_ERR_UNSUPPORTED;
    }
    msg = uct_angara_early_new(&ch->early, &ch->port->copied, id, UCT_ANGARA_EARLY_ZCOPY,
                               header_length + length, 1);
    if (msg == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }
    if (header_length > 0) {
        memcpy(msg->data, header, header_length);
    }
    status = angara_copy_start(msg->data + header_length, iov->buffer, length, &msg->copied->copy);
    if ((status != ANGARA_OK) && (status != ANGARA_INPROGRESS)) {
        uct_angara_early_drop(msg);
        return UCS_ERR_UNSUPPORTED;
    }
    msg->copied->comp = comp;
    msg->copied->user = user;
    uct_angara_early_push(&ch->early, msg);
    uct_angara_channel_update(ch);
    uct_angara_channel_activate(ch);
    return UCS_INPROGRESS;
}

ucs_status_t uct_angara_ep_am_zcopy(uct_ep_h tl_ep, uint8_t id, const void *header,
                                    unsigned header_length, const uct_iov_t *iov, size_t iovcnt,
                                    unsigned flags, uct_completion_t *comp)
{
    uct_angara_peer_t *peer   = uct_angara_ep_peer(tl_ep);
    size_t             length = header_length + uct_iov_total_length(iov, iovcnt);
    ucs_status_t       status;
    char              *p;

    UCT_CHECK_AM_ID(id);
    UCT_CHECK_IOV_SIZE(iovcnt, uct_angara_peer_iface(peer)->config.max_iov, "am_zcopy");
    UCT_CHECK_LENGTH(header_length, 0, peer->ch.port->run_bytes / 2, "am_zcopy header");
    UCT_CHECK_LENGTH(length, 0, peer->ch.port->run_bytes, "am_zcopy");

    if (ucs_unlikely(flags & UCT_SEND_FLAG_PEER_CHECK)) {
        uct_angara_ep_check(tl_ep, 0, NULL);
    }

    if (ucs_unlikely(uct_angara_am_is_copied(iov, iovcnt, comp))) {
        status = uct_angara_am_copy_out(tl_ep, id, header, header_length, iov, comp);
        if (status != UCS_ERR_UNSUPPORTED) {
            return status;
        }
    }

    status = uct_angara_tx_reserve(&peer->ch, uct_angara_slots(&peer->ch.tx.shape, length));
    if (ucs_unlikely(status != UCS_OK)) {
        return uct_angara_early_iov(peer, status, id, UCT_ANGARA_EARLY_ZCOPY, header, header_length,
                                    iov, iovcnt);
    }

    p = uct_angara_tx_buffer(&peer->ch);
    if (header_length > 0) {
        memcpy(p, header, header_length);
    }
    status = uct_angara_am_gather(peer, p + header_length, iov, iovcnt);
    if (ucs_unlikely(status != UCS_OK)) {
        return status; /* the slots are free still */
    }

    /* the sources have been read: complete at once */
    status = uct_angara_tx_commit(&peer->ch, id, p, length);
    if (ucs_likely(status == UCS_OK)) {
        ++peer->ch.tx.zcopy;
    }
    return status;
}
