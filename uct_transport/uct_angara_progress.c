/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Progress of an interface: which rings are polled, when the ready array is scanned, what is done
 * only now and then, and how to sleep.
 */
#include "uct_angara_ep.h"

#include <signal.h>
#include <stdlib.h>

/* ---- which rings are hot ------------------------------------------------------------------- */

/* @return non-zero if the ready word says that there is more than was consumed. */
static inline int uct_angara_ring_is_ready(const uct_angara_iface_t *iface, unsigned index)
{
    return iface->ready[index] != iface->consumed[index];
}

static void uct_angara_iface_set_hot(uct_angara_iface_t *iface, unsigned i, uct_angara_rx_t *rx)
{
    iface->hot[i]   = rx;
    rx->hot         = 1;
    rx->last_active = iface->ticks;
}

/*
 * A turn of progress takes at most UCT_ANGARA_DRAIN_MAX records of each ring, and so does a scan.
 * If there are rings that only scans look at, one follows after as many records.
 */
static void uct_angara_iface_set_busy_max(uct_angara_iface_t *iface)
{
    iface->busy_max = (iface->nopen > iface->nhot) ? UCT_ANGARA_DRAIN_MAX : UCT_ANGARA_BUSY_RECORDS;
}

/* Poll @a rx directly from now on, in place of the one that has been idle for longest. */
static void uct_angara_iface_make_hot(uct_angara_iface_t *iface, uct_angara_rx_t *rx)
{
    unsigned victim = UCT_ANGARA_HOT_RINGS;
    unsigned i;

    if (iface->nhot < UCT_ANGARA_HOT_RINGS) {
        uct_angara_iface_set_hot(iface, iface->nhot++, rx);
        uct_angara_iface_set_busy_max(iface);
        return;
    }

    for (i = 0; i < UCT_ANGARA_HOT_RINGS; ++i) {
        if (!uct_angara_ring_is_ready(iface, iface->hot[i]->index) &&
            ((victim == UCT_ANGARA_HOT_RINGS) ||
             (iface->hot[i]->last_active < iface->hot[victim]->last_active))) {
            victim = i;
        }
    }

    if (victim < UCT_ANGARA_HOT_RINGS) {
        iface->hot[victim]->hot = 0;
        uct_angara_iface_set_hot(iface, victim, rx);
    } /* else all are busy: this one waits for the next scan */
}

void uct_angara_iface_add_ring(uct_angara_iface_t *iface, uct_angara_rx_t *rx)
{
    iface->rings[rx->index] = rx;
    rx->hot                 = 0;
    ++iface->nopen;
    if (iface->nhot < UCT_ANGARA_HOT_RINGS) {
        uct_angara_iface_make_hot(iface, rx);
    }
    uct_angara_iface_set_busy_max(iface);
}

void uct_angara_iface_remove_ring(uct_angara_iface_t *iface, uct_angara_rx_t *rx)
{
    unsigned i;

    iface->rings[rx->index]    = NULL;
    iface->consumed[rx->index] = iface->ready[rx->index]; /* silent until used again */
    --iface->nopen;
    for (i = 0; rx->hot && (i < iface->nhot); ++i) {
        if (iface->hot[i] == rx) {
            iface->hot[i] = iface->hot[--iface->nhot];
            rx->hot       = 0;
        }
    }
    uct_angara_iface_set_busy_max(iface);
}

/*
 * Compare the ready array with what was consumed, four rings at a time, and serve those that
 * differ.
 * @return number of records.
 */
static unsigned uct_angara_iface_scan(uct_angara_iface_t *iface)
{
    volatile uint64_t *ready    = (volatile uint64_t *)iface->ready;
    const uint64_t    *consumed = (const uint64_t *)iface->consumed;
    unsigned           words    = ucs_div_round_up(iface->ring_ids.high, 4);
    unsigned           count    = 0;
    unsigned           word, index;
    uct_angara_rx_t   *rx;

    ++iface->stats.scans;
    for (word = 0; word < words; ++word) {
        if (ucs_likely(ready[word] == consumed[word])) {
            continue;
        }

        for (index = word * 4; index < word * 4 + 4; ++index) {
            if (!uct_angara_ring_is_ready(iface, index)) {
                continue;
            }

            rx = iface->rings[index];
            if (ucs_unlikely(rx == NULL)) {
                /* a late write of a peer that is gone, or nonsense */
                iface->consumed[index] = iface->ready[index];
                continue;
            }

            rx->last_active = iface->ticks;
            if (!rx->hot) {
                uct_angara_iface_make_hot(iface, rx);
                count += uct_angara_rx_drain(iface, rx, UCT_ANGARA_DRAIN_MAX);
            }
        }
    }

    return count;
}

/* ---- the poll loop ------------------------------------------------------------------------- */

/* What isn't done at each poll. */
static UCS_F_NOINLINE unsigned uct_angara_iface_progress_slow(uct_angara_iface_t *iface)
{
    unsigned         count = 0;
    ucs_list_link_t *link, *next;

    ++iface->ticks;
    iface->silent = 0;
    iface->busy   = 0;

    if (ucs_unlikely(iface->armed)) {
        iface->armed = 0;
        uct_angara_iface_slow_dec(iface);
        angara_pe_event_disarm(iface->pe);
    }

    if (ucs_unlikely(uct_angara_iface_md(iface)->owed_waiters != NULL)) {
        uct_angara_md_collect(uct_angara_iface_md(iface));
    }

    angara_pe_progress(iface->pe);
    count += uct_angara_event_poll(iface);

    if (iface->nopen > iface->nhot) {
        count += uct_angara_iface_scan(iface);
    }

    for (link = iface->active.next; link != &iface->active; link = next) {
        next = link->next; /* the peer may be freed */
        count += uct_angara_peer_progress(ucs_container_of(link, uct_angara_peer_t, active));
    }

    if (ucs_unlikely(iface->self_waits > 0)) {
        count += uct_angara_self_progress(iface);
    }

    if (!ucs_arbiter_is_empty(&iface->arbiter)) {
        count += uct_angara_iface_dispatch_pending(iface);
    }

    return count;
}

unsigned uct_angara_iface_progress(uct_iface_h tl_iface)
{
    uct_angara_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);
    unsigned            count = 0;
    uct_angara_rx_t    *rx;
    unsigned            i;

    for (i = 0; i < iface->nhot; ++i) {
        rx = iface->hot[i];
        if (uct_angara_rx_has_record(rx)) {
            rx->last_active = iface->ticks;
            count += uct_angara_rx_drain(iface, rx, UCT_ANGARA_DRAIN_MAX);
        }
    }

    if (count > 0) {
        iface->silent = 0;
        iface->busy += count;
        if (ucs_likely((iface->busy < iface->busy_max) && (iface->slow == 0))) {
            return count;
        }
    } else if (ucs_likely((++iface->silent < UCT_ANGARA_SILENT_POLLS) && (iface->slow == 0))) {
        return 0;
    }

    return count + uct_angara_iface_progress_slow(iface);
}

/* ---- sleeping ------------------------------------------------------------------------------ */

/*
 * @return non-zero if a record waits in any ring. The headers tell: ready words wake nobody, so one
 * may come, or be sent again, long after its record. A ring that it hasn't announced is made hot.
 */
static int uct_angara_iface_has_records(uct_angara_iface_t *iface)
{
    uct_angara_rx_t *rx;
    unsigned         i;

    for (i = 0; i < iface->ring_ids.high; ++i) {
        rx = iface->rings[i];
        if ((rx != NULL) && uct_angara_rx_has_record(rx)) {
            if (!rx->hot) {
                uct_angara_iface_make_hot(iface, rx);
            }
            return 1;
        }
    }

    return 0;
}

ucs_status_t uct_angara_iface_event_fd_get(uct_iface_h tl_iface, int *fd_p)
{
    uct_angara_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);

    return uct_angara_status(angara_pe_event_fd(iface->pe, fd_p));
}

ucs_status_t uct_angara_iface_event_arm(uct_iface_h tl_iface, unsigned events)
{
    uct_angara_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);
    angara_status_t     status;

    (void)events;
    /* Slow work may end without anybody waking us: whoever waits for it must not sleep. */
    if ((iface->slow - iface->armed > 0) || (uct_angara_iface_md(iface)->owed_waiters != NULL)) {
        return UCS_ERR_BUSY;
    }

    /*
     * Armed for all events, whichever are asked for: puts without completion may be queued in the
     * library, and go on only with progress that an event of its own asks for.
     */
    status = angara_pe_event_arm(iface->pe);
    if (status == ANGARA_INPROGRESS) {
        return UCS_ERR_BUSY;
    } else if (status == ANGARA_ERR_NO_DEVICE) {
        /* Endpoints have failed by now. Others aren't concerned; UCP aborts for other answers. */
        return UCS_OK;
    } else if (status != ANGARA_OK) {
        return uct_angara_status(status);
    }

    /* what arrived before the peers could see that we are armed is not signalled */
    if (uct_angara_iface_has_records(iface)) {
        angara_pe_event_disarm(iface->pe);
        if (iface->armed) {
            iface->armed = 0;
            uct_angara_iface_slow_dec(iface);
        }
        return UCS_ERR_BUSY;
    }

    if (!iface->armed) {
        iface->armed = 1; /* counts as slow work, so that the next poll disarms */
        uct_angara_iface_slow_inc(iface);
    }
    return UCS_OK;
}

/* ---- dead peers ---------------------------------------------------------------------------- */

void uct_angara_iface_unhandled(uct_angara_iface_t *iface, const char *reason)
{
    switch (iface->config.dead_peer) {
    case UCT_ANGARA_DEAD_PEER_ABORT:
        fprintf(stderr,
                "angara: %s, and nothing in this program handles that: aborting "
                "(UCX_ANGARA_DEAD_PEER=error goes on)\n",
                reason);
        signal(SIGABRT, SIG_DFL);
        abort();
    case UCT_ANGARA_DEAD_PEER_ERROR:
        ucs_error("angara: %s", reason);
        break;
    default:
        ucs_debug("angara: %s", reason);
        break;
    }
}
