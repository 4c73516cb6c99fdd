/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The descriptor of the command ring: what an initiator hands to the descriptor engine, in the soft
 * provider as in the (emulated) NIC. A wire format: sizes and offsets are pinned below.
 *
 * The ring is the user's memory, so an engine copies a descriptor once and checks the copy. It
 * takes the initiator's identity from the ring, never from the descriptor.
 */
#ifndef ANG_DESC_H
#define ANG_DESC_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    ANG_OP_PUT = 1,     /* local region -> remote region */
    ANG_OP_PUT_INLINE,  /* bytes that came with the descriptor -> remote region */
    ANG_OP_GET,         /* remote region -> local region */
    ANG_OP_ATOMIC,      /* on a remote word; the old value to the local region if lkey is not 0 */
    ANG_OP_MARKER,      /* read-back from the destination into marker slot loffset */
    ANG_OP_MARKER_SELF, /* as a put to oneself: lands once all sources before it were read */
    ANG_OP_LAST
} ang_op_t;

#define ANG_DESC_INLINE 40

typedef struct ang_desc {
    uint8_t  op;                    /* ang_op_t */
    uint8_t  atomic;                /* angara_atomic_op_t */
    uint8_t  width;                 /* of an atomic: 4 or 8 */
    uint8_t  flags;                 /* 0; bits for triggered start and put-with-signal come later */
    uint32_t pair;                  /* destination: index in the PE's table of pairs */
    uint64_t lkey;                  /* local region */
    uint64_t loffset;               /* offset in it; marker slot */
    uint64_t rkey;                  /* remote region */
    uint64_t roffset;               /* offset in it */
    uint64_t length;                /* bytes of a put or get */
    uint64_t operand;               /* of an atomic; value of a marker */
    uint64_t compare;               /* of a compare-and-swap */
    uint32_t trigger_counter;       /* room for triggered operations: 0 */
    uint32_t trigger_threshold;     /* 0 */
    uint64_t signal_offset;         /* room for put-with-signal: 0 */
    uint64_t signal_value;          /* 0 */
    uint8_t  data[ANG_DESC_INLINE]; /* of PUT_INLINE on a NIC; the soft provider passes a pointer */
} ang_desc_t;

static_assert(sizeof(ang_desc_t) == 128, "the descriptor is 128 bytes");
static_assert(offsetof(ang_desc_t, operand) == 48, "fixed offsets");
static_assert(offsetof(ang_desc_t, data) == 88, "fixed offsets");

/* One of several puts, or gets, that are posted together: the fields of its descriptor. */
typedef struct ang_item {
    uint64_t lkey, loffset, rkey, roffset, length;
} ang_item_t;

static inline ang_desc_t ang_item_desc(ang_op_t op, const ang_item_t *item)
{
    return (ang_desc_t){
        .op      = (uint8_t)op,
        .lkey    = item->lkey,
        .loffset = item->loffset,
        .rkey    = item->rkey,
        .roffset = item->roffset,
        .length  = item->length,
    };
}

/* Does the descriptor move `length` bytes? (What the field says elsewhere means nothing.) */
static inline int ang_desc_moves(const ang_desc_t *desc)
{
    return desc->op <= ANG_OP_GET;
}

#endif
