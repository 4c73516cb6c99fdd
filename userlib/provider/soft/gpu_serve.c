/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct requests, the server's side: see service.h and gpu_mem.h. A GPU of this process copies
 * between its own host memory and a region of the requester's GPU memory (requester.h).
 */
#include "gpu_mem.h"
#include "requester.h"
#include "vm.h"

#include <stddef.h>

typedef struct {
    soft_hazard_t *hazard; /* holds the requester's region */
    soft_import_t *import; /* its mapping */
    ang_gpu_copy_t copy;
} serving_t;

static void serving_end(serving_t *serving)
{
    if (serving->import != NULL) {
        soft_import_put(serving->import);
    }
    __atomic_store_n(&serving->hazard->key, 0, __ATOMIC_RELEASE);
}

/* Hold and map the requester's end. On failure nothing is held. *near_p: where it is here. */
static angara_status_t hold(soft_remote_domain_t *domain, const soft_direct_t *op, int is_first,
                            serving_t *serving, uint64_t *near_p)
{
    const soft_mr_entry_t *entry;
    ang_gpu_mem_t          mem;
    angara_status_t        status;

    /* The hazard, a full fence, then the look at the entry: see domain.c. */
    serving->import = NULL;
    serving->hazard = domain->hazard;
    if (is_first) {
        __atomic_exchange_n(&serving->hazard->key, op->near_key, __ATOMIC_SEQ_CST);
    } else if ((serving->hazard = soft_remote_domain_hold(domain, op->near_key)) == NULL) {
        return ANGARA_ERR_NO_RESOURCE;
    }
    status = soft_mr_check(domain->seg, domain->mr_max, op->near_key, op->near_offset, op->length,
                           0, near_p, &entry);
    if (status == ANGARA_OK && entry->kind != ANGARA_MEM_HOST) {
        /* managed memory has a GPU */
        ang_gpu_query_found((const void *)(uintptr_t)op->addr, &mem);
        status = soft_import_get(domain->process, entry, &mem, op->near_offset, op->length,
                                 &serving->import, near_p);
    } else {
        status = ANGARA_ERR_UNSUPPORTED;
    }
    if (status != ANGARA_OK) {
        serving_end(serving);
    }
    return status;
}

/* May the copy touch the own memory? */
static angara_status_t own_check(const soft_direct_t *op, int is_put)
{
    /* others the driver copies with the CPU */
    return ang_gpu_is_registered((const void *)(uintptr_t)op->addr, op->length) ?
               ANGARA_OK :
               soft_guard_range(op->addr, op->length, is_put);
}

/* Start a copy to the requester's GPU memory: as soft_gpu_start(). */
static angara_status_t start(const soft_direct_t *op, uint64_t near, uint64_t call_max,
                             const ang_gpu_copy_t *after, serving_t *serving)
{
    const soft_gpu_end_t here  = {op->addr, NULL};
    const soft_gpu_end_t there = {near, soft_import_mem(serving->import)};

    return soft_gpu_start(&there, &here, op->length, call_max, after, 0, &serving->copy);
}

typedef struct {
    serving_t servings[SOFT_RUN];
    unsigned  started;
    unsigned  landed; /* the first ones; */
    unsigned  done;   /*   of these, those before the first that failed */
    uint64_t  bytes;  /* of those started */
} run_t;

static void run_land(run_t *run)
{
    for (; run->landed < run->started; ++run->landed) {
        serving_t *serving = &run->servings[run->landed];

        run->done += ang_gpu_copy_wait(&serving->copy) == ANGARA_OK && run->done == run->landed;
        serving_end(serving);
    }
}

/*
 * Start one more; or make it by itself, if it can't fly behind the others. One to the host doesn't:
 * in the stream for that it might wait for copies of the program's own. `is_alone`: nothing flies
 * with it. @return 0: nothing may go on behind it
 */
static int run_add(run_t *run, soft_remote_domain_t *domain, const soft_direct_t *op, int is_put,
                   int is_alone)
{
    serving_t      *serving = &run->servings[run->started];
    uint64_t        left    = run->bytes < SOFT_GPU_PIECE ? SOFT_GPU_PIECE - run->bytes : 0;
    angara_status_t status  = ANGARA_ERR_UNSUPPORTED;
    uint64_t        near;

    if (own_check(op, is_put) != ANGARA_OK ||
        hold(domain, op, run->started == 0, serving, &near) != ANGARA_OK) {
        return 0;
    }
    if (!is_alone && !is_put) {
        status = start(op, near, left, run->started > 0 ? &serving[-1].copy : NULL, serving);
    }
    if (status != ANGARA_INPROGRESS && run->started > 0 && op->length > left) {
        serving_end(serving); /* others wait meanwhile */
        return 0;
    }
    if (status != ANGARA_INPROGRESS) {
        run_land(run);
        status        = run->done < run->started ? ANGARA_ERR_UNSUPPORTED :
                        is_put                   ? soft_gpu_copy(op->addr, near, op->length) :
                                                   soft_gpu_copy(near, op->addr, op->length);
        serving->copy = (ang_gpu_copy_t){.status = status}; /* it has ended */
    }
    run->bytes += op->length;
    run->started++;
    return status == ANGARA_OK || status == ANGARA_INPROGRESS;
}

unsigned soft_gpu_serve(const soft_request_t *request, uint64_t owner, const soft_direct_t *ops,
                        unsigned count)
{
    soft_remote_domain_t *domain = soft_requester_get(request, owner);
    run_t                 run;

    if (domain == NULL) {
        return 0;
    }
    run.started = run.landed = run.done = 0;
    run.bytes                           = 0;
    soft_helper_watch();
    while (run.started < count &&
           run_add(&run, domain, &ops[run.started], request->op == ANG_OP_PUT, count == 1)) {
    }
    run_land(&run);
    return run.done;
}
