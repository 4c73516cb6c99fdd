/* SPDX-License-Identifier: BSD-3-Clause */
/* What has been said on this node (angara_is_said()), by processes of a job that are forked here.
 */
#define _GNU_SOURCE
#include <angara/angara.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define FDS 64

static int taker; /* 1: another thread takes a descriptor before each socket() */

int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);

int __wrap_socket(int domain, int type, int protocol)
{
    if (taker) {
        (void)!dup(STDERR_FILENO);
    }
    return __real_socket(domain, type, protocol);
}

static int fds_open(void)
{
    int count = 0;

    for (int fd = 0; fd < FDS; ++fd) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* All that there may be, as the limit says then. */
static void fds_fill(void)
{
    struct rlimit limit = {FDS, FDS};

    setrlimit(RLIMIT_NOFILE, &limit);
    while (dup(STDERR_FILENO) >= 0) {
    }
}

/* What a process of the job does, as its first use of the library; the result is its status. */
static int status_of(int (*act)(const char *text), const char *text)
{
    int   status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(20);
        _exit(act(text));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Another process says it, and lives until speaker_end(). */
static int   speaker_pipe[2];
static pid_t speaker;

static void speaker_start(const char *text)
{
    int  to_us[2];
    char byte;

    assert_int_equal(pipe(speaker_pipe), 0);
    assert_int_equal(pipe(to_us), 0);
    speaker = fork();
    assert_true(speaker >= 0);
    if (speaker == 0) {
        alarm(20);
        close(speaker_pipe[1]);
        byte = (char)angara_is_said(text);
        (void)!write(to_us[1], &byte, 1);
        (void)!read(speaker_pipe[0], &byte, 1);
        _exit(0);
    }
    close(to_us[1]);
    assert_int_equal(read(to_us[0], &byte, 1), 1);
    assert_int_equal(byte, 0);
    close(to_us[0]);
}

static void speaker_end(void)
{
    close(speaker_pipe[0]);
    close(speaker_pipe[1]);
    assert_int_equal(waitpid(speaker, NULL, 0), speaker);
}

static int ask(const char *text)
{
    return angara_is_said(text);
}

static int ask_twice(const char *text)
{
    return angara_is_said(text) + 2 * angara_is_said(text);
}

static void test_said(void **state)
{
    char text[1025];

    (void)state;
    memset(text, 'a', sizeof(text));
    text[1024] = '\0';
    assert_int_equal(status_of(ask_twice, text), 0);
    speaker_start(text);
    assert_int_equal(status_of(ask, text), 1);
    assert_int_equal(status_of(ask_twice, text), 3);
    text[1023] = 'b';
    assert_int_equal(status_of(ask, text), 1);
    text[1022] = 'b';
    assert_int_equal(status_of(ask, text), 0);
    speaker_end();
    memset(text, 'a', 1024);
    assert_int_equal(status_of(ask, text), 0);
}

static int ask_without_descriptors(const char *text)
{
    angara_is_said("something else");
    fds_fill();
    taker = 1;
    return angara_is_said(text);
}

/* Nobody else gets the spare descriptor. */
static void test_no_descriptors(void **state)
{
    (void)state;
    speaker_start("no descriptors");
    assert_int_equal(status_of(ask_without_descriptors, "no descriptors"), 1);
    speaker_end();
}

static int all_are_open(const char *text)
{
    (void)text;
    return fds_open() != FDS;
}

/* Descriptors of the library closed by the program, which has files of its own there then. */
static int own_files(const char *text)
{
    angara_is_said(text);
    for (int fd = 3; fd < FDS; ++fd) {
        close(fd);
    }
    fds_fill();
    if (all_are_open(NULL) != 0) {
        return 1;
    }
    if (status_of(all_are_open, NULL) != 0) {
        return 2;
    }
    angara_is_said("another");
    return all_are_open(NULL) != 0 ? 3 : 0;
}

static void test_own_files(void **state)
{
    (void)state;
    assert_int_equal(status_of(own_files, "own files"), 0);
}

static int load_and_unload(const char *text)
{
    int before = 0;

    for (int i = 0; i < 4; ++i) {
        void *library = dlopen(LIBANGARA, RTLD_NOW | RTLD_LOCAL);
        int (*is_said)(const char *);

        if (library == NULL) {
            return 1;
        }
        *(void **)&is_said = dlsym(library, "angara_is_said");
        if (is_said == NULL || is_said(text) != 0 || dlclose(library) != 0) {
            return 2;
        }
        if (i == 0) {
            before = fds_open();
        }
    }
    return fds_open() == before ? 0 : 3;
}

static void test_unload(void **state)
{
    (void)state;
    assert_int_equal(status_of(load_and_unload, "unload"), 0);
}

int main(void)
{
    char                    job[32];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_said),
        cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_own_files),
        cmocka_unit_test(test_unload),
    };

    snprintf(job, sizeof(job), "test_said-%d", (int)getpid());
    setenv("PMIX_NAMESPACE", job, 1);
    return cmocka_run_group_tests_name("said", tests, NULL, NULL);
}
