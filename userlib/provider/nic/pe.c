/* SPDX-License-Identifier: BSD-3-Clause */
/* PEs of a NIC: creation with all mappings, the own window, counters, the table of calls. */
#define _GNU_SOURCE
#include "nic.h"

#include "src/config.h"
#include "src/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t page_up(size_t size)
{
    return (size + NIC_PAGE - 1) & ~(size_t)(NIC_PAGE - 1);
}

/* ---- mappings -------------------------------------------------------------------------------- */

/* Where each part of a PE goes; the order is that of ANGARA_MMAP_*. */
static void *map_part(nic_pe_t *pe, unsigned part, size_t size, int prot)
{
    return nic_map(pe->fd, (uint64_t)part << ANGARA_MMAP_SHIFT, page_up(size), prot,
                   "mapping a PE of the NIC");
}

/* Their sizes, for unmapping. */
static void part_sizes(const nic_pe_t *pe, size_t *sizes)
{
    const struct angara_ioc_info *info = &pe->dom->info;

    sizes[ANGARA_MMAP_DOORBELL] = NIC_PAGE;
    sizes[ANGARA_MMAP_STATUS]   = NIC_PAGE;
    sizes[ANGARA_MMAP_CMD]      = info->cmd_entries * sizeof(struct angara_desc);
    sizes[ANGARA_MMAP_EVENT]    = info->event_entries * sizeof(struct angara_event_record);
    sizes[ANGARA_MMAP_MARKER]   = info->marker_slots * sizeof(uint64_t);
    sizes[ANGARA_MMAP_PIO]      = info->pio_bytes;
    sizes[ANGARA_MMAP_WINDOW]   = pe->wake_offset + NIC_PAGE;
}

static angara_status_t map_all(nic_pe_t *pe)
{
    const int rw = PROT_READ | PROT_WRITE;
    size_t    sizes[ANGARA_MMAP_WINDOW + 1];

    part_sizes(pe, sizes);
    pe->doorbell    = map_part(pe, ANGARA_MMAP_DOORBELL, sizes[ANGARA_MMAP_DOORBELL], rw);
    pe->status      = map_part(pe, ANGARA_MMAP_STATUS, sizes[ANGARA_MMAP_STATUS], PROT_READ);
    pe->cmd         = map_part(pe, ANGARA_MMAP_CMD, sizes[ANGARA_MMAP_CMD], rw);
    pe->event       = map_part(pe, ANGARA_MMAP_EVENT, sizes[ANGARA_MMAP_EVENT], PROT_READ);
    pe->markers     = map_part(pe, ANGARA_MMAP_MARKER, sizes[ANGARA_MMAP_MARKER], PROT_READ);
    pe->pio         = map_part(pe, ANGARA_MMAP_PIO, sizes[ANGARA_MMAP_PIO], rw);
    pe->base.window = map_part(pe, ANGARA_MMAP_WINDOW, sizes[ANGARA_MMAP_WINDOW], rw);
    return pe->doorbell && pe->status && pe->cmd && pe->event && pe->markers && pe->pio &&
                   pe->base.window ?
               ANGARA_OK :
               ANGARA_ERR_NO_MEMORY;
}

static void unmap_all(nic_pe_t *pe)
{
    void  *parts[] = {(void *)(uintptr_t)pe->doorbell,
                      (void *)(uintptr_t)pe->status,
                      pe->cmd,
                      (void *)(uintptr_t)pe->event,
                      (void *)(uintptr_t)pe->markers,
                      pe->pio,
                      pe->base.window};
    size_t sizes[ANGARA_MMAP_WINDOW + 1];

    part_sizes(pe, sizes);
    for (unsigned i = 0; i <= ANGARA_MMAP_WINDOW; ++i) {
        if (parts[i] != NULL) {
            munmap(parts[i], page_up(sizes[i]));
        }
    }
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Memory that the PE's rings and tables take, about. */
static size_t rings_size(const nic_pe_t *pe)
{
    size_t sizes[ANGARA_MMAP_WINDOW + 1];

    part_sizes(pe, sizes);
    return page_up(sizes[ANGARA_MMAP_CMD]) + page_up(sizes[ANGARA_MMAP_EVENT]) +
           page_up(sizes[ANGARA_MMAP_MARKER]) + 2 * NIC_PAGE;
}

static angara_status_t create_failed(const nic_pe_t *pe, int error)
{
    switch (error) {
    case ENOSPC:
        ang_error("no PE of the NIC is free: each process takes one or more; see pe_max and "
                  "pe_used in /sys/class/angara/*");
        return ANGARA_ERR_LIMIT;
    case ENOMEM:
        return nic_no_memory("creating a PE", rings_size(pe));
    case EACCES:
        ang_error("creating a PE: ANGARA_JOB_KEY=%llu isn't granted to this user here: ask the "
                  "administrator for angara_jobkey add, on each node, or do without it",
                  (unsigned long long)ang_config.job_key);
        return ANGARA_ERR_SYSTEM;
    default:
        return nic_error(error, "creating a PE");
    }
}

static angara_status_t create_file(nic_pe_t *pe)
{
    struct angara_ioc_pe_create arg = {.size        = sizeof(arg),
                                       .window_size = pe->wake_offset + NIC_PAGE,
                                       .job_key     = ang_config.job_key};
    int                         error;

    error = nic_ioctl(pe->dom->fd, ANGARA_IOC_PE_CREATE, &arg);
    if (error != 0) {
        return create_failed(pe, error);
    }
    /* Reads of the file take interrupts off it and must not wait for one. */
    pe->fd = arg.fd;
    fcntl(pe->fd, F_SETFL, O_RDWR | O_NONBLOCK);
    ang_address_init(&pe->base, NIC_PROVIDER_ID, arg.index, arg.generation);
    nic_address_seal(&pe->base.address, pe->base.window_size);
    return ANGARA_OK;
}

static angara_status_t create_tables(nic_pe_t *pe)
{
    size_t pages = pe->wake_offset / NIC_PAGE + 1;

    pe->window_there = nic_calloc((pages + 63) / 64, sizeof(*pe->window_there));
    pe->pairs        = nic_calloc(ANGARA_PAIRS_MAX, sizeof(*pe->pairs));
    if (pe->window_there == NULL || pe->pairs == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    return ANGARA_OK;
}

static void set_sizes(nic_pe_t *pe)
{
    const struct angara_ioc_info *info = &pe->dom->info;

    pe->cmd_mask     = info->cmd_entries - 1;
    pe->event_mask   = info->event_entries - 1;
    pe->pio_granules = info->pio_bytes / ANGARA_PIO_GRANULE;
}

static void close_files(nic_pe_t *pe)
{
    int *fds[] = {&pe->event_fd, &pe->fd};

    for (unsigned i = 0; i < 2; ++i) {
        if (*fds[i] >= 0) {
            close(*fds[i]);
            *fds[i] = -1;
        }
    }
}

static void pe_in_child(ang_fork_t *node)
{
    close_files(ANG_FORK_OBJECT(nic_pe_t, node));
}

/* With the last descriptor and the last mapping the PE ends: then nothing of it is in flight. */
static void pe_free(nic_pe_t *pe)
{
    ang_fork_remove(&pe->fork);
    close_files(pe);
    unmap_all(pe);
    ang_slots_cleanup(&pe->base.slots);
    nic_own_cleanup(pe);
    free(pe->pairs);
    free(pe->window_there);
    free(pe);
}

static angara_status_t commit(nic_pe_t *pe, uint64_t offset, uint64_t length);

angara_status_t nic_pe_create(angara_domain_h dom, const angara_pe_params_t *params,
                              angara_pe_h *pe_p)
{
    nic_pe_t       *pe;
    angara_status_t status;

    pe = nic_calloc(1, sizeof(*pe));
    if (pe == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    if (params->events > nic_domain(dom)->info.event_entries) {
        ang_debug("the NIC's event rings have %u records, not %u",
                  nic_domain(dom)->info.event_entries, params->events);
    }
    pe->base.ops          = dom->ops;
    pe->base.dom          = dom;
    pe->dom               = nic_domain(dom);
    pe->fd                = -1;
    pe->event_fd          = -1;
    pe->base.window_size  = params->window_size;
    pe->base.fast.asked   = &ang_awake;
    pe->base.fast.watched = &ang_unasked;
    pe->base.fast.front   = &ang_unasked;
    pe->wake_offset       = page_up(params->window_size);
    set_sizes(pe);
    ang_fork_add(&pe->fork, pe_in_child);
    status = nic_own_init(pe);
    if (status == ANGARA_OK) {
        status = create_tables(pe);
    }
    if (status == ANGARA_OK) {
        status = create_file(pe);
    }
    if (status == ANGARA_OK) {
        status = map_all(pe);
    }
    if (status == ANGARA_OK) {
        status = ang_slots_init(&pe->base.slots, pe->markers, pe->dom->info.marker_slots);
    }
    if (status == ANGARA_OK) {
        status = commit(pe, pe->wake_offset, NIC_PAGE);
    }
    if (status == ANGARA_OK) {
        status = nic_pair_set(pe, NIC_SELF_PAIR, &pe->base.address);
    }
    if (status != ANGARA_OK) {
        pe_free(pe);
        return status;
    }
    pthread_mutex_lock(&pe->dom->pes_lock);
    pe->next     = pe->dom->pes;
    pe->dom->pes = pe;
    pthread_mutex_unlock(&pe->dom->pes_lock);
    *pe_p = &pe->base;
    return ANGARA_OK;
}

static void unlink_pe(nic_pe_t *pe)
{
    nic_pe_t **link;

    pthread_mutex_lock(&pe->dom->pes_lock);
    for (link = &pe->dom->pes; *link != pe; link = &(*link)->next) {
    }
    *link = pe->next;
    pthread_mutex_unlock(&pe->dom->pes_lock);
}

void nic_pe_destroy(angara_pe_h base)
{
    nic_pe_t *pe = nic_pe(base);

    nic_peers_destroy(pe);
    unlink_pe(pe);
    pe_free(pe);
}

/* ---- the end of the device ------------------------------------------------------------------- */

void nic_pe_die(nic_pe_t *pe)
{
    if (pe->dead) {
        return;
    }
    pe->dead = 1;
    nic_own_drop(pe, 1);
    ang_error("PE %u: %s", pe->base.address.index,
              nic_load(&pe->status->state) == ANGARA_PE_FAILED ?
                  "the NIC found nonsense in its rings and has stopped it" :
                  "the NIC has gone or failed, or the job key was revoked; dmesg has why");
    for (angara_peer_h peer = pe->base.peers; peer != NULL; peer = peer->next) {
        nic_peer(peer)->error = ANGARA_ERR_PEER_DEAD;
        ang_slots_settle(&pe->base.slots, peer);
    }
    ang_slots_settle(&pe->base.slots, NULL);
}

/* ---- the own window -------------------------------------------------------------------------- */

static angara_status_t commit(nic_pe_t *pe, uint64_t offset, uint64_t length)
{
    struct angara_ioc_window_commit arg = {.size = sizeof(arg), .offset = offset, .length = length};
    int                             error = nic_ioctl(pe->fd, ANGARA_IOC_WINDOW_COMMIT, &arg);

    if (error == ENOMEM) {
        return nic_no_memory("memory of a put window", length);
    }
    if (error != 0) {
        return nic_error(error, "memory of a put window");
    }
    for (uint64_t page = offset / NIC_PAGE; page <= (offset + length - 1) / NIC_PAGE; ++page) {
        pe->window_there[page / 64] |= 1ull << (page % 64);
    }
    return ANGARA_OK;
}

angara_status_t nic_pe_window_commit(angara_pe_h base, size_t offset, size_t length)
{
    return commit(nic_pe(base), offset, length);
}

int nic_window_there(const nic_pe_t *pe, uint64_t offset, uint64_t length)
{
    if (length == 0) {
        return 1;
    }
    for (uint64_t page = offset / NIC_PAGE; page <= (offset + length - 1) / NIC_PAGE; ++page) {
        if ((pe->window_there[page / 64] >> (page % 64) & 1) == 0) {
            return 0;
        }
    }
    return 1;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static void nic_pe_counters(angara_pe_h base, angara_counters_t *counters)
{
    nic_pe_t             *pe    = nic_pe(base);
    const volatile __u64 *count = pe->status->counters;

    pthread_mutex_lock(&pe->own_lock);
    *counters = pe->counters; /* what the CPU did for the own PE, and what only we know */
    pthread_mutex_unlock(&pe->own_lock);
    counters->offload_puts += count[ANGARA_CNT_OFF_PUTS];
    counters->offload_gets += count[ANGARA_CNT_OFF_GETS];
    counters->offload_bytes += count[ANGARA_CNT_OFF_BYTES];
    counters->atomics += count[ANGARA_CNT_ATOMICS];
    counters->notifies       = count[ANGARA_CNT_NOTIFIES];
    counters->notify_refused = count[ANGARA_CNT_REFUSED];
    counters->markers        = count[ANGARA_CNT_MARKERS];
    counters->faults         = count[ANGARA_CNT_FAULTS];
    counters->events_lost    = count[ANGARA_CNT_LOST];
}

/* ---- the provider ---------------------------------------------------------------------------- */

const ang_provider_ops_t ang_nic_provider = {
    .name             = "nic",
    .match            = nic_match,
    .open             = nic_domain_open,
    .close            = nic_domain_close,
    .mr_register      = nic_mr_register,
    .mr_deregister    = nic_mr_deregister,
    .mr_is_stale      = nic_mr_is_stale,
    .mem_alloc        = nic_mem_alloc,
    .mem_free         = nic_mem_free,
    .pe_create        = nic_pe_create,
    .pe_destroy       = nic_pe_destroy,
    .pe_window_commit = nic_pe_window_commit,
    .pe_progress      = nic_pe_progress,
    .pe_event_poll    = nic_event_poll,
    .pe_event_fd      = nic_event_fd,
    .pe_event_arm     = nic_event_arm,
    .pe_event_disarm  = nic_event_disarm,
    .pe_counters      = nic_pe_counters,
    .is_reachable     = nic_is_reachable,
    .peer_connect     = nic_peer_connect,
    .peer_disconnect  = nic_peer_disconnect,
    .peer_status      = nic_peer_status,
    .peer_reset       = nic_peer_reset,
    .put              = nic_put,
    .put_flag         = nic_put_flag,
    .post             = nic_post,
    .post_batch       = nic_post_batch,
    .notify           = nic_notify,
    .wake             = nic_wake,
    .marker           = nic_marker,
    .marker_self      = nic_marker_self,
    .pe_settle        = nic_pe_settle,
};
