/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What UCX documents for attributes, parameters and operations, also where its own callers don't
 * make use of it: the number of peers, estimates, alignment of messages, operations on no bytes,
 * atomics on unaligned words.
 */
#include "ut_inside.h"

#include <uct/api/v2/uct_v2.h>

#define AT_AM 5

/* ---- numbers --------------------------------------------------------------------------------- */

static size_t at_max_num_eps(ut_t *t)
{
    ut_iface_t iface;

    memset(&iface, 0, sizeof(iface));
    ut_iface_open(t, &iface);
    ut_iface_close(&iface);
    return iface.attr.max_num_eps;
}

/* UCP compares it with the number of endpoints that it expects. */
static void max_num_eps(ut_t *t)
{
    ut_md_open(t);
    CHECK_EQ(at_max_num_eps(t), 1024);
    setenv("UCX_ANGARA_MAX_PEERS", "5", 1);
    CHECK_EQ(at_max_num_eps(t), 5);
    setenv("UCX_ANGARA_MAX_NUM_EPS", "3", 1); /* UCX's own, of every transport */
    CHECK_EQ(at_max_num_eps(t), 3);
    ut_md_close(t);
}

static uct_perf_attr_t at_estimate(const ut_t *t, uct_ep_operation_t op)
{
    uct_perf_attr_t perf;

    memset(&perf, 0, sizeof(perf));
    perf.field_mask = UCT_PERF_ATTR_FIELD_OPERATION | UCT_PERF_ATTR_FIELD_SEND_PRE_OVERHEAD |
                      UCT_PERF_ATTR_FIELD_SEND_POST_OVERHEAD | UCT_PERF_ATTR_FIELD_BANDWIDTH |
                      UCT_PERF_ATTR_FIELD_LATENCY;
    perf.operation = op;
    CHECK_OK(uct_iface_estimate_perf(t->main.iface, &perf));
    return perf;
}

static double at_cost(const ut_t *t, uct_ep_operation_t op, size_t length)
{
    uct_perf_attr_t perf = at_estimate(t, op);

    CHECK(perf.bandwidth.dedicated + perf.bandwidth.shared > 0);
    CHECK(perf.bandwidth.dedicated + perf.bandwidth.shared < 1e12);
    return perf.send_pre_overhead + perf.send_post_overhead +
           (double)length / (perf.bandwidth.dedicated + perf.bandwidth.shared);
}

/*
 * am_zcopy copies host memory as am_bcopy does. UCX adds the packing to what am_bcopy is said to
 * cost; am_zcopy's own estimate has to have the copy in it.
 */
static void estimates(ut_t *t)
{
    static const size_t lengths[] = {64, 1024, 8192};
    uct_perf_attr_t     perf      = {.field_mask = UCT_PERF_ATTR_FIELD_MAX_INFLIGHT_EPS |
                                                   UCT_PERF_ATTR_FIELD_LATENCY |
                                                   UCT_PERF_ATTR_FIELD_RECV_OVERHEAD};
    unsigned            i;

    ut_open(t);
    for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
        CHECK(at_cost(t, UCT_EP_OP_AM_ZCOPY, lengths[i]) >
              at_cost(t, UCT_EP_OP_AM_BCOPY, lengths[i]));
        CHECK(at_cost(t, UCT_EP_OP_AM_ZCOPY, lengths[i]) <
              20 * at_cost(t, UCT_EP_OP_AM_BCOPY, lengths[i]));
    }
    CHECK(at_cost(t, UCT_EP_OP_GET_ZCOPY, 1 << 20) < at_cost(t, UCT_EP_OP_AM_ZCOPY, 1 << 20));
    CHECK_OK(uct_iface_estimate_perf(t->main.iface, &perf)); /* without an operation */
    CHECK(perf.latency.c > 0);
    CHECK(perf.recv_overhead > 0);
    CHECK(perf.max_inflight_eps > 0);
    ut_close(t);
}

/*
 * Each process of the soft fabric copies by itself, at the cost of a system call; those of a node
 * share their NIC. A bandwidth that is set is taken as it is.
 */
static void providers(ut_t *t)
{
    const double     set = (t->arg != NULL) ? 2e9 : 0;
    uct_iface_attr_t soft, nic;
    int              is_nic;
    uct_perf_attr_t  soft_get, nic_get;

    if (set > 0) {
        setenv("UCX_ANGARA_BW", t->arg, 1);
    }
    ut_open(t);
    is_nic = strncmp(t->dev_name, "soft", 4) != 0;
    CHECK_EQ(t->main.attr.bandwidth.shared > 0, is_nic);
    ut_pretend(t->main.iface, 0);
    CHECK_OK(uct_iface_query(t->main.iface, &soft));
    soft_get = at_estimate(t, UCT_EP_OP_GET_ZCOPY);
    ut_pretend(t->main.iface, 1);
    CHECK_OK(uct_iface_query(t->main.iface, &nic));
    nic_get = at_estimate(t, UCT_EP_OP_GET_ZCOPY);

    CHECK(soft.bandwidth.dedicated > 0);
    CHECK(soft.bandwidth.shared == 0);
    CHECK(soft_get.bandwidth.dedicated == soft.bandwidth.dedicated);
    CHECK(soft_get.bandwidth.shared == 0);
    CHECK(nic.bandwidth.dedicated == 0);
    CHECK(nic.bandwidth.shared > 0);
    CHECK(nic_get.bandwidth.dedicated == 0);
    CHECK(nic_get.bandwidth.shared == nic.bandwidth.shared);
    CHECK((soft.cap.flags & UCT_IFACE_FLAG_ATOMIC_CPU) != 0);
    CHECK((soft.cap.flags & UCT_IFACE_FLAG_ATOMIC_DEVICE) == 0); /* UCP takes one device for all */
    CHECK((nic.cap.flags & UCT_IFACE_FLAG_ATOMIC_CPU) == 0);
    CHECK((nic.cap.flags & UCT_IFACE_FLAG_ATOMIC_DEVICE) != 0);
    CHECK(nic.latency.c > soft.latency.c);
    CHECK(nic_get.latency.c > soft_get.latency.c);
    CHECK(nic_get.send_pre_overhead < soft_get.send_pre_overhead);
    CHECK((set == 0) || (soft.bandwidth.dedicated > 0.9 * set));
    CHECK((set == 0) || (soft.bandwidth.dedicated < 1.1 * set));
    CHECK((set == 0) == (nic.bandwidth.shared != soft.bandwidth.dedicated));
    ut_pretend(t->main.iface, is_nic);
    ut_close(t);
}

static void test_providers(void **state)
{
    (void)state;
    ut_run(1, providers, NULL);
    ut_run(1, providers, "2000MBs");
}

/* ---- alignment of messages ------------------------------------------------------------------- */

typedef struct {
    ut_t    *t;
    size_t   alignment;
    size_t   offset;
    uint64_t received;
    uint64_t seed; /* of the next message */
} at_sink_t;

static void at_fill(uint8_t *buffer, size_t length, uint64_t seed)
{
    size_t i;

    for (i = 0; i < length; ++i) {
        buffer[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8));
    }
}

static ucs_status_t at_receive(void *arg, void *data, size_t length, unsigned flags)
{
    static uint8_t expected[1 << 16];
    at_sink_t     *sink = arg;

    (void)flags;
    if (((uintptr_t)data + sink->offset) % sink->alignment != 0) {
        rank_fail(__FILE__, __LINE__, "message of %zu bytes at %p: its byte %zu isn't on %zu",
                  length, data, sink->offset, sink->alignment);
    }
    CHECK(length <= sizeof(expected));
    at_fill(expected, length, sink->received);
    CHECK(memcmp(data, expected, length) == 0);
    ++sink->received;
    return UCS_OK;
}

static void at_send(ut_t *t, unsigned way, size_t length, uint64_t seed)
{
    static uint8_t buffer[1 << 16];
    ut_pack_t      pack = {buffer, length};
    uct_iov_t      iov  = {.buffer = buffer, .length = length, .count = 1};
    uint64_t       header;

    CHECK(length <= sizeof(buffer));
    at_fill(buffer, length, seed);
    memcpy(&header, buffer, sizeof(header));
    if ((way == 0) && (length >= sizeof(header))) {
        POST_OK(t, uct_ep_am_short(t->ep[1], AT_AM, header, buffer + sizeof(header),
                                   (unsigned)(length - sizeof(header))));
    } else if (way == 1) {
        CHECK_EQ(UT_POST(t, uct_ep_am_bcopy(t->ep[1], AT_AM, ut_pack, &pack, 0)), length);
    } else {
        POST_OK(t, uct_ep_am_zcopy(t->ep[1], AT_AM, NULL, 0, &iov, 1, 0, NULL));
    }
}

static void aligned(ut_t *t)
{
    const size_t *want = t->arg;
    size_t        sizes[UT_SIZES_MAX];
    at_sink_t     sink  = {.t = t, .alignment = want[0], .offset = want[1]};
    uint64_t      count = 0;
    unsigned      n, i, way;

    if (t->rank == 1) {
        t->main.param_mask = UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT |
                             UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET;
        t->main.am_alignment    = want[0];
        t->main.am_align_offset = want[1];
    }
    ut_open(t);
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, AT_AM, at_receive, &sink, 0));
    ut_barrier(t);
    n = ut_sizes(t->main.attr.cap.am.max_bcopy, sizes);
    for (i = 0; i < n; ++i) {
        for (way = 0; (sizes[i] > 0) && (way < 3); ++way, ++count) {
            if (t->rank == 0) {
                at_send(t, way, sizes[i], count);
            }
        }
    }
    if (t->rank == 1) {
        UT_WAIT(t, sink.received == count);
    }
    ut_barrier(t);
    ut_close(t);
}

static void alignments_refused(ut_t *t)
{
    const uint64_t both = UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT |
                          UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET;
    static const struct {
        uint64_t mask;
        size_t   alignment, offset;
    } bad[] = {
        {UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT, 0, 0},
        {UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT, 3, 0},
        {UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT, 96, 0},
        {UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET, 0, 8}, /* of what? */
        {both, 64, 64},
        {both, 16, SIZE_MAX},
    };
    static const size_t good[][2] = {{1, 8}, {8, 8}, {2, 8}, {4096, 4095}, {1, 0}};
    ut_iface_t          iface;
    unsigned            i;

    ut_md_open(t);
    ut_log_watch();
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        memset(&iface, 0, sizeof(iface));
        iface.param_mask      = bad[i].mask;
        iface.am_alignment    = bad[i].alignment;
        iface.am_align_offset = bad[i].offset;
        CHECK_STATUS(ut_iface_try_open(t, &iface), UCS_ERR_INVALID_PARAM);
        CHECK(ut_log_has("align"));
        ut_log_forget();
    }
    /* UCP gives the length of its header as offset, whatever the alignment */
    for (i = 0; i < sizeof(good) / sizeof(good[0]); ++i) {
        memset(&iface, 0, sizeof(iface));
        iface.param_mask      = both;
        iface.am_alignment    = good[i][0];
        iface.am_align_offset = good[i][1];
        CHECK_OK(ut_iface_try_open(t, &iface));
        ut_iface_close(&iface);
    }
    ut_md_close(t);
}

/* ---- operations on no bytes ------------------------------------------------------------------ */

typedef struct {
    unsigned calls;
    size_t   length;
} at_unpacked_t;

static void at_unpack(void *arg, const void *data, size_t length)
{
    at_unpacked_t *unpacked = arg;

    CHECK(data != NULL); /* it may be handed to memcpy() */
    ++unpacked->calls;
    unpacked->length += length;
}

/* With a key or without, of a peer that has never been spoken to and of one that has. */
static void at_no_bytes(ut_t *t, uint64_t addr, uct_rkey_t rkey)
{
    char          byte     = 0;
    uct_ep_h      ep       = t->ep[t->nranks - 1];
    uct_iov_t     iov[3]   = {{.buffer = &byte, .memh = UCT_MEM_HANDLE_NULL, .count = 1},
                              {.buffer = NULL, .memh = UCT_MEM_HANDLE_NULL, .count = 1},
                              {.buffer = &byte, .memh = UCT_MEM_HANDLE_NULL, .count = 1}};
    ut_pack_t     pack     = {&byte, 0};
    at_unpacked_t unpacked = {0, 0};
    ut_comp_t     comp;
    size_t        iovcnt;

    POST_OK(t, uct_ep_put_short(ep, &byte, 0, addr, rkey));
    POST_OK(t, uct_ep_put_short(ep, NULL, 0, addr, rkey));
    CHECK_EQ(UT_POST(t, uct_ep_put_bcopy(ep, ut_pack, &pack, addr, rkey)), 0);
    POST_OK(t, uct_ep_get_short(ep, &byte, 0, addr, rkey));
    POST_OK(t, uct_ep_get_short(ep, NULL, 0, addr, rkey));
    COMPLETE_OK(t, &comp, uct_ep_get_bcopy(ep, at_unpack, &unpacked, 0, addr, rkey, &comp.super));
    CHECK_EQ(unpacked.calls, 1);
    CHECK_EQ(unpacked.length, 0);
    for (iovcnt = 0; iovcnt <= 3; ++iovcnt) {
        COMPLETE_OK(t, &comp, uct_ep_put_zcopy(ep, iov, iovcnt, addr, rkey, &comp.super));
        COMPLETE_OK(t, &comp, uct_ep_get_zcopy(ep, iov, iovcnt, addr, rkey, &comp.super));
    }
}

static void no_bytes(ut_t *t)
{
    unsigned    last = t->nranks - 1, round;
    ut_remote_t remotes[RANK_MAX];
    ut_mem_t    mem;

    ut_open(t);
    ut_mem_init(t, &mem, UT_MEM_PRIVATE, 4096);
    ut_mem_exchange(t, &mem, remotes);
    if (t->rank == 0) {
        for (round = 0; round < 2; ++round) {
            at_no_bytes(t, 0, UCT_INVALID_RKEY);
            at_no_bytes(t, remotes[last].addr, UCT_INVALID_RKEY);
            at_no_bytes(t, remotes[last].addr, remotes[last].key.rkey);
            at_no_bytes(t, remotes[last].addr + 4096, remotes[last].key.rkey);
            at_no_bytes(t, 0, remotes[last].key.rkey); /* no bytes are within any bounds */
            POST_OK(t, uct_ep_put_short(t->ep[last], "word", 4, remotes[last].addr,
                                        remotes[last].key.rkey));
        }
        ut_flush(t, &t->main);
    }
    ut_barrier(t);
    CHECK((t->rank != last) || (memcmp(mem.addr, "word", 4) == 0));
    ut_barrier(t);
    ut_remotes_release(t, remotes);
    ut_mem_cleanup(t, &mem);
    ut_close(t);
}

/* ---- atomics on unaligned words -------------------------------------------------------------- */

static void at_amo_refused(ut_t *t, uint64_t addr, uct_rkey_t rkey, unsigned width)
{
    uint64_t  result = 0;
    uct_ep_h  ep     = t->ep[t->nranks - 1];
    ut_comp_t comp;
    unsigned  op;

    ut_comp_init(&comp, 1);
    for (op = UCT_ATOMIC_OP_ADD; op < UCT_ATOMIC_OP_LAST; ++op) {
        if (width == 8) {
            CHECK_STATUS(
                uct_ep_atomic64_fetch(ep, (uct_atomic_op_t)op, 1, &result, addr, rkey, &comp.super),
                UCS_ERR_INVALID_PARAM);
        } else {
            CHECK_STATUS(uct_ep_atomic32_fetch(ep, (uct_atomic_op_t)op, 1, (uint32_t *)&result,
                                               addr, rkey, &comp.super),
                         UCS_ERR_INVALID_PARAM);
        }
    }
    if (width == 8) {
        CHECK_STATUS(uct_ep_atomic64_post(ep, UCT_ATOMIC_OP_ADD, 1, addr, rkey),
                     UCS_ERR_INVALID_PARAM);
        CHECK_STATUS(uct_ep_atomic_cswap64(ep, 0, 1, addr, rkey, &result, &comp.super),
                     UCS_ERR_INVALID_PARAM);
    } else {
        CHECK_STATUS(uct_ep_atomic32_post(ep, UCT_ATOMIC_OP_ADD, 1, addr, rkey),
                     UCS_ERR_INVALID_PARAM);
        CHECK_STATUS(uct_ep_atomic_cswap32(ep, 0, 1, addr, rkey, (uint32_t *)&result, &comp.super),
                     UCS_ERR_INVALID_PARAM);
    }
    CHECK_EQ(comp.calls, 0);
    CHECK_EQ(result, 0);
}

/* Refused by the call. Everything else goes on, at both ends. */
static void unaligned_atomics(ut_t *t)
{
    unsigned    last = t->nranks - 1, offset, i;
    ut_remote_t remotes[RANK_MAX];
    uint64_t    old = 0;
    ut_mem_t    mem;
    ut_comp_t   comp;

    ut_needs_checks();
    ut_open(t);
    ut_mem_init(t, &mem, UT_MEM_PRIVATE, 4096);
    ut_mem_exchange(t, &mem, remotes);
    ut_barrier(t);
    if (t->rank == 0) {
        ut_log_watch();
        for (offset = 1; offset < 8; ++offset) {
            at_amo_refused(t, remotes[last].addr + offset, remotes[last].key.rkey, 8);
            if (offset % 4 != 0) {
                at_amo_refused(t, remotes[last].addr + offset, remotes[last].key.rkey, 4);
            }
        }
        CHECK(ut_log_has("unaligned"));
        ut_progress_ms(t, 20);
        CHECK_EQ(t->main.errors, 0);
        for (i = 0; i < 3; ++i) {
            COMPLETE_OK(t, &comp,
                        uct_ep_atomic64_fetch(t->ep[last], UCT_ATOMIC_OP_ADD, 1, &old,
                                              remotes[last].addr, remotes[last].key.rkey,
                                              &comp.super));
            CHECK_EQ(old, i);
        }
        ut_flush(t, &t->main);
    }
    ut_barrier(t);
    CHECK_EQ(t->main.errors, 0);
    for (i = 0; (t->rank == last) && (i < 4096 / 8); ++i) {
        CHECK_EQ(((uint64_t *)(void *)mem.addr)[i], (i == 0) ? 3 : 0);
    }
    ut_barrier(t);
    ut_remotes_release(t, remotes);
    ut_mem_cleanup(t, &mem);
    ut_close(t);
}

/* ---- invalidation ---------------------------------------------------------------------------- */

/* A put by the handle's key. */
static void at_put(ut_t *t, char *buffer, uct_mem_h memh, char byte)
{
    uint8_t           packed[UT_RKEY_MAX];
    uct_rkey_bundle_t key;

    CHECK_OK(uct_md_mkey_pack(t->md, memh, packed));
    CHECK_OK(uct_rkey_unpack(t->component, packed, &key));
    POST_OK(t, uct_ep_put_short(t->ep[0], &byte, 1, (uintptr_t)buffer, key.rkey));
    ut_flush(t, &t->main);
    CHECK_EQ(buffer[0], byte);
    CHECK_OK(uct_rkey_release(t->component, &key));
}

/*
 * Of several handles of a buffer one after the other is invalidated. The completion runs once, when
 * nothing can access the memory by that handle any more: at the latest when the last has gone.
 * Until then the others work.
 */
static void invalidate(ut_t *t)
{
    enum { HANDLES = 3 };
    static char buffer[8192];
    uct_mem_h   memh[HANDLES];
    ut_comp_t   comp[HANDLES];
    unsigned    flags, round, i;

    setenv(t->arg, "y", 1);
    ut_open(t);
    for (round = 0; round < 6; ++round) {
        flags = (round % 2) ? UCT_MD_MEM_ACCESS_ALL : UCT_MD_MEM_ACCESS_RMA;
        for (i = 0; i < HANDLES; ++i) {
            ut_comp_init(&comp[i], 1);
            CHECK_OK(uct_md_mem_reg(t->md, buffer, sizeof(buffer), flags, &memh[i]));
        }
        for (i = 0; i < HANDLES; ++i) {
            at_put(t, buffer, memh[HANDLES - 1], (char)(round * 8 + i));
            /* the last one in two ways */
            ut_mem_dereg(t, memh[i], ((round < 4) || (i + 1 < HANDLES)) ? &comp[i].super : NULL);
            CHECK(comp[i].calls <= 1);
        }
        for (i = 0; i < HANDLES; ++i) {
            CHECK_EQ(comp[i].calls, ((round < 4) || (i + 1 < HANDLES)) ? 1 : 0);
            CHECK((comp[i].calls == 0) || (comp[i].status == UCS_OK));
        }
    }
    ut_close(t);
}

static void test_invalidate(void **state)
{
    (void)state;
    ut_run(1, invalidate, "UCX_ANGARA_REUSE");
    ut_run(1, invalidate, "UCX_ANGARA_RCACHE");
}

/* ---- the tests ------------------------------------------------------------------------------- */

#define AT_TEST(_name, _nranks, _func) \
    static void _name(void **state)    \
    {                                  \
        (void)state;                   \
        ut_run(_nranks, _func, NULL);  \
    }

AT_TEST(test_max_num_eps, 1, max_num_eps)
AT_TEST(test_estimates, 1, estimates)
AT_TEST(test_alignments_refused, 1, alignments_refused)
AT_TEST(test_no_bytes, 2, no_bytes)
AT_TEST(test_no_bytes_self, 1, no_bytes)
AT_TEST(test_unaligned_atomics, 2, unaligned_atomics)
AT_TEST(test_unaligned_atomics_self, 1, unaligned_atomics)

static void test_aligned(void **state)
{
    static const size_t want[][2] = {{1, 0},  {8, 8},   {8, 3},     {16, 0},   {16, 8},    {64, 0},
                                     {64, 8}, {64, 56}, {128, 120}, {4096, 8}, {65536, 17}};
    size_t              i;

    (void)state;
    for (i = 0; i < sizeof(want) / sizeof(want[0]); ++i) {
        ut_run(2, aligned, want[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_invalidate),        cmocka_unit_test(test_max_num_eps),
        cmocka_unit_test(test_estimates),         cmocka_unit_test(test_providers),
        cmocka_unit_test(test_aligned),           cmocka_unit_test(test_alignments_refused),
        cmocka_unit_test(test_no_bytes),          cmocka_unit_test(test_no_bytes_self),
        cmocka_unit_test(test_unaligned_atomics), cmocka_unit_test(test_unaligned_atomics_self),
    };

    return ut_main(argc, argv, "attrs", tests, sizeof(tests) / sizeof(tests[0]));
}
