/* SPDX-License-Identifier: BSD-3-Clause */
/* See say.h. */
#include "base/say.h"

#include <angara/angara.h>

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void uct_angara_stays_off(const char *fmt, ...)
{
    char    text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (!angara_is_said(text)) {
        angara_log_error(text);
    }
}

void uct_angara_abort(const char *fmt, ...)
{
    char    text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    angara_log_error(text);
    signal(SIGABRT, SIG_DFL);
    abort();
}
