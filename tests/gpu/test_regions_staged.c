/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between GPUs whose memory neither process can map, bytes go through the host, in two pieces by
 * turns. Runs over the runtime that ANGARA_TEST_GPU names, real or stand-in.
 */
#define _GNU_SOURCE
#include "regions.h"

#include "provider/soft/agent.h"

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PIECE ((size_t)SOFT_LARGE_PIECE)
#define LARGE (3 * PIECE) /* there and back, so many pieces that they are pinned */
#define GUARD 64          /* bytes around what is transferred */

/* Memory without a handle: CUDA's pools. ROCm has none: each process sees a GPU that the others'
 * don't reach. */
static unsigned place_begin(const conf_t *t)
{
    if (gpu == &device_cuda) {
        gpu_start();
        return DEVICE_POOL;
    }
    setenv("STANDIN_PEER", "0", 1);
    setenv("STANDIN_VISIBLE", t->rank == 0 ? "0" : "1", 1);
    gpu_start();
    if (!is_standin) {
        rank_skip("all memory of its GPUs can be mapped");
    }
    return DEVICE_PLAIN;
}

/* Are turns so short that no piece is large? */
static int has_small_turns(void)
{
    return getenv("ANGARA_TURN_BYTES") != NULL;
}

/* Each size by itself: nothing but its bytes changes, and all of them do. */
static void run_sizes(conf_t *t)
{
    static const size_t sizes[] = {16,
                                   17,
                                   65536,
                                   65537,
                                   PIECE - 1,
                                   PIECE,
                                   PIECE + 1,
                                   PIECE + 16,
                                   PIECE + 17,
                                   2 * PIECE - 1,
                                   2 * PIECE,
                                   2 * PIECE + 1,
                                   3 * PIECE + 16,
                                   5 * PIECE + 12345};
    const size_t        largest = 5 * PIECE + 12345 + 2 * GUARD;
    unsigned            other = 1 - t->rank, place = place_begin(t);
    region_t            here, there;
    uint64_t            keys[2], before;

    conf_open(t);
    regions_open(t, place, place, largest, &here, &there, keys);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        size_t size = sizes[i];

        for (int is_put = 0; is_put < 2; ++is_put) {
            region_t *to = is_put ? &there : &here, *from = is_put ? &here : &there;

            region_fill(from, GUARD, size, 1000 + i);
            region_fill(to, 0, size + 2 * GUARD, 1);
            conf_barrier(t);
            before = services(t);
            CHECK_OK(put_get(t, other, is_put, &here, GUARD, keys[other], GUARD, size));
            /* Large ones; one more brings the memory. */
            CHECK(services(t) - before >= (size + PIECE - 1) / PIECE);
            CHECK(has_small_turns() || services(t) - before <= (size + PIECE - 1) / PIECE + 1);
            conf_barrier(t);
            region_check(to, 0, GUARD, 1);
            region_check(to, GUARD, size, 1000 + i);
            conf_barrier(t);
        }
    }
    region_close(&here);
    region_close(&there);
    conf_close(t);
}

static void test_sizes(void **state)
{
    (void)state;
    conf_run(2, run_sizes, NULL);
}

/* Several at once: a piece that is there ahead is that of its own transfer. */
static void run_several(conf_t *t)
{
    enum { COUNT = 6 };
    const size_t length = PIECE + PIECE / 3;
    unsigned     other = 1 - t->rank, place = place_begin(t);
    region_t     here, there;
    uint64_t     keys[2];

    conf_open(t);
    regions_open(t, place, place, COUNT * length, &here, &there, keys);
    for (unsigned round = 0; round < 4; ++round) {
        region_fill(&here, 0, COUNT * length, 10 * round + t->rank);
        for (unsigned i = 0; i < COUNT; ++i) {
            CHECK_OK(put_get_post(t, other, 1, &here, i * length, keys[other], i * length, length));
        }
        for (unsigned i = COUNT; i-- > 0;) { /* those that were put, in another order */
            CHECK_OK(put_get_post(t, other, 0, &here, i * length, keys[other], i * length, length));
        }
        CHECK_OK(end_of(t, other));
        region_check(&here, 0, COUNT * length, 10 * round + t->rank);
        conf_barrier(t);
        region_check(&there, 0, COUNT * length, 10 * round + other);
        conf_barrier(t);
    }
    region_close(&here);
    region_close(&there);
    conf_close(t);
}

static void test_several(void **state)
{
    (void)state;
    conf_run(2, run_several, NULL);
}

/* Many requesters at once, also without a slot that has room for large pieces. */
static void run_crowd(conf_t *t)
{
    const size_t length = 3 * PIECE + 1000;
    unsigned     place  = place_begin(t);
    region_t     here = {0}, there = {0};
    uint64_t     keys[RANK_MAX] = {0}, key = 0;

    conf_open(t);
    if (t->rank == 0) {
        CHECK(region_open(t, &there, place, num_gpus - 1, length * (t->nranks - 1),
                          ANGARA_ACCESS_ALL));
        key = there.key;
        for (unsigned i = 0; *(const int *)t->arg && i < SOFT_LARGE_SLOTS; ++i) {
            soft_pe(t->pe)->service->slots[i].owner = soft_pe(t->pe)->owner;
        }
    } else {
        CHECK(region_open(t, &here, place, 0, length, ANGARA_ACCESS_ALL));
    }
    conf_exchange(t, &key, keys, sizeof(key));
    for (int is_put = 1; t->rank != 0 && is_put >= 0; --is_put) {
        region_fill(&here, 0, length, is_put ? t->rank : 99);
        CHECK_OK(put_get(t, 0, is_put, &here, 0, keys[0], (t->rank - 1) * length, length));
        region_check(&here, 0, length, t->rank);
    }
    conf_barrier(t);
    if (t->rank == 0) {
        for (unsigned i = 1; i < t->nranks; ++i) {
            region_check(&there, (i - 1) * length, length, i);
        }
        region_close(&there);
    } else {
        region_close(&here);
    }
    conf_close(t);
}

static void test_crowd(void **state)
{
    (void)state;
    for (int is_full = 0; is_full < 2; ++is_full) {
        conf_run(RANK_MAX, run_crowd, &is_full);
    }
}

/*
 * Memory that has a handle, which can't be mapped at first: it is while a transfer is under way
 * through the host, which goes on so, and the next one is right, too.
 */
static void run_mapped_later(conf_t *t)
{
    const char  *call = gpu == &device_cuda ? "cuIpcOpenMemHandle_v2" : "hsa_amd_ipc_memory_attach";
    const size_t length = 32 * PIECE;
    unsigned     other  = 1 - t->rank;
    region_t     here, there;
    uint64_t     keys[2], before;

    setenv("ANGARA_PEER_CHECK", "10", 1);
    setenv("STANDIN_DELAY_US", "3000", 1);
    gpu_start();
    if (!is_standin) {
        rank_skip("its calls can't be made to fail");
    }
    for (unsigned i = 0; i < 4; ++i) {
        conf_open(t);
        regions_open(t, DEVICE_PLAIN, DEVICE_PLAIN, length, &here, &there, keys);
        region_fill(i % 2 ? &there : &here, 0, length, 7 * i + t->rank);
        conf_barrier(t);
        standin.fail_call(call, 0, 2);
        before = services(t);
        CHECK_OK(put_get_post(t, other, i % 2 == 0, &here, 0, keys[other], 0, length));
        while (services(t) - before < 3) {
            angara_pe_progress(t->pe);
        }
        standin.fail_call(call, 0, 0);
        CHECK_OK(end_of(t, other));
        conf_barrier(t);
        region_check(i % 2 ? &here : &there, 0, length, 7 * i + other);
        region_fill(&there, 0, length, 50 + t->rank);
        conf_barrier(t);
        CHECK_OK(put_get(t, other, 0, &here, 0, keys[other], 0, length));
        region_check(&here, 0, length, 50 + other);
        conf_barrier(t);
        region_close(&here);
        region_close(&there);
        conf_close(t);
    }
}

static void test_mapped_later(void **state)
{
    (void)state;
    conf_run(2, run_mapped_later, NULL);
}

static size_t memory_limit = SIZE_MAX; /* bytes that fallocate() gives at once */

/* The library calls this one. */
__attribute__((visibility("default"))) int fallocate(int fd, int mode, off_t offset, off_t length)
{
    if ((size_t)length > memory_limit) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

/* Where there is no memory for large pieces, small ones go; where there is none, the transfer
 * fails. */
static void run_no_memory(conf_t *t)
{
    const unsigned  which  = *(const unsigned *)t->arg;
    const int       is_put = which & 1, is_none = which >> 1;
    unsigned        place = place_begin(t), other = 1 - t->rank;
    angara_status_t status;
    region_t        here, there;
    uint64_t        keys[2], before;

    conf_open(t);
    regions_open(t, place, place, LARGE, &here, &there, keys);
    region_fill(is_put ? &here : &there, 0, LARGE, t->rank);
    memory_limit = SOFT_STAGING - (size_t)is_none;
    conf_barrier(t);
    before = services(t);
    status = put_get(t, other, is_put, &here, 0, keys[other], 0, LARGE);
    CHECK_STATUS(status, is_none ? ANGARA_ERR_NO_MEMORY : ANGARA_OK);
    CHECK(is_none || services(t) - before >= LARGE / SOFT_STAGING);
    conf_barrier(t);
    if (!is_none) {
        region_check(is_put ? &there : &here, 0, LARGE, other);
    }
    conf_barrier(t);
    region_close(&here);
    region_close(&there);
    conf_close(t);
}

static void test_no_memory(void **state)
{
    (void)state;
    for (unsigned which = 0; which < 4; ++which) {
        conf_run(2, run_no_memory, &which);
    }
}

/* What stands in the way of registering staging memory, or of the end of that. */
typedef enum { NOTHING, REFUSED, BUSY, BUSY_AT_END, NOT_ENDED, NOT_TOLD, WAYS } pin_way_t;

/* So many large pieces there and back that a GPU knows the staging memory by then; `busy`: while a
 * kernel fills the GPU. */
static void exchange_large(conf_t *t, region_t *here, const region_t *there, uint64_t key,
                           uint64_t seed, int busy)
{
    unsigned other = 1 - t->rank;

    region_fill(here, 0, LARGE, 10 * seed + t->rank);
    if (busy) {
        gpu->kernel_start(0);
    }
    CHECK_OK(put_get(t, other, 1, here, 0, key, 0, LARGE));
    if (!busy) { /* which waits for a kernel */
        region_fill(here, 0, LARGE, 0);
    }
    CHECK_OK(put_get(t, other, 0, here, 0, key, 0, LARGE));
    conf_barrier(t);
    if (busy) {
        gpu->kernel_end();
    }
    region_check(here, 0, LARGE, 10 * seed + t->rank);
    region_check(there, 0, LARGE, 10 * seed + other);
    conf_barrier(t);
}

/*
 * Staging memory that is used again and again is registered: that of the own slots and that of the
 * peer's. While a kernel fills the GPU that isn't ended, as it would wait for the kernel: the other
 * GPU has none.
 */
static void run_pinned(conf_t *t)
{
    const pin_way_t way = *(const pin_way_t *)t->arg;
    region_t        here, there;
    uint64_t        keys[2];
    unsigned        other = 1 - t->rank, place, before, pinned;
    int             stays = way == NOT_ENDED || way == NOT_TOLD;

    setenv("ANGARA_PEER_CHECK", "20", 1);
    place = place_begin(t);
    if (gpu != &device_cuda || !is_standin) {
        rank_skip("ROCm locks memory for each copy, and a real runtime doesn't count");
    }
    conf_open(t);
    regions_open(t, place, place, LARGE, &here, &there, keys);
    CHECK_OK(put_get(t, other, 1, &here, 0, keys[other], 0, 100000));
    CHECK_OK(put_get(t, other, 0, &here, 0, keys[other], 0, 100000));
    conf_barrier(t);
    before = standin.registrations();
    pinned = before + 2 * (way != REFUSED);
    if (way == REFUSED) {
        standin.fail_call("cuMemHostRegister_v2", 0, 2);
    }
    exchange_large(t, &here, &there, keys[other], 1, way == BUSY);
    CHECK_EQ(standin.registrations(), pinned);
    if (way == BUSY_AT_END) {
        gpu->kernel_start(0);
    }
    conf_barrier(t);
    region_deregister(&here);
    region_deregister(&there);
    if (stays) {
        standin.fail_call("cuMemHostUnregister", 0, 2);
    }
    if (way == NOT_TOLD) {
        standin.fail_call("cuPointerGetAttributes", 0, 2);
    }
    conf_close(t);
    standin.fail_call("cuPointerGetAttributes", 0, 0);
    if (way == BUSY_AT_END) {
        CHECK_EQ(standin.registrations(), pinned - 1);
        gpu->kernel_end();
        conf_open(t); /* somebody makes progress */
        while (standin.registrations() != before) {
            angara_pe_progress(t->pe);
        }
        conf_close(t);
    }
    /* Memory that the runtime knows as registered stays. */
    CHECK_EQ(standin.registrations(), stays ? pinned : before);
    CHECK_EQ(map_lines("memfd:angara-pe"), stays ? pinned - before : 0);
    region_free(&here);
    region_free(&there);
}

static void test_pinned(void **state)
{
    (void)state;
    for (unsigned way = 0; way < WAYS; ++way) {
        conf_run(2, run_pinned, &(pin_way_t){(pin_way_t)way});
    }
}

/* Between such GPU memory and private host memory of the other process, bytes go through memory of
 * one process, which is registered, too. */
static void run_far(conf_t *t)
{
    unsigned place = place_begin(t), other = 1 - t->rank;
    region_t here, there;
    uint64_t keys[2];
    unsigned before;

    conf_open(t);
    regions_open(t, place, PLACE_HEAP, LARGE, &here, &there, keys);
    CHECK_OK(put_get(t, other, 1, &here, 0, keys[other], 0, 1000));
    conf_barrier(t);
    before = is_standin ? standin.registrations() : 0;
    exchange_large(t, &here, &there, keys[other], 3, 0);
    if (is_standin && gpu == &device_cuda && conf_reaches() && !has_small_turns()) {
        CHECK_EQ(standin.registrations(), before + 1);
    }
    region_deregister(&here);
    region_close(&there);
    conf_close(t);
    CHECK(!is_standin || standin.registrations() <= before);
    region_free(&here);
}

static void test_far(void **state)
{
    (void)state;
    conf_run(2, run_far, NULL);
}

/* The slot of a pair changes: what is registered is another one's memory then. */
static void run_moved(conf_t *t)
{
    unsigned     place = place_begin(t), other = 1 - t->rank;
    soft_peer_t *peer;
    region_t     here, there;
    uint64_t     keys[2];

    conf_open(t);
    regions_open(t, place, place, LARGE, &here, &there, keys);
    peer = soft_peer(t->peer[other]);
    for (unsigned slot = 0; slot < 3; ++slot) {
        CHECK_EQ(peer->agent, -1);
        if (peer->agent_is_kept) { /* not any more */
            peer->agent = (int)peer->agent_last;
            __atomic_store_n(&soft_agent_slot(peer)->owner, 0, __ATOMIC_RELEASE);
            peer->agent         = -1;
            peer->agent_is_kept = 0;
        }
        peer->agent_last = slot;
        exchange_large(t, &here, &there, keys[other], 10 * slot, 0);
        CHECK_EQ(peer->pinned_slot, slot);
    }
    region_close(&here);
    region_close(&there);
    conf_close(t);
}

static void test_moved(void **state)
{
    (void)state;
    conf_run(2, run_moved, NULL);
}

int main(void)
{
    static const struct CMUnitTest pieces[] = {TEST(test_sizes), TEST(test_several)};
    static const struct CMUnitTest large[]  = {
         TEST(test_crowd), TEST(test_mapped_later), TEST(test_pinned),
         TEST(test_moved), TEST(test_no_memory),    TEST(test_far),
    };
    int result = regions_begin();

    if (result >= 0) {
        return result;
    }
    result = cmocka_run_group_tests(pieces, NULL, NULL);
    return has_small_turns() ? result : result + cmocka_run_group_tests(large, NULL, NULL);
}
