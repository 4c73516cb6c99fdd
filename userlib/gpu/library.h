/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shared library of a runtime, if the program has loaded it, and its calls. The lowest of gpu/:
 * knows no runtime.
 */
#ifndef ANG_GPU_LIBRARY_H
#define ANG_GPU_LIBRARY_H

#include <stddef.h>

#define ANG_GPU_CALLS_MAX 64

typedef struct {
    const char *symbol;
    const char *cost;   /* of a library that lacks it; NULL: nothing works without */
    size_t      offset; /* in the table of calls */
} ang_gpu_symbol_t;

typedef struct {
    const char             *stem;  /* file name, perhaps with something behind it */
    const char             *needs; /* what has all that is needed, for messages */
    const ang_gpu_symbol_t *symbols;
    size_t                  num_symbols;
    void                   *calls; /* pointers to functions, NULL for what the library lacks */
    size_t                  size;  /* of `calls`, bytes */

    /* Valid once it was found, and constant from then on: */
    char lacks[1280]; /* what it lacks of `symbols` and what that costs, one a line */

    int is_found; /* of library.c, behind its lock */
    int was_told;
} ang_gpu_library_t;

/* Is a library of that name in the process? Doesn't wait for the loader. */
int ang_gpu_library_is_listed(const ang_gpu_library_t *library, const char *path);

/*
 * Fill in `calls` and `lacks`. Waits for the loader's lock, so for constructors of libraries that
 * other threads load; holds no lock meanwhile, since those constructors may call us. Any thread,
 * several at once. @return 0: it isn't in the process, or lacks what is needed (which is said)
 */
int ang_gpu_library_find(ang_gpu_library_t *library);

#endif
