/* SPDX-License-Identifier: BSD-3-Clause */
/* Command line of angara_perf: from argv to perf_options_t and the set of tests. Exits on bad
 * usage. */
#define _GNU_SOURCE
#include "perf.h"
#include "usage.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void usage(FILE *out)
{
    unsigned i;

    fprintf(
        out,
        "Usage: %s [OPTION]... [TEST]...\n"
        "Measure the operations of libangara between two processes of this machine, or of two.\n\n"
        "  -a, --all               all tests (also when none is named)\n"
        "  -s, --size=SIZE[:MAX]   size in bytes, or the powers of two in a range; K, M, G\n"
        "  -n, --iterations=N      operations measured per size (100000; fewer if large)\n"
        "  -w, --warm-up=N         operations before (10000)\n"
        "  -m, --memory=KIND       of the target: shared (default) or private\n"
        "  -t, --target=STATE      in offload operations and atomics: sleeps (default), polls\n"
        "  -g, --gpu=KIND[:ENDS]   offload operations on memory of cuda, rocm, managed;\n"
        "                          H (host) or D (GPU): the buffer, then the target (DD)\n"
        "  -c, --check             validate the data\n"
        "      --cpu=A,B           CPUs of the two processes, or none (default: two cores)\n"
        "  -d, --device=NAME       device (default: ANGARA_DEVICE)\n"
        "      --listen[=[ADDRESS]:PORT]\n"
        "                          do what an angara_perf --host asks for, from anywhere\n"
        "  -H, --host=NAME[:PORT]  measure with the one that listens there\n"
        "      --patience=SECONDS  give up the other host if it stalls for so long (%u)\n"
        "  -j, --json              results as JSON\n"
        "  -l, --list              list the tests\n"
        "  -V, --version           version of the library\n"
        "  -h, --help              this text\n\nTests:\n",
        perf_name, PERF_PATIENCE);
    for (i = 0; i < perf_num_tests; ++i) {
        fprintf(out, "  %-16s %s [%s]\n", perf_tests[i].name, perf_tests[i].help,
                perf_unit_name(perf_tests[i].unit));
    }
}

/* @return the character behind the number, NULL if there is none or it is too large. */
static const char *parse_size(const char *text, size_t *size)
{
    static const char  units[] = "KMG";
    unsigned long long value;
    const char        *unit;
    char              *end;

    if (!isdigit((unsigned char)text[0])) {
        return NULL;
    }
    errno = 0;
    value = strtoull(text, &end, 10);
    unit  = (*end != '\0') ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit != NULL) {
        ++end;
    }
    if ((errno != 0) || (value > PERF_SIZE_MAX)) {
        return NULL;
    }
    value <<= (unit != NULL) ? 10 * (unit - units + 1) : 0;
    *size = value;
    return (value <= PERF_SIZE_MAX) ? end : NULL;
}

static void parse_sizes(const char *text, perf_options_t *opt)
{
    const char *end = parse_size(text, &opt->size_min);

    opt->size_max = opt->size_min;
    if ((end != NULL) && (*end == ':')) {
        end = parse_size(end + 1, &opt->size_max);
    }
    if ((end == NULL) || (*end != '\0') || (opt->size_max < opt->size_min) ||
        (opt->size_max == 0)) {
        usage_error(perf_name, "'%s' is no size or range of sizes up to %lu bytes", text,
                    PERF_SIZE_MAX);
    }
}

static unsigned parse_count(const char *text, unsigned min, unsigned max, const char *what)
{
    char         *end;
    unsigned long value;

    errno = 0;
    value = strtoul(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || (*end != '\0') || (errno != 0) || (value < min) ||
        (value > max)) {
        usage_error(perf_name, "'%s' is no number of %s from %u to %u", text, what, min, max);
    }
    return (unsigned)value;
}

static void parse_cpus(const char *text, perf_options_t *opt)
{
    char extra;

    opt->choose_cpus = 0;
    if (strcmp(text, "none") == 0) {
        opt->cpus[0] = opt->cpus[1] = -1;
        return;
    }
    if ((sscanf(text, "%d,%d%c", &opt->cpus[0], &opt->cpus[1], &extra) != 2) ||
        (opt->cpus[0] < 0) || (opt->cpus[1] < 0) || (opt->cpus[0] >= CPU_SETSIZE) ||
        (opt->cpus[1] >= CPU_SETSIZE)) {
        usage_error(perf_name, "'%s' isn't two CPU numbers such as 0,1, nor none", text);
    }
}

static void parse_gpu(char *text, perf_options_t *opt)
{
    const char *ends = "DD";
    char       *colon;

    colon = strchr(text, ':');
    if (colon != NULL) {
        *colon = '\0';
        ends   = colon + 1;
    }
    if ((strlen(ends) != 2) || (strspn(ends, "HD") != 2)) {
        usage_error(perf_name, "memory of the ends is HD, DH, DD or HH, not '%s'", ends);
    }
    opt->origin     = (strcmp(text, "managed") == 0) ? DEVICE_MANAGED : DEVICE_PLAIN;
    opt->gpu        = (opt->origin == DEVICE_MANAGED) ? &device_cuda : device_runtime(text);
    opt->buf_on_gpu = (ends[0] == 'D');
    opt->mem_on_gpu = (ends[1] == 'D');
    if (opt->gpu == NULL) {
        usage_error(perf_name, "GPU memory is cuda, rocm or managed, not '%s'", text);
    }
}

static void select_tests(int argc, char **argv, int all, const perf_options_t *opt,
                         unsigned char *selected)
{
    unsigned i;
    int      arg;

    for (i = 0; i < perf_num_tests; ++i) {
        selected[i] = (all || (argc == 0)) && ((opt->gpu == NULL) || perf_tests[i].gpu);
    }
    for (arg = 0; arg < argc; ++arg) {
        for (i = 0; (i < perf_num_tests) && (strcmp(perf_tests[i].name, argv[arg]) != 0); ++i) {
        }
        if (i == perf_num_tests) {
            usage_error(perf_name, "there is no test '%s', see --list", argv[arg]);
        }
        if ((opt->gpu != NULL) && !perf_tests[i].gpu) {
            usage_error(perf_name, "%s doesn't use GPU memory: leave out --gpu, or the test",
                        argv[arg]);
        }
        selected[i] = 1;
    }
}

enum { OPT_CPU = 256, OPT_LISTEN, OPT_PATIENCE };

static const struct option long_options[] = {
    {"all", no_argument, NULL, 'a'},
    {"size", required_argument, NULL, 's'},
    {"iterations", required_argument, NULL, 'n'},
    {"warm-up", required_argument, NULL, 'w'},
    {"memory", required_argument, NULL, 'm'},
    {"target", required_argument, NULL, 't'},
    {"gpu", required_argument, NULL, 'g'},
    {"check", no_argument, NULL, 'c'},
    {"cpu", required_argument, NULL, OPT_CPU},
    {"device", required_argument, NULL, 'd'},
    {"host", required_argument, NULL, 'H'},
    {"listen", optional_argument, NULL, OPT_LISTEN},
    {"patience", required_argument, NULL, OPT_PATIENCE},
    {"json", no_argument, NULL, 'j'},
    {"list", no_argument, NULL, 'l'},
    {"version", no_argument, NULL, 'V'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static void list_tests(void)
{
    unsigned i;

    for (i = 0; i < perf_num_tests; ++i) {
        printf("%s\n", perf_tests[i].name);
    }
}

/* Options that only print something. */
static void print_and_exit(int c) __attribute__((noreturn));

static void print_and_exit(int c)
{
    switch (c) {
    case 'l':
        list_tests();
        break;
    case 'V':
        printf("%s %s\n", perf_name, angara_version());
        break;
    case 'h':
        usage(stdout);
        break;
    default:
        fprintf(stderr, "Try '%s --help'.\n", perf_name);
        exit(EXIT_USAGE);
    }
    exit(EXIT_SUCCESS);
}

/* @return is it the first of two words? The other one is the second. */
static int parse_either(const char *text, const char *first, const char *second, const char *what)
{
    if ((strcmp(text, first) != 0) && (strcmp(text, second) != 0)) {
        usage_error(perf_name, "%s %s or %s, not '%s'", what, first, second, text);
    }
    return strcmp(text, first) == 0;
}

void perf_parse_options(int argc, char **argv, perf_options_t *opt, unsigned char *selected)
{
    int c, all = 0, asks = 0; /* for something to be measured */

    while ((c = getopt_long(argc, argv, "as:n:w:m:t:g:cd:H:jlVh", long_options, NULL)) != -1) {
        asks |= (c < OPT_CPU) && (strchr("asnwmtgcj", c) != NULL);
        switch (c) {
        case 'a':
            all = 1;
            break;
        case 's':
            parse_sizes(optarg, opt);
            break;
        case 'n':
            opt->iterations = parse_count(optarg, 1, PERF_COUNT_MAX, "iterations");
            break;
        case 'w':
            opt->warm_up = parse_count(optarg, 0, PERF_COUNT_MAX, "warm-up operations");
            break;
        case 'm':
            opt->shared = parse_either(optarg, "shared", "private", "memory is");
            break;
        case 't':
            opt->polls = parse_either(optarg, "polls", "sleeps", "the target");
            break;
        case 'g':
            parse_gpu(optarg, opt);
            break;
        case 'c':
            opt->check = 1;
            break;
        case OPT_CPU:
            parse_cpus(optarg, opt);
            break;
        case 'd':
            opt->device = optarg;
            break;
        case 'H':
            opt->host = optarg;
            break;
        case OPT_LISTEN:
            opt->listen_at = (optarg != NULL) ? optarg : "";
            if ((optarg != NULL) && (optarg[strspn(optarg, "0123456789")] == '\0')) {
                usage_error(perf_name, "'%s' is no address: a port alone is --listen=:PORT",
                            optarg);
            }
            break;
        case OPT_PATIENCE:
            opt->patience = parse_count(optarg, 1, PERF_PATIENCE_MAX, "seconds");
            break;
        case 'j':
            opt->json = 1;
            break;
        default:
            print_and_exit(c);
        }
    }
    if ((opt->listen_at != NULL) && ((opt->host != NULL) || asks || (optind < argc))) {
        usage_error(perf_name,
                    "what to measure is said on the other side, by --host: beside --listen only "
                    "--device, --cpu and --patience are of use");
    }
    select_tests(argc - optind, argv + optind, all, opt, selected);
}
