/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions of GPU memory: inline puts, batches, atomics, transfers within one process, and what is
 * refused. Runs over the runtime that ANGARA_TEST_GPU names, real or stand-in.
 */
#define _GNU_SOURCE
#include "regions.h"

#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- inline puts, batches, atomics ----------------------------------------------------------- */

static void run_inline(conf_t *t)
{
    static const size_t lengths[] = {0, 1, 8, 57};
    unsigned char       bytes[4096];
    region_t            region;
    uint64_t            keys[2];
    size_t              at = 5;

    gpu_start();
    conf_open(t);
    for (unsigned place = 0; place < DEVICE_ORIGINS; ++place) {
        if (!region_open(t, &region, place, 0, 2 * sizeof(bytes), ANGARA_ACCESS_ALL)) {
            continue;
        }
        conf_exchange(t, &region.key, keys, sizeof(region.key));
        for (unsigned i = 0; i <= 4; ++i) {
            size_t length = i < 4 ? lengths[i] : t->attr.inline_max;

            CHECK(length <= sizeof(bytes));
            data_fill(bytes, length, i + t->rank);
            POST_OK(t, angara_offload_put_inline(t->peer[1 - t->rank], bytes, keys[1 - t->rank], at,
                                                 length));
            memset(bytes, 0, sizeof(bytes)); /* it has been copied */
            conf_marker(t, 1 - t->rank);
            conf_barrier(t);
            region_check(&region, at, length, i + 1 - t->rank);
            conf_barrier(t);
            at += 3;
        }
        region_close(&region);
    }
    conf_close(t);
}

static void test_inline(void **state)
{
    (void)state;
    conf_run(2, run_inline, NULL);
}

/* Transfers of a batch whose ends are host and GPU memory in turn. */
static void run_batches(conf_t *t)
{
    enum { LENGTH = 3000 };
    const unsigned places[] = {PLACE_HEAP, DEVICE_PLAIN, PLACE_SHARED, DEVICE_POOL};
    region_t       here[4], there[4];
    uint64_t       keys[2][4] = {{0}}, mine[4] = {0};
    angara_xfer_t  xfers[ANGARA_BATCH_MAX];
    unsigned       posted, other = 1 - t->rank;

    gpu_start();
    conf_open(t);
    for (unsigned i = 0; i < 4; ++i) {
        unsigned place = places[i] == DEVICE_POOL && gpu == &device_rocm ? DEVICE_PLAIN : places[i];

        CHECK(region_open(t, &here[i], place, 0, 4 * LENGTH, ANGARA_ACCESS_ALL));
        CHECK(region_open(t, &there[i], place, num_gpus - 1, 4 * LENGTH, ANGARA_ACCESS_ALL));
        mine[i] = there[i].key;
    }
    conf_exchange(t, mine, keys, sizeof(mine));
    for (int is_put = 1; is_put >= 0; --is_put) {
        for (unsigned i = 0; i < ANGARA_BATCH_MAX; ++i) {
            const region_t *local = &here[i % 4];

            /* Each pair of places once; what is got is what was put. */
            xfers[i] = (angara_xfer_t){local->mr, local->addr + i / 4 * LENGTH,
                                       keys[other][(i + i / 4) % 4], i / 4 * LENGTH, LENGTH};
            region_fill(local, i / 4 * LENGTH, LENGTH, is_put ? 100 * t->rank + i : 7);
        }
        for (unsigned first = 0; first < ANGARA_BATCH_MAX; first += posted) {
            angara_status_t status = angara_offload_batch(
                t->peer[other], is_put ? ANGARA_BATCH_PUT : ANGARA_BATCH_GET, xfers + first,
                ANGARA_BATCH_MAX - first, &posted);

            CHECK(status == ANGARA_OK || status == ANGARA_ERR_NO_RESOURCE);
            angara_pe_progress(t->pe);
        }
        conf_marker(t, other);
        conf_barrier(t);
        for (unsigned i = 0; i < ANGARA_BATCH_MAX; ++i) {
            if (is_put) {
                region_check(&there[(i + i / 4) % 4], i / 4 * LENGTH, LENGTH, 100 * other + i);
            } else {
                region_check(&here[i % 4], i / 4 * LENGTH, LENGTH, 100 * t->rank + i);
            }
        }
        conf_barrier(t);
    }
    for (unsigned i = 0; i < 4; ++i) {
        region_close(&here[i]);
        region_close(&there[i]);
    }
    conf_close(t);
}

static void test_batches(void **state)
{
    (void)state;
    conf_run(2, run_batches, NULL);
}

/* The value that an atomic fetches lands in GPU memory; there are none on GPU memory. */
static void run_atomics(conf_t *t)
{
    const unsigned places[2] = {PLACE_HEAP, PLACE_SHARED};
    unsigned       other     = 1 - t->rank;
    region_t       words, result, target;
    uint64_t       keys[2], old;

    gpu_start();
    conf_open(t);
    CHECK(region_open(t, &result, DEVICE_PLAIN, 0, 64, ANGARA_ACCESS_ALL));
    for (unsigned i = 0; i < 2; ++i) {
        size_t aligned;

        CHECK(region_open(t, &words, places[i], 0, 64, ANGARA_ACCESS_ALL));
        aligned = -(uintptr_t)words.addr % 8;
        conf_exchange(t, &words.key, keys, sizeof(words.key));
        old = 1000 + t->rank;
        memcpy(words.addr + aligned, &old, sizeof(old));
        conf_barrier(t);
        POST_OK(t, angara_atomic(t->peer[other], ANGARA_ATOMIC_ADD, 8, 5, 0, keys[other], aligned,
                                 result.mr, result.addr + 5));
        conf_marker(t, other);
        region_read(&result, 5, &old, sizeof(old));
        CHECK_EQ(old, 1000 + other);
        conf_barrier(t);
        memcpy(&old, words.addr + aligned, sizeof(old));
        CHECK_EQ(old, 1005 + t->rank);
        region_close(&words);
    }
    CHECK(region_open(t, &target, DEVICE_PLAIN, 0, 64, ANGARA_ACCESS_ALL));
    CHECK_EQ(angara_mr_access(target.mr) & ANGARA_ACCESS_REMOTE_ATOMIC, 0);
    conf_exchange(t, &target.key, keys, sizeof(target.key));
    conf_expect_fault(t, other,
                      CONF_POST(t, angara_atomic(t->peer[other], ANGARA_ATOMIC_ADD, 8, 5, 0,
                                                 keys[other], 5, NULL, NULL)),
                      ANGARA_ERR_RIGHTS, keys[other]);
    conf_barrier(t);
    region_close(&target);
    region_close(&result);
    conf_close(t);
}

static void test_atomics(void **state)
{
    (void)state;
    conf_run(2, run_atomics, NULL);
}

/* ---- one process ----------------------------------------------------------------------------- */

/* To the own PE, to another of the process, and to one of another domain. */
static void run_own(conf_t *t)
{
    const unsigned places[] = {PLACE_HEAP, PLACE_SHARED, DEVICE_PLAIN, DEVICE_POOL, DEVICE_MANAGED};
    const size_t   lengths[] = {1, 5000, 3 * MB};
    conf_t         second = *t, third = *t;
    conf_t        *owners[] = {t, &second, &third};
    region_t       here, there;
    angara_address_t address;
    angara_peer_h    peers[3];
    uint64_t         seed = 1;

    gpu_start();
    conf_open(t);
    second.dom = t->dom;
    CHECK_OK(angara_pe_create(second.dom, NULL, &second.pe));
    CHECK_OK(angara_open(conf_device(), &third.dom));
    CHECK_OK(angara_pe_create(third.dom, NULL, &third.pe));
    for (unsigned i = 0; i < 3; ++i) {
        angara_pe_address(owners[i]->pe, &address);
        CHECK_OK(angara_peer_connect(t->pe, &address, &peers[i]));
        t->peer[i] = peers[i];
    }
    for (unsigned i = 0; i < 3 * 5 * 5; ++i) {
        unsigned to = i / 25, h = i / 5 % 5, r = i % 5;

        if ((!place_is_gpu(places[h]) && !place_is_gpu(places[r])) ||
            !region_open(t, &here, places[h], 0, 4 * MB, ANGARA_ACCESS_ALL)) {
            continue;
        }
        if (region_open(owners[to], &there, places[r], num_gpus - 1, 4 * MB, ANGARA_ACCESS_ALL)) {
            for (unsigned n = 0; n < sizeof(lengths) / sizeof(lengths[0]); ++n, seed += 2) {
                region_fill(&here, 11, lengths[n], seed);
                CHECK_OK(put_get(t, to, 1, &here, 11, there.key, 17, lengths[n]));
                region_check(&there, 17, lengths[n], seed);
                region_fill(&there, 17, lengths[n], seed + 1);
                CHECK_OK(put_get(t, to, 0, &here, 13, there.key, 17, lengths[n]));
                region_check(&here, 13, lengths[n], seed + 1);
            }
            region_close(&there);
        }
        region_close(&here);
    }
    for (unsigned i = 1; i < 3; ++i) {
        angara_peer_disconnect(peers[i]);
        t->peer[i] = NULL;
    }
    angara_peer_disconnect(peers[0]); /* counted: conf_close() has the first */
    angara_pe_destroy(second.pe);
    angara_pe_destroy(third.pe);
    CHECK_OK(angara_close(third.dom));
    conf_close(t);
}

static void test_own(void **state)
{
    (void)state;
    conf_run(1, run_own, NULL);
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* What runs past its allocation, with a message that says so. */
static void run_refused(conf_t *t)
{
    char         words[1024] = "";
    int          log = memfd_create("log", 0), old = dup(STDERR_FILENO);
    angara_mem_t mem;
    angara_mr_h  mr;
    region_t     region;

    gpu_start();
    conf_open(t);
    CHECK(t->attr.caps & ANGARA_CAP_GPU_MEMORY);
    CHECK(region_open(t, &region, DEVICE_PLAIN, 0, 3 * MB, ANGARA_ACCESS_ALL));
    CHECK_OK(angara_mem_query(region.addr, &mem));
    CHECK(log >= 0 && old >= 0 && dup2(log, STDERR_FILENO) == STDERR_FILENO);
    CHECK_STATUS(angara_mr_register(t->dom, (char *)mem.base + mem.length - 100, 101,
                                    ANGARA_ACCESS_ALL, &mr),
                 ANGARA_ERR_INVALID);
    CHECK_STATUS(
        angara_mr_register(t->dom, mem.base, mem.length + 1, ANGARA_ACCESS_REMOTE_READ, &mr),
        ANGARA_ERR_INVALID);
    dup2(old, STDERR_FILENO);
    CHECK(pread(log, words, sizeof(words) - 1, 0) > 0);
    CHECK(strstr(words, "GPU memory") != NULL);
    CHECK_OK(angara_mr_register(t->dom, mem.base, mem.length, ANGARA_ACCESS_ALL, &mr));
    CHECK_OK(angara_mr_deregister(mr));
    CHECK_OK(angara_mr_register(t->dom, (char *)mem.base + mem.length - 1, 1, 0, &mr));
    CHECK_OK(angara_mr_deregister(mr));
    region_close(&region);
    close(log);
    close(old);
    conf_close(t);
}

static void test_refused(void **state)
{
    (void)state;
    conf_run(1, run_refused, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_inline), TEST(test_batches), TEST(test_atomics),
        TEST(test_own),    TEST(test_refused),
    };
    int result = regions_begin();

    return result >= 0 ? result : cmocka_run_group_tests(tests, NULL, NULL);
}
