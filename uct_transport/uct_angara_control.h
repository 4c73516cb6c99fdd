/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control records: how rings are asked for, granted and closed. They travel as notify puts of at
 * most 64 bytes and are all that a stranger can say to us.
 */
#ifndef UCT_ANGARA_CONTROL_H
#define UCT_ANGARA_CONTROL_H

#include "uct_angara_peer.h"

/** Version of rings and records. Peers of different versions don't reach each other. */
#define UCT_ANGARA_PROTOCOL 2

/** Records. A number is never reused for another meaning. */
enum {
    UCT_ANGARA_HELLO     = 0xa1, /**< sender: give me a ring */
    UCT_ANGARA_GRANT     = 0xa2, /**< receiver: here it is */
    UCT_ANGARA_REFUSE    = 0xa3, /**< receiver: no */
    UCT_ANGARA_CLOSE     = 0xa4, /**< sender: nothing more will come */
    UCT_ANGARA_CLOSE_ACK = 0xa5, /**< receiver: all consumed, the credit line is free */
    UCT_ANGARA_BYE       = 0xa6  /**< the interface closes in order */
};

/** Reasons of UCT_ANGARA_REFUSE. */
enum {
    UCT_ANGARA_REFUSE_PEERS  = 1, /**< MAX_PEERS reached */
    UCT_ANGARA_REFUSE_SHAPE  = 2, /**< runs or slots are longer than this side's rings allow */
    UCT_ANGARA_REFUSE_MEMORY = 3, /**< the window could not be committed */
    UCT_ANGARA_REFUSE_FAILED = 4  /**< the connection has failed on this side */
};

typedef struct uct_angara_record {
    uint8_t  type;
    uint8_t  version;
    uint8_t  epoch;        /**< sender's number of the connection */
    uint8_t  shape;        /**< HELLO: slot shift - 6, segment shift; REFUSE: reason */
    uint16_t credit_index; /**< sender's credit line */
    uint16_t value;        /**< HELLO: slots of the longest run; GRANT, CLOSE: ring index */
} UCS_S_PACKED uct_angara_record_t;

typedef struct uct_angara_hello {
    uct_angara_record_t super;
    angara_address_t    address;
} UCS_S_PACKED uct_angara_hello_t;

typedef struct uct_angara_grant {
    uct_angara_record_t super;
    uint64_t            ring_off;
    uint64_t            ready_off;
    uint32_t            nslots;
} UCS_S_PACKED uct_angara_grant_t;

typedef struct uct_angara_close {
    uct_angara_record_t super;
    uint64_t            total; /**< slots written, pads included */
} UCS_S_PACKED uct_angara_close_t;

/** A record that waits for room in the peer's event ring. */
typedef struct uct_angara_control_elem {
    ucs_queue_elem_t queue;
    uint8_t          length;
    uint8_t          data[ANGARA_NOTIFY_MAX];
} uct_angara_control_elem_t;

/** Ask the peer for a ring. */
ucs_status_t uct_angara_control_hello(uct_angara_peer_t *peer);

/** Start to close the ring that we send to: marker, CLOSE, CLOSE_ACK. */
void uct_angara_control_close(uct_angara_peer_t *peer);

/** Tell the peer that this interface goes away; gives up when its event ring stays full. */
void uct_angara_control_bye(uct_angara_peer_t *peer);

/** The peer's ring has been consumed to its announced end: acknowledge and free it. */
void uct_angara_control_closed(uct_angara_peer_t *peer);

/** Stop receiving from the peer without a handshake. */
void uct_angara_control_drop_rx(uct_angara_peer_t *peer);

/** Give up both directions: the peer has failed. */
void uct_angara_control_drop(uct_angara_peer_t *peer);

/** Send what waits in peer->control. @return number of records sent. */
unsigned uct_angara_control_retry(uct_angara_peer_t *peer);

/** HELLO from @a from, which is NULL for a stranger. */
void uct_angara_control_hello_in(struct uct_angara_iface *iface, angara_peer_h from,
                                 const uct_angara_hello_t *hello);

/** Another record of a known peer. @return NULL, or what is wrong with it. */
const char *uct_angara_control_record(uct_angara_peer_t *peer, const void *data, size_t length);

/** Take the events of the PE (uct_angara_event.c). @return number of events. */
unsigned uct_angara_event_poll(struct uct_angara_iface *iface);

/** Warn about a stranger, once: strangers must not be able to fill the log. */
void uct_angara_event_complain(struct uct_angara_iface *iface, const char *what);

#endif
