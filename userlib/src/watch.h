/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters that can be watched (angara/angara_watch.h): what the library itself calls. */
#ifndef ANG_WATCH_H
#define ANG_WATCH_H

#include <angara/angara_watch.h>

/*
 * Copy counters of the PE to the board if that was a tenth of a second ago: some objects, in turn.
 * `now`: of CLOCK_MONOTONIC_COARSE; 0: it is looked at here.
 */
void ang_watch_look(angara_pe_h pe, uint64_t now);

/* The PE ends: remove all its watches. */
void ang_watch_end(angara_pe_h pe);

#endif
