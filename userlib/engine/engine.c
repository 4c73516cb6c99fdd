/* SPDX-License-Identifier: BSD-3-Clause */
/* The descriptor engine, see engine.h: the order without chaos, faults. */
#include "entry.h"

#include <stdlib.h>
#include <string.h>

#define WAYS       4  /* that a backend has for an operation at most, one closing after the other */
#define TURN_LIMIT 16 /* steps of one pair in one turn: one pair can't starve the others */

angara_status_t ang_entry_begin(ang_entry_t *entry)
{
    const ang_backend_t *be     = entry->pair->engine->backend;
    const ang_desc_t    *desc   = &entry->desc;
    uint64_t             length = ang_desc_bytes(desc);
    angara_status_t      status;

    /* The local end is held by nobody, so it may stay when the remote one fails. */
    switch (desc->op) {
    case ANG_OP_PUT:
        if (entry->source_read) {
            entry->local = ang_ref_host(entry->buffer);
            status       = ANGARA_OK;
        } else {
            status = be->local(entry->pair, desc->lkey, desc->loffset, length, 0, &entry->local);
        }
        break;
    case ANG_OP_PUT_INLINE:
        entry->local = ang_ref_host(entry->data);
        status       = ANGARA_OK;
        break;
    case ANG_OP_GET:
        status = be->local(entry->pair, desc->lkey, desc->loffset, length,
                           ANGARA_ACCESS_LOCAL_WRITE, &entry->local);
        break;
    default: /* ANG_OP_ATOMIC */
        entry->local = ang_ref_host(NULL);
        status       = ANGARA_OK;
        if (desc->lkey != 0) {
            status = be->local(entry->pair, desc->lkey, desc->loffset, length,
                               ANGARA_ACCESS_LOCAL_WRITE, &entry->local);
        }
        break;
    }
    if (status == ANGARA_OK) {
        status = be->remote(entry->pair, desc->rkey, desc->roffset, length, ang_op_right(desc->op),
                            &entry->local, &entry->remote);
    }
    if (status == ANGARA_OK && desc->op == ANG_OP_ATOMIC && entry->remote.addr % desc->width != 0) {
        be->release(entry->pair, &entry->remote);
        status = ANGARA_ERR_BOUNDS;
    }
    entry->begun = status == ANGARA_OK;
    return status;
}

void ang_entry_end(ang_entry_t *entry)
{
    if (entry->begun) {
        entry->pair->engine->backend->release(entry->pair, &entry->remote);
        entry->begun = 0;
    }
}

angara_status_t ang_entry_store_old(ang_entry_t *entry)
{
    ang_ref_t old  = ang_ref_host(&entry->old);
    uint64_t  done = 0;

    if (entry->desc.lkey == 0) {
        return ANGARA_OK;
    }
    return entry->pair->engine->backend->copy(entry->pair, &entry->local, &old, entry->desc.width,
                                              &done);
}

void ang_op_count(ang_engine_t *engine, unsigned op, unsigned count)
{
    ang_engine_stats_t *stats = &engine->stats;

    switch (op) {
    case ANG_OP_PUT:
    case ANG_OP_PUT_INLINE:
        stats->puts += count;
        break;
    case ANG_OP_GET:
        stats->gets += count;
        break;
    case ANG_OP_ATOMIC:
        stats->atomics += count;
        break;
    default:
        stats->markers += count;
        break;
    }
}

void ang_desc_count(ang_engine_t *engine, const ang_desc_t *desc)
{
    ang_op_count(engine, desc->op, 1);
}

/* A put, get or atomic whose two ends are resolved. */
static angara_status_t advance_data(ang_entry_t *entry)
{
    const ang_backend_t *be   = entry->pair->engine->backend;
    const ang_desc_t    *desc = &entry->desc;
    angara_status_t      status;

    if (desc->op == ANG_OP_ATOMIC) {
        if (!entry->fetched) {
            status = be->atomic(entry->pair, &entry->remote, desc, &entry->old);
            if (status != ANGARA_OK) {
                return status;
            }
            entry->fetched = 1;
        }
        return ang_entry_store_old(entry);
    }
    if (desc->op == ANG_OP_GET) {
        return be->copy(entry->pair, &entry->local, &entry->remote, entry->end, &entry->done);
    }
    return be->copy(entry->pair, &entry->remote, &entry->local, entry->end, &entry->done);
}

angara_status_t ang_entry_check_local(ang_entry_t *entry)
{
    const ang_desc_t *desc   = &entry->desc;
    uint64_t          length = ang_desc_bytes(desc);
    unsigned          access = desc->op == ANG_OP_PUT ? 0 : ANGARA_ACCESS_LOCAL_WRITE;
    ang_ref_t         local;

    if (desc->lkey == 0 || (desc->op == ANG_OP_PUT && entry->source_read)) {
        return ANGARA_OK;
    }
    return entry->pair->engine->backend->local(entry->pair, desc->lkey, desc->loffset, length,
                                               access, &local);
}

static angara_status_t advance_once(ang_entry_t *entry)
{
    angara_status_t status = entry->begun ? ang_entry_check_local(entry) : ang_entry_begin(entry);

    if (status == ANGARA_OK && __builtin_expect(ang_entry_can_fly(entry), 0)) {
        status = ang_entry_launch(entry, NULL);
        if (status == ANGARA_INPROGRESS || status == ANGARA_ERR_NO_RESOURCE) {
            ang_entry_end(entry); /* as long as it flies, the flight holds them */
            return ANGARA_INPROGRESS;
        }
        status = status == ANGARA_ERR_UNSUPPORTED ? ANGARA_OK : status;
    }
    if (status == ANGARA_OK) {
        status = advance_data(entry);
    }
    if (status != ANGARA_INPROGRESS) {
        ang_entry_end(entry);
    }
    return status;
}

angara_status_t ang_entry_advance(ang_entry_t *entry)
{
    ang_engine_t   *engine = entry->pair->engine;
    angara_status_t status;

    if (__builtin_expect(entry->failed != ANGARA_OK, 0)) {
        return entry->failed;
    }
    if (entry->desc.op == ANG_OP_MARKER || entry->desc.op == ANG_OP_MARKER_SELF) {
        status = entry->desc.op == ANG_OP_MARKER ? engine->backend->read_back(entry->pair) :
                                                   ANGARA_OK;
        if (status == ANGARA_OK) {
            engine->backend->marker_land(engine, entry->desc.loffset, entry->desc.operand);
        }
    } else {
        status = advance_once(entry);
        for (unsigned i = 0; status == ANGARA_ERR_UNSUPPORTED && i < WAYS - 1; ++i) {
            status = advance_once(entry); /* the backend goes another way now */
        }
    }
    return status;
}

void ang_pair_fault(ang_pair_t *pair, uint64_t key, angara_status_t status)
{
    pair->error = status == ANGARA_ERR_PEER_DEAD ? status : ANGARA_ERR_PAIR;
    pair->engine->stats.faults++;
    ang_pair_drop(pair);
    pair->engine->backend->fault(pair, key, status);
}

/* A self marker waits for all sources before it, of all pairs; queued ones may not be read yet. */
static int must_queue(const ang_pair_t *pair, const ang_desc_t *desc)
{
    return pair->head != NULL || (desc->op == ANG_OP_MARKER_SELF && pair->engine->pending != 0);
}

/* What was posted didn't end at once: it goes on with the queue. */
static void post_begun(const ang_entry_t *model, const void *data)
{
    ang_entry_t *entry = model->pair->engine->spare;
    size_t       room  = entry->room;

    model->pair->engine->spare = NULL;
    *entry                     = *model;
    entry->room                = room;
    ang_entry_append(entry, data);
}

/* There is no spare entry: the one that there was is queued. */
static int make_spare(ang_engine_t *engine)
{
    engine->spare = ang_entry_alloc(engine, ANG_INLINE_MAX);
    return engine->spare != NULL;
}

/* Launch an operation whose turn it is, if it can be. @return ANGARA_INPROGRESS: it flies;
 * ANGARA_OK: not now, or never; else what is wrong with it */
static angara_status_t launch_alone(ang_entry_t *entry)
{
    angara_status_t status = ang_entry_begin(entry);

    if (status == ANGARA_OK && ang_entry_can_fly(entry)) {
        status = ang_entry_launch(entry, NULL);
        if (status == ANGARA_ERR_NO_RESOURCE || status == ANGARA_ERR_UNSUPPORTED) {
            status = ANGARA_OK;
        }
    }
    ang_entry_end(entry);
    return status;
}

/*
 * An operation that goes in pieces, all of them with turns of progress: a program that starts many
 * gets to its other traffic soon. What is wrong with it by now is told at once.
 */
static angara_status_t check_long(ang_entry_t *entry)
{
    angara_status_t status = entry->failed == ANGARA_OK ? launch_alone(entry) : entry->failed;

    return status == ANGARA_OK ? ANGARA_INPROGRESS : status;
}

/* Post; perform at most `budget` bytes of it here. */
static inline angara_status_t post_within(ang_pair_t *pair, const ang_desc_t *desc,
                                          const void *data, uint64_t budget)
{
    ang_engine_t   *engine = pair->engine;
    ang_entry_t     entry;
    angara_status_t status;

    if (__builtin_expect(engine->spare == NULL, 0)) {
        if (engine->chaos != NULL) {
            ang_entry_init(&entry, pair, desc, data);
            return ang_chaos_post(pair, &entry, data,
                                  desc->op == ANG_OP_PUT_INLINE ? desc->length : 0);
        }
        if (pair->error == ANGARA_OK && !make_spare(engine)) {
            return ANGARA_ERR_NO_RESOURCE; /* an operation that ends gives it back */
        }
    }
    if (__builtin_expect(pair->error != ANGARA_OK, 0)) {
        return pair->error;
    }
    if (__builtin_expect(must_queue(pair, desc), 0)) {
        return ang_pair_queue(pair, desc, data);
    }
    ang_entry_init(&entry, pair, desc, data);
    status = desc->length <= budget ? ang_entry_advance(&entry) : check_long(&entry);
    engine->stats.bytes += entry.done;
    if (__builtin_expect(status == ANGARA_OK, 1)) {
        ang_desc_count(engine, desc);
        return ANGARA_OK;
    }
    if (status == ANGARA_INPROGRESS) {
        post_begun(&entry, data);
        return ANGARA_OK;
    }
    ang_pair_fault(pair, desc->rkey, status);
    return status;
}

angara_status_t ang_engine_post(ang_pair_t *pair, const ang_desc_t *desc, const void *data)
{
    return post_within(pair, desc, data, pair->engine->turn_bytes);
}

int ang_engine_try_marker(ang_pair_t *pair, uint64_t slot, uint64_t value)
{
    ang_engine_t *engine = pair->engine;

    if (!ang_engine_is_settled(pair)) {
        return 0;
    }
    engine->backend->marker_land(engine, slot, value);
    engine->stats.markers++;
    return 1;
}

/* Hand the first of the run to the backend, at most *budget bytes. @return as batch(). */
static unsigned run_batch(ang_pair_t *pair, ang_op_t op, const ang_item_t *items, unsigned count,
                          uint64_t *budget)
{
    uint64_t left  = *budget;
    unsigned sound = 0;
    unsigned done;

    while (sound < count && ang_item_check(&items[sound]) == ANGARA_OK &&
           items[sound].length <= left) {
        left -= items[sound++].length;
    }
    done = pair->engine->backend->batch(pair, op, items, sound);
    if (done == ANG_BATCH_QUEUE) {
        return done;
    }
    for (unsigned i = 0; i < done; ++i) {
        pair->engine->stats.bytes += items[i].length;
        *budget -= items[i].length;
    }
    ang_op_count(pair->engine, op, done);
    return done;
}

angara_status_t ang_engine_post_batch(ang_pair_t *pair, ang_op_t op, const ang_item_t *items,
                                      unsigned count, unsigned *posted_p)
{
    ang_engine_t   *engine = pair->engine;
    uint64_t        budget = engine->turn_bytes;
    angara_status_t status = ANGARA_OK;
    unsigned        posted = 0;
    int             queues = 0;

    if (count > 1 && engine->chaos == NULL && pair->error == ANGARA_OK) {
        if (pair->head != NULL) {
            queues = engine->backend->runs != NULL && engine->backend->runs(pair, op, items, count);
        } else if (engine->backend->batch != NULL) {
            posted = run_batch(pair, op, items, count, &budget);
            queues = posted == ANG_BATCH_QUEUE;
            posted = queues ? 0 : posted;
        }
    }
    if (queues) {
        posted = ang_pair_queue_run(pair, op, items, count);
        status = posted < count ? ANGARA_ERR_NO_RESOURCE : ANGARA_OK;
    }
    while (posted < count && status == ANGARA_OK) {
        ang_desc_t desc = ang_item_desc(op, &items[posted]);

        status = post_within(pair, &desc, NULL, budget);
        budget -= desc.length < budget ? desc.length : budget;
        posted += status == ANGARA_OK;
    }
    *posted_p = posted;
    return status;
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* A self marker waits for what was posted before it, to any pair; not for what came later. */
static int self_marker_ready(const ang_entry_t *marker)
{
    for (const ang_pair_t *pair = marker->pair->engine->pairs; pair != NULL; pair = pair->next) {
        if (pair->head != NULL && pair->head->sequence < marker->sequence) {
            return 0;
        }
    }
    return 1;
}

/* How far the entry may go with so many bytes. @return 0: not at all in this turn. */
static int set_piece(ang_entry_t *entry, uint64_t budget)
{
    uint64_t length = entry->desc.length;
    uint64_t left   = ang_desc_moves(&entry->desc) ? length - entry->done : 0;

    entry->end = length;
    if (left <= budget) {
        return 1;
    }
    if (length > ANG_WORD_BYTES) { /* a word is not torn */
        entry->end = entry->done + budget;
    }
    return budget != 0;
}

/* Look after the operations that fly. @return how many have landed */
static unsigned pair_land(ang_pair_t *pair)
{
    unsigned        count = 0;
    angara_status_t status;

    while (pair->head != NULL && pair->head->flies) {
        status = ang_entry_land(pair->head);
        if (status == ANGARA_INPROGRESS) {
            pair->engine->looks++;
            break;
        }
        if (status == ANGARA_ERR_NO_RESOURCE) {
            (void)launch_alone(pair->head); /* else its turn has come */
            break;
        }
        pair->engine->stats.bytes += pair->head->done;
        pair->refused = NULL;
        count++;
        if (status != ANGARA_OK) {
            ang_pair_fault(pair, pair->head->desc.rkey, status);
            break;
        }
        ang_pair_pop(pair, 1);
    }
    return count;
}

unsigned ang_engine_guest_land(ang_engine_t *engine, unsigned *flying_p)
{
    unsigned count = 0;

    for (ang_pair_t *pair = engine->pairs; pair != NULL; pair = pair->next) {
        count += pair_land(pair);
        *flying_p += pair->head != NULL && pair->head->flies;
    }
    return count;
}

/* What was performed along with the operation that has just ended, as far as *budget bytes go; the
 * rest is for the next turn. @return how many */
static unsigned pair_along(ang_pair_t *pair, uint64_t *budget)
{
    const ang_backend_t *be    = pair->engine->backend;
    ang_engine_stats_t  *stats = &pair->engine->stats;
    unsigned             count = 0, done, left;
    uint64_t             bytes;
    ang_entry_t         *head;

    while (be->along != NULL && (head = pair->head) != NULL) {
        if (head->run_count != 0 && be->along_run != NULL) {
            left  = head->run_count - head->run_at;
            bytes = *budget;
            done  = be->along_run(pair, head->desc.op, ang_run_items(head), left, budget);
            bytes -= *budget;
        } else {
            left  = 1;
            done  = be->along(pair, &head->desc, budget) != 0;
            bytes = head->desc.length;
        }
        if (done == 0) {
            break;
        }
        stats->bytes += bytes;
        count += done;
        ang_pair_pop(pair, done);
        if (done < left) {
            break;
        }
    }
    return count;
}

/* Advance the pair's operations by at most *budget bytes. @return how many steps were made. */
static unsigned pair_progress(ang_pair_t *pair, uint64_t *budget)
{
    unsigned        count = pair_land(pair);
    ang_entry_t    *entry;
    angara_status_t status;
    uint64_t        moved;

    while ((entry = pair->head) != NULL && count < TURN_LIMIT) {
        if (entry->flies || (entry->desc.op == ANG_OP_MARKER_SELF && !self_marker_ready(entry)) ||
            !set_piece(entry, *budget)) {
            break;
        }
        moved  = entry->done;
        status = ang_entry_advance(entry);
        moved  = entry->done - moved;
        *budget -= moved < *budget ? moved : *budget;
        pair->engine->stats.bytes += moved;
        if (status == ANGARA_INPROGRESS) {
            count += moved != 0 || entry->flies;
            break;
        }
        count++;
        if (status != ANGARA_OK) {
            ang_pair_fault(pair, entry->desc.rkey, status);
            break;
        }
        if (entry->end < entry->desc.length && entry->done < entry->desc.length) {
            break;
        }
        ang_pair_pop(pair, 1);
        count += pair_along(pair, budget);
    }
    return count + ang_pair_launch(pair);
}

unsigned ang_engine_pair_progress(ang_pair_t *pair, uint64_t budget)
{
    return pair->engine->chaos == NULL ? pair_progress(pair, &budget) : 0;
}

unsigned ang_engine_progress(ang_engine_t *engine)
{
    uint64_t    budget = engine->turn_bytes;
    unsigned    count  = 0;
    ang_pair_t *first, *pair;

    if (__builtin_expect(engine->pending == 0, 1)) {
        return 0;
    }
    if (engine->chaos != NULL) {
        return ang_chaos_progress(engine);
    }
    /* The next turn begins with another pair: each comes first at times, with all the bytes. */
    first = engine->turn != NULL ? engine->turn : engine->pairs;
    pair  = first;
    do {
        count += pair_progress(pair, &budget);
        pair = pair->next != NULL ? pair->next : engine->pairs;
    } while (budget != 0 && pair != first);
    engine->turn = pair != first ? pair : pair->next;
    return count;
}

angara_status_t ang_engine_post_window(ang_pair_t *pair, uint64_t offset, const void *src,
                                       size_t length, uint64_t flag_offset, uint64_t flag,
                                       unsigned flag_width)
{
    ang_desc_t  desc = {.roffset = offset, .length = length};
    ang_entry_t entry;

    ang_entry_init(&entry, pair, &desc, src);
    entry.failed      = ANGARA_OK; /* no descriptor that can be wrong */
    entry.is_window   = 1;
    entry.flag_offset = flag_offset;
    entry.flag        = flag;
    entry.flag_width  = flag_width;
    return ang_chaos_post(pair, &entry, src, length);
}

angara_status_t ang_engine_init(ang_engine_t *engine, const ang_backend_t *backend, void *ctx,
                                unsigned limit, uint64_t turn_bytes, uint64_t chaos_seed,
                                unsigned delay_us)
{
    memset(engine, 0, sizeof(*engine));
    engine->backend    = backend;
    engine->ctx        = ctx;
    engine->limit      = limit;
    engine->turn_bytes = turn_bytes;
    pthread_mutex_init(&engine->lock, NULL);
    if (chaos_seed != 0) {
        return ang_chaos_start(engine, chaos_seed, delay_us);
    }
    return make_spare(engine) ? ANGARA_OK : ANGARA_ERR_NO_MEMORY;
}

void ang_engine_cleanup(ang_engine_t *engine)
{
    ang_entry_t *entry;

    if (engine->chaos != NULL) {
        ang_chaos_stop(engine);
    }
    for (unsigned kind = 0; kind < ANG_ENTRY_KINDS; ++kind) {
        while ((entry = engine->kept[kind]) != NULL) {
            engine->kept[kind] = entry->next;
            free(entry);
        }
    }
    free(engine->spare);
    pthread_mutex_destroy(&engine->lock);
}
