/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ROCm's runtime in the process: its calls, our reference on it, its GPUs (rocm.h). The lowest of
 * rocm*.c: uses none of the others.
 */
#define _GNU_SOURCE /* dladdr() */
#include "rocm.h"

#include "provider/provider.h"
#include "src/log.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define GPUS_MAX 64

rocm_calls_t rocm;
rocm_host_t  rocm_host;

static struct {
    pthread_mutex_t lock;
    unsigned        seen; /* ang_fork_epoch + 1 when the runtime was first seen started; atomic */
    int             held; /* atomic; what is below is constant from then on */
    int             failed;
    unsigned        num_gpus;
    rocm_gpu_t      gpus[GPUS_MAX];
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the runtime ----------------------------------------------------------------------------- */

#define SYMBOL_NEEDED(_name, _symbol) {#_symbol, NULL, offsetof(rocm_calls_t, _name)},
#define SYMBOL_WANTED(_name, _symbol, _type, _cost) \
    {#_symbol, _cost, offsetof(rocm_calls_t, _name)},

static const ang_gpu_symbol_t symbols[] = {ROCM_CALLS_NEEDED(SYMBOL_NEEDED)
                                               ROCM_CALLS_WANTED(SYMBOL_WANTED)};

ang_gpu_library_t rocm_library = {.stem        = "libhsa-runtime64.so",
                                  .needs       = "ROCm 4.5 or later",
                                  .symbols     = symbols,
                                  .num_symbols = sizeof(symbols) / sizeof(symbols[0]),
                                  .calls       = &rocm,
                                  .size        = sizeof(rocm)};

_Static_assert(sizeof(rocm) <= ANG_GPU_CALLS_MAX * sizeof(void *), "library.c has room");

const char *rocm_name(hsa_status_t status)
{
    static __thread char number[32];
    const char          *name = NULL;

    if (rocm.status_string == NULL || rocm.status_string(status, &name) != HSA_STATUS_SUCCESS ||
        name == NULL) {
        snprintf(number, sizeof(number), "HSA status 0x%x", (unsigned)status);
        name = number;
    }
    return name;
}

int rocm_is_forked(void)
{
    unsigned seen = __atomic_load_n(&state.seen, __ATOMIC_ACQUIRE);

    return seen != 0 && seen != ang_fork_epoch + 1;
}

void rocm_note_started(void)
{
    if (__atomic_load_n(&state.seen, __ATOMIC_RELAXED) == 0) {
        __atomic_store_n(&state.seen, ang_fork_epoch + 1, __ATOMIC_RELEASE);
    }
}

int rocm_is_started(void)
{
    uint16_t major;

    return rocm.system_get_info(HSA_SYSTEM_INFO_VERSION_MAJOR, &major) == HSA_STATUS_SUCCESS;
}

/* ---- agents ---------------------------------------------------------------------------------- */

static void gpu_add(hsa_agent_t agent)
{
    rocm_gpu_t *gpu = &state.gpus[state.num_gpus];
    uint32_t    bdf = 0, domain = 0;

    if (state.num_gpus == GPUS_MAX) {
        ang_warn("there are more than %d GPUs: memory of the others isn't copied", GPUS_MAX);
        return;
    }
    /* Runtimes before 4.0 have no DOMAIN. */
    if (rocm.agent_get_info(agent, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_BDFID, &bdf) !=
        HSA_STATUS_SUCCESS) {
        bdf = 0;
    }
    if (rocm.agent_get_info(agent, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_DOMAIN, &domain) !=
        HSA_STATUS_SUCCESS) {
        domain = 0;
    }
    *gpu = (rocm_gpu_t){.agent  = agent,
                        .number = (int)state.num_gpus,
                        .pci    = domain << 16 | (bdf & 0xffff),
                        .via    = {{.gpu = gpu}, {.gpu = gpu, .is_local = 1}}};
    state.num_gpus++;
}

static hsa_status_t pool_see(hsa_amd_memory_pool_t pool, void *pool_p)
{
    hsa_amd_segment_t segment;
    uint32_t          flags = 0;
    bool              alloc = false;

    if (rocm.pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment) ==
            HSA_STATUS_SUCCESS &&
        segment == HSA_AMD_SEGMENT_GLOBAL &&
        rocm.pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags) ==
            HSA_STATUS_SUCCESS &&
        (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED) &&
        rocm.pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED, &alloc) ==
            HSA_STATUS_SUCCESS &&
        alloc) {
        *(hsa_amd_memory_pool_t *)pool_p = pool;
        return HSA_STATUS_INFO_BREAK;
    }
    return HSA_STATUS_SUCCESS;
}

static hsa_status_t agent_see(hsa_agent_t agent, void *unused)
{
    hsa_device_type_t type;
    hsa_status_t      status;

    (void)unused;
    status = rocm.agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type);
    if (status != HSA_STATUS_SUCCESS) {
        return status;
    }
    if (type == HSA_DEVICE_TYPE_GPU) {
        gpu_add(agent);
    } else if (type == HSA_DEVICE_TYPE_CPU && rocm_host.pool.handle == 0) {
        rocm_host.host = agent;
        rocm.iterate_pools(agent, pool_see, &rocm_host.pool);
    }
    return HSA_STATUS_SUCCESS;
}

/* The runtime calls us back, and keeps what we gave it: our code must stay where it is, though a
 * program may dlclose() us. */
static void stay_loaded(void)
{
    Dl_info self;

    if (dladdr(&state, &self) && self.dli_fname != NULL) {
        dlopen(self.dli_fname, RTLD_NOLOAD | RTLD_NODELETE | RTLD_LAZY);
    }
}

/* A program that ends the runtime in one thread while another asks about memory could make this
 * start it again; it would be wrong without us, too. */
int rocm_hold(void)
{
    hsa_status_t status;

    if (__atomic_load_n(&state.held, __ATOMIC_ACQUIRE)) {
        return 1;
    }
    pthread_mutex_lock(&state.lock);
    if (state.held || state.failed || !rocm_is_started()) {
        goto unlock;
    }
    status = rocm.init();
    if (status != HSA_STATUS_SUCCESS) {
        ang_error("no reference on ROCm's runtime (hsa_init: %s): GPU memory isn't recognised",
                  rocm_name(status));
        state.failed = 1;
        goto unlock;
    }
    status = rocm.iterate_agents(agent_see, NULL);
    if (status != HSA_STATUS_SUCCESS) {
        ang_error("ROCm's GPUs can't be listed (hsa_iterate_agents: %s): GPU memory isn't "
                  "recognised",
                  rocm_name(status));
        state.failed   = 1;
        state.num_gpus = 0;
        rocm.shut_down();
        goto unlock;
    }
    stay_loaded();
    __atomic_store_n(&state.held, 1, __ATOMIC_RELEASE);
unlock:
    pthread_mutex_unlock(&state.lock);
    return __atomic_load_n(&state.held, __ATOMIC_ACQUIRE);
}

rocm_gpu_t *rocm_gpu(int number)
{
    return number >= 0 && (unsigned)number < state.num_gpus ? &state.gpus[number] : NULL;
}

rocm_gpu_t *rocm_gpu_of(hsa_agent_t agent)
{
    for (unsigned i = 0; i < state.num_gpus; ++i) {
        if (state.gpus[i].agent.handle == agent.handle) {
            return &state.gpus[i];
        }
    }
    return NULL;
}
