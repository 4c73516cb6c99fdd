/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a device says that it has (kmod/nic/check.c): a sound one, and each thing that makes it
 * unsound, alone; places of what users map against registers, each other, and MSI-X's pages.
 */
#include "check.h"

#include <misc/angara_formats.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define PAGE     4096ull
#define MB       (1ull << 20)
#define PES      64
#define MSIX_CAP 0x40
#define BAR      2 /* of registers, doorbells and put rings */

/* The registers are BAR's first page, then doorbells, a hole of some pages, put rings. */
#define DOORBELLS PAGE
#define HOLE      (DOORBELLS + PES * PAGE)
#define HOLE_SIZE (4 * PAGE)
#define PUTS      MB

static struct pci_dev          pdev;
static struct angara_hw_limits limits;

/* Where MSI-X's table and its pending bits are. */
static void msix_set(unsigned table_bar, u64 table, unsigned pending_bar, u64 pending)
{
    pdev.config[(MSIX_CAP + PCI_MSIX_TABLE) / 4] = (u32)table | table_bar;
    pdev.config[(MSIX_CAP + PCI_MSIX_PBA) / 4]   = (u32)pending | pending_bar;
}

static int setup(void **state)
{
    (void)state;
    pdev = (struct pci_dev){
        .length   = {[0] = PAGE, [1] = PAGE, [BAR] = 16 * MB, [5] = 256},
        .flags    = {[0] = IORESOURCE_MEM, [1] = IORESOURCE_MEM, [BAR] = IORESOURCE_MEM},
        .vectors  = 16,
        .msix_cap = MSIX_CAP,
    };
    msix_set(1, 0, 1, 0x800);
    limits = (struct angara_hw_limits){
        .node             = 5,
        .pe_max           = PES,
        .mr_max           = 1024,
        .admin_depth      = 64,
        .vectors          = 16,
        .marker_slots     = 512,
        .pio_bytes        = 64 * 1024,
        .put_max          = 4096,
        .window_pages_max = 1024,
        .offload_max      = 1ull << 30,
        .registers        = {BAR, 0},
        .registers_size   = PAGE,
        .doorbells        = {BAR, DOORBELLS},
        .puts             = {BAR, PUTS},
    };
    return 0;
}

static bool is_ok(void)
{
    return angara_limits_ok(&pdev, &limits);
}

/* With one member as given, and all else sound. */
#define IS_OK(member, value)                \
    ({                                      \
        __typeof__(member) was_ = (member); \
        bool               ok_;             \
        (member) = (value);                 \
        ok_      = is_ok();                 \
        (member) = was_;                    \
        ok_;                                \
    })

static void test_numbers(void **state)
{
    (void)state;
    assert_true(is_ok());
    assert_true(IS_OK(limits.node, (1u << ANGARA_NODE_BITS) - 1));
    assert_false(IS_OK(limits.node, 1u << ANGARA_NODE_BITS));
    assert_false(IS_OK(limits.pe_max, 0));
    assert_false(IS_OK(limits.mr_max, 0));
    assert_false(IS_OK(limits.admin_depth, 0));
    assert_false(IS_OK(limits.admin_depth, 4097));
    assert_false(IS_OK(limits.vectors, 1));
    assert_false(IS_OK(limits.marker_slots, 0));
    assert_false(IS_OK(limits.marker_slots, 65537));
    assert_false(IS_OK(limits.window_pages_max, 0));
    assert_false(IS_OK(limits.offload_max, 0));
}

/* As many PEs as the driver copes with, in a BAR that has room for more. */
static void test_pes(void **state)
{
    (void)state;
    pdev.length[BAR] = 1ull << 40;
    limits.puts      = (struct angara_hw_place){BAR, 1ull << 30};
    assert_true(IS_OK(limits.pe_max, 4096));
    assert_false(IS_OK(limits.pe_max, 4097));
    assert_false(IS_OK(limits.pe_max, UINT32_MAX));
}

/* The largest put fits into half of a ring, behind a pad. */
static void test_puts(void **state)
{
    const u32 largest = (64 * 1024 / 2 / ANGARA_PIO_GRANULE - 1) * ANGARA_PIO_GRANULE;

    (void)state;
    assert_true(IS_OK(limits.put_max, ANGARA_NOTIFY_BYTES));
    assert_false(IS_OK(limits.put_max, ANGARA_NOTIFY_BYTES - 1));
    assert_false(IS_OK(limits.put_max, 0));
    assert_true(IS_OK(limits.put_max, largest + ANGARA_PIO_INLINE));
    assert_false(IS_OK(limits.put_max, largest + ANGARA_PIO_INLINE + 1));
    assert_false(IS_OK(limits.put_max, UINT32_MAX));
    assert_true(IS_OK(limits.pio_bytes, 16 * 1024));
    assert_false(IS_OK(limits.pio_bytes, 48 * 1024));
    assert_false(IS_OK(limits.pio_bytes, 2 * MB));
    limits.put_max = ANGARA_NOTIFY_BYTES;
    assert_false(IS_OK(limits.pio_bytes, 2048)); /* two PEs' in a page */
}

/* ---- places ---------------------------------------------------------------------------------- */

static void test_inside(void **state)
{
    const u64 puts_size = PES * limits.pio_bytes;

    (void)state;
    assert_false(IS_OK(limits.doorbells.bar, 0)); /* too small */
    assert_false(IS_OK(limits.doorbells.bar, 3)); /* there is none */
    assert_false(IS_OK(limits.doorbells.bar, 5)); /* not memory */
    assert_false(IS_OK(limits.doorbells.bar, 6)); /* the ROM */
    assert_false(IS_OK(limits.puts.bar, UINT32_MAX));
    assert_false(IS_OK(limits.registers.bar, 5));
    assert_false(IS_OK(limits.registers_size, 100));
    assert_false(IS_OK(limits.doorbells.offset, DOORBELLS + 64));
    assert_false(IS_OK(limits.puts.offset, PUTS + 64));
    assert_true(IS_OK(limits.puts.offset, 16 * MB - puts_size));
    assert_false(IS_OK(limits.puts.offset, 16 * MB - puts_size + PAGE));
    assert_false(IS_OK(limits.puts.offset, 16 * MB));
    assert_false(IS_OK(limits.puts.offset, 0ull - PAGE));
    assert_false(IS_OK(limits.puts.offset, 0ull - puts_size));
    assert_false(IS_OK(limits.doorbells.offset, 0ull - PES * PAGE));
}

static void test_apart(void **state)
{
    (void)state;
    assert_false(IS_OK(limits.doorbells.offset, 0));
    assert_false(IS_OK(limits.registers_size, 2 * PAGE));
    assert_true(IS_OK(limits.registers.offset, HOLE));
    assert_false(IS_OK(limits.registers.offset, HOLE - PAGE));
    assert_false(IS_OK(limits.registers.offset, PUTS));
    assert_true(IS_OK(limits.puts.offset, HOLE));
    assert_false(IS_OK(limits.puts.offset, HOLE - PAGE));
    assert_false(IS_OK(limits.puts.offset, 0));
    limits.registers.bar = 0;
    assert_true(IS_OK(limits.doorbells.offset, 0));
}

/* Nobody who maps a doorbell or a put ring reaches MSI-X, wherever it is. */
static void test_msix(void **state)
{
    (void)state;
    for (u64 at = 0; at < 16 * MB; at += 0x800) {
        const bool is_users = (at >= DOORBELLS && at < HOLE) ||
                              (at >= PUTS && at < PUTS + PES * limits.pio_bytes);

        msix_set(BAR, at, 1, 0);
        assert_int_equal(is_ok(), !is_users);
        msix_set(1, 0, BAR, at);
        assert_int_equal(is_ok(), !is_users);
    }
    msix_set(BAR, HOLE + HOLE_SIZE, BAR, HOLE);
    assert_true(is_ok());
}

/* Tables of more than a page; one that begins within the hole and ends in what users map. */
static void test_msix_large(void **state)
{
    (void)state;
    pdev.vectors = 2048; /* 8 pages of table */
    limits.puts  = (struct angara_hw_place){BAR, HOLE + 16 * PAGE};
    msix_set(BAR, HOLE, 1, 0);
    assert_true(is_ok());
    msix_set(BAR, HOLE + 8 * PAGE, 1, 0);
    assert_true(is_ok());
    msix_set(BAR, HOLE + 8 * PAGE + 8, 1, 0);
    assert_false(is_ok());
    msix_set(BAR, HOLE - 8, 1, 0);
    assert_false(is_ok());
    msix_set(1, 0, BAR, HOLE + 16 * PAGE - 256); /* 2048 bits */
    assert_true(is_ok());
    msix_set(1, 0, BAR, HOLE + 16 * PAGE - 248);
    assert_false(is_ok());
    pdev.vectors = -22;
    assert_false(is_ok());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_numbers, setup),    cmocka_unit_test_setup(test_pes, setup),
        cmocka_unit_test_setup(test_puts, setup),       cmocka_unit_test_setup(test_inside, setup),
        cmocka_unit_test_setup(test_apart, setup),      cmocka_unit_test_setup(test_msix, setup),
        cmocka_unit_test_setup(test_msix_large, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
