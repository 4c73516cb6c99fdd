/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory without which a call of the library fails: who gets none is told what to look at. */
#ifndef ANG_ALLOC_H
#define ANG_ALLOC_H

#include "log.h"

#include <stdlib.h>

/* As calloc(); `what`: for the message. */
static inline void *ang_calloc(size_t count, size_t size, const char *what)
{
    void *memory = calloc(count, size);

    if (memory == NULL) {
        ang_error("out of memory for %s; look at free memory, ulimit -v and the cgroup's limit",
                  what);
    }
    return memory;
}

#endif
