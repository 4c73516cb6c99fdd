/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a peer. A failure is told to a live peer, which fails too and answers; then both
 * start anew, as often as it takes, without a message lost in silence. Whoever leaves in order is
 * missed only by those that turn to it.
 */
#include "ut.h"

#include <signal.h>
#include <unistd.h>

#define LF_AM     3
#define LF_MEMORY ((size_t)1 << 16)

typedef struct {
    ut_t       *t;
    ut_mem_t    mem;
    ut_remote_t remotes[RANK_MAX];
    uint64_t    received;
    uint64_t    last; /* header of the last message */
} lf_t;

static ucs_status_t lf_receive(void *arg, void *data, size_t length, unsigned flags)
{
    lf_t *lf = arg;

    (void)flags;
    CHECK(length >= sizeof(lf->last));
    memcpy(&lf->last, data, sizeof(lf->last));
    ++lf->received;
    return UCS_OK;
}

static void lf_init(lf_t *lf, ut_t *t)
{
    memset(lf, 0, sizeof(*lf));
    ut_open(t);
    lf->t = t;
    ut_mem_init(t, &lf->mem, UT_MEM_PRIVATE, LF_MEMORY);
    ut_mem_exchange(t, &lf->mem, lf->remotes);
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, LF_AM, lf_receive, lf, 0));
    ut_barrier(t);
}

static void lf_cleanup(lf_t *lf)
{
    ut_remotes_release(lf->t, lf->remotes);
    ut_mem_cleanup(lf->t, &lf->mem);
    ut_close_alone(lf->t);
}

/* A message, and a flush that says that it has arrived. */
static void lf_send(ut_t *t, uct_ep_h ep, uint64_t number)
{
    ut_comp_t comp;

    POST_OK(t, uct_ep_am_short(ep, LF_AM, number, NULL, 0));
    ut_comp_init(&comp, 1);
    CHECK_OK(ut_comp_wait(t, (ucs_status_t)UT_POST(t, uct_ep_flush(ep, 0, &comp.super)), &comp));
}

/* Both ways, each message numbered: rings are open afterwards. */
static void lf_talk(lf_t *lf, unsigned other, uint64_t number)
{
    uint64_t before = lf->received;

    ut_barrier(lf->t);
    lf_send(lf->t, lf->t->ep[other], number);
    UT_WAIT(lf->t, lf->received > before);
    CHECK_EQ(lf->received, before + 1);
    CHECK_EQ(lf->last, number);
    ut_barrier(lf->t);
}

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

/* ---- gone in order --------------------------------------------------------------------------- */

enum { LF_SEND, LF_PUT, LF_CHECK, LF_PENDING, LF_USES };

typedef struct {
    uct_pending_req_t super;
    ut_t             *t;
    ucs_status_t      status;
} lf_req_t;

static ucs_status_t lf_dispatch(uct_pending_req_t *self)
{
    lf_req_t *req = (lf_req_t *)self;

    req->status = uct_ep_am_short(req->t->ep[1], LF_AM, 0, NULL, 0);
    return (req->status == UCS_ERR_NO_RESOURCE) ? req->status : UCS_OK;
}

/* Rank 1 leaves in order. Rank 0 isn't alarmed until it turns to it; then it is told, once. */
static void gone_then_used(ut_t *t)
{
    int      use  = *(const int *)t->arg;
    uint64_t word = 0;
    lf_req_t req  = {.super.func = lf_dispatch, .t = t, .status = UCS_INPROGRESS};
    lf_t     lf;

    setenv("ANGARA_PEER_CHECK", "5", 1);
    lf_init(&lf, t);
    lf_talk(&lf, 1 - t->rank, 1);
    ut_flush(t, &t->main);
    ut_barrier(t);
    if (t->rank == 1) {
        lf_cleanup(&lf);
        return;
    }
    ut_progress_ms(t, 200);
    CHECK_EQ(t->main.errors, 0);
    CHECK_OK(uct_ep_flush(t->ep[1], 0, NULL)); /* nothing is outstanding */
    CHECK_EQ(t->main.errors, 0);
    switch (use) {
    case LF_SEND:
        CHECK_STATUS(uct_ep_am_short(t->ep[1], LF_AM, 0, NULL, 0), UCS_ERR_CONNECTION_RESET);
        break;
    case LF_PUT:
        CHECK_STATUS(
            uct_ep_put_short(t->ep[1], &word, 8, lf.remotes[1].addr, lf.remotes[1].key.rkey),
            UCS_ERR_CONNECTION_RESET);
        break;
    case LF_CHECK:
        CHECK_OK(uct_ep_check(t->ep[1], 0, NULL));
        break;
    default:
        CHECK_OK(uct_ep_pending_add(t->ep[1], &req.super, 0));
        UT_WAIT(t, req.status != UCS_INPROGRESS);
        CHECK_STATUS(req.status, UCS_ERR_CONNECTION_RESET);
    }
    UT_WAIT(t, t->main.errors == 1);
    CHECK_STATUS(t->main.error, UCS_ERR_CONNECTION_RESET);
    CHECK_STATUS(uct_ep_am_short(t->ep[1], LF_AM, 0, NULL, 0), UCS_ERR_CONNECTION_RESET);
    uct_ep_check(t->ep[1], 0, NULL);
    ut_progress_ms(t, 20);
    CHECK_EQ(t->main.errors, 1);
    CHECK_STATUS(uct_ep_flush(t->ep[1], 0, NULL), UCS_ERR_CONNECTION_RESET);
    lf_cleanup(&lf);
}

/* As before, but rank 0 has sent something that no flush has confirmed: a flush says so. */
static void gone_unconfirmed(ut_t *t)
{
    uint64_t received;
    lf_t     lf;

    setenv("ANGARA_PEER_CHECK", "5", 1);
    lf_init(&lf, t);
    lf_talk(&lf, 1 - t->rank, 1);
    ut_flush(t, &t->main);
    ut_barrier(t);
    if (t->rank == 1) {
        ut_recv_word_still(t, 0);
        lf_cleanup(&lf);
        ut_send_word(t, 0, lf.received);
        return;
    }
    CHECK_OK(uct_ep_am_short(t->ep[1], LF_AM, 0, NULL, 0));
    ut_send_word(t, 1, 0);
    received = ut_recv_word(t, 1);
    ut_progress_ms(t, 200);
    CHECK_EQ(t->main.errors, 0); /* nobody has asked */
    if (received == 2) {         /* it was taken, after all, while the other closed */
        CHECK_OK(uct_ep_flush(t->ep[1], 0, NULL));
        lf_cleanup(&lf);
        return;
    }
    CHECK_STATUS(uct_ep_flush(t->ep[1], 0, NULL), UCS_ERR_CONNECTION_RESET);
    UT_WAIT(t, t->main.errors == 1);
    CHECK_STATUS(t->main.error, UCS_ERR_CONNECTION_RESET);
    ut_progress_ms(t, 20);
    CHECK_EQ(t->main.errors, 1);
    lf_cleanup(&lf);
}

/* An orderly end aborts nothing, even where nobody handles errors and the peer is missed. */
static void gone_unhandled(ut_t *t)
{
    lf_t lf;

    setenv("ANGARA_PEER_CHECK", "5", 1);
    t->main.no_handler = 1;
    lf_init(&lf, t);
    lf_talk(&lf, 1 - t->rank, 1);
    ut_flush(t, &t->main);
    ut_barrier(t);
    if (t->rank == 0) {
        ut_progress_ms(t, 100);
        CHECK_STATUS(uct_ep_am_short(t->ep[1], LF_AM, 0, NULL, 0), UCS_ERR_CONNECTION_RESET);
        ut_progress_ms(t, 50);
    }
    lf_cleanup(&lf);
}

/* ---- what the handler gets is what requests end with ------------------------------------------
 */

typedef struct {
    ut_comp_t comp;
    int       posted;
} lf_op_t;

/* Rank 1 is killed under operations of all kinds: they end with what the handler hears. */
static void one_status(ut_t *t)
{
    enum { OPS = 64 };
    static lf_op_t ops[OPS];
    uint64_t       word = 1, addr;
    uct_iov_t      iov  = {.length = 8, .count = 1};
    uct_rkey_t     rkey;
    ucs_status_t   status;
    ucs_status_t   seen = UCS_OK;
    unsigned       i;
    lf_t           lf;

    lf_init(&lf, t);
    if (t->rank == 1) {
        ut_recv_word_still(t, 0);
        raise(SIGKILL);
    }
    addr       = lf.remotes[1].addr;
    rkey       = lf.remotes[1].key.rkey;
    iov.buffer = lf.mem.addr;
    iov.memh   = lf.mem.memh;
    ut_send_word(t, 1, 0);
    for (i = 0; t->main.errors == 0; i = (i + 1) % OPS) {
        if (ops[i].posted && (ops[i].comp.calls == 0)) {
            ut_progress(t);
            continue;
        }
        if (ops[i].posted && (ops[i].comp.status != UCS_OK)) {
            seen = ops[i].comp.status;
        }
        ut_comp_init(&ops[i].comp, 1);
        switch (i % 4) {
        case 0:
            status = uct_ep_get_zcopy(t->ep[1], &iov, 1, addr, rkey, &ops[i].comp.super);
            break;
        case 1:
            status = uct_ep_atomic64_fetch(t->ep[1], UCT_ATOMIC_OP_ADD, 1,
                                           (uint64_t *)(void *)(lf.mem.addr + 64), addr, rkey,
                                           &ops[i].comp.super);
            break;
        case 2:
            status = uct_ep_get_short(t->ep[1], &word, 8, addr, rkey);
            break;
        default:
            status = uct_ep_flush(t->ep[1], 0, &ops[i].comp.super);
        }
        ops[i].posted = (status == UCS_INPROGRESS);
        if (UCS_STATUS_IS_ERR(status) && (status != UCS_ERR_NO_RESOURCE)) {
            seen = status;
            break;
        }
        ut_progress(t);
    }
    UT_WAIT(t, t->main.errors == 1);
    CHECK((seen == UCS_OK) || (seen == t->main.error));
    for (i = 0; i < OPS; ++i) {
        if (ops[i].posted) {
            UT_WAIT(t, ops[i].comp.calls == 1);
            CHECK((ops[i].comp.status == UCS_OK) || (ops[i].comp.status == t->main.error));
        }
    }
    CHECK_STATUS(uct_ep_put_short(t->ep[1], &word, 8, addr, rkey), t->main.error);
    CHECK_STATUS(uct_ep_get_short(t->ep[1], &word, 8, addr, rkey), t->main.error);
    lf_cleanup(&lf);
}

/* ---- a server survives its clients ------------------------------------------------------------
 */

/* Rank 0 has no endpoint to the others, and no error handler: it serves on when one is killed. */
static void server(ut_t *t)
{
    uint64_t before;
    lf_t     lf;

    t->main.no_handler = (t->rank == 0);
    lf_init(&lf, t);
    if (t->rank == 0) {
        uct_ep_destroy(t->ep[1]);
        uct_ep_destroy(t->ep[2]);
        t->ep[1] = t->ep[2] = NULL;
        ut_progress_ms(t, 20);
    }
    ut_barrier(t);
    if (t->rank > 0) {
        lf_send(t, t->ep[0], t->rank);
    } else {
        UT_WAIT(t, lf.received == 2);
    }
    ut_barrier(t);
    if (t->rank == 1) {
        raise(SIGKILL);
    } else if (t->rank == 0) {
        ut_progress_ms(t, 500); /* longer than a check of peers */
        before = lf.received;
        ut_send_word(t, 2, 0);
        UT_WAIT(t, lf.received == before + 1);
        ut_recv_word(t, 2);
    } else {
        ut_recv_word(t, 0);
        lf_send(t, t->ep[0], 3);
        ut_send_word(t, 0, 0);
    }
    lf_cleanup(&lf);
}

/* The same with endpoints to the clients, whose handler takes care. */
static void server_with_eps(ut_t *t)
{
    lf_t lf;

    lf_init(&lf, t);
    if (t->rank > 0) {
        lf_send(t, t->ep[0], t->rank);
    } else {
        UT_WAIT(t, lf.received == 2);
        lf_send(t, t->ep[1], 0);
        lf_send(t, t->ep[2], 0);
    }
    ut_barrier(t);
    if (t->rank == 1) {
        raise(SIGKILL);
    } else if (t->rank == 0) {
        UT_WAIT(t, t->main.errors == 1);
        ut_send_word(t, 2, 0);
        UT_WAIT(t, lf.received == 3);
        lf_send(t, t->ep[2], 4);
        CHECK_EQ(t->main.errors, 1);
        ut_recv_word(t, 2);
        ut_send_word(t, 2, 0);
    } else {
        ut_recv_word(t, 0);
        lf_send(t, t->ep[0], 3);
        UT_WAIT(t, lf.received == 2);
        ut_send_word(t, 0, 0);
        ut_recv_word(t, 0); /* its flush has ended: only now may we leave */
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

#define LF_GONE(_name, _use)                    \
    static void test_gone_##_name(void **state) \
    {                                           \
        static const int use = _use;            \
        (void)state;                            \
        ut_run(2, gone_then_used, &use);        \
    }

#define LF_KILL(_name, _nranks)                                 \
    static void test_##_name(void **state)                      \
    {                                                           \
        (void)state;                                            \
        ut_run_victims(_nranks, _name, NULL, 1u << 1, SIGKILL); \
    }

LF_TEST(told, 2)
LF_TEST(flush_within, 2)
LF_TEST(told_sender, 2)
LF_TEST(starts_anew, 2)
LF_TEST(anew_at_once, 2)
LF_TEST(closed_and_opened, 2)
LF_TEST(own_pe, 1)
LF_TEST(untold, 1)
LF_TEST(in_traffic, 2)
LF_GONE(send, LF_SEND)
LF_GONE(put, LF_PUT)
LF_GONE(check, LF_CHECK)
LF_GONE(pending, LF_PENDING)
LF_TEST(gone_unconfirmed, 2)
LF_TEST(gone_unhandled, 2)
LF_KILL(one_status, 2)
LF_KILL(server, 3)
LF_KILL(server_with_eps, 3)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_told),           cmocka_unit_test(test_flush_within),
        cmocka_unit_test(test_told_sender),    cmocka_unit_test(test_starts_anew),
        cmocka_unit_test(test_anew_at_once),   cmocka_unit_test(test_closed_and_opened),
        cmocka_unit_test(test_own_pe),         cmocka_unit_test(test_untold),
        cmocka_unit_test(test_in_traffic),     cmocka_unit_test(test_gone_send),
        cmocka_unit_test(test_gone_put),       cmocka_unit_test(test_gone_check),
        cmocka_unit_test(test_gone_pending),   cmocka_unit_test(test_gone_unconfirmed),
        cmocka_unit_test(test_gone_unhandled), cmocka_unit_test(test_one_status),
        cmocka_unit_test(test_server),         cmocka_unit_test(test_server_with_eps),
    };

    return ut_main(argc, argv, "life", tests, sizeof(tests) / sizeof(tests[0]));
}
