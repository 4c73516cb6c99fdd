/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joint copies in which one side halts for sure in the middle of a piece: the first touch of a page
 * of it, by whichever process, waits until the test lets it go on (common/gate.h). Meanwhile either
 * side dies, deregisters, disconnects or loses the memory.
 *
 * The target copies from the back: it halts at the last page, the initiator at the first one.
 */
#include "../common/clock.h"
#include "../common/gate.h"
#include "joint.h"

#include <signal.h>

#include <cmocka.h>

/* What all ranks see. */
typedef struct {
    int has_halted; /* somebody stands at the page */
    int may_go_on;  /* see THEN_WAIT */
    int goes_on;    /* set before that one does */
    int is_over;    /* the target needn't serve any more */
    int gives_up;   /* as the target takes no piece */
} stage_t;

static stage_t *stage;

/* What happens when somebody has come to the page. */
typedef enum {
    THEN_GO_ON,     /* after a while */
    THEN_WAIT,      /* until may_go_on is set */
    THEN_KILL,      /* a process; whoever else stands there goes on after that */
    THEN_TAKE_AWAY, /* the page is none any more */
} then_t;

typedef struct {
    gate_t gate;
    then_t then;
    pid_t  victim;
} halt_t;

/* Somebody stands there. */
static void halted(gate_t *gate, void *arg)
{
    const halt_t *halt = arg;

    rank_set(&stage->has_halted);
    if (halt->then == THEN_TAKE_AWAY) {
        rank_set(&stage->goes_on);
        gate_take_away(gate);
        return;
    }
    if (halt->then == THEN_KILL) {
        CHECK(kill(halt->victim, SIGKILL) == 0);
    }
    do {
        sleep_ms(30);
    } while (halt->then == THEN_WAIT && !rank_is_set(&stage->may_go_on));
    rank_set(&stage->goes_on);
    gate_open(gate);
}

/* ---- the ranks ------------------------------------------------------------------------------- */

/* Where a test's page is. */
typedef enum { FAR_BACK, FAR_FRONT, NEAR_BACK } place_t;

/* The rank whose memory that is. */
static unsigned owner(place_t place)
{
    return place == NEAR_BACK ? 0 : 1;
}

#define NEAR_KEY  1
#define FAR_KEY   2
#define LATER_KEY 3

static void fill(conf_mem_t *mem, uint64_t key)
{
    data_fill(mem->addr + MARGIN, LONG, key);
}

/* The page at `place` halts whoever comes first; what happens then: then_t, with that rank. */
static void halt_init(conf_t *t, regions_t *r, halt_t *halt, place_t place, then_t then,
                      unsigned victim)
{
    conf_mem_t *mem = place == NEAR_BACK ? &r->near : &r->far;

    if (!joint_is_used()) {
        rank_skip("one process copies");
    }
    if (!gate_is_allowed()) {
        rank_skip("userfaultfd isn't allowed");
    }
    joint_regions_init(t, r);
    fill(&r->near, NEAR_KEY);
    fill(&r->far, FAR_KEY);
    if (t->rank == owner(place)) {
        halt->then   = then;
        halt->victim = t->pid[victim];
        gate_init(&halt->gate, mem->addr + MARGIN + (place == FAR_FRONT ? 0 : LONG - GATE_PAGE),
                  halted, halt);
    }
    conf_barrier(t);
}

/* The destination holds the source's first bytes. */
static void check_copied(const conf_t *t, const regions_t *r, size_t length)
{
    if (((const kind_t *)t->arg)->is_get) {
        CHECK(t->rank == 1 || rank_matches(r->near.addr + MARGIN, length, FAR_KEY));
    } else {
        CHECK(t->rank == 0 || rank_matches(r->far.addr + MARGIN, length, NEAR_KEY));
    }
}

static const char no_piece[] = "the target takes no piece: it shares its processor, perhaps";

static void serve_until(conf_t *t, const int *flag)
{
    CONF_WAIT(t, rank_is_set(flag) || rank_is_set(&stage->gives_up));
    if (!rank_is_set(flag)) {
        rank_skip(no_piece);
    }
}

/*
 * The initiator makes one turn, and none after it until the target has come to the page. Whether
 * targets take pieces at all is for test_joint to say.
 */
static void post_and_halt(conf_t *t, regions_t *r)
{
    double end = now_seconds() + 3 * rank_slow();

    CHECK_OK(joint_post(t, r, 1, 0, LONG));
    angara_pe_progress(t->pe);
    while (!rank_is_set(&stage->has_halted)) {
        sleep_ms(1);
        if (now_seconds() > end) {
            rank_set(&stage->gives_up);
            rank_skip(no_piece);
        }
    }
}

/* ---- the target halts, and goes on ----------------------------------------------------------- */

static void marker_waits_at(conf_t *t, place_t place)
{
    regions_t r;
    halt_t    halt;

    halt_init(t, &r, &halt, place, THEN_GO_ON, 0);
    if (t->rank == 0) {
        post_and_halt(t, &r);
        conf_marker(t, 1);
        CHECK(rank_is_set(&stage->goes_on));
        rank_set(&stage->is_over);
    } else {
        serve_until(t, &stage->is_over);
    }
    check_copied(t, &r, LONG);
    if (t->rank == owner(place)) {
        gate_cleanup(&halt.gate);
    }
    joint_regions_cleanup(t, &r);
}

/* Caught: a marker that overtakes a piece which the target has claimed. */
static void marker_waits(conf_t *t)
{
    marker_waits_at(t, FAR_BACK);
}

static void marker_waits_near(conf_t *t)
{
    marker_waits_at(t, NEAR_BACK);
}

/* The near end was deregistered and filled: nobody writes there. It is registered for the end. */
static void near_is_free(conf_t *t, regions_t *r)
{
    sleep_ms(1);
    CHECK_DATA(r->near.addr + MARGIN, LONG, LATER_KEY);
    CHECK_OK(angara_mr_register(t->dom, r->near.addr, r->near.length, ANGARA_ACCESS_LOCAL_WRITE,
                                &r->near.mr));
}

/* Caught: a near end that is deregistered, or free with its peer's end, and still in use. */
static void near_end_goes(conf_t *t, int disconnects)
{
    int       is_get = ((const kind_t *)t->arg)->is_get;
    regions_t r;
    halt_t    halt;

    halt_init(t, &r, &halt, FAR_BACK, THEN_GO_ON, 0);
    if (t->rank == 0) {
        post_and_halt(t, &r);
        if (disconnects) {
            angara_peer_disconnect(t->peer[1]);
            t->peer[1] = NULL;
        }
        CHECK_OK(angara_mr_deregister(r.near.mr));
        CHECK(rank_is_set(&stage->goes_on));
        fill(&r.near, LATER_KEY);
        if (!disconnects) {
            conf_marker(t, 1); /* what was queued has been performed before the region ended */
        }
        near_is_free(t, &r);
        rank_set(&stage->is_over);
    } else {
        serve_until(t, &stage->is_over);
        gate_cleanup(&halt.gate);
        CHECK(disconnects || is_get || rank_matches(r.far.addr + MARGIN, LONG, NEAR_KEY));
    }
    joint_regions_cleanup(t, &r);
}

/*
 * A piece that lasts longer than ANGARA_PEER_WAIT: the memory is owed until it has ended. Caught: a
 * target that doesn't show that it is at the near end.
 */
static void near_end_is_owed(conf_t *t)
{
    regions_t       r;
    halt_t          halt;
    angara_status_t status;

    CHECK(setenv("ANGARA_PEER_WAIT", "100", 1) == 0);
    halt_init(t, &r, &halt, FAR_BACK, THEN_WAIT, 0);
    if (t->rank == 0) {
        post_and_halt(t, &r);
        CHECK_STATUS(angara_mr_deregister(r.near.mr), ANGARA_ERR_BUSY);
        CHECK_STATUS(angara_mr_deregister(r.near.mr), ANGARA_ERR_BUSY);
        rank_set(&stage->may_go_on);
        CONF_WAIT(t, (status = angara_mr_deregister(r.near.mr)) != ANGARA_ERR_BUSY);
        CHECK_OK(status);
        CHECK(rank_is_set(&stage->goes_on));
        fill(&r.near, LATER_KEY);
        near_is_free(t, &r);
        CHECK_STATUS(angara_peer_status(t->peer[1]), ANGARA_ERR_PAIR);
        rank_set(&stage->is_over);
    } else {
        serve_until(t, &stage->is_over);
        gate_cleanup(&halt.gate);
    }
    joint_regions_cleanup(t, &r);
}

static void deregister_near(conf_t *t)
{
    near_end_goes(t, 0);
}

static void disconnect(conf_t *t)
{
    near_end_goes(t, 1);
}

/* ---- the memory goes while the target stands at it ------------------------------------------- */

static void take_away(conf_t *t, place_t place)
{
    int       is_get = ((const kind_t *)t->arg)->is_get;
    regions_t r;
    halt_t    halt;

    halt_init(t, &r, &halt, place, THEN_TAKE_AWAY, 0);
    if (t->rank == 0) {
        post_and_halt(t, &r);
        CHECK_STATUS(conf_settle(t, 1), ANGARA_ERR_PAIR);
        memset(r.near.addr + MARGIN, 0, is_get ? LONG / 4 : 0);
        CHECK_OK(joint_post(t, &r, 1, 0, LONG / 4)); /* the pair goes on */
        conf_marker(t, 1);
        rank_set(&stage->is_over);
    } else {
        serve_until(t, &stage->is_over);
    }
    check_copied(t, &r, LONG / 4);
    if (t->rank == owner(place)) {
        gate_cleanup(&halt.gate);
    }
    joint_regions_cleanup(t, &r);
}

static void take_away_far(conf_t *t)
{
    take_away(t, FAR_BACK);
}

static void take_away_near(conf_t *t)
{
    take_away(t, NEAR_BACK);
}

/* ---- the initiator halts --------------------------------------------------------------------- */

/* Caught: a target's deregistration that doesn't wait for a piece of the initiator's. */
static void deregister_far(conf_t *t)
{
    regions_t       r;
    halt_t          halt;
    angara_status_t status;

    halt_init(t, &r, &halt, FAR_FRONT, THEN_GO_ON, 0);
    if (t->rank == 0) {
        CHECK_OK(joint_post(t, &r, 1, 0, LONG));
        status = conf_settle(t, 1);
        CHECK(status == ANGARA_OK || status == ANGARA_ERR_PAIR);
    } else {
        serve_until(t, &stage->has_halted);
        CHECK_OK(angara_mr_deregister(r.far.mr));
        CHECK(rank_is_set(&stage->goes_on));
        fill(&r.far, LATER_KEY);
        gate_cleanup(&halt.gate);
    }
    conf_barrier(t);
    if (t->rank == 1) {
        CHECK_DATA(r.far.addr + MARGIN, LONG, LATER_KEY);
        CHECK_OK(
            angara_mr_register(t->dom, r.far.addr, r.far.length, ANGARA_ACCESS_ALL, &r.far.mr));
    }
    joint_regions_cleanup(t, &r);
}

/* ---- either process dies --------------------------------------------------------------------- */

static void close_alone(conf_t *t, regions_t *r)
{
    conf_mem_cleanup(&r->near);
    conf_mem_cleanup(&r->far);
    conf_close_alone(t);
}

static void wait_for_death(conf_t *t)
{
    angara_event_t event;

    do {
        CHECK(conf_event(t, &event, RANK_TIMEOUT));
    } while (event.type != ANGARA_EVENT_PEER_DOWN);
}

static void target_dies(conf_t *t)
{
    regions_t r;
    halt_t    halt;

    halt_init(t, &r, &halt, FAR_BACK, THEN_KILL, 1);
    if (t->rank == 0) {
        post_and_halt(t, &r);
        wait_for_death(t);
        close_alone(t, &r);
    } else {
        serve_until(t, &stage->is_over);
    }
}

/* While the target stands in a piece, or in one of its own. */
static void initiator_dies(conf_t *t, place_t place)
{
    regions_t r;
    halt_t    halt;

    halt_init(t, &r, &halt, place, THEN_KILL, 0);
    if (t->rank == 0) {
        if (place == FAR_BACK) {
            post_and_halt(t, &r);
        } else {
            CHECK_OK(joint_post(t, &r, 1, 0, LONG));
        }
        conf_marker(t, 1);
    } else {
        serve_until(t, &stage->has_halted);
        gate_cleanup(&halt.gate);
        wait_for_death(t);
        close_alone(t, &r); /* deregisters what the dead one held */
    }
}

static void initiator_dies_elsewhere(conf_t *t)
{
    initiator_dies(t, FAR_BACK);
}

static void initiator_dies_in_piece(conf_t *t)
{
    initiator_dies(t, FAR_FRONT);
}

/* ---------------------------------------------------------------------------------------------- */

static const kind_t get = {0, 1, 1}, put = {0, 0, 1};

static void both(conf_func_t func, unsigned victims)
{
    memset(stage, 0, sizeof(*stage));
    conf_run_victims(2, func, &get, victims);
    memset(stage, 0, sizeof(*stage));
    conf_run_victims(2, func, &put, victims);
}

#define TEST(_func, _victims)              \
    static void test_##_func(void **state) \
    {                                      \
        (void)state;                       \
        both(_func, _victims);             \
    }

TEST(marker_waits, 0)
TEST(marker_waits_near, 0)
TEST(deregister_near, 0)
TEST(disconnect, 0)
TEST(near_end_is_owed, 0)
TEST(take_away_far, 0)
TEST(take_away_near, 0)
TEST(deregister_far, 0)
TEST(target_dies, 1u << 1)
TEST(initiator_dies_elsewhere, 1u << 0)
TEST(initiator_dies_in_piece, 1u << 0)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marker_waits),
        cmocka_unit_test(test_marker_waits_near),
        cmocka_unit_test(test_deregister_near),
        cmocka_unit_test(test_disconnect),
        cmocka_unit_test(test_near_end_is_owed),
        cmocka_unit_test(test_take_away_far),
        cmocka_unit_test(test_take_away_near),
        cmocka_unit_test(test_deregister_far),
        cmocka_unit_test(test_target_dies),
        cmocka_unit_test(test_initiator_dies_elsewhere),
        cmocka_unit_test(test_initiator_dies_in_piece),
    };

    stage = rank_share(sizeof(*stage));
    if (stage == NULL) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
