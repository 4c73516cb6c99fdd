/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions that a loaded library calls, to put another one in the place of one of them. */
#ifndef UCT_ANGARA_ENTRY_H
#define UCT_ANGARA_ENTRY_H

#include <link.h>

/**
 * The entry for a function in the table of those that a library calls.
 *
 * @return NULL: it calls none of that name, or the table is closed: it was linked with -z now
 */
void **uct_angara_entry_find(const struct link_map *map, const char *name);

/**
 * From now on the library calls that one, but where a thread is in a call already.
 *
 * @return what was there: the function, or what looks for it at the first call
 */
static inline void *uct_angara_entry_set(void **entry, void *func)
{
    return __atomic_exchange_n(entry, func, __ATOMIC_RELEASE);
}

/** Put back what was there, unless somebody else has put another function there since. */
static inline void uct_angara_entry_restore(void **entry, void *func, void *former)
{
    __atomic_compare_exchange_n(entry, &func, former, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

#endif
