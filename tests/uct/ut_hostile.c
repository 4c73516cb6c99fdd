/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hostile peer of test_hostile.c and test_fuzz.c: opening both sides, and its ways to write.
 */
#include "ut_hostile.h"

ucs_status_t ho_receive(void *arg, void *data, size_t length, unsigned flags)
{
    ho_t          *ho    = arg;
    const uint8_t *bytes = data;
    size_t         i;

    (void)flags;
    ++ho->messages;
    for (i = 0; i < length; ++i) {
        ho->checksum += bytes[i];
    }
    return UCS_OK;
}

/* ---- the two sides ------------------------------------------------------------------------- */

void ho_victim_open(ho_t *ho)
{
    uint8_t id;

    memset(&ho->victim, 0, sizeof(ho->victim));
    ut_iface_open(ho->t, &ho->victim);
    for (id = 0; id < UCT_AM_ID_MAX; ++id) {
        CHECK_OK(uct_iface_set_am_handler(ho->victim.iface, id, ho_receive, ho, 0));
    }
}

void ho_attacker_open(ho_t *ho)
{
    angara_pe_params_t params = {.size = sizeof(params), .window_size = HO_WINDOW};
    angara_address_t   target;
    size_t             size;

    CHECK_EQ(angara_open(NULL, &ho->dom), ANGARA_OK);
    CHECK_EQ(angara_pe_create(ho->dom, &params, &ho->pe), ANGARA_OK);
    ho->window = angara_pe_window(ho->pe, &size);
    CHECK_EQ(angara_pe_window_commit(ho->pe, 0, HO_WINDOW), ANGARA_OK);
    angara_pe_address(ho->pe, &ho->address);
    memcpy(&target, ho->victim.addr.iface, sizeof(target));
    CHECK_EQ(angara_peer_connect(ho->pe, &target, &ho->peer), ANGARA_OK);
    CHECK_EQ(angara_marker_slot_get(ho->pe, &ho->slot), ANGARA_OK);
    ho->value   = *ho->slot;
    ho->granted = ho->greeted = ho->refused = 0;
    ho->resets = ho->answers = 0;
}

/* The victim's endpoint to the attacker, so that it hears of failures. */
void ho_connect_back(ho_t *ho)
{
    ut_addr_t addr = ho->victim.addr;

    memcpy(addr.iface, &ho->address, sizeof(ho->address));
    ho->back = ut_ep_create(&ho->victim, &addr);
}

void ho_open(ho_t *ho, ut_t *t)
{
    memset(ho, 0, sizeof(*ho));
    ho->t = t;
    ho_victim_open(ho);
    ho_attacker_open(ho);
    ho_connect_back(ho);
}

void ho_attacker_close(ho_t *ho)
{
    angara_marker_slot_put(ho->pe, ho->slot);
    angara_peer_disconnect(ho->peer);
    angara_pe_destroy(ho->pe);
    CHECK_EQ(angara_close(ho->dom), ANGARA_OK);
}

void ho_close(ho_t *ho)
{
    uct_ep_destroy(ho->back);
    ho_attacker_close(ho);
    ut_progress(ho->t);
    ut_iface_close(&ho->victim);
}

/* Both sides take what has come. */
void ho_turn(ho_t *ho)
{
    angara_event_t event;

    ut_progress(ho->t);
    angara_pe_progress(ho->pe);
    while (angara_pe_event_poll(ho->pe, &event) == ANGARA_OK) {
        if (event.type != ANGARA_EVENT_NOTIFY) {
            continue;
        }
        if (event.data[0] == UCT_ANGARA_GRANT) {
            memcpy(&ho->grant, event.data, sizeof(ho->grant));
            ho->granted = 1;
        } else if (event.data[0] == UCT_ANGARA_HELLO) {
            memcpy(&ho->hello, event.data, sizeof(ho->hello));
            ho->greeted = 1;
        } else if (event.data[0] == UCT_ANGARA_REFUSE) {
            memcpy(&ho->refusal, event.data, sizeof(ho->refusal));
            ho->refused = 1;
        } else if (event.data[0] == UCT_ANGARA_RESET) {
            memcpy(&ho->reset, event.data, sizeof(ho->reset));
            ++ho->resets;
            if (!ho->silent) {
                ho_answer_reset(ho);
            }
        } else if ((event.data[0] == UCT_ANGARA_CLOSE_ACK) ||
                   (event.data[0] == UCT_ANGARA_RESET_ACK)) {
            memcpy(&ho->answer, event.data, sizeof(ho->answer));
            ++ho->answers;
        }
    }
}

void ho_turns(ho_t *ho, unsigned count)
{
    while (count-- > 0) {
        ho_turn(ho);
    }
}

/* The victim still works: a message to itself, and a put into its memory. */
void ho_check_alive(ho_t *ho)
{
    uint64_t before;
    uct_ep_h self = ut_ep_create(&ho->victim, &ho->victim.addr);

    ut_progress_ms(ho->t, 1);
    before = ho->messages;
    POST_OK(ho->t, uct_ep_am_short(self, 1, 1, "alive", 5));
    UT_WAIT(ho->t, ho->messages > before);
    ut_flush(ho->t, &ho->victim);
    uct_ep_destroy(self);
    ut_progress_ms(ho->t, 1);
}

/* ---- what the attacker says ----------------------------------------------------------------- */

void ho_notify(ho_t *ho, const void *record, size_t length)
{
    angara_status_t status;

    while ((status = angara_notify(ho->peer, record, length)) == ANGARA_ERR_NO_RESOURCE) {
        ho_turn(ho);
    }
    CHECK_EQ(status, ANGARA_OK);
}

uct_angara_record_t ho_record(uint8_t type)
{
    uct_angara_record_t record = {.type = type, .version = UCT_ANGARA_PROTOCOL, .epoch = 1};

    return record;
}

uct_angara_hello_t ho_hello(const ho_t *ho)
{
    uct_angara_hello_t hello = {.super = ho_record(UCT_ANGARA_HELLO), .address = ho->address};

    hello.super.shape = HO_SHAPE(HO_SHIFT, UCT_ANGARA_NO_SEGS);
    hello.super.value = HO_RUN;
    return hello;
}

/* What the victim knows of the attacker. */
uct_angara_peer_t *ho_peer(const ho_t *ho)
{
    return uct_angara_ep_peer(ho->back);
}

/* Ask for a ring as an honest peer would. */
void ho_get_ring(ho_t *ho)
{
    uct_angara_hello_t hello = ho_hello(ho);

    ho->granted = 0;
    ho_notify(ho, &hello, sizeof(hello));
    HO_WAIT(ho, ho->granted);
}

/* An honest answer to the victim's greeting: the smallest ring that takes its longest run. */
uct_angara_grant_t ho_grant(const ho_t *ho)
{
    uct_angara_grant_t grant = {
        .super = ho_record(UCT_ANGARA_GRANT), .ring_off = HO_RING, .ready_off = HO_READY};

    grant.super.epoch        = ho->hello.super.epoch;
    grant.super.credit_index = ho->hello.super.credit_index;
    grant.nslots             = ucs_max(4u * ho->hello.super.value, UCT_ANGARA_SLOTS_MIN);
    return grant;
}

/* Have the victim ask for a ring, and grant it one. */
void ho_give_ring(ho_t *ho)
{
    uct_angara_grant_t grant;

    CHECK_OK(uct_ep_am_short(ho->back, 1, 0, NULL, 0));
    HO_WAIT(ho, ho->greeted);
    grant = ho_grant(ho);
    ho_notify(ho, &grant, sizeof(grant));
    ut_flush(ho->t, &ho->victim);
}

/* An honest answer to the victim's last RESET: the attacker has nothing in flight. */
void ho_answer_reset(ho_t *ho)
{
    uct_angara_record_t record = ho_record(UCT_ANGARA_RESET_ACK);

    ho_landed(ho);
    record.epoch = ho->reset.super.epoch;
    record.shape = ho->reset.super.shape;
    while (angara_notify(ho->peer, &record, sizeof(record)) == ANGARA_ERR_NO_RESOURCE) {
        ut_progress(ho->t);
    }
}

/* Wait until all that was put has landed. */
void ho_landed(ho_t *ho)
{
    uint64_t value = ++ho->value;

    while (angara_marker(ho->peer, ho->slot, value) == ANGARA_ERR_NO_RESOURCE) {
        angara_pe_progress(ho->pe);
    }
    while (!angara_marker_arrived(ho->slot, value)) {
        angara_pe_progress(ho->pe);
    }
}

void ho_put(ho_t *ho, uint64_t offset, const void *data, size_t length)
{
    while (angara_put(ho->peer, offset, data, length) == ANGARA_ERR_NO_RESOURCE) {
        angara_pe_progress(ho->pe);
    }
}

/* Write a header word, and payload, at a slot; and the ready word. */
void ho_header(ho_t *ho, unsigned slot, uint64_t header, uint16_t ready)
{
    uint64_t offset = ho->grant.ring_off + ((uint64_t)slot << HO_SHIFT);

    while (angara_put_flag(ho->peer, offset + 8, "payload", 8, offset, header) ==
           ANGARA_ERR_NO_RESOURCE) {
        angara_pe_progress(ho->pe);
    }
    ho_put(ho, ho->grant.ready_off, &ready, sizeof(ready));
    ho_landed(ho);
}
