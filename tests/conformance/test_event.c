/* SPDX-License-Identifier: BSD-3-Clause */
/* Notify puts, the event ring, arming and waking. */
#include "conf.h"

#include <cmocka.h>

#include <poll.h>

#define SMALL_RING 16u

typedef struct {
    uint32_t rank;
    uint32_t number;
    uint8_t  data[ANGARA_NOTIFY_MAX - 8];
} record_t;

static size_t record_length(unsigned n)
{
    return 8 + n % (ANGARA_NOTIFY_MAX - 8 + 1);
}

static void record_init(record_t *record, unsigned rank, unsigned n)
{
    record->rank   = rank;
    record->number = n;
    data_fill(record->data, sizeof(record->data), rank * 1000 + n);
}

/* Is that PE the sender, as the fabric knows it? */
static int is_from(const angara_event_t *event, const angara_address_t *address)
{
    return (event->from.node == address->node) && (event->from.index == address->index) &&
           (event->from.generation == address->generation);
}

/* Several senders flood a small ring; every record arrives once, whole, in its sender's order. */
static void flood(conf_t *t)
{
    angara_pe_params_t params = {
        .size = sizeof(params), .window_size = CONF_WINDOW, .events = SMALL_RING};
    unsigned          rounds         = conf_rounds(rank_chaos() ? 500 : 3000);
    unsigned          next[RANK_MAX] = {0}, left, n;
    angara_counters_t counters;
    angara_event_t    event;
    record_t          record;

    conf_open_params(t, &params);
    if (t->rank != 0) {
        for (n = 0; n < rounds; ++n) {
            record_init(&record, t->rank, n);
            POST_OK(t, angara_notify(t->peer[0], &record, record_length(n)));
        }
        angara_pe_counters(t->pe, &counters);
        CHECK_EQ(counters.notifies, rounds);
    } else {
        for (left = rounds * (t->nranks - 1); left > 0; --left) {
            CHECK(conf_event(t, &event, RANK_TIMEOUT));
            CHECK_EQ(event.type, ANGARA_EVENT_NOTIFY);
            memcpy(&record, event.data, sizeof(record));
            CHECK((record.rank > 0) && (record.rank < t->nranks));
            CHECK_EQ(record.number, next[record.rank]);
            CHECK_EQ(event.len, record_length(record.number));
            CHECK_DATA(record.data, event.len - 8, record.rank * 1000 + record.number);
            CHECK(event.peer == t->peer[record.rank]);
            CHECK(is_from(&event, &t->addr[record.rank]));
            ++next[record.rank];
        }
        CHECK(!conf_event(t, &event, 0.01));
    }
    conf_close(t);
}

/* A full ring refuses, keeps what it has, and takes again once there is room. */
static void full(conf_t *t)
{
    angara_pe_params_t params = {
        .size = sizeof(params), .window_size = CONF_WINDOW, .events = SMALL_RING};
    unsigned          accepted = 0, i, most;
    angara_status_t   status;
    angara_counters_t counters;
    angara_event_t    event;

    conf_open_params(t, &params);
    /* A NIC's rings may have one size. */
    most = (strcmp(t->attr.provider, "soft") == 0) ? SMALL_RING : 65536;
    if (t->rank == 0) {
        while ((status = angara_notify(t->peer[1], &accepted, sizeof(accepted))) == ANGARA_OK) {
            CHECK(++accepted <= most);
        }
        CHECK_STATUS(status, ANGARA_ERR_NO_RESOURCE);
        CHECK(accepted >= SMALL_RING / 2);
        CHECK_STATUS(angara_notify(t->peer[1], &accepted, 4), ANGARA_ERR_NO_RESOURCE);
        angara_pe_counters(t->pe, &counters);
        CHECK_EQ(counters.notify_refused, 2);
        CHECK_OK(angara_peer_status(t->peer[1]));
        conf_send(t, 1, &accepted, sizeof(accepted));
        POST_OK(t, angara_notify(t->peer[1], &accepted, sizeof(accepted)));
    } else {
        conf_recv(t, 0, &accepted, sizeof(accepted));
        sleep_ms(20);
        for (i = 0; i <= accepted; ++i) {
            CHECK(conf_event(t, &event, RANK_TIMEOUT));
            CHECK_EQ(event.type, ANGARA_EVENT_NOTIFY);
            CHECK(memcmp(event.data, &i, sizeof(i)) == 0);
        }
        CHECK(!conf_event(t, &event, 0.01));
    }
    conf_close(t);
}

/* A stranger's record comes with no peer; after connecting to it, with that peer. It says who sent
 * it in either case, though it holds another's address. */
static void stranger(conf_t *t)
{
    angara_address_t mine, all[RANK_MAX];
    angara_peer_h    peer;
    angara_event_t   event;
    char             record[ANGARA_NOTIFY_MAX + 1];
    angara_domain_h  dom;
    angara_pe_h      pe;

    CHECK_OK(angara_open(conf_device(), &dom));
    CHECK_OK(angara_pe_create(dom, NULL, &pe));
    t->dom = dom;
    t->pe  = pe;
    angara_pe_address(pe, &mine);
    conf_exchange(t, &mine, all, sizeof(mine));
    memset(record, 7, sizeof(record));
    if (t->rank == 0) {
        CHECK_OK(angara_peer_connect(pe, &all[1], &peer));
        CHECK_STATUS(angara_notify(peer, record, sizeof(record)), ANGARA_ERR_INVALID);
        POST_OK(t, angara_notify(peer, record, 0));
        memcpy(record, &all[1], sizeof(all[1])); /* in the receiver's own name */
        POST_OK(t, angara_notify(peer, record, ANGARA_NOTIFY_MAX));
        conf_barrier(t);
        conf_barrier(t);
        POST_OK(t, angara_notify(peer, record, 1));
    } else {
        CHECK(conf_event(t, &event, RANK_TIMEOUT));
        CHECK_EQ(event.type, ANGARA_EVENT_NOTIFY);
        CHECK_EQ(event.len, 0);
        CHECK(event.peer == NULL);
        CHECK(is_from(&event, &all[0]));
        CHECK(conf_event(t, &event, RANK_TIMEOUT));
        CHECK_EQ(event.len, ANGARA_NOTIFY_MAX);
        memcpy(record, &mine, sizeof(mine));
        CHECK(memcmp(event.data, record, ANGARA_NOTIFY_MAX) == 0);
        CHECK(event.peer == NULL);
        CHECK(is_from(&event, &all[0]));
        conf_barrier(t);
        CHECK_OK(angara_peer_connect(pe, &all[0], &peer));
        conf_barrier(t);
        CHECK(conf_event(t, &event, RANK_TIMEOUT));
        CHECK_EQ(event.len, 1);
        CHECK(event.peer == peer);
        CHECK(is_from(&event, &all[0]));
    }
    conf_barrier(t);
    angara_peer_disconnect(peer);
    angara_pe_destroy(pe);
    CHECK_OK(angara_close(dom));
}

/*
 * An index that is used again names another PE: its records must not be taken for those of the one
 * that had it before and is still connected here.
 */
static void index_reuse(conf_t *t)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = CONF_WINDOW};
    angara_address_t   fresh;
    angara_event_t     event;
    angara_peer_h      peer;
    angara_pe_h        pe;
    unsigned           n;

    conf_open(t);
    conf_barrier(t);
    if (t->rank == 1) {
        conf_close_alone(t);
        CHECK_OK(angara_open(conf_device(), &t->dom));
        for (n = 0; n < 1000; ++n) {
            CHECK_OK(angara_pe_create(t->dom, &params, &pe));
            angara_pe_address(pe, &fresh);
            CHECK((fresh.index != t->addr[1].index) || (fresh.generation != t->addr[1].generation));
            if (fresh.index == t->addr[1].index) {
                break;
            }
            angara_pe_destroy(pe);
        }
        if (n == 1000) {
            CHECK_OK(angara_pe_create(t->dom, &params, &pe));
        }
        t->pe = pe;
        CHECK_OK(angara_peer_connect(pe, &t->addr[0], &peer));
        POST_OK(t, angara_notify(peer, "new", 3));
        conf_barrier(t);
        angara_peer_disconnect(peer);
        angara_pe_destroy(pe);
        CHECK_OK(angara_close(t->dom));
        return;
    }
    do {
        CHECK(conf_event(t, &event, RANK_TIMEOUT));
    } while (event.type != ANGARA_EVENT_NOTIFY);
    CHECK(event.peer == NULL);
    CHECK_EQ(event.from.node, t->addr[1].node);
    CHECK(!is_from(&event, &t->addr[1]));
    conf_barrier(t);
    conf_close_alone(t);
}

/* ---- arm and wake -------------------------------------------------------------------------- */

static uint64_t window_word(conf_t *t)
{
    return __atomic_load_n((uint64_t *)(void *)t->window, __ATOMIC_ACQUIRE);
}

static void drain_events(conf_t *t, unsigned *notified)
{
    angara_event_t event;

    while (angara_pe_event_poll(t->pe, &event) == ANGARA_OK) {
        CHECK_EQ(event.type, ANGARA_EVENT_NOTIFY);
        ++*notified;
    }
}

/* The protocol of a sleeper: arm, look again, sleep, disarm. A lost wake-up ends in a time-out. */
static void sleep_until(conf_t *t, int fd, uint64_t word, unsigned notified, unsigned *seen)
{
    struct pollfd   pfd = {.fd = fd, .events = POLLIN};
    angara_status_t status;

    for (;;) {
        angara_pe_progress(t->pe);
        drain_events(t, seen);
        if ((window_word(t) >= word) && (*seen >= notified)) {
            return;
        }
        status = angara_pe_event_arm(t->pe);
        if (status == ANGARA_INPROGRESS) {
            angara_pe_event_disarm(t->pe);
            continue;
        }
        CHECK_OK(status);
        if (((window_word(t) < word) || (*seen < notified)) &&
            (poll(&pfd, 1, RANK_TIMEOUT * 1000) != 1)) {
            rank_fail(__FILE__, __LINE__, "wake-up lost: word %llu of %llu, %u of %u records",
                      (unsigned long long)window_word(t), (unsigned long long)word, *seen,
                      notified);
        }
        angara_pe_event_disarm(t->pe);
    }
}

/* Two ranks wake each other in turns, by window and by notify, now and then with a pause. */
static void wake_rounds(conf_t *t)
{
    unsigned rounds = conf_rounds(rank_chaos() ? 1000 : 10000), n, other = 1 - t->rank;
    unsigned notified = 0, seen = 0;
    uint64_t word = 0;
    int      fd;

    conf_open(t);
    CHECK_OK(angara_pe_event_fd(t->pe, &fd));
    for (n = 0; n < rounds; ++n) {
        int by_window = (n % 3) != 0;

        if (n % 2 == t->rank) { /* sender of this round */
            if (by_window) {
                POST_OK(t, angara_put_flag(t->peer[other], 64, &n, sizeof(n), 0, n + 1));
                angara_wake_if_armed(t->peer[other]);
            } else {
                POST_OK(t, angara_notify(t->peer[other], &n, sizeof(n)));
            }
        } else {
            word = by_window ? n + 1 : word;
            notified += by_window ? 0 : 1;
            sleep_until(t, fd, word, notified, &seen);
        }
    }
    conf_close(t);
}

/* A one-way stream without answers: the receiver goes to sleep while the sender is in the middle.
 */
static void wake_stream(conf_t *t)
{
    unsigned rounds = conf_rounds(rank_chaos() ? 1000 : 10000), n, seen = 0;
    int      fd;

    conf_open(t);
    CHECK_OK(angara_pe_event_fd(t->pe, &fd));
    if (t->rank == 0) {
        for (n = 1; n <= rounds; ++n) {
            volatile unsigned pause = (unsigned)(conf_random(t) % 2000);

            while (pause > 0) {
                --pause;
            }
            POST_OK(t, angara_put_u64(t->peer[1], 0, n));
            angara_wake_if_armed(t->peer[1]);
        }
        conf_marker(t, 1);
    } else {
        while (window_word(t) < rounds) {
            sleep_until(t, fd, window_word(t) + 1, 0, &seen);
        }
    }
    conf_close(t);
}

static void spin(uint64_t turns)
{
    volatile uint64_t left = turns;

    while (left > 0) {
        --left;
    }
}

#define RACE_SECONDS 4 /* then it is enough: with busy CPUs a round takes time slices */
#define RACE_OVER    ~0ull

/*
 * The race itself: the receiver arms at the very moment in which the sender stores its flag, with a
 * random skew of up to some hundred nanoseconds. Each wake-up is the only one of its round. Nothing
 * is done between the last look and arming, as the window is only as long as a store is under way.
 */
static void wake_race(conf_t *t)
{
    struct pollfd pfd    = {.events = POLLIN};
    unsigned      rounds = conf_rounds(rank_chaos() ? 1000 : 60000), n, mask;
    double        end    = now_seconds() + RACE_SECONDS;

    conf_pin(t);
    conf_open(t);
    CHECK_OK(angara_pe_event_fd(t->pe, &pfd.fd));
    while (angara_pe_event_arm(t->pe) !=
           ANGARA_OK) { /* what connecting has asked for comes first */
        angara_pe_progress(t->pe);
    }
    angara_pe_event_disarm(t->pe);
    conf_barrier(t);
    for (n = 1; n <= rounds; ++n) {
        mask = (64u << (n % 3)) - 1;
        if (t->rank == 0) {
            CONF_WAIT(t, window_word(t) >= n);
            if (window_word(t) == RACE_OVER) {
                break;
            }
            spin(conf_random(t) & mask);
            POST_OK(t, angara_put_u64(t->peer[1], 0, n));
            angara_wake_if_armed(t->peer[1]);
            continue;
        }
        if (n % 64 == 0 && now_seconds() > end) {
            POST_OK(t, angara_put_u64(t->peer[0], 0, RACE_OVER));
            break;
        }
        POST_OK(t, angara_put_u64(t->peer[0], 0, n));
        spin(conf_random(t) & mask);
        if (window_word(t) == n) {
            continue;
        }
        CHECK_OK(angara_pe_event_arm(t->pe));
        if ((window_word(t) != n) && (poll(&pfd, 1, RANK_TIMEOUT * 1000) != 1)) {
            rank_fail(__FILE__, __LINE__, "wake-up %u of %u was lost", n, rounds);
        }
        angara_pe_event_disarm(t->pe);
        CONF_WAIT(t, window_word(t) == n);
    }
    conf_close(t);
}

#define SLEEPY 3u

/*
 * Operations that are carried out one after the other at the peer, and their poster sleeps: what
 * arrives before it does so doesn't wake it, so arming must say that there is work.
 */
static void sleep_on_queue(conf_t *t)
{
    struct pollfd   pfd    = {.events = POLLIN};
    unsigned        rounds = conf_rounds(200), n, i;
    uint64_t       *words, keys[RANK_MAX], done = 0, sum = 0, value;
    angara_status_t status;
    conf_mem_t      mem;
    char            byte = 0;

    conf_open(t);
    CHECK_OK(angara_pe_event_fd(t->pe, &pfd.fd));
    conf_mem_init(t, &mem, 0, 4096, ANGARA_ACCESS_ALL);
    conf_mem_exchange(t, &mem, keys);
    words = (uint64_t *)(void *)mem.addr;
    for (n = 1; n <= rounds; ++n) {
        if (t->rank == 1) {
            conf_recv(t, 0, &byte, 1);
            while (__atomic_load_n(&words[0], __ATOMIC_ACQUIRE) == done) {
                angara_pe_progress(t->pe);
            }
            conf_send(t, 0, &byte, 1); /* the first is done: its answer comes about now */
            conf_barrier(t);
            done = words[0];
            conf_barrier(t);
            continue;
        }
        for (i = 0; i < SLEEPY; ++i) {
            ++sum;
            POST_OK(t, conf_add(t, 1, 0, 1, sum, keys[1], 0));
        }
        value = ++t->value;
        POST_OK(t, angara_marker(t->peer[1], t->slot, value));
        conf_send(t, 1, &byte, 1);
        conf_recv(t, 1, &byte, 1);
        while (!angara_marker_arrived(t->slot, value)) {
            status = angara_pe_event_arm(t->pe);
            if (status == ANGARA_OK) {
                if (!angara_marker_arrived(t->slot, value) &&
                    (poll(&pfd, 1, RANK_TIMEOUT * 1000) != 1)) {
                    rank_fail(__FILE__, __LINE__, "asleep in round %u of %u", n, rounds);
                }
                angara_pe_event_disarm(t->pe);
            } else {
                CHECK_STATUS(status, ANGARA_INPROGRESS);
            }
            angara_pe_progress(t->pe);
        }
        conf_barrier(t);
        conf_barrier(t);
    }
    if (t->rank == 1) {
        CHECK_EQ(words[0], (uint64_t)SLEEPY * rounds);
    }
    conf_barrier(t);
    conf_mem_cleanup(&mem);
    conf_close(t);
}

/* Arming with events in the ring says so; a disarmed descriptor is quiet; arming twice is fine. */
static void arm_states(conf_t *t)
{
    struct pollfd  pfd = {.events = POLLIN};
    angara_event_t event;
    char           byte = 1;

    conf_open(t);
    CHECK_OK(angara_pe_event_fd(t->pe, &pfd.fd));
    if (t->rank == 0) {
        while (angara_pe_event_arm(t->pe) == ANGARA_INPROGRESS) {
            angara_pe_progress(t->pe); /* a peer that has connected may have called the helper */
        }
        CHECK_OK(angara_pe_event_arm(t->pe));
        CHECK_EQ(poll(&pfd, 1, 0), 0);
        conf_barrier(t);
        CHECK_EQ(poll(&pfd, 1, RANK_TIMEOUT * 1000), 1);
        angara_pe_event_disarm(t->pe);
        CHECK_EQ(poll(&pfd, 1, 0), 0);
        CHECK_STATUS(angara_pe_event_arm(t->pe), ANGARA_INPROGRESS);
        CHECK(conf_event(t, &event, 1));
        CHECK_OK(angara_pe_event_arm(t->pe));
        angara_pe_event_disarm(t->pe);
    } else {
        conf_barrier(t);
        POST_OK(t, angara_notify(t->peer[0], &byte, 1));
    }
    conf_barrier(t);
    if (t->rank == 0) { /* an explicit wake, with nothing to see */
        CHECK_OK(angara_pe_event_arm(t->pe));
        conf_barrier(t);
        CHECK_EQ(poll(&pfd, 1, RANK_TIMEOUT * 1000), 1);
        angara_pe_event_disarm(t->pe);
        CHECK_EQ(poll(&pfd, 1, 0), 0);
    } else {
        conf_barrier(t);
        angara_wake(t->peer[0]);
    }
    conf_close(t);
}

static void test_flood(void **state)
{
    (void)state;
    conf_run(4, flood, NULL);
}

static void test_full(void **state)
{
    (void)state;
    conf_run(2, full, NULL);
}

static void test_stranger(void **state)
{
    (void)state;
    conf_run(2, stranger, NULL);
}

static void test_index_reuse(void **state)
{
    (void)state;
    conf_run(2, index_reuse, NULL);
}

static void test_wake_rounds(void **state)
{
    (void)state;
    conf_run(2, wake_rounds, NULL);
}

static void test_wake_stream(void **state)
{
    (void)state;
    conf_run(2, wake_stream, NULL);
}

static void test_wake_race(void **state)
{
    (void)state;
    conf_run(2, wake_race, NULL);
}

static void test_sleep_on_queue(void **state)
{
    (void)state;
    conf_run(2, sleep_on_queue, NULL);
}

static void test_arm_states(void **state)
{
    (void)state;
    conf_run(2, arm_states, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flood),          cmocka_unit_test(test_full),
        cmocka_unit_test(test_stranger),       cmocka_unit_test(test_index_reuse),
        cmocka_unit_test(test_wake_rounds),    cmocka_unit_test(test_wake_stream),
        cmocka_unit_test(test_wake_race),      cmocka_unit_test(test_arm_states),
        cmocka_unit_test(test_sleep_on_queue),
    };

    return cmocka_run_group_tests_name("event", tests, NULL, NULL);
}
