/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lives that end: peers killed or closed in the middle of transfers, stopped peers, senders that
 * die with a half-written record.
 */
#include "conf.h"

#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGION (4u << 20)
/* Seconds within which an operation to a dead peer must end. */
#define BOUND (5.0 * rank_slow())

typedef struct {
    int shared;
} kind_t;

static const kind_t kind_private = {0}, kind_shared = {1};

/* One operation of each kind, chosen by n. */
static angara_status_t any_operation(conf_t *t, unsigned n, unsigned to, conf_mem_t *buf,
                                     uint64_t key)
{
    int shared = ((const kind_t *)t->arg)->shared;

    switch (n % (conf_has_atomics(shared) ? 6 : 5)) {
    case 0:
        return angara_offload_put(t->peer[to], buf->mr, buf->addr, key, 0, REGION);
    case 1:
        return angara_offload_get(t->peer[to], buf->mr, buf->addr, key, 0, REGION);
    case 2:
        return angara_offload_put_inline(t->peer[to], buf->addr, key, 64, 8);
    case 3:
        return conf_add(t, to, shared, 1, 1, key, 0);
    case 4:
        return angara_put(t->peer[to], 0, buf->addr,
                          (t->attr.put_max < 4096) ? t->attr.put_max : 4096);
    default:
        return angara_atomic(t->peer[to], ANGARA_ATOMIC_ADD, 8, 1, 0, key, 8, buf->mr, buf->addr);
    }
}

/*
 * Rank 0 keeps all kinds of operations going, rank 1 is killed by rank 2 some time in between. Rank
 * 0 must get an error within the bound, then the event; rank 2 is not concerned.
 */
static void kill_target(conf_t *t)
{
    const kind_t   *kind = t->arg;
    conf_mem_t      mem, buf;
    uint64_t        keys[RANK_MAX], value;
    angara_status_t status = ANGARA_OK;
    angara_event_t  event;
    double          killed = 0, end;
    unsigned        n, down = 0;
    char            byte;

    conf_open(t);
    conf_mem_init(t, &mem, kind->shared, REGION, ANGARA_ACCESS_ALL);
    conf_mem_init(t, &buf, 0, REGION, ANGARA_ACCESS_LOCAL_WRITE);
    conf_mem_exchange(t, &mem, keys);
    if (t->rank == 1) {
        for (;;) {
            angara_pe_progress(t->pe);
            usleep(100);
        }
    }
    if (t->rank == 2) {
        conf_recv(t, 0, &byte, 1);
        sleep_ms(5 + (unsigned)getpid() % 20);
        CHECK(kill(t->pid[1], SIGKILL) == 0);
        conf_send(t, 0, "k", 1);
        conf_recv(t, 0, &byte, 1); /* stay a target for rank 0 until it is through */
    } else {
        /* Operations with markers, until one fails; the time counts from the kill. */
        end = deadline_in(30);
        for (n = 0; (status == ANGARA_OK) || (status == ANGARA_ERR_NO_RESOURCE); ++n) {
            if (n == 3) {
                conf_send(t, 2, "k", 1);
                killed = now_seconds(); /* it may be dead before the next turn */
            }
            CHECK(now_seconds() < end);
            status = any_operation(t, n, 1, &buf, keys[1]);
            if (status == ANGARA_OK) {
                value  = ++t->value;
                status = CONF_POST(t, angara_marker(t->peer[1], t->slot, value));
                while ((status == ANGARA_OK) && !angara_marker_arrived(t->slot, value)) {
                    angara_pe_progress(t->pe);
                    status = angara_peer_status(t->peer[1]);
                    CHECK(now_seconds() < end);
                }
            }
            angara_pe_progress(t->pe);
        }
        conf_recv(t, 2, &byte, 1);
        CHECK(now_seconds() - killed < BOUND + 1);
        if (status != ANGARA_ERR_PEER_DEAD) {
            CHECK_STATUS(status, ANGARA_ERR_PAIR);
        }
        end = now_seconds() + BOUND;
        while (!down) {
            CHECK(now_seconds() < end);
            if (conf_event(t, &event, 0.01)) {
                CHECK((event.type == ANGARA_EVENT_PEER_DOWN) || (event.type == ANGARA_EVENT_FAULT));
                CHECK(event.peer == t->peer[1]);
                down = (event.type == ANGARA_EVENT_PEER_DOWN);
            }
        }
        /* Everything to it fails at once now, and no reset helps. */
        CHECK_STATUS(angara_peer_status(t->peer[1]), ANGARA_ERR_PEER_DEAD);
        CHECK_STATUS(angara_peer_reset(t->peer[1]), ANGARA_ERR_PEER_DEAD);
        for (n = 0; n < 6; ++n) {
            status = any_operation(t, n, 1, &buf, keys[1]);
            CHECK(status < 0);
            CHECK(status != ANGARA_ERR_NO_RESOURCE);
        }
        CHECK_STATUS(angara_marker(t->peer[1], t->slot, ++t->value), ANGARA_ERR_PEER_DEAD);
        CHECK_STATUS(angara_notify(t->peer[1], "x", 1), ANGARA_ERR_PEER_DEAD);
        CHECK(!angara_marker_arrived(t->slot, t->value));
        CHECK(!angara_is_reachable(t->dom, &t->addr[1]) ||
              (angara_peer_connect(t->pe, &t->addr[1], &t->peer[3]) <= 0));
        /* The living one is reached as before. */
        POST_OK(t, angara_offload_put(t->peer[2], buf.mr, buf.addr, keys[2], 0, REGION));
        conf_marker(t, 2);
        conf_send(t, 2, "k", 1);
    }
    conf_mem_cleanup(&buf);
    conf_mem_cleanup(&mem);
    if (t->rank == 0 && t->peer[3] != NULL) {
        angara_peer_disconnect(t->peer[3]);
        t->peer[3] = NULL;
    }
    conf_close_alone(t);
}

/*
 * An initiator is killed while it accesses rank 0's region: deregistration there ends all the same,
 * and soon.
 */
static void kill_initiator(conf_t *t)
{
    const kind_t *kind = t->arg;
    conf_mem_t    mem, buf;
    uint64_t      keys[RANK_MAX];
    unsigned      n;
    double        start;

    conf_open(t);
    conf_mem_init(t, &mem, kind->shared, REGION, ANGARA_ACCESS_ALL);
    conf_mem_init(t, &buf, 0, REGION, ANGARA_ACCESS_LOCAL_WRITE);
    conf_mem_exchange(t, &mem, keys);
    if (t->rank == 1) {
        for (n = 0;; ++n) {
            CONF_POST(t, any_operation(t, n % 4, 0, &buf, keys[0]));
            if (n == 2) {
                conf_send(t, 0, "r", 1);
            }
        }
    }
    conf_recv(t, 1, &n, 1);
    sleep_ms(5 + (unsigned)getpid() % 20);
    CHECK(kill(t->pid[1], SIGKILL) == 0);
    start = now_seconds();
    conf_mem_cleanup(&mem);
    CHECK(now_seconds() - start < BOUND);
    conf_mem_cleanup(&buf);
    conf_close_alone(t);
}

/* A PE closed by its living owner is as gone as a dead one; the address isn't good for its
 * successor. */
static void closed_pe(conf_t *t)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = CONF_WINDOW};
    angara_address_t   old, fresh;
    angara_status_t    status = ANGARA_OK;
    angara_peer_h      peer   = NULL;
    angara_event_t     event;
    double             end;
    int                down = 0;

    conf_open(t);
    conf_barrier(t);
    if (t->rank == 1) {
        old = t->addr[1];
        conf_close_alone(t);
        CHECK_OK(angara_open(conf_device(), &t->dom));
        CHECK_OK(angara_pe_create(t->dom, &params, &t->pe));
        angara_pe_address(t->pe, &fresh);
        CHECK((fresh.index != old.index) || (fresh.generation != old.generation));
        CHECK(fresh.generation != 0);
        conf_barrier(t);
        conf_barrier(t);
        angara_pe_destroy(t->pe);
        CHECK_OK(angara_close(t->dom));
        return;
    }
    conf_barrier(t);
    end = now_seconds() + BOUND;
    while (status == ANGARA_OK || status == ANGARA_ERR_NO_RESOURCE) {
        CHECK(now_seconds() < end);
        angara_pe_progress(t->pe);
        status = angara_marker(t->peer[1], t->slot, ++t->value);
        if (status == ANGARA_OK) {
            status = angara_peer_status(t->peer[1]);
        }
    }
    CHECK_STATUS(status, ANGARA_ERR_PEER_DEAD);
    while (!down) {
        CHECK(now_seconds() < end);
        down = conf_event(t, &event, 0.01) && (event.type == ANGARA_EVENT_PEER_DOWN) &&
               (event.peer == t->peer[1]);
    }
    CHECK_OK((angara_status_t)event.status); /* it said goodbye */
    angara_peer_disconnect(t->peer[1]);
    t->peer[1] = NULL;
    status     = angara_peer_connect(t->pe, &t->addr[1], &peer);
    CHECK((status == ANGARA_ERR_PEER_DEAD) || (status == ANGARA_ERR_UNREACHABLE));
    CHECK(peer == NULL);
    conf_barrier(t);
    conf_close_alone(t);
}

/* A stopped peer isn't dead: what needs it waits, and ends well once it goes on. */
static void stopped_peer(conf_t *t)
{
    const kind_t *kind = t->arg;
    conf_mem_t    mem, buf;
    uint64_t      keys[RANK_MAX], value;
    double        end;

    conf_open(t);
    conf_mem_init(t, &mem, kind->shared, 100000, ANGARA_ACCESS_ALL);
    conf_mem_init(t, &buf, 0, 100000, ANGARA_ACCESS_LOCAL_WRITE);
    data_fill(mem.addr, mem.length, t->rank);
    conf_mem_exchange(t, &mem, keys);
    if (t->rank == 0) {
        CHECK(kill(t->pid[1], SIGSTOP) == 0);
        POST_OK(t, angara_offload_get(t->peer[1], buf.mr, buf.addr, keys[1], 0, mem.length));
        value = ++t->value;
        POST_OK(t, angara_marker(t->peer[1], t->slot, value));
        end = now_seconds() + 0.5;
        while (now_seconds() < end) {
            angara_pe_progress(t->pe);
            CHECK_OK(angara_peer_status(t->peer[1]));
        }
        CHECK(kill(t->pid[1], SIGCONT) == 0);
        CONF_WAIT(t, angara_marker_arrived(t->slot, value));
        CHECK_DATA(buf.addr, mem.length, 1);
    }
    conf_barrier(t);
    conf_mem_cleanup(&buf);
    conf_mem_cleanup(&mem);
    conf_close(t);
}

static uint64_t services(conf_t *t)
{
    angara_counters_t counters;

    angara_pe_counters(t->pe, &counters);
    return counters.services;
}

/*
 * Operations that the peer's process must carry out, and it is stopped: a reset takes them back. It
 * costs nothing that others need, and when the peer goes on, nothing of them happens.
 */
static void reset_stopped(conf_t *t)
{
    conf_mem_t mem, buf;
    uint64_t   keys[RANK_MAX], before;
    unsigned   n;

    conf_need_atomics(0);
    conf_open(t);
    conf_mem_init(t, &mem, 0, 4096, ANGARA_ACCESS_ALL);
    conf_mem_init(t, &buf, 0, 4096, ANGARA_ACCESS_LOCAL_WRITE);
    conf_mem_exchange(t, &mem, keys);
    if (strcmp(t->attr.provider, "soft") != 0) {
        rank_skip("only on the soft fabric the peer's process carries out operations");
    }
    if (t->rank == 0) {
        POST_OK(t, angara_atomic(t->peer[1], ANGARA_ATOMIC_ADD, 8, 1, 0, keys[1], 0, NULL, NULL));
        conf_marker(t, 1);
        conf_stop_process(t->pid[1]);
        for (n = 0; n < 20; ++n) {
            before = services(t);
            POST_OK(t, angara_atomic(t->peer[1], ANGARA_ATOMIC_ADD, 8, 1, 0, keys[1], 8, buf.mr,
                                     buf.addr));
            POST_OK(t, angara_offload_put_inline(t->peer[1], "x", keys[1], 64 + n, 1));
            CONF_WAIT(t, services(t) > before);
            CHECK_OK(angara_peer_reset(t->peer[1]));
        }
        POST_OK(t, angara_atomic(t->peer[2], ANGARA_ATOMIC_ADD, 8, 1, 0, keys[2], 0, NULL, NULL));
        conf_marker(t, 2);
        CHECK(kill(t->pid[1], SIGCONT) == 0);
        POST_OK(t, angara_atomic(t->peer[1], ANGARA_ATOMIC_ADD, 8, 1, 0, keys[1], 0, NULL, NULL));
        conf_marker(t, 1); /* behind all that has been taken back */
    }
    conf_barrier(t);
    CHECK_EQ(*(uint64_t *)(void *)mem.addr, (t->rank == 1) ? 2 : (t->rank == 2) ? 1 : 0);
    for (n = 8; n < 4096; ++n) {
        CHECK(mem.addr[n] == 0);
    }
    conf_barrier(t);
    conf_mem_cleanup(&buf);
    conf_mem_cleanup(&mem);
    conf_close(t);
}

/* Senders killed while they write records: the ring stays usable for the living. */
static void kill_senders(conf_t *t)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = CONF_WINDOW, .events = 16};
    unsigned           rounds = conf_rounds(20), n, i;
    angara_event_t     event;
    unsigned char      record[64];
    pid_t              pid;

    if (t->rank == 1) {
        /* Each victim is forked before this process has opened anything. */
        angara_address_t addr;

        conf_recv(t, 0, &addr, sizeof(addr));
        for (n = 0; n < rounds; ++n) {
            pid = fork();
            CHECK(pid >= 0);
            if (pid == 0) {
                angara_peer_h peer;

                memset(record, 1, sizeof(record));
                CHECK_OK(angara_open(conf_device(), &t->dom));
                CHECK_OK(angara_pe_create(t->dom, &params, &t->pe));
                CHECK_OK(angara_peer_connect(t->pe, &addr, &peer));
                for (;;) {
                    angara_notify(peer, record, sizeof(record));
                }
            }
            sleep_ms(10 + n % 7);
            CHECK(kill(pid, SIGKILL) == 0);
            CHECK(waitpid(pid, NULL, 0) == pid);
        }
        CHECK_OK(angara_open(conf_device(), &t->dom));
        CHECK_OK(angara_pe_create(t->dom, &params, &t->pe));
        CHECK_OK(angara_peer_connect(t->pe, &addr, &t->peer[0]));
        memset(record, 2, sizeof(record));
        for (n = 0; n < 100; ++n) {
            POST_OK(t, angara_notify(t->peer[0], record, sizeof(record)));
        }
        conf_barrier(t);
        angara_peer_disconnect(t->peer[0]);
        angara_pe_destroy(t->pe);
        CHECK_OK(angara_close(t->dom));
        return;
    }
    CHECK_OK(angara_open(conf_device(), &t->dom));
    CHECK_OK(angara_pe_create(t->dom, &params, &t->pe));
    angara_pe_address(t->pe, &t->addr[0]);
    conf_send(t, 1, &t->addr[0], sizeof(t->addr[0]));
    for (n = 0; n < 100;) { /* the hundred records of the one that lives */
        CHECK(conf_event(t, &event, RANK_TIMEOUT));
        if (event.type != ANGARA_EVENT_NOTIFY) {
            continue;
        }
        for (i = 1; i < event.len; ++i) {
            CHECK(event.data[i] == event.data[0]);
        }
        CHECK_EQ(event.len, 64);
        n += (event.data[0] == 2);
    }
    conf_barrier(t);
    angara_pe_destroy(t->pe);
    CHECK_OK(angara_close(t->dom));
}

static void test_kill_target_private(void **state)
{
    (void)state;
    conf_run_victims(3, kill_target, &kind_private, 1u << 1);
}

static void test_kill_target_shared(void **state)
{
    (void)state;
    conf_run_victims(3, kill_target, &kind_shared, 1u << 1);
}

static void test_kill_initiator_private(void **state)
{
    (void)state;
    conf_run_victims(2, kill_initiator, &kind_private, 1u << 1);
}

static void test_kill_initiator_shared(void **state)
{
    (void)state;
    conf_run_victims(2, kill_initiator, &kind_shared, 1u << 1);
}

static void test_closed_pe(void **state)
{
    (void)state;
    conf_run(2, closed_pe, NULL);
}

static void test_stopped_peer_private(void **state)
{
    (void)state;
    conf_run(2, stopped_peer, &kind_private);
}

static void test_stopped_peer_shared(void **state)
{
    (void)state;
    conf_run(2, stopped_peer, &kind_shared);
}

static void test_reset_stopped(void **state)
{
    (void)state;
    conf_run(3, reset_stopped, NULL);
}

static void test_kill_senders(void **state)
{
    (void)state;
    conf_run(2, kill_senders, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill_target_private),
        cmocka_unit_test(test_kill_target_shared),
        cmocka_unit_test(test_kill_initiator_private),
        cmocka_unit_test(test_kill_initiator_shared),
        cmocka_unit_test(test_closed_pe),
        cmocka_unit_test(test_stopped_peer_private),
        cmocka_unit_test(test_stopped_peer_shared),
        cmocka_unit_test(test_reset_stopped),
        cmocka_unit_test(test_kill_senders),
    };

    return cmocka_run_group_tests_name("life", tests, NULL, NULL);
}
