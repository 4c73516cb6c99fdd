/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The start of copies by ROCm's copy engines: which GPU makes it, in which of its lanes, and how it
 * reaches both ends. Uses all of rocm*.c but rocm_ops.c.
 */
#include "rocm_copy.h"

#include "src/log.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Through the buffer, until all is there. NO_RESOURCE: nothing has been done. */
static angara_status_t copy_pieces(rocm_lane_t *lane, const rocm_job_t *whole,
                                   const ang_gpu_copy_t *after)
{
    angara_status_t status = ANGARA_OK;
    ang_gpu_copy_t  copy;
    rocm_job_t      job;

    for (size_t at = 0; at < whole->length && status == ANGARA_OK; at += job.length) {
        job        = *whole;
        job.length = whole->length - at < ROCM_BOUNCE ? whole->length - at : ROCM_BOUNCE;
        if (job.in != NULL) {
            job.in  = (const char *)job.in + at;
            job.dst = (char *)job.dst + at;
        } else {
            job.out = (char *)job.out + at;
            job.src = (const char *)job.src + at;
        }
        copy = (ang_gpu_copy_t){.is_awaited = 1, .after = at == 0 ? after : NULL};
        while ((status = rocm_lane_start(lane, &job, &copy)) == ANGARA_ERR_NO_RESOURCE && at > 0) {
            sched_yield();
        }
        while (status == ANGARA_INPROGRESS) {
            status = rocm_copy_test(&copy);
            if (status == ANGARA_INPROGRESS) {
                sched_yield();
            }
        }
    }
    return status;
}

/* Between host memory (one of in, out) and that of `gpu`. */
static angara_status_t copy_host(rocm_gpu_t *gpu, rocm_job_t *job, ang_gpu_copy_t *copy)
{
    const void  *host = job->in != NULL ? job->in : job->out;
    rocm_lane_t *lane = rocm_lane_get(gpu, job->in != NULL ? ROCM_TO_DEVICE : ROCM_TO_HOST);
    char        *addr = NULL;

    if (lane == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    switch (rocm_pin_reach(gpu, host, job->length, &addr, &job->pin)) {
    case ROCM_BY_PIECES:
        return copy_pieces(lane, job, copy->after);
    case ROCM_BY_ADDRESS:
        if (job->in != NULL) {
            job->src = addr;
        } else {
            job->dst = addr;
        }
        job->in  = NULL;
        job->out = NULL;
        break;
    default:
        break;
    }
    return rocm_lane_start(lane, job, copy);
}

/*
 * Let a GPU reach another's allocation of this process. The runtime's call sets the whole list of
 * those that do, so the program's must be in it. A program that sets another list at the same time
 * takes ours away: a copy under way then ends with a fault of the GPU.
 */
static angara_status_t gpu_allow(const rocm_gpu_t *gpu, const void *addr)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    hsa_amd_pointer_info_t info;
    hsa_agent_t           *agents;
    rocm_reach_t           reach;
    hsa_status_t           status = HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    int                    known;

    pthread_mutex_lock(&lock);
    known = rocm_info(addr, &info, &reach);
    if (known && rocm_is_reached(&reach, gpu)) {
        status = HSA_STATUS_SUCCESS;
    } else if (known && info.type == HSA_EXT_POINTER_TYPE_HSA) {
        agents = malloc((reach.num + 1) * sizeof(*agents));
        if (agents != NULL) {
            memcpy(agents, reach.agents, reach.num * sizeof(*agents));
            agents[reach.num] = gpu->agent;
            status = rocm.agents_allow_access(reach.num + 1, agents, NULL, info.agentBaseAddress);
            free(agents);
        }
    }
    pthread_mutex_unlock(&lock);
    if (status != HSA_STATUS_SUCCESS) {
        ang_info("GPU %d has no way to memory at %p (hsa_amd_agents_allow_access: %s): it goes "
                 "through the host",
                 gpu->number, addr, rocm_name(status));
        return ANGARA_ERR_UNSUPPORTED;
    }
    return ANGARA_OK;
}

/* Where a copy begins or ends. */
typedef struct {
    const void       *addr;
    rocm_gpu_t       *gpu; /* NULL: it is host memory */
    const rocm_via_t *via; /* NULL: it isn't another process's */
} end_t;

/* @return 0: no GPU of this process reaches it */
static int end_init(end_t *end, const void *addr, const ang_gpu_mem_t *mem)
{
    *end = (end_t){.addr = addr};
    if (mem->ops == NULL) {
        return 1;
    }
    end->via = mem->context;
    end->gpu = end->via != NULL ? end->via->gpu : rocm_gpu(mem->mem.device);
    return end->gpu != NULL;
}

static angara_status_t end_reach(const end_t *end, const rocm_gpu_t *gpu)
{
    if (end->gpu == gpu) {
        return ANGARA_OK;
    }
    return end->via != NULL ? ANGARA_ERR_UNSUPPORTED : gpu_allow(gpu, end->addr);
}

static int end_is_on(const end_t *end, const rocm_gpu_t *gpu)
{
    return end->gpu == gpu && (end->via == NULL || end->via->is_local);
}

/*
 * Memory of another process is copied by the GPU that it is mapped for, which is named as agent of
 * both ends: the runtime finds the owner, and with it the engine, by itself.
 */
static angara_status_t copy_gpus(const end_t *dst, const end_t *src, rocm_job_t *job,
                                 ang_gpu_copy_t *copy)
{
    int             foreign = dst->via != NULL || src->via != NULL;
    rocm_gpu_t     *gpu     = dst->via != NULL ? dst->gpu : src->gpu;
    rocm_lane_t    *lane    = rocm_lane_get(gpu, ROCM_WITHIN);
    angara_status_t status;

    if (lane == NULL) {
        return ANGARA_ERR_NO_MEMORY;
    }
    status = end_reach(dst, gpu);
    if (status == ANGARA_OK) {
        status = end_reach(src, gpu);
    }
    if (status == ANGARA_OK && !foreign) {
        /* The headers ask that each agent reaches both ends. */
        status = end_reach(src, dst->gpu);
    }
    if (status != ANGARA_OK) {
        return status;
    }
    job->within    = end_is_on(dst, gpu) && end_is_on(src, gpu);
    job->dst_agent = foreign ? gpu->agent : dst->gpu->agent;
    job->src_agent = gpu->agent;
    return rocm_lane_start(lane, job, copy);
}

angara_status_t rocm_copy_start(void *dst, const ang_gpu_mem_t *dst_mem, const void *src,
                                const ang_gpu_mem_t *src_mem, size_t length, ang_gpu_copy_t *copy)
{
    rocm_job_t job = {.dst = dst, .src = src, .length = length};
    end_t      from, to;

    if (dst == NULL || dst_mem == NULL || src == NULL || src_mem == NULL || copy == NULL ||
        (dst_mem->ops == NULL && src_mem->ops == NULL)) {
        return ANGARA_ERR_INVALID;
    }
    if (length == 0) {
        return ANGARA_OK;
    }
    if (!rocm_hold() || !end_init(&to, dst, dst_mem) || !end_init(&from, src, src_mem)) {
        return ANGARA_ERR_UNSUPPORTED;
    }
    if (to.gpu != NULL && from.gpu != NULL) {
        return copy_gpus(&to, &from, &job, copy);
    }
    job.dst_agent = to.gpu != NULL ? to.gpu->agent : rocm_host.host;
    job.src_agent = from.gpu != NULL ? from.gpu->agent : rocm_host.host;
    job.in        = from.gpu == NULL ? src : NULL;
    job.out       = to.gpu == NULL ? dst : NULL;
    return copy_host(to.gpu != NULL ? to.gpu : from.gpu, &job, copy);
}
