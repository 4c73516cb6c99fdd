/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Strangers: PEs that the victim doesn't know. What they say of others is not believed, and what
 * they ask is answered.
 */
#include "ut_hostile.h"

/* A further PE of the attacker's process, connected to the victim, which doesn't know it. */
typedef struct {
    angara_pe_h   pe;
    angara_peer_h peer;
} stranger_t;

static void stranger_open(stranger_t *stranger, const ho_t *ho, unsigned events)
{
    angara_pe_params_t params = {
        .size = sizeof(params), .window_size = HO_WINDOW, .events = events};
    angara_address_t target;

    CHECK_EQ(angara_pe_create(ho->dom, &params, &stranger->pe), ANGARA_OK);
    memcpy(&target, ho->victim.addr.iface, sizeof(target));
    CHECK_EQ(angara_peer_connect(stranger->pe, &target, &stranger->peer), ANGARA_OK);
}

static void stranger_close(stranger_t *stranger)
{
    angara_peer_disconnect(stranger->peer);
    angara_pe_destroy(stranger->pe);
}

/* A victim, and an attacker whom it doesn't know either. */
static void unknown_open(ho_t *ho, ut_t *t)
{
    memset(ho, 0, sizeof(*ho));
    ho->t = t;
    ho_victim_open(ho);
    ho_attacker_open(ho);
}

static void unknown_close(ho_t *ho)
{
    ho_attacker_close(ho);
    ut_progress(ho->t);
    ut_iface_close(&ho->victim);
}

/* A stranger that gives another's address breaks nothing of the other's. */
static void forged_address(ut_t *t)
{
    uct_angara_hello_t  record;
    stranger_t          stranger;
    uct_angara_record_t types[2];
    unsigned            i;
    ho_t                ho;

    ut_md_open(t);
    ho_open(&ho, t);
    ho_give_ring(&ho);
    stranger_open(&stranger, &ho, 0);

    types[0]       = ho_record(UCT_ANGARA_RESET); /* of what the victim sends */
    types[0].epoch = 0;
    types[0].shape = ho.hello.super.epoch;
    types[1]       = ho_hello(&ho).super;
    for (i = 0; i < 2; ++i) {
        record       = ho_hello(&ho);
        record.super = types[i];
        CHECK_EQ(angara_notify(stranger.peer, &record, sizeof(record)), ANGARA_OK);
        ho_turns(&ho, 100);
        CHECK_EQ(ho.victim.errors, 0);
        CHECK_EQ(ho.answers, 0);
        CHECK_EQ(ho.granted, 0);
    }
    POST_OK(t, uct_ep_am_short(ho.back, 1, 0, NULL, 0));
    stranger_close(&stranger);
    ho_close(&ho);
    ut_md_close(t);
}

/* Nor does one that gives the address of somebody whom the victim doesn't know: who would be
 * answered. */
static void forged_stranger(ut_t *t)
{
    const uint8_t      types[] = {UCT_ANGARA_HELLO, UCT_ANGARA_RESET};
    uct_angara_hello_t record;
    stranger_t         stranger;
    unsigned           i;
    ho_t               ho; /* the bystander */

    ut_md_open(t);
    unknown_open(&ho, t);
    stranger_open(&stranger, &ho, 0);
    for (i = 0; i < 2; ++i) {
        record            = ho_hello(&ho);
        record.super.type = types[i];
        CHECK_EQ(angara_notify(stranger.peer, &record, sizeof(record)), ANGARA_OK);
        ho_turns(&ho, 100);
        CHECK_EQ(ho.granted + ho.refused + ho.answers, 0);
    }

    ho_get_ring(&ho); /* the bystander itself is heard */
    stranger_close(&stranger);
    unknown_close(&ho);
    ut_md_close(t);
}

/* A stranger whose event ring is full learns of each refusal when it looks again. */
static void slow_stranger(ut_t *t)
{
    enum { HELLOS = 6 };
    uct_angara_hello_t hello;
    angara_address_t   own;
    angara_event_t     event;
    stranger_t         stranger;
    unsigned           i, seen = 0;
    ho_t               ho;

    ut_md_open(t);
    unknown_open(&ho, t);
    stranger_open(&stranger, &ho, 2);
    angara_pe_address(stranger.pe, &own);
    for (i = 0; i < HELLOS; ++i) {
        hello                    = ho_hello(&ho);
        hello.super.value        = 0; /* runs of no slots */
        hello.super.credit_index = (uint16_t)i;
        hello.address            = own;
        CHECK_EQ(angara_notify(stranger.peer, &hello, sizeof(hello)), ANGARA_OK);
        ho_turns(&ho, 20);
    }

    while (seen != (1u << HELLOS) - 1) {
        ut_progress(t);
        angara_pe_progress(stranger.pe);
        if ((angara_pe_event_poll(stranger.pe, &event) == ANGARA_OK) &&
            (event.type == ANGARA_EVENT_NOTIFY)) {
            memcpy(&ho.refusal, event.data, sizeof(ho.refusal));
            CHECK_EQ(ho.refusal.type, UCT_ANGARA_REFUSE);
            CHECK(!(seen & (1u << ho.refusal.credit_index)));
            seen |= 1u << ho.refusal.credit_index;
        }
    }
    stranger_close(&stranger);
    unknown_close(&ho);
    ut_md_close(t);
}

HO_TEST(forged_address)
HO_TEST(forged_stranger)
HO_TEST(slow_stranger)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forged_address),
        cmocka_unit_test(test_forged_stranger),
        cmocka_unit_test(test_slow_stranger),
    };

    return ut_main(argc, argv, "strangers", tests, sizeof(tests) / sizeof(tests[0]));
}
