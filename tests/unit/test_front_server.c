/* SPDX-License-Identifier: BSD-3-Clause */
/* The front of a slot, as its server finds it: served first, and checked as any request. */
#include "service_slot.h"

static soft_front_t *front(void)
{
    return &f.slot->front;
}

static soft_request_t add(uint64_t key, uint64_t offset, uint64_t value)
{
    soft_request_t r = request(ANG_OP_ATOMIC, key, offset, 0);

    r.atomic  = ANGARA_ATOMIC_ADD;
    r.operand = value;
    return r;
}

static void post_front(const soft_request_t *r)
{
    memcpy(front()->request, r, SOFT_REQUEST_HEAD);
    __atomic_store_n(&front()->state, (front()->state / SOFT_TURN + 1) * SOFT_TURN + SOFT_POSTED,
                     __ATOMIC_RELEASE);
}

static int front_served(unsigned ms)
{
    ring(SLOT);
    for (unsigned i = 0; i <= ms; ++i) {
        poll_requests(1);
        if (soft_state_phase(__atomic_load_n(&front()->state, __ATOMIC_ACQUIRE)) == SOFT_DONE) {
            return 1;
        }
        sleep_ms(1);
    }
    return 0;
}

static angara_status_t front_status(soft_request_t r)
{
    post_front(&r);
    assert_true(front_served(LONG_MS));
    return (angara_status_t)front()->status;
}

static uint64_t *there(void)
{
    return (uint64_t *)(void *)f.memory[0];
}

/* Alone it is answered, and the slot's own state stays as it was. */
static void test_alone(void **state_p)
{
    uint64_t before = state();

    (void)state_p;
    *there() = 7;
    assert_int_equal(front_status(add(angara_mr_key(f.all), 0, 5)), ANGARA_OK);
    assert_int_equal(*there(), 12);
    assert_int_equal(state(), before);
}

/* Both are there when somebody looks: the request finds the front performed. */
static void test_order(void **state_p)
{
    uint64_t       key = angara_mr_key(f.all);
    soft_request_t r   = add(key, 0, 5);

    (void)state_p;
    for (unsigned i = 0; i < 100; ++i) {
        *there() = 7;
        post_front(&r);
        r    = add(key, 0, 100);
        r.by = SOFT_BY_SLOT_BEHIND;
        assert_int_equal(status_of(r), ANGARA_OK);
        assert_int_equal(f.slot->request.operand, 12);
        assert_int_equal(front()->status, ANGARA_OK);
        assert_int_equal(*there(), 112);
        r = add(key, 0, 5);
    }
}

/* Once watched, the slot's front needs no bit. */
static void test_watched(void **state_p)
{
    soft_request_t r = add(angara_mr_key(f.all), 0, 5);

    (void)state_p;
    *there() = 0;
    assert_int_equal(status_of(r), ANGARA_OK);
    for (unsigned i = 0; i < LONG_MS && f.target->watched != SLOT; ++i) {
        assert_int_equal(status_of(r), ANGARA_OK);
    }
    assert_int_equal(f.target->watched, SLOT);
    *there() = 0;
    assert_false(angara_pe_is_asked(&f.target->base));
    post_front(&r);
    assert_true(angara_pe_is_asked(&f.target->base));
    angara_pe_progress(&f.target->base);
    assert_int_equal(soft_state_phase(front()->state), SOFT_DONE);
    assert_false(angara_pe_is_asked(&f.target->base));
    assert_int_equal(*there(), 5);
}

/* What is behind a front that failed isn't performed, and ends with its status; what isn't behind
 * it has nothing to do with it. */
static void test_failed(void **state_p)
{
    uint64_t       key = angara_mr_key(f.all);
    soft_request_t bad = add(key ^ (1ull << 40), 0, 5);
    soft_request_t r   = add(key, 0, 100);

    (void)state_p;
    *there() = 7;
    post_front(&bad);
    r.by = SOFT_BY_SLOT_BEHIND;
    assert_int_equal(status_of(r), ANGARA_ERR_KEY);
    assert_int_equal(front()->status, ANGARA_ERR_KEY);
    assert_int_equal(f.slot->request.operand, 0);
    assert_int_equal(*there(), 7);
    r.by = SOFT_BY_SLOT;
    assert_int_equal(status_of(r), ANGARA_OK);
    assert_int_equal(*there(), 107);
}

static void test_nonsense(void **state_p)
{
    uint64_t       key  = angara_mr_key(f.all);
    soft_request_t good = add(key, 0, 5), r;

    (void)state_p;
    *there() = 7;
    for (unsigned op = 0; op < 256; ++op) {
        r    = good;
        r.op = (uint8_t)op;
        assert_int_equal(front_status(r), op == ANG_OP_ATOMIC ? ANGARA_OK : ANGARA_ERR_INVALID);
    }
    assert_int_equal(*there(), 12);
    for (unsigned by = SOFT_BY_SLOT + 1; by < 256; ++by) {
        r    = good;
        r.by = (uint8_t)by;
        assert_int_equal(front_status(r), ANGARA_ERR_INVALID);
    }
    r       = good;
    r.width = 16;
    assert_int_equal(front_status(r), ANGARA_ERR_INVALID);
    r        = good;
    r.atomic = ANGARA_ATOMIC_LAST;
    assert_int_equal(front_status(r), ANGARA_ERR_INVALID);
    assert_int_equal(front_status(add(key, 4, 5)), ANGARA_ERR_BOUNDS);
    assert_int_equal(front_status(add(key, SIZE, 5)), ANGARA_ERR_BOUNDS);
    assert_int_equal(front_status(add(key, UINT64_MAX - 7, 5)), ANGARA_ERR_BOUNDS);
    assert_int_equal(front_status(add(angara_mr_key(f.readable), 0, 5)), ANGARA_ERR_RIGHTS);
    assert_int_equal(*there(), 12);
}

/* Taken back, it isn't served. */
static void test_taken_back(void **state_p)
{
    soft_request_t r = add(angara_mr_key(f.all), 0, 5);

    (void)state_p;
    *there() = 7;
    post_front(&r);
    front()->state = soft_state_to(front()->state, SOFT_IDLE);
    assert_false(front_served(SHORT_MS));
    assert_int_equal(*there(), 7);
}

#define FRONT(_name) cmocka_unit_test_setup_teardown(_name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRONT(test_alone),  FRONT(test_order),    FRONT(test_watched),
        FRONT(test_failed), FRONT(test_nonsense), FRONT(test_taken_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
