/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoint of the copy transport: its far end is this process, "remote" is GPU memory. */
#include "gpu/gpu.h"

#include "base/status.h"

#include <uct/base/uct_iov.inl>

static UCS_CLASS_INIT_FUNC(uct_angara_gpu_ep_t, const uct_ep_params_t *params)
{
    uct_angara_gpu_iface_t *iface = ucs_derived_of(params->iface, uct_angara_gpu_iface_t);

    UCT_EP_PARAMS_CHECK_DEV_IFACE_ADDRS(params);
    UCS_CLASS_CALL_SUPER_INIT(uct_base_ep_t, &iface->super);
    return UCS_OK;
}

static UCS_CLASS_CLEANUP_FUNC(uct_angara_gpu_ep_t)
{
    (void)self;
}

UCS_CLASS_DEFINE(uct_angara_gpu_ep_t, uct_base_ep_t)
UCS_CLASS_DEFINE_NEW_FUNC(uct_angara_gpu_ep_t, uct_ep_t, const uct_ep_params_t *);
UCS_CLASS_DEFINE_DELETE_FUNC(uct_angara_gpu_ep_t, uct_ep_t);

/* ---- short: waits -------------------------------------------------------------------------- */

ucs_status_t uct_angara_gpu_ep_put_short(uct_ep_h tl_ep, const void *buffer, unsigned length,
                                         uint64_t remote_addr, uct_rkey_t rkey)
{
    (void)tl_ep;
    (void)rkey;
    UCT_TL_EP_STAT_OP(ucs_derived_of(tl_ep, uct_base_ep_t), PUT, SHORT, length);
    return uct_angara_status(angara_copy((void *)remote_addr, buffer, length));
}

ucs_status_t uct_angara_gpu_ep_get_short(uct_ep_h tl_ep, void *buffer, unsigned length,
                                         uint64_t remote_addr, uct_rkey_t rkey)
{
    (void)tl_ep;
    (void)rkey;
    UCT_TL_EP_STAT_OP(ucs_derived_of(tl_ep, uct_base_ep_t), GET, SHORT, length);
    return uct_angara_status(angara_copy(buffer, (const void *)remote_addr, length));
}

/* ---- zero copy ----------------------------------------------------------------------------- */

static ucs_status_t uct_angara_gpu_start(uct_ep_h tl_ep, void *dst, const void *src, size_t length,
                                         uct_completion_t *comp)
{
    uct_angara_gpu_iface_t *iface = ucs_derived_of(tl_ep->iface, uct_angara_gpu_iface_t);
    uct_angara_gpu_op_t    *op    = ucs_mpool_get(&iface->mp);
    angara_status_t         status;

    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = angara_copy_start(dst, src, length, &op->copy);
    if (status != ANGARA_INPROGRESS) {
        ucs_mpool_put(op);
        /* Both ends are the host's, there is a detour only, or too many are under way. */
        if ((status == ANGARA_ERR_UNSUPPORTED) || (status == ANGARA_ERR_NO_RESOURCE)) {
            status = angara_copy(dst, src, length);
        }
        return uct_angara_status(status);
    }

    op->comp     = comp;
    op->is_flush = 0;
    ucs_queue_push(&iface->ops, &op->elem);
    return UCS_INPROGRESS;
}

ucs_status_t uct_angara_gpu_ep_put_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov, size_t iovcnt,
                                         uint64_t remote_addr, uct_rkey_t rkey,
                                         uct_completion_t *comp)
{
    size_t length = uct_iov_get_length(iov);

    (void)rkey;
    UCT_CHECK_IOV_SIZE(iovcnt, 1ul, "uct_angara_gpu_ep_put_zcopy");
    UCT_TL_EP_STAT_OP(ucs_derived_of(tl_ep, uct_base_ep_t), PUT, ZCOPY, length);
    return uct_angara_gpu_start(tl_ep, (void *)remote_addr, iov->buffer, length, comp);
}

ucs_status_t uct_angara_gpu_ep_get_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov, size_t iovcnt,
                                         uint64_t remote_addr, uct_rkey_t rkey,
                                         uct_completion_t *comp)
{
    size_t length = uct_iov_get_length(iov);

    (void)rkey;
    UCT_CHECK_IOV_SIZE(iovcnt, 1ul, "uct_angara_gpu_ep_get_zcopy");
    UCT_TL_EP_STAT_OP(ucs_derived_of(tl_ep, uct_base_ep_t), GET, ZCOPY, length);
    return uct_angara_gpu_start(tl_ep, iov->buffer, (const void *)remote_addr, length, comp);
}

ucs_status_t uct_angara_gpu_ep_flush(uct_ep_h tl_ep, unsigned flags, uct_completion_t *comp)
{
    return uct_angara_gpu_iface_flush(tl_ep->iface, flags, comp);
}
