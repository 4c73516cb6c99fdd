/* SPDX-License-Identifier: BSD-3-Clause */
/* Map memory before it is used. */
#ifndef ANG_PREFAULT_H
#define ANG_PREFAULT_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Map the pages of [at, at + length) for writing, by one call instead of a fault for each. A hint:
 * before Linux 5.14 nothing happens, and where something can't be mapped, its first access tells.
 * What isn't allocated yet is, at this process's cost. Keeps errno.
 */
static inline void ang_prefault(void *at, size_t length)
{
    uintptr_t page  = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)at / page * page;
    int       error = errno;

    if (length == 0) {
        return;
    }
    madvise((void *)begin, (uintptr_t)at + length - begin, MADV_POPULATE_WRITE);
    errno = error;
}

#endif
