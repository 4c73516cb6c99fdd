/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short zero-copy transfers are collected and posted together: many outstanding ones, to one peer
 * and to several, in both directions, around the limits of a batch; what ends them early (faults,
 * deaths, endpoints that go away); and that flush, fence and sleep know of those that still wait.
 */
#include "ut_batch.h"
#include "ut_inside.h"

#include <signal.h>
#include <unistd.h>

/* ---- many outstanding ---------------------------------------------------------------------- */

/* Bursts longer than a batch, of each length, in each direction; no turn of progress in between. */
static void bt_lengths_rank0(bt_t *bt)
{
    static const size_t lengths[] = {1,
                                     8,
                                     4096,
                                     UCT_ANGARA_BATCH_LENGTH - 1,
                                     UCT_ANGARA_BATCH_LENGTH,
                                     UCT_ANGARA_BATCH_LENGTH + 1};
    unsigned            burst, i, j, first;
    int                 is_get;

    for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
        burst = (lengths[i] > 4096) ? 17 : 50;
        for (is_get = 0; is_get < 2; ++is_get) {
            bt->used = 0;
            first    = bt->nops;
            for (j = 0; j < burst; ++j) {
                bt_prepare(bt, 1, is_get, lengths[i]);
            }
            for (j = first; j < bt->nops; ++j) {
                bt_post(&bt_ops[j]);
            }
            bt_wait(bt);
            bt_check_puts(bt, first);
        }
    }
}

/* More than any queue holds. */
static void bt_flood_rank0(bt_t *bt)
{
    unsigned i;

    for (i = 0; i < BT_OPS_MAX; ++i) {
        bt_post(bt_next(bt, 1, 0, 1 + i % 100));
    }
    bt_wait(bt);
    for (i = 0; i < BT_OPS_MAX; i += 7) {
        bt_tell(bt, &bt_ops[i], BT_CHECK);
    }
}

/* Two peers and two directions in any order: each change ends a batch. */
static void bt_alternate_rank0(bt_t *bt)
{
    ut_t    *t = bt->t;
    unsigned round, first, i;
    size_t   max;

    for (round = 0; round < 20; ++round) {
        bt->used = 0;
        first    = bt->nops;
        for (i = 0; i < 60; ++i) {
            max = (i % 8 == 0) ? 2 * UCT_ANGARA_BATCH_LENGTH : 2000;
            bt_prepare(bt, 1 + (unsigned)(ut_random(t) % 2), (int)(ut_random(t) % 2),
                       1 + ut_random(t) % max);
        }
        for (i = first; i < bt->nops; ++i) {
            bt_post(&bt_ops[i]);
            if (ut_random(t) % 16 == 0) {
                ut_progress(t);
            }
        }
        bt_wait(bt);
        bt_check_puts(bt, first);
    }
}

/* ---- what must know of a batch ------------------------------------------------------------- */

static void bt_burst(bt_t *bt, unsigned count)
{
    unsigned first = bt->nops, i;

    bt->used = 0;
    for (i = 0; i < count; ++i) {
        bt_prepare(bt, 1, i % 2, 100 + i);
    }
    for (i = first; i < bt->nops; ++i) {
        bt_post(&bt_ops[i]);
    }
}

static void bt_flush_called(uct_completion_t *self)
{
    bt_op_t *flush = (bt_op_t *)self;

    /* what it covers has ended, and been told, before */
    CHECK_OK(self->status);
    CHECK_EQ(flush->bt->turns[1], flush->bt->posted[1]);
    ++flush->comp.calls;
    flush->comp.status = self->status;
}

static void bt_flush_rank0(bt_t *bt)
{
    ut_t        *t = bt->t;
    bt_op_t      flush;
    ucs_status_t status;
    unsigned     round, first;

    memset(&flush, 0, sizeof(flush));
    for (round = 0; round < 60; ++round) {
        first = bt->nops;
        bt_burst(bt, 1 + round % 20);
        ut_comp_init(&flush.comp, 1);
        flush.comp.super.func = bt_flush_called;
        flush.bt              = bt;
        switch (round % 3) {
        case 0:
            status = (ucs_status_t)UT_POST(t, uct_ep_flush(t->ep[1], 0, &flush.comp.super));
            CHECK_OK(ut_comp_wait(t, status, &flush.comp));
            break;
        case 1:
            status = (ucs_status_t)UT_POST(t, uct_iface_flush(t->main.iface, 0, &flush.comp.super));
            CHECK_OK(ut_comp_wait(t, status, &flush.comp));
            break;
        default:
            ut_flush(t, &t->main);
        }
        CHECK_EQ(bt->turns[1], bt->posted[1]);
        bt_check_puts(bt, first);
    }
    bt_check_ended(bt);
}

/* get_short waits within the call, and must not call anybody's completion meanwhile. */
static void bt_get_short_rank0(bt_t *bt)
{
    ut_t    *t = bt->t;
    uint64_t word;
    unsigned round, first, before;
    ssize_t  status;

    for (round = 0; round < 40; ++round) {
        first = bt->nops;
        bt_burst(bt, 1 + round % 20);
        before = bt->turns[1];
        status = uct_ep_get_short(t->ep[1], &word, sizeof(word), bt->remotes[1].addr,
                                  bt->remotes[1].key.rkey);
        CHECK((status == UCS_OK) || (status == UCS_ERR_NO_RESOURCE));
        CHECK_EQ(bt->turns[1], before);
        CHECK((before == bt->posted[1]) || (status == UCS_ERR_NO_RESOURCE));
        bt_wait(bt);
        POST_OK(t, uct_ep_get_short(t->ep[1], &word, sizeof(word), bt->remotes[1].addr,
                                    bt->remotes[1].key.rkey));
        bt_check_puts(bt, first);
    }
}

/* Who has a batch waiting must not go to sleep over it. */
static void bt_arm_rank0(bt_t *bt)
{
    ut_t    *t = bt->t;
    unsigned round;

    for (round = 0; round < 20; ++round) {
        bt_burst(bt, 3);
        if (bt->turns[1] < bt->posted[1]) {
            CHECK_STATUS(uct_iface_event_arm(t->main.iface, UCT_EVENT_SEND_COMP), UCS_ERR_BUSY);
            CHECK_STATUS(uct_iface_event_arm(t->main.iface, UCT_EVENT_RECV), UCS_ERR_BUSY);
        }
        bt_wait(bt);
    }
}

/* The endpoint goes away under them: they arrive, and are completed. */
static void bt_destroy_rank0(bt_t *bt)
{
    const ut_remote_t *remote = &bt->remotes[1];
    ut_t              *t      = bt->t;
    ut_inside_t        inside;
    unsigned           round, first, i;

    for (round = 0; round < 40; ++round) {
        first = bt->nops;
        bt_burst(bt, 1 + round % 20);
        for (i = 0; (round % 8 == 0) && (i < 2000); ++i) { /* until there is no room for them */
            if (uct_ep_put_short(t->ep[1], "x", 1, remote->addr + BT_MEMORY - 1,
                                 remote->key.rkey) != UCS_OK) {
                break;
            }
        }
        uct_ep_destroy(t->ep[1]);
        ut_inside(t->main.iface, &inside);
        CHECK_EQ(inside.waiting, 0);
        bt_wait(bt);
        bt_check_puts(bt, first);
        t->ep[1] = ut_ep_create(&t->main, &t->addr[1]);
    }

    /* so does the interface: each ends all the same */
    bt_burst(bt, 5);
    uct_ep_destroy(t->ep[1]);
    t->ep[1] = NULL;
}

static void lengths(ut_t *t)
{
    bt_run(t, bt_lengths_rank0);
}

static void flood(ut_t *t)
{
    bt_run(t, bt_flood_rank0);
}

static void alternate(ut_t *t)
{
    bt_run(t, bt_alternate_rank0);
}

static void flush_waiting(ut_t *t)
{
    bt_run(t, bt_flush_rank0);
}

static void get_short_waiting(ut_t *t)
{
    bt_run(t, bt_get_short_rank0);
}

static void arm_waiting(ut_t *t)
{
    bt_run(t, bt_arm_rank0);
}

static void destroy_waiting(ut_t *t)
{
    unsigned i;

    bt_run(t, bt_destroy_rank0);
    /* the last burst ended with the interface */
    for (i = 0; (t->rank == 0) && (bt_ops[i].bt != NULL); ++i) {
        CHECK_EQ(bt_ops[i].comp.calls, bt_ops[i].posted == UCS_INPROGRESS);
    }
}

/* ---- fences -------------------------------------------------------------------------------- */

typedef struct {
    bt_t    *bt;
    uint64_t received;
} bt_fence_t;

static ucs_status_t bt_receive(void *arg, void *data, size_t length, unsigned flags)
{
    bt_fence_t *fence = arg;
    bt_order_t  order;

    (void)flags;
    CHECK_EQ(length, sizeof(order));
    memcpy(&order, data, sizeof(order));
    CHECK_DATA(fence->bt->far.addr + order.offset, order.length, order.seed);
    ++fence->received;
    return UCS_OK;
}

/* Puts that wait, a fence, a message of each: who gets the message sees the put. */
static void fence_waiting(ut_t *t)
{
    enum { PUTS = 18 };
    unsigned   rounds = ut_rounds(500), round, i;
    bt_order_t order  = {0};
    bt_fence_t fence;
    bt_t       bt;

    bt_init(&bt, t);
    fence.bt       = &bt;
    fence.received = 0;
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, BT_AM, bt_receive, &fence, 0));
    ut_barrier(t);
    for (round = 0; round < rounds; ++round) {
        if (t->rank == 0) {
            bt.nops = 0;
            bt.used = 0;
            for (i = 0; i < PUTS; ++i) {
                bt_next(&bt, 1, 0, 1 + ut_random(t) % 3000)->seed = round * PUTS + i;
                data_fill(bt.near.addr + bt_ops[i].offset, bt_ops[i].length, bt_ops[i].seed);
                bt_post(&bt_ops[i]);
            }
            CHECK_OK(round % 2 ? uct_ep_fence(t->ep[1], 0) : uct_iface_fence(t->main.iface, 0));
            for (i = 0; i < PUTS; ++i) {
                order.offset = bt_ops[i].offset;
                order.length = bt_ops[i].length;
                order.seed   = bt_ops[i].seed;
                POST_OK(t, uct_ep_am_short(t->ep[1], BT_AM, order.offset, &order.length,
                                           sizeof(order) - sizeof(order.offset)));
            }
            UT_WAIT(t, bt.turns[1] == bt.posted[1]);
            CHECK_EQ(ut_recv_word(t, 1), round);
        } else {
            UT_WAIT(t, fence.received == (uint64_t)(round + 1) * PUTS);
            ut_send_word(t, 0, round);
        }
    }
    ut_barrier(t);
    CHECK_EQ(t->main.errors, 0);
    bt_cleanup(&bt);
}

/* ---- faults -------------------------------------------------------------------------------- */

/*
 * One of many is bad: it, and all behind it, end with an error, each once, either at once or by
 * its completion; and nothing behind it arrives.
 */
static void bt_fault_round(bt_t *bt, unsigned bad, int is_get)
{
    enum { OPS = 24 };
    ut_t        *t = bt->t;
    unsigned     i;
    ucs_status_t status;
    ut_timer_t   timer = {0, 0};

    bt->nops = 0;
    for (i = 0; i < OPS; ++i) {
        bt_prepare(bt, 1, is_get, 64 + i);
    }
    for (i = 0; i < OPS; ++i) {
        bt_try(&bt_ops[i], (i == bad) ? BT_MEMORY : 0);
        CHECK((bt_ops[i].posted != UCS_OK) || (i < bad));
    }
    UT_WAIT(t, t->main.errors == 1);
    ut_progress_ms(t, 2);
    for (i = 0; i < OPS; ++i) {
        CHECK_EQ(bt_ops[i].comp.calls, bt_ops[i].posted == UCS_INPROGRESS);
        status = bt_ops[i].comp.calls ? bt_ops[i].comp.status : bt_ops[i].posted;
        CHECK((i < bad) || UCS_STATUS_IS_ERR(status));
        if (!is_get && (i >= bad)) {
            bt_tell(bt, &bt_ops[i], BT_CHECK_UNTAKEN);
        } else if (!is_get && (status == UCS_OK)) {
            bt_tell(bt, &bt_ops[i], BT_CHECK);
        }
    }
    CHECK_EQ(t->main.errors, 1);

    /* the peer lives: a new endpoint starts afresh */
    t->main.errors = 0;
    uct_ep_destroy(t->ep[1]);
    while (ut_ep_try_create(&t->main, &t->addr[1], &t->ep[1]) != UCS_OK) {
        ut_relax(t, &timer, __FILE__, __LINE__, "a new endpoint to a peer that had failed");
    }
}

static void bt_fault_rank0(bt_t *bt)
{
    static const unsigned bads[] = {0, 1, 7, 15, 16, 17, 23};
    unsigned              i;

    for (i = 0; i < 2 * sizeof(bads) / sizeof(bads[0]); ++i) {
        bt_fault_round(bt, bads[i / 2], i % 2);
        /* nothing of the old ones is left */
        memset(bt->posted, 0, sizeof(bt->posted));
        memset(bt->turns, 0, sizeof(bt->turns));
        bt->nops = 0;
        bt_post(bt_next(bt, 1, 0, 5000));
        bt_wait(bt);
        bt_check_puts(bt, 0);
        memset(bt->posted, 0, sizeof(bt->posted));
        memset(bt->turns, 0, sizeof(bt->turns));
    }
}

/* The second piece of two is beyond the region: what has begun with the first ends once. */
static void bt_fault_piece_rank0(bt_t *bt)
{
    ut_t              *t      = bt->t;
    const ut_remote_t *remote = &bt->remotes[1];
    bt_op_t           *op;
    uct_iov_t          iov[2];
    int                is_get;
    ut_timer_t         timer = {0, 0};

    for (is_get = 0; is_get < 2; ++is_get) {
        op = bt_next(bt, 1, is_get, 2000);
        ut_iov_cut(t, bt->near.addr + op->offset, op->length, bt->near.memh, iov, 2);
        iov[0].length  = 1000;
        iov[1].buffer  = (char *)iov[0].buffer + 1000;
        iov[1].length  = 1000;
        bt->nops       = 0;
        op->comp.calls = 0;
        op->posted     = (is_get ? uct_ep_get_zcopy : uct_ep_put_zcopy)(
            t->ep[1], iov, 2, remote->addr + BT_MEMORY - 1000, remote->key.rkey, &op->comp.super);
        CHECK(op->posted != UCS_OK);
        UT_WAIT(t, t->main.errors == 1);
        ut_progress_ms(t, 2);
        CHECK_EQ(op->comp.calls, op->posted == UCS_INPROGRESS);
        CHECK(UCS_STATUS_IS_ERR(op->comp.calls ? op->comp.status : op->posted));
        t->main.errors = 0;
        uct_ep_destroy(t->ep[1]);
        while (ut_ep_try_create(&t->main, &t->addr[1], &t->ep[1]) != UCS_OK) {
            ut_relax(t, &timer, __FILE__, __LINE__, "a new endpoint to a peer that had failed");
        }
    }
}

static void fault_in_piece(ut_t *t)
{
    bt_run(t, bt_fault_piece_rank0);
}

static void fault_in_batch(ut_t *t)
{
    bt_run(t, bt_fault_rank0);
}

/*
 * A peer dies while transfers wait for it; those to others go on, though their markers find the
 * dead one's batch in the way.
 */
static void death_in_batch(ut_t *t)
{
    enum { OPS = 5 };
    unsigned i;
    bt_t     bt;
    char     byte;

    bt_init(&bt, t);
    if (t->rank == 1) {
        ut_recv_word_still(t, 0);
        raise(SIGKILL);
    } else if (t->rank == 2) {
        bt_serve(&bt);
    } else {
        for (i = 0; i < OPS; ++i) {
            bt_try(bt_next(&bt, 1, i % 2, 300), 0);
        }
        ut_send_word(t, 1, 0);
        while (read(t->fd[1], &byte, 1) < 0) {
            /* until it is dead, without a turn of progress */
        }
        for (i = 0; i < 20; ++i) {
            bt_post(bt_prepare(&bt, 2, i % 2, 200));
        }
        UT_WAIT(t, bt.turns[2] == bt.posted[2]);
        UT_WAIT(t, t->main.errors == 1);
        ut_progress_ms(t, 2);
        for (i = 0; i < bt.nops; ++i) {
            CHECK_EQ(bt_ops[i].comp.calls, bt_ops[i].posted == UCS_INPROGRESS);
            CHECK((i < OPS) || (bt_ops[i].comp.status == UCS_OK));
        }
        bt_check_puts(&bt, OPS);
        ut_send(t, 2, &(bt_order_t){.kind = BT_END}, sizeof(bt_order_t));
        CHECK_EQ(t->main.errors, 1);
    }
    bt_cleanup(&bt);
}

/* Endpoints go away, to the dead peer and to another, before anybody has heard of the death. */
static void destroy_dead(ut_t *t)
{
    enum { OPS = 5 };
    unsigned i;
    bt_t     bt;
    char     byte;

    bt_init(&bt, t);
    if (t->rank == 1) {
        ut_recv_word_still(t, 0);
        raise(SIGKILL);
    } else if (t->rank == 2) {
        bt_serve(&bt);
    } else {
        /* none is asked for by itself: the dying peer's helper might perform it still */
        for (i = 0; i < OPS; ++i) {
            bt_try(bt_next(&bt, 1, i % 2, UCT_ANGARA_BATCH_LENGTH), 0);
        }
        ut_send_word(t, 1, 0);
        while (read(t->fd[1], &byte, 1) < 0) {
            /* until it is dead, without a turn of progress */
        }
        uct_ep_destroy(ut_ep_create(&t->main, &t->addr[2]));
        uct_ep_destroy(t->ep[1]);
        t->ep[1] = NULL;
        for (i = 0; i < OPS; ++i) {
            UT_WAIT(t, bt_ops[i].comp.calls == (bt_ops[i].posted == UCS_INPROGRESS));
            CHECK(!bt_ops[i].comp.calls || UCS_STATUS_IS_ERR(bt_ops[i].comp.status));
        }
        for (i = 0; i < 20; ++i) {
            bt_post(bt_prepare(&bt, 2, i % 2, 200));
        }
        UT_WAIT(t, bt.turns[2] == bt.posted[2]);
        bt_check_puts(&bt, OPS);
        ut_send(t, 2, &(bt_order_t){.kind = BT_END}, sizeof(bt_order_t));
    }
    bt_cleanup(&bt);
}

/* ---- the tests ----------------------------------------------------------------------------- */

BT_TEST(lengths, 2)
BT_TEST(flood, 2)
BT_TEST(alternate, 3)
BT_TEST(flush_waiting, 2)
BT_TEST(get_short_waiting, 2)
BT_TEST(arm_waiting, 2)
BT_TEST(destroy_waiting, 2)
BT_TEST(fence_waiting, 2)
BT_TEST(fault_in_batch, 2)
BT_TEST(fault_in_piece, 2)

static void test_death_in_batch(void **state)
{
    (void)state;
    ut_run_victims(3, death_in_batch, NULL, 1u << 1, SIGKILL);
}

static void test_destroy_dead(void **state)
{
    (void)state;
    ut_run_victims(3, destroy_dead, NULL, 1u << 1, SIGKILL);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),           cmocka_unit_test(test_flood),
        cmocka_unit_test(test_alternate),         cmocka_unit_test(test_flush_waiting),
        cmocka_unit_test(test_get_short_waiting), cmocka_unit_test(test_arm_waiting),
        cmocka_unit_test(test_destroy_waiting),   cmocka_unit_test(test_fence_waiting),
        cmocka_unit_test(test_fault_in_batch),    cmocka_unit_test(test_fault_in_piece),
        cmocka_unit_test(test_death_in_batch),    cmocka_unit_test(test_destroy_dead),
    };

    return ut_main(argc, argv, "batch", tests, sizeof(tests) / sizeof(tests[0]));
}
