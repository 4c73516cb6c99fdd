/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control records: how rings are asked for, granted, closed and given up. They travel as notify
 * puts of at most 64 bytes and are all that a stranger can say to us.
 */
#ifndef UCT_ANGARA_RECORD_H
#define UCT_ANGARA_RECORD_H

#include "base/compat.h"

#include <angara/angara.h>

/** Version of rings and records. Peers of different versions don't reach each other. */
#define UCT_ANGARA_PROTOCOL 3

/** Records. A number is never reused for another meaning. */
enum {
    UCT_ANGARA_HELLO     = 0xa1, /**< sender: give me a ring */
    UCT_ANGARA_GRANT     = 0xa2, /**< receiver: here it is */
    UCT_ANGARA_REFUSE    = 0xa3, /**< receiver: no */
    UCT_ANGARA_CLOSE     = 0xa4, /**< sender: nothing more will come */
    UCT_ANGARA_CLOSE_ACK = 0xa5, /**< receiver: all consumed, the credit line is free */
    UCT_ANGARA_BYE       = 0xa6, /**< the interface closes in order */
    UCT_ANGARA_RESET     = 0xa7, /**< both directions are given up: nothing of mine will come */
    UCT_ANGARA_RESET_ACK = 0xa8  /**< nor of mine */
};

/** Reasons of UCT_ANGARA_REFUSE. */
enum {
    UCT_ANGARA_REFUSE_PEERS  = 1, /**< MAX_PEERS reached */
    UCT_ANGARA_REFUSE_SHAPE  = 2, /**< runs or slots are longer than this side's rings allow */
    UCT_ANGARA_REFUSE_MEMORY = 3, /**< the window could not be committed */
    UCT_ANGARA_REFUSE_FAILED = 4  /**< there can't be a connection */
};

/*
 * Epochs: that of the direction that the record is about, as its sender has numbered it. RESET is
 * about both directions: `epoch` is that of what the record's sender sends, `shape` that of what it
 * receives, 0 where there is none; RESET_ACK repeats them.
 */
typedef struct uct_angara_record {
    uint8_t  type;
    uint8_t  version;
    uint8_t  epoch;
    uint8_t  shape;        /**< HELLO: slot shift - 6, segment shift; REFUSE: reason; RESET */
    uint16_t credit_index; /**< sender's credit line */
    uint16_t value;        /**< HELLO: slots of the longest run; GRANT, CLOSE: ring index */
} UCS_S_PACKED uct_angara_record_t;

/** HELLO and RESET: may come from a stranger, who wants an answer. */
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

static inline uct_angara_record_t uct_angara_record(uint8_t type, uint8_t epoch,
                                                    uint16_t credit_index, uint16_t value)
{
    uct_angara_record_t record = {.type         = type,
                                  .version      = UCT_ANGARA_PROTOCOL,
                                  .epoch        = epoch,
                                  .credit_index = credit_index,
                                  .value        = value};

    return record;
}

#endif
