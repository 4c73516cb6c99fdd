/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory at UCT level: puts and gets between processes, by all calls, whatever memory is at the
 * two ends; and the transport that copies between GPU and host within a process. The CPU can't
 * touch GPU memory.
 */
#include "uct_buffer.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHIFT 3 /* of a transfer, beyond the guard: addresses are odd */

static const size_t sizes[] = {0, 1, 8, 57, 4096, 8431, 65535, 65537, MB};

#define SIZES_NUM (sizeof(sizes) / sizeof(sizes[0]))
#define AT        (GUARD + SHIFT)
#define AREA      (MB + 2 * AT)

/* ---- puts and gets between processes --------------------------------------------------------- */

typedef enum {
    PUT_SHORT,
    PUT_BCOPY,
    PUT_ZCOPY,
    PUT_PIECES,
    PUT_MIXED, /* pieces in both memories */
    GET_SHORT,
    GET_BCOPY,
    GET_ZCOPY,
    GET_PIECES,
    WAYS
} way_t;

static int way_is_put(way_t way)
{
    return way <= PUT_MIXED;
}

static int way_is_zcopy(way_t way)
{
    return way != PUT_SHORT && way != PUT_BCOPY && way != GET_SHORT && way != GET_BCOPY;
}

static size_t way_max(const uct_iface_attr_t *attr, way_t way)
{
    return way == PUT_SHORT ? attr->cap.put.max_short :
           way == PUT_BCOPY ? attr->cap.put.max_bcopy :
           way == GET_SHORT ? attr->cap.get.max_short :
           way == GET_BCOPY ? attr->cap.get.max_bcopy :
                              AREA - 2 * AT;
}

/* A rank's memory: of the host and of a GPU; the other's; and one transfer. */
typedef struct {
    ut_t       *t;
    buffer_t    host, gpu;
    ut_remote_t remote_host[RANK_MAX], remote_gpu[RANK_MAX];
    way_t       way;
    int         from_gpu, to_gpu; /* of rank 0's end, of rank 1's */
    size_t      length;
} rma_t;

static void rma_exchange(rma_t *rma, const buffer_t *buffer, ut_remote_t *remotes)
{
    ut_mem_t mem = {.addr = buffer->addr, .length = buffer->length, .memh = buffer->memh};

    ut_mem_exchange(rma->t, &mem, remotes);
}

static void rma_open(rma_t *rma, ut_t *t, unsigned flags)
{
    memset(rma, 0, sizeof(*rma));
    rma->t = t;
    gpu_start();
    ut_open(t);
    rma->host = buffer_registered(t, 0, AREA, flags);
    rma->gpu  = buffer_registered(t, 1, AREA, flags);
    rma_exchange(rma, &rma->host, rma->remote_host);
    rma_exchange(rma, &rma->gpu, rma->remote_gpu);
}

static void rma_close(rma_t *rma)
{
    ut_flush(rma->t, &rma->t->main);
    ut_barrier(rma->t);
    ut_remotes_release(rma->t, rma->remote_host);
    ut_remotes_release(rma->t, rma->remote_gpu);
    buffer_end(rma->t, &rma->host);
    buffer_end(rma->t, &rma->gpu);
    ut_close(rma->t);
}

static const buffer_t *rma_local(const rma_t *rma)
{
    return (rma->t->rank == 0 ? rma->from_gpu : rma->to_gpu) ? &rma->gpu : &rma->host;
}

static void rma_unpack(void *arg, const void *data, size_t length)
{
    memcpy(arg, data, length);
}

static void rma_zcopy(rma_t *rma, uct_ep_h ep, uint64_t addr, uct_rkey_t rkey)
{
    const buffer_t *local = rma_local(rma), *other = local->is_gpu ? &rma->host : &rma->gpu;
    int             is_cut = rma->way != PUT_ZCOPY && rma->way != GET_ZCOPY;
    size_t          count  = is_cut ? ucs_min(rma->t->main.attr.cap.put.max_iov, (size_t)4) : 1;
    uct_iov_t       iov[4];
    ut_comp_t       comp;

    ut_iov_cut(rma->t, local->addr + AT, rma->length, local->memh, iov, count);
    for (size_t i = 1; rma->way == PUT_MIXED && i < count; i += 2) {
        iov[i].buffer = other->addr + ((char *)iov[i].buffer - local->addr);
        iov[i].memh   = other->memh;
    }
    if (way_is_put(rma->way)) {
        COMPLETE_OK(rma->t, &comp, uct_ep_put_zcopy(ep, iov, count, addr, rkey, &comp.super));
    } else {
        COMPLETE_OK(rma->t, &comp, uct_ep_get_zcopy(ep, iov, count, addr, rkey, &comp.super));
    }
}

/* Rank 0's part. */
static void rma_post(rma_t *rma)
{
    ut_t              *t      = rma->t;
    const ut_remote_t *remote = rma->to_gpu ? &rma->remote_gpu[1] : &rma->remote_host[1];
    uint64_t           addr   = remote->addr + AT;
    uct_rkey_t         rkey   = remote->key.rkey;
    char              *local  = rma->host.addr + AT;
    ut_pack_t          pack   = {local, rma->length};
    ut_comp_t          comp;

    switch (rma->way) {
    case PUT_SHORT:
        POST_OK(t, uct_ep_put_short(t->ep[1], local, (unsigned)rma->length, addr, rkey));
        break;
    case GET_SHORT:
        POST_OK(t, uct_ep_get_short(t->ep[1], local, (unsigned)rma->length, addr, rkey));
        break;
    case PUT_BCOPY:
        CHECK_EQ(UT_POST(t, uct_ep_put_bcopy(t->ep[1], ut_pack, &pack, addr, rkey)), rma->length);
        break;
    case GET_BCOPY:
        COMPLETE_OK(
            t, &comp,
            uct_ep_get_bcopy(t->ep[1], rma_unpack, local, rma->length, addr, rkey, &comp.super));
        break;
    default:
        rma_zcopy(rma, t->ep[1], addr, rkey);
    }
}

/* One transfer: the source has bytes, the destination and its surroundings poison. */
static void rma_transfer(rma_t *rma, uint64_t key)
{
    int is_source = (rma->t->rank == 0) == way_is_put(rma->way);

    if (!is_source) {
        buffer_poison(rma_local(rma), AT - GUARD, rma->length + 2 * GUARD);
    } else {
        buffer_fill(&rma->gpu, AT, rma->length, key);
        buffer_fill(&rma->host, AT, rma->length, key);
    }
    ut_barrier(rma->t);
    if (rma->t->rank == 0) {
        rma_post(rma);
        if (!is_source) { /* it has completed: the bytes are there */
            buffer_check(rma_local(rma), AT, rma->length, key);
        } else { /* they have been read */
            buffer_poison(rma_local(rma), AT, way_is_zcopy(rma->way) ? rma->length : 0);
        }
        ut_flush(rma->t, &rma->t->main);
    }
    ut_barrier(rma->t);
    if (rma->t->rank == 1 && !is_source) {
        buffer_check(rma_local(rma), AT, rma->length, key);
    }
    ut_barrier(rma->t);
}

/* How memory is used after it was freed; flags tell whether its handle is shared. */
typedef struct {
    unsigned flags;
    int      is_put, is_cut;
    size_t   length;
} freed_t;

/* Rank 0's memory was freed: a put out of it, or a get into it, fails, and delivers nothing. */
static void rma_freed(ut_t *t)
{
    const freed_t *freed = t->arg;
    uct_iov_t      iov[2];
    ut_comp_t      comp;
    ucs_status_t   status;
    int            is_told;
    rma_t          rma;

    rma_open(&rma, t, freed->flags);
    buffer_poison(&rma.host, 0, AREA);
    ut_barrier(t);
    if (t->rank == 0) {
        const ut_remote_t *remote = &rma.remote_host[1];

        ut_iov_cut(t, rma.gpu.addr + AT, freed->length, rma.gpu.memh, iov, 1 + freed->is_cut);
        gpu->free(rma.gpu.addr, DEVICE_PLAIN);
        ut_log_watch();
        ut_comp_init(&comp, 1);
        status = (freed->is_put ? uct_ep_put_zcopy : uct_ep_get_zcopy)(
            t->ep[1], iov, 1 + freed->is_cut, remote->addr + AT, remote->key.rkey, &comp.super);
        CHECK_ERR(ut_comp_wait(t, status, &comp));
        rma.gpu.is_gpu = 0;
        rma.gpu.addr   = NULL;
        /* Either the handle was looked at, always where it isn't shared; or it was started, and
         * the endpoint has failed. */
        is_told = ut_log_has("is not the memory any more");
        CHECK(is_told || freed->flags == UCT_MD_MEM_ACCESS_RMA);
        UT_WAIT(t, t->main.errors == !is_told);
        t->main.errors = 0;
    }
    ut_barrier(t);
    if (t->rank == 1) {
        buffer_check(&rma.host, AT, 0, 0);
    }
    rma_close(&rma);
}

static void rma_all(ut_t *t)
{
    uint64_t key = 1;
    rma_t    rma;

    rma_open(&rma, t, *(const unsigned *)t->arg);
    for (unsigned ends = 1; ends < 4; ++ends) { /* 0: between host memories */
        rma.from_gpu = ends & 1;
        rma.to_gpu   = ends >> 1;
        for (unsigned way = 0; way < WAYS; ++way) {
            rma.way = way;
            for (unsigned i = 0; i < SIZES_NUM; ++i) {
                rma.length = sizes[i];
                if (rma.length <= way_max(&t->main.attr, rma.way) &&
                    (way_is_zcopy(rma.way) || !rma.from_gpu)) {
                    rma_transfer(&rma, key++);
                }
            }
        }
    }
    rma_close(&rma);
}

/* ---- what is refused ------------------------------------------------------------------------- */

typedef ucs_status_t (*refused_t)(uct_ep_h ep, const ut_remote_t *remote);

static ucs_status_t put_past_end(uct_ep_h ep, const ut_remote_t *remote)
{
    static uint64_t word = 1;

    return uct_ep_put_short(ep, &word, 8, remote->addr + remote->length - 4, remote->key.rkey);
}

static ucs_status_t put_before(uct_ep_h ep, const ut_remote_t *remote)
{
    static uint64_t word = 1;

    return uct_ep_put_short(ep, &word, 8, remote->addr - 8, remote->key.rkey);
}

/* GPU memory has no atomics, and no region of it grants the right. */
static ucs_status_t atomic(uct_ep_h ep, const ut_remote_t *remote)
{
    return uct_ep_atomic64_post(ep, UCT_ATOMIC_OP_ADD, 1, remote->addr, remote->key.rkey);
}

/* On an interface of its own, whose error handler hears of it. */
static void refuse(ut_t *t, refused_t post, const ut_remote_t *remote)
{
    ut_iface_t   iface = {0};
    ut_timer_t   timer = {0, 0};
    ucs_status_t status;
    uct_ep_h     ep;

    ut_iface_open(t, &iface);
    ep     = ut_ep_create(&iface, &t->addr[1]);
    status = (ucs_status_t)UT_POST(t, post(ep, remote));
    while (status == UCS_OK && iface.errors == 0) {
        uct_iface_flush(iface.iface, 0, NULL);
        ut_relax(t, &timer, __FILE__, __LINE__, "an access that isn't granted is refused");
    }
    uct_ep_destroy(ep);
    ut_iface_close(&iface);
}

static void refused(ut_t *t)
{
    static const refused_t posts[] = {put_past_end, put_before, atomic};
    char                  *zeros = calloc(1, AREA), *bytes = malloc(AREA);
    rma_t                  rma;

    rma_open(&rma, t, UCT_MD_MEM_ACCESS_ALL);
    for (unsigned i = 0; t->rank == 0 && i < 3; ++i) {
        ut_log_watch();
        refuse(t, posts[i], &rma.remote_gpu[1]);
    }
    ut_barrier(t);
    buffer_read(&rma.gpu, 0, bytes, AREA);
    CHECK(memcmp(bytes, zeros, AREA) == 0);
    free(bytes);
    free(zeros);
    rma_close(&rma);
}

/* ---- the copy transport ---------------------------------------------------------------------- */

typedef enum { COPY_PUT_SHORT, COPY_GET_SHORT, COPY_PUT_ZCOPY, COPY_GET_ZCOPY, COPIES } copy_t;

/* "Remote" is GPU memory; the near end is the host's, or a GPU's. */
static ucs_status_t copy_post(uct_ep_h ep, copy_t copy, char *near, char *far, size_t length,
                              ut_comp_t *comp)
{
    uct_iov_t iov  = {.buffer = near, .length = length, .memh = UCT_MEM_HANDLE_NULL, .count = 1};
    uint64_t  addr = (uintptr_t)far;

    ut_comp_init(comp, 1);
    switch (copy) {
    case COPY_PUT_SHORT:
        return uct_ep_put_short(ep, near, (unsigned)length, addr, 0);
    case COPY_GET_SHORT:
        return uct_ep_get_short(ep, near, (unsigned)length, addr, 0);
    case COPY_PUT_ZCOPY:
        return uct_ep_put_zcopy(ep, &iov, 1, addr, 0, &comp->super);
    default:
        return uct_ep_get_zcopy(ep, &iov, 1, addr, 0, &comp->super);
    }
}

static void copy_one(ut_t *copier, copy_t copy, const buffer_t *near, const buffer_t *far,
                     size_t length, uint64_t key)
{
    int             is_put = copy == COPY_PUT_SHORT || copy == COPY_PUT_ZCOPY;
    const buffer_t *from = is_put ? near : far, *to = is_put ? far : near;
    ut_comp_t       comp;

    buffer_fill(from, AT, length, key);
    buffer_poison(to, AT - GUARD, length + 2 * GUARD);
    CHECK_OK(ut_comp_wait(
        copier, copy_post(copier->ep[0], copy, near->addr + AT, far->addr + AT, length, &comp),
        &comp));
    buffer_check(to, AT, length, key);
}

static void copies(ut_t *t)
{
    uint64_t key = 1;
    buffer_t near[2], far;
    ut_t     copier;

    gpu_start();
    ut_open(t);
    copier_open(t, &copier);
    near[0] = buffer_new(0, AREA);
    near[1] = buffer_new(1, AREA);
    far     = buffer_new(1, AREA);
    for (unsigned copy = 0; copy < COPIES; ++copy) {
        for (unsigned i = 0; i < 2 * SIZES_NUM; ++i) {
            copy_one(&copier, copy, &near[i % 2], &far, sizes[i / 2], key++);
        }
    }
    for (unsigned i = 0; i < 2; ++i) {
        buffer_end(t, &near[i]);
    }
    buffer_end(t, &far);
    copier_close(&copier);
    ut_close(t);
}

static ucs_status_t pending_called(uct_pending_req_t *self)
{
    (void)self;
    return UCS_OK;
}

/* What the interface says it can do is what is tested here. */
static void copier_attributes(ut_t *t)
{
    const uint64_t flags = UCT_IFACE_FLAG_CONNECT_TO_IFACE | UCT_IFACE_FLAG_PUT_SHORT |
                           UCT_IFACE_FLAG_GET_SHORT | UCT_IFACE_FLAG_PUT_ZCOPY |
                           UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_PENDING;
    uct_pending_req_t       request = {.func = pending_called};
    const uct_iface_attr_t *attr;
    ut_t                    copier;

    gpu_start();
    ut_open(t);
    copier_open(t, &copier);
    attr = &copier.main.attr;
    CHECK_EQ(attr->cap.flags, flags);
    CHECK_EQ(attr->cap.event_flags,
             UCT_IFACE_FLAG_EVENT_SEND_COMP | UCT_IFACE_FLAG_EVENT_RECV | UCT_IFACE_FLAG_EVENT_FD);
    CHECK_EQ(attr->cap.put.max_iov, 1);
    CHECK_EQ(attr->cap.get.max_iov, 1);
    CHECK_EQ(attr->cap.put.min_zcopy | attr->cap.get.min_zcopy, 0);
    CHECK(ucs_min(attr->cap.put.max_short, attr->cap.get.max_short) >= MB);
    CHECK(ucs_min(attr->cap.put.max_zcopy, attr->cap.get.max_zcopy) >= MB);
    /* There is always room. */
    CHECK_STATUS(uct_ep_pending_add(copier.ep[0], &request, 0), UCS_ERR_BUSY);
    copier_close(&copier);
    ut_close(t);
}

static int reaches(const ut_iface_t *iface, const ut_addr_t *addr)
{
    return uct_iface_is_reachable(iface->iface, (const void *)addr->dev, (const void *)addr->iface);
}

static void copier_reach(ut_t *t)
{
    ut_addr_t all[RANK_MAX];
    ut_t      copier, other;

    gpu_start();
    ut_open(t);
    copier_open(t, &copier);
    copier_open(t, &other);
    ut_exchange(t, &copier.main.addr, all, sizeof(all[0]));
    CHECK(reaches(&copier.main, &all[t->rank]));
    CHECK(!reaches(&copier.main, &all[1 - t->rank]));
    CHECK(!reaches(&copier.main, &other.main.addr));
    CHECK(!reaches(&copier.main, &t->addr[t->rank]));
    CHECK(!reaches(&t->main, &all[t->rank]));
    copier_close(&other);
    copier_close(&copier);
    ut_close(t);
}

/* Copies that don't end: nobody waits for them, nor sleeps, and a flush doesn't end before them.
 * (Those to pageable memory CUDA itself waits for.) */
static void copier_held(ut_t *t)
{
    enum { NUM = 8 };
    ut_comp_t comps[NUM], flush;
    buffer_t  host, near, far;
    ut_t      copier;
    unsigned  calls = 0;

    standin_start();
    ut_open(t);
    copier_open(t, &copier);
    host = buffer_new(0, NUM * 4096);
    near = buffer_new(1, NUM * 4096);
    far  = buffer_new(1, NUM * 4096);
    CHECK_OK(uct_iface_event_arm(copier.main.iface, UCT_EVENT_SEND_COMP));
    standin.hold(1);
    for (unsigned i = 0; i < NUM; ++i) {
        CHECK_STATUS(copy_post(copier.ep[0], i % 2 ? COPY_PUT_ZCOPY : COPY_GET_ZCOPY,
                               (i % 2 ? near.addr : host.addr) + i * 4096, far.addr + i * 4096,
                               4096, &comps[i]),
                     UCS_INPROGRESS);
    }
    ut_comp_init(&flush, 1);
    CHECK_STATUS(uct_ep_flush(copier.ep[0], 0, &flush.super), UCS_INPROGRESS);
    ut_progress_ms(&copier, 10);
    CHECK_STATUS(uct_iface_event_arm(copier.main.iface, UCT_EVENT_SEND_COMP), UCS_ERR_BUSY);
    for (unsigned i = 0; i < NUM; ++i) {
        CHECK_EQ(comps[i].calls, 0);
    }
    CHECK_EQ(flush.calls, 0);
    standin.hold(0);
    CHECK_OK(ut_comp_wait(&copier, UCS_INPROGRESS, &flush));
    for (unsigned i = 0; i < NUM; ++i) {
        CHECK_OK(comps[i].status);
        calls += comps[i].calls;
    }
    CHECK_EQ(calls, NUM);
    CHECK_OK(uct_iface_event_arm(copier.main.iface, UCT_EVENT_SEND_COMP));
    CHECK_OK(uct_ep_flush(copier.ep[0], 0, NULL));
    buffer_end(t, &host);
    buffer_end(t, &near);
    buffer_end(t, &far);
    copier_close(&copier);
    ut_close(t);
}

/* ---- copies that fail ------------------------------------------------------------------------ */

/* UCP wouldn't look: the process ends, with a line that says why. */
typedef struct {
    copy_t      copy;
    int         is_host; /* what should be GPU memory is the host's */
    const char *words;
} end_t;

static void end_by_copy(ut_t *t, const end_t *end)
{
    buffer_t  near, far;
    ut_comp_t comp;
    ut_t      copier;

    standin_start();
    ut_open(t);
    copier_open(t, &copier);
    near = buffer_new(0, 4096);
    far  = buffer_new(!end->is_host, 4096);
    if (!end->is_host) {
        standin_fail();
    }
    (void)ut_comp_wait(&copier,
                       copy_post(copier.ep[0], end->copy, near.addr, far.addr, 4096, &comp), &comp);
    CHECK(!"goes on");
}

/* In a child of the rank's, whose last words are read. */
static void copier_end(ut_t *t)
{
    const end_t *end = t->arg;
    char         text[4096];
    size_t       length = 0;
    ssize_t      num;
    int          fds[2], status;
    pid_t        pid;

    CHECK(pipe(fds) == 0);
    pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        close(fds[1]);
        end_by_copy(t, end);
    }
    close(fds[1]);
    while ((num = read(fds[0], text + length, sizeof(text) - 1 - length)) > 0) {
        length += (size_t)num;
    }
    text[length] = '\0';
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && strstr(text, "skipped: ") != NULL) {
        rank_skip("the child was: a real runtime fails no copies");
    }
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || strstr(text, end->words) == NULL) {
        rank_fail(__FILE__, __LINE__, "status %#x: %s", (unsigned)status, text);
    }
}

/* ---- the tests ------------------------------------------------------------------------------- */

#define TEST(_name, _nranks, _func)   \
    static void _name(void **state)   \
    {                                 \
        (void)state;                  \
        ut_run(_nranks, _func, NULL); \
    }

TEST(test_refused, 2, refused)
TEST(test_copies, 1, copies)
TEST(test_copier_attributes, 1, copier_attributes)
TEST(test_copier_reach, 2, copier_reach)
TEST(test_copier_held, 1, copier_held)

/* As UCP registers memory for rendezvous, and as users map it. */
static void test_rma(void **state)
{
    static const unsigned flags[] = {UCT_MD_MEM_ACCESS_RMA, UCT_MD_MEM_ACCESS_ALL};

    (void)state;
    for (unsigned i = 0; i < 2; ++i) {
        ut_run(2, rma_all, &flags[i]);
    }
}

static void test_rma_freed(void **state)
{
    static const size_t lengths[] = {8, 4096, 100000};
    freed_t             freed;

    (void)state;
    for (unsigned i = 0; i < 24; ++i) {
        freed = (freed_t){.flags  = i & 1 ? UCT_MD_MEM_ACCESS_RMA : UCT_MD_MEM_ACCESS_ALL,
                          .is_put = i >> 1 & 1,
                          .is_cut = i >> 2 & 1,
                          .length = lengths[i / 8]};
        ut_run(2, rma_freed, &freed);
    }
}

static void test_copier_end(void **state)
{
    static const end_t ends[] = {
        {COPY_PUT_SHORT, 0, "of a GPU's memory failed"},
        {COPY_GET_SHORT, 0, "of a GPU's memory failed"},
        {COPY_PUT_ZCOPY, 0, "of a GPU's memory failed"},
        {COPY_GET_ZCOPY, 0, "of a GPU's memory failed"},
        {COPY_PUT_ZCOPY, 1, "as memory of a GPU, which it isn't"},
        {COPY_GET_SHORT, 1, "as memory of a GPU, which it isn't"},
    };

    (void)state;
    for (unsigned i = 0; i < sizeof(ends) / sizeof(ends[0]); ++i) {
        ut_run(1, copier_end, &ends[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rma),          cmocka_unit_test(test_refused),
        cmocka_unit_test(test_copies),       cmocka_unit_test(test_copier_attributes),
        cmocka_unit_test(test_copier_reach), cmocka_unit_test(test_copier_held),
        cmocka_unit_test(test_copier_end),   cmocka_unit_test(test_rma_freed),
    };
    int result = gpu_find();

    return result >= 0 ? result :
                         ut_main(argc, argv, "uct_copies", tests, sizeof(tests) / sizeof(tests[0]));
}
