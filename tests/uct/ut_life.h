/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that talk to each other in numbered messages: what the tests of a peer's life share. */
#ifndef UT_LIFE_H
#define UT_LIFE_H

#include "ut.h"

#define LF_AM     3
#define LF_MEMORY ((size_t)1 << 16)

typedef struct {
    ut_t       *t;
    ut_mem_t    mem;
    ut_remote_t remotes[RANK_MAX];
    uint64_t    received;
    uint64_t    last; /* header of the last message */
} lf_t;

/** Open the interface, exchange memory, take messages. */
void lf_init(lf_t *lf, ut_t *t);
void lf_cleanup(lf_t *lf);

/** A message, and a flush that says that it has arrived. */
void lf_send(ut_t *t, uct_ep_h ep, uint64_t number);

/** Both ways, each message numbered: rings are open afterwards. */
void lf_talk(lf_t *lf, unsigned other, uint64_t number);

#endif
