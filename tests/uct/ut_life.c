/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that talk in numbered messages, see ut_life.h. */
#include "ut_life.h"

static ucs_status_t lf_receive(void *arg, void *data, size_t length, unsigned flags)
{
    lf_t *lf = arg;

    (void)flags;
    CHECK(length >= sizeof(lf->last));
    memcpy(&lf->last, data, sizeof(lf->last));
    ++lf->received;
    return UCS_OK;
}

void lf_init(lf_t *lf, ut_t *t)
{
    memset(lf, 0, sizeof(*lf));
    ut_open(t);
    lf->t = t;
    ut_mem_init(t, &lf->mem, UT_MEM_PRIVATE, LF_MEMORY);
    ut_mem_exchange(t, &lf->mem, lf->remotes);
    CHECK_OK(uct_iface_set_am_handler(t->main.iface, LF_AM, lf_receive, lf, 0));
    ut_barrier(t);
}

void lf_cleanup(lf_t *lf)
{
    ut_remotes_release(lf->t, lf->remotes);
    ut_mem_cleanup(lf->t, &lf->mem);
    ut_close_alone(lf->t);
}

void lf_send(ut_t *t, uct_ep_h ep, uint64_t number)
{
    ut_comp_t comp;

    POST_OK(t, uct_ep_am_short(ep, LF_AM, number, NULL, 0));
    ut_comp_init(&comp, 1);
    CHECK_OK(ut_comp_wait(t, (ucs_status_t)UT_POST(t, uct_ep_flush(ep, 0, &comp.super)), &comp));
}

void lf_talk(lf_t *lf, unsigned other, uint64_t number)
{
    uint64_t before = lf->received;

    ut_barrier(lf->t);
    lf_send(lf->t, lf->t->ep[other], number);
    UT_WAIT(lf->t, lf->received > before);
    CHECK_EQ(lf->received, before + 1);
    CHECK_EQ(lf->last, number);
    ut_barrier(lf->t);
}
