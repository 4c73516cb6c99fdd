/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interface: one PE with its put window, its receive rings, its peers and its progress.
 */
#ifndef UCT_ANGARA_IFACE_H
#define UCT_ANGARA_IFACE_H

#include "uct_angara_batch.h"
#include "uct_angara_bounce.h"
#include "uct_angara_control.h"
#include "uct_angara_md.h"
#include "uct_angara_peer.h"
#include "uct_angara_stats.h"

#define UCT_ANGARA_HOT_RINGS    4    /**< rings polled directly */
#define UCT_ANGARA_SILENT_POLLS 32   /**< empty polls before the ready array is scanned */
#define UCT_ANGARA_BUSY_RECORDS 1024 /**< records before a slow turn if all rings are hot */
#define UCT_ANGARA_DRAIN_MAX    16   /**< records of one ring per poll */
#define UCT_ANGARA_CREDIT_LINE  64   /**< bytes of window per credit line */
#define UCT_ANGARA_EARLY_SIZE   ((size_t)1 << 20) /**< memory of early messages */

/*
 * Default sizes of rings. A message through a ring that was used up long ago is up to twice as fast
 * as through one whose lines are still in the sender's and the receiver's first caches, so the
 * rings that are polled directly get more; the others fit into 64 KiB per peer.
 */
#define UCT_ANGARA_RING     56320ul
#define UCT_ANGARA_BIG_RING 524288ul

/** What to do about a dead peer that nobody handles. */
typedef enum {
    UCT_ANGARA_DEAD_PEER_ABORT,
    UCT_ANGARA_DEAD_PEER_ERROR,
    UCT_ANGARA_DEAD_PEER_IGNORE,
    UCT_ANGARA_DEAD_PEER_LAST
} uct_angara_dead_peer_t;

extern const char *uct_angara_dead_peer_names[];

typedef struct uct_angara_iface_config {
    uct_iface_config_t super;
    size_t             slot_size;
    unsigned long      ring_slots;
    size_t             seg_size;
    unsigned           max_peers;
    size_t             put_max;
    size_t             bounce_size;
    unsigned           bounce_count;
    unsigned           max_iov;
    int                self_marker;
    int                dead_peer;
    double             bandwidth;
    size_t             early_size;
    char              *stats;
} uct_angara_iface_config_t;

/** Device address: can we talk at all? */
typedef struct uct_angara_device_addr {
    uint16_t magic;    /**< ANGARA_ADDRESS_MAGIC */
    uint8_t  wire;     /**< ANGARA_WIRE_VERSION */
    uint8_t  protocol; /**< UCT_ANGARA_PROTOCOL */
    uint32_t node;
} UCS_S_PACKED uct_angara_device_addr_t;

/** Set of small numbers, the lowest free one first. */
typedef struct uct_angara_idmap {
    uint64_t *used;
    unsigned  size;
    unsigned  high; /**< one above the highest ever taken */
} uct_angara_idmap_t;

typedef struct uct_angara_iface {
    uct_base_iface_t super;

    /* the poll loop, see uct_angara_iface_progress() */
    uct_angara_rx_t *hot[UCT_ANGARA_HOT_RINGS];
    unsigned         nhot;     /**< used entries of hot */
    unsigned         silent;   /**< empty polls in a row */
    unsigned         busy;     /**< records since the last slow turn */
    unsigned         slow;     /**< outstanding slow work: a slow turn at each poll */
    unsigned         armed;    /**< the event descriptor is armed */
    unsigned         busy_max; /**< so many records, and a slow turn is due */

    angara_pe_h        pe;
    angara_address_t   address;
    uint64_t           ticks; /**< slow turns */
    unsigned           nopen; /**< rings open */
    char              *window;
    volatile uint16_t *ready;    /**< ready array: written by peers only */
    uint16_t          *consumed; /**< the same counts as consumed here */
    uct_angara_rx_t  **rings;    /**< by ring index */
    uct_angara_idmap_t ring_ids;
    uct_angara_idmap_t credit_ids;
    uint8_t            epoch;         /**< of the last connection asked for */
    uint8_t            has_strangers; /**< a record from a stranger was reported */
    uint8_t            has_direct;    /**< puts are plain stores */
    uint8_t            is_inline;     /**< ring operations may complete in the call */
    uint8_t            is_batching;   /**< short zero-copy transfers wait for a batch */

    uct_angara_shape_t shape;     /**< how we write; nslots: of our small rings */
    size_t             run_bytes; /**< payload of the longest run */
    size_t             credits_off;
    size_t             ready_off;
    size_t             rings_off;
    size_t             ring_bytes; /**< slots of a ring */
    unsigned           nbig;       /**< so many rings, the first, are big */
    char              *scratch;    /**< message under construction */

    ucs_list_link_t         peers;
    ucs_list_link_t         active;  /**< peers with slow work */
    uct_angara_peer_t      *tomb;    /**< for when there is no memory for one */
    ucs_arbiter_t           arbiter; /**< pending requests */
    ucs_mpool_t             ops;
    uct_angara_batch_t      batch;
    uct_angara_bounce_t     bounce;
    uct_angara_channel_t    self_channel; /**< UCX_ANGARA_SELF_MARKER */
    unsigned                self_waits;   /**< ops in self_channel */
    uct_angara_early_pool_t early;        /**< memory of early messages */
    uct_angara_stats_t      stats;

    struct {
        unsigned               max_peers;
        size_t                 put_max;
        size_t                 max_iov;
        int                    self_marker;
        uct_angara_dead_peer_t dead_peer;
        double                 bandwidth;
        char                  *stats;
    } config;

    char  *aligned;    /**< copy of what must be aligned; NULL: rings will do */
    size_t align_mask; /**< alignment of active messages, less one */
    size_t align_offset;
} uct_angara_iface_t;

UCS_CLASS_DECLARE_NEW_FUNC(uct_angara_iface_t, uct_iface_t, uct_md_h, uct_worker_h,
                           const uct_iface_params_t *, const uct_iface_config_t *);

extern ucs_config_field_t uct_angara_iface_config_table[];

static inline uct_angara_md_t *uct_angara_iface_md(uct_angara_iface_t *iface)
{
    return ucs_derived_of(iface->super.md, uct_angara_md_t);
}

/** Note and end slow work. */
static UCS_F_ALWAYS_INLINE void uct_angara_iface_slow_inc(uct_angara_iface_t *iface)
{
    ++iface->slow;
}

static UCS_F_ALWAYS_INLINE void uct_angara_iface_slow_dec(uct_angara_iface_t *iface)
{
    ucs_assert(iface->slow > 0);
    --iface->slow;
}

/** Offset in the window of credit line @a index, ready word @a index and ring @a index. */
static inline size_t uct_angara_iface_credit_off(const uct_angara_iface_t *iface, unsigned index)
{
    return iface->credits_off + index * (size_t)UCT_ANGARA_CREDIT_LINE;
}

static inline size_t uct_angara_iface_ready_off(const uct_angara_iface_t *iface, unsigned index)
{
    return iface->ready_off + index * sizeof(uint16_t);
}

/** Bytes of the slots of ring @a index. */
static inline size_t uct_angara_iface_ring_bytes(const uct_angara_iface_t *iface, unsigned index)
{
    return (index < iface->nbig) ? UCT_ANGARA_BIG_RING : iface->ring_bytes;
}

/** Address space of a ring: also the flags of segments, 8 bytes per slot of at least 64, fit. */
static inline size_t uct_angara_ring_stride(size_t ring_bytes)
{
    return ucs_align_up_pow2(ring_bytes + ring_bytes / 8, ucs_get_page_size());
}

static inline size_t uct_angara_iface_ring_off(const uct_angara_iface_t *iface, unsigned index)
{
    unsigned nbig = ucs_min(index, iface->nbig);

    return iface->rings_off + nbig * uct_angara_ring_stride(UCT_ANGARA_BIG_RING) +
           (index - nbig) * uct_angara_ring_stride(iface->ring_bytes);
}

/** Does a message that begins at @a address lie as the user wants it? */
static inline int uct_angara_iface_is_aligned(const uct_angara_iface_t *iface, uintptr_t address)
{
    return ((address + iface->align_offset) & iface->align_mask) == 0;
}

/** Take the lowest free number. @return UCS_ERR_NO_RESOURCE if all are taken. */
ucs_status_t uct_angara_idmap_get(uct_angara_idmap_t *map, unsigned *id_p);
void         uct_angara_idmap_put(uct_angara_idmap_t *map, unsigned id);

/** Start and stop to poll a ring. */
void uct_angara_iface_add_ring(uct_angara_iface_t *iface, uct_angara_rx_t *rx);
void uct_angara_iface_remove_ring(uct_angara_iface_t *iface, uct_angara_rx_t *rx);

/** An endpoint failed, and its error handler took no care of it: do what UCX_ANGARA_DEAD_PEER
 * says. */
void uct_angara_iface_unhandled(uct_angara_iface_t *iface, const char *reason);

/** Progress that other calls may need while they wait. */
static inline void uct_angara_iface_push(uct_angara_iface_t *iface)
{
    angara_pe_progress(iface->pe);
}

unsigned     uct_angara_iface_progress(uct_iface_h tl_iface);
ucs_status_t uct_angara_iface_event_arm(uct_iface_h tl_iface, unsigned events);
ucs_status_t uct_angara_iface_event_fd_get(uct_iface_h tl_iface, int *fd_p);
ucs_status_t uct_angara_iface_query(uct_iface_h tl_iface, uct_iface_attr_t *attr);
ucs_status_t uct_angara_iface_estimate_perf(uct_iface_h tl_iface, uct_perf_attr_t *attr);
int uct_angara_iface_is_reachable(const uct_iface_h tl_iface, const uct_device_addr_t *dev_addr,
                                  const uct_iface_addr_t *iface_addr);

#endif
