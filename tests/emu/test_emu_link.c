/* SPDX-License-Identifier: BSD-3-Clause */
/* Links that are cut and restored, delays, and what chaos mode does to order. An argument is its
 * seed. */
#include "guest_net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BIG (4u << 20) /* takes many turns */

static void test_link(void **state)
{
    struct angara_event_record event;
    region_t                   source, target;
    net_t                      net;
    uint64_t                   value;

    (void)state;
    net_start(&net, NULL);
    region_register(&source, &net.guests[0], DOM, BIG, ALL, 1 + 1, 12, 0);
    region_register(&target, &net.guests[1], DOM, BIG, ALL, 1 + 1, 12, 0);
    region_fill(&source, 6);

    /* Short: all that was under way arrives. */
    for (int i = 0; i < 5; ++i) {
        pe_rma(&net.a, ANGARA_OP_PUT, FAR, &source, 0, &target, 0, BIG);
        value = pe_mark(&net.a, ANGARA_OP_MARKER, FAR);
        fabric_control(&net.fabric, "link 1 down");
        pe_expect(&net.b, ANGARA_EV_LINK, ~0u, 0);
        assert_int_equal(net.b.status->link, 0);
        assert_int_equal(net.guests[1].control->link, 0);
        guest_irq_wait(&net.guests[1], 0);
        pe_put(&net.a, FAR, 0, "link", 4);
        fabric_control(&net.fabric, "link 1 up");
        pe_expect(&net.b, ANGARA_EV_LINK, ~0u, 1);
        pe_wait_mark(&net.a, value);
        assert_true(region_holds(&target, 0, 6, 0, BIG));
        pe_flush(&net.a, FAR);
        assert_memory_equal(pe_window(&net.b, 0), "link", 4);
    }
    /* Long: an error, for puts and ring operations; once. */
    fabric_control(&net.fabric, "timeout 20");
    fabric_control(&net.fabric, "link 0 down");
    pe_expect(&net.a, ANGARA_EV_LINK, ~0u, 0);
    pe_expect(&net.c, ANGARA_EV_LINK, ~0u, 0);
    pe_put(&net.a, FAR, 0, "lost", 4);
    pe_expect(&net.a, ANGARA_EV_FAULT, FAR, ANGARA_ERR_UNREACHABLE);
    assert_int_equal(pe_notify(&net.a, FAR, "x", 1), ANGARA_ERR_UNREACHABLE);
    pe_pair(&net.a, FAR, &net.b);
    pe_mark(&net.a, ANGARA_OP_MARKER, FAR);
    pe_expect(&net.a, ANGARA_EV_FAULT, FAR, ANGARA_ERR_UNREACHABLE);
    pe_put_flag(&net.a, NEAR, 0, "near", 4, 8, 5); /* the own node needs no link */
    WAIT_FOR(__atomic_load_n((uint64_t *)pe_window(&net.c, 8), __ATOMIC_ACQUIRE) == 5);

    /* Who ends meanwhile is known when the link is back. */
    pe_pair(&net.a, FAR, &net.b);
    pe_reset(&net.b);
    assert_int_equal(pe_event(&net.a, &event), 0);
    fabric_control(&net.fabric, "link 0 up");
    pe_expect(&net.a, ANGARA_EV_LINK, ~0u, 1);
    pe_expect(&net.a, ANGARA_EV_PEER_DOWN, FAR, ANGARA_ERR_PEER_DEAD);
    net_stop(&net);
}

static void test_delay(void **state)
{
    net_t net;

    (void)state;
    net_start(&net, NULL);
    fabric_control(&net.fabric, "delay 0 2000");
    for (int i = 0; i < 10; ++i) {
        pe_put(&net.a, FAR, 0, "slow", 4);
        pe_flush(&net.a, FAR);
    }
    assert_memory_equal(pe_window(&net.b, 0), "slow", 4);
    net_stop(&net);
}

/* Without chaos window puts are performed as written; with it some overtake each other. */
static void test_chaos_is_chaotic(void **state)
{
    uint64_t *first, *second;
    unsigned  overtaken = 0;
    net_t     net;

    (void)state;
    net_start(&net, NULL);
    first  = pe_window(&net.b, 0);
    second = pe_window(&net.b, 4096);
    for (uint64_t i = 1; i < 500; ++i) {
        pe_put(&net.a, FAR, 0, &i, sizeof(i));
        pe_put(&net.a, FAR, 4096, &i, sizeof(i));
        WAIT_FOR(__atomic_load_n(second, __ATOMIC_ACQUIRE) == i);
        overtaken += __atomic_load_n(first, __ATOMIC_ACQUIRE) != i;
        pe_flush(&net.a, FAR);
        assert_int_equal(*first, i);
    }
    assert_int_equal(overtaken != 0, net_is_chaotic());
    net_stop(&net);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link),
        cmocka_unit_test(test_delay),
        cmocka_unit_test(test_chaos_is_chaotic),
    };

    net_options(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
