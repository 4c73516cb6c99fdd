/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a GPU for the suite (ANGARA_TEST_MEMORY), by a stand-in for its runtime. Regions are of
 * GPU memory, which the CPU can't touch; tests read and write it by a second mapping, the view.
 *
 * Tests know addresses of the view only. The calls that take an address of a region are wrapped by
 * the linker (build.mk): they are given the GPU's address for it.
 */
#ifndef ANGARA_TESTS_CONF_GPU_H
#define ANGARA_TESTS_CONF_GPU_H

#include <stddef.h>

/** Zeroed memory of a GPU; @a place spreads allocations over GPUs. @return its view */
void *conf_gpu_alloc(unsigned place, size_t length);
/** Free the memory; the view, and what a view's addresses mean, stays until conf_gpu_free(). */
void conf_gpu_lose(void *view);
void conf_gpu_free(void *view);

#endif
