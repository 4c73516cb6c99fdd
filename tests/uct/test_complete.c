/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What counts as complete. A completion is told to the target over another route (a socket), and
 * the target, which makes no progress, looks at once whether the bytes are there. Meant for chaos
 * mode, where everything that the NIC model leaves unordered is delayed and reordered, and
 * undelivered memory is scribbled over: there these tests catch each of the mutants
 * (test_mutants.sh).
 */
#include "ut.h"

#define CO_MEMORY ((size_t)4 << 20)
#define CO_BLOCK  ((size_t)64 << 10)
#define CO_BLOCKS (CO_MEMORY / CO_BLOCK)
#define CO_AM     5

/* What the initiator tells the target over the socket. */
typedef struct {
    uint64_t offset;
    uint64_t length;
    uint64_t seed;
    uint64_t is_end;
} co_order_t;

typedef struct {
    ut_t       *t;
    uct_ep_h    ep;
    ut_mem_t    far;
    ut_mem_t    near;
    ut_remote_t remotes[RANK_MAX];
} co_t;

static const ut_mem_kind_t co_private = UT_MEM_PRIVATE;
static const ut_mem_kind_t co_alloc   = UT_MEM_ALLOC;

static void co_init(co_t *co, ut_t *t)
{
    const ut_mem_kind_t *kind = (t->arg != NULL) ? t->arg : &co_private;

    memset(co, 0, sizeof(*co));
    ut_open(t);
    co->t  = t;
    co->ep = t->ep[1 - ucs_min(t->rank, 1)];
    ut_mem_init(t, &co->far, *kind, CO_MEMORY);
    ut_mem_init(t, &co->near, UT_MEM_PRIVATE, CO_MEMORY);
    memset(co->far.addr, 0, CO_MEMORY);
    ut_mem_exchange(t, &co->far, co->remotes);
    ut_barrier(t);
}

static void co_cleanup(co_t *co)
{
    ut_t *t = co->t;

    ut_flush(t, &t->main);
    ut_barrier(t);
    ut_remotes_release(t, co->remotes);
    ut_mem_cleanup(t, &co->far);
    ut_mem_cleanup(t, &co->near);
    ut_close(t);
}

static uint64_t co_addr(const co_t *co, size_t offset)
{
    return co->remotes[1].addr + offset;
}

static uct_rkey_t co_key(const co_t *co)
{
    return co->remotes[1].key.rkey;
}

/* The target: check what it is told to, without progress, until the end. */
static void co_serve(co_t *co)
{
    co_order_t order;

    for (;;) {
        ut_recv_still(co->t, 0, &order, sizeof(order));
        if (order.is_end) {
            return;
        }
        CHECK_DATA(co->far.addr + order.offset, order.length, order.seed);
        ut_send_word(co->t, 0, order.seed);
    }
}

static void co_tell(co_t *co, size_t offset, size_t length, uint64_t seed)
{
    co_order_t order = {offset, length, seed, 0};

    ut_send(co->t, 1, &order, sizeof(order));
}

static void co_end(co_t *co)
{
    co_order_t order = {0, 0, 0, 1};

    ut_send(co->t, 1, &order, sizeof(order));
}

/* Mostly small, now and then several pages. */
static size_t co_length(ut_t *t)
{
    size_t max = (ut_random(t) % 4 == 0) ? CO_BLOCK : 256;

    return 1 + ut_random(t) % max;
}

/* More rounds than others where things go wrong only by chance. */
static unsigned co_rounds(unsigned rounds)
{
    return rank_chaos() ? rounds / 4 : rounds;
}

/* ---- puts ---------------------------------------------------------------------------------- */

static void put_zcopy_done(ut_t *t)
{
    unsigned  rounds = co_rounds(2000), i;
    uct_iov_t iov    = {.count = 1};
    ut_comp_t comp;
    size_t    offset;
    co_t      co;

    co_init(&co, t);
    for (i = 1; (t->rank == 0) && (i <= rounds); ++i) {
        iov.buffer = co.near.addr + i % 4096;
        iov.length = co_length(t);
        iov.memh   = co.near.memh;
        offset     = (i % CO_BLOCKS) * CO_BLOCK;
        data_fill(iov.buffer, iov.length, i);
        COMPLETE_OK(
            t, &comp,
            uct_ep_put_zcopy(co.ep, &iov, 1, co_addr(&co, offset), co_key(&co), &comp.super));
        memset(iov.buffer, 0xee, iov.length);
        co_tell(&co, offset, iov.length, i);
        CHECK_EQ(ut_recv_word(t, 1), i);
    }
    if (t->rank == 0) {
        co_end(&co);
    } else {
        co_serve(&co);
    }
    co_cleanup(&co);
}

static void co_put_any(co_t *co, unsigned i, char *buffer, size_t length, size_t offset)
{
    ut_t     *t    = co->t;
    ut_pack_t pack = {buffer, length};
    uct_iov_t iov  = {.buffer = buffer, .length = length, .memh = co->near.memh, .count = 1};
    ssize_t   status;

    /* On a NIC little fits into a put of this kind. */
    i = (i % 3 == 0 && length > t->main.attr.cap.put.max_short) ? 1 : i % 3;
    switch (i) {
    case 0:
        POST_OK(
            t, uct_ep_put_short(co->ep, buffer, (unsigned)length, co_addr(co, offset), co_key(co)));
        break;
    case 1:
        CHECK_EQ(
            UT_POST(t, uct_ep_put_bcopy(co->ep, ut_pack, &pack, co_addr(co, offset), co_key(co))),
            length);
        break;
    default:
        status = UT_POST(t,
                         uct_ep_put_zcopy(co->ep, &iov, 1, co_addr(co, offset), co_key(co), NULL));
        CHECK((status == UCS_OK) || (status == UCS_INPROGRESS));
    }
}

/* Flush with completion, or polled; of the endpoint, or of the interface. */
static void co_flush_any(co_t *co, unsigned i)
{
    ut_t      *t     = co->t;
    ut_timer_t timer = {0, 0};
    ut_comp_t  comp;

    switch (i % 4) {
    case 0:
        COMPLETE_OK(t, &comp, uct_ep_flush(co->ep, UCT_FLUSH_FLAG_LOCAL, &comp.super));
        break;
    case 1:
        while (uct_ep_flush(co->ep, UCT_FLUSH_FLAG_LOCAL, NULL) != UCS_OK) {
            ut_relax(t, &timer, __FILE__, __LINE__, "flush of the endpoint");
        }
        break;
    case 2:
        COMPLETE_OK(t, &comp, uct_iface_flush(t->main.iface, UCT_FLUSH_FLAG_LOCAL, &comp.super));
        break;
    default:
        ut_flush(t, &t->main);
    }
}

static void put_flushed(ut_t *t)
{
    unsigned rounds = co_rounds(2000), i;
    size_t   offset, length;
    co_t     co;

    co_init(&co, t);
    for (i = 1; (t->rank == 0) && (i <= rounds); ++i) {
        offset = (i % CO_BLOCKS) * CO_BLOCK + i % 64;
        length = 1 + ut_random(t) % ucs_min(t->main.attr.cap.put.max_short, (size_t)1024);
        data_fill(co.near.addr, length, i);
        co_put_any(&co, i, co.near.addr, length, offset);
        co_flush_any(&co, i / 3);
        memset(co.near.addr, 0xee, length);
        co_tell(&co, offset, length, i);
        CHECK_EQ(ut_recv_word(t, 1), i);
    }
    if (t->rank == 0) {
        co_end(&co);
    } else {
        co_serve(&co);
    }
    co_cleanup(&co);
}

/* ---- several flushes under way -------------------------------------------------------------- */

enum { PIPE_DEPTH = 8, PIPE_LENGTH = 3000 };

typedef struct {
    ut_comp_t comp;
    co_t     *co;
    unsigned  number;
    uint64_t  seed;
} co_pipe_t;

/* Told from within the completion, so that it can't be late. */
static void co_pipe_called(uct_completion_t *self)
{
    co_pipe_t *pipe = (co_pipe_t *)self;

    CHECK_OK(self->status);
    ++pipe->comp.calls;
    co_tell(pipe->co, pipe->number * CO_BLOCK, PIPE_LENGTH, pipe->seed);
}

/*
 * Each put has a flush of its own behind it, posted while the earlier ones are still under way: a
 * marker of an earlier flush must not be taken for that of a later one.
 */
static void co_pipe_round(co_t *co, co_pipe_t *pipes, unsigned round)
{
    ut_t    *t = co->t;
    ssize_t  status;
    unsigned i;

    for (i = 0; i < PIPE_DEPTH; ++i) {
        ut_comp_init(&pipes[i].comp, 1);
        pipes[i].comp.super.func = co_pipe_called;
        pipes[i].co              = co;
        pipes[i].number          = i;
        pipes[i].seed            = (uint64_t)round * PIPE_DEPTH + i + 1;
        data_fill(co->near.addr + i * CO_BLOCK, PIPE_LENGTH, pipes[i].seed);
        co_put_any(co, round + i, co->near.addr + i * CO_BLOCK, PIPE_LENGTH, i * CO_BLOCK);
        status = UT_POST(t, uct_ep_flush(co->ep, 0, &pipes[i].comp.super));
        if (status == UCS_OK) {
            co_pipe_called(&pipes[i].comp.super);
        } else {
            CHECK_STATUS(status, UCS_INPROGRESS);
        }
        if (ut_random(t) % 2) {
            ut_progress(t);
        }
    }
    for (i = 0; i < PIPE_DEPTH; ++i) {
        UT_WAIT(t, pipes[i].comp.calls == 1);
        CHECK_EQ(ut_recv_word(t, 1), pipes[i].seed); /* in order, too */
    }
}

static void flush_pipeline(ut_t *t)
{
    static co_pipe_t pipes[PIPE_DEPTH];
    unsigned         rounds = co_rounds(400), i;
    co_t             co;

    co_init(&co, t);
    for (i = 0; (t->rank == 0) && (i < rounds); ++i) {
        co_pipe_round(&co, pipes, i);
    }
    if (t->rank == 0) {
        co_end(&co);
    } else {
        co_serve(&co);
    }
    co_cleanup(&co);
}

/* ---- gets ---------------------------------------------------------------------------------- */

static void get_zcopy_done(ut_t *t)
{
    unsigned  rounds = co_rounds(2000), i;
    uct_iov_t iov    = {.count = 1};
    ut_comp_t comp;
    size_t    block;
    co_t      co;

    co_init(&co, t);
    for (block = 0; block < CO_BLOCKS; ++block) {
        data_fill(co.far.addr + block * CO_BLOCK, CO_BLOCK, block);
    }
    ut_barrier(t);
    for (i = 0; (t->rank == 0) && (i < rounds); ++i) {
        block      = ut_random(t) % CO_BLOCKS;
        iov.buffer = co.near.addr + ut_random(t) % CO_BLOCK;
        iov.length = co_length(t);
        iov.memh   = co.near.memh;
        memset(iov.buffer, 0xee, iov.length);
        COMPLETE_OK(t, &comp,
                    uct_ep_get_zcopy(co.ep, &iov, 1, co_addr(&co, block * CO_BLOCK), co_key(&co),
                                     &comp.super));
        CHECK_DATA(iov.buffer, iov.length, block);
    }
    if (t->rank == 0) {
        ut_send_word(t, 1, 0);
    } else {
        ut_recv_word_still(t, 0);
    }
    co_cleanup(&co);
}

/* One completion for many operations: called once, after the last. */
static void shared_completion(ut_t *t)
{
    enum { OPS = 16 };
    unsigned  rounds = co_rounds(200), round, i;
    uct_iov_t iov    = {.length = 5000, .count = 1};
    ut_comp_t comp;
    ssize_t   status;
    co_t      co;

    co_init(&co, t);
    for (round = 1; (t->rank == 0) && (round <= rounds); ++round) {
        ut_comp_init(&comp, OPS + 1);
        for (i = 0; i < OPS; ++i) {
            iov.buffer = co.near.addr + i * CO_BLOCK;
            iov.memh   = co.near.memh;
            data_fill(iov.buffer, iov.length, round + i);
            status = UT_POST(t, uct_ep_put_zcopy(co.ep, &iov, 1, co_addr(&co, i * CO_BLOCK),
                                                 co_key(&co), &comp.super));
            if (status == UCS_OK) {
                --comp.super.count;
            } else {
                CHECK_STATUS(status, UCS_INPROGRESS);
            }
            CHECK_EQ(comp.calls, 0);
        }
        UT_WAIT(t, comp.super.count == 1);
        CHECK_EQ(comp.calls, 0);
        for (i = 0; i < OPS; ++i) {
            co_tell(&co, i * CO_BLOCK, iov.length, round + i);
        }
        for (i = 0; i < OPS; ++i) {
            CHECK_EQ(ut_recv_word(t, 1), round + i);
        }
    }
    if (t->rank == 0) {
        co_end(&co);
    } else {
        co_serve(&co);
    }
    co_cleanup(&co);
}

/* ---- fences -------------------------------------------------------------------------------- */

typedef struct {
    co_t    *co;
    uint64_t received;
} co_fence_t;

/* The message says what must be in memory by now. */
static ucs_status_t co_fence_receive(void *arg, void *data, size_t length, unsigned flags)
{
    co_fence_t *fence = arg;
    co_order_t  order;

    (void)flags;
    CHECK_EQ(length, sizeof(order));
    memcpy(&order, data, sizeof(order));
    CHECK_DATA(fence->co->far.addr + order.offset, order.length, order.seed);
    ++fence->received;
    return UCS_OK;
}

static void co_fence_any(co_t *co, unsigned i)
{
    if (i % 2) {
        CHECK_OK(uct_ep_fence(co->ep, 0));
    } else {
        CHECK_OK(uct_iface_fence(co->t->main.iface, 0));
    }
}

/* put, fence, message: who gets the message sees the put. */
static void fence_put_am(ut_t *t)
{
    unsigned   rounds = co_rounds(3000), acks = 0, i;
    co_order_t order = {0};
    co_fence_t fence;
    co_t       co;

    co_init(&co, t);
    fence.co       = &co;
    fence.received = 0;
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, CO_AM, co_fence_receive, &fence, 0));
    ut_barrier(t);
    for (i = 1; (t->rank == 0) && (i <= rounds); ++i) {
        order.offset = (i % CO_BLOCKS) * CO_BLOCK;
        order.length = 1 + ut_random(t) % 1024;
        order.seed   = i;
        /* the block is used again only when the earlier message with it has been taken */
        if ((i % 16 == 0) && (i >= 32)) {
            CHECK_EQ(ut_recv_word(t, 1), 16 * ++acks);
        }
        data_fill(co.near.addr + order.offset, order.length, i);
        co_put_any(&co, i, co.near.addr + order.offset, order.length, order.offset);
        co_fence_any(&co, i / 3);
        POST_OK(t, uct_ep_am_short(co.ep, CO_AM, order.offset, &order.length,
                                   sizeof(order) - sizeof(order.offset)));
    }
    while ((t->rank == 0) && (acks < rounds / 16)) {
        CHECK_EQ(ut_recv_word(t, 1), 16 * ++acks);
    }
    while ((t->rank == 1) && (fence.received < rounds)) {
        uint64_t before = fence.received;

        UT_WAIT(t, fence.received > before);
        for (; before < fence.received; ++before) {
            if ((before + 1) % 16 == 0) {
                ut_send_word(t, 0, before + 1);
            }
        }
    }
    ut_barrier(t);
    co_cleanup(&co);
}

/* put, fence, put of a flag: who sees the flag sees the put. Targets in different regions. */
static void fence_put_put(ut_t *t)
{
    unsigned           rounds = co_rounds(2000), i;
    volatile uint64_t *flag;
    uint64_t           value;
    ut_mem_t           flags;
    ut_remote_t        remotes[RANK_MAX];
    co_t               co;

    co_init(&co, t);
    ut_mem_init(t, &flags, (ut_mem_kind_t)(UT_MEM_KINDS - 1 - co.far.kind), 4096);
    memset(flags.addr, 0, 4096);
    ut_mem_exchange(t, &flags, remotes);
    ut_barrier(t);
    flag = (volatile uint64_t *)(void *)flags.addr;
    for (i = 1; i <= rounds; ++i) {
        if (t->rank == 0) {
            value = i;
            data_fill(co.near.addr, 700, i);
            co_put_any(&co, i, co.near.addr, 700, 0);
            co_fence_any(&co, i);
            POST_OK(t, uct_ep_put_short(co.ep, &value, sizeof(value), remotes[1].addr,
                                        remotes[1].key.rkey));
            CHECK_EQ(ut_recv_word(t, 1), i);
        } else {
            UT_WAIT(t, *flag == i);
            CHECK_DATA(co.far.addr, 700, i);
            ut_send_word(t, 0, i);
        }
    }
    ut_flush(t, &t->main);
    ut_barrier(t);
    ut_remotes_release(t, remotes);
    ut_mem_cleanup(t, &flags);
    co_cleanup(&co);
}

/* ---- the tests ----------------------------------------------------------------------------- */

#define CO_TEST(_func, _kind)                        \
    static void test_##_func##_##_kind(void **state) \
    {                                                \
        (void)state;                                 \
        ut_run(2, _func, &co_##_kind);               \
    }

CO_TEST(put_zcopy_done, private)
CO_TEST(put_zcopy_done, alloc)
CO_TEST(put_flushed, private)
CO_TEST(put_flushed, alloc)
CO_TEST(flush_pipeline, private)
CO_TEST(flush_pipeline, alloc)
CO_TEST(get_zcopy_done, private)
CO_TEST(get_zcopy_done, alloc)
CO_TEST(shared_completion, private)
CO_TEST(fence_put_am, private)
CO_TEST(fence_put_am, alloc)
CO_TEST(fence_put_put, private)
CO_TEST(fence_put_put, alloc)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_zcopy_done_private),
        cmocka_unit_test(test_put_zcopy_done_alloc),
        cmocka_unit_test(test_put_flushed_private),
        cmocka_unit_test(test_put_flushed_alloc),
        cmocka_unit_test(test_flush_pipeline_private),
        cmocka_unit_test(test_flush_pipeline_alloc),
        cmocka_unit_test(test_get_zcopy_done_private),
        cmocka_unit_test(test_get_zcopy_done_alloc),
        cmocka_unit_test(test_shared_completion_private),
        cmocka_unit_test(test_fence_put_am_private),
        cmocka_unit_test(test_fence_put_am_alloc),
        cmocka_unit_test(test_fence_put_put_private),
        cmocka_unit_test(test_fence_put_put_alloc),
    };

    return ut_main(argc, argv, "complete", tests, sizeof(tests) / sizeof(tests[0]));
}
