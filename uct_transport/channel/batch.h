/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers, of zero copy or from bounce buffers, that wait for a common doorbell: on the soft
 * fabric one system call, on a NIC one write of the doorbell register.
 *
 * Invariants: all transfers of the batch go to one channel in one direction; each has an op there
 * that waits for a marker not yet posted, and uct_angara_channel_post_marker() posts the batch
 * first. So nobody else needs to know that a transfer waits here, and the channel's queue is never
 * empty while one does. uct_angara_channel_fail_ops() drops the batch before it ends the ops of a
 * channel that failed, so it never names memory that its owner has taken back.
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
} uct_angara_batch_t;

/**
 * Add a transfer of at most UCT_ANGARA_BATCH_LENGTH bytes, posting what is in its way first.
 * @return UCS_OK, UCS_ERR_NO_RESOURCE, or why the channel fails.
 */
ucs_status_t uct_angara_batch_add(struct uct_angara_channel *ch, angara_batch_op_t op,
                                  const angara_xfer_t *xfer);

/** Post what waits. @return UCS_OK if nothing is left, else why. */
ucs_status_t uct_angara_batch_push(struct uct_angara_port *port);

/** Forget what waits for @a ch. */
void uct_angara_batch_drop(struct uct_angara_channel *ch);

#endif
