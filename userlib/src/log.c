/* SPDX-License-Identifier: BSD-3-Clause */
/* See log.h. Reads the launcher's variables once; names of sockets tell the processes of a node
 * what has been said. */
#define _GNU_SOURCE
#include "log.h"

#include "hash.h"
#include "line.h"
#include "own_fd.h"

#include <angara/angara.h>

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SAID_MAX     8 /* lines whose descriptors are kept; more are said by each */
#define NAME_TRIES   10u
#define NAME_WAIT_US 1000u

ang_log_level_t ang_log_level = ANG_LOG_WARN;

static char rank[16]; /* in the job; empty: none */

const char *angara_job_rank(void)
{
    return rank;
}

static char job[256]; /* what all its processes have alike; empty: none */

static void spare_keep(void);

void ang_log_start(void)
{
    /* of one start of one program: a batch job may be several */
    const char *start = getenv("PMIX_NAMESPACE");

    ang_line_rank(rank, sizeof(rank));
    snprintf(job, sizeof(job), "%s", start != NULL ? start : "");
    if (job[0] != '\0') {
        spare_keep();
    }
}

void ang_log_print(ang_log_level_t level, const char *format, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    va_list                  args;

    va_start(args, format);
    ang_line_print(rank, names[level], format, args);
    va_end(args);
}

/* ---- once for each node ---------------------------------------------------------------------- */

/*
 * What this process has said: sockets whose names tell the others of the job. A name has no file,
 * and ends with the process, or here in a child.
 */
static struct {
    pthread_mutex_t lock; /* taken at fork, too */
    unsigned        count;
    ang_own_fd_t    socks[SAID_MAX];
    uint64_t        hashes[SAID_MAX];
    ang_own_fd_t    spare; /* without a name, for the line that says that no descriptor is left */
} said = {.lock = PTHREAD_MUTEX_INITIALIZER, .spare.fd = -1};

static ang_own_fd_t sock_open(void)
{
    return ang_own_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/* From the beginning on: there may be none later. */
static void spare_keep(void)
{
    pthread_mutex_lock(&said.lock);
    if (!ang_own_fd_is_ours(&said.spare)) {
        said.spare = sock_open();
    }
    pthread_mutex_unlock(&said.lock);
}

/* Closing it to open another would leave the descriptor to any thread in between. */
static ang_own_fd_t spare_take(void)
{
    ang_own_fd_t sock = said.spare;

    if (!ang_own_fd_is_ours(&sock)) {
        sock.fd = -1;
    }
    said.spare.fd = -1;
    return sock;
}

static void before_fork(void)
{
    pthread_mutex_lock(&said.lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&said.lock);
}

static void in_child(void)
{
    for (unsigned i = 0; i < said.count; ++i) {
        ang_own_fd_close(&said.socks[i]);
    }
    said.count = 0;
    ang_own_fd_close(&said.spare);
    pthread_mutex_init(&said.lock, NULL);
}

static void __attribute__((constructor)) log_init(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

static socklen_t name_of(uint64_t hash, struct sockaddr_un *name)
{
    int length;

    memset(name, 0, sizeof(*name));
    name->sun_family = AF_UNIX;
    length = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "angara-said-%u-%016llx",
                      (unsigned)geteuid(), (unsigned long long)hash);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* The name is a process's of our user; anybody else's silences nothing. */
static int is_of_our_user(int sock, const struct sockaddr_un *name, socklen_t size)
{
    struct ucred owner;
    socklen_t    length = sizeof(owner);

    for (unsigned i = 0; connect(sock, (const struct sockaddr *)name, size) != 0; ++i) {
        if (errno == EAGAIN) {
            return 1; /* so many have asked already */
        }
        if (errno != ECONNREFUSED || i == NAME_TRIES) {
            return 0;
        }
        usleep(NAME_WAIT_US); /* it has the name, and listens at once */
    }
    return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &owner, &length) == 0 &&
           owner.uid == geteuid();
}

/* Under the lock. Who has said it himself says it again. */
static int is_said_by_another(uint64_t hash)
{
    struct sockaddr_un name;
    socklen_t          size = name_of(hash, &name);
    ang_own_fd_t       sock;
    int                is_said;

    for (unsigned i = 0; i < said.count; ++i) {
        if (said.hashes[i] == hash) {
            return 0;
        }
    }
    if (said.count == SAID_MAX) {
        return 0;
    }
    sock = sock_open();
    if (sock.fd < 0) {
        sock = spare_take();
    }
    if (sock.fd < 0) {
        return 0;
    }
    if (bind(sock.fd, (const struct sockaddr *)&name, size) == 0) {
        listen(sock.fd, SOMAXCONN);
        said.hashes[said.count]  = hash;
        said.socks[said.count++] = sock;
        return 0;
    }
    is_said = errno == EADDRINUSE && is_of_our_user(sock.fd, &name, size);
    ang_own_fd_close(&sock);
    if (said.spare.fd < 0) {
        said.spare = sock_open(); /* one that has been connected can't ask again */
    }
    return is_said;
}

int ang_log_is_said(const char *format, ...)
{
    char    text[ANG_LINE_SIZE];
    va_list args;
    int     error = errno; /* what is to be said may be about it */
    int     is_said;

    if (job[0] == '\0') {
        return 0;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    pthread_mutex_lock(&said.lock);
    is_said = is_said_by_another(
        ang_hash(ang_hash(ANG_HASH_START, job, strlen(job)), text, strlen(text)));
    pthread_mutex_unlock(&said.lock);
    errno = error;
    return is_said;
}
