/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions that are suspended, moved and resumed under operations, and the end of all regions of a
 * domain by one command. An argument is the seed of chaos mode.
 */
#include "guest_net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LENGTH 70000u

static void invalidate(region_t *region)
{
    assert_int_equal(guest_admin_args(region->guest, ANGARA_HW_MR_INVALIDATE, region->key, 0),
                     ANGARA_HW_OK);
}

static void suspend(region_t *region)
{
    struct angara_hw_mr *entry = region_entry(region);

    __atomic_store_n(&entry->state, ANGARA_HW_MR_SUSPENDED, __ATOMIC_RELEASE);
    invalidate(region);
    /* None of this means anything meanwhile. */
    entry->list       = 1;
    entry->npages     = 0;
    entry->page_shift = 77;
}

/* Resume it with the pages of another region of the same length. */
static void resume(region_t *region, region_t *other)
{
    struct angara_hw_mr *entry = region_entry(region), *from = region_entry(other);

    entry->list       = from->list;
    entry->first      = from->first;
    entry->npages     = from->npages;
    entry->page_shift = from->page_shift;
    entry->levels     = from->levels;
    __atomic_store_n(&entry->state, ANGARA_HW_MR_LIVE, __ATOMIC_RELEASE);
    invalidate(region);
}

/* Time enough for what must not happen. */
static void settle(void)
{
    usleep(30000);
}

static int has_landed(const pe_t *pe, uint64_t value)
{
    return __atomic_load_n(&pe->marker[0], __ATOMIC_ACQUIRE) == value;
}

typedef struct {
    net_t    net;
    region_t near, far, moved; /* moved: where far, or near, goes */
} case_t;

static void case_start(case_t *c, unsigned moved_node)
{
    net_start(&c->net, "--loopback");
    region_register(&c->near, &c->net.guests[0], DOM, LENGTH, ALL, 1, 12, 104);
    region_register(&c->far, &c->net.guests[1], DOM, LENGTH, ALL, 2, 12, 104);
    region_register(&c->moved, &c->net.guests[moved_node], DOM, LENGTH, ALL, 1, 16, 104);
    region_fill(&c->near, 1);
    region_fill(&c->far, 2);
    region_fill(&c->moved, 3);
}

/* What meets a suspended target waits, with what is behind it; another pair doesn't. */
static void test_target(void **state)
{
    region_t aside;
    case_t   c;
    uint64_t mark;

    (void)state;
    case_start(&c, 1);
    region_register(&aside, &c.net.guests[0], DOM + 1, LENGTH, ALL, 1, 12, 0);
    suspend(&c.far);
    pe_rma(&c.net.a, ANGARA_OP_PUT, FAR, &c.near, 0, &c.far, 0, LENGTH);
    pe_rma(&c.net.a, ANGARA_OP_PUT, NEAR, &c.near, 0, &aside, 0, LENGTH);
    pe_flush(&c.net.a, NEAR);
    assert_true(region_holds(&aside, 0, 1, 0, LENGTH));
    mark = pe_mark(&c.net.a, ANGARA_OP_MARKER, FAR);
    settle();
    assert_false(has_landed(&c.net.a, mark));
    assert_true(region_holds(&c.far, 0, 2, 0, LENGTH));
    assert_true(region_holds(&c.moved, 0, 3, 0, LENGTH));
    resume(&c.far, &c.moved);
    pe_wait_mark(&c.net.a, mark);
    assert_true(region_holds(&c.moved, 0, 1, 0, LENGTH));
    assert_true(region_holds(&c.far, 0, 2, 0, LENGTH));
    net_stop(&c.net);
}

/* The same for the own end: of a get, a put, an atomic's result. */
static void test_local(void **state)
{
    uint64_t word = 5, old;
    case_t   c;
    uint64_t mark;

    (void)state;
    case_start(&c, 0);
    region_store(&c.far, 8, &word, sizeof(word));
    suspend(&c.near);
    pe_rma(&c.net.a, ANGARA_OP_GET, FAR, &c.near, 1000, &c.far, 1000, 60000);
    pe_atomic(&c.net.a, FAR, ANGARA_ATOMIC_ADD, 8, 1, 0, &c.far, 8, &c.near, 16);
    mark = pe_mark(&c.net.a, ANGARA_OP_MARKER, FAR);
    settle();
    assert_false(has_landed(&c.net.a, mark));
    resume(&c.near, &c.moved);
    pe_wait_mark(&c.net.a, mark);
    assert_true(region_holds(&c.moved, 1000, 2, 1000, 60000));
    region_load(&c.moved, 16, &old, sizeof(old));
    assert_int_equal(old, 5);
    region_load(&c.far, 8, &word, sizeof(word));
    assert_int_equal(word, 6); /* once, though the result had to wait */
    assert_true(region_holds(&c.near, 0, 1, 0, LENGTH));
    net_stop(&c.net);
}

/* What an exporter does between the two: the contents go along. */
static void copy_contents(region_t *to, region_t *from)
{
    static char bytes[LENGTH];

    region_load(from, 0, bytes, LENGTH);
    region_store(to, 0, bytes, LENGTH);
}

/* Both ends move under operations in both directions: neither suspension waits for the other's end.
 */
static void test_both(void **state)
{
    region_t away;
    case_t   c;
    uint64_t mark_a, mark_b;

    (void)state;
    case_start(&c, 1);
    region_register(&away, &c.net.guests[0], DOM, LENGTH, ALL, 2, 12, 104);
    pe_pair(&c.net.b, FAR, &c.net.a);
    pe_rma(&c.net.a, ANGARA_OP_PUT, FAR, &c.near, 0, &c.far, 0, LENGTH / 2);
    pe_rma(&c.net.b, ANGARA_OP_PUT, FAR, &c.far, LENGTH / 2, &c.near, LENGTH / 2, LENGTH / 2);
    suspend(&c.near);
    suspend(&c.far);
    copy_contents(&away, &c.near);
    copy_contents(&c.moved, &c.far);
    region_fill(&c.near, 8); /* the old memory belongs to somebody else */
    region_fill(&c.far, 9);
    mark_a = pe_mark(&c.net.a, ANGARA_OP_MARKER, FAR);
    mark_b = pe_mark(&c.net.b, ANGARA_OP_MARKER, FAR);
    resume(&c.near, &away);
    settle();
    resume(&c.far, &c.moved);
    pe_wait_mark(&c.net.a, mark_a);
    pe_wait_mark(&c.net.b, mark_b);
    assert_true(region_holds(&c.moved, 0, 1, 0, LENGTH / 2));
    assert_true(region_holds(&away, LENGTH / 2, 2, LENGTH / 2, LENGTH / 2));
    assert_true(region_holds(&c.near, 0, 8, 0, LENGTH));
    assert_true(region_holds(&c.far, 0, 9, 0, LENGTH));
    net_stop(&c.net);
}

/* A suspended region refuses what a live one refuses, and what waits for it ends with it. */
static void test_refused(void **state)
{
    case_t c;

    (void)state;
    case_start(&c, 1);
    suspend(&c.far);
    pe_rma(&c.net.a, ANGARA_OP_PUT, FAR, &c.near, 0, &c.far, 1, LENGTH);
    pe_expect(&c.net.a, ANGARA_EV_FAULT, FAR, ANGARA_ERR_BOUNDS);
    pe_pair(&c.net.a, FAR, &c.net.b);
    pe_rma(&c.net.a, ANGARA_OP_PUT, FAR, &c.near, 0, &c.far, 0, LENGTH);
    settle();
    region_entry(&c.far)->key = 0;
    invalidate(&c.far);
    pe_expect(&c.net.a, ANGARA_EV_FAULT, FAR, ANGARA_ERR_KEY);
    assert_true(region_holds(&c.far, 0, 2, 0, LENGTH));
    net_stop(&c.net);
}

/* A PE whose operation waits for a region can be reset, and its node go on. */
static void test_reset(void **state)
{
    case_t c;

    (void)state;
    case_start(&c, 1);
    suspend(&c.far);
    pe_rma(&c.net.a, ANGARA_OP_PUT, FAR, &c.near, 0, &c.far, 0, LENGTH);
    settle();
    pe_reset(&c.net.a);
    resume(&c.far, &c.moved);
    settle();
    assert_true(region_holds(&c.moved, 0, 3, 0, LENGTH));
    pe_create(&c.net.a, &c.net.guests[0], c.net.a.hw.index, DOM);
    pe_pair(&c.net.a, FAR, &c.net.b);
    pe_rma(&c.net.a, ANGARA_OP_PUT, FAR, &c.near, 0, &c.far, 0, LENGTH);
    pe_flush(&c.net.a, FAR);
    assert_true(region_holds(&c.moved, 0, 1, 0, LENGTH));
    net_stop(&c.net);
}

/* One command ends the regions of a domain, those that the device has cached and no others. */
static void test_domain(void **state)
{
    enum { REGIONS = 40 };
    region_t regions[REGIONS], other;
    case_t   c;

    (void)state;
    case_start(&c, 1);
    region_register(&other, &c.net.guests[0], DOM + 1, LENGTH, ALL, 1, 12, 0);
    pe_rma(&c.net.a, ANGARA_OP_PUT, NEAR, &c.near, 0, &other, 0, 100);
    for (unsigned i = 0; i < REGIONS; ++i) {
        region_register(&regions[i], &c.net.guests[1], DOM, 5000, ALL, 1, 12, 0);
        pe_rma(&c.net.a, ANGARA_OP_PUT, FAR, &c.near, 0, &regions[i], 0, 5000);
    }
    pe_flush(&c.net.a, FAR);
    pe_flush(&c.net.a, NEAR);
    for (unsigned i = 0; i < REGIONS; ++i) {
        region_entry(&regions[i])->key = 0;
    }
    region_entry(&c.far)->key = 0;
    assert_int_equal(guest_admin_args(&c.net.guests[1], ANGARA_HW_DOMAIN_INVALIDATE, DOM + 1, 0),
                     ANGARA_HW_OK);
    assert_int_equal(guest_admin_args(&c.net.guests[1], ANGARA_HW_DOMAIN_INVALIDATE, DOM, 0),
                     ANGARA_HW_OK);
    for (unsigned i = 0; i < REGIONS; ++i) {
        pe_rma(&c.net.a, ANGARA_OP_PUT, FAR, &c.near, 0, &regions[i], 0, 100);
        pe_expect(&c.net.a, ANGARA_EV_FAULT, FAR, ANGARA_ERR_KEY);
        pe_pair(&c.net.a, FAR, &c.net.b);
    }
    pe_rma(&c.net.a, ANGARA_OP_PUT, NEAR, &c.near, 0, &other, 100, 100);
    pe_flush(&c.net.a, NEAR);
    net_stop(&c.net);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_target),  cmocka_unit_test(test_local), cmocka_unit_test(test_both),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_reset), cmocka_unit_test(test_domain),
    };

    net_options(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
