/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What other processes, other versions and other machines see: sizes, offsets and numbers that may
 * only change together with a version number.
 */
#include "engine/desc.h"
#include "soft.h"

#include "src/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_address(void **state)
{
    (void)state;
    assert_int_equal(sizeof(angara_address_t), 56);
    assert_int_equal(offsetof(angara_address_t, version), 2);
    assert_int_equal(offsetof(angara_address_t, provider), 3);
    assert_int_equal(offsetof(angara_address_t, node), 4);
    assert_int_equal(offsetof(angara_address_t, index), 8);
    assert_int_equal(offsetof(angara_address_t, generation), 12);
    assert_int_equal(offsetof(angara_address_t, loc), 16);
    assert_int_equal(ANGARA_ADDRESS_MAGIC, 0xa46a);
    assert_int_equal(ANGARA_WIRE_VERSION, 1);
}

static void test_public(void **state)
{
    (void)state;
    assert_int_equal(ANGARA_NOTIFY_MAX, 64);
    assert_int_equal(sizeof(angara_event_t), 104);
    assert_int_equal(offsetof(angara_event_t, data), 28);
    assert_int_equal(offsetof(angara_event_t, from), 92);
    assert_int_equal(ANGARA_ERR_FORKED, -15);
    assert_int_equal(ANGARA_ERR_INVALID, -1);
    assert_int_equal(ANGARA_EVENT_OVERFLOW, 5);
    assert_int_equal(ANGARA_ATOMIC_LAST, 6);
    assert_int_equal(sizeof(angara_pe_params_t), 32);
    assert_int_equal(offsetof(angara_pe_params_t, flags), 24);
    assert_int_equal(offsetof(angara_pe_params_t, size), 0);
    assert_int_equal(ANGARA_FAST_VERSION, 6);
    assert_int_equal(sizeof(struct angara_peer_fast), 368);
    assert_int_equal(offsetof(struct angara_peer_fast, window), 0);
    assert_int_equal(offsetof(struct angara_peer_fast, window_size), 8);
    assert_int_equal(offsetof(struct angara_peer_fast, armed), 16);
    assert_int_equal(offsetof(struct angara_peer_fast, fence), 24);
    assert_int_equal(offsetof(struct angara_peer_fast, generation_p), 32);
    assert_int_equal(offsetof(struct angara_peer_fast, queued), 40);
    assert_int_equal(offsetof(struct angara_peer_fast, since), 48);
    assert_int_equal(offsetof(struct angara_peer_fast, before), 72);
    assert_int_equal(offsetof(struct angara_peer_fast, maps), 112);
    assert_int_equal(sizeof(struct angara_fast_map), 64);
}

static void test_descriptor(void **state)
{
    (void)state;
    assert_int_equal(sizeof(ang_desc_t), 128);
    assert_int_equal(offsetof(ang_desc_t, pair), 4);
    assert_int_equal(offsetof(ang_desc_t, lkey), 8);
    assert_int_equal(offsetof(ang_desc_t, rkey), 24);
    assert_int_equal(offsetof(ang_desc_t, length), 40);
    assert_int_equal(offsetof(ang_desc_t, operand), 48);
    assert_int_equal(offsetof(ang_desc_t, data), 88);
    assert_int_equal(ANG_OP_PUT, 1);
    assert_int_equal(ANG_OP_MARKER_SELF, 6);
}

/* Shared by processes of one SOFT_LAYOUT. */
static void test_soft_layout(void **state)
{
    (void)state;
    assert_int_equal(SOFT_LAYOUT, 20);
    assert_int_equal(sizeof(soft_mr_entry_t), 64);
    assert_int_equal(offsetof(soft_mr_entry_t, kind), 40);
    assert_int_equal(offsetof(soft_mr_entry_t, id), 48);
    assert_int_equal(sizeof(soft_hazard_t), 128);
    assert_int_equal(sizeof(soft_slot_t), 1280);
    assert_int_equal(sizeof(soft_record_t), 128);
    assert_int_equal(sizeof(soft_request_t), 80);
    assert_int_equal(offsetof(soft_domain_seg_t, hazards) % 64, 0);
    assert_int_equal(offsetof(soft_domain_seg_t, entries) % 64, 0);
    assert_int_equal(offsetof(soft_pe_seg_t, armed) % 64, 0);
    assert_int_equal(offsetof(soft_service_t, slots) % 128, 0);
    /* A flag that is polled shares its line with nothing that others write. */
    assert_true(offsetof(soft_pe_seg_t, probe) >= offsetof(soft_pe_seg_t, armed) + 64);
}

/* A program compiled with other inline code isn't let in. */
static void test_fast_version(void **state)
{
    angara_domain_h dom = NULL;

    (void)state;
    ang_log_level = ANG_LOG_ERROR;
    assert_int_equal(angara_open_version("soft", ANGARA_FAST_VERSION + 1, &dom),
                     ANGARA_ERR_VERSION);
    assert_int_equal(angara_open_version("soft", 0, &dom), ANGARA_ERR_VERSION);
    assert_null(dom);
    assert_int_equal(angara_open_version("soft", ANGARA_FAST_VERSION, &dom), ANGARA_OK);
    assert_int_equal(angara_close(dom), ANGARA_OK);
}

/* Programs of version 0.1 and of later ones create PEs; what isn't known here is refused if set. */
static void test_params_growth(void **state)
{
    struct {
        angara_pe_params_t params;
        uint64_t           later[2];
    } grown = {{.size = sizeof(grown), .window_size = 4096, .events = 16}, {0, 0}};
    angara_domain_h dom;
    angara_pe_h     pe = NULL;

    (void)state;
    assert_int_equal(angara_open("soft", &dom), ANGARA_OK);
    assert_int_equal(angara_pe_create(dom, &grown.params, &pe), ANGARA_OK);
    angara_pe_destroy(pe);
    pe             = NULL;
    grown.later[1] = 1;
    assert_int_equal(angara_pe_create(dom, &grown.params, &pe), ANGARA_ERR_UNSUPPORTED);
    grown.params.size = 24; /* of version 0.1 */
    assert_int_equal(angara_pe_create(dom, &grown.params, &pe), ANGARA_OK);
    angara_pe_destroy(pe);
    pe                = NULL;
    grown.params.size = 23;
    assert_int_equal(angara_pe_create(dom, &grown.params, &pe), ANGARA_ERR_INVALID);
    grown.params.size = SIZE_MAX; /* never set */
    assert_int_equal(angara_pe_create(dom, &grown.params, &pe), ANGARA_ERR_INVALID);
    assert_null(pe);
    assert_int_equal(angara_close(dom), ANGARA_OK);
}

/* What a program's header doesn't have isn't written; what the library doesn't have is 0. */
static void test_event_growth(void **state)
{
    struct {
        angara_event_t event;
        uint64_t       later;
    } grown, whole;
    angara_address_t address;
    angara_domain_h  dom;
    angara_peer_h    self;
    angara_pe_h      pe;

    (void)state;
    assert_int_equal(angara_open("soft", &dom), ANGARA_OK);
    assert_int_equal(angara_pe_create(dom, NULL, &pe), ANGARA_OK);
    angara_pe_address(pe, &address);
    assert_int_equal(angara_peer_connect(pe, &address, &self), ANGARA_OK);
    for (unsigned i = 0; i < 3; ++i) {
        assert_int_equal(angara_notify(self, "record", 6), ANGARA_OK);
    }
    memset(&grown, 0x5a, sizeof(grown));
    whole = grown;
    assert_int_equal(angara_pe_event_poll(pe, &whole.event), ANGARA_OK);
    assert_int_equal(whole.event.from.node, address.node);
    assert_int_equal(whole.event.from.index, address.index);
    assert_int_equal(whole.event.from.generation, address.generation);
    assert_true(whole.later == 0x5a5a5a5a5a5a5a5aull);

    assert_int_equal(angara_pe_event_poll_sized(pe, &grown.event, offsetof(angara_event_t, from)),
                     ANGARA_OK);
    assert_memory_equal(grown.event.data, "record", 6);
    assert_true(grown.event.peer == self);
    assert_true(grown.event.from.node == 0x5a5a5a5a && grown.event.from.generation == 0x5a5a5a5a);

    assert_int_equal(angara_pe_event_poll_sized(pe, &grown.event, sizeof(grown)), ANGARA_OK);
    assert_int_equal(grown.event.from.generation, address.generation);
    assert_true(grown.later == 0);
    grown = whole;
    assert_int_equal(angara_pe_event_poll_sized(pe, &grown.event, sizeof(grown)),
                     ANGARA_ERR_NO_RESOURCE);
    assert_memory_equal(&grown, &whole, sizeof(grown));
    angara_peer_disconnect(self);
    angara_pe_destroy(pe);
    assert_int_equal(angara_close(dom), ANGARA_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_address),      cmocka_unit_test(test_public),
        cmocka_unit_test(test_descriptor),   cmocka_unit_test(test_soft_layout),
        cmocka_unit_test(test_fast_version), cmocka_unit_test(test_params_growth),
        cmocka_unit_test(test_event_growth),
    };

    return cmocka_run_group_tests_name("abi", tests, NULL, NULL);
}
