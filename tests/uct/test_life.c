/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a connection. A failure is told to a live peer, which fails too and answers; then
 * both start anew, as often as it takes, without a message lost in silence.
 */
#include "ut_inside.h"
#include "ut_life.h"

#include <unistd.h>

/* A put with a key that there isn't: a fault, and with it the connection's end. @return non-zero if
 * the call itself has said so. */
static int lf_fault_post(lf_t *lf, unsigned other)
{
    ut_t             *t    = lf->t;
    uint64_t          word = 1;
    uct_rkey_bundle_t key;
    uint64_t          forged[UT_RKEY_MAX / 8] = {0};
    ssize_t           status;

    CHECK_OK(uct_md_mkey_pack(t->md, lf->mem.memh, forged));
    forged[0] ^= 0x5a5a5a5a5aull;
    CHECK_OK(uct_rkey_unpack(t->component, forged, &key));
    status = UT_POST(t, uct_ep_put_short(t->ep[other], &word, sizeof(word),
                                         (uint64_t)(uintptr_t)lf->mem.addr, key.rkey));
    uct_rkey_release(t->component, &key);
    return status != UCS_OK;
}

static void lf_fault(lf_t *lf, unsigned other)
{
    lf_fault_post(lf, other);
    ut_flush(lf->t, &lf->t->main);
}

static void lf_renew(ut_t *t, unsigned other)
{
    uct_ep_destroy(t->ep[other]);
    t->ep[other]   = ut_ep_create(&t->main, &t->addr[other]);
    t->main.errors = 0;
}

/* ---- a failure is told ----------------------------------------------------------------------- */

/*
 * Rank 0 faults. Rank 1 has done nothing wrong, and hears of it: what it sends meanwhile is
 * delivered, or a flush behind it fails.
 */
static void told(ut_t *t)
{
    unsigned sent = 0;
    ssize_t  status;
    lf_t     lf;

    lf_init(&lf, t);
    lf_talk(&lf, 1 - t->rank, 1);
    if (t->rank == 0) {
        lf_fault(&lf, 1);
        UT_WAIT(t, t->main.errors == 1);
        CHECK_STATUS(uct_ep_am_short(t->ep[1], LF_AM, 0, NULL, 0), t->main.error);
        CHECK_STATUS(uct_ep_flush(t->ep[1], 0, NULL), t->main.error);
        ut_send_word(t, 1, 0);
        ut_recv_word(t, 1);
        CHECK_EQ(t->main.errors, 1);
        CHECK_EQ(lf.received, 1); /* nothing of what rank 1 was not told to be good */
    } else {
        ut_recv_word_still(t, 0);
        /* not a turn of progress: the failure isn't known yet */
        status = uct_ep_am_short(t->ep[0], LF_AM, 2, NULL, 0);
        if (status == UCS_OK) {
            do {
                ++sent;
                status = uct_ep_flush(t->ep[0], 0, NULL);
                CHECK(status != UCS_OK);
                ut_progress(t);
            } while ((status == UCS_INPROGRESS) || (status == UCS_ERR_NO_RESOURCE));
        }
        UT_WAIT(t, t->main.errors == 1);
        CHECK_STATUS(t->main.error, UCS_ERR_CONNECTION_RESET);
        CHECK_STATUS(uct_ep_am_short(t->ep[0], LF_AM, 2, NULL, 0), UCS_ERR_CONNECTION_RESET);
        CHECK_STATUS(uct_ep_flush(t->ep[0], 0, NULL), UCS_ERR_CONNECTION_RESET);
        CHECK_OK(uct_ep_flush(t->ep[0], UCT_FLUSH_FLAG_CANCEL, NULL));
        ut_progress_ms(t, 20);
        CHECK_EQ(t->main.errors, 1);
        ut_send_word(t, 0, 0);
    }
    ut_barrier(t);
    lf_cleanup(&lf);
}

typedef struct {
    uct_completion_t super;
    uct_iface_h      iface;
    unsigned         ended;
    ucs_status_t     status;  /* of what has ended */
    ucs_status_t     flushed; /* what a flush of the interface said then */
} lf_within_t;

static void lf_within(uct_completion_t *self)
{
    lf_within_t *within = ucs_container_of(self, lf_within_t, super);

    within->status  = self->status;
    within->flushed = uct_iface_flush(within->iface, 0, NULL);
    ++within->ended;
}

/* While the operations of a failed connection are being ended, a flush isn't done yet: what it
 * covers is lost. */
static void flush_within(ut_t *t)
{
    lf_within_t within = {.super = {.func = lf_within, .count = 1}};
    lf_t        lf;

    lf_init(&lf, t);
    lf_talk(&lf, 1 - t->rank, 1);
    if (t->rank == 0) {
        lf_fault(&lf, 1);
        UT_WAIT(t, t->main.errors == 1);
        ut_send_word(t, 1, 0);
        ut_recv_word(t, 1);
    } else {
        ut_recv_word_still(t, 0);
        within.iface = t->main.iface;
        CHECK_OK(uct_ep_am_short(t->ep[0], LF_AM, 2, NULL, 0));
        CHECK_STATUS(uct_ep_flush(t->ep[0], 0, &within.super), UCS_INPROGRESS);
        UT_WAIT(t, within.ended == 1);
        CHECK_STATUS(within.status, UCS_ERR_CONNECTION_RESET);
        CHECK_STATUS(within.flushed, UCS_INPROGRESS);
        UT_WAIT(t, t->main.errors == 1);
        ut_send_word(t, 0, 0);
    }
    ut_barrier(t);
    lf_cleanup(&lf);
}

/* A sender that only sends hears of it too, and doesn't fill a ring that nobody reads. */
static void told_sender(ut_t *t)
{
    uint64_t confirmed = 0, number;
    lf_t     lf;

    lf_init(&lf, t);
    if (t->rank == 0) {
        UT_WAIT(t, lf.received > 100);
        lf_fault(&lf, 1);
        UT_WAIT(t, t->main.errors == 1);
        number = ut_recv_word(t, 1);
        CHECK(lf.received >= number); /* all that was confirmed is here */
    } else {
        for (number = 1; t->main.errors == 0; ++number) {
            if (uct_ep_am_short(t->ep[0], LF_AM, number, NULL, 0) != UCS_OK) {
                --number;
            } else if ((number % 16 == 0) && (uct_ep_flush(t->ep[0], 0, NULL) == UCS_OK)) {
                confirmed = number;
            }
            ut_progress(t);
        }
        ut_send_word(t, 0, confirmed);
    }
    ut_barrier(t);
    lf_cleanup(&lf);
}

/* A get_short that was posted and fails in the call keeps its buffer until the failure is reported:
 * before, the data may still land there. */
static void failed_get_short(ut_t *t)
{
    uint64_t     word;
    ut_inside_t  inside;
    ucs_status_t status;
    lf_t         lf;

    lf_init(&lf, t);
    lf_talk(&lf, 1 - t->rank, 1);
    if (t->rank == 0) {
        lf_fault_post(&lf, 1);
        status = uct_ep_get_short(t->ep[1], &word, sizeof(word), lf.remotes[1].addr,
                                  lf.remotes[1].key.rkey);
        CHECK_STATUS(status, UCS_ERR_IO_ERROR);
        ut_inside(t->main.iface, &inside);
        CHECK_EQ(inside.bounces, inside.gets);
        CHECK_EQ(t->main.errors, 0);
        UT_WAIT(t, t->main.errors == 1);
        ut_inside(t->main.iface, &inside);
        CHECK_EQ(inside.bounces, 0);
    }
    ut_barrier(t);
    lf_cleanup(&lf);
}

/* ---- and both start anew --------------------------------------------------------------------- */

/* Each side fails in turn, or both at once; then new endpoints, and all arrives, both ways. There
 * are few credit lines and rings: none may be lost. */
static void starts_anew(ut_t *t)
{
    unsigned other = 1 - t->rank, rounds = ut_rounds(60), round;
    lf_t     lf;

    setenv("UCX_ANGARA_MAX_PEERS", "3", 1);
    lf_init(&lf, t);
    lf_talk(&lf, other, 1);
    for (round = 0; round < rounds; ++round) {
        if ((round % 3 == t->rank) || (round % 3 == 2)) {
            lf_fault(&lf, other);
        }
        UT_WAIT(t, t->main.errors >= 1);
        CHECK_EQ(t->main.errors, 1);
        ut_barrier(t);
        lf_renew(t, other);
        lf_talk(&lf, other, 10 + round);
        CHECK_EQ(t->main.errors, 0);
    }
    lf_cleanup(&lf);
}

/* The one who failed goes on at once, while the other doesn't know yet; and its answers arrive. */
static void anew_at_once(ut_t *t)
{
    unsigned rounds = ut_rounds(40), round;
    uint64_t before;
    lf_t     lf;

    lf_init(&lf, t);
    lf_talk(&lf, 1 - t->rank, 1);
    for (round = 0; round < rounds; ++round) {
        before = lf.received;
        if (t->rank == 0) {
            /* the first way: before anybody was told, the new endpoint has no part in it */
            if (!lf_fault_post(&lf, 1) || (round % 2)) {
                ut_flush(t, &t->main);
                UT_WAIT(t, t->main.errors == 1);
            }
            lf_renew(t, 1);
            lf_send(t, t->ep[1], 100 + round);
            UT_WAIT(t, lf.received > before);
            CHECK_EQ(lf.last, 200 + round);
            CHECK_EQ(t->main.errors, 0);
        } else {
            UT_WAIT(t, t->main.errors == 1);
            lf_renew(t, 0);
            UT_WAIT(t, lf.received > before);
            CHECK_EQ(lf.last, 100 + round);
            lf_send(t, t->ep[0], 200 + round);
            CHECK_EQ(t->main.errors, 0);
        }
        ut_barrier(t);
    }
    lf_cleanup(&lf);
}

/* Rank 1 has closed, and opened again, when it hears that rank 0 has failed: nothing hangs. */
static void closed_and_opened(ut_t *t)
{
    unsigned rounds = ut_rounds(40), round;
    uint64_t before;
    lf_t     lf;

    lf_init(&lf, t);
    lf_talk(&lf, 1 - t->rank, 1);
    for (round = 0; round < rounds; ++round) {
        before = lf.received;
        ut_barrier(t);
        if (t->rank == 0) {
            lf_fault(&lf, 1);
            UT_WAIT(t, t->main.errors == 1);
            lf_renew(t, 1);
            ut_send_word(t, 1, 0);
            UT_WAIT(t, lf.received > before);
            CHECK_EQ(lf.last, 300 + round);
        } else {
            if (round % 2) {
                ut_recv_word_still(t, 0);
            }
            uct_ep_destroy(t->ep[0]);
            t->ep[0] = ut_ep_create(&t->main, &t->addr[0]);
            if (round % 2 == 0) {
                ut_recv_word(t, 0);
            }
            lf_send(t, t->ep[0], 300 + round); /* the new endpoint is none that has failed */
            CHECK_EQ(t->main.errors, 0);
        }
        lf_talk(&lf, 1 - t->rank, 5000 + round);
        CHECK_EQ(t->main.errors, 0);
    }
    lf_cleanup(&lf);
}

/* The own PE is a peer like any other. */
static void own_pe(ut_t *t)
{
    unsigned round;
    lf_t     lf;

    lf_init(&lf, t);
    for (round = 0; round < 20; ++round) {
        lf_send(t, t->ep[0], round);
        UT_WAIT(t, lf.received == round + 1);
        lf_fault(&lf, 0);
        UT_WAIT(t, t->main.errors == 1);
        CHECK_ERR(uct_ep_am_short(t->ep[0], LF_AM, 0, NULL, 0));
        lf_renew(t, 0);
    }
    lf_cleanup(&lf);
}

/* Endpoints that go before their failure was told leave nothing behind. */
static void untold(ut_t *t)
{
    unsigned round;
    uct_ep_h next;
    lf_t     lf;

    lf_init(&lf, t);
    for (round = 0; round < 20; ++round) {
        lf_send(t, t->ep[0], round);
        UT_WAIT(t, lf.received == round + 1);
        if (lf_fault_post(&lf, 0)) {
            next = ut_ep_create(&t->main, &t->addr[0]);
            uct_ep_destroy(t->ep[0]);
            t->ep[0] = next;
        } else {
            ut_flush(t, &t->main);
            UT_WAIT(t, t->main.errors == 1);
            lf_renew(t, 0);
        }
        ut_progress_ms(t, 1);
        CHECK_EQ(t->main.errors, 0);
    }
    lf_fault_post(&lf, 0);
    next = ut_ep_create(&t->main, &t->addr[0]);
    uct_ep_destroy(t->ep[0]);
    t->ep[0] = next; /* and the interface closes */
    lf_cleanup(&lf);
}

/* A failure that nobody has heard of, since its endpoint is gone, is none of those that are made
 * before it is reported: not even of the first of two. */
static void two_after_failure(ut_t *t)
{
    unsigned round;
    uct_ep_h first;
    lf_t     lf;

    lf_init(&lf, t);
    for (round = 0; round < 20; ++round) {
        lf_send(t, t->ep[0], round);
        UT_WAIT(t, lf.received == 2 * round + 1);
        if (!lf_fault_post(&lf, 0)) {
            ut_flush(t, &t->main);
            UT_WAIT(t, t->main.errors == 1);
            t->main.errors = 0;
        }
        uct_ep_destroy(t->ep[0]);
        first    = ut_ep_create(&t->main, &t->addr[0]);
        t->ep[0] = ut_ep_create(&t->main, &t->addr[0]);
        ut_progress_ms(t, 1);
        CHECK_EQ(t->main.errors, 0);
        lf_send(t, first, round);
        UT_WAIT(t, lf.received == 2 * round + 2);
        uct_ep_destroy(first);
    }
    lf_cleanup(&lf);
}

/*
 * Rank 1 has an endpoint with no part in the connection that rank 0 gives up, and has sent by it.
 * Another one that is made between hearing of it and the next turn of progress changes nothing.
 */
static void two_when_told(ut_t *t)
{
    unsigned rounds = ut_rounds(20), round;
    uint64_t before;
    uct_ep_h first;
    lf_t     lf;

    lf_init(&lf, t);
    lf_talk(&lf, 1 - t->rank, 1);
    if (t->rank == 1) {
        lf_send(t, t->ep[1], 0);
        UT_WAIT(t, lf.received == 2);
    }
    for (round = 0; round < rounds; ++round) {
        before = lf.received;
        ut_barrier(t);
        if (t->rank == 0) {
            lf_fault(&lf, 1);
            UT_WAIT(t, t->main.errors == 1);
            lf_renew(t, 1);
            ut_send_word(t, 1, 0);
            UT_WAIT(t, lf.received == before + 3);
        } else {
            ut_recv_word_still(t, 0);
            uct_ep_destroy(t->ep[0]);
            first = ut_ep_create(&t->main, &t->addr[0]);
            CHECK_OK(uct_ep_am_short(first, LF_AM, 400, NULL, 0)); /* kept */
            CHECK_OK(uct_ep_am_short(t->ep[1], LF_AM, 0, NULL, 0));
            uct_ep_flush(t->ep[1], 0, NULL); /* looks at the events, and makes no progress */
            t->ep[0] = ut_ep_create(&t->main, &t->addr[0]);
            lf_send(t, t->ep[0], 500);
            lf_send(t, first, 600);
            uct_ep_destroy(first);
            UT_WAIT(t, lf.received == before + 1); /* its own */
        }
        CHECK_EQ(t->main.errors, 0);
        ut_barrier(t);
        lf_talk(&lf, 1 - t->rank, 5000 + round);
        CHECK_EQ(t->main.errors, 0);
    }
    lf_cleanup(&lf);
}

typedef struct {
    uct_pending_req_t super;
    lf_t             *lf;
    uct_ep_h          first; /* that fails while its request is tried */
    int               is_done;
} lf_retry_t;

static ucs_status_t lf_retry(uct_pending_req_t *self)
{
    lf_retry_t *retry = (lf_retry_t *)self;
    ut_t       *t     = retry->lf->t;

    retry->is_done = 1;
    if (lf_fault_post(retry->lf, 0)) {
        t->ep[0] = ut_ep_create(&t->main, &t->addr[0]); /* by whoever hears of it at once */
    }
    return UCS_OK;
}

/* An endpoint fails by a queued request, and another one is made before the request has ended: it
 * isn't held up by what was queued to the first. */
static void anew_in_request(ut_t *t)
{
    lf_retry_t retry = {.super.func = lf_retry};
    unsigned   round;
    lf_t       lf;

    lf_init(&lf, t);
    retry.lf = &lf;
    for (round = 0; round < 20; ++round) {
        retry.first   = t->ep[0];
        retry.is_done = 0;
        CHECK_OK(uct_ep_pending_add(retry.first, &retry.super, 0));
        UT_WAIT(t, retry.is_done);
        if (t->ep[0] == retry.first) { /* the call hasn't said it */
            ut_flush(t, &t->main);
            t->ep[0] = NULL;
        }
        UT_WAIT(t, t->main.errors == 1);
        uct_ep_destroy(retry.first);
        if (t->ep[0] == NULL) {
            t->ep[0] = ut_ep_create(&t->main, &t->addr[0]);
        }
        t->main.errors = 0;
        lf_send(t, t->ep[0], round);
        UT_WAIT(t, lf.received == round + 1);
        CHECK_EQ(t->main.errors, 0);
    }
    lf_cleanup(&lf);
}

/* Messages flow all the time; now and then a side fails and both go on. What a flush confirmed is
 * there. */
static void in_traffic(ut_t *t)
{
    unsigned  other = 1 - t->rank, rounds = ut_rounds(30), round;
    uint64_t  number, sent                = 0, confirmed, all[2];
    char      data[3000] = {0};
    ut_pack_t pack       = {data, sizeof(data)};
    lf_t      lf;

    lf_init(&lf, t);
    for (round = 0; round < rounds; ++round) {
        lf.received = 0;
        ut_barrier(t);
        for (number = 0, confirmed = 0; t->main.errors == 0; ++number) {
            pack.length = 8 +
                          ut_random(t) % (ucs_min(sizeof(data), t->main.attr.cap.am.max_bcopy) - 8);
            sent += (uct_ep_am_bcopy(t->ep[other], LF_AM, ut_pack, &pack, 0) >= 0);
            if (number % 32 == 31) {
                if (uct_ep_flush(t->ep[other], 0, NULL) == UCS_OK) {
                    confirmed = sent;
                }
            }
            if ((number == 200) && (round % 2 == t->rank)) {
                lf_fault(&lf, other);
            }
            ut_progress(t);
        }
        CHECK_EQ(t->main.errors, 1);
        ut_exchange(t, &confirmed, all, sizeof(confirmed));
        CHECK(lf.received >= all[other]);
        lf_renew(t, other);
        sent = 0;
        ut_progress_ms(t, 1);
        lf_talk(&lf, other, 7);
        CHECK_EQ(t->main.errors, 0);
    }
    lf_cleanup(&lf);
}

/* ---- the tests ------------------------------------------------------------------------------- */

#define LF_TEST(_name, _nranks)            \
    static void test_##_name(void **state) \
    {                                      \
        (void)state;                       \
        ut_run(_nranks, _name, NULL);      \
    }

LF_TEST(told, 2)
LF_TEST(flush_within, 2)
LF_TEST(told_sender, 2)
LF_TEST(starts_anew, 2)
LF_TEST(anew_at_once, 2)
LF_TEST(closed_and_opened, 2)
LF_TEST(own_pe, 1)
LF_TEST(untold, 1)
LF_TEST(two_after_failure, 1)
LF_TEST(two_when_told, 2)
LF_TEST(anew_in_request, 1)
LF_TEST(failed_get_short, 2)
LF_TEST(in_traffic, 2)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_flush_within),
        cmocka_unit_test(test_told_sender),
        cmocka_unit_test(test_starts_anew),
        cmocka_unit_test(test_anew_at_once),
        cmocka_unit_test(test_closed_and_opened),
        cmocka_unit_test(test_own_pe),
        cmocka_unit_test(test_untold),
        cmocka_unit_test(test_in_traffic),
        cmocka_unit_test(test_two_after_failure),
        cmocka_unit_test(test_two_when_told),
        cmocka_unit_test(test_anew_in_request),
        cmocka_unit_test(test_failed_get_short),
    };

    return ut_main(argc, argv, "life", tests, sizeof(tests) / sizeof(tests[0]));
}
