/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests to a target's process, in slots of the target's own segment: what initiators may not do
 * themselves (agent.c, their side) its helper thread or its progress carries out (serve.c).
 * Requesters map that segment anyway, so answering needs nothing of the requester's.
 *
 * Invariants
 *   - `owner` says whose slot it is: 0, or soft_owner() of the requester's process, changed by
 *     compare-and-swap. What a dead process has left is given back by the owner of the segment, if
 * it sees that process die, or taken over when no slot is free.
 *   - `state` says who may touch the rest: the owner, but from SERVING to the end the server. The
 *     owner posts a request by a state of a new turn. POSTED, it may take it back, and then nothing
 *     is ever done for it; SERVING, it may only abandon it: then the server does what it has begun
 *     and sets the slot free. So a turn never meets another one's answer, and neither side waits
 *     for memory, descriptors or permissions of the other.
 *   - A posted request has its bit in `posted`, and then `work` says so: who serves looks there.
 *   - But the owner's progress watches one slot, that of a requester who asks again and again,
 *     and says so in it (SOFT_BY_WATCHER). A request there has no bit. Its poster looks once more,
 *     behind a full fence, whether the slot is watched. Who watches it no longer says so, and
 *     then looks, behind a full fence, whether there is a request. So one of the two sets the
 *     bit. Who isn't answered in time sets it, too, before the helper thread is called.
 *   - An owner may keep a watched slot behind its answer, for its next request; of the upper half
 *     of the slots none is kept.
 *   - A slot's front holds one atomic more, whose result nobody wants: its owner goes on at once.
 *     It may post the slot's request behind it (SOFT_BY_SLOT_BEHIND), but no front while a request
 *     of the slot is under way. Whoever serves the slot serves its front first. What is behind a
 *     front that wasn't performed isn't either, and ends with the same status. The front has a
 *     state of its own, and goes by the bit, and the watch, of its slot.
 *   - A requester that goes to sleep says so in the state. So the server knows it before the answer
 *     is given, while the requester is sure to be there, and the number of its pipe to mean that.
 *   - Memory to stage data in is allocated by the server, with the slot's first request that needs
 *     it, or is direct. It stays; that of the first slots grows as they are used. So `staged` may
 *     become more at any time, never less. A put finds out by an empty one. Up to SOFT_SLOT_BYTES
 *     lie in the slot: in the line of the request, or in those behind it.
 *   - While a request for host memory is served, `filled` says up to where staging memory holds
 *     what it brings, so that its owner copies at the same time; of a put, what has been taken from
 *     there. The owner sets it to 0 before it posts; from SERVING on it is the server's.
 *   - Some slots have room for two large pieces of GPU memory, where a driver's call costs more
 *     than the bytes do: while the server copies one of them, the owner of the slot copies the
 *     other. It touches no byte of the one that a request is about.
 *   - A batch is a request for several operations, in staging memory: they are performed in order,
 *     up to the first that can't be. The answer says how many were, and why no more.
 *   - A direct request stages no data: the server maps the requester's GPU memory, and a GPU of its
 *     own copies. It moves as much at once as it likes, and says how much. It accesses the
 *     requester's region as any peer does, with a hazard: so whoever abandons the request and
 *     deregisters the memory waits for it. What is queued behind the operation goes along, as more
 *     requests in staging memory: a run, which is performed in order. The answer counts those
 *     before the first that failed; ones behind that may have been performed, and are again.
 *   - A joint request shares a long copy between host memories of both, see joint.h. Server and
 *     requester claim pieces by a word of the request. Between two pieces it is POSTED again.
 */
#ifndef SOFT_SERVICE_H
#define SOFT_SERVICE_H

#include "engine/desc.h"

#include <stddef.h>
#include <stdint.h>

#define SOFT_SERVICE_SLOTS 128          /* requests that a PE holds at once */
#define SOFT_STAGING       131072       /* bytes of one's staging memory, and of a request's; */
#define SOFT_ROOM_SLOTS    24           /*   that of so many slots, the first, grows */
#define SOFT_ROOM          (1u << 20)   /*   to that, see agent.h; */
#define SOFT_SMALL_PIECE   65536        /* of GPU memory it holds such pieces; */
#define SOFT_LARGE_SLOTS   8            /* that of so many slots, the first, */
#define SOFT_LARGE_PIECE   (512u << 10) /*   two large ones */
#define SOFT_RUN           8            /* operations of a direct request at most, */
#define SOFT_RUN_BYTES     (16u << 20)  /* and bytes of several */

typedef enum { SOFT_IDLE, SOFT_POSTED, SOFT_SERVING, SOFT_DONE, SOFT_ABANDONED } soft_phase_t;

#define SOFT_PHASES     8ull  /* a state's lowest bits hold the phase; */
#define SOFT_SLEEPS     8ull  /* this one says: wake the owner with the answer; */
#define SOFT_TURN       16ull /* from here on turns are counted */

#define SOFT_OP_BATCH   ANG_OP_LAST /* beside ang_op_t, of which PUT_INLINE isn't used */
#define SOFT_HEAD_BYTES 16          /* of data lie in the request, */
#define SOFT_SLOT_BYTES 1024        /*   and so many in the slot; more in staging memory */

/* Bits of a joint request's operand by which nothing is left to claim. */
#define SOFT_ALL_CLAIMED UINT32_MAX

/* How the bytes of a put or get travel. */
typedef enum {
    SOFT_BY_SLOT,   /* in the slot, or its staging memory */
    SOFT_BY_DIRECT, /* a GPU of the server's moves them, to or from the requester's GPU memory */
    SOFT_BY_JOINT,  /* both processes copy pieces, between their host memories */
    SOFT_BY_SLOT_BEHIND /* in the slot; what its front holds comes first, and must succeed */
} soft_by_t;

typedef struct {
    uint8_t  op; /* ang_op_t, or SOFT_OP_BATCH */
    uint8_t  atomic;
    uint8_t  width;
    uint8_t  by;     /* soft_by_t */
    uint32_t length; /* of a batch: of what is in staging memory */
    uint64_t key;
    uint64_t offset;
    /*
     * Of an atomic: what to do; then the old value. Of a put or get of few bytes: the bytes. Of a
     * direct one: how many were moved, and in `compare` how many more requests are in staging
     * memory; then, how many of those were performed. Of a batch: how many operations were
     * performed. Of one by staging memory, a batch, too: `compare` is where in that it is. Of a
     * joint one: `operand` is what is claimed, by an atomic operation of either process; `compare`
     * and `length` then say which piece the server couldn't copy.
     */
    uint64_t operand;
    uint64_t compare;
    /* direct, joint: where the requester's end is. Others have data here */
    uint64_t start_time; /* of the requester's process */
    int32_t  domain_fd;  /* its domain's segment */
    uint32_t pad;
    uint64_t domain_id;
    uint64_t near_key; /* a region of that */
    uint64_t near_offset;
} soft_request_t;

/*
 * An operation of a batch is this much of a request, at a multiple of 8, and behind it the bytes of
 * a put or get that needs more than SOFT_HEAD_BYTES: many begin with a cache line, since they are
 * copied in twice the time otherwise.
 */
#define SOFT_REQUEST_HEAD 40
#define SOFT_MANY_BYTES   1024

/* The server says each time that there is so much more in staging memory, at least. */
#define SOFT_CHUNK 8192

/* Who gave the answer. */
enum {
    SOFT_BY_HELPER,
    SOFT_BY_OWNER,  /* the owner's progress, */
    SOFT_BY_WATCHER /*   which looks at this slot by itself: the next request needs no bit */
};

/* An atomic that nobody waits for. */
typedef struct {
    uint64_t state;
    int32_t  status; /* of the answer */
    uint32_t pad;
    char     request[SOFT_REQUEST_HEAD]; /* the part of a request that all need */
    uint64_t pad1[9];
} soft_front_t;

/* The first line is all that a short request and its answer need; more bytes of data follow. */
typedef struct {
    uint64_t       owner;
    uint64_t       state;
    int32_t        status;   /* of the answer; */
    uint32_t       by_owner; /*   SOFT_BY_...; written by the server only, atomic */
    soft_request_t request;
    char           more[SOFT_SLOT_BYTES + SOFT_REQUEST_HEAD - sizeof(soft_request_t)];
    uint64_t       wake_inode; /* of the pipe that wakes the requester, and */
    int32_t        wake_fd;    /* the requester's number of its write end */
    uint32_t       staged;     /* bytes of staging memory that there are: the server's */
    uint64_t       filled;     /* of it, by the request that is being served; atomic */
    uint64_t       pad[5];
    soft_front_t   front;
} soft_slot_t;

/* What there is to do for the helper thread, or the owner's progress. */
enum {
    SOFT_WORK_NONE,
    SOFT_WORK_POSTED, /* somebody has posted: look */
    SOFT_WORK_SERVED, /* what was posted is being served */
    SOFT_WORK_CALLED  /* somebody wants a helper, and may have posted */
};

/* The helper thread, as requesters see it. */
enum {
    SOFT_HELPER_AWAKE, /* it looks before it sleeps */
    SOFT_HELPER_SLEEPS,
    SOFT_HELPER_NONE /* the owner's progress starts one */
};

typedef struct {
    uint32_t    work;   /* SOFT_WORK_... */
    uint32_t    helper; /* SOFT_HELPER_... */
    uint64_t    posted[SOFT_SERVICE_SLOTS / 64];
    uint64_t    pad[13];
    soft_slot_t slots[SOFT_SERVICE_SLOTS];
} soft_service_t;

_Static_assert(sizeof(soft_slot_t) % 128 == 0, "two lines that come together are one slot's");
_Static_assert(offsetof(soft_request_t, start_time) == SOFT_REQUEST_HEAD, "the part for all");
_Static_assert(offsetof(soft_request_t, operand) + SOFT_HEAD_BYTES == SOFT_REQUEST_HEAD, "its end");
_Static_assert(offsetof(soft_slot_t, request) + SOFT_REQUEST_HEAD == 64, "it is in the first line");
_Static_assert(offsetof(soft_slot_t, front) % 128 == 0, "the front has two of its own");
_Static_assert(offsetof(soft_service_t, slots) % 128 == 0, "a slot begins with two such lines");
_Static_assert(offsetof(soft_slot_t, wake_inode) == 64 + SOFT_SLOT_BYTES, "the data's lines");
_Static_assert(SOFT_ROOM >= 2 * SOFT_LARGE_PIECE && SOFT_ROOM_SLOTS >= SOFT_LARGE_SLOTS, "two fit");
_Static_assert(SOFT_RUN * sizeof(soft_request_t) <= SOFT_STAGING, "a run fits");

/* How a slot's staging memory is used, as its server sees it. */
typedef struct {
    uint64_t owner; /* the requester */
    unsigned asked; /* its requests that came to the end */
} soft_room_t;

/* Where a request has up to SOFT_HEAD_BYTES of a put or get, */
static inline void *soft_request_bytes(soft_request_t *request)
{
    return &request->operand;
}

/* and its slot up to SOFT_SLOT_BYTES: behind the part of the request that all need; */
static inline void *soft_slot_bytes(soft_slot_t *slot)
{
    return (char *)slot + offsetof(soft_slot_t, request) + SOFT_REQUEST_HEAD;
}

/* so many are here: `request` is the slot's, or a copy. */
static inline void *soft_data_bytes(soft_slot_t *slot, soft_request_t *request, uint64_t length)
{
    return length <= SOFT_HEAD_BYTES ? soft_request_bytes(request) : soft_slot_bytes(slot);
}

/* The staging memory of a slot: how much it may be, and where, behind that of the first slot. */
static inline uint32_t soft_staging_size(unsigned slot)
{
    return slot < SOFT_ROOM_SLOTS ? SOFT_ROOM : SOFT_STAGING;
}

static inline size_t soft_staging_offset(unsigned slot)
{
    return slot < SOFT_ROOM_SLOTS ? (size_t)slot * SOFT_ROOM :
                                    (size_t)SOFT_ROOM_SLOTS * SOFT_ROOM +
                                        (size_t)(slot - SOFT_ROOM_SLOTS) * SOFT_STAGING;
}

/* Where in staging memory the bytes of an operation of a batch lie that is there `at`. */
static inline uint32_t soft_item_bytes(uint32_t at, uint32_t length)
{
    at += SOFT_REQUEST_HEAD;
    return length < SOFT_MANY_BYTES ? at : (at + 63) / 64 * 64;
}

/* And where the next operation is, behind a put or get of so many, */
static inline uint32_t soft_item_behind(uint32_t at, uint32_t length)
{
    return length <= SOFT_HEAD_BYTES ? at + SOFT_REQUEST_HEAD :
                                       soft_item_bytes(at, length) + (length + 7) / 8 * 8;
}

/* and behind any. */
static inline uint32_t soft_item_end(uint32_t at, const soft_request_t *item)
{
    return soft_item_behind(at, item->op == ANG_OP_ATOMIC ? 0 : item->length);
}

/* The bytes of the put or get of a batch that is `there`, at that place of staging memory. */
static inline void *soft_item_data(soft_request_t *there, uint32_t at, uint32_t length)
{
    return length <= SOFT_HEAD_BYTES ? soft_request_bytes(there) :
                                       (char *)there + (soft_item_bytes(at, length) - at);
}

static inline soft_phase_t soft_state_phase(uint64_t state)
{
    return (soft_phase_t)(state % SOFT_PHASES);
}

/* The same turn, and the bit, in another phase. */
static inline uint64_t soft_state_to(uint64_t state, soft_phase_t phase)
{
    return state / SOFT_PHASES * SOFT_PHASES + (uint64_t)phase;
}

#endif
