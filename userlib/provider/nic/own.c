/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue of operations on the own PE that don't end within their post, and of what was posted
 * behind them: long copies of the CPU's (self.c), which go on in pieces with the PE's progress.
 *
 * Invariants
 *   - Entries leave at the head, in the order posted. While there is one, what is posted to the own
 *     PE queues up behind it, and so do the PE's self markers, which cover its source.
 *   - No post and no turn of progress copies more than ANGARA_TURN_BYTES. Nothing is held between
 *     two pieces: keys, bounds and rights are checked for each.
 *   - What the CPU can't do is handed to the NIC, with all behind it: see "Own PE" in nic.h.
 *   - Only the PE's caller adds entries, takes them out and posts to the NIC's rings; so a queue
 *     that he finds empty stays so, and needs no lock. Who deregisters a region, in whichever
 *     thread, performs the copies that read or write it, under the lock, and marks them as ended.
 */
#include "nic.h"

#include "src/config.h"

#include <stdlib.h>
#include <string.h>

#define STEPS 64 /* entries of one turn */

struct nic_own {
    ang_desc_t desc; /* with the bytes of an inline put */
    uint64_t   done; /* bytes copied */
    int        ended;
};

angara_status_t nic_own_init(nic_pe_t *pe)
{
    pthread_mutex_init(&pe->own_lock, NULL);
    pe->own = nic_calloc((size_t)pe->cmd_mask + 1, sizeof(*pe->own));
    return pe->own != NULL ? ANGARA_OK : ANGARA_ERR_NO_MEMORY;
}

void nic_own_cleanup(nic_pe_t *pe)
{
    free(pe->own);
    pthread_mutex_destroy(&pe->own_lock);
}

static nic_own_t *entry_at(const nic_pe_t *pe, uint32_t ahead)
{
    return &pe->own[(pe->own_head + ahead) & pe->cmd_mask];
}

static int is_marker(const ang_desc_t *desc)
{
    return desc->op == ANG_OP_MARKER || desc->op == ANG_OP_MARKER_SELF;
}

static const void *inline_data(const ang_desc_t *desc)
{
    return desc->op == ANG_OP_PUT_INLINE ? desc->data : NULL;
}

/* ---- posting --------------------------------------------------------------------------------- */

angara_status_t nic_own_append(nic_pe_t *pe, const ang_desc_t *desc, const void *data)
{
    angara_status_t status = pe->dead ? ANGARA_ERR_PEER_DEAD : ANGARA_ERR_NO_RESOURCE;
    nic_own_t      *entry;

    pthread_mutex_lock(&pe->own_lock);
    if (!pe->dead && pe->own_count <= pe->cmd_mask) {
        entry  = entry_at(pe, pe->own_count);
        *entry = (nic_own_t){.desc = *desc};
        if (data != NULL) {
            memcpy(entry->desc.data, data, desc->length);
        }
        __atomic_store_n(&pe->own_count, pe->own_count + 1, __ATOMIC_RELEASE);
        status = ANGARA_OK;
    }
    pthread_mutex_unlock(&pe->own_lock);
    return status;
}

angara_status_t nic_own_post(nic_pe_t *pe, const ang_desc_t *desc, const void *data,
                             uint64_t *budget)
{
    uint64_t length = ang_desc_moves(desc) ? desc->length : 0;
    uint64_t done   = 0;

    if (nic_own_waits(pe)) {
        return nic_own_append(pe, desc, data);
    }
    if (nic_self_is_devices(pe)) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    if (length > *budget && nic_self_is_sound(pe, desc)) {
        return nic_own_append(pe, desc, data);
    }
    if (length <= *budget && nic_self_perform(pe, desc, data, &done, desc->length)) {
        *budget -= length;
        return ANGARA_OK;
    }
    nic_self_set_devices(pe, 1);
    return ANGARA_ERR_UNSUPPORTED;
}

/* ---- turns ----------------------------------------------------------------------------------- */

static void pop(nic_pe_t *pe)
{
    pe->own_head++;
    __atomic_store_n(&pe->own_count, pe->own_count - 1, __ATOMIC_RELEASE);
}

/* The next piece of a copy, or an atomic. @return 0 if the CPU can't do it. */
static int copy_piece(nic_pe_t *pe, nic_own_t *entry, uint64_t *budget)
{
    const ang_desc_t *desc = &entry->desc;
    uint64_t          left = ang_desc_moves(desc) ? desc->length - entry->done : 0;
    uint64_t          size = left < *budget ? left : *budget;

    if (!nic_self_perform(pe, desc, inline_data(desc), &entry->done, entry->done + size)) {
        return 0;
    }
    *budget -= size;
    entry->ended = size == left;
    return 1;
}

/*
 * Give the head to the NIC. It counts as ended meanwhile, since the lock isn't held: a device found
 * dead here drops the queue.
 */
static angara_status_t hand_over(nic_pe_t *pe, nic_own_t *head)
{
    ang_desc_t      desc = head->desc;
    angara_status_t status;

    if (is_marker(&desc)) {
        desc.op = nic_self_marker_op(pe, desc.pair);
    }
    head->ended = 1;
    pthread_mutex_unlock(&pe->own_lock);
    status = nic_cmd_post(pe, &desc, inline_data(&desc));
    pthread_mutex_lock(&pe->own_lock);
    if (status == ANGARA_ERR_NO_RESOURCE) {
        head->ended = 0;
    }
    return status;
}

/* @return 0: it goes on when there are bytes left, or is room in the NIC's ring. */
static int step(nic_pe_t *pe, uint64_t *budget)
{
    nic_own_t *head = entry_at(pe, 0);

    if (head->ended) {
        pop(pe);
        return 1;
    }
    if (is_marker(&head->desc) || nic_self_is_devices(pe)) {
        return hand_over(pe, head) == ANGARA_OK;
    }
    if (*budget == 0) {
        return 0;
    }
    if (!copy_piece(pe, head, budget)) {
        nic_self_set_devices(pe, 1);
    }
    return 1;
}

unsigned nic_own_progress(nic_pe_t *pe)
{
    uint64_t budget = ang_config.turn_bytes;
    unsigned count  = 0;

    pthread_mutex_lock(&pe->own_lock);
    while (pe->own_count != 0 && count < STEPS && step(pe, &budget)) {
        count++;
    }
    pthread_mutex_unlock(&pe->own_lock);
    return count;
}

/* ---- the end --------------------------------------------------------------------------------- */

void nic_own_drop(nic_pe_t *pe, int all)
{
    uint32_t kept = 0;

    pthread_mutex_lock(&pe->own_lock);
    for (uint32_t i = 0; i < pe->own_count; ++i) {
        if (!all && entry_at(pe, i)->desc.pair == NIC_SELF_PAIR) {
            *entry_at(pe, kept++) = *entry_at(pe, i);
        }
    }
    __atomic_store_n(&pe->own_count, kept, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&pe->own_lock);
}

void nic_own_finish(nic_pe_t *pe)
{
    nic_wait_t wait = {0};

    while (nic_own_waits(pe) && !pe->dead) {
        if (nic_own_progress(pe) != 0) {
            wait = (nic_wait_t){0};
        } else if (nic_wait_turn(pe, &wait) != ANGARA_OK) {
            break;
        }
    }
}

static int uses_local(const nic_own_t *entry, uint64_t key)
{
    return !entry->ended && !is_marker(&entry->desc) && entry->desc.op != ANG_OP_PUT_INLINE &&
           entry->desc.lkey == key;
}

/* A piece of the first copy that stands before, or is, one that uses the region. @return 0: none.
 */
static int end_piece(nic_pe_t *pe, uint64_t key)
{
    uint64_t   budget = ang_config.turn_bytes;
    nic_own_t *first  = NULL;

    if (nic_self_is_devices(pe)) {
        return 0;
    }
    for (uint32_t i = 0; i < pe->own_count; ++i) {
        nic_own_t *entry = entry_at(pe, i);

        if (first == NULL && !entry->ended && !is_marker(&entry->desc)) {
            first = entry;
        }
        if (uses_local(entry, key)) {
            return copy_piece(pe, first, &budget);
        }
    }
    return 0;
}

/* What the CPU can't do is left to the NIC, which will refuse it. */
void nic_own_end_local(nic_domain_t *dom, uint64_t key)
{
    int more;

    pthread_mutex_lock(&dom->pes_lock);
    for (nic_pe_t *pe = dom->pes; pe != NULL; pe = pe->next) {
        do {
            pthread_mutex_lock(&pe->own_lock);
            more = end_piece(pe, key);
            pthread_mutex_unlock(&pe->own_lock);
        } while (more);
    }
    pthread_mutex_unlock(&dom->pes_lock);
}
