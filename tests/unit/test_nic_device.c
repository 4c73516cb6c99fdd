/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The nic provider's dealings with a device that fails, is silent, or says odd things, without one
 * (nic_fake.h): nothing waits for a device that doesn't answer, and who used it is told, once.
 */
#include "nic_fake.h"

#include <angara/angara.h>
#include <angara/angara_fast.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OTHERS 3

/* A domain, its PE and some peers on another node. */
typedef struct {
    angara_domain_h       dom;
    angara_pe_h           pe;
    angara_peer_h         peer[OTHERS];
    angara_marker_slot_t *slot;
} life_t;

/* Addresses of PEs of other nodes are made by a PE of this process that says it is on that node. */
static void make_addresses(angara_address_t *addresses)
{
    const angara_pe_params_t params = {.size = sizeof(params), .window_size = 8192};
    angara_domain_h          dom;
    angara_pe_h              pe;

    for (unsigned i = 0; i < OTHERS; ++i) {
        nic_fake.info.node = 100 + i;
        assert_int_equal(angara_open("angara0", &dom), ANGARA_OK);
        assert_int_equal(angara_pe_create(dom, &params, &pe), ANGARA_OK);
        angara_pe_address(pe, &addresses[i]);
        angara_pe_destroy(pe);
        assert_int_equal(angara_close(dom), ANGARA_OK);
    }
    nic_fake.info.node = 5;
}

static void life_begin(life_t *life)
{
    const angara_pe_params_t params = {.size = sizeof(params), .window_size = 8192};
    angara_address_t         addresses[OTHERS];

    nic_fake_reset();
    make_addresses(addresses);
    assert_int_equal(angara_open("angara0", &life->dom), ANGARA_OK);
    assert_int_equal(angara_pe_create(life->dom, &params, &life->pe), ANGARA_OK);
    assert_int_equal(angara_marker_slot_get(life->pe, &life->slot), ANGARA_OK);
    for (unsigned i = 0; i < OTHERS; ++i) {
        assert_int_equal(angara_peer_connect(life->pe, &addresses[i], &life->peer[i]), ANGARA_OK);
    }
    nic_fake_forget_log();
}

static void life_end(life_t *life)
{
    angara_pe_destroy(life->pe);
    assert_int_equal(angara_close(life->dom), ANGARA_OK);
}

/* The record that is about a peer: entries of the pair table are given out from 1 on. */
static struct angara_event_record about(unsigned peer, uint32_t type, int32_t status)
{
    return (struct angara_event_record){
        .type = type, .node = 100 + peer, .pe = 3, .generation = 9, .pair = peer, .status = status};
}

static angara_status_t poll_event(life_t *life, angara_event_t *event)
{
    return angara_pe_event_poll(life->pe, event);
}

/* ---- a device that fails --------------------------------------------------------------------- */

/* @return how many peers are reported down, and nothing else is */
static unsigned count_down(life_t *life)
{
    unsigned       told = 0;
    angara_event_t event;

    while (poll_event(life, &event) == ANGARA_OK) {
        assert_int_equal(event.type, ANGARA_EVENT_PEER_DOWN);
        assert_int_equal(event.status, ANGARA_ERR_PEER_DEAD);
        told++;
    }
    return told;
}

/* Every call says so at once, and every peer is reported down, once. */
static void check_dead(life_t *life, const char *text)
{
    nic_fake_forget_log();
    assert_int_equal(angara_peer_status(life->peer[1]), ANGARA_ERR_PEER_DEAD);
    assert_logged(text);
    for (unsigned i = 0; i < OTHERS; ++i) {
        assert_int_equal(angara_marker(life->peer[i], life->slot, 1000), ANGARA_ERR_PEER_DEAD);
        assert_int_equal(angara_put_u64(life->peer[i], 0, 1), ANGARA_ERR_PEER_DEAD);
        assert_int_equal(angara_notify(life->peer[i], "x", 1), ANGARA_ERR_PEER_DEAD);
        assert_int_equal(angara_offload_put_inline(life->peer[i], "x", 1, 0, 1),
                         ANGARA_ERR_PEER_DEAD);
        assert_int_equal(angara_peer_reset(life->peer[i]), ANGARA_ERR_PEER_DEAD);
    }
    assert_int_equal(angara_marker_self(life->pe, life->slot, 1000), ANGARA_ERR_PEER_DEAD);
    assert_int_equal(count_down(life), OTHERS);
    assert_int_equal(angara_pe_event_arm(life->pe), ANGARA_ERR_NO_DEVICE);
    angara_pe_event_disarm(life->pe);
}

static void test_failed(void **state)
{
    life_t life;

    (void)state;
    life_begin(&life);
    nic_fake_state(ANGARA_PE_FAILED);
    check_dead(&life, "nonsense in its rings");
    life_end(&life);
    life_begin(&life);
    nic_fake_state(ANGARA_PE_GONE);
    check_dead(&life, "gone or failed");
    life_end(&life);
}

/* It fails while somebody waits for it, with full rings behind. */
static void test_failed_under_way(void **state)
{
    angara_status_t status = ANGARA_OK;
    life_t          life;

    (void)state;
    life_begin(&life);
    nic_fake.fail_at = 1 + OTHERS; /* in the reset */
    assert_int_equal(angara_peer_reset(life.peer[0]), ANGARA_ERR_PEER_DEAD);
    check_dead(&life, "");
    life_end(&life);

    life_begin(&life);
    nic_fake.stuck = 1;
    for (unsigned i = 0; i < 1000 && status == ANGARA_OK; ++i) {
        status = angara_offload_put_inline(life.peer[0], "x", 1, 0, 1);
    }
    assert_int_equal(status, ANGARA_ERR_NO_RESOURCE);
    nic_fake_state(ANGARA_PE_GONE);
    assert_int_equal(angara_offload_put_inline(life.peer[0], "x", 1, 0, 1), ANGARA_ERR_PEER_DEAD);
    check_dead(&life, "");
    life_end(&life);
}

/* Records that the user hasn't polled are lost with the device; what they said is told. */
static void test_failed_before_told(void **state)
{
    struct angara_event_record record;
    life_t                     life;

    (void)state;
    life_begin(&life);
    for (unsigned i = 1; i < OTHERS; ++i) {
        record      = about(i, ANGARA_EV_PEER_DOWN, ANGARA_ERR_PEER_DEAD);
        record.pair = i + 1;
        nic_fake_event(&record);
    }
    angara_pe_progress(life.pe);
    assert_int_equal(angara_peer_status(life.peer[2]), ANGARA_ERR_PEER_DEAD);
    nic_fake_state(ANGARA_PE_GONE);
    check_dead(&life, "");
    life_end(&life);
}

/* It is there, but doesn't answer: whoever waits gives up, and says so. */
static void test_silent(void **state)
{
    struct angara_event_record record;
    angara_address_t           address;
    angara_peer_h              peer = NULL;
    life_t                     life;

    (void)state;
    life_begin(&life);
    angara_pe_address(life.pe, &address);
    nic_fake.stuck   = 1;
    nic_fake.jump_ns = 1000000000ull;
    assert_int_equal(angara_peer_connect(life.pe, &address, &peer), ANGARA_ERR_UNREACHABLE);
    assert_null(peer);
    assert_logged("the NIC doesn't answer");
    assert_int_equal(angara_notify(life.peer[0], "x", 1), ANGARA_ERR_UNREACHABLE);
    assert_int_equal(angara_peer_reset(life.peer[0]), ANGARA_ERR_UNREACHABLE);
    assert_int_equal(angara_pe_event_arm(life.pe), ANGARA_INPROGRESS);
    /* A peer that is given up isn't heard of again. */
    angara_peer_disconnect(life.peer[0]);
    assert_logged("they are given up");
    record      = about(0, ANGARA_EV_PEER_DOWN, ANGARA_ERR_PEER_DEAD);
    record.pair = 1;
    nic_fake_event(&record);
    assert_int_equal(count_down(&life), 0);
    nic_fake_state(ANGARA_PE_GONE);
    assert_int_equal(count_down(&life), OTHERS - 1);
    assert_int_equal(angara_pe_event_arm(life.pe), ANGARA_ERR_NO_DEVICE);
    life_end(&life);
}

/* ---- what the device says -------------------------------------------------------------------- */

static void test_notify(void **state)
{
    static const struct {
        int32_t         said;
        angara_status_t status;
    } cases[] = {{0, ANGARA_OK},
                 {ANGARA_ERR_NO_RESOURCE, ANGARA_ERR_NO_RESOURCE},
                 {ANGARA_ERR_PEER_DEAD, ANGARA_ERR_PEER_DEAD},
                 {1, ANGARA_ERR_SYSTEM},
                 {ANGARA_ERR_LAST, ANGARA_ERR_SYSTEM},
                 {INT32_MIN, ANGARA_ERR_SYSTEM}};
    life_t life;

    (void)state;
    life_begin(&life);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        nic_fake.notify_status = cases[i].said;
        assert_int_equal(angara_notify(life.peer[i % OTHERS], "hello", 5), cases[i].status);
    }
    life_end(&life);
}

/* A fault is the pair's, and only its. */
static void test_fault(void **state)
{
    struct angara_event_record record = about(1, ANGARA_EV_FAULT, ANGARA_ERR_KEY);
    angara_event_t             event;
    life_t                     life;

    (void)state;
    life_begin(&life);
    record.pair = 2; /* the second peer's entry: the first is 1, the own PE's 0 */
    nic_fake_event(&record);
    angara_pe_progress(life.pe);
    assert_int_equal(angara_peer_status(life.peer[1]), ANGARA_ERR_PAIR);
    assert_int_equal(angara_peer_status(life.peer[0]), ANGARA_OK);
    assert_int_equal(angara_marker(life.peer[1], life.slot, 1), ANGARA_ERR_PAIR);
    assert_int_equal(poll_event(&life, &event), ANGARA_OK);
    assert_int_equal(event.type, ANGARA_EVENT_FAULT);
    assert_int_equal(event.status, ANGARA_ERR_KEY);
    assert_ptr_equal(event.peer, life.peer[1]);
    assert_int_equal(angara_peer_reset(life.peer[1]), ANGARA_OK);
    assert_int_equal(angara_peer_status(life.peer[1]), ANGARA_OK);
    life_end(&life);
}

/* Records of no sense are nobody's. */
static void test_odd_events(void **state)
{
    struct angara_event_record record;
    angara_event_t             event, untouched;
    life_t                     life;

    (void)state;
    life_begin(&life);
    record      = about(0, ANGARA_EV_FAULT, ANGARA_ERR_KEY);
    record.pair = ANGARA_PAIRS_MAX;
    nic_fake_event(&record);
    record.pair = UINT32_MAX;
    nic_fake_event(&record);
    record.pair = 7; /* nobody's */
    nic_fake_event(&record);
    record.pair       = 1;
    record.generation = 8; /* the entry's owner of before */
    nic_fake_event(&record);
    record = about(0, 4711, 0);
    nic_fake_event(&record);
    memset(&event, 0x5a, sizeof(event));
    untouched = event;
    assert_int_equal(poll_event(&life, &event), ANGARA_ERR_NO_RESOURCE);
    assert_memory_equal(&event, &untouched, sizeof(event));
    record        = about(2, ANGARA_EV_NOTIFY, 0);
    record.length = UINT32_MAX;
    nic_fake_event(&record);
    assert_int_equal(poll_event(&life, &event), ANGARA_OK);
    assert_int_equal(event.type, ANGARA_EVENT_NOTIFY);
    assert_int_equal(event.len, ANGARA_NOTIFY_MAX);
    assert_ptr_equal(event.peer, life.peer[2]);
    for (unsigned i = 0; i < OTHERS; ++i) {
        assert_int_equal(angara_peer_status(life.peer[i]), ANGARA_OK);
    }
    life_end(&life);
}

/* The device says who sent a record, of a stranger too, whatever the record says. */
static void test_sender(void **state)
{
    struct angara_event_record record = about(2, ANGARA_EV_NOTIFY, 0);
    angara_event_t             event;
    life_t                     life;

    (void)state;
    life_begin(&life);
    nic_fake_event(&record);
    record.generation = 10; /* a later PE of that number: a stranger */
    nic_fake_event(&record);
    assert_int_equal(poll_event(&life, &event), ANGARA_OK);
    assert_ptr_equal(event.peer, life.peer[2]);
    assert_int_equal(event.from.node, 102);
    assert_int_equal(event.from.index, 3);
    assert_int_equal(event.from.generation, 9);
    assert_int_equal(poll_event(&life, &event), ANGARA_OK);
    assert_null(event.peer);
    assert_int_equal(event.from.node, 102);
    assert_int_equal(event.from.index, 3);
    assert_int_equal(event.from.generation, 10);
    life_end(&life);
}

/* Nobody knows whose events were lost: all pairs are in error, and it is told once. */
static void test_lost_events(void **state)
{
    angara_event_t event;
    life_t         life;

    (void)state;
    life_begin(&life);
    nic_fake_lost(3);
    assert_int_equal(poll_event(&life, &event), ANGARA_OK);
    assert_int_equal(event.type, ANGARA_EVENT_OVERFLOW);
    assert_int_equal(poll_event(&life, &event), ANGARA_ERR_NO_RESOURCE);
    for (unsigned i = 0; i < OTHERS; ++i) {
        assert_int_equal(angara_peer_status(life.peer[i]), ANGARA_ERR_PAIR);
        assert_int_equal(angara_peer_reset(life.peer[i]), ANGARA_OK);
    }
    assert_int_equal(angara_marker(life.peer[0], life.slot, 1), ANGARA_OK);
    life_end(&life);
}

/* ---- what the device is never asked for ------------------------------------------------------ */

/* Lengths above what it can do are refused by the call; the largest are taken. */
static void test_limits(void **state)
{
    static char   memory[(1 << 20) + 1];
    angara_xfer_t xfers[2];
    angara_attr_t attr;
    angara_mr_h   mr;
    unsigned      posted, ops;
    life_t        life;

    (void)state;
    life_begin(&life);
    assert_int_equal(angara_query(life.dom, &attr), ANGARA_OK);
    assert_int_equal(attr.offload_max, 1 << 20);
    assert_int_equal(angara_mr_register(life.dom, memory, sizeof(memory), 0, &mr), ANGARA_OK);
    assert_int_equal(angara_put(life.peer[0], 0, memory, attr.put_max + 1), ANGARA_ERR_INVALID);
    assert_int_equal(angara_put_flag(life.peer[0], 8, memory, attr.put_max + 1, 0, 1),
                     ANGARA_ERR_INVALID);
    assert_int_equal(angara_offload_put_inline(life.peer[0], memory, 1, 0, attr.inline_max + 1),
                     ANGARA_ERR_INVALID);
    assert_int_equal(angara_offload_put(life.peer[0], mr, memory, 1, 0, attr.offload_max + 1),
                     ANGARA_ERR_INVALID);
    assert_int_equal(angara_offload_get(life.peer[0], mr, memory, 1, 0, attr.offload_max + 1),
                     ANGARA_ERR_INVALID);
    xfers[0] = (angara_xfer_t){mr, memory, 1, 0, attr.offload_max};
    xfers[1] = (angara_xfer_t){mr, memory, 1, 0, attr.offload_max + 1};
    assert_int_equal(angara_offload_batch(life.peer[0], ANGARA_BATCH_GET, xfers + 1, 1, &posted),
                     ANGARA_ERR_INVALID);
    assert_int_equal(posted, 0);
    ops = nic_fake.data_ops;
    assert_int_equal(angara_offload_batch(life.peer[0], ANGARA_BATCH_PUT, xfers, 2, &posted),
                     ANGARA_ERR_INVALID);
    assert_int_equal(posted, 1);
    assert_int_equal(angara_put(life.peer[0], 0, memory, attr.put_max), ANGARA_OK);
    assert_int_equal(angara_peer_reset(life.peer[0]), ANGARA_OK); /* all before it was fetched */
    assert_int_equal(nic_fake.data_ops - ops, 1);
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
    life_end(&life);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failed),
        cmocka_unit_test(test_failed_under_way),
        cmocka_unit_test(test_failed_before_told),
        cmocka_unit_test(test_silent),
        cmocka_unit_test(test_notify),
        cmocka_unit_test(test_fault),
        cmocka_unit_test(test_odd_events),
        cmocka_unit_test(test_sender),
        cmocka_unit_test(test_lost_events),
        cmocka_unit_test(test_limits),
    };

    return cmocka_run_group_tests_name("nic_device", tests, NULL, NULL);
}
