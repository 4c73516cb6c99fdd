/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is alive: processes whose main thread has ended before the others, zombies, reaped ones. */
#include "soft.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char state_of(pid_t pid)
{
    char  path[64], text[512], *end;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    if (file == NULL) {
        return '-';
    }
    end = (fgets(text, sizeof(text), file) != NULL) ? strrchr(text, ')') : NULL;
    fclose(file);
    return (end != NULL) ? end[2] : '-';
}

static void wait_for_state(pid_t pid, char state)
{
    while (state_of(pid) != state) {
        sched_yield();
    }
}

static void *wait_for_the_end(void *arg)
{
    (void)arg;
    for (;;) {
        pause();
    }
    return NULL;
}

static pid_t fork_headless(void)
{
    pid_t     pid = fork();
    pthread_t thread;

    if (pid == 0) {
        if (pthread_create(&thread, NULL, wait_for_the_end, NULL) != 0) {
            _exit(1);
        }
        pthread_exit(NULL);
    }
    assert_true(pid > 0);
    wait_for_state(pid, 'Z');
    return pid;
}

static void test_main_thread_ended(void **state)
{
    uint64_t start_time = 0, again = 0;
    pid_t    pid, task;

    (void)state;
    if (getenv("ANGARA_TEST_QUICK") != NULL) {
        skip(); /* under valgrind the main thread stays */
    }
    pid = fork_headless();
    assert_int_equal(soft_process_look(pid, &start_time), SOFT_ALIVE);
    assert_true(start_time != 0);
    task = soft_process_task(pid, pid);
    assert_true((task > 0) && (task != pid));
    assert_int_equal(soft_process_task(pid, task), -1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    while (soft_process_task(pid, pid) > 0) {
        sched_yield();
    }
    assert_int_equal(soft_process_look(pid, &again), SOFT_GONE); /* a zombie like any other */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(soft_process_look(pid, &again), SOFT_GONE);
    assert_int_equal(soft_process_task(pid, pid), -1);
}

static void test_zombie(void **state)
{
    uint64_t start_time;
    pid_t    pid = fork();

    (void)state;
    if (pid == 0) {
        _exit(0);
    }
    wait_for_state(pid, 'Z');
    assert_int_equal(soft_process_look(pid, &start_time), SOFT_GONE);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_owner(void **state)
{
    uint64_t mine = soft_owner();
    int      status;
    pid_t    pid;

    (void)state;
    assert_true(mine != 0);
    assert_true(soft_owner_alive(mine));
    assert_false(soft_owner_alive(mine + (1ull << 40))); /* another start time */
    pid = fork();
    if (pid == 0) {
        _exit((soft_owner() != mine) && soft_owner_alive(soft_owner()) && soft_owner_alive(mine) ?
                  0 :
                  1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* The process goes on, by exec, as another program: what named it before names it no more. */
static void test_owner_exec(void **state)
{
    uint64_t owner = 0;
    int      told[2];
    char     byte;
    pid_t    pid;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, told), 0);
    pid = fork();
    if (pid == 0) {
        owner = soft_owner();
        close(told[0]);
        if (write(told[1], &owner, sizeof(owner)) == (ssize_t)sizeof(owner) &&
            read(told[1], &byte, 1) == 1) {
            execlp("sleep", "sleep", "60", (char *)NULL);
        }
        _exit(1);
    }
    close(told[1]);
    assert_int_equal(read(told[0], &owner, sizeof(owner)), sizeof(owner));
    assert_int_equal(soft_owner_pid(owner), pid);
    assert_true(soft_owner_alive(owner));
    assert_int_equal(write(told[0], "", 1), 1);
    assert_int_equal(read(told[0], &byte, 1), 0); /* exec has closed it */
    assert_false(soft_owner_alive(owner));
    assert_false(soft_owner_part_alive(owner & ((1ull << 46) - 1), 46));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(told[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_main_thread_ended),
        cmocka_unit_test(test_zombie),
        cmocka_unit_test(test_owner),
        cmocka_unit_test(test_owner_exec),
    };

    return cmocka_run_group_tests_name("process", tests, NULL, NULL);
}
