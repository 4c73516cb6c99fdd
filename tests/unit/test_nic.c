/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The nic provider's dealings with a driver that refuses and a device that fails, without either
 * (nic_fake.h): each refusal has its status and a message that says what to do; nothing waits for a
 * device that doesn't answer; nothing is left open.
 */
#define _GNU_SOURCE
#include "nic_fake.h"

#include "src/config.h"
#include "src/log.h"

#include <angara/angara.h>
#include <angara/angara_fast.h>

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define OTHERS 3

/* A domain, its PE and some peers on another node. */
typedef struct {
    angara_domain_h       dom;
    angara_pe_h           pe;
    angara_peer_h         peer[OTHERS];
    angara_marker_slot_t *slot;
} life_t;

static unsigned open_files(void)
{
    unsigned count = 0;
    DIR     *dir   = opendir("/proc/self/fd");

    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

#define assert_logged(_text)                                      \
    do {                                                          \
        if (strstr(nic_fake.log, _text) == NULL) {                \
            fail_msg("\"%s\" isn't in: %s", _text, nic_fake.log); \
        }                                                         \
    } while (0)

static void forget_log(void)
{
    nic_fake.log[0] = '\0';
}

/* Addresses of PEs of other nodes are made by a PE of this process that says it is on that node. */
static void make_addresses(angara_address_t *addresses)
{
    const angara_pe_params_t params = {.size = sizeof(params), .window_size = 8192};
    angara_domain_h          dom;
    angara_pe_h              pe;

    for (unsigned i = 0; i < OTHERS; ++i) {
        nic_fake.info.node = 100 + i;
        assert_int_equal(angara_open("angara0", &dom), ANGARA_OK);
        assert_int_equal(angara_pe_create(dom, &params, &pe), ANGARA_OK);
        angara_pe_address(pe, &addresses[i]);
        angara_pe_destroy(pe);
        assert_int_equal(angara_close(dom), ANGARA_OK);
    }
    nic_fake.info.node = 5;
}

static void life_begin(life_t *life)
{
    const angara_pe_params_t params = {.size = sizeof(params), .window_size = 8192};
    angara_address_t         addresses[OTHERS];

    nic_fake_reset();
    make_addresses(addresses);
    assert_int_equal(angara_open("angara0", &life->dom), ANGARA_OK);
    assert_int_equal(angara_pe_create(life->dom, &params, &life->pe), ANGARA_OK);
    assert_int_equal(angara_marker_slot_get(life->pe, &life->slot), ANGARA_OK);
    for (unsigned i = 0; i < OTHERS; ++i) {
        assert_int_equal(angara_peer_connect(life->pe, &addresses[i], &life->peer[i]), ANGARA_OK);
    }
    forget_log();
}

static void life_end(life_t *life)
{
    angara_pe_destroy(life->pe);
    assert_int_equal(angara_close(life->dom), ANGARA_OK);
}

/* The record that is about a peer: entries of the pair table are given out from 1 on. */
static struct angara_event_record about(unsigned peer, uint32_t type, int32_t status)
{
    return (struct angara_event_record){
        .type = type, .node = 100 + peer, .pe = 3, .generation = 9, .pair = peer, .status = status};
}

static angara_status_t poll_event(life_t *life, angara_event_t *event)
{
    return angara_pe_event_poll(life->pe, event);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void open_fails(angara_status_t expected, const char *text)
{
    unsigned        files = open_files();
    angara_domain_h dom   = NULL;

    forget_log();
    assert_int_equal(angara_open("angara0", &dom), expected);
    assert_null(dom);
    assert_int_equal(open_files(), files);
    assert_logged(text);
}

/* First of all, as it is said once in a process. */
static void test_ignored_settings(void **state)
{
    angara_domain_h dom;

    (void)state;
    nic_fake_reset();
    setenv("ANGARA_EVENTS", "64", 1);
    setenv("ANGARA_WINDOW_SIZE", "8K", 1);
    assert_int_equal(angara_open("angara0", &dom), ANGARA_OK);
    assert_logged("ANGARA_EVENTS is about the soft fabric: a NIC ignores it");
    assert_logged("event_entries of the module angara_nic");
    assert_null(strstr(nic_fake.log, "ANGARA_WINDOW_SIZE"));
    assert_null(strstr(nic_fake.log, "ANGARA_CHAOS"));
    unsetenv("ANGARA_EVENTS");
    unsetenv("ANGARA_WINDOW_SIZE");
    assert_int_equal(angara_close(dom), ANGARA_OK);
}

static void test_version(void **state)
{
    (void)state;
    nic_fake_reset();
    nic_fake.info.version          = 4711;
    nic_fake.errors[NIC_FAKE_INFO] = EPROTO;
    open_fails(ANGARA_ERR_VERSION,
               "speaks version 4711 of the interface, libangara 0.1.0 version 1");
    assert_logged("modules and library of one release");
    nic_fake.errors[NIC_FAKE_INFO] = ENOTTY;
    open_fails(ANGARA_ERR_VERSION, "modules and library of one release");
    nic_fake.errors[NIC_FAKE_INFO] = ENODEV;
    open_fails(ANGARA_ERR_NO_DEVICE, "has gone or failed");
}

static void test_sizes(void **state)
{
    static const struct {
        size_t   offset, width;
        uint64_t value;
    } bad[] = {
#define BAD(_field, _value)                                                                   \
    {offsetof(struct angara_ioc_info, _field), sizeof(((struct angara_ioc_info *)0)->_field), \
     _value}
        BAD(cmd_entries, 0), BAD(cmd_entries, 17), BAD(event_entries, 0), BAD(event_entries, 1000),
        BAD(pio_bytes, 0),   BAD(pio_bytes, 128),  BAD(pio_bytes, 4097),  BAD(marker_slots, 0),
        BAD(put_max, 63),    BAD(put_max, 2049),   BAD(window_max, 4096),
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        nic_fake_reset();
        memcpy((char *)&nic_fake.info + bad[i].offset, &bad[i].value, bad[i].width);
        open_fails(ANGARA_ERR_VERSION, "make no sense");
    }
}

static void test_files(void **state)
{
    static const struct {
        int             error;
        angara_status_t status;
        const char     *text;
    } cases[] = {
        {ENOENT, ANGARA_ERR_NO_DEVICE, "load the module"},
        {ENXIO, ANGARA_ERR_NO_DEVICE, "load the module"},
        {EACCES, ANGARA_ERR_SYSTEM, "add the user to the group angara"},
        {EMFILE, ANGARA_ERR_LIMIT, "ulimit -n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        nic_fake_reset();
        nic_fake.errors[NIC_FAKE_OPEN] = cases[i].error;
        open_fails(cases[i].status, cases[i].text);
        nic_fake_reset();
        nic_fake.errors[NIC_FAKE_MEMREG] = cases[i].error;
        open_fails(cases[i].status, cases[i].text);
        assert_logged("/dev/angara_memreg");
    }
}

/* ---- refusals of the driver ------------------------------------------------------------------ */

typedef struct {
    nic_fake_call_t call;
    int             error;
    angara_status_t status;
    const char     *text;
} refusal_t;

static const refusal_t refusals[] = {
    {NIC_FAKE_PE, ENOSPC, ANGARA_ERR_LIMIT, "pe_max and pe_used"},
    {NIC_FAKE_PE, EDQUOT, ANGARA_ERR_LIMIT, "quota"},
    {NIC_FAKE_PE, ENOMEM, ANGARA_ERR_NO_MEMORY, "out of memory"},
    {NIC_FAKE_PE, EMFILE, ANGARA_ERR_LIMIT, "ulimit -n"},
    {NIC_FAKE_PE, EIO, ANGARA_ERR_SYSTEM, "Input/output error"},
    {NIC_FAKE_PE, ENODEV, ANGARA_ERR_NO_DEVICE, "has gone or failed"},
    {NIC_FAKE_COMMIT, ENOMEM, ANGARA_ERR_NO_MEMORY, "put window: out of memory"},
    {NIC_FAKE_COMMIT, EIO, ANGARA_ERR_SYSTEM, "put window: Input/output error"},
    {NIC_FAKE_REG, ENOMEM, ANGARA_ERR_NO_MEMORY, "registering memory: out of memory"},
    {NIC_FAKE_REG, ENOSPC, ANGARA_ERR_NO_MEMORY, "table of regions is full"},
    {NIC_FAKE_REG, EFAULT, ANGARA_ERR_INVALID, "not all of the 4096 bytes is mapped"},
    {NIC_FAKE_REG, EDQUOT, ANGARA_ERR_LIMIT, "quota"},
    {NIC_FAKE_REG, EOPNOTSUPP, ANGARA_ERR_UNSUPPORTED, "can't be pinned"},
    {NIC_FAKE_REG, ENODEV, ANGARA_ERR_NO_DEVICE, "has gone or failed"},
};

static void check_refusal(const refusal_t *refusal)
{
    static char     memory[4096];
    unsigned        files;
    angara_domain_h dom;
    angara_mr_h     mr = NULL;
    angara_pe_h     pe = NULL;

    assert_int_equal(angara_open("angara0", &dom), ANGARA_OK);
    files = open_files();
    forget_log();
    nic_fake.errors[refusal->call] = refusal->error;
    if (refusal->call == NIC_FAKE_REG) {
        assert_int_equal(angara_mr_register(dom, memory, sizeof(memory), 0, &mr), refusal->status);
        assert_null(mr);
    } else {
        assert_int_equal(angara_pe_create(dom, NULL, &pe), refusal->status);
        assert_null(pe);
    }
    assert_logged(refusal->text);
    assert_int_equal(open_files(), files);
    assert_int_equal(angara_close(dom), ANGARA_OK); /* nothing of it is left */
}

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); ++i) {
        nic_fake_reset();
        nic_fake.info.window_max = 1 << 30;
        check_refusal(&refusals[i]);
    }
}

/* The limit is what is named, where it can be the cause. */
static void test_memlock(void **state)
{
    static const nic_fake_call_t calls[] = {NIC_FAKE_PE, NIC_FAKE_COMMIT, NIC_FAKE_REG};
    refusal_t                    refusal = {.error = ENOMEM};

    (void)state;
    for (unsigned i = 0; i < 3; ++i) {
        nic_fake_reset();
        nic_fake.info.window_max = 1 << 30;
        nic_fake.memlock         = 64 << 10;
        refusal.call             = calls[i];
        refusal.status           = ANGARA_ERR_LIMIT;
        refusal.text             = "RLIMIT_MEMLOCK is 64 KiB";
        check_refusal(&refusal);
        assert_logged("ulimit -l");
        nic_fake_reset();
        nic_fake.info.window_max = 1 << 30;
        nic_fake.memlock         = 64 << 10;
        nic_fake.uid             = 0; /* no limit for root */
        refusal.status           = ANGARA_ERR_NO_MEMORY;
        refusal.text             = "out of memory";
        check_refusal(&refusal);
    }
}

/* A region that the kernel doesn't know any more, or that it couldn't take back. */
static void test_deregister(void **state)
{
    static char memory[4096];
    static const struct {
        int             error;
        angara_status_t status;
    } cases[] = {
        {0, ANGARA_OK}, {ENODEV, ANGARA_OK}, {ENOENT, ANGARA_OK}, {EIO, ANGARA_ERR_SYSTEM}};
    angara_domain_h dom;
    angara_mr_h     mr;

    (void)state;
    for (unsigned i = 0; i < 4; ++i) {
        nic_fake_reset();
        assert_int_equal(angara_open("angara0", &dom), ANGARA_OK);
        assert_int_equal(angara_mr_register(dom, memory, sizeof(memory), 0, &mr), ANGARA_OK);
        nic_fake.errors[NIC_FAKE_DEREG] = cases[i].error;
        assert_int_equal(angara_mr_deregister(mr), cases[i].status);
        assert_int_equal(angara_close(dom), ANGARA_OK);
    }
}

/* ---- stale regions --------------------------------------------------------------------------- */

static void test_stale(void **state)
{
    static char     memory[2][4096];
    size_t          length = 4096;
    angara_domain_h dom;
    angara_mr_h     mr[3];
    void           *addr;

    (void)state;
    nic_fake_reset();
    assert_int_equal(angara_open("angara0", &dom), ANGARA_OK);
    for (unsigned i = 0; i < 2; ++i) {
        assert_int_equal(angara_mr_register(dom, memory[i], 4096, 0, &mr[i]), ANGARA_OK);
        assert_int_equal(angara_mr_is_stale(mr[i]), 0);
    }
    assert_int_equal(angara_mem_alloc(dom, &length, 0, &addr, &mr[2]), ANGARA_OK);
    for (uint64_t handle = angara_mr_key(mr[1]), i = 0; i < 2; ++i) {
        nic_fake_stale((uint32_t)(handle + i - 1) & 0xffffff); /* keys count from 1 */
    }
    assert_int_equal(angara_mr_is_stale(mr[0]), 0);
    assert_int_not_equal(angara_mr_is_stale(mr[1]), 0);
    assert_int_equal(angara_mr_is_stale(mr[2]), 0); /* the library's own memory */
    nic_fake.same                   = 1;
    nic_fake.errors[NIC_FAKE_CHECK] = ENOENT; /* the kernel can't tell */
    assert_int_not_equal(angara_mr_is_stale(mr[1]), 0);
    nic_fake.errors[NIC_FAKE_CHECK] = 0;
    assert_int_equal(angara_mr_part_is_stale(mr[1], memory[1] + 100, 50), 0);
    assert_int_equal(angara_mr_part_is_stale(mr[1], memory[1], 0), 0);
    nic_fake.same = 0;
    assert_int_not_equal(angara_mr_part_is_stale(mr[1], memory[1] + 100, 50), 0);
    nic_fake.same = 1;
    assert_int_equal(angara_mr_is_stale(mr[1]), 0);
    assert_int_equal(angara_mr_deregister(mr[0]), ANGARA_OK);
    assert_int_equal(angara_mr_deregister(mr[1]), ANGARA_OK);
    assert_int_equal(angara_mem_free(mr[2]), ANGARA_OK);
    assert_int_equal(angara_close(dom), ANGARA_OK);
}

/* ---- a device that fails --------------------------------------------------------------------- */

/* @return how many peers are reported down, and nothing else is */
static unsigned count_down(life_t *life)
{
    unsigned       told = 0;
    angara_event_t event;

    while (poll_event(life, &event) == ANGARA_OK) {
        assert_int_equal(event.type, ANGARA_EVENT_PEER_DOWN);
        assert_int_equal(event.status, ANGARA_ERR_PEER_DEAD);
        told++;
    }
    return told;
}

/* Every call says so at once, and every peer is reported down, once. */
static void check_dead(life_t *life, const char *text)
{
    forget_log();
    assert_int_equal(angara_peer_status(life->peer[1]), ANGARA_ERR_PEER_DEAD);
    assert_logged(text);
    for (unsigned i = 0; i < OTHERS; ++i) {
        assert_int_equal(angara_marker(life->peer[i], life->slot, 1000), ANGARA_ERR_PEER_DEAD);
        assert_int_equal(angara_put_u64(life->peer[i], 0, 1), ANGARA_ERR_PEER_DEAD);
        assert_int_equal(angara_notify(life->peer[i], "x", 1), ANGARA_ERR_PEER_DEAD);
        assert_int_equal(angara_offload_put_inline(life->peer[i], "x", 1, 0, 1),
                         ANGARA_ERR_PEER_DEAD);
        assert_int_equal(angara_peer_reset(life->peer[i]), ANGARA_ERR_PEER_DEAD);
    }
    assert_int_equal(angara_marker_self(life->pe, life->slot, 1000), ANGARA_ERR_PEER_DEAD);
    assert_int_equal(count_down(life), OTHERS);
    assert_int_equal(angara_pe_event_arm(life->pe), ANGARA_ERR_NO_DEVICE);
    angara_pe_event_disarm(life->pe);
}

static void test_failed(void **state)
{
    life_t life;

    (void)state;
    life_begin(&life);
    nic_fake_state(ANGARA_PE_FAILED);
    check_dead(&life, "nonsense in its rings");
    life_end(&life);
    life_begin(&life);
    nic_fake_state(ANGARA_PE_GONE);
    check_dead(&life, "gone or failed");
    life_end(&life);
}

/* It fails while somebody waits for it, with full rings behind. */
static void test_failed_under_way(void **state)
{
    angara_status_t status = ANGARA_OK;
    life_t          life;

    (void)state;
    life_begin(&life);
    nic_fake.fail_at = 1 + OTHERS; /* in the reset */
    assert_int_equal(angara_peer_reset(life.peer[0]), ANGARA_ERR_PEER_DEAD);
    check_dead(&life, "");
    life_end(&life);

    life_begin(&life);
    nic_fake.stuck = 1;
    for (unsigned i = 0; i < 1000 && status == ANGARA_OK; ++i) {
        status = angara_offload_put_inline(life.peer[0], "x", 1, 0, 1);
    }
    assert_int_equal(status, ANGARA_ERR_NO_RESOURCE);
    nic_fake_state(ANGARA_PE_GONE);
    assert_int_equal(angara_offload_put_inline(life.peer[0], "x", 1, 0, 1), ANGARA_ERR_PEER_DEAD);
    check_dead(&life, "");
    life_end(&life);
}

/* Records that the user hasn't polled are lost with the device; what they said is told. */
static void test_failed_before_told(void **state)
{
    struct angara_event_record record;
    life_t                     life;

    (void)state;
    life_begin(&life);
    for (unsigned i = 1; i < OTHERS; ++i) {
        record      = about(i, ANGARA_EV_PEER_DOWN, ANGARA_ERR_PEER_DEAD);
        record.pair = i + 1;
        nic_fake_event(&record);
    }
    angara_pe_progress(life.pe);
    assert_int_equal(angara_peer_status(life.peer[2]), ANGARA_ERR_PEER_DEAD);
    nic_fake_state(ANGARA_PE_GONE);
    check_dead(&life, "");
    life_end(&life);
}

/* It is there, but doesn't answer: whoever waits gives up, and says so. */
static void test_silent(void **state)
{
    struct angara_event_record record;
    angara_address_t           address;
    angara_peer_h              peer = NULL;
    life_t                     life;

    (void)state;
    life_begin(&life);
    angara_pe_address(life.pe, &address);
    nic_fake.stuck   = 1;
    nic_fake.jump_ns = 1000000000ull;
    assert_int_equal(angara_peer_connect(life.pe, &address, &peer), ANGARA_ERR_UNREACHABLE);
    assert_null(peer);
    assert_logged("the NIC doesn't answer");
    assert_int_equal(angara_notify(life.peer[0], "x", 1), ANGARA_ERR_UNREACHABLE);
    assert_int_equal(angara_peer_reset(life.peer[0]), ANGARA_ERR_UNREACHABLE);
    assert_int_equal(angara_pe_event_arm(life.pe), ANGARA_INPROGRESS);
    /* A peer that is given up isn't heard of again. */
    angara_peer_disconnect(life.peer[0]);
    assert_logged("they are given up");
    record      = about(0, ANGARA_EV_PEER_DOWN, ANGARA_ERR_PEER_DEAD);
    record.pair = 1;
    nic_fake_event(&record);
    assert_int_equal(count_down(&life), 0);
    nic_fake_state(ANGARA_PE_GONE);
    assert_int_equal(count_down(&life), OTHERS - 1);
    assert_int_equal(angara_pe_event_arm(life.pe), ANGARA_ERR_NO_DEVICE);
    life_end(&life);
}

/* ---- what the device says -------------------------------------------------------------------- */

static void test_notify(void **state)
{
    static const struct {
        int32_t         said;
        angara_status_t status;
    } cases[] = {{0, ANGARA_OK},
                 {ANGARA_ERR_NO_RESOURCE, ANGARA_ERR_NO_RESOURCE},
                 {ANGARA_ERR_PEER_DEAD, ANGARA_ERR_PEER_DEAD},
                 {1, ANGARA_ERR_SYSTEM},
                 {-16, ANGARA_ERR_SYSTEM},
                 {INT32_MIN, ANGARA_ERR_SYSTEM}};
    life_t life;

    (void)state;
    life_begin(&life);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        nic_fake.notify_status = cases[i].said;
        assert_int_equal(angara_notify(life.peer[i % OTHERS], "hello", 5), cases[i].status);
    }
    life_end(&life);
}

/* A fault is the pair's, and only its. */
static void test_fault(void **state)
{
    struct angara_event_record record = about(1, ANGARA_EV_FAULT, ANGARA_ERR_KEY);
    angara_event_t             event;
    life_t                     life;

    (void)state;
    life_begin(&life);
    record.pair = 2; /* the second peer's entry: the first is 1, the own PE's 0 */
    nic_fake_event(&record);
    angara_pe_progress(life.pe);
    assert_int_equal(angara_peer_status(life.peer[1]), ANGARA_ERR_PAIR);
    assert_int_equal(angara_peer_status(life.peer[0]), ANGARA_OK);
    assert_int_equal(angara_marker(life.peer[1], life.slot, 1), ANGARA_ERR_PAIR);
    assert_int_equal(poll_event(&life, &event), ANGARA_OK);
    assert_int_equal(event.type, ANGARA_EVENT_FAULT);
    assert_int_equal(event.status, ANGARA_ERR_KEY);
    assert_ptr_equal(event.peer, life.peer[1]);
    assert_int_equal(angara_peer_reset(life.peer[1]), ANGARA_OK);
    assert_int_equal(angara_peer_status(life.peer[1]), ANGARA_OK);
    life_end(&life);
}

/* Records of no sense are nobody's. */
static void test_odd_events(void **state)
{
    struct angara_event_record record;
    angara_event_t             event;
    life_t                     life;

    (void)state;
    life_begin(&life);
    record      = about(0, ANGARA_EV_FAULT, ANGARA_ERR_KEY);
    record.pair = ANGARA_PAIRS_MAX;
    nic_fake_event(&record);
    record.pair = UINT32_MAX;
    nic_fake_event(&record);
    record.pair = 7; /* nobody's */
    nic_fake_event(&record);
    record.pair       = 1;
    record.generation = 8; /* the entry's owner of before */
    nic_fake_event(&record);
    record = about(0, 4711, 0);
    nic_fake_event(&record);
    assert_int_equal(poll_event(&life, &event), ANGARA_ERR_NO_RESOURCE);
    record        = about(2, ANGARA_EV_NOTIFY, 0);
    record.length = UINT32_MAX;
    nic_fake_event(&record);
    assert_int_equal(poll_event(&life, &event), ANGARA_OK);
    assert_int_equal(event.type, ANGARA_EVENT_NOTIFY);
    assert_int_equal(event.len, ANGARA_NOTIFY_MAX);
    assert_ptr_equal(event.peer, life.peer[2]);
    for (unsigned i = 0; i < OTHERS; ++i) {
        assert_int_equal(angara_peer_status(life.peer[i]), ANGARA_OK);
    }
    life_end(&life);
}

/* Nobody knows whose events were lost: all pairs are in error, and it is told once. */
static void test_lost_events(void **state)
{
    angara_event_t event;
    life_t         life;

    (void)state;
    life_begin(&life);
    nic_fake_lost(3);
    assert_int_equal(poll_event(&life, &event), ANGARA_OK);
    assert_int_equal(event.type, ANGARA_EVENT_OVERFLOW);
    assert_int_equal(poll_event(&life, &event), ANGARA_ERR_NO_RESOURCE);
    for (unsigned i = 0; i < OTHERS; ++i) {
        assert_int_equal(angara_peer_status(life.peer[i]), ANGARA_ERR_PAIR);
        assert_int_equal(angara_peer_reset(life.peer[i]), ANGARA_OK);
    }
    assert_int_equal(angara_marker(life.peer[0], life.slot, 1), ANGARA_OK);
    life_end(&life);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ignored_settings),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_memlock),
        cmocka_unit_test(test_deregister),
        cmocka_unit_test(test_stale),
        cmocka_unit_test(test_failed),
        cmocka_unit_test(test_failed_under_way),
        cmocka_unit_test(test_failed_before_told),
        cmocka_unit_test(test_silent),
        cmocka_unit_test(test_notify),
        cmocka_unit_test(test_fault),
        cmocka_unit_test(test_odd_events),
        cmocka_unit_test(test_lost_events),
    };

    return cmocka_run_group_tests_name("nic", tests, NULL, NULL);
}
