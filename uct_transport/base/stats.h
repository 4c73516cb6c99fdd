/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters of the transport: what UCX_ANGARA_STATS writes and angara_top shows. Every counter lives
 * next to the state that its operation touches anyway; this header names them all once.
 */
#ifndef UCT_ANGARA_STATS_H
#define UCT_ANGARA_STATS_H

#include <angara/angara.h>
#include <angara/angara_watch.h>
#include <stdint.h>

/** Counters in the order of the file, with what they count. */
#define UCT_ANGARA_COUNTERS(_)                               \
    _(eager_tx, "messages of one slot sent")                 \
    _(sar_tx, "messages of several slots sent")              \
    _(tx_bytes, "bytes of payload sent in messages")         \
    _(eager_rx, "messages of one slot delivered")            \
    _(sar_rx, "messages of several slots delivered")         \
    _(rx_bytes, "bytes of payload delivered in messages")    \
    _(am_short, "messages from registers and short buffers") \
    _(am_bcopy, "messages that were packed")                 \
    _(am_zcopy, "messages from registered memory")           \
    _(put_short, "puts of copied data")                      \
    _(put_bcopy, "puts of packed data")                      \
    _(put_zcopy, "puts from registered memory")              \
    _(put_bytes, "bytes put")                                \
    _(get_short, "gets that were waited for in the call")    \
    _(get_bcopy, "gets through a buffer of the transport")   \
    _(get_zcopy, "gets into registered memory")              \
    _(get_bytes, "bytes got")                                \
    _(atomics, "atomic operations")                          \
    _(flushes, "flushes asked for")                          \
    _(fences, "fences asked for")                            \
    _(markers, "completion markers posted")                  \
    _(pending, "requests queued until a resource is free")   \
    _(no_credit, "sends refused for lack of ring space")     \
    _(early, "messages kept until a ring was granted")       \
    _(scans, "scans of the ready array")                     \
    _(peers, "connections to other PEs, of the interface with most")

typedef struct uct_angara_stats {
#define UCT_ANGARA_COUNTER_FIELD(_name, _help) uint64_t _name;
    UCT_ANGARA_COUNTERS(UCT_ANGARA_COUNTER_FIELD)
#undef UCT_ANGARA_COUNTER_FIELD
} uct_angara_stats_t;

#define UCT_ANGARA_NUM_COUNTERS (sizeof(uct_angara_stats_t) / sizeof(uint64_t))

/** Their names. */
extern const char *const uct_angara_stats_names[UCT_ANGARA_NUM_COUNTERS];

/** Add the counters of @a stats to those of @a sum. */
void uct_angara_stats_add(uct_angara_stats_t *sum, const uct_angara_stats_t *stats);

/**
 * Say that the file can't be written when an interface opens: at the end of the job it is too late,
 * and other ranks may have gone that have said so.
 *
 * @param file   Template of the file name, as below.
 */
void uct_angara_stats_check(const char *file);

/**
 * Add the counters of a closing interface to those of the process and write the file.
 *
 * @param file   Template of the file name (%p is the pid, %h the host); empty writes nothing.
 * @param stats  Counters of the interface.
 * @param pe     Those of its PE; in the file their names begin with "pe_".
 */
void uct_angara_stats_report(const char *file, const uct_angara_stats_t *stats,
                             const angara_counters_t *pe);

#endif
