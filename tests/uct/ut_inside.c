/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters of an interface, read from the transport's own structs.
 */
#include "ut_inside.h"

#include "uct_angara_iface.h"

void ut_inside(uct_iface_h tl_iface, ut_inside_t *inside)
{
    const uct_angara_iface_t *iface = (const uct_angara_iface_t *)tl_iface;

    inside->scans     = iface->stats.scans;
    inside->markers   = iface->stats.markers;
    inside->slow      = iface->slow;
    inside->hot       = iface->nhot;
    inside->open      = iface->nopen;
    inside->slot_size = (size_t)1 << iface->shape.slot_shift;
    inside->slots     = iface->shape.nslots;
}
