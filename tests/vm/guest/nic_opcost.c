/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a remote write costs a user of libangara on a NIC in loopback mode: an offload put and the
 * marker behind it, between two PEs of a process. See opcost.h.
 */
#include "opcost.h"

#include <angara/angara.h>
#include <angara/angara_fast.h>

#include <stdio.h>
#include <stdlib.h>

#define SIZE (1u << 20)

#define MUST_OK(_call)                                                                 \
    do {                                                                               \
        angara_status_t _status = (_call);                                             \
                                                                                       \
        if (_status != ANGARA_OK) {                                                    \
            fprintf(stderr, "nic_opcost: %s: %s\n", #_call, angara_strerror(_status)); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

static angara_pe_h           pe, target;
static angara_peer_h         peer;
static angara_mr_h           from, to;
static void                 *buffer;
static uint64_t              key, value;
static angara_marker_slot_t *slot;

static void nic_open(void)
{
    size_t           size = SIZE;
    angara_address_t address;
    angara_domain_h  dom;
    void            *memory;

    MUST_OK(angara_open("nic", &dom));
    MUST_OK(angara_pe_create(dom, NULL, &pe));
    MUST_OK(angara_pe_create(dom, NULL, &target));
    angara_pe_address(target, &address);
    MUST_OK(angara_peer_connect(pe, &address, &peer));
    MUST_OK(angara_mem_alloc(dom, &size, ANGARA_ACCESS_ALL, &buffer, &from));
    MUST_OK(angara_mem_alloc(dom, &size, ANGARA_ACCESS_ALL, &memory, &to));
    MUST_OK(angara_marker_slot_get(pe, &slot));
    key   = angara_mr_key(to);
    value = *slot;
}

static void nic_write(size_t size)
{
    MUST_OK(angara_offload_put(peer, from, buffer, key, 0, size));
    MUST_OK(angara_marker(peer, slot, ++value));
    while (__atomic_load_n(slot, __ATOMIC_ACQUIRE) != value) {
        angara_pe_progress(pe);
    }
    MUST_OK(angara_peer_status(peer));
}

int main(int argc, char **argv)
{
    return opcost(argc, argv, nic_open, nic_write);
}
