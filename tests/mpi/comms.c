/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators: duplicates, splits, inter-communicators, groups, topologies, and many of them.
 * The same tag on different communicators must never mix.
 */
#include "mpi_test.h"

#include <stdlib.h>
#include <string.h>

#define TAG 61

static const size_t comm_sizes[] = {0, 8, 113, 8440, 40000, 200000};
#define NUM_COMM_SIZES ((int)MT_COUNT(comm_sizes))

/* Send on the communicators in one order and receive in the other. */
static void cross_exchange(MPI_Comm *comms, int count, int peer)
{
    MPI_Request *requests = mt_alloc((size_t)count * sizeof(*requests));
    mt_buf_t    *out      = mt_alloc((size_t)count * sizeof(*out)), in;
    MPI_Status   status;
    int          i;

    for (i = 0; i < count; ++i) {
        out[i] = mt_buf_alloc(comm_sizes[i % NUM_COMM_SIZES], 0);
        data_fill(out[i].data, out[i].length, mt_key(mt.rank, peer, TAG, (uint64_t)i));
        MPI_Isend(out[i].data, (int)out[i].length, MPI_BYTE, peer, TAG, comms[i], &requests[i]);
    }
    for (i = count - 1; i >= 0; --i) {
        in = mt_buf_alloc(comm_sizes[i % NUM_COMM_SIZES], 0);
        MPI_Recv(in.data, (int)in.length, MPI_BYTE, peer, TAG, comms[i], &status);
        mt_check_status(&status, peer, TAG, in.length);
        mt_buf_verify(&in, mt_key(peer, mt.rank, TAG, (uint64_t)i), "communicator's message");
        mt_buf_free(&in);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (i = 0; i < count; ++i) {
        mt_buf_free(&out[i]);
    }
    free(out);
    free(requests);
}

static void test_many_dups(void)
{
    int       peer = mt_pair_peer(), count = 10 * mt.iters, i;
    MPI_Comm *comms = mt_alloc((size_t)count * sizeof(*comms));

    for (i = 0; i < count; ++i) {
        MPI_Comm_dup(i ? comms[i - 1] : MPI_COMM_WORLD, &comms[i]);
    }
    if (peer != MPI_PROC_NULL) {
        cross_exchange(comms, count, peer);
    }
    for (i = 0; i < count; ++i) {
        MPI_Comm_free(&comms[i]);
    }
    free(comms);
}

/* Ids of freed communicators are used again; messages must still find the right one. */
static void test_create_free(void)
{
    int      i, sum;
    MPI_Comm comm;

    for (i = 0; i < 20 * mt.iters; ++i) {
        MPI_Comm_split(MPI_COMM_WORLD, 0, (i % 2) ? mt.rank : -mt.rank, &comm);
        sum = mt.rank;
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
        MT_CHECK(sum == mt.size * (mt.size - 1) / 2, "round %d: sum %d", i, sum);
        MPI_Comm_free(&comm);
    }
}

/* Colours split the ranks; one rank gets no communicator at all. */
static void test_split(void)
{
    int      colours, colour, rank, size, expected, sum, i;
    MPI_Comm comm;

    for (colours = 1; colours <= mt.size; ++colours) {
        colour = (mt.rank == mt.size - 1) ? MPI_UNDEFINED : mt.rank % colours;
        MPI_Comm_split(MPI_COMM_WORLD, colour, -mt.rank, &comm);
        if (colour == MPI_UNDEFINED) {
            MT_CHECK(comm == MPI_COMM_NULL, "a communicator for MPI_UNDEFINED");
            continue;
        }
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_size(comm, &size);
        sum = mt.rank;
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
        for (expected = 0, i = 0; i < mt.size - 1; ++i) {
            expected += (i % colours == colour) ? i : 0;
        }
        MT_CHECK(sum == expected, "colour %d of %d: sum %d, expected %d", colour, colours, sum,
                 expected);
        /* keys reverse the order */
        MT_CHECK(rank == size - 1 - mt.rank / colours, "colour %d of %d: rank %d", colour, colours,
                 rank);
        MPI_Comm_free(&comm);
    }
}

/* Even and odd ranks talk across an inter-communicator. */
static void test_intercomm(void)
{
    int        is_odd = mt.rank % 2, local_rank, remote_size, i, in, sum, expected;
    MPI_Comm   local, inter, merged;
    MPI_Status status;
    mt_buf_t   buf;

    MPI_Comm_split(MPI_COMM_WORLD, is_odd, mt.rank, &local);
    MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, !is_odd, 77, &inter);
    MPI_Comm_rank(local, &local_rank);
    MPI_Comm_remote_size(inter, &remote_size);

    for (i = 0; i < NUM_COMM_SIZES; ++i) {
        if (local_rank >= remote_size) {
            break; /* an odd one out */
        }
        int peer = 2 * local_rank + !is_odd; /* in the world */

        if (peer >= mt.size) {
            break;
        }
        buf = mt_buf_alloc(comm_sizes[i], 0);
        if (is_odd) {
            data_fill(buf.data, buf.length, mt_key(mt.rank, peer, TAG, (uint64_t)i));
            MPI_Send(buf.data, (int)buf.length, MPI_BYTE, local_rank, TAG, inter);
        } else {
            MPI_Recv(buf.data, (int)buf.length, MPI_BYTE, MPI_ANY_SOURCE, TAG, inter, &status);
            mt_check_status(&status, local_rank, TAG, buf.length);
            mt_buf_verify(&buf, mt_key(peer, mt.rank, TAG, (uint64_t)i), "inter-communicator");
        }
        mt_buf_free(&buf);
    }

    /* Each side gets the sum of the other. */
    in = mt.rank;
    MPI_Allreduce(&in, &sum, 1, MPI_INT, MPI_SUM, inter);
    for (expected = 0, i = !is_odd; i < mt.size; i += 2) {
        expected += i;
    }
    MT_CHECK(sum == expected, "allreduce across: %d, expected %d", sum, expected);

    MPI_Intercomm_merge(inter, is_odd, &merged);
    MPI_Allreduce(&in, &sum, 1, MPI_INT, MPI_SUM, merged);
    MT_CHECK(sum == mt.size * (mt.size - 1) / 2, "merged: sum %d", sum);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&local);
}

static void test_group(void)
{
    int      *ranks = mt_alloc((size_t)mt.size * sizeof(int)), i, count = 0, sum = mt.rank, rank;
    MPI_Group world, group;
    MPI_Comm  comm;

    for (i = mt.size - 1; i >= 0; i -= 2) {
        ranks[count++] = i;
    }
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, count, ranks, &group);
    MPI_Comm_create(MPI_COMM_WORLD, group, &comm);
    if (comm != MPI_COMM_NULL) {
        MPI_Comm_rank(comm, &rank);
        MT_CHECK(ranks[rank] == mt.rank, "rank %d of the group is %d", rank, ranks[rank]);
        MPI_Bcast(&sum, 1, MPI_INT, count - 1, comm);
        MT_CHECK(sum == ranks[count - 1], "bcast in the group: %d", sum);
        MPI_Comm_free(&comm);
    }
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    free(ranks);
}

/* A periodic ring, and the neighbours' collective over it. */
static void test_cartesian(void)
{
    int      periodic = 1, left, right, i, out[2], in[2];
    MPI_Comm ring;

    MPI_Cart_create(MPI_COMM_WORLD, 1, &mt.size, &periodic, 0, &ring);
    MPI_Cart_shift(ring, 0, 1, &left, &right);
    for (i = 0; i < mt.iters; ++i) {
        out[0] = 2 * (mt.rank * 1000 + i);
        out[1] = 2 * (mt.rank * 1000 + i) + 1;
        MPI_Neighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, ring);
        /* With two ranks both neighbours are the same one and the order is by dimension. */
        if (mt.size > 2) {
            MT_CHECK(in[0] == 2 * (left * 1000 + i) + 1, "from the left: %d", in[0]);
            MT_CHECK(in[1] == 2 * (right * 1000 + i), "from the right: %d", in[1]);
        }
    }
    MPI_Comm_free(&ring);
}

/* Messages to oneself on MPI_COMM_SELF and on a duplicate of it. */
static void test_self(void)
{
    MPI_Comm    comms[2] = {MPI_COMM_SELF, MPI_COMM_NULL};
    int         i, j;
    mt_buf_t    in, out;
    MPI_Request request;

    MPI_Comm_dup(MPI_COMM_SELF, &comms[1]);
    for (i = 0; i < NUM_COMM_SIZES; ++i) {
        for (j = 0; j < 2; ++j) {
            in  = mt_buf_alloc(comm_sizes[i], 1);
            out = mt_buf_alloc(comm_sizes[i], 1);
            data_fill(out.data, out.length, mt_key(mt.rank, mt.rank, j, (uint64_t)i));
            MPI_Isend(out.data, (int)out.length, MPI_BYTE, 0, TAG, comms[j], &request);
            MPI_Recv(in.data, (int)in.length, MPI_BYTE, 0, TAG, comms[j], MPI_STATUS_IGNORE);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            mt_buf_verify(&in, mt_key(mt.rank, mt.rank, j, (uint64_t)i), "self");
            mt_buf_free(&in);
            mt_buf_free(&out);
        }
    }
    MPI_Comm_free(&comms[1]);
}

static char *program;

#define SPAWN_ARGUMENT "--spawned"

/* One message each way between a parent and each child, through the inter-communicator. */
static void spawn_exchange(MPI_Comm inter, bool is_parent)
{
    size_t   size = 100000;
    mt_buf_t buf  = mt_buf_alloc(size, 0);
    int      i, remote_size, rank;

    MPI_Comm_remote_size(inter, &remote_size);
    MPI_Comm_rank(inter, &rank);
    for (i = 0; i < remote_size; ++i) {
        if (is_parent) {
            data_fill(buf.data, size, mt_key(rank, i, TAG, 1));
            MPI_Send(buf.data, (int)size, MPI_BYTE, i, TAG, inter);
            MPI_Recv(buf.data, (int)size, MPI_BYTE, i, TAG, inter, MPI_STATUS_IGNORE);
            mt_buf_verify(&buf, mt_key(i, rank, TAG, 2), "from a child");
        } else {
            MPI_Recv(buf.data, (int)size, MPI_BYTE, i, TAG, inter, MPI_STATUS_IGNORE);
            mt_buf_verify(&buf, mt_key(i, rank, TAG, 1), "from a parent");
            data_fill(buf.data, size, mt_key(rank, i, TAG, 2));
            MPI_Send(buf.data, (int)size, MPI_BYTE, i, TAG, inter);
        }
    }
    mt_buf_free(&buf);
}

static void test_spawn(void)
{
    char     argument[]  = SPAWN_ARGUMENT;
    char    *arguments[] = {argument, NULL};
    MPI_Comm inter;

    MPI_Comm_spawn(program, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                   MPI_ERRCODES_IGNORE);
    spawn_exchange(inter, true);
    MPI_Comm_disconnect(&inter);
}

/* A wrong message makes the child fail, and with it the job. */
static int spawned_main(int *argc, char ***argv)
{
    MPI_Comm inter;

    MPI_Init(argc, argv);
    MPI_Comm_get_parent(&inter);
    spawn_exchange(inter, false);
    MPI_Comm_disconnect(&inter);
    MPI_Finalize();
    return mt_failed() ? 1 : 0;
}

int main(int argc, char **argv)
{
    program = argv[0];
    if ((argc > 1) && !strcmp(argv[argc - 1], SPAWN_ARGUMENT)) {
        return spawned_main(&argc, &argv);
    }

    mt_start(&argc, &argv, MPI_THREAD_SINGLE, "communicators", (mt_state_t){.iters = 10});

    mt_run("many duplicates, messages cross", 2, test_many_dups);
    mt_run("create and free", 1, test_create_free);
    mt_run("split", 1, test_split);
    mt_run("inter-communicator and merge", 2, test_intercomm);
    mt_run("group in another order", 1, test_group);
    mt_run("ring topology", 1, test_cartesian);
    mt_run("MPI_COMM_SELF", 1, test_self);
    if (OMPI_MAJOR_VERSION >= 5) {
        mt_skip("MPI_Comm_spawn",
                "children don't get the environment that Open MPI 5 gives to ranks");
    } else {
        mt_run("MPI_Comm_spawn", 1, test_spawn);
    }

    return mt_finish();
}
