/* SPDX-License-Identifier: BSD-3-Clause */
/* The soft provider's region table: keys, checks, reuse of entries, a table full and garbled. */
#include "soft.h"

#include "src/config.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define MAX 64u

static char memory[4096];

static int setup(void **state)
{
    angara_domain_h dom;

    if (ang_config_load() != ANGARA_OK) {
        return -1;
    }
    ang_config.mr_max = MAX;
    if (soft_domain_open("soft", &dom) != ANGARA_OK) {
        return -1;
    }
    *state = dom;
    return 0;
}

static int teardown(void **state)
{
    return (soft_domain_close(*state) == ANGARA_OK) ? 0 : -1;
}

static angara_status_t check(angara_domain_h base, uint64_t key, uint64_t offset, uint64_t length,
                             unsigned access)
{
    soft_domain_t  *dom  = (soft_domain_t *)base;
    uint64_t        addr = 0;
    angara_status_t status;

    status = soft_mr_check(dom->shared, dom->mr_max, key, offset, length, access, &addr, NULL);
    if (status == ANGARA_OK) {
        assert_true(addr == (uintptr_t)memory + offset);
    }
    return status;
}

static void test_bounds(void **state)
{
    angara_domain_h dom = *state;
    angara_mr_h     mr;
    uint64_t        key, size = sizeof(memory);

    assert_int_equal(soft_mr_register(dom, memory, size, ANGARA_ACCESS_REMOTE_READ, &mr),
                     ANGARA_OK);
    key = angara_mr_key(mr);
    assert_int_equal(check(dom, key, 0, size, 0), ANGARA_OK);
    assert_int_equal(check(dom, key, 0, 0, 0), ANGARA_OK);
    assert_int_equal(check(dom, key, size, 0, 0), ANGARA_OK);
    assert_int_equal(check(dom, key, size - 1, 1, 0), ANGARA_OK);
    assert_int_equal(check(dom, key, size, 1, 0), ANGARA_ERR_BOUNDS);
    assert_int_equal(check(dom, key, 0, size + 1, 0), ANGARA_ERR_BOUNDS);
    assert_int_equal(check(dom, key, size + 1, 0, 0), ANGARA_ERR_BOUNDS);
    assert_int_equal(check(dom, key, UINT64_MAX, 1, 0), ANGARA_ERR_BOUNDS);
    assert_int_equal(check(dom, key, 1, UINT64_MAX, 0), ANGARA_ERR_BOUNDS);
    assert_int_equal(check(dom, key, UINT64_MAX, UINT64_MAX, 0), ANGARA_ERR_BOUNDS);
    assert_int_equal(check(dom, key, UINT64_MAX - 7, 16, 0), ANGARA_ERR_BOUNDS);
    assert_int_equal(check(dom, key, 0, 1, ANGARA_ACCESS_REMOTE_READ), ANGARA_OK);
    assert_int_equal(check(dom, key, 0, 1, ANGARA_ACCESS_REMOTE_WRITE), ANGARA_ERR_RIGHTS);
    assert_int_equal(check(dom, key, 0, 1, ANGARA_ACCESS_REMOTE_ATOMIC), ANGARA_ERR_RIGHTS);
    assert_int_equal(check(dom, key, 0, 1, ANGARA_ACCESS_LOCAL_WRITE), ANGARA_ERR_RIGHTS);
    assert_int_equal(check(dom, key, 0, 1, ANGARA_ACCESS_ALL), ANGARA_ERR_RIGHTS);
    assert_int_equal(soft_mr_deregister(mr), ANGARA_OK);
    assert_int_equal(check(dom, key, 0, 1, 0), ANGARA_ERR_KEY);
}

static void test_keys(void **state)
{
    angara_domain_h dom = *state;
    angara_mr_h     mr;
    uint64_t        key, seen[200], ones = 0, zeros = 0;
    unsigned        i, j, bit;

    assert_int_equal(check(dom, 0, 0, 1, 0), ANGARA_ERR_KEY);
    for (i = 0; i < 200; ++i) {
        assert_int_equal(soft_mr_register(dom, memory, 64, 0, &mr), ANGARA_OK);
        key = seen[i] = angara_mr_key(mr);
        assert_true(key != 0);
        for (j = 0; j < i; ++j) {
            assert_true(seen[j] != key);
        }
        for (bit = 0; bit < 64; ++bit) {
            assert_int_equal(check(dom, key ^ (1ull << bit), 0, 1, 0), ANGARA_ERR_KEY);
        }
        ones |= key;
        zeros |= ~key;
        assert_int_equal(soft_mr_deregister(mr), ANGARA_OK);
    }
    /* At least 40 bits take both values. */
    assert_true(__builtin_popcountll(ones & zeros) >= 40);
}

static void test_full(void **state)
{
    angara_domain_h dom = *state;
    angara_mr_h     mrs[MAX], mr = NULL;
    unsigned        round, i;

    for (round = 0; round < 3; ++round) {
        for (i = 0; i < MAX; ++i) {
            assert_int_equal(soft_mr_register(dom, memory, 64, 0, &mrs[i]), ANGARA_OK);
        }
        assert_int_equal(soft_mr_register(dom, memory, 64, 0, &mr), ANGARA_ERR_NO_MEMORY);
        assert_null(mr);
        /* One free entry is enough again, whichever it is. */
        assert_int_equal(soft_mr_deregister(mrs[round * 7]), ANGARA_OK);
        assert_int_equal(soft_mr_register(dom, memory, 64, 0, &mrs[round * 7]), ANGARA_OK);
        for (i = MAX; i-- > 0;) {
            assert_int_equal(soft_mr_deregister(mrs[i]), ANGARA_OK);
        }
    }
}

/* What a peer's table claims is never believed beyond the mapping: bad indices, entries, sizes. */
static void test_garbled(void **state)
{
    soft_domain_t *dom = (soft_domain_t *)*state;
    angara_mr_h    mr;
    uint64_t       key;

    assert_int_equal(soft_mr_register(&dom->base, memory, 64, ANGARA_ACCESS_ALL, &mr), ANGARA_OK);
    key = angara_mr_key(mr);
    assert_int_equal(check(&dom->base, key | 0xffffff, 0, 1, 0), ANGARA_ERR_KEY);
    assert_int_equal(check(&dom->base, (key & ~0xffffffull) | MAX, 0, 1, 0), ANGARA_ERR_KEY);
    /* A checked copy of mr_max bounds the index whatever the shared words say. */
    dom->shared->mr_max       = UINT32_MAX;
    dom->shared->mr_committed = UINT32_MAX;
    assert_int_equal(check(&dom->base, (key & ~0xffffffull) | MAX, 0, 1, 0), ANGARA_ERR_KEY);
    assert_int_equal(check(&dom->base, UINT64_MAX, 0, 1, 0), ANGARA_ERR_KEY);
    assert_int_equal(check(&dom->base, key, 0, 64, 0), ANGARA_OK);
    assert_int_equal(soft_mr_deregister(mr), ANGARA_OK);
}

/* Another process's pair, as deregistration sees it. */
static soft_hazard_t *take_hazard(angara_domain_h base)
{
    soft_domain_seg_t *shared = ((soft_domain_t *)base)->shared;

    shared->hazards[0].owner = soft_owner(); /* alive for as long as the test is */
    shared->hazards_used     = 1;
    return &shared->hazards[0];
}

static void set_batch(soft_hazard_t *hazard, uint32_t number, const uint64_t *keys, unsigned count)
{
    for (unsigned i = 0; i < count; ++i) {
        hazard->regions[i] = SOFT_KEY_INDEX(keys[i]);
    }
    __atomic_store_n(&hazard->key, soft_batch_value(number, count), __ATOMIC_SEQ_CST);
}

/* Where the numbers begin again, no value is that of "no access", a key, or the one before. */
static void test_batch_values(void **state)
{
    static const uint32_t starts[] = {0, SOFT_BATCH_NUMBERS, SOFT_BATCH_NUMBERS + 1, UINT32_MAX};
    uint32_t              number;
    uint64_t              value;
    unsigned              i, j, count;

    (void)state;
    for (i = 0; i < sizeof(starts) / sizeof(starts[0]); ++i) {
        for (j = 0; j < 4; ++j) {
            number = starts[i] - 2 + j;
            for (count = 1; count <= ANGARA_BATCH_MAX; ++count) {
                value = soft_batch_value(number, count);
                assert_in_range(value, 1, SOFT_HAZARD_BATCH_MAX);
                assert_int_equal(soft_batch_count(value), count);
                assert_int_not_equal(value, soft_batch_value(number + 1, count));
            }
        }
    }
}

/* A batch that goes on, its process stopped say, holds up its own regions and no others. */
static void test_batch_others(void **state)
{
    angara_domain_h dom    = *state;
    soft_hazard_t  *hazard = take_hazard(dom);
    angara_mr_h     mrs[ANGARA_BATCH_MAX + 1], mr;
    uint64_t        keys[ANGARA_BATCH_MAX + 1];
    unsigned        i, count;

    for (i = 0; i <= ANGARA_BATCH_MAX; ++i) {
        assert_int_equal(soft_mr_register(dom, memory, 64, 0, &mrs[i]), ANGARA_OK);
        keys[i] = angara_mr_key(mrs[i]);
    }
    for (count = 1; count <= ANGARA_BATCH_MAX; ++count) {
        set_batch(hazard, count, keys, count);
        /* One it never had, and one that a longer batch of before had. */
        assert_int_equal(soft_mr_register(dom, memory, 64, 0, &mr), ANGARA_OK);
        assert_int_equal(soft_mr_deregister(mr), ANGARA_OK);
        hazard->regions[count % ANGARA_BATCH_MAX] = (count < ANGARA_BATCH_MAX) ?
                                                        SOFT_KEY_INDEX(keys[ANGARA_BATCH_MAX]) :
                                                        hazard->regions[0];
        assert_int_equal(soft_mr_deregister(mrs[ANGARA_BATCH_MAX]), ANGARA_OK);
        assert_int_equal(soft_mr_register(dom, memory, 64, 0, &mrs[ANGARA_BATCH_MAX]), ANGARA_OK);
        keys[ANGARA_BATCH_MAX] = angara_mr_key(mrs[ANGARA_BATCH_MAX]);
    }
    hazard->key = 0;
    for (i = 0; i <= ANGARA_BATCH_MAX; ++i) {
        assert_int_equal(soft_mr_deregister(mrs[i]), ANGARA_OK);
    }
}

typedef struct {
    soft_hazard_t   *hazard;
    soft_mr_entry_t *entry;
    uint64_t         next; /* value of the hazard after the batch */
    int              over;
} batch_t;

/* The batch ends, or is followed by another, some time after its region's key has been cleared. */
static void *end_batch(void *arg)
{
    batch_t        *batch = arg;
    struct timespec pause = {0, 20000000};

    while (__atomic_load_n(&batch->entry->key, __ATOMIC_SEQ_CST) != 0) {
        sched_yield();
    }
    nanosleep(&pause, NULL); /* for a deregistration that doesn't wait to return in */
    __atomic_store_n(&batch->over, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&batch->hazard->key, batch->next, __ATOMIC_SEQ_CST);
    return NULL;
}

static void test_batch_own(void **state)
{
    angara_domain_h dom    = *state;
    soft_hazard_t  *hazard = take_hazard(dom);
    angara_mr_h     mrs[ANGARA_BATCH_MAX];
    uint64_t        keys[ANGARA_BATCH_MAX];
    pthread_t       thread;
    unsigned        i;

    for (i = 0; i < ANGARA_BATCH_MAX; ++i) {
        assert_int_equal(soft_mr_register(dom, memory, 64, 0, &mrs[i]), ANGARA_OK);
        keys[i] = angara_mr_key(mrs[i]);
    }
    for (i = 0; i < ANGARA_BATCH_MAX; ++i) {
        batch_t batch = {hazard, &((soft_domain_t *)dom)->shared->entries[SOFT_KEY_INDEX(keys[i])],
                         (i % 2) ? soft_batch_value(i + 100, ANGARA_BATCH_MAX) : 0, 0};

        set_batch(hazard, i, keys, ANGARA_BATCH_MAX);
        assert_int_equal(pthread_create(&thread, NULL, end_batch, &batch), 0);
        assert_int_equal(soft_mr_deregister(mrs[i]), ANGARA_OK);
        assert_int_equal(__atomic_load_n(&batch.over, __ATOMIC_SEQ_CST), 1);
        pthread_join(thread, NULL);
        hazard->key = 0;
    }
}

static void test_layout(void **state)
{
    soft_layout_t a, b;
    unsigned      events;

    (void)state;
    for (events = 2; events <= 65536; events *= 2) {
        soft_layout(events, 4096, &a);
        assert_true(a.events >= sizeof(soft_pe_seg_t));
        assert_true(a.service >= a.events + soft_record_ring_size(events));
        assert_true(a.staging >= a.service + sizeof(soft_service_t));
        assert_true(a.window >= a.staging + soft_staging_offset(SOFT_SERVICE_SLOTS));
        assert_true(a.total >= a.window + 4096);
        assert_int_equal((a.events | a.service | a.staging | a.window | a.total) % SOFT_PAGE, 0);
        soft_layout(events, 4097, &b);
        assert_int_equal(b.total - a.total, SOFT_PAGE);
    }
}

#define TEST(_name) cmocka_unit_test_setup_teardown(_name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_bounds),       TEST(test_keys),         TEST(test_full),      TEST(test_garbled),
        TEST(test_batch_values), TEST(test_batch_others), TEST(test_batch_own), TEST(test_layout),
    };

    return cmocka_run_group_tests_name("mr_table", tests, NULL, NULL);
}
