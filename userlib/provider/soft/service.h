/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests to a target's process, in slots of the target's own segment: what initiators may not do
 * themselves (agent.c, their side) its helper thread or its progress carries out (serve.c).
 * Requesters map that segment anyway, so answering needs nothing of the requester's.
 *
 * Invariants
 *   - `owner` says whose slot it is: 0, or soft_owner() of the requester's process, changed by
 *     compare-and-swap. What a dead process has left is taken over when no slot is free.
 *   - `state` says who may touch the rest: the owner, but from SERVING to the end the server. The
 *     owner posts a request by a state of a new turn. POSTED, it may take it back, and then nothing
 *     is ever done for it; SERVING, it may only abandon it: then the server does what it has begun
 *     and sets the slot free. So a turn never meets another one's answer, and neither side waits
 *     for memory, descriptors or permissions of the other.
 *   - A requester that goes to sleep says so in the state. So the server knows it before the answer
 *     is given, while the requester is sure to be there, and the number of its pipe to mean that.
 *   - Memory to stage data in is allocated by the server, with the slot's first request for data,
 *     and stays. A put finds out by an empty one.
 *   - A direct request stages nothing: the server maps the requester's GPU memory, and a GPU of its
 *     own copies. It moves as much at once as it likes, and says how much. It accesses the
 *     requester's region as any peer does, with a hazard: so whoever abandons the request and
 *     deregisters the memory waits for it.
 */
#ifndef SOFT_SERVICE_H
#define SOFT_SERVICE_H

#include <stdint.h>

#define SOFT_SERVICE_SLOTS 128   /* requests that a PE holds at once */
#define SOFT_STAGING       65536 /* bytes of one's staging memory */

typedef enum { SOFT_IDLE, SOFT_POSTED, SOFT_SERVING, SOFT_DONE, SOFT_ABANDONED } soft_phase_t;

#define SOFT_PHASES 8ull  /* a state's lowest bits hold the phase; */
#define SOFT_SLEEPS 8ull  /* this one says: wake the owner with the answer; */
#define SOFT_TURN   16ull /* from here on turns are counted */

typedef struct {
    uint8_t  op; /* ang_op_t; PUT_INLINE isn't used */
    uint8_t  atomic;
    uint8_t  width;
    uint8_t  is_direct; /* a put or get with GPU memory of the requester's, see below */
    uint32_t length;
    uint64_t key;
    uint64_t offset;
    uint64_t operand; /* atomics */
    uint64_t compare;
    /* direct: where the requester's end is */
    uint64_t start_time; /* of the requester's process */
    int32_t  domain_fd;  /* its domain's segment */
    uint32_t pad;
    uint64_t domain_id;
    uint64_t near_key; /* a region of that */
    uint64_t near_offset;
} soft_request_t;

typedef struct {
    uint64_t       owner;
    uint64_t       state;
    soft_request_t request;
    uint64_t       wake_inode; /* of the pipe that wakes the requester, and */
    int32_t        wake_fd;    /* the requester's number of its write end */
    /* the server's */
    uint32_t staged; /* there is staging memory */
    int64_t  status;
    uint64_t old; /* of an atomic; bytes moved by a direct request */
} soft_slot_t;

/* What there is to do for the helper thread, or the owner's progress. */
enum {
    SOFT_WORK_NONE,
    SOFT_WORK_POSTED, /* somebody has posted, or wants a helper: look */
    SOFT_WORK_SERVED  /* what was posted is being served */
};

typedef struct {
    uint32_t    work;   /* SOFT_WORK_... */
    uint32_t    asleep; /* the helper thread sleeps, or there is none */
    uint64_t    posted[SOFT_SERVICE_SLOTS / 64];
    uint64_t    pad[5];
    soft_slot_t slots[SOFT_SERVICE_SLOTS];
} soft_service_t;

_Static_assert(sizeof(soft_slot_t) == 128, "a slot is two lines");

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
