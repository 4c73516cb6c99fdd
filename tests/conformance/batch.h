/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of test_batch share: regions of two kinds of memory, and posting a batch. */
#ifndef ANGARA_TESTS_BATCH_H
#define ANGARA_TESTS_BATCH_H

#include "conf.h"

#define REGIONS 4u
#define SLOTS   ANGARA_BATCH_MAX
#define SLOT    16384u /* each transfer of a batch has a slot of its own, at both ends */
#define SIZE    (SLOTS * SLOT)
#define GUARD   0x33

typedef struct {
    unsigned shared; /* bit mask of the regions that are from angara_mem_alloc() */
} kind_t;

typedef struct {
    conf_mem_t mem[REGIONS];
    conf_mem_t buf[REGIONS];
    uint64_t   keys[RANK_MAX][REGIONS];
} regions_t;

void batch_regions_init(conf_t *t, regions_t *r);
void batch_regions_cleanup(conf_t *t, regions_t *r);

/* Give all bytes of REGIONS regions that value. */
void batch_fill(conf_mem_t *mems, int value);

/* Post a batch, what is left of it again while there are no resources. *posted_p: in all. */
angara_status_t batch_post(conf_t *t, unsigned to, angara_batch_op_t op, const angara_xfer_t *xfers,
                           unsigned count, unsigned *posted_p);

/* Each kind of bad transfer at each of some places of a batch: batch_fault.c. */
void batch_faults(conf_t *t, angara_batch_op_t op);

#endif
