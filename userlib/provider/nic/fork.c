/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What happens at fork: the child closes the descriptors (the kernel refuses their use to it
 * anyway) and finds no pointer that inline code would follow into a mapping, which it hasn't got.
 * The objects stay as they are: calls on them say ANGARA_ERR_FORKED.
 *
 * Each such object is in a list as long as it lives, whose lock is held across fork. Touches
 * nothing itself.
 */
#include "nic.h"

static struct {
    pthread_mutex_t lock; /* taken after all others */
    nic_fork_t     *first;
} forked = {.lock = PTHREAD_MUTEX_INITIALIZER};

void nic_fork_add(nic_fork_t *node, void (*in_child)(nic_fork_t *node))
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

void nic_fork_remove(nic_fork_t *node)
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
    nic_fork_t *node;

    while ((node = forked.first) != NULL) {
        forked.first = node->next;
        node->link   = NULL;
        node->in_child(node);
    }
    pthread_mutex_init(&forked.lock, NULL);
}

static void __attribute__((constructor)) fork_init(void)
{
    pthread_atfork(before, in_parent, in_child);
}
