/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which way a pair's puts and gets of private memory go: the target is asked, or process_vm is
 * called, whichever was faster (pace.h; unit/pace tests the rule alone).
 */
#include "silent_target.h"
#include "way.h"

#include "src/clock.h"

static char memory[TARGET_BYTES];

static void transfer(angara_mr_h mr, unsigned access, uint64_t length)
{
    angara_status_t status = access == ANGARA_ACCESS_REMOTE_READ ?
                                 angara_offload_get(f.peer, mr, memory, f.hello.key, 0, length) :
                                 angara_offload_put(f.peer, mr, memory, f.hello.key, 0, length);

    assert_int_equal(status, ANGARA_OK);
}

static void settle(void)
{
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
    wait_for_answer();
}

/* The target is trusted to poll, and to have a processor of its own. Nothing is waited for within
 * its call. */
static void trust(void)
{
    soft_peer(f.peer)->now_skip       = 1;
    soft_peer(f.peer)->agent_distrust = 0;
    soft_pe(f.pe)->crowd.is_so        = 0;
    soft_pe(f.pe)->crowd.looked_ns    = ang_clock_ns(CLOCK_MONOTONIC_COARSE);
}

static unsigned long long requests(void)
{
    return soft_pe(f.pe)->counters.services;
}

/* @return 1 if the target was asked for one of so many bytes. */
static int is_asked(angara_mr_h mr, unsigned access, uint64_t length)
{
    unsigned long long before = requests();

    trust();
    transfer(mr, access, length);
    settle();
    return requests() != before;
}

#define RUN 5u /* of those longer than SOFT_PACED they are more than SOFT_PACE_UNIT bytes */

/* The same, for a run of them. */
static int run_is_asked(angara_mr_h mr, unsigned access, uint64_t length)
{
    unsigned long long before = requests();
    angara_xfer_t      xfers[RUN];
    unsigned           posted;

    trust();
    for (unsigned i = 0; i < RUN; ++i) {
        xfers[i] = (angara_xfer_t){
            .lmr = mr, .laddr = memory, .rkey = f.hello.key, .length = length};
    }
    assert_int_equal(angara_offload_batch(f.peer,
                                          access == ANGARA_ACCESS_REMOTE_READ ? ANGARA_BATCH_GET :
                                                                                ANGARA_BATCH_PUT,
                                          xfers, RUN, &posted),
                     ANGARA_OK);
    assert_int_equal(posted, RUN);
    settle();
    return requests() != before;
}

static angara_mr_h register_memory(void)
{
    angara_mr_h mr;

    ang_config.joint_min = UINT64_MAX; /* those are asked for, too */
    assert_int_equal(angara_mr_register(f.dom, memory, sizeof(memory), ANGARA_ACCESS_ALL, &mr),
                     ANGARA_OK);
    return mr;
}

/* Let all lengths go one way, but the one that is given. */
static void set_paces(soft_pace_t *own, int called)
{
    soft_paces_t *paces = &soft_peer(f.peer)->paces;
    soft_pace_t  *all   = &paces->single[0][0];

    for (unsigned i = 0; i < sizeof(paces->single) / sizeof(*all); ++i) {
        all  = &paces->single[0][0] + i;
        *all = (soft_pace_t){.ns = {called == (all == own) ? 2000 : 1000, 1500}};
        all  = &paces->run[0][0] + i;
        *all = (soft_pace_t){.ns = {called == (all == own) ? 2000 : 1000, 1500}};
    }
}

/* Each length of each kind goes the way that was the faster one for it alone: by itself, but for
 * the shortest ones, which are asked for, and as one of many. */
static void test_paced(void **state)
{
    static const unsigned accesses[] = {ANGARA_ACCESS_REMOTE_WRITE, ANGARA_ACCESS_REMOTE_READ};
    angara_mr_h           mr         = register_memory();
    soft_paces_t         *paces      = &soft_peer(f.peer)->paces;

    (void)state;
    for (unsigned kind = 0; kind < 2; ++kind) {
        for (unsigned i = 0; i < SOFT_PACES; ++i) {
            for (int called = 0; called < 2; ++called) {
                uint64_t length = ((uint64_t)SOFT_PACED << i) - (uint64_t)called;

                set_paces(&paces->single[kind][i], called);
                assert_int_equal(is_asked(mr, accesses[kind], length), i == 0 || !called);
                set_paces(&paces->run[kind][i], called);
                if (RUN * length <= ang_config.turn_bytes) {
                    assert_int_equal(run_is_asked(mr, accesses[kind], length), !called);
                }
            }
        }
    }
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
}

/* What one took is learnt of those of its kind: not of a batch with others. */
static void test_paced_times(void **state)
{
    angara_mr_h   mr    = register_memory();
    soft_peer_t  *peer  = soft_peer(f.peer);
    soft_paces_t *paces = &peer->paces;
    soft_pace_t  *pace  = &paces->single[0][2];

    (void)state;
    *pace = (soft_pace_t){.rest = 1};
    assert_false(is_asked(mr, ANGARA_ACCESS_REMOTE_WRITE, 3 * SOFT_PACED));
    assert_int_equal(pace->ns[SOFT_PACE_CALLED], 0);
    assert_true(is_asked(mr, ANGARA_ACCESS_REMOTE_WRITE, 3 * SOFT_PACED));
    assert_int_equal(pace->ns[SOFT_PACE_ASKED], 0);
    pace->count = 1;
    assert_true(is_asked(mr, ANGARA_ACCESS_REMOTE_WRITE, 3 * SOFT_PACED));
    assert_int_not_equal(pace->ns[SOFT_PACE_ASKED], 0);
    assert_int_equal(pace->ns[SOFT_PACE_CALLED], 0);

    *pace = (soft_pace_t){.ns = {2, 1}, .count = 1};
    assert_false(is_asked(mr, ANGARA_ACCESS_REMOTE_WRITE, 3 * SOFT_PACED));
    assert_int_equal(pace->ns[SOFT_PACE_ASKED], 2);
    assert_int_not_equal(pace->ns[SOFT_PACE_CALLED], 1);

    pace  = &paces->run[0][2];
    *pace = (soft_pace_t){.count = 1};
    assert_true(run_is_asked(mr, ANGARA_ACCESS_REMOTE_WRITE, 3 * SOFT_PACED));
    assert_int_not_equal(pace->ns[SOFT_PACE_ASKED], 0);
    *pace = (soft_pace_t){.ns = {2, 1}, .count = 1};
    assert_false(run_is_asked(mr, ANGARA_ACCESS_REMOTE_WRITE, 3 * SOFT_PACED));
    assert_int_not_equal(pace->ns[SOFT_PACE_CALLED], 1);

    pace  = &paces->single[0][2];
    *pace = (soft_pace_t){.count = 1}; /* a short one goes along */
    trust();
    transfer(mr, ANGARA_ACCESS_REMOTE_READ, 4096);
    transfer(mr, ANGARA_ACCESS_REMOTE_WRITE, 3 * SOFT_PACED);
    transfer(mr, ANGARA_ACCESS_REMOTE_WRITE, 8);
    settle();
    assert_int_equal(pace->ns[SOFT_PACE_ASKED], 0);

    /* One that was timed and has failed; then one that isn't. */
    paces->timed         = pace;
    paces->begun_ns      = 1;
    peer->agent_distrust = 2;
    transfer(mr, ANGARA_ACCESS_REMOTE_WRITE, 3 * SOFT_PACED);
    settle();
    assert_int_equal(pace->ns[SOFT_PACE_CALLED], 0);
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
}

/* A way is chosen once, however many turns there are, and told of what it moved. */
static void test_paced_long(void **state)
{
    angara_mr_h   mr     = register_memory();
    soft_paces_t *paces  = &soft_peer(f.peer)->paces;
    soft_pace_t  *single = &paces->single[1][SOFT_PACES - 1];
    uint64_t      turn   = ang_config.turn_bytes;
    uint64_t      length = sizeof(memory);

    (void)state;
    for (int called = 0; called < 2; ++called) {
        set_paces(single, called);
        single->count                    = 1;
        soft_pe(f.pe)->engine.turn_bytes = 65536;
        trust();
        transfer(mr, ANGARA_ACCESS_REMOTE_READ, length);
        assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK); /* none of a run */
        angara_pe_progress(f.pe);
        assert_int_equal(soft_peer(f.peer)->agent >= 0, !called);
        wait_for_answer();
        assert_int_equal(single->count, 2);
        assert_int_equal(paces->decided, SOFT_IS_OPEN);
        assert_null(paces->timed);
        soft_pe(f.pe)->engine.turn_bytes = turn;
    }
    assert_int_not_equal(single->ns[SOFT_PACE_CALLED], 1500);
    assert_true(single->ns[SOFT_PACE_CALLED] > 1500 / 2); /* as if a turn's time were all's */
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
}

/* What only the peer's process may do it is always asked for, whatever the pace. */
static void test_paced_needed(void **state)
{
    soft_peer_t   *peer = soft_peer(f.peer);
    soft_pace_t   *pace = &peer->paces.single[1][soft_pace_class(16384)];
    const int      cma  = peer->cma;
    const uint64_t key  = f.hello.key;

    (void)state;
    trust();
    for (int forbidden = 0; forbidden < 2; ++forbidden) {
        peer->cma = cma && !forbidden;
        *pace     = (soft_pace_t){.ns = {2000, 0}, .told = {2, 0}, .count = 5};
        assert_int_equal(soft_way_single_is_asked(peer, ANGARA_ACCESS_REMOTE_READ, key, 16384),
                         forbidden);
        assert_null(peer->paces.timed);
    }
    peer->cma = cma;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_paced),
        TEST(test_paced_times),
        TEST(test_paced_long),
        TEST(test_paced_needed),
    };

    return cmocka_run_group_tests_name("paced", tests, NULL, NULL);
}
