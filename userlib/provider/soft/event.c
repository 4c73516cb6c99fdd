/* SPDX-License-Identifier: BSD-3-Clause */
/* Event rings, notify puts and wake-ups of the soft fabric. See soft.h. */
#define _GNU_SOURCE
#include "agent.h"

#include "src/log.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* What a notify record carries besides its data: who sent it. */
typedef struct {
    angara_pe_id_t from;
    uint32_t       reserved;
} notify_head_t;

/* ---- local events: faults, dead peers -------------------------------------------------------- */

/* Called as the engine's backend is: under its lock, or where there is nobody else. */
void soft_event_raise(soft_pe_t *pe, angara_event_type_t type, int status, soft_peer_t *peer,
                      uint64_t key)
{
    angara_event_t *event;

    if (pe->events_tail - pe->events_head == pe->num_events) {
        pe->events_lost = 1;
        pe->counters.events_lost++;
        return;
    }
    event  = &pe->events[pe->events_tail++ % pe->num_events];
    *event = (angara_event_t){
        .type = type, .status = status, .peer = peer != NULL ? &peer->base : NULL, .key = key};
    soft_wake_self(pe);
}

static int poll_local(soft_pe_t *pe, angara_event_t *event)
{
    int found = 1;

    ang_engine_lock(&pe->engine);
    if (pe->events_lost) {
        pe->events_lost = 0;
        memset(event, 0, sizeof(*event));
        event->type = ANGARA_EVENT_OVERFLOW;
    } else if (pe->events_head != pe->events_tail) {
        *event = pe->events[pe->events_head++ % pe->num_events];
    } else {
        found = 0;
    }
    ang_engine_unlock(&pe->engine);
    return found;
}

static int poll_notify(soft_pe_t *pe, angara_event_t *event)
{
    uint8_t       record[SOFT_RECORD_MAX];
    notify_head_t head;
    int           length;

    do {
        length = soft_record_pop(&pe->notify, record);
        if (length < 0) {
            return 0;
        }
        /* Nobody of this library sends a short or long one: skip garbage. */
    } while (length < (int)sizeof(head) || length > (int)(sizeof(head) + ANGARA_NOTIFY_MAX));

    memcpy(&head, record, sizeof(head));
    event->type   = ANGARA_EVENT_NOTIFY;
    event->status = ANGARA_OK;
    event->from   = head.from;
    event->peer   = ang_peer_find(&pe->base, &head.from);
    event->key    = 0;
    event->len    = (uint32_t)length - sizeof(head);
    memcpy(event->data, record + sizeof(head), event->len);
    return 1;
}

static int have_local(const soft_pe_t *pe)
{
    return __atomic_load_n(&pe->events_tail, __ATOMIC_RELAXED) != pe->events_head ||
           pe->events_lost;
}

static notify_head_t notify_head(const angara_address_t *sender)
{
    return (notify_head_t){.from = ang_address_id(sender)};
}

/*
 * What a peer said before it left is read before the news that it left. What others are saying, and
 * how long they take to finish, doesn't hold the news back.
 */
static int local_must_wait(soft_pe_t *pe)
{
    const angara_event_t *event;
    notify_head_t         head;
    int                   waits = 0;

    ang_engine_lock(&pe->engine);
    event = &pe->events[pe->events_head % pe->num_events];
    if (!pe->events_lost && pe->events_head != pe->events_tail &&
        event->type == ANGARA_EVENT_PEER_DOWN && event->peer != NULL) {
        head  = notify_head(&event->peer->address);
        waits = soft_record_find(&pe->notify, &head, sizeof(head));
    }
    ang_engine_unlock(&pe->engine);
    return waits;
}

angara_status_t soft_event_poll(angara_pe_h base, angara_event_t *event)
{
    soft_pe_t *pe = soft_pe(base);

    if ((have_local(pe) && !local_must_wait(pe) && poll_local(pe, event)) ||
        poll_notify(pe, event)) {
        pe->counters.events++;
        return ANGARA_OK;
    }
    return ANGARA_ERR_NO_RESOURCE;
}

/* The pair is dropped: nobody hears of it any more. */
void soft_events_forget(soft_pe_t *pe, const soft_peer_t *peer)
{
    unsigned kept = pe->events_head;

    ang_engine_lock(&pe->engine);
    for (unsigned i = pe->events_head; i != pe->events_tail; ++i) {
        if (pe->events[i % pe->num_events].peer != &peer->base) {
            pe->events[kept++ % pe->num_events] = pe->events[i % pe->num_events];
        }
    }
    pe->events_tail = kept;
    ang_engine_unlock(&pe->engine);
}

angara_status_t soft_notify(angara_peer_h base, const void *record, size_t length)
{
    soft_peer_t    *peer = soft_peer(base);
    soft_pe_t      *pe   = soft_pe(base->pe);
    notify_head_t   head = notify_head(&pe->base.address);
    angara_status_t status;

    if (peer->down || peer->remote.seg->generation != base->address.generation) {
        return ANGARA_ERR_PEER_DEAD;
    }
    status = soft_record_push((void *)((char *)peer->remote.seg + peer->remote.layout.events),
                              peer->remote.events, &head, sizeof(head), record, length);
    if (status == ANGARA_OK) {
        pe->counters.notifies++;
    } else {
        pe->counters.notify_refused++;
    }
    /* Also who is refused: a claim may be in the way whose owner has died since the receiver fell
     * asleep, and nobody else makes him look. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* the record, then the look at `armed` */
    soft_wake(base);
    return status;
}

/* ---- wake-ups -------------------------------------------------------------------------------- */

void soft_wake(angara_peer_h base)
{
    soft_peer_t *peer = soft_peer(base);

    if (!peer->down && __atomic_load_n(&peer->remote.seg->armed, __ATOMIC_RELAXED) &&
        __atomic_exchange_n(&peer->remote.seg->armed, 0, __ATOMIC_SEQ_CST)) {
        if (soft_remote_poke(&peer->remote, peer->remote.seg->wake_fd,
                             peer->remote.seg->wake_inode)) {
            soft_pe(base->pe)->counters.wakes++;
        } else { /* no descriptors left: whoever comes by tries again, and this one sometimes */
            __atomic_store_n(&peer->remote.seg->armed, SOFT_ARMED, __ATOMIC_SEQ_CST);
            __atomic_store_n(&peer->owes_wake, 1, __ATOMIC_RELAXED);
            __atomic_store_n(&soft_pe(base->pe)->owes_wakes, 1, __ATOMIC_RELAXED);
        }
    }
}

void soft_wake_owed(soft_pe_t *pe)
{
    if (!__atomic_exchange_n(&pe->owes_wakes, 0, __ATOMIC_RELAXED)) {
        return;
    }
    for (angara_peer_h base = pe->base.peers; base != NULL; base = base->next) {
        if (__atomic_exchange_n(&soft_peer(base)->owes_wake, 0, __ATOMIC_RELAXED)) {
            soft_wake(base);
        }
    }
}

void soft_wake_self(soft_pe_t *pe)
{
    if (__atomic_load_n(&pe->seg->armed, __ATOMIC_SEQ_CST) &&
        __atomic_exchange_n(&pe->seg->armed, 0, __ATOMIC_SEQ_CST) &&
        write(pe->wake_pipe[1], "", 1) < 0) {
        ang_debug("own wake pipe is full"); /* then it wakes anyway */
    }
}

angara_status_t soft_event_fd(angara_pe_h pe, int *fd_p)
{
    *fd_p = soft_pe(pe)->epoll_fd;
    return ANGARA_OK;
}

#define LOOK_MS 100 /* a sleeper looks after its requests so often */

static int set_timer(soft_pe_t *pe, unsigned ms)
{
    struct itimerspec every = {.it_interval.tv_nsec = ms * 1000000l,
                               .it_value.tv_nsec    = ms * 1000000l};

    return timerfd_settime(pe->timer_fd, 0, &every, NULL) == 0;
}

/*
 * An answer wakes, but it may never come; what others are owed has to be tried again: have the
 * sleeper woken to see to it. @return done?
 */
static int start_timer(soft_pe_t *pe)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};

    if (pe->timer_fd < 0) {
        pe->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
        if (pe->timer_fd < 0) {
            return 0;
        }
        if (epoll_ctl(pe->epoll_fd, EPOLL_CTL_ADD, pe->timer_fd, &event) != 0) {
            close(pe->timer_fd);
            pe->timer_fd = -1;
            return 0;
        }
    }
    pe->timer_runs = set_timer(pe, LOOK_MS);
    return pe->timer_runs;
}

/*
 * Is there something queued that goes on only when this process does it? What waits for an answer
 * isn't: the answer wakes. In chaos mode a thread works on the queue, and wakes.
 */
static int have_work(soft_pe_t *pe)
{
    int waits = 0;
    int works = 0;

    soft_fronts_look(pe, 1);
    if (pe->engine.chaos != NULL || !ang_engine_is_shared(&pe->engine)) {
        return 0;
    }
    ang_engine_lock(&pe->engine); /* a guest may take the answers meanwhile */
    for (angara_peer_h base = pe->base.peers; base != NULL && !works; base = base->next) {
        if (soft_peer(base)->pair.head != NULL) {
            works = !soft_agent_sleep(soft_peer(base));
            waits = 1;
        }
    }
    ang_engine_unlock(&pe->engine);
    return works || (waits && !start_timer(pe));
}

/* Who has posted a request may count on this process's progress, and have woken nobody. */
static int is_asked(const soft_pe_t *pe)
{
    uint32_t work = __atomic_load_n(&pe->service->work, __ATOMIC_SEQ_CST);

    return work == SOFT_WORK_POSTED || work == SOFT_WORK_CALLED ||
           (*pe->base.fast.watched & ANGARA_FAST_PHASE) == ANGARA_FAST_ASKS ||
           (*pe->base.fast.front & ANGARA_FAST_PHASE) == ANGARA_FAST_ASKS ||
           (work != SOFT_WORK_NONE && !soft_helper_runs());
}

static int cannot_sleep_owing(soft_pe_t *pe)
{
    return __atomic_load_n(&pe->owes_wakes, __ATOMIC_RELAXED) && !start_timer(pe);
}

angara_status_t soft_event_arm(angara_pe_h base)
{
    soft_pe_t *pe = soft_pe(base);

    __atomic_store_n(&pe->seg->armed, SOFT_ARMED, __ATOMIC_SEQ_CST);
    /* Senders store their flag, then read `armed`, without a fence of their own: this is it. */
    soft_membarrier();
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (have_local(pe) || have_work(pe) || cannot_sleep_owing(pe) ||
        soft_record_ready(&pe->notify) || is_asked(pe)) {
        __atomic_store_n(&pe->seg->armed, 0, __ATOMIC_SEQ_CST);
        return ANGARA_INPROGRESS;
    }
    return ANGARA_OK;
}

void soft_event_disarm(angara_pe_h base)
{
    soft_pe_t *pe = soft_pe(base);
    char       bytes[64];

    __atomic_store_n(&pe->seg->armed, 0, __ATOMIC_SEQ_CST);
    while (read(pe->wake_pipe[0], bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes)) {
    }
    if (pe->timer_runs) {
        pe->timer_runs = 0;
        set_timer(pe, 0);
    }
    soft_peers_check(pe); /* it may have been a peer's death that woke us */
}
