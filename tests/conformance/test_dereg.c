/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deregistration: it waits for accesses in flight, at either end of an operation, by whichever
 * thread of a peer; afterwards nothing is read or written any more.
 */
#include "conf.h"

#include <cmocka.h>

#include <pthread.h>
#include <unistd.h>

typedef struct {
    int shared;
} kind_t;

static const kind_t kind_private = {0}, kind_shared = {1};

#define WAIT_LENGTH (1u << 20)
#define SCRIBBLE_STEP \
    1021u /* so that a scribble over all takes no time: an access is caught by it */

/* Wait for all that was posted to rank 0, or its fault. */
static angara_status_t finish(conf_t *t)
{
    uint64_t        value  = ++t->value;
    angara_status_t status = CONF_POST(t, angara_marker(t->peer[0], t->slot, value));
    conf_timer_t    timer  = conf_timer();

    while ((status == ANGARA_OK) && !angara_marker_arrived(t->slot, value)) {
        conf_relax(t, &timer, __FILE__, __LINE__, "marker or fault");
        status = angara_peer_status(t->peer[0]);
    }
    return status;
}

/* Rank 1's side of a round: puts, or gets, of the whole region without a pause until it is gone. */
static void access_until_gone(conf_t *t, int get, conf_mem_t *buf, const char *expected,
                              uint64_t key)
{
    angara_status_t status = ANGARA_OK;
    angara_event_t  event;
    unsigned        n;

    memcpy(buf->addr, expected, WAIT_LENGTH);
    for (n = 0; status == ANGARA_OK; ++n) {
        status = get ? angara_offload_get(t->peer[0], buf->mr, buf->addr, key, 0, WAIT_LENGTH) :
                       angara_offload_put(t->peer[0], buf->mr, buf->addr, key, 0, WAIT_LENGTH);
        if (n == 0) {
            conf_send(t, 0, "r", 1);
        }
        if (status == ANGARA_OK) {
            status = finish(t);
        }
        if (get && (status == ANGARA_OK)) { /* what was got in time has nothing of the scribble */
            CHECK(memcmp(buf->addr, expected, WAIT_LENGTH) == 0);
        }
    }
    if (status != ANGARA_ERR_KEY) {
        CHECK_STATUS(status, ANGARA_ERR_PAIR);
    }
    CHECK(conf_event(t, &event, RANK_TIMEOUT));
    CHECK_EQ(event.type, ANGARA_EVENT_FAULT);
    CHECK_STATUS((angara_status_t)event.status, ANGARA_ERR_KEY);
    CHECK_OK(angara_peer_reset(t->peer[0]));
}

/*
 * Deregistration waits for accesses in flight: rank 1 puts and gets without a pause; rank 0
 * deregisters, scribbles, and nothing may change its memory any more, nor may the scribble be got.
 */
static void deregister_waits(conf_t *t)
{
    unsigned   rounds   = conf_rounds(rank_chaos() ? 20 : 60), round;
    char      *expected = malloc(WAIT_LENGTH), byte;
    size_t     i;
    conf_mem_t mem, buf;
    uint64_t   keys[RANK_MAX];

    CHECK(expected != NULL);
    memset(expected, 0x44, WAIT_LENGTH);
    conf_open(t);
    conf_mem_init(t, &buf, 0, WAIT_LENGTH, ANGARA_ACCESS_LOCAL_WRITE);
    for (round = 0; round < rounds; ++round) {
        conf_mem_init(t, &mem, 0, WAIT_LENGTH, ANGARA_ACCESS_ALL);
        memcpy(mem.addr, expected, WAIT_LENGTH);
        conf_mem_exchange(t, &mem, keys);
        if (t->rank == 1) {
            access_until_gone(t, (int)(round % 2), &buf, expected, keys[0]);
            conf_barrier(t);
        } else {
            conf_recv(t, 1, &byte, 1);
            usleep((unsigned)(conf_random(t) % 2000));
            CHECK_OK(angara_mr_deregister(mem.mr));
            for (i = 0; i < WAIT_LENGTH; i += SCRIBBLE_STEP) {
                mem.addr[i] = 0x33;
            }
            usleep(1000);
            conf_barrier(t);
            for (i = 0; i < WAIT_LENGTH; i += SCRIBBLE_STEP) {
                CHECK(mem.addr[i] == 0x33);
            }
            /* Registered again only to be cleaned up alike. */
            CHECK_OK(angara_mr_register(t->dom, mem.addr, WAIT_LENGTH, 0, &mem.mr));
        }
        conf_mem_cleanup(&mem);
        conf_barrier(t);
    }
    conf_mem_cleanup(&buf);
    conf_close(t);
    free(expected);
}

/* Shared memory freed under access: the initiator gets a fault, never a signal. */
static void free_under_access(conf_t *t)
{
    unsigned   rounds = conf_rounds(rank_chaos() ? 10 : 30), round;
    size_t     length = 256u << 10;
    conf_mem_t mem, buf;
    uint64_t   keys[RANK_MAX];
    char       byte;

    conf_open(t);
    conf_mem_init(t, &buf, 0, length, ANGARA_ACCESS_LOCAL_WRITE);
    for (round = 0; round < rounds; ++round) {
        conf_mem_init(t, &mem, 1, length, ANGARA_ACCESS_ALL);
        conf_mem_exchange(t, &mem, keys);
        if (t->rank == 1) {
            angara_status_t status = ANGARA_OK;
            angara_event_t  event;
            conf_timer_t    timer = conf_timer();
            unsigned        n;

            for (n = 0; (status == ANGARA_OK) || (status == ANGARA_ERR_NO_RESOURCE); ++n) {
                status = ((n % 2) != 0) ?
                             angara_offload_get(t->peer[0], buf.mr, buf.addr, keys[0], 0, length) :
                             angara_offload_put(t->peer[0], buf.mr, buf.addr, keys[0], 0, length);
                conf_relax(t, &timer, __FILE__, __LINE__, "fault");
                if (n == 2) {
                    conf_send(t, 0, "r", 1);
                }
            }
            CHECK(conf_event(t, &event, RANK_TIMEOUT));
            CHECK_STATUS((angara_status_t)event.status, ANGARA_ERR_KEY);
            CHECK_OK(angara_peer_reset(t->peer[0]));
        } else {
            conf_recv(t, 1, &byte, 1);
            usleep((unsigned)(conf_random(t) % 2000));
        }
        conf_mem_cleanup(&mem);
        conf_barrier(t);
    }
    conf_mem_cleanup(&buf);
    conf_close(t);
}

/* A get whose own local region goes: it faults, or is through before; nothing is written later. */
static void local_gone(conf_t *t)
{
    unsigned        rounds = conf_rounds(rank_chaos() ? 60 : 30), round;
    angara_status_t status;
    conf_mem_t      mem, buf;
    uint64_t        keys[RANK_MAX];
    size_t          i;

    conf_open(t);
    conf_mem_init(t, &mem, 0, WAIT_LENGTH, ANGARA_ACCESS_ALL);
    memset(mem.addr, 0x44, WAIT_LENGTH);
    conf_mem_exchange(t, &mem, keys);
    if (t->rank == 0) {
        for (round = 0; round < rounds; ++round) {
            conf_mem_init(t, &buf, 0, WAIT_LENGTH, ANGARA_ACCESS_LOCAL_WRITE);
            status = CONF_POST(
                t, angara_offload_get(t->peer[1], buf.mr, buf.addr, keys[1], 0, WAIT_LENGTH));
            CHECK_OK(status);
            usleep((unsigned)(conf_random(t) % 200));
            angara_pe_progress(t->pe);
            CHECK_OK(angara_mr_deregister(buf.mr));
            for (i = 0; i < WAIT_LENGTH; i += SCRIBBLE_STEP) {
                buf.addr[i] = 0x33;
            }
            conf_settle(t, 1);
            conf_marker(t, 1);
            for (i = 0; i < WAIT_LENGTH; i += SCRIBBLE_STEP) {
                CHECK(buf.addr[i] == 0x33);
            }
            CHECK_OK(angara_mr_register(t->dom, buf.addr, WAIT_LENGTH, 0, &buf.mr));
            conf_mem_cleanup(&buf);
        }
    }
    conf_barrier(t);
    conf_mem_cleanup(&mem);
    conf_close(t);
}

/* Both directions between the ranks, with nobody's main thread needed. */
static void headless_traffic(conf_t *t)
{
    static char    expected[WAIT_LENGTH];
    const kind_t  *kind = t->arg;
    unsigned       me = t->rank, other = 1 - me, round;
    conf_mem_t     mem, buf;
    uint64_t       keys[RANK_MAX];
    angara_event_t event;
    char           byte = 0;

    conf_open(t);
    conf_mem_init(t, &buf, 0, WAIT_LENGTH, ANGARA_ACCESS_LOCAL_WRITE);
    for (round = 0; round < 4; ++round) {
        conf_mem_init(t, &mem, kind->shared, WAIT_LENGTH, ANGARA_ACCESS_ALL);
        conf_mem_exchange(t, &mem, keys);
        data_fill(buf.addr, 100000, me + round);
        POST_OK(t, angara_offload_put(t->peer[other], buf.mr, buf.addr, keys[other], 64, 100000));
        POST_OK(t, conf_add(t, other, kind->shared, 5, 5, keys[other], 0));
        POST_OK(t, angara_offload_get(t->peer[other], buf.mr, buf.addr + 200000, keys[other], 64,
                                      100000));
        POST_OK(t, angara_notify(t->peer[other], &byte, 1));
        conf_marker(t, other);
        CHECK_DATA(buf.addr + 200000, 100000, me + round);
        CHECK(conf_event(t, &event, RANK_TIMEOUT));
        CHECK_EQ(event.type, ANGARA_EVENT_NOTIFY); /* and never PEER_DOWN */
        conf_barrier(t);
        CHECK_DATA(mem.addr + 64, 100000, other + round);
        CHECK_EQ(*(uint64_t *)(void *)mem.addr, 5);
        conf_barrier(t);
        if (kind->shared) {
            conf_mem_cleanup(&mem);
            continue;
        }
        /* Deregistration waits for the other one's accesses, whichever thread it has left. */
        memset(mem.addr, 0x44, WAIT_LENGTH);
        memset(expected, 0x44, WAIT_LENGTH);
        conf_barrier(t);
        if (me == 1) {
            access_until_gone(t, (int)(round % 2), &buf, expected, keys[0]);
            conf_barrier(t);
        } else {
            conf_recv(t, 1, &byte, 1);
            CHECK_OK(angara_mr_deregister(mem.mr));
            memset(mem.addr, 0x33, WAIT_LENGTH);
            conf_barrier(t);
            for (size_t i = 0; i < WAIT_LENGTH; ++i) {
                CHECK(mem.addr[i] == 0x33);
            }
            CHECK_OK(angara_mr_register(t->dom, mem.addr, WAIT_LENGTH, 0, &mem.mr));
        }
        conf_mem_cleanup(&mem);
        conf_barrier(t);
    }
    conf_mem_cleanup(&buf);
    CHECK(!conf_event(t, &event, 0));
    conf_close(t);
}

static void *headless_thread(void *arg)
{
    char  text[512], *state = NULL;
    FILE *file;

    do { /* until the main thread has ended */
        file = fopen("/proc/self/stat", "r");
        CHECK(file != NULL);
        state = (fgets(text, sizeof(text), file) != NULL) ? strrchr(text, ')') : NULL;
        fclose(file);
    } while ((state == NULL) || (state[2] != 'Z'));
    headless_traffic(arg);
    _exit(0); /* the leak checker wouldn't find what the main thread's stack points to */
}

/* Rank 1's main thread ends; its other thread uses the library, as MPI permits. */
static void main_thread_ends(conf_t *t)
{
    static conf_t copy;
    pthread_t     thread;

    if (getenv("ANGARA_TEST_QUICK") != NULL) {
        rank_skip("under valgrind the main thread stays");
    }
    if (t->rank == 1) {
        copy = *t;
        CHECK(pthread_create(&thread, NULL, headless_thread, &copy) == 0);
        pthread_exit(NULL);
    }
    headless_traffic(t);
}

static void test_deregister_waits(void **state)
{
    (void)state;
    conf_run(2, deregister_waits, NULL);
}

static void test_free_under_access(void **state)
{
    (void)state;
    conf_run(2, free_under_access, NULL);
}

static void test_local_gone(void **state)
{
    (void)state;
    conf_run(2, local_gone, NULL);
}

static void test_main_thread_ends_private(void **state)
{
    (void)state;
    conf_run(2, main_thread_ends, &kind_private);
}

static void test_main_thread_ends_shared(void **state)
{
    (void)state;
    conf_run(2, main_thread_ends, &kind_shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deregister_waits),
        cmocka_unit_test(test_free_under_access),
        cmocka_unit_test(test_local_gone),
        cmocka_unit_test(test_main_thread_ends_private),
        cmocka_unit_test(test_main_thread_ends_shared),
    };

    return cmocka_run_group_tests_name("dereg", tests, NULL, NULL);
}
