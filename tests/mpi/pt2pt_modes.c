/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Point-to-point messages in every mode and every size. Ranks work in pairs; the even one sends
 * first, then the other. Data, lengths and the bytes around each buffer are checked.
 */
#include "mpi_test.h"

#include <stdlib.h>

#define TAG       7
#define TOKEN_TAG 8

typedef struct {
    int      peer;
    uint64_t seq;
    mt_buf_t buf;
} transfer_t;

typedef void (*mode_func_t)(transfer_t *transfer);

static mode_func_t mode_send, mode_recv;

static uint64_t send_key(const transfer_t *transfer)
{
    return mt_key(mt.rank, transfer->peer, TAG, transfer->seq);
}

static uint64_t recv_key(const transfer_t *transfer)
{
    return mt_key(transfer->peer, mt.rank, TAG, transfer->seq);
}

static void token_send(int peer)
{
    MPI_Send(NULL, 0, MPI_BYTE, peer, TOKEN_TAG, MPI_COMM_WORLD);
}

static void token_recv(int peer)
{
    MPI_Recv(NULL, 0, MPI_BYTE, peer, TOKEN_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

#define TRANSFER_ARGS(_transfer)                                                           \
    (_transfer)->buf.data, (int)(_transfer)->buf.length, MPI_BYTE, (_transfer)->peer, TAG, \
        MPI_COMM_WORLD

/* --- senders ------------------------------------------------------------------------------- */

static void send_standard(transfer_t *transfer)
{
    MPI_Send(TRANSFER_ARGS(transfer));
}

static void send_synchronous(transfer_t *transfer)
{
    MPI_Ssend(TRANSFER_ARGS(transfer));
}

static void send_buffered(transfer_t *transfer)
{
    int   size    = (int)transfer->buf.length + MPI_BSEND_OVERHEAD;
    void *storage = mt_alloc((size_t)size);

    MPI_Buffer_attach(storage, size);
    MPI_Bsend(TRANSFER_ARGS(transfer));
    /* The data is the library's now. */
    data_fill(transfer->buf.data, transfer->buf.length, 0);
    MPI_Buffer_detach(&storage, &size);
    free(storage);
}

static void send_ready(transfer_t *transfer)
{
    token_recv(transfer->peer);
    MPI_Rsend(TRANSFER_ARGS(transfer));
}

static void send_isend(transfer_t *transfer)
{
    MPI_Request request;

    MPI_Isend(TRANSFER_ARGS(transfer), &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void send_isend_test(transfer_t *transfer)
{
    MPI_Request request;
    int         flag = 0;

    MPI_Isend(TRANSFER_ARGS(transfer), &request);
    while (!flag) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        mt_relax();
    }
}

/* A synchronous send must not complete before its receive has been posted. */
static void send_issend(transfer_t *transfer)
{
    MPI_Request request;
    int         i, flag = 0;

    MPI_Issend(TRANSFER_ARGS(transfer), &request);
    for (i = 0; (i < 20) && !flag; ++i) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        mt_relax();
    }
    MT_CHECK(!flag, "synchronous send of %zu bytes completed without a receive",
             transfer->buf.length);
    token_send(transfer->peer);
    if (!flag) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void send_irsend(transfer_t *transfer)
{
    MPI_Request request;

    token_recv(transfer->peer);
    MPI_Irsend(TRANSFER_ARGS(transfer), &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

#define PERSISTENT_ROUNDS 3

static void persistent_rounds(transfer_t *transfer, MPI_Request *request)
{
    int round;

    for (round = 0; round < PERSISTENT_ROUNDS; ++round) {
        data_fill(transfer->buf.data, transfer->buf.length, send_key(transfer) + (uint64_t)round);
        MPI_Start(request);
        MPI_Wait(request, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(request);
}

static void send_persistent(transfer_t *transfer)
{
    MPI_Request request;

    MPI_Send_init(TRANSFER_ARGS(transfer), &request);
    persistent_rounds(transfer, &request);
}

static void send_persistent_ssend(transfer_t *transfer)
{
    MPI_Request request;

    MPI_Ssend_init(TRANSFER_ARGS(transfer), &request);
    persistent_rounds(transfer, &request);
}

/* --- receivers ----------------------------------------------------------------------------- */

static void recv_blocking(transfer_t *transfer)
{
    MPI_Status status;

    MPI_Recv(TRANSFER_ARGS(transfer), &status);
    mt_check_status(&status, transfer->peer, TAG, transfer->buf.length);
    mt_buf_verify(&transfer->buf, recv_key(transfer), "message");
}

static void recv_after_token(transfer_t *transfer)
{
    token_recv(transfer->peer);
    recv_blocking(transfer);
}

static void recv_irecv(transfer_t *transfer)
{
    MPI_Request request;
    MPI_Status  status;
    int         flag = 0;

    MPI_Irecv(TRANSFER_ARGS(transfer), &request);
    while (!flag) {
        MPI_Test(&request, &flag, &status);
        mt_relax();
    }
    mt_check_status(&status, transfer->peer, TAG, transfer->buf.length);
    mt_buf_verify(&transfer->buf, recv_key(transfer), "message");
}

static void recv_posted(transfer_t *transfer)
{
    MPI_Request request;
    MPI_Status  status;

    MPI_Irecv(TRANSFER_ARGS(transfer), &request);
    token_send(transfer->peer);
    MPI_Wait(&request, &status);
    mt_check_status(&status, transfer->peer, TAG, transfer->buf.length);
    mt_buf_verify(&transfer->buf, recv_key(transfer), "message");
}

static void recv_persistent(transfer_t *transfer)
{
    MPI_Request request;
    MPI_Status  status;
    int         round;

    MPI_Recv_init(TRANSFER_ARGS(transfer), &request);
    for (round = 0; round < PERSISTENT_ROUNDS; ++round) {
        MPI_Start(&request);
        MPI_Wait(&request, &status);
        mt_check_status(&status, transfer->peer, TAG, transfer->buf.length);
        mt_buf_verify(&transfer->buf, recv_key(transfer) + (uint64_t)round, "persistent");
    }
    MPI_Request_free(&request);
}

/* --- both directions at once --------------------------------------------------------------- */

static void exchange_sendrecv(transfer_t *transfer)
{
    mt_buf_t   in = mt_buf_alloc(transfer->buf.length, (unsigned)(transfer->seq % 5));
    MPI_Status status;

    data_fill(transfer->buf.data, transfer->buf.length, send_key(transfer));
    MPI_Sendrecv(transfer->buf.data, (int)transfer->buf.length, MPI_BYTE, transfer->peer, TAG,
                 in.data, (int)in.length, MPI_BYTE, transfer->peer, TAG, MPI_COMM_WORLD, &status);
    mt_check_status(&status, transfer->peer, TAG, in.length);
    mt_buf_verify(&in, recv_key(transfer), "sendrecv");
    mt_buf_free(&in);
}

static void exchange_replace(transfer_t *transfer)
{
    MPI_Status status;

    data_fill(transfer->buf.data, transfer->buf.length, send_key(transfer));
    MPI_Sendrecv_replace(transfer->buf.data, (int)transfer->buf.length, MPI_BYTE, transfer->peer,
                         TAG, transfer->peer, TAG, MPI_COMM_WORLD, &status);
    mt_check_status(&status, transfer->peer, TAG, transfer->buf.length);
    mt_buf_verify(&transfer->buf, recv_key(transfer), "sendrecv_replace");
}

static void exchange_persistent_startall(transfer_t *transfer)
{
    mt_buf_t    in = mt_buf_alloc(transfer->buf.length, 3);
    MPI_Request requests[2];
    int         round;

    MPI_Recv_init(in.data, (int)in.length, MPI_BYTE, transfer->peer, TAG, MPI_COMM_WORLD,
                  &requests[0]);
    MPI_Send_init(TRANSFER_ARGS(transfer), &requests[1]);
    for (round = 0; round < PERSISTENT_ROUNDS; ++round) {
        data_fill(transfer->buf.data, transfer->buf.length, send_key(transfer) + (uint64_t)round);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        mt_buf_verify(&in, recv_key(transfer) + (uint64_t)round, "startall");
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    mt_buf_free(&in);
}

/* --- driver -------------------------------------------------------------------------------- */

static transfer_t transfer_begin(int peer, size_t size, uint64_t seq)
{
    transfer_t transfer = {.peer = peer, .seq = seq, .buf = mt_buf_alloc(size, seq % 8)};

    return transfer;
}

static void half_send(int peer, size_t size, uint64_t seq)
{
    transfer_t transfer = transfer_begin(peer, size, seq);

    data_fill(transfer.buf.data, size, send_key(&transfer));
    mode_send(&transfer);
    mt_buf_free(&transfer.buf);
}

static void half_recv(int peer, size_t size, uint64_t seq)
{
    transfer_t transfer = transfer_begin(peer, size, seq);

    data_fill(transfer.buf.data, size, 1);
    mode_recv(&transfer);
    mt_buf_free(&transfer.buf);
}

static void test_mode(void)
{
    int      peer = mt_pair_peer();
    uint64_t seq  = 0;
    int      i, iter, iters;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    for (i = 0; i < mt.num_sizes; ++i) {
        iters = (mt.sizes[i] > (256 << 10)) ? 1 : mt.iters;
        for (iter = 0; iter < iters; ++iter, ++seq) {
            if (mt.rank % 2 == 0) {
                half_send(peer, mt.sizes[i], seq);
                half_recv(peer, mt.sizes[i], seq);
            } else {
                half_recv(peer, mt.sizes[i], seq);
                half_send(peer, mt.sizes[i], seq);
            }
        }
    }
}

static void test_exchange(void)
{
    int        peer = mt_pair_peer();
    uint64_t   seq  = 0;
    transfer_t transfer;
    int        i;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    for (i = 0; i < mt.num_sizes; ++i, ++seq) {
        transfer = transfer_begin(peer, mt.sizes[i], seq);
        mode_send(&transfer);
        mt_buf_free(&transfer.buf);
    }
}

static void run_mode(const char *name, mode_func_t send, mode_func_t recv)
{
    mode_send = send;
    mode_recv = recv;
    mt_run(name, 2, test_mode);
}

static void run_exchange(const char *name, mode_func_t exchange)
{
    mode_send = exchange;
    mt_run(name, 2, test_exchange);
}

int main(int argc, char **argv)
{
    mt_start(&argc, &argv, MPI_THREAD_SINGLE, "point-to-point modes",
             (mt_state_t){.max_size = 4 << 20, .iters = 4});

    run_mode("MPI_Send, MPI_Recv", send_standard, recv_blocking);
    run_mode("MPI_Ssend, MPI_Recv", send_synchronous, recv_blocking);
    run_mode("MPI_Bsend, MPI_Recv", send_buffered, recv_blocking);
    run_mode("MPI_Rsend, MPI_Irecv", send_ready, recv_posted);
    run_mode("MPI_Isend, MPI_Recv", send_isend, recv_blocking);
    run_mode("MPI_Isend and MPI_Irecv with MPI_Test", send_isend_test, recv_irecv);
    run_mode("MPI_Issend completes only when matched", send_issend, recv_after_token);
    run_mode("MPI_Irsend, MPI_Irecv", send_irsend, recv_posted);
    run_mode("persistent send and receive", send_persistent, recv_persistent);
    run_mode("persistent synchronous send", send_persistent_ssend, recv_persistent);
    run_exchange("MPI_Sendrecv", exchange_sendrecv);
    run_exchange("MPI_Sendrecv_replace", exchange_replace);
    run_exchange("persistent, both directions with MPI_Startall", exchange_persistent_startall);

    return mt_finish();
}
