/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Another process's PE and domain as this process maps them. Everything read from there is checked
 * before use; the mappings stay valid (sealed files) whatever happens to the other process.
 */
#define _GNU_SOURCE
#include "soft.h"

#include "src/clock.h"
#include "src/config.h"
#include "src/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
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
    struct pollfd poller     = {remote->pidfd, POLLIN, 0};
    uint64_t      start_time = 0;

    if (remote->same_process) {
        return 0;
    }
    if (remote->pidfd < 0) { /* a kernel or a profile without pidfds: ask /proc */
        switch (soft_process_look(remote->pid, &start_time)) {
        case SOFT_ALIVE:
            return start_time != remote->address.loc[1];
        case SOFT_GONE:
            return 1;
        default:
            return 0;
        }
    }
    return poll(&poller, 1, 0) > 0;
}

int soft_remote_replaced(const soft_remote_t *remote)
{
    return !remote->same_process &&
           !soft_segment_is(remote->pid, address_fd(&remote->address), &remote->pe_map);
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
    soft_remote_check_task(remote);
    remote->next_check_ns = now + ang_config.peer_check_ms * 1000000;
    return 1;
}

void soft_remote_check_task(soft_remote_t *remote)
{
    char path[64];

    if (remote->task != remote->pid) {
        snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)remote->pid, (int)remote->task);
        if (access(path, F_OK) != 0 && !soft_remote_other_task(remote)) {
            remote->task = remote->pid;
        }
    }
}

int soft_remote_other_task(soft_remote_t *remote)
{
    pid_t task = soft_remote_dead(remote) ? -1 : soft_process_task(remote->pid, remote->task);

    if (task < 0) {
        errno = ESRCH;
        return 0;
    }
    remote->task = task;
    return 1;
}

/* Bind to the very process that the address names: a pidfd, then its start time. */
static angara_status_t bind_process(const angara_address_t *address, soft_remote_t *remote)
{
    uint64_t start_time = 0;

    remote->pid          = address_pid(address);
    remote->task         = remote->pid;
    remote->same_process = remote->pid == getpid();
    if (remote->pid <= 0) {
        return ANGARA_ERR_UNREACHABLE;
    }
    remote->pidfd = (int)syscall(SYS_pidfd_open, remote->pid, 0);
    if (remote->pidfd < 0 && errno != ENOSYS && errno != EPERM) {
        if (errno == ESRCH || errno == EINVAL) {
            return ANGARA_ERR_PEER_DEAD;
        }
        ang_error("pidfd_open(%d) failed: %s%s", (int)remote->pid, strerror(errno),
                  errno == EMFILE ? ". Raise the limit with ulimit -n" : "");
        return errno == EMFILE || errno == ENFILE ? ANGARA_ERR_LIMIT : ANGARA_ERR_SYSTEM;
    }
    switch (soft_process_look(remote->pid, &start_time)) {
    case SOFT_ALIVE:
        /* Else the number was given to another process since. */
        return start_time == address->loc[1] && !soft_remote_dead(remote) ? ANGARA_OK :
                                                                            ANGARA_ERR_PEER_DEAD;
    case SOFT_GONE:
        return ANGARA_ERR_PEER_DEAD;
    default:
        ang_error("/proc/%d/stat can't be read: %s%s", (int)remote->pid, strerror(errno),
                  errno == EMFILE ? ". Raise the limit with ulimit -n" : "");
        return ANGARA_ERR_LIMIT;
    }
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
                  (int)remote->pid, seg->version, seg->layout, angara_version(), SOFT_LAYOUT);
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

static angara_status_t check_domain(soft_remote_t *remote)
{
    const soft_domain_seg_t *dom    = remote->dom;
    uint32_t                 mr_max = dom->mr_max;

    if (dom->magic != SOFT_MAGIC_DOMAIN || dom->layout != SOFT_LAYOUT ||
        mr_max > (remote->dom_map.size - sizeof(*dom)) / sizeof(dom->entries[0])) {
        return ANGARA_ERR_UNREACHABLE;
    }
    remote->mr_max = mr_max;
    return ANGARA_OK;
}

/* Claim a hazard slot: a free one, or in the second round (`reclaim`) one of a dead process. */
static int claim_hazard_round(soft_remote_t *remote, int reclaim)
{
    soft_domain_seg_t *dom  = remote->dom;
    uint64_t           mine = soft_owner();
    uint64_t           owner;
    uint32_t           used;

    for (uint32_t i = 0; i < SOFT_HAZARDS; ++i) {
        soft_hazard_t *hazard = &dom->hazards[i];

        owner = __atomic_load_n(&hazard->owner, __ATOMIC_RELAXED);
        if (owner != 0 && !(reclaim && !soft_owner_alive(owner))) {
            continue;
        }
        if (__atomic_compare_exchange_n(&hazard->owner, &owner, mine, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
            __atomic_store_n(&hazard->key, 0, __ATOMIC_RELAXED);
            used = __atomic_load_n(&dom->hazards_used, __ATOMIC_RELAXED);
            while (used < i + 1 &&
                   !__atomic_compare_exchange_n(&dom->hazards_used, &used, i + 1, 0,
                                                __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
            }
            remote->hazard = hazard;
            return 1;
        }
    }
    return 0;
}

static angara_status_t claim_hazard(soft_remote_t *remote)
{
    if (soft_owner() == 0) {
        ang_error("/proc/self/stat can't be read: %s%s", strerror(errno),
                  errno == EMFILE ? ". Raise the limit with ulimit -n" : "");
        return ANGARA_ERR_LIMIT;
    }
    if (claim_hazard_round(remote, 0) || claim_hazard_round(remote, 1)) {
        return ANGARA_OK;
    }
    ang_error("pid %d has %u peers already, which is the limit of a domain", (int)remote->pid,
              SOFT_HAZARDS);
    return ANGARA_ERR_LIMIT;
}

static void close_descriptors(soft_remote_t *remote)
{
    int *fds[] = {&remote->pidfd, &remote->wake_fd, &remote->helper_fd};

    for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); ++i) {
        if (*fds[i] >= 0) {
            close(*fds[i]);
            *fds[i] = -1;
        }
    }
}

/* The mappings aren't inherited. */
static void remote_in_child(ang_fork_t *node)
{
    close_descriptors(ANG_FORK_OBJECT(soft_remote_t, node));
}

angara_status_t soft_remote_open(const angara_address_t *address, soft_remote_t *remote)
{
    angara_status_t status;

    memset(remote, 0, sizeof(*remote));
    remote->address    = *address;
    remote->pidfd      = -1;
    remote->wake_fd    = -1;
    remote->helper_fd  = -1;
    remote->pe_map.fd  = -1;
    remote->dom_map.fd = -1;
    ang_fork_add(&remote->fork, remote_in_child);

    status = bind_process(address, remote);
    if (status == ANGARA_OK) {
        status = soft_segment_open(remote->pid, address_fd(address), sizeof(soft_pe_seg_t),
                                   &remote->pe_map);
    }
    if (status == ANGARA_OK) {
        remote->seg = remote->pe_map.base;
        status      = check_pe(remote);
    }
    if (status == ANGARA_OK) {
        status = soft_segment_open(remote->pid, remote->seg->domain_fd, sizeof(soft_domain_seg_t),
                                   &remote->dom_map);
    }
    if (status == ANGARA_OK) {
        remote->dom = remote->dom_map.base;
        status      = check_domain(remote);
    }
    if (status == ANGARA_OK &&
        (remote->seg->generation != address->generation || soft_remote_dead(remote))) {
        status =
            ANGARA_ERR_PEER_DEAD; /* closed meanwhile: the numbers may have meant other files */
    }
    if (status == ANGARA_OK) {
        status = claim_hazard(remote);
    }
    if (status != ANGARA_OK) {
        soft_remote_close(remote);
    }
    return status;
}

void soft_remote_detach(soft_remote_t *remote)
{
    for (unsigned i = 0; i < SOFT_MAPS; ++i) {
        if (remote->maps[i].key != 0) {
            soft_segment_close(&remote->maps[i].seg);
            remote->maps[i].key = 0;
        }
    }
    if (remote->hazard != NULL) {
        __atomic_store_n(&remote->hazard->key, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&remote->hazard->owner, 0, __ATOMIC_RELEASE);
        remote->hazard = NULL;
    }
    remote->dom = NULL;
    soft_segment_close(&remote->dom_map);
    ang_fork_remove(&remote->fork);
    close_descriptors(remote);
}

void soft_remote_close(soft_remote_t *remote)
{
    soft_remote_detach(remote);
    soft_segment_close(&remote->pe_map);
}

/* Descriptor of the pipe, opened on first use. Two threads may come here: one of them wins. */
static int poke_fd(soft_remote_t *remote, int fd, int *cache)
{
    int         known = __atomic_load_n(cache, __ATOMIC_ACQUIRE);
    struct stat info;
    int         opened;

    if (known >= 0) {
        return known;
    }
    /* Opened for reading too, so that there always is a reader and never a SIGPIPE. */
    opened = soft_open_of(remote->pid, fd, S_IFIFO, O_RDWR | O_NONBLOCK, &info);
    /* Generation 0 comes before the pipe is closed: while it stands, the number meant this pipe. */
    if (opened >= 0 && (__atomic_load_n(&remote->seg->generation, __ATOMIC_SEQ_CST) !=
                            remote->address.generation ||
                        soft_remote_dead(remote))) {
        close(opened);
        errno = ESRCH;
        return -1;
    }
    if (opened >= 0 && !__atomic_compare_exchange_n(cache, &known, opened, 0, __ATOMIC_ACQ_REL,
                                                    __ATOMIC_ACQUIRE)) {
        close(opened);
        return known;
    }
    return opened;
}

int soft_remote_poke(soft_remote_t *remote, int fd, int *cache)
{
    int pipe_fd = poke_fd(remote, fd, cache);

    if (pipe_fd < 0) {
        ang_debug("waking pid %d: %s", (int)remote->pid, strerror(errno));
        return 0;
    }
    return write(pipe_fd, "", 1) == 1 || errno == EAGAIN; /* a full pipe wakes as well */
}

angara_status_t soft_remote_map(soft_remote_t *remote, uint64_t key, int fd, uint64_t offset,
                                uint64_t length, char **base_p)
{
    soft_map_t     *map = &remote->maps[key % SOFT_MAPS];
    soft_segment_t  seg;
    angara_status_t status;

    if (__builtin_expect(map->key == key, 1)) {
        *base_p = map->base;
        return ANGARA_OK;
    }
    if (offset + length < offset) {
        return ANGARA_ERR_BOUNDS;
    }
    status = soft_segment_open(remote->pid, fd, offset + length, &seg);
    if (status != ANGARA_OK) {
        return status;
    }
    if (soft_remote_dead(remote)) { /* the number may have meant another process */
        soft_segment_close(&seg);
        return ANGARA_ERR_PEER_DEAD;
    }
    if (map->key != 0) {
        soft_segment_close(&map->seg);
    }
    map->seg  = seg;
    map->base = (char *)seg.base + offset;
    map->key  = key;
    *base_p   = map->base;
    return ANGARA_OK;
}

void soft_remote_trim(soft_remote_t *remote)
{
    uint64_t in_use;

    if (remote->dom == NULL) {
        return;
    }
    in_use = __atomic_load_n(&remote->hazard->key, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < SOFT_MAPS; ++i) {
        soft_map_t *map = &remote->maps[i];

        if (map->key != 0 && map->key != in_use &&
            soft_mr_check(remote->dom, remote->mr_max, map->key, 0, 0, 0, NULL, NULL) !=
                ANGARA_OK) {
            soft_segment_close(&map->seg);
            map->key = 0;
        }
    }
}
