/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Remote keys: packing, stale and hostile ones, invalidation, the same memory registered twice, and
 * the registration cache.
 */
#include "ut.h"

#include <uct/api/v2/uct_v2.h>

#include <dlfcn.h>
#include <sys/mman.h>

#define KEY_PAGES ((size_t)16 * 4096)

/* ---- keys ---------------------------------------------------------------------------------- */

static void key_roundtrip(ut_t *t)
{
    static uint8_t    packed[2][UT_RKEY_MAX], zero[UT_RKEY_MAX];
    uct_rkey_bundle_t bundle;
    ut_mem_t          a, b;

    ut_md_open(t);
    ut_mem_init(t, &a, UT_MEM_PRIVATE, 4096);
    ut_mem_init(t, &b, UT_MEM_ALLOC, 4096);
    CHECK_OK(uct_md_mkey_pack(t->md, a.memh, packed[0]));
    CHECK_OK(uct_md_mkey_pack(t->md, b.memh, packed[1]));
    CHECK(memcmp(packed[0], packed[1], t->md_attr.rkey_packed_size) != 0);
    CHECK_OK(uct_rkey_unpack(t->component, packed[0], &bundle));
    CHECK(bundle.rkey != UCT_INVALID_RKEY);
    CHECK_OK(uct_rkey_release(t->component, &bundle));
    CHECK_ERR(uct_rkey_unpack(t->component, zero, &bundle));
    ut_mem_cleanup(t, &a);
    ut_mem_cleanup(t, &b);
    ut_md_close(t);
}

/* Fails unless `op`, which was begun with `status`, is refused. */
static void key_wait_refused(ut_t *t, ut_iface_t *iface, const ut_comp_t *comp, ssize_t status,
                             unsigned op, uint64_t addr)
{
    const double end = now_seconds() + 10;

    CHECK(status <= UCS_INPROGRESS);
    while ((status >= 0) && (iface->errors == 0) && (comp->status >= 0)) {
        uct_iface_flush(iface->iface, 0, NULL);
        ut_progress(t);
        if (now_seconds() > end) {
            rank_fail(
                __FILE__, __LINE__,
                "operation %u with a wrong key was not refused (address %#llx, status %s, %s)", op,
                (unsigned long long)addr, ucs_status_string((ucs_status_t)status),
                (comp->calls > 0) ? "completed" : "no completion");
        }
    }
    ut_progress(t);
    CHECK((comp->calls == 0) || (comp->status != UCS_OK));
}

/*
 * Use a key on an interface of its own, as any of the operations, and expect an error by one of the
 * ways in which there can be one: returned, in the completion, or to the error handler.
 */
static void key_must_fail(ut_t *t, unsigned op, const uint8_t *packed, uint64_t addr)
{
    ut_iface_t        iface   = {0};
    uint64_t          word[2] = {1, 2};
    uct_iov_t         iov     = {.buffer = word, .length = 16, .count = 1};
    uct_rkey_bundle_t key;
    ut_comp_t         comp;
    ssize_t           status = UCS_OK;
    uct_mem_h         memh;
    uct_ep_h          ep;

    if (uct_rkey_unpack(t->component, packed, &key) != UCS_OK) {
        return; /* seen at once */
    }
    CHECK_OK(uct_md_mem_reg(t->md, word, sizeof(word), UCT_MD_MEM_ACCESS_ALL, &memh));
    iov.memh = memh;
    ut_iface_open(t, &iface);
    ep = ut_ep_create(&iface, &t->addr[1]);
    ut_comp_init(&comp, 1);
    switch (op % 5) {
    case 0:
        status = UT_POST(t, uct_ep_put_short(ep, word, 16, addr, key.rkey));
        break;
    case 1:
        status = UT_POST(t, uct_ep_put_zcopy(ep, &iov, 1, addr, key.rkey, &comp.super));
        break;
    case 2:
        status = UT_POST(t, uct_ep_get_zcopy(ep, &iov, 1, addr, key.rkey, &comp.super));
        break;
    case 3:
        status = UT_POST(t, uct_ep_atomic64_post(ep, UCT_ATOMIC_OP_ADD, 1, addr, key.rkey));
        break;
    default:
        status = UT_POST(
            t, uct_ep_atomic64_fetch(ep, UCT_ATOMIC_OP_SWAP, 1, word, addr, key.rkey, &comp.super));
    }
    key_wait_refused(t, &iface, &comp, status, op % 5, addr);
    uct_ep_destroy(ep);
    ut_iface_close(&iface);
    CHECK_OK(uct_rkey_release(t->component, &key));
    CHECK_OK(uct_md_mem_dereg(t->md, memh));
}

/* Keys and addresses that name nothing, or too much. Rank 1 owns the memory; it must not change. */
static void key_hostile(ut_t *t)
{
    unsigned rounds = ut_rounds(200), i;
    uint8_t  packed[UT_RKEY_MAX], bad[UT_RKEY_MAX];
    uint64_t addr;
    ut_mem_t mem, gone;
    size_t   j;

    ut_open(t);
    ut_mem_init(t, &mem, UT_MEM_PRIVATE, KEY_PAGES);
    memset(mem.addr, 0x77, KEY_PAGES);
    CHECK_OK(uct_md_mkey_pack(t->md, mem.memh, packed));
    addr = (uintptr_t)mem.addr;
    if (t->rank == 1) {
        ut_send(t, 0, packed, sizeof(packed));
        ut_send_word(t, 0, addr);
        /* a key of a region that is gone */
        ut_mem_init(t, &gone, UT_MEM_PRIVATE, KEY_PAGES);
        CHECK_OK(uct_md_mkey_pack(t->md, gone.memh, packed));
        ut_send(t, 0, packed, sizeof(packed));
        ut_send_word(t, 0, (uintptr_t)gone.addr);
        ut_mem_cleanup(t, &gone);
        ut_recv_word(t, 0);
        for (j = 0; j < KEY_PAGES; ++j) {
            CHECK_EQ(mem.addr[j], 0x77);
        }
    } else {
        ut_recv(t, 1, packed, sizeof(packed));
        addr = ut_recv_word(t, 1);
        for (i = 0; i < 5; ++i) { /* the key is right, the address isn't */
            key_must_fail(t, i, packed, addr - 8);
            key_must_fail(t, i, packed, addr + KEY_PAGES - ((i < 3) ? 8 : 0));
            key_must_fail(t, i, packed, addr + KEY_PAGES + (1ull << 40));
            key_must_fail(t, i, packed, UINT64_MAX - 7);
            key_must_fail(t, i, packed, 0);
        }
        for (i = 0; i < rounds; ++i) { /* flipped bits, or all random */
            memcpy(bad, packed, sizeof(bad));
            for (j = 0; j < t->md_attr.rkey_packed_size; ++j) {
                bad[j] = (i % 2) ? (uint8_t)ut_random(t) : bad[j];
            }
            bad[ut_random(t) % 8] ^= (uint8_t)(1u << (ut_random(t) % 8));
            key_must_fail(t, i, bad, addr);
        }
        ut_recv(t, 1, packed, sizeof(packed));
        addr = ut_recv_word(t, 1);
        sleep_ms(20);
        /* a cache keeps the registration for a while, and UCX's users know */
        for (i = 0; (i < 5) && !ut_env_is("UCX_ANGARA_RCACHE", "y"); ++i) {
            key_must_fail(t, i, packed, addr);
        }
        ut_send_word(t, 1, 0);
    }
    ut_barrier(t);
    ut_mem_cleanup(t, &mem);
    ut_close(t);
}

/* A get by zero copy, of memory that a good one has mapped before, is refused like others.
 * `gone`: rank 1 frees the memory between the two. */
static void mapped_must_fail(ut_t *t, const ut_mem_t *mine, const ut_remote_t *from, uint64_t addr,
                             size_t length, int gone)
{
    uct_iov_t  iov   = {.buffer = mine->addr, .length = length, .memh = mine->memh, .count = 1};
    ut_iface_t iface = {0};
    ut_comp_t  comp;
    ssize_t    status;
    uct_ep_h   ep;
    size_t     i;

    ut_iface_open(t, &iface);
    ep = ut_ep_create(&iface, &t->addr[1]);
    for (i = 0; i < 3; ++i) {
        memset(mine->addr, 0, mine->length);
        ut_comp_init(&comp, 1);
        status = UT_POST(t, uct_ep_get_zcopy(ep, &iov, 1, from->addr, from->key.rkey, &comp.super));
        CHECK_OK(ut_comp_wait(t, (ucs_status_t)status, &comp));
    }
    for (i = 0; i < mine->length; ++i) {
        CHECK_EQ(mine->addr[i], (i < length) ? 2 : 0);
    }
    if (gone) {
        ut_send_word(t, 1, 0);
        ut_recv_word(t, 1);
    }
    memset(mine->addr, 0, mine->length);
    ut_comp_init(&comp, 1);
    status = UT_POST(t, uct_ep_get_zcopy(ep, &iov, 1, addr, from->key.rkey, &comp.super));
    key_wait_refused(t, &iface, &comp, status, 2, addr);
    for (i = 0; i < mine->length; ++i) {
        CHECK_EQ(mine->addr[i], 0);
    }
    uct_ep_destroy(ep);
    ut_iface_close(&iface);
}

static void mapped(ut_t *t)
{
    static const size_t lengths[] = {8, 4096, 8192, 8193}; /* inline up to 8192 */
    ut_remote_t         remotes[RANK_MAX];
    ut_mem_t            mem, mine;
    uint64_t            addr;
    size_t              i, n;

    ut_open(t);
    ut_mem_init(t, &mine, UT_MEM_PRIVATE, KEY_PAGES);
    for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
        n = lengths[i];
        ut_mem_init(t, &mem, UT_MEM_ALLOC, KEY_PAGES);
        memset(mem.addr, 1 + t->rank, KEY_PAGES);
        ut_mem_exchange(t, &mem, remotes);
        if (t->rank == 0) {
            addr = remotes[1].addr;
            mapped_must_fail(t, &mine, &remotes[1], addr - 1, n, 0);
            mapped_must_fail(t, &mine, &remotes[1], addr + KEY_PAGES - n + 1, n, 0);
            mapped_must_fail(t, &mine, &remotes[1], UINT64_MAX - n + 2, n, 0);
            mapped_must_fail(t, &mine, &remotes[1], addr, n, 1);
            ut_mem_cleanup(t, &mem);
        } else {
            ut_recv_word(t, 0);
            ut_mem_cleanup(t, &mem);
            ut_send_word(t, 0, 0);
        }
        ut_barrier(t);
        ut_remotes_release(t, remotes);
    }
    ut_mem_cleanup(t, &mine);
    ut_close(t);
}

/* ---- invalidation -------------------------------------------------------------------------- */

static void key_invalidated(uct_completion_t *self)
{
    ut_comp_t *comp = (ut_comp_t *)self;

    ++comp->calls;
}

static void key_invalidate(ut_t *t, uct_mem_h memh, ut_comp_t *comp)
{
    ut_comp_init(comp, 1);
    comp->super.func = key_invalidated;
    ut_mem_dereg(t, memh, &comp->super);
}

/* After the invalidation is complete nobody reaches the memory. */
static void invalidate(ut_t *t)
{
    uint8_t   packed[UT_RKEY_MAX];
    ut_comp_t comp;
    ut_mem_t  mem;
    uint64_t  addr;
    unsigned  i;

    ut_open(t);
    if (t->rank == 1) {
        ut_mem_init(t, &mem, UT_MEM_PRIVATE, 4096);
        CHECK_OK(uct_md_mkey_pack(t->md, mem.memh, packed));
        ut_send(t, 0, packed, sizeof(packed));
        ut_send_word(t, 0, (uintptr_t)mem.addr);
        key_invalidate(t, mem.memh, &comp);
        UT_WAIT(t, comp.calls == 1);
        ut_send_word(t, 0, 0);
        ut_recv_word(t, 0);
        for (i = 0; i < 4096; ++i) {
            CHECK_EQ(mem.addr[i], 0);
        }
        munmap(mem.addr, mem.length);
    } else {
        ut_recv(t, 1, packed, sizeof(packed));
        addr = ut_recv_word(t, 1);
        ut_recv_word(t, 1);
        for (i = 0; i < 5; ++i) {
            key_must_fail(t, i, packed, addr);
        }
        ut_send_word(t, 1, 0);
    }
    ut_barrier(t);
    ut_close(t);
}

/* ---- the same memory registered twice -------------------------------------------------------- */

/* Rank 0 puts a word where it is told to, with the key that comes; or expects to be refused. */
static void twice_rank0(ut_t *t)
{
    uct_rkey_bundle_t key;
    uint8_t           packed[UT_RKEY_MAX];
    uint64_t          addr, value;
    unsigned          i;

    for (;;) {
        value = ut_recv_word(t, 1);
        if (value == UINT64_MAX) {
            return;
        }
        ut_recv(t, 1, packed, sizeof(packed));
        addr = ut_recv_word(t, 1);
        if (value == 0) {
            for (i = 0; i < 5; ++i) {
                key_must_fail(t, i, packed, addr);
            }
        } else {
            CHECK_OK(uct_rkey_unpack(t->component, packed, &key));
            POST_OK(t, uct_ep_put_short(t->ep[1], &value, sizeof(value), addr, key.rkey));
            ut_flush(t, &t->main);
            CHECK_OK(uct_rkey_release(t->component, &key));
        }
        ut_send_word(t, 1, value);
    }
}

/* value 0: the access must be refused */
static void twice_ask(ut_t *t, const uint8_t *packed, volatile uint64_t *word, uint64_t value)
{
    uint64_t before = *word;

    ut_send_word(t, 0, value);
    ut_send(t, 0, packed, UT_RKEY_MAX);
    ut_send_word(t, 0, (uintptr_t)word);
    CHECK_EQ(ut_recv_word(t, 0), value);
    CHECK_EQ(*word, value ? value : before);
}

/*
 * Two registrations of one range, perhaps shared inside: the end of one leaves the other alone, and
 * an invalidation is complete only when nobody can use any of them.
 */
static void twice(ut_t *t)
{
    unsigned  rounds = ut_rounds(30), i;
    uint8_t   packed[2][UT_RKEY_MAX];
    uint64_t *words;
    ut_comp_t comp;
    uct_mem_h a, b;

    ut_open(t);
    memset(packed, 0, sizeof(packed));
    if (t->rank == 0) {
        twice_rank0(t);
        ut_close(t);
        return;
    }
    words = mmap(NULL, KEY_PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(words != MAP_FAILED);
    for (i = 1; i <= rounds; ++i) {
        CHECK_OK(uct_md_mem_reg(t->md, words, KEY_PAGES, UCT_MD_MEM_ACCESS_RMA, &a));
        CHECK_OK(uct_md_mem_reg(t->md, words, KEY_PAGES, UCT_MD_MEM_ACCESS_RMA, &b));
        CHECK_OK(uct_md_mkey_pack(t->md, a, packed[0]));
        CHECK_OK(uct_md_mkey_pack(t->md, b, packed[1]));
        twice_ask(t, packed[0], &words[1], i);
        twice_ask(t, packed[1], &words[2], i);
        if (i % 2) {
            CHECK_OK(uct_md_mem_dereg(t->md, a));
            twice_ask(t, packed[1], &words[3], i);
            key_invalidate(t, b, &comp);
        } else {
            key_invalidate(t, a, &comp);
            twice_ask(t, packed[1], &words[3], i); /* b is still good */
            CHECK_OK(uct_md_mem_dereg(t->md, b));
        }
        UT_WAIT(t, comp.calls == 1);
        twice_ask(t, packed[1], &words[4], 0);
    }
    ut_send_word(t, 0, UINT64_MAX);
    munmap(words, KEY_PAGES);
    ut_close(t);
}

/* ---- registration cache --------------------------------------------------------------------- */

static void *key_map_at(void *address, size_t length)
{
    int   flags = MAP_PRIVATE | MAP_ANONYMOUS | ((address != NULL) ? MAP_FIXED : 0);
    void *p     = mmap(address, length, PROT_READ | PROT_WRITE, flags, -1, 0);

    CHECK(p != MAP_FAILED);
    return p;
}

/*
 * The same memory again is a hit. Memory that was unmapped and mapped again at the same address is
 * not: its key is a new one, and a put reaches the new pages.
 */
static void cache(ut_t *t)
{
    uint8_t           packed[2][UT_RKEY_MAX];
    uct_rkey_bundle_t key;
    uct_mem_h         memh, again;
    unsigned          rounds = ut_rounds(50), i;
    void             *p      = NULL;

    ut_cache_on();
    ut_open(t);
    memset(packed, 0, sizeof(packed));
    for (i = 0; i < rounds; ++i) {
        if (t->rank == 0) {
            ut_recv(t, 1, packed[0], sizeof(packed[0]));
            CHECK_OK(uct_rkey_unpack(t->component, packed[0], &key));
            POST_OK(t, uct_ep_put_short(t->ep[1], &i, sizeof(i), ut_recv_word(t, 1), key.rkey));
            ut_flush(t, &t->main);
            CHECK_OK(uct_rkey_release(t->component, &key));
            ut_send_word(t, 1, i);
            continue;
        }
        p = key_map_at(p, KEY_PAGES);
        CHECK_OK(uct_md_mem_reg(t->md, p, KEY_PAGES, UCT_MD_MEM_ACCESS_ALL, &memh));
        CHECK_OK(uct_md_mem_reg(t->md, p, KEY_PAGES, UCT_MD_MEM_ACCESS_ALL, &again));
        CHECK(memh == again);
        CHECK_OK(uct_md_mkey_pack(t->md, memh, packed[i % 2]));
        CHECK(memcmp(packed[0], packed[1], t->md_attr.rkey_packed_size) != 0);
        ut_send(t, 0, packed[i % 2], sizeof(packed[0]));
        ut_send_word(t, 0, (uintptr_t)p + 4096);
        CHECK_EQ(ut_recv_word(t, 0), i);
        CHECK_EQ(*(unsigned *)(void *)((char *)p + 4096), i);
        CHECK_OK(uct_md_mem_dereg(t->md, memh));
        CHECK_OK(uct_md_mem_dereg(t->md, again));
        munmap(p, KEY_PAGES);
    }
    ut_barrier(t);
    ut_close(t);
}

/* Keys are equal that name the same region, whoever unpacked them; later versions of UCX ask. */
static void compare(ut_t *t)
{
    const uint64_t    no_fields = 0;
    ut_mem_t          mem[2];
    uct_rkey_bundle_t key, same, other;
    char              packed[2][UT_RKEY_MAX];
    int               result;
    ucs_status_t (*rkey_compare)(uct_component_h, uct_rkey_t, uct_rkey_t, const void *, int *);

    *(void **)(void *)&rkey_compare = dlsym(RTLD_DEFAULT, "uct_rkey_compare");
    if (rkey_compare == NULL) {
        return;
    }
    ut_md_open(t);
    for (int i = 0; i < 2; ++i) {
        ut_mem_init(t, &mem[i], UT_MEM_PRIVATE, 100);
        CHECK_OK(uct_md_mkey_pack(t->md, mem[i].memh, packed[i]));
    }
    CHECK_OK(uct_rkey_unpack(t->component, packed[0], &key));
    CHECK_OK(uct_rkey_unpack(t->component, packed[0], &same));
    CHECK_OK(uct_rkey_unpack(t->component, packed[1], &other));
    CHECK_OK(rkey_compare(t->component, key.rkey, same.rkey, &no_fields, &result));
    CHECK_EQ(result, 0);
    CHECK_OK(rkey_compare(t->component, key.rkey, other.rkey, &no_fields, &result));
    CHECK(result != 0);
    CHECK_EQ(rkey_compare(t->component, key.rkey, other.rkey, &no_fields, NULL),
             UCS_ERR_INVALID_PARAM);
    CHECK_OK(uct_rkey_release(t->component, &key));
    CHECK_OK(uct_rkey_release(t->component, &same));
    CHECK_OK(uct_rkey_release(t->component, &other));
    ut_mem_cleanup(t, &mem[0]);
    ut_mem_cleanup(t, &mem[1]);
    ut_md_close(t);
}

/* ---- the tests ----------------------------------------------------------------------------- */

#define KEY_TEST(_name, _nranks, _func) \
    static void _name(void **state)     \
    {                                   \
        (void)state;                    \
        ut_run(_nranks, _func, NULL);   \
    }

KEY_TEST(test_key_roundtrip, 1, key_roundtrip)
KEY_TEST(test_key_hostile, 2, key_hostile)
KEY_TEST(test_invalidate, 2, invalidate)
KEY_TEST(test_mapped, 2, mapped)
KEY_TEST(test_twice, 2, twice)
KEY_TEST(test_cache, 2, cache)
KEY_TEST(test_compare, 1, compare)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_roundtrip), cmocka_unit_test(test_key_hostile),
        cmocka_unit_test(test_mapped),        cmocka_unit_test(test_invalidate),
        cmocka_unit_test(test_twice),         cmocka_unit_test(test_cache),
        cmocka_unit_test(test_compare),
    };

    return ut_main(argc, argv, "key", tests, sizeof(tests) / sizeof(tests[0]));
}
