/* SPDX-License-Identifier: BSD-3-Clause */
/* The time, naps and bounds, for test programs. */
#ifndef ANGARA_TESTS_CLOCK_H
#define ANGARA_TESTS_CLOCK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

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

/** ANGARA_TEST_SLOW: how many times as long as usual is waited for others. Ends the process if that
 * is no number from 1 to 999. */
static inline int test_slow(void)
{
    const char *text = getenv("ANGARA_TEST_SLOW");
    char       *end;
    long        slow;

    if (text == NULL || *text == '\0') {
        return 1;
    }
    slow = strtol(text, &end, 10);
    if (end == text || *end != '\0' || slow < 1 || slow > 999) {
        fprintf(stderr, "ANGARA_TEST_SLOW is '%s', not a number from 1 to 999\n", text);
        _exit(2);
    }
    return (int)slow;
}

/** When a wait for others has taken too long: so many seconds from now, ANGARA_TEST_SLOW times as
 * many. */
static inline double deadline_in(double seconds)
{
    return now_seconds() + seconds * test_slow();
}

/** SIGALRM for this process in so many seconds, ANGARA_TEST_SLOW times as many. */
static inline void test_alarm(unsigned seconds)
{
    alarm(seconds * (unsigned)test_slow());
}

#endif
