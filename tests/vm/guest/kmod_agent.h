/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A user of the kernel modules as a process of its own, in this VM or another, that does what it is
 * told over a stream: has a PE and a region, tries all operations on another's, and shows what it
 * sees of its own. For tests of several users; kmod_users tells them what to do.
 */
#ifndef KMOD_AGENT_H
#define KMOD_AGENT_H

#include "kmod_user.h"

/* What a new process is to be. */
enum { REQUEST_AGENT, REQUEST_GRANT, REQUEST_REVOKE, REQUEST_END };

#define AGENT_NAMESPACE  1u /* in a user namespace of its own, as its root */
#define AGENT_SAVED_ROOT 2u /* with another saved user id, as a set-user-ID program */

typedef struct {
    uint32_t kind, uid, flags, reserved;
    uint64_t job_key;
} request_t;

/* Its answer: what it is called, or the errno of why there is none. */
typedef struct {
    int32_t  error;
    uint32_t node, index, generation;
    uint64_t key; /* of its region */
} name_t;

enum { ORDER_LOOK, ORDER_TRY, ORDER_GUESS, ORDER_QUIT };

typedef struct {
    uint32_t kind;
    uint32_t count; /* ORDER_LOOK: arm first; ORDER_GUESS: so many */
    name_t   target;
} order_t;

/* All that the owner of a PE can see of what others do to it. */
typedef struct {
    struct angara_status status;
    uint64_t             window, region, events, markers; /* sums */
} view_t;

/* Operations that ORDER_TRY performs, in the order of outcome_t.done. */
#define AGENT_OPS 4u

typedef struct {
    uint32_t down;    /* PEER_DOWN events */
    uint32_t events;  /* others */
    uint32_t done;    /* a bit for each operation whose marker came back */
    int32_t  notify;  /* outcome of the notify put */
    uint64_t counted; /* faults, operations and puts that the own counters have counted */
} outcome_t;

/* In a process of its own: be what the request says, until told to quit. */
void agent_serve(int stream, const request_t *request);

void stream_write(int stream, const void *bytes, size_t size);
/* @return 1, or 0 at the end */
int stream_read(int stream, void *bytes, size_t size);

#endif
