/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Group of kmod_test: each call is made again and again, while its first, second, third ...
 * allocation fails (kmod/hooks), until it doesn't get to that many. Each time it says ENOMEM (or
 * succeeds, where the kernel knows another way), and nothing is left.
 */
#include "kmod_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAIL  "/sys/module/angara_hooks/parameters/fail"
#define LIMIT 2000u
#define NODE  "/sys/class/angara/angara0/"

typedef struct {
    int                         domain, memreg, jobkey;
    struct angara_ioc_pe_create create;
    char                       *pages, *scattered;
    uint32_t                    handle; /* of a region to be deregistered */
} ground_t;

/* A call; what it has made it takes back by itself. @return as ioctl() */
typedef int (*call_t)(ground_t *ground);

#define SCATTERED 1200u /* pages: more than two chunks, and a list of two levels */

static int call_open_domain(ground_t *ground)
{
    int fd = open("/dev/angara0", O_RDWR | O_CLOEXEC);

    (void)ground;
    return fd < 0 ? -1 : close(fd);
}

static int call_open_memreg(ground_t *ground)
{
    int fd = open("/dev/angara_memreg", O_RDWR | O_CLOEXEC);

    (void)ground;
    return fd < 0 ? -1 : close(fd);
}

static int call_info(ground_t *ground)
{
    struct angara_ioc_info info;

    return info_get(ground->domain, &info);
}

static int call_pe_create(ground_t *ground)
{
    struct angara_ioc_pe_create create;

    return pe_ioctl(ground->domain, 64 << 20, &create) != 0 ? -1 : close(create.fd);
}

/* Of a PE of its own: what is committed stays until its end. */
static int call_commit(ground_t *ground)
{
    return window_commit(ground->create.fd, 0, 40 * PAGE);
}

static int call_commit_much(ground_t *ground)
{
    return window_commit(ground->create.fd, 0, 1000 * PAGE);
}

static int call_map(ground_t *ground)
{
    void *at = part(ground->create.fd, ANGARA_MMAP_CMD, 256 * sizeof(struct angara_desc), RW,
                    MAP_SHARED);

    return at == MAP_FAILED ? -1 : munmap(at, 256 * sizeof(struct angara_desc));
}

static int reg_dereg(ground_t *ground, const char *at, size_t length)
{
    struct angara_ioc_mr_reg reg;

    return mr_reg(ground->memreg, ground->domain, at, length, ALL, &reg) != 0 ?
               -1 :
               mr_dereg(ground->memreg, reg.handle);
}

static int call_reg_byte(ground_t *ground)
{
    return reg_dereg(ground, ground->pages + 5, 1);
}

static int call_reg_scattered(ground_t *ground)
{
    return reg_dereg(ground, ground->scattered + 5, SCATTERED * PAGE - 10);
}

/* Where nothing has been touched yet: page tables and pages are allocated while it is pinned. */
static int call_reg_untouched(ground_t *ground)
{
    madvise(ground->pages, 100 * PAGE, MADV_DONTNEED);
    return reg_dereg(ground, ground->pages, 100 * PAGE);
}

static int call_dereg(ground_t *ground)
{
    return mr_dereg(ground->memreg, ground->handle);
}

static int call_job(ground_t *ground)
{
    struct angara_ioc_job job = {.size = sizeof(job), .uid = NOBODY, .value = 9};

    return ioctl(ground->jobkey, ANGARA_IOC_JOB_ADD, &job) != 0 ?
               -1 :
               ioctl(ground->jobkey, ANGARA_IOC_JOB_DEL, &job);
}

/* ---- what is left ---------------------------------------------------------------------------- */

typedef struct {
    long long values[6];
} left_t;

static const char *const left_names[6] = {"pins",         "mr_used",      "pe_used",
                                          "window_pages", "pinned_pages", "VmPin"};

static left_t left_look(void)
{
    return (left_t){{
        pinned_pages(),
        value_read(NODE "mr_used", NULL),
        value_read(NODE "pe_used", NULL),
        value_read(COUNTERS, "window_pages"),
        value_read("/sys/kernel/debug/angara_memreg/counters", "pinned_pages"),
        value_read("/proc/self/status", "VmPin:"),
    }};
}

/* ---- failing --------------------------------------------------------------------------------- */

/* Have this task's n-th allocation fail. The descriptor stays open: opening it allocates too. */
static void fail_arm(int fail, unsigned n)
{
    char text[16];
    int  length = snprintf(text, sizeof(text), "%u\n", n);

    MUST(pwrite(fail, text, (size_t)length, 0) == length);
}

/* @return 1 if the n-th was reached */
static int has_failed(int fail)
{
    char text[32] = "";

    MUST(pread(fail, text, sizeof(text) - 1, 0) > 0);
    return text[0] == '1';
}

/* Make the call while the n-th allocation fails. @return 0, or its errno */
static int attempt(ground_t *ground, int fail, unsigned n, call_t call)
{
    int ret;

    fail_arm(fail, n);
    ret = call(ground) == 0 ? 0 : errno;
    fail_arm(fail, 0);
    return ret;
}

/* In a new process, which has nothing of the modules' yet. */
static int attempt_in_child(ground_t *ground, int fail, unsigned n, call_t call)
{
    int   status;
    pid_t pid = fork();

    if (pid == 0) {
        _exit(attempt(ground, fail, n, call));
    }
    MUST(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/*
 * A kernel that finds errors allocates for that within ours, and goes on without what it can't
 * have.
 */
static int kernel_is_debugged(void)
{
    return access("/sys/kernel/debug/kmemleak", F_OK) == 0;
}

/*
 * @at_least: allocations of the call that must have failed with ENOMEM; a dereg never fails.
 * @prepare: before each call, if any
 */
static void alloc_case(ground_t *ground, int fail, const char *name, call_t call,
                       void (*prepare)(ground_t *ground), unsigned at_least)
{
    unsigned n = 1, refused = 0, wrong = 0, lost = 0;
    int      reached = 1, error;
    left_t   before, after;

    for (; reached && n < LIMIT; ++n) {
        if (prepare != NULL) {
            prepare(ground);
        }
        before  = left_look();
        error   = ground->domain < 0 ? attempt_in_child(ground, fail, n, call) :
                                       attempt(ground, fail, n, call);
        reached = has_failed(fail);
        after   = left_look();
        refused += error == ENOMEM;
        if (error != 0 && (error != ENOMEM || !reached)) {
            printf("# %s: allocation %u: errno %d (%s)\n", name, n, error, strerror(error));
            wrong++;
        }
        if (error != 0 && memcmp(&before, &after, sizeof(before)) != 0) {
            printf("# %s: allocation %u: differs:", name, n);
            for (unsigned i = 0; i < sizeof(left_names) / sizeof(left_names[0]); ++i) {
                printf(" %s %lld", left_names[i], after.values[i] - before.values[i]);
            }
            printf("\n");
            lost++;
        }
    }
    printf("# %s: %u allocations, %u ENOMEM\n", name, n - 2, refused);
    if (kernel_is_debugged()) {
        at_least = at_least > 0;
    }
    OK_SAY(n < LIMIT && refused >= at_least, "%s: failed allocations are ENOMEM", name);
    OK_SAY(wrong == 0, "%s: and nothing else", name);
    OK_SAY(lost == 0, "%s: and leave nothing", name);
}

/*
 * Pages that the driver has for itself are in no counter: fail late, often, and look at how much
 * memory there is. A call that loses what it had would lose 100 MiB and more.
 */
static void memory_case(ground_t *ground, int fail, const char *name, call_t call,
                        void (*prepare)(ground_t *ground), unsigned n, unsigned rounds)
{
    unsigned  refused = 0;
    long long before  = 0;

    if (kernel_is_debugged()) {
        tap_skip("failed allocations lose no memory", "kmemleak looks for it at the end");
        return;
    }
    for (unsigned i = 0; i <= rounds; ++i) {
        if (prepare != NULL) {
            prepare(ground);
        }
        refused += attempt(ground, fail, n, call) == ENOMEM;
        if (i == 0) { /* the first fills caches */
            before = value_read("/proc/meminfo", "MemFree:");
        }
    }
    before -= value_read("/proc/meminfo", "MemFree:");
    printf("# %s: %lld KiB less\n", name, before);
    OK_SAY(refused == rounds + 1 && before < 50 << 10, "%s: failed allocations lose no memory",
           name);
}

/* Every page apart from the next one, so that the region is a list of single pages. */
static void scattered_make(ground_t *ground)
{
    char *spread = pages_map(2 * SCATTERED);

    MUST(madvise(spread, 2 * SCATTERED * PAGE, MADV_NOHUGEPAGE) == 0);
    memset(spread, 1, 2 * SCATTERED * PAGE);
    ground->scattered = pages_map(SCATTERED);
    for (unsigned i = 0; i < SCATTERED; ++i) {
        MUST(mremap(spread + 2 * i * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                    ground->scattered + i * PAGE) != MAP_FAILED);
    }
    munmap(spread, 2 * SCATTERED * PAGE);
}

static void region_prepare(ground_t *ground)
{
    struct angara_ioc_mr_reg reg;

    MUST(mr_reg(ground->memreg, ground->domain, ground->pages, 3 * PAGE, ALL, &reg) == 0);
    ground->handle = reg.handle;
}

static void commit_prepare(ground_t *ground)
{
    close(ground->create.fd);
    MUST(pe_ioctl(ground->domain, 4 << 20, &ground->create) == 0);
}

void test_alloc(void)
{
    ground_t ground = {.domain = -1};
    int      fail;

    hooks_load();
    fail = open(FAIL, O_RDWR | O_CLOEXEC);
    MUST(fail >= 0);
    alloc_case(&ground, fail, "open a domain", call_open_domain, NULL, 4);
    alloc_case(&ground, fail, "open memreg", call_open_memreg, NULL, 3);
    ground.domain = domain_open();
    ground.memreg = memreg_open();
    ground.pages  = pages_map(100);
    MUST(pe_ioctl(ground.domain, 1 << 20, &ground.create) == 0);
    scattered_make(&ground);
    memset(ground.pages, 1, 100 * PAGE);
    alloc_case(&ground, fail, "INFO", call_info, NULL, 0);
    alloc_case(&ground, fail, "PE_CREATE", call_pe_create, NULL, 8);
    alloc_case(&ground, fail, "WINDOW_COMMIT", call_commit, commit_prepare, 40);
    alloc_case(&ground, fail, "mmap", call_map, NULL, 0);
    alloc_case(&ground, fail, "MR_REG of a byte", call_reg_byte, NULL, 4);
    alloc_case(&ground, fail, "MR_REG of scattered pages", call_reg_scattered, NULL, 9);
    alloc_case(&ground, fail, "MR_REG of untouched pages", call_reg_untouched, NULL, 4);
    alloc_case(&ground, fail, "MR_DEREG", call_dereg, region_prepare, 0);
    ground.jobkey = open("/dev/angara_jobkey", O_RDWR | O_CLOEXEC);
    MUST(ground.jobkey >= 0);
    alloc_case(&ground, fail, "JOB_ADD", call_job, NULL, 1);
    close(ground.jobkey);
    memory_case(&ground, fail, "PE_CREATE", call_pe_create, NULL, 9, 200);
    memory_case(&ground, fail, "WINDOW_COMMIT", call_commit_much, commit_prepare, 900, 40);
    close(fail);
    close(ground.create.fd);
    close(ground.memreg);
    close(ground.domain);
    hooks_unload();
    OK(SYSFS("mr_used") == 0 && SYSFS("pe_used") == 0);
}
