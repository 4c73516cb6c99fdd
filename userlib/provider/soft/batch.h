/* SPDX-License-Identifier: BSD-3-Clause */
/* What a pair remembers of operations that the peer's process has been asked for. */
#ifndef SOFT_BATCH_H
#define SOFT_BATCH_H

#include "engine/engine.h"

/* Short ones, together, see agent_short.c. */
typedef struct {
    uint32_t        place;     /* where in staging memory it begins, */
    uint32_t        end;       /*   and ends by now, */
    uint32_t        limit;     /*   and at most; */
    uint32_t        at;        /*   of the operation whose result is taken next */
    int             has_other; /* there is another way for the first one */
    int             in_slot;   /* one operation, without staging memory */
    unsigned        count;     /* operations; */
    unsigned        taken;     /*   results taken */
    int             received;  /* it is answered, and these two are known: */
    unsigned        performed; /*   operations performed; */
    angara_status_t status;    /*   and why no more */
    uint64_t        bytes;     /* of them all */
    ang_place_t     last; /* the last one; in front of the first: there is one, which is that */
} soft_batch_t;

struct soft_peer;

/* An atomic that nobody waits for, in the front of the slot that was kept: see agent_front.c. */
typedef struct {
    uint64_t           turn; /* of the front's state; 0: there is none */
    struct soft_peer **link; /* of the PE's list of those that are out; NULL: it is none of them */
    struct soft_peer  *next;
    uint64_t           since_ns; /* progress was made in vain; 0: not yet */
    ang_desc_t         desc;
} soft_out_t;

/* Joint copies of a pair, see joint.h. */
typedef struct {
    int      is_under_way; /* the request in the pair's slot is one */
    uint64_t begin;        /* bytes of the operation that were moved before it, */
    uint64_t claimed;      /*   and that this side has claimed of it */
    unsigned vain;         /* so often in a row the peer took no part */
    uint64_t retry_ns;     /* it isn't asked to before that time */
} soft_joint_t;

#endif
