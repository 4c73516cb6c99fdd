/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Words as a CPU reads, writes and changes them at once, for whoever executes descriptors. Knows no
 * fabric.
 */
#ifndef ANG_ATOMIC_H
#define ANG_ATOMIC_H

#include "desc.h"

#include <angara/angara.h>

#include <stdint.h>
#include <string.h>

/*
 * Perform the descriptor's atomic on `word`, which is aligned to its width (8, or else 4); *old:
 * the value before. @return ANGARA_OK, or ANGARA_ERR_INVALID for an unknown operation.
 */
angara_status_t ang_cpu_atomic(void *word, const ang_desc_t *desc, uint64_t *old);

/* Words of user memory, whatever the program has there. */
typedef uint8_t  ang_u8_t __attribute__((may_alias));
typedef uint16_t ang_u16_t __attribute__((may_alias));
typedef uint32_t ang_u32_t __attribute__((may_alias));
typedef uint64_t ang_u64_t __attribute__((may_alias));

/* A word of which neither end needs to be aligned: an end that is, is accessed at once. */
#define ANG_COPY_WORD(_type, _dst, _src)                                      \
    do {                                                                      \
        _type word_;                                                          \
        if ((uintptr_t)(_src) % sizeof(_type) == 0) {                         \
            word_ = __atomic_load_n((const _type *)(_src), __ATOMIC_ACQUIRE); \
        } else {                                                              \
            memcpy(&word_, (_src), sizeof(_type));                            \
        }                                                                     \
        if ((uintptr_t)(_dst) % sizeof(_type) == 0) {                         \
            __atomic_store_n((_type *)(_dst), word_, __ATOMIC_RELEASE);       \
        } else {                                                              \
            memcpy((_dst), &word_, sizeof(_type));                            \
        }                                                                     \
    } while (0)

/*
 * Copy as a NIC does: a naturally aligned word of 1, 2, 4 or 8 bytes is read at once, whatever
 * changes it. (It is stored at once, too, which not all ways of a provider do.) Longer copies
 * promise nothing; the two may overlap.
 */
static inline void ang_cpu_copy(void *dst, const void *src, uint64_t length)
{
    switch (length) {
    case 0:
        break;
    case 1:
        ANG_COPY_WORD(ang_u8_t, dst, src);
        break;
    case 2:
        ANG_COPY_WORD(ang_u16_t, dst, src);
        break;
    case 4:
        ANG_COPY_WORD(ang_u32_t, dst, src);
        break;
    case 8:
        ANG_COPY_WORD(ang_u64_t, dst, src);
        break;
    default:
        memmove(dst, src, length);
    }
}

#endif
