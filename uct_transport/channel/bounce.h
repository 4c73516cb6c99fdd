/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered bounce buffers of an interface: sources of put_bcopy and of short puts in a batch,
 * destinations of get_bcopy, get_short and fetching atomics. Registered once, on first use.
 */
#ifndef UCT_ANGARA_BOUNCE_H
#define UCT_ANGARA_BOUNCE_H

#include "base/compat.h"

#include <angara/angara.h>

typedef struct uct_angara_bounce {
    angara_domain_h dom;
    angara_mr_h     mr;   /**< NULL until first used */
    size_t          size; /**< of one buffer */
    unsigned        count;
    void          **free; /**< stack of free buffers; never kept in the buffers themselves */
    unsigned        nfree;
} uct_angara_bounce_t;

void uct_angara_bounce_init(uct_angara_bounce_t *bounce, angara_domain_h dom, size_t size,
                            unsigned count);
void uct_angara_bounce_cleanup(uct_angara_bounce_t *bounce);

/** Register the buffers. @return UCS_OK or UCS_ERR_NO_MEMORY. */
ucs_status_t uct_angara_bounce_setup(uct_angara_bounce_t *bounce);

/** Take a buffer. @return UCS_OK, UCS_ERR_NO_RESOURCE if all are in use, UCS_ERR_NO_MEMORY. */
static UCS_F_ALWAYS_INLINE ucs_status_t uct_angara_bounce_get(uct_angara_bounce_t *bounce,
                                                              void               **buffer_p)
{
    ucs_status_t status;

    if (ucs_unlikely(bounce->mr == NULL)) {
        status = uct_angara_bounce_setup(bounce);
        if (status != UCS_OK) {
            return status;
        }
    }

    if (ucs_unlikely(bounce->nfree == 0)) {
        return UCS_ERR_NO_RESOURCE;
    }

    *buffer_p = bounce->free[--bounce->nfree];
    return UCS_OK;
}

static UCS_F_ALWAYS_INLINE void uct_angara_bounce_put(uct_angara_bounce_t *bounce, void *buffer)
{
    bounce->free[bounce->nfree++] = buffer;
}

#endif
