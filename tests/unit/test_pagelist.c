/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Page lists of regions (kmod/nic/emu/pagelist.c) from scatter lists as drivers of all kinds hand
 * them out: runs and holes as behind an IOMMU, segments that meet inside a page, parts of a list.
 * Each list is walked as the device walks it (angara_hw.h), and must lead to the bytes of the list.
 */
#include "pagelist.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define PAGE     4096ull
#define SEGMENTS 2048u
#define FANOUT   512u

static struct device device;

/* ---- the kernel's memory --------------------------------------------------------------------- */

static long     live;      /* blocks that haven't been freed */
static unsigned countdown; /* n: the n-th allocation from here on fails */
static unsigned killed_at; /* n: the process is being killed when so many blocks are there */
static bool     going;

int fatal_signal_pending(const void *task)
{
    (void)task;
    return killed_at != 0 && live >= (long)killed_at;
}

static int fails(void)
{
    return countdown != 0 && --countdown == 0;
}

void *dma_alloc_coherent(struct device *dev, size_t size, dma_addr_t *dma, gfp_t gfp)
{
    void *memory = fails() ? NULL : aligned_alloc(PAGE, size);

    (void)dev, (void)gfp;
    if (memory != NULL) {
        memset(memory, 0, size);
        *dma = (uintptr_t)memory;
        live++;
    }
    return memory;
}

void dma_free_coherent(struct device *dev, size_t size, void *memory, dma_addr_t dma)
{
    (void)dev;
    assert_int_equal(size, PAGE);
    assert_ptr_equal(memory, (void *)(uintptr_t)dma);
    free(memory);
    live--;
}

void *kvcalloc(size_t count, size_t size, gfp_t gfp)
{
    void *memory = fails() ? NULL : calloc(count, size);

    (void)gfp;
    live += memory != NULL;
    return memory;
}

void kvfree(void *memory)
{
    live -= memory != NULL;
    free(memory);
}

/* ---- scatter lists --------------------------------------------------------------------------- */

static struct scatterlist segments[SEGMENTS];
static struct sg_table    table = {.sgl = segments};

static void table_clear(void)
{
    table.nents = 0;
}

static void table_add(u64 address, u64 length)
{
    struct scatterlist *sg = &segments[table.nents];

    assert_true(table.nents < SEGMENTS && length <= UINT32_MAX);
    *sg = (struct scatterlist){address, (unsigned)length, NULL};
    if (table.nents != 0) {
        sg[-1].next = sg;
    }
    table.nents++;
}

static u64 table_length(void)
{
    u64 length = 0;

    for (unsigned i = 0; i < table.nents; ++i) {
        length += segments[i].dma_length;
    }
    return length;
}

/* Bus address of a byte of the list. */
static u64 table_at(u64 offset)
{
    unsigned i = 0;

    while (offset >= segments[i].dma_length) {
        offset -= segments[i++].dma_length;
    }
    return segments[i].dma_address + offset;
}

/* ---- the device's view ----------------------------------------------------------------------- */

static u64 list_at(const struct angara_pagelist *list, u64 offset)
{
    u64 position = list->first + offset;
    u64 page = position >> list->page_shift, at = list->root;

    assert_true(page < list->npages);
    if (list->levels == 0) {
        return at + position;
    }
    for (unsigned level = list->levels; level-- != 0;) {
        at = ((const u64 *)(uintptr_t)at)[(page >> (9 * level)) % FANOUT];
        assert_int_equal(at % PAGE, 0);
    }
    return at + (position & (BIT_ULL(list->page_shift) - 1));
}

/* Each page's ends, and those of each segment, lead to where the scatter list has them. */
static void list_check(const struct angara_pagelist *list, u64 offset, u64 length)
{
    u64 at = 0;

    assert_true(list->page_shift >= 12 && list->page_shift <= 30 && list->levels <= 3);
    assert_true(list->first < BIT_ULL(list->page_shift));
    assert_int_equal(list->npages,
                     (list->first + length + BIT_ULL(list->page_shift) - 1) >> list->page_shift);
    assert_true(list->levels == 0 || list->npages <= BIT_ULL(9 * list->levels));
    for (u64 step = 0; at < length; at += step) {
        u64 last = (at / PAGE + 1) * PAGE - 1;

        assert_int_equal(list_at(list, at), table_at(offset + at));
        last = last < length ? last : length - 1;
        assert_int_equal(list_at(list, last), table_at(offset + last));
        step = last + 1 - at;
    }
    for (u64 begin = 0, i = 0; i < table.nents; begin += segments[i++].dma_length) {
        for (u64 edge = begin; edge <= begin + 1; ++edge) {
            if (edge > offset && edge - 1 - offset < length) {
                assert_int_equal(list_at(list, edge - 1 - offset), table_at(edge - 1));
            }
        }
    }
}

/* Build it, check it, give it back. What it came to is in *list, of which the nodes are gone. */
static void list_try(struct angara_pagelist *list, u64 offset, u64 length)
{
    assert_int_equal(emu_pagelist_build(&device, list, &table, offset, length, &going), 0);
    list_check(list, offset, length);
    emu_pagelist_free(&device, list);
    assert_int_equal(live, 0);
}

static void refused(int error, u64 offset, u64 length)
{
    struct angara_pagelist list;

    assert_int_equal(emu_pagelist_build(&device, &list, &table, offset, length, &going), error);
    assert_int_equal(live, 0);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* One run, of one segment or of many: no list at all, and the largest page. */
static void test_run(void **state)
{
    struct angara_pagelist list;

    (void)state;
    table_clear();
    table_add(0x100000123, 100);
    list_try(&list, 0, 100);
    assert_int_equal(list.levels, 0);
    assert_int_equal(list.page_shift, 12);
    assert_int_equal(list.npages, 1);

    table_clear();
    for (unsigned i = 0; i < 1024; ++i) {
        table_add(0x40000000 + i * PAGE, PAGE);
    }
    list_try(&list, 0, 1024 * PAGE);
    assert_int_equal(list.levels, 0);
    assert_int_equal(list.page_shift, 22);
    assert_int_equal(list.npages, 1);

    table_clear();
    table_add(7ull << 30, 3ull << 30);
    table_add(10ull << 30, 1ull << 30);
    list_try(&list, 0, 4ull << 30);
    assert_int_equal(list.levels, 0);
    assert_int_equal(list.page_shift, 30);
}

/* Neighbours that meet inside a page, or inside a large one, are one run. */
static void test_merged(void **state)
{
    struct angara_pagelist list;

    (void)state;
    table_clear();
    table_add(0x1000, 0x800);
    table_add(0x1800, 0x800); /* meets inside a page */
    table_add(0x2000, 1);
    table_add(0x2001, 0xfff);
    table_add(0x9000, 0x1000); /* a gap */
    list_try(&list, 0, table_length());
    assert_int_equal(list.levels, 1);
    assert_int_equal(list.page_shift, 12);
    assert_int_equal(list.npages, 3);

    table_clear();
    table_add(2ull << 20, 1ull << 20);
    table_add(3ull << 20, 1ull << 20);
    table_add(10ull << 20, 2ull << 20);
    list_try(&list, 0, table_length());
    assert_int_equal(list.page_shift, 21);
    assert_int_equal(list.npages, 2);
}

/* As behind an IOMMU: long runs with gaps, and one at the end of the list that has no bytes. */
static void test_gaps(void **state)
{
    struct angara_pagelist list;

    (void)state;
    table_clear();
    table_add(0xffff0000, 0x10000);
    table_add(0x200000000, 0x30000);
    table_add(0x180000000, 0x20000);
    table_add(0x500000000, 0);
    list_try(&list, 0, table_length());
    assert_int_equal(list.page_shift, 16);
    assert_int_equal(list.npages, 6);
}

/* The pages are as large as the coarsest boundary allows. */
static void test_shifts(void **state)
{
    struct angara_pagelist list;

    (void)state;
    for (unsigned shift = 12; shift <= 30; ++shift) {
        u64 page = 1ull << shift;

        table_clear();
        table_add(3 * page + 17, page - 17); /* begins inside */
        table_add(8 * page, page);
        table_add(5 * page, page - 5); /* ends inside */
        assert_int_equal(emu_pagelist_build(&device, &list, &table, 0, table_length(), &going), 0);
        assert_int_equal(list.page_shift, shift);
        assert_int_equal(list.first, 17);
        assert_int_equal(list.npages, 3);
        if (shift < 20) {
            list_check(&list, 0, table_length());
        }
        emu_pagelist_free(&device, &list);
    }
}

static void test_levels(void **state)
{
    static const struct {
        unsigned pages, levels;
    } cases[] = {{2, 1}, {512, 1}, {513, 2}, {1500, 2}, {SEGMENTS, 2}};
    struct angara_pagelist list;

    (void)state;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        table_clear();
        for (unsigned page = 0; page < cases[i].pages; ++page) {
            table_add((2 * page + 2) * PAGE, PAGE);
        }
        list_try(&list, 0, cases[i].pages * PAGE);
        assert_int_equal(list.levels, cases[i].levels);
        assert_int_equal(list.page_shift, 12);
    }
    /* Three: few segments, many pages. */
    table_clear();
    table_add(1ull << 32, 1ull << 30);
    table_add((1ull << 33) + PAGE, 1ull << 30);
    list_try(&list, 0, table_length());
    assert_int_equal(list.levels, 3);
    assert_int_equal(list.npages, 1u << 19);
}

/* A part of a list: what isn't in it neither counts for the page size, nor need be aligned. */
static void test_clipped(void **state)
{
    struct angara_pagelist list;

    (void)state;
    table_clear();
    table_add(0x10000123, 0x77); /* boundaries that a page can't have */
    table_add(0x20000000, 0x200000);
    table_add(0x40000000, 0x200000);
    table_add(0x60000001, 0x1000);
    list_try(&list, 0x77, 0x400000);
    assert_int_equal(list.page_shift, 21);
    assert_int_equal(list.npages, 2);
    list_try(&list, 0x77 + 0x1ff000, 0x2000);
    assert_int_equal(list.npages, 2);
    list_try(&list, 0x77 + 5, 100); /* inside of one segment: a run */
    assert_int_equal(list.levels, 0);
    list_try(&list, 3, 0x70);
    assert_int_equal(list.levels, 0);
    list_try(&list, 0x77, 0x200000); /* up to a boundary, and from one on */
    assert_int_equal(list.levels, 0);
    list_try(&list, 0x77 + 0x200000, 0x200000);
    assert_int_equal(list.levels, 0);
    list_try(&list, 0x77 + 0x400000, 0x1000);
    assert_int_equal(list.levels, 0);
    for (u64 offset = 0x77 + 0x200000 - 3 * PAGE; offset < 0x77 + 0x200000; offset += 1009) {
        list_try(&list, offset, 5 * PAGE);
    }
}

/* What the device can't be told. */
static void test_refused(void **state)
{
    (void)state;
    table_clear();
    table_add(0x10000, 0x1800); /* ends inside a page, and another follows */
    table_add(0x20000, 0x1000);
    refused(-EINVAL, 0, 0x2800);
    refused(-EINVAL, 0x17ff, 2);
    table_clear();
    table_add(0x10000, 0x1000);
    table_add(0x20200, 0x1000); /* begins inside a page */
    refused(-EINVAL, 0, 0x2000);
    table_clear();
    table_add(0x10000, 0x1000);
    refused(-EINVAL, 0, 0x1001); /* shorter than the region */
    refused(-EINVAL, 0x1000, 1);
    refused(-EINVAL, 0xfff, 2);
    table_clear();
    refused(-EINVAL, 0, 1);
    for (unsigned i = 0; i < 200; ++i) { /* more pages of 4 KiB than three levels have */
        table_add((u64)(2 * i + 1) * (1ull << 33) + PAGE * (i % 2), 0xfffff000);
    }
    refused(-EINVAL, 0, table_length());
}

/* An allocation that fails leaves nothing behind, whichever it is. */
static void test_no_memory(void **state)
{
    struct angara_pagelist list;
    unsigned               n = 0;
    int                    ret;

    (void)state;
    table_clear();
    for (unsigned page = 0; page < SEGMENTS; ++page) {
        table_add((2 * page + 2) * PAGE, PAGE);
    }
    do {
        countdown = ++n;
        ret       = emu_pagelist_build(&device, &list, &table, 0, SEGMENTS * PAGE, &going);
        if (ret != 0) {
            assert_int_equal(ret, -ENOMEM);
            assert_int_equal(live, 0);
        }
    } while (ret != 0);
    countdown = 0;
    assert_int_equal(n, 1 + 1 + SEGMENTS / FANOUT + 1); /* the array, leaves, their parent */
    emu_pagelist_free(&device, &list);
    assert_int_equal(live, 0);
}

/* A long list isn't made to its end for a process that is being killed, nor for a device that goes.
 */
static void test_given_up(void **state)
{
    (void)state;
    table_clear();
    for (unsigned page = 0; page < SEGMENTS; ++page) {
        table_add((2 * page + 2) * PAGE, PAGE);
    }
    killed_at = 3;
    refused(-EINTR, 0, SEGMENTS * PAGE);
    killed_at = 0;
    going     = true;
    refused(-ENODEV, 0, SEGMENTS * PAGE);
    going = false;
}

static u64 draw(u64 below)
{
    static u64 state = 1;

    state = state * 6364136223846793005ull + 1442695040888963407ull; /* Knuth, MMIX */
    return (state >> 33) % below;
}

/* Lists and parts of them at random. */
static void test_random(void **state)
{
    struct angara_pagelist list;

    (void)state;
    for (unsigned round = 0; round < 3000; ++round) {
        unsigned count = 1 + (unsigned)draw(20), shift = 12 + (unsigned)draw(6);
        u64      at = 1ull << 32, length;

        table_clear();
        for (unsigned i = 0; i < count; ++i) {
            u64 pages = 1 + draw(5);

            at += draw(3) << shift;
            table_add(at, pages << shift);
            at += pages << shift;
        }
        length = table_length();
        for (unsigned i = 0; i < 3; ++i) {
            u64 offset = draw(length);

            list_try(&list, offset, 1 + draw(length - offset));
            assert_true(list.levels == 0 || list.page_shift >= shift ||
                        list.npages << list.page_shift < 2ull << shift);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run),      cmocka_unit_test(test_merged),
        cmocka_unit_test(test_gaps),     cmocka_unit_test(test_shifts),
        cmocka_unit_test(test_levels),   cmocka_unit_test(test_clipped),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_given_up), cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests_name("pagelist", tests, NULL, NULL);
}
