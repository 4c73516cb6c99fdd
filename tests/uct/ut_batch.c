/* SPDX-License-Identifier: BSD-3-Clause */
/* Harness of test_batch.c, see ut_batch.h. Public API only. */
#include "ut_batch.h"

bt_op_t bt_ops[BT_OPS_MAX];

void bt_init(bt_t *bt, ut_t *t)
{
    memset(bt, 0, sizeof(*bt));
    ut_open(t);
    bt->t = t;
    ut_mem_init(t, &bt->near, UT_MEM_PRIVATE, BT_MEMORY);
    ut_mem_init(t, &bt->far, UT_MEM_PRIVATE, BT_MEMORY);
    memset(bt->near.addr, BT_UNTAKEN, BT_MEMORY);
    memset(bt->far.addr, BT_UNTAKEN, BT_MEMORY);
    ut_mem_exchange(t, &bt->far, bt->remotes);
    ut_barrier(t);
}

void bt_cleanup(bt_t *bt)
{
    ut_t *t = bt->t;

    ut_remotes_release(t, bt->remotes);
    ut_mem_cleanup(t, &bt->near);
    ut_mem_cleanup(t, &bt->far);
    ut_close_alone(t);
}

/* ---- the initiator ------------------------------------------------------------------------- */

static void bt_called(uct_completion_t *self)
{
    bt_op_t *op = (bt_op_t *)self;

    ++op->comp.calls;
    op->comp.status = self->status;
    op->turn        = ++op->bt->turns[op->rank];
    if (op->is_get && (op->comp.status == UCS_OK)) {
        CHECK_DATA(op->bt->near.addr + op->offset, op->length, op->seed); /* at once, not later */
    }
}

bt_op_t *bt_next(bt_t *bt, unsigned rank, int is_get, size_t length)
{
    bt_op_t *op = &bt_ops[bt->nops];

    CHECK(bt->nops < BT_OPS_MAX);
    CHECK(bt->used + length <= BT_MEMORY);
    ut_comp_init(&op->comp, 1);
    op->comp.super.func = bt_called;
    op->bt              = bt;
    op->rank            = rank;
    op->turn            = 0;
    op->is_get          = is_get;
    op->offset          = bt->used;
    op->length          = length;
    op->seed            = ++bt->nops;
    bt->used += length;
    if (!is_get) {
        data_fill(bt->near.addr + op->offset, length, op->seed);
    }
    return op;
}

ucs_status_t bt_try(bt_op_t *op, size_t beyond)
{
    bt_t              *bt     = op->bt;
    const ut_remote_t *remote = &bt->remotes[op->rank];
    uint64_t           addr   = remote->addr + op->offset + beyond;
    uct_ep_h           ep     = bt->t->ep[op->rank];
    uct_iov_t          iov    = {.buffer = bt->near.addr + op->offset,
                                 .length = op->length,
                                 .memh   = bt->near.memh,
                                 .count  = 1};

    op->posted = op->is_get ?
                     uct_ep_get_zcopy(ep, &iov, 1, addr, remote->key.rkey, &op->comp.super) :
                     uct_ep_put_zcopy(ep, &iov, 1, addr, remote->key.rkey, &op->comp.super);
    if (op->posted == UCS_INPROGRESS) {
        op->wants = ++bt->posted[op->rank];
    }
    return op->posted;
}

void bt_post(bt_op_t *op)
{
    ucs_status_t status = (ucs_status_t)UT_POST(op->bt->t, bt_try(op, 0));

    CHECK((status == UCS_OK) || (status == UCS_INPROGRESS));
}

void bt_check_ended(bt_t *bt)
{
    unsigned i;

    for (i = 0; i < bt->nops; ++i) {
        bt_op_t *op = &bt_ops[i];

        if (op->posted == UCS_OK) {
            CHECK_EQ(op->comp.calls, 0);
            continue;
        }
        CHECK_EQ(op->comp.calls, 1);
        CHECK_OK(op->comp.status);
        CHECK_EQ(op->turn, op->wants);
    }
}

void bt_wait(bt_t *bt)
{
    unsigned i;

    for (i = 0; i < RANK_MAX; ++i) {
        UT_WAIT(bt->t, bt->turns[i] == bt->posted[i]);
    }
    bt_check_ended(bt);
    ut_progress_ms(bt->t, 2);
    bt_check_ended(bt); /* and not once more */
}

/* ---- the targets --------------------------------------------------------------------------- */

void bt_tell(bt_t *bt, const bt_op_t *op, unsigned kind)
{
    bt_order_t order = {op->offset, op->length, op->seed, kind};

    ut_send(bt->t, op->rank, &order, sizeof(order));
    CHECK_EQ(ut_recv_word(bt->t, op->rank), op->seed);
}

void bt_end(bt_t *bt)
{
    bt_order_t order = {0, 0, 0, BT_END};
    unsigned   rank;

    for (rank = 1; rank < bt->t->nranks; ++rank) {
        ut_send(bt->t, rank, &order, sizeof(order));
    }
}

void bt_serve(bt_t *bt)
{
    bt_order_t order;
    size_t     i;

    for (;;) {
        ut_recv_still(bt->t, 0, &order, sizeof(order));
        switch (order.kind) {
        case BT_CHECK:
            CHECK_DATA(bt->far.addr + order.offset, order.length, order.seed);
            break;
        case BT_CHECK_UNTAKEN:
            for (i = 0; i < order.length; ++i) {
                CHECK_EQ((uint8_t)bt->far.addr[order.offset + i], BT_UNTAKEN);
            }
            break;
        case BT_FILL:
            data_fill(bt->far.addr + order.offset, order.length, order.seed);
            break;
        default:
            return;
        }
        ut_send_word(bt->t, 0, order.seed);
    }
}

void bt_check_puts(bt_t *bt, unsigned first)
{
    for (; first < bt->nops; ++first) {
        if (!bt_ops[first].is_get) {
            bt_tell(bt, &bt_ops[first], BT_CHECK);
        }
    }
}

bt_op_t *bt_prepare(bt_t *bt, unsigned rank, int is_get, size_t length)
{
    bt_op_t *op = bt_next(bt, rank, is_get, length);

    if (is_get) {
        bt_tell(bt, op, BT_FILL);
    }
    return op;
}

void bt_run(ut_t *t, void (*func)(bt_t *bt))
{
    bt_t bt;

    bt_init(&bt, t);
    if (t->rank == 0) {
        func(&bt);
        bt_end(&bt);
    } else {
        bt_serve(&bt);
    }
    ut_barrier(t);
    CHECK_EQ(t->main.errors, 0);
    bt_cleanup(&bt);
}
