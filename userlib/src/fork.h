/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What happens at fork: the child gives up what belongs to the parent. Descriptors would keep the
 * parent's memory and pipes alive, and mappings aren't inherited, so that inline code must not go
 * there. The objects stay as they are: calls on them say ANGARA_ERR_FORKED.
 *
 * Each object that holds a descriptor, or a pointer that inline code follows, is in a list as long
 * as it lives, whose lock is held across fork: the child finds it whole.
 */
#ifndef ANG_FORK_H
#define ANG_FORK_H

#include <stddef.h>

typedef struct ang_fork {
    void (*in_child)(struct ang_fork *node);
    struct ang_fork  *next;
    struct ang_fork **link; /* NULL: in no list */
} ang_fork_t;

/* From here on in_child() is called for the object at each fork. */
void ang_fork_add(ang_fork_t *node, void (*in_child)(ang_fork_t *node));
/* Not any more. No-op for a zeroed node. */
void ang_fork_remove(ang_fork_t *node);

/* The object whose member `fork` the node is. */
#define ANG_FORK_OBJECT(_type, _node) ((_type *)(void *)((char *)(_node)-offsetof(_type, fork)))

#endif
