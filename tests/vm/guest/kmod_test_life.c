/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of kmod_test: whose files and regions are, when they end, removal of the device. */
#include "kmod_test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- ownership ------------------------------------------------------------------------------- */

static int child_result(pid_t pid)
{
    int status;

    MUST(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void test_fork(void)
{
    int                         domain = domain_open(), memreg = memreg_open();
    char                       *page = pages_map(1);
    struct angara_ioc_mr_reg    reg;
    struct angara_ioc_pe_create create;
    struct angara_ioc_info      info;
    struct pollfd               poll_fd;
    uint64_t                    count;
    pe_t                        pe;
    pid_t                       pid;

    pe_open(domain, 1 << 20, &pe);
    MUST(window_commit(pe.fd, 0, PAGE) == 0);
    pid = fork();
    if (pid == 0) {
        int bad = 0;

        bad |= !(info_get(domain, &info) == -1 && errno == EPERM) << 0;
        bad |= !(pe_ioctl(domain, PAGE, &create) == -1 && errno == EPERM) << 1;
        bad |= !(mr_reg(memreg, domain, page, PAGE, ALL, &reg) == -1 && errno == EPERM) << 2;
        bad |= !(part(pe.fd, 0, PAGE, RW, MAP_SHARED) == MAP_FAILED && errno == EPERM) << 3;
        bad |= !(read(pe.fd, &count, 8) == -1 && errno == EPERM) << 4;
        bad |= !(touch(pe.window, 0) == SIGSEGV) << 5;
        memreg = memreg_open();
        bad |= !(mr_reg(memreg, domain, page, PAGE, ALL, &reg) == -1 && errno == EPERM) << 6;
        poll_fd = (struct pollfd){.fd = pe.fd, .events = POLLIN};
        bad |= !(poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLERR)) << 7;
        _exit(bad);
    }
    OK(child_result(pid) == 0);
    OK(touch(pe.window, 1) == 0 && SYSFS("pe_used") == 1);
    pe_close(&pe);
    close(memreg);
    close(domain);
}

/* Open everything, then pass the descriptors to the parent. */
static void child_hold(int sock)
{
    int                      domain = domain_open(), memreg = memreg_open();
    char                    *pages = pages_map(64), control[CMSG_SPACE(3 * sizeof(int))] = {0};
    struct angara_ioc_mr_reg reg;
    struct iovec             iov  = {"x", 1};
    struct msghdr            msg  = {.msg_iov        = &iov,
                                     .msg_iovlen     = 1,
                                     .msg_control    = control,
                                     .msg_controllen = sizeof(control)};
    struct cmsghdr          *cmsg = CMSG_FIRSTHDR(&msg);
    pe_t                     pe;

    pe_open(domain, 1 << 20, &pe);
    MUST(window_commit(pe.fd, 0, 1 << 20) == 0);
    MUST(touch(pe.window, 1) == 0 && touch(pe.pio, 1) == 0);
    for (unsigned i = 0; i < 64; ++i) {
        MUST(mr_reg(memreg, domain, pages + i * PAGE, PAGE, ALL, &reg) == 0);
    }
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type  = SCM_RIGHTS;
    cmsg->cmsg_len   = CMSG_LEN(3 * sizeof(int));
    memcpy(CMSG_DATA(cmsg), (int[]){domain, memreg, pe.fd}, 3 * sizeof(int));
    MUST(sendmsg(sock, &msg, 0) == 1);
}

/* The child ends in some way while we hold all its descriptors: nothing of it must remain. */
static void hold_case(const char *how)
{
    char                   control[CMSG_SPACE(3 * sizeof(int))] = {0}, byte;
    struct iovec           iov                                  = {&byte, 1};
    struct msghdr          msg    = {.msg_iov = &iov, .msg_iovlen = 1};
    long long              pinned = pinned_pages();
    int                    socks[2], fds[3];
    pid_t                  pid;
    struct angara_ioc_info info;

    msg.msg_control    = control;
    msg.msg_controllen = sizeof(control);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, socks) == 0);
    pid = fork();
    if (pid == 0) {
        child_hold(socks[1]);
        MUST(read(socks[1], &byte, 1) == 1);
        if (strcmp(how, "exec") == 0) {
            execl("/bin/sleep", "sleep", "1000", NULL);
        } else if (strcmp(how, "exit") == 0) {
            _exit(0);
        }
        pause();
    }
    MUST(recvmsg(socks[0], &msg, 0) == 1);
    memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fds));
    OK(SYSFS("pe_used") == 1 && SYSFS("mr_used") == 64);
    OK(info_get(fds[0], &info) == -1 && errno == EPERM);
    MUST(write(socks[0], "x", 1) == 1);
    if (strcmp(how, "kill") == 0) {
        kill(pid, SIGKILL);
    }
    OK(value_wait("/sys/class/angara/angara0/pe_used", 0));
    OK(value_wait("/sys/class/angara/angara0/mr_used", 0));
    OK(pinned_pages() == pinned);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    OK(info_get(fds[0], &info) == -1 && errno == EPERM);
    for (unsigned i = 0; i < 3; ++i) {
        close(fds[i]);
    }
    close(socks[0]);
    close(socks[1]);
}

/* The owner closes its PE while a child still has the file: not a death, whoever ends it at last.
 */
static void closed_while_held(void)
{
    int                        near_domain = domain_open(), far_domain = domain_open();
    struct angara_event_record event = {0};
    pe_t                       near, far;
    pid_t                      pid;

    pe_open(near_domain, PAGE, &near);
    pe_open(far_domain, PAGE, &far);
    pair_set(&near, 0, near.info.node, &far);
    pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    pe_close(&far);
    OK(SYSFS("pe_used") == 2 && !event_take(&near, &event));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (unsigned i = 0; i < 5000 && !event_take(&near, &event); ++i) {
        usleep(1000);
    }
    OK(event.type == ANGARA_EV_PEER_DOWN && event.status == ANGARA_ST_OK);
    pe_close(&near);
    close(near_domain);
    close(far_domain);
    OK(value_wait("/sys/class/angara/angara0/pe_used", 0));
}

void test_hold(void)
{
    hold_case("kill");
    hold_case("exec");
    hold_case("exit");
    closed_while_held();
}

/* Closing in any order; the region outlives its domain's file. */
void test_order(void)
{
    int                      domain = domain_open(), memreg = memreg_open();
    char                    *page   = pages_map(1);
    long long                pinned = pinned_pages();
    struct angara_ioc_mr_reg reg;

    OK(mr_reg(memreg, domain, page, PAGE, ALL, &reg) == 0);
    close(domain);
    OK(SYSFS("mr_used") == 1);
    OK(mr_dereg(memreg, reg.handle) == 0);
    domain = domain_open();
    OK(mr_reg(memreg, domain, page, PAGE, ALL, &reg) == 0);
    close(domain);
    close(memreg);
    OK(SYSFS("mr_used") == 0 && pinned_pages() == pinned);
}

/* ---- removal --------------------------------------------------------------------------------- */

/* Faults of that kind on the page wait until they are answered. */
static int uffd_open(void *page, uint64_t mode)
{
    struct uffdio_api      api   = {.api = UFFD_API};
    struct uffdio_register range = {.range = {(uintptr_t)page, PAGE}, .mode = mode};
    int                    uffd  = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

    MUST(uffd >= 0 && ioctl(uffd, UFFDIO_API, &api) == 0);
    MUST(ioctl(uffd, UFFDIO_REGISTER, &range) == 0);
    return uffd;
}

/* A call whose argument is in a page that isn't there until it is given. */
typedef struct {
    int                         domain, uffd, error;
    struct angara_ioc_pe_create arg;
    char                       *page;
    pthread_t                   thread;
} stuck_t;

static void *stuck_run(void *arg)
{
    stuck_t *stuck = arg;

    stuck->error = ioctl(stuck->domain, ANGARA_IOC_PE_CREATE, stuck->page) == 0 ? 0 : errno;
    return NULL;
}

static void stuck_start(stuck_t *stuck, int domain)
{
    struct pollfd is_stuck = {.events = POLLIN};

    stuck->domain = domain;
    stuck->arg    = (struct angara_ioc_pe_create){.size = sizeof(stuck->arg)};
    stuck->page   = pages_map(1);
    stuck->uffd   = uffd_open(stuck->page, UFFDIO_REGISTER_MODE_MISSING);
    MUST(pthread_create(&stuck->thread, NULL, stuck_run, stuck) == 0);
    is_stuck.fd = stuck->uffd;
    MUST(poll(&is_stuck, 1, 10000) == 1);
}

/* @return the call's errno */
static int stuck_end(stuck_t *stuck)
{
    struct uffdio_copy copy = {.dst = (uintptr_t)stuck->page, .len = PAGE};
    static char        page[PAGE];

    stuck->arg.window_size = PAGE;
    memcpy(page, &stuck->arg, sizeof(stuck->arg));
    copy.src = (uintptr_t)page;
    MUST(ioctl(stuck->uffd, UFFDIO_COPY, &copy) == 0);
    MUST(pthread_join(stuck->thread, NULL) == 0);
    close(stuck->uffd);
    munmap(stuck->page, PAGE);
    return stuck->error;
}

/* Wait until a file is there. */
static int file_wait(const char *path)
{
    for (int i = 0; i < 2000 && access(path, F_OK) != 0; ++i) {
        usleep(1000);
    }
    return access(path, F_OK) == 0;
}

/* A registration that waits for user memory. */
typedef struct {
    int                       memreg, uffd, error;
    struct angara_ioc_mr_reg *arg;
    pthread_t                 thread;
} waiting_t;

static void *waiting_run(void *arg)
{
    waiting_t *waiting = arg;

    int error = ioctl(waiting->memreg, ANGARA_IOC_MR_REG, waiting->arg) == 0 ? 0 : errno;

    __atomic_store_n(&waiting->error, error, __ATOMIC_RELEASE);
    return NULL;
}

static void page_protect(int uffd, void *page, int on)
{
    struct uffdio_writeprotect protect = {.range = {(uintptr_t)page, PAGE},
                                          .mode  = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};

    MUST(ioctl(uffd, UFFDIO_WRITEPROTECT, &protect) == 0);
}

static void waiting_start(waiting_t *waiting)
{
    struct pollfd waits = {.fd = waiting->uffd, .events = POLLIN};

    waiting->error = -1;
    MUST(pthread_create(&waiting->thread, NULL, waiting_run, waiting) == 0);
    while (__atomic_load_n(&waiting->error, __ATOMIC_ACQUIRE) == -1 && poll(&waits, 1, 10) == 0) {
    }
}

static void waiting_end(waiting_t *waiting)
{
    MUST(pthread_join(waiting->thread, NULL) == 0);
    close(waiting->uffd);
}

static struct angara_ioc_mr_reg reg_arg(int domain, const void *addr)
{
    return (struct angara_ioc_mr_reg){.size      = sizeof(struct angara_ioc_mr_reg),
                                      .domain_fd = domain,
                                      .addr      = (uintptr_t)addr,
                                      .length    = PAGE,
                                      .access    = ALL};
}

/*
 * One registration waits for the memory that it is to pin, another for that of its answer, for as
 * long as they like: the device goes all the same, and nothing stays pinned.
 */
void test_remove_stuck(void)
{
    int                domain = domain_open(), memreg = memreg_open();
    char              *missing = pages_map(1), *answer = pages_map(1), *page = pages_map(1);
    const char        *slot   = slot_name();
    long long          pinned = pinned_pages();
    struct uffdio_copy copy   = {.dst = (uintptr_t)missing, .src = (uintptr_t)page, .len = PAGE};
    struct angara_ioc_mr_reg reg;
    waiting_t                pins    = {.memreg = memreg, .arg = &reg};
    waiting_t                answers = {.memreg = memreg, .arg = (void *)answer};

    reg       = reg_arg(domain, missing);
    pins.uffd = uffd_open(missing, UFFDIO_REGISTER_MODE_MISSING);
    waiting_start(&pins);
    *answers.arg = reg_arg(domain, page);
    answers.uffd = uffd_open(answer, UFFDIO_REGISTER_MODE_WP);
    page_protect(answers.uffd, answer, 1);
    waiting_start(&answers);
    OK(answers.error == -1 && SYSFS("mr_used") == 1 && pinned_pages() == pinned + 1);

    file_write(DRIVER "unbind", slot);
    OK_SAY(access("/dev/angara0", F_OK) == -1 && pinned_pages() == pinned,
           "the device goes while registrations wait for user memory");
    if (pins.error == -1) {
        MUST(ioctl(pins.uffd, UFFDIO_COPY, &copy) == 0);
        waiting_end(&pins);
        OK_SAY(pins.error == ENODEV, "the one that was pinning is refused");
    } else {
        waiting_end(&pins);
        MUST(pins.error == EFAULT);
        tap_skip("the one that was pinning is refused", "this kernel doesn't wait when it pins");
    }
    page_protect(answers.uffd, answer, 0);
    waiting_end(&answers);
    OK_SAY(answers.error == 0, "the other had been registered");
    OK(mr_dereg(memreg, answers.arg->handle) == -1 && errno == ENOENT);
    OK(pinned_pages() == pinned);
    close(memreg);
    close(domain);
    file_write(DRIVER "bind", slot);
    MUST(file_wait("/dev/angara0"));
    OK(SYSFS("mr_used") == 0);
    munmap(missing, PAGE);
    munmap(answer, PAGE);
    munmap(page, PAGE);
}

#define BUSY_PAGES 256u
#define BUSY_STEP  (2ull << 20) /* one page in what the kernel unmaps in one go */

typedef struct {
    char        *pages;
    volatile int done;
} busy_t;

/* Is the page of the step still mapped? */
static int busy_has(const busy_t *busy, unsigned step)
{
    unsigned char there;

    MUST(mincore(busy->pages + step * BUSY_STEP, PAGE, &there) == 0);
    return there & 1;
}

static void *busy_run(void *arg)
{
    busy_t *busy = arg;

    MUST(madvise(busy->pages, BUSY_PAGES * BUSY_STEP, MADV_DONTNEED) == 0);
    busy->done = 1;
    return NULL;
}

/* The kernel's function for each page that is unmapped; Linux 6.8 has renamed it. */
static const char *unmapping_function(void)
{
    char  line[256], name[128] = "";
    FILE *symbols = fopen("/proc/kallsyms", "r");

    MUST(symbols != NULL);
    while (strcmp(name, "page_remove_rmap") != 0 && fgets(line, sizeof(line), symbols) != NULL) {
        (void)sscanf(line, "%*s %*s %127s", name);
    }
    fclose(symbols);
    return strcmp(name, "page_remove_rmap") == 0 ? "page_remove_rmap" : "folio_remove_rmap_ptes";
}

/*
 * The owner of a region unmaps memory around it, which takes seconds: the region's notifier can't
 * be removed until that is over. The device goes before, without the pages; they are let go later.
 */
void test_remove_busy(void)
{
    int                      domain = domain_open(), memreg = memreg_open();
    const char              *slot   = slot_name();
    long long                pinned = pinned_pages();
    struct angara_ioc_mr_reg reg;
    pthread_t                thread;
    busy_t                   busy = {0};

    busy.pages = mmap(NULL, BUSY_PAGES * BUSY_STEP, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(busy.pages != MAP_FAILED);
    MUST(madvise(busy.pages, BUSY_PAGES * BUSY_STEP, MADV_NOHUGEPAGE) == 0);
    for (unsigned i = 0; i < BUSY_PAGES; ++i) {
        busy.pages[i * BUSY_STEP] = 1;
    }
    OK(mr_reg(memreg, domain, busy.pages, PAGE, ALL, &reg) == 0 && pinned_pages() == pinned + 1);
    hooks_load();
    delay_add(unmapping_function(), 20000);
    MUST(pthread_create(&thread, NULL, busy_run, &busy) == 0);
    while (busy_has(&busy, 1)) {
        usleep(1000);
    }
    file_write(DRIVER "unbind", slot);
    OK_SAY(!busy.done && access("/dev/angara0", F_OK) == -1,
           "the device goes while its user's page tables are busy");
    OK_SAY(pinned_pages() == pinned + 1, "the page is still pinned then");
    delay_add(unmapping_function(), 0);
    MUST(pthread_join(thread, NULL) == 0);
    delays_clear();
    hooks_unload();
    for (unsigned i = 0; i < 2000 && pinned_pages() != pinned; ++i) {
        usleep(1000);
    }
    OK_SAY(pinned_pages() == pinned, "and let go when that is over");
    OK(mr_dereg(memreg, reg.handle) == -1 && errno == ENOENT);
    close(memreg);
    close(domain);
    file_write(DRIVER "bind", slot);
    MUST(file_wait("/dev/angara0"));
    OK(SYSFS("mr_used") == 0);
    munmap(busy.pages, BUSY_PAGES * BUSY_STEP);
}

void test_remove(void)
{
    int                      domain = domain_open(), memreg = memreg_open();
    const char              *slot   = slot_name();
    char                    *page   = pages_map(4);
    long long                pinned = pinned_pages();
    struct angara_ioc_mr_reg reg, other;
    struct angara_ioc_info   info;
    struct pollfd            poll_fd;
    checker_t                checker;
    pthread_t                thread;
    uint64_t                 count;
    stuck_t                  stuck;
    pe_t                     pe;

    pe_open(domain, 1 << 20, &pe);
    MUST(window_commit(pe.fd, 0, 2 * PAGE) == 0);
    MUST(touch(pe.window, 1) == 0 && pe.status->state == ANGARA_PE_RUNNING);
    OK(mr_reg(memreg, domain, page, 4 * PAGE, ALL, &reg) == 0);

    /* A check is under way when the removal comes to its region. */
    MUST(mr_reg(memreg, domain, page, 4 * PAGE, ALL, &other) == 0);
    checker = (checker_t){memreg, other.handle, 4 * PAGE, 0};
    madvise(page, PAGE, MADV_DONTNEED);
    hooks_load();
    delay_add("memreg_pages_same", 5000);
    MUST(pthread_create(&thread, NULL, check_run, &checker) == 0);
    usleep(20000);
    stuck_start(&stuck, domain);
    file_write(DRIVER "unbind", slot);
    MUST(pthread_join(thread, NULL) == 0);
    OK_SAY(checker.error == ENODEV || checker.error == ENOENT, "checks end with the device");
    delays_clear();
    hooks_unload();
    OK(access("/dev/angara0", F_OK) == -1);
    OK_SAY(stuck_end(&stuck) == ENODEV, "a call that waits for its argument holds nothing up");
    OK(pinned_pages() == pinned);
    OK(info_get(domain, &info) == -1 && errno == ENODEV);
    OK(window_commit(pe.fd, 0, PAGE) == -1 && errno == ENODEV);
    OK(mr_reg(memreg, domain, page, PAGE, ALL, &reg) == -1 && errno == ENODEV);
    OK(mr_dereg(memreg, reg.handle) == -1 && errno == ENOENT);
    OK(part(pe.fd, 0, PAGE, RW, MAP_SHARED) == MAP_FAILED && errno == ENODEV);
    poll_fd = (struct pollfd){.fd = pe.fd, .events = POLLIN};
    OK(poll(&poll_fd, 1, 0) == 1 && poll_fd.revents == (POLLERR | POLLHUP));
    OK(read(pe.fd, &count, 8) == -1 && errno == ENODEV);
    OK(pe.status->state == ANGARA_PE_GONE && pe.status->cmd_cons == 0);
    OK(touch(pe.window, 1) == 0 && touch(pe.window + (1 << 20) - 1, 1) == 0);
    OK(touch((char *)pe.doorbell, 1) == 0 && touch(pe.pio, 1) == 0);
    OK(pe.event[3].valid == 0 && pe.marker[1] == 0);

    file_write(DRIVER "bind", slot);
    OK_SAY(file_wait("/dev/angara1"), "the old number is still taken by our files");
    pe_close(&pe);
    close(domain);
    close(memreg);
    file_write(DRIVER "unbind", slot);
    file_write(DRIVER "bind", slot);
    OK(SYSFS("pe_used") == 0);
}

/* An administrator may have the driver try any function: one that is no NIC is left alone. */
void test_foreign(void)
{
    static const char name[] = "a function that is no NIC is refused";
    static const char at[]   = "/sys/bus/pci/devices/0000:00:1f.3"; /* the machine's SMBus */

    if (!run("test -e %s/driver_override -a ! -e %s/driver", at, at)) {
        tap_skip(name, "there is none without a driver");
        return;
    }
    MUST(run("echo angara_nic >%s/driver_override", at));
    OK_SAY(!run("echo 0000:00:1f.3 >/sys/bus/pci/drivers/angara_nic/bind 2>/dev/null"), "%s", name);
    OK(!run("test -e %s/driver", at) && access("/dev/angara1", F_OK) == -1);
    MUST(run("echo >%s/driver_override", at));
}
