/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests in several processes ("ranks"), forked before any of them has opened anything and connected
 * to each other by sockets: how they are started and waited for, fail, and tell each other what;
 * and the time, data and randomness that all of them need. Knows neither the library nor UCX.
 *
 * The process that runs cmocka opens nothing itself, so tests can't disturb each other.
 * ANGARA_TEST_SLOW gives so many times as long until ranks are killed.
 */
#ifndef ANGARA_TESTS_RANKS_H
#define ANGARA_TESTS_RANKS_H

#include "clock.h"
#include "data.h"

#include <stddef.h>
#include <stdint.h>

#define RANK_MAX     4
#define RANK_TIMEOUT (30 * rank_slow()) /* seconds that any single wait may take */

/** What a rank does; @a fd: a socket to each other rank, which stays open until it returns. */
typedef void (*rank_main_t)(unsigned rank, unsigned nranks, const int *fd, const void *arg);

/**
 * Run @a func in @a nranks processes; fails (or skips) the current cmocka test as they did. The
 * ranks of the bit mask @a victims must end by @a signal.
 */
void rank_run(unsigned nranks, rank_main_t func, const void *arg, unsigned victims, int signal);

/** Report a failure, or the reason of a skip, and end this rank. */
void rank_fail(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
void rank_skip(const char *why) __attribute__((noreturn));

/* These end the rank. */
#define CHECK(_cond)                                     \
    do {                                                 \
        if (!(_cond)) {                                  \
            rank_fail(__FILE__, __LINE__, "%s", #_cond); \
        }                                                \
    } while (0)

#define CHECK_EQ(_a, _b)                                                      \
    do {                                                                      \
        uint64_t _va = (uint64_t)(_a), _vb = (uint64_t)(_b);                  \
        if (_va != _vb) {                                                     \
            rank_fail(__FILE__, __LINE__, "%s is %#llx, %s is %#llx", #_a,    \
                      (unsigned long long)_va, #_b, (unsigned long long)_vb); \
        }                                                                     \
    } while (0)

#define CHECK_DATA(_buffer, _length, _key)                                             \
    do {                                                                               \
        if (!rank_matches(_buffer, _length, _key)) {                                   \
            rank_fail(__FILE__, __LINE__, "%zu bytes of %s are not those of key %llu", \
                      (size_t)(_length), #_buffer, (unsigned long long)(_key));        \
        }                                                                              \
    } while (0)

/** Zeroed memory that all ranks see which are started from then on; NULL: there is none. */
void *rank_share(size_t length);

/** A word of such memory, which a rank sets once: what it did before is seen by who sees it set. */
static inline void rank_set(int *flag)
{
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

static inline int rank_is_set(const int *flag)
{
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

/** Send all of it to rank @a to by its socket; ends this rank if that one is gone. */
void rank_send(int fd, unsigned to, const void *buffer, size_t length);

/** Are those the bytes of data_fill()? Says where they aren't. */
int rank_matches(const void *buffer, size_t length, uint64_t key);

/** ANGARA_TEST_SLOW: how many times as long as usual is waited for others. Ends this rank if it is
 * no number. */
int rank_slow(void);

/** Is chaos mode on? */
int rank_chaos(void);

#endif
