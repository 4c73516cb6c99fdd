/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transition function of a connection, see life/states.h.
 *
 * Why old records can't do harm: records of one peer arrive in the order in which they were sent.
 * A side asks for a ring only when the last one is closed (CLOSE was answered) or given up (RESET
 * was answered), so at any time records of at most two connections of a direction are under way,
 * and neighbours have different epochs.
 */
#include "life/states.h"

#include <assert.h>

static int uct_angara_life_is_lost(const uct_angara_life_t *life)
{
    return (life->tx == UCT_ANGARA_TX_LOST) || (life->rx == UCT_ANGARA_RX_LOST);
}

/* UP, LEAVING: records are taken for what they say. */
static int uct_angara_life_is_up(const uct_angara_life_t *life)
{
    return life->state <= UCT_ANGARA_LIFE_LEAVING;
}

/* All is well again, but whoever has said BYE goes on leaving. */
static uct_angara_life_state_t uct_angara_life_up(const uct_angara_life_t *life)
{
    return life->has_bye ? UCT_ANGARA_LIFE_LEAVING : UCT_ANGARA_LIFE_UP;
}

/* The side that we send on ends. */
static unsigned uct_angara_life_end_tx(uct_angara_life_t *life)
{
    if (life->tx == UCT_ANGARA_TX_IDLE) {
        return 0;
    }
    life->tx = UCT_ANGARA_TX_IDLE;
    return UCT_ANGARA_DO_FREE_TX;
}

static unsigned uct_angara_life_end_rx(uct_angara_life_t *life)
{
    if (!uct_angara_life_has_ring(life)) {
        return 0;
    }
    life->rx = UCT_ANGARA_RX_IDLE;
    return UCT_ANGARA_DO_FREE_RX;
}

/* ---- asking for a ring, using and closing it ------------------------------------------------- */

static unsigned uct_angara_life_step_tx(uct_angara_life_t *life, uct_angara_event_t event)
{
    int up = uct_angara_life_is_up(life);

    switch (event) {
    case UCT_ANGARA_EV_SEND:
        if ((life->state != UCT_ANGARA_LIFE_UP) || (life->tx != UCT_ANGARA_TX_IDLE)) {
            return 0; /* it waits: for an answer, or for the news that the peer is gone */
        }
        life->tx = UCT_ANGARA_TX_ASKED;
        return UCT_ANGARA_DO_HELLO;
    case UCT_ANGARA_EV_GRANT:
        if (!up) {
            return 0;
        } else if (life->tx != UCT_ANGARA_TX_ASKED) {
            return UCT_ANGARA_DO_NONSENSE;
        }
        life->tx = UCT_ANGARA_TX_OPEN;
        return UCT_ANGARA_DO_USE_RING;
    case UCT_ANGARA_EV_REFUSE:
        if (!up) {
            return 0;
        } else if (life->tx != UCT_ANGARA_TX_ASKED) {
            return UCT_ANGARA_DO_NONSENSE;
        }
        life->state = UCT_ANGARA_LIFE_FAILING;
        return uct_angara_life_end_tx(life) | UCT_ANGARA_DO_TURN;
    case UCT_ANGARA_EV_UNUSED:
        if (!up || (life->tx != UCT_ANGARA_TX_OPEN)) {
            return 0; /* GRANT or CLOSE_ACK comes first, or there is nothing to close */
        }
        life->tx = UCT_ANGARA_TX_FLUSHING;
        return UCT_ANGARA_DO_FLUSH_TX;
    case UCT_ANGARA_EV_FLUSHED:
        if (!up || (life->tx != UCT_ANGARA_TX_FLUSHING)) {
            return 0;
        }
        life->tx = UCT_ANGARA_TX_CLOSING;
        return UCT_ANGARA_DO_CLOSE;
    default: /* CLOSE_ACK */
        if (!up) {
            return 0;
        } else if (life->tx != UCT_ANGARA_TX_CLOSING) {
            return UCT_ANGARA_DO_NONSENSE;
        }
        return uct_angara_life_end_tx(life) | UCT_ANGARA_DO_TURN;
    }
}

static unsigned uct_angara_life_step_rx(uct_angara_life_t *life, uct_angara_event_t event)
{
    int up = uct_angara_life_is_up(life);

    switch (event) {
    case UCT_ANGARA_EV_HELLO:
        if ((life->state == UCT_ANGARA_LIFE_FAILING) && (life->tx == UCT_ANGARA_TX_IDLE) &&
            !uct_angara_life_has_ring(life)) {
            return UCT_ANGARA_DO_LATER; /* no RESET will tell the peer to ask again */
        } else if (life->state != UCT_ANGARA_LIFE_UP) {
            return 0; /* our RESET will, or has; or it is from somebody who has said BYE */
        } else if (uct_angara_life_has_ring(life)) {
            return UCT_ANGARA_DO_NONSENSE; /* it starts over without having ended anything */
        }
        life->rx = UCT_ANGARA_RX_OPEN;
        return UCT_ANGARA_DO_MAKE_RING;
    case UCT_ANGARA_EV_NO_RING:
        if (life->rx != UCT_ANGARA_RX_OPEN) {
            return 0;
        }
        life->rx = UCT_ANGARA_RX_IDLE;
        return UCT_ANGARA_DO_REFUSE | UCT_ANGARA_DO_TURN;
    case UCT_ANGARA_EV_CLOSE:
        if (!up) {
            return 0; /* the RESET that follows is an answer, too */
        } else if (life->rx != UCT_ANGARA_RX_OPEN) {
            return UCT_ANGARA_DO_NONSENSE;
        }
        life->rx = UCT_ANGARA_RX_CLOSING;
        return UCT_ANGARA_DO_CONSUME | UCT_ANGARA_DO_TURN;
    case UCT_ANGARA_EV_CLOSE_OLD:
        return (up || (life->state == UCT_ANGARA_LIFE_RESET)) ? UCT_ANGARA_DO_CLOSE_ACK : 0;
    case UCT_ANGARA_EV_CONSUMED:
        if (!up || (life->rx != UCT_ANGARA_RX_CLOSING)) {
            return 0;
        }
        life->rx = UCT_ANGARA_RX_CREDITING;
        return UCT_ANGARA_DO_FLUSH_RX;
    default: /* CREDITED */
        if (!up || (life->rx != UCT_ANGARA_RX_CREDITING)) {
            return 0;
        }
        life->rx = UCT_ANGARA_RX_ENDED;
        return UCT_ANGARA_DO_FREE_RX | UCT_ANGARA_DO_CLOSE_ACK | UCT_ANGARA_DO_TURN;
    }
}

/* ---- giving up ------------------------------------------------------------------------------- */

static unsigned uct_angara_life_step_reset(uct_angara_life_t *life, uct_angara_event_t event)
{
    unsigned todo = 0;

    switch (event) {
    case UCT_ANGARA_EV_FAIL:
        if (!uct_angara_life_is_up(life) && (life->state != UCT_ANGARA_LIFE_RESET)) {
            return 0; /* that is known, or doesn't matter any more */
        }
        life->state = UCT_ANGARA_LIFE_FAILING;
        return UCT_ANGARA_DO_TURN;
    case UCT_ANGARA_EV_RESET:
        if (uct_angara_life_is_up(life) || (life->state == UCT_ANGARA_LIFE_FAILING)) {
            life->state = UCT_ANGARA_LIFE_TOLD;
            return UCT_ANGARA_DO_TURN;
        } else if (life->state == UCT_ANGARA_LIFE_TOLD) {
            return 0; /* one answer is due */
        }
        /* fall through */
    case UCT_ANGARA_EV_RESET_OLD:
        if (uct_angara_life_is_gone(life)) {
            return 0;
        }
        if (uct_angara_life_is_up(life) && (life->tx == UCT_ANGARA_TX_ASKED)) {
            todo = uct_angara_life_end_tx(
                life); /* its HELLO isn't taken: it is to be asked again */
        }
        return todo | UCT_ANGARA_DO_RESET_ACK | UCT_ANGARA_DO_TURN;
    default: /* RESET_ACK */
        if (life->tx == UCT_ANGARA_TX_LOST) {
            todo |= uct_angara_life_end_tx(life);
        }
        if (life->rx == UCT_ANGARA_RX_LOST) {
            todo |= uct_angara_life_end_rx(life);
        }
        if (life->state == UCT_ANGARA_LIFE_RESET) {
            life->state = uct_angara_life_up(life);
        }
        return todo | UCT_ANGARA_DO_TURN;
    }
}

/* The turn of progress that deals with a failure or an end. */
static unsigned uct_angara_life_step_report(uct_angara_life_t *life, uct_angara_event_t event)
{
    unsigned told    = (event == UCT_ANGARA_EV_REPORT) ? UCT_ANGARA_DO_TELL : 0;
    int      is_lost = uct_angara_life_is_lost(life); /* RESET was sent before */
    unsigned todo    = UCT_ANGARA_DO_STOP;

    switch (life->state) {
    case UCT_ANGARA_LIFE_FAILING:
        told = UCT_ANGARA_DO_TELL;
        if (!is_lost) {
            life->tx = (life->tx == UCT_ANGARA_TX_IDLE) ? UCT_ANGARA_TX_IDLE : UCT_ANGARA_TX_LOST;
            life->rx = uct_angara_life_has_ring(life) ? UCT_ANGARA_RX_LOST : UCT_ANGARA_RX_IDLE;
            todo |= uct_angara_life_is_lost(life) ? UCT_ANGARA_DO_RESET : 0;
        }
        life->state = uct_angara_life_is_lost(life) ? UCT_ANGARA_LIFE_RESET :
                                                      uct_angara_life_up(life);
        break;
    case UCT_ANGARA_LIFE_TOLD:
        todo |= UCT_ANGARA_DO_RESET_ACK;
        if (!is_lost) { /* else our own RESET is still to be answered */
            todo |= uct_angara_life_end_tx(life) | uct_angara_life_end_rx(life);
        }
        life->state = is_lost ? UCT_ANGARA_LIFE_RESET : uct_angara_life_up(life);
        break;
    case UCT_ANGARA_LIFE_DYING:
    case UCT_ANGARA_LIFE_PARTING:
        todo |= uct_angara_life_end_tx(life) | uct_angara_life_end_rx(life);
        life->rx    = UCT_ANGARA_RX_IDLE;
        life->state = told ? UCT_ANGARA_LIFE_DEAD : UCT_ANGARA_LIFE_LEFT;
        break;
    default:
        return 0;
    }

    return todo | told | UCT_ANGARA_DO_TURN;
}

static unsigned uct_angara_life_step_end(uct_angara_life_t *life, uct_angara_event_t event)
{
    switch (event) {
    case UCT_ANGARA_EV_BYE:
        life->has_bye = 1;
        if ((life->state == UCT_ANGARA_LIFE_UP) || (life->state == UCT_ANGARA_LIFE_RESET)) {
            life->state = UCT_ANGARA_LIFE_LEAVING;
        } else if (life->state == UCT_ANGARA_LIFE_DYING) {
            life->state = UCT_ANGARA_LIFE_PARTING;
        }
        return 0;
    case UCT_ANGARA_EV_USE:
        if (life->state != UCT_ANGARA_LIFE_LEFT) {
            return 0;
        }
        life->state = UCT_ANGARA_LIFE_PARTING; /* whatever its end was: now somebody asks */
        return UCT_ANGARA_DO_TURN;
    default: /* DOWN, GONE */
        if (life->state >= UCT_ANGARA_LIFE_PARTING) {
            return 0;
        }
        life->state = ((event == UCT_ANGARA_EV_GONE) || life->has_bye) ? UCT_ANGARA_LIFE_PARTING :
                                                                         UCT_ANGARA_LIFE_DYING;
        return UCT_ANGARA_DO_TURN;
    }
}

/* ---- all together ---------------------------------------------------------------------------- */

unsigned uct_angara_life_step(uct_angara_life_t *life, uct_angara_event_t event)
{
    unsigned todo;

    switch (event) {
    case UCT_ANGARA_EV_SEND:
    case UCT_ANGARA_EV_GRANT:
    case UCT_ANGARA_EV_REFUSE:
    case UCT_ANGARA_EV_UNUSED:
    case UCT_ANGARA_EV_FLUSHED:
    case UCT_ANGARA_EV_CLOSE_ACK:
        todo = uct_angara_life_step_tx(life, event);
        break;
    case UCT_ANGARA_EV_HELLO:
    case UCT_ANGARA_EV_NO_RING:
    case UCT_ANGARA_EV_CLOSE:
    case UCT_ANGARA_EV_CLOSE_OLD:
    case UCT_ANGARA_EV_CONSUMED:
    case UCT_ANGARA_EV_CREDITED:
        todo = uct_angara_life_step_rx(life, event);
        break;
    case UCT_ANGARA_EV_FAIL:
    case UCT_ANGARA_EV_RESET:
    case UCT_ANGARA_EV_RESET_OLD:
    case UCT_ANGARA_EV_RESET_ACK:
        todo = uct_angara_life_step_reset(life, event);
        break;
    case UCT_ANGARA_EV_REPORT:
    case UCT_ANGARA_EV_SETTLE:
        todo = uct_angara_life_step_report(life, event);
        break;
    case UCT_ANGARA_EV_BYE:
    case UCT_ANGARA_EV_USE:
    case UCT_ANGARA_EV_DOWN:
    case UCT_ANGARA_EV_GONE:
        todo = uct_angara_life_step_end(life, event);
        break;
    default:
        todo = 0;
        break;
    }

    assert(uct_angara_life_is_legal(life));
    return todo;
}

uct_angara_event_t uct_angara_life_classify(const uct_angara_life_t *life, uct_angara_event_t event,
                                            uint8_t tx_epoch, uint8_t rx_epoch)
{
    int is_tx = (life->tx != UCT_ANGARA_TX_IDLE) && (life->tx != UCT_ANGARA_TX_LOST) &&
                (rx_epoch == life->tx_epoch);
    int is_rx = uct_angara_life_has_ring(life) && (life->rx != UCT_ANGARA_RX_LOST) &&
                (tx_epoch == life->rx_epoch);

    switch (event) {
    case UCT_ANGARA_EV_GRANT:
    case UCT_ANGARA_EV_REFUSE:
    case UCT_ANGARA_EV_CLOSE_ACK:
        return is_tx ? event : UCT_ANGARA_EV_NONE;
    case UCT_ANGARA_EV_CLOSE:
        return is_rx ? event : UCT_ANGARA_EV_CLOSE_OLD;
    case UCT_ANGARA_EV_RESET:
        /* what was only asked for has carried nothing: the peer hasn't granted it */
        return (is_rx || (is_tx && (life->tx != UCT_ANGARA_TX_ASKED))) ? event :
                                                                         UCT_ANGARA_EV_RESET_OLD;
    case UCT_ANGARA_EV_RESET_ACK:
        return (uct_angara_life_is_lost(life) &&
                (tx_epoch == ((life->tx == UCT_ANGARA_TX_LOST) ? life->tx_epoch : 0)) &&
                (rx_epoch == ((life->rx == UCT_ANGARA_RX_LOST) ? life->rx_epoch : 0))) ?
                   event :
                   UCT_ANGARA_EV_NONE;
    default:
        return event;
    }
}

int uct_angara_life_is_legal(const uct_angara_life_t *life)
{
    if ((life->tx >= UCT_ANGARA_TX_LAST) || (life->rx >= UCT_ANGARA_RX_LAST) ||
        (life->state >= UCT_ANGARA_LIFE_LAST)) {
        return 0;
    }

    if (life->has_bye ?
            ((life->state == UCT_ANGARA_LIFE_UP) || (life->state == UCT_ANGARA_LIFE_DYING)) :
            (life->state == UCT_ANGARA_LIFE_LEAVING)) {
        return 0;
    }

    /* RESET gives up both sides at once: what isn't lost then has not begun again */
    if (uct_angara_life_is_lost(life) &&
        (((life->tx != UCT_ANGARA_TX_LOST) && (life->tx != UCT_ANGARA_TX_IDLE)) ||
         ((life->rx != UCT_ANGARA_RX_LOST) && (life->rx != UCT_ANGARA_RX_IDLE)) ||
         (life->state == UCT_ANGARA_LIFE_UP))) {
        return 0;
    }

    switch (life->state) {
    case UCT_ANGARA_LIFE_RESET:
        return uct_angara_life_is_lost(life);
    case UCT_ANGARA_LIFE_LEFT:
    case UCT_ANGARA_LIFE_DEAD:
        return (life->tx == UCT_ANGARA_TX_IDLE) && (life->rx == UCT_ANGARA_RX_IDLE);
    default:
        return 1;
    }
}

const char *uct_angara_life_tx_name(const uct_angara_life_t *life)
{
    static const char *const names[] = {"idle", "asked for", "open", "flushing", "closing", "lost"};

    return names[life->tx];
}

const char *uct_angara_life_rx_name(const uct_angara_life_t *life)
{
    static const char *const names[] = {"idle", "open", "closing", "crediting", "ended", "lost"};

    return names[life->rx];
}

const char *uct_angara_life_state_name(const uct_angara_life_t *life)
{
    static const char *const names[] = {"up",    "leaving", "failing", "told", "reset",
                                        "dying", "parting", "left",    "dead"};

    return names[life->state];
}

const char *uct_angara_life_event_name(uct_angara_event_t event)
{
    static const char *const names[] = {
        "send",      "unused", "flushed",   "no ring",   "consumed", "credited",
        "fail",      "use",    "report",    "settle",    "HELLO",    "GRANT",
        "REFUSE",    "CLOSE",  "old CLOSE", "CLOSE_ACK", "RESET",    "old RESET",
        "RESET_ACK", "BYE",    "down",      "gone",      "none"};

    return names[event];
}
