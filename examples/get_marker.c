/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Read the other process's memory by an offload get, and know by a completion marker when it has
 * arrived. The other process has no part in it.
 */
#include "two.h"

#include <string.h>

#define LENGTH 100000

int main(void)
{
    char                 *memory = calloc(1, LENGTH);
    angara_marker_slot_t *slot;
    angara_mr_h           mr;
    uint64_t              key, their_key, value;
    two_t                 two;

    if (memory == NULL) {
        perror("memory");
        return EXIT_FAILURE;
    }
    two_start(&two, 0);
    /* What is got lies in a region, and what a peer may get, too; the key says which. */
    MUST(angara_mr_register(two.dom, memory, LENGTH,
                            ANGARA_ACCESS_LOCAL_WRITE | ANGARA_ACCESS_REMOTE_READ, &mr));
    if (two.number == 1) {
        memset(memory, 'x', LENGTH);
    }
    key = angara_mr_key(mr);
    two_exchange(&two, &key, &their_key, sizeof(key));

    if (two.number == 0) {
        MUST(angara_marker_slot_get(two.pe, &slot));
        value = *slot + 1; /* markers count up from what the slot holds */
        MUST(angara_offload_get(two.peer, mr, memory, their_key, 0, LENGTH));
        MUST(angara_marker(two.peer, slot, value));
        while (!angara_marker_arrived(slot, value)) {
            two_turn(&two);
        }
        printf("received: %c...%c\n", memory[0], memory[LENGTH - 1]);
        angara_marker_slot_put(two.pe, slot);
    }
    two_barrier(&two); /* the region stays until it was read */
    MUST(angara_mr_deregister(mr));
    two_end(&two);
    free(memory);
    return 0;
}
