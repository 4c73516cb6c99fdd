/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control records that arrive. All of it was written by another process: it is checked, told from
 * what is of an old connection, and becomes an event of the peer's states.
 */
#include "life/hear.h"

#include "life/act.h"
#include "life/control.h"

/* ---- records that arrive --------------------------------------------------------------------- */

static const struct {
    size_t             length;
    uct_angara_event_t event;
} uct_angara_hear_records[] = {
    {sizeof(uct_angara_hello_t), UCT_ANGARA_EV_HELLO},
    {sizeof(uct_angara_grant_t), UCT_ANGARA_EV_GRANT},
    {sizeof(uct_angara_record_t), UCT_ANGARA_EV_REFUSE},
    {sizeof(uct_angara_close_t), UCT_ANGARA_EV_CLOSE},
    {sizeof(uct_angara_record_t), UCT_ANGARA_EV_CLOSE_ACK},
    {sizeof(uct_angara_record_t), UCT_ANGARA_EV_BYE},
    {sizeof(uct_angara_hello_t), UCT_ANGARA_EV_RESET},
    {sizeof(uct_angara_record_t), UCT_ANGARA_EV_RESET_ACK},
};

/* Strangers must not be able to fill the log. */
static void uct_angara_hear_complain(uct_angara_net_t *net, const char *what)
{
    if (!net->has_strangers) {
        net->has_strangers = 1;
        ucs_warn("angara: ignored %s (reported once)", what);
    }
}

/* HELLO and RESET may come from somebody whom we don't know (any more), who wants an answer.
 * @return the peer, or NULL if there is nothing more to be done. */
static uct_angara_peer_t *uct_angara_hear_meet(uct_angara_net_t *net, const angara_event_t *event)
{
    const uct_angara_hello_t *hello   = (const void *)event->data;
    angara_address_t          address = hello->address;
    uct_angara_peer_t        *peer;
    ucs_status_t              status;

    if (address.magic != ANGARA_ADDRESS_MAGIC) {
        uct_angara_hear_complain(net, "a greeting without an address");
        return NULL;
    }

    if (address.version != ANGARA_WIRE_VERSION) {
        ucs_error("angara: a process of libangara wire version %u greeted this one of version %u: "
                  "use the same libangara in all processes",
                  address.version, ANGARA_WIRE_VERSION);
        return NULL;
    }

    if ((address.node != event->from.node) || (address.index != event->from.index) ||
        (address.generation != event->from.generation)) {
        uct_angara_hear_complain(net, "a control record with another's address");
        return NULL;
    }

    peer = (event->peer != NULL) ? angara_peer_user(event->peer) : NULL;
    if ((peer != NULL) && !uct_angara_life_is_gone(&peer->life)) {
        status = UCS_OK; /* also if it has exited since: what it said counts */
    } else {
        status = uct_angara_peer_get(net, &address, &peer);
    }
    if (status != UCS_OK) {
        ucs_diag("angara: cannot answer PE %u of node %u: %s", address.index, address.node,
                 ucs_status_string(status));
        if (hello->super.type == UCT_ANGARA_HELLO) {
            uct_angara_control_refuse_raw(net, hello, UCT_ANGARA_REFUSE_FAILED);
        }
        return NULL;
    }

    uct_angara_channel_activate(&peer->ch); /* it may be free at once */
    return peer;
}

static const char *uct_angara_hear_check_grant(uct_angara_peer_t        *peer,
                                               const uct_angara_grant_t *grant)
{
    uint64_t           window = angara_peer_fast(peer->ch.ap)->window_size;
    uct_angara_shape_t shape  = peer->ch.tx.shape;
    uint64_t           bytes;

    shape.nslots = grant->nslots;
    bytes        = uct_angara_shape_bytes(&shape);
    if ((shape.nslots < UCT_ANGARA_SLOTS_MIN) || (shape.nslots > UCT_ANGARA_SLOTS_MAX)) {
        return "a ring of an impossible size";
    }

    if (shape.run_slots > uct_angara_run_slots_max(shape.nslots, shape.slot_shift)) {
        return "a ring that is too small for the longest message that it was asked for";
    }

    if ((grant->ring_off % 64) || (grant->ready_off % sizeof(uint16_t)) ||
        (grant->ring_off > UINT64_MAX - bytes) ||
        (grant->ready_off > UINT64_MAX - sizeof(uint16_t)) ||
        ((window > 0) &&
         ((grant->ring_off + bytes > window) || (grant->ready_off + sizeof(uint16_t) > window)))) {
        return "a ring outside its window";
    }

    if ((peer->life.tx == UCT_ANGARA_TX_ASKED) && (peer->ch.status == UCS_OK)) {
        peer->ch.tx.shape = shape;
        if (uct_angara_tx_open(&peer->ch.tx, grant->ring_off, grant->ready_off) != UCS_OK) {
            return "a ring, but there is no memory to use it";
        }
        /* more than our own rings have isn't allocated just because a peer says so */
        angara_peer_window_prefault(peer->ch.ap, grant->ring_off,
                                    ucs_min(bytes, uct_angara_ring_stride(UCT_ANGARA_BIG_RING)));
    }
    return NULL;
}

static void uct_angara_hear_refused(uct_angara_peer_t *peer, uint8_t reason)
{
    const char *text;

    switch (reason) {
    case UCT_ANGARA_REFUSE_PEERS:
        text = "it has UCX_ANGARA_MAX_PEERS peers already: raise that there, or set UCX_NUM_EPS to "
               "the number of peers, so that UCP takes a transport that has room for them";
        break;
    case UCT_ANGARA_REFUSE_SHAPE:
        text = "UCX_ANGARA_RING_SLOTS, UCX_ANGARA_SLOT_SIZE or UCX_ANGARA_SEG_SIZE is larger here: "
               "set them alike";
        break;
    case UCT_ANGARA_REFUSE_FAILED:
        text = "it can't connect to this process";
        break;
    default:
        text = "it has no memory for it";
        break;
    }

    uct_angara_peer_set_reason(peer, UCS_ERR_REJECTED, "%s refused a receive ring: %s",
                               angara_peer_name(peer->ch.ap), text);
}

/* @return NULL, or what is wrong with it. */
static const char *uct_angara_hear_check_hello(uct_angara_peer_t        *peer,
                                               const uct_angara_hello_t *hello)
{
    uint64_t         window = angara_peer_fast(peer->ch.ap)->window_size;
    uct_angara_rx_t *rx     = &peer->ch.rx;

    if ((window > 0) && ((hello->super.credit_index + 1ul) * UCT_ANGARA_CREDIT_LINE > window)) {
        return "a credit line outside its window";
    }

    if ((peer->life.state == UCT_ANGARA_LIFE_UP) && !uct_angara_life_has_ring(&peer->life)) {
        peer->life.rx_epoch  = hello->super.epoch;
        rx->credit_off       = hello->super.credit_index * (uint64_t)UCT_ANGARA_CREDIT_LINE;
        rx->shape.nslots     = 0; /* ours to choose */
        rx->shape.run_slots  = hello->super.value;
        rx->shape.slot_shift = (hello->super.shape & 0xf) + UCT_ANGARA_SLOT_SHIFT_MIN;
        rx->shape.seg_shift  = hello->super.shape >> 4;
    }
    return NULL;
}

/* @return non-zero if no ring of that shape can be. */
static int uct_angara_hear_is_mad(uct_angara_net_t *net, const uct_angara_hello_t *hello)
{
    unsigned shift = (hello->super.shape & 0xf) + UCT_ANGARA_SLOT_SHIFT_MIN;

    if ((hello->super.value >= 1) && (shift <= UCT_ANGARA_SLOT_SHIFT_MAX)) {
        return 0;
    }

    ucs_error("angara: PE %u of node %u asks for an impossible ring (runs of %u slots of 2^%u "
              "bytes): refused",
              hello->address.index, hello->address.node, hello->super.value, shift);
    uct_angara_control_refuse_raw(net, hello, UCT_ANGARA_REFUSE_SHAPE);
    return 1;
}

/* What of a record of the current epoch doesn't fit. @return NULL, or what is wrong with it. */
static const char *uct_angara_hear_check(uct_angara_peer_t *peer, uct_angara_event_t event,
                                         const void *data)
{
    const uct_angara_record_t *record = data;
    const uct_angara_close_t  *close  = data;

    switch (event) {
    case UCT_ANGARA_EV_HELLO:
        return uct_angara_hear_check_hello(peer, data);
    case UCT_ANGARA_EV_GRANT:
    case UCT_ANGARA_EV_REFUSE:
    case UCT_ANGARA_EV_CLOSE_ACK:
        if (record->credit_index != peer->credit_index) {
            return "an answer about another credit line";
        }
        return (event == UCT_ANGARA_EV_GRANT) ? uct_angara_hear_check_grant(peer, data) : NULL;
    case UCT_ANGARA_EV_CLOSE:
        if ((close->total < peer->ch.rx.tail) ||
            (close->total - peer->ch.rx.tail > peer->ch.rx.shape.nslots)) {
            return "an impossible number of slots at close";
        }
        return NULL;
    default:
        return NULL;
    }
}

/* Note what the states' changes will need. */
static void uct_angara_hear_note(uct_angara_peer_t *peer, uct_angara_event_t event,
                                 const void *data)
{
    const uct_angara_record_t *record = data;

    switch (event) {
    case UCT_ANGARA_EV_REFUSE:
        if (peer->life.tx == UCT_ANGARA_TX_ASKED) { /* else it is nonsense */
            uct_angara_hear_refused(peer, record->shape);
        }
        break;
    case UCT_ANGARA_EV_CLOSE:
        peer->ch.rx.total = ((const uct_angara_close_t *)data)->total;
        break;
    case UCT_ANGARA_EV_RESET:
        uct_angara_peer_set_reason(peer, UCS_ERR_CONNECTION_RESET,
                                   "%s has given up the connection after an error",
                                   angara_peer_name(peer->ch.ap));
        /* fall through */
    case UCT_ANGARA_EV_RESET_OLD:
        peer->reset_tx  = record->epoch;
        peer->reset_rx  = record->shape;
        peer->has_hello = 0; /* given up with the rest */
        break;
    default:
        break;
    }
}

static void uct_angara_hear_known(uct_angara_peer_t *peer, uct_angara_event_t type,
                                  const void *data)
{
    const uct_angara_record_t *record = data;
    uct_angara_event_t         event;
    const char                *error;
    unsigned                   todo;

    switch (type) {
    case UCT_ANGARA_EV_RESET:
    case UCT_ANGARA_EV_RESET_ACK:
        event = uct_angara_life_classify(&peer->life, type, record->epoch, record->shape);
        break;
    case UCT_ANGARA_EV_CLOSE:
        event = uct_angara_life_classify(&peer->life, type, record->epoch, 0);
        break;
    default:
        event = uct_angara_life_classify(&peer->life, type, 0, record->epoch);
        break;
    }

    if ((event == UCT_ANGARA_EV_NONE) || uct_angara_life_is_gone(&peer->life)) {
        if (event == UCT_ANGARA_EV_BYE) {
            uct_angara_peer_step(peer, event);
        }
        return;
    }

    error = uct_angara_hear_check(peer, event, data);
    if (error == NULL) {
        uct_angara_hear_note(peer, event, data);
        todo = uct_angara_peer_do(peer, event, record);
        if (todo & UCT_ANGARA_DO_LATER) {
            memcpy(peer->hello, data, sizeof(uct_angara_hello_t));
            peer->has_hello = 1;
        }
        if (todo & UCT_ANGARA_DO_NONSENSE) {
            error = "a record that doesn't fit its state";
        }
        if ((event == UCT_ANGARA_EV_RESET) && (peer->life.state == UCT_ANGARA_LIFE_TOLD) &&
            !uct_angara_peer_spares_users(peer)) {
            peer->is_missed = 1; /* its users are told, also if it leaves before they are */
        }
    }
    if (error != NULL) {
        uct_angara_peer_fail(peer, UCS_ERR_CONNECTION_RESET, "%s sent %s (%s)",
                             angara_peer_name(peer->ch.ap), error,
                             uct_angara_life_event_name(event));
    } else if (event == UCT_ANGARA_EV_GRANT) {
        uct_angara_peer_unused(peer); /* perhaps nobody wants it any more */
    }
}

void uct_angara_hear_late_hello(uct_angara_peer_t *peer)
{
    if (peer->has_hello) {
        peer->has_hello = 0;
        uct_angara_hear_known(peer, UCT_ANGARA_EV_HELLO, peer->hello);
    }
}

void uct_angara_hear(uct_angara_net_t *net, const angara_event_t *said)
{
    const uct_angara_record_t *record = (const void *)said->data;
    uct_angara_peer_t         *peer   = (said->peer != NULL) ? angara_peer_user(said->peer) : NULL;
    unsigned                   index  = record->type - UCT_ANGARA_HELLO;
    const char                *error  = NULL;
    uct_angara_event_t         event  = UCT_ANGARA_EV_NONE;

    if ((said->len < sizeof(*record)) || (record->version != UCT_ANGARA_PROTOCOL)) {
        error = "a control record of another version of the protocol: use the same installation "
                "in all processes";
    } else if (index >= ucs_static_array_size(uct_angara_hear_records)) {
        error = "a control record of an unknown type";
    } else if (said->len != uct_angara_hear_records[index].length) {
        error = "a control record of a wrong length";
    } else {
        event = uct_angara_hear_records[index].event;
    }

    if ((event == UCT_ANGARA_EV_HELLO) || (event == UCT_ANGARA_EV_RESET)) {
        peer = uct_angara_hear_meet(net, said);
        if (peer == NULL) {
            return;
        }
    }
    if ((event == UCT_ANGARA_EV_HELLO) && uct_angara_hear_is_mad(net, (const void *)said->data)) {
        return;
    }

    if (peer == NULL) {
        if (event != UCT_ANGARA_EV_BYE) { /* else of a peer that has been freed since */
            uct_angara_hear_complain(net,
                                     (error != NULL) ? error : "a control record of a stranger");
        }
    } else if (error != NULL) {
        uct_angara_peer_fail(peer, UCS_ERR_CONNECTION_RESET, "%s sent %s",
                             angara_peer_name(peer->ch.ap), error);
    } else {
        uct_angara_hear_known(peer, event, record);
    }
}
