/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Proof that code makes no system calls: from quiet_begin() on, the kernel kills the process at the
 * first one (SIGSYS). Two are let through: the end of the process, and reading a clock, which is
 * none where the kernel's clock can be read in user space.
 */
#ifndef ANGARA_TESTS_QUIET_H
#define ANGARA_TESTS_QUIET_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* To be called first: now and then progress asks whether peers live, by a system call. */
static inline void quiet_prepare(void)
{
    setenv("ANGARA_PEER_CHECK", "60000", 1);
}

/* @return 0, or -1 where the kernel has no such filters. */
static inline int quiet_begin(void)
{
    static struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 ?
               0 :
               -1;
}

/* The only way out afterwards. */
static inline void quiet_end(int status)
{
    syscall(SYS_exit_group, status);
}

/* A check of a harness would print, and its wait give the CPU up: these end the process instead. */
static inline void quiet_must(int condition, int which)
{
    if (!condition) {
        quiet_end(which);
    }
}

#define QUIET_TURNS 100000000u /* of a wait: too many */

#define QUIET_UNTIL(_condition, _progress, _which)      \
    do {                                                \
        unsigned _turns = 0;                            \
                                                        \
        while (!(_condition)) {                         \
            _progress;                                  \
            quiet_must(++_turns < QUIET_TURNS, _which); \
        }                                               \
    } while (0)

/* What a test keeps, defined by it. */
typedef struct quiet quiet_t;

typedef struct {
    void (*func)(quiet_t *q, uint64_t n);
    unsigned rounds;
} quiet_kind_t;

/*
 * Rounds of one kind: `warm` of them freely (first contact, rings, pools), the others under the
 * filter. Doesn't return unless there is none.
 */
static inline int quiet_run(const quiet_kind_t *kind, quiet_t *q, unsigned warm)
{
    uint64_t n;

    for (n = 1; n <= warm; ++n) {
        kind->func(q, n);
    }
    if (quiet_begin() != 0) {
        return -1;
    }
    for (; n <= kind->rounds; ++n) {
        kind->func(q, n);
    }
    quiet_end(0);
    return 0;
}

#endif
