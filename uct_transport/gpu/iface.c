/* SPDX-License-Identifier: BSD-3-Clause */
/* Interface of the copy transport: reaches itself alone; copies under way, and their progress. */
#include "gpu/copier.h"

#include "base/memtype.h"

#include <ucs/config/global_opts.h>
#include <ucs/sys/uid.h>

#include <sys/eventfd.h>
#include <unistd.h>

/* ---- addresses ----------------------------------------------------------------------------- */

static ucs_status_t uct_angara_gpu_iface_get_device_address(uct_iface_h        tl_iface,
                                                            uct_device_addr_t *tl_addr)
{
    uct_angara_gpu_device_addr_t addr = {.magic = UCT_ANGARA_GPU_MAGIC};

    (void)tl_iface;
    memcpy(tl_addr, &addr, sizeof(addr));
    return UCS_OK;
}

static ucs_status_t uct_angara_gpu_iface_get_address(uct_iface_h       tl_iface,
                                                     uct_iface_addr_t *tl_addr)
{
    uct_angara_gpu_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_gpu_iface_t);

    memcpy(tl_addr, &iface->id, sizeof(iface->id));
    return UCS_OK;
}

/* Addresses of the other transport of this name come here too: theirs begin otherwise. */
static int uct_angara_gpu_iface_is_reachable(const uct_iface_h        tl_iface,
                                             const uct_device_addr_t *dev_addr,
                                             const uct_iface_addr_t  *iface_addr)
{
    uct_angara_gpu_iface_t      *iface = ucs_derived_of(tl_iface, uct_angara_gpu_iface_t);
    uct_angara_gpu_device_addr_t device;

    if ((dev_addr == NULL) || (iface_addr == NULL)) {
        return 0;
    }

    memcpy(&device, dev_addr, sizeof(device));
    return (device.magic == UCT_ANGARA_GPU_MAGIC) &&
           (memcmp(iface_addr, &iface->id, sizeof(iface->id)) == 0);
}

/* It leads to the interface itself. */
int uct_angara_gpu_ep_leads_to(uct_ep_h tl_ep, const uct_device_addr_t *dev_addr,
                               const uct_iface_addr_t *iface_addr)
{
    return uct_angara_gpu_iface_is_reachable(tl_ep->iface, dev_addr, iface_addr);
}

/* ---- attributes ---------------------------------------------------------------------------- */

static ucs_status_t uct_angara_gpu_iface_query(uct_iface_h tl_iface, uct_iface_attr_t *attr)
{
    uct_base_iface_query(ucs_derived_of(tl_iface, uct_base_iface_t), attr);

    attr->device_addr_len = sizeof(uct_angara_gpu_device_addr_t);
    attr->iface_addr_len  = sizeof(uint64_t);
    attr->ep_addr_len     = 0;
    attr->max_conn_priv   = 0;
    attr->max_num_eps     = SIZE_MAX;
    attr->cap.flags       = UCT_IFACE_FLAG_CONNECT_TO_IFACE | UCT_IFACE_FLAG_PUT_SHORT |
                      UCT_IFACE_FLAG_GET_SHORT | UCT_IFACE_FLAG_PUT_ZCOPY |
                      UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_PENDING;
    attr->cap.event_flags = UCT_IFACE_FLAG_EVENT_SEND_COMP | UCT_IFACE_FLAG_EVENT_RECV |
                            UCT_IFACE_FLAG_EVENT_FD;

    attr->cap.put.max_short       = UINT_MAX;
    attr->cap.put.max_bcopy       = 0;
    attr->cap.put.min_zcopy       = 0;
    attr->cap.put.max_zcopy       = SIZE_MAX;
    attr->cap.put.opt_zcopy_align = 1;
    attr->cap.put.align_mtu       = 1;
    attr->cap.put.max_iov         = 1;
    attr->cap.get.max_short       = UINT_MAX;
    attr->cap.get.max_bcopy       = 0;
    attr->cap.get.min_zcopy       = 0;
    attr->cap.get.max_zcopy       = SIZE_MAX;
    attr->cap.get.opt_zcopy_align = 1;
    attr->cap.get.align_mtu       = 1;
    attr->cap.get.max_iov         = 1;

    /*
     * So slow that UCP takes no lane of it for messages to oneself, whose host memory isn't ours to
     * copy, and UCX's own copy transport before it where there is one.
     */
    attr->latency             = ucs_linear_func_make(12e-6, 0);
    attr->bandwidth.dedicated = 0;
    attr->bandwidth.shared    = UCT_ANGARA_GPU_BANDWIDTH;
    attr->overhead            = 3e-6;
    attr->priority            = 0;
    return UCS_OK;
}

/* Seconds to start a copy, and until it has ended (H100, driver 580); bytes per second, between
 * GPUs and with pageable memory. */
#define UCT_ANGARA_GPU_START     3e-6
#define UCT_ANGARA_GPU_LATENCY   6e-6
#define UCT_ANGARA_GPU_RATE      300e9
#define UCT_ANGARA_GPU_HOST_RATE 10e9

/*
 * What the protocols of the second generation go by: a copy as it is. Short ones are waited for,
 * and nobody receives.
 */
static ucs_status_t uct_angara_gpu_iface_estimate_perf(uct_iface_h tl_iface, uct_perf_attr_t *attr)
{
    uct_angara_perf_ends_t ends = uct_angara_perf_ends(attr);
    int is_short = (ends.op == UCT_EP_OP_PUT_SHORT) || (ends.op == UCT_EP_OP_GET_SHORT);
    int is_gpu   = uct_angara_memtype_is_gpu(ends.local) && uct_angara_memtype_is_gpu(ends.remote);
    ucs_status_t status = uct_base_iface_estimate_perf(tl_iface, attr);

    if (status != UCS_OK) {
        return status;
    }

    if (attr->field_mask & UCT_PERF_ATTR_FIELD_SEND_PRE_OVERHEAD) {
        attr->send_pre_overhead = UCT_ANGARA_GPU_START;
    }
    if (attr->field_mask & UCT_PERF_ATTR_FIELD_SEND_POST_OVERHEAD) {
        attr->send_post_overhead = is_short ? UCT_ANGARA_GPU_LATENCY : 0;
    }
    if (attr->field_mask & UCT_PERF_ATTR_FIELD_RECV_OVERHEAD) {
        attr->recv_overhead = 0;
    }
    if (attr->field_mask & UCT_PERF_ATTR_FIELD_LATENCY) {
        attr->latency = ucs_linear_func_make(is_short ? 0 : UCT_ANGARA_GPU_LATENCY, 0);
    }
    uct_angara_perf_bandwidth(attr, 0, is_gpu ? UCT_ANGARA_GPU_RATE : UCT_ANGARA_GPU_HOST_RATE);
    return UCS_OK;
}

/* ---- sleeping ------------------------------------------------------------------------------ */

/* Nothing tells the end of a copy but a look: nobody sleeps while there are some. */
static ucs_status_t uct_angara_gpu_iface_event_arm(uct_iface_h tl_iface, unsigned events)
{
    uct_angara_gpu_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_gpu_iface_t);

    (void)events;
    return ucs_queue_is_empty(&iface->ops) ? UCS_OK : UCS_ERR_BUSY;
}

static ucs_status_t uct_angara_gpu_iface_event_fd_get(uct_iface_h tl_iface, int *fd_p)
{
    *fd_p = ucs_derived_of(tl_iface, uct_angara_gpu_iface_t)->event_fd;
    return UCS_OK;
}

/* ---- progress ------------------------------------------------------------------------------ */

/* @return non-zero if the operation, which is the first if @a is_first, has ended. */
static int uct_angara_gpu_op_ended(uct_angara_gpu_op_t *op, int is_first)
{
    angara_status_t status;

    if (op->is_flush) {
        return is_first;
    }

    status = angara_copy_test(&op->copy);
    if (status == ANGARA_INPROGRESS) {
        return 0;
    }
    uct_angara_gpu_check(status, op->remote, op->length);
    return 1;
}

/* Copies of different directions overtake each other. */
unsigned uct_angara_gpu_iface_progress(uct_iface_h tl_iface)
{
    uct_angara_gpu_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_gpu_iface_t);
    unsigned                count = 0;
    uct_angara_gpu_op_t    *op;
    ucs_queue_head_t        ended;
    ucs_queue_iter_t        iter;
    uct_completion_t       *comp;

    if (ucs_likely(ucs_queue_is_empty(&iface->ops))) {
        return 0;
    }

    /* Completions may start more, or make progress: they come when the queue is whole again. */
    ucs_queue_head_init(&ended);
    ucs_queue_for_each_safe(op, iter, &iface->ops, elem) {
        if (uct_angara_gpu_op_ended(op, iter == &iface->ops.head)) {
            ucs_queue_del_iter(&iface->ops, iter);
            ucs_queue_push(&ended, &op->elem);
        }
    }
    while (!ucs_queue_is_empty(&ended)) {
        op   = ucs_queue_pull_elem_non_empty(&ended, uct_angara_gpu_op_t, elem);
        comp = op->comp;
        ucs_mpool_put(op);
        if (comp != NULL) {
            uct_invoke_completion(comp, UCS_OK);
        }
        ++count;
    }
    return count;
}

ucs_status_t uct_angara_gpu_iface_flush(uct_iface_h tl_iface, unsigned flags,
                                        uct_completion_t *comp)
{
    uct_angara_gpu_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_gpu_iface_t);
    uct_angara_gpu_op_t    *op;

    (void)flags;
    if (ucs_queue_is_empty(&iface->ops)) {
        UCT_TL_IFACE_STAT_FLUSH(&iface->super);
        return UCS_OK;
    }

    if (comp != NULL) {
        op = ucs_mpool_get(&iface->mp);
        if (op == NULL) {
            return UCS_ERR_NO_MEMORY;
        }
        op->comp     = comp;
        op->is_flush = 1;
        ucs_queue_push(&iface->ops, &op->elem);
    }
    UCT_TL_IFACE_STAT_FLUSH_WAIT(&iface->super);
    return UCS_INPROGRESS;
}

/* ---- creation ------------------------------------------------------------------------------ */

static UCS_CLASS_DECLARE_DELETE_FUNC(uct_angara_gpu_iface_t, uct_iface_t);

static uct_iface_ops_t uct_angara_gpu_iface_ops = {
    .ep_put_short     = uct_angara_gpu_ep_put_short,
    .ep_get_short     = uct_angara_gpu_ep_get_short,
    .ep_put_zcopy     = uct_angara_gpu_ep_put_zcopy,
    .ep_get_zcopy     = uct_angara_gpu_ep_get_zcopy,
    .ep_pending_add   = UCT_ANGARA_EMPTY(uct_ep_pending_add_func_t, ucs_empty_function_return_busy),
    .ep_pending_purge = UCT_ANGARA_EMPTY(uct_ep_pending_purge_func_t, ucs_empty_function),
    .ep_flush         = uct_angara_gpu_ep_flush,
    .ep_fence         = uct_base_ep_fence,
    .ep_check         = UCT_ANGARA_UNSUPPORTED(uct_ep_check_func_t),
    .ep_create        = UCS_CLASS_NEW_FUNC_NAME(uct_angara_gpu_ep_t),
    .ep_destroy       = UCS_CLASS_DELETE_FUNC_NAME(uct_angara_gpu_ep_t),
    .iface_flush      = uct_angara_gpu_iface_flush,
    .iface_fence      = uct_base_iface_fence,
    .iface_progress_enable    = uct_base_iface_progress_enable,
    .iface_progress_disable   = uct_base_iface_progress_disable,
    .iface_progress           = uct_angara_gpu_iface_progress,
    .iface_event_fd_get       = uct_angara_gpu_iface_event_fd_get,
    .iface_event_arm          = uct_angara_gpu_iface_event_arm,
    .iface_close              = UCS_CLASS_DELETE_FUNC_NAME(uct_angara_gpu_iface_t),
    .iface_query              = uct_angara_gpu_iface_query,
    .iface_get_device_address = uct_angara_gpu_iface_get_device_address,
    .iface_get_address        = uct_angara_gpu_iface_get_address,
    .iface_is_reachable       = uct_angara_gpu_iface_is_reachable};

UCT_ANGARA_IS_CONNECTED(uct_angara_gpu_ep_is_connected, uct_angara_gpu_ep_leads_to)

static uct_iface_internal_ops_t uct_angara_gpu_iface_internal_ops = UCT_ANGARA_INTERNAL_OPS(
    uct_angara_gpu_iface_estimate_perf, uct_angara_gpu_ep_is_connected);

static ucs_mpool_ops_t uct_angara_gpu_mpool_ops = {.chunk_alloc   = ucs_mpool_chunk_malloc,
                                                   .chunk_release = ucs_mpool_chunk_free};

static UCS_CLASS_INIT_FUNC(uct_angara_gpu_iface_t, uct_md_h tl_md, uct_worker_h worker,
                           const uct_iface_params_t *params, const uct_iface_config_t *tl_config)
{
    ucs_status_t status;

    UCS_CLASS_CALL_SUPER_INIT(
        uct_base_iface_t, &uct_angara_gpu_iface_ops, &uct_angara_gpu_iface_internal_ops, tl_md,
        worker, params,
        tl_config UCS_STATS_ARG(
            (params->field_mask & UCT_IFACE_PARAM_FIELD_STATS_ROOT) ? params->stats_root : NULL)
            UCS_STATS_ARG("angara_gpu"));

    self->id = ucs_generate_uuid((uintptr_t)self);
    ucs_queue_head_init(&self->ops);
    self->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->event_fd < 0) {
        ucs_error("angara: eventfd failed: %m (limit of open files: ulimit -n)");
        return UCS_ERR_IO_ERROR;
    }

    status = uct_angara_mpool_init(&self->mp, sizeof(uct_angara_gpu_op_t), 64,
                                   &uct_angara_gpu_mpool_ops, "angara_gpu_ops");
    if (status != UCS_OK) {
        close(self->event_fd);
        return status;
    }
    return UCS_OK;
}

static UCS_CLASS_CLEANUP_FUNC(uct_angara_gpu_iface_t)
{
    uct_angara_gpu_op_t *op;

    uct_base_iface_progress_disable(&self->super.super, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    /* Who closes has flushed; what wasn't has to end before its memory may go. */
    while (!ucs_queue_is_empty(&self->ops)) {
        op = ucs_queue_pull_elem_non_empty(&self->ops, uct_angara_gpu_op_t, elem);
        while (!op->is_flush && (angara_copy_test(&op->copy) == ANGARA_INPROGRESS)) {
        }
        ucs_mpool_put(op);
    }
    ucs_mpool_cleanup(&self->mp, 1);
    close(self->event_fd);
}

UCS_CLASS_DEFINE(uct_angara_gpu_iface_t, uct_base_iface_t)
UCS_CLASS_DEFINE_NEW_FUNC(uct_angara_gpu_iface_t, uct_iface_t, uct_md_h, uct_worker_h,
                          const uct_iface_params_t *, const uct_iface_config_t *);
static UCS_CLASS_DEFINE_DELETE_FUNC(uct_angara_gpu_iface_t, uct_iface_t)
