/* SPDX-License-Identifier: BSD-3-Clause */
/* See record_ring.h. Touches the ring's memory only; asks the kernel whether a producer is alive.
 */
#include "record_ring.h"

#include "soft.h"

#include "src/clock.h"

#include <string.h>

#define STUCK_NS 2000000 /* a claim older than this is looked at */

/* State word: turn, its low 16 bits | producer, the low 46 bits of soft_owner() | phase, 2 bits. */
enum { PHASE_FREE, PHASE_CLAIMED, PHASE_READY, PHASE_TAKEN };

#define PRODUCER_BITS  46 /* process number, program, and the start time modulo 2.5 seconds */
#define PRODUCER_SHIFT 2
#define TURN_SHIFT     (PRODUCER_BITS + PRODUCER_SHIFT)

static uint64_t make_state(uint64_t turn, uint64_t producer, unsigned phase)
{
    return turn << TURN_SHIFT | (producer & ((1ull << PRODUCER_BITS) - 1)) << PRODUCER_SHIFT |
           phase;
}

static unsigned state_phase(uint64_t state)
{
    return state & 3;
}

static uint64_t state_producer(uint64_t state)
{
    return state >> PRODUCER_SHIFT & ((1ull << PRODUCER_BITS) - 1);
}

static uint16_t state_turn(uint64_t state)
{
    return (uint16_t)(state >> TURN_SHIFT);
}

size_t soft_record_ring_size(unsigned count)
{
    return sizeof(soft_record_ring_t) + count * sizeof(soft_record_t);
}

static void fill(soft_record_t *slot, const void *data, size_t length, const void *more,
                 size_t more_length)
{
    slot->length = (uint32_t)(length + more_length);
    memcpy(slot->data, data, length);
    if (more_length != 0) {
        memcpy(slot->data + length, more, more_length);
    }
}

/* The hint only grows, so that it never leads back over slots of a later turn. */
static void raise_tail(soft_record_ring_t *ring, uint64_t position)
{
    uint64_t tail = __atomic_load_n(&ring->tail, __ATOMIC_RELAXED);

    while (tail < position && !__atomic_compare_exchange_n(&ring->tail, &tail, position, 1,
                                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

angara_status_t soft_record_push(soft_record_ring_t *ring, unsigned count, const void *data,
                                 size_t length, const void *more, size_t more_length)
{
    uint64_t position = __atomic_load_n(&ring->tail, __ATOMIC_RELAXED);
    uint64_t producer = soft_owner();
    uint64_t turn, state;
    int16_t  behind;

    if (length + more_length > SOFT_RECORD_MAX) {
        return ANGARA_ERR_INVALID;
    }
    /* The tail is a hint that anybody may spoil: two rounds find a free slot if there is one. */
    for (unsigned tries = 0; tries < 2 * count; ++tries, ++position) {
        soft_record_t *slot = &ring->slots[position & (count - 1)];

        turn   = position / count;
        state  = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
        behind = (int16_t)((uint16_t)turn - state_turn(state));
        if (behind > 0) {
            /* Not consumed since the turn before, or the hint is too far ahead. */
            return ANGARA_ERR_NO_RESOURCE;
        }
        if (behind < 0 || state_phase(state) != PHASE_FREE) {
            continue; /* taken in this turn, or the hint is old: slots are claimed without a gap */
        }
        if (!__atomic_compare_exchange_n(&slot->state, &state,
                                         make_state(turn, producer, PHASE_CLAIMED), 0,
                                         __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            continue;
        }
        fill(slot, data, length, more, more_length);
        __atomic_store_n(&slot->state, make_state(turn, producer, PHASE_READY), __ATOMIC_RELEASE);
        raise_tail(ring, position + 1);
        return ANGARA_OK;
    }
    return ANGARA_ERR_NO_RESOURCE;
}

static soft_record_t *slot_at(const soft_record_reader_t *reader, unsigned ahead)
{
    return &reader->ring->slots[(reader->head + ahead) & (reader->count - 1)];
}

/* The oldest record that is ready, wherever it stands. */
static soft_record_t *find_ready(const soft_record_reader_t *reader)
{
    for (unsigned i = 0; i < reader->count; ++i) {
        soft_record_t *slot = slot_at(reader, i);

        switch (state_phase(__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE))) {
        case PHASE_FREE:
            return NULL; /* slots are claimed without a gap */
        case PHASE_READY:
            return slot;
        default:
            break;
        }
    }
    return NULL;
}

int soft_record_ready(const soft_record_reader_t *reader)
{
    return find_ready(reader) != NULL;
}

int soft_record_find(const soft_record_reader_t *reader, const void *head, size_t length)
{
    for (unsigned i = 0; i < reader->count; ++i) {
        const soft_record_t *slot  = slot_at(reader, i);
        uint64_t             state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);

        if (state_phase(state) == PHASE_FREE) {
            return 0; /* slots are claimed without a gap */
        }
        if (state_phase(state) == PHASE_READY && slot->length >= length &&
            !memcmp(slot->data, head, length)) {
            return 1;
        }
    }
    return 0;
}

static void release(soft_record_reader_t *reader, soft_record_t *slot)
{
    uint64_t turn = reader->head / reader->count + 1;

    __atomic_store_n(&slot->state, make_state(turn, 0, PHASE_FREE), __ATOMIC_RELEASE);
    __atomic_store_n(&reader->head, reader->head + 1, __ATOMIC_RELAXED);
    reader->stuck_since = 0;
}

/* A slot is claimed but not ready: is its producer gone? Asked only after a while. */
static int claim_is_dead(soft_record_reader_t *reader, uint64_t state)
{
    uint64_t now = ang_clock_ns(CLOCK_MONOTONIC);

    if (reader->stuck_since == 0) {
        reader->stuck_since = now;
    }
    if (now - reader->stuck_since < STUCK_NS) {
        return 0;
    }
    reader->stuck_since = now;
    return state_producer(state) != 0 &&
           !soft_owner_part_alive(state_producer(state), PRODUCER_BITS);
}

static int copy_out(const soft_record_t *slot, void *data)
{
    uint32_t length = __atomic_load_n(&slot->length, __ATOMIC_RELAXED);

    if (length > SOFT_RECORD_MAX) {
        length = 0; /* garbage: its user refuses an empty record */
    }
    memcpy(data, slot->data, length);
    return (int)length;
}

/*
 * Whose record is oldest hasn't finished it: take the next that is ready. It is of another sender:
 * a sender's record that stands before it was ready when this one was claimed, so who has seen this
 * one ready sees that, when it looks again.
 */
static int pop_behind(soft_record_reader_t *reader, void *data)
{
    soft_record_t *slot = NULL, *again = find_ready(reader);
    int            length;

    while (again != slot) {
        slot  = again;
        again = find_ready(reader);
    }
    if (slot == NULL) {
        return -1;
    }
    length = copy_out(slot, data);
    __atomic_store_n(&slot->state, slot->state | PHASE_TAKEN, __ATOMIC_RELEASE);
    return length;
}

int soft_record_pop(soft_record_reader_t *reader, void *data)
{
    soft_record_t *slot;
    uint64_t       state;
    int            length;

    for (;;) {
        slot  = slot_at(reader, 0);
        state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
        if (__builtin_expect(state_phase(state) == PHASE_FREE, 1)) {
            return -1;
        }
        if (state_phase(state) == PHASE_READY) {
            length = copy_out(slot, data);
            release(reader, slot);
            return length;
        }
        if (state_phase(state) == PHASE_CLAIMED && !claim_is_dead(reader, state)) {
            return pop_behind(reader, data);
        }
        release(reader, slot); /* taken before, or nobody will fill it */
    }
}
