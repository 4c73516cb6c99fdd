/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a connection to a peer: three states, the events that change them, and what is to be
 * done at each. Numbers in, numbers out: knows no peer, no ring, no record, and touches nothing.
 * The table of docs/protocols.md ("States of a connection") is this file in words.
 */
#ifndef UCT_ANGARA_LIFE_H
#define UCT_ANGARA_LIFE_H

#include <stdint.h>

/** The ring that we send to. A credit line is ours in all states but the first. */
typedef enum {
    UCT_ANGARA_TX_IDLE,     /**< nothing asked for */
    UCT_ANGARA_TX_ASKED,    /**< HELLO sent: waits for GRANT or REFUSE */
    UCT_ANGARA_TX_OPEN,     /**< messages go */
    UCT_ANGARA_TX_FLUSHING, /**< closing: waits for the marker behind the last write */
    UCT_ANGARA_TX_CLOSING,  /**< closing: CLOSE sent, waits for CLOSE_ACK */
    UCT_ANGARA_TX_LOST,     /**< given up: the peer may write credits until it answers RESET */
    UCT_ANGARA_TX_LAST
} uct_angara_tx_state_t;

/** The ring that we receive from. A ring is the peer's in all states but IDLE and ENDED. */
typedef enum {
    UCT_ANGARA_RX_IDLE,      /**< never asked for, or given up */
    UCT_ANGARA_RX_OPEN,      /**< messages come */
    UCT_ANGARA_RX_CLOSING,   /**< CLOSE received: consumes what is left */
    UCT_ANGARA_RX_CREDITING, /**< waits for the marker behind the last credit */
    UCT_ANGARA_RX_ENDED,     /**< the peer has closed it in order */
    UCT_ANGARA_RX_LOST,      /**< given up: the peer may write messages until it answers RESET */
    UCT_ANGARA_RX_LAST
} uct_angara_rx_state_t;

/** The peer as a whole. */
typedef enum {
    UCT_ANGARA_LIFE_UP,      /**< nothing is wrong */
    UCT_ANGARA_LIFE_LEAVING, /**< it said BYE: its end will be no death */
    UCT_ANGARA_LIFE_FAILING, /**< failed on this side: the next turn of progress reports it */
    UCT_ANGARA_LIFE_TOLD,    /**< failed on the other side: the same */
    UCT_ANGARA_LIFE_RESET,   /**< RESET sent, not answered yet: nothing new is asked for */
    UCT_ANGARA_LIFE_DYING,   /**< gone without a word: the next turn of progress reports it */
    UCT_ANGARA_LIFE_PARTING, /**< gone in order: the same, if somebody misses it */
    UCT_ANGARA_LIFE_LEFT,    /**< gone, and nobody has missed it so far */
    UCT_ANGARA_LIFE_DEAD,    /**< gone, and reported */
    UCT_ANGARA_LIFE_LAST
} uct_angara_life_state_t;

typedef enum {
    /* of this side */
    UCT_ANGARA_EV_SEND,     /**< a message finds no ring */
    UCT_ANGARA_EV_UNUSED,   /**< no endpoint is left */
    UCT_ANGARA_EV_FLUSHED,  /**< the marker behind our last write has come back */
    UCT_ANGARA_EV_NO_RING,  /**< there is no ring for the peer */
    UCT_ANGARA_EV_CONSUMED, /**< all that the peer has sent was consumed */
    UCT_ANGARA_EV_CREDITED, /**< the marker behind our last credit has come back */
    UCT_ANGARA_EV_FAIL,     /**< a fault, or nonsense from the peer */
    UCT_ANGARA_EV_USE,      /**< an operation, or a question whether it lives */
    UCT_ANGARA_EV_REPORT,   /**< turn of progress: somebody waits for the peer, or uses it */
    UCT_ANGARA_EV_SETTLE,   /**< turn of progress: nobody does */
    /* from the peer */
    UCT_ANGARA_EV_HELLO,
    UCT_ANGARA_EV_GRANT,
    UCT_ANGARA_EV_REFUSE,
    UCT_ANGARA_EV_CLOSE,
    UCT_ANGARA_EV_CLOSE_OLD, /**< CLOSE of what isn't open any more */
    UCT_ANGARA_EV_CLOSE_ACK,
    UCT_ANGARA_EV_RESET,
    UCT_ANGARA_EV_RESET_OLD, /**< RESET of what has ended already */
    UCT_ANGARA_EV_RESET_ACK,
    UCT_ANGARA_EV_BYE,
    /* from the library */
    UCT_ANGARA_EV_DOWN, /**< it is gone */
    UCT_ANGARA_EV_GONE, /**< it is gone, and closed its PE in order */
    UCT_ANGARA_EV_LAST,
    UCT_ANGARA_EV_NONE = UCT_ANGARA_EV_LAST /**< of an old epoch: nothing at all */
} uct_angara_event_t;

/** What is to be done, in the order of the bits. */
enum {
    UCT_ANGARA_DO_HELLO     = 1u << 0,  /**< take a credit line, send HELLO */
    UCT_ANGARA_DO_USE_RING  = 1u << 1,  /**< the granted ring may be written */
    UCT_ANGARA_DO_FLUSH_TX  = 1u << 2,  /**< post a marker behind our last write: FLUSHED */
    UCT_ANGARA_DO_CLOSE     = 1u << 3,  /**< send CLOSE */
    UCT_ANGARA_DO_MAKE_RING = 1u << 4,  /**< make a ring and send GRANT: or NO_RING */
    UCT_ANGARA_DO_REFUSE    = 1u << 5,  /**< send REFUSE */
    UCT_ANGARA_DO_CONSUME   = 1u << 6,  /**< deliver until the end that CLOSE names: CONSUMED */
    UCT_ANGARA_DO_FLUSH_RX  = 1u << 7,  /**< post a marker behind our last credit: CREDITED */
    UCT_ANGARA_DO_RESET     = 1u << 8,  /**< send RESET: all of ours has been stopped before */
    UCT_ANGARA_DO_STOP      = 1u << 9,  /**< deliver what has come; end all operations */
    UCT_ANGARA_DO_FREE_TX   = 1u << 10, /**< the credit line is free */
    UCT_ANGARA_DO_FREE_RX   = 1u << 11, /**< the ring is free */
    UCT_ANGARA_DO_CLOSE_ACK = 1u << 12, /**< send CLOSE_ACK with the numbers of CLOSE */
    UCT_ANGARA_DO_RESET_ACK = 1u << 13, /**< send RESET_ACK with the numbers of RESET */
    UCT_ANGARA_DO_TELL      = 1u << 14, /**< call the endpoints' error handlers */
    UCT_ANGARA_DO_TURN      = 1u << 15, /**< see to it at the next turn of progress */
    UCT_ANGARA_DO_LATER     = 1u << 16, /**< keep HELLO: it is heard again after the report */
    UCT_ANGARA_DO_NONSENSE  = 1u << 17  /**< the peer can't mean that: FAIL */
};

/** All that is known of a connection. Epochs count from 1; 0 is none. */
typedef struct uct_angara_life {
    uint8_t tx;       /**< uct_angara_tx_state_t */
    uint8_t rx;       /**< uct_angara_rx_state_t */
    uint8_t state;    /**< uct_angara_life_state_t */
    uint8_t tx_epoch; /**< our number of what we send, while tx isn't IDLE */
    uint8_t rx_epoch; /**< the peer's number of what it sends, while rx isn't IDLE or ENDED */
    uint8_t has_bye;  /**< it said BYE: whenever it goes, that is no death */
} uct_angara_life_t;

/**
 * The only function that changes the three states.
 * @return what is to be done (UCT_ANGARA_DO_*).
 */
unsigned uct_angara_life_step(uct_angara_life_t *life, uct_angara_event_t event);

/**
 * Which event a record of the peer is, by the epochs that it carries.
 *
 * @param event     as its type says: EV_HELLO to EV_BYE.
 * @param tx_epoch  epoch of what the record's sender sends (CLOSE, RESET), or 0.
 * @param rx_epoch  epoch of what it receives (GRANT, REFUSE, CLOSE_ACK, RESET), or 0; of RESET_ACK
 *                  both are those of the RESET that is answered.
 */
uct_angara_event_t uct_angara_life_classify(const uct_angara_life_t *life, uct_angara_event_t event,
                                            uint8_t tx_epoch, uint8_t rx_epoch);

/** @return non-zero if the peer writes, or may write, to a ring of ours. */
static inline int uct_angara_life_has_ring(const uct_angara_life_t *life)
{
    return (life->rx != UCT_ANGARA_RX_IDLE) && (life->rx != UCT_ANGARA_RX_ENDED);
}

/** @return non-zero if messages of the peer are still taken. */
static inline int uct_angara_life_receives(const uct_angara_life_t *life)
{
    return (life->rx == UCT_ANGARA_RX_OPEN) || (life->rx == UCT_ANGARA_RX_CLOSING);
}

/** @return non-zero if a turn of progress has to deal with a failure or an end. */
static inline int uct_angara_life_is_due(const uct_angara_life_t *life)
{
    return (life->state == UCT_ANGARA_LIFE_FAILING) || (life->state == UCT_ANGARA_LIFE_TOLD) ||
           (life->state == UCT_ANGARA_LIFE_DYING) || (life->state == UCT_ANGARA_LIFE_PARTING);
}

/** @return non-zero if the peer has said BYE and is still there: it takes nothing any more. */
static inline int uct_angara_life_is_leaving(const uct_angara_life_t *life)
{
    return life->has_bye && (life->state < UCT_ANGARA_LIFE_DYING);
}

/** @return non-zero if the peer's process, or its PE, is no more. */
static inline int uct_angara_life_is_gone(const uct_angara_life_t *life)
{
    return life->state >= UCT_ANGARA_LIFE_DYING;
}

/** @return non-zero if the states fit together (asserted after each step). */
int uct_angara_life_is_legal(const uct_angara_life_t *life);

/* Names, for the log. */
const char *uct_angara_life_event_name(uct_angara_event_t event);
const char *uct_angara_life_tx_name(const uct_angara_life_t *life);
const char *uct_angara_life_rx_name(const uct_angara_life_t *life);
const char *uct_angara_life_state_name(const uct_angara_life_t *life);

#endif
