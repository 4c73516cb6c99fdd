/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fairness between senders: rings that hold messages all the time, more of them than are polled
 * directly, are served alike.
 */
#include "ut.h"

#define FR_AM         4
#define FR_SENDERS    64
#define FR_DELIVERIES 10000
#define FR_SLOTS      "8192" /* of each ring: nobody's share of the deliveries empties it */

typedef struct {
    unsigned count;
    unsigned from[FR_SENDERS];
    uint64_t total;
} fr_sink_t;

/* Counted up to the last delivery that matters. */
static ucs_status_t fr_receive(void *arg, void *data, size_t length, unsigned flags)
{
    fr_sink_t *sink = arg;
    uint64_t   from;

    (void)flags;
    CHECK_EQ(length, sizeof(from));
    memcpy(&from, data, sizeof(from));
    CHECK(from < sink->count);
    if (sink->total++ < FR_DELIVERIES) {
        ++sink->from[from];
    }
    return UCS_OK;
}

static void fr_check(const fr_sink_t *sink)
{
    unsigned least = UINT32_MAX, most = 0, i;

    for (i = 0; i < sink->count; ++i) {
        least = (sink->from[i] < least) ? sink->from[i] : least;
        most  = (sink->from[i] > most) ? sink->from[i] : most;
    }
    fprintf(stderr, "# %u senders: from %u to %u deliveries each\n", sink->count, least, most);
    CHECK(least > 0);
    CHECK(most <= 2 * least);
}

static void fr_fill(ut_t *t, unsigned count)
{
    static ut_iface_t ifaces[FR_SENDERS];
    uct_ep_h          eps[FR_SENDERS];
    uint64_t          sent = 0;
    unsigned          i;

    for (i = 0; i < count; ++i) {
        ut_iface_open(t, &ifaces[i]);
        eps[i] = ut_ep_create(&ifaces[i], &t->addr[0]);
        POST_OK(t, uct_ep_am_short(eps[i], FR_AM, i, NULL, 0));
        ut_flush(t, &ifaces[i]);
    }
    ut_send_word(t, 0, count);
    CHECK_EQ(ut_recv_word(t, 0), count); /* it has them all, and looks away */
    for (i = 0; i < count; ++i) {
        while (uct_ep_am_short(eps[i], FR_AM, i, NULL, 0) == UCS_OK) {
            ++sent;
        }
    }
    CHECK(sent > FR_DELIVERIES);
    ut_send_word(t, 0, sent);
    CHECK_EQ(ut_recv_word(t, 0), sent);
    for (i = 0; i < count; ++i) {
        ut_flush(t, &ifaces[i]);
        uct_ep_destroy(eps[i]);
        ut_iface_close(&ifaces[i]);
    }
}

static void fair(ut_t *t)
{
    fr_sink_t sink = {.count = *(const unsigned *)t->arg};
    uint64_t  sent;

    setenv("UCX_ANGARA_RING_SLOTS", FR_SLOTS, 1);
    setenv("UCX_ANGARA_MAX_PEERS", "80", 1);
    ut_open(t);
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, FR_AM, fr_receive, &sink, 0));
    ut_barrier(t);
    if (t->rank == 1) {
        fr_fill(t, sink.count);
    } else {
        CHECK_EQ(ut_recv_word(t, 1), sink.count);
        UT_WAIT(t, sink.total == sink.count);
        ut_progress_ms(t, 20);
        memset(sink.from, 0, sizeof(sink.from));
        sink.total = 0;
        ut_send_word(t, 1, sink.count);
        sent = ut_recv_word_still(t, 1);
        UT_WAIT(t, sink.total == sent);
        ut_send_word(t, 1, sent);
        fr_check(&sink);
    }
    ut_barrier(t);
    ut_close(t);
}

static void test_fair(void **state)
{
    static const unsigned counts[] = {2, 8, FR_SENDERS};
    size_t                i;

    (void)state;
    for (i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i) {
        ut_run(2, fair, &counts[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_fair)};

    return ut_main(argc, argv, "fair", tests, sizeof(tests) / sizeof(tests[0]));
}
