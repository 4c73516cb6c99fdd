/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Harness of the UCT tests: talk between ranks, waiting. Knows of UCT only that waiting makes
 * progress on the worker.
 */
#include "ut.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

void ut_spin_ns(uint64_t ns)
{
    double end = now_seconds() + (double)ns * 1e-9;

    while (now_seconds() < end) {
    }
}

int ut_env_is(const char *name, const char *value)
{
    const char *set = getenv(name);

    return (set != NULL) && (strcmp(set, value) == 0);
}

unsigned ut_rounds(unsigned rounds)
{
    if (getenv("ANGARA_TEST_QUICK") != NULL) {
        rounds /= 10;
    }
    if (rank_chaos()) {
        rounds /= 10;
    }
    return (rounds != 0) ? rounds : 1;
}

uint64_t ut_random(ut_t *t)
{
    return random_next(&t->rng);
}

/* ---- processes ----------------------------------------------------------------------------- */

typedef struct {
    ut_func_t   func;
    const void *arg;
} ut_test_t;

static void ut_rank_main(unsigned rank, unsigned nranks, const int *fd, const void *arg)
{
    static ut_t      t;
    const ut_test_t *test = arg;
    pid_t            pid  = getpid();

    t.rank   = rank;
    t.nranks = nranks;
    t.arg    = test->arg;
    t.rng    = 12345 + rank;
    memcpy(t.fd, fd, nranks * sizeof(*fd));
    ut_exchange(&t, &pid, t.pid, sizeof(pid));
    test->func(&t);
}

void ut_run_victims(unsigned nranks, ut_func_t func, const void *arg, unsigned victims, int sig)
{
    const ut_test_t test = {func, arg};

    rank_run(nranks, ut_rank_main, &test, victims, sig);
}

void ut_run(unsigned nranks, ut_func_t func, const void *arg)
{
    ut_run_victims(nranks, func, arg, 0, 0);
}

int ut_main(int argc, char **argv, const char *name, const struct CMUnitTest *tests, size_t count)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return _cmocka_run_group_tests(name, tests, count, NULL, NULL);
}

/* ---- talk between ranks -------------------------------------------------------------------- */

void ut_relax(ut_t *t, ut_timer_t *timer, const char *file, int line, const char *what)
{
    if (t->worker != NULL) {
        ut_progress(t);
    }
    if ((++timer->turns % 64) != 0) {
        return;
    }
    /* The clock is looked at rarely, so that waits stay tight; the CPUs are shared. */
    sched_yield();
    if (timer->end == 0) {
        timer->end = now_seconds() + RANK_TIMEOUT;
    } else if (((timer->turns % 4096) == 0) && (now_seconds() > timer->end)) {
        rank_fail(file, line, "%d s are up: %s", RANK_TIMEOUT, what);
    }
}

void ut_send(ut_t *t, unsigned rank, const void *buffer, size_t length)
{
    rank_send(t->fd[rank], rank, buffer, length);
}

static void ut_recv_common(ut_t *t, unsigned rank, void *buffer, size_t length, int still)
{
    ut_timer_t    timer = {0, 0};
    struct pollfd pfd   = {.fd = t->fd[rank], .events = POLLIN};
    char         *p     = buffer;
    ssize_t       n;

    still |= (t->worker == NULL); /* there is nothing to make progress on */
    while (length > 0) {
        if (still && (poll(&pfd, 1, RANK_TIMEOUT * 1000) == 0)) {
            rank_fail(__FILE__, __LINE__, "rank %u is silent", rank);
        }
        n = recv(t->fd[rank], p, length, MSG_DONTWAIT);
        if ((n < 0) && ((errno == EAGAIN) || (errno == EINTR))) {
            ut_relax(t, &timer, __FILE__, __LINE__, "waiting for another rank");
            continue;
        }
        if (n <= 0) {
            rank_fail(__FILE__, __LINE__, "rank %u is gone", rank);
        }
        p += n;
        length -= (size_t)n;
    }
}

void ut_recv(ut_t *t, unsigned rank, void *buffer, size_t length)
{
    ut_recv_common(t, rank, buffer, length, 0);
}

void ut_recv_still(ut_t *t, unsigned rank, void *buffer, size_t length)
{
    ut_recv_common(t, rank, buffer, length, 1);
}

static void ut_exchange_common(ut_t *t, const void *mine, void *all, size_t length, int still)
{
    unsigned i;

    for (i = 0; i < t->nranks; ++i) {
        if (i != t->rank) {
            ut_send(t, i, mine, length);
        }
    }
    for (i = 0; i < t->nranks; ++i) {
        if (i != t->rank) {
            ut_recv_common(t, i, (char *)all + i * length, length, still);
        } else {
            memcpy((char *)all + i * length, mine, length);
        }
    }
}

void ut_exchange(ut_t *t, const void *mine, void *all, size_t length)
{
    ut_exchange_common(t, mine, all, length, 0);
}

void ut_barrier(ut_t *t)
{
    char mine = 'b', all[RANK_MAX];

    ut_exchange(t, &mine, all, 1);
    /* A rank that was heard may be in a turn of progress still. One that is heard twice isn't. */
    ut_exchange_common(t, &mine, all, 1, 1);
}

void ut_send_word(ut_t *t, unsigned rank, uint64_t word)
{
    ut_send(t, rank, &word, sizeof(word));
}

uint64_t ut_recv_word(ut_t *t, unsigned rank)
{
    uint64_t word;

    ut_recv(t, rank, &word, sizeof(word));
    return word;
}

uint64_t ut_recv_word_still(ut_t *t, unsigned rank)
{
    uint64_t word;

    ut_recv_still(t, rank, &word, sizeof(word));
    return word;
}
