/* SPDX-License-Identifier: BSD-3-Clause */
/* See batch.h. */
#include "batch.h"

void batch_regions_init(conf_t *t, regions_t *r)
{
    unsigned shared = ((const kind_t *)t->arg)->shared, i;
    uint64_t keys[REGIONS];

    for (i = 0; i < REGIONS; ++i) {
        conf_mem_init(t, &r->mem[i], (int)(shared >> i & 1), SIZE, ANGARA_ACCESS_ALL);
        conf_mem_init(t, &r->buf[i], (int)(shared >> (REGIONS - 1 - i) & 1), SIZE,
                      ANGARA_ACCESS_LOCAL_WRITE);
        keys[i] = r->mem[i].key;
    }
    conf_exchange(t, keys, r->keys, sizeof(keys));
}

void batch_regions_cleanup(conf_t *t, regions_t *r)
{
    unsigned i;

    conf_barrier(t);
    for (i = 0; i < REGIONS; ++i) {
        conf_mem_cleanup(&r->buf[i]);
        conf_mem_cleanup(&r->mem[i]);
    }
}

void batch_fill(conf_mem_t *mems, int value)
{
    unsigned i;

    for (i = 0; i < REGIONS; ++i) {
        memset(mems[i].addr, value, SIZE);
    }
}

angara_status_t batch_post(conf_t *t, unsigned to, angara_batch_op_t op, const angara_xfer_t *xfers,
                           unsigned count, unsigned *posted_p)
{
    conf_timer_t    timer = conf_timer();
    unsigned        done  = 0, posted;
    angara_status_t status;

    for (;;) {
        posted = 99;
        status = angara_offload_batch(t->peer[to], op, xfers + done, count - done, &posted);
        CHECK(posted <= count - done);
        CHECK((posted == count - done) == (status == ANGARA_OK));
        done += posted;
        *posted_p = done;
        if (status != ANGARA_ERR_NO_RESOURCE) {
            return status;
        }
        conf_relax(t, &timer, __FILE__, __LINE__, "angara_offload_batch");
    }
}
