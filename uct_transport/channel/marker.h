/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion: a marker slot with the values posted to it, and the operations that wait for them. A
 * channel has one (read-backs from its PE), and the port has one for self-markers.
 */
#ifndef UCT_ANGARA_MARKER_H
#define UCT_ANGARA_MARKER_H

#include "base/compat.h"

#include <angara/angara_fast.h>

struct uct_angara_channel;
struct uct_angara_port;
typedef struct uct_angara_op uct_angara_op_t;

/** A marker slot and what is known of it. Values count up from what the slot held at first. */
typedef struct uct_angara_markers {
    angara_marker_slot_t *slot;   /**< NULL until first needed */
    uint64_t              posted; /**< largest value posted */
    uint64_t              want;   /**< largest value that somebody waits for */
    ucs_queue_head_t      ops;    /**< operations in order of their values */
} uct_angara_markers_t;

/** Called when the operation has completed or failed. Owns the op. */
typedef void (*uct_angara_op_func_t)(struct uct_angara_port *port, uct_angara_op_t *op,
                                     ucs_status_t status);

/** Something that waits for a marker. */
struct uct_angara_op {
    ucs_queue_elem_t           queue;
    uint64_t                   value; /**< marker that completes it */
    uct_angara_op_func_t       func;
    struct uct_angara_channel *ch;
    uct_completion_t          *comp;
    void                      *bounce;  /**< bounce buffer to release, or NULL */
    uint8_t                    is_ours; /**< the owner's own: no user waits for it */
    uint8_t is_flush; /**< user's flush: ends behind puts that wait for self-markers */
    union {
        struct {
            void  *result;
            size_t length;
        } fetch;
        struct {
            uct_unpack_callback_t cb;
            void                 *arg;
            size_t                length;
        } unpack;
        struct {
            void    *group; /**< of an interface's */
            uint64_t head;  /**< tx.head when it began */
        } flush;
        unsigned tag; /**< of the owner's own */
    };
};

static inline void uct_angara_markers_init(uct_angara_markers_t *markers)
{
    markers->slot   = NULL;
    markers->posted = 0;
    markers->want   = 0;
    ucs_queue_head_init(&markers->ops);
}

/** @return non-zero if all that was posted has arrived. */
static UCS_F_ALWAYS_INLINE int uct_angara_markers_idle(const uct_angara_markers_t *markers)
{
    return (markers->slot == NULL) || angara_marker_arrived(markers->slot, markers->posted);
}

/** Queue @a op as it is; uct_angara_channel_enqueue() also sees to the marker. */
void uct_angara_markers_enqueue(uct_angara_markers_t *markers, uct_angara_op_t *op, uint64_t value);

#endif
