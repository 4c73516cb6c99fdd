/* SPDX-License-Identifier: BSD-3-Clause */
/* What put and get have in common, see verbs/rma.c and verbs/get.c. */
#ifndef UCT_ANGARA_RMA_H
#define UCT_ANGARA_RMA_H

#include "life/report.h"
#include "verbs/ep.h"

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

/*
 * The library counts puts and gets of mapped memory, and uct_angara_channel_count() takes them for
 * put_short and get_bcopy, whose fast paths count nothing. All others count themselves: these take
 * the library's count off.
 */
static UCS_F_ALWAYS_INLINE void uct_angara_rma_count_else(uct_angara_peer_t *peer,
                                                          angara_batch_op_t  op)
{
    if (op == ANGARA_BATCH_GET) {
        --peer->ch.stats.get_bcopy;
    } else {
        --peer->ch.stats.put_short;
    }
}

/* Bytes that are posted, or will be; the library counts those of mapped memory. */
static UCS_F_ALWAYS_INLINE void uct_angara_rma_count(uct_angara_peer_t *peer, angara_batch_op_t op,
                                                     size_t length)
{
    if (op == ANGARA_BATCH_GET) {
        peer->ch.stats.get_bytes += length;
    } else {
        peer->ch.stats.put_bytes += length;
    }
}

/* What a posted operation's status means for the caller. */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_rma_posted(uct_angara_peer_t *peer,
                                                              angara_status_t    status,
                                                              angara_batch_op_t op, size_t length)
{
    if (ucs_unlikely(status < 0)) {
        return uct_angara_channel_error(&peer->ch, status,
                                        (op == ANGARA_BATCH_GET) ? "get" : "put");
    }

    uct_angara_channel_posted(&peer->ch);
    uct_angara_rma_count(peer, op, length);
    return UCS_OK;
}

/* Leave a transfer to the batch. */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_rma_add(uct_angara_peer_t   *peer,
                                                           angara_batch_op_t    op,
                                                           const angara_xfer_t *xfer)
{
    ucs_status_t status = uct_angara_batch_add(&peer->ch, op, xfer);

    if (ucs_likely(status == UCS_OK)) {
        uct_angara_rma_count(peer, op, xfer->length);
    }
    return status;
}

/* May inline code be tried, for at most that many bytes? */
static UCS_F_ALWAYS_INLINE int uct_angara_may_be_fast(const uct_angara_peer_t *peer, size_t length,
                                                      size_t most)
{
    return ucs_likely(length - 1 < most) && uct_angara_peer_may_rma(peer);
}

/* The op of a transfer that brings nothing but its end. */
void uct_angara_op_done(uct_angara_port_t *port, uct_angara_op_t *op, ucs_status_t status);

/* Post a transfer. */
ucs_status_t uct_angara_rma_post(uct_angara_peer_t *peer, angara_batch_op_t op,
                                 const angara_xfer_t *xfer);

/** A peer that answers at once is asked for an operation by itself where there are so many from one
 * flush to the next, the last time and this time; those of a stream go together. */
#define UCT_ANGARA_ASKED_MOST 4
#define UCT_ANGARA_ASKED_MAX  40960 /**< bytes of one: longer ones aren't waited for */

/* Count a put or get of private memory. @return 1: it is to be asked for by itself */
static UCS_F_ALWAYS_INLINE int uct_angara_takes_turn(uct_angara_peer_t *peer, size_t length)
{
    return (uct_angara_channel_count_op(&peer->ch) <= UCT_ANGARA_ASKED_MOST) &&
           (peer->ch.asked_last <= UCT_ANGARA_ASKED_MOST) && (length <= UCT_ANGARA_ASKED_MAX) &&
           peer->ch.port->is_inline;
}

/* The same for a put: the next one's turn has come if the last one has been performed. */
static UCS_F_ALWAYS_INLINE int uct_angara_put_takes_turn(uct_angara_peer_t *peer, size_t length)
{
    return uct_angara_takes_turn(peer, length) &&
           (!peer->ch.rma_dirty || uct_angara_channel_settle(&peer->ch));
}

/* Post a transfer, or leave it to the batch, if the caller and its length let it wait. */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_rma_start(uct_angara_peer_t   *peer,
                                                             angara_batch_op_t    op,
                                                             const angara_xfer_t *xfer,
                                                             int                 *is_batched_p)
{
    *is_batched_p = *is_batched_p && uct_angara_peer_iface(peer)->is_batching &&
                    (xfer->length <= UCT_ANGARA_BATCH_LENGTH) &&
                    !((op == ANGARA_BATCH_PUT) && uct_angara_put_takes_turn(peer, xfer->length));
    return *is_batched_p ? uct_angara_rma_add(peer, op, xfer) : uct_angara_rma_post(peer, op, xfer);
}

/** Get it now: from mapped memory, or by a peer that answers at once. @return 0: post it. */
int uct_angara_get_here(uct_angara_peer_t *peer, void *data, size_t length, uint64_t key,
                        uint64_t offset);

#endif
