/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of kmod_test share. */
#ifndef KMOD_TEST_H
#define KMOD_TEST_H

#include "kmod_user.h"

#include <sys/mman.h>

#define RW     (PROT_READ | PROT_WRITE)
#define ALL    (ANGARA_MR_REMOTE_READ | ANGARA_MR_REMOTE_WRITE | ANGARA_MR_REMOTE_ATOMIC)
#define NOBODY 65534
#define STAGE  (1u << 20) /* bytes of the near region of two sides */

/* @return the signal that reading (or writing) a byte raises, or 0 */
int touch(volatile char *at, int write);
/* Zeroed anonymous pages. */
void *pages_map(size_t count);
int   memreg_open(void);
/* Map a part of a PE. */
void *part(int fd, unsigned number, size_t length, int prot, int flags);

/* Name of angara0's PCI function: what is written to the driver's files. */
const char *slot_name(void);
#define DRIVER "/sys/bus/pci/drivers/angara_nic/"

/* Failing allocations and delays of kmod/hooks; the modules must be loaded. */
void hooks_load(void);
void hooks_unload(void);

/*
 * Have tasks spin in front of a kernel function, or, given again, for another time. Adding and
 * clearing change the function's code, which QEMU 7.2 may overlook on a processor that runs it just
 * then (it translates before it watches the page): while threads of the test come through, set the
 * time to 0 instead.
 */
void delay_add(const char *function, unsigned us);
void delays_clear(void);

/* A number below; the same ones in every run. */
unsigned draw(unsigned below);

/* Two domains with a PE each: data goes through the device, between a region of the near one and
 * regions of the far one. */
typedef struct {
    int                      near_domain, far_domain, memreg;
    pe_t                     near, far;
    char                    *stage; /* the near region */
    struct angara_ioc_mr_reg stage_reg;
    long long                pinned; /* before all */
} sides_t;

void sides_open(sides_t *s);
/* Checks that nothing has been left. */
void sides_close(sides_t *s);
int  far_reg(sides_t *s, const void *addr, uint64_t length, uint32_t access,
             struct angara_ioc_mr_reg *reg);
/* @return 1 if the far region has these bytes at the offset, as the device sees it */
int far_reads(sides_t *s, uint64_t key, uint64_t offset, const void *bytes, size_t length);
/* @return 1 if the device says that it has written them there */
int far_write(sides_t *s, uint64_t key, uint64_t offset, const void *bytes, size_t length);

/* kmod_test_region.c */
void test_sizes(void);
void test_huge(void);
void test_kinds(void);
void test_ext4(void);
void test_holes(void);
void test_overlap(void);
void test_many(void);
void test_suspend(void);
void test_crowd(void);
/* kmod_test_stale.c */
void test_stale(void);
void test_remap(void);
void test_checks(void);
/* A thread that checks a region until that fails. */
typedef struct {
    int      memreg;
    uint32_t handle;
    uint64_t length;
    int      error; /* errno in the end */
} checker_t;
void *check_run(void *checker);
/* kmod_test_access.c */
void test_access(void);
void test_window_access(void);
/* kmod_test_job.c */
void test_versions(void);
void test_generations(void);
void test_old_device(void);
void test_revoked(void);
/* kmod_test_race.c */
void test_kill_register(void);
void test_kill_transfer(void);
void test_unpin(void);
void test_threads(void);
void test_cycles(void);
/* kmod_test_alloc.c */
void test_alloc(void);
/* kmod_test_error.c */
void test_errors(void);
/* kmod_test_secret.c */
void test_nodes(void);
void test_secrets(void);
void test_unload(void);
/* kmod_test_life.c */
void test_fork(void);
void test_hold(void);
void test_order(void);
void test_remove(void);
void test_remove_stuck(void);
void test_remove_busy(void);
void test_foreign(void);
/* kmod_test_limits.c */
void test_limits(void);
void test_quotas(void);
void test_tables(void);
/* KiB that a PE without a window counts against RLIMIT_MEMLOCK. */
long long pe_kib(const struct angara_ioc_info *info);
/* kmod_test_memory.c */
void test_memory(void);
void test_kill_commit(void);
void test_throttled(void);

#endif
