/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which way a pair's puts and gets of private memory go: the target is asked, or process_vm is
 * called, whichever was faster (pace.h; unit/pace tests the rule alone).
 */
#include "silent_target.h"

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

/* @return 1 if the target was asked for one of so many bytes. */
static int is_asked(angara_mr_h mr, unsigned access, uint64_t length)
{
    int asked;

    soft_peer(f.peer)->agent_distrust = 0;
    transfer(mr, access, length);
    asked = soft_peer(f.peer)->agent >= 0;
    settle();
    return asked;
}

static angara_mr_h register_memory(void)
{
    angara_mr_h mr;

    assert_int_equal(angara_mr_register(f.dom, memory, sizeof(memory), ANGARA_ACCESS_ALL, &mr),
                     ANGARA_OK);
    return mr;
}

/* Each length of each kind goes the way that was the faster one for it alone. */
static void test_paced(void **state)
{
    static const struct {
        uint64_t length;
        int      index; /* of its pace, or -1 */
        int      is_asked;
    } cases[] = {
        {SOFT_PACED, -1, 1},
        {SOFT_PACED + 1, 0, 0},
        {2 * SOFT_PACED, 0, 0},
        {2 * SOFT_PACED + 1, 1, 0},
        {(SOFT_PACES + 1) * SOFT_PACED, SOFT_PACES - 1, 0},
        {(SOFT_PACES + 1) * SOFT_PACED + 1, -1, 0},
    };
    static const unsigned accesses[] = {ANGARA_ACCESS_REMOTE_WRITE, ANGARA_ACCESS_REMOTE_READ};
    angara_mr_h           mr         = register_memory();
    soft_pace_t(*paces)[SOFT_PACES]  = soft_peer(f.peer)->paces.pace;

    (void)state;
    for (unsigned kind = 0; kind < 2; ++kind) {
        for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
            /* All but this one's say the opposite; -1: both of them, in turn. */
            for (int called = 0; called < 2; ++called) {
                for (unsigned k = 0; k < 2 * SOFT_PACES; ++k) {
                    int own = k / SOFT_PACES == kind && (int)(k % SOFT_PACES) == cases[i].index;

                    paces[k / SOFT_PACES][k % SOFT_PACES] = (soft_pace_t){
                        .ns = {called == own ? 2000 : 1000, 1500}};
                }
                assert_int_equal(is_asked(mr, accesses[kind], cases[i].length),
                                 cases[i].index < 0 ? cases[i].is_asked : !called);
            }
        }
    }
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
}

/* What one took is learnt of that one alone: not of a batch, nor of another one. */
static void test_paced_times(void **state)
{
    angara_mr_h   mr    = register_memory();
    soft_peer_t  *peer  = soft_peer(f.peer);
    soft_paces_t *paces = &peer->paces;
    soft_pace_t  *pace  = &paces->pace[0][1];

    (void)state;
    assert_true(is_asked(mr, ANGARA_ACCESS_REMOTE_WRITE, 3 * SOFT_PACED));
    assert_int_equal(pace->ns[SOFT_PACE_ASKED], 0);
    pace->count = SOFT_PACE_TIMED / 2;
    assert_true(is_asked(mr, ANGARA_ACCESS_REMOTE_WRITE, 3 * SOFT_PACED));
    assert_int_not_equal(pace->ns[SOFT_PACE_ASKED], 0);
    assert_int_equal(pace->ns[SOFT_PACE_CALLED], 0);

    *pace = (soft_pace_t){.ns = {2, 1}, .count = SOFT_PACE_TIMED / 2};
    assert_false(is_asked(mr, ANGARA_ACCESS_REMOTE_WRITE, 3 * SOFT_PACED));
    assert_int_equal(pace->ns[SOFT_PACE_ASKED], 2);
    assert_int_not_equal(pace->ns[SOFT_PACE_CALLED], 1);

    *pace = (soft_pace_t){.count = SOFT_PACE_TIMED / 2 - 1}; /* the second one is timed */
    for (unsigned i = 0; i < 3; ++i) {
        transfer(mr, ANGARA_ACCESS_REMOTE_WRITE, i < 2 ? 2 * SOFT_PACED + 8 : 8);
    }
    settle();
    assert_int_equal(pace->count, SOFT_PACE_TIMED / 2 + 1);
    assert_int_equal(pace->ns[SOFT_PACE_ASKED], 0);

    /* One that was timed and has failed; then one that isn't. */
    *pace                = (soft_pace_t){.ns = {0, 0}};
    paces->timed         = pace;
    paces->way           = SOFT_PACE_CALLED;
    paces->length        = 3 * SOFT_PACED;
    peer->agent_distrust = 2;
    transfer(mr, ANGARA_ACCESS_REMOTE_WRITE, 3 * SOFT_PACED);
    settle();
    assert_int_equal(pace->ns[SOFT_PACE_CALLED], 0);
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_paced),
        TEST(test_paced_times),
    };

    return cmocka_run_group_tests_name("paced", tests, NULL, NULL);
}
