/* SPDX-License-Identifier: BSD-3-Clause */
/* Atomic operations as a CPU performs them, for whoever executes descriptors. Knows no fabric. */
#ifndef ANG_ATOMIC_H
#define ANG_ATOMIC_H

#include "desc.h"

#include <angara/angara.h>

/*
 * Perform the descriptor's atomic on `word`, which is aligned to its width (8, or else 4); *old:
 * the value before. @return ANGARA_OK, or ANGARA_ERR_INVALID for an unknown operation.
 */
angara_status_t ang_cpu_atomic(void *word, const ang_desc_t *desc, uint64_t *old);

#endif
