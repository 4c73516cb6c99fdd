/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accumulates that osc/ucx of Open MPI gets wrong, with any transport. They go to its own functions
 * in a form that these do right.
 *
 * Open MPI 4.1 and 5:
 *   - Accumulates with derived types: of `count` elements only one is worked on (4.1), what lies in
 *     front of the first element is forgotten, and with pairs of a value and an index that have a
 *     gap the buffer is too small. They are made piece by piece, each a stretch of elements of a
 *     basic type; the standard wants accumulates to be atomic for each element, no more.
 *
 * Open MPI 4.1:
 *   - MPI_Fetch_and_op() of elements that aren't of 4 or 8 bytes, and sums of floating point: they
 *     go to UCX's atomics, which add integers of 4 and 8 bytes. They become an accumulate.
 *   - MPI_Compare_and_swap() of 1 and 2 bytes: the same. It becomes an accumulate whose operation
 *     compares and swaps.
 *   - MPI_Rget_accumulate() and MPI_Raccumulate() that only copy: the request is complete before
 *     the copy is. A flush comes first.
 *
 * All of them take the window's lock for accumulates, as before. Touches functions of a window's
 * module.
 */
#include "hook_angara.h"

#include "ompi_config.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/mca/osc/osc.h"
#include "ompi/request/request.h"
#include "ompi/win/win.h"
#include "opal/datatype/opal_convertor.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 64 /* that are asked for at once */

/* osc/ucx's own functions, and whether they are those of 4.1. */
static ompi_osc_base_module_t own;
static bool                   own_are_old;

/* ---- what its functions do right ------------------------------------------------------------- */

static size_t size_of(const ompi_datatype_t *type)
{
    size_t size;

    ompi_datatype_type_size(type, &size);
    return size;
}

static bool has_gap(const ompi_datatype_t *type)
{
    ptrdiff_t extent;

    ompi_datatype_type_extent(type, &extent);
    return (size_t)extent != size_of(type);
}

static bool is_copy(const struct ompi_op_t *op)
{
    return (op == MPI_NO_OP) || (op == MPI_REPLACE);
}

static bool is_plain(const ompi_datatype_t *type, int count)
{
    return ompi_datatype_is_predefined(type) && ((count <= 1) || !has_gap(type));
}

/* Has UCX an atomic for it? */
static bool is_atomic(const ompi_datatype_t *type, const struct ompi_op_t *op)
{
    size_t size = size_of(type);

    return ((size == sizeof(uint32_t)) || (size == sizeof(uint64_t))) &&
           ((op != MPI_SUM) ||
            ((type->super.flags & OMPI_DATATYPE_FLAG_DATA_TYPE) == OMPI_DATATYPE_FLAG_DATA_INT));
}

/* ---- where the elements of a buffer lie --------------------------------------------------------
 */

/* In the order of the type; a walk begins at the first. */
typedef struct {
    struct iovec *runs; /* without a buffer: from 0 on */
    uint32_t      count, at;
    size_t        offset; /* in the run */
} walk_t;

static void walk_skip(walk_t *walk, size_t bytes)
{
    walk->offset += bytes;
    while ((walk->at < walk->count) && (walk->offset >= walk->runs[walk->at].iov_len)) {
        walk->offset -= walk->runs[walk->at++].iov_len;
    }
}

static int walk_start(walk_t *walk, const void *buffer, int count, const ompi_datatype_t *type)
{
    opal_convertor_t convertor;
    struct iovec    *runs;
    uint32_t         more;
    size_t           bytes;
    int              is_last;

    memset(walk, 0, sizeof(*walk));
    OBJ_CONSTRUCT(&convertor, opal_convertor_t);
    opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &type->super, count, buffer,
                                             0, &convertor);
    do {
        runs = realloc(walk->runs, (walk->count + RUNS) * sizeof(*runs));
        if (runs == NULL) {
            break;
        }
        walk->runs = runs;
        more       = RUNS;
        is_last    = opal_convertor_raw(&convertor, runs + walk->count, &more, &bytes);
        walk->count += more;
    } while (!is_last);
    OBJ_DESTRUCT(&convertor);
    walk_skip(walk, 0); /* empty runs */
    return (runs == NULL) ? OMPI_ERR_OUT_OF_RESOURCE : OMPI_SUCCESS;
}

static char *walk_here(const walk_t *walk)
{
    return (char *)walk->runs[walk->at].iov_base + walk->offset;
}

/* Elements from here on without a hole, at most `most`. */
static size_t walk_room(const walk_t *walk, size_t size, size_t most)
{
    size_t room = (walk->runs[walk->at].iov_len - walk->offset) / size;

    return (room < most) ? room : most;
}

/* ---- piece by piece -------------------------------------------------------------------------- */

/* An accumulate. */
typedef struct {
    const void       *origin;
    int               origin_count;
    ompi_datatype_t  *origin_type;
    bool              has_result;
    void             *result;
    int               result_count;
    ompi_datatype_t  *result_type;
    int               target;
    ptrdiff_t         disp;
    int               target_count;
    ompi_datatype_t  *target_type;
    struct ompi_op_t *op;
    ompi_win_t       *win;
} job_t;

static bool job_is_plain(const job_t *job)
{
    return is_copy(job->op) ||
           (is_plain(job->target_type, job->target_count) &&
            is_plain(job->origin_type, job->origin_count) &&
            (!job->has_result || is_plain(job->result_type, job->result_count)));
}

static int whole(const job_t *job)
{
    return !job->has_result ?
               own.osc_accumulate(job->origin, job->origin_count, job->origin_type, job->target,
                                  job->disp, job->target_count, job->target_type, job->op,
                                  job->win) :
               own.osc_get_accumulate(job->origin, job->origin_count, job->origin_type, job->result,
                                      job->result_count, job->result_type, job->target, job->disp,
                                      job->target_count, job->target_type, job->op, job->win);
}

/* `count` elements of `type`, which lie `offset` bytes behind the place that `disp` names: the
 * target's unit may not divide that, so a type says it. */
static int piece(const job_t *job, const void *origin, void *result, ptrdiff_t offset, int count,
                 ompi_datatype_t *type)
{
    job_t part = *job;
    int   status;

    status = PMPI_Type_create_hindexed(1, &count, &offset, type, &part.target_type);
    if (status != OMPI_SUCCESS) {
        return status;
    }
    status = PMPI_Type_commit(&part.target_type);
    if (status == OMPI_SUCCESS) {
        part.target_count = 1;
        part.origin       = origin;
        part.result       = result;
        part.origin_count = part.result_count = count;
        part.origin_type = part.result_type = type;
        status                              = whole(&part);
    }
    PMPI_Type_free(&part.target_type);
    return status;
}

static int pieces(const job_t *job, ompi_datatype_t *type, walk_t *origin, walk_t *result,
                  walk_t *target)
{
    size_t size   = size_of(type);
    size_t most   = has_gap(type) ? 1 : INT_MAX;
    size_t left   = size_of(job->target_type) * (size_t)job->target_count / size;
    int    status = OMPI_SUCCESS;
    size_t count;

    for (; (left > 0) && (status == OMPI_SUCCESS); left -= count) {
        count = (left < most) ? left : most;
        if (!has_gap(type)) {
            count = walk_room(target, size, count);
            count = walk_room(origin, size, count);
            count = !job->has_result ? count : walk_room(result, size, count);
        }
        if (count == 0) {
            return MPI_ERR_TYPE;
        }
        status = piece(job, walk_here(origin), !job->has_result ? NULL : walk_here(result),
                       (ptrdiff_t)walk_here(target), (int)count, type);
        walk_skip(target, count * size);
        walk_skip(origin, count * size);
        if (job->has_result) {
            walk_skip(result, count * size);
        }
    }
    return status;
}

static int run(const job_t *job)
{
    walk_t           walks[3] = {{.runs = NULL}};
    size_t           bytes    = size_of(job->target_type) * (size_t)job->target_count;
    ompi_datatype_t *type;
    int              status;

    if ((bytes == 0) || job_is_plain(job)) {
        return whole(job);
    }
    type = ompi_datatype_is_predefined(job->target_type) ?
               job->target_type :
               ompi_datatype_get_single_predefined_type_from_args(job->target_type);
    if ((type == NULL) || (size_of(job->origin_type) * (size_t)job->origin_count != bytes) ||
        (job->has_result && (size_of(job->result_type) * (size_t)job->result_count != bytes))) {
        return MPI_ERR_TYPE;
    }
    status = walk_start(&walks[0], job->origin, job->origin_count, job->origin_type);
    if (status == OMPI_SUCCESS) {
        status = walk_start(&walks[1], NULL, job->target_count, job->target_type);
    }
    if ((status == OMPI_SUCCESS) && job->has_result) {
        status = walk_start(&walks[2], job->result, job->result_count, job->result_type);
    }
    if (status == OMPI_SUCCESS) {
        status = pieces(job, type, &walks[0], &walks[2], &walks[1]);
    }
    for (int i = 0; i < 3; ++i) {
        free(walks[i].runs);
    }
    return status;
}

/* ---- the functions of a window -----------------------------------------------------------------
 */

static int accumulate(const void *origin, int origin_count, ompi_datatype_t *origin_type,
                      int target, ptrdiff_t disp, int target_count, ompi_datatype_t *target_type,
                      struct ompi_op_t *op, ompi_win_t *win)
{
    return run(&(job_t){.origin       = origin,
                        .origin_count = origin_count,
                        .origin_type  = origin_type,
                        .target       = target,
                        .disp         = disp,
                        .target_count = target_count,
                        .target_type  = target_type,
                        .op           = op,
                        .win          = win});
}

static int get_accumulate(const void *origin, int origin_count, ompi_datatype_t *origin_type,
                          void *result, int result_count, ompi_datatype_t *result_type, int target,
                          ptrdiff_t disp, int target_count, ompi_datatype_t *target_type,
                          struct ompi_op_t *op, ompi_win_t *win)
{
    job_t job = {.origin       = origin,
                 .origin_count = origin_count,
                 .origin_type  = origin_type,
                 .has_result   = true,
                 .result       = result,
                 .result_count = result_count,
                 .result_type  = result_type,
                 .target       = target,
                 .disp         = disp,
                 .target_count = target_count,
                 .target_type  = target_type,
                 .op           = op,
                 .win          = win};

    return run(&job);
}

/* Does osc/ucx do the operation right, and its request? */
static bool has_own_request(const job_t *job)
{
    return job_is_plain(job) && !(own_are_old && is_copy(job->op));
}

/* Make the operation, wait for it, and have a request that is complete. */
static int run_with_request(const job_t *job, ompi_request_t **request)
{
    int status = run(job);

    if (status == OMPI_SUCCESS) {
        status = own.osc_flush_local(job->target, job->win);
    }
    *request = &ompi_request_empty;
    return status;
}

static int raccumulate(const void *origin, int origin_count, ompi_datatype_t *origin_type,
                       int target, ptrdiff_t disp, int target_count, ompi_datatype_t *target_type,
                       struct ompi_op_t *op, ompi_win_t *win, ompi_request_t **request)
{
    job_t job = {.origin       = origin,
                 .origin_count = origin_count,
                 .origin_type  = origin_type,
                 .target       = target,
                 .disp         = disp,
                 .target_count = target_count,
                 .target_type  = target_type,
                 .op           = op,
                 .win          = win};

    return has_own_request(&job) ?
               own.osc_raccumulate(origin, origin_count, origin_type, target, disp, target_count,
                                   target_type, op, win, request) :
               run_with_request(&job, request);
}

static int rget_accumulate(const void *origin, int origin_count, ompi_datatype_t *origin_type,
                           void *result, int result_count, ompi_datatype_t *result_type, int target,
                           ptrdiff_t disp, int target_count, ompi_datatype_t *target_type,
                           struct ompi_op_t *op, ompi_win_t *win, ompi_request_t **request)
{
    job_t job = {.origin       = origin,
                 .origin_count = origin_count,
                 .origin_type  = origin_type,
                 .has_result   = true,
                 .result       = result,
                 .result_count = result_count,
                 .result_type  = result_type,
                 .target       = target,
                 .disp         = disp,
                 .target_count = target_count,
                 .target_type  = target_type,
                 .op           = op,
                 .win          = win};

    return has_own_request(&job) ?
               own.osc_rget_accumulate(origin, origin_count, origin_type, result, result_count,
                                       result_type, target, disp, target_count, target_type, op,
                                       win, request) :
               run_with_request(&job, request);
}

static int fetch_and_op(const void *origin, void *result, ompi_datatype_t *type, int target,
                        ptrdiff_t disp, struct ompi_op_t *op, ompi_win_t *win)
{
    return is_atomic(type, op) ? own.osc_fetch_and_op(origin, result, type, target, disp, op, win) :
                                 own.osc_get_accumulate(origin, 1, type, result, 1, type, target,
                                                        disp, 1, type, op, win);
}

/* What the operation below gets as its first operand. */
typedef struct {
    char value[sizeof(uint64_t)];
    char expected[sizeof(uint64_t)];
} swap_t;

static void swap_if_equal(void *operand, void *word, int *count, ompi_datatype_t **type)
{
    const swap_t *swap = operand;
    size_t        size = size_of(*type);

    (void)count;
    if (memcmp(word, swap->expected, size) == 0) {
        memcpy(word, swap->value, size);
    }
}

static int compare_and_swap(const void *origin, const void *compare, void *result,
                            ompi_datatype_t *type, int target, ptrdiff_t disp, ompi_win_t *win)
{
    size_t            size = size_of(type);
    swap_t            swap;
    struct ompi_op_t *op;
    int               status;

    if (size >= sizeof(uint32_t)) {
        return own.osc_compare_and_swap(origin, compare, result, type, target, disp, win);
    }
    status = PMPI_Op_create(swap_if_equal, 0, &op);
    if (status != OMPI_SUCCESS) {
        return status;
    }
    memcpy(swap.value, origin, size);
    memcpy(swap.expected, compare, size);
    status = own.osc_get_accumulate(&swap, 1, type, result, 1, type, target, disp, 1, type, op,
                                    win);
    PMPI_Op_free(&op);
    return status;
}

void hook_angara_accumulate_mend(struct ompi_win_t *win, bool is_old)
{
    ompi_osc_base_module_t *module = win->w_osc_module;

    if (own.osc_accumulate == NULL) {
        own         = *module;
        own_are_old = is_old;
    }
    if (module->osc_accumulate != own.osc_accumulate) {
        return; /* of 5, by a parameter, for some windows only */
    }
    module->osc_accumulate      = accumulate;
    module->osc_get_accumulate  = get_accumulate;
    module->osc_raccumulate     = raccumulate;
    module->osc_rget_accumulate = rget_accumulate;
    if (is_old) {
        module->osc_fetch_and_op     = fetch_and_op;
        module->osc_compare_and_swap = compare_and_swap;
    }
}
