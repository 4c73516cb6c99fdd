/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is to be given back to a GPU's runtime: mappings of other processes' GPU memory, and host
 * memory that was registered. That may wait for the program's kernels, and holds up all its calls
 * of the runtime meanwhile: with a kernel that waits for a message, for ever. So soft_gpu_tidy()
 * does it while the GPU is idle, with no lock but `tidying`. Knows nothing of what it is.
 */
#include "gpu_mem.h"

#include "src/clock.h"

#include <pthread.h>

#define TIDY_NS     2000000 /* between two looks whether the GPU is idle */
#define TIDY_TRIES  100     /* where the own last copies may not have ended yet, */
#define TIDY_TRY_NS 1000000 /* so far apart */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list; leaf */
static soft_leaving_t *first;
static unsigned        count; /* those too that soft_gpu_tidy() is at; atomic */
unsigned               soft_gpu_untidy;

static pthread_mutex_t tidying = PTHREAD_MUTEX_INITIALIZER; /* before `lock` */

void soft_leave(soft_leaving_t *leaving, int (*end)(soft_leaving_t *leaving))
{
    leaving->end = end;
    pthread_mutex_lock(&lock);
    leaving->next = first;
    first         = leaving;
    __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&soft_gpu_untidy, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

unsigned soft_leaving_count(void)
{
    return __atomic_load_n(&count, __ATOMIC_RELAXED);
}

static int is_untidy(void)
{
    return __atomic_load_n(&soft_gpu_untidy, __ATOMIC_ACQUIRE) != 0;
}

/* Called with `tidying` held. */
static void tidy(void)
{
    soft_leaving_t *list, *leaving, **link = &list;
    unsigned        ended = 0;

    pthread_mutex_lock(&lock);
    list  = first;
    first = NULL;
    pthread_mutex_unlock(&lock);

    while ((leaving = *link) != NULL) {
        soft_leaving_t *next = leaving->next;

        if (leaving->end(leaving)) {
            *link = next;
            ended++;
        } else {
            link = &leaving->next;
        }
    }

    pthread_mutex_lock(&lock);
    *link = first;
    first = list;
    __atomic_sub_fetch(&count, ended, __ATOMIC_RELAXED);
    __atomic_store_n(&soft_gpu_untidy, first != NULL, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

void soft_gpu_tidy(void)
{
    static uint64_t next_ns;
    uint64_t        now;

    if (is_untidy() && pthread_mutex_trylock(&tidying) == 0) {
        now = ang_clock_ns(CLOCK_MONOTONIC_COARSE);
        if (now >= next_ns) {
            next_ns = now + TIDY_NS;
            tidy();
        }
        pthread_mutex_unlock(&tidying);
    }
}

void soft_gpu_tidy_all(void)
{
    static const struct timespec nap = {0, TIDY_TRY_NS};
    static int in_vain; /* atomic: a program's kernel runs: others don't wait again */

    for (unsigned i = 0; is_untidy() && (i == 0 || (!__atomic_load_n(&in_vain, __ATOMIC_RELAXED) &&
                                                    i < TIDY_TRIES));
         ++i) {
        if (i != 0) {
            nanosleep(&nap, NULL);
        }
        if (pthread_mutex_trylock(&tidying) == 0) {
            tidy();
            pthread_mutex_unlock(&tidying);
        }
    }
    __atomic_store_n(&in_vain, is_untidy(), __ATOMIC_RELAXED);
}

/* The runtime is the parent's. What is left is only memory, like the parent's other objects. */
static void leaving_in_child(void)
{
    static soft_leaving_t *parents;
    soft_leaving_t       **end = &parents;

    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end            = first;
    first           = NULL;
    count           = 0;
    soft_gpu_untidy = 0;
    pthread_mutex_init(&lock, NULL);
    pthread_mutex_init(&tidying, NULL);
}

static void __attribute__((constructor)) leaving_init(void)
{
    pthread_atfork(NULL, NULL, leaving_in_child);
}
