/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Batches of offload operations: the same as one call for each, whatever the sizes and whichever
 * memory is mixed; what is before a fault is performed, what is behind it isn't; deregistration
 * waits for batches as for single operations.
 */
#include "batch.h"

#include <cmocka.h>

#include <unistd.h>

static const kind_t kind_private = {0}, kind_shared = {0xf}, kind_mixed = {0xa};

/* ---- plans: both ranks draw the same ones --------------------------------------------------- */

typedef struct {
    unsigned remote, local; /* numbers of the regions */
    size_t   roffset, loffset, length;
} transfer_t;

typedef struct {
    angara_batch_op_t op;
    unsigned          count;
    transfer_t        transfers[SLOTS];
} plan_t;

static void draw_plan(conf_t *shared_rng, plan_t *plan, unsigned round)
{
    static const size_t lengths[] = {0, 1, 2, 4, 4, 7, 8, 64, 1000, 4096, 4097, SLOT - 256};
    unsigned            i;

    plan->op    = (conf_random(shared_rng) % 2) ? ANGARA_BATCH_PUT : ANGARA_BATCH_GET;
    plan->count = 1 + round % SLOTS;
    for (i = 0; i < plan->count; ++i) {
        transfer_t *transfer = &plan->transfers[i];

        transfer->remote  = (unsigned)(conf_random(shared_rng) % REGIONS);
        transfer->local   = (unsigned)(conf_random(shared_rng) % REGIONS);
        transfer->roffset = i * SLOT + (size_t)(conf_random(shared_rng) % 64);
        transfer->loffset = (SLOTS - 1 - i) * SLOT + (size_t)(conf_random(shared_rng) % 64);
        transfer->length  = lengths[conf_random(shared_rng) % (sizeof(lengths) / sizeof(*lengths))];
    }
}

static void make_xfers(const regions_t *r, unsigned to, const plan_t *plan, angara_xfer_t *xfers)
{
    unsigned i;

    for (i = 0; i < plan->count; ++i) {
        const transfer_t *transfer = &plan->transfers[i];

        xfers[i].lmr     = r->buf[transfer->local].mr;
        xfers[i].laddr   = r->buf[transfer->local].addr + transfer->loffset;
        xfers[i].rkey    = r->keys[to][transfer->remote];
        xfers[i].roffset = transfer->roffset;
        xfers[i].length  = transfer->length;
    }
}

/* Slot @a i of all regions: the transfer's bytes, and nothing else changed. */
static void check_slot(const conf_mem_t *mems, unsigned region, size_t slot, size_t offset,
                       size_t length, uint64_t seed)
{
    unsigned n;
    size_t   i;

    for (n = 0; n < REGIONS; ++n) {
        for (i = slot * SLOT; i < (slot + 1) * SLOT; ++i) {
            if ((n != region) || (i < offset) || (i >= offset + length)) {
                CHECK(mems[n].addr[i] == GUARD);
            }
        }
    }
    CHECK_DATA(mems[region].addr + offset, length, seed);
}

/* Batches of 1 to 16 transfers of all sizes, both directions, between all kinds of memory. */
static void mixed(conf_t *t)
{
    unsigned      rounds = conf_rounds(rank_chaos() ? 64 : 128), to = t->nranks - 1, round, i;
    unsigned      posted;
    conf_t        plans = {.rng = 4711};
    angara_xfer_t xfers[SLOTS];
    plan_t        plan;
    regions_t     r;

    conf_open(t);
    batch_regions_init(t, &r);
    for (round = 0; round < rounds; ++round) {
        draw_plan(&plans, &plan, round);
        batch_fill(r.mem, GUARD);
        batch_fill(r.buf, GUARD);
        for (i = 0; i < plan.count; ++i) {
            const transfer_t *transfer = &plan.transfers[i];

            if (plan.op == ANGARA_BATCH_GET) {
                data_fill(r.mem[transfer->remote].addr + transfer->roffset, transfer->length,
                          round + i);
            } else {
                data_fill(r.buf[transfer->local].addr + transfer->loffset, transfer->length,
                          round + i);
            }
        }
        conf_barrier(t);
        if (t->rank == 0) {
            make_xfers(&r, to, &plan, xfers);
            CHECK_OK(batch_post(t, to, plan.op, xfers, plan.count, &posted));
            CHECK_EQ(posted, plan.count);
            conf_marker(t, to);
        }
        conf_barrier(t);
        for (i = 0; i < plan.count; ++i) {
            const transfer_t *transfer = &plan.transfers[i];

            if ((plan.op == ANGARA_BATCH_GET) && (t->rank == 0)) {
                check_slot(r.buf, transfer->local, SLOTS - 1 - i, transfer->loffset,
                           transfer->length, round + i);
            } else if ((plan.op == ANGARA_BATCH_PUT) && (t->rank == to)) {
                check_slot(r.mem, transfer->remote, i, transfer->roffset, transfer->length,
                           round + i);
            }
        }
        conf_barrier(t);
    }
    batch_regions_cleanup(t, &r);
    conf_close(t);
}

/* What is counted is what single operations would count. */
static void counters(conf_t *t)
{
    angara_counters_t before, after;
    angara_xfer_t     xfers[SLOTS];
    unsigned          posted, i, op;
    size_t            bytes = 0;
    regions_t         r;

    conf_open(t);
    batch_regions_init(t, &r);
    if (t->rank == 0) {
        for (i = 0; i < SLOTS; ++i) {
            xfers[i] = (angara_xfer_t){r.buf[i % REGIONS].mr, r.buf[i % REGIONS].addr + i * SLOT,
                                       r.keys[1][i % REGIONS], i * SLOT, i * 100};
            bytes += xfers[i].length;
        }
        for (op = ANGARA_BATCH_PUT; op <= ANGARA_BATCH_GET; ++op) {
            angara_pe_counters(t->pe, &before);
            CHECK_OK(batch_post(t, 1, (angara_batch_op_t)op, xfers, SLOTS, &posted));
            conf_marker(t, 1);
            angara_pe_counters(t->pe, &after);
            CHECK_EQ(after.offload_puts - before.offload_puts, op == ANGARA_BATCH_PUT ? SLOTS : 0);
            CHECK_EQ(after.offload_gets - before.offload_gets, op == ANGARA_BATCH_GET ? SLOTS : 0);
            CHECK_EQ(after.offload_bytes - before.offload_bytes, bytes);
            CHECK_EQ(after.markers - before.markers, 1);
            CHECK_EQ(after.faults, before.faults);
        }
    }
    batch_regions_cleanup(t, &r);
    conf_close(t);
}

/* ---- arguments ------------------------------------------------------------------------------ */

static void arguments(conf_t *t)
{
    angara_xfer_t xfers[SLOTS + 1];
    unsigned      posted = 99, i;
    regions_t     r;

    conf_open(t);
    batch_regions_init(t, &r);
    memset(r.mem[0].addr, GUARD, SIZE);
    conf_barrier(t);
    if (t->rank == 0) {
        for (i = 0; i <= SLOTS; ++i) {
            xfers[i] = (angara_xfer_t){r.buf[0].mr, r.buf[0].addr, r.keys[1][0], 0, 64};
        }
        CHECK_OK(angara_offload_batch(t->peer[1], ANGARA_BATCH_PUT, xfers, 0, &posted));
        CHECK_EQ(posted, 0);
        CHECK_OK(angara_offload_batch(t->peer[1], ANGARA_BATCH_GET, NULL, 0, &posted));
        CHECK_EQ(posted, 0);
        posted = 99;
        CHECK_STATUS(angara_offload_batch(t->peer[1], ANGARA_BATCH_PUT, xfers, SLOTS + 1, &posted),
                     ANGARA_ERR_INVALID);
        CHECK_EQ(posted, 0);
        posted = 99;
        CHECK_STATUS(angara_offload_batch(t->peer[1], (angara_batch_op_t)2, xfers, 2, &posted),
                     ANGARA_ERR_INVALID);
        CHECK_EQ(posted, 0);
        CHECK_STATUS(angara_offload_batch(t->peer[1], ANGARA_BATCH_PUT, NULL, 2, &posted),
                     ANGARA_ERR_INVALID);
        CHECK_STATUS(angara_offload_batch(t->peer[1], ANGARA_BATCH_PUT, xfers, 2, NULL),
                     ANGARA_ERR_INVALID);
        posted = 99;
        CHECK_STATUS(angara_offload_batch(NULL, ANGARA_BATCH_PUT, xfers, 2, &posted),
                     ANGARA_ERR_INVALID);
        CHECK_EQ(posted, 0);
        CHECK_OK(angara_peer_status(t->peer[1])); /* none of these is a fault */
        conf_marker(t, 1);
        /* A pair in error takes none. */
        CONF_POST(t, angara_offload_put_inline(t->peer[1], "x", 0, 0, 1));
        CONF_WAIT(t, angara_peer_status(t->peer[1]) == ANGARA_ERR_PAIR);
        posted = 99;
        CHECK_STATUS(angara_offload_batch(t->peer[1], ANGARA_BATCH_PUT, xfers, 3, &posted),
                     ANGARA_ERR_PAIR);
        CHECK_EQ(posted, 0);
        conf_settle(t, 1);
    }
    conf_barrier(t);
    for (i = 0; i < SIZE; ++i) {
        CHECK(r.mem[0].addr[i] == GUARD);
    }
    batch_regions_cleanup(t, &r);
    conf_close(t);
}

/* ---- faults: batch_fault.c ------------------------------------------------------------------- */

static void put_faults(conf_t *t)
{
    batch_faults(t, ANGARA_BATCH_PUT);
}

static void get_faults(conf_t *t)
{
    batch_faults(t, ANGARA_BATCH_GET);
}

/* ---- deregistration ------------------------------------------------------------------------- */

#define WORD 4u   /* a get of it goes alone, between two runs of the batch */
#define STEP 509u /* looked at and scribbled over in steps, so that an access is caught by it */

/*
 * Batches over all regions of rank 0 without a pause, until one of them is gone. Every other batch
 * of gets has words among its slots, so that it is performed in several runs.
 */
static void batches_until_gone(conf_t *t, regions_t *r, angara_batch_op_t op, unsigned victim)
{
    angara_status_t status = ANGARA_OK;
    angara_xfer_t   xfers[SLOTS];
    angara_event_t  event;
    unsigned        posted, i, n;
    size_t          j;

    for (i = 0; i < SLOTS; ++i) {
        xfers[i] = (angara_xfer_t){r->buf[0].mr, r->buf[0].addr + i * SLOT, r->keys[0][i % REGIONS],
                                   i * SLOT, SLOT};
    }
    memset(r->buf[0].addr, 0x44, SIZE);
    for (n = 0; status == ANGARA_OK; ++n) {
        if (op == ANGARA_BATCH_GET) {
            xfers[0].length = xfers[SLOTS / 2].length = (n % 2) ? WORD : SLOT;
        }
        status = batch_post(t, 0, op, xfers, SLOTS, &posted);
        if (n == 0) {
            conf_send(t, 0, "r", 1);
        }
        if (status == ANGARA_OK) {
            uint64_t     value = ++t->value;
            conf_timer_t timer = conf_timer();

            status = CONF_POST(t, angara_marker(t->peer[0], t->slot, value));
            while ((status == ANGARA_OK) && !angara_marker_arrived(t->slot, value)) {
                conf_relax(t, &timer, __FILE__, __LINE__, "marker or fault");
                status = angara_peer_status(t->peer[0]);
            }
        }
        if ((status == ANGARA_OK) && (op == ANGARA_BATCH_GET)) { /* nothing of the scribble */
            for (j = 0; j < SIZE; j += STEP) {
                CHECK(r->buf[0].addr[j] == 0x44);
            }
        }
    }
    CHECK((status == ANGARA_ERR_KEY) || (status == ANGARA_ERR_PAIR));
    CHECK(conf_event(t, &event, RANK_TIMEOUT));
    CHECK_EQ(event.type, ANGARA_EVENT_FAULT);
    CHECK_STATUS((angara_status_t)event.status, ANGARA_ERR_KEY);
    CHECK_EQ(event.key, r->keys[0][victim]);
    CHECK_OK(angara_peer_reset(t->peer[0]));
}

/*
 * Rank 1 hammers batches over all regions of rank 0, which deregisters one of them and scribbles
 * over it: deregistration returns, and afterwards no byte changes, nor is a scribble got.
 */
static void deregister_waits(conf_t *t)
{
    unsigned  rounds = conf_rounds(rank_chaos() ? 12 : 60), round;
    regions_t r;
    size_t    i;
    char      byte;

    conf_open(t);
    for (round = 0; round < rounds; ++round) {
        angara_batch_op_t op     = (round % 2) ? ANGARA_BATCH_GET : ANGARA_BATCH_PUT;
        unsigned          victim = round / 2 % REGIONS;
        conf_mem_t       *mem    = &r.mem[victim];

        batch_regions_init(t, &r);
        batch_fill(r.mem, 0x44);
        conf_barrier(t);
        if (t->rank == 1) {
            batches_until_gone(t, &r, op, victim);
            conf_barrier(t);
        } else {
            conf_recv(t, 1, &byte, 1);
            usleep((unsigned)(conf_random(t) % 1000));
            CHECK(!mem->shared);
            CHECK_OK(angara_mr_deregister(mem->mr));
            for (i = 0; i < SIZE; i += STEP) {
                mem->addr[i] = 0x33;
            }
            conf_barrier(t); /* rank 1 has had its fault */
            for (i = 0; i < SIZE; i += STEP) {
                CHECK(mem->addr[i] == 0x33);
            }
            CHECK_OK(angara_mr_register(t->dom, mem->addr, SIZE, 0, &mem->mr));
        }
        batch_regions_cleanup(t, &r);
    }
    conf_close(t);
}

/* ---- the tests ------------------------------------------------------------------------------ */

#define TEST(_ranks, _name, _kind)                   \
    static void test_##_name##_##_kind(void **state) \
    {                                                \
        (void)state;                                 \
        conf_run(_ranks, _name, &kind_##_kind);      \
    }

TEST(2, mixed, private)
TEST(2, mixed, shared)
TEST(2, mixed, mixed)
TEST(2, counters, private)
TEST(2, counters, mixed)
TEST(2, arguments, private)
TEST(2, put_faults, private)
TEST(2, put_faults, shared)
TEST(2, put_faults, mixed)
TEST(2, get_faults, private)
TEST(2, get_faults, shared)
TEST(2, get_faults, mixed)
TEST(2, deregister_waits, private)

static void test_own_pe(void **state)
{
    (void)state;
    conf_run(1, mixed, &kind_mixed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed_private),      cmocka_unit_test(test_mixed_shared),
        cmocka_unit_test(test_mixed_mixed),        cmocka_unit_test(test_own_pe),
        cmocka_unit_test(test_counters_private),   cmocka_unit_test(test_counters_mixed),
        cmocka_unit_test(test_arguments_private),  cmocka_unit_test(test_put_faults_private),
        cmocka_unit_test(test_put_faults_shared),  cmocka_unit_test(test_put_faults_mixed),
        cmocka_unit_test(test_get_faults_private), cmocka_unit_test(test_get_faults_shared),
        cmocka_unit_test(test_get_faults_mixed),   cmocka_unit_test(test_deregister_waits_private),
    };

    return cmocka_run_group_tests_name("batch", tests, NULL, NULL);
}
