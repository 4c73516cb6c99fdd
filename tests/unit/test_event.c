/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Local events against the records of peers: the news that a peer has left comes after what it
 * said, and doesn't wait for what others haven't finished saying.
 */
#include "soft.h"

#include "src/log.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define EVENTS 16

static struct {
    angara_domain_h dom;
    angara_pe_h     here, there;
    angara_peer_h   to_there, to_here;
} f;

static pid_t gone; /* of a process that has ended */

static int setup(void **state)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = 4096, .events = EVENTS};
    angara_address_t   here, there;

    (void)state;
    if ((angara_open("soft", &f.dom) != ANGARA_OK) ||
        (angara_pe_create(f.dom, &params, &f.here) != ANGARA_OK) ||
        (angara_pe_create(f.dom, &params, &f.there) != ANGARA_OK)) {
        return -1;
    }
    angara_pe_address(f.here, &here);
    angara_pe_address(f.there, &there);
    return ((angara_peer_connect(f.here, &there, &f.to_there) == ANGARA_OK) &&
            (angara_peer_connect(f.there, &here, &f.to_here) == ANGARA_OK)) ?
               0 :
               -1;
}

static int teardown(void **state)
{
    (void)state;
    angara_peer_disconnect(f.to_there);
    angara_pe_destroy(f.here);
    return (angara_close(f.dom) == ANGARA_OK) ? 0 : -1;
}

static uint64_t claimed_by(uint64_t owner)
{
    return (owner & ((1ull << 46) - 1)) << 2 | 1; /* as in record_ring.c */
}

/* What a sender leaves that has been stopped with a record half written: this process, alive. */
static soft_record_t *claim(void)
{
    soft_record_ring_t *ring = soft_pe(f.here)->notify.ring;
    soft_record_t      *slot = &ring->slots[0];

    slot->state = claimed_by(soft_owner());
    ring->tail  = 1;
    return slot;
}

static void finish(soft_record_t *slot)
{
    memset(slot->data, 0, 24);
    slot->length = 24; /* from nobody: 16 bytes of head, 8 of data */
    __atomic_store_n(&slot->state, slot->state + 1, __ATOMIC_RELEASE);
}

static void leave(void)
{
    angara_pe_destroy(f.there);
    assert_int_equal(soft_peers_check(soft_pe(f.here)), 1);
}

static void expect(angara_event_type_t type, angara_peer_h peer)
{
    angara_event_t event;

    assert_int_equal(angara_pe_event_poll(f.here, &event), ANGARA_OK);
    assert_int_equal(event.type, type);
    assert_true(event.peer == peer);
}

static void expect_nothing(void)
{
    angara_event_t event;

    assert_int_equal(angara_pe_event_poll(f.here, &event), ANGARA_ERR_NO_RESOURCE);
}

static void test_in_order(void **state)
{
    (void)state;
    assert_int_equal(angara_notify(f.to_here, "1", 1), ANGARA_OK);
    assert_int_equal(angara_notify(f.to_here, "2", 1), ANGARA_OK);
    leave();
    expect(ANGARA_EVENT_NOTIFY, f.to_there);
    expect(ANGARA_EVENT_NOTIFY, f.to_there);
    expect(ANGARA_EVENT_PEER_DOWN, f.to_there);
    expect_nothing();
}

static void test_claim_of_others(void **state)
{
    soft_record_t *slot = claim();

    (void)state;
    leave();
    expect(ANGARA_EVENT_PEER_DOWN, f.to_there);
    expect_nothing();
    finish(slot);
    expect(ANGARA_EVENT_NOTIFY, NULL);
    expect_nothing();
}

/*
 * Who was stopped with a record half written holds up nobody: what others say behind it comes, the
 * news that one has left comes after its last words, and the receiver may sleep.
 */
static void test_words_behind_claim(void **state)
{
    soft_record_t *slot = claim();
    struct pollfd  pfd  = {.events = POLLIN};

    (void)state;
    assert_int_equal(angara_pe_event_fd(f.here, &pfd.fd), ANGARA_OK);
    assert_int_equal(angara_pe_event_arm(f.here), ANGARA_OK);
    assert_int_equal(angara_notify(f.to_here, "1", 1), ANGARA_OK);
    assert_int_equal(poll(&pfd, 1, 10000), 1);
    angara_pe_event_disarm(f.here);
    assert_int_equal(angara_pe_event_arm(f.here), ANGARA_INPROGRESS);
    expect(ANGARA_EVENT_NOTIFY, f.to_there);
    assert_int_equal(angara_notify(f.to_here, "2", 1), ANGARA_OK);
    leave();
    expect(ANGARA_EVENT_NOTIFY, f.to_there);
    expect(ANGARA_EVENT_PEER_DOWN, f.to_there);
    expect_nothing();
    finish(slot);
    expect(ANGARA_EVENT_NOTIFY, NULL);
    expect_nothing();
}

/*
 * The others have used up their lap behind such a one, and the receiver, who has read all of it,
 * sleeps when that one is killed. Who is refused wakes him, so that he looks.
 */
static void test_killed_claim(void **state)
{
    soft_record_t *slot  = claim();
    struct pollfd  pfd   = {.events = POLLIN};
    unsigned       tries = 0, i;

    (void)state;
    assert_int_equal(angara_pe_event_fd(f.here, &pfd.fd), ANGARA_OK);
    for (i = 1; i < EVENTS; ++i) {
        assert_int_equal(angara_notify(f.to_here, "1", 1), ANGARA_OK);
        expect(ANGARA_EVENT_NOTIFY, f.to_there);
    }
    assert_int_equal(angara_pe_event_arm(f.here), ANGARA_OK);
    slot->state = claimed_by((uint64_t)gone);
    while (angara_notify(f.to_here, "2", 1) != ANGARA_OK) {
        assert_true(tries++ < 1000);
        usleep(1000); /* a claim is looked at now and then */
        if (poll(&pfd, 1, 0) == 1) {
            angara_pe_event_disarm(f.here);
            expect_nothing();
            assert_int_equal(angara_pe_event_arm(f.here), ANGARA_OK);
        }
    }
    angara_pe_event_disarm(f.here);
    expect(ANGARA_EVENT_NOTIFY, f.to_there);
    expect_nothing();
    angara_peer_disconnect(f.to_here);
    angara_pe_destroy(f.there);
}

/* While there is nothing that a child would have to clean up. */
static int make_gone(void **state)
{
    (void)state;
    gone = fork();
    if (gone == 0) {
        _exit(0);
    }
    return (waitpid(gone, NULL, 0) == gone) ? 0 : -1;
}

#define TEST(_name) cmocka_unit_test_setup_teardown(_name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_in_order),
        TEST(test_claim_of_others),
        TEST(test_words_behind_claim),
        TEST(test_killed_claim),
    };

    return cmocka_run_group_tests_name("event", tests, make_gone, NULL);
}
