/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rendezvous from the first byte for messages between two GPUs.
 *
 * An eager message out of GPU memory waits for two copies, one on each side; a rendezvous waits for
 * one, from GPU to GPU, and two short messages. UCP's first protocol generation has one threshold
 * for memory of all types. Where it chooses the protocol of a tag send, ucp_request_send_start(),
 * the request tells the type of its memory. So libucp's own call of that function comes here first:
 * its entry in libucp's table of functions is changed. The caller sends what has been started here,
 * as it would an eager message. Open MPI's own transport for GPUs in a node (smcuda) sends no GPU
 * memory eagerly, either.
 *
 * Later generations have thresholds by type of memory. All that is of UCP's in here is of the very
 * version that the transport was built for; whether that one runs has been checked before. The
 * library stays loaded once the entry is changed (-z nodelete).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "verbs/ep.h"

#include "base/entry.h"
#include "base/memtype.h"
#include "gpu/copier.h"

#if UCT_ANGARA_HAS_GPU_RNDV

#include <ucp/core/ucp_context.h>
#include <ucp/core/ucp_ep.inl>
#include <ucp/core/ucp_request.h>
#include <ucp/core/ucp_worker.h>
#include <ucp/dt/dt_contig.h>

#include <dlfcn.h>

#define UCT_ANGARA_CHOOSES "ucp_request_send_start"

typedef ucs_status_t (*uct_angara_choose_func_t)(
    ucp_request_t *req, ssize_t max_short, size_t zcopy_thresh, size_t zcopy_max, size_t dt_count,
    size_t priv_iov_count, size_t length, const ucp_ep_msg_config_t *msg_config,
    const ucp_request_send_proto_t *proto, const ucp_request_param_t *param);

typedef ucs_status_t (*uct_angara_rndv_func_t)(ucp_request_t             *req,
                                               const ucp_request_param_t *param);

/** UCP's own */
static struct {
    uct_angara_choose_func_t choose;
    uct_angara_rndv_func_t   rndv;
} uct_angara_ucp;

/* ---- which way ----------------------------------------------------------------------------- */

/* The endpoint that rendezvous of this UCP endpoint goes by, if it is one of ours. */
static uct_angara_ep_t *uct_angara_rndv_ep(ucp_ep_h ep)
{
    const ucp_ep_config_t *config = ucp_ep_config(ep);
    ucp_lane_index_t       lane   = config->rndv.get_zcopy.lanes[0];
    uct_ep_h               tl_ep;

    if (lane == UCP_NULL_LANE) {
        lane = config->rndv.put_zcopy.lanes[0];
    }
    if ((lane == UCP_NULL_LANE) || (config->tag.rndv.rma_thresh.remote == SIZE_MAX) ||
        ucp_ep_config_key_has_tag_lane(&config->key)) {
        return NULL;
    }
    tl_ep = ep->uct_eps[lane];
    return (tl_ep->iface->ops.ep_get_zcopy == uct_angara_ep_get_zcopy) ?
               ucs_derived_of(tl_ep, uct_angara_ep_t) :
               NULL;
}

/* Has the user left it to UCP which messages go by rendezvous, and by which scheme? */
static int uct_angara_rndv_is_free(const ucp_context_t *context)
{
    return (context->config.ext.rndv_thresh == UCS_MEMUNITS_AUTO) &&
           ((context->config.ext.rndv_mode == UCP_RNDV_MODE_AUTO) ||
            (context->config.ext.rndv_mode == UCP_RNDV_MODE_GET_ZCOPY) ||
            (context->config.ext.rndv_mode == UCP_RNDV_MODE_PUT_ZCOPY));
}

/* Has memory of that allocation been sent before? Its first message is eager: mapping the memory
 * takes as long as a hundred eager messages. Some are forgotten. */
static int uct_angara_rndv_is_known(uct_angara_iface_t *iface, uint64_t id)
{
    uint64_t *known    = &iface->gpu_sent[id % UCT_ANGARA_GPU_SENT];
    int       is_known = *known == id;

    *known = id;
    return is_known;
}

/*
 * Is it worth while? The message's memory can be mapped by other processes, and the receiver uses
 * GPUs of that kind, but not this one. Within one GPU a copy waits for a multiprocessor, an eager
 * message doesn't; and who uses no GPU has its helper copy through the host.
 */
static int uct_angara_rndv_is_better(const uct_angara_ep_t *ep, uct_angara_iface_t *iface,
                                     const void *buffer)
{
    const uct_angara_peer_t *peer = ep->user.peer;
    const angara_mem_t      *mem  = uct_angara_gpu_last_asked(buffer);

    return (peer->ch.ap != NULL) && (mem != NULL) && mem->shares && (mem->id != 0) &&
           (angara_peer_gpu(peer->ch.ap, mem->kind, mem->pci) == ANGARA_GPU_OTHERS) &&
           uct_angara_rndv_is_known(iface, mem->id);
}

static int uct_angara_rndv_wanted(const ucp_request_t *req, size_t length)
{
    ucp_ep_h            ucp_ep = req->send.ep;
    uct_angara_iface_t *iface;
    uct_angara_ep_t    *ep;

    /* the caller makes a synchronous one known as such, which rendezvous does by itself */
    if (!(req->flags & UCP_REQUEST_FLAG_SEND_TAG) || (req->flags & UCP_REQUEST_FLAG_SYNC) ||
        !UCP_DT_IS_CONTIG(req->send.datatype) ||
        !uct_angara_rndv_is_free(ucp_ep->worker->context)) {
        return 0;
    }
    ep = uct_angara_rndv_ep(ucp_ep);
    if (ep == NULL) {
        return 0;
    }
    iface = ucs_derived_of(ep->super.super.iface, uct_angara_iface_t);
    return (length >= iface->config.gpu_rndv_thresh) &&
           uct_angara_rndv_is_better(ep, iface, req->send.buffer);
}

static ucs_status_t uct_angara_choose(ucp_request_t *req, ssize_t max_short, size_t zcopy_thresh,
                                      size_t zcopy_max, size_t dt_count, size_t priv_iov_count,
                                      size_t length, const ucp_ep_msg_config_t *msg_config,
                                      const ucp_request_send_proto_t *proto,
                                      const ucp_request_param_t      *param)
{
    if (ucs_unlikely(!UCP_MEM_IS_HOST(req->send.mem_type)) && (length > 0) &&
        uct_angara_rndv_wanted(req, length)) {
        req->status = UCS_INPROGRESS;
        return uct_angara_ucp.rndv(req, param);
    }
    return uct_angara_ucp.choose(req, max_short, zcopy_thresh, zcopy_max, dt_count, priv_iov_count,
                                 length, msg_config, proto, param);
}

/* ---- libucp's table of functions ----------------------------------------------------------- */

void uct_angara_gpu_rndv_start(void)
{
    void            *ucp   = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
    struct link_map *map   = NULL;
    void           **entry = NULL;

    if (ucp == NULL) {
        return;
    }
    /* it stays loaded: this transport needs it */
    *(void **)&uct_angara_ucp.choose = dlsym(ucp, UCT_ANGARA_CHOOSES);
    *(void **)&uct_angara_ucp.rndv   = dlsym(ucp, "ucp_tag_send_start_rndv");
    if ((uct_angara_ucp.choose != NULL) && (uct_angara_ucp.rndv != NULL) &&
        (dlinfo(ucp, RTLD_DI_LINKMAP, &map) == 0)) {
        entry = uct_angara_entry_find(map, UCT_ANGARA_CHOOSES);
    }
    if (entry != NULL) {
        uct_angara_entry_set(entry, (void *)uct_angara_choose);
    } else {
        ucs_debug("angara: short messages out of GPU memory are eager: no way to choose");
    }
    dlclose(ucp);
}

#else

void uct_angara_gpu_rndv_start(void)
{
}

#endif
