/* SPDX-License-Identifier: BSD-3-Clause */
/* The OpenSHMEM benchmarks; see the header. */
#include "bench_shmem.h"

#include <string.h>

static void shmem_slots_init(bench_t *b, bench_rma_t *r, int count)
{
    size_t length;

    *r = (bench_rma_t){.win = MPI_WIN_NULL};
    bench_limit_size(b, 2);
    bench_slots_init(b, &r->local, count, true);
    length            = bench_slots_length(b, count, true, &r->exposed.count);
    r->exposed.stride = r->local.stride;
    r->exposed.base   = shmem_malloc(length);
    if (r->exposed.base == NULL) {
        bench_fail(b, "the symmetric heap has no %zu bytes", length);
    }
    memset(r->exposed.base, 0, length);
}

static double shmem_run(bench_t *b, bench_rma_t *r, const bench_rma_ops_t *ops)
{
    bool   validate = b->opts.validate, stream = (b->spec->options & BENCH_OPT_WINDOW) != 0;
    bool   origin  = b->rank != BENCH_RMA_TARGET;
    double seconds = 0, start = 0;
    int    i;

    for (i = -b->skip; i < b->iterations && (validate || origin); i++) {
        if (validate) {
            ops->prepare(b, r, i);
            shmem_barrier_all();
            bench_settle(b, 1 - b->rank);
        }
        if (validate || i == 0) {
            shmem_quiet();
            start = MPI_Wtime();
        }
        if (origin) {
            ops->access(b, r);
            if (validate || !stream) {
                shmem_quiet();
            }
        }
        if (validate) {
            seconds += i >= 0 ? MPI_Wtime() - start : 0;
            shmem_barrier_all();
            ops->check(b, r, i);
            shmem_barrier_all();
        }
    }
    shmem_quiet();
    seconds = validate ? seconds : MPI_Wtime() - start;
    shmem_barrier_all();
    return seconds;
}

int bench_shmem_main(int argc, char **argv, const bench_spec_t *spec, const bench_shmem_op_t *ops,
                     int slots)
{
    const bench_shmem_op_t *op;
    bench_rma_t             rma;
    bench_t                 b;
    double                  us;
    bool                    stream = (spec->options & BENCH_OPT_WINDOW) != 0;

    bench_init(&b, argc, argv, spec);
    shmem_init();
    shmem_slots_init(&b, &rma, stream ? b.opts.window : slots);
    bench_print_header(&b);
    while (bench_next_size(&b)) {
        for (op = ops; op->ops.access != NULL && !b.failed; op++) {
            us = shmem_run(&b, &rma, &op->ops) * 1e6 / b.iterations;
            if (stream) {
                bench_print_row(&b, b.opts.window * 1e6 / us);
            } else if (op->name != NULL) {
                bench_print_values(&b, op->name, (double[]){1 / us, us}, 2);
            } else {
                bench_print_row(&b, us);
            }
        }
    }
    shmem_free(rma.exposed.base);
    bench_slots_cleanup(&b, &rma.local);
    bench_print_end(&b); /* the first that ends with an error ends the job */
    shmem_finalize();
    return bench_finish(&b);
}
