/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on the own PE: copies and atomics of the CPU, of which the long ones wait in own.c. A
 * NIC can't read from its own node unless a port is in loopback mode, and the CPU is faster anyway.
 *
 * Only what is sound is done here: a wrong key, a bound, a missing right, or memory that was
 * unmapped since it was registered is the NIC's to refuse (or to carry out on the old pages), so
 * that faults are told in one way. From then on the NIC gets all until a reset, or what follows
 * would overtake.
 */
#include "nic.h"

#include "engine/atomic.h"

/* ---- ring operations ------------------------------------------------------------------------- */

/* Where both ends of all of it lie; 0 if anything is wrong. The domain's lock is held. */
static int resolve(nic_pe_t *pe, const ang_desc_t *desc, const void *data, char **dst,
                   const char **src)
{
    int   is_get = desc->op == ANG_OP_GET;
    char *remote = nic_mr_address(pe->dom, desc->rkey, desc->roffset, desc->length,
                                  is_get ? ANGARA_ACCESS_REMOTE_READ : ANGARA_ACCESS_REMOTE_WRITE);
    char *local  = data != NULL ? (char *)(uintptr_t)data :
                                  nic_mr_address(pe->dom, desc->lkey, desc->loffset, desc->length,
                                                is_get ? ANGARA_ACCESS_LOCAL_WRITE : 0);

    *dst = is_get ? local : remote;
    *src = is_get ? remote : local;
    return remote != NULL && local != NULL;
}

static int copy(nic_pe_t *pe, const ang_desc_t *desc, const void *data, uint64_t *done,
                uint64_t end)
{
    uint64_t    length = end - *done;
    const char *src;
    char       *dst;

    if (!resolve(pe, desc, data, &dst, &src)) {
        return 0;
    }
    ang_cpu_copy(dst + *done, src + *done, length);
    *done = end;
    pe->counters.offload_bytes += length;
    if (end == desc->length) {
        *(desc->op == ANG_OP_GET ? &pe->counters.offload_gets : &pe->counters.offload_puts) += 1;
    }
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

int nic_self_perform(nic_pe_t *pe, const ang_desc_t *desc, const void *data, uint64_t *done,
                     uint64_t end)
{
    int performed = 0;

    pthread_rwlock_rdlock(&pe->dom->lock);
    switch (desc->op) {
    case ANG_OP_PUT:
    case ANG_OP_GET:
        performed = copy(pe, desc, NULL, done, end);
        break;
    case ANG_OP_PUT_INLINE:
        performed = copy(pe, desc, desc->length != 0 ? data : "", done, end);
        break;
    case ANG_OP_ATOMIC:
        performed = atomic(pe, desc);
        break;
    default:
        break;
    }
    pthread_rwlock_unlock(&pe->dom->lock);
    return performed;
}

int nic_self_is_sound(nic_pe_t *pe, const ang_desc_t *desc)
{
    const char *src;
    char       *dst;
    int         sound;

    pthread_rwlock_rdlock(&pe->dom->lock);
    sound = resolve(pe, desc, NULL, &dst, &src);
    pthread_rwlock_unlock(&pe->dom->lock);
    return sound;
}

/*
 * Everything before it has been performed by the CPU, and the NIC only has to store the value:
 * reading back from the own node isn't possible on each NIC.
 */
uint8_t nic_self_marker_op(const nic_pe_t *pe, uint32_t pair)
{
    return pair != NIC_SELF_PAIR && nic_self_is_devices(pe) &&
                   (pe->dom->info.caps & ANGARA_INFO_LOOPBACK) ?
               ANG_OP_MARKER :
               ANG_OP_MARKER_SELF;
}

/* ---- the window ------------------------------------------------------------------------------ */

int nic_self_put(nic_pe_t *pe, uint64_t offset, const void *src, size_t length,
                 uint64_t flag_offset, const uint64_t *flag)
{
    if (nic_self_is_devices(pe)) {
        return 0;
    }
    if (!nic_window_there(pe, offset, length) ||
        (flag != NULL && !nic_window_there(pe, flag_offset, sizeof(*flag)))) {
        nic_self_set_devices(pe, 1);
        return 0;
    }
    ang_cpu_copy(pe->base.window + offset, src, length);
    if (flag != NULL) {
        __atomic_store_n((uint64_t *)(void *)(pe->base.window + flag_offset), *flag,
                         __ATOMIC_RELEASE);
    }
    return 1;
}
