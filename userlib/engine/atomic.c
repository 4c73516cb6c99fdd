/* SPDX-License-Identifier: BSD-3-Clause */
/* See atomic.h. Touches the word only. */
#include "atomic.h"

#define PERFORM(_type)                                                                \
    do {                                                                              \
        _type *target  = word;                                                        \
        _type  operand = (_type)desc->operand;                                        \
        _type  value   = (_type)desc->compare;                                        \
        switch ((angara_atomic_op_t)desc->atomic) {                                   \
        case ANGARA_ATOMIC_ADD:                                                       \
            *old = __atomic_fetch_add(target, operand, __ATOMIC_SEQ_CST);             \
            return ANGARA_OK;                                                         \
        case ANGARA_ATOMIC_AND:                                                       \
            *old = __atomic_fetch_and(target, operand, __ATOMIC_SEQ_CST);             \
            return ANGARA_OK;                                                         \
        case ANGARA_ATOMIC_OR:                                                        \
            *old = __atomic_fetch_or(target, operand, __ATOMIC_SEQ_CST);              \
            return ANGARA_OK;                                                         \
        case ANGARA_ATOMIC_XOR:                                                       \
            *old = __atomic_fetch_xor(target, operand, __ATOMIC_SEQ_CST);             \
            return ANGARA_OK;                                                         \
        case ANGARA_ATOMIC_SWAP:                                                      \
            *old = __atomic_exchange_n(target, operand, __ATOMIC_SEQ_CST);            \
            return ANGARA_OK;                                                         \
        case ANGARA_ATOMIC_CSWAP:                                                     \
            __atomic_compare_exchange_n(target, &value, operand, 0, __ATOMIC_SEQ_CST, \
                                        __ATOMIC_SEQ_CST);                            \
            *old = value; /* what was there, whether it matched or not */             \
            return ANGARA_OK;                                                         \
        default:                                                                      \
            return ANGARA_ERR_INVALID;                                                \
        }                                                                             \
    } while (0)

angara_status_t ang_cpu_atomic(void *word, const ang_desc_t *desc, uint64_t *old)
{
    if (desc->width == 8) {
        PERFORM(uint64_t);
    }
    PERFORM(uint32_t);
}
