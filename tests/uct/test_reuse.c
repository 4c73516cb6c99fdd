/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registrations that are kept for the next use (reuse.c): as many as a window of messages needs,
 * none that is too old, never more than the table has room for, by several threads at once.
 */
#include "ut.h"

#include <pthread.h>

#define RE_WINDOW  64u /* buffers in flight, as bandwidth tests have them */
#define RE_LENGTH  ((size_t)4096)
#define RE_THREADS 4
#define RE_LENGTHS 2000u

static char re_memory[RE_WINDOW * RE_LENGTH] __attribute__((aligned(4096)));

typedef struct {
    uint8_t bytes[UT_RKEY_MAX];
} re_key_t;

static void re_open(ut_t *t)
{
    setenv("UCX_ANGARA_REUSE", "y", 1);
    ut_md_open(t);
}

static uct_mem_h re_reg(ut_t *t, char *address, size_t length)
{
    uct_mem_h memh;

    CHECK_OK(uct_md_mem_reg(t->md, address, length, UCT_MD_MEM_ACCESS_RMA, &memh));
    return memh;
}

static re_key_t re_key(ut_t *t, uct_mem_h memh)
{
    re_key_t key = {{0}};

    CHECK_OK(uct_md_mkey_pack(t->md, memh, key.bytes));
    return key;
}

static int re_same(re_key_t a, re_key_t b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

/* The buffers of a window, in use at the same time, all find what they had before. */
static void window(ut_t *t)
{
    static uct_mem_h memhs[RE_WINDOW];
    static re_key_t  keys[RE_WINDOW];
    unsigned         round, i;

    re_open(t);
    for (round = 0; round < 3; ++round) {
        for (i = 0; i < RE_WINDOW; ++i) {
            memhs[i] = re_reg(t, re_memory + i * RE_LENGTH, RE_LENGTH);
            CHECK((round == 0) || re_same(re_key(t, memhs[i]), keys[i]));
            keys[i] = re_key(t, memhs[i]);
        }
        for (i = 0; i < RE_WINDOW; ++i) {
            ut_mem_dereg(t, memhs[i], NULL);
        }
    }
    ut_md_close(t);
}

/* A range, and no other; until one of its users invalidates it. */
static void ranges(ut_t *t)
{
    uct_mem_h first, second, other;
    ut_comp_t comp;
    re_key_t  key;

    re_open(t);
    first  = re_reg(t, re_memory, RE_LENGTH);
    second = re_reg(t, re_memory, RE_LENGTH);
    other  = re_reg(t, re_memory, RE_LENGTH - 1);
    key    = re_key(t, first);
    CHECK(re_same(re_key(t, second), key));
    CHECK(!re_same(re_key(t, other), key));
    ut_mem_dereg(t, other, NULL);
    ut_mem_dereg(t, first, NULL);

    ut_comp_init(&comp, 1);
    ut_mem_dereg(t, second, &comp.super);
    CHECK_EQ(comp.calls, 1);
    first = re_reg(t, re_memory, RE_LENGTH);
    CHECK(!re_same(re_key(t, first), key));
    ut_mem_dereg(t, first, NULL);
    ut_md_close(t);
}

/* Ranges that begin at the same address are never taken for each other. */
static void lengths(ut_t *t)
{
    static re_key_t keys[RE_LENGTHS];
    uct_mem_h       memh;
    unsigned        i, j;

    re_open(t);
    for (i = 0; i < RE_LENGTHS; ++i) {
        memh    = re_reg(t, re_memory, i + 1);
        keys[i] = re_key(t, memh);
        ut_mem_dereg(t, memh, NULL);
        for (j = 0; j < i; ++j) {
            CHECK(!re_same(keys[i], keys[j]));
        }
    }
    ut_md_close(t);
}

/* Old ones make room: far more ranges than a domain may have regions. */
static void room(ut_t *t)
{
    uct_mem_h kept;
    re_key_t  key;
    size_t    i;

    setenv("ANGARA_MR_MAX", t->arg, 1);
    re_open(t);
    kept = re_reg(t, re_memory, sizeof(re_memory));
    key  = re_key(t, kept);
    for (i = 0; i < 20000; ++i) {
        ut_mem_dereg(t, re_reg(t, re_memory + i, RE_LENGTH), NULL);
    }
    CHECK(re_same(re_key(t, kept), key)); /* what is in use stays */
    ut_mem_dereg(t, kept, NULL);
    ut_md_close(t);
}

#define RE_ROUNDS 20000u

typedef struct {
    ut_t     *t;
    unsigned  seed;
    ut_comp_t comps[RE_ROUNDS / 16 + 1]; /* each is told once, by whichever thread is the last */
} re_thread_t;

/* The same few ranges by all threads, now and then invalidated. */
static void *re_hammer(void *arg)
{
    re_thread_t *self  = arg;
    ut_t        *t     = self->t;
    unsigned     state = self->seed, i;

    for (i = 0; i < RE_ROUNDS; ++i) {
        char     *address = re_memory + (state >> 16) % 8 * RE_LENGTH;
        uct_mem_h memh    = re_reg(t, address, RE_LENGTH);
        re_key_t  key     = re_key(t, memh);

        CHECK(re_same(re_key(t, memh), key)); /* the region stays as long as it is used */
        ut_mem_dereg(t, memh, (i % 16 == 0) ? &self->comps[i / 16].super : NULL);
        state = state * 1103515245u + 12345;
    }
    return NULL;
}

static void threads(ut_t *t)
{
    static re_thread_t self[RE_THREADS];
    pthread_t          thread[RE_THREADS];
    unsigned           i, round;

    re_open(t);
    for (i = 0; i < RE_THREADS; ++i) {
        self[i].t    = t;
        self[i].seed = i + 1;
        for (round = 0; round < RE_ROUNDS; round += 16) {
            ut_comp_init(&self[i].comps[round / 16], 1);
        }
        CHECK_EQ(pthread_create(&thread[i], NULL, re_hammer, &self[i]), 0);
    }
    for (i = 0; i < RE_THREADS; ++i) {
        CHECK_EQ(pthread_join(thread[i], NULL), 0);
    }
    for (i = 0; i < RE_THREADS; ++i) {
        for (round = 0; round < RE_ROUNDS; round += 16) {
            CHECK_EQ(self[i].comps[round / 16].calls, 1);
        }
    }
    ut_md_close(t);
}

#define RE_TEST(_func)                     \
    static void test_##_func(void **state) \
    {                                      \
        (void)state;                       \
        ut_run(1, _func, NULL);            \
    }

RE_TEST(window)
RE_TEST(ranges)
RE_TEST(lengths)
RE_TEST(threads)

static void test_room(void **state)
{
    (void)state;
    ut_run(1, room, "16"); /* the least: none is kept */
    ut_run(1, room, "256");
    ut_run(1, room, "1024");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window),  cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_lengths), cmocka_unit_test(test_room),
        cmocka_unit_test(test_threads),
    };

    return ut_main(argc, argv, "reuse", tests, sizeof(tests) / sizeof(tests[0]));
}
