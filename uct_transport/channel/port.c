/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports: the PE, its window, and what its channels share. */
#include "channel/port.h"

#include "base/alike.h"

static ucs_mpool_ops_t uct_angara_op_mpool_ops = {.chunk_alloc   = ucs_mpool_chunk_malloc,
                                                  .chunk_release = ucs_mpool_chunk_free,
                                                  .obj_init      = NULL,
                                                  .obj_cleanup   = NULL,
                                                  .obj_str       = NULL};

static ucs_status_t uct_angara_port_check(const uct_angara_port_config_t *config)
{
    size_t slot_min = 1ul << UCT_ANGARA_SLOT_SHIFT_MIN;
    size_t slot_max = 1ul << UCT_ANGARA_SLOT_SHIFT_MAX;

    if (!ucs_is_pow2(config->slot_size) || (config->slot_size < slot_min) ||
        (config->slot_size > slot_max)) {
        uct_angara_log_alike(UCS_LOG_LEVEL_ERROR,
                             "UCX_ANGARA_SLOT_SIZE=%zu: it must be a power of two from %zu to %zu",
                             config->slot_size, slot_min, slot_max);
        return UCS_ERR_INVALID_PARAM;
    }

    if ((config->ring_slots != UCS_ULUNITS_AUTO) && ((config->ring_slots < UCT_ANGARA_SLOTS_MIN) ||
                                                     (config->ring_slots > UCT_ANGARA_SLOTS_MAX))) {
        uct_angara_log_alike(UCS_LOG_LEVEL_ERROR,
                             "UCX_ANGARA_RING_SLOTS=%lu: it must be auto, or from %u to %u",
                             config->ring_slots, UCT_ANGARA_SLOTS_MIN, UCT_ANGARA_SLOTS_MAX);
        return UCS_ERR_INVALID_PARAM;
    }

    if (config->seg_size < config->slot_size) {
        uct_angara_log_alike(
            UCS_LOG_LEVEL_ERROR,
            "UCX_ANGARA_SEG_SIZE=%zu: it must be at least UCX_ANGARA_SLOT_SIZE (%zu)",
            config->seg_size, config->slot_size);
        return UCS_ERR_INVALID_PARAM;
    }

    if ((config->max_peers < 1) || (config->max_peers > UINT16_MAX)) {
        uct_angara_log_alike(UCS_LOG_LEVEL_ERROR,
                             "UCX_ANGARA_MAX_PEERS=%u: it must be from 1 to %u", config->max_peers,
                             UINT16_MAX);
        return UCS_ERR_INVALID_PARAM;
    }

    return UCS_OK;
}

/* Shape of rings and window from the configuration. */
static ucs_status_t uct_angara_port_set_shape(uct_angara_port_t *port, const angara_attr_t *attr,
                                              const uct_angara_port_config_t *config)
{
    uct_angara_shape_t *shape   = &port->shape;
    size_t              put_max = ucs_min(config->put_max, attr->put_max);
    unsigned            nbig    = 0;
    unsigned            run_max;
    ucs_status_t        status;

    shape->slot_shift = ucs_ilog2(config->slot_size);
    shape->seg_shift  = UCT_ANGARA_NO_SEGS;
    if (config->ring_slots == UCS_ULUNITS_AUTO) {
        shape->nslots = ucs_max(UCT_ANGARA_RING >> shape->slot_shift, UCT_ANGARA_SLOTS_MIN);
        nbig          = ucs_min(UCT_ANGARA_HOT_RINGS, config->max_peers);
    } else {
        shape->nslots = config->ring_slots;
    }
    run_max          = uct_angara_run_slots_max(shape->nslots, shape->slot_shift);
    shape->run_slots = ucs_min(config->seg_size >> shape->slot_shift, run_max);
    port->run_bytes  = uct_angara_shape_run_bytes(shape);

    /* a put carries a segment, and with the last one the zeroed word behind the run */
    if (port->run_bytes + sizeof(uint64_t) > put_max) {
        if (put_max < config->slot_size + sizeof(uint64_t)) {
            uct_angara_log_alike(UCS_LOG_LEVEL_ERROR,
                                 "UCX_ANGARA_SLOT_SIZE=%zu: with puts of at most %zu bytes "
                                 "(UCX_ANGARA_PUT_MAX) it must be smaller",
                                 config->slot_size, put_max);
            return UCS_ERR_INVALID_PARAM;
        }
        shape->seg_shift = ucs_ilog2((put_max - sizeof(uint64_t)) >> shape->slot_shift);
    }

    status = uct_angara_window_layout(&port->window, uct_angara_shape_slots_bytes(shape), nbig,
                                      config->max_peers, attr->window_max);
    return status;
}

/* Say which sizes are in force, and which of them aren't what the variables ask for. */
static void uct_angara_port_log(const uct_angara_port_t        *port,
                                const uct_angara_port_config_t *config)
{
    size_t seg_size = ucs_align_down_pow2(config->seg_size, 1ul << port->shape.slot_shift);

    ucs_info("angara: rings of %u slots of %u bytes, up to %zu bytes at once, %u peers at most",
             port->shape.nslots, 1u << port->shape.slot_shift, port->run_bytes,
             port->window.max_peers);
    if (seg_size > port->run_bytes + sizeof(uint64_t)) {
        ucs_diag("UCX_ANGARA_SEG_SIZE=%zu: in force %zu, a quarter of the ring "
                 "(UCX_ANGARA_RING_SLOTS) and %lu at most",
                 config->seg_size, port->run_bytes + sizeof(uint64_t), UCT_ANGARA_RUN_MAX);
    }
    if (port->window.max_peers != config->max_peers) {
        ucs_diag("UCX_ANGARA_MAX_PEERS=%u: in force %u, for whom the largest window has room",
                 config->max_peers, port->window.max_peers);
    }
}

static void *uct_angara_alloc_lines(size_t size, const char *name)
{
    void *p;

    size = ucs_align_up_pow2(size, UCS_SYS_CACHE_LINE_SIZE);
    return (ucs_posix_memalign(&p, UCS_SYS_CACHE_LINE_SIZE, size, name) == 0) ? p : NULL;
}

/* Tables by ring index, and the scratch buffer. */
static ucs_status_t uct_angara_port_alloc(uct_angara_port_t *port)
{
    unsigned           words = uct_angara_window_words(&port->window);
    uct_angara_poll_t *poll  = &port->poll;

    poll->consumed = uct_angara_alloc_lines(words * sizeof(*poll->consumed), "angara_consumed");
    poll->rings    = ucs_calloc(words, sizeof(*poll->rings), "angara_rings");
    port->scratch  = uct_angara_alloc_lines(port->run_bytes + sizeof(uint64_t), "angara_scratch");
    if ((poll->consumed == NULL) || (poll->rings == NULL) || (port->scratch == NULL) ||
        (uct_angara_window_init(&port->window) != UCS_OK)) {
        ucs_error("angara: no memory for the tables of %u peers (UCX_ANGARA_MAX_PEERS)",
                  port->window.max_peers);
        return UCS_ERR_NO_MEMORY;
    }

    memset(poll->consumed, 0, words * sizeof(*poll->consumed));
    return UCS_OK;
}

static void uct_angara_port_free(uct_angara_port_t *port)
{
    uct_angara_window_cleanup(&port->window);
    ucs_free(port->scratch);
    ucs_free(port->poll.rings);
    ucs_free(port->poll.consumed);
}

static ucs_status_t uct_angara_port_create_pe(uct_angara_port_t *port, angara_domain_h dom)
{
    uct_angara_window_t *window = &port->window;
    angara_pe_params_t   params = {.size        = sizeof(params),
                                   .window_size = uct_angara_window_size(window),
                                   .flags       = ANGARA_PE_RELAXED}; /* UCX promises no order */
    angara_status_t      status;
    size_t               size;

    status = angara_pe_create(dom, &params, &port->pe);
    if (status != ANGARA_OK) {
        /* the library has said why, and named the limit */
        ucs_diag("angara: cannot create a PE with a window of %zu bytes: %s%s", params.window_size,
                 angara_strerror(status),
                 ((status == ANGARA_ERR_LIMIT) || (status == ANGARA_ERR_NO_MEMORY)) ?
                     " (UCX_ANGARA_MAX_PEERS and UCX_ANGARA_RING_SLOTS make it smaller)" :
                     "");
        return uct_angara_status(status);
    }

    status = angara_pe_window_commit(port->pe, window->ready_off,
                                     uct_angara_window_words(window) * sizeof(uint16_t));
    if (status != ANGARA_OK) {
        ucs_error("angara: no memory for the ready array: %s (UCX_ANGARA_MAX_PEERS)",
                  angara_strerror(status));
        angara_pe_destroy(port->pe);
        return uct_angara_status(status);
    }

    window->base     = angara_pe_window(port->pe, &size);
    port->poll.ready = (volatile uint16_t *)(window->base + window->ready_off);
    return UCS_OK;
}

static void uct_angara_port_read(const void *object, uint64_t *values)
{
    const uct_angara_port_t    *port = object;
    uct_angara_stats_t          sum  = port->stats, stats;
    const uct_angara_channel_t *ch;

    uct_angara_channels_for_each(ch, port)
    {
        uct_angara_channel_count(ch, &stats);
        uct_angara_stats_add(&sum, &stats);
    }
    memcpy(values, &sum, sizeof(sum));
}

static const angara_watch_kind_t uct_angara_port_kind = {
    sizeof(uct_angara_port_kind), "interface", uct_angara_stats_names, UCT_ANGARA_NUM_COUNTERS,
    uct_angara_port_read};

ucs_status_t uct_angara_port_open(uct_angara_port_t *port, angara_domain_h dom,
                                  const angara_attr_t *attr, const uct_angara_port_config_t *config,
                                  const uct_angara_port_ops_t *up, uct_angara_deliver_t deliver)
{
    ucs_status_t status;

    port->up        = up;
    port->deliver   = deliver;
    port->early     = (uct_angara_early_pool_t){.max         = config->early_size,
                                                .queue_bytes = UCT_ANGARA_EARLY_BYTES};
    port->copied    = (uct_angara_early_pool_t){.max         = UCT_ANGARA_COPIED_SIZE,
                                                .queue_bytes = UCT_ANGARA_COPIED_BYTES};
    port->is_inline = !!(attr->caps & ANGARA_CAP_INLINE_OPS);
    ucs_list_head_init(&port->channels);
    ucs_list_head_init(&port->active);
    ucs_list_head_init(&port->stirred);
    uct_angara_markers_init(&port->self_markers);
    uct_angara_bounce_init(&port->bounce, dom, config->bounce_size, config->bounce_count);

    status = uct_angara_port_check(config);
    if (status == UCS_OK) {
        status = uct_angara_port_set_shape(port, attr, config);
    }
    if (status != UCS_OK) {
        return status;
    }

    status = uct_angara_port_alloc(port);
    if (status != UCS_OK) {
        goto err_free;
    }

    status = uct_angara_mpool_init(&port->ops, sizeof(uct_angara_op_t), 64,
                                   &uct_angara_op_mpool_ops, "angara_ops");
    if (status != UCS_OK) {
        goto err_free;
    }

    status = uct_angara_port_create_pe(port, dom);
    if (status != UCS_OK) {
        goto err_mpool;
    }

    port->watch = angara_watch_add(port->pe, &uct_angara_port_kind, port, attr->device);
    uct_angara_port_log(port, config);
    return UCS_OK;

err_mpool:
    ucs_mpool_cleanup(&port->ops, 1);
err_free:
    uct_angara_port_free(port);
    return status;
}

void uct_angara_port_close(uct_angara_port_t *port)
{
    if (port->self_markers.slot != NULL) {
        angara_marker_slot_put(port->pe, port->self_markers.slot);
    }
    angara_watch_remove(port->watch);
    angara_pe_destroy(port->pe);
    uct_angara_bounce_cleanup(&port->bounce);
    ucs_mpool_cleanup(&port->ops, 1);
    uct_angara_port_free(port);
}
