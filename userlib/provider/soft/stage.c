/* SPDX-License-Identifier: BSD-3-Clause */
/* See stage.h. */
#include "stage.h"

#include "gpu_mem.h"

angara_status_t soft_stage_commit(soft_pe_t *pe, unsigned index, uint32_t size)
{
    soft_slot_t    *slot = &pe->service->slots[index];
    angara_status_t status;

    if (slot->staged >= size) {
        return ANGARA_OK;
    }
    status = soft_segment_commit(&pe->segment, pe->layout.staging + soft_staging_offset(index),
                                 size);
    if (status == ANGARA_OK) {
        __atomic_store_n(&slot->staged, size, __ATOMIC_RELAXED);
    }
    return status;
}

/* So many requests of one requester come to the end of a slot's staging memory until there is more
 * of it: only who moves many bytes is given that. */
#define GROWS_AFTER 8

static int may_grow(soft_pe_t *pe, unsigned index)
{
    soft_room_t *room  = &pe->rooms[index];
    uint64_t     owner = __atomic_load_n(&pe->service->slots[index].owner, __ATOMIC_RELAXED);

    if (room->owner != owner) {
        *room = (soft_room_t){.owner = owner};
    }
    return ++room->asked % GROWS_AFTER == 0 && !pe->has_no_room;
}

/*
 * So much of it for a request of host memory that ends there. Where a slot has room it grows as
 * it is used: requesters go through all that there is (agent.h). Without memory for that it stays
 * as it is, and so do the others.
 */
static angara_status_t commit_for(soft_pe_t *pe, unsigned index, uint64_t end)
{
    soft_slot_t    *slot = &pe->service->slots[index];
    uint32_t        size = slot->staged > SOFT_STAGING ? slot->staged : SOFT_STAGING;
    angara_status_t status;

    if (end > soft_staging_size(index)) {
        return ANGARA_ERR_INVALID;
    }
    while (size < end) {
        size *= 2;
    }
    status = soft_stage_commit(pe, index, size);
    /* What is there stays out of it: a failure may take back what nobody has touched yet. */
    if (status == ANGARA_OK && end + SOFT_STAGING / 2 > size && size == slot->staged &&
        size < soft_staging_size(index) && may_grow(pe, index)) {
        pe->has_no_room = !soft_segment_grow(
            &pe->segment, pe->layout.staging + soft_staging_offset(index) + size, size);
        if (!pe->has_no_room) {
            __atomic_store_n(&slot->staged, 2 * size, __ATOMIC_RELAXED);
        }
    }
    return status;
}

angara_status_t soft_stage(soft_pe_t *pe, unsigned index, const soft_request_t *request,
                           char **data)
{
    uint64_t               place    = request->compare;
    uint64_t               end      = place + request->length;
    int                    is_large = 0;
    const soft_mr_entry_t *entry;
    uint64_t               addr, size;
    angara_status_t        status;

    if (end < place) {
        return ANGARA_ERR_INVALID;
    }
    if (request->op != SOFT_OP_BATCH && end > SOFT_SMALL_PIECE) {
        status = soft_mr_check(pe->dom->shared, pe->dom->mr_max, request->key, 0, 0, 0, &addr,
                               &entry);
        if (status != ANGARA_OK) {
            return status;
        }
        is_large = entry->kind != ANGARA_MEM_HOST;
    }
    if (is_large) {
        size   = index < SOFT_LARGE_SLOTS ? soft_staging_size(index) : SOFT_SMALL_PIECE;
        status = end <= size ? soft_stage_commit(pe, index, (uint32_t)size) : ANGARA_ERR_INVALID;
    } else {
        status = request->length <= SOFT_STAGING ? commit_for(pe, index, end) : ANGARA_ERR_INVALID;
    }
    if (status != ANGARA_OK) {
        return status;
    }
    *data = soft_stage_of(pe, &pe->service->slots[index]);
    if (is_large && request->length > SOFT_SMALL_PIECE) {
        *data = soft_pinned(&pe->pinned[index], *data, (uint32_t)size, addr);
    }
    *data += place;
    return ANGARA_OK;
}
