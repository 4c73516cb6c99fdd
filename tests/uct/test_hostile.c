/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer that writes nonsense. It speaks to the interface under test through libangara alone:
 * control records, ring headers, ready words and credits, all wrong in turn, then at random.
 * Nothing of it may crash or hang the process; what is noticed is reported as that peer's failure;
 * and others are served as before. (Inside a node the soft fabric trusts its user, so what a peer
 * writes into the rings of others can make garbage of *their* messages: only crashes count there.)
 */
#include "ut_hostile.h"

/* ---- directed: headers ----------------------------------------------------------------------- */

typedef struct {
    const char *what;
    uint64_t    header;
    int         fails; /* the victim must notice: else it is silently nothing */
} ho_header_t;

static const ho_header_t ho_headers[] = {
    {"not valid", HO_LENGTH(8), 0},
    {"another sequence", 1 | HO_LENGTH(8) | (7ull << UCT_ANGARA_HDR_SEQ_SHIFT), 0},
    {"unknown kind", 1 | HO_LENGTH(8) | 0x80, 1},
    {"another unknown kind", 1 | HO_LENGTH(8) | 0xc0, 1},
    {"longest length", 1 | HO_LENGTH(UCT_ANGARA_HDR_LEN_MASK), 1},
    {"one more than a run", 1 | HO_LENGTH((HO_SLOTS / 4 << HO_SHIFT) - 7), 1},
    {"a pad of nothing", 1 | HO_LENGTH(0) | UCT_ANGARA_KIND_PAD, 1},
    {"a pad beyond the end", 1 | HO_LENGTH(HO_SLOTS + 1) | UCT_ANGARA_KIND_PAD, 1},
    {"a pad short of the end", 1 | HO_LENGTH(HO_SLOTS - 1) | UCT_ANGARA_KIND_PAD, 1},
};

static void bad_headers(ut_t *t)
{
    unsigned i;
    ho_t     ho;

    ut_md_open(t);
    for (i = 0; i < sizeof(ho_headers) / sizeof(ho_headers[0]); ++i) {
        ho_open(&ho, t);
        ho_get_ring(&ho);
        ho_header(&ho, 0, ho_headers[i].header, 1);
        ho_turns(&ho, 1000);
        if (ho_headers[i].fails && (ho.victim.errors != 1)) {
            ut_fail(__FILE__, __LINE__, "%s: was not noticed", ho_headers[i].what);
        } else if (!ho_headers[i].fails && (ho.victim.errors != 0)) {
            ut_fail(__FILE__, __LINE__, "%s: is no reason to fail", ho_headers[i].what);
        }
        CHECK_EQ(ho.messages, 0);
        ho_check_alive(&ho);
        ho_close(&ho);
    }
    ut_md_close(t);
}

/* A run that would leave the ring at its end. */
static void run_beyond_end(ut_t *t)
{
    unsigned slot;
    ho_t     ho;

    ut_md_open(t);
    ho_open(&ho, t);
    ho_get_ring(&ho);
    for (slot = 0; slot < HO_SLOTS - 2; ++slot) {
        ho_header(&ho, slot, uct_angara_hdr_am(slot, 1, 8), (uint16_t)(slot + 1));
    }
    HO_WAIT(&ho, ho.messages == HO_SLOTS - 2);
    CHECK_EQ(ho.victim.errors, 0); /* all honest until here */
    ho_header(&ho, slot, uct_angara_hdr_am(slot, 1, 3 << HO_SHIFT), (uint16_t)(slot + 1));
    ho_turns(&ho, 1000);
    CHECK_EQ(ho.victim.errors, 1);
    CHECK_EQ(ho.messages, HO_SLOTS - 2);
    ho_check_alive(&ho);
    ho_close(&ho);
    ut_md_close(t);
}

/* Ready words that speak of messages that aren't there. */
static void bad_ready(ut_t *t)
{
    uint16_t word;
    unsigned i;
    ho_t     ho;

    ut_md_open(t);
    ho_open(&ho, t);
    ho_get_ring(&ho);
    for (i = 0; i < 200; ++i) {
        word = (uint16_t)ut_random(t);
        ho_put(&ho, ho.grant.ready_off, &word, sizeof(word));
        ho_turns(&ho, 50);
    }
    CHECK_EQ(ho.messages, 0);
    ho_check_alive(&ho);
    ho_close(&ho);
    ut_md_close(t);
}

/* ---- directed: credits ----------------------------------------------------------------------- */

static void bad_credits(ut_t *t)
{
    static const uint64_t credits[] = {UINT64_MAX, 1ull << 63, 1000, 2};
    unsigned              i, sent;
    ssize_t               status;
    ho_t                  ho;

    ut_md_open(t);
    for (i = 0; i < sizeof(credits) / sizeof(credits[0]); ++i) {
        ho_open(&ho, t);
        ho_give_ring(&ho);
        ho_put(&ho, ho.hello.super.credit_index * (uint64_t)UCT_ANGARA_CREDIT_LINE, &credits[i],
               sizeof(credits[i]));
        ho_landed(&ho);
        for (sent = 0; sent < 100000; ++sent) {
            status = uct_ep_am_short(ho.back, 1, 0, NULL, 0);
            if (status != UCS_OK) {
                break;
            }
        }
        ho_turns(&ho, 1000);
        /* more slots were never sent than there are; the wrong count fails the peer when looked at
         */
        CHECK(sent < 100000);
        CHECK((ho.victim.errors == 1) || (status == UCS_ERR_NO_RESOURCE));
        ho_check_alive(&ho);
        ho_close(&ho);
    }
    ut_md_close(t);
}

/* ---- directed: records ----------------------------------------------------------------------- */

/* Greetings: of a wrong version, shape, credit line, address, length; and far too many. */
static void bad_hellos(ut_t *t)
{
    uct_angara_hello_t hello;
    unsigned           i;
    ho_t               ho;

    setenv("UCX_ANGARA_DEAD_PEER", "error", 1); /* strangers have no endpoint to fail */
    ut_md_open(t);
    for (i = 0; i < 12; ++i) {
        ho_open(&ho, t);
        hello = ho_hello(&ho);
        switch (i) {
        case 0:
            hello.super.version = 99;
            break;
        case 1:
            hello.super.value = 0;
            break;
        case 2:
            hello.super.value = UINT16_MAX;
            break;
        case 3:
            hello.super.shape = 0xff;
            break;
        case 4:
            hello.super.credit_index = UINT16_MAX;
            break;
        case 5:
            hello.address.magic = 0;
            break;
        case 6:
            hello.address.version = 77;
            break;
        case 7:
            hello.address.generation ^= 1;
            break;
        case 8:
            memset(hello.address.loc, 0xff, sizeof(hello.address.loc));
            break;
        case 9:
            memcpy(&hello.address, ho.victim.addr.iface, sizeof(hello.address)); /* "I am you" */
            break;
        case 10:
            hello.super.shape = HO_SHAPE(UCT_ANGARA_SLOT_SHIFT_MAX, 0);
            hello.super.value = UCT_ANGARA_SLOTS_MAX;
            break;
        default:
            ho_notify(&ho, &hello, 3); /* cut off */
        }
        ho_notify(&ho, &hello, sizeof(hello));
        ho_turns(&ho, 500);
        ho_check_alive(&ho);
        ho_close(&ho);
    }
    ut_md_close(t);
}

/* The same greeting over and over: bounded memory, no crash. */
static void many_hellos(ut_t *t)
{
    unsigned count = ut_rounds(3000), i;
    ho_t     ho;

    ut_md_open(t);
    ho_open(&ho, t);
    for (i = 0; i < count; ++i) {
        uct_angara_hello_t hello = ho_hello(&ho);

        hello.super.epoch = (uint8_t)i;
        ho_notify(&ho, &hello, sizeof(hello));
        ho_turn(&ho);
    }
    ho_turns(&ho, 500);
    ho_close(&ho);
    ho_open(&ho, t);
    ho_check_alive(&ho);
    ho_close(&ho);
    ut_md_close(t);
}

static void bad_grants(ut_t *t)
{
    static const uint64_t offsets[][2] = {
        {UINT64_MAX, 0},  {UINT64_MAX - 4096, 0}, {HO_WINDOW, 0}, {HO_WINDOW - 64, 0},
        {1, HO_READY},    {HO_RING, HO_WINDOW},   {HO_RING, 1},   {HO_RING, UINT64_MAX - 1},
        {1ull << 63, 64}, {HO_RING, 1ull << 62},
    };
    uct_angara_grant_t grant;
    unsigned           i;
    ho_t               ho;

    ut_md_open(t);
    for (i = 0; i < 2 + sizeof(offsets) / sizeof(offsets[0]); ++i) {
        ho_open(&ho, t);
        memset(&grant, 0, sizeof(grant));
        grant.super = ho_record(UCT_ANGARA_GRANT);
        if (i >= 2) {
            CHECK_STATUS(uct_ep_am_short(ho.back, 1, 0, NULL, 0), UCS_ERR_NO_RESOURCE);
            HO_WAIT(&ho, ho.greeted);
            grant.super.epoch        = ho.hello.super.epoch;
            grant.super.credit_index = ho.hello.super.credit_index;
            grant.ring_off           = offsets[i - 2][0];
            grant.ready_off          = offsets[i - 2][1];
        } /* else: nobody asked */
        ho_notify(&ho, &grant, (i == 1) ? 9 : sizeof(grant));
        ho_turns(&ho, 500);
        if (i >= 2) {
            CHECK_EQ(ho.victim.errors, 1);
            CHECK_ERR(uct_ep_am_short(ho.back, 1, 0, NULL, 0));
        }
        ho_check_alive(&ho);
        ho_close(&ho);
    }
    ut_md_close(t);
}

/* Ends of what never began, in any state of the connection. */
static void bad_closes(ut_t *t)
{
    static const uint8_t types[] = {
        UCT_ANGARA_CLOSE, UCT_ANGARA_CLOSE_ACK, UCT_ANGARA_REFUSE, UCT_ANGARA_BYE, 0, 0xff};
    static const uint64_t totals[] = {0, 1, 1000000, UINT64_MAX};
    uct_angara_close_t    record;
    unsigned              i, j, state;
    ho_t                  ho;

    ut_md_open(t);
    for (state = 0; state < 4; ++state) {
        for (i = 0; i < sizeof(types); ++i) {
            for (j = 0; j < sizeof(totals) / sizeof(totals[0]); ++j) {
                ho_open(&ho, t);
                if (state & 1) {
                    ho_get_ring(&ho);
                }
                if (state & 2) {
                    ho_give_ring(&ho);
                }
                record.super       = ho_record(types[i]);
                record.super.value = (state & 1) ? ho.grant.super.value : (uint16_t)(j * 99);
                record.total       = totals[j];
                ho_notify(&ho, &record, sizeof(record));
                ho_turns(&ho, 100);
                if (state & 1) { /* and then goes on as if nothing had happened */
                    ho_header(&ho, 0, uct_angara_hdr_am(0, 3, 8), 1);
                    ho_turns(&ho, 100);
                }
                ho_check_alive(&ho);
                ho_close(&ho);
            }
        }
    }
    ut_md_close(t);
}

/* ---- the tests ----------------------------------------------------------------------------- */

#define HO_TEST(_func)                     \
    static void test_##_func(void **state) \
    {                                      \
        (void)state;                       \
        ut_run(1, _func, NULL);            \
    }

HO_TEST(bad_headers)
HO_TEST(run_beyond_end)
HO_TEST(bad_ready)
HO_TEST(bad_credits)
HO_TEST(bad_hellos)
HO_TEST(many_hellos)
HO_TEST(bad_grants)
HO_TEST(bad_closes)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_headers), cmocka_unit_test(test_run_beyond_end),
        cmocka_unit_test(test_bad_ready),   cmocka_unit_test(test_bad_credits),
        cmocka_unit_test(test_bad_hellos),  cmocka_unit_test(test_many_hellos),
        cmocka_unit_test(test_bad_grants),  cmocka_unit_test(test_bad_closes),
    };

    return ut_main(argc, argv, "hostile", tests, sizeof(tests) / sizeof(tests[0]));
}
