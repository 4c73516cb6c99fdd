/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Batches with a bad transfer: what is before it is performed, what is behind it isn't.
 */
#include "batch.h"

#define BATCH  8u
#define LENGTH 3000u
#define PAGE   4096u

typedef enum {
    BAD_KEY,
    BAD_BOUNDS,
    BAD_RIGHT,
    REMOTE_HOLE,
    REMOTE_WORD_HOLE,
    LOCAL_HOLE, /* the initiator's own memory is gone */
    LOCAL_WORD_HOLE,
    LOCAL_BOUNDS, /* refused at once: no fault */
    LOCAL_NULL,
    BAD_LAST
} bad_t;

typedef struct {
    conf_mem_t limited;     /* of the other direction's right only */
    conf_mem_t hole, lhole; /* private, their middle page is unmapped; of a GPU: freed */
    uint64_t   limited_key[RANK_MAX], hole_key[RANK_MAX];
    regions_t  r;
} faulty_t;

static void hole_init(conf_t *t, conf_mem_t *mem)
{
    conf_mem_init(t, mem, 0, 3 * PAGE, ANGARA_ACCESS_ALL);
    memset(mem->addr, GUARD, mem->length);
    conf_mem_lose(mem, PAGE, PAGE);
}

static void faulty_init(conf_t *t, faulty_t *f, angara_batch_op_t op)
{
    batch_regions_init(t, &f->r);
    conf_mem_init(t, &f->limited, ((const kind_t *)t->arg)->shared != 0, SIZE,
                  (op == ANGARA_BATCH_PUT) ? ANGARA_ACCESS_REMOTE_READ :
                                             ANGARA_ACCESS_REMOTE_WRITE);
    hole_init(t, &f->hole);
    hole_init(t, &f->lhole);
    conf_mem_exchange(t, &f->limited, f->limited_key);
    conf_mem_exchange(t, &f->hole, f->hole_key);
}

static void faulty_cleanup(conf_t *t, faulty_t *f)
{
    conf_barrier(t);
    conf_mem_cleanup(&f->limited);
    conf_mem_cleanup(&f->hole);
    conf_mem_cleanup(&f->lhole);
    batch_regions_cleanup(t, &f->r);
}

/* Eight transfers, number @a at is bad. @return the status that it must have. */
static angara_status_t make_faulty(const faulty_t *f, bad_t bad, unsigned at, angara_xfer_t *xfers)
{
    const conf_mem_t *buf = &f->r.buf[at % REGIONS];
    unsigned          i;

    for (i = 0; i < BATCH; ++i) {
        xfers[i] = (angara_xfer_t){f->r.buf[i % REGIONS].mr, f->r.buf[i % REGIONS].addr + i * SLOT,
                                   f->r.keys[1][i % REGIONS], i * SLOT, LENGTH};
    }
    switch (bad) {
    case BAD_KEY:
        xfers[at].rkey ^= 1ull << 40;
        return ANGARA_ERR_KEY;
    case BAD_BOUNDS:
        xfers[at].roffset = UINT64_MAX - 8;
        return ANGARA_ERR_BOUNDS;
    case BAD_RIGHT:
        xfers[at].rkey = f->limited_key[1];
        return ANGARA_ERR_RIGHTS;
    case REMOTE_HOLE:
        xfers[at].rkey    = f->hole_key[1];
        xfers[at].roffset = PAGE / 2;
        xfers[at].length  = 2 * PAGE;
        return ANGARA_ERR_BOUNDS;
    case REMOTE_WORD_HOLE:
        xfers[at].rkey    = f->hole_key[1];
        xfers[at].roffset = PAGE + 4;
        xfers[at].length  = 4;
        return ANGARA_ERR_BOUNDS;
    case LOCAL_HOLE:
        xfers[at].lmr    = f->lhole.mr;
        xfers[at].laddr  = f->lhole.addr + PAGE / 2;
        xfers[at].length = 2 * PAGE;
        return ANGARA_ERR_BOUNDS;
    case LOCAL_WORD_HOLE: /* half of it can land */
        xfers[at].lmr    = f->lhole.mr;
        xfers[at].laddr  = f->lhole.addr + PAGE - 2;
        xfers[at].length = 4;
        return ANGARA_ERR_BOUNDS;
    case LOCAL_BOUNDS:
        xfers[at].laddr = buf->addr + buf->length - LENGTH + PAGE;
        return ANGARA_ERR_BOUNDS;
    default:
        xfers[at].lmr = NULL;
        return ANGARA_ERR_INVALID;
    }
}

/* Number of the transfers that landed, in @a mems; the bytes of all others are untouched. */
static void check_landed(const conf_mem_t *mems, unsigned landed, unsigned at, uint64_t seed)
{
    unsigned n, i;
    size_t   j;

    for (i = 0; i < BATCH; ++i) {
        for (n = 0; n < REGIONS; ++n) {
            for (j = i * SLOT; j < (i + 1) * SLOT; ++j) {
                if ((n != i % REGIONS) || (i >= landed) || (j >= i * SLOT + LENGTH)) {
                    /* Up to a hole in its other end, the faulty one may have been moved. */
                    CHECK((mems[n].addr[j] == GUARD) || (i == at));
                }
            }
        }
        if (i < landed) {
            CHECK_DATA(mems[i % REGIONS].addr + i * SLOT, LENGTH, seed + i);
        }
    }
}

static int at_remote_hole(bad_t bad)
{
    return bad == REMOTE_HOLE || bad == REMOTE_WORD_HOLE;
}

static int at_local_hole(bad_t bad)
{
    return bad == LOCAL_HOLE || bad == LOCAL_WORD_HOLE;
}

/*
 * Is rank 0 told of a hole in its own memory? Of a GPU, what is gone is seen before it is touched;
 * elsewhere it depends on the way whether that is an error or a signal.
 */
static int survives_hole(void)
{
    return conf_on_gpu(0);
}

static void one_fault(conf_t *t, faulty_t *f, angara_batch_op_t op, bad_t bad, unsigned at)
{
    conf_mem_t     *src   = (op == ANGARA_BATCH_PUT) ? f->r.buf : f->r.mem;
    conf_mem_t     *dst   = (op == ANGARA_BATCH_PUT) ? f->r.mem : f->r.buf;
    int             local = (bad == LOCAL_BOUNDS) || (bad == LOCAL_NULL);
    int             holes = at_remote_hole(bad) || at_local_hole(bad);
    uint64_t        seed  = bad * 100u + at;
    angara_xfer_t   xfers[SLOTS];
    angara_status_t status, expected;
    unsigned        posted, i;

    batch_fill(dst, GUARD);
    for (i = 0; i < BATCH; ++i) {
        data_fill(src[i % REGIONS].addr + i * SLOT, LENGTH, seed + i);
    }
    conf_barrier(t);
    if (t->rank == 0) {
        expected = make_faulty(f, bad, at, xfers);
        status   = batch_post(t, 1, op, xfers, BATCH, &posted);
        if (local) {
            CHECK_STATUS(status, expected);
            CHECK_EQ(posted, at);
            CHECK_OK(angara_peer_status(t->peer[1]));
            conf_marker(t, 1);
        } else {
            /* A provider may report by the event alone, and after more has been posted. */
            CHECK(posted >= at);
            if (posted == at) {
                CHECK_STATUS(status, expected);
            } else if (status != ANGARA_OK) {
                CHECK_STATUS(status, ANGARA_ERR_PAIR);
            }
            if (status == ANGARA_ERR_PAIR) {
                status = ANGARA_OK;
            }
            conf_expect_fault(t, 1, status, expected, xfers[at].rkey);
        }
    }
    conf_barrier(t);
    if (t->rank == ((op == ANGARA_BATCH_PUT) ? 1u : 0u)) {
        check_landed(dst, at, holes ? at : BATCH, seed);
    }
    conf_barrier(t);
}

void batch_faults(conf_t *t, angara_batch_op_t op)
{
    static const unsigned places[] = {0, 1, 5, BATCH - 1};
    unsigned              bad, i;
    faulty_t              f;

    conf_open(t);
    faulty_init(t, &f, op);
    for (bad = 0; bad < BAD_LAST; ++bad) {
        if ((at_remote_hole((bad_t)bad) || at_local_hole((bad_t)bad)) &&
            strcmp(t->attr.provider, "soft")) {
            continue; /* elsewhere a region's memory is pinned */
        }
        if (at_local_hole((bad_t)bad) &&
            (!survives_hole() || ((const kind_t *)t->arg)->shared != 0)) {
            continue;
        }
        for (i = 0; i < sizeof(places) / sizeof(places[0]); ++i) {
            one_fault(t, &f, op, (bad_t)bad, places[i]);
        }
    }
    faulty_cleanup(t, &f);
    conf_close(t);
}
