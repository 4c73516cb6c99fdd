/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory must be known to the GPU. Small pieces go through the copy's part of a buffer, others
 * directly if the program has locked the memory, else it is locked for the time of the copy. What
 * can't be locked (read-only memory) goes through the buffer piece by piece before the start
 * returns.
 *
 * Uses rocm.c and rocm_memory.c; of copies and their buffers it knows only the size.
 */
#include "rocm_copy.h"

#include "src/log.h"

#include <stdlib.h>

#define SMALL (8u << 10) /* not worth a question whether the memory is locked */

struct rocm_pin {
    rocm_pin_t       *next;
    const rocm_gpu_t *gpu;
    char             *addr;
    size_t            length;
    char             *agent_addr; /* for the GPU */
    unsigned          copies;
};

/* Held while an address is looked up: what the runtime knows as locked may be a lock of ours that
 * ends. (One of the program's mustn't end while a copy uses the memory. HIP, too, locks memory for
 * its own copies: nothing tells that from a lock of the program's.) */
static struct {
    pthread_mutex_t lock;
    rocm_pin_t     *first;
} pins = {.lock = PTHREAD_MUTEX_INITIALIZER};

static rocm_means_t means_bounce(size_t length)
{
    return length <= ROCM_BOUNCE ? ROCM_BY_BOUNCE : ROCM_BY_PIECES;
}

/* pins.lock is held. Two locks may overlap, but of two that begin at one address the runtime
 * couldn't tell which one to end. NULL: it can't be locked. */
static rocm_pin_t *pin_make(const rocm_gpu_t *gpu, char *addr, size_t length)
{
    hsa_agent_t  agent = gpu->agent;
    rocm_pin_t  *pin   = malloc(sizeof(*pin));
    void        *agent_addr;
    hsa_status_t status;

    if (pin == NULL) {
        return NULL;
    }
    status = rocm.memory_lock(addr, length, &agent, 1, &agent_addr);
    if (status != HSA_STATUS_SUCCESS) {
        ang_debug("%zu bytes at %p are copied in pieces: hsa_amd_memory_lock: %s", length,
                  (void *)addr, rocm_name(status));
        free(pin);
        return NULL;
    }
    *pin       = (rocm_pin_t){pins.first, gpu, addr, length, agent_addr, 1};
    pins.first = pin;
    return pin;
}

void rocm_pin_put(rocm_pin_t *pin)
{
    hsa_status_t status = HSA_STATUS_SUCCESS;
    rocm_pin_t **link;

    pthread_mutex_lock(&pins.lock);
    if (--pin->copies == 0) {
        for (link = &pins.first; *link != pin; link = &(*link)->next) {
        }
        *link  = pin->next;
        status = rocm.memory_unlock(pin->addr);
        if (status != HSA_STATUS_SUCCESS) {
            ang_error("%zu bytes at %p stay locked: hsa_amd_memory_unlock: %s", pin->length,
                      (void *)pin->addr, rocm_name(status));
        }
        free(pin);
    }
    pthread_mutex_unlock(&pins.lock);
}

/* pins.lock is held. */
static rocm_means_t host_look(const rocm_gpu_t *gpu, char *addr, size_t length, char **agent_addr_p,
                              rocm_pin_t **pin_p)
{
    hsa_amd_pointer_info_t info;
    rocm_reach_t           reach;
    size_t                 offset;
    rocm_pin_t            *pin;

    for (pin = pins.first; pin != NULL; pin = pin->next) {
        if (addr + length <= pin->addr || pin->addr + pin->length <= addr) {
            continue;
        }
        offset = (size_t)(addr - pin->addr);
        if (pin->gpu != gpu || addr < pin->addr || offset + length > pin->length) {
            return means_bounce(length);
        }
        ++pin->copies;
        *pin_p        = pin;
        *agent_addr_p = pin->agent_addr + offset;
        return ROCM_BY_ADDRESS;
    }
    if (!rocm_info(addr, &info, &reach) || info.type == HSA_EXT_POINTER_TYPE_UNKNOWN) {
        if (length <= ROCM_BOUNCE || (pin = pin_make(gpu, addr, length)) == NULL) {
            return means_bounce(length);
        }
        *pin_p        = pin;
        *agent_addr_p = pin->agent_addr;
        return ROCM_BY_ADDRESS;
    }
    offset = (size_t)(addr - (char *)info.hostBaseAddress);
    if ((info.type != HSA_EXT_POINTER_TYPE_LOCKED && info.type != HSA_EXT_POINTER_TYPE_HSA) ||
        offset > info.sizeInBytes || length > info.sizeInBytes - offset ||
        !rocm_is_reached(&reach, gpu)) {
        return means_bounce(length);
    }
    *agent_addr_p = (char *)info.agentBaseAddress + offset;
    return ROCM_BY_ADDRESS;
}

rocm_means_t rocm_pin_reach(const rocm_gpu_t *gpu, const void *addr, size_t length,
                            char **agent_addr_p, rocm_pin_t **pin_p)
{
    rocm_means_t means;

    if (length <= SMALL) {
        return ROCM_BY_BOUNCE;
    }
    pthread_mutex_lock(&pins.lock);
    means = host_look(gpu, (char *)(uintptr_t)addr, length, agent_addr_p, pin_p);
    pthread_mutex_unlock(&pins.lock);
    return means;
}
