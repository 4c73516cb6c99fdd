/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines that the ranks of a job would print alike, as they have the same settings. */
#ifndef UCT_ANGARA_ALIKE_H
#define UCT_ANGARA_ALIKE_H

#include "base/compat.h"

/** Log a line, unless another process of the job on this node has said it. */
void uct_angara_log_alike(ucs_log_level_t level, const char *fmt, ...) UCS_F_PRINTF(2, 3);

#endif
