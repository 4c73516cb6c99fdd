/* SPDX-License-Identifier: BSD-3-Clause */
/* See alike.h. */
#include "base/alike.h"

#include <angara/angara.h>
#include <stdarg.h>
#include <stdio.h>

void uct_angara_log_alike(ucs_log_level_t level, const char *fmt, ...)
{
    char    text[1024];
    va_list ap;

    if (!ucs_log_is_enabled(level)) {
        return;
    }

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (!angara_is_said(text)) {
        ucs_log(level, "%s", text);
    }
}
