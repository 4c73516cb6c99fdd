/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Harness of the UCT tests: processes, sockets between them, waiting. Knows of UCT only that
 * waiting makes progress on the worker.
 */
#include "ut.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Rank of this process for messages; the cmocka process has none. */
static int ut_my_rank = -1;

double ut_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void ut_sleep_ms(unsigned ms)
{
    struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};

    while ((nanosleep(&ts, &ts) != 0) && (errno == EINTR)) {
    }
}

void ut_spin_ns(uint64_t ns)
{
    double end = ut_now() + (double)ns * 1e-9;

    while (ut_now() < end) {
    }
}

void ut_fail(const char *file, int line, const char *format, ...)
{
    char    text[512];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    fprintf(stderr, "# rank %d: %s:%d: %s\n", ut_my_rank, file, line, text);
    fflush(stderr);
    _exit(1);
}

void ut_skip(const char *why)
{
    fprintf(stderr, "# rank %d: skipped: %s\n", ut_my_rank, why);
    fflush(stderr);
    _exit(UT_SKIP_EXIT);
}

int ut_chaos(void)
{
    const char *chaos = getenv("ANGARA_CHAOS");

    return (chaos != NULL) && (strtoull(chaos, NULL, 0) != 0);
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
    if (ut_chaos()) {
        rounds /= 10;
    }
    return (rounds != 0) ? rounds : 1;
}

uint64_t ut_random(ut_t *t)
{
    uint64_t z = (t->rng += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* A pattern with a period that is no power of two, so that a shifted or repeated block shows. */
uint8_t ut_pattern(size_t i, uint64_t seed)
{
    return (uint8_t)(seed * 131 + i * 7 + (i >> 8) * 13 + (i >> 16) * 29 + 1);
}

void ut_fill(void *buffer, size_t length, uint64_t seed)
{
    uint8_t *bytes = buffer;
    size_t   i;

    for (i = 0; i < length; ++i) {
        bytes[i] = ut_pattern(i, seed);
    }
}

int ut_matches(const void *buffer, size_t length, uint64_t seed)
{
    const volatile uint8_t *bytes = buffer;
    size_t                  i;

    for (i = 0; i < length; ++i) {
        if (bytes[i] != ut_pattern(i, seed)) {
            fprintf(stderr, "# rank %d: byte %zu of %zu is %#x, expected %#x\n", ut_my_rank, i,
                    length, bytes[i], ut_pattern(i, seed));
            return 0;
        }
    }
    return 1;
}

/* ---- processes ----------------------------------------------------------------------------- */

static void ut_sockets_create(int pair[UT_MAX_RANKS][UT_MAX_RANKS], unsigned nranks)
{
    unsigned i, j;
    int      fds[2];

    for (i = 0; i < nranks; ++i) {
        pair[i][i] = -1;
        for (j = i + 1; j < nranks; ++j) {
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
            pair[i][j] = fds[0];
            pair[j][i] = fds[1];
        }
    }
}

/* Close what rank keep doesn't use; nranks closes everything. */
static void ut_sockets_close(int pair[UT_MAX_RANKS][UT_MAX_RANKS], unsigned nranks, unsigned keep)
{
    unsigned i, j;

    for (i = 0; i < nranks; ++i) {
        for (j = 0; j < nranks; ++j) {
            if ((i != keep) && (i != j)) {
                close(pair[i][j]);
            }
        }
    }
}

/* cmocka's handlers would go on with the next test, in this process. */
static void ut_signals_reset(void)
{
    static const int signals[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS, SIGABRT};
    unsigned         i;

    for (i = 0; i < sizeof(signals) / sizeof(signals[0]); ++i) {
        signal(signals[i], SIG_DFL);
    }
    signal(SIGPIPE, SIG_IGN);
}

static void ut_rank_main(unsigned rank, unsigned nranks, int pair[UT_MAX_RANKS][UT_MAX_RANKS],
                         ut_func_t func, const void *arg)
{
    static ut_t t;
    unsigned    i;
    pid_t       pid;

    ut_my_rank = (int)rank;
    t.rank     = rank;
    t.nranks   = nranks;
    t.arg      = arg;
    t.rng      = 12345 + rank;
    ut_signals_reset();
    ut_sockets_close(pair, nranks, rank);
    for (i = 0; i < nranks; ++i) {
        t.fd[i] = pair[rank][i];
    }
    pid = getpid();
    ut_exchange(&t, &pid, t.pid, sizeof(pid));
    func(&t);
    for (i = 0; i < nranks; ++i) {
        if (i != rank) {
            close(t.fd[i]);
        }
    }
    exit(0); /* not _exit: the leak checker's turn */
}

static int ut_status_expected(int status, int is_victim, int sig)
{
    if (is_victim) {
        return WIFSIGNALED(status) && (WTERMSIG(status) == sig);
    }
    return WIFEXITED(status) && (WEXITSTATUS(status) == 0);
}

/* Wait for all ranks. @return number of ranks that failed; *skipped counts those that skipped. */
static unsigned ut_ranks_wait(const pid_t *pids, unsigned nranks, unsigned victims, int sig,
                              unsigned *skipped)
{
    double   end    = ut_now() + 4 * UT_TIMEOUT;
    unsigned failed = 0, left = nranks, i;
    int      done[UT_MAX_RANKS] = {0};
    int      status;

    *skipped = 0;
    while (left > 0) {
        for (i = 0; i < nranks; ++i) {
            if (done[i] || (waitpid(pids[i], &status, WNOHANG) != pids[i])) {
                continue;
            }
            done[i] = 1;
            --left;
            if (WIFEXITED(status) && (WEXITSTATUS(status) == UT_SKIP_EXIT)) {
                ++*skipped;
            } else if (!ut_status_expected(status, !!(victims & (1u << i)), sig)) {
                fprintf(stderr, "# rank %u (pid %d) ended with %s %d\n", i, (int)pids[i],
                        WIFEXITED(status) ? "status" : "signal",
                        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
                /* The others have two seconds to notice. */
                end = (failed++ == 0) ? ut_now() + 2 : end;
            }
        }
        for (i = 0; (i < nranks) && (ut_now() > end); ++i) {
            if (!done[i]) {
                fprintf(stderr, "# rank %u (pid %d) hangs: killed\n", i, (int)pids[i]);
                kill(pids[i], SIGKILL);
            }
        }
        ut_sleep_ms(1);
    }
    return failed;
}

void ut_run_victims(unsigned nranks, ut_func_t func, const void *arg, unsigned victims, int sig)
{
    int      pair[UT_MAX_RANKS][UT_MAX_RANKS];
    pid_t    pids[UT_MAX_RANKS];
    unsigned skipped, failed, i;

    assert_true(nranks <= UT_MAX_RANKS);
    ut_sockets_create(pair, nranks);
    fflush(stdout);
    fflush(stderr);
    for (i = 0; i < nranks; ++i) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            ut_rank_main(i, nranks, pair, func, arg);
        }
    }
    ut_sockets_close(pair, nranks, nranks);
    failed = ut_ranks_wait(pids, nranks, victims, sig, &skipped);
    assert_int_equal(failed, 0);
    if (skipped > 0) {
        skip();
    }
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
        timer->end = ut_now() + UT_TIMEOUT;
    } else if (((timer->turns % 4096) == 0) && (ut_now() > timer->end)) {
        ut_fail(file, line, "%d s are up: %s", UT_TIMEOUT, what);
    }
}

void ut_send(ut_t *t, unsigned rank, const void *buffer, size_t length)
{
    const char *p = buffer;
    ssize_t     n;

    while (length > 0) {
        n = write(t->fd[rank], p, length);
        if (n <= 0) {
            ut_fail(__FILE__, __LINE__, "rank %u is gone", rank);
        }
        p += n;
        length -= (size_t)n;
    }
}

static void ut_recv_common(ut_t *t, unsigned rank, void *buffer, size_t length, int still)
{
    ut_timer_t    timer = {0, 0};
    struct pollfd pfd   = {.fd = t->fd[rank], .events = POLLIN};
    char         *p     = buffer;
    ssize_t       n;

    while (length > 0) {
        if (still && (poll(&pfd, 1, UT_TIMEOUT * 1000) == 0)) {
            ut_fail(__FILE__, __LINE__, "rank %u is silent", rank);
        }
        n = recv(t->fd[rank], p, length, MSG_DONTWAIT);
        if ((n < 0) && ((errno == EAGAIN) || (errno == EINTR))) {
            ut_relax(t, &timer, __FILE__, __LINE__, "waiting for another rank");
            continue;
        }
        if (n <= 0) {
            ut_fail(__FILE__, __LINE__, "rank %u is gone", rank);
        }
        p += n;
        length -= (size_t)n;
    }
}

void ut_recv(ut_t *t, unsigned rank, void *buffer, size_t length)
{
    ut_recv_common(t, rank, buffer, length, t->worker == NULL);
}

void ut_recv_still(ut_t *t, unsigned rank, void *buffer, size_t length)
{
    ut_recv_common(t, rank, buffer, length, 1);
}

void ut_exchange(ut_t *t, const void *mine, void *all, size_t length)
{
    unsigned i;

    for (i = 0; i < t->nranks; ++i) {
        if (i != t->rank) {
            ut_send(t, i, mine, length);
        }
    }
    for (i = 0; i < t->nranks; ++i) {
        if (i != t->rank) {
            ut_recv(t, i, (char *)all + i * length, length);
        } else {
            memcpy((char *)all + i * length, mine, length);
        }
    }
}

void ut_barrier(ut_t *t)
{
    char mine = 'b', all[UT_MAX_RANKS];

    ut_exchange(t, &mine, all, 1);
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
