/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public calls but those that post (post.c): check arguments, then go through the provider's
 * operations. Nothing here knows a provider but the table of them.
 */
#include <angara/angara.h>

#include "check.h"
#include "config.h"
#include "log.h"
#include "prefault.h"
#include "watch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANG_STR_(_x) #_x
#define ANG_STR(_x)  ANG_STR_(_x)

/* In the order in which "auto" asks them. */
static const ang_provider_ops_t *const ang_providers[] = {&ang_nic_provider, &ang_soft_provider};

#define NUM_PROVIDERS (sizeof(ang_providers) / sizeof(ang_providers[0]))

unsigned ang_fork_epoch;

static void fork_child(void)
{
    ang_fork_epoch++;
}

static void __attribute__((constructor)) ang_library_init(void)
{
    pthread_atfork(NULL, NULL, fork_child);
}

const char *angara_version(void)
{
    return ANG_STR(ANGARA_VERSION_MAJOR) "." ANG_STR(ANGARA_VERSION_MINOR) "." ANG_STR(
        ANGARA_VERSION_PATCH);
}

const char *angara_strerror(angara_status_t status)
{
    static const char *const texts[] = {
        "success",
        "invalid argument",
        "out of memory or table entries",
        "no resource now, try again",
        "no such device",
        "address can't be reached",
        "no region of that key",
        "out of the bounds of the region",
        "access right not granted",
        "peer is dead",
        "pair is in error after an earlier fault",
        "not supported",
        "versions don't match",
        "a limit forbids it",
        "a system call or a driver's call failed",
        "object belongs to the parent process",
        "a peer is stopped within an access",
    };

    if (status == ANGARA_INPROGRESS) {
        return "in progress";
    }
    if (status > ANGARA_OK || status <= ANGARA_ERR_LAST) {
        return "unknown status";
    }
    return texts[-(int)status];
}

int angara_is_said(const char *text)
{
    ang_config_load(); /* which job this is */
    return ang_log_is_said("%s", text);
}

void angara_log_error(const char *text)
{
    ang_config_load(); /* which rank this is */
    ang_error("%s", text);
}

/* ---- domains and regions ------------------------------------------------------------------- */

angara_status_t angara_open_version(const char *device, unsigned fast_version,
                                    angara_domain_h *dom_p)
{
    CHECK_ARG(dom_p != NULL);
    CHECK(ang_config_load());
    if (fast_version != ANGARA_FAST_VERSION) {
        ang_error("this program was compiled with version %u of angara_fast.h, libangara %s has "
                  "version %u: compile it with the headers of that library",
                  fast_version, angara_version(), ANGARA_FAST_VERSION);
        return ANGARA_ERR_VERSION;
    }
    if (device == NULL) {
        device = ang_config.device;
    }
    for (unsigned i = 0; i < NUM_PROVIDERS; ++i) {
        if (ang_providers[i]->match(device)) {
            return ang_providers[i]->open(device, dom_p);
        }
    }
    ang_log_alike(
        ANG_LOG_ERROR,
        "there is no device \"%s\" here: soft0 (the soft fabric) always is, angara0 needs a NIC "
        "and its module; see angara_info and ANGARA_DEVICE",
        device);
    return ANGARA_ERR_NO_DEVICE;
}

angara_status_t angara_close(angara_domain_h dom)
{
    CHECK(check_domain(dom));
    if (__atomic_load_n(&dom->refs, __ATOMIC_ACQUIRE) != 0) {
        ang_error("a domain was closed with %u PEs or regions still open", dom->refs);
        return ANGARA_ERR_INVALID;
    }
    return dom->ops->close(dom);
}

/* A PE or a region of the domain has been made, if `status` says so. */
static angara_status_t take_ref(angara_domain_h dom, angara_status_t status)
{
    if (status == ANGARA_OK) {
        __atomic_add_fetch(&dom->refs, 1, __ATOMIC_RELAXED);
    }
    return status;
}

/* It is gone: from here on the domain may be closed. */
static void drop_ref(angara_domain_h dom)
{
    __atomic_sub_fetch(&dom->refs, 1, __ATOMIC_RELEASE);
}

angara_status_t angara_query_sized(angara_domain_h dom, angara_attr_t *out, size_t size)
{
    CHECK(check_domain(dom));
    CHECK_ARG(out != NULL);
    memcpy(out, &dom->attr, size < sizeof(dom->attr) ? size : sizeof(dom->attr));
    return ANGARA_OK;
}

angara_status_t angara_mr_register(angara_domain_h dom, void *addr, size_t length, unsigned access,
                                   angara_mr_h *mr_p)
{
    CHECK(check_domain(dom));
    CHECK_ARG(mr_p != NULL && length != 0 && (access & ~(unsigned)ANGARA_ACCESS_ALL) == 0 &&
              (uintptr_t)addr <= UINTPTR_MAX - length);
    return take_ref(dom, dom->ops->mr_register(dom, addr, length, access, mr_p));
}

/* `end`: of the provider. The region is gone, or owed, whatever the status. */
static angara_status_t end_region(angara_mr_h mr, int allocated,
                                  angara_status_t (*end)(angara_mr_h mr))
{
    angara_domain_h dom     = mr->dom;
    int             counted = !mr->owed; /* else it was here before */
    angara_status_t status;

    CHECK_ARG(!mr->allocated == !allocated);
    status = end(mr);
    if (counted) {
        drop_ref(dom);
    }
    return status;
}

angara_status_t angara_mr_deregister(angara_mr_h mr)
{
    CHECK_ARG(mr != NULL);
    CHECK(check_domain(mr->dom));
    return end_region(mr, 0, mr->dom->ops->mr_deregister);
}

unsigned angara_mr_collect(angara_domain_h dom)
{
    return check_domain(dom) == ANGARA_OK && dom->ops->mr_collect != NULL ?
               dom->ops->mr_collect(dom) :
               0;
}

angara_status_t angara_mem_alloc(angara_domain_h dom, size_t *length, unsigned access,
                                 void **addr_p, angara_mr_h *mr_p)
{
    CHECK(check_domain(dom));
    CHECK_ARG(length != NULL && *length != 0 && *length <= SIZE_MAX / 2 && addr_p != NULL &&
              mr_p != NULL && (access & ~(unsigned)ANGARA_ACCESS_ALL) == 0);
    return take_ref(dom, dom->ops->mem_alloc(dom, NULL, length, access, addr_p, mr_p));
}

angara_status_t angara_mem_alloc_at(angara_domain_h dom, void *addr, size_t *length,
                                    unsigned access, angara_mr_h *mr_p)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    CHECK(check_domain(dom));
    CHECK_ARG(length != NULL && *length != 0 && *length <= SIZE_MAX / 2 && addr != NULL &&
              (uintptr_t)addr % page == 0 && mr_p != NULL &&
              (access & ~(unsigned)ANGARA_ACCESS_ALL) == 0);
    return take_ref(dom, dom->ops->mem_alloc(dom, addr, length, access, &addr, mr_p));
}

angara_status_t angara_mem_free(angara_mr_h mr)
{
    CHECK_ARG(mr != NULL);
    CHECK(check_domain(mr->dom));
    return end_region(mr, 1, mr->dom->ops->mem_free);
}

uint64_t angara_mr_key(angara_mr_h mr)
{
    return mr->key;
}

unsigned angara_mr_access(angara_mr_h mr)
{
    return mr->access;
}

/* A forked child has no mapping of the word, and no use for the region. */
static int is_stale(angara_mr_h mr, uint64_t offset, uint64_t length)
{
    return mr->stale != NULL && (check_domain(mr->dom) != ANGARA_OK ||
                                 (__atomic_load_n(mr->stale, __ATOMIC_ACQUIRE) != 0 &&
                                  mr->dom->ops->mr_is_stale(mr, offset, length)));
}

int angara_mr_is_stale(angara_mr_h mr)
{
    return is_stale(mr, 0, mr->length);
}

int angara_mr_part_is_stale(angara_mr_h mr, const void *addr, size_t length)
{
    return length != 0 && is_stale(mr, (uintptr_t)addr - (uintptr_t)mr->addr, length);
}

void angara_mr_range(angara_mr_h mr, void **addr_p, size_t *length_p)
{
    *addr_p   = mr->addr;
    *length_p = mr->length;
}

/* ---- processing elements ------------------------------------------------------------------- */

/* Size of angara_pe_params_t in version 0.1: what every program has. */
#define PE_PARAMS_MIN 24
#define PE_PARAMS_MAX 4096 /* more is garbage */

/* What the caller's struct says and this library knows; the rest is zero. */
static angara_status_t copy_params(angara_pe_params_t *params, const angara_pe_params_t *theirs)
{
    const char *bytes = (const char *)theirs;
    size_t      known;

    memset(params, 0, sizeof(*params));
    if (theirs == NULL) {
        return ANGARA_OK;
    }
    CHECK_ARG(theirs->size >= PE_PARAMS_MIN && theirs->size <= PE_PARAMS_MAX);
    known = theirs->size < sizeof(*params) ? theirs->size : sizeof(*params);
    memcpy(params, theirs, known);
    for (size_t i = known; i < theirs->size; ++i) {
        CHECK(bytes[i] == 0 ? ANGARA_OK : ANGARA_ERR_UNSUPPORTED);
    }
    return ANGARA_OK;
}

static void read_pe(const void *object, uint64_t *values)
{
    const angara_pe_h pe = (angara_pe_h)object;

    _Static_assert(sizeof(angara_counters_t) <= ANGARA_WATCH_COUNTERS * sizeof(uint64_t),
                   "all can be watched");
    pe->ops->pe_counters(pe, (angara_counters_t *)values);
}

static const char *const pe_counters[] = {
#define COUNTER_NAME(_name, _help) #_name,
    ANGARA_COUNTERS(COUNTER_NAME)
#undef COUNTER_NAME
};

static const angara_watch_kind_t pe_kind = {sizeof(pe_kind), "pe", pe_counters,
                                            sizeof(pe_counters) / sizeof(pe_counters[0]), read_pe};

static void add_posted(ang_posted_t *sum, angara_peer_h peer)
{
    const ang_posted_t       *posted = &peer->posted;
    struct angara_fast_counts done   = angara_fast_done(peer);

    sum->puts += posted->puts + done.puts;
    sum->gets += posted->gets + done.gets;
    sum->bytes += posted->bytes + done.put_bytes + done.get_bytes;
    sum->atomics += posted->atomics + done.atomics;
    sum->markers += posted->markers;
    sum->notifies += posted->notifies;
    sum->refused += posted->refused;
    sum->faults += posted->faults;
}

/* Of all peers together, those that are gone included. */
static void read_peers(const void *object, uint64_t *values)
{
    const struct angara_pe *pe  = object;
    ang_posted_t            sum = pe->gone;

    for (angara_peer_h peer = pe->peers; peer != NULL; peer = peer->next) {
        if (peer->refs != 0) { /* else it is in `gone` */
            add_posted(&sum, peer);
        }
    }
    memcpy(values, &sum, sizeof(sum));
}

static void read_peer(const void *object, uint64_t *values)
{
    ang_posted_t sum = {0};

    add_posted(&sum, (angara_peer_h)object);
    memcpy(values, &sum, sizeof(sum));
}

static const char *const peer_counters[] = {"puts",    "gets",     "bytes",   "atomics",
                                            "markers", "notifies", "refused", "faults"};

#define NUM_PEER_COUNTERS (sizeof(peer_counters) / sizeof(peer_counters[0]))

_Static_assert(sizeof(ang_posted_t) == NUM_PEER_COUNTERS * sizeof(uint64_t), "a name for each");

static const angara_watch_kind_t peers_kind = {sizeof(peers_kind), "peers", peer_counters,
                                               NUM_PEER_COUNTERS, read_peers};
static const angara_watch_kind_t peer_kind  = {sizeof(peer_kind), "peer", peer_counters,
                                               NUM_PEER_COUNTERS, read_peer};

angara_status_t angara_pe_create(angara_domain_h dom, const angara_pe_params_t *theirs,
                                 angara_pe_h *pe_p)
{
    angara_pe_params_t params;
    angara_status_t    status;

    CHECK(check_domain(dom));
    CHECK_ARG(pe_p != NULL);
    CHECK(copy_params(&params, theirs));
    params.window_size = params.window_size != 0 ? params.window_size : ang_config.window_size;
    params.events      = params.events != 0 ? params.events : (unsigned)ang_config.events;
    CHECK_ARG(params.events >= 2 && params.events <= 65536 &&
              (params.events & (params.events - 1)) == 0);
    CHECK((params.flags & ~(uint64_t)ANGARA_PE_RELAXED) == 0 ? ANGARA_OK : ANGARA_ERR_UNSUPPORTED);
    if (params.window_size > dom->attr.window_max) {
        ang_error("a put window of %zu bytes is more than the %zu that %s has", params.window_size,
                  dom->attr.window_max, dom->attr.device);
        return ANGARA_ERR_LIMIT;
    }
    status = take_ref(dom, dom->ops->pe_create(dom, &params, pe_p));
    if (status == ANGARA_OK) {
        angara_watch_add(*pe_p, &pe_kind, *pe_p, dom->attr.device);
        angara_watch_add(*pe_p, &peers_kind, *pe_p, dom->attr.device);
    }
    return status;
}

void angara_pe_destroy(angara_pe_h pe)
{
    if (check_pe(pe) == ANGARA_OK) {
        angara_domain_h dom = pe->dom;

        ang_watch_end(pe);
        pe->ops->pe_destroy(pe);
        drop_ref(dom);
    }
}

void angara_pe_address(angara_pe_h pe, angara_address_t *address)
{
    *address = pe->address;
}

void *angara_pe_window(angara_pe_h pe, size_t *size_p)
{
    int is_usable = check_pe(pe) == ANGARA_OK;

    if (size_p != NULL) {
        *size_p = is_usable ? pe->window_size : 0;
    }
    return is_usable ? pe->window : NULL;
}

angara_status_t angara_pe_window_commit(angara_pe_h pe, size_t offset, size_t length)
{
    CHECK(check_pe(pe));
    CHECK_ARG(length != 0);
    CHECK(ang_in_bounds(offset, length, pe->window_size) ? ANGARA_OK : ANGARA_ERR_BOUNDS);
    return pe->ops->pe_window_commit(pe, offset, length);
}

unsigned angara_pe_progress(angara_pe_h pe)
{
    unsigned count;

    if (check_pe(pe) != ANGARA_OK) {
        return 0;
    }
    count = pe->ops->pe_progress(pe);
    ang_watch_look(pe, pe->clock_ns);
    return count;
}

static angara_status_t poll_event(angara_pe_h pe, angara_event_t *event)
{
    CHECK(pe->ops->pe_event_poll(pe, event));
    if (event->type == ANGARA_EVENT_FAULT && event->peer != NULL) {
        event->peer->posted.faults++;
    }
    return ANGARA_OK;
}

angara_status_t angara_pe_event_poll_sized(angara_pe_h pe, angara_event_t *event, size_t size)
{
    angara_event_t news;

    CHECK(check_pe(pe));
    CHECK_ARG(event != NULL);
    if (size == sizeof(*event)) {
        return poll_event(pe, event);
    }
    CHECK(poll_event(pe, &news)); /* a program of another version's header */
    memset(event, 0, size);
    memcpy(event, &news, size < sizeof(news) ? size : sizeof(news));
    return ANGARA_OK;
}

angara_status_t angara_pe_event_fd(angara_pe_h pe, int *fd_p)
{
    CHECK(check_pe(pe));
    CHECK_ARG(fd_p != NULL);
    return pe->ops->pe_event_fd(pe, fd_p);
}

angara_status_t angara_pe_event_arm(angara_pe_h pe)
{
    CHECK(check_pe(pe));
    return pe->ops->pe_event_arm(pe);
}

void angara_pe_event_disarm(angara_pe_h pe)
{
    if (check_pe(pe) == ANGARA_OK) {
        pe->ops->pe_event_disarm(pe);
    }
}

void angara_pe_counters_sized(angara_pe_h pe, angara_counters_t *out, size_t size)
{
    angara_counters_t counters = {0};

    if (check_pe(pe) == ANGARA_OK) {
        pe->ops->pe_counters(pe, &counters);
    }
    memcpy(out, &counters, size < sizeof(counters) ? size : sizeof(counters));
}

/* ---- peers --------------------------------------------------------------------------------- */

int angara_is_reachable(angara_domain_h dom, const angara_address_t *address)
{
    return check_domain(dom) == ANGARA_OK && address != NULL &&
           dom->ops->is_reachable(dom, address) == ANGARA_OK;
}

/* One that is dead isn't found again: connecting says what has become of that address. */
static angara_peer_h find_connected(angara_pe_h pe, const angara_address_t *address)
{
    angara_peer_h peer = pe->peers;

    while (peer != NULL && (memcmp(&peer->address, address, sizeof(*address)) != 0 ||
                            peer->ops->peer_status(peer) == ANGARA_ERR_PEER_DEAD)) {
        peer = peer->next;
    }
    return peer;
}

angara_status_t angara_peer_connect(angara_pe_h pe, const angara_address_t *address,
                                    angara_peer_h *peer_p)
{
    angara_peer_h peer;

    CHECK(check_pe(pe));
    CHECK_ARG(address != NULL && peer_p != NULL);
    peer = find_connected(pe, address);
    if (peer == NULL) {
        CHECK(pe->ops->peer_connect(pe, address, &peer));
        peer->watch = angara_watch_add(pe, &peer_kind, peer, peer->name);
        *peer_p     = peer;
        return ANGARA_OK;
    }
    peer->refs++;
    *peer_p = peer;
    return ANGARA_OK;
}

void angara_peer_disconnect(angara_peer_h peer)
{
    if (check_peer(peer) == ANGARA_OK && --peer->refs == 0) {
        angara_watch_remove(peer->watch);
        add_posted(&peer->pe->gone, peer);
        peer->ops->peer_disconnect(peer);
    }
}

angara_status_t angara_peer_status(angara_peer_h peer)
{
    CHECK(check_peer(peer));
    return peer->ops->peer_status(peer);
}

int angara_peer_settled(angara_peer_h peer)
{
    return check_peer(peer) == ANGARA_OK && peer->ops->peer_settled != NULL &&
           peer->ops->peer_settled(peer);
}

int angara_peer_hurry(angara_peer_h peer)
{
    return check_peer(peer) == ANGARA_OK && peer->ops->peer_hurry != NULL &&
           peer->ops->peer_hurry(peer);
}

void angara_peer_window_prefault(angara_peer_h peer, uint64_t offset, size_t length)
{
    if (check_peer(peer) == ANGARA_OK && peer->fast.window != NULL &&
        ang_in_bounds(offset, length, peer->fast.window_size)) {
        ang_prefault(peer->fast.window + offset, length);
    }
}

angara_status_t angara_peer_reset(angara_peer_h peer)
{
    CHECK(check_peer(peer));
    CHECK(peer->ops->peer_status(peer) == ANGARA_ERR_PEER_DEAD ? ANGARA_ERR_PEER_DEAD : ANGARA_OK);
    return peer->ops->peer_reset(peer);
}

const char *angara_peer_name(angara_peer_h peer)
{
    return peer->name;
}

void angara_peer_set_user(angara_peer_h peer, void *user)
{
    peer->user = user;
}

void *angara_peer_user(angara_peer_h peer)
{
    return peer->user;
}
