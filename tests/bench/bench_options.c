/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Command line of the benchmarks. One table row per option: it gives the short and the long form,
 * which benchmarks have it, and the help text. Pure functions of argc/argv, no MPI.
 */
#include "bench_options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_WINDOW       64
#define DEFAULT_SETTLE       5
#define DEFAULT_MEMORY_LIMIT (512ul << 20)

typedef struct option_row {
    char        letter;
    const char *name;
    const char *argument; /* NULL: takes none */
    unsigned    needs;    /* BENCH_OPT_* that the benchmark must have, 0: all have it */
    const char *help;
} option_row_t;

static const option_row_t option_rows[] = {
    {'m', "message-size", "[MIN:]MAX", BENCH_OPT_SIZE, "message sizes in bytes, also MIN:"},
    {'i', "iterations", "N", 0, "timed iterations per size"},
    {'x', "warmup", "N", 0, "warm-up iterations per size, not timed"},
    {'W', "window-size", "N", BENCH_OPT_WINDOW, "messages in flight (64)"},
    {'b', "buffer-num", "single|multiple", BENCH_OPT_BUFFER,
     "one buffer for the whole window, or one per message (single; with -c: multiple)"},
    {'p', "pairs", "N", BENCH_OPT_PAIRS, "pairs of processes (half of the processes)"},
    {'o', "one-sender", NULL, BENCH_OPT_PAIRS, "rank 0 sends to all others"},
    {'R', "print-rate", "0|1", BENCH_OPT_PAIRS, "print the message rate (1)"},
    {'w', "win-option", "TYPE", BENCH_OPT_RMA, "window: allocate, create, dynamic (allocate)"},
    {'s', "sync-option", "SYNC", BENCH_OPT_RMA,
     "synchronization: flush, flush_local, lock, lock_all, pscw, fence (flush)"},
    {'t', "target-computes", "USEC", BENCH_OPT_RMA,
     "the target computes so long between two calls of MPI (0: it waits in MPI)"},
    {'U', "unexpected", "BYTES", BENCH_OPT_UNEXPECTED,
     "a message of so many bytes has been sent and isn't received meanwhile (0: none)"},
    {'f', "full", NULL, BENCH_OPT_FULL, "also print minimum, maximum and iterations"},
    {'c', "validation", NULL, BENCH_OPT_CHECK, "check what arrives; fail if it is wrong"},
    {'u', "validation-warmup", "N", BENCH_OPT_CHECK,
     "with -c: rounds that line the processes up before each transfer (5)"},
    {'M', "mem-limit", "BYTES", BENCH_OPT_SIZE, "memory for buffers in one process (536870912)"},
    {'d', "accelerator", "cuda|rocm|managed|pool|mapped", BENCH_OPT_DEVICE,
     "messages in GPU memory: CUDA's, ROCm's, CUDA's of that origin; ranks take GPUs in turn"},
    {'h', "help", NULL, 0, "print this text"},
    {'v', "version", NULL, 0, "print the version"},
};

#define OPTION_ROWS (sizeof(option_rows) / sizeof(option_rows[0]))

static const char *const win_type_names[][2] = {
    [BENCH_WIN_ALLOCATE] = {"allocate", "MPI_Win_allocate"},
    [BENCH_WIN_CREATE]   = {"create", "MPI_Win_create"},
    [BENCH_WIN_DYNAMIC]  = {"dynamic", "MPI_Win_create_dynamic"},
};

static const char *const sync_type_names[][2] = {
    [BENCH_SYNC_FLUSH]       = {"flush", "MPI_Win_flush"},
    [BENCH_SYNC_FLUSH_LOCAL] = {"flush_local", "MPI_Win_flush_local"},
    [BENCH_SYNC_LOCK]        = {"lock", "MPI_Win_lock/unlock"},
    [BENCH_SYNC_LOCK_ALL]    = {"lock_all", "MPI_Win_lock_all/unlock_all"},
    [BENCH_SYNC_PSCW]        = {"pscw", "MPI_Win_post/start/complete/wait"},
    [BENCH_SYNC_FENCE]       = {"fence", "MPI_Win_fence"},
};

const char *bench_win_type_name(bench_win_type_t type)
{
    return win_type_names[type][1];
}

const char *bench_sync_type_name(bench_sync_type_t type)
{
    return sync_type_names[type][1];
}

static bool option_applies(const option_row_t *row, const bench_spec_t *spec)
{
    return row->needs == 0 || (spec->options & row->needs) != 0;
}

void bench_print_usage(FILE *out, const bench_spec_t *spec)
{
    const option_row_t *row;
    char                left[64];

    fprintf(out, "Usage: mpirun -np N %s [options]%s\n", spec->name,
            spec->options & BENCH_OPT_DEVICE ? " [H|P|D [H|P|D]]" : "");
    for (row = option_rows; row < option_rows + OPTION_ROWS; row++) {
        if (option_applies(row, spec)) {
            snprintf(left, sizeof(left), "-%c, --%s%s%s", row->letter, row->name,
                     row->argument != NULL ? " " : "", row->argument != NULL ? row->argument : "");
            fprintf(out, "  %-36s %s\n", left, row->help);
        }
    }
    if (spec->options & BENCH_OPT_SIZE) {
        fprintf(out, "Defaults: -m %zu:%zu, -i %d -x %d (%d and %d above %d bytes)\n",
                spec->granularity, spec->max_size, spec->iterations, spec->skip,
                spec->iterations_large, spec->skip_large, BENCH_LARGE_MESSAGE);
    } else {
        fprintf(out, "Defaults: -i %d -x %d\n", spec->iterations, spec->skip);
    }
    if (spec->options & BENCH_OPT_DEVICE) {
        fprintf(out,
                "With -d: messages of %s in host (H; P: pinned) or GPU memory (D); D D if not "
                "said.\n",
                spec->column == NULL ? "the root, and of the others," : "rank 0, and of rank 1,");
    }
}

/* A decimal number in [min, max]; strtoul alone would take signs, blanks and trailing text. */
static bool parse_number(const char *text, const char *end, size_t min, size_t max, size_t *value_p)
{
    unsigned long value;
    char         *stop;

    if (*text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    value = strtoul(text, &stop, 10);
    if (errno != 0 || stop != end || value < min || value > max) {
        return false;
    }
    *value_p = value;
    return true;
}

static bool parse_int(const char *text, int min, int *value_p)
{
    size_t value;

    if (!parse_number(text, text + strlen(text), (size_t)min, INT_MAX, &value)) {
        return false;
    }
    *value_p = (int)value;
    return true;
}

/* "MAX", "MIN:MAX" or "MIN:". Message sizes are counts of MPI calls, hence at most INT_MAX. */
static bool parse_sizes(const char *text, bench_options_t *opts)
{
    const char *colon = strchr(text, ':');
    const char *end   = text + strlen(text);

    if (colon == NULL) {
        return parse_number(text, end, 0, INT_MAX, &opts->max_size);
    }
    return parse_number(text, colon, 0, INT_MAX, &opts->min_size) &&
           (colon[1] == '\0' || parse_number(colon + 1, end, 0, INT_MAX, &opts->max_size));
}

static bool parse_name(const char *text, const char *const names[][2], int count, int *value_p)
{
    int i;

    for (i = 0; i < count; i++) {
        if (strcasecmp(text, names[i][0]) == 0) {
            *value_p = i;
            return true;
        }
    }
    return false;
}

/* A runtime, or an origin that only CUDA's memory has. */
static bool parse_device(const char *text, bench_options_t *opts)
{
    int i;

    opts->origin  = DEVICE_PLAIN;
    opts->runtime = device_runtime(text);
    for (i = DEVICE_MANAGED; i < DEVICE_PINNED; i++) {
        if (strcmp(text, device_origin_names[i]) == 0) {
            opts->origin  = (device_origin_t)i;
            opts->runtime = &device_cuda;
        }
    }
    return opts->runtime != NULL;
}

static bool parse_value(bench_options_t *opts, int letter, const char *text)
{
    int  value;
    bool ok;

    switch (letter) {
    case 'm':
        return parse_sizes(text, opts);
    case 'i':
        ok                     = parse_int(text, 1, &opts->iterations);
        opts->iterations_large = opts->iterations;
        return ok;
    case 'x':
        ok               = parse_int(text, 0, &opts->skip);
        opts->skip_large = opts->skip;
        return ok;
    case 'W':
        return parse_int(text, 1, &opts->window);
    case 'b':
        opts->multiple_buffers = strcmp(text, "multiple") == 0;
        return opts->multiple_buffers || strcmp(text, "single") == 0;
    case 'p':
        return parse_int(text, 1, &opts->pairs);
    case 'o':
        opts->one_sender = true;
        return true;
    case 'R':
        ok               = parse_int(text, 0, &value) && value <= 1;
        opts->print_rate = ok && value == 1;
        return ok;
    case 'w':
        ok             = parse_name(text, win_type_names, 3, &value);
        opts->win_type = ok ? (bench_win_type_t)value : BENCH_WIN_ALLOCATE;
        return ok;
    case 's':
        ok              = parse_name(text, sync_type_names, 6, &value);
        opts->sync_type = ok ? (bench_sync_type_t)value : BENCH_SYNC_FLUSH;
        return ok;
    case 't':
        return parse_int(text, 0, &opts->computes);
    case 'U':
        return parse_number(text, text + strlen(text), 0, INT_MAX, &opts->unexpected);
    case 'f':
        opts->full = true;
        return true;
    case 'c':
        opts->validate = true;
        return true;
    case 'u':
        return parse_int(text, 0, &opts->settle);
    case 'd':
        return parse_device(text, opts);
    default: /* 'M' */
        return parse_number(text, text + strlen(text), 1, SIZE_MAX / 2, &opts->memory_limit);
    }
}

static void set_defaults(bench_options_t *opts, const bench_spec_t *spec)
{
    *opts = (bench_options_t){
        .min_size         = spec->options & BENCH_OPT_SIZE ? spec->granularity : spec->max_size,
        .max_size         = spec->max_size,
        .memory_limit     = DEFAULT_MEMORY_LIMIT,
        .iterations       = spec->iterations,
        .skip             = spec->skip,
        .iterations_large = spec->iterations_large,
        .skip_large       = spec->skip_large,
        .window           = DEFAULT_WINDOW,
        .settle           = DEFAULT_SETTLE,
        .print_rate       = true,
        .places           = {'D', 'D'},
    };
}

static bench_parse_t parse_error(char *error, size_t error_size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bench_parse_t parse_error(char *error, size_t error_size, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(error, error_size, format, args);
    va_end(args);
    return BENCH_PARSE_ERROR;
}

/* getopt's two descriptions of the options that this benchmark has. */
static void describe_options(const bench_spec_t *spec, char *letters, struct option *longs)
{
    const option_row_t *row;

    *letters++ = ':'; /* tell a missing argument from an unknown option */
    for (row = option_rows; row < option_rows + OPTION_ROWS; row++) {
        if (option_applies(row, spec)) {
            *letters++ = row->letter;
            if (row->argument != NULL) {
                *letters++ = ':';
            }
            *longs++ = (struct option){row->name, row->argument != NULL, NULL, row->letter};
        }
    }
    *letters = '\0';
    *longs   = (struct option){0};
}

static bench_parse_t check_sizes(bench_options_t *opts, const bench_spec_t *spec, char *error,
                                 size_t error_size)
{
    size_t step = spec->granularity;

    if (!(spec->options & BENCH_OPT_SIZE)) {
        return BENCH_PARSE_RUN;
    }
    if (opts->max_size < opts->min_size && opts->min_size == spec->granularity) {
        opts->min_size = opts->max_size; /* "-m 0" */
    }
    opts->min_size = (opts->min_size + step - 1) / step * step;
    if (step > 1 && opts->min_size == 0) {
        opts->min_size = step;
    }
    if (opts->max_size < opts->min_size) {
        return parse_error(error, error_size,
                           "the smallest message size, %zu, is above the "
                           "largest, %zu",
                           opts->min_size, opts->max_size);
    }
    return BENCH_PARSE_RUN;
}

/* The words after the options: where the messages of the two ends are. */
static bench_parse_t check_places(bench_options_t *opts, const bench_spec_t *spec, int count,
                                  char **words, char *error, size_t error_size)
{
    int i;

    for (i = 0; i < count; i++) {
        bool place = strlen(words[i]) == 1 && strchr("HPD", words[i][0]) != NULL;

        if (!(spec->options & BENCH_OPT_DEVICE) || !place || i > 1) {
            return parse_error(error, error_size, "unexpected argument '%s'", words[i]);
        }
        if (opts->runtime == NULL) {
            return parse_error(error, error_size, "argument '%s' needs option -d", words[i]);
        }
        opts->places[i] = words[i][0];
    }
    return BENCH_PARSE_RUN;
}

bench_parse_t bench_parse_options(bench_options_t *opts, const bench_spec_t *spec, int argc,
                                  char **argv, char *error, size_t error_size)
{
    char          letters[2 * OPTION_ROWS + 2];
    struct option longs[OPTION_ROWS + 1];
    const char   *word;
    int           letter;

    set_defaults(opts, spec);
    describe_options(spec, letters, longs);
    opterr = 0;
    for (;;) {
        word   = optind < argc ? argv[optind] : "";
        letter = getopt_long(argc, argv, letters, longs, NULL);
        switch (letter) {
        case -1:
            if (check_places(opts, spec, argc - optind, argv + optind, error, error_size) !=
                BENCH_PARSE_RUN) {
                return BENCH_PARSE_ERROR;
            }
            return check_sizes(opts, spec, error, error_size);
        case 'h':
            return BENCH_PARSE_HELP;
        case 'v':
            return BENCH_PARSE_VERSION;
        case '?':
            return parse_error(error, error_size, "unknown option '%s'", word);
        case ':':
            return parse_error(error, error_size, "option '%s' needs a value", word);
        default:
            if (!parse_value(opts, letter, optarg)) {
                return parse_error(error, error_size, "wrong value '%s' of option -%c", optarg,
                                   letter);
            }
        }
    }
}
