/* SPDX-License-Identifier: BSD-3-Clause */
/* osu_oshm_put: time of one shmem_putmem to PE 1 and its shmem_quiet. */
#include "bench_shmem.h"

static const bench_spec_t spec = {
    BENCH_LATENCY_OF(1, 1ul << 20),
    .name      = "osu_oshm_put",
    .title     = "OSU OpenSHMEM Put Test",
    .options   = BENCH_OPT_SIZE | BENCH_OPT_CHECK,
    .max_ranks = 2,
};

static void access_put(bench_t *b, bench_rma_t *r)
{
    shmem_putmem(bench_slot(&r->exposed, 0), bench_slot(&r->local, 0), b->msg_size,
                 BENCH_RMA_TARGET);
}

int main(int argc, char **argv)
{
    bench_shmem_op_t ops[] = {{NULL, {access_put, bench_rma_prepare_put, bench_rma_check_put}},
                              {0}};

    return bench_shmem_main(argc, argv, &spec, ops, 1);
}
