/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in for ROCm's HSA runtime: signals and copies. */
#include "hsa_standin.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FAILED     (-1) /* value of a signal whose copy failed */
#define POLL_US    50
#define DIRECTIONS 3
#define ENGINES    8

/* A handle points here; memory isn't given back, so that who uses a destroyed one is found out. */
typedef struct signal {
    struct signal     *next;
    hsa_signal_value_t value; /* atomic */
    uint64_t           attributes;
    int                alive;
} signal_t;

/* A copy that was accepted. */
typedef struct {
    signal_t *signal; /* NULL: none */
    uint32_t  num_deps;
    signal_t *deps[];
} copy_t;

static signal_t *signals;
/* By GPU and direction, as the engines; made when they are first used. */
static queue_t *engines[CORE_MAX_GPUS][DIRECTIONS];

/* --- signals --------------------------------------------------------------------------------*/

static signal_t *find_signal(hsa_signal_t handle)
{
    signal_t *signal;

    for (signal = signals; signal != NULL && (uintptr_t)signal != handle.handle;
         signal = signal->next) {
    }
    return signal != NULL && signal->alive ? signal : NULL;
}

static hsa_status_t create_signal(const char *call, hsa_signal_value_t value, uint64_t attributes,
                                  hsa_signal_t *handle)
{
    hsa_status_t status = hsa_enter(call);
    signal_t    *signal;

    if (status == HSA_STATUS_SUCCESS && handle == NULL) {
        status = HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    if (status == HSA_STATUS_SUCCESS) {
        signal = calloc(1, sizeof(*signal));
        if (signal == NULL) {
            return hsa_leave(HSA_STATUS_ERROR_OUT_OF_RESOURCES);
        }
        *signal        = (signal_t){signals, value, attributes, 1};
        signals        = signal;
        handle->handle = (uintptr_t)signal;
    }
    return hsa_leave(status);
}

hsa_status_t hsa_signal_create(hsa_signal_value_t value, uint32_t num, const hsa_agent_t *consumers,
                               hsa_signal_t *signal)
{
    (void)num;
    (void)consumers;
    return create_signal(__func__, value, 0, signal);
}

hsa_status_t hsa_amd_signal_create(hsa_signal_value_t value, uint32_t num,
                                   const hsa_agent_t *consumers, uint64_t attributes,
                                   hsa_signal_t *signal)
{
    (void)num;
    (void)consumers;
    return create_signal(__func__, value, attributes, signal);
}

hsa_status_t hsa_signal_destroy(hsa_signal_t handle)
{
    hsa_status_t status = hsa_enter(__func__);
    signal_t    *signal;

    if (status == HSA_STATUS_SUCCESS) {
        signal = find_signal(handle);
        if (signal == NULL) {
            status = HSA_STATUS_ERROR_INVALID_SIGNAL;
        } else {
            signal->alive = 0;
        }
    }
    return hsa_leave(status);
}

hsa_status_t hsa_amd_signal_value_pointer(hsa_signal_t handle, volatile hsa_signal_value_t **value)
{
    hsa_status_t status = hsa_enter(__func__);
    signal_t    *signal;

    if (status == HSA_STATUS_SUCCESS) {
        signal = find_signal(handle);
        if (signal == NULL || signal->attributes == 0) {
            status = HSA_STATUS_ERROR_INVALID_SIGNAL;
        } else if (value == NULL) {
            status = HSA_STATUS_ERROR_INVALID_ARGUMENT;
        } else {
            *value = &signal->value;
        }
    }
    return hsa_leave(status);
}

/* The calls below have no status: a signal that isn't there is the program's error. */
static signal_t *use_signal(const char *call, hsa_signal_t handle)
{
    signal_t *signal;

    core_enter(call);
    signal = find_signal(handle);
    if (signal == NULL) {
        core_bug("%s of a signal that isn't there", call);
    }
    return signal;
}

#define SIGNAL_LOAD(_order)                                                            \
    hsa_signal_value_t hsa_signal_load_##_order(hsa_signal_t handle)                   \
    {                                                                                  \
        signal_t          *signal = use_signal(__func__, handle);                      \
        hsa_signal_value_t value  = __atomic_load_n(&signal->value, __ATOMIC_ACQUIRE); \
                                                                                       \
        core_unlock();                                                                 \
        return value;                                                                  \
    }

/* @param _change  an atomic built-in */
#define SIGNAL_CHANGE(_name, _change)                                      \
    void hsa_signal_##_name(hsa_signal_t handle, hsa_signal_value_t value) \
    {                                                                      \
        signal_t *signal = use_signal(__func__, handle);                   \
                                                                           \
        _change(&signal->value, value, __ATOMIC_RELEASE);                  \
        core_changed();                                                    \
        core_unlock();                                                     \
    }

SIGNAL_LOAD(scacquire)
SIGNAL_LOAD(relaxed)
SIGNAL_LOAD(acquire)
SIGNAL_CHANGE(store_relaxed, __atomic_store_n)
SIGNAL_CHANGE(store_screlease, __atomic_store_n)
SIGNAL_CHANGE(store_release, __atomic_store_n)
SIGNAL_CHANGE(silent_store_relaxed, __atomic_store_n)
SIGNAL_CHANGE(silent_store_screlease, __atomic_store_n)
SIGNAL_CHANGE(add_relaxed, __atomic_fetch_add)
SIGNAL_CHANGE(add_screlease, __atomic_fetch_add)
SIGNAL_CHANGE(add_scacq_screl, __atomic_fetch_add)
SIGNAL_CHANGE(subtract_relaxed, __atomic_fetch_sub)
SIGNAL_CHANGE(subtract_screlease, __atomic_fetch_sub)
SIGNAL_CHANGE(subtract_scacq_screl, __atomic_fetch_sub)

static int is_met(hsa_signal_value_t value, hsa_signal_condition_t condition,
                  hsa_signal_value_t other)
{
    return condition == HSA_SIGNAL_CONDITION_EQ ? value == other :
           condition == HSA_SIGNAL_CONDITION_NE ? value != other :
           condition == HSA_SIGNAL_CONDITION_LT ? value < other :
                                                  value >= other;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Ticks are ns (HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY). */
static hsa_signal_value_t wait_signal(const char *call, hsa_signal_t handle,
                                      hsa_signal_condition_t condition, hsa_signal_value_t other,
                                      uint64_t timeout)
{
    signal_t          *signal = use_signal(call, handle);
    uint64_t           start  = now_ns();
    hsa_signal_value_t value;

    for (;;) {
        value = __atomic_load_n(&signal->value, __ATOMIC_ACQUIRE);
        if (is_met(value, condition, other) || now_ns() - start >= timeout) {
            break;
        }
        core_wait(POLL_US);
    }
    core_unlock();
    return value;
}

#define SIGNAL_WAIT(_order)                                                              \
    hsa_signal_value_t hsa_signal_wait_##_order(                                         \
        hsa_signal_t signal, hsa_signal_condition_t condition, hsa_signal_value_t value, \
        uint64_t timeout, hsa_wait_state_t hint)                                         \
    {                                                                                    \
        (void)hint;                                                                      \
        return wait_signal(__func__, signal, condition, value, timeout);                 \
    }

SIGNAL_WAIT(scacquire)
SIGNAL_WAIT(relaxed)
SIGNAL_WAIT(acquire)

/* --- copies ---------------------------------------------------------------------------------*/

static int is_ready(void *arg)
{
    const copy_t *copy = arg;

    for (uint32_t i = 0; i < copy->num_deps; ++i) {
        if (!copy->deps[i]->alive) {
            core_bug("a copy waits for a signal that was destroyed");
        }
        if (__atomic_load_n(&copy->deps[i]->value, __ATOMIC_ACQUIRE) != 0) {
            return 0;
        }
    }
    return 1;
}

static void end_copy(void *arg, int error)
{
    copy_t *copy = arg;

    core_lock();
    if (!copy->signal->alive) {
        core_bug("a copy's completion signal was destroyed before the copy ended");
    }
    if (error != 0) {
        __atomic_store_n(&copy->signal->value, FAILED, __ATOMIC_RELEASE);
    } else {
        __atomic_fetch_sub(&copy->signal->value, 1, __ATOMIC_RELEASE);
    }
    core_changed();
    core_unlock();
    free(copy);
}

/* The runtime ends: copies that haven't begun don't. */
void hsa_copies_end(void)
{
    queue_kill(engines, HSA_STATUS_ERROR);
    memset(engines, 0, sizeof(engines));
    for (signal_t *signal = signals; signal != NULL; signal = signal->next) {
        signal->alive = 0;
    }
}

/* One end of a copy, which each agent of `access` must reach. NULL: it mustn't be copied. */
static memory_t *find_end(const void *ptr, size_t size, uint32_t access, char **bytes)
{
    uintptr_t addr   = (uintptr_t)ptr;
    memory_t *memory = memory_find(addr);

    if (memory == NULL || size > memory->size - (addr - memory->addr) ||
        (memory->access & access) != access) {
        return NULL;
    }
    *bytes = memory->bytes + (addr - memory->addr);
    return memory;
}

/* What both agents, of which HSA_CPU needs no access, stand for. */
static queue_t *find_engine(int dst_gpu, int src_gpu)
{
    int gpu       = src_gpu != HSA_CPU ? src_gpu : dst_gpu;
    int direction = dst_gpu == HSA_CPU ? 0 : src_gpu == HSA_CPU ? 1 : 2;

    gpu = gpu != HSA_CPU ? gpu : 0;
    if (engines[gpu][direction] == NULL) {
        engines[gpu][direction] = queue_create(gpu, engines, QUEUE_FREE, NULL);
    }
    return engines[gpu][direction];
}

static hsa_status_t start_copy(queue_t *queue, op_t *op, uint32_t num_deps,
                               const hsa_signal_t *deps, hsa_signal_t signal)
{
    copy_t *copy = malloc(sizeof(*copy) + num_deps * sizeof(copy->deps[0]));

    if (queue == NULL || copy == NULL) {
        free(copy);
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    copy->num_deps = num_deps;
    copy->signal   = find_signal(signal);
    for (uint32_t i = 0; i < num_deps; ++i) {
        copy->deps[i] = find_signal(deps[i]);
        copy->signal  = copy->deps[i] != NULL ? copy->signal : NULL;
    }
    if (copy->signal == NULL) {
        free(copy);
        return HSA_STATUS_ERROR_INVALID_SIGNAL;
    }
    op->ready = num_deps > 0 ? is_ready : NULL;
    op->end   = end_copy;
    op->arg   = copy;
    queue_submit(queue, op);
    return HSA_STATUS_SUCCESS;
}

static hsa_status_t copy_async(const char *call, void *dst, hsa_agent_t dst_agent, const void *src,
                               hsa_agent_t src_agent, size_t size, uint32_t num_deps,
                               const hsa_signal_t *deps, hsa_signal_t signal)
{
    hsa_status_t status = hsa_enter(call);
    op_t         op     = {.length = size};
    char        *from   = NULL;
    uint32_t     access;
    int          dst_gpu, src_gpu;

    if (status != HSA_STATUS_SUCCESS) {
        return hsa_leave(status);
    }
    op.fail = core_count("copy");
    if (!hsa_gpu_of(dst_agent, &dst_gpu) || !hsa_gpu_of(src_agent, &src_gpu)) {
        return hsa_leave(HSA_STATUS_ERROR_INVALID_AGENT);
    }
    if (dst == NULL || src == NULL || signal.handle == 0 || (num_deps > 0 && deps == NULL)) {
        return hsa_leave(HSA_STATUS_ERROR_INVALID_ARGUMENT);
    }
    access = (dst_gpu != HSA_CPU ? 1u << dst_gpu : 0) | (src_gpu != HSA_CPU ? 1u << src_gpu : 0);
    if (size > 0) {
        op.dst_mem = find_end(dst, size, access, &op.dst);
        op.src_mem = find_end(src, size, access, &from);
        op.src     = from;
        if (op.dst_mem == NULL || op.src_mem == NULL) {
            return hsa_leave(HSA_STATUS_ERROR_INVALID_ARGUMENT);
        }
    }
    return hsa_leave(start_copy(find_engine(dst_gpu, src_gpu), &op, num_deps, deps, signal));
}

hsa_status_t hsa_amd_memory_async_copy(void *dst, hsa_agent_t dst_agent, const void *src,
                                       hsa_agent_t src_agent, size_t size, uint32_t num_deps,
                                       const hsa_signal_t *deps, hsa_signal_t signal)
{
    return copy_async(__func__, dst, dst_agent, src, src_agent, size, num_deps, deps, signal);
}

hsa_status_t hsa_amd_memory_async_copy_on_engine(void *dst, hsa_agent_t dst_agent, const void *src,
                                                 hsa_agent_t src_agent, size_t size,
                                                 uint32_t num_deps, const hsa_signal_t *deps,
                                                 hsa_signal_t             signal,
                                                 hsa_amd_sdma_engine_id_t engine, bool force_engine)
{
    (void)force_engine;
    if (engine == 0 || (engine & (engine - 1)) != 0 || (unsigned)engine >= 1u << ENGINES) {
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    return copy_async(__func__, dst, dst_agent, src, src_agent, size, num_deps, deps, signal);
}

/* --- copies that have ended when the call returns -------------------------------------------*/

/* Of any memory, pageable too. NULL: the CPU can't have it. */
static char *find_bytes(const void *ptr, size_t size)
{
    uintptr_t addr   = (uintptr_t)ptr;
    memory_t *memory = memory_find(addr);

    if (memory == NULL) {
        return addr == 0 || range_contains(addr) ? NULL : (char *)addr;
    }
    return size <= memory->size - (addr - memory->addr) ? memory->bytes + (addr - memory->addr) :
                                                          NULL;
}

hsa_status_t hsa_memory_copy(void *dst, const void *src, size_t size)
{
    hsa_status_t status = hsa_enter(__func__);
    char        *to, *from;

    if (status == HSA_STATUS_SUCCESS && size > 0) {
        to   = find_bytes(dst, size);
        from = find_bytes(src, size);
        if (to == NULL || from == NULL) {
            status = HSA_STATUS_ERROR_INVALID_ARGUMENT;
        } else {
            memmove(to, from, size);
        }
    }
    return hsa_leave(status);
}

hsa_status_t hsa_amd_memory_fill(void *ptr, uint32_t value, size_t count)
{
    hsa_status_t status = hsa_enter(__func__);
    char        *bytes;

    if (status == HSA_STATUS_SUCCESS) {
        bytes = find_bytes(ptr, count * sizeof(value));
        if (bytes == NULL || (uintptr_t)ptr % sizeof(value) != 0) {
            status = HSA_STATUS_ERROR_INVALID_ARGUMENT;
        }
        for (size_t i = 0; i < count && status == HSA_STATUS_SUCCESS; ++i) {
            memcpy(bytes + i * sizeof(value), &value, sizeof(value));
        }
    }
    return hsa_leave(status);
}
