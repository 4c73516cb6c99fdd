/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer that writes nonsense. It speaks to the interface under test through libangara alone: control
 * records, ring headers, ready words and credits, all wrong in turn, then at random. Nothing of it may
 * crash or hang the process; what is noticed is reported as that peer's failure; and others are served
 * as before. (Inside a node the soft fabric trusts its user, so what a peer writes into the rings of
 * others can make garbage of *their* messages: only crashes count there.)
 */
#include "ut.h"

#include "uct_angara_ep.h"

#define HO_WINDOW   ((size_t)1 << 20)
#define HO_RING     ((uint64_t)64 << 10) /* where the attacker grants its ring */
#define HO_READY    ((uint64_t)32 << 10) /* and the ready word */
#define HO_SLOTS    64
#define HO_SHIFT    7 /* log2 of bytes per slot */
#define HO_SHAPE(_shift, _seg) (((_shift) - UCT_ANGARA_SLOT_SHIFT_MIN) | ((_seg) << 4))

typedef struct {
    ut_t                *t;
    ut_iface_t           victim; /* interface under test */
    uct_ep_h             back;   /* its endpoint to the attacker */
    uint64_t             messages; /* delivered to it */
    uint64_t             checksum; /* of all their bytes, so that they are read */
    angara_domain_h      dom;
    angara_pe_h          pe;
    angara_peer_h        peer;
    angara_address_t     address; /* of the attacker */
    char                *window;
    angara_marker_slot_t *slot;
    uint64_t             value;
    uct_angara_grant_t   grant; /* the victim's, once it came */
    uct_angara_hello_t   hello; /* the victim's */
    int                  granted;
    int                  greeted;
} ho_t;

static ucs_status_t ho_receive(void *arg, void *data, size_t length, unsigned flags)
{
    ho_t         *ho    = arg;
    const uint8_t *bytes = data;
    size_t         i;

    (void)flags;
    ++ho->messages;
    for (i = 0; i < length; ++i) {
        ho->checksum += bytes[i];
    }
    return UCS_OK;
}

/* ---- the two sides ------------------------------------------------------------------------- */

static void ho_victim_open(ho_t *ho)
{
    uint8_t id;

    memset(&ho->victim, 0, sizeof(ho->victim));
    ut_iface_open(ho->t, &ho->victim);
    for (id = 0; id < UCT_AM_ID_MAX; ++id) {
        CHECK_OK(uct_iface_set_am_handler(ho->victim.iface, id, ho_receive, ho, 0));
    }
}

static void ho_attacker_open(ho_t *ho)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = HO_WINDOW};
    angara_address_t   target;
    size_t             size;

    CHECK_EQ(angara_open(NULL, &ho->dom), ANGARA_OK);
    CHECK_EQ(angara_pe_create(ho->dom, &params, &ho->pe), ANGARA_OK);
    ho->window = angara_pe_window(ho->pe, &size);
    CHECK_EQ(angara_pe_window_commit(ho->pe, 0, HO_WINDOW), ANGARA_OK);
    angara_pe_address(ho->pe, &ho->address);
    memcpy(&target, ho->victim.addr.iface, sizeof(target));
    CHECK_EQ(angara_peer_connect(ho->pe, &target, &ho->peer), ANGARA_OK);
    CHECK_EQ(angara_marker_slot_get(ho->pe, &ho->slot), ANGARA_OK);
    ho->value   = *ho->slot;
    ho->granted = ho->greeted = 0;
}

/* The victim's endpoint to the attacker, so that it hears of failures. */
static void ho_connect_back(ho_t *ho)
{
    ut_addr_t addr = ho->victim.addr;

    memcpy(addr.iface, &ho->address, sizeof(ho->address));
    ho->back = ut_ep_create(&ho->victim, &addr);
}

static void ho_open(ho_t *ho, ut_t *t)
{
    memset(ho, 0, sizeof(*ho));
    ho->t = t;
    ho_victim_open(ho);
    ho_attacker_open(ho);
    ho_connect_back(ho);
}

static void ho_close(ho_t *ho)
{
    uct_ep_destroy(ho->back);
    angara_marker_slot_put(ho->pe, ho->slot);
    angara_peer_disconnect(ho->peer);
    angara_pe_destroy(ho->pe);
    CHECK_EQ(angara_close(ho->dom), ANGARA_OK);
    ut_progress(ho->t);
    ut_iface_close(&ho->victim);
}

/* Both sides take what has come. */
static void ho_turn(ho_t *ho)
{
    angara_event_t event;

    ut_progress(ho->t);
    angara_pe_progress(ho->pe);
    while (angara_pe_event_poll(ho->pe, &event) == ANGARA_OK) {
        if (event.type != ANGARA_EVENT_NOTIFY) {
            continue;
        }
        if (event.data[0] == UCT_ANGARA_GRANT) {
            memcpy(&ho->grant, event.data, sizeof(ho->grant));
            ho->granted = 1;
        } else if (event.data[0] == UCT_ANGARA_HELLO) {
            memcpy(&ho->hello, event.data, sizeof(ho->hello));
            ho->greeted = 1;
        }
    }
}

static void ho_turns(ho_t *ho, unsigned count)
{
    while (count-- > 0) {
        ho_turn(ho);
    }
}

#define HO_WAIT(_ho, _cond) \
    do { \
        ut_timer_t _timer = {0, 0}; \
        while (!(_cond)) { \
            ho_turn(_ho); \
            ut_relax((_ho)->t, &_timer, __FILE__, __LINE__, #_cond); \
        } \
    } while (0)

/* The victim still works: a message to itself, and a put into its memory. */
static void ho_check_alive(ho_t *ho)
{
    uint64_t before;
    uct_ep_h self = ut_ep_create(&ho->victim, &ho->victim.addr);

    ut_progress_ms(ho->t, 1);
    before = ho->messages;
    POST_OK(ho->t, uct_ep_am_short(self, 1, 1, "alive", 5));
    UT_WAIT(ho->t, ho->messages > before);
    ut_flush(ho->t, &ho->victim);
    uct_ep_destroy(self);
    ut_progress_ms(ho->t, 1);
}

/* ---- what the attacker says ----------------------------------------------------------------- */

static void ho_notify(ho_t *ho, const void *record, size_t length)
{
    angara_status_t status;

    while ((status = angara_notify(ho->peer, record, length)) == ANGARA_ERR_NO_RESOURCE) {
        ho_turn(ho);
    }
    CHECK_EQ(status, ANGARA_OK);
}

static uct_angara_record_t ho_record(uint8_t type)
{
    uct_angara_record_t record = {.type = type, .version = UCT_ANGARA_PROTOCOL, .epoch = 1};

    return record;
}

static uct_angara_hello_t ho_hello(const ho_t *ho)
{
    uct_angara_hello_t hello = {.super = ho_record(UCT_ANGARA_HELLO), .address = ho->address};

    hello.super.shape = HO_SHAPE(HO_SHIFT, UCT_ANGARA_NO_SEGS);
    hello.super.value = HO_SLOTS;
    return hello;
}

/* Ask for a ring as an honest peer would. */
static void ho_get_ring(ho_t *ho)
{
    uct_angara_hello_t hello = ho_hello(ho);

    ho->granted = 0;
    ho_notify(ho, &hello, sizeof(hello));
    HO_WAIT(ho, ho->granted);
}

/* Have the victim ask for a ring, and grant it one. */
static void ho_give_ring(ho_t *ho)
{
    uct_angara_grant_t grant = {.super = ho_record(UCT_ANGARA_GRANT)};

    CHECK_STATUS(uct_ep_am_short(ho->back, 1, 0, NULL, 0), UCS_ERR_NO_RESOURCE);
    HO_WAIT(ho, ho->greeted);
    grant.super.epoch        = ho->hello.super.epoch;
    grant.super.credit_index = ho->hello.super.credit_index;
    grant.ring_off           = HO_RING;
    grant.ready_off          = HO_READY;
    ho_notify(ho, &grant, sizeof(grant));
    POST_OK(ho->t, uct_ep_am_short(ho->back, 1, 0, NULL, 0));
    ut_flush(ho->t, &ho->victim);
}

/* Wait until all that was put has landed. */
static void ho_landed(ho_t *ho)
{
    uint64_t value = ++ho->value;

    while (angara_marker(ho->peer, ho->slot, value) == ANGARA_ERR_NO_RESOURCE) {
        angara_pe_progress(ho->pe);
    }
    while (!angara_marker_arrived(ho->slot, value)) {
        angara_pe_progress(ho->pe);
    }
}

static void ho_put(ho_t *ho, uint64_t offset, const void *data, size_t length)
{
    while (angara_put(ho->peer, offset, data, length) == ANGARA_ERR_NO_RESOURCE) {
        angara_pe_progress(ho->pe);
    }
}

/* Write a header word, and payload, at a slot; and the ready word. */
static void ho_header(ho_t *ho, unsigned slot, uint64_t header, uint16_t ready)
{
    uint64_t offset = ho->grant.ring_off + ((uint64_t)slot << HO_SHIFT);

    while (angara_put_flag(ho->peer, offset + 8, "payload", 8, offset, header) ==
           ANGARA_ERR_NO_RESOURCE) {
        angara_pe_progress(ho->pe);
    }
    ho_put(ho, ho->grant.ready_off, &ready, sizeof(ready));
    ho_landed(ho);
}

/* ---- directed: headers ----------------------------------------------------------------------- */

typedef struct {
    const char *what;
    uint64_t    header;
    int         fails; /* the victim must notice: else it is silently nothing */
} ho_header_t;

#define HO_LENGTH(_length) ((uint64_t)(_length) << UCT_ANGARA_HDR_LEN_SHIFT)

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
        /* more slots were never sent than there are; the wrong count fails the peer when looked at */
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
        {UINT64_MAX, 0},     {UINT64_MAX - 4096, 0}, {HO_WINDOW, 0},      {HO_WINDOW - 64, 0},
        {1, HO_READY},       {HO_RING, HO_WINDOW},   {HO_RING, 1},        {HO_RING, UINT64_MAX - 1},
        {1ull << 63, 64},    {HO_RING, 1ull << 62},
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
    static const uint8_t types[] = {UCT_ANGARA_CLOSE, UCT_ANGARA_CLOSE_ACK, UCT_ANGARA_REFUSE,
                                    UCT_ANGARA_BYE, 0, 0xff};
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

/* ---- at random ------------------------------------------------------------------------------- */

/* A record of random bytes, mostly of a known type, with fields that are often nearly right. */
static size_t ho_random_record(ho_t *ho, void *record)
{
    ut_t               *t     = ho->t;
    uct_angara_hello_t *hello = record;
    uint8_t            *bytes = record;
    size_t              i;

    for (i = 0; i < sizeof(*hello); ++i) {
        bytes[i] = (uint8_t)ut_random(t);
    }
    if (ut_random(t) % 8) {
        hello->super.type    = (uint8_t)(UCT_ANGARA_HELLO + ut_random(t) % 6);
        hello->super.version = UCT_ANGARA_PROTOCOL;
    }
    if (ut_random(t) % 2) {
        hello->super.epoch        = (uint8_t)(ut_random(t) % 3);
        hello->super.credit_index = (uint16_t)(ut_random(t) % 4);
        hello->super.value        = (uint16_t)(ut_random(t) % 80);
        hello->super.shape        = (uint8_t)(HO_SHAPE(HO_SHIFT, ut_random(t) % 16));
    }
    if (ut_random(t) % 2) {
        hello->address = ho->address;
    }
    return (ut_random(t) % 4) ? sizeof(*hello) : 1 + ut_random(t) % sizeof(*hello);
}

/* Header words that are nearly right, or anything, anywhere that the victim reads. */
static void ho_random_write(ho_t *ho)
{
    ut_t    *t     = ho->t;
    uint64_t word  = ut_random(t), offset;
    unsigned index = (unsigned)(ut_random(t) % (2 * HO_SLOTS));

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
        offset = ho->granted ? ho->grant.ring_off + ((uint64_t)(index % HO_SLOTS) << HO_SHIFT) : 0;
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
    ut_fail(__FILE__, __LINE__, "payload was taken for a header (%zu bytes)", length);
}

/* Fill a message for slots from head on with header words of those slots' next lap. */
static void ho_forge_payload(char *buffer, size_t length, const uct_angara_tx_t *tx)
{
    uint64_t first = tx->head, slot, word;
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
    peer        = ((uct_angara_ep_t *)t->ep[1 - t->rank])->peer;
    tx          = &peer->tx;
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

/* The attacker is a process of its own, and dies in the end; an honest peer is served all the while. */
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
        ut_send_word(t, 1, 0);
        ut_progress_ms(t, 300);
    } else if (t->rank == 1) {
        ut_barrier(t);
        ho.victim.addr = t->addr[0];
        ho_attacker_open(&ho);
        ho_get_ring(&ho);
        while (t->fd[0] >= 0) {
            if (ut_random(t) % 8 == 0) {
                ho_notify(&ho, &record, ho_random_record(&ho, &record));
            } else {
                /* not the credits: those are the honest peer's */
                uint64_t word = uct_angara_hdr_seq(ut_random(t) % HO_SLOTS) |
                                ((2 + ut_random(t) % 30) << UCT_ANGARA_HDR_ID_SHIFT) |
                                HO_LENGTH(ut_random(t) % 8000);

                ho_put(&ho, ho.grant.ring_off + ((ut_random(t) % HO_SLOTS) << HO_SHIFT), &word, 8);
            }
            ho_turn(&ho);
            ut_sleep_ms(ut_random(t) % 16 == 0);
            if (ut_random(t) % 500 == 0) {
                break;
            }
        }
        ut_recv_word(t, 0);
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

#define HO_TEST(_func, _nranks) \
    static void test_##_func(void **state) \
    { \
        (void)state; \
        ut_run(_nranks, _func, NULL); \
    }

HO_TEST(bad_headers, 1)
HO_TEST(run_beyond_end, 1)
HO_TEST(bad_ready, 1)
HO_TEST(bad_credits, 1)
HO_TEST(bad_hellos, 1)
HO_TEST(many_hellos, 1)
HO_TEST(bad_grants, 1)
HO_TEST(bad_closes, 1)
HO_TEST(at_random, 1)
HO_TEST(payload_like_headers, 2)
HO_TEST(attacker_process, 3)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_headers), cmocka_unit_test(test_run_beyond_end),
        cmocka_unit_test(test_bad_ready),   cmocka_unit_test(test_bad_credits),
        cmocka_unit_test(test_bad_hellos),  cmocka_unit_test(test_many_hellos),
        cmocka_unit_test(test_bad_grants),  cmocka_unit_test(test_bad_closes),
        cmocka_unit_test(test_at_random),   cmocka_unit_test(test_payload_like_headers),
        cmocka_unit_test(test_attacker_process),
    };

    return ut_main(argc, argv, "hostile", tests, sizeof(tests) / sizeof(tests[0]));
}
