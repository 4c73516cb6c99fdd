/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided communication: windows of every kind, put, get, accumulate and the atomics, under
 * every kind of synchronization. A window is an array of 64-bit words, a part of it for each
 * origin.
 */
#include "mpi_test.h"

#include <stdlib.h>
#include <string.h>

#define BURST      64
#define PART_BYTES (BURST * (size_t)16384) /* per origin */

static const size_t rma_sizes[] = {0,     1,     7,     8,      9,      56,     64,    257,   1000,
                                   4095,  4096,  4097,  8191,   8192,   8193,   16385, 32768, 40960,
                                   40961, 65536, 65537, 131071, 131072, 131073, 300000};
#define NUM_RMA_SIZES MT_COUNT(rma_sizes)

static mt_window_t window_open(mt_window_kind_t kind, MPI_Info info)
{
    return mt_window_open(kind, PART_BYTES * (size_t)mt.size, info);
}

/* Where the part of `origin` at `target` lies, plus an offset. */
static MPI_Aint part(const mt_window_t *window, int target, int origin, size_t offset)
{
    return mt_window_at(window, target, PART_BYTES * (size_t)origin + offset);
}

/* --- synchronization: begin and end an epoch in which this rank accesses `target`, while
 *     `origin` accesses this rank --- */

typedef struct {
    const char *name;
    void (*begin)(MPI_Win win, int target, int origin);
    void (*end)(MPI_Win win, int target, int origin);
} sync_t;

static void fence_begin(MPI_Win win, int target, int origin)
{
    (void)target;
    (void)origin;
    MPI_Win_fence(0, win);
}

static void fence_end(MPI_Win win, int target, int origin)
{
    (void)target;
    (void)origin;
    MPI_Win_fence(0, win);
}

static void lock_begin(MPI_Win win, int target, int origin)
{
    (void)origin;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
}

static void lock_end(MPI_Win win, int target, int origin)
{
    (void)origin;
    MPI_Win_unlock(target, win);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void lock_all_begin(MPI_Win win, int target, int origin)
{
    (void)target;
    (void)origin;
    MPI_Win_lock_all(0, win);
}

static void lock_all_end(MPI_Win win, int target, int origin)
{
    (void)origin;
    MPI_Win_flush(target, win);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void pscw_begin(MPI_Win win, int target, int origin)
{
    MPI_Group world, group;

    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &origin, &group);
    MPI_Win_post(group, 0, win);
    MPI_Group_free(&group);
    MPI_Group_incl(world, 1, &target, &group);
    MPI_Win_start(group, 0, win);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
}

static void pscw_end(MPI_Win win, int target, int origin)
{
    (void)target;
    (void)origin;
    MPI_Win_complete(win);
    MPI_Win_wait(win);
}

static const sync_t syncs[] = {{"fence", fence_begin, fence_end},
                               {"lock, unlock", lock_begin, lock_end},
                               {"lock_all, flush", lock_all_begin, lock_all_end},
                               {"post, start, complete, wait", pscw_begin, pscw_end}};
#define NUM_SYNCS ((int)MT_COUNT(syncs))

static mt_window_kind_t test_kind;
static const sync_t    *test_sync;

/* Put to the next rank, then get it back from there, and check what the previous one put. */
static void test_put_get(void)
{
    int         target = (mt.rank + 1) % mt.size, origin = (mt.rank + mt.size - 1) % mt.size;
    mt_window_t window = window_open(test_kind, MPI_INFO_NULL);
    uint64_t    seq;
    mt_buf_t    buf;
    size_t      i;

    for (i = 0; i < NUM_RMA_SIZES; ++i) {
        size_t size = rma_sizes[i], offset = i % 8;

        for (seq = i * 100; seq < i * 100 + 2; ++seq) {
            buf = mt_buf_alloc(size, (unsigned)i % 5);
            data_fill(buf.data, size, mt_key(mt.rank, target, 51, seq));
            test_sync->begin(window.win, target, origin);
            MPI_Put(buf.data, (int)size, MPI_BYTE, target, part(&window, target, mt.rank, offset),
                    (int)size, MPI_BYTE, window.win);
            test_sync->end(window.win, target, origin);

            data_fill(buf.data, size, 0);
            test_sync->begin(window.win, target, origin);
            MPI_Get(buf.data, (int)size, MPI_BYTE, target, part(&window, target, mt.rank, offset),
                    (int)size, MPI_BYTE, window.win);
            test_sync->end(window.win, target, origin);
            mt_buf_verify(&buf, mt_key(mt.rank, target, 51, seq), "get after put");
            mt_buf_free(&buf);

            MPI_Win_lock(MPI_LOCK_SHARED, mt.rank, 0, window.win);
            mt_verify(window.base + PART_BYTES * (size_t)origin + offset, size,
                      mt_key(origin, mt.rank, 51, seq), "put");
            MPI_Win_unlock(mt.rank, window.win);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    }
    mt_window_close(&window);
}

/* Many puts without waiting in between, flush, and a message: the target must see all of them. */
static void test_flush_then_message(void)
{
    int         target = (mt.rank + 1) % mt.size, origin = (mt.rank + mt.size - 1) % mt.size;
    mt_window_t window = window_open(MT_ALLOCATED, MPI_INFO_NULL);
    uint64_t   *values = mt_alloc(1000 * sizeof(*values));
    int         round, i;

    MPI_Win_lock_all(MPI_MODE_NOCHECK, window.win);
    for (round = 1; round <= mt.iters; ++round) {
        for (i = 0; i < 1000; ++i) {
            values[i] = mt_key(mt.rank, target, round, (uint64_t)i);
            MPI_Put(&values[i], 8, MPI_BYTE, target, part(&window, target, mt.rank, (size_t)i * 8),
                    8, MPI_BYTE, window.win);
        }
        MPI_Win_flush(target, window.win);
        MPI_Sendrecv(NULL, 0, MPI_BYTE, target, 52, NULL, 0, MPI_BYTE, origin, 52, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Win_sync(window.win);
        for (i = 0; i < 1000; ++i) {
            uint64_t value;

            memcpy(&value, window.base + PART_BYTES * (size_t)origin + (size_t)i * 8, 8);
            if (value != mt_key(origin, mt.rank, round, (uint64_t)i)) {
                MT_CHECK(false, "round %d: put %d is not there after the message", round, i);
                break;
            }
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_unlock_all(window.win);
    free(values);
    mt_window_close(&window);
}

/* All operations of a burst are outstanding until they are waited for, one by one or by a flush. */
static void burst_run(const mt_window_t *window, int target, bool put, bool requests,
                      mt_buf_t *bufs)
{
    MPI_Request request[BURST];
    int         i;

    for (i = 0; i < BURST; ++i) {
        MPI_Aint where = part(window, target, mt.rank, (size_t)i * bufs[i].length);
        int      size  = (int)bufs[i].length;

        if (put && requests) {
            MPI_Rput(bufs[i].data, size, MPI_BYTE, target, where, size, MPI_BYTE, window->win,
                     &request[i]);
        } else if (put) {
            MPI_Put(bufs[i].data, size, MPI_BYTE, target, where, size, MPI_BYTE, window->win);
        } else if (requests) {
            MPI_Rget(bufs[i].data, size, MPI_BYTE, target, where, size, MPI_BYTE, window->win,
                     &request[i]);
        } else {
            MPI_Get(bufs[i].data, size, MPI_BYTE, target, where, size, MPI_BYTE, window->win);
        }
    }
    if (requests) {
        MPI_Waitall(BURST, request, MPI_STATUSES_IGNORE);
    }
    if (put || !requests) { /* a put that is complete here need not be there */
        MPI_Win_flush(target, window->win);
    }
}

/* Bursts of puts, then of gets of the same data, while others do so to us. */
static void burst_check(mt_window_t *window, bool requests, size_t size, uint64_t seq)
{
    int      target = (mt.rank + 1) % mt.size, origin = (mt.rank + mt.size - 1) % mt.size, i;
    mt_buf_t bufs[BURST];

    for (i = 0; i < BURST; ++i) {
        bufs[i] = mt_buf_alloc(size, (unsigned)i % 5);
        data_fill(bufs[i].data, size, mt_key(mt.rank, target, i, seq));
    }
    burst_run(window, target, true, requests, bufs);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(window->win);
    for (i = 0; i < BURST; ++i) {
        mt_verify(window->base + PART_BYTES * (size_t)origin + (size_t)i * size, size,
                  mt_key(origin, mt.rank, i, seq), "burst of puts");
        data_fill(bufs[i].data, size, 0);
    }
    burst_run(window, target, false, requests, bufs);
    for (i = 0; i < BURST; ++i) {
        mt_buf_verify(&bufs[i], mt_key(mt.rank, target, i, seq), "burst of gets");
        mt_buf_free(&bufs[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void test_bursts(void)
{
    static const size_t sizes[] = {8, 2000, 5000, 9000, 16384};
    mt_window_t         window  = window_open(test_kind, MPI_INFO_NULL);
    uint64_t            seq     = 0;
    size_t              i;
    int                 round;

    MPI_Win_lock_all(0, window.win);
    for (round = 0; round < mt.iters; ++round) {
        for (i = 0; i < MT_COUNT(sizes); ++i) {
            burst_check(&window, round % 2 != 0, sizes[i], ++seq);
        }
    }
    MPI_Win_unlock_all(window.win);
    mt_window_close(&window);
}

/* Every rank adds to the same words of every rank. */
static void test_accumulate(void)
{
    mt_window_t window = window_open(test_kind, MPI_INFO_NULL);
    long        one[64], expected;
    int         i, round, target;

    for (round = 0; round < mt.iters; ++round) {
        for (i = 0; i < 64; ++i) {
            one[i] = (long)(mt.rank + 1) * (i + 1);
        }
        MPI_Win_fence(0, window.win);
        for (target = 0; target < mt.size; ++target) {
            MPI_Accumulate(one, 64, MPI_LONG, target, part(&window, target, 0, 0), 64, MPI_LONG,
                           MPI_SUM, window.win);
        }
        MPI_Win_fence(0, window.win);
    }
    for (i = 0; i < 64; ++i) {
        long value;

        expected = (long)mt.iters * mt.size * (mt.size + 1) / 2 * (i + 1);
        memcpy(&value, window.base + (size_t)i * sizeof(long), sizeof(long));
        MT_CHECK(value == expected, "word %d is %ld, expected %ld", i, value, expected);
    }
    MPI_Win_fence(0, window.win);
    mt_window_close(&window);
}

/* On the first word of the target, performed when it returns. */
static long fetch_and_op(long value, int target, MPI_Op op, const mt_window_t *window)
{
    long old;

    MPI_Fetch_and_op(&value, &old, MPI_LONG, target, part(window, target, 0, 0), op, window->win);
    MPI_Win_flush(target, window->win);
    return old;
}

/* A shared counter on rank 0: the values fetched must all differ. */
static void test_fetch_and_op(void)
{
    mt_window_t window = window_open(test_kind, MPI_INFO_NULL);
    int         count = 50 * mt.iters, i, total = count * mt.size;
    long       *mine = mt_alloc((size_t)count * sizeof(long)), *all = NULL;
    char       *seen;

    MPI_Win_lock_all(0, window.win);
    for (i = 0; i < count; ++i) {
        mine[i] = fetch_and_op(1, 0, MPI_SUM, &window);
    }
    MPI_Win_unlock_all(window.win);

    all = mt_alloc((size_t)total * sizeof(long));
    MPI_Allgather(mine, count, MPI_LONG, all, count, MPI_LONG, MPI_COMM_WORLD);
    seen = mt_alloc((size_t)total);
    memset(seen, 0, (size_t)total);
    for (i = 0; i < total; ++i) {
        if ((all[i] < 0) || (all[i] >= total) || seen[all[i]]) {
            MT_CHECK(false, "value %ld was fetched twice or is out of range", all[i]);
            break;
        }
        seen[all[i]] = 1;
    }
    free(mine);
    free(all);
    free(seen);
    mt_window_close(&window);
}

/* A lock made of compare-and-swap protects a plain get and put of two words. */
static void test_compare_and_swap(void)
{
    mt_window_t window = window_open(test_kind, MPI_INFO_NULL);
    long        mine = mt.rank + 1, nobody = 0, found, pair[2], last[2];
    int         i, count                   = 3 * mt.iters, flag;

    MPI_Win_lock_all(0, window.win);
    for (i = 0; i < count; ++i) {
        do {
            MPI_Compare_and_swap(&mine, &nobody, &found, MPI_LONG, 0, part(&window, 0, 0, 0),
                                 window.win);
            MPI_Win_flush(0, window.win);
            /* osc/ucx makes no progress for others in operations on oneself. */
            MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            mt_relax();
        } while (found != nobody);
        MPI_Get(pair, 2, MPI_LONG, 0, part(&window, 0, 0, 64), 2, MPI_LONG, window.win);
        MPI_Win_flush(0, window.win);
        MT_CHECK(pair[1] == 2 * pair[0], "torn pair %ld, %ld", pair[0], pair[1]);
        pair[0] += 1;
        pair[1] += 2;
        MPI_Put(pair, 2, MPI_LONG, 0, part(&window, 0, 0, 64), 2, MPI_LONG, window.win);
        MPI_Win_flush(0, window.win);
        found = fetch_and_op(nobody, 0, MPI_REPLACE, &window);
        MT_CHECK(found == mine, "the lock was %ld while %ld held it", found, mine);
    }
    MPI_Win_unlock_all(window.win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (mt.rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window.win);
        memcpy(last, window.base + 64, sizeof(last));
        MPI_Win_unlock(0, window.win);
        MT_CHECK(last[0] == (long)count * mt.size, "%ld of %ld rounds counted", last[0],
                 (long)count * mt.size);
    }
    mt_window_close(&window);
}

/* Look after nothing for a while. */
static void compute(void)
{
    volatile int i = 0;

    while (i < 20000) {
        i = i + 1;
    }
}

/*
 * All ranks change one word of every rank, their own too, by every atomic, while targets now make
 * calls and now compute. What one swaps out it adds again, so that nothing is lost. `intrinsic`: an
 * operation of MPI's is one of the transport's, not several behind a lock.
 */
static void hammer(const char *intrinsic)
{
    long        one, added = 0, value, old;
    long        mine[2], all[2];
    MPI_Info    info;
    MPI_Win     win;
    mt_window_t window;
    int         i, target;

    MPI_Info_create(&info);
    MPI_Info_set(info, "acc_single_intrinsic", intrinsic);
    window = window_open(test_kind, info);
    win    = window.win;
    MPI_Info_free(&info);

    MPI_Win_lock_all(0, win);
    for (i = 0; i < 40 * mt.iters; ++i) {
        target = (mt.rank + i / 4) % mt.size;
        switch (i % 4) {
        case 0:
            fetch_and_op(1, target, MPI_SUM, &window);
            ++added;
            break;
        case 1:
            do {
                value = fetch_and_op(0, target, MPI_NO_OP, &window);
                one   = value + 1;
                MPI_Compare_and_swap(&one, &value, &old, MPI_LONG, target,
                                     part(&window, target, 0, 0), win);
                MPI_Win_flush(target, win);
            } while (old != value);
            ++added;
            break;
        case 2:
            value = fetch_and_op(0, target, MPI_REPLACE, &window);
            fetch_and_op(value, target, MPI_SUM, &window);
            break;
        default:
            one = 1;
            MPI_Accumulate(&one, 1, MPI_LONG, target, part(&window, target, 0, 0), 1, MPI_LONG,
                           MPI_SUM, win);
            MPI_Win_flush(target, win);
            ++added;
        }
        if ((i + 3 * mt.rank) % 16 < 4) {
            compute();
        }
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);

    MPI_Win_lock(MPI_LOCK_SHARED, mt.rank, 0, win);
    memcpy(&mine[0], window.base, sizeof(mine[0]));
    mine[1] = added;
    MPI_Win_unlock(mt.rank, win);
    MPI_Allreduce(mine, all, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    MT_CHECK(all[0] == all[1], "the words hold %ld of %ld that were added", all[0], all[1]);
    mt_window_close(&window);
}

static void test_hammer(void)
{
    hammer("true");
}

static void test_hammer_locked(void)
{
    hammer("false");
}

/* Operations and widths other than 64-bit addition. */
static void test_other_ops(void)
{
    const struct {
        MPI_Op   op;
        unsigned before, operand, after;
    } cases[]          = {{MPI_BAND, 0xf0f0, 0x0ff0, 0x00f0}, {MPI_BOR, 0xf0f0, 0x0ff0, 0xfff0},
                          {MPI_BXOR, 0xf0f0, 0x0ff0, 0xff00}, {MPI_SUM, 70000, 5, 70005},
                          {MPI_MAX, 70000, 90000, 90000},     {MPI_REPLACE, 70000, 123, 123}};
    int         target = (mt.rank + 1) % mt.size;
    mt_window_t window = window_open(test_kind, MPI_INFO_NULL);
    unsigned    old, value;
    size_t      i;

    MPI_Win_lock_all(0, window.win);
    for (i = 0; i < MT_COUNT(cases); ++i) {
        MPI_Aint where = part(&window, target, mt.rank, i * sizeof(unsigned));

        MPI_Put(&cases[i].before, 1, MPI_UNSIGNED, target, where, 1, MPI_UNSIGNED, window.win);
        MPI_Win_flush(target, window.win);
        MPI_Get_accumulate(&cases[i].operand, 1, MPI_UNSIGNED, &old, 1, MPI_UNSIGNED, target, where,
                           1, MPI_UNSIGNED, cases[i].op, window.win);
        MPI_Win_flush(target, window.win);
        MPI_Get(&value, 1, MPI_UNSIGNED, target, where, 1, MPI_UNSIGNED, window.win);
        MPI_Win_flush(target, window.win);
        MT_CHECK(old == cases[i].before, "operation %zu fetched %u, expected %u", i, old,
                 cases[i].before);
        MT_CHECK(value == cases[i].after, "operation %zu left %u, expected %u", i, value,
                 cases[i].after);
    }
    MPI_Win_unlock_all(window.win);
    mt_window_close(&window);
}

/* Windows without memory, on all ranks, and then on every second one. */
static void test_empty(void)
{
    long     word   = 0, value, other;
    int      target = (mt.rank + 1) % mt.size, round;
    MPI_Aint size;
    MPI_Win  win;

    for (round = 0; round < 2; ++round) {
        size = (round == 1) && (mt.rank % 2 == 1) ? (MPI_Aint)sizeof(word) : 0;
        MPI_Win_create((size == 0) ? NULL : &word, size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        MPI_Win_fence(0, win);
        MPI_Put(&value, 0, MPI_LONG, target, 0, 0, MPI_LONG, win);
        MPI_Get(&value, 0, MPI_LONG, target, 0, 0, MPI_LONG, win);
        MPI_Win_fence(0, win);
        if ((round == 1) && (target % 2 == 1)) {
            value = 4711 + mt.rank;
            other = 0;
            MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
            MPI_Put(&value, 1, MPI_LONG, target, 0, 1, MPI_LONG, win);
            MPI_Win_flush(target, win);
            MPI_Get(&other, 1, MPI_LONG, target, 0, 1, MPI_LONG, win);
            MPI_Win_unlock(target, win);
            MT_CHECK(other == value, "put %ld, got %ld", value, other);
        }
        MPI_Win_free(&win);
    }
}

/* Strided data at both ends. */
static void test_typed(void)
{
    int          target = (mt.rank + 1) % mt.size, origin = (mt.rank + mt.size - 1) % mt.size, i;
    mt_window_t  window = window_open(MT_CREATED, MPI_INFO_NULL);
    MPI_Datatype from, to;
    int         *data = mt_alloc(3000 * sizeof(int)), value;

    MPI_Type_vector(1000, 1, 3, MPI_INT, &from);
    MPI_Type_vector(1000, 1, 2, MPI_INT, &to);
    MPI_Type_commit(&from);
    MPI_Type_commit(&to);
    for (i = 0; i < 3000; ++i) {
        data[i] = 3000 * mt.rank + i + 1;
    }
    MPI_Win_fence(0, window.win);
    MPI_Put(data, 1, from, target, part(&window, target, mt.rank, 0), 1, to, window.win);
    MPI_Win_fence(0, window.win);
    for (i = 0; i < 1999; ++i) {
        memcpy(&value, window.base + PART_BYTES * (size_t)origin + (size_t)i * sizeof(int),
               sizeof(int));
        MT_CHECK(value == ((i % 2) ? 0 : 3000 * origin + i / 2 * 3 + 1), "element %d is %d", i,
                 value);
    }
    MPI_Win_fence(0, window.win);
    MPI_Type_free(&from);
    MPI_Type_free(&to);
    free(data);
    mt_window_close(&window);
}

static void run_kind(const char *name, const char *kind_name, mt_window_kind_t kind, mt_func_t func)
{
    static char full_name[128];

    test_kind    = kind;
    full_name[0] = '\0';
    strncat(full_name, name, 60);
    strncat(full_name, ", ", 3);
    strncat(full_name, kind_name, 60);
    mt_run(full_name, 1, func);
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = {"allocated window", "created window", "dynamic window"};
    int                      kind, i;

    mt_start(&argc, &argv, MPI_THREAD_SINGLE, "one-sided", (mt_state_t){.iters = 10});

    for (kind = MT_ALLOCATED; kind <= MT_DYNAMIC; ++kind) {
        for (i = 0; i < NUM_SYNCS; ++i) {
            test_sync = &syncs[i];
            run_kind(syncs[i].name, kinds[kind], (mt_window_kind_t)kind, test_put_get);
        }
        run_kind("bursts", kinds[kind], (mt_window_kind_t)kind, test_bursts);
        run_kind("accumulate", kinds[kind], (mt_window_kind_t)kind, test_accumulate);
        run_kind("fetch_and_op", kinds[kind], (mt_window_kind_t)kind, test_fetch_and_op);
        run_kind("compare_and_swap", kinds[kind], (mt_window_kind_t)kind, test_compare_and_swap);
        run_kind("get_accumulate", kinds[kind], (mt_window_kind_t)kind, test_other_ops);
        if (kind != MT_DYNAMIC) {
            run_kind("all atomics on one word", kinds[kind], (mt_window_kind_t)kind, test_hammer);
            run_kind("all atomics on one word, behind a lock", kinds[kind], (mt_window_kind_t)kind,
                     test_hammer_locked);
        }
    }
    mt_run("puts, flush, message", 1, test_flush_then_message);
    mt_run("strided put", 1, test_typed);
    mt_run("windows without memory", 2, test_empty);

    return mt_finish();
}
