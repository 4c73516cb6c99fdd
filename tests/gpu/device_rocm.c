/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ROCm memory for tests: see device.h. As HIP allocates it, by the HSA runtime alone. Built without
 * that runtime's headers, it finds no GPU.
 */
#include "device.h"

#define LIBRARY "libhsa-runtime64.so.1"

#if __has_include(<hsa/hsa_ext_amd.h>)

#include <dlfcn.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS_MAX 16
#define GRANULE  4096u

#define CALLS(X)                          \
    X(hsa_init)                           \
    X(hsa_iterate_agents)                 \
    X(hsa_agent_get_info)                 \
    X(hsa_amd_agent_iterate_memory_pools) \
    X(hsa_amd_memory_pool_get_info)       \
    X(hsa_amd_memory_pool_allocate)       \
    X(hsa_amd_memory_pool_free)           \
    X(hsa_amd_agents_allow_access)        \
    X(hsa_amd_memory_async_copy)          \
    X(hsa_amd_pointer_info)               \
    X(hsa_signal_create)                  \
    X(hsa_signal_destroy)                 \
    X(hsa_signal_wait_scacquire)

#define MEMBER(_name) __typeof__(&_name) _name;

static struct {
    CALLS(MEMBER)
} hsa;

typedef struct {
    hsa_agent_t           agent;
    hsa_amd_memory_pool_t pool; /* of the kind that programs take */
} place_t;

static place_t         gpus[GPUS_MAX], host;
static unsigned        num_gpus;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

static void check(hsa_status_t status, const char *call)
{
    if (status != HSA_STATUS_SUCCESS) {
        fprintf(stderr, "%s: %#x\n", call, (unsigned)status);
        abort();
    }
}

#define MUST(_call) check(_call, #_call)

/* ---- what there is --------------------------------------------------------------------------- */

/* Of a GPU its memory, of the host what GPUs see without flushes. */
static hsa_status_t pool_found(hsa_amd_memory_pool_t pool, void *arg)
{
    place_t          *place = arg;
    hsa_amd_segment_t segment;
    uint32_t          flags;
    bool              allowed;
    const uint32_t    wanted = place == &host ? HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED :
                                                HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED;

    MUST(hsa.hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
    if (segment != HSA_AMD_SEGMENT_GLOBAL) {
        return HSA_STATUS_SUCCESS;
    }
    MUST(hsa.hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags));
    MUST(hsa.hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED,
                                          &allowed));
    if (allowed && (flags & wanted) && place->pool.handle == 0) {
        place->pool = pool;
    }
    return HSA_STATUS_SUCCESS;
}

static hsa_status_t agent_found(hsa_agent_t agent, void *arg)
{
    hsa_device_type_t type;
    place_t          *place;

    (void)arg;
    MUST(hsa.hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
    if (type == HSA_DEVICE_TYPE_GPU && num_gpus < GPUS_MAX) {
        place = &gpus[num_gpus++];
    } else if (type == HSA_DEVICE_TYPE_CPU && host.pool.handle == 0) {
        place = &host;
    } else {
        return HSA_STATUS_SUCCESS;
    }
    place->agent = agent;
    return hsa.hsa_amd_agent_iterate_memory_pools(agent, pool_found, place);
}

static unsigned rocm_open(void)
{
    void *library;

    pthread_mutex_lock(&open_lock);
    if (num_gpus == 0) {
        library = dlopen(device_rocm.library, RTLD_NOW | RTLD_LOCAL);
#define FIND(_name) *(void **)(void *)&hsa._name = library != NULL ? dlsym(library, #_name) : NULL;
        CALLS(FIND)
#undef FIND
        if (library != NULL && hsa.hsa_init() == HSA_STATUS_SUCCESS) {
            MUST(hsa.hsa_iterate_agents(agent_found, NULL));
        }
    }
    pthread_mutex_unlock(&open_lock);
    return num_gpus;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *pool_alloc(const place_t *place, size_t size)
{
    hsa_agent_t agents[GPUS_MAX];
    void       *addr = NULL;

    size = (size + GRANULE - 1) / GRANULE * GRANULE;
    if (hsa.hsa_amd_memory_pool_allocate(place->pool, size, 0, &addr) != HSA_STATUS_SUCCESS) {
        return NULL;
    }
    for (unsigned i = 0; i < num_gpus; ++i) {
        agents[i] = gpus[i].agent;
    }
    if (place == &host) {
        MUST(hsa.hsa_amd_agents_allow_access(num_gpus, agents, NULL, addr));
    }
    return addr;
}

static void copy(void *dst, const void *src, size_t size, const place_t *gpu)
{
    hsa_signal_value_t left;
    hsa_signal_t       signal;

    if (size == 0) {
        return;
    }
    MUST(hsa.hsa_signal_create(1, 0, NULL, &signal));
    MUST(hsa.hsa_amd_memory_async_copy(dst, gpu->agent, src, gpu->agent, size, 0, NULL, signal));
    do {
        left = hsa.hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX,
                                             HSA_WAIT_STATE_BLOCKED);
    } while (left > 0);
    if (left < 0) {
        fprintf(stderr, "a copy by ROCm failed\n");
        abort();
    }
    MUST(hsa.hsa_signal_destroy(signal));
}

static void write_by(void *gpu_addr, const void *src, size_t size, const place_t *gpu)
{
    void *staging = pool_alloc(&host, size + 1);

    memcpy(staging, src, size);
    copy(gpu_addr, staging, size, gpu);
    MUST(hsa.hsa_amd_memory_pool_free(staging));
}

/* Others may not reach it. */
static const place_t *owner_of(const void *gpu_addr)
{
    hsa_amd_pointer_info_t info = {.size = sizeof(info)};
    unsigned               i    = 0;

    MUST(hsa.hsa_amd_pointer_info(gpu_addr, &info, NULL, NULL, NULL));
    while (i < num_gpus - 1 && gpus[i].agent.handle != info.agentOwner.handle) {
        ++i;
    }
    return &gpus[i];
}

static void rocm_write(void *gpu_addr, const void *src, size_t size)
{
    write_by(gpu_addr, src, size, owner_of(gpu_addr));
}

static void rocm_read(void *dst, const void *gpu_addr, size_t size)
{
    void *staging = pool_alloc(&host, size + 1);

    copy(staging, gpu_addr, size, owner_of(gpu_addr));
    memcpy(dst, staging, size);
    MUST(hsa.hsa_amd_memory_pool_free(staging));
}

static void *rocm_alloc(unsigned gpu, size_t size, device_origin_t origin)
{
    hsa_agent_t agents[GPUS_MAX];
    void       *addr, *zeros;

    if (origin == DEVICE_PINNED) {
        addr = pool_alloc(&host, size);
        return addr != NULL ? memset(addr, 0, size) : NULL;
    }
    if (origin != DEVICE_PLAIN) {
        return NULL;
    }
    addr = pool_alloc(&gpus[gpu], size);
    if (addr != NULL) {
        /* As a program of HIP with peer access, where there is that. */
        for (unsigned i = 0; i < num_gpus; ++i) {
            agents[i] = gpus[i].agent;
        }
        hsa.hsa_amd_agents_allow_access(num_gpus, agents, NULL, addr);
        zeros = calloc(1, size + 1);
        write_by(addr, zeros, size, &gpus[gpu]);
        free(zeros);
    }
    return addr;
}

static void rocm_free(void *addr, device_origin_t origin)
{
    (void)origin;
    MUST(hsa.hsa_amd_memory_pool_free(addr));
}

/* The headers of ROCm 5.2 have no name for that. */
static size_t rocm_available(unsigned gpu)
{
    (void)gpu;
    return 0;
}

const device_runtime_t device_rocm = {
    .name    = "rocm",
    .library = LIBRARY,
    .open    = rocm_open,
    .alloc   = rocm_alloc,
    .free    = rocm_free,
    .write   = rocm_write,
    .read    = rocm_read,

    .write_only = rocm_write, /* it always waits */
    .available  = rocm_available,
};

#else

static unsigned rocm_open(void)
{
    return 0;
}

const device_runtime_t device_rocm = {.name = "rocm", .library = LIBRARY, .open = rocm_open};

#endif
