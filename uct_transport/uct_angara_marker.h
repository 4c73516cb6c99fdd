/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion: marker channels, the operations that wait for them, flush and fence. A channel is a
 * marker slot with the values posted to it; a peer has one (read-backs from it), and the interface
 * has one for the self-markers of UCX_ANGARA_SELF_MARKER.
 */
#ifndef UCT_ANGARA_MARKER_H
#define UCT_ANGARA_MARKER_H

#include "uct_angara_compat.h"
#include "uct_angara_life.h"

#include <angara/angara_fast.h>

struct uct_angara_iface;
struct uct_angara_peer;
typedef struct uct_angara_op uct_angara_op_t;

/** A marker slot and what is known of it. Values count up from what the slot held at first. */
typedef struct uct_angara_channel {
    angara_marker_slot_t *slot;   /**< NULL until first needed */
    uint64_t              posted; /**< largest value posted */
    uint64_t              want;   /**< largest value that somebody waits for */
    ucs_queue_head_t      ops;    /**< operations in order of their values */
} uct_angara_channel_t;

/** Called when the operation has completed or failed. Owns the op. */
typedef void (*uct_angara_op_func_t)(struct uct_angara_iface *iface, uct_angara_op_t *op,
                                     ucs_status_t status);

/** Something that waits for a marker. */
struct uct_angara_op {
    ucs_queue_elem_t        queue;
    uint64_t                value; /**< marker that completes it */
    uct_angara_op_func_t    func;
    struct uct_angara_peer *peer;
    uct_completion_t       *comp;
    void                   *bounce;  /**< bounce buffer to release, or NULL */
    uint8_t                 is_ours; /**< part of a handshake: no user waits for it */
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
        void              *group; /**< flush of an interface */
        uct_angara_event_t event; /**< of a handshake: what the marker's arrival is */
    };
};

static inline void uct_angara_channel_init(uct_angara_channel_t *channel)
{
    channel->slot   = NULL;
    channel->posted = 0;
    channel->want   = 0;
    ucs_queue_head_init(&channel->ops);
}

/** @return non-zero if all that was posted has arrived. */
static UCS_F_ALWAYS_INLINE int uct_angara_channel_idle(const uct_angara_channel_t *channel)
{
    return (channel->slot == NULL) || angara_marker_arrived(channel->slot, channel->posted);
}

/** @return non-zero if the peer has had something since its last marker. */
int uct_angara_peer_is_dirty(const struct uct_angara_peer *peer);

/**
 * Post one marker that covers all that was issued to the peer.
 * @return UCS_OK, UCS_ERR_NO_RESOURCE, or why the peer fails.
 */
ucs_status_t uct_angara_peer_post_marker(struct uct_angara_peer *peer);

/**
 * To be called right after a ring operation was posted to the peer.
 *
 * @return UCS_OK if it and all before it has completed; UCS_INPROGRESS if @a value_p was set to the
 *         marker that will tell: enqueue an op with it.
 */
ucs_status_t uct_angara_peer_try_complete(struct uct_angara_peer *peer, uint64_t *value_p);

/** Queue @a op on the channel as it is; uct_angara_peer_enqueue() also sees to the marker. */
void uct_angara_channel_enqueue(uct_angara_channel_t *channel, uct_angara_op_t *op, uint64_t value);

/** Queue @a op on the peer until the marker @a value has arrived. */
void uct_angara_peer_enqueue(struct uct_angara_peer *peer, uct_angara_op_t *op, uint64_t value);

/** An op for @a peer. @return NULL if memory is exhausted. */
uct_angara_op_t *uct_angara_op_get(struct uct_angara_peer *peer, uct_angara_op_func_t func,
                                   uct_completion_t *comp);

/** Release the op and its bounce buffer, then complete its user's request. */
void uct_angara_op_finish(struct uct_angara_iface *iface, uct_angara_op_t *op, ucs_status_t status);

/** Complete what has arrived, post what is wanted. @return number of completions. */
unsigned uct_angara_peer_progress_markers(struct uct_angara_peer *peer);

/** Fail all ops of the peer, and forget what waits for a batch to it. */
void uct_angara_peer_fail_ops(struct uct_angara_peer *peer, ucs_status_t status);

/** @return non-zero if a user waits for something of the peer. */
int uct_angara_peer_has_user_ops(const struct uct_angara_peer *peer);

/**
 * Start or continue a flush of one peer.
 *
 * @param func   Called at the end if UCS_INPROGRESS is returned and @a comp or @a group is given.
 * @param comp   User's completion or NULL.
 * @param group  For @a func.
 */
ucs_status_t uct_angara_peer_flush(struct uct_angara_peer *peer, uct_angara_op_func_t func,
                                   uct_completion_t *comp, void *group);

/**
 * As uct_angara_peer_flush() for a handshake of the transport's own.
 * @param func   Called at the end if UCS_INPROGRESS is returned, with @a event in the op.
 */
ucs_status_t uct_angara_peer_flush_ours(struct uct_angara_peer *peer, uct_angara_op_func_t func,
                                        uct_angara_event_t event);

/** A flush's marker has arrived. @return UCS_OK if what it covers hasn't met a deaf peer. */
ucs_status_t uct_angara_peer_confirm(struct uct_angara_peer *peer);

/** Order later operations behind all earlier ones. */
void uct_angara_peer_fence(struct uct_angara_peer *peer);

/** @return UCS_OK once the marker of the last fence has arrived. */
ucs_status_t uct_angara_peer_check_fence(struct uct_angara_peer *peer);

/** Give the marker slot back, whatever was posted to it: the pair has been reset, or is dead. */
void uct_angara_peer_close_channel(struct uct_angara_peer *peer);

/** Give the marker slot back if nobody waits for it. @return non-zero if there was one. */
int uct_angara_peer_release_slot(struct uct_angara_peer *peer);

/** Self-markers: as the functions above, on the interface's channel. */
ucs_status_t uct_angara_self_try_complete(struct uct_angara_iface *iface, uint64_t *value_p);
void uct_angara_self_enqueue(struct uct_angara_iface *iface, uct_angara_op_t *op, uint64_t value);
unsigned uct_angara_self_progress(struct uct_angara_iface *iface);

ucs_status_t uct_angara_ep_flush(uct_ep_h tl_ep, unsigned flags, uct_completion_t *comp);
ucs_status_t uct_angara_ep_fence(uct_ep_h tl_ep, unsigned flags);
ucs_status_t uct_angara_iface_flush(uct_iface_h tl_iface, unsigned flags, uct_completion_t *comp);
ucs_status_t uct_angara_iface_fence(uct_iface_h tl_iface, unsigned flags);

#endif
