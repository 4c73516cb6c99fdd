/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accumulates that osc/ucx of Open MPI gets wrong, with any transport. They go to its own functions
 * in a form that these do right: on the target's bytes, with an operation of ours that knows what
 * they are. osc/ucx gets the bytes, has the operation change them, and puts them back, all under
 * the window's lock for accumulates.
 *
 * Open MPI 4.1 and 5:
 *   - Reductions of pairs of a value and an index that have a gap: the buffer is too small.
 *   - Reductions whose origin is contiguous, but begins elsewhere: that is forgotten.
 *   - MPI_Fetch_and_op(): sums of floating point go to UCX's atomics, which add integers (4.1; in 5
 *     those of Fortran's types); so do elements that aren't of 4 or 8 bytes (4.1), or may lie where
 *     these can't. It becomes an accumulate.
 *   - MPI_Fetch_and_op() with MPI_NO_OP reads the origin.
 *
 * Open MPI 5:
 *   - Accumulates of one element, in a window whose info or parameter acc_single_intrinsic says
 *     that there are no others: what decides whether one is an atomic of UCX is its displacement,
 *     with MPI_Fetch_and_op() its address. Each becomes what MPI_Fetch_and_op() would be, which
 *     nobody tells of the result's layout.
 *
 * Open MPI 4.1:
 *   - Reductions of several derived types: only one is worked on.
 *   - MPI_REPLACE and MPI_NO_OP: nothing keeps the copy within the lock.
 *   - MPI_Compare_and_swap() of 1 and 2 bytes goes to UCX's atomics. It becomes an accumulate whose
 *     operation compares and swaps. That of 4 bytes, as MPI_Fetch_and_op(), reads 8 of the origin.
 *   - MPI_Rget_accumulate() and MPI_Raccumulate() that only copy: the request is complete before
 *     the copy is.
 *   - Accumulates with a result in a dynamic window: the second get lets go of the key that the
 *     first one may still use. There what is mended ends before the next begins.
 *
 * Not mended: reductions of more than 2 GiB that it gets wrong, which are refused; words that
 * aren't aligned; that 4.1, and 5 with an exclusive lock, goes on behind an atomic without a
 * fence, which takes a transport that performs them in posting order, as ours does; and that its
 * own errors (a target without memory there) leave the window's lock taken.
 *
 * Touches functions of a window's module.
 */
#include "hook_angara.h"

#include "ompi_config.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/mca/osc/osc.h"
#include "ompi/request/request.h"
#include "ompi/win/win.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/util/info.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define RUNS       64 /* that are asked for at once */
#define SINGLE_KEY "acc_single_intrinsic"

/* osc/ucx's own functions, the operation on bytes, and which windows have single ones. */
static ompi_osc_base_module_t own;
static MPI_Op                 apply_op   = MPI_OP_NULL;
static int                    single_key = MPI_KEYVAL_INVALID;
static pthread_mutex_t        own_lock   = PTHREAD_MUTEX_INITIALIZER;

/* An accumulate. */
typedef struct {
    const void       *origin; /* NULL with MPI_NO_OP */
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
    bool              is_single; /* acc_single_intrinsic counts */
} job_t;

/* ---- what its functions do right ------------------------------------------------------------- */

static size_t size_of(const ompi_datatype_t *type)
{
    size_t size;

    ompi_datatype_type_size(type, &size);
    return size;
}

static size_t job_bytes(const job_t *job)
{
    return size_of(job->target_type) * (size_t)job->target_count;
}

static bool has_gap(const ompi_datatype_t *type)
{
    ptrdiff_t extent;

    ompi_datatype_type_extent(type, &extent);
    return (size_t)extent != size_of(type);
}

static bool is_integer(const ompi_datatype_t *type)
{
    return (type->super.flags & OMPI_DATATYPE_FLAG_DATA_TYPE) == OMPI_DATATYPE_FLAG_DATA_INT;
}

static bool is_word(const ompi_datatype_t *type)
{
    return (size_of(type) == sizeof(uint32_t)) || (size_of(type) == sizeof(uint64_t));
}

/* May osc/ucx's MPI_Fetch_and_op() have it? */
static bool is_atomic(const ompi_datatype_t *type, const struct ompi_op_t *op)
{
    return is_word(type) && (type->super.align == size_of(type)) &&
           ((op != MPI_SUM) || is_integer(type));
}

/* What the target's type is made of; NULL if of several. */
static ompi_datatype_t *job_basic(const job_t *job)
{
    return ompi_datatype_is_predefined(job->target_type) ?
               job->target_type :
               ompi_datatype_get_single_predefined_type_from_args(job->target_type);
}

static bool is_copy(const struct ompi_op_t *op)
{
    return (op == MPI_NO_OP) || (op == MPI_REPLACE);
}

static const void *first_byte(const void *at, const ompi_datatype_t *type)
{
    ptrdiff_t begin, length;

    ompi_datatype_get_true_extent(type, &begin, &length);
    return (const char *)at + begin;
}

/* Are these elements nothing but `size` bytes, one behind the other? */
static bool is_run(int count, const ompi_datatype_t *type, size_t size)
{
    ptrdiff_t begin, length;

    ompi_datatype_get_true_extent(type, &begin, &length);
    return (count == 1) && (size_of(type) == size) && ((size_t)length == size);
}

/* Bytes of a word, which may be a GPU's. */
static void load(void *word, const void *at, size_t size)
{
    if (hook_angara_plugin_is_on_gpu(at)) {
        hook_angara_plugin_gpu()->read(word, at, size);
    } else {
        memcpy(word, at, size);
    }
}

static bool job_is_dynamic(const job_t *job)
{
    return job->win->w_flavor == MPI_WIN_FLAVOR_DYNAMIC;
}

/* May osc/ucx of Open MPI 5 make an atomic of UCX of it? It looked at the info when the window was
 * created, and never again. */
static bool job_is_single(const job_t *job)
{
    int   is_told = 0;
    void *value;

    if (OSC_UCX_IS_OLD || (job->origin_type != job->target_type) || (job->origin_count != 1) ||
        (job->target_count != 1) || !ompi_datatype_is_predefined(job->target_type) ||
        !is_word(job->target_type) || (!is_copy(job->op) && (job->op != MPI_SUM)) ||
        ((job->op == MPI_SUM) &&
         ((job->target_type == MPI_FLOAT) || (job->target_type == MPI_DOUBLE)))) {
        return false;
    }
    PMPI_Win_get_attr(job->win, single_key, &value, &is_told);
    return is_told;
}

/* Does osc/ucx do it as it should? */
static bool job_is_right(const job_t *job)
{
    const ompi_datatype_t *basic           = job_basic(job);
    bool                   target_is_basic = basic == job->target_type;
    bool                   origin_is_basic;
    ptrdiff_t              begin, length;

    if (job->is_single) {
        return false;
    }
    if (is_copy(job->op)) {
        return !OSC_UCX_IS_OLD;
    }
    if (basic == NULL) {
        return true; /* MPI has refused it before */
    }
    if (OSC_UCX_IS_OLD && job->has_result && job_is_dynamic(job)) {
        return false;
    }
    origin_is_basic = ompi_datatype_is_predefined(job->origin_type);
    if (has_gap(basic)) {
        return target_is_basic && origin_is_basic && (job->target_count == 1);
    }
    ompi_datatype_get_true_extent(job->origin_type, &begin, &length);
    if (!origin_is_basic && (begin != 0) &&
        ompi_datatype_is_contiguous_memory_layout(job->origin_type, job->origin_count)) {
        return false;
    }
    return !OSC_UCX_IS_OLD || target_is_basic || (job->target_count == 1);
}

static int job_pass(const job_t *job)
{
    return !job->has_result ?
               own.osc_accumulate(job->origin, job->origin_count, job->origin_type, job->target,
                                  job->disp, job->target_count, job->target_type, job->op,
                                  job->win) :
               own.osc_get_accumulate(job->origin, job->origin_count, job->origin_type, job->result,
                                      job->result_count, job->result_type, job->target, job->disp,
                                      job->target_count, job->target_type, job->op, job->win);
}

/* ---- the operation on bytes ------------------------------------------------------------------ */

/* What stands in the place of the origin's buffer, which nobody but the operation looks at. */
typedef struct call {
    void (*func)(struct call *call, void *bytes);
    const job_t     *job;
    const void      *origin; /* packed, as the target's bytes are */
    void            *old;    /* what these were; NULL: nobody wants to know */
    size_t           size;   /* bytes of each */
    const void      *expected;
    ompi_datatype_t *type;
    int              status;
} call_t;

static void apply(void *arg, void *bytes, int *count, ompi_datatype_t **type)
{
    call_t *call = arg;

    (void)count;
    (void)type;
    if (call->old != NULL) {
        memcpy(call->old, bytes, call->size);
    }
    call->func(call, bytes);
}

static void apply_replace(call_t *call, void *bytes)
{
    memcpy(bytes, call->origin, call->size);
}

static void apply_swap_if_equal(call_t *call, void *bytes)
{
    if (memcmp(bytes, call->expected, call->size) == 0) {
        memcpy(bytes, call->origin, call->size);
    }
}

static void apply_reduction(call_t *call, void *bytes)
{
    call->status = PMPI_Reduce_local(call->origin, bytes, (int)(call->size / size_of(call->type)),
                                     call->type, call->job->op);
}

#define GAPPED_AT_ONCE 64
#define GAPPED_EXTENT  64 /* no basic type has a longer one */

/* Elements with a gap: some at a time, as they lie in memory. */
static void apply_to_gapped(call_t *call, void *bytes)
{
    _Alignas(max_align_t) char origin[GAPPED_AT_ONCE * GAPPED_EXTENT] = "";
    _Alignas(max_align_t) char target[GAPPED_AT_ONCE * GAPPED_EXTENT] = "";
    int size = (int)size_of(call->type), all = (int)call->size, at, end, count;

    for (at = 0; (at < all) && (call->status == MPI_SUCCESS); at += count * size) {
        count = (all - at) / size;
        count = (count < GAPPED_AT_ONCE) ? count : GAPPED_AT_ONCE;
        end   = at;
        PMPI_Unpack(call->origin, all, &end, origin, count, call->type, MPI_COMM_SELF);
        end = at;
        PMPI_Unpack(bytes, all, &end, target, count, call->type, MPI_COMM_SELF);
        call->status = PMPI_Reduce_local(origin, target, count, call->type, call->job->op);
        end          = at;
        PMPI_Pack(target, count, call->type, bytes, all, &end, MPI_COMM_SELF);
    }
}

static void end_copy(call_t *call)
{
    if ((call->status == OMPI_SUCCESS) && job_is_dynamic(call->job)) {
        call->status = own.osc_flush(call->job->target, call->job->win);
    }
}

/* On no bytes at all: what is done within the lock is a call of its own. */
static void apply_get(call_t *call, void *bytes)
{
    const job_t *job = call->job;

    (void)bytes;
    call->status = own.osc_get(job->result, job->result_count, job->result_type, job->target,
                               job->disp, job->target_count, job->target_type, job->win);
    end_copy(call);
}

static void apply_put(call_t *call, void *bytes)
{
    const job_t *job = call->job;

    (void)bytes;
    call->status = own.osc_put(job->origin, job->origin_count, job->origin_type, job->target,
                               job->disp, job->target_count, job->target_type, job->win);
    end_copy(call);
}

/* The bytes of `count` elements, in the order of the type, as a type. */
static int type_of_bytes(int count, const ompi_datatype_t *type, ompi_datatype_t **bytes)
{
    opal_convertor_t convertor;
    struct iovec     runs[RUNS];
    int             *lengths = NULL, *more_lengths;
    MPI_Aint        *places  = NULL, *more_places;
    size_t           size, used = 0, room = 0;
    uint32_t         found;
    int              status = OMPI_SUCCESS, is_last;

    OBJ_CONSTRUCT(&convertor, opal_convertor_t);
    opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &type->super, count, NULL, 0,
                                             &convertor);
    do {
        found   = RUNS;
        is_last = opal_convertor_raw(&convertor, runs, &found, &size);
        if (used + found > room) {
            room         = 2 * room + RUNS;
            more_lengths = realloc(lengths, room * sizeof(*lengths));
            lengths      = (more_lengths != NULL) ? more_lengths : lengths;
            more_places  = realloc(places, room * sizeof(*places));
            places       = (more_places != NULL) ? more_places : places;
            if ((more_lengths == NULL) || (more_places == NULL)) {
                status = OMPI_ERR_OUT_OF_RESOURCE;
                break;
            }
        }
        for (uint32_t i = 0; i < found; ++i, ++used) {
            lengths[used] = (int)runs[i].iov_len;
            places[used]  = (MPI_Aint)(uintptr_t)runs[i].iov_base;
        }
    } while (!is_last);
    OBJ_DESTRUCT(&convertor);
    if (status == OMPI_SUCCESS) {
        status = PMPI_Type_create_hindexed((int)used, lengths, places, MPI_BYTE, bytes);
    }
    if (status == OMPI_SUCCESS) {
        status = PMPI_Type_commit(bytes);
        if (status != OMPI_SUCCESS) {
            PMPI_Type_free(bytes);
        }
    }
    free(lengths);
    free(places);
    return status;
}

/*
 * The target's bytes from before become the result, if the CPU can write it: then there is one get
 * only.
 */
static int job_apply(const job_t *job)
{
    size_t bytes = job_bytes(job);
    bool   keeps = job->has_result &&
                 !hook_angara_plugin_is_on_gpu(first_byte(job->result, job->result_type));
    call_t call = {.job = job, .size = bytes, .type = job_basic(job)};
    job_t  part = *job;
    char  *packed;
    int    status, at = 0;

    call.func = (job->op == MPI_REPLACE) ? apply_replace :
                has_gap(call.type)       ? apply_to_gapped :
                                           apply_reduction;
    packed    = malloc(keeps ? 2 * bytes : bytes);
    if (packed == NULL) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    call.origin = packed;
    call.old    = keeps ? packed + bytes : NULL;
    status = PMPI_Pack(job->origin, job->origin_count, job->origin_type, packed, (int)bytes, &at,
                       MPI_COMM_SELF);
    if (status == OMPI_SUCCESS) {
        status = type_of_bytes(job->target_count, job->target_type, &part.target_type);
    }
    if (status == OMPI_SUCCESS) {
        part.origin       = &call;
        part.origin_count = (int)bytes;
        part.origin_type  = MPI_BYTE;
        part.has_result   = job->has_result && !keeps;
        part.target_count = 1;
        part.op           = apply_op;
        status            = job_pass(&part);
        PMPI_Type_free(&part.target_type);
    }
    status = (status == OMPI_SUCCESS) ? call.status : status;
    if ((status == OMPI_SUCCESS) && keeps) {
        at     = 0;
        status = PMPI_Unpack(call.old, (int)bytes, &at, job->result, job->result_count,
                             job->result_type, MPI_COMM_SELF);
    }
    free(packed);
    return status;
}

/* A copy, within the lock. */
static int job_copy(const job_t *job)
{
    call_t call = {.func = (job->op == MPI_NO_OP) ? apply_get : apply_put, .job = job};
    int    status;

    if (job_is_dynamic(job) && (own.osc_flush(job->target, job->win) != OMPI_SUCCESS)) {
        return job_pass(job); /* an epoch in which nothing can be waited for */
    }
    status = own.osc_accumulate(&call, 0, MPI_BYTE, job->target, job->disp, 0, MPI_BYTE, apply_op,
                                job->win);
    return (status == OMPI_SUCCESS) ? call.status : status;
}

/* As MPI_Fetch_and_op() does it, which knows where the target lies. @return whether it can. */
static bool job_fetch(const job_t *job, int *status)
{
    static uint64_t nowhere; /* nobody reads it */
    size_t          size   = size_of(job->target_type);
    uint64_t        value  = 0;
    const void     *result = &nowhere;

    if (!job->is_single || !is_atomic(job->target_type, job->op) ||
        (job->has_result && !is_run(job->result_count, job->result_type, size))) {
        return false;
    }
    if (job->has_result) {
        result = first_byte(job->result, job->result_type);
    }
    if (job->origin != NULL) {
        load(&value, job->origin, size);
    }
    *status = own.osc_fetch_and_op((job->origin != NULL) ? &value : NULL, (void *)(uintptr_t)result,
                                   job->target_type, job->target, job->disp, job->op, job->win);
    return true;
}

/*
 * In a dynamic window 4.1 lets go of the key that operations before may still use: these end first.
 * Not between fences, where that is an error.
 */
static void end_before(int target, ompi_win_t *win)
{
    if (OSC_UCX_IS_OLD && (win->w_flavor == MPI_WIN_FLAVOR_DYNAMIC)) {
        (void)own.osc_flush_local(target, win);
    }
}

static int run(const job_t *job)
{
    size_t bytes = job_bytes(job);
    int    status;
    bool   fits, fits_int;

    if ((bytes == 0) && job_is_dynamic(job)) {
        return OMPI_SUCCESS; /* it would look up an address that may be in no region */
    }
    end_before(job->target, job->win);
    if ((bytes == 0) || job_is_right(job) || ((job->op == MPI_NO_OP) && !job->has_result)) {
        return job_pass(job);
    }
    if (job_fetch(job, &status)) {
        return status;
    }
    if ((job->op == MPI_NO_OP) || ((job->op == MPI_REPLACE) && !job->has_result)) {
        return job_copy(job);
    }
    fits     = size_of(job->origin_type) * (size_t)job->origin_count == bytes;
    fits_int = bytes <= INT_MAX; /* as a type's bytes must */
    if ((job->op == MPI_REPLACE) &&
        (!fits || !fits_int ||
         hook_angara_plugin_is_on_gpu(first_byte(job->origin, job->origin_type)))) {
        return job_pass(job); /* what has gaps can't be packed there */
    }
    return !fits ? MPI_ERR_TYPE : !fits_int ? MPI_ERR_COUNT : job_apply(job);
}

/* ---- the functions of a window --------------------------------------------------------------- */

/* Make the operation, and have a request for it: osc/ucx's own if that does it right, else wait. */
static int run_with_request(const job_t *job, ompi_request_t **request)
{
    int status;

    if (job_is_right(job) && !((job_bytes(job) == 0) && job_is_dynamic(job))) {
        end_before(job->target, job->win);
        return !job->has_result ?
                   own.osc_raccumulate(job->origin, job->origin_count, job->origin_type,
                                       job->target, job->disp, job->target_count, job->target_type,
                                       job->op, job->win, request) :
                   own.osc_rget_accumulate(job->origin, job->origin_count, job->origin_type,
                                           job->result, job->result_count, job->result_type,
                                           job->target, job->disp, job->target_count,
                                           job->target_type, job->op, job->win, request);
    }
    status = own.osc_flush_local(job->target, job->win); /* not in any epoch */
    if (status == OMPI_SUCCESS) {
        status = run(job);
    }
    if (status == OMPI_SUCCESS) {
        status = own.osc_flush_local(job->target, job->win);
    }
    *request = &ompi_request_empty;
    return status;
}

static int rget_accumulate(const void *origin, int origin_count, ompi_datatype_t *origin_type,
                           void *result, int result_count, ompi_datatype_t *result_type, int target,
                           ptrdiff_t disp, int target_count, ompi_datatype_t *target_type,
                           struct ompi_op_t *op, ompi_win_t *win, ompi_request_t **request)
{
    job_t job = {.origin       = (op == MPI_NO_OP) ? NULL : origin,
                 .origin_count = origin_count,
                 .origin_type  = origin_type,
                 .has_result   = result_type != NULL,
                 .result       = result,
                 .result_count = result_count,
                 .result_type  = result_type,
                 .target       = target,
                 .disp         = disp,
                 .target_count = target_count,
                 .target_type  = target_type,
                 .op           = op,
                 .win          = win};

    job.is_single = job_is_single(&job);
    return (request == NULL) ? run(&job) : run_with_request(&job, request);
}

/* The other three are cases of it: without a request, without a result. */

static int get_accumulate(const void *origin, int origin_count, ompi_datatype_t *origin_type,
                          void *result, int result_count, ompi_datatype_t *result_type, int target,
                          ptrdiff_t disp, int target_count, ompi_datatype_t *target_type,
                          struct ompi_op_t *op, ompi_win_t *win)
{
    return rget_accumulate(origin, origin_count, origin_type, result, result_count, result_type,
                           target, disp, target_count, target_type, op, win, NULL);
}

static int raccumulate(const void *origin, int origin_count, ompi_datatype_t *origin_type,
                       int target, ptrdiff_t disp, int target_count, ompi_datatype_t *target_type,
                       struct ompi_op_t *op, ompi_win_t *win, ompi_request_t **request)
{
    return rget_accumulate(origin, origin_count, origin_type, NULL, 0, NULL, target, disp,
                           target_count, target_type, op, win, request);
}

static int accumulate(const void *origin, int origin_count, ompi_datatype_t *origin_type,
                      int target, ptrdiff_t disp, int target_count, ompi_datatype_t *target_type,
                      struct ompi_op_t *op, ompi_win_t *win)
{
    return raccumulate(origin, origin_count, origin_type, target, disp, target_count, target_type,
                       op, win, NULL);
}

static int fetch_and_op(const void *origin, void *result, ompi_datatype_t *type, int target,
                        ptrdiff_t disp, struct ompi_op_t *op, ompi_win_t *win)
{
    uint64_t value = 0;

    if (op == MPI_NO_OP) {
        origin = NULL;
    }
    if (!is_atomic(type, op)) {
        return get_accumulate(origin, 1, type, result, 1, type, target, disp, 1, type, op, win);
    }
    if (origin != NULL) {
        load(&value, origin, size_of(type)); /* 4.1 reads 8 bytes of any type */
        origin = &value;
    }
    end_before(target, win);
    return own.osc_fetch_and_op(origin, result, type, target, disp, op, win);
}

static int compare_and_swap(const void *origin, const void *compare, void *result,
                            ompi_datatype_t *type, int target, ptrdiff_t disp, ompi_win_t *win)
{
    uint64_t value = 0, expected = 0;
    call_t   call = {.func = apply_swap_if_equal, .size = size_of(type)};

    load(&value, origin, call.size);
    load(&expected, compare, call.size);
    end_before(target, win);
    if (is_atomic(type, MPI_REPLACE)) {
        return own.osc_compare_and_swap(&value, &expected, result, type, target, disp, win);
    }
    call.origin   = &value;
    call.expected = &expected;
    if (hook_angara_plugin_is_on_gpu(result)) {
        return own.osc_get_accumulate(&call, 1, type, result, 1, type, target, disp, 1, type,
                                      apply_op, win);
    }
    call.old = result;
    return own.osc_accumulate(&call, 1, type, target, disp, 1, type, apply_op, win);
}

/* A parameter of osc/ucx. */
static bool own_parameter(const char *name)
{
    int         index = mca_base_var_find("ompi", "osc", "ucx", name);
    const bool *value = NULL;

    return (index >= 0) && (mca_base_var_get_value(index, &value, NULL, NULL) == OPAL_SUCCESS) &&
           *value;
}

/* @return whether there is all that is needed */
static bool own_prepare(const ompi_osc_base_module_t *module)
{
    bool is_there;

    pthread_mutex_lock(&own_lock);
    if ((single_key == MPI_KEYVAL_INVALID) &&
        (PMPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, &single_key, NULL) ==
         MPI_SUCCESS) &&
        (PMPI_Op_create(apply, 0, &apply_op) == MPI_SUCCESS)) {
        own = *module; /* the same of all windows */
    }
    is_there = apply_op != MPI_OP_NULL;
    pthread_mutex_unlock(&own_lock);
    return is_there;
}

void hook_angara_accumulate_mend(struct ompi_win_t *win)
{
    ompi_osc_base_module_t *module   = win->w_osc_module;
    bool                    is_told  = false;
    int                     is_there = 1;

    /* Its accumulates would go on behind the call, and want their operands. */
    if (own_parameter("enable_nonblocking_accumulate") || !own_prepare(module)) {
        return;
    }
    opal_info_get_bool(win->super.s_info, SINGLE_KEY, &is_told, &is_there);
    if (is_told || (!is_there && own_parameter(SINGLE_KEY))) {
        PMPI_Win_set_attr(win, single_key, NULL);
    }
    module->osc_accumulate      = accumulate;
    module->osc_get_accumulate  = get_accumulate;
    module->osc_raccumulate     = raccumulate;
    module->osc_rget_accumulate = rget_accumulate;
    module->osc_fetch_and_op    = fetch_and_op;
    if (OSC_UCX_IS_OLD) {
        module->osc_compare_and_swap = compare_and_swap;
    }
}
