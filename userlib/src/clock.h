/* SPDX-License-Identifier: BSD-3-Clause */
/* Time in nanoseconds. Touches the kernel's clocks only. */
#ifndef ANG_CLOCK_H
#define ANG_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t ang_clock_ns(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

#endif
