/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that can't be written (a constant array, a file mapped for reading) can be sent: it is
 * registered for reading. Once it can be written it is registered for writing, too.
 *
 * On a NIC (in loopback mode) the kernel refuses rights that the memory doesn't allow. The soft
 * fabric doesn't look: there the test refuses them, by taking the place of libangara's call.
 */
#define _GNU_SOURCE
#include "ut.h"

#include "verbs/md.h"

#include <dlfcn.h>
#include <sys/mman.h>

#define RO_SIZE ((size_t)16 * 4096)

/* ---- in the place of libangara's call -------------------------------------------------------- */

static char *ro_pages; /* RO_SIZE bytes that can't be written */

angara_status_t angara_mr_register(angara_domain_h dom, void *addr, size_t length, unsigned access,
                                   angara_mr_h *mr_p)
{
    static angara_status_t (*next)(angara_domain_h, void *, size_t, unsigned, angara_mr_h *);
    char *start = addr;

    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "angara_mr_register");
    }
    if ((ro_pages != NULL) && (start < ro_pages + RO_SIZE) && (ro_pages < start + length) &&
        (access & ~(unsigned)ANGARA_ACCESS_REMOTE_READ)) {
        return ANGARA_ERR_INVALID;
    }
    return next(dom, addr, length, access, mr_p);
}

static void ro_protect(char *pages, int writable)
{
    CHECK(mprotect(pages, RO_SIZE, writable ? PROT_READ | PROT_WRITE : PROT_READ) == 0);
    ro_pages = writable ? NULL : pages;
}

static char *ro_map(size_t length)
{
    char *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(p != MAP_FAILED);
    return p;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* A put that must be refused, on an interface of its own. */
static void ro_put_refused(ut_t *t, uint64_t addr, uct_rkey_t rkey)
{
    ut_iface_t   iface = {0};
    ut_timer_t   timer = {0, 0};
    uint64_t     word  = 1;
    ucs_status_t status;
    uct_ep_h     ep;

    ut_iface_open(t, &iface);
    ep     = ut_ep_create(&iface, &t->addr[1]);
    status = (ucs_status_t)UT_POST(t, uct_ep_put_short(ep, &word, sizeof(word), addr, rkey));
    while ((status == UCS_OK) && (iface.errors == 0)) {
        uct_iface_flush(iface.iface, 0, NULL);
        ut_relax(t, &timer, __FILE__, __LINE__, "a put to read-only memory is refused");
    }
    uct_ep_destroy(ep);
    ut_iface_close(&iface);
}

/* Rank 0 reads rank 1's memory, then writes there or is refused. */
static void ro_remote(ut_t *t, char *pages, uct_mem_h memh, uint64_t seed, int writable)
{
    ut_mem_t    mem = {.addr = pages, .length = RO_SIZE, .memh = memh};
    ut_remote_t remotes[RANK_MAX];
    uct_iov_t   iov = {.length = RO_SIZE, .count = 1};
    ut_comp_t   comp;
    ut_mem_t    buffer;

    ut_mem_exchange(t, &mem, remotes);
    if (t->rank == 0) {
        ut_mem_init(t, &buffer, UT_MEM_PRIVATE, RO_SIZE);
        iov.buffer = buffer.addr;
        iov.memh   = buffer.memh;
        COMPLETE_OK(
            t, &comp,
            uct_ep_get_zcopy(t->ep[1], &iov, 1, remotes[1].addr, remotes[1].key.rkey, &comp.super));
        CHECK_DATA(buffer.addr, RO_SIZE, seed);
        if (writable) {
            data_fill(buffer.addr, RO_SIZE, seed + 1);
            COMPLETE_OK(t, &comp,
                        uct_ep_put_zcopy(t->ep[1], &iov, 1, remotes[1].addr, remotes[1].key.rkey,
                                         &comp.super));
        } else {
            ro_put_refused(t, remotes[1].addr, remotes[1].key.rkey);
        }
        ut_mem_cleanup(t, &buffer);
    }
    ut_barrier(t);
    if (t->rank == 1) {
        CHECK_DATA(pages, RO_SIZE, seed + (unsigned)writable);
    }
    ut_remotes_release(t, remotes);
}

/* Rank 1 sends its memory to rank 0's. */
static void ro_local(ut_t *t, char *pages, uct_mem_h memh, uint64_t seed)
{
    uct_iov_t   iov = {.buffer = pages, .length = RO_SIZE, .memh = memh, .count = 1};
    ut_remote_t remotes[RANK_MAX];
    ut_comp_t   comp;
    ut_mem_t    mem;

    ut_mem_init(t, &mem, UT_MEM_PRIVATE, RO_SIZE);
    ut_mem_exchange(t, &mem, remotes);
    if (t->rank == 1) {
        COMPLETE_OK(
            t, &comp,
            uct_ep_put_zcopy(t->ep[0], &iov, 1, remotes[0].addr, remotes[0].key.rkey, &comp.super));
    }
    ut_barrier(t);
    if (t->rank == 0) {
        CHECK_DATA(mem.addr, RO_SIZE, seed);
    }
    ut_remotes_release(t, remotes);
    ut_mem_cleanup(t, &mem);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void read_only(ut_t *t)
{
    uct_mem_h memh;
    unsigned  i;
    char     *p;

    setenv("UCX_ANGARA_RCACHE", t->arg, 1);
    ut_open(t);
    p = ro_map(RO_SIZE);
    for (i = 1; i <= 2; ++i) { /* read only, then writable */
        int writable = (i % 2 == 0);

        ro_protect(p, 1);
        data_fill(p, RO_SIZE, 10 * i);
        if (t->rank == 1) {
            ro_protect(p, writable);
        }
        CHECK_OK(uct_md_mem_reg(t->md, p, RO_SIZE, UCT_MD_MEM_ACCESS_RMA, &memh));
        ro_local(t, p, memh, 10 * i);
        ro_remote(t, p, memh, 10 * i, writable);
        CHECK_OK(uct_md_mem_dereg(t->md, memh));
    }
    ro_protect(p, 1);
    munmap(p, RO_SIZE);
    ut_close(t);
}

/*
 * What can't be written isn't the destination of a get: that is refused, with no harm to others.
 * Once it can be, the same handle will do.
 */
static void destination(ut_t *t)
{
    uct_iov_t   iov = {.length = RO_SIZE, .count = 1};
    ut_remote_t remotes[RANK_MAX];
    ut_comp_t   comp;
    ut_mem_t    mem;
    unsigned    i;

    setenv("UCX_ANGARA_RCACHE", t->arg, 1);
    ut_open(t);
    ut_mem_init(t, &mem, UT_MEM_PRIVATE, RO_SIZE);
    data_fill(mem.addr, RO_SIZE, 7 + (unsigned)t->rank);
    ut_mem_exchange(t, &mem, remotes);
    if (t->rank == 1) {
        iov.buffer = ro_map(RO_SIZE);
        data_fill(iov.buffer, RO_SIZE, 99);
        ro_protect(iov.buffer, 0);
        CHECK_OK(uct_md_mem_reg(t->md, iov.buffer, RO_SIZE, UCT_MD_MEM_ACCESS_RMA, &iov.memh));
        for (i = 0; i < 3; ++i) {
            ut_comp_init(&comp, 1);
            CHECK_STATUS(uct_ep_get_zcopy(t->ep[0], &iov, 1, remotes[0].addr, remotes[0].key.rkey,
                                          &comp.super),
                         UCS_ERR_INVALID_ADDR);
        }
        CHECK_DATA(iov.buffer, RO_SIZE, 99);
        ro_protect(iov.buffer, 1);
        COMPLETE_OK(
            t, &comp,
            uct_ep_get_zcopy(t->ep[0], &iov, 1, remotes[0].addr, remotes[0].key.rkey, &comp.super));
        CHECK_DATA(iov.buffer, RO_SIZE, 7);
        CHECK_OK(uct_md_mem_dereg(t->md, iov.memh));
        munmap(iov.buffer, RO_SIZE);
    }
    ut_barrier(t);
    ut_remotes_release(t, remotes);
    ut_mem_cleanup(t, &mem);
    ut_close(t);
}

/*
 * The cache merges ranges that overlap: that one part can't be written takes nothing from the
 * other.
 */
static void neighbours(ut_t *t)
{
    ut_remote_t remotes[RANK_MAX];
    uct_mem_h   sent, both;
    ut_mem_t    mem;
    uint64_t    word = 4711;
    char       *p;

    setenv("UCX_ANGARA_RCACHE", "y", 1);
    ut_open(t);
    p = ro_map(3 * RO_SIZE);
    CHECK_OK(uct_md_mem_reg(t->md, p + RO_SIZE, RO_SIZE + 4096, UCT_MD_MEM_ACCESS_RMA, &both));
    CHECK_OK(uct_md_mem_dereg(t->md, both)); /* stays in the cache, and overlaps what is next */
    ro_protect(p + RO_SIZE, 0);
    CHECK_OK(uct_md_mem_reg(t->md, p + RO_SIZE, RO_SIZE, UCT_MD_MEM_ACCESS_RMA, &sent));
    mem = (ut_mem_t){.addr = p + 2 * RO_SIZE, .length = RO_SIZE};
    CHECK_OK(uct_md_mem_reg(t->md, mem.addr, RO_SIZE, UCT_MD_MEM_ACCESS_RMA, &mem.memh));
    ut_mem_exchange(t, &mem, remotes);
    if (t->rank == 0) {
        POST_OK(t, uct_ep_put_short(t->ep[1], &word, sizeof(word), remotes[1].addr,
                                    remotes[1].key.rkey));
        ut_flush(t, &t->main);
    }
    ut_barrier(t);
    CHECK(memcmp(mem.addr, &word, sizeof(word)) == 0 || (t->rank == 0));
    ut_remotes_release(t, remotes);
    CHECK_OK(uct_md_mem_dereg(t->md, mem.memh));
    CHECK_OK(uct_md_mem_dereg(t->md, sent));
    ro_protect(p + RO_SIZE, 1);
    munmap(p, 3 * RO_SIZE);
    ut_close(t);
}

static void test_destination(void **state)
{
    (void)state;
    ut_run(2, destination, "n");
    ut_run(2, destination, "y");
}

static void test_read_only(void **state)
{
    (void)state;
    ut_run(2, read_only, "n");
}

static void test_read_only_cached(void **state)
{
    (void)state;
    ut_run(2, read_only, "y");
}

static void test_neighbours(void **state)
{
    (void)state;
    ut_run(2, neighbours, NULL);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_destination),
        cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_read_only_cached),
        cmocka_unit_test(test_neighbours),
    };

    return ut_main(argc, argv, "readonly", tests, sizeof(tests) / sizeof(tests[0]));
}
