/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer that writes nonsense. It speaks to the interface under test through libangara alone:
 * control records, ring headers, ready words and credits, all wrong in turn, then at random.
 * Nothing of it may crash or hang the process; what is noticed is reported as that peer's failure;
 * and others are served as before. (Inside a node the soft fabric trusts its user, so what a peer
 * writes into the rings of others can make garbage of *their* messages: only crashes count there.)
 */
#include "ut_hostile.h"

#include <dlfcn.h>

/* ---- directed: headers ----------------------------------------------------------------------- */

typedef struct {
    const char *what;
    uint64_t    header;
    int         pad;   /* or a pad that ends so many slots behind the ring */
    int         fails; /* the victim must notice: else it is silently nothing */
} ho_header_t;

static const ho_header_t ho_headers[] = {
    {"not valid", HO_LENGTH(8), 0, 0},
    {"another sequence", 1 | HO_LENGTH(8) | (7ull << UCT_ANGARA_HDR_SEQ_SHIFT), 0, 0},
    {"unknown kind", 1 | HO_LENGTH(8) | 0x80, 0, 1},
    {"another unknown kind", 1 | HO_LENGTH(8) | 0xc0, 0, 1},
    {"longest length", 1 | HO_LENGTH(UCT_ANGARA_HDR_LEN_MASK), 0, 1},
    {"one more than a run", 1 | HO_LENGTH((HO_RUN << HO_SHIFT) - 7), 0, 1},
    {"a pad of nothing", 1 | HO_LENGTH(0) | UCT_ANGARA_KIND_PAD, 0, 1},
    {"a pad beyond the end", 0, 1, 1},
    {"a pad short of the end", 0, -1, 1},
};

static void bad_headers(ut_t *t)
{
    uint64_t header;
    unsigned i;
    ho_t     ho;

    ut_md_open(t);
    for (i = 0; i < sizeof(ho_headers) / sizeof(ho_headers[0]); ++i) {
        ho_open(&ho, t);
        ho_get_ring(&ho);
        header = ho_headers[i].header;
        if (ho_headers[i].pad != 0) {
            header = 1 | UCT_ANGARA_KIND_PAD |
                     HO_LENGTH(ho.grant.nslots + (unsigned)ho_headers[i].pad);
        }
        ho_header(&ho, 0, header, 1);
        ho_turns(&ho, 1000);
        if (ho_headers[i].fails && (ho.victim.errors != 1)) {
            rank_fail(__FILE__, __LINE__, "%s: was not noticed", ho_headers[i].what);
        } else if (!ho_headers[i].fails && (ho.victim.errors != 0)) {
            rank_fail(__FILE__, __LINE__, "%s: is no reason to fail", ho_headers[i].what);
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
    size_t   run  = ((size_t)HO_RUN << HO_SHIFT) - 8;
    uint16_t sent = 0;
    unsigned slot;
    ho_t     ho;

    ut_md_open(t);
    ho_open(&ho, t);
    ho_get_ring(&ho);
    for (slot = 0; slot + HO_RUN + 2 < ho.grant.nslots; slot += HO_RUN) {
        ho_header(&ho, slot, uct_angara_hdr_am(slot, 1, run), ++sent);
    }
    for (; slot + 2 < ho.grant.nslots; ++slot) {
        ho_header(&ho, slot, uct_angara_hdr_am(slot, 1, 8), ++sent);
    }
    HO_WAIT(&ho, ho.messages == sent);
    CHECK_EQ(ho.victim.errors, 0); /* all honest until here */
    ho_header(&ho, slot, uct_angara_hdr_am(slot, 1, run), sent + 1);
    ho_turns(&ho, 1000);
    CHECK_EQ(ho.victim.errors, 1);
    CHECK_EQ(ho.messages, sent);
    ho_check_alive(&ho);
    ho_close(&ho);
    ut_md_close(t);
}

/* A bad record is one failure: an endpoint that is made as soon as it was told has no part in it.
 */
static void bad_header_once(ut_t *t)
{
    uct_ep_h old;
    ho_t     ho;

    ut_md_open(t);
    ho_open(&ho, t);
    ho_get_ring(&ho);
    ho_header(&ho, 0, uct_angara_hdr_seq(0) | UCT_ANGARA_KIND_PAD, 1);
    UT_WAIT(t, ho.victim.errors == 1);
    old = ho.back;
    ho_connect_back(&ho);
    uct_ep_destroy(old);
    ho_turns(&ho, 100);
    CHECK_EQ(ho.victim.errors, 1);
    ho.greeted = 0;
    ho_give_ring(&ho);
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

static void ho_credit(ho_t *ho, uint64_t credit)
{
    ho_put(ho, ho->hello.super.credit_index * (uint64_t)UCT_ANGARA_CREDIT_LINE, &credit,
           sizeof(credit));
    ho_landed(ho);
}

/* Who says BYE takes no more. A flush of what it hasn't taken never succeeds; of the rest it does.
 */
static void bye_unread(ut_t *t)
{
    uct_angara_record_t bye = ho_record(UCT_ANGARA_BYE);
    unsigned            taken;
    ut_comp_t           comp;
    ho_t                ho;

    ut_md_open(t);
    for (taken = 0; taken < 2; ++taken) {
        ho_open(&ho, t);
        ho_give_ring(&ho);
        POST_OK(t, uct_ep_am_short(ho.back, 1, 0, NULL, 0));
        if (taken) {
            ho_credit(&ho, ho_peer(&ho)->ch.tx.head);
        }
        ho_notify(&ho, &bye, sizeof(bye));
        ut_comp_init(&comp, 1);
        if (taken) {
            UT_WAIT(t, uct_ep_flush(ho.back, 0, NULL) == UCS_OK);
        } else {
            CHECK_STATUS(uct_ep_flush(ho.back, 0, &comp.super), UCS_INPROGRESS);
            ho_turns(&ho, 200);
            CHECK_EQ(comp.calls, 0);
        }
        ho_attacker_close(&ho);
        if (!taken) {
            UT_WAIT(t, comp.calls > 0);
            CHECK_STATUS(comp.status, UCS_ERR_CONNECTION_RESET);
        }
        ut_progress_ms(t, 2);
        CHECK_EQ(comp.calls, !taken);
        CHECK_EQ(ho.victim.errors, !taken);
        uct_ep_destroy(ho.back);
        ut_progress(t);
        ut_iface_close(&ho.victim);
    }
    ut_md_close(t);
}

/* ---- directed: a pair that can't be stopped yet -----------------------------------------------
 */

static unsigned busy_resets; /* so many are to be refused */

/* Taken by the transport for the library's. */
angara_status_t angara_peer_reset(angara_peer_h peer)
{
    angara_status_t (*reset)(angara_peer_h) = dlsym(RTLD_NEXT, "angara_peer_reset");

    if (busy_resets > 0) {
        --busy_resets;
        return ANGARA_ERR_BUSY;
    }
    return reset(peer);
}

/* Nobody is told of a failure before what was posted has been stopped; then once. */
static void busy_reset(ut_t *t)
{
    uct_angara_record_t nonsense = ho_record(UCT_ANGARA_CLOSE_ACK);
    ho_t                ho;

    ut_md_open(t);
    ho_open(&ho, t);
    ho_give_ring(&ho);
    POST_OK(t, uct_ep_am_short(ho.back, 1, 0, NULL, 0));
    busy_resets           = 30;
    nonsense.epoch        = ho.hello.super.epoch;
    nonsense.credit_index = ho.hello.super.credit_index;
    ho_notify(&ho, &nonsense, sizeof(nonsense));
    while (busy_resets > 0) {
        CHECK_EQ(ho.victim.errors, 0);
        CHECK_EQ(ho.resets, 0);
        ho_turn(&ho);
    }
    HO_WAIT(&ho, ho.victim.errors == 1);
    HO_WAIT(&ho, ho.resets == 1);
    ho_turns(&ho, 100);
    CHECK_EQ(ho.victim.errors, 1);
    CHECK_EQ(ho.resets, 1);
    ho_check_alive(&ho);
    ho_close(&ho);
    ut_md_close(t);
}

/* ---- directed: credits ----------------------------------------------------------------------- */

/* Send until there is no more room. @return the last status. */
static ssize_t ho_fill(ho_t *ho)
{
    ssize_t  status = UCS_OK;
    unsigned sent;

    for (sent = 0; (sent < 100000) && (status == UCS_OK); ++sent) {
        status = uct_ep_am_short(ho->back, 1, 0, NULL, 0);
    }
    ho_turns(ho, 1000);
    CHECK(sent < 100000); /* more slots were never sent than there are */
    return status;
}

/* Credits for more than was sent, and credits that fall, fail the peer when they are looked at. */
static void bad_credits(ut_t *t)
{
    static const uint64_t credits[] = {UINT64_MAX, 1ull << 63, 100000};
    unsigned              i;
    ho_t                  ho;

    ut_md_open(t);
    for (i = 0; i < sizeof(credits) / sizeof(credits[0]); ++i) {
        ho_open(&ho, t);
        ho_give_ring(&ho);
        ho_credit(&ho, credits[i]);
        CHECK_STATUS(ho_fill(&ho), UCS_ERR_CONNECTION_RESET);
        CHECK_EQ(ho.victim.errors, 1);
        ho_check_alive(&ho);
        ho_close(&ho);
    }

    ho_open(&ho, t);
    ho_give_ring(&ho);
    ho_credit(&ho, 2);
    CHECK_STATUS(ho_fill(&ho), UCS_ERR_NO_RESOURCE);
    CHECK_EQ(ho.victim.errors, 0); /* honest until here */
    ho_credit(&ho, 1);
    CHECK_STATUS(ho_fill(&ho), UCS_ERR_CONNECTION_RESET);
    CHECK_EQ(ho.victim.errors, 1);
    ho_close(&ho);
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

/*
 * A ready word of a ring that doesn't exist, at the end of the array. Only with more rings than are
 * polled directly is the array looked at.
 */
static void ready_beyond_rings(ut_t *t)
{
    enum { RINGS = UCT_ANGARA_HOT_RINGS + 1 };
    static ho_t hos[RINGS];
    uint64_t    first;
    uint16_t    word = 0x5a5a;
    unsigned    i;

    setenv("UCX_ANGARA_MAX_PEERS", "5", 1);
    ut_md_open(t);
    hos[0].t = t;
    ho_victim_open(&hos[0]);
    for (i = 0; i < RINGS; ++i) {
        if (i > 0) {
            hos[i].t      = t;
            hos[i].victim = hos[0].victim;
        }
        ho_attacker_open(&hos[i]);
        ho_get_ring(&hos[i]);
    }
    first = hos[0].grant.ready_off - hos[0].grant.super.value * sizeof(word);
    for (i = RINGS; i < RINGS + 27; ++i) { /* to the end of the array */
        ho_put(&hos[0], first + i * sizeof(word), &word, sizeof(word));
    }
    ho_landed(&hos[0]);
    ho_turns(&hos[0], 1000);
    for (i = 0; i < RINGS; ++i) { /* all are served as before */
        ho_header(&hos[i], 0, uct_angara_hdr_am(0, 1, 8), 1);
        HO_WAIT(&hos[i], hos[0].messages == i + 1);
    }
    for (i = 0; i < RINGS; ++i) {
        ho_attacker_close(&hos[i]);
    }
    ut_iface_close(&hos[0].victim);
    ut_md_close(t);
}

/* Greetings that can't be granted are refused, so that the sender doesn't wait, and both say why.
 */
static void refused_hellos(ut_t *t)
{
    static const struct {
        unsigned    run;
        unsigned    shift;
        const char *said; /* by the victim, which nobody else can tell that its peer is mad */
    } hellos[] = {
        {0, HO_SHIFT, "impossible ring (runs of 0 slots"},
        {1, UCT_ANGARA_SLOT_SHIFT_MAX + 1, "impossible ring"},
        {1, 0xf + UCT_ANGARA_SLOT_SHIFT_MIN, "impossible ring"},
        {UINT16_MAX, HO_SHIFT, NULL},
        {UINT16_MAX, UCT_ANGARA_SLOT_SHIFT_MAX, NULL},
        {67, HO_SHIFT, NULL}, /* 8576 bytes: one slot more than the default */
        {4, UCT_ANGARA_SLOT_SHIFT_MAX, NULL},
    };
    uct_angara_hello_t hello;
    unsigned           i;
    ho_t               ho;

    ut_log_watch();
    ut_md_open(t);
    for (i = 0; i < sizeof(hellos) / sizeof(hellos[0]); ++i) {
        ho_open(&ho, t);
        hello             = ho_hello(&ho);
        hello.super.value = (uint16_t)hellos[i].run;
        hello.super.shape = (uint8_t)HO_SHAPE(hellos[i].shift, UCT_ANGARA_NO_SEGS);
        ut_log_forget();
        ho_notify(&ho, &hello, sizeof(hello));
        HO_WAIT(&ho, ho.refused);
        CHECK_EQ(ho.refusal.shape, UCT_ANGARA_REFUSE_SHAPE);
        CHECK_EQ(ho.refusal.epoch, hello.super.epoch);
        CHECK((hellos[i].said == NULL) || ut_log_has(hellos[i].said));
        CHECK(!ho.granted);
        /* a sane greeting is granted afterwards */
        ho_get_ring(&ho);
        CHECK_EQ(ho.victim.errors, 0);
        ho_close(&ho);
    }
    ut_md_close(t);
}

/* The other side of a refusal: the endpoint fails and tells which settings to compare. */
static void refused_by_peer(ut_t *t)
{
    uct_angara_record_t record;
    ho_t                ho;

    ut_md_open(t);
    ho_open(&ho, t);
    CHECK_OK(uct_ep_am_short(ho.back, 1, 0, NULL, 0));
    HO_WAIT(&ho, ho.greeted);
    record              = ho_record(UCT_ANGARA_REFUSE);
    record.epoch        = ho.hello.super.epoch;
    record.credit_index = ho.hello.super.credit_index;
    record.shape        = UCT_ANGARA_REFUSE_SHAPE;
    ho_notify(&ho, &record, sizeof(record));
    HO_WAIT(&ho, ho.victim.errors == 1);
    CHECK(strstr(ho_peer(&ho)->reason, "UCX_ANGARA_SEG_SIZE") != NULL);
    CHECK_STATUS(uct_ep_am_short(ho.back, 1, 0, NULL, 0), UCS_ERR_REJECTED);
    ho_close(&ho);
    ut_md_close(t);
}

/* Grants of a ring that can't be: where it lies, and how many slots it has. */
static void bad_grants(ut_t *t)
{
    static const struct {
        uint64_t ring_off, ready_off;
        int64_t  nslots; /* 0: as the victim needs; negative: so many less than that */
    } grants[] = {
        {UINT64_MAX, 0, 0},
        {UINT64_MAX - 4096, 0, 0},
        {HO_WINDOW, 0, 0},
        {HO_WINDOW - 64, 0, 0},
        {1, HO_READY, 0},
        {HO_RING, HO_WINDOW, 0},
        {HO_RING, 1, 0},
        {HO_RING, UINT64_MAX - 1, 0},
        {1ull << 63, 64, 0},
        {HO_RING, 1ull << 62, 0},
        {HO_RING, HO_READY, -1},
        {HO_RING, HO_READY, UCT_ANGARA_SLOTS_MIN - 1},
        {HO_RING, HO_READY, 1},
        {HO_RING, HO_READY, UCT_ANGARA_SLOTS_MAX + 1},
        {HO_RING, HO_READY, UINT32_MAX},
        {HO_RING, HO_READY, 1 << 31},
        {HO_RING, HO_READY, HO_WINDOW >> HO_SHIFT}, /* just beyond the window */
    };
    const char        *reason;
    uct_angara_grant_t grant;
    unsigned           i;
    ho_t               ho;

    ut_md_open(t);
    for (i = 0; i < 3 + sizeof(grants) / sizeof(grants[0]); ++i) {
        ho_open(&ho, t);
        memset(&grant, 0, sizeof(grant));
        grant.super = ho_record(UCT_ANGARA_GRANT);
        if (i >= 3) {
            CHECK_OK(uct_ep_am_short(ho.back, 1, 0, NULL, 0));
            HO_WAIT(&ho, ho.greeted);
            grant           = ho_grant(&ho);
            grant.ring_off  = grants[i - 3].ring_off;
            grant.ready_off = grants[i - 3].ready_off;
            grant.nslots    = (uint32_t)(grants[i - 3].nslots +
                                      ((grants[i - 3].nslots <= 0) ? grant.nslots : 0));
        } /* else: nobody asked */
        ho_notify(&ho, &grant, (i == 1) ? 9 : (i == 2) ? sizeof(grant) - 4 : sizeof(grant));
        ho_turns(&ho, 500);
        if (i >= 3) {
            CHECK_EQ(ho.victim.errors, 1);
            CHECK_ERR(uct_ep_am_short(ho.back, 1, 0, NULL, 0));
            reason = ho_peer(&ho)->reason;
            CHECK((strstr(reason, "a ring outside its window") != NULL) ||
                  (strstr(reason, "a ring of an impossible size") != NULL) ||
                  (strstr(reason, "a ring that is too small") != NULL));
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

HO_TEST(bad_headers)
HO_TEST(run_beyond_end)
HO_TEST(bad_header_once)
HO_TEST(bye_unread)
HO_TEST(busy_reset)
HO_TEST(bad_ready)
HO_TEST(bad_credits)
HO_TEST(bad_hellos)
HO_TEST(many_hellos)
HO_TEST(ready_beyond_rings)
HO_TEST(refused_hellos)
HO_TEST(refused_by_peer)
HO_TEST(bad_grants)
HO_TEST(bad_closes)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_headers),    cmocka_unit_test(test_run_beyond_end),
        cmocka_unit_test(test_bad_ready),      cmocka_unit_test(test_bad_header_once),
        cmocka_unit_test(test_bye_unread),     cmocka_unit_test(test_busy_reset),
        cmocka_unit_test(test_bad_credits),    cmocka_unit_test(test_bad_hellos),
        cmocka_unit_test(test_many_hellos),    cmocka_unit_test(test_ready_beyond_rings),
        cmocka_unit_test(test_refused_hellos), cmocka_unit_test(test_refused_by_peer),
        cmocka_unit_test(test_bad_grants),     cmocka_unit_test(test_bad_closes),
    };

    return ut_main(argc, argv, "hostile", tests, sizeof(tests) / sizeof(tests[0]));
}
