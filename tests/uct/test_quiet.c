/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transport's data path makes no system call: two interfaces of one process exchange messages
 * of all protocols, puts, gets and atomics, under a filter that kills the process at the first one.
 * Over the soft fabric that is so for memory that the domain allocates only.
 */
#include "ut.h"

#include "../common/quiet.h"

#define QT_AM   7
#define QT_SIZE ((size_t)64 << 10)

struct quiet {
    ut_t       *t;
    ut_iface_t  other;
    uct_ep_h    ep[2]; /* from main to other, and back */
    ut_mem_t    mem;
    ut_remote_t remote; /* the memory again, as both name it */
    uint64_t    received;
    ut_comp_t   comp;
    ut_pack_t   pack;
};

#define QUIET_WAIT(_q, _condition, _which) \
    QUIET_UNTIL(_condition, uct_worker_progress((_q)->t->worker), _which)

/* A call that returns a status or, packing, a length. */
#define QUIET_POST(_q, _call, _which)                                                \
    __extension__({                                                                  \
        ssize_t _status;                                                             \
                                                                                     \
        QUIET_WAIT(_q, (_status = (ssize_t)(_call)) != UCS_ERR_NO_RESOURCE, _which); \
        quiet_must(_status >= 0, _which);                                            \
        (ucs_status_t) _status;                                                      \
    })

#define QUIET_COMPLETE(_q, _call, _which)                      \
    do {                                                       \
        ut_comp_init(&(_q)->comp, 1);                          \
        if (QUIET_POST(_q, _call, _which) == UCS_INPROGRESS) { \
            QUIET_WAIT(_q, (_q)->comp.calls == 1, _which);     \
            quiet_must((_q)->comp.status == UCS_OK, _which);   \
        }                                                      \
    } while (0)

static ucs_status_t receive(void *arg, void *data, size_t length, unsigned flags)
{
    quiet_t *q = arg;

    (void)data;
    (void)length;
    (void)flags;
    ++q->received;
    return UCS_OK;
}

/* There and back, in one slot and in several. */
static void messages(quiet_t *q, uint64_t n)
{
    uint64_t expected = q->received;
    unsigned i;

    for (i = 0; i < 2; ++i) {
        QUIET_POST(q, uct_ep_am_short(q->ep[i], QT_AM, n, q->mem.addr, 32), 20);
        ++expected;
        QUIET_WAIT(q, q->received == expected, 21);
        q->pack = (ut_pack_t){q->mem.addr, 4000};
        QUIET_POST(q, uct_ep_am_bcopy(q->ep[i], QT_AM, ut_pack, &q->pack, 0), 22);
        ++expected;
        QUIET_WAIT(q, q->received == expected, 23);
    }
}

static void flush(quiet_t *q)
{
    QUIET_COMPLETE(q, uct_ep_flush(q->ep[0], 0, &q->comp.super), 30);
}

static void rma(quiet_t *q, uint64_t n)
{
    uint64_t *words = (uint64_t *)(void *)q->mem.addr;
    uct_iov_t iov   = {q->mem.addr, 16384, q->mem.memh, 0, 1};
    uint64_t  to    = q->remote.addr + 32768;

    words[0] = n;
    QUIET_POST(q, uct_ep_put_short(q->ep[0], words, 8, to + 16384, q->remote.key.rkey), 40);
    QUIET_COMPLETE(q, uct_ep_put_zcopy(q->ep[0], &iov, 1, to, q->remote.key.rkey, &q->comp.super),
                   41);
    flush(q);
    quiet_must(words[32768 / 8] == n && words[(32768 + 16384) / 8] == n, 42);
    words[0] = 0;
    QUIET_COMPLETE(q, uct_ep_get_zcopy(q->ep[0], &iov, 1, to, q->remote.key.rkey, &q->comp.super),
                   43);
    quiet_must(words[0] == n, 44);
}

static void atomics(quiet_t *q, uint64_t n)
{
    uint64_t *words = (uint64_t *)(void *)q->mem.addr, result = 0;

    words[1] = n;
    QUIET_COMPLETE(q,
                   uct_ep_atomic64_fetch(q->ep[0], UCT_ATOMIC_OP_ADD, 1, &result,
                                         q->remote.addr + 8, q->remote.key.rkey, &q->comp.super),
                   50);
    quiet_must(result == n, 51);
    QUIET_POST(q,
               uct_ep_atomic64_post(q->ep[0], UCT_ATOMIC_OP_ADD, 1, q->remote.addr + 8,
                                    q->remote.key.rkey),
               52);
    flush(q);
    quiet_must(words[1] == n + 2, 53);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void run(ut_t *t)
{
    quiet_t q = {.t = t};

    ut_open(t);
    ut_iface_open(t, &q.other);
    q.ep[0] = ut_ep_create(&t->main, &q.other.addr);
    q.ep[1] = ut_ep_create(&q.other, &t->main.addr);
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, QT_AM, receive, &q, 0));
    CHECK_OK(uct_iface_set_am_handler(q.other.iface, QT_AM, receive, &q, 0));
    ut_mem_init(t, &q.mem, UT_MEM_ALLOC, QT_SIZE);
    memset(q.mem.addr, 0, QT_SIZE);
    ut_mem_exchange(t, &q.mem, &q.remote);
    CHECK(quiet_run(t->arg, &q, 200) == 0);
}

#define TEST(_name, _rounds)                               \
    static void test_##_name(void **state)                 \
    {                                                      \
        static const quiet_kind_t kind = {_name, _rounds}; \
                                                           \
        (void)state;                                       \
        ut_run(1, run, &kind);                             \
    }

TEST(messages, 5000)
TEST(rma, 4000)
TEST(atomics, 4000)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_rma),
        cmocka_unit_test(test_atomics),
    };

    quiet_prepare();
    return ut_main(argc, argv, "quiet", tests, sizeof(tests) / sizeof(tests[0]));
}
