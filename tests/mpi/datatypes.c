/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Derived datatypes: strided, indexed, structured, resized and sub-array layouts, sent to the same
 * layout, to a contiguous one and to another layout. What belongs to the type must arrive, and
 * the gaps must stay as they were.
 */
#include "mpi_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG      31
#define GAP_BYTE 0x5a

/* Which bytes of a buffer belong to `count` items of a type, in the order in which they go. */
typedef struct {
    MPI_Datatype type;
    size_t       span;   /* bytes of buffer that the items need */
    size_t      *offset; /* of each byte */
    size_t       size;   /* number of bytes that travel */
    size_t       capacity;
} layout_t;

static void layout_add(layout_t *layout, size_t offset, size_t length)
{
    size_t i;

    if (layout->size + length > layout->capacity) {
        layout->capacity = 2 * (layout->size + length);
        layout->offset   = realloc(layout->offset, layout->capacity * sizeof(size_t));
    }
    for (i = 0; i < length; ++i) {
        layout->offset[layout->size++] = offset + i;
    }
    if (offset + length > layout->span) {
        layout->span = offset + length;
    }
}

static void layout_free(layout_t *layout)
{
    MPI_Type_free(&layout->type);
    free(layout->offset);
}

/* n is about the number of bytes that travel, in one item. */
typedef layout_t (*layout_func_t)(size_t n);

static layout_t layout_contiguous(size_t n)
{
    layout_t layout = {.span = 0};

    MPI_Type_contiguous((int)n, MPI_BYTE, &layout.type);
    MPI_Type_commit(&layout.type);
    layout_add(&layout, 0, n);
    return layout;
}

/* Columns of a matrix of doubles. */
static layout_t layout_vector(size_t n)
{
    size_t   blocks = n / (3 * sizeof(double)) + 1, i;
    layout_t layout = {.span = 0};

    MPI_Type_vector((int)blocks, 3, 7, MPI_DOUBLE, &layout.type);
    MPI_Type_commit(&layout.type);
    for (i = 0; i < blocks; ++i) {
        layout_add(&layout, i * 7 * sizeof(double), 3 * sizeof(double));
    }
    return layout;
}

/* Single bytes with byte gaps: nothing is aligned. */
static layout_t layout_hvector(size_t n)
{
    layout_t layout = {.span = 0};
    size_t   i;

    MPI_Type_create_hvector((int)n, 1, 3, MPI_BYTE, &layout.type);
    MPI_Type_commit(&layout.type);
    for (i = 0; i < n; ++i) {
        layout_add(&layout, 3 * i, 1);
    }
    return layout;
}

/* Blocks of growing length, in descending order of address. */
static layout_t layout_indexed(size_t n)
{
    int      blocks = 1, i, *lengths, *displs;
    layout_t layout = {.span = 0};
    int      position;

    while ((size_t)(blocks * (blocks + 1) / 2) * sizeof(int) < n) {
        ++blocks;
    }
    lengths  = mt_alloc((size_t)blocks * sizeof(int));
    displs   = mt_alloc((size_t)blocks * sizeof(int));
    position = 0;
    for (i = blocks - 1; i >= 0; --i) {
        lengths[i] = i + 1;
        displs[i]  = position;
        position += lengths[i] + 2;
    }
    MPI_Type_indexed(blocks, lengths, displs, MPI_INT, &layout.type);
    MPI_Type_commit(&layout.type);
    for (i = 0; i < blocks; ++i) {
        layout_add(&layout, (size_t)displs[i] * sizeof(int), (size_t)lengths[i] * sizeof(int));
    }
    free(lengths);
    free(displs);
    return layout;
}

typedef struct {
    char   c;
    double d[2];
    short  s;
    int    i[3];
} record_t;

/* Many records with padding, resized to the C struct. */
static layout_t layout_struct(size_t n)
{
    static const int      lengths[]   = {1, 2, 1, 3};
    static const MPI_Aint displs[]    = {offsetof(record_t, c), offsetof(record_t, d),
                                         offsetof(record_t, s), offsetof(record_t, i)};
    const MPI_Datatype    types[]     = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT, MPI_INT};
    static const size_t   type_size[] = {sizeof(char), sizeof(double), sizeof(short), sizeof(int)};
    size_t                records     = n / 31 + 1, record, field;
    MPI_Datatype          one, resized;
    layout_t              layout = {.span = 0};

    MPI_Type_create_struct(4, lengths, displs, types, &one);
    MPI_Type_create_resized(one, 0, sizeof(record_t), &resized);
    MPI_Type_contiguous((int)records, resized, &layout.type);
    MPI_Type_commit(&layout.type);
    MPI_Type_free(&one);
    MPI_Type_free(&resized);
    for (record = 0; record < records; ++record) {
        for (field = 0; field < 4; ++field) {
            layout_add(&layout, record * sizeof(record_t) + (size_t)displs[field],
                       (size_t)lengths[field] * type_size[field]);
        }
    }
    return layout;
}

/* The inside of a cube, in row-major order. */
static layout_t layout_subarray(size_t n)
{
    int      edge = 1, sizes[3], subsizes[3], starts[3] = {1, 2, 1}, x, y;
    layout_t layout = {.span = 0};

    while ((size_t)(edge * edge * edge) < n) {
        ++edge;
    }
    for (x = 0; x < 3; ++x) {
        subsizes[x] = edge;
        sizes[x]    = edge + 3;
    }
    MPI_Type_create_subarray(3, sizes, subsizes, starts, MPI_ORDER_C, MPI_BYTE, &layout.type);
    MPI_Type_commit(&layout.type);
    for (x = 0; x < edge; ++x) {
        for (y = 0; y < edge; ++y) {
            layout_add(
                &layout,
                (size_t)(((x + starts[0]) * sizes[1] + y + starts[1]) * sizes[2] + starts[2]),
                (size_t)edge);
        }
    }
    layout.span = (size_t)(sizes[0] * sizes[1] * sizes[2]);
    return layout;
}

/* A vector shrunk so that items interleave, as when a matrix is transposed. */
static layout_t layout_resized(size_t n)
{
    size_t       rows = 8, columns = n / rows + 1, row, column;
    MPI_Datatype column_type, resized;
    layout_t     layout = {.span = 0};

    MPI_Type_vector((int)rows, 1, (int)columns, MPI_BYTE, &column_type);
    MPI_Type_create_resized(column_type, 0, 1, &resized);
    MPI_Type_contiguous((int)columns, resized, &layout.type);
    MPI_Type_commit(&layout.type);
    MPI_Type_free(&column_type);
    MPI_Type_free(&resized);
    for (column = 0; column < columns; ++column) {
        for (row = 0; row < rows; ++row) {
            layout_add(&layout, row * columns + column, 1);
        }
    }
    return layout;
}

static void scatter_pattern(unsigned char *data, const layout_t *layout, uint64_t key)
{
    unsigned char *flat = mt_alloc(layout->size);
    size_t         i;

    data_fill(flat, layout->size, key);
    memset(data, GAP_BYTE, layout->span);
    for (i = 0; i < layout->size; ++i) {
        data[layout->offset[i]] = flat[i];
    }
    free(flat);
}

static void verify_pattern(unsigned char *data, const layout_t *layout, size_t size, uint64_t key)
{
    unsigned char *flat = mt_alloc(layout->size);
    size_t         i;

    for (i = 0; i < layout->size; ++i) {
        flat[i]                 = data[layout->offset[i]];
        data[layout->offset[i]] = GAP_BYTE;
    }
    mt_verify(flat, size, key, "typed data");
    for (i = 0; (i < layout->span) && (data[i] == GAP_BYTE); ++i) {
    }
    MT_CHECK(i == layout->span, "a gap was written at byte %zu of %zu", i, layout->span);
    free(flat);
}

static void exchange(layout_t *out, MPI_Datatype out_type, int out_count, layout_t *in,
                     MPI_Datatype in_type, int in_count, uint64_t seq)
{
    int            peer = mt_pair_peer();
    unsigned char *send = mt_alloc(out->span);
    unsigned char *recv = mt_alloc(in->span);
    size_t         size = (out->size < in->size) ? out->size : in->size;
    MPI_Request    requests[2];

    scatter_pattern(send, out, mt_key(mt.rank, peer, TAG, seq));
    memset(recv, GAP_BYTE, in->span);
    MPI_Isend(send, out_count, out_type, peer, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(recv, in_count, in_type, peer, TAG, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    verify_pattern(recv, in, size, mt_key(peer, mt.rank, TAG, seq));
    free(send);
    free(recv);
}

static layout_func_t layout_func;

static const size_t type_sizes[] = {1, 30, 57, 250, 1000, 8200, 20000, 70000, 270000, 1100000};
#define NUM_TYPE_SIZES MT_COUNT(type_sizes)

/* Same type on both sides; then typed to contiguous, and contiguous to typed. */
static void test_layout(void)
{
    layout_t layout, flat;
    size_t   i;

    if (mt_pair_peer() == MPI_PROC_NULL) {
        return;
    }
    for (i = 0; (i < NUM_TYPE_SIZES) && (type_sizes[i] <= mt.max_size); ++i) {
        layout = layout_func(type_sizes[i]);
        flat   = layout_contiguous(layout.size);
        exchange(&layout, layout.type, 1, &layout, layout.type, 1, 3 * i);
        exchange(&layout, layout.type, 1, &flat, flat.type, 1, 3 * i + 1);
        exchange(&flat, MPI_BYTE, (int)flat.size, &layout, layout.type, 1, 3 * i + 2);
        layout_free(&layout);
        layout_free(&flat);
    }
}

/* Different gaps on the two sides: sub-array to resized, byte by byte. */
static void test_mixed(void)
{
    layout_t out, in;
    size_t   i, n;

    if (mt_pair_peer() == MPI_PROC_NULL) {
        return;
    }
    for (i = 0; (i < NUM_TYPE_SIZES) && (type_sizes[i] <= mt.max_size); ++i) {
        out = layout_subarray(type_sizes[i]);
        for (n = out.size; n % 8 != 0; ++n) {
        }
        in = layout_hvector(n);
        exchange(&out, out.type, 1, &in, in.type, 1, i);
        layout_free(&out);
        layout_free(&in);
    }
}

/* Several items with an extent, and elements counted when less than the buffer arrives. */
static void test_count(void)
{
    int          peer = mt_pair_peer(), count, elements, i;
    MPI_Datatype pair;
    MPI_Status   status;
    double       send[2 * 100], recv[3 * 120];

    if (peer == MPI_PROC_NULL) {
        return;
    }
    MPI_Type_vector(2, 1, 2, MPI_DOUBLE, &pair); /* two doubles, extent three */
    MPI_Type_commit(&pair);
    for (i = 0; i < 200; ++i) {
        send[i] = i + 1000 * mt.rank;
    }
    for (i = 0; i < 360; ++i) {
        recv[i] = -1;
    }
    MPI_Sendrecv(send, 199, MPI_DOUBLE, peer, TAG, recv, 120, pair, peer, TAG, MPI_COMM_WORLD,
                 &status);
    MPI_Get_count(&status, pair, &count);
    MPI_Get_elements(&status, MPI_DOUBLE, &elements);
    MT_CHECK(count == MPI_UNDEFINED, "count %d of half an item", count);
    MT_CHECK(elements == 199, "%d elements", elements);
    for (i = 0; i < 199; ++i) {
        MT_CHECK(recv[i / 2 * 3 + i % 2 * 2] == i + 1000 * peer, "element %d", i);
        MT_CHECK(recv[i / 2 * 3 + 1] == -1, "gap behind element %d", i);
    }
    MPI_Type_free(&pair);
}

/* MPI_BOTTOM with absolute addresses of separate variables. */
static void test_bottom(void)
{
    int          peer = mt_pair_peer(), lengths[2] = {1, 5};
    MPI_Datatype types[2] = {MPI_INT, MPI_CHAR}, type;
    MPI_Aint     displs[2];
    char         text[6] = "send", got_text[6] = "";
    int          number = 77 + mt.rank, got_number = 0;
    MPI_Datatype in;

    if (peer == MPI_PROC_NULL) {
        return;
    }
    MPI_Get_address(&number, &displs[0]);
    MPI_Get_address(text, &displs[1]);
    MPI_Type_create_struct(2, lengths, displs, types, &type);
    MPI_Type_commit(&type);
    MPI_Get_address(&got_number, &displs[0]);
    MPI_Get_address(got_text, &displs[1]);
    MPI_Type_create_struct(2, lengths, displs, types, &in);
    MPI_Type_commit(&in);
    MPI_Sendrecv(MPI_BOTTOM, 1, type, peer, TAG, MPI_BOTTOM, 1, in, peer, TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MT_CHECK(got_number == 77 + peer, "number %d", got_number);
    MT_CHECK(!strcmp(got_text, "send"), "text '%s'", got_text);
    MPI_Type_free(&type);
    MPI_Type_free(&in);
}

int main(int argc, char **argv)
{
    static const struct {
        const char   *name;
        layout_func_t func;
    } layouts[] = {{"contiguous", layout_contiguous},       {"vector", layout_vector},
                   {"hvector of bytes", layout_hvector},    {"indexed", layout_indexed},
                   {"struct with padding", layout_struct},  {"subarray", layout_subarray},
                   {"resized, interleaved", layout_resized}};
    size_t i;

    mt_start(&argc, &argv, MPI_THREAD_SINGLE, "derived datatypes", (mt_state_t){.max_size = 0});

    for (i = 0; i < MT_COUNT(layouts); ++i) {
        layout_func = layouts[i].func;
        mt_run(layouts[i].name, 2, test_layout);
    }
    mt_run("different types on both sides", 2, test_mixed);
    mt_run("part of the items", 2, test_count);
    mt_run("MPI_BOTTOM", 2, test_bottom);

    return mt_finish();
}
