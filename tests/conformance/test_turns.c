/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bounded turns: a long transfer goes in pieces, others pass between them, and it can end between
 * two. On the soft fabric bytes are counted for each call, at 64 KiB a turn; where a thread or a
 * NIC moves them, what arrives is looked at.
 */
#define _GNU_SOURCE
#include "conf.h"

#include <poll.h>
#include <sched.h>

#include <cmocka.h>

#define TURN      (64u << 10)
#define LONG      (40 * TURN + 24)
#define SOME      (TURN / 4) /* of which a batch has more than a turn's bytes */

#define LITTLE    (8u << 10) /* the least that a turn may be */
#define SHORT_MAX 40961u     /* one more than a peer is asked for */
#define STREAM    60u        /* posts of a stream */

typedef struct {
    int shared;
    int is_get;
    int has_little; /* turns of LITTLE */
} kind_t;

typedef struct {
    conf_mem_t far; /* each rank's that others access */
    conf_mem_t buf;
    uint64_t   keys[RANK_MAX];
} regions_t;

static void begin(conf_t *t, regions_t *r)
{
    const kind_t *kind = t->arg;

    CHECK(setenv("ANGARA_TURN_BYTES", kind->has_little ? "8K" : "64K", 1) == 0);
    conf_open(t);
    conf_mem_init(t, &r->far, kind->shared, LONG, ANGARA_ACCESS_ALL);
    conf_mem_init(t, &r->buf, 0, 2 * LONG, ANGARA_ACCESS_LOCAL_WRITE);
    conf_mem_exchange(t, &r->far, r->keys);
}

static void end(conf_t *t, regions_t *r)
{
    conf_barrier(t);
    conf_mem_cleanup(&r->buf);
    conf_mem_cleanup(&r->far);
    conf_close(t);
}

/* Does the caller move the bytes, so that they can be counted? A GPU's copies go on by themselves.
 */
static int is_counted(const conf_t *t)
{
    return (t->attr.caps & ANGARA_CAP_INLINE_OPS) != 0 && !conf_on_gpu(0) && !conf_on_gpu(1);
}

/* Are short operations performed within the post, where the caller moves bytes? */
static int is_inline(const kind_t *kind)
{
    return conf_env_on("ANGARA_SOFT_LOOPBACK") && (kind->shared || conf_reaches());
}

static uint64_t moved(const conf_t *t)
{
    angara_counters_t counters;

    angara_pe_counters(t->pe, &counters);
    return counters.offload_bytes;
}

static angara_status_t post(conf_t *t, unsigned rank, regions_t *r, size_t at, size_t length)
{
    const kind_t *kind = t->arg;

    return CONF_POST(t, kind->is_get ?
                            angara_offload_get(t->peer[rank], r->buf.mr, r->buf.addr + at,
                                               r->keys[rank], 0, length) :
                            angara_offload_put(t->peer[rank], r->buf.mr, r->buf.addr + at,
                                               r->keys[rank], 0, length));
}

/* No more than so many bytes are moved within a post or a turn. */
static void check_moved(const conf_t *t, uint64_t before)
{
    const kind_t *kind = t->arg;

    CHECK(!is_counted(t) || (moved(t) - before <= (kind->has_little ? LITTLE : TURN)));
}

static void turn(conf_t *t)
{
    uint64_t before = moved(t);

    angara_pe_progress(t->pe);
    check_moved(t, before);
    sched_yield();
}

/*
 * Rank 0 has long transfers with 1 and 2 under way; a short one with 3 and its marker pass between
 * the pieces. Nobody waits for the end of a long one.
 */
static void others_pass(conf_t *t)
{
    const kind_t         *kind = t->arg;
    angara_marker_slot_t *slots[3];
    uint64_t              start[3];
    uint64_t              before;
    unsigned              i, passed = 0;
    regions_t             r;

    begin(t, &r);
    data_fill(r.far.addr, LONG, t->rank);
    data_fill(r.buf.addr, 2 * LONG, 99);
    conf_barrier(t);
    for (i = 1; (t->rank == 0) && (i <= 2); ++i) {
        CHECK_OK(angara_marker_slot_get(t->pe, &slots[i]));
        start[i] = *slots[i];
        before   = moved(t);
        CHECK_OK(post(t, i, &r, (i - 1) * LONG, LONG));
        CHECK(!is_counted(t) || (moved(t) - before <= TURN));
        POST_OK(t, angara_marker(t->peer[i], slots[i], start[i] + 1));
    }
    while ((t->rank == 0) && !(angara_marker_arrived(slots[1], start[1] + 1) &&
                               angara_marker_arrived(slots[2], start[2] + 1))) {
        uint64_t mark = *(uint64_t *)(void *)r.buf.addr;

        POST_OK(t, angara_offload_put_inline(t->peer[3], &mark, r.keys[3], 0, sizeof(mark)));
        conf_marker(t, 3);
        ++passed;
        turn(t);
    }
    if (t->rank == 0) {
        /* The first one may have been asked of a process that doesn't poll, and been waited for. */
        CHECK(!is_counted(t) || !is_inline(kind) || (passed >= LONG / TURN));
        for (i = 1; i <= 2; ++i) {
            if (kind->is_get) {
                CHECK_DATA(r.buf.addr + (i - 1) * LONG, LONG, i);
            }
            angara_marker_slot_put(t->pe, slots[i]);
        }
    }
    conf_barrier(t);
    if (!kind->is_get && (t->rank == 1)) {
        CHECK_DATA(r.far.addr, LONG, 99);
    }
    end(t, &r);
}

/* A batch counts as the sum of its transfers; all of it is performed, in order. */
static void batches(conf_t *t)
{
    const kind_t *kind = t->arg;
    angara_xfer_t xfers[ANGARA_BATCH_MAX];
    uint64_t      before;
    unsigned      i, posted;
    regions_t     r;

    begin(t, &r);
    data_fill(r.far.addr, LONG, t->rank);
    data_fill(r.buf.addr, LONG, 99);
    conf_barrier(t);
    if (t->rank == 0) {
        for (i = 0; i < ANGARA_BATCH_MAX; ++i) {
            xfers[i] = (angara_xfer_t){.lmr     = r.buf.mr,
                                       .laddr   = r.buf.addr + i * SOME,
                                       .rkey    = r.keys[1],
                                       .roffset = i * SOME,
                                       .length  = SOME};
        }
        before = moved(t);
        CHECK_OK(angara_offload_batch(t->peer[1],
                                      kind->is_get ? ANGARA_BATCH_GET : ANGARA_BATCH_PUT, xfers,
                                      ANGARA_BATCH_MAX, &posted));
        CHECK_EQ(posted, ANGARA_BATCH_MAX);
        CHECK(!is_counted(t) || (moved(t) - before <= TURN));
        ++t->value;
        POST_OK(t, angara_marker(t->peer[1], t->slot, t->value));
        while (!angara_marker_arrived(t->slot, t->value)) {
            turn(t);
        }
        if (kind->is_get) {
            CHECK_DATA(r.buf.addr, ANGARA_BATCH_MAX * SOME, 1);
        }
    }
    conf_barrier(t);
    if (!kind->is_get && (t->rank == 1)) {
        CHECK_DATA(r.far.addr, ANGARA_BATCH_MAX * SOME, 99);
    }
    end(t, &r);
}

/* The sources of long puts to two peers have been read when a self marker behind them arrives. */
static void self_marker(conf_t *t)
{
    unsigned  i;
    regions_t r;

    begin(t, &r);
    data_fill(r.buf.addr, LONG, 1);
    data_fill(r.buf.addr + LONG, LONG, 2);
    conf_barrier(t);
    if (t->rank == 0) {
        for (i = 1; i <= 2; ++i) {
            CHECK_OK(post(t, i, &r, (i - 1) * LONG, LONG));
        }
        ++t->value;
        POST_OK(t, angara_marker_self(t->pe, t->slot, t->value));
        while (!angara_marker_arrived(t->slot, t->value)) {
            turn(t);
        }
        memset(r.buf.addr, 0xee, 2 * LONG);
        conf_marker(t, 1);
        conf_marker(t, 2);
    }
    conf_barrier(t);
    if (t->rank != 0) {
        CHECK_DATA(r.far.addr, LONG, t->rank);
    }
    end(t, &r);
}

static int has_byte(const conf_mem_t *mem, size_t length, int byte)
{
    return memchr(mem->addr, byte, length) != NULL;
}

/*
 * The target deregisters its region while the initiator is between two turns, and doesn't wait for
 * it. Nothing is moved afterwards: of the bytes that are written then none arrives, and what the
 * initiator has not told by then is a fault.
 */
static void gone_between(conf_t *t)
{
    const kind_t *kind = t->arg;
    unsigned      i;
    regions_t     r;

    begin(t, &r);
    memset(r.far.addr, kind->is_get ? 0x11 : 0, LONG);
    memset(r.buf.addr, kind->is_get ? 0 : 0x11, LONG);
    conf_barrier(t);
    if (t->rank == 0) {
        CHECK_OK(post(t, 1, &r, 0, LONG));
        ++t->value;
        POST_OK(t, angara_marker(t->peer[1], t->slot, t->value));
        for (i = 0; i < 3; ++i) {
            turn(t);
        }
    }
    conf_barrier(t); /* from here to the next one rank 0 makes no call */
    if (t->rank == 1) {
        if (kind->shared) { /* the memory goes with it */
            CHECK_OK(angara_mem_free(r.far.mr));
        } else {
            CHECK_OK(angara_mr_deregister(r.far.mr));
            memset(r.far.addr, 0x55, LONG);
        }
    }
    conf_barrier(t);
    if (t->rank == 0) {
        if (!angara_marker_arrived(t->slot, t->value)) {
            CONF_WAIT(t, angara_marker_arrived(t->slot, t->value) ||
                             (angara_peer_status(t->peer[1]) != ANGARA_OK));
        }
        CHECK(!is_counted(t) || !angara_marker_arrived(t->slot, t->value));
        if (!angara_marker_arrived(t->slot, t->value)) {
            CHECK_STATUS(conf_settle(t, 1), ANGARA_ERR_PAIR);
        }
        CHECK(!has_byte(&r.buf, LONG, 0x55));
    }
    conf_barrier(t);
    if (t->rank == 1) {
        CHECK(kind->shared || kind->is_get ||
              (memchr(r.far.addr, 0x11, LONG) == NULL && r.far.addr[LONG - 1] == 0x55));
        conf_mem_init(t, &r.far, kind->shared, LONG, ANGARA_ACCESS_ALL); /* for the cleanup */
    }
    end(t, &r);
}

/* A reset between two turns takes the rest back; the pair works on. A disconnect lets it end. */
static void reset_between(conf_t *t)
{
    const kind_t *kind = t->arg;
    unsigned      i;
    regions_t     r;

    begin(t, &r);
    data_fill(r.far.addr, LONG, t->rank);
    data_fill(r.buf.addr, LONG, 99);
    conf_barrier(t);
    if (t->rank == 0) {
        uint64_t before;

        CHECK_OK(post(t, 1, &r, 0, LONG));
        for (i = 0; i < 3; ++i) {
            turn(t);
        }
        CHECK_OK(angara_peer_reset(t->peer[1]));
        before = moved(t);
        for (i = 0; i < 10; ++i) {
            turn(t);
        }
        CHECK(!is_counted(t) || (moved(t) == before));
        CHECK_OK(post(t, 1, &r, 0, LONG));
        conf_marker(t, 1);
        if (kind->is_get) {
            CHECK_DATA(r.buf.addr, LONG, 1);
        }
        data_fill(r.buf.addr, LONG, 77);
        CHECK_OK(post(t, 1, &r, 0, LONG));
        angara_peer_disconnect(t->peer[1]);
        CHECK_OK(angara_peer_connect(t->pe, &t->addr[1], &t->peer[1]));
        if (kind->is_get) {
            CHECK_DATA(r.buf.addr, LONG, 1);
        }
    }
    conf_barrier(t);
    if (!kind->is_get && (t->rank == 1)) {
        CHECK_DATA(r.far.addr, LONG, 77);
    }
    end(t, &r);
}

/* Who sleeps whenever arming allows it doesn't miss that pieces wait. */
static void sleeper(conf_t *t)
{
    regions_t r;

    begin(t, &r);
    conf_barrier(t);
    if (t->rank == 0) {
        struct pollfd fd = {.events = POLLIN};

        CHECK_OK(angara_pe_event_fd(t->pe, &fd.fd));
        CHECK_OK(post(t, 1, &r, 0, LONG));
        ++t->value;
        POST_OK(t, angara_marker(t->peer[1], t->slot, t->value));
        while (!angara_marker_arrived(t->slot, t->value)) {
            if (angara_pe_event_arm(t->pe) == ANGARA_OK) {
                if (!angara_marker_arrived(t->slot, t->value)) {
                    CHECK_EQ(poll(&fd, 1, 1000 * RANK_TIMEOUT), 1);
                }
                angara_pe_event_disarm(t->pe);
            }
            angara_pe_progress(t->pe);
        }
    }
    end(t, &r);
}

/* ---- the own PE, where the caller moves the bytes on a NIC, too -------------------------------
 */

static int is_own_counted(const conf_t *t)
{
    return is_counted(t) || (strcmp(t->attr.provider, "nic") == 0);
}

/* @return how many turns until the marker arrived. */
static unsigned own_turns(conf_t *t)
{
    uint64_t before;
    unsigned turns = 0;

    while (!angara_marker_arrived(t->slot, t->value)) {
        before = moved(t);
        angara_pe_progress(t->pe);
        CHECK(!is_own_counted(t) || (moved(t) - before <= TURN));
        sched_yield();
        ++turns;
    }
    return turns;
}

/* Pieces, with what is posted behind them in order; traffic to another rank passes. */
static void own_pieces(conf_t *t)
{
    const kind_t *kind  = t->arg;
    unsigned      other = (t->rank + 1) % t->nranks;
    uint64_t      before, start, mark = 42;
    regions_t     r;

    begin(t, &r);
    data_fill(r.far.addr, LONG, t->rank);
    data_fill(r.buf.addr, LONG, 99);
    before = moved(t);
    CHECK_OK(post(t, t->rank, &r, 0, LONG));
    CHECK(!is_own_counted(t) || (moved(t) - before <= TURN));
    POST_OK(t,
            angara_offload_put_inline(t->peer[t->rank], &mark, r.keys[t->rank], 0, sizeof(mark)));
    if (is_own_counted(t)) {
        CHECK_STATUS(angara_pe_event_arm(t->pe), ANGARA_INPROGRESS);
        angara_pe_event_disarm(t->pe);
    }
    start = *t->slot;
    ++t->value;
    POST_OK(t, angara_marker(t->peer[t->rank], t->slot, t->value));
    CHECK(!is_own_counted(t) || (*t->slot == start));
    CHECK(own_turns(t) >= (is_own_counted(t) ? LONG / TURN : 0));
    CHECK(memcmp(r.far.addr, &mark, sizeof(mark)) == 0);
    if (kind->is_get) {
        CHECK_DATA(r.buf.addr, LONG, t->rank);
    } else {
        data_fill(r.buf.addr, LONG, 99);
        CHECK(memcmp(r.far.addr + sizeof(mark), r.buf.addr + sizeof(mark), LONG - sizeof(mark)) ==
              0);
    }
    conf_barrier(t);
    CHECK_OK(post(t, t->rank, &r, 0, LONG));
    POST_OK(t, angara_offload_put_inline(t->peer[other], &mark, r.keys[other], 0, sizeof(mark)));
    conf_marker(t, other);
    conf_marker(t, t->rank);
    end(t, &r);
}

/* The sources of a long put have been read when a self marker behind it arrives. */
static void own_self_marker(conf_t *t)
{
    regions_t r;

    begin(t, &r);
    data_fill(r.buf.addr, LONG, 1);
    CHECK_OK(post(t, t->rank, &r, 0, LONG));
    ++t->value;
    POST_OK(t, angara_marker_self(t->pe, t->slot, t->value));
    own_turns(t);
    memset(r.buf.addr, 0xee, LONG);
    conf_marker(t, t->rank);
    CHECK_DATA(r.far.addr, LONG, 1);
    end(t, &r);
}

/* Deregistering the local end, resetting and disconnecting find pieces under way. */
static void own_ends(conf_t *t)
{
    const kind_t *kind = t->arg;
    uint64_t      before;
    unsigned      i;
    regions_t     r;

    begin(t, &r);
    data_fill(r.far.addr, LONG, 1);
    data_fill(r.buf.addr, LONG, 1);
    CHECK_OK(post(t, t->rank, &r, 0, LONG));
    CHECK_OK(angara_mr_deregister(r.buf.mr)); /* what it does there is done first */
    CHECK_DATA(r.buf.addr, LONG, 1);
    conf_marker(t, t->rank); /* a source that has been read may still be on its way */
    CHECK_DATA(r.far.addr, LONG, 1);
    CHECK_OK(
        angara_mr_register(t->dom, r.buf.addr, r.buf.length, ANGARA_ACCESS_LOCAL_WRITE, &r.buf.mr));
    CHECK_OK(post(t, t->rank, &r, 0, LONG));
    angara_pe_progress(t->pe);
    CHECK_OK(angara_peer_reset(t->peer[t->rank]));
    before = moved(t);
    for (i = 0; i < 10; ++i) {
        angara_pe_progress(t->pe);
    }
    CHECK(!is_own_counted(t) || (moved(t) == before));
    data_fill(kind->is_get ? r.far.addr : r.buf.addr, LONG, 2);
    CHECK_OK(post(t, t->rank, &r, 0, LONG));
    angara_peer_disconnect(t->peer[t->rank]);
    CHECK_DATA(kind->is_get ? r.buf.addr : r.far.addr, LONG, 2);
    CHECK_OK(angara_peer_connect(t->pe, &t->addr[t->rank], &t->peer[t->rank]));
    conf_marker(t, t->rank);
    end(t, &r);
}

/* Streams of short operations, which peers that poll may be asked for, several at once. Caught:
 * bytes that are no turn's, or count twice. */
static void streams(conf_t *t)
{
    unsigned  rounds = conf_rounds(10), n, i;
    uint64_t  before;
    regions_t r;

    begin(t, &r);
    for (n = 0; (t->rank == 0) && (n < rounds); ++n) {
        for (i = 0; i < STREAM; ++i) {
            before = moved(t);
            CHECK_OK(post(t, 1 + i % (t->nranks - 1), &r, i * SHORT_MAX,
                          1 + conf_random(t) % SHORT_MAX));
            check_moved(t, before);
        }
        for (i = 0; i < STREAM; ++i) {
            turn(t);
        }
        for (i = 1; i < t->nranks; ++i) {
            conf_marker(t, i);
        }
    }
    for (i = 1; (t->rank == 0) && (i < t->nranks); ++i) {
        conf_tell_over(t, i);
    }
    while ((t->rank != 0) && !conf_is_over(t)) {
        angara_pe_progress(t->pe);
    }
    end(t, &r);
}

#define FOR_KINDS(_ranks, _name)                               \
    static void test_##_name##_get(void **state)               \
    {                                                          \
        static const kind_t kind = {.is_get = 1};              \
                                                               \
        (void)state;                                           \
        conf_run(_ranks, _name, &kind);                        \
    }                                                          \
    static void test_##_name##_put(void **state)               \
    {                                                          \
        static const kind_t kind = {0};                        \
                                                               \
        (void)state;                                           \
        conf_run(_ranks, _name, &kind);                        \
    }                                                          \
    static void test_##_name##_get_shared(void **state)        \
    {                                                          \
        static const kind_t kind = {.is_get = 1, .shared = 1}; \
                                                               \
        (void)state;                                           \
        conf_run(_ranks, _name, &kind);                        \
    }

static void test_streams_little_get(void **state)
{
    static const kind_t kind = {.is_get = 1, .has_little = 1};

    (void)state;
    conf_run(4, streams, &kind);
}

static void test_streams_little_put(void **state)
{
    static const kind_t kind = {.has_little = 1};

    (void)state;
    conf_run(4, streams, &kind);
}

FOR_KINDS(4, others_pass)
FOR_KINDS(4, streams)
FOR_KINDS(2, batches)
FOR_KINDS(2, gone_between)
FOR_KINDS(2, reset_between)
FOR_KINDS(2, sleeper)
FOR_KINDS(2, own_pieces)
FOR_KINDS(1, own_ends)

static void test_own_self_marker(void **state)
{
    static const kind_t kind = {0};

    (void)state;
    conf_run(1, own_self_marker, &kind);
}

static void test_self_marker(void **state)
{
    static const kind_t kind = {0};

    (void)state;
    conf_run(3, self_marker, &kind);
}

#define KINDS(_name)                                                            \
    cmocka_unit_test(test_##_name##_get), cmocka_unit_test(test_##_name##_put), \
        cmocka_unit_test(test_##_name##_get_shared)

int main(void)
{
    const struct CMUnitTest tests[] = {
        KINDS(others_pass),
        KINDS(streams),
        cmocka_unit_test(test_streams_little_get),
        cmocka_unit_test(test_streams_little_put),
        KINDS(batches),
        KINDS(gone_between),
        KINDS(reset_between),
        KINDS(sleeper),
        cmocka_unit_test(test_self_marker),
        KINDS(own_pieces),
        KINDS(own_ends),
        cmocka_unit_test(test_own_self_marker),
    };

    return cmocka_run_group_tests_name("turns", tests, NULL, NULL);
}
