/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A target that answers only when it is told to: a process that can't start its helper thread
 * (no_threads.h), and makes a turn of progress for each byte that it is sent; and a pair to it.
 */
#ifndef ANGARA_TESTS_SILENT_TARGET_H
#define ANGARA_TESTS_SILENT_TARGET_H

#include "../common/clock.h"
#include "agent.h"
#include "no_threads.h"
#include "soft.h"

#include "src/log.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ANSWER_MS 300u
#define LONG_MS   60000u /* for what must come */

/* Of the target: more than the longest that has a pace of its own. */
#define TARGET_BYTES ((SOFT_PACED << SOFT_PACES) + 8)

typedef struct {
    angara_address_t address;
    uint64_t         key;
} hello_t;

static struct {
    pid_t                 pid;
    int                   sock;
    hello_t               hello;
    angara_domain_h       dom;
    angara_pe_h           pe;
    angara_peer_h         peer;
    angara_marker_slot_t *slot;
    uint64_t              value; /* of the last marker */
} f;

/* Each byte of the socket is answered after a turn of progress. */
static inline void target_main(int sock)
{
    static uint64_t memory[TARGET_BYTES / 8];
    angara_domain_h dom;
    angara_pe_h     pe;
    angara_mr_h     mr;
    hello_t         hello;
    char            byte;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    no_threads    = 1;
    ang_log_level = ANG_LOG_ERROR;
    memset(&hello, 0, sizeof(hello));
    if ((angara_open("soft", &dom) != ANGARA_OK) ||
        (angara_pe_create(dom, NULL, &pe) != ANGARA_OK) ||
        (angara_mr_register(dom, memory, sizeof(memory), ANGARA_ACCESS_ALL, &mr) != ANGARA_OK)) {
        _exit(1);
    }
    angara_pe_address(pe, &hello.address);
    hello.key = angara_mr_key(mr);
    if (write(sock, &hello, sizeof(hello)) != sizeof(hello)) {
        _exit(1);
    }
    while (read(sock, &byte, 1) == 1) {
        angara_pe_progress(pe);
        if (write(sock, &byte, 1) != 1) {
            break;
        }
    }
    _exit(0);
}

static inline int setup(void **state)
{
    int socks[2];

    (void)state;
    memset(&f, 0, sizeof(f));
    setenv("ANGARA_SOFT_ANSWER", "300", 1);
    setenv("ANGARA_PEER_WAIT", "300", 1);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, socks) != 0) {
        return -1;
    }
    f.pid = fork();
    if (f.pid == 0) {
        close(socks[0]);
        target_main(socks[1]);
    }
    close(socks[1]);
    f.sock        = socks[0];
    ang_log_level = ANG_LOG_ERROR;
    return ((f.pid > 0) &&
            (recv(f.sock, &f.hello, sizeof(f.hello), MSG_WAITALL) == sizeof(f.hello)) &&
            (angara_open("soft", &f.dom) == ANGARA_OK) &&
            (angara_pe_create(f.dom, NULL, &f.pe) == ANGARA_OK) &&
            (angara_peer_connect(f.pe, &f.hello.address, &f.peer) == ANGARA_OK) &&
            (angara_marker_slot_get(f.pe, &f.slot) == ANGARA_OK)) ?
               0 :
               -1;
}

static inline int teardown(void **state)
{
    (void)state;
    kill(f.pid, SIGKILL);
    close(f.sock);
    waitpid(f.pid, NULL, 0);
    angara_pe_destroy(f.pe);
    return (angara_close(f.dom) == ANGARA_OK) ? 0 : -1;
}

/* ---- steps --------------------------------------------------------------------------------- */

static inline soft_service_t *service(void)
{
    const soft_remote_t *remote = &soft_peer(f.peer)->remote;

    return (soft_service_t *)((char *)remote->seg + remote->layout.service);
}

static inline void post(void)
{
    assert_int_equal(angara_atomic(f.peer, ANGARA_ATOMIC_ADD, 8, 1, 0, f.hello.key, 0, NULL, NULL),
                     ANGARA_OK);
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
}

/* The target makes progress. */
static inline void let_progress(void)
{
    char byte = 0;

    assert_int_equal(write(f.sock, &byte, 1), 1);
    assert_int_equal(read(f.sock, &byte, 1), 1);
}

static inline void assert_fault(const angara_event_t *event)
{
    assert_int_equal(event->type, ANGARA_EVENT_FAULT);
    assert_int_equal(event->status, ANGARA_ERR_UNREACHABLE);
    assert_int_not_equal(*f.slot, f.value);
    assert_int_equal(angara_peer_status(f.peer), ANGARA_ERR_PAIR);
}

static inline void wait_for_fault(void)
{
    angara_event_t event;

    for (unsigned i = 0; i < LONG_MS; ++i) {
        angara_pe_progress(f.pe);
        if (angara_pe_event_poll(f.pe, &event) == ANGARA_OK) {
            assert_fault(&event);
            return;
        }
        sleep_ms(1);
    }
    fail_msg("the request waits for ever");
}

/* Until the marker behind the request has come. */
static inline void wait_for_answer(void)
{
    angara_event_t event;

    for (unsigned i = 0; (*f.slot != f.value) && (i < LONG_MS); ++i) {
        let_progress();
        angara_pe_progress(f.pe);
        assert_int_equal(angara_pe_event_poll(f.pe, &event), ANGARA_ERR_NO_RESOURCE);
        sleep_ms(1);
    }
    assert_int_equal(*f.slot, f.value);
}

#define TEST(_name) cmocka_unit_test_setup_teardown(_name, setup, teardown)

#endif
