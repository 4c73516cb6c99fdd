/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the programs of the fault tests share: exit statuses, time, a watchdog, data that depends on
 * its place, and what the kernel says about the own process. Nothing here knows the library.
 */
#ifndef ANGARA_TESTS_FAULT_COMMON_H
#define ANGARA_TESTS_FAULT_COMMON_H

#include "../common/clock.h"
#include "../common/data.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/** Exit statuses: the scripts tell refusal from wrong data by them. */
enum {
    FAULT_OK      = 0,
    FAULT_WRONG   = 10, /* wrong data, a false alarm, a leak: always a failure */
    FAULT_REFUSED = 11, /* the library returned an error */
    FAULT_HARNESS = 12, /* the test itself couldn't do its work */
    FAULT_GONE    = 13, /* the other process ended early */
    FAULT_LATE    = 14  /* an operation didn't end in time */
};

/** Called by fault_end() with the status before the process ends; gives the status to end with. */
extern int (*fault_end_hook)(int status);

/** Print "NAME[PID]: text" to stdout and end with @a status. */
void fault_end(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));

/** Where @a name is among @a names, the last of which is NULL; else ends with FAULT_HARNESS. */
int fault_find_name(const char *const *names, const char *name);

/** End with FAULT_LATE and a text after @a seconds, wherever the program hangs. */
void fault_watchdog(unsigned seconds);

/** Kill this process as if from outside, @a us microseconds from now, asynchronously. */
void fault_kill_self_after(unsigned us);

/** Number of open descriptors of this process. */
unsigned fault_count_fds(void);

/** What this process has: descriptors, mappings, resident memory. */
typedef struct {
    unsigned      fds;
    unsigned      maps;
    unsigned long resident_kib;
} fault_usage_t;

fault_usage_t fault_usage(void);

/** End with FAULT_WRONG if this process, called @a who, has grown by more than the slack. */
void fault_usage_check(const char *who, fault_usage_t before, fault_usage_t slack);

#endif
