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

#define SOFT_PACE_FIRST 3u  /* but at first so many, one soon after the other: */
#define SOFT_PACE_EARLY 32u /*   of so many operations each second one is timed */

typedef struct {
    uint32_t ns[2];   /* for SOFT_PACE_UNIT bytes, by way; 0: not known */
    uint32_t told[2]; /* so often: counted up to SOFT_PACE_TOLD */
    uint32_t count;   /* operations so far */
    uint32_t rest;    /* so many go by process_vm before any of that, and aren't counted */
} soft_pace_t;

#define SOFT_PACE_TOLD  7u
#define SOFT_PACE_LEAST 16u /* ns: from less, a mean of whole numbers wouldn't grow */

/* Of those that are alone so many go by process_vm at first, whose lengths are timed each: the
 * memory to stage them in, which is new then, costs more than a hundred of them gain where a page's
 * first access is dear. */
#define SOFT_PACE_REST 128u

#define SOFT_PACE_UNIT 65536u
#define SOFT_PACE_RUN \
    262144u /* of a run so many bytes are timed at most: its beginning is slower */

#define SOFT_PACED 8192u /* bytes of the shortest ones, */
#define SOFT_PACES 8u    /*   and so many lengths, each twice the one before or less */

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

/** Nothing is known yet. */
static inline void soft_paces_init(soft_paces_t *paces)
{
    for (unsigned class = 1; class < SOFT_PACES; ++class) {
        paces->single[0][class].rest = SOFT_PACE_REST;
        paces->single[1][class].rest = SOFT_PACE_REST;
    }
}

/** The way that was faster. */
static inline int soft_pace_way(const soft_pace_t *pace)
{
    const uint32_t *ns = pace->ns;

    return ns[SOFT_PACE_CALLED] != 0 && ns[SOFT_PACE_CALLED] < ns[SOFT_PACE_ASKED];
}

/** What soft_pace_next() would say now. */
static inline int soft_pace_peek(const soft_pace_t *pace, int explores, int *is_timed)
{
    int      way   = soft_pace_way(pace);
    int      other = !way;
    unsigned every = pace->count < SOFT_PACE_EARLY ? SOFT_PACE_TIMED / 4 : SOFT_PACE_TIMED;

    if (pace->rest != 0) {
        *is_timed = 0;
        return SOFT_PACE_CALLED;
    }
    *is_timed = pace->count % every == 1; /* not the very first one: what it uses is new */
    if (*is_timed && explores &&
        (pace->count < SOFT_PACE_OTHER ?
             pace->told[way] >= SOFT_PACE_FIRST - 1 && pace->told[other] < SOFT_PACE_FIRST :
             pace->count % SOFT_PACE_OTHER == 1)) {
        return other;
    }
    return way;
}

/** The next operation's way; `explores`: it may be the other one. *is_timed: soft_pace_tell() is to
 * hear how long it took. */
static inline int soft_pace_next(soft_pace_t *pace, int explores, int *is_timed)
{
    int way = soft_pace_peek(pace, explores, is_timed);

    if (pace->rest != 0) {
        pace->rest--;
    } else {
        pace->count++;
    }
    return way;
}

/**
 * So many bytes, not 0, took so long that way. What counts is the mean of the last ones: of two
 * processes that ask each other, one waits long and the other doesn't, in turn. The way that isn't
 * taken is told of seldom, so its last ones count for more. More than twice the
 * mean counts as that: what makes some much longer (a process that loses its processor) says
 * nothing about the way. One of the first that took less than half as long is taken for true: what
 * is used for the first time takes longer.
 */
static inline void soft_pace_tell(soft_pace_t *pace, int way, uint64_t ns, uint64_t bytes)
{
    uint64_t was = pace->ns[way];
    uint32_t n   = pace->told[way];

    ns = ns < UINT32_MAX ? ns * SOFT_PACE_UNIT / bytes : UINT32_MAX;
    ns = ns < UINT32_MAX / 4 ? ns : UINT32_MAX / 4;
    if (n != 0 && (n > SOFT_PACE_FIRST || ns >= was / 2)) {
        uint64_t weight = way != soft_pace_way(pace) && n > SOFT_PACE_FIRST ? SOFT_PACE_FIRST : n;

        ns = ns < 2 * was ? ns : 2 * was;
        ns = (was * weight + ns) / (weight + 1);
    }
    pace->ns[way]   = ns < SOFT_PACE_LEAST ? SOFT_PACE_LEAST : (uint32_t)ns;
    pace->told[way] = n < SOFT_PACE_TOLD ? n + 1 : n;
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

/** Is a run of so many bytes like others of its length? Few operations take longer by the byte. Of
 * the shortest ones, class 0, even many are few bytes. */
static inline int soft_paces_is_alike(const soft_paces_t *paces, uint64_t bytes)
{
    for (unsigned is_get = 0; is_get < 2; ++is_get) {
        for (unsigned class = 1; class < SOFT_PACES; ++class) {
            if (paces->timed == &paces->run[is_get][class]) {
                return bytes >= SOFT_PACE_UNIT;
            }
        }
    }
    return bytes != 0;
}

/** Is it what is timed that goes along? */
static inline int soft_paces_is_timed(const soft_paces_t *paces, int is_get, uint64_t length)
{
    unsigned class = soft_pace_class(length);

    return paces->timed == &paces->single[is_get][class] ||
           paces->timed == &paces->run[is_get][class];
}

/** It has ended that way, with so many bytes done. */
static inline void soft_paces_end(soft_paces_t *paces, int way, uint64_t done)
{
    if (paces->timed != NULL && paces->begun_ns != 0 && done > paces->begun_at &&
        soft_paces_is_alike(paces, done - paces->begun_at)) {
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
