/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoint of the copy transport: its far end is this process, "remote" is GPU memory. */
#include "gpu/copier.h"

#include "base/say.h"

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

/* ---- copies -------------------------------------------------------------------------------- */

void uct_angara_gpu_check(angara_status_t status, uint64_t remote, size_t length)
{
    angara_mem_t mem;

    if (ucs_likely((status == ANGARA_OK) || (status == ANGARA_INPROGRESS))) {
        return;
    }

    if ((angara_mem_query((void *)remote, &mem) == ANGARA_OK) && (mem.kind == ANGARA_MEM_HOST)) {
        uct_angara_abort("%zu bytes at %p were to be copied as memory of a GPU, which it isn't: "
                         "the buffer was freed, or the message runs past it: aborting",
                         length, (void *)remote);
    }
    uct_angara_abort("a copy of %zu bytes at %p of a GPU's memory failed: %s: aborting", length,
                     (void *)remote, angara_strerror(status));
}

void uct_angara_gpu_read(void *target, const void *address, size_t length)
{
    uct_angara_gpu_check(angara_copy(target, address, length), (uint64_t)address, length);
}

/* UCP slices buffers that it took for GPU memory: what isn't any is no memory of the message's. */
static void uct_angara_gpu_check_remote(uint64_t remote, size_t length)
{
    angara_mem_t mem;

    if ((length != 0) && (angara_mem_query((void *)remote, &mem) == ANGARA_OK) &&
        (mem.kind == ANGARA_MEM_HOST)) {
        uct_angara_gpu_check(ANGARA_ERR_BOUNDS, remote, length);
    }
}

ucs_status_t uct_angara_gpu_ep_put_short(uct_ep_h tl_ep, const void *buffer, unsigned length,
                                         uint64_t remote_addr, uct_rkey_t rkey)
{
    (void)tl_ep;
    (void)rkey;
    uct_angara_gpu_check_remote(remote_addr, length);
    UCT_TL_EP_STAT_OP(ucs_derived_of(tl_ep, uct_base_ep_t), PUT, SHORT, length);
    uct_angara_gpu_check(angara_copy((void *)remote_addr, buffer, length), remote_addr, length);
    return UCS_OK;
}

ucs_status_t uct_angara_gpu_ep_get_short(uct_ep_h tl_ep, void *buffer, unsigned length,
                                         uint64_t remote_addr, uct_rkey_t rkey)
{
    (void)tl_ep;
    (void)rkey;
    uct_angara_gpu_check_remote(remote_addr, length);
    UCT_TL_EP_STAT_OP(ucs_derived_of(tl_ep, uct_base_ep_t), GET, SHORT, length);
    uct_angara_gpu_check(angara_copy(buffer, (const void *)remote_addr, length), remote_addr,
                         length);
    return UCS_OK;
}

static ucs_status_t uct_angara_gpu_start(uct_ep_h tl_ep, void *dst, const void *src,
                                         uint64_t remote, size_t length, uct_completion_t *comp)
{
    uct_angara_gpu_iface_t *iface = ucs_derived_of(tl_ep->iface, uct_angara_gpu_iface_t);
    uct_angara_gpu_op_t    *op    = ucs_mpool_get(&iface->mp);
    angara_status_t         status;

    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    uct_angara_gpu_check_remote(remote, length);
    status = angara_copy_start(dst, src, length, &op->copy);
    if (status != ANGARA_INPROGRESS) {
        ucs_mpool_put(op);
        /* There is a detour only, or too many are under way. */
        if ((status == ANGARA_ERR_UNSUPPORTED) || (status == ANGARA_ERR_NO_RESOURCE)) {
            status = angara_copy(dst, src, length);
        }
        uct_angara_gpu_check(status, remote, length);
        return UCS_OK;
    }

    op->comp     = comp;
    op->remote   = remote;
    op->length   = length;
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
    return uct_angara_gpu_start(tl_ep, (void *)remote_addr, iov->buffer, remote_addr, length, comp);
}

ucs_status_t uct_angara_gpu_ep_get_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov, size_t iovcnt,
                                         uint64_t remote_addr, uct_rkey_t rkey,
                                         uct_completion_t *comp)
{
    size_t length = uct_iov_get_length(iov);

    (void)rkey;
    UCT_CHECK_IOV_SIZE(iovcnt, 1ul, "uct_angara_gpu_ep_get_zcopy");
    UCT_TL_EP_STAT_OP(ucs_derived_of(tl_ep, uct_base_ep_t), GET, ZCOPY, length);
    return uct_angara_gpu_start(tl_ep, iov->buffer, (const void *)remote_addr, remote_addr, length,
                                comp);
}

ucs_status_t uct_angara_gpu_ep_flush(uct_ep_h tl_ep, unsigned flags, uct_completion_t *comp)
{
    return uct_angara_gpu_iface_flush(tl_ep->iface, flags, comp);
}
