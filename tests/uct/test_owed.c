/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that is deregistered while a peer that has been stopped is within an access to it: the
 * transport says that it is busy, and completes no invalidation until the access has ended.
 */
#include "ut.h"
#include "ut_inside.h"

#include "soft.h"

#include <signal.h>
#include <sys/mman.h>

#define PAGE 4096u

/* As in a packed key of the transport. */
static uint64_t key_of(ut_t *t, uct_mem_h memh)
{
    uint8_t  packed[UT_RKEY_MAX];
    uint64_t key;

    CHECK_OK(uct_md_mkey_pack(t->md, memh, packed));
    memcpy(&key, packed, sizeof(key));
    return key;
}

/* Rank 1 has no UCX: it holds the three regions, as a batch of accesses does, until it is told. */
static void hold(ut_t *t)
{
    angara_address_t address;
    angara_domain_h  dom;
    angara_pe_h      pe;
    angara_peer_h    peer;
    soft_hazard_t   *hazard;
    unsigned         i;

    CHECK(angara_open("soft", &dom) == ANGARA_OK);
    CHECK(angara_pe_create(dom, NULL, &pe) == ANGARA_OK);
    ut_recv_still(t, 0, &address, sizeof(address));
    CHECK(angara_peer_connect(pe, &address, &peer) == ANGARA_OK);
    hazard = soft_peer(peer)->remote.hazard;
    for (i = 0; i < 3; ++i) {
        hazard->regions[i] = SOFT_KEY_INDEX(ut_recv_word_still(t, 0));
    }
    __atomic_exchange_n(&hazard->key, soft_batch_value(1, 3), __ATOMIC_SEQ_CST);
    ut_send_word(t, 0, 0);
    ut_recv_word_still(t, 0);
    __atomic_store_n(&hazard->key, 0, __ATOMIC_RELEASE);
    ut_recv_word_still(t, 0);
    angara_pe_destroy(pe);
    CHECK(angara_close(dom) == ANGARA_OK);
}

static void invalidated(uct_completion_t *self)
{
    ++((ut_comp_t *)self)->calls;
}

static void invalidate(ut_t *t, uct_mem_h memh, ut_comp_t *comp)
{
    ut_comp_init(comp, 1);
    comp->super.func = invalidated;
    ut_mem_dereg(t, memh, &comp->super);
}

static void owed(ut_t *t)
{
    angara_address_t address;
    ut_mem_t         mem, other, alloc;
    ut_comp_t        comp;
    unsigned         i;

    if (t->rank == 1) {
        hold(t);
        return;
    }

    setenv("ANGARA_PEER_WAIT", "300", 1);
    ut_md_open(t);
    ut_iface_open(t, &t->main);
    ut_pe_address(t->main.iface, &address);
    ut_mem_init(t, &mem, UT_MEM_PRIVATE, PAGE);
    ut_mem_init_flags(t, &other, UT_MEM_PRIVATE, PAGE, UCT_MD_MEM_ACCESS_RMA);
    ut_mem_init(t, &alloc, UT_MEM_ALLOC, PAGE);
    ut_send(t, 1, &address, sizeof(address));
    ut_send_word(t, 1, key_of(t, mem.memh));
    ut_send_word(t, 1, key_of(t, other.memh));
    ut_send_word(t, 1, key_of(t, alloc.memh));
    ut_recv_word(t, 1);
    CHECK(kill(t->pid[1], SIGSTOP) == 0);

    CHECK_EQ(uct_md_mem_dereg(t->md, mem.memh), UCS_ERR_BUSY);
    invalidate(t, other.memh, &comp);
    CHECK_EQ(uct_mem_free(&alloc.alloc), UCS_ERR_BUSY);
    memset(alloc.addr, 1, PAGE); /* still there */
    for (i = 0; i < 100000; ++i) {
        ut_progress(t);
    }
    CHECK_EQ(comp.calls, 0);

    CHECK(kill(t->pid[1], SIGCONT) == 0);
    ut_send_word(t, 1, 0);
    UT_WAIT(t, comp.calls == 1);
    CHECK_EQ(comp.super.status, UCS_OK);
    ut_send_word(t, 1, 0);
    ut_iface_close(&t->main);
    ut_md_close(t);
    munmap(mem.addr, PAGE);
    munmap(other.addr, PAGE);
}

static void test_owed(void **state)
{
    (void)state;
    ut_run(2, owed, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_owed)};

    return ut_main(argc, argv, "owed", tests, 1);
}
