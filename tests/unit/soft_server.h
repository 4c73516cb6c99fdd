/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Another process with PEs on the soft fabric and private memory, which makes no progress but by
 * its helper: a peer that can be stopped or killed. Include cmocka.h before this.
 */
#ifndef ANGARA_TESTS_SOFT_SERVER_H
#define ANGARA_TESTS_SOFT_SERVER_H

#include <angara/angara.h>

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SERVER_SIZE 4096u /* of its memory and of each window */
#define SERVER_PES  20u   /* most that it can have */

typedef struct {
    uint64_t         key; /* of its memory */
    angara_address_t address[SERVER_PES];
} server_offer_t;

typedef struct {
    pid_t          pid;
    int            fd; /* it ends when this is closed */
    server_offer_t offer;
    angara_peer_h  peer[SERVER_PES]; /* the test's own */
} server_t;

static inline void server_main(int fd, unsigned pes)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = SERVER_SIZE};
    static uint64_t    memory[SERVER_SIZE / 8];
    server_offer_t     offer = {0};
    angara_domain_h    dom;
    angara_pe_h        pe;
    angara_mr_h        mr;
    char               byte;

    if (angara_open("soft", &dom) != ANGARA_OK ||
        angara_mr_register(dom, memory, SERVER_SIZE, ANGARA_ACCESS_ALL, &mr) != ANGARA_OK) {
        _exit(1);
    }
    offer.key = angara_mr_key(mr);
    for (unsigned i = 0; i < pes; ++i) {
        if (angara_pe_create(dom, &params, &pe) != ANGARA_OK) {
            _exit(1);
        }
        angara_pe_address(pe, &offer.address[i]);
    }
    if (write(fd, &offer, sizeof(offer)) != (ssize_t)sizeof(offer)) {
        _exit(1);
    }
    _exit(read(fd, &byte, 1) != 0);
}

static inline void server_start(server_t *server, unsigned pes)
{
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    server->pid = fork();
    if (server->pid == 0) {
        close(fds[0]);
        server_main(fds[1], pes);
    }
    close(fds[1]);
    server->fd = fds[0];
    assert_int_equal(read(server->fd, &server->offer, sizeof(server->offer)),
                     sizeof(server->offer));
}

static inline void server_stop(const server_t *server)
{
    int status;

    assert_int_equal(kill(server->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(server->pid, &status, WUNTRACED), server->pid);
    assert_true(WIFSTOPPED(status));
}

static inline void server_end(server_t *server)
{
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    close(server->fd);
}

#endif
