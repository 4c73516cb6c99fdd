/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Marker slots. The words are the NIC's, mapped for reading; what was posted to them is here. See
 * "Markers" in nic.h: `last` and `peer` of an active slot tell whether a marker can still land.
 */
#include "nic.h"

#include "src/log.h"

#include <stdlib.h>

angara_status_t nic_slots_init(nic_pe_t *pe)
{
    pe->slots       = nic_calloc(pe->num_slots, sizeof(*pe->slots));
    pe->slot_free   = nic_calloc(pe->num_slots, sizeof(*pe->slot_free));
    pe->slot_active = nic_calloc(pe->num_slots, sizeof(*pe->slot_active));
    if (pe->slots == NULL || pe->slot_free == NULL || pe->slot_active == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < pe->num_slots; ++i) {
        pe->slots[i].free = 1;
        pe->slot_free[i]  = pe->num_slots - 1 - i;
    }
    pe->num_slot_free = pe->num_slots;
    return ANGARA_OK;
}

void nic_slots_cleanup(nic_pe_t *pe)
{
    free(pe->slots);
    free(pe->slot_free);
    free(pe->slot_active);
}

/* ---- which are active ------------------------------------------------------------------------ */

static int has_landed(const nic_pe_t *pe, uint32_t index)
{
    return (int64_t)(__atomic_load_n(&pe->markers[index], __ATOMIC_ACQUIRE) -
                     pe->slots[index].last) >= 0;
}

/* Take those out of the list in which nothing can land any more: given back, they are free now. */
static void prune(nic_pe_t *pe)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < pe->num_slot_active; ++i) {
        uint32_t    index = pe->slot_active[i];
        nic_slot_t *slot  = &pe->slots[index];

        if (slot->active && !has_landed(pe, index)) {
            pe->slot_active[kept++] = index;
            continue;
        }
        slot->active = 0;
        if (slot->free) {
            pe->slot_free[pe->num_slot_free++] = index;
        }
    }
    pe->num_slot_active = kept;
}

void nic_slots_settle(nic_pe_t *pe, const nic_peer_t *peer)
{
    for (uint32_t i = 0; i < pe->num_slot_active; ++i) {
        nic_slot_t *slot = &pe->slots[pe->slot_active[i]];

        slot->active = slot->active && slot->peer != peer;
    }
    prune(pe);
}

/* ---- taking and giving back ------------------------------------------------------------------ */

angara_status_t nic_marker_slot_get(angara_pe_h base, angara_marker_slot_t **slot_p)
{
    nic_pe_t *pe = nic_pe(base);
    uint32_t  index;

    if (pe->num_slot_free == 0) {
        prune(pe);
    }
    if (pe->num_slot_free == 0) {
        return ANGARA_ERR_NO_RESOURCE;
    }
    index                 = pe->slot_free[--pe->num_slot_free];
    pe->slots[index].free = 0;
    *slot_p               = &pe->markers[index];
    return ANGARA_OK;
}

/* Number of a slot that somebody holds; num_slots for anything else. */
static uint32_t slot_index(const nic_pe_t *pe, const angara_marker_slot_t *slot)
{
    uintptr_t offset = (uintptr_t)slot - (uintptr_t)pe->markers;
    uint32_t  index  = (uint32_t)(offset / sizeof(*slot));

    return offset < pe->num_slots * sizeof(*slot) && offset % sizeof(*slot) == 0 &&
                   !pe->slots[index].free ?
               index :
               pe->num_slots;
}

void nic_marker_slot_put(angara_pe_h base, angara_marker_slot_t *slot)
{
    nic_pe_t *pe    = nic_pe(base);
    uint32_t  index = slot_index(pe, slot);

    if (index == pe->num_slots) {
        ang_error("a marker slot was given back that isn't one, or twice");
        return;
    }
    pe->slots[index].free = 1;
    if (!pe->slots[index].active) {
        pe->slot_free[pe->num_slot_free++] = index;
    } else {
        prune(pe);
    }
}

/* ---- posting --------------------------------------------------------------------------------- */

static angara_status_t post(nic_pe_t *pe, nic_peer_t *peer, const struct angara_desc *model,
                            const angara_marker_slot_t *word)
{
    struct angara_desc desc  = *model;
    uint32_t           index = slot_index(pe, word);
    nic_slot_t        *slot  = &pe->slots[index];
    angara_status_t    status;

    if (NIC_UNLIKELY(index == pe->num_slots)) {
        return ANGARA_ERR_INVALID;
    }
    if (NIC_UNLIKELY(slot->active && slot->peer != peer && !has_landed(pe, index))) {
        return ANGARA_ERR_NO_RESOURCE; /* another pair's marker could land after ours */
    }
    desc.loffset = index;
    status       = nic_post(pe, &desc);
    if (NIC_UNLIKELY(status != ANGARA_OK)) {
        return status;
    }
    slot->last = desc.operand;
    slot->peer = peer;
    if (!slot->active) {
        slot->active                           = 1;
        pe->slot_active[pe->num_slot_active++] = index;
    }
    return ANGARA_OK;
}

/*
 * Towards the own PE everything has been performed by the CPU, and the NIC only has to store the
 * value: reading back from the own node isn't possible on each NIC.
 */
angara_status_t nic_marker(angara_peer_h base, angara_marker_slot_t *slot, uint64_t value)
{
    nic_peer_t *peer = nic_peer(base);
    nic_pe_t   *pe   = nic_peer_pe(peer);
    int here = peer->is_self && (!peer->by_device || !(pe->dom->info.caps & ANGARA_INFO_LOOPBACK));
    struct angara_desc desc = {.op      = here ? ANGARA_OP_MARKER_SELF : ANGARA_OP_MARKER,
                               .pair    = peer->pair,
                               .operand = value};

    if (NIC_UNLIKELY(peer->error != ANGARA_OK)) {
        return peer->error;
    }
    return post(pe, peer, &desc, slot);
}

angara_status_t nic_marker_self(angara_pe_h base, angara_marker_slot_t *slot, uint64_t value)
{
    struct angara_desc desc = {
        .op = ANGARA_OP_MARKER_SELF, .pair = NIC_SELF_PAIR, .operand = value};

    if (NIC_UNLIKELY(nic_pe(base)->dead)) {
        return ANGARA_ERR_PEER_DEAD;
    }
    return post(nic_pe(base), NULL, &desc, slot);
}
