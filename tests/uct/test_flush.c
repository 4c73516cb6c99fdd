/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flush in detail: what it covers, messages included; how many markers it costs; several peers;
 * cancel; behind pending requests; where there is nothing to flush.
 */
#include "../common/gate.h"
#include "ut.h"
#include "ut_inside.h"

#define FL_AM     6
#define FL_MEMORY ((size_t)1 << 20)

typedef struct {
    ut_t       *t;
    ut_mem_t    mem;
    ut_remote_t remotes[RANK_MAX];
    uint64_t    received;
} fl_t;

static ucs_status_t fl_receive(void *arg, void *data, size_t length, unsigned flags)
{
    fl_t *fl = arg;

    (void)flags;
    CHECK_DATA(data, length, fl->received);
    ++fl->received;
    return UCS_OK;
}

static void fl_init(fl_t *fl, ut_t *t)
{
    memset(fl, 0, sizeof(*fl));
    ut_open(t);
    fl->t = t;
    ut_mem_init(t, &fl->mem, UT_MEM_PRIVATE, FL_MEMORY);
    memset(fl->mem.addr, 0, FL_MEMORY);
    ut_mem_exchange(t, &fl->mem, fl->remotes);
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, FL_AM, fl_receive, fl, 0));
    ut_barrier(t);
}

static void fl_cleanup(fl_t *fl)
{
    ut_t *t = fl->t;

    ut_flush(t, &t->main);
    ut_barrier(t);
    ut_remotes_release(t, fl->remotes);
    ut_mem_cleanup(t, &fl->mem);
    ut_close(t);
}

static void fl_put(fl_t *fl, unsigned rank, size_t offset, uint64_t value)
{
    POST_OK(fl->t, uct_ep_put_short(fl->t->ep[rank], &value, sizeof(value),
                                    fl->remotes[rank].addr + offset, fl->remotes[rank].key.rkey));
}

/* ---- messages ------------------------------------------------------------------------------ */

/*
 * A flush covers messages: when the target hears of it by the socket, they are in its memory, and a
 * little progress of its own delivers all of them.
 */
static void flush_covers_messages(ut_t *t)
{
    unsigned    rounds = ut_rounds(500), round, turns, i;
    uint64_t    sent   = 0, count;
    char        data[3000];
    ut_pack_t   pack = {data, 0};
    ut_inside_t inside;
    ut_comp_t   comp;
    fl_t        fl;

    fl_init(&fl, t);
    ut_inside(t->main.iface, &inside);
    for (round = 0; round < rounds; ++round) {
        if (t->rank == 0) {
            /* the target sleeps: all must fit into the ring */
            count = 1 + ut_random(t) % ucs_min(inside.slots / 16, (size_t)10);
            for (i = 0; i < count; ++i) {
                pack.length = ut_random(t) %
                              (i % 4 ? 60 : ucs_min(sizeof(data), t->main.attr.cap.am.max_bcopy));
                data_fill(data, pack.length, sent++);
                CHECK_EQ(UT_POST(t, uct_ep_am_bcopy(t->ep[1], FL_AM, ut_pack, &pack, 0)),
                         pack.length);
            }
            COMPLETE_OK(t, &comp, uct_ep_flush(t->ep[1], 0, &comp.super));
            ut_send_word(t, 1, sent);
            CHECK_EQ(ut_recv_word(t, 1), sent);
        } else {
            sent = (round == 0) ? ut_recv_word(t, 0) : ut_recv_word_still(t, 0);
            for (turns = 0; (turns < 2000) && (fl.received < sent); ++turns) {
                ut_progress(t);
            }
            CHECK_EQ(fl.received, sent);
            ut_send_word(t, 0, sent);
            ut_progress(t);
        }
    }
    fl_cleanup(&fl);
}

/* ---- cost ---------------------------------------------------------------------------------- */

static uint64_t fl_markers(const ut_t *t)
{
    ut_inside_t inside;

    ut_inside(t->main.iface, &inside);
    return inside.markers;
}

/* However often it is polled, a flush of the interface posts one marker per dirty peer at most. */
static void markers_counted(ut_t *t)
{
    unsigned rounds = ut_rounds(300), round, dirty, i;
    uint64_t before;
    fl_t     fl;

    fl_init(&fl, t);
    for (round = 0; (t->rank == 0) && (round < rounds); ++round) {
        ut_flush(t, &t->main);
        before = fl_markers(t);
        dirty  = round % (t->nranks + 1);
        for (i = 0; i < dirty; ++i) {
            fl_put(&fl, i, 0, round);
            fl_put(&fl, i, 8, round);
        }
        /* many polls without, and then with progress */
        for (i = 0; i < 50; ++i) {
            if (uct_iface_flush(t->main.iface, 0, NULL) == UCS_OK) {
                break;
            }
        }
        CHECK(fl_markers(t) <= before + dirty);
        ut_flush(t, &t->main);
        CHECK(fl_markers(t) <= before + dirty);
        /* the own PE needs none, perhaps; nor does what is performed in the call */
        CHECK(!rank_chaos() || (fl_markers(t) + 1 >= before + dirty));

        /* clean now: neither flush, nor fence, posts anything */
        before = fl_markers(t);
        CHECK_OK(uct_iface_flush(t->main.iface, 0, NULL));
        CHECK_OK(uct_ep_flush(t->ep[1], 0, NULL));
        CHECK_OK(uct_iface_fence(t->main.iface, 0));
        CHECK_OK(uct_ep_fence(t->ep[1], 0));
        ut_progress(t);
        CHECK_EQ(fl_markers(t), before);
    }
    fl_cleanup(&fl);
}

/*
 * What was performed in its call has arrived: a flush posts no marker and ends at once, and the
 * target sees the word without progress. What is queued the flush waits for.
 */
static void performed_in_call(ut_t *t)
{
    unsigned    rounds = ut_rounds(200), round;
    int         mapped = !rank_chaos() && !ut_env_is("ANGARA_SOFT_LOOPBACK", "n");
    uct_iov_t   iov    = {.length = FL_MEMORY, .count = 1};
    ut_remote_t remotes[RANK_MAX];
    ut_comp_t   comp;
    ut_mem_t    word, near;
    uint64_t    before;
    ssize_t     status;
    fl_t        fl;

    fl_init(&fl, t);
    ut_mem_init(t, &word, UT_MEM_ALLOC, sizeof(uint64_t));
    ut_mem_init(t, &near, UT_MEM_PRIVATE, FL_MEMORY);
    ut_mem_exchange(t, &word, remotes);
    iov.buffer = near.addr;
    iov.memh   = near.memh;
    for (round = 1; round <= rounds; ++round) {
        if (t->rank == 0) {
            before = fl_markers(t);
            POST_OK(t, uct_ep_put_short(t->ep[1], &round, sizeof(round), remotes[1].addr,
                                        remotes[1].key.rkey));
            if (mapped) {
                CHECK_OK(uct_ep_flush(t->ep[1], 0, NULL));
                CHECK_OK(uct_iface_flush(t->main.iface, 0, NULL));
                CHECK_EQ(fl_markers(t), before);
            } else {
                ut_flush(t, &t->main);
            }
            ut_send_word(t, 1, 0);
            ut_recv_word(t, 1);
            data_fill(near.addr, FL_MEMORY, round);
            status = UT_POST(t, uct_ep_put_zcopy(t->ep[1], &iov, 1, fl.remotes[1].addr,
                                                 fl.remotes[1].key.rkey, NULL));
            CHECK((status == UCS_OK) || (status == UCS_INPROGRESS));
            COMPLETE_OK(t, &comp, uct_ep_flush(t->ep[1], 0, &comp.super));
            ut_send_word(t, 1, 0);
            ut_recv_word(t, 1);
        } else {
            ut_recv_word_still(t, 0);
            CHECK_EQ(*(unsigned *)word.addr, round);
            ut_send_word(t, 0, 0);
            ut_recv_word(t, 0);
            CHECK_DATA(fl.mem.addr, FL_MEMORY, round);
            ut_send_word(t, 0, 0);
        }
    }
    ut_flush(t, &t->main);
    ut_barrier(t);
    ut_remotes_release(t, remotes);
    ut_mem_cleanup(t, &near);
    ut_mem_cleanup(t, &word);
    fl_cleanup(&fl);
}

/* ---- operations ---------------------------------------------------------------------------- */

enum { FL_PUTS = 4 };

typedef struct {
    ut_comp_t        comp;
    const ut_comp_t *puts;
    unsigned         posted; /* of these puts */
} fl_flush_t;

static unsigned fl_ended(const fl_flush_t *flush)
{
    unsigned ended = 0, i;

    for (i = 0; i < FL_PUTS; ++i) {
        ended += flush->puts[i].calls;
    }
    return ended;
}

static void fl_flush_called(uct_completion_t *self)
{
    fl_flush_t *flush = (fl_flush_t *)self;

    CHECK_EQ(fl_ended(flush), flush->posted);
    ++flush->comp.calls;
    flush->comp.status = self->status;
}

/* A flush ends behind the completions of what it covers, however these are found out. */
static void flush_ends_last(ut_t *t)
{
    unsigned   rounds = rank_chaos() ? 500 : ut_rounds(3000), round, i;
    ut_comp_t  puts[FL_PUTS];
    fl_flush_t flush;
    uct_iov_t  iov = {.length = 64, .count = 1};
    ut_mem_t   near;
    ssize_t    status;
    fl_t       fl;

    fl_init(&fl, t);
    ut_mem_init(t, &near, UT_MEM_PRIVATE, 4096);
    flush.puts = puts;
    for (round = 0; (t->rank == 0) && (round < rounds); ++round) {
        flush.posted = 0;
        ut_comp_init(&flush.comp, 1);
        flush.comp.super.func = fl_flush_called;
        for (i = 0; i < FL_PUTS; ++i) {
            ut_comp_init(&puts[i], 1);
            iov.buffer = near.addr;
            iov.memh   = near.memh;
            status     = UT_POST(t, uct_ep_put_zcopy(t->ep[1], &iov, 1, fl.remotes[1].addr,
                                                     fl.remotes[1].key.rkey, &puts[i].super));
            CHECK((status == UCS_OK) || (status == UCS_INPROGRESS));
            flush.posted += (status == UCS_INPROGRESS);
        }
        switch (round / 2 % 4) {
        case 0:
            status = UT_POST(t, uct_ep_flush(t->ep[1], 0, &flush.comp.super));
            break;
        case 1:
            status = UT_POST(t, uct_iface_flush(t->main.iface, 0, &flush.comp.super));
            break;
        case 2:
            while ((status = uct_ep_flush(t->ep[1], 0, NULL)) != UCS_OK) {
                ut_progress(t);
            }
            break;
        default:
            ut_flush(t, &t->main);
            status = UCS_OK;
        }
        if (round % 2) {
            ut_spin_ns(ut_random(t) % 500000); /* so that several things arrive in one turn */
        }
        CHECK_OK(ut_comp_wait(t, (ucs_status_t)status, &flush.comp));
        CHECK_EQ(fl_ended(&flush), flush.posted);
    }
    ut_barrier(t);
    ut_mem_cleanup(t, &near);
    fl_cleanup(&fl);
}

/*
 * Operations, a fence and a flush that begin while other peers have all marker slots, on a peer
 * that has had one of high values: the slot that comes free counts from 0, and all of them end with
 * it. What is performed in the call, and isn't in a batch, needs none.
 */
static void slots_run_out(ut_t *t)
{
    enum { EARLIER = 100, GETS = 4 };
    static ut_comp_t gets[GETS];
    ucs_status_t     posted[GETS];
    uct_iov_t        iov = {.length = 64, .count = 1};
    ut_comp_t        flush;
    ut_mem_t         near;
    unsigned         turns, i, waiting = 0;
    uint64_t         word;
    ssize_t          status;
    fl_t             fl;

    fl_init(&fl, t);
    data_fill(fl.mem.addr, 4096, 7);
    ut_mem_init(t, &near, UT_MEM_PRIVATE, 4096);
    ut_barrier(t);
    if (t->rank == 0) {
        for (i = 0; i < EARLIER; ++i) {
            POST_OK(t, uct_ep_get_short(t->ep[1], &word, sizeof(word), fl.remotes[1].addr,
                                        fl.remotes[1].key.rkey));
        }
        ut_flush(t, &t->main);
        ut_slots_take(t->ep[1]);
        status = uct_ep_get_short(t->ep[1], &word, sizeof(word), fl.remotes[1].addr,
                                  fl.remotes[1].key.rkey);
        /* it would wait in the call, if it isn't answered at once */
        CHECK((status == UCS_ERR_NO_RESOURCE) || (status == UCS_OK));
        for (i = 0; i < GETS; ++i) {
            ut_comp_init(&gets[i], 1);
            iov.buffer = near.addr + i * iov.length;
            iov.memh   = near.memh;
            memset(iov.buffer, 0xee, iov.length);
            posted[i] = uct_ep_get_zcopy(t->ep[1], &iov, 1, fl.remotes[1].addr,
                                         fl.remotes[1].key.rkey, &gets[i].super);
            CHECK((posted[i] == UCS_INPROGRESS) || (posted[i] == UCS_OK));
            waiting += (posted[i] == UCS_INPROGRESS);
            if (posted[i] == UCS_OK) {
                gets[i].calls  = 1;
                gets[i].status = UCS_OK;
            }
        }
        CHECK(!rank_chaos() || (waiting == GETS));
        CHECK_OK(uct_ep_fence(t->ep[1], 0));
        CHECK_STATUS(
            uct_ep_put_short(t->ep[1], "x", 1, fl.remotes[1].addr + 4096, fl.remotes[1].key.rkey),
            (waiting > 0) ? UCS_ERR_NO_RESOURCE : UCS_OK); /* behind the fence */
        for (turns = 0; turns < 200; ++turns) {
            ut_progress(t);
        }
        for (i = 0; i < GETS; ++i) {
            /* nothing can tell that they have ended */
            CHECK_EQ(gets[i].calls, posted[i] == UCS_OK);
        }
        ut_slots_give_one(t->ep[1]);
        /* the slot is taken by whatever comes first */
        if (*(const int *)t->arg) {
            ut_comp_init(&flush, 1);
            status = UT_POST(t, uct_ep_flush(t->ep[1], 0, &flush.super));
            CHECK_OK(ut_comp_wait(t, (ucs_status_t)status, &flush));
        } else {
            POST_OK(t, uct_ep_put_short(t->ep[1], "x", 1, fl.remotes[1].addr + 4096,
                                        fl.remotes[1].key.rkey));
        }
        for (i = 0; i < GETS; ++i) {
            UT_WAIT(t, gets[i].calls > 0);
            CHECK_EQ(gets[i].calls, 1);
            CHECK_OK(gets[i].status);
            CHECK_DATA(near.addr + i * iov.length, iov.length, 7);
        }
    }
    ut_barrier(t);
    ut_mem_cleanup(t, &near);
    fl_cleanup(&fl);
}

/* ---- several peers -------------------------------------------------------------------------- */

static void flush_all_peers(ut_t *t)
{
    unsigned           rounds = ut_rounds(1000), round, i;
    volatile uint64_t *words;
    ut_comp_t          comp;
    ssize_t            status;
    fl_t               fl;

    fl_init(&fl, t);
    words = (volatile uint64_t *)(void *)fl.mem.addr;
    for (round = 1; round <= rounds; ++round) {
        for (i = 0; i < t->nranks; ++i) {
            fl_put(&fl, i, t->rank * 8, round);
        }
        ut_comp_init(&comp, 1);
        status = UT_POST(t, uct_iface_flush(t->main.iface, 0, &comp.super));
        CHECK_OK(ut_comp_wait(t, (ucs_status_t)status, &comp));
        ut_barrier(t);
        for (i = 0; i < t->nranks; ++i) {
            CHECK_EQ(words[i], round);
        }
        ut_barrier(t);
    }
    fl_cleanup(&fl);
}

/* Several flushes of the interface under way at once, with operations in between. */
static void flush_nested(ut_t *t)
{
    enum { DEPTH = 8 };
    static ut_comp_t comps[DEPTH];
    unsigned         rounds = ut_rounds(300), round, i;
    ssize_t          status;
    fl_t             fl;

    fl_init(&fl, t);
    for (round = 0; round < rounds; ++round) {
        for (i = 0; i < DEPTH; ++i) {
            fl_put(&fl, i % t->nranks, t->rank * 8, i);
            ut_comp_init(&comps[i], 1);
            status = (i % 2) ? UT_POST(t, uct_iface_flush(t->main.iface, 0, &comps[i].super)) :
                               UT_POST(t, uct_ep_flush(t->ep[i % t->nranks], 0, &comps[i].super));
            if (status == UCS_OK) {
                comps[i].calls  = 1;
                comps[i].status = UCS_OK;
            } else {
                CHECK_STATUS(status, UCS_INPROGRESS);
            }
        }
        for (i = 0; i < DEPTH; ++i) {
            UT_WAIT(t, comps[i].calls > 0);
        }
        ut_progress(t);
        for (i = 0; i < DEPTH; ++i) {
            CHECK_EQ(comps[i].calls, 1);
            CHECK_OK(comps[i].status);
        }
    }
    fl_cleanup(&fl);
}

/* ---- cancel -------------------------------------------------------------------------------- */

/* After a cancelled flush nothing lands any more: the target takes a picture and compares. */
static void flush_cancel(ut_t *t)
{
    enum { LENGTH = 200000 };
    unsigned  rounds = ut_rounds(200), round;
    char     *source, *picture = malloc(FL_MEMORY);
    uct_iov_t iov = {.length = LENGTH, .count = 1};
    ut_comp_t put, flush;
    ssize_t   status;
    ut_mem_t  near;
    fl_t      fl;

    fl_init(&fl, t);
    ut_mem_init(t, &near, UT_MEM_PRIVATE, FL_MEMORY);
    source = near.addr;
    for (round = 0; round < rounds; ++round) {
        if (t->rank == 0) {
            data_fill(source, LENGTH, round);
            iov.buffer = source;
            iov.memh   = near.memh;
            ut_comp_init(&put, 1);
            ut_comp_init(&flush, 1);
            status = UT_POST(t, uct_ep_put_zcopy(t->ep[1], &iov, 1, fl.remotes[1].addr,
                                                 fl.remotes[1].key.rkey, &put.super));
            CHECK((status == UCS_OK) || (status == UCS_INPROGRESS));
            put.calls += (status == UCS_OK);
            status = UT_POST(t, uct_ep_flush(t->ep[1], UCT_FLUSH_FLAG_CANCEL, &flush.super));
            ut_comp_wait(t, (ucs_status_t)status, &flush);
            CHECK_EQ(put.calls, 1); /* what it cancels has ended, one way or the other */
            memset(source, 0xee, LENGTH);
            ut_send_word(t, 1, round);
            ut_recv_word(t, 1);
        } else {
            ut_recv_word_still(t, 0);
            memcpy(picture, fl.mem.addr, FL_MEMORY);
            sleep_ms(rank_chaos() ? 5 : 0);
            CHECK(memcmp(picture, fl.mem.addr, FL_MEMORY) == 0);
            ut_send_word(t, 0, round);
        }
    }
    free(picture);
    ut_mem_cleanup(t, &near);
    fl_cleanup(&fl);
}

/* ---- pending requests ----------------------------------------------------------------------- */

typedef struct {
    uct_pending_req_t super;
    ut_t             *t;
    unsigned          refuse;
    int               done;
} fl_req_t;

static ucs_status_t fl_dispatch(uct_pending_req_t *self)
{
    fl_req_t *req = (fl_req_t *)self;

    if (req->refuse > 0) {
        --req->refuse;
        return UCS_ERR_NO_RESOURCE;
    }
    req->done = 1;
    return UCS_OK;
}

/* A flush doesn't overtake what is queued: it is refused, or completes behind it. */
static void flush_behind_pending(ut_t *t)
{
    unsigned  rounds = ut_rounds(500), round;
    fl_req_t  req    = {.t = t, .super.func = fl_dispatch};
    ut_comp_t comp;
    ssize_t   status;
    fl_t      fl;

    fl_init(&fl, t);
    for (round = 0; (t->rank == 0) && (round < rounds); ++round) {
        fl_put(&fl, 1, 0, round);
        req.refuse = 1 + round % 5;
        req.done   = 0;
        if (uct_ep_pending_add(t->ep[1], &req.super, 0) != UCS_OK) {
            continue;
        }
        ut_comp_init(&comp, 1);
        if (round % 2) {
            status = UT_POST(t, uct_ep_flush(t->ep[1], 0, &comp.super));
        } else {
            status = UT_POST(t, uct_iface_flush(t->main.iface, 0, &comp.super));
        }
        CHECK_OK(ut_comp_wait(t, (ucs_status_t)status, &comp));
        CHECK(req.done);
    }
    fl_cleanup(&fl);
}

/* ---- the tests ----------------------------------------------------------------------------- */

/* ---- cancel, while the target stands in the transfer ------------------------------------------
 */

/* What both ranks see. */
static struct fl_stage {
    int has_halted, goes_on, gives_up;
} * fl_stage;

static void fl_halted(gate_t *gate, void *arg)
{
    (void)arg;
    rank_set(&fl_stage->has_halted);
    sleep_ms(30);
    rank_set(&fl_stage->goes_on);
    gate_open(gate);
}

/*
 * Both processes copy a long get. The target, which writes the initiator's memory, halts in its
 * part: a flush that cancels waits for that, too. Nothing lands there after it.
 */
static void cancel_halted(ut_t *t)
{
    enum { LENGTH = 4 << 20 };
    static const char skipped[] = "the target takes no part: it shares its processor, perhaps";
    double            end;
    uct_iov_t         iov = {.length = LENGTH, .count = 1};
    ut_remote_t       remotes[RANK_MAX];
    ut_comp_t         get, flush;
    ut_mem_t          far, near;
    gate_t            gate;
    fl_t              fl;

    if (rank_chaos() || ut_env_is("ANGARA_SOFT_LOOPBACK", "n") ||
        ut_env_is("ANGARA_SOFT_CMA", "n") || !gate_is_allowed()) {
        rank_skip("one process copies, or userfaultfd isn't allowed");
    }
    fl_init(&fl, t);
    ut_mem_init(t, &far, UT_MEM_PRIVATE, LENGTH);
    ut_mem_init(t, &near, UT_MEM_PRIVATE, LENGTH);
    ut_mem_exchange(t, &far, remotes);
    memset(near.addr, 0, LENGTH);
    memset(far.addr, 1, LENGTH);
    if (t->rank == 1) {
        gate_init(&gate, (char *)far.addr + LENGTH - GATE_PAGE, fl_halted, NULL);
    }
    ut_barrier(t);
    if (t->rank == 0) {
        iov.buffer = near.addr;
        iov.memh   = near.memh;
        ut_comp_init(&get, 1);
        ut_comp_init(&flush, 1);
        CHECK_STATUS(UT_POST(t, uct_ep_get_zcopy(t->ep[1], &iov, 1, remotes[1].addr,
                                                 remotes[1].key.rkey, &get.super)),
                     UCS_INPROGRESS);
        ut_progress(t);
        for (end = now_seconds() + 3 * rank_slow(); !rank_is_set(&fl_stage->has_halted);) {
            if (now_seconds() > end) {
                rank_set(&fl_stage->gives_up);
                rank_skip(skipped);
            }
        }
        CHECK_STATUS(uct_ep_flush(t->ep[1], UCT_FLUSH_FLAG_CANCEL, &flush.super), UCS_INPROGRESS);
        ut_comp_wait(t, UCS_INPROGRESS, &flush);
        CHECK(rank_is_set(&fl_stage->goes_on));
        CHECK_EQ(get.calls, 1);
        memset(near.addr, 0xee, LENGTH);
        sleep_ms(5);
        for (size_t i = 0; i < LENGTH; ++i) {
            CHECK(((uint8_t *)near.addr)[i] == 0xee);
        }
    } else {
        UT_WAIT(t, rank_is_set(&fl_stage->goes_on) || rank_is_set(&fl_stage->gives_up));
        if (!rank_is_set(&fl_stage->goes_on)) {
            rank_skip(skipped);
        }
        gate_cleanup(&gate);
    }
    ut_barrier(t);
    ut_remotes_release(t, remotes);
    ut_mem_cleanup(t, &near);
    ut_mem_cleanup(t, &far);
    fl_cleanup(&fl);
}

#define FL_TEST(_name, _nranks, _func) \
    static void _name(void **state)    \
    {                                  \
        (void)state;                   \
        ut_run(_nranks, _func, NULL);  \
    }

FL_TEST(test_flush_covers_messages, 2, flush_covers_messages)
FL_TEST(test_markers_counted, 3, markers_counted)
FL_TEST(test_performed_in_call, 2, performed_in_call)
static const int fl_flush_first = 1, fl_put_first = 0;

static void test_slots_run_out_flush(void **state)
{
    (void)state;
    ut_run(2, slots_run_out, &fl_flush_first);
}

static void test_slots_run_out_put(void **state)
{
    (void)state;
    ut_run(2, slots_run_out, &fl_put_first);
}

FL_TEST(test_flush_ends_last, 2, flush_ends_last)
FL_TEST(test_flush_all_peers, 3, flush_all_peers)
FL_TEST(test_flush_nested, 2, flush_nested)
FL_TEST(test_flush_cancel, 2, flush_cancel)
FL_TEST(test_flush_behind_pending, 2, flush_behind_pending)
FL_TEST(test_cancel_halted, 2, cancel_halted)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flush_covers_messages), cmocka_unit_test(test_markers_counted),
        cmocka_unit_test(test_performed_in_call),     cmocka_unit_test(test_slots_run_out_flush),
        cmocka_unit_test(test_slots_run_out_put),     cmocka_unit_test(test_flush_ends_last),
        cmocka_unit_test(test_flush_all_peers),       cmocka_unit_test(test_flush_nested),
        cmocka_unit_test(test_flush_cancel),          cmocka_unit_test(test_flush_behind_pending),
        cmocka_unit_test(test_cancel_halted),
    };

    fl_stage = rank_share(sizeof(*fl_stage));
    if (fl_stage == NULL) {
        return 1;
    }
    return ut_main(argc, argv, "flush", tests, sizeof(tests) / sizeof(tests[0]));
}
