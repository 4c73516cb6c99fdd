/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Atomics: every operation that is advertised, of both widths, posted and fetching, against a
 * model; then several processes on the same words at once.
 */
#include "ut.h"

#define AMO_WORDS   64
#define AMO_NUM_OPS ((unsigned)UCT_ATOMIC_OP_LAST)

typedef struct {
    unsigned      nranks;
    int           second; /* between two interfaces of the process */
    ut_mem_kind_t target;
} amo_where_t;

typedef struct {
    ut_t       *t;
    ut_iface_t  second;
    ut_iface_t *iface;
    uct_ep_h    ep; /* to the rank that has the words: the last */
    unsigned    home;
    ut_mem_t    mem;
    ut_remote_t remotes[RANK_MAX];
} amo_t;

/* What the model says: the old value is returned, *word gets the new. */
static uint64_t amo_apply(uct_atomic_op_t op, unsigned width, uint64_t operand, uint64_t compare,
                          uint64_t *word)
{
    uint64_t mask = (width == 4) ? UINT32_MAX : UINT64_MAX;
    uint64_t old = *word & mask, value = old;

    operand &= mask;
    compare &= mask;
    switch (op) {
    case UCT_ATOMIC_OP_ADD:
        value = old + operand;
        break;
    case UCT_ATOMIC_OP_AND:
        value = old & operand;
        break;
    case UCT_ATOMIC_OP_OR:
        value = old | operand;
        break;
    case UCT_ATOMIC_OP_XOR:
        value = old ^ operand;
        break;
    case UCT_ATOMIC_OP_SWAP:
        value = operand;
        break;
    default:
        value = (old == compare) ? operand : old;
    }
    *word = (*word & ~mask) | (value & mask);
    return old;
}

static ucs_status_t amo_post(amo_t *amo, uct_atomic_op_t op, unsigned width, uint64_t operand,
                             size_t offset)
{
    uint64_t   addr = amo->remotes[amo->home].addr + offset;
    uct_rkey_t rkey = amo->remotes[amo->home].key.rkey;

    return (width == 4) ? uct_ep_atomic32_post(amo->ep, op, (uint32_t)operand, addr, rkey) :
                          uct_ep_atomic64_post(amo->ep, op, operand, addr, rkey);
}

static ucs_status_t amo_fetch_start(amo_t *amo, uct_atomic_op_t op, unsigned width,
                                    uint64_t operand, uint64_t compare, size_t offset,
                                    uint64_t *result, uct_completion_t *comp)
{
    uint64_t   addr     = amo->remotes[amo->home].addr + offset;
    uct_rkey_t rkey     = amo->remotes[amo->home].key.rkey;
    uint32_t  *result32 = (uint32_t *)result; /* little endian: the upper half stays 0 */

    if (op == UCT_ATOMIC_OP_CSWAP) {
        return (width == 4) ?
                   uct_ep_atomic_cswap32(amo->ep, (uint32_t)compare, (uint32_t)operand, addr, rkey,
                                         result32, comp) :
                   uct_ep_atomic_cswap64(amo->ep, compare, operand, addr, rkey, result, comp);
    }
    return (width == 4) ?
               uct_ep_atomic32_fetch(amo->ep, op, (uint32_t)operand, result32, addr, rkey, comp) :
               uct_ep_atomic64_fetch(amo->ep, op, operand, result, addr, rkey, comp);
}

static uint64_t amo_fetch(amo_t *amo, uct_atomic_op_t op, unsigned width, uint64_t operand,
                          uint64_t compare, size_t offset)
{
    uint64_t  result = 0;
    ut_comp_t comp;

    COMPLETE_OK(amo->t, &comp,
                amo_fetch_start(amo, op, width, operand, compare, offset, &result, &comp.super));
    return result;
}

static void amo_init(amo_t *amo, ut_t *t)
{
    const amo_where_t *where = t->arg;

    memset(amo, 0, sizeof(*amo));
    ut_open(t);
    amo->t     = t;
    amo->home  = t->nranks - 1;
    amo->iface = &t->main;
    amo->ep    = t->ep[amo->home];
    if (where->second) {
        ut_iface_open(t, &amo->second);
        amo->iface = &amo->second;
        amo->ep    = ut_ep_create(&amo->second, &t->addr[0]);
    }
    ut_mem_init(t, &amo->mem, where->target, AMO_WORDS * sizeof(uint64_t));
    memset(amo->mem.addr, 0, AMO_WORDS * sizeof(uint64_t));
    ut_mem_exchange(t, &amo->mem, amo->remotes);
    ut_barrier(t);
}

static void amo_cleanup(amo_t *amo)
{
    ut_t *t = amo->t;

    ut_flush(t, amo->iface);
    ut_barrier(t);
    ut_remotes_release(t, amo->remotes);
    ut_mem_cleanup(t, &amo->mem);
    if (amo->iface == &amo->second) {
        uct_ep_destroy(amo->ep);
        ut_iface_close(&amo->second);
    }
    ut_close(t);
}

/* ---- every operation ----------------------------------------------------------------------- */

static uint64_t amo_flags(const amo_t *amo, unsigned width, int is_fetch)
{
    const uct_iface_attr_t *attr = &amo->iface->attr;

    return (width == 4) ? (is_fetch ? attr->cap.atomic32.fop_flags : attr->cap.atomic32.op_flags) :
                          (is_fetch ? attr->cap.atomic64.fop_flags : attr->cap.atomic64.op_flags);
}

/* Each advertised operation on random words and operands, among its neighbours. */
static void amo_model_rank0(amo_t *amo, unsigned width, uint64_t *words)
{
    unsigned        rounds = ut_rounds(3000), i;
    uint64_t        operand, compare, old, *word;
    size_t          offset;
    uct_atomic_op_t op;
    uint64_t        sub;

    for (i = 0; i < rounds; ++i) {
        op      = (uct_atomic_op_t)(i % AMO_NUM_OPS);
        operand = ut_random(amo->t);
        offset  = ut_random(amo->t) % (AMO_WORDS * sizeof(uint64_t) / width) * width;
        word    = &words[offset / 8];
        sub     = (offset % 8) ? *word >> 32 : *word;
        compare = (ut_random(amo->t) % 2) ? sub : ut_random(amo->t);
        if ((i / AMO_NUM_OPS) % 2 == 0) {
            if (!(amo_flags(amo, width, 0) & (1u << op))) {
                continue;
            }
            POST_OK(amo->t, amo_post(amo, op, width, operand, offset));
            amo_apply(op, width, operand, compare, &sub);
        } else {
            if (!(amo_flags(amo, width, 1) & (1u << op))) {
                continue;
            }
            old = amo_apply(op, width, operand, compare, &sub);
            CHECK_EQ(amo_fetch(amo, op, width, operand, compare, offset), old);
        }
        if (width == 8) {
            *word = sub;
        } else if (offset % 8) {
            *word = (*word & UINT32_MAX) | sub << 32;
        } else {
            *word = (*word & ~(uint64_t)UINT32_MAX) | (sub & UINT32_MAX);
        }
    }
}

static void amo_model(ut_t *t, unsigned width)
{
    uint64_t words[AMO_WORDS] = {0};
    amo_t    amo;

    amo_init(&amo, t);
    /* UCP uses atomics only where all of them are there */
    CHECK_EQ(amo_flags(&amo, width, 0), UCS_BIT(UCT_ATOMIC_OP_ADD) | UCS_BIT(UCT_ATOMIC_OP_AND) |
                                            UCS_BIT(UCT_ATOMIC_OP_OR) | UCS_BIT(UCT_ATOMIC_OP_XOR));
    CHECK_EQ(amo_flags(&amo, width, 1), UCS_MASK(UCT_ATOMIC_OP_LAST));
    CHECK(amo.iface->attr.cap.flags & (UCT_IFACE_FLAG_ATOMIC_CPU | UCT_IFACE_FLAG_ATOMIC_DEVICE));
    if (t->rank == 0) {
        amo_model_rank0(&amo, width, words);
        ut_flush(t, amo.iface);
        if (t->nranks > 1) {
            ut_send(t, amo.home, words, sizeof(words));
        }
    } else if (t->rank == amo.home) {
        ut_recv(t, 0, words, sizeof(words));
    }
    if (t->rank == amo.home) {
        CHECK(memcmp(words, amo.mem.addr, sizeof(words)) == 0);
    }
    amo_cleanup(&amo);
}

static void amo_model32(ut_t *t)
{
    amo_model(t, 4);
}

static void amo_model64(ut_t *t)
{
    amo_model(t, 8);
}

/* Many fetching ones under way together: each gets the value of its turn. */
static void amo_pipeline(ut_t *t)
{
    enum { DEPTH = 32 };
    static ut_comp_t comps[DEPTH];
    static uint64_t  results[DEPTH];
    unsigned         rounds = ut_rounds(300), round, i;
    ssize_t          status;
    amo_t            amo;

    amo_init(&amo, t);
    for (round = 0; (t->rank == 0) && (round < rounds); ++round) {
        for (i = 0; i < DEPTH; ++i) {
            ut_comp_init(&comps[i], 1);
            results[i] = UINT64_MAX;
            status = UT_POST(t, amo_fetch_start(&amo, UCT_ATOMIC_OP_ADD, 8, 1, 0, 8, &results[i],
                                                &comps[i].super));
            if (status == UCS_OK) {
                comps[i].calls = 1;
            } else {
                CHECK_STATUS(status, UCS_INPROGRESS);
            }
        }
        for (i = 0; i < DEPTH; ++i) {
            UT_WAIT(t, comps[i].calls == 1);
            CHECK_EQ(results[i], round * DEPTH + i);
        }
    }
    amo_cleanup(&amo);
}

/* ---- contention ---------------------------------------------------------------------------- */

enum { SUM_POST, SUM_FETCH, SUM_CSWAP, LAST_SEEN, BITS, TOGGLE, TOKEN, SUM32 };

/* Every rank counts up the same words in several ways; what each fetches rises. */
static void amo_contention_run(amo_t *amo, unsigned count)
{
    uint64_t last = 0, old, bit = 1ull << (8 * amo->t->rank);
    unsigned i;

    for (i = 0; i < count; ++i) {
        POST_OK(amo->t, amo_post(amo, UCT_ATOMIC_OP_ADD, 8, 3, SUM_POST * 8));
        POST_OK(amo->t, amo_post(amo, UCT_ATOMIC_OP_ADD, 4, 1, SUM32 * 8 + 4));
        POST_OK(amo->t, amo_post(amo, UCT_ATOMIC_OP_XOR, 8, bit, TOGGLE * 8));

        old = amo_fetch(amo, UCT_ATOMIC_OP_ADD, 8, 5, 0, SUM_FETCH * 8);
        CHECK((i == 0) || (old >= last + 5));
        last = old;

        /* own bits of a shared word: nobody else's operation may lose them */
        old = amo_fetch(amo, UCT_ATOMIC_OP_OR, 8, bit, 0, BITS * 8);
        CHECK_EQ(old & bit, 0);
        old = amo_fetch(amo, UCT_ATOMIC_OP_AND, 8, ~bit, 0, BITS * 8);
        CHECK_EQ(old & bit, bit);

        do {
            old = amo_fetch(amo, UCT_ATOMIC_OP_ADD, 8, 0, 0, SUM_CSWAP * 8);
        } while (amo_fetch(amo, UCT_ATOMIC_OP_CSWAP, 8, old + 1, old, SUM_CSWAP * 8) != old);
    }
    ut_flush(amo->t, amo->iface);
}

static void amo_contention(ut_t *t)
{
    unsigned        count = ut_rounds(2000);
    const uint64_t *words;
    uint64_t        total = (uint64_t)count * t->nranks;
    amo_t           amo;

    amo_init(&amo, t);
    amo_contention_run(&amo, count);
    ut_barrier(t);
    if (t->rank == amo.home) {
        words = (const uint64_t *)(void *)amo.mem.addr;
        CHECK_EQ(words[SUM_POST], 3 * total);
        CHECK_EQ(words[SUM_FETCH], 5 * total);
        CHECK_EQ(words[SUM_CSWAP], total);
        CHECK_EQ(words[BITS], 0);
        CHECK_EQ(words[TOGGLE], (count % 2) ? (1ull << (8 * t->nranks)) / 255 : 0);
        CHECK_EQ(words[SUM32], total << 32);
    }
    amo_cleanup(&amo);
}

/* A value that is swapped around: no copy is lost, none appears twice. */
static void amo_swap_token(ut_t *t)
{
    unsigned count = ut_rounds(3000), i;
    uint64_t mine = t->rank + 1, sum = 0, all[RANK_MAX];
    amo_t    amo;

    amo_init(&amo, t);
    for (i = 0; i < count; ++i) {
        mine = amo_fetch(&amo, UCT_ATOMIC_OP_SWAP, 8, mine, 0, TOKEN * 8);
    }
    ut_flush(t, amo.iface);
    ut_exchange(t, &mine, all, sizeof(mine));
    for (i = 0; i < t->nranks; ++i) {
        sum += 1ull << (8 * all[i]);
    }
    if (t->rank == amo.home) {
        sum += 1ull << (8 * *(uint64_t *)(void *)(amo.mem.addr + TOKEN * 8));
        for (i = 0; i <= t->nranks; ++i) { /* 0 of the word, and each rank's number, once */
            CHECK_EQ((sum >> (8 * i)) & 0xff, 1);
        }
    }
    amo_cleanup(&amo);
}

/* ---- the tests ----------------------------------------------------------------------------- */

static const amo_where_t amo_remote_private = {2, 0, UT_MEM_PRIVATE};
static const amo_where_t amo_remote_alloc   = {2, 0, UT_MEM_ALLOC};
static const amo_where_t amo_three_private  = {3, 0, UT_MEM_PRIVATE};
static const amo_where_t amo_three_alloc    = {3, 0, UT_MEM_ALLOC};
static const amo_where_t amo_self_private   = {1, 0, UT_MEM_PRIVATE};
static const amo_where_t amo_local_private  = {1, 1, UT_MEM_PRIVATE};

#define AMO_TEST(_func, _where)                                  \
    static void test_##_func##_##_where(void **state)            \
    {                                                            \
        (void)state;                                             \
        ut_run(amo_##_where.nranks, amo_##_func, &amo_##_where); \
    }

AMO_TEST(model32, remote_private)
AMO_TEST(model32, remote_alloc)
AMO_TEST(model32, self_private)
AMO_TEST(model32, local_private)
AMO_TEST(model64, remote_private)
AMO_TEST(model64, remote_alloc)
AMO_TEST(model64, self_private)
AMO_TEST(model64, local_private)
AMO_TEST(pipeline, remote_private)
AMO_TEST(pipeline, remote_alloc)
AMO_TEST(pipeline, self_private)
AMO_TEST(contention, remote_private)
AMO_TEST(contention, remote_alloc)
AMO_TEST(contention, three_private)
AMO_TEST(contention, three_alloc)
AMO_TEST(swap_token, three_private)
AMO_TEST(swap_token, three_alloc)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model32_remote_private),
        cmocka_unit_test(test_model32_remote_alloc),
        cmocka_unit_test(test_model32_self_private),
        cmocka_unit_test(test_model32_local_private),
        cmocka_unit_test(test_model64_remote_private),
        cmocka_unit_test(test_model64_remote_alloc),
        cmocka_unit_test(test_model64_self_private),
        cmocka_unit_test(test_model64_local_private),
        cmocka_unit_test(test_pipeline_remote_private),
        cmocka_unit_test(test_pipeline_remote_alloc),
        cmocka_unit_test(test_pipeline_self_private),
        cmocka_unit_test(test_contention_remote_private),
        cmocka_unit_test(test_contention_remote_alloc),
        cmocka_unit_test(test_contention_three_private),
        cmocka_unit_test(test_contention_three_alloc),
        cmocka_unit_test(test_swap_token_three_private),
        cmocka_unit_test(test_swap_token_three_alloc),
    };

    return ut_main(argc, argv, "amo", tests, sizeof(tests) / sizeof(tests[0]));
}
