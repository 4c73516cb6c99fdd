/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Offload put and get, of private and of shared memory at either end, all sizes and shifts; inline
 * puts; several initiators at once.
 */
#include "conf.h"

#include <cmocka.h>

#define REGION (8u << 20)
#define GUARD  64u

typedef struct {
    int local_shared;
    int remote_shared;
} kinds_t;

static const size_t sizes[] = {
    1,       2,     3,    7,    8,     9,     63,    64,    65,      255,
    1000,    4095,  4096, 4097, 10000, 65535, 65536, 65537, 1 << 20, (1 << 20) + 13,
    3 << 20, REGION};

#define NUM_SIZES (sizeof(sizes) / sizeof(sizes[0]))

typedef struct {
    conf_mem_t mem; /* this rank's target */
    conf_mem_t buf; /* this rank's local buffer */
    uint64_t   keys[RANK_MAX];
} regions_t;

static void regions_init(conf_t *t, regions_t *r)
{
    const kinds_t *kinds = t->arg;

    conf_mem_init(t, &r->mem, kinds->remote_shared, REGION + 2 * GUARD,
                  ANGARA_ACCESS_REMOTE_READ | ANGARA_ACCESS_REMOTE_WRITE);
    conf_mem_init(t, &r->buf, kinds->local_shared, REGION + 2 * GUARD, ANGARA_ACCESS_LOCAL_WRITE);
    conf_mem_exchange(t, &r->mem, r->keys);
}

static void regions_cleanup(conf_t *t, regions_t *r)
{
    conf_barrier(t);
    conf_mem_cleanup(&r->buf);
    conf_mem_cleanup(&r->mem);
}

static void check_guards(const conf_mem_t *mem, size_t start, size_t length, char value)
{
    size_t i;

    for (i = 0; i < GUARD; ++i) {
        CHECK((start < i + 1) || (mem->addr[start - i - 1] == value));
        CHECK(mem->addr[start + length + i] == value);
    }
}

/* Rank 0 puts, rank 1 looks as soon as rank 0's marker has returned. */
static void put_sizes(conf_t *t)
{
    size_t    remote, local, n;
    regions_t r;

    conf_open(t);
    regions_init(t, &r);
    for (n = 0; n < NUM_SIZES; ++n) {
        remote = (sizes[n] == REGION) ? GUARD : GUARD + (n * 5) % 32;
        local  = (n * 3) % 16;
        remote = (remote + sizes[n] > REGION + GUARD) ? GUARD : remote;
        if (t->rank == 1) {
            memset(r.mem.addr, 0x33, remote + sizes[n] + GUARD);
        }
        conf_barrier(t);
        if (t->rank == 0) {
            data_fill(r.buf.addr + local, sizes[n], n);
            POST_OK(t, angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr + local, r.keys[1],
                                          remote, sizes[n]));
            conf_marker(t, 1);
            memset(r.buf.addr + local, 0xdd, sizes[n]);
        }
        conf_barrier(t);
        if (t->rank == 1) {
            CHECK_DATA(r.mem.addr + remote, sizes[n], n);
            check_guards(&r.mem, remote, sizes[n], 0x33);
        }
        conf_barrier(t);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

static void get_sizes(conf_t *t)
{
    size_t    remote, local, n;
    regions_t r;

    conf_open(t);
    regions_init(t, &r);
    for (n = 0; n < NUM_SIZES; ++n) {
        remote = (n * 5) % 32;
        local  = (sizes[n] == REGION) ? GUARD : GUARD + (n * 3) % 16;
        remote = (remote + sizes[n] > REGION + GUARD) ? 0 : remote;
        if (t->rank == 1) {
            data_fill(r.mem.addr + remote, sizes[n], n);
        } else {
            memset(r.buf.addr, 0x33, local + sizes[n] + GUARD);
        }
        conf_barrier(t);
        if (t->rank == 0) {
            POST_OK(t, angara_offload_get(t->peer[1], r.buf.mr, r.buf.addr + local, r.keys[1],
                                          remote, sizes[n]));
            conf_marker(t, 1);
            CHECK_DATA(r.buf.addr + local, sizes[n], n);
            check_guards(&r.buf, local, sizes[n], 0x33);
        }
        conf_barrier(t);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

/* Many operations under one marker, both directions between all ranks at once. */
static void storm(conf_t *t)
{
    unsigned  rounds = conf_rounds(rank_chaos() ? 10 : 40);
    unsigned  batch  = 24, i, to, round;
    size_t    piece  = 5000, at;
    regions_t r;

    conf_open(t);
    regions_init(t, &r);
    to = (t->rank + 1) % t->nranks;
    for (round = 0; round < rounds; ++round) {
        for (i = 0; i < batch; ++i) {
            at = (size_t)i * 2 * piece;
            data_fill(r.buf.addr + at, piece, round * 100 + i);
            POST_OK(t, angara_offload_put(t->peer[to], r.buf.mr, r.buf.addr + at, r.keys[to], at,
                                          piece));
            /* Read back what was just written: ring order to one destination. */
            POST_OK(t, angara_offload_get(t->peer[to], r.buf.mr, r.buf.addr + at + piece,
                                          r.keys[to], at, piece));
        }
        conf_marker(t, to);
        for (i = 0; i < batch; ++i) {
            CHECK_DATA(r.buf.addr + (size_t)i * 2 * piece + piece, piece, round * 100 + i);
        }
        conf_barrier(t);
        for (i = 0; i < batch; ++i) {
            CHECK_DATA(r.mem.addr + (size_t)i * 2 * piece, piece, round * 100 + i);
        }
        conf_barrier(t);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

static void put_inline(conf_t *t)
{
    char      src[8192];
    size_t    length, max;
    regions_t r;

    conf_open(t);
    regions_init(t, &r);
    max = t->attr.inline_max;
    CHECK(max >= 8);
    CHECK(max < sizeof(src));
    for (length = 1; length <= max;
         length += ((length < 70) || (length == max - 1)) ? 1 : max / 9) {
        if (t->rank == 1) {
            memset(r.mem.addr, 0x33, 8192);
        }
        conf_barrier(t);
        if (t->rank == 0) {
            data_fill(src, length, length);
            POST_OK(t, angara_offload_put_inline(t->peer[1], src, r.keys[1], GUARD + length % 8,
                                                 length));
            memset(src, 0xdd, length);
            conf_marker(t, 1);
        }
        conf_barrier(t);
        if (t->rank == 1) {
            CHECK_DATA(r.mem.addr + GUARD + length % 8, length, length);
            check_guards(&r.mem, GUARD + length % 8, length, 0x33);
        }
        conf_barrier(t);
    }
    if (t->rank == 0) {
        CHECK_STATUS(angara_offload_put_inline(t->peer[1], src, r.keys[1], 0, max + 1),
                     ANGARA_ERR_INVALID);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

/* Zero bytes move nothing and are no error; neither are they a way around the key's check. */
static void zero_length(conf_t *t)
{
    regions_t r;

    conf_open(t);
    regions_init(t, &r);
    if (t->rank == 0) {
        POST_OK(t, angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr, r.keys[1], 0, 0));
        POST_OK(t, angara_offload_get(t->peer[1], r.buf.mr, r.buf.addr, r.keys[1], 0, 0));
        conf_marker(t, 1);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

/* Operations on the own PE are local copies, in both loopback modes. */
static void own_pe(conf_t *t)
{
    unsigned  me = t->rank;
    size_t    length;
    uint64_t *word;
    void     *addr;
    regions_t r;

    conf_open(t);
    regions_init(t, &r);
    data_fill(r.buf.addr, 10001, 5);
    POST_OK(t, angara_offload_put(t->peer[me], r.buf.mr, r.buf.addr, r.keys[me], 3, 10001));
    POST_OK(t, angara_offload_get(t->peer[me], r.buf.mr, r.buf.addr + 20000, r.keys[me], 3, 10001));
    POST_OK(t, angara_put_flag(t->peer[me], 8, r.buf.addr, 1000, 0, 77));
    conf_marker(t, me);
    CHECK_DATA(r.mem.addr + 3, 10001, 5);
    CHECK_DATA(r.buf.addr + 20000, 10001, 5);
    CHECK_DATA(t->window + 8, 1000, 5);
    word = (uint64_t *)(void *)t->window;
    CHECK_EQ(*word, 77);
    angara_mr_range(r.mem.mr, &addr, &length);
    conf_expect_fault(t, me,
                      CONF_POST(t, angara_offload_put(t->peer[me], r.buf.mr, r.buf.addr, r.keys[me],
                                                      length - 3, 4)),
                      ANGARA_ERR_BOUNDS, r.keys[me]);
    regions_cleanup(t, &r);
    conf_close(t);
}

/* The local side is checked too: a foreign region, bytes outside, a source that can't be written.
 */
static void local_checks(conf_t *t)
{
    angara_status_t status;
    regions_t       r;
    conf_mem_t      readonly;

    conf_open(t);
    regions_init(t, &r);
    conf_mem_init(t, &readonly, 0, 4096, 0);
    if (t->rank == 0) {
        CHECK(angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr - 1, r.keys[1], 0, 8) < 0);
        CHECK(angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr + r.buf.length - 7, r.keys[1], 0,
                                 8) < 0);
        CHECK(angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr, r.keys[1], 0, SIZE_MAX) < 0);
        CHECK(angara_offload_put(t->peer[1], NULL, r.buf.addr, r.keys[1], 0, 8) < 0);
        memset(readonly.addr, 0x11, 8);
        status = CONF_POST(
            t, angara_offload_get(t->peer[1], readonly.mr, readonly.addr, r.keys[1], 0, 8));
        CHECK((status == ANGARA_OK) || (status == ANGARA_ERR_RIGHTS));
        CHECK((conf_settle(t, 1) == ANGARA_ERR_PAIR) || (status != ANGARA_OK));
        CHECK_EQ(readonly.addr[0], 0x11);
        conf_settle(t, 1);
    }
    conf_barrier(t);
    conf_mem_cleanup(&readonly);
    regions_cleanup(t, &r);
    conf_close(t);
}

static const kinds_t kinds[] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};

#define FOR_KINDS(_name)                                     \
    static void test_##_name##_private_private(void **state) \
    {                                                        \
        (void)state;                                         \
        conf_run(2, _name, &kinds[0]);                       \
    }                                                        \
    static void test_##_name##_private_shared(void **state)  \
    {                                                        \
        (void)state;                                         \
        conf_run(2, _name, &kinds[1]);                       \
    }                                                        \
    static void test_##_name##_shared_private(void **state)  \
    {                                                        \
        (void)state;                                         \
        conf_run(2, _name, &kinds[2]);                       \
    }                                                        \
    static void test_##_name##_shared_shared(void **state)   \
    {                                                        \
        (void)state;                                         \
        conf_run(2, _name, &kinds[3]);                       \
    }

FOR_KINDS(put_sizes)
FOR_KINDS(get_sizes)

static void test_storm_private(void **state)
{
    (void)state;
    conf_run(3, storm, &kinds[0]);
}

static void test_storm_shared(void **state)
{
    (void)state;
    conf_run(3, storm, &kinds[3]);
}

static void test_inline_private(void **state)
{
    (void)state;
    conf_run(2, put_inline, &kinds[0]);
}

static void test_inline_shared(void **state)
{
    (void)state;
    conf_run(2, put_inline, &kinds[3]);
}

static void test_zero_length(void **state)
{
    (void)state;
    conf_run(2, zero_length, &kinds[0]);
}

static void test_own_pe_private(void **state)
{
    (void)state;
    conf_run(1, own_pe, &kinds[0]);
}

static void test_own_pe_shared(void **state)
{
    (void)state;
    conf_run(1, own_pe, &kinds[3]);
}

static void test_local_checks(void **state)
{
    (void)state;
    conf_run(2, local_checks, &kinds[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_sizes_private_private),
        cmocka_unit_test(test_put_sizes_private_shared),
        cmocka_unit_test(test_put_sizes_shared_private),
        cmocka_unit_test(test_put_sizes_shared_shared),
        cmocka_unit_test(test_get_sizes_private_private),
        cmocka_unit_test(test_get_sizes_private_shared),
        cmocka_unit_test(test_get_sizes_shared_private),
        cmocka_unit_test(test_get_sizes_shared_shared),
        cmocka_unit_test(test_storm_private),
        cmocka_unit_test(test_storm_shared),
        cmocka_unit_test(test_inline_private),
        cmocka_unit_test(test_inline_shared),
        cmocka_unit_test(test_zero_length),
        cmocka_unit_test(test_own_pe_private),
        cmocka_unit_test(test_own_pe_shared),
        cmocka_unit_test(test_local_checks),
    };

    return cmocka_run_group_tests_name("offload", tests, NULL, NULL);
}
