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

/* Drop all ring operations queued to a pair. */
void ang_pair_drop(ang_pair_t *pair);

/* chaos.c */
angara_status_t ang_chaos_start(ang_engine_t *engine, uint64_t seed, unsigned delay_us);
void            ang_chaos_stop(ang_engine_t *engine);
angara_status_t ang_chaos_post(ang_pair_t *pair, const ang_entry_t *model, const void *bytes,
                               size_t length);
unsigned        ang_chaos_progress(ang_engine_t *engine);
void            ang_chaos_land_windows(ang_pair_t *pair);
void            ang_chaos_drop_windows(ang_pair_t *pair);

#endif
