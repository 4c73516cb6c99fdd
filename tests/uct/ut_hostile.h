/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer of the interface under test that speaks to it through libangara alone, so that it can say
 * anything: control records, ring headers, ready words, credits. Both sides live in one process.
 */
#ifndef ANGARA_TESTS_UT_HOSTILE_H
#define ANGARA_TESTS_UT_HOSTILE_H

#include "ut.h"

#include "verbs/ep.h"

#define HO_WINDOW              ((size_t)1 << 20)
#define HO_RING                ((uint64_t)64 << 10) /* where the attacker grants its ring */
#define HO_READY               ((uint64_t)32 << 10) /* and the ready word */
#define HO_RUN                 4 /* slots of our longest run: a ring of any size takes that */
#define HO_SHIFT               7 /* log2 of bytes per slot */
#define HO_SHAPE(_shift, _seg) (((_shift)-UCT_ANGARA_SLOT_SHIFT_MIN) | ((_seg) << 4))

#define HO_LENGTH(_length)     ((uint64_t)(_length) << UCT_ANGARA_HDR_LEN_SHIFT)

typedef struct {
    ut_t                 *t;
    ut_iface_t            victim;   /* interface under test */
    uct_ep_h              back;     /* its endpoint to the attacker */
    uint64_t              messages; /* delivered to it */
    uint64_t              checksum; /* of all their bytes, so that they are read */
    angara_domain_h       dom;
    angara_pe_h           pe;
    angara_peer_h         peer;
    angara_address_t      address; /* of the attacker */
    char                 *window;
    angara_marker_slot_t *slot;
    uint64_t              value;
    uct_angara_grant_t    grant;   /* the victim's, once it came */
    uct_angara_hello_t    hello;   /* the victim's */
    uct_angara_record_t   refusal; /* the victim's */
    uct_angara_hello_t    reset;   /* the victim's */
    uct_angara_record_t   answer;  /* its last CLOSE_ACK or RESET_ACK */
    unsigned              resets;  /* RESETs of the victim's */
    unsigned              answers; /* CLOSE_ACKs and RESET_ACKs */
    int                   silent;  /* doesn't answer RESETs */
    int                   granted;
    int                   greeted;
    int                   refused;
} ho_t;

ucs_status_t        ho_receive(void *arg, void *data, size_t length, unsigned flags);
void                ho_victim_open(ho_t *ho);
void                ho_attacker_open(ho_t *ho);
void                ho_attacker_close(ho_t *ho);
void                ho_connect_back(ho_t *ho);
void                ho_open(ho_t *ho, ut_t *t);
void                ho_close(ho_t *ho);
void                ho_turn(ho_t *ho);
void                ho_turns(ho_t *ho, unsigned count);
void                ho_check_alive(ho_t *ho);
void                ho_notify(ho_t *ho, const void *record, size_t length);
uct_angara_record_t ho_record(uint8_t type);
uct_angara_hello_t  ho_hello(const ho_t *ho);
uct_angara_peer_t  *ho_peer(const ho_t *ho);
void                ho_get_ring(ho_t *ho);
uct_angara_grant_t  ho_grant(const ho_t *ho);
void                ho_give_ring(ho_t *ho);
void                ho_answer_reset(ho_t *ho);
void                ho_landed(ho_t *ho);
void                ho_put(ho_t *ho, uint64_t offset, const void *data, size_t length);
void                ho_header(ho_t *ho, unsigned slot, uint64_t header, uint16_t ready);

/* Take turns until the condition holds. */
#define HO_WAIT(_ho, _cond)                                          \
    do {                                                             \
        ut_timer_t _timer = {0, 0};                                  \
        while (!(_cond)) {                                           \
            ho_turn(_ho);                                            \
            ut_relax((_ho)->t, &_timer, __FILE__, __LINE__, #_cond); \
        }                                                            \
    } while (0)

/* A test of one process: ut_run() of the function of that name. */
#define HO_TEST(_func)                     \
    static void test_##_func(void **state) \
    {                                      \
        (void)state;                       \
        ut_run(1, _func, NULL);            \
    }

#endif
