/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public calls: check arguments, then go through the provider's operations. Nothing here knows
 * a provider but the table of them.
 */
#include <angara/angara.h>

#include "config.h"
#include "log.h"
#include "provider/provider.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

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
        "a system call failed",
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

/* ---- checks shared by the calls ------------------------------------------------------------ */

static inline angara_status_t check_domain(angara_domain_h dom)
{
    if (dom == NULL) {
        return ANGARA_ERR_INVALID;
    }
    return dom->epoch == ang_fork_epoch ? ANGARA_OK : ANGARA_ERR_FORKED;
}

static inline angara_status_t check_pe(angara_pe_h pe)
{
    return pe == NULL ? ANGARA_ERR_INVALID : check_domain(pe->dom);
}

static inline angara_status_t check_peer(angara_peer_h peer)
{
    return peer == NULL ? ANGARA_ERR_INVALID : check_pe(peer->pe);
}

#define CHECK(_expr)                                          \
    do {                                                      \
        angara_status_t check_status = (_expr);               \
        if (__builtin_expect(check_status != ANGARA_OK, 0)) { \
            return check_status;                              \
        }                                                     \
    } while (0)

#define CHECK_ARG(_cond) CHECK((_cond) ? ANGARA_OK : ANGARA_ERR_INVALID)

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
    ang_error(
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
    return take_ref(dom, dom->ops->mem_alloc(dom, length, access, addr_p, mr_p));
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

angara_status_t angara_pe_create(angara_domain_h dom, const angara_pe_params_t *theirs,
                                 angara_pe_h *pe_p)
{
    angara_pe_params_t params;
    size_t             window_size;
    unsigned           events;

    CHECK(check_domain(dom));
    CHECK_ARG(pe_p != NULL);
    CHECK(copy_params(&params, theirs));
    window_size = params.window_size != 0 ? params.window_size : ang_config.window_size;
    events      = params.events != 0 ? params.events : (unsigned)ang_config.events;
    CHECK_ARG(events >= 2 && events <= 65536 && (events & (events - 1)) == 0);
    if (window_size > dom->attr.window_max) {
        ang_error("a put window of %zu bytes is more than the %zu that %s has", window_size,
                  dom->attr.window_max, dom->attr.device);
        return ANGARA_ERR_LIMIT;
    }
    return take_ref(dom, dom->ops->pe_create(dom, window_size, events, pe_p));
}

void angara_pe_destroy(angara_pe_h pe)
{
    if (check_pe(pe) == ANGARA_OK) {
        angara_domain_h dom = pe->dom;

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
    return check_pe(pe) == ANGARA_OK ? pe->ops->pe_progress(pe) : 0;
}

angara_status_t angara_pe_event_poll_sized(angara_pe_h pe, angara_event_t *event, size_t size)
{
    angara_event_t news;

    CHECK(check_pe(pe));
    CHECK_ARG(event != NULL);
    if (size == sizeof(*event)) {
        return pe->ops->pe_event_poll(pe, event);
    }
    CHECK(pe->ops->pe_event_poll(pe, &news)); /* a program of another version's header */
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
        return pe->ops->peer_connect(pe, address, peer_p);
    }
    peer->refs++;
    *peer_p = peer;
    return ANGARA_OK;
}

void angara_peer_disconnect(angara_peer_h peer)
{
    if (check_peer(peer) == ANGARA_OK && --peer->refs == 0) {
        peer->ops->peer_disconnect(peer);
    }
}

angara_status_t angara_peer_status(angara_peer_h peer)
{
    CHECK(check_peer(peer));
    return peer->ops->peer_status(peer);
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

/* ---- operations ---------------------------------------------------------------------------- */

/* Part of the peer's window that one put may write. */
static inline angara_status_t check_window(angara_peer_h peer, uint64_t offset, size_t length)
{
    if (!ang_in_bounds(offset, length, peer->fast.window_size)) {
        return ANGARA_ERR_BOUNDS;
    }
    return length <= peer->pe->dom->attr.put_max ? ANGARA_OK : ANGARA_ERR_INVALID;
}

angara_status_t angara_put(angara_peer_h peer, uint64_t offset, const void *src, size_t length)
{
    CHECK(check_peer(peer));
    CHECK(check_window(peer, offset, length));
    if (length == 0) { /* there is nothing to do, but to tell of the dead */
        return peer->ops->peer_status(peer) == ANGARA_ERR_PEER_DEAD ? ANGARA_ERR_PEER_DEAD :
                                                                      ANGARA_OK;
    }
    return peer->ops->put(peer, offset, src, length);
}

angara_status_t angara_put_flag(angara_peer_h peer, uint64_t offset, const void *src, size_t length,
                                uint64_t flag_offset, uint64_t flag)
{
    CHECK(check_peer(peer));
    CHECK(check_window(peer, offset, length));
    CHECK(ang_in_bounds(flag_offset, sizeof(flag), peer->fast.window_size) ? ANGARA_OK :
                                                                             ANGARA_ERR_BOUNDS);
    CHECK_ARG(flag_offset % sizeof(flag) == 0);
    return peer->ops->put_flag(peer, offset, src, length, flag_offset, flag);
}

/* A local buffer lies within its region, and one operation may move all of it. */
static inline angara_status_t check_local(angara_peer_h peer, angara_mr_h lmr, const void *laddr,
                                          size_t length)
{
    CHECK(check_peer(peer));
    CHECK_ARG(lmr != NULL && lmr->dom == peer->pe->dom);
    if (!ang_in_bounds((uintptr_t)laddr - (uintptr_t)lmr->addr, length, lmr->length)) {
        return ANGARA_ERR_BOUNDS;
    }
    return length <= peer->pe->dom->attr.offload_max ? ANGARA_OK : ANGARA_ERR_INVALID;
}

static inline ang_desc_t copy_desc(ang_op_t op, angara_mr_h lmr, const void *laddr, uint64_t rkey,
                                   uint64_t roffset, size_t length)
{
    return (ang_desc_t){
        .op      = (uint8_t)op,
        .lkey    = lmr->key,
        .loffset = (uintptr_t)laddr - (uintptr_t)lmr->addr,
        .rkey    = rkey,
        .roffset = roffset,
        .length  = length,
    };
}

static inline angara_status_t post_copy(angara_peer_h peer, ang_op_t op, angara_mr_h lmr,
                                        const void *laddr, uint64_t rkey, uint64_t roffset,
                                        size_t length)
{
    angara_status_t status = check_local(peer, lmr, laddr, length);

    if (__builtin_expect(status == ANGARA_OK, 1)) {
        ang_desc_t desc = copy_desc(op, lmr, laddr, rkey, roffset, length);

        status = peer->ops->post(peer, &desc, NULL);
    }
    return status;
}

angara_status_t angara_offload_put(angara_peer_h peer, angara_mr_h lmr, const void *laddr,
                                   uint64_t rkey, uint64_t roffset, size_t length)
{
    return post_copy(peer, ANG_OP_PUT, lmr, laddr, rkey, roffset, length);
}

angara_status_t angara_offload_put_inline(angara_peer_h peer, const void *src, uint64_t rkey,
                                          uint64_t roffset, size_t length)
{
    ang_desc_t desc = {.op = ANG_OP_PUT_INLINE, .rkey = rkey, .roffset = roffset, .length = length};

    CHECK(check_peer(peer));
    CHECK_ARG(length <= peer->pe->dom->attr.inline_max);
    return peer->ops->post(peer, &desc, src);
}

angara_status_t angara_offload_get(angara_peer_h peer, angara_mr_h lmr, void *laddr, uint64_t rkey,
                                   uint64_t roffset, size_t length)
{
    return post_copy(peer, ANG_OP_GET, lmr, laddr, rkey, roffset, length);
}

angara_status_t angara_offload_batch(angara_peer_h peer, angara_batch_op_t op,
                                     const angara_xfer_t *xfers, unsigned count, unsigned *posted_p)
{
    ang_op_t        code = op == ANGARA_BATCH_GET ? ANG_OP_GET : ANG_OP_PUT;
    angara_status_t bad  = ANGARA_OK;
    angara_status_t status;
    ang_desc_t      descs[ANGARA_BATCH_MAX];
    unsigned        good;

    CHECK_ARG(posted_p != NULL);
    *posted_p = 0;
    CHECK(check_peer(peer));
    CHECK_ARG((xfers != NULL || count == 0) && count <= ANGARA_BATCH_MAX &&
              (op == ANGARA_BATCH_PUT || op == ANGARA_BATCH_GET));
    for (good = 0; good < count; ++good) {
        const angara_xfer_t *x = &xfers[good];

        bad = check_local(peer, x->lmr, x->laddr, x->length);
        if (bad != ANGARA_OK) {
            break;
        }
        descs[good] = copy_desc(code, x->lmr, x->laddr, x->rkey, x->roffset, x->length);
    }
    if (good == 0) {
        return bad;
    }
    status = peer->ops->post_batch(peer, descs, good, posted_p);
    return status == ANGARA_OK ? bad : status;
}

angara_status_t angara_atomic(angara_peer_h peer, angara_atomic_op_t op, unsigned width,
                              uint64_t operand, uint64_t compare, uint64_t rkey, uint64_t roffset,
                              angara_mr_h lmr, void *result)
{
    ang_desc_t desc = {
        .op      = ANG_OP_ATOMIC,
        .atomic  = (uint8_t)op,
        .width   = (uint8_t)width,
        .rkey    = rkey,
        .roffset = roffset,
        .operand = operand,
        .compare = compare,
    };

    CHECK(check_peer(peer));
    CHECK_ARG((width == 4 || width == 8) && (unsigned)op < ANGARA_ATOMIC_LAST &&
              (lmr == NULL) == (result == NULL));
    if (result != NULL) {
        CHECK_ARG((uintptr_t)result % width == 0);
        CHECK(check_local(peer, lmr, result, width));
        desc.lkey    = lmr->key;
        desc.loffset = (uintptr_t)result - (uintptr_t)lmr->addr;
    }
    return peer->ops->post(peer, &desc, NULL);
}

angara_status_t angara_notify(angara_peer_h peer, const void *record, size_t length)
{
    CHECK(check_peer(peer));
    CHECK_ARG((record != NULL || length == 0) && length <= ANGARA_NOTIFY_MAX);
    return peer->ops->notify(peer, record, length);
}

void angara_wake(angara_peer_h peer)
{
    if (check_peer(peer) == ANGARA_OK) {
        peer->ops->wake(peer);
    }
}

/* ---- completion markers -------------------------------------------------------------------- */

angara_status_t angara_marker_slot_get(angara_pe_h pe, angara_marker_slot_t **slot_p)
{
    CHECK(check_pe(pe));
    CHECK_ARG(slot_p != NULL);
    if (ang_slots_get(&pe->slots, slot_p) == ANGARA_OK) {
        return ANGARA_OK;
    }
    pe->ops->pe_settle(pe);
    return ang_slots_get(&pe->slots, slot_p);
}

void angara_marker_slot_put(angara_pe_h pe, angara_marker_slot_t *slot)
{
    if (check_pe(pe) == ANGARA_OK && slot != NULL) {
        ang_slots_put(&pe->slots, slot);
    }
}

/* May a marker of the pair's (NULL: a self marker) be posted to the slot? *index_p: its number. */
static inline angara_status_t check_slot(angara_pe_h pe, const angara_marker_slot_t *slot,
                                         angara_peer_h owner, uint64_t value, uint32_t *index_p)
{
    angara_status_t status = ang_slots_check(&pe->slots, slot, owner, value, index_p);

    if (__builtin_expect(status != ANGARA_ERR_NO_RESOURCE, 1)) {
        return status;
    }
    pe->ops->pe_settle(pe);
    return ang_slots_check(&pe->slots, slot, owner, value, index_p);
}

angara_status_t angara_marker(angara_peer_h peer, angara_marker_slot_t *slot, uint64_t value)
{
    angara_status_t status;
    uint32_t        index;

    CHECK(check_peer(peer));
    CHECK(check_slot(peer->pe, slot, peer, value, &index));
    status = peer->ops->marker(peer, index, value);
    if (__builtin_expect(status == ANGARA_OK, 1)) {
        ang_slots_posted(&peer->pe->slots, index, peer, value);
    }
    return status;
}

angara_status_t angara_marker_self(angara_pe_h pe, angara_marker_slot_t *slot, uint64_t value)
{
    angara_status_t status;
    uint32_t        index;

    CHECK(check_pe(pe));
    CHECK(check_slot(pe, slot, NULL, value, &index));
    status = pe->ops->marker_self(pe, index, value);
    if (__builtin_expect(status == ANGARA_OK, 1)) {
        ang_slots_posted(&pe->slots, index, NULL, value);
    }
    return status;
}
