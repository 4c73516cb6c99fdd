/* SPDX-License-Identifier: BSD-3-Clause */
/* Markers on the floor of channels, their slots, batches and bounce buffers: what ends, and when.
 */
#include "channel_fabric.h"

/* ---- markers --------------------------------------------------------------------------------- */

/* Caught: an operation that ends before its marker, with another's, or in another order. */
static void test_order(void **state)
{
    pair_t   p = start();
    unsigned i;

    (void)state;
    for (i = 0; i < 3; ++i) {
        put(p.ab, 10 + i);
        assert_int_equal(uct_angara_channel_post_marker(&p.ab->ch), UCS_OK);
        assert_false(uct_angara_channel_is_dirty(&p.ab->ch));
    }
    fabric.is_refusing = 1;
    put(p.ab, 13);
    turns(&p);
    assert_int_equal(ended.calls, 0);
    for (i = 0; i < 3; ++i) {
        arrive(i);
        turns(&p);
        assert_ended(i + 1, 10 + i, UCS_OK);
    }
    assert_int_equal(fabric.posted, 3);
    fabric.is_refusing = 0;
    turns(&p);
    assert_int_equal(fabric.posted, 4); /* one is wanted, and no more */
    assert_int_equal(ended.calls, 3);
    arrive(3);
    turns(&p);
    assert_ended(4, 13, UCS_OK);
    pair_close(&p);
}

/* Caught: a marker for each operation of a turn; one that doesn't cover it; one operation that ends
 * before an older one. */
static void test_try_complete(void **state)
{
    pair_t   p = start();
    uint64_t value;

    (void)state;
    put(p.ab, 1);
    put(p.ab, 2);
    assert_int_equal(fabric.posted, 0);
    turns(&p);
    assert_int_equal(fabric.posted, 1);
    assert_int_equal(ended.calls, 0);
    arrive(0);
    turns(&p);
    assert_ended(2, 2, UCS_OK);

    p.a->port.is_inline = 1;
    put(p.ab, 3); /* asked at once, not arrived yet */
    assert_int_equal(fabric.posted, 2);
    put(p.ab, 4); /* of the next one */
    assert_int_equal(fabric.posted, 2);
    arrive(1);
    put(p.ab, 5); /* 3 has arrived and not ended */
    assert_int_equal(fabric.posted, 2);
    assert_int_equal(ended.calls, 2);
    turns(&p);
    assert_ended(3, 3, UCS_OK);
    arrive(2);
    turns(&p);
    assert_ended(5, 5, UCS_OK);

    assert_int_equal(uct_angara_channel_post_marker(&p.ab->ch), UCS_OK);
    p.ab->ch.rma_dirty = 1; /* nobody waits, but one is under way */
    assert_int_equal(uct_angara_channel_try_complete(&p.ab->ch, &value), UCS_INPROGRESS);
    assert_int_equal(fabric.posted, 4);
    arrive(3);
    fabric.is_inline = 1;
    assert_int_equal(uct_angara_channel_try_complete(&p.ab->ch, &value), UCS_OK);
    assert_int_equal(fabric.posted, 5);
    pair_close(&p);
}

/* Caught: a marker where the library says that all is performed; no marker where a batch, a ready
 * word or an older operation still waits; what is settled and counts as dirty all the same. */
static void test_settled(void **state)
{
    pair_t        p    = start();
    angara_xfer_t xfer = {.length = 64};
    uint64_t      value;

    (void)state;
    fabric.is_settled = 1;
    put(p.ab, 1); /* asked for where nothing completes in the call */
    turns(&p);
    assert_int_equal(fabric.posted, 1);
    p.a->port.is_inline = 1;
    p.ab->ch.rma_dirty  = 1;
    assert_int_equal(uct_angara_channel_try_complete(&p.ab->ch, &value), UCS_INPROGRESS);
    assert_int_equal(value, 2);
    arrive(0);
    turns(&p);
    assert_ended(1, 1, UCS_OK);

    p.ab->ch.rma_dirty = 1;
    assert_int_equal(uct_angara_channel_try_complete(&p.ab->ch, &value), UCS_OK);
    assert_false(uct_angara_channel_is_dirty(&p.ab->ch));
    assert_int_equal(send_plain(p.ab, 1), UCS_OK);
    assert_int_equal(flush(p.ab), UCS_OK);
    p.ab->ch.rma_dirty = 1;
    uct_angara_channel_fence(&p.ab->ch);
    assert_int_equal(uct_angara_channel_check_fence(&p.ab->ch), UCS_OK);
    assert_false(uct_angara_channel_is_dirty(&p.ab->ch));
    assert_int_equal(fabric.posted, 1);

    fabric.is_settled  = 0;
    fabric.settles     = 1; /* in a moment */
    p.ab->ch.rma_dirty = 1;
    assert_int_equal(flush(p.ab), UCS_OK);
    assert_int_equal(fabric.posted, 1);
    fabric.settles = 0;

    assert_int_equal(uct_angara_batch_add(&p.ab->ch, ANGARA_BATCH_PUT, &xfer), UCS_OK);
    put(p.ab, 2);
    assert_int_equal(fabric.transfers, 1); /* before the marker */
    assert_int_equal(fabric.posted, 2);
    fabric.is_settled = 0;
    arrive(1);
    turns(&p);
    p.ab->ch.tx.ready_owed = 1;
    fabric.is_settled      = 1;
    assert_int_equal(uct_angara_channel_try_complete(&p.ab->ch, &value), UCS_INPROGRESS);
    p.ab->ch.tx.ready_owed = 0;
    pair_close(&p);
}

/* Caught: a marker that overtakes a ready word that is owed; credits that no marker covers. */
static void test_covers(void **state)
{
    pair_t p = start();

    (void)state;
    p.ab->ch.is_credit_dirty = 1;
    assert_true(uct_angara_channel_is_dirty(&p.ab->ch));
    assert_int_equal(uct_angara_channel_flush_ours(&p.ab->ch, on_end, 1), UCS_INPROGRESS);
    assert_int_equal(fabric.posted, 1);
    assert_false(uct_angara_channel_is_dirty(&p.ab->ch));
    arrive(0);
    turns(&p);
    assert_ended(1, 1, UCS_OK);

    p.ab->ch.tx.ready_owed = 1;
    assert_true(uct_angara_channel_is_dirty(&p.ab->ch));
    assert_int_equal(uct_angara_channel_post_marker(&p.ab->ch), UCS_ERR_NO_RESOURCE);
    p.ab->ch.tx.ready_owed = 0;
    pair_close(&p);
}

/* ---- marker slots ---------------------------------------------------------------------------- */

#define SLOTS_MAX 65536

static angara_marker_slot_t *taken[SLOTS_MAX];
static unsigned              ntaken;

static void take_slots(side_t *side)
{
    for (ntaken = 0; angara_marker_slot_get(side->port.pe, &taken[ntaken]) == ANGARA_OK;) {
        assert_true(++ntaken < SLOTS_MAX);
    }
}

static void return_slots(side_t *side)
{
    while (ntaken > 0) {
        angara_marker_slot_put(side->port.pe, taken[--ntaken]);
    }
}

/* Caught: a slot that is taken from a channel for which somebody waits, or a marker is under way,
 * or a fence; one that an idle channel keeps. */
static void test_busy_slot(void **state)
{
    enum { UNDER_WAY, ENDING, WANTED, FENCED, KINDS };
    unsigned kind;
    link_t  *other;
    pair_t   p;

    (void)state;
    for (kind = 0; kind < KINDS; ++kind) {
        p                  = start();
        other              = link_open(p.a, p.b);
        p.ab->ch.rma_dirty = 1;
        if (kind == FENCED) {
            uct_angara_channel_fence(&p.ab->ch);
            assert_int_equal(p.ab->ch.blocked, UCT_ANGARA_BLOCK_FENCE);
        } else {
            assert_int_equal(uct_angara_channel_post_marker(&p.ab->ch), UCS_OK);
        }
        if (kind == ENDING) {
            uct_angara_channel_enqueue(&p.ab->ch, op_new(p.ab, 1), p.ab->ch.markers.posted);
        } else if (kind == WANTED) {
            fabric.is_refusing = 1;
            p.ab->ch.rma_dirty = 1;
            assert_int_equal(uct_angara_channel_flush(&p.ab->ch, NULL, NULL, NULL), UCS_INPROGRESS);
            fabric.is_refusing = 0;
        }
        if (kind != UNDER_WAY) {
            arrive(0);
        }
        take_slots(p.a);
        other->ch.rma_dirty = 1;
        assert_int_equal(uct_angara_channel_post_marker(&other->ch), UCS_ERR_NO_RESOURCE);
        assert_non_null(p.ab->ch.markers.slot);

        fabric.is_inline = 1;
        arrive(0);
        turns(&p);
        assert_int_equal(uct_angara_channel_post_marker(&other->ch), UCS_OK);
        assert_null(p.ab->ch.markers.slot);
        return_slots(p.a);
        link_close(other);
        pair_close(&p);
    }
}

/* Caught: operations, a fence or a polled flush that began without a slot and end with the slot's
 * old value, or never. */
static void test_late_slot(void **state)
{
    enum { OP, FENCE, POLLED, KINDS };
    unsigned kind;
    pair_t   p;

    (void)state;
    for (kind = 0; kind < KINDS; ++kind) {
        p = start();
        take_slots(p.a);
        p.ab->ch.rma_dirty = 1;
        if (kind == OP) {
            uct_angara_channel_enqueue(&p.ab->ch, op_new(p.ab, 1), 1);
        } else if (kind == FENCE) {
            uct_angara_channel_fence(&p.ab->ch);
        } else {
            assert_int_equal(uct_angara_channel_flush(&p.ab->ch, NULL, NULL, NULL), UCS_INPROGRESS);
        }
        turns(&p);
        assert_int_equal(fabric.posted, 0);
        while (ntaken > 0) { /* whichever is given, it has been in use */
            *taken[ntaken - 1] = 1000;
            angara_marker_slot_put(p.a->port.pe, taken[--ntaken]);
        }
        turns(&p);
        assert_int_equal(fabric.posted, 1);
        assert_int_equal(fabric.value[0], 1001);
        assert_int_equal(ended.calls, 0);
        assert_int_equal(p.ab->ch.blocked, (kind == FENCE) ? UCT_ANGARA_BLOCK_FENCE : 0);
        arrive(0);
        turns(&p);
        assert_int_equal(ended.calls, kind == OP);
        assert_int_equal(p.ab->ch.blocked, 0);
        assert_int_equal(uct_angara_channel_flush(&p.ab->ch, NULL, NULL, NULL), UCS_OK);
        assert_int_equal(fabric.posted, 1);
        pair_close(&p);
    }
}

static link_t *thief;

static void on_end_steal(uct_angara_port_t *port, uct_angara_op_t *op, ucs_status_t status)
{
    link_t *link = (link_t *)op->ch;

    on_end(port, op, status);
    assert_non_null(link->ch.markers.slot);
    thief->ch.rma_dirty = 1;
    assert_int_equal(uct_angara_channel_post_marker(&thief->ch), UCS_OK);
    assert_null(link->ch.markers.slot);
    put(link, 2);
}

/* Caught: a slot that is looked at though it is another channel's by now, since what ended last has
 * started something there. */
static void test_slot_stolen(void **state)
{
    pair_t           p = start();
    uct_angara_op_t *op;

    (void)state;
    thief = link_open(p.a, p.b);
    assert_int_equal(uct_angara_channel_post_marker(&p.ab->ch), UCS_OK);
    op       = op_new(p.ab, 1);
    op->func = on_end_steal;
    uct_angara_channel_enqueue(&p.ab->ch, op, p.ab->ch.markers.posted);
    take_slots(p.a);
    arrive(0);
    turns(&p);
    assert_ended(1, 1, UCS_OK);
    assert_int_equal(fabric.posted, 2);
    arrive(1);
    turns(&p);
    assert_int_equal(fabric.posted, 3);
    assert_ended(1, 1, UCS_OK);
    arrive(2);
    turns(&p);
    assert_ended(2, 2, UCS_OK);
    return_slots(p.a);
    link_close(thief);
    pair_close(&p);
}

/* Caught: a slot that is never given back. */
static void test_slot_returned(void **state)
{
    pair_t   p = start();
    link_t  *other;
    unsigned count, i;

    (void)state;
    take_slots(p.a);
    count = ntaken;
    return_slots(p.a);
    for (i = 0; i < 3; ++i) {
        other = link_open(p.a, p.b);
        assert_int_equal(uct_angara_channel_post_marker(&other->ch), UCS_OK);
        if (i == 0) {
            link_close(other); /* stopped first */
        } else {
            angara_peer_h ap = other->ch.ap;

            uct_angara_channel_cleanup(&other->ch);
            angara_peer_disconnect(ap);
            free(other);
        }
    }
    take_slots(p.a);
    assert_int_equal(ntaken, count);
    return_slots(p.a);
    pair_close(&p);
}

/* ---- self-markers ---------------------------------------------------------------------------- */

static void self_put(link_t *link, unsigned tag)
{
    uint64_t value;

    assert_int_equal(uct_angara_self_try_complete(link->ch.port, &value), UCS_INPROGRESS);
    uct_angara_self_enqueue(link->ch.port, op_new(link, tag), value);
}

/* Caught: a flush that ends before puts whose sources are still read; an end of another channel's.
 */
static void test_self(void **state)
{
    pair_t   p     = start();
    link_t  *other = link_open(p.a, p.b);
    unsigned first;

    (void)state;
    self_put(p.ab, 1);
    p.ab->ch.rma_dirty = 1;
    assert_true(uct_angara_channel_has_user_ops(&p.ab->ch));
    assert_int_equal(uct_angara_channel_flush_ours(&p.ab->ch, on_end, 9), UCS_INPROGRESS);
    assert_int_equal(flush(p.ab), UCS_INPROGRESS);
    arrive(fabric.posted - 1); /* that of the channel */
    turns(&p);
    assert_ended(1, 9, UCS_OK);
    assert_int_equal(uct_angara_channel_flush_ours(&p.ab->ch, on_end, 9), UCS_OK);
    assert_int_equal(uct_angara_channel_flush(&p.ab->ch, NULL, NULL, NULL), UCS_INPROGRESS);
    assert_int_equal(uct_angara_self_progress(&p.a->port), 0);
    while (ended.calls < 3) {
        arrive(fabric.posted - 1);
        arrive(0);
        uct_angara_self_progress(&p.a->port);
    }
    assert_int_equal(ended.tag[1], 1);
    assert_ended(3, FLUSH_TAG, UCS_OK);

    first = ended.calls;
    self_put(p.ab, 2);
    self_put(other, 3);
    uct_angara_channel_fail_ops(&p.ab->ch, UCS_ERR_CANCELED, UCS_OK);
    assert_ended(first + 1, 2, UCS_ERR_CANCELED);
    uct_angara_channel_fail_ops(&other->ch, UCS_ERR_CANCELED, UCS_OK);
    assert_ended(first + 2, 3, UCS_ERR_CANCELED);
    assert_int_equal(p.a->port.self_waits, 0);
    link_close(other);
    pair_close(&p);
}

/* ---- batches and bounce buffers -------------------------------------------------------------- */

static ucs_status_t add(link_t *link, angara_batch_op_t op, size_t length)
{
    angara_xfer_t xfer = {.length = length};

    return uct_angara_batch_add(&link->ch, op, &xfer);
}

/* Caught: a marker that overtakes the batch that it tells of. */
static void test_batch_marker(void **state)
{
    pair_t p = start();

    (void)state;
    assert_int_equal(add(p.ab, ANGARA_BATCH_PUT, 1), UCS_OK);
    assert_true(uct_angara_channel_is_dirty(&p.ab->ch));
    fabric.batch_max = 0;
    assert_int_equal(uct_angara_channel_post_marker(&p.ab->ch), UCS_ERR_NO_RESOURCE);
    assert_int_equal(fabric.posted, 0);
    fabric.batch_max = ANGARA_BATCH_MAX;
    assert_int_equal(uct_angara_channel_post_marker(&p.ab->ch), UCS_OK);
    assert_int_equal(fabric.transfers, 1);
    assert_int_equal(fabric.before_batch, 0);
    assert_int_equal(fabric.posted, 1);
    arrive(0);
    pair_close(&p);
}

/* Caught: more transfers or bytes than a batch may have; two directions or two peers in one; what
 * was posted in part and is posted again, or lost. */
static void test_batch_limits(void **state)
{
    pair_t   p     = start();
    link_t  *other = link_open(p.a, p.b);
    unsigned i;

    (void)state;
    for (i = 1; i <= ANGARA_BATCH_MAX; ++i) {
        assert_int_equal(add(p.ab, ANGARA_BATCH_PUT, i), UCS_OK);
    }
    assert_int_equal(fabric.transfers, 0);
    fabric.batch_max = 5;
    assert_int_equal(add(p.ab, ANGARA_BATCH_PUT, i), UCS_ERR_NO_RESOURCE);
    assert_int_equal(fabric.transfers, 5);
    fabric.batch_max = ANGARA_BATCH_MAX;
    assert_int_equal(uct_angara_batch_push(&p.a->port), UCS_OK);
    assert_int_equal(fabric.transfers, ANGARA_BATCH_MAX);
    for (i = 0; i < ANGARA_BATCH_MAX; ++i) {
        assert_int_equal(fabric.lengths[i], i + 1);
    }

    assert_int_equal(add(p.ab, ANGARA_BATCH_PUT, 1), UCS_OK);
    assert_int_equal(add(p.ab, ANGARA_BATCH_GET, 1), UCS_OK);
    assert_int_equal(fabric.transfers, ANGARA_BATCH_MAX + 1);
    assert_int_equal(fabric.batch_op, ANGARA_BATCH_PUT);
    assert_int_equal(add(other, ANGARA_BATCH_GET, 1), UCS_OK);
    assert_int_equal(fabric.transfers, ANGARA_BATCH_MAX + 2);
    assert_int_equal(fabric.batch_op, ANGARA_BATCH_GET);
    assert_ptr_equal(fabric.batch_peer, p.ab->ch.ap);
    assert_int_equal(uct_angara_batch_push(&p.a->port), UCS_OK);

    fabric.transfers = 0;
    for (i = 0; i < UCT_ANGARA_BATCH_BYTES / UCT_ANGARA_BATCH_LENGTH; ++i) {
        assert_int_equal(add(p.ab, ANGARA_BATCH_PUT, UCT_ANGARA_BATCH_LENGTH), UCS_OK);
    }
    assert_int_equal(fabric.transfers, 0);
    assert_int_equal(add(p.ab, ANGARA_BATCH_PUT, 1), UCS_OK);
    assert_int_equal(fabric.transfers, i);
    assert_int_equal(p.a->port.batch.count, 1);
    uct_angara_batch_drop(&p.ab->ch);
    link_close(other);
    pair_close(&p);
}

/* Caught: a buffer that two operations have, or that none gets back. */
static void test_bounce(void **state)
{
    pair_t             p    = start();
    uct_angara_port_t *port = &p.a->port;
    void              *buffers[16], *more;
    uct_angara_op_t   *op;
    unsigned           i, j, count;

    (void)state;
    for (count = 0; uct_angara_bounce_get(&port->bounce, &more) == UCS_OK; ++count) {
        assert_true(count < 16);
        buffers[count] = more;
        memset(more, (int)count, port->bounce.size);
    }
    assert_int_equal(count, port->bounce.count);
    for (i = 0; i < count; ++i) {
        for (j = 0; j < port->bounce.size; ++j) {
            assert_int_equal(((unsigned char *)buffers[i])[j], i);
        }
    }
    for (i = 0; i < count; ++i) {
        op         = op_new(p.ab, i);
        op->bounce = buffers[i];
        uct_angara_op_finish(port, op, UCS_OK);
        assert_int_equal(port->bounce.nfree, i + 1);
    }
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),        cmocka_unit_test(test_try_complete),
        cmocka_unit_test(test_covers),       cmocka_unit_test(test_busy_slot),
        cmocka_unit_test(test_late_slot),    cmocka_unit_test(test_slot_returned),
        cmocka_unit_test(test_self),         cmocka_unit_test(test_batch_marker),
        cmocka_unit_test(test_batch_limits), cmocka_unit_test(test_bounce),
        cmocka_unit_test(test_slot_stolen),  cmocka_unit_test(test_settled),
    };

    return cmocka_run_group_tests_name("channel_marker", tests, domain_open, domain_close);
}
