/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of ROCm's GPUs: what a pointer is, ids of allocations, and what other processes and NICs
 * get of them. Uses rocm.c; knows nothing of copies.
 */
#include "rocm.h"

#include "provider/provider.h"
#include "src/log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define AGENTS_MAX 256 /* GPUs and CPUs of a node */

/* ---- pointers -------------------------------------------------------------------------------- */

/* The runtime asks for room without saying for whom. */
static __thread hsa_agent_t agents_room[AGENTS_MAX];

static void *agents_alloc(size_t size)
{
    return size <= sizeof(agents_room) ? agents_room : NULL;
}

int rocm_info(const void *addr, hsa_amd_pointer_info_t *info, rocm_reach_t *reach)
{
    hsa_agent_t *agents = NULL;
    uint32_t     num    = 0;
    hsa_status_t status;

    memset(info, 0, sizeof(*info));
    info->size = sizeof(*info);
    status     = rocm.pointer_info(addr, info, reach != NULL ? agents_alloc : NULL,
                               reach != NULL ? &num : NULL, reach != NULL ? &agents : NULL);
    if (reach != NULL) {
        *reach = (rocm_reach_t){.agents = agents, .num = agents != NULL ? num : 0};
    }
    if (status != HSA_STATUS_SUCCESS) {
        return 0;
    }
    rocm_note_started();
    /* It says less if it is older. */
    return info->size >= offsetof(hsa_amd_pointer_info_t, global_flags);
}

int rocm_is_reached(const rocm_reach_t *reach, const rocm_gpu_t *gpu)
{
    for (uint32_t i = 0; i < reach->num; ++i) {
        if (reach->agents[i].handle == gpu->agent.handle) {
            return 1;
        }
    }
    return 0;
}

/*
 * Ids. The runtime has none, so here is a table of bases; an entry goes when the runtime says that
 * the memory is freed, which it does before the address can be given to another allocation. (HIP
 * keeps what is freed to a stream-ordered pool: the same memory then has the same id, and handles
 * made of it stay right.) The runtime isn't called with the lock held: it may call back under its
 * own locks.
 */
typedef struct allocation {
    struct allocation *next;
    void              *base;
    uint64_t           id;
    int                watched; /* 0: the callback isn't registered yet */
} allocation_t;

#define BUCKETS 256

static struct {
    pthread_mutex_t lock;
    uint64_t        last; /* id */
    allocation_t   *buckets[BUCKETS];
} allocations = {.lock = PTHREAD_MUTEX_INITIALIZER, .last = UINT64_C(1) << 63};

/* The pointer to the entry of `base`, or to the NULL behind the last. */
static allocation_t **allocation_find(const void *base)
{
    allocation_t **link = &allocations.buckets[((uintptr_t)base >> 12) % BUCKETS];

    while (*link != NULL && (*link)->base != base) {
        link = &(*link)->next;
    }
    return link;
}

static void allocation_forget(void *base, int watched_too)
{
    allocation_t *gone = NULL, **link;

    pthread_mutex_lock(&allocations.lock);
    link = allocation_find(base);
    if (*link != NULL && (watched_too || !(*link)->watched)) {
        gone  = *link;
        *link = gone->next;
    }
    pthread_mutex_unlock(&allocations.lock);
    free(gone);
}

/* In any thread of the program's, within its free. An allocation may have several callbacks (see
 * below); all come before its address can be used again. */
static void allocation_freed(void *base, void *unused)
{
    (void)unused;
    if (!rocm_is_forked()) {
        allocation_forget(base, 1);
    }
}

/*
 * The entry comes first, then the callback, then the entry is valid if it is still there: what is
 * freed in between isn't remembered. Threads that do this at once each register a callback, the
 * entry is one.
 */
static uint64_t allocation_id(void *base)
{
    uint64_t      id = 0;
    int           watched;
    allocation_t *fresh, **link;
    hsa_status_t  status;

    if (rocm.on_deallocation == NULL) {
        return 0;
    }
    pthread_mutex_lock(&allocations.lock);
    link = allocation_find(base);
    if (*link == NULL && (fresh = malloc(sizeof(*fresh))) != NULL) {
        *fresh = (allocation_t){.base = base, .id = ++allocations.last};
        *link  = fresh;
    }
    id      = *link != NULL ? (*link)->id : 0;
    watched = *link != NULL && (*link)->watched;
    pthread_mutex_unlock(&allocations.lock);
    if (id == 0 || watched) {
        return id;
    }
    status = rocm.on_deallocation(base, allocation_freed, NULL);
    if (status != HSA_STATUS_SUCCESS) {
        ang_debug("allocation %p has no id: its end can't be watched: %s", base, rocm_name(status));
        allocation_forget(base, 0);
        return 0;
    }
    pthread_mutex_lock(&allocations.lock);
    link = allocation_find(base);
    if (*link != NULL && (*link)->id == id) {
        (*link)->watched = 1;
    } else {
        id = 0;
    }
    pthread_mutex_unlock(&allocations.lock);
    return id;
}

/* Memory of other processes, or of a graphics driver. */
static int is_foreign(const hsa_amd_pointer_info_t *info)
{
    return info->type == HSA_EXT_POINTER_TYPE_IPC || info->type == HSA_EXT_POINTER_TYPE_GRAPHICS;
}

/* Which GPU reaches it? The one that it is on, if possible. */
static rocm_via_t *foreign_via(const void *addr, rocm_gpu_t *owner)
{
    hsa_amd_pointer_info_t info;
    rocm_reach_t           reach;
    rocm_gpu_t            *gpu;

    if (!rocm_info(addr, &info, &reach)) {
        return NULL;
    }
    if (owner != NULL && rocm_is_reached(&reach, owner)) {
        return &owner->via[1];
    }
    for (int i = 0; (gpu = rocm_gpu(i)) != NULL; ++i) {
        if (rocm_is_reached(&reach, gpu)) {
            return &gpu->via[0];
        }
    }
    return NULL;
}

/*
 * Managed memory can't be told: hipMallocManaged() gives, with a driver that migrates pages, plain
 * mappings which this call doesn't know (UNKNOWN), else memory of the host's pools. The CPU may
 * touch both, so both are host memory here; the attributes of migrating ranges would tell, at the
 * price of an ioctl for each pointer to host memory.
 */
int rocm_query(const void *addr, ang_gpu_mem_t *mem)
{
    hsa_amd_pointer_info_t info;
    rocm_via_t            *via = NULL;
    rocm_gpu_t            *gpu;

    if (addr == NULL || mem == NULL || rocm_is_forked() || !rocm_info(addr, &info, NULL) ||
        info.type == HSA_EXT_POINTER_TYPE_UNKNOWN || info.type == HSA_EXT_POINTER_TYPE_LOCKED) {
        return 0;
    }
    if ((info.type != HSA_EXT_POINTER_TYPE_HSA && (int)info.type != ROCM_POINTER_TYPE_VMEM &&
         !is_foreign(&info)) ||
        !rocm_hold()) {
        return 0;
    }
    gpu = rocm_gpu_of(info.agentOwner);
    /* Of a GPU that this process doesn't see (ROCR_VISIBLE_DEVICES): no owner is named. */
    if (gpu == NULL && !(is_foreign(&info) && info.agentOwner.handle == 0)) {
        return 0;
    }
    mem->mem = (angara_mem_t){.kind   = ANGARA_MEM_ROCM,
                              .device = gpu != NULL ? gpu->number : -1,
                              .base   = info.agentBaseAddress,
                              .length = info.sizeInBytes,
                              .pci    = gpu != NULL ? gpu->pci : 0};
    if (is_foreign(&info)) {
        via = foreign_via(addr, gpu);
        if (via == NULL) {
            mem->mem.device = -1; /* nobody can copy it */
        }
    } else if (info.type == HSA_EXT_POINTER_TYPE_HSA) {
        mem->mem.shares = rocm.ipc_create != NULL;
        mem->mem.id     = allocation_id(info.agentBaseAddress);
    }
    mem->context = via;
    return 1;
}

/* Else we lock it for the copy, page by page. */
int rocm_is_pinned(const void *addr, size_t length)
{
    hsa_amd_pointer_info_t first, last;

    return !rocm_is_forked() && rocm_info(addr, &first, NULL) &&
           rocm_info((const char *)addr + length - 1, &last, NULL) &&
           first.type != HSA_EXT_POINTER_TYPE_UNKNOWN && last.type != HSA_EXT_POINTER_TYPE_UNKNOWN;
}

/* ---- other processes, NICs ------------------------------------------------------------------- */

/* Is it still the allocation that was asked about, and ours to give away? */
static int is_own(const ang_gpu_mem_t *mem)
{
    hsa_amd_pointer_info_t info;

    return rocm_info(mem->mem.base, &info, NULL) && info.type == HSA_EXT_POINTER_TYPE_HSA &&
           info.agentBaseAddress == mem->mem.base && info.sizeInBytes == mem->mem.length;
}

_Static_assert(sizeof(hsa_amd_ipc_memory_t) <= sizeof(ang_gpu_handle_t), "it fits");

/* The runtime doesn't tell a wrong handle from an allocation that can't be shared, or a GPU that
 * has no way to it: all are no way for us. */
static angara_status_t ipc_refused(const char *call, int device, hsa_status_t status)
{
    int no_way = status == HSA_STATUS_ERROR_INVALID_ARGUMENT ||
                 status == HSA_STATUS_ERROR_INVALID_ALLOCATION ||
                 status == HSA_STATUS_ERROR_INVALID_AGENT;

    ang_log(no_way ? ANG_LOG_INFO : ANG_LOG_WARN,
            "GPU %d: memory isn't shared with another process, it goes through the host: %s: %s",
            device, call, rocm_name(status));
    if (no_way) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    return status == HSA_STATUS_ERROR_OUT_OF_RESOURCES ? ANGARA_ERR_NO_MEMORY : ANGARA_ERR_SYSTEM;
}

angara_status_t rocm_share(const ang_gpu_mem_t *mem, ang_gpu_handle_t *handle)
{
    hsa_amd_ipc_memory_t ipc;
    hsa_status_t         status;

    if (mem == NULL || handle == NULL) {
        return ANGARA_ERR_INVALID;
    }
    if (rocm_is_forked()) {
        return ANGARA_ERR_FORKED;
    }
    if (rocm.ipc_create == NULL || !is_own(mem)) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    status = rocm.ipc_create(mem->mem.base, mem->mem.length, &ipc);
    if (status != HSA_STATUS_SUCCESS) {
        return ipc_refused("hsa_amd_ipc_memory_create", mem->mem.device, status);
    }
    memset(handle, 0, sizeof(*handle));
    memcpy(handle->bytes, &ipc, sizeof(ipc));
    return ANGARA_OK;
}

angara_status_t rocm_map(int device, const ang_gpu_handle_t *handle, size_t length,
                         ang_gpu_map_t *map)
{
    static const ang_gpu_handle_t zeroes;
    hsa_amd_pointer_info_t        info;
    hsa_amd_ipc_memory_t          ipc;
    hsa_status_t                  status;
    rocm_gpu_t                   *gpu;
    void                         *base = NULL;
    int                           is_local;

    if (handle == NULL || map == NULL || length == 0 ||
        memcmp(handle->bytes + sizeof(ipc), zeroes.bytes, sizeof(*handle) - sizeof(ipc)) != 0) {
        return ANGARA_ERR_INVALID;
    }
    if (rocm_is_forked()) {
        return ANGARA_ERR_FORKED;
    }
    if (rocm.ipc_attach == NULL || rocm.ipc_detach == NULL || !rocm_hold()) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    gpu = rocm_gpu(device);
    if (gpu == NULL) {
        return ANGARA_ERR_INVALID;
    }
    memcpy(&ipc, handle->bytes, sizeof(ipc));
    status = rocm.ipc_attach(&ipc, length, 1, &gpu->agent, &base);
    if (status != HSA_STATUS_SUCCESS) {
        return ipc_refused("hsa_amd_ipc_memory_attach", device, status);
    }
    is_local = rocm_info(base, &info, NULL) && info.agentOwner.handle == gpu->agent.handle;
    *map     = (ang_gpu_map_t){.base = base, .device = device, .context = &gpu->via[is_local]};
    return ANGARA_OK;
}

void rocm_unmap(const ang_gpu_map_t *map)
{
    hsa_status_t status;

    if (map == NULL || map->base == NULL || rocm.ipc_detach == NULL || rocm_is_forked()) {
        return;
    }
    status = rocm.ipc_detach(map->base);
    if (status != HSA_STATUS_SUCCESS) {
        ang_error("GPU %d: memory of another process stays mapped at %p: "
                  "hsa_amd_ipc_memory_detach: %s",
                  map->device, map->base, rocm_name(status));
    }
}

/* Nothing says that unmapping waits for kernels. */
int rocm_is_idle(const ang_gpu_map_t *map)
{
    (void)map;
    return 1;
}

angara_status_t rocm_dmabuf(const ang_gpu_mem_t *mem, const void *addr, size_t length, int *fd_p,
                            uint64_t *offset_p)
{
    uint64_t     offset = 0;
    int          fd     = -1;
    hsa_status_t status;

    if (mem == NULL || addr == NULL || length == 0 || fd_p == NULL || offset_p == NULL) {
        return ANGARA_ERR_INVALID;
    }
    if (rocm_is_forked()) {
        return ANGARA_ERR_FORKED;
    }
    if (!ang_in_bounds((uintptr_t)addr - (uintptr_t)mem->mem.base, length, mem->mem.length)) {
        return ANGARA_ERR_BOUNDS;
    }
    /* The runtime crashes on memory of other processes. */
    if (rocm.export_dmabuf == NULL || !is_own(mem)) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    status = rocm.export_dmabuf(addr, length, &fd, &offset);
    if (status == HSA_STATUS_ERROR_OUT_OF_RESOURCES) {
        ang_error("GPU %d: no dma-buf of memory at %p: hsa_amd_portable_export_dmabuf: %s; is the "
                  "limit of open files reached (ulimit -n)?",
                  mem->mem.device, addr, rocm_name(status));
        return ANGARA_ERR_NO_MEMORY;
    }
    if (status != HSA_STATUS_SUCCESS) {
        ang_info("GPU %d: no dma-buf of memory at %p: hsa_amd_portable_export_dmabuf: %s",
                 mem->mem.device, addr, rocm_name(status));
        return ANGARA_ERR_UNSUPPORTED;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    *fd_p     = fd;
    *offset_p = offset;
    return ANGARA_OK;
}
