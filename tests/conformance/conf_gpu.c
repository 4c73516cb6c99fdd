/* SPDX-License-Identifier: BSD-3-Clause */
/* See conf_gpu.h. */
#define _GNU_SOURCE
#include "conf_gpu.h"

#include "../gpu/device.h"
#include "../gpu/standin/standin.h"
#include "conf.h"

#include <pthread.h>
#include <sys/mman.h>

#define VIEWS_MAX 256
#define PAGE      4096u
#define FRONT     192u /* bytes of an allocation before the region, which ends where it does */

typedef struct {
    char  *view; /* NULL: unused */
    char  *gpu;
    size_t length;
    char  *mapping; /* pages that hold the view */
    size_t mapped;
    char  *next; /* once the memory is lost: other memory, probably at the same address */
} view_t;

/* Of this rank: it starts the runtime itself, since none survives fork(). */
static const device_runtime_t *runtime;
static standin_t               standin;
static unsigned                num_gpus, num_allocs;
static view_t                  views[VIEWS_MAX];
static pthread_mutex_t         lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- memory ---------------------------------------------------------------------------------- */

/* One of the words, separated by commas, of ANGARA_TEST_MEMORY? */
static int is_wanted(const char *word)
{
    const char *list   = getenv("ANGARA_TEST_MEMORY");
    size_t      length = strlen(word);

    while (list != NULL) {
        if ((strncmp(list, word, length) == 0) && ((list[length] == ',') || (list[length] == 0))) {
            return 1;
        }
        list = strchr(list, ',');
        list = (list != NULL) ? list + 1 : NULL;
    }
    return 0;
}

int conf_on_gpu(unsigned rank)
{
    return (getenv("ANGARA_TEST_MEMORY") != NULL) && !is_wanted((rank % 2) != 0 ? "even" : "odd");
}

int conf_reaches(void)
{
    return conf_env_on("ANGARA_SOFT_CMA") && !is_wanted("apart");
}

static void start(unsigned rank)
{
    const char *name = is_wanted("rocm") ? "rocm" : "cuda";
    char        gpu[16];

    if (is_wanted("apart")) {
        snprintf(gpu, sizeof(gpu), "%u", rank % 2);
        setenv("STANDIN_VISIBLE", gpu, 1);
    }
    runtime  = device_runtime(name);
    num_gpus = (runtime != NULL) ? runtime->open() : 0;
    if (num_gpus == 0) {
        rank_fail(__FILE__, __LINE__, "there is no memory of %s", name);
    }
    if (!standin_load(device_library(runtime), &standin)) {
        rank_fail(__FILE__, __LINE__, "%s is no stand-in: tests can't see its memory",
                  runtime->library);
    }
}

/* The lock is held. */
static view_t *view_of(const void *addr)
{
    size_t i;

    for (i = 0; i < VIEWS_MAX; ++i) {
        /* Its end belongs to it: no other view begins there. */
        if ((views[i].view != NULL) && ((const char *)addr >= views[i].view) &&
            ((size_t)((const char *)addr - views[i].view) <= views[i].length)) {
            return &views[i];
        }
    }
    return NULL;
}

static char *alloc(unsigned gpu, size_t length)
{
    char *base = runtime->alloc(gpu, FRONT + length, DEVICE_PLAIN);

    CHECK(base != NULL);
    return base + FRONT;
}

static int is_zero(const char *bytes, size_t length)
{
    while ((length > 0) && (bytes[length - 1] == 0)) {
        --length;
    }
    return length == 0;
}

/*
 * A mapping of our own, which outlives the memory. A page more is there (the stand-in's), so no
 * other view begins at its end.
 */
static void map_view(view_t *view)
{
    char  *bytes = standin.view(view->gpu);
    size_t offset;

    CHECK(bytes != NULL);
    offset        = (uintptr_t)bytes % PAGE;
    view->mapped  = (offset + view->length + PAGE - 1) / PAGE * PAGE + PAGE;
    view->mapping = mremap(bytes - offset, 0, view->mapped, MREMAP_MAYMOVE);
    CHECK(view->mapping != MAP_FAILED);
    view->view = view->mapping + offset;
}

void *conf_gpu_alloc(unsigned rank, size_t length)
{
    unsigned i = 0;

    pthread_mutex_lock(&lock);
    if (runtime == NULL) {
        start(rank);
    }
    while ((i < VIEWS_MAX) && (views[i].view != NULL)) {
        ++i;
    }
    CHECK(i < VIEWS_MAX);
    views[i].gpu    = alloc((rank + num_allocs++) % num_gpus, length);
    views[i].length = length;
    views[i].next   = NULL;
    map_view(&views[i]);
    pthread_mutex_unlock(&lock);
    return views[i].view;
}

void conf_gpu_lose(void *addr)
{
    view_t *view;

    pthread_mutex_lock(&lock);
    view = view_of(addr);
    CHECK((view != NULL) && (view->next == NULL));
    runtime->free(view->gpu - FRONT, DEVICE_PLAIN);
    view->next = alloc(0, view->length);
    pthread_mutex_unlock(&lock);
}

void conf_gpu_free(void *addr)
{
    view_t *view;
    char   *gpu;

    pthread_mutex_lock(&lock);
    view = view_of(addr);
    CHECK(view != NULL);
    gpu = (view->next != NULL) ? view->next : view->gpu;
    CHECK(is_zero(standin.view(gpu - FRONT), FRONT + ((view->next != NULL) ? view->length : 0)));
    runtime->free(gpu - FRONT, DEVICE_PLAIN);
    munmap(view->mapping, view->mapped);
    view->view = NULL;
    pthread_mutex_unlock(&lock);
}

unsigned conf_gpu_mappings(void)
{
    return (runtime != NULL) ? standin.mappings() : 0;
}

/* ---- the wrapped calls ----------------------------------------------------------------------- */

/* The GPU's address for one of a view; any other stays. */
static void *translate(const void *addr)
{
    char   *there = (char *)(uintptr_t)addr;
    view_t *view;

    pthread_mutex_lock(&lock);
    view = view_of(addr);
    if (view != NULL) {
        there = view->gpu + (there - view->view);
    }
    pthread_mutex_unlock(&lock);
    return there;
}

__typeof__(angara_mr_register)   __real_angara_mr_register, __wrap_angara_mr_register;
__typeof__(angara_mr_range)      __real_angara_mr_range, __wrap_angara_mr_range;
__typeof__(angara_offload_put)   __real_angara_offload_put, __wrap_angara_offload_put;
__typeof__(angara_offload_get)   __real_angara_offload_get, __wrap_angara_offload_get;
__typeof__(angara_offload_batch) __real_angara_offload_batch, __wrap_angara_offload_batch;
__typeof__(angara_atomic)        __real_angara_atomic, __wrap_angara_atomic;

angara_status_t __wrap_angara_mr_register(angara_domain_h dom, void *addr, size_t length,
                                          unsigned access, angara_mr_h *mr_p)
{
    return __real_angara_mr_register(dom, translate(addr), length, access, mr_p);
}

void __wrap_angara_mr_range(angara_mr_h mr, void **addr_p, size_t *length_p)
{
    size_t i;

    __real_angara_mr_range(mr, addr_p, length_p);
    pthread_mutex_lock(&lock);
    for (i = 0; i < VIEWS_MAX; ++i) {
        if ((views[i].view != NULL) && (*addr_p == views[i].gpu)) {
            *addr_p = views[i].view;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

angara_status_t __wrap_angara_offload_put(angara_peer_h peer, angara_mr_h lmr, const void *laddr,
                                          uint64_t rkey, uint64_t roffset, size_t length)
{
    return __real_angara_offload_put(peer, lmr, translate(laddr), rkey, roffset, length);
}

angara_status_t __wrap_angara_offload_get(angara_peer_h peer, angara_mr_h lmr, void *laddr,
                                          uint64_t rkey, uint64_t roffset, size_t length)
{
    return __real_angara_offload_get(peer, lmr, translate(laddr), rkey, roffset, length);
}

angara_status_t __wrap_angara_offload_batch(angara_peer_h peer, angara_batch_op_t op,
                                            const angara_xfer_t *xfers, unsigned count,
                                            unsigned *posted_p)
{
    angara_xfer_t there[ANGARA_BATCH_MAX];
    unsigned      i;

    if ((xfers == NULL) || (count > ANGARA_BATCH_MAX)) {
        return __real_angara_offload_batch(peer, op, xfers, count, posted_p);
    }
    for (i = 0; i < count; ++i) {
        there[i]       = xfers[i];
        there[i].laddr = translate(xfers[i].laddr);
    }
    return __real_angara_offload_batch(peer, op, there, count, posted_p);
}

angara_status_t __wrap_angara_atomic(angara_peer_h peer, angara_atomic_op_t op, unsigned width,
                                     uint64_t operand, uint64_t compare, uint64_t rkey,
                                     uint64_t roffset, angara_mr_h lmr, void *result)
{
    return __real_angara_atomic(peer, op, width, operand, compare, rkey, roffset, lmr,
                                translate(result));
}
