/* SPDX-License-Identifier: BSD-3-Clause */
/* See joint.h. */
#include "joint.h"

void joint_regions_init(conf_t *t, regions_t *r)
{
    const kind_t *kind = t->arg;

    CHECK(setenv("ANGARA_JOINT_MIN", "128K", 1) == 0);
    CHECK(setenv("ANGARA_ASKED_MAX", "4K", 1) == 0);
    conf_open(t);
    conf_mem_init(t, &r->far, kind->shared, LONG + 2 * MARGIN, ANGARA_ACCESS_ALL);
    conf_mem_init(t, &r->near, 0, LONG + 2 * MARGIN, ANGARA_ACCESS_LOCAL_WRITE);
    conf_mem_exchange(t, &r->far, r->keys);
    conf_barrier(t);
}

void joint_regions_cleanup(conf_t *t, regions_t *r)
{
    conf_barrier(t);
    conf_mem_cleanup(&r->near);
    conf_mem_cleanup(&r->far);
    conf_close(t);
}

int joint_is_used(void)
{
    return strcmp(conf_device(), "soft") == 0 && conf_reaches() && !rank_chaos() &&
           conf_env_on("ANGARA_SOFT_LOOPBACK");
}

angara_status_t joint_post(conf_t *t, regions_t *r, unsigned rank, size_t offset, size_t length)
{
    const kind_t *kind = t->arg;
    char         *here = r->near.addr + MARGIN + offset;

    return CONF_POST(t, kind->is_get ? angara_offload_get(t->peer[rank], r->near.mr, here,
                                                          r->keys[rank], MARGIN + offset, length) :
                                       angara_offload_put(t->peer[rank], r->near.mr, here,
                                                          r->keys[rank], MARGIN + offset, length));
}
