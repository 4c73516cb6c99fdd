/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The helper: carries out, in the process that owns the memory, what initiators may not do
 * themselves (agent.c is their side). One thread per process, started when somebody may need it and
 * asleep in poll() when idle; the owner's own progress calls serve requests too.
 *
 * Invariants
 *   - soft_helper_lock is held while requests are served and regions touched, so deregistration,
 *     which takes it after withdrawing the key, knows that nothing is touched any more. It is taken
 *     before an engine's lock.
 *   - Requests come from other processes: everything is checked against the own table.
 *   - After a fork the child starts with nothing: no thread, no PEs, a pipe of its own.
 */
#define _GNU_SOURCE
#include "soft.h"

#include "engine/atomic.h"
#include "src/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define STUCK_POLL_MS 5 /* sleep while a request is claimed but not ready */

pthread_mutex_t soft_helper_lock = PTHREAD_MUTEX_INITIALIZER;

/* A requester whose segment is mapped here. */
typedef struct client {
    soft_remote_t  remote;
    struct client *next;
} client_t;

static struct {
    pthread_mutex_t life; /* taken before soft_helper_lock: start, stop, pipe */
    pthread_t       thread;
    int             wanted; /* somebody needs it as soon as there is a PE */
    int             running;
    int             stop;
    int             pipe[2];
    int             have_pipe;
    unsigned        users; /* PEs alive or being made: the pipe stays while there is one */
    soft_pe_t      *pes;
    client_t       *clients;
} helper = {.life = PTHREAD_MUTEX_INITIALIZER, .pipe = {-1, -1}};

/* ---- serving --------------------------------------------------------------------------------- */

static angara_status_t client_get(const angara_address_t *address, soft_remote_t **remote_p)
{
    client_t       *client;
    angara_status_t status;

    for (client = helper.clients; client != NULL; client = client->next) {
        if (!memcmp(&client->remote.address, address, sizeof(*address))) {
            *remote_p = &client->remote;
            return ANGARA_OK;
        }
    }
    if (address->magic != ANGARA_ADDRESS_MAGIC || address->provider != SOFT_PROVIDER_ID ||
        address->version != ANGARA_WIRE_VERSION) {
        return ANGARA_ERR_UNREACHABLE;
    }
    client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    status = soft_remote_open(address, NULL, &client->remote);
    if (status != ANGARA_OK) {
        free(client);
        return status;
    }
    client->next   = helper.clients;
    helper.clients = client;
    *remote_p      = &client->remote;
    return ANGARA_OK;
}

static void clients_drop(int all)
{
    client_t **link = &helper.clients, *client;

    while ((client = *link) != NULL) {
        if (all || soft_remote_dead(&client->remote) ||
            client->remote.seg->generation != client->remote.address.generation) {
            *link = client->next;
            soft_remote_close(&client->remote);
            free(client);
        } else {
            link = &client->next;
        }
    }
}

/*
 * Copy between a region of this process and the requester's staging memory. The program may have
 * unmapped the region: the kernel then says EFAULT where a plain copy would crash.
 */
static angara_status_t guarded_copy(uint64_t dst, uint64_t src, size_t length)
{
    ssize_t moved;

    if (length == 0) {
        return ANGARA_OK;
    }
    moved = soft_vm_read(gettid(), dst, src, length); /* the main thread may have ended */
    if (moved == (ssize_t)length) {
        return ANGARA_OK;
    }
    if (moved >= 0 || errno == EFAULT) {
        return ANGARA_ERR_BOUNDS;
    }
    /* forbidden by seccomp */
    ang_cpu_copy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, length);
    return ANGARA_OK;
}

/*
 * The same for an atomic, which only the CPU can perform: the kernel adds 0 to the word first, and
 * says EFAULT where it is unmapped or read-only. (FUTEX_WAKE_OP; it may also wake one sleeper on
 * that word, as any futex must expect.)
 */
static angara_status_t check_writable(uint64_t addr, size_t width)
{
    void    *word = (void *)(uintptr_t)addr;
    uint64_t probe;

    if (syscall(SYS_futex, word, FUTEX_WAKE_OP_PRIVATE, 0, 0, word,
                FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0)) >= 0 ||
        errno != EFAULT) {
        return ANGARA_OK;
    }
    return guarded_copy((uintptr_t)&probe, addr, width) == ANGARA_OK ? ANGARA_ERR_RIGHTS :
                                                                       ANGARA_ERR_BOUNDS;
}

static angara_status_t serve_atomic(const soft_request_t *request, uint64_t addr, uint64_t *old)
{
    ang_desc_t desc = {
        .atomic  = request->atomic,
        .width   = request->width,
        .operand = request->operand,
        .compare = request->compare,
    };
    angara_status_t status;

    if (addr % request->width != 0) {
        return ANGARA_ERR_BOUNDS;
    }
    status = check_writable(addr, request->width);
    return status == ANGARA_OK ? ang_cpu_atomic((void *)(uintptr_t)addr, &desc, old) : status;
}

static angara_status_t serve_data(soft_pe_t *pe, const soft_request_t *request, uint64_t staging,
                                  uint64_t *old)
{
    static const unsigned rights[ANG_OP_LAST] = {
        [ANG_OP_PUT]    = ANGARA_ACCESS_REMOTE_WRITE,
        [ANG_OP_GET]    = ANGARA_ACCESS_REMOTE_READ,
        [ANG_OP_ATOMIC] = ANGARA_ACCESS_REMOTE_ATOMIC,
    };
    uint64_t        length = request->op == ANG_OP_ATOMIC ? request->width : request->length;
    uint64_t        addr;
    angara_status_t status;

    status = soft_mr_check(pe->dom->shared, pe->dom->mr_max, request->key, request->offset, length,
                           rights[request->op], &addr, NULL);
    if (status != ANGARA_OK) {
        return status;
    }
    switch (request->op) {
    case ANG_OP_PUT:
        return guarded_copy(addr, staging, length);
    case ANG_OP_GET:
        return guarded_copy(staging, addr, length);
    default:
        return serve_atomic(request, addr, old);
    }
}

static int request_is_sane(const soft_request_t *request)
{
    switch (request->op) {
    case ANG_OP_PUT:
    case ANG_OP_GET:
        return request->length <= SOFT_STAGING && request->agent < SOFT_AGENTS;
    case ANG_OP_ATOMIC:
        return request->atomic < ANGARA_ATOMIC_LAST &&
               (request->width == 4 || request->width == 8) && request->agent < SOFT_AGENTS;
    case ANG_OP_MARKER:
        return request->agent < SOFT_AGENTS;
    default:
        return 0;
    }
}

/* Is that PE's segment at the address that a request gives? Read before anything is written. */
static int read_segment(const angara_address_t *from, pid_t pid, soft_pe_seg_t *head)
{
    struct iovec local      = {head, offsetof(soft_pe_seg_t, helper_asleep)};
    struct iovec remote     = {(void *)(uintptr_t)from->loc[4], local.iov_len};
    uint64_t     start_time = 0;

    return soft_process_look(pid, &start_time) == SOFT_ALIVE && start_time == from->loc[1] &&
           process_vm_readv(pid, &local, 1, &remote, 1, 0) == (ssize_t)local.iov_len &&
           head->magic == SOFT_MAGIC_PE && head->layout == SOFT_LAYOUT &&
           head->generation == from->generation && head->index == from->index;
}

/* Wake the owner of a segment that can't be mapped, if a descriptor can be had. */
static void wake_unmapped(pid_t pid, int wake_fd)
{
    struct stat info;
    int         fd = soft_open_of(pid, wake_fd, S_IFIFO, O_RDWR | O_NONBLOCK, &info);

    if (fd < 0 || (write(fd, "", 1) != 1 && errno != EAGAIN)) {
        ang_warn("pid %d sleeps and can't be woken now: %s", (int)pid, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
}

/*
 * The requester's segment can't be mapped here, for want of memory or descriptors: tell it so by
 * writing into its memory, so that it doesn't wait for ever.
 */
static void refuse(const angara_address_t *from, const soft_request_t *request)
{
    static int said;
    pid_t      pid   = (pid_t)(from->loc[0] & 0x7fffffff);
    uint64_t   there = from->loc[4] + offsetof(soft_pe_seg_t, replies) +
                     (uint64_t)request->agent * sizeof(soft_reply_t) +
                     offsetof(soft_reply_t, refused);
    uint64_t      sequence = request->sequence;
    struct iovec  local    = {&sequence, sizeof(sequence)};
    struct iovec  remote   = {(void *)(uintptr_t)there, sizeof(sequence)};
    soft_pe_seg_t head;

    if (read_segment(from, pid, &head) && process_vm_writev(pid, &local, 1, &remote, 1, 0) > 0) {
        if (read_segment(from, pid, &head) && head.armed) { /* armed since it was written */
            wake_unmapped(pid, head.wake_fd);
        }
    } else {
        ang_log(said++ ? ANG_LOG_DEBUG : ANG_LOG_ERROR,
                "a request of pid %d can't be answered: its memory can neither be mapped nor "
                "written. Raise ulimit -v and ulimit -n; all ranks must run as one user",
                (int)pid);
    }
}

static void serve_one(soft_pe_t *pe, const soft_request_t *request)
{
    angara_status_t status = ANGARA_ERR_UNREACHABLE;
    soft_remote_t  *remote = NULL;
    soft_reply_t   *reply;
    uint64_t        posted  = soft_reply_state(request->sequence, SOFT_POSTED);
    uint64_t        serving = soft_reply_state(request->sequence, SOFT_SERVING);
    uint64_t        staging, old = 0;

    if (request_is_sane(request)) {
        status = client_get(&request->from, &remote);
    }
    if (request_is_sane(request) && status != ANGARA_OK && status != ANGARA_ERR_PEER_DEAD) {
        refuse(&request->from, request);
    }
    if (status != ANGARA_OK || remote->seg->generation != request->from.generation) {
        return; /* garbage, or its sender is gone meanwhile: nobody waits for an answer */
    }
    reply   = &remote->seg->replies[request->agent];
    staging = (uintptr_t)remote->seg + remote->layout.staging +
              (uint64_t)request->agent * SOFT_STAGING;
    if (!__atomic_compare_exchange_n(&reply->state, &posted, serving, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED)) {
        return; /* withdrawn */
    }
    if (request->op != ANG_OP_MARKER) {
        status = serve_data(pe, request, staging, &old);
    }
    reply->status = status;
    reply->old    = old;
    __atomic_store_n(&reply->state, soft_reply_state(request->sequence, SOFT_DONE),
                     __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_exchange_n(&remote->seg->armed, 0, __ATOMIC_SEQ_CST) &&
        !soft_remote_poke(remote, remote->seg->wake_fd)) {
        ang_warn("pid %d sleeps and can't be woken now: %s", (int)remote->process->pid,
                 strerror(errno));
        __atomic_store_n(&remote->seg->armed, 1, __ATOMIC_SEQ_CST);
    }
}

/* Called with soft_helper_lock held. */
static unsigned serve(soft_pe_t *pe)
{
    soft_request_t request;
    unsigned       count = 0;
    int            length;

    while (count < SOFT_SERVICE_RING && (length = soft_record_pop(&pe->service, &request)) >= 0) {
        if (length == (int)sizeof(request)) {
            serve_one(pe, &request);
        }
        count++;
    }
    return count;
}

unsigned soft_helper_poll(soft_pe_t *pe)
{
    unsigned count;

    soft_helper_start(); /* so that the next request needs no progress of the owner's */
    if (pthread_mutex_trylock(&soft_helper_lock) != 0) {
        return 0;
    }
    count = serve(pe);
    pthread_mutex_unlock(&soft_helper_lock);
    return count;
}

void soft_helper_quiesce(const soft_domain_t *dom)
{
    pthread_mutex_lock(&soft_helper_lock);
    for (soft_pe_t *pe = helper.pes; pe != NULL; pe = pe->next) {
        if (pe->dom == dom) { /* in chaos mode a thread works on what is queued */
            ang_engine_lock(&pe->engine);
            ang_engine_unlock(&pe->engine);
        }
    }
    pthread_mutex_unlock(&soft_helper_lock);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void set_asleep(uint32_t asleep)
{
    for (soft_pe_t *pe = helper.pes; pe != NULL; pe = pe->next) {
        __atomic_store_n(&pe->seg->helper_asleep, asleep, __ATOMIC_SEQ_CST);
    }
}

static unsigned serve_all(void)
{
    unsigned count = 0;

    for (soft_pe_t *pe = helper.pes; pe != NULL; pe = pe->next) {
        count += serve(pe);
    }
    return count;
}

static int any_ready(void)
{
    for (soft_pe_t *pe = helper.pes; pe != NULL; pe = pe->next) {
        if (soft_record_ready(&pe->service)) {
            return 1;
        }
    }
    return 0;
}

static void *helper_thread(void *arg)
{
    struct pollfd poller = {helper.pipe[0], POLLIN, 0};
    char          bytes[256];
    int           timeout;

    (void)arg;
    pthread_mutex_lock(&soft_helper_lock);
    while (!helper.stop) {
        if (serve_all() != 0) {
            /* Let deregistration and the owner's progress in. */
            pthread_mutex_unlock(&soft_helper_lock);
            pthread_mutex_lock(&soft_helper_lock);
            continue;
        }
        set_asleep(1);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (serve_all() == 0) { /* nothing came between the look and the flag */
            clients_drop(0);
            /* A claimed slot that isn't ready may be a dead producer's: look again, nobody wakes
             * us. */
            timeout = any_ready() ? STUCK_POLL_MS : -1;
            pthread_mutex_unlock(&soft_helper_lock);
            poll(&poller, 1, timeout);
            while (read(helper.pipe[0], bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes)) {
            }
            pthread_mutex_lock(&soft_helper_lock);
        }
        set_asleep(0);
    }
    set_asleep(1);
    pthread_mutex_unlock(&soft_helper_lock);
    return NULL;
}

void soft_helper_start(void)
{
    static int warned;
    sigset_t   all, old;

    if (__atomic_load_n(&helper.running, __ATOMIC_ACQUIRE)) {
        return;
    }
    pthread_mutex_lock(&helper.life);
    helper.wanted = 1;
    if (!helper.running && helper.have_pipe) {
        sigfillset(&all); /* the program's signal handlers run in the program's threads */
        pthread_sigmask(SIG_SETMASK, &all, &old);
        helper.stop = 0;
        if (pthread_create(&helper.thread, NULL, helper_thread, NULL) == 0) {
            __atomic_store_n(&helper.running, 1, __ATOMIC_RELEASE);
        } else if (!warned) {
            warned = 1;
            ang_warn(
                "the helper thread can't be started: requests of peers wait for this process's "
                "progress. Check ulimit -u");
        }
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    pthread_mutex_unlock(&helper.life);
}

/* Called with helper.life held and no PEs left. */
static void helper_stop(void)
{
    if (helper.running) {
        pthread_mutex_lock(&soft_helper_lock);
        helper.stop = 1;
        pthread_mutex_unlock(&soft_helper_lock);
        if (write(helper.pipe[1], "", 1) < 0) {
            ang_debug("helper pipe is full"); /* then it wakes anyway */
        }
        pthread_join(helper.thread, NULL);
        __atomic_store_n(&helper.running, 0, __ATOMIC_RELEASE);
    }
    clients_drop(1);
    close(helper.pipe[0]);
    close(helper.pipe[1]);
    helper.pipe[0]   = -1;
    helper.pipe[1]   = -1;
    helper.have_pipe = 0;
}

/* ---- PEs of this process --------------------------------------------------------------------- */

angara_status_t soft_helper_prepare(soft_pe_t *pe)
{
    angara_status_t status = ANGARA_OK;

    pthread_mutex_lock(&helper.life);
    if (!helper.have_pipe) {
        if (pipe2(helper.pipe, O_CLOEXEC | O_NONBLOCK) == 0) {
            helper.have_pipe = 1;
        } else {
            ang_error("creating a pipe failed: %s. Raise the limit with ulimit -n",
                      strerror(errno));
            status = ANGARA_ERR_LIMIT;
        }
    }
    if (status == ANGARA_OK) {
        helper.users++;
        pe->uses_helper = 1;
    }
    pthread_mutex_unlock(&helper.life);
    return status;
}

int soft_helper_wake_fd(void)
{
    return helper.pipe[1];
}

void soft_helper_add_pe(soft_pe_t *pe)
{
    pthread_mutex_lock(&soft_helper_lock);
    pe->next   = helper.pes;
    helper.pes = pe;
    pthread_mutex_unlock(&soft_helper_lock);
    if (helper.wanted) {
        soft_helper_start();
    }
}

void soft_helper_remove_pe(soft_pe_t *pe)
{
    soft_pe_t **link;

    pthread_mutex_lock(&helper.life);
    pthread_mutex_lock(&soft_helper_lock);
    for (link = &helper.pes; *link != NULL; link = &(*link)->next) {
        if (*link == pe) {
            serve(pe); /* nobody is left waiting for what came before the end */
            *link = pe->next;
            break;
        }
    }
    pthread_mutex_unlock(&soft_helper_lock);
    if (pe->uses_helper && --helper.users == 0) {
        helper_stop();
    }
    pe->uses_helper = 0;
    pthread_mutex_unlock(&helper.life);
}

/* ---- fork ------------------------------------------------------------------------------------ */

static void before_fork(void)
{
    pthread_mutex_lock(&helper.life);
    pthread_mutex_lock(&soft_helper_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&soft_helper_lock);
    pthread_mutex_unlock(&helper.life);
}

/* The clients' descriptors are closed already. */
static void in_child(void)
{
    client_t *client;

    pthread_mutex_init(&soft_helper_lock, NULL);
    pthread_mutex_init(&helper.life, NULL);
    helper.running = 0;
    helper.stop    = 0;
    helper.wanted  = 0;
    helper.pes     = NULL;
    helper.users   = 0;
    while ((client = helper.clients) != NULL) {
        helper.clients = client->next;
        free(client);
    }
    if (helper.have_pipe) {
        close(helper.pipe[0]);
        close(helper.pipe[1]);
        helper.have_pipe = 0;
    }
}

static void __attribute__((constructor)) fork_init(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}
