/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of fork.h. Touches nothing of the objects itself. */
#include "fork.h"

#include <pthread.h>

static struct {
    pthread_mutex_t lock; /* taken after all others */
    ang_fork_t     *first;
} forked = {.lock = PTHREAD_MUTEX_INITIALIZER};

void ang_fork_add(ang_fork_t *node, void (*in_child)(ang_fork_t *node))
{
    pthread_mutex_lock(&forked.lock);
    node->in_child = in_child;
    node->next     = forked.first;
    node->link     = &forked.first;
    if (node->next != NULL) {
        node->next->link = &node->next;
    }
    forked.first = node;
    pthread_mutex_unlock(&forked.lock);
}

void ang_fork_remove(ang_fork_t *node)
{
    pthread_mutex_lock(&forked.lock);
    if (node->link != NULL) {
        *node->link = node->next;
        if (node->next != NULL) {
            node->next->link = node->link;
        }
        node->link = NULL;
    }
    pthread_mutex_unlock(&forked.lock);
}

static void before(void)
{
    pthread_mutex_lock(&forked.lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&forked.lock);
}

static void in_child(void)
{
    ang_fork_t *node;

    while ((node = forked.first) != NULL) {
        forked.first = node->next;
        node->link   = NULL;
        node->in_child(node);
    }
    pthread_mutex_unlock(&forked.lock); /* it was taken by this thread, before the fork */
}

/* Before the others of the library: at fork their locks are taken first then, in reverse order. */
static void __attribute__((constructor(101))) fork_init(void)
{
    pthread_atfork(before, in_parent, in_child);
}
