/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hostile users of the kernel modules, in a VM as root. Reports TAP.
 * Usage: kmod_fuzz calls|rings COUNT [SEED]
 *
 *   calls  COUNT system calls with random, mutated, truncated and oversized structures at good and
 * bad addresses, by an unprivileged user, while one thread rewrites the structures and another
 *          closes and opens the files. Whatever is answered is in the table of errors, and nothing
 *          is left.
 *   rings  COUNT accesses to the own rings, indices, windows: nonsense, mutated, rewritten by a
 * second thread. Another process's traffic and the memory around the regions must not notice.
 *
 * The seed is printed; the same one draws the same numbers, though threads interleave otherwise.
 */
#include "kmod_fuzz.h"

#include "../../common/data.h"

#include <stdlib.h>
#include <string.h>

uint64_t draw(rng_t *rng)
{
    return random_next(&rng->state);
}

unsigned below(rng_t *rng, unsigned limit)
{
    return (unsigned)(draw(rng) >> 33) % limit;
}

rng_t rng_make(uint64_t seed, unsigned thread)
{
    return (rng_t){random_mix(random_mix(seed + 1) + thread)};
}

uint64_t nasty(rng_t *rng)
{
    static const uint64_t edges[] = {0,          1,
                                     2,          3,
                                     4,          8,
                                     16,         4095,
                                     4096,       4097,
                                     8192,       1 << 20,
                                     ~0u,        1u << 31,
                                     1ull << 32, 1ull << 40,
                                     1ull << 63, ~0ull,
                                     ~1ull,      ~4095ull,
                                     1ull << 47, 0x7ffffffff000};

    switch (below(rng, 4)) {
    case 0:
        return draw(rng);
    case 1:
        return 1ull << below(rng, 64);
    default:
        return edges[below(rng, sizeof(edges) / sizeof(edges[0]))] + below(rng, 3) - 1;
    }
}

void *pages_map(size_t count)
{
    void *base = mmap(NULL, count * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    MUST(base != MAP_FAILED);
    return base;
}

int main(int argc, char **argv)
{
    uint64_t seed  = argc > 3 ? strtoull(argv[3], NULL, 0) : (uint64_t)(now_seconds() * 1e6);
    unsigned count = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 0;
    int      rings = argc > 1 && strcmp(argv[1], "rings") == 0;

    if (count == 0 || (!rings && strcmp(argv[1], "calls") != 0)) {
        fputs("usage: kmod_fuzz calls|rings COUNT [SEED]\n", stderr);
        return 2;
    }
    printf("# the same again: kmod_fuzz %s %u %llu\n", argv[1], count, (unsigned long long)seed);
    fflush(stdout);
    if (rings) {
        fuzz_rings(count, seed);
    } else {
        fuzz_calls(count, seed);
    }
    return tap_finish();
}
