/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The floor of channels alone: rings and credits; test_channel_*.c have the rest. Linked with its
 * objects, libangara and libucs: there is no peer, no connection and no interface of UCX. The owner
 * of the channels, whom they ask, is the harness.
 */
#include "../common/data.h"
#include "channel_pair.h"

/* ---- messages: number and length are told by each other ------------------------------------- */

static size_t length_of(unsigned number, size_t max)
{
    return (number < 2 * max) ? number % (max + 1) : (number * 2654435761u >> 8) % (max + 1);
}

#define HEADS 4096 /* more than there are messages in a ring */

static uint64_t heads[HEADS]; /* where a message begins, by its number */

/* The words look like records of the ring's next lap at the places where they lie. */
static void fill(char *data, unsigned number, size_t length)
{
    uint64_t word;
    size_t   i;

    for (i = 0; i < length; i += sizeof(word)) {
        word = uct_angara_hdr_am(heads[number % HEADS] + SLOTS + (i + 8) / SLOT, 31, i % 64);
        memcpy(data + i, &word, ucs_min(sizeof(word), length - i));
    }
}

static void deliver(uct_angara_port_t *port, uint8_t id, void *data, size_t length)
{
    side_t  *side = (side_t *)port;
    char    *want;
    unsigned number = side->next++;

    ++side->delivered;
    assert_int_equal(id, number % 32);
    assert_int_equal(length, length_of(number, port->run_bytes));
    want = malloc(length + 1);
    fill(want, number, length);
    assert_memory_equal(want, data, length);
    free(want);
}

/* ---- puts that are refused where they are calls ---------------------------------------------- */

static unsigned refuse; /* of so many puts one is refused; 0: none */

static int is_put_refused;

static int is_refused(void)
{
    static unsigned calls;

    return (refuse > 0) && (random_mix(++calls) % refuse == 0);
}

angara_status_t __real_angara_put(angara_peer_h peer, uint64_t offset, const void *src,
                                  size_t length);
angara_status_t __wrap_angara_put(angara_peer_h peer, uint64_t offset, const void *src,
                                  size_t length);
angara_status_t __wrap_angara_put(angara_peer_h peer, uint64_t offset, const void *src,
                                  size_t length)
{
    return (is_put_refused || is_refused()) ? ANGARA_ERR_NO_RESOURCE :
                                              __real_angara_put(peer, offset, src, length);
}

angara_status_t __real_angara_put_flag(angara_peer_h peer, uint64_t offset, const void *src,
                                       size_t length, uint64_t flag_offset, uint64_t flag);
angara_status_t __wrap_angara_put_flag(angara_peer_h peer, uint64_t offset, const void *src,
                                       size_t length, uint64_t flag_offset, uint64_t flag);
angara_status_t __wrap_angara_put_flag(angara_peer_h peer, uint64_t offset, const void *src,
                                       size_t length, uint64_t flag_offset, uint64_t flag)
{
    return is_refused() ? ANGARA_ERR_NO_RESOURCE :
                          __real_angara_put_flag(peer, offset, src, length, flag_offset, flag);
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* All lengths, through many laps: pads, words of old payload behind a run, segments. */
static void through_ring(size_t put_max)
{
    enum { MESSAGES = 20000 };
    uct_angara_port_config_t cfg = config();
    uct_angara_stats_t       sent, received;
    uint64_t                 bytes = 0;
    unsigned                 number;
    size_t                   max, length;
    pair_t                   p;
    char                    *data;

    cfg.put_max = put_max;
    p           = pair_open(&cfg, deliver);
    max         = p.a->port.run_bytes;
    data        = malloc(max);
    for (number = 0; number < MESSAGES; ++number) {
        length = length_of(number, max);
        bytes += length;
        while (uct_angara_tx_reserve(&p.ab->ch, uct_angara_slots(&p.ab->ch.tx.shape, length)) !=
               UCS_OK) {
            turn(p.b);
            turn(p.a);
        }
        heads[number % HEADS] = p.ab->ch.tx.head;
        fill(data, number, length);
        while (send_one(p.ab, number % 32, data, length) != UCS_OK) {
            assert_true(refuse > 0);
            turn(p.b);
            turn(p.a);
            heads[number % HEADS] = p.ab->ch.tx.head;
            fill(data, number, length);
        }
    }
    UNTIL(&p, p.b->delivered == MESSAGES);
    turn(p.b);
    assert_int_equal(p.b->delivered, MESSAGES);
    assert_int_equal(p.ba->nonsense + p.ab->nonsense, 0);
    assert_true(p.ab->ch.tx.pads > 0);
    assert_true(p.ab->ch.tx.sar > 0);
    assert_true((put_max == SIZE_MAX) || (p.ab->ch.tx.shape.seg_shift != UCT_ANGARA_NO_SEGS));
    UNTIL(&p, p.b->port.poll.ready[p.ba->ch.rx.index] == p.ba->ch.rx.msgs); /* pads count, too */
    UNTIL(&p, p.a->port.slow == 0);                                         /* nothing is owed */
    free(data);
    uct_angara_channel_count(&p.ab->ch, &sent);
    uct_angara_channel_count(&p.ba->ch, &received);
    assert_int_equal(sent.eager_tx + sent.sar_tx, MESSAGES);
    assert_int_equal(sent.tx_bytes, bytes);
    assert_int_equal(received.eager_rx, sent.eager_tx);
    assert_int_equal(received.sar_rx, sent.sar_tx);
    assert_int_equal(received.rx_bytes, bytes);
    uct_angara_channel_fold_counts(&p.ab->ch); /* as when the ring ends */
    uct_angara_channel_count(&p.ab->ch, &received);
    assert_memory_equal(&received, &sent, sizeof(sent));
    pair_close(&p);
}

static void test_lengths(void **state)
{
    (void)state;
    through_ring(SIZE_MAX);
}

static void test_segments(void **state)
{
    (void)state;
    through_ring(4 * SLOT + 8);
}

static void deliver_any(uct_angara_port_t *port, uint8_t id, void *data, size_t length)
{
    (void)id;
    (void)data;
    (void)length;
    ++((side_t *)port)->delivered;
}

typedef struct {
    unsigned number;
    size_t   length;
    unsigned calls;
} packed_t;

static size_t pack(void *to, void *arg)
{
    packed_t *msg = arg;

    ++msg->calls;
    fill(to, msg->number, msg->length);
    return msg->length;
}

/* Lengths that are known only after packing: caught is a message that was packed aside and not
 * copied, or packed where it runs over the end of the ring. */
static void test_packed(void **state)
{
    enum { MESSAGES = 20000 };
    uct_angara_port_config_t cfg = config();
    pair_t                   p   = pair_open(&cfg, deliver);
    uint64_t                 head, pads;
    unsigned                 number;
    packed_t                 msg;
    ssize_t                  ret;

    (void)state;
    for (number = 0; number < MESSAGES; ++number) {
        msg = (packed_t){number, length_of(number, p.a->port.run_bytes), 0};
        do {
            head                  = p.ab->ch.tx.head;
            pads                  = p.ab->ch.tx.pads;
            heads[number % HEADS] = head;
            ret                   = uct_angara_tx_bcopy(&p.ab->ch, number % 32, pack, &msg);
            turn(p.a);
            turn(p.b);
        } while (ret == UCS_ERR_NO_RESOURCE);
        assert_int_equal(ret, msg.length);
        assert_int_equal(msg.calls, 1); /* not before there is room */
        assert_true((pads == p.ab->ch.tx.pads) || (head % SLOTS != 0));
    }
    UNTIL(&p, p.b->delivered == MESSAGES);
    assert_true(p.ab->ch.tx.pads > 0);
    assert_int_equal(p.ab->nonsense + p.ba->nonsense, 0);
    pair_close(&p);
}

/* The longest run goes wherever the head is, once all was read: no deadlock. */
static void test_room(void **state)
{
    uct_angara_port_config_t cfg = config();
    packed_t                 msg = {0, 0, 0};
    unsigned                 first, i;
    pair_t                   p;

    (void)state;
    cfg.seg_size = SLOTS * SLOT;
    for (first = 0; first < SLOTS; ++first) {
        p = pair_open(&cfg, deliver_any);
        for (i = 0; i < first; ++i) {
            assert_int_equal(send_plain(p.ab, 0), UCS_OK);
        }
        msg.length = p.a->port.run_bytes;
        while (uct_angara_tx_bcopy(&p.ab->ch, 0, pack, &msg) < 0) {
            turn(p.a);
            turn(p.b);
        }
        UNTIL(&p, p.b->delivered == first + 1);
        pair_close(&p);
    }
}

static int refuse_none(void **state)
{
    (void)state;
    refuse         = 0;
    is_put_refused = 0;
    return 0;
}

/* Caught: a ready word that was refused and is never sent, and nothing says that it is owed. */
static void test_ready_owed(void **state)
{
    uct_angara_port_config_t cfg = config();
    pair_t                   p;

    (void)state;
    if (attr.caps & ANGARA_CAP_WINDOW_DIRECT) {
        skip();
    }
    p              = pair_open(&cfg, deliver_plain);
    is_put_refused = 1;
    assert_int_equal(send_plain(p.ab, 1), UCS_OK);
    turn(p.a);
    assert_true(uct_angara_channel_has_work(&p.ab->ch));
    assert_true(uct_angara_channel_is_dirty(&p.ab->ch));
    is_put_refused = 0;
    UNTIL(&p, p.b->port.poll.ready[p.ba->ch.rx.index] == 1);
    assert_false(uct_angara_channel_has_work(&p.ab->ch));
    UNTIL(&p, p.b->delivered == 1);
    pair_close(&p);
}

/* Caught: a credit that was refused and is never sent; one that is owed for ever to who takes none.
 */
static void test_credit_owed(void **state)
{
    uct_angara_port_config_t cfg = config();
    int                      is_mute;
    unsigned                 i;
    pair_t                   p;

    (void)state;
    if (attr.caps & ANGARA_CAP_WINDOW_DIRECT) {
        skip();
    }
    for (is_mute = 0; is_mute <= 1; ++is_mute) {
        p = pair_open(&cfg, deliver_plain);
        for (i = 0; i < SLOTS / 8; ++i) {
            assert_int_equal(send_plain(p.ab, 1), UCS_OK);
        }
        turn(p.a); /* its ready word */
        is_put_refused = 1;
        UNTIL(&p, p.ba->ch.rx.credit_owed);
        assert_int_equal(p.b->delivered, SLOTS / 8);
        assert_true(uct_angara_channel_has_work(&p.ba->ch));
        is_put_refused   = 0;
        p.ba->ch.is_mute = (uint8_t)is_mute;
        turn(p.b);
        assert_int_equal(p.ba->ch.rx.credit_owed, 0);
        assert_false(uct_angara_channel_has_work(&p.ba->ch));
        UNTIL(&p, is_mute || (*p.ab->ch.tx.credit == SLOTS / 8));
        pair_close(&p);
    }
}

/* Caught: what was refused and is not repeated, or is taken for sent. */
static void test_refusals(void **state)
{
    (void)state;
    if (attr.caps & ANGARA_CAP_WINDOW_DIRECT) {
        skip(); /* plain stores: nobody refuses them */
    }
    refuse = 4;
    through_ring(SIZE_MAX);
    through_ring(4 * SLOT + 8);
}

/* A full ring takes nothing before it was read; one slot stays unused. */
static void test_credits(void **state)
{
    uct_angara_port_config_t cfg = config();
    pair_t                   p   = pair_open(&cfg, deliver_plain);
    unsigned                 lap, sent;

    (void)state;
    for (lap = 0; lap < 20; ++lap) {
        for (sent = 0; send_plain(p.ab, 1) == UCS_OK; ++sent) {
            assert_true(sent < SLOTS);
        }
        assert_int_equal(p.ab->admits, 0);
        assert_true(p.ab->ch.tx.head - p.ba->ch.rx.tail == SLOTS - 1);
        UNTIL(&p, p.ba->ch.rx.tail == p.ab->ch.tx.head);
        uct_angara_rx_return_credits(&p.ba->ch);
        UNTIL(&p, *p.ab->ch.tx.credit == p.ab->ch.tx.head);
    }
    assert_int_equal(p.b->delivered, p.ab->ch.tx.head);
    pair_close(&p);
}

/* Credits for what was never sent, and credits that fall, are nonsense, and nothing is sent. */
static void test_bad_credits(void **state)
{
    static const int64_t     offsets[] = {1, INT64_MAX, -1};
    uct_angara_port_config_t cfg       = config();
    unsigned                 i;
    uint64_t                 head;
    pair_t                   p;

    (void)state;
    for (i = 0; i < 3; ++i) {
        p = pair_open(&cfg, deliver_plain);
        while (send_plain(p.ab, 1) == UCS_OK) {
        }
        *p.ab->ch.tx.credit = 8;
        assert_int_equal(send_plain(p.ab, 1), UCS_OK);
        head                = p.ab->ch.tx.head;
        *p.ab->ch.tx.credit = (offsets[i] < 0) ? 7 : head + (uint64_t)offsets[i];
        while (p.ab->ch.tx.head < p.ab->ch.tx.limit) {
            assert_int_equal(send_plain(p.ab, 1), UCS_OK);
        }
        head                = p.ab->ch.tx.head;
        *p.ab->ch.tx.credit = (offsets[i] < 0) ? 7 : head + (uint64_t)offsets[i];
        assert_int_equal(send_plain(p.ab, 1), UCS_ERR_CONNECTION_RESET);
        p.ab->admit = UCS_ERR_CONNECTION_RESET;
        assert_int_equal(send_plain(p.ab, 1), UCS_ERR_CONNECTION_RESET);
        assert_int_equal(p.ab->nonsense, 1);
        assert_int_equal(p.ab->ch.tx.head, head);
        pair_close(&p);
    }
}

/* What can't be a record is nonsense and delivered to nobody; what was of an earlier lap is
 * nothing.
 */
static void test_garbage(void **state)
{
    static const uint64_t    bad[] = {0x80, 0xc0, UCT_ANGARA_KIND_PAD | 3ull << 8, 0xffffull << 8};
    uct_angara_port_config_t cfg   = config();
    unsigned                 i;
    pair_t                   p;

    (void)state;
    for (i = 0; i < 4; ++i) {
        p                 = pair_open(&cfg, deliver_plain);
        *p.ba->ch.rx.next = uct_angara_hdr_am(SLOTS, 1, RECORD);
        assert_int_equal(uct_angara_rx_drain(&p.b->port, &p.ba->ch.rx, 10), 0);
        assert_int_equal(p.ba->nonsense, 0);
        *p.ba->ch.rx.next = uct_angara_hdr_seq(0) | bad[i];
        assert_int_equal(uct_angara_rx_drain(&p.b->port, &p.ba->ch.rx, 10), 0);
        assert_int_equal(p.ba->nonsense, 1);
        assert_int_equal(p.b->delivered, 0);
        *p.ba->ch.rx.next = 0;
        pair_close(&p);
    }
}

/* Too long for a run though the ring has room; short enough, but it runs over the ring's end. */
static void test_too_long(void **state)
{
    uct_angara_port_config_t cfg = config();
    unsigned                 sent;
    pair_t                   p = pair_open(&cfg, deliver_any);

    (void)state;
    *p.ba->ch.rx.next = uct_angara_hdr_am(0, 1, p.b->port.run_bytes + 1);
    assert_int_equal(uct_angara_rx_drain(&p.b->port, &p.ba->ch.rx, 10), 0);
    assert_int_equal(p.ba->nonsense, 1);
    *p.ba->ch.rx.next = 0;
    for (sent = 0; sent < SLOTS - 2; ++sent) {
        assert_int_equal(send_plain(p.ab, 1), UCS_OK);
    }
    UNTIL(&p, p.b->delivered == sent);
    *p.ba->ch.rx.next = uct_angara_hdr_am(sent, 1, 2 * SLOT - 7);
    assert_int_equal(uct_angara_rx_drain(&p.b->port, &p.ba->ch.rx, 10), 0);
    assert_int_equal(p.ba->nonsense, 2);
    assert_int_equal(p.b->delivered, sent);
    *p.ba->ch.rx.next = 0;
    pair_close(&p);
}

/* A drain takes no more than it was asked for; the end of the ring takes all that has come; who is
 * mute gives no credits. */
static void test_drain(void **state)
{
    uct_angara_port_config_t cfg = config();
    pair_t                   p   = pair_open(&cfg, deliver_plain);
    unsigned                 sent;

    (void)state;
    for (sent = 0; send_plain(p.ab, 1) == UCS_OK; ++sent) {
    }
    while (!uct_angara_rx_has_record(&p.ba->ch.rx)) {
        uct_angara_port_push(&p.a->port);
    }
    if (attr.caps & ANGARA_CAP_WINDOW_DIRECT) {
        assert_int_equal(uct_angara_rx_drain(&p.b->port, &p.ba->ch.rx, 3), 3);
        assert_int_equal(p.b->delivered, 3);
    }
    p.ba->ch.is_mute = 1;
    while (p.b->delivered + 1 < sent) {
        uct_angara_port_push(&p.a->port);
        uct_angara_rx_drain(&p.b->port, &p.ba->ch.rx, 1);
    }
    uct_angara_rx_return_credits(&p.ba->ch);
    uct_angara_port_push(&p.b->port);
    assert_int_equal(*p.ab->ch.tx.credit, 0);
    while (!uct_angara_rx_has_record(&p.ba->ch.rx)) {
        uct_angara_port_push(&p.a->port);
    }
    uct_angara_channel_stop_rx(&p.ba->ch);
    assert_int_equal(p.b->delivered, sent);
    assert_int_equal(p.b->port.poll.nopen, 0);
    pair_close(&p);
}

/* The owner is asked when the channel is blocked, and only then; its answer is the sender's. */
static void test_admit(void **state)
{
    uct_angara_port_config_t cfg = config();
    pair_t                   p   = pair_open(&cfg, deliver_plain);

    (void)state;
    assert_int_equal(send_plain(p.ab, 1), UCS_OK);
    assert_int_equal(p.ab->admits, 0);
    p.ab->admit      = UCS_ERR_NOT_CONNECTED;
    p.ab->ch.is_held = 1;
    uct_angara_channel_update(&p.ab->ch);
    assert_int_equal(p.ab->ch.blocked, UCT_ANGARA_BLOCK_PENDING);
    assert_int_equal(send_plain(p.ab, 1), UCS_ERR_NOT_CONNECTED);
    assert_int_equal(p.ab->admits, 1);
    p.ab->ch.is_held = 0;
    uct_angara_channel_update(&p.ab->ch);
    assert_int_equal(send_plain(p.ab, 1), UCS_OK);
    assert_int_equal(p.ab->admits, 1);
    UNTIL(&p, p.b->delivered == 2);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_room),
        cmocka_unit_test_teardown(test_ready_owed, refuse_none),
        cmocka_unit_test_teardown(test_credit_owed, refuse_none),
        cmocka_unit_test_teardown(test_refusals, refuse_none),
        cmocka_unit_test(test_credits),
        cmocka_unit_test(test_bad_credits),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_admit),
    };

    return cmocka_run_group_tests_name("channel", tests, domain_open, domain_close);
}
