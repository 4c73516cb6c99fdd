/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which of two ways is faster for operations of some length, learnt from the time that they take.
 * The peer's process, where it polls, saves the system call, but its bytes are copied twice: which
 * way is faster depends on how far the two processors are from each other, and on what else the
 * peer does. The faster one is taken; now and then the other one, to see whether it still is slower
 * (the epsilon-greedy rule of multi-armed bandits, with fixed intervals). Touches nothing but its
 * argument.
 */
#ifndef SOFT_PACE_H
#define SOFT_PACE_H

#include <stdint.h>

enum {
    SOFT_PACE_ASKED, /* by the peer's process; the first ones, too */
    SOFT_PACE_CALLED /* by process_vm */
};

#define SOFT_PACE_TIMED 8u   /* of so many operations one is timed, */
#define SOFT_PACE_OTHER 256u /* and of so many one goes the other way */

typedef struct {
    uint32_t ns[2]; /* by way; 0: not known */
    uint32_t count; /* operations so far */
} soft_pace_t;

#define SOFT_PACED 8192 /* bytes from which on it is learnt, */
#define SOFT_PACES 4    /*   for so many lengths, each up to so many bytes more */

/* A pair's. */
typedef struct {
    soft_pace_t  pace[2][SOFT_PACES]; /* of puts and gets, by length; */
    soft_pace_t *timed;               /*   that of the operation that is timed, or NULL: */
    int          way;
    uint64_t     length;
    uint64_t     begun_ns;
} soft_paces_t;

/** The next operation's way. *is_timed: soft_pace_tell() is to hear how long it took. */
static inline int soft_pace_next(soft_pace_t *pace, int *is_timed)
{
    const uint32_t *ns   = pace->ns;
    int             way  = ns[SOFT_PACE_CALLED] != 0 && ns[SOFT_PACE_CALLED] < ns[SOFT_PACE_ASKED];
    unsigned        turn = pace->count++ % SOFT_PACE_OTHER;

    /* Not the very first ones: what they use is new. */
    *is_timed = turn % SOFT_PACE_TIMED == SOFT_PACE_TIMED / 2;
    return turn == 5 * SOFT_PACE_TIMED / 2 ? !way : way;
}

/**
 * One took so long that way. A step up or down, an eighth at most, so that it is about the median
 * that counts: what makes some longer (a process that loses its processor) says nothing about the
 * way. Less than half as long is taken for true: few things but another length make that.
 */
static inline void soft_pace_tell(soft_pace_t *pace, int way, uint64_t ns)
{
    uint64_t was = pace->ns[way];
    uint64_t up  = was + was / 8 + 1;
    uint64_t dn  = was - was / 8;

    ns = ns < UINT32_MAX / 4 ? ns : UINT32_MAX / 4;
    if (was != 0 && ns >= was / 2) {
        ns = ns > up ? up : ns < dn ? dn : ns;
    }
    pace->ns[way] = ns != 0 ? (uint32_t)ns : 1;
}

#endif
