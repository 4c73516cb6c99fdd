/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A line on stderr: time, host, process and rank, level, text. Of the library's log, and of the
 * Open MPI component, which has this file's object for itself, as its lines come before the library
 * is loaded, or where it can't be.
 */
#ifndef ANG_LINE_H
#define ANG_LINE_H

#include <stdarg.h>
#include <stddef.h>

#define ANG_LINE_SIZE 1024 /* with its end; what is longer is cut */

/* The rank of this process in its job, as the launcher's variables have it; "": none. */
void ang_line_rank(char *rank, size_t size);

/* Print in one write, so that lines of several ranks don't mix. */
void ang_line_print(const char *rank, const char *level, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

#endif
