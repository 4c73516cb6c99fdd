/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which of two ways is faster for operations of some length, learnt from the time that they take.
 * The peer's process, where it polls, saves the system call, but its bytes are copied twice: which
 * way is faster depends on how far the two processors are from each other, and on what else the
 * peer does. The faster one is taken; now and then the other one, to see whether it still is slower
 * (the epsilon-greedy rule of multi-armed bandits, with fixed intervals). Touches nothing but its
 * argument, and the clock.
 */
#ifndef SOFT_PACE_H
#define SOFT_PACE_H

#include "src/clock.h"

#include <stddef.h>
#include <stdint.h>

enum {
    SOFT_PACE_ASKED, /* by the peer's process; the first ones, too */
    SOFT_PACE_CALLED /* by process_vm */
};

#define SOFT_PACE_TIMED 8u   /* of so many operations one is timed, */
#define SOFT_PACE_OTHER 256u /* and of so many one goes the other way */

typedef struct {
    uint32_t ns[2]; /* for SOFT_PACE_UNIT bytes, by way; 0: not known */
    uint32_t count; /* operations so far */
} soft_pace_t;

#define SOFT_PACE_UNIT 65536u

#define SOFT_PACED     8192u /* bytes of the shortest ones, */
#define SOFT_PACES     8u    /*   and so many lengths, each twice the one before or less */

enum { SOFT_IS_OPEN, SOFT_IS_ASKED, SOFT_IS_CALLED };

/* A pair's. */
typedef struct {
    soft_pace_t  single[2][SOFT_PACES]; /* of puts and gets, by length; */
    soft_pace_t  run[2][SOFT_PACES];    /*   and of those that many more follow */
    soft_pace_t *timed;                 /* of what is timed, or NULL; */
    uint64_t     begun_ns;              /*   since when, or 0, */
    uint64_t     begun_at;              /*   with so many bytes done, */
    uint64_t     spent_ns;              /*   and what it had taken before that */
    int          decided; /* of the operation under way, whose way stays: SOFT_IS_... */
} soft_paces_t;

/** Which of the lengths it is. */
static inline unsigned soft_pace_class(uint64_t length)
{
    unsigned class = 0;

    while (class + 1 < SOFT_PACES && length > (uint64_t)SOFT_PACED << class) {
        ++class;
    }
    return class;
}

/** The way that was faster. */
static inline int soft_pace_way(const soft_pace_t *pace)
{
    const uint32_t *ns = pace->ns;

    return ns[SOFT_PACE_CALLED] != 0 && ns[SOFT_PACE_CALLED] < ns[SOFT_PACE_ASKED];
}

/** The next operation's way; `explores`: it may be the other one. *is_timed: soft_pace_tell() is to
 * hear how long it took. */
static inline int soft_pace_next(soft_pace_t *pace, int explores, int *is_timed)
{
    int      way  = soft_pace_way(pace);
    unsigned turn = pace->count % SOFT_PACE_OTHER / SOFT_PACE_TIMED;
    unsigned last = pace->count < SOFT_PACE_OTHER ? 4 : 2; /* the first ones are tried more often */

    /* Not the very first ones: what they use is new. */
    *is_timed = pace->count++ % SOFT_PACE_TIMED == SOFT_PACE_TIMED / 2;
    return *is_timed && explores && turn >= 2 && turn <= last ? !way : way;
}

/**
 * So many bytes, not 0, took so long that way. A step up or down, an eighth at most, so that it is
 * about the median that counts: what makes some longer (a process that loses its processor) says
 * nothing about the way. Less than half as long is taken for true: few things but another length
 * make that.
 */
static inline void soft_pace_tell(soft_pace_t *pace, int way, uint64_t ns, uint64_t bytes)
{
    uint64_t was = pace->ns[way];
    uint64_t up  = was + was / 8 + 1;
    uint64_t dn  = was - was / 8;

    ns = ns < UINT32_MAX ? ns * SOFT_PACE_UNIT / bytes : UINT32_MAX;
    ns = ns < UINT32_MAX / 4 ? ns : UINT32_MAX / 4;
    if (was != 0 && ns >= was / 2) {
        ns = ns > up ? up : ns < dn ? dn : ns;
    }
    pace->ns[way] = ns != 0 ? (uint32_t)ns : 1;
}

/** What is timed, if something is, begins here, if it hasn't yet; so many bytes of it are done. */
static inline void soft_paces_begin(soft_paces_t *paces, uint64_t done)
{
    if (paces->timed != NULL && paces->begun_ns == 0) {
        paces->begun_ns = ang_clock_ns(CLOCK_MONOTONIC) - paces->spent_ns;
        paces->begun_at = done;
    }
}

/** It is worked for from here on, before that beginning, until soft_paces_spent(). */
static inline uint64_t soft_paces_spend(const soft_paces_t *paces)
{
    return paces->timed != NULL ? ang_clock_ns(CLOCK_MONOTONIC) : 0;
}

static inline void soft_paces_spent(soft_paces_t *paces, uint64_t since_ns)
{
    if (paces->timed != NULL && since_ns != 0) {
        paces->spent_ns = ang_clock_ns(CLOCK_MONOTONIC) - since_ns;
    }
}

/** It has ended that way, with so many bytes done. */
static inline void soft_paces_end(soft_paces_t *paces, int way, uint64_t done)
{
    if (paces->timed != NULL && paces->begun_ns != 0 && done > paces->begun_at) {
        soft_pace_tell(paces->timed, way, ang_clock_ns(CLOCK_MONOTONIC) - paces->begun_ns,
                       done - paces->begun_at);
    }
    paces->timed = NULL;
}

/** It won't end: nothing is decided nor timed. */
static inline void soft_paces_drop(soft_paces_t *paces)
{
    paces->timed   = NULL;
    paces->decided = SOFT_IS_OPEN;
}

#endif
