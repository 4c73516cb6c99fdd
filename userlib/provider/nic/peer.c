/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pairs: addresses, connecting, reset, the end. Entries of the pair table are given out here. See
 * "Pairs" in nic.h.
 */
#include "nic.h"

#include "src/hash.h"
#include "src/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- addresses ------------------------------------------------------------------------------- */

/* Locator of an address. */
enum { LOC_WINDOW, LOC_PID, LOC_UNUSED, LOC_UNUSED2, LOC_SUM };

/* Of all before it: tells bytes that are no address, before the NIC is asked about them. */
static uint64_t address_sum(const angara_address_t *address)
{
    return ang_hash(ANG_HASH_START, address, offsetof(angara_address_t, loc[LOC_SUM]));
}

void nic_address_seal(angara_address_t *address, size_t window_size)
{
    address->loc[LOC_WINDOW] = window_size;
    address->loc[LOC_PID]    = (uint64_t)getpid();
    address->loc[LOC_SUM]    = address_sum(address);
}

static angara_status_t reach(const angara_address_t *address, ang_log_level_t level)
{
    angara_status_t status = ang_address_check(address, NIC_PROVIDER_ID, level);

    if (status == ANGARA_OK && address->loc[LOC_SUM] != address_sum(address)) {
        ang_log(level, "unreachable: the address of a NIC's PE has been damaged");
        status = ANGARA_ERR_UNREACHABLE;
    }
    return status;
}

/*
 * Without loopback nothing can be read back from the own node, so neither gets nor markers to its
 * other PEs are possible: better another transport than a pair that can't tell when it is done.
 */
static angara_status_t reach_back(const nic_domain_t *dom, const angara_address_t *address,
                                  ang_log_level_t level)
{
    if (address->node != dom->info.node || (dom->info.caps & ANGARA_INFO_LOOPBACK)) {
        return ANGARA_OK;
    }
    ang_log(level,
            "unreachable: the peer is on the own node, and no port of the NIC is in loopback mode. "
            "Use the soft fabric or shared memory within a node");
    return ANGARA_ERR_UNREACHABLE;
}

angara_status_t nic_is_reachable(angara_domain_h dom, const angara_address_t *address)
{
    angara_status_t status = reach(address, ANG_LOG_DEBUG);

    return status == ANGARA_OK ? reach_back(nic_domain(dom), address, ANG_LOG_DEBUG) : status;
}

/* ---- the pair table -------------------------------------------------------------------------- */

static ang_desc_t pair_desc(uint32_t pair, const angara_address_t *address)
{
    return (ang_desc_t){.op      = ANGARA_OP_PAIR,
                        .pair    = pair,
                        .operand = (uint64_t)address->node << 32 | address->index,
                        .compare = address->generation};
}

angara_status_t nic_pair_set(nic_pe_t *pe, uint32_t pair, const angara_address_t *address)
{
    ang_desc_t      desc   = pair_desc(pair, address);
    angara_status_t status = nic_cmd_post_patient(pe, &desc);

    return status == ANGARA_OK ? nic_cmd_wait(pe) : status;
}

/* Not the one that was given back last: it gives stray bugs more time to show. */
static uint32_t free_pair(nic_pe_t *pe)
{
    for (uint32_t i = 0; i < ANGARA_PAIRS_MAX; ++i) {
        uint32_t pair = (pe->pair_hint + i) % ANGARA_PAIRS_MAX;

        if (pair != NIC_SELF_PAIR && pe->pairs[pair] == NULL) {
            pe->pair_hint = pair + 1;
            return pair;
        }
    }
    return ANGARA_PAIRS_MAX;
}

/* ---- connecting ------------------------------------------------------------------------------ */

static void peer_init(nic_peer_t *peer, nic_pe_t *pe, const angara_address_t *address)
{
    ang_peer_init(&peer->base, &pe->base, address, (int)address->loc[LOC_PID]);
    peer->is_self               = ang_address_is_own(&pe->base, address);
    peer->events_from           = pe->event_seen;
    peer->base.fast.window_size = address->loc[LOC_WINDOW];
    /* Of others the NIC looks itself whether they sleep. */
    peer->base.fast.armed = peer->is_self ? &pe->status->armed : &ang_awake;
}

/* Take the peer off the lists and free it; nothing of it is under way. */
static void forget(nic_pe_t *pe, nic_peer_t *peer)
{
    ang_slots_settle(&pe->base.slots, &peer->base);
    ang_peer_unlink(&peer->base);
    pe->pairs[peer->pair] = NULL;
    free(peer);
}

angara_status_t nic_peer_connect(angara_pe_h base, const angara_address_t *address,
                                 angara_peer_h *peer_p)
{
    nic_pe_t       *pe     = nic_pe(base);
    angara_status_t status = reach(address, ANG_LOG_ERROR);
    nic_peer_t     *peer;
    uint32_t        pair;

    if (status == ANGARA_OK && !ang_address_is_own(base, address)) {
        status = reach_back(pe->dom, address, ANG_LOG_ERROR);
    }
    if (status != ANGARA_OK) {
        return status;
    }
    pair = free_pair(pe);
    if (pair == ANGARA_PAIRS_MAX) {
        ang_error("a PE has at most %u peers: use several PEs", ANGARA_PAIRS_MAX - 1);
        return ANGARA_ERR_LIMIT;
    }
    peer = nic_calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    peer_init(peer, pe, address);
    peer->pair      = pair;
    pe->pairs[pair] = peer;
    if (peer->is_self) {
        nic_self_set_devices(pe, 0);
    }
    ang_peer_link(&peer->base);
    status = nic_pair_set(pe, pair, address);
    nic_events_look(pe); /* is there such a PE? An event says no */
    if (status == ANGARA_OK && peer->error != ANGARA_OK) {
        ang_info("%s %s", peer->base.name,
                 peer->error == ANGARA_ERR_PEER_DEAD ? "is no more" : "is on no node of the NIC's");
        status = peer->error == ANGARA_ERR_PAIR ? ANGARA_ERR_UNREACHABLE : peer->error;
    }
    if (status != ANGARA_OK) {
        forget(pe, peer);
        return status;
    }
    ang_info("connected to %s%s, window of %zu bytes", peer->base.name,
             peer->is_self ? " (itself)" : "", (size_t)peer->base.fast.window_size);
    *peer_p = &peer->base;
    return ANGARA_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Is anything of it under way, as far as one can know? */
static int is_quiet(const nic_pe_t *pe, const nic_peer_t *peer)
{
    return pe->dead || peer->error == ANGARA_ERR_PEER_DEAD;
}

void nic_peer_disconnect(angara_peer_h base)
{
    nic_peer_t *peer = nic_peer(base);
    nic_pe_t   *pe   = nic_peer_pe(peer);

    if (peer->is_self) {
        nic_own_finish(pe);
        nic_own_drop(pe, 0);
    }
    if (!is_quiet(pe, peer) && nic_pair_set(pe, peer->pair, &pe->base.address) != ANGARA_OK &&
        !pe->dead) {
        ang_warn("operations to %s don't end: they are given up; dmesg may have why", base->name);
        peer->error     = ANGARA_ERR_PEER_DEAD; /* its entry isn't used again */
        peer->down_told = 1;                    /* nobody knows it any more */
        return;
    }
    nic_events_look(pe); /* the last about it: none of them is the next one's */
    forget(pe, peer);
}

/* One wait for all: the ring is performed in order. */
void nic_peers_destroy(nic_pe_t *pe)
{
    nic_own_finish(pe);
    nic_own_drop(pe, 1);
    for (angara_peer_h peer = pe->base.peers; peer != NULL && !pe->dead; peer = peer->next) {
        ang_desc_t desc = pair_desc(nic_peer(peer)->pair, &pe->base.address);

        if (!is_quiet(pe, nic_peer(peer)) && nic_cmd_post_patient(pe, &desc) != ANGARA_OK) {
            break;
        }
    }
    if (!pe->dead && nic_cmd_wait(pe) != ANGARA_OK) {
        ang_warn("PE %u: operations don't end and are given up; dmesg may have why",
                 pe->base.address.index);
    }
    while (pe->base.peers != NULL) {
        forget(pe, nic_peer(pe->base.peers));
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

angara_status_t nic_peer_status(angara_peer_h base)
{
    nic_peer_t *peer = nic_peer(base);

    if (NIC_UNLIKELY(!nic_pe_is_running(nic_peer_pe(peer)))) {
        nic_pe_die(nic_peer_pe(peer));
    }
    return peer->error;
}

/* Setting the entry again waits for what was posted to it, and clears its error. */
angara_status_t nic_peer_reset(angara_peer_h base)
{
    nic_peer_t     *peer = nic_peer(base);
    nic_pe_t       *pe   = nic_peer_pe(peer);
    angara_status_t status;

    if (peer->error == ANGARA_ERR_PEER_DEAD) {
        return ANGARA_ERR_PEER_DEAD;
    }
    if (peer->is_self) {
        nic_own_drop(pe, 0);
    }
    status = nic_pair_set(pe, peer->pair, &peer->base.address);
    nic_events_look(pe); /* faults of before, and whether the peer lives */
    if (status == ANGARA_OK && peer->error == ANGARA_ERR_PEER_DEAD) {
        status = ANGARA_ERR_PEER_DEAD;
    }
    if (status == ANGARA_OK) {
        ang_slots_settle(&pe->base.slots, &peer->base);
        peer->error = ANGARA_OK;
        if (peer->is_self) {
            nic_self_set_devices(pe, 0);
        }
    }
    return status;
}
