/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More messages than any ring or credit holds: small ones outstanding by the thousand, floods in
 * both directions, floods that nobody receives for a while, everybody to everybody, and large
 * ones among them. Every byte is checked.
 */
#include "mpi_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG    21
#define TAG_GO 20
#define BURST  64

/* count messages of size bytes each in one block, and their requests. */
typedef struct {
    int            count;
    size_t         size;
    unsigned char *data;
    MPI_Request   *requests;
} flood_t;

static flood_t flood_alloc(int count, size_t size)
{
    flood_t flood = {.count = count, .size = size};

    flood.data     = mt_alloc((size_t)count * size);
    flood.requests = mt_alloc((size_t)count * sizeof(*flood.requests));
    return flood;
}

static void flood_free(flood_t *flood)
{
    free(flood->data);
    free(flood->requests);
}

static void flood_send(flood_t *flood, int dst, int tag)
{
    int i;

    for (i = 0; i < flood->count; ++i) {
        unsigned char *data = flood->data + (size_t)i * flood->size;

        data_fill(data, flood->size, mt_key(mt.rank, dst, tag, (uint64_t)i));
        MPI_Isend(data, (int)flood->size, MPI_BYTE, dst, tag, MPI_COMM_WORLD, &flood->requests[i]);
    }
}

static void flood_recv(flood_t *flood, int src, int tag)
{
    int i;

    for (i = 0; i < flood->count; ++i) {
        MPI_Irecv(flood->data + (size_t)i * flood->size, (int)flood->size, MPI_BYTE, src, tag,
                  MPI_COMM_WORLD, &flood->requests[i]);
    }
}

static void flood_wait(flood_t *flood)
{
    MPI_Waitall(flood->count, flood->requests, MPI_STATUSES_IGNORE);
}

static void flood_verify(flood_t *flood, int src, int tag)
{
    int i;

    for (i = 0; i < flood->count; ++i) {
        if (!mt_verify(flood->data + (size_t)i * flood->size, flood->size,
                       mt_key(src, mt.rank, tag, (uint64_t)i), "flood")) {
            return;
        }
    }
}

static void go_send(int peer)
{
    MPI_Send(NULL, 0, MPI_BYTE, peer, TAG_GO, MPI_COMM_WORLD);
}

static void go_recv(int peer)
{
    MPI_Recv(NULL, 0, MPI_BYTE, peer, TAG_GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static size_t flood_size;

/* One direction; the receives are posted before the first message is sent. */
static void test_oneway_posted(void)
{
    int     peer = mt_pair_peer(), count = 200 * mt.iters;
    flood_t flood;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    flood = flood_alloc(count, flood_size);
    if (mt.rank % 2) {
        flood_recv(&flood, peer, TAG);
        go_send(peer);
        flood_wait(&flood);
        flood_verify(&flood, peer, TAG);
    } else {
        go_recv(peer);
        flood_send(&flood, peer, TAG);
        flood_wait(&flood);
    }
    flood_free(&flood);
}

/* One direction; all messages wait unexpected, or for credits, until the receiver looks. */
static void test_oneway_unexpected(void)
{
    int     peer = mt_pair_peer(), count = 200 * mt.iters;
    flood_t flood;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    flood = flood_alloc(count, flood_size);
    if (mt.rank % 2) {
        go_recv(peer);
        flood_recv(&flood, peer, TAG);
        flood_wait(&flood);
        flood_verify(&flood, peer, TAG);
    } else {
        flood_send(&flood, peer, TAG);
        go_send(peer); /* behind the flood */
        flood_wait(&flood);
    }
    flood_free(&flood);
}

static void test_bidirectional(void)
{
    int     peer = mt_pair_peer(), count = 200 * mt.iters;
    flood_t in, out;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    in  = flood_alloc(count, flood_size);
    out = flood_alloc(count, flood_size);
    flood_send(&out, peer, TAG);
    flood_recv(&in, peer, TAG);
    flood_wait(&out);
    flood_wait(&in);
    flood_verify(&in, peer, TAG);
    flood_free(&in);
    flood_free(&out);
}

/*
 * Messages for rendezvous, all outstanding at once: their transfers share doorbells and markers.
 * The receives are posted first or last, in turns, so that either side may be the one that is met.
 */
static void test_burst(void)
{
    int     peer = mt_pair_peer(), round;
    flood_t in, out;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    in  = flood_alloc(BURST, flood_size);
    out = flood_alloc(BURST, flood_size);
    for (round = 0; round < mt.iters; ++round) {
        if ((mt.rank + round / 2) % 2) {
            flood_recv(&in, peer, TAG + round);
            flood_send(&out, peer, TAG + round);
        } else {
            flood_send(&out, peer, TAG + round);
            flood_recv(&in, peer, TAG + round);
        }
        flood_wait(&out);
        flood_wait(&in);
        flood_verify(&in, peer, TAG + round);
    }
    flood_free(&in);
    flood_free(&out);
}

/* Blocking sends against a receiver that is slow at first: the sender has to stop and go on. */
static void test_slow_receiver(void)
{
    int            peer = mt_pair_peer(), count = 200 * mt.iters, i;
    unsigned char *data;
    double         until;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    data = mt_alloc(flood_size);
    for (i = 0; i < count; ++i) {
        if (mt.rank % 2) {
            if (i % 100 == 0) {
                until = MPI_Wtime() + 0.0005;
                while (MPI_Wtime() < until) {
                    mt_relax();
                }
            }
            MPI_Recv(data, (int)flood_size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            mt_verify(data, flood_size, mt_key(peer, mt.rank, TAG, (uint64_t)i), "slow receiver");
        } else {
            data_fill(data, flood_size, mt_key(mt.rank, peer, TAG, (uint64_t)i));
            MPI_Send(data, (int)flood_size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        }
    }
    free(data);
}

/* Everybody sends to everybody, oneself included, with all requests outstanding. */
static void test_everybody(void)
{
    int      count = 10 * mt.iters, i;
    flood_t *in    = mt_alloc((size_t)mt.size * sizeof(*in));
    flood_t *out   = mt_alloc((size_t)mt.size * sizeof(*out));

    for (i = 0; i < mt.size; ++i) {
        in[i]  = flood_alloc(count, flood_size);
        out[i] = flood_alloc(count, flood_size);
        flood_recv(&in[i], i, TAG);
    }
    for (i = 0; i < mt.size; ++i) {
        flood_send(&out[(mt.rank + i) % mt.size], (mt.rank + i) % mt.size, TAG);
    }
    for (i = 0; i < mt.size; ++i) {
        flood_wait(&in[i]);
        flood_verify(&in[i], i, TAG);
        flood_wait(&out[i]);
        flood_free(&in[i]);
        flood_free(&out[i]);
    }
    free(in);
    free(out);
}

/* Everybody sends to rank 0 at once. */
static void test_incast(void)
{
    int      count = 50 * mt.iters, i;
    flood_t *in, out;

    if (mt.rank != 0) {
        out = flood_alloc(count, flood_size);
        flood_send(&out, 0, TAG);
        flood_wait(&out);
        flood_free(&out);
        return;
    }
    in = mt_alloc((size_t)mt.size * sizeof(*in));
    for (i = mt.size - 1; i > 0; --i) {
        in[i] = flood_alloc(count, flood_size);
        flood_recv(&in[i], i, TAG);
    }
    for (i = 1; i < mt.size; ++i) {
        flood_wait(&in[i]);
        flood_verify(&in[i], i, TAG);
        flood_free(&in[i]);
    }
    free(in);
}

/* Random sizes over all protocols, random order of the tags at the receiver, both directions. */
static size_t random_size(uint64_t *state)
{
    uint64_t r       = random_next(state);
    unsigned log2max = 6;
    size_t   size;

    while ((log2max < 22) && ((2ul << log2max) <= mt.max_size)) {
        ++log2max;
    }
    size = (size_t)((r >> 8) & ((1ul << (r % log2max)) - 1)) + r % 3;
    return (size < mt.max_size) ? size : mt.max_size;
}

static void test_random_mix(void)
{
    int          peer = mt_pair_peer(), count = 40 * mt.iters, i;
    uint64_t     send_state, recv_state, order_state = mt.seed + 99;
    MPI_Request *requests;
    mt_buf_t    *in, *out;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    requests   = mt_alloc(2 * (size_t)count * sizeof(*requests));
    in         = mt_alloc((size_t)count * sizeof(*in));
    out        = mt_alloc((size_t)count * sizeof(*out));
    send_state = mt.seed * 1000 + (uint64_t)mt.rank;
    recv_state = mt.seed * 1000 + (uint64_t)peer;
    for (i = 0; i < count; ++i) {
        in[i]  = mt_buf_alloc(random_size(&recv_state), (unsigned)i % 8);
        out[i] = mt_buf_alloc(random_size(&send_state), (unsigned)i % 8);
        data_fill(out[i].data, out[i].length, mt_key(mt.rank, peer, i, 0));
        if (random_next(&order_state) % 2) { /* before or after the message has been sent */
            MPI_Irecv(in[i].data, (int)in[i].length, MPI_BYTE, peer, 100 + i, MPI_COMM_WORLD,
                      &requests[count + i]);
        } else {
            requests[count + i] = MPI_REQUEST_NULL;
        }
        MPI_Isend(out[i].data, (int)out[i].length, MPI_BYTE, peer, 100 + i, MPI_COMM_WORLD,
                  &requests[i]);
    }
    for (i = count - 1; i >= 0; --i) {
        if (requests[count + i] == MPI_REQUEST_NULL) {
            MPI_Irecv(in[i].data, (int)in[i].length, MPI_BYTE, peer, 100 + i, MPI_COMM_WORLD,
                      &requests[count + i]);
        }
    }
    MPI_Waitall(2 * count, requests, MPI_STATUSES_IGNORE);
    for (i = 0; i < count; ++i) {
        mt_buf_verify(&in[i], mt_key(peer, mt.rank, i, 0), "random mix");
        mt_buf_free(&in[i]);
        mt_buf_free(&out[i]);
    }
    free(requests);
    free(in);
    free(out);
}

static void run_size(const char *name, int min_ranks, mt_func_t func, size_t size)
{
    char full_name[128];

    if (size <= mt.max_size) {
        flood_size = size;
        snprintf(full_name, sizeof(full_name), "%s, %zu bytes", name, size);
        mt_run(full_name, min_ranks, func);
    }
}

/* The longest eager message, the next one, the longest run, rendezvous, and some between them. */
static void run_sizes(const char *name, int min_ranks, mt_func_t func)
{
    static const size_t sizes[] = {0, 8, 112, 113, 1024, 8432, 20000};
    size_t              i;

    for (i = 0; i < MT_COUNT(sizes); ++i) {
        run_size(name, min_ranks, func, sizes[i]);
    }
}

static void run_bursts(void)
{
    static const size_t sizes[] = {8440, 16384, 40000, 65536, 131072, 131073};
    size_t              i;

    for (i = 0; i < MT_COUNT(sizes); ++i) {
        run_size("burst in both directions", 2, test_burst, sizes[i]);
    }
}

int main(int argc, char **argv)
{
    mt_start(&argc, &argv, MPI_THREAD_SINGLE, "floods", (mt_state_t){.iters = 10});

    run_sizes("posted flood", 2, test_oneway_posted);
    run_sizes("unexpected flood", 2, test_oneway_unexpected);
    run_sizes("flood in both directions", 2, test_bidirectional);
    run_bursts();
    run_sizes("slow receiver", 2, test_slow_receiver);
    run_sizes("everybody to everybody", 1, test_everybody);
    run_sizes("everybody to one", 2, test_incast);
    mt_run("random mix of sizes", 2, test_random_mix);

    return mt_finish();
}
