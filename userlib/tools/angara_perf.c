/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * angara_perf: latency, bandwidth and rate of the library's operations between two processes. The
 * two processes, and the report; the measurements are in perf_tests.c.
 */
#define _GNU_SOURCE
#include "perf.h"

#include "src/clock.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const perf_name = "angara_perf";

void perf_fail(const char *format, ...)
{
    va_list ap;

    fprintf(stderr, "%s: ", perf_name);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fprintf(stderr, "\n");
    exit(EXIT_FAILURE);
}

/* ---- two processes ------------------------------------------------------------------------- */

static int is_remote(const perf_t *p)
{
    return p->opt->host != NULL || p->opt->listen_at != NULL;
}

/*
 * From here on the other host may take so long for each step: a barrier, behind operations of that
 * size, or what a wait loop waits for, PERF_DEPTH of them at most.
 */
static void set_patience(perf_t *p, size_t size, unsigned operations)
{
    uint64_t patience  = p->opt->patience * 1000000000ull;
    uint64_t operation = 1000000 + size * 1000ull; /* ns: 1 ms, and 1 MB/s */

    p->talk_limit = patience + operations * operation;
    p->look_limit = patience + PERF_DEPTH * operation;
}

/* Who listens begins anew, for the next one: an exec leaves nothing of this measurement. */
static void give_up(const perf_t *p, uint64_t limit) __attribute__((noreturn));

static void give_up(const perf_t *p, uint64_t limit)
{
    fprintf(stderr, "%s: the other side hasn't gone on for %llu s: it is given up\n", perf_name,
            (unsigned long long)(limit / 1000000000));
    if (p->opt->listen_at != NULL) {
        execv("/proc/self/exe", p->opt->argv);
        perf_fail("can't begin anew: %s", strerror(errno));
    }
    exit(EXIT_FAILURE);
}

#define SERVE_TURNS 64 /* of progress between two looks at the socket */

/* Until something comes. A process of ours may take for ever: who stops it may go on with it. */
static void await(const perf_t *p, uint64_t start)
{
    struct pollfd   other = {.fd = p->sock, .events = POLLIN};
    uint64_t        spent = ang_clock_ns(CLOCK_MONOTONIC) - start, left;
    struct timespec timeout;

    if (is_remote(p) && spent > p->talk_limit) {
        give_up(p, p->talk_limit);
    }
    if (p->serves) {
        for (unsigned i = 0; i < SERVE_TURNS; ++i) {
            angara_pe_progress(p->pe);
        }
        return;
    }
    if (!is_remote(p)) {
        poll(&other, 1, -1);
        return;
    }
    left    = p->talk_limit - spent;
    timeout = (struct timespec){.tv_sec  = (time_t)(left / 1000000000),
                                .tv_nsec = (long)(left % 1000000000)};
    ppoll(&other, 1, &timeout, NULL);
}

static void talk(perf_t *p, const void *mine, void *theirs, size_t length)
{
    uint64_t start = ang_clock_ns(CLOCK_MONOTONIC);
    int      is_on = send(p->sock, mine, length, MSG_NOSIGNAL) == (ssize_t)length;
    size_t   came  = 0;
    ssize_t  more;

    while (is_on && came < length) {
        more = recv(p->sock, (char *)theirs + came, length - came, MSG_DONTWAIT);
        if (more > 0) {
            came += (size_t)more;
        } else if (more < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
            await(p, start); /* which a signal ends early, also one that stops us and goes on */
        } else {
            is_on = 0;
        }
    }
    if (!is_on) {
        exit(EXIT_FAILURE); /* its own message says why; ours would only hide it */
    }
}

void perf_barrier(perf_t *p)
{
    char mine = 'b', theirs;

    talk(p, &mine, &theirs, 1);
}

void perf_look(perf_t *p, int is_first)
{
    uint64_t        now = ang_clock_ns(CLOCK_MONOTONIC);
    angara_status_t status;
    char            byte;

    if (recv(p->sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
        exit(EXIT_FAILURE); /* the other process has ended with a message */
    }
    status = angara_peer_status(p->peer);
    if (status != ANGARA_OK) {
        perf_fail("%s: %s", angara_peer_name(p->peer), angara_strerror(status));
    }
    if (is_first) {
        p->look_start = now;
    } else if (is_remote(p) && now - p->look_start > p->look_limit) {
        give_up(p, p->look_limit);
    }
}

static void check(angara_status_t status, const char *what)
{
    if (status != ANGARA_OK) {
        perf_fail("%s failed: %s", what, angara_strerror(status));
    }
}

/* CPUs that share a core with @a cpu. */
static void siblings(int cpu, cpu_set_t *set)
{
    char  path[96], text[256], *at;
    FILE *file;
    long  first, last;

    CPU_ZERO(set);
    CPU_SET(cpu, set);
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             cpu);
    file = fopen(path, "r");
    if (file == NULL) {
        return;
    }
    if (fgets(text, sizeof(text), file) != NULL) {
        for (at = text; isdigit((unsigned char)*at);) {
            first = last = strtol(at, &at, 10);
            if (*at == '-') {
                last = strtol(at + 1, &at, 10);
            }
            for (; (first <= last) && (first < CPU_SETSIZE); ++first) {
                CPU_SET((size_t)first, set);
            }
            at += (*at == ',');
        }
    }
    fclose(file);
}

/* Two cores by default: the first CPU that is allowed, and the first one that isn't of its core. */
static void choose_cpus(perf_options_t *opt)
{
    cpu_set_t allowed, core;
    int       cpu, fallback = -1;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return;
    }
    CPU_ZERO(&core);
    for (cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) {
            continue;
        }
        if (opt->cpus[0] < 0) {
            opt->cpus[0] = cpu;
            siblings(cpu, &core);
        } else if (!CPU_ISSET(cpu, &core)) {
            opt->cpus[1] = cpu;
            return;
        } else if (fallback < 0) {
            fallback = cpu;
        }
    }
    opt->cpus[1] = (fallback >= 0) ? fallback : opt->cpus[0];
    fprintf(stderr, "%s: only one core is allowed here, numbers will say little\n", perf_name);
}

static void pin(int cpu)
{
    cpu_set_t set;

    if (cpu < 0) {
        return;
    }
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        perf_fail("can't run on CPU %d: %s", cpu, strerror(errno));
    }
}

typedef struct {
    angara_address_t address;
    uint64_t         key;
} introduction_t;

static char *gpu_alloc(const perf_t *p, size_t size)
{
    const device_runtime_t *gpu = p->opt->gpu;
    unsigned                num = gpu->open();
    char                   *addr;

    if (num == 0) {
        perf_fail("there is no GPU of %s, or its runtime can't be loaded", gpu->name);
    }
    addr = gpu->alloc(p->rank % num, size, p->opt->origin);
    if (addr == NULL) {
        perf_fail("no GPU memory for a buffer of %zu bytes", size);
    }
    return addr;
}

static char *host_alloc(size_t size)
{
    char *addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (addr == MAP_FAILED) {
        perf_fail("no memory for a buffer of %zu bytes", size);
    }
    memset(addr, 1, size);
    return addr;
}

/* One end of offload operations. */
static char *end_alloc(const perf_t *p, int on_gpu, size_t size)
{
    return on_gpu ? gpu_alloc(p, size) : host_alloc(size);
}

static void end_free(const perf_t *p, int on_gpu, char *addr)
{
    if (on_gpu) {
        p->opt->gpu->free(addr, p->opt->origin);
    } else {
        munmap(addr, p->mem_size);
    }
}

/* The target is memory of the library's. */
static int mem_is_shared(const perf_t *p)
{
    return p->opt->shared && !p->opt->mem_on_gpu;
}

static void memory_init(perf_t *p, size_t size)
{
    size_t length = size;
    void  *addr;

    p->mem_size = size;
    p->buf      = end_alloc(p, p->opt->buf_on_gpu, size);
    p->scratch  = host_alloc(size);
    check(angara_mr_register(p->dom, p->buf, size, ANGARA_ACCESS_LOCAL_WRITE, &p->buf_mr),
          "registering the local buffer");
    if (mem_is_shared(p)) {
        check(angara_mem_alloc(p->dom, &length, ANGARA_ACCESS_ALL, &addr, &p->mr),
              "allocating shared memory");
        memset(addr, 1, size);
    } else {
        addr = end_alloc(p, p->opt->mem_on_gpu, size);
        check(angara_mr_register(p->dom, addr, size, ANGARA_ACCESS_ALL, &p->mr),
              "registering the region");
    }
    p->mem = addr;
}

/* Sizes are those that both devices can do. */
static void agree(perf_t *p)
{
    uint64_t mine[2] = {p->attr.put_max, p->attr.offload_max}, theirs[2];

    talk(p, mine, theirs, sizeof(mine));
    p->attr.put_max     = (theirs[0] < mine[0]) ? theirs[0] : mine[0];
    p->attr.offload_max = (theirs[1] < mine[1]) ? theirs[1] : mine[1];
}

static void perf_init(perf_t *p, size_t largest, size_t largest_put)
{
    angara_pe_params_t params = {.size = sizeof(params)};
    introduction_t     mine, theirs;
    size_t             window = PERF_DATA + 3 * (largest_put + 128) + PERF_RING;

    set_patience(p, 0, 0);
    pin(p->opt->cpus[p->rank]);
    check(angara_open(p->opt->device, &p->dom), "opening the device");
    check(angara_query(p->dom, &p->attr), "query");
    agree(p);
    params.window_size = (window + 4095) & ~(size_t)4095;
    check(angara_pe_create(p->dom, &params, &p->pe), "creating a PE");
    check(angara_pe_window_commit(p->pe, 0, params.window_size), "committing the window");
    p->window = angara_pe_window(p->pe, &window);
    memory_init(p, (largest < (1u << 20)) ? 1u << 20 : (largest + 4095) & ~(size_t)4095);
    memset(&mine, 0, sizeof(mine));
    angara_pe_address(p->pe, &mine.address);
    mine.key = angara_mr_key(p->mr);
    talk(p, &mine, &theirs, sizeof(mine));
    p->rkey = theirs.key;
    check(angara_peer_connect(p->pe, &theirs.address, &p->peer), "connecting");
    check(angara_marker_slot_get(p->pe, &p->slot), "taking a marker slot");
    p->value = *p->slot;
    perf_barrier(p);
}

static void perf_cleanup(perf_t *p)
{
    set_patience(p, 0, 0);
    perf_barrier(p);
    angara_marker_slot_put(p->pe, p->slot);
    angara_peer_disconnect(p->peer);
    angara_pe_destroy(p->pe);
    if (mem_is_shared(p)) {
        check(angara_mem_free(p->mr), "freeing shared memory");
    } else {
        check(angara_mr_deregister(p->mr), "deregistering the region");
        end_free(p, p->opt->mem_on_gpu, p->mem);
    }
    check(angara_mr_deregister(p->buf_mr), "deregistering the buffer");
    end_free(p, p->opt->buf_on_gpu, p->buf);
    munmap(p->scratch, p->mem_size);
    check(angara_close(p->dom), "closing the device");
}

/* ---- running and reporting ----------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double convert(perf_unit_t unit, double seconds, size_t size, unsigned iterations)
{
    double each = seconds / iterations;

    switch (unit) {
    case PERF_HALF_NS:
        return each * 1e9 / 2;
    case PERF_MBS:
        return (double)size / each / 1e6;
    case PERF_MOPS:
        return 1e-6 / each;
    default:
        return each * 1e9;
    }
}

static void measure(perf_t *p, const perf_test_t *test, size_t size, perf_result_t *result)
{
    /* Large operations need fewer repeats: at most 512 MiB in all, at least two a batch. */
    unsigned long most = (512ul << 20) / (size + 1) + 2 * PERF_BATCHES;
    unsigned      n    = (p->opt->iterations < most) ? p->opt->iterations : (unsigned)most;
    unsigned      warm = (p->opt->warm_up < n) ? p->opt->warm_up : n;
    double        values[PERF_BATCHES];
    unsigned      i;

    n = (n + PERF_BATCHES - 1) / PERF_BATCHES;
    set_patience(p, size, (warm > n) ? warm : n);
    if (warm > 0) {
        test->batch(p, size, warm);
    }
    for (i = 0; i < PERF_BATCHES; ++i) {
        values[i] = convert(test->unit, test->batch(p, size, n), size, n);
    }
    perf_barrier(p); /* the patience with the next size is another */
    qsort(values, PERF_BATCHES, sizeof(values[0]), compare_doubles);
    result->min        = values[0];
    result->median     = (values[PERF_BATCHES / 2 - 1] + values[PERF_BATCHES / 2]) / 2;
    result->max        = values[PERF_BATCHES - 1];
    result->iterations = n * PERF_BATCHES;
}

static void report(const perf_t *p, const perf_test_t *test, size_t size,
                   const perf_result_t *result, json_t *list)
{
    const char *unit = perf_unit_name(test->unit);

    if (p->rank != 0) {
        return;
    }
    if (list == NULL) {
        printf("%s %zu %.*f %s\n", test->name, size, (test->unit == PERF_MOPS) ? 6 : 1,
               result->median, unit);
        fflush(stdout);
        return;
    }
    json_array_append_new(list, json_pack("{s:s, s:I, s:f, s:f, s:f, s:s, s:i}", "test", test->name,
                                          "size", (json_int_t)size, "value", result->median, "min",
                                          result->min, "max", result->max, "unit", unit,
                                          "iterations", (int)result->iterations));
}

/* Sizes of a test: the powers of two between both ends, and both ends. */
static size_t next_size(size_t size, size_t last)
{
    size_t next = 1;

    while (next <= size) {
        next *= 2;
    }
    return ((next > last) && (size < last)) ? last : next;
}

static void size_range(const perf_t *p, const perf_test_t *test, size_t *min, size_t *max)
{
    const perf_options_t *opt   = p->opt;
    size_t                limit = (test->limit != 0) ? test->limit : PERF_SIZE_MAX;

    *min = (opt->size_max != 0) ? opt->size_min : test->default_min;
    *max = (opt->size_max != 0) ? opt->size_max : test->default_max;
    if (test->batch == NULL) {
        return;
    }
    if (test->window && (p->attr.put_max < limit)) {
        limit = p->attr.put_max;
    } else if (!test->window && (p->attr.offload_max < limit)) {
        limit = p->attr.offload_max;
    }
    *max = (*max < limit) ? *max : limit;
    if ((test->unit == PERF_MBS) && (*min == 0)) {
        *min = 1;
    }
}

static void run_test(perf_t *p, const perf_test_t *test, json_t *list)
{
    size_t        min, max, size;
    perf_result_t result;

    size_range(p, test, &min, &max);
    if (test->limit == 1) { /* has no size */
        measure(p, test, 0, &result);
        report(p, test, 0, &result, list);
        return;
    }
    for (size = min; size <= max; size = next_size(size, max)) {
        if (strncmp(test->name, "atomic", 6) == 0) {
            size = (size <= 4) ? 4 : 8;
        }
        measure(p, test, size, &result);
        report(p, test, size, &result, list);
    }
}

static json_t *describe(const perf_t *p)
{
    const perf_options_t *opt = p->opt;

    return json_pack(
        "{s:s, s:s, s:s, s:i, s:b, s:[i, i], s:s, s:s, s:s, s:s, s:b}", "version", angara_version(),
        "provider", p->attr.provider, "device", p->attr.device, "node", (int)p->attr.node,
        "loopback", (p->attr.caps & ANGARA_CAP_LOOPBACK) != 0, "cpus", opt->cpus[0], opt->cpus[1],
        "memory", opt->shared ? "shared" : "private", "target", opt->polls ? "polls" : "sleeps",
        "buffer_on", opt->buf_on_gpu ? opt->gpu->name : "host", "target_on",
        opt->mem_on_gpu ? opt->gpu->name : "host", "check", opt->check);
}

static void perf_run(perf_t *p, const unsigned char *selected)
{
    json_t  *list = NULL, *all;
    unsigned i;
    size_t   largest = 0, largest_put = 0, min, max;

    for (i = 0; i < perf_num_tests; ++i) {
        if (selected[i]) {
            min     = (p->opt->size_max != 0) ? p->opt->size_min : perf_tests[i].default_min;
            max     = (p->opt->size_max != 0) ? p->opt->size_max : perf_tests[i].default_max;
            max     = (min > max) ? min : max;
            largest = (max > largest) ? max : largest;
            if (perf_tests[i].window && (max > largest_put)) {
                largest_put = max;
            }
        }
    }
    perf_init(p, largest, largest_put);
    if (p->opt->json) {
        list = json_array();
    }
    for (i = 0; i < perf_num_tests; ++i) {
        if (selected[i]) {
            run_test(p, &perf_tests[i], list);
        }
    }
    if ((p->rank == 0) && (list != NULL)) {
        all = describe(p);
        json_object_set(all, "results", list);
        json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        printf("\n");
        json_decref(all);
    }
    json_decref(list);
    perf_cleanup(p);
}

static int run_both(const perf_options_t *opt, const unsigned char *selected)
{
    perf_t p = {.opt = opt};
    int    socks[2], status = 0;
    pid_t  child;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks) != 0) {
        perf_fail("socketpair: %s", strerror(errno));
    }
    fflush(stdout);
    child = fork(); /* before the library is open: each process opens its own */
    if (child < 0) {
        perf_fail("fork: %s", strerror(errno));
    }
    p.rank = (child == 0);
    p.sock = socks[p.rank];
    close(socks[1 - p.rank]);
    perf_run(&p, selected);
    close(p.sock);
    if (child == 0) {
        return EXIT_SUCCESS;
    }
    if ((waitpid(child, &status, 0) != child) || !WIFEXITED(status) || (WEXITSTATUS(status) != 0)) {
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

/* The other process is somebody else's child. */
static int run_one(perf_options_t *opt, unsigned char *selected)
{
    perf_t p = {.opt = opt, .rank = opt->listen_at != NULL};

    p.sock = p.rank != 0 ? perf_listen(opt, selected) : perf_connect(opt, selected);
    perf_run(&p, selected);
    close(p.sock);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    perf_options_t opt = {.iterations  = 100000,
                          .warm_up     = 10000,
                          .shared      = 1,
                          .cpus        = {-1, -1},
                          .choose_cpus = 1,
                          .patience    = PERF_PATIENCE,
                          .argv        = argv};
    unsigned char  selected[PERF_TESTS_MAX];

    perf_parse_options(argc, argv, &opt, selected);
    if ((opt.listen_at != NULL) || (opt.host != NULL)) {
        return run_one(&opt, selected);
    }
    if (opt.choose_cpus) {
        choose_cpus(&opt);
    }
    return run_both(&opt, selected);
}
