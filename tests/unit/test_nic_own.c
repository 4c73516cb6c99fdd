/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The nic provider's operations on the own PE, which the CPU performs in pieces: bounds of a turn,
 * order, what ends them early. Without a device (nic_fake.h): it only stores markers.
 */
#include "nic_fake.h"

#include <angara/angara.h>
#include <angara/angara_fast.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TURN   8192u
#define LONG   (20 * TURN + 24)
#define PAIR   1u  /* entry of the own pair */
#define QUEUED 16u /* operations that wait: as many as the command ring has */

static struct {
    angara_domain_h       dom;
    angara_pe_h           pe;
    angara_peer_h         self;
    angara_mr_h           near, far;
    angara_marker_slot_t *slot;
    uint64_t              value;
    char                  source[LONG], target[LONG];
} f;

static int setup(void **state)
{
    const angara_pe_params_t params = {.size = sizeof(params), .window_size = 8192};
    angara_address_t         address;

    (void)state;
    nic_fake_reset();
    memset(&f, 0, sizeof(f));
    assert_int_equal(angara_open("angara0", &f.dom), ANGARA_OK);
    assert_int_equal(angara_pe_create(f.dom, &params, &f.pe), ANGARA_OK);
    assert_int_equal(angara_marker_slot_get(f.pe, &f.slot), ANGARA_OK);
    f.value = *f.slot;
    angara_pe_address(f.pe, &address);
    assert_int_equal(angara_peer_connect(f.pe, &address, &f.self), ANGARA_OK);
    assert_int_equal(angara_mr_register(f.dom, f.source, LONG, ANGARA_ACCESS_ALL, &f.near),
                     ANGARA_OK);
    assert_int_equal(angara_mr_register(f.dom, f.target, LONG, ANGARA_ACCESS_ALL, &f.far),
                     ANGARA_OK);
    memset(f.source, 7, LONG);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    angara_pe_destroy(f.pe);
    if (f.near != NULL) {
        assert_int_equal(angara_mr_deregister(f.near), ANGARA_OK);
    }
    if (f.far != NULL) {
        assert_int_equal(angara_mr_deregister(f.far), ANGARA_OK);
    }
    return angara_close(f.dom) == ANGARA_OK ? 0 : -1;
}

static uint64_t moved(void)
{
    angara_counters_t counters;

    angara_pe_counters(f.pe, &counters);
    return counters.offload_bytes;
}

static angara_status_t put(uint64_t roffset, size_t length)
{
    return angara_offload_put(f.self, f.near, f.source, angara_mr_key(f.far), roffset, length);
}

static void post_marker(void)
{
    assert_int_equal(angara_marker(f.self, f.slot, ++f.value), ANGARA_OK);
}

static unsigned wait_marker(void)
{
    uint64_t before;
    unsigned turns = 0;

    while (*f.slot != f.value) {
        before = moved();
        angara_pe_progress(f.pe);
        assert_true(moved() - before <= TURN);
        turns++;
    }
    return turns;
}

/* Pieces, in order with what is posted behind them; the last byte arrives before the marker. */
static void test_pieces(void **state)
{
    (void)state;
    assert_int_equal(put(0, LONG), ANGARA_OK);
    assert_true(moved() <= TURN);
    assert_int_equal(angara_offload_put_inline(f.self, "behind", angara_mr_key(f.far), 1, 6),
                     ANGARA_OK);
    assert_int_equal(angara_atomic(f.self, ANGARA_ATOMIC_SWAP, 8, 42, 0, angara_mr_key(f.far), 16,
                                   f.near, f.source),
                     ANGARA_OK);
    post_marker();
    assert_int_equal(angara_pe_event_arm(f.pe), ANGARA_INPROGRESS);
    angara_pe_progress(f.pe);
    assert_true(*f.slot != f.value);
    assert_true(wait_marker() >= 19);
    assert_memory_equal(f.target + 1, "behind", 6);
    assert_int_equal(f.target[LONG - 1], 7);
    assert_int_equal(f.target[16], 42);
    assert_int_equal(f.source[0], 7);
    assert_int_equal(nic_fake.data_ops, 0);
    assert_int_equal(angara_pe_event_arm(f.pe), ANGARA_OK);
    angara_pe_event_disarm(f.pe);
    assert_int_equal(
        angara_offload_get(f.self, f.far, f.target, angara_mr_key(f.near), 8, LONG - 8), ANGARA_OK);
    post_marker();
    wait_marker();
    assert_memory_equal(f.target, f.source + 8, LONG - 8);
}

static void test_batch(void **state)
{
    angara_xfer_t xfers[8];
    unsigned      posted;

    (void)state;
    for (unsigned i = 0; i < 8; ++i) {
        xfers[i] = (angara_xfer_t){f.near, f.source, angara_mr_key(f.far), i * 3000u, 3000};
    }
    assert_int_equal(angara_offload_batch(f.self, ANGARA_BATCH_PUT, xfers, 8, &posted), ANGARA_OK);
    assert_int_equal(posted, 8);
    assert_true(moved() <= TURN);
    post_marker();
    wait_marker();
    assert_int_equal(moved(), 8 * 3000);
    assert_int_equal(f.target[8 * 3000 - 1], 7);
}

/* The PE's self marker covers the source, and outlives a reset of the pair. */
static void test_self_marker(void **state)
{
    (void)state;
    assert_int_equal(put(0, LONG), ANGARA_OK);
    assert_int_equal(angara_marker_self(f.pe, f.slot, ++f.value), ANGARA_OK);
    angara_pe_progress(f.pe);
    assert_true(*f.slot != f.value);
    wait_marker();
    assert_int_equal(f.target[LONG - 1], 7);
    memset(f.target, 0, LONG);
    assert_int_equal(put(0, LONG), ANGARA_OK);
    assert_int_equal(angara_marker_self(f.pe, f.slot, ++f.value), ANGARA_OK);
    angara_pe_progress(f.pe);
    assert_int_equal(angara_peer_reset(f.self), ANGARA_OK);
    wait_marker();
    assert_int_equal(f.target[0], 7);
    assert_int_equal(f.target[LONG - 1], 0);
}

/* The target's region goes between two pieces: no byte more, and the NIC tells the fault. */
static void test_gone(void **state)
{
    struct angara_event_record record = {.type       = ANGARA_EV_FAULT,
                                         .node       = 5,
                                         .pe         = 3,
                                         .generation = 9,
                                         .pair       = PAIR,
                                         .status     = ANGARA_ERR_KEY};
    uint64_t                   key    = angara_mr_key(f.far);
    angara_event_t             event;

    (void)state;
    assert_int_equal(put(0, LONG), ANGARA_OK);
    post_marker();
    angara_pe_progress(f.pe);
    assert_int_equal(angara_mr_deregister(f.far), ANGARA_OK);
    f.far = NULL;
    memset(f.target, 1, LONG);
    for (unsigned i = 0; i < 5; ++i) {
        angara_pe_progress(f.pe);
    }
    assert_null(memchr(f.target, 7, LONG));
    nic_fake_event(&record);
    assert_int_equal(angara_offload_put(f.self, f.near, f.source, key, 0, LONG), ANGARA_OK);
    angara_pe_progress(f.pe);
    assert_int_equal(angara_peer_status(f.self), ANGARA_ERR_PAIR);
    assert_int_equal(angara_offload_put(f.self, f.near, f.source, key, 0, LONG), ANGARA_ERR_PAIR);
    assert_int_equal(angara_pe_event_poll(f.pe, &event), ANGARA_OK);
    assert_int_equal(event.type, ANGARA_EVENT_FAULT);
    assert_int_equal(angara_peer_reset(f.self), ANGARA_OK);
    assert_true(nic_fake.data_ops != 0);
    assert_int_equal(angara_mr_register(f.dom, f.target, LONG, ANGARA_ACCESS_ALL, &f.far),
                     ANGARA_OK);
    assert_int_equal(put(0, LONG), ANGARA_OK);
    post_marker();
    wait_marker();
    assert_int_equal(f.target[LONG - 1], 7);
}

static void *deregister_near(void *arg)
{
    *(angara_status_t *)arg = angara_mr_deregister(f.near);
    memset(f.source, 1, LONG);
    return NULL;
}

/* What reads or writes a region that is deregistered is performed first, in whichever thread. */
static void test_deregister(void **state)
{
    angara_status_t status;
    pthread_t       thread;

    (void)state;
    for (unsigned round = 0; round < 50; ++round) {
        memset(f.target, 0, LONG);
        memset(f.source, 7, LONG);
        assert_int_equal(put(0, LONG / 2), ANGARA_OK);
        post_marker();
        assert_int_equal(put(LONG / 2, LONG / 2), ANGARA_OK);
        assert_int_equal(angara_marker_self(f.pe, f.slot, f.value + 1), ANGARA_ERR_NO_RESOURCE);
        if (round % 2 == 0) {
            deregister_near(&status);
        } else {
            assert_int_equal(pthread_create(&thread, NULL, deregister_near, &status), 0);
            while (*f.slot != f.value) { /* the other thread copies, too */
                angara_pe_progress(f.pe);
            }
            assert_int_equal(pthread_join(thread, NULL), 0);
        }
        assert_int_equal(status, ANGARA_OK);
        wait_marker();
        post_marker();
        wait_marker();
        for (unsigned i = 0; i < LONG; ++i) {
            assert_int_equal(f.target[i], 7);
        }
        assert_int_equal(angara_mr_register(f.dom, f.source, LONG, ANGARA_ACCESS_ALL, &f.near),
                         ANGARA_OK);
    }
    assert_int_equal(nic_fake.data_ops, 0);
}

/* A full queue refuses, and takes again; a disconnect lets all of it end. */
static void test_full(void **state)
{
    angara_address_t address;

    (void)state;
    for (unsigned i = 0; i < QUEUED; ++i) {
        assert_int_equal(put(i, LONG - QUEUED), ANGARA_OK);
    }
    assert_int_equal(put(0, 8), ANGARA_ERR_NO_RESOURCE);
    assert_int_equal(angara_marker(f.self, f.slot, f.value + 1), ANGARA_ERR_NO_RESOURCE);
    while (put(0, 8) == ANGARA_ERR_NO_RESOURCE) {
        angara_pe_progress(f.pe);
    }
    angara_pe_address(f.pe, &address);
    angara_peer_disconnect(f.self);
    assert_int_equal(f.target[LONG - 2], 7);
    assert_int_equal(angara_peer_connect(f.pe, &address, &f.self), ANGARA_OK);
    assert_int_equal(put(0, LONG), ANGARA_OK);
    post_marker();
    wait_marker();
}

/* The NIC's ring is full when a marker's turn comes: it waits. Then the device dies. */
static void test_device_dies(void **state)
{
    angara_status_t status = ANGARA_OK;

    (void)state;
    nic_fake.stuck = 1;
    while (status == ANGARA_OK) {
        status = angara_marker(f.self, f.slot, ++f.value);
    }
    assert_int_equal(status, ANGARA_ERR_NO_RESOURCE);
    --f.value;
    assert_int_equal(put(0, LONG), ANGARA_OK);
    post_marker();
    for (unsigned i = 0; i < 100; ++i) {
        angara_pe_progress(f.pe);
    }
    assert_int_equal(f.target[LONG - 1], 7);
    nic_fake.stuck = 0;
    wait_marker();
    nic_fake.stuck = 1;
    assert_int_equal(put(0, LONG), ANGARA_OK);
    post_marker();
    nic_fake_state(ANGARA_PE_GONE);
    assert_int_equal(angara_pe_progress(f.pe), 0);
    assert_int_equal(put(0, LONG), ANGARA_ERR_PEER_DEAD);
    assert_int_equal(angara_marker_self(f.pe, f.slot, f.value + 1), ANGARA_ERR_PEER_DEAD);
}

#define TEST(_name) cmocka_unit_test_setup_teardown(_name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_pieces),     TEST(test_batch), TEST(test_self_marker), TEST(test_gone),
        TEST(test_deregister), TEST(test_full),  TEST(test_device_dies),
    };

    setenv("ANGARA_TURN_BYTES", "8192", 1);
    return cmocka_run_group_tests_name("nic_own", tests, NULL, NULL);
}
