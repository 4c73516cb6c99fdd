/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Process numbers are used again: nothing that was meant for a dead process reaches the one that
 * has its number now, and no trace of the dead one is taken for a living process's.
 *
 * A test gives a child the number that it wants (clone3), which takes CAP_SYS_ADMIN or
 * CAP_CHECKPOINT_RESTORE.
 */
#define _GNU_SOURCE
#include "../common/clock.h"
#include "soft.h"

#include <angara/angara_fast.h>

#include <errno.h>
#include <limits.h>
#include <linux/sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE     131072u
#define HALF     (SIZE / 2ul)
#define CHECK_MS "20" /* ANGARA_PEER_CHECK */
#define LATER_MS 200u /* certainly later */

/* As fork(), but the child gets that number, which is free. @return -1 with errno. */
static pid_t fork_as(pid_t pid)
{
    struct clone_args args = {
        .exit_signal  = SIGCHLD,
        .set_tid      = (uintptr_t)&pid,
        .set_tid_size = 1,
    };

    return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

static int may_choose(void)
{
    pid_t free_pid = fork(), pid;

    if (free_pid == 0) {
        _exit(0);
    }
    waitpid(free_pid, NULL, 0);
    pid = fork_as(free_pid);
    if (pid == 0) {
        _exit(0);
    }
    return pid > 0 && waitpid(pid, NULL, 0) == pid;
}

static void read_all(int fd, void *buffer, size_t length)
{
    char   *at = buffer;
    ssize_t moved;

    for (; length != 0; at += moved, length -= (size_t)moved) {
        moved = read(fd, at, length);
        assert_true(moved > 0);
    }
}

static void reap(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void kill_and_reap(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* ---- a put to a dead peer whose number is somebody else's now ----------------------------------
 */

typedef struct {
    angara_address_t address;
    uint64_t         key[2]; /* of the private region, of the shared one */
} target_t;

enum { PUT, GET, BATCH, SHARED };

/* The peer: a region at an address where its successor has memory of its own. */
static void be_target(int fd, char *memory)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = SIZE};
    size_t             length = SIZE;
    target_t           target;
    angara_domain_h    dom;
    angara_pe_h        pe;
    angara_mr_h        mr, shared;
    void              *addr;

    if (angara_open("soft", &dom) != ANGARA_OK ||
        angara_pe_create(dom, &params, &pe) != ANGARA_OK ||
        angara_mr_register(dom, memory, SIZE, ANGARA_ACCESS_ALL, &mr) != ANGARA_OK ||
        angara_mem_alloc(dom, &length, ANGARA_ACCESS_ALL, &addr, &shared) != ANGARA_OK) {
        _exit(1);
    }
    angara_pe_address(pe, &target.address);
    target.key[0] = angara_mr_key(mr);
    target.key[1] = angara_mr_key(shared);
    if (write(fd, &target, sizeof(target)) != (ssize_t)sizeof(target)) {
        _exit(1);
    }
    for (;;) {
        pause();
    }
}

/* The successor: an unrelated program. It ends well if its memory stays as it is. */
static void be_successor(int fd, const char *memory)
{
    char byte;

    if (read(fd, &byte, 1) != 1) {
        _exit(1);
    }
    for (unsigned i = 0; i < SIZE; ++i) {
        if (memory[i] != 0x11) {
            _exit(2);
        }
    }
    _exit(0);
}

static angara_status_t access_once(angara_peer_h peer, angara_mr_h mr, char *mine,
                                   const target_t *target, int how)
{
    angara_xfer_t xfers[2];
    unsigned      posted;

    switch (how) {
    case PUT:
        return angara_offload_put(peer, mr, mine, target->key[0], 0, SIZE);
    case GET:
        return angara_offload_get(peer, mr, mine, target->key[0], 0, SIZE);
    case SHARED:
        return angara_offload_put(peer, mr, mine, target->key[1], 0, SIZE);
    default:
        for (unsigned i = 0; i < 2; ++i) {
            xfers[i] = (angara_xfer_t){mr, mine + i * HALF, target->key[0], i * HALF, HALF};
        }
        return angara_offload_batch(peer, ANGARA_BATCH_PUT, xfers, 2, &posted);
    }
}

/* The initiator makes no progress calls. Its first access to shared memory is what maps it. */
static void number_used_again(int how)
{
    char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *mine   = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    angara_pe_params_t params = {.size = sizeof(params), .window_size = SIZE};
    angara_domain_h    dom;
    angara_pe_h        pe;
    angara_peer_h      peer;
    angara_mr_h        mr;
    target_t           target;
    pid_t              pid;
    int                told[2], asked[2];

    if (!may_choose()) {
        skip();
    }
    assert_true(memory != MAP_FAILED && mine != MAP_FAILED);
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(asked), 0);
    memset(memory, 0x11, SIZE);
    pid = fork();
    if (pid == 0) {
        be_target(told[1], memory);
    }
    assert_true(pid > 0);
    read_all(told[0], &target, sizeof(target));
    assert_int_equal(angara_open("soft", &dom), ANGARA_OK);
    assert_int_equal(angara_pe_create(dom, &params, &pe), ANGARA_OK);
    assert_int_equal(angara_mr_register(dom, mine, SIZE, ANGARA_ACCESS_ALL, &mr), ANGARA_OK);
    assert_int_equal(angara_peer_connect(pe, &target.address, &peer), ANGARA_OK);
    soft_peer(peer)->agent_distrust = UINT_MAX; /* it isn't asked */
    memset(mine, 0x22, SIZE);
    if (how != SHARED) {
        assert_int_equal(access_once(peer, mr, mine, &target, how), ANGARA_OK);
    }
    memset(mine, 0x22, SIZE);

    kill_and_reap(pid);
    sleep_ms(LATER_MS);
    assert_int_equal(fork_as(pid) == 0 ? (be_successor(asked[0], memory), 0) : 0, 0);
    assert_int_not_equal(access_once(peer, mr, mine, &target, how), ANGARA_OK);
    for (unsigned i = 0; i < SIZE; ++i) {
        assert_int_equal(mine[i], 0x22);
    }
    assert_int_equal(write(asked[1], "", 1), 1);
    reap(pid);

    angara_pe_destroy(pe);
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
    assert_int_equal(angara_close(dom), ANGARA_OK);
    for (unsigned i = 0; i < 2; ++i) {
        close(told[i]);
        close(asked[i]);
    }
    munmap(memory, SIZE);
    munmap(mine, SIZE);
}

static void test_put(void **state)
{
    (void)state;
    number_used_again(PUT);
}

static void test_get(void **state)
{
    (void)state;
    number_used_again(GET);
}

static void test_batch(void **state)
{
    (void)state;
    number_used_again(BATCH);
}

static void test_shared(void **state)
{
    (void)state;
    number_used_again(SHARED);
}

/* ---- words that name a process -----------------------------------------------------------------
 */

/* A grandchild that gets its grandparent's number doesn't go by the grandparent's word. */
static void test_grandchild(void **state)
{
    int   go[2], status[2];
    char  ok = 0;
    pid_t grandparent;

    (void)state;
    if (!may_choose()) {
        skip();
    }
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(status), 0);
    grandparent = fork();
    if (grandparent == 0) {
        pid_t mine = getpid();

        if (soft_owner() == 0 || fork() != 0) {
            _exit(0);
        }
        if (read(go[0], &ok, 1) != 1 || fork_as(mine) != 0) {
            _exit(0);
        }
        ok = getpid() == mine && soft_owner_alive(soft_owner());
        _exit(write(status[1], &ok, 1) != 1);
    }
    assert_int_equal(waitpid(grandparent, NULL, 0), grandparent);
    close(status[1]);
    sleep_ms(50); /* start times are in ticks of 10 ms */
    assert_int_equal(write(go[1], "", 1), 1);
    read_all(status[0], &ok, 1);
    assert_int_equal(ok, 1);
    close(status[0]);
    close(go[0]);
    close(go[1]);
}

/*
 * A producer died between claim and ready, and its number is another's, who lives long: the ring
 * goes on.
 */
static void test_claim(void **state)
{
    enum { COUNT = 4 };

    size_t               size = soft_record_ring_size(COUNT);
    soft_record_ring_t  *ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                                     -1, 0);
    soft_record_reader_t reader = {ring, COUNT, 0, 0};
    char                 record[SOFT_RECORD_MAX];
    uint64_t             ready;
    pid_t                pid;
    int                  length = -1;
    double               end    = deadline_in(10);

    (void)state;
    if (!may_choose()) {
        skip();
    }
    assert_true(ring != MAP_FAILED);
    pid = fork();
    if (pid == 0) {
        _exit(soft_owner() == 0 || soft_record_push(ring, COUNT, "dead", 4, NULL, 0) != ANGARA_OK);
    }
    reap(pid);
    ready                = ring->slots[0].state;
    ring->slots[0].state = (ready & ~3ull) | 1; /* claimed, as it was before it was ready */
    sleep_ms(50);
    assert_int_equal(fork_as(pid) == 0 ? (pause(), _exit(0), 0) : 0, 0);
    assert_int_equal(soft_record_push(ring, COUNT, "next", 4, NULL, 0), ANGARA_OK);
    while (length < 0 && now_seconds() < end) {
        length = soft_record_pop(&reader, record);
        sleep_ms(1);
    }
    kill_and_reap(pid);
    assert_int_equal(length, 4);
    assert_memory_equal(record, "next", 4);
    munmap(ring, size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put),        cmocka_unit_test(test_get),
        cmocka_unit_test(test_batch),      cmocka_unit_test(test_shared),
        cmocka_unit_test(test_grandchild), cmocka_unit_test(test_claim),
    };

    setenv("ANGARA_PEER_CHECK", CHECK_MS, 1);
    return cmocka_run_group_tests_name("identity", tests, NULL, NULL);
}
