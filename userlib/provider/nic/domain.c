/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Domains and regions. A region is the kernel's; the table here only serves the copies that the CPU
 * makes for the own PE (self.c), which look a key up as the NIC does.
 */
#define _GNU_SOURCE
#include "nic.h"

#include "src/config.h"
#include "src/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STALE_SIZE (ANGARA_MR_HANDLES_MAX * sizeof(uint32_t))

_Static_assert((int)ANGARA_MR_REMOTE_READ == (int)ANGARA_ACCESS_REMOTE_READ &&
                   (int)ANGARA_MR_REMOTE_WRITE == (int)ANGARA_ACCESS_REMOTE_WRITE &&
                   (int)ANGARA_MR_REMOTE_ATOMIC == (int)ANGARA_ACCESS_REMOTE_ATOMIC &&
                   (int)ANGARA_MR_LOCAL_WRITE == (int)ANGARA_ACCESS_LOCAL_WRITE,
               "rights are the kernel's");

/* ---- the domain ------------------------------------------------------------------------------ */

static void close_descriptors(nic_domain_t *dom)
{
    if (dom->fd >= 0) {
        close(dom->fd);
    }
    if (dom->memreg_fd >= 0) {
        close(dom->memreg_fd);
    }
    dom->fd = dom->memreg_fd = -1;
}

static void domain_in_child(ang_fork_t *node)
{
    close_descriptors(ANG_FORK_OBJECT(nic_domain_t, node));
}

static void domain_free(nic_domain_t *dom)
{
    ang_fork_remove(&dom->fork);
    if (dom->stale != NULL) {
        munmap((void *)(uintptr_t)dom->stale, STALE_SIZE);
    }
    close_descriptors(dom);
    pthread_mutex_destroy(&dom->pes_lock);
    pthread_rwlock_destroy(&dom->lock);
    free(dom);
}

static void fill_attr(const struct angara_ioc_info *info, angara_attr_t *attr)
{
    strcpy(attr->provider, "nic");
    snprintf(attr->device, sizeof(attr->device), "%s", (const char *)info->name);
    attr->caps = (info->caps & ANGARA_INFO_LOOPBACK) ? ANGARA_CAP_LOOPBACK | ANGARA_CAP_NODE_PEERS :
                                                       0;
    attr->node = info->node;
    attr->window_max   = info->window_max - NIC_PAGE; /* the last page is ours: see pe.c */
    attr->put_max      = info->put_max;
    attr->offload_max  = info->offload_max;
    attr->inline_max   = ANGARA_DESC_DATA;
    attr->mr_max       = info->mr_max;
    attr->marker_slots = info->marker_slots;
}

angara_status_t nic_domain_open(const char *device, angara_domain_h *dom_p)
{
    static pthread_once_t warned = PTHREAD_ONCE_INIT;
    nic_domain_t         *dom    = nic_calloc(1, sizeof(*dom));
    angara_status_t       status;

    if (dom == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    dom->base.ops   = &ang_nic_provider;
    dom->base.epoch = ang_fork_epoch;
    dom->fd = dom->memreg_fd = -1;
    pthread_rwlock_init(&dom->lock, NULL);
    pthread_mutex_init(&dom->pes_lock, NULL);
    ang_fork_add(&dom->fork, domain_in_child);
    status = nic_device_open(device, &dom->fd, &dom->info);
    if (status == ANGARA_OK) {
        status = nic_memreg_open(&dom->memreg_fd);
    }
    if (status == ANGARA_OK) {
        dom->stale = nic_map(dom->memreg_fd, 0, STALE_SIZE, PROT_READ, "mapping " NIC_MEMREG);
        status     = dom->stale != NULL ? ANGARA_OK : ANGARA_ERR_NO_MEMORY;
    }
    if (status != ANGARA_OK) {
        domain_free(dom);
        return status;
    }
    fill_attr(&dom->info, &dom->base.attr);
    pthread_once(&warned, ang_config_warn_nic);
    ang_info("%s is open: node %u, %s loopback", dom->base.attr.device, dom->base.attr.node,
             (dom->info.caps & ANGARA_INFO_LOOPBACK) ? "with" : "without");
    *dom_p = &dom->base;
    return ANGARA_OK;
}

angara_status_t nic_domain_close(angara_domain_h dom)
{
    domain_free(nic_domain(dom));
    return ANGARA_OK;
}

/* ---- the table of regions -------------------------------------------------------------------- */

static nic_mr_t **bucket(nic_domain_t *dom, uint64_t key)
{
    return &dom->buckets[key % NIC_MR_BUCKETS]; /* the low bits are an index: evenly spread */
}

static void table_add(nic_domain_t *dom, nic_mr_t *mr)
{
    nic_mr_t **head = bucket(dom, mr->base.key);

    pthread_rwlock_wrlock(&dom->lock);
    mr->next = *head;
    *head    = mr;
    pthread_rwlock_unlock(&dom->lock);
}

/* On return no copy of the CPU's is under way. */
static void table_remove(nic_domain_t *dom, nic_mr_t *mr)
{
    nic_mr_t **link;

    pthread_rwlock_wrlock(&dom->lock);
    for (link = bucket(dom, mr->base.key); *link != mr; link = &(*link)->next) {
    }
    *link = mr->next;
    pthread_rwlock_unlock(&dom->lock);
}

/*
 * Of a region that is stale, the NIC in loopback mode reaches the old pages. Without, there is only
 * the CPU, which goes by the addresses, if they are mapped.
 */
static int is_reachable(const nic_domain_t *dom, nic_mr_t *mr, const char *start, uint64_t length,
                        unsigned access)
{
    uintptr_t first = (uintptr_t)start & ~(uintptr_t)(NIC_PAGE - 1);
    int       reads = (access & ~(unsigned)ANGARA_ACCESS_REMOTE_READ) == 0;

    if (NIC_LIKELY(nic_load(&dom->stale[mr->handle]) == 0) || length == 0 ||
        !nic_mr_is_stale(&mr->base, (uintptr_t)start - (uintptr_t)mr->base.addr, length)) {
        return 1;
    }
    return !(dom->info.caps & ANGARA_INFO_LOOPBACK) &&
           madvise((void *)first, (uintptr_t)start + length - first,
                   reads ? MADV_POPULATE_READ : MADV_POPULATE_WRITE) == 0;
}

char *nic_mr_address(nic_domain_t *dom, uint64_t key, uint64_t offset, uint64_t length,
                     unsigned access)
{
    nic_mr_t *mr = *bucket(dom, key);
    char     *start;

    while (mr != NULL && mr->base.key != key) {
        mr = mr->next;
    }
    if (mr == NULL || !ang_in_bounds(offset, length, mr->base.length) ||
        (access & ~mr->base.access) != 0) {
        return NULL;
    }
    start = (char *)mr->base.addr + offset;
    return is_reachable(dom, mr, start, length, access) ? start : NULL;
}

/* ---- registration ---------------------------------------------------------------------------- */

/* Memory that can't be written is no surprise to who then asks for the rights to read it. */
static angara_status_t register_failed(int error, size_t length, unsigned access)
{
    ang_log_level_t level = (access & ~(unsigned)ANGARA_ACCESS_REMOTE_READ) != 0 ? ANG_LOG_INFO :
                                                                                   ANG_LOG_ERROR;

    switch (error) {
    case ENOMEM:
        return nic_no_memory("registering memory", length);
    case ENOSPC:
        ang_error("registering memory: the NIC's table of regions is full: mr_entries is a "
                  "parameter of the module angara_nic");
        return ANGARA_ERR_NO_MEMORY;
    case EFAULT:
        ang_log(level,
                "registering memory: not all of the %zu bytes is mapped, with the rights that "
                "the region grants",
                length);
        return ANGARA_ERR_INVALID;
    case EOPNOTSUPP:
        ang_error("registering memory: it is of a kind that can't be pinned (a writable mapping of "
                  "a file, say); dmesg may have more");
        return ANGARA_ERR_UNSUPPORTED;
    default:
        return nic_error(error, "registering memory");
    }
}

angara_status_t nic_mr_register(angara_domain_h base, void *addr, size_t length, unsigned access,
                                angara_mr_h *mr_p)
{
    nic_domain_t            *dom = nic_domain(base);
    nic_mr_t                *mr  = nic_calloc(1, sizeof(*mr));
    struct angara_ioc_mr_reg arg = {
        .size      = sizeof(arg),
        .domain_fd = dom->fd,
        .type      = ANGARA_MR_HOST,
        .access    = access,
        .addr      = (uintptr_t)addr,
        .length    = length,
    };
    int error;

    if (mr == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    error = nic_ioctl(dom->memreg_fd, ANGARA_IOC_MR_REG, &arg);
    if (error == 0 && arg.handle >= ANGARA_MR_HANDLES_MAX) {
        error = EPROTO;
    }
    if (error != 0) {
        free(mr);
        return register_failed(error, length, access);
    }
    mr->base = (struct angara_mr){base, addr, length, arg.key, access, 0, &dom->stale[arg.handle]};
    mr->handle = arg.handle;
    table_add(dom, mr);
    *mr_p = &mr->base;
    return ANGARA_OK;
}

angara_status_t nic_mr_deregister(angara_mr_h base)
{
    nic_domain_t              *dom    = nic_domain(base->dom);
    nic_mr_t                  *mr     = (nic_mr_t *)base;
    struct angara_ioc_mr_dereg arg    = {.size = sizeof(arg), .handle = mr->handle};
    angara_status_t            status = ANGARA_OK;
    int                        error;

    nic_own_end_local(dom, base->key);
    table_remove(dom, mr);
    error = nic_ioctl(dom->memreg_fd, ANGARA_IOC_MR_DEREG, &arg);
    /* A device that has gone has taken its regions along: nothing can reach the memory. */
    if (error != 0 && error != ENODEV && error != ENOENT) {
        status = nic_error(error, "deregistering memory");
    }
    free(mr);
    return status;
}

/* The kernel compares the pages; what it can't tell counts as changed. */
int nic_mr_is_stale(angara_mr_h mr, uint64_t offset, uint64_t length)
{
    struct angara_ioc_mr_check arg = {.size   = sizeof(arg),
                                      .handle = ((nic_mr_t *)mr)->handle,
                                      .offset = offset,
                                      .length = length};

    return nic_ioctl(nic_domain(mr->dom)->memreg_fd, ANGARA_IOC_MR_CHECK, &arg) != 0 ||
           arg.stale != 0;
}

/* ---- registered memory ----------------------------------------------------------------------- */

/* Shared, so that a forked child has it, as the model says, and nothing is copied at fork. */
angara_status_t nic_mem_alloc(angara_domain_h dom, void *at, size_t *length, unsigned access,
                              void **addr_p, angara_mr_h *mr_p)
{
    size_t          size = (*length + NIC_PAGE - 1) & ~(size_t)(NIC_PAGE - 1);
    void           *addr;
    angara_status_t status;

    addr = mmap(at, size, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS | (at != NULL ? MAP_FIXED : 0), -1, 0);
    if (addr == MAP_FAILED) {
        return nic_error(errno, "allocating memory");
    }
    status = nic_mr_register(dom, addr, size, access, mr_p);
    if (status != ANGARA_OK) {
        munmap(addr, size);
        return status;
    }
    (*mr_p)->allocated = 1;
    (*mr_p)->stale     = NULL; /* a shared mapping has its pages for life, and it is ours */
    *addr_p            = addr;
    *length            = size;
    return ANGARA_OK;
}

/* Pages that the kernel couldn't take back from the NIC stay its own after the munmap(). */
angara_status_t nic_mem_free(angara_mr_h mr)
{
    void           *addr   = mr->addr;
    size_t          length = mr->length;
    angara_status_t status = nic_mr_deregister(mr);

    munmap(addr, length);
    return status;
}
