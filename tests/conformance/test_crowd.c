/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many pairs and many regions: what belongs to a process is counted by process, and what can't be
 * had is done without. Rank 0's PEs talk to each of rank 1's, all of them in two domains.
 */
#include "conf.h"

#include <cmocka.h>

#include <dirent.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#define PES_MAX 66
#define WINDOW  4096

typedef struct {
    angara_domain_h  dom;
    angara_pe_h      pe[PES_MAX];
    angara_address_t addr[PES_MAX];
    angara_mr_h      mr;
    uint64_t         key;
    uint64_t         word[PES_MAX];
} crowd_t;

static unsigned descriptors(void)
{
    unsigned count = 0;
    DIR     *dir   = opendir("/proc/self/fd");

    CHECK(dir != NULL);
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

static void crowd_open(conf_t *t, crowd_t *crowd, unsigned pes)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = WINDOW, .events = 16};
    angara_status_t    status;

    CHECK_OK(angara_open(conf_device(), &crowd->dom));
    CHECK_OK(angara_query(crowd->dom, &t->attr));
    for (unsigned i = 0; i < pes; ++i) {
        status = angara_pe_create(crowd->dom, &params, &crowd->pe[i]);
        if (status == ANGARA_ERR_LIMIT || status == ANGARA_ERR_NO_MEMORY) {
            rank_skip("the device has too few PEs");
        }
        CHECK_OK(status);
        CHECK_OK(angara_pe_window_commit(crowd->pe[i], 0, WINDOW));
        angara_pe_address(crowd->pe[i], &crowd->addr[i]);
    }
    CHECK_OK(angara_mr_register(crowd->dom, crowd->word, sizeof(crowd->word), ANGARA_ACCESS_ALL,
                                &crowd->mr));
    crowd->key = angara_mr_key(crowd->mr);
}

static void crowd_close(crowd_t *crowd, unsigned pes)
{
    CHECK_OK(angara_mr_deregister(crowd->mr));
    for (unsigned i = 0; i < pes; ++i) {
        angara_pe_destroy(crowd->pe[i]);
    }
    CHECK_OK(angara_close(crowd->dom));
}

/* Rank 1 makes PEs and tells rank 0, then waits while that one works with them. */
static void serve(conf_t *t, crowd_t *crowd, unsigned pes)
{
    conf_send(t, 0, crowd->addr, sizeof(crowd->addr[0]) * pes);
    conf_send(t, 0, &crowd->key, sizeof(crowd->key));
    conf_barrier(t);
}

/* A second pair with PEs of a process takes no descriptor that the first one hasn't. */
static void count_descriptors(conf_t *t)
{
    static crowd_t   crowd;
    angara_address_t there[8];
    angara_peer_h    peer;
    uint64_t         key;
    unsigned         before;

    crowd_open(t, &crowd, 8);
    if (t->rank == 1) {
        serve(t, &crowd, 8);
        crowd_close(&crowd, 8);
        return;
    }
    conf_recv(t, 1, there, sizeof(there));
    conf_recv(t, 1, &key, sizeof(key));
    CHECK_OK(angara_peer_connect(crowd.pe[0], &there[0], &peer));
    before = descriptors();
    for (unsigned i = 0; i < 8; ++i) {
        for (unsigned j = 0; j < 8; ++j) {
            CHECK_OK(angara_peer_connect(crowd.pe[i], &there[j], &peer));
        }
    }
    if (descriptors() != before) {
        rank_fail(__FILE__, __LINE__, "64 pairs took %u descriptors more than one",
                  descriptors() - before);
    }
    conf_barrier(t);
    crowd_close(&crowd, 8);
}

static void test_descriptors(void **state)
{
    (void)state;
    conf_run(2, count_descriptors, NULL);
}

/*
 * Each of rank 0's PEs has a pair with each of rank 1's: more pairs than there may be PEs. Each PE
 * of rank 0 writes a word of its own in rank 1's memory by all its pairs in turn.
 */
static void use_all_pairs(conf_t *t)
{
    static crowd_t        crowd;
    static angara_peer_h  peers[PES_MAX][PES_MAX];
    unsigned              pes = *(const unsigned *)t->arg;
    angara_address_t      there[PES_MAX];
    angara_marker_slot_t *slot;
    uint64_t              key;

    crowd_open(t, &crowd, pes);
    if (t->rank == 1) {
        serve(t, &crowd, pes);
        for (unsigned i = 0; i < pes; ++i) {
            CHECK_EQ(crowd.word[i], (i << 8) + pes);
        }
        crowd_close(&crowd, pes);
        return;
    }
    conf_recv(t, 1, there, sizeof(there[0]) * pes);
    conf_recv(t, 1, &key, sizeof(key));
    for (unsigned i = 0; i < pes; ++i) {
        for (unsigned j = 0; j < pes; ++j) {
            CHECK_OK(angara_peer_connect(crowd.pe[i], &there[j], &peers[i][j]));
        }
    }
    for (unsigned i = 0; i < pes; ++i) {
        t->pe = crowd.pe[i];
        CHECK_OK(angara_marker_slot_get(t->pe, &slot));
        for (unsigned j = 0; j < pes; ++j) {
            uint64_t word = (i << 8) + j + 1;

            POST_OK(t, angara_offload_put_inline(peers[i][j], &word, key, i * sizeof(word),
                                                 sizeof(word)));
            POST_OK(t, angara_marker(peers[i][j], slot, j + 1));
            CONF_WAIT(t, *slot == j + 1);
        }
        angara_marker_slot_put(t->pe, slot);
    }
    conf_barrier(t);
    crowd_close(&crowd, pes);
}

static void test_pairs(void **state)
{
    unsigned pes = (conf_rounds(10) < 10) ? 12 : PES_MAX; /* under memcheck a small crowd does */

    (void)state;
    conf_run(2, use_all_pairs, &pes);
}

/* ---- mappings ------------------------------------------------------------------------------ */

#define REGIONS 200

static unsigned mapped_regions(void)
{
    unsigned count = 0;
    char     line[512];
    FILE    *maps = fopen("/proc/self/maps", "r");

    CHECK(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        count += strstr(line, "memfd:angara-memory") != NULL;
    }
    fclose(maps);
    return count;
}

/* No two of a peer's regions, however many there are, take each other's place. */
static void keep_mappings(conf_t *t)
{
    static conf_mem_t mem[REGIONS];
    uint64_t          keys[REGIONS];

    conf_open(t);
    if (strcmp(t->attr.provider, "soft") != 0) {
        rank_skip("peers' memory is mapped on the soft fabric only");
    }
    if (t->rank == 1) {
        for (unsigned i = 0; i < REGIONS; ++i) {
            conf_mem_init(t, &mem[i], 1, 4096, ANGARA_ACCESS_ALL);
            keys[i] = mem[i].key;
        }
        conf_send(t, 0, keys, sizeof(keys));
        conf_barrier(t);
        for (unsigned i = 0; i < REGIONS; ++i) {
            CHECK_EQ(*(uint64_t *)mem[i].addr, i + 1);
            conf_mem_cleanup(&mem[i]);
        }
        conf_close(t);
        return;
    }
    conf_recv(t, 1, keys, sizeof(keys));
    for (uint64_t i = 0; i < REGIONS; ++i) {
        uint64_t word = i + 1;

        POST_OK(t, angara_offload_put_inline(t->peer[1], &word, keys[i], 0, sizeof(word)));
        conf_marker(t, 1);
    }
    CHECK_EQ(mapped_regions(), REGIONS);
    conf_barrier(t);
    conf_close(t);
}

static void test_mappings(void **state)
{
    (void)state;
    conf_run(2, keep_mappings, NULL);
}

/* Where a peer's memory can't be mapped, its regions are reached all the same. */
static void access_unmapped(conf_t *t)
{
    static char   buffer[8192];
    struct rlimit limit, old;
    conf_mem_t    shared, private;
    uint64_t      keys[2];
    uint64_t     *result = (uint64_t *)buffer;
    angara_mr_h   mr;

    conf_need_atomics(0);
    conf_open(t);
    conf_mem_init(t, &private, 0, 4096, ANGARA_ACCESS_ALL);
    conf_mem_init(t, &shared, 1, sizeof(buffer), ANGARA_ACCESS_ALL);
    if (t->rank == 1) {
        data_fill(shared.addr, sizeof(buffer), 1);
        keys[0] = private.key;
        keys[1] = shared.key;
        conf_send(t, 0, keys, sizeof(keys));
        conf_barrier(t);
        CHECK_EQ(*(uint64_t *)shared.addr, 7 + 5);
        CHECK_DATA(shared.addr + 4096, 4096, 2);
    } else {
        conf_recv(t, 1, keys, sizeof(keys));
        CHECK_OK(angara_mr_register(t->dom, buffer, sizeof(buffer), ANGARA_ACCESS_ALL, &mr));
        /* The way to the target's helper is open already. */
        POST_OK(t, angara_atomic(t->peer[1], ANGARA_ATOMIC_ADD, 8, 1, 0, keys[0], 0, NULL, NULL));
        conf_marker(t, 1);
        CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
        limit          = old;
        limit.rlim_cur = 3; /* no descriptor is free from here on */
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        POST_OK(t, angara_offload_get(t->peer[1], mr, buffer, keys[1], 0, sizeof(buffer)));
        conf_marker(t, 1);
        CHECK_DATA(buffer, sizeof(buffer), 1);
        data_fill(buffer + 4096, 4096, 2);
        POST_OK(t, angara_offload_put(t->peer[1], mr, buffer + 4096, keys[1], 4096, 4096));
        *result = 7;
        POST_OK(t, angara_offload_put(t->peer[1], mr, buffer, keys[1], 0, 8));
        POST_OK(t, angara_atomic(t->peer[1], ANGARA_ATOMIC_ADD, 8, 5, 0, keys[1], 0, mr, result));
        conf_marker(t, 1);
        CHECK_EQ(*result, 7);
        CHECK_OK(angara_peer_status(t->peer[1]));
        CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
        CHECK_OK(angara_mr_deregister(mr));
        conf_barrier(t);
    }
    conf_mem_cleanup(&shared);
    conf_mem_cleanup(&private);
    conf_close(t);
}

static void test_unmapped(void **state)
{
    (void)state;
    conf_run(2, access_unmapped, NULL);
}

/* ---- wake-ups ---------------------------------------------------------------------------------
 */

#define SLEEPERS 3

typedef enum { NONE_FREE, NONE_PERMITTED, NONE_FOR_A_WHILE } shortage_t;

static const shortage_t none_free = NONE_FREE, none_permitted = NONE_PERMITTED,
                        none_for_a_while = NONE_FOR_A_WHILE;

static struct rlimit permitted;

/* From here on no descriptor can be had, for which there are two reasons. */
static void run_short(shortage_t shortage)
{
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_NOFILE, &permitted) == 0);
    limit          = permitted;
    limit.rlim_cur = shortage == NONE_FREE ? 200 : 3;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (shortage == NONE_FREE && dup(0) >= 0) {
    }
}

static void sleeper(conf_t *t, unsigned sleepers)
{
    static crowd_t crowd;
    struct pollfd  poller = {.events = POLLIN};

    crowd_open(t, &crowd, sleepers);
    serve(t, &crowd, sleepers);
    for (unsigned i = 0; i < sleepers; ++i) { /* connecting may have left work */
        while (angara_pe_event_arm(crowd.pe[i]) == ANGARA_INPROGRESS) {
            angara_pe_event_disarm(crowd.pe[i]);
            angara_pe_progress(crowd.pe[i]);
        }
    }
    conf_barrier(t);
    for (unsigned i = 0; i < sleepers; ++i) {
        CHECK_OK(angara_pe_event_fd(crowd.pe[i], &poller.fd));
        if (poll(&poller, 1, RANK_TIMEOUT * 1000) != 1) {
            rank_fail(__FILE__, __LINE__, "PE %u wasn't woken", i);
        }
        angara_pe_event_disarm(crowd.pe[i]);
    }
    conf_barrier(t);
    crowd_close(&crowd, sleepers);
}

/* A sleeper is woken by who has no descriptor left, and does nothing after that but progress. */
static void wake_short(conf_t *t)
{
    static crowd_t    crowd;
    const shortage_t *shortage = t->arg;
    unsigned          sleepers = *shortage == NONE_PERMITTED ? 1 : SLEEPERS;
    angara_address_t  there[SLEEPERS];
    angara_peer_h     peer[SLEEPERS];
    struct pollfd     poller = {.fd = t->fd[1], .events = POLLIN};
    uint64_t          key;

    if (t->rank == 1) {
        sleeper(t, sleepers);
        return;
    }
    crowd_open(t, &crowd, 1);
    conf_recv(t, 1, there, sizeof(there[0]) * sleepers);
    conf_recv(t, 1, &key, sizeof(key));
    for (unsigned i = 0; i < sleepers; ++i) {
        CHECK_OK(angara_peer_connect(crowd.pe[0], &there[i], &peer[i]));
    }
    conf_barrier(t);
    conf_barrier(t);
    run_short(*shortage);
    for (unsigned i = 0; i < sleepers; ++i) {
        POST_OK(t, angara_put_u64(peer[i], 0, 1));
        angara_wake_if_armed(peer[i]);
    }
    if (*shortage == NONE_FOR_A_WHILE) {
        CHECK(setrlimit(RLIMIT_NOFILE, &permitted) == 0);
    }
    while ((*shortage == NONE_FOR_A_WHILE || rank_chaos()) && poll(&poller, 1, 1) == 0) {
        angara_pe_progress(crowd.pe[0]);
    }
    conf_barrier(t);
    CHECK(setrlimit(RLIMIT_NOFILE, &permitted) == 0);
    crowd_close(&crowd, 1);
}

static void test_wake(void **state)
{
    (void)state;
    conf_run(2, wake_short, &none_free);
    conf_run(2, wake_short, &none_permitted);
    conf_run(2, wake_short, &none_for_a_while);
}

/* The first atomic on private memory wakes a helper while its process computes. */
static void atomic_short(conf_t *t)
{
    conf_mem_t mem;
    uint64_t   keys[RANK_MAX];
    char       byte = 0;

    conf_need_atomics(0);
    conf_open(t);
    conf_mem_init(t, &mem, 0, 4096, ANGARA_ACCESS_ALL);
    *(uint64_t *)(void *)mem.addr = 7;
    conf_mem_exchange(t, &mem, keys);
    if (t->rank == 1) {
        conf_recv(t, 0, &byte, 1);
        CHECK_EQ(*(uint64_t *)(void *)mem.addr, 7 + 5);
    } else {
        sleep_ms(50); /* the helper thread has begun, and sleeps */
        run_short(NONE_FREE);
        POST_OK(t, angara_atomic(t->peer[1], ANGARA_ATOMIC_ADD, 8, 5, 0, keys[1], 0, NULL, NULL));
        conf_marker(t, 1);
        CHECK(setrlimit(RLIMIT_NOFILE, &permitted) == 0);
        conf_send(t, 1, &byte, 1);
    }
    conf_barrier(t);
    conf_mem_cleanup(&mem);
    conf_close(t);
}

static void test_wake_helper(void **state)
{
    (void)state;
    conf_run(2, atomic_short, NULL);
}

#define TEST(_name) cmocka_unit_test(_name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_descriptors), TEST(test_pairs), TEST(test_mappings),
        TEST(test_unmapped),    TEST(test_wake),  TEST(test_wake_helper),
    };

    return cmocka_run_group_tests_name("crowd", tests, NULL, NULL);
}
