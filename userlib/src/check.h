/* SPDX-License-Identifier: BSD-3-Clause */
/* What the public calls check alike before they do anything. Reads the objects only. */
#ifndef ANG_CHECK_H
#define ANG_CHECK_H

#include "provider/provider.h"

static inline angara_status_t check_domain(angara_domain_h dom)
{
    if (dom == NULL) {
        return ANGARA_ERR_INVALID;
    }
    return dom->epoch == ang_fork_epoch ? ANGARA_OK : ANGARA_ERR_FORKED;
}

static inline angara_status_t check_pe(angara_pe_h pe)
{
    return pe == NULL ? ANGARA_ERR_INVALID : check_domain(pe->dom);
}

static inline angara_status_t check_peer(angara_peer_h peer)
{
    return peer == NULL ? ANGARA_ERR_INVALID : check_pe(peer->pe);
}

#define CHECK(_expr)                                          \
    do {                                                      \
        angara_status_t check_status = (_expr);               \
        if (__builtin_expect(check_status != ANGARA_OK, 0)) { \
            return check_status;                              \
        }                                                     \
    } while (0)

#define CHECK_ARG(_cond) CHECK((_cond) ? ANGARA_OK : ANGARA_ERR_INVALID)

#endif
