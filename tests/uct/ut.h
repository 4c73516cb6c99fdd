/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Harness of the UCT tests. A test is a function that runs in N fresh processes (common/ranks.h),
 * and may set UCX_* and ANGARA_* variables for its rank before ut_open().
 *
 * The transport is used through UCT's public API only; the few tests that look at counters or speak
 * the wire protocol do so through ut_inside.h and ut_hostile.h.
 */
#ifndef ANGARA_TESTS_UT_H
#define ANGARA_TESTS_UT_H

#include "../common/ranks.h"

#include <config.h>
#include <uct/api/uct.h>
#include <ucs/async/async_fwd.h>
#include <ucs/sys/math.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* After the headers above, which it needs. */
#include <cmocka.h>

#define UT_NAME "angara"

/*
 * UCX can be configured without checks of parameters, as upstream's releases are: then a transport
 * has none either.
 */
static inline void ut_needs_checks(void)
{
    if (!ENABLE_PARAMS_CHECK) {
        rank_skip("this UCX checks no parameters");
    }
}

/* Addresses of an interface, as they travel between ranks. */
typedef struct {
    uint8_t dev[64];
    uint8_t iface[192];
} ut_addr_t;

/* An interface and what its error handler has heard. */
typedef struct {
    uct_iface_h      iface;
    uct_iface_attr_t attr;
    ut_addr_t        addr;
    unsigned         errors;     /* calls of the error handler */
    ucs_status_t     error;      /* status of the last one */
    ucs_status_t     verdict;    /* what the handler returns: UCS_OK means handled */
    int              no_handler; /* set before ut_iface_open(): open without a handler */
    uint64_t         param_mask; /* and these: parameters that are given besides */
    size_t           am_alignment;
    size_t           am_align_offset;
    void (*on_error)(void *arg, uct_ep_h ep); /* called by the handler if set */
    void *on_error_arg;
} ut_iface_t;

typedef struct ut {
    unsigned    rank; /* 0 to nranks - 1 */
    unsigned    nranks;
    const void *arg;          /* of ut_run() */
    int         fd[RANK_MAX]; /* socket to each other rank */
    pid_t       pid[RANK_MAX];
    uint64_t    rng;
    /* set up by ut_md_open() */
    ucs_async_context_t *async;
    uct_worker_h         worker; /* NULL until then: ut_recv() makes progress on it */
    uct_component_h      component;
    uct_md_h             md;
    uct_md_attr_t        md_attr;
    char                 tl_name[UCT_TL_NAME_MAX];
    char                 dev_name[UCT_DEVICE_NAME_MAX];
    /* set up by ut_open() */
    ut_iface_t main;
    ut_addr_t  addr[RANK_MAX];
    uct_ep_h   ep[RANK_MAX]; /* to each rank, the own one included */
} ut_t;

typedef void (*ut_func_t)(ut_t *t);

/* ---- processes and tests (ut_ranks.c) ------------------------------------------------------- */

/* Run func in nranks processes; fails (or skips) the current cmocka test as they did. */
void ut_run(unsigned nranks, ut_func_t func, const void *arg);
/* As ut_run(); the ranks of the bit mask victims must end by that signal. */
void ut_run_victims(unsigned nranks, ut_func_t func, const void *arg, unsigned victims, int signal);
/* Run a group; argv[1] is a filter with wildcards. @return exit status. */
int ut_main(int argc, char **argv, const char *name, const struct CMUnitTest *tests, size_t count);

/* Talk between ranks by sockets. What waits makes progress on the worker, unless "still". */
void ut_send(ut_t *t, unsigned rank, const void *buffer, size_t length);
void ut_recv(ut_t *t, unsigned rank, void *buffer, size_t length);
void ut_recv_still(ut_t *t, unsigned rank, void *buffer, size_t length);
void ut_exchange(ut_t *t, const void *mine, void *all, size_t length);
/* When it returns no rank is in a turn of progress that it began before it came to the barrier. */
void ut_barrier(ut_t *t);
/* One-word messages. */
void     ut_send_word(ut_t *t, unsigned rank, uint64_t word);
uint64_t ut_recv_word(ut_t *t, unsigned rank);
uint64_t ut_recv_word_still(ut_t *t, unsigned rank);

uint64_t ut_random(ut_t *t);
/* Rounds to run: fewer in quick mode (ANGARA_TEST_QUICK) and in chaos mode. */
unsigned ut_rounds(unsigned rounds);
int      ut_env_is(const char *name, const char *value);
/* Busy for about that long. */
void ut_spin_ns(uint64_t ns);

/* One turn of a wait loop: progress, now and then a yield, failure after RANK_TIMEOUT. */
typedef struct {
    double   end;
    unsigned turns;
} ut_timer_t;

void ut_relax(ut_t *t, ut_timer_t *timer, const char *file, int line, const char *what);

/* ---- UCT objects (ut_uct.c) ------------------------------------------------------------------ */

/* Worker, memory domain. */
void         ut_md_open(ut_t *t);
void         ut_md_close(ut_t *t);
void         ut_iface_open(ut_t *t, ut_iface_t *iface);
ucs_status_t ut_iface_try_open(ut_t *t, ut_iface_t *iface); /* no more than that */
void         ut_iface_close(ut_iface_t *iface);
uct_ep_h     ut_ep_create(const ut_iface_t *iface, const ut_addr_t *addr);
ucs_status_t ut_ep_try_create(const ut_iface_t *iface, const ut_addr_t *addr, uct_ep_h *ep_p);

/* Before ut_open(): have the domain cache registrations. Skips the rank where UCX does that. */
void ut_cache_on(void);
/* All of it: domain, main interface, endpoints to all ranks, barrier. */
void ut_open(ut_t *t);
/* Undo ut_open(): flush, barrier, endpoints, barrier with progress, interface, domain. */
void ut_close(ut_t *t);
/* Without barriers, for tests in which a rank has died. */
void ut_close_alone(ut_t *t);
void ut_progress(ut_t *t);
/* Make progress for so long. */
void ut_progress_ms(ut_t *t, unsigned ms);
/* Flush the interface and wait. */
void ut_flush(ut_t *t, ut_iface_t *iface);

/* Completion that counts its calls. */
typedef struct {
    uct_completion_t super;
    unsigned         calls;
    ucs_status_t     status;
} ut_comp_t;

void ut_comp_init(ut_comp_t *comp, int count);
/* Wait for what an operation with this (single) completion has returned; @return final status. */
ucs_status_t ut_comp_wait(ut_t *t, ucs_status_t posted, ut_comp_t *comp);

/* Memory of a test: registered private memory, or allocated by the domain. */
typedef enum { UT_MEM_PRIVATE, UT_MEM_ALLOC, UT_MEM_KINDS } ut_mem_kind_t;

extern const char *ut_mem_names[];

typedef struct {
    ut_mem_kind_t          kind;
    char                  *addr;
    size_t                 length;
    uct_mem_h              memh;
    uct_allocated_memory_t alloc;
} ut_mem_t;

/* A rank's memory as the others name it. */
typedef struct {
    uint64_t          addr;
    uint64_t          length;
    uct_rkey_bundle_t key;
} ut_remote_t;

#define UT_RKEY_MAX 128

void ut_mem_init(ut_t *t, ut_mem_t *mem, ut_mem_kind_t kind, size_t length);
void ut_mem_init_flags(ut_t *t, ut_mem_t *mem, ut_mem_kind_t kind, size_t length, unsigned flags);
void ut_mem_cleanup(ut_t *t, ut_mem_t *mem);
/* All ranks exchange keys of their memory: remotes[rank]. */
void ut_mem_exchange(ut_t *t, const ut_mem_t *mem, ut_remote_t *remotes);
void ut_remotes_release(ut_t *t, ut_remote_t *remotes);
/* Deregister; with a completion, invalidate. */
void ut_mem_dereg(ut_t *t, uct_mem_h memh, uct_completion_t *comp);

/* What UCX's log says from now on, at the level of warnings or above: watched, and not printed. */
void ut_log_watch(void);
void ut_log_forget(void);
int  ut_log_has(const char *text);

/* Callback of put_bcopy and am_bcopy: packs this. */
typedef struct {
    const void *buffer;
    size_t      length;
} ut_pack_t;

size_t ut_pack(void *dest, void *arg);

/*
 * Sizes around whatever may be a threshold, rising, each once, not above max: 0, 1, and one below,
 * at and one above each power of two, each power of two less 8 and less 16, and max. @return
 * number.
 */
#define UT_SIZES_MAX 256
unsigned ut_sizes(size_t max, size_t sizes[UT_SIZES_MAX]);

/* Cut buffer into count pieces of random, perhaps zero, length. */
void ut_iov_cut(ut_t *t, void *buffer, size_t length, uct_mem_h memh, uct_iov_t *iov, size_t count);

/* ---- checks ---------------------------------------------------------------------------------- */

#define CHECK_STATUS(_expr, _expected)                                           \
    do {                                                                         \
        ucs_status_t _status = (ucs_status_t)(_expr);                            \
        if (_status != (_expected)) {                                            \
            rank_fail(__FILE__, __LINE__, "%s: %s, expected %s", #_expr,         \
                      ucs_status_string(_status), ucs_status_string(_expected)); \
        }                                                                        \
    } while (0)

#define CHECK_OK(_expr) CHECK_STATUS(_expr, UCS_OK)

/* Any error will do. */
#define CHECK_ERR(_expr)                                                       \
    do {                                                                       \
        ucs_status_t _status = (ucs_status_t)(_expr);                          \
        if (!UCS_STATUS_IS_ERR(_status) || (_status == UCS_ERR_NO_RESOURCE)) { \
            rank_fail(__FILE__, __LINE__, "%s: %s, expected an error", #_expr, \
                      ucs_status_string(_status));                             \
        }                                                                      \
    } while (0)

/* Wait with progress until the condition holds. */
#define UT_WAIT(_t, _cond)                                     \
    do {                                                       \
        ut_timer_t _timer = {0, 0};                            \
        while (!(_cond)) {                                     \
            ut_relax(_t, &_timer, __FILE__, __LINE__, #_cond); \
        }                                                      \
    } while (0)

/* Status (or length) of a posting call, repeated with progress while there are no resources. */
#define UT_POST(_t, _expr)                                                   \
    __extension__({                                                          \
        ut_timer_t _timer = {0, 0};                                          \
        ssize_t    _post;                                                    \
        while ((_post = (ssize_t)(_expr)) == (ssize_t)UCS_ERR_NO_RESOURCE) { \
            ut_relax(_t, &_timer, __FILE__, __LINE__, #_expr);               \
        }                                                                    \
        _post;                                                               \
    })

#define POST_OK(_t, _expr) CHECK_OK(UT_POST(_t, _expr))

/* A posting call with a ut_comp_t of its own: post, wait, check that it ends well. */
#define COMPLETE_OK(_t, _comp, _expr)               \
    do {                                            \
        ucs_status_t _posted;                       \
        ut_comp_init(_comp, 1);                     \
        _posted = (ucs_status_t)UT_POST(_t, _expr); \
        CHECK_OK(ut_comp_wait(_t, _posted, _comp)); \
    } while (0)

#endif
