/* SPDX-License-Identifier: BSD-3-Clause */
/* Batches of transfers, see channel/batch.h. */
#include "channel/port.h"

static void uct_angara_batch_clear(uct_angara_batch_t *batch)
{
    batch->count = 0;
    batch->bytes = 0;
    batch->pack  = NULL; /* it ends with the marker that comes next */
}

ucs_status_t uct_angara_batch_push(uct_angara_port_t *port)
{
    uct_angara_batch_t *batch  = &port->batch;
    unsigned            posted = 0;
    angara_status_t     status;

    if (batch->count == 0) {
        return UCS_OK;
    }

    status = angara_offload_batch(batch->ch->ap, batch->op, batch->xfers, batch->count, &posted);
    if (ucs_likely(status == ANGARA_OK)) {
        uct_angara_batch_clear(batch);
        return UCS_OK;
    }

    /* the others stay: until there is room, or until the peer's failure is reported */
    batch->count -= posted;
    memmove(batch->xfers, batch->xfers + posted, batch->count * sizeof(*batch->xfers));
    return uct_angara_channel_error(batch->ch, status,
                                    (batch->op == ANGARA_BATCH_GET) ? "get" : "put");
}

void uct_angara_batch_drop(uct_angara_channel_t *ch)
{
    uct_angara_batch_t *batch = &ch->port->batch;

    if (batch->ch == ch) {
        uct_angara_batch_clear(batch);
    }
}

/* Post what waits, on behalf of the channel: another peer's failure is none of this one's. */
static ucs_status_t uct_angara_batch_push_for(uct_angara_channel_t *ch)
{
    if (ucs_likely(uct_angara_batch_push(ch->port) == UCS_OK)) {
        return UCS_OK;
    }
    return (ch->status != UCS_OK) ? ch->status : UCS_ERR_NO_RESOURCE;
}

ucs_status_t uct_angara_batch_push_of(uct_angara_channel_t *ch)
{
    return uct_angara_batch_is_of(&ch->port->batch, ch) ? uct_angara_batch_push_for(ch) : UCS_OK;
}

ucs_status_t uct_angara_batch_room(uct_angara_channel_t *ch, angara_batch_op_t op, size_t length)
{
    const uct_angara_batch_t *batch = &ch->port->batch;

    if (ucs_unlikely((batch->count > 0) && ((batch->ch != ch) || (batch->op != op) ||
                                            (batch->count == ANGARA_BATCH_MAX) ||
                                            (batch->bytes + length > UCT_ANGARA_BATCH_BYTES)))) {
        return uct_angara_batch_push_for(ch);
    }
    return UCS_OK;
}

ucs_status_t uct_angara_batch_add(uct_angara_channel_t *ch, angara_batch_op_t op,
                                  const angara_xfer_t *xfer)
{
    uct_angara_batch_t *batch  = &ch->port->batch;
    ucs_status_t        status = uct_angara_batch_room(ch, op, xfer->length);

    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    batch->ch                    = ch;
    batch->op                    = op;
    batch->xfers[batch->count++] = *xfer;
    batch->bytes += xfer->length;
    uct_angara_channel_posted(ch);
    return UCS_OK;
}
