/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library that can't start its helper thread: pthread_create() is replaced at link time
 * (UNIT_WRAP_... in build.mk). One test program includes this once.
 */
#ifndef ANGARA_TESTS_NO_THREADS_H
#define ANGARA_TESTS_NO_THREADS_H

#include <errno.h>
#include <pthread.h>

static int no_threads; /* from when on */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg)
{
    return no_threads ? EAGAIN : __real_pthread_create(thread, attr, run, arg);
}

#endif
