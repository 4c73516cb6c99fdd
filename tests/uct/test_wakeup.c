/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleeping on the event descriptor: what arrived before arming is told by arming, what arrives
 * after it makes the descriptor readable; nothing falls in between. A lost wake-up shows as a sleep
 * that ends by its time-out with a message there.
 */
#include "ut.h"

#include <poll.h>

#define WU_AM       9
#define WU_PATIENCE (5000 * test_slow()) /* ms of sleep that count as a lost wake-up */

typedef struct {
    ut_t    *t;
    int      fd;
    uint64_t received;
    uint64_t slept; /* times that the descriptor was really waited for */
} wu_t;

static ucs_status_t wu_receive(void *arg, void *data, size_t length, unsigned flags)
{
    wu_t    *wu = arg;
    uint64_t header;

    (void)flags;
    CHECK_EQ(length, sizeof(header));
    memcpy(&header, data, sizeof(header));
    CHECK_EQ(header, wu->received);
    ++wu->received;
    return UCS_OK;
}

static void wu_init(wu_t *wu, ut_t *t)
{
    memset(wu, 0, sizeof(*wu));
    ut_open(t);
    wu->t = t;
    CHECK(t->main.attr.cap.event_flags & UCT_IFACE_FLAG_EVENT_FD);
    CHECK(t->main.attr.cap.event_flags & UCT_IFACE_FLAG_EVENT_RECV);
    CHECK(t->main.attr.cap.event_flags & UCT_IFACE_FLAG_EVENT_SEND_COMP);
    CHECK_OK(uct_iface_event_fd_get(t->main.iface, &wu->fd));
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, WU_AM, wu_receive, wu, 0));
    ut_barrier(t);
}

/* The same, with zeroed private memory that the others know. */
static void wu_init_memory(wu_t *wu, ut_t *t, ut_mem_t *mem, ut_remote_t *remotes)
{
    wu_init(wu, t);
    ut_mem_init(t, mem, UT_MEM_PRIVATE, 4096);
    memset(mem->addr, 0, mem->length);
    ut_mem_exchange(t, mem, remotes);
    ut_barrier(t);
}

static int wu_readable(const wu_t *wu, int ms)
{
    struct pollfd pfd = {.fd = wu->fd, .events = POLLIN};

    return poll(&pfd, 1, ms) > 0;
}

/* Sleep once, as UCX's users do: progress until idle, arm, wait. */
static void wu_sleep(wu_t *wu, unsigned events)
{
    ucs_status_t status;

    if (uct_worker_progress(wu->t->worker) > 0) {
        return;
    }
    if (ut_random(wu->t) % 4 == 0) {
        ut_spin_ns(ut_random(wu->t) % 8000); /* what comes now, only arming can tell of */
    }
    status = uct_iface_event_arm(wu->t->main.iface, events);
    if (status == UCS_ERR_BUSY) {
        return;
    }
    CHECK_OK(status);
    ++wu->slept;
    if (!wu_readable(wu, WU_PATIENCE)) {
        uint64_t before = wu->received;

        ut_progress_ms(wu->t, 10);
        rank_fail(__FILE__, __LINE__, "slept for %d ms, %s", WU_PATIENCE,
                  (wu->received > before) ? "with a message there: a lost wake-up" :
                                            "and nothing came");
    }
}

static void wu_send(ut_t *t, unsigned rank, uint64_t number)
{
    POST_OK(t, uct_ep_am_short(t->ep[rank], WU_AM, number, NULL, 0));
}

/* ---- single steps -------------------------------------------------------------------------- */

/* Arm until it isn't busy; first contact leaves some work behind. */
static void wu_arm(wu_t *wu, unsigned events)
{
    ut_timer_t   timer = {0, 0};
    ucs_status_t status;

    while ((status = uct_iface_event_arm(wu->t->main.iface, events)) == UCS_ERR_BUSY) {
        ut_relax(wu->t, &timer, __FILE__, __LINE__, "arming");
    }
    CHECK_OK(status);
}

static void steps_rank1(wu_t *wu)
{
    ut_t *t = wu->t;

    UT_WAIT(t, wu->received == 1); /* the ring is there */
    ut_progress_ms(t, 20);

    /* idle: armed, and silent */
    wu_arm(wu, UCT_EVENT_RECV);
    CHECK(!wu_readable(wu, 50));

    /* armed, then a message */
    ut_send_word(t, 0, 1);
    CHECK(wu_readable(wu, WU_PATIENCE));
    CHECK_EQ(wu->received, 1); /* not without progress */
    UT_WAIT(t, wu->received == 2);

    /* a message, then arming tells of it */
    ut_send_word(t, 0, 2);
    CHECK_EQ(ut_recv_word_still(t, 0), 2);
    CHECK_STATUS(uct_iface_event_arm(t->main.iface, UCT_EVENT_RECV), UCS_ERR_BUSY);
    UT_WAIT(t, wu->received == 3);

    /* armed twice is armed; progress in between disarms without harm */
    wu_arm(wu, UCT_EVENT_RECV);
    wu_arm(wu, UCT_EVENT_RECV | UCT_EVENT_SEND_COMP);
    ut_progress_ms(t, 5);
    wu_arm(wu, UCT_EVENT_RECV | UCT_EVENT_RECV_SIG);
    CHECK(!wu_readable(wu, 20));
    ut_send_word(t, 0, 3);
    CHECK(wu_readable(wu, WU_PATIENCE));
    UT_WAIT(t, wu->received == 4);
}

static void steps(ut_t *t)
{
    uint64_t number;
    wu_t     wu;

    wu_init(&wu, t);
    if (t->rank == 0) {
        wu_send(t, 1, 0);
        for (number = 1; number <= 3; ++number) {
            CHECK_EQ(ut_recv_word(t, 1), number);
            wu_send(t, 1, number);
            ut_flush(t, &t->main);
            if (number == 2) {
                ut_send_word(t, 1, number); /* it lies there now */
            }
        }
    } else {
        steps_rank1(&wu);
    }
    ut_barrier(t);
    ut_close(t);
}

/* ---- the race ------------------------------------------------------------------------------ */

/*
 * Both ends sleep between messages, and wait for random short times, so that the message comes
 * before, while, and after the other arms.
 */
static void race(ut_t *t)
{
    uint64_t rounds = rank_chaos() ? 1000 : 10000, i;
    wu_t     wu;

    wu_init(&wu, t);
    for (i = 0; i < rounds; ++i) {
        if (t->rank == 0) {
            wu_send(t, 1, i);
        }
        while (wu.received <= i) {
            if (ut_random(t) % 4 == 0) {
                ut_spin_ns(ut_random(t) % 4000);
            }
            wu_sleep(&wu, UCT_EVENT_RECV | UCT_EVENT_SEND_COMP);
        }
        if (t->rank == 1) {
            if (ut_random(t) % 2 == 0) {
                ut_spin_ns(ut_random(t) % 20000);
            }
            wu_send(t, 0, i);
        }
    }
    CHECK(wu.slept > rounds / 20); /* else nothing was tested */
    ut_barrier(t);
    ut_close(t);
}

/* Three against one: two that send at any time, one that sleeps. */
typedef struct {
    wu_t     wu;
    uint64_t total;
} wu_many_t;

static ucs_status_t wu_receive_any(void *arg, void *data, size_t length, unsigned flags)
{
    wu_many_t *many = arg;

    (void)data;
    (void)length;
    (void)flags;
    ++many->total;
    return UCS_OK;
}

static void race_many(ut_t *t)
{
    uint64_t  count = ut_rounds(5000), i;
    wu_many_t many;

    memset(&many, 0, sizeof(many));
    wu_init(&many.wu, t);
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, WU_AM, wu_receive_any, &many, 0));
    ut_barrier(t);
    if (t->rank == 0) {
        while (many.total < count * (t->nranks - 1)) {
            wu_sleep(&many.wu, UCT_EVENT_RECV);
        }
    } else {
        for (i = 0; i < count; ++i) {
            wu_send(t, 0, i);
            ut_spin_ns(ut_random(t) % 30000);
        }
    }
    ut_barrier(t);
    ut_close(t);
}

/*
 * More senders than rings that are polled directly, each an interface of rank 1. One message at a
 * time: nothing else wakes who sleeps. Its ready word, which wakes nobody, may come after it.
 */
static void race_crowd(ut_t *t)
{
    enum { SENDERS = 8 };
    static ut_iface_t ifaces[SENDERS];
    uct_ep_h          eps[SENDERS];
    unsigned          rounds = rank_chaos() ? 1000 : 10000, i, from;
    wu_many_t         many;

    memset(&many, 0, sizeof(many));
    wu_init(&many.wu, t);
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, WU_AM, wu_receive_any, &many, 0));
    ut_barrier(t);
    for (i = 0; (t->rank == 1) && (i < SENDERS); ++i) {
        ut_iface_open(t, &ifaces[i]);
        eps[i] = ut_ep_create(&ifaces[i], &t->addr[0]);
        POST_OK(t, uct_ep_am_short(eps[i], WU_AM, i, NULL, 0));
        ut_flush(t, &ifaces[i]);
    }
    if (t->rank == 0) {
        UT_WAIT(t, many.total == SENDERS);
    }
    ut_barrier(t);
    for (i = 1; i <= rounds; ++i) {
        if (t->rank == 0) {
            while (many.total < SENDERS + i) {
                wu_sleep(&many.wu, UCT_EVENT_RECV);
            }
            ut_send_word(t, 1, i);
        } else {
            from = (unsigned)(ut_random(t) % SENDERS);
            POST_OK(t, uct_ep_am_short(eps[from], WU_AM, i, NULL, 0));
            CHECK_EQ(ut_recv_word(t, 0), i);
        }
    }
    for (i = 0; (t->rank == 1) && (i < SENDERS); ++i) {
        ut_flush(t, &ifaces[i]);
        uct_ep_destroy(eps[i]);
        ut_iface_close(&ifaces[i]);
    }
    ut_barrier(t);
    ut_close(t);
}

/* ---- completions of sends ------------------------------------------------------------------- */

/* Whoever sleeps for a completion wakes when it is there. */
static void send_completion(ut_t *t)
{
    enum { LENGTH = 50000 };
    unsigned    rounds = ut_rounds(2000), i;
    uct_iov_t   iov    = {.length = LENGTH, .count = 1};
    ut_remote_t remotes[RANK_MAX];
    ut_mem_t    mem;
    ut_comp_t   comp;
    ssize_t     status;
    wu_t        wu;

    wu_init(&wu, t);
    ut_mem_init(t, &mem, UT_MEM_PRIVATE, 2 * LENGTH);
    ut_mem_exchange(t, &mem, remotes);
    iov.buffer = mem.addr + LENGTH * t->rank; /* the other half than what the peer writes to */
    iov.memh   = mem.memh;
    for (i = 0; i < rounds; ++i) {
        ut_comp_init(&comp, 1);
        if (i % 2) {
            status = UT_POST(t, uct_ep_put_zcopy(t->ep[1 - t->rank], &iov, 1,
                                                 remotes[1 - t->rank].addr + LENGTH * t->rank,
                                                 remotes[1 - t->rank].key.rkey, &comp.super));
        } else {
            status = UT_POST(t, uct_ep_get_zcopy(t->ep[1 - t->rank], &iov, 1,
                                                 remotes[1 - t->rank].addr + LENGTH * t->rank,
                                                 remotes[1 - t->rank].key.rkey, &comp.super));
        }
        while ((status == UCS_INPROGRESS) && (comp.calls == 0)) {
            wu_sleep(&wu, UCT_EVENT_SEND_COMP | UCT_EVENT_RECV);
        }
    }
    ut_flush(t, &t->main);
    ut_barrier(t);
    ut_remotes_release(t, remotes);
    ut_mem_cleanup(t, &mem);
    ut_close(t);
}

/* ---- room in a ring ------------------------------------------------------------------------- */

typedef struct {
    uct_pending_req_t super;
    ut_t             *t;
    uint64_t          next;
    uint64_t          count;
    int               queued;
} wu_stream_t;

static ucs_status_t wu_stream_run(wu_stream_t *stream)
{
    ucs_status_t status;

    while (stream->next < stream->count) {
        status = uct_ep_am_short(stream->t->ep[1], WU_AM, stream->next, NULL, 0);
        if (status != UCS_OK) {
            return status;
        }
        ++stream->next;
    }
    return UCS_OK;
}

static ucs_status_t wu_stream_dispatch(uct_pending_req_t *self)
{
    wu_stream_t *stream = (wu_stream_t *)self;
    ucs_status_t status = wu_stream_run(stream);

    stream->queued = (status != UCS_OK);
    return status;
}

/* A sender whose requests wait for room sleeps as well, and wakes when there is some. */
static void room(ut_t *t)
{
    wu_stream_t stream = {.t = t, .count = ut_rounds(50000)};
    wu_t        wu;

    wu_init(&wu, t);
    stream.super.func = wu_stream_dispatch;
    if (t->rank == 0) {
        while ((stream.next < stream.count) || stream.queued) {
            if (!stream.queued && (wu_stream_run(&stream) == UCS_ERR_NO_RESOURCE)) {
                stream.queued = (uct_ep_pending_add(t->ep[1], &stream.super, 0) == UCS_OK);
            }
            if (stream.queued) {
                wu_sleep(&wu, UCT_EVENT_SEND_COMP | UCT_EVENT_RECV);
            }
        }
        ut_send_word(t, 1, stream.next);
    } else {
        while (wu.received < stream.count) {
            if (ut_random(t) % 8 == 0) {
                ut_spin_ns(20000);
            }
            wu_sleep(&wu, UCT_EVENT_RECV);
        }
        CHECK_EQ(ut_recv_word(t, 0), wu.received);
    }
    ut_barrier(t);
    ut_close(t);
}

/*
 * Puts without completion: what the library has queued of them, because the peer's helper does them
 * one after another, goes on although their initiator sleeps, whatever it has armed for.
 */
static void puts_go_on(ut_t *t)
{
    enum { PUTS = 6 };
    unsigned           rounds = ut_rounds(300), round, i;
    volatile uint64_t *words;
    struct pollfd      pfd[2];
    ut_remote_t        remotes[RANK_MAX];
    ut_mem_t           mem;
    uint64_t           value;
    ucs_status_t       status;
    wu_t               wu;

    wu_init_memory(&wu, t, &mem, remotes);
    words  = (volatile uint64_t *)(void *)mem.addr;
    pfd[0] = (struct pollfd){.fd = wu.fd, .events = POLLIN};
    pfd[1] = (struct pollfd){.fd = t->fd[1 - t->rank], .events = POLLIN};
    for (round = 1; round <= rounds; ++round) {
        if (t->rank == 1) {
            for (i = 0; i < PUTS; ++i) {
                UT_WAIT(t, words[i] == round);
            }
            ut_send_word(t, 0, round);
            CHECK_EQ(ut_recv_word(t, 0), round);
            continue;
        }
        value = round;
        for (i = 0; i < PUTS; ++i) {
            POST_OK(t, uct_ep_put_short(t->ep[1], &value, sizeof(value), remotes[1].addr + i * 8,
                                        remotes[1].key.rkey));
        }
        for (pfd[1].revents = 0; !pfd[1].revents;) {
            status = uct_iface_event_arm(t->main.iface,
                                         (round % 2) ? UCT_EVENT_SEND_COMP : UCT_EVENT_RECV);
            if (status == UCS_OK) {
                CHECK(poll(pfd, 2, WU_PATIENCE) > 0); /* else it sleeps for ever */
            } else {
                CHECK_STATUS(status, UCS_ERR_BUSY);
            }
            ut_progress(t);
        }
        CHECK_EQ(ut_recv_word(t, 1), round);
        ut_send_word(t, 1, round);
    }
    ut_barrier(t);
    ut_flush(t, &t->main);
    ut_barrier(t);
    ut_remotes_release(t, remotes);
    ut_mem_cleanup(t, &mem);
    ut_close(t);
}

/* ---- progress that is off ------------------------------------------------------------------ */

#define OFF_ADDS 100u

/* As UCP does with an interface that it doesn't use yet. */
static void off_arm(uct_iface_h iface)
{
    ucs_status_t status;

    do {
        uct_iface_progress(iface);
        status = uct_iface_event_arm(iface, UCT_EVENT_RECV | UCT_EVENT_SEND_COMP);
    } while (status == UCS_ERR_BUSY);
    CHECK_OK(status);
}

/* One that is closed so leaves nothing with the worker; nor does progress that comes and goes. */
static void off_is_closed(ut_t *t)
{
    static ut_iface_t other;

    ut_iface_open(t, &other);
    uct_iface_progress_disable(other.iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    off_arm(other.iface);
    uct_worker_progress(t->worker);
    uct_iface_progress_disable(other.iface, UCT_PROGRESS_SEND);
    uct_worker_progress(t->worker);
    uct_iface_progress_enable(other.iface, UCT_PROGRESS_SEND | UCT_PROGRESS_THREAD_SAFE);
    uct_worker_progress(t->worker);
    uct_iface_progress_disable(other.iface, UCT_PROGRESS_SEND);
    off_arm(other.iface);
    uct_worker_progress(t->worker);
    ut_iface_close(&other);
    ut_progress_ms(t, 5);
}

/*
 * Rank 1's turns of the worker, until rank 0 has said something by the socket. Records of first
 * contact make the descriptor readable. @return what the turns have done
 */
static unsigned off_turns(wu_t *wu, uint64_t *word)
{
    struct pollfd pfd  = {.fd = wu->t->fd[0], .events = POLLIN};
    unsigned      done = 0;

    while (poll(&pfd, 1, 0) == 0) {
        done += uct_worker_progress(wu->t->worker);
        if (wu_readable(wu, 0)) {
            off_arm(wu->t->main.iface);
        }
    }
    *word = ut_recv_word_still(wu->t, 0);
    return done;
}

/*
 * Rank 1's interface has no progress and is armed, and its worker is polled: that performs atomics
 * on its private memory. The interface stays armed: a message wakes.
 */
static void off_is_asked(ut_t *t)
{
    ut_remote_t remotes[RANK_MAX];
    uint64_t    old, total = 0, done = 0;
    double      end = now_seconds() + RANK_TIMEOUT / 2.;
    ut_comp_t   comp;
    ut_mem_t    mem;
    unsigned    i;
    wu_t        wu;

    wu_init_memory(&wu, t, &mem, remotes);
    if (t->rank == 1) {
        uct_iface_progress_disable(t->main.iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
        off_arm(t->main.iface);
    }
    ut_send_word(t, 1 - t->rank, 0);
    CHECK_EQ(ut_recv_word_still(t, 1 - t->rank), 0);
    while (done == 0) { /* on a busy machine the target's helper may come first, for a while */
        for (i = 0; (t->rank == 0) && (i < OFF_ADDS); ++i) {
            COMPLETE_OK(t, &comp,
                        uct_ep_atomic64_fetch(t->ep[1], UCT_ATOMIC_OP_ADD, 1, &old, remotes[1].addr,
                                              remotes[1].key.rkey, &comp.super));
            CHECK_EQ(old, total);
            ++total;
        }
        if (t->rank == 0) {
            ut_send_word(t, 1, total);
            done = ut_recv_word(t, 1);
        } else {
            done += off_turns(&wu, &total);
            CHECK_EQ(*(volatile uint64_t *)(void *)mem.addr, total);
            if (rank_chaos() || (strncmp(t->dev_name, "soft", 4) != 0)) {
                done = 1; /* a thread or the NIC performs them */
            }
            ut_send_word(t, 0, done);
        }
        CHECK((done != 0) || (now_seconds() < end));
    }
    if (t->rank == 1) {
        off_arm(t->main.iface);
        CHECK(!wu_readable(&wu, 20));
        ut_send_word(t, 0, 1);
    } else {
        CHECK_EQ(ut_recv_word(t, 1), 1);
        wu_send(t, 1, 0);
    }
    if (t->rank == 1) {
        CHECK(wu_readable(&wu, WU_PATIENCE));
        uct_iface_progress_enable(t->main.iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
        UT_WAIT(t, wu.received == 1);
    }
    ut_barrier(t);
    off_is_closed(t);
    ut_remotes_release(t, remotes);
    ut_mem_cleanup(t, &mem);
    ut_close(t);
}

/* ---- the tests ----------------------------------------------------------------------------- */

#define WU_TEST(_name, _nranks, _func) \
    static void _name(void **state)    \
    {                                  \
        (void)state;                   \
        ut_run(_nranks, _func, NULL);  \
    }

WU_TEST(test_steps, 2, steps)
WU_TEST(test_race, 2, race)
WU_TEST(test_race_many, 3, race_many)
WU_TEST(test_race_crowd, 2, race_crowd)
WU_TEST(test_send_completion, 2, send_completion)
WU_TEST(test_room, 2, room)
WU_TEST(test_puts_go_on, 2, puts_go_on)
WU_TEST(test_off_is_asked, 2, off_is_asked)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),           cmocka_unit_test(test_race),
        cmocka_unit_test(test_race_many),       cmocka_unit_test(test_race_crowd),
        cmocka_unit_test(test_send_completion), cmocka_unit_test(test_room),
        cmocka_unit_test(test_puts_go_on),      cmocka_unit_test(test_off_is_asked),
    };

    return ut_main(argc, argv, "wakeup", tests, sizeof(tests) / sizeof(tests[0]));
}
