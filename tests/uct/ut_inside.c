/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters of an interface, read from the transport's own structs; and what would take many peers
 * to bring about.
 */
#include "ut_inside.h"

#include "verbs/ep.h"

void ut_inside(uct_iface_h tl_iface, ut_inside_t *inside)
{
    uct_angara_port_t    *port = &((uct_angara_iface_t *)tl_iface)->net.port;
    uct_angara_channel_t *ch;

    inside->scans   = port->stats.scans;
    inside->markers = port->stats.markers;
    inside->gets    = port->stats.get_bcopy;
    uct_angara_channels_for_each(ch, port)
    {
        inside->markers += ch->stats.markers;
        inside->gets += ch->stats.get_bcopy + angara_fast_done(ch->ap).gets - ch->others.gets;
    }
    inside->waiting   = port->batch.count;
    inside->bounces   = (port->bounce.free != NULL) ? port->bounce.count - port->bounce.nfree : 0;
    inside->slow      = port->slow;
    inside->hot       = port->poll.nhot;
    inside->open      = port->poll.nopen;
    inside->slot_size = (size_t)1 << port->shape.slot_shift;
    inside->slots     = port->shape.nslots;
}

#define UT_SLOTS_MAX 65536

static angara_marker_slot_t *ut_slots[UT_SLOTS_MAX];
static unsigned              ut_nslots;

void ut_slots_take(uct_ep_h ep)
{
    uct_angara_peer_t    *peer    = uct_angara_ep_peer(ep);
    angara_pe_h           pe      = peer->net->port.pe;
    uct_angara_markers_t *markers = &peer->ch.markers;

    CHECK(uct_angara_markers_idle(markers));
    CHECK(ucs_queue_is_empty(&markers->ops));
    if (markers->slot != NULL) {
        angara_marker_slot_put(pe, markers->slot); /* as for another channel */
        markers->slot = NULL;
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
            angara_marker_slot_put(uct_angara_ep_peer(ep)->net->port.pe, ut_slots[i]);
            ut_slots[i] = ut_slots[--ut_nslots];
            return;
        }
    }
    rank_fail(__FILE__, __LINE__, "all %u marker slots have been used", ut_nslots);
}

void ut_pe_address(uct_iface_h tl_iface, angara_address_t *address)
{
    angara_pe_address(ucs_derived_of(tl_iface, uct_angara_iface_t)->net.port.pe, address);
}

void ut_pretend(uct_iface_h tl_iface, int is_nic)
{
    uct_angara_md_t *md = (uct_angara_md_t *)((uct_angara_iface_t *)tl_iface)->super.md;

    md->attr.caps = (md->attr.caps & ~ANGARA_CAP_REG_CHEAP) | (is_nic ? 0 : ANGARA_CAP_REG_CHEAP);
}
