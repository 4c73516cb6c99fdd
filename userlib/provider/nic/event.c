/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The event ring, arming, notify puts and wake-ups. A record is looked at once when it comes, for
 * what it means to pairs, and delivered when the user polls. See "Event ring" in nic.h.
 */
#include "nic.h"

#include "src/log.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* ---- looking --------------------------------------------------------------------------------- */

static const struct angara_event_record *record_at(const nic_pe_t *pe, uint32_t index)
{
    return &pe->event[index & pe->event_mask];
}

static int is_about(const struct angara_event_record *record, const nic_peer_t *peer)
{
    const angara_address_t *address = &peer->base.address;

    return record->node == address->node && record->pe == address->index &&
           record->generation == address->generation;
}

/* The pair that record number `index` is about; NULL: one that was dropped since, or none. */
static nic_peer_t *pair_of(const nic_pe_t *pe, uint32_t index)
{
    const struct angara_event_record *record = record_at(pe, index);
    nic_peer_t *peer = record->pair < ANGARA_PAIRS_MAX ? pe->pairs[record->pair] : NULL;

    return peer != NULL && (int32_t)(index - peer->events_from) >= 0 && is_about(record, peer) ?
               peer :
               NULL;
}

static void set_error(nic_peer_t *peer, angara_status_t error)
{
    if (peer->error != ANGARA_ERR_PEER_DEAD) {
        peer->error = error;
    }
    if (peer->is_self) {
        nic_own_drop(nic_peer_pe(peer), 0);
    }
}

/* The NIC says so: markers of the pair have landed by now, or never will. */
static void pair_failed(nic_pe_t *pe, nic_peer_t *peer, angara_status_t error)
{
    set_error(peer, error);
    ang_slots_settle(&pe->base.slots, &peer->base);
}

static void look_at(nic_pe_t *pe, uint32_t index)
{
    const struct angara_event_record *record = record_at(pe, index);
    nic_peer_t                       *peer;

    if (record->type != ANGARA_EV_FAULT && record->type != ANGARA_EV_PEER_DOWN) {
        return;
    }
    peer = pair_of(pe, index);
    if (peer == NULL) {
        return;
    }
    if (record->type == ANGARA_EV_FAULT) {
        ang_info("an operation to %s faulted: %s (key %#llx)", peer->base.name,
                 angara_strerror((angara_status_t)record->status), (unsigned long long)record->key);
        pair_failed(pe, peer,
                    record->status == ANGARA_ERR_PEER_DEAD ? ANGARA_ERR_PEER_DEAD :
                                                             ANGARA_ERR_PAIR);
    } else {
        ang_info("%s %s", peer->base.name,
                 record->status == ANGARA_OK ? "closed its PE" : "is gone");
        pair_failed(pe, peer, ANGARA_ERR_PEER_DEAD);
    }
}

/*
 * Events were lost: nobody knows whether some pair has faulted, so each is taken to have. Markers
 * of those that haven't will still land: their slots are taken until the reset.
 */
static void look_lost(nic_pe_t *pe, uint32_t lost)
{
    if (pe->lost_told == pe->lost_seen) { /* told once, until the user takes note */
        ang_warn("PE %u: events were lost because the event ring was full; all pairs are in error. "
                 "Make progress more often, or raise event_entries of the module angara_nic",
                 pe->base.address.index);
    }
    pe->lost_seen = lost;
    for (angara_peer_h peer = pe->base.peers; peer != NULL; peer = peer->next) {
        set_error(nic_peer(peer), ANGARA_ERR_PAIR);
    }
}

unsigned nic_events_look(nic_pe_t *pe)
{
    uint32_t seen = pe->event_seen;
    uint32_t lost;

    while (pe->event_seen - pe->event_cons <= pe->event_mask &&
           nic_load(&record_at(pe, pe->event_seen)->valid) == pe->event_seen + 1) {
        look_at(pe, pe->event_seen);
        pe->event_seen++;
    }
    lost = nic_load(&pe->status->event_lost);
    if (NIC_UNLIKELY(lost != pe->lost_seen) && nic_pe_is_running(pe)) {
        look_lost(pe, lost);
    }
    return pe->event_seen - seen;
}

unsigned nic_pe_progress(angara_pe_h base)
{
    nic_pe_t *pe = nic_pe(base);

    if (NIC_UNLIKELY(!nic_pe_is_running(pe))) {
        nic_pe_die(pe);
        return 0;
    }
    return nic_events_look(pe) + (nic_own_waits(pe) ? nic_own_progress(pe) : 0);
}

/* A failure that nobody has looked at yet settles the markers of its pair. */
void nic_pe_settle(angara_pe_h pe)
{
    nic_pe_progress(pe);
}

/* ---- delivering ------------------------------------------------------------------------------ */

/* @return 0 for a record that is nobody's news: about a pair that was dropped. */
static int translate(nic_pe_t *pe, uint32_t index, angara_event_t *event)
{
    const struct angara_event_record *record = record_at(pe, index);
    angara_event_t news = {.type = (angara_event_type_t)record->type, .status = record->status};
    nic_peer_t    *peer;

    switch (record->type) {
    case ANGARA_EV_NOTIFY:
        news.from = (angara_pe_id_t){record->node, record->pe, record->generation};
        news.peer = ang_peer_find(&pe->base, &news.from);
        news.len  = record->length < ANGARA_NOTIFY_MAX ? record->length : ANGARA_NOTIFY_MAX;
        memcpy(news.data, record->data, news.len);
        break;
    case ANGARA_EV_FAULT:
    case ANGARA_EV_PEER_DOWN:
        peer = pair_of(pe, index);
        if (peer == NULL || peer->base.refs == 0) {
            return 0;
        }
        news.peer = &peer->base;
        news.key  = record->key;
        peer->down_told |= record->type == ANGARA_EV_PEER_DOWN;
        break;
    case ANGARA_EV_LINK:
        break;
    default:
        ang_debug("the NIC raised an event of the unknown type %u", record->type);
        return 0;
    }
    *event = news;
    return 1;
}

/* A device that is dead raises no events any more: its pairs are down all the same. */
static nic_peer_t *find_untold(const nic_pe_t *pe)
{
    angara_peer_h peer = pe->dead ? pe->base.peers : NULL;

    while (peer != NULL && nic_peer(peer)->down_told) {
        peer = peer->next;
    }
    return nic_peer(peer);
}

angara_status_t nic_event_poll(angara_pe_h base, angara_event_t *event)
{
    nic_pe_t   *pe = nic_pe(base);
    nic_peer_t *peer;
    int         found = 0;

    nic_pe_progress(base);
    if (NIC_UNLIKELY(pe->lost_told != pe->lost_seen)) {
        pe->lost_told = pe->lost_seen;
        memset(event, 0, sizeof(*event));
        event->type = ANGARA_EVENT_OVERFLOW;
        found       = 1;
    }
    while (!found && pe->event_cons != pe->event_seen && !pe->dead) {
        found = translate(pe, pe->event_cons, event);
        /* A release: the record has been read before the NIC may write over it. */
        nic_store(&pe->doorbell->event_cons, ++pe->event_cons);
    }
    if (!found && NIC_UNLIKELY((peer = find_untold(pe)) != NULL)) {
        peer->down_told = 1;
        memset(event, 0, sizeof(*event));
        event->type   = ANGARA_EVENT_PEER_DOWN;
        event->status = ANGARA_ERR_PEER_DEAD;
        event->peer   = &peer->base;
        found         = 1;
    }
    pe->counters.events += (unsigned)found;
    return found ? ANGARA_OK : ANGARA_ERR_NO_RESOURCE;
}

/* ---- arming ---------------------------------------------------------------------------------- */

/*
 * Around the PE's file, which says POLLERR | POLLHUP when the device has gone: for ever, and nobody
 * can look away. Who sleeps on many files, as UCX does, would never sleep again.
 */
angara_status_t nic_event_fd(angara_pe_h base, int *fd_p)
{
    nic_pe_t          *pe    = nic_pe(base);
    struct epoll_event event = {.events = EPOLLIN};

    if (pe->event_fd < 0) {
        pe->event_fd = epoll_create1(EPOLL_CLOEXEC);
        if (pe->event_fd < 0) {
            return nic_error(errno, "a descriptor for events");
        }
        if (epoll_ctl(pe->event_fd, EPOLL_CTL_ADD, pe->fd, &event) != 0) {
            angara_status_t status = nic_error(errno, "a descriptor for events");

            close(pe->event_fd);
            pe->event_fd = -1;
            return status;
        }
    }
    *fd_p = pe->event_fd;
    return ANGARA_OK;
}

/* All has been told: nothing will wake who sleeps from now on. */
static angara_status_t end_events(nic_pe_t *pe)
{
    if (pe->event_fd >= 0) {
        epoll_ctl(pe->event_fd, EPOLL_CTL_DEL, pe->fd, NULL); /* once; it may be out already */
    }
    return ANGARA_ERR_NO_DEVICE;
}

/* Take the interrupts off the file, if there were any. Slow only then. */
static void drain_interrupts(nic_pe_t *pe)
{
    uint64_t count = *(const volatile __u64 *)&pe->status->counters[ANGARA_CNT_IRQS];
    uint64_t taken;

    if (count != pe->irqs_read) {
        pe->irqs_read = count;
        if (read(pe->fd, &taken, sizeof(taken)) < 0 && errno != EAGAIN) {
            ang_debug("reading a PE's file: %s", strerror(errno));
        }
    }
}

/* Store the value, and wait until the NIC has taken note. */
static angara_status_t set_armed(nic_pe_t *pe, uint32_t arm)
{
    angara_status_t status = ANGARA_OK;
    nic_wait_t      wait   = {0};

    nic_store(&pe->doorbell->arm, arm);
    while (status == ANGARA_OK && nic_load(&pe->status->arm_ack) != arm) {
        status = nic_wait_turn(pe, &wait);
    }
    return status;
}

static int have_events(nic_pe_t *pe)
{
    nic_pe_progress(&pe->base);
    return (pe->event_cons != pe->event_seen && !pe->dead) || pe->lost_told != pe->lost_seen ||
           find_untold(pe) != NULL || nic_own_waits(pe);
}

/*
 * What comes after the NIC has taken note interrupts, a marker too; what came before is in the
 * rings, or the marker's slot, by then.
 */
angara_status_t nic_event_arm(angara_pe_h base)
{
    nic_pe_t *pe = nic_pe(base);

    if (have_events(pe)) {
        return ANGARA_INPROGRESS;
    }
    if (pe->dead) {
        return end_events(pe);
    }
    drain_interrupts(pe);
    if (++pe->arm == 0) {
        pe->arm = 1;
    }
    if (set_armed(pe, pe->arm) != ANGARA_OK || have_events(pe)) {
        return ANGARA_INPROGRESS;
    }
    return pe->dead ? end_events(pe) : ANGARA_OK;
}

void nic_event_disarm(angara_pe_h base)
{
    nic_pe_t *pe = nic_pe(base);

    if (!pe->dead) {
        set_armed(pe, 0);
        drain_interrupts(pe);
    }
}

/* ---- notify puts and wake-ups ---------------------------------------------------------------- */

angara_status_t nic_notify(angara_peer_h base, const void *record, size_t length)
{
    nic_peer_t       *peer = nic_peer(base);
    nic_pe_t         *pe   = nic_peer_pe(peer);
    nic_wait_t        wait = {0};
    struct angara_put head = {.op = ANGARA_PIO_NOTIFY, .pair = peer->pair, .token = pe->token + 1};
    angara_status_t   status;

    if (NIC_UNLIKELY(peer->error == ANGARA_ERR_PEER_DEAD)) {
        return ANGARA_ERR_PEER_DEAD;
    }
    status = nic_put_write(pe, &head, record, length);
    if (status != ANGARA_OK) {
        return status;
    }
    pe->token++;
    while (nic_load(&pe->status->notify_token) != pe->token) {
        status = nic_wait_turn(pe, &wait);
        if (status != ANGARA_OK) {
            return status;
        }
    }
    status = (angara_status_t) * (const volatile __s32 *)&pe->status->notify_status;
    return status <= ANGARA_OK && status > ANGARA_ERR_LAST ? status : ANGARA_ERR_SYSTEM;
}

/* A flagged put without data, to the word behind the peer's window: all that it does is wake. */
void nic_wake(angara_peer_h base)
{
    nic_peer_t       *peer = nic_peer(base);
    nic_pe_t         *pe   = nic_peer_pe(peer);
    nic_wait_t        wait = {0};
    uint64_t          size = base->fast.window_size;
    struct angara_put head = {.op          = ANGARA_PIO_PUT_FLAG,
                              .pair        = peer->pair,
                              .flag_offset = (size + NIC_PAGE - 1) & ~(uint64_t)(NIC_PAGE - 1)};

    if (peer->error == ANGARA_ERR_PEER_DEAD) {
        return;
    }
    while (nic_put_write(pe, &head, NULL, 0) == ANGARA_ERR_NO_RESOURCE) {
        if (nic_wait_turn(pe, &wait) != ANGARA_OK) {
            return;
        }
    }
    pe->counters.wakes++;
}
