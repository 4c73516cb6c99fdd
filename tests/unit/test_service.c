/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The target's side of service requests: what another process puts into the service ring is checked
 * against the own table, and nothing but the requester's reply and staging memory is written for
 * it. Initiators of this library check before they ask, so only a test asks such things.
 */
#include "../common/clock.h"
#include "soft.h"

#include "src/config.h"
#include "src/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE        4096u
#define LONG_MS     5000u       /* for an answer that must come */
#define SHORT_MS    5u          /* for one that must not */
#define NO_SUCH_PID 0x7fffffffu /* beyond the kernel's largest */

static struct {
    angara_domain_h dom;
    soft_pe_t      *target, *requester;
    angara_mr_h     all, readable, writable;
    char            memory[3][SIZE];
    uint64_t        sequence;
} f;

static int setup(void **state)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = SIZE};
    angara_pe_h        pe;

    (void)state;
    memset(&f, 0, sizeof(f));
    ang_log_level = ANG_LOG_ERROR; /* and those are expected here */
    if ((angara_open("soft", &f.dom) != ANGARA_OK) ||
        (angara_pe_create(f.dom, &params, &pe) != ANGARA_OK)) {
        return -1;
    }
    f.target = soft_pe(pe);
    if (angara_pe_create(f.dom, &params, &pe) != ANGARA_OK) {
        return -1;
    }
    f.requester = soft_pe(pe);
    memset(f.memory, 0x11, sizeof(f.memory));
    if ((angara_mr_register(f.dom, f.memory[0], SIZE, ANGARA_ACCESS_ALL, &f.all) != ANGARA_OK) ||
        (angara_mr_register(f.dom, f.memory[1], SIZE, ANGARA_ACCESS_REMOTE_READ, &f.readable) !=
         ANGARA_OK) ||
        (angara_mr_register(f.dom, f.memory[2], SIZE, ANGARA_ACCESS_REMOTE_WRITE, &f.writable) !=
         ANGARA_OK)) {
        return -1;
    }
    return (soft_segment_commit(&f.requester->segment, f.requester->layout.staging,
                                (size_t)SOFT_AGENTS * SOFT_STAGING) == ANGARA_OK) ?
               0 :
               -1;
}

static int teardown(void **state)
{
    (void)state;
    angara_mr_deregister(f.all);
    angara_mr_deregister(f.readable);
    angara_mr_deregister(f.writable);
    angara_pe_destroy(&f.requester->base);
    angara_pe_destroy(&f.target->base);
    return (angara_close(f.dom) == ANGARA_OK) ? 0 : -1;
}

static char *staging(unsigned agent)
{
    return (char *)f.requester->seg + f.requester->layout.staging + (size_t)agent * SOFT_STAGING;
}

static soft_request_t request(ang_op_t op, uint64_t key, uint64_t offset, uint32_t length)
{
    soft_request_t r;

    memset(&r, 0, sizeof(r));
    r.from     = f.requester->base.address;
    r.op       = (uint8_t)op;
    r.width    = 8;
    r.agent    = 3;
    r.length   = length;
    r.key      = key;
    r.offset   = offset;
    r.sequence = ++f.sequence;
    return r;
}

/* Into the target's ring, which may be full while the helper thread is serving it. */
static void push(const soft_request_t *r, size_t length)
{
    void    *ring   = (char *)f.target->seg + f.target->layout.service;
    unsigned waited = 0;

    while (soft_record_push(ring, SOFT_SERVICE_RING, r, length, NULL, 0) != ANGARA_OK) {
        assert_true(waited++ < LONG_MS);
        sleep_ms(1);
        soft_helper_poll(f.target);
    }
}

/* Put a request into the target's ring and let it be served. @return 1 if answered within @a ms. */
static int serve(const soft_request_t *r, unsigned ms)
{
    soft_reply_t *reply = &f.requester->seg->replies[3];
    unsigned      i;

    reply->state = soft_reply_state(r->sequence, SOFT_POSTED);
    push(r, sizeof(*r));
    /* The helper thread may be asleep, the owner's progress serves too. */
    for (i = 0; i <= ms; ++i) {
        soft_helper_poll(f.target);
        if (__atomic_load_n(&reply->state, __ATOMIC_ACQUIRE) ==
            soft_reply_state(r->sequence, SOFT_DONE)) {
            return 1;
        }
        sleep_ms(1);
    }
    return 0;
}

static angara_status_t status_of(soft_request_t r)
{
    assert_true(serve(&r, LONG_MS));
    return (angara_status_t)f.requester->seg->replies[3].status;
}

/* No answer at all, or an error. */
static void assert_refused(const soft_request_t *r)
{
    if (serve(r, SHORT_MS)) {
        assert_true(f.requester->seg->replies[3].status < 0);
    }
}

static void assert_untouched(void)
{
    unsigned i, j;

    for (i = 0; i < 3; ++i) {
        for (j = 0; j < SIZE; ++j) {
            assert_int_equal(f.memory[i][j], 0x11);
        }
    }
}

static void test_good(void **state)
{
    soft_request_t r;

    (void)state;
    memset(staging(3), 0x22, SIZE);
    assert_int_equal(status_of(request(ANG_OP_PUT, angara_mr_key(f.all), 8, 16)), ANGARA_OK);
    assert_int_equal(f.memory[0][7], 0x11);
    assert_int_equal(f.memory[0][8], 0x22);
    assert_int_equal(f.memory[0][23], 0x22);
    assert_int_equal(f.memory[0][24], 0x11);
    memset(staging(3), 0, SIZE);
    assert_int_equal(status_of(request(ANG_OP_GET, angara_mr_key(f.all), 0, SIZE)), ANGARA_OK);
    assert_memory_equal(staging(3), f.memory[0], SIZE);
    r         = request(ANG_OP_ATOMIC, angara_mr_key(f.all), 0, 0);
    r.atomic  = ANGARA_ATOMIC_ADD;
    r.operand = 1;
    assert_int_equal(status_of(r), ANGARA_OK);
    assert_int_equal(f.requester->seg->replies[3].old, 0x1111111111111111ll);
    assert_int_equal(f.memory[0][0], 0x12);
    assert_int_equal(status_of(request(ANG_OP_MARKER, 0, 0, 0)), ANGARA_OK);
    memset(f.memory[0], 0x11, SIZE);
}

static void test_keys_and_bounds(void **state)
{
    static const ang_op_t ops[] = {ANG_OP_PUT, ANG_OP_GET, ANG_OP_ATOMIC};
    uint64_t              key   = angara_mr_key(f.all);
    unsigned              i, bit;

    (void)state;
    memset(staging(3), 0x22, SOFT_STAGING);
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

static void test_rights(void **state)
{
    uint64_t readable = angara_mr_key(f.readable), writable = angara_mr_key(f.writable);

    (void)state;
    memset(staging(3), 0x22, SIZE);
    assert_int_equal(status_of(request(ANG_OP_PUT, readable, 0, 8)), ANGARA_ERR_RIGHTS);
    assert_int_equal(status_of(request(ANG_OP_ATOMIC, readable, 0, 8)), ANGARA_ERR_RIGHTS);
    assert_int_equal(status_of(request(ANG_OP_GET, writable, 0, 8)), ANGARA_ERR_RIGHTS);
    assert_int_equal(status_of(request(ANG_OP_ATOMIC, writable, 0, 8)), ANGARA_ERR_RIGHTS);
    assert_int_equal(*staging(3), 0x22);
    assert_untouched();
}

/* Requests that make no sense get no service: no memory is touched, here or at the requester. */
static void test_nonsense(void **state)
{
    uint64_t       key = angara_mr_key(f.all);
    soft_request_t r;
    char          *before = malloc(SOFT_AGENTS * SOFT_STAGING);

    (void)state;
    assert_non_null(before);
    memset(staging(0), 0x22, (size_t)SOFT_AGENTS * SOFT_STAGING);
    memcpy(before, staging(0), (size_t)SOFT_AGENTS * SOFT_STAGING);
    for (unsigned op = 0; op < 256; ++op) {
        if ((op == ANG_OP_PUT) || (op == ANG_OP_GET) || (op == ANG_OP_ATOMIC) ||
            (op == ANG_OP_MARKER)) {
            continue;
        }
        r    = request(ANG_OP_PUT, key, 0, 8);
        r.op = (uint8_t)op;
        assert_refused(&r);
        op += (op > 16) ? 13 : 0;
    }
    r       = request(ANG_OP_GET, key, 0, 8);
    r.agent = SOFT_AGENTS;
    assert_false(serve(&r, SHORT_MS));
    r.agent = 255;
    assert_false(serve(&r, SHORT_MS));
    r = request(ANG_OP_GET, key, 0, SOFT_STAGING + 1);
    assert_refused(&r);
    r = request(ANG_OP_PUT, key, 0, UINT32_MAX);
    assert_refused(&r);
    r       = request(ANG_OP_ATOMIC, key, 0, 8);
    r.width = 16;
    assert_refused(&r);
    r        = request(ANG_OP_ATOMIC, key, 0, 8);
    r.atomic = ANGARA_ATOMIC_LAST;
    assert_refused(&r);
    assert_memory_equal(staging(0), before, (size_t)SOFT_AGENTS * SOFT_STAGING);
    assert_untouched();
    free(before);
}

/* A requester that can't be reached, short and empty records, random bytes: nobody crashes. */
static void test_garbage(void **state)
{
    soft_request_t r;
    unsigned       n, i;

    (void)state;
    for (n = 0; n < 500; ++n) {
        r = request(ANG_OP_PUT, angara_mr_key(f.all), 0, 8);
        for (i = 0; i < 4; ++i) {
            ((uint8_t *)&r)[(size_t)rand() % ((n % 2) ? sizeof(r.from) : sizeof(r))] ^=
                (uint8_t)(1 + rand() % 255);
        }
        /* The process stays this one, or none at all: a test doesn't point at other people's. */
        r.from.loc[0] = (r.from.loc[0] & ~0xffffffffull) |
                        ((n % 5 == 0) ? NO_SUCH_PID : (uint32_t)getpid());
        r.key      = 0; /* no memory of ours */
        r.sequence = 0;
        push(&r, (n % 7 == 0) ? n % sizeof(r) : sizeof(r));
        soft_helper_poll(f.target);
    }
    assert_untouched();
    r = request(ANG_OP_MARKER, 0, 0, 0);
    assert_int_equal(status_of(r), ANGARA_OK); /* and it still serves */
}

/* What a requester has withdrawn isn't carried out, however long it stays in the ring. */
static void test_withdrawn(void **state)
{
    soft_reply_t  *reply = &f.requester->seg->replies[3];
    soft_request_t r;

    (void)state;
    memset(staging(3), 0x22, SIZE);
    r = request(ANG_OP_PUT, angara_mr_key(f.all), 0, SIZE);
    push(&r, sizeof(r));
    reply->state = 0;
    /* The next request that has its reply line is served, and only that one. */
    assert_int_equal(status_of(request(ANG_OP_GET, angara_mr_key(f.readable), 0, 8)), ANGARA_OK);
    assert_untouched();
    /* An old request doesn't take a later one's turn. */
    r.sequence   = f.sequence;
    reply->state = soft_reply_state(f.sequence + 1, SOFT_POSTED);
    push(&r, sizeof(r));
    assert_int_equal(status_of(request(ANG_OP_MARKER, 0, 0, 0)), ANGARA_OK);
    assert_untouched();
}

/* Atomics on memory that the program has made read-only, or unmapped: an answer, not a signal. */
static void test_atomic_unwritable(void **state)
{
    char *page = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    soft_request_t r;
    angara_mr_h    mr;

    (void)state;
    assert_true(page != MAP_FAILED);
    assert_int_equal(angara_mr_register(f.dom, page, SIZE, ANGARA_ACCESS_ALL, &mr), ANGARA_OK);
    r         = request(ANG_OP_ATOMIC, angara_mr_key(mr), 8, 0);
    r.atomic  = ANGARA_ATOMIC_ADD;
    r.operand = 5;
    assert_int_equal(status_of(r), ANGARA_OK);
    assert_int_equal(page[8], 5);
    assert_int_equal(mprotect(page, SIZE, PROT_READ), 0);
    r.sequence = ++f.sequence;
    assert_int_equal(status_of(r), ANGARA_ERR_RIGHTS);
    assert_int_equal(page[8], 5);
    assert_int_equal(mprotect(page, SIZE, PROT_NONE), 0);
    r.sequence = ++f.sequence;
    assert_int_equal(status_of(r), ANGARA_ERR_BOUNDS);
    assert_int_equal(munmap(page, SIZE), 0);
    r.sequence = ++f.sequence;
    assert_int_equal(status_of(r), ANGARA_ERR_BOUNDS);
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
}

#define TEST(_name) cmocka_unit_test_setup_teardown(_name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_good),
        TEST(test_keys_and_bounds),
        TEST(test_rights),
        TEST(test_nonsense),
        TEST(test_garbage),
        TEST(test_withdrawn),
        TEST(test_atomic_unwritable),
    };

    return cmocka_run_group_tests_name("service", tests, NULL, NULL);
}
