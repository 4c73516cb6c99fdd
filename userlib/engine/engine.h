/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The descriptor engine: performs ring operations in the order that the NIC model promises, and, in
 * chaos mode, in the worst order that it allows. Knows no fabric: all data goes through a backend.
 *
 * Invariants
 *   - One pair's ring operations are performed in the order posted, each wholly before the next.
 *   - A ring operation is performed after the window writes posted to the pair before it.
 *   - Sources of one pair are read in the order posted. A self marker lands when all sources posted
 *     before it, of all pairs, have been read. Nothing else is promised across pairs.
 *   - No post and no turn of ang_engine_progress() moves more than `turn_bytes`. What is longer, or
 *     the part of a batch that is beyond it, is queued and moved in pieces; the pairs take turns.
 *     What a backend puts aside of queued operations (ang_pair_next()) comes on top.
 *   - A piece resolves both ends anew and lets them go: nothing is held between two pieces, so who
 *     stops between them holds up nobody. A key that has gone by then is a fault like any other;
 *     what was moved before stays moved.
 *   - An operation faults at its turn, after all that was posted to the pair before it. After a
 *     fault nothing posted to the pair is performed until ang_engine_pair_reset(): so no marker
 *     behind a faulted operation arrives.
 *   - What a backend launches (the copy of a GPU) isn't moved by the CPU: all of it flies at once,
 *     whatever turn_bytes is. Several operations at the head of a pair's queue may fly; they land
 *     in the order posted, and what isn't launched begins when all before it have landed. If one
 *     fails, those launched behind it may have been performed. Who drops one waits for its end.
 *     The same holds for what a backend performs together with the first of a queue
 *     (ang_pair_next()), where that one fails at the near end.
 *   - What begins can be queued: an entry for it is there before. A post that finds no memory for
 *     one says so, and nothing has begun.
 *   - A run, one entry for several operations, is as if each had been queued by itself; but none of
 *     it flies.
 *   - A descriptor is checked before anything is touched; what is checked is the engine's own copy.
 * Without chaos everything else is performed within the post, unless the backend answers
 * ANGARA_INPROGRESS. What is posted to a pair that has something queued queues up behind it.
 * Locking: the caller serialises all calls of an engine, but for ang_engine_guest_enter(), which
 * another thread (a guest) may call at any time. In chaos mode the
 * engine has a thread and a lock of its own, which backend functions are called under. Without
 * chaos the queues belong to whoever holds the lock while there is something in them, and to the
 * caller while there isn't: only he can change that. So he posts and makes progress under the lock
 * if ang_engine_is_shared(), and else without. As long as a guest is in, the engine is shared, also
 * when he has emptied the queues.
 */
#ifndef ANG_ENGINE_H
#define ANG_ENGINE_H

#include "desc.h"

#include <angara/angara.h>
#include <pthread.h>

/* The right that an operation needs at the far end; 0: it touches no memory there. */
static inline unsigned ang_op_right(unsigned op)
{
    switch (op) {
    case ANG_OP_PUT:
    case ANG_OP_PUT_INLINE:
        return ANGARA_ACCESS_REMOTE_WRITE;
    case ANG_OP_GET:
        return ANGARA_ACCESS_REMOTE_READ;
    case ANG_OP_ATOMIC:
        return ANGARA_ACCESS_REMOTE_ATOMIC;
    default:
        return 0;
    }
}

/* ANGARA_OK if the item makes sense by itself, */
static inline angara_status_t ang_item_check(const ang_item_t *item)
{
    return item->roffset + item->length < item->roffset ||
                   item->loffset + item->length < item->loffset ?
               ANGARA_ERR_BOUNDS :
               ANGARA_OK;
}

/* and the same of a descriptor. */
static inline angara_status_t ang_desc_check(const ang_desc_t *desc)
{
    if (desc->op == 0 || desc->op >= ANG_OP_LAST || desc->flags != 0) {
        return ANGARA_ERR_INVALID;
    }
    if (desc->op == ANG_OP_ATOMIC &&
        (desc->atomic >= ANGARA_ATOMIC_LAST || (desc->width != 4 && desc->width != 8))) {
        return ANGARA_ERR_INVALID;
    }
    if (desc->roffset + desc->length < desc->roffset ||
        desc->loffset + desc->length < desc->loffset) {
        return ANGARA_ERR_BOUNDS;
    }
    return ANGARA_OK;
}

/* Bytes that an operation touches at either end. */
static inline uint64_t ang_desc_bytes(const ang_desc_t *desc)
{
    return desc->op == ANG_OP_ATOMIC ? desc->width : desc->length;
}

/* A stretch of memory that a backend can move bytes from and to. */
typedef struct ang_ref {
    unsigned kind;   /* ANG_REF_HOST, or the backend's own kinds from ANG_REF_BACKEND */
    uint64_t addr;   /* grows with the offset in the stretch */
    uint64_t key;    /* of the region behind it */
    uint64_t offset; /* in that region */
    uint64_t length; /* of the stretch; 0 where nobody knows */
    void    *hold;   /* the backend's: what release() gives back */
} ang_ref_t;

#define ANG_REF_HOST    0 /* addr is a pointer of this process */
#define ANG_REF_BACKEND 1
#define ANG_REF_LAUNCH  0x100 /* bit of kinds that launch() takes, at one end at least */

/* An operation that flies: the backend's. */
typedef struct ang_flight {
    uint64_t opaque[14];
} ang_flight_t;

/* Memory of this process that no region is behind. */
static inline ang_ref_t ang_ref_host(const void *addr)
{
    return (ang_ref_t){.kind = ANG_REF_HOST, .addr = (uintptr_t)addr};
}

typedef struct ang_pair   ang_pair_t;
typedef struct ang_entry  ang_entry_t;
typedef struct ang_engine ang_engine_t;

/* All functions get the pair; `ctx` of the engine is pair->engine->ctx. */
#define ANG_BATCH_QUEUE (~0u) /* see batch() */

typedef struct ang_backend {
    /* Check [offset, offset + length) of a region of the own domain for `access` and give a ref. */
    angara_status_t (*local)(ang_pair_t *pair, uint64_t key, uint64_t offset, uint64_t length,
                             unsigned access, ang_ref_t *ref);
    /* The same at the pair's far end; holds off deregistration there until release(). `near`: the
     * other end, which local() has given just before. */
    angara_status_t (*remote)(ang_pair_t *pair, uint64_t key, uint64_t offset, uint64_t length,
                              unsigned access, const ang_ref_t *near, ang_ref_t *ref);
    void (*release)(ang_pair_t *pair, ang_ref_t *ref);

    /*
     * Move bytes *done to `end` of the stretches; beyond `end` only what this CPU doesn't move, and
     * nothing in chaos mode. ANGARA_INPROGRESS: call again with the same ends; `end` may be another
     * one. ANGARA_ERR_UNSUPPORTED: that way is
     * closed by now, both ends must be resolved again.
     */
    angara_status_t (*copy)(ang_pair_t *pair, const ang_ref_t *dst, const ang_ref_t *src,
                            uint64_t end, uint64_t *done);
    /*
     * Start to move a whole put or get, and go on by itself; both ends stay valid until it has
     * landed, though they are released. `after`: one of the pair that was launched before, and
     * hasn't been seen to land: this one must land later, unless the order doesn't matter.
     * ANGARA_INPROGRESS: it flies; ANGARA_ERR_NO_RESOURCE: perhaps later; ANGARA_ERR_UNSUPPORTED:
     * use copy().
     */
    angara_status_t (*launch)(ang_pair_t *pair, unsigned op, const ang_ref_t *local,
                              const ang_ref_t *remote, uint64_t length, const ang_flight_t *after,
                              ang_flight_t *flight);
    /* Is it better to launch several behind this flight one after the other than one by one? */
    int (*gathers)(ang_pair_t *pair, const ang_flight_t *flight);
    /* The last one of a run that was launched behind another one: none waits for more. */
    void (*launched)(ang_pair_t *pair, ang_flight_t *flight);
    /* ANGARA_INPROGRESS: it still flies; else how it ended, told once. ANGARA_ERR_NO_RESOURCE: it
     * didn't move, and has to be launched again. */
    angara_status_t (*landed)(ang_pair_t *pair, ang_flight_t *flight);
    /*
     * Perform a run of puts, or a run of gets, whose descriptors are sound by themselves, all at
     * once: check, move and release. @return how many from the first on were performed wholly;
     * what is left comes again one by one, and only then may fault. ANG_BATCH_QUEUE: none, and all
     * are to be queued, and come with turns of progress. NULL: never.
     */
    unsigned (*batch)(ang_pair_t *pair, ang_op_t op, const ang_item_t *items, unsigned count);
    /* All are to be queued behind others: may they be one entry, of which each begins when its turn
     * comes? 0: each by itself, so that they can be launched together. NULL: never. */
    int (*runs)(ang_pair_t *pair, ang_op_t op, const ang_item_t *items, unsigned count);
    /*
     * An operation has been performed, and the queue goes on with this one. Was it performed along
     * with that, by a backend that looks at ang_pair_next()? 1: yes, and what it brings has been
     * stored: what moved only now is taken from *budget. 0: no, not known, or not within *budget;
     * it is begun as any other. NULL: never.
     */
    int (*along)(ang_pair_t *pair, const ang_desc_t *desc, uint64_t *budget);
    /* The same for what is left of a run. @return how many from the first on. NULL: along() */
    unsigned (*along_run)(ang_pair_t *pair, ang_op_t op, const ang_item_t *items, unsigned count,
                          uint64_t *budget);
    angara_status_t (*atomic)(ang_pair_t *pair, const ang_ref_t *ref, const ang_desc_t *desc,
                              uint64_t *old);
    /* Read back from the far end: OK once all performed before is visible there. */
    angara_status_t (*read_back)(ang_pair_t *pair);
    /* The same, if that takes no answer of anybody's: 1; else 0. NULL: it always takes one. */
    int (*read_back_now)(ang_pair_t *pair);
    void (*marker_land)(ang_engine_t *engine, uint64_t slot, uint64_t value);

    /* Window of the far end, in bounds already: plain bytes; one aligned word of 1, 2, 4 or 8. */
    void (*window_write)(ang_pair_t *pair, uint64_t offset, const void *src, size_t length);
    void (*window_word)(ang_pair_t *pair, uint64_t offset, uint64_t value, unsigned width);
    void (*window_wake)(ang_pair_t *pair);

    void (*fault)(ang_pair_t *pair, uint64_t key, angara_status_t status);
} ang_backend_t;

struct ang_pair {
    ang_engine_t      *engine;
    angara_status_t    error; /* why ring operations fail; ANGARA_OK if they don't */
    ang_entry_t       *head;  /* ring operations not yet performed, in order */
    ang_entry_t      **tail;
    const ang_entry_t *refused; /* can't be launched before one that flies has landed */
    ang_entry_t       *unread;  /* chaos: the first of them whose source isn't read yet */
    ang_entry_t       *window;  /* chaos: window writes not yet performed, in order */
    ang_entry_t      **window_tail;
    ang_pair_t        *next; /* all pairs of the engine */
};

typedef struct {
    uint64_t puts, gets, atomics, markers, faults;
    uint64_t bytes; /* moved by puts and gets, unfinished ones included */
} ang_engine_stats_t;

#define ANG_ENTRY_KINDS 3 /* by the room for bytes behind an entry */

struct ang_engine {
    const ang_backend_t *backend;
    void                *ctx;
    ang_pair_t          *pairs;
    union { /* its halves change one by one, and are read as one */
        struct {
            unsigned pending; /* operations queued */
            unsigned guest;   /* somebody else than the caller makes progress just now */
        };
        uint64_t queued;
    };
    unsigned           limit; /* of pending: the ring's length */
    ang_engine_stats_t stats;
    pthread_mutex_t    lock;       /* without chaos, see ang_engine_lock() */
    struct ang_chaos  *chaos;      /* NULL if off */
    uint64_t           turn_bytes; /* may be changed between calls */
    uint64_t           sequence;   /* operations ever queued */
    uint64_t           looks;      /* at operations that fly on */
    ang_pair_t        *turn;       /* where the next turn begins; NULL: with the first */
    /*
     * What an operation that doesn't end at once is queued with. NULL in chaos mode, and else only
     * while one is queued with it: then another is made, or that one comes back.
     */
    ang_entry_t *spare;
    ang_entry_t *kept[ANG_ENTRY_KINDS]; /* that have ended, for the next ones */
    unsigned     num_kept[ANG_ENTRY_KINDS];
};

/* chaos_seed 0: off. delay_us: longest usual delay of an entry in chaos mode. */
angara_status_t ang_engine_init(ang_engine_t *engine, const ang_backend_t *backend, void *ctx,
                                unsigned limit, uint64_t turn_bytes, uint64_t chaos_seed,
                                unsigned delay_us);
/* All pairs have been removed. */
void ang_engine_cleanup(ang_engine_t *engine);

void ang_engine_pair_add(ang_engine_t *engine, ang_pair_t *pair);
/* Drops what is queued. */
void ang_engine_pair_remove(ang_pair_t *pair);
/* Drop the ring operations that are queued and set the error. ANGARA_OK clears it, and lands the
 * window writes. */
void ang_engine_pair_reset(ang_pair_t *pair, angara_status_t error);
/*
 * Guests: a thread other than the caller's, or the caller himself, that looks after what is queued.
 * @return 0 if nothing is; else the engine's lock is held until ang_engine_guest_leave(), and the
 * functions behind may be called.
 */
int  ang_engine_guest_enter(ang_engine_t *engine);
void ang_engine_guest_leave(ang_engine_t *engine);
/* As ang_engine_progress(). In chaos mode nothing: the engine's own thread does it. */
unsigned ang_engine_guest_progress(ang_engine_t *engine);
/* Only see what has landed. @return how many operations have; *flying_p: pairs with some that fly
 */
unsigned ang_engine_guest_land(ang_engine_t *engine, unsigned *flying_p);
/*
 * The next pair behind `after`, or the first (NULL), with an operation queued that will still read
 * or write local region `key`; NULL: there is none.
 */
ang_pair_t *ang_engine_local_user(const ang_engine_t *engine, const ang_pair_t *after,
                                  uint64_t key);
/*
 * A number that changes when the first operation of a queue that isn't empty goes on, or ends; with
 * each look at one that flies, which waits for nobody.
 */
uint64_t ang_pair_mark(const ang_pair_t *pair);

/* The place of an operation in a pair's queue. It is valid until the operation has ended. */
typedef struct ang_place {
    const ang_entry_t *entry; /* NULL: in front of the first */
    unsigned           at;    /* in a run */
} ang_place_t;

/*
 * Go on to the operation behind, for a backend that performs several at once. `desc`, `data` (bytes
 * of an inline put): may be NULL, both.
 * @return 0: there is none, or in chaos mode; then nothing has changed.
 */
int ang_pair_next(const ang_pair_t *pair, ang_place_t *place, ang_desc_t *desc, const void **data);
/*
 * The operations of a run behind the place. *items: the first of them; *next: its place, whose `at`
 * grows by one with each. @return how many; 0: what is behind is no run, ask ang_pair_next()
 */
unsigned ang_pair_next_run(const ang_pair_t *pair, ang_place_t place, ang_place_t *next,
                           ang_op_t *op, const ang_item_t **items);
/* Report a fault and set the pair in error; drops everything queued to it. */
void ang_pair_fault(ang_pair_t *pair, uint64_t key, angara_status_t status);

#define ANG_INLINE_MAX 4096 /* bytes of a PUT_INLINE at most */

/*
 * Post a ring operation. @a data: bytes of PUT_INLINE. @return ANGARA_OK if performed or queued,
 * the fault if it faulted at once, ANGARA_ERR_NO_RESOURCE if the ring is full or there is no memory
 * until one that is queued has ended, ANGARA_ERR_NO_MEMORY if nothing is queued, or the pair's
 * error.
 */
angara_status_t ang_engine_post(ang_pair_t *pair, const ang_desc_t *desc, const void *data);

/* Has all that was posted to the pair been performed, visibly at the far end? Else 0, or unknown.
 */
static inline int ang_engine_is_settled(ang_pair_t *pair)
{
    return pair->engine->chaos == NULL && pair->error == ANGARA_OK && pair->head == NULL &&
           pair->engine->backend->read_back_now != NULL &&
           pair->engine->backend->read_back_now(pair);
}

/*
 * Perform a marker of a pair that has nothing queued: what ang_engine_post() would do with it, but
 * without an entry, since each flush waits for one. @return 0 if it must be posted.
 */
int ang_engine_try_marker(ang_pair_t *pair, uint64_t slot, uint64_t value);

/*
 * Post a run of puts or a run of gets, as ang_engine_post() one after the other. *posted_p: how
 * many were. @return ANGARA_OK, or what the post of the next one returned.
 */
angara_status_t ang_engine_post_batch(ang_pair_t *pair, ang_op_t op, const ang_item_t *items,
                                      unsigned count, unsigned *posted_p);

/*
 * Count a ring operation that was performed; its bytes are counted where they are moved. Also for a
 * backend that performs one by itself, of a pair with nothing queued.
 */
void ang_desc_count(ang_engine_t *engine, const ang_desc_t *desc);
/* The same of so many of a kind. */
void ang_op_count(ang_engine_t *engine, unsigned op, unsigned count);

/* Chaos only: post a window write; flag_width 0 means no flag. */
angara_status_t ang_engine_post_window(ang_pair_t *pair, uint64_t offset, const void *src,
                                       size_t length, uint64_t flag_offset, uint64_t flag,
                                       unsigned flag_width);

/* One turn: work on what is queued, a bounded amount. @return how many steps were made. */
unsigned ang_engine_progress(ang_engine_t *engine);

/* The same for one pair, of at most `budget` bytes. In chaos mode nothing. */
unsigned ang_engine_pair_progress(ang_pair_t *pair, uint64_t budget);

/* Does the pair's first operation fly? */
int ang_engine_pair_flies(ang_pair_t *pair);
/* Pairs' queues, for draining: entries queued to this pair. */
int ang_engine_pair_idle(ang_pair_t *pair);

/* Will two operations find a place in a queue, without more memory, even if each takes a new spare
 * entry? */
static inline int ang_engine_is_reserved(const ang_engine_t *engine)
{
    return engine->spare != NULL && engine->num_kept[ANG_ENTRY_KINDS - 1] >= 2;
}

/* Make it so. @return 0: there is no memory */
int ang_engine_reserve(ang_engine_t *engine);

/* Must the lock be taken to post, or to make progress? */
static inline int ang_engine_is_shared(const ang_engine_t *engine)
{
    /* At once: who sees a queue emptied by a guest sees the guest, or all he did. */
    return __builtin_expect(__atomic_load_n(&engine->queued, __ATOMIC_ACQUIRE) != 0, 0) &&
           engine->chaos == NULL;
}

/* The engine's lock, see above. */
void ang_engine_lock(ang_engine_t *engine);
void ang_engine_unlock(ang_engine_t *engine);

#endif
