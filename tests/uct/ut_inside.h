/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests need to know of the transport's inside: its counters, and the wire format for
 * those that play a hostile peer. Only ut_inside.c and test_hostile.c include the transport's
 * headers.
 */
#ifndef ANGARA_TESTS_UT_INSIDE_H
#define ANGARA_TESTS_UT_INSIDE_H

#include "ut.h"

#include <angara/angara.h>

typedef struct {
    uint64_t scans;   /* scans of the ready array */
    uint64_t markers; /* completion markers posted */
    uint64_t waiting; /* transfers of the batch that is not posted yet */
    uint64_t gets; /* gets posted through bounce buffers, but for get_short that has ended well */
    uint64_t bounces;   /* bounce buffers in use, now */
    uint64_t slow;      /* slow work that each turn of progress looks at, now */
    uint64_t hot;       /* rings polled directly, now */
    uint64_t open;      /* rings open, now */
    size_t   slot_size; /* bytes of a ring slot */
    size_t   slots;     /* of a ring */
} ut_inside_t;

/* Look into an interface of the transport under test. */
void ut_inside(uct_iface_h iface, ut_inside_t *inside);

/*
 * Take all marker slots of an interface, that of this endpoint's peer, which must be idle,
 * included: as if other peers had them. Give one back, which nothing has used yet.
 */
void ut_slots_take(uct_ep_h ep);
void ut_slots_give_one(uct_ep_h ep);

/* Let the transport think that the interface is of the soft fabric, where the CPU copies, or of a
 * NIC. */
void ut_pretend(uct_iface_h iface, int is_nic);

/* Address of its PE, for a peer that uses the library without the transport. */
void ut_pe_address(uct_iface_h iface, angara_address_t *address);

#endif
