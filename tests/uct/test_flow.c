/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flow control: running out of ring space, bounce buffers and everything else; pending requests,
 * their order, purging them; floods in all directions. A message carries its number, so loss,
 * duplication and disorder all show.
 */
#include "ut.h"

#define FLOW_ID      3
#define FLOW_PAYLOAD 40

typedef struct {
    uint64_t next[RANK_MAX]; /* number expected from each rank */
    uint64_t total;
} flow_sink_t;

/* A request in a queue of an endpoint: one numbered message. */
typedef struct {
    uct_pending_req_t super;
    ut_t             *t;
    uct_ep_h          ep;
    uint64_t          number;
    unsigned          calls;  /* of the dispatch callback */
    unsigned          refuse; /* say "no resource" that many times first */
    int               done;
    int               purged;
} flow_req_t;

static uint64_t flow_purged; /* number of requests purged so far */

static uint64_t flow_header(unsigned from, uint64_t number)
{
    return ((uint64_t)from << 56) | number;
}

static ucs_status_t flow_receive(void *arg, void *data, size_t length, unsigned flags)
{
    flow_sink_t *sink = arg;
    uint64_t     header, number;
    unsigned     from;

    (void)flags;
    CHECK_EQ(length, sizeof(header) + FLOW_PAYLOAD);
    memcpy(&header, data, sizeof(header));
    from   = (unsigned)(header >> 56);
    number = header & ~(0xffull << 56);
    CHECK(from < RANK_MAX);
    CHECK_EQ(number, sink->next[from]);
    CHECK_DATA((char *)data + sizeof(header), FLOW_PAYLOAD, header);
    ++sink->next[from];
    ++sink->total;
    return UCS_OK;
}

static ucs_status_t flow_send(ut_t *t, uct_ep_h ep, uint64_t number)
{
    uint64_t header = flow_header(t->rank, number);
    char     payload[FLOW_PAYLOAD];

    data_fill(payload, sizeof(payload), header);
    return uct_ep_am_short(ep, FLOW_ID, header, payload, sizeof(payload));
}

static ucs_status_t flow_dispatch(uct_pending_req_t *self)
{
    flow_req_t  *req = (flow_req_t *)self;
    ucs_status_t status;

    CHECK(!req->done && !req->purged);
    ++req->calls;
    if (req->refuse > 0) {
        --req->refuse;
        return UCS_ERR_NO_RESOURCE;
    }
    status = flow_send(req->t, req->ep, req->number);
    if (status == UCS_OK) {
        req->done = 1;
    } else {
        CHECK_STATUS(status, UCS_ERR_NO_RESOURCE);
    }
    return status;
}

static void flow_purge(uct_pending_req_t *self, void *arg)
{
    flow_req_t *req = (flow_req_t *)self;

    CHECK(arg == &flow_purged);
    CHECK(!req->done && !req->purged);
    req->purged = 1;
    ++flow_purged;
}

static void flow_purge_check_order(uct_pending_req_t *self, void *arg)
{
    flow_req_t *req = (flow_req_t *)self;

    CHECK_EQ(req->number, *(uint64_t *)arg);
    ++*(uint64_t *)arg;
    req->purged = 1;
}

static void flow_req_init(flow_req_t *req, ut_t *t, uct_ep_h ep, uint64_t number)
{
    memset(req, 0, sizeof(*req));
    req->super.func = flow_dispatch;
    req->t          = t;
    req->ep         = ep;
    req->number     = number;
}

/* Send number *next_p, or queue it. UCT may answer "busy" where it can be sent after all. */
static void flow_send_or_queue(flow_req_t *req)
{
    ut_timer_t   timer = {0, 0};
    ucs_status_t status;

    for (;;) {
        status = flow_send(req->t, req->ep, req->number);
        if (status == UCS_OK) {
            req->done = 1;
            return;
        }
        CHECK_STATUS(status, UCS_ERR_NO_RESOURCE);
        status = uct_ep_pending_add(req->ep, &req->super, 0);
        if (status == UCS_OK) {
            return;
        }
        CHECK_STATUS(status, UCS_ERR_BUSY);
        ut_relax(req->t, &timer, __FILE__, __LINE__, "pending_add is busy");
    }
}

static void flow_open(ut_t *t, flow_sink_t *sink)
{
    ut_open(t);
    CHECK(t->main.attr.cap.flags & UCT_IFACE_FLAG_PENDING);
    memset(sink, 0, sizeof(*sink));
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, FLOW_ID, flow_receive, sink, 0));
    ut_barrier(t);
}

/* Send until there is no room, with the peer asleep. @return messages sent. */
static uint64_t flow_fill(ut_t *t, uct_ep_h ep)
{
    uint64_t     sent = 0;
    unsigned     idle = 0;
    ucs_status_t status;

    POST_OK(t, flow_send(t, ep, 0)); /* the ring is granted by then */
    ++sent;
    CHECK_EQ(ut_recv_word(t, 1), 1);
    while (idle < 1000) {
        status = flow_send(t, ep, sent);
        if (status == UCS_OK) {
            ++sent;
            idle = 0;
        } else {
            CHECK_STATUS(status, UCS_ERR_NO_RESOURCE);
            ut_progress(t);
            ++idle;
        }
    }
    return sent;
}

/* The other side of flow_fill(): not a step of progress until the word comes. */
static uint64_t flow_sleep(ut_t *t, const flow_sink_t *sink)
{
    UT_WAIT(t, sink->total == 1);
    ut_send_word(t, 0, 1);
    return ut_recv_word_still(t, 0);
}

/* ---- a full ring --------------------------------------------------------------------------- */

static void full_ring_rank0(ut_t *t)
{
    enum { QUEUED = 500 };
    static flow_req_t reqs[QUEUED];
    uint64_t          sent;
    unsigned          i;

    sent = flow_fill(t, t->ep[1]);
    CHECK(sent >= 8);        /* of the smallest ring */
    CHECK(sent <= 1u << 20); /* memory of a peer is bounded */
    for (i = 0; i < QUEUED; ++i) {
        flow_req_init(&reqs[i], t, t->ep[1], sent + i);
        flow_send_or_queue(&reqs[i]);
        CHECK(!reqs[i].done);
    }
    ut_progress_ms(t, 5);
    CHECK(!reqs[0].done);

    ut_send_word(t, 1, sent + QUEUED);
    UT_WAIT(t, reqs[QUEUED - 1].done);
    for (i = 0; i < QUEUED; ++i) {
        CHECK(reqs[i].done);
    }
    CHECK_EQ(ut_recv_word(t, 1), sent + QUEUED);
}

static void full_ring(ut_t *t)
{
    flow_sink_t sink;
    uint64_t    total;

    flow_open(t, &sink);
    if (t->rank == 0) {
        full_ring_rank0(t);
    } else {
        total = flow_sleep(t, &sink);
        CHECK_EQ(sink.total, 1);
        UT_WAIT(t, sink.total == total);
        ut_send_word(t, 0, sink.total);
    }
    ut_barrier(t);
    ut_close(t);
}

/* What is queued comes first: a direct send behind it is refused even if there is room. */
static void no_overtaking(ut_t *t)
{
    flow_sink_t sink;
    flow_req_t  req;
    uint64_t    next = 1;
    unsigned    round, rounds = ut_rounds(2000);

    flow_open(t, &sink);
    if (t->rank == 0) {
        POST_OK(t, flow_send(t, t->ep[1], 0));
        for (round = 0; round < rounds; ++round) {
            flow_req_init(&req, t, t->ep[1], next);
            req.refuse = 1 + round % 3;
            if (uct_ep_pending_add(t->ep[1], &req.super, 0) != UCS_OK) {
                break; /* never queues where there is room: nothing to test */
            }
            ++next;
            while (!req.done) {
                if (flow_send(t, t->ep[1], next) == UCS_OK) {
                    CHECK(req.done);
                    ++next;
                }
                ut_progress(t);
            }
        }
        ut_send_word(t, 1, next);
    } else {
        next = ut_recv_word(t, 0);
        UT_WAIT(t, sink.total == next);
    }
    ut_barrier(t);
    ut_close(t);
}

/* ---- purge --------------------------------------------------------------------------------- */

static void purge_rank0(ut_t *t)
{
    enum { QUEUED = 100 };
    static flow_req_t reqs[QUEUED], others[QUEUED];
    uct_ep_h          second = ut_ep_create(&t->main, &t->addr[1]);
    uint64_t          sent   = flow_fill(t, t->ep[1]), expected;
    unsigned          i;

    for (i = 0; i < QUEUED; ++i) {
        flow_req_init(&reqs[i], t, t->ep[1], sent + i);
        flow_send_or_queue(&reqs[i]);
        flow_req_init(&others[i], t, second, sent + i);
        flow_send_or_queue(&others[i]);
    }
    /* one endpoint's requests go, in order; the other's stay, and will be sent */
    expected = sent;
    uct_ep_pending_purge(t->ep[1], flow_purge_check_order, &expected);
    CHECK_EQ(expected, sent + QUEUED);
    uct_ep_pending_purge(t->ep[1], flow_purge_check_order, &expected);
    CHECK_EQ(expected, sent + QUEUED);

    ut_send_word(t, 1, sent + QUEUED);
    UT_WAIT(t, others[QUEUED - 1].done);
    for (i = 0; i < QUEUED; ++i) {
        CHECK(reqs[i].purged && !reqs[i].done);
        CHECK(others[i].done && !others[i].purged);
    }
    uct_ep_destroy(second);
}

static void purge(ut_t *t)
{
    flow_sink_t sink;
    uint64_t    total;

    flow_open(t, &sink);
    if (t->rank == 0) {
        purge_rank0(t);
    } else {
        total = flow_sleep(t, &sink);
        UT_WAIT(t, sink.total == total);
        ut_progress_ms(t, 5);
        CHECK_EQ(sink.total, total);
    }
    ut_barrier(t);
    ut_close(t);
}

/* Several endpoints to one peer have a queue each; all get their turn. */
static void many_queues(ut_t *t)
{
    enum { EPS = 8, QUEUED = 50 };
    static flow_req_t reqs[EPS][QUEUED];
    uct_ep_h          eps[EPS];
    flow_sink_t       sink;
    uint64_t          sent, number;
    unsigned          i, j;

    flow_open(t, &sink);
    if (t->rank == 0) {
        sent   = flow_fill(t, t->ep[1]);
        number = sent;
        for (i = 0; i < EPS; ++i) {
            eps[i] = ut_ep_create(&t->main, &t->addr[1]);
        }
        /* each is given a whole queue: the receiver doesn't know the order, so numbers are alike */
        for (j = 0; j < QUEUED; ++j) {
            for (i = 0; i < EPS; ++i) {
                flow_req_init(&reqs[i][j], t, eps[i], number);
                reqs[i][j].refuse = 1000000;
                CHECK_OK(uct_ep_pending_add(eps[i], &reqs[i][j].super, 0));
            }
        }
        ut_progress_ms(t, 5);
        for (i = 0; i < EPS; ++i) {
            CHECK(reqs[i][0].calls > 0);   /* each queue is tried */
            CHECK_EQ(reqs[i][1].calls, 0); /* but only its head */
            uct_ep_pending_purge(eps[i], flow_purge, &flow_purged);
            uct_ep_destroy(eps[i]);
        }
        CHECK_EQ(flow_purged, EPS * QUEUED);
        ut_send_word(t, 1, sent);
    } else {
        sent = flow_sleep(t, &sink);
        UT_WAIT(t, sink.total == sent);
    }
    ut_barrier(t);
    ut_close(t);
}

/* ---- floods -------------------------------------------------------------------------------- */

/* Everybody to everybody, oneself included, through pending queues of bounded length. */
static void flood(ut_t *t)
{
    enum { WINDOW = 64 };
    static flow_req_t reqs[RANK_MAX][WINDOW];
    unsigned          count             = ut_rounds(15000), i, j;
    uint64_t          started[RANK_MAX] = {0};
    flow_sink_t       sink;
    flow_req_t       *req;

    flow_open(t, &sink);
    for (j = 0; j < WINDOW; ++j) {
        for (i = 0; i < t->nranks; ++i) {
            reqs[i][j].done = 1;
        }
    }
    for (j = 0; j < count; ++j) {
        for (i = 0; i < t->nranks; ++i) {
            req = &reqs[i][j % WINDOW];
            UT_WAIT(t, req->done);
            flow_req_init(req, t, t->ep[i], started[i]++);
            flow_send_or_queue(req);
        }
        if (ut_random(t) % 16 == 0) {
            ut_progress(t);
        }
    }
    for (i = 0; i < t->nranks; ++i) {
        for (j = 0; j < WINDOW; ++j) {
            UT_WAIT(t, reqs[i][j].done);
        }
        UT_WAIT(t, sink.next[i] == count);
    }
    ut_barrier(t);
    ut_close(t);
}

/* Remote memory operations run out of buffers and descriptors, too; all of them arrive. */
static void rma_flood(ut_t *t)
{
    enum { LENGTH = 1000 };
    unsigned    count = ut_rounds(20000), refused = 0, i;
    char        buffer[LENGTH];
    ut_pack_t   pack = {buffer, LENGTH};
    ut_remote_t remotes[RANK_MAX];
    ut_mem_t    mem;
    ssize_t     length;
    size_t      slots;

    ut_open(t);
    ut_mem_init(t, &mem, UT_MEM_PRIVATE, 1 << 20);
    ut_mem_exchange(t, &mem, remotes);
    slots = mem.length / LENGTH;
    for (i = 0; (t->rank == 0) && (i < count); ++i) {
        data_fill(buffer, LENGTH, i);
        for (;;) {
            length = uct_ep_put_bcopy(t->ep[1], ut_pack, &pack,
                                      remotes[1].addr + (i % slots) * LENGTH, remotes[1].key.rkey);
            if (length != (ssize_t)UCS_ERR_NO_RESOURCE) {
                break;
            }
            ++refused;
            ut_progress(t);
        }
        CHECK_EQ(length, LENGTH);
    }
    /* where each put is complete at once, nothing ever runs out */
    CHECK((refused > 0) || (t->rank == 1) || !rank_chaos());
    ut_flush(t, &t->main);
    ut_barrier(t);
    for (i = (count > slots) ? count - (unsigned)slots : 0; (t->rank == 1) && (i < count); ++i) {
        CHECK_DATA(mem.addr + (i % slots) * LENGTH, LENGTH, i);
    }
    ut_barrier(t);
    ut_remotes_release(t, remotes);
    ut_mem_cleanup(t, &mem);
    ut_close(t);
}

/* ---- first contact -------------------------------------------------------------------------- */

/* A stranger has no ring yet: its first messages wait in the queue and then go out in order. */
static void first_contact(ut_t *t)
{
    enum { QUEUED = 20 };
    static flow_req_t reqs[QUEUED];
    flow_sink_t       sink;
    unsigned          round, i;
    ut_iface_t        iface;
    uct_ep_h          ep;

    flow_open(t, &sink);
    for (round = 0; round < 20; ++round) {
        if (t->rank == 0) {
            memset(&iface, 0, sizeof(iface));
            ut_iface_open(t, &iface);
            ep = ut_ep_create(&iface, &t->addr[1]);
            for (i = 0; i < QUEUED; ++i) {
                flow_req_init(&reqs[i], t, ep, round * QUEUED + i);
                flow_send_or_queue(&reqs[i]);
            }
            UT_WAIT(t, reqs[QUEUED - 1].done);
            ut_flush(t, &iface);
            uct_ep_destroy(ep);
            ut_iface_close(&iface);
            ut_send_word(t, 1, round);
        } else {
            CHECK_EQ(ut_recv_word(t, 0), round);
            UT_WAIT(t, sink.total == (round + 1) * QUEUED);
        }
        ut_barrier(t);
    }
    ut_close(t);
}

/* An endpoint that goes away with messages on their way, again and again: none is lost. */
static void reconnect(ut_t *t)
{
    unsigned    rounds = ut_rounds(300), round, i;
    flow_sink_t sink;
    uint64_t    next = 0;
    uct_ep_h    ep;

    flow_open(t, &sink);
    for (i = 0; i < t->nranks; ++i) {
        uct_ep_destroy(t->ep[i]);
        t->ep[i] = NULL;
    }
    for (round = 0; (t->rank == 0) && (round < rounds); ++round) {
        ep = ut_ep_create(&t->main, &t->addr[1]);
        for (i = 0; i < round % 7; ++i) {
            POST_OK(t, flow_send(t, ep, next));
            ++next;
        }
        uct_ep_destroy(ep);
        for (i = 0; i < round % 5; ++i) {
            ut_progress(t);
        }
    }
    if (t->rank == 0) {
        ut_send_word(t, 1, next);
    } else {
        next = ut_recv_word(t, 0);
        UT_WAIT(t, sink.total == next);
    }
    ut_barrier(t);
    ut_close(t);
}

/* ---- the tests ----------------------------------------------------------------------------- */

#define FLOW_TEST(_name, _nranks, _func) \
    static void _name(void **state)      \
    {                                    \
        (void)state;                     \
        ut_run(_nranks, _func, NULL);    \
    }

FLOW_TEST(test_full_ring, 2, full_ring)
FLOW_TEST(test_no_overtaking, 2, no_overtaking)
FLOW_TEST(test_purge, 2, purge)
FLOW_TEST(test_many_queues, 2, many_queues)
FLOW_TEST(test_flood_self, 1, flood)
FLOW_TEST(test_flood_2, 2, flood)
FLOW_TEST(test_flood_3, 3, flood)
FLOW_TEST(test_rma_flood, 2, rma_flood)
FLOW_TEST(test_first_contact, 2, first_contact)
FLOW_TEST(test_reconnect, 2, reconnect)

#define LONG_GET    (256ul << 20)
#define LONG_OTHERS 8u
#define LONG_PUT    (64ul << 20)

static ucs_status_t fl_count(void *arg, void *data, size_t length, unsigned flags)
{
    (void)data;
    (void)length;
    (void)flags;
    ++*(unsigned *)arg;
    return UCS_OK;
}

/* A get of 256 MiB lets the messages of another peer through: they are there, and handled, before
 * it has ended; no call copies all of it. */
static void long_get_lets_pass(ut_t *t)
{
    unsigned    seen = 0, i;
    ut_mem_t    mem;
    ut_remote_t remotes[RANK_MAX];
    ut_comp_t   comp;
    uct_iov_t   iov;

    ut_open(t);
    ut_mem_init(t, &mem, UT_MEM_PRIVATE, (t->rank < 2) ? LONG_GET : 4096);
    ut_mem_exchange(t, &mem, remotes);
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, 5, fl_count, &seen, 0));
    if (t->rank == 1) {
        data_fill(mem.addr, LONG_GET, 1);
    }
    if (t->rank == 2) { /* makes the ring */
        POST_OK(t, uct_ep_am_short(t->ep[0], 5, 0, NULL, 0));
    } else if (t->rank == 0) {
        UT_WAIT(t, seen == 1);
        seen = 0;
    }
    ut_barrier(t);
    if (t->rank == 2) {
        ut_recv_word(t, 0);
        for (i = 0; i < LONG_OTHERS; ++i) {
            POST_OK(t, uct_ep_am_short(t->ep[0], 5, i, NULL, 0));
        }
        ut_send_word(t, 0, 1);
    } else if (t->rank == 0) {
        ut_send_word(t, 2, 1);    /* out of the barrier, which makes progress */
        ut_recv_word_still(t, 2); /* the messages wait in the ring */
        CHECK_EQ(seen, 0);
        iov = (uct_iov_t){.buffer = mem.addr, .length = LONG_GET, .memh = mem.memh, .count = 1};
        ut_comp_init(&comp, 1);
        CHECK_STATUS(
            uct_ep_get_zcopy(t->ep[1], &iov, 1, remotes[1].addr, remotes[1].key.rkey, &comp.super),
            UCS_INPROGRESS);
        while (comp.calls == 0) {
            CHECK_EQ(comp.super.count, 1);
            ut_progress(t);
            if (seen == LONG_OTHERS) {
                break;
            }
        }
        CHECK_EQ(seen, LONG_OTHERS);
        CHECK_EQ(comp.calls, 0);
        UT_WAIT(t, comp.calls == 1);
        CHECK_OK(comp.status);
        CHECK_DATA(mem.addr, LONG_GET, 1);
    }
    ut_barrier(t);
    ut_remotes_release(t, remotes);
    ut_mem_cleanup(t, &mem);
    ut_close(t);
}

static void test_long_get(void **state)
{
    (void)state;
    if (rank_chaos()) {
        skip(); /* a thread of the library moves the data there */
    }
    ut_run(3, long_get_lets_pass, NULL);
}

/* A get_short doesn't wait in the call behind a long put, whatever completes that. */
static void short_behind_long(ut_t *t)
{
    ut_remote_t remotes[RANK_MAX];
    ut_mem_t    mem;
    ut_comp_t   comp;
    uct_iov_t   iov;
    uint64_t    word = 0, expected;

    ut_open(t);
    ut_mem_init(t, &mem, UT_MEM_PRIVATE, LONG_PUT);
    data_fill(mem.addr, LONG_PUT, t->rank);
    memcpy(&expected, mem.addr, sizeof(expected));
    ut_mem_exchange(t, &mem, remotes);
    if (t->rank == 0) {
        iov = (uct_iov_t){.buffer = mem.addr, .length = LONG_PUT, .memh = mem.memh, .count = 1};
        ut_comp_init(&comp, 1);
        CHECK_STATUS(
            uct_ep_put_zcopy(t->ep[1], &iov, 1, remotes[1].addr, remotes[1].key.rkey, &comp.super),
            UCS_INPROGRESS);
        while (comp.calls == 0) {
            CHECK_STATUS(uct_ep_get_short(t->ep[1], &word, sizeof(word), remotes[1].addr,
                                          remotes[1].key.rkey),
                         UCS_ERR_NO_RESOURCE);
            ut_progress(t);
        }
        CHECK_OK(comp.status);
        POST_OK(t, uct_ep_get_short(t->ep[1], &word, sizeof(word), remotes[1].addr,
                                    remotes[1].key.rkey));
        CHECK_EQ(word, expected);
    }
    ut_barrier(t);
    if (t->rank == 1) {
        CHECK_DATA(mem.addr, LONG_PUT, 0);
    }
    ut_remotes_release(t, remotes);
    ut_mem_cleanup(t, &mem);
    ut_close(t);
}

static void test_short_behind_long(void **state)
{
    (void)state;
    ut_run(2, short_behind_long, NULL);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_ring),     cmocka_unit_test(test_no_overtaking),
        cmocka_unit_test(test_purge),         cmocka_unit_test(test_many_queues),
        cmocka_unit_test(test_flood_self),    cmocka_unit_test(test_flood_2),
        cmocka_unit_test(test_flood_3),       cmocka_unit_test(test_rma_flood),
        cmocka_unit_test(test_first_contact), cmocka_unit_test(test_reconnect),
        cmocka_unit_test(test_long_get),      cmocka_unit_test(test_short_behind_long),
    };

    return ut_main(argc, argv, "flow", tests, sizeof(tests) / sizeof(tests[0]));
}
