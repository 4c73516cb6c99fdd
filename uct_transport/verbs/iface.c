/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interface: configuration, creation, addresses. What it tells UCX of itself is in
 * attr.c, its progress in progress.c.
 */
#include "verbs/settings.h"
#include "verbs/ep.h"

#include "base/alike.h"
#include "base/say.h"

#include <stdlib.h>

const char *uct_angara_dead_peer_names[] = {[UCT_ANGARA_DEAD_PEER_ABORT]  = "abort",
                                            [UCT_ANGARA_DEAD_PEER_ERROR]  = "error",
                                            [UCT_ANGARA_DEAD_PEER_IGNORE] = "ignore",
                                            [UCT_ANGARA_DEAD_PEER_LAST]   = NULL};

ucs_config_field_t uct_angara_iface_config_table[] = {
    {"", "", NULL, ucs_offsetof(uct_angara_iface_config_t, super),
     UCS_CONFIG_TYPE_TABLE(uct_iface_config_table)},

    UCT_ANGARA_CONFIG_FIELD(
        "SLOT_SIZE", "128",
        "Bytes per slot of a receive ring, a power of two from 64 to 4096. A message that fits "
        "into one\n"
        "slot with its 8-byte header word is sent eagerly, a longer one as a run of slots.",
        uct_angara_iface_config_t, port.slot_size, UCS_CONFIG_TYPE_MEMUNITS),

    UCT_ANGARA_CONFIG_FIELD(
        "RING_SLOTS", "auto",
        "Slots of each receive ring, from 16 to 32768. Every peer that sends to this process "
        "costs one\n"
        "ring. auto: rings of 512 KiB for the first four peers, of 55 KiB for the others.",
        uct_angara_iface_config_t, port.ring_slots, UCS_CONFIG_TYPE_ULUNITS),

    UCT_ANGARA_CONFIG_FIELD(
        "SEG_SIZE", "8448",
        "Longest message through a ring in bytes, its 8-byte header word included; at most a "
        "quarter of\n"
        "the ring. Longer ones are split, or sent by rendezvous.",
        uct_angara_iface_config_t, port.seg_size, UCS_CONFIG_TYPE_MEMUNITS),

    UCT_ANGARA_CONFIG_FIELD(
        "MAX_PEERS", "1024",
        "Largest number of peers that may send to this process, and that it may send to. Others "
        "are refused; where UCX_NUM_EPS says that there may be more, UCP prefers a transport with "
        "room for all.",
        uct_angara_iface_config_t, port.max_peers, UCS_CONFIG_TYPE_UINT),

    UCT_ANGARA_CONFIG_FIELD(
        "EARLY_SIZE", "auto",
        "Memory for messages that are sent before their receiver has granted a ring, of all peers "
        "together;\n"
        "16 messages and 8 KiB of each. Without room they wait as if the ring were full. auto: "
        "1 MiB; 0 in a\n"
        "process of MPI (PMIX_RANK or PMI_RANK is set), which may stop to make progress once it "
        "has sent.",
        uct_angara_iface_config_t, port.early_size, UCS_CONFIG_TYPE_MEMUNITS),

    UCT_ANGARA_CONFIG_FIELD(
        "PUT_MAX", "inf",
        "Largest window put in bytes, if less than what the provider can do. Longer messages are "
        "sent\n"
        "in several puts. Without effect where windows are written by plain stores.",
        uct_angara_iface_config_t, port.put_max, UCS_CONFIG_TYPE_MEMUNITS),

    UCT_ANGARA_CONFIG_FIELD("BOUNCE_SIZE", "8k",
                            "Bytes of a registered bounce buffer: the largest buffered put or get.",
                            uct_angara_iface_config_t, port.bounce_size, UCS_CONFIG_TYPE_MEMUNITS),

    UCT_ANGARA_CONFIG_FIELD(
        "BOUNCE_COUNT", "64",
        "Number of registered bounce buffers: buffered puts, gets and fetching atomics in flight; "
        "short puts that are posted together share one.",
        uct_angara_iface_config_t, port.bounce_count, UCS_CONFIG_TYPE_UINT),

    UCT_ANGARA_CONFIG_FIELD("MAX_IOV", "16", "Largest number of pieces of a zero-copy operation.",
                            uct_angara_iface_config_t, max_iov, UCS_CONFIG_TYPE_UINT),

    UCT_ANGARA_CONFIG_FIELD(
        "SELF_MARKER", "n",
        "Complete zero-copy puts when their source has been read rather than when the data has "
        "arrived.\n"
        "Only safe if all traffic to a peer uses this transport.",
        uct_angara_iface_config_t, self_marker, UCS_CONFIG_TYPE_BOOL),

    UCT_ANGARA_CONFIG_FIELD(
        "DEAD_PEER", "abort",
        "What to do when a peer dies and nobody handles the error: abort (print which and why, "
        "abort),\n"
        "error (print), ignore. A call that fails because it reaches beyond the bounds or the "
        "rights of a\n"
        "region logs the reason, whoever handles the error, unless this is ignore.",
        uct_angara_iface_config_t, dead_peer, UCS_CONFIG_TYPE_ENUM(uct_angara_dead_peer_names)),

    UCT_ANGARA_CONFIG_FIELD("BW", "auto",
                            "Bandwidth that is reported to UCX, from which it derives thresholds. "
                            "auto: 11 GB/s for each process\n"
                            "on the soft fabric, 6.8 GB/s for all processes of a node on a NIC.",
                            uct_angara_iface_config_t, bandwidth, UCS_CONFIG_TYPE_BW),

    UCT_ANGARA_CONFIG_FIELD(
        "GPU_RNDV_THRESH", "1",
        "Bytes from which a message out of GPU memory goes by rendezvous to a process of this node "
        "that\n"
        "uses another GPU: straight from one to the other, once it has been received. inf: from "
        "the size on\n"
        "from which other messages do. Without effect where UCX_RNDV_THRESH is set. From UCX 1.14 "
        "on UCP's\n"
        "estimates decide, for any receiver; more than 1 is as inf.",
        uct_angara_iface_config_t, gpu_rndv_thresh, UCS_CONFIG_TYPE_MEMUNITS),

    UCT_ANGARA_CONFIG_FIELD(
        "STATS", "",
        "File for the counters of the process, written when an interface closes; %p is the "
        "process id,\n"
        "%h the host name. Empty for none.",
        uct_angara_iface_config_t, stats, UCS_CONFIG_TYPE_STRING),

    {.name = NULL}};

/* ---- addresses ------------------------------------------------------------------------------ */

static ucs_status_t uct_angara_iface_get_device_address(uct_iface_h        tl_iface,
                                                        uct_device_addr_t *tl_addr)
{
    uct_angara_iface_t      *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);
    uct_angara_device_addr_t addr  = {.magic    = ANGARA_ADDRESS_MAGIC,
                                      .wire     = ANGARA_WIRE_VERSION,
                                      .protocol = UCT_ANGARA_PROTOCOL,
                                      .node     = iface->net.address.node};

    memcpy(tl_addr, &addr, sizeof(addr));
    return UCS_OK;
}

static ucs_status_t uct_angara_iface_get_address(uct_iface_h tl_iface, uct_iface_addr_t *tl_addr)
{
    uct_angara_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);

    memcpy(tl_addr, &iface->net.address, sizeof(iface->net.address));
    return UCS_OK;
}

int uct_angara_iface_is_reachable(const uct_iface_h tl_iface, const uct_device_addr_t *dev_addr,
                                  const uct_iface_addr_t *iface_addr)
{
    uct_angara_iface_t      *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);
    uct_angara_device_addr_t device;
    angara_address_t         address;

    memcpy(&device, dev_addr, sizeof(device));
    if (device.magic != ANGARA_ADDRESS_MAGIC) {
        ucs_debug("angara: not the address of an angara device");
        return 0;
    }

    if ((device.wire != ANGARA_WIRE_VERSION) || (device.protocol != UCT_ANGARA_PROTOCOL)) {
        uct_angara_log_alike(UCS_LOG_LEVEL_ERROR,
                             "angara: a peer speaks version %u.%u (libangara wire, transport "
                             "protocol) and this process %u.%u: use the same installation in all "
                             "processes",
                             device.wire, device.protocol, ANGARA_WIRE_VERSION,
                             UCT_ANGARA_PROTOCOL);
        return 0;
    }

    if (iface_addr == NULL) {
        return 1;
    }

    memcpy(&address, iface_addr, sizeof(address));
    if (memcmp(&address, &iface->net.address, sizeof(address)) == 0) {
        return 1; /* also where the node's other PEs are out of reach */
    }
    return angara_is_reachable(uct_angara_iface_md(iface)->dom, &address);
}

static UCS_CLASS_DECLARE_DELETE_FUNC(uct_angara_iface_t, uct_iface_t);

static uct_iface_ops_t uct_angara_iface_ops = {
    .ep_put_short             = uct_angara_ep_put_short,
    .ep_put_bcopy             = uct_angara_ep_put_bcopy,
    .ep_put_zcopy             = uct_angara_ep_put_zcopy,
    .ep_get_short             = uct_angara_ep_get_short,
    .ep_get_bcopy             = uct_angara_ep_get_bcopy,
    .ep_get_zcopy             = uct_angara_ep_get_zcopy,
    .ep_am_short              = uct_angara_ep_am_short,
    .ep_am_short_iov          = uct_angara_ep_am_short_iov,
    .ep_am_bcopy              = uct_angara_ep_am_bcopy,
    .ep_am_zcopy              = uct_angara_ep_am_zcopy,
    .ep_atomic_cswap64        = uct_angara_ep_atomic_cswap64,
    .ep_atomic_cswap32        = uct_angara_ep_atomic_cswap32,
    .ep_atomic32_post         = uct_angara_ep_atomic32_post,
    .ep_atomic64_post         = uct_angara_ep_atomic64_post,
    .ep_atomic32_fetch        = uct_angara_ep_atomic32_fetch,
    .ep_atomic64_fetch        = uct_angara_ep_atomic64_fetch,
    .ep_pending_add           = uct_angara_ep_pending_add,
    .ep_pending_purge         = uct_angara_ep_pending_purge,
    .ep_flush                 = uct_angara_ep_flush,
    .ep_fence                 = uct_angara_ep_fence,
    .ep_check                 = uct_angara_ep_check,
    .ep_create                = UCS_CLASS_NEW_FUNC_NAME(uct_angara_ep_t),
    .ep_destroy               = UCS_CLASS_DELETE_FUNC_NAME(uct_angara_ep_t),
    .iface_flush              = uct_angara_iface_flush,
    .iface_fence              = uct_angara_iface_fence,
    .iface_progress_enable    = uct_angara_iface_progress_enable,
    .iface_progress_disable   = uct_angara_iface_progress_disable,
    .iface_progress           = uct_angara_iface_progress,
    .iface_event_fd_get       = uct_angara_iface_event_fd_get,
    .iface_event_arm          = uct_angara_iface_event_arm,
    .iface_close              = UCS_CLASS_DELETE_FUNC_NAME(uct_angara_iface_t),
    .iface_query              = uct_angara_iface_query,
    .iface_get_device_address = uct_angara_iface_get_device_address,
    .iface_get_address        = uct_angara_iface_get_address,
    .iface_is_reachable       = uct_angara_iface_is_reachable};

UCT_ANGARA_IS_CONNECTED(uct_angara_ep_is_connected, uct_angara_ep_leads_to)

static uct_iface_internal_ops_t uct_angara_iface_internal_ops = UCT_ANGARA_INTERNAL_OPS(
    uct_angara_iface_estimate_perf, uct_angara_ep_is_connected);

/* ---- what the net asks --------------------------------------------------------------------- */

static void uct_angara_iface_deliver(uct_angara_port_t *port, uint8_t id, void *data, size_t length)
{
    uct_iface_invoke_am(&uct_angara_port_iface(port)->super, id, data, length, 0);
}

/* The same where messages must lie as the user wants it. */
static void uct_angara_iface_deliver_aligned(uct_angara_port_t *port, uint8_t id, void *data,
                                             size_t length)
{
    uct_angara_iface_t *iface = uct_angara_port_iface(port);
    char               *copy;

    if (!uct_angara_iface_is_aligned(iface, (uintptr_t)data)) {
        copy = iface->aligned - iface->align_offset + iface->align_mask + 1;
        data = memcpy(copy, data, length);
    }
    uct_angara_iface_deliver(port, id, data, length);
}

static ucs_status_t uct_angara_iface_tell(uct_angara_user_t *user, ucs_status_t status)
{
    uct_angara_ep_t *ep = ucs_container_of(user, uct_angara_ep_t, user);

    return uct_iface_handle_ep_err(ep->super.super.iface, &ep->super.super, status);
}

static void uct_angara_iface_refused(uct_angara_net_t *net, const char *reason)
{
    int is_quiet = ucs_container_of(net, uct_angara_iface_t, net)->config.dead_peer ==
                   UCT_ANGARA_DEAD_PEER_IGNORE;

    ucs_log(is_quiet ? UCS_LOG_LEVEL_DEBUG : UCS_LOG_LEVEL_ERROR, "angara: %s", reason);
}

/* An endpoint failed, and its error handler took no care of it. */
static void uct_angara_iface_unhandled(uct_angara_net_t *net, const char *reason, int is_said)
{
    switch (ucs_container_of(net, uct_angara_iface_t, net)->config.dead_peer) {
    case UCT_ANGARA_DEAD_PEER_ABORT:
        uct_angara_abort("%s, and nothing in this program handles that: aborting "
                         "(UCX_ANGARA_DEAD_PEER=error goes on)",
                         reason);
    case UCT_ANGARA_DEAD_PEER_ERROR:
        ucs_log(is_said ? UCS_LOG_LEVEL_DEBUG : UCS_LOG_LEVEL_ERROR, "angara: %s", reason);
        break;
    default:
        ucs_debug("angara: %s", reason);
        break;
    }
}

static const uct_angara_net_ops_t uct_angara_iface_net_ops = {
    .tell      = uct_angara_iface_tell,
    .refused   = uct_angara_iface_refused,
    .unhandled = uct_angara_iface_unhandled};

/* ---- creation ------------------------------------------------------------------------------ */

/*
 * An early message is sent by progress. MPI promises more: what MPI_Send has taken arrives though
 * the sender waits for something else from then on, as Open MPI does in MPI_Comm_spawn().
 */
static size_t uct_angara_iface_early_size(const uct_angara_iface_config_t *config)
{
    if (config->port.early_size != UCS_MEMUNITS_AUTO) {
        return config->port.early_size;
    }
    return ((getenv("PMIX_RANK") != NULL) || (getenv("PMI_RANK") != NULL)) ? 0 :
                                                                             UCT_ANGARA_EARLY_SIZE;
}

/*
 * Where messages have to lie. In a ring their payload begins 8 bytes behind the beginning of a
 * slot: where that doesn't do they are delivered from a copy.
 */
static ucs_status_t uct_angara_iface_set_alignment(uct_angara_iface_t       *iface,
                                                   const uct_iface_params_t *params)
{
    size_t alignment = UCT_IFACE_PARAM_VALUE(params, am_alignment, AM_ALIGNMENT, 1ul);
    size_t offset    = UCT_IFACE_PARAM_VALUE(params, am_align_offset, AM_ALIGN_OFFSET, 0ul);
    void  *buffer;

    if (!ucs_is_pow2(alignment)) {
        ucs_error("angara: alignment of active messages to %zu: it must be a power of two",
                  alignment);
        return UCS_ERR_INVALID_PARAM;
    }

    /* UCP's offset is the size of its header, however small the alignment. */
    if ((offset >= alignment) && (!(params->field_mask & UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT) ||
                                  (alignment > sizeof(uint64_t)))) {
        ucs_error("angara: active messages are to be aligned to %zu at offset %zu: that must be "
                  "less",
                  alignment, offset);
        return UCS_ERR_INVALID_PARAM;
    }

    iface->align_mask   = alignment - 1;
    iface->align_offset = offset & (alignment - 1);
    if ((alignment <= 1ul << UCT_ANGARA_SLOT_SHIFT_MIN) &&
        uct_angara_iface_is_aligned(iface, sizeof(uint64_t))) {
        return UCS_OK;
    }

    if (ucs_posix_memalign(&buffer, ucs_max(alignment, sizeof(uint64_t)),
                           alignment + iface->net.port.run_bytes, "angara_aligned") != 0) {
        ucs_error("angara: no memory for messages that are aligned to %zu", alignment);
        return UCS_ERR_NO_MEMORY;
    }

    iface->aligned          = buffer;
    iface->net.port.deliver = uct_angara_iface_deliver_aligned;
    return UCS_OK;
}

/**
 * Peers that the interface opened last has room for: UCP prefers other transports where there may
 * be more. 0: none was opened. Open MPI's component asks.
 */
__attribute__((visibility("default"))) unsigned uct_angara_room = 0;

static UCS_CLASS_INIT_FUNC(uct_angara_iface_t, uct_md_h tl_md, uct_worker_h worker,
                           const uct_iface_params_t *params, const uct_iface_config_t *tl_config)
{
    uct_angara_iface_config_t *config = ucs_derived_of(tl_config, uct_angara_iface_config_t);
    uct_angara_md_t           *md     = ucs_derived_of(tl_md, uct_angara_md_t);
    uct_angara_port_config_t   port;
    ucs_status_t               status;

    UCT_CHECK_PARAM(params->field_mask & UCT_IFACE_PARAM_FIELD_OPEN_MODE,
                    "UCT_IFACE_PARAM_FIELD_OPEN_MODE is not defined");
    UCT_CHECK_PARAM(params->open_mode & UCT_IFACE_OPEN_MODE_DEVICE,
                    "angara: only UCT_IFACE_OPEN_MODE_DEVICE is supported");

    UCS_CLASS_CALL_SUPER_INIT(
        uct_base_iface_t, &uct_angara_iface_ops, &uct_angara_iface_internal_ops, tl_md, worker,
        params,
        tl_config UCS_STATS_ARG(
            (params->field_mask & UCT_IFACE_PARAM_FIELD_STATS_ROOT) ? params->stats_root : NULL)
            UCS_STATS_ARG(UCT_ANGARA_NAME));

    memset((char *)self + sizeof(self->super), 0, sizeof(*self) - sizeof(self->super));
    self->config.max_iov         = ucs_max(config->max_iov, 1u);
    self->config.self_marker     = config->self_marker;
    self->config.dead_peer       = config->dead_peer;
    self->config.bandwidth       = config->bandwidth;
    self->config.gpu_rndv_thresh = config->gpu_rndv_thresh;
    self->is_batching            = !config->self_marker && !UCT_ANGARA_MUTANT(self_marker_put) &&
                        !UCT_ANGARA_MUTANT(marker_before_data);

    self->config.stats = ucs_strdup(config->stats, "angara_stats");
    if (self->config.stats == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    uct_angara_stats_check(config->stats);
    port            = config->port;
    port.early_size = uct_angara_iface_early_size(config);
    status = uct_angara_net_open(&self->net, md->dom, &md->attr, &port, &uct_angara_iface_net_ops,
                                 uct_angara_iface_deliver);
    if (status != UCS_OK) {
        goto err_stats;
    }

    status = uct_angara_iface_set_alignment(self, params);
    if (status != UCS_OK) {
        goto err_net;
    }

    ucs_arbiter_init(&self->arbiter);
    __atomic_store_n(&uct_angara_room, self->net.port.window.max_peers, __ATOMIC_RELAXED);
    return UCS_OK;

err_net:
    uct_angara_net_close(&self->net);
err_stats:
    ucs_free(self->config.stats);
    return status;
}

static UCS_CLASS_CLEANUP_FUNC(uct_angara_iface_t)
{
    angara_counters_t pe;

    angara_pe_counters(self->net.port.pe, &pe);
    uct_base_iface_progress_disable(&self->super.super, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    uct_angara_net_close(&self->net);
    uct_angara_stats_report(self->config.stats, &self->net.port.stats, &pe);
    ucs_free(self->aligned);
    ucs_free(self->config.stats);
    ucs_arbiter_cleanup(&self->arbiter);
}

UCS_CLASS_DEFINE(uct_angara_iface_t, uct_base_iface_t)
UCS_CLASS_DEFINE_NEW_FUNC(uct_angara_iface_t, uct_iface_t, uct_md_h, uct_worker_h,
                          const uct_iface_params_t *, const uct_iface_config_t *);
static UCS_CLASS_DEFINE_DELETE_FUNC(uct_angara_iface_t, uct_iface_t)
