/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations that something else than the CPU moves: the backend launches them, and says later that
 * they have landed. Those at the head of a pair's queue fly together, as far as the backend is sure
 * that they land in order; what is behind them waits. See engine.h.
 */
#include "entry.h"

#include <sched.h>

/*
 * Where a backend launches several at once, that is worth waiting for: while more than FEW fly, for
 * a run of so many. While more than MANY do, there may be no room for a run (SOFT_FLIGHTS).
 */
#define FEW  2
#define RUN  4
#define MANY 8

int ang_entry_can_fly(const ang_entry_t *entry)
{
    /* The bytes of an inline put move with its entry, an atomic is more than one step. Of a run the
     * next one's turn would come too early. */
    return entry->run_count == 0 &&
           (entry->desc.op == ANG_OP_PUT || entry->desc.op == ANG_OP_GET) &&
           ((entry->local.kind | entry->remote.kind) & ANG_REF_LAUNCH) && entry->done == 0 &&
           entry->desc.length != 0 && entry->pair->engine->chaos == NULL;
}

angara_status_t ang_entry_launch(ang_entry_t *entry, const ang_entry_t *after)
{
    angara_status_t status;

    status = entry->pair->engine->backend->launch(
        entry->pair, entry->desc.op, &entry->local, &entry->remote, entry->desc.length,
        after != NULL ? &after->flight : NULL, &entry->flight);
    entry->flies = status == ANGARA_INPROGRESS;
    return status;
}

angara_status_t ang_entry_land(ang_entry_t *entry)
{
    angara_status_t status = entry->pair->engine->backend->landed(entry->pair, &entry->flight);

    if (status != ANGARA_INPROGRESS) {
        entry->flies = 0;
        entry->done  = status == ANGARA_OK ? entry->desc.length : 0;
    }
    return status;
}

void ang_entry_ground(ang_entry_t *entry)
{
    while (entry->flies && ang_entry_land(entry) == ANGARA_INPROGRESS) {
        sched_yield();
    }
}

/* Is it too early to launch what is queued from this one on? */
static int waits_for_more(const ang_entry_t *entry, unsigned flying)
{
    unsigned queued = 0;

    while (entry != NULL && queued < RUN) {
        entry = entry->next;
        queued++;
    }
    return flying > MANY || (flying > FEW && queued < RUN);
}

unsigned ang_pair_launch(ang_pair_t *pair)
{
    ang_entry_t    *entry = pair->head;
    ang_entry_t    *last  = NULL;
    unsigned        count = 0, flying = 0;
    angara_status_t status;

    while (entry != NULL && entry->flies) {
        last  = entry;
        entry = entry->next;
        flying++;
    }
    if (last != NULL && pair->engine->backend->gathers(pair, &last->flight) &&
        waits_for_more(entry, flying)) {
        return 0;
    }
    while (last != NULL && entry != NULL && entry != pair->refused && entry->failed == ANGARA_OK &&
           ang_desc_moves(&entry->desc)) {
        status = ang_entry_begin(entry); /* what is wrong with it is told at its turn */
        if (status == ANGARA_OK) {
            status = ang_entry_can_fly(entry) ? ang_entry_launch(entry, last) :
                                                ANGARA_ERR_UNSUPPORTED;
            ang_entry_end(entry);
        }
        if (status != ANGARA_INPROGRESS) {
            pair->refused = entry;
            break;
        }
        last  = entry;
        entry = entry->next;
        count++;
    }
    if (count > 0) {
        pair->engine->backend->launched(pair, &last->flight);
    }
    return count;
}
