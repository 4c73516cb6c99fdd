/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Command rings and pairs. See emu.h. The ring is its owner's memory: a descriptor is copied once
 * and the copy is checked; one that has to wait is copied anew at the next turn. What makes no
 * sense fails the PE; what is refused (a key, a bound, a right) is a fault of the pair.
 */
#include "emu.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(offsetof(struct angara_desc, signal_value) == offsetof(ang_desc_t, signal_value),
               "the engine's descriptor begins like the ring's");
_Static_assert((int)ANGARA_OP_PUT == (int)ANG_OP_PUT &&
                   (int)ANGARA_OP_MARKER_SELF == (int)ANG_OP_MARKER_SELF,
               "operations have the engine's numbers");

/* ---- pairs ----------------------------------------------------------------------------------- */

void emu_pair_check(emu_pair_t *pair, angara_status_t status)
{
    emu_t *emu = pair->pe->node->emu;

    if (pair->down || pair->node >= emu->num_nodes ||
        !emu_linked(pair->pe->node, &emu->nodes[pair->node])) {
        return;
    }
    if (emu_pe_find(pair) != NULL) {
        pair->met = 1;
        return;
    }
    if (!pair->met) {
        emu_pe_slow(pair->pe);
    }
    pair->down = 1;
    ang_engine_pair_reset(&pair->base, ANGARA_ERR_PEER_DEAD);
    emu_event_raise(pair->pe, ANGARA_EV_PEER_DOWN, pair, status, 0);
    emu_pe_status(pair->pe);
}

void emu_pairs_check(emu_t *emu, angara_status_t status)
{
    for (unsigned n = 0; n < emu->num_nodes; ++n) {
        for (uint32_t i = 0; i < emu->config.pe_max; ++i) {
            emu_pe_t *pe = &emu->nodes[n].pes[i];

            if (pe->state != ANGARA_PE_RUNNING) {
                continue;
            }
            for (ang_pair_t *pair = pe->engine.pairs; pair != NULL; pair = pair->next) {
                emu_pair_check((emu_pair_t *)pair, status);
            }
        }
    }
}

void emu_pairs_free(emu_pe_t *pe)
{
    for (uint32_t i = 0; i < ANGARA_PAIRS_MAX; ++i) {
        if (pe->pairs[i] != NULL) {
            ang_engine_pair_remove(&pe->pairs[i]->base);
            free(pe->pairs[i]);
        }
    }
}

static emu_next_t pair_set(emu_pe_t *pe, const struct angara_desc *desc)
{
    emu_pair_t *pair = pe->pairs[desc->pair];

    if (pair == NULL) {
        pair = calloc(1, sizeof(*pair));
        if (pair == NULL) {
            return EMU_LATER;
        }
        pair->pe    = pe;
        pair->index = desc->pair;
        ang_engine_pair_add(&pe->engine, &pair->base);
        pe->pairs[desc->pair] = pair;
    } else if (!ang_engine_pair_idle(&pair->base)) {
        return EMU_LATER; /* what was posted to the old peer before comes first */
    }
    pair->node        = (uint32_t)(desc->operand >> 32);
    pair->target      = (uint32_t)desc->operand;
    pair->generation  = (uint32_t)desc->compare;
    pair->met         = 0;
    pair->down        = 0;
    pair->stall_since = 0;
    ang_engine_pair_reset(&pair->base, ANGARA_OK);
    if (pair->node >= pe->node->emu->num_nodes) {
        ang_engine_pair_reset(&pair->base, ANGARA_ERR_PAIR);
        emu_event_fault(pair, 0, ANGARA_ERR_UNREACHABLE);
    } else {
        emu_pair_check(pair, ANGARA_ERR_PEER_DEAD);
    }
    return EMU_DONE;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* Why a descriptor makes no sense, or NULL. */
static const char *find_nonsense(const emu_pe_t *pe, const struct angara_desc *desc)
{
    uint64_t granules = pe->node->emu->config.pio_bytes / ANGARA_PIO_GRANULE;

    if (desc->pair >= ANGARA_PAIRS_MAX) {
        return "a descriptor names a pair beyond the table";
    }
    if (desc->flags != 0 || desc->trigger_counter != 0 || desc->trigger_threshold != 0 ||
        desc->signal_offset != 0 || desc->signal_value != 0) {
        return "a reserved field of a descriptor isn't zero";
    }
    if (desc->pio_prod > pe->pio_cons + granules) {
        return "pio_prod is more than the put ring ahead";
    }
    if (desc->op == ANGARA_OP_PAIR) {
        return desc->compare >> 32 != 0 ? "a generation has 32 bits" : NULL;
    }
    if (pe->pairs[desc->pair] == NULL) {
        return "a descriptor names a pair that was never set";
    }
    switch (desc->op) {
    case ANGARA_OP_PUT:
    case ANGARA_OP_GET:
        return NULL;
    case ANGARA_OP_PUT_INLINE:
        return desc->length > ANGARA_DESC_DATA ? "an inline put is too long" : NULL;
    case ANGARA_OP_ATOMIC:
        return desc->atomic >= ANGARA_ATOMIC_LAST || (desc->width != 4 && desc->width != 8) ?
                   "an unknown atomic" :
                   NULL;
    case ANGARA_OP_MARKER:
    case ANGARA_OP_MARKER_SELF:
        return desc->loffset >= pe->hw.marker_slots ? "a marker slot out of range" : NULL;
    default:
        return "an unknown operation";
    }
}

emu_next_t emu_cmd_execute(emu_pe_t *pe, const struct angara_desc *desc)
{
    const char     *nonsense = find_nonsense(pe, desc);
    ang_desc_t      copy     = {0};
    angara_status_t status;

    if (nonsense != NULL) {
        emu_pe_fail(pe, nonsense);
        return EMU_DONE;
    }
    if (desc->pio_prod > pe->pio_cons) {
        return EMU_LATER; /* those puts haven't been seen yet */
    }
    if (desc->op == ANGARA_OP_PAIR) {
        return pair_set(pe, desc);
    }
    memcpy(&copy, desc, offsetof(struct angara_desc, trigger_counter));
    status = ang_engine_post(&pe->pairs[desc->pair]->base, &copy, desc->data);
    return status == ANGARA_ERR_NO_RESOURCE || status == ANGARA_ERR_NO_MEMORY ? EMU_LATER :
                                                                                EMU_DONE;
}

unsigned emu_cmd_turn(emu_pe_t *pe, uint32_t prod)
{
    struct angara_desc desc;
    unsigned           count = 0;

    while (pe->cmd_cons != prod && count < EMU_TURN_COUNT) {
        uint32_t slot = pe->cmd_cons & (pe->hw.cmd_entries - 1);

        if (pe->node->emu->now < pe->guess_until ||
            !emu_read(pe->node, &desc, pe->hw.cmd + (uint64_t)slot * sizeof(desc), sizeof(desc))) {
            break;
        }
        emu_pe_budget(pe);
        if (emu_cmd_execute(pe, &desc) == EMU_LATER) {
            break;
        }
        emu_log(pe->node, 'C', (int)pe->index, &desc, sizeof(desc), "%d", pe->state);
        if (pe->state != ANGARA_PE_RUNNING) {
            break;
        }
        pe->cmd_cons++;
        pe->dirty = 1;
        count++;
    }
    pe->node->emu->busy |= pe->cmd_cons != prod && pe->state == ANGARA_PE_RUNNING;
    return count;
}
