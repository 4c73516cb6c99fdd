/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters of the transport: what UCX_ANGARA_STATS writes. Every counter lives next to the state
 * that its operation touches anyway; this header names them all once.
 */
#ifndef UCT_ANGARA_STATS_H
#define UCT_ANGARA_STATS_H

#include <stdint.h>

/** Counters in the order of the file. */
#define UCT_ANGARA_COUNTERS(_)                                  \
    _(eager_tx) /* messages of one slot sent */                 \
    _(sar_tx)   /* messages of several slots sent */            \
    _(eager_rx) /* messages of one slot delivered */            \
    _(sar_rx)   /* messages of several slots delivered */       \
    _(am_short)                                                 \
    _(am_bcopy)                                                 \
    _(am_zcopy)                                                 \
    _(put_short)                                                \
    _(put_bcopy)                                                \
    _(put_zcopy)                                                \
    _(get_short)                                                \
    _(get_bcopy)                                                \
    _(get_zcopy)                                                \
    _(atomics)                                                  \
    _(flushes)                                                  \
    _(fences)                                                   \
    _(markers)   /* completion markers posted */                \
    _(pending)   /* requests queued until a resource is free */ \
    _(no_credit) /* sends refused for lack of ring space */     \
    _(early)     /* messages kept until a ring was granted */   \
    _(scans)     /* scans of the ready array */                 \
    _(peers)     /* peers met */

typedef struct uct_angara_stats {
#define UCT_ANGARA_COUNTER_FIELD(_name) uint64_t _name;
    UCT_ANGARA_COUNTERS(UCT_ANGARA_COUNTER_FIELD)
#undef UCT_ANGARA_COUNTER_FIELD
} uct_angara_stats_t;

/**
 * Add the counters of a closing interface to those of the process and write the file.
 *
 * @param file   Template of the file name (%p is the pid, %h the host); empty writes nothing.
 * @param stats  Counters of the interface.
 */
void uct_angara_stats_report(const char *file, const uct_angara_stats_t *stats);

#endif
