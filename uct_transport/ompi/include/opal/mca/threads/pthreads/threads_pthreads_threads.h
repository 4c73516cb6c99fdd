/* SPDX-License-Identifier: BSD-3-Clause */
/* As threads_pthreads_mutex.h beside it. */
#ifndef ANGARA_OMPI_THREADS_PTHREADS_THREADS_H
#define ANGARA_OMPI_THREADS_PTHREADS_THREADS_H

#include <sched.h>

static inline void opal_thread_yield(void)
{
    sched_yield();
}

#endif
