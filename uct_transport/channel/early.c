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
    return (early->count < UCT_ANGARA_EARLY_MSGS) &&
           (length <= UCT_ANGARA_EARLY_BYTES - early->bytes) &&
           (sizeof(*early->head) + length <= pool->max - pool->used);
}

int uct_angara_early_add(uct_angara_early_t *early, uct_angara_early_pool_t *pool, uint8_t id,
                         uct_angara_early_kind_t kind, const void *data, size_t length)
{
    uct_angara_early_msg_t *msg = NULL;

    if (uct_angara_early_has_room(early, pool, length)) {
        msg = malloc(sizeof(*msg) + length);
    }
    if (msg == NULL) {
        early->refused = length;
        return 0;
    }

    msg->next   = NULL;
    msg->length = length;
    msg->id     = id;
    msg->kind   = kind;
    if (length > 0) {
        memcpy(msg->data, data, length);
    }

    if (early->head == NULL) {
        early->head = msg;
    } else {
        early->tail->next = msg;
    }
    early->tail = msg;
    early->bytes += length;
    ++early->count;
    pool->used += sizeof(*msg) + length;
    return 1;
}

void uct_angara_early_pop(uct_angara_early_t *early, uct_angara_early_pool_t *pool)
{
    uct_angara_early_msg_t *msg = early->head;

    early->head = msg->next;
    early->bytes -= msg->length;
    early->refused = 0;
    --early->count;
    pool->used -= sizeof(*msg) + msg->length;
    free(msg);
}

void uct_angara_early_clear(uct_angara_early_t *early, uct_angara_early_pool_t *pool)
{
    while (early->head != NULL) {
        uct_angara_early_pop(early, pool);
    }
    early->refused = 0;
}
