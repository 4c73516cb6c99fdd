/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in for libcuda: streams, copies and what else is done in their order, events. */
#include "cuda_standin.h"

#include <stdlib.h>
#include <string.h>

#define PER_THREAD ((CUstream)2) /* here the same as the default stream, which is NULL or 1 */

/* Handles of streams and events are numbers that don't come again. */
typedef struct stream {
    struct stream *next;
    CUstream       handle;
    context_t     *context;
    queue_t       *queue;
} stream_t;

typedef struct event {
    struct event *next;
    CUevent       handle;
    unsigned      refs;     /* the list's and those of work under way */
    uint64_t      recorded; /* times */
    uint64_t      reached;
    context_t    *context; /* all of it was recorded, if not NULL: so much... */
    uint64_t      until;   /* ...of its work */
    int           error;   /* that the stream came to it with */
} event_t;

/* What waits for an event. */
typedef struct {
    event_t *event;
    uint64_t until;
} wait_t;

static stream_t *streams;
static event_t  *events;
static uintptr_t last_handle = 0x1000;

static void *allocate(size_t size)
{
    void *memory = calloc(1, size);

    if (memory == NULL) {
        core_bug("no memory of the host is left");
    }
    return memory;
}

/* --- streams --------------------------------------------------------------------------------*/

static stream_t **find_stream(CUstream handle)
{
    stream_t **link;

    for (link = &streams; *link != NULL && (*link)->handle != handle; link = &(*link)->next) {
    }
    return link;
}

CUresult cuda_stream_find(CUstream handle, context_t **context, queue_t **queue)
{
    stream_t *stream;

    if ((uintptr_t)handle <= (uintptr_t)PER_THREAD) {
        *context = cuda_current();
        if (*context == NULL) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        if ((*context)->queue == NULL) {
            (*context)->queue = queue_create((*context)->gpu, *context, QUEUE_DEFAULT,
                                             &(*context)->error);
        }
        *queue = (*context)->queue;
        return *queue != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    stream = *find_stream(handle);
    if (stream == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *context = stream->context;
    *queue   = stream->queue;
    return stream->context->error;
}

void cuda_streams_end(context_t *context)
{
    stream_t **link = &streams;

    while (*link != NULL) {
        stream_t *stream = *link;

        if (stream->context == context) {
            *link = stream->next;
            free(stream);
        } else {
            link = &stream->next;
        }
    }
}

CUresult cuStreamCreate(CUstream *handle, unsigned flags)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    if (result == CUDA_SUCCESS && (handle == NULL || flags > CU_STREAM_NON_BLOCKING)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        context_t *context = cuda_current();
        queue_t   *queue   = queue_create(context->gpu, context,
                                      flags == CU_STREAM_NON_BLOCKING ? QUEUE_FREE : QUEUE_BLOCKING,
                                          &context->error);

        if (queue == NULL) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            stream_t *stream = allocate(sizeof(*stream));

            last_handle += 16;
            *stream = (stream_t){streams, (CUstream)last_handle, context, queue};
            streams = stream;
            *handle = stream->handle;
        }
    }
    return cuda_leave(result);
}

/* Work in it ends by itself. */
CUresult cuStreamDestroy_v2(CUstream handle)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT);

    if (result == CUDA_SUCCESS) {
        stream_t **link   = find_stream(handle);
        stream_t  *stream = *link;

        if (stream == NULL) {
            result = CUDA_ERROR_INVALID_HANDLE;
        } else {
            *link = stream->next;
            queue_destroy(stream->queue);
            free(stream);
        }
    }
    return cuda_leave(result);
}

CUresult cuStreamQuery(CUstream stream)
{
    CUresult   result = cuda_enter(__func__, NEEDS_INIT | NOT_IN_CAPTURES);
    context_t *context;
    queue_t   *queue;

    if (result == CUDA_SUCCESS) {
        result = cuda_stream_find(stream, &context, &queue);
    }
    if (result == CUDA_SUCCESS && !queue_is_idle(queue)) {
        result = CUDA_ERROR_NOT_READY;
    }
    return cuda_leave(result);
}

/* As if a blocking stream captured: the legacy stream can't be asked then. */
CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    if (result == CUDA_SUCCESS) {
        *status = 0;
        result  = core.capture && stream == NULL ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : result;
    }
    return cuda_leave(result);
}

/* Wait for one piece of work. @return what became of its context */
static CUresult wait_for(context_t *context, queue_t *queue, uint64_t seq)
{
    uint64_t id = context->id;

    queue_wait(queue, seq);
    context = cuda_context_of(context, id);
    return context != NULL ? context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Give the stream a piece of work, and wait for its end if `wait`. */
static CUresult submit(CUstream stream, const op_t *op, int wait)
{
    context_t *context;
    queue_t   *queue;
    CUresult   result = cuda_stream_find(stream, &context, &queue);
    uint64_t   seq;

    if (result != CUDA_SUCCESS) {
        return result;
    }
    seq = queue_submit(queue, op);
    return wait ? wait_for(context, queue, seq) : CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    static const op_t nothing;
    CUresult          result = cuda_enter(__func__, NEEDS_INIT | NOT_IN_CAPTURES);

    return cuda_leave(result == CUDA_SUCCESS ? submit(stream, &nothing, 1) : result);
}

/* --- copies ---------------------------------------------------------------------------------*/

/*
 * One end of a copy of GPU `gpu`: what is it, and may it be used? Pageable memory: no *memory. Of
 * more than one mapping of addresses the first: *length gets less.
 */
static CUresult find_end(int gpu, CUdeviceptr ptr, size_t *length, char **bytes,
                         memory_t **memory_p)
{
    memory_t *memory = memory_find(ptr);
    size_t    rest;

    if (memory == NULL) {
        *memory_p = NULL;
        *bytes    = (char *)(uintptr_t)ptr;
        return ptr == 0 || range_contains(ptr) || memory_find_in(ptr, *length) != NULL ?
                   CUDA_ERROR_INVALID_VALUE :
                   CUDA_SUCCESS;
    }
    rest = memory->size - (ptr - memory->addr);
    if (*length > rest && memory->kind != MEMORY_VIRTUAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *length = *length > rest ? rest : *length;
    if (memory_is_device(memory)) {
        if (!core_reaches(gpu, memory->gpu)) {
            return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        }
        if (memory->kind == MEMORY_VIRTUAL && !(memory->access & 1u << gpu)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    *memory_p = memory;
    *bytes    = memory->bytes + (ptr - memory->addr);
    return CUDA_SUCCESS;
}

/* Between contexts of GPUs that don't know each other the driver copies through the host. */
static int is_strange(const context_t *context, const memory_t *memory)
{
    const context_t *owner = memory != NULL ? memory->owner : NULL;

    return owner != NULL && (memory->kind == MEMORY_DEVICE || memory->kind == MEMORY_IMPORTED) &&
           owner->gpu != context->gpu && !(context->peers >> owner->device & 1);
}

/* Both ends of what a copy of n bytes begins with, as far as neither of them is another mapping. */
static CUresult find_ends(int gpu, CUdeviceptr dst, CUdeviceptr src, size_t n, op_t *op)
{
    char    *from = NULL;
    CUresult result;

    op->length = n;
    result     = find_end(gpu, dst, &op->length, &op->dst, &op->dst_mem);
    if (result == CUDA_SUCCESS) {
        result = find_end(gpu, src, &op->length, &from, &op->src_mem);
    }
    op->src = from;
    return result;
}

/* Pageable bytes on their way to a GPU the driver reads within the call, which may return then. */
static void stage(op_t *op)
{
    op->staged = memcpy(allocate(op->length), op->src, op->length);
    op->src    = op->staged;
}

/* Waits for the copy if it must, or if `wait`. May it read pageable bytes before its turn? */
static CUresult copy(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream, int wait,
                     int may_stage)
{
    op_t       op = {.fail = core_count("copy")};
    context_t *context;
    queue_t   *queue;
    CUresult   result = cuda_stream_find(stream, &context, &queue);

    for (size_t at = 0; at < n && result == CUDA_SUCCESS; at += op.length) {
        result = find_ends(context->gpu, dst + at, src + at, n - at, &op);
    }
    for (size_t at = 0; at < n && result == CUDA_SUCCESS; at += op.length) {
        result = find_ends(context->gpu, dst + at, src + at, n - at, &op);
        if (result != CUDA_SUCCESS) {
            break;
        }
        if (is_strange(context, op.dst_mem) || is_strange(context, op.src_mem)) {
            core_count("detour");
        }
        if (may_stage && op.src_mem == NULL && op.dst_mem != NULL) {
            stage(&op);
        }
        result    = submit(stream, &op,
                           wait || op.dst_mem == NULL || (op.src_mem == NULL && op.staged == NULL));
        op.staged = NULL; /* the work's */
        op.fail   = 0;
    }
    return result;
}

static CUresult copy_async(const char *call, CUdeviceptr dst, CUdeviceptr src, size_t n,
                           CUstream stream)
{
    CUresult result = cuda_enter(call, NEEDS_CONTEXT);

    return cuda_leave(result == CUDA_SUCCESS ? copy(dst, src, n, stream, 0, 1) : result);
}

static CUresult copy_sync(const char *call, CUdeviceptr dst, CUdeviceptr src, size_t n)
{
    CUresult result = cuda_enter(call, NEEDS_CONTEXT | NOT_IN_CAPTURES);

    return cuda_leave(result == CUDA_SUCCESS ? copy(dst, src, n, NULL, 1, 0) : result);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream)
{
    return copy_async(__func__, dst, src, n, stream);
}

/* The driver promises no order within a batch: here the last one comes first. */
CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *lengths, size_t count,
                            CUmemcpyAttributes *attributes, size_t *firsts, size_t num_attributes,
                            size_t *failed, CUstream stream)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    if (result == CUDA_SUCCESS &&
        (count == 0 || num_attributes != 1 || firsts[0] != 0 ||
         attributes->srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
         (uintptr_t)stream <= (uintptr_t)PER_THREAD)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    while (result == CUDA_SUCCESS && count-- > 0) {
        *failed = count;
        result  = copy(dsts[count], srcs[count], lengths[count], stream, 0, 0);
    }
    return cuda_leave(result);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream stream)
{
    return copy_async(__func__, dst, (CUdeviceptr)src, n, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream stream)
{
    return copy_async(__func__, (CUdeviceptr)dst, src, n, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream)
{
    return copy_async(__func__, dst, src, n, stream);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
    return copy_sync(__func__, dst, src, n);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t n)
{
    return copy_sync(__func__, dst, (CUdeviceptr)src, n);
}

CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t n)
{
    return copy_sync(__func__, (CUdeviceptr)dst, src, n);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
    return copy_sync(__func__, dst, src, n);
}

/* --- other work in a stream -----------------------------------------------------------------*/

static CUresult fill(CUdeviceptr dst, uint64_t value, size_t n, int is_write, CUstream stream,
                     int wait)
{
    op_t       op = {.value = value, .is_write = is_write};
    context_t *context;
    queue_t   *queue;
    CUresult   result = cuda_stream_find(stream, &context, &queue);

    for (size_t at = 0; at < n && result == CUDA_SUCCESS; at += op.length) {
        op.length = n - at;
        result    = find_end(context->gpu, dst + at, &op.length, &op.dst, &op.dst_mem);
        if (result == CUDA_SUCCESS) {
            result = op.dst_mem != NULL ? submit(stream, &op, wait) : CUDA_ERROR_INVALID_VALUE;
        }
    }
    return result;
}

CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t n)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT | NOT_IN_CAPTURES);

    return cuda_leave(result == CUDA_SUCCESS ? fill(dst, value, n, 0, NULL, 1) : result);
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream stream)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    return cuda_leave(result == CUDA_SUCCESS ? fill(dst, value, n, 0, stream, 0) : result);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr ptr, uint64_t value, unsigned flags)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    if (result == CUDA_SUCCESS) {
        result = ptr % sizeof(value) == 0 && flags == 0 ?
                     fill(ptr, value, sizeof(value), 1, stream, 0) :
                     CUDA_ERROR_INVALID_VALUE;
    }
    return cuda_leave(result);
}

typedef struct {
    CUhostFn function;
    void    *data;
} host_call_t;

/* Isn't called in a context with an error. */
static void call_host(void *arg, int error)
{
    host_call_t *call = arg;

    if (error == 0) {
        call->function(call->data);
    }
    free(call);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    if (result == CUDA_SUCCESS) {
        host_call_t *call = allocate(sizeof(*call));
        op_t         op   = {.end = call_host, .arg = call};

        *call  = (host_call_t){function, data};
        result = submit(stream, &op, 0);
        if (result != CUDA_SUCCESS) {
            free(call);
        }
    }
    return cuda_leave(result);
}

/* --- kernels --------------------------------------------------------------------------------*/

/* There is one kernel, which waits until the 32-bit word of its only argument isn't 0. */
static int word_is_set(void *arg)
{
    return __atomic_load_n((uint32_t *)arg, __ATOMIC_ACQUIRE) != 0;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT | NOT_IN_CAPTURES);

    if (result == CUDA_SUCCESS) {
        *module = (CUmodule)(uintptr_t)image;
    }
    return cuda_leave(result);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    (void)name;
    if (result == CUDA_SUCCESS) {
        *function = (CUfunction)module;
    }
    return cuda_leave(result);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void **arguments, void **extra)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);
    int      fits   = function != NULL && extra == NULL && shared == 0 &&
               grid_x * grid_y * grid_z * block_x * block_y * block_z > 0;

    if (result == CUDA_SUCCESS) {
        memory_t *word = fits ? memory_find(*(CUdeviceptr *)arguments[0]) : NULL;

        if (word == NULL || (word->kind != MEMORY_PINNED && word->kind != MEMORY_REGISTERED)) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            op_t op = {.is_kernel = 1,
                       .ready     = word_is_set,
                       .arg       = word->bytes + (*(CUdeviceptr *)arguments[0] - word->addr)};

            result = submit(stream, &op, 0);
        }
    }
    return cuda_leave(result);
}

/* --- events ---------------------------------------------------------------------------------*/

static event_t **find_event(CUevent handle)
{
    event_t **link;

    for (link = &events; *link != NULL && (*link)->handle != handle; link = &(*link)->next) {
    }
    return link;
}

static void put_event(event_t *event)
{
    if (--event->refs == 0) {
        free(event);
    }
}

CUresult cuEventCreate(CUevent *handle, unsigned flags)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    (void)flags;
    if (result == CUDA_SUCCESS) {
        event_t *event = allocate(sizeof(*event));

        last_handle += 16;
        *event  = (event_t){.next = events, .handle = (CUevent)last_handle, .refs = 1};
        events  = event;
        *handle = event->handle;
    }
    return cuda_leave(result);
}

CUresult cuEventDestroy_v2(CUevent handle)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT);

    if (result == CUDA_SUCCESS) {
        event_t **link  = find_event(handle);
        event_t  *event = *link;

        if (event == NULL) {
            result = CUDA_ERROR_INVALID_HANDLE;
        } else {
            *link  = event->next;
            result = event->error;
            put_event(event);
        }
    }
    return cuda_leave(result);
}

static int is_reached(void *arg)
{
    const wait_t *wait = arg;

    return wait->event->reached >= wait->until;
}

static void end_wait(void *arg, int error)
{
    wait_t *wait = arg;

    (void)error;
    core_lock();
    put_event(wait->event);
    core_unlock();
    free(wait);
}

static void end_record(void *arg, int error)
{
    wait_t *wait = arg;

    core_lock();
    wait->event->reached = wait->until > wait->event->reached ? wait->until : wait->event->reached;
    wait->event->error   = error;
    core_changed();
    core_unlock();
    end_wait(arg, error);
}

/* Record it, or wait for it, in a stream. */
static CUresult use_event(CUstream stream, CUevent handle, int record)
{
    event_t   *event = *find_event(handle);
    context_t *context;
    queue_t   *queue;
    CUresult   result = cuda_stream_find(stream, &context, &queue);
    wait_t    *wait;
    op_t       op = {.ready = record ? NULL : is_reached, .end = record ? end_record : end_wait};

    if (event == NULL || result != CUDA_SUCCESS) {
        return event == NULL ? CUDA_ERROR_INVALID_HANDLE : result;
    }
    wait           = allocate(sizeof(*wait));
    event->context = NULL;
    event->recorded += record;
    ++event->refs;
    *wait  = (wait_t){event, event->recorded};
    op.arg = wait;
    return submit(stream, &op, 0);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    return cuda_leave(result == CUDA_SUCCESS ? use_event(stream, event, 1) : result);
}

CUresult cuCtxRecordEvent(CUcontext ctx, CUevent handle)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT);
    event_t *event  = *find_event(handle);

    if (result == CUDA_SUCCESS && core.capture) { /* however relaxed the thread is */
        core_capture_violation();
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (result == CUDA_SUCCESS && (event == NULL || (void *)cuda_current() != (void *)ctx)) {
        result = CUDA_ERROR_INVALID_VALUE; /* of others nobody has recorded here */
    }
    if (result == CUDA_SUCCESS) {
        event->context = cuda_current();
        event->until   = queue_last();
    }
    return cuda_leave(result);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    CUresult result = cuda_enter(__func__, NEEDS_CONTEXT);

    (void)flags;
    return cuda_leave(result == CUDA_SUCCESS ? use_event(stream, event, 0) : result);
}

static int event_is_reached(const event_t *event)
{
    return event->context != NULL ?
               !queue_is_busy(event->context->gpu, event->context, event->until) :
               event->reached >= event->recorded;
}

CUresult cuEventQuery(CUevent handle)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT | NOT_IN_CAPTURES);

    if (result == CUDA_SUCCESS) {
        event_t *event = *find_event(handle);

        result = event == NULL           ? CUDA_ERROR_INVALID_HANDLE :
                 event_is_reached(event) ? event->error :
                                           CUDA_ERROR_NOT_READY;
    }
    return cuda_leave(result);
}

CUresult cuEventSynchronize(CUevent handle)
{
    CUresult result = cuda_enter(__func__, NEEDS_INIT | NOT_IN_CAPTURES);

    if (result == CUDA_SUCCESS) {
        event_t *event = *find_event(handle);

        if (event == NULL) {
            result = CUDA_ERROR_INVALID_HANDLE;
        } else {
            uint64_t until = event->recorded;

            ++event->refs;
            while (event->reached < until) {
                core_wait(0);
            }
            result = event->error;
            put_event(event);
        }
    }
    return cuda_leave(result);
}
