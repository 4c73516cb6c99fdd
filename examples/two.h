/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the examples share: two processes on this host, each with a domain and a PE, connected to
 * the other one. Programs of several hosts exchange addresses by what started them: MPI, Slurm, a
 * socket.
 */
#ifndef EXAMPLES_TWO_H
#define EXAMPLES_TWO_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <angara/angara.h>
#include <angara/angara_fast.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The library has logged why. */
#define MUST(_call)                                                                       \
    do {                                                                                  \
        angara_status_t status_ = (_call);                                                \
        if (status_ != ANGARA_OK) {                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, angara_strerror(status_)); \
            exit(EXIT_FAILURE);                                                           \
        }                                                                                 \
    } while (0)

typedef struct {
    int             number; /* 0 or 1 */
    pid_t           child;  /* of process 0 */
    int             socket; /* to the other process: for addresses and keys */
    angara_domain_h dom;
    angara_pe_h     pe;
    angara_peer_h   peer; /* the other process's PE */
} two_t;

/*
 * Send size bytes to the other process, and receive as many of its own. A barrier, too. What was
 * posted goes on meanwhile, where the CPU has to see to that.
 */
static inline void two_exchange(const two_t *two, const void *mine, void *theirs, size_t size)
{
    ssize_t num = send(two->socket, mine, size, MSG_NOSIGNAL);
    size_t  got = 0;

    while (num != 0 && (num > 0 || errno == EAGAIN) && got < size) {
        if (two->pe != NULL) {
            angara_pe_progress(two->pe);
        }
        num = recv(two->socket, (char *)theirs + got, size - got, MSG_DONTWAIT);
        got += num > 0 ? (size_t)num : 0;
    }
    if (got < size) {
        fprintf(stderr, "the other process has ended\n");
        exit(EXIT_FAILURE);
    }
}

static inline void two_barrier(const two_t *two)
{
    char mine = 0, theirs;

    two_exchange(two, &mine, &theirs, 1);
}

/* Everything of libangara's is made after the fork: a child can't use what its parent has. */
static inline void two_start(two_t *two, size_t window_size)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = window_size};
    angara_address_t   mine, theirs;
    int                sockets[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || (two->child = fork()) < 0) {
        perror("two processes");
        exit(EXIT_FAILURE);
    }
    two->pe     = NULL;
    two->number = two->child == 0;
    two->socket = sockets[two->number];
    close(sockets[!two->number]);

    MUST(angara_open(NULL, &two->dom)); /* the device that ANGARA_DEVICE says */
    MUST(angara_pe_create(two->dom, &params, &two->pe));
    if (window_size != 0) {
        MUST(angara_pe_window_commit(two->pe, 0, window_size));
    }
    angara_pe_address(two->pe, &mine);
    two_exchange(two, &mine, &theirs, sizeof(mine));
    MUST(angara_peer_connect(two->pe, &theirs, &two->peer));
}

/* A turn of a loop that waits for the peer: it may have died, or an operation may have faulted. */
static inline void two_turn(const two_t *two)
{
    angara_pe_progress(two->pe);
    MUST(angara_peer_status(two->peer));
}

/* Neither goes before the other has read what it was sent. */
static inline void two_end(two_t *two)
{
    int status = 0;

    two_barrier(two);
    angara_peer_disconnect(two->peer);
    angara_pe_destroy(two->pe);
    angara_close(two->dom);
    close(two->socket);
    if (two->number == 0 && (waitpid(two->child, &status, 0) != two->child || status != 0)) {
        exit(EXIT_FAILURE);
    }
}

#endif
