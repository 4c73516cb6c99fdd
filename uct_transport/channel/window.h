/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layout of a PE's put window: credit lines of what we send, the ready array, and the rings that
 * others write to. Also which of them are taken. Touches no memory of the window.
 */
#ifndef UCT_ANGARA_WINDOW_H
#define UCT_ANGARA_WINDOW_H

#include "base/compat.h"

#define UCT_ANGARA_CREDIT_LINE 64u /**< bytes of window per credit line */

/*
 * Default sizes of rings. A message through a ring that was used up long ago is up to twice as fast
 * as through one whose lines are still in the sender's and the receiver's first caches, so the
 * rings that are polled directly get more; the others fit into 64 KiB per peer.
 */
#define UCT_ANGARA_RING     56320ul
#define UCT_ANGARA_BIG_RING 524288ul

/** Set of small numbers, the lowest free one first. */
typedef struct uct_angara_idmap {
    uint64_t *used;
    unsigned  size;
    unsigned  high; /**< one above the highest ever taken */
} uct_angara_idmap_t;

typedef struct uct_angara_window {
    char              *base; /**< where it is mapped, once there is a PE */
    size_t             credits_off;
    size_t             ready_off;
    size_t             rings_off;
    size_t             ring_bytes; /**< slots of a ring */
    unsigned           nbig;       /**< so many rings, the first, are big */
    unsigned           max_peers;  /**< number of rings, and of credit lines */
    uct_angara_idmap_t ring_ids;
    uct_angara_idmap_t credit_ids;
} uct_angara_window_t;

/**
 * Lay the window out.
 *
 * @param ring_bytes  Slots of a ring.
 * @param nbig        Number of rings of UCT_ANGARA_BIG_RING bytes, if there is room for them.
 * @param max_peers   Number of rings. Fewer if there is no room for so many.
 * @param max         Largest window.
 * @return UCS_OK, or UCS_ERR_EXCEEDS_LIMIT if there is no room for a single ring.
 */
ucs_status_t uct_angara_window_layout(uct_angara_window_t *window, size_t ring_bytes, unsigned nbig,
                                      unsigned max_peers, size_t max);

/** Make the sets of free numbers. @return UCS_OK or UCS_ERR_NO_MEMORY. */
ucs_status_t uct_angara_window_init(uct_angara_window_t *window);
void         uct_angara_window_cleanup(uct_angara_window_t *window);

/** Take the lowest free number. @return UCS_ERR_NO_RESOURCE if all are taken. */
ucs_status_t uct_angara_idmap_get(uct_angara_idmap_t *map, unsigned *id_p);
void         uct_angara_idmap_put(uct_angara_idmap_t *map, unsigned id);

/** Ready words that there is room for: the scan looks at several at a time. */
static inline unsigned uct_angara_window_words(const uct_angara_window_t *window)
{
    return ucs_align_up_pow2(window->max_peers, 32);
}

/** Offset in the window of credit line @a index, ready word @a index and ring @a index. */
static inline size_t uct_angara_window_credit_off(const uct_angara_window_t *window, unsigned index)
{
    return window->credits_off + index * (size_t)UCT_ANGARA_CREDIT_LINE;
}

static inline size_t uct_angara_window_ready_off(const uct_angara_window_t *window, unsigned index)
{
    return window->ready_off + index * sizeof(uint16_t);
}

/** Bytes of the slots of ring @a index. */
static inline size_t uct_angara_window_ring_bytes(const uct_angara_window_t *window, unsigned index)
{
    return (index < window->nbig) ? UCT_ANGARA_BIG_RING : window->ring_bytes;
}

/** Address space of a ring: also the flags of segments, 8 bytes per slot of at least 64, fit. */
static inline size_t uct_angara_ring_stride(size_t ring_bytes)
{
    return ucs_align_up_pow2(ring_bytes + ring_bytes / 8, ucs_get_page_size());
}

static inline size_t uct_angara_window_ring_off(const uct_angara_window_t *window, unsigned index)
{
    unsigned nbig = ucs_min(index, window->nbig);

    return window->rings_off + nbig * uct_angara_ring_stride(UCT_ANGARA_BIG_RING) +
           (index - nbig) * uct_angara_ring_stride(window->ring_bytes);
}

/** Bytes of the whole window. */
static inline size_t uct_angara_window_size(const uct_angara_window_t *window)
{
    return uct_angara_window_ring_off(window, window->max_peers);
}

#endif
