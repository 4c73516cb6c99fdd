/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One use of the kernel modules per run, for tests where something goes wrong meanwhile. Prints
 * what the calls returned, as errno (0: success). Usage: kmod_op OPERATION
 *
 *   region   register and deregister memory
 *   pe       make a PE, commit a page, close; prints the KiB that are counted as pinned, too
 *   read     make a PE, print "reading", read() until it returns
 *   quota    make PEs until none can be had
 *   fill     make regions until none can be had
 *   leak     deregister memory that a device which doesn't stop goes on writing to
 *   churn    all of it, over and over, until killed or the device has gone
 */
#include "kmod_user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

static int result(int ret)
{
    return ret == -1 ? errno : 0;
}

static int memreg_open(void)
{
    int fd = open("/dev/angara_memreg", O_RDWR | O_CLOEXEC);

    MUST(fd >= 0);
    return fd;
}

static void *pages_map(size_t count)
{
    void *base = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    MUST(base != MAP_FAILED);
    return base;
}

static void op_region(void)
{
    int                      domain = domain_open(), memreg = memreg_open();
    struct angara_ioc_mr_reg reg;
    int                      ret;

    ret = result(mr_reg(memreg, domain, pages_map(10), 10 * PAGE, ANGARA_MR_REMOTE_WRITE, &reg));
    printf("reg %d", ret);
    printf(" dereg %d\n", ret == 0 ? result(mr_dereg(memreg, reg.handle)) : -1);
}

static void op_pe(void)
{
    int                         domain = domain_open(), ret;
    struct angara_ioc_pe_create create;

    ret = result(pe_ioctl(domain, 1 << 20, &create));
    printf("create %d", ret);
    if (ret == 0) {
        printf(" commit %d", result(window_commit(create.fd, 0, PAGE)));
        printf(" pinned %lld", value_read("/proc/self/status", "VmPin:"));
        close(create.fd);
        printf(" closed %lld", value_read("/proc/self/status", "VmPin:"));
    }
    printf("\n");
}

static void op_quota(void)
{
    int                         domain = domain_open(), ret;
    struct angara_ioc_pe_create create;
    unsigned                    count = 0;

    while ((ret = result(pe_ioctl(domain, PAGE, &create))) == 0) {
        count++;
    }
    printf("pes %u errno %d\n", count, ret);
}

static void op_read(void)
{
    uint64_t count;
    pe_t     pe;

    pe_open(domain_open(), 1 << 20, &pe);
    printf("reading\n");
    fflush(stdout);
    printf("read %d", result((int)read(pe.fd, &count, 8)));
    printf(" state %u\n", pe.status->state);
}

/* @return 0 when the device has gone */
static int churn_once(int memreg, char *pages)
{
    int                         domain = open("/dev/angara0", O_RDWR | O_CLOEXEC);
    struct angara_ioc_pe_create create;
    struct angara_ioc_mr_reg    reg;
    volatile char              *window;
    int                         ret;

    if (domain < 0) {
        return 0;
    }
    ret = pe_ioctl(domain, 1 << 20, &create);
    if (ret == 0) {
        window = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, create.fd,
                      (off_t)ANGARA_MMAP_WINDOW << ANGARA_MMAP_SHIFT);
        if (window_commit(create.fd, 0, 1 << 20) == 0 && window != MAP_FAILED) {
            for (unsigned i = 0; i < 1 << 20; i += PAGE) {
                window[i] = 1;
            }
        }
        for (unsigned i = 0; i < 16; ++i) {
            mr_reg(memreg, domain, pages, (i + 1) * PAGE, ANGARA_MR_REMOTE_WRITE, &reg);
            if (i % 2 == 0) {
                mr_dereg(memreg, reg.handle);
            }
        }
        if (window != MAP_FAILED) {
            munmap((void *)window, 1 << 20);
        }
        close(create.fd);
        close(memreg);
    }
    close(domain);
    return ret == 0 || errno != ENODEV;
}

static void op_churn(void)
{
    char *pages = pages_map(16);

    while (churn_once(memreg_open(), pages)) {
    }
    printf("gone\n");
}

static void op_fill(void)
{
    int                      domain = domain_open(), memreg = memreg_open(), ret;
    char                    *page = pages_map(1);
    struct angara_ioc_mr_reg reg;
    unsigned                 count = 0;

    while ((ret = result(mr_reg(memreg, domain, page, PAGE, 0, &reg))) == 0) {
        count++;
    }
    printf("regions %u errno %d\n", count, ret);
}

/* One page for the near side, ten for the far one. */
static void op_leak(void)
{
    enum { FAR = 10 * PAGE, FRESH = 64 << 20 };
    int                      domains[2] = {domain_open(), domain_open()}, memreg = memreg_open();
    char                    *near = pages_map(1), *far = pages_map(FAR / PAGE), *fresh;
    unsigned                 reached = 0, intact = 1;
    struct angara_ioc_mr_reg near_reg, far_reg;
    pe_t                     a, b;
    int                      ret;

    pe_open(domains[0], PAGE, &a);
    pe_open(domains[1], PAGE, &b);
    pair_set(&a, 0, a.info.node, &b);
    memset(near, 0xee, PAGE);
    MUST(mr_reg(memreg, domains[0], near, PAGE, 0, &near_reg) == 0);
    MUST(mr_reg(memreg, domains[1], far, FAR, ANGARA_MR_REMOTE_WRITE, &far_reg) == 0);
    MUST(transfer(&a, ANGARA_OP_PUT, 0, near_reg.key, 0, far_reg.key, 0, PAGE));
    munmap(far, FAR);
    ret   = result(mr_dereg(memreg, far_reg.handle));
    fresh = pages_map(FRESH / PAGE);
    memset(fresh, 0x11, FRESH);
    for (unsigned i = 0; i < FAR; i += PAGE) {
        reached += transfer(&a, ANGARA_OP_PUT, 0, near_reg.key, 0, far_reg.key, i, PAGE) == 1;
    }
    for (unsigned i = 0; i < FRESH; i += 64) {
        intact &= fresh[i] == 0x11;
    }
    printf("dereg %d reached %u intact %u\n", ret, reached, intact);
}

static const struct {
    const char *name;
    void (*run)(void);
} operations[] = {
    {"region", op_region}, {"pe", op_pe},     {"read", op_read}, {"quota", op_quota},
    {"churn", op_churn},   {"fill", op_fill}, {"leak", op_leak},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof(operations) / sizeof(operations[0]); ++i) {
        if (strcmp(argv[1], operations[i].name) == 0) {
            operations[i].run();
            return 0;
        }
    }
    return 2;
}
