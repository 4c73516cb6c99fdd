/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of kmod_test: the memory cgroup. What windows cost, who pays, a limit that is reached, and
 * who may have to wait for a process that gets its memory slowly: nobody else.
 */
#include "kmod_test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB (1ull << 20)

/* ---- groups -----------------------------------------------------------------------------------
 */

#define CGROUPS "/tmp/cgroup"
#define CGROUP  CGROUPS "/limits"

/* @return 0: there is no such controller */
static int cgroup_make(const char *max)
{
    char controllers[256] = "";
    int  fd;

    mkdir(CGROUPS, 0700);
    MUST(mount("none", CGROUPS, "cgroup2", 0, NULL) == 0);
    fd = open(CGROUPS "/cgroup.controllers", O_RDONLY | O_CLOEXEC);
    MUST(fd >= 0 && read(fd, controllers, sizeof(controllers) - 1) >= 0);
    close(fd);
    if (strstr(controllers, "memory") == NULL) {
        MUST(umount(CGROUPS) == 0);
        return 0;
    }
    file_write(CGROUPS "/cgroup.subtree_control", "+memory");
    MUST(mkdir(CGROUP, 0700) == 0);
    file_write(CGROUP "/memory.max", max);
    return 1;
}

static void cgroup_end(void)
{
    MUST(rmdir(CGROUP) == 0);
    MUST(umount(CGROUPS) == 0);
}

/* ---- cost and limit -------------------------------------------------------------------------- */

/*
 * KiB of kernel memory of the group. The kernel adds up what each processor has counted when that
 * is much, and every 2 s (FLUSH_TIME in mm/memcontrol.c): before that some hundred KiB may be
 * missing (in 5 of 4000 readings).
 */
static long long cgroup_kernel(void)
{
    usleep(2500000);
    return value_read(CGROUP "/memory.stat", "kernel") / 1024;
}

#define COST_PES 16

static void windows_open(int domain, uint64_t window_size, int *fds)
{
    struct angara_ioc_pe_create create;

    for (unsigned i = 0; i < COST_PES; ++i) {
        MUST(pe_ioctl(domain, window_size, &create) == 0);
        fds[i] = create.fd;
    }
}

static void windows_close(const int *fds)
{
    for (unsigned i = 0; i < COST_PES; ++i) {
        close(fds[i]);
    }
}

/* KiB of kernel memory of PEs with such windows. */
static long long windows_cost(int domain, uint64_t window_size)
{
    long long before = cgroup_kernel(), cost;
    int       fds[COST_PES];

    windows_open(domain, window_size, fds);
    cost = cgroup_kernel() - before;
    windows_close(fds);
    return cost;
}

#define WINDOW_KIB 16 /* of a window of any size, none of which is committed: docs/abi.md */

static void cost_case(void)
{
    struct angara_ioc_info info;
    int                    domain = domain_open(), fds[COST_PES];
    long long              small, large;

    file_write(CGROUP "/cgroup.procs", "0");
    MUST(info_get(domain, &info) == 0);
    windows_open(domain, PAGE, fds); /* slabs are filled */
    windows_close(fds);
    small = windows_cost(domain, PAGE);
    large = windows_cost(domain, info.window_max);
    printf("# %d PEs: %lld KiB with windows of a page, %lld KiB with %llu MiB\n", COST_PES, small,
           large, (unsigned long long)(info.window_max / MB));
    OK_SAY(small >= COST_PES * pe_kib(&info), "the cgroup pays for rings");
    OK_SAY(large - small <= COST_PES * WINDOW_KIB, "what isn't committed costs next to nothing");
    close(domain);
    file_write(CGROUPS "/cgroup.procs", "0");
}

/* More than the group may have: refused, and nobody is killed for it. */
static void max_case(void)
{
    struct angara_ioc_pe_create create;
    int                         status;
    pid_t                       pid = fork();

    if (pid == 0) {
        int bad = 0;

        file_write(CGROUP "/cgroup.procs", "0");
        MUST(pe_ioctl(domain_open(), 256 * MB, &create) == 0);
        bad |= !(window_commit(create.fd, 0, 256 * MB) == -1 && errno == ENOMEM) << 0;
        bad |= !(window_commit(create.fd, 0, 8 * MB) == 0) << 1;
        bad |= !(window_commit(create.fd, 8 * MB, 248 * MB) == -1 && errno == ENOMEM) << 2;
        bad |= !(window_commit(create.fd, 200 * MB, 8 * MB) == 0) << 3;
        _exit(bad);
    }
    MUST(waitpid(pid, &status, 0) == pid);
    OK_SAY(WIFEXITED(status), "a process at its cgroup's limit lives on");
    OK_SAY(status == 0, "it is told ENOMEM, and can have what there is");
    OK(value_read(CGROUP "/memory.events", "oom_kill") == 0);
    OK(value_wait("/sys/class/angara/angara0/pe_used", 0));
}

void test_memory(void)
{
    if (!cgroup_make("max")) {
        tap_skip("memory", "there is no memory controller in cgroup2");
        return;
    }
    cost_case();
    file_write(CGROUP "/memory.max", "67108864");
    max_case();
    cgroup_end();
}

/* ---- ends in the middle of a commit ---------------------------------------------------------- */

/* WINDOW_COMMIT EINTR: who is killed leaves nothing. */
void test_kill_commit(void)
{
    struct angara_ioc_pe_create create;

    for (unsigned i = 0; i < 8; ++i) {
        pid_t pid = fork();

        if (pid == 0) {
            int domain = domain_open();

            while (pe_ioctl(domain, 128 * MB, &create) == 0) {
                window_commit(create.fd, 0, 128 * MB);
                close(create.fd);
            }
            _exit(1);
        }
        usleep(20000 + 10000 * i);
        kill(pid, SIGKILL);
        MUST(waitpid(pid, NULL, 0) == pid);
    }
    OK(value_wait("/sys/class/angara/angara0/pe_used", 0));
    OK(value_read(COUNTERS, "window_pages") == 0);
}

#define SLOW_MB 128ull /* at 256 KiB in 2 s */

typedef struct {
    pid_t         pid;
    volatile int *error; /* of its commit; -1: under way */
} slow_t;

/* A process that gets the memory of its window so slowly that it takes many minutes. */
static slow_t slow_start(uint64_t job_key)
{
    long long before = value_read(CGROUP "/memory.events", "high");
    slow_t    slow;
    pe_t      pe;

    slow.error  = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *slow.error = -1;
    slow.pid    = fork();
    if (slow.pid == 0) {
        file_write(CGROUP "/cgroup.procs", "0");
        MUST(pe_open_key(domain_open(), SLOW_MB * MB, job_key, &pe) == 0);
        *slow.error = window_commit(pe.fd, 0, SLOW_MB * MB) == 0 ? 0 : errno;
        _exit(0);
    }
    while (value_read(CGROUP "/memory.events", "high") < before + 3) {
        usleep(10000);
    }
    return slow;
}

/* @return what its commit ended with */
static int slow_end(slow_t *slow)
{
    int error;

    MUST(waitpid(slow->pid, NULL, 0) == slow->pid);
    error = *slow->error;
    munmap((void *)slow->error, PAGE);
    return error;
}

/* What anybody may want of the device meanwhile. */
static void bystander_case(void)
{
    int                      domain = domain_open(), memreg = memreg_open();
    char                    *page = pages_map(1);
    struct angara_ioc_mr_reg reg;
    pe_t                     pe;

    pe_open(domain, PAGE, &pe);
    OK(window_commit(pe.fd, 0, PAGE) == 0);
    OK(mr_reg(memreg, domain, page, PAGE, ALL, &reg) == 0 && mr_dereg(memreg, reg.handle) == 0);
    pe_close(&pe);
    close(memreg);
    close(domain);
    munmap(page, PAGE);
}

/*
 * A memory cgroup above its memory.high gets each 64 pages only after a pause of up to 2 s. Whoever
 * ends such a commit waits for one pause, not for all of them; others don't wait at all.
 */
void test_throttled(void)
{
    struct angara_ioc_job job    = {.size = sizeof(job), .uid = 0, .value = 6};
    int                   jobkey = open("/dev/angara_jobkey", O_RDWR | O_CLOEXEC);
    const char           *slot   = slot_name();
    slow_t                slow;

    if (!cgroup_make("max")) {
        tap_skip("throttled", "there is no memory controller in cgroup2");
        return;
    }
    file_write(CGROUP "/memory.high", "1048576");
    MUST(jobkey >= 0 && ioctl(jobkey, ANGARA_IOC_JOB_ADD, &job) == 0);

    slow = slow_start(job.value);
    bystander_case();
    OK_SAY(*slow.error == -1, "others go on while a process waits for memory of its window");
    OK(ioctl(jobkey, ANGARA_IOC_JOB_DEL, &job) == 0);
    OK_SAY(slow_end(&slow) == ENODEV, "its commit ends when its job key is revoked");

    slow = slow_start(0);
    kill(slow.pid, SIGKILL);
    OK_SAY(slow_end(&slow) == -1, "it can be killed");
    OK(value_wait("/sys/class/angara/angara0/pe_used", 0));
    OK(value_read(COUNTERS, "window_pages") == 0);

    slow = slow_start(0);
    file_write(DRIVER "unbind", slot);
    OK(access("/dev/angara0", F_OK) == -1);
    OK_SAY(slow_end(&slow) == ENODEV, "its commit ends when the device goes");
    file_write(DRIVER "bind", slot);
    OK(value_wait("/sys/class/angara/angara0/pe_used", 0));
    close(jobkey);
    cgroup_end();
}
