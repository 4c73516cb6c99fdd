/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract of the calls, the same whatever the provider: lengths above the largest and of zero,
 * marker slots, windows, what an output holds after an error, what is allowed in which state.
 */
#include "conf.h"

#include <cmocka.h>

#include <signal.h>
#include <unistd.h>

#define REGION 65536u

typedef struct {
    conf_mem_t mem; /* target and source */
    uint64_t   keys[RANK_MAX];
} memory_t;

static void memory_init(conf_t *t, memory_t *m)
{
    conf_mem_init(t, &m->mem, 0, REGION, ANGARA_ACCESS_ALL);
    memset(m->mem.addr, 0x11, REGION);
    conf_mem_exchange(t, &m->mem, m->keys);
}

static void memory_cleanup(conf_t *t, memory_t *m)
{
    conf_barrier(t);
    conf_mem_cleanup(&m->mem);
}

/* ---- lengths ------------------------------------------------------------------------------- */

/* Above the largest window put: refused, nothing happens; the largest itself is taken. */
static void put_max(conf_t *t)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = CONF_WINDOW};
    angara_domain_h    dom;
    angara_attr_t      attr;
    char              *bytes;
    size_t             max;

    CHECK_OK(angara_open(conf_device(), &dom));
    CHECK_OK(angara_query(dom, &attr));
    CHECK_OK(angara_close(dom));
    max = attr.put_max;
    if (max > CONF_WINDOW / 2) { /* address space only: nothing that long is ever moved */
        params.window_size = max + 65536;
    }
    conf_open_params(t, &params);
    bytes = malloc(CONF_WINDOW);
    CHECK(bytes != NULL);
    memset(bytes, 0x77, CONF_WINDOW);
    if (t->rank == 0) {
        CHECK_STATUS(angara_put(t->peer[1], 0, bytes, max + 1), ANGARA_ERR_INVALID);
        CHECK_STATUS(angara_put(t->peer[1], 8, bytes, max + 8), ANGARA_ERR_INVALID);
        CHECK_STATUS(angara_put_flag(t->peer[1], 8, bytes, max + 1, 0, 1), ANGARA_ERR_INVALID);
        CHECK_OK(angara_peer_status(t->peer[1]));
        if (max <= CONF_WINDOW / 2) {
            POST_OK(t, angara_put(t->peer[1], 8, bytes, max));
            conf_marker(t, 1);
        }
    }
    conf_barrier(t);
    if (t->rank == 1) {
        CHECK_EQ(t->window[0], 0);
        CHECK_EQ(t->window[8], (max <= CONF_WINDOW / 2) ? 0x77 : 0);
        CHECK_EQ(t->window[8 + ((max <= CONF_WINDOW / 2) ? max : 0)], 0);
    }
    free(bytes);
    conf_close(t);
}

static void offload_max(conf_t *t)
{
    angara_xfer_t   xfers[3];
    unsigned        posted = 77;
    size_t          max;
    angara_mr_h     large;
    angara_status_t status;
    memory_t        m;

    conf_open(t);
    memory_init(t, &m);
    max    = t->attr.offload_max;
    status = angara_mr_register(t->dom, m.mem.addr, max + 1, ANGARA_ACCESS_ALL, &large);
    if ((t->rank == 0) && (status == ANGARA_OK)) {
        angara_peer_h peer = t->peer[1];

        CHECK_STATUS(angara_offload_put(peer, large, m.mem.addr, m.keys[1], 0, max + 1),
                     ANGARA_ERR_INVALID);
        CHECK_STATUS(angara_offload_get(peer, large, m.mem.addr, m.keys[1], 0, max + 1),
                     ANGARA_ERR_INVALID);
        xfers[0] = (angara_xfer_t){m.mem.mr, m.mem.addr, m.keys[1], 100, 10};
        xfers[1] = (angara_xfer_t){large, m.mem.addr, m.keys[1], 0, max + 1};
        xfers[2] = (angara_xfer_t){m.mem.mr, m.mem.addr, m.keys[1], 200, 10};
        memset(m.mem.addr, 0x22, 10);
        CHECK_STATUS(CONF_POST(t, angara_offload_batch(peer, ANGARA_BATCH_PUT, xfers, 3, &posted)),
                     ANGARA_ERR_INVALID);
        CHECK_EQ(posted, 1);
        CHECK_OK(angara_peer_status(peer));
        conf_marker(t, 1);
    }
    conf_barrier(t);
    if ((t->rank == 1) && (status == ANGARA_OK)) {
        CHECK_EQ(m.mem.addr[0], 0x11);
        CHECK_EQ(m.mem.addr[100], 0x22);
        CHECK_EQ(m.mem.addr[200], 0x11);
    }
    if (status == ANGARA_OK) { /* where pages are pinned, there may be none so large */
        CHECK_OK(angara_mr_deregister(large));
    }
    memory_cleanup(t, &m);
    conf_close(t);
}

static void inline_max(conf_t *t)
{
    size_t   max;
    memory_t m;

    conf_open(t);
    memory_init(t, &m);
    max = t->attr.inline_max;
    if (t->rank == 0) {
        CHECK_STATUS(angara_offload_put_inline(t->peer[1], m.mem.addr, m.keys[1], 0, max + 1),
                     ANGARA_ERR_INVALID);
        CHECK_STATUS(angara_offload_put_inline(t->peer[1], m.mem.addr, m.keys[1], 0, SIZE_MAX),
                     ANGARA_ERR_INVALID);
        CHECK_OK(angara_peer_status(t->peer[1]));
        memset(m.mem.addr, 0x33, max);
        POST_OK(t, angara_offload_put_inline(t->peer[1], m.mem.addr, m.keys[1], 8, max));
        conf_marker(t, 1);
    }
    conf_barrier(t);
    if (t->rank == 1) {
        CHECK_EQ(m.mem.addr[7], 0x11);
        CHECK_EQ(m.mem.addr[8], 0x33);
        CHECK_EQ(m.mem.addr[8 + max - 1], 0x33);
        CHECK_EQ(m.mem.addr[8 + max], 0x11);
    }
    memory_cleanup(t, &m);
    conf_close(t);
}

static void notify_lengths(conf_t *t)
{
    char           record[ANGARA_NOTIFY_MAX + 1] = {0};
    angara_event_t event;
    unsigned       n;

    conf_open(t);
    if (t->rank == 0) {
        CHECK_STATUS(angara_notify(t->peer[1], record, sizeof(record)), ANGARA_ERR_INVALID);
        CHECK_STATUS(angara_notify(t->peer[1], NULL, 1), ANGARA_ERR_INVALID);
        for (n = 0; n <= ANGARA_NOTIFY_MAX; ++n) {
            memset(record, (int)n, n);
            POST_OK(t, angara_notify(t->peer[1], (n != 0) ? record : NULL, n));
        }
    } else {
        for (n = 0; n <= ANGARA_NOTIFY_MAX; ++n) {
            CHECK(conf_event(t, &event, RANK_TIMEOUT));
            CHECK_EQ(event.type, ANGARA_EVENT_NOTIFY);
            CHECK(event.peer == t->peer[0]);
            CHECK_EQ(event.len, n);
            CHECK((n == 0) || ((event.data[0] == n) && (event.data[n - 1] == n)));
        }
    }
    conf_close(t);
}

/* An operation of no bytes takes any pointer, is checked like others, and moves nothing. */
static void zero_lengths(conf_t *t)
{
    char     *start;
    uint64_t *flag;
    memory_t  m;

    conf_open(t);
    memory_init(t, &m);
    start = m.mem.addr;
    flag  = (uint64_t *)(void *)t->window;
    if (t->rank == 0) {
        angara_peer_h peer = t->peer[1];
        size_t        size = angara_peer_fast(peer)->window_size;
        angara_xfer_t xfer = {m.mem.mr, start + REGION, m.keys[1], REGION, 0};
        unsigned      posted;

        POST_OK(t, angara_put(peer, 0, NULL, 0));
        POST_OK(t, angara_put(peer, size, NULL, 0));
        CHECK_STATUS(angara_put(peer, size + 1, NULL, 0), ANGARA_ERR_BOUNDS);
        POST_OK(t, angara_put_flag(peer, size, NULL, 0, 0, 5));
        POST_OK(t, angara_offload_put(peer, m.mem.mr, start, m.keys[1], 0, 0));
        POST_OK(t, angara_offload_put(peer, m.mem.mr, start + REGION, m.keys[1], REGION, 0));
        POST_OK(t, angara_offload_get(peer, m.mem.mr, start + REGION, m.keys[1], REGION, 0));
        POST_OK(t, angara_offload_put_inline(peer, NULL, m.keys[1], REGION, 0));
        POST_OK(t, angara_offload_batch(peer, ANGARA_BATCH_GET, &xfer, 1, &posted));
        CHECK_STATUS(angara_offload_put(peer, m.mem.mr, start + REGION + 1, m.keys[1], 0, 0),
                     ANGARA_ERR_BOUNDS);
        conf_marker(t, 1);
        conf_expect_fault(
            t, 1, CONF_POST(t, angara_offload_put(peer, m.mem.mr, start, m.keys[1] ^ 1, 0, 0)),
            ANGARA_ERR_KEY, m.keys[1] ^ 1);
        conf_expect_fault(
            t, 1, CONF_POST(t, angara_offload_put_inline(peer, NULL, m.keys[1], REGION + 1, 0)),
            ANGARA_ERR_BOUNDS, m.keys[1]);
    }
    conf_barrier(t);
    if (t->rank == 1) {
        CHECK_EQ(*flag, 5);
        CHECK_EQ(start[0], 0x11);
        CHECK_EQ(start[REGION - 1], 0x11);
    }
    memory_cleanup(t, &m);
    conf_close(t);
}

/* ---- marker slots -------------------------------------------------------------------------- */

/* Take all that are free. @return how many */
static unsigned take_all(conf_t *t, angara_marker_slot_t **slots)
{
    unsigned num = 0;

    while (angara_marker_slot_get(t->pe, &slots[num]) == ANGARA_OK) {
        CHECK(++num < t->attr.marker_slots);
    }
    return num;
}

/* What isn't a slot that somebody holds is refused, and changes nothing. */
static void slot_misuse(conf_t *t)
{
    angara_marker_slot_t **slots, *one, *none = NULL;
    uint64_t               strange = 0;
    unsigned               num, i;

    conf_open(t);
    slots = calloc(t->attr.marker_slots, sizeof(*slots));
    CHECK(slots != NULL);
    CHECK_OK(angara_marker_slot_get(t->pe, &one));
    angara_marker_slot_put(t->pe, one);
    angara_marker_slot_put(t->pe, one); /* twice */
    CHECK_STATUS(angara_marker(t->peer[1 - t->rank], one, *one + 1), ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_marker_self(t->pe, one, *one + 1), ANGARA_ERR_INVALID);
    angara_marker_slot_put(t->pe, &strange);
    angara_marker_slot_put(t->pe, (angara_marker_slot_t *)((uintptr_t)t->slot + 1));
    angara_marker_slot_put(t->pe, NULL);
    CHECK_STATUS(angara_marker(t->peer[0], &strange, 1), ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_marker(t->peer[0], NULL, 1), ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_marker_self(t->pe, NULL, 1), ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_marker_slot_get(t->pe, NULL), ANGARA_ERR_INVALID);

    /* Each is given out once. */
    num = take_all(t, slots);
    CHECK_EQ(num, t->attr.marker_slots - 1);
    for (i = 0; i < num; ++i) {
        CHECK(slots[i] != t->slot);
        CHECK((i == 0) || (slots[i] != slots[i - 1]));
    }
    CHECK_STATUS(angara_marker_slot_get(t->pe, &none), ANGARA_ERR_NO_RESOURCE);
    CHECK(none == NULL);
    angara_marker_slot_put(t->pe, slots[0]);
    angara_marker_slot_put(t->pe, slots[0]); /* twice, while the others are held */
    CHECK_OK(angara_marker_slot_get(t->pe, &one));
    CHECK(one == slots[0]);
    CHECK_STATUS(angara_marker_slot_get(t->pe, &none), ANGARA_ERR_NO_RESOURCE);
    for (i = 0; i < num; ++i) {
        angara_marker_slot_put(t->pe, slots[i]);
    }
    conf_marker(t, 1 - t->rank);
    free(slots);
    conf_close(t);
}

/* Values grow, counted from what the slot held when it was taken. */
static void slot_values(conf_t *t)
{
    angara_marker_slot_t *slot;
    uint64_t              first;
    angara_peer_h         peer;

    conf_open(t);
    peer = t->peer[1 - t->rank];
    CHECK_OK(angara_marker_slot_get(t->pe, &slot));
    first = *slot;
    CHECK_STATUS(angara_marker(peer, slot, first), ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_marker(peer, slot, first - 1), ANGARA_ERR_INVALID);
    POST_OK(t, angara_marker(peer, slot, first + 5));
    CHECK_STATUS(angara_marker(peer, slot, first + 5), ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_marker(peer, slot, first + 4), ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_marker_self(t->pe, slot, first + 5), ANGARA_ERR_INVALID);
    CONF_WAIT(t, angara_marker_arrived(slot, first + 5));
    CHECK_EQ(*slot, first + 5);
    POST_OK(t, angara_marker_self(t->pe, slot, first + 6));
    CONF_WAIT(t, angara_marker_arrived(slot, first + 6));
    CHECK_OK(angara_peer_status(peer));
    angara_marker_slot_put(t->pe, slot);
    conf_close(t);
}

/* Markers of several pairs through one slot: no value of one lands behind a larger of another. */
static void slot_shared(conf_t *t)
{
    unsigned rounds = conf_rounds(rank_chaos() ? 100 : 1000), n;
    uint64_t last   = 0, first;

    conf_open(t);
    first = t->value;
    for (n = 1; n <= rounds; ++n) {
        if (n % 4 == 3) {
            POST_OK(t, angara_marker_self(t->pe, t->slot, first + n));
        } else {
            POST_OK(t, angara_marker(t->peer[n % t->nranks], t->slot, first + n));
        }
        CHECK(*t->slot - first >= last);
        last = *t->slot - first;
    }
    CONF_WAIT(t, angara_marker_arrived(t->slot, first + rounds));
    CHECK_EQ(*t->slot, first + rounds);
    t->value = first + rounds;
    conf_close(t);
}

/* A failed pair's markers don't keep its slot from the others. */
static void slot_after_fault(conf_t *t)
{
    uint64_t key = 0x123456789abcdull;
    char     byte;

    conf_open(t);
    if (t->rank == 0) {
        /* It faults now or later; the marker behind it is refused or never lands. */
        CONF_POST(t, angara_offload_put_inline(t->peer[1], "x", key, 0, 1));
        CONF_POST(t, angara_marker(t->peer[1], t->slot, ++t->value));
        CONF_WAIT(t, angara_peer_status(t->peer[1]) == ANGARA_ERR_PAIR);
        conf_marker(t, 2);
        CHECK_OK(angara_peer_reset(t->peer[1]));
        conf_marker(t, 1);
        conf_send(t, 1, "k", 1);
        conf_send(t, 2, "k", 1);
    } else {
        conf_recv(t, 0, &byte, 1);
    }
    conf_close(t);
}

/* ---- windows and PEs ----------------------------------------------------------------------- */

/* Committing again, overlapping, keeps what is there; nothing beyond the window. */
static void window_commit(conf_t *t)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = CONF_WINDOW + 100};
    size_t             size;

    conf_open_params(t, &params);
    CHECK(angara_pe_window(t->pe, &size) == t->window);
    CHECK_EQ(size, CONF_WINDOW + 100);
    CHECK_EQ(angara_peer_fast(t->peer[1 - t->rank])->window_size, size);
    memset(t->window, 0x44, CONF_WINDOW);
    CHECK_OK(angara_pe_window_commit(t->pe, CONF_WINDOW - 1, 1));
    CHECK_OK(angara_pe_window_commit(t->pe, CONF_WINDOW - 1, 101));
    CHECK_OK(angara_pe_window_commit(t->pe, 0, size));
    CHECK_STATUS(angara_pe_window_commit(t->pe, 0, 0), ANGARA_ERR_INVALID);
    CHECK_STATUS(angara_pe_window_commit(t->pe, 0, size + 1), ANGARA_ERR_BOUNDS);
    CHECK_STATUS(angara_pe_window_commit(t->pe, size, 1), ANGARA_ERR_BOUNDS);
    CHECK_STATUS(angara_pe_window_commit(t->pe, 8, SIZE_MAX), ANGARA_ERR_BOUNDS);
    CHECK_EQ(t->window[0], 0x44);
    CHECK_EQ(t->window[CONF_WINDOW - 1], 0x44);
    CHECK_EQ(t->window[CONF_WINDOW], 0);
    CHECK_EQ(t->window[size - 1], 0);
    conf_close(t);
}

static void pe_sizes(conf_t *t)
{
    static const unsigned bad[]  = {1, 3, 100, 65537, 131072, UINT32_MAX};
    angara_pe_params_t    params = {.size = sizeof(params), .window_size = CONF_WINDOW};
    angara_pe_h           pe     = NULL;
    size_t                i;

    conf_open(t);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        params.events = bad[i];
        CHECK_STATUS(angara_pe_create(t->dom, &params, &pe), ANGARA_ERR_INVALID);
    }
    params.events      = 0;
    params.window_size = t->attr.window_max + 1;
    CHECK_STATUS(angara_pe_create(t->dom, &params, &pe), ANGARA_ERR_LIMIT);
    params.window_size = SIZE_MAX;
    CHECK_STATUS(angara_pe_create(t->dom, &params, &pe), ANGARA_ERR_LIMIT);
    CHECK(pe == NULL);
    params.window_size = 1;
    for (params.events = 2; params.events <= 65536; params.events *= 32) {
        CHECK_OK(angara_pe_create(t->dom, &params, &pe));
        angara_pe_destroy(pe);
    }
    conf_close(t);
}

/* ---- states -------------------------------------------------------------------------------- */

/* In error, ring operations are refused; the rest goes on. */
static void after_fault(conf_t *t)
{
    uint64_t       key = 0x123456789abcdull;
    angara_event_t event;
    angara_xfer_t  xfer;
    unsigned       posted = 77;
    memory_t       m;

    conf_open(t);
    memory_init(t, &m);
    if (t->rank == 0) {
        angara_peer_h peer = t->peer[1];

        xfer = (angara_xfer_t){m.mem.mr, m.mem.addr, m.keys[1], 0, 8};
        CONF_POST(t, angara_offload_put_inline(peer, "x", key, 0, 1));
        CONF_WAIT(t, angara_peer_status(peer) == ANGARA_ERR_PAIR);
        CHECK_STATUS(angara_offload_put(peer, m.mem.mr, m.mem.addr, m.keys[1], 0, 8),
                     ANGARA_ERR_PAIR);
        CHECK_STATUS(angara_offload_get(peer, m.mem.mr, m.mem.addr, m.keys[1], 0, 8),
                     ANGARA_ERR_PAIR);
        CHECK_STATUS(angara_offload_put_inline(peer, "x", m.keys[1], 0, 1), ANGARA_ERR_PAIR);
        CHECK_STATUS(angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, m.keys[1], 0, NULL, NULL),
                     ANGARA_ERR_PAIR);
        CHECK_STATUS(angara_marker(peer, t->slot, ++t->value), ANGARA_ERR_PAIR);
        CHECK_STATUS(angara_offload_batch(peer, ANGARA_BATCH_PUT, &xfer, 1, &posted),
                     ANGARA_ERR_PAIR);
        CHECK_EQ(posted, 0);
        posted = 77;
        CHECK_OK(angara_offload_batch(peer, ANGARA_BATCH_PUT, NULL, 0, &posted));
        CHECK_EQ(posted, 0);
        POST_OK(t, angara_put(peer, 0, NULL, 0));
        POST_OK(t, angara_put_u64(peer, 8, 4711));
        POST_OK(t, angara_put_flag(peer, 64, "flag", 4, 16, 4712));
        POST_OK(t, angara_notify(peer, "said", 4));
        POST_OK(t, angara_marker_self(t->pe, t->slot, ++t->value)); /* of no pair */
        CONF_WAIT(t, angara_marker_arrived(t->slot, t->value));
        CHECK(conf_event(t, &event, RANK_TIMEOUT));
        CHECK_EQ(event.type, ANGARA_EVENT_FAULT);
        CHECK_OK(angara_peer_reset(peer));
        CHECK_OK(angara_peer_reset(peer)); /* also without an error */
        conf_marker(t, 1);
    } else {
        CONF_WAIT(t,
                  __atomic_load_n((uint64_t *)(void *)(t->window + 8), __ATOMIC_ACQUIRE) == 4711);
        CONF_WAIT(t,
                  __atomic_load_n((uint64_t *)(void *)(t->window + 16), __ATOMIC_ACQUIRE) == 4712);
        CHECK(memcmp(t->window + 64, "flag", 4) == 0);
        CHECK(conf_event(t, &event, RANK_TIMEOUT));
        CHECK_EQ(event.type, ANGARA_EVENT_NOTIFY);
    }
    memory_cleanup(t, &m);
    conf_close(t);
}

/* Nothing is told of a pair that was dropped. */
static void dropped_pair(conf_t *t)
{
    angara_event_t event;

    conf_open(t);
    if (t->rank == 0) {
        CONF_POST(t, angara_offload_put_inline(t->peer[1], "x", 0x123456789abcdull, 0, 1));
        CONF_WAIT(t, angara_peer_status(t->peer[1]) == ANGARA_ERR_PAIR);
        CONF_POST(t, angara_offload_put_inline(t->peer[2], "x", 0x123456789abcdull, 0, 1));
        CONF_WAIT(t, angara_peer_status(t->peer[2]) == ANGARA_ERR_PAIR);
        angara_peer_disconnect(t->peer[1]);
        CHECK(conf_event(t, &event, RANK_TIMEOUT));
        CHECK_EQ(event.type, ANGARA_EVENT_FAULT);
        CHECK(event.peer == t->peer[2]);
        memset(&event, 0x5a, sizeof(event));
        CHECK_STATUS(angara_pe_event_poll(t->pe, &event), ANGARA_ERR_NO_RESOURCE);
        for (size_t i = 0; i < sizeof(event); ++i) {
            CHECK_EQ(((uint8_t *)&event)[i], 0x5a);
        }
        /* A new pair of the same address knows nothing of it. */
        CHECK_OK(angara_peer_connect(t->pe, &t->addr[1], &t->peer[1]));
        CHECK_OK(angara_peer_status(t->peer[1]));
        CHECK_OK(angara_peer_reset(t->peer[2]));
        conf_marker(t, 1);
        conf_marker(t, 2);
    }
    conf_close(t);
}

/* After its end every call towards it says so, the inline ones as well. */
static void after_down(conf_t *t)
{
    angara_event_t event = {0};
    angara_peer_h  again = NULL;
    char           scratch[64], *p;
    angara_peer_h  peer;
    angara_xfer_t  xfer;
    unsigned       posted = 77;
    memory_t       m;

    conf_open(t);
    memory_init(t, &m);
    peer = t->peer[1];
    conf_barrier(t);
    if (t->rank == 1) {
        conf_mem_cleanup(&m.mem);
        if (*(const int *)t->arg) {
            kill(getpid(), SIGKILL);
        }
        conf_close_alone(t);
        return;
    }
    p = angara_put_begin(peer, 64, 8, scratch); /* begun when it lived */
    memset(p, 1, 8);
    while (event.type != ANGARA_EVENT_PEER_DOWN) {
        CHECK(conf_event(t, &event, RANK_TIMEOUT));
    }
    CHECK(event.peer == peer);
    xfer = (angara_xfer_t){m.mem.mr, m.mem.addr, m.keys[1], 0, 8};
    CHECK_STATUS(angara_peer_status(peer), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_peer_reset(peer), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_put_commit(peer, p, 64, 8, 8, 1), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_put_u16(peer, 0, 1), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_put_u64(peer, 0, 1), ANGARA_ERR_PEER_DEAD);
    CHECK(angara_put_begin(peer, 64, 8, scratch) == scratch);
    CHECK_STATUS(angara_put_commit(peer, scratch, 64, 8, 8, 1), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_put(peer, 0, "x", 1), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_put(peer, 0, NULL, 0), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_put_flag(peer, 64, "x", 1, 0, 1), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_notify(peer, "x", 1), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_offload_put(peer, m.mem.mr, m.mem.addr, m.keys[1], 0, 8),
                 ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_offload_get(peer, m.mem.mr, m.mem.addr, m.keys[1], 0, 0),
                 ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_offload_put_inline(peer, NULL, m.keys[1], 0, 0), ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, m.keys[1], 0, NULL, NULL),
                 ANGARA_ERR_PEER_DEAD);
    CHECK_STATUS(angara_offload_batch(peer, ANGARA_BATCH_PUT, &xfer, 1, &posted),
                 ANGARA_ERR_PEER_DEAD);
    CHECK_EQ(posted, 0);
    CHECK_STATUS(angara_marker(peer, t->slot, ++t->value), ANGARA_ERR_PEER_DEAD);
    angara_wake(peer);
    angara_wake_if_armed(peer);
    CHECK(angara_peer_connect(t->pe, &t->addr[1], &again) < 0);
    CHECK(again == NULL);
    CHECK(angara_peer_name(peer)[0] != '\0');
    conf_marker(t, 0); /* the slot is free for others, and the PE works */
    conf_mem_cleanup(&m.mem);
    conf_close_alone(t);
}

/* Connects are counted; what hangs on a pair stays until the last disconnect. */
static void references(conf_t *t)
{
    angara_peer_h again = NULL;
    int           mark;

    conf_open(t);
    angara_peer_set_user(t->peer[1], &mark);
    CHECK_OK(angara_peer_connect(t->pe, &t->addr[1], &again));
    CHECK(again == t->peer[1]);
    CHECK(angara_peer_user(again) == &mark);
    angara_peer_disconnect(again);
    conf_marker(t, 1);
    CHECK_STATUS(angara_close(t->dom), ANGARA_ERR_INVALID);
    conf_close(t);
}

#define TEST(_ranks, _name)                \
    static void test_##_name(void **state) \
    {                                      \
        (void)state;                       \
        conf_run(_ranks, _name, NULL);     \
    }

TEST(2, put_max)
TEST(2, offload_max)
TEST(2, inline_max)
TEST(2, notify_lengths)
TEST(2, zero_lengths)
TEST(2, slot_misuse)
TEST(2, slot_values)
TEST(3, slot_shared)
TEST(3, slot_after_fault)
TEST(2, window_commit)
TEST(1, pe_sizes)
TEST(2, after_fault)
TEST(3, dropped_pair)
TEST(2, references)

static void test_after_close(void **state)
{
    int killed = 0;

    (void)state;
    conf_run(2, after_down, &killed);
}

static void test_after_kill(void **state)
{
    int killed = 1;

    (void)state;
    conf_run_victims(2, after_down, &killed, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_max),          cmocka_unit_test(test_offload_max),
        cmocka_unit_test(test_inline_max),       cmocka_unit_test(test_notify_lengths),
        cmocka_unit_test(test_zero_lengths),     cmocka_unit_test(test_slot_misuse),
        cmocka_unit_test(test_slot_values),      cmocka_unit_test(test_slot_shared),
        cmocka_unit_test(test_slot_after_fault), cmocka_unit_test(test_window_commit),
        cmocka_unit_test(test_pe_sizes),         cmocka_unit_test(test_after_fault),
        cmocka_unit_test(test_dropped_pair),     cmocka_unit_test(test_references),
        cmocka_unit_test(test_after_close),      cmocka_unit_test(test_after_kill),
    };

    return cmocka_run_group_tests_name("contract", tests, NULL, NULL);
}
