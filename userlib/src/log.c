/* SPDX-License-Identifier: BSD-3-Clause */
/* See log.h. Writes to stderr only. */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

ang_log_level_t ang_log_level = ANG_LOG_WARN;

void ang_log_print(ang_log_level_t level, const char *format, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char                     line[1024];
    va_list                  args;
    int                      head, length;

    head = snprintf(line, sizeof(line), "angara[%d] %s: ", (int)getpid(), names[level]);
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
