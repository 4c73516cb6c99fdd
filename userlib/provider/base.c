/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What all providers do alike with the base objects: pairs, their list and their addresses. Touches
 * nothing else, and makes no system call.
 */
#include "provider.h"

#include <stdio.h>
#include <string.h>

/* ---- addresses ------------------------------------------------------------------------------- */

void ang_address_init(angara_pe_h pe, unsigned provider, uint32_t index, uint32_t generation)
{
    pe->address.magic      = ANGARA_ADDRESS_MAGIC;
    pe->address.version    = ANGARA_WIRE_VERSION;
    pe->address.provider   = (uint8_t)provider;
    pe->address.node       = pe->dom->attr.node;
    pe->address.index      = index;
    pe->address.generation = generation;
}

int ang_address_is_own(angara_pe_h pe, const angara_address_t *address)
{
    return memcmp(&pe->address, address, sizeof(*address)) == 0;
}

angara_pe_id_t ang_address_id(const angara_address_t *address)
{
    return (angara_pe_id_t){address->node, address->index, address->generation};
}

angara_status_t ang_address_check(const angara_address_t *address, unsigned provider,
                                  ang_log_level_t level)
{
    static int said;

    if (address->magic != ANGARA_ADDRESS_MAGIC || address->provider != provider ||
        address->generation == 0) {
        ang_log(level, "unreachable: not an address of this device's kind");
        return ANGARA_ERR_UNREACHABLE;
    }
    if (address->version != ANGARA_WIRE_VERSION) {
        ang_log_alike(
            __atomic_exchange_n(&said, 1, __ATOMIC_RELAXED) ? ANG_LOG_DEBUG : ANG_LOG_ERROR,
            "a peer's address is of version %u, this process (libangara %s) has version %u: "
            "use one version of the library in all ranks",
            address->version, angara_version(), ANGARA_WIRE_VERSION);
        return ANGARA_ERR_VERSION;
    }
    return ANGARA_OK;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

void ang_peer_init(angara_peer_h peer, angara_pe_h pe, const angara_address_t *address, int pid)
{
    peer->ops     = pe->ops;
    peer->pe      = pe;
    peer->address = *address;
    peer->user    = NULL;
    peer->refs    = 1;
    peer->next    = NULL;

    peer->fast.generation_p = &ang_awake; /* no map: nothing to compare, but it is read */
    peer->fast.queued       = &ang_unasked;
    snprintf(peer->name, sizeof(peer->name), "pid %d (PE %u of node %u)", pid, address->index,
             address->node);
}

const uint32_t ang_awake;
const uint64_t ang_unasked;

void ang_peer_cut(angara_peer_h peer)
{
    peer->fast.window = NULL;
    ang_peer_unmap(peer);
}

static void peer_in_child(ang_fork_t *node)
{
    angara_peer_h peer = ANG_FORK_OBJECT(struct angara_peer, node);

    ang_peer_cut(peer);
    peer->fast.armed        = &ang_awake;
    peer->fast.generation_p = &ang_awake; /* what it pointed to isn't mapped here */
}

void ang_peer_link(angara_peer_h peer)
{
    ang_fork_add(&peer->fork, peer_in_child);
    peer->next = peer->pe->peers;
    __atomic_store_n(&peer->pe->peers, peer,
                     __ATOMIC_RELEASE); /* another thread may go through it */
}

void ang_peer_unlink(angara_peer_h peer)
{
    angara_peer_h *link = &peer->pe->peers;

    while (*link != peer) {
        link = &(*link)->next;
    }
    *link = peer->next;
    ang_fork_remove(&peer->fork);
}

angara_peer_h ang_peer_find(angara_pe_h pe, const angara_pe_id_t *id)
{
    angara_peer_h peer = pe->peers;

    while (peer != NULL && (peer->refs == 0 || peer->address.generation != id->generation ||
                            peer->address.index != id->index || peer->address.node != id->node)) {
        peer = peer->next;
    }
    return peer;
}
