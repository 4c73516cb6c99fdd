/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging memory of the slots, as their server (serve.c) gives it: how much each has, and where the
 * bytes of a request are. Behind soft_helper_lock.
 */
#ifndef SOFT_STAGE_H
#define SOFT_STAGE_H

#include "soft.h"

/* Where the slot's staging memory is. */
static inline char *soft_stage_of(soft_pe_t *pe, const soft_slot_t *slot)
{
    size_t index = (size_t)(slot - pe->service->slots);

    return (char *)pe->seg + pe->layout.staging + soft_staging_offset((unsigned)index);
}

/* The slot has so much of it from here on. */
angara_status_t soft_stage_commit(soft_pe_t *pe, unsigned index, uint32_t size);
/*
 * Allocate as much of the slot's staging memory as the request needs, if it isn't there yet. *data:
 * where its bytes are. Pieces of GPU memory may be large, if the slot has room for them.
 */
angara_status_t soft_stage(soft_pe_t *pe, unsigned index, const soft_request_t *request,
                           char **data);

#endif
