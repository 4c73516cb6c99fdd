/* SPDX-License-Identifier: BSD-3-Clause */
/* Which rings are polled, see channel/poll.h. */
#include "channel/port.h"

/* @return non-zero if the ready word says that there is more than was consumed. */
static inline int uct_angara_ring_is_ready(const uct_angara_poll_t *poll, unsigned index)
{
    return poll->ready[index] != poll->consumed[index];
}

static void uct_angara_poll_set_hot(uct_angara_poll_t *poll, unsigned i, uct_angara_rx_t *rx)
{
    poll->hot[i]    = rx;
    rx->hot         = 1;
    rx->last_active = poll->ticks;
}

/*
 * A turn of progress takes at most UCT_ANGARA_DRAIN_MAX records of each ring, and so does a scan.
 * If there are rings that only scans look at, one follows after as many records.
 */
static void uct_angara_poll_set_busy_max(uct_angara_poll_t *poll)
{
    poll->busy_max = (poll->nopen > poll->nhot) ? UCT_ANGARA_DRAIN_MAX : UCT_ANGARA_BUSY_RECORDS;
}

/* Poll @a rx directly from now on, in place of the one that has been idle for longest. */
static void uct_angara_poll_make_hot(uct_angara_poll_t *poll, uct_angara_rx_t *rx)
{
    unsigned victim = UCT_ANGARA_HOT_RINGS;
    unsigned i;

    if (poll->nhot < UCT_ANGARA_HOT_RINGS) {
        uct_angara_poll_set_hot(poll, poll->nhot++, rx);
        uct_angara_poll_set_busy_max(poll);
        return;
    }

    for (i = 0; i < UCT_ANGARA_HOT_RINGS; ++i) {
        if (!uct_angara_ring_is_ready(poll, poll->hot[i]->index) &&
            ((victim == UCT_ANGARA_HOT_RINGS) ||
             (poll->hot[i]->last_active < poll->hot[victim]->last_active))) {
            victim = i;
        }
    }

    if (victim < UCT_ANGARA_HOT_RINGS) {
        poll->hot[victim]->hot = 0;
        uct_angara_poll_set_hot(poll, victim, rx);
    } /* else all are busy: this one waits for the next scan */
}

void uct_angara_poll_add(uct_angara_poll_t *poll, uct_angara_rx_t *rx)
{
    poll->rings[rx->index] = rx;
    rx->hot                = 0;
    ++poll->nopen;
    poll->high = ucs_max(poll->high, rx->index + 1u);
    if (poll->nhot < UCT_ANGARA_HOT_RINGS) {
        uct_angara_poll_make_hot(poll, rx);
    }
    uct_angara_poll_set_busy_max(poll);
}

void uct_angara_poll_remove(uct_angara_poll_t *poll, uct_angara_rx_t *rx)
{
    unsigned i;

    poll->rings[rx->index]    = NULL;
    poll->consumed[rx->index] = poll->ready[rx->index]; /* silent until used again */
    --poll->nopen;
    for (i = 0; rx->hot && (i < poll->nhot); ++i) {
        if (poll->hot[i] == rx) {
            poll->hot[i] = poll->hot[--poll->nhot];
            rx->hot      = 0;
        }
    }
    uct_angara_poll_set_busy_max(poll);
}

unsigned uct_angara_poll_scan(uct_angara_port_t *port)
{
    uct_angara_poll_t *poll     = &port->poll;
    volatile uint64_t *ready    = (volatile uint64_t *)poll->ready;
    const uint64_t    *consumed = (const uint64_t *)poll->consumed;
    unsigned           words    = ucs_div_round_up(poll->high, 4);
    unsigned           count    = 0;
    unsigned           word, index;
    uct_angara_rx_t   *rx;

    ++port->stats.scans;
    for (word = 0; word < words; ++word) {
        if (ucs_likely(ready[word] == consumed[word])) {
            continue;
        }

        for (index = word * 4; index < word * 4 + 4; ++index) {
            if (!uct_angara_ring_is_ready(poll, index)) {
                continue;
            }

            rx = poll->rings[index];
            if (ucs_unlikely(rx == NULL)) {
                /* a late write of a peer that is gone, or nonsense */
                poll->consumed[index] = poll->ready[index];
                continue;
            }

            rx->last_active = poll->ticks;
            if (!rx->hot) {
                uct_angara_poll_make_hot(poll, rx);
                count += uct_angara_rx_drain(port, rx, UCT_ANGARA_DRAIN_MAX);
            }
        }
    }

    return count;
}

int uct_angara_poll_has_records(uct_angara_poll_t *poll)
{
    uct_angara_rx_t *rx;
    unsigned         i;

    for (i = 0; i < poll->high; ++i) {
        rx = poll->rings[i];
        if ((rx != NULL) && uct_angara_rx_has_record(rx)) {
            if (!rx->hot) {
                uct_angara_poll_make_hot(poll, rx);
            }
            return 1;
        }
    }

    return 0;
}
