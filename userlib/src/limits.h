/* SPDX-License-Identifier: BSD-3-Clause */
/* Limits of this process that would end it instead of failing a call. Asks the kernel only. */
#ifndef ANG_LIMITS_H
#define ANG_LIMITS_H

#include <stddef.h>
#include <sys/resource.h>

/* Growing a file past RLIMIT_FSIZE would kill the process by SIGXFSZ. */
static inline int ang_over_file_limit(size_t size)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           size > limit.rlim_cur;
}

#endif
