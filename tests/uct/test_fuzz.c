/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random nonsense from a hostile peer (see test_hostile.c for nonsense by plan), from within the
 * process and from another; and an honest peer whose payload looks like what the receiver acts on.
 */
#include "ut_hostile.h"

#include <unistd.h>

/* ---- at random ------------------------------------------------------------------------------- */

static unsigned ho_slots(const ho_t *ho)
{
    return ho->granted ? ho->grant.nslots : 64;
}

/* Length that a record of this type must have. */
static size_t ho_record_length(uint8_t type)
{
    switch (type) {
    case UCT_ANGARA_HELLO:
    case UCT_ANGARA_RESET:
        return sizeof(uct_angara_hello_t);
    case UCT_ANGARA_GRANT:
        return sizeof(uct_angara_grant_t);
    case UCT_ANGARA_CLOSE:
        return sizeof(uct_angara_close_t);
    default:
        return sizeof(uct_angara_record_t);
    }
}

/* A record of random bytes, mostly of a known type, with fields that are often nearly right. */
static size_t ho_random_record(ho_t *ho, void *record)
{
    ut_t               *t     = ho->t;
    uct_angara_hello_t *hello = record;
    uct_angara_grant_t *grant = record;
    uint8_t            *bytes = record;
    size_t              i;

    for (i = 0; i < sizeof(*hello); ++i) {
        bytes[i] = (uint8_t)ut_random(t);
    }
    if (ut_random(t) % 8) {
        hello->super.type    = (uint8_t)(UCT_ANGARA_HELLO + ut_random(t) % 8);
        hello->super.version = UCT_ANGARA_PROTOCOL;
    }
    if (ut_random(t) % 2) {
        hello->super.epoch        = (uint8_t)(ut_random(t) % 3);
        hello->super.credit_index = (uint16_t)(ut_random(t) % 4);
        hello->super.value        = (uint16_t)(ut_random(t) % 80);
        hello->super.shape        = (uint8_t)(HO_SHAPE(HO_SHIFT, ut_random(t) % 16));
    }
    if ((hello->super.type == UCT_ANGARA_GRANT) && (ut_random(t) % 2)) {
        grant->ring_off  = HO_RING + ut_random(t) % HO_WINDOW;
        grant->ready_off = HO_READY;
        grant->nslots    = (uint32_t)(ut_random(t) % 1024);
    } else if (ut_random(t) % 2) {
        hello->address = ho->address;
    }
    return (ut_random(t) % 4) ? ho_record_length(hello->super.type) :
                                1 + ut_random(t) % sizeof(*hello);
}

/* Header words that are nearly right, or anything, anywhere that the victim reads. */
static void ho_random_write(ho_t *ho)
{
    ut_t    *t     = ho->t;
    uint64_t word  = ut_random(t), offset;
    unsigned slots = ho_slots(ho);
    unsigned index = (unsigned)(ut_random(t) % (2 * slots));

    if (ut_random(t) % 2) {
        word = uct_angara_hdr_seq(index) | (ut_random(t) % (1u << UCT_ANGARA_HDR_SEQ_SHIFT));
    } else if (ut_random(t) % 2) {
        word = ut_random(t) % 64;
    }
    switch (ut_random(t) % 4) {
    case 0:
        offset = (ut_random(t) % 4) * UCT_ANGARA_CREDIT_LINE;
        break;
    case 1:
        offset = ho->granted ? (ho->grant.ready_off & ~7ull) : 0;
        break;
    default:
        offset = ho->granted ? ho->grant.ring_off + ((uint64_t)(index % slots) << HO_SHIFT) : 0;
    }
    ho_put(ho, offset, &word, sizeof(word));
}

static void ho_random_session(ho_t *ho)
{
    uct_angara_hello_t record;
    size_t             length;
    unsigned           i;

    if (ut_random(ho->t) % 4) {
        ho_get_ring(ho);
    }
    if (ut_random(ho->t) % 4) {
        ho_give_ring(ho);
    }
    for (i = 0; i < 60; ++i) {
        if (ut_random(ho->t) % 4 == 0) {
            length = ho_random_record(ho, &record);
            ho_notify(ho, &record, length);
        } else {
            ho_random_write(ho);
        }
        if (ut_random(ho->t) % 2) {
            uct_ep_am_short(ho->back, 1, 0, "x", 1);
        }
        ho_turns(ho, (unsigned)(ut_random(ho->t) % 8));
    }
    ho_turns(ho, 100);
}

static void at_random(ut_t *t)
{
    unsigned rounds = ut_rounds(1500), i;
    ho_t     ho;

    setenv("UCX_ANGARA_DEAD_PEER", "error", 1);
    ut_md_open(t);
    if (getenv("ANGARA_TEST_SEED") != NULL) {
        t->rng = strtoull(getenv("ANGARA_TEST_SEED"), NULL, 0);
    }
    for (i = 0; i < rounds; ++i) {
        ho_open(&ho, t);
        ho_random_session(&ho);
        ho_close(&ho);
    }
    ho_open(&ho, t);
    ho_check_alive(&ho);
    ho_close(&ho);
    ut_md_close(t);
}

/* ---- honest payload ------------------------------------------------------------------------- */

/*
 * An honest sender whose messages happen to hold what would be valid header words of the slots that
 * they lie in, one lap later: none may ever be taken for one.
 */
typedef struct {
    uint64_t next;
} ho_honest_t;

static ucs_status_t ho_honest_receive(void *arg, void *data, size_t length, unsigned flags)
{
    ho_honest_t *honest = arg;
    uint64_t     number;

    (void)flags;
    CHECK(length >= sizeof(number));
    memcpy(&number, data, sizeof(number));
    CHECK_EQ(number, honest->next);
    ++honest->next;
    return UCS_OK;
}

static ucs_status_t ho_forged_receive(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg;
    (void)data;
    (void)flags;
    rank_fail(__FILE__, __LINE__, "payload was taken for a header (%zu bytes)", length);
}

/* Fill a message for slots from head on with header words of those slots' next lap. */
static void ho_forge_payload(char *buffer, size_t length, const uct_angara_tx_t *tx)
{
    uint64_t first     = tx->head, slot, word;
    size_t   slot_size = (size_t)1 << tx->shape.slot_shift, offset;

    for (slot = 1; (offset = slot * slot_size - sizeof(word)) + sizeof(word) <= length; ++slot) {
        word = uct_angara_hdr_am(first + slot + tx->shape.nslots, 31, 8);
        memcpy(buffer + offset, &word, sizeof(word));
    }
}

static void payload_like_headers(ut_t *t)
{
    uint64_t               count = ut_rounds(100000), number;
    uct_angara_peer_t     *peer;
    const uct_angara_tx_t *tx;
    ho_honest_t            honest = {0};
    char                  *buffer;
    ut_pack_t              pack;
    unsigned               small;

    ut_open(t);
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, 1, ho_honest_receive, &honest, 0));
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, 31, ho_forged_receive, NULL, 0));
    ut_barrier(t);
    peer        = uct_angara_ep_peer(t->ep[1 - t->rank]);
    tx          = &peer->ch.tx;
    buffer      = calloc(1, t->main.attr.cap.am.max_bcopy);
    pack.buffer = buffer;
    for (number = 0; (t->rank == 0) && (number < count);) {
        /* a long one, then enough short ones for the rest of the lap */
        pack.length = 8 + ut_random(t) % (t->main.attr.cap.am.max_bcopy - 7);
        ho_forge_payload(buffer, pack.length, tx);
        memcpy(buffer, &number, sizeof(number));
        CHECK_EQ(UT_POST(t, uct_ep_am_bcopy(t->ep[1], 1, ut_pack, &pack, 0)), pack.length);
        ++number;
        for (small = (unsigned)(ut_random(t) % 3) * 200; small > 0; --small, ++number) {
            POST_OK(t, uct_ep_am_short(t->ep[1], 1, number, "short", 5));
            if (ut_random(t) % 8 == 0) {
                ut_spin_ns(300); /* the receiver looks at the slot that comes next */
            }
        }
    }
    if (t->rank == 0) {
        ut_send_word(t, 1, number);
    } else {
        number = ut_recv_word(t, 0);
        UT_WAIT(t, honest.next == number);
    }
    free(buffer);
    ut_barrier(t);
    ut_close(t);
}

/* ---- another process ------------------------------------------------------------------------- */

/* The attacker is a process of its own, and dies in the end; an honest peer is served all the
 * while. */
static void attacker_process(ut_t *t)
{
    enum { HONEST = 2000 };
    uct_angara_hello_t record;
    uint64_t           sent;
    unsigned           i;
    ho_t               ho;

    memset(&ho, 0, sizeof(ho));
    ho.t = t;
    setenv("UCX_ANGARA_DEAD_PEER", "error", 1);
    ut_open(t);
    if (t->rank == 0) {
        CHECK_OK(uct_iface_set_am_handler(t->main.iface, 1, ho_receive, &ho, 0));
        for (i = 2; i < UCT_AM_ID_MAX; ++i) {
            static ho_t others;

            CHECK_OK(uct_iface_set_am_handler(t->main.iface, (uint8_t)i, ho_receive, &others, 0));
        }
        ut_barrier(t);
        UT_WAIT(t, ho.messages >= HONEST);
        ut_recv_word(t, 1); /* it needs us until then, to take its records */
    } else if (t->rank == 1) {
        ut_barrier(t);
        ho.victim.addr = t->addr[0];
        ho_attacker_open(&ho);
        ho_get_ring(&ho);
        do {
            if (ut_random(t) % 8 == 0) {
                ho_notify(&ho, &record, ho_random_record(&ho, &record));
            } else {
                /* not the credits: those are the honest peer's */
                uint64_t word = uct_angara_hdr_seq(ut_random(t) % ho_slots(&ho)) |
                                ((2 + ut_random(t) % 30) << UCT_ANGARA_HDR_ID_SHIFT) |
                                HO_LENGTH(ut_random(t) % 8000);

                ho_put(&ho, ho.grant.ring_off + ((ut_random(t) % ho_slots(&ho)) << HO_SHIFT), &word,
                       8);
            }
            ho_turn(&ho);
            sleep_ms(ut_random(t) % 16 == 0);
        } while (ut_random(t) % 500 != 0);
        ut_send_word(t, 0, 0);
        _exit(0);
    } else {
        ut_barrier(t);
        for (sent = 0; sent < HONEST; ++sent) {
            POST_OK(t, uct_ep_am_short(t->ep[0], 1, sent, "honest", 6));
        }
        ut_flush(t, &t->main);
        ut_progress_ms(t, 300);
    }
    ut_close_alone(t);
}

/* ---- the tests ----------------------------------------------------------------------------- */

#define FZ_TEST(_func, _nranks)            \
    static void test_##_func(void **state) \
    {                                      \
        (void)state;                       \
        ut_run(_nranks, _func, NULL);      \
    }

FZ_TEST(at_random, 1)
FZ_TEST(payload_like_headers, 2)
FZ_TEST(attacker_process, 3)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_random),
        cmocka_unit_test(test_payload_like_headers),
        cmocka_unit_test(test_attacker_process),
    };

    return ut_main(argc, argv, "fuzz", tests, sizeof(tests) / sizeof(tests[0]));
}
