/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers that are gone. Who leaves in order is missed only by those that turn to it; a death is told
 * to those that have an endpoint, with one status; others go on.
 */
#include "ut_life.h"

#include <signal.h>
#include <unistd.h>

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

/*
 * Rank 0 has sent something that no flush has confirmed when rank 1 closes. @return to rank 0: did
 * rank 1 take it, after all, while it closed? To rank 1, which is through: -1.
 */
static int close_unconfirmed(ut_t *t, lf_t *lf)
{
    int is_taken;

    setenv("ANGARA_PEER_CHECK", "5", 1);
    lf_init(lf, t);
    lf_talk(lf, 1 - t->rank, 1);
    ut_flush(t, &t->main);
    ut_barrier(t);
    if (t->rank == 1) {
        ut_recv_word_still(t, 0);
        lf_cleanup(lf);
        ut_send_word(t, 0, lf->received);
        return -1;
    }
    CHECK_OK(uct_ep_am_short(t->ep[1], LF_AM, 0, NULL, 0));
    ut_send_word(t, 1, 0);
    is_taken = (ut_recv_word(t, 1) == 2);
    ut_progress_ms(t, 200);
    CHECK_EQ(t->main.errors, 0); /* nobody has asked */
    return is_taken;
}

/* As before, but rank 0 has sent something that no flush has confirmed: a flush says so. */
static void gone_unconfirmed(ut_t *t)
{
    lf_t lf;
    int  is_taken = close_unconfirmed(t, &lf);

    if (is_taken < 0) {
        return;
    }
    if (is_taken) {
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

/* As before, but rank 0 has turned to it before: the answer is the same however often it asks. */
static void gone_asked(ut_t *t)
{
    ut_comp_t comp;
    lf_t      lf;
    int       is_taken = close_unconfirmed(t, &lf);

    if (is_taken < 0) {
        return;
    }
    CHECK_OK(uct_ep_check(t->ep[1], 0, NULL));
    ut_comp_init(&comp, 1);
    CHECK_STATUS(ut_comp_wait(t, uct_ep_flush(t->ep[1], 0, &comp.super), &comp),
                 is_taken ? UCS_OK : UCS_ERR_CONNECTION_RESET);
    UT_WAIT(t, t->main.errors == 1);
    CHECK_STATUS(t->main.error, UCS_ERR_CONNECTION_RESET);
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

LF_GONE(send, LF_SEND)
LF_GONE(put, LF_PUT)
LF_GONE(check, LF_CHECK)
LF_GONE(pending, LF_PENDING)
LF_TEST(gone_unconfirmed, 2)
LF_TEST(gone_asked, 2)
LF_TEST(gone_unhandled, 2)
LF_KILL(one_status, 2)
LF_KILL(server, 3)
LF_KILL(server_with_eps, 3)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gone_send),        cmocka_unit_test(test_gone_put),
        cmocka_unit_test(test_gone_check),       cmocka_unit_test(test_gone_pending),
        cmocka_unit_test(test_gone_unconfirmed), cmocka_unit_test(test_gone_unhandled),
        cmocka_unit_test(test_one_status),       cmocka_unit_test(test_server),
        cmocka_unit_test(test_server_with_eps),  cmocka_unit_test(test_gone_asked),
    };

    return ut_main(argc, argv, "gone", tests, sizeof(tests) / sizeof(tests[0]));
}
