/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Job keys: PEs of different keys don't exist for each other. Each kind of operation against a PE
 * of another key, by its right name and by guessed ones, on another node and on the own one:
 * nothing there changes, and the initiator can't tell a wrong key from a PE that isn't there. An
 * argument is the seed of chaos mode.
 */
#include "guest_net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STRANGER 7u /* a's pair to a PE of another key */
#define OTHER    (GUEST_JOB + 1)
#define BYTES    GUEST_PAGE

/* ---- a PE of another key, and all that its owner can see of it ------------------------------- */

typedef struct {
    pe_t     pe;
    region_t region;
} stranger_t;

typedef struct {
    struct angara_status       status;
    struct angara_event_record events[GUEST_EVENTS];
    uint64_t                   markers[GUEST_SLOTS];
    uint8_t                    window[2 * GUEST_PAGE];
    uint8_t                    region[BYTES];
    int                        irq;
} view_t;

static void stranger_create(stranger_t *s, guest_t *guest, uint32_t index, uint64_t key)
{
    pe_prepare(&s->pe, guest, index, DOM);
    s->pe.hw.job_key = key;
    assert_int_equal(pe_create_status(&s->pe), ANGARA_HW_OK);
    region_register(&s->region, guest, DOM, BYTES, ALL, 1, 12, 0);
    region_fill(&s->region, 5);
    memset(pe_window(&s->pe, 0), 0x55, GUEST_PAGE);
    memset(pe_window(&s->pe, GUEST_PAGE), 0x56, GUEST_PAGE);
    pe_arm(&s->pe);
}

static void stranger_view(stranger_t *s, view_t *view)
{
    memset(view, 0, sizeof(*view));
    view->status = *s->pe.status;
    memcpy(view->events, s->pe.event, sizeof(view->events));
    memcpy(view->markers, s->pe.marker, sizeof(view->markers));
    memcpy(view->window, pe_window(&s->pe, 0), GUEST_PAGE);
    memcpy(view->window + GUEST_PAGE, pe_window(&s->pe, GUEST_PAGE), GUEST_PAGE);
    region_load(&s->region, 0, view->region, BYTES);
    view->irq = guest_irq(s->pe.guest, s->pe.hw.vector);
}

/* ---- what the initiator is told -------------------------------------------------------------- */

typedef struct {
    char     text[2048];
    unsigned length;
} told_t;

static void tell(told_t *told, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void tell(told_t *told, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    told->length += (unsigned)vsnprintf(told->text + told->length,
                                        sizeof(told->text) - told->length, format, args);
    va_end(args);
    assert_true(told->length < sizeof(told->text));
}

/* All events by now, but for the generation, which the initiator has named himself. */
static void tell_events(told_t *told, pe_t *pe)
{
    struct angara_event_record event;

    while (pe_event(pe, &event)) {
        tell(told, "event %u pair %u node %u pe %u status %d key %llx; ", event.type, event.pair,
             event.node, event.pe, event.status, (unsigned long long)event.key);
    }
}

static void pair_named(pe_t *pe, const stranger_t *s, uint32_t generation)
{
    pe_t name = s->pe;

    name.hw.generation = generation;
    pe_pair(pe, STRANGER, &name);
}

/* Everything that there is to do to a PE. It is refused one way or the other. */
static void try_all(net_t *net, region_t *local, stranger_t *s, uint32_t generation, told_t *told)
{
    static const uint8_t ops[] = {ANGARA_OP_PUT, ANGARA_OP_GET, ANGARA_OP_PUT_INLINE,
                                  ANGARA_OP_ATOMIC, ANGARA_OP_MARKER};
    pe_t                *a     = &net->a;

    for (unsigned i = 0; i < sizeof(ops); ++i) {
        struct angara_desc desc = {.op       = ops[i],
                                   .width    = 8,
                                   .pair     = STRANGER,
                                   .lkey     = ops[i] == ANGARA_OP_PUT_INLINE ? 0 : local->key,
                                   .rkey     = s->region.key,
                                   .length   = ops[i] == ANGARA_OP_PUT_INLINE ? 8 : 64,
                                   .operand  = ops[i] == ANGARA_OP_MARKER ? 1000 : 1,
                                   .loffset  = ops[i] == ANGARA_OP_MARKER ? 1 : 0,
                                   .pio_prod = a->pio_prod};

        pair_named(a, s, generation);
        pe_post(a, &desc);
        tell_events(told, a);
    }
    pair_named(a, s, generation);
    pe_put(a, STRANGER, 0, "stranger", 8);
    pe_put(a, STRANGER, 100, "a long one, of more than sixteen bytes", 38);
    pe_put_flag(a, STRANGER, 16, "flag", 4, 64, ~0ull);
    tell(told, "notify %d; ", pe_notify(a, STRANGER, "hello", 5));
    pe_wait_mark(a, pe_mark(a, ANGARA_OP_MARKER_SELF, FAR)); /* all of it has been dropped */
    tell_events(told, a);
    tell(told, "marker %llu; ", (unsigned long long)a->marker[1]);
}

static uint64_t counted(const pe_t *pe)
{
    const volatile __le64 *counters = pe->status->counters;

    return counters[ANGARA_CNT_FAULTS] + counters[ANGARA_CNT_REFUSED] +
           counters[ANGARA_CNT_NOTIFIES] + counters[ANGARA_CNT_PUTS] +
           counters[ANGARA_CNT_OFF_PUTS] + counters[ANGARA_CNT_OFF_GETS] +
           counters[ANGARA_CNT_ATOMICS];
}

static void refused_on(int node)
{
    static view_t before, after;
    static told_t right, guessed, nowhere;
    stranger_t    s, none;
    region_t      local;
    uint64_t      count;
    net_t         net;

    net_start(&net, "--loopback");
    region_register(&local, &net.guests[0], DOM, BYTES, ALL, 1, 12, 0);
    stranger_create(&s, &net.guests[node], 11, OTHER);
    none             = s;
    none.pe.hw.index = 12; /* is nobody's */
    right.length     = 0;
    guessed.length   = 0;
    nowhere.length   = 0;
    stranger_view(&s, &before);
    count = counted(&net.a);
    try_all(&net, &local, &s, s.pe.hw.generation, &right);
    try_all(&net, &local, &s, s.pe.hw.generation + 1, &guessed);
    assert_int_equal(counted(&net.a), count);
    stranger_view(&s, &after);
    assert_memory_equal(&after, &before, sizeof(before));
    assert_true(strstr(right.text, "event 3 pair 7") == right.text);
    assert_non_null(strstr(right.text, "notify -9"));
    assert_string_equal(right.text, guessed.text);
    /* A PE that never was is another number, and the same otherwise. */
    try_all(&net, &local, &none, 1, &nowhere);
    for (char *at = right.text; (at = strstr(at, "pe 11")) != NULL;) {
        memcpy(at, "pe 12", 5);
    }
    assert_string_equal(right.text, nowhere.text);
    /* Its end is nobody's business, and who has the key reaches it. */
    pe_reset(&s.pe);
    pe_flush(&net.a, FAR);
    nowhere.length  = 0;
    nowhere.text[0] = '\0';
    tell_events(&nowhere, &net.a);
    assert_string_equal(nowhere.text, "");
    stranger_create(&s, &net.guests[node], 11, GUEST_JOB);
    pair_named(&net.a, &s, s.pe.hw.generation);
    assert_int_equal(pe_notify(&net.a, STRANGER, "hello", 5), ANGARA_OK);
    pe_put(&net.a, STRANGER, 0, "friend", 6);
    pe_flush(&net.a, STRANGER);
    assert_memory_equal(pe_window(&s.pe, 0), "friend", 6);
    net_stop(&net);
}

static void test_far(void **state)
{
    (void)state;
    refused_on(1);
}

static void test_near(void **state)
{
    (void)state;
    refused_on(0);
}

/* While a link is down nobody knows who is there; what waited is dropped when it is up again. */
static void test_link_down(void **state)
{
    static view_t              before, after;
    struct angara_event_record event;
    region_t                   local;
    stranger_t                 s;
    net_t                      net;

    (void)state;
    net_start(&net, NULL);
    region_register(&local, &net.guests[0], DOM, BYTES, ALL, 1, 12, 0);
    stranger_create(&s, &net.guests[1], 11, OTHER);
    fabric_control(&net.fabric, "link 0 down");
    pe_expect(&net.a, ANGARA_EV_LINK, ~0u, 0);
    stranger_view(&s, &before);
    pair_named(&net.a, &s, s.pe.hw.generation);
    pe_rma(&net.a, ANGARA_OP_PUT, STRANGER, &local, 0, &s.region, 0, 64);
    pe_rma(&net.a, ANGARA_OP_GET, STRANGER, &local, 64, &s.region, 0, 64);
    pe_put_flag(&net.a, STRANGER, 0, "stranger", 8, 64, ~0ull);
    fabric_control(&net.fabric, "link 0 up");
    do {
        pe_event_wait(&net.a, &event);
    } while (event.type == ANGARA_EV_LINK);
    assert_int_equal(event.type, ANGARA_EV_PEER_DOWN);
    assert_int_equal(event.pair, STRANGER);
    assert_int_equal(pe_notify(&net.a, STRANGER, "hello", 5), ANGARA_ERR_PEER_DEAD);
    pe_wait_mark(&net.a, pe_mark(&net.a, ANGARA_OP_MARKER_SELF, FAR));
    stranger_view(&s, &after);
    assert_memory_equal(&after, &before, sizeof(before));
    net_stop(&net);
}

/* ---- guessing, counting ---------------------------------------------------------------------- */

/* It costs the same, whether the number is in use or not. */
static void test_guessing(void **state)
{
    enum { GUESSES = 20 };
    stranger_t s;
    double     start;
    net_t      net;

    (void)state;
    net_start(&net, NULL);
    stranger_create(&s, &net.guests[1], 11, OTHER);
    for (unsigned index = 11; index <= 12; ++index) {
        s.pe.hw.index = index;
        start         = now_seconds();
        for (unsigned i = 0; i < GUESSES; ++i) {
            pair_named(&net.a, &s, 1000 + i);
            pe_expect(&net.a, ANGARA_EV_PEER_DOWN, STRANGER, ANGARA_ERR_PEER_DEAD);
        }
        assert_true(now_seconds() - start >= (GUESSES - 2) * 0.001);
    }
    net_stop(&net);
}

/* Only the far node's administrator sees the attempts. */
static void test_counted(void **state)
{
    volatile struct angara_hw_control *control;
    stranger_t                         s;
    net_t                              net;

    (void)state;
    net_start(&net, NULL);
    control = net.guests[1].control;
    stranger_create(&s, &net.guests[1], 11, OTHER);
    assert_non_null(strstr(fabric_control(&net.fabric, "state 1"), "key_mismatches=0"));
    pair_named(&net.a, &s, s.pe.hw.generation);
    pair_named(&net.a, &s, s.pe.hw.generation + 1); /* guessed */
    assert_non_null(strstr(fabric_control(&net.fabric, "state 1"), "key_mismatches=2"));
    WAIT_FOR(control->key_mismatches == 2);
    assert_int_equal(net.guests[0].control->key_mismatches, 0);
    net_stop(&net);
}

/* ---- the driver's part ----------------------------------------------------------------------- */

static void test_no_key(void **state)
{
    net_t net;
    pe_t  pe;

    (void)state;
    net_start(&net, NULL);
    pe_prepare(&pe, &net.guests[0], 11, DOM);
    pe.hw.job_key = 0;
    assert_int_equal(pe_create_status(&pe), ANGARA_HW_EINVAL);
    pe.hw.job_key = ~0ull; /* the device only compares */
    assert_int_equal(pe_create_status(&pe), ANGARA_HW_OK);
    net_stop(&net);
}

static void test_old_device(void **state)
{
    net_t net;

    (void)state;
    net_start(&net, NULL);
    fabric_control(&net.fabric, "version 0 0x20001");
    assert_int_equal(net.guests[0].control->version, 0x20001);
    fabric_control_error(&net.fabric, "version 0 new");
    fabric_control(&net.fabric, "version 0 %u", ANGARA_HW_VERSION);
    net_stop(&net);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far),        cmocka_unit_test(test_near),
        cmocka_unit_test(test_link_down),  cmocka_unit_test(test_guessing),
        cmocka_unit_test(test_counted),    cmocka_unit_test(test_no_key),
        cmocka_unit_test(test_old_device),
    };

    net_options(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
