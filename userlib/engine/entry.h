/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to the engine: an operation under way, and the steps that both orders (engine.c, chaos.c)
 * take. */
#ifndef ANG_ENTRY_H
#define ANG_ENTRY_H

#include "engine.h"

struct ang_entry {
    ang_desc_t   desc;
    ang_pair_t  *pair;
    ang_entry_t *next;
    ang_ref_t    local;
    ang_ref_t    remote;
    uint64_t     done; /* bytes moved */
    uint64_t     end;  /* of the piece: bytes beyond it are for later turns */
    uint64_t     old;  /* fetched by an atomic */
    const void  *data; /* bytes of PUT_INLINE and of window writes */
    uint8_t      begun;
    uint8_t      fetched;

    uint8_t      flies; /* launched, and not seen to have landed */
    ang_flight_t flight;

    size_t room; /* bytes behind it; in chaos mode 0, wherever its bytes are */

    uint32_t run_count; /* a run of so many: their items are behind it; 0: one operation, `desc` */
    uint32_t run_at;    /* the one whose turn it is, as `desc` says, too */

    angara_status_t failed;   /* what was found wrong before its turn: told when that comes */
    uint64_t        sequence; /* order of queueing, across pairs */

    /* chaos only */
    uint8_t  is_window;
    uint8_t  flag_width;
    uint8_t  source_read;
    uint64_t flag_offset; /* window: desc.roffset and desc.length give the bytes */
    uint64_t flag;
    uint64_t due;       /* not before, ns */
    void    *buffer;    /* owned copy of the source */
    unsigned pieces;    /* of the delivery, from `done` to `end` */
    unsigned delivered; /* bit mask */
};

#define ANG_WORD_BYTES \
    8 /* an aligned word of at most so many bytes is moved at once (nic-model.md) */

/* Resolve both ends. On failure nothing is held. */
angara_status_t ang_entry_begin(ang_entry_t *entry);
void            ang_entry_end(ang_entry_t *entry);

/*
 * An entry that waited: its local region may have been deregistered meanwhile. What was staged for
 * a put or fetched from the peer isn't taken back.
 */
angara_status_t ang_entry_check_local(ang_entry_t *entry);

/*
 * Take the entry to the end of its piece. ANGARA_INPROGRESS: call again; else nothing is held.
 * ANGARA_OK with `end` before the length: the next piece is due.
 */
angara_status_t ang_entry_advance(ang_entry_t *entry);

/* flight.c. The entry's ends are resolved: can it be launched? */
int ang_entry_can_fly(const ang_entry_t *entry);
/* As launch(). ANGARA_INPROGRESS: it flies, and its ends may be let go. `after`: flies, or NULL. */
angara_status_t ang_entry_launch(ang_entry_t *entry, const ang_entry_t *after);
/* As landed(). */
angara_status_t ang_entry_land(ang_entry_t *entry);
/* Wait until it doesn't fly any more. */
void ang_entry_ground(ang_entry_t *entry);
/* Launch what is behind those that fly. @return how many */
unsigned ang_pair_launch(ang_pair_t *pair);

/* Store the value that an atomic fetched. */
angara_status_t ang_entry_store_old(ang_entry_t *entry);

/* ---- queue.c --------------------------------------------------------------------------------- */

/* One with room for so many bytes behind it, ANG_INLINE_MAX at most; NULL: no memory. */
ang_entry_t *ang_entry_alloc(ang_engine_t *engine, size_t bytes);
/* Nothing of the operation has begun. */
void ang_entry_init(ang_entry_t *entry, ang_pair_t *pair, const ang_desc_t *desc, const void *data);
/* Let the entry, whose fields are set, be its queue's last. */
void ang_entry_append(ang_entry_t *entry, const void *data);
/* Queue an operation. @return ANGARA_ERR_NO_RESOURCE for a full ring, or lack of memory. */
angara_status_t ang_pair_queue(ang_pair_t *pair, const ang_desc_t *desc, const void *data);
/* Queue a run of puts, or of gets, as one entry. @return how many: fewer if the ring is full */
unsigned ang_pair_queue_run(ang_pair_t *pair, ang_op_t op, const ang_item_t *items, unsigned count);
/* Those of a run whose turn hasn't passed. */
static inline const ang_item_t *ang_run_items(const ang_entry_t *entry)
{
    return (const ang_item_t *)(entry + 1) + entry->run_at;
}
/* The first so many operations, all of one entry, have been performed. */
void ang_pair_pop(ang_pair_t *pair, unsigned count);
/* Drop all ring operations queued to a pair. */
void ang_pair_drop(ang_pair_t *pair);
/* Will it still read or write the local region? */
int ang_entry_uses_local(const ang_entry_t *entry, uint64_t key);

/* chaos.c */
angara_status_t ang_chaos_start(ang_engine_t *engine, uint64_t seed, unsigned delay_us);
void            ang_chaos_stop(ang_engine_t *engine);
angara_status_t ang_chaos_post(ang_pair_t *pair, const ang_entry_t *model, const void *bytes,
                               size_t length);
unsigned        ang_chaos_progress(ang_engine_t *engine);
void            ang_chaos_land_windows(ang_pair_t *pair);
void            ang_chaos_drop_windows(ang_pair_t *pair);

#endif
