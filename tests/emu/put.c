/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Put rings. See emu.h. The ring is in the BAR, its owner's at any time: a put is copied once, then
 * checked and performed. Each granule that was taken is marked with its own number, so that data of
 * an earlier lap is never mistaken for the head of a put that isn't written yet. Not with 0: that
 * is the number that a head has when the count comes round.
 */
#include "emu.h"

#include <string.h>

#define HEAD_SIZE  sizeof(struct angara_put)
#define FLAG_WIDTH 8u

/* Half of the ring: what is left behind the longest pad. */
uint32_t emu_put_max(const emu_config_t *config)
{
    uint32_t granules = config->pio_bytes / 2 / ANGARA_PIO_GRANULE;
    uint32_t max      = ANGARA_PIO_INLINE + (granules - 1) * ANGARA_PIO_GRANULE;

    return max < UINT16_MAX ? max : UINT16_MAX;
}

uint32_t emu_put_granules(emu_pe_t *pe, const struct angara_put *head, uint32_t slots_left)
{
    uint32_t granules = 1;

    if (head->op == ANGARA_PIO_PAD) {
        return slots_left;
    }
    if (head->length > ANGARA_PIO_INLINE) {
        granules += (head->length - ANGARA_PIO_INLINE + ANGARA_PIO_GRANULE - 1u) /
                    ANGARA_PIO_GRANULE;
    }
    if (head->op < ANGARA_PIO_PUT || head->op > ANGARA_PIO_PAD || head->reserved != 0 ||
        head->reserved1 != 0 || granules > slots_left ||
        head->length > emu_put_max(&pe->node->emu->config) ||
        (head->op == ANGARA_PIO_NOTIFY && head->length > ANGARA_NOTIFY_BYTES)) {
        emu_pe_fail(pe, "a put makes no sense, is too long, or passes the end of the ring");
        return 0;
    }
    if (head->pair >= ANGARA_PAIRS_MAX || pe->pairs[head->pair] == NULL) {
        emu_pe_fail(pe, "a put names a pair that was never set");
        return 0;
    }
    return granules;
}

/* ---- window puts ----------------------------------------------------------------------------- */

static int is_committed(emu_pe_t *target, uint64_t offset, uint64_t length)
{
    while (length != 0) {
        uint64_t part = length;

        if (emu_pe_window(target, offset, &part) == NULL) {
            return 0;
        }
        offset += part, length -= part;
    }
    return 1;
}

static angara_status_t window_check(emu_pe_t *target, const struct angara_put *head)
{
    if (head->offset + head->length < head->offset ||
        !is_committed(target, head->offset, head->length)) {
        return ANGARA_ERR_BOUNDS;
    }
    if (head->op == ANGARA_PIO_PUT_FLAG && (head->flag_offset % FLAG_WIDTH != 0 ||
                                            !is_committed(target, head->flag_offset, FLAG_WIDTH))) {
        return ANGARA_ERR_BOUNDS;
    }
    return ANGARA_OK;
}

static int is_word(uint64_t offset, uint32_t length)
{
    return (length == 1 || length == 2 || length == 4 || length == 8) && offset % length == 0;
}

/* A put of one word is posted as one, so that chaos mode doesn't tear it. */
static angara_status_t post_chaotic(ang_pair_t *pair, const struct angara_put *head,
                                    const void *data)
{
    uint64_t word = 0;

    if (head->op == ANGARA_PIO_PUT && is_word(head->offset, head->length)) {
        memcpy(&word, data, head->length);
        return ang_engine_post_window(pair, 0, NULL, 0, head->offset, word, head->length);
    }
    return ang_engine_post_window(pair, head->offset, data, head->length, head->flag_offset,
                                  head->flag, head->op == ANGARA_PIO_PUT_FLAG ? FLAG_WIDTH : 0);
}

static angara_status_t window_put(emu_pair_t *pair, const struct angara_put *head, const void *data)
{
    emu_pe_t       *target;
    angara_status_t status = emu_pair_reach(pair, &target);

    if (status == ANGARA_OK) {
        status = window_check(target, head);
    }
    if (status != ANGARA_OK) {
        return status;
    }
    if (pair->pe->engine.chaos != NULL) {
        return post_chaotic(&pair->base, head, data);
    }
    emu_backend.window_write(&pair->base, head->offset, data, head->length);
    if (head->op == ANGARA_PIO_PUT_FLAG) {
        emu_backend.window_word(&pair->base, head->flag_offset, head->flag, FLAG_WIDTH);
        emu_backend.window_wake(&pair->base);
    }
    return ANGARA_OK;
}

/* A put that can't be performed sets the pair in error like a ring operation would: no marker that
 * was to cover it may come back. One fault a pair is told, and what can't be done later is dropped.
 */
static emu_next_t window_outcome(emu_pair_t *pair, angara_status_t status)
{
    int in_error = pair->base.error != ANGARA_OK;

    switch (status) {
    case ANGARA_OK:
        pair->pe->counters[ANGARA_CNT_PUTS]++;
        return EMU_DONE;
    case ANGARA_INPROGRESS:
        return in_error ? EMU_DONE : EMU_LATER;
    case ANGARA_ERR_NO_RESOURCE:
    case ANGARA_ERR_NO_MEMORY:
        return EMU_LATER;
    default:
        if (!in_error) {
            ang_engine_pair_reset(&pair->base,
                                  status == ANGARA_ERR_PEER_DEAD ? status : ANGARA_ERR_PAIR);
            emu_event_fault(pair, 0, status);
        }
        return EMU_DONE;
    }
}

/* ---- notify puts ----------------------------------------------------------------------------- */

static emu_next_t notify_put(emu_pair_t *pair, const struct angara_put *head, const void *data)
{
    emu_pe_t       *pe = pair->pe, *target;
    angara_status_t status;

    status = emu_pair_reach(pair, &target);
    if (status == ANGARA_INPROGRESS) {
        return EMU_LATER;
    }
    if (status == ANGARA_OK) {
        status = emu_event_notify(target, pe, data, head->length);
        emu_pe_status(target);
    }
    pe->counters[ANGARA_CNT_NOTIFIES] += status == ANGARA_OK;
    pe->counters[ANGARA_CNT_REFUSED] += status == ANGARA_ERR_NO_RESOURCE;
    pe->notify_token  = head->token;
    pe->notify_status = (int32_t)status;
    return EMU_DONE;
}

/* ---- the ring -------------------------------------------------------------------------------- */

emu_next_t emu_put_execute(emu_pe_t *pe)
{
    const uint8_t    *data = pe->put + HEAD_SIZE;
    struct angara_put head;
    emu_pair_t       *pair;

    memcpy(&head, pe->put, sizeof(head));
    if (head.op == ANGARA_PIO_PAD) {
        return EMU_DONE;
    }
    pair = pe->pairs[head.pair];
    if (head.op == ANGARA_PIO_NOTIFY) {
        return notify_put(pair, &head, data);
    }
    return window_outcome(pair, window_put(pair, &head, data));
}

/* Bytes of a copied put. */
static size_t copied_size(const struct angara_put *head)
{
    return HEAD_SIZE + (head->op == ANGARA_PIO_PAD ? 0 : head->length);
}

/* Copy the data behind a head that is sound: in one piece, behind it. */
static void copy_data(emu_pe_t *pe, const struct angara_put *head, const char *from)
{
    uint8_t *data = pe->put + HEAD_SIZE;

    memcpy(pe->put, head, HEAD_SIZE);
    memcpy(data, head->data, ANGARA_PIO_INLINE);
    if (head->op != ANGARA_PIO_PAD && head->length > ANGARA_PIO_INLINE) {
        memcpy(data + ANGARA_PIO_INLINE, from + HEAD_SIZE, head->length - ANGARA_PIO_INLINE);
    }
}

static void mark_consumed(char *from, uint32_t granules, uint32_t number)
{
    for (uint32_t i = 0; i < granules; ++i) {
        __atomic_store_n((uint32_t *)(void *)(from + (size_t)i * ANGARA_PIO_GRANULE),
                         number + i + 1, __ATOMIC_RELAXED);
    }
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

unsigned emu_put_turn(emu_pe_t *pe)
{
    uint32_t          bytes = pe->node->emu->config.pio_bytes;
    uint32_t          slots = bytes / ANGARA_PIO_GRANULE;
    char             *ring  = pe->node->bar + pe->node->pio_offset + (size_t)pe->index * bytes;
    unsigned          count = 0;
    struct angara_put head;

    while (count < EMU_TURN_COUNT) {
        uint32_t slot = (uint32_t)(pe->pio_cons % slots);
        char    *from = ring + (size_t)slot * ANGARA_PIO_GRANULE;
        uint32_t granules;

        if (__atomic_load_n((uint32_t *)(void *)from, __ATOMIC_ACQUIRE) !=
            (uint32_t)(pe->pio_cons + 1)) {
            break;
        }
        memcpy(&head, from, sizeof(head));
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        granules = emu_put_granules(pe, &head, slots - slot);
        if (granules == 0) {
            emu_log(pe->node, 'U', (int)pe->index, &head, sizeof(head), "%u", slots - slot);
            break;
        }
        copy_data(pe, &head, from);
        if (emu_put_execute(pe) == EMU_LATER) {
            pe->node->emu->busy = 1;
            break;
        }
        emu_log(pe->node, 'U', (int)pe->index, pe->put, copied_size(&head), "%u", slots - slot);
        mark_consumed(from, granules, (uint32_t)pe->pio_cons);
        pe->pio_cons += granules;
        pe->dirty = 1;
        count++;
    }
    return count;
}
