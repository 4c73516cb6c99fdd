/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue of early messages, see channel/early.h. Touches nothing but the queue and the pool.
 */
#include "channel/early.h"

#include <stdlib.h>
#include <string.h>

int uct_angara_early_has_room(const uct_angara_early_t *early, const uct_angara_early_pool_t *pool,
                              size_t length)
{
    return (early->count < UCT_ANGARA_EARLY_MSGS) && (early->bytes + length <= pool->queue_bytes) &&
           (sizeof(*early->head) + length <= pool->max - pool->used);
}

uct_angara_early_msg_t *uct_angara_early_new(uct_angara_early_t      *early,
                                             uct_angara_early_pool_t *pool, uint8_t id,
                                             uct_angara_early_kind_t kind, size_t length)
{
    uct_angara_early_msg_t *msg = NULL;

    if (uct_angara_early_has_room(early, pool, length)) {
        msg = malloc(sizeof(*msg) + length);
    }
    if (msg == NULL) {
        early->refused = length;
        return NULL;
    }

    msg->next   = NULL;
    msg->pool   = pool;
    msg->comp   = NULL;
    msg->length = length;
    msg->id     = id;
    msg->kind   = kind;
    pool->used += sizeof(*msg) + length;
    return msg;
}

void uct_angara_early_drop(uct_angara_early_msg_t *msg)
{
    msg->pool->used -= sizeof(*msg) + msg->length;
    free(msg);
}

void uct_angara_early_push(uct_angara_early_t *early, uct_angara_early_msg_t *msg)
{
    if (early->head == NULL) {
        early->head = msg;
    } else {
        early->tail->next = msg;
    }
    early->tail = msg;
    early->bytes += msg->length;
    ++early->count;
}

int uct_angara_early_add(uct_angara_early_t *early, uct_angara_early_pool_t *pool, uint8_t id,
                         uct_angara_early_kind_t kind, const void *data, size_t length)
{
    uct_angara_early_msg_t *msg = uct_angara_early_new(early, pool, id, kind, length);

    if (msg == NULL) {
        return 0;
    }

    if (length > 0) {
        memcpy(msg->data, data, length);
    }
    uct_angara_early_push(early, msg);
    return 1;
}

void uct_angara_early_pop(uct_angara_early_t *early)
{
    uct_angara_early_msg_t *msg = early->head;

    early->head = msg->next;
    early->bytes -= msg->length;
    early->refused = 0;
    --early->count;
    uct_angara_early_drop(msg);
}
