/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The marker slots that all providers share (slots.h): here the test is the provider, which lands
 * markers when it likes, or drops them.
 */
#include "provider/slots.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNT 4

static const int owner_a, owner_b;

typedef struct {
    ang_slots_t          slots;
    angara_marker_slot_t words[COUNT];
} life_t;

static int begin(void **state)
{
    life_t *life = calloc(1, sizeof(*life));

    *state = life;
    return life == NULL || ang_slots_init(&life->slots, life->words, COUNT) != ANGARA_OK;
}

static int end(void **state)
{
    life_t *life = *state;

    ang_slots_cleanup(&life->slots);
    free(life);
    return 0;
}

static angara_status_t post(life_t *life, const angara_marker_slot_t *word, const void *owner,
                            uint64_t value)
{
    uint32_t        index;
    angara_status_t status = ang_slots_check(&life->slots, word, owner, value, &index);

    if (status == ANGARA_OK) {
        assert_ptr_equal(&life->words[index], word);
        ang_slots_posted(&life->slots, index, owner, value);
    }
    return status;
}

/* Take all that can be taken. @return how many; each is another one. */
static unsigned take_all(life_t *life, angara_marker_slot_t **words)
{
    unsigned num = 0;

    while (ang_slots_get(&life->slots, &words[num]) == ANGARA_OK) {
        for (unsigned i = 0; i < num; ++i) {
            assert_ptr_not_equal(words[i], words[num]);
        }
        num++;
    }
    return num;
}

static void test_take(void **state)
{
    life_t               *life = *state;
    angara_marker_slot_t *words[COUNT + 1];

    assert_int_equal(take_all(life, words), COUNT);
    ang_slots_put(&life->slots, words[2]);
    ang_slots_put(&life->slots, words[2]); /* twice */
    assert_int_equal(take_all(life, words), 1);
    ang_slots_put(&life->slots, NULL);
    ang_slots_put(&life->slots, &life->words[COUNT]);
    ang_slots_put(&life->slots, (angara_marker_slot_t *)((uintptr_t)&life->words[1] + 4));
    assert_int_equal(take_all(life, words), 0);
}

static void test_values(void **state)
{
    life_t               *life = *state;
    angara_marker_slot_t *word;

    life->words[0] = UINT64_MAX - 1; /* they wrap */
    assert_int_equal(ang_slots_get(&life->slots, &word), ANGARA_OK);
    assert_ptr_equal(word, &life->words[0]);
    assert_int_equal(post(life, word, &owner_a, UINT64_MAX - 1), ANGARA_ERR_INVALID);
    assert_int_equal(post(life, word, &owner_a, UINT64_MAX), ANGARA_OK);
    assert_int_equal(post(life, word, &owner_a, 3), ANGARA_OK);
    assert_int_equal(post(life, word, &owner_a, 3), ANGARA_ERR_INVALID);
    assert_int_equal(post(life, word, &owner_a, UINT64_MAX), ANGARA_ERR_INVALID);
    *word = 3;
    ang_slots_put(&life->slots, word);
    assert_int_equal(post(life, word, &owner_a, 4), ANGARA_ERR_INVALID); /* nobody's */
    assert_int_equal(post(life, &life->words[1], &owner_a, 4), ANGARA_ERR_INVALID);
    assert_int_equal(post(life, NULL, &owner_a, 4), ANGARA_ERR_INVALID);
}

/* One owner at a time; NULL is one as well. */
static void test_owners(void **state)
{
    life_t               *life = *state;
    angara_marker_slot_t *word;

    assert_int_equal(ang_slots_get(&life->slots, &word), ANGARA_OK);
    assert_int_equal(post(life, word, &owner_a, 1), ANGARA_OK);
    assert_int_equal(post(life, word, &owner_a, 2), ANGARA_OK);
    assert_int_equal(post(life, word, &owner_b, 3), ANGARA_ERR_NO_RESOURCE);
    *word = 1;
    assert_int_equal(post(life, word, NULL, 3), ANGARA_ERR_NO_RESOURCE);
    *word = 2;
    assert_int_equal(post(life, word, NULL, 3), ANGARA_OK);
    assert_int_equal(post(life, word, &owner_a, 4), ANGARA_ERR_NO_RESOURCE);
    ang_slots_settle(&life->slots, &owner_a); /* not its */
    assert_int_equal(post(life, word, &owner_a, 4), ANGARA_ERR_NO_RESOURCE);
    ang_slots_settle(&life->slots, NULL);
    assert_int_equal(post(life, word, &owner_a, 3), ANGARA_ERR_INVALID); /* dropped, but posted */
    assert_int_equal(post(life, word, &owner_a, 4), ANGARA_OK);
}

/* Given back with a marker under way: not handed out before that has landed or can't. */
static void test_waiting(void **state)
{
    life_t               *life = *state;
    angara_marker_slot_t *words[COUNT + 1], *first, *second;

    assert_int_equal(take_all(life, words), COUNT);
    first  = words[0];
    second = words[1];
    assert_int_equal(post(life, first, &owner_a, 1), ANGARA_OK);
    assert_int_equal(post(life, second, &owner_b, 1), ANGARA_OK);
    ang_slots_put(&life->slots, first);
    ang_slots_put(&life->slots, first); /* twice while it waits */
    ang_slots_put(&life->slots, second);
    assert_int_equal(take_all(life, words), 0);
    *first = 1;
    assert_int_equal(take_all(life, words), 1);
    assert_ptr_equal(words[0], first);
    ang_slots_settle(&life->slots, &owner_b);
    assert_int_equal(take_all(life, words), 1);
    assert_ptr_equal(words[0], second);
    assert_int_equal(post(life, second, &owner_a, 1),
                     ANGARA_OK); /* the dropped one doesn't count */
}

/* Any order of all of it, against a plain account of what may happen. */
static void test_random(void **state)
{
    static const void *const owners[]    = {NULL, &owner_a, &owner_b};
    life_t                  *life        = *state;
    uint64_t                 last[COUNT] = {0};
    int                      who[COUNT]  = {0};
    int                      held[COUNT] = {0};

    srand(7);
    for (unsigned n = 0; n < 200000; ++n) {
        unsigned              i     = (unsigned)rand() % COUNT;
        int                   owner = rand() % 3;
        int                   quiet = (int64_t)(life->words[i] - last[i]) >= 0;
        angara_marker_slot_t *word  = &life->words[i];
        angara_status_t       status;

        switch (rand() % 5) {
        case 0:
            if (ang_slots_get(&life->slots, &word) == ANGARA_OK) {
                i = (unsigned)(word - life->words);
                assert_true(!held[i] && (int64_t)(*word - last[i]) >= 0);
                held[i] = 1;
                last[i] = *word;
            }
            break;
        case 1:
            ang_slots_put(&life->slots, word);
            held[i] = 0;
            break;
        case 2:
            status = post(life, word, owners[owner], last[i] + 1);
            assert_int_equal(status, !held[i]                   ? ANGARA_ERR_INVALID :
                                     (quiet || who[i] == owner) ? ANGARA_OK :
                                                                  ANGARA_ERR_NO_RESOURCE);
            if (status == ANGARA_OK) {
                last[i]++;
                who[i] = owner;
            }
            break;
        case 3: /* one lands */
            *word += !quiet;
            break;
        default:
            if (n % 16 == 0) { /* all of an owner's land, as the test can't take one back */
                for (unsigned j = 0; j < COUNT; ++j) {
                    life->words[j] = who[j] == owner ? last[j] : life->words[j];
                }
                ang_slots_settle(&life->slots, owners[owner]);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_take, begin, end),
        cmocka_unit_test_setup_teardown(test_values, begin, end),
        cmocka_unit_test_setup_teardown(test_owners, begin, end),
        cmocka_unit_test_setup_teardown(test_waiting, begin, end),
        cmocka_unit_test_setup_teardown(test_random, begin, end),
    };

    return cmocka_run_group_tests_name("slots", tests, NULL, NULL);
}
