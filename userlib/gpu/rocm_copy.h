/* SPDX-License-Identifier: BSD-3-Clause */
/* What the three that make copies share: rocm_pin.c, rocm_lane.c, rocm_copy.c. */
#ifndef ANG_ROCM_COPY_H
#define ANG_ROCM_COPY_H

#include "rocm.h"

#define ROCM_BOUNCE (64u << 10) /* bytes of a copy's part of its lane's buffer */

/* ---- rocm_pin.c ------------------------------------------------------------------------------ */

/* Host memory that we have locked. */
typedef struct rocm_pin rocm_pin_t;

/* How a GPU reaches host memory: through the buffer, by an address, piece by piece through the
 * buffer. */
typedef enum { ROCM_BY_BOUNCE, ROCM_BY_ADDRESS, ROCM_BY_PIECES } rocm_means_t;

/* Only with ROCM_BY_ADDRESS fills in *agent_addr_p, that address, and if it has locked the memory
 * *pin_p, which is to be put then. */
rocm_means_t rocm_pin_reach(const rocm_gpu_t *gpu, const void *addr, size_t length,
                            char **agent_addr_p, rocm_pin_t **pin_p);
void         rocm_pin_put(rocm_pin_t *pin);

/* ---- rocm_lane.c ----------------------------------------------------------------------------- */

typedef enum { ROCM_TO_DEVICE, ROCM_TO_HOST, ROCM_WITHIN, ROCM_LANES } rocm_direction_t;

typedef struct rocm_lane rocm_lane_t;

/* A copy as the runtime sees it. */
typedef struct {
    void       *dst;
    const void *src;
    hsa_agent_t dst_agent, src_agent;
    size_t      length;
    int         within; /* one GPU: its copy engine must be asked for */
    void       *out;    /* to host memory through the buffer */
    const void *in;     /* from there */
    rocm_pin_t *pin;
} rocm_job_t;

/* NULL: no memory */
rocm_lane_t *rocm_lane_get(rocm_gpu_t *gpu, rocm_direction_t direction);
/* As copy_start() of ang_gpu_ops_t. Unless it says ANGARA_INPROGRESS, the job's pin is put. */
angara_status_t rocm_lane_start(rocm_lane_t *lane, rocm_job_t *job, ang_gpu_copy_t *copy);

#endif
