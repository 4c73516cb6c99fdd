/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Harness of the conformance suite. A test is a function that runs in N fresh processes
 * (common/ranks.h), forked before any of them has touched the library.
 *
 * The suite uses the public API only, so that it can be run over every provider. What varies comes
 * from the environment: ANGARA_TEST_DEVICE (device to open, default "soft"), ANGARA_TEST_QUICK
 * (fewer rounds, for valgrind), ANGARA_TEST_ONE_CPU (all ranks on one CPU), ANGARA_TEST_MEMORY
 * (private memory is a GPU's, see conf_gpu.h) and the library's own ANGARA_* variables.
 */
#ifndef ANGARA_TESTS_CONF_H
#define ANGARA_TESTS_CONF_H

#include "../common/ranks.h"

#include <angara/angara.h>
#include <angara/angara_fast.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define CONF_WINDOW      (1u << 20)
#define CONF_SEGMENT_MAX (2ul << 30) /* RLIMIT_FSIZE of the ranks */

/* Is this a build with the address sanitizer? gcc and clang tell in ways of their own. */
#if defined(__SANITIZE_ADDRESS__)
#define CONF_SANITIZED 1
#elif defined(__has_feature)
#define CONF_SANITIZED __has_feature(address_sanitizer)
#else
#define CONF_SANITIZED 0
#endif

typedef struct conf {
    unsigned    rank; /* 0 to nranks - 1 */
    unsigned    nranks;
    const void *arg;          /* of conf_run() */
    int         fd[RANK_MAX]; /* socket to each other rank */
    pid_t       pid[RANK_MAX];
    uint64_t    rng;
    /* set up by conf_open() */
    angara_domain_h       dom;
    angara_pe_h           pe;
    angara_attr_t         attr;
    char                 *window; /* own window, CONF_WINDOW bytes committed */
    angara_address_t      addr[RANK_MAX];
    angara_peer_h         peer[RANK_MAX]; /* to each rank, the own one included */
    angara_marker_slot_t *slot;           /* used by conf_marker() */
    uint64_t              value;
} conf_t;

typedef void (*conf_func_t)(conf_t *t);

/** Region of a rank, and how the others name it. */
typedef struct {
    char       *addr;
    size_t      length;
    angara_mr_h mr;
    uint64_t    key;
    int         shared; /* from angara_mem_alloc() */
    int         on_gpu;
} conf_mem_t;

/** Run @a func in @a nranks processes; fails (or skips) the current cmocka test as they did. */
void conf_run(unsigned nranks, conf_func_t func, const void *arg);
/** As conf_run(); the ranks of the bit mask @a victims must end by SIGKILL. */
void conf_run_victims(unsigned nranks, conf_func_t func, const void *arg, unsigned victims);

/** Open domain, PE and slot, exchange addresses, connect to all ranks, barrier. */
void conf_open(conf_t *t);
void conf_open_params(conf_t *t, const angara_pe_params_t *params);
/** Undo conf_open(); a barrier first, so that nobody's target goes away early. */
void conf_close(conf_t *t);
/** The parts of conf_close() behind the barrier, for tests in which a rank has died. */
void conf_close_alone(conf_t *t);

/* Talk between ranks, outside the library. */
void conf_barrier(conf_t *t);
void conf_send(conf_t *t, unsigned rank, const void *buffer, size_t length);
void conf_recv(conf_t *t, unsigned rank, void *buffer, size_t length);
/** Everybody's @a length bytes into all[rank]; each rank ends with the same table. */
void conf_exchange(conf_t *t, const void *mine, void *all, size_t length);

/* Memory of a test. What isn't shared is private memory, or a GPU's: then mem->addr is where the
 * CPU reaches it, and calls that take a region's address translate it (conf_gpu.h). */
void conf_mem_init(conf_t *t, conf_mem_t *mem, int shared, size_t length, unsigned access);
void conf_mem_cleanup(conf_mem_t *mem);
/** Take memory of a region away: whole pages of private memory; of a GPU's, all that there is. */
void conf_mem_lose(conf_mem_t *mem, size_t offset, size_t length);
/** All ranks exchange their region's key. */
void conf_mem_exchange(conf_t *t, const conf_mem_t *mem, uint64_t *keys);

/** Post a marker to @a rank and wait for it. */
void conf_marker(conf_t *t, unsigned rank);
/** Tell @a rank, by a word at the beginning of its window, that all is done; has this one been
 * told? */
void conf_tell_over(conf_t *t, unsigned rank);
int  conf_is_over(const conf_t *t);
/**
 * Wait until all that was posted to @a rank is performed or has faulted; then consume the faults'
 * events and reset the pair. @return what the pair's status was.
 */
angara_status_t conf_settle(conf_t *t, unsigned rank);

uint64_t conf_random(conf_t *t);
/** Rounds to run: @a rounds, a tenth of it in quick mode. */
unsigned conf_rounds(unsigned rounds);
/** Do all ranks share a CPU? */
int conf_on_one_cpu(void);
/** Keep each rank on a CPU of its own, where there are enough: races need both to run at once. */
void conf_pin(conf_t *t);

/** A boolean ANGARA_ variable that is on by default. */
int conf_env_on(const char *name);

/** Stop a process, and wait until each of its threads has stopped. */
void conf_stop_process(pid_t pid);

/** Is that rank's memory of conf_mem_init(), where it isn't shared, a GPU's? */
int conf_on_gpu(unsigned rank);

/** Do ranks reach each other's memory that isn't shared without the help of its owner? */
int conf_reaches(void);

/** May peers perform atomics on all ranks' memory of conf_mem_init()? */
int conf_has_atomics(int shared);
/** As conf_has_atomics(); ends the test as skipped where not. */
void conf_need_atomics(int shared);
/**
 * Post an atomic by which a word of 8 bytes, of memory that is @a shared, becomes @a sum: an add of
 * @a operand. Where there are no atomics, an inline put of @a sum: also a ring operation of a word.
 */
angara_status_t conf_add(conf_t *t, unsigned rank, int shared, uint64_t operand, uint64_t sum,
                         uint64_t key, uint64_t offset);

/** Device that the suite opens. */
const char *conf_device(void);

/**
 * Check that an operation of the own PE faulted with @a expected: @a posted is what its call
 * returned. Consumes the event, checks that a later marker doesn't arrive, and resets the pair.
 */
void conf_expect_fault(conf_t *t, unsigned rank, angara_status_t posted, angara_status_t expected,
                       uint64_t key);

/** Poll for an event with progress, at most @a seconds. @return 1 if there was one. */
int conf_event(conf_t *t, angara_event_t *event, double seconds);

/* One turn of a wait loop: progress, now and then a yield, failure after RANK_TIMEOUT. */
typedef struct {
    double   end;
    unsigned turns;
} conf_timer_t;
conf_timer_t conf_timer(void);
void conf_relax(conf_t *t, conf_timer_t *timer, const char *file, int line, const char *what);

#define CHECK_STATUS(_expr, _expected)                                                             \
    do {                                                                                           \
        angara_status_t _status = (_expr);                                                         \
        if (_status != (_expected)) {                                                              \
            rank_fail(__FILE__, __LINE__, "%s: %s, expected %s", #_expr, angara_strerror(_status), \
                      angara_strerror(_expected));                                                 \
        }                                                                                          \
    } while (0)

#define CHECK_OK(_expr) CHECK_STATUS(_expr, ANGARA_OK)

/* Wait with progress until the condition holds. */
#define CONF_WAIT(_t, _cond)                                     \
    do {                                                         \
        conf_timer_t _timer = conf_timer();                      \
        while (!(_cond)) {                                       \
            conf_relax(_t, &_timer, __FILE__, __LINE__, #_cond); \
        }                                                        \
    } while (0)

/*
 * Status of a posting call, repeated with progress while there are no resources: its arguments must
 * not have side effects.
 */
#define CONF_POST(_t, _expr)                                     \
    __extension__({                                              \
        conf_timer_t    _timer = conf_timer();                   \
        angara_status_t _post;                                   \
        while ((_post = (_expr)) == ANGARA_ERR_NO_RESOURCE) {    \
            conf_relax(_t, &_timer, __FILE__, __LINE__, #_expr); \
        }                                                        \
        _post;                                                   \
    })

#define POST_OK(_t, _expr)                                                             \
    do {                                                                               \
        angara_status_t _posted = CONF_POST(_t, _expr);                                \
        if (_posted != ANGARA_OK) {                                                    \
            rank_fail(__FILE__, __LINE__, "%s: %s", #_expr, angara_strerror(_posted)); \
        }                                                                              \
    } while (0)

#endif
