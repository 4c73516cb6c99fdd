/* SPDX-License-Identifier: BSD-3-Clause */
/* FNV-1a, 64 bits (Fowler, Noll, Vo): for names and checks, not against malice. */
#ifndef ANG_HASH_H
#define ANG_HASH_H

#include <stddef.h>
#include <stdint.h>

#define ANG_HASH_START 0xcbf29ce484222325ull /* of nothing */

/* The hash of what `hash` is of, and these bytes behind it. */
static inline uint64_t ang_hash(uint64_t hash, const void *data, size_t length)
{
    const uint8_t *bytes = data;

    for (size_t i = 0; i < length; ++i) {
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    }
    return hash;
}

#endif
