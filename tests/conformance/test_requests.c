/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a peer's process must do for others goes on while its program computes: whatever the rights
 * of the region, and though that process sees nothing that forbids others to reach its memory.
 */
#include "conf.h"

#include <cmocka.h>

#include <unistd.h>

#define SIZE 200000 /* some chunks of staging memory */

/* Rank 0 may not use process_vm; rank 1 makes no library call between the two barriers. */
static void target_computes(conf_t *t)
{
    static char buffer[2 * SIZE];
    unsigned    access = *(const unsigned *)t->arg;
    conf_mem_t  mem;
    uint64_t    keys[RANK_MAX];
    angara_mr_h mr;

    if (t->rank == 0) {
        setenv("ANGARA_SOFT_CMA", "n", 1);
    }
    conf_open(t);
    if (strcmp(t->attr.provider, "soft") != 0) {
        rank_skip("a NIC needs nothing of the target's process, or its progress");
    }
    conf_mem_init(t, &mem, 0, SIZE, access);
    conf_mem_exchange(t, &mem, keys);
    if (t->rank == 1) {
        data_fill(mem.addr, SIZE, 1);
        angara_pe_progress(t->pe); /* one turn behind the connection of rank 0 */
        conf_barrier(t);
        conf_barrier(t); /* computes: waits for a socket */
        if (access & ANGARA_ACCESS_REMOTE_WRITE) {
            CHECK_DATA(mem.addr, SIZE, 2);
        }
    } else {
        CHECK_OK(angara_mr_register(t->dom, buffer, sizeof(buffer), ANGARA_ACCESS_ALL, &mr));
        conf_barrier(t);
        if (access & ANGARA_ACCESS_REMOTE_READ) {
            POST_OK(t, angara_offload_get(t->peer[1], mr, buffer, keys[1], 0, SIZE));
            conf_marker(t, 1);
            CHECK_DATA(buffer, SIZE, 1);
        }
        if (access & ANGARA_ACCESS_REMOTE_WRITE) {
            data_fill(buffer + SIZE, SIZE, 2);
            POST_OK(t, angara_offload_put(t->peer[1], mr, buffer + SIZE, keys[1], 0, SIZE));
            conf_marker(t, 1);
        }
        conf_barrier(t);
        CHECK_OK(angara_mr_deregister(mr));
    }
    conf_mem_cleanup(&mem);
    conf_close(t);
}

static void test_computing_target(void **state)
{
    static const unsigned rights[] = {
        ANGARA_ACCESS_REMOTE_READ,
        ANGARA_ACCESS_REMOTE_WRITE,
        ANGARA_ACCESS_REMOTE_READ | ANGARA_ACCESS_REMOTE_WRITE,
        ANGARA_ACCESS_ALL,
    };

    (void)state;
    for (unsigned i = 0; i < sizeof(rights) / sizeof(rights[0]); ++i) {
        conf_run(2, target_computes, &rights[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_computing_target),
    };

    return cmocka_run_group_tests_name("requests", tests, NULL, NULL);
}
