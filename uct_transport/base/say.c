/* SPDX-License-Identifier: BSD-3-Clause */
/* See say.h. */
#include "base/say.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX     "angara: "
#define PREFIX_LEN (sizeof(PREFIX) - 1)

/* By write(): since 2.37 glibc's fprintf() makes pieces of 128 bytes where nothing is buffered. */
static void uct_angara_say_v(const char *fmt, va_list ap)
{
    char    line[1024] = PREFIX;
    size_t  length;
    ssize_t ret;

    vsnprintf(line + PREFIX_LEN, sizeof(line) - PREFIX_LEN, fmt, ap);
    length       = strlen(line); /* the last byte, too, may become the end of the line */
    line[length] = '\n';
    ret          = write(STDERR_FILENO, line, length + 1);
    (void)ret; /* there is nobody else to tell */
}

void uct_angara_say(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    uct_angara_say_v(fmt, ap);
    va_end(ap);
}

void uct_angara_abort(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    uct_angara_say_v(fmt, ap);
    va_end(ap);
    signal(SIGABRT, SIG_DFL);
    abort();
}
