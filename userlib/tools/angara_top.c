/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * angara_top: the counters of running processes and of their peers (angara/angara_watch.h). Options
 * and the loop. Reads boards of other processes; changes nothing.
 */
#include "top.h"
#include "usage.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const top_name = "angara_top";

typedef enum { TOP_TABLE, TOP_ALL, TOP_JSON, TOP_PROMETHEUS } top_format_t;

typedef struct {
    top_format_t format;
    pid_t        pid; /* 0: all */
    double       delay;
    int          once;    /* totals, and end */
    long         samples; /* 0: until it is interrupted */
    int          peers;
} top_options_t;

static void usage(FILE *out)
{
    fprintf(out,
            "Usage: %s [OPTION]...\n"
            "Show what processes of this node count that use libangara, in rates, with their "
            "peers.\n\n"
            "  -1, --once          print the totals until now, and end\n"
            "  -a, --all           every counter of every object, in totals\n"
            "  -d, --delay=SEC     seconds between samples (1)\n"
            "  -n, --samples=N     end after so many\n"
            "  -p, --pid=PID       this process only\n"
            "  -s, --summary       a line for each process, none for its peers\n"
            "  -j, --json          a line of JSON for each sample\n"
            "      --prometheus    totals in Prometheus's text format, once\n"
            "  -V, --version       version of the library\n"
            "  -h, --help          this text\n\n"
            "AGE is how long ago a process has counted for us: it does when it makes progress, at\n"
            "most ten times a second. Processes of other users are seen by root only.\n",
            top_name);
}

static long parse_long(const char *text, long max, const char *what)
{
    char *end;
    long  value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 1 || value > max) {
        usage_error(top_name, "'%s' is no %s", text, what);
    }
    return value;
}

static double parse_delay(const char *text)
{
    char  *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value >= 0.1 && value <= 86400)) {
        usage_error(top_name, "'%s' is no number of seconds, 0.1 to 86400", text);
    }
    return value;
}

enum { OPT_PROMETHEUS = 256 };

static void parse_options(int argc, char **argv, top_options_t *opt)
{
    static const struct option options[] = {
        {"once", no_argument, NULL, '1'},
        {"all", no_argument, NULL, 'a'},
        {"delay", required_argument, NULL, 'd'},
        {"samples", required_argument, NULL, 'n'},
        {"pid", required_argument, NULL, 'p'},
        {"summary", no_argument, NULL, 's'},
        {"json", no_argument, NULL, 'j'},
        {"prometheus", no_argument, NULL, OPT_PROMETHEUS},
        {"version", no_argument, NULL, 'V'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int c;

    while ((c = getopt_long(argc, argv, "1ad:n:p:sjVh", options, NULL)) != -1) {
        switch (c) {
        case '1':
            opt->once = 1;
            break;
        case 'a':
            opt->format = TOP_ALL;
            break;
        case 'd':
            opt->delay = parse_delay(optarg);
            break;
        case 'n':
            opt->samples = parse_long(optarg, LONG_MAX, "number of samples");
            break;
        case 'p':
            opt->pid = (pid_t)parse_long(optarg, INT32_MAX, "process id");
            break;
        case 's':
            opt->peers = 0;
            break;
        case 'j':
            opt->format = TOP_JSON;
            break;
        case OPT_PROMETHEUS:
            opt->format = TOP_PROMETHEUS;
            opt->once   = 1;
            break;
        case 'V':
            printf("%s %s\n", top_name, angara_version());
            exit(EXIT_SUCCESS);
        case 'h':
            usage(stdout);
            exit(EXIT_SUCCESS);
        default:
            fprintf(stderr, "Try '%s --help'.\n", top_name);
            exit(EXIT_USAGE);
        }
    }
    if (optind < argc) {
        usage_error(top_name, "unexpected argument '%s'", argv[optind]);
    }
    opt->samples = opt->once ? 1 : opt->samples;
}

static void print(const top_options_t *opt, const top_sample_t *before, const top_sample_t *now)
{
    switch (opt->format) {
    case TOP_ALL:
        top_print_all(stdout, now);
        break;
    case TOP_JSON:
        top_print_json(stdout, now);
        break;
    case TOP_PROMETHEUS:
        top_print_prometheus(stdout, now);
        break;
    default:
        top_print_table(stdout, before, now, opt->peers);
    }
    if (fflush(stdout) != 0) {
        exit(EXIT_FAILURE); /* nobody reads it any more */
    }
}

static void pause_for(double seconds)
{
    struct timespec time = {.tv_sec  = (time_t)seconds,
                            .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

    while (nanosleep(&time, &time) != 0 && errno == EINTR) {
    }
}

/* @return how many processes were seen last */
static unsigned watch(const top_options_t *opt)
{
    const int    rates     = opt->format == TOP_TABLE && !opt->once;
    const int    is_screen = rates && isatty(STDOUT_FILENO) && opt->samples == 0;
    top_sample_t before    = {0}, now;
    unsigned     seen;

    if (rates) {
        top_read(opt->pid, &before);
        pause_for(opt->delay);
    }
    for (long i = 1;; ++i) {
        top_read(opt->pid, &now);
        if (is_screen) {
            printf("\033[H\033[J"); /* home, and clear what is below */
        }
        print(opt, rates ? &before : NULL, &now);
        seen = now.count;
        top_free(&before);
        before = now;
        if (i == opt->samples || (seen == 0 && opt->pid != 0)) {
            break;
        }
        pause_for(opt->delay);
    }
    top_free(&before);
    return seen;
}

int main(int argc, char **argv)
{
    top_options_t opt = {.delay = 1, .peers = 1};

    parse_options(argc, argv, &opt);
    if (watch(&opt) == 0 && opt.pid != 0) {
        fprintf(stderr,
                "%s: process %d has no PE whose counters can be seen: there is none, it is "
                "another user's, or it was started with ANGARA_WATCH=n\n",
                top_name, (int)opt.pid);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
