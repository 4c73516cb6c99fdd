/* SPDX-License-Identifier: BSD-3-Clause */
/* See log.h. Reads the launcher's variables once, writes to stderr only; names of sockets tell the
 * processes of a node what has been said. */
#define _GNU_SOURCE
#include "log.h"

#include <angara/angara.h>

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LINE_SIZE    1024
#define NAME_TRIES   50u
#define NAME_WAIT_US 1000u

ang_log_level_t ang_log_level = ANG_LOG_WARN;

static char rank[16]; /* in the job; empty: none */

const char *angara_job_rank(void)
{
    return rank;
}

static char job[128]; /* what all its processes have alike; empty: none */

/* The text of the first variable that is there, or "". */
static const char *first_of(const char *const *names, unsigned count)
{
    const char *text = NULL;

    for (unsigned i = 0; text == NULL && i < count; ++i) {
        text = getenv(names[i]);
    }
    return text != NULL ? text : "";
}

void ang_log_start(void)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    static const char *const jobs[]  = {"PMIX_NAMESPACE", "SLURM_JOB_ID", "PMI_JOBID"};

    snprintf(rank, sizeof(rank), "%.10s", first_of(ranks, sizeof(ranks) / sizeof(ranks[0])));
    snprintf(job, sizeof(job), "%s", first_of(jobs, sizeof(jobs) / sizeof(jobs[0])));
}

/* As UCX's lines begin, so that a sorted log of a job has both in order. */
static int head_print(char *line, size_t size, const char *level)
{
    char            host[65] = "";
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    gethostname(host, sizeof(host) - 1);
    return snprintf(line, size, "[%lld.%06ld] [%s:%d%s%s] angara %s: ", (long long)now.tv_sec,
                    now.tv_nsec / 1000, host, (int)getpid(), rank[0] != '\0' ? " rank " : "", rank,
                    level);
}

void ang_log_print(ang_log_level_t level, const char *format, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char                     line[LINE_SIZE];
    va_list                  args;
    int                      head, length;

    head = head_print(line, sizeof(line), names[level]);
    va_start(args, format);
    length = vsnprintf(line + head, sizeof(line) - head - 1, format, args);
    va_end(args);

    length += head;
    if (length > (int)sizeof(line) - 2) {
        length = sizeof(line) - 2;
    }
    line[length++] = '\n';

    /* One write, so that lines of several ranks don't mix. Nothing can be done about a failure. */
    if (write(STDERR_FILENO, line, length) < 0) {
        return;
    }
}

/* ---- once for each node ---------------------------------------------------------------------- */

/* A name for the text in this job: FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/. */
static socklen_t name_of(const char *text, struct sockaddr_un *name)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    int      length;

    for (; *text != '\0'; ++text) {
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3ull;
    }
    memset(name, 0, sizeof(*name));
    name->sun_family = AF_UNIX;
    /* without a file, as it begins with 0: it ends with the process */
    length = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "angara-said-%016llx-%.60s",
                      (unsigned long long)hash, job);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* The name is a process's of our user; anybody else's silences nothing. */
static int is_of_our_user(int sock, const struct sockaddr_un *name, socklen_t size)
{
    struct ucred owner;
    socklen_t    length = sizeof(owner);

    for (unsigned i = 0; connect(sock, (const struct sockaddr *)name, size) != 0; ++i) {
        if (errno != ECONNREFUSED || i == NAME_TRIES) {
            return 0;
        }
        usleep(NAME_WAIT_US); /* it has the name, and listens at once */
    }
    return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &owner, &length) == 0 &&
           owner.uid == geteuid();
}

int ang_log_is_said(const char *format, ...)
{
    struct sockaddr_un name;
    char               text[LINE_SIZE];
    socklen_t          size;
    va_list            args;
    int                sock, said;

    if (job[0] == '\0') {
        return 0;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    size = name_of(text, &name);
    sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0) {
        return 0;
    }
    if (bind(sock, (const struct sockaddr *)&name, size) == 0) {
        listen(sock, SOMAXCONN);
        return 0; /* kept until the process ends */
    }
    said = errno == EADDRINUSE && is_of_our_user(sock, &name, size);
    close(sock);
    return said;
}
