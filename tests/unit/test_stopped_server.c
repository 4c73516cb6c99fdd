/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers that are stopped while this process has asked them for something: atomics on private
 * memory, which only their own process may perform. Others go on, and what ends a pair ends.
 */
#define _GNU_SOURCE
#include "../common/clock.h"
#include "soft.h"
#include "soft_server.h"

#include "src/config.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE SERVER_SIZE
#define PES  SERVER_PES

static struct {
    angara_domain_h       dom;
    angara_pe_h           pe;
    angara_marker_slot_t *slot;
    uint64_t              value;
    server_t              stopped, alive;
} f;

static int setup(void **state)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = SIZE};

    (void)state;
    memset(&f, 0, sizeof(f));
    server_start(&f.stopped, PES);
    server_start(&f.alive, PES);
    assert_int_equal(angara_open("soft", &f.dom), ANGARA_OK);
    assert_int_equal(angara_pe_create(f.dom, &params, &f.pe), ANGARA_OK);
    assert_int_equal(angara_marker_slot_get(f.pe, &f.slot), ANGARA_OK);
    f.value = *f.slot;
    for (unsigned i = 0; i < PES; ++i) {
        assert_int_equal(angara_peer_connect(f.pe, &f.stopped.offer.address[i], &f.stopped.peer[i]),
                         ANGARA_OK);
        assert_int_equal(angara_peer_connect(f.pe, &f.alive.offer.address[i], &f.alive.peer[i]),
                         ANGARA_OK);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (f.pe != NULL) {
        angara_pe_destroy(f.pe);
    }
    server_end(&f.stopped);
    server_end(&f.alive);
    return angara_close(f.dom) == ANGARA_OK ? 0 : -1;
}

static angara_status_t add(const server_t *server, unsigned i)
{
    return angara_atomic(server->peer[i], ANGARA_ATOMIC_ADD, 8, 1, 0, server->offer.key, 0, NULL,
                         NULL);
}

static void assert_add_done(const server_t *server, unsigned i)
{
    uint64_t value = ++f.value;
    double   limit = deadline_in(50);

    assert_int_equal(add(server, i), ANGARA_OK);
    assert_int_equal(angara_marker(server->peer[i], f.slot, value), ANGARA_OK);
    while (*f.slot != value && now_seconds() < limit) {
        angara_pe_progress(f.pe);
    }
    assert_true(*f.slot == value);
}

static soft_service_t *service_of(const server_t *server, unsigned i)
{
    soft_remote_t *remote = &soft_peer(server->peer[i])->remote;

    return (soft_service_t *)(void *)((char *)remote->seg + remote->layout.service);
}

/* The slot of the request that is under way to that one. */
static soft_slot_t *slot_of(const server_t *server, unsigned i)
{
    return &service_of(server, i)->slots[soft_peer(server->peer[i])->agent];
}

/* As if the process had been stopped while it was at the request, or had ended it. */
static void set_phase(const server_t *server, unsigned i, soft_phase_t phase)
{
    soft_slot_t *slot = slot_of(server, i);

    slot->state = soft_state_to(slot->state, phase);
}

/* Many pairs wait for ever; the others' atomics are performed. */
static void test_others_go_on(void **state)
{
    (void)state;
    server_stop(&f.stopped);
    for (unsigned i = 0; i < PES; ++i) {
        assert_int_equal(add(&f.stopped, i), ANGARA_OK);
    }
    for (unsigned i = 0; i < PES; ++i) {
        assert_add_done(&f.alive, i);
    }
    /* And when it goes on, so do the requests that were taken back. */
    assert_int_equal(kill(f.stopped.pid, SIGCONT), 0);
    for (unsigned i = 0; i < PES; ++i) {
        assert_add_done(&f.stopped, i);
    }
}

/* What the peer hasn't begun is dropped at once, though it can't say so. */
static void test_reset_not_begun(void **state)
{
    (void)state;
    server_stop(&f.stopped);
    assert_int_equal(add(&f.stopped, 0), ANGARA_OK);
    assert_int_equal(angara_peer_reset(f.stopped.peer[0]), ANGARA_OK);
    assert_int_equal(soft_peer(f.stopped.peer[0])->agent, -1);
}

static void test_reset_busy(void **state)
{
    angara_peer_h peer = f.stopped.peer[0];

    (void)state;
    server_stop(&f.stopped);
    assert_int_equal(add(&f.stopped, 0), ANGARA_OK);
    set_phase(&f.stopped, 0, SOFT_SERVING);
    assert_int_equal(angara_peer_reset(peer), ANGARA_ERR_BUSY);
    assert_int_equal(angara_peer_status(peer), ANGARA_ERR_PAIR);
    assert_int_equal(add(&f.stopped, 0), ANGARA_ERR_PAIR);
    assert_int_equal(angara_peer_reset(peer), ANGARA_ERR_BUSY);
    set_phase(&f.stopped, 0, SOFT_DONE);
    assert_int_equal(angara_peer_reset(peer), ANGARA_OK);
    assert_int_equal(angara_peer_status(peer), ANGARA_OK);
}

/* Disconnecting ends; the slot isn't used again before the peer has ended what it was at. */
static void test_disconnect(void **state)
{
    soft_slot_t *slot;

    (void)state;
    server_stop(&f.stopped);
    for (unsigned i = 0; i < PES; ++i) {
        assert_int_equal(add(&f.stopped, i), ANGARA_OK);
    }
    set_phase(&f.stopped, 0, SOFT_SERVING);
    slot = slot_of(&f.stopped, 0);
    for (unsigned i = 1; i < PES; ++i) {
        angara_peer_disconnect(f.stopped.peer[i]);
    }
    /* The last look at the slot: the pair's mapping goes with it. */
    assert_int_equal(soft_state_phase(slot->state), SOFT_SERVING);
    angara_peer_disconnect(f.stopped.peer[0]);
    assert_add_done(&f.alive, 0);
}

/* The end of a PE waits for all of them at once. */
static void test_destroy(void **state)
{
    (void)state;
    server_stop(&f.stopped);
    for (unsigned i = 0; i < PES; ++i) {
        assert_int_equal(add(&f.stopped, i), ANGARA_OK);
    }
    for (unsigned i = 0; i < PES; ++i) {
        set_phase(&f.stopped, i, SOFT_SERVING);
    }
    angara_pe_destroy(f.pe);
    f.pe = NULL;
}

static void wait_for_sleep(const soft_service_t *service)
{
    double limit = deadline_in(50);

    while (__atomic_load_n(&service->helper, __ATOMIC_SEQ_CST) != SOFT_HELPER_SLEEPS) {
        assert_true(now_seconds() < limit);
        sleep_ms(1);
    }
}

/* Whether there is a helper, and whether it sleeps, is said by each PE of the process. */
static void test_helper_told(void **state)
{
    const soft_service_t *own = soft_pe(f.pe)->service;
    angara_pe_h           other;

    (void)state;
    assert_add_done(&f.alive, 0); /* by its helper */
    for (unsigned i = 0; i < PES; ++i) {
        wait_for_sleep(service_of(&f.alive, i));
    }
    if (!soft_helper_runs()) {
        assert_int_equal(own->helper, SOFT_HELPER_NONE);
    }
    soft_helper_start();
    wait_for_sleep(own);
    assert_int_equal(angara_pe_create(f.dom, NULL, &other), ANGARA_OK);
    assert_int_not_equal(soft_pe(other)->service->helper, SOFT_HELPER_NONE);
    wait_for_sleep(soft_pe(other)->service);
    angara_pe_destroy(other);
}

#define TEST(_name) cmocka_unit_test_setup_teardown(_name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_others_go_on), TEST(test_reset_not_begun), TEST(test_reset_busy),
        TEST(test_disconnect),   TEST(test_destroy),         TEST(test_helper_told),
    };

    setenv("ANGARA_PEER_WAIT", "600", 1);
    return cmocka_run_group_tests_name("stopped_server", tests, NULL, NULL);
}
