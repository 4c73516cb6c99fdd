/* SPDX-License-Identifier: BSD-3-Clause */
/* Batches of zero-copy transfers, see uct_angara_batch.h. */
#include "uct_angara_batch.h"

#include "uct_angara_iface.h"

ucs_status_t uct_angara_batch_push(uct_angara_iface_t *iface)
{
    uct_angara_batch_t *batch  = &iface->batch;
    unsigned            posted = 0;
    angara_status_t     status;

    if (batch->count == 0) {
        return UCS_OK;
    }

    status = angara_offload_batch(batch->peer->ap, batch->op, batch->xfers, batch->count, &posted);
    if (ucs_likely(status == ANGARA_OK)) {
        batch->count = 0;
        batch->bytes = 0;
        return UCS_OK;
    }

    /* the others stay: until there is room, or until the peer's failure is reported */
    batch->count -= posted;
    memmove(batch->xfers, batch->xfers + posted, batch->count * sizeof(*batch->xfers));
    return uct_angara_peer_error(batch->peer, status,
                                 (batch->op == ANGARA_BATCH_GET) ? "get" : "put");
}

void uct_angara_batch_drop(uct_angara_peer_t *peer)
{
    uct_angara_batch_t *batch = &peer->iface->batch;

    if (batch->peer == peer) {
        batch->count = 0;
        batch->bytes = 0;
    }
}

ucs_status_t uct_angara_batch_add(uct_angara_peer_t *peer, angara_batch_op_t op,
                                  const angara_xfer_t *xfer)
{
    uct_angara_batch_t *batch = &peer->iface->batch;
    ucs_status_t        status;

    if (ucs_unlikely((batch->count > 0) &&
                     ((batch->peer != peer) || (batch->op != op) ||
                      (batch->count == ANGARA_BATCH_MAX) ||
                      (batch->bytes + xfer->length > UCT_ANGARA_BATCH_BYTES)))) {
        status = uct_angara_batch_push(peer->iface);
        if (ucs_unlikely(status != UCS_OK)) {
            /* another peer's failure is none of this one's */
            return (peer->status != UCS_OK) ? peer->status : UCS_ERR_NO_RESOURCE;
        }
    }

    batch->peer                  = peer;
    batch->op                    = op;
    batch->xfers[batch->count++] = *xfer;
    batch->bytes += xfer->length;
    peer->rma_dirty = 1;
    return UCS_OK;
}
