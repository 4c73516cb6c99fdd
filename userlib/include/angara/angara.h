/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libangara: put/get/offload operations and completion markers on an Angara-class interconnect.
 *
 * This header has all calls but three groups: window puts and the look at markers that are compiled
 * into the program (<angara/angara_fast.h>), GPU memory (<angara/angara_mem.h>), and counters that
 * others can watch (<angara/angara_watch.h>). It is opaque, C and C++ clean, and versioned: a
 * struct that may grow is passed with its size, and no more than that is read or filled. The
 * programming model behind it (what a PE, a region, a window, a marker is, and what is ordered) is
 * docs/nic-model.md; read that first.
 *
 * Threads: calls on different domains may run concurrently. Calls on one PE and on its peers must
 * be serialised by the caller. Registration calls on one domain may run concurrently with each
 * other and with operations of PEs attached to it.
 *
 * Errors: every call returns a status; outputs are written only on success. An error is logged
 * once, where it is detected (ANGARA_LOG_LEVEL), with its cause and what can be done.
 *
 * What holds for all calls (lengths of zero and above the largest, what is allowed on a pair in
 * error, which calls may wait for how long) is in docs/nic-model.md, "What each call keeps to".
 */
#ifndef ANGARA_H
#define ANGARA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ANGARA_API __attribute__((visibility("default")))

/** Version of the library's interface; the run-time one is angara_version(). */
#define ANGARA_VERSION_MAJOR 0
#define ANGARA_VERSION_MINOR 1
#define ANGARA_VERSION_PATCH 0

/** Version of what <angara/angara_fast.h> compiles into a program. */
#define ANGARA_FAST_VERSION 6

/** Result of a call. Zero is success, positive is "not yet", negative is an error. */
typedef enum {
    ANGARA_INPROGRESS      = 1, /**< started; a marker or a later call tells the end */
    ANGARA_OK              = 0,
    ANGARA_ERR_INVALID     = -1,  /**< an argument is wrong */
    ANGARA_ERR_NO_MEMORY   = -2,  /**< memory, descriptors or a table is exhausted */
    ANGARA_ERR_NO_RESOURCE = -3,  /**< a ring is full: make progress and try again */
    ANGARA_ERR_NO_DEVICE   = -4,  /**< no such provider or device here */
    ANGARA_ERR_UNREACHABLE = -5,  /**< the address can't be reached from here */
    ANGARA_ERR_KEY         = -6,  /**< no region of that key in the target's domain */
    ANGARA_ERR_BOUNDS      = -7,  /**< outside the region or the window */
    ANGARA_ERR_RIGHTS      = -8,  /**< the region doesn't grant that access */
    ANGARA_ERR_PEER_DEAD   = -9,  /**< the peer's process is gone, or its PE was closed */
    ANGARA_ERR_PAIR        = -10, /**< the pair is in error since an earlier fault: reset it */
    ANGARA_ERR_UNSUPPORTED = -11, /**< this provider or mode can't do that */
    ANGARA_ERR_VERSION     = -12, /**< library and peer (or driver) speak different versions */
    ANGARA_ERR_LIMIT       = -13, /**< a system or configured limit forbids it */
    ANGARA_ERR_SYSTEM      = -14, /**< a system call or a driver's failed; the log says why */
    ANGARA_ERR_FORKED      = -15, /**< the object belongs to the parent process */
    ANGARA_ERR_BUSY        = -16, /**< a peer is stopped within an access: call again later */
    ANGARA_ERR_LAST        = -17
} angara_status_t;

typedef struct angara_domain *angara_domain_h; /**< protection domain: owns regions */
typedef struct angara_mr     *angara_mr_h;     /**< memory region */
typedef struct angara_pe     *angara_pe_h;     /**< processing element: a network endpoint */
typedef struct angara_peer   *angara_peer_h;   /**< pair (local PE, remote PE) */

/** Rights of a region: what a remote PE may do with it. */
enum {
    ANGARA_ACCESS_REMOTE_READ   = 1u << 0,
    ANGARA_ACCESS_REMOTE_WRITE  = 1u << 1,
    ANGARA_ACCESS_REMOTE_ATOMIC = 1u << 2,
    ANGARA_ACCESS_LOCAL_WRITE   = 1u << 3, /**< may be the local destination of a get */
    ANGARA_ACCESS_ALL           = 0xfu
};

/** What a provider can do (angara_attr_t.caps). */
enum {
    ANGARA_CAP_LOOPBACK      = 1u << 0, /**< gets from the own node are performed by the NIC */
    ANGARA_CAP_WINDOW_DIRECT = 1u << 1, /**< windows are written by plain CPU stores */
    ANGARA_CAP_INLINE_OPS    = 1u << 2, /**< ring operations may complete within the call */
    ANGARA_CAP_REG_CHEAP     = 1u << 3, /**< registration is O(1): a cache is not worth it */
    ANGARA_CAP_CHAOS         = 1u << 4, /**< chaos mode is on */
    ANGARA_CAP_NODE_PEERS    = 1u << 5, /**< other PEs of the own node can be reached */
    ANGARA_CAP_GPU_MEMORY    = 1u << 6  /**< regions may be memory of a GPU (angara_mem.h) */
};

/** Attributes of a domain's provider. */
typedef struct {
    char     provider[16]; /**< "soft", "nic" */
    char     device[32];   /**< device name, e.g. "soft0" */
    uint32_t caps;         /**< ANGARA_CAP_* */
    uint32_t node;         /**< node id */
    size_t   window_max;   /**< largest put window of a PE, bytes */
    size_t   put_max;      /**< largest single window put, bytes: more is ANGARA_ERR_INVALID */
    size_t   offload_max;  /**< the same of an offload put or get */
    size_t   inline_max;   /**< the same of angara_offload_put_inline() */
    size_t   mr_max;       /**< number of regions of a domain */
    unsigned marker_slots; /**< marker slots of a PE */
} angara_attr_t;

/** Size of the largest record of a notify put, bytes. */
#define ANGARA_NOTIFY_MAX 64

/**
 * Address of a PE: plain bytes that may be sent anywhere. (node, index, generation) identify the
 * PE; loc is what the provider needs to reach it. Host byte order; `version` and `magic` tell
 * strangers apart.
 */
typedef struct angara_address {
    uint16_t magic;      /**< ANGARA_ADDRESS_MAGIC */
    uint8_t  version;    /**< ANGARA_WIRE_VERSION of the owner's library */
    uint8_t  provider;   /**< 1 soft, 2 nic */
    uint32_t node;       /**< node id */
    uint32_t index;      /**< PE index within the node */
    uint32_t generation; /**< tells a PE from an earlier one of the same index; never 0 */
    uint64_t loc[5];     /**< provider's locator */
} angara_address_t;

#define ANGARA_ADDRESS_MAGIC 0xa46a
#define ANGARA_WIRE_VERSION  1

/** Name of a PE: what its address has under the same names. No two PEs have the same. */
typedef struct {
    uint32_t node;
    uint32_t index;
    uint32_t generation;
} angara_pe_id_t;

/** Kinds of events in a PE's event ring. */
typedef enum {
    ANGARA_EVENT_NOTIFY    = 1, /**< a peer's notify put, `from` that PE: data[0..len) */
    ANGARA_EVENT_FAULT     = 2, /**< an operation of this PE faulted: status, peer, key */
    ANGARA_EVENT_PEER_DOWN = 3, /**< the peer's process died, or its PE was closed */
    ANGARA_EVENT_LINK      = 4, /**< link state changed: status is 1 for up, 0 for down */
    ANGARA_EVENT_OVERFLOW  = 5  /**< events were lost since the last one read (sticky) */
} angara_event_type_t;

typedef struct {
    angara_event_type_t type;
    int                 status; /**< angara_status_t of a fault, link state */
    angara_peer_h       peer;   /**< the pair concerned; NULL for a notify from a stranger */
    uint64_t            key;    /**< FAULT: the remote key used */
    uint32_t            len;    /**< NOTIFY: bytes in data */
    uint8_t             data[ANGARA_NOTIFY_MAX];
    /**
     * NOTIFY: the PE that sent it, a stranger too, as the fabric knows it: compare it with any
     * address that the record itself holds. How far it can be trusted is in docs/nic-model.md,
     * "Who sent it". Of other events: 0.
     */
    angara_pe_id_t from;
} angara_event_t;

/** Atomic operations. All are performed on naturally aligned 32- or 64-bit words. */
typedef enum {
    ANGARA_ATOMIC_ADD,
    ANGARA_ATOMIC_AND,
    ANGARA_ATOMIC_OR,
    ANGARA_ATOMIC_XOR,
    ANGARA_ATOMIC_SWAP,
    ANGARA_ATOMIC_CSWAP,
    ANGARA_ATOMIC_LAST
} angara_atomic_op_t;

/** Counters of a PE, see angara_pe_counters(). All count since the PE was created. */
#define ANGARA_COUNTERS(_)                                                            \
    _(window_puts, "window puts through the library (direct stores are not counted)") \
    _(offload_puts, "offload puts performed")                                         \
    _(offload_gets, "offload gets performed")                                         \
    _(offload_bytes, "bytes moved by offload operations, unfinished ones included")   \
    _(atomics, "atomics performed")                                                   \
    _(notifies, "notify puts accepted by their target")                               \
    _(notify_refused, "notify puts refused because the target's event ring was full") \
    _(markers, "completion markers performed")                                        \
    _(faults, "operations that faulted")                                              \
    _(events, "events delivered")                                                     \
    _(events_lost, "events lost by overflow")                                         \
    _(services, "requests to peers' processes: of operations that they perform")      \
    _(wakes, "sleeping peers woken")                                                  \
    _(gpu_copies, "copies that a GPU made between both ends")                         \
    _(gpu_staged, "copies to or from a GPU's memory that went through the host")      \
    _(joint_pieces, "pieces of peers' long puts and gets that this process copied")

typedef struct {
#define ANGARA_COUNTER_FIELD(_name, _help) uint64_t _name;
    ANGARA_COUNTERS(ANGARA_COUNTER_FIELD)
#undef ANGARA_COUNTER_FIELD
} angara_counters_t;

/* ---- library ------------------------------------------------------------------------------- */

/** Run-time version "major.minor.patch". */
ANGARA_API const char *angara_version(void);

/**
 * Rank of this process in its job as the launcher's environment said when the library was first
 * used; "" if it said none.
 */
ANGARA_API const char *angara_job_rank(void);

/**
 * For a line that all ranks of a job would print alike: has another process of the job on this node
 * said @a text? If not, it is this one's to say from here on, for which it keeps a descriptor.
 * Only the first 1023 bytes of @a text count.
 * @return 1 or 0; 0 as well to the process that has said it, and where there is no job, or nobody
 * can be asked
 */
ANGARA_API int angara_is_said(const char *text);

/** Print @a text as an error in the library's log: time, host, process and rank come before it. */
ANGARA_API void angara_log_error(const char *text);

/** Text of a status, never NULL. */
ANGARA_API const char *angara_strerror(angara_status_t status);

/** One configuration variable as angara_config_var() shows it. */
typedef struct {
    const char *name;         /**< e.g. "ANGARA_CHAOS" */
    const char *default_text; /**< default as text */
    const char *help;         /**< one sentence with unit and range */
    char        value[64];    /**< value in force */
    const char
        *origin; /**< "default", "environment", or "refused" (a wrong value); NULL: unknown */
} angara_config_var_t;

/**
 * Describe configuration variable number @a index (from 0). @return ANGARA_OK, or
 * ANGARA_ERR_INVALID past the last. Reads the environment on first use; a wrong value is an error
 * of angara_open().
 */
ANGARA_API angara_status_t angara_config_var_sized(unsigned index, angara_config_var_t *var,
                                                   size_t size);

static inline angara_status_t angara_config_var(unsigned index, angara_config_var_t *var)
{
    if (var != NULL) {
        var->origin = NULL; /* of an older library: unknown */
    }
    return angara_config_var_sized(index, var, sizeof(*var));
}

/* ---- domains and regions ------------------------------------------------------------------- */

/**
 * Open a protection domain on a device.
 *
 * @param device  "soft", "soft0", "nic", "angara0"; NULL takes ANGARA_DEVICE, by default the NIC if
 *                one is present and the soft fabric otherwise.
 * @param dom_p   the new domain.
 * @return ANGARA_OK; ANGARA_ERR_NO_DEVICE if there is none of that name; ANGARA_ERR_INVALID if an
 *         ANGARA_* variable has a wrong value; ANGARA_ERR_VERSION if the program was compiled with
 *         headers that don't fit the library; ANGARA_ERR_NO_MEMORY, _LIMIT, _SYSTEM.
 */
ANGARA_API angara_status_t angara_open_version(const char *device, unsigned fast_version,
                                               angara_domain_h *dom_p);

static inline angara_status_t angara_open(const char *device, angara_domain_h *dom_p)
{
    return angara_open_version(device, ANGARA_FAST_VERSION, dom_p);
}

/**
 * Close a domain. All its PEs and regions must have been closed before; else ANGARA_ERR_INVALID.
 * Regions that are owed are collected (angara_mr_collect()); where one can't be yet, the answer is
 * ANGARA_ERR_BUSY, and the domain stays: call again later, or leave it to exit.
 */
ANGARA_API angara_status_t angara_close(angara_domain_h dom);

/** Attributes of the domain. @a size: of the caller's struct. */
ANGARA_API angara_status_t angara_query_sized(angara_domain_h dom, angara_attr_t *attr,
                                              size_t size);

static inline angara_status_t angara_query(angara_domain_h dom, angara_attr_t *attr)
{
    return angara_query_sized(dom, attr, sizeof(*attr));
}

/**
 * Register [addr, addr + length) for access by the NIC. With ANGARA_CAP_GPU_MEMORY it may be memory
 * of a GPU, of one allocation; ANGARA_ACCESS_REMOTE_ATOMIC isn't given to such a region. When that
 * memory is freed, operations of the own PEs on it fault with ANGARA_ERR_BOUNDS; what peers may
 * still reach is in docs/gpu.md.
 * @param access  ANGARA_ACCESS_* of remote PEs.
 * @return ANGARA_OK; ANGARA_ERR_INVALID for a zero length, a range that wraps, unknown rights, GPU
 *         memory that isn't of one allocation, or
 *         (where pages are pinned: the NIC) memory that isn't mapped, or not writable though rights
 *         but ANGARA_ACCESS_REMOTE_READ are asked for; ANGARA_ERR_UNSUPPORTED (soft
 *         fabric) for memory of a GPU that ANGARA_GPU leaves out; ANGARA_ERR_NO_MEMORY if the
 *         table is full.
 */
ANGARA_API angara_status_t angara_mr_register(angara_domain_h dom, void *addr, size_t length,
                                              unsigned access, angara_mr_h *mr_p);

/**
 * Deregister. On success no access by a peer is in flight or can start any more. Waits for accesses
 * in flight; an access by a process that died doesn't count. Operations that the own PEs have
 * posted with the region as their local end are performed first. If a peer doesn't go on with one,
 * it is cancelled: a FAULT event with ANGARA_ERR_BUSY, and the pair in error.
 *
 * May block, up to ANGARA_PEER_WAIT without progress (on a NIC: 10 s), and only for a peer that is
 * within an access, or was asked for something: one that was stopped (by SIGSTOP, a debugger, a
 * freezer) can be waited for in vain.
 * @return ANGARA_OK; or ANGARA_ERR_BUSY: the region is withdrawn, no new access can start, but that
 *         one may still be performed. The memory is *owed*: it must not be freed or used for other
 *         things. The handle stays valid for this call, which may be repeated until it succeeds,
 * and doesn't wait for the same access again. Or leave it to angara_mr_collect().
 */
ANGARA_API angara_status_t angara_mr_deregister(angara_mr_h mr);

/**
 * Try again to deregister, or free, all regions of the domain that are owed, see
 * angara_mr_deregister(). Doesn't wait. Handles of those that are done are gone: whoever calls this
 * doesn't repeat angara_mr_deregister() or angara_mem_free().
 * @return how many regions are still owed: after 0, none of their memory is accessed any more.
 */
ANGARA_API unsigned angara_mr_collect(angara_domain_h dom);

/**
 * Allocate and register memory that peers reach in the fastest way (soft fabric: memory shared with
 * the peers of the node, so that put, get and atomics on it are plain loads and stores).
 * @param length  in: bytes wanted, out: bytes given (rounded up to pages).
 */
ANGARA_API angara_status_t angara_mem_alloc(angara_domain_h dom, size_t *length, unsigned access,
                                            void **addr_p, angara_mr_h *mr_p);

/**
 * The same at an address, a multiple of the page size. What is mapped there is replaced, as by
 * mmap() with MAP_FIXED: it must be the caller's to give.
 */
ANGARA_API angara_status_t angara_mem_alloc_at(angara_domain_h dom, void *addr, size_t *length,
                                               unsigned access, angara_mr_h *mr_p);

/**
 * Free memory of angara_mem_alloc() together with its region. Waits, and may fail with
 * ANGARA_ERR_BUSY, like angara_mr_deregister(): the memory stays then, and the call may be
 * repeated.
 */
ANGARA_API angara_status_t angara_mem_free(angara_mr_h mr);

/** 64-bit key that names the region to remote PEs. Never 0. */
ANGARA_API uint64_t angara_mr_key(angara_mr_h mr);

/** ANGARA_ACCESS_* that the region was registered with. */
ANGARA_API unsigned angara_mr_access(angara_mr_h mr);

/**
 * Do the addresses of a region mean other memory than when it was registered? Where a region pins
 * pages (the NIC), peers go on reaching those pages after munmap(), mremap() or
 * madvise(MADV_DONTNEED): whoever keeps regions to use them again has to ask first, and to register
 * anew. The answer can be yes although nothing has changed. A system call only where the kernel has
 * marked the region.
 * @return non-zero if they do; 0 if not, as always where a region names addresses (soft fabric, but
 *         for GPU memory: there another allocation is another memory).
 */
ANGARA_API int angara_mr_is_stale(angara_mr_h mr);

/** The same of [addr, addr + length), which lies in the region. */
ANGARA_API int angara_mr_part_is_stale(angara_mr_h mr, const void *addr, size_t length);

/** Start address and length of a region. */
ANGARA_API void angara_mr_range(angara_mr_h mr, void **addr_p, size_t *length_p);

/* ---- processing elements ------------------------------------------------------------------- */

/** What a PE is to be like (angara_pe_params_t.flags). */
enum {
    /**
     * The order of offload puts and gets between two markers doesn't matter, not even where they
     * touch the same bytes: a GPU may be given several of them at once, which is faster. Atomics,
     * inline puts and markers keep theirs.
     */
    ANGARA_PE_RELAXED = 1u << 0
};

/** Parameters of a PE; zero means the default. Set size = sizeof(angara_pe_params_t). */
typedef struct {
    size_t   size;        /**< of this struct, for growth */
    size_t   window_size; /**< bytes of put window (address space; memory only once committed) */
    unsigned events;      /**< records of the event ring, a power of two from 2 to 65536; a NIC's
                               driver may give another number */
    uint64_t flags;       /**< ANGARA_PE_* */
} angara_pe_params_t;

/**
 * Create a PE attached to the domain. ANGARA_ERR_LIMIT for a window above window_max.
 * @param params  NULL for the defaults. Flags that the library doesn't know must be zero, and so
 *                must be what it doesn't know of a larger struct: else ANGARA_ERR_UNSUPPORTED.
 */
ANGARA_API angara_status_t angara_pe_create(angara_domain_h dom, const angara_pe_params_t *params,
                                            angara_pe_h *pe_p);

/**
 * Destroy a PE and what is left of its peers. Operations in flight are ended first, as by
 * angara_peer_disconnect(), of all peers at once: after the call nothing of this PE's can land
 * anywhere, except what a stopped peer itself was performing in its own memory.
 */
ANGARA_API void angara_pe_destroy(angara_pe_h pe);

/** Address to hand to others. */
ANGARA_API void angara_pe_address(angara_pe_h pe, angara_address_t *address);

/** The PE's own put window, and its size (@a size_p may be NULL). NULL in a forked child. */
ANGARA_API void *angara_pe_window(angara_pe_h pe, size_t *size_p);

/**
 * Give [offset, offset + length) of the window memory (zeroed when new), so that peers may write
 * there. May overlap what was given before, which stays as it is. Window puts to bytes never
 * committed are an error of the initiator's.
 * @return ANGARA_OK; ANGARA_ERR_BOUNDS outside of it; _INVALID for no bytes; _NO_MEMORY, _LIMIT.
 */
ANGARA_API angara_status_t angara_pe_window_commit(angara_pe_h pe, size_t offset, size_t length);

/**
 * Make progress on what this PE has posted (a no-op where everything completes inline) and look
 * after peers: cheap enough for a polling loop but not needed at every turn. Where the CPU moves
 * the data, one call copies a bounded amount (ANGARA_TURN_BYTES); long operations need several.
 * @return number of operations that advanced.
 */
ANGARA_API unsigned angara_pe_progress(angara_pe_h pe);

/**
 * Take the next event. @a size: of the caller's struct. @return ANGARA_OK, or
 * ANGARA_ERR_NO_RESOURCE if there is none.
 */
ANGARA_API angara_status_t angara_pe_event_poll_sized(angara_pe_h pe, angara_event_t *event,
                                                      size_t size);

static inline angara_status_t angara_pe_event_poll(angara_pe_h pe, angara_event_t *event)
{
    return angara_pe_event_poll_sized(pe, event, sizeof(*event));
}

/**
 * Descriptor that becomes readable on an event or a wake-up after angara_pe_event_arm(), and when
 * the NIC has gone or failed, until angara_pe_event_arm() has said so.
 * @return ANGARA_OK, ANGARA_ERR_LIMIT or another error if there can't be one.
 */
ANGARA_API angara_status_t angara_pe_event_fd(angara_pe_h pe, int *fd_p);

/**
 * Ask for wake-ups. Afterwards re-check rings and markers: what arrived before is not signalled.
 * Also tells peers that write windows directly to call angara_wake().
 *
 * A program that goes on polling for something else may stay armed. If it calls
 * angara_pe_progress() meanwhile, now and then and whenever angara_pe_is_asked() says so, peers'
 * operations on its memory are as fast as if it weren't armed. Before it sleeps it arms again.
 * @return ANGARA_OK if armed; ANGARA_INPROGRESS if there are events to be polled first, or
 *         operations that need angara_pe_progress() to go on; ANGARA_ERR_NO_DEVICE if the NIC has
 *         gone or failed and all has been told: nothing will come any more.
 */
ANGARA_API angara_status_t angara_pe_event_arm(angara_pe_h pe);

/** End the armed state (drains the descriptor). */
ANGARA_API void angara_pe_event_disarm(angara_pe_h pe);

/** Counters, see ANGARA_COUNTERS. @a size: of the caller's struct. */
ANGARA_API void angara_pe_counters_sized(angara_pe_h pe, angara_counters_t *counters, size_t size);

static inline void angara_pe_counters(angara_pe_h pe, angara_counters_t *counters)
{
    angara_pe_counters_sized(pe, counters, sizeof(*counters));
}

/* ---- peers --------------------------------------------------------------------------------- */

/**
 * @return 1 if @a address can be reached from the domain; logs why not at debug level. Each PE can
 * reach itself, whatever this says of its node (ANGARA_CAP_NODE_PEERS).
 */
ANGARA_API int angara_is_reachable(angara_domain_h dom, const angara_address_t *address);

/**
 * Connect a local PE to a remote one. Cheap and one-sided: the remote process isn't asked. Two
 * connects to one address give the same object, counted, unless the first has been found dead.
 * @return ANGARA_OK, _UNREACHABLE, _VERSION, _PEER_DEAD, _NO_MEMORY, _LIMIT.
 */
ANGARA_API angara_status_t angara_peer_connect(angara_pe_h pe, const angara_address_t *address,
                                               angara_peer_h *peer_p);

/**
 * Drop one reference; the last one drops the pair after its operations in flight have ended. A peer
 * that doesn't go on is waited for up to ANGARA_PEER_WAIT, counted from what it was asked for last
 * (on a NIC: 10 s): then they are given up. No event is told of the pair any more.
 */
ANGARA_API void angara_peer_disconnect(angara_peer_h peer);

/** ANGARA_OK, or why operations to this peer fail: ANGARA_ERR_PAIR, ANGARA_ERR_PEER_DEAD. */
ANGARA_API angara_status_t angara_peer_status(angara_peer_h peer);

/**
 * Has everything that was posted to this peer been performed? @return 1: a marker would have
 * arrived by now, and this call stands for one: it is a full fence, and what comes behind it is
 * performed behind all before. 0: only a marker can tell, as always without ANGARA_CAP_INLINE_OPS.
 * Costs no system call and posts nothing.
 */
ANGARA_API int angara_peer_settled(angara_peer_h peer);

/**
 * Wait for what was posted to this peer, for a microsecond or two at most, where its progress has
 * been asked and is expected to answer by then: for a caller that would do nothing else. May make
 * progress of the PE. @return as angara_peer_settled().
 */
ANGARA_API int angara_peer_hurry(angara_peer_h peer);

/**
 * Map a committed part of the peer's window at once, where puts are plain stores, not page by page
 * with the first put to each. A hint, which can't fail. What isn't committed is allocated by it.
 */
ANGARA_API void angara_peer_window_prefault(angara_peer_h peer, uint64_t offset, size_t length);

/**
 * Clear the error of a pair after a fault. Everything queued to it is dropped: on success nothing
 * of it is in flight or can start, and window puts posted before have landed. Fails if it is dead.
 * @return ANGARA_OK; ANGARA_ERR_PEER_DEAD; ANGARA_ERR_BUSY if the peer's process is performing an
 *         operation that it was asked for, and hasn't ended within ANGARA_PEER_WAIT of being asked:
 *         the pair stays in error, and the call may be repeated. Nothing more lands in own memory.
 */
ANGARA_API angara_status_t angara_peer_reset(angara_peer_h peer);

/** Text such as "pid 4711 (PE 3 of node 0)" for messages; valid while the peer is. */
ANGARA_API const char *angara_peer_name(angara_peer_h peer);

/** A pointer kept with the peer for its user. */
ANGARA_API void  angara_peer_set_user(angara_peer_h peer, void *user);
ANGARA_API void *angara_peer_user(angara_peer_h peer);

/* ---- operations ---------------------------------------------------------------------------- */
/* Window puts, the hot path, are inline: see <angara/angara_fast.h>. */

/**
 * Window put: copy @a length bytes to @a offset of the peer's window. The source may be reused on
 * return. Unordered against other window puts, except that writes to one naturally aligned 8-byte
 * word land in the order of issue.
 * @return ANGARA_OK; ANGARA_ERR_BOUNDS outside of the peer's window; ANGARA_ERR_INVALID above
 *         put_max; ANGARA_ERR_NO_RESOURCE; ANGARA_ERR_PEER_DEAD.
 */
ANGARA_API angara_status_t angara_put(angara_peer_h peer, uint64_t offset, const void *src,
                                      size_t length);

/**
 * Flagged window put: as angara_put(), then the 8-byte word @a flag at @a flag_offset (aligned),
 * which becomes visible only after all @a length bytes. @a length may be 0.
 */
ANGARA_API angara_status_t angara_put_flag(angara_peer_h peer, uint64_t offset, const void *src,
                                           size_t length, uint64_t flag_offset, uint64_t flag);

/**
 * Offload put: from [laddr, laddr + length) of the local region @a lmr to offset @a roffset of the
 * region @a rkey of the peer's domain. Non-blocking: the source is in use until a later marker
 * returns.
 * @return ANGARA_OK if posted (with ANGARA_CAP_INLINE_OPS perhaps performed: never more than
 * ANGARA_TURN_BYTES within the call);
 * ANGARA_ERR_INVALID above offload_max, or if @a lmr is of another domain; ANGARA_ERR_BOUNDS
 * outside of @a lmr (neither touches the pair); ANGARA_ERR_NO_RESOURCE; ANGARA_ERR_KEY, _BOUNDS,
 * _RIGHTS (fault: no byte moved, pair in error, an event is raised; a provider may report faults by
 * the event alone); ANGARA_ERR_PAIR, ANGARA_ERR_PEER_DEAD.
 */
ANGARA_API angara_status_t angara_offload_put(angara_peer_h peer, angara_mr_h lmr,
                                              const void *laddr, uint64_t rkey, uint64_t roffset,
                                              size_t length);

/** Offload put whose source (at most inline_max bytes, else ANGARA_ERR_INVALID) is copied. */
ANGARA_API angara_status_t angara_offload_put_inline(angara_peer_h peer, const void *src,
                                                     uint64_t rkey, uint64_t roffset,
                                                     size_t length);

/**
 * Offload get: the reverse of angara_offload_put(); @a lmr needs ANGARA_ACCESS_LOCAL_WRITE. One
 * word of 1, 2, 4 or 8 bytes, naturally aligned at both ends, is read at once; of a longer get each
 * byte may be read at another time.
 */
ANGARA_API angara_status_t angara_offload_get(angara_peer_h peer, angara_mr_h lmr, void *laddr,
                                              uint64_t rkey, uint64_t roffset, size_t length);

/** Most transfers of one angara_offload_batch(). */
#define ANGARA_BATCH_MAX 16

/** Directions of angara_offload_batch(). */
typedef enum { ANGARA_BATCH_PUT, ANGARA_BATCH_GET } angara_batch_op_t;

/** One transfer of a batch: the parameters of angara_offload_put() and angara_offload_get(). */
typedef struct {
    angara_mr_h lmr;
    void       *laddr; /**< only read by a put */
    uint64_t    rkey;
    uint64_t    roffset;
    size_t      length;
} angara_xfer_t;

/**
 * Post several offload puts or gets to one peer with one doorbell: the same as one call for each,
 * in this order, but what a call costs is paid once.
 * @param count     at most ANGARA_BATCH_MAX.
 * @param posted_p  how many, from the first on, were posted; written whatever the result is.
 * @return ANGARA_OK if all were; else why transfer number *posted_p was not, as of
 *         angara_offload_put(); ANGARA_ERR_INVALID for a wrong @a op or @a count.
 */
ANGARA_API angara_status_t angara_offload_batch(angara_peer_h peer, angara_batch_op_t op,
                                                const angara_xfer_t *xfers, unsigned count,
                                                unsigned *posted_p);

/**
 * Atomic on a remote word.
 * @param width    4 or 8 bytes; roffset must lie on a multiple of it in the target's memory.
 * @param operand  operand; the new value of ANGARA_ATOMIC_SWAP and _CSWAP.
 * @param compare  expected value of ANGARA_ATOMIC_CSWAP.
 * @param lmr      region of @a result, NULL for a non-fetching operation.
 * @param result   where the old value (width bytes) lands before a later marker returns, or NULL.
 */
ANGARA_API angara_status_t angara_atomic(angara_peer_h peer, angara_atomic_op_t op, unsigned width,
                                         uint64_t operand, uint64_t compare, uint64_t rkey,
                                         uint64_t roffset, angara_mr_h lmr, void *result);

/**
 * Offload put at once, by plain stores, where the region is mapped into this process and nothing is
 * queued before it. It has been performed when the call returns: no marker is needed, but a full
 * fence (angara_peer_settled()) where what follows must be behind it. Calls of these three kinds
 * are not ordered among each other, as the CPU's loads and stores aren't.
 * @return 1: performed. 0: nothing was done, post it; what is wrong with it is found out then.
 */
ANGARA_API int angara_mapped_put(angara_peer_h peer, const void *src, uint64_t rkey,
                                 uint64_t roffset, size_t length);

/** The same of a get. @a dst is any memory of the program's, registered or not, but no GPU's. */
ANGARA_API int angara_mapped_get(angara_peer_h peer, void *dst, uint64_t rkey, uint64_t roffset,
                                 size_t length);

/** The same of an atomic, with the parameters of angara_atomic(). @a result: the old value (width
 * bytes), or NULL. */
ANGARA_API int angara_mapped_atomic(angara_peer_h peer, angara_atomic_op_t op, unsigned width,
                                    uint64_t operand, uint64_t compare, uint64_t rkey,
                                    uint64_t roffset, void *result);

/**
 * Get at once by asking the peer's process, where nothing is queued before it and an answer within
 * a microsecond, or bytes of a long one, is expected and waited for: if the peer makes progress.
 * @param dst     any memory of the program's, registered or not, but no GPU's.
 * @param length  bytes: 0 and more than 40 KiB aren't for this call.
 * @return 1: performed. 0: nothing came, post it; the peer may read its memory for it all the same.
 *         Always 0 for a region that peers map, and for the own process: see angara_mapped_get().
 */
ANGARA_API int angara_asked_get(angara_peer_h peer, void *dst, uint64_t rkey, uint64_t roffset,
                                size_t length);

/**
 * Notify put: append a record of at most ANGARA_NOTIFY_MAX bytes to the peer's event ring and wake
 * the peer if it armed.
 * @return ANGARA_OK if the ring took it; ANGARA_ERR_NO_RESOURCE if it is full: try again later;
 *         ANGARA_ERR_INVALID for a longer one; ANGARA_ERR_PEER_DEAD.
 */
ANGARA_API angara_status_t angara_notify(angara_peer_h peer, const void *record, size_t length);

/** Wake an armed peer, see angara_pe_event_arm(). */
ANGARA_API void angara_wake(angara_peer_h peer);

/* ---- completion markers -------------------------------------------------------------------- */

/** A marker slot: the value that last arrived. Read with acquire semantics. */
typedef volatile uint64_t angara_marker_slot_t;

/**
 * Take a free marker slot. Its value may be any; the markers of its user must count up from there:
 * *slot + 1 for the first one, say, and 1 more for each next.
 * @return ANGARA_OK, ANGARA_ERR_NO_RESOURCE if all are in use.
 */
ANGARA_API angara_status_t angara_marker_slot_get(angara_pe_h pe, angara_marker_slot_t **slot_p);

/**
 * Give a slot back. It is reused only after every marker posted to it has arrived or can't any
 * more. Anything but a slot that was taken and not given back yet is logged and left alone.
 */
ANGARA_API void angara_marker_slot_put(angara_pe_h pe, angara_marker_slot_t *slot);

/**
 * Post a completion marker: a read-back from @a peer into @a slot. When *slot holds @a value, all
 * that this PE issued to the peer before the call, window writes included, has been performed
 * there, and the gets have landed here.
 * @param value   larger than what the slot held when taken, and than every value posted to it
 * since.
 * @return ANGARA_OK (posted, perhaps arrived); ANGARA_ERR_INVALID for another value, or what is no
 *         slot of this PE's that was taken; ANGARA_ERR_NO_RESOURCE if the ring is full, or while
 *         markers of another peer can still arrive in the slot; ANGARA_ERR_PAIR, _PEER_DEAD.
 */
ANGARA_API angara_status_t angara_marker(angara_peer_h peer, angara_marker_slot_t *slot,
                                         uint64_t value);

/**
 * The cheaper marker, sent to oneself: proves only that the sources of everything posted before, to
 * any destination, have been read. It says nothing about arrival (docs/nic-model.md).
 */
ANGARA_API angara_status_t angara_marker_self(angara_pe_h pe, angara_marker_slot_t *slot,
                                              uint64_t value);

#ifdef __cplusplus
}
#endif

#endif
