/* SPDX-License-Identifier: BSD-3-Clause */
/* See kmod_agent.h. */
#include "kmod_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define RIGHTS                                                                  \
    (ANGARA_MR_REMOTE_READ | ANGARA_MR_REMOTE_WRITE | ANGARA_MR_REMOTE_ATOMIC | \
     ANGARA_MR_LOCAL_WRITE)
#define WINDOW (2 * PAGE)

enum { PAIR_SELF, PAIR_TARGET };
enum { SLOT_TARGET, SLOT_SELF };

static struct {
    int                      domain, memreg;
    pe_t                     pe;
    char                    *region;
    struct angara_ioc_mr_reg reg;
    uint64_t                 self_value;
} agent;

void stream_write(int stream, const void *bytes, size_t size)
{
    while (size != 0) {
        ssize_t part = write(stream, bytes, size);

        MUST(part > 0);
        bytes = (const char *)bytes + part;
        size -= (size_t)part;
    }
}

int stream_read(int stream, void *bytes, size_t size)
{
    while (size != 0) {
        ssize_t part = read(stream, bytes, size);

        if (part <= 0) {
            return 0;
        }
        bytes = (char *)bytes + part;
        size -= (size_t)part;
    }
    return 1;
}

/* ---- becoming one ---------------------------------------------------------------------------- */

static void user_become(const request_t *request)
{
    struct rlimit limit = {256 << 20, 256 << 20};
    char          map[32];

    MUST(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (request->uid != 0) {
        MUST(setgroups(0, NULL) == 0 && setgid(request->uid) == 0);
        MUST(setresuid(request->uid, request->uid,
                       request->flags & AGENT_SAVED_ROOT ? 0 : request->uid) == 0);
    }
    if (request->flags & AGENT_NAMESPACE) {
        MUST(prctl(PR_SET_DUMPABLE, 1) == 0);
        MUST(unshare(CLONE_NEWUSER) == 0);
        snprintf(map, sizeof(map), "0 %u 1", request->uid);
        file_write("/proc/self/uid_map", map);
        MUST(getuid() == 0);
    }
}

/* @return 0, or the errno of what is refused */
static int agent_open(const request_t *request)
{
    agent.domain = open("/dev/angara0", O_RDWR | O_CLOEXEC);
    if (agent.domain < 0) {
        return errno;
    }
    if (pe_open_key(agent.domain, WINDOW, request->job_key, &agent.pe) != 0) {
        return errno;
    }
    agent.memreg = open("/dev/angara_memreg", O_RDWR | O_CLOEXEC);
    agent.region = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(agent.memreg >= 0 && agent.region != MAP_FAILED);
    MUST(window_commit(agent.pe.fd, 0, WINDOW) == 0);
    memset(agent.pe.window, 0x55, WINDOW);
    memset(agent.region, 0x56, PAGE);
    MUST(mr_reg(agent.memreg, agent.domain, agent.region, PAGE, RIGHTS, &agent.reg) == 0);
    pair_set(&agent.pe, PAIR_SELF, agent.pe.info.node, &agent.pe);
    return 0;
}

/* ---- what it does ---------------------------------------------------------------------------- */

static uint64_t sum(const volatile void *memory, size_t size)
{
    const volatile uint8_t *bytes = memory;
    uint64_t                hash  = 0xcbf29ce484222325ull;

    for (size_t i = 0; i < size; ++i) {
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    }
    return hash;
}

static void look(int arm, view_t *view)
{
    pe_t *pe = &agent.pe;

    if (arm) {
        pe->doorbell->arm++;
        MUST(word32_wait(&pe->status->arm_ack, pe->doorbell->arm));
    }
    memset(view, 0, sizeof(*view));
    memcpy(&view->status, (const void *)pe->status, sizeof(view->status));
    view->window  = sum(pe->window, WINDOW);
    view->region  = sum(agent.region, PAGE);
    view->events  = sum(pe->event, pe->info.event_entries * sizeof(*pe->event));
    view->markers = sum(pe->marker, pe->info.marker_slots * sizeof(*pe->marker));
}

static uint64_t counted(void)
{
    static const unsigned which[] = {ANGARA_CNT_PUTS,    ANGARA_CNT_OFF_PUTS, ANGARA_CNT_OFF_GETS,
                                     ANGARA_CNT_ATOMICS, ANGARA_CNT_NOTIFIES, ANGARA_CNT_REFUSED,
                                     ANGARA_CNT_FAULTS};
    uint64_t              all     = 0;

    for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); ++i) {
        all += agent.pe.status->counters[which[i]];
    }
    return all;
}

static void events_take(outcome_t *outcome)
{
    struct angara_event_record event;

    while (event_take(&agent.pe, &event)) {
        if (event.type == ANGARA_EV_PEER_DOWN && event.pair == PAIR_TARGET) {
            outcome->down++;
        } else {
            outcome->events++;
        }
    }
}

/* @return 1 unless the device says that there is no such PE */
static int target_set(const name_t *target, outcome_t *outcome)
{
    pe_t     name   = {.index = target->index, .generation = target->generation};
    uint32_t before = outcome->down;

    pair_set(&agent.pe, PAIR_TARGET, target->node, &name);
    events_take(outcome);
    return outcome->down == before;
}

/* Post a marker to the target and one to the own PE, which comes in any case. @return did the
 * first come? */
static int target_flush(int there, outcome_t *outcome)
{
    pe_t              *pe   = &agent.pe;
    struct angara_desc mark = {.op      = ANGARA_OP_MARKER,
                               .pair    = PAIR_TARGET,
                               .loffset = SLOT_TARGET,
                               .operand = ++pe->marker_value};
    struct angara_desc self = {.op      = ANGARA_OP_MARKER_SELF,
                               .pair    = PAIR_SELF,
                               .loffset = SLOT_SELF,
                               .operand = ++agent.self_value};
    uint32_t           seen = outcome->down + outcome->events;
    double             end  = deadline_in(20);

    desc_post(pe, &mark);
    desc_post(pe, &self);
    MUST(word_wait(&pe->marker[SLOT_SELF], agent.self_value));
    while (there && pe->marker[SLOT_TARGET] != pe->marker_value) {
        events_take(outcome);
        if (outcome->down + outcome->events != seen || now_seconds() > end) {
            return 0;
        }
    }
    return pe->marker[SLOT_TARGET] == pe->marker_value;
}

/* Every kind of operation. */
static void try_all(const name_t *target, outcome_t *outcome)
{
    static const uint8_t ops[AGENT_OPS] = {ANGARA_OP_PUT, ANGARA_OP_GET, ANGARA_OP_PUT_INLINE,
                                           ANGARA_OP_ATOMIC};
    uint64_t             before         = counted();
    int                  there;

    events_take(outcome); /* those of before, others' notify puts */
    memset(outcome, 0, sizeof(*outcome));
    for (unsigned i = 0; i < AGENT_OPS; ++i) {
        struct angara_desc desc = {
            .op      = ops[i],
            .width   = ops[i] == ANGARA_OP_ATOMIC ? 8 : 0,
            .pair    = PAIR_TARGET,
            .lkey    = ops[i] == ANGARA_OP_PUT_INLINE ? 0 : agent.reg.key,
            .rkey    = target->key,
            .length  = ops[i] == ANGARA_OP_PUT_INLINE ? 8 :
                       ops[i] == ANGARA_OP_ATOMIC     ? 0 :
                                                        64,
            .operand = 1,
        };

        there = target_set(target, outcome);
        desc_post(&agent.pe, &desc);
        outcome->done |= (uint32_t)target_flush(there, outcome) << i;
    }
    there = target_set(target, outcome);
    put(&agent.pe, PAIR_TARGET, 8, "stranger", 8, ~0ull, 0);
    put(&agent.pe, PAIR_TARGET, PAGE, "0123456789abcdef", 16, 64, 1);
    outcome->notify = notify(&agent.pe, PAIR_TARGET, "hello", 5);
    target_flush(there, outcome);
    events_take(outcome);
    outcome->counted = counted() - before;
}

/* Names of one index. @return seconds */
static double guess(const name_t *target, unsigned count)
{
    outcome_t outcome = {0};
    double    start   = now_seconds();
    name_t    name    = *target;

    for (unsigned i = 0; i < count; ++i) {
        name.generation++;
        MUST(!target_set(&name, &outcome));
    }
    return now_seconds() - start;
}

static void obey(int stream)
{
    outcome_t outcome;
    order_t   order;
    view_t    view;
    double    seconds;

    while (stream_read(stream, &order, sizeof(order)) && order.kind != ORDER_QUIT) {
        switch (order.kind) {
        case ORDER_LOOK:
            look((int)order.count, &view);
            stream_write(stream, &view, sizeof(view));
            break;
        case ORDER_TRY:
            try_all(&order.target, &outcome);
            stream_write(stream, &outcome, sizeof(outcome));
            break;
        default:
            seconds = guess(&order.target, order.count);
            stream_write(stream, &seconds, sizeof(seconds));
            break;
        }
    }
}

static int job_call(const request_t *request)
{
    int                   fd  = open("/dev/angara_jobkey", O_RDWR | O_CLOEXEC);
    struct angara_ioc_job job = {
        .size = sizeof(job), .uid = request->uid, .value = request->job_key};

    MUST(fd >= 0);
    return ioctl(fd, request->kind == REQUEST_GRANT ? ANGARA_IOC_JOB_ADD : ANGARA_IOC_JOB_DEL,
                 &job) == 0 ?
               0 :
               errno;
}

void agent_serve(int stream, const request_t *request)
{
    name_t name = {.error = 0};

    if (request->kind != REQUEST_AGENT) {
        name.error = job_call(request);
        stream_write(stream, &name, sizeof(name));
        return;
    }
    user_become(request);
    name.error = agent_open(request);
    if (name.error == 0) {
        name.node       = agent.pe.info.node;
        name.index      = agent.pe.index;
        name.generation = agent.pe.generation;
        name.key        = agent.reg.key;
    }
    stream_write(stream, &name, sizeof(name));
    obey(stream);
}
