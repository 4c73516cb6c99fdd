/* SPDX-License-Identifier: BSD-3-Clause */
/* What a peer that failed may still write to, see uct_angara_aside.h. */
#include "uct_angara_aside.h"

#include "uct_angara_iface.h"

/** A ring or a credit line that must not be used before its peer is gone. */
typedef struct uct_angara_aside {
    ucs_list_link_t     list;
    angara_peer_h       ap; /**< a reference of our own, so that we hear of its end */
    uct_angara_idmap_t *ids;
    unsigned            id;
} uct_angara_aside_t;

void uct_angara_aside_give_up(uct_angara_peer_t *peer, uct_angara_idmap_t *ids, unsigned id)
{
    uct_angara_iface_t *iface = peer->iface;
    uct_angara_aside_t *aside;
    angara_status_t     status;

    if (peer->is_down) {
        uct_angara_idmap_put(ids, id);
        return;
    }

    aside = ucs_malloc(sizeof(*aside), "angara_aside");
    if (aside == NULL) {
        return; /* never free, which is safe */
    }

    status = angara_peer_connect(iface->pe, &peer->address, &aside->ap);
    if (status != ANGARA_OK) {
        if (status == ANGARA_ERR_PEER_DEAD) {
            uct_angara_idmap_put(ids, id);
        }
        ucs_free(aside);
        return;
    }

    aside->ids = ids;
    aside->id  = id;
    ucs_list_add_tail(&iface->aside, &aside->list);
    ucs_debug("angara: %s %u is set aside until %s is gone",
              (ids == &iface->ring_ids) ? "receive ring" : "credit line", id,
              angara_peer_name(aside->ap));
}

void uct_angara_aside_reclaim(uct_angara_iface_t *iface, int all)
{
    uct_angara_aside_t *aside, *tmp;

    ucs_list_for_each_safe(aside, tmp, &iface->aside, list) {
        if (all || (angara_peer_status(aside->ap) == ANGARA_ERR_PEER_DEAD)) {
            uct_angara_idmap_put(aside->ids, aside->id);
            ucs_list_del(&aside->list);
            angara_peer_disconnect(aside->ap);
            ucs_free(aside);
        }
    }
}
