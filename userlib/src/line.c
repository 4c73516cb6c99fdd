/* SPDX-License-Identifier: BSD-3-Clause */
/* See line.h. */
#define _GNU_SOURCE
#include "line.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

void ang_line_rank(char *rank, size_t size)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    const char              *text    = NULL;

    for (unsigned i = 0; text == NULL && i < sizeof(names) / sizeof(names[0]); ++i) {
        text = getenv(names[i]);
    }
    snprintf(rank, size, "%.10s", text != NULL ? text : "");
}

/* As UCX's lines begin, so that a sorted log of a job has both in order. */
static int head_print(char *line, size_t size, const char *rank, const char *level)
{
    char            host[65] = "";
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    gethostname(host, sizeof(host) - 1);
    return snprintf(line, size, "[%lld.%06ld] [%s:%d%s%s] angara %s: ", (long long)now.tv_sec,
                    now.tv_nsec / 1000, host, (int)getpid(), rank[0] != '\0' ? " rank " : "", rank,
                    level);
}

void ang_line_print(const char *rank, const char *level, const char *format, va_list args)
{
    char line[ANG_LINE_SIZE];
    int  length = head_print(line, sizeof(line), rank, level);

    length += vsnprintf(line + length, sizeof(line) - length - 1, format, args);
    if (length > (int)sizeof(line) - 2) {
        length = sizeof(line) - 2;
    }
    line[length++] = '\n';

    /* Nothing can be done about a failure. */
    if (write(STDERR_FILENO, line, length) < 0) {
        return;
    }
}
