/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private to angara_perf: the two processes that measure (rank 0 reports, rank 1 answers), and the
 * tests that they run. Public library calls only; GPU memory by the tests' loader of runtimes.
 */
#ifndef ANGARA_TOOLS_PERF_H
#define ANGARA_TOOLS_PERF_H

#include <angara/angara.h>
#include <angara/angara_fast.h>

#include "../../tests/gpu/device.h"

#define PERF_BATCHES      10u        /* a result is the median of so many batches */
#define PERF_DATA         128u       /* window: flags, credits in front; then data */
#define PERF_RING         (4u << 20) /* bytes of window that a stream of puts goes through */
#define PERF_RING_MAX     256u       /* slots of it */
#define PERF_DEPTH        32u        /* offload operations under one marker */
#define PERF_SIZE_MAX     (256ul << 20)
#define PERF_COUNT_MAX    1000000000u

#define PERF_PATIENCE     30u /* seconds */
#define PERF_PATIENCE_MAX 1000000u

typedef struct {
    const char *device;
    size_t      size_min, size_max; /* 0: the test's own sizes */
    unsigned    iterations;
    unsigned    warm_up;
    int         shared; /* memory of offload operations and atomics */
    int         polls;  /* the target of these does: else it sleeps */
    int         check;
    int         json;
    int         cpus[2];     /* -1: not pinned */
    int         choose_cpus; /* by ourselves */
    const char *host;        /* rank 1 is there; NULL: it is a child of this process */
    const char *listen_at; /* this is rank 1, of who connects there: [ADDRESS]:PORT; NULL: isn't */
    unsigned patience; /* seconds that the other host may take for a step, its operations aside */
    char   **argv;     /* to begin anew with */

    const device_runtime_t *gpu; /* NULL: host memory only */
    device_origin_t         origin;
    int                     buf_on_gpu, mem_on_gpu; /* the two ends of offload operations */
} perf_options_t;

typedef struct {
    const perf_options_t *opt;
    unsigned              rank;
    int                   sock;       /* to the other process */
    uint64_t              talk_limit; /* ns that it may take until it comes to a barrier */
    uint64_t              look_limit; /* ns that a wait loop may last */
    uint64_t              look_start; /* of the wait loop that this process is in */
    int                   serves;     /* progress while it waits in a barrier */
    angara_domain_h       dom;
    angara_attr_t         attr;
    angara_pe_h           pe;
    angara_peer_h         peer;
    char                 *window;
    char                 *scratch; /* for windows without plain stores */
    angara_marker_slot_t *slot;
    uint64_t              value;    /* last one posted to the slot */
    uint64_t              sequence; /* flags and tickets, never repeated */
    char                 *mem;      /* own region, target of the other's operations */
    size_t                mem_size;
    angara_mr_h           mr;
    uint64_t              rkey; /* the other's */
    char                 *buf;  /* local end of operations */
    angara_mr_h           buf_mr;
} perf_t;

typedef struct {
    double   median, min, max; /* over batches */
    unsigned iterations;
} perf_result_t;

/* Time of one batch in seconds, measured by rank 0; both ranks call it with the same arguments. */
typedef double (*perf_batch_func_t)(perf_t *p, size_t size, unsigned iterations);

typedef enum { PERF_NS, PERF_HALF_NS, PERF_MBS, PERF_MOPS } perf_unit_t;

typedef struct {
    const char       *name;
    const char       *help;
    perf_unit_t       unit;
    size_t            default_min, default_max;
    size_t            limit;  /* largest size; 0: what the device or the memory allows */
    int               window; /* limited by put_max */
    int               gpu;    /* its operations may have GPU memory at their ends */
    perf_batch_func_t batch;
} perf_test_t;

extern const perf_test_t perf_tests[];
extern const unsigned    perf_num_tests;

const char *perf_unit_name(perf_unit_t unit);

#define PERF_TESTS_MAX 32

/* Name of this program, for messages. */
extern const char *const perf_name;

/* Fill the options, which have their defaults, and one byte per test. Exits on --help and the like.
 */
void perf_parse_options(int argc, char **argv, perf_options_t *opt, unsigned char *selected);

/*
 * The socket to the other process, of another host perhaps. Who listens gets what to measure from
 * who connects.
 */
int perf_connect(const perf_options_t *opt, const unsigned char *selected);
int perf_listen(perf_options_t *opt, unsigned char *selected);

/* End this process with a message; the other notices. */
void perf_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void perf_barrier(perf_t *p);
/* End with a message if the peer is gone, or has stalled; called now and then from wait loops. */
void perf_look(perf_t *p, int is_first);

#endif
