/* SPDX-License-Identifier: BSD-3-Clause */
/* See pair_traffic.h. Nothing but libangara is used here. */
#define _GNU_SOURCE
#include "pair_traffic.h"
#include "fault_common.h"
#include "fault_link.h"

#include <angara/angara.h>
#include <angara/angara_fast.h>

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW  (1u << 20)
#define PUT     1024               /* bytes of a window put: every mode allows as many */
#define SECONDS (10 * test_slow()) /* that any single wait may take */

typedef struct {
    angara_address_t address;
    uint64_t         private_key;
    uint64_t         shared_key;
} card_t; /* what the two tell each other */

typedef struct {
    char       *data;
    size_t      length;
    angara_mr_h mr;
} region_t;

static pair_options_t        opt;
static size_t                stride; /* size rounded up, so that words behind it are aligned */
static angara_domain_h       dom;
static angara_pe_h           pe;
static angara_peer_h         peer;
static angara_marker_slot_t *slot;
static uint64_t              marker;
static region_t              private_region, shared_region;
static card_t                mine, theirs;

static void check(angara_status_t status, const char *what)
{
    if (status != ANGARA_OK) {
        fault_end(FAULT_REFUSED, "%s: %s", what, angara_strerror(status));
    }
}

/* Without a helper thread, the other's requests wait for this one's progress. */
static void progress(void)
{
    angara_pe_progress(pe);
    sched_yield();
}

void pair_open(const pair_options_t *options)
{
    const unsigned     access = ANGARA_ACCESS_ALL;
    angara_mr_h        more;
    angara_pe_params_t params = {.size = sizeof(params), .window_size = WINDOW, .events = 64};
    void              *addr;

    opt             = *options;
    stride          = (opt.size + 63) & ~(size_t)63;
    fault_link_idle = opt.progress ? progress : NULL;
    check(angara_open(opt.device, &dom), "angara_open");
    check(angara_pe_create(dom, &params, &pe), "angara_pe_create");
    check(angara_pe_window_commit(pe, 0, WINDOW), "angara_pe_window_commit");
    check(angara_marker_slot_get(pe, &slot), "angara_marker_slot_get");
    marker = *slot;

    /* Twice the size: the first half is written by the other, the second is sent from. */
    private_region.length = 2 * stride;
    private_region.data   = malloc(private_region.length);
    if (private_region.data == NULL) {
        fault_end(FAULT_HARNESS, "malloc failed");
    }
    memset(private_region.data, 0, private_region.length);
    check(angara_mr_register(dom, private_region.data, private_region.length, access,
                             &private_region.mr),
          "angara_mr_register");
    shared_region.length = 2 * stride;
    check(angara_mem_alloc(dom, &shared_region.length, access, &addr, &shared_region.mr),
          "angara_mem_alloc");
    shared_region.data = addr;
    for (unsigned i = 0; i < opt.regions; ++i) {
        check(angara_mr_register(dom, private_region.data, 8, access, &more), "angara_mr_register");
    }
}

void pair_close(void)
{
    angara_marker_slot_put(pe, slot);
    angara_peer_disconnect(peer);
    check(angara_mr_deregister(private_region.mr), "angara_mr_deregister");
    check(angara_mem_free(shared_region.mr), "angara_mem_free");
    angara_pe_destroy(pe);
    check(angara_close(dom), "angara_close");
    free(private_region.data);
}

void pair_meet(void)
{
    angara_pe_address(pe, &mine.address);
    mine.private_key = angara_mr_key(private_region.mr);
    mine.shared_key  = angara_mr_key(shared_region.mr);
    fault_tell(&mine, sizeof(mine));
    fault_hear(&theirs, sizeof(theirs));
    check(angara_peer_connect(pe, &theirs.address, &peer), "angara_peer_connect");
}

/* Repeat a call that may say "not now". */
#define POST(_call)                                                 \
    do {                                                            \
        double          post_end = now_seconds() + SECONDS;         \
        angara_status_t post_status;                                \
        while ((post_status = (_call)) == ANGARA_ERR_NO_RESOURCE) { \
            if (now_seconds() > post_end) {                         \
                fault_end(FAULT_LATE, "no room for " #_call);       \
            }                                                       \
            angara_pe_progress(pe);                                 \
        }                                                           \
        check(post_status, #_call);                                 \
    } while (0)

static void wait_marker(void)
{
    double end = now_seconds() + SECONDS;

    POST(angara_marker(peer, slot, ++marker));
    while (!angara_marker_arrived(slot, marker)) {
        angara_pe_progress(pe);
        if (angara_peer_status(peer) != ANGARA_OK) {
            check(angara_peer_status(peer), "waiting for a marker");
        }
        if (now_seconds() > end) {
            fault_end(FAULT_LATE, "a marker never came");
        }
        sched_yield(); /* the peer's helper may need this processor */
    }
}

/* ---- traffic --------------------------------------------------------------------------------- */

static void verify(const char *what, const void *data, size_t length, uint64_t key)
{
    size_t wrong = data_difference(data, length, key);

    if (wrong < length) {
        fault_end(FAULT_WRONG, "%s: wrong data at byte %zu of %zu", what, wrong, length);
    }
}

/* Half `half` of a region: 0 is written by the other process, 1 is sent from. */
static char *half_of(const region_t *region, int half)
{
    return region->data + (half ? stride : 0);
}

static void fetch_add(const region_t *local, uint64_t key, uint64_t expected)
{
    uint64_t *result = (uint64_t *)(void *)half_of(local, 1);

    POST(angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, key, stride, local->mr, result));
    wait_marker();
    if (*result != expected) {
        fault_end(FAULT_WRONG, "fetch-and-add gave %llu instead of %llu",
                  (unsigned long long)*result, (unsigned long long)expected);
    }
}

static void active_half(uint64_t round)
{
    const uint64_t keys[2] = {theirs.private_key, theirs.shared_key};
    char           note[32];

    for (int i = 0; i < 2; ++i) {
        uint64_t key = 4 * round + 2 * (uint64_t)i;

        data_fill(half_of(&private_region, 1), opt.size, key);
        POST(angara_offload_put(peer, private_region.mr, half_of(&private_region, 1), keys[i], 0,
                                opt.size));
        wait_marker();
        memset(half_of(&shared_region, 1), 0, opt.size);
        POST(angara_offload_get(peer, shared_region.mr, half_of(&shared_region, 1), keys[i], 0,
                                opt.size));
        wait_marker();
        verify("get after put", half_of(&shared_region, 1), opt.size, key);
        fetch_add(&private_region, keys[i], 7 + round);
    }
    data_fill(half_of(&private_region, 1), PUT, round);
    POST(angara_put_flag(peer, 64, half_of(&private_region, 1), PUT, 0, round + 1));
    wait_marker();
    snprintf(note, sizeof(note), "round %u", (unsigned)round);
    POST(angara_notify(peer, note, sizeof(note)));
}

static void passive_half(uint64_t round)
{
    const uint64_t *window = angara_pe_window(pe, &(size_t){0});
    angara_event_t  event;
    double          end = now_seconds() + SECONDS;

    verify("put to private memory", half_of(&private_region, 0), opt.size, 4 * round);
    verify("put to shared memory", half_of(&shared_region, 0), opt.size, 4 * round + 2);
    if (__atomic_load_n(window, __ATOMIC_ACQUIRE) != round + 1) {
        fault_end(FAULT_WRONG, "the flag of a window put isn't there");
    }
    verify("window put", window + 8, PUT, round);
    while (angara_pe_event_poll(pe, &event) != ANGARA_OK || event.type != ANGARA_EVENT_NOTIFY) {
        if (now_seconds() > end) {
            fault_end(FAULT_LATE, "a notify record never came");
        }
        angara_pe_progress(pe);
    }
}

static void set_counters(uint64_t value)
{
    memcpy(half_of(&private_region, 1), &value, sizeof(value));
    memcpy(half_of(&shared_region, 1), &value, sizeof(value));
}

void pair_exchange(int starts)
{
    for (unsigned turn = 0; turn < 2 * opt.rounds; ++turn) {
        if ((turn % 2 == 0) == starts) {
            fault_barrier();
            active_half(turn);
            fault_barrier();
        } else {
            set_counters(7 + turn);
            fault_barrier();
            fault_barrier(); /* the second one comes when the active side is through */
            passive_half(turn);
        }
    }
}

/* ---- death ----------------------------------------------------------------------------------- */

angara_status_t pair_flood(void)
{
    angara_status_t status = ANGARA_OK;
    size_t          chunk  = opt.size;

    for (unsigned i = 0; status == ANGARA_OK || status == ANGARA_ERR_NO_RESOURCE; ++i) {
        uint64_t key = i & 1 ? theirs.private_key : theirs.shared_key;

        switch (i % 5) {
        case 0:
        case 1:
            status = angara_offload_put(peer, private_region.mr, half_of(&private_region, 1), key,
                                        0, chunk);
            break;
        case 2:
            status = angara_offload_get(peer, private_region.mr, half_of(&private_region, 0), key,
                                        stride, chunk);
            break;
        case 3:
            status = angara_atomic(peer, ANGARA_ATOMIC_ADD, 8, 1, 0, key, 0, NULL, NULL);
            break;
        default:
            status = angara_marker(peer, slot, ++marker);
            break;
        }
        angara_pe_progress(pe);
        if (status == ANGARA_OK && angara_peer_status(peer) != ANGARA_OK) {
            status = angara_peer_status(peer);
        }
    }
    return status;
}

static volatile double death; /* when the second process died */

static void note_death(int signal)
{
    (void)signal;
    death = now_seconds();
}

void pair_flood_until_death(void)
{
    struct sigaction action = {.sa_handler = note_death, .sa_flags = SA_RESTART};
    angara_status_t  status;
    angara_event_t   event;
    double           now, late;

    sigaction(SIGCHLD, &action, NULL);
    fault_barrier();
    status = pair_flood();
    now    = now_seconds();
    late   = death != 0 ? now - death : 0; /* the library may know before the signal comes */
    if (status != ANGARA_ERR_PEER_DEAD) {
        fault_end(FAULT_WRONG, "the death shows as: %s", angara_strerror(status));
    }
    if (late > 3) { /* a loaded machine needs its time, too */
        fault_end(FAULT_LATE, "the death was seen only after %.2f s", late);
    }
    /* The event may take another look at the peers, never longer. */
    while (now_seconds() < now + 3) {
        angara_pe_progress(pe);
        if (angara_pe_event_poll(pe, &event) == ANGARA_OK && event.type == ANGARA_EVENT_PEER_DOWN &&
            event.peer == peer) {
            printf("death seen after %.3f s: %s\n", late, angara_peer_name(peer));
            return;
        }
    }
    fault_end(FAULT_WRONG, "no PEER_DOWN event came");
}

void pair_open_only(const char *device, int with_pe)
{
    check(angara_open(device, &dom), "angara_open");
    if (with_pe) {
        check(angara_pe_create(dom, NULL, &pe), "angara_pe_create");
        check(angara_pe_window_commit(pe, 0, 65536), "angara_pe_window_commit");
        angara_pe_destroy(pe);
    }
    check(angara_close(dom), "angara_close");
}
