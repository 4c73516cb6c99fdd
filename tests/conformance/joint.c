/* SPDX-License-Identifier: BSD-3-Clause */
/* See joint.h. */
#include "joint.h"

#include <time.h>

void joint_regions_init(conf_t *t, regions_t *r)
{
    const kind_t *kind = t->arg;

    CHECK(setenv("ANGARA_JOINT_MIN", "128K", 1) == 0);
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

uint64_t joint_pieces(const conf_t *t)
{
    angara_counters_t counters;

    angara_pe_counters(t->pe, &counters);
    return counters.joint_pieces;
}

int joint_is_used(void)
{
    return strcmp(conf_device(), "soft") == 0 && conf_reaches() && !rank_chaos() &&
           conf_env_on("ANGARA_SOFT_LOOPBACK");
}

void joint_sleep_us(unsigned us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000l};

    nanosleep(&time, NULL);
}

void joint_serve(conf_t *t)
{
    const kind_t *kind  = t->arg;
    unsigned      turns = 0;

    while (!conf_is_over(t)) {
        if (kind->polls == 0 || (kind->polls == 2 && ++turns % 50 == 0)) {
            joint_sleep_us(200);
        }
        if (kind->polls != 0) {
            angara_pe_progress(t->pe);
        }
    }
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

angara_status_t joint_copied(conf_t *t, regions_t *r)
{
    angara_status_t status = joint_post(t, r, 1, 0, LONG);

    if (status == ANGARA_OK) {
        status = CONF_POST(t, angara_marker(t->peer[1], t->slot, ++t->value));
    }
    if (status == ANGARA_OK) {
        CONF_WAIT(t, angara_marker_arrived(t->slot, t->value) ||
                         (status = angara_peer_status(t->peer[1])) != ANGARA_OK);
    }
    return status;
}
