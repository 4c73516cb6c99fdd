/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of kmod_test share. */
#ifndef KMOD_TEST_H
#define KMOD_TEST_H

#include "kmod_user.h"

#include <sys/mman.h>

#define RW     (PROT_READ | PROT_WRITE)
#define ALL    (ANGARA_MR_REMOTE_READ | ANGARA_MR_REMOTE_WRITE | ANGARA_MR_REMOTE_ATOMIC)
#define NOBODY 65534

/* @return the signal that reading (or writing) a byte raises, or 0 */
int touch(volatile char *at, int write);
/* Zeroed anonymous pages. */
void *pages_map(size_t count);
int   memreg_open(void);
/* Map a part of a PE. */
void *part(int fd, unsigned number, size_t length, int prot, int flags);

void test_fork(void);
void test_hold(void);
void test_order(void);
void test_limits(void);
void test_remove(void);

#endif
