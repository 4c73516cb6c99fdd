/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many peers: memory per connected peer, measured; what silent peers cost the poll loop, by its
 * counters; that a silent peer is heard at once when it speaks; and the limit on peers.
 */
#include "ut.h"
#include "ut_inside.h"

#include <dirent.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#define SC_AM    4
#define SC_PEERS 64
#define SC_FIRST 4
#define SC_LIMIT ((size_t)64 << 10)  /* bytes per connected peer */
#define SC_BIG   ((size_t)528 << 10) /* the same of the first SC_FIRST, with what first use costs */

/* Rank 1: SC_PEERS interfaces, each with an endpoint to rank 0's. */
typedef struct {
    ut_iface_t iface[SC_PEERS];
    uct_ep_h   ep[SC_PEERS];
} sc_crowd_t;

typedef struct {
    uint64_t from[SC_PEERS];
    uint64_t total;
} sc_sink_t;

static sc_crowd_t sc_crowd;
static sc_sink_t  sc_sink;

static ucs_status_t sc_receive(void *arg, void *data, size_t length, unsigned flags)
{
    sc_sink_t *sink = arg;
    uint64_t   header[2];

    (void)flags;
    CHECK_EQ(length, sizeof(header));
    memcpy(header, data, sizeof(header));
    CHECK(header[0] < SC_PEERS);
    CHECK_EQ(header[1], sink->from[header[0]]);
    ++sink->from[header[0]];
    ++sink->total;
    return UCS_OK;
}

static ucs_status_t sc_ignore(void *arg, void *data, size_t length, unsigned flags)
{
    (void)arg;
    (void)data;
    (void)length;
    (void)flags;
    return UCS_OK;
}

/* Bytes of all shared memory that this process has made, and of its heap. */
static size_t sc_memory(void)
{
    struct mallinfo2 heap  = mallinfo2();
    size_t           total = heap.uordblks + heap.hblkhd;
    DIR             *dir   = opendir("/proc/self/fd");
    char             path[300], target[256];
    struct dirent   *entry;
    struct stat      st;
    ssize_t          length;

    CHECK(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        length = readlink(path, target, sizeof(target) - 1);
        if ((length > 0) && (strncmp(target, "/memfd:", 7) == 0) && (stat(path, &st) == 0)) {
            total += (size_t)st.st_blocks * 512;
        }
    }
    closedir(dir);
    return total;
}

static void sc_send(ut_t *t, unsigned i, uint64_t number)
{
    POST_OK(t, uct_ep_am_short(sc_crowd.ep[i], SC_AM, i, &number, sizeof(number)));
}

static void sc_crowd_join(ut_t *t, unsigned first, unsigned end)
{
    unsigned i;

    for (i = first; i < end; ++i) {
        ut_iface_open(t, &sc_crowd.iface[i]);
        CHECK_OK(uct_iface_set_am_handler(sc_crowd.iface[i].iface, SC_AM, sc_ignore, NULL, 0));
        sc_crowd.ep[i] = ut_ep_create(&sc_crowd.iface[i], &t->addr[0]);
        sc_send(t, i, 0);
    }
}

static void sc_crowd_open(ut_t *t, unsigned count)
{
    memset(&sc_crowd, 0, sizeof(sc_crowd));
    sc_crowd_join(t, 0, count);
}

static void sc_crowd_close(ut_t *t, unsigned count)
{
    unsigned i;

    for (i = 0; i < count; ++i) {
        ut_flush(t, &sc_crowd.iface[i]);
        CHECK_EQ(sc_crowd.iface[i].errors, 0);
        uct_ep_destroy(sc_crowd.ep[i]);
    }
    ut_progress_ms(t, 10);
    for (i = 0; i < count; ++i) {
        ut_iface_close(&sc_crowd.iface[i]);
    }
}

static void sc_open(ut_t *t)
{
    ut_open(t);
    memset(&sc_sink, 0, sizeof(sc_sink));
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, SC_AM, sc_receive, &sc_sink, 0));
    ut_barrier(t);
}

/* ---- memory -------------------------------------------------------------------------------- */

/*
 * Rank 0 receives from and sends to peers first to end-1, which connect now. @return bytes that
 * each of them costs.
 */
static size_t sc_connect(ut_t *t, uct_ep_h *eps, unsigned first, unsigned end)
{
    ut_addr_t addr;
    size_t    before, each;
    unsigned  i;

    ut_progress_ms(t, 10);
    before = sc_memory();
    ut_send_word(t, 1, end);
    UT_WAIT(t, sc_sink.total == end);
    for (i = first; i < end; ++i) {
        ut_recv(t, 1, &addr, sizeof(addr));
        eps[i] = ut_ep_create(&t->main, &addr);
        POST_OK(t, uct_ep_am_short(eps[i], SC_AM, 0, NULL, 0));
    }
    ut_flush(t, &t->main);
    each = (sc_memory() - before) / (end - first);
    fprintf(stderr, "# %zu bytes per connected peer, from the %u. to the %u.\n", each, first + 1,
            end);
    CHECK(each >= 1024); /* else nothing was measured */
    return each;
}

/* The first few peers get big rings, unless told otherwise. */
static void memory_per_peer(ut_t *t)
{
    const char *slots = t->arg;
    uct_ep_h    eps[SC_PEERS];
    unsigned    i;

    if (slots != NULL) {
        setenv("UCX_ANGARA_RING_SLOTS", slots, 1);
    }
    sc_open(t);
    if (t->rank == 0) {
        /* chaos mode cuts messages into several puts: their flags make rings a 16th larger */
        size_t   flags = rank_chaos() ? 16 : SIZE_MAX;
        unsigned first = (slots == NULL) ? SC_FIRST : 0;
        size_t   each;

        if (first > 0) {
            each = sc_connect(t, eps, 0, first);
            CHECK(each <= SC_BIG + SC_BIG / flags);
            CHECK(each > SC_LIMIT); /* they did get big ones */
        }
        /* many at once: what the first use costs, chaos's operations under way too, is no peer's */
        each = sc_connect(t, eps, first, SC_PEERS);
        CHECK(each <= SC_LIMIT + SC_LIMIT / flags);
        ut_send_word(t, 1, 0);
        for (i = 0; i < SC_PEERS; ++i) {
            uct_ep_destroy(eps[i]);
        }
        CHECK_EQ(ut_recv_word(t, 1), 1);
    } else {
        unsigned end = 0, first;

        memset(&sc_crowd, 0, sizeof(sc_crowd));
        while (end < SC_PEERS) {
            first = end;
            end   = (unsigned)ut_recv_word(t, 0);
            sc_crowd_join(t, first, end);
            for (i = first; i < end; ++i) {
                ut_send(t, 0, &sc_crowd.iface[i].addr, sizeof(sc_crowd.iface[i].addr));
            }
        }
        ut_recv_word(t, 0);
        sc_crowd_close(t, SC_PEERS);
        ut_send_word(t, 0, 1);
    }
    ut_barrier(t);
    ut_close(t);
}

/* Peers that come and go: what one leaves the next takes, memory doesn't grow. */
static void memory_reused(ut_t *t)
{
    unsigned rounds = 20, round;
    size_t   first  = 0;

    sc_open(t);
    for (round = 0; round < rounds; ++round) {
        memset(&sc_sink, 0, sizeof(sc_sink));
        ut_barrier(t);
        if (t->rank == 0) {
            UT_WAIT(t, sc_sink.total == 16);
            CHECK_EQ(ut_recv_word(t, 1), round);
            ut_progress_ms(t, 5);
            if (round == 2) {
                first = sc_memory();
            }
        } else {
            sc_crowd_open(t, 16);
            sc_crowd_close(t, 16);
            ut_send_word(t, 0, round);
        }
    }
    if (t->rank == 0) {
        CHECK(sc_memory() <= first + 16 * 1024);
    }
    ut_barrier(t);
    ut_close(t);
}

/* ---- silence ------------------------------------------------------------------------------- */

/* What a number of polls costs by the counters. */
static void sc_poll_silence(ut_t *t, unsigned polls, ut_inside_t *cost)
{
    ut_inside_t before;
    unsigned    i;

    ut_inside(t->main.iface, &before);
    for (i = 0; i < polls; ++i) {
        uct_iface_progress(t->main.iface);
    }
    ut_inside(t->main.iface, cost);
    cost->scans -= before.scans;
}

/*
 * Few rings are polled directly, whatever the number of connected ones; the others are looked at by
 * a scan (64 bytes tell of 32 peers) now and then; no other work is left over.
 */
static void silent_peers(ut_t *t)
{
    enum { POLLS = 100000 };
    ut_inside_t few, many;
    uint64_t    number = 0;
    unsigned    i;

    sc_open(t);
    if (t->rank == 0) { /* whose first peer is itself */
        POST_OK(t, uct_ep_am_short(t->ep[0], SC_AM, 0, &number, sizeof(number)));
        UT_WAIT(t, sc_sink.total == 1);
        memset(&sc_sink, 0, sizeof(sc_sink));
        ut_progress_ms(t, 5);
        sc_poll_silence(t, POLLS, &few);
        ut_send_word(t, 1, 0);
        UT_WAIT(t, sc_sink.total == SC_PEERS);
        ut_recv_word(t, 1); /* and all their handshakes have ended */
        ut_progress_ms(t, 20);
        sc_poll_silence(t, POLLS, &many);
        fprintf(stderr, "# with 1 peer: %lu rings polled, %lu scans; with %d: %lu, %lu\n",
                (unsigned long)few.hot, (unsigned long)few.scans, SC_PEERS + 1,
                (unsigned long)many.hot, (unsigned long)many.scans);
        CHECK(many.open >= SC_PEERS);
        CHECK(many.hot <= 8);
        CHECK_EQ(many.slow, 0);
        CHECK(many.scans <= POLLS / 16);
        ut_send_word(t, 1, 0);
        /* each of them, long silent, is heard within one round of scans */
        for (i = 0; i < SC_PEERS; ++i) {
            unsigned polls;

            CHECK_EQ(ut_recv_word_still(t, 1), i);
            for (polls = 0; (polls < 1000) && (sc_sink.from[i] == 1); ++polls) {
                uct_iface_progress(t->main.iface);
            }
            CHECK_EQ(sc_sink.from[i], 2);
            ut_send_word(t, 1, i);
        }
    } else {
        ut_recv_word(t, 0);
        sc_crowd_open(t, SC_PEERS);
        for (i = 0; i < SC_PEERS; ++i) {
            ut_flush(t, &sc_crowd.iface[i]);
        }
        ut_progress_ms(t, 10);
        ut_send_word(t, 0, 0);
        ut_recv_word(t, 0);
        for (i = 0; i < SC_PEERS; ++i) {
            sc_send(t, i, 1);
            ut_flush(t, &sc_crowd.iface[i]);
            ut_send_word(t, 0, i);
            CHECK_EQ(ut_recv_word(t, 0), i);
        }
        sc_crowd_close(t, SC_PEERS);
    }
    ut_barrier(t);
    ut_close(t);
}

/* Crowds: random ones speak, all at once or one for a while; order holds for each. */
static void crowd(ut_t *t)
{
    static uint64_t sent[SC_PEERS];
    uint64_t        count = ut_rounds(40000), total;
    unsigned        i, burst;

    sc_open(t);
    if (t->rank == 1) {
        sc_crowd_open(t, SC_PEERS);
        for (i = 0; i < SC_PEERS; ++i) {
            sent[i] = 1;
        }
        for (total = SC_PEERS; total < count;) {
            i = (unsigned)(ut_random(t) % SC_PEERS);
            for (burst = 1 + (unsigned)(ut_random(t) % 30); burst > 0; --burst, ++total) {
                sc_send(t, i, sent[i]++);
            }
        }
        ut_send_word(t, 0, total);
        sc_crowd_close(t, SC_PEERS);
    } else {
        total = ut_recv_word(t, 1);
        UT_WAIT(t, sc_sink.total == total);
    }
    ut_barrier(t);
    ut_close(t);
}

/* ---- limits -------------------------------------------------------------------------------- */

/* A message, and a flush: the other side's refusal comes after the message was taken. */
static ucs_status_t sc_send_checked(ut_t *t, uct_ep_h ep, uint64_t header)
{
    uint64_t     number = 0;
    ucs_status_t status;
    ut_comp_t    comp;

    status = (ucs_status_t)UT_POST(t, uct_ep_am_short(ep, SC_AM, header, &number, sizeof(number)));
    if (status == UCS_OK) {
        ut_comp_init(&comp, 1);
        status = (ucs_status_t)UT_POST(t, uct_ep_flush(ep, 0, &comp.super));
        status = ut_comp_wait(t, status, &comp);
    }
    return status;
}

/* More peers than UCX_ANGARA_MAX_PEERS: the first are served, the others told, and nobody hangs. */
static void too_many_peers(ut_t *t)
{
    enum { MAX = 8, PEERS = 12 };
    unsigned     ok = 0, told = 0, i;
    ucs_status_t status;

    if (t->rank == 0) {
        setenv("UCX_ANGARA_MAX_PEERS", "8", 1);
    }
    sc_open(t);
    if (t->rank == 1) {
        memset(&sc_crowd, 0, sizeof(sc_crowd));
        for (i = 0; i < PEERS; ++i) {
            ut_iface_open(t, &sc_crowd.iface[i]);
            sc_crowd.ep[i] = ut_ep_create(&sc_crowd.iface[i], &t->addr[0]);
            status         = sc_send_checked(t, sc_crowd.ep[i], i);
            if (status == UCS_OK) {
                ++ok;
                continue;
            }
            CHECK_ERR(status);
            UT_WAIT(t, sc_crowd.iface[i].errors == 1);
            ++told;
        }
        CHECK(ok <= MAX);
        CHECK(ok >= MAX - 2); /* the ranks' own connections count, too */
        CHECK_EQ(ok + told, PEERS);
        ut_send_word(t, 0, ok);
        for (i = 0; i < PEERS; ++i) {
            uct_ep_destroy(sc_crowd.ep[i]);
        }
        ut_progress_ms(t, 10);
        for (i = 0; i < PEERS; ++i) {
            ut_iface_close(&sc_crowd.iface[i]);
        }
    } else {
        ok = (unsigned)ut_recv_word(t, 1);
        UT_WAIT(t, sc_sink.total == ok);
    }
    ut_barrier(t);
    ut_close(t);
}

/* Sides of different ring shapes: they talk, or the smaller one refuses clearly. */
static void different_shapes(ut_t *t)
{
    ucs_status_t status;
    int          other;

    setenv("UCX_ANGARA_RING_SLOTS", t->rank ? "32" : "512", 1);
    sc_open(t);
    status = sc_send_checked(t, t->ep[1 - t->rank], t->rank);
    if (status != UCS_OK) {
        CHECK_ERR(status);
        UT_WAIT(t, t->main.errors == 1);
        t->main.errors = 0;
    }
    ut_send_word(t, 1 - t->rank, status == UCS_OK);
    other = ut_recv_word(t, 1 - t->rank) != 0;
    /* A small ring fits everywhere: only a side that has failed before doesn't take it. */
    CHECK((t->rank == 0) || (status == UCS_OK) || !other);
    UT_WAIT(t, (status != UCS_OK) || !other || (sc_sink.total == 1));
    ut_barrier(t);
    /* the one who was refused has given up both directions, and may have said so by now */
    CHECK(t->main.errors <= !other);
    ut_close_alone(t);
}

/* ---- the tests ----------------------------------------------------------------------------- */

#define SC_TEST(_func)                     \
    static void test_##_func(void **state) \
    {                                      \
        (void)state;                       \
        ut_run(2, _func, NULL);            \
    }

SC_TEST(memory_per_peer)

static void test_memory_per_peer_small(void **state)
{
    (void)state;
    ut_run(2, memory_per_peer, "440");
}

SC_TEST(memory_reused)
SC_TEST(silent_peers)
SC_TEST(crowd)
SC_TEST(too_many_peers)
SC_TEST(different_shapes)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_per_peer),
        cmocka_unit_test(test_memory_per_peer_small),
        cmocka_unit_test(test_memory_reused),
        cmocka_unit_test(test_silent_peers),
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_too_many_peers),
        cmocka_unit_test(test_different_shapes),
    };

    return ut_main(argc, argv, "scale", tests, sizeof(tests) / sizeof(tests[0]));
}
