/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A PE whose slots a test fills with requests, as another process would (provider/soft/service.h).
 * Include cmocka.h before this.
 */
#ifndef ANGARA_TESTS_SERVICE_SLOT_H
#define ANGARA_TESTS_SERVICE_SLOT_H

#include "../common/clock.h"
#include "soft.h"

#include "src/clock.h"
#include "src/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SIZE     4096u
#define LONG_MS  5000u /* for an answer that must come */
#define SHORT_MS 5u    /* for one that must not */
#define SLOT     3u

static struct {
    angara_domain_h dom;
    soft_pe_t      *target;
    soft_slot_t    *slot;
    angara_mr_h     all, readable, writable;
    char            memory[3][SIZE];
} f;

static inline int setup(void **state_p)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = SIZE};
    angara_pe_h        pe;

    (void)state_p;
    memset(&f, 0, sizeof(f));
    ang_log_level = ANG_LOG_ERROR; /* and those are expected here */
    if ((angara_open("soft", &f.dom) != ANGARA_OK) ||
        (angara_pe_create(f.dom, &params, &pe) != ANGARA_OK)) {
        return -1;
    }
    f.target = soft_pe(pe);
    memset(f.memory, 0x11, sizeof(f.memory));
    if ((angara_mr_register(f.dom, f.memory[0], SIZE, ANGARA_ACCESS_ALL, &f.all) != ANGARA_OK) ||
        (angara_mr_register(f.dom, f.memory[1], SIZE, ANGARA_ACCESS_REMOTE_READ, &f.readable) !=
         ANGARA_OK) ||
        (angara_mr_register(f.dom, f.memory[2], SIZE, ANGARA_ACCESS_REMOTE_WRITE, &f.writable) !=
         ANGARA_OK)) {
        return -1;
    }
    f.slot        = &f.target->service->slots[SLOT];
    f.slot->owner = soft_owner();
    return 0;
}

static inline int teardown(void **state_p)
{
    (void)state_p;
    angara_mr_deregister(f.all);
    angara_mr_deregister(f.readable);
    angara_mr_deregister(f.writable);
    angara_pe_destroy(&f.target->base);
    return (angara_close(f.dom) == ANGARA_OK) ? 0 : -1;
}

static inline char *staging(unsigned slot)
{
    return (char *)f.target->seg + f.target->layout.staging + soft_staging_offset(slot);
}

static inline soft_request_t request(ang_op_t op, uint64_t key, uint64_t offset, uint32_t length)
{
    return (soft_request_t){
        .op = (uint8_t)op, .width = 8, .length = length, .key = key, .offset = offset};
}

static inline uint64_t state(void)
{
    return __atomic_load_n(&f.slot->state, __ATOMIC_ACQUIRE);
}

static inline void post(const soft_request_t *r)
{
    f.slot->request = *r;
    __atomic_store_n(&f.slot->state, (state() / SOFT_TURN + 1) * SOFT_TURN + SOFT_POSTED,
                     __ATOMIC_RELEASE);
}

static inline void ring(unsigned slot)
{
    __atomic_fetch_or(&f.target->service->posted[slot / 64], 1ull << slot % 64, __ATOMIC_ACQ_REL);
    __atomic_store_n(&f.target->service->work, 1, __ATOMIC_SEQ_CST);
}

/* As soft_helper_poll(); this process counts as one with a processor of its own. */
static inline unsigned poll_requests(int joins)
{
    f.target->crowd = (soft_crowd_t){.looked_ns = ang_clock_ns(CLOCK_MONOTONIC_COARSE)};
    return soft_helper_poll(f.target, joins);
}

/* Let what was posted be served. @return 1 if answered within @a ms. */
static inline int served(unsigned ms)
{
    /* The helper thread may be asleep, the owner's progress serves too. */
    for (unsigned i = 0; i <= ms; ++i) {
        poll_requests(1);
        if (soft_state_phase(state()) == SOFT_DONE) {
            return 1;
        }
        sleep_ms(1);
    }
    return 0;
}

static inline int serve(const soft_request_t *r, unsigned ms)
{
    post(r);
    ring((unsigned)(f.slot - f.target->service->slots));
    return served(ms);
}

static inline angara_status_t status_of(soft_request_t r)
{
    assert_true(serve(&r, LONG_MS));
    return (angara_status_t)f.slot->status;
}

#endif
