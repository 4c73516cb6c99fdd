/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Protection domains and memory regions of the soft fabric.
 *
 * Deregistration: the entry's key is cleared, then every pair's hazard is waited for. A pair sets
 * its hazard with a full fence before it reads the entry, so either it sees the key gone, or
 * deregistration sees the hazard (Michael, "Hazard pointers", 2004). A dead process's hazard
 * doesn't count. The own helper thread is waited for by its lock. Before all that, what the own PEs
 * have queued with the region as its local end is performed, or cancelled.
 *
 * A process that was stopped within an access is waited for up to ANGARA_PEER_WAIT. Then the region
 * is *owed*: its key is gone, its entry is not used again, its owner is told ANGARA_ERR_BUSY and
 * must leave the memory alone. As the key is gone, a hazard that covers the region was set before:
 * what holds it is the same access until it changes. So a value that has been waited for in vain is
 * only looked at by later calls, and several regions that wait for one peer wait no longer than
 * one.
 *
 * A batch accesses several regions behind one hazard (one that is performed in several runs sets it
 * again for each: to this text, they are batches of their own). The pair stores the indices of
 * their entries in `regions`, sets the hazard to a value no key has, which gives their number and
 * differs from that of the batch before, then reads the entries, accesses, and clears the hazard.
 * Deregistration that finds such a value v waits, if its own index is among the regions, while the
 * hazard is v.
 *   - A batch that set its hazard later than deregistration looked finds the key gone, as above. So
 *     only the batch of v counts.
 *   - The regions that deregistration reads are those of v or of a later batch: they were stored
 *     before v was set (release), and v was read before they are (acquire).
 *   - Where it reads an index of a later batch, that of v is over: a pair begins a batch after the
 *     end of the last. The regions are stored with release and read with acquire, so what the batch
 *     of v accessed is behind whoever has read such an index. On x86 that is how plain loads and
 *     stores behave; on arm64 it keeps the stores from passing the end of the batch before.
 *   - The value comes again after 2^20 - 1 batches, sooner where the count of batches wraps or a
 * pair takes over the hazard: deregistration would wait for one batch more.
 */
#define _GNU_SOURCE
#include "gpu_mem.h"

#include "src/alloc.h"
#include "src/config.h"
#include "src/log.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define MR_COMMIT 1024 /* entries whose memory is allocated at once */

static soft_domain_t *soft_domain(angara_domain_h dom)
{
    return (soft_domain_t *)dom;
}

/* ---- domain ---------------------------------------------------------------------------------- */

static void domain_in_child(ang_fork_t *node)
{
    soft_segment_forget(&ANG_FORK_OBJECT(soft_domain_t, node)->seg);
}

/* splitmix64 over a secret seed from the kernel: 40 bits nobody guesses by accident. */
static uint64_t next_random(soft_domain_t *dom)
{
    uint64_t value = dom->random += 0x9e3779b97f4a7c15ull;

    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ value >> 27) * 0x94d049bb133111ebull;
    return value ^ value >> 31;
}

/* The memory stays shared with the child, as MAP_SHARED is. */
static void mr_in_child(ang_fork_t *node)
{
    soft_segment_forget(&ANG_FORK_OBJECT(soft_mr_t, node)->seg);
}

static void fill_attr(angara_attr_t *attr)
{
    int chaos = ang_config.chaos != 0;

    strcpy(attr->provider, "soft");
    strcpy(attr->device, "soft0");
    attr->caps = ANGARA_CAP_REG_CHEAP | ANGARA_CAP_NODE_PEERS |
                 (ang_config.loopback ? ANGARA_CAP_LOOPBACK : 0) |
                 (ang_config.gpu != ANG_CONFIG_GPU_NONE ? ANGARA_CAP_GPU_MEMORY : 0) |
                 (chaos ? ANGARA_CAP_CHAOS : ANGARA_CAP_WINDOW_DIRECT | ANGARA_CAP_INLINE_OPS);
    attr->node         = (uint32_t)ang_config.node;
    attr->window_max   = (size_t)1 << 40;
    attr->put_max      = chaos ? SOFT_CHAOS_PUT_MAX : (size_t)1 << 30;
    attr->offload_max  = (size_t)1 << 40;
    attr->inline_max   = SOFT_INLINE_MAX;
    attr->mr_max       = (size_t)ang_config.mr_max;
    attr->marker_slots = SOFT_MARKER_SLOTS;
}

angara_status_t soft_domain_open(const char *device, angara_domain_h *dom_p)
{
    soft_domain_t  *dom = ang_calloc(1, sizeof(*dom), "a domain");
    size_t          size;
    angara_status_t status;

    (void)device;
    if (dom == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    dom->stuck = ang_calloc(SOFT_HAZARDS, sizeof(*dom->stuck), "a domain");
    if (dom->stuck == NULL) {
        status = ANGARA_ERR_NO_MEMORY;
        goto err_free;
    }
    dom->mr_max = (uint32_t)ang_config.mr_max;
    size        = sizeof(soft_domain_seg_t) + dom->mr_max * sizeof(soft_mr_entry_t);
    status      = soft_segment_create("angara-domain", NULL, size, &dom->seg);
    if (status != ANGARA_OK) {
        goto err_free;
    }
    status = soft_segment_commit(&dom->seg, 0, sizeof(soft_domain_seg_t));
    if (status != ANGARA_OK) {
        goto err_segment;
    }
    status = soft_random(&dom->random, sizeof(dom->random));
    if (status != ANGARA_OK) {
        goto err_segment;
    }
    pthread_mutex_init(&dom->lock, NULL);
    dom->base.ops   = &ang_soft_provider;
    dom->base.epoch = ang_fork_epoch;
    fill_attr(&dom->base.attr);
    dom->shared         = dom->seg.base;
    dom->shared->layout = SOFT_LAYOUT;
    dom->shared->mr_max = dom->mr_max;
    dom->shared->size   = size;
    dom->shared->id     = next_random(dom);
    dom->shared->magic  = SOFT_MAGIC_DOMAIN;
    ang_fork_add(&dom->fork, domain_in_child);
    ang_info("%s is open: node %u, %s loopback, process_vm %s, GPU memory %s%s",
             dom->base.attr.device, dom->base.attr.node, ang_config.loopback ? "with" : "without",
             ang_config.cma ? "where it is permitted" : "switched off (ANGARA_SOFT_CMA)",
             ang_config.gpu != ANG_CONFIG_GPU_NONE ? "where there is any" :
                                                     "switched off (ANGARA_GPU)",
             ang_config.chaos != 0 ? ", chaos mode" : "");
    *dom_p = &dom->base;
    return ANGARA_OK;

err_segment:
    soft_segment_close(&dom->seg);
err_free:
    free(dom->stuck);
    free(dom);
    return status;
}

angara_status_t soft_domain_close(angara_domain_h base)
{
    soft_domain_t *dom = soft_domain(base);

    if (soft_mr_collect(base) != 0) {
        ang_warn("a domain stays open: a peer may still access a region of it. Close it later, and "
                 "don't use that memory until then");
        return ANGARA_ERR_BUSY;
    }
    ang_fork_remove(&dom->fork);
    soft_segment_close(&dom->seg);
    pthread_mutex_destroy(&dom->lock);
    free(dom->free_list);
    free(dom->stuck);
    free(dom);
    return ANGARA_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static uint64_t make_key(soft_domain_t *dom, uint32_t index)
{
    uint64_t high;

    do {
        high = next_random(dom) >> SOFT_KEY_INDEX_BITS;
    } while (high == 0);
    return high << SOFT_KEY_INDEX_BITS | index;
}

/* Called with the lock held. */
static angara_status_t take_index(soft_domain_t *dom, uint32_t *index_p)
{
    angara_status_t status;
    uint32_t        more;

    if (dom->num_free != 0) {
        *index_p = dom->free_list[--dom->num_free];
        return ANGARA_OK;
    }
    if (dom->mr_used == dom->mr_max) {
        ang_error("all %u regions of the domain are in use: raise ANGARA_MR_MAX", dom->mr_max);
        return ANGARA_ERR_NO_MEMORY;
    }
    if (dom->mr_used == dom->committed) {
        more = dom->mr_max - dom->committed < MR_COMMIT ? dom->mr_max - dom->committed : MR_COMMIT;
        status = soft_segment_commit(
            &dom->seg, sizeof(soft_domain_seg_t) + dom->committed * sizeof(soft_mr_entry_t),
            more * sizeof(soft_mr_entry_t));
        if (status != ANGARA_OK) {
            return status;
        }
        dom->committed += more;
        __atomic_store_n(&dom->shared->mr_committed, dom->committed, __ATOMIC_RELEASE);
    }
    /* Room to free it later is taken now, so that freeing can't fail. */
    if (dom->mr_used == dom->free_size) {
        uint32_t  size = dom->free_size ? 2 * dom->free_size : 256;
        uint32_t *list = realloc(dom->free_list, size * sizeof(*list));

        if (list == NULL) {
            return ANGARA_ERR_NO_MEMORY;
        }
        dom->free_list = list;
        dom->free_size = size;
    }
    *index_p = dom->mr_used++;
    return ANGARA_OK;
}

/* ---- regions --------------------------------------------------------------------------------- */

static angara_status_t publish(soft_domain_t *dom, soft_mr_t *mr, int fd)
{
    soft_mr_entry_t *entry;
    angara_status_t  status;
    uint32_t         index;

    pthread_mutex_lock(&dom->lock);
    status = take_index(dom, &index);
    if (status == ANGARA_OK) {
        mr->index     = index;
        mr->base.key  = make_key(dom, index);
        entry         = &dom->shared->entries[index];
        entry->addr   = (uintptr_t)mr->base.addr;
        entry->length = mr->base.length;
        entry->access = mr->base.access;
        entry->fd     = fd;
        entry->offset = mr->offset;
        entry->kind   = mr->base.kind;
        entry->share  = mr->share;
        entry->id     = mr->id;
        __atomic_store_n(&entry->key, mr->base.key, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&dom->lock);
    return status;
}

static soft_mr_t *mr_new(angara_domain_h dom, void *addr, size_t length, unsigned access)
{
    soft_mr_t *mr = calloc(1, sizeof(*mr));

    if (mr != NULL) {
        mr->base.dom    = dom;
        mr->base.addr   = addr;
        mr->base.length = length;
        mr->base.access = access;
        mr->base.stale  = &ang_gpu_here;
        mr->seg.fd      = -1;
        mr->share       = SOFT_NO_SHARE;
    }
    return mr;
}

/*
 * The region is of GPU memory. The CPU can't touch it: nobody has the right of atomics. *fd_p: of
 * the table that others find its allocation in, or -1.
 */
static angara_status_t mr_set_gpu(soft_mr_t *mr, const ang_gpu_mem_t *mem, int *fd_p)
{
    uint64_t      offset = (uintptr_t)mr->base.addr - (uintptr_t)mem->mem.base;
    ang_gpu_mem_t last;

    if (!ang_in_bounds(offset, mr->base.length, mem->mem.length)) {
        ang_error("%zu bytes at %p aren't one allocation of GPU memory: there are %zu at %p",
                  mr->base.length, mr->base.addr, mem->mem.length, mem->mem.base);
        return ANGARA_ERR_INVALID;
    }
    mr->base.access &= ~(unsigned)ANGARA_ACCESS_REMOTE_ATOMIC;
    mr->base.kind = mem->mem.kind;
    mr->offset    = offset;
    mr->id        = mem->mem.id;
    ang_gpu_query((const char *)mr->base.addr + mr->base.length - 1, &last);
    if (last.mem.id != mr->id) {
        mr->id = 0; /* several, mapped side by side: it names addresses */
    }
    if (mr->base.access & (ANGARA_ACCESS_REMOTE_READ | ANGARA_ACCESS_REMOTE_WRITE)) {
        mr->share = mr->id != 0 ? soft_share_get(mem, fd_p) : SOFT_NO_SHARE;
        soft_helper_watch(); /* also for peers that can't map it */
        soft_helper_wake_if_kicked();
    }
    return ANGARA_OK;
}

/* Only asked once there is a GPU's runtime: another allocation, or another kind of memory? */
int soft_mr_is_stale(angara_mr_h base, uint64_t offset, uint64_t length)
{
    const soft_mr_t *mr = (const soft_mr_t *)base;
    ang_gpu_mem_t    mem;

    (void)length;
    ang_gpu_query((const char *)base->addr + offset, &mem);
    if (mr->base.kind == ANGARA_MEM_HOST) {
        return ang_gpu_is_device(&mem);
    }
    return !ang_gpu_is_device(&mem) || mem.mem.kind != mr->base.kind ||
           (mr->id != 0 && mem.mem.id != mr->id);
}

static void mr_free(soft_mr_t *mr)
{
    ang_fork_remove(&mr->fork);
    soft_segment_close(&mr->seg);
    soft_share_put(mr->share, mr->id);
    free(mr);
}

angara_status_t soft_mr_register(angara_domain_h dom, void *addr, size_t length, unsigned access,
                                 angara_mr_h *mr_p)
{
    soft_mr_t      *mr     = mr_new(dom, addr, length, access);
    angara_status_t status = ANGARA_OK;
    int             fd     = -1;
    ang_gpu_mem_t   mem;

    if (mr == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    ang_gpu_query(addr, &mem);
    if (mem.is_left_out) {
        ang_error("%zu bytes at %p are memory of a GPU that ANGARA_GPU leaves out", length, addr);
        status = ANGARA_ERR_UNSUPPORTED;
    } else if (ang_gpu_is_device(&mem)) {
        status = mr_set_gpu(mr, &mem, &fd);
    }
    if (status == ANGARA_OK) {
        status = publish(soft_domain(dom), mr, fd);
    }
    if (status != ANGARA_OK) {
        mr_free(mr);
        return status;
    }
    soft_helper_expect(mr->base.access); /* requests must go on while the program computes */
    *mr_p = &mr->base;
    return ANGARA_OK;
}

/* May what the hazard stands for, its word having the value `held`, access the region? */
static int hazard_covers(const soft_hazard_t *hazard, uint64_t held, uint64_t key)
{
    if (held == 0 || held > SOFT_HAZARD_BATCH_MAX) {
        return held == key;
    }
    for (unsigned i = 0; i < soft_batch_count(held); ++i) {
        if (__atomic_load_n(&hazard->regions[i], __ATOMIC_ACQUIRE) == SOFT_KEY_INDEX(key)) {
            return 1;
        }
    }
    return 0;
}

/*
 * Wait while hazard `index` has the value `held`. An access that begins from now on finds the key
 * gone. @return 0 if the wait is over first.
 */
static int wait_hazard(soft_domain_t *dom, uint32_t index, uint64_t held, soft_wait_t *wait)
{
    soft_hazard_t *hazard = &dom->shared->hazards[index];
    uint64_t       owner;

    while (__atomic_load_n(&hazard->key, __ATOMIC_ACQUIRE) == held) {
        owner = __atomic_load_n(&hazard->owner, __ATOMIC_RELAXED);
        if (owner == 0 || (soft_wait_is_long(wait) && !soft_owner_alive(owner))) {
            return 1;
        }
        if (owner == soft_owner()) {
            soft_helper_land(); /* it may be an operation of ours, which nobody looks at */
        }
        if (__atomic_load_n(&dom->stuck[index], __ATOMIC_RELAXED) == held ||
            !soft_wait_turn(wait, soft_owner_pid(owner),
                            "an access to memory that is deregistered")) {
            __atomic_store_n(&dom->stuck[index], held, __ATOMIC_RELAXED);
            return !soft_owner_alive(owner);
        }
    }
    return 1;
}

/* Wait until no pair is accessing the region. @return ANGARA_ERR_BUSY if one still is. */
static angara_status_t wait_hazards(soft_domain_t *dom, uint64_t key, soft_wait_t *wait)
{
    soft_domain_seg_t *shared = dom->shared;
    angara_status_t    status = ANGARA_OK;
    uint32_t           used;

    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    used = __atomic_load_n(&shared->hazards_used, __ATOMIC_SEQ_CST);
    if (used > SOFT_HAZARDS) {
        used = SOFT_HAZARDS;
    }
    for (uint32_t i = 0; i < used; ++i) {
        uint64_t held = __atomic_load_n(&shared->hazards[i].key, __ATOMIC_ACQUIRE);

        if (__atomic_load_n(&dom->stuck[i], __ATOMIC_RELAXED) != held) {
            __atomic_store_n(&dom->stuck[i], 0, __ATOMIC_RELAXED); /* that access has ended */
        }
        if (hazard_covers(&shared->hazards[i], held, key) && !wait_hazard(dom, i, held, wait)) {
            status = ANGARA_ERR_BUSY;
        }
    }
    return status;
}

/* Called with the domain's lock held. */
static void owed_add(soft_domain_t *dom, soft_mr_t *mr)
{
    mr->base.owed = 1;
    mr->next_owed = dom->owed;
    mr->owed_link = &dom->owed;
    if (mr->next_owed != NULL) {
        mr->next_owed->owed_link = &mr->next_owed;
    }
    dom->owed = mr;
}

static void owed_remove(soft_mr_t *mr)
{
    *mr->owed_link = mr->next_owed;
    if (mr->next_owed != NULL) {
        mr->next_owed->owed_link = mr->owed_link;
    }
}

/*
 * Let the own PEs' queued operations end that read or write the region. Those that don't, because a
 * peer doesn't go on, are cancelled.
 */
static void end_local(soft_domain_t *dom, uint64_t key, soft_wait_t *wait)
{
    uint64_t seen = 0;
    uint64_t mark;
    pid_t    pid;

    while ((pid = soft_helper_local_user(dom, key, &mark)) != 0) {
        if (mark != seen) {
            seen = mark;
            soft_wait_begin(wait);
        } else if (!soft_wait_turn(wait, pid, "an operation on memory that is deregistered")) {
            soft_helper_local_cancel(dom, key);
        }
    }
}

/* @return ANGARA_ERR_BUSY: the region is owed. */
static angara_status_t withdraw(soft_mr_t *mr)
{
    soft_domain_t  *dom = soft_domain(mr->base.dom);
    angara_status_t status;
    soft_wait_t     wait;

    soft_wait_begin(&wait);
    if (!mr->base.owed) {
        end_local(dom, mr->base.key, &wait);
    }
    __atomic_store_n(&dom->shared->entries[mr->index].key, 0, __ATOMIC_SEQ_CST);
    status = wait_hazards(dom, mr->base.key, &wait);
    soft_helper_quiesce(dom);

    pthread_mutex_lock(&dom->lock);
    if (status == ANGARA_OK) {
        dom->free_list[dom->num_free++] = mr->index;
        if (mr->base.owed) {
            owed_remove(mr);
        }
    } else if (!mr->base.owed) {
        owed_add(dom, mr);
    }
    pthread_mutex_unlock(&dom->lock);
    return status;
}

static angara_status_t mr_end(soft_mr_t *mr)
{
    angara_status_t status = withdraw(mr);

    if (status == ANGARA_OK) {
        mr_free(mr);
    }
    return status;
}

unsigned soft_mr_collect(angara_domain_h base)
{
    soft_domain_t *dom   = soft_domain(base);
    soft_mr_t     *ended = NULL, *next;
    unsigned       left  = 0;
    soft_wait_t    wait;

    soft_wait_never(&wait);
    pthread_mutex_lock(&dom->lock);
    for (soft_mr_t *mr = dom->owed; mr != NULL; mr = next) {
        next = mr->next_owed;
        if (wait_hazards(dom, mr->base.key, &wait) != ANGARA_OK) {
            left++;
            continue;
        }
        owed_remove(mr);
        dom->free_list[dom->num_free++] = mr->index;
        mr->next_owed                   = ended;
        ended                           = mr;
    }
    pthread_mutex_unlock(&dom->lock);
    for (; ended != NULL; ended = next) {
        next = ended->next_owed;
        mr_free(ended);
    }
    return left;
}

angara_status_t soft_mr_deregister(angara_mr_h mr)
{
    return mr_end((soft_mr_t *)mr);
}

angara_status_t soft_mem_alloc(angara_domain_h dom, void *at, size_t *length, unsigned access,
                               void **addr_p, angara_mr_h *mr_p)
{
    size_t          size = (*length + SOFT_PAGE - 1) & ~(size_t)(SOFT_PAGE - 1);
    soft_mr_t      *mr   = mr_new(dom, NULL, size, access);
    angara_status_t status;

    if (mr == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    status = soft_segment_create("angara-memory", at, size, &mr->seg);
    if (status != ANGARA_OK) {
        goto err_free;
    }
    status = soft_segment_commit(&mr->seg, 0, size);
    if (status != ANGARA_OK) {
        goto err_segment;
    }
    if (size >= HUGE_PAGE) {
        madvise(mr->seg.base, size,
                MADV_HUGEPAGE); /* where the system's shmem_enabled is "advise" */
    }
    madvise(mr->seg.base, size, MADV_DOFORK); /* shared with forked children, as MAP_SHARED is */
    mr->base.addr      = mr->seg.base;
    mr->base.allocated = 1;
    status             = publish(soft_domain(dom), mr, mr->seg.fd);
    if (status != ANGARA_OK) {
        goto err_segment;
    }
    ang_fork_add(&mr->fork, mr_in_child);
    *length = size;
    *addr_p = mr->base.addr;
    *mr_p   = &mr->base;
    return ANGARA_OK;

err_segment:
    soft_segment_close(&mr->seg);
err_free:
    mr_free(mr);
    return status;
}

angara_status_t soft_mem_free(angara_mr_h mr)
{
    return mr_end((soft_mr_t *)mr);
}

angara_status_t soft_mr_check(const soft_domain_seg_t *dom, uint32_t mr_max, uint64_t key,
                              uint64_t offset, uint64_t length, unsigned access, uint64_t *addr_p,
                              const soft_mr_entry_t **entry_p)
{
    const soft_mr_entry_t *entry = &dom->entries[SOFT_KEY_INDEX(key)];

    if (__builtin_expect(key == 0 || SOFT_KEY_INDEX(key) >= mr_max ||
                             SOFT_KEY_INDEX(key) >= dom->mr_committed ||
                             __atomic_load_n(&entry->key, __ATOMIC_SEQ_CST) != key,
                         0)) {
        return ANGARA_ERR_KEY;
    }
    if (__builtin_expect(!ang_in_bounds(offset, length, entry->length), 0)) {
        return ANGARA_ERR_BOUNDS;
    }
    if (__builtin_expect((access & ~entry->access) != 0, 0)) {
        return ANGARA_ERR_RIGHTS;
    }
    if (addr_p != NULL) {
        *addr_p = entry->addr + offset;
    }
    if (entry_p != NULL) {
        *entry_p = entry;
    }
    return ANGARA_OK;
}
