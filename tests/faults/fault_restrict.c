/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a command with some system calls refused, as a container's seccomp profile or a security
 * module does: fault_restrict [--errno NAME] CALL... -- COMMAND. Touches only its own process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_CALLS 16
#define HARNESS   12 /* as in fault_common.h */

static const struct {
    const char *name;
    unsigned    number;
} calls[] = {
    {"process_vm_readv", SYS_process_vm_readv},
    {"process_vm_writev", SYS_process_vm_writev},
    {"pidfd_open", SYS_pidfd_open},
    {"memfd_create", SYS_memfd_create},
    {"membarrier", SYS_membarrier},
    {"fallocate", SYS_fallocate},
    {"getrandom", SYS_getrandom},
    {"epoll_create1", SYS_epoll_create1},
};

static int find_call(const char *name)
{
    for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); ++i) {
        if (!strcmp(name, calls[i].name)) {
            return (int)calls[i].number;
        }
    }
    return -1;
}

static int find_errno(const char *name)
{
    return !strcmp(name, "EPERM") ? EPERM : !strcmp(name, "ENOSYS") ? ENOSYS : -1;
}

/* A filter that refuses the @a count calls with @a error and allows the rest. */
static int install(const unsigned *refused, unsigned count, int error)
{
    struct sock_filter filter[MAX_CALLS + 3];
    struct sock_fprog  program = {0, filter};
    unsigned           n       = 0;

    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                               offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < count; ++i) {
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i],
                                                   (unsigned char)(count - i), 0);
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
                                               SECCOMP_RET_ERRNO | (unsigned)error);

    program.len = (unsigned short)n;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0;
}

int main(int argc, char **argv)
{
    unsigned refused[MAX_CALLS];
    unsigned count = 0;
    int      error = EPERM;
    int      i;

    for (i = 1; i < argc && strcmp(argv[i], "--") != 0; ++i) {
        if (!strcmp(argv[i], "--errno") && i + 1 < argc) {
            error = find_errno(argv[++i]);
            continue;
        }
        if (find_call(argv[i]) < 0 || count == MAX_CALLS) {
            fprintf(stderr, "fault_restrict: unknown call %s\n", argv[i]);
            return HARNESS;
        }
        refused[count++] = (unsigned)find_call(argv[i]);
    }
    if (i + 1 >= argc || error < 0) {
        fprintf(stderr, "Usage: fault_restrict [--errno EPERM|ENOSYS] CALL... -- COMMAND\n");
        return HARNESS;
    }
    if (install(refused, count, error)) {
        fprintf(stderr, "fault_restrict: no seccomp filter here: %s\n", strerror(errno));
        return HARNESS;
    }
    execvp(argv[i + 1], argv + i + 1);
    fprintf(stderr, "fault_restrict: %s: %s\n", argv[i + 1], strerror(errno));
    return HARNESS;
}
