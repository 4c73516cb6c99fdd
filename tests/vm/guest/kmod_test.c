/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of the kernel modules, run in a VM as root: calls and their errors, mappings, data through
 * PEs and regions, who owns what and when it ends. Reports TAP. Usage: kmod_test [GROUP...]
 */
#include "kmod_test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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
#include <sys/wait.h>
#include <unistd.h>

static sigjmp_buf fault_jump;

static void fault_handler(int signal)
{
    siglongjmp(fault_jump, signal);
}

/* @return the signal that reading (or writing) a byte raises, or 0 */
int touch(volatile char *at, int write)
{
    struct sigaction action = {.sa_handler = fault_handler, .sa_flags = SA_NODEFER};
    int              signal;

    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    signal = sigsetjmp(fault_jump, 1);
    if (signal == 0) {
        if (write) {
            *at = 1;
        } else {
            (void)*at;
        }
    }
    return signal;
}

void *pages_map(size_t count)
{
    void *base = mmap(NULL, count * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    MUST(base != MAP_FAILED);
    return base;
}

int memreg_open(void)
{
    int fd = open("/dev/angara_memreg", O_RDWR | O_CLOEXEC);

    MUST(fd >= 0);
    return fd;
}

const char *slot_name(void)
{
    static char link[256];
    ssize_t     length = readlink("/sys/class/angara/angara0/device", link, sizeof(link) - 1);

    MUST(length > 0);
    link[length] = 0;
    return strrchr(link, '/') + 1;
}

unsigned draw(unsigned below)
{
    static uint64_t state = 88172645463325252ull;

    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (unsigned)(state >> 16) % below;
}

void sides_open(sides_t *s)
{
    s->near_domain = domain_open();
    s->far_domain  = domain_open();
    s->memreg      = memreg_open();
    s->pinned      = pinned_pages();
    s->stage       = pages_map(STAGE / PAGE);
    pe_open(s->near_domain, PAGE, &s->near);
    pe_open(s->far_domain, PAGE, &s->far);
    pair_set(&s->near, 0, s->near.info.node, &s->far);
    MUST(mr_reg(s->memreg, s->near_domain, s->stage, STAGE, ANGARA_MR_LOCAL_WRITE, &s->stage_reg) ==
         0);
}

void sides_close(sides_t *s)
{
    MUST(mr_dereg(s->memreg, s->stage_reg.handle) == 0);
    munmap(s->stage, STAGE);
    pe_close(&s->near);
    pe_close(&s->far);
    close(s->memreg);
    close(s->near_domain);
    close(s->far_domain);
    OK(pinned_pages() == s->pinned);
    OK(SYSFS("mr_used") == 0 && SYSFS("pe_used") == 0);
}

int far_reg(sides_t *s, const void *addr, uint64_t length, uint32_t access,
            struct angara_ioc_mr_reg *reg)
{
    return mr_reg(s->memreg, s->far_domain, addr, length, access, reg);
}

int far_reads(sides_t *s, uint64_t key, uint64_t offset, const void *bytes, size_t length)
{
    memset(s->stage, 0xa5, length);
    return transfer(&s->near, ANGARA_OP_GET, 0, s->stage_reg.key, 0, key, offset, length) &&
           memcmp(s->stage, bytes, length) == 0;
}

int far_write(sides_t *s, uint64_t key, uint64_t offset, const void *bytes, size_t length)
{
    memcpy(s->stage, bytes, length);
    return transfer(&s->near, ANGARA_OP_PUT, 0, s->stage_reg.key, 0, key, offset, length);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void test_calls(void)
{
    int                         domain = domain_open();
    struct angara_ioc_info      info;
    struct angara_ioc_pe_create create;
    struct {
        struct angara_ioc_info info;
        uint64_t               newer;
    } large;

    OK(info_get(domain, &info) == 0);
    OK(info.version == ANGARA_UAPI_VERSION && strcmp((char *)info.name, "angara0") == 0);
    OK(info.pe_max == 64 && info.put_max > 1024 && info.window_max >= 1 << 20);
    info.version = 99;
    OK_ERRNO(ioctl(domain, ANGARA_IOC_INFO, &info), EPROTO);
    OK(info.version == ANGARA_UAPI_VERSION);
    info.flags = 1;
    OK_ERRNO(ioctl(domain, ANGARA_IOC_INFO, &info), EINVAL);
    info = (struct angara_ioc_info){.size = 8};
    OK_ERRNO(ioctl(domain, ANGARA_IOC_INFO, &info), EINVAL);
    info.size = 1 << 20;
    OK_ERRNO(ioctl(domain, ANGARA_IOC_INFO, &info), E2BIG);
    memset(&large, 0, sizeof(large));
    large.info.size    = sizeof(large);
    large.info.version = ANGARA_UAPI_VERSION;
    OK(ioctl(domain, ANGARA_IOC_INFO, &large) == 0);
    large.newer = 1;
    OK_ERRNO(ioctl(domain, ANGARA_IOC_INFO, &large), E2BIG);
    large.info = (struct angara_ioc_info){.size = sizeof(large), .flags = 4, .version = 99};
    OK_SAY(ioctl(domain, ANGARA_IOC_INFO, &large) == -1 && errno == EPROTO &&
               large.info.version == ANGARA_UAPI_VERSION,
           "whatever else a program of another version asks for, it is told the version");
    OK_ERRNO(ioctl(domain, ANGARA_IOC_INFO, NULL), EFAULT);
    OK_ERRNO(ioctl(domain, _IO(ANGARA_IOC_TYPE, 0x7f), &info), ENOTTY);
    OK_ERRNO(ioctl(domain, ANGARA_IOC_MR_REG, &info), ENOTTY);

    OK_ERRNO(pe_ioctl(domain, 0, &create), EINVAL);
    OK_ERRNO(pe_ioctl(domain, 100, &create), EINVAL);
    OK_ERRNO(pe_ioctl(domain, 1ull << 40, &create), EINVAL);
    create = (struct angara_ioc_pe_create){
        .size = sizeof(create), .window_size = PAGE, .reserved = 1};
    OK_ERRNO(ioctl(domain, ANGARA_IOC_PE_CREATE, &create), EINVAL);
    OK(SYSFS("pe_used") == 0);
    close(domain);
}

static void test_pe_many(void)
{
    int                         domain = domain_open();
    struct angara_ioc_pe_create create;
    int                         fds[64];
    unsigned                    i;
    uint32_t                    generation;

    for (i = 0; i < 64 && pe_ioctl(domain, 1 << 20, &create) == 0; ++i) {
        fds[i]     = create.fd;
        generation = create.generation;
        if (generation == 0 || (fcntl(create.fd, F_GETFD) & FD_CLOEXEC) == 0) {
            break;
        }
    }
    OK(i == 64);
    OK_ERRNO(pe_ioctl(domain, 1 << 20, &create), ENOSPC);
    OK(SYSFS("pe_used") == 64);
    close(fds[5]);
    OK(SYSFS("pe_used") == 63);
    OK(pe_ioctl(domain, 1 << 20, &create) == 0 && create.index == 5);
    fds[5] = create.fd;
    /* The domain lives as long as its PEs. */
    close(domain);
    OK(SYSFS("pe_used") == 64);
    for (i = 0; i < 64; ++i) {
        close(fds[i]);
    }
    OK(SYSFS("pe_used") == 0);
}

/* ---- mappings -------------------------------------------------------------------------------- */

void *part(int fd, unsigned number, size_t length, int prot, int flags)
{
    return mmap(NULL, length, prot, flags, fd, (off_t)number << ANGARA_MMAP_SHIFT);
}

static void test_mmap(void)
{
    int   domain = domain_open();
    pe_t  pe;
    void *status;

    pe_open(domain, 1 << 20, &pe);
    OK(pe.status->state == ANGARA_PE_RUNNING && pe.status->link == 1);
    OK(part(pe.fd, ANGARA_MMAP_STATUS, PAGE, RW, MAP_SHARED) == MAP_FAILED && errno == EACCES);
    OK(part(pe.fd, ANGARA_MMAP_STATUS, PAGE, PROT_READ, MAP_PRIVATE) == MAP_FAILED &&
       errno == EINVAL);
    OK(part(pe.fd, ANGARA_MMAP_STATUS, 2 * PAGE, PROT_READ, MAP_SHARED) == MAP_FAILED &&
       errno == EINVAL);
    OK(part(pe.fd, 7, PAGE, PROT_READ, MAP_SHARED) == MAP_FAILED && errno == EINVAL);
    OK(mmap(NULL, PAGE, RW, MAP_SHARED, pe.fd, PAGE) == MAP_FAILED && errno == EINVAL);
    OK(part(domain, 0, PAGE, RW, MAP_SHARED) == MAP_FAILED && errno == ENODEV);
    status = part(pe.fd, ANGARA_MMAP_STATUS, PAGE, PROT_READ, MAP_SHARED);
    OK(status != MAP_FAILED && mprotect(status, PAGE, RW) == -1 && errno == EACCES);
    munmap(status, PAGE);

    OK(touch(pe.window, 0) == SIGBUS);
    OK(window_commit(pe.fd, 100, 10) == 0);
    OK(touch(pe.window, 1) == 0 && touch(pe.window + PAGE, 0) == SIGBUS);
    OK(window_commit(pe.fd, 0, 3 * PAGE) == 0 && pe.window[0] == 1 && pe.window[PAGE] == 0);
    OK_ERRNO(window_commit(pe.fd, 0, 0), EINVAL);
    OK_ERRNO(window_commit(pe.fd, (1 << 20) - PAGE, PAGE + 1), ERANGE);
    OK_ERRNO(window_commit(pe.fd, ~0ull, 2), ERANGE);
    OK(window_commit(pe.fd, (1 << 20) - PAGE, PAGE) == 0);
    OK(touch(pe.window + (1 << 20) - 1, 1) == 0);
    /* A part of a mapping can go. */
    munmap(pe.window + PAGE, PAGE);
    OK(pe.window[0] == 1 && touch(pe.window + 2 * PAGE, 1) == 0);
    OK_ERRNO(madvise(pe.window, PAGE, MADV_DOFORK), EINVAL);
    OK(mremap(pe.window, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
    pe_close(&pe);
    OK(SYSFS("pe_used") == 0);
    close(domain);
}

/* ---- data ------------------------------------------------------------------------------------ */

static void test_put(void)
{
    int                domain = domain_open();
    pe_t               a, b;
    struct pollfd      poll_fd;
    uint64_t           count = 0;
    volatile uint64_t *window;

    pe_open(domain, 1 << 20, &a);
    pe_open(domain, 1 << 20, &b);
    MUST(window_commit(b.fd, 0, 1 << 20) == 0);
    window = (volatile uint64_t *)b.window;
    pair_set(&a, 0, a.info.node, &b);
    put(&a, 0, 64, "hello, window", 13, 8, 77);
    OK(word_wait(&window[1], 77) && memcmp(b.window + 64, "hello, window", 13) == 0);
    put(&a, 0, (1 << 20) - 8, "at last!", 8, 16, 78);
    OK(word_wait(&window[2], 78) && memcmp(b.window + (1 << 20) - 8, "at last!", 8) == 0);

    /* Sleeping: armed, interrupted, read. */
    poll_fd = (struct pollfd){.fd = b.fd, .events = POLLIN};
    OK(poll(&poll_fd, 1, 0) == 0);
    MUST(fcntl(b.fd, F_SETFL, O_NONBLOCK) == 0);
    OK(read(b.fd, &count, 8) == -1 && errno == EAGAIN);
    OK(read(b.fd, &count, 4) == -1 && errno == EINVAL);
    b.doorbell->arm = 1;
    OK(word32_wait(&b.status->arm_ack, 1) && b.status->armed == 1);
    put(&a, 0, 64, "wake", 4, 8, 79);
    OK(poll(&poll_fd, 1, 20000) == 1 && poll_fd.revents == POLLIN);
    OK(b.status->armed == 0 && *(volatile uint64_t *)(b.window + 8) == 79);
    OK(read(b.fd, &count, 8) == 8 && count == 1);
    OK(poll(&poll_fd, 1, 0) == 0);
    /* Arming ends readiness too. */
    b.doorbell->arm = 2;
    OK(word32_wait(&b.status->arm_ack, 2));
    put(&a, 0, 64, "wake", 4, 8, 80);
    OK(poll(&poll_fd, 1, 20000) == 1);
    b.doorbell->arm = 3;
    OK(word32_wait(&b.status->arm_ack, 3) && poll(&poll_fd, 1, 0) == 0);
    pe_close(&a);
    pe_close(&b);
    close(domain);
}

/*
 * An interrupt finds whom it is for, also among more PEs than are looked at with interrupts off: in
 * a VM whose device has many, and few vectors.
 */
static void test_wake_many(void)
{
    enum { AT_ONCE = 64 };
    int                         domain = domain_open(), fds[2 * AT_ONCE];
    struct angara_ioc_pe_create create;
    struct pollfd               poll_fd = {.events = POLLIN};
    unsigned                    taken   = 0;
    pe_t                        a, b;

    pe_open(domain, PAGE, &a);
    if (a.info.pe_max <= 2 * AT_ONCE) {
        tap_skip("PEs that an interrupt is for", "there are too few");
    } else {
        do {
            MUST(taken < 2 * AT_ONCE && pe_ioctl(domain, PAGE, &create) == 0);
            fds[taken++] = create.fd;
        } while (create.index % a.info.pe_max < AT_ONCE + 10);
        for (unsigned round = 1; round <= 20; ++round) {
            pe_open(domain, PAGE, &b);
            MUST(b.index > AT_ONCE && window_commit(b.fd, 0, PAGE) == 0);
            pair_set(&a, 0, a.info.node, &b);
            b.doorbell->arm = round;
            MUST(word32_wait(&b.status->arm_ack, round));
            poll_fd.fd = b.fd;
            put(&a, 0, 64, "wake", 4, 8, 1);
            if (poll(&poll_fd, 1, 20000) != 1 || poll_fd.revents != POLLIN) {
                taken = 0;
            }
            pe_close(&b);
        }
        OK_SAY(taken != 0, "an interrupt wakes a PE that is looked at late");
        for (unsigned i = 0; i < taken; ++i) {
            close(fds[i]);
        }
    }
    pe_close(&a);
    close(domain);
    OK(SYSFS("pe_used") == 0);
}

/* ---- what can't be registered ---------------------------------------------------------------- */

static void test_refused(void)
{
    int                      domain = domain_open(), memreg = memreg_open(), fd;
    long long                pinned = pinned_pages();
    char                    *page   = pages_map(4), *base;
    struct angara_ioc_mr_reg reg;
    pe_t                     pe;

    OK_ERRNO(mr_reg(memreg, 0, page, PAGE, ALL, &reg), EBADF);
    OK_ERRNO(mr_reg(memreg, 1000, page, PAGE, ALL, &reg), EBADF);
    OK_ERRNO(mr_reg(memreg, memreg, page, PAGE, ALL, &reg), EBADF);
    OK_ERRNO(mr_reg(memreg, domain, page, 0, ALL, &reg), EINVAL);
    OK_ERRNO(mr_reg(memreg, domain, page, ~0ull, ALL, &reg), EINVAL);
    OK_ERRNO(mr_reg(memreg, domain, (void *)~0xfffull, 8192, ALL, &reg), EINVAL);
    OK_ERRNO(mr_reg(memreg, domain, page, PAGE, 1u << 10, &reg), EINVAL);
    OK_ERRNO(mr_reg(memreg, domain, (void *)0x1000, PAGE, ALL, &reg), EFAULT);
    OK_ERRNO(mr_reg(memreg, domain, (void *)0x1000, PAGE, 0, &reg), EFAULT);
    OK_ERRNO(mr_dereg(memreg, 0), ENOENT);
    OK_ERRNO(mr_dereg(memreg, ~0u), ENOENT);
    reg = (struct angara_ioc_mr_reg){.size      = sizeof(reg),
                                     .domain_fd = domain,
                                     .type      = 9,
                                     .addr      = (uintptr_t)page,
                                     .length    = PAGE};
    OK_ERRNO(ioctl(memreg, ANGARA_IOC_MR_REG, &reg), EOPNOTSUPP);

    munmap(page + 2 * PAGE, PAGE);
    OK_ERRNO(mr_reg(memreg, domain, page, 4 * PAGE, ALL, &reg), EFAULT);
    OK_ERRNO(mr_reg(memreg, domain, page, 4 * PAGE, 0, &reg), EFAULT);
    mprotect(page, PAGE, PROT_READ);
    OK_ERRNO(mr_reg(memreg, domain, page, PAGE, ALL, &reg), EFAULT);
    OK(mr_reg(memreg, domain, page, PAGE, ANGARA_MR_REMOTE_READ, &reg) == 0);
    OK(mr_dereg(memreg, reg.handle) == 0);

    /* The answer can't be written: nothing stays. */
    base     = pages_map(1);
    reg      = (struct angara_ioc_mr_reg){.size = sizeof(reg), .domain_fd = domain, .length = PAGE};
    reg.addr = (uintptr_t)(page + PAGE);
    memcpy(base, &reg, sizeof(reg));
    mprotect(base, PAGE, PROT_READ);
    OK_ERRNO(ioctl(memreg, ANGARA_IOC_MR_REG, base), EFAULT);
    OK(SYSFS("mr_used") == 0);

    /* A PE's own memory is the device's, not the user's to pin. */
    pe_open(domain, 1 << 20, &pe);
    MUST(window_commit(pe.fd, 0, PAGE) == 0);
    OK_ERRNO(mr_reg(memreg, domain, pe.window, PAGE, ALL, &reg), EFAULT);
    OK_ERRNO(mr_reg(memreg, domain, pe.pio, PAGE, 0, &reg), EFAULT);
    pe_close(&pe);

    /* Shared file pages, if written; shmem is fine. */
    mkdir("/tmp/ramfs", 0700);
    MUST(mount("none", "/tmp/ramfs", "ramfs", 0, NULL) == 0);
    fd = open("/tmp/ramfs/file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    MUST(fd >= 0 && ftruncate(fd, 4 * PAGE) == 0);
    base = mmap(NULL, 4 * PAGE, RW, MAP_SHARED, fd, 0);
    memset(base, 1, 4 * PAGE);
    OK_ERRNO(mr_reg(memreg, domain, base, 4 * PAGE, ALL, &reg), EOPNOTSUPP);
    OK(mr_reg(memreg, domain, base, 4 * PAGE, ANGARA_MR_REMOTE_READ, &reg) == 0);
    OK(mr_dereg(memreg, reg.handle) == 0);
    munmap(base, 4 * PAGE);
    base = mmap(NULL, 4 * PAGE, RW, MAP_PRIVATE, fd, 0);
    OK(mr_reg(memreg, domain, base, 4 * PAGE, ALL, &reg) == 0);
    OK(mr_dereg(memreg, reg.handle) == 0);
    munmap(base, 4 * PAGE);
    close(fd);
    umount("/tmp/ramfs");
    fd = memfd_create("shmem", MFD_CLOEXEC);
    MUST(fd >= 0 && ftruncate(fd, 4 * PAGE) == 0);
    base = mmap(NULL, 4 * PAGE, RW, MAP_SHARED, fd, 0);
    OK(mr_reg(memreg, domain, base, 4 * PAGE, ALL, &reg) == 0);
    OK(mr_dereg(memreg, reg.handle) == 0);
    /* The same page twice in a row. */
    OK(mmap(base + PAGE, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == base + PAGE);
    OK(mr_reg(memreg, domain, base, 4 * PAGE, ALL, &reg) == 0);
    OK(mr_dereg(memreg, reg.handle) == 0);
    close(fd);
    OK(pinned_pages() == pinned);
    close(memreg);
    close(domain);
}

/* ---- bounce buffers -------------------------------------------------------------------------- */

/* In a VM with swiotlb=force: a region can't be copied at each access, so there is none. */
static void test_bounce(void)
{
    int                      domain = domain_open(), memreg = memreg_open();
    long long                pinned = pinned_pages(), before;
    struct angara_ioc_mr_reg reg;
    char                    *pages = pages_map(2);

    before = value_read(COUNTERS, "bounce_refused");
    OK_ERRNO(mr_reg(memreg, domain, pages, 2 * PAGE, ALL, &reg), EOPNOTSUPP);
    OK_ERRNO(mr_reg(memreg, domain, pages, 1, ANGARA_MR_REMOTE_READ, &reg), EOPNOTSUPP);
    OK(value_read(COUNTERS, "bounce_refused") == before + 2);
    OK(pinned_pages() == pinned && SYSFS("mr_used") == 0);
    test_put();
    close(memreg);
    close(domain);
}

/* ---- main ------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    void (*run)(void);
} groups[] = {
    {"calls", test_calls},
    {"pe_many", test_pe_many},
    {"versions", test_versions},
    {"generations", test_generations},
    {"old_device", test_old_device},
    {"revoked", test_revoked},
    {"mmap", test_mmap},
    {"put", test_put},
    {"wake_many", test_wake_many},
    {"refused", test_refused},
    {"stale", test_stale},
    {"sizes", test_sizes},
    {"huge", test_huge},
    {"kinds", test_kinds},
    {"ext4", test_ext4},
    {"holes", test_holes},
    {"overlap", test_overlap},
    {"many", test_many},
    {"suspend", test_suspend},
    {"crowd", test_crowd},
    {"remap", test_remap},
    {"checks", test_checks},
    {"access", test_access},
    {"window_access", test_window_access},
    {"fork", test_fork},
    {"hold", test_hold},
    {"order", test_order},
    {"limits", test_limits},
    {"quotas", test_quotas},
    {"memory", test_memory},
    {"kill_commit", test_kill_commit},
    {"throttled", test_throttled},
    {"tables", test_tables},
    {"cycles", test_cycles},
    {"kill_register", test_kill_register},
    {"kill_transfer", test_kill_transfer},
    {"unpin", test_unpin},
    {"threads", test_threads},
    {"alloc", test_alloc},
    {"nodes", test_nodes},
    {"secrets", test_secrets},
    {"errors", test_errors},
    {"unload", test_unload},
    {"remove_stuck", test_remove_stuck},
    {"remove_busy", test_remove_busy},
    {"remove", test_remove},
    {"foreign", test_foreign},
    {"bounce", test_bounce},
};
#define ALONE (sizeof(groups) / sizeof(groups[0]) - 1) /* needs another kernel command line */

int main(int argc, char **argv)
{
    int unknown = 0;

    for (int arg = 1; arg < argc; ++arg) {
        size_t i = 0;

        while (i < sizeof(groups) / sizeof(groups[0]) && strcmp(argv[arg], groups[i].name) != 0) {
            i++;
        }
        unknown |= i == sizeof(groups) / sizeof(groups[0]);
    }
    if (unknown) {
        fputs("usage: kmod_test [GROUP...]; the groups are", stderr);
        for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); ++i) {
            fprintf(stderr, " %s", groups[i].name);
        }
        fputc('\n', stderr);
        return 2;
    }
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); ++i) {
        int wanted = argc == 1 && i != ALONE;

        for (int arg = 1; arg < argc; ++arg) {
            wanted |= strcmp(argv[arg], groups[i].name) == 0;
        }
        if (wanted) {
            double start = now_seconds();

            printf("# %s\n", groups[i].name);
            groups[i].run();
            printf("# %s: %.1f s\n", groups[i].name, now_seconds() - start);
        }
    }
    return tap_finish();
}
