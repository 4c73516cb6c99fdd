/* SPDX-License-Identifier: BSD-3-Clause */
/* See fault_common.h. */
#define _GNU_SOURCE
#include "fault_common.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

int (*fault_end_hook)(int status);

void fault_end(int status, const char *fmt, ...)
{
    int (*hook)(int) = fault_end_hook;
    va_list args;

    printf("%s[%d]: ", program_invocation_short_name, (int)getpid());
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
    fault_end_hook = NULL;
    _exit(hook != NULL ? hook(status) : status);
}

static void late(int signal)
{
    static const char text[] = "hangs: ended by the watchdog\n";

    (void)signal;
    if (write(STDOUT_FILENO, text, sizeof(text) - 1) < 0) {
        _exit(FAULT_HARNESS);
    }
    _exit(FAULT_LATE);
}

int fault_find_name(const char *const *names, const char *name)
{
    for (int i = 0; names[i] != NULL; ++i) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    fault_end(FAULT_HARNESS, "unknown word %s", name);
}

void fault_watchdog(unsigned seconds)
{
    signal(SIGALRM, late);
    test_alarm(seconds);
}

static void die(int signal)
{
    (void)signal;
    kill(getpid(), SIGKILL);
}

void fault_kill_self_after(unsigned us)
{
    struct itimerval timer = {{0, 0}, {us / 1000000, us % 1000000}};

    if (us == 0) {
        die(0);
    }
    /* Not SIGALRM: the watchdog has that. CPU time would stand still in a sleeping victim. */
    signal(SIGALRM, die);
    alarm(0);
    setitimer(ITIMER_REAL, &timer, NULL);
}

unsigned fault_count_fds(void)
{
    DIR     *dir   = opendir("/proc/self/fd");
    unsigned count = 0;

    if (dir == NULL) {
        return 0;
    }
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count - 3; /* ".", "..", and the one that reads the folder */
}

static unsigned count_maps(void)
{
    FILE    *file  = fopen("/proc/self/maps", "r");
    unsigned count = 0;
    int      byte;

    while (file != NULL && (byte = getc(file)) != EOF) {
        count += byte == '\n';
    }
    if (file != NULL) {
        fclose(file);
    }
    return count;
}

static unsigned long resident_kib(void)
{
    FILE         *file = fopen("/proc/self/statm", "r");
    unsigned long size, resident = 0;

    if (file != NULL) {
        if (fscanf(file, "%lu %lu", &size, &resident) != 2) {
            resident = 0;
        }
        fclose(file);
    }
    return resident * ((unsigned long)sysconf(_SC_PAGESIZE) / 1024);
}

fault_usage_t fault_usage(void)
{
    return (fault_usage_t){fault_count_fds(), count_maps(), resident_kib()};
}

void fault_usage_check(const char *who, fault_usage_t before, fault_usage_t slack)
{
    fault_usage_t after = fault_usage();

    printf("%s: %u to %u descriptors, %u to %u mappings, %lu to %lu KiB\n", who, before.fds,
           after.fds, before.maps, after.maps, before.resident_kib, after.resident_kib);
    if (after.fds > before.fds + slack.fds || after.maps > before.maps + slack.maps ||
        after.resident_kib > before.resident_kib + slack.resident_kib) {
        fault_end(FAULT_WRONG, "%s has grown", who);
    }
}
