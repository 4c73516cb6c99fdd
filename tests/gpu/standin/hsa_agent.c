/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in for ROCm's HSA runtime: start and end, agents and their memory pools. */
#include "hsa_standin.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define MAX_AGENTS   (CORE_MAX_GPUS + 1)
#define AGENT_POOLS  2
#define NS_IN_SECOND 1000000000ull

const char core_visible_variable[] = "ROCR_VISIBLE_DEVICES";

/* Handles point here. The first agent is the CPU, of whose pools there is only the first. A GPU's
 * second pool is its multiprocessors' own memory. */
static struct {
    char pools[AGENT_POOLS];
} agents[MAX_AGENTS];

/* --- in and out -----------------------------------------------------------------------------*/

hsa_status_t hsa_enter(const char *call)
{
    int status = core_enter(call);

    if (status == 0 && (!core.started || core.forked || core.ended)) {
        status = HSA_STATUS_ERROR_NOT_INITIALIZED;
    }
    return (hsa_status_t)status;
}

hsa_status_t hsa_leave(hsa_status_t status)
{
    core_unlock();
    return status;
}

hsa_status_t hsa_init(void)
{
    int status = core_enter(__func__);

    if (status == 0 && (core.forked || core.ended)) {
        status = HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    if (status == 0) {
        core_start();
    }
    return hsa_leave((hsa_status_t)status);
}

hsa_status_t hsa_shut_down(void)
{
    hsa_status_t status = hsa_enter(__func__);

    if (status == HSA_STATUS_SUCCESS && --core.started == 0) {
        hsa_copies_end();
        hsa_memory_end();
    }
    return hsa_leave(status);
}

hsa_status_t hsa_status_string(hsa_status_t status, const char **text)
{
    static const struct {
        int         status;
        const char *text;
    } texts[] = {
        {HSA_STATUS_SUCCESS, "HSA_STATUS_SUCCESS"},
        {HSA_STATUS_ERROR, "HSA_STATUS_ERROR"},
        {HSA_STATUS_ERROR_INVALID_ARGUMENT, "HSA_STATUS_ERROR_INVALID_ARGUMENT"},
        {HSA_STATUS_ERROR_INVALID_ALLOCATION, "HSA_STATUS_ERROR_INVALID_ALLOCATION"},
        {HSA_STATUS_ERROR_INVALID_AGENT, "HSA_STATUS_ERROR_INVALID_AGENT"},
        {HSA_STATUS_ERROR_INVALID_SIGNAL, "HSA_STATUS_ERROR_INVALID_SIGNAL"},
        {HSA_NO_POOL, "HSA_STATUS_ERROR_INVALID_MEMORY_POOL"},
        {HSA_STATUS_ERROR_OUT_OF_RESOURCES, "HSA_STATUS_ERROR_OUT_OF_RESOURCES"},
        {HSA_STATUS_ERROR_NOT_INITIALIZED, "HSA_STATUS_ERROR_NOT_INITIALIZED"},
    };
    hsa_status_t result = hsa_enter(__func__);

    if (result == HSA_STATUS_SUCCESS) {
        result = HSA_STATUS_ERROR_INVALID_ARGUMENT;
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i) {
            if (texts[i].status == (int)status) {
                *text  = texts[i].text;
                result = HSA_STATUS_SUCCESS;
            }
        }
    }
    return hsa_leave(result);
}

hsa_status_t hsa_system_get_info(hsa_system_info_t attribute, void *value)
{
    hsa_status_t    status = hsa_enter(__func__);
    struct timespec now;

    if (status == HSA_STATUS_SUCCESS) {
        switch (attribute) {
        case HSA_SYSTEM_INFO_VERSION_MAJOR:
        case HSA_SYSTEM_INFO_VERSION_MINOR:
            *(uint16_t *)value = 1;
            break;
        case HSA_SYSTEM_INFO_TIMESTAMP:
            clock_gettime(CLOCK_MONOTONIC, &now);
            *(uint64_t *)value = (uint64_t)now.tv_sec * NS_IN_SECOND + (uint64_t)now.tv_nsec;
            break;
        case HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY:
            *(uint64_t *)value = NS_IN_SECOND;
            break;
        default:
            status = HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
    }
    return hsa_leave(status);
}

/* --- agents ---------------------------------------------------------------------------------*/

int hsa_gpu_of(hsa_agent_t agent, int *gpu)
{
    uint64_t offset = agent.handle - (uintptr_t)agents;
    int      index  = (int)(offset / sizeof(agents[0]));

    if (offset >= sizeof(agents) || offset % sizeof(agents[0]) != 0 || index > core.num_visible) {
        return 0;
    }
    *gpu = index == 0 ? HSA_CPU : core.visible[index - 1];
    return 1;
}

hsa_agent_t hsa_agent_of(int gpu)
{
    for (int i = 0; i < core.num_visible; ++i) {
        if (core.visible[i] == gpu) {
            return (hsa_agent_t){(uintptr_t)&agents[i + 1]};
        }
    }
    return (hsa_agent_t){gpu == HSA_CPU ? (uintptr_t)agents : 0};
}

hsa_status_t hsa_access_of(int gpu, const hsa_agent_t *list, unsigned num, uint32_t *access)
{
    int from;

    *access = 0;
    for (int i = 0; i < core.num_visible && num == 0; ++i) {
        if (gpu == HSA_CPU || core_reaches(core.visible[i], gpu)) {
            *access |= 1u << core.visible[i];
        }
    }
    for (unsigned i = 0; i < num; ++i) {
        if (!hsa_gpu_of(list[i], &from)) {
            return HSA_STATUS_ERROR_INVALID_AGENT;
        }
        if (from == HSA_CPU) {
            continue;
        }
        if (gpu != HSA_CPU && !core_reaches(from, gpu)) {
            return HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        *access |= 1u << from;
    }
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_iterate_agents(hsa_status_t (*callback)(hsa_agent_t, void *), void *data)
{
    hsa_status_t status = hsa_leave(hsa_enter(__func__));

    for (int i = 0; i <= core.num_visible && status == HSA_STATUS_SUCCESS; ++i) {
        status = callback((hsa_agent_t){(uintptr_t)&agents[i]}, data);
    }
    return status;
}

static hsa_status_t get_agent_info(int gpu, unsigned attribute, void *value)
{
    uint32_t pci = gpu != HSA_CPU ? core_pci(gpu) : 0;

    switch (attribute) {
    case HSA_AGENT_INFO_NAME: /* 64 bytes */
        strcpy(value, gpu != HSA_CPU ? "gfx90a" : "Stand-in CPU");
        break;
    case HSA_AGENT_INFO_VENDOR_NAME: /* 64 bytes */
    case HSA_AMD_AGENT_INFO_PRODUCT_NAME:
        strcpy(value, "Stand-in");
        break;
    case HSA_AMD_AGENT_INFO_UUID: /* 21 bytes */
        snprintf(value, 21, gpu != HSA_CPU ? "GPU-%016d" : "CPU-XX", gpu + 1);
        break;
    case HSA_AGENT_INFO_DEVICE:
        *(hsa_device_type_t *)value = gpu != HSA_CPU ? HSA_DEVICE_TYPE_GPU : HSA_DEVICE_TYPE_CPU;
        break;
    case HSA_AMD_AGENT_INFO_DRIVER_NODE_ID:
        *(uint32_t *)value = (uint32_t)(gpu + 1);
        break;
    case HSA_AMD_AGENT_INFO_BDFID:
        *(uint32_t *)value = pci & 0xffff;
        break;
    case HSA_AMD_AGENT_INFO_DOMAIN:
        *(uint32_t *)value = pci >> 16;
        break;
    default:
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t attribute, void *value)
{
    hsa_status_t status = hsa_enter(__func__);
    int          gpu;

    if (status == HSA_STATUS_SUCCESS) {
        status = hsa_gpu_of(agent, &gpu) ? get_agent_info(gpu, (unsigned)attribute, value) :
                                           HSA_STATUS_ERROR_INVALID_AGENT;
    }
    return hsa_leave(status);
}

/* --- memory pools ---------------------------------------------------------------------------*/

/* @param index  of its agent's pools */
static int find_pool(hsa_amd_memory_pool_t pool, int *gpu, unsigned *index)
{
    uint64_t offset = pool.handle - (uintptr_t)agents;

    *index = (unsigned)(offset % sizeof(agents[0]));
    return hsa_gpu_of((hsa_agent_t){pool.handle - *index}, gpu) && (*gpu != HSA_CPU || *index == 0);
}

int hsa_pool_gpu(hsa_amd_memory_pool_t pool, int *gpu)
{
    unsigned index;

    return find_pool(pool, gpu, &index) && index == 0;
}

hsa_status_t hsa_amd_agent_iterate_memory_pools(
    hsa_agent_t agent, hsa_status_t (*callback)(hsa_amd_memory_pool_t, void *), void *data)
{
    hsa_status_t status = hsa_enter(__func__);
    int          gpu    = HSA_CPU;

    if (status == HSA_STATUS_SUCCESS && !hsa_gpu_of(agent, &gpu)) {
        status = HSA_STATUS_ERROR_INVALID_AGENT;
    }
    hsa_leave(status);
    for (unsigned i = 0; i < (gpu == HSA_CPU ? 1 : AGENT_POOLS) && status == HSA_STATUS_SUCCESS;
         ++i) {
        status = callback((hsa_amd_memory_pool_t){agent.handle + i}, data);
    }
    return status;
}

static hsa_status_t get_pool_info(int gpu, int is_group, unsigned attribute, void *value)
{
    switch (attribute) {
    case HSA_AMD_MEMORY_POOL_INFO_SEGMENT:
        *(hsa_amd_segment_t *)value = is_group ? HSA_AMD_SEGMENT_GROUP : HSA_AMD_SEGMENT_GLOBAL;
        break;
    case HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS:
        *(uint32_t *)value = is_group       ? 0 :
                             gpu != HSA_CPU ? HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED :
                                              HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED;
        break;
    case HSA_AMD_MEMORY_POOL_INFO_SIZE:
    case HSA_AMD_MEMORY_POOL_INFO_ALLOC_MAX_SIZE:
        *(size_t *)value = is_group ? CORE_PAGE : core.memory_size;
        break;
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED:
        *(bool *)value = !is_group;
        break;
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_GRANULE:
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALIGNMENT:
        *(size_t *)value = is_group ? 0 : CORE_PAGE;
        break;
    case HSA_AMD_MEMORY_POOL_INFO_ACCESSIBLE_BY_ALL:
        *(bool *)value = gpu == HSA_CPU;
        break;
    default:
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_memory_pool_get_info(hsa_amd_memory_pool_t      pool,
                                          hsa_amd_memory_pool_info_t attribute, void *value)
{
    hsa_status_t status = hsa_enter(__func__);
    unsigned     index;
    int          gpu;

    if (status == HSA_STATUS_SUCCESS) {
        status = find_pool(pool, &gpu, &index) ?
                     get_pool_info(gpu, index > 0, (unsigned)attribute, value) :
                     HSA_NO_POOL;
    }
    return hsa_leave(status);
}

hsa_status_t hsa_amd_agent_memory_pool_get_info(hsa_agent_t agent, hsa_amd_memory_pool_t pool,
                                                hsa_amd_agent_memory_pool_info_t attribute,
                                                void                            *value)
{
    hsa_status_t                 status = hsa_enter(__func__);
    hsa_amd_memory_pool_access_t access = HSA_AMD_MEMORY_POOL_ACCESS_NEVER_ALLOWED;
    unsigned                     index;
    int                          from, gpu;

    if (status != HSA_STATUS_SUCCESS) {
        return hsa_leave(status);
    }
    if (!hsa_gpu_of(agent, &from)) {
        status = HSA_STATUS_ERROR_INVALID_AGENT;
    } else if (!find_pool(pool, &gpu, &index)) {
        status = HSA_NO_POOL;
    } else if (attribute != HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS) {
        status = HSA_STATUS_ERROR_INVALID_ARGUMENT;
    } else {
        if (from == gpu) {
            access = HSA_AMD_MEMORY_POOL_ACCESS_ALLOWED_BY_DEFAULT;
        } else if (index == 0 && from != HSA_CPU && (gpu == HSA_CPU || core_reaches(from, gpu))) {
            access = HSA_AMD_MEMORY_POOL_ACCESS_DISALLOWED_BY_DEFAULT;
        }
        *(hsa_amd_memory_pool_access_t *)value = access;
    }
    return hsa_leave(status);
}

int standin_contexts(void **current)
{
    if (current != NULL) {
        *current = NULL;
    }
    return 0;
}
