/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Event rings and interrupts. See emu.h. The ring is guest memory that is written and never read;
 * the consumer index is the owner's, so a wrong one fails the PE. Called by engine callbacks too.
 */
#include "emu.h"

#include <string.h>

#define SAME(_name)                                                   \
    _Static_assert((int)ANGARA_ST_##_name == (int)ANGARA_ERR_##_name, \
                   "outcomes are values of angara_status_t")

SAME(NO_RESOURCE);
SAME(UNREACHABLE);
SAME(KEY);
SAME(BOUNDS);
SAME(RIGHTS);
SAME(PEER_DEAD);
SAME(UNSUPPORTED);
SAME(SYSTEM);

void emu_event_wake(emu_pe_t *pe)
{
    if (pe->armed == 0) {
        return;
    }
    pe->armed = 0;
    pe->dirty = 1;
    pe->counters[ANGARA_CNT_IRQS]++;
    emu_pe_status(pe); /* before the interrupt: a sleeper that sees it may arm again */
    emu_irq(pe->node, pe->hw.vector);
}

int emu_event_consume(emu_pe_t *pe)
{
    uint32_t cons = __atomic_load_n(&emu_pe_doorbell(pe)->event_cons, __ATOMIC_ACQUIRE);

    if (cons - pe->event_cons > pe->event_prod - pe->event_cons) {
        emu_pe_fail(pe, "doorbell: event_cons went backwards, or ahead of event_prod");
        return 0;
    }
    pe->event_cons = cons;
    return 1;
}

static int has_room(emu_pe_t *pe)
{
    return pe->state == ANGARA_PE_RUNNING &&
           (pe->event_prod - pe->event_cons < pe->hw.event_entries ||
            (emu_event_consume(pe) && pe->event_prod - pe->event_cons < pe->hw.event_entries));
}

/* record->valid is set here. @return 0 if there is no room. */
static int append(emu_pe_t *pe, struct angara_event_record *record)
{
    uint32_t                    slot = pe->event_prod & (pe->hw.event_entries - 1);
    struct angara_event_record *to;

    to = emu_bus(pe->node, pe->hw.event + (uint64_t)slot * sizeof(*to), sizeof(*to));
    if (to == NULL || !has_room(pe)) {
        return 0;
    }
    __atomic_store_n(&to->valid, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(&to->type, &record->type, sizeof(*to) - offsetof(struct angara_event_record, type));
    __atomic_store_n(&to->valid, ++pe->event_prod, __ATOMIC_RELEASE);
    pe->counters[ANGARA_CNT_EVENTS]++;
    pe->dirty = 1;
    emu_event_wake(pe);
    return 1;
}

void emu_event_raise(emu_pe_t *pe, uint32_t type, const emu_pair_t *pair, angara_status_t status,
                     uint64_t key)
{
    struct angara_event_record record = {
        .type = type, .status = (int32_t)status, .key = key, .pair = ~0u, .node = pe->node->id};

    if (pair != NULL) {
        record.pair       = pair->index;
        record.node       = pair->node;
        record.pe         = pair->target;
        record.generation = pair->generation;
    }
    if (pe->state == ANGARA_PE_RUNNING && !append(pe, &record)) {
        pe->event_lost++;
        pe->dirty = 1;
        emu_event_wake(pe); /* that something was lost is worth waking for */
    }
}

angara_status_t emu_event_notify(emu_pe_t *to, const emu_pe_t *from, const void *data,
                                 uint32_t length)
{
    struct angara_event_record record = {
        .type       = ANGARA_EV_NOTIFY,
        .node       = from->node->id,
        .pe         = from->index,
        .generation = from->hw.generation,
        .pair       = ~0u,
        .length     = length,
    };

    if (to->state != ANGARA_PE_RUNNING) {
        return ANGARA_ERR_PEER_DEAD;
    }
    memcpy(record.data, data, length);
    return append(to, &record) ? ANGARA_OK : ANGARA_ERR_NO_RESOURCE;
}

void emu_event_fault(emu_pair_t *pair, uint64_t key, angara_status_t status)
{
    emu_pe_t *pe = pair->pe;

    pe->counters[ANGARA_CNT_FAULTS]++;
    pe->dirty = 1;
    if (status == ANGARA_ERR_KEY) {
        emu_pe_slow(pe);
    }
    emu_log(pe->node, 'F', (int)pe->index, NULL, 0, "%u %d", pair->index, status);
    emu_event_raise(pe, ANGARA_EV_FAULT, pair, status, key);
}
