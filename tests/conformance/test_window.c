/* SPDX-License-Identifier: BSD-3-Clause */
/* Put windows: plain and flagged puts, bounds, commit, faults, same-word order. */
#define _GNU_SOURCE
#include "conf.h"

#include <cmocka.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define SLOTS     8u
#define SLOT_SIZE (64u << 10)
#define CREDIT_OFF \
    (SLOTS * SLOT_SIZE) /* where the receiver returns credits in the sender's window */

static const uint32_t sizes[] = {0,    1,    2,    7,    8,    9,     31,    55,    56,    57,
                                 63,   64,   65,   127,  128,  129,   255,   256,   1000,  1024,
                                 4095, 4096, 4097, 8191, 8192, 16383, 20000, 32768, 65000, 65496};

/* What a slot announces: its place and length follow from the number alone, for both sides. */
static uint32_t size_max;

static uint32_t message_size(unsigned n)
{
    uint32_t size = sizes[(n * 7) % (sizeof(sizes) / sizeof(sizes[0]))];

    return (size < size_max) ? size : size_max;
}

static uint32_t message_shift(unsigned n)
{
    return (n * 3) % 8;
}

/* The flag sits right behind the data, or in front of it in the same slot. */
static uint64_t message_flag_offset(unsigned n)
{
    uint64_t slot = (uint64_t)(n % SLOTS) * SLOT_SIZE;

    if ((n % 3) == 0) {
        return slot;
    }
    return slot + ((8 + message_shift(n) + message_size(n) + 7) & ~7ull);
}

static uint64_t message_offset(unsigned n)
{
    return (uint64_t)(n % SLOTS) * SLOT_SIZE + 8 + ((n % 3) == 0 ? message_shift(n) : 0);
}

static void flagged_send(conf_t *t, unsigned to, unsigned n, char *buffer, int in_place)
{
    uint32_t size = message_size(n);
    void    *p;

    CONF_WAIT(t,
              n < SLOTS + __atomic_load_n((uint64_t *)(t->window + CREDIT_OFF), __ATOMIC_ACQUIRE));
    if (in_place) {
        p = angara_put_begin(t->peer[to], message_offset(n), size, buffer);
        data_fill(p, size, n);
        POST_OK(t, angara_put_commit(t->peer[to], p, message_offset(n), size,
                                     message_flag_offset(n), n + 1));
    } else {
        data_fill(buffer, size, n);
        POST_OK(t, angara_put_flag(t->peer[to], message_offset(n), buffer, size,
                                   message_flag_offset(n), n + 1));
        memset(buffer, 0xdd, size); /* the source is ours again */
    }
}

static void flagged_receive(conf_t *t, unsigned from, unsigned n)
{
    uint64_t *flag = (uint64_t *)(t->window + message_flag_offset(n));

    CONF_WAIT(t, __atomic_load_n(flag, __ATOMIC_ACQUIRE) == n + 1);
    CHECK_DATA(t->window + message_offset(n), message_size(n), n);
    *flag = 0;
    memset(t->window + message_offset(n), 0, message_size(n));
    POST_OK(t, angara_put_u64(t->peer[from], CREDIT_OFF, n + 1));
}

/* Both ranks send and receive through a ring of slots; the data is looked at once the flag is. */
static void flagged(conf_t *t)
{
    unsigned rounds   = conf_rounds(rank_chaos() ? 600 : 3000);
    unsigned other    = 1 - t->rank;
    int      in_place = *(const int *)t->arg;
    char    *buffer   = malloc(SLOT_SIZE);
    unsigned n;

    CHECK(buffer != NULL);
    conf_open(t);
    size_max = (t->attr.put_max < SLOT_SIZE) ? (uint32_t)t->attr.put_max : SLOT_SIZE;
    for (n = 0; n < rounds; ++n) {
        flagged_send(t, other, n, buffer, in_place);
        flagged_receive(t, other, n);
    }
    conf_marker(t, other);
    conf_close(t);
    free(buffer);
}

/* One word written many times, in all ways that write it: values are never seen to go back. */
static void same_word(conf_t *t)
{
    unsigned           rounds = conf_rounds(rank_chaos() ? 2000 : 20000);
    volatile uint64_t *word;
    uint64_t           last = 0, now, n;

    conf_open(t);
    word = (volatile uint64_t *)t->window;
    if (t->rank == 0) {
        for (n = 1; n <= rounds; ++n) {
            switch (n % 4) {
            case 0:
                POST_OK(t, angara_put(t->peer[1], 0, &n, sizeof(n)));
                break;
            case 1:
                POST_OK(t, angara_put_flag(t->peer[1], 64, &n, sizeof(n), 0, n));
                break;
            default:
                POST_OK(t, angara_put_u64(t->peer[1], 0, n));
                break;
            }
        }
        conf_marker(t, 1);
    } else {
        conf_timer_t timer = conf_timer();

        while (last < rounds) {
            now = *word;
            if (now < last) {
                rank_fail(__FILE__, __LINE__, "%llu was seen after %llu", (unsigned long long)now,
                          (unsigned long long)last);
            }
            last = now;
            conf_relax(t, &timer, __FILE__, __LINE__, "last < rounds");
        }
    }
    conf_close(t);
}

/* Narrow writes leave their neighbours alone and are ordered within their word. */
static void narrow_words(conf_t *t)
{
    unsigned  rounds = conf_rounds(rank_chaos() ? 500 : 5000);
    unsigned  n, lane;
    uint16_t *words;
    uint16_t  last[4] = {0};

    conf_open(t);
    words = (uint16_t *)t->window;
    if (t->rank == 0) {
        for (n = 1; n <= rounds; ++n) {
            for (lane = 0; lane < 4; ++lane) {
                POST_OK(t, angara_put_u16(t->peer[1], 2 * lane, (uint16_t)n));
            }
        }
        conf_marker(t, 1);
    } else {
        conf_timer_t timer = conf_timer();

        while (last[3] < rounds) {
            for (lane = 4; lane-- > 0;) { /* read the youngest first: its elders are older */
                uint16_t now = __atomic_load_n(&words[lane], __ATOMIC_ACQUIRE);

                CHECK(now >= last[lane]);
                CHECK((lane == 3) || (now >= last[lane + 1]));
                last[lane] = now;
            }
            conf_relax(t, &timer, __FILE__, __LINE__, "last[3] < rounds");
        }
        CHECK_EQ(words[4], 0);
    }
    conf_close(t);
}

/* Unflagged puts of all sizes and shifts have arrived when the marker has; neighbours are intact.
 */
static void plain(conf_t *t)
{
    size_t   offset = 4096 + 3, i;
    unsigned n;
    char    *buffer = malloc(SLOT_SIZE);

    CHECK(buffer != NULL);
    conf_open(t);
    memset(t->window, 0x55, CONF_WINDOW);
    conf_barrier(t);
    for (n = 0; (n < sizeof(sizes) / sizeof(sizes[0])) && (sizes[n] <= t->attr.put_max); ++n) {
        if (t->rank == 0) {
            data_fill(buffer, sizes[n], n);
            POST_OK(t, angara_put(t->peer[1], offset + n % 8, buffer, sizes[n]));
            memset(buffer, 0xdd, sizes[n]);
            conf_marker(t, 1);
        }
        conf_barrier(t);
        if (t->rank == 1) {
            CHECK_DATA(t->window + offset + n % 8, sizes[n], n);
            CHECK_EQ(t->window[offset + n % 8 - 1], 0x55);
            CHECK_EQ(t->window[offset + n % 8 + sizes[n]], 0x55);
            memset(t->window + offset + n % 8, 0x55, sizes[n]);
        }
        conf_barrier(t);
    }
    for (i = 0; (t->rank == 1) && (i < CONF_WINDOW); ++i) {
        CHECK(t->window[i] == 0x55);
    }
    conf_close(t);
    free(buffer);
}

/* Everything outside the window is refused, and nothing moves; the pair stays usable. */
static void bounds(conf_t *t)
{
    static const uint64_t far[] = {UINT64_MAX, UINT64_MAX - 7, UINT64_MAX / 2, 1ull << 40};
    char                  byte[16];
    size_t                size, i;

    memset(byte, 0x77, sizeof(byte));
    conf_open(t);
    angara_pe_window(t->pe, &size);
    if (t->rank == 0) {
        CHECK_STATUS(angara_put(t->peer[1], size, byte, 1), ANGARA_ERR_BOUNDS);
        CHECK_STATUS(angara_put(t->peer[1], size - 1, byte, 2), ANGARA_ERR_BOUNDS);
        CHECK_STATUS(angara_put(t->peer[1], 0, byte, size + 1), ANGARA_ERR_BOUNDS);
        CHECK_STATUS(angara_put(t->peer[1], 8, byte, SIZE_MAX), ANGARA_ERR_BOUNDS);
        CHECK_STATUS(angara_put_flag(t->peer[1], 0, byte, 8, size, 1), ANGARA_ERR_BOUNDS);
        CHECK_STATUS(angara_put_flag(t->peer[1], size, byte, 1, 0, 1), ANGARA_ERR_BOUNDS);
        CHECK_STATUS(angara_put_flag(t->peer[1], 0, byte, 8, 12, 1), ANGARA_ERR_INVALID);
        for (i = 0; i < sizeof(far) / sizeof(far[0]); ++i) {
            CHECK_STATUS(angara_put(t->peer[1], far[i], byte, 8), ANGARA_ERR_BOUNDS);
            CHECK_STATUS(angara_put_flag(t->peer[1], 0, byte, 8, far[i] & ~7ull, 1),
                         ANGARA_ERR_BOUNDS);
        }
        POST_OK(t, angara_put(t->peer[1], size - 1, byte, 1));
        POST_OK(t, angara_put(t->peer[1], 0, byte, 0));
        conf_marker(t, 1);
    }
    conf_barrier(t);
    if (t->rank == 1) {
        CHECK_EQ(t->window[size - 1], 0x77);
        for (i = 0; i + 1 < size; ++i) {
            CHECK(t->window[i] == 0);
        }
    }
    conf_close(t);
}

/* Memory is given part by part; bytes without are the initiator's error, by call. */
static void commit(conf_t *t)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = 16u << 20};
    size_t             half   = 8u << 20, size;
    size_t             length;
    char               buffer[4096];
    angara_status_t    status;

    conf_open_params(t, &params);
    angara_pe_window(t->pe, &size);
    CHECK(size >= (16u << 20));
    CHECK_STATUS(angara_pe_window_commit(t->pe, size, 1), ANGARA_ERR_BOUNDS);
    CHECK_STATUS(angara_pe_window_commit(t->pe, 0, size + 1), ANGARA_ERR_BOUNDS);
    CHECK_STATUS(angara_pe_window_commit(t->pe, 4096, SIZE_MAX - 100), ANGARA_ERR_BOUNDS);
    length = (t->attr.put_max < sizeof(buffer)) ? t->attr.put_max : sizeof(buffer);
    data_fill(buffer, length, 1);
    if (t->rank == 0) {
        /* A provider may refuse it or let it fall on the floor, but nobody crashes. */
        status = CONF_POST(t, angara_put(t->peer[1], 4u << 20, buffer, length));
        CHECK((status == ANGARA_OK) || (status == ANGARA_ERR_BOUNDS));
        conf_settle(t, 1);
    }
    conf_barrier(t);
    CHECK_OK(angara_pe_window_commit(t->pe, half, 100000));
    CHECK_EQ(t->window[half], 0);
    CHECK_EQ(t->window[half + 99999], 0);
    conf_barrier(t);
    if (t->rank == 0) {
        POST_OK(t, angara_put(t->peer[1], half, buffer, length));
        POST_OK(t, angara_put(t->peer[1], half + 100000 - length, buffer, length));
        conf_marker(t, 1);
    }
    conf_barrier(t);
    if (t->rank == 1) {
        /* A second commit keeps what is there. */
        CHECK_OK(angara_pe_window_commit(t->pe, half, 200000));
        CHECK_DATA(t->window + half, length, 1);
        CHECK_DATA(t->window + half + 100000 - length, length, 1);
    }
    conf_close(t);
}

static long faults(void)
{
    struct rusage usage;

    CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
    return usage.ru_minflt;
}

/* Can this kernel do it (Linux 5.14)? */
static int can_prefault(size_t page)
{
    void *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int   can;

    CHECK(memory != MAP_FAILED);
    can = madvise(memory, page, MADV_POPULATE_WRITE) == 0;
    munmap(memory, page);
    return can;
}

/* Neither the owner of what is committed, nor a peer that has told of it, takes a fault for each
 * page. A quarter of them leaves room for those of sanitizers. */
static void prefault(conf_t *t)
{
    enum { PAGES = 128 };
    angara_pe_params_t params = {.size = sizeof(params), .window_size = 32u << 20};
    const uint64_t     at     = 8u << 20;
    const size_t       page   = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t           value;
    long               before;
    int                looks;

    conf_open_params(t, &params);
    looks = angara_peer_fast(t->peer[1 - t->rank])->window != NULL && can_prefault(page);
    if (t->rank == 1) {
        CHECK_OK(angara_pe_window_commit(t->pe, at + 8, PAGES * page));
        before = faults();
        for (uint64_t i = 0; i < PAGES; ++i) {
            *(uint64_t *)(void *)(t->window + at + 8 + i * page) = i;
        }
        CHECK(!looks || faults() - before < PAGES / 4);
    }
    conf_barrier(t);
    if (t->rank == 0) { /* what it can't map is left out */
        angara_peer_window_prefault(NULL, at, 8);
        angara_peer_window_prefault(t->peer[1], at + 8, 0);
        angara_peer_window_prefault(t->peer[1], params.window_size - 8, 16);
        angara_peer_window_prefault(t->peer[1], UINT64_MAX, 8);
        angara_peer_window_prefault(t->peer[1], 8, SIZE_MAX);
        angara_peer_window_prefault(t->peer[1], at + 8, PAGES * page);
        before = faults();
        for (uint64_t i = 0; i < PAGES; ++i) {
            value = 3 * i;
            POST_OK(t, angara_put(t->peer[1], at + 16 + i * page, &value, sizeof(value)));
        }
        CHECK(!looks || faults() - before < PAGES / 4);
        conf_marker(t, 1);
    }
    conf_barrier(t);
    for (uint64_t i = 0; t->rank == 1 && i < PAGES; ++i) {
        CHECK_EQ(*(uint64_t *)(void *)(t->window + at + 8 + i * page), i);
        CHECK_EQ(*(uint64_t *)(void *)(t->window + at + 16 + i * page), 3 * i);
    }
    conf_close(t);
}

/* Three writers, one target, neighbouring words: nobody's write is lost. */
static void writers(conf_t *t)
{
    unsigned           rounds = conf_rounds(rank_chaos() ? 500 : 5000);
    volatile uint64_t *words;
    uint64_t           n;
    unsigned           i;

    conf_open(t);
    words = (volatile uint64_t *)t->window;
    if (t->rank != 0) {
        for (n = 1; n <= rounds; ++n) {
            POST_OK(t, angara_put_u64(t->peer[0], 8 * t->rank, n));
        }
        conf_marker(t, 0);
    }
    conf_barrier(t);
    for (i = 1; (t->rank == 0) && (i < t->nranks); ++i) {
        CHECK_EQ(words[i], rounds);
    }
    conf_close(t);
}

static void test_flagged(void **state)
{
    int in_place = 0;

    (void)state;
    conf_run(2, flagged, &in_place);
}

static void test_flagged_in_place(void **state)
{
    int in_place = 1;

    (void)state;
    conf_run(2, flagged, &in_place);
}

static void test_same_word(void **state)
{
    (void)state;
    conf_run(2, same_word, NULL);
}

static void test_narrow_words(void **state)
{
    (void)state;
    conf_run(2, narrow_words, NULL);
}

static void test_plain(void **state)
{
    (void)state;
    conf_run(2, plain, NULL);
}

static void test_bounds(void **state)
{
    (void)state;
    conf_run(2, bounds, NULL);
}

static void test_commit(void **state)
{
    (void)state;
    conf_run(2, commit, NULL);
}

static void test_prefault(void **state)
{
    (void)state;
    conf_run(2, prefault, NULL);
}

static void test_writers(void **state)
{
    (void)state;
    conf_run(4, writers, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flagged),   cmocka_unit_test(test_flagged_in_place),
        cmocka_unit_test(test_same_word), cmocka_unit_test(test_narrow_words),
        cmocka_unit_test(test_plain),     cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_commit),    cmocka_unit_test(test_prefault),
        cmocka_unit_test(test_writers),
    };

    return cmocka_run_group_tests_name("window", tests, NULL, NULL);
}
