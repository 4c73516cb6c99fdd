/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on the own PE: copies and atomics of the CPU, performed within the call. A NIC can't
 * read from its own node unless a port is in loopback mode, and the CPU is faster anyway.
 *
 * Only what is sound is done here: a wrong key, a bound, a missing right, or memory that was
 * unmapped since it was registered is the NIC's to refuse (or to carry out on the old pages), so
 * that faults are told in one way. From then on the NIC gets all until a reset, or what follows
 * would overtake.
 */
#include "nic.h"

#include "engine/atomic.h"

/* ---- ring operations ------------------------------------------------------------------------- */

static int put(nic_pe_t *pe, const ang_desc_t *desc, const void *data)
{
    char *to = nic_mr_address(pe->dom, desc->rkey, desc->roffset, desc->length,
                              ANGARA_ACCESS_REMOTE_WRITE);

    if (to != NULL && data == NULL) {
        data = nic_mr_address(pe->dom, desc->lkey, desc->loffset, desc->length, 0);
    }
    if (to == NULL || data == NULL) {
        return 0;
    }
    ang_cpu_copy(to, data, desc->length);
    pe->counters.offload_puts++;
    pe->counters.offload_bytes += desc->length;
    return 1;
}

static int get(nic_pe_t *pe, const ang_desc_t *desc)
{
    char *from = nic_mr_address(pe->dom, desc->rkey, desc->roffset, desc->length,
                                ANGARA_ACCESS_REMOTE_READ);
    char *to   = nic_mr_address(pe->dom, desc->lkey, desc->loffset, desc->length,
                                ANGARA_ACCESS_LOCAL_WRITE);

    if (from == NULL || to == NULL) {
        return 0;
    }
    ang_cpu_copy(to, from, desc->length);
    pe->counters.offload_gets++;
    pe->counters.offload_bytes += desc->length;
    return 1;
}

static int atomic(nic_pe_t *pe, const ang_desc_t *desc)
{
    char    *word   = nic_mr_address(pe->dom, desc->rkey, desc->roffset, desc->width,
                                     ANGARA_ACCESS_REMOTE_ATOMIC);
    char    *result = NULL;
    uint64_t old    = 0;

    if (desc->lkey != 0) {
        result = nic_mr_address(pe->dom, desc->lkey, desc->loffset, desc->width,
                                ANGARA_ACCESS_LOCAL_WRITE);
    }
    if (word == NULL || (uintptr_t)word % desc->width != 0 || (desc->lkey != 0 && result == NULL) ||
        ang_cpu_atomic(word, desc, &old) != ANGARA_OK) {
        return 0;
    }
    if (result != NULL) {
        ang_cpu_copy(result, &old, desc->width); /* little endian, like the NIC */
    }
    pe->counters.atomics++;
    return 1;
}

int nic_self_perform(nic_peer_t *peer, const ang_desc_t *desc, const void *data)
{
    nic_pe_t *pe   = nic_peer_pe(peer);
    int       done = 0;

    if (peer->by_device) {
        return 0;
    }
    pthread_rwlock_rdlock(&pe->dom->lock);
    switch (desc->op) {
    case ANG_OP_PUT:
        done = put(pe, desc, NULL);
        break;
    case ANG_OP_PUT_INLINE:
        done = put(pe, desc, desc->length != 0 ? data : "");
        break;
    case ANG_OP_GET:
        done = get(pe, desc);
        break;
    case ANG_OP_ATOMIC:
        done = atomic(pe, desc);
        break;
    default:
        break;
    }
    pthread_rwlock_unlock(&pe->dom->lock);
    peer->by_device = !done;
    return done;
}

/* ---- the window ------------------------------------------------------------------------------ */

int nic_self_put(nic_peer_t *peer, uint64_t offset, const void *src, size_t length,
                 uint64_t flag_offset, const uint64_t *flag)
{
    nic_pe_t *pe = nic_peer_pe(peer);

    if (peer->by_device) {
        return 0;
    }
    if (!nic_window_there(pe, offset, length) ||
        (flag != NULL && !nic_window_there(pe, flag_offset, sizeof(*flag)))) {
        peer->by_device = 1;
        return 0;
    }
    ang_cpu_copy(pe->base.window + offset, src, length);
    if (flag != NULL) {
        __atomic_store_n((uint64_t *)(void *)(pe->base.window + flag_offset), *flag,
                         __ATOMIC_RELEASE);
    }
    return 1;
}
