/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a process that can't go on, and can't tell UCX so. */
#ifndef UCT_ANGARA_ABORT_H
#define UCT_ANGARA_ABORT_H

#include "base/compat.h"

/** Abort with one line on stderr, without the traces of UCX's and Open MPI's signal handlers. */
void uct_angara_abort(const char *fmt, ...) UCS_F_PRINTF(1, 2) UCS_F_NORETURN;

#endif
