/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which rings are polled: a few hot ones directly, the others when the ready array says that they
 * hold something.
 */
#ifndef UCT_ANGARA_POLL_H
#define UCT_ANGARA_POLL_H

#include "channel/ring.h"

#define UCT_ANGARA_HOT_RINGS    4    /**< rings polled directly */
#define UCT_ANGARA_DRAIN_MAX    16   /**< records of one ring per poll */
#define UCT_ANGARA_BUSY_RECORDS 1024 /**< records before a slow turn if all rings are hot */

struct uct_angara_port;

typedef struct uct_angara_poll {
    uct_angara_rx_t   *hot[UCT_ANGARA_HOT_RINGS];
    unsigned           nhot;     /**< used entries of hot */
    unsigned           silent;   /**< empty polls in a row */
    unsigned           busy;     /**< records since the last scan */
    unsigned           busy_max; /**< so many records, and a scan is due */
    uint64_t           ticks;    /**< scans that there could have been */
    unsigned           nopen;    /**< rings open */
    unsigned           high;     /**< one above the highest index ever */
    volatile uint16_t *ready;    /**< ready array: written by peers only */
    uint16_t          *consumed; /**< the same counts as consumed here */
    uct_angara_rx_t  **rings;    /**< by ring index */
} uct_angara_poll_t;

/** Start and stop to poll a ring. */
void uct_angara_poll_add(uct_angara_poll_t *poll, uct_angara_rx_t *rx);
void uct_angara_poll_remove(uct_angara_poll_t *poll, uct_angara_rx_t *rx);

/**
 * Compare the ready array with what was consumed, and serve the rings that differ and aren't hot.
 * @return number of records.
 */
unsigned uct_angara_poll_scan(struct uct_angara_port *port);

/**
 * @return non-zero if a record waits in any ring. The headers tell: ready words wake nobody, so one
 * may come, or be sent again, long after its record. A ring that it hasn't announced is made hot.
 */
int uct_angara_poll_has_records(uct_angara_poll_t *poll);

#endif
