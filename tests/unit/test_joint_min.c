/* SPDX-License-Identifier: BSD-3-Clause */
/* From which length on a put or get asks for the target's help (ANGARA_JOINT_MIN). */
#define _GNU_SOURCE
#include "joint.h"
#include "silent_target.h"

#include "src/clock.h"
#include "src/config.h"

/* The shortest that does, of up to 4 MiB, with so many operations queued. */
static uint64_t shortest(unsigned pending, int is_mapped)
{
    const ang_ref_t near   = {.kind = ANG_REF_HOST, .key = 1};
    ang_engine_t   *engine = soft_peer(f.peer)->pair.engine;
    uint64_t        no = 0, yes = (uint64_t)4 << 20, middle;
    unsigned        queued = engine->pending;

    soft_pe(f.pe)->crowd.is_so     = 0;
    soft_pe(f.pe)->crowd.looked_ns = ang_clock_ns(CLOCK_MONOTONIC_COARSE);
    engine->pending                = pending;
    while (yes - no > 1) {
        middle = (no + yes) / 2;
        if (soft_joint_is_worth(soft_peer(f.peer), middle, &near, is_mapped)) {
            yes = middle;
        } else {
            no = middle;
        }
    }
    engine->pending = queued;
    return yes;
}

/* Pieces are copied by it. */
static void needs_process_vm(void)
{
    if (!soft_peer(f.peer)->cma) {
        skip();
    }
}

/* A stream's from ANGARA_JOINT_MIN on, a quarter of it if no other operation waits. */
static void test_alone(void **state)
{
    (void)state;
    needs_process_vm();
    assert_int_equal(shortest(0, 0), ang_config.joint_min / 4);
    assert_int_equal(shortest(1, 0), ang_config.joint_min / 4);
    assert_int_equal(shortest(2, 0), ang_config.joint_min);
    assert_int_equal(shortest(100, 0), ang_config.joint_min);
}

/* That of memory which is mapped four times as much, alone or not. */
static void test_mapped(void **state)
{
    (void)state;
    needs_process_vm();
    assert_int_equal(shortest(0, 1), ang_config.joint_min * 4);
    assert_int_equal(shortest(100, 1), ang_config.joint_min * 4);
}

/* Nothing that one request could carry is shared, whatever ANGARA_JOINT_MIN says. */
static void test_short(void **state)
{
    uint64_t old = ang_config.joint_min;

    (void)state;
    needs_process_vm();
    ang_config.joint_min = 4096;
    assert_int_equal(shortest(0, 0), SOFT_SHORT + 1);
    ang_config.joint_min = (uint64_t)1 << 40;
    assert_int_equal(shortest(0, 0), (uint64_t)4 << 20); /* none */
    ang_config.joint_min = old;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_mapped),
        cmocka_unit_test(test_short),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
