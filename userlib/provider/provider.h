/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The provider interface: what a port of libangara to a NIC (or another fabric) implements.
 *
 * A provider embeds the base objects below as the first member of its own and fills `ops`. The
 * public calls in src/api.c check their arguments, then go through `ops`: one indirect call, none
 * on the hot path (window puts are bound at connect, see angara_fast.h). A provider may therefore
 * assume:
 *   - pointers are not NULL, but that of data of no bytes; lengths don't wrap; enums and rights are
 *     known, widths are 4 or 8;
 *   - a window put has 1 to put_max bytes (a flagged one 0), offload operations at most
 * offload_max, inline ones at most inline_max, a notify put at most ANGARA_NOTIFY_MAX; a batch has
 * 1 to ANGARA_BATCH_MAX transfers; window puts and commits lie within the window, local buffers
 *     within their region, which is of the PE's domain; a PE's window isn't above window_max;
 *   - a marker goes to a slot that may take it;
 *   - peer_connect() gets an address that no living pair of the PE has, peer_disconnect() is the
 *     last, peer_reset() isn't called for a dead pair, close() only without PEs and regions;
 *   - the objects belong to this process (not to the parent of a fork);
 *   - calls on one PE are serialised.
 * It must itself: copy and check everything that comes from another process or the device, raise an
 * event and set the pair in error for a fault, write outputs only on success, and log an error
 * once. What each call promises, may wait for, and does in which state is in docs/nic-model.md,
 * "What each call keeps to"; where providers differ, it is said there and nowhere else.
 */
#ifndef ANG_PROVIDER_H
#define ANG_PROVIDER_H

#include <angara/angara.h>
#include <angara/angara_fast.h>
#include <angara/angara_watch.h>

#include "engine/desc.h"
#include "slots.h"
#include "src/fork.h"
#include "src/log.h"

typedef struct ang_provider_ops {
    const char *name;

    /* 1 if `device` (never NULL, "auto" included) names a device of this provider that is here. */
    int (*match)(const char *device);

    angara_status_t (*open)(const char *device, angara_domain_h *dom_p);
    angara_status_t (*close)(angara_domain_h dom);

    angara_status_t (*mr_register)(angara_domain_h dom, void *addr, size_t length, unsigned access,
                                   angara_mr_h *mr_p);
    angara_status_t (*mr_deregister)(angara_mr_h mr);
    /* See angara_mr_collect(). NULL: mr_deregister and mem_free are never ANGARA_ERR_BUSY. */
    unsigned (*mr_collect)(angara_domain_h dom);
    /* *mr->stale isn't 0: is that part another memory? NULL where no region has such a word. */
    int (*mr_is_stale)(angara_mr_h mr, uint64_t offset, uint64_t length);
    /* `at`: where, in place of what is there; or NULL. */
    angara_status_t (*mem_alloc)(angara_domain_h dom, void *at, size_t *length, unsigned access,
                                 void **addr_p, angara_mr_h *mr_p);
    angara_status_t (*mem_free)(angara_mr_h mr);

    /* The parameters are valid, and none of them is left to a default. */
    angara_status_t (*pe_create)(angara_domain_h dom, const angara_pe_params_t *params,
                                 angara_pe_h *pe_p);
    void (*pe_destroy)(angara_pe_h pe);
    angara_status_t (*pe_window_commit)(angara_pe_h pe, size_t offset, size_t length);
    unsigned (*pe_progress)(angara_pe_h pe);
    angara_status_t (*pe_event_poll)(angara_pe_h pe, angara_event_t *event);
    angara_status_t (*pe_event_fd)(angara_pe_h pe, int *fd_p);
    angara_status_t (*pe_event_arm)(angara_pe_h pe);
    void (*pe_event_disarm)(angara_pe_h pe);
    void (*pe_counters)(angara_pe_h pe, angara_counters_t *counters);

    angara_status_t (*is_reachable)(angara_domain_h dom, const angara_address_t *address);
    angara_status_t (*peer_connect)(angara_pe_h pe, const angara_address_t *address,
                                    angara_peer_h *peer_p);
    void (*peer_disconnect)(angara_peer_h peer);
    angara_status_t (*peer_status)(angara_peer_h peer);
    /* NULL: only markers tell. */
    int (*peer_settled)(angara_peer_h peer);
    /* NULL: it is nothing that a process would hurry. */
    int (*peer_hurry)(angara_peer_h peer);
    angara_status_t (*peer_reset)(angara_peer_h peer);
    /* As ang_gpu_set, of the peer's process. NULL where no GPU memory can be registered. */
    uint64_t (*peer_gpus)(angara_peer_h peer);

    angara_status_t (*put)(angara_peer_h peer, uint64_t offset, const void *src, size_t length);
    angara_status_t (*put_flag)(angara_peer_h peer, uint64_t offset, const void *src, size_t length,
                                uint64_t flag_offset, uint64_t flag);
    /*
     * A put, inline put, get or atomic: `desc` has all but what is the provider's (pair, reserved
     * fields: 0). `data`: bytes of an inline put; of an atomic, where in host memory its result
     * goes, for a provider that has it within the call; else NULL.
     */
    angara_status_t (*post)(angara_peer_h peer, ang_desc_t *desc, const void *data);
    /* Puts only, or gets only. */
    angara_status_t (*post_batch)(angara_peer_h peer, ang_op_t op, const ang_item_t *items,
                                  unsigned count, unsigned *posted_p);
    /*
     * Of the calls of these names. `desc` has what an atomic needs: atomic, width, rkey, roffset,
     * operand and compare; of no other field there is a value. NULL: peers' memory isn't mapped.
     */
    int (*mapped_put)(angara_peer_h peer, const void *src, uint64_t rkey, uint64_t roffset,
                      size_t length);
    int (*mapped_get)(angara_peer_h peer, void *dst, uint64_t rkey, uint64_t roffset,
                      size_t length);
    int (*asked_get)(angara_peer_h peer, void *dst, uint64_t rkey, uint64_t roffset, size_t length);
    int (*mapped_atomic)(angara_peer_h peer, const ang_desc_t *desc, uint64_t *old);
    angara_status_t (*notify)(angara_peer_h peer, const void *record, size_t length);
    void (*wake)(angara_peer_h peer);

    /* `slot`: number of a held one that may be posted to (slots.h); what is posted is noted after.
     */
    angara_status_t (*marker)(angara_peer_h peer, uint32_t slot, uint64_t value);
    angara_status_t (*marker_self)(angara_pe_h pe, uint32_t slot, uint64_t value);
    /* A slot is waited for: ang_slots_settle() of the pairs whose markers can't land any more. */
    void (*pe_settle)(angara_pe_h pe);
} ang_provider_ops_t;

/*
 * Base objects. Who writes a field: (p) the provider, before the call that makes the object
 * returns, and never again; (api) src/api.c, except where another is named. Who isn't named only
 * reads. Everything is read and written in calls, which the user serialises (per PE; registration:
 * not at all), so only what is marked atomic is.
 */
struct angara_domain {
    const ang_provider_ops_t *ops;   /* (p) */
    angara_attr_t             attr;  /* (p) what the domain can do, all fields */
    unsigned                  epoch; /* (p) ang_fork_epoch then */
    unsigned                  refs;  /* (api) PEs and regions alive; atomic */
};

struct angara_mr {
    angara_domain_h dom;       /* (p) */
    void           *addr;      /* (p) */
    size_t          length;    /* (p) */
    uint64_t        key;       /* (p) never 0 */
    unsigned        access;    /* (p) */
    int             allocated; /* (p) by mem_alloc */
    /* (p) Not 0 once the addresses may mean other memory; NULL: the region names addresses. */
    const volatile uint32_t *stale;
    uint32_t                 kind; /* (p) angara_mem_kind_t: of a GPU, or 0 */
    /* (p) also when its end was ANGARA_ERR_BUSY: set then. It doesn't count in dom->refs any more.
     */
    int owed;
};

/* What the user has asked of a pair, but for what was done on mapped memory: that is in `fast`. */
typedef struct {
    uint64_t puts, gets, bytes, atomics, markers, notifies;
    uint64_t refused; /* calls that found no resource, and are made again */
    uint64_t faults;  /* events of them that the user has got */
} ang_posted_t;

struct angara_pe {
    /* Must be first: angara_fast.h. (p), and &ang_awake in a forked child. */
    struct angara_pe_fast     fast;
    const ang_provider_ops_t *ops;         /* (p) */
    angara_domain_h           dom;         /* (p) */
    angara_address_t          address;     /* (p) */
    char                     *window;      /* (p) the own window */
    size_t                    window_size; /* (p) bytes that the user has */
    ang_slots_t               slots;       /* (p) makes and settles them, (api) all else */
    angara_peer_h             peers;       /* the list of pairs: ang_peer_link(), _unlink() */
    angara_watch_h            watches;     /* src/watch.c: counters that can be watched */
    angara_watch_h            watch_turn;  /* the same: whose turn it is; NULL: the first's */
    unsigned                  num_watches; /* the same */
    uint64_t                  watch_ns;    /* the same: when counters are copied next */
    uint64_t                  clock_ns; /* (p) of soft: its last look at the coarse clock, or 0 */
    ang_posted_t              gone;     /* (api) of peers that are no more */
};

struct angara_peer {
    /*
     * Must be first: angara_fast.h. (p), and once more when the pair is found dead (`window` is
     * NULL then, and no map is there: what is inline becomes a call, which says so) or in a forked
     * child: ang_peer_cut(). The maps are (p) also by other threads, while something is
     * queued.
     */
    struct angara_peer_fast   fast;
    const ang_provider_ops_t *ops;      /* ang_peer_init() */
    angara_pe_h               pe;       /* ang_peer_init() */
    ang_posted_t              posted;   /* (api) */
    angara_address_t          address;  /* ang_peer_init() */
    void                     *user;     /* (api) for whoever uses the library */
    unsigned                  refs;     /* (api) connects minus disconnects; 0: given up */
    angara_watch_h            watch;    /* (api) of `posted` */
    char                      name[64]; /* ang_peer_init() */
    angara_peer_h             next;     /* ang_peer_link(), _unlink() */
    ang_fork_t                fork;     /* the same */
};

/* ---- base.c: what providers do alike with them ----------------------------------------------- */

/* All but `fast`. `pid`: of its process, for the name. */
void ang_peer_init(angara_peer_h peer, angara_pe_h pe, const angara_address_t *address, int pid);
/*
 * Put it on the PE's list, take it off. While it is there, a forked child finds no window in `fast`
 * and nobody asleep: what is inline becomes a call there, which says ANGARA_ERR_FORKED.
 */
void ang_peer_link(angara_peer_h peer);
/* Inline code forgets what it knows of mapped regions. */
static inline void ang_peer_unmap(angara_peer_h peer)
{
    memset(peer->fast.maps, 0, sizeof(peer->fast.maps));
}
/* From here on nothing of the peer's is touched by inline code, which calls instead. */
void ang_peer_cut(angara_peer_h peer);
void ang_peer_unlink(angara_peer_h peer);
/* The pair of the own PE with that one that somebody has connected; NULL: a stranger. */
angara_peer_h ang_peer_find(angara_pe_h pe, const angara_pe_id_t *id);
/* Name of the PE of that address. */
angara_pe_id_t ang_address_id(const angara_address_t *address);
/* A word for `fast.armed`: nobody sleeps, or waking isn't the sender's business; and for
 * `fast.asked`: nobody asks. */
extern const uint32_t ang_awake;
extern const uint64_t ang_unasked; /* the same of `fast.watched` */
/* Fill in pe->address but for the locator. */
void ang_address_init(angara_pe_h pe, unsigned provider, uint32_t index, uint32_t generation);
/* Is it the own PE's address? */
int ang_address_is_own(angara_pe_h pe, const angara_address_t *address);
/*
 * Is it an address of this provider's and of our version? What else it must be is the provider's to
 * check. `level`: how loud to say why not; a wrong version is an error, told once.
 */
angara_status_t ang_address_check(const angara_address_t *address, unsigned provider,
                                  ang_log_level_t level);

/* [offset, offset + length) lies within [0, size), without wrapping. */
static inline int ang_in_bounds(uint64_t offset, uint64_t length, uint64_t size)
{
    return offset <= size && length <= size - offset;
}

/* Counts forks in the chain of ancestors: an object of another epoch isn't ours. */
extern unsigned ang_fork_epoch;

extern const ang_provider_ops_t ang_nic_provider;
extern const ang_provider_ops_t ang_soft_provider;

#endif
