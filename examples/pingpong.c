/* SPDX-License-Identifier: BSD-3-Clause */
/* A ping-pong over two windows: each message is 8 bytes behind a flag that counts up. Prints half
 * of a round trip, as osu_latency does. */
#include "two.h"

#include <time.h>

#define ROUNDS  100000
#define DATA_AT 8

static void ping(const two_t *two, uint64_t round)
{
    uint64_t  scratch;
    uint64_t *data = angara_put_begin(two->peer, DATA_AT, sizeof(*data), &scratch);

    *data = 3 * round;
    MUST(angara_put_commit(two->peer, data, DATA_AT, sizeof(*data), 0, round));
}

static void pong(const two_t *two, const uint64_t *window, uint64_t round)
{
    for (unsigned turns = 1; __atomic_load_n(&window[0], __ATOMIC_ACQUIRE) != round; ++turns) {
        if (turns % 1000 == 0) {
            two_turn(two); /* is the other process alive? */
        }
    }
    angara_fence_landed();
    if (window[DATA_AT / 8] != 3 * round) {
        fprintf(stderr, "message %llu is damaged\n", (unsigned long long)round);
        exit(EXIT_FAILURE);
    }
}

int main(void)
{
    struct timespec start, end;
    const uint64_t *window;
    two_t           two;

    two_start(&two, 4096);
    window = angara_pe_window(two.pe, NULL);
    two_barrier(&two);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (uint64_t round = 1; round <= ROUNDS; ++round) {
        if (two.number == 0) {
            ping(&two, round);
        }
        pong(&two, window, round);
        if (two.number != 0) {
            ping(&two, round);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (two.number == 0) {
        printf("8 bytes: %.3f us\n", ((double)(end.tv_sec - start.tv_sec) * 1e6 +
                                      (double)(end.tv_nsec - start.tv_nsec) / 1e3) /
                                         ROUNDS / 2);
    }
    two_end(&two);
}
