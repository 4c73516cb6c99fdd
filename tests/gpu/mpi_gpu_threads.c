/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_THREAD_MULTIPLE with buffers in GPU memory: several threads of each rank exchange messages of
 * GPU and host memory, blocking and in windows, and allocate and free that memory meanwhile.
 */
#include "mpi_buffer.h"

#include <pthread.h>
#include <stdlib.h>

#define NUM_THREADS 4
#define WINDOW      6

typedef struct {
    int      index;
    MPI_Comm comm;
    int      tag;
} thread_t;

static const size_t thread_sizes[] = {0, 8, 57, 400, 8193, 30000, 300000};

static size_t size_of(uint64_t seq)
{
    return thread_sizes[seq % MT_COUNT(thread_sizes)];
}

/* Both ends are of a GPU, one of them, or none. */
static void pair_open(buffer_t *out, buffer_t *in, const thread_t *thread, int peer, uint64_t seq)
{
    buffer_open(out, seq % 5 == 0 ? HEAP : DEVICE_PLAIN, size_of(seq));
    buffer_open(in, seq % 3 == 0 ? HEAP : DEVICE_PLAIN, size_of(seq));
    buffer_fill(out, mt_key(mt.rank, peer, thread->index, seq));
    buffer_clear(in);
}

static void pair_close(buffer_t *out, buffer_t *in, const thread_t *thread, int peer, uint64_t seq)
{
    buffer_check(in, in->size, mt_key(peer, mt.rank, thread->index, seq), "thread's message");
    buffer_close(out);
    buffer_close(in);
}

static void exchange_blocking(const thread_t *thread, int peer, uint64_t seq)
{
    buffer_t   out, in;
    MPI_Status status;

    pair_open(&out, &in, thread, peer, seq);
    MPI_Sendrecv(out.data, (int)out.size, MPI_BYTE, peer, thread->tag, in.data, (int)in.size,
                 MPI_BYTE, peer, thread->tag, thread->comm, &status);
    mt_check_status(&status, peer, thread->tag, in.size);
    pair_close(&out, &in, thread, peer, seq);
}

static void exchange_replaced(const thread_t *thread, int peer, uint64_t seq)
{
    buffer_t   buffer;
    MPI_Status status;

    buffer_open(&buffer, (seq + (unsigned)mt.rank) % 3 == 0 ? HEAP : DEVICE_PLAIN, size_of(seq));
    buffer_fill(&buffer, mt_key(mt.rank, peer, thread->index, seq));
    MPI_Sendrecv_replace(buffer.data, (int)buffer.size, MPI_BYTE, peer, thread->tag, peer,
                         thread->tag, thread->comm, &status);
    mt_check_status(&status, peer, thread->tag, buffer.size);
    buffer_check(&buffer, buffer.size, mt_key(peer, mt.rank, thread->index, seq),
                 "thread's replaced buffer");
    buffer_close(&buffer);
}

static void exchange_window(const thread_t *thread, int peer, uint64_t first)
{
    MPI_Request requests[2 * WINDOW];
    buffer_t    out[WINDOW], in[WINDOW];

    for (unsigned i = 0; i < WINDOW; ++i) {
        pair_open(&out[i], &in[i], thread, peer, first + i);
        MPI_Irecv(in[i].data, (int)in[i].size, MPI_BYTE, peer, thread->tag, thread->comm,
                  &requests[i]);
        MPI_Isend(out[i].data, (int)out[i].size, MPI_BYTE, peer, thread->tag, thread->comm,
                  &requests[WINDOW + i]);
    }
    MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
    for (unsigned i = 0; i < WINDOW; ++i) {
        pair_close(&out[i], &in[i], thread, peer, first + i);
    }
}

static void *thread_main(void *arg)
{
    const thread_t *thread = arg;
    int             peer   = mt_pair_peer();

    for (uint64_t seq = 0; seq < 20u * (unsigned)mt.iters && peer != MPI_PROC_NULL; ++seq) {
        if (seq % 3 == 2) {
            exchange_window(thread, peer, seq);
        } else if (seq % 4 == 1) {
            exchange_replaced(thread, peer, seq);
        } else {
            exchange_blocking(thread, peer, seq);
        }
    }
    return NULL;
}

/* With a communicator each, or all with the same and tags of their own. */
static void run_threads(int is_one_comm)
{
    pthread_t ids[NUM_THREADS];
    thread_t  threads[NUM_THREADS];

    for (int i = 0; i < NUM_THREADS; ++i) {
        threads[i] = (thread_t){.index = i, .tag = 100 + i, .comm = MPI_COMM_WORLD};
        if (!is_one_comm) {
            MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].comm);
        }
    }
    for (int i = 0; i < NUM_THREADS; ++i) {
        if (pthread_create(&ids[i], NULL, thread_main, &threads[i]) != 0) {
            mt_fail(__FILE__, __LINE__, "can't start a thread");
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    for (int i = 0; i < NUM_THREADS; ++i) {
        pthread_join(ids[i], NULL);
        if (!is_one_comm) {
            MPI_Comm_free(&threads[i].comm);
        }
    }
}

static void test_own_comm(void)
{
    run_threads(0);
}

static void test_own_tag(void)
{
    run_threads(1);
}

int main(int argc, char **argv)
{
    int provided;

    buffer_runtime();
    mt_start(&argc, &argv, MPI_THREAD_MULTIPLE, "threads with GPU buffers",
             (mt_state_t){.iters = 3});
    MPI_Query_thread(&provided);
    if (!buffer_devices(gpu->open())) {
        return mt_finish();
    }
    if (provided < MPI_THREAD_MULTIPLE) {
        mt_skip("threads", "MPI_THREAD_MULTIPLE is not provided");
        return mt_finish();
    }
    mt_run("threads with their own communicators", 2, test_own_comm);
    mt_run("threads with their own tags", 2, test_own_tag);
    return mt_finish();
}
