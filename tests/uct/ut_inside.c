/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters of an interface, read from the transport's own structs; and what would take many peers
 * to bring about.
 */
#include "ut_inside.h"

#include "uct_angara_ep.h"

void ut_inside(uct_iface_h tl_iface, ut_inside_t *inside)
{
    const uct_angara_iface_t *iface = (const uct_angara_iface_t *)tl_iface;

    inside->scans     = iface->stats.scans;
    inside->markers   = iface->stats.markers;
    inside->waiting   = iface->batch.count;
    inside->slow      = iface->slow;
    inside->hot       = iface->nhot;
    inside->open      = iface->nopen;
    inside->slot_size = (size_t)1 << iface->shape.slot_shift;
    inside->slots     = iface->shape.nslots;
}

#define UT_SLOTS_MAX 65536

static angara_marker_slot_t *ut_slots[UT_SLOTS_MAX];
static unsigned              ut_nslots;

void ut_slots_take(uct_ep_h ep)
{
    uct_angara_peer_t *peer = uct_angara_ep_peer(ep);
    angara_pe_h        pe   = peer->iface->pe;

    CHECK(uct_angara_channel_idle(&peer->channel));
    CHECK(ucs_queue_is_empty(&peer->channel.ops));
    if (peer->channel.slot != NULL) {
        angara_marker_slot_put(pe, peer->channel.slot); /* as uct_angara_peer_release_slot() */
        peer->channel.slot = NULL;
    }
    while (angara_marker_slot_get(pe, &ut_slots[ut_nslots]) == ANGARA_OK) {
        CHECK(++ut_nslots < UT_SLOTS_MAX);
    }
    CHECK(ut_nslots > 1);
}

void ut_slots_give_one(uct_ep_h ep)
{
    unsigned i;

    for (i = 0; i < ut_nslots; ++i) {
        if (*ut_slots[i] == 0) {
            angara_marker_slot_put(uct_angara_ep_peer(ep)->iface->pe, ut_slots[i]);
            ut_slots[i] = ut_slots[--ut_nslots];
            return;
        }
    }
    rank_fail(__FILE__, __LINE__, "all %u marker slots have been used", ut_nslots);
}

void ut_pe_address(uct_iface_h tl_iface, angara_address_t *address)
{
    angara_pe_address(ucs_derived_of(tl_iface, uct_angara_iface_t)->pe, address);
}
