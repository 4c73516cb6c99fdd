/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A target that the test plays: it serves requests of a pair as far as it likes, and looks at what
 * the requester has by then.
 */
#ifndef ANGARA_TESTS_PLAYED_TARGET_H
#define ANGARA_TESTS_PLAYED_TARGET_H

#include "silent_target.h"

#include "src/clock.h"

#include <pthread.h>

#define PIECE  ((uint64_t)65536)
#define STAGED (SOFT_SLOT_BYTES + 8u) /* bytes that have no room in the slot */
#define LONG   (3 * PIECE + STAGED)

static char        memory[LONG];
static angara_mr_h mr;

static inline int begin(void **state)
{
    int status = setup(state);

    if (status == 0) {
        ang_config.joint_min = UINT64_MAX;
        memset(memory, 0, sizeof(memory));
        status = angara_mr_register(f.dom, memory, sizeof(memory), ANGARA_ACCESS_ALL, &mr);
    }
    return status;
}

static inline int end(void **state)
{
    angara_mr_deregister(mr);
    return teardown(state);
}

static inline soft_slot_t *slot(void)
{
    assert_true(soft_peer(f.peer)->agent >= 0);
    return soft_agent_slot(soft_peer(f.peer));
}

static inline char *staging(void)
{
    return soft_agent_staging(soft_peer(f.peer));
}

/* The pair trusts its peer, whose slot has staging memory. */
static inline void trust(void)
{
    soft_pe(f.pe)->crowd.is_so        = 0;
    soft_pe(f.pe)->crowd.looked_ns    = ang_clock_ns(CLOCK_MONOTONIC_COARSE);
    soft_peer(f.peer)->agent_distrust = 0;
    soft_peer(f.peer)->now_skip       = 1;
    for (unsigned i = 0; i < SOFT_PACES; ++i) { /* nor do the first ones go by process_vm */
        soft_peer(f.peer)->paces.single[0][i].rest = 0;
        soft_peer(f.peer)->paces.single[1][i].rest = 0;
    }
    /* Nor is the other way tried for short ones. */
    soft_peer(f.peer)->paces.run[0][0] = (soft_pace_t){.ns = {1, 2}, .told = {1, 1}, .count = 256};
}

static inline void prepare(void)
{
    trust();
    assert_int_equal(angara_offload_get(f.peer, mr, memory, f.hello.key, 0, STAGED), ANGARA_OK);
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
    wait_for_answer();
    trust();
}

static inline void serve(void)
{
    uint64_t state = slot()->state;

    assert_int_equal(soft_state_phase(state), SOFT_POSTED);
    __atomic_store_n(&slot()->state, soft_state_to(state, SOFT_SERVING), __ATOMIC_RELEASE);
}

static inline void fill(uint64_t at)
{
    __atomic_store_n(&slot()->filled, at, __ATOMIC_RELEASE);
    angara_pe_progress(f.pe);
}

static inline void answer(angara_status_t status, uint64_t count)
{
    slot()->request.operand = count;
    slot()->status          = status;
    __atomic_store_n(&slot()->state, soft_state_to(slot()->state, SOFT_DONE), __ATOMIC_RELEASE);
    angara_pe_progress(f.pe);
}

static inline void assert_bytes(uint64_t at, uint64_t end_at, char value)
{
    for (; at < end_at; ++at) {
        assert_int_equal(memory[at], value);
    }
}

static inline angara_status_t fault(void)
{
    angara_event_t event;

    for (unsigned i = 0; i < LONG_MS; ++i) {
        angara_pe_progress(f.pe);
        if (angara_pe_event_poll(f.pe, &event) == ANGARA_OK) {
            assert_true(event.type == ANGARA_EVENT_FAULT || event.type == ANGARA_EVENT_PEER_DOWN);
            return event.type == ANGARA_EVENT_FAULT ? event.status : ANGARA_ERR_PEER_DEAD;
        }
        sleep_ms(1);
    }
    fail_msg("no fault");
    return ANGARA_OK;
}

/* How many operations are queued. */
static inline uint64_t pending(void)
{
    return soft_pe(f.pe)->engine.pending;
}

#endif
