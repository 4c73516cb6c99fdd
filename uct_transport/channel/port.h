/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Port: what all channels of a PE share. The PE itself with its window, the rings that are polled,
 * the batch of transfers, bounce buffers, counters, and what the floor of channels asks upwards.
 */
#ifndef UCT_ANGARA_PORT_H
#define UCT_ANGARA_PORT_H

#include "base/stats.h"
#include "base/status.h"
#include "channel/batch.h"
#include "channel/bounce.h"
#include "channel/channel.h"
#include "channel/poll.h"
#include "channel/window.h"

/** What is asked of the owner of the channels. None of it may free a channel. */
typedef struct uct_angara_port_ops {
    /**
     * A call of the library has failed, other than for lack of a resource. Logs what the program
     * has asked for wrongly.
     * @return what the operation ends with: UCS_ERR_NO_RESOURCE if that isn't known yet.
     */
    ucs_status_t (*error)(uct_angara_channel_t *ch, angara_status_t status, const char *what);

    /** The other end has written nonsense, which @a text describes: ch->status is to tell it. */
    void (*nonsense)(uct_angara_channel_t *ch, const char *text);

    /**
     * A message is to be sent while ch->blocked isn't 0.
     * @return UCS_OK if it may; else what the sender is told.
     */
    ucs_status_t (*admit)(uct_angara_channel_t *ch);

    /**
     * A marker says that messages have landed, not that they are taken. Has the other end said that
     * it takes no more?
     * @return UCS_OK if it hasn't; UCS_INPROGRESS if it has: then all operations are to be ended.
     */
    ucs_status_t (*confirm)(uct_angara_channel_t *ch);
} uct_angara_port_ops_t;

/** Takes a message of a ring. @a data is valid until it returns. */
typedef void (*uct_angara_deliver_t)(struct uct_angara_port *port, uint8_t id, void *data,
                                     size_t length);

typedef struct uct_angara_port_config {
    size_t        slot_size;
    unsigned long ring_slots;
    size_t        seg_size;
    unsigned      max_peers;
    size_t        put_max;
    size_t        bounce_size;
    unsigned      bounce_count;
    size_t        early_size;
} uct_angara_port_config_t;

typedef struct uct_angara_port {
    uct_angara_poll_t    poll;
    unsigned             slow;    /**< outstanding slow work: a slow turn at each poll */
    uct_angara_deliver_t deliver; /**< owner's */
    angara_pe_h          pe;
    char                *scratch;   /**< message under construction */
    uct_angara_shape_t   shape;     /**< how we write; nslots: of our small rings */
    size_t               run_bytes; /**< payload of the longest run */
    uint8_t              is_inline; /**< ring operations may complete in the call */

    ucs_list_link_t              channels;
    ucs_list_link_t              active;      /**< channels with slow work */
    ucs_list_link_t              stirred;     /**< channels that aren't known to be quiet */
    int                          is_flushing; /**< within a flush of all: others in it calm none */
    ucs_mpool_t                  ops;
    uct_angara_batch_t           batch;
    uct_angara_bounce_t          bounce;
    uct_angara_markers_t         self_markers; /**< UCX_ANGARA_SELF_MARKER */
    unsigned                     self_waits;   /**< ops in self_markers */
    uct_angara_early_pool_t      early;        /**< memory of messages that wait for a ring */
    uct_angara_early_pool_t      copied;       /**< memory of those that a GPU copies */
    uct_angara_stats_t           stats;
    uct_angara_window_t          window;
    angara_watch_h               watch; /**< of the stats, with those of the channels */
    const uct_angara_port_ops_t *up;
} uct_angara_port_t;

/**
 * Make a PE and all that its channels share.
 *
 * @param port     Zeroed memory.
 * @param dom      Domain of the PE.
 * @param attr     What the domain can do.
 * @param config   As the user wants it; what can't be is refused with a message.
 * @param up       What is asked of the owner.
 * @param deliver  Takes the messages.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM, UCS_ERR_EXCEEDS_LIMIT, UCS_ERR_NO_MEMORY, or what
 *         angara_pe_create() says.
 */
ucs_status_t uct_angara_port_open(uct_angara_port_t *port, angara_domain_h dom,
                                  const angara_attr_t *attr, const uct_angara_port_config_t *config,
                                  const uct_angara_port_ops_t *up, uct_angara_deliver_t deliver);

/** Destroy the PE and all that its channels share. There are no channels any more. */
void uct_angara_port_close(uct_angara_port_t *port);

/** Progress that other calls may need while they wait. */
static inline void uct_angara_port_push(uct_angara_port_t *port)
{
    angara_pe_progress(port->pe);
}

/** Note and end slow work. */
static UCS_F_ALWAYS_INLINE void uct_angara_port_slow_inc(uct_angara_port_t *port)
{
    ++port->slow;
}

static UCS_F_ALWAYS_INLINE void uct_angara_port_slow_dec(uct_angara_port_t *port)
{
    ucs_assert(port->slow > 0);
    --port->slow;
}

/*
 * Loop over the channels. A channel lies on a cache line, the head of the list needn't: so the head
 * is never taken for a part of a channel, as UCS's loops do.
 */
#define UCT_ANGARA_CHANNEL_AT(_head, _link) \
    (((_link) == (_head)) ? NULL : ucs_container_of(_link, uct_angara_channel_t, list))

#define uct_angara_channels_for_each(_ch, _port)                                                   \
    for ((_ch) = UCT_ANGARA_CHANNEL_AT(&(_port)->channels, (_port)->channels.next); (_ch) != NULL; \
         (_ch) = UCT_ANGARA_CHANNEL_AT(&(_port)->channels, (_ch)->list.next))

/** Release the op and its bounce buffer, then complete its user's request. */
void uct_angara_op_finish(uct_angara_port_t *port, uct_angara_op_t *op, ucs_status_t status);

/* ---- self-markers: they cover the sources of all channels' puts ----------------------------- */

ucs_status_t uct_angara_self_try_complete(uct_angara_port_t *port, uint64_t *value_p);
void         uct_angara_self_enqueue(uct_angara_port_t *port, uct_angara_op_t *op, uint64_t value);
unsigned     uct_angara_self_progress(uct_angara_port_t *port);

#endif
