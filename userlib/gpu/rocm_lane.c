/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies under way, and their ends. Each GPU has a lane for each direction; a copy has a slot of
 * its lane, with a signal whose value is the word that tells its end: 1 under way, 0 ended,
 * negative failed. The signal's memory is the runtime's, which our reference keeps (rocm.h).
 *
 * Order: a copy waits on the GPU for the signal of the one before in its lane, unless that is known
 * to have ended. From this follow two rules:
 *   - a signal isn't used again before the copy that waits for it has ended;
 *   - the runtime waits for 0, so a signal that says failed is set to 0 once its slot remembers it,
 *     or what is behind would never start.
 *
 * A copy whose thread waits for it always gets a slot in the end: some are kept for those. All
 * others may be busy with copies of that same thread, which it doesn't test meanwhile.
 *
 * Uses rocm.c, and of rocm_pin.c only rocm_pin_put(); what there is at the two ends of a copy is
 * rocm_copy.c's.
 */
#include "rocm_copy.h"

#include "src/log.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS      64u        /* copies under way in a lane */
#define SLOTS_KEPT 16u        /* of them, for those that are awaited */
#define LOOK       (1u << 12) /* tests of a copy between two looks at its lane */

typedef struct {
    rocm_lane_t             *lane;
    hsa_signal_t             signal; /* handle 0: none yet */
    const volatile uint64_t *word;
    uint64_t                 number;  /* of the copy in the lane, from 1 */
    uint64_t                 waiting; /* number of the copy that waits for the signal; 0: none */
    int                      busy;    /* the copy's owner hasn't seen its end */
    int                      is_awaited;
    int                      failed;
    void                    *out; /* to copy from the buffer at the end, or NULL */
    size_t                   length;
    rocm_pin_t              *pin; /* or NULL */
} slot_t;

struct rocm_lane {
    const rocm_gpu_t *gpu;
    pthread_mutex_t   lock;           /* of all below; never with that of rocm_pin.c */
    uint64_t          started, ended; /* numbers of the last ones */
    unsigned          last;           /* the slot of `started` */
    unsigned          unawaited;      /* busy slots of copies that aren't awaited */
    char             *bounce;         /* SLOTS of ROCM_BOUNCE bytes; NULL: none yet */
    slot_t            slots[SLOTS];
};

struct rocm_lanes {
    rocm_lane_t lanes[ROCM_LANES];
};

/* ---- lanes ----------------------------------------------------------------------------------- */

static pthread_mutex_t lanes_lock = PTHREAD_MUTEX_INITIALIZER;

rocm_lane_t *rocm_lane_get(rocm_gpu_t *gpu, rocm_direction_t direction)
{
    struct rocm_lanes *lanes = __atomic_load_n(&gpu->lanes, __ATOMIC_ACQUIRE);

    if (lanes != NULL) {
        return &lanes->lanes[direction];
    }
    pthread_mutex_lock(&lanes_lock);
    lanes = gpu->lanes;
    if (lanes == NULL) {
        lanes = calloc(1, sizeof(*lanes));
    }
    for (unsigned i = 0; gpu->lanes == NULL && lanes != NULL && i < ROCM_LANES; ++i) {
        lanes->lanes[i].gpu = gpu;
        pthread_mutex_init(&lanes->lanes[i].lock, NULL);
        for (unsigned n = 0; n < SLOTS; ++n) {
            lanes->lanes[i].slots[n].lane = &lanes->lanes[i];
        }
    }
    __atomic_store_n(&gpu->lanes, lanes, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lanes_lock);
    return lanes != NULL ? &lanes->lanes[direction] : NULL;
}

/* The lane's lock is held in the functions below, but where they say otherwise. */

/* Has its copy ended? Lets those go on that wait for one that failed. */
static int slot_look(slot_t *slot)
{
    int64_t value = (int64_t)__atomic_load_n(slot->word, __ATOMIC_ACQUIRE);

    if (value > 0) {
        return 0;
    }
    if (value < 0) {
        slot->failed = 1;
        rocm.signal_store(slot->signal, 0);
    }
    if (slot->number > slot->lane->ended) {
        slot->lane->ended = slot->number; /* so have those before */
    }
    return 1;
}

static void lane_look(rocm_lane_t *lane)
{
    for (unsigned i = 0; i < SLOTS; ++i) {
        if (lane->slots[i].busy) {
            slot_look(&lane->slots[i]);
        }
    }
}

/* HSA_AMD_SIGNAL_AMD_GPU_ONLY: others have no value pointer. */
static hsa_status_t slot_init(slot_t *slot)
{
    volatile hsa_signal_value_t *word;
    hsa_signal_t                 signal;
    hsa_status_t                 status;

    status = rocm.signal_create(0, 0, NULL, HSA_AMD_SIGNAL_AMD_GPU_ONLY, &signal);
    if (status != HSA_STATUS_SUCCESS) {
        return status;
    }
    status = rocm.signal_value_pointer(signal, &word);
    if (status != HSA_STATUS_SUCCESS) {
        rocm.signal_destroy(signal);
        return status;
    }
    slot->signal = signal;
    slot->word   = (const volatile uint64_t *)word;
    return HSA_STATUS_SUCCESS;
}

static angara_status_t lane_take(rocm_lane_t *lane, int is_awaited, slot_t **slot_p)
{
    hsa_status_t status;
    slot_t      *slot;

    if (!is_awaited && lane->unawaited == SLOTS - SLOTS_KEPT) {
        lane_look(lane);
        return ANGARA_ERR_NO_RESOURCE;
    }
    for (int again = 0; again < 2; ++again) {
        for (unsigned i = 1; i <= SLOTS; ++i) {
            slot = &lane->slots[(lane->last + i) % SLOTS];
            if (slot->busy || slot->waiting > lane->ended) {
                continue;
            }
            status = slot->signal.handle == 0 ? slot_init(slot) : HSA_STATUS_SUCCESS;
            if (status != HSA_STATUS_SUCCESS) {
                ang_error("GPU %d: no signal for copies: %s", lane->gpu->number, rocm_name(status));
                return ANGARA_ERR_NO_MEMORY;
            }
            *slot_p = slot;
            return ANGARA_OK;
        }
        lane_look(lane);
    }
    return ANGARA_ERR_NO_RESOURCE;
}

static char *lane_bounce(rocm_lane_t *lane, const slot_t *slot)
{
    hsa_agent_t  agent  = lane->gpu->agent;
    hsa_status_t status = HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    void        *bounce = NULL;

    if (lane->bounce == NULL && rocm_host.pool.handle != 0) {
        status = rocm.pool_allocate(rocm_host.pool, (size_t)SLOTS * ROCM_BOUNCE, 0, &bounce);
        if (status == HSA_STATUS_SUCCESS) {
            status = rocm.agents_allow_access(1, &agent, NULL, bounce);
            if (status == HSA_STATUS_SUCCESS) {
                lane->bounce = bounce;
            } else {
                rocm.pool_free(bounce);
            }
        }
    }
    if (lane->bounce == NULL) {
        ang_error("GPU %d: no host memory for copies (%u KiB): %s", lane->gpu->number,
                  SLOTS * ROCM_BOUNCE >> 10, rocm_name(status));
        return NULL;
    }
    return lane->bounce + (size_t)(slot - lane->slots) * ROCM_BOUNCE;
}

/* With equal agents, the runtime copies by a kernel if it finds that both ends are on that GPU: a
 * kernel that fills the GPU would have to end first. */
static hsa_status_t job_submit(const rocm_job_t *job, unsigned num_deps, const hsa_signal_t *dep,
                               hsa_signal_t signal)
{
    if (job->within && rocm.copy_on_engine != NULL &&
        rocm.copy_on_engine(job->dst, job->dst_agent, job->src, job->src_agent, job->length,
                            num_deps, dep, signal, ROCM_SDMA_ENGINE_0,
                            true) == HSA_STATUS_SUCCESS) {
        return HSA_STATUS_SUCCESS;
    }
    return rocm.memory_async_copy(job->dst, job->dst_agent, job->src, job->src_agent, job->length,
                                  num_deps, dep, signal);
}

static angara_status_t lane_submit(rocm_lane_t *lane, rocm_job_t *job, slot_t *slot)
{
    slot_t      *before = lane->ended < lane->started ? &lane->slots[lane->last] : NULL;
    char        *bounce = NULL;
    hsa_status_t status;

    if (job->in != NULL || job->out != NULL) {
        bounce = lane_bounce(lane, slot);
        if (bounce == NULL) {
            return ANGARA_ERR_NO_MEMORY;
        }
    }
    if (job->in != NULL) {
        memcpy(bounce, job->in, job->length);
        job->src = bounce;
    } else if (job->out != NULL) {
        job->dst = bounce;
    }
    if (before != NULL && slot_look(before)) {
        before = NULL;
    }
    rocm.signal_store(slot->signal, 1);
    status = job_submit(job, before != NULL, before != NULL ? &before->signal : NULL, slot->signal);
    if (status != HSA_STATUS_SUCCESS) {
        ang_error("GPU %d: a copy of %zu bytes can't be started: hsa_amd_memory_async_copy: %s",
                  lane->gpu->number, job->length, rocm_name(status));
        return ANGARA_ERR_SYSTEM;
    }
    slot->number  = ++lane->started;
    slot->waiting = 0;
    slot->failed  = 0;
    slot->busy    = 1;
    slot->out     = job->out;
    slot->length  = job->length;
    slot->pin     = job->pin;
    lane->last    = (unsigned)(slot - lane->slots);
    if (before != NULL) {
        before->waiting = slot->number;
    }
    return ANGARA_INPROGRESS;
}

/* Without the lock. */
angara_status_t rocm_lane_start(rocm_lane_t *lane, rocm_job_t *job, ang_gpu_copy_t *copy)
{
    angara_status_t status;
    slot_t         *slot = NULL;

    pthread_mutex_lock(&lane->lock);
    status = copy->after != NULL && ((const slot_t *)copy->after->lane)->lane != lane ?
                 ANGARA_ERR_NO_RESOURCE :
                 lane_take(lane, copy->is_awaited, &slot);
    if (status == ANGARA_OK) {
        status = lane_submit(lane, job, slot);
    }
    if (status == ANGARA_INPROGRESS) {
        slot->is_awaited = copy->is_awaited;
        lane->unawaited += !slot->is_awaited;
    }
    pthread_mutex_unlock(&lane->lock);
    if (status == ANGARA_INPROGRESS) {
        copy->word  = slot->word;
        copy->value = 0;
        copy->lane  = slot;
    } else if (job->pin != NULL) {
        rocm_pin_put(job->pin);
    }
    return status;
}

/* ---- the end of a copy ----------------------------------------------------------------------- */

static angara_status_t slot_end(slot_t *slot)
{
    rocm_lane_t *lane = slot->lane;
    int          failed;

    pthread_mutex_lock(&lane->lock);
    slot_look(slot);
    failed = slot->failed;
    pthread_mutex_unlock(&lane->lock);

    if (failed) {
        ang_error("GPU %d: a copy of %zu bytes failed: its signal says so, the kernel's log may "
                  "say why",
                  lane->gpu->number, slot->length);
    } else if (slot->out != NULL) {
        memcpy(slot->out, lane->bounce + (size_t)(slot - lane->slots) * ROCM_BOUNCE, slot->length);
    }
    if (slot->pin != NULL) {
        rocm_pin_put(slot->pin);
    }
    pthread_mutex_lock(&lane->lock);
    lane->unawaited -= !slot->is_awaited;
    slot->busy = 0;
    pthread_mutex_unlock(&lane->lock);
    return failed ? ANGARA_ERR_SYSTEM : ANGARA_OK;
}

/* Now and then: its turn may not come since a copy before it has failed, which nobody has tested
 * since; or the runtime has ended in spite of our reference, as it does while a process exits. */
static angara_status_t slot_ask(slot_t *slot)
{
    rocm_lane_t *lane = slot->lane;

    if (!rocm_is_started()) {
        /* The slot isn't used again: nobody knows what becomes of the bytes. */
        ang_error("GPU %d: a copy of %zu bytes is lost: ROCm's runtime has ended",
                  lane->gpu->number, slot->length);
        return ANGARA_ERR_SYSTEM;
    }
    pthread_mutex_lock(&lane->lock);
    lane_look(lane);
    pthread_mutex_unlock(&lane->lock);
    return ANGARA_INPROGRESS;
}

angara_status_t rocm_copy_test(ang_gpu_copy_t *copy)
{
    if (copy == NULL || copy->word == NULL) {
        return ANGARA_ERR_INVALID;
    }
    if ((int64_t)__atomic_load_n(copy->word, __ATOMIC_ACQUIRE) <= 0) {
        return slot_end(copy->lane);
    }
    return ++copy->tests % LOOK == 0 ? slot_ask(copy->lane) : ANGARA_INPROGRESS;
}
