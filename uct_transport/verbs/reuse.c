/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reuse of rendezvous registrations on providers where a region is just a range of addresses
 * (ANGARA_CAP_REG_CHEAP). Making one costs little there, but its table entry is new to the peer,
 * and taking it back has to look at every pair: cache lines that travel twice per message. So the
 * last ones stay registered, and the same range gets the same region again. No memory hooks are
 * needed: a region that outlives its mapping names addresses, not pages, exactly as a new one
 * would.
 *
 * Only registrations for put and get are shared (UCP's own, for rendezvous); what a user registers
 * or invalidates is taken back at once.
 */
#include "verbs/md.h"

static uct_angara_reuse_set_t *uct_angara_reuse_set(uct_angara_md_t *md, const void *address,
                                                    size_t length)
{
    uint64_t value = ((uintptr_t)address >> 4) * 0x9e3779b97f4a7c15ul;

    return &md->reuse[((value ^ (length * 0xff51afd7ed558ccdul)) >> 32) % UCT_ANGARA_REUSE_SETS];
}

int uct_angara_reuse_allows(const uct_angara_md_t *md, unsigned flags)
{
    return md->has_reuse && ((flags & UCT_MD_MEM_ACCESS_ALL) == UCT_MD_MEM_ACCESS_RMA);
}

/* Nobody gets it any more. @return what was there, or NULL. */
static uct_angara_mem_t *uct_angara_reuse_clear(uct_angara_reuse_way_t *way)
{
    uct_angara_mem_t *mem = way->mem;

    way->mem     = NULL;
    way->address = NULL;
    return mem;
}

/* The way of a registration. @return NULL: it isn't in the table (any more). */
static uct_angara_reuse_way_t *uct_angara_reuse_way(uct_angara_md_t        *md,
                                                    const uct_angara_mem_t *mem)
{
    uct_angara_reuse_set_t *set = uct_angara_reuse_set(md, mem->address, mem->length);
    unsigned                i;

    for (i = 0; i < UCT_ANGARA_REUSE_WAYS; ++i) {
        if (set->ways[i].mem == mem) {
            return &set->ways[i];
        }
    }
    return NULL;
}

/*
 * One user less. @param is_over  nobody is to get it any more.
 * @return non-zero if it was the last one of a registration that isn't in the table.
 */
static int uct_angara_reuse_leave(uct_angara_md_t *md, uct_angara_mem_t *mem, int is_over,
                                  uct_angara_waiter_t *waiter)
{
    uct_angara_reuse_way_t *way;
    int                     is_last;

    pthread_spin_lock(&md->reuse_lock);
    way = uct_angara_reuse_way(md, mem);
    if (is_over && (way != NULL)) {
        uct_angara_reuse_clear(way);
        way = NULL;
    }
    if (waiter != NULL) {
        waiter->next = mem->waiters;
        mem->waiters = waiter;
    }
    --mem->users;
    is_last = (mem->users == 0) && (way == NULL);
    pthread_spin_unlock(&md->reuse_lock);
    return is_last;
}

uct_angara_mem_t *uct_angara_reuse_get(uct_angara_md_t *md, void *address, size_t length,
                                       uct_angara_mem_t **old_p)
{
    uct_angara_reuse_set_t *set = uct_angara_reuse_set(md, address, length);
    uct_angara_mem_t       *mem = NULL;
    unsigned                i;

    *old_p = NULL;
    pthread_spin_lock(&md->reuse_lock);
    for (i = 0; i < UCT_ANGARA_REUSE_WAYS; ++i) {
        if ((set->ways[i].address == address) && (set->ways[i].length == length)) {
            mem = set->ways[i].mem;
            ++mem->users;
            break;
        }
    }
    pthread_spin_unlock(&md->reuse_lock);

    if ((mem != NULL) && ucs_unlikely(angara_mr_is_stale(uct_angara_mem_mr(mem)))) {
        /* of GPU memory that was freed: its last user takes it back */
        *old_p = uct_angara_reuse_leave(md, mem, 1, NULL) ? mem : NULL;
        mem    = NULL;
    }
    return mem;
}

/* A way that is empty, else of those that nobody uses each in its turn. @return NULL: none. */
static uct_angara_reuse_way_t *uct_angara_reuse_room(uct_angara_reuse_set_t *set)
{
    uct_angara_reuse_way_t *way, *idle = NULL;
    unsigned                i, at;

    for (i = 0; i < UCT_ANGARA_REUSE_WAYS; ++i) {
        at  = (set->next + i) % UCT_ANGARA_REUSE_WAYS;
        way = &set->ways[at];
        if (way->mem == NULL) {
            return way;
        }
        if ((idle == NULL) && (way->mem->users == 0)) {
            idle = way;
        }
    }
    if (idle != NULL) {
        set->next = (unsigned)(idle - set->ways) + 1;
    }
    return idle;
}

uct_angara_mem_t *uct_angara_reuse_add(uct_angara_md_t *md, uct_angara_mem_t *mem)
{
    uct_angara_reuse_set_t *set = uct_angara_reuse_set(md, mem->address, mem->length);
    uct_angara_mem_t       *old = NULL;
    uct_angara_reuse_way_t *way;

    mem->users = 1;
    pthread_spin_lock(&md->reuse_lock);
    way = uct_angara_reuse_room(set);
    if (way != NULL) {
        old            = uct_angara_reuse_clear(way);
        way->address   = mem->address;
        way->length    = mem->length;
        way->mem       = mem;
        mem->is_shared = 1;
    }
    pthread_spin_unlock(&md->reuse_lock);
    return old;
}

int uct_angara_reuse_put(uct_angara_md_t *md, uct_angara_mem_t *mem, uct_angara_waiter_t *waiter)
{
    return uct_angara_reuse_leave(md, mem, waiter != NULL, waiter);
}

void uct_angara_reuse_cleanup(uct_angara_md_t *md)
{
    uct_angara_mem_t *mem;
    unsigned          i;

    for (i = 0; i < UCT_ANGARA_REUSE_SETS * UCT_ANGARA_REUSE_WAYS; ++i) {
        mem = uct_angara_reuse_clear(
            &md->reuse[i / UCT_ANGARA_REUSE_WAYS].ways[i % UCT_ANGARA_REUSE_WAYS]);
        if (mem != NULL) {
            uct_angara_mem_deregister(md, mem);
            ucs_free(mem);
        }
    }
}
