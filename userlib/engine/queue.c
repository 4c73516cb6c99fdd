/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The entries of the pairs' queues without chaos: where they come from, how they are queued and
 * end. A run is one entry for several operations: `desc` is the one whose turn it is, the others
 * are items behind the entry. See engine.h.
 */
#include "entry.h"

#include <stdlib.h>
#include <string.h>

/* ---- where entries are kept ------------------------------------------------------------------ */

/*
 * Entries that have ended are kept for the next ones: of each kind so many, with room for so many
 * bytes. Given back to the C library they would be the heap's end, which it returns to the kernel,
 * and asks for again, with each of a stream.
 */
static const struct {
    size_t   room;
    unsigned most;
} kinds[ANG_ENTRY_KINDS] = {{64, 128}, {512, 64}, {ANG_INLINE_MAX, 64}};

static unsigned entry_kind(size_t bytes)
{
    unsigned kind = 0;

    while (bytes > kinds[kind].room) {
        ++kind;
    }
    return kind;
}

static ang_entry_t *entry_new(unsigned kind)
{
    ang_entry_t *entry = malloc(sizeof(*entry) + kinds[kind].room);

    if (entry != NULL) {
        entry->room = kinds[kind].room;
    }
    return entry;
}

ang_entry_t *ang_entry_alloc(ang_engine_t *engine, size_t bytes)
{
    unsigned     kind  = entry_kind(bytes);
    ang_entry_t *entry = engine->kept[kind];

    if (entry == NULL) {
        entry = entry_new(kind);
        if (entry != NULL) {
            return entry;
        }
        while (engine->kept[kind] == NULL && kind < ANG_ENTRY_KINDS - 1) {
            ++kind; /* a larger one will do */
        }
        entry = engine->kept[kind];
    }
    if (entry != NULL) {
        engine->kept[kind] = entry->next;
        engine->num_kept[kind]--;
    }
    return entry;
}

/* Keep one that has ended, or end it. In chaos mode it has no room. */
static void entry_keep(ang_engine_t *engine, ang_entry_t *entry)
{
    unsigned kind = entry_kind(entry->room);

    if (entry->room == ANG_INLINE_MAX && engine->spare == NULL) {
        engine->spare = entry;
    } else if (entry->room != 0 && engine->num_kept[kind] < kinds[kind].most) {
        entry->next        = engine->kept[kind];
        engine->kept[kind] = entry;
        engine->num_kept[kind]++;
    } else {
        free(entry);
    }
}

int ang_engine_reserve(ang_engine_t *engine)
{
    while (!ang_engine_is_reserved(engine)) {
        ang_entry_t *entry = entry_new(ANG_ENTRY_KINDS - 1);

        if (entry == NULL) {
            return 0;
        }
        entry_keep(engine, entry);
    }
    return 1;
}

/* ---- runs ------------------------------------------------------------------------------------ */

_Static_assert(ANGARA_BATCH_MAX * sizeof(ang_item_t) <= ANG_INLINE_MAX, "a run fits");

/* Operations of the entry that haven't been performed. */
static inline unsigned entry_left(const ang_entry_t *entry)
{
    return entry->run_count != 0 ? entry->run_count - entry->run_at : 1;
}

/* The turn of the item at run_at has come. */
static void run_turn(ang_entry_t *entry)
{
    entry->desc    = ang_item_desc(entry->desc.op, ang_run_items(entry));
    entry->failed  = ang_item_check(ang_run_items(entry));
    entry->done    = 0;
    entry->end     = entry->desc.length;
    entry->begun   = 0;
    entry->fetched = 0;
}

/* ---- queueing and ending --------------------------------------------------------------------- */

void ang_entry_init(ang_entry_t *entry, ang_pair_t *pair, const ang_desc_t *desc, const void *data)
{
    entry->desc        = *desc;
    entry->failed      = ang_desc_check(desc);
    entry->pair        = pair;
    entry->next        = NULL;
    entry->done        = 0;
    entry->end         = desc->length;
    entry->old         = 0;
    entry->data        = data;
    entry->begun       = 0;
    entry->fetched     = 0;
    entry->flies       = 0;
    entry->is_window   = 0;
    entry->flag_width  = 0;
    entry->source_read = 0;
    entry->buffer      = NULL;
    entry->run_count   = 0;
    entry->run_at      = 0;
}

/* Let the entry, whose fields are set, be the queue's last. */
static void link_last(ang_entry_t *entry)
{
    ang_pair_t   *pair   = entry->pair;
    ang_engine_t *engine = pair->engine;
    unsigned      count  = entry_left(entry);

    entry->sequence = engine->sequence;
    engine->sequence += count;
    *pair->tail = entry;
    pair->tail  = &entry->next;
    /* From here on the queue is shared. */
    __atomic_store_n(&engine->pending, engine->pending + count, __ATOMIC_RELEASE);
}

void ang_entry_append(ang_entry_t *entry, const void *data)
{
    if (entry->desc.op == ANG_OP_PUT_INLINE && entry->desc.length != 0) {
        entry->data = memcpy(entry + 1, data, entry->desc.length);
        if (entry->begun) {
            entry->local.addr = (uintptr_t)entry->data;
        }
    }
    link_last(entry);
}

angara_status_t ang_pair_queue(ang_pair_t *pair, const ang_desc_t *desc, const void *data)
{
    size_t        bytes  = desc->op == ANG_OP_PUT_INLINE ? desc->length : 0;
    ang_engine_t *engine = pair->engine;
    ang_entry_t  *entry  = engine->pending < engine->limit ? ang_entry_alloc(engine, bytes) : NULL;

    if (entry == NULL) {
        return ANGARA_ERR_NO_RESOURCE;
    }
    ang_entry_init(entry, pair, desc, data);
    ang_entry_append(entry, data);
    return ANGARA_OK;
}

unsigned ang_pair_queue_run(ang_pair_t *pair, ang_op_t op, const ang_item_t *items, unsigned count)
{
    ang_engine_t *engine = pair->engine;
    unsigned      room   = engine->pending < engine->limit ? engine->limit - engine->pending : 0;
    ang_entry_t  *entry;
    ang_desc_t    first;

    count = count < room ? count : room;
    if (count == 0) {
        return 0;
    }
    entry = ang_entry_alloc(engine, count * sizeof(*items));
    if (entry == NULL) {
        entry         = engine->spare;
        engine->spare = NULL;
    }
    if (entry == NULL) {
        return 0;
    }
    first = ang_item_desc(op, items);
    ang_entry_init(entry, pair, &first, NULL);
    memcpy(entry + 1, items, count * sizeof(*items));
    entry->run_count = count;
    link_last(entry);
    return count;
}

/* It has ended, or is dropped. */
static void entry_free(ang_entry_t *entry)
{
    ang_engine_t *engine = entry->pair->engine;
    unsigned      left   = entry_left(entry);

    ang_entry_ground(entry);
    ang_entry_end(entry);
    free(entry->buffer);
    entry_keep(engine, entry);
    __atomic_store_n(&engine->pending, engine->pending - left, __ATOMIC_RELEASE);
}

void ang_pair_drop(ang_pair_t *pair)
{
    ang_entry_t *entry;

    while ((entry = pair->head) != NULL) {
        pair->head = entry->next;
        entry_free(entry);
    }
    pair->tail    = &pair->head;
    pair->unread  = NULL;
    pair->refused = NULL;
}

void ang_pair_pop(ang_pair_t *pair, unsigned count)
{
    ang_entry_t  *entry  = pair->head;
    ang_engine_t *engine = pair->engine;

    ang_op_count(engine, entry->desc.op, count);
    if (entry_left(entry) > count) {
        entry->run_at += count;
        run_turn(entry);
        __atomic_store_n(&engine->pending, engine->pending - count, __ATOMIC_RELEASE);
        return;
    }
    pair->head = entry->next;
    if (pair->head == NULL) {
        pair->tail = &pair->head;
    }
    entry_free(entry);
}

/* ---- looking on ------------------------------------------------------------------------------ */

int ang_pair_next(const ang_pair_t *pair, ang_place_t *place, ang_desc_t *desc, const void **data)
{
    const ang_entry_t *entry = place->entry;
    unsigned           at    = place->at + 1;

    if (entry != NULL && at < entry->run_at) {
        at = entry->run_at;
    }
    if (pair->engine->chaos != NULL) {
        return 0;
    }
    if (entry == NULL || at >= entry->run_count) {
        entry = entry != NULL ? entry->next : pair->head;
        if (entry == NULL) {
            return 0;
        }
        at = entry->run_at;
    }
    *place = (ang_place_t){entry, at};
    if (desc == NULL) {
        return 1;
    }
    if (entry->run_count == 0) {
        *desc = entry->desc;
        *data = entry->data;
        return 1;
    }
    *desc = ang_item_desc(entry->desc.op, ang_run_items(entry) + (at - entry->run_at));
    *data = NULL;
    return 1;
}

unsigned ang_pair_next_run(const ang_pair_t *pair, ang_place_t place, ang_place_t *next,
                           ang_op_t *op, const ang_item_t **items)
{
    *next = place;
    if (!ang_pair_next(pair, next, NULL, NULL) || next->entry->run_count == 0) {
        return 0;
    }
    *op    = (ang_op_t)next->entry->desc.op;
    *items = ang_run_items(next->entry) + (next->at - next->entry->run_at);
    return next->entry->run_count - next->at;
}

int ang_entry_uses_local(const ang_entry_t *entry, uint64_t key)
{
    switch (entry->desc.op) {
    case ANG_OP_PUT:
    case ANG_OP_GET:
        for (unsigned i = 0; entry->run_at + i < entry->run_count; ++i) {
            if (ang_run_items(entry)[i].lkey == key) {
                return 1;
            }
        }
        return entry->desc.lkey == key && !(entry->desc.op == ANG_OP_PUT && entry->source_read);
    case ANG_OP_ATOMIC:
        return entry->desc.lkey == key;
    default:
        return 0;
    }
}
