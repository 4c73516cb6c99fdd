/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The measurements of angara_perf. Each runs in both processes; rank 0 takes the time. Window puts
 * go through the inline calls that a transport would use.
 */
#include "perf.h"

#include <sched.h>
#include <time.h>

#define FLAG_TAG  (0xa46aull << 48) /* keeps flags apart from payload bytes */
#define CREDIT_AT 0                 /* offset of the credit word in the sender's window */
#define LOOK_MASK 0xfffffu          /* wait loops look at the peer so rarely */

const char *perf_unit_name(perf_unit_t unit)
{
    static const char *const names[] = {"ns", "ns", "MB/s", "Mop/s"};

    return names[unit];
}

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void post_check(angara_status_t status, const char *what)
{
    if (ANGARA_UNLIKELY(status != ANGARA_OK)) {
        perf_fail("%s: %s", what, angara_strerror(status));
    }
}

/* A wait loop counts its turns from 0, and looks at the peer once in a while. */
static inline void look(perf_t *p, uint64_t turns)
{
    if (ANGARA_UNLIKELY((turns & LOOK_MASK) == 0)) {
        perf_look(p, turns == LOOK_MASK + 1);
    }
}

/* Repeat a posting call while the ring is full. */
#define POST(_p, _call)                                                          \
    do {                                                                         \
        angara_status_t _status;                                                 \
        uint64_t        _turns = 0;                                              \
        while (ANGARA_UNLIKELY((_status = (_call)) == ANGARA_ERR_NO_RESOURCE)) { \
            angara_pe_progress((_p)->pe);                                        \
            look(_p, ++_turns);                                                  \
        }                                                                        \
        post_check(_status, #_call);                                             \
    } while (0)

/* One turn of a wait loop. The pause leaves the line alone for a moment. */
static inline void turn(perf_t *p, uint64_t *turns)
{
    if (ANGARA_UNLIKELY((++*turns & 63) == 0)) {
        angara_pe_progress(p->pe);
        if ((*turns & 4095) == 0) {
            sched_yield(); /* both may have to share a CPU */
        }
        look(p, *turns);
    }
}

static inline void wait_word(perf_t *p, const char *at, uint64_t value)
{
    uint64_t turns = 0;

    while (__atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE) != value) {
        turn(p, &turns);
    }
}

static void marker_wait(perf_t *p)
{
    uint64_t turns = 0;

    POST(p, angara_marker(p->peer, p->slot, ++p->value));
    while (!angara_marker_arrived(p->slot, p->value)) {
        angara_pe_progress(p->pe);
        look(p, ++turns);
    }
}

/* ---- validation ---------------------------------------------------------------------------- */

static void pattern_fill(char *data, size_t size, uint64_t seed)
{
    size_t i;

    for (i = 0; i < size; ++i) {
        data[i] = (char)(seed * 31 + i * 7 + (i >> 8));
    }
}

/* As pattern_fill(), of either end of an offload operation. */
static void end_fill(perf_t *p, char *data, int on_gpu, size_t size, uint64_t seed)
{
    pattern_fill(on_gpu ? p->scratch : data, size, seed);
    if (on_gpu) {
        p->opt->gpu->write(data, p->scratch, size);
    }
}

static void pattern_check(const perf_t *p, const char *data, size_t size, uint64_t seed,
                          const char *what)
{
    size_t i;

    for (i = 0; i < size; ++i) {
        if (data[i] != (char)(seed * 31 + i * 7 + (i >> 8))) {
            perf_fail("validation failed: %s of %zu bytes, byte %zu, in process %u", what, size, i,
                      p->rank);
        }
    }
}

static void end_check(perf_t *p, const char *data, int on_gpu, size_t size, uint64_t seed,
                      const char *what)
{
    if (on_gpu) {
        p->opt->gpu->read(p->scratch, data, size);
    }
    pattern_check(p, on_gpu ? p->scratch : data, size, seed, what);
}

/* ---- window puts --------------------------------------------------------------------------- */

static inline uint64_t flag_at(uint64_t data, size_t size)
{
    return data + ((size + 7) & ~(uint64_t)7);
}

static inline void put_message(perf_t *p, uint64_t data, size_t size, uint64_t flag)
{
    char *to = angara_put_begin(p->peer, data, size, p->scratch);

    if (ANGARA_UNLIKELY(p->opt->check)) {
        pattern_fill(p->buf, size, flag);
    }
    memcpy(to, p->buf, size);
    POST(p, angara_put_commit(p->peer, to, data, size, flag_at(data, size), flag));
}

static inline void wait_message(perf_t *p, uint64_t data, size_t size, uint64_t flag)
{
    wait_word(p, p->window + flag_at(data, size), flag);
    if (ANGARA_UNLIKELY(p->opt->check)) {
        pattern_check(p, p->window + data, size, flag, "put");
    }
}

/* Ping-pong through flagged window puts: payload and flag share a line where they fit. */
static double put_lat(perf_t *p, size_t size, unsigned iterations)
{
    uint64_t flag = FLAG_TAG | p->sequence;
    double   start;
    unsigned i;

    p->sequence += iterations;
    perf_barrier(p);
    start = now();
    for (i = 0; i < iterations; ++i) {
        ++flag;
        if (p->rank == 0) {
            put_message(p, PERF_DATA, size, flag);
            wait_message(p, PERF_DATA, size, flag);
        } else {
            wait_message(p, PERF_DATA, size, flag);
            put_message(p, PERF_DATA, size, flag);
        }
    }
    return now() - start;
}

/*
 * Rank 0 streams through a ring of slots, rank 1 gives credits back every quarter of it; the time
 * ends when the last message was seen and the sender knows.
 */
static double put_stream(perf_t *p, size_t size, unsigned iterations)
{
    uint64_t stride = (flag_at(0, size) + 8 + 63) & ~(uint64_t)63;
    uint64_t slots  = PERF_RING / stride;
    uint64_t base = FLAG_TAG | p->sequence, credits = 0, step;
    double   start;
    unsigned i;

    slots = (slots < 2) ? 2 : (slots > PERF_RING_MAX) ? PERF_RING_MAX : slots;
    step  = (slots >= 4) ? slots / 4 : 1;
    p->sequence += iterations;
    perf_barrier(p);
    start = now();
    for (i = 0; i < iterations; ++i) {
        uint64_t data = PERF_DATA + (i % slots) * stride, turns = 0;

        if (p->rank == 0) {
            while (ANGARA_UNLIKELY(i >= credits + slots)) {
                uint64_t word = __atomic_load_n((uint64_t *)(void *)(p->window + CREDIT_AT),
                                                __ATOMIC_ACQUIRE);

                credits = (word > base) ? word - base : credits;
                turn(p, &turns);
            }
            put_message(p, data, size, base + i + 1);
        } else {
            wait_message(p, data, size, base + i + 1);
            if (((i + 1) % step == 0) || (i + 1 == iterations)) {
                POST(p, angara_put_u64(p->peer, CREDIT_AT, base + i + 1));
            }
        }
    }
    if (p->rank == 0) {
        wait_word(p, p->window + CREDIT_AT, base + iterations);
    }
    return now() - start;
}

/* ---- offload operations -------------------------------------------------------------------- */

static size_t place(const perf_t *p, size_t size, unsigned i)
{
    size_t stride = (size + 63) & ~(size_t)63;

    return (stride == 0) ? 0 : (i % (p->mem_size / stride)) * stride;
}

/* Rank 1 has nothing to do in one-sided tests: it waits in the barrier, asleep or polling. */
static double one_sided(perf_t *p, size_t size, unsigned iterations,
                        void (*run)(perf_t *p, size_t size, unsigned iterations))
{
    double start, seconds = 0;

    p->sequence += iterations;
    perf_barrier(p);
    if (p->rank == 0) {
        start = now();
        run(p, size, iterations);
        seconds = now() - start;
    }
    p->serves = p->opt->polls && (p->rank == 1);
    perf_barrier(p);
    p->serves = 0;
    return seconds;
}

static void run_offload_put_lat(perf_t *p, size_t size, unsigned iterations)
{
    unsigned i;

    for (i = 0; i < iterations; ++i) {
        POST(p, angara_offload_put(p->peer, p->buf_mr, p->buf, p->rkey, 0, size));
        marker_wait(p);
    }
}

static void run_offload_get_lat(perf_t *p, size_t size, unsigned iterations)
{
    unsigned i;

    for (i = 0; i < iterations; ++i) {
        POST(p, angara_offload_get(p->peer, p->buf_mr, p->buf, p->rkey, 0, size));
        marker_wait(p);
    }
}

static void run_offload_put_bw(perf_t *p, size_t size, unsigned iterations)
{
    unsigned i;

    for (i = 0; i < iterations; ++i) {
        size_t at = place(p, size, i);

        POST(p, angara_offload_put(p->peer, p->buf_mr, p->buf + at, p->rkey, at, size));
        if (((i + 1) % PERF_DEPTH == 0) || (i + 1 == iterations)) {
            marker_wait(p);
        }
    }
}

static void run_offload_get_bw(perf_t *p, size_t size, unsigned iterations)
{
    unsigned i;

    for (i = 0; i < iterations; ++i) {
        size_t at = place(p, size, i);

        POST(p, angara_offload_get(p->peer, p->buf_mr, p->buf + at, p->rkey, at, size));
        if (((i + 1) % PERF_DEPTH == 0) || (i + 1 == iterations)) {
            marker_wait(p);
        }
    }
}

/* With --check: what was put, got back, equals what was sent. */
static void check_offload(perf_t *p, size_t size, unsigned iterations, int get)
{
    size_t last = place(p, size, iterations - 1);

    if (!p->opt->check) {
        return;
    }
    perf_barrier(p);
    if (get ? (p->rank == 1) : (p->rank == 0)) {
        end_fill(p, get ? p->mem + last : p->buf + last,
                 get ? p->opt->mem_on_gpu : p->opt->buf_on_gpu, size, iterations);
    }
    perf_barrier(p);
    if (p->rank == 0) {
        if (get) {
            POST(p, angara_offload_get(p->peer, p->buf_mr, p->buf + last, p->rkey, last, size));
        } else {
            POST(p, angara_offload_put(p->peer, p->buf_mr, p->buf + last, p->rkey, last, size));
        }
        marker_wait(p);
    }
    perf_barrier(p);
    if (get ? (p->rank == 0) : (p->rank == 1)) {
        end_check(p, get ? p->buf + last : p->mem + last,
                  get ? p->opt->buf_on_gpu : p->opt->mem_on_gpu, size, iterations, "offload");
    }
    perf_barrier(p);
}

static double offload_put_lat(perf_t *p, size_t size, unsigned iterations)
{
    double seconds = one_sided(p, size, iterations, run_offload_put_lat);

    check_offload(p, size, iterations, 0);
    return seconds;
}

static double offload_get_lat(perf_t *p, size_t size, unsigned iterations)
{
    double seconds = one_sided(p, size, iterations, run_offload_get_lat);

    check_offload(p, size, iterations, 1);
    return seconds;
}

static double offload_put_bw(perf_t *p, size_t size, unsigned iterations)
{
    double seconds = one_sided(p, size, iterations, run_offload_put_bw);

    check_offload(p, size, iterations, 0);
    return seconds;
}

static double offload_get_bw(perf_t *p, size_t size, unsigned iterations)
{
    double seconds = one_sided(p, size, iterations, run_offload_get_bw);

    check_offload(p, size, iterations, 1);
    return seconds;
}

/* ---- atomics, markers, notify -------------------------------------------------------------- */

static void run_atomic_lat(perf_t *p, size_t size, unsigned iterations)
{
    uint64_t *old = (uint64_t *)(void *)p->buf;
    unsigned  i;

    for (i = 0; i < iterations; ++i) {
        POST(p, angara_atomic(p->peer, ANGARA_ATOMIC_ADD, (unsigned)size, 1, 0, p->rkey, 0,
                              p->buf_mr, old));
        marker_wait(p);
        if (ANGARA_UNLIKELY(p->opt->check && ((uint32_t)*old != i))) {
            perf_fail("validation failed: fetched %u, expected %u", (uint32_t)*old, i);
        }
    }
}

static void run_atomic_rate(perf_t *p, size_t size, unsigned iterations)
{
    unsigned i;

    for (i = 0; i < iterations; ++i) {
        POST(p, angara_atomic(p->peer, ANGARA_ATOMIC_ADD, (unsigned)size, 1, 0, p->rkey, 0, NULL,
                              NULL));
        if (((i + 1) % PERF_DEPTH == 0) || (i + 1 == iterations)) {
            marker_wait(p);
        }
    }
}

static double counted_atomics(perf_t *p, size_t size, unsigned iterations,
                              void (*run)(perf_t *p, size_t size, unsigned iterations))
{
    double seconds;

    memset(p->mem, 0, 8);
    memset(p->buf, 0, 8);
    perf_barrier(p);
    seconds = one_sided(p, size, iterations, run);
    if (p->opt->check && (p->rank == 1) && (*(uint32_t *)(void *)p->mem != iterations)) {
        perf_fail("validation failed: %u additions make %u", iterations,
                  *(uint32_t *)(void *)p->mem);
    }
    perf_barrier(p);
    return seconds;
}

static double atomic_lat(perf_t *p, size_t size, unsigned iterations)
{
    return counted_atomics(p, size, iterations, run_atomic_lat);
}

static double atomic_rate(perf_t *p, size_t size, unsigned iterations)
{
    return counted_atomics(p, size, iterations, run_atomic_rate);
}

static void run_marker_lat(perf_t *p, size_t size, unsigned iterations)
{
    unsigned i;

    (void)size;
    for (i = 0; i < iterations; ++i) {
        marker_wait(p);
    }
}

static double marker_lat(perf_t *p, size_t size, unsigned iterations)
{
    return one_sided(p, size, iterations, run_marker_lat);
}

static void wait_notify(perf_t *p, size_t size, uint64_t seed)
{
    angara_event_t  event;
    angara_status_t status;
    uint64_t        turns = 0;

    while ((status = angara_pe_event_poll(p->pe, &event)) == ANGARA_ERR_NO_RESOURCE) {
        turn(p, &turns);
    }
    post_check(status, "angara_pe_event_poll");
    if ((event.type != ANGARA_EVENT_NOTIFY) || (event.len != size)) {
        perf_fail("event %d of %u bytes came, expected a record of %zu", (int)event.type, event.len,
                  size);
    }
    if (ANGARA_UNLIKELY(p->opt->check)) {
        pattern_check(p, (const char *)event.data, size, seed, "notify");
    }
}

static void send_notify(perf_t *p, size_t size, uint64_t seed)
{
    if (ANGARA_UNLIKELY(p->opt->check)) {
        pattern_fill(p->buf, size, seed);
    }
    POST(p, angara_notify(p->peer, p->buf, size));
}

static double notify_lat(perf_t *p, size_t size, unsigned iterations)
{
    double   start;
    unsigned i;

    perf_barrier(p);
    start = now();
    for (i = 0; i < iterations; ++i) {
        if (p->rank == 0) {
            send_notify(p, size, i);
            wait_notify(p, size, i);
        } else {
            wait_notify(p, size, i);
            send_notify(p, size, i);
        }
    }
    return now() - start;
}

const perf_test_t perf_tests[] = {
    {"put_lat", "flagged window put, half of a round trip", PERF_HALF_NS, 8, 8192, 0, 1, 0,
     put_lat},
    {"put_bw", "stream of flagged window puts, bandwidth", PERF_MBS, 8, 65536, 0, 1, 0, put_stream},
    {"put_rate", "stream of flagged window puts, rate", PERF_MOPS, 8, 64, 0, 1, 0, put_stream},
    {"offload_put_lat", "offload put until its completion marker", PERF_NS, 8, 1u << 20, 0, 0, 1,
     offload_put_lat},
    {"offload_put_bw", "offload puts, 32 under one marker", PERF_MBS, 64, 4u << 20, 0, 0, 1,
     offload_put_bw},
    {"offload_get_lat", "offload get until its completion marker", PERF_NS, 8, 1u << 20, 0, 0, 1,
     offload_get_lat},
    {"offload_get_bw", "offload gets, 32 under one marker", PERF_MBS, 64, 4u << 20, 0, 0, 1,
     offload_get_bw},
    {"atomic_lat", "fetching add until its completion marker", PERF_NS, 8, 8, 8, 0, 0, atomic_lat},
    {"atomic_rate", "adds that fetch nothing, 32 under one marker", PERF_MOPS, 8, 8, 8, 0, 0,
     atomic_rate},
    {"marker_lat", "completion marker alone", PERF_NS, 0, 0, 1, 0, 0, marker_lat},
    {"notify_lat", "notify put, half of a round trip", PERF_HALF_NS, 8, 64, ANGARA_NOTIFY_MAX, 0, 0,
     notify_lat},
};

const unsigned perf_num_tests = sizeof(perf_tests) / sizeof(perf_tests[0]);
