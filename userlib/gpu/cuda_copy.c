/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies by CUDA's copy engines: each context has a lane (cuda_lane.h) for each direction. */
#define _GNU_SOURCE
#include "cuda.h"
#include "cuda_lane.h"

#include "src/clock.h"
#include "src/log.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SHORT      64            /* tests of a copy, each of which asks the driver; */
#define SELDOM_NS  4000          /* then one so long after another does */
#define REFUSED_NS 2000000000ull /* for so long the driver can't be asked, at most */
#define SPINS      10000         /* questions after which the processor is given away */
#define BOUNCES    16            /* copies at once that come to the host that way */
#define BOUNCE                                                                        \
    ((size_t)8192) /* bytes that come to the host by way of memory that the GPU knows \
                    */

/*
 * Copies within one GPU have a stream of their own: they wait for a multiprocessor, others don't.
 * So have copies to the host that are waited for: nobody else is waited for.
 */
typedef enum {
    LANE_TO_DEVICE,
    LANE_TO_HOST,
    LANE_BETWEEN,
    LANE_WITHIN,
    LANE_READ,
    LANES_NUM
} direction_t;

/* What is handed over at once ends together: within a third of a millisecond. */
static const uint64_t gather_bytes[LANES_NUM] = {
    [LANE_BETWEEN] = (uint64_t)64 << 20, [LANE_WITHIN] = (uint64_t)128 << 20};

/* Bytes on their way to host memory. */
typedef struct {
    void  *dst;
    size_t length;
} bounce_t;

/* A context that we have copied in. */
typedef struct record {
    struct record     *next;
    CUcontext          ctx;
    unsigned long long id;
    int                device;
    int                has_ended; /* atomic */
    unsigned           copies;    /* that refer to it; atomic */
    char              *page;      /* BOUNCE bytes of LANE_READ's, then those of `bounces` */
    int                is_registered;
    uint32_t           bounces_used;     /* bits; atomic */
    bounce_t           bounces[BOUNCES]; /* BOUNCE bytes each */
    cuda_lane_t        lanes[LANES_NUM];
} record_t;

static pthread_mutex_t records_lock = PTHREAD_MUTEX_INITIALIZER;
static record_t       *records; /* behind the lock */

/* ---- records --------------------------------------------------------------------------------- */

static size_t page_size(void)
{
    return (1 + BOUNCES) * BOUNCE;
}

static char *bounce_bytes(const record_t *record, const bounce_t *bounce)
{
    return record->page + (size_t)(1 + bounce - record->bounces) * BOUNCE;
}

/* NULL: all are in use. */
static bounce_t *bounce_get(record_t *record, void *dst, size_t length)
{
    uint32_t used = __atomic_load_n(&record->bounces_used, __ATOMIC_RELAXED);
    unsigned i;

    do {
        if (used == UINT32_MAX >> (32 - BOUNCES)) {
            return NULL;
        }
        i = (unsigned)__builtin_ctz(~used);
    } while (!__atomic_compare_exchange_n(&record->bounces_used, &used, used | 1u << i, 0,
                                          __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
    record->bounces[i] = (bounce_t){.dst = dst, .length = length};
    return &record->bounces[i];
}

static void bounce_put(record_t *record, const bounce_t *bounce)
{
    __atomic_fetch_and(&record->bounces_used, ~(1u << (bounce - record->bounces)),
                       __ATOMIC_RELEASE);
}

/* The driver has let go of all of it, or the context is current. */
static void record_free(record_t *record)
{
    munmap(record->page, page_size());
    free(record);
}

static record_t *record_make(const cuda_scope_t *scope)
{
    size_t    size   = page_size();
    record_t *record = calloc(1, sizeof(*record));
    CUresult  result = CUDA_SUCCESS;
    unsigned  i;

    if (record != NULL) {
        record->page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (record == NULL || record->page == MAP_FAILED) {
        ang_error("no memory for copies of GPU %d", scope->device);
        free(record);
        return NULL;
    }
    /* A child's copy on write would take the page away from the GPU. */
    madvise(record->page, size, MADV_DONTFORK);
    record->ctx           = scope->ctx;
    record->id            = scope->id;
    record->device        = scope->device;
    record->is_registered = cuda.host_register(record->page, size, CU_MEMHOSTREGISTER_PORTABLE) ==
                            CUDA_SUCCESS;
    for (i = 0; i < LANES_NUM && result == CUDA_SUCCESS; ++i) {
        result                 = cuda_lane_init(&record->lanes[i], gather_bytes[i]);
        record->lanes[i].owner = record;
    }
    if (result == CUDA_SUCCESS) {
        return record;
    }
    ang_error("GPU %d: no stream for copies: %s", record->device, cuda_name(result));
    for (i = 0; i < LANES_NUM && record->lanes[i].stream != NULL; ++i) {
        cuda.stream_destroy(record->lanes[i].stream);
    }
    if (!record->is_registered || cuda.host_unregister(record->page) == CUDA_SUCCESS) {
        record_free(record); /* else the driver may still use its page: it stays */
    }
    return NULL;
}

/* Contexts that have ended, and that no copy refers to any more. */
static void records_sweep(void)
{
    record_t **link = &records;
    record_t  *record;

    while ((record = *link) != NULL) {
        if (__atomic_load_n(&record->has_ended, __ATOMIC_ACQUIRE) &&
            __atomic_load_n(&record->copies, __ATOMIC_ACQUIRE) == 0) {
            *link = record->next;
            record_free(record);
        } else {
            link = &record->next;
        }
    }
}

/* That of the current context, with a copy more. */
static record_t *record_get(const cuda_scope_t *scope)
{
    record_t *record;

    pthread_mutex_lock(&records_lock);
    for (record = records; record != NULL; record = record->next) {
        if (record->ctx != scope->ctx || __atomic_load_n(&record->has_ended, __ATOMIC_ACQUIRE)) {
            continue;
        }
        if (record->id == scope->id) {
            break;
        }
        /* Another context has its address now. */
        __atomic_store_n(&record->has_ended, 1, __ATOMIC_RELEASE);
    }
    if (record == NULL) {
        records_sweep();
        record = record_make(scope);
        if (record != NULL) {
            record->next = records;
            records      = record;
        }
    }
    if (record != NULL) {
        __atomic_add_fetch(&record->copies, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&records_lock);
    return record;
}

static void record_put(record_t *record)
{
    __atomic_sub_fetch(&record->copies, 1, __ATOMIC_RELEASE);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static direction_t direction(const ang_gpu_mem_t *dst_mem, const ang_gpu_mem_t *src_mem)
{
    if (dst_mem->ops == NULL) {
        return LANE_TO_HOST;
    }
    if (src_mem->ops == NULL) {
        return LANE_TO_DEVICE;
    }
    return dst_mem->mem.pci == src_mem->mem.pci ? LANE_WITHIN : LANE_BETWEEN;
}

/* Put the copy into the lane's stream. From GPU to GPU it may go along with others. */
static CUresult lane_copy(cuda_lane_t *lane, void *dst, const void *src, size_t length,
                          ang_gpu_copy_t *copy)
{
    CUdeviceptr to   = (CUdeviceptr)(uintptr_t)dst;
    CUdeviceptr from = (CUdeviceptr)(uintptr_t)src;
    CUresult    result;

    pthread_mutex_lock(&lane->lock);
    copy->gathers = cuda_lane_gathers(lane, length);
    copy->may_gather &= copy->gathers;
    result = (copy->may_gather ? cuda_lane_gather : cuda_lane_copy)(lane, to, from, length,
                                                                    &copy->value);
    pthread_mutex_unlock(&lane->lock);
    return result;
}

/* Behind the lane's lock: copy, and wait for all that is in the lane's stream. */
static CUresult lane_run(cuda_lane_t *lane, void *dst, const void *src, size_t length)
{
    CUresult result = cuda.memcpy_async((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src,
                                        length, lane->stream);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (unsigned i = 0; (result = cuda.stream_query(lane->stream)) == CUDA_ERROR_NOT_READY; ++i) {
        if (i > SPINS) {
            sched_yield();
        }
    }
    return result;
}

/*
 * Copy by way of the record's page, and wait: the driver refuses host memory of which only a part
 * is registered, or parts by themselves. LANE_READ, whose page it is.
 */
static CUresult lane_through_page(cuda_lane_t *lane, int is_to_host, char *dst, const char *src,
                                  size_t length)
{
    char    *page   = ((record_t *)lane->owner)->page;
    CUresult result = CUDA_SUCCESS;
    size_t   size;

    for (size_t done = 0; done < length && result == CUDA_SUCCESS; done += size) {
        size = length - done < BOUNCE ? length - done : BOUNCE;
        pthread_mutex_lock(&lane->lock); /* for each piece: others wait for no more than that */
        if (is_to_host) {
            result = lane_run(lane, page, src + done, size);
            if (result == CUDA_SUCCESS) {
                memcpy(dst + done, page, size);
            }
        } else {
            memcpy(page, src + done, size);
            result = lane_run(lane, dst + done, page, size);
        }
        pthread_mutex_unlock(&lane->lock);
    }
    return result;
}

/* Copy to the host, and wait. What is registered only the GPU touches: see is_registered(). */
static CUresult lane_read(cuda_lane_t *lane, void *dst, const void *src, size_t length)
{
    record_t *record = lane->owner;
    char     *bounce = NULL;
    CUresult  result;

    if (length <= BOUNCE && record->is_registered && !ang_gpu_cuda.is_registered(dst, length)) {
        bounce = record->page;
    }
    pthread_mutex_lock(&lane->lock); /* to the end, so that it is the only one in the stream */
    result = lane_run(lane, bounce != NULL ? bounce : dst, src, length);
    if (bounce != NULL && result == CUDA_SUCCESS) {
        memcpy(dst, bounce, length);
    }
    pthread_mutex_unlock(&lane->lock);
    return result;
}

/* Of pageable memory the driver would wait for the copy. What is to end later than another isn't
 * taken aside: that ends only with its test. */
static CUresult start_aside(cuda_lane_t *lane, direction_t lane_number, void *dst, const void *src,
                            size_t length, ang_gpu_copy_t *copy)
{
    record_t *record = lane->owner;
    bounce_t *bounce = NULL;
    CUresult  result;

    if (lane_number == LANE_TO_HOST && length <= BOUNCE && record->is_registered &&
        copy->after == NULL && !ang_gpu_cuda.is_pinned(dst, length)) {
        bounce = bounce_get(record, dst, length);
    }
    result = lane_copy(lane, bounce != NULL ? bounce_bytes(record, bounce) : dst, src, length,
                       copy);
    if (result == CUDA_SUCCESS) {
        copy->bounce = bounce;
    } else if (bounce != NULL) {
        bounce_put(record, bounce);
    }
    return result;
}

#define NO_RECORD  (-1)
#define OTHER_LANE (-2) /* than that of the copy that it is to end after */
#define HAS_ENDED  (-3) /* the copy, well */

/* In the current context. @return what the driver said last, or NO_RECORD, about which all is said,
 * OTHER_LANE, or HAS_ENDED; `copy` isn't filled in then, nor on errors. */
static CUresult start_here(const cuda_scope_t *scope, direction_t lane_number, void *dst,
                           const void *src, size_t length, ang_gpu_copy_t *copy)
{
    CUresult     result = NO_RECORD;
    record_t    *record;
    cuda_lane_t *lane;
    const void  *host = lane_number == LANE_TO_HOST   ? dst :
                        lane_number == LANE_TO_DEVICE ? src :
                                                        NULL;
    int          has_waited;

    /* Where contexts have no ids, the record of one that has ended may be found first. */
    for (unsigned tries = 0; tries < 2; ++tries) {
        record = record_get(scope);
        if (record == NULL) {
            return NO_RECORD;
        }
        lane = &record->lanes[lane_number];
        if (copy->after != NULL && (copy->after->lane != lane || copy->after->bounce != NULL)) {
            record_put(record);
            return OTHER_LANE;
        }
        if (copy->is_awaited && lane_number == LANE_TO_HOST) {
            result     = lane_read(&record->lanes[LANE_READ], dst, src, length);
            has_waited = 1;
        } else {
            result     = start_aside(lane, lane_number, dst, src, length, copy);
            has_waited = 0;
        }
        if (result == CUDA_ERROR_INVALID_VALUE && host != NULL &&
            !ang_gpu_cuda.is_registered(host, length)) {
            if (copy->after != NULL) {
                record_put(record);
                return OTHER_LANE;
            }
            result = lane_through_page(&record->lanes[LANE_READ], lane_number == LANE_TO_HOST, dst,
                                       src, length);
            has_waited = 1;
        }
        if (result == CUDA_SUCCESS && has_waited) {
            record_put(record);
            return HAS_ENDED;
        }
        if (result == CUDA_SUCCESS) {
            copy->lane = lane;
            return CUDA_SUCCESS;
        }
        if (!cuda_has_ended(result)) {
            record_put(record);
            return result;
        }
        __atomic_store_n(&record->has_ended, 1, __ATOMIC_RELEASE);
        record_put(record);
    }
    return result;
}

/* Start it in the context of memory `mem`. ANGARA_ERR_UNSUPPORTED: not in that one. */
static angara_status_t start_in(const ang_gpu_mem_t *mem, direction_t lane_number, void *dst,
                                const void *src, size_t length, ang_gpu_copy_t *copy)
{
    cuda_scope_t scope;
    CUresult     result = cuda_enter(mem->context, mem->mem.device, &scope);

    if (result == CUDA_ERROR_INVALID_DEVICE || cuda_has_ended(result) ||
        (result != CUDA_SUCCESS && (lane_number == LANE_BETWEEN || lane_number == LANE_WITHIN))) {
        ang_debug("GPU %d: there is no context to copy in: %s", mem->mem.device, cuda_name(result));
        return ANGARA_ERR_UNSUPPORTED;
    }
    if (result != CUDA_SUCCESS) {
        ang_error("GPU %d: its context can't be entered for a copy: %s", mem->mem.device,
                  cuda_name(result));
        return ANGARA_ERR_SYSTEM;
    }
    result = start_here(&scope, lane_number, dst, src, length, copy);
    cuda_leave(&scope);
    switch (result) {
    case CUDA_SUCCESS:
        return ANGARA_INPROGRESS;
    case NO_RECORD:
        return ANGARA_ERR_NO_MEMORY;
    case OTHER_LANE:
        return ANGARA_ERR_NO_RESOURCE;
    case HAS_ENDED:
        return ANGARA_OK;
    default:
        break;
    }
    if ((lane_number == LANE_BETWEEN || lane_number == LANE_WITHIN) &&
        (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)) {
        ang_debug("GPU %d: one end of a copy is out of its reach: %s", mem->mem.device,
                  cuda_name(result));
        return ANGARA_ERR_UNSUPPORTED;
    }
    ang_error("GPU %d: a copy of %zu bytes can't be started: %s", mem->mem.device, length,
              cuda_name(result));
    return ANGARA_ERR_SYSTEM;
}

angara_status_t cuda_copy_start(void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                                const ang_gpu_mem_t *src_mem, size_t length, ang_gpu_copy_t *copy)
{
    direction_t     lane_number = direction(dst_mem, src_mem);
    angara_status_t status;

    if (lane_number == LANE_TO_DEVICE || lane_number == LANE_TO_HOST) {
        return start_in(src_mem->ops != NULL ? src_mem : dst_mem, lane_number, dst, src, length,
                        copy);
    }
    /* Where the bytes come from pushes them; if it doesn't reach the other end, that may pull. */
    status = start_in(src_mem, lane_number, dst, src, length, copy);
    if (status == ANGARA_ERR_UNSUPPORTED && dst_mem->mem.device != src_mem->mem.device) {
        status = start_in(dst_mem, lane_number, dst, src, length, copy);
    }
    return status;
}

/*
 * Behind the lane's lock: the driver has no memory to be asked, which may pass, or last for ever
 * where it lets go of no context that was current. @return 0: it has lasted too long, and the copy
 * is given up. It may still be under way: our memory that it may write to stays for good.
 */
static int lane_is_patient(cuda_lane_t *lane, ang_gpu_copy_t *copy)
{
    uint64_t now = ang_clock_ns(CLOCK_MONOTONIC);

    if (lane->refused_ns == 0) {
        lane->refused_ns = now;
    }
    if (now - lane->refused_ns < REFUSED_NS) {
        return 1;
    }
    lane->refused_ns = 0;
    copy->bounce     = NULL;
    __atomic_add_fetch(&((record_t *)lane->owner)->copies, 1, __ATOMIC_RELAXED);
    return 0;
}

/* Go to the driver. After an error of the GPU, or the context's end, it says so to all who ask. */
static angara_status_t lane_look(cuda_lane_t *lane, ang_gpu_copy_t *copy)
{
    record_t    *record = lane->owner;
    cuda_scope_t scope;
    CUresult     result;
    int          has_ended;

    if (pthread_mutex_trylock(&lane->lock) != 0) {
        return ANGARA_INPROGRESS; /* a copy is being started: later */
    }
    __atomic_store_n(&lane->asked_ns, ang_clock_ns(CLOCK_MONOTONIC), __ATOMIC_RELAXED);
    result = cuda_enter(record->ctx, record->device, &scope);
    if (result == CUDA_SUCCESS) {
        result = scope.id == record->id ? cuda_lane_ask(lane, copy->value) :
                                          CUDA_ERROR_CONTEXT_IS_DESTROYED;
        cuda_leave(&scope);
        lane->refused_ns = 0;
    } else if (result == CUDA_ERROR_OUT_OF_MEMORY && !cuda_lane_has_ended(lane, copy->value) &&
               lane_is_patient(lane, copy)) {
        result = CUDA_ERROR_NOT_READY;
    }
    has_ended = cuda_lane_has_ended(lane, copy->value);
    if (!has_ended && result != CUDA_ERROR_NOT_READY) {
        cuda_lane_lose(lane); /* whoever is told that it failed may free its memory */
    }
    pthread_mutex_unlock(&lane->lock);
    if (has_ended) {
        return ANGARA_OK;
    }
    if (result == CUDA_ERROR_NOT_READY) {
        return ANGARA_INPROGRESS;
    }
    if (cuda_has_ended(result)) {
        __atomic_store_n(&record->has_ended, 1, __ATOMIC_RELEASE);
    }
    ang_error("GPU %d: a copy failed: %s", record->device, cuda_name(result));
    return ANGARA_ERR_SYSTEM;
}

/* Is the driver to be asked by this test? Not if that has been done a moment ago. */
static int is_time(const cuda_lane_t *lane, ang_gpu_copy_t *copy)
{
    return copy->is_awaited || ++copy->tests <= SHORT ||
           ang_clock_ns(CLOCK_MONOTONIC) - __atomic_load_n(&lane->asked_ns, __ATOMIC_RELAXED) >=
               SELDOM_NS;
}

angara_status_t cuda_copy_test(ang_gpu_copy_t *copy)
{
    cuda_lane_t    *lane   = copy->lane;
    record_t       *record = lane->owner;
    angara_status_t status = ANGARA_OK;

    if (!cuda_lane_has_ended(lane, copy->value)) {
        status = is_time(lane, copy) ? lane_look(lane, copy) : ANGARA_INPROGRESS;
    }
    if (status == ANGARA_INPROGRESS) {
        return status;
    }
    if (status == ANGARA_OK && cuda_lane_has_lost(lane, copy->value)) {
        status = ANGARA_ERR_NO_RESOURCE;
    }
    if (copy->bounce != NULL) {
        const bounce_t *bounce = copy->bounce;

        if (status == ANGARA_OK) {
            memcpy(bounce->dst, bounce_bytes(record, bounce), bounce->length);
        }
        bounce_put(record, bounce);
    }
    record_put(record);
    return status;
}

void cuda_copy_submit(ang_gpu_copy_t *copy)
{
    cuda_lane_t *lane   = copy->lane;
    record_t    *record = lane->owner;
    cuda_scope_t scope;

    pthread_mutex_lock(&lane->lock);
    /* Where the context can't be had, the next test is told why. */
    if (lane->gathered > 0 && cuda_enter(record->ctx, record->device, &scope) == CUDA_SUCCESS) {
        if (scope.id == record->id) {
            cuda_lane_submit(lane);
        }
        cuda_leave(&scope);
    }
    pthread_mutex_unlock(&lane->lock);
}
