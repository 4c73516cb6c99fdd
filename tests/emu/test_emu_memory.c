/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bus addresses: RAM below and above the hole of a large VM, another device's BAR, and nothing.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define GIB    (1ull << 30)
#define LENGTH 5000u

typedef struct {
    fabric_t fabric;
    guest_t  guest;
    pe_t     pe;
    region_t near, far; /* far: contiguous, wherever the test puts it */
} box_t;

static void box_start(box_t *box, uint64_t ram)
{
    fabric_start_ram(&box->fabric, 1, ram, NULL);
    guest_connect(&box->guest, &box->fabric, 0);
    guest_bind(&box->guest);
    pe_create(&box->pe, &box->guest, 0, 1);
    pe_pair(&box->pe, 0, &box->pe);
    region_register(&box->near, &box->guest, 1, LENGTH, ANGARA_ACCESS_ALL, 1, 12, 0);
    region_register(&box->far, &box->guest, 1, LENGTH, ANGARA_ACCESS_ALL, 0, 12, 0);
    region_fill(&box->near, 1);
}

static void box_stop(box_t *box)
{
    guest_disconnect(&box->guest);
    fabric_stop(&box->fabric);
}

/* Put to memory at a bus address; memory: where that is, NULL: nowhere. */
static void put_to(box_t *box, uint64_t bus, const char *memory)
{
    uint64_t done = box->pe.status->counters[ANGARA_CNT_OFF_PUTS];

    region_entry(&box->far)->list = bus;
    assert_int_equal(guest_admin_args(&box->guest, ANGARA_HW_MR_INVALIDATE, box->far.key, 0),
                     ANGARA_HW_OK);
    pe_rma(&box->pe, ANGARA_OP_PUT, 0, &box->near, 0, &box->far, 0, LENGTH);
    if (memory == NULL) {
        pe_expect(&box->pe, ANGARA_EV_FAULT, 0, ANGARA_ERR_SYSTEM);
        pe_pair(&box->pe, 0, &box->pe);
        return;
    }
    WAIT_FOR(__atomic_load_n(&box->pe.status->counters[ANGARA_CNT_OFF_PUTS], __ATOMIC_ACQUIRE) ==
             done + 1);
    for (unsigned i = 0; i < LENGTH; ++i) {
        char byte;

        region_load(&box->near, i, &byte, 1);
        assert_int_equal(memory[i], byte);
    }
}

static char *map_part(const char *path, uint64_t offset)
{
    int   fd   = open(path, O_RDWR | O_CLOEXEC);
    char *base = mmap(NULL, 2 * GUEST_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

    assert_true(fd >= 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    close(fd);
    return base;
}

static void test_hole(void **state)
{
    char  path[128], *part;
    box_t box;

    (void)state;
    box_start(&box, 3 * GIB); /* a sparse file */
    snprintf(path, sizeof(path), "%s/ram0", box.fabric.dir);
    part = map_part(path, 2 * GIB); /* what lies above the hole */
    put_to(&box, 4 * GIB, part);
    munmap(part, 2 * GUEST_PAGE);
    part = map_part(path, 2 * GIB - 2 * GUEST_PAGE);
    put_to(&box, 2 * GIB - 2 * GUEST_PAGE, part);
    munmap(part, 2 * GUEST_PAGE);
    put_to(&box, 2 * GIB, NULL);
    put_to(&box, 3 * GIB, NULL);
    put_to(&box, 2 * GIB - GUEST_PAGE, NULL); /* half of it */
    put_to(&box, 5 * GIB, NULL);
    box_stop(&box);
}

static void test_no_hole(void **state)
{
    box_t box;

    (void)state;
    box_start(&box, GUEST_RAM);
    put_to(&box, GUEST_RAM - 2 * GUEST_PAGE, guest_at(&box.guest, GUEST_RAM - 2 * GUEST_PAGE));
    put_to(&box, GUEST_RAM - GUEST_PAGE, NULL);
    put_to(&box, GUEST_RAM, NULL);
    put_to(&box, 4 * GIB, NULL);
    box_stop(&box);
}

static void test_map(void **state)
{
    char  path[128], *part;
    box_t box;
    int   fd;

    (void)state;
    box_start(&box, GUEST_RAM);
    snprintf(path, sizeof(path), "%s/vram", box.fabric.dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    close(fd);
    fabric_control(&box.fabric, "map 0 %llu %u %s", 4 * GIB, 1 << 20, path);
    part = map_part(path, 0);
    put_to(&box, 4 * GIB, part);
    put_to(&box, 4 * GIB + (1 << 20) - GUEST_PAGE, NULL);
    munmap(part, 2 * GUEST_PAGE);
    unlink(path);
    box_stop(&box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hole),
        cmocka_unit_test(test_no_hole),
        cmocka_unit_test(test_map),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
