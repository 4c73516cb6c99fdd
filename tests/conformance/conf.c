/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Harness of the conformance suite: talk between ranks, and the helpers that almost every test
 * needs. Public API only.
 */
#define _GNU_SOURCE
#include "conf.h"

#include "conf_gpu.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

const char *conf_device(void)
{
    const char *device = getenv("ANGARA_TEST_DEVICE");

    return (device != NULL) ? device : "soft";
}

int conf_env_on(const char *name)
{
    const char *value = getenv(name);

    return (value == NULL) || (strchr("yY1tT", value[0]) != NULL);
}

int conf_has_atomics(int shared)
{
    return shared || (!conf_on_gpu(0) && !conf_on_gpu(1));
}

void conf_need_atomics(int shared)
{
    if (!conf_has_atomics(shared)) {
        rank_skip("there are no atomics on memory of a GPU");
    }
}

unsigned conf_rounds(unsigned rounds)
{
    if (getenv("ANGARA_TEST_QUICK") != NULL) {
        rounds /= 10;
    }
    return (rounds != 0) ? rounds : 1;
}

uint64_t conf_random(conf_t *t)
{
    return random_next(&t->rng);
}

/* Keep this process on that one of the CPUs that it may use, if there are so many. */
static void conf_stay_on(unsigned number)
{
    cpu_set_t allowed, mine;
    size_t    cpu;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return;
    }
    for (cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &allowed) && (number-- == 0)) {
            CPU_ZERO(&mine);
            CPU_SET(cpu, &mine);
            sched_setaffinity(0, sizeof(mine), &mine);
            return;
        }
    }
}

int conf_on_one_cpu(void)
{
    return getenv("ANGARA_TEST_ONE_CPU") != NULL;
}

void conf_pin(conf_t *t)
{
    cpu_set_t allowed;

    if ((sched_getaffinity(0, sizeof(allowed), &allowed) == 0) &&
        (CPU_COUNT(&allowed) >= (int)t->nranks)) {
        conf_stay_on(t->rank);
    }
}

/* ---- processes ----------------------------------------------------------------------------- */

typedef struct {
    conf_func_t func;
    const void *arg;
} conf_test_t;

/*
 * A wrong size must fail here and not take the machine along: no shared segment larger than a few
 * GiB, and if memory does run out, the ranks are the first to go.
 */
static void conf_rank_bound(void)
{
    struct rlimit limit;
    FILE         *adjust;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur > CONF_SEGMENT_MAX) {
        limit.rlim_cur = CONF_SEGMENT_MAX;
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    adjust = fopen("/proc/self/oom_score_adj", "w");
    if (adjust != NULL) {
        fputs("1000", adjust);
        fclose(adjust);
    }
}

static void conf_rank_main(unsigned rank, unsigned nranks, const int *fd, const void *arg)
{
    const conf_test_t *test = arg;
    conf_t             t = {.rank = rank, .nranks = nranks, .arg = test->arg, .rng = 12345 + rank};
    pid_t              pid = getpid();

    conf_rank_bound();
    if (conf_on_one_cpu()) {
        conf_stay_on(0);
    }
    memcpy(t.fd, fd, nranks * sizeof(*fd));
    conf_exchange(&t, &pid, t.pid, sizeof(pid));
    test->func(&t);
}

void conf_run_victims(unsigned nranks, conf_func_t func, const void *arg, unsigned victims)
{
    const conf_test_t test = {func, arg};

    rank_run(nranks, conf_rank_main, &test, victims, SIGKILL);
}

void conf_run(unsigned nranks, conf_func_t func, const void *arg)
{
    conf_run_victims(nranks, func, arg, 0);
}

/* ---- talk between ranks -------------------------------------------------------------------- */

void conf_send(conf_t *t, unsigned rank, const void *buffer, size_t length)
{
    rank_send(t->fd[rank], rank, buffer, length);
}

void conf_recv(conf_t *t, unsigned rank, void *buffer, size_t length)
{
    char   *p = buffer;
    ssize_t n;

    while (length > 0) {
        n = read(t->fd[rank], p, length);
        if ((n < 0) && (errno == EINTR)) {
            continue;
        }
        if (n <= 0) {
            rank_fail(__FILE__, __LINE__, "rank %u is gone or silent (%s)", rank,
                      (n == 0) ? "end of file" : strerror(errno));
        }
        p += n;
        length -= (size_t)n;
    }
}

void conf_exchange(conf_t *t, const void *mine, void *all, size_t length)
{
    unsigned i;

    for (i = 0; i < t->nranks; ++i) {
        if (i != t->rank) {
            conf_send(t, i, mine, length);
        }
    }
    for (i = 0; i < t->nranks; ++i) {
        if (i != t->rank) {
            conf_recv(t, i, (char *)all + i * length, length);
        } else {
            memcpy((char *)all + i * length, mine, length);
        }
    }
}

void conf_barrier(conf_t *t)
{
    char mine = 'b', all[RANK_MAX];

    conf_exchange(t, &mine, all, 1);
}

/* ---- library ------------------------------------------------------------------------------- */

void conf_open_params(conf_t *t, const angara_pe_params_t *params)
{
    angara_address_t mine;
    size_t           size;
    unsigned         i;

    CHECK_OK(angara_open(conf_device(), &t->dom));
    CHECK_OK(angara_query(t->dom, &t->attr));
    CHECK_OK(angara_pe_create(t->dom, params, &t->pe));
    t->window = angara_pe_window(t->pe, &size);
    CHECK(t->window != NULL);
    CHECK(size >= CONF_WINDOW);
    CHECK_OK(angara_pe_window_commit(t->pe, 0, CONF_WINDOW));
    angara_pe_address(t->pe, &mine);
    conf_exchange(t, &mine, t->addr, sizeof(mine));
    for (i = 0; i < t->nranks; ++i) {
        CHECK_OK(angara_peer_connect(t->pe, &t->addr[i], &t->peer[i]));
    }
    CHECK_OK(angara_marker_slot_get(t->pe, &t->slot));
    t->value = *t->slot;
    conf_barrier(t);
}

void conf_open(conf_t *t)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = CONF_WINDOW};

    conf_open_params(t, &params);
}

void conf_close_alone(conf_t *t)
{
    unsigned i;

    angara_marker_slot_put(t->pe, t->slot);
    for (i = 0; i < t->nranks; ++i) {
        if (t->peer[i] != NULL) {
            angara_peer_disconnect(t->peer[i]);
        }
    }
    angara_pe_destroy(t->pe);
    CHECK_OK(angara_close(t->dom));
    CHECK_EQ(conf_gpu_mappings(), 0); /* they have ended with the last pair */
}

void conf_close(conf_t *t)
{
    conf_barrier(t);
    conf_close_alone(t);
}

void conf_stop_process(pid_t pid)
{
    char           path[300], text[512];
    const char    *state;
    unsigned       running;
    struct dirent *entry;
    FILE          *file;
    DIR           *dir;

    CHECK(kill(pid, SIGSTOP) == 0);
    do {
        running = 0;
        snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
        dir = opendir(path);
        CHECK(dir != NULL);
        while ((entry = readdir(dir)) != NULL) {
            snprintf(path, sizeof(path), "/proc/%d/task/%.200s/stat", (int)pid, entry->d_name);
            file = (entry->d_name[0] != '.') ? fopen(path, "r") : NULL;
            if (file != NULL) {
                state = (fgets(text, sizeof(text), file) != NULL) ? strrchr(text, ')') : NULL;
                running += (state == NULL) || (strchr("TZX", state[2]) == NULL);
                fclose(file);
            }
        }
        closedir(dir);
    } while (running > 0);
}

void conf_mem_init(conf_t *t, conf_mem_t *mem, int shared, size_t length, unsigned access)
{
    void *addr;

    mem->shared = shared;
    mem->on_gpu = !shared && conf_on_gpu(t->rank);
    mem->length = length;
    if (shared) {
        CHECK_OK(angara_mem_alloc(t->dom, &mem->length, access, &addr, &mem->mr));
        CHECK(mem->length >= length);
        mem->length = length;
    } else {
        if (mem->on_gpu) {
            addr = conf_gpu_alloc(t->rank, length);
        } else {
            addr = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(addr != MAP_FAILED);
        }
        CHECK_OK(angara_mr_register(t->dom, addr, length, access, &mem->mr));
    }
    mem->addr = addr;
    mem->key  = angara_mr_key(mem->mr);
    CHECK(mem->key != 0);
}

void conf_mem_lose(conf_mem_t *mem, size_t offset, size_t length)
{
    CHECK(!mem->shared);
    if (mem->on_gpu) {
        conf_gpu_lose(mem->addr);
    } else {
        /* Unmapped, the addresses would be those of anybody's next mapping. */
        CHECK(mmap(mem->addr + offset, length, PROT_NONE,
                   MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED);
    }
}

void conf_mem_cleanup(conf_mem_t *mem)
{
    if (mem->shared) {
        CHECK_OK(angara_mem_free(mem->mr));
    } else {
        CHECK_OK(angara_mr_deregister(mem->mr));
        if (mem->on_gpu) {
            conf_gpu_free(mem->addr);
        } else {
            munmap(mem->addr, mem->length);
        }
    }
}

void conf_mem_exchange(conf_t *t, const conf_mem_t *mem, uint64_t *keys)
{
    conf_exchange(t, &mem->key, keys, sizeof(mem->key));
}

conf_timer_t conf_timer(void)
{
    conf_timer_t timer = {0, 0};

    return timer;
}

void conf_relax(conf_t *t, conf_timer_t *timer, const char *file, int line, const char *what)
{
    angara_pe_progress(t->pe);
    if ((++timer->turns % 256) != 0) {
        return;
    }
    /* The clock is looked at rarely, so that waits stay tight; the CPUs are shared. */
    sched_yield();
    if (timer->end == 0) {
        timer->end = now_seconds() + RANK_TIMEOUT;
    } else if (now_seconds() > timer->end) {
        rank_fail(file, line, "%d s are up: %s", RANK_TIMEOUT, what);
    }
}

angara_status_t conf_add(conf_t *t, unsigned rank, int shared, uint64_t operand, uint64_t sum,
                         uint64_t key, uint64_t offset)
{
    if (!conf_has_atomics(shared)) {
        return angara_offload_put_inline(t->peer[rank], &sum, key, offset, sizeof(sum));
    }
    return angara_atomic(t->peer[rank], ANGARA_ATOMIC_ADD, 8, operand, 0, key, offset, NULL, NULL);
}

void conf_marker(conf_t *t, unsigned rank)
{
    uint64_t value = ++t->value;

    POST_OK(t, angara_marker(t->peer[rank], t->slot, value));
    CONF_WAIT(t, angara_marker_arrived(t->slot, value));
}

void conf_tell_over(conf_t *t, unsigned rank)
{
    uint64_t one = 1;

    CHECK_OK(CONF_POST(t, angara_put(t->peer[rank], 0, &one, sizeof(one))));
    conf_marker(t, rank);
}

int conf_is_over(const conf_t *t)
{
    return __atomic_load_n((uint64_t *)(void *)t->window, __ATOMIC_ACQUIRE) != 0;
}

angara_status_t conf_settle(conf_t *t, unsigned rank)
{
    uint64_t        value  = ++t->value;
    angara_status_t status = CONF_POST(t, angara_marker(t->peer[rank], t->slot, value));
    angara_event_t  event;

    if (status == ANGARA_OK) {
        CONF_WAIT(t, angara_marker_arrived(t->slot, value) ||
                         (angara_peer_status(t->peer[rank]) != ANGARA_OK));
    }
    status = angara_peer_status(t->peer[rank]);
    if (status != ANGARA_OK) {
        CHECK_STATUS(status, ANGARA_ERR_PAIR);
        CHECK(conf_event(t, &event, RANK_TIMEOUT));
        CHECK_EQ(event.type, ANGARA_EVENT_FAULT);
        CHECK_OK(angara_peer_reset(t->peer[rank]));
    }
    return status;
}

int conf_event(conf_t *t, angara_event_t *event, double seconds)
{
    double          end = now_seconds() + seconds;
    angara_status_t status;

    for (;;) {
        angara_pe_progress(t->pe);
        status = angara_pe_event_poll(t->pe, event);
        if (status == ANGARA_OK) {
            return 1;
        }
        CHECK_STATUS(status, ANGARA_ERR_NO_RESOURCE);
        if (now_seconds() > end) {
            return 0;
        }
        sched_yield();
    }
}

void conf_expect_fault(conf_t *t, unsigned rank, angara_status_t posted, angara_status_t expected,
                       uint64_t key)
{
    uint64_t        value = ++t->value;
    angara_status_t status;
    angara_event_t  event;

    /* A provider may report by the event alone. */
    if (posted != ANGARA_OK) {
        CHECK_STATUS(posted, expected);
    }
    /* The marker behind the fault: refused, or posted and never arrives. */
    status = CONF_POST(t, angara_marker(t->peer[rank], t->slot, value));
    if (posted != ANGARA_OK) {
        CHECK_STATUS(status, ANGARA_ERR_PAIR);
    } else if (status != ANGARA_OK) {
        CHECK_STATUS(status, ANGARA_ERR_PAIR);
    }
    CHECK(conf_event(t, &event, RANK_TIMEOUT));
    CHECK_EQ(event.type, ANGARA_EVENT_FAULT);
    CHECK_STATUS((angara_status_t)event.status, expected);
    CHECK(event.peer == t->peer[rank]);
    CHECK_EQ(event.key, key);
    CHECK_STATUS(angara_peer_status(t->peer[rank]), ANGARA_ERR_PAIR);
    CHECK(!angara_marker_arrived(t->slot, value));
    CHECK_STATUS(angara_marker(t->peer[rank], t->slot, ++t->value), ANGARA_ERR_PAIR);
    CHECK_OK(angara_peer_reset(t->peer[rank]));
    CHECK_OK(angara_peer_status(t->peer[rank]));
    CHECK(!angara_marker_arrived(t->slot, value));
    /* The pair works again, and nothing of before the reset comes through. */
    conf_marker(t, rank);
    CHECK(!conf_event(t, &event, 0));
}
