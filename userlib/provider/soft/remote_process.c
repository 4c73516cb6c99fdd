/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Other processes, as this one knows them: who they are, whether they live, how their sleepers are
 * woken. All pairs with PEs of one process share its object, so descriptors are counted by process.
 *
 * Invariants
 *   - An object stands for one process, told from later ones of its number by the start time. It
 *     lives as long as somebody holds it.
 *   - The list, the references, the cached pipes and the reserve are changed under the lock, which
 *     is a leaf but for that of fork.h. `task` is a hint that any thread may renew. `imports` is
 *     gpu_import.c's.
 *   - Waking needs no free descriptor: the pipe of the process's first PE is opened when a peer
 *     connects to it; where a pipe isn't open, the reserve is given up for the moment.
 */
#define _GNU_SOURCE
#include "gpu_mem.h"

#include "src/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    pthread_mutex_t        lock;
    soft_remote_process_t *first;
    int                    reserve[2];
} processes = {.lock = PTHREAD_MUTEX_INITIALIZER, .reserve = {-1, -1}};

/*
 * Descriptors kept for the moment in which somebody has to be woken and none is free: opening what
 * wakes it takes two. (Two ends of a pipe, since a number and a file of the system's each are what
 * there may be no more of.) Called with the lock held, as long as there are processes.
 */
static void reserve_fill(void)
{
    if (processes.reserve[0] < 0 && pipe2(processes.reserve, O_CLOEXEC) != 0) {
        processes.reserve[0] = -1;
        processes.reserve[1] = -1;
    }
}

static void reserve_give_up(void)
{
    for (unsigned i = 0; i < 2; ++i) {
        if (processes.reserve[i] >= 0) {
            close(processes.reserve[i]);
            processes.reserve[i] = -1;
        }
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

int soft_remote_process_dead(const soft_remote_process_t *process)
{
    struct pollfd poller     = {process->pidfd, POLLIN, 0};
    uint64_t      start_time = 0;

    if (process->pidfd < 0) { /* a kernel or a profile without pidfds: ask /proc */
        switch (soft_process_look(process->pid, &start_time)) {
        case SOFT_ALIVE:
            return start_time != process->start_time;
        case SOFT_GONE:
            return 1;
        default:
            return 0;
        }
    }
    return poll(&poller, 1, 0) > 0;
}

void soft_remote_process_check_task(soft_remote_process_t *process)
{
    pid_t task = soft_remote_process_task(process);
    char  path[64];

    if (task != process->pid) {
        snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)process->pid, (int)task);
        if (access(path, F_OK) != 0 && !soft_remote_process_other_task(process)) {
            __atomic_store_n(&process->task, process->pid, __ATOMIC_RELAXED);
        }
    }
}

int soft_remote_process_other_task(soft_remote_process_t *process)
{
    pid_t task = soft_remote_process_dead(process) ?
                     -1 :
                     soft_process_task(process->pid, soft_remote_process_task(process));

    if (task < 0) {
        errno = ESRCH;
        return 0;
    }
    __atomic_store_n(&process->task, task, __ATOMIC_RELAXED);
    return 1;
}

/* ---- finding and making ---------------------------------------------------------------------- */

static void close_descriptors(soft_remote_process_t *process)
{
    if (process->pidfd >= 0) {
        close(process->pidfd);
        process->pidfd = -1;
    }
    for (unsigned i = 0; i < SOFT_PIPES; ++i) {
        if (process->pipes[i].here >= 0) {
            close(process->pipes[i].here);
            process->pipes[i].here = -1;
        }
    }
}

static void process_in_child(ang_fork_t *node)
{
    soft_remote_process_t *process = ANG_FORK_OBJECT(soft_remote_process_t, node);

    close_descriptors(process);
    process->imports = NULL;
}

/* /proc may be mounted so that it lacks processes that this one may not look into (hidepid). */
static int is_hidden(const soft_remote_process_t *process)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d", (int)process->pid);
    return process->pidfd >= 0 && access("/proc/self", F_OK) == 0 && access(path, F_OK) != 0 &&
           !soft_remote_process_dead(process);
}

/* Bind to the very process that the address names: a pidfd, then its start time. */
static angara_status_t bind_process(soft_remote_process_t *process)
{
    uint64_t start_time = 0;

    process->pidfd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    if (process->pidfd < 0 && errno != ENOSYS && errno != EPERM) {
        if (errno == ESRCH || errno == EINVAL) {
            return ANGARA_ERR_PEER_DEAD;
        }
        ang_error("pidfd_open(%d) failed: %s%s", (int)process->pid, strerror(errno),
                  soft_cure(errno));
        return errno == EMFILE || errno == ENFILE ? ANGARA_ERR_LIMIT : ANGARA_ERR_SYSTEM;
    }
    switch (soft_process_look(process->pid, &start_time)) {
    case SOFT_ALIVE:
        /* Else the number was given to another process since. */
        return start_time == process->start_time && !soft_remote_process_dead(process) ?
                   ANGARA_OK :
                   ANGARA_ERR_PEER_DEAD;
    case SOFT_GONE:
        if (!is_hidden(process)) {
            return ANGARA_ERR_PEER_DEAD;
        }
        errno = EACCES;
        break;
    default:
        break;
    }
    if (errno == EACCES || errno == EPERM) {
        ang_error("/proc doesn't show pid %d (hidepid, or a security module): both processes must "
                  "run as the same user and group, with the same capabilities, and be dumpable",
                  (int)process->pid);
        return ANGARA_ERR_UNREACHABLE;
    }
    ang_error("/proc/%d/stat can't be read: %s%s", (int)process->pid, strerror(errno),
              soft_cure(errno));
    return ANGARA_ERR_LIMIT;
}

/* Called with the lock held. */
static angara_status_t process_new(pid_t pid, uint64_t start_time,
                                   soft_remote_process_t **process_p)
{
    soft_remote_process_t *process = calloc(1, sizeof(*process));
    angara_status_t        status;

    if (process == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    process->refs       = 1;
    process->pid        = pid;
    process->task       = pid;
    process->start_time = start_time;
    for (unsigned i = 0; i < SOFT_PIPES; ++i) {
        process->pipes[i].here = -1;
    }
    status = bind_process(process);
    if (status != ANGARA_OK) {
        close_descriptors(process);
        free(process);
        return status;
    }
    ang_fork_add(&process->fork, process_in_child);
    reserve_fill();
    process->next   = processes.first;
    processes.first = process;
    *process_p      = process;
    return ANGARA_OK;
}

angara_status_t soft_remote_process_get(pid_t pid, uint64_t start_time,
                                        soft_remote_process_t **process_p)
{
    soft_remote_process_t *process;
    angara_status_t        status = ANGARA_OK;

    if (pid <= 0) {
        return ANGARA_ERR_UNREACHABLE;
    }
    pthread_mutex_lock(&processes.lock);
    for (process = processes.first; process != NULL; process = process->next) {
        if (process->pid == pid && process->start_time == start_time) {
            break;
        }
    }
    if (process == NULL) {
        status = process_new(pid, start_time, process_p);
    } else if (soft_remote_process_dead(process)) {
        status = ANGARA_ERR_PEER_DEAD;
    } else {
        process->refs++;
        *process_p = process;
    }
    pthread_mutex_unlock(&processes.lock);
    return status;
}

void soft_remote_process_put(soft_remote_process_t *process)
{
    soft_remote_process_t **link;
    int                     is_last;

    pthread_mutex_lock(&processes.lock);
    is_last = --process->refs == 0;
    if (is_last) {
        for (link = &processes.first; *link != process; link = &(*link)->next) {
        }
        *link = process->next;
        if (processes.first == NULL) {
            reserve_give_up();
        }
    }
    pthread_mutex_unlock(&processes.lock);
    if (is_last) { /* nobody else knows it now */
        soft_imports_close(process);
        ang_fork_remove(&process->fork);
        close_descriptors(process);
        free(process);
    }
}

/* ---- waking ---------------------------------------------------------------------------------- */

/* Opened for reading too, so that there always is a reader and never a SIGPIPE. */
static int pipe_open(const soft_remote_process_t *process, int fd, uint64_t inode)
{
    struct stat info;
    int         here = soft_open_of(process->pid, fd, S_IFIFO, O_RDWR | O_NONBLOCK, &info);

    if (here >= 0 && info.st_ino != inode) { /* closed, and the number is used again */
        close(here);
        errno = ESRCH;
        return -1;
    }
    return here;
}

/* Called with the lock held. @return this process's end, opened now if need be, or -1 with errno.
 */
static int pipe_get(soft_remote_process_t *process, int fd, uint64_t inode)
{
    soft_pipe_t *pipe;
    int          here;

    for (unsigned i = 0; i < SOFT_PIPES; ++i) {
        pipe = &process->pipes[i];
        if (pipe->here >= 0 && pipe->inode == inode) {
            return pipe->here;
        }
    }
    here = pipe_open(process, fd, inode);
    if (here >= 0) {
        pipe = &process->pipes[process->next_pipe++ % SOFT_PIPES];
        if (pipe->here >= 0) {
            close(pipe->here);
        }
        *pipe = (soft_pipe_t){inode, here};
    }
    return here;
}

static int pipe_write(int here)
{
    return write(here, "", 1) == 1 || errno == EAGAIN; /* a full pipe wakes as well */
}

/* Called with the lock held. Another thread may be faster to take what is given up. */
static int poke_by_reserve(const soft_remote_process_t *process, int fd, uint64_t inode)
{
    int done = 0;
    int here;

    reserve_give_up();
    here = pipe_open(process, fd, inode);
    if (here >= 0) {
        done = pipe_write(here);
        close(here);
    }
    reserve_fill();
    return done;
}

int soft_remote_poke(soft_remote_t *remote, int fd, uint64_t inode)
{
    int done = 0;
    int here;

    pthread_mutex_lock(&processes.lock);
    here = pipe_get(remote->process, fd, inode);
    if (here >= 0) {
        done = pipe_write(here);
    } else if (errno == EMFILE || errno == ENFILE) {
        done = poke_by_reserve(remote->process, fd, inode);
    }
    if (!done) {
        ang_debug("waking pid %d: %s", (int)remote->process->pid, strerror(errno));
    }
    pthread_mutex_unlock(&processes.lock);
    return done;
}

void soft_remote_poke_prepare(soft_remote_t *remote, int fd, uint64_t inode)
{
    pthread_mutex_lock(&processes.lock);
    if (remote->process->next_pipe == 0) {
        pipe_get(remote->process, fd, inode);
    }
    pthread_mutex_unlock(&processes.lock);
}

/* ---- fork ------------------------------------------------------------------------------------ */

static void before_fork(void)
{
    pthread_mutex_lock(&processes.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&processes.lock);
}

/* The parent's peers, which hold them, aren't used here; their descriptors are closed already. */
static void in_child(void)
{
    soft_remote_process_t *process;

    pthread_mutex_init(&processes.lock, NULL);
    reserve_give_up();
    while ((process = processes.first) != NULL) {
        processes.first = process->next;
        free(process);
    }
}

/* Before helper.c registers: at fork its locks are taken first then, as elsewhere. */
static void __attribute__((constructor(102))) fork_init(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}
