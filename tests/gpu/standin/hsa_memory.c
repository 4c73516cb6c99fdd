/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in for ROCm's HSA runtime: allocations, locked memory, pointers, IPC, dma-bufs. */
#include "hsa_standin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Asked for by hsa_amd_register_deallocation_callback(). */
typedef struct notifier {
    struct notifier                *next;
    memory_t                       *memory;
    void                           *ptr;
    hsa_amd_deallocation_callback_t callback;
    void                           *data;
} notifier_t;

static notifier_t *notifiers;

static hsa_status_t from_errno(void)
{
    return errno == ENOMEM ? HSA_STATUS_ERROR_OUT_OF_RESOURCES :
           errno == ENOENT ? HSA_STATUS_ERROR_INVALID_ARGUMENT :
           errno == EINVAL ? HSA_STATUS_ERROR_INVALID_ARGUMENT :
                             HSA_STATUS_ERROR;
}

memory_t *hsa_memory_find(const void *addr)
{
    memory_t *memory = memory_find((uintptr_t)addr);
    unsigned  index  = 0;

    if (memory != NULL) {
        return memory;
    }
    while ((memory = memory_next(&index)) != NULL) {
        if (memory->kind == MEMORY_REGISTERED &&
            (uintptr_t)addr - (uintptr_t)memory->bytes < memory->size) {
            return memory;
        }
    }
    return NULL;
}

/* The GPU on which it is, or HSA_CPU. */
static int gpu_of_memory(const memory_t *memory)
{
    return memory_is_device(memory) ? memory->gpu : HSA_CPU;
}

/* --- allocations ----------------------------------------------------------------------------*/

hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t pool, size_t size, uint32_t flags,
                                          void **ptr)
{
    hsa_status_t status = hsa_enter(__func__);
    memory_t    *memory;
    int          gpu;

    if (status != HSA_STATUS_SUCCESS) {
        return hsa_leave(status);
    }
    if (!hsa_pool_gpu(pool, &gpu)) {
        status = HSA_NO_POOL;
    } else if (size == 0 || ptr == NULL || flags != 0) {
        status = HSA_STATUS_ERROR_INVALID_ARGUMENT;
    } else if (size > core.memory_size) {
        status = HSA_STATUS_ERROR_INVALID_ALLOCATION;
    } else {
        size   = (size + CORE_PAGE - 1) / CORE_PAGE * CORE_PAGE;
        memory = gpu != HSA_CPU ? memory_create(MEMORY_DEVICE, gpu, size) :
                                  memory_create_host(MEMORY_PINNED, 0, size);
        if (memory == NULL) {
            status = from_errno();
        } else {
            memory->access = gpu != HSA_CPU ? 1u << gpu : 0;
            *ptr           = (void *)memory->addr;
        }
    }
    return hsa_leave(status);
}

/* Take out those that watch `memory`. */
static notifier_t *take_notifiers(const memory_t *memory)
{
    notifier_t **link  = &notifiers;
    notifier_t  *taken = NULL;

    while (*link != NULL) {
        notifier_t *notifier = *link;

        if (notifier->memory == memory) {
            *link          = notifier->next;
            notifier->next = taken;
            taken          = notifier;
        } else {
            link = &notifier->next;
        }
    }
    return taken;
}

static void drop_notifiers(const memory_t *memory)
{
    notifier_t *notifier, *next;

    for (notifier = take_notifiers(memory); notifier != NULL; notifier = next) {
        next = notifier->next;
        free(notifier);
    }
}

/* As the runtime: the memory isn't known any more when callbacks are called, and its address isn't
 * given to another yet. Copies aren't waited for: those that use it are found out. */
hsa_status_t hsa_amd_memory_pool_free(void *ptr)
{
    hsa_status_t status = hsa_enter(__func__);
    memory_t    *memory;
    notifier_t  *notifier, *next;

    if (status != HSA_STATUS_SUCCESS || ptr == NULL) {
        return hsa_leave(status);
    }
    memory = memory_find((uintptr_t)ptr);
    if (memory == NULL || memory->addr != (uintptr_t)ptr ||
        (memory->kind != MEMORY_DEVICE && memory->kind != MEMORY_PINNED)) {
        return hsa_leave(HSA_STATUS_ERROR_INVALID_ALLOCATION);
    }
    ++memory->refs;
    memory_free(memory);
    notifier = take_notifiers(memory);
    core_unlock();
    for (; notifier != NULL; notifier = next) {
        next = notifier->next;
        notifier->callback(notifier->ptr, notifier->data);
        free(notifier);
    }
    core_lock();
    memory_put(memory);
    return hsa_leave(HSA_STATUS_SUCCESS);
}

hsa_status_t hsa_amd_register_deallocation_callback(void                           *ptr,
                                                    hsa_amd_deallocation_callback_t callback,
                                                    void                           *data)
{
    hsa_status_t status = hsa_enter(__func__);
    memory_t    *memory;
    notifier_t  *notifier;

    if (status != HSA_STATUS_SUCCESS) {
        return hsa_leave(status);
    }
    memory = memory_find((uintptr_t)ptr);
    if (ptr == NULL || callback == NULL) {
        return hsa_leave(HSA_STATUS_ERROR_INVALID_ARGUMENT);
    }
    if (memory == NULL || memory->kind == MEMORY_REGISTERED) {
        return hsa_leave(HSA_STATUS_ERROR_INVALID_ALLOCATION);
    }
    notifier = malloc(sizeof(*notifier));
    if (notifier == NULL) {
        return hsa_leave(HSA_STATUS_ERROR_OUT_OF_RESOURCES);
    }
    *notifier = (notifier_t){notifiers, memory, ptr, callback, data};
    notifiers = notifier;
    return hsa_leave(HSA_STATUS_SUCCESS);
}

hsa_status_t hsa_amd_deregister_deallocation_callback(void                           *ptr,
                                                      hsa_amd_deallocation_callback_t callback)
{
    hsa_status_t status = hsa_enter(__func__);
    notifier_t **link   = &notifiers;
    notifier_t  *notifier;

    if (status == HSA_STATUS_SUCCESS) {
        while (*link != NULL && ((*link)->ptr != ptr || (*link)->callback != callback)) {
            link = &(*link)->next;
        }
        notifier = *link;
        if (notifier == NULL) {
            status = HSA_STATUS_ERROR_INVALID_ARGUMENT;
        } else {
            *link = notifier->next;
            free(notifier);
        }
    }
    return hsa_leave(status);
}

/* The list is all that reach it from now on, beside the GPU that it is on. */
hsa_status_t hsa_amd_agents_allow_access(uint32_t num, const hsa_agent_t *list,
                                         const uint32_t *flags, const void *ptr)
{
    hsa_status_t status = hsa_enter(__func__);
    memory_t    *memory;
    uint32_t     access;

    if (status != HSA_STATUS_SUCCESS) {
        return hsa_leave(status);
    }
    memory = memory_find((uintptr_t)ptr);
    if (num == 0 || list == NULL || flags != NULL || memory == NULL ||
        memory->kind == MEMORY_REGISTERED) {
        return hsa_leave(HSA_STATUS_ERROR_INVALID_ARGUMENT);
    }
    status = hsa_access_of(gpu_of_memory(memory), list, num, &access);
    if (status == HSA_STATUS_SUCCESS) {
        memory->access = access | (memory_is_device(memory) ? 1u << memory->gpu : 0);
    }
    return hsa_leave(status);
}

void hsa_memory_end(void)
{
    unsigned  index = 0;
    memory_t *memory;

    while ((memory = memory_next(&index)) != NULL) {
        drop_notifiers(memory);
        memory_free(memory);
        index = 0;
    }
}

/* --- locked memory --------------------------------------------------------------------------*/

static hsa_status_t lock_memory(void *host, size_t size, const hsa_agent_t *list, int num,
                                void **agent_ptr)
{
    memory_t    *known = memory_find_in((uintptr_t)host, size);
    memory_t    *memory;
    uint32_t     access;
    hsa_status_t status;

    if (host == NULL || size == 0 || agent_ptr == NULL || num < 0 || (list == NULL) != (num == 0) ||
        (known != NULL && known->kind != MEMORY_REGISTERED)) {
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    status = hsa_access_of(HSA_CPU, list, (unsigned)num, &access);
    if (status != HSA_STATUS_SUCCESS) {
        return status;
    }
    if (!memory_can_pin(host, size)) {
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    /* The same memory may be locked several times: at other addresses then. */
    memory = memory_register(host, size, core.lock_shift || known != NULL);
    if (memory == NULL) {
        return from_errno();
    }
    memory->access = access;
    *agent_ptr     = (void *)memory->addr;
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_memory_lock(void *host, size_t size, hsa_agent_t *list, int num,
                                 void **agent_ptr)
{
    hsa_status_t status = hsa_enter(__func__);

    return hsa_leave(status == HSA_STATUS_SUCCESS ? lock_memory(host, size, list, num, agent_ptr) :
                                                    status);
}

hsa_status_t hsa_amd_memory_lock_to_pool(void *host, size_t size, hsa_agent_t *list, int num,
                                         hsa_amd_memory_pool_t pool, uint32_t flags,
                                         void **agent_ptr)
{
    hsa_status_t status = hsa_enter(__func__);
    int          gpu;

    if (status == HSA_STATUS_SUCCESS) {
        status = !hsa_pool_gpu(pool, &gpu) || gpu != HSA_CPU ? HSA_NO_POOL :
                 flags != 0                                  ? HSA_STATUS_ERROR_INVALID_ARGUMENT :
                              lock_memory(host, size, list, num, agent_ptr);
    }
    return hsa_leave(status);
}

/* Of several locks that begin there, the last one. */
hsa_status_t hsa_amd_memory_unlock(void *host)
{
    hsa_status_t status = hsa_enter(__func__);
    memory_t    *found  = NULL, *memory;
    unsigned     index  = 0;

    if (status == HSA_STATUS_SUCCESS) {
        while ((memory = memory_next(&index)) != NULL) {
            if (memory->kind == MEMORY_REGISTERED && memory->bytes == host &&
                (found == NULL || found->id < memory->id)) {
                found = memory;
            }
        }
        if (found == NULL) {
            status = HSA_STATUS_ERROR_INVALID_ARGUMENT;
        } else {
            memory_free(found);
        }
    }
    return hsa_leave(status);
}

/* --- what a pointer is ----------------------------------------------------------------------*/

static void fill_info(const memory_t *memory, hsa_amd_pointer_info_t *info)
{
    int host = !memory_is_device(memory);

    info->type             = memory->kind == MEMORY_REGISTERED ? HSA_EXT_POINTER_TYPE_LOCKED :
                             memory->kind == MEMORY_IMPORTED   ? HSA_EXT_POINTER_TYPE_IPC :
                                                                 HSA_EXT_POINTER_TYPE_HSA;
    info->agentBaseAddress = (void *)memory->addr;
    /* Of a GPU's memory the runtime gives the same address, though the CPU may not use it. */
    info->hostBaseAddress = host ? memory->bytes : (void *)memory->addr;
    info->sizeInBytes     = memory->size;
    info->userData        = memory->user;
    info->agentOwner      = hsa_agent_of(gpu_of_memory(memory));
    info->global_flags    = host ? HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED :
                                   HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED;
}

static hsa_status_t fill_agents(const memory_t *memory, void *(*alloc)(size_t), uint32_t *num_p,
                                hsa_agent_t **list_p)
{
    hsa_agent_t list[CORE_MAX_GPUS + 1];
    uint32_t    num = 0;

    if (!memory_is_device(memory)) {
        list[num++] = hsa_agent_of(HSA_CPU);
    }
    for (int i = 0; i < core.num_visible; ++i) {
        if (memory->access & 1u << core.visible[i]) {
            list[num++] = hsa_agent_of(core.visible[i]);
        }
    }
    *list_p = alloc(num * sizeof(list[0]) + 1);
    if (*list_p == NULL) {
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    memcpy(*list_p, list, num * sizeof(list[0]));
    *num_p = num;
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_pointer_info(const void *ptr, hsa_amd_pointer_info_t *info,
                                  void *(*alloc)(size_t), uint32_t *num, hsa_agent_t **list)
{
    hsa_status_t           status = hsa_enter(__func__);
    hsa_amd_pointer_info_t all    = {.type = HSA_EXT_POINTER_TYPE_UNKNOWN};
    memory_t              *memory;

    if (status != HSA_STATUS_SUCCESS) {
        return hsa_leave(status);
    }
    if (ptr == NULL || info == NULL || info->size == 0) {
        return hsa_leave(HSA_STATUS_ERROR_INVALID_ARGUMENT);
    }
    memory   = hsa_memory_find(ptr);
    all.size = info->size < sizeof(all) ? info->size : sizeof(all);
    if (memory != NULL) {
        fill_info(memory, &all);
    }
    if (alloc != NULL && num != NULL && list != NULL) {
        *num  = 0;
        *list = NULL;
        if (memory != NULL) {
            status = fill_agents(memory, alloc, num, list);
        }
    }
    if (status == HSA_STATUS_SUCCESS) {
        memcpy(info, &all, all.size);
    }
    return hsa_leave(status);
}

hsa_status_t hsa_amd_pointer_info_set_userdata(const void *ptr, void *data)
{
    hsa_status_t status = hsa_enter(__func__);
    memory_t    *memory;

    if (status == HSA_STATUS_SUCCESS) {
        memory = memory_find((uintptr_t)ptr);
        if (memory == NULL || memory->addr != (uintptr_t)ptr) {
            status = HSA_STATUS_ERROR_INVALID_ARGUMENT;
        } else {
            memory->user = data;
        }
    }
    return hsa_leave(status);
}

/* --- for other processes and devices --------------------------------------------------------*/

hsa_status_t hsa_amd_ipc_memory_create(void *ptr, size_t length, hsa_amd_ipc_memory_t *handle)
{
    hsa_status_t status = hsa_enter(__func__);
    memory_t    *memory;
    ipc_t        ipc;

    if (status == HSA_STATUS_SUCCESS) {
        memory = memory_find((uintptr_t)ptr);
        if (handle == NULL || memory == NULL || memory->kind != MEMORY_DEVICE ||
            memory->addr != (uintptr_t)ptr || memory->size != length) {
            status = HSA_STATUS_ERROR_INVALID_ARGUMENT;
        } else {
            ipc_export(memory, &ipc);
            memcpy(handle, &ipc, sizeof(ipc));
        }
    }
    return hsa_leave(status);
}

hsa_status_t hsa_amd_ipc_memory_attach(const hsa_amd_ipc_memory_t *handle, size_t length,
                                       uint32_t num, const hsa_agent_t *list, void **ptr)
{
    hsa_status_t status = hsa_enter(__func__);
    backing_t   *backing;
    memory_t    *memory;
    uint32_t     access;
    ipc_t        ipc;

    if (status != HSA_STATUS_SUCCESS) {
        return hsa_leave(status);
    }
    if (handle == NULL || ptr == NULL) {
        return hsa_leave(HSA_STATUS_ERROR_INVALID_ARGUMENT);
    }
    memcpy(&ipc, handle, sizeof(ipc));
    backing = ipc_import(&ipc);
    if (backing == NULL) {
        return hsa_leave(from_errno());
    }
    status = length == backing->shared->size ? hsa_access_of(backing->gpu, list, num, &access) :
                                               HSA_STATUS_ERROR_INVALID_ARGUMENT;
    if (status == HSA_STATUS_SUCCESS) {
        memory = memory_map(MEMORY_IMPORTED, backing, 0, length);
        if (memory == NULL) {
            status = from_errno();
        } else {
            memory->access = access;
            *ptr           = (void *)memory->addr;
        }
    }
    backing_put(backing);
    return hsa_leave(status);
}

hsa_status_t hsa_amd_ipc_memory_detach(void *ptr)
{
    hsa_status_t status = hsa_enter(__func__);
    memory_t    *memory;

    if (status == HSA_STATUS_SUCCESS) {
        memory = memory_find((uintptr_t)ptr);
        if (memory == NULL || memory->addr != (uintptr_t)ptr || memory->kind != MEMORY_IMPORTED) {
            status = HSA_STATUS_ERROR_INVALID_ARGUMENT;
        } else {
            drop_notifiers(memory);
            memory_free(memory);
        }
    }
    return hsa_leave(status);
}

hsa_status_t hsa_amd_portable_export_dmabuf(const void *ptr, size_t size, int *fd, uint64_t *offset)
{
    hsa_status_t status = hsa_enter(__func__);
    uintptr_t    addr   = (uintptr_t)ptr;
    memory_t    *memory;

    if (status != HSA_STATUS_SUCCESS) {
        return hsa_leave(status);
    }
    memory = memory_find(addr);
    if (!core.dmabuf) {
        status = HSA_STATUS_ERROR;
    } else if (fd == NULL || offset == NULL || memory == NULL || memory->kind != MEMORY_DEVICE ||
               size == 0 || size > memory->size - (addr - memory->addr)) {
        status = HSA_STATUS_ERROR_INVALID_ARGUMENT;
    } else {
        *fd     = dmabuf_export(memory, memory->addr, memory->size);
        *offset = addr - memory->addr;
        status  = *fd >= 0 ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    return hsa_leave(status);
}

hsa_status_t hsa_amd_portable_close_dmabuf(int fd)
{
    hsa_status_t status = hsa_enter(__func__);

    if (status == HSA_STATUS_SUCCESS && close(fd) != 0) {
        status = HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    return hsa_leave(status);
}
