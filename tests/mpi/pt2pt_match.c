/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matching: order, wildcards, probing, unexpected messages, cancelled receives, truncation,
 * messages to oneself and to nobody.
 */
#include "mpi_test.h"

#include <stdlib.h>
#include <string.h>

#define TAG       11
#define TAG_OTHER 12

static const size_t match_sizes[] = {0,    1,    8,    112,   113,   300,    4096,
                                     8432, 8433, 8440, 20000, 70000, 300000, 1100000};
#define NUM_MATCH_SIZES ((int)MT_COUNT(match_sizes))

static size_t match_size(uint64_t seq)
{
    return match_sizes[seq % NUM_MATCH_SIZES];
}

/* Messages stay in flight until send_all_end(): many at a time, and sizes change all the time. */
typedef struct {
    int          count;
    mt_buf_t    *bufs;
    MPI_Request *requests;
} sends_t;

static void send_all_begin(sends_t *sends, int count, int dst, int tag, MPI_Comm comm)
{
    int i;

    sends->count    = count;
    sends->bufs     = mt_alloc((size_t)count * sizeof(*sends->bufs));
    sends->requests = mt_alloc((size_t)count * sizeof(*sends->requests));
    for (i = 0; i < count; ++i) {
        sends->bufs[i] = mt_buf_alloc(match_size((uint64_t)i), (unsigned)i % 9);
        data_fill(sends->bufs[i].data, sends->bufs[i].length,
                  mt_key(mt.rank, dst, tag, (uint64_t)i));
        MPI_Isend(sends->bufs[i].data, (int)sends->bufs[i].length, MPI_BYTE, dst, tag, comm,
                  &sends->requests[i]);
    }
}

static void send_all_end(sends_t *sends)
{
    int i;

    MPI_Waitall(sends->count, sends->requests, MPI_STATUSES_IGNORE);
    for (i = 0; i < sends->count; ++i) {
        mt_buf_free(&sends->bufs[i]);
    }
    free(sends->bufs);
    free(sends->requests);
}

static void verify_message(mt_buf_t *buf, MPI_Status *status, uint64_t seq, const char *what)
{
    int count;

    MPI_Get_count(status, MPI_BYTE, &count);
    MT_CHECK((size_t)count == match_size(seq), "%s %d: length %d, expected %zu: out of order?",
             what, (int)seq, count, match_size(seq));
    buf->length = (size_t)count;
    mt_verify(buf->data, buf->length, mt_key(status->MPI_SOURCE, mt.rank, status->MPI_TAG, seq),
              what);
}

static void recv_one(int source, int tag, uint64_t seq, const char *what)
{
    mt_buf_t   buf = mt_buf_alloc(match_sizes[NUM_MATCH_SIZES - 1], 0);
    MPI_Status status;

    MPI_Recv(buf.data, (int)buf.length, MPI_BYTE, source, tag, MPI_COMM_WORLD, &status);
    verify_message(&buf, &status, seq, what);
    mt_buf_free(&buf);
}

/* Messages of one sender and tag arrive in order whatever protocol each takes. */
static void test_order(void)
{
    int     peer = mt_pair_peer(), count = 20 * mt.iters, i;
    sends_t sends;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    send_all_begin(&sends, count, peer, TAG, MPI_COMM_WORLD);
    for (i = 0; i < count; ++i) {
        recv_one(peer, TAG, (uint64_t)i, "in order");
    }
    send_all_end(&sends);
}

/* All messages are there before any receive; the second tag is taken first. */
static void test_unexpected(void)
{
    int     peer = mt_pair_peer(), count = 10 * mt.iters, i;
    sends_t first, second;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    send_all_begin(&first, count, peer, TAG, MPI_COMM_WORLD);
    send_all_begin(&second, count, peer, TAG_OTHER, MPI_COMM_WORLD);
    MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 99, NULL, 0, MPI_BYTE, peer, 99, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (i = 0; i < count; ++i) {
        recv_one(peer, TAG_OTHER, (uint64_t)i, "second tag");
    }
    for (i = 0; i < count; ++i) {
        recv_one(peer, TAG, (uint64_t)i, "first tag");
    }
    send_all_end(&first);
    send_all_end(&second);
}

/* Rank 0 receives from anybody; each sender's messages stay in order. */
static void wildcard_root(int count, bool any_tag)
{
    uint64_t  *next = mt_alloc((size_t)mt.size * sizeof(*next));
    mt_buf_t   buf  = mt_buf_alloc(match_sizes[NUM_MATCH_SIZES - 1], 1);
    MPI_Status status;
    int        i;

    memset(next, 0, (size_t)mt.size * sizeof(*next));
    for (i = 0; i < count * (mt.size - 1); ++i) {
        MPI_Recv(buf.data, (int)match_sizes[NUM_MATCH_SIZES - 1], MPI_BYTE, MPI_ANY_SOURCE,
                 any_tag ? MPI_ANY_TAG : TAG, MPI_COMM_WORLD, &status);
        MT_CHECK((status.MPI_SOURCE > 0) && (status.MPI_SOURCE < mt.size), "source %d",
                 status.MPI_SOURCE);
        verify_message(&buf, &status, next[status.MPI_SOURCE]++, "wildcard");
    }
    mt_buf_free(&buf);
    free(next);
}

static void wildcard(bool any_tag)
{
    int     count = 10 * mt.iters;
    sends_t sends;

    if (mt.rank == 0) {
        wildcard_root(count, any_tag);
        return;
    }
    send_all_begin(&sends, count, 0, any_tag ? TAG + mt.rank : TAG, MPI_COMM_WORLD);
    send_all_end(&sends);
}

static void test_any_source(void)
{
    wildcard(false);
}

static void test_any_source_any_tag(void)
{
    wildcard(true);
    MPI_Barrier(MPI_COMM_WORLD);
}

typedef enum { PROBE_BLOCKING, PROBE_NONBLOCKING, PROBE_MATCHED, PROBE_MATCHED_NB } probe_t;

/* Find the next message by probing and receive it into a buffer of just that size. */
static void probe_and_recv(int peer, probe_t how, uint64_t seq)
{
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status  status;
    mt_buf_t    buf;
    int         count, flag = 0;

    switch (how) {
    case PROBE_BLOCKING:
        MPI_Probe(peer, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        break;
    case PROBE_NONBLOCKING:
        while (!flag) {
            MPI_Iprobe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &flag, &status);
        }
        break;
    case PROBE_MATCHED:
        MPI_Mprobe(peer, TAG, MPI_COMM_WORLD, &message, &status);
        break;
    case PROBE_MATCHED_NB:
        while (!flag) {
            MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, &status);
        }
        break;
    }

    MPI_Get_count(&status, MPI_BYTE, &count);
    MT_CHECK(status.MPI_SOURCE == peer, "probe found source %d", status.MPI_SOURCE);
    buf = mt_buf_alloc((size_t)count, (unsigned)seq % 7);
    if (message == MPI_MESSAGE_NULL) {
        MPI_Recv(buf.data, count, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
                 &status);
    } else if (seq % 2) {
        MPI_Mrecv(buf.data, count, MPI_BYTE, &message, &status);
    } else {
        MPI_Request request;

        MPI_Imrecv(buf.data, count, MPI_BYTE, &message, &request);
        MPI_Wait(&request, &status);
    }
    MT_CHECK((size_t)count == match_size(seq), "probe %d: length %d, expected %zu", (int)seq, count,
             match_size(seq));
    mt_buf_verify(&buf, mt_key(peer, mt.rank, TAG, seq), "probed message");
    mt_buf_free(&buf);
}

static void test_probe(void)
{
    int     peer = mt_pair_peer(), count = 5 * mt.iters, i, how;
    sends_t sends;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    for (how = PROBE_BLOCKING; how <= PROBE_MATCHED_NB; ++how) {
        send_all_begin(&sends, count, peer, TAG, MPI_COMM_WORLD);
        for (i = 0; i < count; ++i) {
            probe_and_recv(peer, (probe_t)how, (uint64_t)i);
        }
        send_all_end(&sends);
        MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 99, NULL, 0, MPI_BYTE, peer, 99, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
}

/* A message taken by a matched probe is out of reach of a later receive. */
static void test_mprobe_reserves(void)
{
    int         peer = mt_pair_peer();
    MPI_Message message;
    MPI_Status  status;
    sends_t     sends;
    mt_buf_t    buf;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    send_all_begin(&sends, NUM_MATCH_SIZES, peer, TAG, MPI_COMM_WORLD);
    MPI_Mprobe(peer, TAG, MPI_COMM_WORLD, &message, &status);
    for (int i = 1; i < NUM_MATCH_SIZES; ++i) {
        recv_one(peer, TAG, (uint64_t)i, "behind a matched probe");
    }
    buf = mt_buf_alloc(match_size(0), 0);
    MPI_Mrecv(buf.data, (int)buf.length, MPI_BYTE, &message, &status);
    mt_buf_verify(&buf, mt_key(peer, mt.rank, TAG, 0), "matched probe");
    mt_buf_free(&buf);
    send_all_end(&sends);
}

static void test_cancel(void)
{
    int         peer = mt_pair_peer(), flag, i;
    MPI_Request request;
    MPI_Status  status;
    sends_t     sends;
    char        byte;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    for (i = 0; i < mt.iters; ++i) {
        MPI_Irecv(&byte, 1, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &flag);
        MT_CHECK(flag, "a receive without a message was not cancelled");
    }
    MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 99, NULL, 0, MPI_BYTE, peer, 99, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    /* The cancelled receives must not take these. */
    send_all_begin(&sends, NUM_MATCH_SIZES, peer, TAG, MPI_COMM_WORLD);
    for (i = 0; i < NUM_MATCH_SIZES; ++i) {
        recv_one(peer, TAG, (uint64_t)i, "after cancel");
    }
    send_all_end(&sends);
}

/* A message longer than the buffer: an error at the receiver, nothing written behind the buffer,
 * and the next message is intact. */
static void test_truncation(void)
{
    int        peer = mt_pair_peer(), i, ret, error_class;
    MPI_Status status;
    sends_t    sends;
    mt_buf_t   buf;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    send_all_begin(&sends, NUM_MATCH_SIZES, peer, TAG, MPI_COMM_WORLD);
    for (i = 0; i < NUM_MATCH_SIZES; ++i) {
        size_t size = match_size((uint64_t)i);

        if ((i == 0) || (i % 2)) {
            recv_one(peer, TAG, (uint64_t)i, "among truncated messages");
            continue;
        }
        buf = mt_buf_alloc(size / 2, 0);
        data_fill(buf.data, buf.length, 1);
        ret = MPI_Recv(buf.data, (int)buf.length, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &status);
        MPI_Error_class(ret, &error_class);
        MT_CHECK(error_class == MPI_ERR_TRUNCATE, "%zu bytes into %zu: error class %d", size,
                 buf.length, error_class);
        /* What the buffer has then is not defined, but its surroundings are. */
        data_fill(buf.data, buf.length, 2);
        mt_buf_verify(&buf, 2, "truncated");
        mt_buf_free(&buf);
    }
    send_all_end(&sends);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void test_self(void)
{
    sends_t sends;
    int     i, round;

    for (round = 0; round < mt.iters; ++round) {
        send_all_begin(&sends, NUM_MATCH_SIZES, mt.rank, TAG, MPI_COMM_WORLD);
        for (i = 0; i < NUM_MATCH_SIZES; ++i) {
            recv_one((round % 2) ? MPI_ANY_SOURCE : mt.rank, TAG, (uint64_t)i, "to oneself");
        }
        send_all_end(&sends);
    }
}

static void test_proc_null(void)
{
    MPI_Status status;
    char       byte = 5;

    MPI_Send(&byte, 1, MPI_BYTE, MPI_PROC_NULL, TAG, MPI_COMM_WORLD);
    MPI_Recv(&byte, 1, MPI_BYTE, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    mt_check_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    MT_CHECK(byte == 5, "a receive from MPI_PROC_NULL wrote");
}

int main(int argc, char **argv)
{
    mt_start(&argc, &argv, MPI_THREAD_SINGLE, "matching", (mt_state_t){.iters = 10});

    mt_run("order of messages of mixed sizes", 2, test_order);
    mt_run("unexpected messages, second tag first", 2, test_unexpected);
    mt_run("MPI_ANY_SOURCE", 2, test_any_source);
    mt_run("MPI_ANY_SOURCE and MPI_ANY_TAG", 2, test_any_source_any_tag);
    mt_run("MPI_Probe, Iprobe, Mprobe, Improbe", 2, test_probe);
    mt_run("a matched probe reserves its message", 2, test_mprobe_reserves);
    mt_run("MPI_Cancel of receives", 2, test_cancel);
    mt_run("truncated messages", 2, test_truncation);
    mt_run("messages to oneself", 1, test_self);
    mt_run("MPI_PROC_NULL", 1, test_proc_null);

    return mt_finish();
}
