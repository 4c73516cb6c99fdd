/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What processes of the soft fabric share: the layouts of the segments of a domain and of a PE, and
 * who writes what. See soft.h for how they are made and found; service.h has the requests.
 */
#ifndef SOFT_SHARED_H
#define SOFT_SHARED_H

#include "service.h"

#include <angara/angara.h>

#include <stddef.h>
#include <stdint.h>

#define SOFT_LINE          64
#define SOFT_PAGE          4096
#define SOFT_MAGIC_PE      0x414e475045303141ull
#define SOFT_MAGIC_DOMAIN  0x414e47444f303141ull
#define SOFT_MAGIC_GPU     0x414e474750303141ull
#define SOFT_PROVIDER_ID   1
#define SOFT_LAYOUT        20 /* version of what is shared, see below */
#define SOFT_MARKER_SLOTS  4096
#define SOFT_HAZARDS       4096 /* PEs that may access a domain */
#define SOFT_RING_LIMIT    1024 /* queued ring operations of a PE */
#define SOFT_CHAOS_LIMIT   4096
#define SOFT_INLINE_MAX    ANG_INLINE_MAX
#define SOFT_CHAOS_PUT_MAX 1024

/*
 * SOFT_LAYOUT goes up with every change that a library of before it would misread: of a size, of an
 * offset, and just as well of what a word means or of who waits for whom.
 */

/* ---- shared: domain segment ------------------------------------------------------------------ */

/*
 * A region as peers see it. Only the owner writes. Published by a release store of the key; a
 * reader that holds a hazard and then finds its key here may use the entry until it drops the
 * hazard.
 */
typedef struct {
    uint64_t key; /* 0: none */
    uint64_t addr;
    uint64_t length;
    uint32_t access;
    int32_t  fd;     /* owner's memfd of shared memory, or -1 */
    uint64_t offset; /* of the region in it */
    uint32_t kind;   /* angara_mem_kind_t; of a GPU's memory: */
    uint32_t share; /*   place of its allocation in the owner's table, which `fd` is of, or none; */
    uint64_t id;    /*   of the allocation; `offset` is the region's in it; see gpu_mem.h */
    uint64_t reserved;
} soft_mr_entry_t;

/*
 * One PE's "I am accessing region `key`": written by the PE, read by deregistration. A value
 * from 1 to SOFT_HAZARD_BATCH_MAX, which no key has, is a batch: soft_batch_count() regions, whose
 * entries in the table `regions` gives, may be accessed until the value changes. See domain.c.
 */
typedef struct {
    uint64_t owner; /* see soft_owner(), 0: free; changed by compare-and-swap */
    uint64_t key;
    uint32_t regions[ANGARA_BATCH_MAX];
    uint64_t pad[6];
} soft_hazard_t;

#define SOFT_KEY_INDEX_BITS   24 /* of a key; the bits above are random and not all 0 */
#define SOFT_HAZARD_BATCH_MAX ((1ul << SOFT_KEY_INDEX_BITS) - 1)
#define SOFT_BATCH_COUNT_BITS 4 /* of a batch's value: regions - 1; above them a number, not 0 */
#define SOFT_BATCH_NUMBERS    (SOFT_HAZARD_BATCH_MAX >> SOFT_BATCH_COUNT_BITS)

/* Key: 24 bits of index, 40 random bits. */
#define SOFT_KEY_INDEX(_key) ((uint32_t)((_key)&SOFT_HAZARD_BATCH_MAX))

/* Value of the hazard for a batch of 1 to ANGARA_BATCH_MAX regions: never 0. */
static inline uint64_t soft_batch_value(uint32_t number, unsigned count)
{
    return (number % SOFT_BATCH_NUMBERS + 1) << SOFT_BATCH_COUNT_BITS | (count - 1);
}

static inline unsigned soft_batch_count(uint64_t value)
{
    return (unsigned)(value & ((1u << SOFT_BATCH_COUNT_BITS) - 1)) + 1;
}

typedef struct {
    uint64_t        magic;
    uint32_t        layout;
    uint32_t        mr_max;
    uint64_t        size;
    uint32_t        hazards_used; /* high-water mark, only grows */
    uint32_t        mr_committed; /* entries that have memory, only grows */
    uint64_t        id;           /* random: which of its process's domains it is */
    uint32_t        pad[6];
    soft_hazard_t   hazards[SOFT_HAZARDS];
    soft_mr_entry_t entries[];
} soft_domain_seg_t;

/* ---- shared: PE segment ---------------------------------------------------------------------- */

typedef struct {
    uint64_t magic;
    uint32_t layout;
    uint32_t generation; /* 0 once closed */
    uint32_t index;
    int32_t  pid;
    uint64_t size;
    uint64_t window_offset;
    uint64_t window_size;
    uint32_t events;
    uint32_t flags; /* SOFT_PE_* */
    int32_t  domain_fd;
    int32_t  wake_fd;   /* write end of the pipe that wakes the PE's sleeper */
    int32_t  helper_fd; /* write end of the pipe that wakes the process's helper thread */
    uint32_t pad0;
    uint64_t domain_id;
    uint64_t wake_inode; /* of those pipes: their numbers may be used again */
    uint64_t helper_inode;
    uint64_t gpus; /* that the process uses: ang_gpu_set; atomic */
    uint32_t pad1[4];
    char     version[16]; /* of the owner's library, for messages */

    uint32_t armed __attribute__((aligned(SOFT_LINE))); /* see SOFT_ARMED */
    uint64_t probe __attribute__((aligned(SOFT_LINE))); /* address of a word, see CMA probe */
    /* then, page aligned: event ring, service slots, their staging memory, window */
} soft_pe_seg_t;

/*
 * Values of `armed`; 0: awake. Whoever has something new for the owner's rings changes them to 0,
 * and wakes it by its event descriptor. A library that doesn't know the second takes it for the
 * first.
 */
#define SOFT_ARMED 1u /* the owner may sleep on the descriptor */
/* It has called angara_pe_progress() since: requests wake nobody until one isn't answered in time,
 * then a helper. Two in a row make it SOFT_ARMED. */
#define SOFT_ARMED_LOOKS 2u

#define SOFT_PE_NEEDS_FENCE \
    1u /* the owner can't use membarrier: senders fence before they read `armed` */

_Static_assert(sizeof(soft_mr_entry_t) == SOFT_LINE, "an entry is a line");
_Static_assert(sizeof(soft_hazard_t) == 2 * SOFT_LINE, "a hazard is two lines");
_Static_assert(ANGARA_BATCH_MAX <= 1 << SOFT_BATCH_COUNT_BITS, "the count fits");
_Static_assert(sizeof(angara_address_t) == 56, "addresses travel in notify records");

/* Where the parts of a PE segment lie. */
typedef struct {
    size_t events, service, staging, window, total;
} soft_layout_t;

void soft_layout(unsigned events, size_t window_size, soft_layout_t *layout);

#endif
