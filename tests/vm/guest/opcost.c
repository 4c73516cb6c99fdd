/* SPDX-License-Identifier: BSD-3-Clause */
#include "opcost.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <sys/user.h>
#define SYSCALL_OPCODE 0x050f
#else
#error "how does one see a system call coming on this processor?"
#endif

#define ROUNDS 9
#define WARM   20

typedef struct {
    unsigned long instructions, calls;
} cost_t;

static const size_t sizes[] = {8, 1024, 65536};

/* Between two such stops the child performs one operation. */
static void stop(void)
{
    raise(SIGSTOP);
}

static void child(opcost_open_t open, opcost_write_t write)
{
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    open();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        for (unsigned n = 0; n < WARM; ++n) {
            write(sizes[i]);
        }
        for (unsigned n = 0; n < ROUNDS; ++n) {
            stop();
            write(sizes[i]);
            stop();
            stop();
        }
    }
    exit(0);
}

/* @return the signal that stopped the child; ends the program if the child has ended */
static int child_wait(pid_t pid)
{
    int status;

    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
        fprintf(stderr, "opcost: the operation failed\n");
        exit(1);
    }
    return WSTOPSIG(status);
}

/* Let it run, or step, up to its next stop; the signals that it sends itself are for us. */
static cost_t child_go(pid_t pid, int steps)
{
    cost_t cost = {0, 0};
    int    signal;

    do {
        if (steps) {
            struct user_regs_struct regs;
            long                    code;

            ptrace(PTRACE_GETREGS, pid, NULL, &regs);
            errno = 0;
            code  = ptrace(PTRACE_PEEKTEXT, pid, (void *)regs.rip, NULL);
            cost.instructions++;
            cost.calls += errno == 0 && (code & 0xffff) == SYSCALL_OPCODE;
        }
        ptrace(steps ? PTRACE_SINGLESTEP : PTRACE_CONT, pid, NULL, NULL);
        signal = child_wait(pid);
    } while (signal != SIGSTOP);
    return cost;
}

static int compare(const void *a, const void *b)
{
    const unsigned long *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void measure(pid_t pid, size_t size, int calls)
{
    unsigned long counts[ROUNDS];

    for (unsigned n = 0; n < ROUNDS; ++n) {
        cost_t with, without;

        child_go(pid, 0);
        with      = child_go(pid, 1);
        without   = child_go(pid, 1); /* raise() alone */
        counts[n] = calls ? with.calls - without.calls : with.instructions - without.instructions;
    }
    qsort(counts, ROUNDS, sizeof(counts[0]), compare);
    printf("write %zu %lu %s\n", size, counts[ROUNDS / 2], calls ? "calls" : "instructions");
    fflush(stdout);
}

int opcost(int argc, char **argv, opcost_open_t open, opcost_write_t write)
{
    int   calls = argc == 2 && !strcmp(argv[1], "calls");
    pid_t pid;

    if (argc != 2 || (!calls && strcmp(argv[1], "instructions") != 0)) {
        fprintf(stderr, "Usage: %s calls|instructions\n", argv[0]);
        return 2;
    }
    pid = fork();
    if (pid == 0) {
        child(open, write);
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        measure(pid, sizes[i], calls);
    }
    kill(pid, SIGKILL);
    return 0;
}
