/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The target's side of service requests: what another process writes into a slot is checked against
 * the own table, and nothing but the slot and its staging memory is written for it. Initiators of
 * this library check before they ask, so only a test asks such things.
 */
#include "no_threads.h"
#include "service_slot.h"

#include "src/config.h"
#include "src/log.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define STAGED (SOFT_SLOT_BYTES + 8u) /* bytes that have no room in the slot */

static void assert_untouched(void)
{
    unsigned i, j;

    for (i = 0; i < 3; ++i) {
        for (j = 0; j < SIZE; ++j) {
            assert_int_equal(f.memory[i][j], 0x11);
        }
    }
}

static void test_good(void **state_p)
{
    soft_request_t r;

    (void)state_p;
    assert_false(f.slot->staged);
    assert_int_equal(status_of(request(ANG_OP_PUT, angara_mr_key(f.all), 8, 0)), ANGARA_OK);
    assert_true(f.slot->staged);
    memset(staging(SLOT), 0x22, SIZE);
    assert_int_equal(status_of(request(ANG_OP_PUT, angara_mr_key(f.all), 8, STAGED)), ANGARA_OK);
    assert_int_equal(f.memory[0][7], 0x11);
    assert_int_equal(f.memory[0][8], 0x22);
    assert_int_equal(f.memory[0][STAGED + 7], 0x22);
    assert_int_equal(f.memory[0][STAGED + 8], 0x11);
    memset(staging(SLOT), 0, SIZE);
    assert_int_equal(status_of(request(ANG_OP_GET, angara_mr_key(f.all), 0, SIZE)), ANGARA_OK);
    assert_memory_equal(staging(SLOT), f.memory[0], SIZE);
    r         = request(ANG_OP_ATOMIC, angara_mr_key(f.all), 0, 0);
    r.atomic  = ANGARA_ATOMIC_ADD;
    r.operand = 1;
    assert_int_equal(status_of(r), ANGARA_OK);
    assert_int_equal(f.slot->request.operand, 0x1111111111111111ll);
    assert_int_equal(f.memory[0][0], 0x12);
    assert_int_equal(status_of(request(ANG_OP_MARKER, 0, 0, 0)), ANGARA_OK);
    memset(f.memory[0], 0x11, SIZE);
}

/* What has room in the slot needs no staging memory, and touches nothing else of the slot. */
static void test_in_slot(void **state_p)
{
    static const uint32_t lengths[] = {1, SOFT_HEAD_BYTES, SOFT_HEAD_BYTES + 1, SOFT_SLOT_BYTES};
    uint64_t              key       = angara_mr_key(f.all);

    (void)state_p;
    f.slot        = &f.target->service->slots[SLOT + 2];
    f.slot->owner = soft_owner();
    for (unsigned i = 0; i < 4; ++i) {
        soft_request_t r = request(ANG_OP_PUT, key, 8, lengths[i]);

        memset(&r.operand, 0x22, sizeof(r) - offsetof(soft_request_t, operand));
        memset(soft_slot_bytes(f.slot), 0x22, SOFT_SLOT_BYTES);
        assert_int_equal(status_of(r), ANGARA_OK);
        assert_int_equal(f.memory[0][7], 0x11);
        assert_int_equal(f.memory[0][lengths[i] + 7], 0x22);
        assert_int_equal(f.memory[0][lengths[i] + 8], 0x11);
        memset(soft_slot_bytes(f.slot), 0, SOFT_SLOT_BYTES);
        assert_int_equal(status_of(request(ANG_OP_GET, key, 8, lengths[i])), ANGARA_OK);
        assert_memory_equal(soft_data_bytes(f.slot, &f.slot->request, lengths[i]), &f.memory[0][8],
                            lengths[i]);
        assert_int_equal(((char *)soft_slot_bytes(f.slot))[SOFT_SLOT_BYTES - 1],
                         lengths[i] == SOFT_SLOT_BYTES ? 0x22 : 0);
        assert_int_equal(f.slot->wake_inode, 0);
        assert_int_equal(f.slot->staged, 0);
        memset(f.memory[0], 0x11, SIZE);
    }
    f.slot = &f.target->service->slots[SLOT];
}

static void test_keys_and_bounds(void **state_p)
{
    static const ang_op_t ops[] = {ANG_OP_PUT, ANG_OP_GET, ANG_OP_ATOMIC};
    uint64_t              key   = angara_mr_key(f.all);
    unsigned              i, bit;

    (void)state_p;
    memset(staging(SLOT), 0x22, SOFT_STAGING);
    for (i = 0; i < 3; ++i) {
        assert_int_equal(status_of(request(ops[i], 0, 0, 8)), ANGARA_ERR_KEY);
        assert_int_equal(status_of(request(ops[i], UINT64_MAX, 0, 8)), ANGARA_ERR_KEY);
        for (bit = 0; bit < 64; ++bit) {
            assert_int_not_equal(status_of(request(ops[i], key ^ (1ull << bit), 4096, 8)),
                                 ANGARA_OK);
        }
        assert_int_equal(status_of(request(ops[i], key, SIZE, 8)), ANGARA_ERR_BOUNDS);
        assert_int_equal(status_of(request(ops[i], key, SIZE - 4, 8)), ANGARA_ERR_BOUNDS);
        assert_int_equal(status_of(request(ops[i], key, UINT64_MAX, 8)), ANGARA_ERR_BOUNDS);
        assert_int_equal(status_of(request(ops[i], key, UINT64_MAX - 7, 8)), ANGARA_ERR_BOUNDS);
        assert_int_equal(status_of(request(ops[i], key, 0 - (uint64_t)SIZE, SIZE)),
                         ANGARA_ERR_BOUNDS);
    }
    assert_int_equal(status_of(request(ANG_OP_PUT, key, 1, SIZE)), ANGARA_ERR_BOUNDS);
    assert_int_equal(status_of(request(ANG_OP_ATOMIC, key, 4, 0)), ANGARA_ERR_BOUNDS);
    assert_untouched();
}

static void test_rights(void **state_p)
{
    uint64_t readable = angara_mr_key(f.readable), writable = angara_mr_key(f.writable);

    (void)state_p;
    memset(staging(SLOT), 0x22, SIZE);
    assert_int_equal(status_of(request(ANG_OP_PUT, readable, 0, 8)), ANGARA_ERR_RIGHTS);
    assert_int_equal(status_of(request(ANG_OP_ATOMIC, readable, 0, 8)), ANGARA_ERR_RIGHTS);
    assert_int_equal(status_of(request(ANG_OP_GET, writable, 0, 8)), ANGARA_ERR_RIGHTS);
    assert_int_equal(status_of(request(ANG_OP_ATOMIC, writable, 0, 8)), ANGARA_ERR_RIGHTS);
    assert_int_equal(*staging(SLOT), 0x22);
    assert_untouched();
}

/* The large pieces of a GPU's memory have slots of their own. */
static void test_large_elsewhere(void **state_p)
{
    uint64_t         key   = angara_mr_key(f.all);
    soft_mr_entry_t *entry = &f.target->dom->shared->entries[SOFT_KEY_INDEX(key)];

    (void)state_p;
    f.slot      = &f.target->service->slots[SOFT_LARGE_SLOTS];
    entry->kind = ANGARA_MEM_CUDA;
    assert_int_equal(status_of(request(ANG_OP_GET, key, 0, SOFT_SMALL_PIECE + 1)),
                     ANGARA_ERR_INVALID);
    assert_int_equal(status_of(request(ANG_OP_PUT, key, 0, SOFT_STAGING)), ANGARA_ERR_INVALID);
    entry->kind = ANGARA_MEM_HOST;
    f.slot      = &f.target->service->slots[SLOT];
}

/* Staging memory of a slot that has room grows as requests come to its end; that of others doesn't.
 * Whatever there is of it, all of it is good for requests. */
static void test_room(void **state_p)
{
    soft_request_t r      = request(ANG_OP_GET, angara_mr_key(f.all), 0, SIZE);
    uint32_t       staged = SOFT_STAGING;

    (void)state_p;
    for (unsigned round = 0; round < 40; ++round) {
        for (uint32_t end = SIZE; end <= f.slot->staged || round + end == SIZE; end += SIZE) {
            r.compare = end - SIZE;
            assert_int_equal(status_of(r), ANGARA_OK);
            assert_in_range(f.slot->staged, staged, 2 * staged);
            staged = f.slot->staged;
            assert_memory_equal(staging(SLOT) + r.compare, f.memory[0], SIZE);
        }
    }
    assert_int_equal(staged, SOFT_ROOM);
    f.slot = &f.target->service->slots[SLOT + 1]; /* of several requesters none moves many bytes */
    for (unsigned i = 0; i < 100; ++i) {
        f.slot->owner = 1 + i % 2;
        r.compare     = SOFT_STAGING - SIZE;
        assert_int_equal(status_of(r), ANGARA_OK);
        assert_int_equal(f.slot->staged, SOFT_STAGING);
    }
    f.slot->owner = 0;
    f.slot        = &f.target->service->slots[SOFT_ROOM_SLOTS];
    r.compare     = SOFT_STAGING - SIZE;
    for (unsigned i = 0; i < 100; ++i) {
        assert_int_equal(status_of(r), ANGARA_OK);
        assert_int_equal(f.slot->staged, SOFT_STAGING);
    }
    f.slot = &f.target->service->slots[SLOT];
}

/* A dead process's slots are given back, but for one that is being served: that is when it ends. */
static void test_reclaimed(void **state_p)
{
    soft_slot_t *slots = f.target->service->slots;
    uint64_t     turn  = 5 * SOFT_TURN;
    uint64_t     dead;
    int          pipes[2];
    pid_t        pid;

    (void)state_p;
    assert_int_equal(pipe(pipes), 0);
    pid = fork();
    if (pid == 0) {
        dead = soft_owner();
        _exit(write(pipes[1], &dead, sizeof(dead)) != sizeof(dead));
    }
    assert_int_equal(read(pipes[0], &dead, sizeof(dead)), sizeof(dead));
    close(pipes[0]);
    close(pipes[1]);
    assert_int_equal(soft_owner_pid(dead), pid);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    for (unsigned i = 0; i < 3; ++i) {
        slots[SLOT + i].owner = i < 2 ? dead : soft_owner();
        slots[SLOT + i].state = turn + (i == 1 ? SOFT_SERVING : SOFT_POSTED);
    }
    soft_agent_reclaim(f.target, pid);
    assert_int_equal(slots[SLOT].owner, 0);
    assert_int_equal(soft_state_phase(slots[SLOT].state), SOFT_IDLE);
    assert_int_equal(slots[SLOT + 1].owner, 0);
    assert_int_equal(soft_state_phase(slots[SLOT + 1].state), SOFT_ABANDONED);
    assert_int_equal(slots[SLOT + 2].owner, soft_owner());
    assert_int_equal(soft_state_phase(slots[SLOT + 2].state), SOFT_POSTED);
    soft_agent_reclaim(f.target, getpid());
    assert_int_equal(slots[SLOT + 2].owner, soft_owner());
    for (unsigned i = 0; i < 3; ++i) {
        slots[SLOT + i].owner = 0;
        slots[SLOT + i].state = turn;
    }
}

/* Requests that make no sense get an error and no service: no memory is touched. */
static void test_nonsense(void **state_p)
{
    uint64_t       key = angara_mr_key(f.all);
    soft_request_t r;

    (void)state_p;
    for (unsigned op = 0; op < 256; ++op) {
        if ((op == ANG_OP_PUT) || (op == ANG_OP_GET) || (op == ANG_OP_ATOMIC) ||
            (op == ANG_OP_MARKER)) {
            continue;
        }
        r    = request(ANG_OP_PUT, key, 0, 8);
        r.op = (uint8_t)op;
        assert_int_equal(status_of(r), ANGARA_ERR_INVALID);
        op += (op > 16) ? 13 : 0;
    }
    assert_int_equal(status_of(request(ANG_OP_GET, key, 0, SOFT_STAGING + 1)), ANGARA_ERR_INVALID);
    assert_int_equal(status_of(request(ANG_OP_PUT, key, 0, UINT32_MAX)), ANGARA_ERR_INVALID);
    for (unsigned i = 0; i < 8; ++i) { /* beyond staging memory */
        const uint64_t places[] = {
            SOFT_ROOM - STAGED + 1,    SOFT_ROOM,          UINT64_MAX - 50,        UINT64_MAX - 99,
            SOFT_STAGING - STAGED + 1, SOFT_ROOM - STAGED, SOFT_ROOM - STAGED + 1, UINT64_MAX - 50};

        f.slot    = &f.target->service->slots[i < 4 ? SLOT : SOFT_ROOM_SLOTS];
        r         = request(i % 2 ? ANG_OP_PUT : ANG_OP_GET, key, 0, STAGED);
        r.compare = places[i];
        assert_int_equal(status_of(r), ANGARA_ERR_INVALID);
        r.op = SOFT_OP_BATCH;
        assert_int_equal(status_of(r), ANGARA_ERR_INVALID);
    }
    r         = request(ANG_OP_PUT, key, 0, 0);
    r.compare = SOFT_ROOM; /* to no end: that is host memory */
    assert_int_equal(status_of(r), ANGARA_ERR_INVALID);
    assert_true(f.slot->staged <= SOFT_STAGING);
    f.slot    = &f.target->service->slots[SLOT];
    r         = request(SOFT_OP_BATCH, key, 0, 0);
    r.compare = 8; /* no place for one */
    assert_int_equal(status_of(r), ANGARA_ERR_INVALID);
    r       = request(ANG_OP_ATOMIC, key, 0, 8);
    r.width = 16;
    assert_int_equal(status_of(r), ANGARA_ERR_INVALID);
    r        = request(ANG_OP_ATOMIC, key, 0, 8);
    r.atomic = ANGARA_ATOMIC_LAST;
    assert_int_equal(status_of(r), ANGARA_ERR_INVALID);
    assert_untouched();
}

/* Random bytes anywhere in a slot, any bit in the mask: nobody crashes, and it still serves. */
static void test_garbage(void **state_p)
{
    soft_slot_t *other = &f.target->service->slots[SLOT + 1];

    (void)state_p;
    for (unsigned n = 0; n < 500; ++n) {
        for (unsigned i = 0; i < sizeof(*other); ++i) {
            ((uint8_t *)other)[i] = (uint8_t)rand();
        }
        other->owner       = 0; /* a test doesn't point at other people's processes */
        other->request.key = 0; /* no memory of ours */
        other->staged      = n % 2;
        if (n % 3 == 0) {
            other->state = n * SOFT_TURN + SOFT_POSTED + SOFT_SLEEPS * (n % 2);
        }
        ring((unsigned)rand() % SOFT_SERVICE_SLOTS);
        ring(SLOT + 1);
        poll_requests(1);
    }
    assert_untouched();
    assert_int_equal(status_of(request(ANG_OP_MARKER, 0, 0, 0)), ANGARA_OK);
}

/* What a requester has withdrawn isn't carried out, though the target is told of the slot. */
static void test_withdrawn(void **state_p)
{
    soft_request_t r = request(ANG_OP_PUT, angara_mr_key(f.all), 0, SIZE);

    (void)state_p;
    assert_int_equal(status_of(request(ANG_OP_GET, angara_mr_key(f.all), 0, 8)), ANGARA_OK);
    memset(staging(SLOT), 0x22, SIZE);
    post(&r);
    f.slot->state = soft_state_to(state(), SOFT_IDLE);
    ring(SLOT);
    assert_false(served(SHORT_MS));
    assert_int_equal(soft_state_phase(state()), SOFT_IDLE);
    assert_untouched();
    /* The next turn of the slot is served. */
    assert_int_equal(status_of(request(ANG_OP_MARKER, 0, 0, 0)), ANGARA_OK);
    assert_untouched();
}

/*
 * What its owner abandons while the target is at it is set free when the target has ended it, and
 * no answer comes; what is answered before that stays answered.
 */
static void test_abandoned(void **state_p)
{
    soft_request_t r = request(ANG_OP_GET, angara_mr_key(f.all), 0, SIZE);
    uint64_t       seen;

    (void)state_p;
    for (unsigned n = 0; n < 2000; ++n) {
        post(&r);
        ring(SLOT);
        assert_true(write(soft_helper_wake_fd(), "", 1) == 1 || errno == EAGAIN);
        do {
            seen = state();
        } while (soft_state_phase(seen) == SOFT_POSTED ||
                 (soft_state_phase(seen) == SOFT_SERVING &&
                  !__atomic_compare_exchange_n(&f.slot->state, &seen,
                                               soft_state_to(seen, SOFT_ABANDONED), 0,
                                               __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)));
        while (soft_state_phase(state()) == SOFT_ABANDONED) {
            sched_yield();
        }
        assert_int_equal(soft_state_phase(state()),
                         soft_state_phase(seen) == SOFT_DONE ? SOFT_DONE : SOFT_IDLE);
    }
}

/* Atomics on memory that the program has made read-only, or unmapped: an answer, not a signal. */
static void test_atomic_unwritable(void **state_p)
{
    char *page = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    soft_request_t r;
    angara_mr_h    mr;

    (void)state_p;
    assert_true(page != MAP_FAILED);
    assert_int_equal(angara_mr_register(f.dom, page, SIZE, ANGARA_ACCESS_ALL, &mr), ANGARA_OK);
    r         = request(ANG_OP_ATOMIC, angara_mr_key(mr), 8, 0);
    r.atomic  = ANGARA_ATOMIC_ADD;
    r.operand = 5;
    assert_int_equal(status_of(r), ANGARA_OK);
    assert_int_equal(page[8], 5);
    assert_int_equal(mprotect(page, SIZE, PROT_READ), 0);
    assert_int_equal(status_of(r), ANGARA_ERR_RIGHTS);
    assert_int_equal(page[8], 5);
    assert_int_equal(mprotect(page, SIZE, PROT_NONE), 0);
    assert_int_equal(status_of(r), ANGARA_ERR_BOUNDS);
    assert_int_equal(munmap(page, SIZE), 0);
    assert_int_equal(status_of(r), ANGARA_ERR_BOUNDS);
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Put an operation into staging memory at @a at. @return where the next one goes. */
static uint32_t item(uint32_t at, soft_request_t r, const void *data)
{
    char *there = staging(SLOT) + at;

    memcpy(there, &r, SOFT_REQUEST_HEAD);
    if (data != NULL) {
        memcpy(soft_item_data((void *)there, at, r.length), data, r.length);
    }
    return soft_item_end(at, &r);
}

static angara_status_t batch(uint32_t length)
{
    return status_of((soft_request_t){.op = SOFT_OP_BATCH, .length = length});
}

/* All of it in order, with its results; with no operation there is staging memory then. */
static void test_batch(void **state_p)
{
    uint64_t       key = angara_mr_key(f.all);
    soft_request_t add = request(ANG_OP_ATOMIC, key, 8, 0);
    char           data[100];
    uint32_t       at;
    soft_request_t got;

    (void)state_p;
    assert_false(f.slot->staged);
    assert_int_equal(batch(0), ANGARA_OK);
    assert_true(f.slot->staged);
    assert_int_equal(f.slot->request.operand, 0);

    memset(data, 0x33, sizeof(data));
    add.atomic  = ANGARA_ATOMIC_ADD;
    add.operand = 1;
    at          = item(0, request(ANG_OP_PUT, key, 8, 8), data);
    at          = item(at, add, NULL);
    at          = item(at, request(ANG_OP_PUT, key, 100, 99), data);
    assert_int_equal(at % 8, 0);
    item(at, request(ANG_OP_GET, key, 8, 8), NULL);
    assert_int_equal(batch(at + SOFT_REQUEST_HEAD), ANGARA_OK);
    assert_int_equal(f.slot->request.operand, 4);
    assert_int_equal(f.memory[0][8], 0x34);
    assert_int_equal(f.memory[0][9], 0x33);
    assert_int_equal(f.memory[0][198], 0x33);
    assert_int_equal(f.memory[0][199], 0x11);
    memcpy(&got, staging(SLOT) + at, SOFT_REQUEST_HEAD);
    assert_int_equal(got.operand, 0x3333333333333334ll);
    memcpy(&got, staging(SLOT) + SOFT_REQUEST_HEAD, SOFT_REQUEST_HEAD);
    assert_int_equal(got.operand, 0x3333333333333333ll);
    memset(f.memory[0], 0x11, SIZE);
}

/* The bytes of a long operation begin with a cache line; what lies behind them is no part of it. */
static void test_batch_many(void **state_p)
{
    uint64_t key = angara_mr_key(f.all);
    char     data[2000];
    uint32_t at, end;

    (void)state_p;
    assert_int_equal(batch(0), ANGARA_OK);
    memset(data, 0x44, sizeof(data));
    memset(staging(SLOT), 0x55, SOFT_STAGING);
    at  = item(0, request(ANG_OP_PUT, key, 8, 8), data);
    end = item(at, request(ANG_OP_GET, key, 100, sizeof(data)), NULL);
    assert_int_equal(soft_item_bytes(at, sizeof(data)) % 64, 0);
    assert_int_equal(batch(end - 1), ANGARA_ERR_INVALID); /* it lies beyond the batch */
    assert_int_equal(f.slot->request.operand, 1);
    end = item(end, request(ANG_OP_PUT, key, 2400, 1500), data);
    assert_int_equal(batch(end), ANGARA_OK);
    assert_int_equal(f.slot->request.operand, 3);
    memset(data, 0x11, sizeof(data));
    assert_memory_equal(staging(SLOT) + soft_item_bytes(at, sizeof(data)), data, sizeof(data));
    assert_int_equal(staging(SLOT)[soft_item_bytes(at, sizeof(data)) - 1], 0x55);
    memset(data, 0x44, 1500);
    assert_memory_equal(f.memory[0] + 2400, data, 1500);
    assert_int_equal(f.memory[0][2399], 0x11);
    assert_int_equal(f.memory[0][3900], 0x11);
    memset(f.memory[0], 0x11, SIZE);
}

/* What is wrong ends the batch: what is in front of it has been performed, nothing behind it. */
static void test_batch_nonsense(void **state_p)
{
    uint64_t       key  = angara_mr_key(f.all);
    soft_request_t good = request(ANG_OP_PUT, key, 0, 8);
    soft_request_t bad;
    uint32_t       first, at;
    unsigned       i;

    (void)state_p;
    assert_int_equal(batch(0), ANGARA_OK);
    assert_int_equal(batch(SOFT_STAGING + 1), ANGARA_ERR_INVALID);
    for (i = 0; i < 9; ++i) {
        bad        = good;
        bad.op     = i == 0 ? ANG_OP_MARKER :
                     i == 1 ? SOFT_OP_BATCH :
                     i == 2 ? ANG_OP_PUT_INLINE :
                     i == 3 ? 255 :
                     i == 4 ? 0 :
                              ANG_OP_PUT;
        bad.by     = i == 5;
        bad.length = i == 6 ? UINT32_MAX : i == 7 ? SOFT_STAGING : 8;
        bad.offset = 16;
        bad.key    = i == 8 ? key ^ 1 : key;
        memset(f.memory[0], 0x11, SIZE);
        first = item(0, good, "22222222");
        memcpy(staging(SLOT) + first, &bad, SOFT_REQUEST_HEAD);
        at          = first + SOFT_REQUEST_HEAD;
        good.offset = 32;
        at          = item(at, good, "44444444");
        good.offset = 0;
        assert_int_equal(batch(at), i == 8 ? ANGARA_ERR_KEY : ANGARA_ERR_INVALID);
        assert_int_equal(f.slot->request.operand, 1);
        assert_int_equal(f.memory[0][0], '2');
        assert_int_equal(f.memory[0][16], 0x11);
        assert_int_equal(f.memory[0][32], 0x11);
    }
    memset(f.memory[0], 0x11, SIZE);
    for (at = 1; at < SOFT_REQUEST_HEAD; ++at) { /* a part of one */
        item(0, good, "22222222");
        assert_int_equal(batch(at), ANGARA_ERR_INVALID);
        assert_int_equal(f.slot->request.operand, 0);
    }
    assert_untouched();
}

/* Random bytes as a batch. */
static void test_batch_garbage(void **state_p)
{
    (void)state_p;
    assert_int_equal(batch(0), ANGARA_OK);
    for (unsigned n = 0; n < 500; ++n) {
        for (unsigned i = 0; i < 4096; ++i) {
            staging(SLOT)[i] = (char)(rand() % (n % 2 ? 256 : 5));
        }
        assert_int_not_equal(batch((uint32_t)rand() % 4097 + 1), ANGARA_OK);
    }
    assert_untouched();
}

/* Few bytes are copied by the CPU: where memory has gone there is an answer all the same. */
static void test_short_gone(void **state_p)
{
    char *page = mmap(NULL, 3 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    angara_mr_h    mr;
    soft_request_t put, get;
    uint32_t       at;

    (void)state_p;
    assert_true(page != MAP_FAILED);
    assert_int_equal(angara_mr_register(f.dom, page, 3 * SIZE, ANGARA_ACCESS_ALL, &mr), ANGARA_OK);
    put = request(ANG_OP_PUT, angara_mr_key(mr), SIZE - 4, 8); /* over the border of two pages */
    get = request(ANG_OP_GET, angara_mr_key(mr), SIZE - 4, 8);
    assert_int_equal(status_of(put), ANGARA_OK);
    assert_int_equal(status_of(get), ANGARA_OK);
    assert_int_equal(mprotect(page + SIZE, SIZE, PROT_READ), 0);
    assert_int_equal(status_of(get), ANGARA_OK);
    assert_int_equal(status_of(put), ANGARA_ERR_BOUNDS);
    assert_int_equal(batch(0), ANGARA_OK);
    at = item(0, get, NULL); /* a page that can be read needn't be one that can be written */
    at = item(at, put, "22222222");
    assert_int_equal(batch(at), ANGARA_ERR_BOUNDS);
    assert_int_equal(f.slot->request.operand, 1);
    assert_int_equal(munmap(page + SIZE, SIZE), 0);
    assert_int_equal(status_of(put), ANGARA_ERR_BOUNDS);
    assert_int_equal(status_of(get), ANGARA_ERR_BOUNDS);
    assert_int_equal(munmap(page, 3 * SIZE), 0);
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
}

/* ---- the watched slot ------------------------------------------------------------------------ */

/* Post a request in that slot that is in no list, and let the owner poll. @return served? */
static int served_unlisted(unsigned slot, uint8_t by)
{
    soft_slot_t   *there = &f.target->service->slots[slot];
    soft_request_t r     = request(ANG_OP_ATOMIC, angara_mr_key(f.all), 0, 0);

    r.by           = by;
    there->owner   = soft_owner();
    there->request = r;
    __atomic_store_n(&there->state, (there->state / SOFT_TURN + 1) * SOFT_TURN + SOFT_POSTED,
                     __ATOMIC_RELEASE);
    poll_requests(0);
    return soft_state_phase(there->state) == SOFT_DONE;
}

/* Caught: a slot that says it is watched, and isn't; a watch that changes with each request; a long
 * copy in a watched slot, which keeps the owner awake. */
static void test_watched(void **state_p)
{
    soft_slot_t *slots = f.target->service->slots;
    unsigned     i;

    (void)state_p;
    assert_false(served_unlisted(SLOT, SOFT_BY_SLOT)); /* nobody watches it */
    ring(SLOT);
    assert_true(served(LONG_MS));
    assert_int_equal(f.slot->by_owner, SOFT_BY_WATCHER);
    assert_true(served_unlisted(SLOT, SOFT_BY_SLOT));
    assert_int_equal(f.target->service->work, SOFT_WORK_NONE);

    for (i = 0; i < 2; ++i) { /* others don't come often enough */
        assert_false(served_unlisted(SLOT + 1, SOFT_BY_SLOT));
        ring(SLOT + 1);
        poll_requests(0);
        assert_int_equal(soft_state_phase(slots[SLOT + 1].state), SOFT_DONE);
        assert_int_equal(slots[SLOT + 1].by_owner, SOFT_BY_OWNER);
        assert_true(served_unlisted(SLOT, SOFT_BY_SLOT));
    }
    for (i = 0; i < 20 && slots[SLOT + 1].by_owner != SOFT_BY_WATCHER; ++i) {
        served_unlisted(SLOT + 1, SOFT_BY_SLOT);
        ring(SLOT + 1);
        poll_requests(0);
    }
    assert_int_equal(slots[SLOT + 1].by_owner, SOFT_BY_WATCHER);
    assert_int_equal(f.slot->by_owner, SOFT_BY_OWNER);
    assert_false(served_unlisted(SLOT, SOFT_BY_SLOT));
    assert_false(angara_pe_is_asked(&f.target->base));
    assert_true(served_unlisted(SLOT + 1, SOFT_BY_SLOT));

    /* A long copy may have to wait: that mustn't keep the owner awake. */
    f.target->crowd.is_so = 1;
    served_unlisted(f.target->watched, SOFT_BY_JOINT);
    assert_int_equal(f.target->watched, SOFT_SERVICE_SLOTS);
}

/*
 * In all other tests the owner's progress is the only one that serves, and no thread maps memory
 * where a test has taken some away.
 */
static int setup_with_helper(void **state_p)
{
    no_threads = 0;
    return setup(state_p);
}

static int teardown_with_helper(void **state_p)
{
    no_threads = 1;
    return teardown(state_p);
}

#define TEST(_name) cmocka_unit_test_setup_teardown(_name, setup, teardown)

/* Post a get of so many bytes in that slot. */
static void post_in(unsigned slot, uint32_t length)
{
    soft_request_t r = request(ANG_OP_GET, angara_mr_key(f.all), 0, length);

    f.slot = &f.target->service->slots[slot];
    post(&r);
    ring(slot);
}

static int is_answered(unsigned slot)
{
    return soft_state_phase(f.target->service->slots[slot].state) == SOFT_DONE;
}

/* Long ones are a turn's work, one or two of them; short ones don't wait for that, and of the long
 * ones none waits for ever. */
static void test_long_by_turns(void **state_p)
{
    const unsigned first = SOFT_LARGE_SLOTS, count = 6, bytes = 40000;
    unsigned       turns[6] = {0};

    (void)state_p;
    for (unsigned i = 0; i < count; ++i) {
        post_in(first + i, bytes);
    }
    post_in(SOFT_SERVICE_SLOTS - 1, 8);
    poll_requests(1);
    assert_true(is_answered(SOFT_SERVICE_SLOTS - 1));
    for (unsigned turn = 0; turn < 30; ++turn) {
        unsigned answered = 0;

        for (unsigned i = 0; i < count; ++i) {
            answered += (unsigned)is_answered(first + i);
        }
        assert_int_equal(answered, 2);
        for (unsigned i = 0; i < count; ++i) {
            turns[i] += (unsigned)is_answered(first + i);
            if (is_answered(first + i)) {
                post_in(first + i, bytes); /* its requester asks for the next at once */
            }
        }
        poll_requests(1);
    }
    for (unsigned i = 0; i < count; ++i) {
        assert_in_range(turns[i], 5, 25);
    }
    f.slot = &f.target->service->slots[SLOT];
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_good),
        TEST(test_in_slot),
        TEST(test_keys_and_bounds),
        TEST(test_rights),
        TEST(test_large_elsewhere),
        TEST(test_room),
        TEST(test_reclaimed),
        TEST(test_nonsense),
        TEST(test_garbage),
        TEST(test_withdrawn),
        cmocka_unit_test_setup_teardown(test_abandoned, setup_with_helper, teardown_with_helper),
        TEST(test_atomic_unwritable),
        TEST(test_batch),
        TEST(test_batch_many),
        TEST(test_batch_nonsense),
        TEST(test_batch_garbage),
        TEST(test_short_gone),
        TEST(test_watched),
        TEST(test_long_by_turns),
    };

    no_threads = 1;
    return cmocka_run_group_tests_name("service", tests, NULL, NULL);
}
