/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ordered work of the stand-ins: a thread for each queue performs copies and single writes one
 * after the other, as late, in as many pieces and in as strange an order as it was asked to.
 */
#include "core.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POLL_US    100 /* between looks at what work waits for */
#define JITTER_US  200 /* delays at random are up to this, if no delay was asked for */
#define MAX_PIECES 8
#define GOLDEN     0x9e3779b97f4a7c15ull

struct queue {
    queue_t      *next;
    unsigned      refs; /* the thread's and those of waiters */
    int           gpu;
    void         *owner;
    queue_order_t order;
    int          *error;
    int           killed;  /* the error with which all work is dropped, or 0 */
    int           closing; /* the thread ends when no work is left */
    op_t         *head;    /* it runs or waits for its turn */
    op_t        **tail;
    uint64_t      done; /* number of the last work that ended */
    uint64_t      random;
};

static queue_t *queues;
static uint64_t last_seq;

/* --- what the thread does without the lock --------------------------------------------------*/

static uint64_t next_random(queue_t *queue)
{
    uint64_t value = queue->random += GOLDEN;

    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ value >> 27) * 0x94d049bb133111ebull;
    return value ^ value >> 31;
}

static void nap(uint64_t us)
{
    struct timespec time = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};

    if (us > 0) {
        nanosleep(&time, NULL);
    }
}

static void check_memory(const op_t *op, const memory_t *memory, const char *what)
{
    static const char *const kinds[] = {"device",  "pool",   "virtual",   "imported",
                                        "managed", "pinned", "registered"};

    if (memory != NULL && memory_is_freed(memory) &&
        (!core.late || memory->kind != MEMORY_IMPORTED || memory->dead)) {
        core_bug("%zu bytes are copied %s %s memory at %#lx of %zu bytes, number %llu, GPU %d: "
                 "it was freed before the copy ended",
                 op->length, what, kinds[memory->kind], (unsigned long)memory->addr, memory->size,
                 (unsigned long long)memory->id, memory->gpu);
    }
}

static void check_ends(const op_t *op)
{
    check_memory(op, op->dst_mem, "to");
    check_memory(op, op->src_mem, "from");
}

/* As a GPU writes host memory that it knows, whatever rights the program's pages have by now. */
static int write_known(const op_t *op, size_t from, size_t to)
{
    int fd   = open("/proc/self/mem", O_WRONLY | O_CLOEXEC);
    int done = fd >= 0 && pwrite(fd, op->src + from, to - from,
                                 (off_t)(uintptr_t)(op->dst + from)) == (ssize_t)(to - from);

    if (fd >= 0) {
        close(fd);
    }
    return done;
}

static void copy_piece(const op_t *op, size_t from, size_t to)
{
    if (op->src != NULL && op->dst_mem != NULL && op->dst_mem->kind >= MEMORY_PINNED &&
        write_known(op, from, to)) {
        return;
    }
    if (op->src != NULL) {
        memmove(op->dst + from, op->src + from, to - from);
    } else if (op->length == sizeof(op->value)) {
        __atomic_store_n((uint64_t *)op->dst, op->value, __ATOMIC_RELEASE);
    } else {
        memset(op->dst + from, (int)op->value, to - from);
    }
}

/* Cut into pieces, the last of which may arrive first. */
static void copy_jittered(queue_t *queue, const op_t *op)
{
    size_t   cuts[MAX_PIECES + 1] = {0};
    unsigned num                  = 1 + (unsigned)(next_random(queue) % MAX_PIECES);
    unsigned first;

    num = op->length < 2 * num || op->src == NULL ? 1 : num;
    for (unsigned i = 1; i < num; ++i) {
        cuts[i] = op->length / num * i + next_random(queue) % (op->length / num);
    }
    cuts[num] = op->length;
    first     = (unsigned)(next_random(queue) % num);
    for (unsigned i = 0; i < num; ++i) {
        unsigned piece = (first + num - i) % num;

        check_ends(op);
        copy_piece(op, cuts[piece], cuts[piece + 1]);
        nap(next_random(queue) % JITTER_US / num);
    }
}

static void perform(queue_t *queue, const op_t *op)
{
    if (op->length == 0) {
        return;
    }
    if (!op->is_write) {
        uint64_t most = core.delay_us != 0 ? 2 * (uint64_t)core.delay_us : JITTER_US;

        nap(core.jitter ? next_random(queue) % most : core.delay_us);
    }
    check_ends(op);
    if (core.jitter && !op->is_write) {
        copy_jittered(queue, op);
    } else {
        copy_piece(op, 0, op->length);
    }
    if (!op->is_write) { /* who sees a word may free it */
        check_ends(op);
    }
}

/* --- the thread -----------------------------------------------------------------------------*/

static int queue_error(const queue_t *queue)
{
    return queue->killed != 0 || queue->error == NULL ? queue->killed : *queue->error;
}

/* Does earlier work of other queues come first? */
static int is_behind(const queue_t *queue, const op_t *op)
{
    for (const queue_t *other = queues; other != NULL; other = other->next) {
        if (other != queue && other->owner == queue->owner && other->head != NULL &&
            other->head->seq < op->seq &&
            ((queue->order == QUEUE_DEFAULT && other->order == QUEUE_BLOCKING) ||
             (queue->order == QUEUE_BLOCKING && other->order == QUEUE_DEFAULT))) {
            return 1;
        }
    }
    return 0;
}

static int can_start(const queue_t *queue, const op_t *op)
{
    int held = core.hold && op->length > 0 && !op->is_write;

    return queue_error(queue) != 0 ||
           (!held && !is_behind(queue, op) && (op->ready == NULL || op->ready(op->arg)));
}

static void queue_put(queue_t *queue)
{
    if (--queue->refs == 0) {
        free(queue);
    }
}

/* Its memory isn't used any more. */
static void put_memory(const op_t *op)
{
    if (op->dst_mem != NULL) {
        memory_put(op->dst_mem);
    }
    if (op->src_mem != NULL) {
        memory_put(op->src_mem);
    }
}

/* The work at the head. Releases the lock meanwhile. */
static void run_head(queue_t *queue)
{
    op_t *op    = queue->head;
    int   error = queue_error(queue);

    if (error == 0) {
        error = op->fail;
        if (error != 0 && queue->error != NULL) {
            *queue->error = error;
        }
    }
    if (error == 0) {
        core_unlock();
        perform(queue, op);
        core_lock();
    }
    put_memory(op);
    if (op->end != NULL) { /* who sees its effect may free the memory */
        core_unlock();
        op->end(op->arg, error);
        core_lock();
    }
    queue->done = op->seq;
    queue->head = op->next;
    if (queue->head == NULL) {
        queue->tail = &queue->head;
    }
    free(op->staged);
    free(op);
    core_changed();
}

static void *queue_main(void *arg)
{
    queue_t  *queue = arg;
    queue_t **link;

    core_lock();
    for (;;) {
        if (queue->head == NULL) {
            if (queue->closing) {
                break;
            }
            core_wait(0);
        } else if (can_start(queue, queue->head)) {
            run_head(queue);
        } else {
            core_wait(queue->head->ready != NULL ? POLL_US : 0);
        }
    }
    for (link = &queues; *link != queue; link = &(*link)->next) {
    }
    *link = queue->next;
    core_changed();
    queue_put(queue);
    core_unlock();
    return NULL;
}

/* --- calls ----------------------------------------------------------------------------------*/

queue_t *queue_create(int gpu, void *owner, queue_order_t order, int *error)
{
    static uint64_t created;
    queue_t        *queue = calloc(1, sizeof(*queue));
    sigset_t        all, before;
    pthread_t       thread;
    int             failed;

    if (queue == NULL) {
        return NULL;
    }
    *queue      = (queue_t){.next   = queues,
                            .refs   = 1,
                            .gpu    = gpu,
                            .owner  = owner,
                            .order  = order,
                            .error  = error,
                            .random = core.seed + ++created * GOLDEN};
    queue->tail = &queue->head;

    sigfillset(&all); /* signals are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, NULL, queue_main, queue);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0) {
        free(queue);
        return NULL;
    }
    pthread_detach(thread);
    queues = queue;
    return queue;
}

void queue_destroy(queue_t *queue)
{
    queue->closing = 1;
    core_changed();
}

void queue_kill(void *owner, int error)
{
    queue_t *queue;

    for (queue = queues; queue != NULL; queue = queue->next) {
        if (queue->owner == owner) {
            queue->killed  = error;
            queue->closing = 1;
        }
    }
    core_changed();
    do {
        for (queue = queues; queue != NULL && queue->owner != owner; queue = queue->next) {
        }
        if (queue != NULL) {
            core_wait(0);
        }
    } while (queue != NULL);
}

uint64_t queue_submit(queue_t *queue, const op_t *work)
{
    op_t *op = malloc(sizeof(*op));

    if (op == NULL) {
        core_bug("no memory of the host is left");
    }
    *op      = *work;
    op->next = NULL;
    op->seq  = ++last_seq;
    if (op->dst_mem != NULL) {
        ++op->dst_mem->refs;
    }
    if (op->src_mem != NULL) {
        ++op->src_mem->refs;
    }
    *queue->tail = op;
    queue->tail  = &op->next;
    core_changed();
    return op->seq;
}

void queue_wait(queue_t *queue, uint64_t seq)
{
    ++queue->refs;
    while (queue->done < seq) {
        core_wait(0);
    }
    queue_put(queue);
}

int queue_is_idle(const queue_t *queue)
{
    return queue->head == NULL;
}

static int is_busy(int gpu, const void *owner, uint64_t until, int only_kernels)
{
    for (const queue_t *queue = queues; queue != NULL; queue = queue->next) {
        for (const op_t *op = queue->head; op != NULL && op->seq <= until; op = op->next) {
            if (queue->gpu == gpu && (owner == NULL || queue->owner == owner) &&
                (op->is_kernel || !only_kernels)) {
                return 1;
            }
        }
    }
    return 0;
}

void queue_wait_all(int gpu, const void *owner)
{
    uint64_t until = last_seq;

    while (is_busy(gpu, owner, until, 0)) {
        core_wait(0);
    }
}

void queue_wait_kernels(int gpu, const void *owner)
{
    uint64_t until = last_seq;

    while (is_busy(gpu, owner, until, 1)) {
        core_wait(0);
    }
}

uint64_t queue_last(void)
{
    return last_seq;
}

int queue_is_busy(int gpu, const void *owner, uint64_t until)
{
    return is_busy(gpu, owner, until, 0);
}

unsigned queue_pending(void)
{
    unsigned num = 0;

    for (const queue_t *queue = queues; queue != NULL; queue = queue->next) {
        for (const op_t *op = queue->head; op != NULL; op = op->next) {
            ++num;
        }
    }
    return num;
}
