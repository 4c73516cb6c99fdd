/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * State per remote (PE, generation): one object for both directions, shared by all endpoints to it.
 * Its channel carries the data; its states are those of life/states.h. And the net: all peers of a
 * PE. The floor of lives knows no interface of UCX: what it can't do by itself it asks of its owner
 * (uct_angara_net_ops_t).
 *
 * When a connection fails, its users (endpoints) fail for ever. They move to a tomb: a peer object
 * that leads nowhere and knows nothing but the status. The peer itself goes on, for new users.
 */
#ifndef UCT_ANGARA_PEER_H
#define UCT_ANGARA_PEER_H

#include "channel/port.h"
#include "life/record.h"
#include "life/states.h"

#define UCT_ANGARA_CONTROL_MAX 16 /**< records that wait for room in the peer's event ring */

struct uct_angara_net;
struct uct_angara_peer;

/** Who uses a peer: part of an endpoint. */
typedef struct uct_angara_user {
    struct uct_angara_peer *peer;
    ucs_list_link_t         list;    /**< peer->users */
    int                     is_told; /**< of the failure */
} uct_angara_user_t;

/** A control record that waits. */
typedef struct uct_angara_waiting {
    uint8_t length;
    uint8_t data[ANGARA_NOTIFY_MAX];
} uct_angara_waiting_t;

/* Allocated on a cache line. */
typedef struct uct_angara_peer {
    uct_angara_channel_t    ch; /**< ap NULL: this is a tomb */
    struct uct_angara_net  *net;
    ucs_list_link_t         users;
    unsigned                npending;    /**< queued requests of all its endpoints */
    unsigned                dispatching; /**< a queued request is being tried */
    uct_angara_life_t       life;        /**< changed by uct_angara_peer_do() only */
    uint16_t                credit_index;
    uint8_t                 reset_tx; /**< epochs of the RESET that is to be answered */
    uint8_t                 reset_rx;
    uint8_t                 is_bound;      /**< its users have had a part in this connection */
    uint8_t                 is_missed;     /**< used or asked for after its end, or it gave up */
    uint8_t                 is_said;       /**< its reason: refused() was called */
    uint8_t                 is_lossy;      /**< gone, with something that no marker has confirmed */
    uint8_t                 is_spared;     /**< the failure that is due isn't its users' */
    uint8_t                 is_early_lost; /**< its early messages are of failed users */
    uint8_t                 has_hello;     /**< a greeting waits for the report of a failure */
    uint8_t                 hello[ANGARA_NOTIFY_MAX];
    uint8_t                 holds; /**< of a tomb: its users are still to be told */
    uint8_t                 nwaiting;
    uint8_t                 first_waiting;
    uct_angara_waiting_t    waiting[UCT_ANGARA_CONTROL_MAX]; /**< ring of control records */
    struct uct_angara_peer *doomed;                          /**< tomb of users that wait */
    char                    reason[256];                     /**< text of the failure */
} uct_angara_peer_t;

/** What is asked of the owner of the peers. */
typedef struct uct_angara_net_ops {
    /**
     * The connection of @a user has failed for ever. May destroy any user, this one included.
     * @return UCS_OK if somebody takes care of it.
     */
    ucs_status_t (*tell)(uct_angara_user_t *user, ucs_status_t status);

    /** A call of the program's has failed, for that reason; the report follows. */
    void (*refused)(struct uct_angara_net *net, const char *reason);

    /**
     * Users of a failed connection have been told, and not all have taken care of it.
     * @a is_said: refused() was called for it.
     */
    void (*unhandled)(struct uct_angara_net *net, const char *reason, int is_said);
} uct_angara_net_ops_t;

/** A refusal that waits for room in the event ring of somebody who is no peer. */
typedef struct uct_angara_refusal {
    angara_peer_h       ap;
    uct_angara_record_t record;
} uct_angara_refusal_t;

/** All peers of a PE. */
typedef struct uct_angara_net {
    uct_angara_port_t           port;
    const uct_angara_net_ops_t *up;
    angara_address_t            address;       /**< of this PE */
    uint8_t                     epoch;         /**< of the last connection asked for */
    uint8_t                     has_strangers; /**< a record from a stranger was reported */
    uct_angara_peer_t          *tomb;          /**< for when there is no memory for one */
    unsigned                    nrefusals;
    uct_angara_refusal_t        refusals[UCT_ANGARA_CONTROL_MAX];
} uct_angara_net_t;

static inline uct_angara_peer_t *uct_angara_peer_of(uct_angara_channel_t *ch)
{
    return ucs_container_of(ch, uct_angara_peer_t, ch);
}

#define uct_angara_peers_for_each(_peer, _net)                                             \
    for ((_peer) = (uct_angara_peer_t *)UCT_ANGARA_CHANNEL_AT(&(_net)->port.channels,      \
                                                              (_net)->port.channels.next); \
         (_peer) != NULL; (_peer) = (uct_angara_peer_t *)UCT_ANGARA_CHANNEL_AT(            \
                              &(_net)->port.channels, (_peer)->ch.list.next))

/* ---- creation and end (life/peer.c) -------------------------------------------------------- */

/**
 * Find or make the peer of @a address.
 * @return UCS_OK, UCS_ERR_UNREACHABLE, UCS_ERR_NO_MEMORY, or the status of a peer that is gone.
 */
ucs_status_t uct_angara_peer_get(uct_angara_net_t *net, const angara_address_t *address,
                                 uct_angara_peer_t **peer_p);

/** Users, and their queued requests, leave the peer for ever. They aren't told yet. */
void uct_angara_peer_bury(uct_angara_peer_t *peer);

/** Make a tomb, or NULL. Each net keeps one for when memory is exhausted. */
uct_angara_peer_t *uct_angara_tomb_alloc(uct_angara_net_t *net);

/** Free a tomb without users. */
void uct_angara_tomb_try_free(uct_angara_peer_t *tomb);

/** Its users have been told, or never will be. */
void uct_angara_tomb_release(uct_angara_peer_t *tomb);

/** Free the peer if nobody needs it any more. @return non-zero if freed. */
int uct_angara_peer_try_free(uct_angara_peer_t *peer);

/** Free the peer whatever its state: the net closes. */
void uct_angara_peer_destroy(uct_angara_peer_t *peer);

/** Tell the channel what follows from the states: to be called after each change. */
void uct_angara_peer_update(uct_angara_peer_t *peer);

/** @return non-zero if the failure that is due is not one of the users that there are now. */
int uct_angara_peer_spares_users(const uct_angara_peer_t *peer);

/** Both directions end: deliver what has come, end all operations. */
void uct_angara_peer_stop(uct_angara_peer_t *peer);

/* ---- rings (life/rings.c) ------------------------------------------------------------------ */

/** Take a credit line. @return UCS_OK, or the status after @a why was written. */
ucs_status_t uct_angara_rings_take_credit(uct_angara_peer_t *peer, char *why, size_t max);

/** Give the credit line back. */
void uct_angara_rings_free_tx(uct_angara_peer_t *peer);

/**
 * Make the ring that HELLO asks for (rx.shape).
 * @return 0 if @a grant tells of it, or the reason to refuse.
 */
uint8_t uct_angara_rings_make(uct_angara_peer_t *peer, uct_angara_grant_t *grant);

/** Give the ring back. */
void uct_angara_rings_free_rx(uct_angara_peer_t *peer);

/** Give the ring and the credit line back, whoever may write to them: the PE ends. */
void uct_angara_rings_drop(uct_angara_peer_t *peer);

#endif
