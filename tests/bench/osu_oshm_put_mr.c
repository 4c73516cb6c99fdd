/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_oshm_put_mr: rate of shmem_putmem to PE 1, with one shmem_quiet at the end. */
#include "bench_shmem.h"

static const bench_spec_t spec = {
    BENCH_BANDWIDTH,
    .name      = "osu_oshm_put_mr",
    .title     = "OSU OpenSHMEM Put Message Rate Test",
    .column    = "Messages/s",
    .options   = BENCH_OPT_SIZE | BENCH_OPT_CHECK | BENCH_OPT_WINDOW,
    .max_ranks = 2,
};

static void access_put(bench_t *b, bench_rma_t *r)
{
    for (int i = 0; i < b->opts.window; i++) {
        shmem_putmem(bench_slot(&r->exposed, i), bench_slot(&r->local, i), b->msg_size,
                     BENCH_RMA_TARGET);
    }
}

int main(int argc, char **argv)
{
    bench_shmem_op_t ops[] = {{NULL, {access_put, bench_rma_prepare_put, bench_rma_check_put}},
                              {0}};

    return bench_shmem_main(argc, argv, &spec, ops, 1);
}
