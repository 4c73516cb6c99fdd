/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* After the headers above, which it needs. */
#include <cmocka.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SKIP_EXIT 77 /* exit status of a rank that can't run the test here */

/* Rank of this process for messages; the cmocka process has none. */
static int my_rank = -1;

void rank_fail(const char *file, int line, const char *format, ...)
{
    char    text[512];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    fprintf(stderr, "# rank %d: %s:%d: %s\n", my_rank, file, line, text);
    fflush(stderr);
    _exit(1);
}

int rank_slow(void)
{
    return test_slow();
}

void rank_skip(const char *why)
{
    fprintf(stderr, "# rank %d: skipped: %s\n", my_rank, why);
    fflush(stderr);
    _exit(SKIP_EXIT);
}

void *rank_share(size_t length)
{
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        perror("mmap");
        return NULL;
    }
    return memory;
}

int rank_chaos(void)
{
    const char *chaos = getenv("ANGARA_CHAOS");

    return chaos != NULL && strtoull(chaos, NULL, 0) != 0;
}

int rank_matches(const void *buffer, size_t length, uint64_t key)
{
    size_t at = data_difference(buffer, length, key);

    if (at < length) {
        fprintf(stderr, "# rank %d: byte %zu of %zu is %#x now, expected %#x\n", my_rank, at,
                length, ((const uint8_t *)buffer)[at], data_byte(key, at));
    }
    return at == length;
}

void rank_send(int fd, unsigned to, const void *buffer, size_t length)
{
    const char *p = buffer;
    ssize_t     n;

    while (length > 0) {
        n = send(fd, p, length, MSG_NOSIGNAL);
        if (n <= 0) {
            rank_fail(__FILE__, __LINE__, "rank %u is gone", to);
        }
        p += n;
        length -= (size_t)n;
    }
}

/* ---- processes ----------------------------------------------------------------------------- */

static void sockets_create(int pair[RANK_MAX][RANK_MAX], unsigned nranks)
{
    struct timeval timeout = {RANK_TIMEOUT, 0};
    unsigned       i, j;
    int            fds[2];

    for (i = 0; i < nranks; ++i) {
        pair[i][i] = -1;
        for (j = i + 1; j < nranks; ++j) {
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
            setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
            setsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
            pair[i][j] = fds[0];
            pair[j][i] = fds[1];
        }
    }
}

/* Close what rank @a keep doesn't use; nranks closes everything. */
static void sockets_close(int pair[RANK_MAX][RANK_MAX], unsigned nranks, unsigned keep)
{
    for (unsigned i = 0; i < nranks; ++i) {
        for (unsigned j = 0; j < nranks; ++j) {
            if (i != keep && i != j) {
                close(pair[i][j]);
            }
        }
    }
}

/* cmocka's handlers would go on with the next test, in this process. */
static void reset_signals(void)
{
    static const int signals[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS, SIGABRT};

    for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]); ++i) {
        signal(signals[i], SIG_DFL);
    }
}

static void rank_process(unsigned rank, unsigned nranks, int pair[RANK_MAX][RANK_MAX],
                         rank_main_t func, const void *arg)
{
    my_rank = (int)rank;
    reset_signals();
    sockets_close(pair, nranks, rank);
    func(rank, nranks, pair[rank], arg);
    for (unsigned i = 0; i < nranks; ++i) {
        if (i != rank) {
            close(pair[rank][i]);
        }
    }
    exit(0); /* not _exit: the leak checker's turn */
}

static int as_expected(int status, int is_victim, int sig)
{
    if (is_victim) {
        return WIFSIGNALED(status) && WTERMSIG(status) == sig;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The ranks of a test, as the process that waits for them sees them. */
typedef struct {
    unsigned nranks;
    pid_t    pids[RANK_MAX];
    int      done[RANK_MAX];
    unsigned failed, skipped;
} ranks_t;

/* See who has ended. @return how many. */
static unsigned collect(ranks_t *ranks, unsigned victims, int sig)
{
    unsigned ended = 0;
    int      status;

    for (unsigned i = 0; i < ranks->nranks; ++i) {
        if (ranks->done[i] || waitpid(ranks->pids[i], &status, WNOHANG) != ranks->pids[i]) {
            continue;
        }
        ranks->done[i] = 1;
        ++ended;
        if (WIFEXITED(status) && WEXITSTATUS(status) == SKIP_EXIT) {
            ++ranks->skipped;
        } else if (!as_expected(status, (victims >> i) & 1, sig)) {
            ++ranks->failed;
            fprintf(stderr, "# rank %u (pid %d) ended with %s %d\n", i, (int)ranks->pids[i],
                    WIFEXITED(status) ? "status" : "signal",
                    WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        }
    }
    return ended;
}

static void kill_left(const ranks_t *ranks)
{
    for (unsigned i = 0; i < ranks->nranks; ++i) {
        if (!ranks->done[i]) {
            fprintf(stderr, "# rank %u (pid %d) is left: killed\n", i, (int)ranks->pids[i]);
            kill(ranks->pids[i], SIGKILL);
        }
    }
}

static void wait_all(ranks_t *ranks, unsigned victims, int sig)
{
    double   end    = now_seconds() + 3 * RANK_TIMEOUT;
    unsigned left   = ranks->nranks;
    int      hurry  = 0;
    int      killed = 0;

    while ((left -= collect(ranks, victims, sig)) > 0) {
        if (ranks->failed && !hurry) { /* the others have two seconds to notice */
            hurry = 1;
            end   = now_seconds() + 2;
        }
        if (!killed && now_seconds() > end) {
            killed = 1;
            kill_left(ranks);
        }
        sleep_ms(1);
    }
}

void rank_run(unsigned nranks, rank_main_t func, const void *arg, unsigned victims, int sig)
{
    ranks_t ranks = {.nranks = nranks};
    int     pair[RANK_MAX][RANK_MAX];

    assert_true(nranks <= RANK_MAX);
    sockets_create(pair, nranks);
    fflush(stdout);
    fflush(stderr);
    for (unsigned i = 0; i < nranks; ++i) {
        ranks.pids[i] = fork();
        assert_true(ranks.pids[i] >= 0);
        if (ranks.pids[i] == 0) {
            rank_process(i, nranks, pair, func, arg);
        }
    }
    sockets_close(pair, nranks, nranks);
    wait_all(&ranks, victims, sig);
    assert_int_equal(ranks.failed, 0);
    if (ranks.skipped > 0) {
        skip();
    }
}
