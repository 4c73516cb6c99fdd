/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A message by a flagged window put: the bytes, then a word that becomes visible after them. The
 * receiver reads its own memory.
 */
#include "two.h"

#define WINDOW  4096
#define FLAG_AT 0 /* offsets in the receiver's window */
#define TEXT_AT 64

int main(void)
{
    static const char text[] = "a message by one put";
    two_t             two;

    two_start(&two, WINDOW);
    if (two.number == 0) {
        MUST(angara_put_flag(two.peer, TEXT_AT, text, sizeof(text), FLAG_AT, 1));
    } else {
        char *window = angara_pe_window(two.pe, NULL);

        while (__atomic_load_n((uint64_t *)(void *)(window + FLAG_AT), __ATOMIC_ACQUIRE) != 1) {
            two_turn(&two); /* only to see that the sender is alive */
        }
        angara_fence_landed(); /* before what came in front of the flag is read */
        printf("received: %s\n", window + TEXT_AT);
    }
    two_end(&two);
    return 0;
}
