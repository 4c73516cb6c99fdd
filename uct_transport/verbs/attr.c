/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the interface tells UCX about itself: limits, capabilities, estimates of its speed. No
 * state.
 */
#include "verbs/iface.h"

#include "base/memtype.h"

#define UCT_ANGARA_OVERHEAD 30e-9 /* seconds per operation */

/** How fast a provider is: seconds, bytes per second. */
typedef struct {
    double latency;
    double bandwidth;
    int    is_nic;        /**< the bandwidth is that of all processes of the node */
    double copy_overhead; /**< of a transfer that the CPU makes */
} uct_angara_speed_t;

/*
 * Measured on H100, driver 580: seconds of a copy by a GPU; bytes per second between two by NVLink,
 * and between one and the host. UCP counts the latency of what ends with an answer twice, and so of
 * all zero copy: half of a copy is told.
 */
#define UCT_ANGARA_GPU_LATENCY        3.8e-6
#define UCT_ANGARA_GPU_LATENCY_UNSAID 2e-6 /* more than UCP estimates for a rendezvous */
#define UCT_ANGARA_GPU_BANDWIDTH      300e9
#define UCT_ANGARA_GPU_HOST_BANDWIDTH 10e9

/*
 * Where registering is cheap, it is the CPU that copies another process's memory, by a system call,
 * and each process has one: measured on the soft fabric. A NIC has one link for all. None was
 * measured: this is FDR InfiniBand, which those who have an Angara NIC found alike.
 */
static uct_angara_speed_t uct_angara_iface_speed(const uct_angara_iface_t *iface)
{
    static const uct_angara_speed_t cpu = {150e-9, 11e9, 0, 1.2e-6}, nic = {1e-6, 6.8e9, 1, 0};
    const uct_angara_md_t          *md    = ucs_derived_of(iface->super.md, uct_angara_md_t);
    uct_angara_speed_t              speed = (md->attr.caps & ANGARA_CAP_REG_CHEAP) ? cpu : nic;

    if (iface->config.bandwidth > 0) { /* auto is less */
        speed.bandwidth = iface->config.bandwidth;
    }
    return speed;
}

static void uct_angara_iface_query_am(uct_angara_iface_t *iface, uct_iface_attr_t *attr)
{
    attr->cap.am.max_short       = iface->net.port.run_bytes;
    attr->cap.am.max_bcopy       = iface->net.port.run_bytes;
    attr->cap.am.min_zcopy       = 0;
    attr->cap.am.max_zcopy       = iface->net.port.run_bytes;
    attr->cap.am.opt_zcopy_align = 1;
    attr->cap.am.align_mtu       = 1;
    attr->cap.am.max_hdr         = iface->net.port.run_bytes / 2;
    attr->cap.am.max_iov         = iface->config.max_iov;
}

static void uct_angara_iface_query_rma(uct_angara_iface_t *iface, uct_iface_attr_t *attr)
{
    uct_angara_md_t *md = uct_angara_iface_md(iface);

    attr->cap.put.max_short       = md->attr.inline_max;
    attr->cap.put.max_bcopy       = iface->net.port.bounce.size;
    attr->cap.put.min_zcopy       = 0;
    attr->cap.put.max_zcopy       = md->attr.offload_max;
    attr->cap.put.opt_zcopy_align = 1;
    attr->cap.put.align_mtu       = 1;
    attr->cap.put.max_iov         = iface->config.max_iov;

    attr->cap.get.max_short       = md->attr.inline_max;
    attr->cap.get.max_bcopy       = iface->net.port.bounce.size;
    attr->cap.get.min_zcopy       = 0;
    attr->cap.get.max_zcopy       = md->attr.offload_max;
    attr->cap.get.opt_zcopy_align = 1;
    attr->cap.get.align_mtu       = 1;
    attr->cap.get.max_iov         = iface->config.max_iov;

    attr->cap.atomic32.op_flags = attr->cap.atomic64.op_flags = UCS_BIT(UCT_ATOMIC_OP_ADD) |
                                                                UCS_BIT(UCT_ATOMIC_OP_AND) |
                                                                UCS_BIT(UCT_ATOMIC_OP_OR) |
                                                                UCS_BIT(UCT_ATOMIC_OP_XOR);
    attr->cap.atomic32.fop_flags = attr->cap.atomic64.fop_flags = attr->cap.atomic64.op_flags |
                                                                  UCS_BIT(UCT_ATOMIC_OP_SWAP) |
                                                                  UCS_BIT(UCT_ATOMIC_OP_CSWAP);
}

ucs_status_t uct_angara_iface_query(uct_iface_h tl_iface, uct_iface_attr_t *attr)
{
    uct_angara_iface_t *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);
    uct_angara_speed_t  speed = uct_angara_iface_speed(iface);

    uct_base_iface_query(&iface->super, attr);
    uct_angara_iface_query_am(iface, attr);
    uct_angara_iface_query_rma(iface, attr);

    attr->device_addr_len = sizeof(uct_angara_device_addr_t);
    attr->iface_addr_len  = sizeof(angara_address_t);
    attr->ep_addr_len     = 0;
    attr->max_conn_priv   = 0;
    attr->cap.flags = UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_AM_ZCOPY |
                      UCT_IFACE_FLAG_PUT_SHORT | UCT_IFACE_FLAG_PUT_BCOPY |
                      UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_SHORT |
                      UCT_IFACE_FLAG_GET_BCOPY | UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_PENDING |
                      UCT_IFACE_FLAG_CB_SYNC | UCT_IFACE_FLAG_CONNECT_TO_IFACE |
                      UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE | UCT_IFACE_FLAG_EP_CHECK |
                      UCT_ANGARA_IFACE_FLAG_INTER_NODE;
    /*
     * The soft fabric's are the CPU's, as those of the program and of UCP's emulation. A NIC's are
     * not: where there is one, UCP takes it for the atomics of all peers, and nothing beside it.
     */
    attr->cap.flags |= speed.is_nic ? UCT_IFACE_FLAG_ATOMIC_DEVICE : UCT_IFACE_FLAG_ATOMIC_CPU;
    attr->cap.event_flags = UCT_IFACE_FLAG_EVENT_SEND_COMP | UCT_IFACE_FLAG_EVENT_RECV |
                            UCT_IFACE_FLAG_EVENT_FD;

    attr->latency             = ucs_linear_func_make(speed.latency, 0);
    attr->bandwidth.dedicated = speed.is_nic ? 0 : speed.bandwidth;
    attr->bandwidth.shared    = speed.is_nic ? speed.bandwidth : 0;
    attr->overhead            = UCT_ANGARA_OVERHEAD;
    attr->priority            = 0;
    attr->max_num_eps         = ucs_min(attr->max_num_eps, iface->net.port.window.max_peers);
    return UCS_OK;
}

/* Bytes go that way, and then the other way. */
static double uct_angara_in_turn(double bandwidth, double other)
{
    return 1.0 / (1.0 / bandwidth + 1.0 / other);
}

/*
 * UCX's own function takes every operation to cost the same. But it adds to am_bcopy what packing
 * costs, to am_zcopy nothing, and host memory is copied by both, GPU memory by a GPU. What the
 * memory at the far end is isn't told for all operations: then it is taken for memory like ours.
 * UCP tells of memory other than the host's from UCX 1.19 on.
 */
ucs_status_t uct_angara_iface_estimate_perf(uct_iface_h tl_iface, uct_perf_attr_t *attr)
{
    uct_angara_iface_t    *iface = ucs_derived_of(tl_iface, uct_angara_iface_t);
    uct_angara_perf_ends_t ends  = uct_angara_perf_ends(attr);
    uct_angara_speed_t     speed = uct_angara_iface_speed(iface);
    int          is_rma = (ends.op == UCT_EP_OP_PUT_ZCOPY) || (ends.op == UCT_EP_OP_GET_ZCOPY);
    int          is_gpu = uct_angara_memtype_is_gpu(ends.local);
    int          is_remote_gpu;
    double       bandwidth = speed.bandwidth, latency = 0, overhead = 0;
    ucs_status_t status;

    status = uct_base_iface_estimate_perf(tl_iface, attr);
    if (status != UCS_OK) {
        return status;
    }

    is_remote_gpu = (ends.remote < UCS_MEMORY_TYPE_LAST) ? uct_angara_memtype_is_gpu(ends.remote) :
                                                           is_gpu;
    if (is_rma && is_gpu && is_remote_gpu) {
        bandwidth = UCT_ANGARA_GPU_BANDWIDTH;
        latency   = UCT_ANGARA_GPU_LATENCY;
    } else if (is_rma && (is_gpu || is_remote_gpu)) {
        bandwidth = UCT_ANGARA_GPU_HOST_BANDWIDTH;
        latency   = UCT_ANGARA_GPU_LATENCY;
    } else if (is_rma) {
        overhead = speed.copy_overhead;
    } else if ((ends.op == UCT_EP_OP_AM_ZCOPY) && is_gpu) {
        bandwidth = uct_angara_in_turn(bandwidth, UCT_ANGARA_GPU_HOST_BANDWIDTH);
        latency   = UCT_ANGARA_GPU_LATENCY;
        if (iface->config.gpu_rndv_thresh <= 1) {
            latency +=
                UCT_ANGARA_GPU_LATENCY; /* a blocking send doesn't count the receiver's copy */
        }
    } else if (ends.op == UCT_EP_OP_AM_ZCOPY) {
        bandwidth = uct_angara_in_turn(bandwidth, uct_angara_memcpy_bandwidth());
        /* Perhaps out of GPU memory, as UCP says from UCX 1.19 on only: then better by rendezvous.
         */
        if (!(attr->field_mask & UCT_PERF_ATTR_FIELD_LOCAL_MEMORY_TYPE) && uct_angara_memtypes() &&
            (iface->config.gpu_rndv_thresh <= 1)) {
            latency = UCT_ANGARA_GPU_LATENCY_UNSAID;
        }
    }

    uct_angara_perf_bandwidth(attr, speed.is_nic ? 0 : bandwidth, speed.is_nic ? bandwidth : 0);
    if (attr->field_mask & UCT_PERF_ATTR_FIELD_SEND_PRE_OVERHEAD) {
        attr->send_pre_overhead += overhead;
    }
    if (attr->field_mask & UCT_PERF_ATTR_FIELD_LATENCY) {
        attr->latency.c += latency;
    }
    return UCS_OK;
}
