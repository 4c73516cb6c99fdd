/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of the stand-ins share. A test runs in a child process that loads the runtime:
 * each has a fresh one, with an environment of its own, and may be ended by it.
 */
#ifndef ANGARA_TESTS_STANDIN_TEST_H
#define ANGARA_TESTS_STANDIN_TEST_H

#include "standin/standin.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a child: ends it. */
#define CHECK(_condition)                                                    \
    do {                                                                     \
        if (!(_condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #_condition); \
            _exit(1);                                                        \
        }                                                                    \
    } while (0)

#define CHECK_IS(_value, _wanted)                                                               \
    do {                                                                                        \
        long value_ = (long)(_value), wanted_ = (long)(_wanted);                                \
        if (value_ != wanted_) {                                                                \
            fprintf(stderr, "%s:%d: %s is %ld, not %ld\n", __FILE__, __LINE__, #_value, value_, \
                    wanted_);                                                                   \
            _exit(1);                                                                           \
        }                                                                                       \
    } while (0)

/* Where the library `name` lies: in standin/ beside the program. */
static inline const char *standin_path(const char *name)
{
    static char path[4096];
    ssize_t     length = readlink("/proc/self/exe", path, sizeof(path) / 2);

    CHECK(length > 0);
    path[length] = '\0';
    strcpy(strrchr(path, '/'), "/standin/");
    strcat(path, name);
    return path;
}

/* Run in a child. What it says on stderr goes to `text`, if that isn't NULL. @return as wait() */
static inline int run_child(void (*run)(void), char *text, size_t size)
{
    const struct rlimit none   = {0, 0};
    size_t              length = 0;
    ssize_t             num;
    int                 fds[2], status;
    pid_t               pid;

    if (pipe(fds) != 0 || fflush(NULL) != 0 || (pid = fork()) < 0) {
        abort();
    }
    if (pid == 0) {
        if (text != NULL) {
            dup2(fds[1], STDERR_FILENO);
        }
        close(fds[0]);
        close(fds[1]);
        setrlimit(RLIMIT_CORE, &none);
        alarm(60);
        run();
        _exit(0);
    }
    close(fds[1]);
    while (text != NULL && length < size - 1 &&
           (num = read(fds[0], text + length, size - 1 - length)) > 0) {
        length += (size_t)num;
    }
    if (text != NULL) {
        text[length] = '\0';
    }
    close(fds[0]);
    if (waitpid(pid, &status, 0) != pid) {
        abort();
    }
    return status;
}

/* A test that passes if `run` does. */
#define RUNS(_run) assert_int_equal(run_child(_run, NULL, 0), 0)

/* A test that passes if `run` is aborted by the stand-in, with words in its message. */
#define ABORTS(_run, _words)                                                 \
    do {                                                                     \
        char text_[1024];                                                    \
        int  status_ = run_child(_run, text_, sizeof(text_));                \
        if (!WIFSIGNALED(status_) || WTERMSIG(status_) != SIGABRT ||         \
            strstr(text_, _words) == NULL) {                                 \
            fail_msg("%s: status %#x: %s", #_run, (unsigned)status_, text_); \
        }                                                                    \
    } while (0)

/* A second process, forked before either has loaded the runtime. It runs `run` with its end of a
 * connection. @return the other end */
static inline int start_peer(void (*run)(int socket), pid_t *pid)
{
    int fds[2];

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) == 0);
    *pid = fork();
    CHECK(*pid >= 0);
    if (*pid == 0) {
        close(fds[0]);
        alarm(60);
        run(fds[1]);
        _exit(0);
    }
    close(fds[1]);
    return fds[0];
}

static inline void end_peer(int socket, pid_t pid)
{
    int status;

    close(socket);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_IS(status, 0);
}

static inline void tell(int socket, const void *data, size_t size)
{
    CHECK_IS(send(socket, data, size, 0), size);
}

static inline void hear(int socket, void *data, size_t size)
{
    CHECK_IS(recv(socket, data, size, 0), size);
}

/* Until the other tells, or has gone. */
static inline void await(int socket)
{
    char byte;

    (void)!recv(socket, &byte, 1, 0);
}

#endif
