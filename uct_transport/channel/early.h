/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Early messages: copies of what is sent before it can go into a ring. There is none yet, or the
 * GPU still copies the message out of its memory. A queue with limits; knows no peer and no ring.
 */
#ifndef UCT_ANGARA_EARLY_H
#define UCT_ANGARA_EARLY_H

#include <angara/angara_mem.h>
#include <uct/api/uct.h>

#include <stddef.h>
#include <stdint.h>

#define UCT_ANGARA_EARLY_MSGS   16u            /**< messages of one queue */
#define UCT_ANGARA_EARLY_BYTES  ((size_t)8192) /**< payload of what waits for a ring */

#define UCT_ANGARA_COPIED_MAX   ((size_t)8192)    /**< bytes of a message that a GPU copies */
#define UCT_ANGARA_COPIED_BYTES ((size_t)1 << 16) /**< payload of those of one queue */
#define UCT_ANGARA_COPIED_SIZE  ((size_t)1 << 20) /**< memory of those of an interface */

/** How it was sent, for the counters. */
typedef enum {
    UCT_ANGARA_EARLY_SHORT,
    UCT_ANGARA_EARLY_BCOPY,
    UCT_ANGARA_EARLY_ZCOPY
} uct_angara_early_kind_t;

/** Memory of all queues of an interface, the queues' own part of it included. */
typedef struct uct_angara_early_pool {
    size_t used;
    size_t max;
    size_t queue_bytes; /**< payload of one queue */
} uct_angara_early_pool_t;

/** Of a message that a GPU copies. */
typedef struct uct_angara_copied {
    uct_completion_t *comp; /**< who waits until it has gone */
    const void       *user; /**< who sent it: told from others only */
    angara_copy_t     copy;
} uct_angara_copied_t;

typedef struct uct_angara_early_msg {
    struct uct_angara_early_msg *next;
    uct_angara_early_pool_t     *pool;
    uct_angara_copied_t         *copied; /**< within the message's memory; NULL: none copies */
    uint16_t                     length;
    uint8_t                      id;
    uint8_t                      kind;
    char                         data[];
} uct_angara_early_msg_t;

typedef struct uct_angara_early {
    uct_angara_early_msg_t *head; /**< the oldest, or NULL */
    uct_angara_early_msg_t *tail;
    unsigned                count;
    size_t                  bytes;   /**< of their payload */
    size_t                  refused; /**< length of the last one that couldn't be added */
} uct_angara_early_t;

static inline int uct_angara_early_is_empty(const uct_angara_early_t *early)
{
    return early->head == NULL;
}

/** @return non-zero if there is room for a message of @a length payload bytes. */
int uct_angara_early_has_room(const uct_angara_early_t *early, const uct_angara_early_pool_t *pool,
                              size_t length);

/** Copy a message. @return 0 if there is no room, or no memory. */
int uct_angara_early_add(uct_angara_early_t *early, uct_angara_early_pool_t *pool, uint8_t id,
                         uct_angara_early_kind_t kind, const void *data, size_t length);

/**
 * Have a message, in no queue yet, for @a early: its data, and what is of a copy, isn't set.
 * @return NULL if there is no room, or no memory.
 */
uct_angara_early_msg_t *uct_angara_early_new(uct_angara_early_t      *early,
                                             uct_angara_early_pool_t *pool, uint8_t id,
                                             uct_angara_early_kind_t kind, size_t length,
                                             int is_copied);

/** Put it behind the others, or give it back. */
void uct_angara_early_push(uct_angara_early_t *early, uct_angara_early_msg_t *msg);
void uct_angara_early_drop(uct_angara_early_msg_t *msg);

/** Drop the oldest, or the one behind @a prev. */
void uct_angara_early_pop(uct_angara_early_t *early);
void uct_angara_early_drop_next(uct_angara_early_t *early, uct_angara_early_msg_t *prev);

#endif
