/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Marker slots of a PE: who holds which, and whether a marker can still land in it. The words are
 * the provider's, which lands markers there; nothing here writes them. Called by whoever calls on
 * the PE only: no lock, no system call, no allocation but in ang_slots_init().
 *
 * Invariants
 *   A slot is free, held, or given back while a marker may still land in it ("waiting").
 *   An owner's markers land in the order posted (the owner is a pair, or NULL for self markers),
 * and a slot takes markers of one owner at a time. So the last value posted tells whether any can
 *   still land: none if the word has reached it.
 *   Values posted to a slot grow, counted from what the word held when the slot was taken.
 *   What is dropped never lands: whoever drops an owner's markers says so by ang_slots_settle().
 *   A slot in which a marker may still land ("active") is in the list of those, once.
 */
#ifndef ANG_SLOTS_H
#define ANG_SLOTS_H

#include <angara/angara.h>

typedef struct {
    uint64_t    last;   /* value of the last marker posted; before one: what the word held */
    const void *owner;  /* of those markers */
    uint8_t     active; /* one may still land, as far as is known */
    uint8_t     held;   /* somebody has taken it and not given it back */
} ang_slot_t;

typedef struct {
    angara_marker_slot_t *words;
    ang_slot_t           *slots;
    uint32_t             *free;   /* stack of free slots */
    uint32_t             *active; /* list of active ones */
    uint32_t              count;
    uint32_t              num_free;
    uint32_t              num_active;
} ang_slots_t;

/* `slots` is zeroed memory. On failure there is nothing to clean up, but ang_slots_cleanup() may be
 * called. */
angara_status_t ang_slots_init(ang_slots_t *slots, angara_marker_slot_t *words, uint32_t count);
void            ang_slots_cleanup(ang_slots_t *slots);

/* Take one: ANGARA_OK or ANGARA_ERR_NO_RESOURCE. */
angara_status_t ang_slots_get(ang_slots_t *slots, angara_marker_slot_t **word_p);
/* Give one back; anything that isn't a held slot of this PE's is logged and left alone. */
void ang_slots_put(ang_slots_t *slots, const angara_marker_slot_t *word);
/* No marker of that owner's that was posted up to now can land any more. */
void ang_slots_settle(ang_slots_t *slots, const void *owner);

/* Number of a held slot; `count` for anything else. */
static inline uint32_t ang_slots_index(const ang_slots_t *slots, const angara_marker_slot_t *word)
{
    uintptr_t offset = (uintptr_t)word - (uintptr_t)slots->words;
    uint32_t  index  = (uint32_t)(offset / sizeof(*word));

    return offset < slots->count * sizeof(*word) && offset % sizeof(*word) == 0 &&
                   slots->slots[index].held ?
               index :
               slots->count;
}

static inline int ang_slots_landed(const ang_slots_t *slots, uint32_t index)
{
    return (int64_t)(__atomic_load_n(&slots->words[index], __ATOMIC_ACQUIRE) -
                     slots->slots[index].last) >= 0;
}

/*
 * May `owner` post a marker of that value? ANGARA_OK and the slot's number; ANGARA_ERR_INVALID for
 * what is no held slot, or a value that doesn't grow; ANGARA_ERR_NO_RESOURCE while another owner's
 * may land.
 */
static inline angara_status_t ang_slots_check(const ang_slots_t          *slots,
                                              const angara_marker_slot_t *word, const void *owner,
                                              uint64_t value, uint32_t *index_p)
{
    uint32_t          index = ang_slots_index(slots, word);
    const ang_slot_t *slot  = &slots->slots[index];

    if (__builtin_expect(index == slots->count || (int64_t)(value - slot->last) <= 0, 0)) {
        return ANGARA_ERR_INVALID;
    }
    if (__builtin_expect(slot->active && slot->owner != owner && !ang_slots_landed(slots, index),
                         0)) {
        return ANGARA_ERR_NO_RESOURCE;
    }
    *index_p = index;
    return ANGARA_OK;
}

/* It was posted, and may have landed. */
static inline void ang_slots_posted(ang_slots_t *slots, uint32_t index, const void *owner,
                                    uint64_t value)
{
    ang_slot_t *slot = &slots->slots[index];

    slot->last  = value;
    slot->owner = owner;
    if (!slot->active) {
        slot->active                       = 1;
        slots->active[slots->num_active++] = index;
    }
}

#endif
