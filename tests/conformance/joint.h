/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of joint copies share: long puts and gets between rank 0 (near) and a target (far)
 * that copies pieces of them in its progress.
 */
#ifndef ANGARA_TESTS_JOINT_H
#define ANGARA_TESTS_JOINT_H

#include "conf.h"

#define LONG   ((size_t)4 << 20)
#define MARGIN 4096u /* around what is moved, which nobody may touch */
#define PAGE   4096u

/* conf_t.arg of these tests. */
typedef struct {
    int shared;
    int is_get;
    int polls; /* 0: the target never, 1: always, 2: now and then */
} kind_t;

typedef struct {
    conf_mem_t far, near;
    uint64_t   keys[RANK_MAX];
} regions_t;

/* Open, and register LONG bytes with their margins at both ends. */
void joint_regions_init(conf_t *t, regions_t *r);
void joint_regions_cleanup(conf_t *t, regions_t *r);

/* Do two processes copy, where one polls? */
int joint_is_used(void);

/* Post the transfer of [offset, offset + length) behind the margin. */
angara_status_t joint_post(conf_t *t, regions_t *r, unsigned rank, size_t offset, size_t length);

#endif
