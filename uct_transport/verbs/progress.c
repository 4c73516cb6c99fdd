/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Progress of an interface: what is done at each poll, what only now and then, and how to sleep.
 */
#include "verbs/ep.h"

#include <ucs/async/async.h>

/* ---- the poll loop ------------------------------------------------------------------------- */

/* What isn't done at each poll. */
static UCS_F_NOINLINE unsigned uct_angara_iface_progress_slow(uct_angara_iface_t *iface)
{
    uct_angara_poll_t *poll = &iface->net.port.poll;
    unsigned           count;

    ++poll->ticks;
    poll->silent = 0;
    poll->busy   = 0;

    if (ucs_unlikely(iface->armed)) {
        iface->armed = 0;
        uct_angara_port_slow_dec(&iface->net.port);
        angara_pe_event_disarm(iface->net.port.pe);
    }

    if (ucs_unlikely(uct_angara_iface_md(iface)->owed_waiters != NULL)) {
        uct_angara_md_collect(uct_angara_iface_md(iface));
    }

    count = uct_angara_net_progress(&iface->net);

    if (!ucs_arbiter_is_empty(&iface->arbiter)) {
        count += uct_angara_iface_dispatch_pending(iface);
    }

    return count;
}

unsigned uct_angara_iface_progress(uct_iface_h tl_iface)
{
    uct_angara_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);
    uct_angara_port_t  *port  = &iface->net.port;
    uct_angara_poll_t  *poll  = &port->poll;
    unsigned            count = 0;
    uct_angara_rx_t    *rx;
    unsigned            i;

    for (i = 0; i < poll->nhot; ++i) {
        rx = poll->hot[i];
        if (uct_angara_rx_has_record(rx)) {
            rx->last_active = poll->ticks;
            count += uct_angara_rx_drain(port, rx, UCT_ANGARA_DRAIN_MAX);
        }
    }

    /* Messages come first, some of them. */
    if (((count == 0) || (poll->busy >= UCT_ANGARA_BUSY_ASKED)) &&
        ucs_unlikely(angara_pe_is_asked(port->pe))) {
        count += angara_pe_progress(port->pe);
    }

    if (count > 0) {
        poll->silent = 0;
        poll->busy += count;
        if (ucs_likely((poll->busy < poll->busy_max) && (port->slow == 0))) {
            return count;
        }
    } else if (ucs_likely((++poll->silent < UCT_ANGARA_SILENT_POLLS) && (port->slow == 0))) {
        return 0;
    }

    return count + uct_angara_iface_progress_slow(iface);
}

/* ---- progress that is off ------------------------------------------------------------------ */

#define UCT_ANGARA_SERVE_TURNS 512 /* then progress is made, whoever asks */

/*
 * UCP makes no progress on an interface until it has a use for it, but keeps it armed
 * (UCX_ADAPTIVE_PROGRESS). What peers ask of this process, atomics on its private memory say, comes
 * all the same: the worker's turns look after it. The first one after arming tells the peers so.
 */
static unsigned uct_angara_iface_serve(void *arg)
{
    uct_angara_iface_t *iface = ucs_derived_of((uct_base_iface_t *)arg, uct_angara_iface_t);
    angara_pe_h         pe    = iface->net.port.pe;
    unsigned            count = 0;

    if (ucs_likely((iface->serve_turns++ % UCT_ANGARA_SERVE_TURNS != 0) &&
                   !angara_pe_is_asked(pe))) {
        return 0;
    }

    /* UCP's other thread may connect an endpoint of the interface, which has progress then. */
    UCS_ASYNC_BLOCK(iface->super.worker->async);
    if (iface->serves) {
        count = angara_pe_progress(pe);
    }
    UCS_ASYNC_UNBLOCK(iface->super.worker->async);
    return count;
}

static void uct_angara_iface_serve_start(uct_angara_iface_t *iface)
{
    iface->serve_turns = 0;
    if (!iface->serves && (iface->super.progress_flags == 0)) {
        iface->serves = 1;
        uct_base_iface_progress_enable_cb(&iface->super, uct_angara_iface_serve, UCT_PROGRESS_RECV);
    }
}

void uct_angara_iface_progress_enable(uct_iface_h tl_iface, unsigned flags)
{
    uct_angara_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);

    if (iface->serves && (flags & (UCT_PROGRESS_SEND | UCT_PROGRESS_RECV))) {
        iface->serves = 0;
        uct_base_iface_progress_disable(tl_iface,
                                        UCT_PROGRESS_RECV | (flags & UCT_PROGRESS_THREAD_SAFE));
    }
    uct_base_iface_progress_enable(tl_iface, flags);
}

void uct_angara_iface_progress_disable(uct_iface_h tl_iface, unsigned flags)
{
    if (!ucs_derived_of(tl_iface, uct_angara_iface_t)->serves) { /* else it is off */
        uct_base_iface_progress_disable(tl_iface, flags);
    }
}

/* ---- sleeping ------------------------------------------------------------------------------ */

ucs_status_t uct_angara_iface_event_fd_get(uct_iface_h tl_iface, int *fd_p)
{
    uct_angara_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);

    return uct_angara_status(angara_pe_event_fd(iface->net.port.pe, fd_p));
}

ucs_status_t uct_angara_iface_event_arm(uct_iface_h tl_iface, unsigned events)
{
    uct_angara_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);
    angara_status_t     status;

    (void)events;
    /* Slow work may end without anybody waking us: whoever waits for it must not sleep. */
    if ((iface->net.port.slow - iface->armed > 0) ||
        (uct_angara_iface_md(iface)->owed_waiters != NULL)) {
        return UCS_ERR_BUSY;
    }

    /*
     * Armed for all events, whichever are asked for: puts without completion may be queued in the
     * library, and go on only with progress that an event of its own asks for.
     */
    status = angara_pe_event_arm(iface->net.port.pe);
    if (status == ANGARA_INPROGRESS) {
        return UCS_ERR_BUSY;
    } else if (status == ANGARA_ERR_NO_DEVICE) {
        /* Endpoints have failed by now. Others aren't concerned; UCP aborts for other answers. */
        return UCS_OK;
    } else if (status != ANGARA_OK) {
        return uct_angara_status(status);
    }

    /* what arrived before the peers could see that we are armed is not signalled */
    if (uct_angara_poll_has_records(&iface->net.port.poll)) {
        angara_pe_event_disarm(iface->net.port.pe);
        if (iface->armed) {
            iface->armed = 0;
            uct_angara_port_slow_dec(&iface->net.port);
        }
        return UCS_ERR_BUSY;
    }

    if (!iface->armed) {
        iface->armed = 1; /* counts as slow work, so that the next poll disarms */
        uct_angara_port_slow_inc(&iface->net.port);
    }
    uct_angara_iface_serve_start(iface);
    return UCS_OK;
}
