/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A ring of records in shared memory: many producers in many processes, one consumer at a time.
 *
 * Invariants
 *   - Each slot has one state word {turn, producer, phase}. A producer claims a free slot of
 *     its turn by compare-and-swap, fills it, then marks it ready. Nothing is locked, and slots are
 *     taken in the order of the claims.
 *   - A producer between claim and ready holds up nobody: what is ready behind it is read first.
 *     A sender's records keep their order, as it claims none before the last is ready. The slots
 *     read early are freed when their turn comes: a producer that was stopped there leaves the
 *     others one lap of the ring until it goes on.
 *   - The state word names a producer by more than its number, which may be used again, and by its
 *     program: the consumer skips the slot of one that is gone.
 *   - Contents come from other processes: the consumer checks the length, its user the rest.
 */
#ifndef SOFT_RECORD_RING_H
#define SOFT_RECORD_RING_H

#include <angara/angara.h>

#define SOFT_RECORD_MAX 104 /* bytes of a record */

typedef struct {
    uint64_t state;
    uint32_t length;
    uint32_t reserved;
    uint8_t  data[SOFT_RECORD_MAX];
    uint64_t pad;
} soft_record_t;

typedef struct {
    uint64_t      tail; /* hint where a free slot may be */
    uint64_t      pad[7];
    soft_record_t slots[];
} soft_record_ring_t;

/* Bytes of a ring of @a count records, a power of two. Zeroed memory is an empty ring. */
size_t soft_record_ring_size(unsigned count);

/* Append. @return ANGARA_OK, or ANGARA_ERR_NO_RESOURCE if the ring is full. */
angara_status_t soft_record_push(soft_record_ring_t *ring, unsigned count, const void *data,
                                 size_t length, const void *more, size_t more_length);

/* The consumer's side. */
typedef struct {
    soft_record_ring_t *ring;
    unsigned            count;
    uint64_t            head;
    uint64_t            stuck_since; /* ns; 0: not stuck */
} soft_record_reader_t;

/*
 * Take the oldest record that is ready. @return its length and copy it to data[SOFT_RECORD_MAX], or
 * -1 if there is none.
 */
int soft_record_pop(soft_record_reader_t *reader, void *data);

/* Non-zero if there is one. Who gets another ready wakes the consumer after that. */
int soft_record_ready(const soft_record_reader_t *reader);

/* Non-zero if one of the ready records begins with these bytes, wherever it stands. */
int soft_record_find(const soft_record_reader_t *reader, const void *head, size_t length);

#endif
