/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered bounce buffers of an interface. Touches only its own pool.
 */
#include "channel/bounce.h"

#include "base/status.h"

void uct_angara_bounce_init(uct_angara_bounce_t *bounce, angara_domain_h dom, size_t size,
                            unsigned count)
{
    bounce->dom   = dom;
    bounce->mr    = NULL;
    bounce->size  = ucs_align_up_pow2(ucs_max(size, 64ul), 64ul);
    bounce->count = ucs_max(count, 4u);
    bounce->free  = NULL;
    bounce->nfree = 0;
}

ucs_status_t uct_angara_bounce_setup(uct_angara_bounce_t *bounce)
{
    size_t          length = bounce->size * bounce->count;
    angara_status_t status;
    void           *address;
    unsigned        i;

    bounce->free = ucs_malloc(bounce->count * sizeof(*bounce->free), "angara_bounce");
    if (bounce->free == NULL) {
        ucs_error("angara: no memory for the list of bounce buffers");
        return UCS_ERR_NO_MEMORY;
    }

    status = angara_mem_alloc(bounce->dom, &length, ANGARA_ACCESS_LOCAL_WRITE, &address,
                              &bounce->mr);
    if (status != ANGARA_OK) {
        ucs_error("angara: cannot allocate %u bounce buffers of %zu bytes: %s "
                  "(UCX_ANGARA_BOUNCE_COUNT, UCX_ANGARA_BOUNCE_SIZE)",
                  bounce->count, bounce->size, angara_strerror(status));
        ucs_free(bounce->free);
        bounce->free = NULL;
        bounce->mr   = NULL;
        return uct_angara_status(status);
    }

    for (i = bounce->count; i > 0; --i) {
        uct_angara_bounce_put(bounce, (char *)address + (i - 1) * bounce->size);
    }
    return UCS_OK;
}

void uct_angara_bounce_cleanup(uct_angara_bounce_t *bounce)
{
    if (bounce->mr != NULL) {
        angara_mem_free(bounce->mr);
        bounce->mr = NULL;
    }
    ucs_free(bounce->free);
    bounce->free  = NULL;
    bounce->nfree = 0;
}
