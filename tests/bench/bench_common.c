/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Life of a benchmark, its buffers, data validation and table printing. Options are parsed in
 * bench_options.c. Touches nothing but MPI, the standard library and GPU memory by device.h.
 */
#include "bench_common.h"
#include "bench_options.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_WIDTH       10
#define FIELD_WIDTH      18
#define ITERATIONS_WIDTH 12
#define UNSIZED_WIDTH    17 /* the value of a row without a size */
#define NAME_WIDTH       20 /* of a row that is no size */
#define SETTLE_TAG       99

static void bench_exit(int status) __attribute__((noreturn));

static void bench_exit(int status)
{
    fflush(NULL);
    MPI_Finalize();
    exit(status);
}

void bench_fail(bench_t *b, const char *format, ...)
{
    va_list args;

    if (b->rank == 0) {
        fprintf(stderr, "%s: ", b->spec->name);
        va_start(args, format);
        vfprintf(stderr, format, args);
        va_end(args);
        fputc('\n', stderr);
    }
    bench_exit(EXIT_FAILURE);
}

static void bench_check_ranks(bench_t *b)
{
    const bench_spec_t *spec = b->spec;

    if (spec->min_ranks == spec->max_ranks && b->nranks != spec->min_ranks) {
        bench_fail(b, "this test requires exactly %d processes, there are %d (mpirun -np %d ...)",
                   spec->min_ranks, b->nranks, spec->min_ranks);
    }
    if (b->nranks < spec->min_ranks) {
        bench_fail(b, "this test requires at least %d processes, there are %d", spec->min_ranks,
                   b->nranks);
    }
    if (b->opts.one_sender) {
        b->opts.pairs = b->nranks - 1;
    } else if (b->opts.pairs > b->nranks / 2) {
        bench_fail(b, "%d pairs need %d processes, there are %d", b->opts.pairs, 2 * b->opts.pairs,
                   b->nranks);
    }
    if (b->opts.pairs == 0) {
        b->opts.pairs = b->nranks / 2;
    }
}

/* Whether this rank's messages are in GPU memory, and whose: GPUs are dealt out on each node. */
static void bench_open_gpu(bench_t *b)
{
    const bench_options_t *opts   = &b->opts;
    int                    firsts = b->spec->column == NULL ? 1 : bench_senders(b); /* the root */
    int                    gpus   = 1, fewest, local;
    MPI_Comm               node;

    if (opts->runtime == NULL) {
        return;
    }
    b->on_gpu    = opts->places[b->rank < firsts ? 0 : 1] == 'D';
    b->is_pinned = opts->places[b->rank < firsts ? 0 : 1] == 'P';
    if (opts->places[0] != 'H' || opts->places[1] != 'H') {
        gpus = (int)opts->runtime->open(); /* as OSU's, also ranks whose buffers are the host's */
    }
    MPI_Allreduce(&gpus, &fewest, 1, MPI_INT, MPI_MIN, b->comm);
    if (fewest == 0) {
        bench_fail(b, "there is no GPU of %s: %s isn't here, or it finds none", opts->runtime->name,
                   opts->runtime->library);
    }
    MPI_Comm_split_type(b->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local);
    MPI_Comm_free(&node);
    b->gpu = (unsigned)(local % gpus);
}

/* Digits after the point: OSU's two, unless a script wants to compare small differences. */
static int bench_get_precision(void)
{
    const char *value     = getenv("ANGARA_BENCH_PRECISION");
    int         precision = value != NULL ? atoi(value) : 2;

    return precision >= 0 && precision <= 9 ? precision : 2;
}

void bench_init(bench_t *b, int argc, char **argv, const bench_spec_t *spec)
{
    char error[256];

    memset(b, 0, sizeof(*b));
    b->spec = spec;
    b->comm = MPI_COMM_WORLD;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(b->comm, &b->rank);
    MPI_Comm_size(b->comm, &b->nranks);
    b->precision = bench_get_precision();
    b->corrupt   = getenv("ANGARA_BENCH_CORRUPT") != NULL;

    switch (bench_parse_options(&b->opts, spec, argc, argv, error, sizeof(error))) {
    case BENCH_PARSE_RUN:
        break;
    case BENCH_PARSE_HELP:
        if (b->rank == 0) {
            bench_print_usage(stdout, spec);
        }
        bench_exit(EXIT_SUCCESS);
    case BENCH_PARSE_VERSION:
        if (b->rank == 0) {
            printf("# %s %s\n", spec->title, BENCH_VERSION);
        }
        bench_exit(EXIT_SUCCESS);
    case BENCH_PARSE_ERROR:
        if (b->rank == 0) {
            fprintf(stderr, "%s: %s\n", spec->name, error);
            bench_print_usage(stderr, spec);
        }
        bench_exit(EXIT_FAILURE);
    }
    bench_check_ranks(b);
    bench_open_gpu(b);
}

void bench_print_end(const bench_t *b)
{
    if (b->failed && b->rank == 0) {
        printf("DATA VALIDATION ERROR: %s exited with status %d on message size %zu.\n",
               b->spec->name, EXIT_FAILURE, b->msg_size);
    }
    fflush(NULL);
}

int bench_finish(bench_t *b)
{
    int finalized;

    free(b->staging);
    MPI_Finalized(&finalized); /* by OpenSHMEM's end */
    if (!finalized) {
        bench_print_end(b);
        MPI_Finalize();
    }
    return b->failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

void bench_limit_size(bench_t *b, size_t per_byte)
{
    size_t granularity = b->spec->granularity;
    size_t limit       = b->opts.memory_limit / per_byte / granularity * granularity;

    if (b->opts.max_size <= limit) {
        return;
    }
    if (b->opts.min_size > limit) {
        bench_fail(b,
                   "messages of %zu bytes need %zu bytes of buffers per rank, the memory limit "
                   "is %zu: raise it with -M",
                   b->opts.min_size, b->opts.min_size * per_byte, b->opts.memory_limit);
    }
    if (b->rank == 0) {
        fprintf(stderr,
                "%s: sizes above %zu bytes are left out, they need more than the memory "
                "limit of %zu bytes per rank (-M)\n",
                b->spec->name, limit, b->opts.memory_limit);
    }
    b->opts.max_size = limit;
}

bool bench_next_size(bench_t *b)
{
    if (!b->started) {
        b->started  = true;
        b->msg_size = b->opts.min_size;
    } else {
        if (b->failed || b->msg_size > b->opts.max_size / 2) {
            return false;
        }
        b->msg_size = b->msg_size == 0 ? b->spec->granularity : b->msg_size * 2;
        if (b->msg_size > b->opts.max_size) {
            return false;
        }
    }

    bool large    = b->msg_size > BENCH_LARGE_MESSAGE;
    b->iterations = large ? b->opts.iterations_large : b->opts.iterations;
    b->skip       = large ? b->opts.skip_large : b->opts.skip;
    b->errors     = 0;
    MPI_Barrier(b->comm);
    return true;
}

static void bench_no_memory(const bench_t *b, const char *kind, size_t length)
    __attribute__((noreturn));

static void bench_no_memory(const bench_t *b, const char *kind, size_t length)
{
    fprintf(stderr, "%s: rank %d: no %smemory for a buffer of %zu bytes\n", b->spec->name, b->rank,
            kind, length);
    MPI_Abort(b->comm, EXIT_FAILURE);
    exit(EXIT_FAILURE);
}

void *bench_alloc(bench_t *b, size_t length)
{
    void *buffer;

    if (posix_memalign(&buffer, BENCH_PAGE_SIZE, length > 0 ? length : 1) != 0) {
        bench_no_memory(b, "", length);
    }
    memset(buffer, 0, length);
    return buffer;
}

static device_origin_t bench_origin(const bench_t *b)
{
    return b->is_pinned ? DEVICE_PINNED : b->opts.origin;
}

void *bench_buffer_alloc(bench_t *b, size_t length)
{
    void *buffer;

    if (!b->on_gpu && !b->is_pinned) {
        return bench_alloc(b, length);
    }
    buffer = b->opts.runtime->alloc(b->gpu, length > 0 ? length : 1, bench_origin(b));
    if (buffer == NULL) {
        bench_no_memory(b,
                        b->is_pinned                     ? "pinned " :
                        b->opts.origin == DEVICE_MANAGED ? "managed " :
                                                           "GPU ",
                        length);
    }
    return buffer;
}

void bench_buffer_free(bench_t *b, void *buffer)
{
    if (b->on_gpu || b->is_pinned) {
        b->opts.runtime->free(buffer, bench_origin(b));
    } else {
        free(buffer);
    }
}

/* Slots keep to cache lines, and to pages where messages do. */
static size_t bench_slot_stride(const bench_t *b)
{
    size_t align = b->opts.max_size >= BENCH_PAGE_SIZE ? BENCH_PAGE_SIZE : 64;

    return (b->opts.max_size + align - 1) / align * align + (b->opts.max_size == 0) * align;
}

size_t bench_slots_length(const bench_t *b, int count, bool distinct, int *count_p)
{
    size_t stride = bench_slot_stride(b);
    size_t limit  = b->opts.memory_limit / 2; /* there are slots to send from and to receive in */
    size_t fit    = (limit < BENCH_WINDOW_MEMORY ? limit : BENCH_WINDOW_MEMORY) / stride;

    if (!distinct && !b->opts.multiple_buffers && !b->opts.validate) {
        count = 1;
    } else if ((size_t)count > fit) {
        count = fit > 0 ? (int)fit : 1;
    }
    *count_p = count;
    return stride * (size_t)count;
}

void bench_slots_init(bench_t *b, bench_slots_t *slots, int count, bool distinct)
{
    size_t length = bench_slots_length(b, count, distinct, &slots->count);

    slots->stride = bench_slot_stride(b);
    slots->base   = bench_buffer_alloc(b, length);
}

void bench_slots_cleanup(bench_t *b, bench_slots_t *slots)
{
    bench_buffer_free(b, slots->base);
}

uint64_t bench_seed(int iteration, int source, int destination, int slot)
{
    uint64_t what = ((uint64_t)(uint32_t)iteration << 32) ^ ((uint64_t)(uint32_t)slot << 20) ^
                    (uint32_t)source;

    return random_mix(random_mix(what) + (uint32_t)destination);
}

/* Where the CPU makes and checks a message: in its place or, of GPU memory, beside it. */
static void *bench_host_side(bench_t *b, void *buffer)
{
    if (b->on_gpu && b->staging == NULL) {
        b->staging = bench_alloc(b, b->opts.max_size);
    }
    return b->on_gpu ? b->staging : buffer;
}

static void bench_write(bench_t *b, void *buffer, const void *bytes, size_t length)
{
    if (b->on_gpu && length > 0) {
        b->opts.runtime->write(buffer, bytes, length);
    }
}

void bench_fill(bench_t *b, void *buffer, size_t length, uint64_t seed)
{
    void *bytes = bench_host_side(b, buffer);

    data_fill(bytes, length, seed);
    bench_write(b, buffer, bytes, length);
}

void bench_poison(bench_t *b, void *buffer, size_t length, uint64_t seed)
{
    uint8_t *bytes = bench_host_side(b, buffer);

    data_fill(bytes, length, seed);
    for (size_t i = 0; i < length; i++) {
        bytes[i] ^= 0xff;
    }
    bench_write(b, buffer, bytes, length);
}

void bench_error(bench_t *b, int iteration, const char *format, ...)
{
    char    text[256];
    va_list args;

    if (b->errors++ > 0 || b->reported) {
        return;
    }
    b->reported = true;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    /* At once: other output of the job must not come between. */
    fprintf(stderr, "%s: rank %d: size %zu, iteration %d: %s\n", b->spec->name, b->rank,
            b->msg_size, iteration, text);
}

void bench_check(bench_t *b, void *buffer, size_t length, uint64_t seed, int iteration)
{
    uint8_t *bytes = bench_host_side(b, buffer);
    size_t   wrong;

    if (b->on_gpu && length > 0) {
        b->opts.runtime->read(bytes, buffer, length);
    }
    if (b->corrupt && length > 0) {
        bytes[length / 2] ^= 0x10;
    }
    wrong = data_difference(bytes, length, seed);
    if (wrong < length) {
        bench_error(b, iteration, "byte %zu is 0x%02x, expected 0x%02x", wrong, bytes[wrong],
                    data_byte(seed, wrong));
    }
}

void bench_settle(const bench_t *b, int peer)
{
    int i;

    for (i = 0; i < b->opts.settle; i++) {
        MPI_Sendrecv(NULL, 0, MPI_CHAR, peer, SETTLE_TAG, NULL, 0, MPI_CHAR, peer, SETTLE_TAG,
                     b->comm, MPI_STATUS_IGNORE);
    }
}

void bench_compute(double seconds)
{
    double end = MPI_Wtime() + seconds;

    while (MPI_Wtime() < end) {
    }
}

static const char *bench_place_name(const bench_t *b, int end)
{
    if (b->opts.places[end] != 'D') {
        return "HOST (H)"; /* pinned or not */
    }
    return b->opts.origin == DEVICE_MANAGED ? "MANAGED (M)" : "DEVICE (D)";
}

void bench_print_header(const bench_t *b)
{
    const bench_spec_t *spec  = b->spec;
    bool                sized = spec->max_size != 0;

    if (b->rank != 0) {
        return;
    }
    printf("# %s %s\n", spec->title, BENCH_VERSION);
    if (spec->options & BENCH_OPT_RMA) {
        printf("# Window creation: %s\n# Synchronization: %s\n",
               bench_win_type_name(b->opts.win_type), bench_sync_type_name(b->opts.sync_type));
    }
    if (spec->options & BENCH_OPT_PAIRS) {
        printf("# [ pairs: %d ] [ window size: %d ]\n", b->opts.pairs, b->opts.window);
    }
    if (spec->options & BENCH_OPT_OVERLAP) {
        printf("# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n");
    }
    if (b->opts.runtime != NULL) {
        printf("# Send Buffer on %s and Receive Buffer on %s\n", bench_place_name(b, 0),
               bench_place_name(b, 1));
    }

    if (spec->rows != NULL) {
        printf("# %-*s", NAME_WIDTH - 2, spec->rows);
    } else {
        printf("%-*s", sized ? SIZE_WIDTH : 2, sized ? "# Size" : "#");
    }
    if (spec->column == NULL) {
        printf("%*s", sized ? FIELD_WIDTH : UNSIZED_WIDTH - 2, "Avg Latency(us)");
        if (b->opts.full) {
            printf("%*s%*s%*s", FIELD_WIDTH, "Min Latency(us)", FIELD_WIDTH, "Max Latency(us)",
                   ITERATIONS_WIDTH, "Iterations");
        }
    } else {
        printf("%*s", FIELD_WIDTH, spec->column);
        for (int i = 0; i < 3 && spec->more[i] != NULL && b->opts.print_rate; i++) {
            printf("%*s", FIELD_WIDTH, spec->more[i]);
        }
    }
    printf(b->opts.validate ? "%*s\n" : "\n", FIELD_WIDTH, "Validation");
    fflush(stdout);
}

/* Every rank learns whether the size failed, so that all stop after it. */
static void bench_end_row(bench_t *b)
{
    long total = 0;

    if (b->opts.validate) {
        MPI_Allreduce(&b->errors, &total, 1, MPI_LONG, MPI_SUM, b->comm);
        b->failed = total > 0;
    }
    if (b->rank == 0) {
        if (b->opts.validate) {
            printf("%*s", FIELD_WIDTH, b->failed ? "Fail" : "Pass");
        }
        printf("\n");
        fflush(stdout);
    }
}

void bench_print_values(bench_t *b, const char *name, const double *values, int count)
{
    if (b->rank == 0) {
        if (name != NULL) {
            printf("%-*s", NAME_WIDTH, name);
        } else {
            printf("%-*zu", SIZE_WIDTH, b->msg_size);
        }
        for (int i = 0; i < count; i++) {
            printf("%*.*f", FIELD_WIDTH, b->precision, values[i]);
        }
    }
    bench_end_row(b);
}

void bench_print_row(bench_t *b, double value)
{
    bench_print_values(b, NULL, &value, 1);
}

void bench_print_stats(bench_t *b, double local_us)
{
    bool   sized = b->spec->max_size != 0;
    double min, max, sum;

    MPI_Reduce(&local_us, &min, 1, MPI_DOUBLE, MPI_MIN, 0, b->comm);
    MPI_Reduce(&local_us, &max, 1, MPI_DOUBLE, MPI_MAX, 0, b->comm);
    MPI_Reduce(&local_us, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, b->comm);
    if (b->rank == 0) {
        if (sized) {
            printf("%-*zu", SIZE_WIDTH, b->msg_size);
        }
        printf("%*.*f", sized ? FIELD_WIDTH : UNSIZED_WIDTH, b->precision, sum / b->nranks);
        if (b->opts.full) {
            printf("%*.*f%*.*f%*d", FIELD_WIDTH, b->precision, min, FIELD_WIDTH, b->precision, max,
                   ITERATIONS_WIDTH, b->iterations);
        }
    }
    bench_end_row(b);
}
