/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short puts are collected as other transfers are (test_batch.c), but share buffers there: what
 * they bring is what their sources held at the call, and an atomic isn't performed before them.
 */
#include "ut_batch.h"

#include <unistd.h>

#define BT_SHORT_MAX 4096

/* The block by a short put, whose source is something else at once. */
static ucs_status_t bt_try_short(bt_op_t *op, size_t beyond)
{
    static char        source[BT_SHORT_MAX];
    const ut_remote_t *remote = &op->bt->remotes[op->rank];

    CHECK(op->length <= sizeof(source));
    memcpy(source, op->bt->near.addr + op->offset, op->length);
    op->posted = uct_ep_put_short(op->bt->t->ep[op->rank], source, (unsigned)op->length,
                                  remote->addr + op->offset + beyond, remote->key.rkey);
    memset(source, BT_UNTAKEN, op->length);
    return op->posted;
}

/* Bursts of short puts, which share buffers while they wait: to one peer, to two by turns, and
 * among transfers that have buffers of their own. */
static void bt_short_rank0(bt_t *bt)
{
    static const size_t lengths[] = {1, 7, 8, 100, 1000, BT_SHORT_MAX};
    ut_t               *t         = bt->t;
    unsigned            round, i, first;

    for (round = 0; round < 6; ++round) {
        bt->used = 0;
        first    = bt->nops;
        for (i = 0; i < 300; ++i) {
            unsigned rank = (round % 3 == 1) ? 1 + i % 2 : 1;
            bt_op_t *op   = bt_next(bt, rank, 0, lengths[(round < 3) ? i % 6 : round % 3]);

            if ((round % 3 == 2) && (i % 5 == 0)) {
                bt_post(op);
            } else {
                CHECK_OK((ucs_status_t)UT_POST(t, bt_try_short(op, 0)));
            }
        }
        ut_flush(t, &t->main);
        bt_check_ended(bt);
        bt_check_puts(bt, first);
    }
}

/* One of many short puts is bad: nothing behind it arrives. Round after round, so that buffers
 * which don't come back would be missed. */
static void bt_fault_short_rank0(bt_t *bt)
{
    enum { OPS = 40, ROUNDS = 70 };
    ut_t      *t     = bt->t;
    ut_timer_t timer = {0, 0};
    unsigned   round, i, bad;

    for (round = 0; round < ROUNDS; ++round) {
        bad      = round % OPS;
        bt->nops = 0;
        bt->used = (size_t)round * OPS * 100; /* where nothing has been put */
        for (i = 0; i < OPS; ++i) {
            bt_try_short(bt_next(bt, 1, 0, 60 + i), (i == bad) ? BT_MEMORY : 0);
            CHECK((bt_ops[i].posted == UCS_OK) || (i >= bad));
        }
        UT_WAIT(t, t->main.errors == 1);
        for (i = bad; i < OPS; ++i) {
            bt_tell(bt, &bt_ops[i], BT_CHECK_UNTAKEN);
        }
        t->main.errors = 0;
        uct_ep_destroy(t->ep[1]);
        while (ut_ep_try_create(&t->main, &t->addr[1], &t->ep[1]) != UCS_OK) {
            ut_relax(t, &timer, __FILE__, __LINE__, "a new endpoint to a peer that had failed");
        }
    }
    bt->nops = 0;
    for (i = 0; i < OPS; ++i) {
        CHECK_OK((ucs_status_t)UT_POST(t, bt_try_short(bt_next(bt, 1, 0, 500), 0)));
    }
    ut_flush(t, &t->main);
    bt_check_puts(bt, 0);
}

/* An atomic behind short puts that wait is performed behind them, too: the word has both. */
static void bt_atomic_rank0(bt_t *bt)
{
    ut_t              *t      = bt->t;
    const ut_remote_t *remote = &bt->remotes[1];
    uint64_t           value, old;
    ut_comp_t          comp;
    unsigned           round, i;

    for (round = 1; round <= 40; ++round) {
        for (i = 0; i < round % 20 + 1; ++i) {
            value = 1000 * round + i;
            CHECK_OK((ucs_status_t)UT_POST(t, uct_ep_put_short(t->ep[1], &value, sizeof(value),
                                                               remote->addr, remote->key.rkey)));
        }
        CHECK_OK((ucs_status_t)UT_POST(t, uct_ep_atomic64_post(t->ep[1], UCT_ATOMIC_OP_ADD, 500,
                                                               remote->addr, remote->key.rkey)));
        ut_comp_init(&comp, 1);
        CHECK_OK(
            ut_comp_wait(t,
                         (ucs_status_t)UT_POST(
                             t, uct_ep_atomic64_fetch(t->ep[1], UCT_ATOMIC_OP_ADD, 0, &old,
                                                      remote->addr, remote->key.rkey, &comp.super)),
                         &comp));
        CHECK_EQ(old, value + 500);
        if (round % 3 == 0) {
            ut_flush(t, &t->main);
        }
    }
}

static void short_puts(ut_t *t)
{
    bt_run(t, bt_short_rank0);
}

static void fault_in_short(ut_t *t)
{
    bt_run(t, bt_fault_short_rank0);
}

static void atomic_behind(ut_t *t)
{
    bt_run(t, bt_atomic_rank0);
}

/* So is one on mapped memory, which could be performed at once: who sees it sees the puts. */
static void atomic_mapped(ut_t *t)
{
    enum { PUTS = 12, ROUNDS = 30 };
    ut_remote_t        far[RANK_MAX], words[RANK_MAX];
    volatile uint64_t *seen, *count;
    uint64_t           round, value, i;
    ut_mem_t           memory, word;

    ut_open(t);
    ut_mem_init(t, &memory, UT_MEM_PRIVATE, 4096);
    ut_mem_init(t, &word, UT_MEM_ALLOC, 4096);
    memset(memory.addr, 0, 4096);
    memset(word.addr, 0, 4096);
    ut_mem_exchange(t, &memory, far);
    ut_mem_exchange(t, &word, words);
    ut_barrier(t);
    seen  = (volatile uint64_t *)(void *)memory.addr;
    count = (volatile uint64_t *)(void *)word.addr;
    for (round = 1; round <= ROUNDS; ++round) {
        if (t->rank == 0) {
            for (i = 0; i < PUTS; ++i) {
                value = 100 * round + i;
                CHECK_OK((ucs_status_t)UT_POST(t, uct_ep_put_short(t->ep[1], &value, sizeof(value),
                                                                   far[1].addr + 8 * i,
                                                                   far[1].key.rkey)));
            }
            CHECK_OK(
                (ucs_status_t)UT_POST(t, uct_ep_atomic64_post(t->ep[1], UCT_ATOMIC_OP_ADD, 1,
                                                              words[1].addr, words[1].key.rkey)));
            usleep(1000); /* no turn of progress puts it right */
            CHECK_EQ(ut_recv_word(t, 1), round);
            ut_flush(t, &t->main);
        } else {
            UT_WAIT(t, *count == round);
            for (i = 0; i < PUTS; ++i) {
                CHECK_EQ(seen[i], 100 * round + i);
            }
            ut_send_word(t, 0, round);
        }
    }
    ut_barrier(t);
    ut_remotes_release(t, far);
    ut_remotes_release(t, words);
    ut_mem_cleanup(t, &memory);
    ut_mem_cleanup(t, &word);
    ut_close_alone(t);
}

BT_TEST(short_puts, 3)
BT_TEST(fault_in_short, 2)
BT_TEST(atomic_behind, 2)
BT_TEST(atomic_mapped, 2)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_puts),
        cmocka_unit_test(test_fault_in_short),
        cmocka_unit_test(test_atomic_behind),
        cmocka_unit_test(test_atomic_mapped),
    };

    return ut_main(argc, argv, "packed", tests, sizeof(tests) / sizeof(tests[0]));
}
