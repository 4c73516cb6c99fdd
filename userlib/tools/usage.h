/* SPDX-License-Identifier: BSD-3-Clause */
/* How the tools answer wrong usage. */
#ifndef ANGARA_TOOLS_USAGE_H
#define ANGARA_TOOLS_USAGE_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define EXIT_USAGE 2

/* Say what is wrong, and where help is; ends the program. */
static inline void usage_error(const char *program, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));

static inline void usage_error(const char *program, const char *format, ...)
{
    va_list ap;

    fprintf(stderr, "%s: ", program);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fprintf(stderr, "\nTry '%s --help'.\n", program);
    exit(EXIT_USAGE);
}

#endif
