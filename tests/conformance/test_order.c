/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order rules of the NIC model, each watched from where it matters: the target looks at its own
 * memory while the initiator is still issuing, so that nothing but the rule itself orders what it
 * sees. Chaos mode breaks everything that these rules don't promise.
 */
#include "conf.h"

#include <cmocka.h>

#define PIECE 40000u

typedef struct {
    int shared;
} kind_t;

static const kind_t kind_private = {0}, kind_shared = {1};

typedef struct {
    conf_mem_t mem; /* written by the peer: flag word at 0, a word of atomics at 64, data behind */
    conf_mem_t buf;
    uint64_t   keys[RANK_MAX];
} regions_t;

#define DATA 4096u

static void regions_init(conf_t *t, regions_t *r)
{
    const kind_t *kind = t->arg;

    conf_mem_init(t, &r->mem, kind->shared, DATA + 16 * PIECE, ANGARA_ACCESS_ALL);
    conf_mem_init(t, &r->buf, 0, DATA + 16 * PIECE, ANGARA_ACCESS_LOCAL_WRITE);
    conf_mem_exchange(t, &r->mem, r->keys);
}

static void regions_cleanup(conf_t *t, regions_t *r)
{
    conf_barrier(t);
    conf_mem_cleanup(&r->buf);
    conf_mem_cleanup(&r->mem);
}

static uint8_t flag_byte(const conf_mem_t *mem, size_t offset)
{
    return __atomic_load_n((uint8_t *)mem->addr + offset, __ATOMIC_ACQUIRE);
}

/* Operations of one ring to one PE are performed in the order posted: puts, inline puts, atomics.
 */
static void ring_order(conf_t *t)
{
    unsigned  rounds = conf_rounds(rank_chaos() ? 60 : 200), n;
    uint64_t *atomics;
    regions_t r;

    conf_open(t);
    regions_init(t, &r);
    atomics = (uint64_t *)(void *)(r.mem.addr + 64);
    for (n = 1; n <= rounds; ++n) {
        uint8_t flag = (uint8_t)n;

        if (t->rank == 0) {
            data_fill(r.buf.addr, PIECE, n);
            data_fill(r.buf.addr + PIECE, PIECE, n + 1000);
            POST_OK(t,
                    angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr, r.keys[1], DATA, PIECE));
            POST_OK(t, angara_offload_put_inline(t->peer[1], &flag, r.keys[1], 0, 1));
            /* The same place again: the later put wins. */
            POST_OK(t, angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr, r.keys[1], DATA + PIECE,
                                          PIECE));
            POST_OK(t, angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr + PIECE, r.keys[1],
                                          DATA + PIECE, PIECE));
            POST_OK(t, conf_add(t, 1, r.mem.shared, 1, n, r.keys[1], 64));
            conf_marker(t, 1);
        } else {
            CONF_WAIT(t, flag_byte(&r.mem, 0) == flag);
            CHECK_DATA(r.mem.addr + DATA, PIECE, n);
            CONF_WAIT(t, __atomic_load_n(atomics, __ATOMIC_ACQUIRE) == n);
            CHECK_DATA(r.mem.addr + DATA + PIECE, PIECE, n + 1000);
        }
        conf_barrier(t);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

/* A ring operation posted after window writes to the same PE is performed after them. */
static void ring_after_window(conf_t *t)
{
    unsigned  rounds = conf_rounds(rank_chaos() ? 100 : 1000), n;
    size_t    size;
    regions_t r;

    conf_open(t);
    regions_init(t, &r);
    for (n = 1; n <= rounds; ++n) {
        uint8_t flag = (uint8_t)n;

        size = 1 + (n * 97) % ((t->attr.put_max < 9000) ? t->attr.put_max : 9000);
        if (t->rank == 0) {
            data_fill(r.buf.addr, size, n);
            POST_OK(t, angara_put(t->peer[1], 128, r.buf.addr, size));
            POST_OK(t, angara_put_u64(t->peer[1], 0, n));
            POST_OK(t, angara_put_flag(t->peer[1], 16384, r.buf.addr, size, 64, n));
            if (((n % 2) != 0) || !conf_has_atomics(r.mem.shared)) {
                POST_OK(t, angara_offload_put_inline(t->peer[1], &flag, r.keys[1], 0, 1));
            } else {
                POST_OK(t, angara_atomic(t->peer[1], ANGARA_ATOMIC_SWAP, 4, flag, 0, r.keys[1], 0,
                                         NULL, NULL));
            }
            conf_marker(t, 1);
        } else {
            CONF_WAIT(t, flag_byte(&r.mem, 0) == flag);
            CHECK_DATA(t->window + 128, size, n);
            CHECK_EQ(*(volatile uint64_t *)t->window, n);
            CHECK_EQ(*(volatile uint64_t *)(t->window + 64), n);
            CHECK_DATA(t->window + 16384, size, n);
        }
        conf_barrier(t);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

/* Get responses of one PE arrive in the order of the gets: the last byte tells about all before. */
static void gets_in_order(conf_t *t)
{
    unsigned  rounds = conf_rounds(rank_chaos() ? 60 : 200), n, i;
    regions_t r;

    conf_open(t);
    regions_init(t, &r);
    for (n = 1; n <= rounds; ++n) {
        if (t->rank == 1) {
            data_fill(r.mem.addr + DATA, 4 * PIECE, n);
            r.mem.addr[0] = (char)n;
        }
        conf_barrier(t);
        if (t->rank == 0) {
            for (i = 0; i < 4; ++i) {
                POST_OK(t, angara_offload_get(t->peer[1], r.buf.mr, r.buf.addr + DATA + i * PIECE,
                                              r.keys[1], DATA + i * PIECE, PIECE));
            }
            POST_OK(t, angara_offload_get(t->peer[1], r.buf.mr, r.buf.addr, r.keys[1], 0, 1));
            CONF_WAIT(t, flag_byte(&r.buf, 0) == (uint8_t)n);
            CHECK_DATA(r.buf.addr + DATA, 4 * PIECE, n);
            conf_marker(t, 1);
        }
        conf_barrier(t);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

/*
 * When a marker has returned, everything issued to the peer before it, by window and ring, has been
 * performed there: the peer is told outside the library and must find it all.
 */
static void marker_covers(conf_t *t)
{
    unsigned  rounds = conf_rounds(rank_chaos() ? 60 : 300), n, i;
    uint64_t  sum    = 0;
    size_t    piece;
    regions_t r;

    conf_open(t);
    piece = (t->attr.put_max < 2500) ? t->attr.put_max : 2500;
    regions_init(t, &r);
    for (n = 1; n <= rounds; ++n) {
        unsigned pieces = 1 + n % 4;

        if (t->rank == 1) {
            memset(r.mem.addr + DATA, 0, 4 * PIECE);
            memset(t->window, 0, 20000);
            conf_barrier(t);
        } else {
            conf_barrier(t);
            data_fill(r.buf.addr, PIECE, n);
            for (i = 0; i < pieces; ++i) {
                POST_OK(t, angara_put(t->peer[1], 1 + i * 3000, r.buf.addr, piece));
                POST_OK(t, angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr, r.keys[1],
                                              DATA + i * PIECE, PIECE));
                sum += n;
                POST_OK(t, conf_add(t, 1, r.mem.shared, n, sum, r.keys[1], 64));
                POST_OK(t, angara_put(t->peer[1], 15000 + i * 8, &n, sizeof(n)));
            }
            conf_marker(t, 1);
        }
        conf_barrier(t); /* the only word that rank 1 hears about it */
        sum += (t->rank == 1) ? (uint64_t)n * pieces : 0;
        for (i = 0; (t->rank == 1) && (i < pieces); ++i) {
            CHECK_DATA(t->window + 1 + i * 3000, piece, n);
            CHECK_DATA(r.mem.addr + DATA + i * PIECE, PIECE, n);
            CHECK(memcmp(t->window + 15000 + i * 8, &n, sizeof(n)) == 0);
        }
        if (t->rank == 1) {
            CHECK_EQ(*(uint64_t *)(void *)(r.mem.addr + 64), sum);
        }
        conf_barrier(t);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

/* One marker completes a batch of gets; several markers in flight each cover what was before them.
 */
static void marker_batches(conf_t *t)
{
    unsigned              rounds = conf_rounds(rank_chaos() ? 30 : 100), n, i;
    angara_marker_slot_t *slots[8];
    uint64_t              values[8];
    regions_t             r;

    conf_open(t);
    regions_init(t, &r);
    for (i = 0; i < 8; ++i) {
        CHECK_OK(angara_marker_slot_get(t->pe, &slots[i]));
        values[i] = *slots[i];
    }
    for (n = 1; n <= rounds; ++n) {
        if (t->rank == 1) {
            for (i = 0; i < 8; ++i) {
                data_fill(r.mem.addr + DATA + i * 2000, 2000, n * 10 + i);
            }
        }
        conf_barrier(t);
        if (t->rank == 0) {
            memset(r.buf.addr, 0, 8 * 2000);
            for (i = 0; i < 8; ++i) {
                POST_OK(t, angara_offload_get(t->peer[1], r.buf.mr, r.buf.addr + i * 2000,
                                              r.keys[1], DATA + i * 2000, 2000));
                ++values[i];
                POST_OK(t, angara_marker(t->peer[1], slots[i], values[i]));
            }
            /* Awaited from the back: the last one covers all, each earlier one its prefix. */
            for (i = 0; i < 8; ++i) {
                unsigned which = ((n % 2) != 0) ? i : 7 - i;

                CONF_WAIT(t, angara_marker_arrived(slots[which], values[which]));
                CHECK_DATA(r.buf.addr + which * 2000, 2000, n * 10 + which);
                CHECK_DATA(r.buf.addr, 2000, n * 10);
            }
        }
        conf_barrier(t);
    }
    for (i = 0; i < 8; ++i) {
        angara_marker_slot_put(t->pe, slots[i]);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

/* Many values on one slot: it counts up, and each value covers its part. */
static void marker_sequence(conf_t *t)
{
    unsigned  count = conf_rounds(rank_chaos() ? 100 : 1000), i, done = 0;
    uint64_t  base, now;
    regions_t r;

    conf_open(t);
    regions_init(t, &r);
    if (t->rank == 1) {
        for (i = 0; i < count; ++i) {
            ((uint32_t *)(void *)r.mem.addr)[i] = i + 1;
        }
    }
    conf_barrier(t);
    if (t->rank == 0) {
        base = t->value;
        for (i = 0; i < count; ++i) {
            POST_OK(t, angara_offload_get(t->peer[1], r.buf.mr, r.buf.addr + 4 * i, r.keys[1],
                                          4 * i, 4));
            ++t->value;
            POST_OK(t, angara_marker(t->peer[1], t->slot, t->value));
        }
        while (done < count) {
            conf_timer_t timer = conf_timer();

            now = __atomic_load_n(t->slot, __ATOMIC_ACQUIRE) - base;
            CHECK(now >= done);
            CHECK(now <= count);
            for (; done < now; ++done) {
                CHECK_EQ(((uint32_t *)(void *)r.buf.addr)[done], done + 1);
            }
            conf_relax(t, &timer, __FILE__, __LINE__, "done < count");
        }
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

/*
 * What is issued after a marker has returned is performed after what the marker covers: the peer
 * sees a window flag that was written behind it and must find the earlier ring operation done.
 */
static void after_marker(conf_t *t)
{
    unsigned  rounds = conf_rounds(rank_chaos() ? 60 : 300), n;
    uint64_t *flag;
    regions_t r;

    conf_open(t);
    regions_init(t, &r);
    flag = (uint64_t *)(void *)t->window;
    for (n = 1; n <= rounds; ++n) {
        if (t->rank == 0) {
            data_fill(r.buf.addr, PIECE, n);
            POST_OK(t,
                    angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr, r.keys[1], DATA, PIECE));
            conf_marker(t, 1);
            POST_OK(t, angara_put_flag(t->peer[1], 8, NULL, 0, 0, n));
            conf_marker(t, 1);
        } else {
            CONF_WAIT(t, __atomic_load_n(flag, __ATOMIC_ACQUIRE) == n);
            CHECK_DATA(r.mem.addr + DATA, PIECE, n);
        }
        conf_barrier(t);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

#define SELF_PIECE (4 * PIECE) /* more than is read at once */

/* The marker to oneself: sources of operations to all destinations have been read, nothing more. */
static void marker_self(conf_t *t)
{
    unsigned  rounds = conf_rounds(rank_chaos() ? 60 : 200), n, i;
    regions_t r;

    conf_open(t);
    regions_init(t, &r);
    for (n = 1; n <= rounds; ++n) {
        if (t->rank == 0) {
            for (i = 1; i < t->nranks; ++i) {
                data_fill(r.buf.addr + i * SELF_PIECE, SELF_PIECE, n + i);
                POST_OK(t, angara_offload_put(t->peer[i], r.buf.mr, r.buf.addr + i * SELF_PIECE,
                                              r.keys[i], DATA, SELF_PIECE));
            }
            ++t->value;
            POST_OK(t, angara_marker_self(t->pe, t->slot, t->value));
            CONF_WAIT(t, angara_marker_arrived(t->slot, t->value));
            memset(r.buf.addr, 0xee, t->nranks * SELF_PIECE);
            for (i = 1; i < t->nranks; ++i) {
                conf_marker(t, i);
            }
        }
        conf_barrier(t);
        if (t->rank != 0) {
            CHECK_DATA(r.mem.addr + DATA, SELF_PIECE, n + t->rank);
        }
        conf_barrier(t);
    }
    regions_cleanup(t, &r);
    conf_close(t);
}

/*
 * Slots given back while their markers are under way: a new holder never sees the old one's value
 * arrive. All slots are taken again at once, so that the one in question is among them.
 */
static void slot_reuse(conf_t *t)
{
    unsigned               rounds = conf_rounds(rank_chaos() ? 30 : 100), taken, i, n;
    unsigned               max    = 4096;
    angara_marker_slot_t **slots  = calloc(max, sizeof(*slots));
    uint64_t              *start  = calloc(max, sizeof(*start));
    regions_t              r;

    CHECK((slots != NULL) && (start != NULL));
    conf_open(t);
    regions_init(t, &r);
    for (n = 0; (t->rank == 0) && (n < rounds); ++n) {
        /* Posted and given back at once. */
        for (i = 0; i < 4; ++i) {
            CHECK_OK(angara_marker_slot_get(t->pe, &slots[0]));
            POST_OK(t,
                    angara_offload_put(t->peer[1], r.buf.mr, r.buf.addr, r.keys[1], DATA, PIECE));
            POST_OK(t, angara_marker(t->peer[1], slots[0], *slots[0] + 1 + n));
            angara_marker_slot_put(t->pe, slots[0]);
        }
        for (taken = 0; taken < max; ++taken) {
            angara_status_t status = angara_marker_slot_get(t->pe, &slots[taken]);

            if (status != ANGARA_OK) {
                CHECK_STATUS(status, ANGARA_ERR_NO_RESOURCE);
                break;
            }
            start[taken] = *slots[taken];
            for (i = 0; i < taken; ++i) {
                CHECK(slots[i] != slots[taken]);
            }
        }
        CHECK(taken + 4 + 1 >= t->attr.marker_slots);
        conf_marker(t, 1); /* behind the four: they have arrived, or can't any more */
        for (i = 0; i < taken; ++i) {
            CHECK_EQ(*slots[i], start[i]);
            angara_marker_slot_put(t->pe, slots[i]);
        }
    }
    regions_cleanup(t, &r);
    conf_close(t);
    free(slots);
    free(start);
}

#define FOR_KINDS(_ranks, _name)                     \
    static void test_##_name##_private(void **state) \
    {                                                \
        (void)state;                                 \
        conf_run(_ranks, _name, &kind_private);      \
    }                                                \
    static void test_##_name##_shared(void **state)  \
    {                                                \
        (void)state;                                 \
        conf_run(_ranks, _name, &kind_shared);       \
    }

FOR_KINDS(2, ring_order)
FOR_KINDS(2, ring_after_window)
FOR_KINDS(2, gets_in_order)
FOR_KINDS(2, marker_covers)
FOR_KINDS(2, marker_batches)
FOR_KINDS(2, marker_sequence)
FOR_KINDS(2, after_marker)
FOR_KINDS(3, marker_self)
FOR_KINDS(2, slot_reuse)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_order_private),
        cmocka_unit_test(test_ring_order_shared),
        cmocka_unit_test(test_ring_after_window_private),
        cmocka_unit_test(test_ring_after_window_shared),
        cmocka_unit_test(test_gets_in_order_private),
        cmocka_unit_test(test_gets_in_order_shared),
        cmocka_unit_test(test_marker_covers_private),
        cmocka_unit_test(test_marker_covers_shared),
        cmocka_unit_test(test_marker_batches_private),
        cmocka_unit_test(test_marker_batches_shared),
        cmocka_unit_test(test_marker_sequence_private),
        cmocka_unit_test(test_marker_sequence_shared),
        cmocka_unit_test(test_after_marker_private),
        cmocka_unit_test(test_after_marker_shared),
        cmocka_unit_test(test_marker_self_private),
        cmocka_unit_test(test_marker_self_shared),
        cmocka_unit_test(test_slot_reuse_private),
        cmocka_unit_test(test_slot_reuse_shared),
    };

    return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
