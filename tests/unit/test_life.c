/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The states of a connection (docs/protocols.md): every event in every state, against a table of
 * its own; then two sides that talk to each other through queues, at random, with so few epochs
 * that they repeat at once.
 */
#include "life/states.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* After the headers above, which it needs. */
#include <cmocka.h>

/* ---- the table ------------------------------------------------------------------------------- */

#define TX(_state)   (1u << UCT_ANGARA_TX_##_state)
#define RX(_state)   (1u << UCT_ANGARA_RX_##_state)
#define LIFE(_state) (1u << UCT_ANGARA_LIFE_##_state)
#define ANY          0xffffu
#define UP           (LIFE(UP) | LIFE(LEAVING))
#define GONE         (LIFE(DYING) | LIFE(PARTING))
#define TX_USED      (ANY & ~TX(IDLE) & ~TX(LOST))
#define RX_NONE      (RX(IDLE) | RX(ENDED))
#define RX_USED      (ANY & ~RX_NONE & ~RX(LOST))
#define DO(_what)    UCT_ANGARA_DO_##_what
#define SAME         0u

/* Which states a row is for, and what follows: a state, or SAME. The first row that fits counts;
 * where none does, nothing happens. */
typedef struct {
    uct_angara_event_t event;
    unsigned           tx, rx, life;
    unsigned           new_tx, new_rx, new_life;
    unsigned           todo;
} row_t;

static const row_t rows[] = {
    {UCT_ANGARA_EV_SEND, TX(IDLE), ANY, LIFE(UP), TX(ASKED), SAME, SAME, DO(HELLO)},
    {UCT_ANGARA_EV_UNUSED, TX(OPEN), ANY, UP, TX(FLUSHING), SAME, SAME, DO(FLUSH_TX)},
    {UCT_ANGARA_EV_FLUSHED, TX(FLUSHING), ANY, UP, TX(CLOSING), SAME, SAME, DO(CLOSE)},
    {UCT_ANGARA_EV_NO_RING, ANY, RX(OPEN), ANY, SAME, RX(IDLE), SAME, DO(REFUSE) | DO(TURN)},
    {UCT_ANGARA_EV_CONSUMED, ANY, RX(CLOSING), UP, SAME, RX(CREDITING), SAME, DO(FLUSH_RX)},
    {UCT_ANGARA_EV_CREDITED, ANY, RX(CREDITING), UP, SAME, RX(ENDED), SAME,
     DO(FREE_RX) | DO(CLOSE_ACK) | DO(TURN)},
    {UCT_ANGARA_EV_FAIL, ANY, ANY, UP | LIFE(RESET), SAME, SAME, LIFE(FAILING), DO(TURN)},
    {UCT_ANGARA_EV_USE, ANY, ANY, LIFE(LEFT), SAME, SAME, LIFE(PARTING), DO(TURN)},

    {UCT_ANGARA_EV_HELLO, ANY, RX_NONE, LIFE(UP), SAME, RX(OPEN), SAME, DO(MAKE_RING)},
    {UCT_ANGARA_EV_HELLO, ANY, ANY, LIFE(UP), SAME, SAME, SAME, DO(NONSENSE)},
    {UCT_ANGARA_EV_HELLO, TX(IDLE), RX_NONE, LIFE(FAILING), SAME, SAME, SAME, DO(LATER)},
    {UCT_ANGARA_EV_GRANT, TX(ASKED), ANY, UP, TX(OPEN), SAME, SAME, DO(USE_RING)},
    {UCT_ANGARA_EV_GRANT, ANY, ANY, UP, SAME, SAME, SAME, DO(NONSENSE)},
    {UCT_ANGARA_EV_REFUSE, TX(ASKED), ANY, UP, TX(IDLE), SAME, LIFE(FAILING),
     DO(FREE_TX) | DO(TURN)},
    {UCT_ANGARA_EV_REFUSE, ANY, ANY, UP, SAME, SAME, SAME, DO(NONSENSE)},
    {UCT_ANGARA_EV_CLOSE, ANY, RX(OPEN), UP, SAME, RX(CLOSING), SAME, DO(CONSUME) | DO(TURN)},
    {UCT_ANGARA_EV_CLOSE, ANY, ANY, UP, SAME, SAME, SAME, DO(NONSENSE)},
    {UCT_ANGARA_EV_CLOSE_OLD, ANY, ANY, UP | LIFE(RESET), SAME, SAME, SAME, DO(CLOSE_ACK)},
    {UCT_ANGARA_EV_CLOSE_ACK, TX(CLOSING), ANY, UP, TX(IDLE), SAME, SAME, DO(FREE_TX) | DO(TURN)},
    {UCT_ANGARA_EV_CLOSE_ACK, ANY, ANY, UP, SAME, SAME, SAME, DO(NONSENSE)},

    {UCT_ANGARA_EV_RESET, ANY, ANY, UP | LIFE(FAILING), SAME, SAME, LIFE(TOLD), DO(TURN)},
    {UCT_ANGARA_EV_RESET, ANY, ANY, LIFE(RESET), SAME, SAME, SAME, DO(RESET_ACK) | DO(TURN)},
    {UCT_ANGARA_EV_RESET_OLD, TX(ASKED), ANY, UP, TX(IDLE), SAME, SAME,
     DO(FREE_TX) | DO(RESET_ACK) | DO(TURN)},
    {UCT_ANGARA_EV_RESET_OLD, ANY, ANY, UP | LIFE(FAILING) | LIFE(TOLD) | LIFE(RESET), SAME, SAME,
     SAME, DO(RESET_ACK) | DO(TURN)},
    {UCT_ANGARA_EV_RESET_ACK, TX(LOST), RX(LOST), LIFE(RESET), TX(IDLE), RX(IDLE), LIFE(UP),
     DO(FREE_TX) | DO(FREE_RX) | DO(TURN)},
    {UCT_ANGARA_EV_RESET_ACK, TX(LOST), ANY, LIFE(RESET), TX(IDLE), SAME, LIFE(UP),
     DO(FREE_TX) | DO(TURN)},
    {UCT_ANGARA_EV_RESET_ACK, ANY, RX(LOST), LIFE(RESET), SAME, RX(IDLE), LIFE(UP),
     DO(FREE_RX) | DO(TURN)},
    {UCT_ANGARA_EV_RESET_ACK, TX(LOST), RX(LOST), ANY, TX(IDLE), RX(IDLE), SAME,
     DO(FREE_TX) | DO(FREE_RX) | DO(TURN)},
    {UCT_ANGARA_EV_RESET_ACK, TX(LOST), ANY, ANY, TX(IDLE), SAME, SAME, DO(FREE_TX) | DO(TURN)},
    {UCT_ANGARA_EV_RESET_ACK, ANY, RX(LOST), ANY, SAME, RX(IDLE), SAME, DO(FREE_RX) | DO(TURN)},
    {UCT_ANGARA_EV_RESET_ACK, ANY, ANY, ANY, SAME, SAME, SAME, DO(TURN)},

    {UCT_ANGARA_EV_BYE, ANY, ANY, LIFE(UP) | LIFE(RESET), SAME, SAME, LIFE(LEAVING), 0},
    {UCT_ANGARA_EV_BYE, ANY, ANY, LIFE(DYING), SAME, SAME, LIFE(PARTING), 0},
    {UCT_ANGARA_EV_DOWN, ANY, ANY, LIFE(LEAVING), SAME, SAME, LIFE(PARTING), DO(TURN)},
    {UCT_ANGARA_EV_DOWN, ANY, ANY,
     LIFE(UP) | LIFE(FAILING) | LIFE(TOLD) | LIFE(RESET) | LIFE(DYING), SAME, SAME, LIFE(DYING),
     DO(TURN)},
    {UCT_ANGARA_EV_GONE, ANY, ANY, UP | LIFE(FAILING) | LIFE(TOLD) | LIFE(RESET) | LIFE(DYING),
     SAME, SAME, LIFE(PARTING), DO(TURN)},

    /* the turn of progress; SETTLE is as REPORT, without TELL where somebody is to be spared */
    {UCT_ANGARA_EV_REPORT, TX(LOST), ANY, LIFE(FAILING), SAME, SAME, LIFE(RESET),
     DO(STOP) | DO(TELL) | DO(TURN)},
    {UCT_ANGARA_EV_REPORT, ANY, RX(LOST), LIFE(FAILING), SAME, SAME, LIFE(RESET),
     DO(STOP) | DO(TELL) | DO(TURN)},
    {UCT_ANGARA_EV_REPORT, TX_USED, RX_USED, LIFE(FAILING), TX(LOST), RX(LOST), LIFE(RESET),
     DO(RESET) | DO(STOP) | DO(TELL) | DO(TURN)},
    {UCT_ANGARA_EV_REPORT, TX_USED, RX_NONE, LIFE(FAILING), TX(LOST), RX(IDLE), LIFE(RESET),
     DO(RESET) | DO(STOP) | DO(TELL) | DO(TURN)},
    {UCT_ANGARA_EV_REPORT, TX(IDLE), RX_USED, LIFE(FAILING), SAME, RX(LOST), LIFE(RESET),
     DO(RESET) | DO(STOP) | DO(TELL) | DO(TURN)},
    {UCT_ANGARA_EV_REPORT, TX(IDLE), RX_NONE, LIFE(FAILING), SAME, RX(IDLE), LIFE(UP),
     DO(STOP) | DO(TELL) | DO(TURN)},
    {UCT_ANGARA_EV_REPORT, TX(LOST), ANY, LIFE(TOLD), SAME, SAME, LIFE(RESET),
     DO(STOP) | DO(RESET_ACK) | DO(TELL) | DO(TURN)},
    {UCT_ANGARA_EV_REPORT, ANY, RX(LOST), LIFE(TOLD), SAME, SAME, LIFE(RESET),
     DO(STOP) | DO(RESET_ACK) | DO(TELL) | DO(TURN)},
    {UCT_ANGARA_EV_REPORT, TX_USED, RX_USED, LIFE(TOLD), TX(IDLE), RX(IDLE), LIFE(UP),
     DO(STOP) | DO(FREE_TX) | DO(FREE_RX) | DO(RESET_ACK) | DO(TELL) | DO(TURN)},
    {UCT_ANGARA_EV_REPORT, TX_USED, RX_NONE, LIFE(TOLD), TX(IDLE), SAME, LIFE(UP),
     DO(STOP) | DO(FREE_TX) | DO(RESET_ACK) | DO(TELL) | DO(TURN)},
    {UCT_ANGARA_EV_REPORT, TX(IDLE), RX_USED, LIFE(TOLD), SAME, RX(IDLE), LIFE(UP),
     DO(STOP) | DO(FREE_RX) | DO(RESET_ACK) | DO(TELL) | DO(TURN)},
    {UCT_ANGARA_EV_REPORT, TX(IDLE), RX_NONE, LIFE(TOLD), SAME, SAME, LIFE(UP),
     DO(STOP) | DO(RESET_ACK) | DO(TELL) | DO(TURN)},
    {UCT_ANGARA_EV_REPORT, TX(IDLE), RX_NONE, GONE, SAME, RX(IDLE), LIFE(DEAD),
     DO(STOP) | DO(TELL) | DO(TURN)},
    {UCT_ANGARA_EV_REPORT, TX(IDLE), ANY, GONE, SAME, RX(IDLE), LIFE(DEAD),
     DO(STOP) | DO(FREE_RX) | DO(TELL) | DO(TURN)},
    {UCT_ANGARA_EV_REPORT, ANY, RX_NONE, GONE, TX(IDLE), RX(IDLE), LIFE(DEAD),
     DO(STOP) | DO(FREE_TX) | DO(TELL) | DO(TURN)},
    {UCT_ANGARA_EV_REPORT, ANY, ANY, GONE, TX(IDLE), RX(IDLE), LIFE(DEAD),
     DO(STOP) | DO(FREE_TX) | DO(FREE_RX) | DO(TELL) | DO(TURN)},
};

static const row_t *find_row(uct_angara_event_t event, const uct_angara_life_t *life)
{
    size_t i;

    if (event == UCT_ANGARA_EV_SETTLE) {
        event = UCT_ANGARA_EV_REPORT;
    }
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        if ((rows[i].event == event) && (rows[i].tx & (1u << life->tx)) &&
            (rows[i].rx & (1u << life->rx)) && (rows[i].life & (1u << life->state))) {
            return &rows[i];
        }
    }
    return NULL;
}

static unsigned expected(unsigned state, unsigned now)
{
    return (state == SAME) ? 1u << now : state;
}

static void check_step(uct_angara_event_t event, uct_angara_life_t before)
{
    const row_t      *row   = find_row(event, &before);
    uct_angara_life_t after = before;
    unsigned          todo  = uct_angara_life_step(&after, event);
    unsigned          want  = (row == NULL) ? 0 : row->todo;
    unsigned          life  = expected((row == NULL) ? SAME : row->new_life, before.state);

    if (before.has_bye) { /* it leaves, whatever else happens */
        life = (life == LIFE(UP)) ? LIFE(LEAVING) : (life == LIFE(DYING)) ? LIFE(PARTING) : life;
    }
    assert_int_equal(after.has_bye, before.has_bye || (event == UCT_ANGARA_EV_BYE));
    if ((row != NULL) && (event == UCT_ANGARA_EV_SETTLE) &&
        (before.state != UCT_ANGARA_LIFE_FAILING)) {
        want &= ~(unsigned)UCT_ANGARA_DO_TELL;
        life = (life == LIFE(DEAD)) ? LIFE(LEFT) : life;
    }
    if ((todo != want) || (1u << after.state != life) ||
        (1u << after.tx != expected((row == NULL) ? SAME : row->new_tx, before.tx)) ||
        (1u << after.rx != expected((row == NULL) ? SAME : row->new_rx, before.rx))) {
        fail_msg("%s in tx %u, rx %u, life %u: now %u, %u, %u and 0x%x, expected 0x%x",
                 uct_angara_life_event_name(event), before.tx, before.rx, before.state, after.tx,
                 after.rx, after.state, todo, want);
    }

    /* whatever the table says: a number is given back exactly when it is given up */
    assert_true(uct_angara_life_is_legal(&after));
    assert_int_equal(!!(todo & UCT_ANGARA_DO_FREE_TX),
                     (before.tx != UCT_ANGARA_TX_IDLE) && (after.tx == UCT_ANGARA_TX_IDLE));
    assert_int_equal(!!(todo & (UCT_ANGARA_DO_FREE_RX | UCT_ANGARA_DO_REFUSE)),
                     uct_angara_life_has_ring(&before) && !uct_angara_life_has_ring(&after));
    /* nobody is told that we have stopped before we have */
    if ((todo & UCT_ANGARA_DO_RESET_ACK) && !(todo & UCT_ANGARA_DO_STOP) &&
        (before.state != UCT_ANGARA_LIFE_FAILING) && (before.state != UCT_ANGARA_LIFE_TOLD)) {
        assert_true((after.state == UCT_ANGARA_LIFE_RESET) || (event == UCT_ANGARA_EV_RESET_OLD));
    }
}

static void test_every_pair(void **state)
{
    uct_angara_life_t life;
    unsigned          event, legal = 0;

    (void)state;
    memset(&life, 0, sizeof(life));
    for (life.tx = 0; life.tx < UCT_ANGARA_TX_LAST; ++life.tx) {
        for (life.rx = 0; life.rx < UCT_ANGARA_RX_LAST; ++life.rx) {
            for (life.state = 0; life.state < UCT_ANGARA_LIFE_LAST; ++life.state) {
                for (life.has_bye = 0; life.has_bye < 2; ++life.has_bye) {
                    if (!uct_angara_life_is_legal(&life)) {
                        continue;
                    }
                    ++legal;
                    for (event = 0; event < UCT_ANGARA_EV_LAST; ++event) {
                        check_step((uct_angara_event_t)event, life);
                    }
                }
            }
        }
    }
    assert_int_equal(legal, 259);
}

/* Every row of the table is the first that fits some legal state. */
static void test_every_row(void **state)
{
    uct_angara_life_t life;
    size_t            i;
    int               found;

    (void)state;
    memset(&life, 0, sizeof(life));
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        found = 0;
        for (life.tx = 0; life.tx < UCT_ANGARA_TX_LAST; ++life.tx) {
            for (life.rx = 0; life.rx < UCT_ANGARA_RX_LAST; ++life.rx) {
                for (life.state = 0; life.state < UCT_ANGARA_LIFE_LAST; ++life.state) {
                    life.has_bye = (life.state == UCT_ANGARA_LIFE_LEAVING);
                    found |= uct_angara_life_is_legal(&life) &&
                             (find_row(rows[i].event, &life) == &rows[i]);
                }
            }
        }
        if (!found) {
            fail_msg("row %zu is never used", i);
        }
    }
}

/* ---- old epochs ------------------------------------------------------------------------------ */

static void test_old_epochs(void **state)
{
    static const uct_angara_event_t answers[] = {UCT_ANGARA_EV_GRANT, UCT_ANGARA_EV_REFUSE,
                                                 UCT_ANGARA_EV_CLOSE_ACK};
    uct_angara_life_t               life;
    size_t                          i;

    (void)state;
    memset(&life, 0, sizeof(life));
    life.tx       = UCT_ANGARA_TX_OPEN;
    life.rx       = UCT_ANGARA_RX_OPEN;
    life.tx_epoch = 7;
    life.rx_epoch = 9;
    for (i = 0; i < sizeof(answers) / sizeof(answers[0]); ++i) {
        assert_int_equal(uct_angara_life_classify(&life, answers[i], 0, 7), answers[i]);
        assert_int_equal(uct_angara_life_classify(&life, answers[i], 0, 6), UCT_ANGARA_EV_NONE);
        assert_int_equal(uct_angara_life_classify(&life, answers[i], 0, 9), UCT_ANGARA_EV_NONE);
    }
    assert_int_equal(uct_angara_life_classify(&life, UCT_ANGARA_EV_CLOSE, 9, 0),
                     UCT_ANGARA_EV_CLOSE);
    assert_int_equal(uct_angara_life_classify(&life, UCT_ANGARA_EV_CLOSE, 8, 0),
                     UCT_ANGARA_EV_CLOSE_OLD);
    assert_int_equal(uct_angara_life_classify(&life, UCT_ANGARA_EV_RESET, 9, 0),
                     UCT_ANGARA_EV_RESET);
    assert_int_equal(uct_angara_life_classify(&life, UCT_ANGARA_EV_RESET, 0, 7),
                     UCT_ANGARA_EV_RESET);
    assert_int_equal(uct_angara_life_classify(&life, UCT_ANGARA_EV_RESET, 8, 6),
                     UCT_ANGARA_EV_RESET_OLD);
    assert_int_equal(uct_angara_life_classify(&life, UCT_ANGARA_EV_RESET_ACK, 7, 9),
                     UCT_ANGARA_EV_NONE);
    life.tx = UCT_ANGARA_TX_ASKED;
    assert_int_equal(uct_angara_life_classify(&life, UCT_ANGARA_EV_RESET, 0, 7),
                     UCT_ANGARA_EV_RESET_OLD);
    life.tx = UCT_ANGARA_TX_LOST;
    life.rx = UCT_ANGARA_RX_LOST;
    assert_int_equal(uct_angara_life_classify(&life, UCT_ANGARA_EV_GRANT, 0, 7),
                     UCT_ANGARA_EV_NONE);
    assert_int_equal(uct_angara_life_classify(&life, UCT_ANGARA_EV_RESET_ACK, 7, 9),
                     UCT_ANGARA_EV_RESET_ACK);
    assert_int_equal(uct_angara_life_classify(&life, UCT_ANGARA_EV_RESET_ACK, 7, 0),
                     UCT_ANGARA_EV_NONE);
    assert_int_equal(uct_angara_life_classify(&life, UCT_ANGARA_EV_RESET_ACK, 6, 9),
                     UCT_ANGARA_EV_NONE);
}

/* ---- two sides ------------------------------------------------------------------------------- */

#define EPOCHS    2 /* neighbours differ: that is enough */
#define QUEUE_MAX 64

typedef struct {
    uct_angara_event_t event;
    uint8_t            tx_epoch, rx_epoch;
} record_t;

typedef struct {
    uct_angara_life_t life;
    record_t          queue[QUEUE_MAX]; /* what it will hear */
    unsigned          head, tail;
    uint8_t           epoch;
    uint8_t           reset_tx, reset_rx;
    unsigned          markers; /* under way: of these events */
    record_t          hello;   /* that waits for a report, if its epoch isn't 0 */
    int               refuses;
    int               writes_ring;   /* to a ring of the other side's */
    int               writes_credit; /* to a credit line of the other side's */
    unsigned          lines, rings;  /* taken */
} side_t;

static side_t   sides[2];
static uint64_t rng;

static unsigned dice(unsigned faces)
{
    rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(rng >> 33) % faces;
}

static void say(side_t *side, uct_angara_event_t event, uint8_t tx_epoch, uint8_t rx_epoch)
{
    side_t *other = &sides[side == &sides[0]];

    assert_true(other->tail - other->head < QUEUE_MAX);
    other->queue[other->tail++ % QUEUE_MAX] = (record_t){event, tx_epoch, rx_epoch};
}

static void happens(side_t *side, uct_angara_event_t event, const record_t *record)
{
    side_t            *other = &sides[side == &sides[0]];
    uct_angara_life_t *life  = &side->life;
    unsigned           todo  = uct_angara_life_step(life, event);

    assert_false(todo & UCT_ANGARA_DO_NONSENSE);
    if (todo & UCT_ANGARA_DO_HELLO) {
        side->epoch    = (uint8_t)(side->epoch % EPOCHS + 1);
        life->tx_epoch = side->epoch;
        ++side->lines;
        say(side, UCT_ANGARA_EV_HELLO, life->tx_epoch, 0);
    }
    if (todo & UCT_ANGARA_DO_LATER) {
        side->hello = *record;
    }
    if (todo & UCT_ANGARA_DO_USE_RING) {
        side->writes_ring = 1;
    }
    if (todo & UCT_ANGARA_DO_MAKE_RING) {
        life->rx_epoch = record->tx_epoch;
        if (side->refuses) {
            uct_angara_life_step(life, UCT_ANGARA_EV_NO_RING);
            say(side, UCT_ANGARA_EV_REFUSE, 0, record->tx_epoch);
        } else {
            ++side->rings;
            side->writes_credit = 1;
            say(side, UCT_ANGARA_EV_GRANT, 0, record->tx_epoch);
        }
    }
    if (todo & UCT_ANGARA_DO_CLOSE) {
        side->writes_ring = 0;
        say(side, UCT_ANGARA_EV_CLOSE, life->tx_epoch, 0);
    }
    if (todo & UCT_ANGARA_DO_STOP) {
        side->writes_ring = side->writes_credit = 0;
        side->markers                           = 0;
    }
    if (todo & UCT_ANGARA_DO_RESET) {
        say(side, UCT_ANGARA_EV_RESET, (life->tx == UCT_ANGARA_TX_LOST) ? life->tx_epoch : 0,
            (life->rx == UCT_ANGARA_RX_LOST) ? life->rx_epoch : 0);
    }
    if (todo & UCT_ANGARA_DO_FREE_TX) {
        assert_int_equal(side->lines, 1);
        --side->lines;
        assert_false(other->writes_credit);
    }
    if (todo & UCT_ANGARA_DO_FREE_RX) {
        assert_int_equal(side->rings, 1);
        --side->rings;
        side->writes_credit = 0;
        assert_false(other->writes_ring);
    }
    if (todo & UCT_ANGARA_DO_CLOSE_ACK) {
        say(side, UCT_ANGARA_EV_CLOSE_ACK, 0, (record != NULL) ? record->tx_epoch : life->rx_epoch);
    }
    if (todo & UCT_ANGARA_DO_RESET_ACK) {
        say(side, UCT_ANGARA_EV_RESET_ACK, side->reset_tx, side->reset_rx);
    }
    if (todo & UCT_ANGARA_DO_FLUSH_TX) {
        side->markers |= 1u << UCT_ANGARA_EV_FLUSHED;
    }
    if (todo & UCT_ANGARA_DO_FLUSH_RX) {
        side->markers |= 1u << UCT_ANGARA_EV_CREDITED;
    }
}

static int hears(side_t *side)
{
    record_t           record;
    uct_angara_event_t event;

    if (side->head == side->tail) {
        return 0;
    }
    record = side->queue[side->head++ % QUEUE_MAX];
    event  = uct_angara_life_classify(&side->life, record.event, record.tx_epoch, record.rx_epoch);
    if ((event == UCT_ANGARA_EV_RESET) || (event == UCT_ANGARA_EV_RESET_OLD)) {
        side->reset_tx = record.tx_epoch;
        side->reset_rx = record.rx_epoch;
        side->hello    = (record_t){UCT_ANGARA_EV_NONE, 0, 0};
    }
    if (event != UCT_ANGARA_EV_NONE) {
        happens(side, event, &record);
    }
    return 1;
}

/* What goes on by itself. @return whether something did. */
static int goes_on(side_t *side)
{
    uct_angara_event_t event = (side->markers & (1u << UCT_ANGARA_EV_FLUSHED)) ?
                                   UCT_ANGARA_EV_FLUSHED :
                                   UCT_ANGARA_EV_CREDITED;
    record_t           hello;

    if (side->markers != 0) {
        side->markers &= ~(1u << event);
        happens(side, event, NULL);
    } else if (side->life.rx == UCT_ANGARA_RX_CLOSING &&
               side->life.state <= UCT_ANGARA_LIFE_LEAVING) {
        happens(side, UCT_ANGARA_EV_CONSUMED, NULL);
    } else if (uct_angara_life_is_due(&side->life)) {
        happens(side, dice(2) ? UCT_ANGARA_EV_REPORT : UCT_ANGARA_EV_SETTLE, NULL);
        if (side->hello.tx_epoch != 0) {
            hello       = side->hello;
            side->hello = (record_t){UCT_ANGARA_EV_NONE, 0, 0};
            happens(side, UCT_ANGARA_EV_HELLO, &hello);
        }
    } else {
        return 0;
    }
    return 1;
}

/* Both sides send, close, fail and refuse as they like; then all calms down, and both can talk. */
static void test_two_sides(void **state)
{
    static const uct_angara_event_t own[] = {UCT_ANGARA_EV_SEND, UCT_ANGARA_EV_SEND,
                                             UCT_ANGARA_EV_UNUSED, UCT_ANGARA_EV_FAIL};
    unsigned                        walk, step, i, quiet;
    side_t                         *side;

    (void)state;
    for (walk = 0; walk < 20000; ++walk) {
        rng = walk;
        memset(sides, 0, sizeof(sides));
        for (step = 0; step < 60; ++step) {
            side = &sides[dice(2)];
            switch (dice(4)) {
            case 0:
                side->refuses = (dice(8) == 0);
                happens(side, own[dice(4)], NULL);
                break;
            case 1:
                goes_on(side);
                break;
            default:
                hears(side);
            }
        }
        for (i = 0; i < 2; ++i) {
            sides[i].refuses = 0;
        }
        for (quiet = 0, step = 0; quiet < 4; ++step) {
            assert_true(step < 1000);
            side = &sides[step % 2];
            happens(side, UCT_ANGARA_EV_SEND, NULL);
            quiet = (hears(side) || goes_on(side)) ? 0 : quiet + 1;
        }
        for (i = 0; i < 2; ++i) {
            assert_int_equal(sides[i].life.state, UCT_ANGARA_LIFE_UP);
            assert_int_equal(sides[i].life.tx, UCT_ANGARA_TX_OPEN);
            assert_int_equal(sides[i].life.rx, UCT_ANGARA_RX_OPEN);
            assert_int_equal(sides[i].life.rx_epoch, sides[1 - i].life.tx_epoch);
            assert_int_equal(sides[i].lines, 1);
            assert_int_equal(sides[i].rings, 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pair),
        cmocka_unit_test(test_every_row),
        cmocka_unit_test(test_old_epochs),
        cmocka_unit_test(test_two_sides),
    };

    return cmocka_run_group_tests_name("life", tests, NULL, NULL);
}
