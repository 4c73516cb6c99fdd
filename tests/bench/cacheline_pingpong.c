/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cacheline_pingpong: the floor of any shared-memory latency. Two processes, pinned to one core
 * each, hand a counter back and forth in one shared cache line, with plain loads and stores.
 * Prints the one-way time: "cacheline_pingpong 8 <value> ns". Touches nothing but that line.
 */
#define _GNU_SOURCE
#include "../common/clock.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM            "cacheline_pingpong"
#define DEFAULT_ITERATIONS 200000
#define BATCHES            9
#define TIME_LIMIT         120 /* seconds; the other process may have died */

typedef struct options {
    int  cpus[2];
    long iterations;
} options_t;

static void usage(FILE *out)
{
    fprintf(out,
            "Usage: " PROGRAM " [-c CPU,CPU] [-n ITERATIONS]\n"
            "  -c  the two CPUs (the first two that this process may use)\n"
            "  -n  round trips in each of %d batches, the median counts (%d)\n",
            BATCHES, DEFAULT_ITERATIONS);
}

static void fail(const char *what)
{
    fprintf(stderr, PROGRAM ": %s\n", what);
    exit(EXIT_FAILURE);
}

/* The first two CPUs of the process; one is not enough for a transfer between cores. */
static void default_cpus(int cpus[2])
{
    cpu_set_t set;
    int       found = 0, cpu;

    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        fail(strerror(errno));
    }
    for (cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
        if (CPU_ISSET(cpu, &set)) {
            cpus[found++] = cpu;
        }
    }
    if (found < 2) {
        fail("two CPUs are needed, this process may use only one");
    }
}

static void parse_options(int argc, char **argv, options_t *opts)
{
    char extra;
    int  letter;

    *opts = (options_t){.cpus = {-1, -1}, .iterations = DEFAULT_ITERATIONS};
    while ((letter = getopt(argc, argv, "c:n:h")) != -1) {
        if (letter == 'h') {
            usage(stdout);
            exit(EXIT_SUCCESS);
        } else if (letter == 'c' &&
                   sscanf(optarg, "%d,%d%c", &opts->cpus[0], &opts->cpus[1], &extra) == 2 &&
                   opts->cpus[0] >= 0 && opts->cpus[1] >= 0 && opts->cpus[0] != opts->cpus[1]) {
            continue;
        } else if (letter == 'n' && sscanf(optarg, "%ld%c", &opts->iterations, &extra) == 1 &&
                   opts->iterations > 0) {
            continue;
        }
        if (letter != '?') {
            fprintf(stderr, PROGRAM ": wrong value '%s' of option -%c\n", optarg, letter);
        }
        usage(stderr);
        exit(EXIT_FAILURE);
    }
    if (optind < argc) {
        fprintf(stderr, PROGRAM ": unexpected argument '%s'\n", argv[optind]);
        usage(stderr);
        exit(EXIT_FAILURE);
    }
    if (opts->cpus[0] < 0) {
        default_cpus(opts->cpus);
    }
}

static void pin(int cpu)
{
    char      message[64];
    cpu_set_t set;

    CPU_ZERO(&set);
    if (cpu < CPU_SETSIZE) {
        CPU_SET(cpu, &set);
    }
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        snprintf(message, sizeof(message), "can't run on CPU %d: %s", cpu, strerror(errno));
        fail(message);
    }
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void wait_for(volatile uint64_t *line, uint64_t value)
{
    while (*line != value) {
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

/* Values only grow: odd ones are pings, even ones pongs. */
static void answer(volatile uint64_t *line, uint64_t rounds)
{
    uint64_t i;

    for (i = 0; i < rounds; i++) {
        wait_for(line, 2 * i + 1);
        *line = 2 * i + 2;
    }
}

static void ask(volatile uint64_t *line, uint64_t first, uint64_t rounds)
{
    uint64_t i;

    for (i = first; i < first + rounds; i++) {
        *line = 2 * i + 1;
        wait_for(line, 2 * i + 2);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    uint64_t           done = 0, rounds, start;
    volatile uint64_t *line;
    double             ns[BATCHES];
    options_t          opts;
    int                status, i;
    pid_t              parent, child;

    parse_options(argc, argv, &opts);
    rounds = (uint64_t)opts.iterations;
    line   = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (line == MAP_FAILED) {
        fail(strerror(errno));
    }
    pin(opts.cpus[1]); /* fails here, not in the process that is waited for */
    pin(opts.cpus[0]);
    test_alarm(TIME_LIMIT);

    parent = getpid();
    child  = fork();
    if (child < 0) {
        fail(strerror(errno));
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        test_alarm(TIME_LIMIT);
        if (getppid() != parent) {
            _exit(EXIT_FAILURE);
        }
        pin(opts.cpus[1]);
        /* the batches and one warm-up batch before them */
        answer(line, rounds * (BATCHES + 1));
        _exit(EXIT_SUCCESS);
    }

    ask(line, 0, rounds);
    done += rounds;
    for (i = 0; i < BATCHES; i++) {
        start = now_ns();
        ask(line, done, rounds);
        ns[i] = (double)(now_ns() - start) / (2.0 * (double)rounds);
        done += rounds;
    }
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail("the second process failed");
    }
    qsort(ns, BATCHES, sizeof(ns[0]), compare);
    printf(PROGRAM " 8 %.1f ns\n", ns[BATCHES / 2]);
    return EXIT_SUCCESS;
}
