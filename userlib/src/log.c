/* SPDX-License-Identifier: BSD-3-Clause */
/* See log.h. Reads the launcher's variables once, writes to stderr only. */
#define _GNU_SOURCE
#include "log.h"

#include <angara/angara.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

ang_log_level_t ang_log_level = ANG_LOG_WARN;

static char rank[16]; /* in the job; empty: none */

const char *angara_job_rank(void)
{
    return rank;
}

void ang_log_start(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    const char              *text    = NULL;

    for (unsigned i = 0; text == NULL && i < sizeof(names) / sizeof(names[0]); ++i) {
        text = getenv(names[i]);
    }
    snprintf(rank, sizeof(rank), "%.10s", text != NULL ? text : "");
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
    char                     line[1024];
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
