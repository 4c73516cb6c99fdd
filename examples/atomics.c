/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Both processes count in a word of process 0: each fetch-and-add gives a number that nobody else
 * gets. Process 0 goes through the fabric, too: a peer may be the own PE.
 */
#include "two.h"

#define COUNTS 1000

int main(void)
{
    size_t                length = 2 * sizeof(uint64_t);
    angara_address_t      own;
    angara_marker_slot_t *slot;
    angara_peer_h         target;
    angara_mr_h           mr;
    uint64_t             *words, key, their_key, value, sum = 0, their_sum;
    void                 *memory;
    two_t                 two;

    two_start(&two, 0);
    /* Memory that peers reach in the fastest way, with its region: words[0] of process 0 counts,
     * and the results land in words[1] of each. */
    MUST(angara_mem_alloc(two.dom, &length, ANGARA_ACCESS_LOCAL_WRITE | ANGARA_ACCESS_REMOTE_ATOMIC,
                          &memory, &mr));
    words    = memory;
    words[0] = 0;
    key      = angara_mr_key(mr);
    two_exchange(&two, &key, &their_key, sizeof(key));

    if (two.number == 0) {
        angara_pe_address(two.pe, &own);
        MUST(angara_peer_connect(two.pe, &own, &target));
    } else {
        target = two.peer;
        key    = their_key;
    }
    MUST(angara_marker_slot_get(two.pe, &slot));
    value = *slot;
    for (int i = 0; i < COUNTS; ++i) {
        MUST(angara_atomic(target, ANGARA_ATOMIC_ADD, sizeof(uint64_t), 1, 0, key, 0, mr,
                           &words[1]));
        MUST(angara_marker(target, slot, ++value));
        while (!angara_marker_arrived(slot, value)) {
            two_turn(&two);
        }
        sum += words[1];
    }
    two_exchange(&two, &sum, &their_sum, sizeof(sum));
    if (two.number == 0) {
        printf("counted to %llu, sum of the numbers %llu\n", (unsigned long long)words[0],
               (unsigned long long)(sum + their_sum));
        angara_peer_disconnect(target);
    }
    angara_marker_slot_put(two.pe, slot);
    two_barrier(&two); /* the word stays until both have counted */
    MUST(angara_mem_free(mr));
    two_end(&two);
    return 0;
}
