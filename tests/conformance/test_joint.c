/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Long puts and gets that both processes copy, pieces each (on the soft fabric: joint copies). What
 * a transfer promises holds whoever copies, and however either side ends: it stops, is killed,
 * deregisters or loses the memory.
 */
#define _GNU_SOURCE
#include "../common/clock.h"
#include "joint.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#define JOINT ((size_t)128 << 10) /* ANGARA_JOINT_MIN */
#define BELOW ((size_t)64 << 10)  /* shared if nothing else waits */
#define SHORT ((size_t)40 << 10)  /* never shared */
#define PIECE ((size_t)128 << 10) /* longest of a shared copy */
#define TURN  ((size_t)1 << 20)   /* ANGARA_TURN_BYTES: so much is copied in a turn at most */

/* Pieces that this rank has copied for others. */
static uint64_t pieces(const conf_t *t)
{
    angara_counters_t counters;

    angara_pe_counters(t->pe, &counters);
    return counters.joint_pieces;
}

static void sleep_us(unsigned us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000l};

    nanosleep(&time, NULL);
}

/* The target, which polls or not, until it is told to end. */
static void serve(conf_t *t)
{
    const kind_t *kind  = t->arg;
    unsigned      turns = 0;

    while (!conf_is_over(t)) {
        if (kind->polls == 0 || (kind->polls == 2 && ++turns % 50 == 0)) {
            sleep_us(200);
        }
        if (kind->polls != 0) {
            angara_pe_progress(t->pe);
        }
    }
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static const size_t sizes[] = {
    SHORT,         SHORT + 1,
    BELOW,         BELOW + PAGE,
    JOINT - 1,     JOINT,
    JOINT + 1,     JOINT + PAGE,
    2 * PIECE + 1, 3 * PIECE - 1,
    3 * PIECE,     3 * PIECE + 7,
    4 * PIECE,     4 * PIECE + PAGE - 1,
    8 * PIECE,     10 * PIECE + 17,
    16 * PIECE,    16 * PIECE + 1,
    17 * PIECE,    31 * PIECE + 99,
    32 * PIECE,    LONG - PAGE - 1,
    LONG - 1,      LONG,
};

/* What is moved, and what lies around it: the destination's by `key`, the rest by `old`. */
static void check_moved(const char *memory, size_t length, uint64_t old, const char *source)
{
    CHECK(memcmp(memory + MARGIN, source + MARGIN, length) == 0);
    for (size_t i = 0; i < MARGIN; ++i) {
        CHECK((uint8_t)memory[i] == (uint8_t)old);
        CHECK((uint8_t)memory[MARGIN + length + i] == (uint8_t)old);
    }
}

static void one_size(conf_t *t, regions_t *r, size_t length, unsigned round)
{
    const kind_t *kind = t->arg;
    conf_mem_t   *dst  = kind->is_get ? &r->near : &r->far;
    conf_mem_t   *src  = kind->is_get ? &r->far : &r->near;

    /* Each has its own copy of what the source holds. */
    if (t->rank == (kind->is_get ? 0 : 1)) {
        memset(dst->addr, 0x5a + (int)round, length + 2 * MARGIN);
        data_fill(src->addr, length + 2 * MARGIN, round);
    } else {
        data_fill(src->addr, length + 2 * MARGIN, round);
    }
    if (t->rank == 1) {
        *(uint64_t *)(void *)t->window = 0;
    }
    conf_barrier(t);
    if (t->rank == 0) {
        CHECK_OK(joint_post(t, r, 1, 0, length));
        conf_marker(t, 1);
        conf_tell_over(t, 1);
    } else {
        serve(t);
    }
    conf_barrier(t);
    if (t->rank == (kind->is_get ? 0 : 1)) {
        check_moved(dst->addr, length, (uint64_t)(0x5a + (int)round), src->addr);
    }
}

/* Caught: a piece that nobody copies, that reaches beyond its end, or that lands after its marker.
 */
static void all_sizes(conf_t *t)
{
    const kind_t *kind   = t->arg;
    unsigned      rounds = conf_rounds(20) > 2 ? 3 : 1, round = 0;
    uint64_t      before;
    regions_t     r;

    joint_regions_init(t, &r);
    before = pieces(t);
    for (unsigned i = 0; i < rounds; ++i) {
        for (unsigned n = 0; n < sizeof(sizes) / sizeof(sizes[0]); ++n) {
            one_size(t, &r, sizes[n], ++round % 64);
        }
    }
    if (t->rank == 1) {
        CHECK((kind->polls != 0 && joint_is_used()) || pieces(t) == before);
    }
    joint_regions_cleanup(t, &r);
}

/* Has this thread lost its processor so often since then that it doesn't help others? */
static int is_crowded(const struct rusage *begin, double seconds)
{
    struct rusage now;

    CHECK(getrusage(RUSAGE_THREAD, &now) == 0);
    return seconds > 3 && (double)(now.ru_nivcsw - begin->ru_nivcsw) > 50 * seconds;
}

/*
 * The initiator makes one turn of progress, and no other: what it hasn't copied by then the target
 * copies, in its progress. Both say so by their counters.
 */
static void target_helps(conf_t *t)
{
    const kind_t *kind  = t->arg;
    double        since = now_seconds();
    struct rusage begin;
    regions_t     r;

    if (!joint_is_used()) {
        rank_skip("one process copies");
    }
    joint_regions_init(t, &r);
    data_fill(r.near.addr, LONG + 2 * MARGIN, kind->is_get ? 1 : 2);
    data_fill(r.far.addr, LONG + 2 * MARGIN, kind->is_get ? 2 : 1);
    conf_barrier(t);
    if (t->rank == 0) {
        CHECK_OK(joint_post(t, &r, 1, 0, LONG));
        angara_pe_progress(t->pe);
        conf_barrier(t);
        CHECK(pieces(t) == 0);
        conf_marker(t, 1);
        conf_tell_over(t, 1);
    } else {
        CHECK(getrusage(RUSAGE_THREAD, &begin) == 0);
        CONF_WAIT(t, pieces(t) >= (LONG - TURN - 2 * PIECE) / PIECE ||
                         is_crowded(&begin, now_seconds() - since));
        conf_barrier(t);
        serve(t);
    }
    conf_barrier(t);
    /* Each rank's other buffer holds what the source of the one that it is the end of holds. */
    if (t->rank == (kind->is_get ? 0 : 1)) {
        CHECK(memcmp((kind->is_get ? r.near.addr : r.far.addr) + MARGIN,
                     (kind->is_get ? r.far.addr : r.near.addr) + MARGIN, LONG) == 0);
    }
    joint_regions_cleanup(t, &r);
}

/*
 * Below ANGARA_JOINT_MIN the target helps with what finds nothing else queued: the first one, and
 * one that is posted when those before it have ended; not with all.
 */
static void stream_below_min(conf_t *t)
{
    regions_t r;

    if (!joint_is_used()) {
        rank_skip("one process copies");
    }
    joint_regions_init(t, &r);
    if (t->rank == 0) {
        for (size_t at = 0; at < LONG; at += BELOW) {
            CHECK_OK(joint_post(t, &r, 1, at, BELOW));
        }
        conf_marker(t, 1);
        conf_tell_over(t, 1);
    } else {
        serve(t);
        CHECK(pieces(t) < LONG / BELOW / 2);
    }
    joint_regions_cleanup(t, &r);
}

#define HUGE   ((size_t)64 << 20) /* takes the target milliseconds */
#define MIDDLE ((size_t)24 << 20) /* of it, where neither side is soon */
#define PART   ((size_t)4 << 20)

/* A fault ends the operation: the target, which may be at a piece, takes no other one. */
static void late(conf_t *t)
{
    conf_mem_t near;
    regions_t  r;
    size_t     i;

    if (!joint_is_used()) {
        rank_skip("one process copies");
    }
    joint_regions_init(t, &r);
    conf_mem_cleanup(&r.far);
    conf_mem_init(t, &r.far, 0, HUGE, ANGARA_ACCESS_ALL);
    conf_mem_init(t, &near, 0, HUGE, ANGARA_ACCESS_LOCAL_WRITE);
    conf_mem_exchange(t, &r.far, r.keys);
    if (t->rank == 0) {
        conf_mem_lose(&near, TURN / 2, PAGE);
        for (unsigned n = 0; n < conf_rounds(10); ++n) {
            POST_OK(t, angara_offload_get(t->peer[1], near.mr, near.addr, r.keys[1], 0, HUGE));
            while (angara_peer_status(t->peer[1]) == ANGARA_OK) {
                angara_pe_progress(t->pe);
            }
            memset(near.addr + MIDDLE, 0xee, PART);
            sleep_us(20000);
            for (i = 0; i < PART; ++i) {
                CHECK((uint8_t)near.addr[MIDDLE + i] == 0xee);
            }
            CHECK(conf_settle(t, 1) == ANGARA_ERR_PAIR);
        }
        conf_tell_over(t, 1);
    } else {
        serve(t);
    }
    conf_barrier(t);
    conf_mem_cleanup(&near);
    joint_regions_cleanup(t, &r);
}

/* ---- order ----------------------------------------------------------------------------------- */

/*
 * A long put, short ones into it, and gets of it follow each other, several under way at once. The
 * target knows what must come out.
 */
static void order(conf_t *t)
{
    static char model[LONG];
    regions_t   r;
    size_t      at, length;
    uint64_t    word;

    joint_regions_init(t, &r);
    if (t->rank == 0) {
        for (unsigned n = 0; n < conf_rounds(rank_chaos() ? 10 : 60); ++n) {
            length = JOINT + conf_random(t) % (LONG / 2 - JOINT);
            data_fill(r.near.addr + MARGIN, length, n);
            memcpy(model, r.near.addr + MARGIN, length);
            POST_OK(t, angara_offload_put(t->peer[1], r.near.mr, r.near.addr + MARGIN, r.keys[1],
                                          MARGIN, length));
            for (unsigned i = 0; i < 5; ++i) {
                at   = conf_random(t) % (length - sizeof(word));
                word = conf_random(t);
                POST_OK(t, angara_offload_put_inline(t->peer[1], &word, r.keys[1], MARGIN + at,
                                                     sizeof(word)));
                memcpy(model + at, &word, sizeof(word));
            }
            POST_OK(t, angara_offload_get(t->peer[1], r.near.mr, r.near.addr + LONG / 2 + MARGIN,
                                          r.keys[1], MARGIN, length));
            conf_marker(t, 1);
            CHECK(memcmp(r.near.addr + LONG / 2 + MARGIN, model, length) == 0);
        }
        conf_tell_over(t, 1);
    } else {
        serve(t);
    }
    joint_regions_cleanup(t, &r);
}

/* ---- all at once ----------------------------------------------------------------------------- */

/* Each rank gets from, or puts to, each other one; so all are initiators and targets. */
static void all_to_all(conf_t *t)
{
    const kind_t *kind  = t->arg;
    size_t        share = LONG / RANK_MAX / PAGE * PAGE;
    regions_t     r;

    joint_regions_init(t, &r);
    for (unsigned n = 0; n < conf_rounds(rank_chaos() ? 5 : 20); ++n) {
        /* A get reads the part of the own number at the target, a put writes it. */
        memset(r.near.addr, 0, LONG + 2 * MARGIN);
        for (unsigned i = 0; i < t->nranks; ++i) {
            data_fill((kind->is_get ? r.far.addr : r.near.addr) + MARGIN + i * share, share,
                      n * 100 + t->rank * 10 + i);
        }
        conf_barrier(t);
        for (unsigned i = 0; i < t->nranks; ++i) {
            char *here = r.near.addr + MARGIN + i * share;

            if (kind->is_get) {
                POST_OK(t, angara_offload_get(t->peer[i], r.near.mr, here, r.keys[i],
                                              MARGIN + t->rank * share, share));
            } else {
                POST_OK(t, angara_offload_put(t->peer[i], r.near.mr, here, r.keys[i],
                                              MARGIN + t->rank * share, share));
            }
        }
        for (unsigned i = 0; i < t->nranks; ++i) {
            conf_marker(t, i);
        }
        conf_barrier(t);
        for (unsigned i = 0; i < t->nranks; ++i) {
            CHECK_DATA((kind->is_get ? r.near.addr : r.far.addr) + MARGIN + i * share, share,
                       n * 100 + i * 10 + t->rank);
        }
        conf_barrier(t);
    }
    joint_regions_cleanup(t, &r);
}

/* ---- the end of the memory ------------------------------------------------------------------- */

/*
 * The initiator deregisters the near end while the copy is under way. From then on nobody writes
 * there, or reads what comes there into the target.
 */
static void deregister_near(conf_t *t)
{
    const kind_t *kind = t->arg;
    regions_t     r;
    unsigned      n, rounds = conf_rounds(rank_chaos() ? 5 : 40);

    joint_regions_init(t, &r);
    for (n = 0; n < rounds && t->rank == 0; ++n) {
        angara_mr_h mr;

        data_fill(r.near.addr, LONG + 2 * MARGIN, n);
        CHECK_OK(angara_mr_register(t->dom, r.near.addr, LONG + 2 * MARGIN,
                                    ANGARA_ACCESS_LOCAL_WRITE, &mr));
        if (kind->is_get) {
            POST_OK(t, angara_offload_get(t->peer[1], mr, r.near.addr + MARGIN, r.keys[1], MARGIN,
                                          LONG));
        } else {
            POST_OK(t, angara_offload_put(t->peer[1], mr, r.near.addr + MARGIN, r.keys[1], MARGIN,
                                          LONG));
        }
        for (unsigned i = 0; i < n % 8; ++i) {
            angara_pe_progress(t->pe);
        }
        CHECK_OK(angara_mr_deregister(mr));
        data_fill(r.near.addr, LONG + 2 * MARGIN, 1000 + n);
        conf_marker(t, 1); /* what was queued has been performed before the region ended */
        sleep_us(500);
        CHECK_DATA(r.near.addr, LONG + 2 * MARGIN, 1000 + n);
    }
    if (t->rank == 0) {
        conf_tell_over(t, 1);
    } else {
        serve(t);
    }
    joint_regions_cleanup(t, &r);
}

/*
 * The target deregisters its end meanwhile: the initiator gets a fault, or all of it. The target
 * may use the memory again.
 */
static void deregister_far(conf_t *t)
{
    const kind_t   *kind = t->arg;
    regions_t       r;
    unsigned        n, rounds = conf_rounds(rank_chaos() ? 5 : 30);
    char           *memory = NULL;
    angara_mr_h     mr     = NULL;
    uint64_t        key    = 0, keys[RANK_MAX];
    angara_status_t status;

    joint_regions_init(t, &r);
    for (n = 0; n < rounds; ++n) {
        if (t->rank == 1) {
            memory = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(memory != MAP_FAILED);
            data_fill(memory, LONG, n);
            CHECK_OK(angara_mr_register(t->dom, memory, LONG, ANGARA_ACCESS_ALL, &mr));
            key = angara_mr_key(mr);
        }
        conf_exchange(t, &key, keys, sizeof(key));
        if (t->rank == 0) {
            status = CONF_POST(t, kind->is_get ?
                                      angara_offload_get(t->peer[1], r.near.mr,
                                                         r.near.addr + MARGIN, keys[1], 0, LONG) :
                                      angara_offload_put(t->peer[1], r.near.mr,
                                                         r.near.addr + MARGIN, keys[1], 0, LONG));
            CHECK(status == ANGARA_OK || status == ANGARA_ERR_KEY);
            status = conf_settle(t, 1);
            CHECK(status == ANGARA_OK || status == ANGARA_ERR_PAIR);
        } else {
            for (unsigned i = 0; i < n % 16 * 10; ++i) {
                angara_pe_progress(t->pe);
            }
            CHECK_OK(angara_mr_deregister(mr));
            data_fill(memory, LONG, 1000 + n);
            sleep_us(300);
            CHECK_DATA(memory, LONG, 1000 + n);
            CHECK(munmap(memory, LONG) == 0);
        }
        conf_barrier(t);
    }
    joint_regions_cleanup(t, &r);
}

/* A page in the middle is lost at one end: a fault, by whoever comes to it. */
static void lose(conf_t *t, int is_far)
{
    regions_t       r;
    angara_status_t status;

    joint_regions_init(t, &r);
    if (t->rank == (unsigned)is_far) {
        conf_mem_lose(is_far ? &r.far : &r.near, MARGIN + LONG / 2, PAGE);
    }
    conf_barrier(t);
    if (t->rank == 0) {
        status = joint_post(t, &r, 1, 0, LONG);
        CHECK(status == ANGARA_OK || status == ANGARA_ERR_BOUNDS);
        status = conf_settle(t, 1);
        CHECK(status == ANGARA_ERR_PAIR);
        CHECK_OK(joint_post(t, &r, 1, 0, LONG / 4)); /* the pair goes on */
        conf_marker(t, 1);
        conf_tell_over(t, 1);
    } else {
        serve(t);
    }
    joint_regions_cleanup(t, &r);
}

static void lose_far(conf_t *t)
{
    lose(t, 1);
}

static void lose_near(conf_t *t)
{
    if (!joint_is_used()) {
        rank_skip("the CPU touches the near end, and crashes as the program would");
    }
    lose(t, 0);
}

/* ---- the end of a process -------------------------------------------------------------------- */

static void on_alarm(int signal)
{
    (void)signal;
    raise(SIGKILL);
}

/* This process dies in so many microseconds, wherever it is then. */
static void die_in(unsigned us)
{
    struct sigevent   event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct itimerspec time  = {.it_value = {0, us * 1000l}};
    timer_t           timer;

    CHECK(signal(SIGALRM, on_alarm) != SIG_ERR);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &time, NULL) == 0);
}

/* Post, and wait for its end, or the peer's. */
static angara_status_t copied(conf_t *t, regions_t *r)
{
    angara_status_t status = joint_post(t, r, 1, 0, LONG);

    if (status == ANGARA_OK) {
        status = CONF_POST(t, angara_marker(t->peer[1], t->slot, ++t->value));
    }
    if (status == ANGARA_OK) {
        CONF_WAIT(t, angara_marker_arrived(t->slot, t->value) ||
                         (status = angara_peer_status(t->peer[1])) != ANGARA_OK);
    }
    return status;
}

/* The victim serves, or copies itself; the other one gets its data or the news, in time. */
static void killed(conf_t *t, unsigned victim)
{
    regions_t       r;
    angara_status_t status = ANGARA_OK;
    angara_event_t  event;
    int             down = 0;

    joint_regions_init(t, &r);
    if (t->rank == victim) {
        die_in(500 + (unsigned)(conf_random(t) % 3000));
    }
    if (t->rank == 1) {
        while (victim == 1 || !down) {
            angara_pe_progress(t->pe);
            down = angara_pe_event_poll(t->pe, &event) == ANGARA_OK &&
                   event.type == ANGARA_EVENT_PEER_DOWN;
        }
    }
    while (t->rank == 0 && (status == ANGARA_OK || victim == 0)) {
        status = copied(t, &r);
    }
    conf_mem_cleanup(&r.near);
    conf_mem_cleanup(&r.far);
    conf_close_alone(t);
}

static void kill_target(conf_t *t)
{
    killed(t, 1);
}

static void kill_initiator(conf_t *t)
{
    killed(t, 0);
}

/* A rank is stopped at any moment, and goes on: all arrives. Rank 2 stops it. */
static void stopped(conf_t *t)
{
    regions_t r;
    unsigned  n, rounds = conf_rounds(rank_chaos() ? 5 : 20);

    joint_regions_init(t, &r);
    if (t->rank == 2) {
        for (n = 0; n < rounds; ++n) {
            sleep_us(300 + (unsigned)(conf_random(t) % 3000));
            conf_stop_process(t->pid[n % 2]);
            sleep_us(1000);
            CHECK(kill(t->pid[n % 2], SIGCONT) == 0);
        }
        conf_tell_over(t, 0);
    } else if (t->rank == 0) {
        for (n = 0; !conf_is_over(t) || n < rounds; ++n) {
            data_fill(r.near.addr + MARGIN, LONG, n);
            POST_OK(t, angara_offload_put(t->peer[1], r.near.mr, r.near.addr + MARGIN, r.keys[1],
                                          MARGIN, LONG));
            conf_marker(t, 1);
            memset(r.near.addr + MARGIN, 0, LONG);
            POST_OK(t, angara_offload_get(t->peer[1], r.near.mr, r.near.addr + MARGIN, r.keys[1],
                                          MARGIN, LONG));
            conf_marker(t, 1);
            CHECK_DATA(r.near.addr + MARGIN, LONG, n);
        }
        conf_tell_over(t, 1);
    } else {
        serve(t);
    }
    joint_regions_cleanup(t, &r);
}

/* ---------------------------------------------------------------------------------------------- */

static const kind_t get_polling = {0, 1, 1}, get_computing = {0, 1, 0}, get_changing = {0, 1, 2},
                    put_polling = {0, 0, 1}, put_computing = {0, 0, 0}, put_changing = {0, 0, 2},
                    get_shared = {1, 1, 1}, put_shared = {1, 0, 1};

#define TEST(_name, _ranks, _func, _kind)  \
    static void test_##_name(void **state) \
    {                                      \
        (void)state;                       \
        conf_run(_ranks, _func, _kind);    \
    }

TEST(get_polling, 2, all_sizes, &get_polling)
TEST(get_computing, 2, all_sizes, &get_computing)
TEST(get_changing, 2, all_sizes, &get_changing)
TEST(get_shared, 2, all_sizes, &get_shared)
TEST(put_polling, 2, all_sizes, &put_polling)
TEST(put_computing, 2, all_sizes, &put_computing)
TEST(put_changing, 2, all_sizes, &put_changing)
TEST(put_shared, 2, all_sizes, &put_shared)
TEST(helps_get, 2, target_helps, &get_polling)
TEST(helps_put, 2, target_helps, &put_polling)
TEST(helps_shared, 2, target_helps, &get_shared)
TEST(stream_get, 2, stream_below_min, &get_polling)
TEST(stream_put, 2, stream_below_min, &put_polling)
TEST(late, 2, late, &get_polling)
TEST(order_polling, 2, order, &get_polling)
TEST(order_changing, 2, order, &get_changing)
TEST(order_shared, 2, order, &get_shared)
TEST(all_get, 4, all_to_all, &get_polling)
TEST(all_put, 4, all_to_all, &put_polling)
TEST(deregister_near_get, 2, deregister_near, &get_polling)
TEST(deregister_near_put, 2, deregister_near, &put_polling)
TEST(deregister_far_get, 2, deregister_far, &get_polling)
TEST(deregister_far_put, 2, deregister_far, &put_polling)
TEST(lose_far_get, 2, lose_far, &get_polling)
TEST(lose_far_put, 2, lose_far, &put_polling)
TEST(lose_near_get, 2, lose_near, &get_polling)
TEST(lose_near_put, 2, lose_near, &put_polling)
TEST(stopped, 3, stopped, &put_polling)

static void kill_often(conf_func_t func, unsigned victims)
{
    for (unsigned i = 0; i < conf_rounds(10); ++i) {
        conf_run_victims(2, func, &get_polling, victims);
        conf_run_victims(2, func, &put_polling, victims);
    }
}

static void test_kill_target(void **state)
{
    (void)state;
    kill_often(kill_target, 1u << 1);
}

static void test_kill_initiator(void **state)
{
    (void)state;
    kill_often(kill_initiator, 1u << 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_get_polling),
        cmocka_unit_test(test_get_computing),
        cmocka_unit_test(test_get_changing),
        cmocka_unit_test(test_get_shared),
        cmocka_unit_test(test_put_polling),
        cmocka_unit_test(test_put_computing),
        cmocka_unit_test(test_put_changing),
        cmocka_unit_test(test_put_shared),
        cmocka_unit_test(test_helps_get),
        cmocka_unit_test(test_helps_put),
        cmocka_unit_test(test_helps_shared),
        cmocka_unit_test(test_stream_get),
        cmocka_unit_test(test_stream_put),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_order_polling),
        cmocka_unit_test(test_order_changing),
        cmocka_unit_test(test_order_shared),
        cmocka_unit_test(test_all_get),
        cmocka_unit_test(test_all_put),
        cmocka_unit_test(test_deregister_near_get),
        cmocka_unit_test(test_deregister_near_put),
        cmocka_unit_test(test_deregister_far_get),
        cmocka_unit_test(test_deregister_far_put),
        cmocka_unit_test(test_lose_far_get),
        cmocka_unit_test(test_lose_far_put),
        cmocka_unit_test(test_lose_near_get),
        cmocka_unit_test(test_lose_near_put),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_kill_target),
        cmocka_unit_test(test_kill_initiator),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
