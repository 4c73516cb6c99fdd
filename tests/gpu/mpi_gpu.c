/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Point-to-point MPI with buffers in GPU memory: memory of each origin at either end, each way to
 * send and receive, sizes around each threshold, messages to oneself, several at once, memory that
 * is freed and allocated again.
 */
#include "mpi_buffer.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucs/memory/memtype_cache.h>

#define TAG   11
#define SHORT 2000 /* bytes that are eager by default, if to oneself */

/* ---- placements ------------------------------------------------------------------------------ */

/* From each even rank to the next one and back, for all sizes. */
static void run_placement(unsigned src_place, unsigned dst_place)
{
    int      peer = mt_pair_peer(), is_first = mt.rank % 2 == 0, i, turn;
    uint64_t key;
    char     what[100];
    buffer_t out, in;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    for (i = 0; i < mt.num_sizes; ++i) {
        snprintf(what, sizeof(what), "%zu bytes, %s to %s", mt.sizes[i], place_name(src_place),
                 place_name(dst_place));
        buffer_open(&out, src_place, mt.sizes[i]);
        buffer_open(&in, dst_place, mt.sizes[i]);
        buffer_fill(&out, mt_key(mt.rank, peer, i, 1));
        buffer_clear(&in);
        for (turn = 0; turn < 2; ++turn) {
            if (turn != is_first) {
                MPI_Status status;

                key = mt_key(peer, mt.rank, i, 1);
                MPI_Recv(in.data, (int)in.size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &status);
                mt_check_status(&status, peer, TAG, in.size);
                buffer_check(&in, in.size, key, what);
            } else {
                MPI_Send(out.data, (int)out.size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
            }
        }
        buffer_close(&out);
        buffer_close(&in);
    }
}

static unsigned placement_src, placement_dst;

static void test_placement(void)
{
    run_placement(placement_src, placement_dst);
}

static void run_placements(void)
{
    int  there[PLACES];
    char name[64];

    for (unsigned place = 0; place < PLACES; ++place) {
        there[place] = place_is_there(place);
        if (!there[place]) {
            mt_skip(place_name(place), "this runtime has none of that");
        }
    }
    for (placement_src = 0; placement_src < PLACES; ++placement_src) {
        for (placement_dst = 0; placement_dst < PLACES; ++placement_dst) {
            snprintf(name, sizeof(name), "%s to %s", place_name(placement_src),
                     place_name(placement_dst));
            if (placement_src == HEAP && placement_dst == HEAP) {
                continue;
            }
            if (there[placement_src] && there[placement_dst]) {
                mt_run(name, 2, test_placement);
            }
        }
    }
}

/* ---- ways ------------------------------------------------------------------------------------ */

#define WAYS  8
#define READY (TAG + 1)

/* Of who sends, and who receives. */
static const unsigned ends[][2] = {
    {DEVICE_PLAIN, DEVICE_PLAIN}, {HEAP, DEVICE_PLAIN}, {DEVICE_PLAIN, HEAP}};

static void way_send(int way, const buffer_t *out, int peer)
{
    MPI_Request request;

    if (way > 4) {
        MPI_Recv(NULL, 0, MPI_BYTE, peer, READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    switch (way) {
    case 0:
        MPI_Ssend(out->data, (int)out->size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        return;
    case 1:
        MPI_Isend(out->data, (int)out->size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
        break;
    case 2:
        MPI_Issend(out->data, (int)out->size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
        break;
    case 3:
        MPI_Send_init(out->data, (int)out->size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
        MPI_Start(&request);
        break;
    case 4:
        MPI_Ssend_init(out->data, (int)out->size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
        MPI_Startall(1, &request);
        break;
    case 7:
        MPI_Irsend(out->data, (int)out->size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
        break;
    case 5:
        MPI_Rsend(out->data, (int)out->size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        return;
    default:
        MPI_Rsend_init(out->data, (int)out->size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
        MPI_Start(&request);
        break;
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (way == 3 || way == 4 || way == 6) {
        MPI_Request_free(&request);
    }
}

/* Matched first, received later. */
static void recv_matched(const buffer_t *in, int peer, MPI_Status *status)
{
    MPI_Message message;
    MPI_Request request;
    int         flag = 0;

    while (!flag) {
        MPI_Improbe(peer, TAG, MPI_COMM_WORLD, &flag, &message, status);
    }
    MPI_Imrecv(in->data, (int)in->size, MPI_BYTE, &message, &request);
    for (flag = 0; !flag;) {
        MPI_Test(&request, &flag, status);
    }
}

static void way_recv(int way, const buffer_t *in, int peer)
{
    MPI_Request request;
    MPI_Message message;
    MPI_Status  status;

    switch (way) {
    case 0:
        MPI_Mprobe(peer, TAG, MPI_COMM_WORLD, &message, &status);
        mt_check_status(&status, peer, TAG, in->size);
        MPI_Mrecv(in->data, (int)in->size, MPI_BYTE, &message, &status);
        break;
    case 1:
        MPI_Irecv(in->data, (int)in->size, MPI_BYTE, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, &status);
        break;
    case 2:
        if (mt.rank % 2 == 0) {
            MPI_Probe(peer, TAG, MPI_COMM_WORLD, &status);
        } else {
            int flag = 0;

            while (!flag) {
                MPI_Iprobe(peer, TAG, MPI_COMM_WORLD, &flag, &status);
            }
        }
        mt_check_status(&status, peer, TAG, in->size);
        MPI_Recv(in->data, (int)in->size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &status);
        break;
    case 4:
        recv_matched(in, peer, &status);
        break;
    case 5:
    case 6:
    case 7:
        MPI_Irecv(in->data, (int)in->size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
        MPI_Send(NULL, 0, MPI_BYTE, peer, READY, MPI_COMM_WORLD);
        MPI_Wait(&request, &status);
        break;
    default:
        MPI_Recv_init(in->data, (int)in->size, MPI_BYTE, peer, MPI_ANY_TAG, MPI_COMM_WORLD,
                      &request);
        MPI_Start(&request);
        MPI_Wait(&request, &status);
        MPI_Request_free(&request);
        break;
    }
    mt_check_status(&status, peer, TAG, in->size);
}

static void test_ways(void)
{
    static const size_t sizes[] = {0, 8, 1000, 8432, 70000, 3000001};
    int                 peer    = mt_pair_peer();
    buffer_t            buffer;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    for (unsigned i = 0; i < MT_COUNT(sizes) && sizes[i] <= mt.max_size; ++i) {
        for (int way = 0; way < 2 * WAYS * (int)MT_COUNT(ends); ++way) {
            int is_sender = (way / WAYS % 2 == 0) == (mt.rank % 2 == 0);

            buffer_open(&buffer, ends[way / WAYS / 2][!is_sender], sizes[i]);
            if (is_sender) {
                buffer_fill(&buffer, mt_key(mt.rank, peer, way, i));
                way_send(way % WAYS, &buffer, peer);
            } else {
                buffer_clear(&buffer);
                way_recv(way % WAYS, &buffer, peer);
                buffer_check(&buffer, buffer.size, mt_key(peer, mt.rank, way, i), "a way to send");
            }
            buffer_close(&buffer);
        }
    }
}

/* Requests that are started again and again, with other bytes: to the peer, and to oneself. */
static void persist(const unsigned *places, size_t size, int peer)
{
    MPI_Request requests[2];
    buffer_t    out, in;

    buffer_open(&out, places[0], size);
    buffer_open(&in, places[1], size);
    MPI_Recv_init(in.data, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(out.data, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[1]);
    for (int round = 0; round < 4; ++round) {
        buffer_fill(&out, mt_key(mt.rank, peer, round, size));
        buffer_clear(&in);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        buffer_check(&in, size, mt_key(peer, mt.rank, round, size), "started again");
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    buffer_close(&out);
    buffer_close(&in);
}

static void test_persistent(void)
{
    static const size_t sizes[] = {8, 9000, 600001};
    int                 peer    = mt_pair_peer();

    for (unsigned i = 0; i < MT_COUNT(sizes) && sizes[i] <= mt.max_size; ++i) {
        for (unsigned k = 0; k < MT_COUNT(ends); ++k) {
            persist(ends[k], sizes[i], mt.rank);
            if (peer != MPI_PROC_NULL) {
                persist(ends[k], sizes[i], peer);
            }
        }
    }
}

/* ---- in place ----------------------------------------------------------------------------------
 */

/* MPI_Sendrecv_replace(), which copies what it sends away first; of nobody it receives nothing. */
static void exchange_replaced(unsigned place, size_t size, int to, int from)
{
    size_t       element = size % 24 == 0 ? 24 : 1;
    MPI_Datatype type;
    MPI_Status   status;
    buffer_t     buffer;

    MPI_Type_contiguous((int)element, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    buffer_open(&buffer, place, size);
    buffer_fill(&buffer, mt_key(mt.rank, to, 1, size));
    MPI_Sendrecv_replace(buffer.data, (int)(size / element), type, to, TAG, from, TAG,
                         MPI_COMM_WORLD, &status);
    if (from != MPI_PROC_NULL) {
        mt_check_status(&status, from, TAG, size);
    }
    buffer_check(&buffer, size,
                 from != MPI_PROC_NULL ? mt_key(from, mt.rank, 1, size) :
                                         mt_key(mt.rank, to, 1, size),
                 "replaced");
    buffer_close(&buffer);
    MPI_Type_free(&type);
}

/* In a ring, to oneself, and in a row with two ends. */
static void test_replace(void)
{
    static const size_t sizes[] = {0, 1, 24, 2047, 2048, 2049, 9000, 240000, 3000001};
    int                 next = (mt.rank + 1) % mt.size, last = (mt.rank + mt.size - 1) % mt.size;

    for (unsigned i = 0; i < 2 * PLACES * MT_COUNT(sizes); ++i) {
        size_t   size     = sizes[i % MT_COUNT(sizes)];
        unsigned place    = i / MT_COUNT(sizes) / 2;
        int      is_mixed = i / MT_COUNT(sizes) % 2;

        if (size > mt.max_size || !place_is_there(place)) {
            continue;
        }
        place = is_mixed && mt.rank % 2 == 0 ? HEAP : place;
        exchange_replaced(place, size, next, last);
        exchange_replaced(place, size, mt.rank, mt.rank);
        exchange_replaced(place, size, next == 0 ? MPI_PROC_NULL : next,
                          mt.rank == 0 ? MPI_PROC_NULL : last);
    }
}

/* ---- many at once ---------------------------------------------------------------------------- */

#define WINDOW 24

/* GPU and host messages of all sizes under way in both directions; they arrive in order. */
static void test_window(void)
{
    int         peer = mt_pair_peer();
    buffer_t    out[WINDOW], in[WINDOW];
    MPI_Request requests[2 * WINDOW];
    size_t      size;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    for (int round = 0; round < mt.iters; ++round) {
        for (int i = 0; i < WINDOW; ++i) {
            size = (size_t)1 << ((i * 5 + round) % 20);
            size = size <= mt.max_size ? size : mt.max_size;
            buffer_open(&out[i], i % 3 == 0 ? HEAP : DEVICE_PLAIN, size);
            buffer_open(&in[i], i % 4 == 0 ? HEAP : DEVICE_PLAIN, size);
            buffer_fill(&out[i], mt_key(mt.rank, peer, i, (uint64_t)round));
            buffer_clear(&in[i]);
        }
        for (int i = 0; i < WINDOW; ++i) {
            MPI_Irecv(in[i].data, (int)in[i].size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                      &requests[i]);
        }
        for (int i = 0; i < WINDOW; ++i) {
            MPI_Isend(out[i].data, (int)out[i].size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                      &requests[WINDOW + i]);
        }
        MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < WINDOW; ++i) {
            buffer_check(&in[i], in[i].size, mt_key(peer, mt.rank, i, (uint64_t)round),
                         "one of many");
            buffer_close(&in[i]);
            buffer_close(&out[i]);
        }
    }
}

static void test_self(void)
{
    static const size_t sizes[] = {0, 1, 100, 9000, 2000003};
    MPI_Request         request;
    MPI_Message         message;
    buffer_t            out, in;

    for (unsigned i = 0; i < MT_COUNT(sizes) && sizes[i] <= mt.max_size; ++i) {
        for (unsigned k = 0; k < MT_COUNT(ends); ++k) {
            buffer_open(&out, ends[k][0], sizes[i]);
            buffer_open(&in, ends[k][1], sizes[i]);
            buffer_fill(&out, mt_key(mt.rank, mt.rank, (int)k, i));
            buffer_clear(&in);
            MPI_Irecv(in.data, (int)in.size, MPI_BYTE, mt.rank, TAG, MPI_COMM_WORLD, &request);
            MPI_Send(out.data, (int)out.size, MPI_BYTE, mt.rank, TAG, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            buffer_check(&in, in.size, mt_key(mt.rank, mt.rank, (int)k, i), "to oneself");
            buffer_clear(&in);
            MPI_Isend(out.data, (int)out.size, MPI_BYTE, mt.rank, TAG, MPI_COMM_WORLD, &request);
            MPI_Mprobe(mt.rank, TAG, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
            MPI_Mrecv(in.data, (int)in.size, MPI_BYTE, &message, MPI_STATUS_IGNORE);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            buffer_check(&in, in.size, mt_key(mt.rank, mt.rank, (int)k, i), "matched, of oneself");
            buffer_close(&out);
            buffer_close(&in);
        }
    }
}

/* Several GPUs of a rank: from one to another, to itself or another rank. */
static void exchange_between(unsigned from, unsigned to, int peer, size_t size)
{
    unsigned    own = device;
    buffer_t    out, in;
    MPI_Request request;

    device = from;
    buffer_open(&out, DEVICE_PLAIN, size);
    device = to;
    buffer_open(&in, DEVICE_PLAIN, size);
    device = own;
    for (int turn = 0; turn < 2; ++turn) { /* the first message of some memory is eager */
        buffer_fill(&out, mt_key(mt.rank, peer, turn, size));
        buffer_clear(&in);
        if (peer == mt.rank && size < SHORT) { /* there before it is awaited, where it is eager */
            MPI_Isend(out.data, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
            MPI_Recv(in.data, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Irecv(in.data, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
            MPI_Send(out.data, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        buffer_check(&in, size, mt_key(peer, mt.rank, turn, size), "between several GPUs");
    }
    buffer_close(&out);
    buffer_close(&in);
}

static void test_gpus(void)
{
    static const size_t sizes[] = {8, 1000, 300000};

    for (unsigned i = 0; i < num_gpus * num_gpus * MT_COUNT(sizes); ++i) {
        size_t   size = sizes[i % MT_COUNT(sizes)];
        unsigned gpus = i / MT_COUNT(sizes);

        if (size <= mt.max_size) {
            exchange_between(gpus % num_gpus, gpus / num_gpus, mt.rank, size);
        }
        if (size <= mt.max_size && mt_pair_peer() != MPI_PROC_NULL) {
            exchange_between(gpus % num_gpus, gpus / num_gpus, mt_pair_peer(), size);
        }
    }
}

/* A buffer is freed, and host or GPU memory has its address in the next round. */
static void test_again(void)
{
    int      peer = mt_pair_peer(), is_first = mt.rank % 2 == 0;
    buffer_t buffer;
    size_t   size = mt.max_size < 2000000 ? mt.max_size : 2000000;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    for (int round = 0; round < 4 * mt.iters; ++round) {
        buffer_open(&buffer, round % 3 == 2 ? HEAP : DEVICE_PLAIN, size);
        if ((round % 2 == 0) == is_first) {
            buffer_fill(&buffer, mt_key(mt.rank, peer, 1, (uint64_t)round));
            MPI_Send(buffer.data, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        } else {
            buffer_clear(&buffer);
            MPI_Recv(buffer.data, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            buffer_check(&buffer, size, mt_key(peer, mt.rank, 1, (uint64_t)round), "again");
        }
        buffer_close(&buffer);
    }
}

/*
 * A kernel fills each rank's GPU until its message has come, whose buffer nobody has seen before:
 * nothing on the way waits for kernels. Only copies within one GPU do, as CUDA has no other way.
 */
static void test_kernel(void)
{
    static const size_t   sizes[]     = {8, 1000, 9000, 300000};
    static const unsigned places[][2] = {
        {HEAP, DEVICE_PLAIN}, {DEVICE_PLAIN, HEAP}, {DEVICE_PLAIN, DEVICE_PLAIN}};
    int      is_first = mt.rank % 2 == 0, peer = mt_pair_peer();
    unsigned cases = (num_gpus > 1 ? 3u : 2u) * MT_COUNT(sizes);
    buffer_t buffers[MT_COUNT(places) * MT_COUNT(sizes)];

    if (peer == MPI_PROC_NULL) {
        return;
    }
    for (unsigned i = 0; i < cases; ++i) {
        unsigned k = i / MT_COUNT(sizes), n = i % MT_COUNT(sizes);

        buffer_open(&buffers[i], places[k][!is_first], sizes[n]);
        if (is_first) {
            buffer_fill(&buffers[i], mt_key(mt.rank, peer, (int)i, 5));
        } else {
            buffer_clear(&buffers[i]);
        }
    }
    gpu->kernel_start(device);
    for (unsigned i = 0; i < cases; ++i) {
        if (is_first) {
            MPI_Send(buffers[i].data, (int)buffers[i].size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        } else {
            MPI_Recv(buffers[i].data, (int)buffers[i].size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        }
    }
    gpu->kernel_end();
    for (unsigned i = 0; i < cases; ++i) {
        if (!is_first) {
            buffer_check(&buffers[i], buffers[i].size, mt_key(peer, mt.rank, (int)i, 5),
                         "while a kernel runs");
        }
        buffer_close(&buffers[i]);
    }
}

/* Broadcast moves data and nothing else: GPU buffers will do. */
static void test_bcast(void)
{
    static const size_t sizes[] = {1, 500, 20000, 1500000};
    buffer_t            buffer;

    for (unsigned i = 0; i < MT_COUNT(sizes) && sizes[i] <= mt.max_size; ++i) {
        for (int root = 0; root < mt.size; ++root) {
            buffer_open(&buffer, DEVICE_PLAIN, sizes[i]);
            if (mt.rank == root) {
                buffer_fill(&buffer, mt_key(root, 0, (int)i, 3));
            } else {
                buffer_clear(&buffer);
            }
            MPI_Bcast(buffer.data, (int)sizes[i], MPI_BYTE, root, MPI_COMM_WORLD);
            buffer_check(&buffer, sizes[i], mt_key(root, 0, (int)i, 3), "a broadcast");
            buffer_close(&buffer);
        }
    }
}

/*
 * UCX's cache of memory types is there and empty, so that it looks for nothing: as long as there is
 * no GPU's runtime. (By name: UCX is only loaded at MPI_Init.)
 */
static void test_short_way(void)
{
    void                 *ucs   = dlopen("libucs.so.0", RTLD_NOW | RTLD_NOLOAD);
    ucs_memtype_cache_t **cache = ucs != NULL ? dlsym(ucs, "ucs_memtype_cache_global_instance") :
                                                NULL;

    if (cache == NULL || *cache == NULL || (*cache)->pgtable.num_regions != 0) {
        mt_fail(__FILE__, __LINE__, "UCX asks what host memory is, though there is no GPU");
    }
    dlclose(ucs);
}

static void *late_thread(void *arg)
{
    (void)arg;
    return (void *)(uintptr_t)gpu->open();
}

int main(int argc, char **argv)
{
    int       is_late = getenv("ANGARA_TEST_GPU_LATE") != NULL;
    pthread_t thread;
    void     *result;

    buffer_runtime();
    if (!is_late) {
        gpu->open(); /* before MPI_Init */
    }
    mt_start(&argc, &argv, MPI_THREAD_SINGLE, "point-to-point with GPU buffers",
             (mt_state_t){.max_size = 4ul << 20, .iters = 3});
    if (is_late && getenv("OMPI_MCA_memory") == NULL) {
        mt_run("host memory before there is a runtime", 1, test_short_way);
    }
    /* Or after it, and by another thread. */
    pthread_create(&thread, NULL, late_thread, NULL);
    pthread_join(thread, &result);
    if (!buffer_devices((unsigned)(uintptr_t)result)) {
        return mt_finish();
    }
    run_placements();
    mt_run("ways to send and receive", 2, test_ways);
    mt_run("requests that are started again", 1, test_persistent);
    mt_run("in place", 1, test_replace);
    mt_run("many at once", 2, test_window);
    mt_run("to oneself", 1, test_self);
    mt_run("several GPUs in a rank", 1, test_gpus);
    mt_run("addresses that come again", 2, test_again);
    mt_run("broadcasts", 2, test_bcast);
    if (gpu->kernel_start != NULL) {
        mt_run("a kernel that waits for its message", 2, test_kernel);
    } else {
        mt_skip("a kernel that waits for its message", "there are no kernels of this runtime here");
    }
    return mt_finish();
}
