/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs of the soft fabric: connecting, the look after dead peers, errors. See soft.h. */
#define _GNU_SOURCE
#include "agent.h"
#include "gpu_mem.h"
#include "vm.h"

#include "src/alloc.h"
#include "src/clock.h"
#include "src/config.h"
#include "src/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* ---- reachability ---------------------------------------------------------------------------- */

static int same_host(const angara_address_t *address)
{
    soft_process_t self;

    return address->magic == ANGARA_ADDRESS_MAGIC && address->provider == SOFT_PROVIDER_ID &&
           soft_process_self(&self) == ANGARA_OK && address->loc[3] == self.host;
}

/* `level`: how loud to say why not. A version mismatch is always an error, told once. */
static angara_status_t reach(const angara_address_t *address, ang_log_level_t level)
{
    soft_process_t  self;
    angara_status_t status = ang_address_check(address, SOFT_PROVIDER_ID, level);

    if (status != ANGARA_OK) {
        return status;
    }
    status = soft_process_self(&self);
    if (status != ANGARA_OK) {
        return status;
    }
    if (address->loc[3] != self.host || address->node != (uint32_t)ang_config.node) {
        ang_log_alike(
            level,
            "unreachable: the peer is on another node (%u, this is %llu%s), and the soft fabric "
            "connects processes of one node",
            address->node, (unsigned long long)ang_config.node,
            address->loc[3] != self.host ? "; another host" : "");
        return ANGARA_ERR_UNREACHABLE;
    }
    if (address->loc[2] != self.pid_ns) {
        ang_log_alike(
            level,
            "unreachable: the peer is in another PID namespace. Start all ranks of a node in "
            "one container, or share the host's (--pid=host)");
        return ANGARA_ERR_UNREACHABLE;
    }
    /* Either might look into the other, but never both: the kernel asks for a capability there. */
    if (address->loc[4] != self.user_ns && address->loc[4] != 0 && self.user_ns != 0) {
        ang_log_alike(
            level,
            "unreachable: the peer is in another user namespace, as in a rootless container of "
            "its own. Start all ranks of a node in one container, or without one");
        return ANGARA_ERR_UNREACHABLE;
    }
    return ANGARA_OK;
}

angara_status_t soft_is_reachable(angara_domain_h dom, const angara_address_t *address)
{
    static int      told;
    angara_status_t status = reach(address, ANG_LOG_INFO);

    (void)dom;
    /* Whoever only asks takes another way, or ends: on one host the reason is worth one line. */
    if (status == ANGARA_ERR_UNREACHABLE && same_host(address) &&
        !__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED)) {
        reach(address, ANG_LOG_WARN);
    }
    return status;
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* Do ptrace rules permit process_vm_* on the peer? Read a word that is known, and write it back. */
static int probe_cma(soft_peer_t *peer)
{
    uint64_t     word   = 0;
    struct iovec local  = {&word, sizeof(word)};
    struct iovec remote = {(void *)(uintptr_t)peer->remote.seg->probe, sizeof(word)};
    ssize_t      moved;

    if (peer->remote.same_process) {
        return 1;
    }
    if (!ang_config.cma) {
        return 0;
    }
    do {
        moved = process_vm_readv(soft_remote_process_task(peer->remote.process), &local, 1, &remote,
                                 1, 0);
    } while (moved < 0 && errno == ESRCH && soft_remote_process_other_task(peer->remote.process));
    if (moved != (ssize_t)sizeof(word) || word != SOFT_MAGIC_PE ||
        process_vm_writev(soft_remote_process_task(peer->remote.process), &local, 1, &remote, 1,
                          0) != (ssize_t)sizeof(word)) {
        if (errno != ESRCH) {
            soft_warn_no_cma(errno);
        }
        return 0;
    }
    return 1;
}

/* Can its pidfd be in the epoll set? Without one its death is found by soft_peers_check() alone. */
static int has_watch(const soft_peer_t *peer)
{
    return !peer->remote.same_process && peer->remote.process->pidfd >= 0;
}

/* The set has the pidfd once, for all peers of the PE that are PEs of that process. */
static angara_status_t watch(soft_pe_t *pe, soft_peer_t *peer)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer->remote.process};

    if (has_watch(peer) &&
        epoll_ctl(pe->epoll_fd, EPOLL_CTL_ADD, peer->remote.process->pidfd, &event) != 0 &&
        errno != EEXIST) {
        ang_error("watching %s failed: %s%s", peer->base.name, strerror(errno), soft_cure(errno));
        return ANGARA_ERR_LIMIT;
    }
    return ANGARA_OK;
}

/* The peer leaves: the last one of its process takes the pidfd out of the set. */
static void unwatch(soft_pe_t *pe, const soft_peer_t *peer)
{
    for (const struct angara_peer *other = pe->base.peers; other != NULL; other = other->next) {
        if (other != &peer->base &&
            ((const soft_peer_t *)other)->remote.process == peer->remote.process) {
            return;
        }
    }
    if (has_watch(peer)) {
        epoll_ctl(pe->epoll_fd, EPOLL_CTL_DEL, peer->remote.process->pidfd, NULL);
    }
}

static void bind_fast_path(soft_pe_t *pe, soft_peer_t *peer)
{
    struct angara_peer_fast *fast = &peer->base.fast;
    char                    *base = (char *)peer->remote.seg + peer->remote.layout.window;

    fast->window      = pe->engine.chaos == NULL ? base : NULL;
    fast->window_size = peer->remote.window_size;
    /* In chaos mode the sleeper is woken by what lands, as by a NIC. */
    fast->armed = pe->engine.chaos == NULL ? &peer->remote.seg->armed : &ang_awake;
    fast->fence = (pe->seg->flags | peer->remote.seg->flags) & SOFT_PE_NEEDS_FENCE;

    fast->generation   = peer->remote.address.generation;
    fast->generation_p = &peer->remote.seg->generation;
    fast->queued       = &pe->engine.queued;
}

void soft_peers_unmap(soft_pe_t *pe)
{
    for (angara_peer_h peer = pe->base.peers; peer != NULL; peer = peer->next) {
        ang_peer_unmap(peer);
    }
}

angara_status_t soft_peer_connect(angara_pe_h base, const angara_address_t *address,
                                  angara_peer_h *peer_p)
{
    soft_pe_t      *pe     = soft_pe(base);
    angara_status_t status = reach(address, ANG_LOG_ERROR);
    soft_peer_t    *peer;

    if (status != ANGARA_OK) {
        return status;
    }
    peer = ang_calloc(1, sizeof(*peer), "a peer");
    if (peer == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    peer->agent = -1;
    soft_paces_init(&peer->paces);
    status = soft_remote_open(address, pe, &peer->remote);
    if (status != ANGARA_OK) {
        goto err_free;
    }
    ang_peer_init(&peer->base, base, address, (int)peer->remote.process->pid);
    status = watch(pe, peer);
    if (status != ANGARA_OK) {
        goto err_remote;
    }
    soft_remote_poke_prepare(&peer->remote, peer->remote.seg->wake_fd,
                             peer->remote.seg->wake_inode);
    pe->owner     = soft_owner();
    peer->is_self = ang_address_is_own(base, address);
    peer->cma     = probe_cma(peer);
    if (!peer->cma || !ang_config.loopback) {
        soft_helper_start();   /* the rules are the same there, as a rule */
        soft_agent_wake(peer); /* so that the peer has a helper by the time it computes */
    }
    bind_fast_path(pe, peer);
    ang_engine_pair_add(&pe->engine, &peer->pair);
    ang_peer_link(&peer->base);
    ang_info("connected to %s%s, window of %zu bytes: private memory by %s", peer->base.name,
             peer->is_self             ? " (itself)" :
             peer->remote.same_process ? " (this process)" :
                                         "",
             peer->remote.window_size,
             peer->remote.same_process ? "plain copies" :
             peer->cma                 ? "process_vm" :
                                         "its helper thread");
    *peer_p = &peer->base;
    return ANGARA_OK;

err_remote:
    soft_remote_close(&peer->remote);
err_free:
    free(peer);
    return status;
}

/* ---- dropping -------------------------------------------------------------------------------- */

/* The first of them, or that one, whose operations haven't ended; NULL if there is none. */
static soft_peer_t *unfinished(soft_pe_t *pe, soft_peer_t *only)
{
    for (angara_peer_h base = pe->base.peers; base != NULL; base = base->next) {
        soft_peer_t *peer = soft_peer(base);

        if ((only == NULL || peer == only) && !peer->down &&
            (soft_front_is_out(peer) || !ang_engine_pair_idle(&peer->pair))) {
            return peer;
        }
    }
    return NULL;
}

/* Drop what is queued, and set the pair's error. */
static void drop_queue(soft_pe_t *pe, soft_peer_t *peer, angara_status_t error)
{
    ang_peer_unmap(&peer->base);
    soft_paces_drop(&peer->paces);
    ang_engine_pair_reset(&peer->pair, error);
    ang_slots_settle(&pe->base.slots, &peer->base);
}

static int withdraw(soft_pe_t *pe, soft_peer_t *peer)
{
    int ended;

    ang_engine_lock(&pe->engine);
    ended = soft_agent_withdraw(peer);
    ang_engine_unlock(&pe->engine);
    return ended;
}

static void abandon(soft_pe_t *pe, soft_peer_t *peer)
{
    ang_engine_lock(&pe->engine);
    soft_agent_abandon(peer);
    ang_engine_unlock(&pe->engine);
}

/* The wait for the answer to a request began when it was first to be sent. */
static void wait_for(soft_wait_t *wait, const soft_peer_t *peer)
{
    if (peer->agent_since_ns != 0) {
        soft_wait_since(wait, peer->agent_since_ns);
    } else {
        soft_wait_begin(wait);
    }
}

static pid_t pid_of(const soft_peer_t *peer)
{
    return (pid_t)(peer->base.address.loc[0] & 0x7fffffff);
}

void soft_peers_end(soft_pe_t *pe, soft_peer_t *only)
{
    soft_peer_t *peer;
    soft_wait_t  wait;

    soft_fronts_look(pe, 1);
    peer = unfinished(pe, only);
    if (peer != NULL) {
        wait_for(&wait, peer);
    }
    while ((peer = unfinished(pe, only)) != NULL) {
        if (soft_engine_progress(pe) != 0 || ang_engine_pair_flies(&peer->pair)) {
            wait_for(&wait, peer); /* as long as it goes on, or a GPU is at it */
        } else if (!soft_wait_turn(&wait, pid_of(peer), "what it was asked for")) {
            break;
        }
        soft_pe_progress(&pe->base);
    }
    for (angara_peer_h base = pe->base.peers; base != NULL; base = base->next) {
        peer = soft_peer(base);
        if (only == NULL || peer == only) {
            if (!ang_engine_pair_idle(&peer->pair)) {
                ang_warn("%s doesn't answer: its operations in flight are given up",
                         peer->base.name);
            }
            drop_queue(pe, peer, ANGARA_ERR_PEER_DEAD);
            withdraw(pe, peer);
        }
    }
}

void soft_peer_count(angara_peer_h peer, angara_counters_t *counters)
{
    struct angara_fast_counts done = angara_fast_done(peer);

    counters->offload_puts += done.puts;
    counters->offload_gets += done.gets;
    counters->offload_bytes += done.put_bytes + done.get_bytes;
    counters->atomics += done.atomics;
}

void soft_peer_destroy(soft_peer_t *peer)
{
    soft_pe_t *pe = soft_pe(peer->base.pe);

    abandon(pe, peer);
    ang_engine_pair_remove(&peer->pair);
    soft_peer_count(&peer->base, &pe->counters);
    ang_peer_unlink(&peer->base);
    if (!peer->down) {
        unwatch(pe, peer);
    }
    soft_events_forget(pe, peer);
    ang_engine_lock(&pe->engine); /* a guest works on other pairs, with the PE's mappings */
    soft_remote_detach(&peer->remote);
    ang_engine_unlock(&pe->engine);
    soft_unpin(&peer->pinned);
    soft_remote_close(&peer->remote);
    free(peer);
    soft_gpu_tidy_all();
}

void soft_peer_disconnect(angara_peer_h base)
{
    soft_peers_end(soft_pe(base->pe), soft_peer(base));
    soft_peer_destroy(soft_peer(base));
}

/* ---- errors and death ------------------------------------------------------------------------ */

uint64_t soft_peer_gpus(angara_peer_h base)
{
    const soft_remote_t *remote = &soft_peer(base)->remote;

    return remote->same_process ? 0 : __atomic_load_n(&remote->seg->gpus, __ATOMIC_RELAXED);
}

int soft_peer_settled(angara_peer_h base)
{
    ang_pair_t *pair = &soft_peer(base)->pair;

    soft_peer(base)->has_begun = 0;
    return (!soft_front_is_out(soft_peer(base)) || soft_front_end(soft_peer(base))) &&
           !ang_engine_is_shared(pair->engine) && !soft_peer(base)->down &&
           ang_engine_is_settled(pair);
}

#define HURRY_TURNS 4 /* requests, one behind the other */

/* Is a turn of progress worth while, or does somebody ask for it? */
static int hurries(soft_peer_t *peer)
{
    if (!soft_front_is_over(peer)) {
        return angara_pe_is_asked(peer->base.pe);
    }
    return soft_agent_hurry(peer);
}

int soft_peer_hurry(angara_peer_h base)
{
    soft_peer_t *peer = soft_peer(base);

    for (unsigned i = 0; i < HURRY_TURNS && peer->pair.engine->chaos == NULL && hurries(peer);
         ++i) {
        soft_pe_progress(base->pe);
    }
    return soft_peer_settled(base);
}

angara_status_t soft_peer_status(angara_peer_h base)
{
    soft_peer_t *peer = soft_peer(base);

    if (peer->down) {
        return ANGARA_ERR_PEER_DEAD;
    }
    return __atomic_load_n(&peer->pair.error, __ATOMIC_ACQUIRE);
}

angara_status_t soft_peer_reset(angara_peer_h base)
{
    static const struct timespec throttle = {0, 1000000};
    soft_peer_t                 *peer     = soft_peer(base);
    soft_wait_t                  wait;

    if (peer->down) {
        return ANGARA_ERR_PEER_DEAD;
    }
    if (peer->pair.error != ANGARA_OK) {
        nanosleep(&throttle, NULL); /* nobody tries keys at full speed */
    }
    drop_queue(soft_pe(base->pe), peer, ANGARA_ERR_PAIR);
    wait_for(&wait, peer);
    while (!withdraw(soft_pe(base->pe), peer)) {
        if (!soft_wait_turn(&wait, pid_of(peer), "what it was asked for")) {
            return ANGARA_ERR_BUSY;
        }
    }
    ang_engine_pair_reset(&peer->pair, ANGARA_OK);
    return ANGARA_OK;
}

static void peer_down(soft_pe_t *pe, soft_peer_t *peer, int exited)
{
    int   closed = peer->remote.seg->generation != peer->remote.address.generation;
    pid_t pid    = peer->remote.process->pid; /* which may end with the last of its peers */

    unwatch(pe, peer);
    peer->down = 1;
    ang_peer_cut(&peer->base); /* what is inline becomes a call, which says so */
    ang_info("%s %s%s", peer->base.name, exited ? "exited" : "closed its PE",
             closed ? "" : " without closing its PE");
    drop_queue(pe, peer, ANGARA_ERR_PEER_DEAD);
    abandon(pe, peer);
    ang_engine_lock(&pe->engine);
    soft_remote_detach(&peer->remote);
    soft_event_raise(pe, ANGARA_EVENT_PEER_DOWN, closed ? ANGARA_OK : ANGARA_ERR_PEER_DEAD, peer,
                     0);
    ang_engine_unlock(&pe->engine);
    if (exited) {
        soft_agent_reclaim(pe, pid);
    }
}

/* All its PEs went with it. */
static unsigned process_down(soft_pe_t *pe, const soft_remote_process_t *process)
{
    unsigned count = 0;

    for (angara_peer_h base = pe->base.peers; base != NULL; base = base->next) {
        soft_peer_t *peer = soft_peer(base);

        if (!peer->down && peer->remote.process == process) {
            peer_down(pe, peer, 1);
            count++;
        }
    }
    return count;
}

/* Looking for an exec costs system calls: so many peers at a time. */
#define EXEC_CHECKS 16

unsigned soft_peers_check(soft_pe_t *pe)
{
    struct epoll_event events[16];
    unsigned           groups = pe->npeers / EXEC_CHECKS + 1;
    unsigned           index  = 0;
    unsigned           count  = 0;
    int                found  = epoll_wait(pe->epoll_fd, events, 16, 0);

    soft_wake_owed(pe);
    for (int i = 0; i < found; ++i) {
        if (events[i].data.ptr != NULL) {
            count += process_down(pe, events[i].data.ptr);
        }
    }
    for (angara_peer_h base = pe->base.peers; base != NULL; base = base->next) {
        soft_peer_t *peer   = soft_peer(base);
        int          is_due = index++ % groups == pe->checks % groups;

        if (!peer->down && peer->remote.seg->generation != peer->remote.address.generation) {
            peer_down(pe, peer, 0);
            count++;
        } else if (!peer->down && ((!has_watch(peer) && soft_remote_dead(&peer->remote)) ||
                                   (is_due && soft_remote_replaced(&peer->remote)))) {
            peer_down(pe, peer, 1);
            count++;
        }
        if (!peer->down) {
            soft_remote_process_check_task(peer->remote.process);
        }
    }
    ang_engine_lock(&pe->engine);
    soft_maps_trim(&pe->maps);
    ang_engine_unlock(&pe->engine);
    pe->npeers = index;
    pe->checks++;
    return count;
}
