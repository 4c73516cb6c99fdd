/* SPDX-License-Identifier: BSD-3-Clause */
/* The time and naps, for test programs. */
#ifndef ANGARA_TESTS_CLOCK_H
#define ANGARA_TESTS_CLOCK_H

#include <errno.h>
#include <time.h>

/** CLOCK_MONOTONIC: it goes on whatever the date is set to, and is one for all processes. */
static inline double now_seconds(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/** Also where signals arrive meanwhile. */
static inline void sleep_ms(unsigned ms)
{
    struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};

    while (nanosleep(&ts, &ts) != 0 && errno == EINTR) {
    }
}

#endif
