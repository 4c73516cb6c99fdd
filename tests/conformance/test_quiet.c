/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data path makes no system call: operations of every kind from one PE to another, under a
 * filter that kills the process at the first one. Both PEs are of one process, which takes turns.
 * Over the soft fabric that is so for memory of angara_mem_alloc() only.
 */
#include "conf.h"

#include "../common/quiet.h"

#include <signal.h>
#include <sys/wait.h>

#include <cmocka.h>

#define SIZE (64u << 10)

struct quiet {
    conf_t         *t;
    angara_pe_h     pe;     /* the target */
    angara_peer_h   peer;   /* from t->pe to it */
    volatile char  *window; /* the target's */
    conf_mem_t      mem, buf;
    angara_status_t status;
};

static void progress(quiet_t *q)
{
    angara_pe_progress(q->t->pe);
    angara_pe_progress(q->pe);
}

#define QUIET_WAIT(_q, _condition, _which) QUIET_UNTIL(_condition, progress(_q), _which)

#define QUIET_POST(_q, _call, _which)                                               \
    do {                                                                            \
        QUIET_WAIT(_q, ((_q)->status = (_call)) != ANGARA_ERR_NO_RESOURCE, _which); \
        quiet_must((_q)->status == ANGARA_OK, _which);                              \
    } while (0)

static uint64_t word(const volatile void *address)
{
    return __atomic_load_n((const volatile uint64_t *)address, __ATOMIC_ACQUIRE);
}

static void windows(quiet_t *q, uint64_t n)
{
    QUIET_POST(q, angara_put(q->peer, 64, q->buf.addr, 200), 20);
    QUIET_POST(q, angara_put_flag(q->peer, 512, q->buf.addr, 1000, 0, n), 21);
    QUIET_WAIT(q, word(q->window) == n, 22);
    QUIET_POST(q, angara_put_u64(q->peer, 8, n), 23);
    QUIET_WAIT(q, word(q->window + 8) == n, 24);
}

static void marker(quiet_t *q)
{
    conf_t *t = q->t;

    ++t->value;
    QUIET_POST(q, angara_marker(q->peer, t->slot, t->value), 30);
    QUIET_WAIT(q, word(t->slot) == t->value, 31);
}

static void offload(quiet_t *q, uint64_t n)
{
    uint64_t     *to = (uint64_t *)(void *)q->mem.addr, *from = (uint64_t *)(void *)q->buf.addr;
    angara_xfer_t xfers[2] = {{q->buf.mr, q->buf.addr, q->mem.key, 8192, 100},
                              {q->buf.mr, q->buf.addr + 100, q->mem.key, 16384, 100}};
    unsigned      posted;

    *from = n;
    QUIET_POST(q, angara_offload_put(q->peer, q->buf.mr, from, q->mem.key, 0, 4096), 40);
    QUIET_POST(q, angara_offload_get(q->peer, q->buf.mr, from + 1024, q->mem.key, 0, 4096), 41);
    QUIET_POST(q, angara_offload_put_inline(q->peer, &n, q->mem.key, 8, sizeof(n)), 42);
    QUIET_POST(q, angara_offload_batch(q->peer, ANGARA_BATCH_PUT, xfers, 2, &posted), 43);
    marker(q);
    quiet_must(to[0] == n && to[1] == n && from[1024] == n, 44);
}

static void atomics(quiet_t *q, uint64_t n)
{
    uint64_t *result = (uint64_t *)(void *)(q->buf.addr + 32768);
    uint64_t *target = (uint64_t *)(void *)(q->mem.addr + 32768);

    QUIET_POST(
        q, angara_atomic(q->peer, ANGARA_ATOMIC_SWAP, 8, n, 0, q->mem.key, 32768, NULL, NULL), 50);
    QUIET_POST(
        q, angara_atomic(q->peer, ANGARA_ATOMIC_ADD, 8, 1, 0, q->mem.key, 32768, q->buf.mr, result),
        51);
    marker(q);
    quiet_must(*result == n && *target == n + 1, 52);
}

static void events(quiet_t *q, uint64_t n)
{
    angara_event_t event;

    (void)n;
    quiet_must(angara_pe_event_poll(q->pe, &event) == ANGARA_ERR_NO_RESOURCE, 60);
    quiet_must(angara_peer_status(q->peer) == ANGARA_OK, 61);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void quiet_open(conf_t *t, quiet_t *q)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = CONF_WINDOW};
    angara_address_t   address;
    size_t             size;

    memset(q, 0, sizeof(*q));
    q->t = t;
    conf_open(t);
    if (!(t->attr.caps & ANGARA_CAP_LOOPBACK)) {
        rank_skip("the own node can't be read without asking the target");
    }
    CHECK_OK(angara_pe_create(t->dom, &params, &q->pe));
    CHECK_OK(angara_pe_window_commit(q->pe, 0, CONF_WINDOW));
    q->window = angara_pe_window(q->pe, &size);
    angara_pe_address(q->pe, &address);
    CHECK_OK(angara_peer_connect(t->pe, &address, &q->peer));
    conf_mem_init(t, &q->mem, 1, SIZE, ANGARA_ACCESS_ALL);
    conf_mem_init(t, &q->buf, 1, SIZE, ANGARA_ACCESS_ALL);
    q->mem.key = angara_mr_key(q->mem.mr);
}

static void run(conf_t *t)
{
    quiet_t q;

    quiet_open(t, &q);
    CHECK(quiet_run(t->arg, &q, 100) == 0);
}

#define TEST(_name, _rounds)                               \
    static void test_##_name(void **state)                 \
    {                                                      \
        static const quiet_kind_t kind = {_name, _rounds}; \
                                                           \
        (void)state;                                       \
        conf_run(1, run, &kind);                           \
    }

TEST(windows, 10000)
TEST(offload, 2500)
TEST(atomics, 5000)
TEST(events, 10000)

/* The filter is one. */
static void test_filter(void **state)
{
    pid_t pid = fork();
    int   status;

    (void)state;
    if (pid == 0) {
        if (quiet_begin() == 0) {
            getppid();
        }
        quiet_end(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_filter),  cmocka_unit_test(test_windows),
        cmocka_unit_test(test_offload), cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_events),
    };

    quiet_prepare();
    return cmocka_run_group_tests_name("quiet", tests, NULL, NULL);
}
