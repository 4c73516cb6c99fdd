/* SPDX-License-Identifier: BSD-3-Clause */
/* See atomic.h. Touches the word only. */
#include "atomic.h"

#include <angara/angara_fast.h>

angara_status_t ang_cpu_atomic(void *word, const ang_desc_t *desc, uint64_t *old)
{
    return angara_cpu_atomic(word, (angara_atomic_op_t)desc->atomic, desc->width == 8 ? 8 : 4,
                             desc->operand, desc->compare, old) ?
               ANGARA_OK :
               ANGARA_ERR_INVALID;
}
