/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of kmod_fuzz share. */
#ifndef KMOD_FUZZ_H
#define KMOD_FUZZ_H

#include "kmod_user.h"

#include <sys/mman.h>

#define RW (PROT_READ | PROT_WRITE)

/* A generator for each thread. */
typedef struct {
    uint64_t state;
} rng_t;

rng_t    rng_make(uint64_t seed, unsigned thread);
uint64_t draw(rng_t *rng);
unsigned below(rng_t *rng, unsigned limit);
/* A number as a caller who wants to do harm would choose it. */
uint64_t nasty(rng_t *rng);
/* Zeroed anonymous pages. */
void *pages_map(size_t count);

void fuzz_calls(unsigned count, uint64_t seed);
void fuzz_rings(unsigned count, uint64_t seed);

#endif
