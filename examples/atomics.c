/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Both processes count in a word of process 0: each fetch-and-add gives a number that nobody else
 * gets.
 */
#include "two.h"

#include <angara/angara_fast.h>

#define COUNTS 1000

int main(void)
{
    size_t                length = sizeof(uint64_t);
    angara_marker_slot_t *slot;
    angara_mr_h           mr;
    uint64_t             *words, key, their_key, value, sum = 0, their_sum;
    void                 *memory;
    two_t                 two;

    two_start(&two, 0);
    /* Memory that peers reach in the fastest way, with its region: words[0] counts in process 0,
     * and the results land in words[1] of each. */
    length = 2 * sizeof(uint64_t);
    MUST(angara_mem_alloc(two.dom, &length, ANGARA_ACCESS_LOCAL_WRITE | ANGARA_ACCESS_REMOTE_ATOMIC,
                          &memory, &mr));
    words = memory;
    key   = angara_mr_key(mr);
    two_exchange(&two, &key, &their_key, sizeof(key));

    MUST(angara_marker_slot_get(two.pe, &slot));
    value = *slot;
    if (two.number == 1) {
        for (int i = 0; i < COUNTS; ++i) {
            MUST(angara_atomic(two.peer, ANGARA_ATOMIC_ADD, sizeof(uint64_t), 1, 0, their_key, 0,
                               mr, &words[1]));
            MUST(angara_marker(two.peer, slot, ++value));
            while (!angara_marker_arrived(slot, value)) {
                angara_pe_progress(two.pe);
            }
            sum += words[1];
        }
    }
    two_exchange(&two, &sum, &their_sum, sizeof(sum));
    if (two.number == 0) {
        printf("counted to %llu, sum of the numbers %llu\n", (unsigned long long)words[0],
               (unsigned long long)their_sum);
    }
    angara_marker_slot_put(two.pe, slot);
    MUST(angara_mem_free(mr));
    two_end(&two);
    return 0;
}
