/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_THREAD_MULTIPLE: several threads of each rank send and receive at the same time, each on a
 * communicator of its own or all on one with their own tags, with every mix of sizes.
 */
#include "mpi_test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define NUM_THREADS 4
#define WINDOW      8

typedef struct {
    int      index;
    MPI_Comm comm;
    int      tag;
} thread_t;

typedef void *(*thread_func_t)(void *arg);

static const size_t thread_sizes[] = {0, 8, 57, 400, 2048, 8193, 30000, 100000, 300000};
#define NUM_THREAD_SIZES MT_COUNT(thread_sizes)

static void exchange_blocking(thread_t *thread, int peer, uint64_t seq)
{
    size_t     size = thread_sizes[seq % NUM_THREAD_SIZES];
    mt_buf_t   in = mt_buf_alloc(size, 1), out = mt_buf_alloc(size, 2);
    MPI_Status status;

    data_fill(out.data, size, mt_key(mt.rank, peer, thread->index, seq));
    MPI_Sendrecv(out.data, (int)size, MPI_BYTE, peer, thread->tag, in.data, (int)size, MPI_BYTE,
                 peer, thread->tag, thread->comm, &status);
    mt_check_status(&status, peer, thread->tag, size);
    mt_buf_verify(&in, mt_key(peer, mt.rank, thread->index, seq), "thread's message");
    mt_buf_free(&in);
    mt_buf_free(&out);
}

static void exchange_window(thread_t *thread, int peer, uint64_t first)
{
    MPI_Request requests[2 * WINDOW];
    mt_buf_t    in[WINDOW], out[WINDOW];
    size_t      size;
    int         i;

    for (i = 0; i < WINDOW; ++i) {
        size   = thread_sizes[(first + (uint64_t)i) % NUM_THREAD_SIZES];
        in[i]  = mt_buf_alloc(size, (unsigned)i);
        out[i] = mt_buf_alloc(size, (unsigned)i);
        data_fill(out[i].data, size, mt_key(mt.rank, peer, thread->index, first + (uint64_t)i));
        MPI_Irecv(in[i].data, (int)size, MPI_BYTE, peer, thread->tag, thread->comm, &requests[i]);
        MPI_Isend(out[i].data, (int)size, MPI_BYTE, peer, thread->tag, thread->comm,
                  &requests[WINDOW + i]);
    }
    MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
    for (i = 0; i < WINDOW; ++i) {
        mt_buf_verify(&in[i], mt_key(peer, mt.rank, thread->index, first + (uint64_t)i),
                      "thread's window");
        mt_buf_free(&in[i]);
        mt_buf_free(&out[i]);
    }
}

static void *thread_exchange(void *arg)
{
    thread_t *thread = arg;
    int       peer   = mt_pair_peer();
    uint64_t  seq;

    if (peer == MPI_PROC_NULL) {
        return NULL;
    }
    for (seq = 0; seq < 20u * (unsigned)mt.iters; ++seq) {
        if (seq % 3 == 2) {
            exchange_window(thread, peer, seq);
        } else {
            exchange_blocking(thread, peer, seq);
        }
    }
    return NULL;
}

static void *thread_collectives(void *arg)
{
    thread_t *thread = arg;
    long      in, sum, expected;
    int       i, root;

    for (i = 0; i < 20 * mt.iters; ++i) {
        in       = (long)mt.rank * (i + 1) + thread->index;
        expected = (long)mt.size * (mt.size - 1) / 2 * (i + 1) + (long)mt.size * thread->index;
        MPI_Allreduce(&in, &sum, 1, MPI_LONG, MPI_SUM, thread->comm);
        MT_CHECK(sum == expected, "thread %d, round %d: sum %ld, expected %ld", thread->index, i,
                 sum, expected);
        root = i % mt.size;
        sum  = (mt.rank == root) ? i + thread->index : -1;
        MPI_Bcast(&sum, 1, MPI_LONG, root, thread->comm);
        MT_CHECK(sum == i + thread->index, "thread %d, round %d: bcast %ld", thread->index, i, sum);
    }
    return NULL;
}

/* Half of the threads send to the next rank, the others receive from anybody with their tag. */
static void *thread_roles(void *arg)
{
    thread_t *thread      = arg;
    int       partner_tag = 1000 + thread->index / 2, i, count = 50 * mt.iters;
    int       next = (mt.rank + 1) % mt.size, previous = (mt.rank + mt.size - 1) % mt.size;
    size_t    size;
    mt_buf_t  buf;

    for (i = 0; i < count; ++i) {
        size = thread_sizes[(size_t)i % NUM_THREAD_SIZES];
        buf  = mt_buf_alloc(size, 0);
        if (thread->index % 2) {
            data_fill(buf.data, size, mt_key(mt.rank, next, partner_tag, (uint64_t)i));
            MPI_Send(buf.data, (int)size, MPI_BYTE, next, partner_tag, MPI_COMM_WORLD);
        } else {
            MPI_Recv(buf.data, (int)size, MPI_BYTE, MPI_ANY_SOURCE, partner_tag, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            mt_buf_verify(&buf, mt_key(previous, mt.rank, partner_tag, (uint64_t)i), "role");
        }
        mt_buf_free(&buf);
    }
    return NULL;
}

/* One word per thread and origin on the next rank, passive target. */
static void *thread_rma(void *arg)
{
    thread_t *thread = arg;
    int       target = (mt.rank + 1) % mt.size, i;
    uint64_t  value, got, *base;
    MPI_Win   win;

    MPI_Win_allocate(4096, 1, MPI_INFO_NULL, thread->comm, &base, &win);
    memset(base, 0, 4096);
    MPI_Barrier(thread->comm);
    MPI_Win_lock_all(0, win);
    for (i = 0; i < 20 * mt.iters; ++i) {
        value = mt_key(mt.rank, target, thread->index, (uint64_t)i);
        got   = 0;
        MPI_Put(&value, 8, MPI_BYTE, target, 8 * (MPI_Aint)mt.rank, 8, MPI_BYTE, win);
        MPI_Win_flush(target, win);
        MPI_Get(&got, 8, MPI_BYTE, target, 8 * (MPI_Aint)mt.rank, 8, MPI_BYTE, win);
        MPI_Win_flush(target, win);
        MT_CHECK(got == value, "thread %d, round %d: get after put", thread->index, i);
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(thread->comm);
    MPI_Win_free(&win);
    return NULL;
}

static void run_threads(thread_func_t func, bool one_comm)
{
    pthread_t ids[NUM_THREADS];
    thread_t  threads[NUM_THREADS];
    int       i;

    for (i = 0; i < NUM_THREADS; ++i) {
        threads[i].index = i;
        threads[i].tag   = one_comm ? 100 + i : 100;
        threads[i].comm  = MPI_COMM_WORLD;
        if (!one_comm) {
            MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].comm);
        }
    }
    for (i = 0; i < NUM_THREADS; ++i) {
        if (pthread_create(&ids[i], NULL, func, &threads[i]) != 0) {
            MT_CHECK(false, "can't start a thread");
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    for (i = 0; i < NUM_THREADS; ++i) {
        pthread_join(ids[i], NULL);
        if (!one_comm) {
            MPI_Comm_free(&threads[i].comm);
        }
    }
}

static void test_own_comm(void)
{
    run_threads(thread_exchange, false);
}

static void test_own_tag(void)
{
    run_threads(thread_exchange, true);
}

static void test_roles(void)
{
    run_threads(thread_roles, true);
}

static void test_collectives(void)
{
    run_threads(thread_collectives, false);
}

/* Open MPI 4.1 makes the endpoint to a rank for the first window that needs it, without a lock: two
 * threads would make two, and use the keys that came with the one on the other. */
static void test_rma(void)
{
    MPI_Win win;
    void   *base;

    MPI_Win_allocate(8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    run_threads(thread_rma, false);
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    int provided;

    mt_start(&argc, &argv, MPI_THREAD_MULTIPLE, "threads", (mt_state_t){.iters = 5});

    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_MULTIPLE) {
        mt_skip("threads", "MPI_THREAD_MULTIPLE is not provided");
        return mt_finish();
    }
    mt_run("threads with their own communicators", 2, test_own_comm);
    mt_run("threads with their own tags", 2, test_own_tag);
    mt_run("threads that only send or only receive", 1, test_roles);
    mt_run("collectives in threads", 1, test_collectives);
    if (OMPI_MAJOR_VERSION >= 5) {
        mt_skip("windows in threads",
                "Open MPI 5 uses a single-threaded worker of UCX in all of them");
    } else {
        mt_run("windows in threads", 1, test_rma);
    }

    return mt_finish();
}
