/* SPDX-License-Identifier: BSD-3-Clause */
/* Which rings of a port are polled, and the layout of its window. */
#include "channel_pair.h"

/* ---- polling --------------------------------------------------------------------------------- */

/* More rings than hot ones, all of them never empty: each gets its share. */
static void test_shares(void **state)
{
    enum { DELIVERIES = 20000 };
    uct_angara_port_config_t cfg = config();
    side_t                  *to  = side_open(&cfg, deliver_plain);
    side_t                  *from[SENDERS];
    link_t                  *there[SENDERS], *back[SENDERS];
    unsigned                 i, low = DELIVERIES, high = 0;

    (void)state;
    for (i = 0; i < SENDERS; ++i) {
        from[i]  = side_open(&cfg, deliver_plain);
        there[i] = link_open(from[i], to);
        back[i]  = link_open(to, from[i]);
        ring_open(there[i], back[i]);
    }
    while (to->delivered < DELIVERIES) {
        for (i = 0; i < SENDERS; ++i) {
            while (send_plain(there[i], (uint8_t)i) == UCS_OK) {
            }
            turn(from[i]);
        }
        turn(to);
    }
    for (i = 0; i < SENDERS; ++i) {
        low  = ucs_min(low, to->by_sender[i]);
        high = ucs_max(high, to->by_sender[i]);
    }
    assert_true(high <= 2 * low);

    /* one that no ready word announces is found by who wants to sleep, and polled from then on */
    for (i = 0; i < SENDERS; ++i) {
        while (back[i]->ch.rx.tail != there[i]->ch.tx.head) {
            turn(to);
            turn(from[i]);
        }
    }
    assert_false(uct_angara_poll_has_records(&to->port.poll));
    for (i = 0; back[i]->ch.rx.hot; ++i) {
    }
    uct_angara_rx_return_credits(&back[i]->ch);
    while (send_plain(there[i], (uint8_t)i) != UCS_OK) {
        turn(from[i]);
    }
    while (!uct_angara_rx_has_record(&back[i]->ch.rx)) {
        turn(from[i]);
    }
    to->port.poll.ready[back[i]->ch.rx.index] = back[i]->ch.rx.msgs;
    assert_int_equal(uct_angara_poll_scan(&to->port), 0);
    assert_true(uct_angara_poll_has_records(&to->port.poll));
    assert_true(back[i]->ch.rx.hot);

    for (i = 0; i < SENDERS; ++i) {
        link_close(back[i]);
        link_close(there[i]);
        side_close(from[i]);
    }
    assert_int_equal(to->port.poll.nopen, 0);
    assert_int_equal(to->port.poll.nhot, 0);
    side_close(to);
}

/* A cold ring takes the place of the hot one that has been idle longest, never of one that holds
 * something. */
static void test_hot(void **state)
{
    enum { RINGS = UCT_ANGARA_HOT_RINGS + 1 };
    static uct_angara_rx_t rx[RINGS];
    static uint64_t        records[RINGS], ready[2], consumed[2];
    uct_angara_rx_t       *rings[RINGS];
    uct_angara_poll_t      poll;
    unsigned               idle, i;

    (void)state;
    for (idle = 0; idle <= UCT_ANGARA_HOT_RINGS; ++idle) { /* the last: none is idle */
        memset(&poll, 0, sizeof(poll));
        memset(ready, 0, sizeof(ready));
        memset(records, 0, sizeof(records));
        poll.ready    = (volatile uint16_t *)ready;
        poll.consumed = (uint16_t *)consumed;
        poll.rings    = rings;
        for (i = 0; i < RINGS; ++i) {
            rx[i].index  = (uint16_t)i;
            rx[i].next   = &records[i];
            rx[i].expect = uct_angara_hdr_seq(0);
            uct_angara_poll_add(&poll, &rx[i]);
            rx[i].last_active = (i == idle) ? 5 : 10 + i;
        }
        assert_int_equal(poll.nhot, UCT_ANGARA_HOT_RINGS);
        assert_false(uct_angara_poll_has_records(&poll));
        records[RINGS - 1] = uct_angara_hdr_seq(0);
        for (i = 0; (idle == UCT_ANGARA_HOT_RINGS) && (i < UCT_ANGARA_HOT_RINGS); ++i) {
            poll.ready[i] = 1;
        }
        assert_true(uct_angara_poll_has_records(&poll));
        for (i = 0; i < RINGS; ++i) {
            assert_int_equal(rx[i].hot,
                             (idle == UCT_ANGARA_HOT_RINGS) ? (i < RINGS - 1) : (i != idle));
        }
    }
}

/* Rings that end in the middle, hot and cold: the others are served, a late ready word of one that
 * is gone calls nobody, and its number serves the next. */
static void test_removal(void **state)
{
    uct_angara_port_config_t cfg = config();
    side_t                  *to  = side_open(&cfg, deliver_plain);
    side_t                  *from[SENDERS];
    link_t                  *there[SENDERS], *back[SENDERS];
    unsigned                 gone, i, index, rounds;

    (void)state;
    for (gone = 0; gone < SENDERS; ++gone) {
        for (i = 0; i < SENDERS; ++i) {
            from[i]  = side_open(&cfg, deliver_plain);
            there[i] = link_open(from[i], to);
            back[i]  = link_open(to, from[i]);
            ring_open(there[i], back[i]);
            assert_int_equal(back[i]->ch.rx.index, i);
        }
        assert_int_equal(to->port.poll.busy_max, UCT_ANGARA_DRAIN_MAX);
        index                      = back[gone]->ch.rx.index;
        to->port.poll.ready[index] = 5; /* something is in it */
        uct_angara_channel_close_rx(&back[gone]->ch);
        assert_int_equal(to->port.poll.consumed[index], 5);
        uct_angara_idmap_put(&to->port.window.ring_ids, index);
        assert_int_equal(to->port.poll.nopen, SENDERS - 1);
        assert_false(back[gone]->ch.rx.hot);
        for (i = 0; i < to->port.poll.nhot; ++i) {
            assert_ptr_not_equal(to->port.poll.hot[i], &back[gone]->ch.rx);
            assert_true(to->port.poll.hot[i]->hot);
        }
        to->port.poll.ready[index] = 7;
        uct_angara_poll_scan(&to->port);
        assert_int_equal(to->port.poll.consumed[index], 7);
        memset(to->by_sender, 0, sizeof(to->by_sender));
        for (rounds = 1; rounds < 100; ++rounds) {
            for (i = 0; i < SENDERS; ++i) {
                if (i != gone) {
                    assert_int_equal(send_plain(there[i], (uint8_t)i), UCS_OK);
                    while (to->by_sender[i] < rounds) {
                        turn(from[i]);
                        turn(to);
                    }
                }
            }
        }
        assert_int_equal(to->by_sender[gone], 0);
        for (i = 0; i < SENDERS; ++i) {
            if (i != gone) {
                uct_angara_channel_close_rx(&back[i]->ch);
                uct_angara_idmap_put(&to->port.window.ring_ids, back[i]->ch.rx.index);
            }
            link_close(back[i]);
            link_close(there[i]);
            side_close(from[i]);
        }
        assert_int_equal(to->port.poll.nhot, 0);
        assert_int_equal(to->port.poll.busy_max, UCT_ANGARA_BUSY_RECORDS);
    }
    side_close(to);
}

/* ---- the window ------------------------------------------------------------------------------ */

/* Each number is given once, the lowest first, none above the size. */
static void test_numbers(void **state)
{
    static const unsigned sizes[] = {1, 63, 64, 65, 200};
    uct_angara_window_t   window;
    unsigned              s, i, id;

    (void)state;
    for (s = 0; s < 5; ++s) {
        memset(&window, 0, sizeof(window));
        window.max_peers = sizes[s];
        assert_int_equal(uct_angara_window_init(&window), UCS_OK);
        for (i = 0; i < sizes[s]; ++i) {
            assert_int_equal(uct_angara_idmap_get(&window.ring_ids, &id), UCS_OK);
            assert_int_equal(id, i);
        }
        assert_int_equal(uct_angara_idmap_get(&window.ring_ids, &id), UCS_ERR_NO_RESOURCE);
        for (i = 0; i < sizes[s]; ++i) {
            uct_angara_idmap_put(&window.ring_ids, i);
            assert_int_equal(uct_angara_idmap_get(&window.ring_ids, &id), UCS_OK);
            assert_int_equal(id, i);
        }
        assert_int_equal(window.ring_ids.high, sizes[s]);
        assert_int_equal(uct_angara_idmap_get(&window.credit_ids, &id), UCS_OK);
        assert_int_equal(id, 0);
        uct_angara_window_cleanup(&window);
    }
}

/* Nothing overlaps, and all of it fits, with fewer peers where it must, but not many fewer. */
static void test_layout(void **state)
{
    static const size_t   rings[]  = {1024, 56320, 524288, 8388608};
    static const unsigned peers[]  = {1, 3, 64, 1024, 65535};
    static const size_t   maxima[] = {1 << 20, 64 << 20, (size_t)1 << 40};
    uct_angara_window_t   window;
    unsigned              r, n, m, i;
    size_t                end;

    (void)state;
    for (r = 0; r < 4; ++r) {
        for (n = 0; n < 5; ++n) {
            for (m = 0; m < 3; ++m) {
                memset(&window, 0, sizeof(window));
                if (uct_angara_window_layout(&window, rings[r], ucs_min(4u, peers[n]), peers[n],
                                             maxima[m]) != UCS_OK) {
                    assert_true(uct_angara_ring_stride(rings[r]) + 8192 > maxima[m]);
                    continue;
                }
                assert_in_range(window.max_peers, 1, peers[n]);
                assert_true(window.nbig == 0 || window.max_peers == peers[n]);
                assert_true(uct_angara_window_credit_off(&window, 1) -
                                uct_angara_window_credit_off(&window, 0) >=
                            UCS_SYS_CACHE_LINE_SIZE);
                assert_int_equal(uct_angara_window_ready_off(&window, 1),
                                 window.ready_off + sizeof(uint16_t));
                if (window.max_peers < peers[n]) { /* a twentieth of the window at most is lost */
                    assert_true((window.max_peers + 1) * (uct_angara_ring_stride(rings[r]) + 128) *
                                    20 >
                                maxima[m] * 19);
                } else if (uct_angara_ring_stride(UCT_ANGARA_BIG_RING) * 4 +
                               peers[n] * (uct_angara_ring_stride(rings[r]) + 128) + 8192 <
                           maxima[m]) {
                    assert_int_equal(window.nbig, ucs_min(4u, peers[n]));
                }
                assert_true(uct_angara_window_size(&window) <= maxima[m]);
                assert_true(uct_angara_window_credit_off(&window, window.max_peers) <=
                            window.ready_off);
                end = window.ready_off + uct_angara_window_words(&window) * sizeof(uint16_t);
                for (i = 0; i < window.max_peers; ++i) {
                    assert_true(uct_angara_window_ring_off(&window, i) >= end);
                    assert_int_equal(uct_angara_window_ring_off(&window, i) % 4096, 0);
                    end = uct_angara_window_ring_off(&window, i) +
                          uct_angara_window_ring_bytes(&window, i) * 9 / 8;
                }
                assert_true(end <= uct_angara_window_size(&window));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),  cmocka_unit_test(test_hot),
        cmocka_unit_test(test_removal), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_layout),
    };

    return cmocka_run_group_tests_name("channel_poll", tests, domain_open, domain_close);
}
