/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Carrying out the requests that a PE's slots hold: see service.h. Called by the helper's thread,
 * or the owner's progress, with the helper's lock held (helper.c). Requests come from other
 * processes: everything is checked against the own table.
 */
#define _GNU_SOURCE
#include "gpu_mem.h"
#include "vm.h"

#include "engine/atomic.h"
#include "src/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Between a region of GPU memory, which the program may have freed, and staging memory. */
static angara_status_t gpu_copy(const soft_mr_entry_t *entry, uint64_t dst, uint64_t src,
                                size_t length)
{
    ang_gpu_mem_t   mem;
    angara_status_t status = soft_gpu_check(entry, &mem);

    return status == ANGARA_OK && length != 0 ? soft_gpu_copy(dst, src, length) : status;
}

static angara_status_t serve_atomic(const soft_request_t *request, uint64_t addr, uint64_t *old)
{
    ang_desc_t desc = {
        .atomic  = request->atomic,
        .width   = request->width,
        .operand = request->operand,
        .compare = request->compare,
    };
    angara_status_t status;

    if (addr % request->width != 0) {
        return ANGARA_ERR_BOUNDS;
    }
    status = soft_guard_writable(addr, request->width);
    return status == ANGARA_OK ? ang_cpu_atomic((void *)(uintptr_t)addr, &desc, old) : status;
}

static angara_status_t serve_data(soft_pe_t *pe, const soft_request_t *request, uint64_t staging,
                                  uint64_t *old)
{
    static const unsigned rights[ANG_OP_LAST] = {
        [ANG_OP_PUT]    = ANGARA_ACCESS_REMOTE_WRITE,
        [ANG_OP_GET]    = ANGARA_ACCESS_REMOTE_READ,
        [ANG_OP_ATOMIC] = ANGARA_ACCESS_REMOTE_ATOMIC,
    };
    uint64_t        length = request->op == ANG_OP_ATOMIC ? request->width : request->length;
    uint64_t        addr;
    angara_status_t status;

    const soft_mr_entry_t *entry;

    status = soft_mr_check(pe->dom->shared, pe->dom->mr_max, request->key, request->offset, length,
                           rights[request->op], &addr, &entry);
    if (status != ANGARA_OK) {
        return status;
    }
    switch (request->op) {
    case ANG_OP_PUT:
        return entry->kind != ANGARA_MEM_HOST ? gpu_copy(entry, addr, staging, length) :
                                                soft_guard_copy(addr, staging, length);
    case ANG_OP_GET:
        return entry->kind != ANGARA_MEM_HOST ? gpu_copy(entry, staging, addr, length) :
                                                soft_guard_copy(staging, addr, length);
    default:
        return serve_atomic(request, addr, old);
    }
}

static int request_is_sane(const soft_request_t *request)
{
    switch (request->op) {
    case ANG_OP_PUT:
    case ANG_OP_GET:
        return request->is_direct ? request->length != 0 : request->length <= SOFT_STAGING;
    case ANG_OP_ATOMIC:
        return !request->is_direct && request->atomic < ANGARA_ATOMIC_LAST &&
               (request->width == 4 || request->width == 8);
    case ANG_OP_MARKER:
        return !request->is_direct;
    default:
        return 0;
    }
}

/* Allocate the slot's staging memory, the first time that a request needs it. */
static angara_status_t stage(soft_pe_t *pe, soft_slot_t *slot, size_t offset)
{
    angara_status_t status;

    if (slot->staged) {
        return ANGARA_OK;
    }
    status = soft_segment_commit(&pe->segment, offset, SOFT_STAGING);
    if (status == ANGARA_OK) {
        __atomic_store_n(&slot->staged, 1, __ATOMIC_RELAXED);
    }
    return status;
}

/* By a GPU of this process, between its own host memory and GPU memory of the requester. */
static angara_status_t serve_direct(soft_pe_t *pe, const soft_slot_t *slot,
                                    const soft_request_t *request, uint64_t *moved)
{
    uint64_t        owner  = __atomic_load_n(&slot->owner, __ATOMIC_ACQUIRE);
    uint64_t        state  = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
    int             is_put = request->op == ANG_OP_PUT;
    uint64_t        length = request->length < SOFT_GPU_PIECE ? request->length : SOFT_GPU_PIECE;
    uint64_t        addr;
    angara_status_t status;

    const soft_mr_entry_t *entry;

    if (soft_state_phase(state) != SOFT_SERVING) {
        return ANGARA_ERR_UNSUPPORTED; /* abandoned: that may be the next one's number */
    }
    status = soft_mr_check(pe->dom->shared, pe->dom->mr_max, request->key, request->offset, length,
                           is_put ? ANGARA_ACCESS_REMOTE_WRITE : ANGARA_ACCESS_REMOTE_READ, &addr,
                           &entry);
    if (status != ANGARA_OK) {
        return status;
    }
    *moved = length;
    return entry->kind == ANGARA_MEM_HOST ?
               soft_gpu_serve(request, soft_owner_pid(owner), addr, length) :
               ANGARA_ERR_UNSUPPORTED;
}

static angara_status_t perform(soft_pe_t *pe, unsigned index, uint64_t *old)
{
    soft_slot_t    *slot    = &pe->service->slots[index];
    soft_request_t  request = slot->request; /* what is checked is this copy */
    size_t          offset  = pe->layout.staging + (size_t)index * SOFT_STAGING;
    angara_status_t status  = ANGARA_OK;

    if (!request_is_sane(&request)) {
        return ANGARA_ERR_INVALID;
    }
    if (request.op == ANG_OP_MARKER) {
        return ANGARA_OK;
    }
    if (request.is_direct) {
        return serve_direct(pe, slot, &request, old);
    }
    if (request.op != ANG_OP_ATOMIC) {
        status = stage(pe, slot, offset);
    }
    return status == ANGARA_OK ? serve_data(pe, &request, (uintptr_t)pe->seg + offset, old) :
                                 status;
}

/* The pipe of a requester that sleeps, told by its inode from what may have that number since. */
static int open_sleeper(const soft_slot_t *slot)
{
    uint64_t    owner = __atomic_load_n(&slot->owner, __ATOMIC_RELAXED);
    struct stat info;
    int         fd;

    fd = soft_open_of(soft_owner_pid(owner), slot->wake_fd, S_IFIFO, O_RDWR | O_NONBLOCK, &info);
    if (fd >= 0 && info.st_ino != slot->wake_inode) {
        close(fd);
        return -1;
    }
    if (fd < 0) { /* it looks again by itself, in a while */
        ang_debug("waking pid %d: %s", (int)soft_owner_pid(owner), strerror(errno));
    }
    return fd;
}

/* Give the answer, and wake its owner if that sleeps. From DONE on, the slot isn't ours. */
static void answer(soft_slot_t *slot, uint64_t state)
{
    int looked = 0;
    int fd     = -1;

    do {
        if (soft_state_phase(state) == SOFT_ABANDONED) {
            __atomic_store_n(&slot->state, soft_state_to(state, SOFT_IDLE), __ATOMIC_RELEASE);
            break;
        }
        if ((state & SOFT_SLEEPS) && !looked) {
            fd     = open_sleeper(slot);
            looked = 1;
        }
    } while (!__atomic_compare_exchange_n(&slot->state, &state, soft_state_to(state, SOFT_DONE), 0,
                                          __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    if (fd >= 0) {
        if (write(fd, "", 1) < 0) {
            ang_debug("a sleeper's pipe is full"); /* then it wakes anyway */
        }
        close(fd);
    }
}

static void serve_one(soft_pe_t *pe, unsigned index)
{
    soft_slot_t *slot  = &pe->service->slots[index];
    uint64_t     state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
    uint64_t     old   = 0;

    do {
        if (soft_state_phase(state) != SOFT_POSTED) {
            return; /* taken back */
        }
    } while (!__atomic_compare_exchange_n(&slot->state, &state, soft_state_to(state, SOFT_SERVING),
                                          0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    slot->status = perform(pe, index, &old);
    slot->old    = old;
    answer(slot, soft_state_to(state, SOFT_SERVING));
}

unsigned soft_serve(soft_pe_t *pe)
{
    soft_service_t *service = pe->service;
    uint32_t        serving = SOFT_WORK_SERVED;
    unsigned        count   = 0;
    uint64_t        posted;

    if (!__atomic_load_n(&service->work, __ATOMIC_SEQ_CST)) {
        return 0;
    }
    __atomic_store_n(&service->work, serving, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < SOFT_SERVICE_SLOTS / 64; ++i) {
        posted = __atomic_exchange_n(&service->posted[i], 0, __ATOMIC_SEQ_CST);
        for (; posted != 0; posted &= posted - 1) {
            serve_one(pe, i * 64 + (unsigned)__builtin_ctzll(posted));
            count++;
        }
    }
    __atomic_compare_exchange_n(&service->work, &serving, SOFT_WORK_NONE, 0, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    return count;
}
