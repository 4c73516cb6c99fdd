/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keeps the engine's chaos mode from starting its thread (ld --wrap): the emulator calls
 * ang_engine_progress() at each turn, and wants to be the only thread. Nothing else of the emulator
 * makes threads.
 */
#include <pthread.h>

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg);
int __wrap_pthread_join(pthread_t thread, void **result);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg)
{
    (void)attr;
    (void)start;
    (void)arg;
    *thread = pthread_self();
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    (void)thread;
    (void)result;
    return 0;
}
