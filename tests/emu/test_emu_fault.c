/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the emulated NIC refuses, and what happens to operations when something ends under them:
 * keys, pairs, resets, invalidations, DMA off, links. An argument is the seed of chaos mode.
 */
#include "guest_net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define BIG (4u << 20) /* takes many turns */

/* ---- refused --------------------------------------------------------------------------------- */

/* One operation to the far node that must fault, move nothing, and leave the pair in error. */
static void expect_fault(net_t *net, struct angara_desc desc, region_t *target, int32_t status)
{
    struct angara_event_record event;
    uint64_t                   lost;

    desc.pair     = FAR;
    desc.pio_prod = net->a.pio_prod;
    region_fill(target, 9);
    pe_post(&net->a, &desc);
    lost = pe_mark(&net->a, ANGARA_OP_MARKER, FAR); /* may not come back */
    pe_event_wait(&net->a, &event);
    assert_int_equal(event.type, ANGARA_EV_FAULT);
    assert_int_equal(event.status, status);
    assert_int_equal(event.pair, FAR);
    assert_int_equal(event.node, 1);
    assert_int_equal(event.pe, net->b.hw.index);
    assert_int_equal(event.generation, net->b.hw.generation);
    assert_true(event.key == desc.rkey);
    pe_mark(&net->a, ANGARA_OP_MARKER, FAR); /* nor this one */
    pe_pair(&net->a, FAR, &net->b);          /* passes what was dropped */
    assert_true(net->a.marker[0] < lost);
    assert_true(region_holds(target, 0, 9, 0, target->length));
    pe_flush(&net->a, FAR);
    assert_int_equal(pe_event(&net->a, &event), 0);
}

static void test_refused(void **state)
{
    struct angara_desc put = {.op = ANGARA_OP_PUT, .length = 100}, get = put, atomic = put,
                       inl = put;
    region_t local, remote, plain, other;
    net_t    net;

    (void)state;
    net_start(&net, NULL);
    region_register(&local, &net.guests[0], DOM, 5000, ALL, 1, 12, 0);
    region_register(&remote, &net.guests[1], DOM, 5000, ALL, 1, 12, 0);
    region_register(&plain, &net.guests[1], DOM, 5000, 0, 1, 12, 0);
    region_register(&other, &net.guests[0], DOM + 1, 5000, ALL, 1, 12, 0);
    put.lkey     = local.key;
    put.rkey     = remote.key;
    get          = put;
    get.op       = ANGARA_OP_GET;
    atomic       = get;
    atomic.op    = ANGARA_OP_ATOMIC;
    atomic.width = 8;
    inl          = put;
    inl.op       = ANGARA_OP_PUT_INLINE;
    inl.lkey     = 0;
    inl.length   = 8;

#define FAULT(_desc, _field, _value, _status)          \
    do {                                               \
        struct angara_desc desc_ = _desc;              \
                                                       \
        desc_._field = (_value);                       \
        expect_fault(&net, desc_, &remote, (_status)); \
    } while (0)

    FAULT(put, rkey, remote.key ^ (1ull << 40), ANGARA_ERR_KEY);
    FAULT(put, rkey, 0, ANGARA_ERR_KEY);
    FAULT(put, rkey, ~0ull, ANGARA_ERR_KEY);
    FAULT(put, rkey, local.key, ANGARA_ERR_KEY); /* of another node */
    FAULT(put, lkey, remote.key, ANGARA_ERR_KEY);
    FAULT(put, lkey, other.key, ANGARA_ERR_KEY); /* of another domain */
    FAULT(put, length, 5001, ANGARA_ERR_BOUNDS);
    FAULT(put, roffset, 4901, ANGARA_ERR_BOUNDS);
    FAULT(put, roffset, ~0ull - 50, ANGARA_ERR_BOUNDS);
    FAULT(put, loffset, 4901, ANGARA_ERR_BOUNDS);
    FAULT(put, loffset, ~0ull - 50, ANGARA_ERR_BOUNDS);
    FAULT(put, length, ~0ull, ANGARA_ERR_BOUNDS);
    FAULT(put, rkey, plain.key, ANGARA_ERR_RIGHTS);
    FAULT(get, rkey, plain.key, ANGARA_ERR_RIGHTS);
    FAULT(get, loffset, 5000, ANGARA_ERR_BOUNDS);
    FAULT(atomic, rkey, plain.key, ANGARA_ERR_RIGHTS);
    FAULT(atomic, roffset, 4996, ANGARA_ERR_BOUNDS);
    FAULT(atomic, roffset, 4, ANGARA_ERR_BOUNDS);
    FAULT(inl, rkey, plain.key, ANGARA_ERR_RIGHTS);
    FAULT(inl, roffset, 4995, ANGARA_ERR_BOUNDS);
    region_entry(&local)->access = 0; /* no local write: not known yet, the device keeps a copy */
    region_invalidate(&local);
    region_entry(&local)->key = local.key;
    FAULT(get, roffset, 0, ANGARA_ERR_RIGHTS);
    FAULT(atomic, roffset, 0, ANGARA_ERR_RIGHTS);
    assert_int_equal(net.a.status->counters[ANGARA_CNT_FAULTS], 22);
    fabric_control(&net.fabric, "badkey 1");
    FAULT(put, roffset, 0, ANGARA_ERR_KEY);
#undef FAULT
    net_stop(&net);
}

/* Tables that make no sense are as good as none; pages that are no memory fault. */
static void test_bad_tables(void **state)
{
    struct angara_hw_mr sound;
    region_t            local, remote;
    net_t               net;

    (void)state;
    net_start(&net, NULL);
    region_register(&local, &net.guests[0], DOM, 9000, ALL, 1, 12, 0);
    region_register(&remote, &net.guests[1], DOM, 9000, ALL, 2, 12, 0);
    sound = *region_entry(&remote);

#define BAD(_field, _value, _status)                                                               \
    do {                                                                                           \
        *region_entry(&remote)        = sound;                                                     \
        region_entry(&remote)->_field = (_value);                                                  \
        pe_rma(&net.a, ANGARA_OP_PUT, FAR, &local, 0, &remote, 0, 9000);                           \
        pe_expect(&net.a, ANGARA_EV_FAULT, FAR, (_status));                                        \
        assert_int_equal(guest_admin_args(&net.guests[1], ANGARA_HW_MR_INVALIDATE, remote.key, 0), \
                         ANGARA_HW_OK);                                                            \
        pe_pair(&net.a, FAR, &net.b);                                                              \
    } while (0)

    BAD(page_shift, 11, ANGARA_ERR_KEY);
    BAD(page_shift, 64, ANGARA_ERR_KEY);
    BAD(levels, 4, ANGARA_ERR_KEY);
    BAD(first, 4096, ANGARA_ERR_KEY);
    BAD(npages, 2, ANGARA_ERR_KEY);
    BAD(npages, ~0ull, ANGARA_ERR_KEY);
    BAD(length, ~0ull, ANGARA_ERR_KEY);
    BAD(length, 0, ANGARA_ERR_KEY);
    BAD(access, 0x1f, ANGARA_ERR_KEY);
    BAD(list, 7, ANGARA_ERR_KEY);
    BAD(list, GUEST_RAM, ANGARA_ERR_SYSTEM);
    BAD(list, ~4095ull, ANGARA_ERR_SYSTEM);
    BAD(list, remote.pages[0], ANGARA_ERR_SYSTEM); /* whose words are 0 */
    region_fill(&remote, 1);
    BAD(list, remote.pages[0], ANGARA_ERR_SYSTEM); /* whose words are no page addresses */
    BAD(domain, DOM + 1, ANGARA_ERR_KEY);
#undef BAD
    net_stop(&net);
}

/* Guessing costs a millisecond a key. */
static void test_guesses(void **state)
{
    struct angara_desc desc = {.op = ANGARA_OP_PUT_INLINE, .length = 8};
    struct timespec    start, end;
    net_t              net;

    (void)state;
    net_start(&net, NULL);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (unsigned i = 0; i < 20; ++i) {
        desc.rkey = 1 + i;
        desc.pair = FAR;
        pe_post(&net.a, &desc);
        pe_expect(&net.a, ANGARA_EV_FAULT, FAR, ANGARA_ERR_KEY);
        pe_pair(&net.a, FAR, &net.b);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true((end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000 >= 18);
    net_stop(&net);
}

/* Reads from the own node need loopback; writes don't. */
static void test_loopback(void **state)
{
    struct angara_event_record event;
    region_t                   local, near;
    net_t                      net;

    (void)state;
    for (int on = 0; on < 2; ++on) {
        net_start(&net, on ? "--loopback" : NULL);
        assert_int_equal(net.guests[0].control->caps, on ? ANGARA_HW_CAP_LOOPBACK : 0);
        region_register(&local, &net.guests[0], DOM, 64, ALL, 1, 12, 0);
        region_register(&near, &net.guests[0], DOM + 1, 64, ALL, 1, 12, 0);
        region_fill(&near, 3);
        pe_rma(&net.a, ANGARA_OP_GET, NEAR, &local, 0, &near, 0, 64);
        if (on) {
            pe_atomic(&net.a, NEAR, ANGARA_ATOMIC_ADD, 8, 0, 0, &near, 0, &local, 0);
            pe_flush(&net.a, NEAR);
            assert_true(region_holds(&local, 0, 3, 0, 64));
        } else {
            pe_expect(&net.a, ANGARA_EV_FAULT, NEAR, ANGARA_ERR_UNSUPPORTED);
            pe_pair(&net.a, NEAR, &net.c);
            pe_mark(&net.a, ANGARA_OP_MARKER, NEAR);
            pe_expect(&net.a, ANGARA_EV_FAULT, NEAR, ANGARA_ERR_UNSUPPORTED);
            pe_pair(&net.a, NEAR, &net.c);
            pe_atomic(&net.a, NEAR, ANGARA_ATOMIC_ADD, 8, 0, 0, &near, 0, &local, 0);
            pe_expect(&net.a, ANGARA_EV_FAULT, NEAR, ANGARA_ERR_UNSUPPORTED);
            pe_pair(&net.a, NEAR, &net.c);
        }
        region_fill(&local, 4);
        pe_rma(&net.a, ANGARA_OP_PUT, NEAR, &local, 0, &near, 0, 64);
        pe_put_flag(&net.a, NEAR, 0, "near", 4, 8, 1);
        WAIT_FOR(region_holds(&near, 0, 4, 0, 64));
        WAIT_FOR(__atomic_load_n((uint64_t *)pe_window(&net.c, 8), __ATOMIC_ACQUIRE) == 1);
        assert_memory_equal(pe_window(&net.c, 0), "near", 4);
        assert_int_equal(pe_notify(&net.a, NEAR, "x", 1), ANGARA_OK);
        pe_event_wait(&net.c, &event);
        net_stop(&net);
    }
}

/* ---- what ends under operations -------------------------------------------------------------- */

static void test_peer_down(void **state)
{
    net_t net;
    pe_t  ghost;

    (void)state;
    net_start(&net, NULL);
    pe_pair(&net.c, 5, &net.b);
    ghost = net.b;
    pe_reset(&net.b);
    pe_expect(&net.a, ANGARA_EV_PEER_DOWN, FAR, ANGARA_OK);
    pe_expect(&net.c, ANGARA_EV_PEER_DOWN, 5, ANGARA_OK);
    assert_int_equal(pe_notify(&net.a, FAR, "x", 1), ANGARA_ERR_PEER_DEAD);
    pe_put(&net.a, FAR, 0, "x", 1); /* dropped */
    pe_pair(&net.a, FAR, &ghost);
    pe_expect(&net.a, ANGARA_EV_PEER_DOWN, FAR, ANGARA_ERR_PEER_DEAD);

    ghost.hw.index = 4000; /* never was, never will be */
    pe_pair(&net.a, FAR, &ghost);
    pe_expect(&net.a, ANGARA_EV_PEER_DOWN, FAR, ANGARA_ERR_PEER_DEAD);

    pe_create(&net.b, &net.guests[1], 3, DOM); /* another generation */
    pe_pair(&net.a, FAR, &ghost);
    pe_expect(&net.a, ANGARA_EV_PEER_DOWN, FAR, ANGARA_ERR_PEER_DEAD);
    pe_pair(&net.a, FAR, &net.b);
    pe_flush(&net.a, FAR);
    pe_die(&net.b);
    pe_expect(&net.a, ANGARA_EV_PEER_DOWN, FAR, ANGARA_ERR_PEER_DEAD);
    pe_create(&net.b, &net.guests[1], 3, DOM);
    pe_pair(&net.a, FAR, &net.b);
    pe_flush(&net.a, FAR);

    guest_disconnect(&net.guests[1]); /* a VM dies */
    pe_expect(&net.a, ANGARA_EV_PEER_DOWN, FAR, ANGARA_ERR_PEER_DEAD);
    guest_connect(&net.guests[1], &net.fabric, 1);
    net_stop(&net);
}

static void test_unknown_node(void **state)
{
    struct angara_desc desc = {
        .op = ANGARA_OP_PAIR, .pair = 4095, .operand = 99ull << 32, .compare = 1};
    net_t net;

    (void)state;
    net_start(&net, NULL);
    pe_post(&net.a, &desc);
    pe_expect(&net.a, ANGARA_EV_FAULT, 4095, ANGARA_ERR_UNREACHABLE);
    pe_flush(&net.a, FAR);
    net_stop(&net);
}

/* After the acknowledgement the memory is the driver's: nothing may write it, whatever was in
 * flight. */
static void check_quiet(region_t *target)
{
    struct angara_hw_cmd nop = {.opcode = ANGARA_HW_NOP};

    region_fill(target, 77);
    for (int i = 0; i < 50; ++i) {
        guest_admin(target->guest, &nop);
    }
    assert_true(region_holds(target, 0, 77, 0, target->length));
}

static void test_invalidate_in_flight(void **state)
{
    struct angara_event_record event;
    region_t                   source, target;
    net_t                      net;

    (void)state;
    net_start(&net, NULL);
    for (int local = 0; local < 2; ++local) { /* the target of puts, then that of gets */
        uint8_t op = local ? ANGARA_OP_GET : ANGARA_OP_PUT;

        region_register(&source, &net.guests[local ? 1 : 0], DOM, BIG, ALL, 2, 12, 0);
        region_register(&target, &net.guests[local ? 0 : 1], DOM, BIG, ALL, 2, 12, 0);
        for (unsigned i = 0; i < 8; ++i) {
            pe_rma(&net.a, op, FAR, local ? &target : &source, 0, local ? &source : &target, 0,
                   BIG);
        }
        WAIT_FOR(*(volatile uint8_t *)guest_at(target.guest, target.pages[0]) == 0);
        region_invalidate(&target);
        check_quiet(&target);
        /* One of those fails, or, if all were over, this one. */
        pe_rma(&net.a, op, FAR, local ? &target : &source, 0, local ? &source : &target, 0, 1);
        pe_event_wait(&net.a, &event);
        assert_int_equal(event.type, ANGARA_EV_FAULT);
        assert_int_equal(event.status, ANGARA_ERR_KEY);
        pe_pair(&net.a, FAR, &net.b);
        pe_flush(&net.a, FAR);
        region_invalidate(&source);
    }
    net_stop(&net);
}

static void test_reset_in_flight(void **state)
{
    region_t source, target;
    net_t    net;

    (void)state;
    for (int which = 0; which < 4;
         ++which) { /* target's PE, own PE, target's device, DMA off there */
        net_start(&net, NULL);
        region_register(&source, &net.guests[0], DOM, BIG, ALL, 2, 12, 0);
        region_register(&target, &net.guests[1], DOM, BIG, ALL, 2, 12, 0);
        for (unsigned i = 0; i < 8; ++i) {
            pe_rma(&net.a, ANGARA_OP_PUT, FAR, &source, 0, &target, 0, BIG);
            pe_put(&net.a, FAR, i * 100, &net, 100);
        }
        switch (which) {
        case 0:
            pe_reset(&net.b);
            break;
        case 1:
            pe_reset(&net.a);
            break;
        case 2:
            guest_reset(&net.guests[1]);
            break;
        default:
            guest_dma(&net.guests[1], 0);
            break;
        }
        if (which < 2) {
            check_quiet(&target);
        } else {
            region_fill(&target, 5);
        }
        if (which == 3) {
            pe_mark(&net.a, ANGARA_OP_MARKER, FAR); /* should all of them be over */
            pe_expect(&net.a, ANGARA_EV_FAULT, FAR, ANGARA_ERR_PEER_DEAD);
        } else if (which != 1) {
            pe_expect(&net.a, ANGARA_EV_PEER_DOWN, FAR,
                      which == 0 ? ANGARA_OK : ANGARA_ERR_PEER_DEAD);
        }
        if (which >= 2) {
            assert_true(region_holds(&target, 0, 5, 0, BIG));
            guest_bind(&net.guests[1]);
        }
        net_stop(&net);
    }
}

/* The device keeps what it knows of a region until it is told. */
static void test_cached(void **state)
{
    region_t source, target;
    net_t    net;

    (void)state;
    net_start(&net, NULL);
    region_register(&source, &net.guests[0], DOM, 100, ALL, 1, 12, 0);
    region_register(&target, &net.guests[1], DOM, 100, ALL, 1, 12, 0);
    pe_rma(&net.a, ANGARA_OP_PUT, FAR, &source, 0, &target, 0, 100);
    pe_flush(&net.a, FAR);
    region_entry(&target)->key = 0;
    region_fill(&source, 8);
    pe_rma(&net.a, ANGARA_OP_PUT, FAR, &source, 0, &target, 0, 100);
    pe_flush(&net.a, FAR);
    assert_true(region_holds(&target, 0, 8, 0, 100));

    fabric_control(&net.fabric, "admin 1 mr_invalidate 30"); /* until it has answered */
    region_invalidate(&target);
    pe_rma(&net.a, ANGARA_OP_PUT, FAR, &source, 0, &target, 0, 100);
    pe_expect(&net.a, ANGARA_EV_FAULT, FAR, ANGARA_ERR_KEY);
    net_stop(&net);
}

static void test_dma_off(void **state)
{
    struct angara_event_record event;
    net_t                      net;

    (void)state;
    net_start(&net, NULL);
    guest_dma(&net.guests[0], 0);
    pe_put(&net.a, FAR, 0, "x", 1);
    __atomic_store_n(&net.a.doorbell->arm, 1, __ATOMIC_RELEASE);
    guest_dma(&net.guests[0], 0); /* it works, but not on this */
    assert_int_equal(net.a.status->pio_cons, 0);
    assert_int_equal(net.a.status->armed, 0);
    assert_int_equal(pe_notify(&net.b, 0, "x", 1), ANGARA_ERR_PEER_DEAD);
    fabric_control(&net.fabric, "link 0 down"); /* news that can't be told */
    assert_int_equal(net.a.status->link, 1);
    assert_int_equal(net.a.status->event_lost, 0);
    fabric_control(&net.fabric, "link 0 up");
    guest_dma(&net.guests[0], 1);
    WAIT_FOR(__atomic_load_n(&net.a.status->event_lost, __ATOMIC_ACQUIRE) == 2);
    pe_flush(&net.a, FAR);
    assert_memory_equal(pe_window(&net.b, 0), "x", 1);
    assert_int_equal(pe_event(&net.a, &event), 0);
    net_stop(&net);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bad_tables),
        cmocka_unit_test(test_guesses),
        cmocka_unit_test(test_loopback),
        cmocka_unit_test(test_peer_down),
        cmocka_unit_test(test_unknown_node),
        cmocka_unit_test(test_invalidate_in_flight),
        cmocka_unit_test(test_reset_in_flight),
        cmocka_unit_test(test_cached),
        cmocka_unit_test(test_dma_off),
    };

    net_options(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
