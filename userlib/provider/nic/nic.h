/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private to the nic provider: objects of /dev/angara<N> and /dev/angara_memreg, and who may touch
 * what. The device and the kernel are trusted; what they say is checked as far as bugs go, and no
 * wait is without bound. After setting up, nothing here makes a system call but what is named as
 * slow: waits that take long, registration, arming after an interrupt.
 *
 * Invariants
 *   Indices run freely (the descriptors' put count with 64 bits, everything else with 32) and are
 *   reduced to a ring's size only to address it. Sizes of rings are powers of two.
 *   Command ring   cmd_prod - status.cmd_cons descriptors are the NIC's, at most cmd_entries. Full
 *                  is NO_RESOURCE. Descriptors, fence, then doorbell.cmd_prod.
 *   Put ring       pio_prod - status.pio_cons granules are the NIC's, at most pio_granules. Full is
 *                  NO_RESOURCE. A put doesn't wrap: a pad goes before. All of a put but the first
 *                  word, fence, the first word, fence: the NIC takes the whole put or nothing.
 *   Order between  a descriptor's pio_prod makes it wait for the puts written before it. Nothing
 *   the rings      does the reverse, as the model doesn't promise it.
 *   Event ring     records [event_cons, event_seen) have been looked at but not delivered. Looking
 *                  (nic_events_look) is what sets pairs in error, so that a pair's status is known
 *                  before its event is polled; delivering gives the record back to the NIC.
 *   Pairs          an entry of the table is set by ANGARA_OP_PAIR, which waits for what was posted
 *                  to the entry. A dropped peer's entry is set to the own PE, and the wait for that
 *                  is the end of the peer's operations; then no event about it can come any more.
 *   Markers        slots.h. The words are the NIC's, mapped for reading. A fault of the pair,
 *                  noticed here, means that its markers have landed or never will.
 *   Own PE         operations on it are copies by the CPU: performed within the call, or in pieces
 *                  (own.c). What the CPU can't do (a fault, memory that was unmapped) goes to the
 *                  NIC, and then all that follows until a reset, so that the order stays.
 *   Locks          domain.pes_lock, then pe.own_lock, then domain.lock.
 */
#ifndef NIC_H
#define NIC_H

#include "barrier.h"
#include "provider/provider.h"
#include "src/fork.h"

#include <misc/angara.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* What the NIC shares with programs is read and written as it is. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the NIC's formats are little endian");

#define NIC_PROVIDER_ID  2
#define NIC_PAGE         4096u
#define NIC_SELF_PAIR    0u /* entry of the pair table: the own PE, for self markers */
#define NIC_MR_BUCKETS   4096u
#define NIC_BOUND_NS     10000000000ull /* longest wait for the device: twice its own time-outs */

#define NIC_LIKELY(_x)   __builtin_expect(!!(_x), 1)
#define NIC_UNLIKELY(_x) __builtin_expect(!!(_x), 0)

/* ---- device.c: files and calls of the kernel modules ----------------------------------------- */

#define NIC_MEMREG "/dev/angara_memreg"

/* Does `device` name one of this provider's? "auto": one that is there and may be used. */
int nic_match(const char *device);
/* Open the NIC of that name and shake hands. */
angara_status_t nic_device_open(const char *device, int *fd_p, struct angara_ioc_info *info);
angara_status_t nic_memreg_open(int *fd_p);
/* An ioctl, repeated after signals. @return 0 or the errno. */
int nic_ioctl(int fd, unsigned long request, void *arg);
/* Status of an errno that has no meaning of its own for the call; logs it. */
angara_status_t nic_error(int error, const char *what);
/* ENOMEM of something that pins `length` bytes: the limit on locked memory, or no memory. */
angara_status_t nic_no_memory(const char *what, size_t length);
/* calloc() that says so when it fails. */
void *nic_calloc(size_t count, size_t size);
/* A shared mapping that children don't inherit; NULL after saying why not. */
void *nic_map(int fd, uint64_t offset, size_t size, int prot, const char *what);

/* ---- domain.c ---------------------------------------------------------------------- */

typedef struct nic_mr {
    struct angara_mr base;
    uint32_t         handle;
    struct nic_mr   *next; /* in its bucket */
} nic_mr_t;

typedef struct nic_domain {
    struct angara_domain     base;
    ang_fork_t               fork;
    int                      fd;
    int                      memreg_fd;
    struct angara_ioc_info   info;
    const volatile uint32_t *stale; /* by handle */
    pthread_rwlock_t         lock;  /* the buckets; held for reading by copies of the CPU's */
    nic_mr_t                *buckets[NIC_MR_BUCKETS];
    pthread_mutex_t          pes_lock;
    struct nic_pe           *pes; /* for who deregisters */
} nic_domain_t;

angara_status_t nic_domain_open(const char *device, angara_domain_h *dom_p);
angara_status_t nic_domain_close(angara_domain_h dom);

angara_status_t nic_mr_register(angara_domain_h dom, void *addr, size_t length, unsigned access,
                                angara_mr_h *mr_p);
angara_status_t nic_mr_deregister(angara_mr_h mr);
int             nic_mr_is_stale(angara_mr_h mr, uint64_t offset, uint64_t length);
angara_status_t nic_mem_alloc(angara_domain_h dom, void *at, size_t *length, unsigned access,
                              void **addr_p, angara_mr_h *mr_p);
angara_status_t nic_mem_free(angara_mr_h mr);
/*
 * Address of [offset, offset + length) of a region that grants `access` and whose memory is as it
 * was registered; NULL if anything is wrong. The caller holds the domain's lock.
 */
char *nic_mr_address(nic_domain_t *dom, uint64_t key, uint64_t offset, uint64_t length,
                     unsigned access);

/* ---- PEs and pairs --------------------------------------------------------------------------- */

typedef struct nic_peer nic_peer_t;
typedef struct nic_own  nic_own_t;

typedef struct nic_pe {
    struct angara_pe base;
    ang_fork_t       fork;
    nic_domain_t    *dom;
    struct nic_pe   *next; /* of the domain's */
    int              fd;
    int              event_fd; /* epoll around fd, for who sleeps; -1 if nobody has asked for it */
    int              dead;     /* the device has gone, or doesn't want this PE any more */

    /* The mappings, the window in base.window. */
    volatile struct angara_doorbell  *doorbell;
    const struct angara_status       *status;
    struct angara_desc               *cmd;
    const struct angara_event_record *event;
    angara_marker_slot_t             *markers; /* the words of base.slots */
    char                             *pio;

    uint64_t  wake_offset;  /* of a word behind the window: a flagged put there only wakes */
    uint64_t *window_there; /* a bit for each committed page */

    /* Rings: masks and indices. *_cons are copies of what the status said last. */
    uint32_t cmd_mask, event_mask, pio_granules;
    uint32_t cmd_prod, cmd_cons;
    uint64_t pio_prod; /* granules */
    uint32_t pio_cons;
    uint32_t event_cons, event_seen;
    uint32_t lost_seen, lost_told; /* status.event_lost: known, delivered as OVERFLOW */
    uint32_t token;
    uint32_t arm;
    uint64_t irqs_read;

    /* Operations on the own PE, see own.c: a ring of as many as the command ring has. */
    int             by_device; /* the NIC performs them */
    pthread_mutex_t own_lock;
    nic_own_t      *own;
    uint32_t        own_head, own_count;

    nic_peer_t      **pairs; /* by entry of the pair table */
    uint32_t          pair_hint;
    angara_counters_t counters; /* what the device doesn't count */
} nic_pe_t;

struct nic_peer {
    struct angara_peer base;
    uint32_t           pair;
    uint32_t           events_from; /* records of before are about somebody else */
    angara_status_t    error;       /* OK, PAIR or PEER_DEAD */
    int                is_self;
    int                down_told; /* PEER_DOWN was delivered, or nobody is to hear it */
};

static inline nic_domain_t *nic_domain(angara_domain_h dom)
{
    return (nic_domain_t *)dom;
}

static inline nic_pe_t *nic_pe(angara_pe_h pe)
{
    return (nic_pe_t *)pe;
}

static inline nic_peer_t *nic_peer(angara_peer_h peer)
{
    return (nic_peer_t *)peer;
}

static inline nic_pe_t *nic_peer_pe(const nic_peer_t *peer)
{
    return (nic_pe_t *)peer->base.pe;
}

/* ---- ring.c: posting, and waiting for the device --------------------------------------------- */

/* Room for so many descriptors? OK, NO_RESOURCE, or PEER_DEAD for a dead device. */
angara_status_t nic_cmd_room(nic_pe_t *pe, uint32_t count);
/* Write the descriptor `ahead` places behind those posted; there is room. `data`: see nic_post().
 */
void nic_cmd_write(nic_pe_t *pe, uint32_t ahead, const ang_desc_t *desc, const void *data);
/* Hand `count` written descriptors over. */
void nic_cmd_ring(nic_pe_t *pe, uint32_t count);
/* Room, write, ring. */
angara_status_t nic_cmd_post(nic_pe_t *pe, const ang_desc_t *desc, const void *data);
/* The same, waiting for room. */
angara_status_t nic_cmd_post_patient(nic_pe_t *pe, const ang_desc_t *desc);
/* Wait until all that was posted has been fetched: entries of the pair table are set then. */
angara_status_t nic_cmd_wait(nic_pe_t *pe);
/* Write a put into the ring. `head` has no valid, length and data. */
angara_status_t nic_put_write(nic_pe_t *pe, const struct angara_put *head, const void *src,
                              size_t length);

/* for (nic_wait_t w = {0}; !condition;) { if (nic_wait_turn(pe, &w) != OK) ... } */
typedef struct {
    uint64_t deadline;
    unsigned turns;
} nic_wait_t;

/* ANGARA_OK: look again; PEER_DEAD: the device is dead; UNREACHABLE: it takes too long. */
angara_status_t nic_wait_turn(nic_pe_t *pe, nic_wait_t *wait);

/* ---- pe.c ------------------------------------------------------------------------------------ */

angara_status_t nic_pe_create(angara_domain_h dom, const angara_pe_params_t *params,
                              angara_pe_h *pe_p);
void            nic_pe_destroy(angara_pe_h pe);
angara_status_t nic_pe_window_commit(angara_pe_h pe, size_t offset, size_t length);
/* Is [offset, offset + length) of the own window committed? */
int nic_window_there(const nic_pe_t *pe, uint64_t offset, uint64_t length);
/* The device doesn't serve the PE any more: see to it that nobody waits for it. */
void nic_pe_die(nic_pe_t *pe);

static inline int nic_pe_is_running(const nic_pe_t *pe)
{
    return nic_load(&pe->status->state) == ANGARA_PE_RUNNING;
}

/* ---- event.c --------------------------------------------------------------------------------- */

/* Look at the records that have come. @return how many */
unsigned        nic_events_look(nic_pe_t *pe);
unsigned        nic_pe_progress(angara_pe_h pe);
void            nic_pe_settle(angara_pe_h pe);
angara_status_t nic_event_poll(angara_pe_h pe, angara_event_t *event);
angara_status_t nic_event_fd(angara_pe_h pe, int *fd_p);
angara_status_t nic_event_arm(angara_pe_h pe);
void            nic_event_disarm(angara_pe_h pe);
angara_status_t nic_notify(angara_peer_h peer, const void *record, size_t length);
void            nic_wake(angara_peer_h peer);

/* ---- peer.c ---------------------------------------------------------------------------------- */

angara_status_t nic_is_reachable(angara_domain_h dom, const angara_address_t *address);
angara_status_t nic_peer_connect(angara_pe_h pe, const angara_address_t *address,
                                 angara_peer_h *peer_p);
void            nic_peer_disconnect(angara_peer_h peer);
angara_status_t nic_peer_status(angara_peer_h peer);
angara_status_t nic_peer_reset(angara_peer_h peer);
/* End all that is under way to all peers, and free them. */
void nic_peers_destroy(nic_pe_t *pe);
/* Fill in what the address has besides the PE's name. */
void nic_address_seal(angara_address_t *address, size_t window_size);
/* Set an entry of the pair table, and wait until it is. */
angara_status_t nic_pair_set(nic_pe_t *pe, uint32_t pair, const angara_address_t *address);

/* ---- ops.c, self.c, own.c -------------------------------------------------------------------- */

angara_status_t nic_put(angara_peer_h peer, uint64_t offset, const void *src, size_t length);
angara_status_t nic_put_flag(angara_peer_h peer, uint64_t offset, const void *src, size_t length,
                             uint64_t flag_offset, uint64_t flag);
angara_status_t nic_post(angara_peer_h peer, ang_desc_t *desc, const void *data);
angara_status_t nic_post_batch(angara_peer_h peer, ang_op_t op, const ang_item_t *items,
                               unsigned count, unsigned *posted_p);
angara_status_t nic_marker(angara_peer_h peer, uint32_t slot, uint64_t value);
angara_status_t nic_marker_self(angara_pe_h pe, uint32_t slot, uint64_t value);

/*
 * Perform it on the own PE by the CPU: bytes *done to `end`, or all of an atomic. @return 1 if
 * done, 0 if the NIC has to do it. `desc` is as it would be posted; `data` are the bytes of an
 * inline put.
 */
int nic_self_perform(nic_pe_t *pe, const ang_desc_t *desc, const void *data, uint64_t *done,
                     uint64_t end);
/* Could a put or get of regions be performed so just now? */
int nic_self_is_sound(nic_pe_t *pe, const ang_desc_t *desc);
/* The operation that is a marker to that entry of the own PE's. */
uint8_t nic_self_marker_op(const nic_pe_t *pe, uint32_t pair);
/* A window put; flag NULL: none. */
int nic_self_put(nic_pe_t *pe, uint64_t offset, const void *src, size_t length,
                 uint64_t flag_offset, const uint64_t *flag);

angara_status_t nic_own_init(nic_pe_t *pe);
void            nic_own_cleanup(nic_pe_t *pe);
/*
 * Post to the own PE, copying at most *budget bytes here. @return ANGARA_OK if performed or queued,
 * ANGARA_ERR_NO_RESOURCE, or ANGARA_ERR_UNSUPPORTED if the NIC has to do it.
 */
angara_status_t nic_own_post(nic_pe_t *pe, const ang_desc_t *desc, const void *data,
                             uint64_t *budget);
/* Queue it, because something is queued. @return ANGARA_OK or ANGARA_ERR_NO_RESOURCE. */
angara_status_t nic_own_append(nic_pe_t *pe, const ang_desc_t *desc, const void *data);
/* One turn. @return how many steps were made. */
unsigned nic_own_progress(nic_pe_t *pe);
/* Drop what is queued to the own pair; `all`: the PE's self markers, too. */
void nic_own_drop(nic_pe_t *pe, int all);
/* Let it end. */
void nic_own_finish(nic_pe_t *pe);
/* A region is about to go: let end what has it as its local end. Of any thread. */
void nic_own_end_local(nic_domain_t *dom, uint64_t key);

/* Is the own PE the NIC's: does it perform what is posted to it? */
static inline int nic_self_is_devices(const nic_pe_t *pe)
{
    return __atomic_load_n(&pe->by_device, __ATOMIC_RELAXED);
}

static inline void nic_self_set_devices(nic_pe_t *pe, int is)
{
    __atomic_store_n(&pe->by_device, is, __ATOMIC_RELAXED);
}

/* Is something queued? */
static inline int nic_own_waits(const nic_pe_t *pe)
{
    return NIC_UNLIKELY(__atomic_load_n(&pe->own_count, __ATOMIC_ACQUIRE) != 0);
}

#endif
