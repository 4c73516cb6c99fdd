/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * State per remote (PE, generation): one object for both directions, shared by all endpoints to it.
 * Its states are those of uct_angara_life.h; what the rings carry is in uct_angara_ring.c.
 *
 * When a connection fails, its endpoints fail for ever. They move to a tomb: a peer object that
 * leads nowhere and knows nothing but the status. The peer itself goes on, for new endpoints.
 */
#ifndef UCT_ANGARA_PEER_H
#define UCT_ANGARA_PEER_H

#include "uct_angara_early.h"
#include "uct_angara_life.h"
#include "uct_angara_marker.h"
#include "uct_angara_ring.h"

struct uct_angara_ep;

/**
 * Why operations to a peer can't be started now (uct_angara_peer_t.blocked): one word for the fast
 * paths, made of the states by uct_angara_peer_update() and by nothing else.
 */
enum {
    UCT_ANGARA_BLOCK_RING    = UCS_BIT(0), /**< no ring, or early messages first: messages only */
    UCT_ANGARA_BLOCK_FENCE   = UCS_BIT(1), /**< a fence waits for its marker */
    UCT_ANGARA_BLOCK_PENDING = UCS_BIT(2), /**< older requests are queued */
    UCT_ANGARA_BLOCK_FAILED  = UCS_BIT(3)  /**< peer->status tells why */
};

/* Allocated on a cache line; the parts that are hot begin on one (asserted in uct_angara_peer.c).
 */
typedef struct uct_angara_peer {
    uct_angara_tx_t          tx;
    angara_peer_h            ap;        /**< NULL: this is a tomb */
    unsigned                 blocked;   /**< UCT_ANGARA_BLOCK_* */
    unsigned                 rma_dirty; /**< ring operations since the last marker */
    uct_angara_channel_t     channel;
    uint64_t                 fence_value; /**< marker that ends a fence */
    struct uct_angara_iface *iface;
    ucs_list_link_t          list;     /**< iface->peers */
    ucs_list_link_t          active;   /**< iface->active while there is slow work */
    ucs_status_t             status;   /**< why it fails or has ended, or UCS_OK */
    unsigned                 npending; /**< queued requests of all its endpoints */
    unsigned                 self_ops; /**< its ops that wait for a self-marker */

    uct_angara_rx_t rx      UCS_V_ALIGNED(UCS_SYS_CACHE_LINE_SIZE);
    ucs_list_link_t         eps;       /**< endpoints */
    ucs_queue_head_t        control;   /**< records that the peer's event ring refused */
    uct_angara_early_t      early;     /**< messages that wait for a ring */
    ucs_queue_head_t        early_ops; /**< flushes that wait until these have gone */
    angara_address_t        address;
    uct_angara_life_t       life;        /**< changed by uct_angara_control_step() only */
    unsigned                dispatching; /**< a queued request is being tried */
    uint16_t                credit_index;
    uint8_t                 reset_tx; /**< epochs of the RESET that is to be answered */
    uint8_t                 reset_rx;
    uint8_t                 is_active; /**< on iface->active */
    uint8_t                 is_fenced; /**< waits for fence_value */
    uint8_t                 is_bound;  /**< its endpoints have had a part in this connection */
    uint8_t                 is_credit_dirty; /**< no marker covers the last credit */
    uint8_t                 is_missed;       /**< it was used, or asked for, after its end */
    uint8_t                 is_lossy;  /**< gone, with something that no marker has confirmed */
    uint8_t                 is_spared; /**< the failure that is due isn't its endpoints' */
    uint8_t                 is_sending_early;
    uint8_t                 is_early_lost; /**< its early messages are of failed endpoints */
    uint8_t                 has_hello;     /**< a greeting waits for the report of a failure */
    uint8_t                 hello[ANGARA_NOTIFY_MAX];
    uint8_t                 holds;       /**< of a tomb: its endpoints are still to be told */
    struct uct_angara_peer *doomed;      /**< tomb of endpoints that wait to be told */
    char                    reason[256]; /**< text of the failure */
} uct_angara_peer_t;

/*
 * Loop over a list of peers. A peer lies on a cache line, the head of a list needn't: so the head
 * is never taken for a part of a peer, as UCS's loops do.
 */
#define UCT_ANGARA_PEER_AT(_head, _link, _member) \
    (((_link) == (_head)) ? NULL : ucs_container_of(_link, uct_angara_peer_t, _member))

#define uct_angara_peers_for_each(_peer, _head)                                     \
    for ((_peer) = UCT_ANGARA_PEER_AT(_head, (_head)->next, list); (_peer) != NULL; \
         (_peer) = UCT_ANGARA_PEER_AT(_head, (_peer)->list.next, list))

/**
 * Find or make the peer of @a address.
 * @return UCS_OK, UCS_ERR_UNREACHABLE, UCS_ERR_NO_MEMORY, or the status of a peer that is gone.
 */
ucs_status_t uct_angara_peer_get(struct uct_angara_iface *iface, const angara_address_t *address,
                                 uct_angara_peer_t **peer_p);

/** Make a tomb, or NULL. Each interface keeps one for when memory is exhausted. */
uct_angara_peer_t *uct_angara_tomb_alloc(struct uct_angara_iface *iface);

/** A new endpoint comes: it has no part in a failure that is still to be told. */
void uct_angara_peer_prepare_ep(uct_angara_peer_t *peer);

/** Free the peer if nobody needs it any more. @return non-zero if freed. */
int uct_angara_peer_try_free(uct_angara_peer_t *peer);

/** Free the peer whatever its state: the interface closes. */
void uct_angara_peer_destroy(uct_angara_peer_t *peer);

/** Have uct_angara_peer_progress() called at each turn until there is nothing left to do. */
void uct_angara_peer_activate(uct_angara_peer_t *peer);

/** Recompute peer->blocked and tx.limit. */
void uct_angara_peer_update(uct_angara_peer_t *peer);

/** Slow work of one peer. May free it. @return progress made. */
unsigned uct_angara_peer_progress(uct_angara_peer_t *peer);

/**
 * Note that the peer has failed; outstanding work, endpoints and user hear of it from the next turn
 * of progress, never from within the caller.
 */
void uct_angara_peer_fail(uct_angara_peer_t *peer, ucs_status_t status, const char *fmt, ...)
    UCS_F_PRINTF(3, 4);

/** Note why, if there is no reason yet, for a change of the states that follows. */
void uct_angara_peer_set_reason(uct_angara_peer_t *peer, ucs_status_t status, const char *fmt, ...)
    UCS_F_PRINTF(3, 4);

/** What a call that can't wait for a turn of progress ends with. @return UCS_OK if all is well. */
ucs_status_t uct_angara_peer_verdict(uct_angara_peer_t *peer);

/** Both directions end: deliver what has come, end all operations. */
void uct_angara_peer_stop(uct_angara_peer_t *peer);

/** Note a negative status of the library. @return it as UCX's. */
ucs_status_t uct_angara_peer_error(uct_angara_peer_t *peer, angara_status_t status,
                                   const char *what);

/** An endpoint goes away: close what it alone needed. */
void uct_angara_peer_drop_ep(uct_angara_peer_t *peer);

/** Move the counters of the peer to the interface. */
void uct_angara_peer_add_stats(uct_angara_peer_t *peer);

/** The peer is used or asked for: if it has left, that is told now. */
void uct_angara_peer_use(uct_angara_peer_t *peer);

/** Nobody has an endpoint: close the connection, unless early messages are still to be sent. */
void uct_angara_peer_unused(uct_angara_peer_t *peer);

/** Ask for a ring, or send what waits for it. @return number of messages sent. */
unsigned uct_angara_early_send(uct_angara_peer_t *peer);

/** Drop the early messages; the flushes that wait for them end with @a status. */
void uct_angara_early_fail(uct_angara_peer_t *peer, ucs_status_t status);

/**
 * Slow path of a send that found no room: start or wait for whatever is missing.
 * @return UCS_ERR_NOT_CONNECTED if that is but a ring: the message may be kept.
 */
ucs_status_t uct_angara_peer_unblock_msg(uct_angara_peer_t *peer);

/** Slow path of a ring operation that found the peer blocked. */
ucs_status_t uct_angara_peer_unblock_rma(uct_angara_peer_t *peer);

/** @return UCS_OK if ring operations may be posted to the peer. */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_peer_check_rma(uct_angara_peer_t *peer)
{
    if (ucs_likely(!(peer->blocked & ~UCT_ANGARA_BLOCK_RING))) {
        return UCS_OK;
    }

    return uct_angara_peer_unblock_rma(peer);
}

#endif
