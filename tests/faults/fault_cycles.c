/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connects and disconnects again and again, in two processes that use only libangara, and checks
 * that neither gathers descriptors, mappings or memory. See usage().
 */
#define _GNU_SOURCE
#include "fault_common.h"
#include "fault_link.h"

#include <angara/angara.h>
#include <angara/angara_fast.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE      65536
#define SECONDS   (10 * test_slow()) /* that any single wait may take */
#define SLACK_KIB 2048               /* that the allocator may keep */

typedef struct {
    angara_address_t address;
    uint64_t         key;
} card_t;

/* Everything that one cycle makes and takes apart. */
typedef struct {
    angara_domain_h       dom;
    angara_pe_h           pe;
    angara_peer_h         peer;
    angara_mr_h           mr;
    angara_marker_slot_t *slot;
    card_t                theirs;
} node_t;

static char data[2 * SIZE]; /* the first half is written by the other process */

static void usage(void)
{
    puts(
        "Usage: fault_cycles [CYCLES [KILLS]]\n"
        "CYCLES times both processes connect, put and disconnect; the second makes a domain and a\n"
        "PE anew each time (500). Then KILLS processes more are connected to and die (20).");
}

static void check(angara_status_t status, const char *what)
{
    if (status != ANGARA_OK) {
        fault_end(FAULT_REFUSED, "%s: %s", what, angara_strerror(status));
    }
}

static void compare(const char *who, fault_usage_t before)
{
    fault_usage_check(who, before, (fault_usage_t){.maps = 4, .resident_kib = SLACK_KIB});
}

static void node_open(node_t *node)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = SIZE, .events = 16};

    check(angara_open(NULL, &node->dom), "angara_open");
    check(angara_pe_create(node->dom, &params, &node->pe), "angara_pe_create");
    check(angara_pe_window_commit(node->pe, 0, SIZE), "angara_pe_window_commit");
    check(angara_mr_register(node->dom, data, sizeof(data), ANGARA_ACCESS_ALL, &node->mr),
          "angara_mr_register");
}

static void node_close(node_t *node)
{
    check(angara_mr_deregister(node->mr), "angara_mr_deregister");
    angara_pe_destroy(node->pe);
    check(angara_close(node->dom), "angara_close");
}

static void node_connect(node_t *node)
{
    card_t mine;

    angara_pe_address(node->pe, &mine.address);
    mine.key = angara_mr_key(node->mr);
    fault_tell(&mine, sizeof(mine));
    fault_hear(&node->theirs, sizeof(node->theirs));
    check(angara_peer_connect(node->pe, &node->theirs.address, &node->peer), "angara_peer_connect");
    check(angara_marker_slot_get(node->pe, &node->slot), "angara_marker_slot_get");
}

static void node_disconnect(node_t *node)
{
    angara_marker_slot_put(node->pe, node->slot);
    angara_peer_disconnect(node->peer);
}

static void node_transfer(node_t *node, uint64_t key)
{
    uint64_t value = *node->slot + 1;
    double   end   = now_seconds() + SECONDS;

    data_fill(data + SIZE, SIZE, key);
    check(angara_offload_put(node->peer, node->mr, data + SIZE, node->theirs.key, 0, SIZE),
          "angara_offload_put");
    check(angara_marker(node->peer, node->slot, value), "angara_marker");
    while (!angara_marker_arrived(node->slot, value)) {
        angara_pe_progress(node->pe);
        sched_yield();
        if (now_seconds() > end) {
            fault_end(FAULT_LATE, "a marker never came");
        }
    }
}

static void node_verify(uint64_t key)
{
    if (data_difference(data, SIZE, key) != SIZE) {
        fault_end(FAULT_WRONG, "wrong data in cycle %llu", (unsigned long long)key);
    }
}

static void cycle_begin(node_t *node, uint64_t key)
{
    node_connect(node);
    fault_barrier();
    node_transfer(node, key);
    fault_barrier();
    node_verify(key);
}

static void cycle_end(node_t *node)
{
    node_disconnect(node);
    fault_barrier();
}

/* The second process: everything anew in each cycle. */
static void second(unsigned cycles)
{
    node_t        node;
    fault_usage_t before = {0, 0, 0};

    for (unsigned i = 0; i < cycles; ++i) {
        if (i == cycles / 4) {
            before = fault_usage();
        }
        node_open(&node);
        cycle_begin(&node, i);
        cycle_end(&node);
        node_close(&node);
    }
    compare("who opens and closes", before);
}

/* A process that connects, sends and is killed. */
static void victim(void)
{
    node_t node;

    node_open(&node);
    node_connect(&node);
    fault_barrier();
    fault_kill_self_after(2000);
    for (uint64_t i = 0;; ++i) {
        node_transfer(&node, i);
    }
}

/* Start a victim, or with a number of cycles the second process. */
static pid_t start(unsigned cycles)
{
    pid_t pid = fault_link_fork();

    if (pid == 0) {
        if (cycles == 0) {
            victim();
        }
        second(cycles);
        fault_end(FAULT_OK, "ok");
    }
    return pid;
}

/*
 * The first process compares what it uses in the middle of cycles, with one peer: the helper keeps
 * whom it has answered until it is asked again. By then it has been asked since the last peer left,
 * and has dropped that or is about to.
 */
static void compare_connected(const char *who, fault_usage_t before)
{
    double end = now_seconds() + SECONDS;

    while (fault_count_fds() > before.fds && now_seconds() < end) {
        sched_yield();
    }
    compare(who, before);
}

/* Of the cycles looked at, the one in which the helper had dropped the last peer already. */
static void note_least(fault_usage_t *before)
{
    fault_usage_t usage = fault_usage();

    if (before->fds == 0 || usage.fds < before->fds) {
        *before = usage;
    }
}

/* The first process, with a second one. */
static void first(node_t *node, unsigned cycles, fault_usage_t *before, const char *who)
{
    pid_t pid = start(cycles);

    for (unsigned i = 0; i < cycles; ++i) {
        cycle_begin(node, i);
        if (i >= cycles / 4 && i < cycles / 2) {
            note_least(before);
        }
        if (i == cycles - 1) {
            compare_connected(who, *before);
        }
        cycle_end(node);
    }
    if (fault_link_wait(pid) != FAULT_OK) {
        fault_end(FAULT_WRONG, "the second process failed");
    }
}

static void lose_one(node_t *node)
{
    pid_t  pid = start(0);
    double end = now_seconds() + SECONDS;

    node_connect(node);
    fault_barrier();
    while (angara_peer_status(node->peer) == ANGARA_OK) {
        angara_pe_progress(node->pe);
        if (now_seconds() > end) {
            fault_end(FAULT_LATE, "the death of a peer was never seen");
        }
    }
    node_disconnect(node);
    if (fault_link_wait(pid) != 128 + 9) {
        fault_end(FAULT_HARNESS, "the victim wasn't killed");
    }
}

int main(int argc, char **argv)
{
    unsigned      cycles = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 500;
    unsigned      kills  = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 20;
    fault_usage_t before = {0, 0, 0};
    node_t        node;

    if (cycles < 4) {
        usage();
        return FAULT_HARNESS;
    }
    fault_watchdog(60);
    node_open(&node);
    first(&node, cycles, &before, "who stays");
    for (unsigned i = 0; i < kills; ++i) {
        lose_one(&node);
    }
    first(&node, 4, &before, "who survives");
    node_close(&node);
    fault_end(FAULT_OK, "ok");
}
