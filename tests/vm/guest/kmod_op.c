/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One use of the kernel modules per run, for tests where something goes wrong meanwhile. Prints
 * what the calls returned, as errno (0: success). Usage: kmod_op OPERATION
 *
 *   region   register and deregister memory
 *   pe       make a PE, commit a page, close
 *   read     make a PE, print "reading", read() until it returns
 *   quota    make PEs until none can be had
 *   churn    all of it, over and over, until killed or the device has gone
 *   random   calls with random arguments, 20000 of them
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
        close(create.fd);
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

static uint64_t draw(void)
{
    static const uint64_t interesting[] = {0,     1,          8,          16,   24,
                                           32,    48,         64,         4096, 1 << 20,
                                           ~0ull, 1ull << 63, 1ull << 32, 4095, 0xffffffff};

    return rand() % 3 ? interesting[rand() % 15] : (uint64_t)rand() << 32 | (uint64_t)rand();
}

static void op_random(void)
{
    static const unsigned calls[] = {ANGARA_IOC_INFO, ANGARA_IOC_PE_CREATE,
                                     ANGARA_IOC_WINDOW_COMMIT, ANGARA_IOC_MR_REG,
                                     ANGARA_IOC_MR_DEREG};
    static const size_t   sizes[] = {
          sizeof(struct angara_ioc_info), sizeof(struct angara_ioc_pe_create),
          sizeof(struct angara_ioc_window_commit), sizeof(struct angara_ioc_mr_reg),
          sizeof(struct angara_ioc_mr_dereg)};
    int                         domain = domain_open(), memreg = memreg_open(), fds[3];
    char                       *pages = pages_map(64);
    struct angara_ioc_pe_create create;
    unsigned                    good = 0;

    MUST(pe_ioctl(domain, 1 << 20, &create) == 0);
    fds[0] = domain;
    fds[1] = create.fd;
    fds[2] = memreg;
    srand(1);
    for (unsigned i = 0; i < 20000; ++i) {
        union {
            uint64_t                    words[32];
            uint32_t                    halves[2];
            struct angara_ioc_mr_reg    reg;
            struct angara_ioc_pe_create create;
        } args;
        unsigned call = (unsigned)rand() % 5;

        for (unsigned j = 0; j < 32; ++j) {
            args.words[j] = draw();
        }
        if (rand() % 2) {
            args.halves[0] = (uint32_t)sizes[call];
            args.halves[1] = 0;
        }
        if (call == 3 && rand() % 2) {
            struct angara_ioc_mr_reg *reg = &args.reg;

            reg->domain_fd = domain;
            reg->reserved = reg->type = 0;
            reg->access &= 15;
            reg->addr   = (uintptr_t)pages + (unsigned)rand() % (32 * PAGE);
            reg->length = (unsigned)rand() % (32 * PAGE);
        }
        if (call == 1 && ioctl(fds[rand() % 3], calls[call], &args) == 0) {
            close(args.create.fd);
            good++;
        } else if (call != 1) {
            good += ioctl(fds[rand() % 3], calls[call], rand() % 50 ? &args : NULL) == 0;
        }
    }
    printf("good %d\n", good > 100);
}

int main(int argc, char **argv)
{
    const char *op = argc > 1 ? argv[1] : "";

    if (strcmp(op, "region") == 0) {
        op_region();
    } else if (strcmp(op, "pe") == 0) {
        op_pe();
    } else if (strcmp(op, "read") == 0) {
        op_read();
    } else if (strcmp(op, "quota") == 0) {
        op_quota();
    } else if (strcmp(op, "churn") == 0) {
        op_churn();
    } else if (strcmp(op, "random") == 0) {
        op_random();
    } else {
        return 2;
    }
    return 0;
}
