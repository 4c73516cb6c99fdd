/* SPDX-License-Identifier: BSD-3-Clause */
/* What is mapped where, by /proc/self/maps. */
#ifndef ANGARA_TESTS_MAPS_H
#define ANGARA_TESTS_MAPS_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Is the memory at that address of a file with these words in its name? */
static inline int is_mapped_as(const void *addr, const char *words)
{
    FILE         *maps  = fopen("/proc/self/maps", "r");
    int           is_so = 0;
    unsigned long begin, end;
    char          line[4096];

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        if (sscanf(line, "%lx-%lx", &begin, &end) == 2 && (uintptr_t)addr >= begin &&
            (uintptr_t)addr < end) {
            is_so = strstr(line, words) != NULL;
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return is_so;
}

#endif
