/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits of the system and wrong settings: an error that names the cause, on stderr once, and
 * nothing left in /dev/shm or /tmp.
 */
#define _GNU_SOURCE
#include "conf.h"

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_NAMES 64

static char captured[65536];
static int  capture_fd = -1, saved_stderr = -1;

/* What the library says on stderr between begin and end. */
static void capture_begin(void)
{
    char name[] = "/tmp/conf-capture-XXXXXX";

    capture_fd = mkstemp(name);
    CHECK(capture_fd >= 0);
    unlink(name);
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    CHECK(saved_stderr >= 0);
    CHECK(dup2(capture_fd, STDERR_FILENO) >= 0);
}

static const char *capture_end(void)
{
    ssize_t n;

    fflush(stderr);
    CHECK(dup2(saved_stderr, STDERR_FILENO) >= 0);
    close(saved_stderr);
    n = pread(capture_fd, captured, sizeof(captured) - 1, 0);
    CHECK(n >= 0);
    captured[n] = '\0';
    close(capture_fd);
    return captured;
}

static void expect_message(const char *text, const char *word)
{
    if (strcasestr(text, word) == NULL) {
        rank_fail(__FILE__, __LINE__, "the message lacks \"%s\": \"%s\"", word, text);
    }
}

/* ---- settings ------------------------------------------------------------------------------ */

typedef struct {
    const char *name;
    const char *value;
} setting_t;

static void wrong_setting(conf_t *t)
{
    const setting_t *setting = t->arg;
    angara_domain_h  dom     = NULL;
    angara_status_t  status;
    const char      *text;

    setenv(setting->name, setting->value, 1);
    unsetenv("ANGARA_LOG_LEVEL");
    setenv(setting->name, setting->value, 1);
    capture_begin();
    status = angara_open(NULL, &dom);
    text   = capture_end();
    if (status == ANGARA_OK) {
        rank_fail(__FILE__, __LINE__, "%s=\"%s\" was accepted", setting->name, setting->value);
    }
    if (strcmp(setting->name, "ANGARA_DEVICE") != 0) {
        CHECK_STATUS(status, ANGARA_ERR_INVALID);
    }
    CHECK(dom == NULL);
    expect_message(text, setting->name);
}

static void valid_setting(conf_t *t)
{
    const setting_t *setting = t->arg;
    angara_domain_h  dom     = NULL;
    const char      *text;

    setenv(setting->name, setting->value, 1);
    capture_begin();
    CHECK_OK(
        angara_open((strcmp(setting->name, "ANGARA_DEVICE") == 0) ? NULL : conf_device(), &dom));
    CHECK_OK(angara_close(dom));
    text = capture_end();
    /* A NIC whose driver or device decides such a thing says so. */
    if (text[0] != '\0' && strstr(text, "a NIC ignores it") == NULL) {
        rank_fail(__FILE__, __LINE__, "%s=\"%s\" is valid but says: %s", setting->name,
                  setting->value, text);
    }
}

/* No variable takes these. */
static const char *const nonsense[] = {
    "@bogus value", "",    "-1", " 1",      "1 ", "1x", "99999999999999999999999",
    "0x",           "1e3", "y1", "\xff\xfe"};

/* In a process of its own: the settings are read once, and the ranks inherit what this one has. */
static void collect_names(char (*names)[64], unsigned *count)
{
    angara_config_var_t var;
    int                 fds[2];
    pid_t               pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (*count = 0; angara_config_var(*count, &var) == ANGARA_OK; ++*count) {
            char name[64] = {0};

            snprintf(name, sizeof(name), "%s", var.name);
            if ((var.help == NULL) || (var.default_text == NULL) ||
                (write(fds[1], name, sizeof(name)) != sizeof(name))) {
                _exit(1);
            }
        }
        _exit(angara_config_var(*count + 1000, &var) != ANGARA_ERR_INVALID);
    }
    close(fds[1]);
    for (*count = 0; (*count < MAX_NAMES) && (read(fds[0], names[*count], 64) == 64); ++*count) {
    }
    close(fds[0]);
    assert_int_equal(waitpid(pid, &fds[0], 0), pid);
    assert_int_equal(fds[0], 0);
    assert_true(*count >= 5);
}

static void test_wrong_settings(void **state)
{
    char     names[MAX_NAMES][64];
    unsigned count, i, j;

    (void)state;
    collect_names(names, &count);
    for (i = 0; i < count; ++i) {
        for (j = 0; j < sizeof(nonsense) / sizeof(nonsense[0]); ++j) {
            setting_t setting = {names[i], nonsense[j]};

            conf_run(1, wrong_setting, &setting);
        }
    }
}

/* Just outside each range; sizes with units. */
static void test_wrong_ranges(void **state)
{
    static const setting_t settings[] = {
        {"ANGARA_DEVICE", "soft9"},
        {"ANGARA_DEVICE", "angara7"},
        {"ANGARA_LOG_LEVEL", "verbose"},
        {"ANGARA_LOG_LEVEL", "4"},
        {"ANGARA_SOFT_NODE", "4294967295"},
        {"ANGARA_SOFT_LOOPBACK", "2"},
        {"ANGARA_SOFT_LOOPBACK", "maybe"},
        {"ANGARA_SOFT_CMA", "auto"},
        {"ANGARA_CHAOS", "18446744073709551616"},
        {"ANGARA_CHAOS_DELAY", "1000001"},
        {"ANGARA_WINDOW_SIZE", "4095"},
        {"ANGARA_WINDOW_SIZE", "1025G"},
        {"ANGARA_WINDOW_SIZE", "64Q"},
        {"ANGARA_WINDOW_SIZE", "64MM"},
        {"ANGARA_WINDOW_SIZE", "99999999999T"},
        {"ANGARA_EVENTS", "15"},
        {"ANGARA_EVENTS", "100"},
        {"ANGARA_EVENTS", "131072"},
        {"ANGARA_MR_MAX", "15"},
        {"ANGARA_MR_MAX", "16777217"},
        {"ANGARA_PEER_CHECK", "0"},
        {"ANGARA_PEER_CHECK", "60001"},
    };
    unsigned i;

    (void)state;
    for (i = 0; i < sizeof(settings) / sizeof(settings[0]); ++i) {
        conf_run(1, wrong_setting, &settings[i]);
    }
}

static void test_valid_settings(void **state)
{
    static const setting_t settings[] = {
        {"ANGARA_DEVICE", "auto"},
        {"ANGARA_DEVICE", "soft"},
        {"ANGARA_DEVICE", "soft0"},
        {"ANGARA_LOG_LEVEL", "error"},
        {"ANGARA_LOG_LEVEL", "WARN"},
        {"ANGARA_SOFT_NODE", "4294967294"},
        {"ANGARA_SOFT_LOOPBACK", "No"},
        {"ANGARA_SOFT_CMA", "off"},
        {"ANGARA_CHAOS", "0xffffffffffffffff"},
        {"ANGARA_CHAOS_DELAY", "0"},
        {"ANGARA_WINDOW_SIZE", "4k"},
        {"ANGARA_WINDOW_SIZE", "16MB"},
        {"ANGARA_EVENTS", "16"},
        {"ANGARA_EVENTS", "65536"},
        {"ANGARA_MR_MAX", "16"},
        {"ANGARA_MR_MAX", "16777216"},
        {"ANGARA_PEER_CHECK", "1"},
        {"ANGARA_PEER_CHECK", "60000"},
    };
    unsigned i;

    (void)state;
    for (i = 0; i < sizeof(settings) / sizeof(settings[0]); ++i) {
        conf_run(1, valid_setting, &settings[i]);
    }
}

/* A misspelt variable is mentioned but harms nothing. */
static void unknown_setting(conf_t *t)
{
    angara_domain_h dom;
    const char     *text;

    (void)t;
    setenv("ANGARA_CHAOSS", "1", 1);
    unsetenv("ANGARA_LOG_LEVEL");
    capture_begin();
    CHECK_OK(angara_open(conf_device(), &dom));
    CHECK_OK(angara_close(dom));
    text = capture_end();
    expect_message(text, "ANGARA_CHAOSS");
}

static void test_unknown_setting(void **state)
{
    (void)state;
    conf_run(1, unknown_setting, NULL);
}

/* Two ranks of different node ids don't reach each other, and say so. */
static void different_nodes(conf_t *t)
{
    angara_address_t mine, all[RANK_MAX];
    angara_domain_h  dom;
    angara_attr_t    attr;
    angara_peer_h    peer = NULL;
    angara_pe_h      pe;
    char             node[16];

    if (strcmp(conf_device(), "soft") != 0) {
        rank_skip("only the soft fabric's nodes have ids of one's choice");
    }
    snprintf(node, sizeof(node), "%u", 5 + t->rank);
    setenv("ANGARA_SOFT_NODE", node, 1);
    CHECK_OK(angara_open(conf_device(), &dom));
    CHECK_OK(angara_query(dom, &attr));
    CHECK_EQ(attr.node, 5 + t->rank);
    CHECK_OK(angara_pe_create(dom, NULL, &pe));
    angara_pe_address(pe, &mine);
    CHECK_EQ(mine.node, 5 + t->rank);
    conf_exchange(t, &mine, all, sizeof(mine));
    CHECK(!angara_is_reachable(dom, &all[1 - t->rank]));
    CHECK_STATUS(angara_peer_connect(pe, &all[1 - t->rank], &peer), ANGARA_ERR_UNREACHABLE);
    CHECK(peer == NULL);
    conf_barrier(t);
    angara_pe_destroy(pe);
    CHECK_OK(angara_close(dom));
}

static void test_different_nodes(void **state)
{
    (void)state;
    conf_run(2, different_nodes, NULL);
}

/* ---- system limits ------------------------------------------------------------------------- */

static void set_limit(int resource, rlim_t value)
{
    struct rlimit limit;

    CHECK(getrlimit(resource, &limit) == 0);
    limit.rlim_cur = value;
    CHECK(setrlimit(resource, &limit) == 0);
}

/* Open, create, allocate and connect until something fails; clean up; then it works without limit.
 */
static angara_status_t whole_life(conf_t *t, const angara_address_t *other)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = CONF_WINDOW};
    size_t             length = 1u << 20;
    angara_peer_h      peer;
    angara_status_t    status;
    angara_mr_h        mr;
    void              *addr;

    status = angara_open(conf_device(), &t->dom);
    if (status != ANGARA_OK) {
        return status;
    }
    status = angara_pe_create(t->dom, &params, &t->pe);
    if (status == ANGARA_OK) {
        status = angara_pe_window_commit(t->pe, 0, CONF_WINDOW);
        if (status == ANGARA_OK) {
            status = angara_peer_connect(t->pe, other, &peer);
        }
        if (status == ANGARA_OK) {
            status = angara_notify(peer, "x", 1);
            angara_peer_disconnect(peer);
        }
        angara_pe_destroy(t->pe);
    }
    if (status == ANGARA_OK) {
        status = angara_mem_alloc(t->dom, &length, ANGARA_ACCESS_ALL, &addr, &mr);
        if (status == ANGARA_OK) {
            CHECK_OK(angara_mem_free(mr));
        }
    }
    CHECK_OK(angara_close(t->dom));
    return status;
}

/* Rank 1 only gives an address to connect to. */
static int target_only(conf_t *t, angara_address_t *other)
{
    angara_address_t mine = {0}, all[RANK_MAX];

    if (t->rank == 1) {
        CHECK_OK(angara_open(conf_device(), &t->dom));
        CHECK_OK(angara_pe_create(t->dom, NULL, &t->pe));
        angara_pe_address(t->pe, &mine);
    }
    conf_exchange(t, &mine, all, sizeof(mine));
    *other = all[1];
    if (t->rank == 1) {
        conf_barrier(t);
        angara_pe_destroy(t->pe);
        CHECK_OK(angara_close(t->dom));
    }
    return t->rank == 1;
}

/* One descriptor more in each round, from none free to enough. */
static void few_descriptors(conf_t *t)
{
    angara_address_t other;
    angara_status_t  status = ANGARA_ERR_LAST;
    struct rlimit    before;
    const char      *text;
    unsigned         failures = 0;
    rlim_t           n;

    if (target_only(t, &other)) {
        return;
    }
    getrlimit(RLIMIT_NOFILE, &before);
    for (n = 4; (n < 200) && (status != ANGARA_OK); ++n) {
        capture_begin();
        set_limit(RLIMIT_NOFILE, n);
        status = whole_life(t, &other);
        set_limit(RLIMIT_NOFILE, before.rlim_cur);
        text = capture_end();
        if (status != ANGARA_OK) {
            ++failures;
            if ((status != ANGARA_ERR_LIMIT) && (status != ANGARA_ERR_SYSTEM)) {
                CHECK_STATUS(status, ANGARA_ERR_LIMIT);
            }
            expect_message(text, "ulimit -n");
        }
    }
    CHECK_OK(status);
    CHECK(failures >= 2);
    conf_barrier(t);
}

static void small_files(conf_t *t)
{
    angara_address_t other;
    struct rlimit    before;
    const char      *text;

    if (strcmp(conf_device(), "soft") != 0) {
        rank_skip("only on the soft fabric memory is a file");
    }
    if (target_only(t, &other)) {
        return;
    }
    getrlimit(RLIMIT_FSIZE, &before);
    capture_begin();
    set_limit(RLIMIT_FSIZE, 4096); /* beyond it the kernel sends SIGXFSZ, which kills */
    CHECK_STATUS(whole_life(t, &other), ANGARA_ERR_LIMIT);
    set_limit(RLIMIT_FSIZE, before.rlim_cur);
    text = capture_end();
    expect_message(text, "ulimit -f");
    CHECK_OK(whole_life(t, &other));
    conf_barrier(t);
}

/* Address space: from nothing to enough in steps. */
static void small_address_space(conf_t *t)
{
    angara_address_t other;
    angara_status_t  status = ANGARA_ERR_LAST;
    struct rlimit    before;
    const char      *text;
    unsigned         failures = 0;
    unsigned long    pages;
    rlim_t           extra;
    FILE            *statm;

    if (CONF_SANITIZED) {
        rank_skip("the address sanitizer needs unlimited address space");
    }
    if (getenv("ANGARA_TEST_QUICK") != NULL) {
        rank_skip("an emulated process needs its address space");
    }
    if (target_only(t, &other)) {
        return;
    }
    getrlimit(RLIMIT_AS, &before);
    statm = fopen("/proc/self/statm", "r");
    CHECK(statm != NULL);
    CHECK(fscanf(statm, "%lu", &pages) == 1);
    fclose(statm);
    for (extra = 1u << 18; (extra < (1ull << 32)) && (status != ANGARA_OK); extra += extra / 4) {
        capture_begin();
        set_limit(RLIMIT_AS, pages * 4096ull + extra);
        status = whole_life(t, &other);
        set_limit(RLIMIT_AS, before.rlim_cur);
        text = capture_end();
        if (status != ANGARA_OK) {
            ++failures;
            if (status != ANGARA_ERR_LIMIT) {
                CHECK_STATUS(status, ANGARA_ERR_NO_MEMORY);
            }
            CHECK(text[0] != '\0');
        }
    }
    CHECK_OK(status);
    CHECK(failures >= 2);
    conf_barrier(t);
}

/* A locked-memory limit of nothing doesn't concern the soft fabric. */
static void no_locked_memory(conf_t *t)
{
    angara_address_t other;

    if (target_only(t, &other)) {
        return;
    }
    set_limit(RLIMIT_MEMLOCK, 0);
    CHECK_OK(whole_life(t, &other));
    conf_barrier(t);
}

static void test_few_descriptors(void **state)
{
    (void)state;
    conf_run(2, few_descriptors, NULL);
}

static void test_small_files(void **state)
{
    (void)state;
    conf_run(2, small_files, NULL);
}

static void test_small_address_space(void **state)
{
    (void)state;
    conf_run(2, small_address_space, NULL);
}

static void test_no_locked_memory(void **state)
{
    (void)state;
    conf_run(2, no_locked_memory, NULL);
}

/* ---- leftovers ----------------------------------------------------------------------------- */

/* Entries that look like ours. Other users of the machine come and go, so names decide. */
static unsigned leftovers(const char *path)
{
    unsigned       count = 0;
    DIR           *dir   = opendir(path);
    struct dirent *entry;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        if ((strcasestr(entry->d_name, "angara") != NULL) ||
            (strncmp(entry->d_name, "soft-", 5) == 0)) {
            ++count;
        }
    }
    closedir(dir);
    return count;
}

static void killed_with_everything(conf_t *t)
{
    conf_mem_t mem;

    conf_open(t);
    conf_mem_init(t, &mem, 1, 1u << 20, ANGARA_ACCESS_ALL);
    conf_barrier(t);
    kill(getpid(), SIGKILL);
}

static void test_nothing_left(void **state)
{
    unsigned shm = leftovers("/dev/shm"), tmp = leftovers("/tmp");

    (void)state;
    conf_run_victims(2, killed_with_everything, NULL, 3);
    assert_int_equal(leftovers("/dev/shm"), shm);
    assert_int_equal(leftovers("/tmp"), tmp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_settings),   cmocka_unit_test(test_wrong_ranges),
        cmocka_unit_test(test_valid_settings),   cmocka_unit_test(test_unknown_setting),
        cmocka_unit_test(test_different_nodes),  cmocka_unit_test(test_few_descriptors),
        cmocka_unit_test(test_small_files),      cmocka_unit_test(test_small_address_space),
        cmocka_unit_test(test_no_locked_memory), cmocka_unit_test(test_nothing_left),
    };

    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
