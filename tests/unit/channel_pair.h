/* SPDX-License-Identifier: BSD-3-Clause */
/* Harness of the channels' tests: two ports, channels between them, and their owner. */
#ifndef ANGARA_TESTS_CHANNEL_PAIR_H
#define ANGARA_TESTS_CHANNEL_PAIR_H

#include "channel/port.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS   64
#define SLOT    128
#define RECORD  32 /* bytes of a plain message */
#define SENDERS 6

typedef struct {
    uct_angara_channel_t ch; /* first: asserted to lie on a line */
    unsigned             nonsense;
    unsigned             admits;
    unsigned             confirms;
    ucs_status_t         admit;
    ucs_status_t         confirm;
    void (*while_asked)(void); /* what happens during the question */
} link_t;

typedef struct {
    uct_angara_port_t port;
    angara_address_t  address;
    unsigned          delivered;
    unsigned          by_sender[SENDERS];
    unsigned          next; /* number of the message that comes next, see length_of() */
} side_t;

static angara_domain_h dom;
static angara_attr_t   attr;

/* ---- the owner ------------------------------------------------------------------------------- */

static inline ucs_status_t on_error(uct_angara_channel_t *ch, angara_status_t status,
                                    const char *what)
{
    (void)ch;
    fail_msg("%s: %s", what, angara_strerror(status));
    return UCS_ERR_IO_ERROR;
}

static inline void on_nonsense(uct_angara_channel_t *ch, const char *text)
{
    assert_true(strlen(text) > 0);
    ++((link_t *)ch)->nonsense;
    ch->status = UCS_ERR_CONNECTION_RESET;
    uct_angara_channel_update(ch);
}

static inline ucs_status_t on_admit(uct_angara_channel_t *ch)
{
    assert_int_not_equal(ch->blocked, 0);
    ++((link_t *)ch)->admits;
    return ((link_t *)ch)->admit;
}

static inline ucs_status_t on_confirm(uct_angara_channel_t *ch)
{
    link_t *link = (link_t *)ch;

    ++link->confirms;
    if (link->while_asked != NULL) {
        link->while_asked();
    }
    return link->confirm;
}

static const uct_angara_port_ops_t owner = {on_error, on_nonsense, on_admit, on_confirm};

/* ---- messages ---------------------------------------------------------------------------------
 */

static inline void deliver_plain(uct_angara_port_t *port, uint8_t id, void *data, size_t length)
{
    side_t *side = (side_t *)port;

    assert_int_equal(length, RECORD);
    assert_int_equal(((unsigned char *)data)[0], id);
    assert_true(id < SENDERS);
    ++side->delivered;
    ++side->by_sender[id];
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static inline uct_angara_port_config_t config(void)
{
    return (uct_angara_port_config_t){.slot_size    = SLOT,
                                      .ring_slots   = SLOTS,
                                      .seg_size     = SLOTS / 4 * SLOT,
                                      .max_peers    = 2 * SENDERS,
                                      .put_max      = SIZE_MAX,
                                      .bounce_size  = 4096,
                                      .bounce_count = 4,
                                      .early_size   = 1 << 20};
}

static inline side_t *side_open(const uct_angara_port_config_t *cfg, uct_angara_deliver_t func)
{
    side_t *side = calloc(1, sizeof(*side));

    assert_int_equal(uct_angara_port_open(&side->port, dom, &attr, cfg, &owner, func), UCS_OK);
    angara_pe_address(side->port.pe, &side->address);
    return side;
}

static inline void side_close(side_t *side)
{
    assert_true(ucs_list_is_empty(&side->port.channels));
    assert_int_equal(side->port.slow, 0);
    uct_angara_port_close(&side->port);
    free(side);
}

static inline link_t *link_open(side_t *from, side_t *to)
{
    link_t       *link = aligned_alloc(UCS_SYS_CACHE_LINE_SIZE, sizeof(*link));
    angara_peer_h ap;

    assert_non_null(link);
    memset(link, 0, sizeof(*link));
    link->admit = UCS_ERR_NO_RESOURCE;
    assert_int_equal(angara_peer_connect(from->port.pe, &to->address, &ap), ANGARA_OK);
    uct_angara_channel_init(&link->ch, &from->port, ap);
    uct_angara_channel_update(&link->ch);
    return link;
}

static inline void link_close(link_t *link)
{
    angara_peer_h ap = link->ch.ap;

    uct_angara_channel_stop_rx(&link->ch);
    uct_angara_channel_stop(&link->ch, UCS_ERR_CANCELED, UCS_ERR_CANCELED, 1);
    uct_angara_tx_close(&link->ch.tx);
    uct_angara_channel_cleanup(&link->ch);
    angara_peer_disconnect(ap);
    free(link);
}

static inline size_t commit(uct_angara_port_t *port, size_t offset, size_t bytes)
{
    assert_int_equal(angara_pe_window_commit(port->pe, offset, bytes), ANGARA_OK);
    memset(port->window.base + offset, 0, bytes);
    return offset;
}

/* A ring through which @a tx sends to @a rx, a channel of the other side. */
static inline void ring_open(link_t *tx, link_t *rx)
{
    uct_angara_port_t   *there  = rx->ch.port;
    uct_angara_window_t *window = &there->window;
    uct_angara_shape_t   shape  = tx->ch.port->shape;
    unsigned             ring, credit;
    size_t               offset, line;

    assert_int_equal(uct_angara_idmap_get(&window->ring_ids, &ring), UCS_OK);
    assert_int_equal(uct_angara_idmap_get(&tx->ch.port->window.credit_ids, &credit), UCS_OK);
    offset = commit(there, uct_angara_window_ring_off(window, ring),
                    uct_angara_shape_bytes(&shape));
    line   = commit(tx->ch.port, uct_angara_window_credit_off(&tx->ch.port->window, credit),
                    UCT_ANGARA_CREDIT_LINE);

    rx->ch.rx.index            = (uint16_t)ring;
    there->poll.ready[ring]    = 0;
    there->poll.consumed[ring] = 0;
    rx->ch.rx.credit_off       = line;
    uct_angara_rx_open(&rx->ch.rx, window->base + offset, &shape, &there->poll.consumed[ring]);
    uct_angara_poll_add(&there->poll, &rx->ch.rx);

    tx->ch.tx.credit = (volatile uint64_t *)(tx->ch.port->window.base + line);
    tx->ch.tx.shape  = shape;
    assert_int_equal(
        uct_angara_tx_open(&tx->ch.tx, offset, uct_angara_window_ready_off(window, ring)), UCS_OK);
    tx->ch.is_open = 1;
    uct_angara_channel_update(&tx->ch);
}

/* Two sides and a ring from the first to the second. */
typedef struct {
    side_t *a, *b;
    link_t *ab, *ba;
} pair_t;

static inline pair_t pair_open(const uct_angara_port_config_t *cfg, uct_angara_deliver_t func)
{
    pair_t p;

    p.a  = side_open(cfg, func);
    p.b  = side_open(cfg, func);
    p.ab = link_open(p.a, p.b);
    p.ba = link_open(p.b, p.a);
    ring_open(p.ab, p.ba);
    return p;
}

static inline void pair_close(pair_t *p)
{
    link_close(p->ab);
    link_close(p->ba);
    side_close(p->a);
    side_close(p->b);
}

static inline ucs_status_t send_one(link_t *link, uint8_t id, const void *data, size_t length)
{
    ucs_status_t status;
    void        *p;

    status = uct_angara_tx_reserve(&link->ch, uct_angara_slots(&link->ch.tx.shape, length));
    if (status != UCS_OK) {
        return status;
    }
    p = uct_angara_tx_buffer(&link->ch);
    memcpy(p, data, length);
    return uct_angara_tx_commit(&link->ch, id, p, length);
}

static inline ucs_status_t send_plain(link_t *link, uint8_t id)
{
    char data[RECORD] = {(char)id};

    return send_one(link, id, data, RECORD);
}

static inline void turn(side_t *side)
{
    uct_angara_port_t *port = &side->port;
    ucs_list_link_t   *link, *next;
    unsigned           i;

    for (i = 0; i < port->poll.nhot; ++i) {
        uct_angara_rx_drain(port, port->poll.hot[i], UCT_ANGARA_DRAIN_MAX);
    }
    ++port->poll.ticks;
    uct_angara_port_push(port);
    uct_angara_poll_scan(port);
    for (link = port->active.next; link != &port->active; link = next) {
        uct_angara_channel_t *ch = ucs_container_of(link, uct_angara_channel_t, active);

        next = link->next;
        uct_angara_channel_progress(ch);
        if (!uct_angara_channel_has_work(ch)) {
            uct_angara_channel_rest(ch);
        }
    }
}

#define UNTIL(_p, _condition) \
    while (!(_condition)) {   \
        turn((_p)->a);        \
        turn((_p)->b);        \
    }

/* ---- the domain ------------------------------------------------------------------------------ */

static inline int domain_open(void **state)
{
    (void)state;
    return ((angara_open(NULL, &dom) == ANGARA_OK) && (angara_query(dom, &attr) == ANGARA_OK)) ? 0 :
                                                                                                 -1;
}

static inline int domain_close(void **state)
{
    (void)state;
    return (angara_close(dom) == ANGARA_OK) ? 0 : -1;
}

#endif
