/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registrations: made, renewed when the memory has changed behind them, taken back; and memory that
 * is owed because a peer is still within an access to it. Which of them are kept for a second use
 * is decided in md.c, rcache.c and reuse.c.
 */
#include "verbs/md.h"

#include "base/status.h"

/* Rights of the region. Atomics on it cost a helper thread: only where they are asked for. */
static unsigned uct_angara_mem_access(unsigned flags)
{
    return ((flags & UCT_MD_MEM_ACCESS_ALL) == UCT_MD_MEM_ACCESS_RMA) ?
               ANGARA_ACCESS_ALL & ~ANGARA_ACCESS_REMOTE_ATOMIC :
               ANGARA_ACCESS_ALL;
}

/*
 * UCX's caches of registrations widen ranges to their alignment: without what that adds behind the
 * end of an allocation of GPU memory, which is known to the byte.
 */
static size_t uct_angara_mr_clip(const char *address, size_t length)
{
    angara_mem_t mem;
    size_t       rest;

    if ((((uintptr_t)address + length) % UCS_RCACHE_MIN_ALIGNMENT != 0) ||
        (angara_mem_query(address, &mem) != ANGARA_OK) || (mem.kind == ANGARA_MEM_HOST)) {
        return length;
    }
    rest = (char *)mem.base + mem.length - address;
    return ((rest < length) && (length - rest < UCS_RCACHE_MIN_ALIGNMENT)) ? rest : length;
}

/*
 * UCP asks for the rights to write what it only sends, too: memory that can't be written (a
 * constant array, a file mapped for reading) is registered for reading, and writes to it will be
 * refused.
 */
static angara_status_t uct_angara_mr_register(uct_angara_md_t *md, void *address, size_t length,
                                              unsigned flags, angara_mr_h *mr_p)
{
    angara_status_t status;
    angara_mem_t    mem;

    length = uct_angara_mr_clip(address, length);
    status = angara_mr_register(md->dom, address, length, uct_angara_mem_access(flags), mr_p);
    if ((status == ANGARA_ERR_INVALID) && (angara_mem_query(address, &mem) == ANGARA_OK) &&
        (mem.kind == ANGARA_MEM_HOST)) {
        status = angara_mr_register(md->dom, address, length, ANGARA_ACCESS_REMOTE_READ, mr_p);
    }
    return status;
}

ucs_status_t uct_angara_mem_register(uct_angara_md_t *md, void *address, size_t length,
                                     unsigned flags, uct_angara_mem_t *mem)
{
    angara_status_t status;

    status = uct_angara_mr_register(md, address, length, flags, &mem->mr);
    if (status != ANGARA_OK) {
        uct_md_log_mem_reg_error(flags, "angara: registering %p..%p failed: %s", address,
                                 UCS_PTR_BYTE_OFFSET(address, length), angara_strerror(status));
        return uct_angara_status(status);
    }

    mem->address   = address;
    mem->length    = length;
    mem->flags     = flags;
    mem->users     = 1;
    mem->is_shared = 0;
    mem->waiters   = NULL;
    mem->older     = NULL;
    return UCS_OK;
}

/* What the library answered to the end of a region. */
ucs_status_t uct_angara_mem_ended(uct_angara_md_t *md, const uct_angara_mem_t *mem,
                                  angara_status_t status)
{
    if (status == ANGARA_OK) {
        return UCS_OK;
    }

    ucs_warn("angara: deregistering %p..%p: %s%s", mem->address,
             UCS_PTR_BYTE_OFFSET(mem->address, mem->length), angara_strerror(status),
             (status == ANGARA_ERR_BUSY) ? ". That memory must not be used again yet" : "");
    if (status == ANGARA_ERR_BUSY) {
        __atomic_store_n(&md->has_owed, 1, __ATOMIC_RELEASE);
    }
    return uct_angara_status(status);
}

ucs_status_t uct_angara_mem_deregister(uct_angara_md_t *md, uct_angara_mem_t *mem)
{
    ucs_status_t      result = UCS_OK;
    ucs_status_t      status;
    uct_angara_mem_t *old;

    for (;;) {
        status = uct_angara_mem_ended(md, mem, angara_mr_deregister(mem->mr));
        result = (status == UCS_OK) ? result : status;
        old    = mem->older;
        if (old == NULL) {
            return result;
        }
        mem->mr    = old->mr;
        mem->older = old->older;
        ucs_free(old);
    }
}

uct_angara_waiter_t *uct_angara_waiter_new(uct_angara_md_t *md, uct_completion_t *comp)
{
    uct_angara_waiter_t *waiter = ucs_malloc(sizeof(*waiter), "angara_waiter");

    if (waiter != NULL) {
        waiter->next = NULL;
        waiter->md   = md;
        waiter->comp = comp;
    }
    return waiter;
}

void uct_angara_waiters_complete(uct_angara_waiter_t *waiters, ucs_status_t status)
{
    uct_angara_waiter_t *waiter;

    while ((waiter = waiters) != NULL) {
        waiters = waiter->next;
        uct_invoke_completion(waiter->comp, status);
        ucs_free(waiter);
    }
}

void uct_angara_waiters_tell(uct_angara_md_t *md, uct_angara_waiter_t *waiters)
{
    uct_angara_waiter_t **last;

    if (waiters == NULL) {
        return;
    }

    pthread_mutex_lock(&md->lock);
    if (md->has_owed) { /* perhaps other memory, but who waits for all is never told too early */
        for (last = &waiters; *last != NULL; last = &(*last)->next) {
        }
        *last            = md->owed_waiters;
        md->owed_waiters = waiters;
        waiters          = NULL;
    }
    pthread_mutex_unlock(&md->lock);
    uct_angara_waiters_complete(waiters, UCS_OK);
}

/* Time between two looks at what is owed, seconds. */
#define UCT_ANGARA_COLLECT_INTERVAL 0.01

void uct_angara_md_collect(uct_angara_md_t *md)
{
    ucs_time_t           now     = ucs_get_time();
    uct_angara_waiter_t *waiters = NULL;

    pthread_mutex_lock(&md->lock);
    if (now >= md->next_collect) {
        md->next_collect = now + ucs_time_from_sec(UCT_ANGARA_COLLECT_INTERVAL);
        __atomic_store_n(&md->has_owed, 0, __ATOMIC_RELAXED); /* or set again from here on */
        if (angara_mr_collect(md->dom) != 0) {
            __atomic_store_n(&md->has_owed, 1, __ATOMIC_RELAXED);
        } else {
            waiters          = md->owed_waiters;
            md->owed_waiters = NULL;
        }
    }
    pthread_mutex_unlock(&md->lock);
    uct_angara_waiters_complete(waiters, UCS_OK);
}

/*
 * What is no GPU's memory any more, where some was, was freed: perhaps nothing is there, or what
 * the CPU can't touch.
 */
static int uct_angara_mr_is_gone(angara_mr_h mr, const uct_angara_mem_t *old)
{
    return (angara_mr_mem_kind(mr) == ANGARA_MEM_HOST) &&
           (angara_mr_mem_kind(old->mr) != ANGARA_MEM_HOST);
}

/* The older region stays with the handle, as its key may be in use. */
static angara_status_t uct_angara_mem_replace(uct_angara_md_t *md, uct_angara_mem_t *mem,
                                              int is_written)
{
    uct_angara_mem_t *old;
    angara_status_t   status;
    angara_mr_h       mr;

    old = ucs_malloc(sizeof(*old), "angara_mem_older");
    if (old == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }

    status = uct_angara_mr_register(md, mem->address, mem->length, mem->flags, &mr);
    if ((status == ANGARA_OK) && is_written && uct_angara_mr_is_read_only(mr)) {
        uct_angara_mem_ended(md, mem, angara_mr_deregister(mr));
        status = ANGARA_ERR_RIGHTS;
    } else if ((status == ANGARA_OK) && uct_angara_mr_is_gone(mr, mem)) {
        uct_angara_mem_ended(md, mem, angara_mr_deregister(mr));
        status = ANGARA_ERR_BOUNDS;
    }
    if (status != ANGARA_OK) {
        ucs_free(old);
        return status;
    }

    *old       = *mem;
    mem->older = old;
    __atomic_store_n(&mem->mr, mr, __ATOMIC_RELEASE);
    return ANGARA_OK;
}

/*
 * UCP and users keep handles and drop them as they learn that memory was unmapped. What they don't
 * learn of is noticed here: whoever asks for a key, or posts an operation, gets the memory of now.
 */
ucs_status_t uct_angara_mem_renew(uct_angara_md_t *md, uct_angara_mem_t *mem, const void *address,
                                  size_t length, int is_written)
{
    angara_status_t status = ANGARA_OK;

    pthread_mutex_lock(&md->lock);
    /* still: another thread may have been here */
    if (!uct_angara_mem_is_current(mem, address, length, is_written)) {
        status = uct_angara_mem_replace(md, mem, is_written);
    }
    pthread_mutex_unlock(&md->lock);
    if (status != ANGARA_OK) {
        ucs_error("angara: %p..%p is not the memory any more that was registered%s, and can't be "
                  "registered again: %s",
                  mem->address, UCS_PTR_BYTE_OFFSET(mem->address, mem->length),
                  is_written ? ", or not writable" : "", angara_strerror(status));
    }
    return uct_angara_status(status);
}
