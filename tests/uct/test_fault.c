/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dead peers and orderly ends. A peer that is killed in the middle of whatever it did is noticed in
 * bounded time: the error handler is called, what is outstanding fails, nothing hangs. A peer that
 * closes in order alarms nobody.
 */
#include "ut.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define FT_AM      2
#define FT_MEMORY  ((size_t)8 << 20)
#define FT_SECONDS (5.0 * test_slow()) /* in which a death must be noticed */

typedef struct {
    ut_t       *t;
    ut_mem_t    mem;
    ut_remote_t remotes[RANK_MAX];
    uint64_t    received;
} ft_t;

static ucs_status_t ft_receive(void *arg, void *data, size_t length, unsigned flags)
{
    ft_t *ft = arg;

    (void)data;
    (void)length;
    (void)flags;
    ++ft->received;
    return UCS_OK;
}

static void ft_init(ft_t *ft, ut_t *t)
{
    memset(ft, 0, sizeof(*ft));
    ut_open(t);
    ft->t = t;
    CHECK(t->main.attr.cap.flags & UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE);
    ut_mem_init(t, &ft->mem, UT_MEM_PRIVATE, FT_MEMORY);
    ut_mem_exchange(t, &ft->mem, ft->remotes);
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, FT_AM, ft_receive, ft, 0));
    ut_barrier(t);
}

static void ft_cleanup(ft_t *ft)
{
    ut_t *t = ft->t;

    ut_remotes_release(t, ft->remotes);
    ut_mem_cleanup(t, &ft->mem);
    ut_close_alone(t);
}

static void ft_wait_error(ut_t *t, unsigned errors)
{
    double end = now_seconds() + FT_SECONDS;

    while (t->main.errors < errors) {
        ut_progress(t);
        if (now_seconds() > end) {
            rank_fail(__FILE__, __LINE__, "%u of %u error handlers were called in %g s",
                      t->main.errors, errors, FT_SECONDS);
        }
    }
    CHECK(UCS_STATUS_IS_ERR(t->main.error));
}

/* All ways to use an endpoint whose peer is dead give an error, or an ended request. */
static void ft_check_dead(ft_t *ft)
{
    ut_t      *t    = ft->t;
    uct_ep_h   ep   = t->ep[1];
    uint64_t   word = 1, addr = ft->remotes[1].addr;
    ut_pack_t  pack = {&word, sizeof(word)};
    uct_iov_t  iov  = {.buffer = ft->mem.addr, .length = 8, .memh = ft->mem.memh, .count = 1};
    uct_rkey_t rkey = ft->remotes[1].key.rkey;
    ut_comp_t  comp;

    ut_comp_init(&comp, 1);
    CHECK_ERR(uct_ep_am_short(ep, FT_AM, 0, &word, 8));
    CHECK_ERR(uct_ep_am_bcopy(ep, FT_AM, ut_pack, &pack, 0));
    CHECK_ERR(uct_ep_am_zcopy(ep, FT_AM, &word, 8, &iov, 1, 0, &comp.super));
    CHECK_ERR(uct_ep_put_short(ep, &word, 8, addr, rkey));
    CHECK_ERR(uct_ep_put_bcopy(ep, ut_pack, &pack, addr, rkey));
    CHECK_ERR(uct_ep_put_zcopy(ep, &iov, 1, addr, rkey, &comp.super));
    CHECK_ERR(uct_ep_get_short(ep, &word, 8, addr, rkey));
    CHECK_ERR(uct_ep_get_zcopy(ep, &iov, 1, addr, rkey, &comp.super));
    CHECK_ERR(uct_ep_atomic64_post(ep, UCT_ATOMIC_OP_ADD, 1, addr, rkey));
    CHECK_ERR(uct_ep_atomic64_fetch(ep, UCT_ATOMIC_OP_ADD, 1, &word, addr, rkey, &comp.super));
    CHECK_EQ(comp.calls, 0);
    CHECK_OK(uct_ep_flush(ep, UCT_FLUSH_FLAG_CANCEL, NULL));
    ut_flush(t, &t->main);
    ut_progress_ms(t, 5);
    CHECK_EQ(t->main.errors, 1); /* once per endpoint */
}

/* The interface goes on with others: a message to oneself. */
static void ft_check_alive(ft_t *ft)
{
    ut_t    *t      = ft->t;
    uint64_t before = ft->received;

    POST_OK(t, uct_ep_am_short(t->ep[0], FT_AM, 0, NULL, 0));
    UT_WAIT(t, ft->received == before + 1);
}

/* ---- killed while idle ---------------------------------------------------------------------- */

static void killed_idle(ut_t *t)
{
    ft_t ft;

    ft_init(&ft, t);
    if (t->rank == 1) {
        ut_recv_word(t, 0);
        raise(SIGKILL);
    }
    POST_OK(t, uct_ep_am_short(t->ep[1], FT_AM, 0, NULL, 0));
    ut_flush(t, &t->main);
    ut_send_word(t, 1, 0);
    ft_wait_error(t, 1);
    ft_check_dead(&ft);
    ft_check_alive(&ft);
    ft_cleanup(&ft);
}

/* Never spoken to, but an endpoint exists and asks. */
static void killed_check(ut_t *t)
{
    double end;
    ft_t   ft;

    ft_init(&ft, t);
    if (t->rank == 1) {
        ut_recv_word(t, 0);
        raise(SIGKILL);
    }
    CHECK(t->main.attr.cap.flags & UCT_IFACE_FLAG_EP_CHECK);
    CHECK_OK(uct_ep_check(t->ep[1], 0, NULL));
    ut_progress_ms(t, 5);
    CHECK_EQ(t->main.errors, 0);
    ut_send_word(t, 1, 0);
    for (end = now_seconds() + FT_SECONDS; (t->main.errors == 0) && (now_seconds() < end);) {
        uct_ep_check(t->ep[1], 0, NULL); /* may fail once it is known */
        ut_progress(t);
    }
    CHECK_EQ(t->main.errors, 1);
    ft_check_alive(&ft);
    ft_cleanup(&ft);
}

/* ---- memory that the peer has unmapped ------------------------------------------------------- */

/*
 * A peer that polls performs what it is asked for by itself. Of memory that its program has
 * unmapped it gives an error: it doesn't crash.
 */
static void unmapped(ut_t *t)
{
    int      is_get = *(const int *)t->arg;
    uint64_t old, i;
    ft_t     ft;

    ft_init(&ft, t);
    if (t->rank == 1) {
        UT_WAIT(t, ft.received == 1);
        CHECK(munmap(ft.mem.addr, FT_MEMORY) == 0);
        /* nobody else is to have the place */
        CHECK(mmap(ft.mem.addr, FT_MEMORY, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == ft.mem.addr);
        ut_send_word(t, 0, 0);
        UT_WAIT(t, t->main.errors != 0);
        ut_recv_word(t, 0);
        ft_cleanup(&ft);
        return;
    }
    for (i = 0; i < 100; ++i) {
        POST_OK(t, uct_ep_atomic64_post(t->ep[1], UCT_ATOMIC_OP_ADD, 1, ft.remotes[1].addr,
                                        ft.remotes[1].key.rkey));
        ut_flush(t, &t->main);
    }
    POST_OK(t, uct_ep_am_short(t->ep[1], FT_AM, 0, NULL, 0));
    ut_recv_word(t, 1);
    if (is_get) {
        uct_ep_get_short(t->ep[1], &old, 8, ft.remotes[1].addr, ft.remotes[1].key.rkey);
    } else {
        uct_ep_atomic64_post(t->ep[1], UCT_ATOMIC_OP_ADD, 1, ft.remotes[1].addr,
                             ft.remotes[1].key.rkey);
    }
    ft_wait_error(t, 1);
    ut_send_word(t, 1, 0);
    ft_cleanup(&ft);
}

static void test_unmapped(void **state)
{
    static const int is_get[] = {0, 1};

    (void)state;
    ut_run(2, unmapped, &is_get[0]);
    ut_run(2, unmapped, &is_get[1]);
}

/* ---- killed in the middle of a transfer ------------------------------------------------------ */

typedef struct {
    uct_pending_req_t super;
    ut_t             *t;
    int               done;
    int               purged;
} ft_req_t;

static ucs_status_t ft_dispatch(uct_pending_req_t *self)
{
    ft_req_t    *req    = (ft_req_t *)self;
    ucs_status_t status = uct_ep_am_short(req->t->ep[1], FT_AM, 0, NULL, 0);

    if (status == UCS_ERR_NO_RESOURCE) {
        return status;
    }
    req->done = 1; /* sent, or failed for good */
    return UCS_OK;
}

static void ft_purge(uct_pending_req_t *self, void *arg)
{
    (void)arg;
    ((ft_req_t *)self)->purged = 1;
}

/* The receiver of a flood dies; requests are queued. */
static void killed_in_flood(ut_t *t)
{
    enum { REQS = 64 };
    static ft_req_t reqs[REQS];
    ft_req_t       *req;
    ut_comp_t       flush;
    ssize_t         status;
    unsigned        queued = 0, i;
    ft_t            ft;

    ft_init(&ft, t);
    if (t->rank == 1) {
        UT_WAIT(t, ft.received > 2000);
        raise(SIGKILL);
    }
    while (t->main.errors == 0) {
        status = uct_ep_am_short(t->ep[1], FT_AM, 0, NULL, 0);
        if (status == UCS_OK) {
            continue;
        }
        if (status != UCS_ERR_NO_RESOURCE) {
            break;
        }
        req = &reqs[queued % REQS];
        if ((queued < REQS) || req->done) {
            memset(req, 0, sizeof(*req));
            req->super.func = ft_dispatch;
            req->t          = t;
            CHECK_OK(uct_ep_pending_add(t->ep[1], &req->super, 0));
            ++queued;
        }
        ut_progress(t);
    }
    ut_comp_init(&flush, 1);
    status = uct_ep_flush(t->ep[1], 0, &flush.super);
    if (status == UCS_INPROGRESS) {
        UT_WAIT(t, flush.calls > 0);
        CHECK_EQ(flush.calls, 1);
    }
    ft_wait_error(t, 1);
    uct_ep_pending_purge(t->ep[1], ft_purge, NULL);
    for (i = 0; i < ucs_min(queued, (unsigned)REQS); ++i) {
        CHECK(reqs[i].done != reqs[i].purged); /* each ended once */
    }
    ft_check_dead(&ft);
    ft_check_alive(&ft);
    ft_cleanup(&ft);
}

/* As ft_dispatch(), but leaves the error for the one who purges. */
static ucs_status_t ft_dispatch_error(uct_pending_req_t *self)
{
    return uct_ep_am_short(((ft_req_t *)self)->t->ep[1], FT_AM, 0, NULL, 0);
}

/*
 * The receiver dies with requests queued, and nobody handles errors or purges: the requests end,
 * so do flushes, and one can go to sleep.
 */
static void killed_with_pending(ut_t *t)
{
    enum { REQS = 16 };
    static ft_req_t reqs[REQS];
    ut_timer_t      timer = {0, 0};
    ucs_status_t    status;
    unsigned        idle, i;
    ft_t            ft;

    setenv("UCX_ANGARA_DEAD_PEER", t->arg, 1);
    t->main.no_handler = 1;
    ft_init(&ft, t);
    if (t->rank == 1) {
        UT_WAIT(t, ft.received == 1);
        ut_send_word(t, 0, 0);
        ut_recv_word_still(t, 0);
        raise(SIGKILL);
    }
    POST_OK(t, uct_ep_am_short(t->ep[1], FT_AM, 0, NULL, 0));
    ut_recv_word(t, 1);
    for (idle = 0; idle < 1000; ++idle) { /* until the ring is full, and it is not just chaos */
        if (uct_ep_am_short(t->ep[1], FT_AM, 0, NULL, 0) == UCS_OK) {
            idle = 0;
        }
        ut_progress(t);
    }
    for (i = 0; i < REQS; ++i) {
        reqs[i].super.func = (i % 4 == 2) ? ft_dispatch_error : ft_dispatch;
        reqs[i].t          = t;
        CHECK_OK(uct_ep_pending_add(t->ep[1], &reqs[i].super, 0));
    }
    ut_send_word(t, 1, 0);
    while (((status = uct_ep_flush(t->ep[1], 0, NULL)) == UCS_ERR_NO_RESOURCE) ||
           (status == UCS_INPROGRESS)) {
        ut_relax(t, &timer, __FILE__, __LINE__, "flush of an endpoint whose peer is dead");
    }
    CHECK_ERR(status);
    for (i = 0; i < REQS; ++i) {
        UT_WAIT(t, reqs[i].done || (i % 4 == 2));
    }
    ut_flush(t, &t->main);
    UT_WAIT(t, uct_iface_event_arm(t->main.iface, UCT_EVENT_SEND_COMP) == UCS_OK);
    uct_ep_pending_purge(t->ep[1], ft_purge, NULL);
    for (i = 0; i < REQS; ++i) {
        CHECK_EQ(reqs[i].purged, i % 4 == 2);
        CHECK(reqs[i].done != reqs[i].purged);
    }
    CHECK_ERR(uct_ep_am_short(t->ep[1], FT_AM, 0, NULL, 0));
    ft_check_alive(&ft);
    ft_cleanup(&ft);
}

/* The sender of a flood dies: what it sent before is good, and then silence. */
static void killed_sender(ut_t *t)
{
    char      data[2000] = {0};
    ut_pack_t pack       = {data, sizeof(data)};
    uint64_t  sent;
    ft_t      ft;

    ft_init(&ft, t);
    if (t->rank == 1) {
        for (sent = 0;; ++sent) {
            pack.length = ut_random(t) % ucs_min(sizeof(data), t->main.attr.cap.am.max_bcopy);
            UT_POST(t, uct_ep_am_bcopy(t->ep[0], FT_AM, ut_pack, &pack, 0));
            if (sent == 3000) {
                raise(SIGKILL);
            }
        }
    }
    ft_wait_error(t, 1);
    CHECK(ft.received > 0);
    ft_check_dead(&ft);
    ft_check_alive(&ft);
    ft_cleanup(&ft);
}

typedef ucs_status_t (*ft_rma_func_t)(uct_ep_h ep, const uct_iov_t *iov, size_t iovcnt,
                                      uint64_t remote_addr, uct_rkey_t rkey,
                                      uct_completion_t *comp);

/* The target of puts, or of gets, dies: every operation ends, each once. */
static void killed_in_rma(ut_t *t)
{
    enum { OPS = 32 };
    static ut_comp_t comps[OPS];
    ft_rma_func_t    rma   = *(const int *)t->arg ? uct_ep_get_zcopy : uct_ep_put_zcopy;
    uct_iov_t        iov   = {.length = FT_MEMORY / 2, .count = 1};
    unsigned         ended = 0, count, i, posted[OPS] = {0};
    ssize_t          status = UCS_OK;
    ft_t             ft;

    ft_init(&ft, t);
    if (t->rank == 1) {
        ut_recv_word_still(t, 0);
        raise(SIGKILL);
    }
    iov.buffer = ft.mem.addr;
    iov.memh   = ft.mem.memh;
    for (i = 0; (i < OPS) && !UCS_STATUS_IS_ERR(status); ++i) {
        if (i == 2) {
            ut_send_word(t, 1, 0);
        }
        ut_comp_init(&comps[i], 1);
        status = UT_POST(
            t, rma(t->ep[1], &iov, 1, ft.remotes[1].addr, ft.remotes[1].key.rkey, &comps[i].super));
        posted[i] = (status == UCS_INPROGRESS);
        ended += (status != UCS_INPROGRESS);
    }
    count = i;
    ft_wait_error(t, 1);
    for (i = 0; i < count; ++i) {
        if (posted[i]) {
            UT_WAIT(t, comps[i].calls > 0);
            CHECK_EQ(comps[i].calls, 1);
            ++ended;
        }
    }
    CHECK_EQ(ended, count);
    ft_check_dead(&ft);
    ft_check_alive(&ft);
    ft_cleanup(&ft);
}

/* ---- what a handler may do ------------------------------------------------------------------- */

typedef struct {
    ut_t    *t;
    uct_ep_h extra[3];
    unsigned destroyed;
} ft_destroyer_t;

/* Destroy the endpoint that failed, and another one. */
static void ft_destroy_in_handler(void *arg, uct_ep_h ep)
{
    ft_destroyer_t *destroyer = arg;
    unsigned        i;

    for (i = 0; i < 3; ++i) {
        if (destroyer->extra[i] == ep) {
            destroyer->extra[i] = NULL;
            uct_ep_destroy(ep);
            ++destroyer->destroyed;
            return;
        }
    }
    CHECK(ep == destroyer->t->ep[1]);
}

static void killed_handler_destroys(ut_t *t)
{
    ft_destroyer_t destroyer = {.t = t};
    unsigned       i;
    ft_t           ft;

    ft_init(&ft, t);
    if (t->rank == 1) {
        ut_recv_word(t, 0);
        raise(SIGKILL);
    }
    t->main.on_error     = ft_destroy_in_handler;
    t->main.on_error_arg = &destroyer;
    for (i = 0; i < 3; ++i) {
        destroyer.extra[i] = ut_ep_create(&t->main, &t->addr[1]);
        POST_OK(t, uct_ep_am_short(destroyer.extra[i], FT_AM, 0, NULL, 0));
    }
    ut_send_word(t, 1, 0);
    ft_wait_error(t, 4);
    ut_progress_ms(t, 10);
    CHECK_EQ(t->main.errors, 4);
    CHECK_EQ(destroyer.destroyed, 3);
    ft_check_alive(&ft);
    ft_cleanup(&ft);
}

/* With nobody to handle it, the process ends, by a signal that mpirun notices. */
static void killed_unhandled(ut_t *t)
{
    const char *policy = t->arg;
    double      end;
    ft_t        ft;

    if (policy != NULL) {
        setenv("UCX_ANGARA_DEAD_PEER", policy, 1);
    }
    t->main.no_handler = 1;
    ft_init(&ft, t);
    if (t->rank == 1) {
        UT_WAIT(t, ft.received > 0);
        raise(SIGKILL);
    }
    POST_OK(t, uct_ep_am_short(t->ep[1], FT_AM, 0, NULL, 0));
    for (end = now_seconds() + FT_SECONDS / 2; now_seconds() < end;) {
        ut_progress(t);
        usleep(100);
    }
    /* still here: then the endpoint must at least say so */
    CHECK_ERR(uct_ep_am_short(t->ep[1], FT_AM, 0, NULL, 0));
    ft_check_alive(&ft);
    ft_cleanup(&ft);
}

/* ---- orderly ends ---------------------------------------------------------------------------- */

/* Peers come and go with endpoints open at the other side: nobody is alarmed. */
static void orderly_close(ut_t *t)
{
    unsigned   rounds = ut_rounds(50), round;
    ut_iface_t iface;
    ut_addr_t  addr;
    uct_ep_h   ep, back;
    uint64_t   sent = 0;
    ft_t       ft;

    setenv("ANGARA_PEER_CHECK", "5", 1);
    ft_init(&ft, t);
    for (round = 0; round < rounds; ++round) {
        if (t->rank == 1) {
            memset(&iface, 0, sizeof(iface));
            ut_iface_open(t, &iface);
            ep = ut_ep_create(&iface, &t->addr[0]);
            ut_send(t, 0, &iface.addr, sizeof(iface.addr));
            CHECK_OK(uct_iface_set_am_handler(iface.iface, FT_AM, ft_receive, &ft, 0));
            POST_OK(t, uct_ep_am_short(ep, FT_AM, 0, NULL, 0));
            ut_flush(t, &iface);
            ut_recv_word(t, 0);
            if (round % 2) {
                uct_ep_destroy(ep);
                ut_iface_close(&iface);
            } else {
                ut_flush(t, &iface);
                uct_ep_destroy(ep);
                ut_progress_ms(t, round % 4);
                ut_iface_close(&iface);
            }
            CHECK_EQ(iface.errors, 0);
        } else {
            ut_recv(t, 1, &addr, sizeof(addr));
            back = ut_ep_create(&t->main, &addr);
            ++sent;
            UT_WAIT(t, ft.received == sent);
            if (round % 3) {
                POST_OK(t, uct_ep_am_short(back, FT_AM, 0, NULL, 0));
                ut_flush(t, &t->main);
            }
            ut_send_word(t, 1, 0);
            ut_progress_ms(t, 12); /* longer than the check of peers */
            uct_ep_destroy(back);
        }
        CHECK_EQ(t->main.errors, 0);
    }
    ut_barrier(t);
    ut_progress_ms(t, 30);
    CHECK_EQ(t->main.errors, 0);
    ut_barrier(t);
    ft_cleanup(&ft);
}

/* A process that ends in order, without a word by socket, alarms nobody. */
static void orderly_exit(ut_t *t)
{
    ft_t ft;

    setenv("ANGARA_PEER_CHECK", "5", 1);
    ft_init(&ft, t);
    POST_OK(t, uct_ep_am_short(t->ep[1 - t->rank], FT_AM, 0, NULL, 0));
    UT_WAIT(t, ft.received == 1);
    ut_flush(t, &t->main);
    ut_barrier(t);
    if (t->rank == 0) {
        ut_progress_ms(t, 500); /* the other is long gone by then */
        CHECK_EQ(t->main.errors, 0);
    }
    ft_cleanup(&ft);
}

/* A new process takes the place of a dead one; the interface serves it. */
static void replacement(ut_t *t)
{
    uct_ep_h  ep;
    ut_addr_t addr;
    ft_t      ft;

    ft_init(&ft, t);
    if (t->rank == 1) {
        ut_recv_word(t, 0);
        raise(SIGKILL);
    }
    if (t->rank == 2) {
        ut_recv_word(t, 0); /* rank 1 is dead */
        uct_ep_destroy(t->ep[0]);
        uct_ep_destroy(t->ep[1]);
        uct_ep_destroy(t->ep[2]);
        ut_iface_close(&t->main);
        ut_iface_open(t, &t->main);
        t->ep[0] = ut_ep_create(&t->main, &t->addr[0]);
        t->ep[1] = t->ep[2] = NULL;
        ut_send(t, 0, &t->main.addr, sizeof(t->main.addr));
        POST_OK(t, uct_ep_am_short(t->ep[0], FT_AM, 0, NULL, 0));
        ut_flush(t, &t->main);
        ut_recv_word(t, 0);
        ft_cleanup(&ft);
        return;
    }
    POST_OK(t, uct_ep_am_short(t->ep[1], FT_AM, 0, NULL, 0));
    ut_send_word(t, 1, 0);
    ft_wait_error(t, 1);
    uct_ep_destroy(t->ep[1]);
    t->ep[1] = NULL;
    CHECK(ut_ep_try_create(&t->main, &t->addr[1], &ep) != UCS_OK); /* it stays dead */
    ut_send_word(t, 2, 0);
    ut_recv(t, 2, &addr, sizeof(addr));
    UT_WAIT(t, ft.received == 1);
    ep = ut_ep_create(&t->main, &addr);
    POST_OK(t, uct_ep_put_short(ep, "x", 1, ft.remotes[2].addr, ft.remotes[2].key.rkey));
    ut_flush(t, &t->main);
    uct_ep_destroy(ep);
    ut_progress_ms(t, 5);
    ut_send_word(t, 2, 0);
    CHECK_EQ(t->main.errors, 1);
    ft_cleanup(&ft);
}

/* ---- the tests ----------------------------------------------------------------------------- */

static const int ft_put = 0, ft_get = 1;

#define FT_KILL(_name, _nranks, _func, _arg)                    \
    static void _name(void **state)                             \
    {                                                           \
        (void)state;                                            \
        ut_run_victims(_nranks, _func, _arg, 1u << 1, SIGKILL); \
    }

#define FT_TEST(_name, _nranks, _func) \
    static void _name(void **state)    \
    {                                  \
        (void)state;                   \
        ut_run(_nranks, _func, NULL);  \
    }

FT_KILL(test_killed_idle, 2, killed_idle, NULL)
FT_KILL(test_killed_check, 2, killed_check, NULL)
FT_KILL(test_killed_in_flood, 2, killed_in_flood, NULL)
FT_KILL(test_killed_with_pending_error, 2, killed_with_pending, "error")
FT_KILL(test_killed_with_pending_ignore, 2, killed_with_pending, "ignore")
FT_KILL(test_killed_sender, 2, killed_sender, NULL)
FT_KILL(test_killed_in_put, 2, killed_in_rma, &ft_put)
FT_KILL(test_killed_in_get, 2, killed_in_rma, &ft_get)
FT_KILL(test_killed_handler_destroys, 2, killed_handler_destroys, NULL)
FT_KILL(test_killed_unhandled_error, 2, killed_unhandled, "error")
FT_KILL(test_killed_unhandled_ignore, 2, killed_unhandled, "ignore")
FT_KILL(test_replacement, 3, replacement, NULL)
FT_TEST(test_orderly_close, 2, orderly_close)
FT_TEST(test_orderly_exit, 2, orderly_exit)

/* The default: rank 1 aborts when rank 0 is gone. */
static void killed_abort(ut_t *t)
{
    ft_t ft;

    t->main.no_handler = 1;
    ft_init(&ft, t);
    POST_OK(t, uct_ep_am_short(t->ep[1 - t->rank], FT_AM, 0, NULL, 0));
    UT_WAIT(t, ft.received == 1);
    ut_flush(t, &t->main);
    if (t->rank == 0) {
        ut_recv_word(t, 1);
        _exit(0); /* without a good-bye: as if it had crashed */
    }
    ut_send_word(t, 0, 0);
    ut_progress_ms(t, (unsigned)(FT_SECONDS * 1000));
    rank_fail(__FILE__, __LINE__, "nothing happened");
}

static void test_killed_unhandled_abort(void **state)
{
    (void)state;
    ut_run_victims(2, killed_abort, NULL, 1u << 1, SIGABRT);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_idle),
        cmocka_unit_test(test_killed_check),
        cmocka_unit_test(test_unmapped),
        cmocka_unit_test(test_killed_in_flood),
        cmocka_unit_test(test_killed_with_pending_error),
        cmocka_unit_test(test_killed_with_pending_ignore),
        cmocka_unit_test(test_killed_sender),
        cmocka_unit_test(test_killed_in_put),
        cmocka_unit_test(test_killed_in_get),
        cmocka_unit_test(test_killed_handler_destroys),
        cmocka_unit_test(test_killed_unhandled_error),
        cmocka_unit_test(test_killed_unhandled_ignore),
        cmocka_unit_test(test_killed_unhandled_abort),
        cmocka_unit_test(test_replacement),
        cmocka_unit_test(test_orderly_close),
        cmocka_unit_test(test_orderly_exit),
    };

    return ut_main(argc, argv, "fault", tests, sizeof(tests) / sizeof(tests[0]));
}
