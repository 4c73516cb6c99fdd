/* SPDX-License-Identifier: BSD-3-Clause */
/* Flush, fence, early messages and ends on the floor of channels. */
#include "channel_fabric.h"

static void add_early(pair_t *p, unsigned count)
{
    char     data[RECORD];
    unsigned i;

    for (i = 0; i < count; ++i) {
        memset(data, (int)(i % SENDERS), sizeof(data));
        assert_true(uct_angara_early_add(&p->ab->ch.early, &p->a->port.early,
                                         (uint8_t)(i % SENDERS), UCT_ANGARA_EARLY_SHORT, data,
                                         RECORD));
    }
    uct_angara_channel_update(&p->ab->ch);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Caught: an end told twice or never; a flush that ends as operations do; what waits in a batch and
 * is posted afterwards; another's batch that is lost. */
static void test_stop(void **state)
{
    pair_t              p     = start();
    link_t             *other = link_open(p.a, p.b);
    uct_angara_batch_t *batch = &p.a->port.batch;
    angara_xfer_t       xfer  = {.length = 64};

    (void)state;
    assert_int_equal(send_plain(p.ab, 1), UCS_OK);
    assert_int_equal(uct_angara_batch_add(&p.ab->ch, ANGARA_BATCH_PUT, &xfer), UCS_OK);
    put(p.ab, 1);
    fabric.is_refusing = 1;
    fabric.batch_max   = 0;
    assert_int_equal(flush(p.ab), UCS_INPROGRESS);
    uct_angara_channel_stop(&other->ch, UCS_ERR_CANCELED, UCS_ERR_CANCELED, 1);
    assert_int_equal(batch->count, 1); /* another's */
    assert_int_equal(ended.calls, 0);

    uct_angara_channel_stop(&p.ab->ch, UCS_ERR_ENDPOINT_TIMEOUT, UCS_OK, 1);
    assert_int_equal(batch->count, 0);
    assert_int_equal(ended.calls, 2);
    assert_int_equal(ended.tag[0], 1);
    assert_int_equal(ended.status[0], UCS_ERR_ENDPOINT_TIMEOUT);
    assert_int_equal(ended.status[1], UCS_OK);
    assert_false(uct_angara_channel_is_dirty(&p.ab->ch));
    assert_false(uct_angara_channel_has_work(&p.ab->ch));
    fabric.is_refusing = 0;
    fabric.batch_max   = ANGARA_BATCH_MAX;
    turns(&p);
    assert_int_equal(ended.calls, 2);
    assert_int_equal(fabric.transfers, 0);
    link_close(other);
    pair_close(&p);
}

/* Caught: a flush that asks about messages which have failed before, though none of them is its
 * own: a peer that leaves in order never takes them. */
static void test_stop_confirms(void **state)
{
    pair_t p = start();

    (void)state;
    assert_int_equal(send_plain(p.ab, 1), UCS_OK);
    uct_angara_channel_stop(&p.ab->ch, UCS_ERR_IO_ERROR, UCS_ERR_IO_ERROR, 1);
    p.ab->confirm = UCS_INPROGRESS;
    assert_int_equal(flush(p.ab), UCS_OK);
    put(p.ab, 1);
    assert_int_equal(flush(p.ab), UCS_INPROGRESS);
    arrive(0);
    turns(&p);
    assert_ended(2, FLUSH_TAG, UCS_OK);
    assert_int_equal(p.ab->confirms, 0);
    assert_false(uct_angara_channel_is_unconfirmed(&p.ab->ch));
    pair_close(&p);
}

/* Caught: a flush of a channel that failed which succeeds, or posts; one that the callback of an
 * early message's flush starts and nobody ends. */
static void test_failed(void **state)
{
    pair_t p = start();

    (void)state;
    assert_int_equal(send_plain(p.ab, 1), UCS_OK);
    p.ab->ch.status = UCS_ERR_IO_ERROR;
    uct_angara_channel_update(&p.ab->ch);
    assert_int_equal(p.ab->ch.blocked & UCT_ANGARA_BLOCK_FAILED, UCT_ANGARA_BLOCK_FAILED);
    assert_int_equal(uct_angara_channel_flush(&p.ab->ch, NULL, NULL, NULL), UCS_INPROGRESS);
    assert_int_equal(flush(p.ab), UCS_INPROGRESS);
    uct_angara_channel_fence(&p.ab->ch);
    assert_int_equal(p.ab->ch.is_fenced, 0);
    turns(&p);
    assert_int_equal(fabric.posted, 0);
    assert_int_equal(ended.calls, 0);
    uct_angara_channel_stop(&p.ab->ch, UCS_ERR_CANCELED, UCS_ERR_IO_ERROR, 1);
    assert_ended(1, FLUSH_TAG, UCS_ERR_IO_ERROR);
    pair_close(&p);
}

/* As a user may: its callback flushes again. */
static void on_end_flush(uct_angara_port_t *port, uct_angara_op_t *op, ucs_status_t status)
{
    link_t *link = (link_t *)op->ch;

    on_end(port, op, status);
    assert_int_equal(flush(link), UCS_INPROGRESS);
}

/* Caught: a flush that is started by the end of another, behind early messages, and never ends. */
static void test_flush_again(void **state)
{
    pair_t p = start();

    (void)state;
    p.ab->ch.is_open = 0;
    add_early(&p, 1);
    assert_int_equal(uct_angara_channel_flush(&p.ab->ch, on_end_flush, NULL, &p), UCS_INPROGRESS);
    p.ab->ch.status = UCS_ERR_IO_ERROR;
    uct_angara_channel_update(&p.ab->ch);
    uct_angara_channel_stop(&p.ab->ch, UCS_ERR_IO_ERROR, UCS_ERR_CANCELED, 1);
    assert_int_equal(ended.status[0], UCS_ERR_IO_ERROR);
    assert_ended(2, FLUSH_TAG, UCS_ERR_CANCELED);
    pair_close(&p);
}

/* ---- flush ----------------------------------------------------------------------------------- */

/* Caught: a flush that ends before an older operation has; a polled one that is never answered, or
 * posts a marker each time. */
static void test_flush_order(void **state)
{
    pair_t   p = start();
    unsigned i;

    (void)state;
    assert_int_equal(flush(p.ab), UCS_OK); /* of nothing */
    put(p.ab, 1);
    assert_int_equal(uct_angara_channel_post_marker(&p.ab->ch), UCS_OK);
    assert_int_equal(flush(p.ab), UCS_INPROGRESS);
    arrive(0);
    assert_int_equal(uct_angara_channel_flush(&p.ab->ch, NULL, NULL, NULL), UCS_INPROGRESS);
    turns(&p);
    assert_int_equal(ended.tag[0], 1);
    assert_ended(2, FLUSH_TAG, UCS_OK);
    assert_int_equal(fabric.posted, 1);

    p.ab->ch.rma_dirty = 1;
    fabric.is_refusing = 1;
    assert_int_equal(uct_angara_channel_flush(&p.ab->ch, NULL, NULL, NULL), UCS_INPROGRESS);
    fabric.is_refusing = 0;
    turns(&p); /* the flush isn't asked again: the turn posts what it wants */
    assert_int_equal(fabric.posted, 2);
    for (i = 0; i < 3; ++i) {
        assert_int_equal(uct_angara_channel_flush(&p.ab->ch, NULL, NULL, NULL), UCS_INPROGRESS);
    }
    arrive(1);
    assert_int_equal(uct_angara_channel_flush(&p.ab->ch, NULL, NULL, NULL), UCS_OK);
    assert_int_equal(fabric.posted, 2);
    assert_int_equal(p.ab->confirms, 0); /* no message, nothing to ask */
    pair_close(&p);
}

/* Caught: a flush that nobody asks the owner about, because an earlier one was confirmed after its
 * messages had been sent, but before they had landed. */
static void test_confirm_each(void **state)
{
    pair_t p = start();

    (void)state;
    assert_int_equal(send_plain(p.ab, 1), UCS_OK);
    assert_int_equal(flush(p.ab), UCS_INPROGRESS);
    assert_int_equal(send_plain(p.ab, 2), UCS_OK);
    assert_int_equal(flush(p.ab), UCS_INPROGRESS);
    assert_int_equal(fabric.posted, 2);
    arrive(0);
    turns(&p);
    assert_ended(1, FLUSH_TAG, UCS_OK);
    assert_int_equal(p.ab->confirms, 1);

    p.ab->confirm = UCS_INPROGRESS; /* it has given up the connection since */
    arrive(1);
    turns(&p);
    assert_int_equal(ended.calls, 1);
    assert_true(p.ab->confirms > 1);
    assert_int_equal(uct_angara_channel_flush(&p.ab->ch, NULL, NULL, NULL), UCS_INPROGRESS);
    uct_angara_channel_stop(&p.ab->ch, UCS_ERR_IO_ERROR, UCS_ERR_IO_ERROR, 1);
    assert_ended(2, FLUSH_TAG, UCS_ERR_IO_ERROR);
    pair_close(&p);
}

static void arrive_second(void)
{
    arrive(1);
}

/* Caught: the same, where the messages land after the owner has looked, but before it answers. */
static void test_confirm_late(void **state)
{
    pair_t p = start();

    (void)state;
    assert_int_equal(send_plain(p.ab, 1), UCS_OK);
    assert_int_equal(flush(p.ab), UCS_INPROGRESS);
    assert_int_equal(send_plain(p.ab, 2), UCS_OK);
    assert_int_equal(uct_angara_channel_post_marker(&p.ab->ch), UCS_OK);
    p.ab->while_asked = arrive_second;
    arrive(0);
    turns(&p);
    assert_ended(1, FLUSH_TAG, UCS_OK);
    p.ab->while_asked = NULL;
    p.ab->confirm     = UCS_INPROGRESS;
    assert_int_equal(flush(p.ab), UCS_INPROGRESS);
    assert_int_equal(p.ab->confirms, 2);
    pair_close(&p);
}

/* Caught: a flush that ends at once without a question, where its marker has arrived at once. */
static void test_confirm_now(void **state)
{
    pair_t p = start();

    (void)state;
    fabric.is_inline = 1;
    p.ab->confirm    = UCS_INPROGRESS;
    assert_int_equal(send_plain(p.ab, 1), UCS_OK);
    assert_int_equal(uct_angara_channel_flush(&p.ab->ch, NULL, NULL, NULL), UCS_INPROGRESS);
    assert_int_equal(p.ab->confirms, 1);
    p.ab->confirm = UCS_OK;
    assert_int_equal(uct_angara_channel_flush(&p.ab->ch, NULL, NULL, NULL), UCS_OK);
    assert_int_equal(p.ab->confirms, 2);
    pair_close(&p);
}

/* Caught: messages that count as unconfirmed after a flush, or are asked about once more. */
static void test_confirmed(void **state)
{
    pair_t p = start();

    (void)state;
    assert_int_equal(send_plain(p.ab, 1), UCS_OK);
    assert_true(uct_angara_channel_is_unconfirmed(&p.ab->ch));
    assert_int_equal(flush(p.ab), UCS_INPROGRESS);
    arrive(0);
    turns(&p);
    assert_ended(1, FLUSH_TAG, UCS_OK);
    assert_int_equal(p.ab->confirms, 1);
    assert_false(uct_angara_channel_is_unconfirmed(&p.ab->ch));
    assert_int_equal(flush(p.ab), UCS_OK);
    assert_int_equal(p.ab->confirms, 1);
    pair_close(&p);
}

/* Caught: messages that count as unconfirmed after a flush, because a later marker is under way. */
static void test_confirmed_before(void **state)
{
    pair_t p = start();

    (void)state;
    assert_int_equal(send_plain(p.ab, 1), UCS_OK);
    assert_int_equal(flush(p.ab), UCS_INPROGRESS);
    p.ab->ch.is_credit_dirty = 1;
    assert_int_equal(uct_angara_channel_post_marker(&p.ab->ch), UCS_OK);
    assert_int_equal(fabric.posted, 2);
    arrive(0);
    turns(&p);
    assert_ended(1, FLUSH_TAG, UCS_OK);
    assert_false(uct_angara_channel_is_unconfirmed(&p.ab->ch));
    pair_close(&p);
}

/* Caught: a credit under way that counts as something that a user asked for; an operation under way
 * that doesn't. */
static void test_credit_under_way(void **state)
{
    pair_t p = start();

    (void)state;
    p.ab->ch.is_credit_dirty = 1;
    assert_int_equal(uct_angara_channel_flush_ours(&p.ab->ch, on_end, 5), UCS_INPROGRESS);
    assert_int_equal(fabric.posted, 1);
    assert_false(uct_angara_channel_has_rma(&p.ab->ch));
    assert_false(uct_angara_channel_is_unconfirmed(&p.ab->ch));

    p.ab->ch.rma_dirty = 1;
    assert_true(uct_angara_channel_has_rma(&p.ab->ch));
    assert_int_equal(uct_angara_channel_post_marker(&p.ab->ch), UCS_OK);
    assert_true(uct_angara_channel_has_rma(&p.ab->ch));
    p.ab->ch.is_credit_dirty = 1;
    assert_int_equal(uct_angara_channel_post_marker(&p.ab->ch), UCS_OK);
    arrive(0);
    assert_true(uct_angara_channel_is_unconfirmed(&p.ab->ch));
    arrive(1); /* the last credit is still under way */
    assert_false(uct_angara_channel_has_rma(&p.ab->ch));
    assert_false(uct_angara_channel_is_unconfirmed(&p.ab->ch));
    arrive(2);
    turns(&p);
    assert_ended(1, 5, UCS_OK);
    pair_close(&p);
}

/* Caught: the owner that is asked about, or told of, what it waits for itself. */
static void test_ours(void **state)
{
    pair_t p = start();

    (void)state;
    p.ab->confirm = UCS_INPROGRESS;
    assert_int_equal(send_plain(p.ab, 1), UCS_OK);
    assert_int_equal(uct_angara_channel_flush_ours(&p.ab->ch, on_end, 5), UCS_INPROGRESS);
    assert_false(uct_angara_channel_has_user_ops(&p.ab->ch));
    arrive(0);
    p.ab->ch.tx.confirmed = p.ab->ch.tx.head;
    assert_false(uct_angara_channel_is_unconfirmed(&p.ab->ch)); /* an op of the owner's is none */
    p.ab->ch.tx.confirmed = 0;
    turns(&p);
    assert_ended(1, 5, UCS_OK);
    assert_int_equal(uct_angara_channel_flush_ours(&p.ab->ch, on_end, 5), UCS_OK);
    assert_int_equal(p.ab->confirms, 0);
    put(p.ab, 1);
    assert_true(uct_angara_channel_has_user_ops(&p.ab->ch));
    pair_close(&p);
}

/* ---- fence ----------------------------------------------------------------------------------- */

/* Caught: a fence that is over before its marker, or with an older one; one that waits for
 * nothing. */
static void test_fence(void **state)
{
    pair_t p = start();

    (void)state;
    uct_angara_channel_fence(&p.ab->ch);
    assert_int_equal(p.ab->ch.is_fenced, 0); /* there is nothing before it */
    put(p.ab, 1);
    assert_int_equal(uct_angara_channel_post_marker(&p.ab->ch), UCS_OK);
    p.ab->ch.rma_dirty = 1;
    uct_angara_channel_fence(&p.ab->ch);
    assert_int_equal(fabric.posted, 2);
    turns(&p);
    assert_int_equal(p.ab->ch.blocked, UCT_ANGARA_BLOCK_FENCE);
    assert_int_equal(uct_angara_channel_check_fence(&p.ab->ch), UCS_ERR_NO_RESOURCE);
    assert_int_equal(send_plain(p.ab, 1), UCS_ERR_NO_RESOURCE);
    assert_int_equal(p.ab->admits, 1);
    arrive(0);
    turns(&p);
    assert_ended(1, 1, UCS_OK);
    assert_int_equal(p.ab->ch.blocked, UCT_ANGARA_BLOCK_FENCE);
    arrive(1);
    turns(&p);
    assert_int_equal(p.ab->ch.blocked, 0);
    assert_int_equal(send_plain(p.ab, 1), UCS_OK);
    UNTIL(&p, p.b->delivered == 1);
    pair_close(&p);
}

/* ---- early messages -------------------------------------------------------------------------- */

/* Caught: a flush or a fence that comes before early messages, or before some of them; another
 * message that does; the owner asked about them. */
static void test_early_first(void **state)
{
    enum { EARLY = 10, ROOM = 4 };
    pair_t   p = start();
    unsigned sent, posted;

    (void)state;
    fabric.is_inline = 1;
    assert_int_equal(uct_angara_channel_post_marker(&p.ab->ch), UCS_OK); /* an older one is here */
    fabric.is_inline = 0;
    for (sent = 0; sent < SLOTS - 1 - ROOM; ++sent) {
        assert_int_equal(send_plain(p.ab, 0), UCS_OK);
    }
    add_early(&p, EARLY);
    assert_int_equal(p.ab->ch.blocked, UCT_ANGARA_BLOCK_RING);
    assert_int_equal(flush(p.ab), UCS_INPROGRESS);
    assert_int_equal(uct_angara_channel_flush(&p.ab->ch, NULL, NULL, NULL), UCS_INPROGRESS);
    uct_angara_channel_fence(&p.ab->ch);
    posted = fabric.posted;
    assert_int_equal(uct_angara_channel_check_fence(&p.ab->ch), UCS_ERR_NO_RESOURCE);

    assert_int_equal(uct_angara_channel_send_early(&p.ab->ch), ROOM); /* then the ring is full */
    assert_int_equal(p.ab->admits, 0);
    assert_int_equal(p.ab->ch.early.count, EARLY - ROOM);
    assert_int_equal(p.ab->ch.blocked, UCT_ANGARA_BLOCK_RING | UCT_ANGARA_BLOCK_FENCE);
    assert_int_equal(uct_angara_channel_check_fence(&p.ab->ch), UCS_ERR_NO_RESOURCE);
    UNTIL(&p, *p.ab->ch.tx.credit > ROOM);
    fabric.is_inline = 1;
    turns(&p);
    fabric.is_inline = 0;
    assert_int_equal(ended.calls, 0);
    assert_int_equal(fabric.posted, posted);
    assert_int_equal(send_plain(p.ab, 0), UCS_ERR_NO_RESOURCE);
    assert_int_equal(p.ab->admits, 1);

    UNTIL(&p, uct_angara_early_is_empty(&p.ab->ch.early) ||
                  (uct_angara_channel_send_early(&p.ab->ch) > EARLY));
    turns(&p);
    assert_int_equal(p.ab->admits, 1);
    assert_int_equal(ended.calls, 0);
    assert_int_equal(p.ab->ch.blocked, UCT_ANGARA_BLOCK_FENCE);
    while (posted < fabric.posted) {
        arrive(posted++);
    }
    turns(&p);
    assert_ended(1, FLUSH_TAG, UCS_OK);
    assert_int_equal(p.ab->ch.blocked, 0);
    UNTIL(&p, p.b->delivered == sent + EARLY);
    assert_int_equal(p.a->port.early.used, 0);
    pair_close(&p);
}

/* Caught: early messages that are kept though they are to be dropped, or dropped though they are
 * another's; a flush behind them that ends with the others. */
static void test_early_end(void **state)
{
    pair_t p = start();

    (void)state;
    p.ab->ch.is_open = 0;
    add_early(&p, 3);
    assert_int_equal(flush(p.ab), UCS_INPROGRESS);
    uct_angara_channel_fence(&p.ab->ch);
    uct_angara_channel_stop(&p.ab->ch, UCS_ERR_IO_ERROR, UCS_OK, 0);
    assert_int_equal(ended.calls, 0);
    assert_int_equal(p.ab->ch.early.count, 3);
    assert_int_equal(p.ab->ch.is_fenced, 1);
    uct_angara_channel_stop(&p.ab->ch, UCS_ERR_REJECTED, UCS_OK, 1);
    assert_ended(1, FLUSH_TAG, UCS_ERR_REJECTED);
    assert_int_equal(p.ab->ch.early.count, 0);
    assert_int_equal(p.ab->ch.is_fenced, 0);
    assert_int_equal(p.a->port.early.used, 0);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_stop_confirms),
        cmocka_unit_test(test_failed),
        cmocka_unit_test(test_flush_again),
        cmocka_unit_test(test_flush_order),
        cmocka_unit_test(test_confirm_each),
        cmocka_unit_test(test_confirm_late),
        cmocka_unit_test(test_confirm_now),
        cmocka_unit_test(test_confirmed),
        cmocka_unit_test(test_confirmed_before),
        cmocka_unit_test(test_credit_under_way),
        cmocka_unit_test(test_ours),
        cmocka_unit_test(test_fence),
        cmocka_unit_test(test_early_first),
        cmocka_unit_test(test_early_end),
    };

    return cmocka_run_group_tests_name("channel_flush", tests, domain_open, domain_close);
}
