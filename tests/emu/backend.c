/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The emulated NIC as a backend of the descriptor engine. See emu.h. Nothing is held between
 * remote() and release(): each copy looks its regions up again, so an invalidated region or a PE
 * that was reset can't be reached by what was resolved before. That is what makes it right to
 * acknowledge an invalidation between two turns.
 *
 * Called under the engine's lock in chaos mode: must not call the engine.
 */
#include "emu.h"

#include <string.h>

enum { REF_OWN = ANG_REF_BACKEND, REF_FAR }; /* regions of the initiator's node, of the target's */

static emu_pair_t *pair_of(ang_pair_t *pair)
{
    return (emu_pair_t *)pair; /* its first member */
}

/* ---- who is where ---------------------------------------------------------------------------- */

/* While a link is down operations wait; too long is an error. */
static angara_status_t stalled(emu_pair_t *pair)
{
    emu_t *emu = pair->pe->node->emu;

    if (pair->stall_since == 0) {
        pair->stall_since = emu->now;
    }
    if (emu->now - pair->stall_since < 1000000ull * emu->config.timeout_ms) {
        return ANGARA_INPROGRESS;
    }
    return ANGARA_ERR_UNREACHABLE;
}

angara_status_t emu_pair_reach(emu_pair_t *pair, emu_pe_t **target)
{
    emu_t *emu = pair->pe->node->emu;

    if (pair->node >= emu->num_nodes) {
        return ANGARA_ERR_UNREACHABLE;
    }
    if (!emu_linked(pair->pe->node, &emu->nodes[pair->node])) {
        return stalled(pair);
    }
    pair->stall_since = 0;
    *target           = emu_pe_find(pair);
    if (*target == NULL || !(*target)->node->dma) {
        return ANGARA_ERR_PEER_DEAD;
    }
    return ANGARA_OK;
}

/* A NIC whose port isn't in loopback mode can't read from its own node. */
static int read_forbidden(const emu_pair_t *pair)
{
    return !pair->pe->node->emu->config.loopback && pair->node == pair->pe->node->id;
}

/* ---- resolving ------------------------------------------------------------------------------- */

static angara_status_t backend_local(ang_pair_t *base, uint64_t key, uint64_t offset,
                                     uint64_t length, unsigned access, ang_ref_t *ref)
{
    emu_pe_t *pe = pair_of(base)->pe;

    ref->kind   = REF_OWN;
    ref->key    = key;
    ref->offset = offset;
    return emu_mr_check(pe->node, pe->hw.domain, key, offset, length, access, &ref->addr);
}

static angara_status_t backend_remote(ang_pair_t *base, uint64_t key, uint64_t offset,
                                      uint64_t length, unsigned access, const ang_ref_t *near,
                                      ang_ref_t *ref)
{
    emu_pair_t     *pair = pair_of(base);
    emu_t          *emu  = pair->pe->node->emu;
    emu_pe_t       *target;
    angara_status_t status;

    (void)near;
    if (access == ANGARA_ACCESS_REMOTE_READ && read_forbidden(pair)) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    status = emu_pair_reach(pair, &target);
    if (status != ANGARA_OK) {
        return status;
    }
    if (emu->bad_keys != 0) {
        emu->bad_keys--;
        return ANGARA_ERR_KEY;
    }
    ref->kind   = REF_FAR;
    ref->key    = key;
    ref->offset = offset;
    return emu_mr_check(target->node, target->hw.domain, key, offset, length, access, &ref->addr);
}

static void backend_release(ang_pair_t *base, ang_ref_t *ref)
{
    (void)base;
    (void)ref;
}

/* Memory `done` bytes into a stretch. */
static angara_status_t at(emu_pair_t *pair, emu_pe_t *target, const ang_ref_t *ref, uint64_t done,
                          uint64_t *length, char **memory)
{
    if (ref->kind == ANG_REF_HOST) {
        *memory = (char *)(uintptr_t)ref->addr + done;
        return ANGARA_OK;
    }
    return emu_mr_at(ref->kind == REF_FAR ? target->node : pair->pe->node, ref->key,
                     ref->addr + done, length, memory);
}

/* ---- moving ---------------------------------------------------------------------------------- */

static angara_status_t backend_copy(ang_pair_t *base, const ang_ref_t *dst, const ang_ref_t *src,
                                    uint64_t end, uint64_t *done)
{
    emu_pair_t     *pair   = pair_of(base);
    emu_pe_t       *target = NULL;
    angara_status_t status = ANGARA_OK;
    uint64_t        part;
    char           *to, *from;

    if (dst->kind == REF_FAR || src->kind == REF_FAR) {
        status = emu_pair_reach(pair, &target);
    }
    while (status == ANGARA_OK && *done < end) {
        part   = end - *done;
        status = at(pair, target, src, *done, &part, &from);
        if (status == ANGARA_OK) {
            status = at(pair, target, dst, *done, &part, &to);
        }
        if (status == ANGARA_OK) {
            emu_copy(to, from, part);
            *done += part;
        }
    }
    return status;
}

#define ATOMIC(_type)                                                                \
    do {                                                                             \
        _type *word = (_type *)(void *)memory, value = (_type)desc->operand;         \
        _type  expected = (_type)desc->compare;                                      \
                                                                                     \
        switch (desc->atomic) {                                                      \
        case ANGARA_ATOMIC_ADD:                                                      \
            *old = __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);                \
            break;                                                                   \
        case ANGARA_ATOMIC_AND:                                                      \
            *old = __atomic_fetch_and(word, value, __ATOMIC_SEQ_CST);                \
            break;                                                                   \
        case ANGARA_ATOMIC_OR:                                                       \
            *old = __atomic_fetch_or(word, value, __ATOMIC_SEQ_CST);                 \
            break;                                                                   \
        case ANGARA_ATOMIC_XOR:                                                      \
            *old = __atomic_fetch_xor(word, value, __ATOMIC_SEQ_CST);                \
            break;                                                                   \
        case ANGARA_ATOMIC_SWAP:                                                     \
            *old = __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);               \
            break;                                                                   \
        default: /* ANGARA_ATOMIC_CSWAP */                                           \
            __atomic_compare_exchange_n(word, &expected, value, 0, __ATOMIC_SEQ_CST, \
                                        __ATOMIC_SEQ_CST);                           \
            *old = expected;                                                         \
            break;                                                                   \
        }                                                                            \
    } while (0)

static angara_status_t backend_atomic(ang_pair_t *base, const ang_ref_t *ref,
                                      const ang_desc_t *desc, uint64_t *old)
{
    emu_pair_t     *pair   = pair_of(base);
    uint64_t        length = desc->width;
    emu_pe_t       *target;
    angara_status_t status;
    char           *memory;

    if (desc->lkey != 0 && read_forbidden(pair)) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    status = emu_pair_reach(pair, &target);
    if (status == ANGARA_OK) {
        status = at(pair, target, ref, 0, &length, &memory);
    }
    if (status == ANGARA_OK) {
        if (desc->width == 8) {
            ATOMIC(uint64_t);
        } else {
            ATOMIC(uint32_t);
        }
    }
    return status;
}

/* All before it was performed by this thread's stores: that the far end still answers is enough. */
static angara_status_t backend_read_back(ang_pair_t *base)
{
    emu_pe_t *target;

    if (read_forbidden(pair_of(base))) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    return emu_pair_reach(pair_of(base), &target);
}

static void backend_marker_land(ang_engine_t *engine, uint64_t slot, uint64_t value)
{
    emu_pe_t *pe   = engine->ctx;
    uint64_t *word = emu_bus(pe->node, pe->hw.marker + slot * sizeof(*word), sizeof(*word));

    if (word != NULL) {
        __atomic_store_n(word, value, __ATOMIC_RELEASE);
    }
    pe->dirty = 1;
    emu_event_wake(pe);
}

/* ---- windows: checked when the put was taken; a target that has gone since swallows it ------- */

static void backend_window_write(ang_pair_t *base, uint64_t offset, const void *src, size_t length)
{
    emu_pe_t   *target = emu_pe_find(pair_of(base));
    const char *from   = src;

    while (target != NULL && length != 0) {
        uint64_t part = length;
        void    *to   = emu_pe_window(target, offset, &part);

        if (to == NULL) {
            return;
        }
        emu_copy(to, from, part);
        from += part, offset += part, length -= part;
    }
}

static void backend_window_word(ang_pair_t *base, uint64_t offset, uint64_t value, unsigned width)
{
    backend_window_write(base, offset, &value, width); /* aligned: one store */
}

static void backend_window_wake(ang_pair_t *base)
{
    emu_pe_t *target = emu_pe_find(pair_of(base));

    if (target != NULL) {
        emu_event_wake(target);
    }
}

static void backend_fault(ang_pair_t *base, uint64_t key, angara_status_t status)
{
    emu_event_fault(pair_of(base), key, status);
}

const ang_backend_t emu_backend = {
    .local        = backend_local,
    .remote       = backend_remote,
    .release      = backend_release,
    .copy         = backend_copy,
    .atomic       = backend_atomic,
    .read_back    = backend_read_back,
    .marker_land  = backend_marker_land,
    .window_write = backend_window_write,
    .window_word  = backend_window_word,
    .window_wake  = backend_window_wake,
    .fault        = backend_fault,
};
