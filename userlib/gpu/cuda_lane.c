/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of ours, see cuda_lane.h. Which copies have ended is found out by asking the driver.
 * Events in between tell of the first ones: unlike a word that the GPU writes, they don't hold up
 * the copies (measured on a pair of H100: 5.9 us for each of many copies of 1 MiB with and without,
 * 9.3 with a word). Of copies that are handed to the driver at once the GPU begins one while
 * another ends (on a pair of H200, 1 MiB each: 6.0 us one by one, 4.5 by twos, 3.7 by fours, 3.3 by
 * eights).
 */
#include "cuda_lane.h"

#include "cuda.h"

#include "src/log.h"

#define MARK_NUM   4                   /* copies wait for each other's end if they are so few, */
#define MARK_BYTES ((uint64_t)4 << 20) /* and so short together */

/* ---- events ---------------------------------------------------------------------------------- */

/*
 * Have an event tell of the last copy in the stream, which has this number. Without one, it is
 * known when the stream has nothing to do any more.
 */
static void mark(cuda_lane_t *lane, uint64_t number)
{
    cuda_mark_t *last = &lane->marks[(lane->first + lane->count) % CUDA_MARKS];

    if (lane->count == CUDA_MARKS ||
        (last->event == NULL &&
         cuda.event_create(&last->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)) {
        return;
    }
    if (cuda.event_record(last->event, lane->stream) == CUDA_SUCCESS) {
        last->number         = number;
        lane->marked         = number;
        lane->unmarked_bytes = 0;
        lane->count++;
    }
}

/*
 * Before more copies, of `length` together: does the end of what is in the stream, up to this
 * number, have to be told before theirs? (To ask an event that has come costs 1.3 us: few short
 * ones share one.)
 */
static void mark_if_wanted(cuda_lane_t *lane, uint64_t number, uint64_t length)
{
    uint64_t told = lane->ended > lane->marked ? lane->ended : lane->marked;

    if (number - told >= MARK_NUM ||
        (number > told && lane->unmarked_bytes + length > MARK_BYTES)) {
        mark(lane, number);
    }
}

/* @return CUDA_ERROR_NOT_READY unless there is news. */
static CUresult ask(cuda_lane_t *lane)
{
    const cuda_mark_t *first  = &lane->marks[lane->first];
    uint64_t           number = lane->count > 0 ? first->number : lane->issued;
    CUresult           result;

    result = lane->count > 0 ? cuda.event_query(first->event) : cuda.stream_query(lane->stream);
    if (result == CUDA_SUCCESS) {
        if (lane->count > 0) {
            lane->first = (lane->first + 1) % CUDA_MARKS;
            lane->count--;
        } else {
            lane->unmarked_bytes = 0;
        }
        __atomic_store_n(&lane->ended, number, __ATOMIC_RELEASE);
    }
    return result;
}

CUresult cuda_lane_ask(cuda_lane_t *lane, uint64_t number)
{
    CUresult result = CUDA_SUCCESS;

    cuda_lane_submit(lane);
    while (!cuda_lane_has_ended(lane, number) && result == CUDA_SUCCESS) {
        result = ask(lane);
    }
    return result;
}

int cuda_lane_has_ended(const cuda_lane_t *lane, uint64_t number)
{
    return (int64_t)(__atomic_load_n(&lane->ended, __ATOMIC_ACQUIRE) - number) >= 0;
}

/* ---- copies ---------------------------------------------------------------------------------- */

CUresult cuda_lane_init(cuda_lane_t *lane, uint64_t gather_bytes)
{
    CUresult result = cuda.stream_create(&lane->stream, CU_STREAM_NON_BLOCKING);

    lane->gather_bytes = gather_bytes;
    if (result == CUDA_SUCCESS) {
        pthread_mutex_init(&lane->lock, NULL);
    }
    return result;
}

CUresult cuda_lane_copy(cuda_lane_t *lane, CUdeviceptr dst, CUdeviceptr src, size_t length,
                        uint64_t *number)
{
    CUresult result;

    cuda_lane_submit(lane);
    mark_if_wanted(lane, lane->issued, length);
    result = cuda.memcpy_async(dst, src, length, lane->stream);
    if (result == CUDA_SUCCESS) {
        *number = ++lane->issued;
        lane->unmarked_bytes += length;
        lane->refused_ns = 0;
    }
    return result;
}

int cuda_lane_gathers(const cuda_lane_t *lane, size_t length)
{
    return cuda.memcpy_batch != NULL && length <= lane->gather_bytes / 4 &&
           !__atomic_load_n(&lane->refuses, __ATOMIC_RELAXED);
}

/* Those from this number on, which are the last; once for a lane. */
static void lose(cuda_lane_t *lane, uint64_t number)
{
    lane->lost_last = lane->issued;
    __atomic_store_n(&lane->lost_first, number, __ATOMIC_RELEASE);
    __atomic_store_n(&lane->refuses, 1, __ATOMIC_RELAXED);
}

void cuda_lane_lose(cuda_lane_t *lane)
{
    if (lane->gathered > 0) {
        lose(lane, lane->issued - lane->gathered + 1);
        lane->gathered = 0;
    }
}

int cuda_lane_has_lost(const cuda_lane_t *lane, uint64_t number)
{
    uint64_t first = __atomic_load_n(&lane->lost_first, __ATOMIC_ACQUIRE);

    return first != 0 && number >= first && number <= lane->lost_last;
}

static CUresult copy_all(cuda_lane_t *lane, unsigned count)
{
    CUmemcpyAttributes how   = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                                .flags          = CU_MEMCPY_FLAG_OVERLAP_WITH_COMPUTE};
    size_t             first = 0, failed;
    CUresult           result;

    result = cuda.memcpy_batch(lane->dsts, lane->srcs, lane->lengths, count, &how, &first, 1,
                               &failed, lane->stream);
    if (result != CUDA_SUCCESS) {
        ang_debug("the driver doesn't take several copies at once: %s", cuda_name(result));
        __atomic_store_n(&lane->refuses, 1, __ATOMIC_RELAXED);
    }
    return result;
}

/* It does no harm to copy bytes again, if the driver has taken some before it refused the rest. */
static void copy_each(cuda_lane_t *lane, unsigned count)
{
    CUresult result;

    for (unsigned i = 0; i < count; ++i) {
        result = cuda.memcpy_async(lane->dsts[i], lane->srcs[i], lane->lengths[i], lane->stream);
        if (result != CUDA_SUCCESS) {
            ang_debug("%u copies of %u are to be started again: %s", count - i, count,
                      cuda_name(result));
            lose(lane, lane->issued - (count - i) + 1);
            break;
        }
    }
}

void cuda_lane_submit(cuda_lane_t *lane)
{
    unsigned count = lane->gathered;

    if (count == 0) {
        return;
    }
    lane->gathered = 0;
    mark_if_wanted(lane, lane->issued - count, lane->gathered_bytes);
    if (count == 1 || copy_all(lane, count) != CUDA_SUCCESS) {
        copy_each(lane, count);
    }
    lane->unmarked_bytes += lane->gathered_bytes;
}

CUresult cuda_lane_gather(cuda_lane_t *lane, CUdeviceptr dst, CUdeviceptr src, size_t length,
                          uint64_t *number)
{
    if (lane->gathered == CUDA_GATHER ||
        (lane->gathered > 0 && lane->gathered_bytes + length > lane->gather_bytes)) {
        cuda_lane_submit(lane);
    }
    if (!cuda_lane_gathers(lane, length)) {
        return cuda_lane_copy(lane, dst, src, length, number); /* the driver has just refused */
    }
    if (lane->gathered == 0) {
        lane->gathered_bytes = 0;
    }
    lane->dsts[lane->gathered]    = dst;
    lane->srcs[lane->gathered]    = src;
    lane->lengths[lane->gathered] = length;
    lane->gathered_bytes += length;
    lane->gathered++;
    *number = ++lane->issued;
    return CUDA_SUCCESS;
}
