/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The record ring: order, fullness, wrap-around, spoilt hints, garbage from other processes, and
 * producers that die with a claim in hand.
 */
#include "../common/clock.h"
#include "soft.h"

#include <pthread.h>
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

#define COUNT   16u
#define THREADS 3u
#define PER     20000u

typedef struct {
    soft_record_ring_t  *ring;
    soft_record_reader_t reader;
} fixture_t;

static int setup(void **state)
{
    fixture_t *f = calloc(1, sizeof(*f));

    if (f == NULL) {
        return -1;
    }
    f->ring = mmap(NULL, soft_record_ring_size(COUNT), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (f->ring == MAP_FAILED) {
        free(f);
        return -1;
    }
    f->reader.ring  = f->ring;
    f->reader.count = COUNT;
    *state          = f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;

    munmap(f->ring, soft_record_ring_size(COUNT));
    free(f);
    return 0;
}

static angara_status_t push(fixture_t *f, uint64_t value)
{
    return soft_record_push(f->ring, COUNT, &value, sizeof(value), NULL, 0);
}

static void pop_expect(fixture_t *f, uint64_t value)
{
    uint8_t  record[SOFT_RECORD_MAX];
    uint64_t got;

    assert_int_equal(soft_record_pop(&f->reader, record), sizeof(value));
    memcpy(&got, record, sizeof(got));
    assert_int_equal(got, value);
}

static void pop_nothing(fixture_t *f)
{
    uint8_t record[SOFT_RECORD_MAX];

    assert_int_equal(soft_record_pop(&f->reader, record), -1);
}

static void test_order(void **state)
{
    fixture_t *f    = *state;
    uint64_t   sent = 0, taken = 0;
    unsigned   round, i;

    pop_nothing(f);
    for (round = 0; round < 200; ++round) {
        for (i = 0; i < 1 + round % COUNT; ++i) {
            assert_int_equal(push(f, sent++), ANGARA_OK);
            assert_true(soft_record_ready(&f->reader));
        }
        while (taken < sent) {
            pop_expect(f, taken++);
        }
        pop_nothing(f);
        assert_false(soft_record_ready(&f->reader));
    }
}

static void test_full(void **state)
{
    fixture_t *f = *state;
    uint64_t   i;

    for (i = 0; i < COUNT; ++i) {
        assert_int_equal(push(f, i), ANGARA_OK);
    }
    assert_int_equal(push(f, 99), ANGARA_ERR_NO_RESOURCE);
    assert_int_equal(push(f, 99), ANGARA_ERR_NO_RESOURCE);
    pop_expect(f, 0);
    assert_int_equal(push(f, COUNT), ANGARA_OK);
    assert_int_equal(push(f, 99), ANGARA_ERR_NO_RESOURCE);
    for (i = 1; i <= COUNT; ++i) {
        pop_expect(f, i);
    }
    pop_nothing(f);
}

static void test_lengths(void **state)
{
    fixture_t *f = *state;
    uint8_t    data[SOFT_RECORD_MAX + 1], out[SOFT_RECORD_MAX];
    size_t     i, split;

    for (i = 0; i < sizeof(data); ++i) {
        data[i] = (uint8_t)(i * 7 + 1);
    }
    for (i = 0; i <= SOFT_RECORD_MAX; ++i) {
        split = i / 3;
        assert_int_equal(soft_record_push(f->ring, COUNT, data, split, data + split, i - split),
                         ANGARA_OK);
        memset(out, 0, sizeof(out));
        assert_int_equal(soft_record_pop(&f->reader, out), i);
        assert_memory_equal(out, data, i);
    }
    assert_int_equal(soft_record_push(f->ring, COUNT, data, SOFT_RECORD_MAX + 1, NULL, 0),
                     ANGARA_ERR_INVALID);
    assert_int_equal(soft_record_push(f->ring, COUNT, data, 8, data, SOFT_RECORD_MAX - 7),
                     ANGARA_ERR_INVALID);
    pop_nothing(f);
}

/*
 * The hint falls behind when a slow producer stores it late, or one is killed before it does.
 * Records must still come out in order, and none may be put where the consumer isn't going to look.
 */
static void test_stale_hint(void **state)
{
    fixture_t *f    = *state;
    uint64_t   sent = 0, taken = 0;
    unsigned   round, back;

    for (round = 0; round < 500; ++round) {
        while (sent - taken < COUNT - 1 - round % 5) {
            if (round % 3 == 0) {
                back          = round % (COUNT - 1);
                f->ring->tail = (f->ring->tail > back) ? f->ring->tail - back : 0;
            }
            assert_int_equal(push(f, sent), ANGARA_OK);
            ++sent;
        }
        for (back = 0; back < 1 + round % 9; ++back) {
            pop_expect(f, taken++);
        }
    }
    while (taken < sent) {
        pop_expect(f, taken++);
    }
    pop_nothing(f);
}

/* Whatever another process writes into the ring, nothing is read or written outside it. */
static void test_garbage(void **state)
{
    fixture_t *f = *state;
    uint8_t    record[SOFT_RECORD_MAX];
    unsigned   round, i;
    int        length;

    srand(1);
    for (round = 0; round < 5000; ++round) {
        uint8_t *bytes = (uint8_t *)f->ring;

        for (i = 0; i < 40; ++i) {
            bytes[(size_t)rand() % soft_record_ring_size(COUNT)] = (uint8_t)rand();
        }
        f->ring->tail = (round % 2) ? ((uint64_t)rand() << 33) ^ (uint64_t)rand() : UINT64_MAX;
        push(f, round);
        for (i = 0; i < 2 * COUNT; ++i) {
            length = soft_record_pop(&f->reader, record);
            assert_true((length >= -1) && (length <= SOFT_RECORD_MAX));
        }
    }
}

/* A producer killed between claim and ready, by hand: its slot's state is what such a one leaves.
 */
static void leave_claim(fixture_t *f, uint64_t producer, uint64_t position)
{
    soft_record_t *slot = &f->ring->slots[position % COUNT];

    slot->state   = ((position / COUNT) << 48) | (producer << 18 >> 16) | 1;
    f->ring->tail = position + 1;
}

static void dead_claim(fixture_t *f, int reap)
{
    uint8_t  record[SOFT_RECORD_MAX];
    pid_t    pid = fork();
    unsigned tries;
    uint64_t value  = 0;
    int      length = -1;

    if (pid == 0) {
        _exit(0);
    }
    assert_true(pid > 0);
    if (reap) {
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    } else {
        sleep_ms(20); /* dead, but a zombie still */
    }
    assert_int_equal(push(f, 1), ANGARA_OK);
    leave_claim(f, (uint64_t)pid, 1);
    assert_int_equal(push(f, 2), ANGARA_OK);
    pop_expect(f, 1);
    for (tries = 0; (tries < 500) && (length < 0); ++tries) {
        length = soft_record_pop(&f->reader, record);
        sleep_ms(1);
    }
    if (!reap) {
        waitpid(pid, NULL, 0);
    }
    assert_int_equal(length, sizeof(value));
    memcpy(&value, record, sizeof(value));
    assert_int_equal(value, 2);
    assert_int_equal(push(f, 3), ANGARA_OK);
    pop_expect(f, 3);
}

static void test_dead_claim(void **state)
{
    dead_claim(*state, 1);
}

static void test_zombie_claim(void **state)
{
    dead_claim(*state, 0);
}

/* Who went over to another program between claim and ready lives, but won't finish. */
static void test_exec_claim(void **state)
{
    fixture_t *f      = *state;
    uint64_t   before = soft_owner() ^ 1ull << 22; /* the mark of another program */
    int        length = -1;
    uint8_t    record[SOFT_RECORD_MAX];

    leave_claim(f, before, 0);
    assert_int_equal(push(f, 2), ANGARA_OK);
    for (unsigned tries = 0; (tries < 500) && (length < 0); ++tries) {
        length = soft_record_pop(&f->reader, record);
        sleep_ms(1);
    }
    assert_int_equal(length, sizeof(uint64_t));
    assert_int_equal(record[0], 2);
}

static void finish_claim(fixture_t *f, uint64_t value)
{
    f->ring->slots[0].length = sizeof(value);
    memcpy(f->ring->slots[0].data, &value, sizeof(value));
    f->ring->slots[0].state ^= 1 | 2; /* ready */
}

/*
 * A producer that was stopped between claim and ready: others' records pass it, in order, as many
 * as the ring has places. Its own comes when it goes on, however late.
 */
static void test_stopped_claim(void **state)
{
    fixture_t *f     = *state;
    uint64_t   value = 0;

    leave_claim(f, soft_owner(), 0);
    assert_false(soft_record_ready(&f->reader)); /* the consumer may sleep */
    for (unsigned i = 1; i < COUNT; ++i) {
        assert_int_equal(push(f, i), ANGARA_OK);
        if (i % 3 == 0) {
            sleep_ms(3); /* it is looked at whether he lives */
        }
        if (i % 2 == 0) {
            assert_true(soft_record_ready(&f->reader));
            pop_expect(f, ++value);
            pop_expect(f, ++value);
            pop_nothing(f);
            assert_false(soft_record_ready(&f->reader));
        }
    }
    pop_expect(f, ++value);
    pop_nothing(f);
    assert_int_equal(push(f, 99), ANGARA_ERR_NO_RESOURCE);
    finish_claim(f, 100);
    assert_true(soft_record_ready(&f->reader));
    pop_expect(f, 100);
    pop_nothing(f);
    for (unsigned i = 0; i < COUNT; ++i) {
        assert_int_equal(push(f, i), ANGARA_OK);
    }
    assert_int_equal(push(f, 99), ANGARA_ERR_NO_RESOURCE);
    for (unsigned i = 0; i < COUNT; ++i) {
        pop_expect(f, i);
    }
    pop_nothing(f);
}

/* The same with two of them, of which one dies. */
static void test_two_claims(void **state)
{
    fixture_t *f      = *state;
    int        length = -1;
    uint8_t    record[SOFT_RECORD_MAX];

    leave_claim(f, soft_owner(), 0);
    assert_int_equal(push(f, 1), ANGARA_OK);
    leave_claim(f, soft_owner() ^ 1ull << 22, 2);
    assert_int_equal(push(f, 3), ANGARA_OK);
    pop_expect(f, 1);
    pop_expect(f, 3);
    pop_nothing(f);
    finish_claim(f, 100);
    pop_expect(f, 100);
    assert_int_equal(push(f, 4), ANGARA_OK);
    for (unsigned tries = 0; (tries < 500) && (length < 0); ++tries) {
        length = soft_record_pop(&f->reader, record);
    }
    assert_int_equal(length, sizeof(uint64_t));
    assert_int_equal(record[0], 4);
    while (f->reader.head != 5) { /* the dead one's is freed after a while */
        pop_nothing(f);
        sleep_ms(1);
    }
    assert_int_equal(push(f, 5), ANGARA_OK);
    pop_expect(f, 5);
}

typedef struct {
    fixture_t *f;
    uint64_t   id;
} producer_t;

static void *produce(void *arg)
{
    producer_t *producer = arg;
    uint64_t    n;

    for (n = 0; n < PER; ++n) {
        while (push(producer->f, (producer->id << 32) | n) != ANGARA_OK) {
            sched_yield();
        }
    }
    return NULL;
}

static void test_producers(void **state)
{
    fixture_t *f = *state;
    pthread_t  threads[THREADS];
    producer_t producers[THREADS];
    uint64_t   next[THREADS] = {0}, value;
    uint8_t    record[SOFT_RECORD_MAX];
    unsigned   i, left = THREADS * PER, idle = 0;

    for (i = 0; i < THREADS; ++i) {
        producers[i] = (producer_t){f, i};
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    while (left > 0) {
        if (soft_record_pop(&f->reader, record) != (int)sizeof(value)) {
            sched_yield();
            assert_true(++idle < 50000000u);
            continue;
        }
        idle = 0;
        memcpy(&value, record, sizeof(value));
        assert_true((value >> 32) < THREADS);
        assert_int_equal(value & 0xffffffff, next[value >> 32]);
        ++next[value >> 32];
        --left;
    }
    for (i = 0; i < THREADS; ++i) {
        pthread_join(threads[i], NULL);
    }
    pop_nothing(f);
}

#define TEST(_name) cmocka_unit_test_setup_teardown(_name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_order),        TEST(test_full),       TEST(test_lengths),
        TEST(test_stale_hint),   TEST(test_garbage),    TEST(test_dead_claim),
        TEST(test_zombie_claim), TEST(test_exec_claim), TEST(test_stopped_claim),
        TEST(test_two_claims),   TEST(test_producers),
    };

    return cmocka_run_group_tests_name("record_ring", tests, NULL, NULL);
}
