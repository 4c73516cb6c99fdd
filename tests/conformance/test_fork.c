/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that fork with the library open: the child gets errors from the parent's objects, may
 * open its own, and leaves the parent's alone. Neither it nor a program that it goes over to keeps
 * a descriptor of the library's. A peer that goes over to another program is gone.
 */
#include "conf.h"

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 65536u

typedef struct {
    conf_mem_t mem, buf;
    uint64_t   keys[RANK_MAX];
} regions_t;

static void regions_init(conf_t *t, regions_t *r, int shared)
{
    conf_mem_init(t, &r->mem, shared, SIZE, ANGARA_ACCESS_ALL);
    conf_mem_init(t, &r->buf, 0, SIZE, ANGARA_ACCESS_LOCAL_WRITE);
    conf_mem_exchange(t, &r->mem, r->keys);
}

static void regions_cleanup(conf_t *t, regions_t *r)
{
    conf_barrier(t);
    conf_mem_cleanup(&r->buf);
    conf_mem_cleanup(&r->mem);
}

/* Traffic of all kinds from rank 0 to rank 1 and back, checked at both ends. */
static void traffic(conf_t *t, regions_t *r, unsigned seed)
{
    unsigned       other = 1 - t->rank;
    angara_event_t event;

    data_fill(r->buf.addr, 30000, seed + t->rank);
    POST_OK(t, angara_put_flag(t->peer[other], 8, r->buf.addr, 1000, 0, seed));
    POST_OK(t,
            angara_offload_put(t->peer[other], r->buf.mr, r->buf.addr, r->keys[other], 64, 30000));
    POST_OK(t, conf_add(t, other, r->mem.shared, 1, 1, r->keys[other], 0));
    POST_OK(t, angara_notify(t->peer[other], &seed, sizeof(seed)));
    conf_marker(t, other);
    conf_barrier(t);
    CHECK_DATA(t->window + 8, 1000, seed + other);
    CHECK_DATA(r->mem.addr + 64, 30000, seed + other);
    CHECK(conf_event(t, &event, RANK_TIMEOUT));
    CHECK_EQ(event.type, ANGARA_EVENT_NOTIFY);
    CHECK(memcmp(event.data, &seed, sizeof(seed)) == 0);
    conf_barrier(t);
}

static void wait_child(pid_t pid)
{
    int status;

    CHECK(pid > 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0)) {
        rank_fail(__FILE__, __LINE__, "the forked child ended with %#x", status);
    }
}

/*
 * @return how many times the threads of this process but the calling one have gone to sleep, or -1
 *         where one of them doesn't.
 */
static long thread_naps(void)
{
    DIR           *dir  = opendir("/proc/self/task");
    long           naps = 0, n;
    struct dirent *task;
    char           path[300], line[256], state;
    FILE          *file;

    CHECK(dir != NULL);
    while ((task = readdir(dir)) != NULL) {
        if (atoi(task->d_name) == 0 || atoi(task->d_name) == getpid()) {
            continue;
        }
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
        file = fopen(path, "r");
        while (file != NULL && fgets(line, sizeof(line), file) != NULL && naps >= 0) {
            if (sscanf(line, "State: %c", &state) == 1 && state != 'S') {
                naps = -1;
            } else if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1) {
                naps += n;
            }
        }
        if (file != NULL) {
            fclose(file);
        }
    }
    closedir(dir);
    return naps;
}

/* Wait until the library's threads sleep, and go on to. */
static void wait_for_threads(void)
{
    long   before = -1, now = -1;
    double end = now_seconds() + RANK_TIMEOUT;

    while (now < 0 || now != before) {
        before = now;
        sleep_ms(2);
        now = thread_naps();
        CHECK(now_seconds() < end);
    }
}

/*
 * Rank 0 forks; all ranks call this. The allocator of the address sanitizer (gcc 12) has locks that
 * stay taken in the child where another thread was allocating: with it, nothing happens meanwhile.
 * @return the child's number, 0 in it, -1 in the other ranks.
 */
static pid_t fork_rank_0(conf_t *t)
{
    pid_t pid = -1;

    if (CONF_SANITIZED) {
        conf_barrier(t);
    }
    if (t->rank == 0) {
        if (CONF_SANITIZED) {
            wait_for_threads();
        }
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            return 0;
        }
    }
    if (CONF_SANITIZED) {
        conf_barrier(t);
    }
    return pid;
}

/* Those of a GPU's runtime are its own business. */
static int is_runtimes(int fd)
{
    char    path[64], name[256];
    ssize_t length;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    length = readlink(path, name, sizeof(name) - 1);
    if (length < 0) {
        return 0;
    }
    name[length] = '\0';
    return strstr(name, "memfd:standin") != NULL;
}

/* The numbers of the open descriptors, as "0 1 2 ". */
static void list_descriptors(char *text, size_t size)
{
    struct stat info;
    size_t      length = 0;
    int         fd;

    text[0] = '\0';
    for (fd = 0; fd < 1024; ++fd) {
        if (fstat(fd, &info) == 0 && !is_runtimes(fd)) {
            length += (size_t)snprintf(text + length, size - length, "%d ", fd);
            CHECK(length < size);
        }
    }
}

/* What inline code does with the parent's peers. */
static void child_inline(conf_t *t, uint64_t key)
{
    char  scratch[64] = {0};
    void *p           = angara_put_begin(t->peer[1], 64, 8, scratch);

    memcpy(p, "12345678", 8);
    CHECK_STATUS(angara_put_commit(t->peer[1], p, 64, 8, 72, 1), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_put_u16(t->peer[1], 80, 1), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_put_u64(t->peer[1], 88, 1), ANGARA_ERR_FORKED);
    CHECK_EQ(angara_fast_put(t->peer[1], scratch, key, 0, 8), 0);
    CHECK_EQ(angara_fast_get(t->peer[1], scratch, key, 0, 8), 0);
    CHECK_EQ(angara_fast_atomic(t->peer[1], ANGARA_ATOMIC_ADD, 8, 1, 0, key, 0, scratch), 0);
    angara_wake_if_armed(t->peer[1]);
}

/* All calls that return a status, on the parent's objects. */
static void child_calls(conf_t *t, regions_t *r)
{
    angara_xfer_t         xfer   = {r->buf.mr, r->buf.addr, r->keys[1], 0, 1};
    unsigned              posted = 99;
    size_t                size   = 99;
    angara_event_t        event;
    angara_attr_t         attr;
    angara_mr_h           mr;
    angara_pe_h           pe;
    angara_peer_h         peer;
    angara_marker_slot_t *slot;
    size_t                length = 4096;
    void                 *addr;
    int                   fd;

    CHECK_STATUS(angara_query(t->dom, &attr), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_mr_register(t->dom, &attr, 1, 0, &mr), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_mem_alloc(t->dom, &length, 0, &addr, &mr), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_pe_create(t->dom, NULL, &pe), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_pe_window_commit(t->pe, 0, 4096), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_pe_event_poll(t->pe, &event), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_pe_event_fd(t->pe, &fd), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_pe_event_arm(t->pe), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_peer_connect(t->pe, &t->addr[0], &peer), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_peer_status(t->peer[1]), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_peer_reset(t->peer[1]), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_put(t->peer[1], 0, "x", 1), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_put_flag(t->peer[1], 0, "x", 1, 8, 1), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_offload_put(t->peer[1], r->buf.mr, r->buf.addr, r->keys[1], 0, 1),
                 ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_offload_batch(t->peer[1], ANGARA_BATCH_PUT, &xfer, 1, &posted),
                 ANGARA_ERR_FORKED);
    CHECK_EQ(posted, 0);
    CHECK(angara_pe_window(t->pe, &size) == NULL);
    CHECK_EQ(size, 0);
    CHECK_STATUS(angara_offload_put_inline(t->peer[1], "x", r->keys[1], 0, 1), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_offload_get(t->peer[1], r->buf.mr, r->buf.addr, r->keys[1], 0, 1),
                 ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_atomic(t->peer[1], ANGARA_ATOMIC_ADD, 8, 1, 0, r->keys[1], 0, NULL, NULL),
                 ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_notify(t->peer[1], "x", 1), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_marker_slot_get(t->pe, &slot), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_marker(t->peer[1], t->slot, 1u << 30), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_marker_self(t->pe, t->slot, 1u << 30), ANGARA_ERR_FORKED);
    CHECK(!angara_is_reachable(t->dom, &t->addr[1]));
    CHECK_EQ(angara_pe_progress(t->pe), 0);
    /* Calls without a status do nothing. */
    angara_wake(t->peer[1]);
    angara_pe_event_disarm(t->pe);
    angara_marker_slot_put(t->pe, t->slot);
    angara_peer_disconnect(t->peer[1]);
    angara_pe_destroy(t->pe);
    CHECK_STATUS(angara_mr_deregister(r->buf.mr), ANGARA_ERR_FORKED);
    CHECK_STATUS(angara_close(t->dom), ANGARA_ERR_FORKED);
}

/* The child tries everything and exits through exit handlers; the parent goes on as if nothing was.
 */
static void child_exits(conf_t *t)
{
    regions_t r;
    unsigned  n;
    pid_t     pid;

    conf_open(t);
    regions_init(t, &r, *(const int *)t->arg);
    traffic(t, &r, 1);
    for (n = 0; n < 3; ++n) {
        pid = fork_rank_0(t);
        if (pid == 0) {
            child_inline(t, r.keys[1]);
            child_calls(t, &r);
            exit(0);
        }
        traffic(t, &r, 100 + n); /* while the child lives */
        if (t->rank == 0) {
            wait_child(pid);
        }
        traffic(t, &r, 200 + n);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

/* What the child does with objects of its own. */
static void child_own(conf_t *t, const regions_t *r)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = CONF_WINDOW};
    conf_t             own    = {.rank = 0};
    conf_mem_t         buf;
    unsigned           i;

    CHECK_OK(angara_open(conf_device(), &own.dom));
    CHECK_OK(angara_pe_create(own.dom, &params, &own.pe));
    CHECK_OK(angara_marker_slot_get(own.pe, &own.slot));
    own.value = *own.slot;
    /* A child of a process that has had a GPU's memory can have none. */
    conf_mem_init(&own, &buf, conf_on_gpu(0), SIZE, ANGARA_ACCESS_LOCAL_WRITE);
    for (i = 0; i < 2; ++i) {
        CHECK_OK(angara_peer_connect(own.pe, &t->addr[i], &own.peer[i]));
        data_fill(buf.addr, 40000, 50 + i);
        POST_OK(&own, angara_put_flag(own.peer[i], 8192, buf.addr, 1000, 4096, 50 + i));
        POST_OK(&own, angara_offload_put(own.peer[i], buf.mr, buf.addr, r->keys[i], 1024, 40000));
        if (conf_has_atomics(r->mem.shared)) {
            POST_OK(&own, angara_atomic(own.peer[i], ANGARA_ATOMIC_ADD, 4, 7, 0, r->keys[i], 8,
                                        buf.mr, buf.addr + 50000));
        } else {
            POST_OK(&own, conf_add(&own, i, 0, 7, 7, r->keys[i], 8));
        }
        POST_OK(&own,
                angara_offload_get(own.peer[i], buf.mr, buf.addr + 8, r->keys[i], 1024, 40000));
        conf_marker(&own, i);
        CHECK_DATA(buf.addr + 8, 40000, 50 + i);
    }
    for (i = 0; i < 2; ++i) {
        angara_peer_disconnect(own.peer[i]);
    }
    conf_mem_cleanup(&buf);
    angara_marker_slot_put(own.pe, own.slot);
    angara_pe_destroy(own.pe);
    CHECK_OK(angara_close(own.dom));
}

/* The child opens its own objects; it and its parent talk to each other and to rank 1. */
static void child_opens(conf_t *t)
{
    regions_t r;
    pid_t     pid;
    uint64_t *word;

    conf_open(t);
    regions_init(t, &r, *(const int *)t->arg);
    traffic(t, &r, 1);
    pid = fork_rank_0(t);
    if (pid == 0) {
        child_own(t, &r);
        exit(0);
    }
    if (t->rank == 0) {
        wait_child(pid);
    }
    conf_barrier(t);
    word = (uint64_t *)(void *)(t->window + 4096);
    CHECK_EQ(*word, 50 + t->rank);
    CHECK_DATA(t->window + 8192, 1000, 50 + t->rank);
    CHECK_DATA(r.mem.addr + 1024, 40000, 50 + t->rank);
    CHECK_EQ(*(uint32_t *)(void *)(r.mem.addr + 8), 7);
    conf_barrier(t);
    traffic(t, &r, 9);
    regions_cleanup(t, &r);
    conf_close(t);
}

/*
 * Descriptors that are open before the library is are all that a child has, and all that is left
 * (without those that exec closes) in a program that it goes over to: this one, as main() calls it.
 */
static void child_descriptors(conf_t *t)
{
    char      before[4096], now[4096];
    regions_t r;
    unsigned  with_exec;
    pid_t     pid;
    int       fd;

    list_descriptors(before, sizeof(before));
    conf_open(t);
    regions_init(t, &r, conf_has_atomics(0)); /* else memory of a GPU */
    CHECK_OK(angara_pe_event_fd(t->pe, &fd));
    traffic(t, &r, 1);
    for (with_exec = 0; with_exec < 2; ++with_exec) {
        pid = fork_rank_0(t);
        if ((pid == 0) && with_exec) {
            execl("/proc/self/exe", "test_fork", "--descriptors", before, (char *)NULL);
            _exit(2);
        } else if (pid == 0) {
            list_descriptors(now, sizeof(now));
            if (strcmp(before, now) != 0) {
                rank_fail(__FILE__, __LINE__, "descriptors %s, expected %s", now, before);
            }
            exit(0);
        } else if (pid > 0) {
            wait_child(pid);
        }
        conf_barrier(t);
    }
    conf_barrier(t);
    traffic(t, &r, 2);
    regions_cleanup(t, &r);
    conf_close(t);
}

/* @return exit status of the program that child_descriptors() goes over to. */
static int only_descriptors(const char *expected)
{
    char  now[4096], number[16];
    char *token, *rest = now;
    int   failed = 0;

    list_descriptors(now, sizeof(now));
    while ((token = strtok_r(rest, " ", &rest)) != NULL) {
        snprintf(number, sizeof(number), " %s ", token);
        if ((strstr(expected, number) == NULL) &&
            (strncmp(expected, number + 1, strlen(number + 1)) != 0)) {
            fprintf(stderr, "# descriptor %s has survived\n", token);
            failed = 1;
        }
    }
    return failed;
}

/*
 * Rank 1 goes over to another program, which has its number and start time. Rank 0 is told that its
 * peer is gone while that program still runs.
 */
static void peer_execs(conf_t *t)
{
    angara_event_t event;
    regions_t      r;

    conf_open(t);
    regions_init(t, &r, *(const int *)t->arg);
    traffic(t, &r, 1);
    if (t->rank == 1) {
        CHECK(dup2(t->fd[0], STDIN_FILENO) >= 0); /* stays open over exec */
        execl("/bin/sh", "sh", "-c", "read line && exit 0; exit 1", (char *)NULL);
        _exit(2);
    }
    CHECK(conf_event(t, &event, RANK_TIMEOUT));
    CHECK_EQ(event.type, ANGARA_EVENT_PEER_DOWN);
    CHECK(event.peer == t->peer[1]);
    CHECK_STATUS((angara_status_t)event.status, ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_peer_status(t->peer[1]), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr, r.keys[1], 0, 8),
                 ANGARA_ERR_PEER_DEAD);
    CHECK(kill(t->pid[1], 0) == 0);
    conf_send(t, 1, "\n", 1);
    conf_mem_cleanup(&r.buf); /* nobody is waited for */
    conf_mem_cleanup(&r.mem);
    conf_close_alone(t);
}

/* vfork and exec, as system() and posix_spawn do it, many times under traffic. */
static void spawn_under_traffic(conf_t *t)
{
    unsigned  rounds = conf_rounds(20), n;
    regions_t r;

    conf_open(t);
    regions_init(t, &r, 0);
    for (n = 0; n < rounds; ++n) {
        if (t->rank == 0) {
            CHECK(system("exit 0") == 0);
        }
        traffic(t, &r, n + 1);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

/* Descriptors and mappings: 50 lives of everything end with as many as before. */
static unsigned count_descriptors(void)
{
    unsigned count = 0;
    DIR     *dir   = opendir("/proc/self/fd");

    CHECK(dir != NULL);
    while (readdir(dir) != NULL) {
        ++count;
    }
    closedir(dir);
    return count;
}

static unsigned count_mappings(void)
{
    unsigned count = 0;
    char     line[512];
    FILE    *maps = fopen("/proc/self/maps", "r");

    CHECK(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        count += strstr(line, "memfd:") != NULL;
    }
    fclose(maps);
    return count;
}

static void lives(conf_t *t)
{
    unsigned  rounds = 3 + conf_rounds(20), n, descriptors = 0;
    regions_t r;

    for (n = 0; n < rounds; ++n) {
        conf_open(t);
        regions_init(t, &r, (int)(n & 1));
        traffic(t, &r, n + 1);
        regions_cleanup(t, &r);
        conf_close(t);
        /* The table of GPU memory that is shared stays. */
        CHECK_EQ(count_mappings(), conf_on_gpu(t->rank));
        if (n == 2) { /* what a process keeps once is not a leak */
            descriptors = count_descriptors();
        }
    }
    CHECK_EQ(count_descriptors(), descriptors);
}

static void test_child_exits(void **state)
{
    int shared = 0;

    (void)state;
    conf_run(2, child_exits, &shared);
}

static void test_child_opens_private(void **state)
{
    int shared = 0;

    (void)state;
    conf_run(2, child_opens, &shared);
}

static void test_child_opens_shared(void **state)
{
    int shared = 1;

    (void)state;
    conf_run(2, child_opens, &shared);
}

static void test_child_descriptors(void **state)
{
    (void)state;
    conf_run(2, child_descriptors, NULL);
}

static void test_peer_execs_private(void **state)
{
    int shared = 0;

    (void)state;
    conf_run(2, peer_execs, &shared);
}

static void test_peer_execs_shared(void **state)
{
    int shared = 1;

    (void)state;
    conf_run(2, peer_execs, &shared);
}

static void test_spawn_under_traffic(void **state)
{
    (void)state;
    conf_run(2, spawn_under_traffic, NULL);
}

static void test_lives(void **state)
{
    (void)state;
    conf_run(2, lives, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_child_exits),         cmocka_unit_test(test_child_opens_private),
        cmocka_unit_test(test_child_opens_shared),  cmocka_unit_test(test_child_descriptors),
        cmocka_unit_test(test_peer_execs_private),  cmocka_unit_test(test_peer_execs_shared),
        cmocka_unit_test(test_spawn_under_traffic), cmocka_unit_test(test_lives),
    };

    if ((argc == 3) && (strcmp(argv[1], "--descriptors") == 0)) {
        return only_descriptors(argv[2]);
    }
    return cmocka_run_group_tests_name("fork", tests, NULL, NULL);
}
