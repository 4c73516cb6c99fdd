/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of kmod_test: what ordinary users can take (quotas, RLIMIT_MEMLOCK), that others still get
 * theirs then, and that the driver copes with tables that can't be had.
 */
#include "kmod_test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB      (1ull << 20)
#define GREEDY  NOBODY
#define OTHER   (NOBODY - 1)
#define PES_MAX 1024

/* ---- users ----------------------------------------------------------------------------------- */

static const char *const nodes[] = {"/dev/angara0", "/dev/angara_memreg"};

static void nodes_mode(mode_t mode)
{
    for (unsigned i = 0; i < 2; ++i) {
        MUST(chmod(nodes[i], mode) == 0);
    }
}

/* What a user has got before he was refused. */
typedef struct {
    unsigned  count;
    int       error;
    long long pinned; /* KiB, as the kernel counts the process */
} taken_t;

typedef taken_t (*take_t)(void);

typedef struct {
    pid_t   pid;
    int     pipe;
    taken_t taken;
} user_t;

/* In a child that is an ordinary user: take, and hold what was taken until user_end(). */
static user_t user_start(uid_t uid, rlim_t memlock, take_t take)
{
    struct rlimit limit = {memlock, memlock};
    int           pipes[2];
    user_t        user;
    taken_t       taken;

    MUST(pipe(pipes) == 0);
    user.pid = fork();
    if (user.pid == 0) {
        MUST(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
        MUST(setgid(uid) == 0 && setuid(uid) == 0);
        taken        = take();
        taken.pinned = value_read("/proc/self/status", "VmPin:");
        MUST(write(pipes[1], &taken, sizeof(taken)) == sizeof(taken));
        pause();
    }
    close(pipes[1]);
    MUST(read(pipes[0], &user.taken, sizeof(user.taken)) == sizeof(user.taken));
    user.pipe = pipes[0];
    return user;
}

static void user_end(user_t *user)
{
    kill(user->pid, SIGKILL);
    MUST(waitpid(user->pid, NULL, 0) == user->pid);
    close(user->pipe);
}

/* In a user namespace of that user's, as another user there. */
static taken_t user_try_inside(uid_t uid, take_t take)
{
    int     ready[2], go[2], result[2];
    char    path[64], byte;
    taken_t taken;
    pid_t   pid;

    MUST(pipe(ready) == 0 && pipe(go) == 0 && pipe(result) == 0);
    pid = fork();
    if (pid == 0) {
        MUST(setgid(uid) == 0 && setuid(uid) == 0 && unshare(CLONE_NEWUSER) == 0);
        MUST(write(ready[1], "", 1) == 1 && read(go[0], &byte, 1) == 1);
        MUST(setresuid(1, 1, 1) == 0);
        taken = take();
        MUST(write(result[1], &taken, sizeof(taken)) == sizeof(taken));
        _exit(0);
    }
    MUST(pid > 0 && read(ready[0], &byte, 1) == 1);
    snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
    file_write(path, "0 100000 2");
    MUST(write(go[1], "", 1) == 1 && read(result[0], &taken, sizeof(taken)) == sizeof(taken));
    MUST(waitpid(pid, NULL, 0) == pid);
    for (int i = 0; i < 2; ++i) {
        close(ready[i]);
        close(go[i]);
        close(result[i]);
    }
    return taken;
}

/* The same, for a moment. */
static taken_t user_try(uid_t uid, rlim_t memlock, take_t take)
{
    user_t user = user_start(uid, memlock, take);

    user_end(&user);
    return user.taken;
}

/* ---- what they take -------------------------------------------------------------------------- */

static taken_t take_pes(void)
{
    struct angara_ioc_pe_create create;
    int                         domain = domain_open();
    taken_t                     taken  = {0};

    while (taken.count < PES_MAX && pe_ioctl(domain, PAGE, &create) == 0) {
        taken.count++;
    }
    taken.error = errno;
    return taken;
}

static taken_t take_pe(void)
{
    struct angara_ioc_pe_create create;
    taken_t                     taken = {0};

    taken.count = pe_ioctl(domain_open(), PAGE, &create) == 0;
    taken.error = taken.count ? 0 : errno;
    return taken;
}

static taken_t take_regions(void)
{
    static char              byte;
    struct angara_ioc_mr_reg reg;
    int                      domain = domain_open(), memreg = memreg_open();
    taken_t                  taken = {0};

    while (mr_reg(memreg, domain, &byte, 1, 0, &reg) == 0) {
        taken.count++;
    }
    taken.error = errno;
    return taken;
}

static taken_t take_region(void)
{
    static char              byte;
    struct angara_ioc_mr_reg reg;
    taken_t                  taken = {0};

    taken.count = mr_reg(memreg_open(), domain_open(), &byte, 1, 0, &reg) == 0;
    taken.error = taken.count ? 0 : errno;
    return taken;
}

#define STEP (8 * MB)

/* Window memory, of several PEs, in MiB. */
static taken_t take_memory(void)
{
    struct angara_ioc_pe_create create;
    int                         domain = domain_open();
    taken_t                     taken  = {0};

    while (pe_ioctl(domain, 16 * STEP, &create) == 0) {
        for (uint64_t at = 0; at < 16 * STEP; at += STEP) {
            if (window_commit(create.fd, at, STEP) != 0) {
                taken.error = errno;
                return taken;
            }
            taken.count += STEP / MB;
        }
    }
    taken.error = errno;
    return taken;
}

/* What a process of MPI with some peers takes. */
static taken_t take_usual(void)
{
    struct angara_ioc_pe_create create;
    taken_t                     taken = {0};

    taken.count = pe_ioctl(domain_open(), 64 * MB, &create) == 0 &&
                  window_commit(create.fd, 0, 2 * MB) == 0 &&
                  window_commit(create.fd, 32 * MB, 16 * 55 * 1024) == 0;
    taken.error = taken.count ? 0 : errno;
    return taken;
}

/* ---- quotas ---------------------------------------------------------------------------------- */

/* One takes what he can; somebody else, and root, find that there is some left. */
static void quota_case(const char *name, take_t take, take_t take_one, unsigned wanted)
{
    user_t  greedy = user_start(GREEDY, RLIM_INFINITY, take);
    taken_t same, other;

    printf("# %s: %u, errno %d\n", name, greedy.taken.count, greedy.taken.error);
    OK_SAY(greedy.taken.count <= wanted && greedy.taken.count > wanted / 2,
           "%s: a user gets a quarter", name);
    OK_SAY(greedy.taken.error == EDQUOT, "%s: then it is EDQUOT", name);
    same = user_try(GREEDY, RLIM_INFINITY, take_one);
    OK_SAY(same.error == EDQUOT || take == take_memory, "%s: in his other processes too", name);
    same = user_try_inside(GREEDY, take_one);
    OK_SAY(same.error == EDQUOT || take == take_memory, "%s: and in a user namespace of his", name);
    other = user_try(OTHER, RLIM_INFINITY, take_one);
    OK_SAY(other.count == 1, "%s: another user still gets one", name);
    user_end(&greedy);
    OK(value_wait("/sys/class/angara/angara0/pe_used", 0));
    OK(value_wait("/sys/class/angara/angara0/mr_used", 0));
}

void test_quotas(void)
{
    long long              total  = value_read("/proc/meminfo", "MemTotal:");
    int                    domain = domain_open();
    struct angara_ioc_info info;

    MUST(info_get(domain, &info) == 0);
    close(domain);
    nodes_mode(0666);
    quota_case("PEs", take_pes, take_pe, info.pe_max / 4);
    quota_case("regions", take_regions, take_region, info.mr_max / 4);
    /* WINDOW_COMMIT EDQUOT */
    quota_case("memory", take_memory, take_usual, (unsigned)(total / 1024 / 4));
    nodes_mode(0600);
}

/* ---- RLIMIT_MEMLOCK -------------------------------------------------------------------------- */

/* KiB that a buffer of so many bytes takes: the kernel gives powers of two of pages. */
static long long buffer_kib(uint64_t bytes)
{
    uint64_t size = PAGE;

    while (size < bytes) {
        size *= 2;
    }
    return (long long)(size / 1024);
}

long long pe_kib(const struct angara_ioc_info *info)
{
    return buffer_kib(info->cmd_entries * sizeof(struct angara_desc)) +
           buffer_kib(info->event_entries * sizeof(struct angara_event_record)) +
           buffer_kib(sizeof(struct angara_status)) + buffer_kib(info->marker_slots * 8ull) +
           buffer_kib(1); /* upper level of the window table */
}

static int memlock_child(void)
{
    struct rlimit            limit  = {64 * PAGE, 64 * PAGE};
    int                      domain = domain_open(), memreg = memreg_open(), bad = 0;
    char                    *pages = pages_map(64);
    struct angara_ioc_mr_reg reg, other;
    struct angara_ioc_info   info;
    unsigned                 left;
    pe_t                     pe;

    MUST(info_get(domain, &info) == 0);
    left = 64 - (unsigned)(pe_kib(&info) * 1024 / PAGE);
    MUST(left > 20 && left < 60 && setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    MUST(setuid(NOBODY) == 0);
    pe_open(domain, 1 << 20, &pe);
    bad |= !(mr_reg(memreg, domain, pages, (left + 1) * PAGE, ALL, &reg) == -1 && errno == ENOMEM)
           << 0;
    bad |= !(mr_reg(memreg, domain, pages, (left - 10) * PAGE, ALL, &reg) == 0) << 1;
    /* With a page for the table. */
    bad |= !(window_commit(pe.fd, 0, 10 * PAGE) == -1 && errno == ENOMEM) << 2;
    bad |= !(window_commit(pe.fd, 0, 9 * PAGE) == 0) << 3;
    bad |= !(mr_reg(memreg, domain, pages + 60 * PAGE, 1, ALL, &other) == -1 && errno == ENOMEM)
           << 4;
    bad |= !(mr_dereg(memreg, reg.handle) == 0) << 5;
    bad |= !(mr_reg(memreg, domain, pages, (left - 10) * PAGE, ALL, &other) == 0) << 6;
    return bad;
}

void test_limits(void)
{
    int                    domain = domain_open(), status;
    struct angara_ioc_info info;
    taken_t                taken;
    pid_t                  pid = fork();

    if (pid == 0) {
        _exit(memlock_child());
    }
    MUST(waitpid(pid, &status, 0) == pid);
    OK_SAY(status == 0, "windows, rings and regions together, to the page");

    MUST(info_get(domain, &info) == 0);
    nodes_mode(0666);
    taken = user_try(GREEDY, 64 << 10, take_pes);
    OK_SAY(taken.count == 0 && taken.error == ENOMEM && taken.pinned == 0,
           "64 KiB are not enough for a PE: ENOMEM");
    taken = user_try(GREEDY, RLIM_INFINITY, take_pe);
    printf("# a PE counts %lld KiB\n", taken.pinned);
    OK_SAY(taken.pinned == pe_kib(&info), "a PE's rings and table count");
    taken = user_try(GREEDY, 8 * MB, take_usual);
    OK_SAY(taken.count == 1, "with 8 MiB a usual process works");
    OK(taken.pinned == pe_kib(&info) + 2 * 1024 + 16 * 55 + 2 * (PAGE / 1024));
    taken = user_try(GREEDY, 8 * MB, take_memory);
    OK_SAY(taken.error == ENOMEM && taken.pinned <= 8 * 1024, "it is the limit on windows too");
    nodes_mode(0600);
    close(domain);
    OK(value_wait("/sys/class/angara/angara0/pe_used", 0));
}

/* ---- tables that can't be had ---------------------------------------------------------------- */

#define FAIL "/sys/module/angara_hooks/parameters/fail"

/* Write the device's name without an error being one. @return the write's errno, or 0 */
static int driver_write(const char *path, const char *slot)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC), error;

    MUST(fd >= 0);
    error = write(fd, slot, strlen(slot)) == (ssize_t)strlen(slot) ? 0 : errno;
    close(fd);
    return error;
}

/* The driver is bound again and again, while its first, second, third ... allocation fails. */
void test_tables(void)
{
    const char *slot    = slot_name();
    long long   entries = SYSFS("mr_max");
    char        text[32];
    unsigned    n, smaller = 0, refused = 0, lost = 0;
    int         fail, reached = 1;
    ssize_t     length;

    hooks_load();
    fail = open(FAIL, O_RDWR | O_CLOEXEC);
    MUST(fail >= 0 && driver_write(DRIVER "unbind", slot) == 0);
    for (n = 1; reached && n < 2000; ++n) {
        length = snprintf(text, sizeof(text), "%u\n", n);
        MUST(pwrite(fail, text, (size_t)length, 0) == length);
        driver_write(DRIVER "bind", slot);
        MUST(pwrite(fail, "0\n", 2, 0) == 2);
        MUST(pread(fail, text, sizeof(text) - 1, 0) > 0);
        reached = text[0] == '1';
        if (access("/sys/class/angara/angara0", F_OK) != 0) {
            refused++;
            continue;
        }
        smaller += SYSFS("mr_max") < entries;
        lost += SYSFS("pe_used") != 0;
        MUST(driver_write(DRIVER "unbind", slot) == 0);
    }
    printf("# %u allocations: refused %u, a smaller table %u\n", n - 2, refused, smaller);
    OK_SAY(n < 2000 && refused >= 3, "what can't be had refuses the device");
    OK_SAY(smaller == 1, "but for the table of regions, which is smaller then");
    OK(lost == 0);
    MUST(driver_write(DRIVER "bind", slot) == 0);
    close(fail);
    hooks_unload();
    OK(SYSFS("mr_max") == entries);
    nodes_mode(0666);
    OK(user_try(OTHER, RLIM_INFINITY, take_usual).count == 1);
    nodes_mode(0600);
}
