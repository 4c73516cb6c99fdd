/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend of plain memory for tests of the descriptor engine: it writes a log, and stalls,
 * refuses or loses a region when told to.
 */
#ifndef ENGINE_MOCK_H
#define ENGINE_MOCK_H

#include "engine/entry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define LKEY   0x11u
#define RKEY   0x22u
#define SIZE   4096u
#define LIMIT  8u /* ring operations queued */
#define PAIRS  3u
#define LOG    4096u
#define WINDOW 0x1000u /* log entries of window words: WINDOW + offset */

typedef struct {
    ang_pair_t      pair;
    char            remote[SIZE];
    char            window[SIZE];
    unsigned        stall; /* so many INPROGRESS answers before each copy or read back */
    unsigned        held;  /* remote refs not yet released */
    unsigned        faults;
    int             gone; /* its region has been deregistered */
    unsigned        wakes;
    int             shared; /* was the engine at the last fault? */
    uint64_t        whole;  /* copies only so many bytes at once: as an answer that is one */
    angara_status_t last_fault;
    uint64_t        last_key;
    int             flies;    /* its region can be launched to and from */
    int             alone;    /* nothing is launched while something flies */
    angara_status_t launch;   /* what launching says first, if not ANGARA_OK */
    angara_status_t landing;  /* how the next one lands */
    int             gathers;  /* several are better launched one after the other */
    int             waiting;  /* the last one was launched behind another: launched() must follow */
    unsigned        launched; /* so many ever, */
    unsigned        landed;   /* and these have landed */
    unsigned        airtime;  /* looks at a flight before it lands */
} far_t;

typedef struct {
    ang_engine_t engine;
    far_t        far[PAIRS];
    char         local[SIZE];
    uint64_t     slots[16];
    uint64_t     log[LOG];
    unsigned     logged;
    unsigned     calls;            /* of copy and read_back */
    unsigned     batches, batched; /* calls of batch, and how many transfers the last one had */
    unsigned     batch_max;        /* what it performs of them */
    int          queues;           /* it lets them be queued as a run, with an empty queue or not */
    unsigned     along;            /* so many operations of a run it performs with one before, */
    unsigned     asked_along;      /*   and so often it was asked for that */
    int          local_gone;       /* the local region has been deregistered */
    int          refuse;           /* the next copy says that this way is closed */
    unsigned     resolved;         /* calls of remote */
    uint64_t     moved;            /* bytes, by copy and batch */
} mock_t;

static inline mock_t *mock_of(ang_pair_t *pair)
{
    return pair->engine->ctx;
}

static inline far_t *far_of(ang_pair_t *pair)
{
    return (far_t *)pair; /* the pair is its first member */
}

static inline angara_status_t resolve(char *base, uint64_t want, uint64_t key, uint64_t offset,
                                      uint64_t length, ang_ref_t *ref)
{
    if (key != want) {
        return ANGARA_ERR_KEY;
    }
    if ((offset > SIZE) || (length > SIZE - offset)) {
        return ANGARA_ERR_BOUNDS;
    }
    ref->kind   = ANG_REF_HOST;
    ref->addr   = (uintptr_t)base + offset;
    ref->key    = key;
    ref->offset = offset;
    ref->hold   = NULL;
    return ANGARA_OK;
}

static inline angara_status_t mock_local(ang_pair_t *pair, uint64_t key, uint64_t offset,
                                         uint64_t length, unsigned access, ang_ref_t *ref)
{
    (void)access;
    if (mock_of(pair)->local_gone) {
        return ANGARA_ERR_KEY;
    }
    return resolve(mock_of(pair)->local, LKEY, key, offset, length, ref);
}

static inline angara_status_t mock_remote(ang_pair_t *pair, uint64_t key, uint64_t offset,
                                          uint64_t length, unsigned access, const ang_ref_t *near,
                                          ang_ref_t *ref)
{
    angara_status_t status;

    (void)access;
    (void)near;
    if (far_of(pair)->gone) {
        return ANGARA_ERR_KEY;
    }
    status = resolve(far_of(pair)->remote, RKEY, key, offset, length, ref);
    ref->kind |= far_of(pair)->flies ? ANG_REF_LAUNCH : 0;
    far_of(pair)->held += (status == ANGARA_OK);
    ++mock_of(pair)->resolved;
    return status;
}

static inline void mock_release(ang_pair_t *pair, ang_ref_t *ref)
{
    (void)ref;
    assert_true(far_of(pair)->held > 0);
    --far_of(pair)->held;
}

static inline int stalled(ang_pair_t *pair)
{
    mock_t *mock = mock_of(pair);

    return (far_of(pair)->stall != 0) && ((++mock->calls % (far_of(pair)->stall + 1)) != 0);
}

static inline void note(mock_t *mock, uint64_t what)
{
    if (mock->logged < LOG) {
        mock->log[mock->logged++] = what;
    }
}

static inline angara_status_t mock_copy(ang_pair_t *pair, const ang_ref_t *dst,
                                        const ang_ref_t *src, uint64_t end, uint64_t *done)
{
    if (stalled(pair) || (end - *done < far_of(pair)->whole)) {
        return ANGARA_INPROGRESS;
    }
    if (mock_of(pair)->refuse) {
        mock_of(pair)->refuse = 0;
        return ANGARA_ERR_UNSUPPORTED;
    }
    memmove((char *)(uintptr_t)dst->addr + *done, (const char *)(uintptr_t)src->addr + *done,
            end - *done);
    mock_of(pair)->moved += end - *done;
    *done = end;
    return ANGARA_OK;
}

/* A flight moves its bytes when it lands. */
typedef struct {
    unsigned number;
    unsigned looks;
    void    *dst;
    void    *src;
    uint64_t length;
} mock_flight_t;

static inline angara_status_t mock_launch(ang_pair_t *pair, unsigned op, const ang_ref_t *local,
                                          const ang_ref_t *remote, uint64_t length,
                                          const ang_flight_t *after, ang_flight_t *room)
{
    mock_flight_t  *flight = (mock_flight_t *)(void *)room;
    far_t          *far    = far_of(pair);
    int             is_put = op == ANG_OP_PUT;
    angara_status_t status = far->launch;

    assert_true(far->held > 0);
    if (!far->gathers) {
        assert_int_equal(after != NULL, far->launched > far->landed);
    }
    if (after != NULL && !far->gathers) {
        assert_int_equal(((const mock_flight_t *)(const void *)after)->number, far->launched);
    }
    if (status != ANGARA_OK) {
        far->launch = ANGARA_OK;
        return status;
    }
    if (far->alone && (after != NULL)) {
        return ANGARA_ERR_NO_RESOURCE;
    }
    far->waiting = after != NULL;
    *flight      = (mock_flight_t){.number = ++far->launched,
                                   .dst    = (void *)(uintptr_t)(is_put ? remote : local)->addr,
                                   .src    = (void *)(uintptr_t)(is_put ? local : remote)->addr,
                                   .length = length};
    return ANGARA_INPROGRESS;
}

static inline int mock_gathers(ang_pair_t *pair, const ang_flight_t *flight)
{
    (void)flight;
    return far_of(pair)->gathers;
}

static inline void mock_launched(ang_pair_t *pair, ang_flight_t *flight)
{
    (void)flight;
    far_of(pair)->waiting = 0;
}

static inline angara_status_t mock_landed(ang_pair_t *pair, ang_flight_t *room)
{
    mock_flight_t  *flight = (mock_flight_t *)(void *)room;
    far_t          *far    = far_of(pair);
    angara_status_t status = far->landing;

    assert_false(far->waiting);
    if (flight->looks++ < far->airtime) {
        return ANGARA_INPROGRESS;
    }
    ++far->landed;
    assert_true(far->gathers || flight->number == far->landed); /* in order, and each once */
    far->landing = ANGARA_OK;
    if (status == ANGARA_OK) {
        memmove(flight->dst, flight->src, flight->length);
    }
    return status;
}

static inline unsigned mock_batch(ang_pair_t *pair, ang_op_t op, const ang_item_t *items,
                                  unsigned count)
{
    mock_t  *mock = mock_of(pair);
    far_t   *far  = far_of(pair);
    unsigned i;

    assert_int_equal(op, ANG_OP_PUT);
    ++mock->batches;
    if (mock->queues) {
        return ANG_BATCH_QUEUE;
    }
    mock->batched = count;
    assert_int_equal(pair->error, ANGARA_OK);
    assert_null(pair->head);
    for (i = 0; (i < count) && (i < mock->batch_max); ++i) {
        assert_true(items[i].rkey == RKEY);
        memcpy(far->remote + items[i].roffset, mock->local + items[i].loffset, items[i].length);
        mock->moved += items[i].length;
    }
    return i;
}

static inline int mock_runs(ang_pair_t *pair, ang_op_t op, const ang_item_t *items, unsigned count)
{
    assert_int_equal(op, ANG_OP_PUT);
    assert_non_null(items);
    assert_true(count > 0);
    return mock_of(pair)->queues;
}

static inline int mock_along(ang_pair_t *pair, const ang_desc_t *desc, uint64_t *budget)
{
    (void)pair;
    (void)desc;
    (void)budget;
    return 0;
}

static inline unsigned mock_along_run(ang_pair_t *pair, ang_op_t op, const ang_item_t *items,
                                      unsigned count, uint64_t *budget)
{
    mock_t  *mock = mock_of(pair);
    unsigned i;

    assert_int_equal(op, ANG_OP_PUT);
    ++mock->asked_along;
    for (i = 0; (i < count) && (i < mock->along) && (items[i].length <= *budget); ++i) {
        memcpy(far_of(pair)->remote + items[i].roffset, mock->local + items[i].loffset,
               items[i].length);
        *budget -= items[i].length;
        mock->moved += items[i].length;
    }
    mock->along -= i;
    return i;
}

static inline angara_status_t mock_atomic(ang_pair_t *pair, const ang_ref_t *ref,
                                          const ang_desc_t *desc, uint64_t *old)
{
    note(mock_of(pair), desc->operand);
    memcpy(old, (const void *)(uintptr_t)ref->addr, desc->width);
    return ANGARA_OK;
}

static inline angara_status_t mock_read_back(ang_pair_t *pair)
{
    return stalled(pair) ? ANGARA_INPROGRESS : ANGARA_OK;
}

static inline void mock_marker_land(ang_engine_t *engine, uint64_t slot, uint64_t value)
{
    mock_t *mock = engine->ctx;

    mock->slots[slot] = value;
    note(mock, value);
}

static inline void mock_window_write(ang_pair_t *pair, uint64_t offset, const void *src,
                                     size_t length)
{
    memcpy(far_of(pair)->window + offset, src, length);
}

static inline void mock_window_word(ang_pair_t *pair, uint64_t offset, uint64_t value,
                                    unsigned width)
{
    memcpy(far_of(pair)->window + offset, &value, width);
    note(mock_of(pair), (WINDOW + offset) << 32 | value);
}

static inline void mock_window_wake(ang_pair_t *pair)
{
    ++far_of(pair)->wakes;
}

static inline void mock_fault(ang_pair_t *pair, uint64_t key, angara_status_t status)
{
    ++far_of(pair)->faults;
    far_of(pair)->shared     = ang_engine_is_shared(pair->engine);
    far_of(pair)->last_fault = status;
    far_of(pair)->last_key   = key;
}

static const ang_backend_t backend = {
    .local        = mock_local,
    .remote       = mock_remote,
    .release      = mock_release,
    .copy         = mock_copy,
    .launch       = mock_launch,
    .gathers      = mock_gathers,
    .launched     = mock_launched,
    .landed       = mock_landed,
    .batch        = mock_batch,
    .runs         = mock_runs,
    .along        = mock_along,
    .along_run    = mock_along_run,
    .atomic       = mock_atomic,
    .read_back    = mock_read_back,
    .marker_land  = mock_marker_land,
    .window_write = mock_window_write,
    .window_word  = mock_window_word,
    .window_wake  = mock_window_wake,
    .fault        = mock_fault,
};

/* Longest usual delay of an entry in chaos mode: long against posting, under valgrind too. */
#define DELAY_US 500

static inline mock_t *mock_new(uint64_t seed)
{
    mock_t  *mock = calloc(1, sizeof(*mock));
    unsigned i;

    assert_non_null(mock);
    assert_int_equal(ang_engine_init(&mock->engine, &backend, mock, (seed != 0) ? LOG : LIMIT, SIZE,
                                     seed, DELAY_US),
                     ANGARA_OK);
    for (i = 0; i < PAIRS; ++i) {
        ang_engine_pair_add(&mock->engine, &mock->far[i].pair);
    }
    return mock;
}

static inline void mock_free(mock_t *mock)
{
    unsigned i;

    for (i = 0; i < PAIRS; ++i) {
        ang_engine_pair_remove(&mock->far[i].pair);
        assert_int_equal(mock->far[i].held, 0);
    }
    assert_int_equal(mock->engine.pending, 0);
    ang_engine_cleanup(&mock->engine);
    free(mock);
}

static inline angara_status_t post_put(mock_t *mock, unsigned to, uint64_t loffset,
                                       uint64_t roffset, uint64_t length)
{
    ang_desc_t desc = {.op      = ANG_OP_PUT,
                       .lkey    = LKEY,
                       .loffset = loffset,
                       .rkey    = RKEY,
                       .roffset = roffset,
                       .length  = length};

    return ang_engine_post(&mock->far[to].pair, &desc, NULL);
}

static inline angara_status_t post_marker(mock_t *mock, unsigned to, ang_op_t op, uint64_t slot,
                                          uint64_t value)
{
    ang_desc_t desc = {.op = (uint8_t)op, .loffset = slot, .operand = value};

    return ang_engine_post(&mock->far[to].pair, &desc, NULL);
}

static inline angara_status_t post_atomic(mock_t *mock, unsigned to, uint64_t operand)
{
    ang_desc_t desc = {.op      = ANG_OP_ATOMIC,
                       .atomic  = ANGARA_ATOMIC_ADD,
                       .width   = 8,
                       .rkey    = RKEY,
                       .operand = operand};

    return ang_engine_post(&mock->far[to].pair, &desc, NULL);
}

static inline void progress_until(mock_t *mock, const uint64_t *slot, uint64_t value)
{
    struct timespec pause = {0, 20000};
    unsigned        turns;

    for (turns = 0; *(const volatile uint64_t *)slot != value; ++turns) {
        assert_true(turns < 100000);
        if (ang_engine_progress(&mock->engine) == 0) {
            nanosleep(&pause, NULL);
        }
    }
}

#endif
