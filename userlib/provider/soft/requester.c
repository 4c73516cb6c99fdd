/* SPDX-License-Identifier: BSD-3-Clause */
/* See requester.h. */
#include "requester.h"

#include "src/clock.h"
#include "src/config.h"

#include <stddef.h>

#define DOMAINS 64 /* of requesters that are kept */

static soft_remote_domain_t *domains[DOMAINS]; /* the last used one first */

static void drop(unsigned i)
{
    soft_remote_process_t *process = domains[i]->process;

    soft_remote_domain_close(domains[i]);
    soft_remote_process_put(process);
    for (; i + 1 < DOMAINS; ++i) {
        domains[i] = domains[i + 1];
    }
    domains[DOMAINS - 1] = NULL;
}

static void put_first(soft_remote_domain_t *domain, unsigned i)
{
    for (; i > 0; --i) {
        domains[i] = domains[i - 1];
    }
    domains[0] = domain;
}

static soft_remote_domain_t *domain_new(const soft_request_t *request, pid_t requester)
{
    soft_remote_domain_t  *domain = NULL;
    soft_remote_process_t *process;

    if (soft_remote_process_get(requester, request->start_time, &process) != ANGARA_OK) {
        return NULL;
    }
    if (soft_remote_domain_open(process, request->domain_fd, ANG_LOG_DEBUG, &domain) == ANGARA_OK &&
        domain->seg->id != request->domain_id) {
        soft_remote_domain_close(domain);
        domain = NULL;
    }
    if (domain == NULL) {
        soft_remote_process_put(process);
    }
    return domain;
}

/* Is it the process that it was? Looked at now and then, as soft_remote_reach() does. */
static int is_there(soft_remote_domain_t *domain, uint64_t owner)
{
    uint64_t now = ang_clock_ns(CLOCK_MONOTONIC_COARSE);

    if (now >= domain->next_check_ns) {
        if (soft_remote_process_dead(domain->process) || !soft_owner_alive(owner)) {
            return 0;
        }
        soft_remote_process_check_task(domain->process);
        domain->next_check_ns = now + ang_config.peer_check_ms * 1000000;
    }
    return 1;
}

soft_remote_domain_t *soft_requester_get(const soft_request_t *request, uint64_t owner)
{
    pid_t                 requester = soft_owner_pid(owner);
    soft_remote_domain_t *domain;

    for (unsigned i = 0; i < DOMAINS && domains[i] != NULL; ++i) {
        domain = domains[i];
        if (domain->process->pid == requester &&
            domain->process->start_time == request->start_time &&
            domain->seg->id == request->domain_id) {
            put_first(domain, i);
            return is_there(domain, owner) ? domain : NULL;
        }
    }
    soft_requesters_look(0); /* nobody else may look for those that have died */
    domain = domain_new(request, requester);
    if (domain != NULL) {
        if (domains[DOMAINS - 1] != NULL) {
            drop(DOMAINS - 1);
        }
        put_first(domain, DOMAINS - 1);
    }
    return domain;
}

unsigned soft_requesters_look(int all)
{
    unsigned count = 0;

    while (count < DOMAINS && domains[count] != NULL) {
        if (all || soft_remote_process_dead(domains[count]->process)) {
            drop(count);
        } else {
            count++;
        }
    }
    return count;
}

void soft_requesters_forget(void)
{
    for (unsigned i = 0; i < DOMAINS; ++i) {
        domains[i] = NULL;
    }
}
