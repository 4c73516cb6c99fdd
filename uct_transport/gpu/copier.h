/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory for a UCX that knows none: a component of its own, whose memory domain tells UCX which
 * pointers are a GPU's, and whose transport copies between GPU and host within the process. It is
 * named as the one between processes, so that UCX_TLS=angara enables both. UCP takes UCX's own copy
 * transport before it where both are enabled.
 *
 * Knows nothing of the rest of the transport but base/.
 */
#ifndef UCT_ANGARA_GPU_H
#define UCT_ANGARA_GPU_H

#include "base/compat.h"

#include <angara/angara_mem.h>

/** First word of this transport's device addresses: that of the other one begins otherwise. */
#define UCT_ANGARA_GPU_MAGIC 0xa47b

/** That is reported: a tenth of what the other one reports, and less. */
#define UCT_ANGARA_GPU_BANDWIDTH 1e9

/** Seen by others than this library. */
#define UCT_ANGARA_GPU_EXPORT __attribute__((visibility("default")))

typedef struct uct_angara_gpu_md {
    uct_md_t super;
    uint64_t kinds;       /**< bits of UCX's memory types */
    uint64_t left_out;    /**< the same that is recognised only to be refused */
    int      has_others;  /**< UCX's own copy transports: unknown memory may be theirs */
    int      is_watching; /**< it is told when mappings of the process change */
} uct_angara_gpu_md_t;

/** Device address. As long as the other transport's, which reads it too. */
typedef struct uct_angara_gpu_device_addr {
    uint16_t magic;
    uint16_t reserved[3];
} UCS_S_PACKED uct_angara_gpu_device_addr_t;

/** A copy under way; or a flush, which waits for those before it. */
typedef struct uct_angara_gpu_op {
    ucs_queue_elem_t  elem;
    uct_completion_t *comp;
    angara_copy_t     copy;
    uint64_t          remote; /**< its end in GPU memory, for messages */
    size_t            length;
    int               is_flush;
} uct_angara_gpu_op_t;

typedef struct uct_angara_gpu_iface {
    uct_base_iface_t super;
    uint64_t         id;       /**< address: of this process's interface, and no other */
    ucs_queue_head_t ops;      /**< under way, in the order in which they were started */
    ucs_mpool_t      mp;       /**< of them */
    int              event_fd; /**< never readable */
} uct_angara_gpu_iface_t;

typedef struct uct_angara_gpu_ep {
    uct_base_ep_t super;
} uct_angara_gpu_ep_t;

UCS_CLASS_DECLARE_NEW_FUNC(uct_angara_gpu_iface_t, uct_iface_t, uct_md_h, uct_worker_h,
                           const uct_iface_params_t *, const uct_iface_config_t *);
UCS_CLASS_DECLARE_NEW_FUNC(uct_angara_gpu_ep_t, uct_ep_t, const uct_ep_params_t *);
UCS_CLASS_DECLARE_DELETE_FUNC(uct_angara_gpu_ep_t, uct_ep_t);

/** With the library's constructor and destructor. */
void uct_angara_gpu_register(void);
void uct_angara_gpu_unregister(void);

/**
 * End the process, with a message, if a copy to or from GPU memory has failed: UCP doesn't look at
 * what copies of its own end with, and would take old bytes for the message.
 */
void uct_angara_gpu_check(angara_status_t status, uint64_t remote, size_t length);

/**
 * For Open MPI's component, which finds both by name. Is it memory of a GPU that the CPU can't
 * touch? Ends the process as UCX's asking does: where nothing is, or what ANGARA_GPU leaves out.
 */
UCT_ANGARA_GPU_EXPORT int uct_angara_gpu_is_device(const void *address, size_t length);

/** Copy from such memory; a copy that fails ends the process. */
UCT_ANGARA_GPU_EXPORT void uct_angara_gpu_read(void *target, const void *address, size_t length);

/**
 * From here on UCX asks what memory a pointer is, once the process may have memory of a GPU: while
 * there is a memory domain, and after it, too, if that has happened.
 */
void uct_angara_gpu_detect_start(uct_angara_gpu_md_t *md);
void uct_angara_gpu_detect_stop(uct_angara_gpu_md_t *md);

/** The process may have memory of a GPU; atomic, only rises. */
extern int uct_angara_gpu_asks;

static UCS_F_ALWAYS_INLINE int uct_angara_gpu_is_asking(void)
{
    return __atomic_load_n(&uct_angara_gpu_asks, __ATOMIC_ACQUIRE);
}

/**
 * UCX asks about @a address, which is in @a mem: if it has never asked about that, it drops what it
 * has kept for those addresses.
 */
void uct_angara_gpu_hear(const void *address, const angara_mem_t *mem);

/**
 * Changes of the process's mappings until now. To be asked for before a driver is asked about an
 * address. 0: they aren't known.
 */
uint64_t uct_angara_gpu_changes(const uct_angara_gpu_md_t *md);

/** The driver has been asked, after so many changes: @a address isn't a GPU's. */
void uct_angara_gpu_see_hosts(const void *address, uint64_t changes);

/** Was that found by this thread, and has nothing changed since? */
int uct_angara_gpu_is_hosts(const void *address, uint64_t changes);

/**
 * Is there no memory at @a address, which isn't a GPU's? Asked once for each 2 MiB: what the host
 * has freed there since, or never had, isn't found.
 */
int uct_angara_gpu_is_gone(const void *address);

/**
 * What the GPU memory at @a address was when UCX last asked, if it was about this address that the
 * thread asked last: it may have been freed since. NULL: nothing is known.
 */
const angara_mem_t *uct_angara_gpu_last_asked(const void *address);

/** Does the endpoint lead to that address? */
int uct_angara_gpu_ep_leads_to(uct_ep_h tl_ep, const uct_device_addr_t *dev_addr,
                               const uct_iface_addr_t *iface_addr);

unsigned     uct_angara_gpu_iface_progress(uct_iface_h tl_iface);
ucs_status_t uct_angara_gpu_iface_flush(uct_iface_h tl_iface, unsigned flags,
                                        uct_completion_t *comp);

ucs_status_t uct_angara_gpu_ep_put_short(uct_ep_h tl_ep, const void *buffer, unsigned length,
                                         uint64_t remote_addr, uct_rkey_t rkey);
ucs_status_t uct_angara_gpu_ep_get_short(uct_ep_h tl_ep, void *buffer, unsigned length,
                                         uint64_t remote_addr, uct_rkey_t rkey);
ucs_status_t uct_angara_gpu_ep_put_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov, size_t iovcnt,
                                         uint64_t remote_addr, uct_rkey_t rkey,
                                         uct_completion_t *comp);
ucs_status_t uct_angara_gpu_ep_get_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov, size_t iovcnt,
                                         uint64_t remote_addr, uct_rkey_t rkey,
                                         uct_completion_t *comp);
ucs_status_t uct_angara_gpu_ep_flush(uct_ep_h tl_ep, unsigned flags, uct_completion_t *comp);

#endif
