/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The nic provider's dealings with a driver that refuses, without one (nic_fake.h): each refusal
 * has its status and a message that says what to do; nothing is left open.
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

/* ---- opening --------------------------------------------------------------------------------- */

static void open_fails(angara_status_t expected, const char *text)
{
    unsigned        files = open_files();
    angara_domain_h dom   = NULL;

    nic_fake_forget_log();
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
    nic_fake.info.version = 1; /* an older module */
    open_fails(ANGARA_ERR_VERSION, "speaks version 1 of the interface, libangara 0.1.0 version 2");
    assert_logged("modules and library of one release");
    nic_fake_reset();
    nic_fake.info.version = 4711; /* a newer one */
    open_fails(ANGARA_ERR_VERSION, "speaks version 4711 of the interface");
    nic_fake_reset();
    nic_fake.info.formats = 2; /* of a newer device */
    open_fails(ANGARA_ERR_VERSION, "has rings of version 2, libangara 0.1.0 knows version 1");
    assert_logged("modules and library of one release");
    nic_fake_reset();
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
        {EPERM, ANGARA_ERR_SYSTEM, "in a container, also pass the device"},
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
    nic_fake_reset();
    nic_fake.errors[NIC_FAKE_OPEN] = EPERM;
    nic_fake.saved_uid             = 0;
    open_fails(ANGARA_ERR_SYSTEM, "Don't run it set-user-ID");
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
    {NIC_FAKE_PE, EACCES, ANGARA_ERR_SYSTEM, "ANGARA_JOB_KEY=0 isn't granted to this user"},
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
    nic_fake_forget_log();
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

/* PEs ask for the key that the environment says. */
static void test_job_key(void **state)
{
    uint64_t        keys[] = {0, 4711};
    angara_domain_h dom;
    angara_pe_h     pe;

    (void)state;
    for (unsigned i = 0; i < 2; ++i) {
        nic_fake_reset();
        nic_fake.info.window_max = 1 << 30;
        nic_fake.job_key         = 99;
        assert_int_equal(angara_open("angara0", &dom), ANGARA_OK);
        ang_config.job_key = keys[i];
        assert_int_equal(angara_pe_create(dom, NULL, &pe), ANGARA_OK);
        assert_true(nic_fake.job_key == keys[i]);
        angara_pe_destroy(pe);
        assert_int_equal(angara_close(dom), ANGARA_OK);
    }
    ang_config.job_key = 0;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ignored_settings),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_job_key),
        cmocka_unit_test(test_memlock),
        cmocka_unit_test(test_deregister),
        cmocka_unit_test(test_stale),
    };

    return cmocka_run_group_tests_name("nic", tests, NULL, NULL);
}
