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

static unsigned uct_angara_reuse_hash(const void *address, size_t length)
{
    uint64_t value = ((uintptr_t)address >> 4) * 0x9e3779b97f4a7c15ul;

    return ((value ^ (length * 0xff51afd7ed558ccdul)) >> 32) % UCT_ANGARA_REUSE_SLOTS;
}

int uct_angara_reuse_allows(const uct_angara_md_t *md, unsigned flags)
{
    return md->has_reuse && ((flags & UCT_MD_MEM_ACCESS_ALL) == UCT_MD_MEM_ACCESS_RMA);
}

uct_angara_mem_t *uct_angara_reuse_get(uct_angara_md_t *md, void *address, size_t length,
                                       uct_angara_mem_t **old_p)
{
    unsigned          hash = uct_angara_reuse_hash(address, length);
    uct_angara_mem_t *mem;

    *old_p = NULL;
    pthread_mutex_lock(&md->reuse_lock);
    mem = md->reuse[hash];
    if ((mem == NULL) || (mem->address != address) || (mem->length != length)) {
        mem = NULL;
    } else if (ucs_likely(!angara_mr_is_stale(uct_angara_mem_mr(mem)))) {
        ++mem->users;
    } else {
        /* of GPU memory that was freed: its users, if it has any, take it back */
        md->reuse[hash] = NULL;
        *old_p          = (mem->users == 0) ? mem : NULL;
        mem             = NULL;
    }
    pthread_mutex_unlock(&md->reuse_lock);
    return mem;
}

uct_angara_mem_t *uct_angara_reuse_add(uct_angara_md_t *md, uct_angara_mem_t *mem)
{
    unsigned          hash = uct_angara_reuse_hash(mem->address, mem->length);
    uct_angara_mem_t *old  = NULL;

    mem->users = 1;
    pthread_mutex_lock(&md->reuse_lock);
    if ((md->reuse[hash] == NULL) || (md->reuse[hash]->users == 0)) {
        old             = md->reuse[hash];
        md->reuse[hash] = mem;
        mem->is_shared  = 1;
    }
    pthread_mutex_unlock(&md->reuse_lock);
    return old;
}

int uct_angara_reuse_put(uct_angara_md_t *md, uct_angara_mem_t *mem, uct_angara_waiter_t *waiter)
{
    unsigned hash = uct_angara_reuse_hash(mem->address, mem->length);
    int      is_last;

    pthread_mutex_lock(&md->reuse_lock);
    if (waiter != NULL) {
        /* nobody gets it any more; its other users finish first */
        if (md->reuse[hash] == mem) {
            md->reuse[hash] = NULL;
        }
        waiter->next = mem->waiters;
        mem->waiters = waiter;
    }

    --mem->users;
    is_last = (mem->users == 0) && (md->reuse[hash] != mem);
    pthread_mutex_unlock(&md->reuse_lock);
    return is_last;
}

void uct_angara_reuse_cleanup(uct_angara_md_t *md)
{
    unsigned i;

    for (i = 0; i < UCT_ANGARA_REUSE_SLOTS; ++i) {
        if (md->reuse[i] != NULL) {
            uct_angara_mem_deregister(md, md->reuse[i]);
            ucs_free(md->reuse[i]);
            md->reuse[i] = NULL;
        }
    }
}
