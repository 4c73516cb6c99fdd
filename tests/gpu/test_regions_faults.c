/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions of GPU memory when calls of the runtime fail, and which calls there are: needs a
 * stand-in. What can't be mapped is copied by its owner; what fails is a fault, and no wrong data.
 * What another process says of its memory may be wrong.
 */
#include "provider/soft/gpu_mem.h"
#include "regions.h"

#include <cmocka.h>

#include <unistd.h>

#define SIZE     300000ul
#define CHECK_MS 5u /* ANGARA_PEER_CHECK, where a test waits for looks */

enum { OLD = 1, NEW, FRAME };

/* Of a runtime: what the library calls to share and to map, and what says that it failed. */
typedef struct {
    const char *share, *map;
    int         refused;
} calls_t;

static const calls_t *calls(void)
{
    static const calls_t cuda = {"cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2", 999};
    static const calls_t rocm = {"hsa_amd_ipc_memory_create", "hsa_amd_ipc_memory_attach", 0x1000};

    return gpu == &device_cuda ? &cuda : &rocm;
}

/* Rank 0 has one end in host or GPU memory, rank 1 the other in a GPU's. */
typedef struct {
    region_t region;
    uint64_t keys[2];
} ends_t;

static void ends_open(ends_t *e, conf_t *t, unsigned here, unsigned there)
{
    CHECK(region_open(t, &e->region, t->rank == 0 ? here : there, 0, SIZE, ANGARA_ACCESS_ALL));
    conf_exchange(t, &e->region.key, e->keys, sizeof(e->region.key));
}

/* Rank 0 puts and gets; all arrives. @return did the peer do it? */
static int exchange(ends_t *e, conf_t *t)
{
    uint64_t before = services(t);

    region_fill(&e->region, 0, SIZE, t->rank == 0 ? OLD : FRAME);
    conf_barrier(t);
    if (t->rank == 0) {
        CHECK_OK(put_get(t, 1, 1, &e->region, 0, e->keys[1], 0, SIZE));
    }
    conf_barrier(t);
    if (t->rank == 1) {
        region_check(&e->region, 0, SIZE, OLD);
        region_fill(&e->region, 0, SIZE, NEW);
    }
    conf_barrier(t);
    if (t->rank == 0) {
        CHECK_OK(put_get(t, 1, 0, &e->region, 0, e->keys[1], 0, SIZE));
        region_check(&e->region, 0, SIZE, NEW);
    }
    conf_barrier(t);
    return services(t) != before;
}

/* ---- no way to the memory -------------------------------------------------------------------- */

static void run_no_handle(conf_t *t)
{
    ends_t e;

    gpu_start();
    conf_open(t);
    standin.fail_call(calls()->share, 0, calls()->refused);
    ends_open(&e, t, PLACE_HEAP, DEVICE_PLAIN);
    CHECK_EQ(exchange(&e, t), t->rank == 0);
    CHECK_EQ(standin.mappings(), 0);
    region_close(&e.region);
    standin.fail_call(calls()->share, 0, 0);
    ends_open(&e, t, DEVICE_PLAIN, DEVICE_PLAIN);
    CHECK_EQ(exchange(&e, t), 0);
    region_close(&e.region);
    conf_close(t);
}

/* It is tried again, and found to work. */
static void run_no_mapping(conf_t *t)
{
    double end = now_seconds() + RANK_TIMEOUT;
    ends_t e;

    gpu_start();
    conf_open(t);
    standin.fail_call(calls()->map, 0, calls()->refused);
    ends_open(&e, t, PLACE_HEAP, DEVICE_PLAIN);
    CHECK_EQ(exchange(&e, t), t->rank == 0);
    standin.fail_call(calls()->map, 0, 0);
    while (t->rank == 0 && standin.mappings() == 0) {
        CHECK_OK(put_get(t, 1, 1, &e.region, 0, e.keys[1], 0, 10));
        CHECK(now_seconds() < end);
        sleep_ms(1);
    }
    conf_barrier(t);
    CHECK_EQ(exchange(&e, t), 0);
    region_close(&e.region);
    conf_close(t);
}

static void test_refused(void **state)
{
    (void)state;
    conf_run(2, run_no_handle, NULL);
    conf_run(2, run_no_mapping, NULL);
}

/* ---- a peer says what isn't so --------------------------------------------------------------- */

#define OWN_NUM 4
#define STEPS   17 /* half of them below the allocation */

/* Where this process has mapped the file of that name. */
static void *mapped_at(const char *name)
{
    char          line[512];
    unsigned long addr = 0;
    FILE         *maps = fopen("/proc/self/maps", "r");

    CHECK(maps != NULL);
    while (addr == 0 && fgets(line, sizeof(line), maps) != NULL) {
        if (strstr(line, name) != NULL) {
            CHECK(sscanf(line, "%lx", &addr) == 1);
        }
    }
    fclose(maps);
    CHECK(addr != 0);
    return (void *)addr;
}

/*
 * Rank 1 says that its allocation has no end, and that its region lies anywhere in it, where rank
 * 0's address space has other memory: that isn't touched, and the owner, who knows, does the copy.
 */
static void run_no_end(conf_t *t)
{
    soft_mr_entry_t *entry  = NULL;
    uint64_t         offset = 0;
    region_t         own[OWN_NUM];
    ends_t           e;

    gpu_start();
    conf_open(t);
    for (unsigned i = 0; i < OWN_NUM; ++i) {
        CHECK(region_open(t, &own[i], DEVICE_PLAIN, 0, MB, 0));
        region_fill(&own[i], 0, MB, FRAME);
    }
    ends_open(&e, t, PLACE_HEAP, DEVICE_PLAIN);
    if (t->rank == 1) {
        soft_domain_seg_t  *domain = mapped_at("memfd:angara-domain");
        soft_share_table_t *table  = mapped_at("memfd:angara-gpu");

        entry  = &domain->entries[SOFT_KEY_INDEX(e.region.key)];
        offset = entry->offset;

        table->shares[entry->share].length = UINT64_MAX;
    }
    for (int step = 0; step < STEPS; ++step) {
        if (t->rank == 1) {
            entry->offset = offset + (uint64_t)(step - STEPS / 2) * MB;
        }
        if (step != STEPS / 2) {
            CHECK_EQ(exchange(&e, t), t->rank == 0);
        }
        for (unsigned i = 0; i < OWN_NUM; ++i) {
            region_check(&own[i], 0, MB, FRAME);
        }
    }
    CHECK_EQ(standin.mappings(), t->rank == 0 && gpu == &device_cuda); /* ROCm's length is asked */
    for (unsigned i = 0; i < OWN_NUM; ++i) {
        region_close(&own[i]);
    }
    region_close(&e.region);
    conf_close(t);
}

static void test_no_end(void **state)
{
    (void)state;
    conf_run(2, run_no_end, NULL);
}

/* ---- copies fail ----------------------------------------------------------------------------- */

typedef struct {
    unsigned here, there;
    unsigned fails_in; /* the rank whose copy fails */
    int      is_put;
    int      is_made_up; /* the other rank's GPU makes it instead */
    size_t   length;     /* 0: SIZE; short ones aren't the other rank's */
} copy_case_t;

/* After an error CUDA does nothing more in that process: its memory can't be looked at then. */
static void run_copy_fails(conf_t *t)
{
    const copy_case_t *c      = t->arg;
    const size_t       length = c->length != 0 ? c->length : SIZE;
    int                is_read;
    angara_status_t    status;
    ends_t             e;

    gpu_start();
    conf_open(t);
    ends_open(&e, t, c->here, c->there);
    exchange(&e, t);
    region_fill(&e.region, 0, SIZE, FRAME + t->rank);
    conf_barrier(t);
    if (t->rank == c->fails_in) {
        standin.fail_call("copy", 1, gpu == &device_cuda ? 700 : -1);
    }
    conf_barrier(t);
    if (t->rank == 0) {
        status = put_get(t, 1, c->is_put, &e.region, 0, e.keys[1], 0, length);
        CHECK_STATUS(status, c->is_made_up ? ANGARA_OK : ANGARA_ERR_SYSTEM);
    }
    conf_barrier(t);
    is_read = t->rank != c->fails_in || !place_is_gpu(e.region.place);
    if (is_read && t->rank != (unsigned)c->is_put) { /* the source */
        region_check(&e.region, 0, SIZE, FRAME + t->rank);
    }
    if (is_read && c->is_made_up && t->rank == (unsigned)c->is_put) {
        region_check(&e.region, 0, length, FRAME + 1 - t->rank);
    }
    CHECK_OK(angara_mr_deregister(e.region.mr));
    conf_close(t);
}

static void test_copy_fails(void **state)
{
    static const copy_case_t cases[] = {
        {PLACE_HEAP, DEVICE_PLAIN, 0, 1, 0, 0},     {PLACE_HEAP, DEVICE_PLAIN, 0, 0, 0, 0},
        {DEVICE_PLAIN, PLACE_HEAP, 0, 1, 0, 60000}, {DEVICE_PLAIN, PLACE_HEAP, 0, 0, 0, 60000},
        {DEVICE_PLAIN, PLACE_HEAP, 1, 1, 1, 0},     {DEVICE_PLAIN, PLACE_HEAP, 1, 0, 1, 0},
        {PLACE_HEAP, DEVICE_POOL, 1, 1, 0, 0},      {PLACE_HEAP, DEVICE_POOL, 1, 0, 0, 0}};

    (void)state;
    for (unsigned i = 0; i < (gpu == &device_cuda ? 8 : 6); ++i) {
        conf_run(2, run_copy_fails, &cases[i]);
    }
}

/* ---- calls that aren't made ------------------------------------------------------------------ */

static void look_often(void)
{
    char text[16];

    snprintf(text, sizeof(text), "%u", CHECK_MS);
    setenv("ANGARA_PEER_CHECK", text, 1);
}

/* Until nothing calls the runtime for some looks. */
static void await_silence(void)
{
    double        end = now_seconds() + RANK_TIMEOUT;
    unsigned long before;

    do {
        CHECK(now_seconds() < end);
        before = standin.calls(NULL);
        sleep_ms(20 * CHECK_MS);
    } while (standin.calls(NULL) != before);
}

static void await_looks(void)
{
    unsigned long before = standin.calls(NULL);
    double        end    = now_seconds() + RANK_TIMEOUT;

    while (standin.calls(NULL) == before) {
        CHECK(now_seconds() < end);
        sleep_ms(CHECK_MS);
    }
}

/* Looks need no runtime while nothing is shared or mapped. */
static void run_quiet_looks(conf_t *t)
{
    region_t region, other;
    ends_t   e;

    look_often();
    gpu_start();
    conf_open(t);
    CHECK(region_open(t, &region, PLACE_HEAP, 0, SIZE, ANGARA_ACCESS_ALL));
    CHECK(region_open(t, &other, DEVICE_PLAIN, 0, SIZE, ANGARA_ACCESS_LOCAL_WRITE));
    await_silence(); /* no peer may reach that one */
    ends_open(&e, t, DEVICE_PLAIN, DEVICE_PLAIN);
    exchange(&e, t);
    await_looks(); /* what is shared is asked for */
    conf_barrier(t);
    region_close(&e.region);
    conf_barrier(t);
    await_silence();
    region_close(&region);
    region_close(&other);
    conf_close(t);
}

/* Progress makes none, whatever is shared and mapped: the thread looks after it. */
static void run_quiet_progress(conf_t *t)
{
    unsigned long before;
    double        end;
    ends_t        e;

    look_often();
    gpu_start();
    conf_open(t);
    ends_open(&e, t, DEVICE_PLAIN, DEVICE_PLAIN);
    exchange(&e, t);
    before = standin.own_calls();
    end    = now_seconds() + 40 * CHECK_MS / 1000.0;
    while (now_seconds() < end) {
        angara_pe_progress(t->pe);
    }
    CHECK_EQ(standin.own_calls(), before);
    conf_barrier(t);
    region_close(&e.region);
    conf_close(t);
}

static void test_quiet(void **state)
{
    (void)state;
    conf_run(2, run_quiet_looks, NULL);
    conf_run(2, run_quiet_progress, NULL);
}

/* ---- a busy helper --------------------------------------------------------------------------- */

/*
 * Rank 1 frees what the others have mapped. They keep its helper busy meanwhile with other memory,
 * which has no handle: when a copy ends, the next request is there.
 */
static void run_busy(conf_t *t)
{
    double   end    = now_seconds() + RANK_TIMEOUT;
    region_t mapped = {0};
    uint64_t keys[RANK_MAX];
    region_t region;
    uint64_t served[RANK_MAX];

    look_often();
    setenv("STANDIN_DELAY_US", "5000", 1);
    gpu_start();
    conf_open(t);
    if (t->rank == 1) {
        CHECK(region_open(t, &mapped, DEVICE_PLAIN, 0, SIZE, ANGARA_ACCESS_ALL));
        standin.fail_call(calls()->share, 0, calls()->refused);
        CHECK(region_open(t, &region, DEVICE_PLAIN, 0, SIZE, ANGARA_ACCESS_ALL));
    } else {
        CHECK(region_open(t, &region, PLACE_HEAP, 0, SIZE, ANGARA_ACCESS_ALL));
    }
    conf_exchange(t, &mapped.key, keys, sizeof(mapped.key));
    conf_exchange(t, &region.key, served, sizeof(region.key));
    if (t->rank != 1) {
        CHECK_OK(put_get(t, 1, 1, &region, 0, keys[1], 0, SIZE));
        CHECK_EQ(standin.mappings(), 1);
    }
    conf_barrier(t);
    if (t->rank == 1) {
        while (standin.pending() == 0) {
            sleep_ms(1);
        }
        region_free(&mapped);
    }
    while (t->rank != 1 && standin.mappings() != 0) {
        CHECK_OK(put_get(t, 1, 0, &region, 0, served[1], 0, SIZE));
        CHECK(now_seconds() < end);
    }
    conf_barrier(t);
    if (t->rank == 1) {
        region_deregister(&mapped);
    }
    region_close(&region);
    conf_close(t);
}

static void test_busy(void **state)
{
    (void)state;
    conf_run(4, run_busy, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_refused), TEST(test_no_end), TEST(test_copy_fails),
        TEST(test_quiet),   TEST(test_busy),
    };
    int result = regions_begin();

    return result >= 0 ? result : cmocka_run_group_tests(tests, NULL, NULL);
}
