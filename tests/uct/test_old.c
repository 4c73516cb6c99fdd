/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer that speaks of connections that are over, starts over, or never answers (see
 * test_hostile.c for other nonsense): what is old is ignored, what wants an answer gets one, and no
 * ring or credit line is lost for longer than the peer lives.
 */
#include "ut_hostile.h"

/* ---- rings and credit lines ------------------------------------------------------------------ */

/* Rings and credit lines that are not free. */
static unsigned ho_ids_used(const ho_t *ho)
{
    const uct_angara_window_t *window =
        &((const uct_angara_iface_t *)ho->victim.iface)->net.port.window;

    return (unsigned)(ucs_popcount(window->ring_ids.used[0]) +
                      ucs_popcount(window->credit_ids.used[0]));
}

/*
 * Peers that fail, are left to themselves or start over, never answer, and go away in the end, many
 * more of them than there can be at a time: each finds a ring, and a credit line.
 */
static void failed_then_gone(ut_t *t)
{
    enum { ROUNDS = 24 };
    uct_angara_hello_t hello;
    unsigned           round;
    ho_t               ho;

    setenv("ANGARA_PEER_CHECK", "5", 1);
    setenv("UCX_ANGARA_MAX_PEERS", "4", 1);
    setenv("UCX_ANGARA_DEAD_PEER", "ignore", 1);
    ut_md_open(t);
    memset(&ho, 0, sizeof(ho));
    ho.t      = t;
    ho.silent = 1;
    ho_victim_open(&ho);
    for (round = 0; round < ROUNDS; ++round) {
        ho_attacker_open(&ho);
        ho_connect_back(&ho);
        ho_get_ring(&ho);
        ho_give_ring(&ho);
        if (round % 3 == 1) {
            hello = ho_hello(&ho);
            ho_notify(&ho, &hello, sizeof(hello)); /* it starts over: it fails */
            HO_WAIT(&ho, ho.victim.errors == 1);
            ho.victim.errors = 0;
        } else if (round % 3 == 2) {
            ho_header(&ho, 0, 1 | HO_LENGTH(8) | 0x80, 1); /* nonsense: it fails */
            HO_WAIT(&ho, ho.victim.errors == 1);
            ho.victim.errors = 0;
        }
        if (round & 1) { /* forgotten before its end, or after */
            uct_ep_destroy(ho.back);
            ho_turns(&ho, 100);
            ho_attacker_close(&ho);
        } else {
            ho_attacker_close(&ho);
            ut_progress_ms(t, 5);
            uct_ep_destroy(ho.back);
        }
        /* its end is noticed at a check of peers: then nothing of it is left */
        UT_WAIT(t, ho_ids_used(&ho) == 0);
        ho.victim.errors = 0;
    }
    ut_iface_close(&ho.victim);
    ut_md_close(t);
}

/* ---- records of old connections ----------------------------------------------------------------
 */

/* Close what the attacker sends on: nothing was sent. */
static void ho_close_ring(ho_t *ho, uint8_t epoch)
{
    uct_angara_close_t close  = {.super = ho_record(UCT_ANGARA_CLOSE)};
    unsigned           before = ho->answers;

    close.super.epoch = epoch;
    ho_notify(ho, &close, sizeof(close));
    HO_WAIT(ho, ho->answers == before + 1);
    CHECK_EQ(ho->answer.type, UCT_ANGARA_CLOSE_ACK);
    CHECK_EQ(ho->answer.epoch, epoch);
}

/* Every CLOSE is answered, also that of a ring that isn't open, or not any more. */
static void closes_answered(ut_t *t)
{
    ho_t ho;

    ut_md_open(t);
    ho_open(&ho, t);
    ho_give_ring(&ho);
    ho_close_ring(&ho, 1); /* never opened */
    ho_get_ring(&ho);
    ho_close_ring(&ho, 77); /* of another connection: the ring stays */
    ho_header(&ho, 0, uct_angara_hdr_am(0, 1, 8), 1);
    HO_WAIT(&ho, ho.messages == 1);
    ho.silent = 1;
    ho_header(&ho, 1, 1 | HO_LENGTH(8) | 0x80 | (1ull << UCT_ANGARA_HDR_SEQ_SHIFT), 2);
    HO_WAIT(&ho, ho.resets == 1);
    ho_close_ring(&ho, 1); /* given up */
    CHECK_EQ(ho.victim.errors, 1);
    ho_check_alive(&ho);
    ho_close(&ho);
    ut_md_close(t);
}

/* What an old connection still has to say is nothing to the new one. */
static void old_records(ut_t *t)
{
    static const uint8_t types[] = {UCT_ANGARA_GRANT, UCT_ANGARA_REFUSE, UCT_ANGARA_CLOSE,
                                    UCT_ANGARA_CLOSE_ACK, UCT_ANGARA_RESET_ACK};
    uct_angara_grant_t   grant;
    uct_angara_close_t   close;
    uct_angara_record_t  record;
    unsigned             i;
    ho_t                 ho;

    ut_md_open(t);
    ho_open(&ho, t);
    ho_get_ring(&ho);
    ho_give_ring(&ho);
    for (i = 0; i < sizeof(types); ++i) {
        record              = ho_record(types[i]);
        record.epoch        = (uint8_t)(ho.hello.super.epoch + 7);
        record.credit_index = ho.hello.super.credit_index;
        grant               = ho_grant(&ho);
        grant.super         = record;
        close               = (uct_angara_close_t){.super = record, .total = 12345};
        ho_notify(&ho,
                  (types[i] == UCT_ANGARA_GRANT) ? (const void *)&grant :
                  (types[i] == UCT_ANGARA_CLOSE) ? (const void *)&close :
                                                   (const void *)&record,
                  (types[i] == UCT_ANGARA_GRANT) ? sizeof(grant) :
                  (types[i] == UCT_ANGARA_CLOSE) ? sizeof(close) :
                                                   sizeof(record));
        ho_turns(&ho, 100);
        CHECK_EQ(ho.victim.errors, 0);
    }
    /* both directions are as they were */
    ho_header(&ho, 0, uct_angara_hdr_am(0, 1, 8), 1);
    HO_WAIT(&ho, ho.messages == 1);
    POST_OK(t, uct_ep_am_short(ho.back, 1, 0, NULL, 0));
    ut_flush(t, &ho.victim);
    /* but nonsense of this connection is none of an old one */
    record              = ho_record(UCT_ANGARA_CLOSE_ACK);
    record.epoch        = ho.hello.super.epoch;
    record.credit_index = ho.hello.super.credit_index;
    ho_notify(&ho, &record, sizeof(record));
    HO_WAIT(&ho, ho.victim.errors == 1);
    HO_WAIT(&ho, ho.resets == 1);
    CHECK_EQ(ho.reset.super.epoch, ho.hello.super.epoch);
    CHECK_EQ(ho.reset.super.shape, 1);
    UT_WAIT(t, ho_ids_used(&ho) == 0); /* it was answered */
    ho_check_alive(&ho);
    ho_close(&ho);
    ut_md_close(t);
}

/* RESET of somebody whom nobody knows is answered; and a ring is asked for once more where it
 * overtakes the greeting. */
static void strangers_reset(ut_t *t)
{
    uct_angara_hello_t reset;
    unsigned           epoch;
    ho_t               ho;

    ut_md_open(t);
    ho_open(&ho, t);
    reset             = ho_hello(&ho);
    reset.super.type  = UCT_ANGARA_RESET;
    reset.super.epoch = 5;
    reset.super.shape = 6;
    uct_ep_destroy(ho.back);
    ut_progress_ms(t, 1);
    ho_notify(&ho, &reset, sizeof(reset));
    HO_WAIT(&ho, ho.answers == 1);
    CHECK_EQ(ho.answer.type, UCT_ANGARA_RESET_ACK);
    CHECK_EQ(ho.answer.epoch, 5);
    CHECK_EQ(ho.answer.shape, 6);

    ho_connect_back(&ho);
    CHECK_OK(uct_ep_am_short(ho.back, 1, 0, NULL, 0));
    HO_WAIT(&ho, ho.greeted);
    epoch      = ho.hello.super.epoch;
    ho.greeted = 0;
    ho_notify(&ho, &reset, sizeof(reset));
    HO_WAIT(&ho, ho.answers == 2);
    CHECK_EQ(ho.victim.errors, 0);
    ho_give_ring(&ho);
    CHECK(ho.hello.super.epoch != epoch);
    CHECK_EQ(ho.victim.errors, 0);
    ho_close(&ho);
    ut_md_close(t);
}

/* ---- the tests ----------------------------------------------------------------------------- */

HO_TEST(failed_then_gone)
HO_TEST(closes_answered)
HO_TEST(old_records)
HO_TEST(strangers_reset)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failed_then_gone),
        cmocka_unit_test(test_closes_answered),
        cmocka_unit_test(test_old_records),
        cmocka_unit_test(test_strangers_reset),
    };

    return ut_main(argc, argv, "old", tests, sizeof(tests) / sizeof(tests[0]));
}
