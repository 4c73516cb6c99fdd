/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters that can be watched while the process runs: what angara_top shows.
 *
 * A process shows the counters of its PEs, and of their peers, to other processes of its user (and
 * to root). Whoever has counters of his own, as the UCX transport has, adds them here.
 *
 * They are copied where others can read them when the PE makes progress, or posts many operations
 * to a peer, at most ten times a second. So counting costs nothing but the counter, and nobody who
 * looks can hold up or change a process. What a process counted shortly before it stopped calling
 * the library shows when it calls again.
 */
#ifndef ANGARA_WATCH_H
#define ANGARA_WATCH_H

#include <angara/angara.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Counters of one kind at most. */
#define ANGARA_WATCH_COUNTERS 40

/** Longest names of a kind and of a counter, and longest label, with their final 0. */
#define ANGARA_WATCH_KIND  16
#define ANGARA_WATCH_NAME  24
#define ANGARA_WATCH_LABEL 96

/** A kind of objects that have counters. Constant: it stays as long as there are watches of it. */
typedef struct {
    size_t             size;     /**< sizeof(angara_watch_kind_t) */
    const char        *name;     /**< e.g. "peer": lower case letters and digits */
    const char *const *counters; /**< names: lower case letters, digits and _; each once */
    unsigned           count;    /**< of counters, at most ANGARA_WATCH_COUNTERS */

    /**
     * Write the counters of @a object to @a values, in the order of the names. Called within
     * angara_watch_add(), angara_pe_progress() and calls that post, by the thread that makes that
     * call; it may not call the library.
     */
    void (*read)(const void *object, uint64_t *values);
} angara_watch_kind_t;

/** Counters that are watched. */
typedef struct angara_watch *angara_watch_h;

/**
 * Let the counters of an object be watched, until angara_watch_remove() or the end of the PE. Calls
 * are serialised with all other calls on the PE.
 *
 * @param pe      PE whose progress copies the counters.
 * @param kind    What the counters are.
 * @param object  What read() is called with; it stays until the watch is removed.
 * @param label   Which of its kind the object is, e.g. angara_peer_name(); longer ones are cut.
 * @return the watch, or NULL if these counters can't be watched: ANGARA_WATCH=n, no descriptor or
 *         memory is left, a process has too many (8192 objects, of 15 kinds), or a name isn't as it
 *         should be. That is no error, and angara_watch_remove() takes NULL.
 */
ANGARA_API angara_watch_h angara_watch_add(angara_pe_h pe, const angara_watch_kind_t *kind,
                                           const void *object, const char *label);

/**
 * Watch these counters no more; read() isn't called again. Calls are serialised with all other
 * calls on the PE, which is there still.
 *
 * @param watch  What angara_watch_add() has returned.
 */
ANGARA_API void angara_watch_remove(angara_watch_h watch);

#ifdef __cplusplus
}
#endif

#endif
