/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions of those who ask this process for something (service.h), where serving a request reaches
 * into the requester's own memory. They are accessed as by any peer, with a hazard in the
 * requester's domain; so its memory isn't given up under the copy.
 *
 * Invariants
 *   - The domains of requesters, and one hazard in each, are kept for the next request, with their
 *     processes. They go when the process is dead, when others need their place, and with the last
 *     PE. All of it is behind soft_helper_lock.
 *   - What a request says of the requester is checked: the segment is a domain of that number, of
 *     the process that owns the slot.
 */
#ifndef SOFT_REQUESTER_H
#define SOFT_REQUESTER_H

#include "soft.h"

/*
 * The domain that the request names, of the process that owns its slot (soft_owner()); NULL if
 * there is none, or the process has ended: that is looked at every ANGARA_PEER_CHECK.
 */
soft_remote_domain_t *soft_requester_get(const soft_request_t *request, uint64_t owner);
/* Let go of processes that are dead, or (`all`) of all. @return how many are left */
unsigned soft_requesters_look(int all);
/* In a forked child. */
void soft_requesters_forget(void);

#endif
