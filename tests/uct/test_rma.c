/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Put and get, short, buffered and zero-copy, at every size that may be a threshold, aligned and
 * not, in pieces, on private and on allocated memory, between processes, to oneself, and between
 * two interfaces. The target itself checks what was put, told by a socket; the bytes around it must
 * not have changed.
 */
#include "ut.h"

#define RMA_GUARD   64
#define RMA_IOV_MAX ((size_t)16)
#define RMA_LARGE   ((size_t)(1 << 20) + 1) /* largest of the systematic sizes */
#define RMA_MEMORY  ((size_t)6 << 20)

typedef struct {
    unsigned      nranks;
    int           second; /* between two interfaces of the process */
    ut_mem_kind_t target; /* memory of the far end, and the other kind at the near end */
} rma_where_t;

typedef enum { RMA_SHORT, RMA_BCOPY, RMA_ZCOPY } rma_kind_t;

/* What the initiator tells the target: check, refill, or the end. */
typedef struct {
    uint64_t offset;
    uint64_t length;
    uint64_t seed;
    uint64_t is_end;
} rma_order_t;

typedef struct {
    ut_t       *t;
    ut_iface_t  second;
    ut_iface_t *iface;
    uct_ep_h    ep;
    unsigned    peer; /* rank of the far end */
    ut_mem_t    far;  /* memory that is accessed remotely */
    ut_mem_t    near; /* source or destination */
    ut_remote_t remotes[RANK_MAX];
    uint64_t    seed;
} rma_t;

static void rma_init(rma_t *rma, ut_t *t)
{
    const rma_where_t *where = t->arg;

    memset(rma, 0, sizeof(*rma));
    ut_open(t);
    rma->t     = t;
    rma->iface = &t->main;
    rma->peer  = t->nranks - 1 - t->rank;
    rma->ep    = t->ep[rma->peer];
    if (where->second) {
        ut_iface_open(t, &rma->second);
        rma->iface = &rma->second;
        rma->ep    = ut_ep_create(&rma->second, &t->addr[0]);
    }
    ut_mem_init(t, &rma->far, where->target, RMA_MEMORY);
    ut_mem_init(t, &rma->near, (ut_mem_kind_t)(UT_MEM_KINDS - 1 - where->target), RMA_MEMORY);
    memset(rma->far.addr, 0x55, RMA_MEMORY);
    ut_mem_exchange(t, &rma->far, rma->remotes);
    ut_barrier(t);
}

static void rma_cleanup(rma_t *rma)
{
    ut_t *t = rma->t;

    ut_flush(t, rma->iface);
    ut_barrier(t);
    ut_remotes_release(t, rma->remotes);
    ut_mem_cleanup(t, &rma->far);
    ut_mem_cleanup(t, &rma->near);
    if (rma->iface == &rma->second) {
        uct_ep_destroy(rma->ep);
        ut_iface_close(&rma->second);
    }
    ut_close(t);
}

static uint64_t rma_addr(const rma_t *rma, size_t offset)
{
    return rma->remotes[rma->peer].addr + offset;
}

static uct_rkey_t rma_key(const rma_t *rma)
{
    return rma->remotes[rma->peer].key.rkey;
}

/* ---- the target's part --------------------------------------------------------------------- */

static void rma_check(const rma_t *rma, const rma_order_t *order)
{
    const unsigned char *p = (const unsigned char *)rma->far.addr + order->offset;
    unsigned             i;

    CHECK_DATA(p, order->length, order->seed);
    for (i = 1; i <= RMA_GUARD; ++i) {
        CHECK_EQ(p[-(ptrdiff_t)i], 0x55);
        CHECK_EQ(p[order->length + i - 1], 0x55);
    }
    memset(rma->far.addr + order->offset, 0x55, order->length);
}

static void rma_serve(rma_t *rma)
{
    rma_order_t order;

    for (;;) {
        ut_recv(rma->t, rma->peer, &order, sizeof(order));
        if (order.is_end) {
            return;
        }
        rma_check(rma, &order);
        ut_send_word(rma->t, rma->peer, order.seed);
    }
}

static void rma_order(rma_t *rma, size_t offset, size_t length, int is_end)
{
    rma_order_t order = {offset, length, rma->seed, (uint64_t)is_end};

    if (rma->t->nranks == 1) {
        if (!is_end) {
            rma_check(rma, &order);
        }
        return;
    }
    ut_send(rma->t, rma->peer, &order, sizeof(order));
    if (!is_end) {
        CHECK_EQ(ut_recv_word(rma->t, rma->peer), rma->seed);
    }
}

/* ---- put ----------------------------------------------------------------------------------- */

static void rma_ep_flush(rma_t *rma)
{
    ut_comp_t comp;

    COMPLETE_OK(rma->t, &comp, uct_ep_flush(rma->ep, 0, &comp.super));
}

static void rma_put(rma_t *rma, rma_kind_t kind, size_t length, size_t source, size_t target)
{
    char     *buffer = rma->near.addr + source;
    ut_pack_t pack   = {buffer, length};
    uct_iov_t iov[RMA_IOV_MAX];
    ut_comp_t comp;
    size_t    count;

    data_fill(buffer, length, ++rma->seed);
    if (kind == RMA_SHORT) {
        POST_OK(rma->t, uct_ep_put_short(rma->ep, buffer, (unsigned)length, rma_addr(rma, target),
                                         rma_key(rma)));
        memset(buffer, 0xee, length); /* the buffer may be reused at once */
        rma_ep_flush(rma);
    } else if (kind == RMA_BCOPY) {
        CHECK_EQ(UT_POST(rma->t, uct_ep_put_bcopy(rma->ep, ut_pack, &pack, rma_addr(rma, target),
                                                  rma_key(rma))),
                 length);
        memset(buffer, 0xee, length);
        rma_ep_flush(rma);
    } else {
        count = 1 + ut_random(rma->t) % ucs_min(rma->iface->attr.cap.put.max_iov, RMA_IOV_MAX);
        ut_iov_cut(rma->t, buffer, length, rma->near.memh, iov, count);
        COMPLETE_OK(rma->t, &comp,
                    uct_ep_put_zcopy(rma->ep, iov, count, rma_addr(rma, target), rma_key(rma),
                                     &comp.super));
        memset(buffer, 0xee, length);
    }
    rma_order(rma, target, length, 0);
}

static size_t rma_max(const rma_t *rma, rma_kind_t kind, int is_get)
{
    const uct_iface_attr_t *attr = &rma->iface->attr;
    size_t                  max;

    switch (kind) {
    case RMA_SHORT:
        max = is_get ? attr->cap.get.max_short : attr->cap.put.max_short;
        break;
    case RMA_BCOPY:
        max = is_get ? attr->cap.get.max_bcopy : attr->cap.put.max_bcopy;
        break;
    default:
        max = is_get ? attr->cap.get.max_zcopy : attr->cap.put.max_zcopy;
    }
    return ucs_min(max, RMA_LARGE);
}

static void rma_put_sizes(ut_t *t, rma_kind_t kind)
{
    size_t   sizes[UT_SIZES_MAX];
    unsigned count, i;
    rma_t    rma;

    rma_init(&rma, t);
    if (t->rank == 0) {
        count = ut_sizes(rma_max(&rma, kind, 0), sizes);
        for (i = 0; i < count; ++i) {
            rma_put(&rma, kind, sizes[i], 0, 4096);
            rma_put(&rma, kind, sizes[i], ut_random(t) % 4096, 4096 + ut_random(t) % 4096);
            rma_put(&rma, kind, sizes[i], 0, RMA_MEMORY - RMA_GUARD - sizes[i]); /* at the end */
        }
        if (kind == RMA_ZCOPY) {
            rma_put(&rma, kind, RMA_MEMORY - 3 * 4096, 5, 4099);
        }
        rma_order(&rma, 0, 0, 1);
    } else {
        rma_serve(&rma);
    }
    rma_cleanup(&rma);
}

static void rma_put_short(ut_t *t)
{
    rma_put_sizes(t, RMA_SHORT);
}

static void rma_put_bcopy(ut_t *t)
{
    rma_put_sizes(t, RMA_BCOPY);
}

static void rma_put_zcopy(ut_t *t)
{
    rma_put_sizes(t, RMA_ZCOPY);
}

/* ---- get ----------------------------------------------------------------------------------- */

static void rma_unpack(void *arg, const void *data, size_t length)
{
    ut_pack_t *pack = arg;

    CHECK_EQ(length, pack->length);
    if (length > 0) { /* else data may be NULL */
        memcpy((void *)(uintptr_t)pack->buffer, data, length);
    }
    pack->length = SIZE_MAX; /* called once */
}

static void rma_get(rma_t *rma, rma_kind_t kind, size_t length, size_t dest, size_t source)
{
    char     *buffer = rma->near.addr + dest;
    ut_pack_t unpack = {buffer, length};
    uct_iov_t iov[RMA_IOV_MAX];
    ut_comp_t comp;
    size_t    count, i;

    memset(buffer - RMA_GUARD, 0x33, length + 2 * RMA_GUARD);
    if (kind == RMA_SHORT) {
        POST_OK(rma->t, uct_ep_get_short(rma->ep, buffer, (unsigned)length, rma_addr(rma, source),
                                         rma_key(rma)));
    } else if (kind == RMA_BCOPY) {
        COMPLETE_OK(rma->t, &comp,
                    uct_ep_get_bcopy(rma->ep, rma_unpack, &unpack, length, rma_addr(rma, source),
                                     rma_key(rma), &comp.super));
        CHECK_EQ(unpack.length, SIZE_MAX);
    } else {
        count = 1 + ut_random(rma->t) % ucs_min(rma->iface->attr.cap.get.max_iov, RMA_IOV_MAX);
        ut_iov_cut(rma->t, buffer, length, rma->near.memh, iov, count);
        COMPLETE_OK(rma->t, &comp,
                    uct_ep_get_zcopy(rma->ep, iov, count, rma_addr(rma, source), rma_key(rma),
                                     &comp.super));
    }
    for (i = 0; i < length; ++i) {
        if ((unsigned char)buffer[i] != data_byte(77, source + i)) {
            rank_fail(__FILE__, __LINE__, "get %d of %zu bytes: byte %zu is wrong", (int)kind,
                      length, i);
        }
    }
    for (i = 1; i <= RMA_GUARD; ++i) {
        CHECK_EQ(buffer[-(ptrdiff_t)i], 0x33);
        CHECK_EQ(buffer[length + i - 1], 0x33);
    }
}

static void rma_get_sizes(ut_t *t, rma_kind_t kind)
{
    size_t   sizes[UT_SIZES_MAX];
    unsigned count, i;
    rma_t    rma;

    rma_init(&rma, t);
    data_fill(rma.far.addr, RMA_MEMORY, 77);
    ut_barrier(t);
    if (t->rank == 0) {
        count = ut_sizes(rma_max(&rma, kind, 1), sizes);
        for (i = 0; i < count; ++i) {
            rma_get(&rma, kind, sizes[i], RMA_GUARD, 0);
            rma_get(&rma, kind, sizes[i], RMA_GUARD + ut_random(t) % 4096, ut_random(t) % 4096);
        }
        if (kind == RMA_ZCOPY) {
            rma_get(&rma, kind, RMA_MEMORY - 4096, RMA_GUARD + 3, 4093);
        }
    }
    ut_barrier(t);
    rma_cleanup(&rma);
}

static void rma_get_short(ut_t *t)
{
    rma_get_sizes(t, RMA_SHORT);
}

static void rma_get_bcopy(ut_t *t)
{
    rma_get_sizes(t, RMA_BCOPY);
}

static void rma_get_zcopy(ut_t *t)
{
    rma_get_sizes(t, RMA_ZCOPY);
}

/* ---- many at once, all kinds ---------------------------------------------------------------- */

/*
 * Puts and gets of random kinds and sizes to disjoint blocks, all under way together; every
 * completion comes once; then each block is checked.
 */
enum { MIX_BLOCK = 16384, MIX_BLOCKS = 128 };

static void rma_mix_post(rma_t *rma, unsigned i, size_t length, ut_comp_t *comp, unsigned *pending)
{
    char     *buffer = rma->near.addr + i * (size_t)MIX_BLOCK;
    uint64_t  addr   = rma_addr(rma, i * (size_t)MIX_BLOCK);
    uct_iov_t iov    = {.buffer = buffer, .length = length, .memh = rma->near.memh, .count = 1};
    ssize_t   status;

    ut_comp_init(comp, 1);
    if (i % 2 == 0) {
        data_fill(buffer, length, i);
        status = UT_POST(rma->t,
                         uct_ep_put_zcopy(rma->ep, &iov, 1, addr, rma_key(rma), &comp->super));
    } else {
        memset(buffer, 0, length);
        status = UT_POST(rma->t,
                         uct_ep_get_zcopy(rma->ep, &iov, 1, addr, rma_key(rma), &comp->super));
    }
    if (status == UCS_INPROGRESS) {
        ++*pending;
    } else {
        CHECK_OK(status);
        ut_comp_init(comp, 0); /* must not be called */
    }
}

/* What the puts have left at the target. */
static void rma_mix_check(const rma_t *rma, const size_t *lengths)
{
    unsigned i;

    for (i = 0; i < MIX_BLOCKS; i += 2) {
        CHECK_DATA(rma->far.addr + i * (size_t)MIX_BLOCK, lengths[i], i);
        CHECK_EQ(rma->far.addr[i * (size_t)MIX_BLOCK + lengths[i]], 0x55);
    }
}

static void rma_mix_rank0(rma_t *rma)
{
    static ut_comp_t comps[MIX_BLOCKS];
    size_t           lengths[MIX_BLOCKS];
    unsigned         pending = 0, i;

    for (i = 0; i < MIX_BLOCKS; ++i) {
        lengths[i] = ut_random(rma->t) % (MIX_BLOCK - RMA_GUARD);
        rma_mix_post(rma, i, lengths[i], &comps[i], &pending);
    }
    ut_flush(rma->t, rma->iface);
    for (i = 0; i < MIX_BLOCKS; ++i) {
        /* the flush covers them: not one is missing, nor called twice */
        if (comps[i].calls > 0) {
            CHECK_EQ(comps[i].calls, 1);
            CHECK_OK(comps[i].status);
            --pending;
        }
        if (i % 2 == 1) {
            CHECK_DATA(rma->near.addr + i * (size_t)MIX_BLOCK, lengths[i], i);
        }
    }
    CHECK_EQ(pending, 0);
    if (rma->t->nranks > 1) {
        ut_send(rma->t, rma->peer, lengths, sizeof(lengths));
    } else {
        rma_mix_check(rma, lengths);
    }
}

static void rma_mix(ut_t *t)
{
    size_t   lengths[MIX_BLOCKS];
    unsigned rounds = ut_rounds(20), round, i;
    rma_t    rma;

    rma_init(&rma, t);
    for (round = 0; round < rounds; ++round) {
        memset(rma.far.addr, 0x55, RMA_MEMORY);
        for (i = 1; i < MIX_BLOCKS; i += 2) {
            data_fill(rma.far.addr + i * (size_t)MIX_BLOCK, MIX_BLOCK, i);
        }
        ut_barrier(t);
        if (t->rank == 0) {
            rma_mix_rank0(&rma);
        } else {
            ut_recv(t, 0, lengths, sizeof(lengths));
            rma_mix_check(&rma, lengths);
        }
        ut_barrier(t);
    }
    rma_cleanup(&rma);
}

/* ---- what must be refused ------------------------------------------------------------------ */

static void rma_refusals(ut_t *t)
{
    const uct_iface_attr_t *attr = &t->main.attr;
    uct_iov_t               iov[256];
    ut_comp_t               comp;
    rma_t                   rma;
    size_t                  i;

    ut_needs_checks();
    rma_init(&rma, t);
    ut_comp_init(&comp, 1);
    for (i = 0; i < sizeof(iov) / sizeof(iov[0]); ++i) {
        ut_iov_cut(t, rma.near.addr, 8, rma.near.memh, &iov[i], 1);
    }
    CHECK_ERR(uct_ep_put_short(rma.ep, rma.near.addr, (unsigned)attr->cap.put.max_short + 1,
                               rma_addr(&rma, 0), rma_key(&rma)));
    CHECK_ERR(uct_ep_get_short(rma.ep, rma.near.addr, (unsigned)attr->cap.get.max_short + 1,
                               rma_addr(&rma, 0), rma_key(&rma)));
    CHECK_ERR(uct_ep_get_bcopy(rma.ep, rma_unpack, NULL, attr->cap.get.max_bcopy + 1,
                               rma_addr(&rma, 0), rma_key(&rma), &comp.super));
    CHECK(attr->cap.put.max_iov < sizeof(iov) / sizeof(iov[0]));
    CHECK_ERR(uct_ep_put_zcopy(rma.ep, iov, attr->cap.put.max_iov + 1, rma_addr(&rma, 0),
                               rma_key(&rma), &comp.super));
    CHECK_ERR(uct_ep_get_zcopy(rma.ep, iov, attr->cap.get.max_iov + 1, rma_addr(&rma, 0),
                               rma_key(&rma), &comp.super));
    CHECK_EQ(comp.calls, 0);
    ut_flush(t, &t->main);
    ut_barrier(t);
    for (i = 0; i < RMA_MEMORY; ++i) {
        CHECK_EQ(rma.far.addr[i], 0x55);
    }
    rma_cleanup(&rma);
}

/*
 * "No resource" means that nothing was started, in whatever piece it came: the caller uses the
 * memory for something else, and tries no more.
 */
static void rma_iov_refused(ut_t *t)
{
    enum { OPS = 600, BLOCK = 256, PIECES = 15 };
    static ut_comp_t comps[OPS];
    static uint8_t   refused[OPS];
    size_t           length = BLOCK - 7;
    uct_iov_t        iov[PIECES];
    unsigned         count = 0, i;
    ucs_status_t     status;
    rma_t            rma;

    rma_init(&rma, t);
    CHECK(rma.iface->attr.cap.put.max_iov >= PIECES);
    for (i = OPS / 2; i < OPS; ++i) {
        data_fill(rma.far.addr + i * BLOCK, length, i);
    }
    ut_barrier(t);
    for (i = 0; (t->rank == 0) && (i < OPS); ++i) { /* half of them puts, then gets */
        char *buffer = rma.near.addr + i * BLOCK;

        data_fill(buffer, length, i < OPS / 2 ? i : i + 1);
        ut_iov_cut(t, buffer, length, rma.near.memh, iov, PIECES);
        ut_comp_init(&comps[i], 1);
        status = (i < OPS / 2 ? uct_ep_put_zcopy : uct_ep_get_zcopy)(
            rma.ep, iov, PIECES, rma_addr(&rma, i * BLOCK), rma_key(&rma), &comps[i].super);
        if (status == UCS_ERR_NO_RESOURCE) {
            refused[i] = 1;
            ++count;
            memset(buffer, 0xee, length);
            if (ut_random(t) % 4 == 0) {
                ut_progress(t);
            }
        } else {
            CHECK((status == UCS_OK) || (status == UCS_INPROGRESS));
            comps[i].calls += (status == UCS_OK);
        }
    }
    if (t->rank == 0) {
        CHECK((count > 0) || !rank_chaos());
        for (i = 0; i < OPS; ++i) {
            UT_WAIT(t, comps[i].calls == !refused[i]);
        }
        ut_flush(t, rma.iface);
        ut_send(t, 1, refused, sizeof(refused));
        for (i = OPS / 2; i < OPS; ++i) {
            char *buffer = rma.near.addr + i * BLOCK;

            if (!refused[i]) {
                CHECK_DATA(buffer, length, i);
                continue;
            }
            for (count = 0; count < length; ++count) {
                CHECK_EQ((uint8_t)buffer[count], 0xee);
            }
        }
    } else {
        ut_recv(t, 0, refused, sizeof(refused));
        for (i = 0; i < OPS / 2; ++i) {
            char *block = rma.far.addr + i * BLOCK;

            if (!refused[i]) {
                CHECK_DATA(block, length, i);
                continue;
            }
            for (count = 0; count < length; ++count) {
                CHECK_EQ((uint8_t)block[count], 0x55);
            }
        }
    }
    ut_barrier(t);
    rma_cleanup(&rma);
}

/* ---- the tests ----------------------------------------------------------------------------- */

static const rma_where_t rma_remote_private = {2, 0, UT_MEM_PRIVATE};
static const rma_where_t rma_remote_alloc   = {2, 0, UT_MEM_ALLOC};
static const rma_where_t rma_self_private   = {1, 0, UT_MEM_PRIVATE};
static const rma_where_t rma_local_private  = {1, 1, UT_MEM_PRIVATE};
static const rma_where_t rma_local_alloc    = {1, 1, UT_MEM_ALLOC};

#define RMA_TEST(_func, _where)                                  \
    static void test_##_func##_##_where(void **state)            \
    {                                                            \
        (void)state;                                             \
        ut_run(rma_##_where.nranks, rma_##_func, &rma_##_where); \
    }

#define RMA_TESTS(_func)            \
    RMA_TEST(_func, remote_private) \
    RMA_TEST(_func, remote_alloc)   \
    RMA_TEST(_func, self_private)   \
    RMA_TEST(_func, local_private)  \
    RMA_TEST(_func, local_alloc)

#define RMA_LIST(_func)                                 \
    cmocka_unit_test(test_##_func##_remote_private),    \
        cmocka_unit_test(test_##_func##_remote_alloc),  \
        cmocka_unit_test(test_##_func##_self_private),  \
        cmocka_unit_test(test_##_func##_local_private), \
        cmocka_unit_test(test_##_func##_local_alloc)

RMA_TESTS(put_short)
RMA_TESTS(put_bcopy)
RMA_TESTS(put_zcopy)
RMA_TESTS(get_short)
RMA_TESTS(get_bcopy)
RMA_TESTS(get_zcopy)
RMA_TESTS(mix)
RMA_TEST(refusals, remote_private)
RMA_TEST(iov_refused, remote_private)
RMA_TEST(iov_refused, remote_alloc)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        RMA_LIST(put_short),
        RMA_LIST(put_bcopy),
        RMA_LIST(put_zcopy),
        RMA_LIST(get_short),
        RMA_LIST(get_bcopy),
        RMA_LIST(get_zcopy),
        RMA_LIST(mix),
        cmocka_unit_test(test_refusals_remote_private),
        cmocka_unit_test(test_iov_refused_remote_private),
        cmocka_unit_test(test_iov_refused_remote_alloc),
    };

    return ut_main(argc, argv, "rma", tests, sizeof(tests) / sizeof(tests[0]));
}
