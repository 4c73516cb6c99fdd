/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interface: one PE with its put window, its receive rings, its peers and its progress.
 */
#ifndef UCT_ANGARA_IFACE_H
#define UCT_ANGARA_IFACE_H

#include "life/net.h"
#include "life/use.h"
#include "verbs/md.h"

#define UCT_ANGARA_SILENT_POLLS 32                /**< empty polls before a slow turn */
#define UCT_ANGARA_BUSY_ASKED   64                /**< records before peers that ask are served */
#define UCT_ANGARA_GPU_SENT     64                /**< allocations that are known */
#define UCT_ANGARA_EARLY_SIZE   ((size_t)1 << 20) /**< memory of early messages */

/** What to do about a dead peer that nobody handles. */
typedef enum {
    UCT_ANGARA_DEAD_PEER_ABORT,
    UCT_ANGARA_DEAD_PEER_ERROR,
    UCT_ANGARA_DEAD_PEER_IGNORE,
    UCT_ANGARA_DEAD_PEER_LAST
} uct_angara_dead_peer_t;

extern const char *uct_angara_dead_peer_names[];

typedef struct uct_angara_iface_config {
    uct_iface_config_t       super;
    uct_angara_port_config_t port;
    unsigned                 max_iov;
    int                      self_marker;
    int                      dead_peer;
    double                   bandwidth;
    size_t                   gpu_rndv_thresh;
    char                    *stats;
} uct_angara_iface_config_t;

/** Device address: can we talk at all? */
typedef struct uct_angara_device_addr {
    uint16_t magic;    /**< ANGARA_ADDRESS_MAGIC */
    uint8_t  wire;     /**< ANGARA_WIRE_VERSION */
    uint8_t  protocol; /**< UCT_ANGARA_PROTOCOL */
    uint32_t node;
} UCS_S_PACKED uct_angara_device_addr_t;

typedef struct uct_angara_iface {
    uct_base_iface_t super;
    uct_angara_net_t net;

    unsigned armed;       /**< the event descriptor is armed */
    uint8_t  is_batching; /**< short transfers wait for a batch */
    uint8_t  serves;      /**< peers' requests are looked after, though progress is off */
    unsigned serve_turns; /**< turns of the worker since the descriptor was armed */

    ucs_arbiter_t arbiter; /**< pending requests */

    struct {
        size_t                 max_iov;
        int                    self_marker;
        uct_angara_dead_peer_t dead_peer;
        double                 bandwidth;
        size_t                 gpu_rndv_thresh;
        char                  *stats;
    } config;

    uint64_t gpu_sent[UCT_ANGARA_GPU_SENT]; /**< ids of GPU memory, see gpu_rndv.c */

    char  *aligned;    /**< copy of what must be aligned; NULL: rings will do */
    size_t align_mask; /**< alignment of active messages, less one */
    size_t align_offset;
} uct_angara_iface_t;

UCS_CLASS_DECLARE_NEW_FUNC(uct_angara_iface_t, uct_iface_t, uct_md_h, uct_worker_h,
                           const uct_iface_params_t *, const uct_iface_config_t *);

extern ucs_config_field_t uct_angara_iface_config_table[];

static inline uct_angara_md_t *uct_angara_iface_md(uct_angara_iface_t *iface)
{
    return ucs_derived_of(iface->super.md, uct_angara_md_t);
}

/** The interface that a port, a net or a peer belongs to. */
static UCS_F_ALWAYS_INLINE uct_angara_iface_t *uct_angara_port_iface(uct_angara_port_t *port)
{
    return ucs_container_of(port, uct_angara_iface_t, net.port);
}

static UCS_F_ALWAYS_INLINE uct_angara_iface_t *uct_angara_peer_iface(uct_angara_peer_t *peer)
{
    return uct_angara_port_iface(peer->ch.port);
}

/** Does a message that begins at @a address lie as the user wants it? */
static inline int uct_angara_iface_is_aligned(const uct_angara_iface_t *iface, uintptr_t address)
{
    return ((address + iface->align_offset) & iface->align_mask) == 0;
}

unsigned     uct_angara_iface_progress(uct_iface_h tl_iface);
void         uct_angara_iface_progress_enable(uct_iface_h tl_iface, unsigned flags);
void         uct_angara_iface_progress_disable(uct_iface_h tl_iface, unsigned flags);
ucs_status_t uct_angara_iface_event_arm(uct_iface_h tl_iface, unsigned events);
ucs_status_t uct_angara_iface_event_fd_get(uct_iface_h tl_iface, int *fd_p);
ucs_status_t uct_angara_iface_query(uct_iface_h tl_iface, uct_iface_attr_t *attr);
ucs_status_t uct_angara_iface_estimate_perf(uct_iface_h tl_iface, uct_perf_attr_t *attr);
int uct_angara_iface_is_reachable(const uct_iface_h tl_iface, const uct_device_addr_t *dev_addr,
                                  const uct_iface_addr_t *iface_addr);

#endif
