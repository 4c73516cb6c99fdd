/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending control records, see life/control.h. */
#include "life/control.h"

#include <sched.h>

#define UCT_ANGARA_BYE_TRIES 1000 /* attempts to say good-bye to a full event ring */

_Static_assert(sizeof(uct_angara_hello_t) == ANGARA_NOTIFY_MAX, "HELLO fills a record");

/* ---- sending ------------------------------------------------------------------------------- */

static angara_status_t uct_angara_control_send(uct_angara_peer_t *peer, const void *record,
                                               size_t length)
{
    angara_status_t       status = ANGARA_ERR_NO_RESOURCE;
    uct_angara_waiting_t *waiting;

    if (peer->nwaiting == 0) {
        status = angara_notify(peer->ch.ap, record, length);
    }

    if (status != ANGARA_ERR_NO_RESOURCE) {
        return status;
    } else if (peer->nwaiting == UCT_ANGARA_CONTROL_MAX) {
        return ANGARA_ERR_LIMIT;
    }

    waiting = &peer->waiting[(peer->first_waiting + peer->nwaiting++) % UCT_ANGARA_CONTROL_MAX];
    waiting->length = length;
    memcpy(waiting->data, record, length);
    uct_angara_channel_activate(&peer->ch);
    return ANGARA_OK;
}

angara_status_t uct_angara_control_retry(uct_angara_peer_t *peer, unsigned *count_p)
{
    uct_angara_waiting_t *waiting;
    angara_status_t       status;

    while (peer->nwaiting > 0) {
        waiting = &peer->waiting[peer->first_waiting];
        status  = angara_notify(peer->ch.ap, waiting->data, waiting->length);
        if (status == ANGARA_ERR_NO_RESOURCE) {
            break;
        }

        peer->first_waiting = (peer->first_waiting + 1) % UCT_ANGARA_CONTROL_MAX;
        --peer->nwaiting;
        ++*count_p;
        if (status != ANGARA_OK) {
            return status;
        }
    }

    return ANGARA_OK;
}

/* ---- of what we send ----------------------------------------------------------------------- */

angara_status_t uct_angara_control_hello(uct_angara_peer_t *peer)
{
    uct_angara_net_t   *net   = peer->net;
    uct_angara_shape_t *shape = &peer->ch.tx.shape;
    uct_angara_hello_t  hello;

    /* Never 0, and never that of the last connection, however many of other peers lie between. One
     * counter for all: a peer that was freed, and is made anew, doesn't begin with the same number.
     */
    do {
        net->epoch = (net->epoch % UINT8_MAX) + 1;
    } while (net->epoch == peer->life.tx_epoch);
    peer->life.tx_epoch = net->epoch;
    *shape              = net->port.shape;
    if (angara_peer_fast(peer->ch.ap)->window != NULL) {
        shape->seg_shift = UCT_ANGARA_NO_SEGS; /* stores have no largest size */
    }

    hello.super       = uct_angara_record(UCT_ANGARA_HELLO, peer->life.tx_epoch, peer->credit_index,
                                          shape->run_slots);
    hello.super.shape = (shape->slot_shift - UCT_ANGARA_SLOT_SHIFT_MIN) | (shape->seg_shift << 4);
    hello.address     = net->address;
    return uct_angara_control_send(peer, &hello, sizeof(hello));
}

angara_status_t uct_angara_control_close(uct_angara_peer_t *peer)
{
    uct_angara_close_t record;

    record.super = uct_angara_record(UCT_ANGARA_CLOSE, peer->life.tx_epoch, peer->credit_index, 0);
    record.total = peer->ch.tx.head;
    return uct_angara_control_send(peer, &record, sizeof(record));
}

/* ---- of what we receive -------------------------------------------------------------------- */

static uint16_t uct_angara_control_their_credit(const uct_angara_peer_t *peer)
{
    return peer->ch.rx.credit_off / UCT_ANGARA_CREDIT_LINE;
}

angara_status_t uct_angara_control_grant(uct_angara_peer_t *peer, const uct_angara_grant_t *grant)
{
    return uct_angara_control_send(peer, grant, sizeof(*grant));
}

angara_status_t uct_angara_control_refuse(uct_angara_peer_t *peer, uint8_t reason)
{
    uct_angara_record_t record = uct_angara_record(UCT_ANGARA_REFUSE, peer->life.rx_epoch,
                                                   uct_angara_control_their_credit(peer), 0);

    record.shape = reason;
    return uct_angara_control_send(peer, &record, sizeof(record));
}

angara_status_t uct_angara_control_close_ack(uct_angara_peer_t         *peer,
                                             const uct_angara_record_t *close)
{
    uct_angara_record_t record = uct_angara_record(UCT_ANGARA_CLOSE_ACK, peer->life.rx_epoch,
                                                   uct_angara_control_their_credit(peer),
                                                   peer->ch.rx.index);

    if (close != NULL) { /* of what isn't open any more */
        record = uct_angara_record(UCT_ANGARA_CLOSE_ACK, close->epoch, close->credit_index, 0);
    }
    return uct_angara_control_send(peer, &record, sizeof(record));
}

/* ---- of both ------------------------------------------------------------------------------- */

angara_status_t uct_angara_control_reset(uct_angara_peer_t *peer)
{
    const uct_angara_life_t *life = &peer->life;
    uct_angara_hello_t       reset;

    reset.super       = uct_angara_record(UCT_ANGARA_RESET,
                                    (life->tx == UCT_ANGARA_TX_LOST) ? life->tx_epoch : 0, 0, 0);
    reset.super.shape = (life->rx == UCT_ANGARA_RX_LOST) ? life->rx_epoch : 0;
    reset.address     = peer->net->address;
    if (peer->nwaiting == UCT_ANGARA_CONTROL_MAX) {
        peer->nwaiting = 0;
    }
    return uct_angara_control_send(peer, &reset, sizeof(reset));
}

angara_status_t uct_angara_control_reset_ack(uct_angara_peer_t *peer)
{
    uct_angara_record_t record = uct_angara_record(UCT_ANGARA_RESET_ACK, peer->reset_tx, 0, 0);

    record.shape = peer->reset_rx;
    return uct_angara_control_send(peer, &record, sizeof(record));
}

void uct_angara_control_bye(uct_angara_peer_t *peer)
{
    uct_angara_record_t record = uct_angara_record(UCT_ANGARA_BYE, 0, 0, 0);
    uct_angara_rx_t    *rx     = &peer->ch.rx;
    unsigned            tries, count = 0;

    for (tries = 0; tries < UCT_ANGARA_BYE_TRIES; ++tries) {
        uct_angara_control_retry(peer, &count);
        if (rx->open) {
            uct_angara_rx_return_credits(&peer->ch); /* so that it knows what was consumed */
        }
        if ((peer->nwaiting == 0) && !rx->credit_owed &&
            (angara_notify(peer->ch.ap, &record, sizeof(record)) != ANGARA_ERR_NO_RESOURCE)) {
            return;
        }
        uct_angara_port_push(&peer->net->port);
        sched_yield();
    }

    ucs_diag("angara: %s did not take the good-bye", angara_peer_name(peer->ch.ap));
}

void uct_angara_control_refuse_raw(uct_angara_net_t *net, const uct_angara_hello_t *hello,
                                   uint8_t reason)
{
    angara_address_t    address = hello->address;
    uct_angara_record_t record  = uct_angara_record(UCT_ANGARA_REFUSE, hello->super.epoch,
                                                    hello->super.credit_index, 0);
    angara_peer_h       ap;

    record.shape = reason;
    if (angara_peer_connect(net->port.pe, &address, &ap) != ANGARA_OK) {
        return; /* it has gone, or it isn't what it says */
    }

    if (angara_notify(ap, &record, sizeof(record)) != ANGARA_ERR_NO_RESOURCE) {
        angara_peer_disconnect(ap);
    } else if (net->nrefusals < UCT_ANGARA_CONTROL_MAX) {
        net->refusals[net->nrefusals++] = (uct_angara_refusal_t){ap, record};
        uct_angara_port_slow_inc(&net->port);
    } else {
        ucs_error("angara: %s can't be told that its greeting is refused", angara_peer_name(ap));
        angara_peer_disconnect(ap);
    }
}

static void uct_angara_control_end_refusal(uct_angara_net_t *net, unsigned i)
{
    angara_peer_disconnect(net->refusals[i].ap);
    net->refusals[i] = net->refusals[--net->nrefusals];
    uct_angara_port_slow_dec(&net->port);
}

unsigned uct_angara_control_retry_refusals(uct_angara_net_t *net)
{
    unsigned              count = 0;
    unsigned              i     = 0;
    uct_angara_refusal_t *refusal;

    while (i < net->nrefusals) {
        refusal = &net->refusals[i];
        if (angara_notify(refusal->ap, &refusal->record, sizeof(refusal->record)) ==
            ANGARA_ERR_NO_RESOURCE) {
            ++i;
        } else { /* told, or it has gone */
            uct_angara_control_end_refusal(net, i);
            ++count;
        }
    }
    return count;
}

void uct_angara_control_drop_refusals(uct_angara_net_t *net)
{
    while (net->nrefusals > 0) {
        uct_angara_control_end_refusal(net, 0);
    }
}
