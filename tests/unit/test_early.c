/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue of early messages: its limits, its order, and the memory that several queues share.
 */
#include "channel/early.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* After the headers above, which it needs. */
#include <cmocka.h>

#define PLENTY ((size_t)1 << 20)

static char data[UCT_ANGARA_EARLY_BYTES + 1];

static int add(uct_angara_early_t *early, uct_angara_early_pool_t *pool, uint8_t id, size_t length)
{
    memset(data, id, length);
    return uct_angara_early_add(early, pool, id, UCT_ANGARA_EARLY_ZCOPY, data, length);
}

static void clear(uct_angara_early_t *early)
{
    while (!uct_angara_early_is_empty(early)) {
        uct_angara_early_pop(early);
    }
}

static void test_order(void **state)
{
    uct_angara_early_pool_t pool  = {0, PLENTY, UCT_ANGARA_EARLY_BYTES};
    uct_angara_early_t      early = {0};
    uint8_t                 round, i, id;

    (void)state;
    assert_true(uct_angara_early_is_empty(&early));
    for (round = 0; round < 3; ++round) {
        for (i = 0; i < UCT_ANGARA_EARLY_MSGS; ++i) {
            assert_true(add(&early, &pool, i, i));
        }
        assert_false(add(&early, &pool, i, 0));
        for (i = 0; i < UCT_ANGARA_EARLY_MSGS; ++i) {
            assert_false(uct_angara_early_is_empty(&early));
            assert_int_equal(early.head->id, i);
            assert_int_equal(early.head->kind, UCT_ANGARA_EARLY_ZCOPY);
            assert_int_equal(early.head->length, i);
            for (id = 0; id < i; ++id) {
                assert_int_equal(early.head->data[id], i);
            }
            uct_angara_early_pop(&early);
        }
        assert_true(uct_angara_early_is_empty(&early));
        assert_int_equal(pool.used, 0);
        assert_int_equal(early.bytes, 0);
    }
}

static void test_bytes(void **state)
{
    uct_angara_early_pool_t pool  = {0, PLENTY, UCT_ANGARA_EARLY_BYTES};
    uct_angara_early_t      early = {0};

    (void)state;
    assert_false(add(&early, &pool, 1, UCT_ANGARA_EARLY_BYTES + 1));
    assert_int_equal(early.refused, UCT_ANGARA_EARLY_BYTES + 1);
    assert_true(add(&early, &pool, 1, UCT_ANGARA_EARLY_BYTES));
    assert_false(add(&early, &pool, 2, 1));
    assert_true(add(&early, &pool, 3, 0)); /* takes none */
    uct_angara_early_pop(&early);
    assert_int_equal(early.refused, 0);
    assert_true(add(&early, &pool, 4, 1));
    assert_false(add(&early, &pool, 5, UCT_ANGARA_EARLY_BYTES));
    clear(&early);
    assert_int_equal(pool.used, 0);
    assert_int_equal(early.count, 0);
    assert_int_equal(early.refused, 0);
}

/* What one queue has, others lack, until it gives it back. */
static void test_pool(void **state)
{
    uct_angara_early_pool_t none = {0, 0, UCT_ANGARA_EARLY_BYTES};
    uct_angara_early_pool_t pool = {0, 3 * (sizeof(uct_angara_early_msg_t) + 100),
                                    UCT_ANGARA_EARLY_BYTES};
    uct_angara_early_t      a = {0}, b = {0};

    (void)state;
    assert_false(add(&a, &none, 1, 0));
    assert_true(add(&a, &pool, 1, 100));
    assert_true(add(&b, &pool, 2, 100));
    assert_true(add(&a, &pool, 3, 100));
    assert_false(add(&a, &pool, 4, 0));
    assert_false(add(&b, &pool, 5, 0));
    uct_angara_early_pop(&b);
    assert_false(add(&a, &pool, 4, 101));
    assert_true(add(&a, &pool, 4, 100));
    clear(&a);
    clear(&b);
    assert_int_equal(pool.used, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_pool),
    };

    return cmocka_run_group_tests_name("early", tests, NULL, NULL);
}
