/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The emulated NIC as its users see it: two nodes, a PE on each and a third beside the first, with
 * everything that moves data, its order, and its faults. An argument is the seed of
 * chaos mode.
 */
#include "guest_net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BIG (3u << 20) /* more than one turn moves */

/* The status follows what a marker covers. */
static void wait_counter(const uint64_t *counter, uint64_t value)
{
    WAIT_FOR(__atomic_load_n(counter, __ATOMIC_ACQUIRE) == value);
}

/* ---- regions --------------------------------------------------------------------------------- */

static void test_put_get(void **state)
{
    static const struct {
        unsigned levels, shift;
        uint64_t first;
    } shapes[] = {{0, 12, 0}, {1, 12, 100}, {2, 12, 4095}, {3, 12, 8}, {1, 16, 60000}, {2, 21, 3}};
    region_t source, target;
    net_t    net;

    (void)state;
    net_start(&net, NULL);
    for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); ++i) {
        uint64_t length = shapes[i].shift == 21 ? 3000000 : 70001;

        region_register(&source, &net.guests[0], DOM, length, ALL, shapes[i].levels,
                        shapes[i].shift, shapes[i].first);
        region_register(&target, &net.guests[1], DOM, length, ALL, 1 + i % 3, 12, i * 11);
        region_fill(&source, i + 1);
        pe_rma(&net.a, ANGARA_OP_PUT, FAR, &source, 0, &target, 0, length);
        pe_flush(&net.a, FAR);
        assert_true(region_holds(&target, 0, i + 1, 0, length));

        region_fill(&target, i + 50);
        pe_rma(&net.a, ANGARA_OP_GET, FAR, &source, 1000, &target, 5, 60000);
        pe_flush(&net.a, FAR);
        assert_true(region_holds(&source, 0, i + 1, 0, 1000));
        assert_true(region_holds(&source, 1000, i + 50, 5, 60000));
        assert_true(region_holds(&source, 61000, i + 1, 61000, length - 61000));
        region_invalidate(&source);
        region_invalidate(&target);
    }
    wait_counter((uint64_t *)&net.a.status->counters[ANGARA_CNT_OFF_GETS],
                 sizeof(shapes) / sizeof(shapes[0]));
    wait_counter((uint64_t *)&net.a.status->counters[ANGARA_CNT_FAULTS], 0);
    net_stop(&net);
}

/* More than a turn moves, more than the engine queues, both directions at once. */
static void test_volume(void **state)
{
    region_t source, target;
    net_t    net;

    (void)state;
    net_start(&net, NULL);
    region_register(&source, &net.guests[0], DOM, BIG, ALL, 2, 12, 17);
    region_register(&target, &net.guests[1], DOM, BIG, ALL, 2, 12, 3);
    for (unsigned round = 1; round < 4; ++round) {
        region_fill(&source, round);
        pe_rma(&net.a, ANGARA_OP_PUT, FAR, &source, 0, &target, 0, BIG);
        for (unsigned i = 0; i < 600; ++i) { /* behind the big one */
            pe_rma(&net.a, ANGARA_OP_PUT, FAR, &source, i * 16, &target, i * 16, 16);
        }
        pe_flush(&net.a, FAR);
        assert_true(region_holds(&target, 0, round, 0, BIG));
    }
    net_stop(&net);
}

static void test_inline(void **state)
{
    struct angara_desc desc = {.op = ANGARA_OP_PUT_INLINE, .pair = FAR};
    region_t           target;
    net_t              net;
    char               got[ANGARA_DESC_DATA];

    (void)state;
    net_start(&net, NULL);
    region_register(&target, &net.guests[1], DOM, 5000, ALL, 1, 12, 0);
    for (unsigned length = 0; length <= ANGARA_DESC_DATA; ++length) {
        memset(desc.data, (int)length + 1, sizeof(desc.data));
        desc.rkey    = target.key;
        desc.roffset = 4096 - length / 2; /* across pages */
        desc.length  = length;
        pe_post(&net.a, &desc);
        pe_flush(&net.a, FAR);
        region_load(&target, desc.roffset, got, length);
        assert_memory_equal(got, desc.data, length);
    }
    net_stop(&net);
}

static void test_atomics(void **state)
{
    static const struct {
        angara_atomic_op_t op;
        uint64_t           operand, compare, before, after;
    } cases[] = {
        {ANGARA_ATOMIC_ADD, 5, 0, 0xfffffffe, 3},
        {ANGARA_ATOMIC_AND, 0xf0f0, 0, 0xffff, 0xf0f0},
        {ANGARA_ATOMIC_OR, 0xf0f0, 0, 0x0f0f, 0xffff},
        {ANGARA_ATOMIC_XOR, 0xff, 0, 0x0f, 0xf0},
        {ANGARA_ATOMIC_SWAP, 77, 0, 3, 77},
        {ANGARA_ATOMIC_CSWAP, 88, 3, 3, 88},
        {ANGARA_ATOMIC_CSWAP, 88, 4, 3, 3},
    };
    region_t target, result;
    net_t    net;

    (void)state;
    net_start(&net, NULL);
    region_register(&target, &net.guests[1], DOM, 64, ALL, 1, 12, 0);
    region_register(&result, &net.guests[0], DOM, 64, ALL, 1, 12, 4);
    for (unsigned i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); ++i) {
        unsigned n     = i / 2;
        uint8_t  width = i % 2 ? 8 : 4;
        uint64_t word = 0x1111111100000000ull, old = 0;

        region_store(&target, 8, i % 2 ? &word : &cases[n].before, 8);
        region_store(&target, 8, &cases[n].before, 4);
        pe_atomic(&net.a, FAR, cases[n].op, width, cases[n].operand, cases[n].compare, &target, 8,
                  &result, 12);
        if (width == 4) {
            pe_flush(&net.a, FAR);
            region_load(&target, 8, &word, 8);
            region_load(&result, 12, &old, 4);
            assert_int_equal(word, cases[n].after);
            assert_int_equal(old, cases[n].before);
        } else {
            pe_flush(&net.a, FAR);
            region_load(&result, 12, &old, 8);
            assert_int_equal(old, 0x1111111100000000ull | cases[n].before);
        }
    }
    wait_counter((uint64_t *)&net.a.status->counters[ANGARA_CNT_ATOMICS],
                 2 * sizeof(cases) / sizeof(cases[0]));
    for (unsigned i = 0; i < 1000; ++i) { /* non-fetching */
        pe_atomic(&net.a, FAR, ANGARA_ATOMIC_ADD, 8, 3, 0, &target, 16, NULL, 0);
    }
    pe_flush(&net.a, FAR);
    assert_int_equal(*(uint64_t *)((char *)guest_at(&net.guests[1], target.pages[0]) + 16), 3000);

    pe_atomic(&net.a, FAR, ANGARA_ATOMIC_ADD, 8, 3, 0, &target, 20, NULL, 0);
    pe_expect(&net.a, ANGARA_EV_FAULT, FAR, ANGARA_ERR_BOUNDS); /* not aligned */
    net_stop(&net);
}

/* ---- the window ------------------------------------------------------------------------------ */

static void test_window(void **state)
{
    static char data[1500];
    net_t       net;
    char        got[sizeof(data)];

    (void)state;
    net_start(&net, NULL);
    for (unsigned i = 0; i < 3000; ++i) { /* round the ring, with pads */
        uint32_t length = i * 7 % (sizeof(data) - 1) + 1;
        uint64_t offset = (uint64_t)i * 97 % (GUEST_WINDOW * GUEST_PAGE - sizeof(data));

        memset(data, (int)i, length);
        pe_put(&net.a, FAR, offset, data, length);
        if (i % 16 == 0) {
            pe_flush(&net.a, FAR); /* covers windows writes */
            for (uint32_t at = 0; at < length; at++) {
                got[at] = *(char *)pe_window(&net.b, offset + at);
            }
            assert_memory_equal(got, data, length);
        }
    }
    pe_flush(&net.a, FAR);
    wait_counter((uint64_t *)&net.a.status->counters[ANGARA_CNT_PUTS], 3000);
    WAIT_FOR(*(volatile uint32_t *)&net.a.status->pio_cons == (uint32_t)net.a.pio_prod);
    /* Consumed granules have their own numbers: nothing there fits as the head of the next lap. */
    for (uint32_t back = 1; back <= 1024; ++back) {
        uint32_t number = (uint32_t)net.a.pio_prod - back;

        memcpy(got, net.a.pio + (size_t)(number % 1024) * ANGARA_PIO_GRANULE, sizeof(number));
        number++;
        assert_memory_equal(got, &number, sizeof(number));
    }
    assert_int_equal(pe_state(&net.a), ANGARA_PE_RUNNING);
    net_stop(&net);
}

/* The flag comes after the bytes of its own put. */
static void test_flag(void **state)
{
    net_t net;
    char  data[200];

    (void)state;
    net_start(&net, NULL);
    for (uint64_t i = 1; i < 300; ++i) {
        uint64_t *flag = pe_window(&net.b, 8192);

        memset(data, (int)i, sizeof(data));
        pe_put_flag(&net.a, FAR, 4096 - 100, data, sizeof(data), 8192, i);
        WAIT_FOR(__atomic_load_n(flag, __ATOMIC_ACQUIRE) == i);
        assert_memory_equal(pe_window(&net.b, 4096 - 100), data, 100);
        assert_memory_equal(pe_window(&net.b, 4096), data, 100);
    }
    net_stop(&net);
}

/* Data that looks like the head of a put of the next lap is data. */
static void test_lookalike(void **state)
{
    uint32_t          data[20 * 16];
    struct angara_put head = {.op = ANGARA_PIO_PUT, .length = 16 + sizeof(data), .pair = FAR};
    uint32_t          granules;
    net_t             net;

    (void)state;
    net_start(&net, NULL);
    granules = net.guests[0].control->pio_bytes / ANGARA_PIO_GRANULE;
    for (unsigned lap = 0; lap < 3; ++lap) {
        for (unsigned i = 0; i < 2 * lap; ++i) { /* heads where the lap before had data */
            pe_put(&net.a, FAR, 0, "x", 1);
            pe_flush(&net.a, FAR); /* it looks at the next granule */
            pe_flush(&net.a, FAR);
            assert_int_equal(pe_state(&net.a), ANGARA_PE_RUNNING);
        }
        while (net.a.pio_prod < (uint64_t)(lap + 1) * granules) {
            struct angara_put pad  = {.op = ANGARA_PIO_PAD};
            uint32_t          left = granules - (uint32_t)(net.a.pio_prod % granules);

            for (unsigned i = 0; i < 20; ++i) { /* what the next lap's granule here would say */
                data[i * 16] = (uint32_t)net.a.pio_prod + 2 + i + granules;
            }
            if (left >= 21) {
                pe_put_raw(&net.a, &head, data, 21);
            } else {
                pe_put_raw(&net.a, &pad, NULL, 1);
                net.a.pio_prod += left - 1;
            }
        }
        pe_flush(&net.a, FAR);
        assert_int_equal(pe_state(&net.a), ANGARA_PE_RUNNING);
        WAIT_FOR(*(volatile uint32_t *)&net.a.status->pio_cons == (uint32_t)net.a.pio_prod);
    }
    net_stop(&net);
}

/* Pages are committed one by one; what isn't faults, until WINDOW_SYNC has told of it. */
static void test_commit(void **state)
{
    uint64_t word, lost;
    net_t    net;

    (void)state;
    net_start(&net, NULL);
    word            = net.b.window[2];
    net.b.window[2] = 0;
    pe_put(&net.a, FAR, 2 * GUEST_PAGE - 4, "12345678", 8);
    pe_expect(&net.a, ANGARA_EV_FAULT, FAR, ANGARA_ERR_BOUNDS);
    lost = pe_mark(&net.a, ANGARA_OP_MARKER, FAR); /* would claim that the put was performed */
    pe_pair(&net.a, FAR, &net.b);
    assert_true(net.a.marker[0] < lost);
    assert_memory_equal(pe_window(&net.b, 2 * GUEST_PAGE - 4), "\0\0\0\0", 4); /* no byte moved */

    net.b.window[2] = word;
    assert_int_equal(guest_admin_args(&net.guests[1], ANGARA_HW_WINDOW_SYNC, net.b.hw.index, 0),
                     ANGARA_HW_OK);
    pe_pair(&net.a, FAR, &net.b);
    pe_put(&net.a, FAR, 2 * GUEST_PAGE - 4, "12345678", 8);
    pe_flush(&net.a, FAR);
    assert_memory_equal(pe_window(&net.b, 2 * GUEST_PAGE), "5678", 4);

    pe_put(&net.a, FAR, (uint64_t)GUEST_WINDOW * GUEST_PAGE, "x", 1);
    pe_expect(&net.a, ANGARA_EV_FAULT, FAR, ANGARA_ERR_BOUNDS);
    pe_pair(&net.a, FAR, &net.b);
    pe_put(&net.a, FAR, ~0ull - 1, "xxxx", 4);
    pe_expect(&net.a, ANGARA_EV_FAULT, FAR, ANGARA_ERR_BOUNDS);
    pe_pair(&net.a, FAR, &net.b);
    pe_put_flag(&net.a, FAR, 0, "x", 1, 4, 1); /* not aligned */
    pe_expect(&net.a, ANGARA_EV_FAULT, FAR, ANGARA_ERR_BOUNDS);
    net_stop(&net);
}

/* The table's lower level has pages only where something is committed. */
static void test_leaves(void **state)
{
    enum { FAN = ANGARA_HW_WINDOW_FANOUT, BORDER = FAN * GUEST_PAGE };
    uint64_t *words, page;
    net_t     net;
    pe_t      pe;

    (void)state;
    net_start(&net, NULL);
    pe_prepare(&pe, &net.guests[1], 5, DOM);
    pe.hw.window_pages = 2 * FAN;
    pe.window[FAN - 1] = guest_alloc(pe.guest, GUEST_PAGE, GUEST_PAGE) | 1;
    assert_int_equal(pe_create_status(&pe), ANGARA_HW_OK);
    pe_pair(&net.a, FAR, &pe);
    pe_put(&net.a, FAR, BORDER - 4, "1234", 4);
    pe_flush(&net.a, FAR);
    assert_memory_equal(pe_window(&pe, BORDER - 4), "1234", 4);
    pe_put(&net.a, FAR, BORDER - 4, "abcdefgh", 8);
    pe_expect(&net.a, ANGARA_EV_FAULT, FAR, ANGARA_ERR_BOUNDS);
    assert_memory_equal(pe_window(&pe, BORDER - 4), "1234", 4);

    words    = window_leaf(&pe, 1);
    page     = guest_alloc(pe.guest, GUEST_PAGE, GUEST_PAGE);
    words[0] = page | 1;
    assert_int_equal(guest_admin_args(pe.guest, ANGARA_HW_WINDOW_SYNC, pe.hw.index, 0),
                     ANGARA_HW_OK);
    pe_pair(&net.a, FAR, &pe);
    pe_put(&net.a, FAR, BORDER - 4, "abcdefgh", 8);
    pe_flush(&net.a, FAR);
    assert_memory_equal(pe_window(&pe, BORDER - 4), "abcd", 4);
    assert_memory_equal(guest_at(pe.guest, page), "efgh", 4);
    pe_put(&net.a, FAR, BORDER + GUEST_PAGE, "x", 1); /* a word that is 0 */
    pe_expect(&net.a, ANGARA_EV_FAULT, FAR, ANGARA_ERR_BOUNDS);
    net_stop(&net);
}

/* A ring operation comes after the puts that it names. */
static void test_put_order(void **state)
{
    struct angara_desc inline_put = {.op = ANGARA_OP_PUT_INLINE, .pair = FAR, .length = 8};
    region_t           target;
    net_t              net;
    uint64_t           value;

    (void)state;
    net_start(&net, NULL);
    /* Even when it is seen long before them. */
    inline_put.pio_prod = 1;
    memcpy(inline_put.data, "command!", 8);
    region_register(&target, &net.guests[1], DOM, 8, ALL, 0, 12, 0);
    net.b.window[1] = target.pages[0] | 1;
    inline_put.rkey = target.key;
    pe_post(&net.a, &inline_put);
    pe_notify(&net.b, 0, "x", 1); /* some turns */
    pe_notify(&net.b, 0, "x", 1);
    pe_put(&net.a, FAR, GUEST_PAGE, "put ring", 8);
    pe_flush(&net.a, FAR);
    assert_memory_equal(guest_at(&net.guests[1], target.pages[0]), "command!", 8);

    /* The window's first page, as a region: both ways to write end in one place. */
    region_register(&target, &net.guests[1], DOM, 8, ALL, 0, 12, 0);
    net.b.window[0] = target.pages[0] | 1;
    for (uint64_t i = 1; i < 200; ++i) {
        value = i << 32;
        pe_put(&net.a, FAR, 0, &value, sizeof(value));
        inline_put.rkey     = target.key;
        inline_put.pio_prod = net.a.pio_prod;
        memcpy(inline_put.data, &i, sizeof(i));
        pe_post(&net.a, &inline_put);
        pe_flush(&net.a, FAR);
        region_load(&target, 0, &value, sizeof(value));
        assert_int_equal(value, i);
    }
    net_stop(&net);
}

/* ---- markers --------------------------------------------------------------------------------- */

/* Sources are read in ring order across destinations: a self marker covers the sources before it.
 */
static void test_self_marker(void **state)
{
    region_t source, far, near;
    net_t    net;

    (void)state;
    net_start(&net, NULL);
    region_register(&source, &net.guests[0], DOM, 100000, ALL, 1, 12, 0);
    region_register(&far, &net.guests[1], DOM, 100000, ALL, 1, 12, 0);
    region_register(&near, &net.guests[0], DOM + 1, 100000, ALL, 1, 12, 0);
    for (unsigned round = 1; round < 30; ++round) {
        region_fill(&source, round);
        pe_rma(&net.a, ANGARA_OP_PUT, FAR, &source, 0, &far, 0, 100000);
        pe_rma(&net.a, ANGARA_OP_PUT, NEAR, &source, 0, &near, 0, 100000);
        pe_wait_mark(&net.a, pe_mark(&net.a, ANGARA_OP_MARKER_SELF, FAR));
        region_fill(&source, 200);
        pe_flush(&net.a, FAR);
        assert_true(region_holds(&far, 0, round, 0, 100000));
    }
    net_stop(&net);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void test_notify(void **state)
{
    struct angara_event_record event;
    net_t                      net;
    char                       data[64];

    (void)state;
    net_start(&net, NULL);
    for (unsigned i = 0; i < 100; ++i) {
        memset(data, (int)i, sizeof(data));
        assert_int_equal(pe_notify(&net.a, FAR, data, i % 65), ANGARA_OK);
        pe_event_wait(&net.b, &event);
        assert_int_equal(event.type, ANGARA_EV_NOTIFY);
        assert_int_equal(event.node, 0);
        assert_int_equal(event.pe, net.a.hw.index);
        assert_int_equal(event.generation, net.a.hw.generation);
        assert_int_equal(event.length, i % 65);
        assert_memory_equal(event.data, data, i % 65);
    }
    /* A full ring refuses; local events are lost, which stays known. */
    for (unsigned i = 0; i < GUEST_EVENTS; ++i) {
        assert_int_equal(pe_notify(&net.a, FAR, "x", 1), ANGARA_OK);
    }
    assert_int_equal(pe_notify(&net.a, FAR, "x", 1), ANGARA_ERR_NO_RESOURCE);
    assert_int_equal(net.b.status->event_lost, 0);
    fabric_control(&net.fabric, "link 1 down");
    WAIT_FOR(__atomic_load_n(&net.b.status->event_lost, __ATOMIC_ACQUIRE) == 1);
    fabric_control(&net.fabric, "link 1 up");
    pe_event_wait(&net.b, &event);
    WAIT_FOR(pe_notify(&net.a, FAR, "x", 1) == ANGARA_OK);
    assert_int_equal(net.b.status->event_lost, 2);
    net_stop(&net);
}

static void test_interrupts(void **state)
{
    net_t    net;
    uint64_t marked;

    (void)state;
    net_start(&net, NULL);
    assert_int_equal(pe_notify(&net.a, FAR, "x", 1), ANGARA_OK);
    assert_int_equal(guest_irq(&net.guests[1], net.b.hw.vector), 0); /* not armed */
    pe_arm(&net.b);
    assert_int_equal(net.b.status->armed, net.b.arm);
    assert_int_equal(pe_notify(&net.a, FAR, "x", 1), ANGARA_OK);
    guest_irq_wait(&net.guests[1], net.b.hw.vector);
    assert_int_equal(net.b.status->armed, 0);
    assert_int_equal(pe_notify(&net.a, FAR, "x", 1), ANGARA_OK); /* once */
    assert_int_equal(guest_irq(&net.guests[1], net.b.hw.vector), 0);

    pe_arm(&net.b); /* a flagged put */
    pe_put_flag(&net.a, FAR, 0, "x", 1, 8, 1);
    guest_irq_wait(&net.guests[1], net.b.hw.vector);
    assert_int_equal(*(uint64_t *)pe_window(&net.b, 8), 1);

    pe_arm(&net.a); /* a marker, which is there by then */
    marked = pe_mark(&net.a, ANGARA_OP_MARKER, FAR);
    guest_irq_wait(&net.guests[0], net.a.hw.vector);
    assert_int_equal(__atomic_load_n(&net.a.marker[0], __ATOMIC_ACQUIRE), marked);

    pe_arm(&net.b); /* disarmed again */
    net.b.arm = 0xffffffff;
    __atomic_store_n(&net.b.doorbell->arm, 0, __ATOMIC_RELEASE);
    WAIT_FOR(__atomic_load_n(&net.b.status->armed, __ATOMIC_ACQUIRE) == 0);
    assert_int_equal(pe_notify(&net.a, FAR, "x", 1), ANGARA_OK);
    assert_int_equal(guest_irq(&net.guests[1], net.b.hw.vector), 0);

    net.b.arm = 1;
    pe_arm(&net.b);
    fabric_control(&net.fabric, "loseirq 1 1");
    assert_int_equal(pe_notify(&net.a, FAR, "x", 1), ANGARA_OK);
    assert_int_equal(net.b.status->armed, 0);
    assert_int_equal(guest_irq(&net.guests[1], net.b.hw.vector), 0);
    net_stop(&net);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_get),   cmocka_unit_test(test_volume),
        cmocka_unit_test(test_inline),    cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_window),    cmocka_unit_test(test_flag),
        cmocka_unit_test(test_lookalike), cmocka_unit_test(test_commit),
        cmocka_unit_test(test_put_order), cmocka_unit_test(test_self_marker),
        cmocka_unit_test(test_notify),    cmocka_unit_test(test_interrupts),
        cmocka_unit_test(test_leaves),
    };

    net_options(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
