/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging memory that a GPU copies by itself: see gpu_mem.h. Of host memory that isn't registered
 * the driver copies each byte once more with the CPU (512 KiB on an H100: 55 to 75 us, registered
 * 18 us).
 */
#define _GNU_SOURCE
#include "gpu_mem.h"

#include "src/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PIECES 4 /* after so many large ones it pays: registering takes half a millisecond */

struct soft_pin {
    soft_leaving_t       leaving;
    const ang_gpu_ops_t *ops;
    ang_gpu_map_t        map;
    size_t               size;
};

static int pin_end(soft_leaving_t *leaving)
{
    soft_pin_t *pin = (soft_pin_t *)leaving;

    if (!pin->ops->is_idle(&pin->map)) {
        return 0;
    }
    /* Else it stays: the runtime would take what is mapped there next for it. */
    if (pin->ops->unpin(&pin->map)) {
        munmap(pin->map.base, pin->size);
    }
    free(pin);
    return 1;
}

/*
 * Map the pages a second time, and register that. By the system call: what hooks mremap() takes it
 * for the move of a mapping.
 */
static soft_pin_t *pin_make(void *staging, size_t size, const ang_gpu_mem_t *mem)
{
    void       *base = (void *)syscall(SYS_mremap, staging, 0, size, MREMAP_MAYMOVE);
    soft_pin_t *pin  = calloc(1, sizeof(*pin));

    if (base == MAP_FAILED || pin == NULL) {
        ang_debug("staging memory isn't pinned: %s", strerror(errno));
        goto err;
    }
    madvise(base, size, MADV_DONTFORK);
    pin->ops  = mem->ops;
    pin->size = size;
    if (mem->ops->pin(base, size, mem, &pin->map) == ANGARA_OK) {
        return pin;
    }

err:
    if (base != MAP_FAILED) {
        munmap(base, size);
    }
    free(pin);
    return NULL;
}

char *soft_pinned(soft_pinned_t *pinned, void *staging, size_t size, uint64_t gpu_addr)
{
    ang_gpu_mem_t mem;

    if (pinned->pieces < PIECES && ++pinned->pieces == PIECES) {
        ang_gpu_query_found((const void *)(uintptr_t)gpu_addr, &mem);
        if (!ang_gpu_is_device(&mem)) {
            pinned->pieces = 0; /* it was freed: another one's turn */
        } else if (mem.ops->pin != NULL) {
            pinned->pin = pin_make(staging, size, &mem);
        }
    }
    return pinned->pin != NULL ? pinned->pin->map.base : staging;
}

void soft_unpin(soft_pinned_t *pinned)
{
    if (pinned->pin != NULL) {
        soft_leave(&pinned->pin->leaving, pin_end);
    }
    *pinned = (soft_pinned_t){0};
}
