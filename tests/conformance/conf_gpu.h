/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a GPU for the suite, by a stand-in for its runtime. Regions are of GPU memory, which
 * the CPU can't touch; tests read and write it by a second mapping, the view.
 *
 * ANGARA_TEST_MEMORY is "cuda" or "rocm", and may have, behind commas, "even" or "odd": only those
 * ranks have GPU memory; "apart": each rank sees one GPU, the even and the odd ones another.
 *
 * Tests know addresses of the view only. The calls that take an address of a region are wrapped by
 * the linker (build.mk): they are given the GPU's address for it.
 */
#ifndef ANGARA_TESTS_CONF_GPU_H
#define ANGARA_TESTS_CONF_GPU_H

#include <stddef.h>

/** Zeroed memory, of each GPU in turn. @return its view */
void *conf_gpu_alloc(unsigned rank, size_t length);
/**
 * Free the memory, and allocate other, which gets its address. The view, and what its addresses
 * mean, stays until conf_gpu_free(): that checks that nobody has written to the other.
 */
void conf_gpu_lose(void *view);
void conf_gpu_free(void *view);

/** How many allocations of other processes this one has mapped. */
unsigned conf_gpu_mappings(void);

#endif
