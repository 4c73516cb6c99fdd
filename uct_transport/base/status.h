/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library's statuses are for UCX. No state. */
#ifndef UCT_ANGARA_STATUS_H
#define UCT_ANGARA_STATUS_H

#include "base/compat.h"

#include <angara/angara.h>

/** UCX's status for one of the library. */
ucs_status_t uct_angara_status(angara_status_t status);

#endif
