/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accumulates of one-sided communication by type and layout: elements of 1 to 16 bytes, integers
 * and floating point, pairs of a value and an index, derived types of several counts; alone, and
 * against those of other ranks. What must come out is computed beside it.
 */
#include "mpi_test.h"

#include <stdlib.h>
#include <string.h>

#define ELEMENTS 24 /* of a window, for each origin */
#define ROUNDS   8
#define BYTES    (ELEMENTS * (size_t)64) /* no element, with its gap, is longer than 32 */

/* ---- types ----------------------------------------------------------------------------------- */

typedef struct {
    const char  *name;
    MPI_Datatype type;
    size_t       extent;
    void (*set)(void *at, int value); /* 0 to 63 */
    int (*get)(const void *at);
    bool is_integer;
} kind_t;

#define KIND_FUNCTIONS(_name, _type)             \
    static void set_##_name(void *at, int value) \
    {                                            \
        _type number = (_type)value;             \
        memcpy(at, &number, sizeof(number));     \
    }                                            \
    static int get_##_name(const void *at)       \
    {                                            \
        _type number;                            \
        memcpy(&number, at, sizeof(number));     \
        return (int)number;                      \
    }

KIND_FUNCTIONS(char, signed char)
KIND_FUNCTIONS(short, short)
KIND_FUNCTIONS(int, int)
KIND_FUNCTIONS(long, long)
KIND_FUNCTIONS(float, float)
KIND_FUNCTIONS(double, double)
KIND_FUNCTIONS(long_double, long double)

#define KIND(_name, _type, _mpi, _is_integer)                             \
    {                                                                     \
#_mpi, _mpi, sizeof(_type), set_##_name, get_##_name, _is_integer \
    }

static const kind_t kinds[] = {
    KIND(char, signed char, MPI_SIGNED_CHAR, true),
    KIND(short, short, MPI_SHORT, true),
    KIND(int, int, MPI_INT, true),
    KIND(long, long, MPI_LONG, true),
    KIND(float, float, MPI_FLOAT, false),
    KIND(double, double, MPI_DOUBLE, false),
    KIND(long_double, long double, MPI_LONG_DOUBLE, false),
};

/* ---- windows --------------------------------------------------------------------------------- */

/* `bytes` for each origin. */
static mt_window_t window_open(mt_window_kind_t kind, size_t bytes)
{
    mt_window_t window = mt_window_open(kind, bytes * (size_t)mt.size, MPI_INFO_NULL);

    MPI_Win_lock_all(0, window.win);
    MPI_Win_sync(window.win);
    MPI_Barrier(MPI_COMM_WORLD);
    return window;
}

/* All have done what they do, and it is visible. */
static void window_settle(const mt_window_t *window)
{
    MPI_Win_flush_all(window->win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(window->win);
}

static void window_close(mt_window_t *window)
{
    MPI_Win_unlock_all(window->win);
    mt_window_close(window);
}

static void each_window(void (*func)(const mt_window_t *window, const kind_t *kind))
{
    for (mt_window_kind_t kind_of = 0; kind_of < MT_WINDOW_KINDS; ++kind_of) {
        for (size_t i = 0; i < MT_COUNT(kinds); ++i) {
            mt_window_t window = window_open(kind_of, BYTES);

            func(&window, &kinds[i]);
            window_settle(&window);
            window_close(&window);
        }
    }
}

/* ---- one element, by all ranks at once ------------------------------------------------------- */

static void fetch_sum(const mt_window_t *window, const kind_t *kind)
{
    _Alignas(16) unsigned char value[16], old[16];
    int                        got, last = -1;

    kind->set(value, 1);
    for (int i = 0; i < ROUNDS; ++i) {
        memset(old, 0xff, sizeof(old));
        MPI_Fetch_and_op(value, old, kind->type, 0, mt_window_at(window, 0, 0), MPI_SUM,
                         window->win);
        MPI_Win_flush(0, window->win);
        got = kind->get(old);
        MT_CHECK(got > last && got < ROUNDS * mt.size, "%s: %d after %d", kind->name, got, last);
        last = got;
    }
    window_settle(window);
    if (mt.rank == 0) {
        got = kind->get(window->base);
        MT_CHECK(got == ROUNDS * mt.size, "%s: the sum is %d", kind->name, got);
    }
}

static void fetch_other(const mt_window_t *window, const kind_t *kind)
{
    int                        target = (mt.rank + 1) % mt.size;
    _Alignas(16) unsigned char value[16], old[16];
    MPI_Op                     ops[] = {MPI_REPLACE, MPI_NO_OP, MPI_MAX, MPI_PROD};
    const int                  is[] = {5, 5, 7, 21}, gives[] = {0, 5, 5, 7}; /* after, and told */

    for (size_t i = 0; i < MT_COUNT(ops); ++i) {
        kind->set(value, (ops[i] == MPI_REPLACE) ? 5 : (ops[i] == MPI_MAX) ? 7 : 3);
        memset(old, 0xff, sizeof(old));
        MPI_Fetch_and_op((ops[i] == MPI_NO_OP) ? NULL : value, old, kind->type, target,
                         mt_window_at(window, target, 16), ops[i], window->win);
        MPI_Win_flush(target, window->win);
        MT_CHECK(kind->get(old) == gives[i], "%s, operation %zu: %d", kind->name, i,
                 kind->get(old));
        MPI_Fetch_and_op(NULL, old, kind->type, target, mt_window_at(window, target, 16), MPI_NO_OP,
                         window->win);
        MPI_Win_flush(target, window->win);
        MT_CHECK(kind->get(old) == is[i], "%s, operation %zu left %d", kind->name, i,
                 kind->get(old));
    }
}

static void compare_and_swap(const mt_window_t *window, const kind_t *kind)
{
    _Alignas(16) unsigned char value[16], expected[16], old[16];
    int                        got;

    if (!kind->is_integer) {
        return; /* the standard has it for integers and bytes */
    }
    for (int i = 0; i < ROUNDS; ++i) { /* a counter */
        for (got = 0;; got = kind->get(old)) {
            kind->set(expected, got);
            kind->set(value, got + 1);
            MPI_Compare_and_swap(value, expected, old, kind->type, 0, mt_window_at(window, 0, 32),
                                 window->win);
            MPI_Win_flush(0, window->win);
            if (kind->get(old) == got) {
                break;
            }
            MT_CHECK(kind->get(old) > got, "%s: %d, and before %d", kind->name, kind->get(old),
                     got);
            if (mt_failed()) {
                return;
            }
        }
    }
    window_settle(window);
    if (mt.rank == 0) {
        got = kind->get(window->base + 32);
        MT_CHECK(got == ROUNDS * mt.size, "%s: the counter is %d", kind->name, got);
        for (size_t i = 0; i < 16; ++i) {
            MT_CHECK(window->base[16 + i] == 0 && (i < kind->extent || window->base[32 + i] == 0),
                     "%s: byte %zu beside it has changed", kind->name, i);
        }
    }
}

static void fetch_sum_all(void)
{
    each_window(fetch_sum);
}

static void fetch_other_all(void)
{
    each_window(fetch_other);
}

static void compare_and_swap_all(void)
{
    each_window(compare_and_swap);
}

/* ---- many elements, by layout ---------------------------------------------------------------- */

/* `count` times a derived type; element i of the packed data is at at[i], in extents. */
typedef struct {
    const char  *name;
    MPI_Datatype type;
    int          count;
    int          at[ELEMENTS];
} layout_t;

#define NUM_LAYOUTS 7

static layout_t layout_make(int which, const kind_t *kind)
{
    layout_t layout   = {.count = 1};
    int      blocks[] = {5, 1, 6}, places[] = {14, 20, 2};
    MPI_Aint shift  = (MPI_Aint)(3 * kind->extent);
    int      twelve = 12, last = -1;

    for (int i = 0; i < 12; ++i) {
        layout.at[i] = i;
    }
    switch (which) {
    case 0:
        layout.name  = "plain";
        layout.count = 12;
        MPI_Type_dup(kind->type, &layout.type);
        break;
    case 1:
        layout.name  = "contiguous, several";
        layout.count = 4;
        MPI_Type_contiguous(3, kind->type, &layout.type);
        break;
    case 2:
        layout.name = "vector";
        MPI_Type_vector(4, 3, 5, kind->type, &layout.type);
        for (int i = 0; i < 12; ++i) {
            layout.at[i] = i / 3 * 5 + i % 3;
        }
        break;
    case 3:
        layout.name  = "vector, several";
        layout.count = 3;
        MPI_Type_vector(2, 2, 3, kind->type, &layout.type);
        for (int i = 0; i < 12; ++i) {
            layout.at[i] = i / 4 * 5 + i % 4 / 2 * 3 + i % 2;
        }
        break;
    case 4:
        layout.name = "contiguous, with an offset";
        MPI_Type_create_hindexed(1, &twelve, &shift, kind->type, &layout.type);
        for (int i = 0; i < 12; ++i) {
            layout.at[i] = 3 + i;
        }
        break;
    case 5:
        layout.name = "halves in reverse order";
        MPI_Type_indexed(2, (const int[]){6, 6}, (const int[]){6, 0}, kind->type, &layout.type);
        for (int i = 0; i < 12; ++i) {
            layout.at[i] = (i + 6) % 12;
        }
        break;
    default:
        layout.name = "indexed, not in order";
        MPI_Type_indexed(3, blocks, places, kind->type, &layout.type);
        for (int block = 0; block < 3; ++block) {
            for (int i = 0; i < blocks[block]; ++i) {
                layout.at[++last] = places[block] + i;
            }
        }
        break;
    }
    MPI_Type_commit(&layout.type);
    return layout;
}

static int place_of(const layout_t *layout, int at)
{
    for (int i = 0; i < 12; ++i) {
        if (layout->at[i] == at) {
            return i;
        }
    }
    return -1;
}

typedef enum { PLAIN, REQUEST } how_t;

/* Without a result, and visible at the target when it returns. */
static void accumulate(const void *values, const layout_t *origin, int peer, MPI_Aint place,
                       const layout_t *target, MPI_Op op, how_t how, const mt_window_t *window)
{
    MPI_Request request;

    if (how == REQUEST) {
        MPI_Raccumulate(values, origin->count, origin->type, peer, place, target->count,
                        target->type, op, window->win, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Accumulate(values, origin->count, origin->type, peer, place, target->count,
                       target->type, op, window->win);
    }
    MPI_Win_flush(peer, window->win);
}

static void accumulate_layouts(const mt_window_t *window, const kind_t *kind,
                               const layout_t *origin, const layout_t *target, how_t how)
{
    int            peer   = (mt.rank + 1) % mt.size;
    MPI_Aint       place  = mt_window_at(window, peer, BYTES * (size_t)mt.rank);
    unsigned char *values = mt_alloc(BYTES), *olds = mt_alloc(BYTES), *now = mt_alloc(BYTES);
    MPI_Op         ops[]        = {MPI_REPLACE, MPI_SUM, MPI_MAX, MPI_NO_OP};
    int            is[ELEMENTS] = {0}, was[ELEMENTS];
    MPI_Request    request;

    memset(now, 0, BYTES);
    MPI_Put(now, (int)(ELEMENTS * kind->extent), MPI_BYTE, peer, place,
            (int)(ELEMENTS * kind->extent), MPI_BYTE, window->win);
    MPI_Win_flush(peer, window->win);
    for (size_t op = 0; op < MT_COUNT(ops); ++op) {
        memset(olds, 0, BYTES);
        for (int i = 0; i < ELEMENTS; ++i) {
            kind->set(values + (size_t)i * kind->extent, (i * 5 + (int)op) % 13);
            was[i] = is[i];
        }
        for (int i = 0; i < 12; ++i) {
            int *value = &is[target->at[i]];
            int  with  = (origin->at[i] * 5 + (int)op) % 13;

            *value = (ops[op] == MPI_REPLACE)              ? with :
                     (ops[op] == MPI_SUM)                  ? *value + with :
                     (ops[op] == MPI_MAX && *value < with) ? with :
                                                             *value;
        }
        if (how == REQUEST) {
            MPI_Rget_accumulate(values, origin->count, origin->type, olds, origin->count,
                                origin->type, peer, place, target->count, target->type, ops[op],
                                window->win, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Get_accumulate(values, origin->count, origin->type, olds, origin->count,
                               origin->type, peer, place, target->count, target->type, ops[op],
                               window->win);
            MPI_Win_flush(peer, window->win);
        }
        for (int i = 0; i < ELEMENTS; ++i) {
            int packed = place_of(origin, i);
            int wanted = (packed < 0) ? 0 : was[target->at[packed]];
            int got    = kind->get(olds + (size_t)i * kind->extent);

            MT_CHECK(got == wanted, "%s, %s to %s, operation %zu: told %d at %d, not %d",
                     kind->name, origin->name, target->name, op, got, i, wanted);
        }
        if (ops[op] == MPI_SUM) { /* and twice more, without a result */
            for (int i = 0; i < 12; ++i) {
                is[target->at[i]] = 2 * ((origin->at[i] * 5 + (int)op) % 13);
            }
            accumulate(values, origin, peer, place, target, MPI_REPLACE, how, window);
            accumulate(values, origin, peer, place, target, MPI_SUM, how, window);
        }
        MPI_Get(now, (int)(ELEMENTS * kind->extent), MPI_BYTE, peer, place,
                (int)(ELEMENTS * kind->extent), MPI_BYTE, window->win);
        MPI_Win_flush(peer, window->win);
        for (int i = 0; i < ELEMENTS; ++i) {
            int got = kind->get(now + (size_t)i * kind->extent);

            MT_CHECK(got == is[i], "%s, %s to %s, operation %zu left %d at %d, not %d", kind->name,
                     origin->name, target->name, op, got, i, is[i]);
        }
    }
    free(values);
    free(olds);
    free(now);
}

static void layouts(const mt_window_t *window, const kind_t *kind)
{
    layout_t all[NUM_LAYOUTS];

    for (int i = 0; i < NUM_LAYOUTS; ++i) {
        all[i] = layout_make(i, kind);
    }
    for (int i = 0; i < NUM_LAYOUTS; ++i) {
        for (int k = 0; k < NUM_LAYOUTS && !mt_failed(); ++k) {
            accumulate_layouts(window, kind, &all[i], &all[k], PLAIN);
            accumulate_layouts(window, kind, &all[i], &all[k], REQUEST);
        }
    }
    for (int i = 0; i < NUM_LAYOUTS; ++i) {
        MPI_Type_free(&all[i].type);
    }
}

static void layouts_all(void)
{
    each_window(layouts);
}

/* Element-wise atomicity: all ranks add to the same elements, each by another layout. */
static void atomicity(const mt_window_t *window, const kind_t *kind)
{
    layout_t                   layout = layout_make(1 + mt.rank % (NUM_LAYOUTS - 1), kind);
    _Alignas(16) unsigned char ones[ELEMENTS * 16];
    int                        mine[ELEMENTS] = {0}, all[ELEMENTS];

    for (int i = 0; i < ELEMENTS; ++i) {
        kind->set(ones + (size_t)i * kind->extent, 1);
    }
    for (int round = 0; round < ROUNDS; ++round) {
        MPI_Accumulate(ones, 12, kind->type, 0, mt_window_at(window, 0, 0), layout.count,
                       layout.type, MPI_SUM, window->win);
        for (int i = 0; i < 12; ++i) {
            mine[layout.at[i]]++;
        }
    }
    window_settle(window);
    MPI_Allreduce(mine, all, ELEMENTS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; mt.rank == 0 && i < ELEMENTS; ++i) {
        int got = kind->get(window->base + (size_t)i * kind->extent);

        MT_CHECK(got == all[i], "%s: %d at %d, not %d", kind->name, got, i, all[i]);
    }
    MPI_Type_free(&layout.type);
}

static void atomicity_all(void)
{
    each_window(atomicity);
}

/* ---- pairs of a value and an index ----------------------------------------------------------- */

#define PAIRS 200

typedef struct {
    double value;
    int    index;
} many_t;

/* More than are worked on at once, in more runs of bytes than are looked at at once. */
static void many_pairs(const mt_window_t *window)
{
    many_t       mine[PAIRS], *now = mt_alloc(2 * PAIRS * sizeof(*now));
    int          peer  = (mt.rank + 1) % mt.size;
    MPI_Aint     place = mt_window_at(window, peer, 2 * sizeof(mine) * (size_t)mt.rank);
    MPI_Datatype every_second;

    memset(mine, 0, sizeof(mine));
    for (int i = 0; i < PAIRS; ++i) {
        mine[i].value = i % 3;
        mine[i].index = 100 + i;
    }
    MPI_Type_vector(PAIRS, 1, 2, MPI_DOUBLE_INT, &every_second);
    MPI_Type_commit(&every_second);
    MPI_Accumulate(mine, PAIRS, MPI_DOUBLE_INT, peer, place, 1, every_second, MPI_MAXLOC,
                   window->win);
    MPI_Win_flush(peer, window->win);
    MPI_Get(now, (int)(2 * sizeof(mine)), MPI_BYTE, peer, place, (int)(2 * sizeof(mine)), MPI_BYTE,
            window->win);
    MPI_Win_flush(peer, window->win);
    for (int i = 0; i < 2 * PAIRS; ++i) {
        int value = (i % 2) ? 0 : i / 2 % 3;

        MT_CHECK(now[i].value == value && now[i].index == ((value == 0) ? 0 : 100 + i / 2),
                 "element %d: %g, %d", i, now[i].value, now[i].index);
    }
    MPI_Type_free(&every_second);
    free(now);
}

#define PAIR_TEST(_name, _type, _mpi)                                                          \
    static void pairs_##_name(const mt_window_t *window, bool is_derived)                      \
    {                                                                                          \
        struct {                                                                               \
            _type value;                                                                       \
            int   index;                                                                       \
        } mine[ELEMENTS], old[ELEMENTS], now[ELEMENTS];                                        \
        int          peer = (mt.rank + 1) % mt.size, step = is_derived ? 2 : 1;                \
        MPI_Aint     place = mt_window_at(window, peer, BYTES * (size_t)mt.rank);              \
        MPI_Datatype type;                                                                     \
        memset(mine, 0, sizeof(mine));                                                         \
        memset(old, 0, sizeof(old));                                                           \
        MPI_Type_vector(ELEMENTS / step, 1, step, _mpi, &type);                                \
        MPI_Type_commit(&type);                                                                \
        MPI_Put(old, (int)sizeof(old), MPI_BYTE, peer, place, (int)sizeof(old), MPI_BYTE,      \
                window->win);                                                                  \
        MPI_Win_flush(peer, window->win);                                                      \
        for (int i = 0; i < ELEMENTS; ++i) {                                                   \
            mine[i].value = (_type)(i % 3);                                                    \
            mine[i].index = 100 + i;                                                           \
        }                                                                                      \
        MPI_Get_accumulate(mine, is_derived ? 1 : ELEMENTS, is_derived ? type : _mpi, old,     \
                           is_derived ? 1 : ELEMENTS, is_derived ? type : _mpi, peer, place,   \
                           is_derived ? 1 : ELEMENTS, is_derived ? type : _mpi, MPI_MAXLOC,    \
                           window->win);                                                       \
        MPI_Accumulate(mine, is_derived ? 1 : ELEMENTS, is_derived ? type : _mpi, peer, place, \
                       is_derived ? 1 : ELEMENTS, is_derived ? type : _mpi, MPI_MINLOC,        \
                       window->win);                                                           \
        MPI_Win_flush(peer, window->win);                                                      \
        MPI_Get(now, (int)sizeof(now), MPI_BYTE, peer, place, (int)sizeof(now), MPI_BYTE,      \
                window->win);                                                                  \
        MPI_Win_flush(peer, window->win);                                                      \
        for (int i = 0; i < ELEMENTS; ++i) {                                                   \
            bool is_in = i % step == 0;                                                        \
            int  index = !is_in ? 0 : (i % 3 == 0) ? 0 : 100 + i;                              \
            MT_CHECK(now[i].value == (_type)(is_in ? i % 3 : 0) && now[i].index == index,      \
                     #_mpi "%s, element %d: %g, %d", is_derived ? " in a vector" : "", i,      \
                     (double)now[i].value, now[i].index);                                      \
            MT_CHECK(old[i].value == 0 && old[i].index == 0, #_mpi ", element %d: told %g", i, \
                     (double)old[i].value);                                                    \
        }                                                                                      \
        MPI_Type_free(&type);                                                                  \
    }

PAIR_TEST(short, short, MPI_SHORT_INT)
PAIR_TEST(int, int, MPI_2INT)
PAIR_TEST(float, float, MPI_FLOAT_INT)
PAIR_TEST(long, long, MPI_LONG_INT)
PAIR_TEST(double, double, MPI_DOUBLE_INT)
PAIR_TEST(long_double, long double, MPI_LONG_DOUBLE_INT)

static void pairs(void)
{
    static void (*const funcs[])(const mt_window_t *, bool) = {
        pairs_short, pairs_int, pairs_float, pairs_long, pairs_double, pairs_long_double};

    for (mt_window_kind_t kind_of = 0; kind_of < MT_WINDOW_KINDS; ++kind_of) {
        mt_window_t window = window_open(kind_of, BYTES);

        for (size_t i = 0; i < MT_COUNT(funcs); ++i) {
            funcs[i](&window, false);
            funcs[i](&window, true);
        }
        window_settle(&window);
        window_close(&window);
        window = window_open(kind_of, 2 * PAIRS * sizeof(many_t));
        many_pairs(&window);
        window_settle(&window);
        window_close(&window);
    }
}

/* What MPI_NO_OP has no use for may be anything. */
static void no_origin(const mt_window_t *window)
{
    int  peer = (mt.rank + 1) % mt.size;
    long old[2];

    for (int how = 0; how < 3; ++how) {
        memset(old, 0xff, sizeof(old));
        if (how == 0) {
            MPI_Fetch_and_op((void *)1, old, MPI_LONG, peer, mt_window_at(window, peer, 0),
                             MPI_NO_OP, window->win);
            old[1] = 0;
        } else {
            MPI_Get_accumulate((void *)1, 7, (how == 1) ? (MPI_Datatype)8 : MPI_DATATYPE_NULL, old,
                               2, MPI_LONG, peer, mt_window_at(window, peer, 0), 2, MPI_LONG,
                               MPI_NO_OP, window->win);
        }
        MPI_Win_flush(peer, window->win);
        MT_CHECK(old[0] == 0 && old[1] == 0, "told %ld, %ld", old[0], old[1]);
    }
}

static void no_origin_all(void)
{
    for (mt_window_kind_t kind = 0; kind < MT_WINDOW_KINDS; ++kind) {
        mt_window_t window = window_open(kind, BYTES);

        no_origin(&window);
        window_settle(&window);
        window_close(&window);
    }
}

int main(int argc, char **argv)
{
    mt_start(&argc, &argv, MPI_THREAD_SINGLE, "Accumulates by type and layout.",
             (mt_state_t){.timeout = 60});
    mt_run("fetch and add of every type, by all ranks", 1, fetch_sum_all);
    mt_run("other fetching operations of every type", 1, fetch_other_all);
    mt_run("compare and swap of every integer, by all ranks", 1, compare_and_swap_all);
    mt_run("accumulates of every type between all layouts", 1, layouts_all);
    mt_run("accumulates of several layouts are atomic for each element", 1, atomicity_all);
    mt_run("pairs of a value and an index", 1, pairs);
    mt_run("MPI_NO_OP looks at no origin", 1, no_origin_all);
    return mt_finish();
}
