/* SPDX-License-Identifier: BSD-3-Clause */
/* PEs of the soft fabric: creation, window, marker slots, progress. See soft.h. */
#define _GNU_SOURCE
#include "agent.h"
#include "gpu_mem.h"

#include "src/alloc.h"
#include "src/clock.h"
#include "src/config.h"
#include "src/log.h"
#include "src/prefault.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static size_t page_up(size_t size)
{
    return (size + SOFT_PAGE - 1) & ~(size_t)(SOFT_PAGE - 1);
}

void soft_layout(unsigned events, size_t window_size, soft_layout_t *layout)
{
    layout->events  = page_up(sizeof(soft_pe_seg_t));
    layout->service = layout->events + page_up(soft_record_ring_size(events));
    layout->staging = layout->service + page_up(sizeof(soft_service_t));
    layout->window  = layout->staging + soft_staging_offset(SOFT_SERVICE_SLOTS);
    layout->total   = layout->window + page_up(window_size);
}

/* ---- creation -------------------------------------------------------------------------------- */

static angara_status_t create_fds(soft_pe_t *pe)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    struct stat        info  = {0};

    pe->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (pe->epoll_fd < 0 || pipe2(pe->wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0 ||
        epoll_ctl(pe->epoll_fd, EPOLL_CTL_ADD, pe->wake_pipe[0], &event) != 0 ||
        fstat(pe->wake_pipe[1], &info) != 0) {
        ang_log_alike(ANG_LOG_ERROR, "creating the descriptors of a PE failed: %s%s",
                      strerror(errno), soft_cure(errno));
        return errno == EMFILE || errno == ENFILE ? ANGARA_ERR_LIMIT : ANGARA_ERR_SYSTEM;
    }
    pe->wake_inode = info.st_ino;
    return ANGARA_OK;
}

static angara_status_t create_segment(soft_pe_t *pe, size_t window_size, unsigned events)
{
    angara_status_t status;

    soft_layout(events, window_size, &pe->layout);
    status = soft_segment_create("angara-pe", NULL, pe->layout.total, &pe->segment);
    if (status == ANGARA_OK) {
        status = soft_segment_commit(&pe->segment, 0, pe->layout.staging);
    }
    return status;
}

#define PE "a PE"

static angara_status_t create_tables(soft_pe_t *pe)
{
    angara_marker_slot_t *words = ang_calloc(SOFT_MARKER_SLOTS, sizeof(*words), PE);

    pe->events = ang_calloc(pe->num_events, sizeof(*pe->events), PE);
    if (words == NULL || pe->events == NULL) {
        free((void *)words);
        return ANGARA_ERR_NO_MEMORY;
    }
    return ang_slots_init(&pe->base.slots, words, SOFT_MARKER_SLOTS);
}

/* PE number within the node: unique among the live PEs of the host. */
static uint32_t next_index(pid_t pid)
{
    static unsigned counter;

    return (uint32_t)pid << 8 | (__atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED) & 0xff);
}

static angara_status_t make_address(soft_pe_t *pe)
{
    angara_address_t *address    = &pe->base.address;
    uint32_t          generation = 0;
    soft_process_t    self;
    angara_status_t   status = soft_process_self(&self);

    while (status == ANGARA_OK && generation == 0) {
        status = soft_random(&generation, sizeof(generation));
    }
    if (status != ANGARA_OK) {
        return status;
    }
    ang_address_init(&pe->base, SOFT_PROVIDER_ID, next_index(self.pid), generation);
    address->loc[0] = (uint64_t)pe->segment.fd << 32 | (uint32_t)self.pid;
    address->loc[1] = self.start_time;
    address->loc[2] = self.pid_ns;
    address->loc[3] = self.host;
    address->loc[4] = self.user_ns;
    pe->seg->flags  = self.membarrier ? 0 : SOFT_PE_NEEDS_FENCE;
    return ANGARA_OK;
}

/* A word that peers read and write back by process_vm_* to see whether ptrace rules permit it. */
static volatile uint64_t soft_probe_word = SOFT_MAGIC_PE;

static void fill_segment(soft_pe_t *pe, size_t window_size)
{
    soft_pe_seg_t *seg = pe->seg;

    seg->layout         = SOFT_LAYOUT;
    seg->index          = pe->base.address.index;
    seg->generation     = pe->base.address.generation;
    seg->pid            = (int32_t)getpid();
    seg->size           = pe->layout.total;
    seg->window_offset  = pe->layout.window;
    seg->window_size    = window_size;
    seg->events         = pe->num_events;
    seg->domain_fd      = pe->dom->seg.fd;
    seg->domain_id      = pe->dom->shared->id;
    seg->wake_fd        = pe->wake_pipe[1];
    seg->wake_inode     = pe->wake_inode;
    seg->helper_fd      = soft_helper_wake_fd();
    seg->helper_inode   = soft_helper_wake_inode();
    seg->probe          = (uintptr_t)&soft_probe_word;
    pe->service->helper = SOFT_HELPER_NONE;
    strncpy(seg->version, angara_version(), sizeof(seg->version) - 1);
    __atomic_store_n(&seg->magic, SOFT_MAGIC_PE, __ATOMIC_RELEASE);
}

/* Each PE its own order; 0 only if chaos is off. */
static uint64_t chaos_seed(const soft_pe_t *pe)
{
    uint64_t seed = ang_config.chaos + pe->base.address.index;

    return ang_config.chaos == 0 ? 0 : seed != 0 ? seed : 1;
}

static void close_descriptors(soft_pe_t *pe)
{
    int *fds[] = {&pe->epoll_fd, &pe->wake_pipe[0], &pe->wake_pipe[1], &pe->timer_fd};

    for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); ++i) {
        if (*fds[i] >= 0) {
            close(*fds[i]);
            *fds[i] = -1;
        }
    }
}

static void pe_in_child(ang_fork_t *node)
{
    soft_pe_t *pe = ANG_FORK_OBJECT(soft_pe_t, node);

    pe->base.fast.asked   = &ang_awake;
    pe->base.fast.watched = &ang_unasked;
    pe->base.fast.front   = &ang_unasked;
    close_descriptors(pe);
    soft_segment_forget(&pe->segment);
}

static void pe_free(soft_pe_t *pe)
{
    ang_fork_remove(&pe->fork);
    close_descriptors(pe);
    soft_segment_close(&pe->segment);
    free((void *)pe->base.slots.words);
    ang_slots_cleanup(&pe->base.slots);
    free(pe->events);
    free(pe);
}

angara_status_t soft_pe_create(angara_domain_h dom, const angara_pe_params_t *params,
                               angara_pe_h *pe_p)
{
    unsigned        events = params->events;
    soft_pe_t      *pe     = ang_calloc(1, sizeof(*pe), PE);
    angara_status_t status;

    if (pe == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    pe->base.ops     = dom->ops;
    pe->base.dom     = dom;
    pe->dom          = (soft_domain_t *)dom;
    pe->num_events   = events;
    pe->is_relaxed   = (params->flags & ANGARA_PE_RELAXED) != 0;
    pe->segment.fd   = -1;
    pe->epoll_fd     = -1;
    pe->wake_pipe[0] = -1;
    pe->wake_pipe[1] = -1;
    pe->timer_fd     = -1;
    ang_fork_add(&pe->fork, pe_in_child);

    status = create_fds(pe);
    if (status == ANGARA_OK) {
        status = create_tables(pe);
    }
    if (status == ANGARA_OK) {
        status = create_segment(pe, params->window_size, events);
    }
    if (status == ANGARA_OK) {
        pe->seg = pe->segment.base;
        status  = make_address(pe);
    }
    if (status == ANGARA_OK) {
        status = soft_helper_prepare(pe);
    }
    if (status == ANGARA_OK) {
        status = ang_engine_init(
            &pe->engine, &soft_backend, pe, ang_config.chaos ? SOFT_CHAOS_LIMIT : SOFT_RING_LIMIT,
            ang_config.turn_bytes, chaos_seed(pe), (unsigned)ang_config.chaos_delay_us);
    }
    if (status != ANGARA_OK) {
        soft_helper_remove_pe(pe);
        pe_free(pe);
        return status;
    }
    pe->notify  = (soft_record_reader_t){(void *)((char *)pe->seg + pe->layout.events), events, 0,
                                         0};
    pe->service = (void *)((char *)pe->seg + pe->layout.service);
    pe->base.fast.asked   = &pe->service->work;
    pe->base.fast.watched = &ang_unasked;
    pe->base.fast.front   = &ang_unasked;
    pe->watched           = SOFT_SERVICE_SLOTS;
    ang_engine_pair_add(&pe->engine, &pe->self_pair);
    fill_segment(pe, params->window_size);
    soft_helper_add_pe(pe);
    if (!ang_config.loopback || !ang_config.cma) {
        soft_helper_start(); /* peers with our settings will need it */
    }
    pe->base.window      = (char *)pe->seg + pe->layout.window;
    pe->base.window_size = params->window_size;
    *pe_p                = &pe->base;
    return ANGARA_OK;
}

void soft_pe_destroy(angara_pe_h base)
{
    soft_pe_t *pe = soft_pe(base);

    soft_peers_end(pe, NULL); /* who serves us must not take us for closed yet */
    /* From here on peers do; then nothing of ours may go on. */
    __atomic_store_n(&pe->seg->generation, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&pe->seg->armed, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&pe->service->helper, SOFT_HELPER_AWAKE, __ATOMIC_SEQ_CST); /* call nobody */
    while (base->peers != NULL) {
        soft_peer_destroy(soft_peer(base->peers));
    }
    ang_engine_pair_remove(&pe->self_pair);
    soft_helper_remove_pe(pe); /* nobody else knows it now */
    for (unsigned i = 0; i < SOFT_LARGE_SLOTS; ++i) {
        soft_unpin(&pe->pinned[i]);
    }
    soft_gpu_far_end(pe);
    ang_engine_cleanup(&pe->engine);
    pe_free(pe);
    soft_gpu_tidy_all();
}

/* ---- attributes ------------------------------------------------------------------------------ */

static angara_status_t soft_pe_window_commit(angara_pe_h base, size_t offset, size_t length)
{
    soft_pe_t      *pe     = soft_pe(base);
    angara_status_t status = soft_segment_commit(&pe->segment, pe->layout.window + offset, length);

    if (status == ANGARA_OK) {
        ang_prefault(base->window + offset, length);
    }
    return status;
}

static void soft_pe_counters(angara_pe_h base, angara_counters_t *counters)
{
    soft_pe_t *pe = soft_pe(base);

    ang_engine_lock(&pe->engine);
    *counters = pe->counters;
    for (angara_peer_h peer = base->peers; peer != NULL; peer = peer->next) {
        soft_peer_count(peer, counters);
    }
    counters->offload_puts += pe->engine.stats.puts;
    counters->offload_gets += pe->engine.stats.gets;
    counters->offload_bytes += pe->engine.stats.bytes;
    counters->atomics += pe->engine.stats.atomics;
    counters->markers = pe->engine.stats.markers;
    counters->faults  = pe->engine.stats.faults;
    ang_engine_unlock(&pe->engine);
}

static int soft_match(const char *device)
{
    return !strcmp(device, "soft") || !strcmp(device, "soft0") || !strcmp(device, "auto");
}

/* ---- progress -------------------------------------------------------------------------------- */

static unsigned check_peers_sometimes(soft_pe_t *pe)
{
    uint64_t now = ang_clock_ns(CLOCK_MONOTONIC_COARSE);
    unsigned gone;

    pe->base.clock_ns = now;
    if (now < pe->next_check_ns) {
        return 0;
    }
    pe->next_check_ns = now + ang_config.peer_check_ms * 1000000;
    if (!soft_helper_runs()) {
        soft_helper_look();
    }
    gone = soft_peers_check(pe);
    if (gone != 0) {
        soft_helper_forget_dead();
    }
    return gone;
}

/* The PE is armed, and somebody polls all the same: who asks needn't wake the helper. */
static __attribute__((noinline)) void look_armed(soft_pe_t *pe)
{
    uint32_t armed = SOFT_ARMED;

    __atomic_compare_exchange_n(&pe->seg->armed, &armed, SOFT_ARMED_LOOKS, 0, __ATOMIC_SEQ_CST,
                                __ATOMIC_RELAXED);
}

unsigned soft_pe_progress(angara_pe_h base)
{
    soft_pe_t *pe   = soft_pe(base);
    uint64_t   gpus = __atomic_load_n(&ang_gpu_set, __ATOMIC_RELAXED);
    unsigned   count;

    if (__builtin_expect(pe->fronts != NULL, 0)) {
        soft_fronts_look(pe, 0);
    }
    count = soft_engine_progress(pe);

    if (__builtin_expect(pe->seg->gpus != gpus, 0)) {
        __atomic_store_n(&pe->seg->gpus, gpus, __ATOMIC_RELAXED);
    }
    if (__builtin_expect(__atomic_load_n(&pe->seg->armed, __ATOMIC_RELAXED) == SOFT_ARMED, 0)) {
        look_armed(pe);
    }
    soft_helper_wake_if_kicked();
    if (__builtin_expect(angara_pe_is_asked(base), 0)) {
        count += soft_helper_poll(pe, count == 0);
        soft_helper_wake_if_kicked();
        if (count == 0) {
            sched_yield(); /* the helper serves, and may need this processor */
        }
    }
    if (__builtin_expect(__atomic_load_n(&soft_gpu_untidy, __ATOMIC_RELAXED), 0)) {
        soft_gpu_tidy();
    }
    return count + check_peers_sometimes(pe);
}

/* ---- markers --------------------------------------------------------------------------------- */

static angara_status_t soft_marker(angara_peer_h peer, uint32_t slot, uint64_t value)
{
    ang_pair_t     *pair   = &soft_peer(peer)->pair;
    angara_status_t status = soft_front_in_order(soft_peer(peer));

    if (status != ANGARA_OK) {
        return status;
    }
    soft_peer(peer)->has_begun = 0;
    if (ang_engine_is_shared(pair->engine) || !ang_engine_try_marker(pair, slot, value)) {
        ang_desc_t desc = {.op = ANG_OP_MARKER, .loffset = slot, .operand = value};

        return soft_pair_post(pair, &desc, NULL);
    }
    return ANGARA_OK;
}

static angara_status_t soft_marker_self(angara_pe_h pe, uint32_t slot, uint64_t value)
{
    ang_desc_t desc = {.op = ANG_OP_MARKER_SELF, .loffset = slot, .operand = value};

    return soft_pair_post(&soft_pe(pe)->self_pair, &desc, NULL);
}

/* A pair in error has nothing queued, and takes nothing until a reset. */
static void soft_pe_settle(angara_pe_h pe)
{
    ang_engine_lock(&soft_pe(pe)->engine);
    for (angara_peer_h peer = pe->peers; peer != NULL; peer = peer->next) {
        if (soft_peer(peer)->pair.error != ANGARA_OK) {
            ang_slots_settle(&pe->slots, peer);
        }
    }
    ang_engine_unlock(&soft_pe(pe)->engine);
}

/* ---- the provider ---------------------------------------------------------------------------- */

const ang_provider_ops_t ang_soft_provider = {
    .name             = "soft",
    .match            = soft_match,
    .open             = soft_domain_open,
    .close            = soft_domain_close,
    .mr_register      = soft_mr_register,
    .mr_deregister    = soft_mr_deregister,
    .mr_collect       = soft_mr_collect,
    .mr_is_stale      = soft_mr_is_stale,
    .mem_alloc        = soft_mem_alloc,
    .mem_free         = soft_mem_free,
    .pe_create        = soft_pe_create,
    .pe_destroy       = soft_pe_destroy,
    .pe_window_commit = soft_pe_window_commit,
    .pe_progress      = soft_pe_progress,
    .pe_event_poll    = soft_event_poll,
    .pe_event_fd      = soft_event_fd,
    .pe_event_arm     = soft_event_arm,
    .pe_event_disarm  = soft_event_disarm,
    .pe_counters      = soft_pe_counters,
    .is_reachable     = soft_is_reachable,
    .peer_connect     = soft_peer_connect,
    .peer_disconnect  = soft_peer_disconnect,
    .peer_status      = soft_peer_status,
    .peer_settled     = soft_peer_settled,
    .peer_hurry       = soft_peer_hurry,
    .peer_reset       = soft_peer_reset,
    .peer_gpus        = soft_peer_gpus,
    .put              = soft_put,
    .put_flag         = soft_put_flag,
    .post             = soft_post,
    .post_batch       = soft_post_batch,
    .mapped_put       = soft_mapped_put,
    .mapped_get       = soft_mapped_get,
    .asked_get        = soft_asked_get,
    .mapped_atomic    = soft_mapped_atomic,
    .notify           = soft_notify,
    .wake             = soft_wake,
    .marker           = soft_marker,
    .marker_self      = soft_marker_self,
    .pe_settle        = soft_pe_settle,
};
