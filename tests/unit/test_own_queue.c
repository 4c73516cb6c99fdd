/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deregistration of memory that the own PE's queued operations read or write: they are performed
 * first, in whichever thread; those of a peer that doesn't go on are cancelled. Afterwards nothing
 * touches the memory: the tests unmap it.
 *
 * Fetching atomics on another process's private memory are queued: that process performs them.
 */
#define _GNU_SOURCE
#include "../common/clock.h"
#include "soft.h"
#include "soft_server.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE   SERVER_SIZE
#define ROUNDS 300u
#define FETCH  8u /* atomics of a round */

static struct {
    server_t              server;
    angara_domain_h       dom;
    angara_pe_h           pe;
    angara_peer_h         peer; /* the server's PE */
    angara_marker_slot_t *slot;
    uint64_t              value;
} f;

static int setup(void **state)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = SIZE};

    (void)state;
    memset(&f, 0, sizeof(f));
    server_start(&f.server, 1);
    assert_int_equal(angara_open("soft", &f.dom), ANGARA_OK);
    assert_int_equal(angara_pe_create(f.dom, &params, &f.pe), ANGARA_OK);
    assert_int_equal(angara_peer_connect(f.pe, &f.server.offer.address[0], &f.peer), ANGARA_OK);
    assert_int_equal(angara_marker_slot_get(f.pe, &f.slot), ANGARA_OK);
    f.value = *f.slot;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    angara_pe_destroy(f.pe);
    server_end(&f.server);
    return angara_close(f.dom) == ANGARA_OK ? 0 : -1;
}

/* Memory for results, all ones. */
static uint64_t *results_new(angara_mr_h *mr)
{
    void *addr = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(addr != MAP_FAILED);
    memset(addr, 0xff, SIZE);
    assert_int_equal(angara_mr_register(f.dom, addr, SIZE, ANGARA_ACCESS_LOCAL_WRITE, mr),
                     ANGARA_OK);
    return addr;
}

static void post(angara_mr_h mr, uint64_t *results)
{
    for (unsigned i = 0; i < FETCH; ++i) {
        assert_int_equal(angara_atomic(f.peer, ANGARA_ATOMIC_ADD, 8, 1, 0, f.server.offer.key, 0,
                                       mr, &results[i]),
                         ANGARA_OK);
    }
}

static void post_marker(void)
{
    assert_int_equal(angara_marker(f.peer, f.slot, ++f.value), ANGARA_OK);
}

static void wait_marker(void)
{
    double limit = deadline_in(50);

    while (*f.slot != f.value && now_seconds() < limit) {
        angara_pe_progress(f.pe);
    }
    assert_true(*f.slot == f.value);
}

/* The program makes no progress but by deregistering. */
static void test_performed(void **state)
{
    uint64_t   *results;
    uint64_t    count = 0;
    angara_mr_h mr;

    (void)state;
    for (unsigned round = 0; round < ROUNDS; ++round) {
        results = results_new(&mr);
        post(mr, results);
        post_marker();
        assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
        for (unsigned i = 0; i < FETCH; ++i) {
            assert_int_equal(results[i], count++);
        }
        munmap(results, SIZE);
        wait_marker();
        assert_int_equal(angara_peer_status(f.peer), ANGARA_OK);
    }
}

typedef struct {
    angara_mr_h     mr;
    uint64_t       *results;
    angara_status_t status;
    uint64_t        got[FETCH];
    int             done;
} other_t;

static void *deregister(void *arg)
{
    other_t *other = arg;

    other->status = angara_mr_deregister(other->mr);
    memcpy(other->got, other->results, sizeof(other->got));
    munmap(other->results, SIZE);
    return NULL;
}

/* The same by another thread, while this one makes progress and posts more. */
static void test_other_thread(void **state)
{
    angara_mr_h mine;
    uint64_t   *keep  = results_new(&mine);
    uint64_t    count = 0;
    pthread_t   thread;
    other_t     other;

    (void)state;
    for (unsigned round = 0; round < ROUNDS; ++round) {
        other.results = results_new(&other.mr);
        post(other.mr, other.results);
        assert_int_equal(pthread_create(&thread, NULL, deregister, &other), 0);
        for (unsigned i = 0; i < round % 50; ++i) {
            angara_pe_progress(f.pe);
        }
        post(mine, keep);
        post_marker();
        wait_marker();
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(other.status, ANGARA_OK);
        for (unsigned i = 0; i < FETCH; ++i) {
            assert_int_equal(other.got[i], count + i);
            assert_int_equal(keep[i], count + FETCH + i);
        }
        count += 2 * FETCH;
    }
    assert_int_equal(angara_peer_status(f.peer), ANGARA_OK);
    assert_int_equal(angara_mr_deregister(mine), ANGARA_OK);
    munmap(keep, SIZE);
}

/* The peer doesn't go on. */
static void test_cancelled(void **state)
{
    angara_event_t event;
    uint64_t      *results;
    angara_mr_h    mr;

    (void)state;
    server_stop(&f.server);
    results = results_new(&mr);
    post(mr, results);
    post_marker();
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
    munmap(results, SIZE);
    assert_int_equal(angara_peer_status(f.peer), ANGARA_ERR_PAIR);
    assert_int_equal(angara_pe_event_poll(f.pe, &event), ANGARA_OK);
    assert_int_equal(event.type, ANGARA_EVENT_FAULT);
    assert_int_equal(event.status, ANGARA_ERR_BUSY);
    assert_int_equal(kill(f.server.pid, SIGCONT), 0);
    for (unsigned i = 0; i < 1000; ++i) {
        angara_pe_progress(f.pe);
    }
    assert_true(*f.slot != f.value); /* the marker behind it never arrives */
    assert_int_equal(angara_peer_reset(f.peer), ANGARA_OK);
    post_marker();
    wait_marker();
}

static void *deregister_alone(void *arg)
{
    other_t *other = arg;

    other->status = angara_mr_deregister(other->mr);
    __atomic_store_n(&other->done, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* A peer doesn't go on, while there is no end of what goes on with another. */
static void test_cancelled_among_others(void **state)
{
    double        limit = deadline_in(50);
    angara_mr_h   mine;
    uint64_t     *keep  = results_new(&mine);
    other_t       other = {.done = 0};
    angara_peer_h peer;
    server_t      going;
    pthread_t     thread;
    int           status;

    (void)state;
    server_start(&going, 1);
    assert_int_equal(angara_peer_connect(f.pe, &going.offer.address[0], &peer), ANGARA_OK);
    server_stop(&f.server);
    other.results = results_new(&other.mr);
    post(other.mr, other.results);
    assert_int_equal(pthread_create(&thread, NULL, deregister_alone, &other), 0);
    while (!__atomic_load_n(&other.done, __ATOMIC_ACQUIRE) && now_seconds() < limit) {
        status = angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, going.offer.key, 0, mine, keep);
        if (status == ANGARA_ERR_NO_RESOURCE) {
            angara_pe_progress(f.pe);
            usleep(1000); /* the other thread makes progress, too */
        } else {
            assert_int_equal(status, ANGARA_OK);
        }
    }
    assert_true(now_seconds() < limit);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(other.status, ANGARA_OK);
    munmap(other.results, SIZE);
    assert_int_equal(angara_peer_status(f.peer), ANGARA_ERR_PAIR);
    assert_int_equal(angara_peer_status(peer), ANGARA_OK);
    assert_int_equal(angara_mr_deregister(mine), ANGARA_OK);
    munmap(keep, SIZE);
    assert_int_equal(kill(f.server.pid, SIGCONT), 0);
    server_end(&going);
}

/*
 * A program that does nothing but make progress doesn't keep another thread's deregistration from
 * the queue: while that waits, it gets its turn at once.
 */
static void test_busy_progress(void **state)
{
    double    limit = deadline_in(50);
    other_t   other = {.done = 0};
    pthread_t thread;

    (void)state;
    server_stop(&f.server);
    other.results = results_new(&other.mr);
    post(other.mr, other.results);
    assert_int_equal(pthread_create(&thread, NULL, deregister_alone, &other), 0);
    while (!__atomic_load_n(&other.done, __ATOMIC_ACQUIRE) && now_seconds() < limit) {
        angara_pe_progress(f.pe);
    }
    assert_true(now_seconds() < limit);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(other.status, ANGARA_OK);
    munmap(other.results, SIZE);
    assert_int_equal(angara_peer_status(f.peer), ANGARA_ERR_PAIR);
    assert_int_equal(kill(f.server.pid, SIGCONT), 0);
}

#define REQUESTS 3000u

/* Another process, which has this one's helper thread do so many things one after the other. */
static void be_client(const server_offer_t *offer)
{
    angara_pe_params_t    params = {.size = sizeof(params), .window_size = SIZE};
    angara_marker_slot_t *slot;
    angara_status_t       status;
    angara_domain_h       dom;
    angara_pe_h           pe;
    angara_peer_h         peer;
    uint64_t              base;

    if (angara_open("soft", &dom) != ANGARA_OK ||
        angara_pe_create(dom, &params, &pe) != ANGARA_OK ||
        angara_peer_connect(pe, &offer->address[0], &peer) != ANGARA_OK ||
        angara_marker_slot_get(pe, &slot) != ANGARA_OK) {
        _exit(1);
    }
    for (unsigned i = 0; i < REQUESTS; ++i) {
        while ((status = angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, offer->key, 0, NULL,
                                       NULL)) == ANGARA_ERR_NO_RESOURCE) {
            angara_pe_progress(pe);
        }
        if (status != ANGARA_OK) {
            _exit(2);
        }
    }
    base = *slot;
    while ((status = angara_marker(peer, slot, base + 1)) == ANGARA_ERR_NO_RESOURCE) {
        angara_pe_progress(pe);
    }
    while (status == ANGARA_OK && *slot != base + 1) {
        angara_pe_progress(pe);
        status = angara_peer_status(peer);
    }
    _exit(status == ANGARA_OK ? 0 : 3);
}

/*
 * The helper thread and a caller that wants its lock again and again, to deregister or to make
 * progress: both go on.
 */
static void helper_goes_on(int by_progress)
{
    static uint64_t word;
    double          limit  = deadline_in(50);
    unsigned        turns  = 0;
    int             status = -1;
    angara_mr_h     mr, other;
    server_offer_t  offer;
    pid_t           pid, ended;

    word = 0;
    assert_int_equal(angara_mr_register(f.dom, &word, sizeof(word), ANGARA_ACCESS_ALL, &mr),
                     ANGARA_OK);
    offer.key = angara_mr_key(mr);
    angara_pe_address(f.pe, &offer.address[0]);
    pid = fork();
    if (pid == 0) {
        be_client(&offer);
    }
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && now_seconds() < limit) {
        if (by_progress) {
            angara_pe_progress(f.pe);
        } else {
            assert_int_equal(
                angara_mr_register(f.dom, &offer, sizeof(offer), ANGARA_ACCESS_REMOTE_READ, &other),
                ANGARA_OK);
            assert_int_equal(angara_mr_deregister(other), ANGARA_OK);
        }
        turns++;
    }
    if (ended != pid) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    assert_int_equal(ended, pid);
    assert_int_equal(status, 0);
    assert_true(turns > 10);
    assert_int_equal(angara_mr_deregister(mr), ANGARA_OK);
    assert_int_equal(word, REQUESTS);
}

static void test_busy_deregistering(void **state)
{
    (void)state;
    helper_goes_on(0);
}

static void test_busy_serving(void **state)
{
    (void)state;
    helper_goes_on(1);
}

#define TEST(_name) cmocka_unit_test_setup_teardown(_name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_performed),     TEST(test_other_thread),
        TEST(test_cancelled),     TEST(test_cancelled_among_others),
        TEST(test_busy_progress), TEST(test_busy_deregistering),
        TEST(test_busy_serving),
    };

    setenv("ANGARA_PEER_WAIT", "600", 1);
    return cmocka_run_group_tests_name("own_queue", tests, NULL, NULL);
}
