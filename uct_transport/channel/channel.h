/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Channel: all that goes to one remote PE and comes from it. The ring that is written there, the
 * ring that it writes here, and the markers that tell what has arrived.
 *
 * The floor of channels knows no peer, no connection and no interface. What it can't decide by
 * itself it asks of its owner (uct_angara_port_ops_t); the owner is who allocates a channel, opens
 * and closes its rings, and sets the fields that are marked so.
 */
#ifndef UCT_ANGARA_CHANNEL_H
#define UCT_ANGARA_CHANNEL_H

#include "base/stats.h"
#include "channel/early.h"
#include "channel/marker.h"
#include "channel/ring.h"

struct uct_angara_port;

/**
 * Why operations can't be started now (uct_angara_channel_t.blocked): one word for the fast paths,
 * made by uct_angara_channel_update() and by nothing else.
 */
enum {
    UCT_ANGARA_BLOCK_RING    = UCS_BIT(0), /**< no ring, or early messages first: messages only */
    UCT_ANGARA_BLOCK_FENCE   = UCS_BIT(1), /**< a fence waits for its marker */
    UCT_ANGARA_BLOCK_PENDING = UCS_BIT(2), /**< older requests are queued */
    UCT_ANGARA_BLOCK_FAILED  = UCS_BIT(3)  /**< status tells why */
};

/* Allocated on a cache line; the parts that are hot begin on one. */
typedef struct uct_angara_channel {
    uct_angara_tx_t      tx;
    angara_peer_h        ap;
    unsigned             blocked;     /**< UCT_ANGARA_BLOCK_* */
    uint8_t              rma_dirty;   /**< ring operations since the last marker */
    uint8_t              asked;       /**< puts and gets of private memory since the last flush, */
    uint8_t              asked_last;  /**<   and before that; UINT8_MAX: or more */
    uint8_t              is_unfenced; /**< plain stores to the peer's memory since the last fence */
    uint8_t              is_stirred;  /**< on port->stirred, or a channel that leads nowhere */
    uct_angara_markers_t markers;
    uint64_t             fence_value; /**< marker that ends a fence */
    uint64_t             rma_value;   /**< marker that covers the last ring operation */
    struct uct_angara_port *port;
    ucs_list_link_t         list;     /**< port->channels */
    ucs_list_link_t         active;   /**< port->active while there is slow work */
    ucs_list_link_t         stirred;  /**< port->stirred unless a flush has nothing to do */
    ucs_status_t            status;   /**< owner's: why operations fail, or UCS_OK */
    unsigned                self_ops; /**< operations that wait for a self-marker */

    uct_angara_rx_t rx        UCS_V_ALIGNED(UCS_SYS_CACHE_LINE_SIZE);
    uct_angara_early_t        early;           /**< messages that wait for a ring */
    ucs_queue_head_t          early_ops;       /**< flushes that wait until these have gone */
    uint8_t                   is_open;         /**< owner's: there is a ring to write to */
    uint8_t                   is_held;         /**< owner's: requests are queued that come first */
    uint8_t                   is_mute;         /**< owner's: nothing may be written any more */
    uint8_t                   is_active;       /**< on port->active */
    uint8_t                   is_fenced;       /**< waits for fence_value */
    uint8_t                   is_credit_dirty; /**< no marker covers the last credit */
    uint8_t                   is_sending_early;
    uct_angara_stats_t        stats;  /**< without what uct_angara_channel_count() adds */
    struct angara_fast_counts others; /**< the library's, when the channel was made */
    angara_watch_h            watch;
} uct_angara_channel_t;

/** Make a channel of the port; zeroed memory. @a ap NULL: one that leads nowhere. */
void uct_angara_channel_init(uct_angara_channel_t *ch, struct uct_angara_port *port,
                             angara_peer_h ap);

/** Give back what the channel has of the port. Its operations have ended. */
void uct_angara_channel_cleanup(uct_angara_channel_t *ch);

/** Recompute blocked and tx.limit. */
void uct_angara_channel_update(uct_angara_channel_t *ch);

/** Have the channel served at each turn of progress until uct_angara_channel_rest(). */
void uct_angara_channel_activate(uct_angara_channel_t *ch);
void uct_angara_channel_rest(uct_angara_channel_t *ch);

/** All counts of the channel until now. */
void uct_angara_channel_count(const uct_angara_channel_t *ch, uct_angara_stats_t *stats);

/** The ring ends: keep what was counted there. */
void uct_angara_channel_fold_counts(uct_angara_channel_t *ch);

void uct_angara_channel_stir_first(uct_angara_channel_t *ch);

/**
 * A flush may have something to do for this channel: to be called by all that ends its quiet. The
 * flush of the interface looks at no others.
 */
static UCS_F_ALWAYS_INLINE void uct_angara_channel_stir(uct_angara_channel_t *ch)
{
    if (!ch->is_stirred) {
        uct_angara_channel_stir_first(ch);
    }
}

/** A flush has found the channel quiet. */
void uct_angara_channel_calm(uct_angara_channel_t *ch);

/** Note a plain store to the peer's memory. */
static UCS_F_ALWAYS_INLINE void uct_angara_channel_stored(uct_angara_channel_t *ch)
{
    ch->is_unfenced = 1;
    uct_angara_channel_stir(ch);
}

/** Note a ring operation, which the next marker covers. */
static UCS_F_ALWAYS_INLINE void uct_angara_channel_posted(uct_angara_channel_t *ch)
{
    ch->rma_dirty = 1;
    uct_angara_channel_stir(ch);
}

/* ---- what the owner is asked (channel/channel.c) ------------------------------------------- */

/**
 * A call of the library has not succeeded.
 * @return UCS_ERR_NO_RESOURCE, or what the operation ends with.
 */
ucs_status_t uct_angara_channel_error(uct_angara_channel_t *ch, angara_status_t status,
                                      const char *what);

/** The other end has written what it can't mean. */
void uct_angara_channel_nonsense(uct_angara_channel_t *ch, const char *fmt, ...) UCS_F_PRINTF(2, 3);

/** Slow path of a message that found no room. @return UCS_OK if that is all. */
ucs_status_t uct_angara_channel_admit(uct_angara_channel_t *ch);

/* ---- markers (channel/marker.c) ------------------------------------------------------------ */

/** @return non-zero if something was written or asked since the last marker. */
static UCS_F_ALWAYS_INLINE int uct_angara_channel_is_dirty(const uct_angara_channel_t *ch)
{
    return ch->rma_dirty || ch->is_credit_dirty || (ch->tx.head != ch->tx.marked) ||
           ch->tx.ready_owed;
}

/** @return non-zero if a put, get or atomic was issued that no marker has confirmed. */
int uct_angara_channel_has_rma(const uct_angara_channel_t *ch);

/** @return non-zero if something was asked that no marker has confirmed, or a message was sent that
 * no flush has confirmed and the other end hasn't consumed. What the owner sends for itself, as
 * credits, doesn't count. */
int uct_angara_channel_is_unconfirmed(const uct_angara_channel_t *ch);

/** @return non-zero if a user waits for something. */
int uct_angara_channel_has_user_ops(const uct_angara_channel_t *ch);

/**
 * Post one marker that covers all that was issued.
 * @return UCS_OK, UCS_ERR_NO_RESOURCE, or why the channel fails.
 */
ucs_status_t uct_angara_channel_post_marker(uct_angara_channel_t *ch);

/**
 * Have a marker slot, for who waits in the call: others make no progress meanwhile.
 * @return UCS_OK, or UCS_ERR_NO_RESOURCE while other channels need all that there are.
 */
ucs_status_t uct_angara_channel_take_slot(uct_angara_channel_t *ch);

/**
 * Where all that was sent has been performed by now, the library says so: no marker is needed then.
 *
 * @return non-zero if that is so; what is sent from here on comes behind it.
 */
int uct_angara_channel_settle(uct_angara_channel_t *ch);

/** Count a put or get of private memory. @return how many since the last flush */
static UCS_F_ALWAYS_INLINE unsigned uct_angara_channel_count_op(uct_angara_channel_t *ch)
{
    ch->asked += (ch->asked < UINT8_MAX);
    uct_angara_channel_stir(ch);
    return ch->asked;
}

static UCS_F_ALWAYS_INLINE void uct_angara_channel_count_anew(uct_angara_channel_t *ch)
{
    if (ch->asked > 0) {
        ch->asked_last = ch->asked;
        ch->asked      = 0;
    }
}

/** What was stored to the peer's memory within calls comes before all that follows. */
static UCS_F_ALWAYS_INLINE void uct_angara_channel_fence_stores(uct_angara_channel_t *ch)
{
    if (!ch->is_unfenced) {
        return;
    }
    if (ANGARA_ATOMIC_IS_FENCE) { /* both in one instruction */
        __atomic_exchange_n(&ch->is_unfenced, 0, __ATOMIC_SEQ_CST);
    } else {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        ch->is_unfenced = 0;
    }
}

/**
 * To be called right after a ring operation was posted.
 *
 * @return UCS_OK if it and all before it has completed; UCS_INPROGRESS if @a value_p was set to the
 *         marker that will tell: enqueue an op with it.
 */
ucs_status_t uct_angara_channel_try_complete(uct_angara_channel_t *ch, uint64_t *value_p);

/** Queue @a op until the marker @a value has arrived. */
void uct_angara_channel_enqueue(uct_angara_channel_t *ch, uct_angara_op_t *op, uint64_t value);

/** An op. @return NULL if memory is exhausted. */
uct_angara_op_t *uct_angara_op_get(uct_angara_channel_t *ch, uct_angara_op_func_t func,
                                   uct_completion_t *comp);

/** Complete what has arrived, post what is wanted. @return number of completions. */
unsigned uct_angara_channel_progress_markers(uct_angara_channel_t *ch);

/**
 * A flush's marker has arrived.
 * @param head  tx.head when it began: it covers the messages before.
 * @return UCS_OK if they haven't met a deaf peer.
 */
ucs_status_t uct_angara_channel_confirm(uct_angara_channel_t *ch, uint64_t head);

/**
 * End all ops with @a status, but flushes with @a flush_status, and forget what waits for a batch.
 */
void uct_angara_channel_fail_ops(uct_angara_channel_t *ch, ucs_status_t status,
                                 ucs_status_t flush_status);

/** Give the marker slot back, whatever was posted to it: the pair has been reset, or is dead. */
void uct_angara_channel_close_markers(uct_angara_channel_t *ch);

/* ---- flush and fence (channel/flush.c) ----------------------------------------------------- */

/** uct_angara_channel_flush() where something waits, or may. */
ucs_status_t uct_angara_channel_flush_slow(uct_angara_channel_t *ch, uct_angara_op_func_t func,
                                           uct_completion_t *comp, void *group);

/** Has all been confirmed, but for what was stored within calls? Else 0, or unknown. */
static UCS_F_ALWAYS_INLINE int uct_angara_channel_is_quiet(const uct_angara_channel_t *ch)
{
    /* tx.confirmed is never beyond tx.marked */
    return (ch->tx.head == ch->tx.confirmed) && !ch->rma_dirty && !ch->is_credit_dirty &&
           !ch->tx.ready_owed && (ch->status == UCS_OK) && ucs_queue_is_empty(&ch->markers.ops) &&
           (ch->self_ops == 0) && uct_angara_early_is_empty(&ch->early) &&
           uct_angara_markers_idle(&ch->markers);
}

/** A flush of a channel that is quiet. @return non-zero if there was something to do */
static UCS_F_ALWAYS_INLINE int uct_angara_channel_quiet(uct_angara_channel_t *ch)
{
    int was_used = ch->is_unfenced || (ch->asked > 0);

    uct_angara_channel_count_anew(ch);
    uct_angara_channel_fence_stores(ch);
    return was_used;
}

/**
 * Start or continue a flush.
 *
 * @param func   Called at the end if UCS_INPROGRESS is returned and @a comp or @a group is given.
 * @param comp   User's completion or NULL.
 * @param group  For @a func.
 */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_channel_flush(uct_angara_channel_t *ch,
                                                                 uct_angara_op_func_t  func,
                                                                 uct_completion_t     *comp,
                                                                 void                 *group)
{
    if (ucs_likely(uct_angara_channel_is_quiet(ch))) {
        uct_angara_channel_quiet(ch);
        return UCS_OK;
    }

    return uct_angara_channel_flush_slow(ch, func, comp, group);
}

/**
 * As uct_angara_channel_flush() for the owner itself: what is written now has landed at its end.
 * @param func  Called at the end if UCS_INPROGRESS is returned, with @a tag in the op.
 */
ucs_status_t uct_angara_channel_flush_ours(uct_angara_channel_t *ch, uct_angara_op_func_t func,
                                           unsigned tag);

/** Order later operations behind all earlier ones. */
void uct_angara_channel_fence(uct_angara_channel_t *ch);

/** @return UCS_OK once the marker of the last fence has arrived. */
ucs_status_t uct_angara_channel_check_fence(uct_angara_channel_t *ch);

/* ---- turns and ends (channel/work.c) ------------------------------------------------------- */

/** Send what waits for the ring that there is now. @return number of messages sent. */
unsigned uct_angara_channel_send_early(uct_angara_channel_t *ch);

/**
 * Drop the messages of @a user that a GPU copies: none has gone out in part. Who waits for them is
 * told that they are cancelled, and may send again. @return their number.
 */
unsigned uct_angara_channel_cancel_copied(uct_angara_channel_t *ch, const void *user);

/** Drop the early messages; the flushes that wait for them end with @a status. */
void uct_angara_channel_fail_early(uct_angara_channel_t *ch, ucs_status_t status);

/** Slow work: what could not be sent, markers. @return progress made. */
unsigned uct_angara_channel_progress(uct_angara_channel_t *ch);

/** @return non-zero if slow work is left, for which nobody wakes us. */
int uct_angara_channel_has_work(const uct_angara_channel_t *ch);

/** Deliver what has arrived, then poll the ring no more. */
void uct_angara_channel_stop_rx(uct_angara_channel_t *ch);

/** Stop to poll the ring. */
void uct_angara_channel_close_rx(uct_angara_channel_t *ch);

/**
 * Nothing is to be sent any more, nor confirmed: all operations end.
 *
 * @param status        What they end with.
 * @param flush_status  What flushes end with.
 * @param drop_early    Non-zero: early messages are dropped, too.
 */
void uct_angara_channel_stop(uct_angara_channel_t *ch, ucs_status_t status,
                             ucs_status_t flush_status, int drop_early);

#endif
