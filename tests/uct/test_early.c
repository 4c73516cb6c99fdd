/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Early messages: what is sent before the other side has granted a ring is taken, within limits. It
 * goes first and in order; a flush ends behind it, and with an error if it can't be sent.
 *
 * The receiver makes no progress, and grants nothing, until it is told to.
 */
#include "ut_hostile.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#define EA_AM       4
#define EA_MSGS     16
#define EA_BYTES    8192
#define EA_MEMORY   ((size_t)1 << 16)
#define EA_PATIENCE (5000 * test_slow()) /* ms of sleep that count as a lost wake-up */

typedef struct {
    ut_t       *t;
    ut_mem_t    mem;
    ut_remote_t remotes[RANK_MAX];
    uint64_t    received;
    size_t      bytes;
} ea_t;

/* Messages are numbered by their first word; a fill pattern follows. */
static ucs_status_t ea_receive(void *arg, void *data, size_t length, unsigned flags)
{
    ea_t    *ea = arg;
    uint64_t number;

    (void)flags;
    CHECK(length >= sizeof(number));
    memcpy(&number, data, sizeof(number));
    CHECK_EQ(number, ea->received);
    CHECK_DATA((char *)data + sizeof(number), length - sizeof(number), number);
    ++ea->received;
    ea->bytes += length;
    return UCS_OK;
}

static void ea_init(ea_t *ea, ut_t *t)
{
    memset(ea, 0, sizeof(*ea));
    ut_open(t);
    ea->t = t;
    ut_mem_init(t, &ea->mem, UT_MEM_PRIVATE, EA_MEMORY);
    ut_mem_exchange(t, &ea->mem, ea->remotes);
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, EA_AM, ea_receive, ea, 0));
    ut_barrier(t);
    if (t->rank == 1) { /* it has left the barrier, and makes no progress any more */
        ut_send_word(t, 0, 0);
    } else if ((t->rank == 0) && (t->nranks > 1)) {
        ut_recv_word(t, 1);
    }
}

static void ea_cleanup(ea_t *ea)
{
    ut_remotes_release(ea->t, ea->remotes);
    ut_mem_cleanup(ea->t, &ea->mem);
    ut_close_alone(ea->t);
}

typedef enum { EA_SHORT, EA_IOV, EA_BCOPY, EA_ZCOPY, EA_WAYS } ea_way_t;

/* Message number of length bytes; its source is spoilt at once. */
static ucs_status_t ea_send(uct_ep_h ep, ea_way_t way, uint64_t number, size_t length)
{
    static char  buffer[2 * EA_BYTES];
    uct_iov_t    iov[2] = {{.count = 1}, {.count = 1}};
    ut_pack_t    pack   = {buffer, length};
    ssize_t      packed;
    ucs_status_t status;

    memcpy(buffer, &number, sizeof(number));
    data_fill(buffer + sizeof(number), length - sizeof(number), number);
    switch (way) {
    case EA_SHORT:
        status = uct_ep_am_short(ep, EA_AM, number, buffer + sizeof(number),
                                 (unsigned)(length - sizeof(number)));
        break;
    case EA_IOV:
        iov[0].buffer = buffer;
        iov[0].length = length / 2;
        iov[1].buffer = buffer + length / 2;
        iov[1].length = length - length / 2;
        status        = uct_ep_am_short_iov(ep, EA_AM, iov, 2);
        break;
    case EA_BCOPY:
        packed = uct_ep_am_bcopy(ep, EA_AM, ut_pack, &pack, 0);
        CHECK((packed < 0) || (packed == (ssize_t)length));
        status = (packed < 0) ? (ucs_status_t)packed : UCS_OK;
        break;
    default:
        iov[0].buffer = buffer + sizeof(number);
        iov[0].length = length - sizeof(number);
        iov[0].memh   = UCT_MEM_HANDLE_NULL;
        status        = uct_ep_am_zcopy(ep, EA_AM, buffer, sizeof(number), iov, 1, 0, NULL);
        break;
    }
    memset(buffer, 0xee, length);
    return status;
}

/* Let rank 1, which waits in ea_still(), make progress. */
static void ea_go(ut_t *t)
{
    ut_send_word(t, 1, 0);
}

static void ea_still(ut_t *t)
{
    ut_recv_word_still(t, 0);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* All ways, by two endpoints: 16 messages are taken. */
static void count(ut_t *t)
{
    unsigned i;
    uct_ep_h ep;
    ea_t     ea;

    ea_init(&ea, t);
    if (t->rank == 0) {
        ep = ut_ep_create(&t->main, &t->addr[1]);
        for (i = 0; i < EA_MSGS; ++i) {
            CHECK_OK(ea_send((i % 2) ? ep : t->ep[1], i % EA_WAYS, i, 8 + 3 * i));
            ut_progress(t);
        }
        for (i = 0; i < EA_WAYS; ++i) {
            CHECK_STATUS(ea_send(t->ep[1], i, EA_MSGS, 8), UCS_ERR_NO_RESOURCE);
        }
        ea_go(t);
        POST_OK(t, ea_send(ep, EA_SHORT, EA_MSGS, 8));
        ut_flush(t, &t->main);
        uct_ep_destroy(ep);
    } else {
        ea_still(t);
        UT_WAIT(t, ea.received == EA_MSGS + 1);
    }
    ut_barrier(t);
    CHECK_EQ(t->main.errors, 0);
    ea_cleanup(&ea);
}

/* 8 KiB are taken, by each way; what was refused comes later. */
static void bytes(ut_t *t)
{
    ea_way_t way    = *(const ea_way_t *)t->arg;
    uint64_t number = 0;
    size_t   length;
    ea_t     ea;

    ea_init(&ea, t);
    length = ucs_min((size_t)1000, (way == EA_SHORT) ? t->main.attr.cap.am.max_short :
                                                       t->main.attr.cap.am.max_bcopy);
    if (t->rank == 0) {
        while ((number < EA_MSGS) && ((number + 1) * length <= EA_BYTES)) {
            CHECK_OK(ea_send(t->ep[1], way, number++, length));
        }
        CHECK_STATUS(ea_send(t->ep[1], way, number, length), UCS_ERR_NO_RESOURCE);
        ea_go(t);
        POST_OK(t, ea_send(t->ep[1], way, number, length));
        ut_send_word(t, 1, number + 1);
        ut_flush(t, &t->main);
    } else {
        ea_still(t);
        number = ut_recv_word(t, 0);
        UT_WAIT(t, ea.received == number);
        CHECK_EQ(ea.bytes, number * length);
    }
    ut_barrier(t);
    ea_cleanup(&ea);
}

/* The limit of the interface counts all peers. */
static void total(ut_t *t)
{
    ea_t ea;

    setenv("UCX_ANGARA_EARLY_SIZE", "300", 1);
    ea_init(&ea, t);
    if (t->rank == 0) {
        CHECK_OK(ea_send(t->ep[1], EA_SHORT, 0, 100));
        CHECK_OK(ea_send(t->ep[2], EA_BCOPY, 0, 100));
        CHECK_STATUS(ea_send(t->ep[1], EA_ZCOPY, 1, 100), UCS_ERR_NO_RESOURCE);
        CHECK_STATUS(ea_send(t->ep[2], EA_SHORT, 1, 100), UCS_ERR_NO_RESOURCE);
        ut_send_word(t, 1, 0);
        ut_send_word(t, 2, 0);
        POST_OK(t, ea_send(t->ep[1], EA_ZCOPY, 1, 100));
        POST_OK(t, ea_send(t->ep[2], EA_SHORT, 1, 100));
        ut_flush(t, &t->main);
    } else {
        ea_still(t);
        UT_WAIT(t, ea.received == 2);
    }
    ut_barrier(t);
    ea_cleanup(&ea);
}

/* By default a process of MPI keeps nothing: it may make no progress once it has sent. */
static void in_mpi(ut_t *t)
{
    ea_t ea;

    setenv("PMIX_RANK", "0", 1);
    ea_init(&ea, t);
    if (t->rank == 0) {
        CHECK_STATUS(ea_send(t->ep[1], EA_SHORT, 0, 8), UCS_ERR_NO_RESOURCE);
        CHECK_STATUS(ea_send(t->ep[1], EA_BCOPY, 0, 8), UCS_ERR_NO_RESOURCE);
        ea_go(t);
        POST_OK(t, ea_send(t->ep[1], EA_SHORT, 0, 8));
        ut_flush(t, &t->main);
    } else {
        ea_still(t);
        UT_WAIT(t, ea.received == 1);
    }
    ut_barrier(t);
    ea_cleanup(&ea);
}

/* ---- order ----------------------------------------------------------------------------------- */

typedef struct {
    uct_pending_req_t super;
    uct_ep_h          ep;
    uint64_t          number;
    int               done;
} ea_req_t;

static ucs_status_t ea_req_send(uct_pending_req_t *self)
{
    ea_req_t    *req    = (ea_req_t *)self;
    ucs_status_t status = ea_send(req->ep, EA_SHORT, req->number, 8);

    req->done = (status == UCS_OK);
    return status;
}

/* Before pending requests, and before a put behind a fence. */
static void in_order(ut_t *t)
{
    uint64_t flag = 1;
    ea_req_t req;
    unsigned i;
    ea_t     ea;

    ea_init(&ea, t);
    memset(ea.mem.addr, 0, sizeof(flag));
    ut_barrier(t);
    if (t->rank == 0) {
        for (i = 0; i < EA_MSGS; ++i) {
            CHECK_OK(ea_send(t->ep[1], i % EA_WAYS, i, 100));
        }
        CHECK_OK(uct_ep_fence(t->ep[1], 0));
        memset(&req, 0, sizeof(req));
        req.super.func = ea_req_send;
        req.ep         = t->ep[1];
        req.number     = EA_MSGS;
        CHECK_STATUS(uct_ep_put_short(t->ep[1], &flag, sizeof(flag), ea.remotes[1].addr,
                                      ea.remotes[1].key.rkey),
                     UCS_ERR_NO_RESOURCE);
        CHECK_OK(uct_ep_pending_add(t->ep[1], &req.super, 0));
        for (i = 0; i < 200; ++i) {
            ut_progress(t);
        }
        CHECK(!req.done);
        ea_go(t);
        POST_OK(t, uct_ep_put_short(t->ep[1], &flag, sizeof(flag), ea.remotes[1].addr,
                                    ea.remotes[1].key.rkey));
        CHECK(req.done);
        ut_flush(t, &t->main);
    } else {
        ea_still(t);
        UT_WAIT(t, *(volatile uint64_t *)ea.mem.addr == flag);
        UT_WAIT(t, ea.received == EA_MSGS + 1);
    }
    ut_barrier(t);
    ea_cleanup(&ea);
}

/* Memory is accessed meanwhile: that needs no ring. */
static void rma_goes_on(ut_t *t)
{
    uint64_t  word = 7, back = 0;
    uct_iov_t iov = {.length = 1024, .count = 1};
    ut_comp_t comp;
    ea_t      ea;

    ea_init(&ea, t);
    if (t->rank == 0) {
        CHECK_OK(ea_send(t->ep[1], EA_SHORT, 0, 100));
        POST_OK(t, uct_ep_put_short(t->ep[1], &word, sizeof(word), ea.remotes[1].addr,
                                    ea.remotes[1].key.rkey));
        iov.buffer = ea.mem.addr + 8192;
        iov.memh   = ea.mem.memh;
        COMPLETE_OK(t, &comp,
                    uct_ep_put_zcopy(t->ep[1], &iov, 1, ea.remotes[1].addr + 8192,
                                     ea.remotes[1].key.rkey, &comp.super));
        COMPLETE_OK(t, &comp,
                    uct_ep_get_zcopy(t->ep[1], &iov, 1, ea.remotes[1].addr, ea.remotes[1].key.rkey,
                                     &comp.super));
        POST_OK(t, uct_ep_get_short(t->ep[1], &back, sizeof(back), ea.remotes[1].addr,
                                    ea.remotes[1].key.rkey));
        CHECK_EQ(back, word);
        ea_go(t);
        ut_flush(t, &t->main);
    } else {
        ea_still(t);
        UT_WAIT(t, ea.received == 1);
    }
    ut_barrier(t);
    ea_cleanup(&ea);
}

/* ---- flush ----------------------------------------------------------------------------------- */

/* No flush ends before the messages have gone. */
static void flushes(ut_t *t)
{
    ut_comp_t comp[3];
    unsigned  i;
    ea_t      ea;

    ea_init(&ea, t);
    if (t->rank == 0) {
        CHECK_OK(ea_send(t->ep[1], EA_ZCOPY, 0, 100));
        for (i = 0; i < 3; ++i) {
            ut_comp_init(&comp[i], 1);
        }
        CHECK_STATUS(uct_ep_flush(t->ep[1], 0, &comp[0].super), UCS_INPROGRESS);
        CHECK_STATUS(uct_ep_flush(t->ep[1], UCT_FLUSH_FLAG_CANCEL, &comp[1].super), UCS_INPROGRESS);
        CHECK_STATUS(uct_iface_flush(t->main.iface, 0, &comp[2].super), UCS_INPROGRESS);
        CHECK_OK(ea_send(t->ep[1], EA_SHORT, 1, 100));
        for (i = 0; i < 500; ++i) {
            CHECK_STATUS(uct_ep_flush(t->ep[1], 0, NULL), UCS_INPROGRESS);
            CHECK_STATUS(uct_iface_flush(t->main.iface, 0, NULL), UCS_INPROGRESS);
            ut_progress(t);
        }
        CHECK_EQ(comp[0].calls + comp[1].calls + comp[2].calls, 0);
        ea_go(t);
        for (i = 0; i < 3; ++i) {
            UT_WAIT(t, comp[i].calls == 1);
            CHECK_OK(comp[i].status);
        }
        UT_WAIT(t, uct_ep_flush(t->ep[1], 0, NULL) == UCS_OK);
        ut_send_word(t, 1, 0);
    } else {
        ea_still(t);
        ut_recv_word(t, 0);
        ut_progress(t);
        UT_WAIT(t, ea.received == 2);
    }
    ut_barrier(t);
    ea_cleanup(&ea);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Three flushes that a failure ends. */
typedef struct {
    ut_comp_t comp[3];
} ea_flushes_t;

static void ea_flushes_start(ea_flushes_t *flush, const ut_iface_t *iface, uct_ep_h ep)
{
    unsigned i;

    for (i = 0; i < 3; ++i) {
        ut_comp_init(&flush->comp[i], 1);
    }
    CHECK_STATUS(uct_ep_flush(ep, 0, &flush->comp[0].super), UCS_INPROGRESS);
    CHECK_STATUS(uct_ep_flush(ep, UCT_FLUSH_FLAG_CANCEL, &flush->comp[1].super), UCS_INPROGRESS);
    CHECK_STATUS(uct_iface_flush(iface->iface, 0, &flush->comp[2].super), UCS_INPROGRESS);
}

static void ea_flushes_check(const ea_flushes_t *flush, const ut_iface_t *iface)
{
    unsigned i;

    for (i = 0; i < 3; ++i) {
        CHECK_EQ(flush->comp[i].calls, 1);
        CHECK_STATUS(flush->comp[i].status, iface->error);
    }
}

/* The peer is killed, or leaves in order, before it grants anything. */
static void gone(ut_t *t)
{
    int          killed = *(const int *)t->arg;
    ea_flushes_t flush;
    ea_t         ea;

    ea_init(&ea, t);
    if (t->rank == 0) {
        CHECK_OK(ea_send(t->ep[1], EA_ZCOPY, 0, 100));
        CHECK_OK(ea_send(t->ep[1], EA_BCOPY, 1, 100));
        ea_flushes_start(&flush, &t->main, t->ep[1]);
        ea_go(t);
        UT_WAIT(t, t->main.errors == 1);
        CHECK_STATUS(t->main.error, killed ? UCS_ERR_ENDPOINT_TIMEOUT : UCS_ERR_CONNECTION_RESET);
        ea_flushes_check(&flush, &t->main);
        CHECK_STATUS(uct_ep_flush(t->ep[1], 0, NULL), t->main.error);
        CHECK_STATUS(ea_send(t->ep[1], EA_SHORT, 2, 8), t->main.error);
        ut_progress_ms(t, 20);
        CHECK_EQ(t->main.errors, 1);
    } else {
        ea_still(t);
        if (killed) {
            kill(getpid(), SIGKILL);
        }
    }
    ea_cleanup(&ea);
}

/* Refused, or granted a ring that is too small. */
static void hostile(ut_t *t)
{
    int                 is_small = *(const int *)t->arg;
    uct_angara_record_t record;
    uct_angara_grant_t  grant;
    ea_flushes_t        flush;
    ho_t                ho;

    ut_md_open(t);
    ho_open(&ho, t);
    CHECK_OK(ea_send(ho.back, EA_ZCOPY, 0, 100));
    ea_flushes_start(&flush, &ho.victim, ho.back);
    HO_WAIT(&ho, ho.greeted);
    if (is_small) {
        grant        = ho_grant(&ho);
        grant.nslots = 4u * ho.hello.super.value - 1;
        ho_notify(&ho, &grant, sizeof(grant));
    } else {
        record              = ho_record(UCT_ANGARA_REFUSE);
        record.epoch        = ho.hello.super.epoch;
        record.credit_index = ho.hello.super.credit_index;
        record.shape        = UCT_ANGARA_REFUSE_PEERS;
        ho_notify(&ho, &record, sizeof(record));
    }
    HO_WAIT(&ho, ho.victim.errors == 1);
    CHECK_STATUS(ho.victim.error, is_small ? UCS_ERR_CONNECTION_RESET : UCS_ERR_REJECTED);
    ea_flushes_check(&flush, &ho.victim);
    if (is_small && (grant.nslots >= UCT_ANGARA_SLOTS_MIN)) {
        CHECK(strstr(ho_peer(&ho)->reason, "a ring that is too small") != NULL);
    }
    CHECK_EQ(ho_peer(&ho)->net->port.early.used, 0);
    ho_check_alive(&ho);
    ho_close(&ho);
    ut_md_close(t);
}

/* The endpoint is destroyed, and perhaps another one is made: the messages arrive, before it is
 * closed. */
static void destroyed(ut_t *t)
{
    int      again = *(const int *)t->arg;
    unsigned i;
    ea_t     ea;

    ea_init(&ea, t);
    if (t->rank == 0) {
        for (i = 0; i < 3; ++i) {
            CHECK_OK(ea_send(t->ep[1], EA_ZCOPY, i, 500));
        }
        uct_ep_destroy(t->ep[1]);
        ut_progress(t);
        t->ep[1] = again ? ut_ep_create(&t->main, &t->addr[1]) : NULL;
        if (again) {
            CHECK_OK(ea_send(t->ep[1], EA_SHORT, 3, 8));
        }
        CHECK_STATUS(uct_iface_flush(t->main.iface, 0, NULL), UCS_INPROGRESS);
        ea_go(t);
        ut_flush(t, &t->main);
    } else {
        ea_still(t);
        UT_WAIT(t, ea.received == (again ? 4 : 3));
    }
    ut_barrier(t);
    CHECK_EQ(t->main.errors, 0);
    if (t->rank == 0) { /* and anew, after the end of the first connection */
        if (t->ep[1] != NULL) {
            uct_ep_destroy(t->ep[1]);
        }
        ut_progress_ms(t, 5);
        t->ep[1] = ut_ep_create(&t->main, &t->addr[1]);
        CHECK_OK(ea_send(t->ep[1], EA_SHORT, again ? 4 : 3, 8));
        ut_flush(t, &t->main);
    } else {
        UT_WAIT(t, ea.received == (again ? 5 : 4));
    }
    ut_barrier(t);
    ea_cleanup(&ea);
}

/*
 * Rank 0 gives up the connection, and sends by a new endpoint before rank 1 has heard of it: the
 * messages are those of the next connection.
 */
static void after_failure(ut_t *t)
{
    uint64_t          word                    = 1;
    uint64_t          forged[UT_RKEY_MAX / 8] = {0};
    uct_rkey_bundle_t key;
    ut_comp_t         comp;
    ea_t              ea;

    ea_init(&ea, t);
    if (t->rank == 0) {
        CHECK_OK(ea_send(t->ep[1], EA_SHORT, 0, 8));
        ut_flush(t, &t->main);
    } else {
        UT_WAIT(t, ea.received == 1);
    }
    ut_barrier(t);
    if (t->rank == 0) {
        CHECK_OK(uct_md_mkey_pack(t->md, ea.mem.memh, forged));
        forged[0] ^= 0x5a5a5a5a5aull;
        CHECK_OK(uct_rkey_unpack(t->component, forged, &key));
        UT_POST(t, uct_ep_put_short(t->ep[1], &word, sizeof(word), ea.remotes[1].addr, key.rkey));
        UT_WAIT(t, t->main.errors == 1);
        uct_rkey_release(t->component, &key);
        uct_ep_destroy(t->ep[1]);
        t->ep[1] = ut_ep_create(&t->main, &t->addr[1]);
        CHECK_OK(ea_send(t->ep[1], EA_ZCOPY, 1, 100));
        CHECK_OK(ea_send(t->ep[1], EA_BCOPY, 2, 100));
        ut_comp_init(&comp, 1);
        CHECK_STATUS(uct_ep_flush(t->ep[1], 0, &comp.super), UCS_INPROGRESS);
        ut_progress_ms(t, 5);
        CHECK_EQ(comp.calls, 0);
        ea_go(t);
        UT_WAIT(t, comp.calls == 1);
        CHECK_OK(comp.status);
        CHECK_EQ(t->main.errors, 1);
    } else {
        ea_still(t);
        UT_WAIT(t, ea.received == 3);
    }
    ut_barrier(t);
    ea_cleanup(&ea);
}

/* ---- the own PE, sleeping, closing ------------------------------------------------------------
 */

static void own_pe(ut_t *t)
{
    unsigned i;
    ea_t     ea;

    ea_init(&ea, t);
    for (i = 0; i < EA_MSGS; ++i) {
        CHECK_OK(ea_send(t->ep[0], i % EA_WAYS, i, 64 + i));
    }
    CHECK_STATUS(ea_send(t->ep[0], EA_SHORT, i, 8), UCS_ERR_NO_RESOURCE);
    ut_flush(t, &t->main);
    UT_WAIT(t, ea.received == EA_MSGS);
    ea_cleanup(&ea);
}

/* Whoever sleeps after the first message is woken by the answer, and then sends it. */
static void sleeps(ut_t *t)
{
    ucs_status_t  status;
    struct pollfd pfd   = {.events = POLLIN};
    unsigned      slept = 0;
    ut_comp_t     comp;
    ea_t          ea;

    ea_init(&ea, t);
    if (t->rank == 0) {
        CHECK_OK(uct_iface_event_fd_get(t->main.iface, &pfd.fd));
        CHECK_OK(ea_send(t->ep[1], EA_SHORT, 0, 8));
        ut_comp_init(&comp, 1);
        CHECK_STATUS(uct_ep_flush(t->ep[1], 0, &comp.super), UCS_INPROGRESS);
        while (comp.calls == 0) {
            if (uct_worker_progress(t->worker) > 0) {
                continue;
            }
            status = uct_iface_event_arm(t->main.iface, UCT_EVENT_RECV | UCT_EVENT_SEND_COMP);
            if (status == UCS_OK) {
                if (slept++ == 0) {
                    ea_go(t); /* nothing but what it does can wake us */
                }
                CHECK(poll(&pfd, 1, EA_PATIENCE) > 0);
            } else {
                CHECK_STATUS(status, UCS_ERR_BUSY);
            }
        }
        CHECK_OK(comp.status);
        CHECK(slept > 0);
    } else {
        ea_still(t);
        UT_WAIT(t, ea.received == 1);
    }
    ut_barrier(t);
    ea_cleanup(&ea);
}

/* The interface closes: what wasn't flushed is lost, and nothing else. */
static void closed(ut_t *t)
{
    ea_t ea;

    ea_init(&ea, t);
    if (t->rank == 0) {
        CHECK_OK(ea_send(t->ep[1], EA_ZCOPY, 0, 400));
    }
    ea_cleanup(&ea);
}

/* ---- the tests ------------------------------------------------------------------------------- */

#define EA_TEST(_name, _nranks, _func, _arg) \
    static void test_##_name(void **state)   \
    {                                        \
        (void)state;                         \
        ut_run(_nranks, _func, _arg);        \
    }

static const int      no = 0, yes = 1;
static const ea_way_t ways[] = {EA_SHORT, EA_IOV, EA_BCOPY, EA_ZCOPY};

EA_TEST(count, 2, count, NULL)
EA_TEST(bytes_short, 2, bytes, &ways[EA_SHORT])
EA_TEST(bytes_iov, 2, bytes, &ways[EA_IOV])
EA_TEST(bytes_bcopy, 2, bytes, &ways[EA_BCOPY])
EA_TEST(bytes_zcopy, 2, bytes, &ways[EA_ZCOPY])
EA_TEST(total, 3, total, NULL)
EA_TEST(in_mpi, 2, in_mpi, NULL)
EA_TEST(in_order, 2, in_order, NULL)
EA_TEST(rma_goes_on, 2, rma_goes_on, NULL)
EA_TEST(flushes, 2, flushes, NULL)
EA_TEST(left, 2, gone, &no)
EA_TEST(refused, 1, hostile, &no)
EA_TEST(small_ring, 1, hostile, &yes)
EA_TEST(destroyed, 2, destroyed, &no)
EA_TEST(made_again, 2, destroyed, &yes)
EA_TEST(after_failure, 2, after_failure, NULL)
EA_TEST(own_pe, 1, own_pe, NULL)
EA_TEST(sleeps, 2, sleeps, NULL)
EA_TEST(closed, 2, closed, NULL)

static void test_killed(void **state)
{
    (void)state;
    ut_run_victims(2, gone, &yes, 1u << 1, SIGKILL);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count),         cmocka_unit_test(test_bytes_short),
        cmocka_unit_test(test_bytes_iov),     cmocka_unit_test(test_bytes_bcopy),
        cmocka_unit_test(test_bytes_zcopy),   cmocka_unit_test(test_total),
        cmocka_unit_test(test_in_mpi),        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_rma_goes_on),   cmocka_unit_test(test_flushes),
        cmocka_unit_test(test_killed),        cmocka_unit_test(test_left),
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_small_ring),
        cmocka_unit_test(test_destroyed),     cmocka_unit_test(test_made_again),
        cmocka_unit_test(test_after_failure), cmocka_unit_test(test_own_pe),
        cmocka_unit_test(test_sleeps),        cmocka_unit_test(test_closed),
    };

    return ut_main(argc, argv, "early", tests, sizeof(tests) / sizeof(tests[0]));
}
