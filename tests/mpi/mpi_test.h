/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the MPI test programs share: TAP output from rank 0, checked data patterns, guarded
 * buffers, and a watchdog. A test is a function that every rank runs; it fails if a check fails
 * on any rank.
 */
#ifndef ANGARA_TESTS_MPI_TEST_H
#define ANGARA_TESTS_MPI_TEST_H

#include "../common/data.h"

#include <mpi.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** State and options of a test program. */
typedef struct {
    int      rank; /* in MPI_COMM_WORLD */
    int      size;
    MPI_Comm control;  /* for this framework's own messages */
    size_t   max_size; /* largest message, -m */
    int      iters;    /* repetitions where a test has them, -i */
    unsigned timeout;  /* seconds per test, -t */
    uint64_t seed;     /* -S */
    size_t  *sizes;    /* message sizes up to max_size, -s */
    int      num_sizes;
} mt_state_t;

extern mt_state_t mt;

/** A buffer whose surroundings are watched. */
typedef struct {
    unsigned char *data; /* length bytes */
    size_t         length;
    unsigned char *base;
} mt_buf_t;

typedef void (*mt_func_t)(void);

/**
 * MPI_Init_thread() and options.
 *
 * @param description  of the program, for -h.
 * @param defaults  iters, max_size and timeout if not 0 replace the general defaults.
 */
void mt_start(int *argc, char ***argv, int thread_level, const char *description,
              mt_state_t defaults);

/** Print the plan and call MPI_Finalize(). @return exit status for main(). */
int mt_finish(void);

/** Run one test; it is skipped with fewer than @a min_ranks ranks. */
void mt_run(const char *name, int min_ranks, mt_func_t func);

/** Report one test of all ranks as skipped. */
void mt_skip(const char *name, const char *reason);

/** Count a failure of the running test on this rank, and print the first ones. Thread-safe. */
void mt_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/** Whether a check of the running test has failed on this rank. */
bool mt_failed(void);

#define MT_CHECK(_condition, ...)                     \
    do {                                              \
        if (!(_condition)) {                          \
            mt_fail(__FILE__, __LINE__, __VA_ARGS__); \
        }                                             \
    } while (0)

#define MT_COUNT(_array) (sizeof(_array) / sizeof((_array)[0]))

/** malloc() that doesn't fail. */
void *mt_alloc(size_t length);

/** A buffer of @a length bytes, @a shift bytes (0..15) off alignment. */
mt_buf_t mt_buf_alloc(size_t length, unsigned shift);
void     mt_buf_free(mt_buf_t *buf);

/** Check what data_fill() wrote. @return whether all is well. */
bool mt_verify(const void *data, size_t length, uint64_t key, const char *what);

/** As mt_verify() for a whole buffer, and check that nothing was written around it. */
bool mt_buf_verify(const mt_buf_t *buf, uint64_t key, const char *what);

typedef enum { MT_ALLOCATED, MT_CREATED, MT_DYNAMIC, MT_WINDOW_KINDS } mt_window_kind_t;

/** A window of all ranks, in bytes. */
typedef struct {
    MPI_Win        win;
    unsigned char *base;
    unsigned char *own;       /* what isn't the window's to free */
    MPI_Aint      *addresses; /* of each rank's memory, if it is dynamic */
} mt_window_t;

/** Open a window of @a size bytes, which are zero, on each rank. */
mt_window_t mt_window_open(mt_window_kind_t kind, size_t size, MPI_Info info);

/** Close it, once no rank uses its memory any more. */
void mt_window_close(mt_window_t *window);

/** The displacement of byte @a offset of @a target's memory. */
MPI_Aint mt_window_at(const mt_window_t *window, int target, size_t offset);

/** A key for the message number @a seq from @a src to @a dst. */
uint64_t mt_key(int src, int dst, int tag, uint64_t seq);

/** Check the source, tag and length that a receive reports. */
void mt_check_status(MPI_Status *status, int source, int tag, size_t length);

/** Partner of this rank when ranks work in pairs; MPI_PROC_NULL for an odd one out. */
int mt_pair_peer(void);

/** Give other ranks the processor: for loops that poll. */
void mt_relax(void);

#endif
