/* SPDX-License-Identifier: BSD-3-Clause */
/* See fault_link.h. */
#include "fault_link.h"
#include "fault_common.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void (*fault_link_idle)(void);

static int link_fd = -1;

pid_t fault_link_fork(void)
{
    int   fds[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) {
        fault_end(FAULT_HARNESS, "socketpair: %s", strerror(errno));
    }
    fflush(stdout);
    pid = fork();
    if (pid < 0) {
        fault_end(FAULT_HARNESS, "fork: %s", strerror(errno));
    }
    link_fd = fds[pid == 0];
    close(fds[pid != 0]);
    return pid;
}

int fault_link_fd(void)
{
    return link_fd;
}

void fault_link_join(int fd)
{
    link_fd = fd;
}

int fault_link_wait(pid_t pid)
{
    int status;

    close(link_fd);
    link_fd = -1;
    while (waitpid(pid, &status, 0) != pid) {
        if (errno != EINTR) {
            return FAULT_HARNESS;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void fault_tell(const void *data, size_t length)
{
    if (send(link_fd, data, length, MSG_NOSIGNAL) != (ssize_t)length) {
        fault_end(FAULT_GONE, "the other process has gone");
    }
}

void fault_hear(void *data, size_t length)
{
    char byte;

    while (fault_link_idle != NULL && recv(link_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           errno == EAGAIN) {
        fault_link_idle();
    }
    if (recv(link_fd, data, length, MSG_WAITALL) != (ssize_t)length) {
        fault_end(FAULT_GONE, "the other process has gone");
    }
}

void fault_barrier(void)
{
    char byte = 0;

    fault_tell(&byte, 1);
    fault_hear(&byte, 1);
}
