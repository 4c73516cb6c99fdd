/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels: creation, what blocks them, and what is asked of the owner. */
#include "channel/port.h"

#include <stdarg.h>
#include <stdio.h>

#define UCT_ANGARA_TEXT 256 /* longest description of nonsense */

_Static_assert(offsetof(uct_angara_tx_t, pads) == UCS_SYS_CACHE_LINE_SIZE,
               "an eager send touches the first line of tx only");
_Static_assert(offsetof(uct_angara_rx_t, shape) == UCS_SYS_CACHE_LINE_SIZE,
               "a poll touches the first line of rx only");
_Static_assert(offsetof(uct_angara_channel_t, rx) % UCS_SYS_CACHE_LINE_SIZE == 0,
               "rx is on a line");

static void uct_angara_channel_read(const void *object, uint64_t *values)
{
    uct_angara_stats_t stats;

    uct_angara_channel_count(object, &stats);
    memcpy(values, &stats, sizeof(stats));
}

static const angara_watch_kind_t uct_angara_channel_kind = {
    sizeof(uct_angara_channel_kind), "channel", uct_angara_stats_names, UCT_ANGARA_NUM_COUNTERS,
    uct_angara_channel_read};

void uct_angara_channel_init(uct_angara_channel_t *ch, uct_angara_port_t *port, angara_peer_h ap)
{
    ch->port = port;
    ch->ap   = ap;
    if (ap != NULL) {
        ch->others = angara_fast_done(ap);
    }

    /* enough for the senders to see that there is no room: the limit is 0 */
    ch->tx.shape    = port->shape;
    ch->tx.last_run = 1;

    uct_angara_markers_init(&ch->markers);
    ucs_queue_head_init(&ch->early_ops);
    if (ap != NULL) {
        ucs_list_add_tail(&port->channels, &ch->list);
        uct_angara_channel_stir(ch);
        ch->watch = angara_watch_add(port->pe, &uct_angara_channel_kind, ch, angara_peer_name(ap));
    } else {
        ch->is_stirred = 1; /* and never on the list: no flush of the interface is about it */
    }
}

void uct_angara_channel_cleanup(uct_angara_channel_t *ch)
{
    uct_angara_stats_t stats;

    angara_watch_remove(ch->watch);
    uct_angara_channel_count(ch, &stats);
    uct_angara_stats_add(&ch->port->stats, &stats);
    if (ch->markers.slot != NULL) {
        angara_marker_slot_put(ch->port->pe, ch->markers.slot);
    }
    uct_angara_channel_rest(ch);
    if (ch->is_stirred) {
        uct_angara_channel_calm(ch);
    }
    ucs_list_del(&ch->list);
}

void uct_angara_channel_update(uct_angara_channel_t *ch)
{
    uct_angara_tx_t *tx       = &ch->tx;
    int              has_ring = ch->is_open && uct_angara_early_is_empty(&ch->early);

    uct_angara_channel_stir(ch);
    ch->blocked = (ch->status != UCS_OK) ? UCT_ANGARA_BLOCK_FAILED : 0;
    if (!ch->is_sending_early) { /* these go before all else */
        ch->blocked |= (has_ring ? 0 : UCT_ANGARA_BLOCK_RING) |
                       (ch->is_fenced ? UCT_ANGARA_BLOCK_FENCE : 0) |
                       (ch->is_held ? UCT_ANGARA_BLOCK_PENDING : 0);
    }

    /* the limit alone stops the fast path of messages */
    tx->limit = ch->blocked ? 0 : tx->credits + tx->shape.nslots - 1;
}

void uct_angara_channel_stir_first(uct_angara_channel_t *ch)
{
    ch->is_stirred = 1;
    ucs_list_add_tail(&ch->port->stirred, &ch->stirred);
}

void uct_angara_channel_calm(uct_angara_channel_t *ch)
{
    ch->is_stirred = 0;
    ucs_list_del(&ch->stirred);
}

void uct_angara_channel_activate(uct_angara_channel_t *ch)
{
    uct_angara_channel_stir(ch);
    if (!ch->is_active) {
        ch->is_active = 1;
        ucs_list_add_tail(&ch->port->active, &ch->active);
        uct_angara_port_slow_inc(ch->port);
    }
}

void uct_angara_channel_rest(uct_angara_channel_t *ch)
{
    if (ch->is_active) {
        ch->is_active = 0;
        ucs_list_del(&ch->active);
        uct_angara_port_slow_dec(ch->port);
    }
}

/* With what the rings count, and without what the library does. */
static void uct_angara_channel_count_own(const uct_angara_channel_t *ch, uct_angara_stats_t *stats)
{
    const uct_angara_tx_t *tx   = &ch->tx;
    uint64_t               sent = tx->msgs - tx->pads;

    *stats = ch->stats;
    stats->sar_tx += tx->sar;
    stats->eager_tx += sent - tx->sar;
    stats->am_bcopy += tx->bcopy;
    stats->am_zcopy += tx->zcopy;
    stats->am_short += sent - tx->bcopy - tx->zcopy;
    stats->tx_bytes += tx->bytes;
    stats->sar_rx += ch->rx.sar;
    stats->eager_rx += ch->rx.am - ch->rx.sar;
    stats->rx_bytes += ch->rx.bytes;
}

void uct_angara_channel_count(const uct_angara_channel_t *ch, uct_angara_stats_t *stats)
{
    struct angara_fast_counts done;

    uct_angara_channel_count_own(ch, stats);
    if (ch->ap != NULL) {
        done = angara_fast_done(ch->ap);
        stats->put_short += done.puts - ch->others.puts;
        stats->put_bytes += done.put_bytes - ch->others.put_bytes;
        stats->get_bcopy += done.gets - ch->others.gets;
        stats->get_bytes += done.get_bytes - ch->others.get_bytes;
        stats->atomics += done.atomics - ch->others.atomics;
    }
}

void uct_angara_channel_fold_counts(uct_angara_channel_t *ch)
{
    uct_angara_tx_t *tx = &ch->tx;

    uct_angara_channel_count_own(ch, &ch->stats);
    tx->msgs = tx->pads = tx->sar = tx->bcopy = tx->zcopy = tx->bytes = 0;
    ch->rx.am = ch->rx.sar = ch->rx.bytes = 0;
}

/* ---- what the owner is asked --------------------------------------------------------------- */

ucs_status_t uct_angara_channel_error(uct_angara_channel_t *ch, angara_status_t status,
                                      const char *what)
{
    if (ucs_likely(status == ANGARA_ERR_NO_RESOURCE)) {
        return UCS_ERR_NO_RESOURCE;
    }
    return ch->port->up->error(ch, status, what);
}

void uct_angara_channel_nonsense(uct_angara_channel_t *ch, const char *fmt, ...)
{
    char    text[UCT_ANGARA_TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    ch->port->up->nonsense(ch, text);
}

ucs_status_t uct_angara_channel_admit(uct_angara_channel_t *ch)
{
    return ucs_likely(ch->blocked == 0) ? UCS_OK : ch->port->up->admit(ch);
}
