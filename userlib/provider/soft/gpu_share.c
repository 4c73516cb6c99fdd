/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The allocations of this process's GPUs that other processes of the node can map: see gpu_mem.h.
 * The handle that lets them do so is asked for once for each allocation, with its first region.
 *
 * The table stays to the end of the process. A place is written by: id 0, a fence, the contents,
 * the new id (release). Who reads the same id before and after the contents has those of that id.
 */
#include "gpu_mem.h"

#include <pthread.h>

static struct {
    pthread_mutex_t     lock; /* of all below; a leaf but for the GPU runtime's */
    soft_segment_t      segment;
    soft_share_table_t *table; /* NULL: there is none yet */
    uint32_t            used;  /* places ever used */
    unsigned            count; /* allocations shared */
    struct {
        void    *base;
        uint64_t id; /* 0: free */
        unsigned regions;
    } places[SOFT_SHARES];
} shares = {.lock = PTHREAD_MUTEX_INITIALIZER, .segment = {.fd = -1}};

static int table_make(void)
{
    if (shares.table != NULL) {
        return 1;
    }
    if (soft_segment_create("angara-gpu", NULL, sizeof(*shares.table), &shares.segment) !=
        ANGARA_OK) {
        return 0;
    }
    if (soft_segment_commit(&shares.segment, 0, sizeof(*shares.table)) != ANGARA_OK) {
        soft_segment_close(&shares.segment);
        return 0;
    }
    shares.table         = shares.segment.base;
    shares.table->layout = SOFT_LAYOUT;
    shares.table->magic  = SOFT_MAGIC_GPU;
    return 1;
}

static void withdraw(uint32_t place)
{
    __atomic_store_n(&shares.table->shares[place].id, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* before the place has other contents */
    shares.places[place].id = 0;
    shares.count--;
}

/* One that is free, or becomes so because no region is left. SOFT_NO_SHARE: there is none. */
static uint32_t place_find(void)
{
    uint32_t idle = SOFT_NO_SHARE;

    for (uint32_t i = 0; i < shares.used; ++i) {
        if (shares.places[i].id == 0) {
            return i;
        }
        if (shares.places[i].regions == 0) {
            idle = i;
        }
    }
    if (shares.used < SOFT_SHARES) {
        return shares.used++;
    }
    if (idle != SOFT_NO_SHARE) {
        withdraw(idle);
    }
    return idle;
}

static uint32_t share_new(const ang_gpu_mem_t *mem)
{
    ang_gpu_handle_t handle;
    soft_share_t    *share;
    uint32_t         place;

    if (mem->ops->share(mem, &handle) != ANGARA_OK || !table_make()) {
        return SOFT_NO_SHARE;
    }
    place = place_find();
    if (place == SOFT_NO_SHARE) {
        return SOFT_NO_SHARE;
    }
    share         = &shares.table->shares[place];
    share->length = mem->mem.length;
    share->kind   = mem->mem.kind;
    share->pci    = mem->mem.pci;
    share->handle = handle;
    __atomic_store_n(&share->id, mem->mem.id, __ATOMIC_RELEASE);
    shares.places[place].base    = mem->mem.base;
    shares.places[place].id      = mem->mem.id;
    shares.places[place].regions = 0;
    shares.count++;
    return place;
}

uint32_t soft_share_get(const ang_gpu_mem_t *mem, int *fd_p)
{
    uint32_t place = 0;

    *fd_p = -1;
    if (!mem->mem.shares || mem->mem.id == 0) {
        return SOFT_NO_SHARE;
    }
    pthread_mutex_lock(&shares.lock);
    while (place < shares.used && shares.places[place].id != mem->mem.id) {
        ++place;
    }
    if (place == shares.used) {
        place = share_new(mem);
    }
    if (place != SOFT_NO_SHARE) {
        shares.places[place].regions++;
        *fd_p = shares.segment.fd;
    }
    pthread_mutex_unlock(&shares.lock);
    return place;
}

void soft_share_put(uint32_t place, uint64_t id)
{
    if (place == SOFT_NO_SHARE) {
        return;
    }
    pthread_mutex_lock(&shares.lock);
    /* Not in a forked child, nor once it was withdrawn. */
    if (shares.places[place].id == id && --shares.places[place].regions == 0 &&
        !soft_helper_runs()) {
        withdraw(place); /* nobody would notice that the memory is freed */
    }
    pthread_mutex_unlock(&shares.lock);
}

void soft_shares_rest(void)
{
    pthread_mutex_lock(&shares.lock);
    for (uint32_t i = 0; i < shares.used; ++i) {
        if (shares.places[i].id != 0 && shares.places[i].regions == 0) {
            withdraw(i);
        }
    }
    pthread_mutex_unlock(&shares.lock);
}

unsigned soft_shares_look(void)
{
    ang_gpu_mem_t mem;
    unsigned      count;

    pthread_mutex_lock(&shares.lock);
    for (uint32_t i = 0; i < shares.used; ++i) {
        if (shares.places[i].id != 0) {
            ang_gpu_query_found(shares.places[i].base, &mem);
            if (mem.mem.id != shares.places[i].id) {
                withdraw(i);
            }
        }
    }
    count = shares.count;
    pthread_mutex_unlock(&shares.lock);
    return count;
}

/* No GPU memory outlives fork(). The lock may be held by a thread that isn't in the child, and for
 * long, as the runtime may make it wait: so fork() doesn't wait for it. */
static void shares_in_child(void)
{
    soft_segment_forget(&shares.segment);
    memset(&shares, 0, sizeof(shares));
    shares.segment.fd = -1;
    pthread_mutex_init(&shares.lock, NULL);
}

static void __attribute__((constructor)) shares_init(void)
{
    pthread_atfork(NULL, NULL, shares_in_child);
}
