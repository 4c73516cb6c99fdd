/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interface: configuration, creation, addresses. What it tells UCX of itself is in
 * uct_angara_attr.c, its progress in uct_angara_progress.c.
 */
#include "uct_angara_config.h"
#include "uct_angara_ep.h"

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
        uct_angara_iface_config_t, slot_size, UCS_CONFIG_TYPE_MEMUNITS),

    UCT_ANGARA_CONFIG_FIELD(
        "RING_SLOTS", "auto",
        "Slots of each receive ring, from 16 to 32768. Every peer that sends to this process "
        "costs one\n"
        "ring. auto: rings of 512 KiB for the first four peers, of 55 KiB for the others.",
        uct_angara_iface_config_t, ring_slots, UCS_CONFIG_TYPE_ULUNITS),

    UCT_ANGARA_CONFIG_FIELD(
        "SEG_SIZE", "8448",
        "Longest message through a ring in bytes, its 8-byte header word included; at most a "
        "quarter of\n"
        "the ring. Longer ones are split, or sent by rendezvous.",
        uct_angara_iface_config_t, seg_size, UCS_CONFIG_TYPE_MEMUNITS),

    UCT_ANGARA_CONFIG_FIELD(
        "MAX_PEERS", "1024",
        "Largest number of peers that may send to this process, and that it may send to. Others "
        "are refused; where UCX_NUM_EPS says that there may be more, UCP prefers a transport with "
        "room for all.",
        uct_angara_iface_config_t, max_peers, UCS_CONFIG_TYPE_UINT),

    UCT_ANGARA_CONFIG_FIELD(
        "EARLY_SIZE", "auto",
        "Memory for messages that are sent before their receiver has granted a ring, of all peers "
        "together;\n"
        "16 messages and 8 KiB of each. Without room they wait as if the ring were full. auto: "
        "1 MiB; 0 in a\n"
        "process of MPI (PMIX_RANK or PMI_RANK is set), which may stop to make progress once it "
        "has sent.",
        uct_angara_iface_config_t, early_size, UCS_CONFIG_TYPE_MEMUNITS),

    UCT_ANGARA_CONFIG_FIELD(
        "PUT_MAX", "inf",
        "Largest window put in bytes, if less than what the provider can do. Longer messages are "
        "sent\n"
        "in several puts. Without effect where windows are written by plain stores.",
        uct_angara_iface_config_t, put_max, UCS_CONFIG_TYPE_MEMUNITS),

    UCT_ANGARA_CONFIG_FIELD("BOUNCE_SIZE", "8k",
                            "Bytes of a registered bounce buffer: the largest buffered put or get.",
                            uct_angara_iface_config_t, bounce_size, UCS_CONFIG_TYPE_MEMUNITS),

    UCT_ANGARA_CONFIG_FIELD(
        "BOUNCE_COUNT", "64",
        "Number of registered bounce buffers: buffered puts, gets and fetching atomics in flight.",
        uct_angara_iface_config_t, bounce_count, UCS_CONFIG_TYPE_UINT),

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
        "error (print), ignore.",
        uct_angara_iface_config_t, dead_peer, UCS_CONFIG_TYPE_ENUM(uct_angara_dead_peer_names)),

    UCT_ANGARA_CONFIG_FIELD("BW", "11000MBs",
                            "Bandwidth that is reported to UCX, from which it derives thresholds.",
                            uct_angara_iface_config_t, bandwidth, UCS_CONFIG_TYPE_BW),

    UCT_ANGARA_CONFIG_FIELD(
        "STATS", "",
        "File for the counters of the process, written when an interface closes; %p is the "
        "process id,\n"
        "%h the host name. Empty for none.",
        uct_angara_iface_config_t, stats, UCS_CONFIG_TYPE_STRING),

    {.name = NULL}};

static ucs_mpool_ops_t uct_angara_op_mpool_ops = {.chunk_alloc   = ucs_mpool_chunk_malloc,
                                                  .chunk_release = ucs_mpool_chunk_free,
                                                  .obj_init      = NULL,
                                                  .obj_cleanup   = NULL,
                                                  .obj_str       = NULL};

/* ---- sets of numbers ----------------------------------------------------------------------- */

static ucs_status_t uct_angara_idmap_init(uct_angara_idmap_t *map, unsigned size)
{
    map->used = ucs_calloc(ucs_div_round_up(size, 64), sizeof(*map->used), "angara_idmap");
    map->size = size;
    map->high = 0;
    return (map->used == NULL) ? UCS_ERR_NO_MEMORY : UCS_OK;
}

ucs_status_t uct_angara_idmap_get(uct_angara_idmap_t *map, unsigned *id_p)
{
    unsigned word, id;

    for (word = 0; word < ucs_div_round_up(map->size, 64); ++word) {
        if (map->used[word] == UINT64_MAX) {
            continue;
        }

        id = word * 64 + ucs_ffs64(~map->used[word]);
        if (id >= map->size) {
            break;
        }

        map->used[word] |= UCS_BIT(id % 64);
        map->high = ucs_max(map->high, id + 1);
        *id_p     = id;
        return UCS_OK;
    }

    return UCS_ERR_NO_RESOURCE;
}

void uct_angara_idmap_put(uct_angara_idmap_t *map, unsigned id)
{
    ucs_assert((id < map->size) && (map->used[id / 64] & UCS_BIT(id % 64)));
    map->used[id / 64] &= ~UCS_BIT(id % 64);
}

/* ---- addresses ------------------------------------------------------------------------------ */

static ucs_status_t uct_angara_iface_get_device_address(uct_iface_h        tl_iface,
                                                        uct_device_addr_t *tl_addr)
{
    uct_angara_iface_t      *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);
    uct_angara_device_addr_t addr  = {.magic    = ANGARA_ADDRESS_MAGIC,
                                      .wire     = ANGARA_WIRE_VERSION,
                                      .protocol = UCT_ANGARA_PROTOCOL,
                                      .node     = iface->address.node};

    memcpy(tl_addr, &addr, sizeof(addr));
    return UCS_OK;
}

static ucs_status_t uct_angara_iface_get_address(uct_iface_h tl_iface, uct_iface_addr_t *tl_addr)
{
    uct_angara_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);

    memcpy(tl_addr, &iface->address, sizeof(iface->address));
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
        ucs_error("angara: a peer speaks version %u.%u (libangara wire, transport protocol) and "
                  "this process %u.%u: use the same installation in all processes",
                  device.wire, device.protocol, ANGARA_WIRE_VERSION, UCT_ANGARA_PROTOCOL);
        return 0;
    }

    if (iface_addr == NULL) {
        return 1;
    }

    memcpy(&address, iface_addr, sizeof(address));
    if (memcmp(&address, &iface->address, sizeof(address)) == 0) {
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
    .iface_progress_enable    = uct_base_iface_progress_enable,
    .iface_progress_disable   = uct_base_iface_progress_disable,
    .iface_progress           = uct_angara_iface_progress,
    .iface_event_fd_get       = uct_angara_iface_event_fd_get,
    .iface_event_arm          = uct_angara_iface_event_arm,
    .iface_close              = UCS_CLASS_DELETE_FUNC_NAME(uct_angara_iface_t),
    .iface_query              = uct_angara_iface_query,
    .iface_get_device_address = uct_angara_iface_get_device_address,
    .iface_get_address        = uct_angara_iface_get_address,
    .iface_is_reachable       = uct_angara_iface_is_reachable};

static uct_iface_internal_ops_t uct_angara_iface_internal_ops = {
    .iface_estimate_perf = uct_angara_iface_estimate_perf,
    .iface_vfs_refresh   = (uct_iface_vfs_refresh_func_t)ucs_empty_function,
    .ep_query            = (uct_ep_query_func_t)ucs_empty_function_return_unsupported,
    .ep_invalidate       = (uct_ep_invalidate_func_t)ucs_empty_function_return_unsupported};

/* ---- creation ------------------------------------------------------------------------------ */

/*
 * An early message is sent by progress. MPI promises more: what MPI_Send has taken arrives though
 * the sender waits for something else from then on, as Open MPI does in MPI_Comm_spawn().
 */
static size_t uct_angara_iface_early_size(const uct_angara_iface_config_t *config)
{
    if (config->early_size != UCS_MEMUNITS_AUTO) {
        return config->early_size;
    }
    return ((getenv("PMIX_RANK") != NULL) || (getenv("PMI_RANK") != NULL)) ? 0 :
                                                                             UCT_ANGARA_EARLY_SIZE;
}

/* Shape of rings and window from the configuration. */
static ucs_status_t uct_angara_iface_set_shape(uct_angara_iface_t              *iface,
                                               const uct_angara_iface_config_t *config)
{
    const angara_attr_t *attr     = &uct_angara_iface_md(iface)->attr;
    uct_angara_shape_t  *shape    = &iface->shape;
    size_t               put_max  = ucs_min(config->put_max, attr->put_max);
    size_t               slot_min = 1ul << UCT_ANGARA_SLOT_SHIFT_MIN;
    size_t               slot_max = 1ul << UCT_ANGARA_SLOT_SHIFT_MAX;
    size_t               window, stride;
    unsigned             run_max;

    if (!ucs_is_pow2(config->slot_size) || (config->slot_size < slot_min) ||
        (config->slot_size > slot_max)) {
        ucs_error("UCX_ANGARA_SLOT_SIZE=%zu: it must be a power of two from %zu to %zu",
                  config->slot_size, slot_min, slot_max);
        return UCS_ERR_INVALID_PARAM;
    }

    if ((config->ring_slots != UCS_ULUNITS_AUTO) && ((config->ring_slots < UCT_ANGARA_SLOTS_MIN) ||
                                                     (config->ring_slots > UCT_ANGARA_SLOTS_MAX))) {
        ucs_error("UCX_ANGARA_RING_SLOTS=%lu: it must be auto, or from %u to %u",
                  config->ring_slots, UCT_ANGARA_SLOTS_MIN, UCT_ANGARA_SLOTS_MAX);
        return UCS_ERR_INVALID_PARAM;
    }

    if (config->seg_size < config->slot_size) {
        ucs_error("UCX_ANGARA_SEG_SIZE=%zu: it must be at least UCX_ANGARA_SLOT_SIZE (%zu)",
                  config->seg_size, config->slot_size);
        return UCS_ERR_INVALID_PARAM;
    }

    if ((config->max_peers < 1) || (config->max_peers > UINT16_MAX)) {
        ucs_error("UCX_ANGARA_MAX_PEERS=%u: it must be from 1 to %u", config->max_peers,
                  UINT16_MAX);
        return UCS_ERR_INVALID_PARAM;
    }

    shape->slot_shift = ucs_ilog2(config->slot_size);
    shape->seg_shift  = UCT_ANGARA_NO_SEGS;
    if (config->ring_slots == UCS_ULUNITS_AUTO) {
        shape->nslots = ucs_max(UCT_ANGARA_RING >> shape->slot_shift, UCT_ANGARA_SLOTS_MIN);
        iface->nbig   = ucs_min(UCT_ANGARA_HOT_RINGS, config->max_peers);
    } else {
        shape->nslots = config->ring_slots;
        iface->nbig   = 0;
    }
    run_max           = uct_angara_run_slots_max(shape->nslots, shape->slot_shift);
    shape->run_slots  = ucs_min(config->seg_size >> shape->slot_shift, run_max);
    iface->run_bytes  = uct_angara_shape_run_bytes(shape);
    iface->ring_bytes = uct_angara_shape_slots_bytes(shape);

    /* a put carries a segment, and with the last one the zeroed word behind the run */
    if (iface->run_bytes + sizeof(uint64_t) > put_max) {
        if (put_max < config->slot_size + sizeof(uint64_t)) {
            ucs_error("UCX_ANGARA_SLOT_SIZE=%zu: with puts of at most %zu bytes "
                      "(UCX_ANGARA_PUT_MAX) it must be smaller",
                      config->slot_size, put_max);
            return UCS_ERR_INVALID_PARAM;
        }
        shape->seg_shift = ucs_ilog2((put_max - sizeof(uint64_t)) >> shape->slot_shift);
    }

    iface->config.put_max   = put_max;
    iface->config.max_peers = config->max_peers;
    stride                  = uct_angara_ring_stride(iface->ring_bytes);
    for (;;) {
        iface->credits_off = 0;
        iface->ready_off   = uct_angara_iface_credit_off(iface, iface->config.max_peers);
        iface->rings_off   = ucs_align_up_pow2(
              uct_angara_iface_ready_off(iface, ucs_align_up_pow2(iface->config.max_peers, 32)),
              ucs_get_page_size());
        window = uct_angara_iface_ring_off(iface, iface->config.max_peers);
        if (window <= attr->window_max) {
            break;
        }
        if (iface->nbig > 0) {
            iface->nbig = 0; /* room for all is worth more */
            continue;
        }
        if (iface->config.max_peers == 1) {
            ucs_error("angara: one receive ring of %zu bytes does not fit into a window of %zu "
                      "bytes",
                      stride, attr->window_max);
            return UCS_ERR_EXCEEDS_LIMIT;
        }
        iface->config.max_peers = ucs_min(iface->config.max_peers - 1,
                                          attr->window_max / (stride + 128));
        iface->config.max_peers = ucs_max(iface->config.max_peers, 1u);
    }

    if (iface->config.max_peers != config->max_peers) {
        ucs_diag("angara: the window has room for %u peers", iface->config.max_peers);
    }
    return UCS_OK;
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
                           alignment + iface->run_bytes, "angara_aligned") != 0) {
        ucs_error("angara: no memory for messages that are aligned to %zu", alignment);
        return UCS_ERR_NO_MEMORY;
    }

    iface->aligned = buffer;
    return UCS_OK;
}

static void *uct_angara_alloc_lines(size_t size, const char *name)
{
    void *p;

    size = ucs_align_up_pow2(size, UCS_SYS_CACHE_LINE_SIZE);
    return (ucs_posix_memalign(&p, UCS_SYS_CACHE_LINE_SIZE, size, name) == 0) ? p : NULL;
}

/* Tables by ring index, and the scratch buffer. */
static ucs_status_t uct_angara_iface_alloc(uct_angara_iface_t *iface)
{
    unsigned peers = iface->config.max_peers;
    unsigned words = ucs_align_up_pow2(peers, 32); /* the scan looks at several at a time */
    size_t   ready = words * sizeof(uint16_t);

    iface->consumed = uct_angara_alloc_lines(ready, "angara_consumed");
    iface->rings    = ucs_calloc(words, sizeof(*iface->rings), "angara_rings");
    iface->scratch  = uct_angara_alloc_lines(iface->run_bytes + sizeof(uint64_t), "angara_scratch");
    if ((iface->consumed == NULL) || (iface->rings == NULL) || (iface->scratch == NULL) ||
        (uct_angara_idmap_init(&iface->ring_ids, peers) != UCS_OK) ||
        (uct_angara_idmap_init(&iface->credit_ids, peers) != UCS_OK)) {
        ucs_error("angara: no memory for the tables of %u peers", peers);
        return UCS_ERR_NO_MEMORY;
    }

    memset(iface->consumed, 0, ready);
    return UCS_OK;
}

static void uct_angara_iface_free(uct_angara_iface_t *iface)
{
    ucs_free(iface->credit_ids.used);
    ucs_free(iface->ring_ids.used);
    ucs_free(iface->aligned);
    ucs_free(iface->scratch);
    ucs_free(iface->rings);
    ucs_free(iface->consumed);
}

static ucs_status_t uct_angara_iface_create_pe(uct_angara_iface_t *iface)
{
    unsigned           peers  = ucs_align_up_pow2(iface->config.max_peers, 32);
    angara_pe_params_t params = {
        .size        = sizeof(params),
        .window_size = uct_angara_iface_ring_off(iface, iface->config.max_peers)};
    angara_status_t status;
    size_t          size;

    status = angara_pe_create(uct_angara_iface_md(iface)->dom, &params, &iface->pe);
    if (status != ANGARA_OK) {
        ucs_error("angara: cannot create a PE with a window of %zu bytes: %s", params.window_size,
                  angara_strerror(status));
        return uct_angara_status(status);
    }

    status = angara_pe_window_commit(iface->pe, iface->ready_off, peers * sizeof(uint16_t));
    if (status != ANGARA_OK) {
        ucs_error("angara: no memory for the ready array: %s", angara_strerror(status));
        angara_pe_destroy(iface->pe);
        return uct_angara_status(status);
    }

    iface->window = angara_pe_window(iface->pe, &size);
    iface->ready  = (volatile uint16_t *)(iface->window + iface->ready_off);
    angara_pe_address(iface->pe, &iface->address);
    return UCS_OK;
}

static UCS_CLASS_INIT_FUNC(uct_angara_iface_t, uct_md_h tl_md, uct_worker_h worker,
                           const uct_iface_params_t *params, const uct_iface_config_t *tl_config)
{
    uct_angara_iface_config_t *config = ucs_derived_of(tl_config, uct_angara_iface_config_t);
    uct_angara_md_t           *md     = ucs_derived_of(tl_md, uct_angara_md_t);
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
    self->config.max_iov     = ucs_max(config->max_iov, 1u);
    self->config.self_marker = config->self_marker;
    self->config.dead_peer   = config->dead_peer;
    self->config.bandwidth   = config->bandwidth;
    self->early.max          = uct_angara_iface_early_size(config);
    self->is_inline          = !!(md->attr.caps & ANGARA_CAP_INLINE_OPS);
    self->is_batching        = !config->self_marker && !UCT_ANGARA_MUTANT(self_marker_put) &&
                        !UCT_ANGARA_MUTANT(marker_before_data);
    ucs_list_head_init(&self->peers);
    ucs_list_head_init(&self->active);
    ucs_arbiter_init(&self->arbiter);
    uct_angara_channel_init(&self->self_channel);
    uct_angara_bounce_init(&self->bounce, md->dom, config->bounce_size, config->bounce_count);

    status = uct_angara_iface_set_shape(self, config);
    if (status != UCS_OK) {
        goto err_arbiter;
    }

    self->config.stats = ucs_strdup(config->stats, "angara_stats");
    if (self->config.stats == NULL) {
        status = UCS_ERR_NO_MEMORY;
        goto err_arbiter;
    }

    status = uct_angara_iface_alloc(self);
    if (status == UCS_OK) {
        status = uct_angara_iface_set_alignment(self, params);
    }
    if (status != UCS_OK) {
        goto err_free;
    }

    self->tomb = uct_angara_tomb_alloc(self);
    if (self->tomb == NULL) {
        status = UCS_ERR_NO_MEMORY;
        goto err_free;
    }

    status = ucs_mpool_init(&self->ops, 0, sizeof(uct_angara_op_t), 0, UCS_SYS_CACHE_LINE_SIZE, 64,
                            UINT_MAX, &uct_angara_op_mpool_ops, "angara_ops");
    if (status != UCS_OK) {
        goto err_free;
    }

    status = uct_angara_iface_create_pe(self);
    if (status != UCS_OK) {
        goto err_mpool;
    }

    return UCS_OK;

err_mpool:
    ucs_mpool_cleanup(&self->ops, 1);
err_free:
    ucs_free(self->tomb);
    uct_angara_iface_free(self);
    ucs_free(self->config.stats);
err_arbiter:
    ucs_arbiter_cleanup(&self->arbiter);
    return status;
}

static UCS_CLASS_CLEANUP_FUNC(uct_angara_iface_t)
{
    uct_angara_peer_t *peer;

    uct_base_iface_progress_disable(&self->super.super, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);

    /* Whoever knows us must not take our end for a death. */
    uct_angara_peers_for_each(peer, &self->peers)
    {
        if (!uct_angara_life_is_gone(&peer->life)) {
            uct_angara_control_bye(peer);
        }
    }

    while (!ucs_list_is_empty(&self->peers)) {
        uct_angara_peer_destroy(ucs_container_of(self->peers.next, uct_angara_peer_t, list));
    }
    ucs_free(self->tomb);

    if (self->self_channel.slot != NULL) {
        angara_marker_slot_put(self->pe, self->self_channel.slot);
    }
    angara_pe_destroy(self->pe);
    uct_angara_bounce_cleanup(&self->bounce);
    uct_angara_stats_report(self->config.stats, &self->stats);
    ucs_mpool_cleanup(&self->ops, 1);
    uct_angara_iface_free(self);
    ucs_free(self->config.stats);
    ucs_arbiter_cleanup(&self->arbiter);
}

UCS_CLASS_DEFINE(uct_angara_iface_t, uct_base_iface_t)
UCS_CLASS_DEFINE_NEW_FUNC(uct_angara_iface_t, uct_iface_t, uct_md_h, uct_worker_h,
                          const uct_iface_params_t *, const uct_iface_config_t *);
static UCS_CLASS_DEFINE_DELETE_FUNC(uct_angara_iface_t, uct_iface_t)
