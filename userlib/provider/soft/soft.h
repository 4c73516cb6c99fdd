/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private to the soft provider: objects, and who may touch what. What is shared is in shared.h.
 *
 * Each PE and each domain has one memfd segment, created by its owner and mapped by the peers of
 * the node through /proc/PID/fd. Nothing has a name in a file system, so SIGKILL leaves nothing
 * behind; the files are sealed against shrinking and memory is allocated before anybody is told of
 * it, so a mapping never raises SIGBUS. Inside a node the fabric trusts its user id: the checks
 * catch errors.
 */
#ifndef SOFT_H
#define SOFT_H

#include "batch.h"
#include "engine/engine.h"
#include "gpu/gpu.h"
#include "gpu_pin.h"
#include "pace.h"
#include "provider/provider.h"
#include "record_ring.h"
#include "shared.h"
#include "src/fork.h"
#include "src/log.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

/* ---- segment.c: memfds ----------------------------------------------------------------------- */

typedef struct {
    void  *base;
    size_t size;
    int    fd;     /* -1 for a mapping of somebody else's */
    dev_t  device; /* of such a one: which file it is */
    ino_t  inode;
} soft_segment_t;

/*
 * Open descriptor `fd` of process `pid` again, if it is a file of that type (S_IFREG, S_IFIFO):
 * opening anything else could have side effects. @return the descriptor, or -1 with errno.
 */
int soft_open_of(pid_t pid, int fd, mode_t type, int flags, struct stat *info);

/*
 * Create a sealed memfd of `size` bytes of address space, at that address if it isn't NULL, in
 * place of what is there; no memory is allocated yet.
 */
angara_status_t soft_segment_create(const char *name, void *at, size_t size, soft_segment_t *seg);
/* Allocate memory for a part, so that touching it can't fail. */
angara_status_t soft_segment_commit(soft_segment_t *seg, size_t offset, size_t length);
/* The same for what one can do without, if there is plenty of memory. @return done? */
int soft_segment_grow(soft_segment_t *seg, size_t offset, size_t length);
/*
 * Map file `fd` of process `pid`, which must be a sealed memfd of at least min_size bytes. `level`:
 * how loud to say why not.
 */
angara_status_t soft_segment_open(pid_t pid, int fd, size_t min_size, ang_log_level_t level,
                                  soft_segment_t *seg);
/* Is descriptor `fd` of the process still the file that was mapped? 1 if it can't be looked at. */
int  soft_segment_is(pid_t pid, int fd, const soft_segment_t *seg);
void soft_segment_close(soft_segment_t *seg);
/* In a forked child: close the descriptor. */
void soft_segment_forget(soft_segment_t *seg);

/* ---- process.c: identity of processes -------------------------------------------------------- */

/* Identity of this process as addresses carry it; refreshed after fork. */
typedef struct {
    pid_t    pid;
    uint64_t start_time; /* field 22 of /proc/PID/stat */
    uint64_t pid_ns;     /* inode of the PID namespace */
    uint64_t user_ns;    /* the same of the user namespace; 0: unknown */
    uint64_t host;       /* from the kernel's boot id */
    int      membarrier; /* registered for the global expedited membarrier */
} soft_process_t;

angara_status_t soft_process_self(soft_process_t *self);
/* Is there such a process, with a thread that runs? Its start time tells it from a later one. */
typedef enum { SOFT_ALIVE, SOFT_GONE, SOFT_UNKNOWN /* can't look; errno tells why */ } soft_life_t;
soft_life_t soft_process_look(pid_t pid, uint64_t *start_time);

/* Has it been stopped: by a signal, a debugger, or the freezer of its cgroup (version 2)? */
int soft_process_stopped(pid_t pid);

/* What to do about a system call that failed with that errno: ". ..." for a message, or "". */
const char *soft_cure(int error);

/* Bytes of memory that this process may still get, as far as the kernel tells. */
uint64_t soft_memory_available(void);
/*
 * A thread other than the main one, whose end takes memory and descriptors out of reach under the
 * process's own number. @return its number, never `except`; or -1 with errno.
 */
pid_t soft_process_task(pid_t pid, pid_t except);
/* One word that names this process and its program; 0 if /proc can't be read now. */
uint64_t soft_owner(void);
/* Number of the process of that word. */
pid_t soft_owner_pid(uint64_t owner);
/*
 * Is the process of that word alive, and hasn't it gone over to another program by exec? 1 also
 * where that can't be told: what can't be looked at, or two marks (of 65535) that are the same.
 */
int soft_owner_alive(uint64_t owner);
/* The same where only the word's low bits, 38 at least, are known. */
int soft_owner_part_alive(uint64_t part, unsigned bits);
/* Random bytes of the kernel's. */
angara_status_t soft_random(void *bytes, size_t size);
/* Make all CPUs that run registered processes execute a full barrier. */
void soft_membarrier(void);

/* ---- wait.c: bounded waiting for another process --------------------------------------------- */

typedef struct {
    unsigned turns;
    unsigned sleep_ns; /* next one; 0: never */
    uint64_t waited_ns;
    uint64_t looked_ns; /* at the clock; 0: nothing slept yet */
    int      said;
} soft_wait_t;

void soft_wait_begin(soft_wait_t *wait);
/* What is waited for is so old already (CLOCK_MONOTONIC): a wait that other calls have begun. */
void soft_wait_since(soft_wait_t *wait, uint64_t since_ns);
/* Only to look: the bound is reached. */
void soft_wait_never(soft_wait_t *wait);
/*
 * Call between looks at what process `pid` has to do (`what`, for a message). @return 0 if the
 * bound is reached. One wait may be for several processes.
 */
int soft_wait_turn(soft_wait_t *wait, pid_t pid, const char *what);
/* Has it come so far that looking whether the process lives costs little against it? */
int soft_wait_is_long(const soft_wait_t *wait);

/* ---- remote_process.c: another process, shared by all pairs with PEs of it ------------------- */

#define SOFT_PIPES 16 /* of a process that are kept open for waking it */

typedef struct {
    uint64_t inode;
    int      here; /* -1: none */
} soft_pipe_t;

typedef struct soft_imports soft_imports_t;

typedef struct soft_remote_process {
    ang_fork_t                  fork;
    struct soft_remote_process *next;
    soft_imports_t             *imports; /* GPU memory of it that is mapped: gpu_import.c's */
    unsigned                    refs;
    pid_t                       pid;
    uint64_t                    start_time;
    pid_t                       task;  /* see soft_remote_process_task() */
    int                         pidfd; /* -1: a kernel or a profile without them */
    soft_pipe_t                 pipes[SOFT_PIPES];
    unsigned                    next_pipe; /* whose place the next one takes */
} soft_remote_process_t;

/* The process of that number and start time; ANGARA_ERR_PEER_DEAD if it isn't that one. */
angara_status_t soft_remote_process_get(pid_t pid, uint64_t start_time,
                                        soft_remote_process_t **process_p);
void            soft_remote_process_put(soft_remote_process_t *process);
/* Gone, as far as the kernel says right now. */
int soft_remote_process_dead(const soft_remote_process_t *process);
/* Choose another thread if the one that names it has ended: the number may be given away. */
void soft_remote_process_check_task(soft_remote_process_t *process);
/* The thread that named it to process_vm_* has ended. Is there another? Else errno is ESRCH. */
int soft_remote_process_other_task(soft_remote_process_t *process);

/* The thread that process_vm_* names it by. */
static inline pid_t soft_remote_process_task(const soft_remote_process_t *process)
{
    return __atomic_load_n(&process->task, __ATOMIC_RELAXED);
}

struct soft_pe;
typedef struct soft_remote_domain soft_remote_domain_t;

/* ---- remote.c: another process's PE as this one maps it -------------------------------------- */

typedef struct {
    angara_address_t       address;
    soft_remote_process_t *process; /* NULL once detached */
    int                    same_process;
    uint64_t               next_check_ns; /* of soft_remote_reach() */
    soft_segment_t         pe_map;
    soft_pe_seg_t         *seg;
    uint32_t               events; /* checked copies of the peer's sizes */
    uint64_t               window_size;
    soft_layout_t          layout;
    soft_remote_domain_t  *domain; /* NULL: detached, or opened without */
    soft_domain_seg_t     *dom;    /* copies of the domain's */
    soft_hazard_t         *hazard;
    uint32_t               mr_max;
} soft_remote_t;

/* `pe`: who is to access its domain, or NULL if nobody is. */
angara_status_t soft_remote_open(const angara_address_t *address, struct soft_pe *pe,
                                 soft_remote_t *remote);
void            soft_remote_close(soft_remote_t *remote);
/* It is gone: give back all but the PE's mapping, which plain stores may still go to. */
void soft_remote_detach(soft_remote_t *remote);
/* Gone, as far as the kernel says right now: never of the own process. */
int soft_remote_dead(const soft_remote_t *remote);
/* Has it gone over to another program? exec leaves pid and start time, but not descriptors. */
int soft_remote_replaced(const soft_remote_t *remote);
/*
 * Is the process number still the peer's? Asked before each access that names the process by it,
 * and looked at every ANGARA_PEER_CHECK milliseconds. @return 0 with errno ESRCH if not.
 */
int soft_remote_reach(soft_remote_t *remote);
/* Write a byte to the pipe of that inode behind `fd` of the remote process. @return done? */
int soft_remote_poke(soft_remote_t *remote, int fd, uint64_t inode);
/*
 * Open that pipe now, if it is the process's first and a descriptor is free, so that poking it
 * needs none later.
 */
void soft_remote_poke_prepare(soft_remote_t *remote, int fd, uint64_t inode);

/* ---- remote_domain.c: another process's domain, and the regions in it that a PE has mapped ----
 */

#define SOFT_FLIGHTS 16 /* operations of a PE with a domain that fly at once */

struct soft_remote_domain {
    soft_remote_domain_t  *next; /* of those that the PE accesses */
    unsigned               refs; /* its pairs with PEs of the domain */
    struct soft_pe        *pe;
    soft_remote_process_t *process; /* held by the pairs */
    soft_segment_t         map;
    soft_domain_seg_t     *seg;
    uint32_t               mr_max; /* checked copy */
    soft_hazard_t         *hazard;
    uint32_t               batches;       /* so far */
    uint64_t               next_check_ns; /* requester.c's */
    /* Of operations that fly; NULL: not claimed yet. Those with key 0 are free. */
    soft_hazard_t *flights[SOFT_FLIGHTS];
};

/*
 * The domain behind that descriptor of the process, with a hazard, for whoever isn't a PE; the
 * process stays held by the caller. `level`: how loud to say why it can't be opened.
 */
angara_status_t soft_remote_domain_open(soft_remote_process_t *process, int fd,
                                        ang_log_level_t level, soft_remote_domain_t **domain_p);
void            soft_remote_domain_close(soft_remote_domain_t *domain);
angara_status_t soft_remote_domain_get(struct soft_pe *pe, const soft_remote_t *remote,
                                       soft_remote_domain_t **domain_p);
void            soft_remote_domain_put(soft_remote_domain_t *domain);
/*
 * A hazard more, which holds region `key` from here on, for an operation that outlives its call;
 * the caller must look again whether the region is there. Free again when its key is set to 0.
 * NULL: there is none.
 */
soft_hazard_t *soft_remote_domain_hold(soft_remote_domain_t *domain, uint64_t key);

#define SOFT_MAPS        1024 /* mappings of peers' regions that a PE keeps */
#define SOFT_MAP_BUCKETS 1024

typedef struct soft_map {
    uint64_t              key;
    soft_remote_domain_t *domain;
    char                 *base; /* of the region */
    uint64_t              length;
    uint32_t              access;
    struct soft_map      *next; /* of its bucket */
    int                   used; /* since the last look for one to give up */
    soft_segment_t        seg;
} soft_map_t;

/* A hash by key and domain. */
typedef struct {
    soft_map_t *buckets[SOFT_MAP_BUCKETS];
    soft_map_t *places[SOFT_MAPS];
    unsigned    count;
    unsigned    hand;     /* where the next look for one to give up begins */
    uint64_t    retry_ns; /* no other is made before that */
    int         refused;  /* once: told */
} soft_maps_t;

static inline soft_map_t **soft_maps_bucket(soft_maps_t *maps, uint64_t key)
{
    return &maps->buckets[(key >> SOFT_KEY_INDEX_BITS) % SOFT_MAP_BUCKETS];
}

/* NULL: the region isn't mapped. */
static inline soft_map_t *soft_maps_find(soft_maps_t *maps, const soft_remote_domain_t *domain,
                                         uint64_t key)
{
    for (soft_map_t *map = *soft_maps_bucket(maps, key); map != NULL; map = map->next) {
        if (__builtin_expect(map->key == key && map->domain == domain, 1)) {
            map->used = 1;
            return map;
        }
    }
    return NULL;
}

/*
 * Map a region whose entry the hazard holds. @return ANGARA_ERR_NO_RESOURCE if that can't be done
 * now; another error is one of the access.
 */
angara_status_t soft_maps_add(soft_maps_t *maps, soft_remote_domain_t *domain, uint64_t key,
                              const soft_mr_entry_t *entry, char **base_p);
/* Drop mappings of a domain; those of regions that are gone. */
void soft_maps_drop(soft_maps_t *maps, const soft_remote_domain_t *domain);
void soft_maps_trim(soft_maps_t *maps);

/* ---- domain.c -------------------------------------------------------------------------------- */

typedef struct soft_mr {
    struct angara_mr base;
    ang_fork_t       fork; /* of mem_alloc */
    uint32_t         index;
    soft_segment_t   seg;    /* of mem_alloc; fd -1 and base NULL otherwise */
    uint32_t         share;  /* of GPU memory: its allocation's place in the table, or none; */
    uint64_t         id;     /*   which allocation; */
    uint64_t         offset; /*   where in it the region begins */
    struct soft_mr  *next_owed;
    struct soft_mr **owed_link;
} soft_mr_t;

typedef struct soft_domain {
    struct angara_domain base;
    ang_fork_t           fork;
    pthread_mutex_t      lock; /* entries, free list */
    soft_segment_t       seg;
    soft_domain_seg_t   *shared;
    uint32_t             mr_max;
    uint32_t             mr_used;   /* entries ever used */
    uint32_t             committed; /* entries with memory */
    uint32_t            *free_list;
    uint32_t             num_free;
    uint32_t             free_size;
    uint64_t             random;
    soft_mr_t           *owed; /* under `lock` */
    /* Value of a hazard that has been waited for in vain: it isn't waited for again. */
    uint64_t *stuck;
} soft_domain_t;

angara_status_t soft_domain_open(const char *device, angara_domain_h *dom_p);
angara_status_t soft_domain_close(angara_domain_h dom);
angara_status_t soft_mr_register(angara_domain_h dom, void *addr, size_t length, unsigned access,
                                 angara_mr_h *mr_p);
angara_status_t soft_mr_deregister(angara_mr_h mr);
int             soft_mr_is_stale(angara_mr_h mr, uint64_t offset, uint64_t length);
unsigned        soft_mr_collect(angara_domain_h dom);
angara_status_t soft_mem_alloc(angara_domain_h dom, void *at, size_t *length, unsigned access,
                               void **addr_p, angara_mr_h *mr_p);
angara_status_t soft_mem_free(angara_mr_h mr);

/*
 * Check a key against a table and give the address of [offset, offset + length). For the own table
 * and for a peer's alike; `entry_p` may be NULL.
 */
angara_status_t soft_mr_check(const soft_domain_seg_t *dom, uint32_t mr_max, uint64_t key,
                              uint64_t offset, uint64_t length, unsigned access, uint64_t *addr_p,
                              const soft_mr_entry_t **entry_p);

/* ---- pe.c, event.c, peer.c, ops.c, now.c ----------------------------------------------------- */

/* GPU memory at the own end of the operation whose ends were resolved last; behind the engine's
 * lock. */
typedef struct {
    uint64_t      addr; /* 0: mem isn't all that the operation may touch */
    ang_gpu_mem_t mem;
} soft_near_t;

typedef struct soft_peer soft_peer_t;

/* Does the thread that makes a PE's progress share its processor? See joint.c. */
typedef struct {
    uint64_t looked_ns;
    long     switches; /* that it had been made to by then, */
    pid_t    thread;   /*   that one: a guest may look, too */
    int      is_so;
} soft_crowd_t;

typedef struct soft_pe {
    struct angara_pe base;
    ang_fork_t       fork;
    soft_domain_t   *dom;
    ang_engine_t     engine;
    ang_pair_t       self_pair; /* of self markers only */
    soft_segment_t   segment;
    soft_pe_seg_t   *seg;
    soft_layout_t    layout;

    uint64_t              owner;   /* soft_owner() */
    soft_remote_domain_t *domains; /* that its pairs access */
    char                 *stage;   /* gpu_far.c's; NULL: not needed yet */
    soft_pinned_t         stage_pinned;
    soft_near_t           near;
    soft_maps_t           maps;
    soft_pinned_t         pinned[SOFT_LARGE_SLOTS]; /* of `service`, under the same lock */

    soft_record_reader_t notify;  /* consumer of the event ring */
    soft_service_t      *service; /* served under soft_helper_lock */
    unsigned             asked;   /* calls for a helper, and requests that could use one */
    unsigned        watched; /* slot that the progress looks at, see serve.c; none: their number */
    unsigned        others;  /* requests in other slots since the last in that */
    int             watched_waits;          /* the others' come first, this time */
    unsigned        serve_next;             /* the slot whose turn it is, of long ones */
    int             has_no_room;            /* staging memory doesn't grow any more */
    soft_room_t     rooms[SOFT_ROOM_SLOTS]; /* of slots whose staging memory grows */
    int             stay;      /* not negative: to stay with that slot has paid, see serve.c; */
    unsigned        stay_rest; /* else requests that it wasn't stayed for */
    angara_event_t *events;    /* local events, a ring of `num_events` */
    unsigned        num_events;
    int             is_relaxed; /* ANGARA_PE_RELAXED */
    unsigned        events_head;
    unsigned        events_tail;
    int             events_lost; /* sticky until read */

    int      epoll_fd; /* what angara_pe_event_fd() gives: the wake pipe and pidfds */
    int      wake_pipe[2];
    uint64_t wake_inode;
    int      timer_fd; /* -1: not yet needed; wakes a sleeper to look after its requests */
    int      timer_runs;

    soft_crowd_t      crowd;
    struct soft_peer *fronts; /* whose atomics are out, see agent_front.c */

    uint64_t next_check_ns;
    unsigned checks;     /* made */
    unsigned npeers;     /* seen by the last one */
    int      owes_wakes; /* some peer has not been woken for want of a descriptor */

    angara_counters_t counters;
    int               uses_helper; /* counted among the users of the helper's pipe */
    struct soft_pe   *next;        /* all PEs of the process, under soft_helper_lock */
} soft_pe_t;

struct soft_peer {
    struct angara_peer base;
    ang_pair_t         pair;
    soft_remote_t      remote;
    int                is_self;       /* the PE itself */
    int                down;          /* PEER_DOWN was raised */
    int                owes_wake;     /* couldn't be woken */
    int                has_begun;     /* a put or atomic was posted since the last look at all */
    int                cma;           /* process_vm_* is permitted */
    int                agent;         /* service request under way: its slot, else -1 */
    unsigned           agent_last;    /* the slot of the one before */
    int                agent_is_kept; /* that is still ours */
    uint32_t           agent_length;  /* bytes of the chunk under way, */
    uint32_t           agent_place;   /*   where it is in staging memory, */
    uint32_t           agent_next;    /*   where it ends there, */
    uint32_t           agent_ahead;   /*   and bytes of the put behind it that are there already, */
    uint32_t           agent_ahead_place;              /* at that place */
    uint64_t           agent_turn;                     /* of the slot's state */
    uint64_t           agent_look_ns, agent_waited_ns; /* see agent.c */
    uint64_t           agent_since_ns; /* when the request was first to be sent; 0: there is none */
    uint64_t           agent_sent_ns;  /* about when it was sent; 0: not looked yet */
    unsigned           agent_looks;
    int                agent_woken;       /* its helper has been called for it */
    int                agent_is_watched;  /* nothing but the slot says that it is there */
    int                agent_has_called;  /* once at least, for this pair */
    int                agent_has_other;   /* it may be taken back, for another way */
    unsigned agent_distrust, agent_doubt; /* so often it isn't expected to poll; at first */
    unsigned now_skip;                    /* so often nothing is waited for within its call */
    unsigned now_vain;                    /* what that began with last */
    /* Short ones, see agent_short.c: */
    int           agent_is_short;
    uint32_t      agent_copied;    /* bytes of the next one; of a long one's piece, too */
    soft_batch_t  batch;           /* whose results are taken, */
    soft_batch_t  ahead;           /*   and the one behind it; `count` 0: there is none */
    int           ahead_is_posted; /* the request under way is that one's */
    uint64_t      run_bytes;       /* of batches before, one behind the other */
    soft_paces_t  paces;
    soft_joint_t  joint;
    soft_out_t    front;
    uint64_t      direct_posted_ns; /* see gpu_far.c: when the request was posted; */
    uint64_t      direct_retry_ns;  /* no more of them before that time; */
    uint64_t      direct_pause_ns;  /* and how long the pause was */
    unsigned      direct_batch;     /* operations that it stands for; */
    unsigned      direct_along;     /* queued operations that its answer says were performed, too */
    soft_pinned_t pinned;           /* staging memory of this slot: */
    int           pinned_slot;
    int           has_no_large; /* its process has no memory for large pieces */
};

/* What a ref of the backend may be, beside ANG_REF_HOST. */
enum {
    SOFT_REF_CMA = ANG_REF_BACKEND, /* addr in the peer's private memory */
    SOFT_REF_AGENT,  /* named by key and offset, for the peer's helper; addr is 0: not sliced */
    SOFT_REF_STAGED, /* the same, of GPU memory */
    SOFT_REF_POLLED, /* as SOFT_REF_AGENT, if the peer polls: SOFT_REF_CMA is another way */
    SOFT_REF_JOINT,  /* host memory that both processes reach: joint.c */
    /* addr of GPU memory, own or mapped; `hold`: the mapping, or NULL */
    SOFT_REF_GPU = ANG_REF_LAUNCH | ANG_REF_BACKEND
};

static inline soft_pe_t *soft_pe(angara_pe_h pe)
{
    return (soft_pe_t *)pe;
}

static inline soft_peer_t *soft_peer(angara_peer_h peer)
{
    return (soft_peer_t *)peer;
}

static inline soft_peer_t *soft_pair_peer(ang_pair_t *pair)
{
    return (soft_peer_t *)((char *)pair - offsetof(soft_peer_t, pair));
}

/* Does the peer's process take part? Then the region isn't held between two calls. */
static inline int soft_ref_is_asked(const ang_ref_t *ref)
{
    return ref->kind == SOFT_REF_AGENT || ref->kind == SOFT_REF_STAGED ||
           ref->kind == SOFT_REF_POLLED || ref->kind == SOFT_REF_JOINT;
}

static inline soft_pe_t *soft_pair_pe(ang_pair_t *pair)
{
    return pair->engine->ctx;
}

extern const ang_backend_t soft_backend;

/* Post, make progress: what of the PE's caller meets another thread's deregistration. See engine.h.
 */
static inline angara_status_t soft_pair_post(ang_pair_t *pair, const ang_desc_t *desc,
                                             const void *data)
{
    angara_status_t status;

    if (!ang_engine_is_shared(pair->engine)) {
        return ang_engine_post(pair, desc, data);
    }
    ang_engine_lock(pair->engine);
    status = ang_engine_post(pair, desc, data);
    ang_engine_unlock(pair->engine);
    return status;
}

static inline unsigned soft_engine_progress(soft_pe_t *pe)
{
    unsigned count;

    if (!ang_engine_is_shared(&pe->engine)) {
        return ang_engine_progress(&pe->engine);
    }
    ang_engine_lock(&pe->engine);
    count = ang_engine_progress(&pe->engine);
    ang_engine_unlock(&pe->engine);
    return count;
}

angara_status_t soft_pe_create(angara_domain_h dom, const angara_pe_params_t *params,
                               angara_pe_h *pe_p);
void            soft_pe_destroy(angara_pe_h pe);
unsigned        soft_pe_progress(angara_pe_h pe);

/* event.c */
void soft_event_raise(soft_pe_t *pe, angara_event_type_t type, int status, soft_peer_t *peer,
                      uint64_t key);
void soft_events_forget(soft_pe_t *pe, const soft_peer_t *peer);
angara_status_t soft_event_poll(angara_pe_h pe, angara_event_t *event);
angara_status_t soft_event_fd(angara_pe_h pe, int *fd_p);
angara_status_t soft_event_arm(angara_pe_h pe);
void            soft_event_disarm(angara_pe_h pe);
angara_status_t soft_notify(angara_peer_h peer, const void *record, size_t length);
void            soft_wake(angara_peer_h peer);
/* Wake the own sleeper, from another thread. */
void soft_wake_self(soft_pe_t *pe);
/* Try again to wake those that couldn't be. */
void soft_wake_owed(soft_pe_t *pe);

/* peer.c */
angara_status_t soft_is_reachable(angara_domain_h dom, const angara_address_t *address);
angara_status_t soft_peer_connect(angara_pe_h pe, const angara_address_t *address,
                                  angara_peer_h *peer_p);
void            soft_peer_disconnect(angara_peer_h peer);
angara_status_t soft_peer_status(angara_peer_h peer);
int             soft_peer_settled(angara_peer_h peer);
int             soft_peer_hurry(angara_peer_h peer);
uint64_t        soft_peer_gpus(angara_peer_h peer);
angara_status_t soft_peer_reset(angara_peer_h peer);
void            soft_peer_destroy(soft_peer_t *peer);
/*
 * End what is in flight to all peers of the PE, or to one: it is performed, or dropped where the
 * peer doesn't go on. From here on operations to them fail.
 */
void soft_peers_end(soft_pe_t *pe, soft_peer_t *only);
/* Look for peers that died; raise PEER_DOWN for them. */
unsigned soft_peers_check(soft_pe_t *pe);
/* Add what was done on the peer's mapped memory, which the engine doesn't count. */
void soft_peer_count(angara_peer_h peer, angara_counters_t *counters);
/* A mapping is about to go: inline code forgets all that it knows of mapped regions. */
void soft_peers_unmap(soft_pe_t *pe);

/* agent.c: requests to the peer's process; more in agent.h */
/* The pair's next operation has been asked for: it went along in a batch, or by soft_now(). */
static inline int soft_agent_owes(const soft_peer_t *peer)
{
    return __builtin_expect(peer->agent >= 0, 0) && peer->agent_is_short && peer->front.turn == 0;
}
/* Is a request under way whose answer will wake this PE? */
int soft_agent_sleep(soft_peer_t *peer);
/* Have the peer look for requests; it starts a helper if it has none. */
void soft_agent_wake(soft_peer_t *peer);
/*
 * Withdraw the request under way, if there is one. @return 1: the peer's process does nothing for
 * it any more; 0: it is at it just now. Then try again.
 */
int soft_agent_withdraw(soft_peer_t *peer);
/* The pair ends, with or without its request. */
void soft_agent_abandon(soft_peer_t *peer);
/* A process is dead, or another program by now: others may have the slots of the PE's that were its
 * own. Those of a process that no peer of the PE's is of wait until no slot is free. */
void soft_agent_reclaim(soft_pe_t *pe, pid_t dead);

/*
 * serve.c: the other side. Serve what has been posted by now, one request of each slot; with the
 * helper's lock held. `by_owner`: by its progress. `joins`: take part in a joint copy, too, for a
 * piece. @return how many
 */
unsigned soft_serve(soft_pe_t *pe, int by_owner, int joins);

/* helper.c: the thread that does so */
/* Create what peers need to wake the helper; no thread yet. */
angara_status_t soft_helper_prepare(soft_pe_t *pe);
void            soft_helper_add_pe(soft_pe_t *pe);
void            soft_helper_remove_pe(soft_pe_t *pe);
/* Start the thread if it isn't running, or as soon as there is a PE. */
void soft_helper_start(void);
/* Does it run? Then requests need no progress of the program's, and don't keep it awake. */
int soft_helper_runs(void);
/* A region with these rights is about to be known to peers: will they need the thread? */
void soft_helper_expect(unsigned access);
/*
 * GPU memory is shared or mapped from now on, or something flies: the helper is to look after it
 * every ANGARA_PEER_CHECK. Only notes that, under whatever locks; whoever holds none calls
 * soft_helper_wake_if_kicked() then.
 */
void       soft_helper_watch(void);
void       soft_helper_wake(void);
extern int soft_helper_kicked;

static inline void soft_helper_wake_if_kicked(void)
{
    if (__builtin_expect(__atomic_load_n(&soft_helper_kicked, __ATOMIC_RELAXED), 0)) {
        soft_helper_wake();
    }
}

/* See which of the process's operations have landed. @return pairs that have some that still fly */
unsigned soft_helper_land(void);
/* A peer has gone: let go of what was kept of processes that are dead. */
void soft_helper_forget_dead(void);
/* What the thread does then: for the owner's progress, if it can't run. */
void soft_helper_look(void);
/* Write end of the pipe that wakes it, or -1; its inode. */
int      soft_helper_wake_fd(void);
uint64_t soft_helper_wake_inode(void);
/* Serve a PE's requests from its owner's progress; as soft_serve(). */
unsigned soft_helper_poll(soft_pe_t *pe, int joins);
/* Wait until neither the helper nor a thread of chaos mode is touching a region of the domain. */
void soft_helper_quiesce(const soft_domain_t *dom);
/*
 * Is an operation of the process's PEs queued that has the region as its local end? Then a turn of
 * progress is made for it. @return a peer that it is still queued to: its process's number, else 0.
 * *mark_p changes when such an operation, or one before it, goes on, whoever makes progress.
 */
pid_t soft_helper_local_user(const soft_domain_t *dom, uint64_t key, uint64_t *mark_p);
/* Cancel those operations, and all that is queued to the same peers: pairs in error. */
void soft_helper_local_cancel(const soft_domain_t *dom, uint64_t key);

/* ---- ops.c ----------------------------------------------------------------------------------- */

/* As the functions of angara.h; the arguments have been checked. */
angara_status_t soft_put(angara_peer_h peer, uint64_t offset, const void *src, size_t length);
angara_status_t soft_put_flag(angara_peer_h peer, uint64_t offset, const void *src, size_t length,
                              uint64_t flag_offset, uint64_t flag);
angara_status_t soft_post(angara_peer_h peer, ang_desc_t *desc, const void *data);
int soft_mapped_put(angara_peer_h peer, const void *src, uint64_t rkey, uint64_t roffset,
                    size_t length);
int soft_mapped_get(angara_peer_h peer, void *dst, uint64_t rkey, uint64_t roffset, size_t length);
int soft_asked_get(angara_peer_h peer, void *dst, uint64_t rkey, uint64_t roffset, size_t length);
int soft_mapped_atomic(angara_peer_h peer, const ang_desc_t *desc, uint64_t *old);
/*
 * A ring operation. @return 1: performed. 0: post it, at once: a put or an atomic may have been
 * asked for meanwhile, and goes on with that post.
 */
int             soft_now(angara_peer_h peer, const ang_desc_t *desc, const void *data);
angara_status_t soft_post_batch(angara_peer_h peer, ang_op_t op, const ang_item_t *items,
                                unsigned count, unsigned *posted_p);

#endif
