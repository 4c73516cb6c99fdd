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

/* Bytes behind a message's head, what is of its copy at their end. */
static size_t length_with_copied(size_t length)
{
    const size_t align = _Alignof(uct_angara_copied_t);

    return (length + align - 1) / align * align + sizeof(uct_angara_copied_t);
}

uct_angara_early_msg_t *uct_angara_early_new(uct_angara_early_t      *early,
                                             uct_angara_early_pool_t *pool, uint8_t id,
                                             uct_angara_early_kind_t kind, size_t length,
                                             int is_copied)
{
    size_t                  size = is_copied ? length_with_copied(length) : length;
    uct_angara_early_msg_t *msg  = NULL;

    if (uct_angara_early_has_room(early, pool, length) &&
        (sizeof(*msg) + size <= pool->max - pool->used)) {
        msg = malloc(sizeof(*msg) + size);
    }
    if (msg == NULL) {
        return NULL;
    }

    msg->next   = NULL;
    msg->pool   = pool;
    msg->copied = NULL;
    msg->length = length;
    msg->id     = id;
    msg->kind   = kind;
    if (is_copied) {
        msg->copied = (uct_angara_copied_t *)((char *)(msg + 1) + size) - 1;
    }
    pool->used += sizeof(*msg) + size;
    return msg;
}

void uct_angara_early_drop(uct_angara_early_msg_t *msg)
{
    size_t size = msg->copied != NULL ? length_with_copied(msg->length) : msg->length;

    msg->pool->used -= sizeof(*msg) + size;
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
    uct_angara_early_msg_t *msg = uct_angara_early_new(early, pool, id, kind, length, 0);

    if (msg == NULL) {
        early->refused = length;
        return 0;
    }

    if (length > 0) {
        memcpy(msg->data, data, length);
    }
    uct_angara_early_push(early, msg);
    return 1;
}

static void early_forget(uct_angara_early_t *early, uct_angara_early_msg_t *msg)
{
    early->bytes -= msg->length;
    early->refused = 0;
    --early->count;
    uct_angara_early_drop(msg);
}

void uct_angara_early_pop(uct_angara_early_t *early)
{
    uct_angara_early_msg_t *msg = early->head;

    early->head = msg->next;
    early_forget(early, msg);
}

void uct_angara_early_drop_next(uct_angara_early_t *early, uct_angara_early_msg_t *prev)
{
    uct_angara_early_msg_t *msg = prev->next;

    prev->next = msg->next;
    if (early->tail == msg) {
        early->tail = prev;
    }
    early_forget(early, msg);
}
