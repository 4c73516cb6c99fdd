/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The helper: has requests carried out (serve.c), in the process that owns the memory, that
 * initiators may not carry out themselves (agent.c is their side). One thread per process, started
 * when somebody may need it and asleep in poll() when idle; the owner's own progress calls serve
 * requests too.
 *
 * Invariants
 *   - soft_helper_lock is held while requests are served and regions touched, so deregistration,
 *     which takes it after withdrawing the key, knows that nothing is touched any more. It is taken
 *     before an engine's lock.
 *   - After a fork the child starts with nothing: no thread, no PEs, a pipe of its own.
 */
#define _GNU_SOURCE
#include "gpu_mem.h"
#include "requester.h"
#include "vm.h"

#include "src/clock.h"
#include "src/config.h"
#include "src/log.h"
#include "src/mutant.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

/* To those who wait for the lock; one with a lower real-time priority never comes. */
#define YIELDS 1000

static pthread_mutex_t soft_helper_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned        waiting; /* for it; atomic */

static struct {
    pthread_mutex_t life; /* taken before soft_helper_lock: start, stop, pipe */
    pthread_t       thread;
    int             wanted; /* somebody needs it as soon as there is a PE */
    int             running;
    int             stop;
    int             pipe[2];
    int             have_pipe;
    uint64_t        pipe_inode;
    unsigned        users;    /* PEs alive or being made: the pipe stays while there is one */
    int             watching; /* GPU memory is shared or mapped: look after it; atomic */
    soft_pe_t      *pes;
} helper = {.life = PTHREAD_MUTEX_INITIALIZER, .pipe = {-1, -1}};

/* ---- the lock ------------------------------------------------------------------------------- */

static void helper_enter(void)
{
    __atomic_add_fetch(&waiting, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&soft_helper_lock);
    __atomic_sub_fetch(&waiting, 1, __ATOMIC_RELAXED);
}

static void helper_leave(void)
{
    pthread_mutex_unlock(&soft_helper_lock);
}

static int is_waited_for(void)
{
    return __atomic_load_n(&waiting, __ATOMIC_RELAXED) != 0;
}

/* The helper's thread, which requests may never let sleep: others come first, unless they can't. */
static void helper_enter_last(void)
{
    for (unsigned i = 0; i < YIELDS && is_waited_for(); ++i) {
        sched_yield();
    }
    pthread_mutex_lock(&soft_helper_lock);
}

/* ---- users ------------------------------------------------------------------------------------
 */

unsigned soft_helper_poll(soft_pe_t *pe, int joins)
{
    static unsigned yields; /* atomic */
    unsigned        count, asked;
    int             alone;

    if (is_waited_for() && __atomic_add_fetch(&yields, 1, __ATOMIC_RELAXED) % YIELDS != 0) {
        return 0;
    }
    alone = pthread_mutex_trylock(&soft_helper_lock) == 0;
    if (!alone && !ang_mutant("both_serve")) {
        return 0;
    }
    asked = pe->asked;
    count = soft_serve(pe, 1, joins);
    asked = pe->asked - asked;
    if (alone) {
        helper_leave();
    }
    if (asked != 0) {
        soft_helper_start(); /* so that the next request needs no progress of the owner's */
    }
    return count;
}

pid_t soft_helper_local_user(const soft_domain_t *dom, uint64_t key, uint64_t *mark_p)
{
    pid_t       pid = 0;
    ang_pair_t *pair;

    *mark_p = 0;
    helper_enter();
    for (soft_pe_t *pe = helper.pes; pe != NULL; pe = pe->next) {
        if (pe->dom != dom || !ang_engine_guest_enter(&pe->engine)) {
            continue;
        }
        if (ang_engine_local_user(&pe->engine, NULL, key) != NULL &&
            ang_engine_guest_progress(&pe->engine) != 0) {
            soft_wake_self(pe);
        }
        for (pair = NULL; (pair = ang_engine_local_user(&pe->engine, pair, key)) != NULL;) {
            pid = (pid_t)(soft_pair_peer(pair)->base.address.loc[0] & 0x7fffffff);
            *mark_p += ang_pair_mark(pair);
        }
        ang_engine_guest_leave(&pe->engine);
    }
    helper_leave();
    return pid;
}

void soft_helper_local_cancel(const soft_domain_t *dom, uint64_t key)
{
    ang_pair_t *pair;

    helper_enter();
    for (soft_pe_t *pe = helper.pes; pe != NULL; pe = pe->next) {
        if (pe->dom == dom && ang_engine_guest_enter(&pe->engine)) {
            for (pair = NULL; (pair = ang_engine_local_user(&pe->engine, pair, key)) != NULL;) {
                ang_pair_fault(pair, 0, ANGARA_ERR_BUSY);
            }
            ang_engine_guest_leave(&pe->engine);
        }
    }
    helper_leave();
}

void soft_helper_quiesce(const soft_domain_t *dom)
{
    helper_enter();
    for (soft_pe_t *pe = helper.pes; pe != NULL; pe = pe->next) {
        if (pe->dom == dom) { /* in chaos mode a thread works on what is queued */
            ang_engine_lock(&pe->engine);
            ang_engine_unlock(&pe->engine);
        }
    }
    helper_leave();
}

static void close_pipe(void)
{
    close(helper.pipe[0]);
    close(helper.pipe[1]);
    helper.pipe[0]   = -1;
    helper.pipe[1]   = -1;
    helper.have_pipe = 0;
}

static int open_pipe(void)
{
    struct stat info;

    if (pipe2(helper.pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        return 0;
    }
    if (fstat(helper.pipe[1], &info) != 0) {
        close_pipe();
        return 0;
    }
    helper.have_pipe  = 1;
    helper.pipe_inode = info.st_ino;
    return 1;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void tell(soft_pe_t *pe, uint32_t state)
{
    __atomic_store_n(&pe->service->helper, state, __ATOMIC_SEQ_CST);
}

static void tell_all(uint32_t state)
{
    for (soft_pe_t *pe = helper.pes; pe != NULL; pe = pe->next) {
        tell(pe, state);
    }
}

static unsigned serve_all(void)
{
    unsigned count = 0;

    for (soft_pe_t *pe = helper.pes; pe != NULL; pe = pe->next) {
        count += soft_serve(pe, 0, 0);
    }
    return count;
}

/*
 * Operations that fly hold the peer's region until they are seen to have landed, which a program
 * that computes doesn't look for: whoever waits to deregister it would wait for that.
 */
unsigned soft_helper_land(void)
{
    unsigned flying = 0;

    helper_enter();
    for (soft_pe_t *pe = helper.pes; pe != NULL; pe = pe->next) {
        if (pe->engine.chaos == NULL && ang_engine_guest_enter(&pe->engine)) {
            if (ang_engine_guest_land(&pe->engine, &flying) != 0) {
                soft_wake_self(pe);
            }
            ang_engine_guest_leave(&pe->engine);
        }
    }
    helper_leave();
    return flying;
}

static unsigned serve_look(int all)
{
    unsigned count;

    helper_enter();
    count = soft_requesters_look(all);
    helper_leave();
    return count;
}

void soft_helper_forget_dead(void)
{
    serve_look(0);
}

void soft_helper_look(void)
{
    if (!__atomic_exchange_n(&helper.watching, 0, __ATOMIC_SEQ_CST)) {
        return;
    }
    ang_gpu_look();
    if (soft_helper_land() + soft_shares_look() + serve_look(0) + soft_imports_look() != 0) {
        __atomic_store_n(&helper.watching, 1, __ATOMIC_SEQ_CST);
    }
}

/* Time between two looks: nobody must give up waiting for what has landed. */
static uint64_t look_ms(void)
{
    uint64_t bound = ang_config.peer_wait_ms / 4 + 1;

    return ang_config.peer_check_ms < bound ? ang_config.peer_check_ms : bound;
}

static int helper_watches(void)
{
    return __atomic_load_n(&helper.watching, __ATOMIC_SEQ_CST);
}

/* Look, if there is anything to look after and it is time. Called without the lock. */
static void look_in_time(uint64_t *next_look_ns)
{
    uint64_t now = ang_clock_ns(CLOCK_MONOTONIC_COARSE);

    if (now >= *next_look_ns && helper_watches()) {
        *next_look_ns = now + look_ms() * 1000000;
        soft_helper_look();
    }
}

/* Sleep until somebody wants something. Called without the lock. */
static void helper_sleep(void)
{
    struct pollfd poller = {helper.pipe[0], POLLIN, 0};
    char          bytes[256];

    poll(&poller, 1, helper_watches() ? (int)look_ms() : -1);
    while (read(helper.pipe[0], bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes)) {
    }
}

static void *helper_thread(void *arg)
{
    uint64_t next_look_ns = 0;

    (void)arg;
    helper_enter_last();
    while (!helper.stop) {
        if (serve_all() != 0) {
            helper_leave();
            look_in_time(&next_look_ns);
            helper_enter_last();
            continue;
        }
        tell_all(SOFT_HELPER_SLEEPS);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (serve_all() == 0) { /* nothing came between the look and the flag */
            helper_leave();
            helper_sleep();
            look_in_time(&next_look_ns);
            helper_enter_last();
        }
        tell_all(SOFT_HELPER_AWAKE);
    }
    tell_all(SOFT_HELPER_NONE);
    helper_leave();
    return NULL;
}

int soft_helper_runs(void)
{
    return __atomic_load_n(&helper.running, __ATOMIC_ACQUIRE);
}

void soft_helper_start(void)
{
    static int warned;
    sigset_t   all, old;

    if (soft_helper_runs()) {
        return;
    }
    pthread_mutex_lock(&helper.life);
    helper.wanted = 1;
    if (!helper.running && helper.have_pipe) {
        sigfillset(&all); /* the program's signal handlers run in the program's threads */
        sigdelset(&all, SIGSEGV);
        sigdelset(&all, SIGBUS);
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

/*
 * Would ptrace rules let processes like this one reach its memory? Only they themselves can tell,
 * but Yama's rule and a profile that forbids the calls hold for all, as a rule.
 */
static int reachable_by_peers(void)
{
    uint64_t     here = 0, there = 1;
    struct iovec local = {&here, sizeof(here)}, remote = {&there, sizeof(there)};
    int          fd    = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
    char         scope = '0';

    if (fd >= 0) {
        if (read(fd, &scope, 1) != 1) {
            scope = '1';
        }
        close(fd);
    }
    return scope == '0' && prctl(PR_GET_DUMPABLE) == 1 &&
           process_vm_readv(gettid(), &local, 1, &remote, 1, 0) == (ssize_t)sizeof(here);
}

void soft_helper_expect(unsigned access)
{
    static int reachable; /* 1: yes, 2: no */

    if (access & (ANGARA_ACCESS_REMOTE_READ | ANGARA_ACCESS_REMOTE_WRITE)) {
        if (__atomic_load_n(&reachable, __ATOMIC_RELAXED) == 0) {
            __atomic_store_n(&reachable, reachable_by_peers() ? 1 : 2, __ATOMIC_RELAXED);
        }
        access |= __atomic_load_n(&reachable, __ATOMIC_RELAXED) == 2 ? ANGARA_ACCESS_REMOTE_ATOMIC :
                                                                       0;
    }
    if (access & ANGARA_ACCESS_REMOTE_ATOMIC) {
        soft_helper_start();
    }
}

int soft_helper_kicked;

void soft_helper_watch(void)
{
    if (!__atomic_exchange_n(&helper.watching, 1, __ATOMIC_SEQ_CST) || !soft_helper_runs()) {
        __atomic_store_n(&soft_helper_kicked, 1, __ATOMIC_SEQ_CST);
    }
}

void soft_helper_wake(void)
{
    if (!__atomic_exchange_n(&soft_helper_kicked, 0, __ATOMIC_SEQ_CST)) {
        return;
    }
    soft_helper_start();
    pthread_mutex_lock(&helper.life);                           /* the pipe stays */
    if (helper.have_pipe && write(helper.pipe[1], "", 1) < 0) { /* it may sleep without a limit */
        ang_debug("helper pipe is full");                       /* then it wakes anyway */
    }
    pthread_mutex_unlock(&helper.life);
}

/* Called with helper.life held and no PEs left. */
static void helper_stop(void)
{
    if (helper.running) {
        helper_enter();
        helper.stop = 1;
        helper_leave();
        if (write(helper.pipe[1], "", 1) < 0) {
            ang_debug("helper pipe is full"); /* then it wakes anyway */
        }
        pthread_join(helper.thread, NULL);
        __atomic_store_n(&helper.running, 0, __ATOMIC_RELEASE);
    }
    soft_shares_rest();
    soft_guard_close();
    serve_look(1);
    close_pipe();
    soft_catch_close();
}

/* ---- PEs of this process --------------------------------------------------------------------- */

angara_status_t soft_helper_prepare(soft_pe_t *pe)
{
    angara_status_t status = ANGARA_OK;

    pthread_mutex_lock(&helper.life);
    if (!helper.have_pipe && !open_pipe()) {
        ang_log_alike(ANG_LOG_ERROR, "creating a pipe failed: %s%s", strerror(errno),
                      soft_cure(errno));
        status = ANGARA_ERR_LIMIT;
    }
    if (status == ANGARA_OK) {
        if (helper.users++ == 0) {
            soft_catch_open();
        }
        pe->uses_helper = 1;
    }
    pthread_mutex_unlock(&helper.life);
    return status;
}

int soft_helper_wake_fd(void)
{
    return helper.pipe[1];
}

uint64_t soft_helper_wake_inode(void)
{
    return helper.pipe_inode;
}

void soft_helper_add_pe(soft_pe_t *pe)
{
    helper_enter();
    pe->next   = helper.pes;
    helper.pes = pe;
    tell(pe, soft_helper_runs() ? SOFT_HELPER_SLEEPS : SOFT_HELPER_NONE);
    helper_leave();
    if (helper.wanted) {
        soft_helper_start();
    }
}

void soft_helper_remove_pe(soft_pe_t *pe)
{
    soft_pe_t **link;

    pthread_mutex_lock(&helper.life);
    helper_enter();
    for (link = &helper.pes; *link != NULL; link = &(*link)->next) {
        if (*link == pe) {
            soft_serve(pe, 1, 0); /* nobody is left waiting for what came before the end */
            *link = pe->next;
            break;
        }
    }
    helper_leave();
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
    helper_enter();
}

static void after_fork(void)
{
    helper_leave();
    pthread_mutex_unlock(&helper.life);
}

static void in_child(void)
{
    pthread_mutex_init(&soft_helper_lock, NULL);
    waiting = 0;
    pthread_mutex_init(&helper.life, NULL);
    helper.running = 0;
    helper.stop    = 0;
    helper.wanted  = 0;
    helper.pes     = NULL;
    helper.users   = 0;

    helper.watching = 0;
    soft_requesters_forget();
    if (helper.have_pipe) {
        close_pipe();
    }
}

static void __attribute__((constructor)) fork_init(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}
