/* SPDX-License-Identifier: BSD-3-Clause */
/* Staging memory that GPUs copy by themselves: gpu_pin.c. The invariants are in gpu_mem.h. */
#ifndef SOFT_GPU_PIN_H
#define SOFT_GPU_PIN_H

#include <stddef.h>
#include <stdint.h>

typedef struct soft_pin soft_pin_t;

/* Of one piece of staging memory, in one process; zeroed at first. */
typedef struct {
    soft_pin_t *pin;    /* NULL: it isn't registered */
    unsigned    pieces; /* that were copied before that was tried */
} soft_pinned_t;

/*
 * A large piece is to be copied between memory of a GPU at `gpu_addr` and staging memory, [staging,
 * staging + size) of a shared mapping. @return the address that the copy takes for `staging`
 */
char *soft_pinned(soft_pinned_t *pinned, void *staging, size_t size, uint64_t gpu_addr);
/* Nobody copies there any more. */
void soft_unpin(soft_pinned_t *pinned);

#endif
