/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The emulated NIC as its driver sees it: ivshmem, registers, handshakes, the admin queue, PEs'
 * life, and what the control socket can do to all that.
 */
#include "guest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void test_ivshmem(void **state)
{
    fabric_t fabric;
    guest_t  guest;

    (void)state;
    fabric_start(&fabric, 2, NULL);
    for (int round = 0; round < 2; ++round) { /* another VM at the same socket */
        guest_connect(&guest, &fabric, 1);
        assert_true(guest.control->magic == ANGARA_HW_MAGIC);
        assert_int_equal(guest.control->version, ANGARA_HW_VERSION);
        assert_int_equal(guest.control->node, 1);
        assert_int_equal(guest.vectors, GUEST_VECTORS);
        assert_int_equal(guest.control->link, 1);
        assert_int_equal(guest.control->pe_max, 64);
        assert_int_equal(guest.control->put_max, 16 + 511 * 64); /* half of a ring */
        assert_int_equal(guest.control->window_pages_max, 1u << 18);
        assert_int_equal(guest.control->offload_max, 1u << 30);
        assert_int_equal(guest.control->doorbell_offset % GUEST_PAGE, 0);
        assert_int_equal(guest.control->pio_offset % GUEST_PAGE, 0);
        assert_true(guest.control->pio_offset +
                        (uint64_t)guest.control->pe_max * guest.control->pio_bytes <=
                    guest.bar_size);
        guest_bind(&guest);
        assert_string_equal(fabric_control(&fabric, "state 1"),
                            "vm=1 dma=1 link=1 reset_ack=1 pes=0 failed=0 pending=0 "
                            "key_mismatches=0 muted_ms=0");
        guest_disconnect(&guest);
    }
    fabric_stop(&fabric);
}

static void test_alive(void **state)
{
    fabric_t fabric;
    guest_t  guest;
    uint32_t before;

    (void)state;
    fabric_start(&fabric, 1, NULL);
    guest_connect(&guest, &fabric, 0);
    before = guest.control->alive;
    WAIT_FOR(__atomic_load_n(&guest.control->alive, __ATOMIC_ACQUIRE) != before);
    guest_disconnect(&guest);
    fabric_stop(&fabric);
}

static void test_admin(void **state)
{
    struct angara_hw_cmd cmd    = {.opcode = ANGARA_HW_NOP};
    struct angara_hw_cmd no_end = {.opcode = ANGARA_HW_PE_RESET, .args = {0, 1, 2}};
    fabric_t             fabric;
    guest_t              guest;

    (void)state;
    fabric_start(&fabric, 1, NULL);
    guest_connect(&guest, &fabric, 0);
    guest_bind(&guest);
    for (unsigned i = 0; i < 3 * GUEST_ADMIN; ++i) { /* the rings wrap */
        assert_int_equal(guest_admin(&guest, &cmd), ANGARA_HW_OK);
    }
    guest_irq_wait(&guest, 0);
    assert_int_equal(guest_admin_args(&guest, 77, 0, 0), ANGARA_HW_EINVAL);
    assert_int_equal(guest_admin_args(&guest, 0, 0, 0), ANGARA_HW_EINVAL);
    assert_int_equal(guest_admin_args(&guest, ANGARA_HW_SETUP, GUEST_RAM, 16), ANGARA_HW_EFAULT);
    assert_int_equal(guest_admin_args(&guest, ANGARA_HW_SETUP, 8, 16), ANGARA_HW_EINVAL);
    assert_int_equal(guest_admin_args(&guest, ANGARA_HW_SETUP, 0, 1ull << 32), ANGARA_HW_EINVAL);
    assert_int_equal(guest_admin_args(&guest, ANGARA_HW_PE_RESET, 64, 1), ANGARA_HW_EINVAL);
    assert_int_equal(guest_admin_args(&guest, ANGARA_HW_PE_RESET, 1ull << 40, 1), ANGARA_HW_EINVAL);
    assert_int_equal(guest_admin_args(&guest, ANGARA_HW_PE_RESET, 0, 1), ANGARA_HW_ESTALE);
    assert_int_equal(guest_admin(&guest, &no_end), ANGARA_HW_EINVAL);
    assert_int_equal(guest_admin_args(&guest, ANGARA_HW_WINDOW_SYNC, 0, 0), ANGARA_HW_ESTALE);
    assert_int_equal(guest_admin_args(&guest, ANGARA_HW_MR_INVALIDATE, ~0ull, 0), ANGARA_HW_OK);
    guest_disconnect(&guest);
    fabric_stop(&fabric);
}

/* Interrupts of responses so far. */
static uint64_t admin_irqs(guest_t *guest)
{
    static uint64_t total;
    uint64_t        count;

    if (read(guest->irq_fds[0], &count, sizeof(count)) == (ssize_t)sizeof(count)) {
        total += count;
    }
    return total;
}

/* Interrupts come for the responses that they are wanted for, and no others. */
static void test_admin_quiet(void **state)
{
    struct angara_hw_cmd cmd  = {.opcode = ANGARA_HW_NOP};
    uint64_t             loud = 1; /* that of guest_bind() */
    fabric_t             fabric;
    guest_t              guest;

    (void)state;
    fabric_start(&fabric, 1, NULL);
    guest_connect(&guest, &fabric, 0);
    guest_bind(&guest);
    for (unsigned i = 0; i < 200; ++i) {
        uint32_t quiet = i / 3 % 2;

        fabric_control(&fabric, "state 0"); /* it has looked at the flag for the last one */
        __atomic_store_n(&guest.control->admin_quiet, quiet, __ATOMIC_SEQ_CST);
        assert_int_equal(guest_admin(&guest, &cmd), ANGARA_HW_OK);
        loud += !quiet;
        if (i % 7 == 0) {
            WAIT_FOR(admin_irqs(&guest) >= loud);
        }
    }
    /* Behind a quiet one no interrupt is on its way. */
    fabric_control(&fabric, "state 0");
    __atomic_store_n(&guest.control->admin_quiet, 1, __ATOMIC_SEQ_CST);
    assert_int_equal(guest_admin(&guest, &cmd), ANGARA_HW_OK);
    WAIT_FOR(admin_irqs(&guest) >= loud);
    assert_int_equal(admin_irqs(&guest), loud);
    guest_disconnect(&guest);
    fabric_stop(&fabric);
}

/* With commands answered late or in any order, each still gets one answer with its id. */
static void test_admin_order(void **state)
{
    static const char *const options[] = {"--chaos", "7", "--chaos-delay", "300", NULL};
    struct angara_hw_cmd     cmd       = {.opcode = ANGARA_HW_NOP};
    uint32_t                 first = 0, seen, reordered = 0;
    fabric_t                 fabric;
    guest_t                  guest;

    (void)state;
    fabric_start(&fabric, 1, options);
    guest_connect(&guest, &fabric, 0);
    guest_bind(&guest);
    for (unsigned round = 0; round < 20; ++round) {
        for (unsigned i = 0; i < GUEST_ADMIN; ++i) {
            uint32_t id = guest_admin_post(&guest, &cmd);

            first = i == 0 ? id : first;
        }
        seen = 0;
        for (unsigned i = 0; i < GUEST_ADMIN; ++i) {
            uint32_t id = guest_admin_take(&guest).id - first;

            assert_true(id < GUEST_ADMIN);
            assert_int_equal(seen & (1u << id), 0);
            seen |= 1u << id;
            reordered += id != i;
        }
    }
    assert_true(reordered != 0);
    guest_disconnect(&guest);
    fabric_stop(&fabric);
}

static void test_pe_life(void **state)
{
    fabric_t fabric;
    guest_t  guest;
    pe_t     pe, again;

    (void)state;
    fabric_start(&fabric, 1, NULL);
    guest_connect(&guest, &fabric, 0);
    guest_bind(&guest);

    pe_create(&pe, &guest, 5, 1);
    assert_int_equal(pe.status->link, 1);
    pe_prepare(&again, &guest, 5, 1);
    assert_int_equal(pe_create_status(&again), ANGARA_HW_EBUSY);
    assert_int_equal(guest_admin_args(&guest, ANGARA_HW_PE_RESET, 5, pe.hw.generation + 9),
                     ANGARA_HW_ESTALE);
    assert_int_equal(guest_admin_args(&guest, ANGARA_HW_WINDOW_SYNC, 5, 0), ANGARA_HW_OK);

    /* What it leaves in the BAR is nothing to the next one. */
    pe_pair(&pe, 0, &pe);
    pe_put(&pe, 0, 0, "x", 1);
    WAIT_FOR(pe.status->pio_cons == 1);
    pe.doorbell->arm = 77;
    pe_reset(&pe);
    assert_int_equal(pe_state(&pe), ANGARA_PE_GONE);
    assert_int_equal(pe_create_status(&again), ANGARA_HW_OK);
    assert_int_equal(again.doorbell->cmd_prod, 0);
    assert_int_equal(again.doorbell->arm, 0);
    pe_pair(&again, 0, &again);
    WAIT_FOR(again.status->cmd_cons == 1);
    assert_int_equal(again.status->pio_cons, 0);
    assert_int_equal(pe_state(&again), ANGARA_PE_RUNNING);
    guest_disconnect(&guest);
    fabric_stop(&fabric);
}

static void expect_refused(guest_t *guest, const struct angara_hw_pe *hw, uint32_t status)
{
    struct angara_hw_cmd cmd = {.opcode = ANGARA_HW_PE_CREATE};

    cmd.pe = *hw;
    assert_int_equal(guest_admin(guest, &cmd), status);
}

static void test_pe_refused(void **state)
{
    struct angara_hw_pe hw;
    fabric_t            fabric;
    guest_t             guest;
    pe_t                pe;

    (void)state;
    fabric_start(&fabric, 1, NULL);
    guest_connect(&guest, &fabric, 0);
    guest_bind(&guest);
    pe_prepare(&pe, &guest, 0, 1);

#define REFUSED(_field, _value, _status)        \
    do {                                        \
        hw        = pe.hw;                      \
        hw._field = (_value);                   \
        expect_refused(&guest, &hw, (_status)); \
    } while (0)

    REFUSED(index, 64, ANGARA_HW_EINVAL);
    REFUSED(index, ~0u, ANGARA_HW_EINVAL);
    REFUSED(generation, 0, ANGARA_HW_EINVAL);
    REFUSED(vector, GUEST_VECTORS, ANGARA_HW_EINVAL);
    REFUSED(cmd_entries, 0, ANGARA_HW_EINVAL);
    REFUSED(cmd_entries, 48, ANGARA_HW_EINVAL);
    REFUSED(event_entries, 1u << 31, ANGARA_HW_EINVAL);
    REFUSED(marker_slots, 0, ANGARA_HW_EINVAL);
    REFUSED(marker_slots, guest.control->marker_slots + 1, ANGARA_HW_EINVAL);
    REFUSED(window_pages, ~0u, ANGARA_HW_EINVAL);
    REFUSED(cmd, pe.hw.cmd + 8, ANGARA_HW_EINVAL);
    REFUSED(cmd, GUEST_RAM - 64, ANGARA_HW_EFAULT);
    REFUSED(cmd, ~63ull, ANGARA_HW_EFAULT);
    REFUSED(event, GUEST_RAM, ANGARA_HW_EFAULT);
    REFUSED(status, 1ull << 32, ANGARA_HW_EFAULT);
    REFUSED(marker, 1ull << 63, ANGARA_HW_EFAULT);
    REFUSED(window, GUEST_RAM, ANGARA_HW_EFAULT);
#undef REFUSED
    assert_int_equal(pe_create_status(&pe), ANGARA_HW_OK);
    guest_disconnect(&guest);
    fabric_stop(&fabric);
}

/* A reset forgets everything, and the admin queue starts from nothing. */
static void test_reset(void **state)
{
    fabric_t fabric;
    guest_t  guest;
    pe_t     pe;

    (void)state;
    fabric_start(&fabric, 1, NULL);
    guest_connect(&guest, &fabric, 0);
    for (int round = 0; round < 3; ++round) {
        guest_bind(&guest);
        pe_create(&pe, &guest, 1, 1);
        assert_non_null(strstr(fabric_control(&fabric, "state 0"), "pes=1"));
    }
    guest_reset(&guest);
    assert_non_null(strstr(fabric_control(&fabric, "state 0"), "dma=0"));
    assert_non_null(strstr(fabric_control(&fabric, "state 0"), "pes=0"));
    guest_disconnect(&guest);
    fabric_stop(&fabric);
}

/* An admin ring that makes no sense stops the queue, not the device: a reset helps. */
static void test_admin_nonsense(void **state)
{
    fabric_t                  fabric;
    guest_t                   guest;
    struct angara_hw_control *control;

    (void)state;
    fabric_start(&fabric, 1, NULL);
    guest_connect(&guest, &fabric, 0);
    control = guest.control;
    for (int round = 0; round < 5; ++round) {
        guest_reset(&guest);
        control->admin_entries = round == 0 ? 0 : round == 1 ? 24 : GUEST_ADMIN;
        control->admin_cmd     = round == 2 ? GUEST_RAM : GUEST_PAGE;
        control->admin_resp    = round == 3 ? 2 * GUEST_PAGE + 4 : 2 * GUEST_PAGE;
        guest_dma(&guest, 1);
        control->admin_prod = round == 4 ? GUEST_ADMIN + 1 : 1;
        guest_dma(&guest, 1); /* has been looked at by then, and this still works */
        guest_dma(&guest, 1);
        assert_int_equal(control->admin_cons, 0);
    }
    guest_bind(&guest);
    guest_disconnect(&guest);
    fabric_stop(&fabric);
}

/* ---- trouble on request ---------------------------------------------------------------------- */

static void test_late_answers(void **state)
{
    struct angara_hw_cmd cmd = {.opcode = ANGARA_HW_PE_RESET};
    uint32_t             reset, nop;
    fabric_t             fabric;
    guest_t              guest;
    pe_t                 pe;

    (void)state;
    fabric_start(&fabric, 1, NULL);
    guest_connect(&guest, &fabric, 0);
    guest_bind(&guest);
    pe_create(&pe, &guest, 0, 1);

    /* Late: what comes behind isn't held up. */
    fabric_control(&fabric, "admin 0 pe_reset 50");
    fabric_control(&fabric, "stuck 0 all on"); /* it sees both at once */
    cmd.args[0] = 0;
    cmd.args[1] = pe.hw.generation;
    reset       = guest_admin_post(&guest, &cmd);
    cmd.opcode  = ANGARA_HW_NOP;
    nop         = guest_admin_post(&guest, &cmd);
    fabric_control(&fabric, "stuck 0 all off");
    assert_int_equal(guest_admin_take(&guest).id, nop);
    assert_int_equal(guest_admin_take(&guest).id, reset);

    /* Never: the device goes on with what it had. A reset of the device helps. */
    pe_create(&pe, &guest, 0, 1);
    fabric_control(&fabric, "admin 0 any never");
    cmd.opcode = ANGARA_HW_NOP;
    guest_admin_post(&guest, &cmd);
    WAIT_FOR(guest.control->admin_cons == guest.admin_prod);
    assert_int_equal(guest.resp[guest.admin_seen % GUEST_ADMIN].valid == guest.admin_seen + 1, 0);
    fabric_control(&fabric, "admin 0 any 0");
    guest_bind(&guest);
    guest_disconnect(&guest);
    fabric_stop(&fabric);
}

static void test_stuck(void **state)
{
    struct angara_hw_control *control;
    fabric_t                  fabric;
    guest_t                   guest;
    uint32_t                  alive;

    (void)state;
    fabric_start(&fabric, 1, NULL);
    guest_connect(&guest, &fabric, 0);
    guest_bind(&guest);
    control = guest.control;

    fabric_control(&fabric, "stuck 0 dma on");
    control->dma_req = 100;
    alive            = control->alive;
    WAIT_FOR(control->alive - alive > 2); /* it works, but for this */
    assert_int_not_equal(control->dma_ack, 100);
    fabric_control(&fabric, "stuck 0 dma off");
    WAIT_FOR(__atomic_load_n(&control->dma_ack, __ATOMIC_ACQUIRE) == 100);

    fabric_control(&fabric, "stuck 0 reset on");
    control->reset_req = 100;
    alive              = control->alive;
    WAIT_FOR(control->alive - alive > 2);
    assert_int_not_equal(control->reset_ack, 100);
    fabric_control(&fabric, "stuck 0 reset off");
    WAIT_FOR(__atomic_load_n(&control->reset_ack, __ATOMIC_ACQUIRE) == 100);

    fabric_control(&fabric, "stuck 0 all on");
    control->reset_req = 101;
    fabric_control(&fabric, "state 0");
    assert_int_equal(control->reset_ack, 100);
    fabric_control(&fabric, "stuck 0 all off");
    WAIT_FOR(__atomic_load_n(&control->reset_ack, __ATOMIC_ACQUIRE) == 101);
    guest_disconnect(&guest);
    fabric_stop(&fabric);
}

static void test_removal(void **state)
{
    fabric_t fabric;
    guest_t  guest;
    pe_t     pe;

    (void)state;
    fabric_start(&fabric, 1, NULL);
    guest_connect(&guest, &fabric, 0);
    guest_bind(&guest);
    pe_create(&pe, &guest, 0, 1);
    fabric_control(&fabric, "remove 0");
    assert_true(guest.control->magic == ANGARA_HW_GONE);
    assert_int_equal(pe.doorbell->arm, ~0u);
    assert_int_equal(pe_state(&pe), ANGARA_PE_GONE);
    guest.control->dma_req = 1;
    WAIT_FOR(__atomic_load_n(&guest.control->dma_req, __ATOMIC_ACQUIRE) == ~0u);
    fabric_control(&fabric, "replug 0");
    assert_true(guest.control->magic == ANGARA_HW_MAGIC);
    guest_bind(&guest);
    guest_disconnect(&guest);
    fabric_stop(&fabric);
}

static void test_mute(void **state)
{
    fabric_t fabric;
    guest_t  guest;
    uint32_t dma_req;

    (void)state;
    fabric_start(&fabric, 1, NULL);
    fabric_control_error(&fabric, "mute 0 5"); /* no device yet */
    guest_connect(&guest, &fabric, 0);
    guest_bind(&guest);
    dma_req = guest.control->dma_req;
    fabric_control(&fabric, "mute 0 3600000");
    assert_true(guest.control->magic == ANGARA_HW_GONE);
    guest.control->dma_req = 1000; /* off */
    WAIT_FOR(__atomic_load_n(&guest.control->dma_req, __ATOMIC_ACQUIRE) == ~0u);
    fabric_control(&fabric, "link 0 down");
    assert_int_equal(guest.control->link, ~0u);
    fabric_control(&fabric, "mute 0 0");
    assert_true(guest.control->magic == ANGARA_HW_MAGIC);
    assert_int_equal(guest.control->dma_req, dma_req);
    assert_int_equal(guest.control->dma_ack, dma_req);
    assert_int_equal(guest.control->link, 0);
    assert_non_null(strstr(fabric_control(&fabric, "state 0"), "dma=1"));
    fabric_control(&fabric, "mute 0 20"); /* ends by itself */
    WAIT_FOR(__atomic_load_n(&guest.control->magic, __ATOMIC_ACQUIRE) == ANGARA_HW_MAGIC);
    fabric_control(&fabric, "mute 0 3600000");
    fabric_control(&fabric, "remove 0");
    fabric_control_error(&fabric, "mute 0 0");
    fabric_control(&fabric, "replug 0");
    assert_true(guest.control->magic == ANGARA_HW_MAGIC);
    guest_disconnect(&guest);
    fabric_stop(&fabric);
}

static void test_control(void **state)
{
    fabric_t fabric;

    (void)state;
    fabric_start(&fabric, 1, NULL);
    assert_non_null(strstr(fabric_control(&fabric, "help"), "badkey"));
    fabric_control_error(&fabric, "nonsense");
    fabric_control_error(&fabric, "link 0 sideways");
    fabric_control_error(&fabric, "link 1 up");
    fabric_control_error(&fabric, "link -1 up");
    fabric_control_error(&fabric, "delay 0 -5");
    fabric_control_error(&fabric, "admin 0 pe_delete 5");
    fabric_control_error(&fabric, "counters 0 0");
    fabric_control_error(&fabric, "map 0 0x100000000 0x1000 /dev/null");
    fabric_control_error(&fabric, "remove");
    fabric_control_error(&fabric, "mute 0 -1");
    fabric_stop(&fabric);
}

/* ---- log and replay -------------------------------------------------------------------------- */

/* Replace the first `from` in the log; of the same length. */
static void falsify(fabric_t *fabric, const char *from, const char *to)
{
    char  path[128], *log, *at;
    FILE *file;
    long  size;

    snprintf(path, sizeof(path), "%s/log", fabric->dir);
    file = fopen(path, "r+");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    log  = calloc(1, (size_t)size + 1);
    assert_non_null(log);
    rewind(file);
    assert_int_equal(fread(log, 1, (size_t)size, file), size);
    at = strstr(log, from);
    assert_non_null(at);
    fseek(file, at - log, SEEK_SET);
    assert_int_equal(fwrite(to, 1, strlen(to), file), strlen(to));
    fclose(file);
    free(log);
}

/* A replay decides the same, and says so if the log tells otherwise. */
static void test_replay(void **state)
{
    struct angara_desc desc = {.op = ANGARA_OP_PUT_INLINE, .length = 8, .rkey = 5};
    fabric_t           fabric;
    guest_t            guest;
    pe_t               pe;

    (void)state;
    setenv("EMU_REPLAY", "1", 1); /* so that it logs */
    fabric_start(&fabric, 1, NULL);
    guest_connect(&guest, &fabric, 0);
    guest_bind(&guest);
    pe_create(&pe, &guest, 0, 1);
    pe_pair(&pe, 0, &pe);
    pe_post(&pe, &desc);
    pe_expect(&pe, ANGARA_EV_FAULT, 0, ANGARA_ERR_KEY);
    guest_disconnect(&guest);
    fabric_quit(&fabric);
    assert_int_equal(fabric_replay(&fabric), 0);
    falsify(&fabric, " 0 -6 :", " 0 -7 :");
    assert_int_equal(fabric_replay(&fabric), 1);
    fabric_remove(&fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ivshmem),        cmocka_unit_test(test_alive),
        cmocka_unit_test(test_admin),          cmocka_unit_test(test_admin_quiet),
        cmocka_unit_test(test_admin_order),    cmocka_unit_test(test_pe_life),
        cmocka_unit_test(test_pe_refused),     cmocka_unit_test(test_reset),
        cmocka_unit_test(test_admin_nonsense), cmocka_unit_test(test_late_answers),
        cmocka_unit_test(test_stuck),          cmocka_unit_test(test_removal),
        cmocka_unit_test(test_mute),           cmocka_unit_test(test_control),
        cmocka_unit_test(test_replay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
