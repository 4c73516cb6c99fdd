/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct requests, the server's side: see service.h and gpu_mem.h. The requester's region is
 * accessed as by any peer, with a hazard in its domain; so its memory isn't given up under the
 * copy.
 *
 * Invariants
 *   - The domains of requesters, and one hazard in each, are kept for the next request, with their
 *     processes. They go when the process is dead, when others need their place, and with the last
 *     PE. All of it is behind soft_helper_lock.
 *   - What a request says of the requester is checked: the segment is a domain of that number, of
 *     the process that owns the slot.
 */
#include "gpu_mem.h"
#include "vm.h"

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
    if (soft_remote_domain_open(process, request->domain_fd, &domain) == ANGARA_OK &&
        domain->seg->id != request->domain_id) {
        soft_remote_domain_close(domain);
        domain = NULL;
    }
    if (domain == NULL) {
        soft_remote_process_put(process);
    }
    return domain;
}

static soft_remote_domain_t *domain_get(const soft_request_t *request, pid_t requester)
{
    soft_remote_domain_t *domain;

    for (unsigned i = 0; i < DOMAINS && domains[i] != NULL; ++i) {
        domain = domains[i];
        if (domain->process->pid == requester &&
            domain->process->start_time == request->start_time &&
            domain->seg->id == request->domain_id) {
            put_first(domain, i);
            return domain;
        }
    }
    domain = domain_new(request, requester);
    if (domain != NULL) {
        if (domains[DOMAINS - 1] != NULL) {
            drop(DOMAINS - 1);
        }
        put_first(domain, DOMAINS - 1);
    }
    return domain;
}

/* Its region is held. */
static angara_status_t copy(const soft_remote_domain_t *domain, const soft_request_t *request,
                            uint64_t addr, uint64_t length)
{
    const soft_mr_entry_t *entry;
    soft_import_t         *import;
    ang_gpu_mem_t          mem;
    angara_status_t        status;
    uint64_t               near;

    status = soft_mr_check(domain->seg, domain->mr_max, request->near_key, request->near_offset,
                           length, 0, &near, &entry);
    if (status == ANGARA_OK && entry->kind != ANGARA_MEM_HOST) {
        ang_gpu_query_found((const void *)(uintptr_t)addr, &mem); /* managed memory has a GPU */
        status = soft_import_get(domain->process, entry, mem.mem.device, request->near_offset,
                                 length, &import, &near);
    } else {
        status = ANGARA_ERR_UNSUPPORTED;
    }
    if (status == ANGARA_OK) {
        status = request->op == ANG_OP_PUT ? soft_gpu_copy(addr, near, length) :
                                             soft_gpu_copy(near, addr, length);
        soft_import_put(import);
    }
    return status;
}

angara_status_t soft_gpu_serve(const soft_request_t *request, pid_t requester, uint64_t addr,
                               uint64_t length)
{
    soft_remote_domain_t *domain;
    angara_status_t       status;

    /* others the driver copies with the CPU */
    if (!ang_gpu_is_registered((const void *)(uintptr_t)addr, length) &&
        soft_guard_range(addr, length, request->op == ANG_OP_PUT) != ANGARA_OK) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    domain = domain_get(request, requester);
    if (domain == NULL) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    soft_helper_watch();
    /* The hazard, a full fence, then the look at the entry: see domain.c. */
    __atomic_exchange_n(&domain->hazard->key, request->near_key, __ATOMIC_SEQ_CST);
    status = copy(domain, request, addr, length);
    __atomic_store_n(&domain->hazard->key, 0, __ATOMIC_RELEASE);
    return status == ANGARA_OK ? ANGARA_OK : ANGARA_ERR_UNSUPPORTED;
}

unsigned soft_gpu_serve_look(int all)
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

void soft_gpu_serve_forget(void)
{
    for (unsigned i = 0; i < DOMAINS; ++i) {
        domains[i] = NULL;
    }
}
