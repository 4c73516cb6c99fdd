/* SPDX-License-Identifier: BSD-3-Clause */
/* Parsing of the ANGARA_* variables: values, units, bounds, defaults, texts. */
#include "src/config.h"
#include "src/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

/* Only the variable under test is set; the log is silent but for errors, which go nowhere. */
static int setup(void **state)
{
    char **env, name[64];

    (void)state;
    for (env = environ; *env != NULL;) {
        if (strncmp(*env, "ANGARA_", 7) == 0) {
            snprintf(name, sizeof(name), "%.*s", (int)strcspn(*env, "="), *env);
            unsetenv(name);
            env = environ;
        } else {
            ++env;
        }
    }
    return 0;
}

static angara_status_t load(const char *name, const char *value)
{
    angara_status_t status;

    setenv(name, value, 1);
    status = ang_config_reload();
    unsetenv(name);
    return status;
}

static void test_defaults(void **state)
{
    (void)state;
    assert_int_equal(ang_config_reload(), ANGARA_OK);
    assert_string_equal(ang_config.device, "auto");
    assert_int_equal(ang_config.log_level, ANG_LOG_WARN);
    assert_int_equal(ang_config.loopback, 1);
    assert_int_equal(ang_config.cma, 1);
    assert_int_equal(ang_config.chaos, 0);
    assert_int_equal(ang_config.window_size, 64 << 20);
    assert_int_equal(ang_config.events & (ang_config.events - 1), 0);
}

static void test_booleans(void **state)
{
    static const char *const yes[] = {"y", "Y", "yes", "YES", "1", "on", "On", "true", "TRUE"};
    static const char *const no[]  = {"n", "N", "no", "0", "off", "OFF", "false", "False"};
    static const char *const bad[] = {"", "2", "ye", "yess", "nope", "truefalse", " y", "y ", "-1"};
    size_t                   i;

    (void)state;
    for (i = 0; i < sizeof(yes) / sizeof(yes[0]); ++i) {
        assert_int_equal(load("ANGARA_SOFT_LOOPBACK", yes[i]), ANGARA_OK);
        assert_int_equal(ang_config.loopback, 1);
    }
    for (i = 0; i < sizeof(no) / sizeof(no[0]); ++i) {
        assert_int_equal(load("ANGARA_SOFT_LOOPBACK", no[i]), ANGARA_OK);
        assert_int_equal(ang_config.loopback, 0);
    }
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        assert_int_equal(load("ANGARA_SOFT_LOOPBACK", bad[i]), ANGARA_ERR_INVALID);
        assert_int_equal(ang_config.loopback, 1); /* the default stays in force */
    }
}

typedef struct {
    const char *text;
    uint64_t    value;
} number_t;

static void test_sizes(void **state)
{
    static const number_t good[] = {
        {"4096", 4096},     {"4k", 4096},          {"4K", 4096},
        {"4KB", 4096},      {"4kb", 4096},         {"0x1000", 4096},
        {"1m", 1 << 20},    {"1MB", 1 << 20},      {"2G", 2ull << 30},
        {"1T", 1ull << 40}, {"1024G", 1ull << 40}, {"1099511627776", 1ull << 40},
    };
    static const char *const bad[] = {"",
                                      "4095",
                                      "k",
                                      "4kk",
                                      "4BK",
                                      "4 K",
                                      "1025G",
                                      "2T",
                                      "-4K",
                                      "+4K",
                                      "1e6",
                                      "4.5K",
                                      "0x",
                                      "0xg",
                                      "16777216T",
                                      "18446744073709551616",
                                      "99999999999999999999K"};
    size_t                   i;

    (void)state;
    for (i = 0; i < sizeof(good) / sizeof(good[0]); ++i) {
        assert_int_equal(load("ANGARA_WINDOW_SIZE", good[i].text), ANGARA_OK);
        assert_int_equal(ang_config.window_size, good[i].value);
    }
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        assert_int_equal(load("ANGARA_WINDOW_SIZE", bad[i]), ANGARA_ERR_INVALID);
        assert_int_equal(ang_config.window_size, 64 << 20);
    }
}

static void test_numbers(void **state)
{
    static const char *const bad[] = {
        "", "-1", "1K", "1 ", "0x10000000000000000", "18446744073709551616", "one"};
    size_t i;

    (void)state;
    assert_int_equal(load("ANGARA_CHAOS", "18446744073709551615"), ANGARA_OK);
    assert_true(ang_config.chaos == UINT64_MAX);
    assert_int_equal(load("ANGARA_CHAOS", "0xFFFFFFFFFFFFFFFF"), ANGARA_OK);
    assert_true(ang_config.chaos == UINT64_MAX);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        assert_int_equal(load("ANGARA_CHAOS", bad[i]), ANGARA_ERR_INVALID);
        assert_int_equal(ang_config.chaos, 0);
    }
    assert_int_equal(load("ANGARA_EVENTS", "1024"), ANGARA_OK);
    assert_int_equal(ang_config.events, 1024);
    assert_int_equal(load("ANGARA_EVENTS", "1000"), ANGARA_ERR_INVALID);
    assert_int_equal(load("ANGARA_EVENTS", "8"), ANGARA_ERR_INVALID);
    assert_int_equal(load("ANGARA_EVENTS", "0"), ANGARA_ERR_INVALID);
}

static void test_texts(void **state)
{
    char exact[33], longer[64];

    (void)state;
    memset(exact, 'd', sizeof(exact));
    exact[31] = '\0';
    memset(longer, 'd', sizeof(longer));
    longer[32] = '\0';
    assert_int_equal(load("ANGARA_DEVICE", exact), ANGARA_OK);
    assert_string_equal(ang_config.device, exact);
    assert_int_equal(load("ANGARA_DEVICE", longer), ANGARA_ERR_INVALID);
    assert_int_equal(load("ANGARA_DEVICE", ""), ANGARA_ERR_INVALID);
    assert_int_equal(load("ANGARA_LOG_LEVEL", "debug"), ANGARA_OK);
    assert_int_equal(ang_log_level, ANG_LOG_DEBUG);
    assert_int_equal(load("ANGARA_LOG_LEVEL", "Error"), ANGARA_OK);
    assert_int_equal(ang_log_level, ANG_LOG_ERROR);
    assert_int_equal(load("ANGARA_LOG_LEVEL", "err"), ANGARA_ERR_INVALID);
    assert_int_equal(load("ANGARA_LOG_LEVEL", "error|warn"), ANGARA_ERR_INVALID);
}

/* Each variable shows a value that is a valid setting of itself, and has all its texts. */
static void test_listing(void **state)
{
    angara_config_var_t var, again;
    unsigned            i;

    (void)state;
    assert_int_equal(ang_config_reload(), ANGARA_OK);
    for (i = 0; angara_config_var(i, &var) == ANGARA_OK; ++i) {
        assert_memory_equal(var.name, "ANGARA_", 7);
        assert_true(strlen(var.help) > 20);
        assert_int_equal(var.help[strlen(var.help) - 1], '.');
        assert_int_equal(load(var.name, var.value), ANGARA_OK);
        assert_int_equal(load(var.name, var.default_text), ANGARA_OK);
        assert_int_equal(ang_config_reload(), ANGARA_OK);
        assert_int_equal(angara_config_var(i, &again), ANGARA_OK);
        assert_string_equal(var.value, again.value);
    }
    assert_true(i >= 8);
    assert_int_equal(angara_config_var(i, &var), ANGARA_ERR_INVALID);
    assert_int_equal(angara_config_var(UINT32_MAX, &var), ANGARA_ERR_INVALID);
    assert_int_equal(angara_config_var(0, NULL), ANGARA_ERR_INVALID);
}

#define TEST(_name) cmocka_unit_test_setup(_name, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_defaults), TEST(test_booleans), TEST(test_sizes),
        TEST(test_numbers),  TEST(test_texts),    TEST(test_listing),
    };

    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
