/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Another process's PE as this process maps it. Everything read from there is checked
 * before use; the mappings stay valid (sealed files) whatever happens to the other process.
 */
#define _GNU_SOURCE
#include "soft.h"

#include "src/clock.h"
#include "src/config.h"
#include "src/log.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static pid_t address_pid(const angara_address_t *address)
{
    return (pid_t)(address->loc[0] & 0x7fffffff);
}

static int address_fd(const angara_address_t *address)
{
    return (int)(address->loc[0] >> 32 & 0x7fffffff);
}

int soft_remote_dead(const soft_remote_t *remote)
{
    return remote->process == NULL ||
           (!remote->same_process && soft_remote_process_dead(remote->process));
}

int soft_remote_replaced(const soft_remote_t *remote)
{
    return !remote->same_process && !soft_segment_is(address_pid(&remote->address),
                                                     address_fd(&remote->address), &remote->pe_map);
}

int soft_remote_reach(soft_remote_t *remote)
{
    uint64_t now = ang_clock_ns(CLOCK_MONOTONIC_COARSE);

    if (__builtin_expect(now < remote->next_check_ns, 1)) {
        return 1;
    }
    if (soft_remote_dead(remote) || soft_remote_replaced(remote)) {
        errno = ESRCH;
        return 0;
    }
    soft_remote_process_check_task(remote->process);
    remote->next_check_ns = now + ang_config.peer_check_ms * 1000000;
    return 1;
}

/* Is the mapped segment the PE of the address, with a layout that fits its size? */
static angara_status_t check_pe(soft_remote_t *remote)
{
    const soft_pe_seg_t *seg    = remote->seg;
    uint32_t             events = seg->events;
    uint64_t             window = seg->window_size;

    if (seg->magic != SOFT_MAGIC_PE) {
        return ANGARA_ERR_PEER_DEAD; /* that descriptor is another file by now: closed */
    }
    if (seg->layout != SOFT_LAYOUT) {
        ang_error("pid %d runs libangara %.15s (layout %u), this process %s (layout %u): use one "
                  "version in all ranks",
                  (int)remote->process->pid, seg->version, seg->layout, angara_version(),
                  SOFT_LAYOUT);
        return ANGARA_ERR_VERSION;
    }
    if (seg->generation != remote->address.generation || seg->index != remote->address.index) {
        return ANGARA_ERR_PEER_DEAD;
    }
    if (events < 2 || events > 65536 || (events & (events - 1)) != 0 ||
        window > remote->pe_map.size) {
        return ANGARA_ERR_UNREACHABLE;
    }
    remote->events      = events;
    remote->window_size = window;
    soft_layout(events, window, &remote->layout);
    return remote->layout.total <= remote->pe_map.size ? ANGARA_OK : ANGARA_ERR_UNREACHABLE;
}

angara_status_t soft_remote_open(const angara_address_t *address, soft_pe_t *pe,
                                 soft_remote_t *remote)
{
    angara_status_t status;

    memset(remote, 0, sizeof(*remote));
    remote->address      = *address;
    remote->same_process = address_pid(address) == getpid();
    remote->pe_map.fd    = -1;

    status = soft_remote_process_get(address_pid(address), address->loc[1], &remote->process);
    if (status == ANGARA_OK) {
        status = soft_segment_open(remote->process->pid, address_fd(address), sizeof(soft_pe_seg_t),
                                   ANG_LOG_ERROR, &remote->pe_map);
    }
    if (status == ANGARA_OK) {
        remote->seg = remote->pe_map.base;
        status      = check_pe(remote);
    }
    if (status == ANGARA_OK &&
        (remote->seg->generation != address->generation || soft_remote_dead(remote))) {
        status =
            ANGARA_ERR_PEER_DEAD; /* closed meanwhile: the number may have meant another file */
    }
    if (status == ANGARA_OK && pe != NULL) {
        status = soft_remote_domain_get(pe, remote, &remote->domain);
    }
    if (status != ANGARA_OK) {
        soft_remote_close(remote);
        return status;
    }
    if (remote->domain != NULL) {
        remote->dom    = remote->domain->seg;
        remote->mr_max = remote->domain->mr_max;
        remote->hazard = remote->domain->hazard;
    }
    return ANGARA_OK;
}

void soft_remote_detach(soft_remote_t *remote)
{
    if (remote->domain != NULL) {
        soft_remote_domain_put(remote->domain);
        remote->domain = NULL;
        remote->dom    = NULL;
        remote->hazard = NULL;
    }
    if (remote->process != NULL) {
        soft_remote_process_put(remote->process);
        remote->process = NULL;
    }
}

void soft_remote_close(soft_remote_t *remote)
{
    soft_remote_detach(remote);
    soft_segment_close(&remote->pe_map);
}
