/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * State per remote (PE, generation): one object for both directions, shared by all endpoints to it.
 * The life of the two rings is in uct_angara_control.c; what they carry is in uct_angara_ring.c.
 */
#ifndef UCT_ANGARA_PEER_H
#define UCT_ANGARA_PEER_H

#include "uct_angara_marker.h"
#include "uct_angara_ring.h"

struct uct_angara_ep;

/** Why operations to a peer can't be started now (uct_angara_peer_t.blocked). */
enum {
    UCT_ANGARA_BLOCK_RING    = UCS_BIT(0), /**< no ring granted: messages only */
    UCT_ANGARA_BLOCK_FENCE   = UCS_BIT(1), /**< a fence waits for its marker */
    UCT_ANGARA_BLOCK_PENDING = UCS_BIT(2), /**< older requests are queued */
    UCT_ANGARA_BLOCK_FAILED  = UCS_BIT(3)  /**< peer->status tells why */
};

/** Life of the ring that we send to. */
typedef enum {
    UCT_ANGARA_TX_IDLE,  /**< nothing asked for */
    UCT_ANGARA_TX_HELLO, /**< asked, waiting for GRANT or REFUSE */
    UCT_ANGARA_TX_OPEN,
    UCT_ANGARA_TX_FLUSH, /**< closing: waits for the marker behind the last write */
    UCT_ANGARA_TX_CLOSE  /**< closing: CLOSE sent, waiting for CLOSE_ACK */
} uct_angara_tx_state_t;

/* Allocated on a cache line; the parts that are hot begin on one (asserted in uct_angara_peer.c).
 */
typedef struct uct_angara_peer {
    uct_angara_tx_t          tx;
    angara_peer_h            ap;
    unsigned                 blocked;   /**< UCT_ANGARA_BLOCK_* */
    unsigned                 rma_dirty; /**< ring operations since the last marker */
    uct_angara_channel_t     channel;
    uint64_t                 fence_value; /**< marker that ends BLOCK_FENCE */
    struct uct_angara_iface *iface;
    ucs_list_link_t          list;     /**< iface->peers */
    ucs_list_link_t          active;   /**< iface->active while there is slow work */
    ucs_status_t             status;   /**< why it failed, or UCS_OK */
    unsigned                 npending; /**< queued requests of all its endpoints */
    unsigned                 self_ops; /**< its ops that wait for a self-marker */

    uct_angara_rx_t rx UCS_V_ALIGNED(UCS_SYS_CACHE_LINE_SIZE);
    ucs_list_link_t    eps;     /**< endpoints */
    ucs_queue_head_t   control; /**< records that the peer's event ring refused */
    angara_address_t   address;
    unsigned           dispatching; /**< such a request is being tried */
    uint16_t           credit_index;
    uint8_t            epoch;       /**< our number of the connection we send on */
    uint8_t            tx_state;    /**< uct_angara_tx_state_t */
    uint8_t            has_credit;  /**< credit_index is ours */
    uint8_t            is_active;   /**< on iface->active */
    uint8_t            is_down;     /**< the library says it is gone */
    uint8_t            down_due;    /**< that is still to be dealt with */
    uint8_t            said_bye;    /**< it left in order */
    uint8_t            we_closed;   /**< we have closed to it in order */
    uint8_t            it_closed;   /**< it has closed to us in order */
    uint8_t            missed;      /**< it was used after it had failed */
    uint8_t            reported;    /**< the failure has been reported */
    uint8_t            fail_due;    /**< failure is still to be reported */
    uint8_t            acking;      /**< CLOSE_ACK waits for a marker */
    char               reason[256]; /**< text of the failure */
} uct_angara_peer_t;

/**
 * Find or make the peer of @a address.
 * @return UCS_OK, UCS_ERR_UNREACHABLE, UCS_ERR_NO_MEMORY, or the status of a peer that failed.
 */
ucs_status_t uct_angara_peer_get(struct uct_angara_iface *iface, const angara_address_t *address,
                                 uct_angara_peer_t **peer_p);

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

/** Note a negative status of the library. @return it as UCX's. */
ucs_status_t uct_angara_peer_error(uct_angara_peer_t *peer, angara_status_t status,
                                   const char *what);

/** An endpoint goes away: close what it alone needed. */
void uct_angara_peer_drop_ep(uct_angara_peer_t *peer);

/** Move the counters of the peer to the interface. */
void uct_angara_peer_add_stats(uct_angara_peer_t *peer);

/** The library says that the peer is gone: it fails at the next turn of progress. */
void uct_angara_peer_down(uct_angara_peer_t *peer);

/** Slow path of a send that found no room: start or wait for whatever is missing. */
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
