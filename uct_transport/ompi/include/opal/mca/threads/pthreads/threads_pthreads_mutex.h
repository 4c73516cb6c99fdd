/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Open MPI 5's public headers include this one, which the distributions leave out. It stands in
 * for it where it is missing: what the others declare with it compiles, and none of it is used.
 */
#ifndef ANGARA_OMPI_THREADS_PTHREADS_MUTEX_H
#define ANGARA_OMPI_THREADS_PTHREADS_MUTEX_H

#include <pthread.h>

typedef pthread_mutex_t opal_thread_internal_mutex_t;
typedef pthread_cond_t  opal_thread_internal_cond_t;

static inline int opal_thread_internal_mutex_trylock(opal_thread_internal_mutex_t *mutex)
{
    return pthread_mutex_trylock(mutex);
}

static inline void opal_thread_internal_mutex_lock(opal_thread_internal_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
}

static inline void opal_thread_internal_mutex_unlock(opal_thread_internal_mutex_t *mutex)
{
    pthread_mutex_unlock(mutex);
}

/* ---- called by other inline functions, none of which is called here ---- */

int  opal_thread_internal_mutex_init(opal_thread_internal_mutex_t *mutex, int recursive);
void opal_thread_internal_mutex_destroy(opal_thread_internal_mutex_t *mutex);
int  opal_thread_internal_cond_init(opal_thread_internal_cond_t *cond);
void opal_thread_internal_cond_wait(opal_thread_internal_cond_t  *cond,
                                    opal_thread_internal_mutex_t *mutex);
void opal_thread_internal_cond_broadcast(opal_thread_internal_cond_t *cond);
void opal_thread_internal_cond_signal(opal_thread_internal_cond_t *cond);
void opal_thread_internal_cond_destroy(opal_thread_internal_cond_t *cond);

#endif
