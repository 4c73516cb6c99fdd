/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guests that write nonsense: into rings, doorbells, tables, the admin queue and all of the BAR.
 * Their PEs fail, their device may need a reset, but the emulator lives, bystanders are served, and
 * after a reset the same node works. Arguments: rounds of each fuzzer, first seed; chaos by
 * EMU_CHAOS.
 */
#include "../common/data.h"
#include "guest_net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static unsigned rounds = 40;
static uint64_t seed   = 1;

/* ---- one thing wrong ------------------------------------------------------------------------- */

static void wait_failed(pe_t *pe)
{
    WAIT_FOR(pe_state(pe) == ANGARA_PE_FAILED);
}

/* A fresh PE in place of a failed one. */
static void renew(net_t *net)
{
    wait_failed(&net->a);
    pe_reset(&net->a);
    pe_create(&net->a, &net->guests[0], 3, DOM);
    pe_pair(&net->a, FAR, &net->b);
    pe_flush(&net->a, FAR);
}

/* Its owner sleeps: it is woken, as nothing else will come. */
static void bad_desc(net_t *net, struct angara_desc desc)
{
    pe_t    *pe = &net->a;
    uint64_t irqs;

    pe_arm(pe);
    irqs = *(const volatile __u64 *)&pe->status->counters[ANGARA_CNT_IRQS];
    pe_post(pe, &desc);
    wait_failed(pe);
    WAIT_FOR(*(const volatile __u64 *)&pe->status->counters[ANGARA_CNT_IRQS] == irqs + 1);
    renew(net);
}

static void test_nonsense_commands(void **state)
{
    struct angara_desc sound = {.op = ANGARA_OP_MARKER, .pair = FAR, .operand = 1};
    net_t              net;

    (void)state;
    net_start(&net, NULL);

#define BAD(...)                         \
    do {                                 \
        struct angara_desc desc = sound; \
                                         \
        __VA_ARGS__;                     \
        bad_desc(&net, desc);            \
    } while (0)

    BAD(desc.op = 0);
    BAD(desc.op = 7);
    BAD(desc.op = 255);
    BAD(desc.flags = 1);
    BAD(desc.pair = ANGARA_PAIRS_MAX);
    BAD(desc.pair = ~0u);
    BAD(desc.pair = 17); /* never set */
    BAD(desc.trigger_counter = 1);
    BAD(desc.trigger_threshold = 1);
    BAD(desc.signal_offset = 1);
    BAD(desc.signal_value = 1);
    BAD(desc.loffset = GUEST_SLOTS);
    BAD(desc.loffset = ~0ull);
    BAD(desc.op = ANGARA_OP_MARKER_SELF; desc.loffset = GUEST_SLOTS);
    BAD(desc.pio_prod = net.a.pio_prod + (1u << 20));
    BAD(desc.pio_prod = ~0ull);
    BAD(desc.op = ANGARA_OP_PUT_INLINE; desc.length = ANGARA_DESC_DATA + 1);
    BAD(desc.op = ANGARA_OP_ATOMIC; desc.width = 3);
    BAD(desc.op = ANGARA_OP_ATOMIC; desc.width = 8; desc.atomic = 6);
    BAD(desc.op = ANGARA_OP_PAIR; desc.compare = 1ull << 32);
#undef BAD
    net_stop(&net);
}

static void test_nonsense_puts(void **state)
{
    struct angara_put sound = {.op = ANGARA_PIO_PUT, .pair = FAR, .length = 8};
    net_t             net;

    (void)state;
    net_start(&net, NULL);

#define BAD(...)                            \
    do {                                    \
        struct angara_put head = sound;     \
                                            \
        __VA_ARGS__;                        \
        pe_put_raw(&net.a, &head, NULL, 1); \
        renew(&net);                        \
    } while (0)

    BAD(head.op = 0);
    BAD(head.op = 5);
    BAD(head.reserved = 1);
    BAD(head.reserved1 = 1);
    BAD(head.pair = 17);
    BAD(head.pair = ~0u);
    BAD(head.op = ANGARA_PIO_NOTIFY; head.length = 65);
    BAD(head.length = (uint16_t)(net.guests[0].control->put_max + 1));
    BAD(head.length = 65535); /* beyond the end of the ring */
#undef BAD
    net_stop(&net);
}

static void test_nonsense_doorbells(void **state)
{
    net_t net;

    (void)state;
    net_start(&net, NULL);
    net.a.doorbell->cmd_prod = net.a.cmd_prod + GUEST_CMDS + 1;
    renew(&net);
    net.a.doorbell->cmd_prod = net.a.cmd_prod - 1;
    renew(&net);
    net.a.doorbell->event_cons = net.a.event_cons + 1; /* ahead of the producer */
    renew(&net);
    net.a.doorbell->event_cons = ~0u;
    renew(&net);
    net_stop(&net);
}

/* A RAM file that shrinks under the device: the pages are lost, not the emulator. */
static void test_shrunk_ram(void **state)
{
    char     path[128];
    region_t near, far;
    net_t    net;

    (void)state;
    net_start(&net, NULL);
    net.guests[1].ram_used = GUEST_RAM / 2;
    region_register(&near, &net.guests[0], DOM, 100000, ALL, 1, 12, 0);
    region_register(&far, &net.guests[1], DOM, 100000, ALL, 0, 12, 0);
    snprintf(path, sizeof(path), "%s/ram1", net.fabric.dir);
    assert_int_equal(truncate(path, GUEST_RAM / 2), 0);
    pe_rma(&net.a, ANGARA_OP_PUT, FAR, &near, 0, &far, 0, 100000);
    pe_flush(&net.a, FAR);
    pe_rma(&net.a, ANGARA_OP_GET, FAR, &near, 0, &far, 0, 100000);
    pe_flush(&net.a, FAR);
    net_stop(&net);
}

/* ---- everything wrong ------------------------------------------------------------------------ */

static uint64_t draw(uint64_t below)
{
    return (random_next(&seed) >> 16) % below;
}

/* Numbers that break things. */
static uint64_t draw_number(void)
{
    switch (draw(8)) {
    case 0:
        return 0;
    case 1:
        return ~0ull - draw(100);
    case 2:
        return 1ull << draw(64);
    case 3:
        return (1ull << draw(64)) - draw(3);
    case 4:
        return GUEST_RAM - draw(200);
    case 5:
        return draw(1u << 24) & ~4095ull;
    default:
        return draw(100);
    }
}

static void scribble(void *memory, size_t length)
{
    for (size_t i = 0; i + 8 <= length; i += 8) {
        if (draw(4) == 0) {
            *(volatile uint64_t *)((char *)memory + i) = draw(2) ? draw_number() : draw(1ull << 48);
        }
    }
}

/* The bystanders: b on its node and another beside the victim's device. */
static void check_bystanders(net_t *net, pe_t *other, uint64_t value)
{
    uint64_t *word = pe_window(other, 64);

    pe_put_flag(&net->b, 1, 0, "alive", 5, 64, value);
    WAIT_FOR(__atomic_load_n(word, __ATOMIC_ACQUIRE) == value);
    pe_flush(&net->b, 1);
    assert_int_equal(pe_state(&net->b), ANGARA_PE_RUNNING);
}

static void bystanders_start(net_t *net, guest_t *third, pe_t *other)
{
    const char *options[] = {"--chaos", getenv("EMU_CHAOS"), NULL};

    fabric_start(&net->fabric, 3, getenv("EMU_CHAOS") != NULL ? options : NULL);
    guest_connect(&net->guests[0], &net->fabric, 0);
    guest_connect(&net->guests[1], &net->fabric, 1);
    guest_connect(third, &net->fabric, 2);
    guest_bind(&net->guests[0]);
    guest_bind(&net->guests[1]);
    guest_bind(third);
    pe_create(&net->b, &net->guests[1], 3, DOM);
    pe_create(other, third, 0, DOM);
    pe_pair(&net->b, 1, other);
}

static void bystanders_stop(net_t *net, guest_t *third)
{
    guest_disconnect(third);
    net_stop(net);
}

/* Give back all memory but what binding took: every round takes the same. */
static void fresh_victim(net_t *net, uint64_t mark)
{
    net->guests[0].ram_used = mark;
    guest_bind(&net->guests[0]);
    pe_create(&net->a, &net->guests[0], 3, DOM);
    pe_create(&net->c, &net->guests[0], 9, DOM);
    pe_pair(&net->a, FAR, &net->b);
    pe_pair(&net->a, NEAR, &net->c);
}

/* Words that an owner may write: the BAR's pages, its rings. */
static void fuzz_rings(net_t *net)
{
    region_t local;
    uint32_t first = net->guests[0].next_mr;

    region_register(&local, &net->guests[0], DOM, 10000, ALL, 1, 12, 0);
    for (unsigned i = 0; i < 200 && pe_state(&net->a) == ANGARA_PE_RUNNING; ++i) {
        struct angara_desc desc = {.op      = (uint8_t)(1 + draw(6)),
                                   .pair    = (uint32_t)draw(2),
                                   .width   = draw(2) ? 4 : 8,
                                   .atomic  = (uint8_t)draw(6),
                                   .lkey    = draw(8) ? local.key : draw_number(),
                                   .rkey    = draw(8) ? local.key : draw_number(),
                                   .loffset = draw(3) ? draw(32) : draw_number(),
                                   .roffset = draw_number(),
                                   .length  = draw(2) ? draw(33) : draw_number(),
                                   .operand = draw_number(),
                                   .compare = draw(100)};
        struct angara_put  head = {.op          = (uint8_t)(1 + draw(4)),
                                   .pair        = (uint32_t)draw(2),
                                   .length      = (uint16_t)draw(2000),
                                   .offset      = draw_number(),
                                   .flag_offset = draw_number()};

        if (draw(20) == 0) {
            scribble(&desc, sizeof(desc));
        }
        if (draw(20) == 0) {
            scribble((char *)&head + 8, sizeof(head) - 8);
        }
        if (draw(10) == 0) {
            desc = (struct angara_desc){.op      = ANGARA_OP_PAIR,
                                        .pair    = (uint32_t)draw(2),
                                        .operand = (uint64_t)draw(4) << 32 | draw(12),
                                        .compare = draw(20)};
        }
        /* Blindly: a failed PE doesn't make room. */
        net->a.cmd[net->a.cmd_prod % GUEST_CMDS] = desc;
        __atomic_store_n(&net->a.doorbell->cmd_prod, ++net->a.cmd_prod, __ATOMIC_RELEASE);
        memcpy(net->a.pio + net->a.status->pio_cons % 1024 * ANGARA_PIO_GRANULE + 4,
               (char *)&head + 4, sizeof(head) - 4);
        *(volatile uint32_t *)(net->a.pio + net->a.status->pio_cons % 1024 *
                                                ANGARA_PIO_GRANULE) = net->a.status->pio_cons + 1;
        if (draw(4) == 0) {
            WAIT_FOR(pe_state(&net->a) != ANGARA_PE_RUNNING ||
                     net->a.status->cmd_cons != net->a.cmd_prod - 1);
        }
        if (draw(3) == 0) {
            net->a.doorbell->event_cons = net->a.status->event_prod;
        }
    }
    net->guests[0].next_mr = first;
}

/* What only a driver may write. */
static void fuzz_tables(net_t *net)
{
    region_t local;
    uint32_t first = net->guests[0].next_mr;

    region_register(&local, &net->guests[0], DOM, 100000, ALL, 1 + (unsigned)draw(3), 12, 0);
    for (unsigned i = 0; i < 50; ++i) {
        struct angara_hw_mr *mr = region_entry(&local);

        scribble((char *)mr + 8, sizeof(*mr) - 8);
        mr->page_shift = (uint8_t)draw(40);
        mr->levels     = (uint8_t)draw(5);
        mr->state      = draw(4) ? ANGARA_HW_MR_LIVE : ANGARA_HW_MR_SUSPENDED;
        if (draw(2)) {
            mr->page_shift = 12;
            mr->domain     = DOM;
            mr->access     = ALL;
            mr->npages     = 1 + draw(600);
            mr->length     = mr->npages * 4096 - mr->first % 4096;
            mr->first %= 4096;
        }
        scribble(guest_at(&net->guests[0], local.pages[0] + GUEST_PAGE * 25), GUEST_PAGE * 3);
        scribble(net->a.window, GUEST_WINDOW * 8);
        if (draw(4) == 0) {
            scribble(net->a.leaves, sizeof(*net->a.leaves));
        }
        guest_admin_args(&net->guests[0], ANGARA_HW_MR_INVALIDATE, local.key, 0);
        guest_admin_args(&net->guests[0], ANGARA_HW_WINDOW_SYNC, net->a.hw.index, 0);
        pe_rma(&net->c, draw(2) ? ANGARA_OP_PUT : ANGARA_OP_GET, 0, &local, draw_number(), &local,
               draw_number(), draw(2) ? draw(100000) : draw_number());
        if (mr->state == ANGARA_HW_MR_SUSPENDED) { /* what meets it would wait for ever */
            mr->state = ANGARA_HW_MR_LIVE;
            guest_admin_args(&net->guests[0], ANGARA_HW_MR_INVALIDATE, local.key, 0);
        }
        pe_pair(&net->c, 0, &net->a);
        pe_put(&net->c, 0, draw(GUEST_WINDOW * GUEST_PAGE), "x", 1);
        net->c.doorbell->event_cons = net->c.status->event_prod;
    }
    net->guests[0].next_mr = first;
}

static void fuzz_admin(net_t *net)
{
    guest_t *guest = &net->guests[0];

    for (unsigned i = 0; i < 100; ++i) {
        struct angara_hw_cmd cmd = {.opcode = (uint32_t)draw(9)};

        if (cmd.opcode == ANGARA_HW_PE_CREATE) {
            cmd.pe = net->a.hw;
            scribble(&cmd.pe, sizeof(cmd.pe));
            cmd.pe.index = (uint32_t)draw(70);
        } else {
            cmd.args[0] = draw(2) ? draw(70) : draw_number();
            cmd.args[1] = draw(2) ? draw(20) : draw_number();
        }
        guest_admin(guest, &cmd);
    }
}

static void fuzz_bar(net_t *net)
{
    guest_t *guest = &net->guests[0];

    for (unsigned i = 0; i < 200; ++i) {
        switch (draw(4)) {
        case 0:
            scribble((char *)guest->bar + 128, 64); /* requests of the driver */
            break;
        case 1:
            scribble(guest->bar + draw(guest->bar_size / 4096) * 4096, 4096);
            break;
        case 2:
            scribble(guest->bar + guest->control->doorbell_offset % guest->bar_size / 2, 4096);
            break;
        default:
            scribble(guest->ram + draw(GUEST_RAM / 4096) * 4096, 4096);
            break;
        }
    }
}

/* Reset by hand: what the driver wrote and read is scribbled over. */
static void recover(net_t *net)
{
    guest_t *guest = &net->guests[0];

    fabric_control(&net->fabric, "remove 0");
    fabric_control(&net->fabric, "replug 0");
    guest->resp = NULL;
    assert_true(guest->control->magic == ANGARA_HW_MAGIC);
}

static void run_fuzzer(void (*fuzzer)(net_t *net))
{
    guest_t  third;
    pe_t     other;
    net_t    net;
    uint64_t mark;

    bystanders_start(&net, &third, &other);
    mark = net.guests[0].ram_used;
    for (unsigned i = 0; i < rounds; ++i) {
        fresh_victim(&net, mark);
        if (fuzzer == fuzz_tables) {
            pe_pair(&net.c, 0, &net.a);
        }
        fuzzer(&net);
        check_bystanders(&net, &other, i + 1);
        recover(&net);
    }
    bystanders_stop(&net, &third);
}

static void test_fuzz_rings(void **state)
{
    (void)state;
    run_fuzzer(fuzz_rings);
}

static void test_fuzz_tables(void **state)
{
    (void)state;
    run_fuzzer(fuzz_tables);
}

static void test_fuzz_admin(void **state)
{
    (void)state;
    run_fuzzer(fuzz_admin);
}

static void test_fuzz_bar(void **state)
{
    (void)state;
    run_fuzzer(fuzz_bar);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nonsense_commands),  cmocka_unit_test(test_nonsense_puts),
        cmocka_unit_test(test_nonsense_doorbells), cmocka_unit_test(test_shrunk_ram),
        cmocka_unit_test(test_fuzz_rings),         cmocka_unit_test(test_fuzz_tables),
        cmocka_unit_test(test_fuzz_admin),         cmocka_unit_test(test_fuzz_bar),
    };

    rounds = argc > 1 ? (unsigned)atoi(argv[1]) : rounds;
    seed   = argc > 2 ? strtoull(argv[2], NULL, 0) : seed;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
