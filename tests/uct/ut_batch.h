/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Harness of test_batch.c: rank 0 starts transfers of blocks of its own, each with a completion
 * that says when it was called; the other ranks hold the memory and say what has arrived there.
 */
#ifndef ANGARA_TESTS_UT_BATCH_H
#define ANGARA_TESTS_UT_BATCH_H

#include "ut.h"

#include "channel/batch.h"

#define BT_AM      7
#define BT_OPS_MAX 3000
#define BT_MEMORY  ((size_t)24 << 20)
#define BT_UNTAKEN 0xee /* what lies where nothing has been moved to */

/* An outstanding transfer of the block at this offset, the same here and there. */
typedef struct {
    ut_comp_t    comp;
    struct bt   *bt;
    ucs_status_t posted;
    unsigned     rank;  /* of the peer */
    unsigned     turn;  /* when it completed: 1 for the first of that peer */
    unsigned     wants; /* when it must */
    int          is_get;
    size_t       offset;
    size_t       length;
    uint64_t     seed;
} bt_op_t;

typedef struct bt {
    ut_t       *t;
    ut_mem_t    near;
    ut_mem_t    far; /* what the others read and write */
    ut_remote_t remotes[RANK_MAX];
    unsigned    turns[RANK_MAX];  /* completions of each peer */
    unsigned    posted[RANK_MAX]; /* started to each peer */
    size_t      used;             /* of the memory */
    unsigned    nops;
} bt_t;

/* What rank 0 has moved, or has not, and a target checks without a turn of progress. */
typedef struct {
    uint64_t offset;
    uint64_t length;
    uint64_t seed;
    uint64_t kind;
} bt_order_t;

enum { BT_CHECK, BT_CHECK_UNTAKEN, BT_FILL, BT_END };

extern bt_op_t bt_ops[BT_OPS_MAX];

void bt_init(bt_t *bt, ut_t *t);
void bt_cleanup(bt_t *bt);

/* Describe the next transfer; its block is one that no other has used. */
bt_op_t *bt_next(bt_t *bt, unsigned rank, int is_get, size_t length);
/* As bt_next(), and the source of a get is filled. */
bt_op_t *bt_prepare(bt_t *bt, unsigned rank, int is_get, size_t length);
/* Start it, once. @a beyond: bytes behind its place, for a fault. */
ucs_status_t bt_try(bt_op_t *op, size_t beyond);
/* Start it. */
void bt_post(bt_op_t *op);

/* All have ended, each once, in the order of posting, and well. */
void bt_check_ended(bt_t *bt);
void bt_wait(bt_t *bt);
/* Puts of the transfers from @a first on are there. */
void bt_check_puts(bt_t *bt, unsigned first);

/* Rank 0 has a target do something; targets do as told, without a turn of progress. */
void bt_tell(bt_t *bt, const bt_op_t *op, unsigned kind);
void bt_end(bt_t *bt);
void bt_serve(bt_t *bt);

/* Run rank 0's part; the others serve. */
void bt_run(ut_t *t, void (*func)(bt_t *bt));

/* A test of so many ranks. */
#define BT_TEST(_func, _nranks)            \
    static void test_##_func(void **state) \
    {                                      \
        (void)state;                       \
        ut_run(_nranks, _func, NULL);      \
    }

#endif
