/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that is remapped behind UCX's back, by raw system calls that its hooks don't see: what is
 * registered or named by a key afterwards is the memory of now.
 *
 * On a NIC (in loopback mode) the kernel says which regions went stale, and a region that is used
 * although it did shows as old data. On the soft fabric regions name addresses and never go stale:
 * there the test says it, by taking the place of libangara's call.
 */
#define _GNU_SOURCE
#include "ut.h"

#include "verbs/md.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STALE_SIZE ((size_t)32 * 4096)

/* ---- in the place of libangara's calls ------------------------------------------------------- */

static struct {
    uint64_t key; /* of the region that is stale on the soft fabric */
    int      all; /* each is, on any */
} stale_fake;

static int stale_is_fake(angara_mr_h mr)
{
    return stale_fake.all || (angara_mr_key(mr) == stale_fake.key);
}

int angara_mr_part_is_stale(angara_mr_h mr, const void *address, size_t length)
{
    static int (*next)(angara_mr_h mr, const void *address, size_t length);

    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "angara_mr_part_is_stale");
    }
    return next(mr, address, length) || stale_is_fake(mr);
}

int angara_mr_is_stale(angara_mr_h mr)
{
    static int (*next)(angara_mr_h mr);

    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "angara_mr_is_stale");
    }
    return next(mr) || stale_is_fake(mr);
}

/* Fails if a region was left behind. */
angara_status_t angara_close(angara_domain_h dom)
{
    static angara_status_t (*next)(angara_domain_h dom);
    angara_status_t status;

    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "angara_close");
    }
    status = next(dom);
    CHECK_EQ(status, ANGARA_OK);
    return status;
}

/* ---- remapping ------------------------------------------------------------------------------- */

typedef enum { STALE_UNMAP, STALE_REMAP, STALE_DONTNEED, STALE_WAYS } stale_way_t;

/*
 * Far from where the kernel puts what may be anywhere, if it takes the hint: other threads must not
 * get a place that is unmapped for a moment.
 */
static void *stale_map(void)
{
    static uintptr_t next = 1ull << 45;
    void            *p    = (void *)syscall(SYS_mmap, next, STALE_SIZE, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(p != MAP_FAILED);
    next += 2 * STALE_SIZE;
    return p;
}

/* Other pages at the same addresses. */
static void stale_replace(void *address, stale_way_t way, uint64_t key)
{
    void *p = address;

    switch (way) {
    case STALE_UNMAP:
        CHECK(syscall(SYS_munmap, address, STALE_SIZE) == 0);
        p = (void *)syscall(SYS_mmap, address, STALE_SIZE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        break;
    case STALE_REMAP:
        p = (void *)syscall(SYS_mremap, stale_map(), STALE_SIZE, STALE_SIZE,
                            MREMAP_MAYMOVE | MREMAP_FIXED, address);
        break;
    default:
        CHECK(syscall(SYS_madvise, address, STALE_SIZE, MADV_DONTNEED) == 0);
        break;
    }
    CHECK(p == address);
    stale_fake.key = key;
}

/* ---- the other rank ------------------------------------------------------------------------ */

typedef struct {
    uct_angara_packed_rkey_t packed;
    uint64_t                 address;
    uint64_t                 seed; /* of what is there; 0: that was all */
} stale_ask_t;

/* Rank 0 reads what it is told to, says whether it is that pattern, and writes the next one. */
static void stale_serve(ut_t *t)
{
    char             *buffer = malloc(STALE_SIZE);
    uct_rkey_bundle_t key;
    stale_ask_t       ask;
    uct_iov_t         iov = {.buffer = buffer, .length = STALE_SIZE, .count = 1};
    ut_comp_t         comp;

    CHECK_OK(uct_md_mem_reg(t->md, buffer, STALE_SIZE, UCT_MD_MEM_ACCESS_ALL, &iov.memh));
    for (;;) {
        ut_recv(t, 1, &ask, sizeof(ask));
        if (ask.seed == 0) {
            break;
        }
        CHECK_OK(uct_rkey_unpack(t->component, &ask.packed, &key));
        COMPLETE_OK(t, &comp,
                    uct_ep_get_zcopy(t->ep[1], &iov, 1, ask.address, key.rkey, &comp.super));
        ut_send_word(t, 1, (uint64_t)rank_matches(buffer, STALE_SIZE, ask.seed));
        data_fill(buffer, STALE_SIZE, ask.seed + 1);
        COMPLETE_OK(t, &comp,
                    uct_ep_put_zcopy(t->ep[1], &iov, 1, ask.address, key.rkey, &comp.super));
        ut_send_word(t, 1, 0);
        CHECK_OK(uct_rkey_release(t->component, &key));
    }
    CHECK_OK(uct_md_mem_dereg(t->md, iov.memh));
    free(buffer);
}

/* The peer reads and writes the memory that is at `address` now. */
static void stale_check(ut_t *t, const uct_angara_packed_rkey_t *packed, char *address,
                        uint64_t seed)
{
    stale_ask_t ask = {*packed, (uintptr_t)address, seed};

    data_fill(address, STALE_SIZE, seed);
    ut_send(t, 0, &ask, sizeof(ask));
    CHECK_EQ(ut_recv_word(t, 0), 1);
    ut_recv_word(t, 0);
    CHECK_DATA(address, STALE_SIZE, seed + 1);
}

static void stale_end(ut_t *t)
{
    stale_ask_t ask = {.seed = 0};

    ut_send(t, 0, &ask, sizeof(ask));
}

static uct_mem_h stale_register(ut_t *t, void *address, uct_angara_packed_rkey_t *packed)
{
    uct_mem_h memh;

    CHECK_OK(uct_md_mem_reg(t->md, address, STALE_SIZE, UCT_MD_MEM_ACCESS_ALL, &memh));
    CHECK_OK(uct_md_mkey_pack(t->md, memh, packed));
    return memh;
}

/* Without asking for it, which is looked at as well. */
static uint64_t stale_key(uct_mem_h memh)
{
    return angara_mr_key(((const uct_angara_mem_t *)memh)->mr);
}

/* Set up both ranks; rank 0 serves. @return 1 on the other one. */
static int stale_open(ut_t *t, const char *rcache)
{
    if (strcmp(rcache, "y") == 0) {
        ut_cache_on();
    } else {
        setenv("UCX_ANGARA_RCACHE", rcache, 1);
    }
    ut_open(t);
    if (t->rank == 0) {
        stale_serve(t);
        ut_close(t);
    }
    return t->rank != 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* As UCP does it for each rendezvous: register, use, deregister. */
static void cached(ut_t *t)
{
    unsigned                 rounds = ut_rounds(12), i;
    uct_angara_packed_rkey_t packed, again;
    uct_mem_h                memh;
    char                    *p;

    if (!stale_open(t, "y")) {
        return;
    }
    p    = stale_map();
    memh = stale_register(t, p, &packed);
    for (i = 1; i <= rounds; ++i) {
        stale_check(t, &packed, p, 10 * i);
        CHECK_OK(uct_md_mem_dereg(t->md, memh));
        memh = stale_register(t, p, &again);
        CHECK_EQ(again.key, packed.key); /* a hit as long as nothing happens */
        CHECK_OK(uct_md_mem_dereg(t->md, memh));
        stale_replace(p, (stale_way_t)(i % STALE_WAYS), packed.key);
        memh = stale_register(t, p, &again);
        CHECK(again.key != packed.key);
        packed = again;
    }
    stale_check(t, &packed, p, 1);
    CHECK_OK(uct_md_mem_dereg(t->md, memh));
    stale_end(t);
    ut_close(t);
}

/* The local end of an operation: what is sent is the memory of now. No key is asked for here. */
static void local(ut_t *t)
{
    unsigned    rounds = ut_rounds(12), i;
    uct_iov_t   iov    = {.buffer = stale_map(), .length = STALE_SIZE, .count = 1};
    ut_remote_t remotes[RANK_MAX];
    uint64_t    key;
    ut_comp_t   comp;
    ut_mem_t    mem;

    setenv("UCX_ANGARA_RCACHE", "y", 1);
    ut_open(t);
    ut_mem_init(t, &mem, UT_MEM_PRIVATE, STALE_SIZE);
    ut_mem_exchange(t, &mem, remotes);
    for (i = 1; i <= rounds; ++i) {
        if (t->rank == 1) {
            CHECK_OK(
                uct_md_mem_reg(t->md, iov.buffer, STALE_SIZE, UCT_MD_MEM_ACCESS_ALL, &iov.memh));
            CHECK(stale_key(iov.memh) != stale_fake.key);
            data_fill(iov.buffer, STALE_SIZE, i);
            COMPLETE_OK(t, &comp,
                        uct_ep_put_zcopy(t->ep[0], &iov, 1, remotes[0].addr, remotes[0].key.rkey,
                                         &comp.super));
            key = stale_key(iov.memh);
            CHECK_OK(uct_md_mem_dereg(t->md, iov.memh));
            stale_replace(iov.buffer, (stale_way_t)(i % STALE_WAYS), key);
        }
        ut_barrier(t);
        if (t->rank == 0) {
            CHECK_DATA(mem.addr, STALE_SIZE, i);
        }
        ut_barrier(t);
    }
    ut_remotes_release(t, remotes);
    ut_mem_cleanup(t, &mem);
    ut_close(t);
}

/* The same with a handle that is kept, in both directions, in several pieces. */
static void kept_local(ut_t *t)
{
    unsigned    rounds = ut_rounds(12), i;
    uct_iov_t   iov[2] = {{.buffer = stale_map(), .length = STALE_SIZE, .count = 1},
                          {.length = STALE_SIZE, .count = 1}};
    ut_remote_t remotes[RANK_MAX];
    ut_comp_t   comp;
    uint64_t    key;
    ut_mem_t    mem, still;

    setenv("UCX_ANGARA_RCACHE", t->arg, 1);
    ut_open(t);
    ut_mem_init(t, &mem, UT_MEM_PRIVATE, 2 * STALE_SIZE);
    ut_mem_init(t, &still, UT_MEM_PRIVATE, STALE_SIZE);
    ut_mem_exchange(t, &mem, remotes);
    CHECK_OK(uct_md_mem_reg(t->md, iov[0].buffer, STALE_SIZE, UCT_MD_MEM_ACCESS_ALL, &iov[0].memh));
    iov[1].buffer = still.addr;
    iov[1].memh   = still.memh;
    for (i = 1; i <= rounds; ++i) {
        if (t->rank == 1) {
            key = stale_key(iov[0].memh);
            stale_replace(iov[0].buffer, (stale_way_t)(i % STALE_WAYS), key);
            data_fill(iov[0].buffer, STALE_SIZE, i);
            data_fill(still.addr, STALE_SIZE, i + 100);
            COMPLETE_OK(t, &comp,
                        uct_ep_put_zcopy(t->ep[0], iov, 1 + i % 2, remotes[0].addr,
                                         remotes[0].key.rkey, &comp.super));
            CHECK(stale_key(iov[0].memh) != key);
            stale_replace(iov[0].buffer, (stale_way_t)(i % STALE_WAYS), stale_key(iov[0].memh));
            COMPLETE_OK(t, &comp,
                        uct_ep_get_zcopy(t->ep[0], iov, 1, remotes[0].addr, remotes[0].key.rkey,
                                         &comp.super));
            CHECK_DATA(iov[0].buffer, STALE_SIZE, i);
        }
        ut_barrier(t);
        if (t->rank == 0) {
            CHECK_DATA(mem.addr, STALE_SIZE, i);
            CHECK((i % 2 == 0) || rank_matches((char *)mem.addr + STALE_SIZE, STALE_SIZE, i + 100));
        }
        ut_barrier(t);
    }
    CHECK_OK(uct_md_mem_dereg(t->md, iov[0].memh));
    ut_remotes_release(t, remotes);
    ut_mem_cleanup(t, &still);
    ut_mem_cleanup(t, &mem);
    ut_close(t);
}

/* Somebody still uses the stale registration: it is his, and nobody else's any more. */
static void in_use(ut_t *t)
{
    uct_angara_packed_rkey_t packed[2];
    uct_mem_h                memh[3];
    char                    *p;

    if (!stale_open(t, "y")) {
        return;
    }
    p       = stale_map();
    memh[0] = stale_register(t, p, &packed[0]);
    stale_replace(p, STALE_UNMAP, packed[0].key);
    memh[1] = stale_register(t, p, &packed[1]);
    CHECK(memh[1] != memh[0]);
    CHECK(packed[1].key != packed[0].key);
    CHECK_OK(uct_md_mem_dereg(t->md, memh[0]));
    stale_check(t, &packed[1], p, 3);
    memh[2] = stale_register(t, p, &packed[0]);
    CHECK(memh[2] == memh[1]);
    CHECK_OK(uct_md_mem_dereg(t->md, memh[1]));
    CHECK_OK(uct_md_mem_dereg(t->md, memh[2]));
    stale_end(t);
    ut_close(t);
}

/* UCP keeps a handle in a cache of its own, and asks for its key once more. */
static void kept(ut_t *t)
{
    uct_angara_packed_rkey_t packed, again;
    uct_mem_h                memh;
    unsigned                 i;
    char                    *p;

    if (!stale_open(t, t->arg)) {
        return;
    }
    p    = stale_map();
    memh = stale_register(t, p, &packed);
    for (i = 1; i <= STALE_WAYS; ++i) {
        stale_check(t, &packed, p, 10 * i);
        stale_replace(p, (stale_way_t)(i % STALE_WAYS), packed.key);
        CHECK_OK(uct_md_mkey_pack(t->md, memh, &again));
        CHECK(again.key != packed.key);
        packed = again;
        CHECK_OK(uct_md_mkey_pack(t->md, memh, &again));
        CHECK_EQ(again.key, packed.key);
    }
    stale_check(t, &packed, p, 1);
    CHECK_OK(uct_md_mem_dereg(t->md, memh));
    stale_end(t);
    ut_close(t);
}

/* A range that is remapped all the time can't be registered, and that ends. */
static void never_still(ut_t *t)
{
    uct_angara_packed_rkey_t packed;
    uct_mem_h                memh;
    char                    *p;

    ut_cache_on();
    ut_md_open(t);
    p              = stale_map();
    stale_fake.all = 1;
    CHECK_STATUS(uct_md_mem_reg(t->md, p, STALE_SIZE,
                                UCT_MD_MEM_ACCESS_ALL | UCT_MD_MEM_FLAG_HIDE_ERRORS, &memh),
                 UCS_ERR_INVALID_ADDR);
    stale_fake.all = 0;
    memh           = stale_register(t, p, &packed);
    CHECK_OK(uct_md_mem_dereg(t->md, memh));
    ut_md_close(t);
}

static void test_cached(void **state)
{
    (void)state;
    ut_run(2, cached, NULL);
}

static void test_local(void **state)
{
    (void)state;
    ut_run(2, local, NULL);
}

static void test_kept_local(void **state)
{
    (void)state;
    ut_run(2, kept_local, "y");
    ut_run(2, kept_local, "n");
}

static void test_in_use(void **state)
{
    (void)state;
    ut_run(2, in_use, NULL);
}

static void test_kept(void **state)
{
    (void)state;
    ut_run(2, kept, "y");
    ut_run(2, kept, "n");
}

static void test_never_still(void **state)
{
    (void)state;
    ut_run(1, never_still, NULL);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cached),     cmocka_unit_test(test_local),
        cmocka_unit_test(test_kept_local), cmocka_unit_test(test_in_use),
        cmocka_unit_test(test_kept),       cmocka_unit_test(test_never_still),
    };

    return ut_main(argc, argv, "stale", tests, sizeof(tests) / sizeof(tests[0]));
}
