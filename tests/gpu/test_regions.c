/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions of GPU memory: data gets there and back, whatever memory is at the two ends, whoever has
 * GPUs, and by the way that it should go. Runs over the runtime that ANGARA_TEST_GPU names, real or
 * stand-in.
 */
#include "regions.h"

#include <cmocka.h>

#define GUARD 64   /* bytes around a destination */
#define SLACK 4096 /* of a region beyond the longest transfer */

/* How a rank of a test uses GPUs. */
typedef enum {
    USES_ALL,
    USES_NONE, /* loads no runtime */
    IGNORES,   /* loads one, and the library is told to leave it alone */
    USES_FIRST,
    USES_SECOND
} use_t;

typedef struct {
    use_t    uses[2];
    int      has_peer_access;
    unsigned places; /* bits */
    size_t   most;   /* longest transfer */
} setup_t;

static void set_up(conf_t *t, const setup_t *setup)
{
    static const char *const visible[] = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"};
    use_t                    use       = setup->uses[t->rank];
    char                     mine, all[RANK_MAX];

    if (!setup->has_peer_access) {
        setenv("STANDIN_PEER", "0", 1);
    }
    if (use == USES_FIRST || use == USES_SECOND) {
        setenv(visible[gpu == &device_rocm], use == USES_FIRST ? "0" : "1", 1);
    }
    if (use == IGNORES) {
        setenv("ANGARA_GPU", "none", 1);
    }
    mine = use == USES_NONE || gpu->open() != 0;
    conf_exchange(t, &mine, all, 1);
    if (!all[0] || !all[1]) {
        rank_skip("there is one GPU");
    }
    if (use != USES_NONE) {
        gpu_start();
    }
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* What a rank has, and what the other one must know of it. */
typedef struct {
    uint64_t key;
    int      exists;
    int      has_handle;
} far_t;

typedef struct {
    conf_t        *t;
    const setup_t *setup;
    region_t       regions[2 * PLACES_NUM]; /* the second half: of the last GPU */
    far_t          mine[2 * PLACES_NUM], all[2][2 * PLACES_NUM];
    unsigned char *bytes;
    uint64_t       seed;
} pair_t;

static unsigned place_of(unsigned index)
{
    return index % PLACES_NUM;
}

static int is_gpu(unsigned index)
{
    return place_is_gpu(place_of(index));
}

static size_t room(const pair_t *p)
{
    return p->setup->most + SLACK;
}

static int is_wanted(const pair_t *p, unsigned index)
{
    use_t use     = p->setup->uses[p->t->rank];
    int   is_last = index >= PLACES_NUM;

    if (!(p->setup->places >> place_of(index) & 1) || (is_last && !is_gpu(index))) {
        return 0;
    }
    if (place_of(index) < DEVICE_ORIGINS) {
        return use != USES_NONE && (use != IGNORES || !is_gpu(index)) && (!is_last || num_gpus > 1);
    }
    return 1;
}

static void pair_open(pair_t *p, conf_t *t, const setup_t *setup)
{
    memset(p, 0, sizeof(*p));
    p->t     = t;
    p->setup = setup;
    set_up(t, setup);
    conf_open(t);
    for (unsigned i = 0; i < 2 * PLACES_NUM; ++i) {
        unsigned device = i < PLACES_NUM ? 0 : num_gpus - 1;

        if (is_wanted(p, i) &&
            region_open(t, &p->regions[i], place_of(i), device, room(p), ANGARA_ACCESS_ALL)) {
            p->mine[i] = (far_t){p->regions[i].key, 1,
                                 is_gpu(i) && region_has_handle(&p->regions[i])};
        }
    }
    p->bytes = malloc(room(p));
    conf_exchange(t, p->mine, p->all, sizeof(p->mine));
}

static void pair_close(pair_t *p)
{
    conf_barrier(p->t);
    for (unsigned i = 0; i < 2 * PLACES_NUM; ++i) {
        if (p->mine[i].exists) {
            region_close(&p->regions[i]);
        }
    }
    free(p->bytes);
    conf_close(p->t);
}

/* The destination, with a frame that must stay. */
static void destination_prepare(pair_t *p, unsigned index, size_t at, size_t length)
{
    memset(p->bytes, 0xee, length + 2 * GUARD);
    region_write(&p->regions[index], at - GUARD, p->bytes, length + 2 * GUARD);
}

static void destination_check(pair_t *p, unsigned index, size_t at, size_t length)
{
    region_read(&p->regions[index], at - GUARD, p->bytes, length + 2 * GUARD);
    CHECK_DATA(p->bytes + GUARD, length, p->seed);
    for (unsigned i = 0; i < GUARD; ++i) {
        CHECK_EQ(p->bytes[i], 0xee);
        CHECK_EQ(p->bytes[GUARD + length + i], 0xee);
    }
}

/* May the initiator go to the other's memory itself, and does it find a way? */
static int goes_by_mapping(const pair_t *p, unsigned active, unsigned there)
{
    const setup_t *s = p->setup;

    return p->all[1 - active][there].has_handle &&
           (s->uses[active] == USES_ALL || (s->uses[0] == s->uses[1] && s->uses[0] == USES_FIRST));
}

/* Rank `active` puts or gets; the two ends are `here` and, in the other rank, `there`. */
static void transfer(pair_t *p, unsigned active, int is_put, unsigned here, unsigned there,
                     size_t length)
{
    conf_t  *t         = p->t;
    int      is_active = t->rank == active;
    int      is_source = is_active == is_put;
    unsigned index     = is_active ? here : there;
    size_t   at        = is_source ? p->seed % 61 : GUARD + p->seed % 67;
    size_t   offset    = is_put ? GUARD + p->seed % 67 : p->seed % 61;
    uint64_t before;

    if (is_source) {
        region_fill(&p->regions[index], at, length, p->seed);
    } else {
        destination_prepare(p, index, at, length);
    }
    conf_barrier(t);
    if (is_active) {
        before = services(t);
        CHECK_OK(put_get(t, 1 - active, is_put, &p->regions[here], at,
                         p->all[1 - active][there].key, offset, length));
        /* Without loopback requests are made for other reasons, too. */
        if (length > 0 && is_gpu(there) && conf_env_on("ANGARA_SOFT_LOOPBACK") &&
            (is_standin || p->setup->has_peer_access)) { /* real ones may reach each other */
            CHECK_EQ(services(t) == before, goes_by_mapping(p, active, there));
        }
    }
    if (is_source) {
        conf_barrier(t);
    } else {
        if (!is_active) {
            conf_barrier(t);
        }
        destination_check(p, index, at, length);
        if (is_active) {
            conf_barrier(t);
        }
    }
    ++p->seed;
}

static void transfers(pair_t *p, unsigned active, unsigned here, unsigned there)
{
    static const size_t sizes[] = {0,     1,      7,      8,      100,        4095,
                                   65537, 300000, MB + 5, 8 * MB, 16 * MB - 1};

    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && sizes[i] <= p->setup->most; ++i) {
        if (sizes[i] <= 2 * MB || place_of(here) == PLACE_HEAP || place_of(there) == PLACE_HEAP ||
            here == there) {
            transfer(p, active, 1, here, there, sizes[i]);
            transfer(p, active, 0, here, there, sizes[i]);
        }
    }
}

static void run_transfers(conf_t *t)
{
    pair_t p;

    pair_open(&p, t, t->arg);
    for (unsigned active = 0; active < 2; ++active) {
        for (unsigned here = 0; here < 2 * PLACES_NUM; ++here) {
            for (unsigned there = 0; there < 2 * PLACES_NUM; ++there) {
                if ((is_gpu(here) || is_gpu(there)) && p.all[active][here].exists &&
                    p.all[1 - active][there].exists) {
                    transfers(&p, active, here, there);
                }
            }
        }
    }
    CHECK(p.seed > 0);
    if (is_standin) {
        CHECK_EQ(standin.calls("detour"), 0);
    }
    pair_close(&p);
}

#define BIT(_place) (1u << (_place))

/* From and to the host, and between GPUs. */
static void test_placements(void **state)
{
    const setup_t setup = {.uses            = {USES_ALL, USES_ALL},
                           .has_peer_access = 1,
                           .places = BIT(PLACE_HEAP) | BIT(PLACE_SHARED) | BIT(DEVICE_PLAIN),
                           .most   = getenv("ANGARA_TEST_LARGE") != NULL ? 16 * MB :
                                     getenv("ANGARA_TEST_QUICK") != NULL ? 300000 :
                                                                           8 * MB};

    (void)state;
    conf_run(2, run_transfers, &setup);
}

static void test_origins(void **state)
{
    const setup_t setup = {.uses            = {USES_ALL, USES_ALL},
                           .has_peer_access = 1,
                           .places = BIT(DEVICE_ORIGINS) - 1, /* all of them, against each other */
                           .most   = 70000};

    (void)state;
    conf_run(2, run_transfers, &setup);
}

#define SOME (BIT(PLACE_HEAP) | BIT(PLACE_SHARED) | BIT(DEVICE_PLAIN) | BIT(DEVICE_PINNED))

static void test_no_peer_access(void **state)
{
    const setup_t setup = {{USES_ALL, USES_ALL}, 0, SOME, 300000};
    const setup_t one   = {{USES_FIRST, USES_FIRST}, 0, SOME, 300000};

    (void)state;
    /* device_rocm.c is a program that has access from all GPUs to all. */
    conf_run(2, run_transfers, gpu == &device_rocm ? &one : &setup);
}

/* Neither sees the other's GPU. */
static void test_strangers(void **state)
{
    const setup_t setup = {{USES_FIRST, USES_SECOND}, 0, SOME, 70000};

    (void)state;
    conf_run(2, run_transfers, &setup);
}

static void test_one_gpu(void **state)
{
    const setup_t setup = {{USES_FIRST, USES_FIRST}, 1, SOME, 70000};

    (void)state;
    conf_run(2, run_transfers, &setup);
}

/* One of the two has no GPU memory, and reaches the other's all the same. */
static void test_one_sided(void **state)
{
    const setup_t none = {{USES_ALL, USES_NONE}, 1, SOME, 300000};
    const setup_t told = {{USES_ALL, IGNORES}, 1, SOME, 70000};

    (void)state;
    conf_run(2, run_transfers, &none);
    conf_run(2, run_transfers, &told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_placements), TEST(test_origins), TEST(test_no_peer_access),
        TEST(test_strangers),  TEST(test_one_gpu), TEST(test_one_sided),
    };
    int result = regions_begin();

    return result >= 0 ? result : cmocka_run_group_tests(tests, NULL, NULL);
}
