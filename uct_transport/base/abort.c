/* SPDX-License-Identifier: BSD-3-Clause */
/* See abort.h. */
#include "base/abort.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void uct_angara_abort(const char *fmt, ...)
{
    char    message[1024]; /* one write: other ranks use that terminal, too */
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    fprintf(stderr, "angara: %s\n", message);
    signal(SIGABRT, SIG_DFL);
    abort();
}
