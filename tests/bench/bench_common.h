/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the OSU-compatible MPI benchmarks share: options, buffers, data validation and the table.
 *
 * A benchmark describes itself in a bench_spec_t and then runs:
 *
 *     bench_init(&b, argc, argv, &spec);       MPI_Init, options; exits on -h, -v and bad options
 *     ... allocate buffers for b.opts.max_size ...
 *     bench_print_header(&b);
 *     while (bench_next_size(&b))              sets b.msg_size, b.iterations, b.skip
 *         ... measure, bench_print_*() a row ...
 *     return bench_finish(&b);                 MPI_Finalize, exit status
 *
 * Names, options and output format are those of the OSU micro-benchmarks 7.x, so that existing
 * scripts read them; the code is not theirs. Everything here uses MPI only, and with -d a GPU's
 * runtime (../gpu/device.h): no UCX, no libangara.
 */
#ifndef ANGARA_BENCH_COMMON_H
#define ANGARA_BENCH_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../common/data.h"
#include "../gpu/device.h"

#include <mpi.h>

#define BENCH_VERSION       "v7.x-compatible (angara)"
#define BENCH_PAGE_SIZE     4096
#define BENCH_LARGE_MESSAGE 8192 /* above this, the "large" iteration counts apply */

/* Distinct buffers of a window take at most this much; beyond it they are used in turn. */
#define BENCH_WINDOW_MEMORY (64ul << 20)

/* Which of the options that not every benchmark has are accepted. */
enum {
    BENCH_OPT_SIZE       = 1 << 0, /* -m, -M */
    BENCH_OPT_WINDOW     = 1 << 1, /* -W */
    BENCH_OPT_BUFFER     = 1 << 2, /* -b */
    BENCH_OPT_FULL       = 1 << 3, /* -f */
    BENCH_OPT_PAIRS      = 1 << 4, /* -p, -R */
    BENCH_OPT_RMA        = 1 << 5, /* -w, -s, -t */
    BENCH_OPT_CHECK      = 1 << 6, /* -c, -u */
    BENCH_OPT_DEVICE     = 1 << 7, /* -d, H and D */
    BENCH_OPT_OVERLAP    = 1 << 8, /* a column tells of it */
    BENCH_OPT_UNEXPECTED = 1 << 9  /* -U */
};

typedef enum { BENCH_WIN_ALLOCATE, BENCH_WIN_CREATE, BENCH_WIN_DYNAMIC } bench_win_type_t;

typedef enum {
    BENCH_SYNC_FLUSH,
    BENCH_SYNC_FLUSH_LOCAL,
    BENCH_SYNC_LOCK,
    BENCH_SYNC_LOCK_ALL,
    BENCH_SYNC_PSCW,
    BENCH_SYNC_FENCE
} bench_sync_type_t;

/* What a benchmark is; constant. */
typedef struct bench_spec {
    const char *name;        /* program, "osu_latency" */
    const char *title;       /* header line, "OSU MPI Latency Test" */
    const char *column;      /* value column, "Latency (us)"; collectives: NULL */
    const char *more[3];     /* further columns; where there is -R, only with it */
    const char *rows;        /* what rows are, "Operation"; NULL: sizes */
    unsigned    options;     /* BENCH_OPT_* */
    size_t      max_size;    /* last size, bytes */
    size_t      granularity; /* first size; the others are multiples of it */
    int         iterations;  /* timed, up to BENCH_LARGE_MESSAGE */
    int         skip;        /* warm-up before them */
    int         iterations_large;
    int         skip_large;
    int         min_ranks;
    int         max_ranks; /* 0: no limit */
} bench_spec_t;

/* What benchmarks of a kind have in common: parts of a bench_spec_t. */
#define BENCH_LATENCY BENCH_LATENCY_OF(1, 4ul << 20)
#define BENCH_LATENCY_OF(_granularity, _max_size)                                     \
    .column = "Latency (us)", .max_size = (_max_size), .granularity = (_granularity), \
    .iterations = 10000, .skip = 100, .iterations_large = 1000, .skip_large = 10, .min_ranks = 2
#define BENCH_BANDWIDTH                                                     \
    .max_size = 4ul << 20, .granularity = 1, .iterations = 100, .skip = 10, \
    .iterations_large = 20, .skip_large = 2, .min_ranks = 2

/* What the user asked for. */
typedef struct bench_options {
    size_t           min_size;
    size_t           max_size;
    size_t           memory_limit; /* bytes of buffers in one rank */
    size_t           unexpected; /* -U: bytes of a message that isn't received meanwhile; 0: none */
    int              iterations;
    int              skip;
    int              iterations_large;
    int              skip_large;
    int              window;
    int              settle;   /* -u: rounds that line ranks up before a validated transfer */
    int              pairs;    /* 0: half of the ranks */
    int              computes; /* -t: microseconds between two calls of the target's; 0: it waits */
    bool             one_sender; /* in all pairs */
    bool             print_rate;
    bool             validate;
    bool             full;
    bool             multiple_buffers;
    bench_win_type_t win_type;
    bench_sync_type_t sync_type;
    /* GPU memory; NULL: the host's everywhere */
    const device_runtime_t *runtime;
    device_origin_t         origin;
    char                    places[2]; /* of the first end, and of the second: as in words */
} bench_options_t;

typedef struct bench {
    const bench_spec_t *spec;
    bench_options_t     opts;
    MPI_Comm            comm;
    int                 rank;
    int                 nranks;
    int                 precision; /* digits after the point */
    bool                on_gpu;    /* this rank's messages are in GPU memory, */
    bool                is_pinned; /* or in host memory that the runtime pins... */
    unsigned            gpu;       /* ...of this one */
    void               *staging;   /* on the host, where their contents are made and checked */
    bool                corrupt;   /* test hook: spoil what was received before it is checked */
    bool                started;   /* bench_next_size() has returned a size */
    int                 failed;    /* a size failed its validation */
    bool                reported;  /* this rank has described an error */
    long                errors;    /* of this size, in this rank */
    size_t              msg_size;  /* current size and what belongs to it */
    int                 iterations;
    int                 skip;
} bench_t;

/* The places of a window of messages: one place, or several that are used in turn. */
typedef struct bench_slots {
    char  *base;
    size_t stride;
    int    count;
} bench_slots_t;

void bench_init(bench_t *b, int argc, char **argv, const bench_spec_t *spec);
/* Says that data were wrong, if they were; bench_finish() does so before MPI ends. */
void bench_print_end(const bench_t *b);
int  bench_finish(bench_t *b);

/* Ends all ranks with exit status 1 and one message from rank 0; every rank must call it. */
void bench_fail(bench_t *b, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

/*
 * Lowers the largest size so that @a per_byte bytes of buffers per byte of message fit the memory
 * limit, with a warning.
 */
void bench_limit_size(bench_t *b, size_t per_byte);

/* How many ranks send, from 0 on. */
static inline int bench_senders(const bench_t *b)
{
    return b->opts.one_sender ? 1 : b->opts.pairs;
}

/* The next message size, or false after the last one and after a failed one. */
bool bench_next_size(bench_t *b);

/* Page-aligned, touched memory; ends the job where there is none. Free with free(). */
void *bench_alloc(bench_t *b, size_t length);

/* The same for messages: in GPU memory, if -d asks for it at this rank. */
void *bench_buffer_alloc(bench_t *b, size_t length);
void  bench_buffer_free(bench_t *b, void *buffer);

/* Places for @a count messages of the largest size, as -b, -c and @a distinct ask for them. */
size_t bench_slots_length(const bench_t *b, int count, bool distinct, int *count_p);
void   bench_slots_init(bench_t *b, bench_slots_t *slots, int count, bool distinct);
void   bench_slots_cleanup(bench_t *b, bench_slots_t *slots);

static inline char *bench_slot(const bench_slots_t *slots, int i)
{
    return slots->base + (size_t)(i % slots->count) * slots->stride;
}

/* Validation: the bytes of a message (data.h) follow from what it is: iteration, source,
 * destination, slot. Of the poison every byte differs from them.
 */
uint64_t bench_seed(int iteration, int source, int destination, int slot);
void     bench_fill(bench_t *b, void *buffer, size_t length, uint64_t seed);
void     bench_poison(bench_t *b, void *buffer, size_t length, uint64_t seed);
void     bench_check(bench_t *b, void *buffer, size_t length, uint64_t seed, int iteration);

/* Counts one error; the first one of a rank is described on stderr. */
void bench_error(bench_t *b, int iteration, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Zero-byte rounds with @a peer, so that neither side's timer covers the other's preparation. */
void bench_settle(const bench_t *b, int peer);

/* Keeps the processor busy so long, without a call of MPI that does anything. */
void bench_compute(double seconds);

/*
 * Printing; rows are collective calls, since validation is summed over the ranks. One has @a count
 * values, and begins with @a name if rows aren't sizes.
 */
void bench_print_header(const bench_t *b);
void bench_print_row(bench_t *b, double value);
void bench_print_values(bench_t *b, const char *name, const double *values, int count);
void bench_print_stats(bench_t *b, double local_us);

#endif
