/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collective operations, blocking and not, against results that each rank computes by itself.
 * Sizes range over all protocols; roots rotate; buffers in place too.
 */
#include "mpi_test.h"

#include <stdlib.h>
#include <string.h>

static const int coll_counts[] = {0, 1, 2, 7, 64, 129, 1000, 2049, 16385, 100000};
#define NUM_COUNTS ((int)MT_COUNT(coll_counts))

/* Element i of what a rank contributes. Small, so that sums are exact in int. */
static int element(int rank, int i)
{
    return (int)((mt_key(rank, 0, 41, (uint64_t)i) & 0xffff)) - 0x8000;
}

static int *vector_alloc(size_t count)
{
    return mt_alloc(count * sizeof(int));
}

static void vector_fill(int *v, int rank, int count)
{
    int i;

    for (i = 0; i < count; ++i) {
        v[i] = element(rank, i);
    }
}

static void vector_verify(const int *v, int rank, int count, const char *what)
{
    int i;

    for (i = 0; i < count; ++i) {
        if (v[i] != element(rank, i)) {
            MT_CHECK(false, "%s: element %d of %d from rank %d is %d, expected %d", what, i, count,
                     rank, v[i], element(rank, i));
            return;
        }
    }
}

static int reduced(MPI_Op op, int first, int last, int i)
{
    int rank, value = element(first, i);

    for (rank = first + 1; rank <= last; ++rank) {
        int e = element(rank, i);

        if (op == MPI_SUM) {
            value += e;
        } else if (op == MPI_MAX) {
            value = (e > value) ? e : value;
        } else {
            value ^= e;
        }
    }
    return value;
}

static void reduced_verify(const int *v, MPI_Op op, int last, int count, int first_element,
                           const char *what)
{
    int i;

    for (i = 0; i < count; ++i) {
        int expected = reduced(op, 0, last, first_element + i);

        if (v[i] != expected) {
            MT_CHECK(false, "%s: element %d of %d is %d, expected %d", what, i, count, v[i],
                     expected);
            return;
        }
    }
}

/* Calls `body` for each count that the limit allows. */
static void for_each_count(void (*body)(int count, int round))
{
    int i;

    for (i = 0; i < NUM_COUNTS; ++i) {
        if ((size_t)coll_counts[i] * sizeof(int) <= mt.max_size) {
            body(coll_counts[i], i);
        }
    }
}

static void test_barrier(void)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int         i, in = 0, out;

    /* Messages sent before a barrier and received after it belong to this barrier. */
    for (i = 0; i < 10 * mt.iters; ++i) {
        if (mt.rank != 0) {
            MPI_Isend(&i, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, &request);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (mt.rank == 0) {
            for (out = 1; out < mt.size; ++out) {
                MPI_Recv(&in, 1, MPI_INT, out, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MT_CHECK(in == i, "barrier %d, rank %d is at %d", i, out, in);
            }
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void body_bcast(int count, int round)
{
    int        *v = vector_alloc((size_t)count), root;
    MPI_Request request;

    for (root = 0; root < mt.size; ++root) {
        memset(v, 0, (size_t)count * sizeof(int));
        if (mt.rank == root) {
            vector_fill(v, root, count);
        }
        if ((root + round) % 2) {
            MPI_Bcast(v, count, MPI_INT, root, MPI_COMM_WORLD);
        } else {
            MPI_Ibcast(v, count, MPI_INT, root, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        vector_verify(v, root, count, "bcast");
    }
    free(v);
}

static void body_reduce(int count, int round)
{
    const MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_BXOR};
    MPI_Op       op    = ops[round % 3];
    int          root  = round % mt.size;
    int         *in    = vector_alloc((size_t)count);
    int         *out   = vector_alloc((size_t)count);

    vector_fill(in, mt.rank, count);
    MPI_Reduce(in, out, count, MPI_INT, op, root, MPI_COMM_WORLD);
    if (mt.rank == root) {
        reduced_verify(out, op, mt.size - 1, count, 0, "reduce");
    }
    vector_verify(in, mt.rank, count, "input of reduce");

    MPI_Allreduce(in, out, count, MPI_INT, op, MPI_COMM_WORLD);
    reduced_verify(out, op, mt.size - 1, count, 0, "allreduce");
    MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_INT, op, MPI_COMM_WORLD);
    reduced_verify(in, op, mt.size - 1, count, 0, "allreduce in place");
    free(in);
    free(out);
}

static void body_iallreduce(int count, int round)
{
    enum { MANY = 4 };
    MPI_Request requests[MANY];
    int        *in[MANY], *out[MANY], i;

    (void)round;
    for (i = 0; i < MANY; ++i) {
        in[i]  = vector_alloc((size_t)count);
        out[i] = vector_alloc((size_t)count);
        vector_fill(in[i], mt.rank, count);
        MPI_Iallreduce(in[i], out[i], count, MPI_INT, (i % 2) ? MPI_MAX : MPI_SUM, MPI_COMM_WORLD,
                       &requests[i]);
    }
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    for (i = 0; i < MANY; ++i) {
        reduced_verify(out[i], (i % 2) ? MPI_MAX : MPI_SUM, mt.size - 1, count, 0, "iallreduce");
        free(in[i]);
        free(out[i]);
    }
}

static void body_scan(int count, int round)
{
    int *in  = vector_alloc((size_t)count);
    int *out = vector_alloc((size_t)count);

    (void)round;
    vector_fill(in, mt.rank, count);
    MPI_Scan(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    reduced_verify(out, MPI_SUM, mt.rank, count, 0, "scan");
    MPI_Exscan(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (mt.rank > 0) {
        reduced_verify(out, MPI_SUM, mt.rank - 1, count, 0, "exscan");
    }
    free(in);
    free(out);
}

static void body_reduce_scatter(int count, int round)
{
    int  block  = count / mt.size + 1;
    int *in     = vector_alloc((size_t)block * (size_t)mt.size);
    int *out    = vector_alloc((size_t)block * (size_t)mt.size);
    int *counts = vector_alloc((size_t)mt.size), i, before;

    (void)round;
    vector_fill(in, mt.rank, block * mt.size);
    MPI_Reduce_scatter_block(in, out, block, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    reduced_verify(out, MPI_SUM, mt.size - 1, block, block * mt.rank, "reduce_scatter_block");

    for (i = 0, before = 0; i < mt.size; ++i) { /* uneven parts, some empty */
        counts[i] = (i % 3 == 1) ? 0 : block - i % 2;
        before += (i < mt.rank) ? counts[i] : 0;
    }
    MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    reduced_verify(out, MPI_SUM, mt.size - 1, counts[mt.rank], before, "reduce_scatter");
    free(in);
    free(out);
    free(counts);
}

static void body_gather(int count, int round)
{
    size_t n    = (size_t)count;
    int    root = round % mt.size, i;
    int   *mine = vector_alloc(n), *all = vector_alloc(n * (size_t)mt.size);

    vector_fill(mine, mt.rank, count);
    MPI_Gather(mine, count, MPI_INT, all, count, MPI_INT, root, MPI_COMM_WORLD);
    for (i = 0; (i < mt.size) && (mt.rank == root); ++i) {
        vector_verify(all + n * (size_t)i, i, count, "gather");
    }

    memset(all, 0, n * (size_t)mt.size * sizeof(int));
    MPI_Allgather(mine, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD);
    for (i = 0; i < mt.size; ++i) {
        vector_verify(all + n * (size_t)i, i, count, "allgather");
    }

    memset(mine, 0, n * sizeof(int));
    MPI_Scatter(all, count, MPI_INT, mine, count, MPI_INT, root, MPI_COMM_WORLD);
    vector_verify(mine, mt.rank, count, "scatter");
    free(mine);
    free(all);
}

/* Every rank contributes another length: rank r has count * (r % 3). */
static void body_vectors(int count, int round)
{
    int *counts = vector_alloc((size_t)mt.size), *displs = vector_alloc((size_t)mt.size);
    int  root = (round + 1) % mt.size, total = 0, i, *mine, *all;

    for (i = 0; i < mt.size; ++i) {
        counts[i] = count * (i % 3);
        displs[i] = total + i; /* with gaps */
        total += counts[i];
    }
    mine = vector_alloc((size_t)counts[mt.rank]);
    all  = vector_alloc((size_t)(total + mt.size));
    vector_fill(mine, mt.rank, counts[mt.rank]);

    MPI_Gatherv(mine, counts[mt.rank], MPI_INT, all, counts, displs, MPI_INT, root, MPI_COMM_WORLD);
    for (i = 0; (i < mt.size) && (mt.rank == root); ++i) {
        vector_verify(all + displs[i], i, counts[i], "gatherv");
    }
    MPI_Allgatherv(mine, counts[mt.rank], MPI_INT, all, counts, displs, MPI_INT, MPI_COMM_WORLD);
    for (i = 0; i < mt.size; ++i) {
        vector_verify(all + displs[i], i, counts[i], "allgatherv");
    }
    memset(mine, 0, (size_t)counts[mt.rank] * sizeof(int));
    MPI_Scatterv(all, counts, displs, MPI_INT, mine, counts[mt.rank], MPI_INT, root,
                 MPI_COMM_WORLD);
    vector_verify(mine, mt.rank, counts[mt.rank], "scatterv");
    free(counts);
    free(displs);
    free(mine);
    free(all);
}

/* Rank s sends to rank d the vector of a made-up rank s * size + d. */
static void body_alltoall(int count, int round)
{
    size_t      n  = (size_t)count;
    int        *in = vector_alloc(n * (size_t)mt.size), *out = vector_alloc(n * (size_t)mt.size), i;
    MPI_Request request;

    memset(in, 0, n * (size_t)mt.size * sizeof(int));
    for (i = 0; i < mt.size; ++i) {
        vector_fill(out + n * (size_t)i, mt.rank * mt.size + i, count);
    }
    if (round % 2) {
        MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD);
    } else {
        MPI_Ialltoall(out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    for (i = 0; i < mt.size; ++i) {
        vector_verify(in + n * (size_t)i, i * mt.size + mt.rank, count, "alltoall");
    }
    free(in);
    free(out);
}

static int alltoallv_count(int src, int dst, int count)
{
    return count * ((src + 2 * dst) % 4) / 2;
}

static void body_alltoallv(int count, int round)
{
    size_t n       = (size_t)mt.size;
    int   *scounts = vector_alloc(n), *sdispls = vector_alloc(n);
    int   *rcounts = vector_alloc(n), *rdispls = vector_alloc(n);
    int    stotal = 0, rtotal = 0, i, *in, *out;

    (void)round;
    for (i = 0; i < mt.size; ++i) {
        scounts[i] = alltoallv_count(mt.rank, i, count);
        rcounts[i] = alltoallv_count(i, mt.rank, count);
        sdispls[i] = stotal;
        rdispls[i] = rtotal;
        stotal += scounts[i];
        rtotal += rcounts[i];
    }
    out = vector_alloc((size_t)stotal);
    in  = vector_alloc((size_t)rtotal);
    for (i = 0; i < mt.size; ++i) {
        vector_fill(out + sdispls[i], mt.rank * mt.size + i, scounts[i]);
    }
    MPI_Alltoallv(out, scounts, sdispls, MPI_INT, in, rcounts, rdispls, MPI_INT, MPI_COMM_WORLD);
    for (i = 0; i < mt.size; ++i) {
        vector_verify(in + rdispls[i], i * mt.size + mt.rank, rcounts[i], "alltoallv");
    }
    free(scounts);
    free(sdispls);
    free(rcounts);
    free(rdispls);
    free(in);
    free(out);
}

#define TEST_BODY(_name)              \
    static void test_##_name(void)    \
    {                                 \
        for_each_count(body_##_name); \
    }
TEST_BODY(bcast)
TEST_BODY(reduce)
TEST_BODY(iallreduce)
TEST_BODY(scan)
TEST_BODY(reduce_scatter)
TEST_BODY(gather)
TEST_BODY(vectors)
TEST_BODY(alltoall)
TEST_BODY(alltoallv)

int main(int argc, char **argv)
{
    mt_start(&argc, &argv, MPI_THREAD_SINGLE, "collectives", (mt_state_t){.max_size = 400000});

    mt_run("barrier", 1, test_barrier);
    mt_run("bcast, ibcast, all roots", 1, test_bcast);
    mt_run("reduce, allreduce, in place", 1, test_reduce);
    mt_run("several iallreduce at once", 1, test_iallreduce);
    mt_run("scan, exscan", 1, test_scan);
    mt_run("reduce_scatter, reduce_scatter_block", 1, test_reduce_scatter);
    mt_run("gather, allgather, scatter", 1, test_gather);
    mt_run("gatherv, allgatherv, scatterv", 1, test_vectors);
    mt_run("alltoall, ialltoall", 1, test_alltoall);
    mt_run("alltoallv", 1, test_alltoallv);

    return mt_finish();
}
