/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chaos mode of the descriptor engine: for tests. Performs operations as late, as torn and as
 * reordered as the NIC model allows, and scribbles over bytes that are not delivered yet:
 *   - every entry waits a random time; ring operations of different pairs overtake each other;
 *   - window writes overtake each other and earlier ring operations, unless they touch the same
 *     8-byte word; a flag lands after the bytes of its own put and nothing else;
 *   - a put's source is read at a random time before its delivery, those of one pair in ring order;
 *     a self marker lands right behind those posted before it;
 *   - data is delivered in pieces, in random order. What is longer than a turn's bytes is read and
 *     delivered in stretches of that length, one after the other.
 * One thread per engine works on the queue, so that what was posted goes on while its poster
 * computes; the poster's own progress calls do the same work under the same lock.
 */
#include "entry.h"

#include "src/clock.h"
#include "src/log.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PIECES   6
#define SCRIBBLE_MAX 4096 /* bytes scribbled at each end of a long delivery */
#define STEPS_A_TURN 64

typedef struct ang_chaos {
    pthread_mutex_t lock;
    pthread_cond_t  work;
    pthread_t       thread;
    int             stop;
    uint64_t        random;
    uint64_t        delay_ns;
} ang_chaos_t;

static uint64_t now_ns(void)
{
    return ang_clock_ns(CLOCK_MONOTONIC);
}

/* xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators" (2016). */
static uint64_t draw(ang_chaos_t *chaos, uint64_t below)
{
    chaos->random ^= chaos->random >> 12;
    chaos->random ^= chaos->random << 25;
    chaos->random ^= chaos->random >> 27;
    return (chaos->random * 0x2545f4914f6cdd1dull >> 16) % below;
}

/* Mostly short, sometimes none, one in 64 ten times as long. */
static uint64_t draw_delay(ang_chaos_t *chaos)
{
    uint64_t kind = draw(chaos, 64);

    if (kind < 16) {
        return 0;
    }
    return draw(chaos, chaos->delay_ns + 1) * (kind == 63 ? 10 : 1);
}

void ang_engine_lock(ang_engine_t *engine)
{
    pthread_mutex_lock(engine->chaos != NULL ? &engine->chaos->lock : &engine->lock);
}

void ang_engine_unlock(ang_engine_t *engine)
{
    pthread_mutex_unlock(engine->chaos != NULL ? &engine->chaos->lock : &engine->lock);
}

/* ---- posting ------------------------------------------------------------------------------- */

static ang_entry_t *entry_copy(const ang_entry_t *model, const void *bytes, size_t length)
{
    ang_entry_t *entry = malloc(sizeof(*entry));

    if (entry == NULL) {
        return NULL;
    }
    *entry = *model;
    if (length != 0) {
        entry->buffer = malloc(length);
        if (entry->buffer == NULL) {
            free(entry);
            return NULL;
        }
        memcpy(entry->buffer, bytes, length);
    }
    entry->data      = entry->buffer;
    entry->pieces    = 0;
    entry->delivered = 0;
    entry->room      = 0;
    return entry;
}

static void enqueue(ang_chaos_t *chaos, ang_pair_t *pair, ang_entry_t *entry)
{
    entry->sequence = pair->engine->sequence++;
    entry->due      = now_ns() + draw_delay(chaos);
    if (entry->is_window) {
        *pair->window_tail = entry;
        pair->window_tail  = &entry->next;
    } else {
        *pair->tail = entry;
        pair->tail  = &entry->next;
        if (pair->unread == NULL) {
            pair->unread = entry;
        }
    }
    if (pair->engine->pending++ == 0) {
        pthread_cond_signal(&chaos->work);
    }
}

angara_status_t ang_chaos_post(ang_pair_t *pair, const ang_entry_t *model, const void *bytes,
                               size_t length)
{
    ang_engine_t   *engine = pair->engine;
    ang_chaos_t    *chaos  = engine->chaos;
    angara_status_t status = ANGARA_OK;
    ang_entry_t    *entry;

    pthread_mutex_lock(&chaos->lock);
    if (pair->error != ANGARA_OK && (!model->is_window || pair->error == ANGARA_ERR_PEER_DEAD)) {
        status = pair->error;
    } else if (engine->pending >= engine->limit) {
        status = ANGARA_ERR_NO_RESOURCE;
    } else if ((entry = entry_copy(model, bytes, length)) == NULL) {
        status = engine->pending != 0 ? ANGARA_ERR_NO_RESOURCE : ANGARA_ERR_NO_MEMORY;
    } else {
        enqueue(chaos, pair, entry);
    }
    pthread_mutex_unlock(&chaos->lock);
    return status;
}

/* ---- reading of sources, in ring order of each pair ------------------------------------------ */

/* Have all sources been read that were posted before the self marker? */
static int sources_read(const ang_entry_t *marker)
{
    for (const ang_pair_t *pair = marker->pair->engine->pairs; pair != NULL; pair = pair->next) {
        if (pair->unread != NULL && pair->unread->sequence < marker->sequence) {
            return 0;
        }
    }
    return 1;
}

/*
 * Copy the next stretch of a put's source. A fault is found here, as on a NIC that reads first, and
 * told in order. ANGARA_INPROGRESS: there is more. ANGARA_ERR_NO_RESOURCE: no memory to copy it to.
 */
static angara_status_t read_source(ang_entry_t *entry)
{
    const ang_backend_t *be   = entry->pair->engine->backend;
    uint64_t             left = entry->desc.length - entry->done;
    uint64_t             turn = entry->pair->engine->turn_bytes;
    ang_ref_t            source, buffer;
    angara_status_t      status;

    status = be->local(entry->pair, entry->desc.lkey, entry->desc.loffset, entry->desc.length, 0,
                       &source);
    if (status != ANGARA_OK) {
        return status;
    }
    if (entry->buffer == NULL) {
        entry->buffer = malloc(entry->desc.length + 1);
        if (entry->buffer == NULL) {
            return ANGARA_ERR_NO_RESOURCE;
        }
    }
    buffer = ang_ref_host(entry->buffer);
    status = be->copy(entry->pair, &buffer, &source, entry->done + (left < turn ? left : turn),
                      &entry->done);
    if (status == ANGARA_OK && left > turn) {
        return ANGARA_INPROGRESS;
    }
    entry->done = 0; /* of the delivery, from now on */
    return status;
}

static void unlink_ring_head(ang_pair_t *pair)
{
    ang_entry_t *entry = pair->head;

    pair->head = entry->next;
    if (pair->head == NULL) {
        pair->tail = &pair->head;
    }
    pair->engine->pending--;
    free(entry->buffer);
    free(entry);
}

static unsigned sources_progress(ang_chaos_t *chaos, ang_pair_t *pair)
{
    ang_engine_t *engine = pair->engine;
    ang_entry_t  *entry  = pair->unread;

    if (entry == NULL || now_ns() < entry->due) {
        return 0;
    }
    if (entry->desc.op == ANG_OP_PUT && entry->failed == ANGARA_OK) {
        entry->failed = read_source(entry);
        if (entry->failed == ANGARA_INPROGRESS) {
            entry->failed = ANGARA_OK;
            return 1;
        }
        if (entry->failed == ANGARA_ERR_NO_RESOURCE) { /* perhaps later */
            entry->failed = ANGARA_OK;
            entry->due    = now_ns() + chaos->delay_ns;
            return 0;
        }
    } else if (entry->desc.op == ANG_OP_MARKER_SELF && entry->failed == ANGARA_OK) {
        if (!sources_read(entry)) {
            return 0;
        }
        engine->backend->marker_land(engine, entry->desc.loffset, entry->desc.operand);
    }
    pair->unread       = entry->next;
    entry->source_read = 1;
    entry->due         = now_ns() + draw_delay(chaos);
    return 1;
}

/* ---- delivery -------------------------------------------------------------------------------- */

/* Where a piece of [done, end) begins: at a multiple of `unit` bytes of the remote end. */
static uint64_t piece_begin(const ang_entry_t *entry, unsigned unit, unsigned piece)
{
    uint64_t at   = (entry->end - entry->done) * piece / entry->pieces;
    uint64_t past = (entry->desc.roffset + entry->done + at) % unit;

    if (piece == entry->pieces) {
        return entry->end;
    }
    return entry->done + (at > past ? at - past : 0);
}

/* A piece of a window write may be empty. */
static void piece_range(const ang_entry_t *entry, unsigned unit, unsigned piece, uint64_t *start,
                        uint64_t *end)
{
    *start = piece_begin(entry, unit, piece);
    *end   = piece_begin(entry, unit, piece + 1);
}

static unsigned choose_piece(ang_chaos_t *chaos, const ang_entry_t *entry)
{
    unsigned piece = (unsigned)draw(chaos, entry->pieces);

    while (entry->delivered & (1u << piece)) {
        piece = (piece + 1) % entry->pieces;
    }
    return piece;
}

/* A get of an aligned word reads it at once (nic-model.md); shorter words are never torn here. */
static int gets_word(const ang_entry_t *entry)
{
    return entry->desc.op == ANG_OP_GET && entry->desc.length == ANG_WORD_BYTES &&
           entry->remote.addr % ANG_WORD_BYTES == 0 && entry->local.addr % ANG_WORD_BYTES == 0;
}

static void choose_pieces(ang_chaos_t *chaos, ang_entry_t *entry)
{
    entry->pieces    = 1;
    entry->delivered = 0;
    if (entry->end - entry->done > MAX_PIECES && !gets_word(entry)) {
        entry->pieces += (unsigned)draw(chaos, MAX_PIECES);
    }
}

static int all_delivered(const ang_entry_t *entry)
{
    return entry->delivered == (1u << entry->pieces) - 1;
}

/* Garbage into [0, length) of a stretch, or its two ends if it is long. */
static angara_status_t scribble(ang_chaos_t *chaos, ang_entry_t *entry, const ang_ref_t *dst)
{
    const ang_backend_t *be = entry->pair->engine->backend;
    uint8_t              garbage[SCRIBBLE_MAX];
    uint64_t             length = entry->desc.length;
    uint64_t             part   = length < SCRIBBLE_MAX ? length : SCRIBBLE_MAX;
    ang_ref_t            tail   = *dst;
    uint64_t             done   = 0;
    ang_ref_t            src;
    angara_status_t      status;

    memset(garbage, (int)(0xa0 | draw(chaos, 16)), part);
    src    = ang_ref_host(garbage);
    status = be->copy(entry->pair, dst, &src, part, &done);
    if (status != ANGARA_OK) {
        return status;
    }
    tail.addr += length - part;
    done = 0;
    return be->copy(entry->pair, &tail, &src, part, &done);
}

/* One step of a put or get whose ends the backend can slice: garbage, or a piece. */
static angara_status_t deliver_step(ang_chaos_t *chaos, ang_entry_t *entry)
{
    const ang_engine_t *engine = entry->pair->engine;
    int                 get    = entry->desc.op == ANG_OP_GET;
    const ang_ref_t    *dst    = get ? &entry->local : &entry->remote;
    const ang_ref_t    *src    = get ? &entry->remote : &entry->local;
    uint64_t            start, end;
    unsigned            piece;
    angara_status_t     status;

    if (entry->pieces == 0) {
        end        = entry->desc.length - entry->done;
        entry->end = entry->done + (end < engine->turn_bytes ? end : engine->turn_bytes);
        choose_pieces(chaos, entry);
        if (entry->done == 0 && entry->desc.length != 0 && draw(chaos, 2)) {
            entry->due = now_ns() + draw_delay(chaos);
            status     = scribble(chaos, entry, dst);
            return status == ANGARA_OK ? ANGARA_INPROGRESS : status;
        }
    }
    piece = choose_piece(chaos, entry);
    piece_range(entry, 1, piece, &start, &end);
    status = engine->backend->copy(entry->pair, dst, src, end, &start);
    if (status != ANGARA_OK) {
        return status;
    }
    entry->delivered |= 1u << piece;
    if (all_delivered(entry)) {
        entry->done   = entry->end;
        entry->pieces = 0;
        if (entry->done == entry->desc.length) {
            return ANGARA_OK;
        }
    }
    entry->due = now_ns() + draw_delay(chaos) / MAX_PIECES;
    return ANGARA_INPROGRESS;
}

/* Ends that only a peer's agent can move are not sliced: their kind says so by a zero address. */
static int can_slice(const ang_entry_t *entry)
{
    return entry->local.addr != 0 && entry->remote.addr != 0;
}

static angara_status_t advance_chaotic(ang_chaos_t *chaos, ang_entry_t *entry)
{
    angara_status_t status;

    if (entry->failed != ANGARA_OK || !ang_desc_moves(&entry->desc) || entry->begun) {
        return ang_entry_advance(entry);
    }
    status = ang_entry_begin(entry);
    if (status != ANGARA_OK) {
        return status;
    }
    if (!can_slice(entry)) {
        entry->end = entry->desc.length;
        return ang_entry_advance(entry);
    }
    status = deliver_step(chaos, entry);
    ang_entry_end(entry);
    if (status == ANGARA_ERR_UNSUPPORTED) { /* what isn't delivered yet again, the other way */
        entry->pieces = 0;
        return ANGARA_INPROGRESS;
    }
    return status;
}

static unsigned ring_progress(ang_chaos_t *chaos, ang_pair_t *pair)
{
    ang_entry_t    *entry = pair->head;
    angara_status_t status;

    if (entry == NULL || !entry->source_read || now_ns() < entry->due ||
        (pair->window != NULL && pair->window->sequence < entry->sequence)) {
        return 0;
    }
    if (entry->desc.op == ANG_OP_MARKER_SELF && entry->failed == ANGARA_OK) {
        /* It landed when its turn to be read came. */
        ang_desc_count(entry->pair->engine, &entry->desc);
        unlink_ring_head(pair);
        return 1;
    }
    status = advance_chaotic(chaos, entry);
    if (status == ANGARA_INPROGRESS) {
        return 0;
    }
    if (status != ANGARA_OK) {
        ang_pair_fault(pair, entry->desc.rkey, status);
        return 1;
    }
    ang_desc_count(pair->engine, &entry->desc);
    pair->engine->stats.bytes += entry->done;
    unlink_ring_head(pair);
    return 1;
}

/* ---- window writes --------------------------------------------------------------------------- */

static int overlap(uint64_t a, uint64_t a_length, uint64_t b, uint64_t b_length)
{
    return a_length != 0 && b_length != 0 && a / 8 <= (b + b_length - 1) / 8 &&
           b / 8 <= (a + a_length - 1) / 8;
}

/* Do two window writes touch a common 8-byte word? */
static int same_word(const ang_entry_t *a, const ang_entry_t *b)
{
    return overlap(a->desc.roffset, a->desc.length, b->desc.roffset, b->desc.length) ||
           overlap(a->desc.roffset, a->desc.length, b->flag_offset, b->flag_width) ||
           overlap(a->flag_offset, a->flag_width, b->desc.roffset, b->desc.length) ||
           overlap(a->flag_offset, a->flag_width, b->flag_offset, b->flag_width);
}

static int window_blocked(const ang_pair_t *pair, const ang_entry_t *entry)
{
    for (const ang_entry_t *earlier = pair->window; earlier != entry; earlier = earlier->next) {
        if (same_word(earlier, entry)) {
            return 1;
        }
    }
    return 0;
}

/* @return 1 when all of it has landed. */
static int window_step(ang_chaos_t *chaos, ang_entry_t *entry)
{
    const ang_backend_t *be = entry->pair->engine->backend;
    uint8_t              garbage[SCRIBBLE_MAX];
    uint64_t             start, end;
    unsigned             piece;

    if (entry->desc.length != 0 && !(entry->pieces != 0 && all_delivered(entry))) {
        if (entry->pieces == 0) {
            choose_pieces(chaos, entry);
            if (entry->desc.length <= sizeof(garbage) && draw(chaos, 2)) {
                memset(garbage, (int)(0xa0 | draw(chaos, 16)), entry->desc.length);
                be->window_write(entry->pair, entry->desc.roffset, garbage, entry->desc.length);
                return 0;
            }
        }
        piece = choose_piece(chaos, entry);
        piece_range(entry, ANG_WORD_BYTES, piece, &start, &end);
        if (start < end) {
            be->window_write(entry->pair, entry->desc.roffset + start,
                             (const char *)entry->data + start, end - start);
        }
        entry->delivered |= 1u << piece;
        if (!all_delivered(entry) || draw(chaos, 2)) {
            entry->due = now_ns() + draw_delay(chaos) / MAX_PIECES;
            return 0;
        }
    }
    if (entry->flag_width != 0) {
        be->window_word(entry->pair, entry->flag_offset, entry->flag, entry->flag_width);
    }
    if (entry->flag_width == ANG_WORD_BYTES) { /* as on a NIC: a shorter word wakes nobody */
        be->window_wake(entry->pair);
    }
    return 1;
}

static unsigned windows_progress(ang_chaos_t *chaos, ang_pair_t *pair)
{
    ang_entry_t **link  = &pair->window, *entry;
    unsigned      count = 0;
    uint64_t      now   = now_ns();

    while ((entry = *link) != NULL) {
        if (entry->due > now || window_blocked(pair, entry) || !window_step(chaos, entry)) {
            link = &entry->next;
            continue;
        }
        *link = entry->next;
        if (*link == NULL) {
            pair->window_tail = link;
        }
        pair->engine->pending--;
        free(entry->buffer);
        free(entry);
        count++;
    }
    return count;
}

void ang_chaos_land_windows(ang_pair_t *pair)
{
    while (pair->window != NULL) {
        for (ang_entry_t *entry = pair->window; entry != NULL; entry = entry->next) {
            entry->due = 0;
        }
        windows_progress(pair->engine->chaos, pair);
    }
}

void ang_chaos_drop_windows(ang_pair_t *pair)
{
    ang_entry_t *entry;

    while ((entry = pair->window) != NULL) {
        pair->window = entry->next;
        pair->engine->pending--;
        free(entry->buffer);
        free(entry);
    }
    pair->window_tail = &pair->window;
}

/* ---- the two callers ------------------------------------------------------------------------- */

static unsigned chaos_turn(ang_engine_t *engine)
{
    unsigned count = 0, step, i;

    for (i = 0; i < STEPS_A_TURN && engine->pending != 0; ++i) {
        step = 0;
        for (ang_pair_t *pair = engine->pairs; pair != NULL; pair = pair->next) {
            step += sources_progress(engine->chaos, pair);
            if (draw(engine->chaos, 4) != 0) { /* now one, now the other first */
                step += windows_progress(engine->chaos, pair);
                step += ring_progress(engine->chaos, pair);
            } else {
                step += ring_progress(engine->chaos, pair);
            }
        }
        count += step;
        if (step == 0) {
            break;
        }
    }
    return count;
}

unsigned ang_chaos_progress(ang_engine_t *engine)
{
    unsigned count;

    pthread_mutex_lock(&engine->chaos->lock);
    count = chaos_turn(engine);
    pthread_mutex_unlock(&engine->chaos->lock);
    return count;
}

static void *chaos_thread(void *arg)
{
    static const struct timespec nap    = {0, 20000};
    ang_engine_t                *engine = arg;
    ang_chaos_t                 *chaos  = engine->chaos;

    pthread_mutex_lock(&chaos->lock);
    while (!chaos->stop) {
        if (engine->pending == 0) {
            pthread_cond_wait(&chaos->work, &chaos->lock);
        } else {
            chaos_turn(engine);
            pthread_mutex_unlock(&chaos->lock);
            nanosleep(&nap, NULL);
            pthread_mutex_lock(&chaos->lock);
        }
    }
    pthread_mutex_unlock(&chaos->lock);
    return NULL;
}

angara_status_t ang_chaos_start(ang_engine_t *engine, uint64_t seed, unsigned delay_us)
{
    ang_chaos_t *chaos = calloc(1, sizeof(*chaos));
    sigset_t     all, old;
    int          error;

    if (chaos == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&chaos->lock, NULL);
    pthread_cond_init(&chaos->work, NULL);
    chaos->random   = seed * 0x9e3779b97f4a7c15ull | 1;
    chaos->delay_ns = (uint64_t)delay_us * 1000;
    engine->chaos   = chaos;
    sigfillset(&all); /* the program's signal handlers run in the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&chaos->thread, NULL, chaos_thread, engine);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error != 0) {
        ang_error("the thread of chaos mode can't be started: %s. Check ulimit -u and ulimit -v",
                  strerror(error));
        engine->chaos = NULL;
        pthread_cond_destroy(&chaos->work);
        pthread_mutex_destroy(&chaos->lock);
        free(chaos);
        return ANGARA_ERR_LIMIT;
    }
    return ANGARA_OK;
}

void ang_chaos_stop(ang_engine_t *engine)
{
    ang_chaos_t *chaos = engine->chaos;

    pthread_mutex_lock(&chaos->lock);
    chaos->stop = 1;
    pthread_cond_signal(&chaos->work);
    pthread_mutex_unlock(&chaos->lock);
    pthread_join(chaos->thread, NULL);
    pthread_cond_destroy(&chaos->work);
    pthread_mutex_destroy(&chaos->lock);
    engine->chaos = NULL;
    free(chaos);
}
