/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers, of zero copy or from bounce buffers, that wait for a common doorbell: on the soft
 * fabric one system call or request, on a NIC one write of the doorbell register.
 *
 * Invariants: all transfers of the batch go to one channel in one direction; each has an op there,
 * short puts one for all that share a buffer, that waits for a marker not yet posted, and
 * uct_angara_channel_post_marker() posts the batch first. So nobody else needs to know that a
 * transfer waits here, and the channel's queue is never empty while one does.
 * uct_angara_channel_fail_ops() drops the batch before it ends the ops of a channel that failed, so
 * it never names memory that its owner has taken back.
 */
#ifndef UCT_ANGARA_BATCH_H
#define UCT_ANGARA_BATCH_H

#include "base/compat.h"

#include <angara/angara.h>

struct uct_angara_channel;
struct uct_angara_port;

/* Above this the copy itself is what counts, and a later start only costs overlap. */
#define UCT_ANGARA_BATCH_LENGTH 131072ul /**< longest transfer that waits */
#define UCT_ANGARA_BATCH_BYTES  524288ul /**< of a whole batch */

typedef struct uct_angara_batch {
    struct uct_angara_channel *ch;
    angara_batch_op_t          op;
    unsigned                   count;
    size_t                     bytes;
    angara_xfer_t              xfers[ANGARA_BATCH_MAX];
    struct uct_angara_op      *pack;   /**< that of short puts which share its buffer, or NULL */
    size_t                     packed; /**< bytes that these have there */
    int                        packs_no_more; /**< there are no buffers */
} uct_angara_batch_t;

/** Have room for one more transfer: post what is in its way. @return as uct_angara_batch_add(). */
ucs_status_t uct_angara_batch_room(struct uct_angara_channel *ch, angara_batch_op_t op,
                                   size_t length);

/**
 * Add a transfer of at most UCT_ANGARA_BATCH_LENGTH bytes, posting what is in its way first.
 * @return UCS_OK, UCS_ERR_NO_RESOURCE, or why the channel fails.
 */
ucs_status_t uct_angara_batch_add(struct uct_angara_channel *ch, angara_batch_op_t op,
                                  const angara_xfer_t *xfer);

/** Does anything wait for the channel? */
static UCS_F_ALWAYS_INLINE int uct_angara_batch_is_of(const uct_angara_batch_t        *batch,
                                                      const struct uct_angara_channel *ch)
{
    return (batch->count > 0) && (batch->ch == ch);
}

/** Does a transfer of that kind wait, the last one, between the same ends? */
static UCS_F_ALWAYS_INLINE int uct_angara_batch_has(const uct_angara_batch_t        *batch,
                                                    const struct uct_angara_channel *ch,
                                                    angara_batch_op_t op, uint64_t rkey)
{
    return uct_angara_batch_is_of(batch, ch) && (batch->op == op) &&
           (batch->xfers[batch->count - 1].rkey == rkey);
}

/** Post what waits. @return UCS_OK if nothing is left, else why. */
ucs_status_t uct_angara_batch_push(struct uct_angara_port *port);

/** Post what waits for the channel. @return as uct_angara_batch_add(). */
ucs_status_t uct_angara_batch_push_of(struct uct_angara_channel *ch);

/** Forget what waits for @a ch. */
void uct_angara_batch_drop(struct uct_angara_channel *ch);

#endif
