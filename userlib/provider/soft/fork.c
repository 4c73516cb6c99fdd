/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What happens at fork: the child gives up everything that belongs to the parent. Its descriptors
 * would keep the parent's memory and pipes alive, and shared segments aren't mapped in the child,
 * so inline code must not go there. The objects themselves stay as they are: calls on them say
 * ANGARA_ERR_FORKED.
 *
 * Each object that holds a descriptor, or a pointer that inline code follows, is in a list as long
 * as it lives. The locks of the list and of the helper are held across fork, so that the child
 * finds both whole. Touches nothing itself.
 */
#define _GNU_SOURCE
#include "soft.h"

#include <pthread.h>

static struct {
    pthread_mutex_t lock; /* taken after all others */
    soft_fork_t    *first;
} forked = {.lock = PTHREAD_MUTEX_INITIALIZER};

void soft_fork_add(soft_fork_t *node, void (*in_child)(soft_fork_t *node))
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

void soft_fork_remove(soft_fork_t *node)
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
    soft_helper_before_fork();
    pthread_mutex_lock(&forked.lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&forked.lock);
    soft_helper_after_fork();
}

static void in_child(void)
{
    soft_fork_t *node;

    while ((node = forked.first) != NULL) {
        forked.first = node->next;
        node->link   = NULL;
        node->in_child(node);
    }
    pthread_mutex_init(&forked.lock, NULL);
    soft_helper_in_child();
}

static void __attribute__((constructor)) fork_init(void)
{
    pthread_atfork(before, in_parent, in_child);
}
