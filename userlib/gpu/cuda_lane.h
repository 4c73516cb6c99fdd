/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lane: a stream of ours in one of the program's contexts, its copies, and which have ended.
 * Knows CUDA's driver only, neither memory nor contexts. Used by cuda_copy.c.
 *
 * Invariants
 *   - Copies are numbered from 1. They end in the order of their numbers, but those that are
 *     gathered end together.
 *   - Gathered copies have the last numbers. They are handed to the driver before anything else of
 *     the lane is, and before it is asked.
 *   - Gathered copies that the driver refuses, even one by one, are lost: once the lane has ended
 *     up to their numbers nobody writes their bytes any more. That happens once in a lane: when it
 *     couldn't hand over several at once it gathers no more.
 */
#ifndef ANG_CUDA_LANE_H
#define ANG_CUDA_LANE_H

#include "cuda_abi.h"

#include <pthread.h>

#define CUDA_MARKS  16 /* events of a lane that are under way */
#define CUDA_GATHER 8  /* copies that are handed to the driver at once */

typedef struct {
    CUevent  event;
    uint64_t number; /* of the copy that it is behind */
} cuda_mark_t;

typedef struct {
    pthread_mutex_t lock; /* order of copies and events in the stream; of what is below */
    CUstream        stream;
    void           *owner;          /* the user's */
    uint64_t        issued;         /* gathered ones too */
    uint64_t        ended;          /* all up to this one have; atomic */
    uint64_t        asked_ns;       /* when the driver was asked; atomic */
    uint64_t        marked;         /* the last one that has an event behind it */
    uint64_t        unmarked_bytes; /* of those after it */
    uint64_t        gather_bytes;   /* that are handed over at once; a copy: a quarter of them */
    uint64_t        refused_ns;     /* since then the driver couldn't be asked; 0: it could */
    uint64_t        lost_first;     /* these are lost; 0: none. Atomic, written behind the other */
    uint64_t        lost_last;
    int             refuses;           /* the driver doesn't take several at once; atomic */
    cuda_mark_t     marks[CUDA_MARKS]; /* a ring: */
    unsigned        first, count;      /* those under way */
    unsigned        gathered;
    uint64_t        gathered_bytes;
    CUdeviceptr     dsts[CUDA_GATHER], srcs[CUDA_GATHER];
    size_t          lengths[CUDA_GATHER];
} cuda_lane_t;

/* Calls are made with the lane's context current and its lock held, but for the last four. */

CUresult cuda_lane_init(cuda_lane_t *lane, uint64_t gather_bytes);
/* Put the copy into the stream. *number: the copy's. */
CUresult cuda_lane_copy(cuda_lane_t *lane, CUdeviceptr dst, CUdeviceptr src, size_t length,
                        uint64_t *number);
/* The same, if cuda_lane_gathers(): it may wait for others until there are enough, or until
 * cuda_lane_submit(). */
CUresult cuda_lane_gather(cuda_lane_t *lane, CUdeviceptr dst, CUdeviceptr src, size_t length,
                          uint64_t *number);
void     cuda_lane_submit(cuda_lane_t *lane);
/* Ask the driver. @return what it says, if the copy hasn't ended: CUDA_ERROR_NOT_READY is no error.
 */
CUresult cuda_lane_ask(cuda_lane_t *lane, uint64_t number);

/* With the lock held: what is gathered isn't handed to the driver any more. */
void cuda_lane_lose(cuda_lane_t *lane);
/* May copies of this length be gathered? */
int cuda_lane_gathers(const cuda_lane_t *lane, size_t length);
/* Has it ended, or is it lost? */
int cuda_lane_has_ended(const cuda_lane_t *lane, uint64_t number);
int cuda_lane_has_lost(const cuda_lane_t *lane, uint64_t number);

#endif
