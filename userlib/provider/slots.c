/* SPDX-License-Identifier: BSD-3-Clause */
/* See slots.h. */
#include "slots.h"

#include "src/alloc.h"

#include <stdlib.h>

#define SLOTS "the marker slots of a PE"

angara_status_t ang_slots_init(ang_slots_t *slots, angara_marker_slot_t *words, uint32_t count)
{
    slots->words  = words;
    slots->slots  = ang_calloc(count, sizeof(*slots->slots), SLOTS);
    slots->free   = ang_calloc(count, sizeof(*slots->free), SLOTS);
    slots->active = ang_calloc(count, sizeof(*slots->active), SLOTS);
    if (slots->slots == NULL || slots->free == NULL || slots->active == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; ++i) {
        slots->free[i] = count - 1 - i;
    }
    slots->count    = count;
    slots->num_free = count;
    return ANGARA_OK;
}

void ang_slots_cleanup(ang_slots_t *slots)
{
    free(slots->slots);
    free(slots->free);
    free(slots->active);
}

/* Take those out of the list in which nothing can land any more: given back, they are free now. */
static void prune(ang_slots_t *slots)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < slots->num_active; ++i) {
        uint32_t    index = slots->active[i];
        ang_slot_t *slot  = &slots->slots[index];

        if (slot->active && !ang_slots_landed(slots, index)) {
            slots->active[kept++] = index;
            continue;
        }
        slot->active = 0;
        if (!slot->held) {
            slots->free[slots->num_free++] = index;
        }
    }
    slots->num_active = kept;
}

void ang_slots_settle(ang_slots_t *slots, const void *owner)
{
    for (uint32_t i = 0; i < slots->num_active; ++i) {
        ang_slot_t *slot = &slots->slots[slots->active[i]];

        slot->active = slot->active && slot->owner != owner;
    }
    prune(slots);
}

angara_status_t ang_slots_get(ang_slots_t *slots, angara_marker_slot_t **word_p)
{
    uint32_t index;

    if (slots->num_free == 0) {
        prune(slots);
    }
    if (slots->num_free == 0) {
        return ANGARA_ERR_NO_RESOURCE;
    }
    index                    = slots->free[--slots->num_free];
    slots->slots[index].held = 1;
    slots->slots[index].last = __atomic_load_n(&slots->words[index], __ATOMIC_ACQUIRE);
    *word_p                  = &slots->words[index];
    return ANGARA_OK;
}

void ang_slots_put(ang_slots_t *slots, const angara_marker_slot_t *word)
{
    uint32_t index = ang_slots_index(slots, word);

    if (index == slots->count) {
        ang_error("a marker slot was given back that isn't one of this PE's, or twice");
        return;
    }
    slots->slots[index].held = 0;
    if (!slots->slots[index].active) {
        slots->free[slots->num_free++] = index;
    } else {
        prune(slots);
    }
}
