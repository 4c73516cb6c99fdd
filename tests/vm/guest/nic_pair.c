/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ranks in two VMs talk through their NICs: nic_pair RANK ADDRESS [surprise], where ADDRESS is
 * rank 0's. What the conformance suite can't do, as its ranks share a host: another node, its end,
 * the link, and the loss of the device, in good order or by surprise. Rank 0 prints TAP. Uses the
 * suite's helpers over a TCP connection.
 */
#include "conf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PORT   7471
#define REGION (1u << 20)

typedef struct {
    conf_mem_t mem, buf;
    uint64_t   keys[RANK_MAX];
} regions_t;

static unsigned tap_number;

static void passed(const conf_t *t, const char *what)
{
    if (t->rank == 0) {
        printf("ok %u - %s\n", ++tap_number, what);
        fflush(stdout);
    }
}

static uint64_t word_at(const char *memory)
{
    return __atomic_load_n((const uint64_t *)(const void *)memory, __ATOMIC_ACQUIRE);
}

/* ---- chapters -------------------------------------------------------------------------------- */

static void windows(conf_t *t, regions_t *r)
{
    unsigned other = 1 - t->rank, n;
    size_t   size;

    for (n = 1; n <= 300; ++n) {
        size = (n * 1237) % t->attr.put_max;
        data_fill(r->buf.addr, size, n + t->rank);
        POST_OK(t, angara_put_flag(t->peer[other], 64, r->buf.addr, size, 0, n));
        CONF_WAIT(t, word_at(t->window) == n);
        CHECK_DATA(t->window + 64, size, n + other);
        conf_barrier(t);
    }
}

static void offload(conf_t *t, regions_t *r)
{
    unsigned      other = 1 - t->rank, n, posted;
    angara_xfer_t xfers[8];

    data_fill(r->buf.addr, REGION / 2, 7 + t->rank);
    POST_OK(t, angara_offload_put(t->peer[other], r->buf.mr, r->buf.addr, r->keys[other], 0,
                                  REGION / 2));
    POST_OK(t, angara_offload_get(t->peer[other], r->buf.mr, r->buf.addr + REGION / 2,
                                  r->keys[other], 0, REGION / 2));
    conf_marker(t, other);
    CHECK_DATA(r->buf.addr + REGION / 2, REGION / 2, 7 + t->rank);
    conf_barrier(t);
    CHECK_DATA(r->mem.addr, REGION / 2, 7 + other);
    conf_barrier(t); /* it has been looked at */
    for (n = 0; n < 8; ++n) {
        data_fill(r->buf.addr + n * 10000, 9999, n + t->rank);
        xfers[n] = (angara_xfer_t){r->buf.mr, r->buf.addr + n * 10000, r->keys[other], n * 10000,
                                   9999};
    }
    CHECK_OK(angara_offload_batch(t->peer[other], ANGARA_BATCH_PUT, xfers, 8, &posted));
    CHECK_EQ(posted, 8);
    conf_marker(t, other);
    conf_barrier(t);
    for (n = 0; n < 8; ++n) {
        CHECK_DATA(r->mem.addr + n * 10000, 9999, n + other);
    }
}

/* Both nodes add to one word; the old values are all different. */
static void atomics(conf_t *t, regions_t *r)
{
    uint64_t *old = (uint64_t *)(void *)r->buf.addr, all[RANK_MAX], sum = 0;
    unsigned  n;

    memset(r->mem.addr, 0, 8);
    conf_barrier(t);
    for (n = 0; n < 1000; ++n) {
        POST_OK(t, angara_atomic(t->peer[1], ANGARA_ATOMIC_ADD, 8, 1, 0, r->keys[1], 0, r->buf.mr,
                                 &old[n]));
    }
    conf_marker(t, 1);
    for (n = 0; n < 1000; ++n) {
        CHECK((n == 0) || (old[n] > old[n - 1]));
        sum += old[n];
    }
    conf_exchange(t, &sum, all, sizeof(sum));
    CHECK_EQ(all[0] + all[1], 1999 * 1000);
}

/* Rank 1 sleeps; a flagged put and then a record from the other node wake it. */
static void sleepers(conf_t *t, regions_t *r)
{
    struct pollfd  pfd = {.events = POLLIN};
    angara_event_t event;
    unsigned       n;

    (void)r;
    CHECK_OK(angara_pe_event_fd(t->pe, &pfd.fd));
    for (n = 1; n <= 20; ++n) {
        if (t->rank == 1) {
            CHECK_OK(angara_pe_event_arm(t->pe));
        }
        conf_barrier(t);
        if (t->rank == 0 && n % 2) {
            POST_OK(t, angara_put_flag(t->peer[1], 64, &n, sizeof(n), 8, n));
        } else if (t->rank == 0) {
            POST_OK(t, angara_notify(t->peer[1], &n, sizeof(n)));
        } else {
            CHECK_EQ(poll(&pfd, 1, RANK_TIMEOUT * 1000), 1);
            angara_pe_event_disarm(t->pe);
            if (n % 2) {
                CHECK_EQ(word_at(t->window + 8), n);
            } else {
                CHECK(conf_event(t, &event, RANK_TIMEOUT));
                CHECK_EQ(event.type, ANGARA_EVENT_NOTIFY);
                CHECK(event.peer == t->peer[0]);
            }
            CHECK_EQ(poll(&pfd, 1, 0), 0);
        }
        conf_barrier(t);
    }
}

static void faults(conf_t *t, regions_t *r)
{
    if (t->rank == 0) {
        conf_expect_fault(t, 1, angara_offload_put(t->peer[1], r->buf.mr, r->buf.addr, 4711, 0, 8),
                          ANGARA_ERR_KEY, 4711);
        conf_expect_fault(
            t, 1, angara_offload_get(t->peer[1], r->buf.mr, r->buf.addr, r->keys[1], REGION, 8),
            ANGARA_ERR_BOUNDS, r->keys[1]);
    }
    conf_barrier(t);
}

static void expect_link(conf_t *t, int up)
{
    angara_event_t event;

    CHECK(conf_event(t, &event, RANK_TIMEOUT));
    CHECK_EQ(event.type, ANGARA_EVENT_LINK);
    CHECK_EQ(event.status, up);
}

/* The link of node 1 is cut: an operation ends in a fault; when it is up again all goes on. */
static void link_cut(conf_t *t, regions_t *r)
{
    angara_event_t event;

    conf_barrier(t);
    if (t->rank == 1) {
        expect_link(t, 0);
        conf_barrier(t);
        expect_link(t, 1);
    } else {
        CHECK(system("vm_host emu link 1 down") == 0);
        CHECK_OK(angara_offload_put_inline(t->peer[1], "x", r->keys[1], 0, 1));
        CHECK(conf_event(t, &event, RANK_TIMEOUT));
        CHECK_EQ(event.type, ANGARA_EVENT_FAULT);
        CHECK_STATUS((angara_status_t)event.status, ANGARA_ERR_UNREACHABLE);
        CHECK_STATUS(angara_peer_status(t->peer[1]), ANGARA_ERR_PAIR);
        CHECK_STATUS(angara_notify(t->peer[1], "x", 1), ANGARA_ERR_UNREACHABLE);
        conf_barrier(t);
        CHECK(system("vm_host emu link 1 up") == 0);
        CHECK_OK(angara_peer_reset(t->peer[1]));
        conf_marker(t, 1);
    }
    conf_barrier(t);
}

/* Rank 1 is killed. */
static void peer_dies(conf_t *t, regions_t *r)
{
    angara_event_t event;

    if (t->rank == 1) {
        kill(getpid(), SIGKILL);
    }
    CHECK(conf_event(t, &event, RANK_TIMEOUT));
    CHECK_EQ(event.type, ANGARA_EVENT_PEER_DOWN);
    CHECK(event.peer == t->peer[1]);
    CHECK_STATUS(angara_peer_status(t->peer[1]), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_peer_reset(t->peer[1]), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_offload_put_inline(t->peer[1], "x", r->keys[1], 0, 1),
                 ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_put_u64(t->peer[1], 0, 1), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_notify(t->peer[1], "x", 1), ANGARA_ERR_PEER_DEAD);
}

/* The NIC is removed under an open PE: errors, and no waiting. */
static void device_goes(conf_t *t, regions_t *r)
{
    angara_event_t  event;
    angara_status_t status;
    angara_domain_h dom;
    conf_timer_t    timer = conf_timer();

    CHECK(system("echo 1 >/sys/class/angara/angara0/device/remove") == 0);
    while ((status = angara_peer_status(t->peer[0])) == ANGARA_OK) {
        conf_relax(t, &timer, __FILE__, __LINE__, "the device is gone");
    }
    CHECK_STATUS(status, ANGARA_ERR_PEER_DEAD);
    CHECK(conf_event(t, &event, RANK_TIMEOUT));
    CHECK_EQ(event.type, ANGARA_EVENT_PEER_DOWN);
    CHECK(event.peer == t->peer[0]);
    CHECK(!conf_event(t, &event, 0));
    CHECK_STATUS(angara_marker(t->peer[0], t->slot, ++t->value), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_notify(t->peer[0], "x", 1), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_put_u64(t->peer[0], 0, 1), ANGARA_ERR_PEER_DEAD);
    CHECK(angara_peer_connect(t->pe, &t->addr[1], &t->peer[2]) < 0);
    CHECK_STATUS(angara_pe_event_arm(t->pe), ANGARA_ERR_NO_DEVICE);
    angara_pe_event_disarm(t->pe);
    conf_mem_cleanup(&r->buf);
    conf_mem_cleanup(&r->mem);
    conf_close_alone(t);
    CHECK_STATUS(angara_open("nic", &dom), ANGARA_ERR_NO_DEVICE);
}

/* ---- the device is lost by surprise ---------------------------------------------------------- */

/* One of all kinds of operations. @return what the first that failed said. */
static angara_status_t one_of_each(conf_t *t, regions_t *r, unsigned n)
{
    unsigned        other = 1 - t->rank;
    angara_peer_h   peer  = t->peer[other];
    char           *buf   = r->buf.addr;
    angara_status_t status[6];

    status[0] = angara_put_flag(peer, 64, buf, 200, 0, n);
    status[1] = angara_offload_put(peer, r->buf.mr, buf, r->keys[other], 0, 5000);
    status[2] = angara_offload_get(peer, r->buf.mr, buf + 8192, r->keys[other], 0, 5000);
    status[3] = angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, r->keys[other], 8192, NULL, NULL);
    status[4] = n % 64 ? ANGARA_OK : angara_notify(peer, &n, sizeof(n));
    status[5] = angara_marker(peer, t->slot, ++t->value);
    for (unsigned i = 0; i < 6; ++i) {
        if (status[i] != ANGARA_OK && status[i] != ANGARA_ERR_NO_RESOURCE) {
            return status[i];
        }
    }
    return ANGARA_OK;
}

/* Sleeps until the device is gone, as UCX does: on a set that has the PE's descriptor among others.
 */
typedef struct {
    pthread_t thread;
    int       fd, result;
} sleeper_t;

static sleeper_t sleeper;

static void *sleeper_run(void *arg)
{
    struct epoll_event event = {.events = EPOLLIN};
    int                set   = epoll_create1(EPOLL_CLOEXEC);

    (void)arg;
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, sleeper.fd, &event) == 0);
    do { /* system() of the other thread leaves its SIGCHLD to this one */
        sleeper.result = epoll_wait(set, &event, 1, RANK_TIMEOUT * 1000);
    } while (sleeper.result < 0 && errno == EINTR);
    close(set);
    return NULL;
}

/* Both are at it when the NIC of rank 0 is pulled out: each learns that the other is gone. */
static void pulled_out(conf_t *t, regions_t *r)
{
    unsigned       expected = t->rank == 0 ? 2 : 1; /* rank 0 loses its own PE as well */
    unsigned       other = 1 - t->rank, n = 0, down = 0;
    conf_timer_t   timer = conf_timer();
    angara_event_t event;

    if (t->rank == 0) {
        CHECK_OK(angara_pe_event_fd(t->pe, &sleeper.fd));
        CHECK(pthread_create(&sleeper.thread, NULL, sleeper_run, NULL) == 0);
    }
    conf_barrier(t);
    while (one_of_each(t, r, ++n) == ANGARA_OK) {
        if (n == 300 && t->rank == 0) {
            CHECK(system("vm_host emu remove 0 &") == 0); /* it comes while we go on */
        }
        while (angara_pe_event_poll(t->pe, &event) == ANGARA_OK) {
            down += event.type == ANGARA_EVENT_PEER_DOWN;
        }
        conf_relax(t, &timer, __FILE__, __LINE__, "the NIC is gone");
    }
    CONF_WAIT(t, angara_peer_status(t->peer[other]) == ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(one_of_each(t, r, 0), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_peer_reset(t->peer[other]), ANGARA_ERR_PEER_DEAD);
    while (conf_event(t, &event, down < expected ? RANK_TIMEOUT : 0)) {
        down += event.type == ANGARA_EVENT_PEER_DOWN;
    }
    CHECK_EQ(down, expected);
    if (t->rank == 0) {
        CHECK_STATUS(angara_marker_self(t->pe, t->slot, ++t->value), ANGARA_ERR_PEER_DEAD);
    } else {
        conf_marker(t, 1);
    }
    conf_barrier(t);
}

/* Sleepers are told, once, and what is new is refused. Rank 1 isn't affected. */
static void pulled_out_asleep(conf_t *t, regions_t *r)
{
    struct pollfd pfd = {.events = POLLIN};
    angara_pe_h   pe;

    (void)r;
    CHECK_OK(angara_pe_event_fd(t->pe, &pfd.fd));
    if (t->rank == 0) {
        CHECK(pthread_join(sleeper.thread, NULL) == 0);
        CHECK_EQ(sleeper.result, 1);
        CHECK_EQ(poll(&pfd, 1, RANK_TIMEOUT * 1000), 1);
        for (unsigned i = 0; i < 2; ++i) {
            CHECK_STATUS(angara_pe_event_arm(t->pe), ANGARA_ERR_NO_DEVICE);
            CHECK_EQ(poll(&pfd, 1, 0), 0);
        }
        CHECK_STATUS(angara_pe_create(t->dom, NULL, &pe), ANGARA_ERR_NO_DEVICE);
    } else {
        CHECK_OK(angara_pe_event_arm(t->pe));
        CHECK_EQ(poll(&pfd, 1, 0), 0);
        angara_pe_event_disarm(t->pe);
    }
    conf_barrier(t);
}

/* Nothing that is left keeps anybody from leaving. */
static void leave(conf_t *t, regions_t *r)
{
    conf_mem_cleanup(&r->buf);
    conf_mem_cleanup(&r->mem);
    conf_close_alone(t);
}

/* ---- program --------------------------------------------------------------------------------- */

typedef struct {
    const char *what;
    void (*func)(conf_t *t, regions_t *r);
} chapter_t;

static int meet(unsigned rank, const char *address)
{
    struct sockaddr_in name    = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    struct timeval     timeout = {RANK_TIMEOUT, 0};
    int                one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), listener = fd;

    CHECK(fd >= 0 && inet_pton(AF_INET, address, &name.sin_addr) == 1);
    if (rank == 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)); /* of accept() too */
        CHECK(bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0 && listen(fd, 1) == 0);
        fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        close(listener);
    } else {
        double end = now_seconds() + RANK_TIMEOUT;

        while (connect(fd, (struct sockaddr *)&name, sizeof(name)) != 0) {
            CHECK(now_seconds() < end);
            sleep_ms(50);
        }
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

int main(int argc, char **argv)
{
    static const chapter_t usual[] = {
        {"window puts of all sizes, both ways", windows},
        {"offload puts, gets and batches", offload},
        {"atomics of both nodes on one word", atomics},
        {"a sleeper is woken from the other node", sleepers},
        {"faults, and the pair after a reset", faults},
        {"the link is cut and comes back", link_cut},
        {"the peer is killed", peer_dies},
        {"the device goes", device_goes},
        {NULL, NULL},
    };
    static const chapter_t surprise[] = {
        {"the device is pulled out under traffic", pulled_out},
        {"its file says so to sleepers", pulled_out_asleep},
        {"all can be closed", leave},
        {NULL, NULL},
    };
    const chapter_t *chapter;
    regions_t        r;
    conf_t           t = {.nranks = 2};

    if (argc < 3 || argc > 4 || (argc == 4 && strcmp(argv[3], "surprise") != 0)) {
        fprintf(stderr, "Usage: nic_pair RANK ADDRESS-OF-RANK-0 [surprise]\n");
        return 2;
    }
    setenv("ANGARA_TEST_DEVICE", "nic", 0);
    t.rank           = (unsigned)atoi(argv[1]);
    t.fd[1 - t.rank] = meet(t.rank, argv[2]);
    t.pid[t.rank]    = getpid();
    conf_open(&t);
    conf_mem_init(&t, &r.mem, 0, REGION, ANGARA_ACCESS_ALL);
    conf_mem_init(&t, &r.buf, 1, REGION, ANGARA_ACCESS_LOCAL_WRITE);
    conf_mem_exchange(&t, &r.mem, r.keys);
    for (chapter = argc == 4 ? surprise : usual; chapter->what != NULL; ++chapter) {
        chapter->func(&t, &r);
        passed(&t, chapter->what);
    }
    printf("1..%u\n", tap_number);
    return 0;
}
